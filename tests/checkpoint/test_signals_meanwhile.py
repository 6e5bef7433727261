# SPDX-License-Identifier: Apache-2.0
"""A signal that comes while a program is stopped by us ends its call as it would have: its handler runs, and the call is not made again."""

import contextlib
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.cay import Instance
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, rootless, say, start, wait_output  # noqa: E402

NEEDS = ("root", "cgroup2")
# Python runs a handler only when the call that it interrupts has said EINTR, and makes the call again itself.
PROGRAM = """
import ctypes, os, select, signal, threading, time
def told(*_):
    print("told", flush=True)
def tell(main, call):
    # it is not always gone when the signal comes, and would take it
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    while open(f"/proc/self/task/{main}/syscall").read().split()[0] not in call:
        time.sleep(0.01)
    print("ready", flush=True)
def wait(how, *call):
    threading.Thread(target=tell, args=(os.getpid(), call)).start()
    how()
signal.signal(signal.SIGUSR1, told)
"""
CALLS = (
    "wait(select.epoll().poll, '232', '281')",
    "wait(lambda: signal.sigwaitinfo([signal.SIGUSR2]), '128')",
)


def is_told_behind_a_pause(instance):
    with instance.sandbox() as box:
        runs = [start(instance, box, "/usr/bin/python3", "-c", PROGRAM + call) for call in CALLS]
        instance.post(f"/v1/sandboxes/{box}/pause")
        for run in runs:
            instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": signal.SIGUSR1})
        instance.post(f"/v1/sandboxes/{box}/resume")
        for run in runs:
            equal(wait_output(instance, box, run, b"told\n", seconds=10), b"ready\ntold\n")


@require(*NEEDS)
def test_during_a_pause(instance):
    is_told_behind_a_pause(instance)


@require("root", "userns", "newuidmap")
def test_during_a_pause_rootless(tmp):
    with rootless(tmp) as instance:
        is_told_behind_a_pause(instance)


def held(instance):
    return [pid for pid, (_, state, _) in leaks.processes().items() if state == "T" and pid in instance.own_processes()]


@require(*NEEDS)
def test_during_a_capture(tmp):
    with contextlib.closing(Instance(tmp, env={"CAY_FAULT": "live.dump.looked=hold"}).start()) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM + CALLS[0])
        pid = instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"]
        taken = threading.Thread(target=instance.post, args=(f"/v1/sandboxes/{box}/snapshots", {"files_only": False}))
        taken.start()
        cay.wait_until(lambda: held(instance), 60, "all are stopped")
        os.kill(pid, signal.SIGUSR1)
        for one in held(instance):
            os.kill(one, signal.SIGCONT)
        taken.join()
        equal(wait_output(instance, box, run, b"told\n", seconds=10), b"ready\ntold\n")


# of others than the above: what they say behind a handler that ends calls; with a thread that could take the signal, too
FORKED = (
    *CALLS,
    "wait(lambda: os.read(os.pipe()[0], 1), '0')",
    "wait(signal.pause, '34')",
    "wait(lambda: select.poll().poll(600_000), '7')",
    "threading.Thread(target=lambda: time.sleep(600), daemon=True).start(); wait(lambda: os.read(os.pipe()[0], 1), '0')",
)
# behind one that does not it is made again
RESTARTED = "signal.siginterrupt(signal.SIGUSR1, False); wait(lambda: print(ctypes.CDLL(None).read(0, bytes(2), 2), flush=True), '0')"


def restored(instance):
    """What was restored below a fork that is held."""
    forks = held(instance)
    return [pid for pid, (parent, _, comm) in leaks.processes().items() if parent in forks and comm == "python3"]


def is_told_in_a_fork(instance):
    """It comes before anything of the program runs in the fork, as when a timer goes off then."""
    with instance.sandbox() as box:
        runs = [start(instance, box, "/usr/bin/python3", "-c", PROGRAM + call) for call in (*FORKED, RESTARTED)]
        forks = []
        taken = threading.Thread(target=lambda: forks.extend(fork_live(instance, box)))
        taken.start()
        cay.wait_until(lambda: len(restored(instance)) == len(runs), 60, "the fork is held")
        for pid in restored(instance):
            os.kill(pid, signal.SIGUSR1)
        for one in held(instance):
            os.kill(one, signal.SIGCONT)
        taken.join()
        for run in runs[:-1]:
            equal(wait_output(instance, forks[0], run, b"told\n", seconds=10), b"ready\ntold\n")
        say(instance, forks[0], runs[-1], "x\n")
        equal(wait_output(instance, forks[0], runs[-1], b"2\n", seconds=10), b"ready\ntold\n2\n")
        instance.remove(forks[0])


@require(*NEEDS)
def test_during_a_fork(tmp):
    with contextlib.closing(Instance(tmp, env={"CAY_FAULT": "live.fork.going=hold"}).start()) as instance:
        is_told_in_a_fork(instance)


@require("root", "userns", "newuidmap")
def test_during_a_fork_rootless(tmp):
    with rootless(tmp, CAY_FAULT="live.fork.going=hold") as instance:
        is_told_in_a_fork(instance)
