# SPDX-License-Identifier: Apache-2.0
"""Thousands of refusals while the keeper, who is asked whose they were, stands still: the gateway lives on with its connections, and each one is told or counted."""

import contextlib
import json
import os
import resource
import signal

from lib import leaks
from lib.case import equal
from lib.cay import wait_until
from lib.proxy import Upstream

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
