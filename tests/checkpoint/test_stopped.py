# SPDX-License-Identifier: Apache-2.0
"""Programs that are stopped: they stay so on every side, until somebody tells them to go on."""

import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_objects import begin, check  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")


def named(instance, name):
    """Host pids of the programs called @name, and their states."""
    mine = set(instance.own_processes())
    return {pid: state for pid, (_, state, comm) in leaks.processes().items() if comm == name and pid in mine}


def dumpers(instance):
    """Dumpers that are held at a point."""
    return [pid for pid in instance.own_processes()
            if leaks.read(f"/proc/{pid}/cmdline").split("\0")[:2] == ["cay-keeper", "dump"] and leaks.processes().get(pid, ("", ""))[1] == "T"]


def signal_while_held(instance, box, name, act):
    """A fork of @box; act(pid of program @name) while the dumper has stopped all and has asked for nothing yet."""
    pid, = named(instance, name)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]))
    thread.start()
    cay.wait_until(lambda: dumpers(instance), 30, "the dumper is held")
    act(pid)
    while thread.is_alive():
        for one in dumpers(instance):
            os.kill(one, signal.SIGCONT)
        thread.join(0.05)
    return answers[0]


@require(*NEEDS)
def test_told_to_stop_between_two_questions(tmp):
    """A SIGSTOP that waits, which nothing blocks, is not taken for the end of a call that is made in the program, and not forgotten."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.dump.seized=hold"})
    try:
        instance.start()
        for name in ("signals", "threads"):
            with instance.sandbox() as box:
                run = begin(instance, box, name)
                source, = named(instance, f"object_{name}")
                fork = signal_while_held(instance, box, f"object_{name}", lambda pid: os.kill(pid, signal.SIGSTOP))
                cay.wait_until(lambda: named(instance, f"object_{name}")[source] == "T", 30, "the source is stopped")
                for pid in named(instance, f"object_{name}"):
                    os.kill(pid, signal.SIGCONT)
                for one in (fork, box):
                    check(instance, one, run)
                instance.remove(fork)
    finally:
        instance.close()
