# SPDX-License-Identifier: Apache-2.0
"""Budgets of a sandbox: exact under concurrency, across a killed gateway and a killed server."""

import json
import os
import signal
import threading

import brotli

from lib.case import contains, equal
from lib.cay import wait_until
from lib.pace import patience
from lib.proxy import Upstream, echo, fixed

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
    os.kill(gateway_of(instance), signal.SIGKILL)


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
        equal(statuses(instance, box, 1, """--json '{"amount": "8.5"}'"""), [200])
        equal(statuses(instance, box, 1, f"""--json '{{"amount": "{'0' * 70}"}}'"""), [429])  # nobody writes an amount so
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
    long = b'{"data": "' + b"x" * (6 << 20) + b'", "usage": {"output_tokens": 40}}'
    for answer in (b'{"usage": {"output_tokens": 40}}', long, stream):
        upstream = Upstream(counted(answer))
        with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 100}})) as box:
            got = [statuses(instance, box, 1)[0] for _ in range(5)]
            equal(got, [200, 200, 200, 429, 429], str(answer[:20]))
        upstream.close()


def streamed(*events):
    return b"".join(b"event: %s\ndata: %s\n\n" % (json.loads(e).get("type", "x").encode(), e) for e in events)


STREAMS = {
    "messages": ("/usage/output_tokens", streamed(b'{"type": "message_start", "message": {"usage": {"input_tokens": 25, "output_tokens": 1}}}',
                                                   b'{"type": "content_block_delta", "delta": {"text": "x"}}',
                                                   b'{"type": "message_delta", "usage": {"output_tokens": 40}}', b'{"type": "message_stop"}')),
    "messages, what went in": ("/usage/input_tokens", streamed(b'{"type": "message_start", "message": {"usage": {"input_tokens": 40, "output_tokens": 1}}}',
                                                                b'{"type": "message_delta", "usage": {"output_tokens": 15}}')),
    "OpenAI, chat": ("/usage/completion_tokens", streamed(b'{"choices": [{}], "usage": null}', b'{"choices": [], "usage": {"completion_tokens": 40}}',
                                                          b'{"choices": [], "usage": null}') + b"data: [DONE]\n\n"),
    "a name with a slash and a tilde": ("/use~1d/tokens~0", streamed(b'{"use/d": {"tokens~": 40}}')),
    "whatever the name": ("/*/tokens", streamed(b'{"text": {"tokens": 30}, "image": {"tokens": 2}}', b'{"message": {"tokens": 1}}', b'{"text": {"tokens": 37}, "x": 5}')),
    "much beside it": ("/usage/tokens", streamed(*(b'{"x%d": "%s", "usage": {"tokens": %d, "more": ["%s"]}}' % (i, b"x" * 50000, i, b"y" * 50000) for i in range(1, 41)))),
    "OpenAI, responses": ("/usage/output_tokens", streamed(b'{"type": "response.created", "response": {"usage": null}}',
                                                           b'{"type": "response.completed", "response": {"usage": {"output_tokens": 40}}}').replace(b"\n", b"\r\n"))}


def test_streams_of_model_apis(instance):
    for name, (field, stream) in STREAMS.items():
        upstream = Upstream(counted(stream))
        with instance.sandbox(policy=policy(upstream, {"sum": {"field": field, "of": "response", "max": 100}})) as box:
            equal([statuses(instance, box, 1)[0] for _ in range(5)], [200, 200, 200, 429, 429], name)
        upstream.close()


def test_an_answer_that_does_not_say_what_it_used(instance):
    """It counts as the rule says, and its event tells; errors of the host count nothing."""
    upstream = Upstream(counted(b'event: x\ndata: {"choices": []}\n\ndata: [DONE]\n\n'))
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/completion_tokens", "of": "response", "max": 100, "missing": 50}})) as box:
        equal([statuses(instance, box, 1)[0] for _ in range(3)], [200, 200, 429])
        event = instance.wait_event("net.exchange", box, lambda e: e["data"].get("status") == 200)
        equal(event["data"]["uncounted"], True)
    upstream.close()

    def broken(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 500 Broken\r\nContent-Length: 0\r\n\r\n")

    upstream = Upstream(broken)
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/completion_tokens", "of": "response", "max": 100, "missing": 50}})) as box:
        equal([statuses(instance, box, 1)[0] for _ in range(4)], [500] * 4)
    upstream.close()


def test_tokens_at_once_and_across_killed_gateways(instance):
    """What an answer used is written down before the sandbox has its end: a gateway that dies then forgets nothing."""
    upstream = Upstream(counted(STREAMS["messages"][1]))
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 400}})) as box:
        for _ in range(3):
            equal(statuses(instance, box, 1), [200])
            kill_gateway(instance)
        equal(statuses(instance, box, 6), [200] * 6)
        kill_gateway(instance)
        equal([statuses(instance, box, 1)[0] for _ in range(3)], [200, 429, 429])
    upstream.close()


def metered(used, gate=None):
    """A model's API whose answers say that @used tokens went into each; the most that were asked at once is in the list that comes with it. @gate: answers wait for it."""
    lock, now, most = threading.Lock(), [0], [0]
    body = json.dumps({"usage": {"output_tokens": used}}).encode()

    def handler(peer):
        while (head := peer.head()) is not None:
            peer.body(head)
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            if gate:
                assert gate.wait(patience(60))
            with lock:
                now[0] -= 1
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return handler, most


AT_ONCE = """
import socket
socks = [socket.create_connection(("api.example", 80)) for _ in range(20)]
for sock in socks:
    sock.sendall(b"GET / HTTP/1.1\\r\\nHost: api.example\\r\\nConnection: close\\r\\n\\r\\n")
open("/tmp/sent", "w").close()
print(*(sock.recv(12)[9:].decode() for sock in socks))
"""


def test_a_sum_over_answers_is_exact_for_requests_at_once(instance):
    """Who would not fit beside the others waits for them: twenty at once use what twenty one after the other would."""
    tokens = {"field": "/usage/output_tokens", "of": "response"}
    for bound, want in (({"max": 100}, 3),  # the last one goes beyond it
                        ({"max": 100, "each": 40}, 2),  # nobody does
                        ({"max": 120, "each": 60}, 2)):  # 40 are left, less than one could bring
        gate, got = threading.Event(), []
        handler, _ = metered(40, gate)
        upstream = Upstream(handler)
        with instance.sandbox(policy=policy(upstream, {"sum": {**tokens, **bound}})) as box:
            instance.ok(box, "mkfifo /tmp/sent")
            client = threading.Thread(target=lambda: got.append(instance.cay("exec", box, "--", "/usr/bin/python3", "-c", AT_ONCE, timeout=100)))
            client.start()
            try:
                instance.ok(box, "cat /tmp/sent")
            finally:
                gate.set()
                client.join()
            equal(sorted(map(int, got[0].stdout.split())), [200] * want + [429] * (20 - want), str(bound))
            equal(heard(upstream), want)
        upstream.close()


def in_thread(function, *args):
    """Start it; the list that will hold what it returns, and the thread."""
    got = []
    thread = threading.Thread(target=lambda: got.append(function(*args)))
    thread.start()
    return got, thread


def test_who_waits_for_others_goes_on_when_the_window_ends(instance):
    gate = threading.Event()
    body = b'{"usage": {"output_tokens": 40}}'

    def handler(peer):
        while (head := peer.head()) is not None:
            if b"/slow" in head:
                assert gate.wait(patience(120))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def get(path):
        return int(instance.cay("exec", box, "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", f"http://api.example/{path}", timeout=150).stdout)

    upstream = Upstream(handler)
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 100, "each": 40, "per": "5s"}})) as box:
        try:
            equal(get("now"), 200)
            slow, thread = in_thread(get, "slow")
            wait_until(lambda: heard(upstream) == 2, 60, "the slow one is asked")
            equal(get("now"), 200)  # 40 of 100 are spent, 40 held: there is room for it in the next window
        finally:
            gate.set()
            thread.join()
        equal(slow, [200])
    upstream.close()


def resident(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def test_who_waits_for_a_budget_gives_way_to_who_waits_for_room(instance):
    """Large bodies that wait for what a budget holds for another answer do not stop the requests of other rules: as many as it takes are told to come again, the others wait on."""
    gate = threading.Event()
    body = b'{"usage": {"output_tokens": 10}}'

    def taken(gate):
        def handler(peer):
            while (head := peer.head()) is not None:
                left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(peer.rest)
                peer.rest = b""
                while left > 0:
                    left -= len(peer.sock.recv(1 << 20))
                assert gate is None or gate.wait(patience(120))
                peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        return handler

    gated, free = Upstream(taken(gate)), Upstream(taken(None))
    rules = [{"name": name, "match": {"host": f"{name}.example", "json": {"model": "m"}}, "action": "allow", "upstream": upstream.address, "private": True, **more}
             for name, upstream, more in (("counted", gated, {"budget": {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 100, "each": 60}}}), ("other", free, {}))]

    def post(host, body):
        return int(instance.cay("exec", box, "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--json", f"@/tmp/{body}", f"http://{host}.example/", timeout=150).stdout)

    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        instance.ok(box, """(printf '{"model": "m", "x": "'; head -c 30M /dev/zero | tr '\\0' x; printf '"}') > /tmp/large; echo '{"model": "m"}' > /tmp/small""")
        try:
            threads = [in_thread(post, "counted", "small")]
            wait_until(lambda: heard(gated) == 1, 60, "one is open")
            gateway = instance.wait_event("gateway.started", box)["data"]["pid"]
            before = resident(gateway)
            threads += [in_thread(post, "counted", "large") for _ in range(3)]
            wait_until(lambda: resident(gateway) - before > 88 << 10, 60, "three are held")
            equal(post("other", "large"), 200)
            equal(heard(gated), 1)
        finally:
            gate.set()
            for _, thread in threads:
                thread.join()
        equal(sorted(got[0] for got, _ in threads), [200, 200, 200, 503])
    gated.close()
    free.close()


def test_requests_go_side_by_side_where_the_sum_has_room(instance):
    """What is known of answers is held for each, no more: eight that fit are asked at once."""
    gate = threading.Event()
    handler, most = metered(40, gate)
    upstream, got = Upstream(handler), []
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 800, "each": 100}})) as box:
        client = threading.Thread(target=lambda: got.extend(statuses(instance, box, 8)))
        client.start()
        try:
            deadline = threading.Event()
            for _ in range(int(patience(30) * 50)):
                if most[0] == 8:
                    break
                deadline.wait(0.02)
        finally:
            gate.set()
            client.join()
        equal((got, most), ([200] * 8, [8]))
    upstream.close()


def test_an_answer_whose_gateway_is_killed_is_paid(instance):
    """What was held for it was written down before the request went out."""
    asked = threading.Event()

    def endless(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")
            asked.set()
            peer.more()
            return

    upstream = Upstream(endless)
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 100, "each": 100}})) as box:
        client = threading.Thread(target=statuses, args=(instance, box, 1))
        client.start()
        assert asked.wait(patience(60))
        kill_gateway(instance)
        client.join()
        equal(statuses(instance, box, 1), [429])
    upstream.close()
    equal(len(upstream.heard), 1)


def test_who_leaves_before_the_end_pays_it(instance):
    """The sandbox goes away when it has all but the account: the gateway listens on."""
    gone = threading.Event()

    def slow(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {}\n\n")
            assert gone.wait(patience(60))
            for _ in range(100):  # until the gateway has seen that nobody listens
                peer.send(b"data: {}\n\n" * 1000)
            peer.send(STREAMS["messages"][1])
            return

    upstream = Upstream(slow)
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 40}})) as box:
        instance.cay("exec", box, "--", "bash", "-c", "exec 3<>/dev/tcp/api.example/80; printf 'GET / HTTP/1.1\\r\\nHost: api.example\\r\\n\\r\\n' >&3; head -c 20 <&3", timeout=60)
        gone.set()
        instance.wait_event("net.exchange", box, lambda e: e["data"]["outcome"] == "failed")
        equal(statuses(instance, box, 1), [429])
    upstream.close()


def while_the_policy_changes(instance, before, after):
    """An answer that is under way when the budget @before becomes @after comes whole; the next request is over the new one."""
    asked, go = threading.Event(), threading.Event()
    begin, rest = b"data: {}\n\n", STREAMS["messages"][1]

    def slow(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + begin)
            asked.set()
            assert go.wait(patience(60))
            peer.send(rest)
            return

    upstream, got = Upstream(slow), []
    with instance.sandbox(policy=policy(upstream, before)) as box:
        client = threading.Thread(target=lambda: got.extend(body_sizes(instance, box, 1)))
        client.start()
        try:
            assert asked.wait(patience(60))
            instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": policy(upstream, after(len(begin + rest)))})
        finally:
            go.set()
            client.join()
        equal(got, [(200, len(begin + rest), 0)])
        equal(statuses(instance, box, 1), [429])
    upstream.close()


def test_bytes_while_the_policy_changes(instance):
    while_the_policy_changes(instance, {"bytes": {"max": 100000}}, lambda size: {"bytes": {"max": size}})


def test_tokens_while_the_policy_changes(instance):
    tokens = {"field": "/usage/output_tokens", "of": "response"}
    while_the_policy_changes(instance, {"sum": {**tokens, "max": 100}}, lambda _: {"sum": {**tokens, "max": 40}})


def body_sizes(instance, box, count, options=""):
    """(status, bytes that came, curl's exit status) of so many requests at once, sorted."""
    script = ("for i in $(seq %d); do (said=$(curl -s -o /dev/null -w '%%{http_code} %%{size_download}' --max-time 60 %s http://api.example/); echo $said $?) & done; wait"
              % (count, options))
    done = instance.cay("exec", box, "--", "sh", "-c", script, timeout=100)
    return sorted(tuple(map(int, line.split())) for line in done.stdout.splitlines())


def test_a_stream_is_cut_where_the_bytes_end(instance):
    """Answers of any length: so many bytes as the budget has, to the last one, and an event."""
    def endless(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
            for _ in range(1000):
                peer.send(b"x" * 1000)
            return

    upstream = Upstream(endless)
    with instance.sandbox(policy=policy(upstream, {"bytes": {"max": 123457, "per": "1h"}})) as box:
        equal([got[:2] for got in body_sizes(instance, box, 1)], [(200, 123457)])
        event = instance.wait_event("net.exchange", box, lambda e: True)
        equal((event["data"]["outcome"], event["data"]["response"]["bytes"]), ("denied", 123457))
        contains(event["data"]["reason"], "cut off")
        equal(statuses(instance, box, 1), [429])
    with instance.sandbox(policy=policy(upstream, {"bytes": {"max": 300001}})) as box:
        got = body_sizes(instance, box, 8)
        equal(sum(size for status, size, _ in got if status == 200), 300001, "of eight at once")
        kill_gateway(instance)
        equal(statuses(instance, box, 1), [429])
    upstream.close()


def test_what_is_sent_is_cut_where_the_bytes_end(instance):
    """A length that is said is judged by what is said; one that is not is counted as it goes."""
    upstream = Upstream(lambda peer: (peer.head(), [None for _ in iter(peer.more, False)]))
    with instance.sandbox(policy=policy(upstream, {"bytes": {"max": 100000}})) as box:
        instance.cay("exec", box, "--", "sh", "-c", "head -c 100001 /dev/zero | tr '\\0' z > /tmp/large")
        equal(statuses(instance, box, 1, "-H Expect: --data-binary @/tmp/large"), [429])
        equal(upstream.heard, [])
        equal(statuses(instance, box, 1, "-H Expect: -H 'Transfer-Encoding: chunked' --data-binary @/tmp/large"), [429])
        event = instance.wait_event("net.exchange", box, lambda e: "cut off" in e["data"].get("reason", ""))
        equal(event["data"]["outcome"], "denied")
        equal(statuses(instance, box, 1), [429])
    upstream.close()
    equal(upstream.text().partition(b"\r\n\r\n")[2].count(b"z"), 100000)


def test_a_websocket_is_cut_where_the_bytes_end(instance):
    agreed = (b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
              b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")

    def talks(peer):
        peer.head()
        peer.send(agreed)
        for _ in range(100):
            peer.send(b"\x82\x7e\x03\xe8" + b"w" * 1000)

    upstream = Upstream(talks)
    script = ("exec 3<>/dev/tcp/api.example/80; printf 'GET / HTTP/1.1\\r\\nHost: api.example\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
              "Sec-WebSocket-Version: 13\\r\\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n' >&3; cat <&3 | tr -cd w | wc -c")
    with instance.sandbox(policy=policy(upstream, {"bytes": {"max": 50000}})) as box:
        got = int(instance.cay("exec", box, "--", "bash", "-c", script, timeout=60, check=False).stdout)
        assert got <= 50000 + 1, got  # the head has one, too
        event = instance.wait_event("net.exchange", box, lambda e: True)
        equal(event["data"]["outcome"], "denied")
        contains(event["data"]["reason"], "cut off")
    upstream.close()


def gateway_of(instance):
    gateway, = instance.programs_named("cay-gateway")
    return gateway


def test_answers_that_are_compressed_unasked_are_counted_in_bounded_memory(instance):
    """Each needs a window of 16 MiB to be read: who finds no room for it waits for the others."""
    at_once, begun = 12, threading.Barrier(12)
    packed = brotli.compress(json.dumps({"x": os.urandom(9 << 20).hex(), "usage": {"output_tokens": 5}}).encode(), quality=1, lgwin=24)

    def answer(peer):
        peer.head()
        begun.wait(patience(60))
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: br\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed)

    upstream = Upstream(answer)
    with instance.sandbox(policy=policy(upstream, {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 5 * at_once, "each": 5, "missing": 1000}})) as box:
        equal(statuses(instance, box, at_once, "--max-time 100"), [200] * at_once)
        with open(f"/proc/{gateway_of(instance)}/status", encoding="ascii") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
        print(f"peak memory {peak} KiB")
        assert peak < 160 << 10, f"peak memory {peak} KiB"
        for number in range(at_once):
            event = instance.wait_event("net.exchange", box, lambda e, number=number: e["data"]["exchange"] == number + 1)
            equal(event["data"].get("uncounted"), None, str(event))
        equal(statuses(instance, box, 1), [429])
    upstream.close()


def test_raw_connections_have_budgets(instance):
    upstream = Upstream(lambda peer: [peer.send(b"x" * 1000) for _ in range(1000)])
    document = {"version": 1, "rules": [{"name": "raw", "match": {"host": "raw.example", "port": 1234, "transport": "tcp"}, "action": "allow",
                                         "upstream": upstream.address, "private": True, "budget": {"bytes": {"max": 70001}, "requests": {"max": 3}}}]}
    script = "exec 3<>/dev/tcp/raw.example/1234; cat <&3 | wc -c"
    with instance.sandbox(policy=json.dumps(document)) as box:
        def read():
            return instance.cay("exec", box, "--", "bash", "-c", script, timeout=60, check=False).stdout.strip()
        equal(read(), "70001")
        event = instance.wait_event("net.connection", box, lambda e: True)
        equal((event["data"]["end"], event["data"]["received"]), ("budget", 70001))
        equal(read(), "0")
        failed = instance.wait_event("net.connection", box, lambda e: "error" in e["data"])
        contains(failed["data"]["error"], "budget of rule 'raw'")
    upstream.close()
    equal(len(upstream.heard), 1)


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


def test_another_policy_while_no_gateway_runs(instance, tmp):
    """What was spent stays with the budget that it was spent of."""
    upstream, path = Upstream(fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")), os.path.join(tmp, "policy.json")
    upload = "--data-binary @/root/upload"
    with instance.sandbox(policy=policy(upstream, {"bytes": {"max": "1M"}})) as box:
        instance.ok(box, "head -c 900000 /dev/zero >/root/upload")
        equal(statuses(instance, box, 1, upload), [200])
        for budget, asked in (({"requests": {"max": 2}, "bytes": {"max": "1M"}}, (("", 200), ("", 200), ("", 429))), ({"bytes": {"max": "1M"}}, ((upload, 429), ("", 200)))):
            instance.cay("stop", box)
            with open(path, "w", encoding="utf-8") as f:
                f.write(policy(upstream, budget))
            instance.cay("policy", "set", box, path)
            instance.cay("start", box)
            equal([statuses(instance, box, 1, options)[0] for options, _ in asked], [status for _, status in asked], str(budget))
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
