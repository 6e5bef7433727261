# SPDX-License-Identifier: Apache-2.0
"""Files on their way into a sandbox that ends, or goes elsewhere, meanwhile: nothing is written behind that, and nobody is told that it was."""

import contextlib
import os
import socket

from lib import cay, leaks
from lib.case import contains, equal, raises, require

WITHOUT = {"CAY_WITHOUT": "btrfs_squota"}  # files of sandboxes in plain directories


def jobs_that_write(instance):
    """Those that have their new file."""
    found = []
    for pid in instance.own_processes():
        if leaks.read(f"/proc/{pid}/cmdline").startswith("cay-keeper\0job"):
            with contextlib.suppress(OSError):
                links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
                if any(link.endswith(" (deleted)") and "/root/" in link or ".cay-put-" in link for link in links):
                    found.append(pid)
    return found


@contextlib.contextmanager
def half_sent(instance, box, path="/root/late"):
    """The beginning of a file is there; gives a function that sends the rest: (status, answer)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(60)
        s.connect(instance.socket)
        s.sendall(f"PUT /v1/sandboxes/{box}/files?path={path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                  "Content-Type: application/octet-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegin\r\n".encode())
        cay.wait_until(lambda: jobs_that_write(instance), 20, "the job has its file")

        def rest():
            with contextlib.suppress(BrokenPipeError):
                s.sendall(b"4\r\n end\r\n0\r\n\r\n")
            answer = b"".join(iter(lambda: s.recv(65536), b"")).decode()
            return int(answer.split()[1]), answer
        yield rest


def stop(instance, box):
    instance.post(f"/v1/sandboxes/{box}/stop")


def restart(instance, box):
    stop(instance, box)
    instance.post(f"/v1/sandboxes/{box}/start")


def suspend(instance, box):
    instance.post(f"/v1/sandboxes/{box}/suspend")


def wake(instance, box):
    suspend(instance, box)
    instance.post(f"/v1/sandboxes/{box}/resume")


def rewind(instance, box):
    instance.cay("rewind", box, "first")


def seal(instance, box):
    stop(instance, box)
    instance.cay("snapshot", box, "--name", f"sealed-{box}")


def equal_undone(instance, end):
    box = instance.post("/v1/sandboxes", {})["id"]
    instance.ok(box, "echo old > /root/late")
    if end is rewind:
        instance.cay("snapshot", box, "--files-only", "--name", "first")
    with half_sent(instance, box) as rest:
        end(instance, box)
        equal(jobs_that_write(instance), [], "nobody writes behind that")
        status, answer = rest()
        equal(status, 409, answer)
        contains(answer, "was stopped, suspended, rewound or removed while files were put into it")
    equal([e for e in instance.events(box) if e["type"] == "files.put"], [])
    state = instance.get(f"/v1/sandboxes/{box}")["state"]
    if end is seal:
        instance.cay("verify", f"sealed-{box}")
        fork = f"fork-{box}"
        instance.cay("fork", f"sealed-{box}", "--name", fork)
        equal(instance.ok(fork, "cat /root/late"), "old\n")
        instance.remove(fork)
    elif state != "running":
        instance.post(f"/v1/sandboxes/{box}/{'resume' if state == 'suspended' else 'start'}")
    if end is not seal:
        equal(instance.ok(box, "cat /root/late; ls -A /root | grep -c cay-put; true"), "old\n0\n")
        instance.call("PUT", f"/v1/sandboxes/{box}/files?path=/root/late", headers={"Content-Type": "application/octet-stream"})
    instance.remove(box)
    if end in (seal, rewind):
        instance.cay("rm", f"sealed-{box}" if end is seal else "first")


ENDS = (stop, restart, suspend, wake, rewind, seal)


@require("root")
def test_a_file_is_not_put_into_a_sandbox_that_ends_meanwhile(instance):
    for end in ENDS:
        equal_undone(instance, end)


@require("root")
def test_nor_where_files_are_in_plain_directories(tmp):
    instance = cay.Instance(tmp, env=WITHOUT)
    try:
        instance.start()
        for end in ENDS:
            equal_undone(instance, end)
    finally:
        instance.close()


@require("root")
def test_nor_into_one_that_is_removed(instance):
    box = instance.post("/v1/sandboxes", {})["id"]
    with half_sent(instance, box) as rest:
        instance.remove(box)
        equal(rest()[0], 409)
    equal(raises(cay.ApiError, instance.get, f"/v1/sandboxes/{box}").code, "not_found")
