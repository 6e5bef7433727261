# SPDX-License-Identifier: Apache-2.0
"""A sandbox that has had many commands: those that ended long ago are only in the catalogue, and all that was promised of them holds."""

import contextlib
import os
import sqlite3

from lib import cay
from lib.case import contains, equal, raises, require, timeout

TIMEOUT = 180
KEPT = 256  # whose output a keeper has


def past(instance, box):
    """Ids of those that are in the catalogue alone."""
    with contextlib.closing(sqlite3.connect(f"file:{os.path.join(instance.state, 'cay.db')}?mode=ro", uri=True)) as db:
        return [row[0] for row in db.execute("SELECT id FROM past WHERE owner = ? ORDER BY step", (box,))]


def many(instance, box, n, **options):
    return [instance.post(f"/v1/sandboxes/{box}/execs?wait_ms=60000", {"argv": ["sh", "-c", f"exit {i % 100}"], **options}) for i in range(n)]


def wait_past(instance, box, n=1):
    cay.wait_until(lambda: len(past(instance, box)) >= n, 30, "old commands are in the catalogue alone")


def ids(instance, box, query="?limit=10000", what="execs", member="id"):
    return [e[member] for e in instance.get(f"/v1/sandboxes/{box}/{what}{query}")[what]]


def check_all(instance, box, runs):
    """Whether they are past or not makes no difference."""
    equal(ids(instance, box), [r["id"] for r in runs])
    for run in (*runs[:3], runs[len(runs) // 2], runs[-1]):
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}"), run)
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id'][:14]}"), run)
    equal(raises(cay.ApiError, instance.get, f"/v1/sandboxes/{box}/execs/nothing").code, "not_found")


def as_shown(instance, box, runs):
    return [instance.get(f"/v1/sandboxes/{box}/execs/{r['id']}") for r in runs]


def test_commands_of_long_ago_are_as_they_were(fresh):
    with fresh.sandbox() as box:
        kept = fresh.post(f"/v1/sandboxes/{box}/execs?wait_ms=60000", {"argv": ["echo", "kept"], "spill_bytes": 4096})
        runs = [kept] + many(fresh, box, 3 * KEPT // 2)
        equal([r["status"]["code"] for r in runs[1:]], [i % 100 for i in range(len(runs) - 1)])
        wait_past(fresh, box)
        runs = as_shown(fresh, box, runs)
        assert kept["id"] in past(fresh, box)
        for again in ("as it is", "a killed server", "a stopped sandbox"):
            print(again)
            check_all(fresh, box, runs)
            equal(fresh.output(box, kept), b"kept\n")
            equal(fresh.output(box, runs[1]), b"")
            stream = fresh.attach(box, kept)
            out, _, status = stream.collect()
            equal((out, status), (b"kept\n", kept["status"]))
            error = raises(cay.ApiError, fresh.post, f"/v1/sandboxes/{box}/execs/{runs[1]['id']}/signal", {"signal": 15}) \
                if again != "a stopped sandbox" else None
            equal(error and error.code, "state" if error else None)
            if again == "as it is":
                fresh.kill()
                fresh.start()
            elif again == "a killed server":
                fresh.post(f"/v1/sandboxes/{box}/stop")
        wait_past(fresh, box, len(runs) - 16)
        check_all(fresh, box, runs)
    cay.wait_until(lambda: not past(fresh, box), 30, "they went with their sandbox")


def test_lists_come_in_parts(fresh):
    with fresh.sandbox(name="long") as box:
        runs = [r["id"] for r in many(fresh, box, KEPT + 100)]
        wait_past(fresh, box)
        for what, member in (("execs", "id"), ("steps", "exec")):
            last = fresh.get(f"/v1/sandboxes/{box}/{what}?limit=10")
            equal(([e[member] for e in last[what]], last["more"]), (runs[-10:], True))
            seen, answer = [], {"more": True}
            while answer["more"]:
                answer = fresh.get(f"/v1/sandboxes/{box}/{what}?limit=37&after={len(seen)}")
                seen += [e[member] for e in answer[what]]
            equal(seen, runs)
            equal(ids(fresh, box, "?limit=7&before=51", what, member), runs[43:50])
            equal(ids(fresh, box, "?after=3&before=6", what, member), runs[3:5])
        shown = fresh.cay("steps", box).stdout.splitlines()
        equal([line.split()[1] for line in shown[1:]], [r[:8] for r in runs])
        contains(fresh.cay("info", box).stdout, "and older ones: cay steps")
        equal(fresh.json("logs", box)["id"], runs[-1])


@require("root")
def test_an_idempotency_key_of_long_ago(fresh):
    """Of one whose answer was not kept: the exec itself knows it."""
    with fresh.sandbox() as box:
        first = fresh.exec(box, "true", headers={"Idempotency-Key": "long ago"})
        many(fresh, box, KEPT + 100)
        wait_past(fresh, box)
        assert first["id"] in past(fresh, box)
        fresh.stop()
        with contextlib.closing(sqlite3.connect(os.path.join(fresh.state, "cay.db"))) as db, db:
            db.execute("DELETE FROM keys")
        fresh.start()
        equal(fresh.exec(box, "true", headers={"Idempotency-Key": "long ago"})["id"], first["id"])
        equal(raises(cay.ApiError, fresh.exec, box, "false", headers={"Idempotency-Key": "long ago"}).code, "idempotency_mismatch")
        equal(len(ids(fresh, box)), KEPT + 101)


@require("root", "cgroup2")
def test_steps_of_long_ago_can_be_branched(fresh):
    with fresh.sandbox(checkpoint="each-exec") as box:
        fresh.ok(box, "echo first > /root/first")
        [step] = fresh.get(f"/v1/sandboxes/{box}/steps")["steps"]
        fresh.get(f"/v1/snapshots/{box}@1")
        fresh.call("PUT", f"/v1/sandboxes/{box}/settings", {"checkpoint": "none"})
        many(fresh, box, KEPT + 100)
        wait_past(fresh, box)
        assert step["exec"] in past(fresh, box)
        for name in ("1", step["exec"], step["exec"][:14]):
            [fork] = fresh.post(f"/v1/snapshots/{box}@{name}/fork", {})["sandboxes"]
            equal(fresh.ok(fork["id"], "cat /root/first"), "first\n")
            fresh.remove(fork["id"])
        contains(raises(cay.ApiError, fresh.get, f"/v1/snapshots/{box}@2").message, "step 2 of sandbox")


@require("root", "cgroup2")
def test_a_rewind_brings_one_of_long_ago_back(fresh):
    with fresh.sandbox() as box:
        run = fresh.exec(box, "sh", "-c", "read a; echo $a", stdin=True)
        snapshot = fresh.post(f"/v1/sandboxes/{box}/snapshots", {})
        fresh.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"then\n")
        fresh.wait(box, run)
        many(fresh, box, KEPT + 100)
        wait_past(fresh, box)
        assert run["id"] in past(fresh, box)
        before = ids(fresh, box)
        fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": snapshot["id"]})
        equal(fresh.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        assert run["id"] not in past(fresh, box)
        for again in ("now", "with the next server"):
            print(again)
            equal(ids(fresh, box), before)
            fresh.kill()
            fresh.start()
        fresh.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"again\n")
        equal(fresh.wait(box, run)["code"], 0)
        equal(fresh.output(box, run), b"again\n")


def make_case(point):
    """The server is killed there; the next one knows every command, once."""
    @require("root")
    @timeout(120)
    def case(fresh):
        fresh.stop()
        fresh.start(CAY_FAULT=point)
        box = fresh.post("/v1/sandboxes", {"name": "many"})["id"]
        runs = []
        with contextlib.suppress(cay.ApiError, OSError, EOFError):
            for _ in range(2 * KEPT):
                runs += many(fresh, box, 1)
            fresh.remove(box)
        fresh.process.wait(30)
        fresh.start()
        if point == "exec.past.clear":
            cay.wait_until(lambda: not past(fresh, box), 30, "they are gone")
            return
        known = ids(fresh, box)
        equal(known[:len(runs)], [r["id"] for r in runs])
        equal(len(set(known)), len(known))
        assert len(known) <= len(runs) + 1, (len(known), len(runs))
        many(fresh, box, 70)
        wait_past(fresh, box)
        known = ids(fresh, box)
        equal(known[:len(runs)], [r["id"] for r in runs])
        assert fresh.get(f"/v1/sandboxes/{box}/events/verify")["ok"]
        ended = [e["exec"] for e in fresh.events(box) if e["type"] == "exec.ended"]
        equal(sorted(ended), sorted(known))
        fresh.remove(box)
    case.__name__ = f"test_killed_at_{point.replace('.', '_').replace(':', '_')}"
    return case


for _point in ("exec.past.before", "catalogue.past.before", "catalogue.past.before:20", "exec.past.committed", "exec.past.clear"):
    _case = make_case(_point)
    globals()[_case.__name__] = _case


def numbered(instance, box):
    """{number: id} of all, had in parts; no number is there twice."""
    found, more = {}, True
    while more:
        page = instance.get(f"/v1/sandboxes/{box}/execs?after={max(found, default=0)}&limit=1")
        more = page["more"]
        for e in page["execs"]:
            assert e["step"] not in found, e
            found[e["step"]] = e["id"]
    return found


@require("root", "cgroup2")
def test_what_comes_from_a_relative_takes_no_number(fresh):
    """Rewound to what a fork of it was at: commands that run there have numbers that its own have had, in memory or long ago, or beyond these. Its own stay what they were."""
    for own in (0, 3, 24):
        with fresh.sandbox() as box:
            [fork] = fresh.post(f"/v1/sandboxes/{box}/fork", {"live": False})["sandboxes"]
            runs = [fresh.exec(fork["id"], "sleep", "1000")["id"] for _ in range(2)]
            snapshot = fresh.post(f"/v1/sandboxes/{fork['id']}/snapshots", {})["id"]
            fresh.remove(fork["id"])
            before = dict(enumerate((r["id"] for r in many(fresh, box, own)), 1))
            if own > 16:
                fresh.post(f"/v1/sandboxes/{box}/stop")
                wait_past(fresh, box, own - 16)
            for _ in range(2):
                fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": snapshot})
                equal(numbered(fresh, box), {**before, own + 1: runs[0], own + 2: runs[1]})
            equal(many(fresh, box, 1)[0]["step"], own + 3)
