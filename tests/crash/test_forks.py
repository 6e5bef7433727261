# SPDX-License-Identifier: Apache-2.0
"""A fork of several, and the server dies: behind the next start all of them are there, or none, and where none is the same request makes them."""

import contextlib
import os
import signal
import sys

from lib import cay, leaks
from lib.case import equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked  # noqa: E402

TIMEOUT = 180
THREE = {"name": "fork", "count": 3}
NAMES = ["fork-1", "fork-2", "fork-3"]
MADE = "sandbox.forks.made"  # all run, and none is there for good


def forks(instance):
    return sorted(box["name"] for box in instance.get("/v1/sandboxes")["sandboxes"] if box["name"] != "box")


def make(instance, **more):
    return instance.post("/v1/sandboxes/box/fork", {**THREE, **more})


def with_a_program(instance):
    instance.post("/v1/sandboxes", {"name": "box"})
    instance.exec("box", "sleep", "1000")


def keeper_stopped(instance, name):
    """The keeper of sandbox @name, which stands still at a fault point."""
    def there():
        with contextlib.suppress(cay.ApiError, StopIteration):
            pid = leaks.keeper_of(instance.get(f"/v1/sandboxes/{name}")["id"])
            return pid if leaks.processes()[pid][1] == "T" else None
        return None
    cay.wait_until(there, 60, f"the keeper of {name} stands still")
    return there()


def dies_at(tmp, point, left, **more):
    with own_instance(tmp) as instance:
        with_a_program(instance.start(CAY_FAULT=point))
        raises(Exception, make, instance, **more)
        equal(instance.process.wait(60), -signal.SIGKILL)
        instance.start()
        equal(forks(instance), left)
        if not left:
            make(instance, **more)
        instance.stop()
        instance.start()
        equal(forks(instance), NAMES)
        equal([e["data"]["children"] == [instance.get(f"/v1/sandboxes/{name}")["id"] for name in NAMES] for e in instance.events() if e["type"] == "sandbox.forked"], [True])


@require("root", "cgroup2")
def test_when_one_is_there_and_another_is_being_made(tmp):
    dies_at(tmp, "live.restore.before:2", [])


@require("root", "cgroup2")
def test_when_the_last_one_has_its_processes(tmp):
    dies_at(tmp, "live.restore.after:3", [])


@require("root")
def test_of_files_when_one_is_there(tmp):
    dies_at(tmp, "sandbox.create.committed:3", [], live=False)


@require("root")
def test_that_do_not_run_when_one_is_there(tmp):
    dies_at(tmp, "sandbox.leave.before:2", [], start=False)


@require("root", "cgroup2")
def test_when_all_run(tmp):
    dies_at(tmp, MADE, [])


@require("root")
def test_that_do_not_run_when_all_are_made(tmp):
    dies_at(tmp, MADE, [], start=False)


@require("root", "cgroup2")
def test_when_all_are_there_for_good(tmp):
    dies_at(tmp, "sandbox.fork.committed", NAMES)


@require("root", "cgroup2")
def test_whatever_became_of_them_meanwhile(tmp):
    """Whoever finds one by its name can work with it before all are there."""
    with own_instance(tmp) as instance:
        with_a_program(instance.start(CAY_FAULT="live.restore.begun:4=hold", CAY_FAULT_LOG=cay.fault_log(tmp)))
        Asked(instance, "POST", "/v1/sandboxes/box/fork", {**THREE, "count": 4})
        last = keeper_stopped(instance, "fork-4")
        for name, verb in zip(NAMES, ("suspend", "stop", "pause")):
            instance.post(f"/v1/sandboxes/{name}/{verb}")
        instance.kill()
        os.kill(last, signal.SIGCONT)
        instance.start()
        equal(forks(instance), [])
        equal(sorted(e["data"]["name"] for e in instance.events() if e["type"] == "sandbox.removed"), [*NAMES, "fork-4"])
