# SPDX-License-Identifier: Apache-2.0
"""WebSocket through the gateway's core: frames are read and written anew, nothing that is no frame passes."""

import os

from lib.case import equal
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
    def __init__(self, tmp, handler):
        self.upstream = Upstream(handler)
        self.proxy = Proxy(tmp, ALLOW, {"api.example": self.upstream.address})

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
