# SPDX-License-Identifier: Apache-2.0
"""A snapshot behind each exec: every step of a trajectory can be branched, compared and gone back to; older ones are thinned out."""

import contextlib
import http.client
import os
import sys

from lib.case import contains, equal, raises, require, timeout
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, rootless, say, wait_output  # noqa: E402
from programs import start_repl  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
EACH = {"checkpoint": "each-exec"}


def steps(instance, box):
    """{number: step}; behind the last one is waited for."""
    found = {s["step"]: s for s in instance.get(f"/v1/sandboxes/{box}/steps")["steps"]}
    if found and found[max(found)]["ended"]:
        try:
            instance.get(f"/v1/snapshots/{box}@{max(found)}")
        except ApiError as error:
            equal(error.code, "not_found")
    return {s["step"]: s for s in instance.get(f"/v1/sandboxes/{box}/steps")["steps"]}


def fork_at(instance, box, step):
    return instance.post(f"/v1/snapshots/{box}@{step}/fork", {})["sandboxes"][0]["id"]


@require(*NEEDS)
def test_each_step_can_be_branched(instance):
    """Files only, as no process is left between the steps; by number, by exec, from the command line; the trajectory goes on in the fork."""
    with instance.sandbox(**EACH) as box:
        for n in range(1, 5):
            instance.ok(box, f"echo {n} >> /root/log; echo {n} > /root/only-{n}")
        found = steps(instance, box)
        equal(sorted(found), [1, 2, 3, 4])
        for n in (1, 3):
            snapshot = instance.get(f"/v1/snapshots/{box}@{n}")
            equal((snapshot["id"], snapshot["steps"], snapshot["files_only"]), (found[n]["snapshot"], [n], True))
            fork = fork_at(instance, box, n)
            equal(instance.ok(fork, "cat /root/log"), "".join(f"{i}\n" for i in range(1, n + 1)))
            equal(sorted(steps(instance, fork)), [n + 1])
            instance.remove(fork)
        equal(instance.get(f"/v1/snapshots/{box}@{found[2]['exec']}")["id"], found[2]["snapshot"])
        equal(instance.get(f"/v1/snapshots/{box}@{found[2]['exec'][:12]}")["id"], found[2]["snapshot"])
        name = instance.cay("fork", f"{box}@2").stdout.strip()
        equal(instance.cay("exec", name, "--", "cat", "/root/log").stdout, "1\n2\n")
        instance.remove(name)
        equal([c["path"] for c in instance.json("diff", f"{box}@2", f"{box}@3")["changes"] if "only" in c["path"]], ["/root/only-3"])
        contains(instance.cay("steps", box).stdout, found[4]["snapshot"][:8])
        instance.cay("rewind", box, "@2")
        equal(instance.ok(box, "cat /root/log; echo five >> /root/log"), "1\n2\n")
        equal(sorted(steps(instance, box)), [1, 2, 3, 4, 5])
        other = fork_at(instance, box, 5)
        equal(instance.ok(other, "cat /root/log"), "1\n2\nfive\n")
        instance.remove(other)


def go_on_with_processes(instance):
    with instance.sandbox(**EACH) as box:
        run = start_repl(instance, box)
        equal(ask(instance, box, run, "state['seen'].append('one') or 1"), "1\n")
        instance.ok(box, "true")
        equal(ask(instance, box, run, "state['seen'].append('two') or 1"), "1\n")
        instance.ok(box, "true")
        found = steps(instance, box)
        # 1 is the program that goes on
        equal([(n, s["ended"], s["snapshot"] is not None) for n, s in sorted(found.items())], [(1, False, False), (2, True, True), (3, True, True)])
        for n, seen in ((2, ["one"]), (3, ["one", "two"])):
            snapshot = instance.get(f"/v1/snapshots/{box}@{n}")
            equal(snapshot["files_only"], False)
            fork = fork_at(instance, box, n)
            equal(ask(instance, fork, run, "(state['seen'], goes_on())"), f"({seen}, True)\n")
            instance.remove(fork)
        error = raises(ApiError, fork_at, instance, box, 1)
        equal(error.code, "not_found")
        contains(error.message, "has not ended")
        contains(error.message, "@2")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "@2"})
        equal(ask(instance, box, run, "(state['seen'], goes_on())"), "(['one'], True)\n")


@require(*NEEDS)
def test_with_processes_they_go_on(instance):
    go_on_with_processes(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_with_processes_rootless(tmp):
    with rootless(tmp) as instance:
        go_on_with_processes(instance)


@require(*NEEDS)
@timeout(240)
def test_older_ones_are_thinned_out(instance):
    """All of the last 16, then fewer; a named snapshot stays; what is gone is answered with its neighbours."""
    with instance.sandbox(**EACH) as box:
        instance.ok(box, "echo 1 > /root/n")
        named = instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "by-hand"})["id"]
        for n in range(2, 41):
            instance.ok(box, f"echo {n} > /root/n")
        kept = [n for n, s in sorted(steps(instance, box).items()) if s["snapshot"]]
        equal(kept[-16:], list(range(25, 41)))
        equal(kept[:-16], [1, 4, 8, 10, 12, 14, 16, 18, 20, 22, 24])
        error = raises(ApiError, fork_at, instance, box, 5)
        equal(error.code, "not_found")
        contains(error.message, "@4 and ")
        contains(error.message, "@8")
        contains(instance.cay("fork", f"{box}@5", check=False).stderr, "@8")
        fork = fork_at(instance, box, 4)
        equal(instance.ok(fork, "cat /root/n"), "4\n")
        instance.remove(fork)
        equal(instance.get("/v1/snapshots/by-hand")["id"], named)
    own = [s for s in instance.get("/v1/snapshots")["snapshots"] if s["sandbox"] == box]
    equal([s["name"] for s in own], ["by-hand"])
    instance.call("DELETE", "/v1/snapshots/by-hand")


@require(*NEEDS)
def test_what_is_refused_fails_no_exec(instance):
    refused = ("import os; os.mkfifo('/dev/shm/gone'); f = os.open('/dev/shm/gone', os.O_RDWR); os.unlink('/dev/shm/gone'); print('ready', flush=True)\n"
               "import sys\nfor l in sys.stdin: print('on', flush=True)")
    with instance.sandbox(**EACH) as box:
        instance.ok(box, "true")
        run = instance.exec(box, "/usr/bin/python3", "-c", refused, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        equal(instance.ok(box, "echo fine"), "fine\n")
        event = instance.wait_event("checkpoint.failed", box)
        equal((event["data"]["steps"], event["data"]["error"]["code"]), ([3], "unsupported"))
        error = raises(ApiError, fork_at, instance, box, 3)
        contains(error.message, "the nearest is ")
        say(instance, box, run, "x\n")
        equal(wait_output(instance, box, run, b"on\n"), b"ready\non\n")


@require(*NEEDS)
def test_an_event_leads_to_its_neighbours(instance):
    """Through its epoch, also when a rewind has cut off what came later."""
    with instance.sandbox(**EACH) as box:
        for n in range(1, 4):
            instance.ok(box, f"echo {n} > /root/n")
        steps(instance, box)
        ended = {e["exec"]: e for e in instance.events(box) if e["type"] == "exec.created"}
        found = steps(instance, box)

        def around(step):
            both = instance.get(f"/v1/sandboxes/{box}/nearest?epoch={ended[found[step]['exec']]['epoch']}")
            return [both[side] and both[side]["steps"] for side in ("before", "after")]
        equal([around(n) for n in (1, 2, 3)], [[None, [1]], [[1], [2]], [[2], [3]]])
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "@1"})
        instance.ok(box, "echo 4 > /root/n")
        found = steps(instance, box)
        ended = {e["exec"]: e for e in instance.events(box) if e["type"] == "exec.created"}
        equal([around(n) for n in (2, 3, 4)], [[[1], [2]], [[2], [3]], [[1], [4]]])
        equal(raises(ApiError, instance.get, f"/v1/sandboxes/{box}/nearest?epoch=1000").code, "invalid")


@require(*NEEDS)
def test_it_is_switched_on_and_off(instance):
    with instance.sandbox() as box:
        instance.ok(box, "true")
        error = raises(ApiError, instance.get, f"/v1/snapshots/{box}@1")
        equal(error.code, "not_found")
        contains(error.hint, "--checkpoint each-exec")
        instance.cay("set", box, "--checkpoint", "each-exec")
        instance.ok(box, "true")
        assert steps(instance, box)[2]["snapshot"]
        equal(instance.call("PUT", f"/v1/sandboxes/{box}/settings", {"checkpoint": "none"})["checkpoint"], "none")
        instance.ok(box, "true")
        equal([s["snapshot"] is not None for _, s in sorted(steps(instance, box).items())], [False, True, False])
        equal(raises(ApiError, instance.get, f"/v1/snapshots/{box}@9").code, "not_found")
        equal([e["data"]["checkpoint"] for e in instance.events(box) if e["type"] == "sandbox.set"], ["each-exec", "none"])


@require(*NEEDS)
def test_what_a_rewind_ends_has_no_snapshot(fresh):
    """A step that the rewind itself ended never was a state that could be kept; nor does the next server take one, and what came back does not change that."""
    with fresh.sandbox(**EACH) as box:
        run = start_repl(fresh, box)
        fresh.ok(box, "echo 2 > /root/two")
        equal(fresh.get(f"/v1/snapshots/{box}@2")["steps"], [2])
        six = fresh.exec(box, "/bin/sh", "-c", "echo x > /root/six; echo ready; exec sleep 1000")
        wait_output(fresh, box, six, b"ready\n")
        fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "@2"})
        fresh.ok(box, "echo 4 > /root/four")
        equal([s["snapshot"] is not None for _, s in sorted(steps(fresh, box).items())], [False, True, False, True])
        equal(raises(ApiError, fresh.get, f"/v1/snapshots/{box}@3").code, "not_found")
        say(fresh, box, run, "sys.exit()\n")
        fresh.wait(box, run)
        fresh.get(f"/v1/snapshots/{box}@1")
        fresh.kill()
        fresh.start()
        equal(fresh.get(f"/v1/snapshots/{box}@1")["steps"], [1])
        equal(raises(ApiError, fresh.get, f"/v1/snapshots/{box}@3").code, "not_found")


@require(*NEEDS)
def test_a_run_leaves_one_step(instance):
    instance.cay("run", "--name", "stepped", "--no-cwd", "--checkpoint", "each-exec", "--", "sh", "-c", "echo there > /root/f")
    fork = instance.cay("fork", "stepped@1").stdout.strip()
    equal(instance.cay("exec", fork, "--", "cat", "/root/f").stdout, "there\n")
    instance.remove(fork)
    instance.remove("stepped")


def end_at(instance, point):
    """The server dies at @point behind the next step; the one after it takes the snapshot."""
    instance.stop()
    instance.start(CAY_FAULT=f"{point}=kill")


@require(*NEEDS)
def test_a_server_that_dies_in_between_owes_nothing(fresh):
    with fresh.sandbox(**EACH) as box:
        for n, point in enumerate(("step.before", "snapshot.commit.before", "snapshot.commit.after", "step.taken"), 1):
            end_at(fresh, point)
            with contextlib.suppress(OSError, http.client.HTTPException):  # it may die before it has answered
                fresh.exec(box, "/bin/sh", "-c", f"echo {n} >> /root/n")
            fresh.process.wait(60)
            fresh.start()
            fork = fork_at(fresh, box, n)
            equal(fresh.ok(fork, "cat /root/n"), "".join(f"{i}\n" for i in range(1, n + 1)), point)
            fresh.remove(fork)
        equal([s["steps"] for s in fresh.get("/v1/snapshots")["snapshots"]], [[n] for n in range(1, 5)])
