# SPDX-License-Identifier: Apache-2.0
"""Contract OUT, HTTP/2 frames and TLS by hand: what libraries of clients do not send. The oracle stands outside: no upstream may hear MARK, which is only in what no rule lets through.

Ablation: rules that let everything through, or a request that is in order, are heard by the same means.
"""

import os
import socket
import ssl
import struct
import threading

from gateway.test_http2 import Client, frame, get, serve_h2
from lib.case import contains, equal, require
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, echo, parse, read_all

QUICK = True
MARK = b"m4rk-that-must-not-leave"
RULES = [{"name": "ok", "match": {"host": "api.example", "method": ["GET", "POST"], "path": "/ok/**"}, "action": "allow"},
         {"name": "json", "match": {"host": "api.example", "method": ["POST"], "path": "/json", "json": {"kind": "good"}}, "action": "allow"}]
EVERYTHING = [{"name": "all", "match": {"host": "api.example"}, "action": "allow"}]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
END_STREAM, END_HEADERS, PADDED = 1, 4, 8


def literal(name, value):
    """A field that HPACK's table does not know (RFC 7541 6.2.2)."""
    def text(data):
        return (bytes([len(data)]) if len(data) < 127 else b"\x7f" + bytes([(len(data) - 127) & 0x7f | 0x80, (len(data) - 127) >> 7])) + data
    return b"\0" + text(name) + text(value)


def block(path=b"/ok/x", authority=b"api.example", method=b"GET", more=()):
    return b"".join(literal(n, v) for n, v in ((b":method", method), (b":scheme", b"https"), (b":authority", authority), (b":path", path), *more))


def headers(stream, fields, flags=END_STREAM | END_HEADERS):
    return frame(1, flags, stream, fields)


GOOD = b'{"kind": "good"}'
DENIED = block(b"/denied/" + MARK)
NO_HOST = (b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/ok/" + MARK)
# each behind PREFACE
FRAMES = {
    "a denied path in a continuation": headers(1, DENIED[:10], END_STREAM) + frame(9, END_HEADERS, 1, DENIED[10:]),
    "a denied path, a byte a continuation": headers(1, DENIED[:1], END_STREAM) + b"".join(frame(9, 0, 1, DENIED[i:i + 1]) for i in range(1, len(DENIED) - 1)) + frame(9, END_HEADERS, 1, DENIED[-1:]),
    "a denied path in five continuations": headers(1, DENIED[:9], END_STREAM) + b"".join(frame(9, 0, 1, DENIED[9 * i:9 * i + 9]) for i in range(1, 5)) + frame(9, END_HEADERS, 1, DENIED[45:]),
    "a continuation of another stream": headers(1, block()[:10], END_STREAM) + frame(9, END_HEADERS, 3, DENIED),
    "a continuation of nothing": frame(9, END_HEADERS, 1, DENIED),
    "data within a head": headers(1, block()[:10], 0) + frame(0, END_STREAM, 1, MARK) + frame(9, END_HEADERS, 1, block()[10:]),
    "more padding than there is": headers(1, b"\xff" + block() + MARK, END_STREAM | END_HEADERS | PADDED),
    "the mark as padding": headers(1, bytes([len(MARK)]) + block() + MARK, END_STREAM | END_HEADERS | PADDED),
    "data whose padding is the mark": headers(1, block(method=b"POST"), END_HEADERS) + frame(0, END_STREAM | PADDED, 1, bytes([len(MARK)]) + b"x" + MARK),
    "a stream of the server's": headers(2, DENIED),
    "a stream of no number": headers(0, block()) + frame(0, END_STREAM, 0, MARK),
    "a number that was over": headers(3, block()) + headers(1, block(b"/ok/" + MARK)),
    "a head twice": headers(1, block(method=b"POST"), END_HEADERS) + headers(1, DENIED, END_HEADERS) + frame(0, END_STREAM, 1, MARK),
    "a path in the trailers": headers(1, block(method=b"POST"), END_HEADERS) + headers(1, literal(b":path", b"/denied/" + MARK)),
    "an authority in the trailers": headers(1, block(method=b"POST"), END_HEADERS) + headers(1, literal(b":authority", MARK)),
    "a method in the trailers": headers(1, block(method=b"POST"), END_HEADERS) + headers(1, literal(b"x-http-method-override", MARK)),
    "data behind the end": headers(1, block(method=b"POST")) + frame(0, END_STREAM, 1, MARK),
    "data of a stream that nobody opened": frame(0, END_STREAM, 1, MARK),
    "more data than said": headers(1, block(method=b"POST", more=[(b"content-length", b"1")]), END_HEADERS) + frame(0, 0, 1, b"x") + frame(0, END_STREAM, 1, MARK),
    "data where none was said": headers(1, block(method=b"POST", more=[(b"content-length", b"0")]), END_HEADERS) + frame(0, END_STREAM, 1, MARK),
    "a body that says something else in its second frame": headers(1, block(b"/json", method=b"POST"), END_HEADERS) + frame(0, 0, 1, GOOD) + frame(0, END_STREAM, 1, MARK),
    "a promise of the client's": frame(5, END_HEADERS, 1, struct.pack(">I", 2) + DENIED),
    "frames that nobody knows": frame(0xa, 0, 0, MARK) + frame(0xc, 0, 0, MARK) + frame(0xfa, 0, 1, MARK) + frame(7, 0, 0, struct.pack(">II", 0, 0) + MARK),
    "a priority update": frame(0x10, 0, 0, struct.pack(">I", 1) + MARK),
    "a field of a table that is empty": headers(1, block() + b"\xff\xff\xff\xff\x7f" + literal(b"x", MARK)),
    "an authority out of the table": headers(1, b"\x40\x0a:authority\x0cevil.example" + b"".join(literal(n, v) for n, v in NO_HOST))
                                     + headers(3, b"\xbe" + b"".join(literal(n, v) for n, v in NO_HOST)),
    "a window that is too large": frame(8, 0, 0, struct.pack(">I", 0x7fffffff)) * 2 + headers(1, block(b"/ok/" + MARK)),
    "a setting of CONNECT": frame(4, 0, 0, struct.pack(">HI", 8, 1)) + headers(1, block(b"/ok/x", method=b"CONNECT", more=[(b":protocol", b"websocket")]), END_HEADERS) + frame(0, 0, 1, MARK),
    "a CONNECT as it was": headers(1, literal(b":method", b"CONNECT") + literal(b":authority", b"api.example:443"), END_HEADERS) + frame(0, 0, 1, MARK),
    "a frame larger than agreed": headers(1, block(method=b"POST"), END_HEADERS) + frame(0, END_STREAM, 1, MARK * 1000),
}
# heard where rules let everything through, so the way there is open
ORDERLY = ("a denied path in a continuation", "a denied path in five continuations")


class World:
    """@alpn: of the upstream; what arrives there in HTTP/2 is heard as bytes, so it is of HTTP/1 unless told."""

    def __init__(self, tmp, rules, handler=echo, alpn=None, **config):
        pem, root = certificate(os.path.join(tmp, "up"), "api.example", "evil.example")
        self.upstream, self.evil = Upstream(handler, pem, alpn), Upstream(echo, pem)
        self.proxy = Proxy(tmp, rules, {"api.example": self.upstream.address, "evil.example": self.evil.address}, extra=root, **config)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()
        self.evil.close()

    def heard(self):
        return (self.upstream.text() + self.evil.text()).count(MARK)

    def talk(self, data, alpn=("h2",)):
        """Say it in TLS and read to the end, or until the gateway has said that it is over."""
        with self.proxy.connect_tls("api.example", alpn=alpn) as sock:
            try:
                sock.sendall(data)
                sock.sendall(frame(7, 0, 0, bytes(8)))  # GOAWAY: what is under way is answered, then it ends
            except OSError:
                pass
            return read_all(sock)


def test_no_frame_is_heard(tmp):
    with World(tmp, RULES) as world:
        let = []
        for name, frames in FRAMES.items():
            before = world.heard()
            world.talk(PREFACE + frames)
            let += [name] if world.heard() > before else []
        equal(let, [])
        contains(world.talk(PREFACE + headers(1, block(b"/ok/x"))), b"GET /ok/x HTTP/1.1")
        equal(world.heard(), 0, "what came behind the end of the connection that said it")


def test_frames_are_heard_where_rules_let_everything_through(tmp):
    with World(tmp, EVERYTHING) as world:
        for name in ORDERLY:
            before = world.heard()
            world.talk(PREFACE + FRAMES[name])
            equal(world.heard(), before + 1, name)


def test_another_protocol_than_was_agreed(tmp):
    """ALPN says one, the bytes are the other: neither is read as what it was not agreed to be."""
    one = b"GET /ok/" + MARK + b" HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n"
    with World(tmp, EVERYTHING) as world:
        world.talk(one, alpn=("h2",))
        world.talk(PREFACE + headers(1, block(b"/ok/" + MARK)), alpn=("http/1.1",))
        world.talk(PREFACE + headers(1, block(b"/ok/" + MARK)), alpn=("http/1.0", "http/1.1"))
        equal(world.heard(), 0)
        world.talk(one, alpn=("http/1.1",))
        equal(world.heard(), 1)


def test_a_host_that_speaks_another_protocol_than_it_agreed_to(tmp):
    """It says h2 and speaks HTTP/1.1, or nothing of either: the sandbox gets 502, and no answer is made of it."""
    def speaks_http1(peer):
        peer.more()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        while peer.more():
            pass

    with World(tmp, EVERYTHING, speaks_http1, alpn=["h2"]) as world:
        equal(world.proxy.get("api.example", "/ok/x", sni="api.example")[0], 502)
    os.mkdir(os.path.join(tmp, "other"))
    with World(os.path.join(tmp, "other"), EVERYTHING, serve_h2, alpn=["http/1.1"]) as world:
        equal(world.proxy.get("api.example", "/ok/x", sni="api.example")[0], 502)


def test_no_session_goes_on(tmp):
    """Nothing of one connection's TLS is of use in another: no ticket, no session, so no early data either."""
    with World(tmp, RULES) as world:
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            context = ssl.create_default_context(cafile=world.proxy.root)
            context.minimum_version = context.maximum_version = version
            session = None
            for _ in range(2):
                with context.wrap_socket(world.proxy.connect(world.proxy.tls), server_hostname="api.example", session=session) as sock:
                    sock.sendall(b"GET /ok/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
                    equal(parse(read_all(sock))[0], 200)
                    equal(sock.session_reused, False, str(version))
                    session = sock.session or session
                    equal(session is not None and session.has_ticket, False, str(version))


def test_a_host_that_wants_a_certificate_gets_none(tmp):
    """The gateway has no identity of its own to show, and takes none from the sandbox."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    own, _ = certificate(os.path.join(tmp, "own"), "sandbox.example")
    upstream = Upstream(echo, pem)
    upstream.context.verify_mode = ssl.CERT_REQUIRED
    upstream.context.load_verify_locations(own)
    proxy = Proxy(tmp, EVERYTHING, {"api.example": upstream.address}, extra=root)
    context = ssl.create_default_context(cafile=proxy.root)
    context.load_cert_chain(own)
    with context.wrap_socket(proxy.connect(proxy.tls), server_hostname="api.example") as sock:
        sock.sendall(b"GET /" + MARK + b" HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
        equal(parse(read_all(sock))[0], 502)
    equal(upstream.text(), b"")
    # a client that has the certificate is let in: the host is in order
    with socket.create_connection(("127.0.0.1", upstream.port)) as raw:
        asks = ssl.create_default_context(cafile=root)
        asks.load_cert_chain(own)
        with asks.wrap_socket(raw, server_hostname="api.example") as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n")
            contains(sock.recv(100), b" 200 ")
    equal(proxy.close(), 0)
    upstream.close()


def test_server_names_written_otherwise(tmp):
    """A dot at the end and capitals are the same name, and nothing else is."""
    with World(tmp, RULES) as world:
        for name, status in (("api.example.", 200), ("API.Example", 200), ("evil.example.", 421), ("xn--pi-7kc.example", 421)):
            with world.proxy.connect_tls(name, check=False) as sock:
                sock.sendall(b"GET /ok/x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n" if status == 200
                             else b"GET /ok/" + MARK + b" HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
                equal(parse(read_all(sock))[0], status, name)
        equal(world.heard(), 0)


def test_interim_answers_without_end_are_no_answer(tmp):
    """As in HTTP/1.1 (gateway/test_http1)."""
    def interim(peer):
        lib = __import__("h2.connection", fromlist=["h2"]), __import__("h2.config", fromlist=["h2"]), __import__("h2.events", fromlist=["h2"])
        c = lib[0].H2Connection(lib[1].H2Configuration(client_side=False, header_encoding=None))
        c.initiate_connection()
        peer.send(c.data_to_send())
        while data := peer.sock.recv(65536):
            for e in c.receive_data(data):
                if isinstance(e, lib[2].RequestReceived):
                    peer.send(c.data_to_send())
                    while True:
                        peer.send(frame(1, END_HEADERS, e.stream_id, literal(b":status", b"103") + literal(b"link", b"x" * 100)) * 50)
            peer.send(c.data_to_send())

    with World(tmp, EVERYTHING, interim, alpn=["h2"]) as world:
        client = Client(world.proxy)
        done = []
        asked = threading.Thread(target=lambda: done.append(client.answer(client.request(get(b"/ok/x")))[0]))
        asked.start()
        asked.join(patience(60))
        equal(done, [502])
        client.close()


@require("program:openssl")
def test_a_handshake_is_not_begun_anew(tmp):
    """TLS 1.2 within a connection once more: refused."""
    import subprocess  # pylint: disable=import-outside-toplevel
    with World(tmp, RULES) as world:
        done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{world.proxy.tls}", "-servername", "api.example", "-tls1_2"], input=b"R\n", timeout=patience(30),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        contains(done.stdout, b"no renegotiation")
