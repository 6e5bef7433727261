# SPDX-License-Identifier: Apache-2.0
"""What fails in the middle has not happened, or has happened: a snapshot whose commit fails leaves nothing in the store and the files where they were, a rewind leaves the sandbox
before or behind it, and what was given up does not come back."""

import os
import signal
import sys

from lib import cay, leaks
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402

TIMEOUT = 180


def inside(instance, where):
    """Names in a directory of the pool."""
    return sorted(os.listdir(os.path.join(instance.state, "pool", where)))


def with_file(instance, text):
    """A stopped sandbox with a file."""
    box = instance.post("/v1/sandboxes", {})["id"]
    write(instance, box, text)
    return box


def write(instance, box, text):
    if instance.get(f"/v1/sandboxes/{box}")["state"] != "running":
        instance.post(f"/v1/sandboxes/{box}/start")
    instance.ok(box, f"echo {text} > /var/tmp/file")
    instance.post(f"/v1/sandboxes/{box}/stop")


def read(instance, box):
    if instance.get(f"/v1/sandboxes/{box}")["state"] != "running":
        instance.post(f"/v1/sandboxes/{box}/start")
    return instance.ok(box, "cat /var/tmp/file").strip()


def snapshot(instance, box, **more):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True, **more})["id"]


def is_as_before(instance, box, layers, text):
    """After a snapshot that failed: no layer more, nothing half sealed, the files are there, and everything goes on."""
    equal((inside(instance, "layers"), inside(instance, "sealing")), (layers, []))
    equal(instance.get("/v1/snapshots")["snapshots"], [])
    equal(instance.get(f"/v1/sandboxes/{box}")["layers"], [])
    equal([(c["kind"], c["path"]) for c in instance.get(f"/v1/diff?a={box}")["changes"]], [("added", "/var/tmp/file")])
    equal(read(instance, box), text)
    fork = instance.post(f"/v1/snapshots/{snapshot(instance, box)}/fork", {})["sandboxes"][0]["id"]
    equal(read(instance, fork), text)


@require("root")
def test_a_seal_whose_commit_fails_is_taken_back(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="snapshot.commit.before=error")
        box, layers = with_file(instance, "kept"), inside(instance, "layers")
        raises(cay.ApiError, snapshot, instance, box)
        is_as_before(instance, box, layers, "kept")


@require("root")
def test_a_capture_whose_commit_fails_leaves_no_layer(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="snapshot.commit.before=error")
        box, layers = with_file(instance, "kept"), inside(instance, "layers")
        equal(read(instance, box), "kept")  # runs
        raises(cay.ApiError, snapshot, instance, box)
        is_as_before(instance, box, layers, "kept")


def seal_killed_at(tmp, point):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=point)
        box, layers = with_file(instance, "kept"), inside(instance, "layers")
        raises(cay.ApiError, snapshot, instance, box)
        equal((inside(instance, "layers"), inside(instance, "sealing")), (layers, []))
        equal(read(instance, box), "kept")
        instance.stop()
        instance.start()
        is_as_before(instance, box, layers, "kept")


@require("root")
def test_a_seal_that_is_killed_is_taken_back_at_once(tmp):
    seal_killed_at(tmp, "store.seal.taken")


@require("root")
def test_a_seal_that_is_killed_behind_its_rename_is_taken_back_at_once(tmp):
    seal_killed_at(tmp, "store.commit.after_rename")


@require("root")
def test_a_seal_that_fails_behind_its_rename_takes_itself_back(tmp):
    seal_killed_at(tmp, "store.commit.after_rename=error")


@require("root")
def test_a_rewind_whose_commit_fails_has_not_happened(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="rewind.commit.before=error")
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        write(instance, box, "second")
        before = instance.get(f"/v1/sandboxes/{box}")
        raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        equal(instance.get(f"/v1/sandboxes/{box}"), before)
        equal(read(instance, box), "second")
        instance.kill()
        instance.start()
        equal(read(instance, box), "second")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        equal(read(instance, box), "first")


def types(instance, box, *wanted):
    """Types of a sandbox's events, of those that are @wanted."""
    return [e["type"] for e in instance.events(box) if e["type"] in wanted]


def running_rewound(tmp, point, left):
    """A rewind of a running sandbox fails at @point; left(instance, box, first, error)."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=f"{point}=error")
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        write(instance, box, "second")
        instance.post(f"/v1/sandboxes/{box}/start")
        run = instance.exec(box, "/bin/cat", stdin=True)
        left(instance, box, first, run, raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/rewind", {"snapshot": first}))
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        equal(read(instance, box), "first")


@require("root")
def test_a_rewind_that_the_catalogue_does_not_take_costs_no_process(tmp):
    def left(instance, box, first, run, error):
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        equal(read(instance, box), "second")
    running_rewound(tmp, "rewind.halt.before", left)


@require("root")
def test_a_rewind_that_fails_behind_the_end_of_its_processes_says_so(tmp):
    def left(instance, box, first, run, error):
        contains(error.hint, "not rewound and is stopped")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "stopped")
        equal(read(instance, box), "second")
    running_rewound(tmp, "rewind.commit.before", left)


def told_by_the_next_server(tmp, point, use, *wanted):
    """The server dies at @point, behind the commit of what use(instance, box, first) does and before its event: the next one tells it, and that once."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=point)
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        instance.post(f"/v1/sandboxes/{box}/start")
        before = types(instance, box, *wanted)
        raises(Exception, use, instance, box, first)
        equal(instance.process.wait(30), -signal.SIGKILL)
        for _ in range(2):
            instance.start()
            equal(types(instance, box, *wanted)[len(before):], list(wanted))
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], "stopped")
            assert instance.get(f"/v1/sandboxes/{box}/events/verify")["ok"]
            instance.kill()


@require("root")
def test_a_stop_is_told_by_the_next_server(tmp):
    told_by_the_next_server(tmp, "sandbox.stop.committed:2", lambda i, box, _: i.post(f"/v1/sandboxes/{box}/stop"), "sandbox.stopped")


@require("root")
def test_a_rewind_is_told_by_the_next_server(tmp):
    told_by_the_next_server(tmp, "rewind.commit.after", lambda i, box, first: i.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first}),
                            "sandbox.stopped", "sandbox.rewound")


@require("root")
def test_the_rewind_of_a_suspended_sandbox_is_told_by_the_next_server(tmp):
    def use(instance, box, first):
        instance.post(f"/v1/sandboxes/{box}/suspend")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
    told_by_the_next_server(tmp, "rewind.commit.after", use, "sandbox.stopped", "sandbox.rewound")


@require("root")
def test_a_rewind_that_fails_behind_its_commit_has_happened(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="rewind.discard.before=error")
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        write(instance, box, "second")
        raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        equal(instance.get(f"/v1/sandboxes/{box}")["base"], first)
        equal(instance.get(f"/v1/diff?a={box}&b={first}")["changes"], [])
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        equal([read(instance, b) for b in (fork, box)], ["first", "first"])


@require("root")
def test_a_snapshot_whose_row_was_not_taken_is_not_durable(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="snapshot.durable.before=error")
        box = with_file(instance, "first")
        raises(cay.ApiError, snapshot, instance, box, name="kept")
        equal(instance.get("/v1/snapshots/kept")["state"], "sealed")
        equal(types(instance, box, "snapshot.durable"), [])
        equal(instance.post("/v1/snapshots/kept/verify")["state"], "verified")
        equal(types(instance, box, "snapshot.durable", "snapshot.verified"), ["snapshot.durable", "snapshot.verified"])


@require("root")
def test_a_snapshot_whose_check_was_not_written_is_not_verified(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="snapshot.verify.before=error")
        box = with_file(instance, "first")
        first = snapshot(instance, box, name="kept")
        raises(cay.ApiError, instance.post, f"/v1/snapshots/{first}/verify")
        equal(instance.get(f"/v1/snapshots/{first}")["state"], "durable")
        equal(types(instance, box, "snapshot.verified"), [])
        equal(instance.post(f"/v1/snapshots/{first}/verify")["state"], "verified")


@require("root")
def test_a_snapshot_that_is_verified_is_durable(tmp):
    """At once, without waiting for the background: a power cut may come."""
    log = cay.fault_log(tmp)
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT_LOG=log)
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        equal(instance.post(f"/v1/snapshots/{first}/verify")["state"], "verified")
        seen = leaks.read(log).split()
        contains(seen[:seen.index("snapshot.verify.committed")], "store.sync.done")
        equal(types(instance, box, "snapshot.durable", "snapshot.verified"), ["snapshot.durable", "snapshot.verified"])


@require("root")
def test_what_a_removed_snapshot_held_does_not_come_back(tmp):
    """The server dies between the catalogue and the layers, after the sandbox has gone back behind that snapshot."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="snapshot.remove.committed")
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        write(instance, box, "second")
        second = snapshot(instance, box)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        layers = inside(instance, "layers")
        raises(Exception, instance.call, "DELETE", f"/v1/snapshots/{second}")
        equal(instance.process.wait(30), -signal.SIGKILL)
        equal(inside(instance, "layers"), layers)
        instance.start()
        equal([s["id"] for s in instance.get("/v1/snapshots")["snapshots"]], [first])
        equal(len(inside(instance, "layers")), len(layers) - 1)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        equal([read(instance, b) for b in (fork, box)], ["first", "first"])
        assert "ERROR" not in leaks.read(instance.log).upper(), instance.log_tail()
