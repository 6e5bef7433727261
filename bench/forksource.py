# SPDX-License-Identifier: Apache-2.0
"""A program that holds memory, in a sandbox: what make bench-fork forks, suspends and resumes; and plain fork() of the same size, the bound."""

import json
import os
import socket
import struct
import subprocess
import sys
import time

import measure
from measure import percentile

from lib.cay import STDIN  # noqa: E402  pylint: disable=wrong-import-position

sys.path.insert(0, os.path.join(measure.TOP, "tests", "checkpoint"))
from forking import wait_output  # noqa: E402  pylint: disable=wrong-import-position

TIMEOUT = 120
SETTLE_S = 1

# argv: mebibytes, processes. A line of input, a word and a number, is answered with the number; "write" touches every tenth page before. Of each mebibyte a part is noise, the rest words: it compresses
# about as well as what programs hold.
HOLDER = """
import os, random, signal, sys
size, others = int(sys.argv[1]), int(sys.argv[2]) - 1
draw = random.Random(1)
words = [bytes(draw.choices(b"abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9))) for _ in range(4000)]
text = b" ".join(draw.choices(words, k=160000))[:896 << 10]
held = bytearray(size << 20)
for i in range(size):
    cut = i * 4099 % len(text)  # no two pieces are the same: they would be written once
    held[i << 20:(i + 1) << 20] = os.urandom((1 << 20) - len(text)) + text[cut:] + text[:cut]
for _ in range(others):
    if os.fork() == 0:
        signal.pause()
print("ready", flush=True)
for line in sys.stdin:
    word, *number = line.split()
    if word == "write":
        for i in range(0, len(held), 40960):
            held[i] = 7
    print("here", *number, flush=True)
"""

# argv: mebibytes, processes, rounds. Prints the nanoseconds of as many fork()s as there are processes, as their caller sees them.
PLAIN = """
import os, sys, time
size, processes = int(sys.argv[1]) << 20, int(sys.argv[2])
held = bytearray(size)
for i in range(0, size, 4096):
    held[i] = 1
for _ in range(int(sys.argv[3])):
    spent = 0
    for _ in range(processes):
        begun = time.monotonic_ns()
        child = os.fork()
        if child == 0:
            os._exit(0)
        spent += time.monotonic_ns() - begun
        os.waitpid(child, 0)
    print(spent)
"""


def holder(mebibytes, processes):
    """Its command line."""
    return ["/usr/bin/python3", "-c", HOLDER, str(mebibytes), str(processes)]


def plain(mebibytes, processes, rounds):
    """[milliseconds] of fork()."""
    done = subprocess.run(["/usr/bin/python3", "-c", PLAIN, str(mebibytes), str(processes), str(rounds)], stdout=subprocess.PIPE, text=True, check=True,
                          timeout=TIMEOUT)
    return [int(line) / 1e6 for line in done.stdout.split()]


class Clock:
    """Rounds of a measurement: at least @least, at most @most, none is begun after @seconds."""

    def __init__(self, least, most, seconds):
        self.least, self.most, self.end = least, most, time.monotonic() + seconds

    def rounds(self):
        done = 0
        while done < self.least or (done < self.most and time.monotonic() < self.end):
            yield done
            done += 1


def settle():
    """Until all that was done before has no more to do here: clearing up, the next sandboxes, the template for the next snapshot, which begins a fifth of a second behind one."""
    time.sleep(0.3)
    end = time.monotonic() + SETTLE_S
    busy = True
    while busy and time.monotonic() < end:
        before = measure.busy_s()
        time.sleep(0.05)
        busy = measure.busy_s() - before > 0.01


def milliseconds(function, *args):
    """(how long it took, what it gave)"""
    begun = time.monotonic_ns()
    result = function(*args)
    return (time.monotonic_ns() - begun) / 1e6, result


def summary(samples):
    """p50 and p99 of milliseconds."""
    return {"n": len(samples), "p50": percentile(samples, 50), "p99": percentile(samples, 99)}


class Connection:
    """One kept connection to the API: what a client in Python can do without much of its own."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        self.sock.connect(path)

    def ask(self, method, path, body=b"", kind="application/json"):
        """The answer's body; a status other than 2xx is an error."""
        self.sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        got = self.sock.recv(65536)
        while b"\r\n\r\n" not in got:
            got += self.more()
        head, answer = got.split(b"\r\n\r\n", 1)
        at = head.lower().find(b"content-length:")
        length = int(head[at + 15:].split(b"\r\n", 1)[0]) if at >= 0 else 0
        while len(answer) < length:
            answer += self.more()
        if head[9:10] != b"2":
            raise RuntimeError(f"{method} {path}: {head[9:12].decode()} {answer[:300]!r}")
        return answer

    def upgrade(self, path):
        """From now on frames."""
        self.sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: cay-frames\r\n\r\n".encode())
        got = self.more()
        while b"\r\n\r\n" not in got:
            got += self.more()
        if got[9:12] != b"101":
            raise RuntimeError(f"{path}: {got[:300]!r}")

    def more(self):
        more = self.sock.recv(65536)
        if not more:
            raise EOFError("the server closed the connection")
        return more


class Source:
    """The sandbox, and the snapshots and forks of it."""

    def __init__(self, instance, mebibytes, processes=1):
        self.instance, self.forks, self.snapshots, self.asked = instance, [], [], 0
        self.api = Connection(instance.socket)
        # in a fork each process has a copy of its own of what it shared with its parent
        limits = {"memory_bytes": ((mebibytes + 16) * (processes + 1) << 20) + (1 << 30), "pids": processes * 2 + 64}
        self.box = instance.post("/v1/sandboxes", {"limits": limits})["id"]
        self.run = instance.exec(self.box, *holder(mebibytes, processes), stdin=True)
        wait_output(instance, self.box, self.run, b"ready\n", seconds=TIMEOUT)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop_forks()
        self.instance.remove(self.box)
        for snapshot in self.snapshots:
            self.drop_snapshot(snapshot)

    def snapshot(self, box=None, name=None):
        """With a @name it is on disk when it is answered."""
        named = {"name": name} if name else {}
        made = json.loads(self.api.ask("POST", f"/v1/sandboxes/{box or self.box}/snapshots", json.dumps({"files_only": False, **named}).encode()))
        self.snapshots.append(made["id"])
        return made

    def drop_snapshot(self, snapshot):
        self.instance.call("DELETE", f"/v1/snapshots/{snapshot}")

    def fork(self, snapshot, count=1):
        made = json.loads(self.api.ask("POST", f"/v1/snapshots/{snapshot['id']}/fork", json.dumps({"live": True, "count": count}).encode()))["sandboxes"]
        self.forks += [one["id"] for one in made]
        return [one["id"] for one in made]

    def drop_forks(self):
        while self.forks:
            self.instance.remove(self.forks.pop())

    def answer(self, box, word="hello"):
        """Ask it, and wait until it has answered: over a stream of its own."""
        self.asked += 1
        line = f"{word} {self.asked}\n".encode()
        stream = Connection(self.instance.socket)
        stream.upgrade(f"/v1/sandboxes/{box}/execs/{self.run['id']}/attach?from=0")
        stream.sock.sendall(struct.pack("<IBBH", len(line), STDIN, 0, 0) + line)
        got, wanted = b"", f"here {self.asked}\n".encode()
        while wanted not in got:
            got += stream.more()
        stream.sock.close()

    def suspend(self):
        return self.instance.post(f"/v1/sandboxes/{self.box}/suspend", timeout=TIMEOUT)

    def resume(self):
        self.instance.post(f"/v1/sandboxes/{self.box}/resume", timeout=TIMEOUT)
