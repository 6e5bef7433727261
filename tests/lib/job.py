# SPDX-License-Identifier: Apache-2.0
"""Drives jobs (cay-keeper job ID) directly: one process per verb with a socket on descriptor 3, frames both ways (docs/design/0001, 0002)."""

import json
import os
import random
import socket
import struct
import subprocess

from lib.cay import BUILD

REQUEST, REPLY, STDIN, STDOUT, OBJECT = 1, 2, 4, 5, 11


class JobError(Exception):
    """The job replied with an error; .code and .message are its parts."""

    def __init__(self, error):
        super().__init__(f"{error['code']}: {error['message']}")
        self.code, self.message, self.hint = error["code"], error["message"], error["hint"]


class JobDied(Exception):
    """The job ended without a reply; .status is as subprocess' returncode."""

    def __init__(self, status):
        super().__init__(f"the job ended without a reply, status {status}")
        self.status = status


def new_id():
    return "".join(random.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(20))


def frame(kind, payload):
    return struct.pack("<IBBH", len(payload), kind, 0, 0) + payload


class Job:
    """One job under way. objects and output fill up until result() returns."""

    def __init__(self, state, verb, env=None, body=None, program=None, preexec_fn=None, **members):
        self.objects, self.output = [], b""
        ours, theirs = socket.socketpair()

        def child():
            os.dup2(theirs.fileno(), 3, inheritable=True)
            if preexec_fn:
                preexec_fn()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAY_")}
        environment.update(env or {})
        self.process = subprocess.Popen([program or os.path.join(BUILD, "cay-keeper"), "job", new_id()],
                                        preexec_fn=child, pass_fds=(3,) if theirs.fileno() != 3 else (), env=environment)
        theirs.close()
        self.socket = ours
        ours.sendall(frame(REQUEST, json.dumps({"id": 1, "verb": verb, "state": str(state), **members}).encode()))
        if body is not None:
            try:
                for at in range(0, len(body), 1 << 19):
                    ours.sendall(frame(STDIN, body[at:at + (1 << 19)]))
                ours.sendall(frame(STDIN, b""))
            except BrokenPipeError:
                pass  # the job refused early: its reply says why

    def _read(self, n):
        data = b""
        while len(data) < n:
            try:
                part = self.socket.recv(n - len(data))
            except ConnectionResetError:
                part = b""
            if not part:
                return None
            data += part
        return data

    def result(self):
        """The reply's "ok"; raises JobError or JobDied."""
        try:
            while True:
                header = self._read(8)
                if header is None:
                    raise JobDied(self.process.wait())
                size, kind, _, _ = struct.unpack("<IBBH", header)
                payload = self._read(size)
                if kind == OBJECT:
                    self.objects.append(json.loads(payload))
                elif kind == STDOUT:
                    assert struct.unpack("<Q", payload[:8])[0] == len(self.output)
                    self.output += payload[8:]
                elif kind == REPLY:
                    reply = json.loads(payload)
                    break
                else:
                    raise AssertionError(f"frame of type {kind}")
        finally:
            self.socket.close()
            self.process.wait()
        if "error" in reply:
            raise JobError(reply["error"])
        return reply["ok"]


def run(state, verb, **members):
    return Job(state, verb, **members).result()
