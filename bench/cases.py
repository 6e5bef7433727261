# SPDX-License-Identifier: Apache-2.0
"""What is measured. A case is a function of a Bench that returns rows (measure.row, measure.value); its docstring is the text of the report."""

import inspect
import os
import select
import time

from filework import file_work
from measure import BUILD, api, available_kib, cpu_ns, descriptors, helper, interleaved, name_of, percentile, pss_kib, row, spawn, value

from lib import leaks

CAY = os.path.join(BUILD, "cay")
CREATE = ("create", "POST", "/v1/sandboxes", {}, "id")
REMOVE = ("remove", "DELETE", "/v1/sandboxes/{id}?force=true", None, None)
TRUE = {"argv": ["true"]}
SETTLE_SECONDS = 20  # far more than it takes: whoever needs so long is stuck


def once(step, mark="@"):
    return (mark + step[0],) + step[1:]


def execute(argv, label="exec", sandbox="{id}"):
    """The step of an exec, from the request to the final status, which has to be 0."""
    return [(label, "POST", f"/v1/sandboxes/{sandbox}/execs?wait_ms=50000", {"argv": argv}, None, '"code":0')]


class Bench:
    """What the cases share: a running instance, the peers, a scratch directory, and how thorough to be."""

    def __init__(self, instance, peers, scratch, scale, idle):
        self.instance, self.peers, self.scratch, self.scale, self.idle = instance, peers, scratch, scale, idle
        self.notes, self.runs = [], {}
        self.full = self.fill()

    def count(self, n):
        return max(1, round(n * self.scale))

    def api(self, connections, rounds, steps):
        result = api(self.instance.socket, connections, rounds, steps)
        for text in result["errors"][:3]:
            self.notes.append(f"{inspect.currentframe().f_back.f_code.co_name}: at {connections}: {text}")
        return result

    def server_cpu_ns(self):
        """Processor time of the server, the spawner and every keeper that has ended (with all its children)."""
        pids = {name_of(p): p for p in self.instance.own_processes()}
        return cpu_ns(pids["cayd"]) + cpu_ns(pids["cay-spawn"], children=True)

    def settle(self, kept=0):
        """Until the pool is full and no keeper is there but its own and those of @kept sandboxes: all that the last operation left to do is done, and the next
        contender has the machine to itself. Nothing else may run meanwhile."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            keepers, pool = sum("keepe" in name_of(p) for p in self.instance.own_processes()), self.instance.get("/v1/version")["pool"]
            if keepers == pool + kept and pool >= self.full:
                return
            time.sleep(0.01)
        raise RuntimeError(f"after {SETTLE_SECONDS} s there are {keepers} keepers, {pool} of them in the pool of {self.full}, and not {kept} of sandboxes")

    def fill(self):
        """How many sandboxes the pool holds when nothing is asked of it."""
        full, since, deadline = 0, time.monotonic(), time.monotonic() + SETTLE_SECONDS
        while full == 0 or time.monotonic() < since + 1:
            now = self.instance.get("/v1/version")["pool"]
            if now != full:
                full, since = now, time.monotonic()
            if time.monotonic() > deadline:
                raise RuntimeError("the pool stays empty")
            time.sleep(0.02)
        return full

    def rows(self, case, connections, result, labels, who="cay"):
        return [row(case if len(labels) == 1 else f"{case}: {label}", who, result["steps"][label]["ns"], result["steps"][label]["errors"], connections)
                for label in labels]


def run_warm(b):
    """`… -- true`, from fork to the end of the command, one start at a time, contenders in turn; cay with its server running. Before each start all that the one
    before left to do has ended: of cay the clearing up and the refilling of the pool; the peers leave nothing behind. Processor time is that of everything that
    was started for one command: for cay also the server, the keepers, the clearing up and the refilling."""
    env, empty = b.instance.environment(), os.path.join(b.scratch, "empty")
    os.makedirs(empty, exist_ok=True)

    def cay(*flags):
        before = b.server_cpu_ns()
        ns, errors, cpu = spawn(1, [CAY, "run", *flags, "--", "true"], env=env, cwd=empty)
        b.settle()
        return ns, errors, cpu + b.server_cpu_ns() - before

    contenders = {
        "cay run": cay,
        "cay run --no-cwd": lambda: cay("--no-cwd"),
        "true alone": lambda: spawn(1, ["true"]),
    }
    for name, (prefix, argv) in b.peers.commands.items():
        contenders[name] = lambda prefix=prefix, argv=argv: spawn(1, argv, prefix)
    for measure in contenders.values():
        measure()
    slow = {"runsc": contenders.pop("runsc")} if "runsc" in contenders else {}
    found = {**interleaved(b.count(100), contenders), **interleaved(b.count(20), {**slow, "cay run beside it": contenders["cay run"]} if slow else {})}
    found.pop("cay run beside it", None)
    return [row("run -- true, warm", who, ns, errors, cpu_ms_each=round(cpu / 1e6 / max(1, len(ns)), 2)) for who, (ns, errors, cpu) in found.items()]


def run_sustained(b):
    """Two hundred starts without a pause, so that every start of cay waits for a sandbox that is prepared meanwhile, beside bubblewrap. Processor time as above."""
    env, empty = b.instance.environment(), os.path.join(b.scratch, "empty")
    os.makedirs(empty, exist_ok=True)
    rows = []
    for who, argv in (("cay run", [CAY, "run", "--", "true"]), ("bwrap", b.peers.commands.get("bwrap", (None, None))[1])):
        if argv is not None:
            b.settle()
            before = b.server_cpu_ns()
            ns, errors, cpu = spawn(b.count(200), argv, env=env, cwd=empty)
            b.settle()
            cpu += b.server_cpu_ns() - before
            rows.append(row("run -- true, no pause", who, ns, errors, a_second=round(1e9 * len(ns) / max(1, sum(ns)), 1), cpu_ms_each=round(cpu / 1e6 / max(1, len(ns)), 2)))
    return rows


def run_cold(b):
    """The same with no server running: `cay` starts one."""
    empty = os.path.join(b.scratch, "empty")
    os.makedirs(empty, exist_ok=True)
    samples, errors = [], 0
    b.instance.stop()
    for _ in range(b.count(5)):
        ns, failed, _ = spawn(1, [CAY, "run", "--", "true"], env=b.instance.environment(), cwd=empty)
        samples, errors = samples + ns, errors + failed
        server = os.pidfd_open(b.instance.get("/v1/version")["pid"])
        b.instance.post("/v1/shutdown")
        wait_ended(server)
    b.instance.start()
    return [row("run -- true, cold", "cay run", samples, errors)]


def wait_ended(pidfd, seconds=70):
    """Until that process has ended: a server answers what had connected before it goes, without its socket."""
    try:
        if not select.select([pidfd], [], [], seconds)[0]:
            raise RuntimeError(f"the server did not end within {seconds} s")
    finally:
        os.close(pidfd)


def http(b):
    """GET /v1/version over one kept connection: what the API itself costs."""
    result = b.api(1, b.count(500), [("version", "GET", "/v1/version", None, None)])
    return b.rows("GET /v1/version", 1, result, ["version"])


def create(b):
    """POST /v1/sandboxes until the answer (the sandbox runs), then its removal. One connection leaves the pool time to refill; more do not."""
    rows = []
    for connections, rounds in ((1, 60), (10, 10), (100, 2)):
        result = b.api(connections, b.count(rounds), [CREATE, REMOVE])
        rows += b.rows("create, then remove", connections, result, ["create", "remove"])
    return rows


def create_paced(b):
    """The same, each round when the clearing up and refilling of the last one has ended, as when people or agents ask: every sandbox comes from the warm pool."""
    samples, errors = [], 0
    for _ in range(b.count(40)):
        result = b.api(1, 1, [CREATE, REMOVE])
        samples += result["steps"]["create"]["ns"]
        errors += result["steps"]["create"]["errors"]
        b.settle()
    return [row("create, pool full", "cay", samples, errors)]


def execs(b):
    """An exec of `true` in a running sandbox, from the request to its final status in one exchange, a sandbox for each connection."""
    rows = []
    for connections, rounds in ((1, 200), (10, 20), (100, 3)):
        steps = [once(CREATE), *execute(["true"]), once(REMOVE, "~")]
        rows += b.rows("exec true", connections, b.api(connections, b.count(rounds), steps), ["exec"])
    return rows


def forks(b):
    """Snapshot of a running sandbox with 100 changed files, fork of it (the fork runs), rewind, and diff."""
    rows = []
    make = "mkdir -p /w && cd /w && for i in $(seq 100); do echo $i > f$i; done"
    for connections, rounds in ((1, 20), (10, 3), (100, 1)):
        steps = [once(CREATE), *[once(s) for s in execute(["sh", "-c", make])],
                 ("snapshot", "POST", "/v1/sandboxes/{id}/snapshots", {}, "snapshot"),
                 ("fork", "POST", "/v1/snapshots/{snapshot}/fork", {}, "child"),
                 ("diff", "GET", "/v1/diff?a={id}", None, None),
                 ("rewind", "POST", "/v1/sandboxes/{id}/rewind", {"snapshot": "{snapshot}"}, None),
                 ("-", "DELETE", "/v1/sandboxes/{child}?force=true", None, None),
                 once(REMOVE, "~")]
        result = b.api(connections, b.count(rounds), steps)
        rows += b.rows("100 changed files", connections, result, ["snapshot", "fork", "diff", "rewind"])
    return rows


def rate(b):
    """Sandboxes per second: create, exec true, wait, remove, on 4 connections for some seconds; then 500 connections that all ask for one sandbox at once."""
    cycle = [CREATE, *execute(["true"]), REMOVE]
    result = b.api(4, b.count(60), cycle)
    done = len(result["steps"]["remove"]["ns"])
    errors = sum(s["errors"] for s in result["steps"].values())
    rows = [value("sandboxes per second: create, exec, remove", "cay", round(done / (result["wall_ns"] / 1e9), 1), "1/s", errors=errors, n=done)]
    burst = 500 if b.scale >= 1 else 100
    result = b.api(burst, 1, [CREATE, once(REMOVE, "~")])
    rows.append(row(f"burst of {burst} creates", "cay", result["steps"]["create"]["ns"], result["steps"]["create"]["errors"], burst,
                    seconds=round(result["wall_ns"] / 1e9, 2)))
    return rows


def not_running(b, ids):
    """How many of the sandboxes @ids have ended, or have no process any more."""
    there = {box["id"]: box for box in b.instance.get("/v1/sandboxes")["sandboxes"]}
    return sum(there.get(one, {}).get("state") != "running" or not os.path.exists(f"/proc/{there[one]['init_pid']}") for one in ids)


def our_processes(b):
    """Live processes of the instance without the payloads' own: cayd, cay-spawn, keepers (and their starters), inits."""
    return [p for p in b.instance.own_processes() if name_of(p).startswith(("cay", "memfd:cay"))]


def beside(b, idle):
    """One sandbox more, beside those that do nothing: what it costs must not grow with them."""
    cycle = [CREATE, *execute(["true"]), REMOVE]
    server = next(p for p in b.instance.own_processes() if name_of(p) == "cayd")
    before = cpu_ns(server)
    result = b.api(1, b.count(200), cycle)
    spent = cpu_ns(server) - before
    return [row(f"beside {idle} idle sandboxes: {label}", "cay", result["steps"][label]["ns"], result["steps"][label]["errors"],
                server_cpu_ms_each=round(spent / 1e6 / b.count(200), 2)) for label in ("create", "exec", "remove")]


def memory(b):
    """Idle sandboxes kept: PSS of all our processes, and the fall of MemAvailable (which counts kernel memory too), per sandbox."""
    rows, ids, before = [], [], available_kib()
    for target in [n for n in (10, 100, 1000, 5000) if n <= b.idle]:
        while len(ids) < target:
            ids.append(b.instance.post("/v1/sandboxes", {})["id"])
        pids = our_processes(b)
        pss = sum(filter(None, map(pss_kib, pids)))
        per = [descriptors(p) for p in pids]
        rows.append(value("idle sandboxes", "cay", round(pss / target, 1), "KiB PSS each", n=target, errors=not_running(b, ids),
                          available_kib_each=round((before - available_kib()) / target, 1), processes_each=round(len(pids) / target, 2),
                          descriptors_each=round(sum(per) / target, 2)))
        rows += beside(b, target)
    for box in ids:
        b.instance.call("DELETE", f"/v1/sandboxes/{box}?force=true")
    return rows


def frozen(b):
    """Snapshot of a running sandbox in which 10,000 files changed since the last one: how long its processes stood still, and the whole call."""
    box = b.instance.post("/v1/sandboxes", {})["id"]
    script = "mkdir -p /w && cd /w && for d in $(seq 100); do mkdir -p $d; for f in $(seq 100); do echo $1 > $d/$f; done; done"
    still, whole = [], []
    for turn in range(b.count(3)):
        done = b.instance.cay("exec", box, "--", "sh", "-c", script, "sh", str(turn), timeout=60)
        assert done.returncode == 0
        start = time.monotonic_ns()
        snapshot = b.instance.post(f"/v1/sandboxes/{box}/snapshots", {})
        whole.append(time.monotonic_ns() - start)
        still.append(snapshot["frozen_us"] * 1000)
    b.instance.call("DELETE", f"/v1/sandboxes/{box}?force=true")
    how = snapshot.get("capture", "")
    return [row("snapshot with 10,000 changed files: frozen", "cay", still, capture=how), row("snapshot with 10,000 changed files: whole", "cay", whole, capture=how)]


def network(b):
    """The network of a sandbox from nothing: the kernel's namespace, and behind it loopback, addresses, routes, packet filter and listeners. Sandboxes take both from
    the pool, so a start does not pay for it."""
    found = helper([os.path.join(BUILD, "bench", "netbench"), str(b.count(300))])
    case = "network of a sandbox, from nothing"
    return [row(f"{case}: {what}", "cay", found[key], found["errors"])
            for what, key in (("the kernel's namespace", "namespace"), ("set up", "recipe"), ("both", "whole"), ("enter one that is there", "enter"))]


ALL = [run_warm, run_sustained, run_cold, http, create, create_paced, execs, forks, rate, memory, network, frozen, file_work]
