# SPDX-License-Identifier: Apache-2.0
"""sysinfo(2) tells the size of the sandbox, as /proc/meminfo does, and not the machine's (docs/design/0007, Size of the machine)."""

import ast
import contextlib
import os
import subprocess
import sys

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint"))
from forking import rootless  # noqa: E402

MIB = 1 << 20
TIMEOUT = 60

# What it says, member by member, and beside it what else tells of the same.
LOOK = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def said():
    room = ctypes.create_string_buffer(b"\\xff" * 112, 112)
    before = float(open("/proc/uptime").read().split()[0])
    assert libc.sysinfo(room) == 0
    after = float(open("/proc/uptime").read().split()[0])
    up, *loads, total, free, shared, buffers, swap, free_swap, procs, _, high, free_high, unit = struct.unpack("=10QHHxxxx2QI4x", room.raw)
    assert before <= up <= after + 1, (before, up, after)
    assert (shared, buffers, swap, free_swap, high, free_high, unit, procs) == (0, 0, 0, 0, 0, 0, 1, 1) and loads == [0, 0, 0]
    return total, free
total, free = said()
held = bytearray(os.urandom(1 << 20) * 50)
less = said()[1]
shown = {line.split(":")[0]: int(line.split()[1]) << 10 for line in open("/proc/meminfo")}
page = os.sysconf("SC_PAGE_SIZE")
print(total, os.sysconf("SC_PHYS_PAGES") * page, shown["MemTotal"], 0 < free < total, free - less >= 45 << 20, 0 < os.sysconf("SC_AVPHYS_PAGES") * page < total)
"""

# Where it cannot be written, the kernel's own refusal, and nothing is changed there.
BAD = """
import ctypes, errno, mmap, os, platform
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = libc.syscall.restype = ctypes.c_long
def area(protection, flags=0x22, fd=-1):
    at = libc.mmap(None, ctypes.c_size_t(8192), protection, flags, fd, ctypes.c_long(0))
    assert at != -1
    return at
def said(address):
    return "done" if libc.sysinfo(ctypes.c_void_p(address)) == 0 else errno.errorcode[ctypes.get_errno()]
fd = os.open("/tmp/file", os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 8192)
seen = os.open("/tmp/file", os.O_RDONLY)
private, none, shared, half, good = area(1), area(0), area(1, 1, seen), area(3), area(3, 1, fd)
assert libc.mprotect(ctypes.c_void_p(half + 4096), 4096, 1) == 0
print([said(at) for at in (0, 8, private, none, shared, half + 4096 - 56, half + 4096 - 112 + 1, (1 << 47) - 56, 1 << 47, (1 << 63) - 8, (1 << 64) - 4096, (1 << 64) - 8)])
print(said(half), said(half + 4096 - 112), said(good), said(good + 4090))
print(ctypes.string_at(private, 8192) == bytes(8192), ctypes.string_at(half + 4096, 4096) == bytes(4096), os.pread(fd, 4096, 0)[112:4090] == b"x" * 3978)
# its number in the other table of calls
print(libc.syscall(0x40000000 | 99, ctypes.c_void_p(half)), errno.errorcode[ctypes.get_errno()])
"""

# Many processes ask without end, and threads of one with memory that comes and goes; ready when all do.
FLOOD = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
size = ctypes.c_size_t(1 << 20)
place = ctypes.c_void_p(libc.mmap(None, size, 3, 0x22, -1, ctypes.c_long(0)))
def ask(where):
    while True: libc.sysinfo(where)
def change():
    while True:
        for protection in (0, 1, 3): libc.mmap(place, size, protection, 0x32, -1, ctypes.c_long(0))
start, begin = os.pipe()
room = ctypes.create_string_buffer(112)
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(begin)
        os.read(start, 1)
        ask(room)
os.close(begin)
for one in (change, lambda: ask(place), lambda: ask(place)): threading.Thread(target=one, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
os.killpg(0, 9)
"""

# With memory that is not there yet, each time below other tables; or never is, beyond a file's end. When was it told something else?
ELSEWHERE = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
length, step, times = (int(one) for one in sys.argv[1:])
fd = os.memfd_create("far")
os.ftruncate(fd, length)
start = libc.mmap(None, ctypes.c_size_t(step * times), 3, 1, fd, ctypes.c_long(0))
room, told = ctypes.create_string_buffer(112), []
for n in range(times):
    done = libc.sysinfo(ctypes.c_void_p(start + n * step)) == 0
    if length < step:
        libc.sysinfo(room)
        done, total = n == 0 or not done, struct.unpack_from("=Q", room, 32)[0]
    else:
        total = struct.unpack("=Q", ctypes.string_at(start + n * step + 32, 8))[0]
    assert done
    if [total] != [one[1] for one in told[-1:]]: told.append((n, total))
print(told)
"""

# Asked while another thread has tables made for gigabytes, which takes seconds, and a third one waits to change something: others do not come before that one.
BUSY = """
import ctypes, os, struct, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
size = ctypes.c_size_t(12 << 30)
place = ctypes.c_void_p(libc.mmap(None, size, 1, 0x4022, -1, ctypes.c_long(0)))
libc.madvise(place, size, 15)
def make():
    while True:
        libc.madvise(place, size, 22)
        libc.madvise(place, size, 4)
def change():
    while True: libc.munmap(ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(4096), 1, 0x22, -1, ctypes.c_long(0))), ctypes.c_size_t(4096))
room, told = ctypes.create_string_buffer(112), 0
for one in (make, change): threading.Thread(target=one, daemon=True).start()
while told < 5:
    libc.sysinfo(room)
    told += struct.unpack_from("=Q", room, 32)[0] == int(os.environ["WHOLE"])
os._exit(0)
"""

# The same of many, each of which has others wait for less.
BUSY_OFTEN = BUSY.replace("12 << 30", "512 << 20").replace("for one in (make, change)", "for one in (make, change, change, change)").replace("room, told =", """if len(sys.argv) == 1:
    for _ in range(3): os.posix_spawn(sys.executable, (sys.executable, "-c", os.environ["SELF"], "again"), os.environ)
room, told =""").replace("import ctypes, os,", "import ctypes, os, sys,").replace("os._exit(0)", "os.killpg(0, 9)")

# A program's own filter that refuses it comes before.
OWN_FILTER = """
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in ((0x20, 0, 0, 0), (0x15, 0, 1, 99), (6, 0, 0, 0x50000 | errno.ENOTSUP), (6, 0, 0, 0x7fff0000))))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.syscall(317, 1, 0, struct.pack("=HxxxxxxQ", 4, ctypes.addressof(code))) == 0
print(libc.sysinfo(ctypes.create_string_buffer(112)), errno.errorcode[ctypes.get_errno()])
"""

CLOSED = """
import ctypes, os
assert ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) == 0
print(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
"""


def python(instance, box, script, *argv, **options):
    return instance.cay("exec", box, "--", "python3", "-c", script, *argv, **options).stdout


def of_the_machine():
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def tells_its_limit(instance, counted):
    """@counted: what is used is known, by a control group."""
    for limits, total in (({"memory_bytes": 512 * MIB}, 512 * MIB), ({}, 2048 * MIB)):
        with instance.sandbox(limits=limits) as box:
            want = min(total, of_the_machine())
            equal(python(instance, box, LOOK).split(), [str(want)] * 3 + [str(counted)] * 3)
            equal(python(instance, box, CLOSED), f"{want}\n", "of who is not dumpable")


@require("root", "cgroup2")
def test_it_tells_the_limit(instance):
    tells_its_limit(instance, True)


@require("root", "cgroup2", "userns", "newuidmap")
def test_it_tells_the_limit_rootless(tmp):
    with rootless(tmp) as instance:
        tells_its_limit(instance, "memory" in leaks.read("/sys/fs/cgroup/cgroup.controllers"))


@require("mapping_flags")
def test_it_is_written_where_the_caller_could_write(instance):
    with instance.sandbox() as box:
        refused, done, kept, other = python(instance, box, BAD).splitlines()
        equal(refused, str(["EFAULT"] * 12))
        equal((done, kept, other), ("done done done done", "True True True", "-1 ENOSYS"))


def test_a_filter_of_the_program_comes_before(instance):
    with instance.sandbox() as box:
        equal(python(instance, box, OWN_FILTER), "-1 ENOTSUP\n")


@require("root", "cgroup2")
def test_pages_that_are_made_for_it_are_counted(instance):
    """Their tables are charged to the keeper's group, which has no limit. Who has used up the sandbox's is told what the kernel says."""
    for length, step, times in ((5000 << 21, 1 << 21, 5000), (4096, 1 << 30, 5000)):
        with instance.sandbox(limits={"memory_bytes": 64 * MIB}) as box:
            (first, limit), (second, all_of_it) = ast.literal_eval(python(instance, box, ELSEWHERE, str(length), str(step), str(times)))
            equal((first, limit, all_of_it), (0, 64 * MIB, of_the_machine()))
            if not 2000 < second <= 4096:
                raise AssertionError(second)
            hits = [e["data"] for e in instance.events(box) if e["type"] == "limit.hit"]
            equal([(e["limit"], e["detail"]["most"]) for e in hits], [("sysinfo_faults", 4096)])


@require("root", "cgroup2")
def test_who_keeps_its_memory_to_itself_does_not_keep_the_keeper_waiting(instance):
    """It writes no answer where that takes long, and leaves it to the kernel soon."""
    with instance.sandbox(limits={"memory_bytes": 512 * MIB}) as box:
        run = instance.exec(box, "python3", "-c", BUSY, env={"WHOLE": str(of_the_machine())})
        equal(instance.wait(box, run)["code"], 0)
        equal([e["data"]["limit"] for e in instance.events(box) if e["type"] == "limit.hit"], ["sysinfo_faults"])


@require("root", "cgroup2")
def test_short_waits_are_counted_together(instance):
    with instance.sandbox(limits={"memory_bytes": 512 * MIB}) as box:
        run = instance.exec(box, "python3", "-c", BUSY_OFTEN, env={"WHOLE": str(of_the_machine()), "SELF": BUSY_OFTEN})
        equal(instance.wait(box, run)["signal"], 9)
        equal([e["data"]["limit"] for e in instance.events(box) if e["type"] == "limit.hit"], ["sysinfo_faults"])


@require("root", "cgroup2")
def test_who_asks_without_end_keeps_nobody_waiting(instance):
    """Neither the keeper nor who is answered by it, nor other sandboxes; and it ends when it is told to."""
    with instance.sandbox(limits={"pids": 500}) as box, instance.sandbox() as other:
        with instance.popen([os.path.join(instance.programs, "cay"), "exec", "-i", box, "--", "python3", "-c", FLOOD, "400"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE) as flood:
            equal(flood.stdout.readline(), b"ready\n")
            limit, whole = min(2048 * MIB, of_the_machine()), of_the_machine()
            # the pages that come and go may have used up what is made for it
            for one, told in ((box, (limit, whole)), (other, (limit,))):
                if (said := int(python(instance, one, CLOSED))) not in told:
                    raise AssertionError(said)
                equal(instance.ok(one, "getent ahosts localhost >/dev/null; echo $?"), "0\n")
            flood.stdin.close()
            instance.cay("stop", box)


def test_where_nobody_may_listen(tmp):
    """The kernel answers."""
    with contextlib.closing(cay.Instance(tmp, env={"CAY_WITHOUT": "seccomp_listener"})) as instance:
        instance.start()
        with instance.sandbox(limits={"memory_bytes": 512 * MIB}) as box:
            equal(python(instance, box, CLOSED), f"{of_the_machine()}\n")
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {"count": 1})["sandboxes"][0]["id"]
            equal(python(instance, fork, CLOSED), f"{of_the_machine()}\n")
            instance.remove(fork)
