# SPDX-License-Identifier: Apache-2.0
"""Refused sockets are told wherever a sandbox's processes come from: by those that are forked, resumed and rewound, and by programs that are started beside them."""

import os
import sys

from lib.case import equal, require
from lib.cay import wait_until

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, rootless, start  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
# a program with a thread beside it; each line makes a raw socket in both
TRIES = """
import concurrent.futures, os, socket, sys
def attempt():
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()
        return "made"
    except OSError as error:
        return str(error.errno)
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(int).result()
print("ready", flush=True)
for line in sys.stdin:
    print(attempt(), pool.submit(attempt).result(), os.getpid(), flush=True)
"""
ONCE = "import socket\ntry: socket.socket(17, 3, 3)\nexcept OSError as error: print(error.errno)"


def told(instance, box):
    return [e for e in instance.events(box) if e["type"] == "net.denied"]


def count(instance, box, protocol, exec_id=None):
    return sum(e["data"]["count"] for e in told(instance, box) if e["data"]["protocol"] == protocol and exec_id in (None, e["exec"]))


def tries(instance, box, run):
    """Both threads of what goes on, and a new program, are refused and told; that of the former names it."""
    before, seen = count(instance, box, "raw", run["id"]), len(told(instance, box))
    first, second, pid = ask(instance, box, run, "now").split()
    equal((first, second), ("97", "97"))
    wait_until(lambda: count(instance, box, "raw", run["id"]) == before + 2, 30, "both are told")
    # (a count of several threads names none)
    named = {e["data"]["inner_pid"] for e in told(instance, box)[seen:] if "inner_pid" in e["data"]}
    assert named <= {int(pid)} and (named or seen), named
    before = count(instance, box, "packet")
    equal(instance.cay("exec", box, "--", "python3", "-c", ONCE).stdout, "97\n")
    wait_until(lambda: count(instance, box, "packet") == before + 1, 30, "the program beside it too")


def check(instance, **sandbox):
    with instance.sandbox(**sandbox) as box:
        put(instance, box, "/tmp/tries.py", TRIES)
        run = start(instance, box, "python3", "/tmp/tries.py")
        tries(instance, box, run)
        forks = fork_live(instance, box, 2)
        second = fork_live(instance, forks[0], 1)
        for one in [box, *forks, *second]:
            tries(instance, one, run)
        there_and_back(instance, forks[0])
        tries(instance, forks[0], run)
        snapshot = instance.post(f"/v1/sandboxes/{forks[1]}/snapshots", {})["id"]
        tries(instance, forks[1], run)
        instance.post(f"/v1/sandboxes/{forks[1]}/rewind", {"snapshot": snapshot})
        tries(instance, forks[1], run)
        for one in forks + second:
            instance.remove(one)


@require(*NEEDS)
def test_forks_and_what_is_resumed(instance):
    check(instance)


@require(*NEEDS)
def test_strict(instance):
    check(instance, profile="strict")


def test_rootless(tmp):
    with rootless(tmp) as instance:
        check(instance)


@require(*NEEDS)
def test_filters_of_its_own(instance):
    """A filter that a program has installed stands above ours, in a fork too."""
    script = TRIES.replace("pool =", "import ctypes, struct\nlibc = ctypes.CDLL(None)\ncode = ctypes.create_string_buffer(struct.pack('=HBBI', 6, 0, 0, 0x7fff0000))\n"
                           "program = struct.pack('=HxxxxxxQ', 1, ctypes.addressof(code))\nassert libc.prctl(38, 1, 0, 0, 0) == 0\n"
                           "assert libc.syscall(317, 1, 0, program) == 0\npool =", 1)
    with instance.sandbox() as box:
        put(instance, box, "/tmp/tries.py", script)
        run = start(instance, box, "python3", "/tmp/tries.py")
        fork = fork_live(instance, box)[0]
        for one in (box, fork):
            tries(instance, one, run)
        instance.remove(fork)
