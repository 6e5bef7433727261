# SPDX-License-Identifier: Apache-2.0
"""Clients that read slowly: who takes something all the time gets all of it, who takes nothing does not keep what he asked for."""

import os
import socket
import struct
import threading

from gateway.test_http2 import ALLOW, HEAD, frame, frames_of
from lib.case import equal
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, head

SIZE = 8 << 20


def give(peer):
    peer.sock.settimeout(patience(100))
    while peer.head() is not None:
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        peer.send(bytes(SIZE))


class Slow:
    """A socket of which at first little is taken at a time, 160 KiB a second."""

    def __init__(self, sock, slowly):
        self.sock, self.slowly, self.pause = sock, slowly, threading.Event()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        sock.settimeout(patience(30))

    def recv(self, size):
        if self.slowly <= 0:
            return self.sock.recv(size)
        self.pause.wait(0.05)
        data = self.sock.recv(8192)
        self.slowly -= len(data)
        return data


def setup(tmp, **config):
    pem, root = certificate(os.path.join(tmp, "upstream"), "api.example")
    upstream = Upstream(give, pem)
    return Proxy(tmp, ALLOW, {"api.example": upstream.address}, extra=root, **config), upstream


def test_who_reads_slowly_gets_all_of_it(tmp):
    """So slowly that there is room for more in the socket only after longer than a write may wait."""
    proxy, upstream = setup(tmp, write_ms=patience(3000))
    got = {}

    def over_http1():
        sock = proxy.connect_tls("api.example")
        slow = Slow(sock, 1600 << 10)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
        head(sock)
        got["http/1.1"] = 0
        while data := slow.recv(65536):
            got["http/1.1"] += len(data)

    def over_http2():
        sock = proxy.connect_tls("api.example", alpn=("h2",))
        window = struct.pack(">HI", 4, 1 << 30)
        sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, window) + frame(8, 0, 0, struct.pack(">I", 1 << 30)) + frame(1, 5, 1, HEAD) + frame(1, 5, 3, HEAD))
        ends = 0
        for kind, flags, _ in frames_of(Slow(sock, 1600 << 10)):
            equal(kind in (3, 7), False, "a reset or an end")
            ends += flags & 1 and kind == 0
            if ends == 2:
                break
        got["h2"] = ends

    threads = [threading.Thread(target=run) for run in (over_http1, over_http2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(100))
    equal(got, {"http/1.1": SIZE, "h2": 2})
    equal(proxy.close(), 0)
    upstream.close()


def test_who_takes_nothing_is_given_up(tmp):
    proxy, upstream = setup(tmp, write_ms=300)
    sock = proxy.connect_tls("api.example")
    sock.sendall(b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n")
    event = proxy.events("net.exchange", 1)[0]
    equal((event["outcome"], "the sandbox did not take the answer" in event["reason"]), ("failed", True))
    sock.close()
    equal(proxy.close(), 0)
    upstream.close()
