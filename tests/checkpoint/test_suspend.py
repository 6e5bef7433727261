# SPDX-License-Identifier: Apache-2.0
"""Suspended to disk and brought back: the same processes, each byte once, and nothing of them anywhere in between. (Real programs at work: test_live_programs.py.)"""

import ast
import concurrent.futures
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time

from lib import cay, leaks
from lib.case import contains, equal, raises, require, timeout
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import WINDOW, ask, fork_live, put, rootless, say, start, wait_output  # noqa: E402
from programs import Redis, Repl, start_repl  # noqa: E402
from suspending import drop_cache, forgotten, memories, resume, suspend, there_and_back  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")


@require(*NEEDS)
def test_python_with_state_and_threads_twice(instance):
    with instance.sandbox() as box:
        run = start_repl(instance, box)
        inner = ask(instance, box, run, "__import__('os').getpid()")
        for n in range(2):
            equal(ask(instance, box, run, f"state['seen'].append({n}) or open('/tmp/f{n}', 'w').write('x')"), "1\n")
            there_and_back(instance, box)
            equal(ask(instance, box, run, "(state['seen'], goes_on(), threading.active_count(), sorted(__import__('glob').glob('/tmp/f*')))"),
                  f"({list(range(n + 1))}, True, 7, {['/tmp/f' + str(i) for i in range(n + 1)]})\n")
            equal(ask(instance, box, run, "__import__('os').getpid()"), inner)
        kinds = [e["type"] for e in instance.events(box) if e["type"].startswith("sandbox.") or e["type"] == "exec.ended"]
        equal([k for k in kinds if k in ("sandbox.suspended", "sandbox.resumed", "exec.ended", "sandbox.stopped")],
              ["sandbox.suspended", "sandbox.resumed", "sandbox.suspended", "sandbox.resumed"])


# What it has mapped now and had not when it began, pages of memory that comes behind the answer among it.
MAPPED = """
import re, sys
memory = bytearray(b"m") * (int(sys.argv[1]) << 20)
def mapped():
    with open("/proc/self/maps") as f:
        return [(int(a, 16), int(b, 16)) for a, b in re.findall("^([0-9a-f]+)-([0-9a-f]+) ", f.read(), re.M)]
mapped()
first = mapped()
print("ready", flush=True)
for line in sys.stdin:
    print([(a, b) for a, b in mapped() if not any(c <= a and b <= d for c, d in first)], memory.count(b"m") == len(memory), flush=True)
"""


@require(*NEEDS)
def test_nothing_of_the_restorer_stays(instance):
    """In the memory of whoever was resumed or forked, however often, but for the few pages that it was sent back from."""
    with instance.sandbox() as box:
        runs = [start(instance, box, "/usr/bin/python3", "-c", MAPPED, size) for size in ("1", "40")]
        for n in range(3):
            fork = fork_live(instance, box)[0]
            for where in (box, fork)[n == 0 :]:
                for run in runs:
                    added, whole = ast.literal_eval(ask(instance, where, run, "").replace("] ", "], "))
                    assert whole
                    assert added and all(WINDOW[0] <= a and b <= WINDOW[1] for a, b in added), [(hex(a), hex(b)) for a, b in added]
                    assert sum(b - a for a, b in added) < 64 << 10, added
            instance.remove(fork)
            there_and_back(instance, box)


COUNTER = """
import sys, time
for n in range(1, int(sys.argv[1]) + 1):
    print(n, flush=True)
    time.sleep(0.002)
"""


@require(*NEEDS, "userns", "newuidmap", *Redis.needs)
def test_rootless(tmp):
    """An ordinary user's: twice, with an end of the server and a fork of what is suspended in between."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        programs = [kind(instance, box) for kind in (Repl, Redis)]
        for n, word in enumerate(("once", "twice")):
            suspend(instance, box)
            instance.stop()
            instance.start()
            drop_cache(instance, box)
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
            resume(instance, box)
            for program in programs:
                equal(program.tell(fork, "fork"), ["once", "twice"][:n] + ["fork"])
                equal(program.tell(box, word), ["once", "twice"][:n + 1])
            instance.remove(fork)
        forgotten(instance, memories(instance))


@require(*NEEDS)
def test_output_and_input_come_exactly_once(instance):
    """A program that writes all the time, one that echoes what waits in its pipe: suspended in the middle, three times."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/count.py", COUNTER)
        count = instance.exec(box, "/usr/bin/python3", "/tmp/count.py", "1500")
        echo = instance.exec(box, "/bin/bash", "-c", "echo ready; sleep 1; exec cat", stdin=True)
        wait_output(instance, box, echo, b"ready\n")
        for n in range(3):
            say(instance, box, echo, f"line {n}\n")
            there_and_back(instance, box)
        equal(wait_output(instance, box, echo, b"line 2\n").decode(), "ready\nline 0\nline 1\nline 2\n")
        equal((instance.wait(box, count)["status"], instance.output(box, count).decode()), ("exited", "".join(f"{n}\n" for n in range(1, 1501))))


# Pages of noise, of words and of zeros in runs of changing length, over several chunks, in two mappings of odd sizes; the second has pages that nobody touched.
PAGES = """
import hashlib, mmap, random, sys
draw = random.Random(5)
def fill(held, touch_all):
    at = 0
    while at < len(held):
        run, kind = draw.choice((1, 2, 3, 7, 64, 300)) * 4096, draw.choice("nwz")
        run = min(run, len(held) - at)
        if kind == "n":
            held[at:at + run] = draw.randbytes(run)
        elif kind == "w":
            held[at:at + run] = (b"the memory of a program " * (run // 24 + 1))[:run]
        elif touch_all:
            held[at:at + run] = bytes(run)
        at += run
first, second = bytearray((9 << 20) + 12345), mmap.mmap(-1, (5 << 20) + 3 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
fill(first, True)
fill(second, False)
print("ready", flush=True)
for line in sys.stdin:
    print(hashlib.sha256(first).hexdigest(), hashlib.sha256(second).hexdigest(), flush=True)
"""


@require(*NEEDS)
def test_every_byte_comes_back(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/pages.py", PAGES)
        run = start(instance, box, "/usr/bin/python3", "/tmp/pages.py")
        before = ask(instance, box, run, "?")
        for _ in range(2):
            there_and_back(instance, box)
            equal(ask(instance, box, run, "?"), before)


READS = "echo ready; while read line; do echo got $line; done; echo over"


def client(instance, *argv):
    return instance.popen([os.path.join(instance.programs, "cay"), *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def write(process, text):
    process.stdin.write(text)
    process.stdin.flush()


@require(*NEEDS)
def test_clients_stay_attached(instance):
    """Who started a command and who joined it, before or while it is suspended, go on with it: no line is missing, and none comes twice."""
    with instance.sandbox() as box:
        first = client(instance, "exec", box, "--", "/bin/sh", "-c", READS)
        equal(first.stdout.readline(), "ready\n")
        run = instance.get(f"/v1/sandboxes/{box}/execs")["execs"][-1]
        second, third = client(instance, "attach", box, run["id"]), None
        equal(second.stdout.readline(), "ready\n")
        for n in range(3):
            write(first, f"before {n}\n")
            instance.post(f"/v1/sandboxes/{box}/suspend")
            write(first, f"while {n}\n")
            if third is None:
                third = client(instance, "attach", box, run["id"])
                equal(third.stdout.readline(), "ready\n")
            instance.post(f"/v1/sandboxes/{box}/resume")
            write(first, f"after {n}\n")
            for process in (first, second, third):
                equal([process.stdout.readline() for _ in range(3)], [f"got {when} {n}\n" for when in ("before", "while", "after")])
        first.stdin.close()
        for process in (first, second, third):
            equal((process.stdout.read(), process.wait(30)), ("over\n", 0))
            process.stdout.close()
        for process in (second, third):
            process.stdin.close()


@require(*NEEDS)
def test_who_follows_the_output_goes_on(instance):
    """A suspension is not the end of it, whoever follows since when: no line is missing, and none comes twice."""
    with instance.sandbox() as box:
        run = start(instance, box, "/bin/sh", "-c", READS)
        raw = cay.UnixConnection(instance.socket, 60)
        raw.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output?follow=true")
        answer = raw.getresponse()
        followers = [client(instance, "logs", "--follow", box)]
        equal((answer.readline(), followers[0].stdout.readline()), (b"ready\n", "ready\n"))
        for n in range(3):
            instance.post(f"/v1/sandboxes/{box}/suspend")
            followers.append(client(instance, "logs", "--follow", box))
            equal(followers[-1].stdout.readline(), "ready\n")
            equal([followers[-1].stdout.readline() for _ in range(n)], [f"got {k}\n" for k in range(n)])
            instance.post(f"/v1/sandboxes/{box}/resume")
            say(instance, box, run, f"{n}\n")
            equal([process.stdout.readline() for process in followers], [f"got {n}\n"] * len(followers))
            equal(answer.readline(), f"got {n}\n".encode())
        instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"")
        for process in followers:
            equal((process.stdout.read(), process.wait(30)), ("over\n", 0))
            process.stdout.close()
            process.stdin.close()
        equal(answer.read(), b"over\n")
        raw.close()


def following(instance, box, run):
    """The answer to who follows its output by frames."""
    connection = cay.UnixConnection(instance.socket, 60)
    connection.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output?follow=true", headers={"Accept": "application/vnd.cay.frames"})
    return connection.getresponse()


@require(*NEEDS)
def test_who_follows_a_suspended_command_is_told_its_end(fresh):
    """A server that ends is none."""
    with fresh.sandbox() as box:
        run = start(fresh, box, "/bin/sh", "-c", READS)
        suspend(fresh, box)
        answer = following(fresh, box, run)
        fresh.stop()
        raises(http.client.IncompleteRead, answer.read)
        fresh.start()
        answer = following(fresh, box, run)
        fresh.post(f"/v1/sandboxes/{box}/stop", {})
        text = answer.read()
        contains(text, b"ready\n")
        contains(text, b'"status":"killed"')


# Reads nothing before it is told to.
LATER = "echo ready; while ! [ -e /tmp/go ]; do sleep 0.05; done; sha256sum"


def windows(stream, n):
    """Until the command's pipe has taken @n bytes of what was sent on @stream."""
    while n > 0:
        kind, _, payload = stream.next()
        n -= struct.unpack("<I", payload)[0] if kind == cay.WINDOW else 0
    equal(n, 0)


@require(*NEEDS)
def test_who_comes_back_is_told_exactly_how_much_of_his_input_came(instance):
    """What waits in the pipe of the command has come once. Whoever hears of more does not send the rest again."""
    sent = 200_000
    with instance.sandbox() as box:
        run = start(instance, box, "/bin/sh", "-c", LATER)
        with contextlib.closing(instance.attach(box, run)) as stream:
            stream.send(cay.STDIN, bytes(sent))
            windows(stream, 65536)
            for _ in range(2):
                there_and_back(instance, box)
                with contextlib.closing(instance.attach(box, run)) as again:
                    told = next(json.loads(payload) for kind, _, payload in iter(again.next, None) if kind == cay.OBJECT and b'"input"' in payload)
                equal(told["input"]["received"], sent)
        instance.ok(box, "touch /tmp/go")


@require(*NEEDS)
def test_input_that_is_posted_goes_on_behind_a_resume(instance):
    """A body under way when its sandbox is suspended waits until it is resumed, and comes whole; a rewind in the middle of it is told."""
    octets = {"Content-Type": "application/octet-stream"}
    body = random.Random(3).randbytes(6 << 20)
    with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor() as pool:
        run = start(instance, box, "/bin/sh", "-c", LATER)
        path = "/v1/sandboxes/%s/execs/%s/stdin?close=true"
        with contextlib.closing(instance.attach(box, run)) as stream:
            posted = pool.submit(instance.raw, "POST", path % (box, run["id"]), body, octets)
            windows(stream, 65536)
        for _ in range(2):
            there_and_back(instance, box)
        assert not posted.done(), posted.result()
        instance.ok(box, "touch /tmp/go")
        equal(posted.result(60)[0], 204)
        equal(instance.wait(box, run)["code"], 0)
        contains(instance.output(box, run), hashlib.sha256(body).hexdigest().encode())
        instance.ok(box, "rm /tmp/go")
        run = start(instance, box, "/bin/sh", "-c", LATER)
        point = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        with contextlib.closing(instance.attach(box, run)) as stream:
            posted = pool.submit(instance.raw, "POST", path % (box, run["id"]), body, octets)
            windows(stream, 65536)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": point})
        status, _, text = posted.result(60)
        equal((status, json.loads(text)["error"]["code"]), (409, "state"))
        contains(json.loads(text)["error"]["message"], "was rewound while this was written")


@require(*NEEDS)
def test_input_that_nobody_reads_any_more(instance):
    """The answer says that some of it was sent before, whether the sandbox was suspended meanwhile or not."""
    for suspended in (False, True):
        nobody_reads(instance, suspended)


def nobody_reads(instance, suspended):
    with instance.sandbox() as box:
        run = start(instance, box, "/bin/sh", "-c", "echo ready; read line; exec <&-; touch /tmp/closed; sleep 1000")
        with contextlib.closing(cay.UnixConnection(instance.socket)) as post:
            post.putrequest("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin")
            post.putheader("Content-Type", "application/octet-stream")
            post.putheader("Transfer-Encoding", "chunked")
            post.endheaders()
            with contextlib.closing(instance.attach(box, run)) as stream:
                assert any(kind == cay.OBJECT and b'"input"' in payload for kind, _, payload in iter(stream.next, None))
                post.send(b"5\r\nline\n\r\n")
                instance.ok(box, "while ! [ -e /tmp/closed ]; do sleep 0.05; done")
                post.send(b"5\r\nmore\n\r\n")
                windows(stream, 10)
            if suspended:
                there_and_back(instance, box)
            post.send(b"5\r\nrest\n\r\n0\r\n\r\n")
            answer = post.getresponse()
            equal((answer.status, json.loads(answer.read())["error"]["message"]),
                  (409, f"the standard input of exec '{run['id']}' has ended: {10 if suspended else 15} bytes of this had been sent, and nobody reads more"))


@require(*NEEDS)
def test_a_client_that_waits_learns_what_else_becomes_of_it(instance):
    with instance.sandbox() as box:
        waits = client(instance, "exec", box, "--", "/bin/sh", "-c", READS)
        equal(waits.stdout.readline(), "ready\n")
        instance.post(f"/v1/sandboxes/{box}/suspend")
        instance.post(f"/v1/sandboxes/{box}/resume", {"files_only": True})
        equal((waits.stdout.read(), waits.wait(30)), ("", 137))
        waits.stdout.close()
        waits.stdin.close()


@require(*NEEDS)
def test_a_deadline_stands_still(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "/bin/sleep", "3600", timeout_ms=5000)
        suspend(instance, box)
        time.sleep(6)  # longer than the deadline: what is tested is that nothing comes of it
        resume(instance, box)
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        equal(instance.wait(box, run)["status"], "timeout")


@require(*NEEDS)
def test_while_suspended(instance):
    """What is shown, refused, and still possible; and that the program never learns of any of it."""
    with instance.sandbox() as box:
        run = start_repl(instance, box)
        before = instance.output(box, run)
        memory = suspend(instance, box)["memory"]
        assert 0 < memory["stored"] < memory["bytes"], memory
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "suspended")
        equal(instance.output(box, run), before)
        error = raises(ApiError, instance.exec, box, "/bin/true")
        equal(error.code, "state")
        contains(instance.cay("exec", box, "--", "true", want=None, check=False).stderr, "cay resume")
        equal(raises(ApiError, instance.post, f"/v1/sandboxes/{box}/suspend").code, "state")
        equal(raises(ApiError, instance.post, f"/v1/sandboxes/{box}/start").code, "state")
        contains(instance.cay("ps").stdout, "suspended")
        equal(instance.cay("resume", box).stdout.strip(), instance.get(f"/v1/sandboxes/{box}")["name"])
        equal(ask(instance, box, run, "goes_on()"), "True\n")


@require(*NEEDS)
def test_the_server_ends_and_comes_back_while_suspended(fresh):
    with fresh.sandbox() as box:
        run = start_repl(fresh, box)
        equal(ask(fresh, box, run, "state['seen'].append('before')"), "None\n")
        suspend(fresh, box)
        for end in (fresh.stop, fresh.kill):
            end()
            fresh.start()
            equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "suspended")
        fork = fresh.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        resume(fresh, box)
        equal(ask(fresh, box, run, "(state['seen'], goes_on())"), "(['before'], True)\n")
        for one in (box, fork):
            equal([(e["state"], e["pid"] > 0) for e in fresh.get(f"/v1/sandboxes/{one}/execs")["execs"] if e["id"] == run["id"]], [("running", True)])
        fresh.remove(fork)


@require("root", "cgroup2")
def test_files_alone_of_a_paused_sandbox_are_refused(instance):
    """Its processes are there, and would go on."""
    with instance.sandbox() as box:
        run = instance.exec(box, "sleep", "1000")
        instance.post(f"/v1/sandboxes/{box}/pause")
        equal(raises(ApiError, instance.post, f"/v1/sandboxes/{box}/resume", {"files_only": True}).code, "state")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "paused")
        instance.post(f"/v1/sandboxes/{box}/resume")
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")


@require(*NEEDS)
def test_stopped_removed_and_rewound_while_suspended(instance):
    before = memories(instance)
    with instance.sandbox() as box:
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "point"})
        run = start_repl(instance, box)
        suspend(instance, box)
        equal(instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "point"})["state"], "running")
        equal(instance.wait(box, run)["status"], "killed")
        run = start_repl(instance, box)
        suspend(instance, box)
        equal(instance.post(f"/v1/sandboxes/{box}/resume", {"files_only": True})["state"], "running")
        equal((instance.wait(box, run)["status"], instance.ok(box, "ls /var/tmp/repl.py")), ("killed", "/var/tmp/repl.py\n"))
        suspend(instance, box)
        equal(instance.post(f"/v1/sandboxes/{box}/stop", {})["state"], "stopped")
        instance.post(f"/v1/sandboxes/{box}/start")
        suspend(instance, box)
        error = raises(cay.ApiError, instance.call, "DELETE", f"/v1/sandboxes/{box}")
        equal((error.code, error.message), ("state", f"sandbox '{instance.get(f'/v1/sandboxes/{box}')['name']}' is suspended: it cannot be removed"))
        instance.remove(box)
        instance.call("DELETE", "/v1/snapshots/point")
        equal(memories(instance) - before, set())
        box = instance.post("/v1/sandboxes", {})["id"]  # for the end of the `with`, which removes one
        instance.remove(box)


@require(*NEEDS)
def test_a_fork_of_a_suspended_one(instance):
    """The fork goes on; the suspended one stays where it was, and goes on later."""
    with instance.sandbox() as box:
        run = start_repl(instance, box)
        equal(ask(instance, box, run, "open('/tmp/f', 'w').write('one') and state['seen'].append(1)"), "None\n")
        suspend(instance, box)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        equal(ask(instance, fork, run, "state['seen'].append('fork') or (state['seen'], open('/tmp/f').read(), goes_on())"), "([1, 'fork'], 'one', True)\n")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "suspended")
        resume(instance, box)
        equal(ask(instance, box, run, "(state['seen'], open('/tmp/f').read(), goes_on())"), "([1], 'one', True)\n")
        instance.remove(fork)


@require(*NEEDS)
def test_the_files_alone_of_a_suspended_one(instance):
    """As of a running one, where that was asked for; otherwise its processes are in it."""
    with instance.sandbox() as box:
        run = start_repl(instance, box)
        suspend(instance, box)
        for body, alone in (({"files_only": True}, True), ({}, False), ({"files_only": False}, False)):
            s = instance.post(f"/v1/sandboxes/{box}/snapshots", body)
            equal((s["files_only"], "memory" in s), (alone, not alone), body)
            fork = instance.post(f"/v1/snapshots/{s['id']}/fork", {})["sandboxes"][0]
            equal(fork["execs_running"], 0 if alone else 1, body)
            instance.remove(fork["id"])
            instance.call("DELETE", f"/v1/snapshots/{s['id']}")
        resume(instance, box)
        equal(ask(instance, box, run, "goes_on()"), "True\n")


@require(*NEEDS)
@timeout(180)
def test_a_live_snapshot_outlives_the_server(fresh):
    """Named, so it is durable when it is answered, its memory too; forked and rewound to from disk, after an end in order and after kill -9."""
    with fresh.sandbox() as box:
        run = start_repl(fresh, box)
        equal(ask(fresh, box, run, "open('/tmp/f', 'w').write('one') and state['seen'].append(1)"), "None\n")
        snapshot = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"name": "instant", "files_only": False})
        equal((snapshot["state"], snapshot["files_only"]), ("durable", False))
        assert snapshot["memory"]["stored"] > 0, snapshot
        equal(ask(fresh, box, run, "open('/tmp/f', 'w').write('two') and state['seen'].append(2)"), "None\n")
        for end in (fresh.stop, fresh.kill):
            end()
            fresh.start()
            equal(fresh.get("/v1/snapshots/instant")["files_only"], False)
            fork = fresh.post("/v1/snapshots/instant/fork", {})["sandboxes"][0]["id"]
            equal(ask(fresh, fork, run, "(state['seen'], open('/tmp/f').read(), goes_on())"), "([1], 'one', True)\n")
            fresh.remove(fork)
        equal(fresh.post("/v1/snapshots/instant/verify")["state"], "verified")
        fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "instant"})
        equal(ask(fresh, box, run, "(state['seen'], open('/tmp/f').read(), goes_on())"), "([1], 'one', True)\n")
        path = os.path.join(fresh.state, "pool", "memory", snapshot["memory"]["id"], "PAGES")
        with open(path, "r+b") as f:
            f.seek(os.path.getsize(path) // 2)
            byte = f.read(1)[0]
            f.seek(-1, 1)
            f.write(bytes([byte ^ 1]))
        equal(raises(ApiError, fresh.post, "/v1/snapshots/instant/verify").code, "corrupt")
        equal(fresh.get("/v1/snapshots/instant")["state"], "corrupt")
        equal(raises(ApiError, fresh.post, "/v1/snapshots/instant/fork", {}).code, "corrupt")
        fresh.call("DELETE", "/v1/snapshots/instant")
        equal(memories(fresh), set())


@require(*NEEDS)
def test_what_is_refused_goes_on(instance):
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c",
                    "import os, sys; os.mkfifo('/dev/shm/gone'); f = os.open('/dev/shm/gone', os.O_RDWR); os.unlink('/dev/shm/gone'); "
                    "print('ready', flush=True)\nfor l in sys.stdin: print('on', flush=True)")
        before = memories(instance)
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/suspend")
        equal(error.code, "unsupported")
        equal(ask(instance, box, run, "still there?"), "on\n")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
        equal(memories(instance) - before, set())


def signal_beside(instance, box, run):
    """Send it one while the server stands still: its keeper is asked by somebody else."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as sock:
        sock.connect(os.path.join(instance.run, "keepers", f"{box}.sock"))
        frames = cay.Frames(sock)
        frames.next()  # its hello
        frames.send(1, {"id": 1, "verb": "signal", "channel": 1, "signal": signal.SIGURG})
        equal(json.loads(frames.next()[2]), {"id": 1, "ok": {}}, run["id"])


def overlays(instance):
    """How many of a sandbox the server holds."""
    fds = f"/proc/{instance.process.pid}/fd"
    return sum(os.readlink(f"{fds}/{fd}") == "/" for fd in os.listdir(fds) if os.path.lexists(f"{fds}/{fd}"))


@require(*NEEDS)
def test_what_is_refused_at_last_counts_once_and_nothing_of_it_is_held(fresh):
    fresh.stop()
    fresh.start(CAY_FAULT="sandbox.suspend.saved=hold")
    with fresh.sandbox() as box, concurrent.futures.ThreadPoolExecutor() as threads:
        run = start(fresh, box, "/usr/bin/python3", "-c", "import time; f = open('/var/tmp/open', 'w'); print('ready', flush=True)\ntime.sleep(1000)")
        before, held = fresh.get(f"/v1/sandboxes/{box}/usage"), overlays(fresh)
        refused = threads.submit(raises, ApiError, fresh.post, f"/v1/sandboxes/{box}/suspend")
        cay.wait_until(lambda: leaks.processes()[fresh.process.pid][1] == "T", 60, "its memory is on disk")
        signal_beside(fresh, box, run)
        os.kill(fresh.process.pid, signal.SIGCONT)
        equal(refused.result().code, "busy")
        after = fresh.get(f"/v1/sandboxes/{box}/usage")
        equal((after["output_bytes"], overlays(fresh)), (before["output_bytes"], held))
        assert before["cpu_us"] <= after["cpu_us"] and before["running_ms"] <= after["running_ms"], (before, after)


@require(*NEEDS)
def test_what_cannot_reach_a_command_meanwhile_says_why(instance):
    """It has not ended: it was said of it."""
    with instance.sandbox() as box:
        run = instance.exec(box, "cat", tty={"rows": 24, "columns": 80})
        suspend(instance, box)
        for verb, body in (("signal", {"signal": 15}), ("resize", {"rows": 10, "columns": 20}), ("stdin", {})):
            error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/execs/{run['id']}/{verb}", body)
            equal((error.code, error.hint.startswith("resume it first: cay resume ")), ("state", True), error.message)
            contains(error.message, "is suspended", verb)
        resume(instance, box)
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 15})
        equal(instance.wait(box, run)["signal"], 15)
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 15})
        contains(error.message, "has ended")


def shown_until(fd, wanted):
    shown = b""
    while wanted not in shown:
        shown += os.read(fd, 65536)
    return shown.decode(errors="replace")


@require(*NEEDS)
def test_who_sits_at_a_terminal_is_told_and_can_leave(instance):
    """What is typed meanwhile comes when it is resumed; ~. leaves the command there."""
    with instance.sandbox(name="seat") as box:
        for leave in (False, True):
            process, fd = instance.terminal("exec", "-it", "seat", "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo \"got $x.\"; done")
            try:
                shown_until(fd, b"ready")
                suspend(instance, box)
                contains(shown_until(fd, b"leaves it\r\n"), f"the sandbox is suspended; cay resume {box} lets the command go on")
                if leave:
                    os.write(fd, b"~.")
                    contains(shown_until(fd, b"cay attach"), "it goes on: ")
                    equal(process.wait(20), 0)
                else:
                    os.write(fd, b"typed\n")
                resume(instance, box)
                if not leave:
                    shown_until(fd, b"got typed.")
                    os.write(fd, b"\x04")
                    equal(process.wait(20), 0)
            finally:
                process.kill()
                process.wait()
                os.close(fd)


@require(*NEEDS)
def test_who_follows_at_a_terminal_is_told(instance):
    with instance.sandbox(name="followed") as box:
        start(instance, box, "/bin/sh", "-c", READS)
        process, fd = instance.terminal("logs", "--follow", "followed")
        try:
            shown_until(fd, b"ready")
            instance.post(f"/v1/sandboxes/{box}/suspend")
            shown_until(fd, b"cay: the sandbox is suspended; cay resume followed lets the command go on\r\n")
            instance.post(f"/v1/sandboxes/{box}/stop", {})
            equal(process.wait(20), 0)
        finally:
            process.kill()
            process.wait()
            os.close(fd)


def as_from_elsewhere(instance, path, machine, member, value):
    """A manifest that this instance has signed, but on another machine."""
    with open(path, encoding="utf-8") as f:
        manifest = json.load(f)
    del manifest["hmac"]
    manifest["machine"] = dict(machine, **{member: value})
    with open(os.path.join(instance.state, "key"), "rb") as f:
        text = json.dumps(manifest, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        manifest["hmac"] = hmac.new(f.read(), text.encode(), "sha256").hexdigest()
    with open(path, "w", encoding="utf-8") as f:
        json.dump(manifest, f)


@require(*NEEDS)
def test_a_resume_that_fails_names_the_way_out(fresh):
    """Whatever it was that could not be made again: the sandbox stays suspended, and its files are fine."""
    fresh.stop()
    fresh.start(CAY_FAULT="live.process.made")
    with fresh.sandbox() as box:
        start_repl(fresh, box)
        suspend(fresh, box)
        name = fresh.get(f"/v1/sandboxes/{box}")["name"]
        error = raises(ApiError, fresh.post, f"/v1/sandboxes/{box}/resume")
        equal(error.code, "internal")
        contains(error.hint or "", f"cay resume --files-only {name}")
        contains(fresh.cay("resume", name, check=False).stderr, f"cay resume --files-only {name}")
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "suspended")
        fresh.cay("resume", "--files-only", name)
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "running")


@require(*NEEDS)
def test_a_changed_or_foreign_memory_is_refused(instance):
    """One bit anywhere, or a manifest of another kernel or processor: refused, and the sandbox stays as it is."""
    with instance.sandbox() as box:
        start_repl(instance, box)
        memory = suspend(instance, box)["memory"]["id"]
        place = os.path.join(instance.state, "pool", "memory", memory)
        for name in ("PAGES", "INDEX", "STATE", "MANIFEST"):
            path = os.path.join(place, name)
            with open(path, "rb") as f:
                whole = f.read()
            with open(path, "r+b") as f:
                f.seek(len(whole) // 2)
                f.write(bytes([whole[len(whole) // 2] ^ 1]))
            error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/resume")
            equal(error.code, "corrupt", name)
            contains(error.hint or "", "cay resume --files-only ")
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], "suspended")
            with open(path, "r+b") as f:
                f.write(whole)
        with open(os.path.join(place, "MANIFEST"), encoding="utf-8") as f:
            machine = json.load(f)["machine"]
        newer, older = machine["image"] + 1, machine["image"] - 1
        for member, value, says in (("image", newer, f"a newer version of cay: its image has format {newer}, this one reads {newer - 1}"),
                                    ("image", older, "an older version of cay"), ("kernel", "1.0", "kernel 1.0"), ("vdso", "00", "vDSO"), ("cpu", ["perfect"], "'perfect'"), ("xsave", 1, "registers")):
            as_from_elsewhere(instance, os.path.join(place, "MANIFEST"), machine, member, value)
            error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/resume")
            equal(error.code, "unsupported")
            contains(error.message, says)
            contains(instance.cay("resume", box, check=False).stderr, "--files-only")
        equal(instance.post(f"/v1/sandboxes/{box}/resume", {"files_only": True})["state"], "running")


@require(*NEEDS)
def test_a_rewind_to_the_files_alone(fresh):
    """Of a snapshot with processes: they do not go on, and are in it still; also where this machine cannot have them."""
    with fresh.sandbox() as box:
        fresh.ok(box, "echo then > /tmp/file")
        run = start_repl(fresh, box)
        name = fresh.cay("snapshot", box, "--name", "live").stdout.strip()
        cay.wait_until(lambda: fresh.get(f"/v1/snapshots/{name}").get("memory"), 60, "its memory is on disk")
        place = os.path.join(fresh.state, "pool", "memory", fresh.get(f"/v1/snapshots/{name}")["memory"]["id"])
        with open(os.path.join(place, "MANIFEST"), encoding="utf-8") as f:
            machine = json.load(f)["machine"]
        for state in ("running", "suspended", "running", "stopped"):
            fresh.ok(box, "echo now > /tmp/file; rm -f /tmp/none")
            if state == "suspended":
                suspend(fresh, box)
            elif state == "stopped":
                fresh.cay("stop", box)
            fresh.cay("rewind", "--files-only", box, name)
            if state == "stopped":
                equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "stopped")
                fresh.cay("start", box)
            equal(fresh.get(f"/v1/sandboxes/{box}")["execs_running"], 0)
            equal(fresh.ok(box, "cat /tmp/file; pgrep -c python3 || true"), "then\n0\n")
        fresh.cay("rewind", box, name)
        equal(ask(fresh, box, run, "state['seen'].append(1) or len(state['seen'])"), "1\n")
        as_from_elsewhere(fresh, os.path.join(place, "MANIFEST"), machine, "kernel", "1.0")
        fresh.stop()
        fresh.start()
        contains(fresh.cay("rewind", box, name, check=False).stderr, "--files-only")
        fresh.cay("rewind", "--files-only", box, name)
        equal(fresh.ok(box, "cat /tmp/file; pgrep -c python3 || true"), "then\n0\n")


@require(*NEEDS)
def test_many_commands_at_once(instance):
    """Each has a control group and pipes, also one that ended and has left a daemon behind. What is too much is said by name, before anything happens."""
    with instance.sandbox() as box:
        for _ in range(40):
            instance.ok(box, "setsid sleep 1000 > /dev/null 2>&1 &")
        instance.ok(box, "for i in $(seq 150); do setsid sleep 1001 > /dev/null 2>&1 & done")  # all of one group, none with a parent of its own
        runs = [instance.exec(box, "cat", stdin=True) for _ in range(40)]
        fork = fork_live(instance, box)[0]
        there_and_back(instance, box)
        for one in (box, fork):
            equal(ask(instance, one, runs[0], "first"), "first\n")
            equal(ask(instance, one, runs[-1], "last"), "last\n")
            equal(instance.ok(one, "pgrep -cx sleep"), "190\n")
        instance.remove(fork)
        runs += [instance.exec(box, "cat", stdin=True) for _ in range(3)]
        told(instance, box, "more than 128 pipes and terminals of commands that run")
        for run in runs:
            instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9})
        for run in runs:
            instance.wait(box, run)
        there_and_back(instance, box)
        for _ in range(60):
            instance.ok(box, "setsid sleep 1000 > /dev/null 2>&1 &")
        told(instance, box, "processes of more than 96 commands, those included that have ended")
        equal(instance.ok(box, "pgrep -cx sleep"), "250\n")


def told(instance, box, what):
    contains(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"][0]["reason"], what)
    for verb, body in (("fork", {"live": True}), ("suspend", None)):
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
        contains(error.message, what)
        equal(error.code, "unsupported")
    equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")


@require(*NEEDS)
def test_who_waits_for_a_command_hears_of_its_end(instance):
    """Also where its sandbox is suspended, and stopped or removed then: nothing of it runs on."""
    for end, reason in (("stop", "the sandbox was stopped"), ("remove", "the sandbox was removed")):
        with instance.sandbox() as box, contextlib.closing(cay.UnixConnection(instance.socket)) as waiting:
            run = instance.exec(box, "sleep", "1000")["id"]
            instance.post(f"/v1/sandboxes/{box}/suspend")
            waiting.request("GET", f"/v1/sandboxes/{box}/execs/{run}?wait_ms=60000")
            instance.get("/v1/version")  # what came before it has been read
            if end == "stop":
                instance.post(f"/v1/sandboxes/{box}/stop")
            else:
                instance.remove(box)
            answer = json.loads(waiting.getresponse().read())
            equal((answer["state"], answer["status"] and answer["status"]["status"]), ("ended", "killed"), end)
            equal(answer["status"]["evidence"], {"reason": reason})
