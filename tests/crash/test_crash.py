# SPDX-License-Identifier: Apache-2.0
"""Contract DATA: kill -9 of any of our processes, at every named fault point and from outside. What was acknowledged is there
afterwards, nothing is half done, running sandboxes are taken over, nothing leaks.

One scenario passes every point (create, exec, snapshot, fork, rewind, apply, rm). It is run once for each point and hit, with
CAY_FAULT killing whichever process gets there. When a step fails, cayd is started again without the fault, the promises are
checked, and the scenario goes on from that step.
"""

import os
import signal
import sys

from lib import cay, leaks
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance, passed  # noqa: E402

TIMEOUT = 180

# Every fault("...") of the source; make lint compares.
POINTS = [
    "catalogue.commit.before",
    "catalogue.get.before",
    "catalogue.put.before",
    "cayd.catalogue.made",
    "events.flush.before",
    "exec.ask.sent",
    "exec.create.committed",
    "exec.end.before",
    "exec.end.committed",
    "keeper.launch.found",
    "keeper.start.mounted",
    "live.take.held",
    "outfile.run_written",
    "rewind.commit.after",
    "rewind.commit.before",
    "rewind.discard.before",
    "rewind.halt.before",
    "sandbox.create.before_commit",
    "sandbox.create.committed",
    "sandbox.fork.committed",
    "sandbox.remove.before_commit",
    "sandbox.remove.committed",
    "sandbox.remove.marked",
    "sandbox.stop.before",
    "sandbox.stop.committed",
    "seed.cloned",
    "snapshot.commit.after",
    "snapshot.commit.before",
    "snapshot.durable.before",
    "snapshot.durable.committed",
    "snapshot.remove.committed",
    "snapshot.verify.before",
    "snapshot.verify.committed",
    "store.apply.done",
    "store.apply.journal",
    "store.apply.made",
    "store.apply.over",
    "store.apply.staged",
    "store.apply.step",
    "store.apply.synced",
    "store.apply.written",
    "store.capture.begun",
    "store.capture.filled",
    "store.capture.frozen",
    "store.capture.going_on",
    "store.commit.after_rename",
    "store.commit.before_rename",
    "store.commit.manifest",
    "store.copy.looked",
    "store.disk.filled",
    "store.layer.arranged",
    "store.recover.begun",
    "store.remove.renamed",
    "store.seal.taken",
    "store.storage.locked",
    "store.sync.done",
]
# Kill at these hits of a point, counted over all processes. What every step passes is killed in many steps; what the scenario passes less often than
# three times is here with how often.
HITS = (1, 2, 3)
MANY = {
    "catalogue.commit.before": (1, 2, 3, 5, 8, 11, 14),
    "catalogue.put.before": (1, 2, 4, 7, 11, 16, 22),
    "events.flush.before": (1, 3, 6, 10, 15),
    # of a sandbox that runs, of a sealed one, of one with a disk, of an apply
    "store.commit.after_rename": (1, 2, 3, 4),
    "store.commit.before_rename": (1, 2, 3, 4),
    "store.commit.manifest": (1, 2, 3, 4),
}
FEW = {
    "cayd.catalogue.made": 1,
    "outfile.run_written": 1,
    "rewind.commit.after": 2,
    "rewind.commit.before": 2,
    "rewind.discard.before": 2,
    "rewind.halt.before": 2,
    "sandbox.fork.committed": 1,
    "snapshot.verify.before": 1,
    "snapshot.verify.committed": 1,
    "store.apply.done": 1,
    "store.apply.journal": 1,
    "store.apply.made": 2,
    "store.apply.over": 1,
    "store.apply.staged": 1,
    "store.apply.step": 2,
    "store.apply.synced": 1,
    "store.apply.written": 2,
    "store.capture.going_on": 2,
    "store.disk.filled": 2,
    "store.recover.begun": 1,
    "store.remove.renamed": 1,
    "store.seal.taken": 1,
    "store.storage.locked": 1,
}


def hits(point):
    return MANY.get(point, HITS[:FEW.get(point, len(HITS))])


class Scenario:
    """The steps, what was acknowledged so far, and the promises."""

    def __init__(self, instance, tmp, killed=lambda: False):
        self.box, self.killed = instance, killed
        self.project = os.path.join(tmp, "project")
        os.mkdir(self.project)
        self.write_host("a", "one\n")
        self.acknowledged = {}
        self.crashed = False
        self.steps = [self.create, self.exec, self.snapshot, self.change, self.fork, self.seal, self.rewind, self.disk, self.edit,
                      self.apply, self.remove]

    def write_host(self, name, text):
        with open(os.path.join(self.project, name), "w", encoding="utf-8") as f:
            f.write(text)

    def host(self):
        found = {}
        for name in sorted(os.listdir(self.project)):
            with open(os.path.join(self.project, name), encoding="utf-8") as f:
                found[name] = f.read()
        return found

    # -- steps; each may be repeated after a crash ---------------------------------------------------------------------------------

    def create(self):
        body = {"name": "first", "mounts": [{"source": self.project, "target": "/p", "mode": "cow"}]}
        # A crash between the commit and the answer leaves the sandbox: it is found by its name, as a caller would.
        if any(s["name"] == "first" for s in self.box.get("/v1/sandboxes")["sandboxes"]):
            self.ensure_running("first")
        else:
            self.box.post("/v1/sandboxes", body)
        self.acknowledged["first"] = True

    def exec(self):
        self.ensure_running("first")
        self.box.ok("first", "echo kept > /var/tmp/kept; sync /var/tmp/kept")
        self.acknowledged["kept"] = True

    def snapshot(self):
        if not any(s["name"] == "snap" for s in self.box.get("/v1/snapshots")["snapshots"]):
            self.box.post("/v1/sandboxes/first/snapshots", {"name": "snap", "files_only": True})
        equal(self.box.post("/v1/snapshots/snap/verify")["state"], "verified")
        self.acknowledged["snap"] = True

    def change(self):
        self.acknowledged["kept"] = False  # from here on it may be either
        self.ensure_running("first")
        self.box.ok("first", "echo changed > /var/tmp/kept")

    def fork(self):
        names = [s["name"] for s in self.box.get("/v1/sandboxes")["sandboxes"]]
        if "second" not in names:
            self.box.post("/v1/snapshots/snap/fork", {"name": "second"})
        self.ensure_running("second")
        equal(self.box.ok("second", "cat /var/tmp/kept"), "kept\n")
        self.acknowledged["second"] = True

    def seal(self):
        """A snapshot of a stopped sandbox takes its files by rename."""
        if self.box.get("/v1/sandboxes/second")["state"] == "running":
            self.box.ok("second", "echo sealed > /var/tmp/sealed")
            self.box.post("/v1/sandboxes/second/stop")
        if not any(s["name"] == "sealed" for s in self.box.get("/v1/snapshots")["snapshots"]):
            self.box.post("/v1/sandboxes/second/snapshots", {"name": "sealed", "files_only": True})
        self.ensure_running("second")
        equal(self.box.ok("second", "cat /var/tmp/sealed /var/tmp/kept"), "sealed\nkept\n")

    def rewind(self):
        self.box.post("/v1/sandboxes/first/rewind", {"snapshot": "snap"})
        self.ensure_running("first")
        equal(self.box.ok("first", "cat /var/tmp/kept"), "kept\n")
        self.acknowledged["kept"] = True

    def disk(self):
        """A sandbox with a limit of inodes has a disk of its own."""
        if not any(s["name"] == "third" for s in self.box.get("/v1/sandboxes")["sandboxes"]):
            self.box.post("/v1/sandboxes", {"name": "third", "limits": {"inodes": 100, "disk_bytes": 4 << 20}})
        self.ensure_running("third")
        self.box.ok("third", "echo disk > /var/tmp/disk; sync /var/tmp/disk")
        if not any(s["name"] == "disk" for s in self.box.get("/v1/snapshots")["snapshots"]):
            self.box.post("/v1/sandboxes/third/snapshots", {"name": "disk", "files_only": True})
        self.acknowledged["third"] = True
        self.box.post("/v1/sandboxes/third/rewind", {"snapshot": "disk"})
        self.ensure_running("third")
        equal(self.box.ok("third", "cat /var/tmp/disk"), "disk\n")

    def edit(self):
        self.ensure_running("first")
        self.box.ok("first", "echo two > /p/a; echo new > /p/b")
        self.acknowledged["edited"] = True

    def apply(self):
        if self.host() != {"a": "two\n", "b": "new\n"}:
            self.box.post("/v1/sandboxes/first/apply", {})
        equal(self.host(), {"a": "two\n", "b": "new\n"})
        self.acknowledged["applied"] = True

    def remove(self):
        for name in ("first", "second", "third"):
            self.acknowledged.pop(name, None)
            if any(s["name"] == name for s in self.box.get("/v1/sandboxes")["sandboxes"]):
                self.box.remove(name)
        for name in ("snap", "sealed", "disk"):
            self.acknowledged.pop(name, None)
            if any(s["name"] == name for s in self.box.get("/v1/snapshots")["snapshots"]):
                self.box.call("DELETE", f"/v1/snapshots/{name}")
        self.acknowledged = {"edited": True}

    def ensure_running(self, name):
        if self.box.get(f"/v1/sandboxes/{name}")["state"] != "running":
            self.box.post(f"/v1/sandboxes/{name}/start")

    # -- promises --------------------------------------------------------------------------------------------------------------------

    def check(self):
        """What must hold after every crash and restart."""
        listed = {s["name"]: s for s in self.box.get("/v1/sandboxes")["sandboxes"]}
        for name in ("first", "second", "third"):
            if self.acknowledged.get(name):
                assert name in listed, f"{name} was acknowledged and is gone"
        for name, sandbox in listed.items():
            assert sandbox["state"] in ("running", "stopped", "failed"), f"{name} is {sandbox['state']} after a restart"
            if sandbox["state"] == "running":
                equal(self.box.ok(name, "echo alive"), "alive\n")
        snapshots = {s["name"]: s for s in self.box.get("/v1/snapshots")["snapshots"]}
        if self.acknowledged.get("snap"):
            assert "snap" in snapshots, "the snapshot was acknowledged and is gone"
        if "snap" in snapshots:
            equal(self.box.post("/v1/snapshots/snap/verify")["state"], "verified")
        if self.acknowledged.get("kept") and listed.get("first", {}).get("state") == "running":
            equal(self.box.ok("first", "cat /var/tmp/kept"), "kept\n")
        if "edited" not in self.acknowledged:
            equal(self.host(), {"a": "one\n"}, "the host changed")
        else:
            assert self.host() in ({"a": "one\n"}, {"a": "two\n", "b": "new\n"}), f"half applied: {self.host()}"
        for name in listed:
            report = self.box.get(f"/v1/sandboxes/{name}/events/verify")
            assert report["ok"], f"the chain of events of {name} is broken: {report}"

    def run(self):
        """All steps; a step that fails while the fault is armed is repeated after a restart without it."""
        for step in self.steps:
            try:
                step()
            except (cay.ApiError, OSError, EOFError, AssertionError, ValueError) as error:
                if self.crashed or not self.killed():
                    raise
                self.crashed = True
                print(f"{step.__name__} failed as it may: {type(error).__name__}: {str(error)[:300]}", flush=True)
                self.restart()
                self.check()
                step()

    def restart(self):
        """A new cayd without the fault; the old one is ended if the fault killed another process."""
        if self.box.alive():
            self.box.kill()
        self.box.process.wait(30)
        self.box.start()


def crash(point, hit, tmp, instance):
    """Run the scenario with a kill at one hit of one point."""
    log = cay.fault_log(tmp)

    def killed():
        return f"!{point}" in leaks.read(log).split()
    try:
        instance.start(CAY_FAULT=f"{point}:{hit}", CAY_FAULT_LOG=log)
    except (RuntimeError, OSError):  # the start itself passes the point: the next one must do
        if not killed():
            raise
        instance.process.wait(30)
        instance.start()
    scenario = Scenario(instance, tmp, killed)
    scenario.run()
    scenario.check()
    assert killed(), f"nothing was killed: the scenario passes {point} less than {hit} times"


def make_case(point, hit):
    def case(tmp):
        with own_instance(tmp) as instance:
            crash(point, hit, tmp, instance)
    case.__name__ = f"test_kill_at_{point.replace('.', '_')}_{hit}"
    return require("root")(case)


@require("root")
def test_the_scenario_passes_every_point(tmp):
    """Without this a point that nothing reaches would count as survived."""
    def use(instance):
        scenario = Scenario(instance, tmp)
        scenario.run()
        assert not scenario.crashed
    seen = passed(tmp, use)
    print(seen)
    equal(sorted(set(POINTS) - set(seen)), [], "points that the scenario never reaches")
    equal(sorted(set(seen) - set(POINTS)), [], "points that no case kills at")
    equal({point: n for point, n in seen.items() if n < max(hits(point))}, {}, "points that it passes less often than a case needs")


for _point in POINTS:
    for _hit in hits(_point):
        _case = make_case(_point, _hit)
        globals()[_case.__name__] = _case


def test_a_new_cayd_takes_running_sandboxes_over(fresh):
    with fresh.sandbox(name="stays") as box:
        run = fresh.exec(box, "sh", "-c", "echo before; read line; echo after $line", stdin=True)
        fresh.ok(box, "echo x > /tmp/x")
        before = fresh.get(f"/v1/sandboxes/{box}")
        fresh.kill()
        assert os.path.exists(f"/proc/{before['init_pid']}"), "the sandbox died with cayd"
        fresh.start()
        after = fresh.get(f"/v1/sandboxes/{box}")
        equal((after["state"], after["init_pid"]), ("running", before["init_pid"]))
        equal(fresh.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        stream = fresh.attach(box, run)
        stream.send(cay.STDIN, b"line\n")
        out, _, status = stream.collect()
        equal((out, status["code"]), (b"before\nafter line\n", 0))
        equal(fresh.ok(box, "cat /tmp/x"), "x\n")
        assert fresh.get(f"/v1/sandboxes/{box}/events/verify")["ok"]


def test_what_ended_while_cayd_was_away_has_its_true_status(fresh):
    with fresh.sandbox() as box:
        codes = (0, 3, 9)
        runs = [fresh.exec(box, "sh", "-c", f"read line; echo out; exit {code}", stdin=True) for code in codes]
        keepers_pid = fresh.get(f"/v1/sandboxes/{box}")["init_pid"]
        streams = [fresh.attach(box, run) for run in runs]
        for stream in streams:
            stream.send(cay.STDIN, b"go\n")
            stream.until(cay.STATUS)
        fresh.kill()
        assert os.path.exists(f"/proc/{keepers_pid}")
        fresh.start()
        for run, code in zip(runs, codes):
            equal(fresh.wait(box, run)["code"], code)
            equal(fresh.output(box, run), b"out\n")


def test_a_keeper_that_dies_takes_its_sandbox_along_and_no_other(fresh):
    with fresh.sandbox() as one, fresh.sandbox() as other:
        run = fresh.exec(one, "sleep", "1000")
        init = fresh.get(f"/v1/sandboxes/{one}")["init_pid"]
        fresh.ok(one, "echo x > /var/tmp/x")
        keeper = leaks.processes()[init][0]
        contains(leaks.read(f"/proc/{keeper}/cmdline"), "cay-keeper")
        os.kill(keeper, signal.SIGKILL)
        status = fresh.wait(one, run)
        equal(status["status"], "lost")
        assert "code" not in status, status
        assert fresh.get(f"/v1/sandboxes/{one}")["state"] in ("stopped", "failed")
        cay.wait_until(lambda: not os.path.exists(f"/proc/{init}"), 10, "the init of a sandbox without keeper is gone")
        equal(fresh.ok(other, "echo alive"), "alive\n")
        fresh.post(f"/v1/sandboxes/{one}/start")
        equal(fresh.ok(one, "cat /var/tmp/x"), "x\n")


def test_many_restarts(fresh):
    with fresh.sandbox() as box:
        for number in range(5):
            fresh.ok(box, f"echo {number} >> /tmp/log")
            fresh.kill()
            fresh.start()
        equal(fresh.ok(box, "cat /tmp/log").split(), ["0", "1", "2", "3", "4"])


def test_a_second_cayd_is_refused(fresh):
    done = fresh.popen([os.path.join(fresh.programs, "cayd"), "--foreground"], stdin=-3, stdout=-1, stderr=-1)
    out, err = done.communicate(timeout=30)
    assert done.returncode != 0, (out, err)
    assert fresh.get("/v1/version")["pid"] == fresh.process.pid


@require("root")
def test_what_could_not_be_made_is_not_there(tmp):
    """A sandbox that is not to run: where its last write fails, asking again does not find its name taken."""
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {"start": False})["id"]
        snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        for path in ("/v1/sandboxes", f"/v1/snapshots/{snapshot}/fork"):
            instance.stop()
            instance.start(CAY_FAULT="sandbox.leave.before" + "=error")
            body = {"name": "once", "start": False}
            raises(cay.ApiError, instance.post, path, body)
            equal([b["id"] for b in instance.get("/v1/sandboxes")["sandboxes"] if b["name"] == "once"], [], path)
            instance.post(path, body)
            instance.remove("once")
        instance.stop()
        instance.start()
