# SPDX-License-Identifier: Apache-2.0
"""Programs that are stopped: they stay so on every side, until somebody tells them to go on."""

import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, put_file, rootless, start  # noqa: E402
from suspending import through_suspend_and_rewind  # noqa: E402
from test_objects import PROGRAMS, begin, check  # noqa: E402
from test_terminals import FOREGROUND, shell, type_in  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")


def program_of(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return None


def running(instance, program):
    """Host pids of who runs @program, whatever it calls itself, and their states."""
    mine = set(instance.own_processes())
    return {pid: state for pid, (_, state, _) in leaks.processes().items() if pid in mine and program_of(pid) == program}


def dumpers(instance):
    """Dumpers that are held at a point."""
    return [pid for pid in instance.own_processes()
            if leaks.read(f"/proc/{pid}/cmdline").split("\0")[:2] == ["cay-keeper", "dump"] and leaks.processes().get(pid, ("", ""))[1] == "T"]


def signal_while_held(instance, box, name, act):
    """A fork of @box; act(pid of program @name) while the dumper has stopped all and has asked for nothing yet."""
    pid, = running(instance, name)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]))
    thread.start()
    cay.wait_until(lambda: dumpers(instance), 30, "the dumper is held")
    act(pid)
    while thread.is_alive():
        for one in dumpers(instance):
            os.kill(one, signal.SIGCONT)
        thread.join(0.05)
    return answers[0]


@require(*NEEDS)
def test_told_to_stop_between_two_questions(tmp):
    """A SIGSTOP that waits, which nothing blocks, is not taken for the end of a call that is made in the program, and not forgotten."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.dump.seized=hold"})
    try:
        instance.start()
        for name in ("signals", "threads"):
            with instance.sandbox() as box:
                run = begin(instance, box, name)
                source, = running(instance, f"object_{name}")
                fork = signal_while_held(instance, box, f"object_{name}", lambda pid: os.kill(pid, signal.SIGSTOP))
                assert source in running(instance, f"object_{name}")
                cay.wait_until(lambda: list(running(instance, f"object_{name}").values()) == ["T", "T"], 30, "both are stopped")
                for pid in running(instance, f"object_{name}"):
                    os.kill(pid, signal.SIGCONT)
                for one in (fork, box):
                    check(instance, one, run)
                instance.remove(fork)
    finally:
        instance.close()


@require(*NEEDS)
def test_a_job_of_a_shell(instance):
    """^Z, then a fork of a fork: in each the shell lists the job as stopped, says nothing of it by itself, and `fg` lets it go on."""
    with instance.sandbox() as box:
        run = shell(instance, box)
        type_in(instance, box, run, FOREGROUND + "\n", b"running\r\n")
        contains(type_in(instance, box, run, "\x1a", b"prompt> "), b"Stopped")
        line = [box]
        for _ in range(2):
            line += fork_live(instance, line[-1])
        for one in reversed(line):
            shown = type_in(instance, one, run, "echo $(jobs -s | wc -l) $(jobs -r | wc -l) | sed s/^/jobs:/\n", b"prompt> ")
            contains(shown, b"jobs:1 0")
            assert b"Stopped" not in shown, shown
            type_in(instance, one, run, "fg\n", b"back\r\n")
            type_in(instance, one, run, "\x03", b"prompt> ")
            contains(type_in(instance, one, run, "echo $? | sed s/^/status:/\n", b"prompt> "), b"status:130")
        for one in line[1:]:
            instance.remove(one)


def begin_below_tmp(instance, box):
    """Where an ordinary user's sandbox may write."""
    return start(instance, box, put_file(instance, box, os.path.join(PROGRAMS, "object_stopped"), "/tmp/object_stopped"))


def suspended_and_rewound(instance):
    with instance.sandbox() as box:
        run = begin_below_tmp(instance, box)
        through_suspend_and_rewind(instance, box, lambda: check(instance, box, run))


@require(*NEEDS)
def test_suspended_and_rewound(instance):
    suspended_and_rewound(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_rootless(tmp):
    with rootless(tmp) as instance:
        suspended_and_rewound(instance)
        with instance.sandbox() as box:
            run = begin_below_tmp(instance, box)
            fork = fork_live(instance, box)[0]
            for one in (fork, box):
                check(instance, one, run)
            instance.remove(fork)


@require(*NEEDS)
def test_whoever_holds_them_is_killed(tmp):
    """At any step up to the last that is let go: the fork fails, and counts as running nowhere; the next one works."""
    for point in ("live.fork.armed", "live.fork.held", "live.fork.parting", "live.fork.parting:3"):
        instance = cay.Instance(tmp, env={"CAY_FAULT": point})
        try:
            instance.start()
            with instance.sandbox() as box:
                run = begin(instance, box, "stopped")
                error = raises(cay.ApiError, fork_live, instance, box)
                contains(error.message, "killed before")
                equal([one["id"] for one in instance.get("/v1/sandboxes")["sandboxes"]], [box])
                check(instance, box, run)
        finally:
            instance.close()
