# SPDX-License-Identifier: Apache-2.0
"""What tells the sandboxes apart that go on from one instant: /run/cay/generation, CAY_FORK_HOOK, CAY_FORK_SIGNAL, and nothing of it with keep_identity."""

import os
import sys

from lib.case import contains, equal, raises, require
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, wait_output  # noqa: E402
from suspending import there_and_back  # noqa: E402

NEEDS = ("root", "cgroup2")

PROGRAM = """
import os, random, signal, sys
random.seed(1)
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(os.path.exists("/tmp/hooked")))
def generation():
    try:
        with open("/run/cay/generation") as f:
            return f.read()
    except FileNotFoundError:
        return None
def hooked():
    try:
        with open("/tmp/hooked") as f:
            return f.read().split()
    except FileNotFoundError:
        return None
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
HOOK = '#!/bin/sh\nsleep 0.2\necho "$CAY_EXEC $(cat /run/cay/generation)" > /tmp/hooked\n'


def begin(instance, box):
    instance.ok(box, f"cat > /tmp/program.py <<'END'\n{PROGRAM}\nEND\ncat > /usr/local/bin/hook <<'END'\n{HOOK}END\nchmod +x /usr/local/bin/hook")
    run = instance.exec(box, "/usr/bin/python3", "/tmp/program.py", stdin=True, env={"CAY_FORK_HOOK": "/usr/local/bin/hook", "CAY_FORK_SIGNAL": "10"})
    wait_output(instance, box, run, b"ready\n")
    return run


def look(instance, box, run):
    return eval(ask(instance, box, run, "(generation(), hooked(), told, random.random())"))


@require(*NEEDS)
def test_each_fork_has_a_generation_of_its_own_and_its_hook_has_run(instance):
    with instance.sandbox() as box:
        run = begin(instance, box)
        equal(look(instance, box, run)[:3], (None, None, []))
        forks = [one["id"] for one in instance.post(f"/v1/sandboxes/{box}/fork", {"live": True, "count": 2})["sandboxes"]]
        seen = [look(instance, one, run) for one in forks]
        generations = {s[0] for s in seen}
        equal(len(generations), 2)
        for generation, hooked, told, _ in seen:
            equal(hooked, [run["id"], generation.strip()], "the hook of this exec ran in this fork, before its first new input")
            equal(told, [True], "the signal came after the hook")
        equal(seen[0][3], seen[1][3], "what seeds nothing itself repeats: docs/live-fork.md")
        equal(look(instance, box, run)[:3], (None, None, []), "the source is told of nothing")
        again = instance.post(f"/v1/sandboxes/{forks[0]}/fork", {"live": True})["sandboxes"][0]["id"]
        assert look(instance, again, run)[0] not in generations
        for one in forks + [again]:
            instance.remove(one)


@require(*NEEDS)
def test_nobody_inside_can_change_the_generation(instance):
    with instance.sandbox() as box:
        run = begin(instance, box)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        generation = look(instance, fork, run)[0]
        for act in ("echo mine > /run/cay/generation", "rm /run/cay/generation", "mv /run/cay/generation /tmp", "chmod 666 /run/cay/generation", "mount -o remount,rw /run/cay/generation", "umount /run/cay/generation"):
            equal(instance.sh(fork, act)[0]["code"] == 0, False, act)
        equal(look(instance, fork, run)[0], generation)
        equal(instance.ok(fork, "stat -c '%u %g %a' /run/cay/generation"), "0 0 644\n")
        contains(instance.ok(fork, "cat /proc/self/mountinfo"), " /run/cay/generation ro,")
        instance.remove(fork)


@require(*NEEDS)
def test_a_fork_leaves_nothing_in_the_state(instance):
    with instance.sandbox() as box:
        run = begin(instance, box)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        look(instance, fork, run)
        equal([name for place in ("exec", "trust") for name in os.listdir(os.path.join(instance.state, place)) if fork in name], [], "what was not needed was not made")
        instance.remove(fork)


@require(*NEEDS)
def test_a_number_that_was_used_before_does_not_come_again_at_once(instance):
    """Somebody may remember it. With one thread alone nobody chooses numbers behind the opener; with a socket that knows who made it, somebody does."""
    for more in ("None", "socket.socketpair()"):
        with instance.sandbox() as box:
            program = f"import os, socket, sys\nkept = {more}\nprint('ready', flush=True)\nfor line in sys.stdin:\n    pid = os.fork() or os._exit(0)\n    os.wait()\n    print(pid, flush=True)\n"
            run = instance.exec(box, "/usr/bin/python3", "-c", program, stdin=True)
            wait_output(instance, box, run, b"ready\n")
            for _ in range(20):
                last = int(ask(instance, box, run, ""))
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
            instance.cay("suspend", box)
            instance.cay("resume", box)
            for one in (fork, box):
                after = int(ask(instance, one, run, ""))
                assert last < after < last + 40, (last, after, more)
            instance.remove(fork)


@require(*NEEDS)
def test_nobody_chooses_numbers_where_nobody_asks(fresh):
    """A fork of programs with one thread each has no helper; with more it has one (here: it ends at once)."""
    fresh.stop()
    fresh.start(CAY_FAULT="live.fork.tids")
    for program, forked in (("pass", True), ("import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()", False), ("import socket; kept = socket.socketpair()", False)):
        with fresh.sandbox() as box:
            run = fresh.exec(box, "/usr/bin/python3", "-c", f"{program}\nprint('ready', flush=True)\nfor line in open(0): print('here', flush=True)", stdin=True)
            wait_output(fresh, box, run, b"ready\n")
            if not forked:
                contains(raises(ApiError, fresh.post, f"/v1/sandboxes/{box}/fork", {"live": True}).message, "No such process")
                continue
            fork = fresh.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
            equal(ask(fresh, fork, run, ""), "here\n")
            fresh.remove(fork)


@require(*NEEDS)
def test_keep_identity_changes_nothing(instance):
    with instance.sandbox(name="exact") as box:
        run = begin(instance, box)
        first = instance.json("fork", "exact", "--live", "--keep-identity", "--name", "same")["sandboxes"][0]["id"]
        equal(look(instance, first, run)[:3], (None, None, []))
        changed = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        generation = look(instance, changed, run)[0]
        same = instance.post(f"/v1/sandboxes/{changed}/fork", {"live": True, "keep_identity": True})["sandboxes"][0]["id"]
        equal(look(instance, same, run)[0], generation)
        for one in (first, changed, same):
            instance.remove(one)


@require(*NEEDS)
def test_a_rewind_changes_the_generation_too(instance):
    with instance.sandbox(name="back") as box:
        run = begin(instance, box)
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "then", "files_only": False})
        before = look(instance, box, run)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "then"})
        after = look(instance, box, run)
        assert after[0] is not None
        equal((after[1], after[2], after[3]), ([run["id"], after[0].strip()], [True], before[3]))
        instance.cay("rewind", "back", "then", "--keep-identity")
        equal(look(instance, box, run), before)
        instance.call("DELETE", "/v1/snapshots/then")


# What fork() wipes: of a process alone, and of a child. Libraries of cryptography draw new random numbers when they find it empty.
WIPED = """
import mmap, os, sys
m = mmap.mmap(-1, 8192, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
m[:5] = b"drawn"
m.madvise(18)  # MADV_WIPEONFORK
ask, answer = os.pipe(), os.pipe()
if os.fork() == 0:
    m[:5] = b"child"
    while os.read(ask[0], 1):
        os.write(answer[1], m[:5])
print("ready", flush=True)
for line in sys.stdin:
    os.write(ask[1], b"?")
    print(m[:5], os.read(answer[0], 5), flush=True)
"""


def wiped(instance, box, run):
    return ask(instance, box, run, "").strip()


@require(*NEEDS)
def test_what_fork_wipes_is_empty_wherever_the_generation_changes(instance):
    kept, empty = f"{b'drawn'} {b'child'}", f"{bytes(5)} {bytes(5)}"
    with instance.sandbox(name="wiped") as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", WIPED, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "drawn", "files_only": False})
        for body, found in (({}, empty), ({"keep_identity": True}, kept)):
            fork = instance.post("/v1/snapshots/drawn/fork", {"live": True, **body})["sandboxes"][0]["id"]
            equal(wiped(instance, fork, run), found)
            there_and_back(instance, fork)
            equal(wiped(instance, fork, run), found)
            instance.remove(fork)
        equal(wiped(instance, box, run), kept)
        there_and_back(instance, box)
        equal(wiped(instance, box, run), kept)
        for body, found in (({"keep_identity": True}, kept), ({}, empty)):
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "drawn", **body})
            equal(wiped(instance, box, run), found)
        instance.call("DELETE", "/v1/snapshots/drawn")


@require(*NEEDS)
def test_a_hook_that_fails_is_an_exec_that_failed(instance):
    with instance.sandbox() as box:
        error = raises(ApiError, instance.exec, box, "true", env={"CAY_FORK_SIGNAL": "USR1"})
        equal(error.code, "invalid")
        run = instance.exec(box, "/usr/bin/python3", "-c", "print('ready', flush=True); print(input())", stdin=True, env={"CAY_FORK_HOOK": "/bin/false"})
        wait_output(instance, box, run, b"ready\n")
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        contains(ask(instance, fork, run, "goes on"), "goes on")
        ended = [e for e in instance.get(f"/v1/sandboxes/{fork}/execs")["execs"] if e["argv"] == ["/bin/false"]]
        equal([(e["state"], e["status"]["code"]) for e in ended], [("ended", 1)])
        instance.remove(fork)
