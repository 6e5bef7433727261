# SPDX-License-Identifier: Apache-2.0
"""What relatives have in common since one was forked from the other is there once in a fork too, and when they come back from disk. (What each may do with it: objects/relatives.c.)"""

import os
import struct
import sys

from lib import cay
from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, put, start, wait_output  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 120
MIB, PAGE = 1 << 20, 4096
SIZE = 16 * MIB
MADV_DONTFORK, MADV_WIPEONFORK = 10, 18  # <sys/mman.h>

# Four workers of one that has filled its memory; one of them has written to a tenth of it since.
WORKERS = f"""
import ctypes, mmap, os, sys
m = mmap.mmap(-1, {SIZE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, {SIZE}, {PAGE}):
    m[at:at + 8] = (at + 1).to_bytes(8, "little")
done = os.pipe()
for worker in range(4):
    if os.fork() == 0:
        if worker == 0:
            for at in range(0, {SIZE} // 10, {PAGE}):
                m[at:at + 8] = bytes(8)
        os.write(done[1], b"w")
        os.read(0, 1)
        os._exit(0)
for worker in range(4):
    os.read(done[0], 1)
print(ctypes.addressof(ctypes.c_char.from_buffer(m)), flush=True)
os.waitpid(-1, 0)
"""

# The same of one that has pages which fork() leaves out, or leaves empty (as a C library has them that draws random numbers itself); so has the worker that writes.
LEFT_OUT = f"""
import mmap
left_out, wiped = (mmap.mmap(-1, {PAGE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(2))
left_out[:4] = wiped[:4] = b"mine"
left_out.madvise({MADV_DONTFORK})
wiped.madvise({MADV_WIPEONFORK})
""" + WORKERS.replace("if worker == 0:", 'if worker == 0:\n            wiped[:4] = b"mine"')

# A child that has memory of its own before it forks one in turn, which has of both.
GENERATIONS = f"""
import ctypes, mmap, os
def fill(value):
    m = mmap.mmap(-1, {SIZE}, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, {SIZE}, {PAGE}):
        m[at:at + 8] = (at + value).to_bytes(8, "little")
    return m
def address(m):
    return ctypes.addressof(ctypes.c_char.from_buffer(m))
first = fill(1)
if os.fork() == 0:
    second = fill(2)
    if os.fork() != 0:
        print(address(first), address(second), flush=True)
os.read(0, 1)
"""


def frames(pid, address):
    """The numbers of the page frames that a process has there."""
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        file.seek(address // PAGE * 8)
        entries = struct.unpack(f"<{SIZE // PAGE}Q", file.read(SIZE // PAGE * 8))
    return [entry & ((1 << 55) - 1) if entry >> 63 else None for entry in entries]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return file.read().split()


def in_common(pid, address):
    """Of what a process has there, how many pages each of its children has too; sorted."""
    own = frames(pid, address)
    return sorted(sum(a == b is not None for a, b in zip(own, frames(child, address))) for child in children_of(pid))


def pid_of(instance, box, run):
    return instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"]


def workers_have_in_common(instance, program):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/workers.py", program)
        run = start(instance, box, "/usr/bin/python3", "/tmp/workers.py", ready=b"\n")
        address = int(wait_output(instance, box, run, b"\n"))

        def pages(one):
            return in_common(pid_of(instance, one, run), address)
        had = pages(box)
        equal((had[0] < had[1], had[1] > SIZE / PAGE * 0.99), (True, True))
        fork = fork_live(instance, box)[0]
        equal((pages(box), pages(fork)), (had, had))
        again = fork_live(instance, fork)[0]
        equal(pages(again), had)
        there_and_back(instance, again)
        equal(pages(again), had)
        for one in (again, fork):
            instance.remove(one)


@require("root", "cgroup2")
def test_what_workers_have_in_common_is_there_once(instance):
    workers_have_in_common(instance, WORKERS)


@require("root", "cgroup2")
def test_beside_pages_that_fork_leaves_out(instance):
    workers_have_in_common(instance, LEFT_OUT)


@require("root", "cgroup2")
def test_what_lies_in_one_frame_is_not_compared_byte_by_byte(tmp):
    log = cay.fault_log(tmp)
    instance = cay.Instance(tmp, env={"CAY_FAULT_LOG": log})
    try:
        instance.start()
        with instance.sandbox() as box:
            start(instance, box, "/usr/bin/python3", "-c", WORKERS, ready=b"\n")
            instance.post(f"/v1/sandboxes/{box}/snapshots", {})
        with open(log, encoding="utf-8") as f:
            contains(f.read(), "live.template.same")
    finally:
        instance.close()


@require("root", "cgroup2")
def test_each_generation_has_its_ancestors_memory(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/generations.py", GENERATIONS)
        run = start(instance, box, "/usr/bin/python3", "/tmp/generations.py", ready=b"\n")
        first, second = (int(word) for word in instance.output(box, run).split())

        def pages(one):
            parent = pid_of(instance, one, run)
            child = children_of(parent)[0]
            return in_common(parent, first) + in_common(child, first) + in_common(child, second)
        had = pages(box)
        equal([n > SIZE / PAGE * 0.99 for n in had], [True] * 3)
        fork = fork_live(instance, box)[0]
        equal(pages(fork), had)
        there_and_back(instance, fork)
        equal(pages(fork), had)
        instance.remove(fork)
