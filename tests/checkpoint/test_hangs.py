# SPDX-License-Identifier: Apache-2.0
"""A capture that gets no further is given up: its processes go on as they were, whatever hangs, and whoever asked is told."""

import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, rootless, start  # noqa: E402
from test_objects import begin, check  # noqa: E402

NEEDS = ("root", "cgroup2")
# What is in the middle of a call when its capture is given up, and what would show of it.
OBJECTS = ("calls", "twins", "stopped", "traps")
PROGRAM = """
import sys
print("ready", flush=True)
for line in sys.stdin: print(open("/proc/self/maps").read().count("rwxs"), line.strip(), flush=True)
"""


def is_given_up(instance, names=OBJECTS):
    """Everybody goes on as if nothing had been; nothing of ours is left in their memory."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        objects = [begin(instance, box, name) for name in names]
        error = raises(cay.ApiError, fork_live, instance, box)
        equal(error.code, "timeout")
        contains(error.message, "got no further and was given up; they go on as they were")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
        equal(ask(instance, box, run, "here"), "0 here\n")
        for one in objects:
            check(instance, box, one)


def hangs(tmp, point, how="error"):
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{point}={how}"})
    try:
        instance.start()
        is_given_up(instance)
    finally:
        instance.close()


@require(*NEEDS)
def test_a_call_in_a_process_never_ends(tmp):
    hangs(tmp, "live.dump.hang.looked")


@require(*NEEDS)
def test_a_call_never_ends_while_there_are_twins(tmp):
    hangs(tmp, "live.dump.hang.twins")


@require(*NEEDS)
def test_the_dumper_itself_stands_still(tmp):
    hangs(tmp, "live.dump.hang.looked", "hold")


@require(*NEEDS, "userns", "newuidmap")
@timeout(120)
def test_rootless(tmp):
    with rootless(tmp, CAY_FAULT="live.dump.hang.twins=error") as instance:
        is_given_up(instance, ())


@require(*NEEDS)
def test_before_anything_is_stopped(tmp):
    point = "live.dump.hang.prepare"
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{point}=error"})
    try:
        instance.start()
        with instance.sandbox() as box:
            run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
            equal(raises(cay.ApiError, fork_live, instance, box).code, "timeout")
            equal(ask(instance, box, run, "here"), "0 here\n")
    finally:
        instance.close()


@require(*NEEDS)
def test_while_all_are_being_stopped(tmp):
    hangs(tmp, "live.dump.hang.stop")


@require(*NEEDS)
def test_who_is_known_by_half_is_not_said_to_go_on(tmp):
    """Where programs have filters all are stopped first, and who is not known whole ends with who holds it: that is told."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.dump.hang.stop=error"})
    try:
        instance.start()
        with instance.sandbox() as box:
            start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
            begin(instance, box, "filters")
            error = raises(cay.ApiError, fork_live, instance, box)
            contains(error.message, "not all of them could be let go")
            cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{box}")["state"] in ("failed", "stopped"), 30, "it is lost")
    finally:
        instance.close()
