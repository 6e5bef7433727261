# SPDX-License-Identifier: Apache-2.0
"""Sandboxes are prepared before they are asked for. One that somebody has killed a part of meanwhile is nobody's any more: the next sandbox starts all the same."""

import contextlib
import os
import signal

from lib import leaks
from lib.cay import wait_until
from lib.case import equal, require

TIMEOUT = 120


def prepared(instance, name):
    """Processes @name of sandboxes that wait to be asked for."""
    found = []
    for entry in os.listdir(os.path.join(instance.run, "keepers")):
        with contextlib.suppress(StopIteration):  # that of a sandbox which was removed is on its way out
            found += children(leaks.keeper_of(entry.removesuffix(".sock")), name)
    return found


def children(pid, name):
    return [child for child, (parent, state, comm) in leaks.processes().items() if (parent, comm) == (pid, name) and state != "Z"]


def has_ended(pid):
    return leaks.processes().get(pid, (0, "Z", ""))[1] == "Z"


def kill_all(instance, name, keepers_end=True):
    """Every sandbox that is prepared now loses its process @name, and its keeper ends, as the server has seen."""
    parts = []
    wait_until(lambda: instance.get("/v1/version")["pool"] > 1 and parts.extend(prepared(instance, name)) or parts, 60, f"sandboxes with a {name} are prepared")
    table = leaks.processes()
    keepers = [table[part][0] for part in parts if part in table] if keepers_end else []
    for part in parts:
        with contextlib.suppress(ProcessLookupError):
            os.kill(part, signal.SIGKILL)
    wait_until(lambda: all(has_ended(pid) for pid in parts + keepers), 30, f"each {name} has ended")
    instance.get("/v1/version")


def works(instance, box):
    for n in range(3):
        equal(instance.ok(box, f"echo {n}"), f"{n}\n")


def without(instance, name, **how):
    kill_all(instance, name, **how)
    for _ in range(3):
        with instance.sandbox() as box:
            works(instance, box)


@require("root")
def test_that_lost_its_first_process(fresh):
    without(fresh, "cay-init")


def test_another_is_made_though_nobody_asks_for_one(fresh):
    wait_until(lambda: fresh.get("/v1/version")["pool"] > 1, 60, "sandboxes are prepared")
    kill_all(fresh, "cay-starter")
    wait_until(lambda: fresh.get("/v1/version")["pool"] > 1, 60, "others are")


def test_that_lost_its_starter(fresh):
    without(fresh, "cay-starter")


def test_that_lost_its_placer(fresh):
    without(fresh, "cay-placer")


def test_that_lost_its_waiter(fresh):
    without(fresh, "cay-waiter", keepers_end=False)


@require("cgroup2")
def test_for_a_fork_that_lost_its_placer(fresh):
    """While one snapshot is forked the next sandboxes are prepared for that."""
    with fresh.sandbox(name="box"):
        fresh.exec("box", "sleep", "1000")
        fresh.post("/v1/sandboxes/box/snapshots", {"name": "snap"})
        for _ in range(6):
            for fork in fresh.post("/v1/snapshots/snap/fork", {"count": 2})["sandboxes"]:
                fresh.remove(fork["id"])
        kill_all(fresh, "cay-placer")
        for fork in fresh.post("/v1/snapshots/snap/fork", {"count": 2})["sandboxes"]:
            works(fresh, fork["id"])
            fresh.remove(fork["id"])
        fresh.call("DELETE", "/v1/snapshots/snap")
