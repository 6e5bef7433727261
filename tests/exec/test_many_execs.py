# SPDX-License-Identifier: Apache-2.0
"""A sandbox that has lived so long that all numbers for commands were used."""

import contextlib
import json
import os
import sqlite3

from lib import cay
from lib.case import equal, require

CHANNELS = 65535


def with_ended_execs(instance, box, channels):
    """As if it had had them: rows of the catalogue, while nobody serves it."""
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
        for n in channels:
            name = f"{n:020d}"
            doc = {"id": name, "sandbox": box, "argv": ["true"], "state": "ended", "channel": n, "step": n, "status": {"status": "exited", "code": 0}}
            db.execute("INSERT INTO execs (id, owner, doc) VALUES (?, ?, ?)", (name, box, json.dumps(doc)))


def left(instance):
    """Rows of those that are in memory."""
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db:
        return db.execute("SELECT count(*) FROM execs").fetchone()[0]


@require("root")
def test_numbers_of_commands_are_used_again(fresh):
    box = fresh.post("/v1/sandboxes", {"name": "old"})["id"]
    fresh.stop()
    with_ended_execs(fresh, box, range(1, CHANNELS + 1))
    fresh.start()
    for _ in range(3):
        fresh.ok(box, "true")
    run = fresh.exec(box, "cat", stdin=True)
    fresh.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"its own\n")
    equal(fresh.wait(box, run)["code"], 0)
    equal(fresh.output(box, run), b"its own\n")
    cay.wait_until(lambda: left(fresh) <= CHANNELS // 2, 60, "most of them are only in the catalogue")
    fresh.remove(box)
