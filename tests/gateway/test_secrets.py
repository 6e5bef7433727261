# SPDX-License-Identifier: Apache-2.0
"""Secrets through the gateway's core: put in only where they belong, and nowhere on the way back."""

import base64
import gzip
import json
import os
import threading
import time
import urllib.parse

from lib.case import contains, equal
from lib.cay import wait_until
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, echo, fixed, frame, head, parse

QUICK = True
AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
VALUE = "sk_live_51Hxyz/ABCdef+0123456789"
PLACEHOLDER = "sk_live_77Aabc/XYZxyz+9876543210"
ALLOW = [{"name": "api", "match": {"host": ["api.example", "other.example"]}, "action": "allow"}]
BINDING = [{"name": "KEY", "hosts": ["api.example"], "in": [{"header": "authorization"}, {"query": "key"}, {"json": "/auth/*/token"}, {"form": "client_secret"}]}]


class Setup:
    """A proxy with one secret bound to api.example; both hosts are the same upstream, over TLS and not."""

    def __init__(self, tmp, handler=echo, value=VALUE, config=None, **of_the_rule):
        pem, root = certificate(os.path.join(tmp, "upstream"), "api.example", "other.example")
        self.upstream, self.bare = Upstream(handler, pem), Upstream(handler)
        self.proxy = Proxy(tmp, [{**ALLOW[0], **of_the_rule}] + [{"name": "plain", "match": {"host": "plain.example"}, "action": "allow"}],
                           {"api.example": self.upstream.address, "other.example": self.upstream.address, "plain.example": self.bare.address}, extra=root,
                           bindings=[{**BINDING[0], "hosts": ["api.example", "plain.example"]}],
                           secrets=[{"name": "KEY", "value": value, "placeholder": PLACEHOLDER}], **(config or {}))

    def __enter__(self):
        return self.proxy, self.upstream

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()
        self.bare.close()


def nowhere(data, value=VALUE):
    """The value is in @data in no rendering."""
    data = data if isinstance(data, bytes) else data.encode()
    inner = base64.b64encode(value.encode())[4:-8]
    for form in (value.encode(), urllib.parse.quote(value, safe="").encode(), value.replace("/", "\\/").encode(), value.encode().hex().encode(), inner):
        assert form not in data, form


def events(proxy, count=1):
    found = proxy.events("net.exchange", count)
    nowhere(json.dumps(found))
    return found


def test_it_is_put_into_the_named_header_and_scrubbed_from_the_echo(tmp):
    with Setup(tmp) as (proxy, upstream):
        status, body = proxy.get("api.example", sni="api.example", headers=f"Authorization: Bearer {PLACEHOLDER}\r\n".encode())
        equal(status, 200)
        contains(upstream.text(), b"Bearer " + VALUE.encode())
        contains(body, b"Bearer " + PLACEHOLDER.encode())
        nowhere(body)
        contains(json.dumps(events(proxy)), PLACEHOLDER)


def test_basic_authorization(tmp):
    with Setup(tmp) as (proxy, upstream):
        given = base64.b64encode(f"user:{PLACEHOLDER}".encode())
        status, body = proxy.get("api.example", sni="api.example", headers=b"Authorization: Basic " + given + b"\r\n")
        equal(status, 200)
        contains(upstream.text(), base64.b64encode(f"user:{VALUE}".encode()))
        nowhere(body)
        events(proxy)


def test_query_and_body_fields(tmp):
    with Setup(tmp) as (proxy, upstream):
        quoted = urllib.parse.quote(PLACEHOLDER, safe="")
        equal(proxy.get("api.example", f"/?a=1&key={quoted}&b=2", sni="api.example")[0], 200)
        contains(upstream.text(), ("/?a=1&key=" + urllib.parse.quote(VALUE, safe="") + "&b=2").encode())
        body = json.dumps({"auth": [{"token": "x " + PLACEHOLDER}], "n": 1}).encode()
        status, answer = proxy.get("api.example", sni="api.example", method=b"POST", body=body)
        equal(status, 200)
        contains(upstream.text(), ("x " + VALUE).encode())
        nowhere(answer)
        events(proxy, 2)


def test_numbers_beside_a_secret_in_a_body_go_out_as_they_came(tmp):
    numbers = b'"amount":19.99,"x":0.1,"n":1e2,"z":1.10,"id":18446744073709551615'
    with Setup(tmp) as (proxy, upstream):
        body = b'{"auth":[{"token":"' + PLACEHOLDER.encode() + b'"},{"token":1.50}],' + numbers + b"}"
        equal(proxy.get("api.example", sni="api.example", method=b"POST", body=body)[0], 200)
        contains(upstream.text(), b'{"auth":[{"token":"' + VALUE.encode() + b'"},{"token":1.50}],' + numbers + b"}")


def shown(text, value):
    """Five characters of @value in a row, behind its kept prefix, that @text has; or None."""
    start = value.rindex("_") + 1 if "_" in value else 3
    return next((value[i:i + 5] for i in range(start, len(value) - 4) if value[i:i + 5] in text), None)


def test_a_body_that_its_event_cuts_within_a_secret(tmp):
    """Of a body the event has 64 KiB, which may end anywhere in what was put in: in JSON, in a form, in bytes that are no text."""
    form = b"Content-Type: application/x-www-form-urlencoded\r\n"
    bodies = []
    for before in range(1, len(VALUE)):
        head, tail = '{"pad":"', '","auth":[{"token":"'
        bodies.append((b"", (head + "x" * (65536 - before - len(head) - len(tail)) + tail + PLACEHOLDER + '"}]}').encode()))
    for before in (6, 20, 31):
        tail = b"&client_secret="
        bodies.append((form, b"pad=" + b"x" * (65536 - before - 4 - len(tail)) + tail + urllib.parse.quote(PLACEHOLDER, safe="").encode()))
        bodies.append((form, b"pad=\xff" + b"x" * (65536 - before - 5 - len(tail)) + tail + urllib.parse.quote(PLACEHOLDER, safe="").encode()))
    with Setup(tmp) as (proxy, upstream):
        for number, (headers, body) in enumerate(bodies):
            equal(proxy.get("api.example", f"/{number}", sni="api.example", method=b"POST", headers=headers, body=body)[0], 200)
        contains(upstream.text(), b'"' + VALUE.encode() + b'"')
        for event in events(proxy, len(bodies)):
            told = event["request"]
            text = told["body"].encode() if "body" in told else base64.b64decode(told["body_base64"])
            equal((len(text), told["body_cut"], shown(urllib.parse.unquote_to_bytes(text)[-80:].decode(errors="replace"), VALUE)), (65536, True, None), event["path"])


def test_a_value_that_json_escapes_is_in_no_body_of_an_event(tmp):
    """The event's text escapes a second time what the body escapes once."""
    value = 'pw-51Hxyz"ABCde\\f0123456789'
    with Setup(tmp, value=value) as (proxy, upstream):
        status, answer = proxy.get("api.example", sni="api.example", method=b"POST", body=json.dumps({"auth": [{"token": PLACEHOLDER}]}).encode())
        equal((status, shown(answer.decode(), value)), (200, None))
        contains(upstream.text(), json.dumps(value).encode())
        told = proxy.events("net.exchange", 1)[0]
        token = json.loads(told["request"]["body"])["auth"][0]["token"]
        equal((len(token), shown(token, value), shown(told["response"]["body"], value)), (len(value), None, None))


def test_a_value_of_another_length_after_rotation(tmp):
    value = "rotated_Key/0123456789abcdefghijKLMNOP_and_longer"
    with Setup(tmp, value=value) as (proxy, upstream):
        status, body = proxy.get("api.example", sni="api.example", headers=f"Authorization: Bearer {PLACEHOLDER}\r\n".encode())
        equal(status, 200)
        contains(upstream.text(), value.encode())
        nowhere(body, value)
        nowhere(json.dumps(proxy.events("net.exchange", 1)), value)


MISPLACED = {
    "another header": ("api.example", "/", b"X-Token: %s\r\n", b""),
    "another query parameter": ("api.example", "/?token=%s", b"", b""),
    "the path": ("api.example", "/%s", b"", b""),
    "another host": ("other.example", "/", b"Authorization: Bearer %s\r\n", b""),
    "a body that is no JSON": ("api.example", "/", b"", b"token=%s"),
    "another field of a body": ("api.example", "/", b"", b'{"token": "%s"}'),
    "base64": ("other.example", "/", b"Authorization: Basic " + base64.b64encode(b"ab:" + PLACEHOLDER.encode()) + b"\r\n", b""),
}


def test_a_placeholder_elsewhere_stops_the_request(tmp):
    with Setup(tmp) as (proxy, upstream):
        for what, (host, path, headers, body) in MISPLACED.items():
            quoted = urllib.parse.quote(PLACEHOLDER, safe="")
            status, answer = proxy.get(host, path.replace("%s", quoted), sni=host, headers=headers.replace(b"%s", PLACEHOLDER.encode()),
                                       method=b"POST" if body else b"GET", body=body.replace(b"%s", PLACEHOLDER.encode()))
            equal(status, 403, what)
            contains(answer, b'"code":"secret"', what)
        equal(upstream.text().count(b"HTTP/1.1"), 0, "what the upstream heard")
        found = proxy.events("secret.misplaced", len(MISPLACED))
        equal({e["name"] for e in found}, {"KEY"})


def test_a_streamed_body_is_cut_before_the_placeholder_leaves(tmp):
    with Setup(tmp) as (proxy, upstream):
        half = len(PLACEHOLDER) // 2
        chunks = [b"a" * 5000, PLACEHOLDER[:half].encode(), PLACEHOLDER[half:].encode(), b"b" * 10]
        data = b"POST / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        data += b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
        status, _ = parse(proxy.send(data, "other.example"))
        equal(status, 403)
        assert PLACEHOLDER[:half].encode() not in upstream.text()


def test_a_rule_lets_it_pass_in_a_body(tmp):
    """As it is, to any host; held bodies, streamed ones, and one with a place for the secret too. In a head it stops the request all the same."""
    quoted = json.dumps({"auth": [{"token": "x " + PLACEHOLDER}], "said": f"KEY={PLACEHOLDER}"}).encode()
    with Setup(tmp, placeholders="pass") as (proxy, upstream):
        for host, body in (("other.example", b"KEY=" + PLACEHOLDER.encode()), ("api.example", quoted)):
            equal(proxy.get(host, sni=host, method=b"POST", body=body)[0], 200)
            contains(upstream.text(), b"KEY=" + PLACEHOLDER.encode())
        contains(upstream.text(), b"x " + VALUE.encode())
        half = len(PLACEHOLDER) // 2
        chunks = [b"a" * 5000, PLACEHOLDER[:half].encode(), PLACEHOLDER[half:].encode(), b"b" * 10]
        data = b"POST /stream HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        data += b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
        equal(parse(proxy.send(data, "other.example"))[0], 200)
        found = proxy.events("secret.misplaced", 3)
        equal({(e["name"], e["where"], e["passed"]) for e in found}, {("KEY", "body", True)})
        before = len(upstream.heard)
        for what in ("another header", "another query parameter", "the path", "another host"):
            host, path, headers, body = MISPLACED[what]
            equal(proxy.get(host, path.replace("%s", urllib.parse.quote(PLACEHOLDER, safe="")), sni=host, headers=headers.replace(b"%s", PLACEHOLDER.encode()))[0], 403, what)
        equal(len(upstream.heard), before)
        equal([e["passed"] for e in proxy.events("secret.misplaced", 7)[3:]], [False] * 4)


def test_a_body_that_breaks_off_behind_a_placeholder_is_told(tmp):
    """Where it may pass it has passed, whether its end came or not."""
    with Setup(tmp, placeholders="pass") as (proxy, upstream):
        with proxy.connect_tls("other.example") as sock:
            sock.sendall(b"POST /stream HTTP/1.1\r\nHost: other.example\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n"
                         % (len(PLACEHOLDER) + 100, PLACEHOLDER.encode() + b"a" * 100))
        equal([(e["name"], e["where"], e["passed"]) for e in proxy.events("secret.misplaced", 1)], [("KEY", "body", True)])
        proxy.events("net.exchange", 1)
        equal(len(proxy.events("secret.misplaced")), 1)
        assert upstream.heard


def test_no_room_for_a_secret_is_worth_another_try(tmp):
    with Setup(tmp, config={"room": 0}) as (proxy, upstream):
        equal(proxy.get("api.example", sni="api.example", method=b"POST", body=json.dumps({"auth": [{"token": PLACEHOLDER}]}).encode())[0], 503)
        equal(upstream.text(), b"")


def test_without_tls_it_never_leaves(tmp):
    with Setup(tmp) as (proxy, _):
        status, _ = proxy.get("plain.example", headers=f"Authorization: Bearer {PLACEHOLDER}\r\n".encode())
        equal(status, 403)


def test_what_a_host_tells_without_tls_is_scrubbed(tmp):
    """It may have got the secret over TLS."""
    with Setup(tmp, fixed(b"HTTP/1.1 200 OK\r\nX-Told: %s\r\nContent-Length: %d\r\n\r\n%s" % (VALUE.encode(), len(VALUE), VALUE.encode()))) as (proxy, _):
        answer = proxy.send(b"GET / HTTP/1.1\r\nHost: plain.example\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")
        contains(answer, b"x-told: " + PLACEHOLDER.encode() + b"\r\n")
        equal(parse(answer), (200, PLACEHOLDER.encode()))
        contains(json.dumps(events(proxy)), '["accept-encoding", "identity"]')
    folder = os.path.join(tmp, "compressed")
    os.mkdir(folder)
    with Setup(folder, compressing) as (proxy, _):
        equal(proxy.get("plain.example")[0], 502)


def unchunked(raw):
    """What came of a body so far."""
    whole = b""
    while b"\r\n" in raw:
        size, _, raw = raw.partition(b"\r\n")
        whole += raw[:int(size, 16)]
        raw = raw[int(size, 16) + 2:]
    return whole


def reflecting(peer):
    """Tells the secret in every way that a server could: headers, split chunks, trailers."""
    while (head := peer.head()) is not None:
        peer.body(head)
        secret = head.split(b"Bearer ")[1].split(b"\r\n")[0] if b"Bearer " in head else head.lower().split(b"authorization: ")[1].split(b"\r\n")[0]
        body = [b"raw " + secret[:7], secret[7:] + b" json " + secret.replace(b"/", b"\\/"), b" quoted " + urllib.parse.quote_from_bytes(secret, safe="").encode(),
                b" base64 " + base64.b64encode(b"x" + secret), b" hex " + secret.hex().encode()]
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nLocation: https://api.example/?k=" + secret + b"\r\nTrailer: X-T\r\n\r\n")
        for part in body:
            peer.send(b"%x\r\n%s\r\n" % (len(part), part))
        peer.send(b"0\r\nX-T: " + secret + b"\r\n\r\n")


def test_every_reflection_is_scrubbed(tmp):
    with Setup(tmp, reflecting) as (proxy, _):
        request = b"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nTE: trailers\r\nAuthorization: Bearer " + PLACEHOLDER.encode() + b"\r\n\r\n"
        answer = proxy.send(request, "api.example")
        contains(answer, b"k=" + PLACEHOLDER.encode())
        contains(answer, b"x-t: " + PLACEHOLDER.encode())
        nowhere(answer)
        _, body = parse(answer)
        contains(body, b"raw " + PLACEHOLDER.encode())
        nowhere(body)
        events(proxy)


def test_an_answer_that_pauses_is_there_as_far_as_it_goes(tmp):
    """However it ends there: the host may be waiting for what the program says to it. Of a secret that it is in the middle of eleven characters are shown at most."""
    secret, hidden = VALUE.encode(), PLACEHOLDER.encode()
    got, come = b"", threading.Condition()

    def pausing(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            said = b""
            for piece in (b"hello s", b"k_live_5? ", secret[:12], secret[12:] + b"7", b"%73", secret[:25], secret[25:]):
                said += piece
                peer.send(b"%x\r\n%s\r\n" % (len(piece), piece))
                with come:
                    if not come.wait_for(lambda: len(got) >= len(said), patience(10)):  # pylint: disable=cell-var-from-loop
                        return
            peer.send(b"0\r\n\r\n")

    with Setup(tmp, pausing) as (proxy, _):
        with proxy.connect_tls("api.example") as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
            head(sock)
            raw = b""
            while data := sock.recv(65536):
                raw += data
                with come:
                    got = unchunked(raw)
                    come.notify_all()
    equal(got, b"hello sk_live_5? " + secret[:12] + hidden[12:] + b"7%73" + hidden)


def test_a_request_that_pauses_is_there_as_far_as_it_goes(tmp):
    """The program may be waiting for what the host says to it. A placeholder that comes in two parts stops it all the same."""
    def listening(peer):
        peer.head()
        while unchunked(peer.rest) != b"hello s":
            if not peer.more():
                return
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nheard\r\n")
        while peer.more():
            pass

    with Setup(tmp, listening) as (proxy, upstream):
        with proxy.connect_tls("other.example") as sock:
            sock.sendall(b"POST / HTTP/1.1\r\nHost: other.example\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nhello s\r\n")
            contains(head(sock), b"200 OK")
            for part in (PLACEHOLDER[:20], PLACEHOLDER[20:]):
                sock.sendall(b"%x\r\n%s\r\n" % (len(part), part.encode()))
                if part == PLACEHOLDER[:20]:
                    wait_until(lambda: PLACEHOLDER[:20].encode() in upstream.text(), 20, "the beginning arrives")
            while sock.recv(65536):
                pass
        equal(proxy.events("secret.misplaced", 1)[0]["where"], "body")
        equal(PLACEHOLDER[20:].encode() in upstream.text(), False)


def compressing(peer):
    while (head := peer.head()) is not None:
        body = gzip.compress(head)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_a_compressed_answer_that_was_not_asked_for_is_not_shown(tmp):
    with Setup(tmp, compressing) as (proxy, upstream):
        status, body = proxy.get("api.example", sni="api.example", headers=f"Authorization: {PLACEHOLDER}\r\nAccept-Encoding: gzip\r\n".encode())
        contains(upstream.text().lower(), b"accept-encoding: identity")
        equal(status, 502)
        nowhere(body)
        nowhere(gzip.compress(body))


def test_form_fields(tmp):
    """application/x-www-form-urlencoded: into the named field, whatever else the form holds; anywhere else it is stopped."""
    form = b"Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
    quoted = urllib.parse.quote(PLACEHOLDER, safe="").encode()
    with Setup(tmp) as (proxy, upstream):
        body = b"grant=a+b&client_secret=x-" + quoted + b"&empty=&odd&client_secret=" + quoted.replace(b"A", b"%41")
        status, answer = proxy.get("api.example", "/token", sni="api.example", method=b"POST", headers=form, body=body)
        equal(status, 200, answer)
        value = urllib.parse.quote(VALUE, safe="").encode()
        contains(upstream.text(), b"\r\n\r\ngrant=a+b&client_secret=x-" + value + b"&empty=&odd&client_secret=" + value)
        nowhere(answer)
        before = upstream.text().count(b"HTTP/1.1")
        for headers, text in ((form, b"other=" + quoted), (form, quoted + b"=client_secret"), (form + b"Content-Encoding: gzip\r\n", b"client_secret=" + quoted),
                              (b"Content-Type: text/plain\r\n", b"client_secret=" + quoted)):
            status, answer = proxy.get("api.example", sni="api.example", method=b"POST", headers=headers, body=text)
            equal((status, b'"code":"secret"' in answer), (403, True), text)
        equal(upstream.text().count(b"HTTP/1.1"), before)
        events(proxy, 5)


def test_a_head_that_its_secrets_make_too_large(tmp):
    """It is answered and told as it came; so is a long query that many secrets could stand in."""
    with Setup(tmp, value="v" * 4000) as (proxy, upstream):
        header = b"Authorization: " + PLACEHOLDER.encode() * 20 + b"\r\n"
        equal(proxy.get("api.example", sni="api.example", headers=header)[0], 413)
        equal(proxy.get("api.example", "/?key=" + urllib.parse.quote(PLACEHOLDER, safe="") * 20, sni="api.example")[0], 413)
        basic = b"Authorization: Basic " + base64.b64encode(PLACEHOLDER.encode() * 20) + b"\r\n"
        equal(proxy.get("api.example", sni="api.example", headers=basic)[0], 413)
        equal(upstream.text(), b"")
        told = events(proxy, 3)
        contains(json.dumps(told[0]["request"]["headers"]), PLACEHOLDER * 20)
        contains(told[1]["query"], "key=")
    beside = os.path.join(tmp, "beside")
    os.mkdir(beside)
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    names = [f"KEY{i}" for i in range(60)]
    proxy = Proxy(beside, ALLOW, {"api.example": upstream.address}, extra=root, bindings=[{"name": name, "hosts": ["api.example"], "in": [{"query": name}]} for name in names],
                  secrets=[{"name": name, "value": VALUE[:-2] + f"{i:02}", "placeholder": PLACEHOLDER[:-2] + f"{i:02}"} for i, name in enumerate(names)])
    equal(proxy.get("api.example", "/?long=" + "x" * 6000, sni="api.example")[0], 200)
    equal(proxy.close(), 0)
    upstream.close()


WS = (b"GET /ws HTTP/1.1\r\nHost: api.example\r\nAuthorization: Bearer " + PLACEHOLDER.encode() + b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")


def speaking(pieces):
    """Agrees to a WebSocket, tells the secret back in a header, then sends @pieces of bytes, one write each, and listens."""
    def handler(peer):
        request = peer.head()
        secret = request.split(b"Bearer ")[1].split(b"\r\n")[0]
        peer.send(AGREED + b"X-Told: " + secret + b"\r\n\r\n")
        for piece in pieces:
            peer.send(piece)
        while peer.more():
            peer.rest = b""
    return handler


def messages(sock, count):
    """[(opcode, payload)] of @count whole messages and control frames, however they were cut; fewer when the connection ends."""
    found, message, data = [], [0, b""], b""
    while len(found) < count:
        piece = sock.recv(65536)
        if not piece:
            break
        data += piece
        while len(data) >= 2:
            short, at = data[1] & 127, 2
            wide = {126: 2, 127: 8}.get(short, 0)
            size = int.from_bytes(data[2:2 + wide], "big") if wide else short
            at += wide
            if len(data) < at + size:
                break
            op, fin, payload, data = data[0] & 15, data[0] & 128, data[at:at + size], data[at + size:]
            if op >= 8:
                found.append((op, payload))
                continue
            message = [op or message[0], (b"" if op else message[1]) + payload]
            if fin:
                found.append(tuple(message))
    return found


def payloads(data):
    """What short frames hold, without control frames."""
    found = b""
    while len(data) >= 2 and len(data) >= 2 + data[1]:
        found += data[2:2 + data[1]] if data[0] & 15 < 8 else b""
        data = data[2 + data[1]:]
    return found


def converse(tmp, pieces, count):
    """What a WebSocket client gets of @pieces, and the exchange's event."""
    with Setup(tmp, speaking(pieces)) as (proxy, upstream):
        with proxy.connect_tls("api.example") as sock:
            sock.sendall(WS)
            told = head(sock)
            contains(told, b"101 Switching")
            contains(told.lower(), b"x-told: " + PLACEHOLDER.lower().encode())
            got = messages(sock, count)
        contains(upstream.text(), b"Bearer " + VALUE.encode())
        equal(b"deflate" in upstream.text(), False)
        event = events(proxy)[0]
    nowhere(b" ".join(payload for _, payload in got) + told)
    return got, event


def test_websocket_messages_are_scrubbed_however_they_are_cut(tmp):
    secret, hidden = VALUE.encode(), PLACEHOLDER.encode()
    half = len(secret) // 2
    whole = frame(1, b"before " + secret + b" after")
    long = b"x" * 70000 + secret + b"y" * 70000
    pieces = [whole,
              frame(1, b"a " + secret[:half], fin=False) + frame(9, b"ping " + secret) + frame(0, secret[half:half + 3], fin=False) + frame(0, secret[half + 3:] + b" z"),
              *[bytes([b]) for b in frame(2, b"bytewise " + secret)],
              frame(1, b'{"key": "' + secret.replace(b"/", b"\\/") + b'"}'), frame(1, base64.b64encode(b"xy" + secret)), frame(1, b""), frame(2, long), frame(8, b"\x03\xe8")]
    got, event = converse(tmp, pieces, 9)
    equal(got[0], (1, b"before " + hidden + b" after"))
    equal(got[1:3], [(9, b"ping " + hidden), (1, b"a " + hidden + b" z")])
    equal(got[3], (2, b"bytewise " + hidden))
    equal(got[4], (1, b'{"key": "' + hidden.replace(b"/", b"\\/") + b'"}'))
    equal((len(base64.b64decode(got[5][1])), got[6], got[7], got[8]), (2 + len(secret), (1, b""), (2, long.replace(secret, hidden)), (8, b"\x03\xe8")))
    equal((event["outcome"], event["websocket"]["received_messages"]), ("forwarded", 7))


def test_a_secret_that_is_spread_over_messages(tmp):
    """No message waits for the next; of a secret that several of them hold at most four characters are shown, wherever it is cut, and the connection goes on."""
    forms = {"raw": (VALUE.encode(), PLACEHOLDER.encode()), "hex": (VALUE.encode().hex().encode(), PLACEHOLDER.encode().hex().encode()),
             "percent": (urllib.parse.quote(VALUE, safe="").encode(), urllib.parse.quote(PLACEHOLDER, safe="").encode()),
             "JSON": (VALUE.replace("/", "\\/").encode(), PLACEHOLDER.replace("/", "\\/").encode())}
    for number, (name, (secret, hidden)) in enumerate(forms.items()):
        cuts = [[secret[:20], secret[20:]], [secret[:11], secret[11:12], secret[12:]], [bytes([b]) for b in secret], [secret[:-1], secret[-1:]], [b"x" + secret[:1], secret[1:]]]
        for cut, pieces in enumerate(cuts):
            folder = os.path.join(tmp, f"{number}-{cut}")
            os.mkdir(folder)
            # in between there is what belongs to no message of either kind
            sent = [frame(9, b"ping")] + [f for p in pieces for f in (frame(1, p), frame(9, b"ping"))] + [frame(2, b"goes on"), frame(8, b"")]
            got, event = converse(folder, sent, len(sent))
            said = b"".join(payload for op, payload in got if op == 1)
            equal([op for op, _ in got], [9] + [1, 9] * len(pieces) + [2, 8], f"{name} {cut}")
            shown = sum(a == b != c for a, b, c in zip(said[-len(secret):], secret, hidden))
            equal((len(said), shown <= 4, event["outcome"]), (sum(map(len, pieces)), True, "forwarded"), f"{name} {cut}: {said}")


def test_a_message_that_begins_as_a_secret_is_not_held_back(tmp):
    """It is there before the next one is sent; what is not certain, and what is no secret, is as it was."""
    for number, text in enumerate((b"sk_live_", b"sk_live_51Hx", b"x sk_live_51Hx!", VALUE.encode()[:20])):
        folder = os.path.join(tmp, str(number))
        os.mkdir(folder)
        with Setup(folder, speaking([frame(1, text)])) as (proxy, _):
            with proxy.connect_tls("api.example") as sock:
                sock.sendall(WS)
                head(sock)
                equal(messages(sock, 1), [(1, text if number < 3 else PLACEHOLDER.encode()[:20])])


def test_a_message_that_pauses_is_there_as_far_as_it_goes(tmp):
    """As an answer does: the host may be waiting for what the program says to it."""
    secret, hidden = VALUE.encode(), PLACEHOLDER.encode()
    got, come = b"", threading.Condition()

    def pausing(peer):
        peer.head()
        peer.send(AGREED + b"\r\n")
        said = b""
        for op, piece in ((1, b"hello s"), (0, b"k_live_5? "), (0, secret[:12]), (0, secret[12:])):
            said += piece
            peer.send(frame(op, piece, fin=False))
            with come:
                if not come.wait_for(lambda: len(got) >= len(said), patience(10)):  # pylint: disable=cell-var-from-loop
                    return
        peer.send(frame(0, b"") + frame(8, b""))

    with Setup(tmp, pausing) as (proxy, _):
        with proxy.connect_tls("api.example") as sock:
            sock.sendall(WS)
            head(sock)
            raw = b""
            while data := sock.recv(65536):
                raw += data
                with come:
                    got = payloads(raw)
                    come.notify_all()
    equal(got, b"hello sk_live_5? " + secret[:12] + hidden[12:])


def repeating(then=b""):
    """Agrees to a WebSocket and repeats each short frame, a ping as a pong; behind the last ones it says @then."""
    def handler(peer):
        peer.head()
        peer.send(AGREED + b"\r\n")
        while peer.rest or peer.more():
            data = peer.rest
            if len(data) < 6 or len(data) < 6 + (data[1] & 0x7f):
                if not peer.more():
                    return
                continue
            size, op = data[1] & 0x7f, data[0] & 15
            payload, peer.rest = bytes(b ^ data[2 + (i & 3)] for i, b in enumerate(data[6:6 + size])), data[6 + size:]
            if op != 10:
                peer.send(frame(10 if op == 9 else op, payload))
            if payload == b"and now":
                peer.send(then)
            if op == 8:
                return
    return handler


def test_a_host_that_repeats_a_guess_does_not_say_whether_it_is_right(tmp):
    """A pong repeats its ping. What a program has tried comes back as it was, right or wrong; what it has not said is hidden as ever."""
    secret, hidden = VALUE.encode(), PLACEHOLDER.encode()
    guesses = [g for n in (13, 20, 31) for g in (secret[:n], secret[:n - 1] + b"?")]
    guesses += [g.hex().encode() for g in guesses[:4]] + [base64.b64encode(g) for g in guesses[:4]] + [urllib.parse.quote(g, safe="").encode() for g in guesses]
    for name, op, back in (("pings", 9, 10), ("messages", 1, 1), ("bytes", 2, 2)):
        folder = os.path.join(tmp, name)
        os.mkdir(folder)
        with Setup(folder, repeating()) as (proxy, _):
            with proxy.connect_tls("api.example") as sock:
                sock.sendall(WS.replace(b"Bearer " + hidden, b"Bearer none"))
                contains(head(sock), b"101 Switching")
                sock.sendall(b"".join(frame(op, g, b"abcd") + frame(op, b" ", b"abcd") for g in guesses) + frame(op, secret, b"abcd"))
                got = messages(sock, 2 * len(guesses) + 1)
            equal(got, [m for g in guesses for m in ((back, g), (back, b" "))] + [(back, secret if op == 9 else hidden)], name)
    folder = os.path.join(tmp, "pieces")
    os.mkdir(folder)
    with Setup(folder, repeating()) as (proxy, _):
        with proxy.connect_tls("api.example") as sock:
            sock.sendall(WS.replace(b"Bearer " + hidden, b"Bearer none"))
            contains(head(sock), b"101 Switching")
            # what nobody repeats stands between; the same twice; at last in what ends it
            sock.sendall(b"".join(frame(op, p, b"abcd") for op, p in ((9, secret[:10]), (10, b"x"), (9, secret[10:20]), (9, secret[:15]), (9, secret[:15]), (8, b"\x03\xe8" + secret[:20]))))
            equal(messages(sock, 5), [(10, secret[:10]), (10, secret[10:20]), (10, secret[:15]), (10, secret[:15]), (8, b"\x03\xe8" + secret[:20])])
    folder = os.path.join(tmp, "many")
    os.mkdir(folder)

    def late(peer):
        """Repeats the first ping when all have come."""
        peer.head()
        peer.send(AGREED + b"\r\n")
        while len(peer.rest) < 26 + 700 * 131 and peer.more():
            pass
        peer.send(frame(10, secret[:20]))
        while peer.more():
            pass

    with Setup(folder, late) as (proxy, _):
        with proxy.connect_tls("api.example") as sock:
            sock.sendall(WS.replace(b"Bearer " + hidden, b"Bearer none"))
            contains(head(sock), b"101 Switching")
            sock.sendall(frame(9, secret[:20], b"abcd") + b"".join(frame(9, b"%0125d" % i, b"abcd") for i in range(700)))
            equal(messages(sock, 1), [])
        equal(events(proxy)[0]["reason"], "WebSocket: too many pings were not answered")
    folder = os.path.join(tmp, "then")
    os.mkdir(folder)
    with Setup(folder, repeating(frame(1, secret[:20]) + frame(1, secret[20:]) + frame(9, secret[:24]))) as (proxy, _):
        with proxy.connect_tls("api.example") as sock:
            sock.sendall(WS.replace(b"Bearer " + hidden, b"Bearer none"))
            contains(head(sock), b"101 Switching")
            sock.sendall(frame(9, secret[:19], b"abcd") + frame(9, b"and now", b"abcd"))
            equal(messages(sock, 5), [(10, secret[:19]), (10, b"and now"), (1, hidden[:20]), (1, hidden[20:]), (9, hidden[:24])])


def test_a_secret_in_control_frames(tmp):
    secret, hidden = VALUE.encode(), PLACEHOLDER.encode()
    got, _ = converse(tmp, [frame(9, secret[:20]), frame(1, b"between"), frame(9, secret[20:]), frame(8, b"")], 4)
    equal(got, [(9, hidden[:20]), (1, b"between"), (9, hidden[20:]), (8, b"")])


def test_a_placeholder_in_a_websocket_message_is_stopped(tmp):
    """To whom it may concern or not: messages are no place that a secret is put into."""
    half = len(PLACEHOLDER) // 2
    for number, host in enumerate(("api.example", "other.example")):
        folder = os.path.join(tmp, str(number))
        os.mkdir(folder)
        with Setup(folder, speaking([])) as (proxy, upstream):
            with proxy.connect_tls(host) as sock:
                sock.sendall(WS.replace(b"api.example", host.encode()).replace(b"Bearer " + PLACEHOLDER.encode(), b"Bearer none"))
                contains(head(sock), b"101 Switching")
                sock.sendall(frame(1, b"good", b"abcd") + frame(1, PLACEHOLDER[:half].encode(), b"efgh", fin=False))
                deadline = time.monotonic() + 20
                while upstream.text().endswith(b"\r\n\r\n"):  # the good one has not arrived yet
                    assert time.monotonic() < deadline, "the good one does not arrive"
                    time.sleep(0.01)
                sock.sendall(frame(0, PLACEHOLDER[half:].encode(), b"ijkl"))
                equal(messages(sock, 1), [])
            equal(proxy.events("secret.misplaced", 1)[0]["host"], host)
            equal(events(proxy)[0]["outcome"], "denied")


def test_a_placeholder_that_is_spread_over_messages_is_stopped(tmp):
    """Over messages, over fragments with a ping in between, over pings: its last byte does not leave."""
    first, last = PLACEHOLDER[:15].encode(), PLACEHOLDER[15:].encode()
    ways = {"messages": frame(1, first, b"abcd") + frame(1, last, b"efgh"), "a ping between": frame(1, first, b"abcd", fin=False) + frame(9, b"x", b"ijkl") + frame(0, last, b"efgh"),
            "pings": frame(9, first, b"abcd") + frame(1, b"x", b"ijkl") + frame(9, last, b"efgh")}
    for name, data in ways.items():
        for host in ("api.example", "other.example"):
            folder = os.path.join(tmp, name.replace(" ", "-") + host)
            os.mkdir(folder)
            with Setup(folder, speaking([])) as (proxy, _):
                with proxy.connect_tls(host) as sock:
                    sock.sendall(WS.replace(b"api.example", host.encode()).replace(b"Bearer " + PLACEHOLDER.encode(), b"Bearer none"))
                    contains(head(sock), b"101 Switching")
                    sock.sendall(data)
                    equal(messages(sock, 1), [], name)
                equal(proxy.events("secret.misplaced", 1)[0]["host"], host, name)
                equal(events(proxy)[0]["outcome"], "denied", name)
