# SPDX-License-Identifier: Apache-2.0
"""Contract OUT, HTTP: no way around the rules. The oracle stands outside: two upstreams, neither may hear the mark.

Ablation: the same bytes through a relay that does not look into them are heard, so each case would tell.
"""

import os
import re
import socket
import threading

from bypass import http_cases as cases
from lib.case import equal
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, echo, parse, read_all

TIMEOUT = 240
RULES = [{"name": "ok", "match": {"host": "api.example", "method": ["GET"], "path": "/ok/**"}, "action": "allow"},
         {"name": "json", "match": {"host": "api.example", "method": ["POST"], "path": "/json", "json": {"kind": "good"}}, "action": "allow"}]


def sink(peer):
    while peer.more():
        peer.rest = b""


class World:
    """The gateway, the host that it may reach, and the one that it may not."""

    def __init__(self, tmp):
        pem, root = certificate(os.path.join(tmp, "up"), "api.example", "evil.example")
        self.plain, self.tls = Upstream(echo), Upstream(echo, pem)
        self.evil = Upstream(sink)
        evil_names = ("evil.example", "dns.example", "169.254.169.254", "metadata.google.internal", "api.example.evil.example", "evil-api.example")
        self.hosts = {name: self.evil.address for name in evil_names}
        self.proxies = []
        for name, upstream in (("plain", self.plain), ("tls", self.tls)):
            folder = os.path.join(tmp, name)
            os.mkdir(folder)
            self.proxies.append(Proxy(folder, RULES, {"api.example": upstream.address, **self.hosts}, extra=root))

    def close(self):
        for proxy in self.proxies:
            equal(proxy.close(), 0, "exit status of proxytest")
        for upstream in (self.plain, self.tls, self.evil):
            upstream.close()

    def heard(self):
        return [name for name, upstream in (("allowed", self.plain), ("allowed, TLS", self.tls), ("denied", self.evil)) if cases.MARK in upstream.text()]


def test_no_case_is_heard(tmp):
    world = World(tmp)
    plain, tls = world.proxies
    for name, data in cases.PLAIN.items():
        plain.send(data, end=True)
        equal(world.heard(), [], name)
    for name, (sni, data) in cases.TLS.items():
        with tls.connect_tls(sni) as sock:
            try:
                sock.sendall(data)
                sock.unwrap().shutdown(socket.SHUT_WR)
            except (OSError, ValueError):
                pass
        equal(world.heard(), [], name)
    # the same gateways pass what the rules allow
    equal(plain.get("api.example", "/ok/x")[0], 200)
    equal(plain.get("api.example", "/json", method=b"POST", body=cases.GOOD)[0], 200)
    equal(tls.get("api.example", "/ok/x", sni="api.example")[0], 200)
    equal(len(plain.events("net.exchange", 60)) >= 60, True, "every attempt that was a request is told")
    world.close()


def test_each_case_is_heard_where_nobody_looks(tmp):
    """Ablation: a relay in place of the gateway."""
    far = Upstream(sink)

    def relay(peer):
        with socket.create_connection(("127.0.0.1", far.port)) as out:
            while data := peer.sock.recv(65536):
                out.sendall(data)
            out.shutdown(socket.SHUT_WR)
            read_all(out)

    dumb = Upstream(relay)
    for name, data in [*cases.PLAIN.items(), *((n, d) for n, (_, d) in cases.TLS.items())]:
        before = len(far.heard)
        with socket.create_connection(("127.0.0.1", dumb.port)) as sock:
            sock.settimeout(20)
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            read_all(sock)
        heard = b"".join(bytes(h) for h in far.heard[before:])
        equal(cases.MARK in heard, True, name)
    dumb.close()
    far.close()


def test_redirects_are_answers(tmp):
    """The gateway follows no redirect: where it leads hears nothing, the sandbox is told and must ask itself."""
    evil = Upstream(sink)
    where = f"http://169.254.169.254:{evil.port}/latest/meta-data".encode()

    def redirect(peer):
        while peer.head() is not None:
            peer.send(b"HTTP/1.1 302 Found\r\nLocation: " + where + b"\r\nContent-Length: 0\r\n\r\n")

    good = Upstream(redirect)
    proxy = Proxy(tmp, RULES, {"api.example": good.address, "169.254.169.254": evil.address})
    equal(proxy.get("api.example", "/ok/x")[0], 302)
    equal(proxy.get("169.254.169.254", "/latest/meta-data")[0], 421)
    equal(evil.heard, [])
    equal(proxy.close(), 0)
    good.close()
    evil.close()


def test_exhaustion_is_not_a_way(tmp):
    """Many slow heads and held bodies: others are served, memory stays bounded, nothing denied passes meanwhile."""
    world = World(tmp)
    plain = world.proxies[0]
    socks = [plain.connect() for _ in range(200)]
    for i, sock in enumerate(socks):
        if i % 2:
            sock.sendall(b"GET /ok/x HTTP/1.1\r\nHost: api.exam")
        else:
            sock.sendall(b"POST /json HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{" + b" " * 900000)
    done = threading.Event()

    def ask():
        equal(plain.get("api.example", "/ok/x")[0], 200)
        equal(plain.get("evil.example", "/ok/x")[0], 403)
        done.set()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join(60)
    equal(done.is_set(), True)
    with open(f"/proc/{plain.process.pid}/status", encoding="ascii") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
    equal(peak < 300 << 10, True, f"peak memory {peak} KiB")
    for sock in socks:
        sock.close()
    equal(world.heard(), [])
    world.close()


def test_many_large_bodies_are_read_one_after_the_other(tmp):
    """64 connections that send 31 MiB each at once: memory stays bounded, who can be read is, nothing that is denied passes, and what has no body is served meanwhile."""
    sizes, asked = [], threading.Event()

    def swallow(peer):
        while (head := peer.head()) is not None:
            length, tail = re.search(rb"content-length: (\d+)", head), peer.rest[-7:]
            size, peer.rest = len(peer.rest), b""
            while size < int(length[1]) if length else b"chunked" in head and tail != b"\r\n0\r\n\r\n":
                piece = peer.sock.recv(262144)
                assert piece
                size, tail = size + len(piece), (tail + piece[-7:])[-7:]
            sizes.append(size)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    upstream = Upstream(swallow)
    proxy = Proxy(tmp, RULES, {"api.example": upstream.address})
    good, bad = (b'{"x": "' + b"A" * (31 << 20) + b'", "kind": "%s"}' % kind for kind in (b"good", b"evil"))
    answers = []

    full = threading.Barrier(65)  # each has sent what is taken of it, but for the last byte of its body

    def fill(sock, text, arrived):
        """Send it; at the barrier for once where nothing more is taken."""
        while text or not arrived:
            try:
                text = text[sock.send(text):] if text else text
                stuck = not text
            except socket.timeout:
                stuck = True
            if stuck and not arrived:
                arrived.append(True)
                full.wait(patience(100))
                sock.settimeout(patience(150))

    def send(body, chunks):
        head = b"POST /json HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nConnection: close\r\n"
        arrived = []
        with proxy.connect() as sock:
            sock.settimeout(2)
            try:
                sock.sendall(head + (b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) if chunks else b"Content-Length: %d\r\n\r\n" % len(body)))
                fill(sock, memoryview(body)[:-1], arrived)
                sock.sendall(body[-1:] + (b"\r\n0\r\n\r\n" if chunks else b""))
            except OSError:
                pass  # the answer came first
            if not arrived:
                full.wait(patience(100))
            answers.append((body is good, parse(read_all(sock))[0]))

    threads = [threading.Thread(target=send, args=(bad if i % 4 == 0 else good, i % 8 > 3)) for i in range(64)]

    def ask():
        while any(thread.is_alive() for thread in threads):
            equal(proxy.get("api.example", "/ok/x")[0], 200)
            equal(proxy.get("evil.example", "/ok/x")[0], 403)
            asked.set()
    for thread in threads:
        thread.start()
    full.wait(patience(100))
    ask()
    equal(asked.is_set(), True)
    with open(f"/proc/{proxy.process.pid}/status", encoding="ascii") as f:
        peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
    equal(peak < 200 << 10, True, f"peak memory {peak} KiB")
    equal(len(answers), 64)
    equal({status for good, status in answers if good} <= {200, 503} and (True, 200) in answers, True, str(answers))
    equal({status for good, status in answers if not good} <= {403, 503}, True, str(answers))
    equal(len([size for size in sizes if size]), len([1 for good, status in answers if good and status == 200]))
    equal(proxy.close(), 0)
    upstream.close()
