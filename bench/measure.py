# SPDX-License-Identifier: Apache-2.0
"""Samples, percentiles, the C helpers, facts about the machine, memory of processes."""

import glob
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TOP, "tests"))
sys.dont_write_bytecode = True

BUILD = os.path.abspath(os.environ.get("CAY_TEST_BUILD", os.path.join(TOP, "build")))
SPAWN = os.path.join(BUILD, "bench", "spawnbench")
API = os.path.join(BUILD, "bench", "apibench")
SECONDS = 120  # longest that one helper may take
# what is given to peers in place of the machine's /dev/null, which some of them give on to another user
NOTHING, SINK = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # pylint: disable=consider-using-with


def percentile(values, p):
    """Nearest rank; None without samples."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(p / 100 * len(ordered)) - 1)]


def row(case, who, samples_ns, errors=0, concurrent=1, **more):
    """One line of the results: times in milliseconds."""
    ms = [s / 1e6 for s in samples_ns]
    return {"case": case, "who": who, "concurrent": concurrent, "n": len(ms), "errors": errors,
            **{k: None if v is None else round(v, 4) for k, v in
               {"p50_ms": percentile(ms, 50), "p99_ms": percentile(ms, 99), "min_ms": min(ms, default=None)}.items()}, **more}


def value(case, who, number, unit, **more):
    """One line of the results that is no time of an operation."""
    return {"case": case, "who": who, "value": number, "unit": unit, **more}


def helper(argv, env=None, cwd=None):
    """Run a C helper and read the JSON that it prints."""
    done = subprocess.run(argv, env=env, cwd=cwd, stdin=NOTHING, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=SECONDS, check=False)
    try:
        return json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        raise RuntimeError(f"{' '.join(argv[:4])}…: status {done.returncode}\n{done.stdout[-500:]}{done.stderr[-1500:]}") from error


def spawn(count, argv, prefix=(), env=None, cwd=None):
    """([ns], errors, processor ns) of @count starts of @argv, one after the other, inside @prefix (which is not measured)."""
    result = helper([*prefix, SPAWN, str(count), *argv], env, cwd)
    return result["ns"], result["errors"], result["cpu_us"] * 1000


def api(socket, connections, rounds, steps):
    """Repeat @steps [(label, method, path, body, save[, want])]; see bench/apibench.c. Returns its result."""
    flat = []
    for label, method, path, body, save, *want in steps:
        flat += [label, method, path, "-" if body is None else json.dumps(body, separators=(",", ":")), save or "-", *(want or ["-"])]
    return helper([API, socket, str(connections), str(rounds), *flat])


def interleaved(rounds, contenders):
    """Call each of {who: function -> ([ns], errors, processor ns)} in turn, @rounds times, so that a slow moment hits all. Returns their sums."""
    total = {who: ([], 0, 0) for who in contenders}
    for _ in range(rounds):
        for who, measure in contenders.items():
            total[who] = tuple(a + b for a, b in zip(total[who], measure()))
    return total


def close(instance):
    """End everything of @instance; what stays behind is a finding of its own (the tests look for it) and must not cost the numbers."""
    try:
        instance.close()
    except Exception as error:  # pylint: disable=broad-except
        print(str(error)[:2000], file=sys.stderr)
    pool = os.path.join(instance.state, "pool")
    if os.path.ismount(pool):
        subprocess.run(["umount", pool], check=False)
    for tag in instance.tags:
        for tree in glob.glob(f"/sys/fs/cgroup/*/{tag}") + glob.glob(f"/sys/fs/cgroup/{tag}"):
            for folder, _, _ in os.walk(tree, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError as error:
                    print(f"{folder}: {error.strerror}", file=sys.stderr)


# ---- facts ----------------------------------------------------------------------------------------------------------------------

def read(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return default


def output(argv, cwd=None):
    try:
        return subprocess.run(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=10, check=False).stdout.strip()
    except OSError:
        return ""


def load():
    return float(read("/proc/loadavg", "0").split()[0])


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def commit():
    dirty = bool(output(["git", "status", "--porcelain", "--", "src", "defs"], TOP))
    return output(["git", "rev-parse", "--short=12", "HEAD"], TOP) + ("+changes" if dirty else "")


def machine(state):
    """What a reader needs to know to believe the numbers."""
    cpu = next((line.split(":", 1)[1].strip() for line in read("/proc/cpuinfo").splitlines() if line.startswith("model name")), "unknown")
    memory = next((int(line.split()[1]) for line in read("/proc/meminfo").splitlines() if line.startswith("MemTotal")), 0)
    return {
        "kernel": platform.release(), "cpu": cpu, "cores": os.cpu_count(), "memory_mib": memory // 1024,
        "hypervisor": read("/sys/class/dmi/id/product_name").strip() or output(["systemd-detect-virt", "--vm"]) or "unknown",
        "file_system": output(["stat", "-f", "-c", "%T", state]), "distribution": next(
            (line.split("=", 1)[1].strip('"') for line in read("/etc/os-release").splitlines() if line.startswith("PRETTY_NAME=")), ""),
        "time": now(),
        "peers": {name: (output([name, "--version"]).splitlines() or [""])[0] for name in ("bwrap", "crun", "runc", "runsc")},
    }


# ---- memory ---------------------------------------------------------------------------------------------------------------------

def pss_kib(pid):
    """Proportional set size, or None when the process is gone."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return None


def own_kib(pid):
    """What a process has for itself alone: private pages and page tables; 0 when it is gone."""
    lines = (read(f"/proc/{pid}/smaps_rollup") + read(f"/proc/{pid}/status")).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:", "VmPTE:")))


def cpu_ns(pid, children=False):
    """Processor time of a process so far, with @children also of those that it has waited for."""
    ticks = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[11:15]
    return sum(int(t) for t in ticks[:4 if children else 2]) * (1000000000 // os.sysconf("SC_CLK_TCK"))


def busy_s():
    """Processor time of the whole machine so far, kernel threads and the client included: what else runs is in it too."""
    user, nice, system, _, _, interrupts, soft = map(int, read("/proc/stat").split("\n", 1)[0].split()[1:8])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def available_kib():
    return next(int(line.split()[1]) for line in read("/proc/meminfo").splitlines() if line.startswith("MemAvailable"))


def name_of(pid):
    return read(f"/proc/{pid}/comm").strip()
