# SPDX-License-Identifier: Apache-2.0
"""Programs that ask sysinfo(2) without end (docs/design/0007, Size of the machine) are paused, captured, forked, suspended in the middle of their calls: each call is answered, with what is so there."""

import contextlib
import os
import sys

from lib import cay
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, rootless, say, start, wait_output  # noqa: E402

TIMEOUT = 120
MIB = 1 << 20

# Three threads and a process ask; each line that it is told is answered when all have had a hundred answers since, with what they said.
PROGRAM = """
import ctypes, mmap, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
shared = mmap.mmap(-1, 4096)
seen = (ctypes.c_uint64 * 8).from_buffer(shared)
def ask(which):
    room, last = (ctypes.c_uint64 * 14)(), 0
    while True:
        room[4] = room[13] = 0
        rc = libc.sysinfo(room)
        if rc != 0 or room[0] < last or room[4] != TOTAL or room[13] != 1:
            os.write(2, f"{rc} {ctypes.get_errno()} {last} {list(room)}\\n".encode())
            os._exit(1)
        last = room[0]
        seen[which] += 1
TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
if os.fork() == 0:
    ask(3)
for which in range(3): threading.Thread(target=ask, args=(which,), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    before = list(seen)
    while any(seen[i] < before[i] + 100 for i in range(4)): time.sleep(0.01)
    print(TOTAL, flush=True)
"""

# One thread asks, into one page after the other; it is told how often to go round. Between two answers every page is what it was.
PAGES = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
page, n = os.sysconf("SC_PAGE_SIZE"), 1500
memory = bytearray(os.urandom(page)) * n
want = bytes(memory[:page - 112])
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        wrong = [i for i in range(n) if libc.sysinfo(ctypes.c_void_p(at + (i + 1) * page - 112)) != 0]
    print(wrong == [] and all(memory[i * page:(i + 1) * page - 112] == want for i in range(n)), len({bytes(memory[(i + 1) * page - 80:(i + 1) * page - 72]) for i in range(n)}), flush=True)
"""


def go_on(instance, rounds):
    with instance.sandbox(limits={"memory_bytes": 256 * MIB}) as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        forks = []

        def all_ask():
            for one in (box, *forks):
                equal(ask(instance, one, run, ""), f"{256 * MIB}\n", one)

        for _ in range(rounds):
            instance.post(f"/v1/sandboxes/{box}/pause")
            instance.post(f"/v1/sandboxes/{box}/resume")
            all_ask()
            forks += fork_live(instance, forks[-1] if forks else box)
            all_ask()
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "asking", "files_only": False})
        instance.post(f"/v1/sandboxes/{box}/suspend")
        instance.post(f"/v1/sandboxes/{box}/resume")
        all_ask()
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "asking"})
        all_ask()
        for one in forks:
            instance.remove(one)


@require("root", "cgroup2")
def test_they_go_on(instance):
    go_on(instance, 3)


@require("root", "cgroup2", "userns", "newuidmap")
def test_they_go_on_rootless(tmp):
    with rootless(tmp) as instance:
        go_on(instance, 2)


@require("root", "cgroup2", "userfaultfd")
def test_the_answer_comes_where_memory_is_missing(tmp):
    """Behind a resume that does not wait for it."""
    with contextlib.closing(cay.Instance(tmp, env={"CAY_LAZY_RESUME": "1", "CAY_FAULT": "live.loader.slow"})) as instance:
        instance.start()
        with instance.sandbox() as box:
            run = start(instance, box, "/usr/bin/python3", "-c", PAGES)
            equal(ask(instance, box, run, "1"), "True 1\n")
            told = len(instance.output(box, run))
            say(instance, box, run, "2\n")
            instance.post(f"/v1/sandboxes/{box}/suspend")
            instance.post(f"/v1/sandboxes/{box}/resume")
            equal(wait_output(instance, box, run, b"\n", told), b"True 1\n")
