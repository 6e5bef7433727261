# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 through the gateway's core: both sides, either side, streams one by one, floods."""

import concurrent.futures
import os
import select
import ssl
import struct
import threading

from lib.case import contains, equal, require
from lib.cay import wait_until
from lib.pace import patience
from lib.proxy import SECONDS, Proxy, Upstream, certificate, echo, head, parse, read_all

QUICK = True
JSON = (b"content-type", b"application/json")
ALLOW = [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]


def h2():
    """The module; imported where it is used so that a machine without it skips."""
    import h2.connection  # pylint: disable=import-outside-toplevel
    import h2.config  # pylint: disable=import-outside-toplevel
    import h2.events  # pylint: disable=import-outside-toplevel
    return __import__("h2")


class Client:
    """An HTTP/2 connection to the proxy that does as it is told."""

    def __init__(self, proxy, sni="api.example", validate=True):
        lib = h2()
        self.sock = proxy.connect_tls(sni, alpn=("h2",))
        equal(self.sock.selected_alpn_protocol(), "h2")
        self.c = lib.connection.H2Connection(lib.config.H2Configuration(
            client_side=True, header_encoding=None, validate_outbound_headers=validate, normalize_outbound_headers=validate))
        self.events, self.lib = [], lib
        self.c.initiate_connection()
        self.flush()

    def flush(self):
        self.sock.sendall(self.c.data_to_send())

    def request(self, headers, body=None, end=True, trailers=None):
        stream = self.c.get_next_available_stream_id()
        self.c.send_headers(stream, headers, end_stream=body is None and end)
        if body is not None:
            self.c.send_data(stream, body, end_stream=end and not trailers)
        if trailers:
            self.c.send_headers(stream, trailers, end_stream=True)
        self.flush()
        return stream

    def step(self):
        data = self.sock.recv(65536)
        if not data:
            return False
        for event in self.c.receive_data(data):
            self.events.append(event)
            if isinstance(event, self.lib.events.DataReceived):
                self.c.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        self.flush()
        return True

    def answer(self, stream):
        """(status, headers, body, trailers); status 0: the stream was reset."""
        status, headers, body, trailers = 0, {}, b"", {}
        ev, at = self.lib.events, 0
        while True:
            while at < len(self.events):
                e, at = self.events[at], at + 1
                if getattr(e, "stream_id", None) != stream:
                    if isinstance(e, ev.ConnectionTerminated):
                        return 0, headers, body, trailers
                    continue
                if isinstance(e, ev.ResponseReceived):
                    headers = dict(e.headers)
                    status = int(headers[b":status"])
                elif isinstance(e, ev.DataReceived):
                    body += e.data
                elif isinstance(e, ev.TrailersReceived):
                    trailers = dict(e.headers)
                elif isinstance(e, ev.StreamEnded):
                    return status, headers, body, trailers
                elif isinstance(e, ev.StreamReset):
                    return 0, headers, body, trailers
            if not self.step():
                return 0, headers, body, trailers

    def close(self):
        self.sock.close()


def get(path=b"/", authority=b"api.example", method=b"GET", more=()):
    return [(b":method", method), (b":scheme", b"https"), (b":authority", authority), (b":path", path), *more]


def serve_h2(peer):
    """Answers each request with its headers and body, and its trailers as trailers."""
    lib = h2()
    c = lib.connection.H2Connection(lib.config.H2Configuration(client_side=False, header_encoding=None))
    c.initiate_connection()
    peer.send(c.data_to_send())
    streams, ev = {}, lib.events

    def end(stream):
        head, body, trailers = streams.pop(stream)
        answer = b"\n".join(n + b"=" + v for n, v in head) + b"\n\n" + bytes(body)
        c.send_headers(stream, [(b":status", b"200"), (b"content-type", b"text/plain")])
        for at in range(0, len(answer), 16000):
            while c.local_flow_control_window(stream) < len(answer[at:at + 16000]):
                peer.send(c.data_to_send())
                feed(peer.sock.recv(65536))
            c.send_data(stream, answer[at:at + 16000])
        c.send_headers(stream, [(b"grpc-status", b"0"), *trailers], end_stream=True)

    def feed(data):
        peer.heard.extend(data)
        if not data:
            raise OSError("end")
        for e in c.receive_data(data):
            if isinstance(e, ev.RequestReceived):
                streams[e.stream_id] = (e.headers, bytearray(), [])
            elif isinstance(e, ev.DataReceived):
                streams[e.stream_id][1].extend(e.data)
                c.acknowledge_received_data(e.flow_controlled_length, e.stream_id)
            elif isinstance(e, ev.TrailersReceived):
                streams[e.stream_id][2].extend(e.headers)
            elif isinstance(e, ev.StreamEnded):
                end(e.stream_id)
        peer.send(c.data_to_send())

    while True:
        feed(peer.sock.recv(65536))


class Setup:
    def __init__(self, tmp, handler=echo, rules=None, alpn=None):
        pem, root = certificate(os.path.join(tmp, "upstream"), "api.example")
        self.upstream = Upstream(handler, pem, alpn)
        self.proxy = Proxy(tmp, rules or ALLOW, {"api.example": self.upstream.address}, extra=root)

    def __enter__(self):
        return self.proxy, self.upstream

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


def test_every_stream_is_judged_by_its_own_authority(tmp):
    """Coalescing: a connection that was opened for one host asks for another."""
    with Setup(tmp) as (proxy, upstream):
        client = Client(proxy)
        equal(client.answer(client.request(get(authority=b"evil.example")))[0], 421)
        equal(client.answer(client.request(get(authority=b"api.example:8443")))[0], 421)
        equal(upstream.heard, [])
        equal(client.answer(client.request(get(authority=b"api.example")))[0], 200)
        client.close()
        equal([e["status"] for e in proxy.events("net.exchange", 3)], [421, 421, 200])


def test_what_a_line_of_http1_could_not_hold_is_refused(tmp):
    cases = [get(path=b"/a b"), get(path=b"/a\r\nX: y"), get(method=b"GET / HTTP/1.1\r\nX:"), get(more=[(b"x", b"a\r\nhost: evil")]),
             get(more=[(b"x\r\nhost: evil", b"a")]), get(more=[(b"x y", b"a")]), get(more=[(b"X", b"a")]), get(more=[(b"host", b"evil.example")]),
             get(more=[(b"transfer-encoding", b"chunked")]), get(more=[(b"connection", b"close")]), get(more=[(b"x", b"a\0b")]),
             get(authority=b"api.example\r\nx: y"), get(authority=b"user@api.example"), get(path=b"/x/..%2fadmin"), get(path=b""),
             get(more=[(b":path", b"/second")]), get(more=[(b"content-length", b"-1")]), get()[:3]]
    with Setup(tmp) as (proxy, upstream):
        for headers in cases:
            client = Client(proxy, validate=False)
            status = client.answer(client.request(headers))[0]
            equal(status in (0, 400), True, f"{headers}: {status}")
            client.close()
        equal(upstream.heard, [])


def test_what_should_have_been_an_escape_is_said_to_be(tmp):
    """curl sends letters of UTF-8 in a URL as they are: the answer says what is missing, over both protocols."""
    with Setup(tmp) as (proxy, upstream):
        client = Client(proxy, validate=False)
        for path in ("/ä", "/x?q=ä"):
            status, _, body, _ = client.answer(client.request(get(path=path.encode())))
            equal((status, b"write as an escape (%20, %C3%A4)" in body), (400, True), str(body))
            status, body = parse(proxy.send(f"GET {path} HTTP/1.1\r\nHost: api.example\r\n\r\n".encode(), "api.example"))
            equal((status, b"write as an escape (%20, %C3%A4)" in body), (400, True), str(body))
        equal(b"two ways" in client.answer(client.request(get(path=b"/x/..%2fadmin")))[2], True)
        client.close()
        equal(upstream.heard, [])


def test_content_length_that_lies(tmp):
    with Setup(tmp) as (proxy, upstream):
        client = Client(proxy, validate=False)
        stream = client.request(get(method=b"POST", more=[(b"content-length", b"3")]), b"longer\r\n\r\nGET /smuggled HTTP/1.1\r\n")
        equal(client.answer(stream)[0] in (0, 400, 502), True)
        client.close()
        equal(b"smuggled" in upstream.text(), False)


def test_to_http1(tmp):
    with Setup(tmp) as (proxy, upstream):
        client = Client(proxy)
        streams = [client.request(get(b"/%d?q" % i, method=b"POST", more=[(b"cookie", b"a=1"), (b"cookie", b"b=2")]), b"body%d" % i) for i in range(30)]
        for i, stream in enumerate(streams):
            status, _, body, _ = client.answer(stream)
            equal(status, 200)
            contains(body, b"POST /%d?q HTTP/1.1\r\nhost: api.example\r\n" % i)
            contains(body, b"cookie: a=1; b=2\r\n")
            contains(body, b"body%d" % i)
        client.close()


def test_many_cookies(tmp):
    """Browsers send each in a field of its own."""
    cookies = [b"c%d=" % i + b"x" * 240 for i in range(100)]
    with Setup(tmp) as (proxy, _):
        client = Client(proxy)
        status, _, body, _ = client.answer(client.request(get(more=[(b"cookie", c) for c in cookies])))
        equal(status, 200)
        contains(body, b"\r\ncookie: " + b"; ".join(cookies) + b"\r\n")
        client.close()
        equal([e["outcome"] for e in proxy.events("net.exchange", 1)], ["forwarded"])


def test_large_bodies_both_ways(tmp):
    big = os.urandom(2 << 20)
    for name, handler, alpn in (("h1", echo, None), ("h2", serve_h2, ["h2"])):
        folder = os.path.join(tmp, name)
        os.mkdir(folder)
        with Setup(folder, handler, alpn=alpn) as (proxy, _):
            client = Client(proxy)
            stream = client.c.get_next_available_stream_id()
            client.c.send_headers(stream, get(method=b"POST"))
            sent = 0
            while sent < len(big):
                room = min(client.c.local_flow_control_window(stream), client.c.max_outbound_frame_size, len(big) - sent)
                if room == 0:
                    client.flush()
                    client.step()
                    continue
                client.c.send_data(stream, big[sent:sent + room])
                sent += room
            client.c.end_stream(stream)
            client.flush()
            status, _, body, _ = client.answer(stream)
            equal((status, body.endswith(big)), (200, True), name)
            client.close()


def test_expect_continue_in_any_case(tmp):
    """Java's HttpClient says "100-Continue", and waits for the answer for ever."""
    with Setup(tmp, serve_h2, alpn=["h2"]) as (proxy, _):
        client = Client(proxy)
        client.sock.settimeout(patience(20))
        for word in (b"100-continue", b"100-Continue"):
            stream = client.request(get(method=b"POST", more=[(b"content-length", b"4"), (b"expect", word)]), end=False)
            while not any(isinstance(e, client.lib.events.InformationalResponseReceived) and e.stream_id == stream for e in client.events):
                equal(client.step(), True, "the connection stays")
            client.c.send_data(stream, b"body", end_stream=True)
            client.flush()
            equal(client.answer(stream)[0], 200)
        client.close()


def test_trailers_as_grpc_needs_them(tmp):
    with Setup(tmp, serve_h2, alpn=["h2"]) as (proxy, _):
        client = Client(proxy)
        stream = client.request(get(b"/pkg.Service/Call", method=b"POST", more=[(b"te", b"trailers"), (b"content-type", b"application/grpc")]),
                                b"\0\0\0\0\2hi", trailers=[(b"x-checksum", b"7")])
        status, _, body, trailers = client.answer(stream)
        equal(status, 200)
        contains(body, b"te=trailers")
        contains(body, b"content-type=application/grpc")
        equal((trailers[b"grpc-status"], trailers[b"x-checksum"]), (b"0", b"7"))
        client.close()


def test_answers_that_end_while_another_is_being_written_are_whole(tmp):
    """Trailers, and answers that are a head alone, of streams that end while the connection takes nothing."""
    full, served, calls = threading.Event(), threading.Semaphore(0), 90

    def serve(peer):
        request = peer.head()
        if b"/large" not in request:
            peer.send(b"HTTP/1.1 304 Not Modified\r\n\r\n" if b"/bare" in request else
                      b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10000\r\n" + b"x" * 0x10000 + b"\r\n0\r\ngrpc-status: 0\r\n\r\n")
            served.release()
            peer.more()
            return
        size = 20_000_000
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while size > 0:
            if not full.is_set() and not select.select([], [peer.sock], [], 1)[1]:
                full.set()
            piece = min(size, 8192)
            peer.send(bytes(piece))
            size -= piece

    with Setup(tmp, serve) as (proxy, _):
        client = Client(proxy)
        client.c.update_settings({client.lib.settings.SettingCodes.INITIAL_WINDOW_SIZE: 1 << 30})
        client.c.increment_flow_control_window(1 << 30)
        client.request(get(b"/large"))
        equal(full.wait(patience(60)), True, "the connection takes nothing")
        streams = {client.request(get(path)): path for path in [b"/call"] * calls + [b"/bare"] * 5}
        for _ in streams:
            equal(served.acquire(timeout=patience(60)), True, "an answer is on its way")
        got = {stream: client.answer(stream) for stream in streams}
        for stream, path in streams.items():
            status, _, body, trailers = got[stream]
            want = (304, 0, {}) if path == b"/bare" else (200, 0x10000, {b"grpc-status": b"0"})
            equal((status, len(body), trailers), want, f"{path} {stream}")
        client.close()


def test_trailers_that_are_too_large(tmp):
    """Nothing else than what was sent goes out for what does not fit, and the gateway goes on."""
    trailers = [(b"x-%d" % i, b"a" * 4000) for i in range(8)]
    trailers += [(b"x-y", b"b" * (32768 - sum(8 + len(n) + len(v) for n, v in trailers) - 8 - 3 - 8 - 2)), (b"x-z", b"c" * 200)]
    with Setup(tmp, serve_h2, alpn=["h2"]) as (proxy, _):
        client = Client(proxy)
        status, _, body, _ = client.answer(client.request(get(method=b"POST"), b"hi", trailers=trailers))
        equal(status, 400, body)
        status, _, _, came = client.answer(client.request(get(method=b"POST"), b"hi", trailers=trailers[:2]))
        equal((status, came[b"x-1"]), (200, b"a" * 4000))
        client.close()


def test_http1_to_http2(tmp):
    with Setup(tmp, serve_h2, alpn=["h2", "http/1.1"]) as (proxy, upstream):
        for _ in range(5):
            status, body = proxy.get("api.example", "/x?y", sni="api.example", method=b"POST", body=b"hello")
            equal(status, 200)
            contains(body, b":authority=api.example")
            contains(body, b":path=/x?y")
            equal(body.endswith(b"hello"), True)
        equal(len(upstream.heard), 1, "connections to the upstream")
        equal({e["upstream"]["protocol"] for e in proxy.events("net.exchange", 5)}, {"h2"})


def answers_bare(peer):
    """Over HTTP/2: a head, and its end in a frame of its own; 204 and 304 by the path."""
    lib = h2()
    c = lib.connection.H2Connection(lib.config.H2Configuration(client_side=False, header_encoding=None))
    c.initiate_connection()
    peer.send(c.data_to_send())
    while data := peer.sock.recv(65536):
        for e in c.receive_data(data):
            if isinstance(e, lib.events.RequestReceived):
                fields = dict(e.headers)
                status = {b"/204": b"204", b"/304": b"304"}.get(fields[b":path"], b"200")
                c.send_headers(e.stream_id, [(b":status", status), (b"x-path", fields[b":path"])])
                if fields[b":path"] == b"/ok" and fields[b":method"] == b"GET":
                    c.send_data(e.stream_id, b"ok")
                c.end_stream(e.stream_id)
        peer.send(c.data_to_send())


def test_answers_without_a_body_have_none_over_http1(tmp):
    """However their end comes over HTTP/2: what comes behind their heads would be the next answer."""
    requests = ((b"HEAD", b"/ok"), (b"GET", b"/204"), (b"GET", b"/304"), (b"HEAD", b"/304"), (b"GET", b"/ok"))
    with Setup(tmp, answers_bare, alpn=["h2"]) as (proxy, _), proxy.connect_tls("api.example") as sock:
        for method, path in requests:
            sock.sendall(method + b" " + path + b" HTTP/1.1\r\nHost: api.example\r\n\r\n")
            got = head(sock)
            contains(got, b"x-path: " + path + b"\r\n", f"{method} {path}")
            equal(b"transfer-encoding" in got, (method, path) == (b"GET", b"/ok"), f"{method} {path}: {got}")
        equal([e["outcome"] for e in proxy.events("net.exchange", 5)], ["forwarded"] * 5)
    # and over HTTP/2 they end
    folder = os.path.join(tmp, "h2")
    os.mkdir(folder)
    with Setup(folder, answers_bare, alpn=["h2"]) as (proxy, _):
        client = Client(proxy)
        for method, path in requests:
            status, _, body, _ = client.answer(client.request(get(path, method=method)))
            equal((status, body), ({b"/204": 204, b"/304": 304}.get(path, 200), b"ok" if (method, path) == (b"GET", b"/ok") else b""))
        client.close()


def test_faults_without_a_body_have_none(tmp):
    """What a rule answers with status 204, 205 or 304 ends with its head, as any client takes it to."""
    rules = [{"name": str(status), "match": {"host": "api.example", "path": f"/{status}"}, "action": "fault", "fault": {"status": status}} for status in (204, 205, 304)]
    with Setup(tmp, rules=[*rules, {"match": {"host": "api.example"}, "action": "allow"}]) as (proxy, _):
        client = Client(proxy)
        for status in (204, 205, 304):
            with proxy.connect_tls("api.example") as sock:
                for method in (b"GET", b"HEAD"):
                    sock.sendall(method + b" /%d HTTP/1.1\r\nHost: api.example\r\n\r\n" % status + b"GET /next HTTP/1.1\r\nHost: api.example\r\n\r\n")
                    got = head(sock)
                    equal(got.startswith(b"HTTP/1.1 %d " % status), True, got.decode())
                    equal(b"content-length: 0\r\n" in got if (method, status) == (b"GET", 205) else b"content-" not in got, True, got.decode())
                    got = head(sock)
                    contains(got, b"HTTP/1.1 200 ", f"behind {status}")
                    equal(b"/next" in sock.recv(int(got.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])), True)
            code, _, body, _ = client.answer(client.request(get(b"/%d" % status)))
            equal((code, body), (status, b""), "over HTTP/2")
        client.close()
        equal({e["outcome"] for e in proxy.events("net.exchange", 15)}, {"fault", "forwarded"})


def burst(proxy, count, sent=lambda: None):
    """The statuses of @count requests; @sent is called when all are on their way."""
    socks = [proxy.connect_tls("api.example") for _ in range(count)]
    for sock in socks:
        sock.sendall(b"GET /burst HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
    sent()
    statuses = [parse(read_all(sock))[0] for sock in socks]
    for sock in socks:
        sock.close()
    return statuses


def test_a_burst_opens_one_connection_where_it_can_be_shared(tmp):
    """The upstream does not end its first handshake before all requests are there."""
    hold = threading.Event()

    with Setup(tmp, serve_h2, alpn=["h2", "http/1.1"]) as (proxy, upstream):
        wrap = upstream.context.wrap_socket
        upstream.context = type("Slow", (), {"wrap_socket": staticmethod(lambda *a, **k: (hold.wait(20), wrap(*a, **k))[1])})
        equal(burst(proxy, 30, hold.set), [200] * 30)
        equal(len(upstream.heard), 1, "connections to the upstream")
        equal(sum(e["upstream"]["reused"] for e in proxy.events("net.exchange", 30)), 29)


def test_a_burst_to_a_host_that_shares_nothing_waits_once(tmp):
    """HTTP/1: each has its own connection, and an upstream that refuses its handshakes fails each of them."""
    with Setup(tmp) as (proxy, upstream):
        equal(burst(proxy, 10), [200] * 10)
        first = len(upstream.heard)
        equal(2 <= first <= 10, True, first)
    folder = os.path.join(tmp, "refusing")
    os.mkdir(folder)
    with Setup(folder) as (proxy, upstream):
        upstream.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # no certificate
        equal(burst(proxy, 10), [502] * 10)


def flood(proxy, frames):
    """Send @frames after the preface until the proxy ends the connection; did it?"""
    sock = proxy.connect_tls("api.example", alpn=("h2",))
    sock.settimeout(20)
    try:
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        for data in frames:
            sock.sendall(data)
        while sock.recv(65536):
            pass
        return True
    except OSError as error:
        return not isinstance(error, TimeoutError)
    finally:
        sock.close()


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HEAD = bytes([0x82, 0x87, 0x84, 0x41, 11]) + b"api.example"  # GET https / api.example


def test_floods_end_the_connection(tmp):
    many = 20000
    floods = {
        "settings": (frame(4, 0, 0, b"") * 100 for _ in range(many // 100)),
        "ping": (frame(6, 0, 0, b"12345678") * 100 for _ in range(many // 100)),
        "priority": (frame(2, 0, 1, b"\0\0\0\0\0") * 100 for _ in range(many // 100)),
        "empty data": iter([frame(1, 4, 1, HEAD)] + [frame(0, 0, 1, b"") * 100] * (many // 100)),
        "rapid reset": (frame(1, 5, i, HEAD) + frame(3, 0, i, b"\0\0\0\x08") for i in range(1, many, 2)),
        "continuation": iter([frame(1, 0, 1, HEAD)] + [frame(9, 0, 1, b"\0\1a\1b")] * many),
        "header bomb": iter([frame(1, 0, 1, HEAD)] + [frame(9, 0, 1, b"\0\1a\x7f\x81\x7e" + b"x" * 16255)] * 64),
    }
    with Setup(tmp) as (proxy, _):
        for name, frames in floods.items():
            equal(flood(proxy, frames), True, name)
            equal(proxy.get("api.example", sni="api.example")[0], 200, name)


def frames_of(sock):
    """(kind, flags, stream) of each frame that comes."""
    data = b""
    while piece := sock.recv(65536):
        data += piece
        while len(data) >= 9 and len(data) >= (end := 9 + int.from_bytes(data[:3], "big")):
            yield data[3], data[4], int.from_bytes(data[5:9], "big")
            data = data[end:]


def test_a_ping_for_each_answer_is_no_flood(tmp):
    """As gRPC's Go client sends them, to measure its way: many calls, one after the other, over one connection."""
    count, at_once, done = 5000, 50, 0
    with Setup(tmp, rules=[{"match": {"host": "other.example"}, "action": "allow"}]) as (proxy, _), proxy.connect_tls("api.example", alpn=("h2",)) as sock:
        sock.settimeout(patience(20))
        asked = at_once
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + b"".join(frame(1, 5, 2 * i + 1, HEAD) for i in range(at_once)))
        for kind, flags, _ in frames_of(sock):
            say = b""
            equal(kind in (3, 7), False, f"a reset or an end behind {done} answers")
            if kind == 0:
                say += frame(6, 0, 0, b"measures") + frame(8, 0, 0, struct.pack(">I", 500))
            if flags & 1 and kind in (0, 1):
                done += 1
                say += frame(1, 5, 2 * asked + 1, HEAD) if asked < count else b""
                asked += asked < count
            sock.sendall(say)
            if done == count:
                break
        equal(done, count, "answers")


def test_what_is_said_of_refused_requests_does_not_pile_up(tmp):
    """A client that says nothing of the settings opens stream after stream, while it takes nothing of an answer that is being written."""
    full = threading.Event()

    def pour(peer):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while select.select([], [peer.sock], [], 1)[1]:
            peer.sock.send(bytes(8192))
        full.set()
        peer.more()

    pem, root = certificate(os.path.join(tmp, "upstream"), "api.example")
    upstream = Upstream(pour, pem)
    proxy = Proxy(tmp, [{"name": "pour", "match": {"host": "api.example", "path": "/"}, "action": "allow"}], {"api.example": upstream.address}, extra=root)
    before = proxy.peak()
    with proxy.connect_tls("api.example", alpn=("h2",)) as sock:
        sock.settimeout(patience(30))
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0x7fffffff)) + frame(8, 0, 0, struct.pack(">I", 0x7fff0000)) + frame(1, 5, 1, HEAD))
        equal(full.wait(patience(60)), True)
        try:
            for begin in range(3, 2_000_000, 20_000):
                sock.sendall(b"".join(frame(1, 5, stream, b"\x82\x87\x85\xbe") for stream in range(begin, begin + 20_000, 2)))  # GET https / index.html, as before
        except OSError:
            pass  # it may be ended meanwhile
        grown = proxy.peak() - before
    equal(grown < 60 << 10, True, f"{grown} KiB more")
    equal(proxy.close(), 0)
    upstream.close()


def test_a_reset_stream_leaves_the_others_alone(tmp):
    gate = threading.Event()

    def slow(peer):
        while (head := peer.head()) is not None:
            if b"/slow" in head:
                gate.wait(20)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with Setup(tmp, slow) as (proxy, _):
        client = Client(proxy)
        first, second = client.request(get(b"/slow")), client.request(get(b"/quick"))
        equal(client.answer(second)[0], 200)
        client.c.reset_stream(first)
        client.flush()
        equal(client.answer(client.request(get(b"/quick")))[0], 200)
        gate.set()
        client.close()
        proxy.events("net.exchange", 3)


@require("program:h2load")
def test_h2load(tmp):
    """A client of somebody else's, many streams at once: no request fails."""
    import subprocess  # pylint: disable=import-outside-toplevel
    with Setup(tmp) as (proxy, _):
        done = subprocess.run(["h2load", "-n", "600", "-c", "6", "-m", "20", "--connect-to", f"127.0.0.1:{proxy.tls}", "https://api.example/"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
        contains(done.stdout, "600 succeeded, 0 failed, 0 errored, 0 timeout")


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def swallow(peer):
    while (head := peer.head()) is not None:
        peer.body(head)
        peer.send(ANSWER)


def push(client, stream, size):
    """Send @size bytes of a body as its windows allow."""
    while size:
        room = min(client.c.local_flow_control_window(stream), client.c.max_outbound_frame_size, size)
        if room == 0:
            equal(client.step(), True, "the connection goes on")
            continue
        client.c.send_data(stream, b" " * room)
        client.flush()
        size -= room


def fill(client, stream, most):
    """As much of a body as is taken at once, which is less than @most."""
    room = min(client.c.local_flow_control_window(stream), most)
    while room:
        part = min(room, client.c.max_outbound_frame_size)
        client.c.send_data(stream, b" " * part)
        client.flush()
        room -= part


def test_streams_that_wait_for_room_do_not_stop_those_that_have_it(tmp):
    """A few that wait and what is read of their bodies meanwhile must leave the connection's window to the others."""
    rules = [{"name": "json", "match": {"host": "api.example", "json": {"kind": "good"}}, "action": "allow"}]
    mib = 1 << 20
    with Setup(tmp, swallow, rules) as (proxy, _):
        client = Client(proxy)

        def begin(size):
            stream = client.c.get_next_available_stream_id()
            client.c.send_headers(stream, get(method=b"POST", more=[(b"content-length", b"%d" % size), JSON]))
            client.flush()
            return stream

        equal(client.answer(client.request(get(method=b"POST", more=[JSON]), b'{"kind": "good"}'))[0], 200)  # now the windows are known
        full = [begin(30 * mib), begin(30 * mib)]  # of 64
        first = begin(5 * mib)  # goes beyond it
        waiting = [begin(5 * mib) for _ in range(90)]
        for stream in waiting:
            fill(client, stream, 5 * mib - 1)
        push(client, first, 5 * mib - 15)
        while client.c.local_flow_control_window(first) < 15:
            equal(client.step(), True, "the connection goes on")
        client.c.send_data(first, b'{"kind":"good"}', end_stream=True)
        client.flush()
        equal(client.answer(first)[0], 200)
        for stream in full + waiting:
            client.c.reset_stream(stream)
        client.flush()
        equal(client.answer(client.request(get(method=b"POST", more=[JSON]), b'{"kind": "good"}'))[0], 200)
        client.close()


class Pour:
    """Answers each request with as much of @size bytes as its window takes, and /quick with a word; knows how much it has sent, and how many it was asked at once."""

    def __init__(self, size):
        self.size, self.sent, self.asked = size, 0, 0

    def __call__(self, peer):
        lib = h2()
        c = lib.connection.H2Connection(lib.config.H2Configuration(client_side=False, header_encoding=None))
        c.initiate_connection()
        peer.send(c.data_to_send())
        left = {}

        def go_on():
            for stream in list(left):
                while left[stream] and (room := min(c.local_flow_control_window(stream), c.max_outbound_frame_size, left[stream])) > 0:
                    c.send_data(stream, b"x" * room)
                    left[stream] -= room
                    self.sent += room
                    peer.send(c.data_to_send())
                if not left[stream]:
                    c.end_stream(stream)
                    del left[stream]
            peer.send(c.data_to_send())

        while data := peer.sock.recv(65536):
            for e in c.receive_data(data):
                if isinstance(e, lib.events.RequestReceived):
                    quick = dict(e.headers)[b":path"] == b"/quick"
                    self.asked += not quick
                    c.send_headers(e.stream_id, [(b":status", b"200"), (b"content-type", b"text/plain")])
                    left[e.stream_id] = 2 if quick else self.size
                elif isinstance(e, lib.events.StreamReset):
                    left.pop(e.stream_id, None)
            go_on()


def left_lying(proxy, pour, count, size):
    """Connections with @count requests together whose answers nobody takes (they give no window), when the host has sent @size bytes of them."""
    lazy = []
    for i in range(count):
        if i % 90 == 0:
            lazy.append(Client(proxy))
            lazy[-1].c.update_settings({h2().settings.SettingCodes.INITIAL_WINDOW_SIZE: 0})
            lazy[-1].flush()
            lazy[-1].step()
        lazy[-1].request(get(b"/large"))
    wait_until(lambda: pour.asked == count and pour.sent >= size, SECONDS, f"{size} bytes of {count} answers are sent")
    return lazy


def test_answers_that_nobody_takes_do_not_stop_others(tmp):
    """Far more of them than the gateway holds, over five connections to the host: another one comes over the same ones all the same, and what is held is bounded."""
    pour = Pour(1 << 20)
    with Setup(tmp, pour, alpn=["h2"]) as (proxy, upstream):
        lazy, other = left_lying(proxy, pour, 450, 70 << 20), Client(proxy)
        for _ in range(20):
            equal(other.answer(other.request(get(b"/quick")))[::2], (200, b"xx"))
        equal(other.answer(other.request(get(b"/large")))[::2], (200, b"x" * (1 << 20)))
        equal(len(upstream.heard), 5, "connections to the host")
        equal(pour.sent < 90 << 20, True, f"{pour.sent} bytes were sent by the host")
        print(f"peak memory {proxy.peak()} KiB")
        equal(proxy.peak() < 220 << 10, True, f"peak memory {proxy.peak()} KiB")
        for client in lazy:
            client.close()
        equal(other.answer(other.request(get(b"/large")))[0], 200)
        other.close()


def test_answers_that_have_come_whole_count_until_they_are_taken(tmp):
    pour = Pour(250_000)
    with Setup(tmp, pour, alpn=["h2"]) as (proxy, _):
        lazy, other = left_lying(proxy, pour, 450, 70 << 20), Client(proxy)
        for _ in range(20):
            equal(other.answer(other.request(get(b"/quick")))[::2], (200, b"xx"))
        equal(pour.sent < 90 << 20, True, f"{pour.sent} bytes were sent by the host")
        for client in lazy:
            client.close()
        other.close()


def test_a_client_that_is_slower_than_the_host_gets_all_of_it(tmp):
    """Something always waits to be sent to it."""
    size = 24 << 20

    def give(peer):
        peer.head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        peer.send(b"x" * size)

    with Setup(tmp, give) as (proxy, _):
        client = Client(proxy)
        stream, got = client.request(get()), 0
        while not any(isinstance(e, client.lib.events.StreamEnded) for e in client.events):
            equal(client.step(), True, f"the connection goes on behind {got} bytes")
            got += sum(len(e.data) for e in client.events if isinstance(e, client.lib.events.DataReceived))
            reset = [e for e in client.events if isinstance(e, client.lib.events.StreamReset)]
            equal(reset, [], f"behind {got} bytes")
            client.events = [e for e in client.events if isinstance(e, client.lib.events.StreamEnded)]
        equal((got, stream), (size, 1))
        client.close()


def test_connections_that_nobody_uses_are_bounded(tmp):
    """One to each of more hosts than are kept: the oldest are ended, the newest is used again."""
    lives = []

    def serve(peer):
        lives.append(peer)
        peer.sock.settimeout(patience(100))  # nor does the host end them
        try:
            serve_h2(peer)
        finally:
            lives.remove(peer)

    names = [f"h{i}.many.example" for i in range(280)]
    pem, root = certificate(os.path.join(tmp, "upstream"), "*.many.example")
    upstream = Upstream(serve, pem, ["h2"])
    proxy = Proxy(tmp, [{"name": "many", "match": {"host": ".many.example"}, "action": "allow"}], {name: upstream.address for name in names}, extra=root)
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        equal(set(pool.map(lambda name: proxy.get(name, sni=name)[0], names[:250])), {200})
    for name in [*names[250:], names[-1]]:
        equal(proxy.get(name, sni=name)[0], 200)
    equal(len(upstream.heard), len(names))
    wait_until(lambda: len(lives) <= 257, SECONDS / 4, "the oldest are ended")
    equal(proxy.close(), 0)
    upstream.close()


def test_connections_in_use_are_bounded_too(tmp):
    """Where all places are taken by hosts that are being asked, the next host is asked over HTTP/1; a place that nobody needs any more goes to the next."""
    go = threading.Event()
    asked = threading.Semaphore(0)

    def serve(peer):
        asked.release()
        equal(go.wait(patience(100)), True)
        if peer.sock.selected_alpn_protocol() == "h2":
            serve_h2(peer)
        else:
            echo(peer)

    def get_each(group):
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            answers = []
            for name in group:  # one after the other is on its way, and none is answered before all are
                answers.append(pool.submit(lambda name=name: proxy.get(name, sni=name)[0]))
                equal(asked.acquire(timeout=patience(60)), True)
            go.set()
            equal([answer.result(patience(60)) for answer in answers], [200] * len(group))
        go.clear()

    names = [f"h{i}.many.example" for i in range(6)]
    pem, root = certificate(os.path.join(tmp, "upstream"), "*.many.example")
    upstream = Upstream(serve, pem, ["h2", "http/1.1"])
    proxy = Proxy(tmp, [{"name": "many", "match": {"host": ".many.example"}, "action": "allow"}], {name: upstream.address for name in names}, extra=root, shared=2)
    get_each(names[:4])
    get_each(names[4:5])
    used = {e["host"]: e["upstream"]["protocol"] for e in proxy.events("net.exchange", 5)}
    equal([used[name] for name in names[:5]], ["h2", "h2", "http/1.1", "http/1.1", "h2"])
    equal(proxy.close(), 0)
    upstream.close()


def test_a_host_that_takes_few_streams_gets_another_connection(tmp):
    """What it would not take beside those under way goes over one of its own, at once."""
    held, go = threading.Semaphore(0), threading.Event()

    def serve(peer):
        lib, late = h2(), []
        c = lib.connection.H2Connection(lib.config.H2Configuration(client_side=False, header_encoding=None))
        c.local_settings = lib.settings.Settings(client=False, initial_values={lib.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
        c.initiate_connection()
        peer.send(c.data_to_send())
        while data := peer.sock.recv(65536):
            for e in c.receive_data(data):
                if not isinstance(e, lib.events.RequestReceived):
                    continue
                if dict(e.headers)[b":path"] == b"/slow":
                    late.append(e.stream_id)
                    held.release()
                else:
                    c.send_headers(e.stream_id, [(b":status", b"200")], end_stream=True)
            peer.send(c.data_to_send())
            if len(late) == 2:
                go.wait(patience(60))
                for stream in late:
                    c.send_headers(stream, [(b":status", b"200")], end_stream=True)
                peer.send(c.data_to_send())
                late.clear()

    with Setup(tmp, serve, alpn=["h2"]) as (proxy, upstream):
        client = Client(proxy)
        equal(client.answer(client.request(get(b"/quick")))[0], 200)
        slow = [client.request(get(b"/slow")) for _ in range(2)]
        for _ in slow:
            equal(held.acquire(timeout=patience(20)), True, "the host has it")
        equal([client.answer(client.request(get(b"/quick")))[0] for _ in range(3)], [200] * 3)
        equal(len(upstream.heard), 2, "connections to the host")
        go.set()
        equal([client.answer(stream)[0] for stream in slow], [200] * 2)
        client.close()


def test_bodies_that_nobody_read_leave_the_window_to_others(tmp):
    """Refused by their heads, with some of their bodies there: the connection takes as much afterwards as before."""
    with Setup(tmp, swallow, [{"name": "ok", "match": {"host": "api.example", "path": "/ok"}, "action": "allow"}]) as (proxy, _):
        client = Client(proxy)
        for _ in range(600):  # more than the window of the connection together
            stream = client.c.get_next_available_stream_id()
            client.c.send_headers(stream, get(b"/no", method=b"POST"))
            client.c.send_data(stream, bytes(15000))
            client.flush()
            status, *_ = client.answer(stream)
            equal(status, 403)
            client.events.clear()
        stream = client.c.get_next_available_stream_id()
        client.c.send_headers(stream, get(b"/ok", method=b"POST"))
        push(client, stream, 9 << 20)
        client.c.end_stream(stream)
        client.flush()
        equal(client.answer(stream)[0], 200)
        client.close()
