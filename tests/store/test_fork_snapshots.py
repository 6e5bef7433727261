# SPDX-License-Identifier: Apache-2.0
"""The snapshots that forks of sandboxes begin with, which nobody asked for: they go when no sandbox continues from them, with their layers; all others stay."""

import os

from lib import cay
from lib.case import contains, equal, raises, require

TIMEOUT = 180


def snapshots(instance):
    return {s["id"]: s for s in instance.get("/v1/snapshots")["snapshots"]}


def layers(instance):
    return set(os.listdir(os.path.join(instance.state, "pool", "layers")))


def fork(instance, box, **more):
    return instance.post(f"/v1/sandboxes/{box}/fork", more)["sandboxes"][0]["id"]


def fork_and_remove(instance, box, **more):
    stays = [instance.post(f"/v1/sandboxes/{box}/snapshots", {**named, "files_only": True})["id"] for named in ({"name": "named"}, {})]
    lives = fork(instance, box, **more)
    of_it = set(snapshots(instance)) - set(stays)
    for n in range(4):
        one = fork(instance, box, **more)
        equal(instance.ok(one, f"cat /var/tmp/a; echo {n} > /var/tmp/n"), "a\n")
        instance.remove(one)
    want = {*stays, *of_it}
    cay.wait_until(lambda: set(snapshots(instance)) == want, 60, "the snapshots of forks that are gone have gone, and no others")
    equal({s for s, of in snapshots(instance).items() if of.get("for_fork")}, of_it)
    equal(instance.ok(lives, "cat /var/tmp/a"), "a\n")
    return lives, stays, of_it


@require("root")
def test_of_a_stopped_sandbox(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "echo a > /var/tmp/a")
        fresh.post(f"/v1/sandboxes/{box}/stop")
        lives, stays, _ = fork_and_remove(fresh, box)
        fresh.kill()
        fresh.start()
        fresh.remove(lives)
        fresh.remove(box)
        cay.wait_until(lambda: set(snapshots(fresh)) == set(stays), 60, "those that were asked for stay")
        for s in stays:
            equal(fresh.post(f"/v1/snapshots/{s}/verify")["state"], "verified")
            [again] = fresh.post(f"/v1/snapshots/{s}/fork", {})["sandboxes"]
            equal(fresh.ok(again["id"], "cat /var/tmp/a"), "a\n")
            fresh.remove(again["id"])


@require("root", "cgroup2")
def test_of_a_running_sandbox(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "echo a > /var/tmp/a")
        run = fresh.exec(box, "cat", stdin=True)
        lives, stays, of_it = fork_and_remove(fresh, box)
        [first] = of_it
        wanted = {layer for s in snapshots(fresh).values() for layer in s["layers"]}
        cay.wait_until(lambda: layers(fresh) == wanted, 60, "and their layers")
        fresh.post(f"/v1/sandboxes/{lives}/snapshots", {"name": "later", "files_only": True})
        fresh.raw("POST", f"/v1/sandboxes/{lives}/execs/{run['id']}/stdin?close=true", b"goes on\n")
        equal(fresh.wait(lives, run)["code"], 0)
        fresh.post(f"/v1/sandboxes/{lives}/rewind", {"snapshot": first})
        fresh.post(f"/v1/sandboxes/{lives}/rewind", {"snapshot": "later"})
        equal(fresh.ok(lives, "cat /var/tmp/a"), "a\n")
        cay.wait_until(lambda: first not in snapshots(fresh), 60, "nobody continues from it any more")
        equal(fresh.ok(lives, "cat /var/tmp/a"), "a\n")
        fresh.remove(lives)
        equal({s["name"] for s in snapshots(fresh).values()}, {"named", None, "later"})
        assert set(stays) <= set(snapshots(fresh))


@require("root")
def test_with_processes_of_one_that_has_none_changes_nothing(fresh):
    """Whoever says --live of a sandbox that does not run is told so, before anything is sealed, and not given files alone."""
    for box, command in ((fresh.post("/v1/sandboxes", {"name": "ended"})["id"], "stop"), (fresh.post("/v1/sandboxes", {"name": "waits"})["id"], "pause")):
        fresh.ok(box, "echo a > /var/tmp/a")
        fresh.cay(command, box)
        before = (fresh.get(f"/v1/sandboxes/{box}")["epoch"], layers(fresh), snapshots(fresh), len(fresh.events(box)))
        for way, body in (("fork", {"live": True}), ("snapshots", {"files_only": False, "name": "both"})):
            error = raises(cay.ApiError, fresh.post, f"/v1/sandboxes/{box}/{way}", body)
            equal(error.code, "state", (command, way))
            contains(error.message, "is stopped: it has no processes" if command == "stop" else "is paused")
        equal((fresh.get(f"/v1/sandboxes/{box}")["epoch"], layers(fresh), snapshots(fresh), len(fresh.events(box))), before)
        fresh.cay("fork", "--live", box, want=125)
        fresh.cay("snapshot", "--files-only", box)
