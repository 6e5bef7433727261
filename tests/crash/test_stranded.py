# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a stopped sandbox failed, and its files cannot be put back: it is neither started nor looked at on empty trees, by this server or the next one, and it is
itself again as soon as they can be."""

import contextlib
import os
import signal
import subprocess
import sys

from lib import cay, job
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from test_undone import inside, is_as_before, read, snapshot, with_file, write  # noqa: E402

TIMEOUT = 180


@contextlib.contextmanager
def nothing_leaves(instance, where):
    """A directory of the pool takes names and gives none back (append only)."""
    path = os.path.join(instance.state, "pool", where)
    subprocess.run(["chattr", "+a", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["chattr", "-a", path], check=True)


def is_refused(instance, box):
    """Whatever needs its files says where they are."""
    ways = [lambda: instance.post(f"/v1/sandboxes/{box}/start"), lambda: instance.get(f"/v1/diff?a={box}"), lambda: snapshot(instance, box),
            lambda: instance.get(f"/v1/sandboxes/{box}/files?path=/var/tmp/file"), lambda: instance.post(f"/v1/sandboxes/{box}/fork", {}),
            lambda: instance.post(f"/v1/sandboxes/{box}/apply", {})]
    for way in ways:
        error = raises(cay.ApiError, way)
        contains(error.message, "set aside by a snapshot that failed")
        contains(error.hint, "nothing is lost")


def stranded(tmp, where, restart=False, **environment):
    with own_instance(tmp) as instance:
        instance.start(**environment)
        box, layers = with_file(instance, "kept"), inside(instance, "layers")
        with nothing_leaves(instance, where):
            raises(cay.ApiError, snapshot, instance, box)
            if restart:
                instance.kill()
                instance.start()
            is_refused(instance, box)
            equal(instance.post("/v1/prune", {})["layers_removed"], 0)
        equal(read(instance, box), "kept")  # by itself
        is_as_before(instance, box, layers, "kept")


@require("root", "btrfs")
def test_a_seal_that_cannot_be_taken_back(tmp):
    stranded(tmp, "layers", CAY_FAULT="snapshot.commit.before=error")


@require("root", "btrfs")
def test_a_seal_that_comes_no_further(tmp):
    stranded(tmp, "sealing")


@require("root", "btrfs")
def test_a_seal_that_the_next_server_cannot_take_back(tmp):
    stranded(tmp, "layers", restart=True, CAY_FAULT="snapshot.commit.before=error")


@require("root", "btrfs")
def test_a_seal_that_comes_no_further_with_the_next_server(tmp):
    stranded(tmp, "sealing", restart=True)


@require("root", "btrfs")
def test_a_sandbox_without_its_files_can_be_removed(tmp):
    """What its seal held is garbage then."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="snapshot.commit.before=error")
        box, layers = with_file(instance, "kept"), inside(instance, "layers")
        with nothing_leaves(instance, "layers"):
            raises(cay.ApiError, snapshot, instance, box)
            instance.call("DELETE", f"/v1/sandboxes/{box}")
        cay.wait_until(lambda: instance.post("/v1/prune", {}) and inside(instance, "layers") == layers, 30, "its layer is cleared away")


@require("root", "btrfs")
def test_a_seal_that_the_pool_never_had(tmp):
    """A power cut after snapshots of a stopped sandbox that were not durable: the catalogue has them, the pool has not, and what they were to have is where it was."""
    with own_instance(tmp) as instance:
        instance.start()
        box = with_file(instance, "kept")
        kept = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True, "name": "kept"})["id"]
        before = instance.get(f"/v1/sandboxes/{box}")["layers"]
        write(instance, box, "later")
        snapshot(instance, box)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]  # a snapshot, too
        layers = instance.get(f"/v1/sandboxes/{box}")["layers"]
        instance.kill()
        for pid in instance.own_processes():
            with contextlib.suppress(ProcessLookupError):  # it may have ended with its server
                os.kill(pid, signal.SIGKILL)
        for layer in layers[:-len(before)]:  # the pool is as it was before them
            job.run(instance.state, "unseal", sandbox=box, layer=layer)
        instance.start()
        equal([s["id"] for s in instance.get("/v1/snapshots")["snapshots"]], [kept])
        equal(instance.get(f"/v1/sandboxes/{box}")["layers"], before)
        equal(read(instance, box), "later")
        # of what was never on a disk nothing begins
        error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{fork}/start")
        equal(error.code, "corrupt")
        contains(error.message, f"layer '{layers[0]}' of its files is missing")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "kept"})
        equal(read(instance, box), "kept")
