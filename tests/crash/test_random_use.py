# SPDX-License-Identifier: Apache-2.0
"""A client that does what chance would have it do, and knows what was acknowledged, while parts of ours are killed beside it: each sandbox is in the state that it must be in, with its files, its
running programs and what they have said; what was asked once is done once; nothing that was removed comes back, and nothing is left. A failure names the seed, which gives the same operations."""

import collections
import contextlib
import http.client
import io
import json
import os
import random
import re
import signal
import sys
import tarfile
import threading
import time

from lib import cay, leaks
from lib.case import equal, require
from lib.pace import patience

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint"))
from forking import rootless  # noqa: E402

TIMEOUT = 300
OPERATIONS = int(os.environ.get("CAY_TEST_ROUNDS", "40"))
BOXES, SNAPSHOTS = 4, 4
AT = "/var/tmp/m"
COUNTER = "t=0; echo 0; while read x; do t=$((t+x)); echo $t; done"
OFTEN = 2 * ["do_append", "do_count", "do_fork", "do_rewind", "do_snapshot", "do_suspend"]
KILLED = {"internal", "unavailable", "busy", "state", "timeout", "shutting_down", "not_found"}  # what an operation may say that something of ours was killed beside

# A sandbox as it must be: its state, {name: text} of its files, {exec: output} of its programs.
World = collections.namedtuple("World", "state files programs")


class Box:
    def __init__(self, made, *worlds):
        self.id, self.name = made["id"], made["name"]
        self.worlds = list(worlds)  # one of them; several while nobody has told which
        self.touched = False  # something of its own was killed

    def now(self):
        return self.worlds[0]

    def may_become(self, **changes):
        """Until the answer says that it has."""
        self.worlds.append(self.now()._replace(**changes))

    def has_become(self):
        self.worlds = self.worlds[-1:]


class Use:
    def __init__(self, instance, seed):
        self.instance, self.random, self.seed = instance, random.Random(seed), seed
        self.boxes, self.snapshots = [], {}  # of snapshots: the sandbox, and what it becomes from them
        self.asked, self.killed, self.done = 0, False, collections.Counter()

    # -- requests ---------------------------------------------------------------------------------------------------------------------

    def again(self):
        """There is a server: the next one, if this one has ended or is about to."""
        leaks.reap(but=self.instance.process.pid)
        with contextlib.suppress(OSError, EOFError, http.client.HTTPException):
            self.instance.get("/v1/version")
            return
        cay.wait_until(lambda: leaks.reap(but=self.instance.process.pid) or not self.instance.alive(), 60, "it takes no requests, and does not end")
        self.instance.start()

    def post(self, path, body=None):
        """With a key, as often as it takes."""
        self.asked += 1
        while True:
            try:
                return self.instance.post(path, body, headers={"Idempotency-Key": f"{self.seed}-{self.asked}"}, timeout=patience(120))
            except (OSError, EOFError, http.client.HTTPException):
                self.again()
            except cay.ApiError as error:
                if error.code != "shutting_down":
                    raise
                self.again()

    def get(self, path, parse=True):
        while True:
            try:
                status, _, answer = self.instance.raw("GET", path, timeout=patience(60))
            except (OSError, EOFError, http.client.HTTPException):
                self.again()
                continue
            if status < 400 or status == 404:
                return json.loads(answer) if parse else (answer if status < 400 else None)
            assert self.killed, f"{path}: {answer}"
            self.again()  # it was killed, and is about to be told so

    # -- what is there ----------------------------------------------------------------------------------------------------------------

    def files(self, box):
        archive = self.get(f"/v1/sandboxes/{box.id}/files?path={AT}&format=tar", parse=False)
        if archive is None:  # nobody has made the directory
            return {}
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            return {os.path.basename(m.name): tar.extractfile(m).read().decode() for m in tar if m.isfile()}

    def found(self, box):
        got = self.get(f"/v1/sandboxes/{box.id}")
        execs = [e["id"] for e in self.get(f"/v1/sandboxes/{box.id}/execs")["execs"] if e["state"] != "ended"]
        return World(got["state"], self.files(box), {e: self.get(f"/v1/sandboxes/{box.id}/execs/{e}/output", parse=False).decode() for e in execs})

    def may_be(self, box, world):
        if world in box.worlds:
            return True
        # it was lost, or is not yet known to be, and its files are what they were
        return box.touched and world.state in ("failed", "running", "stopped") and any(world.files == w.files for w in box.worlds)

    def look(self, box):
        seen = []

        def settled():
            leaks.reap(but=self.instance.process.pid)
            seen[:] = [self.found(box)]
            return self.may_be(box, seen[0]) and not (box.touched and seen[0].state == "running" and seen[0] not in box.worlds)
        try:
            cay.wait_until(settled, 20, "")
        except AssertionError:
            raise AssertionError(f"seed {self.seed}: {box.name} is {seen[0]}, and must be one of {box.worlds}{', or lost' if box.touched else ''}; killed: {self.killed}") from None
        box.worlds, box.touched = seen, False

    # -- operations -------------------------------------------------------------------------------------------------------------------

    def running(self, box):
        """Let it run, if it does not."""
        verb = {"suspended": "resume", "running": None}.get(box.now().state, "start")
        if verb:
            box.may_become(state="running")
            if verb == "start":
                self.instance.post(f"/v1/sandboxes/{box.id}/start", timeout=patience(60))
            else:
                self.post(f"/v1/sandboxes/{box.id}/resume")
            box.has_become()

    def do_create(self, _):
        if len(self.boxes) < BOXES:
            box = self.post("/v1/sandboxes", {})
            self.boxes.append(Box(box, World("running", {}, {})))
            self.post(f"/v1/sandboxes/{box['id']}/execs?wait_ms=60000", {"argv": ["/bin/mkdir", "-p", AT]})

    def do_append(self, box):
        self.running(box)
        word = f"{self.random.randrange(1000)}\n"
        box.may_become(files={**box.now().files, "a": box.now().files.get("a", "") + word})
        run = self.post(f"/v1/sandboxes/{box.id}/execs?wait_ms=60000", {"argv": ["/bin/sh", "-c", f"mkdir -p {AT}; echo {word.strip()} >> {AT}/a"]})
        while run["state"] != "ended":
            run = self.get(f"/v1/sandboxes/{box.id}/execs/{run['id']}?wait_ms=60000")
        if run["status"]["status"] == "exited":
            equal(run["status"]["code"], 0)
            box.has_become()

    def do_count(self, box):
        """Start a program that adds up what it reads, or have it add: the sum is in its memory alone."""
        self.running(box)
        now = box.now()
        if not now.programs:
            run, said, before = self.post(f"/v1/sandboxes/{box.id}/execs", {"argv": ["/bin/sh", "-c", COUNTER], "stdin": True})["id"], "0\n", ""
        else:
            (run, before), n = next(iter(now.programs.items())), self.random.randrange(1, 100)
            said = before + f"{int(before.split()[-1]) + n}\n"
        box.worlds += [now._replace(programs={run: out}) for out in (before, said)]
        if now.programs:
            status, _, answer = self.instance.raw("POST", f"/v1/sandboxes/{box.id}/execs/{run}/stdin", f"{n}\n".encode(), {"Content-Type": "application/octet-stream"})
            assert status == 204 or self.killed, answer
        cay.wait_until(lambda: self.get(f"/v1/sandboxes/{box.id}/execs/{run}/output", parse=False) == said.encode() or self.killed, 60, f"seed {self.seed}: {run} does not say {said!r}")
        if not self.killed:
            box.has_become()

    def do_snapshot(self, box):
        if len(self.snapshots) >= SNAPSHOTS:
            return self.do_remove_snapshot(box)
        body = {"name": f"s-{self.asked}"} if self.random.random() < 0.6 else {}
        if self.random.random() < 0.3:
            body["files_only"] = True
        now, alone = box.now(), body.get("files_only", False) or box.now().state not in ("running", "suspended")
        try:
            made = self.post(f"/v1/sandboxes/{box.id}/snapshots", body)["id"]
        except cay.ApiError as error:
            if "is sealed, but not durable" not in error.message:  # that one is there, and told so
                raise
            made = self.get(f"/v1/snapshots/{body['name']}")["id"]
            alone = alone or self.get(f"/v1/snapshots/{made}")["files_only"]
        self.snapshots[made] = (box.id, World("running", now.files, {} if alone else now.programs))
        return None

    def has_lost(self, s):
        """Programs that are not on disk yet may go with the server or their template."""
        box, world = self.snapshots[s]
        if world.programs and self.get(f"/v1/snapshots/{s}")["files_only"]:
            self.snapshots[s] = (box, world._replace(programs={}))
        return not self.snapshots[s][1].programs

    def do_fork(self, box):
        if len(self.boxes) < BOXES:
            now = box.now()
            made = self.post(f"/v1/sandboxes/{box.id}/fork", {})["sandboxes"][0]
            self.boxes.append(Box(made, World("running", now.files, now.programs)))

    def do_fork_snapshot(self, _):
        if len(self.boxes) < BOXES and self.snapshots:
            s = self.random.choice(list(self.snapshots))
            lost = self.has_lost(s)
            made = self.post(f"/v1/snapshots/{s}/fork", {"live": not lost})["sandboxes"][0]
            self.boxes.append(Box(made, self.snapshots[s][1]))

    def do_rewind(self, box):
        own = [s for s, (of, _) in self.snapshots.items() if of == box.id]
        if own:
            s = self.random.choice(own)
            lost, before = self.has_lost(s), box.now()
            world = self.snapshots[s][1]
            if lost and before.state not in ("running", "suspended"):
                world = world._replace(state=before.state)
            # its programs may end for what turns out to be lost
            box.worlds += [before._replace(state="stopped", programs={}), world._replace(programs={}), world]
            self.post(f"/v1/sandboxes/{box.id}/rewind", {"snapshot": s, "files_only": lost})
            box.has_become()

    def do_suspend(self, box):
        self.running(box)
        box.may_become(state="suspended")
        self.post(f"/v1/sandboxes/{box.id}/suspend")
        box.has_become()

    def do_stop(self, box):
        if box.now().state in ("running", "suspended"):
            box.may_become(state="stopped", programs={})
            self.instance.post(f"/v1/sandboxes/{box.id}/stop", timeout=patience(60))
            box.has_become()

    def gone(self, path):
        """Remove what may have been removed by what was cut."""
        while True:
            try:
                self.instance.call("DELETE", path, timeout=patience(60))
            except (OSError, EOFError, http.client.HTTPException):
                self.again()
            except cay.ApiError as error:
                if error.code == "not_found":
                    return
                assert self.killed, error
                self.again()

    def do_remove(self, box):
        self.gone(f"/v1/sandboxes/{box.id}?force=true")
        self.boxes.remove(box)

    def do_remove_snapshot(self, _):
        if self.snapshots:
            s = self.random.choice(list(self.snapshots))
            self.gone(f"/v1/snapshots/{s}")
            del self.snapshots[s]

    # -- violence ---------------------------------------------------------------------------------------------------------------------

    def box_of(self, pid):
        found = re.search(r"cay-keeper\0sandbox\0([a-z0-9]{20})", leaks.read(f"/proc/{pid}/cmdline")) or re.search(r"/cay-[0-9a-f]{8}/([a-z0-9]{20})", leaks.read(f"/proc/{pid}/cgroup"))
        return found and found[1]

    def kill_one(self, delay, draw):
        """kill -9 of the server, or of one of the other processes of ours, of a kind that is drawn first."""
        time.sleep(delay)
        kinds = collections.defaultdict(list)
        for pid, (_, state, comm) in leaks.processes().items():
            if comm.startswith(("cay-", "memfd:cay-")) and state != "Z" and leaks.cgroup_tags([pid]) & self.instance.tags:
                kinds[comm].append(pid)
        kinds["cay-spawn"] = self.instance.programs_named("cay-spawn")[:1]
        kinds["cayd"] = kinds["cayd again"] = [self.instance.process.pid]
        kind = sorted(kinds)[int(draw * len(kinds))]
        for pid in kinds[kind][int(draw * 997) % max(1, len(kinds[kind])):][:1]:
            for box in self.boxes:
                box.touched |= box.id == self.box_of(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    # -- all of it --------------------------------------------------------------------------------------------------------------------

    def step(self):
        box = self.random.choice(self.boxes) if self.boxes else None
        names = sorted(name for name in dir(self) if name.startswith("do_")) + OFTEN
        operation = self.random.choice(names) if len(self.boxes) > 1 else "do_create"
        deed = None
        self.killed = self.random.random() < 0.3
        if self.killed:
            deed = threading.Thread(target=self.kill_one, args=(self.random.choice((0, 0.003, 0.01, 0.03, 0.1)), self.random.random()))
            deed.start()
        try:
            getattr(self, operation)(box)
            self.done[operation] += 1
        except (OSError, EOFError, http.client.HTTPException):
            assert self.killed, f"seed {self.seed}: {operation}"
        except cay.ApiError as error:
            assert self.killed and error.code in KILLED, f"seed {self.seed}: {operation}: {error}"
        if deed:
            deed.join()
            self.again()
        for one in self.boxes if deed else [box] if box in self.boxes else []:
            self.look(one)

    def check(self):
        """Nothing that nobody has made, and nothing that nobody needs."""
        instance = self.instance
        instance.kill()
        instance.start()  # what a job that was killed has left goes with the next start
        boxes = {b["id"]: b for b in instance.get("/v1/sandboxes")["sandboxes"]}
        equal(sorted(boxes), sorted(b.id for b in self.boxes), f"seed {self.seed}")
        snapshots = instance.get("/v1/snapshots")["snapshots"]
        equal(sorted(s["id"] for s in snapshots if not s.get("for_fork")), sorted(self.snapshots), f"seed {self.seed}")
        assert instance.get("/v1/events/verify")["ok"], f"seed {self.seed}"
        instance.post("/v1/prune", {}, timeout=patience(60))

        def needed():
            """What is in the pool, and what should be."""
            documents = instance.get("/v1/sandboxes")["sandboxes"] + instance.get("/v1/snapshots")["snapshots"]
            want = {"layers": {i for d in documents for i in d.get("layers") or ()}, "memory": {d["memory"]["id"] for d in documents if d.get("memory")}, "tmp": set(), "trash": set()}
            there = {name: set(os.listdir(path)) if os.path.isdir(path := os.path.join(instance.state, "pool", name)) else set() for name in want}
            return want, there

        def tidy():
            want, there = needed()
            return want == there
        try:
            cay.wait_until(tidy, 30, "")
        except AssertionError:
            raise AssertionError(f"seed {self.seed}: (needed, there) {needed()}") from None


def use(instance, operations):
    seed = int(os.environ.get("CAY_TEST_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    one = Use(instance, seed)
    for _ in range(operations):
        one.step()
    one.check()
    print(dict(sorted(one.done.items())))


@require("root", "cgroup2")
def test_random_use(fresh):
    use(fresh, OPERATIONS)


@require("root", "userns", "newuidmap")
def test_random_use_rootless(tmp):
    with rootless(tmp) as instance:
        use(instance, OPERATIONS // 2)
