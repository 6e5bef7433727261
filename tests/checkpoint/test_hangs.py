# SPDX-License-Identifier: Apache-2.0
"""A capture that gets no further is given up: its processes go on as they were, whatever hangs, and whoever asked is told."""

import contextlib
import os
import signal
import sys
import threading
import time

from lib import cay, leaks
from lib.case import contains, equal, raises, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, rootless, start  # noqa: E402
from test_objects import begin, check  # noqa: E402

NEEDS = ("root", "cgroup2")
# What is in the middle of a call when its capture is given up, and what would show of it.
OBJECTS = ("calls", "twins", "stopped", "traps")
# Who was opened for it cannot be closed.
UNCLOSED = "live.dump.unclosed"
PROGRAM = """
import sys
print("ready", flush=True)
for line in sys.stdin: print(open("/proc/self/maps").read().count("rwxs"), line.strip(), flush=True)
"""


def is_given_up(instance, names=OBJECTS):
    """Everybody goes on as if nothing had been; nothing of ours is left in their memory."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        objects = [begin(instance, box, name) for name in names]
        error = raises(cay.ApiError, fork_live, instance, box)
        equal(error.code, "timeout")
        contains(error.message, "got no further and was given up; they go on as they were")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
        equal(ask(instance, box, run, "here"), "0 here\n")
        for one in objects:
            check(instance, box, one)


def hangs(tmp, point, how="error"):
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{point}={how}"})
    try:
        instance.start()
        is_given_up(instance)
    finally:
        instance.close()


@require(*NEEDS)
def test_who_does_not_stand_still_at_once(tmp):
    """A process that ends may be seconds in closing what it had, and cannot be frozen meanwhile: it is tried again, and told as what passes."""
    point, says = "live.capture.freeze", "a process does not stand still"
    for fault, goes in ((f"{point}=error", True), (f"{point}:1+=error", False)):
        with contextlib.closing(cay.Instance(tmp, env={"CAY_FAULT": fault}).start()) as instance, instance.sandbox() as box:
            run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
            if goes:
                fork = fork_live(instance, box)[0]
                equal(ask(instance, fork, run, "there"), "0 there\n")
                instance.remove(fork)
            else:
                error = raises(cay.ApiError, fork_live, instance, box)
                equal(error.code, "busy")
                contains(error.message, says)
                contains(error.hint, "tried ")
            equal(ask(instance, box, run, "here"), "0 here\n")


@require(*NEEDS)
def test_a_call_in_a_process_never_ends(tmp):
    hangs(tmp, "live.dump.hang.looked")


@require(*NEEDS)
def test_a_call_never_ends_while_there_are_twins(tmp):
    hangs(tmp, "live.dump.hang.twins")


@require(*NEEDS)
def test_the_dumper_itself_stands_still(tmp):
    hangs(tmp, "live.dump.hang.looked", "hold")


@require(*NEEDS, "userns", "newuidmap")
@timeout(120)
def test_rootless(tmp):
    with rootless(tmp, CAY_FAULT="live.dump.hang.twins=error") as instance:
        is_given_up(instance, ())


@require(*NEEDS)
def test_before_anything_is_stopped(tmp):
    point = "live.dump.hang.prepare"
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{point}=error"})
    try:
        instance.start()
        with instance.sandbox() as box:
            run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
            equal(raises(cay.ApiError, fork_live, instance, box).code, "timeout")
            equal(ask(instance, box, run, "here"), "0 here\n")
    finally:
        instance.close()


@require(*NEEDS)
def test_while_all_are_being_stopped(tmp):
    hangs(tmp, "live.dump.hang.stop")


@contextlib.contextmanager
def opened_for_a_capture(tmp, fault):
    """A sandbox in which is what nobody may look at, resumed, so that a capture has to open it, and a server with a @fault."""
    instance = cay.Instance(tmp)
    try:
        instance.start()
        with instance.sandbox() as box:
            run = begin(instance, box, "closed")
            instance.post(f"/v1/sandboxes/{box}/suspend")
            instance.stop()
            instance.start(CAY_FAULT=fault)
            instance.post(f"/v1/sandboxes/{box}/resume")
            yield instance, box, run
    finally:
        instance.close()


@require(*NEEDS)
@timeout(120)
def test_who_was_opened_for_it_is_closed(tmp):
    with opened_for_a_capture(tmp, "live.dump.hang.looked=error") as (instance, box, run):
        contains(raises(cay.ApiError, fork_live, instance, box).message, "was given up; they go on as they were")
        check(instance, box, run)


@require(*NEEDS)
@timeout(120)
def test_who_cannot_be_closed_does_not_go_on(tmp):
    with opened_for_a_capture(tmp, f"{UNCLOSED}=error,live.dump.hang.looked=error") as (instance, box, _):
        contains(raises(cay.ApiError, fork_live, instance, box).message, "not all of them could be let go")
        cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{box}")["state"] in ("failed", "stopped"), 30, "it is lost")


def workers(instance):
    """Pids of those whom nobody may look at: they have changed who they are."""
    named = [pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/comm").strip() == "object_closed"]
    uid = {pid: int(leaks.read(f"/proc/{pid}/status").split("Uid:")[1].split()[1]) for pid in named}
    return {pid: uid[pid] for pid in named if uid[pid] != min(uid.values())}


@require(*NEEDS)
@timeout(120)
def test_who_was_opened_is_closed_before_anybody_hears(tmp):
    """When it hears that all stand still, the keeper may start programs beside them: whose files in /proc are not their own then."""
    with opened_for_a_capture(tmp, "live.take.captured=hold") as (instance, box, run):
        forking = threading.Thread(target=fork_live, args=(instance, box))
        forking.start()
        server = instance.process.pid
        cay.wait_until(lambda: leaks.processes()[server][1] == "T", 60, "the server has heard that they stand still")
        seen = {pid: (uid, os.stat(f"/proc/{pid}/environ").st_uid) for pid, uid in workers(instance).items()}
        os.kill(server, signal.SIGCONT)
        forking.join(60)
        equal(len(seen), 3)
        equal([pid for pid, (uid, owner) in seen.items() if uid == owner], [], "they are open")
        check(instance, box, run)


@require(*NEEDS)
def test_who_is_known_by_half_is_not_said_to_go_on(tmp):
    """Where programs have filters all are stopped first, and who is not known whole ends with who holds it: that is told."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.dump.hang.stop=error"})
    try:
        instance.start()
        with instance.sandbox() as box:
            start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
            begin(instance, box, "filters")
            error = raises(cay.ApiError, fork_live, instance, box)
            contains(error.message, "not all of them could be let go")
            cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{box}")["state"] in ("failed", "stopped"), 30, "it is lost")
    finally:
        instance.close()


@require(*NEEDS)
def test_while_a_pause_looks_at_all(tmp):
    """It is paused all the same before the server gives up, and can be resumed."""
    point = "live.dump.hang.settle"
    with contextlib.closing(cay.Instance(tmp, env={"CAY_FAULT": f"{point}=error"}).start()) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        begun = time.monotonic()
        equal(instance.post(f"/v1/sandboxes/{box}/pause")["state"], "paused")
        assert time.monotonic() - begun < cay.patience(10)
        equal(instance.post(f"/v1/sandboxes/{box}/resume")["state"], "running")
        equal(ask(instance, box, run, "here"), "0 here\n")
