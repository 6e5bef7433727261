# SPDX-License-Identifier: Apache-2.0
"""What a capture does while the processes run is done beside the first pass over the files: it is there when that ends, it is in nobody's way meanwhile, and nothing is left of it when no capture comes.
And behind the instant they run again before the files are on the disk."""

import contextlib
import ctypes
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import equal, require, timeout
from lib.pace import patience

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, start  # noqa: E402

NEEDS = ("root", "cgroup2")
TIMEOUT = 120
PROGRAM = """
import sys
print("ready", flush=True)
for line in sys.stdin: print(line.strip(), flush=True)
"""


def ours(instance, *argv):
    """Pids of this instance's programs that are called so."""
    begin = "\0".join(argv) + "\0"
    return [pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/cmdline").startswith(begin)]


def dumpers(instance):
    return ours(instance, "cay-keeper", "dump")


def program(instance, box):
    return start(instance, box, "/usr/bin/python3", "-c", PROGRAM)


class Snapshot(threading.Thread):
    """A live snapshot; what became of it."""

    def __init__(self, instance, box):
        super().__init__()
        self.instance, self.box, self.made, self.error = instance, box, None, None
        self.start()

    def run(self):
        try:
            self.made = self.instance.post(f"/v1/sandboxes/{self.box}/snapshots", {"files_only": False})
        except (cay.ApiError, OSError) as error:
            self.error = error

    def end(self):
        self.join(patience(60))
        assert not self.is_alive(), "the snapshot goes on"
        return self


def held_job(instance):
    """Whoever is to capture the files, once it is held."""
    jobs = []

    def job_is_held():
        jobs[:] = [pid for pid in ours(instance, "cay-keeper", "job") if leaks.processes().get(pid, (0, "", ""))[1] == "T"]
        return jobs
    cay.wait_until(job_is_held, 60, "the job is held")
    return jobs[0]


@contextlib.contextmanager
def held(tmp):
    """An instance, a sandbox, its program, a snapshot whose files have not begun; and who is to capture them."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "store.capture.begun=hold"})
    try:
        instance.start()
        with instance.sandbox() as box:
            run = program(instance, box)
            snapshot = Snapshot(instance, box)
            job = held_job(instance)
            cay.wait_until(lambda: dumpers(instance), 60, "its dumper is there")
            equal(ask(instance, box, run, "one"), "one\n")  # the keeper has heard that it is ready
            yield instance, box, run, snapshot, job
    finally:
        instance.close()


def nothing_is_left(instance):
    cay.wait_until(lambda: not dumpers(instance), 30, "the dumper has ended")
    cay.wait_until(lambda: not ours(instance, "cay-template"), 30, "the template has ended")


@require(*NEEDS)
@timeout(TIMEOUT)
def test_who_was_started_since_is_captured_too(tmp):
    with held(tmp) as (instance, box, run, snapshot, job):
        other = program(instance, box)
        os.kill(job, signal.SIGCONT)
        made = snapshot.end().made
        assert made is not None, snapshot.error
        equal(made["live"]["processes"], 2)
        fork = instance.post(f"/v1/snapshots/{made['id']}/fork", {"live": True})["sandboxes"][0]["id"]
        for place in (box, fork):
            for one in (run, other):
                equal(ask(instance, place, one, "two"), "two\n")
        instance.remove(fork)
        instance.call("DELETE", f"/v1/snapshots/{made['id']}")
        nothing_is_left(instance)


def snapshot_once_more(instance, box, run):
    """By a server without a fault."""
    instance.stop()
    instance.start(CAY_FAULT="")
    equal(ask(instance, box, run, "here"), "here\n")
    made = Snapshot(instance, box).end().made
    equal(made["live"]["processes"], 1)
    instance.call("DELETE", f"/v1/snapshots/{made['id']}")


@require(*NEEDS)
@timeout(TIMEOUT)
def test_files_that_cannot_be_captured(tmp):
    with held(tmp) as (instance, box, run, snapshot, job):
        os.kill(job, signal.SIGKILL)
        assert snapshot.end().error is not None
        nothing_is_left(instance)
        snapshot_once_more(instance, box, run)


@require(*NEEDS)
@timeout(TIMEOUT)
def test_the_server_is_killed(tmp):
    with held(tmp) as (instance, box, run, snapshot, job):
        instance.kill()
        snapshot.end()
        with contextlib.suppress(ProcessLookupError):  # it may have gone with the server
            os.kill(job, signal.SIGKILL)
        nothing_is_left(instance)
        instance.start(CAY_FAULT="")
        snapshot_once_more(instance, box, run)


@require(*NEEDS)
@timeout(TIMEOUT)
def test_the_dumper_is_killed(tmp):
    """Another one is made for the capture."""
    with held(tmp) as (instance, box, run, snapshot, job):
        for pid in dumpers(instance):
            os.kill(pid, signal.SIGKILL)
        cay.wait_until(lambda: not dumpers(instance), 30, "it has ended")
        os.kill(job, signal.SIGCONT)
        made = snapshot.end().made
        assert made is not None, snapshot.error
        equal(ask(instance, box, run, "here"), "here\n")


@require(*NEEDS)
@timeout(TIMEOUT)
def test_the_sandbox_ends(tmp):
    with held(tmp) as (instance, box, run, snapshot, job):
        keeper = leaks.keeper_of(box)
        os.kill(keeper, signal.SIGTERM)
        cay.wait_until(lambda: not dumpers(instance), 30, "the dumper has ended")
        os.kill(job, signal.SIGCONT)
        assert snapshot.end().error is not None
        nothing_is_left(instance)


@require(*NEEDS, "btrfs", "loop")
@timeout(TIMEOUT)
def test_they_run_before_the_files_are_on_the_disk(tmp):
    """Who is killed there leaves no snapshot and a sandbox that runs; else it is of the instant, not of what came behind."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "store.capture.going_on=hold"})
    try:
        instance.start()
        with instance.sandbox() as box:
            run = program(instance, box)
            instance.ok(box, "echo before >/var/tmp/file")
            for killed in (True, False):
                snapshot = Snapshot(instance, box)
                job = held_job(instance)
                equal(ask(instance, box, run, "goes on"), "goes on\n")
                instance.ok(box, "echo behind >>/var/tmp/file" if not killed else "true")
                os.kill(job, signal.SIGKILL if killed else signal.SIGCONT)
                equal(snapshot.end().made is None, killed, f"{snapshot.error}")
                equal(ask(instance, box, run, "here"), "here\n")
            fork = instance.post(f"/v1/snapshots/{snapshot.made['id']}/fork", {"live": True})["sandboxes"][0]["id"]
            equal(instance.ok(fork, "cat /var/tmp/file"), "before\n")
            equal(ask(instance, fork, run, "here"), "here\n")
            instance.remove(fork)
            instance.call("DELETE", f"/v1/snapshots/{snapshot.made['id']}")
            nothing_is_left(instance)
    finally:
        instance.close()


def waiters_of(instance, box):
    return [pid for pid in instance.programs_named("cay-waiter") if box in leaks.read(f"/proc/{pid}/cgroup")]


@require(*NEEDS)
def test_what_waits_for_the_next_program_has_ended_in_a_fork_too(instance):
    """There it is the child of who made the processes. Held at its end, it holds the capture up; else it would be one of the processes."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    seize, detach, trace_exit, any_child = 0x4206, 17, 0x40, 0x40000000
    failed = []

    def again():
        try:
            instance.remove(fork_live(instance, fork)[0])
        except cay.ApiError as error:
            failed.append(error)

    with instance.sandbox() as box:
        run = program(instance, box)
        fork = fork_live(instance, box)[0]
        instance.ok(fork, "true")
        cay.wait_until(lambda: len(waiters_of(instance, fork)) == 1, 20, "one waits for the next program")
        pid = waiters_of(instance, fork)[0]
        equal(libc.ptrace(seize, pid, None, trace_exit), 0)
        thread = threading.Thread(target=again)
        thread.start()
        equal(os.waitpid(pid, any_child)[0], pid)
        thread.join(patience(1))  # it is over when that goes wrong
        equal(libc.ptrace(detach, pid, None, None), 0)
        thread.join()
        equal(failed, [])
        equal(ask(instance, fork, run, "on"), "on\n")
        instance.remove(fork)
