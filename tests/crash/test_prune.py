# SPDX-License-Identifier: Apache-2.0
"""`cay prune` while others snapshot, fork and remove: it takes nothing that is needed by the time it comes to it, tells what it removed itself, and no error for what others removed."""

import os
import signal
import sys
import time

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked, stopped  # noqa: E402

TIMEOUT = 120


def snapshot(instance, box, text):
    instance.ok(box, f"echo {text} > /var/tmp/file")
    return instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]


@require("root")
def test_what_others_removed_or_forked_meanwhile(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    mine, removed, forked = (snapshot(fresh, box, text) for text in ("a", "b", "c"))
    with stopped(fresh.programs_named("cay-spawn")[0]):  # no job starts: each removal waits behind the catalogue
        prune = Asked(fresh, "POST", "/v1/prune", {"snapshots": True})
        cay.wait_until(lambda: mine not in [s["id"] for s in fresh.get("/v1/snapshots")["snapshots"]], 30, "prune has not begun")
        removal = Asked(fresh, "DELETE", f"/v1/snapshots/{removed}")
        fork = fresh.post(f"/v1/snapshots/{forked}/fork", {"start": False})["sandboxes"][0]["id"]
    status, answer = prune.answer()
    equal((status, answer["snapshots"]), (200, [mine]))
    equal(removal.answer()[0], 204)
    equal([s["id"] for s in fresh.get("/v1/snapshots")["snapshots"]], [forked])
    fresh.post(f"/v1/sandboxes/{fork}/start")
    equal(fresh.ok(fork, "cat /var/tmp/file"), "c\n")
    fresh.post(f"/v1/sandboxes/{fork}/rewind", {"snapshot": forked})


@require("root")
def test_a_snapshot_that_is_being_taken_keeps_its_layer(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="store.commit.after_rename:1=hold")
        box = instance.post("/v1/sandboxes", {})["id"]
        instance.ok(box, "echo kept > /var/tmp/file")
        layers = os.path.join(instance.state, "pool", "layers")
        before = set(os.listdir(layers))
        taken = Asked(instance, "POST", f"/v1/sandboxes/{box}/snapshots", {"files_only": True})
        cay.wait_until(lambda: set(os.listdir(layers)) - before, 30, "the layer is not there")
        layer = os.path.join(layers, *(set(os.listdir(layers)) - before))
        job, = [p for p in instance.own_processes() if leaks.processes().get(p, ("", "Z"))[1] == "T"]  # some end just now
        try:  # long enough ago that it could be taken for garbage
            cay.wait_until(lambda: time.time() - os.stat(os.path.join(layer, "MANIFEST")).st_ctime > 1.5, 30, "the clock stands still")
            equal(instance.post("/v1/prune", {})["layers_removed"], 0)
        finally:
            os.kill(job, signal.SIGCONT)
        status, s = taken.answer()
        equal(status, 201)
        equal(instance.post(f"/v1/snapshots/{s['id']}/verify")["state"], "verified")
