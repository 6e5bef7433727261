# SPDX-License-Identifier: Apache-2.0
"""Budgets of a sandbox: exact under concurrency, across a killed gateway and a killed server."""

import json
import os
import signal

from lib.case import contains, equal
from lib.proxy import Upstream, echo

LOOP = """
for i in $(seq %d); do curl -s -o /dev/null -w '%%{http_code}\\n' --max-time 30 %s http://api.example/ & done; wait
"""


def policy(upstream, budget):
    return json.dumps({"version": 1, "rules": [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address,
                                                "private": True, "budget": budget}]})


def statuses(instance, box, count, options=""):
    done = instance.cay("exec", box, "--", "sh", "-c", LOOP % (count, options), timeout=100)
    return sorted(int(line) for line in done.stdout.split())


def kill_gateway(instance):
    killed = 0
    for pid in instance.own_processes():
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            if f.read().strip() == "cay-gateway":
                os.kill(pid, signal.SIGKILL)
                killed += 1
    equal(killed, 1, "gateways")


def heard(upstream):
    return upstream.text().count(b"HTTP/1.1\r\n")


def test_requests_at_once_are_counted_exactly(instance):
    upstream = Upstream(echo)
    with instance.sandbox(policy=policy(upstream, {"requests": {"max": 7, "per": "1h"}})) as box:
        equal(statuses(instance, box, 20), [200] * 7 + [429] * 13)
        equal(heard(upstream), 7)
        event = instance.wait_event("net.exchange", box, lambda e: e["data"].get("status") == 429)
        contains(event["data"]["reason"], "budget")
    upstream.close()


def test_a_sum_of_amounts(instance):
    upstream = Upstream(echo)
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "amount", "max": 100, "per": "1d"}})) as box:
        equal(statuses(instance, box, 9, """-H 'Content-Type: application/json' -d '{"amount": 30.5}'"""), [200] * 3 + [429] * 6)
        equal(statuses(instance, box, 1, """--json '{"amount": 8.5}'"""), [200])
        equal(statuses(instance, box, 1, """--json '{"amount": 0.01}'"""), [429])
        equal(statuses(instance, box, 1, """-d '{"amount": 0}'"""), [429])  # says that it is a form
        equal(statuses(instance, box, 2, """-d 'amount=1'"""), [429, 429])
        equal(heard(upstream), 4)
    upstream.close()


def counted(answer):
    """A model's API: tells what it used, as JSON or at the end of a stream of events."""
    def handler(peer):
        while (head := peer.head()) is not None:
            peer.body(head)
            assert b"accept-encoding: identity" in head.lower(), head
            kind = b"text/event-stream" if answer.startswith(b"event") else b"application/json"
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n" % (kind, len(answer)) + answer)
    return handler


def test_what_answers_say_was_used(instance):
    stream = (b'event: a\ndata: {"type": "start", "usage": {"output_tokens": 1}}\n\ndata: not json\n\n' + b"data: {}\n" * 1000
              + b'data: {"type": "delta", "usage": {"output_tokens": 40}}\n\ndata: [DONE]\n\n')
    for answer in (b'{"usage": {"output_tokens": 40}}', stream):
        upstream = Upstream(counted(answer))
        with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 100}})) as box:
            got = [statuses(instance, box, 1)[0] for _ in range(5)]
            equal(got, [200, 200, 200, 429, 429], answer[:20])
        upstream.close()


def test_a_killed_gateway_gives_nothing_for_free(instance):
    upstream = Upstream(echo)
    with instance.sandbox(policy=policy(upstream, {"requests": {"max": 40, "per": "1h"}})) as box:
        passed = 0
        for _ in range(4):
            passed += statuses(instance, box, 5).count(200)
            kill_gateway(instance)
        passed += statuses(instance, box, 50).count(200)
        assert passed <= 40 and heard(upstream) <= 40, (passed, heard(upstream))
        assert passed >= 40 - 4 * 4, passed  # a killed gateway loses less than its lease, a sixteenth
    upstream.close()


def test_a_fork_has_its_own_rest(instance):
    upstream = Upstream(echo)
    with instance.sandbox(policy=policy(upstream, {"requests": {"max": 16}})) as box:
        equal(statuses(instance, box, 10).count(200), 10)
        child = instance.json("fork", box)["sandboxes"][0]["id"]
        try:
            equal(statuses(instance, child, 10).count(200), 6)
            equal(statuses(instance, box, 10).count(200), 6)
        finally:
            instance.remove(child)
    upstream.close()


def test_a_rewind_gives_nothing_back(instance):
    """Files go back to the snapshot, what was spent since does not; neither does going back twice."""
    upstream = Upstream(echo)
    with instance.sandbox(policy=policy(upstream, {"requests": {"max": 5}})) as box:
        equal(statuses(instance, box, 2), [200] * 2)
        instance.cay("snapshot", box, "--name", f"b-{box[:6]}")
        equal(statuses(instance, box, 1), [200])
        for left in (2, 0, 0):
            instance.cay("rewind", box, f"b-{box[:6]}")
            equal(statuses(instance, box, 3), [200] * left + [429] * (3 - left))
        equal(heard(upstream), 5)
    upstream.close()
