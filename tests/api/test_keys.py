# SPDX-License-Identifier: Apache-2.0
"""Idempotency keys of what works on states: asked twice with one key, one after the other or at once, a snapshot, a fork, a rewind, a suspension is made once, and the answer is the first
one's; another request with that key is refused."""

import concurrent.futures
import contextlib
import json
import socket

from lib import cay
from lib.case import contains, equal, raises, require


def key(text):
    return {"Idempotency-Key": text}


def at_once(instance, path, body, name):
    """The answers to four such requests at the same time, and of one behind them."""
    def ask(_):
        return instance.post(path, body, headers=key(name))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return [*pool.map(ask, range(4)), ask(None)]


def refused(instance, path, body, name):
    error = raises(cay.ApiError, instance.post, path, body, headers=key(name))
    equal((error.status, error.code), (422, "idempotency_mismatch"))


def events(instance, kind):
    return [e["data"] for e in instance.events() if e["type"] == kind]


@require("root")
def test_a_snapshot(instance):
    with instance.sandbox() as box:
        path = f"/v1/sandboxes/{box}/snapshots"
        for body, state in (({"files_only": True}, "sealed"), ({"files_only": True, "name": "keys-name"}, "durable")):
            name = f"snapshot {state}"
            taken = at_once(instance, path, body, name)
            equal(taken, [taken[0]] * 5)
            equal(taken[0]["state"], state)
            refused(instance, path, {**body, "files_only": False}, name)
            equal([s["id"] for s in instance.get(f"/v1/snapshots?sandbox={box}")["snapshots"]], [taken[0]["id"]])
            instance.call("DELETE", f"/v1/snapshots/{taken[0]['id']}")
            equal(instance.post(path, body, headers=key(name)), taken[0], "the answer stays what it was")


@require("root", "cgroup2")
def test_forks(instance):
    with instance.sandbox(name="keys") as box:
        instance.exec(box, "sleep", "1000")
        for body in ({}, {"count": 2}):
            name = f"forks {body}"
            made = at_once(instance, f"/v1/sandboxes/{box}/fork", body, name)
            equal(made, [made[0]] * 5)
            refused(instance, f"/v1/sandboxes/{box}/fork", {**body, "live": False}, name)
            ids = [one["id"] for one in made[0]["sandboxes"]]
            equal(len(ids), body.get("count", 1))
            equal({b["id"] for b in instance.get("/v1/sandboxes")["sandboxes"] if b.get("parent") == instance.get(f"/v1/sandboxes/{box}")["id"]}, set(ids))
            equal([e["children"] for e in events(instance, "sandbox.forked") if e["children"] == ids], [ids])
            for one in ids:
                instance.remove(one)


@require("root")
def test_a_rewind(instance):
    with instance.sandbox() as box:
        first = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        body = {"snapshot": first, "files_only": True}
        states = at_once(instance, f"/v1/sandboxes/{box}/rewind", body, "rewind")
        equal(states, [states[0]] * 5)
        equal(len([e for e in events(instance, "sandbox.rewound") if e["snapshot"] == first]), 1)
        instance.ok(box, "touch /var/tmp/later")
        equal(instance.post(f"/v1/sandboxes/{box}/rewind", body, headers=key("rewind")), states[0])
        instance.ok(box, "test -e /var/tmp/later")
        refused(instance, f"/v1/sandboxes/{box}/rewind", {"snapshot": first}, "rewind")


@require("root", "cgroup2")
def test_a_suspension_and_a_resume(instance):
    with instance.sandbox() as box:
        for verb, state in (("suspend", "suspended"), ("resume", "running")):
            answers = at_once(instance, f"/v1/sandboxes/{box}/{verb}", {}, verb)
            equal([a["state"] for a in answers], [state] * 5)
        equal(raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/resume", {}, headers=key("another")).code, "state")


@require("root")
def test_what_was_refused_may_be_asked_again(instance):
    """Nothing was done: the key stands for nothing."""
    with instance.sandbox(name="keys") as box:
        path = f"/v1/sandboxes/{box}/rewind"
        equal(raises(cay.ApiError, instance.post, path, {"snapshot": "none-such"}, headers=key("refused")).code, "not_found")
        first = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        instance.post(path, {"snapshot": first, "files_only": True}, headers=key("refused"))
        equal(raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"name": "keys"}, headers=key("refused fork")).code, "exists")
        [fork] = instance.post(f"/v1/sandboxes/{box}/fork", {"live": False}, headers=key("refused fork"))["sandboxes"]
        instance.remove(fork["id"])


@require("root")
def test_from_the_command_line(instance):
    with instance.sandbox(name="keys") as box:
        taken = [instance.json("snapshot", box, "--files-only", "--idempotency-key", "cli")["id"] for _ in range(2)]
        equal(taken[0], taken[1])
        made = [instance.cay("fork", taken[0], "-n", "2", "--idempotency-key", "cli fork").stdout.split() for _ in range(2)]
        equal(made[0], made[1])
        equal(len(set(made[0])), 2)
        for _ in range(2):
            instance.cay("rewind", box, taken[0], "--idempotency-key", "cli rewind")
            instance.ok(box, "echo x >> /var/tmp/rewound")
        equal(instance.ok(box, "cat /var/tmp/rewound"), "x\nx\n")
        contains(instance.cay("fork", taken[0], "--idempotency-key", "cli fork", want=125).stderr, "another request")
        # of a sandbox: the client asks for a snapshot of that name first
        of_box = [instance.cay("fork", "keys", "--files-only", "--idempotency-key", "cli fork of a sandbox").stdout.split() for _ in range(2)]
        equal(of_box[0], of_box[1])
        for source in ("keys", taken[0], "none-such"):
            contains(instance.cay("fork", source, "--idempotency-key", "cli fork of a sandbox", want=125).stderr, "another request")
        for name in (*made[0], *of_box[0]):
            instance.remove(name)


def ask_and_go(instance, path, body, name):
    """The request of a client whose connection breaks as soon as something runs for it."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: cay\r\nIdempotency-Key: {name}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as s:
        s.connect(instance.socket)
        s.sendall(head.encode() + text)
        instance.wait_event("exec.started")


@require("root")
def test_who_asks_again_for_the_end_of_a_command_waits_for_it(fresh):
    """The first answer reached nobody: that the command was running when its client went is not what the next request with that key is to hear."""
    with fresh.sandbox() as box, concurrent.futures.ThreadPoolExecutor(1) as pool:
        path, body = f"/v1/sandboxes/{box}/execs?wait_ms=60000", {"argv": ["sh", "-c", "until test -e /var/tmp/go; do sleep 0.05; done; exit 3"]}
        ask_and_go(fresh, path, body, "end")
        again = pool.submit(fresh.post, path, body, headers=key("end"))
        concurrent.futures.wait([again], 3)  # one that answers too early does it once it is seen that the first has gone
        fresh.ok(box, "touch /var/tmp/go")
        first = again.result()
        equal((first["step"], first["state"], first["status"] and first["status"]["code"]), (1, "ended", 3))
        equal(fresh.post(path, body, headers=key("end")), first)
        refused(fresh, path, {"argv": ["true"]}, "end")
