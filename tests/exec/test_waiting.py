# SPDX-License-Identifier: Apache-2.0
"""The process that waits in a sandbox to become the next program: what a payload can do to it changes no answer."""

import concurrent.futures
import os
import signal

from lib import cay, leaks
from lib.case import equal, require
from lib.cay import wait_until

FIND = """
import os, resource, signal, time

def waiter():
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/comm") as f:
                    if f.read() == "cay-waiter\\n":
                        return int(pid)
            except OSError:
                pass
    raise SystemExit("nothing waits")
"""

CLOSED = FIND + """
pid = waiter()
attempts = {
    "environment": lambda: open(f"/proc/{pid}/environ").read(),
    "memory": lambda: open(f"/proc/{pid}/mem", "rb+"),
    "maps": lambda: open(f"/proc/{pid}/maps").read(),
    "descriptors": lambda: os.listdir(f"/proc/{pid}/fd"),
    "root": lambda: os.listdir(f"/proc/{pid}/root/"),
    "directory": lambda: os.readlink(f"/proc/{pid}/cwd"),
    "processors": lambda: os.sched_setaffinity(pid, {0}),
    "limits": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3)),
    "niceness": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "group": lambda: os.setpgid(pid, os.getpgrp()),
}
for what, attempt in attempts.items():
    try:
        attempt()
        print(what)
    except OSError:
        pass
with open(f"/proc/{pid}/cmdline", "rb") as f:
    print("named", f.read().rstrip(b"\\0").decode())
"""


def seven(instance, box):
    """An exec that ends with 7 and says something."""
    run = instance.exec(box, "sh", "-c", "echo said; exit 7")
    status = instance.wait(box, run)
    return status["status"], status.get("code"), instance.output(box, run)


def python(instance, box, script):
    run = instance.exec(box, "python3", "-c", script)
    status = instance.wait(box, run)
    equal((status["status"], status.get("code")), ("exited", 0), instance.output(box, run).decode())
    return instance.output(box, run).decode()


def test_it_is_closed_to_the_payload(instance):
    for profile in ("default", "strict", "debug"):
        with instance.sandbox(profile=profile) as box:
            equal(python(instance, box, CLOSED), "named cay-keeper\n", profile)


def test_killed_it_is_replaced(instance):
    with instance.sandbox() as box:
        for _ in range(5):
            python(instance, box, FIND + "os.kill(waiter(), signal.SIGKILL)")
            equal(seven(instance, box), ("exited", 7, b"said\n"))


def test_stopped_it_goes_on(instance):
    with instance.sandbox() as box:
        python(instance, box, FIND + "os.kill(waiter(), signal.SIGSTOP)")
        equal(seven(instance, box), ("exited", 7, b"said\n"))


def test_everything_killed_at_once(instance):
    with instance.sandbox() as box:
        for _ in range(5):
            run = instance.exec(box, "python3", "-c", FIND + "waiter(); os.kill(-1, signal.SIGKILL)")
            instance.wait(box, run)
            equal(seven(instance, box), ("exited", 7, b"said\n"))


def stopped_waiter(instance):
    """The one that stands still at its fault point, or None."""
    held = [pid for pid, (parent, state, comm) in leaks.processes().items()
            if (state, comm) == ("T", "cay-waiter") and leaks.cgroup_tags([pid]) & instance.tags]
    return held[0] if held else None


@require("root", "cgroup2")
def test_killed_behind_the_request_another_becomes_the_program(tmp):
    """Nothing of it has run: whoever asked does not hear of it."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "waiter.asked=hold"}).start()
    try:
        with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor() as pool:
            got = pool.submit(seven, instance, box)
            for step in (signal.SIGKILL, signal.SIGKILL, signal.SIGCONT):
                wait_until(lambda: stopped_waiter(instance), 30, "one is asked")
                os.kill(stopped_waiter(instance), step)
            equal(got.result(), ("exited", 7, b"said\n"))
    finally:
        instance.close()


@require("root", "cgroup2")
def test_killed_before_the_request_another_becomes_the_program(tmp):
    """Between the look at it and what it is sent."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "keeper.launch.found" + ":2=hold"}).start()
    try:
        with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor() as pool:
            equal(seven(instance, box), ("exited", 7, b"said\n"))
            keeper = leaks.keeper_of(instance.get(f"/v1/sandboxes/{box}")["id"])
            spare = []
            wait_until(lambda: spare.extend(pid for pid, (parent, _, comm) in leaks.processes().items() if (parent, comm) == (keeper, "cay-waiter")) or spare,
                       30, "the next one waits")
            got = pool.submit(seven, instance, box)
            wait_until(lambda: leaks.processes()[keeper][1] == "T", 30, "the keeper has looked at it")
            os.kill(spare[0], signal.SIGKILL)
            wait_until(lambda: leaks.processes()[spare[0]][1] == "Z", 30, "it is dead")
            os.kill(keeper, signal.SIGCONT)
            equal(got.result(), ("exited", 7, b"said\n"))
    finally:
        instance.close()


@require("root", "cgroup2")
def test_stopped_behind_the_request_it_has_its_deadline_all_the_same(tmp):
    """A payload may stop it in that instant, too (kill -1): nobody waits longer than was said, and nothing stays that is about to start."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "waiter.asked=hold"}).start()
    try:
        with instance.sandbox() as box:
            run = instance.exec(box, "true", timeout_ms=500)
            equal(instance.wait(box, run)["status"], "timeout")
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "behind"})
    finally:
        instance.close()


@require("root", "cgroup2")
def test_whoever_kills_each_of_them_is_told(tmp):
    instance = cay.Instance(tmp, env={"CAY_FAULT": "waiter.asked"}).start()
    try:
        with instance.sandbox() as box:
            equal(seven(instance, box), ("signaled", None, b""))
    finally:
        instance.close()


@require("root", "cgroup2")
def test_a_live_snapshot_waits_for_a_program_that_is_being_started(tmp):
    """On a busy machine a start takes longer than all the tries together did."""
    log = cay.fault_log(tmp)
    instance = cay.Instance(tmp, env={"CAY_FAULT": "waiter.asked=hold", "CAY_FAULT_LOG": log}).start()

    def pauses():
        with open(log, encoding="utf-8") as f:
            return f.read().split().count("moment.pause")

    try:
        with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor() as pool:
            run = pool.submit(instance.exec, box, "sleep", "1000")
            wait_until(lambda: stopped_waiter(instance), 30, "it is about to start")
            snapshot = pool.submit(instance.post, f"/v1/sandboxes/{box}/snapshots", {"files_only": False})
            wait_until(lambda: pauses() >= 12 or snapshot.done(), 30, "it has waited for longer than eight tries")
            os.kill(stopped_waiter(instance), signal.SIGCONT)
            equal(snapshot.result()["live"]["processes"], 1)
            equal(run.result()["state"], "running")
    finally:
        instance.close()


def test_a_request_longer_than_a_message(instance):
    with instance.sandbox() as box:
        long = "x" * 100000
        run = instance.exec(box, "printenv", "LONG", env={"LONG": long})
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run).decode(), long + "\n")
