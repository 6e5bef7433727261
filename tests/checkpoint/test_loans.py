# SPDX-License-Identifier: Apache-2.0
"""The limits of a sandbox are higher while copies of its processes count against them (docs/design/0006, Room): what programs get out of that, and what is left of it behind."""

import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from lib import cay, leaks
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, start  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
PIDS, MIB = 100, 1 << 20

# Goes on forking whatever it is told; at 600 it is content.
GREEDY = """
import os, select, sys, time
children = 0
print("ready", flush=True)
while True:
    try:
        while children < 600:
            if os.fork() == 0:
                time.sleep(1000)
                os._exit(0)
            children += 1
    except BlockingIOError:
        pass
    if select.select([0], [], [], 0.0002)[0]:
        os.read(0, 100)
        print(children, flush=True)
"""

HOLDER = """
import mmap, sys
held = []
def hold(n):
    held.append(mmap.mmap(-1, n << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    for at in range(0, n << 20, 4096):
        held[-1][at] = 1
    return n
def drop():
    held.pop().close()
    return len(held)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def number(instance, box, controller, name):
    """What a file of the programs' control group says."""
    init = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
    groups = dict(line.split(":", 2)[1:] for line in leaks.read(f"/proc/{init}/cgroup").splitlines())
    if controller in groups:
        return int(leaks.read(f"{leaks.CGROUP_ROOT}/{controller}{groups[controller]}/{name}"))
    unified = os.path.join(leaks.CGROUP_ROOT, "unified")
    root = unified if os.path.isdir(unified) else leaks.CGROUP_ROOT
    return int(leaks.read(f"{root}{os.path.dirname(groups[''])}/{name}"))


def counted_by_version_1(instance, box):
    init = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
    return ":memory:/" in leaks.read(f"/proc/{init}/cgroup")


def snapshot(instance, box):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})


@require(*NEEDS)
def test_who_forks_meanwhile_gets_no_more(instance):
    """Neither beside the copies of all that it has, nor when they end; what was lent is taken back."""
    with instance.sandbox(limits={"pids": PIDS}) as box:
        run = start(instance, box, "/usr/bin/python3", "-c", GREEDY)
        cay.wait_until(lambda: number(instance, box, "pids", "pids.current") >= PIDS, 30, "it is full")
        for _ in range(3):
            snapshot(instance, box)
            cay.wait_until(lambda: number(instance, box, "pids", "pids.max") == PIDS, 10, "what was lent is taken back")
            cay.wait_until(lambda: number(instance, box, "pids", "pids.current") <= PIDS, 10, "the copies have ended")
        assert int(ask(instance, box, run, "how many?")) < PIDS


def held(instance):
    return [pid for pid, (_, state, _) in leaks.processes().items() if state == "T" and pid in instance.own_processes()]


def while_it_is_copied(instance, box, act):
    """Take a live snapshot, and act() when all run again and nothing was copied yet."""
    thread = threading.Thread(target=snapshot, args=(instance, box))
    thread.start()
    try:
        cay.wait_until(lambda: held(instance), 60, "the memory is being copied")
        act()
    finally:
        while thread.is_alive():
            for pid in held(instance):
                os.kill(pid, signal.SIGCONT)
            thread.join(0.05)


def memory_limit(instance, box):
    return number(instance, box, "memory", "memory.limit_in_bytes" if counted_by_version_1(instance, box) else "memory.max")


def what_is_taken_stays_taken(instance, box, run):
    """Version 1: a program keeps what it has got of it, gets no more, also by further snapshots, and what it gives up is taken at once."""
    while_it_is_copied(instance, box, lambda: ask(instance, box, run, "hold(70)"))
    cay.wait_until(lambda: number(instance, box, "pids", "pids.max") == PIDS, 10, "processes that were lent are taken back")
    cay.wait_until(lambda: memory_limit(instance, box) < 170 * MIB, 10, "what is not in use is taken back")
    instance.wait_event("limit.hit", box, lambda e: e["data"]["limit"] == "memory")
    while_it_is_copied(instance, box, lambda: equal(memory_limit(instance, box) <= 256 * MIB, True))
    ask(instance, box, run, "drop()")


def nothing_is_taken(instance, box, _run):
    """Version 2, where the kernel would end the program that had got some: there is more for the moment, and not twice as much."""
    while_it_is_copied(instance, box, lambda: equal(128 * MIB < memory_limit(instance, box) <= 256 * MIB, True))


@require(*NEEDS)
def test_memory_that_was_lent_is_taken_back(tmp):
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.template.filling=hold"})
    try:
        instance.start()
        with instance.sandbox(limits={"memory_bytes": 128 * MIB, "pids": PIDS}) as box:
            run = start(instance, box, "/usr/bin/python3", "-c", HOLDER)
            ask(instance, box, run, "hold(80)")
            meanwhile = what_is_taken_stays_taken if counted_by_version_1(instance, box) else nothing_is_taken
            meanwhile(instance, box, run)
            cay.wait_until(lambda: memory_limit(instance, box) == 128 * MIB, 10, "all is taken back")
            cay.wait_until(lambda: number(instance, box, "pids", "pids.max") == PIDS, 10, "processes that were lent are taken back")
            equal(ask(instance, box, run, "6 * 7"), "42\n")
    finally:
        instance.close()


# An inotify queue with an event that nobody has read, which is seen when all are stopped.
UNREAD = """
import ctypes
c = ctypes.CDLL(None)
queue = c.inotify_init1(0)
assert c.inotify_add_watch(queue, b"/var/tmp", 0x100) > 0
open("/var/tmp/new", "w").close()
print("ready", flush=True)
input()
"""


@require(*NEEDS)
def test_who_forks_while_a_capture_is_refused(instance):
    """What was lent for copies is taken back before anybody goes on."""
    with instance.sandbox(limits={"pids": PIDS}) as box:
        start(instance, box, "/usr/bin/python3", "-c", UNREAD)
        start(instance, box, "/usr/bin/python3", "-c", GREEDY)
        cay.wait_until(lambda: number(instance, box, "pids", "pids.current") >= PIDS, 30, "it is full")
        for _ in range(3):
            raises(cay.ApiError, snapshot, instance, box)
            equal(number(instance, box, "pids", "pids.max"), PIDS)
            assert number(instance, box, "pids", "pids.current") <= PIDS


@require(*NEEDS)
def test_who_is_let_go_by_a_capture_that_hangs_gets_no_more(tmp):
    for point in ("live.dump.hang.looked", "live.dump.hang.twins"):
        instance = cay.Instance(tmp, env={"CAY_FAULT": f"{point}=error"})
        try:
            instance.start()
            with instance.sandbox(limits={"pids": PIDS}) as box:
                run = start(instance, box, "/usr/bin/python3", "-c", GREEDY)
                cay.wait_until(lambda: number(instance, box, "pids", "pids.current") >= PIDS, 30, "it is full")
                contains(raises(cay.ApiError, snapshot, instance, box).message, "they go on as they were")
                equal(number(instance, box, "pids", "pids.max"), PIDS)
                assert int(ask(instance, box, run, "how many?")) < PIDS
        finally:
            instance.close()


@require(*NEEDS)
def test_who_is_let_go_in_a_fork_gets_no_more(tmp):
    """Nor while its keeper, which lends room to those who bring it back, stands still just then."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.restore.complete=hold"})
    try:
        instance.start()
        with instance.sandbox(limits={"pids": PIDS}) as box, instance.sandbox() as other:
            run = start(instance, box, "/usr/bin/python3", "-c", GREEDY)
            cay.wait_until(lambda: number(instance, box, "pids", "pids.current") >= PIDS, 30, "it is full")
            with ThreadPoolExecutor() as pool:
                forks = pool.submit(fork_live, instance, box)
                cay.wait_until(lambda: held(instance), 60, "the keeper stands still")
                for _ in range(10):
                    instance.ok(other, "true")  # time in which it would have forked
                for pid in held(instance):
                    os.kill(pid, signal.SIGCONT)
                (fork,) = forks.result(60)
            equal(number(instance, fork, "pids", "pids.max"), PIDS)
            assert int(ask(instance, fork, run, "how many?")) < PIDS
            instance.remove(fork)
    finally:
        instance.close()
