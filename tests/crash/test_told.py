# SPDX-License-Identifier: Apache-2.0
"""Events that follow from a commit (src/api/telling.h): a server is killed behind the commit and before its event is in the journal, and the next one tells it, once, whatever else
happened in that chain meanwhile; and what was told is not told again."""

import collections
import contextlib
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading

from images.importing import member, tar, write as write_file
from lib import cay
from lib.case import equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from test_power_cut import end_all  # noqa: E402
from test_undone import snapshot, with_file, write  # noqa: E402

TIMEOUT = 180


def told(instance, *wanted):
    """Events of the whole instance, of the types that are @wanted: (type, sandbox, exec, snapshot)."""
    return [(e["type"], e["sandbox"], e["exec"], e["data"].get("snapshot")) for e in instance.events() if e["type"] in wanted]


def by_the_next_server(tmp, point, use, *wanted):
    """The server dies at @point of what use(instance, box, first) does, behind the commit and before its events: the next one tells the @wanted, and that once."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=point)
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        write(instance, box, "second")
        before = len(told(instance, *wanted))
        raises(Exception, use, instance, box, first)
        equal(instance.process.wait(30), -signal.SIGKILL)
        for _ in range(3):
            instance.start()
            equal([t[0] for t in told(instance, *wanted)[before:]], list(wanted))
            assert instance.get(f"/v1/sandboxes/{box}/events/verify")["ok"] or "sandbox.removed" in wanted
            instance.kill()


def running(instance, box):
    """It runs, and in it two programs that do not end."""
    if instance.get(f"/v1/sandboxes/{box}")["state"] != "running":
        instance.post(f"/v1/sandboxes/{box}/start")
    return [instance.exec(box, "/bin/cat", stdin=True)["id"] for _ in range(2)]


@require("root")
def test_a_removal_is_told(tmp):
    by_the_next_server(tmp, "sandbox.remove.committed", lambda i, box, _: i.call("DELETE", f"/v1/sandboxes/{box}"), "sandbox.removed")


@require("root")
def test_the_removal_of_a_snapshot_is_told(tmp):
    by_the_next_server(tmp, "snapshot.remove.committed", lambda i, _, first: i.call("DELETE", f"/v1/snapshots/{first}"), "snapshot.removed")


@require("root")
def test_a_snapshot_is_told(tmp):
    by_the_next_server(tmp, "snapshot.commit.after:2", lambda i, box, _: snapshot(i, box), "snapshot.created")


@require("root")
def test_a_snapshot_of_what_runs_is_told(tmp):
    def use(instance, box, _):
        running(instance, box)
        snapshot(instance, box)
    by_the_next_server(tmp, "snapshot.commit.after:2", use, "snapshot.created")


@require("root")
def test_that_a_snapshot_is_durable_is_told(tmp):
    by_the_next_server(tmp, "snapshot.durable.committed", lambda i, box, _: snapshot(i, box, name="kept"), "snapshot.created", "snapshot.durable")


@require("root")
def test_that_a_snapshot_is_verified_is_told(tmp):
    by_the_next_server(tmp, "snapshot.verify.committed", lambda i, _, first: i.post(f"/v1/snapshots/{first}/verify"), "snapshot.verified")


@require("root")
def test_ends_of_what_ran_are_told(tmp):
    def use(instance, box, _):
        running(instance, box)
        instance.post(f"/v1/sandboxes/{box}/stop")
    by_the_next_server(tmp, "sandbox.stop.committed:3", use, "exec.ended", "exec.ended", "sandbox.stopped")


@require("root", "cgroup2")
def test_a_suspension_is_told(tmp):
    def use(instance, box, _):
        running(instance, box)
        instance.post(f"/v1/sandboxes/{box}/suspend")
    by_the_next_server(tmp, "sandbox.suspend.committed", use, "sandbox.suspended")


@require("root")
def test_a_sandbox_is_told(tmp):
    """Nobody was answered for it, so it is removed."""
    by_the_next_server(tmp, "sandbox.create.committed:2", lambda i, *_: i.post("/v1/sandboxes", {"name": "new"}), "sandbox.created", "sandbox.removed")


@require("root")
def test_a_command_is_told(tmp):
    def use(instance, box, _):
        instance.post(f"/v1/sandboxes/{box}/start")
        instance.exec(box, "/bin/echo", "hello")
    by_the_next_server(tmp, "exec.create.committed:3", use, "exec.created", "exec.ended")


@require("root")
def test_a_command_that_could_not_be_started_is_told(tmp):
    def use(instance, box, _):
        instance.post(f"/v1/sandboxes/{box}/start")
        instance.exec(box, "/bin/true", user="nobody-of-that-name")
    by_the_next_server(tmp, "exec.fail.committed", use, "exec.failed")


@require("root")
def test_forks_are_told(tmp):
    by_the_next_server(tmp, "sandbox.fork.committed", lambda i, _, first: i.post(f"/v1/snapshots/{first}/fork", {"count": 2}), "sandbox.forked")


@require("root")
def test_a_fork_that_does_not_run_is_told(tmp):
    by_the_next_server(tmp, "sandbox.fork.committed", lambda i, _, first: i.post(f"/v1/snapshots/{first}/fork", {"start": False}), "sandbox.forked")


@require("root")
def test_a_policy_is_told(tmp):
    by_the_next_server(tmp, "policy.change.committed", lambda i, box, _: i.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": "preset: none"}), "policy.changed")


@require("root")
def test_settings_are_told(tmp):
    by_the_next_server(tmp, "sandbox.set.committed", lambda i, box, _: i.call("PUT", f"/v1/sandboxes/{box}/settings", {"idle_ms": 3600000}), "sandbox.set")


def import_image(instance, tmp, name="tiny"):
    return instance.post("/v1/images", {"path": write_file(tmp, "root.tar", tar(member("etc/motd", data=b"hello"))), "name": name})["id"]


@require("root")
def test_an_image_is_removed_where_its_files_stay(tmp):
    """It is in no row any more, whatever becomes of them: who asks again finds none, and the next start clears them up."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="store.remove.renamed=error")
        image = import_image(instance, tmp)
        equal(instance.raw("DELETE", f"/v1/images/{image}")[0], 204)
        equal([one["id"] for one in instance.get("/v1/images")["images"]], ["host"])
        instance.kill()
        instance.start()
        equal(os.listdir(os.path.join(instance.state, "pool/images")), [])


@require("root")
def test_an_image_that_is_in_no_row_goes(tmp):
    """Its import, or its removal, was cut short between its files and the catalogue: they are garbage then, and what is in a row stays, also in one that cannot be read."""
    def files():
        return sorted(os.listdir(os.path.join(instance.state, "pool/images")))

    with own_instance(tmp) as instance:
        instance.start()
        kept, damaged = import_image(instance, tmp), import_image(instance, tmp, "other")
        instance.kill()
        with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
            db.execute("UPDATE images SET doc = 'x' WHERE id = ?", (damaged,))
        instance.start(CAY_FAULT="image.import.after_rename=kill")
        raises(cay.ApiError, import_image, instance, tmp, "third")
        equal(files(), sorted([kept, damaged]), "an import that failed leaves nothing")
        instance.kill()
        instance.start(CAY_FAULT="image.remove.committed")
        raises(Exception, instance.call, "DELETE", f"/v1/images/{kept}")
        equal(instance.process.wait(30), -signal.SIGKILL)
        equal(files(), sorted([kept, damaged]))
        instance.start()
        equal(files(), [damaged])


@require("root")
def test_an_image_is_told(tmp):
    by_the_next_server(tmp, "image.import.committed", lambda i, *_: import_image(i, tmp), "image.imported")


@require("root")
def test_the_removal_of_an_image_is_told(tmp):
    by_the_next_server(tmp, "image.remove.committed", lambda i, *_: i.call("DELETE", f"/v1/images/{import_image(i, tmp)}"), "image.imported", "image.removed")


def set_secret(instance):
    return instance.call("PUT", "/v1/secrets/API_KEY", {"value": "sk_live_0123456789"})


@require("root")
def test_a_secret_is_told(tmp):
    by_the_next_server(tmp, "secret.set.committed", lambda i, *_: set_secret(i), "secret.set")


@require("root")
def test_the_removal_of_a_secret_is_told(tmp):
    def use(instance, *_):
        set_secret(instance)
        instance.call("DELETE", "/v1/secrets/API_KEY")
    by_the_next_server(tmp, "secret.remove.committed", use, "secret.set", "secret.removed")


def rows(instance, sql):
    """What the catalogue says now."""
    db = sqlite3.connect(f"file:{instance.state}/cay.db?mode=ro", uri=True)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


@require("root")
def test_a_secret_that_is_set_anew_outlives_what_is_left_of_the_old_one(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        for version in (1, 1):
            equal(set_secret(instance)["version"], version)
            instance.call("DELETE", "/v1/secrets/API_KEY")
        equal(set_secret(instance)["version"], 1)
        for _ in range(2):
            cay.wait_until(lambda: [r[0] for r in rows(instance, "SELECT id FROM secrets")] == ["API_KEY"], 30, "what was left is gone")
            equal([s["name"] for s in instance.get("/v1/secrets")["secrets"]], ["API_KEY"])
            instance.kill()
            instance.start()
        equal([t[0] for t in told(instance, "secret.set", "secret.removed")], ["secret.set", "secret.removed", "secret.set", "secret.removed", "secret.set"])


def ends_of(instance, run):
    return [(e["data"]["status"], e["data"].get("code")) for e in instance.events() if e["type"] == "exec.ended" and e["exec"] == run["id"]]


def is_told_once(instance, box, run):
    """All of it died; the next servers know how the command ended, and tell nobody again."""
    end_all(instance)
    for _ in range(2):
        instance.start()
        equal((instance.wait(box, run)["status"], ends_of(instance, run)), ("exited", [("exited", 7)]))
        assert instance.get(f"/v1/sandboxes/{box}/events/verify")["ok"]
        instance.kill()


@require("root")
def test_an_end_that_the_catalogue_did_not_take_is_told_once(tmp):
    """It is written before the head of its chain is."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="exec.end.before=error")
        box = instance.post("/v1/sandboxes", {})["id"]
        run = instance.exec(box, "/bin/sh", "-c", "exit 7")
        equal(instance.wait(box, run)["code"], 7)
        [last] = [e["seq"] for e in instance.events(box) if e["type"] == "exec.ended"]
        cay.wait_until(lambda: any(f'"seq":{n},' in r[0] for r in rows(instance, f"SELECT doc FROM heads WHERE id = '{box}'") for n in range(last, last + 100)),
                       30, "its chain's head is written")
        is_told_once(instance, box, run)


@require("root")
def test_an_end_whose_row_a_power_cut_took_is_told_once(tmp):
    """The journal has it, and the catalogue is what it was before."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {})["id"]
        run = instance.exec(box, "/bin/sh", "-c", "read line; exit 7", stdin=True)
        instance.kill()
        names = [n for n in os.listdir(instance.state) if n.startswith("cay.db")]
        for name in names:
            shutil.copy2(os.path.join(instance.state, name), os.path.join(tmp, name))
        instance.start()
        stream = instance.attach(box, run)
        stream.send(cay.STDIN, b"go\n")
        stream.collect()
        equal(instance.wait(box, run)["code"], 7)
        end_all(instance)
        for name in names:
            shutil.copy2(os.path.join(tmp, name), os.path.join(instance.state, name))
        is_told_once(instance, box, run)


def stopped_while(instance, happens):
    """What @happens meanwhile reaches the server in one turn of its loop."""
    os.kill(instance.process.pid, signal.SIGSTOP)
    try:
        happens()
    finally:
        os.kill(instance.process.pid, signal.SIGCONT)


def end_of(pids):
    """They are killed, and waited for by whoever is their parent."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    cay.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), 30, "they are gone")


def descendants(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        children = [int(word) for word in f.read().split()]
    return [p for child in children for p in (child, *descendants(child))]


def write_head(instance, box):
    """As a server does whose catalogue takes what is written over, and nothing else."""
    lines = []
    for name in sorted(os.listdir(os.path.join(instance.state, "events"))):
        if name.endswith(".jsonl"):
            with open(os.path.join(instance.state, "events", name), encoding="utf-8") as f:
                lines += [json.loads(line) for line in f]
    last = [e for e in lines if e["sandbox"] == box][-1]
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
        equal(db.execute("UPDATE heads SET doc = ? WHERE id = ?", (json.dumps({"seq": last["seq"], "hash": last["hash"]}), box)).rowcount, 1)


@require("root")
def test_an_end_that_a_killed_server_had_told_is_not_told_again(tmp):
    """The first server counted the ends of processes that its journal never had; the second is killed when its journal has the command's end, and its row does not say so yet. The head of
    the chain may lead behind that."""
    for head in (False, True):
        with own_instance(tmp) as instance:
            instance.start()
            box = instance.post("/v1/sandboxes", {})["id"]
            run = instance.exec(box, "/bin/sh", "-c", "for i in 1 2 3 4 5 6; do cat /dev/zero > /dev/null & done; wait; exit 7")
            shell = instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"]
            cay.wait_until(lambda: len(descendants(shell)) == 6, 30, "its processes run")
            cay.wait_until(lambda: rows(instance, f"SELECT doc FROM heads WHERE id = '{box}'"), 30, "its chain has a head")
            instance.kill()
            instance.start(CAY_FAULT="exec.end.committed")
            stopped_while(instance, lambda: end_of([*descendants(shell), shell]))
            equal(instance.process.wait(30), -signal.SIGKILL)
            with contextlib.suppress(OSError, RuntimeError):
                instance.start(CAY_FAULT="exec.tell.flushed")
            equal(instance.process.wait(30), -signal.SIGKILL)
            if head:
                write_head(instance, box)
            for _ in range(2):
                instance.start()
                equal(len(ends_of(instance, run)), 1)
                assert instance.get(f"/v1/sandboxes/{box}/events/verify")["ok"]
                instance.kill()


@require("root")
def test_a_beginning_that_the_journal_could_not_take_is_told(tmp):
    """A full disk: what is written over in the catalogue has room, what is added to the journal has not."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {})["id"]
        instance.kill()
        instance.start(CAY_FAULT="events.flush.before:1+=error")
        run = instance.exec(box, "/bin/sh", "-c", "exit 7")
        equal(instance.wait(box, run)["code"], 7)
        instance.kill()
        for _ in range(2):
            instance.start()
            equal([e["type"] for e in instance.events(box) if e["exec"] == run["id"] and e["type"] in ("exec.created", "exec.ended")], ["exec.created", "exec.ended"])
            equal(ends_of(instance, run), [("exited", 7)])
            instance.kill()


@require("root", "cgroup2")
def test_an_end_before_a_snapshot_whose_row_a_power_cut_took_is_told_once(tmp):
    """The epoch has gone on since; nothing was taken back."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {})["id"]
        run = instance.exec(box, "/bin/sh", "-c", "read line; exit 7", stdin=True)
        [[row]] = rows(instance, f"SELECT doc FROM execs WHERE id = '{run['id']}'")
        stream = instance.attach(box, run)
        stream.send(cay.STDIN, b"go\n")
        stream.collect()
        equal(instance.wait(box, run)["code"], 7)
        snapshot(instance, box)
        end_all(instance)
        with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
            db.execute("UPDATE execs SET doc = ? WHERE id = ?", (row, run["id"]))
            db.execute("DELETE FROM heads WHERE id = ?", (box,))
        is_told_once(instance, box, run)


UNBURIED = "exec.fail.before" + "=error"


def fails(instance, box):
    """A command that cannot be started."""
    raises(cay.ApiError, instance.exec, box, "/bin/true", user="nobody-of-that-name")
    [failed] = [e["exec"] for e in instance.events(box) if e["type"] == "exec.failed"]
    return failed


def is_over(instance, box, failed):
    equal([e["type"] for e in instance.events(box) if e["exec"] == failed], ["exec.created", "exec.failed"])
    cay.wait_until(lambda: rows(instance, f"SELECT id FROM execs WHERE id = '{failed}'") == [], 30, "its row is gone")


@require("root")
def test_a_failure_that_the_catalogue_did_not_take_is_told_once(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=UNBURIED)
        box = instance.post("/v1/sandboxes", {})["id"]
        is_over(instance, box, fails(instance, box))


@require("root")
def test_a_failure_that_the_catalogue_did_not_take_before_it_was_killed_is_told_once(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {})["id"]
        instance.kill()
        instance.start(CAY_FAULT=UNBURIED + ",catalogue.commit.before:1+=error")
        failed = fails(instance, box)
        equal(len(rows(instance, f"SELECT id FROM execs WHERE id = '{failed}'")), 1)
        instance.kill()
        for _ in range(2):
            instance.start()
            is_over(instance, box, failed)
            instance.kill()


@require("root")
def test_a_policy_whose_change_was_not_ended_is_not_in_force(tmp):
    """Whatever could not be written of it: the commit that ends it, what takes it back, or both."""
    def policy(instance, box):
        found = instance.get(f"/v1/sandboxes/{box}/policy")
        return found["version"], [rule["name"] for rule in (found["policy"] or {}).get("rules", [])]

    def change(instance, box):
        raises(Exception, instance.call, "PUT", f"/v1/sandboxes/{box}/policy", {"policy": "rules: [{name: new, match: {host: new.example}, action: allow}]"})

    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"policy": "rules: [{name: old, match: {host: old.example}, action: allow}]"})["id"]
        instance.post(f"/v1/sandboxes/{box}/stop")
        for point in ("policy.change.written", "policy.change.before=error", "policy.change.before"):
            instance.stop()
            instance.start(CAY_FAULT=point)
            change(instance, box)
            if point.endswith("=error"):
                equal(policy(instance, box), (1, ["old"]))
            else:
                equal(instance.process.wait(30), -signal.SIGKILL)
            for _ in range(2):
                instance.kill()
                instance.start()
                equal(policy(instance, box), (1, ["old"]), point)
                equal(told(instance, "policy.changed"), [], point)


TOLD = ("exec.ended", "sandbox.stopped", "sandbox.rewound", "sandbox.removed", "snapshot.created", "snapshot.durable", "snapshot.verified", "snapshot.removed")


@require("root")
def test_what_was_told_is_not_told_again(tmp):
    """Documents in the catalogue announce it still."""
    with own_instance(tmp) as instance:
        instance.start()
        box, gone = with_file(instance, "first"), with_file(instance, "gone")
        first, second = snapshot(instance, box, name="first"), snapshot(instance, box)
        running(instance, box)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        running(instance, box)
        instance.post(f"/v1/snapshots/{first}/verify")
        instance.call("DELETE", f"/v1/snapshots/{second}")
        instance.post(f"/v1/sandboxes/{box}/stop")
        instance.call("DELETE", f"/v1/sandboxes/{gone}")
        before = told(instance, *TOLD)
        equal(sorted(set(TOLD) - {t[0] for t in before}), [])
        for _ in range(3):
            instance.kill()
            instance.start()
            equal(told(instance, *TOLD), before)


@require("root")
def test_what_was_told_of_a_sandbox_that_is_gone_is_not_told_again(tmp):
    """A snapshot outlives its source, whose events are retired: nobody knows its chain any more."""
    with own_instance(tmp) as instance:
        instance.start()
        box = with_file(instance, "first")
        kept = snapshot(instance, box, name="kept")
        instance.call("DELETE", f"/v1/sandboxes/{box}")
        last = max(e["n"] for e in instance.events() if e["sandbox"] == box)
        cay.wait_until(lambda: instance.call("PUT", "/v1/events/retention", {"removed_age_s": 1})["first_n"] > last, 30, "retirement", os.path.join(instance.state, "events"))
        for _ in range(2):
            instance.kill()
            instance.start()
            equal([t for t in told(instance, *TOLD) if t[1] == box], [])
            equal([s["id"] for s in instance.get("/v1/snapshots")["snapshots"]], [kept])


@contextlib.contextmanager
def load(instance, boxes):
    """Programs begin and end in @boxes all the time, until the server is gone."""
    def work(box):
        with contextlib.suppress(Exception):
            while True:
                instance.ok(box, "true & true & wait")
    threads = [threading.Thread(target=work, args=(box,)) for box in boxes for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(60)


def told_once(instance):
    """Each program that began has ended once, and no event that happens once to somebody is there twice."""
    events = instance.events()
    begun = {e["exec"] for e in events if e["type"] == "exec.created"} - {e["exec"] for e in events if e["type"] == "exec.failed"}
    ended = collections.Counter(e["exec"] for e in events if e["type"] == "exec.ended")
    equal({e: n for e, n in ended.items() if n != 1}, {})
    equal(sorted(begun - set(ended)), [], "programs whose end nobody told")
    once = collections.Counter(t for t in told(instance, *TOLD) if t[3] is not None and t[0] != "sandbox.rewound")
    equal({t: n for t, n in once.items() if n != 1}, {})
    equal(sorted(s["id"] for s in instance.get("/v1/snapshots")["snapshots"]),
          sorted({t[3] for t in once if t[0] == "snapshot.created"} - {t[3] for t in once if t[0] == "snapshot.removed"}))


def under_load(tmp, point, use, *wanted):
    """The same as by_the_next_server(), while programs begin and end in the sandbox, and in another one; several times."""
    with own_instance(tmp) as instance:
        instance.start()
        box, other = with_file(instance, "first"), with_file(instance, "other")
        first = snapshot(instance, box)
        for _ in range(4):
            instance.stop()
            instance.start(CAY_FAULT=point)
            for one in (box, other):
                running(instance, one)
            before = told(instance, *wanted)
            with load(instance, (box, other)):
                raises(Exception, use, instance, box, first)
                equal(instance.process.wait(30), -signal.SIGKILL)
            for _ in range(2):
                instance.start()
                equal([t[0] for t in told(instance, *wanted)[len(before):] if t[1] == box], list(wanted))
                instance.kill()
            instance.start()
        for one in (box, other):
            if instance.get(f"/v1/sandboxes/{one}")["state"] == "running":
                instance.post(f"/v1/sandboxes/{one}/stop")
        told_once(instance)


@require("root")
def test_a_stop_under_load_is_told_once(tmp):
    under_load(tmp, "sandbox.stop.committed", lambda i, box, _: i.post(f"/v1/sandboxes/{box}/stop"), "sandbox.stopped")


@require("root")
def test_a_rewind_under_load_is_told_once(tmp):
    under_load(tmp, "rewind.commit.after", lambda i, box, first: i.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first}), "sandbox.stopped", "sandbox.rewound")


@require("root")
def test_a_snapshot_under_load_is_told_once(tmp):
    under_load(tmp, "snapshot.commit.after", lambda i, box, _: snapshot(i, box), "snapshot.created")
