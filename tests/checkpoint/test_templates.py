# SPDX-License-Identifier: Apache-2.0
"""How many templates stay: those of snapshots whose processes are on disk too end, least recently used first, when all together have more memory than they may."""

import contextlib
import os
import sys

from lib import cay
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, rootless, start  # noqa: E402

TIMEOUT = 180
NEEDS = ("root", "cgroup2")
MIB = 1 << 20
ROOM = {"CAY_TEMPLATES": str(50 * MIB)}  # for two such programs, not for three
PROGRAM = f"""
import sys
held = bytearray(b"x" * {20 * MIB})
print("ready", flush=True)
for line in sys.stdin:
    print(held[0], flush=True)
    held[0] = int(line)
"""


def templates(instance):
    return len(instance.programs_named("cay-template"))


def forked(instance, name, run):
    """What the program holds in a fork of it."""
    fork = instance.post(f"/v1/snapshots/{name}/fork", {})["sandboxes"][0]["id"]
    held = ask(instance, fork, run, "0")
    instance.remove(fork)
    return held


def stay(instance, count):
    cay.wait_until(lambda: templates(instance) == count, 60, f"there are {count} templates")


def check_all(instance, **how):
    """Snapshots behind each other: as many templates as have room, and each snapshot has what was there at its instant."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        made = []
        for n in range(5):
            ask(instance, box, run, str(n))
            one = {key: f"{value}-{n}" for key, value in how.items()}
            made.append(instance.post(f"/v1/sandboxes/{box}/snapshots", one)["id"])
            assert templates(instance) <= 3, templates(instance)
        for n in (0, 4, 2):
            equal(forked(instance, made[n], run), f"{n}\n")
        stay(instance, 2)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": made[1]})
        equal(ask(instance, box, run, "7"), "1\n")
        stay(instance, 2)


@require(*NEEDS)
def test_on_disk_when_they_are_answered(tmp):
    with contextlib.closing(cay.Instance(tmp, env=ROOM).start()) as instance:
        check_all(instance, name="durable")


@require(*NEEDS)
def test_nowhere_else_at_first(tmp):
    """Whoever takes the next one waits until one of them is on disk."""
    with contextlib.closing(cay.Instance(tmp, env=ROOM).start()) as instance:
        check_all(instance)


@require("cgroup2")
def test_rootless_too(tmp):
    with rootless(tmp, **ROOM) as instance:
        check_all(instance)


@require(*NEEDS)
def test_one_alone_stays(tmp):
    """However large it is: it would be loaded for each fork."""
    with contextlib.closing(cay.Instance(tmp, env={"CAY_TEMPLATES": str(MIB)}).start()) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        ask(instance, box, run, "5")
        first, second = (instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": name})["id"] for name in ("first", "second"))
        for name in (second, first, first):
            equal(forked(instance, name, run), "5\n")
        stay(instance, 1)


@require(*NEEDS)
def test_those_of_snapshots_of_a_suspended_sandbox_too(tmp):
    """They have no figures of a capture."""
    with contextlib.closing(cay.Instance(tmp, env=ROOM).start()) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        ask(instance, box, run, "5")
        instance.post(f"/v1/sandboxes/{box}/suspend")
        for name in ("first", "second", "third", "fourth"):
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": name})
            equal(forked(instance, name, run), "5\n")
        stay(instance, 2)
