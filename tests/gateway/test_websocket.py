# SPDX-License-Identifier: Apache-2.0
"""WebSocket through the gateway's core: frames are read and written anew, nothing that is no frame passes."""

import os

import yaml

from lib import cay
from lib.case import contains, equal
from lib.proxy import Proxy, Upstream, frame, head

QUICK = True
ALLOW = [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]
UPGRADE = (b"GET /ws HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
           b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n")
AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"


def server(extra=b"", then=b"", agreed=AGREED):
    """Agrees, sends @then, and echoes the payload of every frame."""
    def handler(peer):
        peer.head()
        peer.send(agreed + extra + b"\r\n" + then)
        while peer.rest or peer.more():
            data, peer.rest = peer.rest, b""
            while len(data) < 6 or len(data) < 6 + (data[1] & 0x7f):
                if not peer.more():
                    return
                data, peer.rest = data + peer.rest, b""
            size, mask = data[1] & 0x7f, data[2:6]
            payload, peer.rest = data[6:6 + size], data[6 + size:]
            peer.send(frame(data[0] & 15, bytes(b ^ mask[i & 3] for i, b in enumerate(payload))))
    return handler


class Setup:
    def __init__(self, tmp, handler, rules=None):
        self.upstream = Upstream(handler)
        self.proxy = Proxy(tmp, rules or ALLOW, {"api.example": self.upstream.address})

    def __enter__(self):
        return self.proxy, self.upstream

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


def receive(sock, size):
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


def test_a_tunnel_is_no_websocket(tmp):
    """Bytes that are no frames: not one of them arrives."""
    cases = [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x16\x03\x01" + b"x" * 100, frame(1, b"unmasked"), bytes([0xc1, 0x80, 1, 2, 3, 4]), frame(3, b"odd", b"mask"),
             frame(9, b"x" * 126, b"mask"), frame(0, b"continues nothing", b"mask")]
    for i, data in enumerate(cases):
        folder = os.path.join(tmp, str(i))
        os.mkdir(folder)
        with Setup(folder, server()) as (proxy, upstream):
            with proxy.connect() as sock:
                sock.sendall(UPGRADE)
                equal(head(sock).startswith(b"HTTP/1.1 101 "), True)
                sock.sendall(data)
                try:
                    equal(sock.recv(100), b"")
                except ConnectionResetError:
                    pass
            told = proxy.events("net.exchange", 1)[0]
            equal((told["outcome"], told["websocket"]["sent_bytes"]), ("failed", 0))
            equal(upstream.text().partition(b"\r\n\r\n")[2], b"", str(data))


def test_an_extension_that_nobody_asked_for(tmp):
    with Setup(tmp, server(b"Sec-WebSocket-Extensions: permessage-deflate\r\n")) as (proxy, upstream):
        with proxy.connect() as sock:
            sock.sendall(UPGRADE)
            equal(head(sock).startswith(b"HTTP/1.1 502 "), True)
        equal(b"permessage-deflate" in upstream.text(), False)


def test_an_upgrade_to_something_else_is_not_one(tmp):
    with Setup(tmp, server()) as (proxy, upstream):
        for name in (b"h2c", b"TLS/1.0", b"ssh"):
            with proxy.connect() as sock:
                sock.sendall(UPGRADE.replace(b"Upgrade: websocket", b"Upgrade: " + name))
                equal(head(sock).startswith(b"HTTP/1.1 101 "), False)
        equal(b"upgrade:" in upstream.text().lower(), False)


def test_a_host_that_says_more_of_its_connection(tmp):
    """The word is enough (RFC 6455 4.1), alone or among others."""
    for i, said in enumerate((b"keep-alive, Upgrade", b"upgrade", b"Upgrade\r\nConnection: keep-alive")):
        folder = os.path.join(tmp, str(i))
        os.mkdir(folder)
        with Setup(folder, server(then=frame(1, b"hello"), agreed=AGREED.replace(b"Connection: Upgrade", b"Connection: " + said))) as (proxy, _):
            with proxy.connect() as sock:
                sock.sendall(UPGRADE)
                told = head(sock)
                equal((told.startswith(b"HTTP/1.1 101 "), b"keep-alive" in told), (True, False), told.decode())
                equal(receive(sock, 7), frame(1, b"hello"))


def test_frames_both_ways(tmp):
    with Setup(tmp, server(then=frame(1, b"hello first"))) as (proxy, upstream):
        with proxy.connect() as sock:
            sock.sendall(UPGRADE)
            head(sock)
            equal(receive(sock, 13), frame(1, b"hello first"))
            sock.sendall(frame(1, b"one", b"abcd") + frame(2, b"", b"efgh") + frame(9, b"ping", b"ijkl"))
            equal(receive(sock, 13), frame(1, b"one") + frame(2, b"") + frame(9, b"ping"))
            for byte in frame(1, b"bytewise", b"mnop"):
                sock.sendall(bytes([byte]))
            equal(receive(sock, 10), frame(1, b"bytewise"))
            sock.sendall(frame(8, b"\x03\xe8", b"qrst"))
            equal(receive(sock, 4), frame(8, b"\x03\xe8"))
        told = proxy.events("net.exchange", 1)[0]
        equal(told["status"], 101)
        equal((told["websocket"]["sent_frames"], told["websocket"]["sent_messages"]), (5, 3))
        equal(b"abcd" in upstream.text(), False, "masks are the gateway's own")


def test_a_large_frame(tmp):
    big = os.urandom(3 << 20)

    def sender(peer):
        peer.head()
        peer.send(AGREED + b"\r\n" + frame(2, big) + frame(8, b""))
        while peer.more():
            pass

    with Setup(tmp, sender) as (proxy, _):
        with proxy.connect() as sock:
            sock.sendall(UPGRADE)
            head(sock)
            want = frame(2, big) + frame(8, b"")
            equal(receive(sock, len(want)) == want, True)


def preset(name):
    with open(os.path.join(cay.TOP, "defs", "presets", name + ".yaml"), encoding="utf-8") as f:
        return yaml.safe_load(f)["rules"]


def rule(action="allow", budget=None, **match):
    return {"match": {"host": "api.example", **match}, "action": action, **({"budget": budget} if budget else {})}


TOKENS = {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 1000}}
CASES = {
    "everything at the host": ([rule()], b"", b"101"),
    "everything at a path": ([rule(path="/w*")], b"", b"101"),
    "requests are counted": ([rule(budget={"requests": {"max": 1}})], b"", b"101"),
    "a rule for it": ([rule(upgrade="websocket")], b"", b"101"),
    "a rule for it above denials": ([rule(upgrade="websocket", path="/ws"), rule("deny", method="POST", json={"a": 1}), rule()], b"", b"101"),
    "reading only": (preset("read-only-web"), b"", b"403"),
    "some methods": ([rule(method=["GET", "POST"])], b"", b"403"),
    "a body that lacks something": ([rule(json={"a": None})], b"", b"403"),
    "a method that is denied": ([rule("deny", method="DELETE"), rule()], b"", b"403"),
    "something in bodies that is denied": ([rule("deny", json={"a": 1}), rule()], b"", b"403"),
    "a rule for it, and another method": ([rule(upgrade="websocket")], b"X-HTTP-Method-Override: DELETE\r\n", b"403"),
    "a denial of it": ([rule("deny", upgrade="websocket"), rule()], b"", b"403"),
    "something that is taken out of bodies": ([{**rule("transform"), "transform": {"json": {"remove": ["/user"]}}}], b"", b"403"),
    "what answers say is counted": ([rule(budget=TOKENS)], b"", b"429"),
    "what requests say is counted": ([rule(budget={"sum": {"field": "amount", "max": 1000}})], b"", b"429"),
}


def test_who_says_something_of_methods_or_bodies_lets_no_messages_through(tmp):
    """No rule sees what is said in a WebSocket: it is a request of any method, with a body that cannot be read."""
    for i, (name, (rules, headers, status)) in enumerate(CASES.items()):
        folder = os.path.join(tmp, str(i))
        os.mkdir(folder)
        with Setup(folder, server(), rules) as (proxy, upstream):
            with proxy.connect() as sock:
                sock.sendall(UPGRADE.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n"))
                equal(head(sock)[9:12], status, name)
            if status != b"101":
                contains(proxy.events("net.exchange", 1)[0]["reason"], "a WebSocket", name)
                equal(upstream.heard, [], name)


def test_a_rule_for_websockets_is_for_nothing_else(tmp):
    with Setup(tmp, server(), [rule(upgrade="websocket"), rule("deny", upgrade="websocket", path="/other")]) as (proxy, upstream):
        equal(proxy.get("api.example", "/ws")[0], 403)
        equal(upstream.heard, [])
