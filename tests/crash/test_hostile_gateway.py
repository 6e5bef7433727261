# SPDX-License-Identifier: Apache-2.0
"""A gateway that was taken over: what it says to the server is untrusted. It may spoil what it has to tell of its own sandbox's network, and nothing else."""

import contextlib
import json
import os
import random
import socket
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from lib.between import EVENT, OBJECT, Between, send_frame  # noqa: E402
from lib.case import equal, require  # noqa: E402

TIMEOUT = 120
POLICY = "version: 1\nrules:\n  - {name: web, match: {host: web.example}, action: allow}\n"
SEED, FRAMES = int(os.environ.get("CAY_TEST_SEED", "1")), 2000


class Taken:
    """A sandbox whose gateway says what a test wants; @server: the process that has to bear it."""

    def __init__(self, instance):
        self.instance, self.there, self.number = instance, threading.Event(), 1000
        self.box = instance.post("/v1/sandboxes", {"policy": POLICY})["id"]
        self.run = instance.exec(self.box, "sleep", "1000")
        instance.ok(self.box, "getent hosts denied.example; true")
        instance.wait_event("gateway.started", self.box)
        instance.kill()

    def hear(self, connection, boot):
        self.connection, self.boot = connection, boot
        self.there.set()

    @contextlib.contextmanager
    def speaking(self):
        with Between(self.instance, self.box, gateway=self.hear):
            self.instance.start()
            assert self.there.wait(60), "the gateway says no hello"
            yield self
            self.still_answers()
            self.instance.kill()
        self.instance.start()
        self.still_answers()

    def event(self, kind, data, **more):
        self.number += 1
        data = {"id": f"{self.boot}-{self.number}", **data} if isinstance(data, dict) else data
        self.send(EVENT, {"n": self.number, "type": kind, "time_ns": 1795900000000000000, "data": data, **more})

    def send(self, kind, said):
        send_frame(self.connection, kind, 0, said if isinstance(said, bytes) else json.dumps(said).encode())

    def told(self):
        """An event of ours that came after all that was sent before is in the log."""
        word = os.urandom(8).hex()
        self.event("net.lookup", {"name": word, "code": 0, "records": []})
        self.instance.wait_event("net.lookup", self.box, lambda e: e["data"]["name"] == word)

    def still_answers(self):
        """The server is there, knows what runs, and starts more."""
        assert self.instance.alive(), self.instance.crash()
        equal(self.instance.get(f"/v1/sandboxes/{self.box}/execs/{self.run['id']}")["state"], "running")
        equal(self.instance.ok(self.box, "echo on"), "on\n")


@require("root", "cgroup2")
def test_it_forges_no_events_of_others(fresh):
    """How a command ended, what was removed, which policy holds: these are not its own to tell."""
    with Taken(fresh).speaking() as gateway:
        for kind, data in (("exec.ended", {"status": "exited", "code": 0}), ("sandbox.removed", {"name": "x"}), ("policy.changed", {"version": 9}),
                           ("files.applied", {"to": "/"}), ("process.exec", {"pid": 1, "argv": ["forged"]}), ("gateway.started", {"pid": 1}),
                           ("secret.set", {"name": "x"}), ("events.lost", {"n": 1}), ("limit.hit", {"limit": "memory"})):
            gateway.event(kind, data, exec=gateway.run["id"])
        gateway.told()
        forged = [e["type"] for e in fresh.events(gateway.box) if str(e["data"].get("id", "")).startswith(gateway.boot) and not e["type"].startswith("net.")]
        equal(forged, [])


def nested(levels, inner="1", opening='{"a":', closing="}"):
    return opening * levels + inner + closing * levels


@require("root", "cgroup2")
def test_what_it_nests_overflows_nothing(fresh):
    """What is read again on the small stacks of those who wait: its state, events, mail; also by the next server."""
    with Taken(fresh).speaking() as gateway:
        for levels in (40, 1000, 2000):
            deep = nested(levels)
            gateway.send(OBJECT, f'{{"number": 1, "state": {{"budgets": {deep}}}}}'.encode())
            for kind in ("net.denied", "net.mail", "net.exchange"):
                gateway.number += 1
                more = f', "mail": {deep}' if kind == "net.mail" else ""
                gateway.send(EVENT, f'{{"n": {gateway.number}, "type": "{kind}", "data": {{"id": "{gateway.boot}-{gateway.number}", "x": {deep}{more}}}}}'.encode())
            gateway.told()
            fresh.get(f"/v1/sandboxes/{gateway.box}/mails")
            fresh.events(gateway.box)
            name = fresh.post(f"/v1/sandboxes/{gateway.box}/snapshots", {"files_only": True})["id"]
            fresh.call("DELETE", f"/v1/snapshots/{name}")


WORDS = ["n", "type", "time_ns", "data", "exec", "id", "hello", "boot", "state", "number", "mail", "kept", "count", "host", "port", "what", "protocol",
         "outcome", "reason", "error", "net.mail", "net.denied", "net.exchange", "net.connection", "secret.misplaced", "exec.ended", "failed", "", "\u202e", "a" * 300]


def drawn(random, taken, depth=0):
    """Any value, of words that the server looks for more often than not."""
    kind = random.randrange(9 if depth < 4 else 6)
    if kind >= 6:
        some = range(random.randrange(6))
        return [drawn(random, taken, depth + 1) for _ in some] if kind == 6 else {random.choice(WORDS): drawn(random, taken, depth + 1) for _ in some}
    return random.choice([None, True, False, random.choice(WORDS), random.choice([0, 1, -1, 1 << 31, (1 << 63) - 1, -(1 << 63)]), 0.5, 1e308,
                          taken.boot, f"{taken.boot}-{random.choice([0, 1, taken.number, (1 << 64) - 1])}", taken.run["id"], taken.box])


@require("root", "cgroup2")
def test_what_it_makes_up_breaks_nothing(fresh):
    """Frames that are drawn (CAY_TEST_SEED): other kinds of values than are expected, members left out, numbers at their ends, bytes that are no JSON."""
    with Taken(fresh).speaking() as taken:
        rng = random.Random(SEED)
        taken.connection.settimeout(60)
        for _ in range(FRAMES):
            said = {member: drawn(rng, taken) for member in rng.sample(WORDS[:12], rng.randrange(8))}
            if rng.random() < 0.7:
                taken.number += 1
                said |= {"n": taken.number, "type": rng.choice(["net.mail", "net.denied", "net.exchange", "net.connection", "secret.misplaced"])}
            text = json.dumps(said).encode()
            if rng.random() < 0.1:
                at = rng.randrange(len(text))
                text = text[:at] + bytes([rng.randrange(256)]) + text[at + rng.randrange(3):]
            try:
                send_frame(taken.connection, rng.choice([EVENT, EVENT, OBJECT, 2]), 0, text)
            except (BrokenPipeError, ConnectionResetError, socket.timeout):
                break  # it does not listen any more
        taken.still_answers()
        fresh.events(taken.box)
        fresh.get(f"/v1/sandboxes/{taken.box}/mails")
        name = fresh.post(f"/v1/sandboxes/{taken.box}/snapshots", {"files_only": True})["id"]
        fresh.call("DELETE", f"/v1/snapshots/{name}")
