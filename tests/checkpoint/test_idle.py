# SPDX-License-Identifier: Apache-2.0
"""The idle policy: a sandbox that nothing happens in is suspended, and whoever wants something of it finds it as if it had run. T is tiny; facts are waited for, never times."""

import json
import os
import sys
import threading

from lib.case import contains, equal, raises, require
from lib.cay import ApiError
from lib.proxy import Upstream

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, put, rootless, start, wait_output  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
# goes on when it is asked, and does nothing otherwise
QUIET = """
import sys
state = {"seen": []}
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def of(instance, box, kind):
    return [e for e in instance.events(box) if e["type"] == kind]


def asleep(instance, box, times=1):
    """Until the policy has suspended it for the @times-th time."""
    seen = []
    instance.wait_event("sandbox.suspended", box, lambda e: seen.append(e) or len(seen) == times, timeout=60)
    equal({e["data"]["reason"] for e in seen}, {"idle"})


def settle(instance, box, **settings):
    return instance.call("PUT", f"/v1/sandboxes/{box}/settings", settings)


def quiet(instance, box):
    put(instance, box, "/tmp/quiet.py", QUIET)
    return start(instance, box, "/usr/bin/python3", "/tmp/quiet.py")


def sleeps_and_wakes(instance):
    with instance.sandbox() as box:
        run = quiet(instance, box)
        equal(settle(instance, box, idle_ms=100)["idle_ms"], 100)
        calls = [lambda: equal(instance.ok(box, "echo there"), "there\n"),
                 lambda: equal(ask(instance, box, run, "state['seen'].append(1) or len(state['seen'])"), "1\n"),
                 lambda: equal(instance.raw("GET", f"/v1/sandboxes/{box}/files?path=/tmp/quiet.py")[2].decode().strip(), QUIET.strip()),
                 lambda: equal(instance.raw("PUT", f"/v1/sandboxes/{box}/files?path=/tmp/new", b"new", {"Content-Type": "application/octet-stream"})[0], 204),
                 lambda: equal(wait_output(instance, box, run, b"1\n"), b"ready\n1\n"),
                 lambda: equal(instance.cay("exec", box, "--", "cat", "/tmp/new").stdout, "new")]
        for n, call in enumerate(calls, 1):
            asleep(instance, box, len(of(instance, box, "sandbox.resumed")) + 1)
            call()
            assert len(of(instance, box, "sandbox.resumed")) >= n
        equal(ask(instance, box, run, "state['seen']"), "[1]\n")
        settle(instance, box, idle_ms=0)


@require(*NEEDS)
def test_it_sleeps_and_wakes_for_each_kind_of_call(instance):
    sleeps_and_wakes(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_it_sleeps_and_wakes_rootless(tmp):
    with rootless(tmp) as instance:
        sleeps_and_wakes(instance)


@require(*NEEDS)
def test_two_callers_one_resume(instance):
    with instance.sandbox(idle_ms=100) as box:
        asleep(instance, box)
        settle(instance, box, idle_ms=0)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(instance.ok(box, "echo there"))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        equal(answers, ["there\n"] * 4)
        equal(len(of(instance, box, "sandbox.resumed")), 1)


@require(*NEEDS)
def test_what_works_or_is_watched_stays_awake(instance):
    """A job in the background that computes, and a client that is attached to a program that does not: beside them a third sandbox has fallen asleep more than once."""
    with instance.sandbox() as works, instance.sandbox() as watched, instance.sandbox() as other:
        instance.exec(works, "/bin/sh", "-c", "while :; do :; done")
        stream = instance.attach(watched, quiet(instance, watched))
        for box, idle_ms in ((works, 500), (watched, 500), (other, 100)):
            settle(instance, box, idle_ms=idle_ms)
        for n in range(1, 9):
            asleep(instance, other, n)
            instance.ok(other, "true")
        equal([len(of(instance, box, "sandbox.suspended")) for box in (works, watched)], [0, 0])
        stream.close()
        asleep(instance, watched)


# Receives what comes, and hardly uses a processor for it.
DOWNLOAD = """
import socket, sys
s = socket.create_connection(("drip.example", 80))
s.sendall(b"GET %s HTTP/1.1\\r\\nHost: drip.example\\r\\n\\r\\n")
s.recv(4096)
print("ready", flush=True)
while s.recv(4096): pass
"""


@require(*NEEDS)
def test_what_is_sent_through_the_gateway_keeps_it_awake(instance):
    """Two that are connected to the world: a byte comes now and then for one, none for the other, which falls asleep. When no more come the first one does too."""
    over = threading.Event()

    def drip(peer):
        head = peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n.")
        while not over.wait(0.05):
            if b"/flows" in head:
                peer.send(b".")
        peer.more()

    upstream = Upstream(drip)
    policy = json.dumps({"version": 1, "rules": [{"match": {"host": "drip.example"}, "action": "allow", "upstream": upstream.address, "private": True}]})
    with instance.sandbox(policy=policy) as flows, instance.sandbox(policy=policy) as still:
        for box, path in ((flows, "/flows"), (still, "/still")):
            put(instance, box, "/tmp/download.py", DOWNLOAD % path)
            start(instance, box, "/usr/bin/python3", "/tmp/download.py")
            settle(instance, box, idle_ms=1000)
        for n in (1, 2):
            asleep(instance, still, n)
            instance.ok(still, "true")
        equal(of(instance, flows, "sandbox.suspended"), [])
        over.set()
        asleep(instance, flows)
    upstream.close()


@require(*NEEDS)
def test_who_asked_for_it_decides(instance):
    """Suspended by hand it stays so, with a policy too; off by default."""
    with instance.sandbox(idle_ms=3600000) as box:
        equal(instance.post(f"/v1/sandboxes/{box}/suspend")["suspended_by"], "request")
        equal(raises(ApiError, instance.exec, box, "/bin/true").code, "state")
        instance.cay("resume", box)
        assert "suspended_by" not in instance.get(f"/v1/sandboxes/{box}")
        equal(instance.ok(box, "echo there"), "there\n")
        instance.cay("set", box, "--idle", "100ms")
        asleep_now = instance.wait_event("sandbox.suspended", box, lambda e: e["data"]["reason"] == "idle")
        equal(asleep_now["data"]["reason"], "idle")
        equal(instance.get(f"/v1/sandboxes/{box}")["suspended_by"], "idle")
        instance.cay("resume", box)
        instance.cay("set", box, "--idle", "off")
        equal(instance.get(f"/v1/sandboxes/{box}")["idle_ms"], 0)
        contains(instance.cay("set", box, "--idle", "soon", want=2, check=False).stderr, "duration")


@require(*NEEDS)
def test_what_is_refused_is_told_once(instance):
    refused = ("import os; os.mkfifo('/dev/shm/gone'); f = os.open('/dev/shm/gone', os.O_RDWR); os.unlink('/dev/shm/gone'); print('ready', flush=True)\n"
               "import sys\nfor l in sys.stdin: break")
    with instance.sandbox() as box, instance.sandbox() as other:
        run = instance.exec(box, "/usr/bin/python3", "-c", refused, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        settle(instance, box, idle_ms=100)
        equal(instance.wait_event("idle.refused", box)["data"]["error"]["code"], "unsupported")
        settle(instance, other, idle_ms=100)
        for n in range(1, 4):
            asleep(instance, other, n)
            instance.ok(other, "true")
        equal((len(of(instance, box, "idle.refused")), instance.get(f"/v1/sandboxes/{box}")["state"]), (1, "running"))
        instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin", b"end\n", {"Content-Type": "application/octet-stream"})
        equal(instance.wait(box, run)["status"], "exited")
        asleep(instance, box)


@require(*NEEDS)
def test_a_resume_that_fails_gives_the_reason(instance):
    with instance.sandbox(idle_ms=100) as box:
        asleep(instance, box)
        memory = instance.get(f"/v1/sandboxes/{box}")["memory"]["id"]
        path = os.path.join(instance.state, "pool", "memory", memory, "INDEX")
        with open(path, "rb") as f:
            whole = f.read()
        with open(path, "r+b") as f:
            f.write(bytes([whole[0] ^ 1]))
        error = raises(ApiError, instance.exec, box, "/bin/true")
        equal(error.code, "corrupt")
        contains(error.message, "resume sandbox")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "suspended")
        with open(path, "r+b") as f:
            f.write(whole)
        equal(instance.ok(box, "echo there"), "there\n")


@require(*NEEDS)
def test_it_outlives_the_server(fresh):
    """A server that comes finds who sleeps and wakes it; who was awake falls asleep under it."""
    with fresh.sandbox(idle_ms=100) as box, fresh.sandbox() as other:
        asleep(fresh, box)
        settle(fresh, other, idle_ms=3600000)
        for end in (fresh.stop, fresh.kill):
            end()
            fresh.start()
            equal(fresh.ok(box, "echo there"), "there\n")
            asleep(fresh, box, len(of(fresh, box, "sandbox.resumed")) + 1)
            equal(fresh.get(f"/v1/sandboxes/{other}")["idle_ms"], 3600000)
