# SPDX-License-Identifier: Apache-2.0
"""A cay-spawn that slept through the end of its server, and wakes when the next one has started the same sandbox: it clears up behind its own, and nobody else's."""

import contextlib
import fcntl
import os
import signal
import sys

from lib import cay, leaks
from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stops import Asked, stopped, unread  # noqa: E402

TIMEOUT = 120


def end_of(pid):
    cay.wait_until(lambda: leaks.processes().get(pid, (0, "Z"))[1] == "Z", 30, f"process {pid} ends")


def start_anew(instance, box):
    """By a new server, while the old cay-spawn sleeps."""
    instance.post(f"/v1/sandboxes/{box}/start")
    return instance.exec(box, "sleep", "1000")


def lives_on(instance, box, run):
    """Processes, groups and socket are there."""
    running = instance.get(f"/v1/sandboxes/{box}")
    equal(running["state"], "running")
    equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
    equal(instance.ok(box, "echo alive"), "alive\n")
    contains(leaks.read(f"/proc/{running['init_pid']}/cgroup"), box)
    instance.kill()
    instance.start()
    equal(instance.get(f"/v1/sandboxes/{box}")["init_pid"], running["init_pid"], "the next server does not find it")
    equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")


def is_idle(instance):
    """Nobody is in the midst of starting or clearing up something (groups_lock() of cay-spawn)."""
    fd = os.open(os.path.join(instance.run, "keepers"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


@contextlib.contextmanager
def asleep(instance):
    """Its cay-spawn, put to sleep between two things that it does; it has ended by itself afterwards."""
    old, = instance.programs_named("cay-spawn")
    while True:
        with stopped(old):
            cay.wait_until(lambda: leaks.processes()[old][1] == "T", 30, "cay-spawn does not stop")
            if is_idle(instance):
                yield old
                break
    end_of(old)


@require("root", "cgroup2")
def test_the_end_of_its_keeper_is_not_the_end_of_the_next(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    with asleep(fresh):
        fresh.kill()
        fresh.start()
        fresh.post(f"/v1/sandboxes/{box}/stop")  # the keeper that the old one has started, and whose end it does not know yet
        run = start_anew(fresh, box)
    lives_on(fresh, box, run)


@require("root", "cgroup2")
def test_the_death_of_its_keeper_is_not_the_death_of_the_next(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    keeper = leaks.processes()[fresh.get(f"/v1/sandboxes/{box}")["init_pid"]][0]
    with asleep(fresh):
        fresh.kill()
        os.kill(keeper, signal.SIGKILL)
        end_of(keeper)
        fresh.start()
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "stopped")
        run = start_anew(fresh, box)
    lives_on(fresh, box, run)


@require("root", "cgroup2")
def test_what_its_server_asked_for_is_not_done_for_the_next(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    fresh.post(f"/v1/sandboxes/{box}/stop")
    with asleep(fresh) as old:
        before = unread(old)
        Asked(fresh, "POST", f"/v1/sandboxes/{box}/start")
        cay.wait_until(lambda: unread(old) > before, 30, "cay-spawn has not been asked")
        fresh.kill()
        fresh.start()
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "stopped")
        run = start_anew(fresh, box)
    lives_on(fresh, box, run)
