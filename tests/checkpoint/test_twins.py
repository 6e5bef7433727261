# SPDX-License-Identifier: Apache-2.0
"""The copy-on-write twins from which a live snapshot is copied while its source goes on: one that is killed costs another try, never an error and never memory."""

import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, rootless, start  # noqa: E402

NEEDS = ("root", "cgroup2")
MARK = "the-one-with-a-twin"
PROGRAM = """
import sys
held = bytearray(b"x" * (4 << 20))
print("ready", flush=True)
for line in sys.stdin: print(len(held), line.strip(), flush=True)
"""


def marked():
    return {pid for pid in leaks.processes() if MARK in leaks.read(f"/proc/{pid}/cmdline")}


def held(instance):
    """Who of those that capture is held at a point: dumper or template."""
    stopped = [pid for pid, (_, state, _) in leaks.processes().items() if state == "T" and pid not in marked()]
    return [pid for pid in stopped if pid in instance.own_processes()]


def a_twin_is_killed(instance):
    """Whoever captures is held at a point at which there are twins; the first time they are killed then."""
    killed, answers = [], []
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM, MARK)
        before = marked()
        thread = threading.Thread(target=lambda: answers.append(instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]))
        thread.start()
        while thread.is_alive():
            for one in held(instance):
                for pid in marked() - before if not killed else ():
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
                cay.wait_until(lambda: all(leaks.processes().get(pid, ("", "Z"))[1] == "Z" for pid in killed), 30, "they are dead")
                os.kill(one, signal.SIGCONT)
            thread.join(0.05)
        assert killed, "no twin was there"
        equal(len(answers), 1)
        for one in (box, answers[0]):
            equal(ask(instance, one, run, "here"), f"{4 << 20} here\n")
        instance.remove(answers[0])


def as_root(tmp, point):
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{point}=hold"})
    try:
        instance.start()
        a_twin_is_killed(instance)
    finally:
        instance.close()


@require(*NEEDS)
def test_one_that_is_looked_at(tmp):
    as_root(tmp, "live.dump.twins")


@require(*NEEDS)
def test_one_that_is_copied(tmp):
    as_root(tmp, "live.template.filling")


@require(*NEEDS, "userns", "newuidmap")
def test_one_that_is_copied_rootless(tmp):
    with rootless(tmp, CAY_FAULT="live.template.filling=hold") as instance:
        a_twin_is_killed(instance)
