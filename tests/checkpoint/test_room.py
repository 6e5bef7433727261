# SPDX-License-Identifier: Apache-2.0
"""A server with a low limit of files: more than a fork could have open while it is made is refused while everything stands still, not when it is to be made."""

import contextlib
import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, start  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 120
FILES = 4096

# Many in one process, by one high number, or a sum of several.
PROGRAM = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, resource.getrlimit(resource.RLIMIT_NOFILE)[1:] * 2)
held, children = [], []
def open_some(n):
    held.extend(os.eventfd(0) for _ in range(n))
    return len(held)
def close_all():
    while held:
        os.close(held.pop())
    return len(held)
def one_high():
    held.append(os.dup2(0, 3500))
    return len(held)
def workers(n, each):
    for _ in range(n):
        ready, stop = os.pipe(), os.pipe()
        if os.fork() == 0:
            os.close(stop[1])
            open_some(each)
            os.write(ready[1], b"x")
            os.read(stop[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
        children.append(stop[1])
    return len(children)
def end_workers():
    while children:
        os.close(children.pop())
        os.wait()
    return len(children)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@contextlib.contextmanager
def with_few_files(tmp):
    """An ordinary user's: nobody there may raise a limit."""
    os.chmod(tmp, 0o755)
    with cay.ThrowawayUser() as user:
        instance = cay.Instance(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1"})
        popen = instance.popen
        instance.popen = lambda argv, **options: popen(["/usr/bin/prlimit", f"--nofile={FILES}:{FILES}", *argv], **options)
        try:
            yield instance.start()
        finally:
            instance.close()


def refused(instance, box, run):
    """By all that would make a fork possible later, and told in advance; the program goes on."""
    says = "a fork would need up to"
    for verb, body in (("fork", {"live": True}), ("suspend", {}), ("snapshots", {"files_only": False})):
        error = raises(ApiError, lambda: instance.post(f"/v1/sandboxes/{box}/{verb}", body))
        equal(error.code, "unsupported")
        contains(error.message, says)
    contains(instance.cay("doctor", box, want=1).stdout, says)
    equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
    equal(ask(instance, box, run, "6 * 7"), "42\n")


@require("root", "cgroup2", "userns", "newuidmap")
def test_more_files_than_a_fork_can_have(tmp):
    with with_few_files(tmp) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        for build, end in (("open_some(1500)", "close_all()"), ("one_high()", "close_all()"), ("workers(8, 200)", "end_workers()")):
            ask(instance, box, run, build)
            refused(instance, box, run)
            equal(ask(instance, box, run, end), "0\n")
        equal(ask(instance, box, run, "open_some(800)"), "800\n")
        equal(instance.json("doctor", box)["findings"], [])
        fork = fork_live(instance, box)[0]
        there_and_back(instance, box)
        for one in (fork, box):
            equal(ask(instance, one, run, "open_some(1)"), "801\n")
        instance.remove(fork)
