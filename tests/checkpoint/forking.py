# SPDX-License-Identifier: Apache-2.0
"""What the live fork tests share: talking to a program that runs inside, through its standard input and output."""

import contextlib
import os
import re

from lib import cay

STDOUT, STDERR, STATUS = 5, 6, 7


def window_at(name):
    """Where something of the restorer lies: src/checkpoint/image.h."""
    with open(os.path.join(cay.TOP, "src", "checkpoint", "image.h"), encoding="utf-8") as f:
        return int(re.search(rf"#define WINDOW_{name}\s+(0x[0-9a-f]+)ULL", f.read())[1], 16)


WINDOW = (window_at("START"), window_at("END"))  # no program's memory can be between these


def put(instance, box, path, text):
    instance.ok(box, f"cat > {path} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\n")


def put_file(instance, box, path, inside):
    """Copy a file of ours, which the server's user need not be able to read; who has @box can execute it."""
    with open(path, "rb") as f:
        status, _, answer = instance.raw("PUT", f"/v1/sandboxes/{box}/files?mode=755&path={inside}", f.read(), {"Content-Type": "application/octet-stream"})
    assert status // 100 == 2, answer
    return inside


def start(instance, box, *argv, ready=b"ready\n", **options):
    """Start a program that takes input, and wait until it has said @ready."""
    run = instance.exec(box, *argv, stdin=True, **options)
    wait_output(instance, box, run, ready)
    return run


@contextlib.contextmanager
def rootless(tmp, **env):
    """An instance of an ordinary user's."""
    os.chmod(tmp, 0o755)
    with cay.ThrowawayUser() as user:
        instance = cay.Instance(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1", **env})
        try:
            yield instance.start()
        finally:
            instance.close()


def wait_output(instance, box, run, end, start=0, seconds=60):
    """Until what @run wrote from offset @start ends with @end; gives it."""
    return wait_until_wrote(instance, box, run, lambda got: got.endswith(end), start, seconds)


def wait_until_wrote(instance, box, run, enough, start=0, seconds=60):
    """Until enough() says so of what @run wrote from offset @start; gives it."""
    frames = instance.attach(box, run, start)
    got = b""
    try:
        while not enough(got):
            try:
                frame = frames.next(seconds)
            except TimeoutError as e:
                raise AssertionError(f"waited {seconds} s, it said {got!r}") from e
            if frame is None or frame[0] == STATUS:
                raise AssertionError(f"ended early, it said {got!r}")
            if frame[0] in (STDOUT, STDERR):
                got += frame[2][8:]
    finally:
        frames.close()
    return got


def say(instance, box, run, text):
    """Write @text to the standard input of @run."""
    status, _, body = instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin", text.encode(),
                                   {"Content-Type": "application/octet-stream"})
    if status != 204:
        raise AssertionError(f"stdin: {status} {body!r}")


def ask(instance, box, run, text, end=b"\n"):
    """Write a line and give the answer, which ends with @end."""
    start = len(instance.output(box, run))
    say(instance, box, run, text + "\n")
    return wait_output(instance, box, run, end, start).decode()


def fork_live(instance, box, count=1):
    made = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True, "count": count})["sandboxes"]
    return [one["id"] for one in made]
