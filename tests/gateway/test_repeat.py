# SPDX-License-Identifier: Apache-2.0
"""A kept connection to the world that dies under a request: what may have been done is not done twice."""

import os
import select
import socket
import struct

from gateway.test_http2 import Client, get as fields, h2
from lib.case import contains, equal
from lib.proxy import Proxy, Upstream, certificate, parse

QUICK = True
ALLOW = [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def reset(peer):
    """Close so that the other side gets a reset."""
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def whole(peer):
    """The request was read to its end."""
    asked = peer.head()
    peer.body(asked or b"")
    return asked


def unread(peer):
    """A byte of the request has come and is not taken."""
    select.select([peer.sock], [], [])
    peer.heard += peer.sock.recv(65536, socket.MSG_PEEK)


def dying(see, last=b"", broken=False):
    """Answers the first request of each of the first two connections, ends them at the second: @see it, say @last, close. All later connections just answer."""
    made = []

    def handler(peer):
        made.append(peer)
        whole(peer)
        peer.send(ANSWER)
        if len(made) == 1:
            see(peer)
            if last:
                peer.send(last)
            if broken:
                reset(peer)
            return
        while whole(peer) is not None:
            peer.send(ANSWER)
    return handler


class Setup:
    def __init__(self, tmp, handler, tls=False, alpn=None, rules=None):
        pem, root = certificate(os.path.join(tmp, "upstream"), "api.example")
        self.tls = tls
        self.upstream = Upstream(handler, pem if tls else None, alpn)
        self.proxy = Proxy(tmp, rules or ALLOW, {"api.example": self.upstream.address}, extra=root)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()

    def ask(self, method=b"GET", path="/", body=b"", headers=b""):
        return self.proxy.get("api.example", path, sni="api.example" if self.tls else None, method=method, body=body, headers=headers)[0]

    def heard(self, path=b"/second"):
        return self.upstream.text().count(path)


# how the connection ends: (what the upstream has seen, what it says before, is it a reset?, may an idempotent request be repeated?)
ENDS = {"it has read the request": (whole, b"", False, True), "it has read the request and resets": (whole, b"", True, True),
        "it has read nothing": (unread, b"", False, True),
        "a byte of an answer came": (whole, b"H", False, False), "an interim answer came": (whole, b"HTTP/1.1 103 Early Hints\r\n\r\n", False, False)}


def each(tmp, tls):
    for i, (name, (see, last, broken, again)) in enumerate(ENDS.items()):
        for method, repeats in ((b"POST", False), (b"PATCH", False), (b"FROB", False), (b"GET", True), (b"PUT", True), (b"DELETE", True)):
            if tls and (method not in (b"POST", b"GET") or see == unread):  # under TLS nobody sees what was not read
                continue
            folder = os.path.join(tmp, f"{i}{method.decode()}")
            os.mkdir(folder)
            with Setup(folder, dying(see, last, broken), tls) as setup:
                equal(setup.ask(path="/first"), 200)
                what = f"{name}, {method.decode()}"
                equal(setup.ask(method, "/second"), 200 if repeats and again else 502, what)
                event = setup.proxy.events("net.exchange", 2)[1]
                equal((event["outcome"], event["upstream"].get("repeated")), ("forwarded", True) if repeats and again else ("failed", None), what)
                if not repeats and again:
                    contains(event["reason"], "is not sent twice")
                equal(setup.ask(path="/third"), 200, what)
            equal(setup.heard(), 2 if repeats and again else 1, what)


def test_what_may_have_been_done_is_not_done_twice(tmp):
    each(tmp, False)


def test_the_same_under_tls(tmp):
    each(tmp, True)


def test_another_method_in_a_field_counts(tmp):
    with Setup(tmp, dying(whole)) as setup:
        equal(setup.ask(path="/first"), 200)
        equal(setup.ask(b"PUT", "/second", headers=b"X-HTTP-Method-Override: PATCH\r\n"), 502)
    equal(setup.heard(), 1)


def test_a_body_that_was_held_is_sent_again_with_what_may_be(tmp):
    rules = [{"name": "j", "match": {"host": "api.example", "json": {"a": 1}}, "action": "allow"}, *ALLOW]
    for method, status in ((b"PUT", 200), (b"POST", 502)):
        folder = os.path.join(tmp, method.decode())
        os.mkdir(folder)
        with Setup(folder, dying(whole), rules=rules) as setup:
            equal(setup.ask(path="/first"), 200)
            equal(setup.ask(method, "/second", body=b'{"a": 1}'), status)
        equal(setup.heard(), 2 if status == 200 else 1)


def test_a_body_that_has_passed_is_not_there_any_more(tmp):
    with Setup(tmp, dying(whole)) as setup:
        equal(setup.ask(path="/first"), 200)
        equal(setup.ask(b"PUT", "/second", body=b"x" * 100000), 502)
    equal(setup.heard(), 1)


def test_it_is_repeated_once(tmp):
    """Every connection dies at its second request, new ones at their first too from then on."""
    made = []

    def handler(peer):
        made.append(peer)
        whole(peer)
        if len(made) == 1:
            peer.send(ANSWER)
            whole(peer)

    with Setup(tmp, handler) as setup:
        equal(setup.ask(path="/first"), 200)
        equal(setup.ask(path="/second"), 502)
    equal(setup.heard(), 2)


def test_a_new_connection_that_dies(tmp):
    with Setup(tmp, whole) as setup:
        equal(setup.ask(path="/second"), 502)
    equal(setup.heard(), 1)


def serve_h2(end):
    """HTTP/2 that answers the first request and does @end to the second of the first connection."""
    made = []

    def handler(peer):
        lib = h2()
        c = lib.connection.H2Connection(lib.config.H2Configuration(client_side=False, header_encoding=None))
        made.append(peer)
        first, seen = len(made) == 1, 0
        c.initiate_connection()
        peer.send(c.data_to_send())
        while data := peer.sock.recv(65536):
            for e in c.receive_data(data):
                if not isinstance(e, lib.events.RequestReceived):
                    continue
                peer.heard += b"".join(n + v for n, v in e.headers)
                seen += 1
                if first and seen == 2:
                    if end == "closes":
                        return
                    if end == "goes away":
                        c.close_connection(error_code=0, last_stream_id=e.stream_id - 2)
                    else:
                        c.reset_stream(e.stream_id, error_code=7 if end == "refuses" else 2)
                else:
                    c.send_headers(e.stream_id, [(b":status", b"200")], end_stream=True)
            peer.send(c.data_to_send())
    return handler


def test_streams_of_http2(tmp):
    """A host that says that it did nothing (RFC 9113 8.7) gets the request again, whatever it is."""
    for end, post, again in (("closes", 502, 200), ("resets", 502, 200), ("refuses", 200, 200), ("goes away", 200, 200)):
        for method, status in ((b"POST", post), (b"GET", again)):
            folder = os.path.join(tmp, end + method.decode())
            os.mkdir(folder)
            with Setup(folder, serve_h2(end), True, ["h2"]) as setup:
                client = Client(setup.proxy)
                equal(client.answer(client.request(fields(b"/first")))[0], 200)
                equal(client.answer(client.request(fields(b"/second", method=method)))[0], status, f"{end}, {method.decode()}")
                client.close()
            equal(setup.heard(), 2 if status == 200 else 1, f"{end}, {method.decode()}")


def test_one_answer_is_not_cut_by_the_next_connection(tmp):
    """What is repeated answers once, on the connection that asked."""
    with Setup(tmp, dying(whole)) as setup:
        equal(setup.ask(path="/first"), 200)
        with setup.proxy.connect() as sock:
            sock.sendall(b"GET /second HTTP/1.1\r\nHost: api.example\r\n\r\nGET /third HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
            data = b""
            while piece := sock.recv(65536):
                data += piece
        equal((data.count(b"HTTP/1.1 200"), parse(data)[0]), (2, 200))
