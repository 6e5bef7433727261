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
from forking import rootless, start, wait_output  # noqa: E402

NEEDS = ("root", "cgroup2")
# Python runs a handler only when the call that it interrupts has said EINTR, and makes the call again itself.
PROGRAM = """
import os, select, signal, threading, time
def told(*_):
    print("told", flush=True)
def tell(main, call):
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
