# SPDX-License-Identifier: Apache-2.0
"""A keeper that does not answer when a server starts: nobody else waits for it. What needs its sandbox waits, or is told that this is busy; when the keeper answers it is adopted, when it ends its sandbox is over.

That others do not wait is shown by their being served while it is still stopped, not by how long that takes."""

import concurrent.futures
import contextlib
import os
import signal
import sqlite3
import sys

from lib import cay, leaks
from lib.case import equal, raises, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked, stopped  # noqa: E402

POINT = "sandbox.awaited"
IMPATIENT = {"CAY_FAULT": f"{POINT}:1+=error"}  # who would wait for it does not

# what needs the sandbox, or what is in it; %s: one of its commands
NEEDS_IT = [
    ("POST", "/execs", {"argv": ["true"]}), ("GET", "/execs", None), ("GET", "/execs/%s", None), ("GET", "/execs/%s/output", None),
    ("POST", "/execs/%s/stdin", None), ("POST", "/execs/%s/signal", {"signal": 15}), ("GET", "/usage", None), ("GET", "/steps", None),
    ("POST", "/stop", {}), ("POST", "/pause", {}), ("POST", "/suspend", {}), ("POST", "/snapshots", {}), ("POST", "/fork", {}),
    ("POST", "/rewind", {"snapshot": "none"}), ("PUT", "/settings", {"idle_ms": 100000}), ("DELETE", "?force=true", None),
    ("GET", "/files?path=/etc/hostname", None), ("GET", "/policy", None),
]


def is_awaited(instance, box):
    return instance.get(f"/v1/sandboxes/{box}").get("awaited", False)


def adopted(instance, box):
    cay.wait_until(lambda: not is_awaited(instance, box), 60, "it is adopted")


def refusals(instance, box, run):
    """What each request that needs @box was told that was not told that it is busy."""
    def answer(method, path, body):
        try:
            return instance.call(method, f"/v1/sandboxes/{box}{path.replace('%s', run)}", body)
        except cay.ApiError as error:
            return None if (error.status, error.code) == (409, "busy") else (error.status, error.code)
    answers = {f"{method} {path}": answer(method, path, body) for method, path, body in NEEDS_IT}
    return {name: what for name, what in answers.items() if what is not None}


@require("root")
@timeout(120)
def test_others_are_served_while_a_keeper_does_not_answer(tmp):
    """Also by the next server, and the one behind it: nothing that one did while it waited keeps the last one from adopting it."""
    with own_instance(tmp) as instance:
        instance.start()
        box, other = (instance.post("/v1/sandboxes", {"name": name})["id"] for name in ("box", "other"))
        run = instance.exec(box, "/bin/sh", "-c", "read x; echo $x", stdin=True)
        with stopped(leaks.keeper_of(box)):
            for _ in range(2):
                instance.kill()
                instance.start(**IMPATIENT)
                instance.ok(other, "true")
                one = instance.get("/v1/sandboxes/box")
                equal((one["state"], one["execs_running"], one["awaited"]), ("running", 1, True))
                equal({sb["name"]: sb.get("awaited", False) for sb in instance.get("/v1/sandboxes")["sandboxes"]}, {"box": True, "other": False})
                equal(refusals(instance, box, run["id"]), {})
                equal(instance.raw("GET", f"/v1/diff?a={box}")[0], 409)
                equal(instance.raw("GET", f"/v1/snapshots/{box}@1")[0], 409)
                equal(instance.raw("GET", f"/v1/sandboxes/{box}/events")[0], 200)
                equal([e["type"] for e in instance.events(box) if e["type"] in ("sandbox.stopped", "sandbox.failed", "sandbox.suspended")], [])
        adopted(instance, box)
        equal(instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"on\n")[0], 204)
        equal(instance.wait(box, run)["status"], "exited")
        equal(instance.output(box, run), b"on\n")


@require("root")
def test_who_needs_it_waits_until_it_is_adopted(tmp):
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {})["id"]
        with stopped(leaks.keeper_of(box)):
            instance.kill()
            instance.start()
            asked = [Asked(instance, "POST", f"/v1/sandboxes/{box}/execs?wait_ms=30000", {"argv": ["true"]}), Asked(instance, "GET", f"/v1/diff?a={box}")]
            equal(is_awaited(instance, box), True)
        equal([one.answer()[0] for one in asked], [201, 200])


@require("root")
def test_who_asks_for_a_step_waits_until_it_is_known_whether_that_has_ended(tmp):
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {})["id"]
        instance.exec(box, "sleep", "1000")
        with stopped(leaks.keeper_of(box)):
            instance.kill()
            instance.start()
            asked = Asked(instance, "GET", f"/v1/snapshots/{box}@1")
            equal(is_awaited(instance, box), True)
        status, said = asked.answer()
        equal((status, "has not ended" in said["error"]["message"]), (404, True), str(said))


@require("root")
def test_a_create_that_was_not_answered_is_answered_when_it_is_known_what_became_of_it(tmp):
    """The answer is kept for a day: it is not that of the last server."""
    key = {"Idempotency-Key": "once"}
    with own_instance(tmp) as instance:
        for name, goes_on in (("goes-on", True), ("dies", False)):
            body = {"name": name, "ephemeral": True}
            box = instance.start().post("/v1/sandboxes", body, headers=key)["id"]
            keeper = leaks.keeper_of(box)
            with stopped(keeper):
                instance.kill()
                with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
                    db.execute("DELETE FROM keys")  # as if the server had died before it was written
                instance.start()
                asked = Asked(instance, "POST", "/v1/sandboxes", body, key)
                equal(is_awaited(instance, box), True)
                if not goes_on:
                    os.kill(keeper, signal.SIGKILL)
            status, made = asked.answer()
            equal((status, made.get("awaited"), made.get("id") == box), (201, None, goes_on), str(made))
            instance.remove(made["id"])
            instance.stop()
            key = {"Idempotency-Key": "again"}


@require("root")
def test_a_server_that_ends_while_it_waits_leaves_it_to_the_next_one(tmp):
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {})["id"]
        run = instance.exec(box, "sleep", "1000")
        with stopped(leaks.keeper_of(box)):
            instance.kill()
            instance.start()
            asked = Asked(instance, "POST", f"/v1/sandboxes/{box}/execs", {"argv": ["true"]})
            instance.stop()
            equal(asked.answer()[1]["error"]["code"], "shutting_down")
            instance.start(**IMPATIENT)
            equal(is_awaited(instance, box), True)
        adopted(instance, box)
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        instance.ok(box, "true")


@require("root")
def test_who_has_all_sandboxes_stopped_waits_for_it(tmp):
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {})["id"]
        with stopped(leaks.keeper_of(box)):
            instance.kill()
            instance.start()
            asked = Asked(instance, "POST", "/v1/shutdown", {"sandboxes": "stop"})
            equal(is_awaited(instance, box), True)
        equal(asked.answer()[0], 204)
        equal(instance.process.wait(60), 0)
        equal(instance.start().get(f"/v1/sandboxes/{box}")["state"], "stopped")


@require("root")
def test_one_whose_keeper_never_answers_is_over(tmp):
    """Its files are there, and it starts again."""
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {})["id"]
        gone = instance.post("/v1/sandboxes", {"ephemeral": True, "name": "gone"})["id"]
        instance.ok(box, "echo here > /root/file")
        run = instance.exec(box, "sleep", "1000")
        keepers = [leaks.keeper_of(one) for one in (box, gone)]
        for keeper in keepers:
            os.kill(keeper, signal.SIGSTOP)
        instance.kill()
        instance.start()
        asked = Asked(instance, "GET", f"/v1/sandboxes/{box}/execs/{run['id']}")
        equal([is_awaited(instance, one) for one in (box, gone)], [True, True])
        for keeper in keepers:
            os.kill(keeper, signal.SIGKILL)
        equal(asked.answer()[1]["status"]["status"], "lost")
        instance.wait_event("sandbox.stopped", box)
        instance.wait_event("sandbox.removed", gone)
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "stopped")
        equal(instance.raw("GET", "/v1/sandboxes/gone")[0], 404)
        instance.post(f"/v1/sandboxes/{box}/start")
        equal(instance.ok(box, "cat /root/file"), "here\n")


def join(instance, start):
    return instance.upgrade("GET", f"/v1/runs/againandagain/attach?from={start}")


@require("root")
def test_a_run_goes_on_behind_servers_that_have_waited_for_its_keeper(tmp):
    with own_instance(tmp) as instance, concurrent.futures.ThreadPoolExecutor(1) as threads:
        first = instance.start().upgrade("POST", "/v1/run", {"sandbox": {"name": "box"}, "exec": {"argv": ["sh", "-c", "echo ready; read x; echo $x"], "stdin": True},
                                                             "key": "againandagain", "rm": True})
        first.until(cay.STDOUT)
        with stopped(leaks.keeper_of(instance.get("/v1/sandboxes/box")["id"])):
            instance.kill()
            instance.start(**IMPATIENT)
            equal(raises(cay.ApiError, join, instance, 6).code, "busy")
            instance.kill()
            instance.start()
            joined = threads.submit(join, instance, 6)
            equal(is_awaited(instance, "box"), True)
        again = joined.result()
        again.send(cay.STDIN, b"on\n")
        equal(again.until(cay.STDOUT)[-1][2][8:], b"on\n")
        again.close()
        first.close()


@require("root")
def test_many_that_do_not_answer_keep_nobody_from_being_served(tmp):
    """More than are seen to at a time."""
    with own_instance(tmp) as instance:
        instance.start()
        boxes = [instance.post("/v1/sandboxes", {})["id"] for _ in range(17)]
        other = instance.post("/v1/sandboxes", {})["id"]
        keepers = [leaks.keeper_of(box) for box in boxes]
        for keeper in keepers:
            os.kill(keeper, signal.SIGSTOP)
        try:
            instance.kill()
            instance.start(**IMPATIENT)
            instance.ok(other, "true")
            equal([is_awaited(instance, box) for box in boxes], [True] * len(boxes))
            asked = Asked(instance, "POST", "/v1/shutdown", {"sandboxes": "stop"})
            instance.wait_event("sandbox.stopped", other)
            instance.stop()  # whoever ends it does not wait for them
            asked.leave()
            instance.start(**IMPATIENT)
            equal([is_awaited(instance, box) for box in boxes], [True] * len(boxes))
        finally:
            for keeper in keepers:
                os.kill(keeper, signal.SIGCONT)
        for box in boxes:
            adopted(instance, box)
        instance.ok(boxes[-1], "true")
