# SPDX-License-Identifier: Apache-2.0
"""An idempotency key survives the death of cayd: whoever repeats a create gets one sandbox, whenever the server died."""

import http.client

from lib import cay
from lib.case import equal, require

BODY = {"name": "once", "labels": {"a": "b"}}
KEY = {"Idempotency-Key": "create-once"}


def create_and_crash(instance, point):
    """True when cayd died before it answered."""
    try:
        instance.start(CAY_FAULT=point)
        instance.post("/v1/sandboxes", BODY, headers=KEY)
    except (OSError, RuntimeError, http.client.HTTPException):
        instance.process.wait(30)
        return True
    instance.kill()
    return False


@require("root")
def test_a_create_repeated_after_a_crash_makes_one_sandbox(tmp):
    points = [f"catalogue.put.before:{n}" for n in range(1, 8)] + ["sandbox.create.before_commit", "sandbox.create.committed"]
    crashes = 0
    for point in points:
        instance = cay.Instance(tmp)
        try:
            crashes += create_and_crash(instance, point)
            instance.start()
            box = instance.post("/v1/sandboxes", BODY, headers=KEY)
            again = instance.post("/v1/sandboxes", BODY, headers=KEY)
            equal((box["name"], again["id"]), ("once", box["id"]), point)
            equal([b["name"] for b in instance.get("/v1/sandboxes")["sandboxes"]], ["once"], point)
            instance.remove(box["id"])
        finally:
            instance.close()
    assert crashes >= 5, f"only {crashes} of {len(points)} points killed the server before its answer"
