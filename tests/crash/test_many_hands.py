# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, each with its own idea of the same few sandboxes: every request ends, with success or with an error that says whose turn it was,
and the server never fails. Which operations follow each other is drawn from a seed, which a failure names."""

import os
import random
import threading
import time

from lib.cay import ApiError
from lib.case import equal, require
from lib.pace import patience

TIMEOUT = 300

# what a client may be told when another was faster; the rest is a fault of ours
EXPECTED = {"not_found", "busy", "state", "exists", "conflict", "limit", "disk_full", "unavailable"}
OTHERS = {("do_rewind", "invalid")}  # the snapshot is of an earlier sandbox of that name
BOXES, SNAPSHOTS = 5, 6
PROGRAM = "i=0; while :; do i=$((i+1)); echo $i > /var/tmp/n; echo $i; sleep 0.05; done"


class Client:
    """One of them: draws operations until the time is over."""

    def __init__(self, instance, seed, until):
        self.instance, self.random, self.until = instance, random.Random(seed), until
        self.done, self.faults = {}, []
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        operations = [getattr(self, name) for name in sorted(dir(self)) if name.startswith("do_")]
        while time.monotonic() < self.until and not self.faults:
            operation = self.random.choice(operations)
            try:
                operation()
                self.done[operation.__name__] = self.done.get(operation.__name__, 0) + 1
            except ApiError as error:
                if error.code not in EXPECTED and (operation.__name__, error.code) not in OTHERS:
                    self.faults.append(f"{operation.__name__}: {error}")
            except Exception as error:  # pylint: disable=broad-except
                self.faults.append(f"{operation.__name__}: {error!r}")

    def box(self):
        return f"box-{self.random.randrange(BOXES)}"

    def snapshot(self):
        return f"snap-{self.random.randrange(SNAPSHOTS)}"

    def post(self, path, body=None):
        return self.instance.post(path, body, timeout=patience(120))

    def do_create(self):
        self.post("/v1/sandboxes", {"name": self.box(), **self.random.choice([{}, {}, {"checkpoint": "each-exec"}, {"idle_ms": 300}])})

    def do_remove(self):
        self.instance.call("DELETE", f"/v1/sandboxes/{self.box()}?force=true", timeout=patience(120))

    def do_exec(self):
        self.post(f"/v1/sandboxes/{self.box()}/execs", {"argv": ["/bin/sh", "-c", PROGRAM]})

    def do_exec_to_its_end(self):
        self.post(f"/v1/sandboxes/{self.box()}/execs?wait_ms=60000", {"argv": ["/bin/echo", "hello"]})

    def do_attach(self):
        box = self.box()
        execs = self.instance.get(f"/v1/sandboxes/{box}/execs")["execs"]
        if execs:
            frames = self.instance.attach(box, self.random.choice(execs)["id"])
            frames.next(patience(60))
            frames.close()

    def do_run(self):
        frames = self.instance.run_stream(["/bin/sh", "-c", "echo x > /var/tmp/x"], rm=self.random.random() < 0.5)
        if self.random.random() < 0.5:
            frames.collect()
        frames.close()

    def do_snapshot(self):
        self.post(f"/v1/sandboxes/{self.box()}/snapshots", {"name": self.snapshot(), "files_only": self.random.random() < 0.3})

    def do_snapshot_remove(self):
        self.instance.call("DELETE", f"/v1/snapshots/{self.snapshot()}", timeout=patience(120))

    def do_verify(self):
        self.post(f"/v1/snapshots/{self.snapshot()}/verify")

    def do_fork(self):
        for fork in self.post(f"/v1/sandboxes/{self.box()}/fork", {"count": self.random.randrange(1, 3)})["sandboxes"]:
            self.instance.remove(fork["id"])

    def do_fork_of_snapshot(self):
        for fork in self.post(f"/v1/snapshots/{self.snapshot()}/fork", {})["sandboxes"]:
            self.instance.remove(fork["id"])

    def do_rewind(self):
        self.post(f"/v1/sandboxes/{self.box()}/rewind", {"snapshot": self.snapshot()})

    def do_suspend(self):
        self.post(f"/v1/sandboxes/{self.box()}/suspend")

    def do_resume(self):
        self.post(f"/v1/sandboxes/{self.box()}/resume")

    def do_pause(self):
        self.post(f"/v1/sandboxes/{self.box()}/pause")

    def do_stop(self):
        self.post(f"/v1/sandboxes/{self.box()}/stop")

    def do_start(self):
        self.post(f"/v1/sandboxes/{self.box()}/start")

    def do_diff(self):
        self.instance.get(f"/v1/diff?a={self.box()}", timeout=patience(120))

    def do_look(self):
        for what in ("usage", "doctor", "events", "mails"):
            self.instance.raw("GET", f"/v1/sandboxes/{self.box()}/{what}", timeout=patience(60))
        self.instance.get("/v1/snapshots")

    def do_policy(self):
        self.instance.call("PUT", f"/v1/sandboxes/{self.box()}/policy", {"policy": "version: 1\nrules:\n  - {match: {host: 127.0.0.9}, action: allow}\n"}, timeout=patience(60))


@require("root", "cgroup2")
def test_many_hands(fresh):
    seconds = int(os.environ.get("CAY_TEST_SECONDS", "15"))
    seed = int(os.environ.get("CAY_TEST_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    clients = [Client(fresh, seed + n, time.monotonic() + seconds) for n in range(8)]
    for client in clients:
        client.thread.join()
    equal([f"seed {seed}: {fault}" for client in clients for fault in client.faults], [])
    done = {name for client in clients for name in client.done}
    print({name: sum(client.done.get(name, 0) for client in clients) for name in sorted(done)})
    assert {"do_create", "do_exec", "do_snapshot", "do_fork"} <= done, f"seed {seed}: only {done}"
