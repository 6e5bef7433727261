# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 through the gateway's core: what is refused, what is decided, and that what is forwarded arrives as it was meant."""

import json
import os
import socket
import tempfile
import threading
import time

from lib.case import contains, equal
from lib.cay import wait_until
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, echo, fixed, head, parse, read_all

QUICK = True
ALLOW = [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]


class Setup:
    """An upstream and a proxy that may reach it as api.example, on both ports."""

    def __init__(self, tmp, handler=echo, rules=None, tls=False, **config):
        pem, root = certificate(os.path.join(tmp, "upstream"), "api.example") if tls else (None, None)
        self.upstream = Upstream(handler, pem)
        if root:
            config["extra"] = root
        self.proxy = Proxy(tmp, rules or ALLOW, {"api.example": self.upstream.address}, **config)

    def __enter__(self):
        return self.proxy, self.upstream

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


REFUSED = {
    "bare LF": b"GET / HTTP/1.1\nHost: api.example\n\n\r\n\r\n",
    "bare CR in a value": b"GET / HTTP/1.1\r\nHost: api.example\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
    "NUL": b"GET / HTTP/1.1\r\nHost: api.example\0.evil\r\n\r\n",
    "folded line": b"GET / HTTP/1.1\r\nHost: api.example\r\nX: a\r\n b\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost : api.example\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: api.example\r\nHost: evil.example\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\nX: y\r\n\r\n",
    "Content-Length and Transfer-Encoding": b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two Content-Lengths": b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "signed length": b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Length: +4\r\n\r\nabcd",
    "xchunked": b"POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "gzip, chunked": b"POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "name that is no token": b"GET / HTTP/1.1\r\nHost: api.example\r\nX(y): z\r\n\r\n",
    "control byte": b"GET / HTTP/1.1\r\nHost: api.example\r\nX: \x01\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: api.example\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "fragment": b"GET /a#b HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "unknown expectation": b"GET / HTTP/1.1\r\nHost: api.example\r\nExpect: 200-ok\r\n\r\n",
    "user information": b"GET / HTTP/1.1\r\nHost: api.example@evil.example\r\n\r\n",
    "absolute target for another host": b"GET http://evil.example/ HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "hidden dot segments": b"GET /x/..%2fadmin HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "backslash": b"GET /x\\..\\admin HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "encoded NUL": b"GET /%00 HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "bad escape in the query": b"GET /?a=%2 HTTP/1.1\r\nHost: api.example\r\n\r\n",
}


def test_what_two_readers_would_read_differently_is_refused(tmp):
    with Setup(tmp) as (proxy, upstream):
        for name, data in REFUSED.items():
            status, _ = parse(proxy.send(data, end=True))
            equal(status, 400, name)
        equal(upstream.heard, [], "what the upstream heard")
        events = proxy.events("net.exchange", len(REFUSED))
        equal({e["outcome"] for e in events}, {"refused"})
        equal(proxy.get("api.example")[0], 200)  # the way was open all the time


def test_broken_chunks_never_become_a_second_request(tmp):
    head = b"POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    bodies = [b"5\nhello\r\n0\r\n\r\n", b"5\r\nhelloX0\r\n\r\n", b"-1\r\n\r\n", b"0x5\r\nhello\r\n0\r\n\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
              b"5;a=\nb\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffff1\r\n", b"0\r\nA : b\r\n\r\n", b"0\r\n folded\r\n\r\n"]
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: api.example\r\n\r\n"
    with Setup(tmp) as (proxy, upstream):
        for body in bodies:
            answers = proxy.send(head + body + smuggled)
            equal(b"/smuggled" in answers, False, str(body))
        equal(b"/smuggled" in upstream.text(), False)
        answers = proxy.send(head + b"5;a=b\r\nhello\r\n0\r\n\r\n" + smuggled.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        equal(answers.count(b"HTTP/1.1 200"), 2)


def test_denied_requests_are_heard_by_nobody(tmp):
    rules = [{"name": "no-writes", "match": {"host": "api.example", "method": ["POST"]}, "action": "deny", "deny": {"status": 451}},
             {"name": "broken", "match": {"host": "api.example", "path": "/broken"}, "action": "deny", "deny": {"with": "reset"}},
             {"name": "secret", "match": {"host": "api.example", "path": "/admin/**"}, "action": "deny"}, *ALLOW]
    with Setup(tmp, rules=rules) as (proxy, upstream):
        equal(proxy.get("api.example", method=b"POST", body=b"x")[0], 451)
        equal(proxy.get("api.example", "/broken")[0], 0)
        for path in ("/admin/x", "//admin/x", "/./admin/x", "/a/../admin/x", "/%61dmin/x", "/a/%2e%2e/admin/x"):
            equal(proxy.get("api.example", path)[0], 403, path)
        equal(proxy.get("other.example")[0], 403)
        equal(upstream.heard, [])
        equal(proxy.get("api.example", "/x")[0], 200)
        equal([e["rule"] for e in proxy.events("net.exchange", 10)][:3], ["no-writes", "broken", "secret"])


def test_a_denial_says_what_its_rule_says(tmp):
    """In any alphabet; what is longer than an answer has room for ends with dots, behind a whole character."""
    said = {"short": "нельзя: " + "спросите человека " * 20, "odd": "x" + "ы" * 5000, "even": "ы" * 5000, "plain": "x" * 5000, "wide": "x" + "😀" * 1000}
    rules = [{"name": name, "match": {"host": "api.example", "path": "/" + name}, "action": "deny", "deny": {"message": text}} for name, text in said.items()]
    with Setup(tmp, rules=[*rules, *ALLOW]) as (proxy, upstream):
        for name, text in said.items():
            for method, body in ((b"GET", b""), (b"POST", b"text")):
                status, answer = proxy.get("api.example", "/" + name, method=method, body=body)
                equal(status, 403, name)
                told = json.loads(answer)["error"]["message"]
                if name == "short":
                    equal(told, text)
                else:
                    equal((told.endswith("..."), text.startswith(told[:-3]), 2040 < len(told.encode()) < 2048), (True, True, True), told)
        equal(len(upstream.heard), 0)
        events = proxy.events("net.exchange", 2 * len(said))
        equal(events[0]["reason"], said["short"])


def test_what_is_forwarded_is_written_anew(tmp):
    with Setup(tmp) as (proxy, _):
        status, body = proxy.get("API.example.:80", "/a/./b/../%63?x=%20y", headers=b"X-One: 1\r\nConnection: X-Hop\r\nX-Hop: gone\r\nTE: trailers\r\n")
        equal(status, 200)
        head = body.split(b"\r\n")
        equal(head[0], b"GET /a/c?x=%20y HTTP/1.1")
        contains(head, b"host: api.example")
        contains(head, b"x-one: 1")
        equal([h for h in head if h.startswith((b"x-hop", b"connection", b"te:"))], [])


def test_one_connection_many_requests(tmp):
    with Setup(tmp) as (proxy, upstream):
        with proxy.connect() as sock:
            request = b"POST /%d HTTP/1.1\r\nHost: api.example\r\nContent-Length: 5\r\n\r\nhello"
            sock.sendall(b"".join(request % i for i in range(20)))  # pipelined
            sock.shutdown(socket.SHUT_WR)
            answers = read_all(sock)
        equal(answers.count(b"HTTP/1.1 200 OK"), 20)
        equal([answers.index(b"POST /%d " % i) for i in range(20)], sorted(answers.index(b"POST /%d " % i) for i in range(20)))
        equal(len(upstream.heard), 1, "connections to the upstream")


def test_bodies_of_any_framing_arrive(tmp):
    big = os.urandom(3 << 20)
    with Setup(tmp) as (proxy, _):
        equal(proxy.get("api.example", method=b"POST", body=big)[1].endswith(big), True)
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(big[i:i + 70000]), big[i:i + 70000]) for i in range(0, len(big), 70000)) + b"0\r\n\r\n"
        data = proxy.send(b"POST / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        equal(parse(data)[1].endswith(big), True)
        events = proxy.events("net.exchange", 2)
        equal([e["request"]["bytes"] for e in events], [len(big)] * 2)
        equal([e["request"]["body_cut"] for e in events], [True] * 2)


def test_answers_of_any_framing_arrive(tmp):
    cases = [(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n", b"abc"),
             (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", b"until the end"),
             (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
             (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok")]
    for i, (answer, want) in enumerate(cases):
        folder = os.path.join(tmp, str(i))
        os.mkdir(folder)
        with Setup(folder, fixed(answer)) as (proxy, _):
            equal(proxy.get("api.example")[1], want, str(answer))


def test_a_malformed_answer_is_no_answer(tmp):
    cases = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok\r\n\r\n",
             b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
             b"garbage\r\n\r\n", b""]
    for i, answer in enumerate(cases):
        folder = os.path.join(tmp, str(i))
        os.mkdir(folder)
        with Setup(folder, fixed(answer)) as (proxy, _):
            equal(proxy.get("api.example")[0], 502, str(answer))


def test_interim_answers_without_end_are_no_answer(tmp):
    def flood(peer):
        peer.head()
        while True:
            peer.send(b"HTTP/1.1 103 Early Hints\r\nLink: </" + b"x" * 200 + b">\r\n\r\n")
    upstream = Upstream(flood)
    proxy = Proxy(tmp, ALLOW, {"api.example": upstream.address})
    status, body = proxy.get("api.example", "/x")
    equal(status, 502)
    contains(body, b"no answer from the host")
    equal(proxy.close(), 0)
    upstream.close()


def test_a_stream_without_end_is_not_listened_to_for_ever(tmp):
    """What a budget counts is waited for when the sandbox has gone, but not for ever."""
    gone, ended = threading.Event(), threading.Event()

    def stream(peer):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: {\"usage\": {\"n\": 5}}\n\n")
        gone.wait(patience(60))
        try:
            while True:
                peer.send(b"data: {}\n\n")
        finally:
            ended.set()

    upstream = Upstream(stream)
    rule = {**ALLOW[0], "budget": {"sum": {"field": "/usage/n", "of": "response", "max": 1000}}}
    proxy = Proxy(tmp, [rule], {"api.example": upstream.address}, listen_ms=300)
    with proxy.connect() as sock:
        sock.sendall(b"GET /x HTTP/1.1\r\nHost: api.example\r\n\r\n")
        contains(head(sock), b" 200 OK")
        sock.recv(1)
    gone.set()
    equal(ended.wait(patience(60)), True, "the host is let go")
    equal([e["said"] for e in proxy.events("spent", 1)], ["something"])
    equal(proxy.close(), 0)
    upstream.close()


def test_who_does_not_wait_for_the_end_of_a_stream_does_not_pay_less(tmp):
    """Model APIs say little at the beginning and the whole at the end. Whose end nobody has heard, since it comes too late or not at all, counts as what was held for it."""
    asked, gone = [], threading.Semaphore(0)

    def stream(peer):
        asked.append(peer.head())
        event = b'data: {"usage": {"n": 1}}\n\n'
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n%x\r\n%s\r\n" % (len(event), event))
        if b"/leaves" in asked[-1]:
            gone.acquire(timeout=patience(60))
            while True:
                peer.send(b"a\r\ndata: {}\n\n\r\n")

    def get(path):
        with proxy.connect() as sock:
            sock.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: api.example\r\n\r\n")
            answer = head(sock)
            if b" 200 OK" in answer:
                sock.recv(1)
                if path == b"/breaks":
                    read_all(sock)
        gone.release()
        return int(answer.split()[1])

    for name, paths, more in (("leaves", (b"/leaves",) * 3, {"each": 50}), ("breaks", (b"/breaks",) * 3, {"each": 50}), ("missing", (b"/leaves", b"/breaks", b"/leaves"), {"missing": 50})):
        gone = threading.Semaphore(0)
        folder = os.path.join(tmp, name)
        os.mkdir(folder)
        upstream = Upstream(stream)
        rule = {**ALLOW[0], "budget": {"sum": {"field": "/usage/n", "of": "response", "max": 100, **more}}}
        proxy = Proxy(folder, [rule], {"api.example": upstream.address}, listen_ms=300, budgets="kept")
        got = []
        for number, path in enumerate(paths, 1):
            got.append(get(path))
            told = proxy.events("net.exchange", number)[-1]
        equal((got, told["reason"]), ([200, 200, 429], "a budget of rule 'api' is exhausted"), name)
        equal([e.get("uncounted") for e in proxy.events("net.exchange", 3)], [True, True, None], name)
        equal(proxy.close(), 0)
        upstream.close()


def test_an_upload_may_take_longer_than_an_answer(tmp):
    """How long a host may be silent counts from when nothing more goes out to it; a body that is still coming ends no wait."""
    heard = threading.Semaphore(0)

    def handler(peer):
        asked = peer.head()
        while b"last" not in peer.rest:
            if b"piece" in peer.rest:
                peer.rest = peer.rest.split(b"piece", 1)[1]
                heard.release()
            elif not peer.more():
                return
        if b"/early" in asked:
            peer.send(b"2\r\nok\r\n0\r\n\r\n")
        else:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def early(peer):
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        handler(peer)

    with Setup(tmp, handler, answer_ms=400) as (proxy, upstream):
        for path in (b"/late", b"/early"):
            upstream.handler = early if path == b"/early" else handler
            with proxy.connect() as sock:
                sock.sendall(b"PUT " + path + b" HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
                until = time.monotonic() + 1.5
                while time.monotonic() < until:
                    sock.sendall(b"5\r\npiece\r\n")
                    equal(heard.acquire(timeout=patience(20)), True, "a piece is heard")
                    threading.Event().wait(0.02)
                sock.sendall(b"4\r\nlast\r\n0\r\n\r\n")
                equal(parse(read_all(sock)), (200, b"ok"), path.decode())
        upstream.handler = lambda peer: (peer.head(), peer.more())
        equal(proxy.get("api.example")[0], 504, "a silent host")


def test_who_has_said_enough_may_be_silent(tmp):
    """A request whose end has not come goes on as long as its answer does: both sides of a stream speak when they have something to say."""
    go = threading.Event()

    def handler(peer):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            peer.send(b"4\r\ntick\r\n")
            threading.Event().wait(0.02)
        go.set()
        while b"last" not in peer.rest and peer.more():
            pass
        peer.send(b"2\r\nok\r\n0\r\n\r\n")

    with Setup(tmp, handler, answer_ms=400) as (proxy, _):
        with proxy.connect() as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
            equal(go.wait(patience(20)), True)
            sock.sendall(b"4\r\nlast\r\n0\r\n\r\n")
            status, body = parse(read_all(sock))
            equal((status, body[-6:]), (200, b"tickok"))


def test_an_answer_that_breaks_off_ends_in_a_reset(tmp):
    with Setup(tmp, lambda peer: (peer.head(), peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"))) as (proxy, _):
        with proxy.connect() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n")
            data, broken = b"", False
            try:
                while piece := sock.recv(4096):
                    data += piece
            except ConnectionResetError:
                broken = True
        equal((data.endswith(b"half"), broken), (True, True))
        equal(proxy.events("net.exchange", 1)[0]["outcome"], "failed")


def test_streams_keep_their_timing(tmp):
    """The next event of a stream is sent only when the sandbox has the one before: a proxy that collects would never end."""
    seen = threading.Semaphore(0)

    def stream(peer):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for i in range(5):
            event = b"data: %d\n\n" % i
            peer.send(b"%x\r\n%s\r\n" % (len(event), event))
            if not seen.acquire(timeout=10):
                return
        peer.send(b"0\r\n\r\n")

    with Setup(tmp, stream) as (proxy, _):
        with proxy.connect() as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
            data = b""
            for i in range(5):
                while b"data: %d\n\n" % i not in data:
                    data += sock.recv(4096)
                seen.release()
            data += read_all(sock)
        equal(data.endswith(b"0\r\n\r\n"), True)


def test_expect_continue(tmp):
    rules = [{"name": "no", "match": {"host": "api.example", "path": "/no"}, "action": "deny"}, *ALLOW]
    with Setup(tmp, rules=rules) as (proxy, upstream):
        head = b"POST %s HTTP/1.1\r\nHost: api.example\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
        equal(parse(proxy.send(head % b"/no", end=True))[0], 403)  # and no body was asked for
        equal(upstream.heard, [])
        with proxy.connect() as sock:
            sock.sendall(head % b"/")
            data = b""
            while b"100 Continue\r\n\r\n" not in data:
                data += sock.recv(100)
            sock.sendall(b"body")
            while not data.endswith(b"body"):
                data += sock.recv(4096)


def test_rules_see_bodies_in_every_coding(tmp):
    import gzip  # pylint: disable=import-outside-toplevel
    import zlib  # pylint: disable=import-outside-toplevel
    rules = [{"name": "eur", "match": {"host": "api.example", "json": {"currency": "eur"}}, "action": "allow"}]
    good, bad = b'{"currency": "eur"}', b'{"currency": "usd"}'
    with Setup(tmp, rules=rules) as (proxy, upstream):
        def post(body, coding=b""):
            headers = b"Content-Type: application/json\r\n" + (b"Content-Encoding: " + coding + b"\r\n" if coding else b"")
            return proxy.get("api.example", method=b"POST", body=body, headers=headers)[0]
        for body in (bad, b"no json", b'{"currency": "eur", "currency": "usd"}', b'{"currency": "eur"} x'):
            equal(post(body), 403, str(body))
        equal(post(gzip.compress(bad), b"gzip"), 403)
        equal(post(good, b"gzip"), 403)
        equal(post(gzip.compress(good), b"unknown"), 403)
        equal(post(gzip.compress(b" " * (64 << 20) + good), b"gzip"), 403)  # a bomb
        equal(upstream.heard, [])
        equal(post(good), 200)
        equal(post(gzip.compress(good), b"gzip"), 200)
        equal(post(zlib.compress(good), b"deflate"), 200)
        equal(post(gzip.compress(gzip.compress(good)), b"gzip, gzip"), 200)


def test_bodies_of_control_characters_do_not_outgrow_an_event(tmp):
    import gzip  # pylint: disable=import-outside-toplevel
    import json  # pylint: disable=import-outside-toplevel
    body = gzip.compress(b"\x01" * (1 << 20))  # six times as long in a JSON string
    answer = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with Setup(tmp, handler=fixed(answer)) as (proxy, _):
        equal(proxy.get("api.example", method=b"POST", body=body, headers=b"Content-Encoding: gzip\r\n")[0], 200)
        event = proxy.events("net.exchange", 1)[0]
        for side in (event["request"], event["response"]):
            equal((side["decoded"], "body" in side, side["body_base64"][:4]), (True, False, "AQEB"))
        equal(len(json.dumps(event)) < 1 << 20, True)  # a frame to the server


def test_transform(tmp):
    rules = [{"name": "t", "match": {"host": "api.example"}, "action": "transform",
              "transform": {"headers": {"set": {"x-added": "yes"}, "remove": ["x-gone"]}, "json": {"set": {"/model": "small"}, "remove": ["/extra"]}}}]
    with Setup(tmp, rules=rules) as (proxy, upstream):
        equal(proxy.get("api.example", method=b"POST", body=b"not json")[0], 403)
        equal(upstream.heard, [])
        status, body = proxy.get("api.example", method=b"POST", body=b'{"model":"large","extra":1}', headers=b"X-Gone: 1\r\n")
        equal(status, 200)
        contains(body, b"x-added: yes")
        equal(b"x-gone" in body, False)
        contains(body, b'{"model":"small"}')


def test_numbers_that_a_transform_does_not_set_go_out_as_they_came(tmp):
    """Who reads decimals, or whole numbers of more than 64 bits, finds what was sent."""
    rules = [{"name": "t", "match": {"host": "api.example"}, "action": "transform", "transform": {"json": {"set": {"/tag": 19.99, "/max": 5, "/top": 1.0}}}}]
    numbers = b'"a":19.99,"b":0.1,"c":1e2,"d":1.10,"e":18446744073709551615,"f":-0,"g":[1E+400,%s],"h":"1.10"' % (b"12345678901234567890" * 20)
    with Setup(tmp, rules=rules) as (proxy, _):
        status, heard = proxy.get("api.example", method=b"POST", body=b'{"max": 1.0,' + numbers + b"}")
        equal(status, 200, str(heard))
        equal(heard.partition(b"\r\n\r\n")[2], b'{"max":5,' + numbers + b',"tag":19.99,"top":1.0}')


def test_a_transform_names_headers_in_any_case(tmp):
    """Names of headers have no case: what a policy writes in capitals is the same field, for what is removed and for what is set."""
    rules = [{"name": "t", "match": {"host": "api.example"}, "action": "transform", "transform": {"headers": {"set": {"X-Agent": "cay"}, "remove": ["Cookie"]}}}]
    with Setup(tmp, rules=rules) as (proxy, upstream):
        equal(proxy.get("api.example", headers=b"Cookie: a=1\r\nX-Agent: other\r\n")[0], 200)
        heard = upstream.text()
        equal((heard.lower().count(b"cookie"), heard.lower().count(b"x-agent:"), heard.count(b"x-agent: cay")), (0, 1, 1), str(heard))


def test_a_transform_removes_what_is_not_there(tmp):
    """A member that a request has not is removed already; where it could be all the same (a body that cannot be read, a list) the request is refused."""
    rules = [{"name": "t", "match": {"host": "api.example"}, "action": "transform", "transform": {"headers": {"set": {"x-added": "yes"}}, "json": {"remove": ["/user/email", "note"]}}}]
    with Setup(tmp, rules=rules) as (proxy, upstream):
        def sent(body, method=b"POST"):
            status, heard = proxy.get("api.example", method=method, body=body)
            return status, heard.partition(b"\r\n\r\n")[2] if status == 200 else heard

        for body, wanted in ((b'{"a":1}', b'{"a":1}'), (b'{"user":{"n":1},"note":2}', b'{"user":{"n":1}}'), (b'{"user":{"email":"x","n":1}}', b'{"user":{"n":1}}'),
                             (b'{"user":"x"}', b'{"user":"x"}'), (b'{"user":null}', b'{"user":null}')):
            equal(sent(body), (200, wanted), str(body))
        equal(sent(b"", b"GET"), (200, b""))
        contains(upstream.text(), b"x-added: yes")
        heard = len(upstream.heard)
        for body in (b"email", b'{"user":[{"email":"x"}]}', b'[{"note":1}]', b'{"User":{"email":"x"}}'):
            equal(sent(body)[0], 403, str(body))
        equal(len(upstream.heard), heard)


def test_numbers_that_no_rule_looks_at_may_be_any(tmp):
    """A body with a number of 64 bits without a sign, in a request or in an answer that is counted, is JSON like any other."""
    answer = b'{"id": 18446744073709551615, "usage": {"n": 5}}'
    rule = {**ALLOW[0], "match": {"host": "api.example", "json": {"amount": {"max": 5}}}, "budget": {"sum": {"field": "/usage/n", "of": "response", "max": 1000}}}
    with Setup(tmp, fixed(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer), [rule]) as (proxy, _):
        equal(proxy.get("api.example", method=b"POST", body=b'{"amount": 1, "id": 18446744073709551615}'), (200, answer))
        equal([e["said"] for e in proxy.events("spent", 1)], ["something"])
        equal(proxy.get("api.example", method=b"POST", body=b'{"amount": 18446744073709551615}')[0], 403)


def test_what_is_worth_another_try_says_so(tmp):
    """A budget that could not be asked and no room are other answers than a budget that is spent and a body that is too large."""
    def asked(body=b"", action="allow", rule=None, **config):
        rules = [{"name": "api", "match": {"host": "api.example"}, "action": action, **rule}]
        with Setup(tempfile.mkdtemp(dir=tmp), rules=rules, **config) as (proxy, upstream):
            data = b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            head, _, text = proxy.send(data).partition(b"\r\n\r\n")
            equal(upstream.heard, [])
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
            return int(head[9:12]), json.loads(text)["error"]["code"], fields.get(b"retry-after"), fields.get(b"x-should-retry")

    bound = {"budget": {"requests": {"max": 1}}}
    equal(asked(rule=bound, budgets="over"), (429, "budget", None, b"false"))
    equal(asked(rule=bound, budgets="busy"), (503, "busy", b"1", None))
    change = {"transform": {"json": {"set": {"/model": "small"}}}}
    equal(asked(b'{"model": "x"}', action="transform", rule=change, room=0), (503, "busy", b"1", None))
    equal(asked(b'["model"]', action="transform", rule=change), (403, "denied", None, None))


def test_who_waits_for_a_budget_is_not_asked_again_for_what_others_bring(tmp):
    """Large bodies are not read anew because an answer of another rule has come, or because one of its own has brought too little."""
    gates = {name: threading.Event() for name in (b"/first", b"/second")}

    def handler(peer):
        while (text := peer.head()) is not None:
            gate = gates.get(text.split(b" ")[1])
            assert gate is None or gate.wait(patience(60))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"n\": 5}")

    upstream = Upstream(handler)
    rules = [{"name": name, "match": {"host": f"{name}.example"}, "action": "allow", "budget": {"sum": {"field": "/n", "of": "response", "max": 100, "each": 45}}}
             for name in ("mine", "other")]
    proxy = Proxy(tmp, rules, {f"{name}.example": upstream.address for name in ("mine", "other")}, budgets="kept")
    got = []
    threads = []

    def begin(path):
        threads.append(threading.Thread(target=lambda: got.append(proxy.get("mine.example", path)[0])))
        threads[-1].start()
        proxy.events("asked", len(threads))

    try:
        begin("/first")
        begin("/second")
        begin("/third")  # 90 of 100 are held
        for _ in range(8):
            equal(proxy.get("other.example")[0], 200)
        equal([e["rule"] for e in proxy.events("asked", 11)].count("mine"), 3)
        equal(got, [])
    finally:
        for gate in gates.values():
            gate.set()
        for thread in threads:
            thread.join()
    equal(got, [200, 200, 200])
    equal(proxy.close(), 0)
    upstream.close()


def test_who_waits_for_a_budget_hears_at_once_that_another_sum_is_exhausted(tmp):
    """Two requests are allowed, one answer at a time; when the first has come one of two that wait takes the last request, and the other hears so while that is being answered."""
    gates = {name: threading.Event() for name in (b"/first", b"/other")}

    def handler(peer):
        while (text := peer.head()) is not None:
            assert gates[text.split(b" ")[1]].wait(patience(60))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"n\": 5}")

    upstream = Upstream(handler)
    rules = [{"name": "mine", "match": {"host": "mine.example"}, "action": "allow",
              "budget": {"requests": {"max": 2}, "sum": {"field": "/n", "of": "response", "max": 100, "each": 60}}}]
    proxy = Proxy(tmp, rules, {"mine.example": upstream.address}, budgets="kept")
    got, threads = [], []

    def begin(path):
        threads.append(threading.Thread(target=lambda: got.append(proxy.get("mine.example", path)[0])))
        threads[-1].start()
        proxy.events("asked", len(threads))

    try:
        for path in ("/first", "/other", "/other"):
            begin(path)
        gates[b"/first"].set()
        wait_until(lambda: 429 in got, 20, "one of two is refused")
    finally:
        for gate in gates.values():
            gate.set()
        for thread in threads:
            thread.join()
    equal(sorted(got), [200, 200, 429])
    equal(proxy.close(), 0)
    upstream.close()


def test_faults(tmp):
    rules = [{"name": n, "match": {"host": "api.example", "path": "/" + n}, "action": "fault", "fault": f} for n, f in
             (("status", {"status": 503}), ("reset", {"reset": True}), ("cut", {"truncate": 20}), ("late", {"latency": "30ms"}),
              ("slow", {"rate": 2000}), ("some", {"status": 500, "chance": 0.5, "seed": 7}))]
    with Setup(tmp, rules=rules) as (proxy, upstream):
        equal(proxy.get("api.example", "/status")[0], 503)
        equal(proxy.get("api.example", "/reset")[0], 0)
        equal(upstream.heard, [])
        equal(len(proxy.get("api.example", "/cut")[1]), 20)
        equal(proxy.get("api.example", "/late")[0], 200)
        equal(proxy.get("api.example", "/slow")[0], 200)
        drawn = [proxy.get("api.example", "/some")[0] for _ in range(20)]
        equal(set(drawn), {200, 500})
    with Setup(tmp, rules=rules) as (proxy, _):
        equal([proxy.get("api.example", "/some")[0] for _ in range(20)], drawn, "the same seed, the same faults")


def test_slow_heads_are_cut_off_together(tmp):
    """A head that never ends occupies one connection, not the gateway: others are served meanwhile."""
    with Setup(tmp) as (proxy, _):
        slow = [proxy.connect() for _ in range(100)]
        for sock in slow:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: api.exa")
        equal(proxy.get("api.example")[0], 200)
        for sock in slow:
            sock.close()


def test_a_head_has_a_largest_size(tmp):
    with Setup(tmp) as (proxy, upstream):
        equal(parse(proxy.send(b"GET / HTTP/1.1\r\nHost: api.example\r\nX: " + b"x" * 40000 + b"\r\n\r\n"))[0], 400)
        equal(parse(proxy.send(b"GET / HTTP/1.1\r\nHost: api.example\r\n" + b"X: y\r\n" * 200 + b"\r\n"))[0], 400)
        equal(upstream.heard, [])
