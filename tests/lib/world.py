# SPDX-License-Identifier: Apache-2.0
"""A world outside: a network namespace of its own in which every address answers, and every byte that arrives is written down.

Nothing of the machine's network is touched: the namespace has a loopback device on which all addresses are local. A server started with World.start() inside it is all
that a sandbox could reach if it got out, so what World.heard() does not know did not leave. Run as a program this file is that world.
"""

import contextlib
import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

from lib import cay

TCP_PORTS = (21, 22, 25, 53, 80, 443, 587, 853, 1234, 3128, 5432, 8080, 15001)
SO_ATTACH_FILTER = 26
UDP_PORTS = (53, 123, 443, 853, 1234, 5353)
PUBLIC = "93.184.216.34"
NAMES = {
    "meta.example": ["169.254.169.254"],
    "loop.example": ["127.0.0.1"],
    "private.example": ["10.9.9.9"],
    "mixed.example": ["10.9.9.9", "93.184.216.34"],
    "mapped.example": ["127.0.0.1"],
    "own.example": ["93.184.217.5"],
    "near.example": ["93.184.218.77"],
    "leased.example": ["93.184.219.77"],
    "silent.example": ["95.0.0.1", "95.0.0.2", PUBLIC],
}
# of the world's machine itself, and of a network that it is in: public all the same
OWN = ("addr add 93.184.217.5/32 dev lo", "addr add 2a00:bb::5/128 dev lo")
NEAR = ("link add near type veth peer name far", "link set near up", "link set far up", "addr add 93.184.218.1/24 dev near",
        "addr add 93.184.219.1/24 dev near noprefixroute", "route add 93.184.219.0/24 dev near proto dhcp scope link src 93.184.219.1",
        "rule add pref 20 lookup local", "rule del pref 0", "rule add pref 10 to 93.184.218.0/23 lookup main")
ALIASES = {"alias.example": "private.example"}
# beside the addresses of IPv4, and answered before them; nothing comes back from what begins with one of SILENT
SIX = {"sixless.example": [f"2606:4700::{i}" for i in range(1, 13)], "silent.example": [f"2a00:dead::{i}" for i in range(1, 9)]}
NO_ROUTE, SILENT = "2606:4700::/96", ("2a00:dead::", "95.0.0.0")
WILD = ".wild.example"  # every name has an address there, of all others all that do not begin with "nx"
CHANGES = {"rebind.example": ["93.184.216.34", "127.0.0.1"]}  # one after the other, at every question


class Instance(cay.Instance):
    """An instance whose server, keepers and gateways live in a world."""

    def __init__(self, world, parent="/tmp", **kwargs):
        super().__init__(parent, **kwargs)
        self.world = world

    def command(self, argv):
        return ["nsenter", f"--net=/proc/{self.world.process.pid}/ns/net", "--", *super().command(argv)]


class World:
    """The namespace and the program in it."""

    def __init__(self):
        top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.process = subprocess.Popen(["unshare", "--net", "--", sys.executable, os.path.abspath(__file__)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        env={**os.environ, "PYTHONPATH": top}, text=True)
        self.lines, self.changed = [], threading.Condition()
        if json.loads(self.process.stdout.readline()) != {"ready": True}:
            raise RuntimeError("the world did not come up")
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self.changed:
                self.lines.append(json.loads(line))
                self.changed.notify_all()

    def heard(self, text=None, **members):
        """What arrived so far that holds @text anywhere and has these members."""
        self.settle()
        with self.changed:
            return [h for h in self.lines if (text is None or text in json.dumps(h)) and all(h.get(k) == v for k, v in members.items())]

    def settle(self):
        """Wait until all that arrived before now is in the list: the world is asked to say a word of its own."""
        word = f"mark-{time.monotonic_ns()}"
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + 20
        with self.changed:
            while {"mark": word} not in self.lines:
                if not self.changed.wait(deadline - time.monotonic()):
                    raise TimeoutError("the world does not answer")
            self.lines.remove({"mark": word})

    def close(self):
        self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


class Resolving(Instance):
    """One whose /etc/resolv.conf is the file @resolv of the test's own."""

    resolv = None

    def command(self, argv):
        return super().command(["unshare", "--mount", "--", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"', self.resolv, *argv])


@contextlib.contextmanager
def server(tmp, resolv=None, **env):
    """(world, instance): both running, both gone at the end."""
    world = World()
    try:
        os.chmod(tmp, 0o755)
        instance = (Resolving if resolv else Instance)(world, tmp, env=env)
        instance.resolv = resolv
        try:
            instance.start()
            yield world, instance
        finally:
            instance.close()
    finally:
        world.close()


# ---- the program ----------------------------------------------------------------------------------------------------------------

say_lock = threading.Lock()


def say(**what):
    with say_lock:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()


def plain(address):
    return address[7:] if address.startswith("::ffff:") else address


def serve_tcp(peer, port):
    to = plain(peer.getsockname()[0])
    say(kind="tcp", to=to, port=port)
    peer.settimeout(20)
    with peer, contextlib.suppress(OSError):
        peer.sendall(b"SSH-2.0-world\r\n" if port == 22 else b"")
        while data := peer.recv(65536):
            say(kind="tcp-data", to=to, port=port, data=data.decode("latin-1"))
            if data.startswith(b"GET "):
                body = f"the world at {to}:{port}\n".encode()
                kept = data.startswith(b"GET /kept")
                peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n" % (len(body), b"" if kept else b"Connection: close\r\n") + body)
                if kept:
                    continue
                return
            peer.sendall(data)


def fall_silent(listener):
    """A filter drops what comes for an address that begins as one of SILENT does."""
    net, (six, four) = 0xfff00000, (socket.inet_pton(socket.AF_INET6 if ":" in a else socket.AF_INET, a)[:4] for a in SILENT)
    program = [(0x30, 0, 0, net), (0x54, 0, 0, 0xf0), (0x15, 0, 2, 0x60),  # of IPv6?
               (0x20, 0, 0, net + 24), (0x15, 4, 3, int.from_bytes(six, "big")),
               (0x20, 0, 0, net + 16), (0x54, 0, 0, 0xffffff00), (0x15, 1, 0, int.from_bytes(four, "big")),
               (0x06, 0, 0, 0xffffffff), (0x06, 0, 0, 0)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in program))
    listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(code)))


def accept_all(listener, port):
    while True:
        peer = listener.accept()[0]
        threading.Thread(target=serve_tcp, args=(peer, port), daemon=True).start()


def dns_answer(query):
    """The answer, and the name that was asked for."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1:at + 1 + query[at]].decode("latin-1"))
        at += 1 + query[at]
    name, kind = ".".join(labels).lower(), struct.unpack(">H", query[at + 1:at + 3])[0]
    addresses = NAMES.get(ALIASES.get(name, name), [PUBLIC])
    if name in CHANGES and kind == 1:
        addresses = CHANGES[name][:1]
        CHANGES[name].append(CHANGES[name].pop(0))
    if name.startswith("nx") and not name.endswith(WILD):
        return query[:2] + struct.pack(">HHHHH", 0x8183, 1, 0, 0, 0) + query[12:at + 5], name
    records = [socket.inet_aton(a) for a in addresses] if kind == 1 else []
    if kind == 28:
        records = [socket.inet_pton(socket.AF_INET6, a) for a in SIX.get(name, ["::ffff:127.0.0.1"] if name == "mapped.example" else [])]
    owner, alias = b"\xc0\x0c", b""
    if name in ALIASES:
        target = b"".join(bytes([len(p)]) + p.encode() for p in ALIASES[name].split(".")) + b"\0"
        alias = owner + struct.pack(">HHIH", 5, 1, 0, len(target)) + target
        owner = target
    answer = alias + b"".join(owner + struct.pack(">HHIH", kind, 1, 0, len(r)) + r for r in records)
    return query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records) + bool(alias), 0, 0) + query[12:at + 5] + answer, name


def serve_udp(sock, port):
    late = []  # answers that wait for the one with the name's addresses of IPv6
    while True:
        data, peer = sock.recvfrom(65536)
        name = None
        if port == 53:
            with contextlib.suppress(IndexError, struct.error):
                answer, name = dns_answer(data)
                late.insert(0, (answer, peer))
                if name not in SIX or data.endswith(struct.pack(">HH", 28, 1)):
                    for one in late:
                        sock.sendto(*one)
                    late.clear()
        say(kind="udp", port=port, name=name, data=data.decode("latin-1"))


def serve_abstract(listener):
    while True:
        with listener.accept()[0] as peer:
            say(kind="unix", data=peer.recv(65536).decode("latin-1"))


def serve_icmp(sock, kind, offset):
    while True:
        data = sock.recv(65536)[offset:]
        if data[:1] == kind:
            say(kind="icmp", data=data.decode("latin-1"))


def main():
    for command in ("link set lo up", "route add local default dev lo", "-6 route add local default dev lo",
                    f"-6 route add unreachable {NO_ROUTE} table local", *OWN, *NEAR):
        subprocess.run(["ip", *command.split()], check=True)
    # on most machines everybody may ping; a new network namespace begins without
    with open("/proc/sys/net/ipv4/ping_group_range", "w", encoding="ascii") as groups:
        groups.write("0 2147483647")
    for port in TCP_PORTS:
        listener = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        fall_silent(listener)
        threading.Thread(target=accept_all, args=(listener, port), daemon=True).start()
    for port in UDP_PORTS:
        sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
        fall_silent(sock)
        threading.Thread(target=serve_udp, args=(sock, port), daemon=True).start()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0cay-world")
    abstract.listen()
    threading.Thread(target=serve_abstract, args=(abstract,), daemon=True).start()
    for family, protocol, kind, offset in ((socket.AF_INET, 1, b"\x08", 20), (socket.AF_INET6, 58, b"\x80", 0)):
        sock = socket.socket(family, socket.SOCK_RAW, protocol)
        threading.Thread(target=serve_icmp, args=(sock, kind, offset), daemon=True).start()
    say(ready=True)
    for line in sys.stdin:
        say(mark=line.strip())


if __name__ == "__main__":
    main()
