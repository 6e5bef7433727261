# SPDX-License-Identifier: Apache-2.0
"""`cay run`: its keeper has its orders before the catalogue has its rows. Whoever dies in between, no command runs whose row is not there, none runs twice,
and nothing of it stays behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance, passed  # noqa: E402

SERVER = ("run.ordered", "run.commit.before", "run.written")
EXECUTING = "run.executing"  # behind the word
COMPARE = "run.compare"  # behind the command
KEEPERS = ("cay-keeper", "memfd:cay-keepe")  # names of their processes
KEEPER = ("keeper.exec.held", "keeper.execute.before")


def make_case(name, scenario, point):
    def case(tmp):
        scenario(point, tmp)
    case.__name__ = name + point.replace(".", "_")
    return require("root")(timeout(200)(case))


def warm(instance):
    cay.wait_until(lambda: instance.get("/v1/version")["pool"] > 0, 60, "a sandbox is prepared")


def shared(tmp):
    """A directory that the command writes to: its only trace on the host."""
    top = os.path.join(tmp, "shared")
    os.mkdir(top)
    return top


def command(instance, top):
    return [os.path.join(instance.programs, "cay"), "run", "--no-cwd", "--mount", f"{top}:/shared:rw", "--cwd", "/shared", "--", "sh", "-c", "echo ran >> /shared/ran"]


def start(instance, top):
    return instance.popen(command(instance, top), env=instance.environment(), cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ran(top):
    try:
        with open(os.path.join(top, "ran"), encoding="utf-8") as f:
            return f.read()
    except FileNotFoundError:
        return ""


def of(instance, name):
    """Pids of the processes of @instance with this name."""
    found = []
    for pid, (_, _, comm) in leaks.processes().items():
        if comm.startswith(name) and f"CAY_STATE={instance.state}\0" in leaks.read(f"/proc/{pid}/environ"):
            found.append(pid)
    return found


def held(top):
    """The process that is to become the command and has all but executed it: it is in its directory, and waits."""
    wanted = os.stat(top)
    for pid, (_, _, comm) in leaks.processes().items():
        with contextlib.suppress(OSError):
            there = os.stat(f"/proc/{pid}/cwd")
            if comm == "cay-waiter" and (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino) and ") S " in leaks.read(f"/proc/{pid}/stat"):
                return pid
    return None


def wait_held(top):
    cay.wait_until(lambda: held(top), 30, "a process that waits to become the command")
    return held(top)


def keeper_of(waiter):
    table, pid = leaks.processes(), waiter
    while not table[pid][2].startswith(KEEPERS):
        pid = table[pid][0]
    return pid


def wait_gone(pid, what):
    cay.wait_until(lambda: not os.path.exists(f"/proc/{pid}") or ") Z " in leaks.read(f"/proc/{pid}/stat"), 30, what)


def nothing_left(instance):
    cay.wait_until(lambda: instance.get("/v1/sandboxes")["sandboxes"] == [], 30, "the sandbox of the run is gone")


def a_run(instance, tmp):
    warm(instance)
    top = shared(tmp)
    process = start(instance, top)
    process.communicate(timeout=60)
    equal((process.returncode, ran(top)), (0, "ran\n"))
    nothing_left(instance)


@require("root")
def test_a_run_passes_every_point(tmp):
    seen = passed(tmp, lambda instance: a_run(instance, tmp))
    points = SERVER + (EXECUTING,) + KEEPER
    equal(sorted(set(points) - set(seen)), [], "points that a run never reaches")
    equal([seen[p] for p in points], [1] * 6)


@contextlib.contextmanager
def stopped(instance, tmp, point="run.ordered"):
    """A server that stands still at @point, with a process that waits to become the command: (its directory, that process, the client)."""
    instance.start(CAY_FAULT=point + "=hold")
    warm(instance)
    top = shared(tmp)
    process = start(instance, top)
    try:
        waiter = wait_held(top)
        os.waitid(os.P_PID, instance.process.pid, os.WSTOPPED | os.WNOWAIT)
        yield top, waiter, process
    finally:
        if instance.process.poll() is None:
            instance.process.send_signal(signal.SIGCONT)


def at_server(point, tmp):
    """Its client comes back to the next server. What was not written is asked for again, so it would run twice if it had run; what was written is lost and never runs."""
    with own_instance(tmp) as instance:
        with stopped(instance, tmp, point) as (top, _, process):
            keepers = of(instance, KEEPERS)
            process.send_signal(signal.SIGSTOP)  # or it would start the next server
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            instance.kill()
            for pid in keepers:
                wait_gone(pid, "the keepers end with the server that had not said what is theirs")
            equal((held(top), ran(top)), (None, ""))
            instance.start()
            if point != "run.written":
                equal(instance.get("/v1/sandboxes")["sandboxes"], [])
            process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=100)
        if point == "run.written":
            assert process.returncode != 0, err
            contains(err.decode(), "lost")
            equal(ran(top), "")
        else:
            equal((process.returncode, ran(top)), (0, "ran\n"), str(err))
            nothing_left(instance)


for _point in SERVER:
    _case = make_case("test_server_killed_at_", at_server, _point)
    globals()[_case.__name__] = _case


def at_keeper(point, tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=point)
        warm(instance)
        top = shared(tmp)
        process = start(instance, top)
        _, err = process.communicate(timeout=60)
        assert process.returncode != 0, err
        equal(ran(top), "")
        nothing_left(instance)


for _point in KEEPER:
    _case = make_case("test_keeper_killed_at_", at_keeper, _point)
    globals()[_case.__name__] = _case


def refused(point, tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=f"{point}=error")
        warm(instance)
        top = shared(tmp)
        process = start(instance, top)
        _, err = process.communicate(timeout=60)
        equal(process.returncode, 125)
        contains(err.decode(), "not written")
        equal(ran(top), "")
        nothing_left(instance)
        ours = [e["type"] for e in instance.events() if e["type"].startswith(("exec.started", "exec.ended"))]
        equal(ours, [])
        warm(instance)
        process = start(instance, top)
        process.communicate(timeout=60)
        equal((process.returncode, ran(top)), (0, "ran\n"))


for _point in SERVER[:2]:
    _case = make_case("test_a_catalogue_that_takes_nothing_at_", refused, _point)
    globals()[_case.__name__] = _case


@require("root")
@timeout(100)
def test_a_command_waits_for_its_row(tmp):
    with own_instance(tmp) as instance:
        with stopped(instance, tmp) as (top, _, process):
            equal(ran(top), "")
        _, err = process.communicate(timeout=60)
        equal((process.returncode, ran(top)), (0, "ran\n"), str(err))
        nothing_left(instance)


@require("root")
@timeout(100)
def test_who_waits_gives_up_with_its_keeper(tmp):
    with own_instance(tmp) as instance:
        with stopped(instance, tmp) as (top, waiter, process):
            os.kill(keeper_of(waiter), signal.SIGKILL)
            wait_gone(waiter, "the process that waits ends with its keeper")
            equal(ran(top), "")
        _, err = process.communicate(timeout=60)
        assert process.returncode != 0, err
        equal(ran(top), "")
        nothing_left(instance)


@require("root")
@timeout(100)
def test_another_becomes_the_command_when_who_waits_is_killed(tmp):
    """It has not executed anything. Who takes its place is held like it."""
    with own_instance(tmp) as instance:
        with stopped(instance, tmp) as (top, waiter, process):
            os.kill(waiter, signal.SIGKILL)
            cay.wait_until(lambda: held(top) not in (None, waiter), 30, "another process that waits")
            equal(ran(top), "")
        _, err = process.communicate(timeout=60)
        equal((process.returncode, ran(top)), (0, "ran\n"), str(err))
        nothing_left(instance)


@require("root")
@timeout(100)
def test_who_is_killed_when_the_word_comes_is_replaced_by_one_that_need_not_wait(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="keeper.execute.before=hold")
        warm(instance)
        top = shared(tmp)
        process = start(instance, top)
        waiter = wait_held(top)
        keeper = keeper_of(waiter)
        cay.wait_until(lambda: leaks.processes()[keeper][1] == "T", 30, "the keeper stands still at the word")
        equal(ran(top), "")
        os.kill(waiter, signal.SIGKILL)
        os.kill(keeper, signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        equal((process.returncode, ran(top)), (0, "ran\n"), str(err))
        nothing_left(instance)


@require("root")
@timeout(100)
def test_server_killed_when_the_command_runs(tmp):
    """Its client knows nothing of it yet: it asks for the same run again, and hears of the one that there was."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=EXECUTING + "=hold")
        warm(instance)
        top = shared(tmp)
        argv = command(instance, top)
        process = instance.popen(argv[:-1] + [argv[-1] + "; echo out"], env=instance.environment(), cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.waitid(os.P_PID, instance.process.pid, os.WSTOPPED | os.WNOWAIT)
        cay.wait_until(lambda: ran(top), 30, "the command runs")
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        instance.kill()
        instance.start()
        process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=60)
        equal((process.returncode, out, ran(top)), (0, b"out\n", "ran\n"), str(err))
        nothing_left(instance)


@require("root")
@timeout(100)
def test_output_that_comes_before_the_answer_waits_for_the_objects(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=EXECUTING + "=hold")
        warm(instance)
        top = shared(tmp)
        found = []

        def follow():
            with contextlib.closing(instance.run_stream(["sh", "-c", "echo out; echo ran > /shared/ran"], sandbox={"mounts": [{"source": top, "target": "/shared", "mode": "rw"}]})) as stream:
                while (frame := stream.next()) is not None:
                    found.append(next(iter(json.loads(frame[2]))) if frame[0] == cay.OBJECT else frame[0])

        thread = threading.Thread(target=follow)
        thread.start()
        os.waitid(os.P_PID, instance.process.pid, os.WSTOPPED | os.WNOWAIT)
        cay.wait_until(lambda: ran(top), 30, "the command has said what it says")
        instance.process.send_signal(signal.SIGCONT)
        thread.join(30)
        equal(found, ["sandbox", "exec", cay.STDOUT, cay.STATUS, "summary"])
        nothing_left(instance)


@require("root")
@timeout(100)
def test_server_killed_when_it_compares_what_changed(tmp):
    """The command has ended. What it changed is kept, and its client hears of it from the next server."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT=COMPARE + "=hold")
        warm(instance)
        top = shared(tmp)
        process = instance.popen([os.path.join(instance.programs, "cay"), "run", "--no-cwd", "--mount", f"{top}:/shared", "--cwd", "/shared", "--", "sh", "-c", "echo ran >> ran"],
                                 env=instance.environment(), cwd=top, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.waitid(os.P_PID, instance.process.pid, os.WSTOPPED | os.WNOWAIT)
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        instance.kill()
        instance.start()
        process.send_signal(signal.SIGCONT)
        _, err = process.communicate(timeout=60)
        equal(process.returncode, 0, str(err))
        contains(err.decode(), "1 file changed")
        [kept] = instance.get("/v1/sandboxes")["sandboxes"]
        contains(instance.cay("diff", kept["name"]).stdout, "/shared/ran")
        equal(ran(top), "", "the directory itself")
        instance.remove(kept["id"])
