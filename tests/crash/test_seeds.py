# SPDX-License-Identifier: Apache-2.0
"""Keepers and jobs are clones of one of their kind that has begun already (sys/seed.h): whichever of these is killed, and when, everything starts as before, and nothing is left of what was begun.
Files of removed sandboxes go many at once: a server that ends in order leaves none behind."""

import os
import signal
import sys

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402

TIMEOUT = 120
WAITS = True
FAULT = "seed.cloned"
NEEDS = ("root", "cgroup2")


def words(pid):
    return leaks.read(f"/proc/{pid}/cmdline").split("\0")


def spawner(instance):
    table = leaks.processes()
    return next(pid for pid in leaks.descendants(instance.process.pid) if table.get(pid, ("", "", ""))[2] == "cay-spawn")


def seeds(instance):
    """{kind: pid}"""
    above = spawner(instance)
    found = {pid: words(pid) for pid, (parent, state, _) in leaks.processes().items() if parent == above and state != "Z"}
    return {argv[1]: pid for pid, argv in found.items() if argv[0] == "cay-keeper" and argv[2] == "-" * 20}


def keepers(box):
    return [pid for pid, (_, state, _) in leaks.processes().items() if state != "Z" and words(pid)[:3] == ["cay-keeper", "sandbox", box]]


def use(instance):
    """A keeper and a job at least. The keeper's pid."""
    with instance.sandbox() as box:
        equal(instance.ok(box, "echo here"), "here\n")
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})
        found = keepers(box)
        equal(len(found), 1, "keepers of one sandbox")
        return found[0], leaks.processes()[found[0]][0], leaks.read(f"/proc/{found[0]}/maps").splitlines()[0]


@require(*NEEDS)
def test_keepers_and_jobs_are_cloned(fresh):
    _, parent, mapped = use(fresh)
    equal(parent, spawner(fresh), "whose child a keeper is")
    there = seeds(fresh)
    equal(sorted(there), ["job", "sandbox"])
    equal(mapped, leaks.read(f"/proc/{there['sandbox']}/maps").splitlines()[0], "it was not executed anew")


@require(*NEEDS)
def test_who_is_cloned_is_killed(fresh):
    use(fresh)
    before = seeds(fresh)
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    for _ in range(6):  # more than there were ready
        use(fresh)
    after = seeds(fresh)
    equal(sorted(after), ["job", "sandbox"])
    assert not set(after.values()) & set(before.values()), (before, after)


@require(*NEEDS)
def test_who_is_cloned_is_killed_before_it_has_said_whom_it_made(tmp):
    """Each time: what was cloned ends, and another one is executed."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=FAULT + "=kill")
        for _ in range(6):
            use(instance)


@require(*NEEDS)
def test_they_end_with_the_server(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        use(instance)
        there = list(seeds(instance).values())
        instance.kill()
        cay.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in there), 20, "nobody is left of those who are cloned")


@require(*NEEDS)
def test_a_server_that_ends_leaves_no_files_of_what_was_removed(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        boxes = [instance.post("/v1/sandboxes", {})["id"] for _ in range(3)]
        keep = boxes.pop()  # so that the pool stays mounted
        live = os.path.join(instance.state, "pool", "live")
        for box in boxes:
            assert os.path.isdir(os.path.join(live, box))
            instance.remove(box)
        instance.stop()
        equal([box for box in boxes if os.path.exists(os.path.join(live, box))], [])
        assert os.path.isdir(os.path.join(live, keep))


@require(*NEEDS)
def test_a_server_whose_spawner_is_gone_says_so_to_who_watches_over_it(fresh):
    """It can start nobody any more and ends; systemd starts another only behind a failure. Told to end, it ends well."""
    with fresh.sandbox() as box:
        run = fresh.exec(box, "cat", stdin=True)
        os.kill(spawner(fresh), signal.SIGKILL)
        equal(fresh.process.wait(60), 1)
        equal("did not end" in leaks.read(fresh.log), False)  # those that it has in reserve ended when they were told to: nobody reports it, they are not waited for
        fresh.start()
        fresh.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"goes on\n")
        equal(fresh.wait(box, run)["code"], 0)
    fresh.process.terminate()
    equal(fresh.process.wait(60), 0)
    fresh.start()
