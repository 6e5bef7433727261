# SPDX-License-Identifier: Apache-2.0
"""A program that holds memory, in a sandbox: what make bench-fork forks, suspends and resumes; and plain fork() of the same size, the bound."""

import os
import subprocess
import sys
import time

import measure
from measure import percentile

sys.path.insert(0, os.path.join(measure.TOP, "tests", "checkpoint"))
from forking import ask, wait_output  # noqa: E402  pylint: disable=wrong-import-position

TIMEOUT = 120

# argv: mebibytes, processes. A line of input is answered; "write" touches every tenth page before. Of each mebibyte a part is noise, the rest words: it compresses
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
    if line == "write\\n":
        for i in range(0, len(held), 40960):
            held[i] = 7
    print("here", flush=True)
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


def milliseconds(function, *args):
    """(how long it took, what it gave)"""
    begun = time.monotonic_ns()
    result = function(*args)
    return (time.monotonic_ns() - begun) / 1e6, result


def summary(samples):
    """p50 and p99 of milliseconds."""
    return {"n": len(samples), "p50": percentile(samples, 50), "p99": percentile(samples, 99)}


class Source:
    """The sandbox, and the snapshots and forks of it."""

    def __init__(self, instance, mebibytes, processes=1):
        self.instance, self.forks, self.snapshots = instance, [], []
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
        made = self.instance.post(f"/v1/sandboxes/{box or self.box}/snapshots", {"files_only": False, **named}, timeout=TIMEOUT)
        self.snapshots.append(made["id"])
        return made

    def drop_snapshot(self, snapshot):
        self.instance.call("DELETE", f"/v1/snapshots/{snapshot}")

    def fork(self, snapshot, count=1):
        made = self.instance.post(f"/v1/snapshots/{snapshot['id']}/fork", {"live": True, "count": count}, timeout=TIMEOUT)["sandboxes"]
        self.forks += [one["id"] for one in made]
        return [one["id"] for one in made]

    def drop_forks(self):
        while self.forks:
            self.instance.remove(self.forks.pop())

    def answer(self, box, line="hello"):
        ask(self.instance, box, self.run, line)

    def suspend(self):
        return self.instance.post(f"/v1/sandboxes/{self.box}/suspend", timeout=TIMEOUT)

    def resume(self):
        self.instance.post(f"/v1/sandboxes/{self.box}/resume", timeout=TIMEOUT)
