# SPDX-License-Identifier: Apache-2.0
"""An idempotency key survives the death of cayd: whoever repeats a create gets one sandbox, whenever the server died."""

import contextlib
import http.client
import os
import sqlite3
import sys

from lib import cay, leaks
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked, stopped  # noqa: E402

BODY = {"name": "once", "labels": {"a": "b"}}
KEY = {"Idempotency-Key": "once"}


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


LATE = {"CAY_FAULT": "exec.ask.sent"}
LATE["CAY_FAULT"] += ":1=error"  # as if the keeper had not answered for half a minute


@require("root")
def test_a_command_of_a_keeper_that_stands_still_is_not_run_twice(tmp):
    """Its keeper starts it when it goes on: until it has answered, nobody knows that it has not run."""
    with own_instance(tmp) as instance:
        instance.start(**LATE)
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        with stopped(leaks.keeper_of(box)):
            error = raises(cay.ApiError, instance.exec, "box", "sh", "-c", "echo once >> /var/tmp/runs", headers=KEY)
            equal(error.code, "timeout")
            [waiting] = instance.get("/v1/sandboxes/box/execs")["execs"]
            equal(waiting["state"], "starting")
            contains(error.message, waiting["id"])
            equal(instance.exec("box", "sh", "-c", "echo once >> /var/tmp/runs", headers=KEY)["id"], waiting["id"])
        equal(instance.wait("box", waiting)["code"], 0)
        equal(instance.ok("box", "cat /var/tmp/runs"), "once\n")


@require("root")
def test_a_command_of_a_keeper_that_refuses_it_late_is_over(tmp):
    with own_instance(tmp) as instance:
        instance.start(**LATE)
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        with stopped(leaks.keeper_of(box)):
            equal(raises(cay.ApiError, instance.exec, "box", "/no/such/program", headers=KEY).code, "timeout")
        cay.wait_until(lambda: not instance.get("/v1/sandboxes/box/execs")["execs"], 30, "it is forgotten")
        equal([e["data"]["error"]["code"] for e in instance.events() if e["type"] == "exec.failed"], ["command_not_found"])


@require("root")
def test_who_waits_for_a_command_that_is_refused_late_hears_the_refusal(tmp):
    with own_instance(tmp) as instance:
        instance.start(**LATE)
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        with stopped(leaks.keeper_of(box)):
            equal(raises(cay.ApiError, instance.exec, "box", "/no/such/program", headers=KEY).code, "timeout")
            [waiting] = instance.get("/v1/sandboxes/box/execs")["execs"]
            again = Asked(instance, "POST", "/v1/sandboxes/box/execs?wait_ms=60000", {"argv": ["/no/such/program"]}, KEY)
            looks = Asked(instance, "GET", f"/v1/sandboxes/box/execs/{waiting['id']}?wait_ms=60000")
        equal([asked.answer()[1].get("error", {}).get("code") for asked in (again, looks)], ["command_not_found"] * 2)


@require("root")
def test_a_command_of_a_keeper_that_dies_before_it_answers_is_lost(tmp):
    with own_instance(tmp) as instance:
        instance.start(**LATE)
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        with stopped(leaks.keeper_of(box)):
            equal(raises(cay.ApiError, instance.exec, "box", "true", headers=KEY).code, "timeout")
            os.kill(leaks.keeper_of(box), 9)
            [run] = instance.get("/v1/sandboxes/box/execs")["execs"]
            equal(instance.wait("box", run)["status"], "lost")


@require("root")
def test_a_command_whose_keeper_is_killed_while_it_is_asked_is_lost_too(tmp):
    """Nobody can say that it has not run."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        with stopped(leaks.keeper_of(box)):
            asked = Asked(instance, "POST", "/v1/sandboxes/box/execs", {"argv": ["true"]})
            cay.wait_until(lambda: instance.get("/v1/sandboxes/box/execs")["execs"], 30, "it was asked for")
            os.kill(leaks.keeper_of(box), 9)
        equal(asked.answer()[0], 201)
        [run] = instance.get("/v1/sandboxes/box/execs")["execs"]
        equal(instance.wait("box", run)["status"], "lost")


@require("root")
def test_a_damaged_row_of_a_key_is_no_unused_key(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        instance.post("/v1/sandboxes", {"start": False}, headers=KEY)
        instance.stop()
        with sqlite3.connect(os.path.join(instance.state, "cay.db")) as rows:
            equal(rows.execute("UPDATE keys SET doc = substr(doc, 1, 20)").rowcount, 1)
        rows.close()
        instance.start()
        contains(raises(cay.ApiError, instance.post, "/v1/sandboxes", {"start": False}, headers=KEY).message, "nothing was done")
        equal(len(instance.get("/v1/sandboxes")["sandboxes"]), 1)


@require("root")
def test_a_damaged_row_of_a_key_counts_as_unused_a_day_later(tmp):
    def change(sql):
        instance.stop()
        with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
            equal(db.execute(sql).rowcount, 1)
        instance.start()

    with own_instance(tmp) as instance:
        instance.start()
        instance.remove(instance.post("/v1/sandboxes", {"start": False}, headers=KEY)["id"])  # for a day it would know its key, too
        change("UPDATE keys SET doc = substr(doc, 1, 20)")
        for _ in range(2):
            raises(cay.ApiError, instance.post, "/v1/sandboxes", {"start": False}, headers=KEY)
        change(f"UPDATE keys SET doc = json_set(doc, '$.time', json_extract(doc, '$.time') - {24 * 3600 * 10**9})")
        made = instance.post("/v1/sandboxes", {"start": False}, headers=KEY)
        equal(instance.post("/v1/sandboxes", {"start": False}, headers=KEY)["id"], made["id"], "and remembers again")
        equal(len(instance.get("/v1/sandboxes")["sandboxes"]), 1)


def a_day_passes(instance, keys=True):
    """For the rows of keys, and for what was made with them."""
    instance.stop()
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
        if keys:
            db.execute(f"UPDATE keys SET doc = json_set(doc, '$.time', json_extract(doc, '$.time') - {24 * 3600 * 10**9})")
        for table in ("sandboxes", "execs", "past"):
            day_before = "strftime('%Y-%m-%dT%H:%M:%f', substr(json_extract(doc, '$.created'), 1, 19), '-1 day') || '000Z'"
            db.execute(f"UPDATE {table} SET doc = json_set(doc, '$.created', {day_before})")
    instance.start()


@require("root")
def test_a_key_is_free_a_day_later_though_what_it_made_is_there(tmp):
    """A command each night under one key is run each night, also where the one of last night is long past."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", BODY, headers=KEY)["id"]
        runs = []
        for night in range(3):
            for _ in range(2):
                run = instance.exec(box, "sh", "-c", f"echo {night} >> /var/tmp/runs", headers={"Idempotency-Key": "nightly"})
                equal(instance.wait(box, run)["code"], 0)
                runs.append(run["id"])
            if night == 1:
                instance.post(f"/v1/sandboxes/{box}/stop")
                instance.post(f"/v1/sandboxes/{box}/start")
            a_day_passes(instance)
        equal(instance.ok(box, "cat /var/tmp/runs").split(), ["0", "1", "2"])
        equal((runs[0::2], len(set(runs))), (runs[1::2], 3))
        other = instance.post("/v1/sandboxes", {"name": "other", "start": False}, headers=KEY)["id"]
        equal(instance.post("/v1/sandboxes", {"name": "other", "start": False}, headers=KEY)["id"], other)
        with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
            db.execute("DELETE FROM keys")  # as if the server had died before it was written
        equal(instance.post("/v1/sandboxes", {"name": "other", "start": False}, headers=KEY)["id"], other)
        assert other != box


@require("root")
def test_a_long_command_is_not_run_twice_for_who_left_before_its_end(tmp):
    """Its key counts from when the client left, and is the same command's though that was begun more than a day ago; also where it is long past."""
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {})["id"]
        path, body = f"/v1/sandboxes/{box}/execs", {"argv": ["sh", "-c", "echo once >> /var/tmp/runs; until test -e /var/tmp/go; do sleep 0.05; done"]}
        asked = Asked(instance, "POST", f"{path}?wait_ms=600000", body, KEY)
        run = instance.wait_event("exec.started")["exec"]
        asked.leave()
        cay.wait_until(lambda: all_keys(instance) == {"once"}, 30, "it is seen that the client has left")
        a_day_passes(instance, keys=False)
        again = Asked(instance, "POST", f"{path}?wait_ms=600000", body, KEY)
        again.leave()
        instance.ok(box, "touch /var/tmp/go")
        instance.wait(box, {"id": run})
        equal(instance.post(f"{path}?wait_ms=600000", body, headers=KEY)["id"], run)
        equal(instance.ok(box, "cat /var/tmp/runs"), "once\n")


def all_keys(instance):
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db:
        return {name.split(":", 1)[1] for name, in db.execute("SELECT id FROM keys")}


@require("root")
def test_a_key_is_remembered_when_the_clock_steps_back(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        first = instance.post("/v1/sandboxes", {"start": False}, headers=KEY)["id"]
        instance.remove(first)  # for a day it would know its key, too
        instance.stop()
        with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
            equal(db.execute(f"UPDATE keys SET doc = json_set(doc, '$.time', json_extract(doc, '$.time') + {3600 * 10**9})").rowcount, 1)
        instance.start()
        equal(instance.post("/v1/sandboxes", {"start": False}, headers=KEY)["id"], first)
        equal(instance.get("/v1/sandboxes")["sandboxes"], [])


@require("root")
def test_keys_of_yesterday_are_forgotten(tmp):
    with own_instance(tmp) as instance:
        instance.start()

        def use(name):
            instance.remove(instance.post("/v1/sandboxes", {"start": False}, headers={"Idempotency-Key": name})["id"])
        for n in range(40):
            use(f"old-{n}")
        instance.stop()
        with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
            equal(db.execute(f"UPDATE keys SET doc = json_set(doc, '$.time', json_extract(doc, '$.time') - {24 * 3600 * 10**9})").rowcount, 40)
            # of what is damaged nobody knows how old it is
            equal(db.execute("UPDATE keys SET doc = substr(doc, 1, 20) WHERE id LIKE '%:old-7'").rowcount, 1)
        instance.start()
        use("old-0")
        for n in range(16):
            use(f"new-{n}")
        equal(all_keys(instance), {"old-0", "old-7"} | {f"new-{n}" for n in range(16)})
