# SPDX-License-Identifier: Apache-2.0
"""How many templates stay: those of snapshots whose processes are on disk too end, least recently used first, when all together have more memory than they may."""

import contextlib
import os
import select
import signal
import sys

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crash"))
from forking import ask, rootless, start  # noqa: E402
from stops import Asked  # noqa: E402

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
            cay.wait_until(lambda: templates(instance) <= 3, 60, "the others have ended")
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


def held(instance):
    """Jobs that stand still."""
    seen = leaks.processes()
    return [pid for pid in instance.own_processes() if pid in seen and seen[pid][1] == "T"]


def go_on(instance):
    for pid in held(instance):
        os.kill(pid, signal.SIGCONT)
    return True


def are_settled(instance):
    return go_on(instance) and all(one["state"] != "sealed" for one in instance.get("/v1/snapshots")["snapshots"])


@require(*NEEDS)
def test_nobody_waits_for_who_waits_for_the_disk(tmp):
    """Neither who ends the sandbox meanwhile, nor the next command behind a step of another one."""
    env = {"CAY_TEMPLATES": str(MIB), "CAY_FAULT": "memory.save.chunk:1=hold"}  # by each job
    with contextlib.closing(cay.Instance(tmp, env=env).start()) as instance:
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        steps = instance.post("/v1/sandboxes", {"name": "steps", "checkpoint": "each-exec"})["id"]
        for one in (box, steps):
            start(instance, one, "/usr/bin/python3", "-c", PROGRAM)
        instance.post(f"/v1/sandboxes/{box}/snapshots", {})
        waiting = [Asked(instance, "POST", f"/v1/sandboxes/{box}/{what}", {}) for what in ("snapshots", "fork")]
        cay.wait_until(lambda: held(instance), 30, "it is being written")
        for _ in range(2):
            equal(instance.wait(steps, instance.exec(steps, "true"))["code"], 0)
        equal(instance.post(f"/v1/sandboxes/{box}/stop")["state"], "stopped")
        assert held(instance)
        cay.wait_until(lambda: go_on(instance) and len(select.select([one.socket for one in waiting], [], [], 0)[0]) == 2, 60, "both are answered")
        equal([one.answer()[0] for one in waiting], [201, 201])
        cay.wait_until(lambda: are_settled(instance), 60, "nothing is written any more")


@require(*NEEDS)
def test_one_that_several_wait_for_can_be_removed(tmp):
    """When it is on disk; it was refused as being used."""
    env = {"CAY_TEMPLATES": str(MIB), "CAY_FAULT": "memory.save.chunk:1=hold"}
    with contextlib.closing(cay.Instance(tmp, env=env).start()) as instance:
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        first = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        asked = [Asked(instance, "POST", f"/v1/sandboxes/{box}/snapshots", {})]
        cay.wait_until(lambda: held(instance), 30, "it is being written")
        asked += [Asked(instance, "DELETE", f"/v1/snapshots/{first}"), Asked(instance, "POST", f"/v1/sandboxes/{box}/snapshots", {})]
        cay.wait_until(lambda: go_on(instance) and len(select.select([one.socket for one in asked], [], [], 0)[0]) == 3, 60, "all are answered")
        equal([one.answer()[0] for one in asked], [201, 204, 201])
        cay.wait_until(lambda: are_settled(instance), 60, "nothing is written any more")
