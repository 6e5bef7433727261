# SPDX-License-Identifier: Apache-2.0
"""Clients that do not wait for their answers: what was asked of the world for them ends with them, and nothing else does."""

import json
import os
import socket
import struct
import threading

from gateway.test_http2 import Client, get, h2
from lib.case import contains, equal
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, head

QUICK = True
ALLOW = [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]
REQUEST = b"GET /wait HTTP/1.1\r\nHost: api.example\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata \r\n"


class Silent:
    """A host that says @first to each request, and then nothing but the answer to /quick: whether it was asked, and whether that ended."""

    def __init__(self, first=b""):
        self.first, self.asked, self.ended, self.go = first, threading.Event(), threading.Event(), threading.Event()

    def __call__(self, peer):
        peer.sock.settimeout(patience(60))
        request = peer.head()
        while request is not None and b"/quick" in request:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            request = peer.head()
        if request is None:
            return
        peer.body(request)
        peer.send(self.first)
        self.asked.set()
        if b"/later" in request:
            self.go.wait(patience(60))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlater")
            return
        try:
            while peer.more():
                pass
        except ConnectionResetError:
            pass
        self.ended.set()


def silent_h2(silent):
    """The same over HTTP/2."""
    def serve(peer):
        peer.sock.settimeout(patience(60))
        lib = h2()
        c = lib.connection.H2Connection(lib.config.H2Configuration(client_side=False, header_encoding=None))
        c.initiate_connection()
        peer.send(c.data_to_send())
        while data := peer.sock.recv(65536):
            for e in c.receive_data(data):
                if isinstance(e, lib.events.RequestReceived) and dict(e.headers)[b":path"] == b"/quick":
                    c.send_headers(e.stream_id, [(b":status", b"200")], end_stream=True)
                elif isinstance(e, lib.events.RequestReceived):
                    silent.asked.set()
                elif isinstance(e, lib.events.StreamReset):
                    silent.ended.set()
            peer.send(c.data_to_send())
    return serve


class Setup:
    def __init__(self, tmp, silent, alpn=None, **config):
        pem, root = certificate(os.path.join(tmp, "upstream"), "api.example")
        self.upstream = Upstream(silent_h2(silent) if alpn else silent, pem if alpn is not False else None, alpn or None)
        self.proxy = Proxy(tmp, config.pop("rules", ALLOW), {"api.example": self.upstream.address}, extra=root, **config)

    def __enter__(self):
        return self.proxy

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def check(proxy, silent, leave):
    equal(silent.asked.wait(patience(20)), True, "the host was asked")
    leave()
    equal(silent.ended.wait(patience(30)), True, "the request at the host ended")
    event = proxy.events("net.exchange", 1)[0]
    equal(event["outcome"], "failed")
    contains(event["reason"], "the sandbox did not wait for the answer")


def folder(tmp, name):
    path = os.path.join(tmp, name)
    os.mkdir(path)
    return path


def test_a_connection_that_is_closed(tmp):
    for name, first in (("nothing", b""), ("some", EVENTS)):
        for how, leave in (("close", socket.socket.close), ("reset", reset)):
            silent = Silent(first)
            with Setup(folder(tmp, name + how), silent, alpn=False) as proxy:
                sock = proxy.connect()
                sock.sendall(REQUEST)
                if first:
                    contains(head(sock), b"200 OK")
                check(proxy, silent, lambda leave=leave, sock=sock: leave(sock))


def test_a_connection_with_tls_that_is_closed(tmp):
    silent = Silent()
    with Setup(tmp, silent) as proxy:
        sock = proxy.connect_tls("api.example")
        sock.sendall(b"POST /wait HTTP/1.1\r\nHost: api.example\r\nContent-Length: 40000\r\n\r\n" + b"x" * 40000)
        check(proxy, silent, sock.close)


def test_who_only_says_no_more_gets_the_answer(tmp):
    """A half-closed connection, as of `nc -N`."""
    silent = Silent()
    with Setup(tmp, silent, alpn=False) as proxy:
        sock = proxy.connect()
        sock.sendall(REQUEST.replace(b"/wait", b"/later"))
        sock.shutdown(socket.SHUT_WR)
        equal(silent.asked.wait(patience(20)), True, "the host was asked")
        equal(proxy.get("api.example", "/quick"), (200, b"ok"))
        silent.go.set()
        contains(head(sock), b"200 OK")
        equal(sock.recv(5), b"later")
        sock.close()


def test_a_half_closed_connection_that_is_closed_later(tmp):
    silent = Silent()
    with Setup(tmp, silent, alpn=False) as proxy:
        sock = proxy.connect()
        sock.sendall(REQUEST)
        sock.shutdown(socket.SHUT_WR)
        equal(silent.asked.wait(patience(20)), True, "the host was asked")
        equal(proxy.get("api.example", "/quick"), (200, b"ok"))
        sock.close()
        equal(silent.ended.wait(patience(30)), True, "the request at the host ended")


def test_a_stream_that_is_reset(tmp):
    """Or whose connection ends; towards either protocol. Other streams go on."""
    for alpn in (None, ["h2"]):
        for how in ("stream", "connection"):
            silent = Silent()
            with Setup(folder(tmp, how + str(alpn)), silent, alpn=alpn) as proxy:
                client = Client(proxy)
                stream = client.request(get(b"/wait"))
                equal(silent.asked.wait(patience(20)), True, "the host was asked")
                if how == "connection":
                    check(proxy, silent, client.close)
                    continue
                client.c.reset_stream(stream, 8)
                check(proxy, silent, client.flush)
                equal(client.answer(client.request(get(b"/quick")))[0], 200)
                client.close()


def test_a_command_in_a_sandbox_that_gives_up(instance):
    silent = Silent()
    upstream = Upstream(silent)
    rules = [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address}]
    with instance.sandbox(policy=json.dumps({"rules": rules})) as box:
        instance.cay("exec", box, "--", "curl", "-s", "-m", "3", "http://api.example/wait", check=False)
        equal((silent.asked.is_set(), silent.ended.wait(patience(30))), (True, True), "the request at the host ended")
        event = instance.wait_event("net.exchange", box, lambda e: True)
        contains(event["data"]["reason"], "the sandbox did not wait for the answer")
    upstream.close()
