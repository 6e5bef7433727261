# SPDX-License-Identifier: Apache-2.0
"""The gateway's core behind loopback listeners (tests/gateway/proxytest.c), and upstreams that hear every byte."""

import json
import os
import select
import socket
import ssl
import struct
import subprocess
import threading

from lib.case import Timeout
from lib.pace import patience

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("CAY_TEST_BUILD", os.path.join(TOP, "build"))
SECONDS = patience(20)  # longest wait for anything


def certificate(folder, *names):
    """(file with key and chain, file with the root) of a fresh certificate for @names, made by openssl(1)."""
    os.makedirs(folder, exist_ok=True)
    key, pem = os.path.join(folder, "key.pem"), os.path.join(folder, "cert.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", pem,
                    "-days", "2", "-subj", f"/CN={names[0]}", "-addext", "subjectAltName=" + ",".join("DNS:" + n for n in names),
                    "-addext", "keyUsage=critical,digitalSignature,keyCertSign"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    both = os.path.join(folder, "both.pem")
    with open(both, "wb") as out:
        for path in (key, pem):
            with open(path, "rb") as f:
                out.write(f.read())
    return both, pem


class Upstream:
    """A server on loopback: every connection is handled by @handler(socket) in a thread; @heard holds what came, connection by connection."""

    def __init__(self, handler, pem=None, alpn=None, host="127.0.0.1"):
        self.handler, self.heard, self.context = handler, [], None
        if pem:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(pem)
            if alpn:
                self.context.set_alpn_protocols(alpn)
        six = ":" in host
        self.listener = socket.create_server((host, 0), family=socket.AF_INET6 if six else socket.AF_INET)
        self.port = self.listener.getsockname()[1]
        self.address = f"[{host}]:{self.port}" if six else f"{host}:{self.port}"
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            heard = bytearray()
            self.heard.append(heard)
            thread = threading.Thread(target=self._serve, args=(peer, heard), daemon=True)
            self.threads.append(thread)
            thread.start()

    def _serve(self, peer, heard):
        try:
            peer.settimeout(SECONDS)
            if self.context:
                peer = self.context.wrap_socket(peer, server_side=True)
            self.handler(Peer(peer, heard))
        except OSError:
            pass
        finally:
            peer.close()

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(SECONDS)

    def text(self):
        return b"".join(bytes(h) for h in self.heard)


class Peer:
    """The upstream's end of a connection; what is read is heard."""

    def __init__(self, sock, heard):
        self.sock, self.heard, self.rest = sock, heard, b""

    def more(self):
        data = self.sock.recv(65536)
        self.heard += data
        self.rest += data
        return bool(data)

    def head(self):
        """The next request's head, or None at the end."""
        while b"\r\n\r\n" not in self.rest:
            if not self.more():
                return None
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        return head

    def body(self, head):
        """Its body, framed as the head says."""
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            body = b""
            while True:
                while b"\r\n" not in self.rest:
                    if not self.more():
                        return body
                size, _, self.rest = self.rest.partition(b"\r\n")
                size = int(size.split(b";")[0], 16)
                if size == 0:
                    while b"\r\n" not in self.rest:
                        self.more()
                    while not self.rest.startswith(b"\r\n"):
                        _, _, self.rest = self.rest.partition(b"\r\n")
                    self.rest = self.rest[2:]
                    return body
                while len(self.rest) < size + 2:
                    if not self.more():
                        return body
                body += self.rest[:size]
                self.rest = self.rest[size + 2:]
        if b"content-length: " not in lower:
            return b""
        size = int(lower.split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(self.rest) < size and self.more():
            pass
        body, self.rest = self.rest[:size], self.rest[size:]
        return body

    def send(self, data):
        self.sock.sendall(data)


def echo(peer):
    """Answers every request with its own head and body as text."""
    while (head := peer.head()) is not None:
        body = peer.body(head)
        answer = head + b"\r\n\r\n" + body
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


def fixed(answer):
    """A handler that reads one request after the other and sends @answer to each."""
    def handler(peer):
        while (head := peer.head()) is not None:
            peer.body(head)
            peer.send(answer)
            if b"content-length" not in answer.lower() and b"chunked" not in answer.lower():
                return
    return handler


class Proxy:
    """A running proxytest. Ports: tls (for port 443) and plain (for port 80)."""

    def __init__(self, folder, rules, hosts=None, listen=(), bindings=(), **config):
        self.folder = folder
        self.root, self.events_file = os.path.join(folder, "sandbox-root.pem"), os.path.join(folder, "events")
        config = {"policy": {"version": 1, "rules": rules, "secrets": list(bindings)}, "hosts": hosts or {}, "root": self.root, "events": self.events_file,
                  "listen": [{"tls": True, "as_port": 443}, {"tls": False, "as_port": 80}, *listen], **config}
        path = os.path.join(folder, "config.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)
        self.process = subprocess.Popen([os.path.join(BUILD, "tests", "gateway", "proxytest"), path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=None)
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            raise Timeout("proxytest does not start")
        self.ports = json.loads(line)["ports"]
        self.tls, self.plain = self.ports[:2]

    def close(self):
        """End it; its exit status."""
        self.process.stdin.close()
        status = self.process.wait(SECONDS)
        self.process.stdout.close()
        return status

    def peak(self):
        """KiB of memory that it had at most."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))

    def connect(self, port=None):
        sock = socket.create_connection(("127.0.0.1", port or self.plain), SECONDS)
        sock.settimeout(SECONDS)
        return sock

    def connect_tls(self, sni, port=None, alpn=("http/1.1",), check=True):
        context = ssl.create_default_context(cafile=self.root)
        context.set_alpn_protocols(list(alpn))
        if not check:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context.wrap_socket(self.connect(port or self.tls), server_hostname=sni)

    def send(self, data, sni=None, port=None, end=False, address=None):
        """Send @data on a connection of its own (TLS when @sni) and read until the end; @end: half-close behind the data."""
        sock = self.connect_tls(sni, port) if sni else self.connect(port)
        with sock:
            try:
                sock.sendall(data)
                if end:
                    sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass
            return read_all(sock)

    def get(self, host, path="/", sni=None, headers=b"", method=b"GET", body=b""):
        """Status and body of one request on a connection of its own; @body is JSON unless @headers say what it is."""
        if body and b"content-type:" not in headers.lower():
            headers += b"Content-Type: application/json\r\n"
        data = method + b" " + path.encode() + b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\nConnection: close\r\n" + headers
        if body:
            data += b"Content-Length: %d\r\n" % len(body)
        return parse(self.send(data + b"\r\n" + body, sni))

    def events(self, kind=None, count=0):
        """All events so far (at least @count: waits for them)."""
        deadline = threading.Event()
        for _ in range(SECONDS * 100):
            found = []
            if os.path.exists(self.events_file):
                with open(self.events_file, encoding="utf-8") as f:
                    found = [json.loads(line) for line in f if line.endswith("\n")]
            found = [e for e in found if kind in (None, e["type"])]
            if len(found) >= count:
                return found
            deadline.wait(0.01)
        raise Timeout(f"{len(found)} events, wanted {count}")


def read_all(sock):
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except (ConnectionResetError, ssl.SSLError):
        return data
    return data


def parse(data):
    """(status, body) of an answer that ended with its connection; status 0: there was none."""
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 "):
        return 0, b""
    if b"transfer-encoding: chunked" in head.lower():
        whole = b""
        while body:
            size, _, body = body.partition(b"\r\n")
            if not size or int(size, 16) == 0:
                break
            whole += body[:int(size, 16)]
            body = body[int(size, 16) + 2:]
        body = whole
    return int(head[9:12]), body


def frame(op, payload, mask=None, fin=True):
    """A WebSocket frame; @mask: as a client sends it."""
    head = bytes([(0x80 if fin else 0) | op])
    size, bit = len(payload), 0x80 if mask else 0
    head += bytes([bit | size]) if size < 126 else bytes([bit | 126]) + struct.pack(">H", size) if size < 65536 else bytes([bit | 127]) + struct.pack(">Q", size)
    return head + (mask + bytes(b ^ mask[i & 3] for i, b in enumerate(payload)) if mask else payload)


def head(sock):
    """What comes up to the end of a head, and not a byte more."""
    data = b""
    while not data.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        if not piece:
            break
        data += piece
    return data


def tunnel(behind, asked):
    """A handler: an HTTP proxy whose every tunnel leads to the upstream @behind, but for evil hosts; the request lines go to @asked."""
    def handler(peer):
        asked.append(peer.head().split(b"\r\n")[0])
        if b"evil" in asked[-1]:
            peer.send(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with socket.create_connection(("127.0.0.1", behind.port)) as far:
            def back():
                while data := far.recv(65536):
                    peer.sock.sendall(data)
            thread = threading.Thread(target=back, daemon=True)
            thread.start()
            while data := peer.sock.recv(65536):
                far.sendall(data)
            far.shutdown(socket.SHUT_WR)
            thread.join(SECONDS)
    return handler
