# SPDX-License-Identifier: Apache-2.0
"""The clocks of programs that are brought back never step back: a restart of the machine, as far as clocks go, is a server in a time namespace far ahead, and then one outside.
CLOCK_MONOTONIC stands still while they do."""

import contextlib
import json
import os
import re
import sys
import time

from lib import cay
from lib.case import equal, require
from lib.cay import wait_until

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, rootless, start  # noqa: E402
from suspending import resume, suspend  # noqa: E402

TIMEOUT = 180
NEEDS = ("root", "cgroup2", "timens")

AHEAD = 1_000_000  # seconds
FAR = AHEAD - 100_000  # no test takes a day

# One thread reads both clocks all the time, one sleeps until an instant of the first, one until its last. A line is answered with what they have seen.
WATCHER = """
import ctypes, json, select, sys, threading, time
CLOCKS = (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
libc = ctypes.CDLL(None, use_errno=True)
class timespec(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def by_call(clock):
    t = timespec()
    libc.syscall(228, clock, ctypes.byref(t))
    return t.s * 10**9 + t.ns
seen, back, woke, early, looked = {}, 0, threading.Event(), threading.Event(), threading.Event()
def look():
    global back
    for read in (time.clock_gettime_ns, by_call):
        for clock in CLOCKS:
            now = read(clock)
            back = max(back, seen.get(clock, now) - now)
            seen[clock] = max(seen.get(clock, now), now)
def watch():
    while True:
        look()
        looked.set()
        select.select([], [], [], 0.001)  # for a time: time.sleep() waits until an instant, which a clock that steps back may never reach
def forever():
    libc.clock_nanosleep(CLOCKS[0], 1, ctypes.byref(timespec(2**63 - 1, 0)), None)
    early.set()
until = time.clock_gettime_ns(CLOCKS[0]) + 3 * 10**9
def sleeper():
    t = timespec(until // 10**9, until % 10**9)
    rc = libc.clock_nanosleep(CLOCKS[0], 1, ctypes.byref(t), None)
    assert rc == 0, rc
    assert time.clock_gettime_ns(CLOCKS[0]) >= until
    woke.set()
for thread in (watch, sleeper, forever):
    threading.Thread(target=thread, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    if line == "woke\\n":
        woke.wait()
    for _ in range(2):  # the first may have begun before
        looked.clear()
        looked.wait()
    before = time.time()
    now = [time.clock_gettime_ns(c) for c in CLOCKS]
    print(json.dumps({"back": back, "now": now, "wall": [before, time.time()], "woke": woke.is_set(), "early": early.is_set(),
                      "btime": [int(l.split()[1]) for l in open("/proc/stat") if l.startswith("btime")][0],
                      "uptime": float(open("/proc/uptime").read().split()[0])}), flush=True)
"""


class Machine(cay.Instance):
    """A server that can be started as on a machine that has run for a long time; without the capabilities @dropped."""

    old, dropped = False, ()

    def command(self, argv):
        prefix = ["unshare", "--time", f"--monotonic={AHEAD}", f"--boottime={AHEAD}", "--"] if self.old else []
        if self.dropped:
            prefix += ["setpriv", "--bounding-set", ",".join("-" + one for one in self.dropped), "--"]
        return prefix + super().command(argv)

    def restart(self, old, **more):
        self.stop()
        self.old = old
        return self.start(**more)


@contextlib.contextmanager
def machine(tmp, user=None):
    instance = Machine(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1"} if user is not None else None)
    instance.old = True
    try:
        yield instance.start()
    finally:
        instance.close()


def ahead(now):
    """Seconds by which both clocks of a program, read before, are ahead of this machine's."""
    ours = (time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    return [(theirs - our) / 1e9 for theirs, our in zip(now, ours)]


def look(instance, box, run, line="look"):
    seen = json.loads(ask(instance, box, run, line))
    equal(seen["early"], False)
    return seen


def never_back(instance, box, run):
    """Neither has stepped back, both are far ahead of this machine's, and all that speaks of time agrees; so for programs that are started now."""
    seen = look(instance, box, run)
    equal(seen["back"], 0)
    assert min(ahead(seen["now"])) > FAR, seen
    assert seen["wall"][0] - 2 < seen["btime"] + seen["now"][1] / 1e9 < seen["wall"][1] + 2, seen  # seconds are cut off on the way
    assert seen["uptime"] > seen["now"][1] / 1e9 - 0.02, seen  # looked at later; of hundredths the rest is cut off
    later = instance.ok(box, "/usr/bin/python3 -c 'import time; print([time.clock_gettime_ns(c) for c in (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)])'")
    assert all(b >= a for a, b in zip(seen["now"], json.loads(later))), (seen, later)
    return seen


def resumed(instance, box):
    return [e["data"] for e in instance.events(box) if e["type"] == "sandbox.resumed"]


def clocks_go_on(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/watch.py", WATCHER)
        run = start(instance, box, "/usr/bin/python3", "/tmp/watch.py")
        never_back(instance, box, run)
        suspend(instance, box)
        instance.restart(old=False)
        resume(instance, box)
        first = never_back(instance, box, run)
        # not later than it would have been on the old machine
        assert max(ahead(first["now"])) <= AHEAD, first
        equal(look(instance, box, run, "woke")["woke"], True)
        fork = fork_live(instance, box)[0]
        equal(never_back(instance, fork, run)["woke"], True)
        instance.remove(fork)
        suspend(instance, box)
        instance.restart(old=False)
        resume(instance, box)
        never_back(instance, box, run)
        equal(resumed(instance, box), [{}, {}])


@require(*NEEDS)
def test_a_restart_of_the_machine(tmp):
    with machine(tmp) as instance:
        clocks_go_on(instance)


@require(*NEEDS)
def test_a_restart_of_the_machine_with_what_the_unit_leaves(tmp):
    """A server that systemd starts has not all capabilities."""
    with open(os.path.join(cay.TOP, "packaging", "cayd.service.in"), encoding="utf-8") as f:
        lines = re.findall(r"^CapabilityBoundingSet=~(.*)$", f.read(), flags=re.M)
    with machine(tmp) as instance:
        instance.stop()
        instance.dropped = [one.lower().removeprefix("cap_") for line in lines for one in line.split()]
        instance.start()
        clocks_go_on(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_a_restart_of_the_machine_rootless(tmp):
    os.chmod(tmp, 0o755)
    with cay.ThrowawayUser() as user, machine(tmp, user) as instance:
        clocks_go_on(instance)


@require(*NEEDS)
def test_forks_of_a_snapshot_and_a_rewind_on_another_machine(tmp):
    with machine(tmp) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/watch.py", WATCHER)
        run = start(instance, box, "/usr/bin/python3", "/tmp/watch.py")
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "then"})
        instance.call("POST", f"/v1/sandboxes/{box}/stop")
        instance.restart(old=False)
        fork = instance.post("/v1/snapshots/then/fork", {})["sandboxes"][0]["id"]
        never_back(instance, fork, run)
        instance.remove(fork)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "then"})
        never_back(instance, box, run)


@require(*NEEDS)
def test_without_time_namespaces_they_step_back_and_the_event_says_so(tmp):
    with machine(tmp) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/watch.py", WATCHER)
        run = start(instance, box, "/usr/bin/python3", "/tmp/watch.py")
        suspend(instance, box)
        instance.restart(old=False, CAY_WITHOUT="timens")
        resume(instance, box)
        seen = look(instance, box, run)
        assert seen["back"] > FAR * 10**9, seen
        assert max(ahead(seen["now"])) <= 0, seen
        event = resumed(instance, box)[0]
        assert event["clocks_back_ms"] > FAR * 1000, event


def offsets(instance, box, run):
    """Of both clocks of a program: within which nanoseconds it is ahead of the machine's."""
    clocks = (time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME)
    before = [time.clock_gettime_ns(c) for c in clocks]
    seen = look(instance, box, run)
    equal(seen["back"], 0)
    return [(theirs - time.clock_gettime_ns(c), theirs - was) for theirs, c, was in zip(seen["now"], clocks, before)]


def time_passes(seconds):
    """Give how many nanoseconds have passed for the machine when it is that many seconds at least."""
    begun = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    wait_until(lambda: time.clock_gettime_ns(time.CLOCK_MONOTONIC) > begun + seconds * 10**9, seconds + 60, "time passes")
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) - begun


def stood_still(before, after, passed):
    """The first clock for as long as @passed, the other not at all."""
    assert after[0][0] <= before[0][1] - passed, (before, after, passed)
    assert after[1][1] >= before[1][0], (before, after)


def time_namespace(instance, box):
    name = "import os; print(os.readlink('/proc/self/ns/time'))"
    return instance.ok(box, f'/usr/bin/python3 -c "{name}"').strip()


def monotonic_stands_still(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/watch.py", WATCHER)
        run = start(instance, box, "/usr/bin/python3", "/tmp/watch.py")
        then = offsets(instance, box, run)
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "then"})
        equal(time_namespace(instance, box), os.readlink("/proc/self/ns/time"))
        for _ in range(2):
            before = offsets(instance, box, run)
            suspend(instance, box)
            passed = time_passes(2)
            resume(instance, box)
            after = offsets(instance, box, run)
            stood_still(before, after, passed)
        # programs that are started now have the same clocks
        later = int(instance.ok(box, "/usr/bin/python3 -c 'import time; print(time.monotonic_ns())'"))
        assert later - time.clock_gettime_ns(time.CLOCK_MONOTONIC) <= after[0][1], (later, after)
        equal(resumed(instance, box), [{}, {}])
        fork = fork_live(instance, box)[0]
        theirs = offsets(instance, fork, run)
        assert theirs[0][0] <= after[0][1] and theirs[0][1] >= after[0][0], (after, theirs)
        instance.remove(fork)
        equal(look(instance, box, run, "woke")["woke"], True)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "then"})
        stood_still(then, offsets(instance, box, run), passed)
        equal(look(instance, box, run, "woke")["woke"], True)
        fork = instance.post("/v1/snapshots/then/fork", {})["sandboxes"][0]["id"]
        equal(time_namespace(instance, fork), os.readlink("/proc/self/ns/time"))
        instance.remove(fork)


@require(*NEEDS)
def test_monotonic_stands_still_while_its_programs_do(instance):
    monotonic_stands_still(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_monotonic_stands_still_rootless(tmp):
    with rootless(tmp) as instance:
        monotonic_stands_still(instance)


@require(*NEEDS)
def test_without_time_namespaces_monotonic_goes_on(tmp):
    with contextlib.closing(cay.Instance(tmp, env={"CAY_WITHOUT": "timens"}).start()) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/watch.py", WATCHER)
        run = start(instance, box, "/usr/bin/python3", "/tmp/watch.py")
        before = offsets(instance, box, run)
        suspend(instance, box)
        time_passes(1)
        resume(instance, box)
        after = offsets(instance, box, run)
        assert after[0][1] >= before[0][0], (before, after)
        equal(resumed(instance, box), [{}])
        equal(time_namespace(instance, box), os.readlink("/proc/self/ns/time"))
