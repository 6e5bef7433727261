# SPDX-License-Identifier: Apache-2.0
"""A server that speaks as cayd does and says what a test tells it to: the command line is tested by itself, against answers that
the real server gives rarely or never (broken streams, hostile archives, slow answers).

    with FakeCayd(tmp) as fake:
        fake.on("GET", "/v1/sandboxes", lambda request: (200, {"sandboxes": []}))
        done = fake.cay("ps")
"""

import json
import os
import socket
import struct
import subprocess
import threading

from lib.pace import patience

CAY = os.path.join(os.path.abspath(os.environ.get("CAY_TEST_BUILD", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build"))), "cay")
STDIN, STDOUT, STDERR, STATUS, RESIZE, SIGNAL, WINDOW, OBJECT, ERROR, GAP = range(4, 14)


def frame(kind, payload=b"", channel=0):
    if isinstance(payload, dict):
        payload = json.dumps(payload).encode()
    return struct.pack("<IBBH", len(payload), kind, 0, channel) + payload


def output(kind, data, offset=0):
    return frame(kind, struct.pack("<Q", offset) + data)


class Request:
    """One request, and the connection for handlers that write the answer themselves."""

    def __init__(self, connection, method, target, headers, body):
        self.connection, self.method, self.target, self.headers, self.body = connection, method, target, headers, body
        self.rest = b""

    @property
    def json(self):
        return json.loads(self.body)

    def upgrade(self, *frames):
        self.connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: cay-frames\r\n\r\n" + b"".join(frames))

    def frames(self):
        """The frames that the client sends, until it goes away."""
        data = self.rest
        while True:
            while len(data) >= 8 and len(data) >= 8 + struct.unpack("<I", data[:4])[0]:
                size, kind = struct.unpack("<IB", data[:5])
                yield kind, data[8:8 + size]
                data = data[8 + size:]
            more = self.connection.recv(65536)
            if not more:
                return
            data += more


class FakeCayd:
    def __init__(self, directory):
        self.run = os.path.join(directory, "run")
        os.makedirs(self.run, exist_ok=True)
        self.path = os.path.join(self.run, "cayd.sock")
        self.routes, self.requests, self.failure = {}, [], None

    def __enter__(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)
        if self.failure is not None and kind is None:
            raise self.failure

    def on(self, method, path, answer):
        """@answer: (status, object), raw bytes of a whole answer, or a function of the request that gives one of these or None when it wrote itself."""
        self.routes[(method, path)] = answer

    def environment(self, **more):
        env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "CAY_RUN": self.run, "CAY_STATE": self.run + "/state"}
        env.update(more)
        return env

    def cay(self, *argv, want=0, stdin=None, cwd="/", env=None):
        done = subprocess.run([CAY, *argv], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, capture_output=True,
                              cwd=cwd, env=env or self.environment(), timeout=patience(20), check=False)
        if want is not None and done.returncode != want:
            raise AssertionError(f"cay {argv}: status {done.returncode}, want {want}\n{done.stdout!r}\n{done.stderr!r}")
        return done

    def serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            try:
                self.serve_one(connection)
            except (BrokenPipeError, ConnectionResetError):
                pass
            except Exception as error:  # pylint: disable=broad-exception-caught
                self.failure = error
            finally:
                connection.close()

    def serve_one(self, connection):
        connection.settimeout(patience(20))
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = connection.recv(65536)
                if not more:
                    return
                data += more
            head, data = data.split(b"\r\n\r\n", 1)
            lines = head.decode().split("\r\n")
            method, target, _ = lines[0].split(" ")
            headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
            body, data = self.read_body(connection, headers, data)
            request = Request(connection, method, target, headers, body)
            request.rest = data
            self.requests.append(request)
            answer = self.routes.get((method, target)) or self.routes.get((method, target.split("?")[0]))
            if answer is None:
                answer = (404, {"error": {"code": "not_found", "message": f"no route {method} {target}", "hint": ""}})
            if callable(answer):
                answer = answer(request)
            if answer is None:
                return
            connection.sendall(answer if isinstance(answer, bytes) else self.render(*answer))

    @staticmethod
    def render(status, answer):
        text = json.dumps(answer).encode() if answer is not None else b""
        return f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text

    @staticmethod
    def read_body(connection, headers, data):
        def need(n):
            nonlocal data
            while len(data) < n:
                more = connection.recv(65536)
                if not more:
                    raise ConnectionResetError
                data += more
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                while b"\r\n" not in data:
                    need(len(data) + 1)
                size, data = data.split(b"\r\n", 1)
                need(int(size, 16) + 2)
                body, data = body + data[:int(size, 16)], data[int(size, 16) + 2:]
                if int(size, 16) == 0:
                    return body, data
        n = int(headers.get("content-length", 0))
        need(n)
        return data[:n], data[n:]
