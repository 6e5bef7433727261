# SPDX-License-Identifier: Apache-2.0
"""A sandbox that has lived so long that all numbers of commands are used up."""

import contextlib
import json
import os
import sqlite3

from lib import cay
from lib.case import contains, equal, raises, require

CHANNELS = 65535


def with_ended_execs(instance, box, channels):
    """As if it had had them: rows of the catalogue, while nobody serves it."""
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
        for n in channels:
            name = f"{n:020d}"
            doc = {"id": name, "sandbox": box, "argv": ["true"], "state": "ended", "channel": n, "status": {"status": "exited", "code": 0}}
            db.execute("INSERT INTO execs (id, owner, doc) VALUES (?, ?, ?)", (name, box, json.dumps(doc)))


@require("root")
def test_the_last_command_that_a_sandbox_can_have(fresh):
    box = fresh.post("/v1/sandboxes", {"name": "old"})["id"]
    fresh.stop()
    with_ended_execs(fresh, box, [n for n in range(1, CHANNELS + 1) if n != 5])
    fresh.start()
    fresh.ok(box, "true")
    for _ in range(3):  # and nobody else waits for that
        error = raises(cay.ApiError, fresh.exec, box, "true")
        equal(error.code, "limit")
        contains(error.message, "sandbox 'old' has had 65535 commands")
        contains(error.hint, "cay fork")
    [fork] = fresh.post(f"/v1/sandboxes/{box}/fork", {"live": False})["sandboxes"]
    fresh.ok(fork["id"], "true")
