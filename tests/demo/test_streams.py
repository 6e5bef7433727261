# SPDX-License-Identifier: Apache-2.0
"""Long streams through `cay run` when one side is slow: every byte arrives, and nothing but the slow side waits."""

import hashlib
import json
import os
import select
import struct
import subprocess

from lib.case import contains, equal, timeout
from lib.cay import BUILD, GAP, OBJECT, STATUS, STDOUT

WAITS = True

BYTES = 24 << 20
CAY = os.path.join(BUILD, "cay")


def slow_hash(stream):
    """Read in small pieces, as a reader that is always behind does."""
    digest = hashlib.sha256()
    while data := stream.read(1500):
        digest.update(data)
    return digest.hexdigest()


@timeout(120)
def test_slow_reader_gets_every_byte(instance, tmp):
    want = hashlib.sha256(bytes(BYTES)).hexdigest()
    for _ in range(3):
        process = subprocess.Popen([CAY, "run", "--", "head", "-c", str(BYTES), "/dev/zero"], cwd=tmp, bufsize=0,
                                   env=instance.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        got = slow_hash(process.stdout)
        equal((process.wait(60), got), (0, want))


@timeout(120)
def test_long_input_waits_for_a_slow_command(instance, tmp):
    """More than every buffer on the way holds; the command reads with a pause in front."""
    data = os.urandom(BYTES)
    script = "import sys, hashlib, subprocess; subprocess.run(['sleep', '0.3']);" \
             "print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    done = subprocess.run([CAY, "run", "-i", "--", "python3", "-c", script], cwd=tmp, env=instance.environment(),
                          input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, check=False)
    equal((done.returncode, done.stdout.decode().strip()), (0, hashlib.sha256(data).hexdigest()), done.stderr.decode())


LAST = 480000  # bytes: more than waits in cay and in its socket, less than what makes the command itself wait
SAYS = f"yes abcdefghijklm | head -c {LAST}; exit 3"


def stays(*sockets, seconds=9):
    """Who still has something to read is not left: longer than any server that goes by the clock would wait."""
    poll = select.poll()
    for s in sockets:
        poll.register(s, select.POLLRDHUP | select.POLLHUP)
    equal(poll.poll(seconds * 1000), [], "hung up on a reader that has not read all")


@timeout(120)
def test_a_reader_at_rest_has_the_end_of_its_run(instance):
    streams = [instance.run_stream(["sh", "-c", "yes | head -c 450000; exit 3"], rm=rm) for rm in (False, True)]
    for _ in streams:
        instance.wait_event("exec.ended", match=lambda event: event["data"]["output_bytes"] == 450000)
    stays(*[stream.sock for stream in streams])
    for stream in streams:
        frames = stream.until(STATUS)
        equal(sum(len(payload) - 8 for kind, _, payload in frames if kind == STDOUT), 450000)
        equal(json.loads(frames[-1][2])["code"], 3)
        kind, _, summary = stream.next()
        equal((kind, json.loads(summary)["summary"]["kept"]), (OBJECT, False))
        equal(stream.next(), None)


def cay_run(instance, cwd, *options):
    """`cay run` of a command whose output nobody reads yet, when it has ended: (process, its error output later on)."""
    start = len(instance.events()) + 1
    process = subprocess.Popen([CAY, "run", *options, "--", "sh", "-c", "touch new; " + SAYS], cwd=cwd, env=instance.environment(),
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    instance.wait_event("exec.ended", match=lambda event: event["data"]["output_bytes"] == LAST, start=start)
    return process


def equal_end(process, kept):
    out, err = process.communicate(timeout=60)
    equal((process.returncode, len(out), b"cay diff" in err), (3, LAST, kept), err.decode())


@timeout(120)
def test_a_reader_at_rest_has_the_end_of_its_run_from_the_next_server(fresh, tmp):
    process, removed = cay_run(fresh, tmp), cay_run(fresh, tmp, "--rm")
    fresh.stop()
    fresh.start()
    equal_end(process, True)
    equal_end(removed, False)


@timeout(120)
def test_whoever_ends_a_run_does_not_wait_for_its_reader(fresh, tmp):
    """Its command has ended; its client has all that was written all the same."""
    process = cay_run(fresh, tmp)
    box = fresh.get("/v1/sandboxes")["sandboxes"][0]["id"]
    fresh.cay("stop", box, timeout=20)
    contains(fresh.get(f"/v1/sandboxes/{box}")["state"], "stopped")
    equal_end(process, True)


def at_rest(instance, argv):
    """A run whose command has ended, and whose client reads nothing: (its stream, its sandbox)."""
    stream = instance.run_stream(argv)
    return stream, instance.wait_event("exec.ended")["sandbox"]


@timeout(120)
def test_whoever_ends_a_run_does_not_wait_for_what_its_reader_has_not_taken(fresh):
    """More than goes into its socket waits in the server when the command has ended."""
    stream, box = at_rest(fresh, ["head", "-c", "500000", "/dev/zero"])
    fresh.cay("rm", "-f", box, timeout=20)
    equal(fresh.get("/v1/sandboxes")["sandboxes"], [])
    frames = stream.until(STATUS)
    equal(sum(len(payload) - 8 for kind, _, payload in frames if kind == STDOUT), 500000)


@timeout(120)
def test_whoever_ends_a_run_does_not_wait_until_its_reader_asks_for_more(fresh):
    """Its command has written more than its client wants to have for now, who is told what it misses."""
    stream, box = at_rest(fresh, ["head", "-c", "900000", "/dev/zero"])
    fresh.cay("rm", "-f", box, timeout=20)
    equal(fresh.get("/v1/sandboxes")["sandboxes"], [])
    frames = stream.until(STATUS)
    has = sum(len(payload) - 8 for kind, _, payload in frames if kind == STDOUT)
    equal([struct.unpack("<QQ", payload) for kind, _, payload in frames if kind == GAP], [(has, 900000)])
    equal(json.loads(frames[-1][2])["code"], 0)
