# SPDX-License-Identifier: Apache-2.0
"""Rootless: processes of other users of the sandbox, whose entries in /proc an ordinary user may not open. All of their memory goes with a live fork and a suspension, also what
they may not read themselves."""

import os
import sys

from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, rootless, start  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2", "userns", "newuidmap")

# Two of the same user with one memory: it may be looked at only while somebody asks for it.
CLOSED = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
SIZE = 1 << 20
memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
pattern = bytes(range(1, 129)) * (SIZE // 128)

def protect(how):
    assert libc.mprotect(at, SIZE, how) == 0

def serve(commands, answers):
    for line in commands:
        protect(mmap.PROT_READ)
        print(os.getuid(), memory[:] == pattern, file=answers, flush=True)
        protect(0)

memory[:] = pattern
protect(0)
there, back = os.pipe(), os.pipe()
if os.fork() == 0:
    serve(os.fdopen(there[0]), os.fdopen(back[1], "w"))
to, fro = os.fdopen(there[1], "w"), os.fdopen(back[0])
print("ready", flush=True)
for line in sys.stdin:
    print("", file=to, flush=True)
    print(fro.readline().strip(), end=" ")
    protect(mmap.PROT_READ)
    print(os.getuid(), memory[:] == pattern, flush=True)
    protect(0)
"""


@require(*NEEDS)
def test_what_they_may_not_read_themselves(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        put(instance, box, "/var/tmp/closed.py", CLOSED)
        run = start(instance, box, "/usr/bin/python3", "/var/tmp/closed.py", user="daemon")
        fork = fork_live(instance, box)[0]
        again = fork_live(instance, fork)[0]
        there_and_back(instance, box)
        for one in (again, fork, box):
            equal(ask(instance, one, run, ""), "1 True 1 True\n")
        for one in (again, fork):
            instance.remove(one)
