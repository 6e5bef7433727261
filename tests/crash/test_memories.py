# SPDX-License-Identifier: Apache-2.0
"""Contract DATA for memory that is written beside an earlier snapshot's: kill -9 at every point on the way. The earlier one is what it was, of the new one nothing is left or
all, and what is written next shares with the earlier one as if nothing had been."""

import contextlib
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import equal, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "checkpoint")]
from points import own_instance, passed  # noqa: E402
from suspending import memories  # noqa: E402
from test_incremental import MIB, Holder  # noqa: E402

TIMEOUT = 180

# In a job; the last one in the server, which then knows of neither the object nor that it is durable.
POINTS = ("memory.save.linked", "memory.save.chunk", "memory.commit.before_rename", "memory.commit.after_rename", "snapshot.durable.before")


def fails(instance, box):
    try:
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "next", "files_only": False})
    except (cay.ApiError, OSError, EOFError, ValueError) as error:
        print(f"failed as it may: {error}", flush=True)
        return True
    return False


def nothing_but(instance, memory):
    equal(memories(instance), {memory["id"]}, "memory that nothing needs")
    equal(os.listdir(os.path.join(instance.state, "pool", "tmp")), [], "what was begun")


def goes_on(instance, holder, base):
    """The earlier one is whole, the sandbox too; the next one needs it to be written, not to be read."""
    nothing_but(instance, base)
    holder.check("base")
    if any(s["name"] == "next" for s in instance.get("/v1/snapshots")["snapshots"]):
        holder.drop("next")
    again = holder.snapshot("again")
    assert again["stored"] < 4 * MIB < again["shared"], again
    holder.drop("base")
    nothing_but(instance, again)
    holder.from_disk()
    holder.check("again")
    holder.drop("again")
    equal(memories(instance), set())


@contextlib.contextmanager
def changed_since(tmp, fault):
    """An instance at @fault, with a sandbox whose memory is on disk and has changed since; afterwards the server is killed, and all must go on."""
    with own_instance(tmp) as instance:
        instance.start()
        with instance.sandbox() as box:
            holder = Holder(instance, box, 8)
            base = holder.snapshot("base")
            holder.ask(f"set {MIB}")
            instance.stop()
            instance.start(CAY_FAULT=fault)
            yield instance, box
            instance.process.kill()
            instance.process.wait(30)
            cay.wait_until(lambda: not ended(jobs(instance)), 30, "no job is held")  # the background may have begun another
            instance.start()
            goes_on(instance, holder, base)


def make_case(point):
    def case(tmp):
        with changed_since(tmp, point) as (instance, box):
            assert fails(instance, box), "was anything killed?"
    case.__name__ = f"test_kill_at_{point.replace('.', '_')}"
    return require("root", "cgroup2")(case)


for _point in POINTS:
    _case = make_case(_point)
    globals()[_case.__name__] = _case


@require("root", "cgroup2")
def test_every_point_is_passed(tmp):
    def use(instance):
        with instance.sandbox() as box:
            holder = Holder(instance, box, 8)
            holder.snapshot("base")
            holder.snapshot("next")
            holder.drop("base", "next")
    seen = passed(tmp, use)
    equal(sorted(set(POINTS) - set(seen)), [])
    equal(sorted(p for p in seen if p.startswith("memory.")), sorted(p for p in POINTS if p.startswith("memory.")), "points that no case kills at")


def held(instance):
    """Pids of our processes that a fault point has stopped."""
    states = leaks.processes()
    return [pid for pid in instance.own_processes() if states.get(pid, ("", ""))[1] == "T"]


def jobs(instance):
    return [pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/cmdline").split("\0")[1:2] == ["job"]]


def ended(pids):
    """Kill them. Return: those that there were."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


def children_of(instance, parent):
    def parent_of(pid):
        return int((leaks.read(f"/proc/{pid}/stat").rpartition(")")[2].split() or [0, 0])[1])
    return [pid for pid in instance.own_processes() if parent_of(pid) == parent]


def while_written(tmp, victims):
    """The job is held in the middle, victims(instance, job) are killed, it goes on."""
    with changed_since(tmp, "memory.save.chunk=hold") as (instance, box):
        result = []
        thread = threading.Thread(target=lambda: result.append(fails(instance, box)))
        thread.start()
        cay.wait_until(lambda: held(instance), 60, "the job is held")
        job, = held(instance)
        try:
            pids = victims(instance, job)
            assert pids, "there is nothing to kill"
            ended(pids)
            cay.wait_until(lambda: all(leaks.processes().get(pid, ("", "Z"))[1] == "Z" for pid in pids), 30, "they are dead")
        finally:
            with contextlib.suppress(ProcessLookupError):  # it may be the victim
                os.kill(job, signal.SIGCONT)
        thread.join(60)
        equal(result, [True])


@require("root", "cgroup2")
def test_kill_the_coder_while_it_packs(tmp):
    while_written(tmp, children_of)


@require("root", "cgroup2")
def test_kill_the_job_while_it_writes(tmp):
    while_written(tmp, lambda _, job: [job])


def descriptors(instance):
    return len(os.listdir(f"/proc/{instance.process.pid}/fd"))


@require("root", "cgroup2")
def test_a_template_that_died_is_let_go(tmp):
    """Each time that a snapshot's memory is read from disk anew, the server forgets the template that it had before."""
    rounds = 12
    with own_instance(tmp) as instance:
        instance.start()
        with instance.sandbox() as box:
            holder = Holder(instance, box, 8)
            holder.snapshot("base")

            def again():
                pids = ended(instance.programs_named("cay-template"))
                assert pids, "there is no template"
                cay.wait_until(lambda: all(leaks.processes().get(pid, ("", "Z"))[1] == "Z" for pid in pids), 30, "they are dead")
                holder.check("base")
            again()
            before = descriptors(instance)
            for _ in range(rounds):
                again()
            cay.wait_until(lambda: descriptors(instance) < before + rounds // 2, 30, f"no more than {before} descriptors")
            holder.drop("base")
