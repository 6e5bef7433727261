# SPDX-License-Identifier: Apache-2.0
"""What is removed and what is not: a sandbox that is `ephemeral` goes when it stops, whoever stops it and whatever dies meanwhile. One whose removal fails is whole."""

import contextlib
import http.client
import os
import signal
import sys

from lib import cay, leaks
from lib.case import equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")


def ephemeral(instance, **more):
    return instance.post("/v1/sandboxes", {"ephemeral": True, **more})["id"]


def there(instance):
    return [box["id"] for box in instance.get("/v1/sandboxes")["sandboxes"]]


@require(*NEEDS)
def test_it_was_suspended(fresh):
    box = ephemeral(fresh)
    fresh.post(f"/v1/sandboxes/{box}/suspend")
    equal(there(fresh), [box])
    equal(fresh.raw("POST", f"/v1/sandboxes/{box}/stop")[0], 204)
    equal(there(fresh), [])


@require("root")
def test_its_keeper_dies(fresh):
    box = ephemeral(fresh)
    os.kill(leaks.keeper_of(box), signal.SIGKILL)
    fresh.wait_event("sandbox.removed", box)
    equal(there(fresh), [])


@require("root")
def test_it_ends_with_the_server(fresh):
    """What has never run has not stopped."""
    ephemeral(fresh)
    asleep = ephemeral(fresh, start=False)
    fresh.post("/v1/shutdown", {"sandboxes": "stop"})
    fresh.process.wait(60)
    fresh.start()
    equal(there(fresh), [asleep])
    fresh.post(f"/v1/sandboxes/{asleep}/start")
    equal(fresh.raw("POST", f"/v1/sandboxes/{asleep}/stop")[0], 204)
    equal(there(fresh), [])


def dies_at(tmp, point, *verbs):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=f"{point}=kill")
        box = ephemeral(instance)
        with contextlib.suppress(OSError, http.client.HTTPException):
            for verb in verbs:
                instance.post(f"/v1/sandboxes/{box}/{verb}")
        instance.process.wait(60)
        instance.start()
        equal(there(instance), [])


@require("root")
def test_the_server_dies_when_it_has_stopped(tmp):
    dies_at(tmp, "sandbox.stop.committed", "stop")


@require(*NEEDS)
def test_the_server_dies_when_a_suspended_one_has_stopped(tmp):
    dies_at(tmp, "sandbox.forget.committed", "suspend", "stop")


@require("root")
def test_it_is_of_a_run(fresh, tmp):
    box = {"ephemeral": True, "mounts": [{"source": tmp, "target": "/m"}]}
    error = raises(cay.ApiError, fresh.upgrade, "POST", "/v1/run", {"sandbox": box, "exec": {"argv": ["true"]}, "keep": True})
    equal((error.code, error.body["error"]["member"]), ("invalid", "keep"))
    fresh.run_stream(["touch", "/m/changed"], box, rm=False).collect()
    cay.wait_until(lambda: there(fresh) == [], 30, "it goes")


POLICY = "version: 1\nrules:\n  - {match: {host: a.example}, action: allow}\n"


def is_left(instance, place):
    """What the server keeps of sandboxes below @place."""
    path = os.path.join(instance.state, place)
    return os.listdir(path) if os.path.isdir(path) else []


def with_files(instance):
    """A stopped sandbox with trust stores and saved output; is it whole?"""
    box = instance.post("/v1/sandboxes", {"policy": POLICY})["id"]
    run = instance.exec(box, "echo", "hello")
    instance.wait(box, run)
    instance.post(f"/v1/sandboxes/{box}/stop")

    def whole():
        equal(instance.output(box, run), b"hello\n")
        instance.post(f"/v1/sandboxes/{box}/start")
        instance.post(f"/v1/sandboxes/{box}/stop")
    return box, whole


@require("root")
def test_a_removal_that_fails_takes_nothing(tmp):
    for how in ("error", "kill"):
        with own_instance(tmp) as instance:
            instance.start(CAY_FAULT=f"sandbox.remove.before_commit:1={how}")
            box, whole = with_files(instance)
            if how == "error":
                equal(raises(cay.ApiError, instance.call, "DELETE", f"/v1/sandboxes/{box}").code, "internal")
            else:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    instance.call("DELETE", f"/v1/sandboxes/{box}")
                instance.process.wait(60)
                instance.start()
            whole()
            instance.remove(box)
            equal((is_left(instance, "trust"), is_left(instance, "exec")), ([], []))


@require("root")
def test_what_a_removal_has_left_is_swept(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="sandbox.remove.committed=kill")
        box, _ = with_files(instance)
        equal((is_left(instance, "trust"), is_left(instance, "exec")), ([box], [box]))
        with contextlib.suppress(OSError, http.client.HTTPException):
            instance.call("DELETE", f"/v1/sandboxes/{box}")
        instance.process.wait(60)
        instance.start()
        equal((there(instance), is_left(instance, "trust"), is_left(instance, "exec")), ([], [], []))
