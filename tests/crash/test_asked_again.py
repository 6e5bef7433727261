# SPDX-License-Identifier: Apache-2.0
"""Who asks for a snapshot, a fork, a rewind, a suspension with an idempotency key, and hears nothing since the server died, asks again with the same key: it is done once, and whole,
whenever the server died."""

import http.client
import itertools
import os
import signal
import sys

from lib import cay
from lib.case import contains, equal, raises, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "checkpoint")]
from points import own_instance  # noqa: E402

TIMEOUT = 240
KEYS = (f"key {n}" for n in itertools.count())


class Asking:
    """A request with a key of its own, and a server that dies with it at a point."""

    def __init__(self, instance, point, path, body=None):
        self.instance, self.path, self.body = instance, path, body
        self.key = {"Idempotency-Key": next(KEYS)}
        instance.stop()
        instance.start(CAY_FAULT=point)
        raises((OSError, http.client.HTTPException), self.again)
        equal(instance.process.wait(60), -signal.SIGKILL, point)
        instance.start()

    def again(self):
        return self.instance.post(self.path, self.body, headers=self.key)


def make_box(instance):
    """With a program that runs, and a file."""
    instance.post("/v1/sandboxes", {"name": "box"})
    instance.exec("box", "sleep", "1000")
    write(instance, "first")


def write(instance, text):
    instance.ok("box", f"echo {text} > /var/tmp/file")


def read(instance):
    return instance.ok("box", "cat /var/tmp/file").strip()


def running(instance, box):
    return [e["argv"][0] for e in instance.get(f"/v1/sandboxes/{box}/execs")["execs"] if e["state"] == "running"]


def told(instance, kind):
    return [e["data"] for e in instance.events() if e["type"] == kind]


# --- snapshots ---

BEFORE, COMMITTED, DURABLE, KNOWN = "snapshot.commit.before", "snapshot.commit.after", "snapshot.durable.before", "snapshot.durable.committed"


STATES = ("sealed", "durable", "verified")  # a server that has just started brings what it finds to the last one


def snapshot_at(instance, point, state, **body):
    asking = Asking(instance, point, "/v1/sandboxes/box/snapshots", body)
    taken = asking.again()
    equal([s["id"] for s in instance.get("/v1/snapshots")["snapshots"]], [taken["id"]], point)
    equal((taken["state"] in STATES[STATES.index(state):], taken["name"]), (True, body.get("name")), f"{point}: {taken['state']}")
    equal(asking.again()["id"], taken["id"], point)
    return taken


@require("root")
def test_a_snapshot_of_files(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        for n, point in enumerate((BEFORE, COMMITTED, DURABLE, KNOWN)):
            taken = snapshot_at(instance, point, "durable", name=f"name-{n}", files_only=True)
            equal(len([e for e in told(instance, "snapshot.created") if e["snapshot"] == taken["id"]]), 1, point)
            instance.call("DELETE", f"/v1/snapshots/{taken['id']}")
        for point in (BEFORE, COMMITTED):
            taken = snapshot_at(instance, point, "sealed", files_only=True)
            instance.call("DELETE", f"/v1/snapshots/{taken['id']}")
        equal(len(told(instance, "snapshot.created")), 6, "none was made besides")


@require("root")
def test_a_snapshot_of_a_stopped_sandbox(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        for point in (BEFORE, COMMITTED):
            instance.post("/v1/sandboxes/box/stop")
            taken = snapshot_at(instance, point, "sealed")
            instance.post("/v1/sandboxes/box/start")
            equal(read(instance), "first")
            instance.call("DELETE", f"/v1/snapshots/{taken['id']}")


@require("root", "cgroup2")
def test_a_snapshot_with_processes(tmp):
    """Those of one that was in memory alone went with the server: it is taken again."""
    with own_instance(tmp) as instance:
        make_box(instance.start())
        for n, point in enumerate((BEFORE, COMMITTED, DURABLE, KNOWN)):
            taken = snapshot_at(instance, point, "durable", name=f"name-{n}")
            equal(taken["files_only"], False, point)
            [fork] = instance.post(f"/v1/snapshots/{taken['id']}/fork", {})["sandboxes"]
            equal(running(instance, fork["id"]), ["sleep"], point)
            instance.remove(fork["id"])
            instance.call("DELETE", f"/v1/snapshots/{taken['id']}")
        equal(snapshot_at(instance, COMMITTED, "sealed")["files_only"], False)


@require("root")
def test_a_snapshot_that_could_not_be_made_durable(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start(CAY_FAULT="snapshot.durable.before=error"))
        ask = ("/v1/sandboxes/box/snapshots", {"name": "name", "files_only": True})
        contains(raises(cay.ApiError, instance.post, *ask, headers={"Idempotency-Key": "once"}).message, "sealed, but not durable")
        contains(STATES[1:], instance.post(*ask, headers={"Idempotency-Key": "once"})["state"])
        equal(len(told(instance, "snapshot.created")), 1)


# --- forks ---

def forks_at(instance, point, path, **body):
    asking = Asking(instance, point, path, body)
    made = [box["id"] for box in asking.again()["sandboxes"]]
    equal(len(made), body.get("count", 1), point)
    equal([box["id"] for box in asking.again()["sandboxes"]], made, point)
    there = [box["id"] for box in instance.get("/v1/sandboxes")["sandboxes"] if box["name"] != "box"]
    equal(sorted(there), sorted(made), point)
    equal([e["children"] for e in told(instance, "sandbox.forked") if set(e["children"]) & set(made)], [made], point)
    for box in made:
        if body.get("live") is not False:
            equal(running(instance, box), ["sleep"], point)
        equal(instance.ok(box, "cat /var/tmp/file"), "first\n", point)
        instance.remove(box)


@require("root", "cgroup2")
def test_forks_with_processes(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        for point in ("live.restore.after", "sandbox.forks.made", "sandbox.fork.committed"):
            forks_at(instance, point, "/v1/sandboxes/box/fork")
        for point in ("live.restore.after:2", "sandbox.forks.made", "sandbox.fork.committed"):
            forks_at(instance, point, "/v1/sandboxes/box/fork", count=2)


@require("root")
def test_forks_of_a_snapshot(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        instance.post("/v1/sandboxes/box/snapshots", {"name": "name", "files_only": True})
        for point, count in (("sandbox.create.committed", 1), ("sandbox.fork.committed", 1), ("sandbox.create.committed:2", 2), ("sandbox.fork.committed", 2)):
            forks_at(instance, point, "/v1/snapshots/name/fork", count=count, live=False)


# --- rewinds ---

def rewind_at(instance, point, **body):
    """Of a box that runs; behind it somebody works on, which asking once more leaves alone."""
    write(instance, "second")
    before = len(told(instance, "sandbox.rewound"))
    asking = Asking(instance, point, "/v1/sandboxes/box/rewind", {"snapshot": "name", **body})
    equal(asking.again()["state"], "running", point)
    equal(read(instance), "first", point)
    equal(running(instance, "box"), [] if body.get("files_only") else ["sleep"], point)
    equal(len(told(instance, "sandbox.rewound")), before + 1, point)
    write(instance, "third")
    equal(asking.again()["state"], "running", point)
    equal(read(instance), "third", point)


HALTED = ("rewind.halt.before", "sandbox.stop.committed", "rewind.commit.before", "rewind.commit.after", "rewind.discard.before")


@require("root", "cgroup2")
def test_a_rewind_with_processes(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        instance.post("/v1/sandboxes/box/snapshots", {"name": "name"})
        for point in (*HALTED, "live.restore.before", "live.restore.after"):
            rewind_at(instance, point)


@require("root")
def test_a_rewind_of_files(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        instance.post("/v1/sandboxes/box/snapshots", {"name": "name", "files_only": True})
        for point in HALTED:
            rewind_at(instance, point, files_only=True)


@require("root")
def test_a_rewind_that_somebody_went_on_from(tmp):
    """The server died behind its commit; before it is asked for again the sandbox is started, and works."""
    with own_instance(tmp) as instance:
        make_box(instance.start())
        instance.post("/v1/sandboxes/box/snapshots", {"name": "name", "files_only": True})
        asking = Asking(instance, "rewind.commit.after", "/v1/sandboxes/box/rewind", {"snapshot": "name"})
        instance.post("/v1/sandboxes/box/start")
        write(instance, "theirs")
        instance.post("/v1/sandboxes/box/stop")
        equal(asking.again()["state"], "stopped")
        instance.post("/v1/sandboxes/box/start")
        equal(read(instance), "theirs")


# --- suspending and resuming ---

def move_at(instance, point, verb, state, body=None):
    asking = Asking(instance, point, f"/v1/sandboxes/box/{verb}", body)
    for _ in range(2):
        equal(asking.again()["state"], state, (verb, point))


@require("root", "cgroup2")
def test_a_suspension_and_a_resume(tmp):
    with own_instance(tmp) as instance:
        make_box(instance.start())
        for suspended, resumed in (("sandbox.suspend.saved", "sandbox.resume.held"), ("sandbox.suspend.ended", "sandbox.resume.committed"),
                                   ("sandbox.suspend.committed", "sandbox.resume.gone")):
            move_at(instance, suspended, "suspend", "suspended")
            move_at(instance, resumed, "resume", "running")
            equal(running(instance, "box"), ["sleep"])
        move_at(instance, "sandbox.suspend.committed", "suspend", "suspended")
        move_at(instance, "sandbox.forget.committed", "resume", "running", {"files_only": True})
        equal(read(instance), "first")
