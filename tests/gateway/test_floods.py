# SPDX-License-Identifier: Apache-2.0
"""Thousands of refusals while the keeper, who is asked whose they were, stands still: the gateway lives on with its connections, and each one is told or counted."""

import contextlib
import json
import os
import resource
import signal
import struct

from lib import leaks
from lib.case import equal
from lib.cay import wait_until
from lib.proxy import Upstream, certificate, fixed

TIMEOUT = 240

# One connection all the while. It asks until it may begin, lets the flood go, and asks once more when it is over: /tmp/go and /tmp/over.
KEPT = r'''
import os, socket, time
s = socket.create_connection(("api.example", 80))
def get(path):
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: api.example\r\n\r\n".encode())
    said = b""
    while not said.endswith((b"go", b"no")):
        more = s.recv(1000)
        assert more, "the connection has ended"
        said += more
    return said[-2:]
while get("/wait") != b"go":
    time.sleep(0.05)
os.write(os.open("/tmp/go", os.O_WRONLY), b"go")
os.read(os.open("/tmp/over", os.O_RDONLY), 4)
get("/all")
'''

# Nobody has heard of this exec when it begins: whose each of them is must be asked.
BEGIN = r'''
import os, socket, struct, sys, threading
os.read(os.open("/tmp/go", os.O_RDONLY), 2)
def query(name, kind):
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"
    return struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", kind, 1)
'''

END = r'''
os.write(os.open("/tmp/over", os.O_WRONLY), b"over")
'''

REFUSED = BEGIN + r'''
datagrams, packets, connections, names = map(int, sys.argv[1:])
def count(n, once):
    for i in range(n):
        try:
            once(i)
        except OSError:
            pass
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
count(datagrams, lambda i: udp.sendto(b"x", (f"9.9.{i % 7}.9", 4000)))
def refused(address):  # by the kernel at once, or by the gateway, which resets it
    with socket.create_connection(address, 60) as s:
        s.recv(1)
count(packets, lambda i: refused(("9.9.9.9", 4000)))
threads = [threading.Thread(target=count, args=(connections // 8, lambda i: refused(("9.9.9.9", 80)))) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.connect(("9.9.9.9", 53))
dns.settimeout(60)
def ask(i):
    dns.send(query(f"x{i}.nowhere.example", 1))
    dns.recv(1000)
count(names, ask)
''' + END

OUTSIDE = BEGIN + r'''
def ask(_):  # each socket has its answers thrown away; one question in between whose answer is at hand, so that the others were read
    dns = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    [s.connect(("9.9.9.9", 53)) for s in dns]
    dns[1].settimeout(60)
    for i in range(int(sys.argv[1]) // 4):
        dns[0].send(query(f"_x{i}._tcp.shop.example", 33))
        if i % 32 == 31:
            dns[1].send(query("api.example", 1))
            dns[1].recv(1000)
threads = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
''' + END


@contextlib.contextmanager
def flooded(instance, script, *numbers):
    """A sandbox in which @script ran through while its keeper stood still; in the body it goes on."""
    stopped = []

    def answer(peer):
        while (head := peer.head()) is not None:
            body = b"go" if stopped and b"/wait" in head else b"no"
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    upstream = Upstream(answer)
    rules = [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True},
             {"name": "records", "match": {"host": ".shop.example", "transport": "dns"}, "action": "allow", "upstream": "127.0.0.1:9"}]
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        instance.ok(box, "mkfifo /tmp/go /tmp/over")
        runs = [instance.exec(box, "python3", "-c", script, *map(str, numbers)), instance.exec(box, "python3", "-c", KEPT)]
        instance.wait_event("net.exchange", box)
        before = instance.programs_named("cay-gateway")
        keeper = leaks.processes()[instance.get(f"/v1/sandboxes/{box}")["init_pid"]][0]
        os.kill(keeper, signal.SIGSTOP)
        try:
            stopped.append(True)
            instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/all", timeout=150)
        finally:
            os.kill(keeper, signal.SIGCONT)
        equal([instance.wait(box, run).get("code") for run in runs], [0, 0])
        yield box
        equal(instance.programs_named("cay-gateway"), before)
        equal([e["data"] for e in instance.events(box) if e["type"] == "gateway.ended"], [])
    upstream.close()


def told(instance, box):
    """(refusals by what was refused, those that were only counted)"""
    counts, lost = {}, 0
    for event in instance.events(box):
        data = event["data"]
        if event["type"] == "net.denied":
            what = f"{data['what']} {data['port']}"
            counts[what] = counts.get(what, 0) + data["count"]
        lost += data["n"] if event["type"] == "net.lost" else 0
    return counts, lost


def check_sum(instance, box, want):
    def total():
        counts, lost = told(instance, box)
        return sum(counts.values()) + lost

    wait_until(lambda: total() >= want, 60, "all are counted")
    equal(total(), want, str(told(instance, box)))


def test_all_refusals_beside_a_keeper_that_stands_still_are_told_or_counted(instance):
    with flooded(instance, REFUSED, 6000, 1000, 3200, 0) as box:
        # what the log had no room for shows when there is something behind it
        instance.ok(box, """python3 -c 'import socket; socket.socket(2, 2).sendto(b"x", ("9.9.9.9", 4001))' || true""")
        check_sum(instance, box, 6000 + 1000 + 3200 + 1)
        counts, _ = told(instance, box)
        equal((counts["connection 80"], "datagram 4000" in counts), (3200, True))
        # who is refused when the keeper answers again is named
        run = instance.exec(box, "python3", "-c", "import socket\ntry: socket.create_connection(('9.9.9.9', 81))\nexcept OSError: pass")
        instance.wait_event("net.denied", box, lambda e: e["data"]["port"] == 81 and e["exec"] == run["id"])


def test_all_names_beside_a_keeper_that_stands_still_are_told_or_counted(instance):
    with flooded(instance, REFUSED, 0, 0, 0, 5000) as box:
        check_sum(instance, box, 5000)


MANY = r'''
import socket, sys
kept = [socket.create_connection(("raw.example", 1234), 60) for _ in range(int(sys.argv[1]))]
for s in kept:
    s.sendall(b"x")
print(sum(s.recv(1) == b"x" for s in kept))
'''


def test_as_many_connections_as_are_served_at_once(instance):
    """Those that pass as they are have most fibers."""
    def echo(peer):
        peer.send(peer.sock.recv(1))
        peer.more()

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    upstream = Upstream(echo)
    rules = [{"name": "raw", "match": {"host": "raw.example", "port": 1234, "transport": "tcp"}, "action": "allow", "upstream": upstream.address, "private": True}]
    try:
        with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
            done = instance.cay("exec", box, "--", "sh", "-c", 'ulimit -n $(ulimit -Hn); exec python3 -c "$0" 1000', MANY, timeout=150)
            equal(done.stdout, "1000\n")
            equal([e["data"] for e in instance.events(box) if e["type"] == "gateway.ended"], [])
    finally:
        upstream.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_questions_that_would_be_asked_outside(instance):
    with flooded(instance, OUTSIDE, 12000) as box:
        instance.ok(box, "getent hosts api.example")


# Requests whose bodies begin and do not go on, and whose answers get no window; beside them connections that say nothing. It ends when those beyond @served are refused and /tmp/full says so.
STREAMS = r'''
import os, select, socket, ssl, struct, sys
connections, streams, size, served, silent = map(int, sys.argv[1:])
context = ssl.create_default_context()
context.set_alpn_protocols(["h2"])
def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
head = bytes([0x83, 0x87, 0x84, 0x41, 11]) + b"api.example"
def body(stream):
    text = b'{"kind": "' + b" " * (size - 10)
    return b"".join(frame(0, 0, stream, text[at:at + 16000]) for at in range(0, size, 16000))
refused, heard, kept = 0, {}, []
def take(s):  # what has come, frame by frame
    global refused
    more = s.recv(65536)
    assert more, "the connection has ended"
    heard[s] += more
    while len(heard[s]) >= 9 and len(heard[s]) >= (n := 9 + int.from_bytes(heard[s][:3], "big")):
        one, heard[s] = heard[s][:n], heard[s][n:]
        refused += one[3] == 3 and one[9:] == b"\0\0\0\7"
for _ in range(silent):
    kept.append(socket.create_connection(("api.example", 443), 60))
for _ in range(connections):
    s = context.wrap_socket(socket.create_connection(("api.example", 443), 60), server_hostname="api.example")
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
    while b"\0\0\4\x08\0\0\0\0\0" not in heard.setdefault(s, b""):  # the connection's window
        heard[s] += s.recv(65536)
    heard[s] = b""
    for i in range(streams):
        s.sendall(frame(1, 4, 1 + 2 * i, head) + body(1 + 2 * i))
while refused < connections * streams - served:
    ready = select.select(list(heard), [], [], 60)[0]
    assert ready, f"{refused} are refused"
    for s in ready:
        take(s)
print(refused)
if silent:
    os.read(os.open("/tmp/full", os.O_RDONLY), 4)
'''


def most_memory(instance):
    """MiB that the gateway had at most: in use, and as its limit counts them."""
    with open(f"/proc/{instance.programs_named('cay-gateway')[0]}/status", encoding="ascii") as f:
        status = dict(line.split(":") for line in f.read().splitlines())
    return [int(status[name].split()[0]) >> 10 for name in ("VmHWM", "VmPeak")]


@contextlib.contextmanager
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask_much(instance, box, *numbers):
    return instance.exec(box, "sh", "-c", 'ulimit -n $(ulimit -Hn); exec python3 -c "$0" "$@"', STREAMS, *map(str, numbers))


def test_more_requests_over_http2_than_are_served_at_once(instance):
    """Those beyond five hundred are refused, for their clients to send again, and told; the gateway lives on."""
    upstream = Upstream(fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    rules = [{"name": "json", "match": {"host": "api.example", "port": 443, "json": {"kind": "good"}}, "action": "allow"},
             {"name": "api", "match": {"host": "api.example", "port": 80}, "action": "allow", "upstream": upstream.address, "private": True}]
    with many_files(), instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        run = ask_much(instance, box, 900, 5, 10000, 500, 0)
        equal((instance.wait(box, run).get("code"), instance.output(box, run)), (0, b"4000\n"))
        check_sum(instance, box, 4000)
        equal(instance.ok(box, "curl -sS http://api.example/"), "ok")
        equal([e["data"] for e in instance.events(box) if e["type"] == "gateway.ended"], [])
    upstream.close()


class Greedy:
    """A host over HTTP/2 that takes nothing of the requests' bodies, and answers each with as much as it may send; how many it was asked, and how much it has sent."""

    def __init__(self):
        self.asked, self.sent = 0, 0

    def __call__(self, peer):
        peer.send(frame(4, 0, 0, b""))
        windows = {0: 65535}

        def give(stream):
            while (part := min(windows[0], windows[stream], 16384)) > 0:
                peer.send(frame(0, 0, stream, bytes(part)))
                windows[0] -= part
                windows[stream] -= part
                self.sent += part

        while len(peer.rest) < 24:
            peer.more()
        peer.rest = peer.rest[24:]  # the preface
        while True:
            while len(peer.rest) < 9 or len(peer.rest) < 9 + int.from_bytes(peer.rest[:3], "big"):
                if not peer.more():
                    return
            size, kind, flags = int.from_bytes(peer.rest[:3], "big"), *peer.rest[3:5]
            stream, payload, peer.rest = int.from_bytes(peer.rest[5:9], "big"), peer.rest[9:9 + size], peer.rest[9 + size:]
            if kind == 4 and not flags & 1:
                peer.send(frame(4, 1, 0, b""))
            elif kind == 1:
                windows[stream] = 65535
                self.asked += 1
                peer.send(frame(1, 4, stream, b"\x88"))
                give(stream)
            elif kind == 8 and stream in windows:
                windows[stream] += int.from_bytes(payload, "big")
                for one in [stream] if stream else [n for n in windows if n]:
                    give(one)


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def test_as_much_as_can_be_held_over_http2(fresh, tmp):
    """Five hundred requests whose hosts take nothing of their bodies and whose answers nobody takes, and all connections that there may be: within the gateway's memory."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    host = Greedy()
    upstream = Upstream(host, pem, ["h2"])
    rules = [{"name": "api", "match": {"host": "api.example", "port": 443}, "action": "allow", "upstream": upstream.address, "private": True}]
    fresh.stop()
    with many_files():
        fresh.start(CAY_TRUST=root)
        with fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
            fresh.ok(box, "mkfifo /tmp/full")
            run = ask_much(fresh, box, 5, 100, 64000, 500, 1000)
            wait_until(lambda: host.asked == 500 and host.sent > 70 << 20, 100, "all are held")
            used, reserved = most_memory(fresh)
            print(f"{used} MiB in use, {reserved} MiB of addresses")
            equal(used < 400, True, f"{used} MiB in use")
            fresh.ok(box, "echo full >/tmp/full")
            equal((fresh.wait(box, run).get("code"), fresh.output(box, run)), (0, b"0\n"))
            equal([e["data"] for e in fresh.events(box) if e["type"] == "gateway.ended"], [])
    upstream.close()


NAMES = r'''
import socket, struct, sys
dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
dns.connect(("9.9.9.9", 53))
dns.settimeout(60)
for i in range(*map(int, sys.argv[1].split("-"))):
    name = f"x{i:04d}" + sys.argv[2] + ".example"
    labels = b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0"
    dns.send(struct.pack(">HHHHHH", i, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", 1, 1))
    said = dns.recv(1000)
print(said[3] & 15, socket.inet_ntoa(said[-4:]))
'''


def test_thousands_of_names_that_are_looked_up(instance):
    """Each is given an address and written down, in bounded memory; and whoever forks the sandbox at once has them all."""
    with instance.sandbox(policy='{"rules": [{"match": {"host": ".example"}, "action": "allow"}]}') as box:
        def address(where, numbers):
            return instance.cay("exec", where, "--", "python3", "-c", NAMES, numbers, "a" * 50, timeout=100).stdout

        last = address(box, "0-2500")
        fork = instance.cay("fork", box, "--files-only").stdout.strip()
        equal(address(fork, "2499-2500"), last)
        instance.cay("rm", "-f", fork)
        pid = [e["data"]["pid"] for e in instance.events(box) if e["type"] == "gateway.started"]
        equal((len(pid), [e["data"] for e in instance.events(box) if e["type"] == "gateway.ended"]), (1, []))
        with open(f"/proc/{pid[0]}/status", encoding="ascii") as f:
            peak = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
        equal(peak < 100 << 10, True, f"{peak} KiB")


def test_a_name_beyond_all_that_there_can_be_is_told(instance):
    """A sandbox has 8192 names: the next one fails, which is no answer that would be believed for ever, and says why; those that it has stay."""
    with instance.sandbox(policy='{"rules": [{"match": {"host": ".example"}, "action": "allow"}]}') as box:
        def said(numbers):
            return instance.cay("exec", box, "--", "python3", "-c", NAMES, numbers, "", timeout=100).stdout.split()

        equal(said("0-8192"), ["0", "198.18.32.0"])
        equal(said("8192-8193")[0], "2")
        denied = instance.wait_event("net.denied", box)["data"]
        equal((denied["what"], denied["host"], denied["reason"]), ("name", "x8192.example", "this sandbox has looked up as many names as it can have"))
        equal(said("8191-8192"), ["0", "198.18.32.0"])
