# SPDX-License-Identifier: Apache-2.0
"""Events of the network name the process: the right one, or none; and no connection waits for that."""

import json
import os
import signal
import time

from lib import cay, leaks
from lib.case import contains, equal
from lib.proxy import Upstream, certificate, echo

TIMEOUT = 120

GET = r'''
import http.client, os, socket, sys, time
def get(path, conn=None):
    conn = conn or http.client.HTTPConnection("api.example", timeout=60)
    conn.request("GET", path)
    conn.getresponse().read()
    return conn
def say(what):
    os.write(1, (what + "\n").encode())
'''

WORKERS = GET + r'''
for i in range(4):
    if os.fork() == 0:
        say(f"/worker{i} {os.getpid()}")
        get(f"/worker{i}")
        os._exit(0)
kept = get("/parent0")
get("/parent1", kept), get("/parent2", kept)
for i in range(3):
    say(f"/parent{i} {os.getpid()}")
for i in range(4):
    os.wait()
'''

# The parent has made the connection; a child uses it, another one its own, and a third connects a socket that both have: of these the one with the lowest pid is told.
INHERITED = GET + r'''
kept = get("/made")
say(f"/made {os.getpid()}")
for path, conn in ("/inherited", kept), ("/own", None):
    if os.fork() == 0:
        say(f"{path} {os.getpid() if conn is None else os.getppid()}")
        get(path, conn)
        os._exit(0)
    os.wait()
say(f"/shared {os.getpid()}")
shared = socket.socket()
if os.fork() == 0:
    shared.connect(("api.example", 80))
    shared.sendall(b"GET /shared HTTP/1.1\r\nHost: api.example\r\n\r\n")
    shared.recv(10)
    os._exit(0)
os.wait()
'''


def slow_echo(peer):
    """Answers when the keeper has had its time to look: who is answered at once may have ended before it does (docs/design/0007, *Events*)."""
    while (head := peer.head()) is not None:
        time.sleep(0.3)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(head) + head)


def rules(upstream, **more):
    return json.dumps({"version": 1, "rules": [
        {"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True},
        {"name": "raw", "match": {"host": "raw.example", "port": 1234, "transport": "tcp"}, "action": "allow", "upstream": upstream.address, "private": True}], **more})


def exchanges(instance, box, n):
    """The data of the first @n exchanges, by path."""
    found = []

    def enough(event):
        found.append(event)
        return len(found) == n

    instance.wait_event("net.exchange", box, enough, timeout=60)
    return {e["data"]["path"]: dict(e["data"], exec=e["exec"]) for e in found}


def said(out):
    """What programs print: path and pid."""
    return {path: int(pid) for path, pid in (line.split() for line in out.splitlines())}


def inner_pids(told):
    return {path: e.get("inner_pid") for path, e in told.items()}


def keeper_of(instance, box):
    return leaks.processes()[instance.get(f"/v1/sandboxes/{box}")["init_pid"]][0]


def check_processes(instance):
    upstream = Upstream(slow_echo)
    with instance.sandbox(policy=rules(upstream)) as box:
        pids = said(instance.ok(box, "for i in 1 2 3; do sh -c 'echo /curl$0 $$; exec curl -s -o /dev/null http://api.example/curl$0' $i; done"))
        pids |= said(instance.cay("exec", box, "--", "python3", "-c", WORKERS).stdout)
        pids |= said(instance.cay("exec", box, "--", "python3", "-c", INHERITED).stdout)
        told = exchanges(instance, box, len(pids))
        equal(inner_pids(told), pids)
        equal({path: e["comm"] for path, e in told.items() if path.startswith("/curl")}, {f"/curl{i}": "curl" for i in (1, 2, 3)})
        for event in told.values():  # the machine's, by which events of processes name them
            if has_process_events(instance):
                cay.wait_until(lambda pid=event["pid"]: processes_with(instance, box, pid), 10, f"an event of a process with {event}")
            equal({e["exec"] for e in processes_with(instance, box, event["pid"])} - {event["exec"]}, set())
        line = next(line for line in instance.cay("net", box).stdout.splitlines() if "/curl1 " in line)
        contains(line, f"  curl[{told['/curl1']['pid']}]")
        entry = json.loads(instance.cay("net", box, "--har").stdout)["log"]["entries"][0]
        equal((entry["_pid"], entry["_inner_pid"], entry["_process"]), (told["/curl1"]["pid"], pids["/curl1"], "curl"))
    upstream.close()


def processes_with(instance, box, pid):
    return [e for e in instance.events(box) if e["type"].startswith("process.") and e["data"]["pid"] == pid]


def has_process_events(instance):
    return any(e["type"] == "process.exec" for e in instance.events())


def test_each_process_is_named(instance):
    check_processes(instance)


def test_each_process_is_named_rootless(tmp):
    with cay.ThrowawayUser() as user:
        instance = cay.Instance(parent=tmp, user=user)
        instance.start()
        try:
            check_processes(instance)
        finally:
            instance.close()


def test_all_exchanges_of_a_connection_name_who_made_it(fresh, tmp):
    """HTTP/2 in TLS: several requests at once over one connection."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    upstream = Upstream(slow_echo, pem)
    with fresh.sandbox(policy=rules(upstream)) as box:
        out = fresh.ok(box, "sh -c 'echo $$; exec curl -s --http2 -Z -o /dev/null https://api.example/[1-5]'")
        told = exchanges(fresh, box, 5)
        equal({e["protocol"] for e in told.values()}, {"h2"})
        equal(inner_pids(told), {f"/{i}": int(out) for i in range(1, 6)})
    upstream.close()


def test_refusals_and_raw_connections(instance):
    """A name, a connection and one that passes as it is; each process keeps its socket until it was told whose it is."""
    upstream = Upstream(slow_echo)
    question = r'''
import os, socket, struct, sys, time
name = b"".join(bytes([len(p)]) + p for p in b"nowhere.example".split(b".")) + b"\0"
query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + name + struct.pack(">HH", 1, 1)
kind, closed = sys.argv[1], None
if kind == "raw":
    s = socket.create_connection(("raw.example", 1234))
    s.sendall(b"GET /raw HTTP/1.1\r\n\r\n")
    s.recv(10)
elif kind == "connection":
    s = socket.create_connection(("9.9.9.9", 80))
    try:
        s.recv(10)
    except OSError:
        pass
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    s.connect(("9.9.9.9", 53))
    s.sendall((struct.pack(">H", len(query)) if kind == "tcp" else b"") + query)
    s.recv(1000)
print(os.getpid(), flush=True)
sys.stdin.read()
'''
    with instance.sandbox(policy=rules(upstream)) as box:
        for kind, type_ in ("udp", "net.denied"), ("tcp", "net.denied"), ("connection", "net.denied"), ("raw", "net.connection"):
            run = instance.exec(box, "python3", "-c", question, kind, stdin=True)
            stream = instance.attach(box, run)
            pid = int(stream.until(cay.STDOUT)[-1][2][8:])
            if kind != "raw":
                event = instance.wait_event(type_, box, lambda e, run=run: e["exec"] == run["id"])
            stream.send(cay.STDIN, b"")
            stream.collect()
            if kind == "raw":
                event = instance.wait_event(type_, box, lambda e, run=run: e["exec"] == run["id"])
            equal((kind, event["data"].get("inner_pid"), event["data"]["comm"]), (kind, pid, "python3"))
    upstream.close()


def test_who_has_gone_is_not_taken_for_another(instance):
    """Processes that end at once behind their request: such a one, or nobody."""
    script = GET + r'''
for i in range(50):
    if os.fork() == 0:
        s = socket.create_connection(("api.example", 80))
        say(f"/gone{i} {os.getpid()}")
        s.sendall(f"GET /gone{i} HTTP/1.1\r\nHost: api.example\r\n\r\n".encode())
        os._exit(0)
for i in range(50):
    os.wait()
'''
    upstream = Upstream(echo)
    with instance.sandbox(policy=rules(upstream)) as box:
        pids = said(instance.cay("exec", box, "--", "python3", "-c", script).stdout)
        instance.ok(box, "curl -s http://api.example/last")
        instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/last")
        told = {e["data"]["path"]: e["data"].get("inner_pid") for e in instance.events(box) if e["type"] == "net.exchange" and e["data"]["path"] != "/last"}
        equal({path: pid for path, pid in told.items() if pid not in (None, pids[path])}, {})
    upstream.close()


def test_hostile_names_and_crowds(instance):
    """A name with escapes in it; a process with very many descriptors; a group of very many processes: told as text, or not at all."""
    named = GET + r'''
import ctypes
ctypes.CDLL(None).prctl(15, b"\x1b[31m\xff\ncay", 0, 0, 0)  # PR_SET_NAME
get("/named")
'''
    crowd = GET + r'''
import resource, signal
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(int(sys.argv[1]))]
children = []
for i in range(int(sys.argv[2])):
    children.append(os.fork())
    if children[-1] == 0:
        signal.pause()
get(sys.argv[3])
for child in children:
    os.kill(child, signal.SIGKILL)
'''
    upstream = Upstream(slow_echo)
    with instance.sandbox(policy=rules(upstream)) as box:
        instance.cay("exec", box, "--", "python3", "-c", named)
        instance.cay("exec", box, "--", "sh", "-c", 'ulimit -n 60000 2>/dev/null || ulimit -n $(ulimit -Hn); exec python3 -c "$0" 900 0 /descriptors', crowd)
        instance.cay("exec", box, "--", "sh", "-c", 'ulimit -n $(ulimit -Hn); exec python3 -c "$0" 1500 0 /more', crowd)
        instance.cay("exec", box, "--", "python3", "-c", crowd, "0", "300", "/processes")
        told = exchanges(instance, box, 4)
        equal(told["/named"]["comm"], "?[31m??cay")
        equal([path for path in ("/more", "/processes") if "pid" in told[path]], [])
        equal({e["outcome"] for e in told.values()}, {"forwarded"})
    upstream.close()


def exchanges_but_waiting(instance, box):
    return [e for e in instance.events(box) if e["type"] == "net.exchange" and e["data"]["path"] != "/wait"]


def test_nobody_waits_for_a_keeper_that_stands_still(instance):
    """Connections are served while it does, and told without a process; afterwards with one. (Its name is looked up before: glibc makes a netlink socket for it, which is the keeper's to grant.)"""
    script = GET + r'''
import socket, threading
found = socket.getaddrinfo("api.example", 80, type=socket.SOCK_STREAM)
socket.getaddrinfo = lambda *args, **kwargs: found
def some(n):
    for i in range(100):  # more than a wait for each would leave time for
        get(f"/{n}/{i}")
def status():
    conn = http.client.HTTPConnection("api.example", timeout=60)
    conn.request("GET", "/wait")
    return conn.getresponse().read()
while status() != b"go":
    time.sleep(0.05)
threads = [threading.Thread(target=some, args=(n,)) for n in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
get("/all")
'''
    stopped = []

    def answer(peer):
        while (head := peer.head()) is not None:
            body = b"go" if stopped else b"no"
            if b"/after" in head:
                time.sleep(0.3)  # as slow_echo()
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    upstream = Upstream(answer)
    with instance.sandbox(policy=rules(upstream)) as box:
        run = instance.exec(box, "python3", "-c", script)
        instance.wait_event("net.exchange", box)
        keeper = keeper_of(instance, box)
        os.kill(keeper, signal.SIGSTOP)
        try:
            stopped.append(True)
            instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/all", timeout=60)
            # those that ended before it was known that the keeper is silent are told a second later
            cay.wait_until(lambda: len(exchanges_but_waiting(instance, box)) >= 201, 60, "all are told")
            told = exchanges_but_waiting(instance, box)
        finally:
            os.kill(keeper, signal.SIGCONT)
        equal(len(told), 201)
        equal([e["data"]["path"] for e in told if "pid" in e["data"] or e["exec"] != run["id"]], [])
        equal(instance.wait(box, run)["code"], 0)
        instance.ok(box, "curl -s http://api.example/after")
        instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/after" and e["data"].get("comm") == "curl")
    upstream.close()
