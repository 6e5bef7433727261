# SPDX-License-Identifier: Apache-2.0
"""Somebody who stands between a server and a keeper, and changes what the server hears: a keeper of another version, a gateway that was taken over."""

import contextlib
import json
import os
import socket
import struct
import threading

REQUEST, REPLY, EVENT, OBJECT = 1, 2, 3, 11


def read_exactly(source, size):
    data = b""
    while len(data) < size:
        more = source.recv(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def read_frame(source):
    """(kind, channel, payload)"""
    size, kind, _, channel = struct.unpack("<IBBH", read_exactly(source, 8))
    return kind, channel, read_exactly(source, size)


def send_frame(to, kind, channel, payload):
    to.sendall(struct.pack("<IBBH", len(payload), kind, 0, channel) + payload)


class Between:
    """
    Takes the keeper's place at its socket. @hello: what the keeper says of itself -> what the server hears; @knows: does it know this verb? @gateway: called with
    the server's end of a connection that has become the gateway's, and the boot id, when the gateway has said hello.
    """

    def __init__(self, instance, box, hello=lambda hello: hello, knows=lambda verb: True, gateway=None):
        self.path = os.path.join(instance.run, "keepers", box + ".sock")
        self.aside, self.hello, self.knows, self.gateway = self.path + ".aside", hello, knows, gateway
        self.verbs, self.unknown, self.open = [], [], []

    def __enter__(self):
        was = os.stat(self.path)
        os.rename(self.path, self.aside)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        os.chown(self.path, was.st_uid, was.st_gid)
        os.chmod(self.path, was.st_mode & 0o777)
        self.listener.listen(16)
        threading.Thread(target=self.take, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self.open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        os.rename(self.aside, self.path)

    def take(self):
        with contextlib.suppress(OSError):
            while True:
                server, _ = self.listener.accept()
                keeper = socket.socket(socket.AF_UNIX)
                keeper.connect(self.aside)
                self.open += [server, keeper]
                for work in (self.from_keeper, self.from_server):
                    threading.Thread(target=work, args=(server, keeper), daemon=True).start()

    def from_keeper(self, server, keeper):
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, channel, payload = read_frame(keeper)
                said = json.loads(payload) if kind == REPLY else {}
                for whole, member in ((said, "hello"), (said.get("ok", {}), "hello"), (said, "ok")):
                    if "protocol" in whole.get(member, {}):
                        whole[member] = self.hello(whole[member])
                send_frame(server, kind, channel, json.dumps(said).encode() if said else payload)
                boot = json.loads(payload).get("hello", {}).get("boot") if kind == OBJECT and self.gateway else None
                if boot:
                    self.gateway(server, boot)
        server.close()

    def from_server(self, server, keeper):
        with contextlib.suppress(OSError, EOFError):
            while True:
                kind, channel, payload = read_frame(server)
                request = json.loads(payload) if kind == REQUEST else {}
                if request:
                    self.verbs.append(request["verb"])
                if request and not self.knows(request["verb"]):
                    self.unknown.append(request["verb"])
                    error = {"code": "unsupported", "message": f"no verb '{request['verb']}'", "hint": "", "errno": 95}
                    send_frame(server, REPLY, 0, json.dumps({"id": request["id"], "error": error}).encode())
                else:
                    send_frame(keeper, kind, channel, payload)
        keeper.close()
