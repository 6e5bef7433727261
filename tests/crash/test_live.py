# SPDX-License-Identifier: Apache-2.0
"""Contracts FORK and DATA: kill -9 of keeper, dumper, template, parent of a fork, opener, restored process and cayd at every named fault point of a live snapshot, a live
fork and a rewind to a live snapshot. The source runs on as it was, or it is lost and says so; what was acknowledged is there; what was not is not, or is whole; nothing is left.

The program under test is two processes and a thread that share one number: an answer that is right says that all of it is there and in step.
"""

import http.client
import json
import os
import sys

from lib import cay
from lib.case import contains, equal, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "checkpoint")]
from forking import ask, wait_output  # noqa: E402
from points import own_instance, passed  # noqa: E402

TIMEOUT = 180
NEEDS = ("root", "cgroup2")

# Points that a process passes which can still write to the log of points.
LOGGED = [
    "live.capture.begun",
    "live.capture.freeze",
    "live.capture.frozen",
    "live.capture.looked",
    "live.capture.released",
    "live.capture.stopped",
    "live.dump.copied",
    "live.dump.hang.looked",
    "live.dump.hang.prepare",
    "live.dump.hang.stop",
    "live.dump.hang.twins",
    "live.dump.image",
    "live.dump.looked",
    "live.dump.plan",
    "live.dump.released_one",
    "live.dump.seized",
    "live.dump.twins",
    "live.restore.after",
    "live.restore.before",
    "live.restore.begun",
    "live.restore.complete",
    "live.restore.running",
    "live.take.captured",
    "live.take.held",
    "live.take.released",
    "live.take.template",
    "live.template.filled",
    "live.template.filling",
    "live.template.forking",
    "live.template.same",
]
# Inside the sandbox: that they are passed shows by what a kill there does.
INSIDE = [
    "live.fork.cloned",
    "live.fork.entered",
    "live.fork.going",
    "live.fork.left",
    "live.fork.opened",
    "live.fork.tids",
    "live.opener.begun",
    "live.process.confined",
    "live.process.made",
]
# What is said of whom, without waiting for it until a limit is over.
SAYS = {
    "live.fork.tids": "choose a process id: No such process",
    "live.process.confined": "it was killed before it had been restored",
    "live.process.made": "it was killed before it had been restored",
}
# Of any snapshot and rewind, with processes this time.
ALSO = ["snapshot.commit.before", "snapshot.commit.after", "snapshot.durable.before", "rewind.commit.before", "rewind.commit.after"]
OF_CAYD = ("live.take.", "live.restore.before", "live.restore.after", "snapshot.", "rewind.")
# After these the source is lost: its registers may have been changed. (That of the rewind is stopped on purpose.)
LOSES = {"live.dump.hang.looked", "live.dump.hang.twins", "live.dump.looked", "live.dump.twins", "live.dump.released_one", "live.capture.begun", "live.capture.freeze", "live.capture.frozen",
         "live.capture.looked", "live.capture.released", "live.capture.stopped"}

COUNTER = """
import os, sys, threading
down, up = os.pipe(), os.pipe()
if os.fork() == 0:
    total = 0
    while True:
        total += int.from_bytes(os.read(down[0], 8), "little")
        os.write(up[1], total.to_bytes(8, "little"))
box, lock = [0], threading.Condition()
def work():
    while True:
        with lock:
            while box[0] == 0: lock.wait()
            os.write(down[1], box[0].to_bytes(8, "little"))
            box[0] = 0
            lock.notify_all()
threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    with lock:
        box[0] = int(line)
        lock.notify_all()
    print(int.from_bytes(os.read(up[0], 8), "little"), flush=True)
"""


class Scenario:
    """The steps with what was acknowledged so far: {sandbox: number that its program holds}."""

    def __init__(self, instance):
        self.box, self.run = instance, None
        self.holds, self.snapshots = {}, []
        self.unsure = None

    def start(self, name):
        self.box.post("/v1/sandboxes", {"name": name})
        self.box.ok(name, f"cat > /tmp/counter.py <<'END'\n{COUNTER}\nEND")
        self.run = self.box.exec(name, "/usr/bin/python3", "/tmp/counter.py", stdin=True)
        wait_output(self.box, name, self.run, b"ready\n")
        self.holds[name] = 0
        self.add(name, 5)

    def add(self, name, n):
        self.unsure = name
        equal(ask(self.box, name, self.run, str(n), b"\n"), f"{self.holds[name] + n}\n")
        self.holds[name] += n
        self.unsure = None

    def all(self, prefix=""):
        source, warm = prefix + "source", prefix + "warm"
        self.start(source)
        self.box.post(f"/v1/sandboxes/{source}/snapshots", {"name": warm, "files_only": False})
        self.snapshots.append(warm)
        at = self.holds[source]
        self.add(source, 7)
        self.box.post(f"/v1/snapshots/{warm}/fork", {"name": prefix + "one", "live": True})
        self.holds[prefix + "one"] = at
        self.add(prefix + "one", 11)
        self.box.post(f"/v1/sandboxes/{source}/fork", {"name": prefix + "two", "live": True})
        self.holds[prefix + "two"] = self.holds[source]
        self.add(prefix + "two", 13)
        before = self.holds.pop(source)
        self.box.post(f"/v1/sandboxes/{source}/rewind", {"snapshot": warm})
        assert before != at
        self.holds[source] = at
        self.add(source, 17)

    # -- promises --------------------------------------------------------------------------------------------------------------------

    def answers(self, name):
        """Does its program answer? Then rightly. Else it must have been lost, and say why."""
        try:
            said = int(ask(self.box, name, self.run, "1", b"\n"))
        except (AssertionError, cay.ApiError, http.client.HTTPException) as error:  # also an answer that ends in the middle, with the keeper
            ended = self.box.get(f"/v1/sandboxes/{name}/execs/{self.run['id']}?wait_ms=20000", timeout=40)
            assert ended["state"] == "ended", (name, error, ended)
            status = ended["status"]
            assert status["status"] in ("lost", "killed"), (name, error, status)
            assert "code" not in status and "signal" not in status and status["evidence"]["reason"], status
            cay.wait_until(lambda: self.box.get(f"/v1/sandboxes/{name}")["state"] in ("failed", "stopped"), 20, f"{name} is lost but runs")
            return False
        equal(said, self.holds.get(name, said - 1) + 1, f"{name} is silently wrong")
        self.holds[name] = said
        return True

    def check(self, source):
        """What holds after a crash. Gives the sandboxes whose program runs."""
        listed = {s["name"]: s["state"] for s in self.box.get("/v1/sandboxes")["sandboxes"]}
        assert set(self.holds) <= set(listed), f"acknowledged, but gone: {set(self.holds) - set(listed)}"
        alive = set()
        for name, state in listed.items():
            assert state in ("running", "stopped", "failed"), (name, state)
            if state == "running" and self.answers(name):
                alive.add(name)
            assert self.box.get(f"/v1/sandboxes/{name}/events/verify")["ok"], f"the chain of events of {name} is broken"
        for name in self.holds:
            assert name in alive or name == source, f"{name} had nothing to do with it and is gone"
        taken = {s["name"]: s for s in self.box.get("/v1/snapshots")["snapshots"]}
        for name in self.snapshots:
            equal(self.box.post(f"/v1/snapshots/{name}/verify")["state"], "verified")
            assert name in taken
        return alive


def crash(point, instance):
    instance.start(CAY_FAULT=point)
    scenario = Scenario(instance)
    try:
        scenario.all()
    except (cay.ApiError, OSError, EOFError, AssertionError, ValueError) as error:
        print(f"failed as it must: {type(error).__name__}: {str(error)[:300]}", flush=True)
        contains(str(error), SAYS.get(point, ""))
    else:
        raise AssertionError(f"nobody was killed at {point}")
    assert scenario.unsure is None, f"{scenario.unsure} did not answer"
    if point.startswith(OF_CAYD):
        instance.process.wait(30)
    else:
        alive = scenario.check("source")
        if point in LOSES or point.startswith("live.dump"):
            equal("source" in alive, point not in LOSES)
        instance.kill()
    instance.start()
    scenario.check("source")
    for name, state in ((s["name"], s["state"]) for s in instance.get("/v1/sandboxes")["sandboxes"]):
        if state != "running":
            instance.post(f"/v1/sandboxes/{name}/start")
            contains(instance.ok(name, "cat /tmp/counter.py"), "import os")
    Scenario(instance).all("again-")


def make_case(point):
    def case(tmp):
        with own_instance(tmp) as instance:
            crash(point, instance)
    case.__name__ = f"test_kill_at_{point.replace('.', '_')}"
    return require(*NEEDS)(case)


@require(*NEEDS)
def test_the_scenario_passes_every_point(tmp):
    seen = {point: n for point, n in passed(tmp, lambda instance: Scenario(instance).all()).items() if point.startswith("live.")}
    print(json.dumps(seen))
    equal(sorted(set(LOGGED) - set(seen)), [], "points that the scenario never reaches")
    equal(sorted(set(seen) - set(LOGGED) - set(INSIDE)), [], "points that no case kills at")


for _point in LOGGED + INSIDE + ALSO:
    _case = make_case(_point)
    globals()[_case.__name__] = _case
