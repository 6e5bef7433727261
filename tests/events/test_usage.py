# SPDX-License-Identifier: Apache-2.0
"""`cay usage`: the cgroup's own counters, read here beside it, and the integral of the memory between bounds that the counters give."""

import os
import subprocess

from lib import cay, leaks
from lib.case import contains, equal, require

MIB = 1 << 20


class Counters:
    """The cgroups of a sandbox, found through its init, without asking the server."""

    def __init__(self, instance, box):
        pid = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
        self.dirs = {}
        for line in leaks.read(f"/proc/{pid}/cgroup").splitlines():
            _, kinds, path = line.split(":", 2)
            for kind in kinds.split(",") if kinds else ["v2"]:
                self.dirs[kind] = path
        mounts = {}
        for line in leaks.read("/proc/self/mountinfo").splitlines():
            fields = line.split()
            dash = fields.index("-")
            if fields[dash + 1] == "cgroup2":
                mounts["v2"] = fields[4]
            elif fields[dash + 1] == "cgroup":
                mounts.update({kind: fields[4] for kind in fields[dash + 3].split(",")})
        self.dirs = {kind: mounts[kind] + path for kind, path in self.dirs.items() if kind in mounts}
        self.dirs["v2"] = os.path.dirname(self.dirs["v2"])  # .../box/init -> .../box
        self.v2 = os.path.exists(os.path.join(self.dirs["v2"], "memory.current"))

    def number(self, kind, v2, v1):
        path = os.path.join(self.dirs["v2" if self.v2 else kind], v2 if self.v2 else v1)
        return int(leaks.read(path))

    def cpu_us(self):
        return int(leaks.read(os.path.join(self.dirs["v2"], "cpu.stat")).split()[1])

    def memory(self):
        return self.number("memory", "memory.current", "memory.usage_in_bytes")

    def peak(self):
        return self.number("memory", "memory.peak", "memory.max_usage_in_bytes")

    def pids(self):
        return self.number("pids", "pids.current", "pids.current")

    def all(self):
        return self.cpu_us(), self.memory(), self.peak(), self.pids()


def usage_of(instance, box):
    return instance.get(f"/v1/sandboxes/{box}/usage")


def hold(mib):
    """A program that touches so much memory, says so, and waits for a byte."""
    return ("python3", "-c", f"import sys; b = bytearray({mib} << 20); b[::4096] = b'x' * ({mib} << 8); print('full', flush=True); sys.stdin.read(1)")


@require("root", "cgroup2")
def test_a_paused_sandbox_is_counted_exactly_as_its_cgroup(instance):
    with instance.sandbox() as box:
        instance.ok(box, "python3 -c 'import time\nwhile time.process_time() < 0.3: pass'")
        instance.post(f"/v1/sandboxes/{box}/pause")
        counters = Counters(instance, box)
        before, usage, after = None, {}, ()
        while before != after:  # the kernel frees a little memory of ended processes behind their back
            before = counters.all()
            usage = usage_of(instance, box)
            after = counters.all()
        equal((usage["cpu_us"], usage["memory_bytes"], usage["memory_peak_bytes"], usage["pids"]), before)
        assert usage["cpu_us"] >= 300_000, usage
        instance.post(f"/v1/sandboxes/{box}/resume")


@require("root", "cgroup2")
def test_a_running_sandbox_is_counted_between_two_readings_of_its_cgroup(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "python3", "-c", "while True: pass")
        counters = Counters(instance, box)
        before = (counters.cpu_us(), counters.peak())
        usage = usage_of(instance, box)
        after = (counters.cpu_us(), counters.peak())
        assert before[0] <= usage["cpu_us"] <= after[0], (before, usage, after)
        assert before[1] <= usage["memory_peak_bytes"] <= after[1], (before, usage, after)
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9, "tree": True})
        status = instance.wait(box, run)
        equal(status["status"], "killed")
        assert usage_of(instance, box)["cpu_us"] >= status["cpu_us"], status


@require("root", "cgroup2")
def test_memory_over_time_lies_between_what_was_held_and_the_peak(instance):
    """Between two usages the sandbox holds a known amount: the integral must have grown by at least that times the time, and by at most the peak times it."""
    with instance.sandbox() as box:
        run = instance.exec(box, *hold(200), stdin=True)
        stream = instance.attach(box, run)
        contains(stream.until(cay.STDOUT)[-1][2], b"full")
        counters = Counters(instance, box)
        first = usage_of(instance, box)
        lowest = counters.memory()
        while usage_of(instance, box)["running_ms"] - first["running_ms"] < 1500:
            lowest = min(lowest, counters.memory())
        last = usage_of(instance, box)
        seconds = (last["running_ms"] - first["running_ms"]) / 1000
        grown = last["memory_gb_seconds"] - first["memory_gb_seconds"]
        print("held", lowest, "peak", last["memory_peak_bytes"], "seconds", seconds, "GB-seconds", grown)
        assert lowest >= 200 * MIB
        assert lowest / 1e9 * (seconds - 0.01) <= grown <= last["memory_peak_bytes"] / 1e9 * (seconds + 0.01)
        assert last["memory_samples"] > first["memory_samples"]
        stream.close()
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9, "tree": True})


@require("root", "cgroup2")
def test_the_keeper_reads_by_itself(instance):
    """Nobody asks while the memory is held: the readings between are the keeper's own."""
    with instance.sandbox() as box:
        first = usage_of(instance, box)
        instance.ok(box, "python3 -c 'import time; b = bytearray(150 << 20); b[::4096] = b\"x\" * (150 << 8); time.sleep(4)'")
        last = usage_of(instance, box)
        assert last["memory_samples"] >= first["memory_samples"] + 5, (first, last)
        grown = last["memory_gb_seconds"] - first["memory_gb_seconds"]
        assert grown >= 150 * MIB / 1e9 * 1.5, grown
        assert last["memory_gap_ms"] <= 32_000 + 1000, last


@require("root", "cgroup2")
def test_totals_outlive_stop_start_and_the_server(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "python3 -c 'import time\nwhile time.process_time() < 0.2: pass'; echo out")
        running = usage_of(fresh, box)
        fresh.post(f"/v1/sandboxes/{box}/stop")
        stopped = usage_of(fresh, box)
        equal(stopped["live"], False)
        for member in ("cpu_us", "memory_gb_seconds", "running_ms", "output_bytes", "memory_peak_bytes"):
            assert stopped[member] >= running[member], (member, running, stopped)
        equal(stopped["output_bytes"], 4)
        fresh.post(f"/v1/sandboxes/{box}/start")
        fresh.ok(box, "echo more")
        again = usage_of(fresh, box)
        assert again["cpu_us"] > stopped["cpu_us"] and again["running_ms"] >= stopped["running_ms"], (stopped, again)
        equal(again["output_bytes"], 9)
        fresh.kill()
        fresh.start()
        adopted = usage_of(fresh, box)
        assert adopted["cpu_us"] >= again["cpu_us"] and adopted["running_ms"] >= again["running_ms"], (again, adopted)
        equal((adopted["output_bytes"], adopted["incomplete"]), (9, False))


@require("root", "cgroup2")
def test_a_run_whose_keeper_died_is_told(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "true")
        for pid in leaks.processes():
            if f"cay-keeper\0sandbox\0{box}" in leaks.read(f"/proc/{pid}/cmdline"):
                os.kill(pid, 9)
        fresh.wait_event("sandbox.failed", box)
        usage = usage_of(fresh, box)
        equal((usage["live"], usage["incomplete"]), (False, True))
        contains(fresh.cay("usage", box).stdout, "not counted")


@require("root")
def test_disk_grows_by_what_was_written(instance):
    with instance.sandbox() as box:
        before = usage_of(instance, box)["disk_bytes"]
        instance.ok(box, "head -c 20000000 /dev/urandom > /var/tmp/big")
        # the pool charges what it has written back; nothing inside a sandbox can make it do so
        subprocess.run(["sync", "--file-system", os.path.join(instance.state, "pool")], check=True)
        grown = usage_of(instance, box)["disk_bytes"] - before
        assert 20_000_000 <= grown <= 24_000_000, grown


def test_the_command_shows_it(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo hello")
        text = instance.cay("usage", box).stdout
        for word in ("processor", "memory", "GB-seconds", "disk", "running"):
            contains(text, word)
        equal([line.split()[1:] for line in text.splitlines() if line.startswith("processes")], [["0"]])
