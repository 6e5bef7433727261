# SPDX-License-Identifier: Apache-2.0
"""What each of many clients does: one random operation after the other on the same few sandboxes, snapshots, images and secrets."""

import collections
import contextlib
import http.client
import io
import json
import os
import random
import signal
import sys
import tarfile
import threading
import time

from lib import leaks
from lib.cay import STDOUT, ApiError, UnixConnection
from lib.pace import patience

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stops import stopped  # noqa: E402

# what a client may be told when another was faster, or when somebody has killed what it spoke with; the rest is a fault of ours
EXPECTED = {"not_found", "busy", "state", "exists", "conflict", "limit", "disk_full", "unavailable", "shutting_down",
            "command_not_found"}  # in an image of one file
OTHERS = {
    ("do_look", "ambiguous"),  # events of a name that several removed ones had
    ("do_rewind", "invalid"),  # the snapshot is of an earlier sandbox of that name
    ("do_rewind_to_a_step", "invalid"),
    ("do_apply", "check_failed"),  # the fork that the check ran in was killed
    ("do_apply", "invalid"),  # that one has no cow mount
    ("do_diff_of_two", "invalid"),  # of different images or mounts
}
ENDED = ("has ended", "Broken pipe", "Connection reset")  # what an answer says of a keeper, gateway, template or job that was killed
CUT = (EOFError, http.client.IncompleteRead)  # how a stream ends that a killed keeper fed: never like a whole one
OFTEN = ["do_create", "do_exec", "do_snapshot", "do_fork"]  # without these little else has an effect
BOXES, SNAPSHOTS, IMAGES, SECRETS = 5, 6, 2, 2
COUNT = "i=0; while :; do i=$((i+1)); echo $i > /var/tmp/n; echo $i; sleep 0.05; done"
KINDS = [{}, {}, {"checkpoint": "each-exec"}, {"idle_ms": 300}, {"policy": "version: 1\n"}]


def policy(secrets=()):
    """One that allows a little and binds @secrets."""
    bound = "".join(f"  - {{name: {name}, hosts: [api.example], in: [{{header: authorization}}]}}\n" for name in secrets)
    return "version: 1\nrules:\n  - {match: {host: 127.0.0.9}, action: allow}\n" + ("secrets:\n" + bound if bound else "")


def an_image(path):
    """A tar archive with one file in it."""
    with tarfile.open(path, "w") as archive:
        member = tarfile.TarInfo("etc/mine")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"mine\n"))


class Place:
    """What the clients share: directories outside, whether they kill parts of ours, and whether the server is being ended."""

    def __init__(self, instance, kills):
        self.instance, self.kills, self.ending = instance, kills, False
        self.done, self.faults = collections.Counter(), []
        self.source, self.target = os.path.join(instance.dir, "source"), os.path.join(instance.dir, "target")
        self.image = os.path.join(instance.dir, "image.tar")
        for path in (self.source, self.target):
            os.mkdir(path, 0o755)
        an_image(self.image)

    def enough(self):
        """Has everything been done that must have been done?"""
        return set(OFTEN) <= set(self.done)

    def tolerates(self, operation, error):
        """May somebody be told that? Who speaks with what was killed in that instant gets the error that the kernel gave us."""
        return (error.code in EXPECTED or (operation, error.code) in OTHERS or any(e in str(error) for e in ENDED)
                or (self.kills and error.code == "internal"))


class Client:
    """One of them: draws operations until the time is over."""

    def __init__(self, place, seed, until):
        self.place, self.instance = place, place.instance
        self.random, self.until = random.Random(seed), until
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        names = [name for name in sorted(dir(self)) + 2 * OFTEN if name.startswith("do_")]
        operations = [getattr(self, name) for name in names if self.place.kills or not name.startswith("do_kill_a_")]
        while (time.monotonic() < self.until or not self.place.enough()) and not self.place.faults:
            operation = self.random.choice(operations)
            try:
                operation()
                self.place.done[operation.__name__] += 1
            except ApiError as error:
                if not self.place.tolerates(operation.__name__, error):
                    self.place.faults.append(f"{operation.__name__}: {error}")
            except (OSError, EOFError, http.client.HTTPException) as error:
                if self.place.ending:
                    return
                if not self.place.kills or not isinstance(error, CUT):
                    self.place.faults.append(f"{operation.__name__}: {error!r}")
            except Exception as error:  # pylint: disable=broad-except
                self.place.faults.append(f"{operation.__name__}: {error!r}")

    # -- which one ----------------------------------------------------------------------------------------------------------------------

    def box(self):
        return f"box-{self.random.randrange(BOXES)}"

    def snapshot(self):
        return f"snap-{self.random.randrange(SNAPSHOTS)}"

    def image(self):
        return f"image-{self.random.randrange(IMAGES)}"

    def secret(self):
        return f"SECRET_{self.random.randrange(SECRETS)}"

    def step(self):
        return f"{self.box()}@{self.random.randrange(1, 6)}"

    def chance(self, of=0.5):
        return self.random.random() < of

    def exec_of(self, box):
        """The path of one of its commands, or None."""
        execs = self.instance.get(f"/v1/sandboxes/{box}/execs")["execs"]
        return f"/v1/sandboxes/{box}/execs/{self.random.choice(execs)['id']}" if execs else None

    def post(self, path, body=None):
        return self.instance.post(path, body, timeout=patience(120))

    def put(self, path, body):
        return self.instance.call("PUT", path, body, timeout=patience(120))

    def delete(self, path):
        self.instance.call("DELETE", path, timeout=patience(120))

    def get(self, path):
        return self.instance.get(path, timeout=patience(120))

    def raw(self, method, path, body=None):
        """With a body, or for an answer, that is no JSON. Raises ApiError as the others do."""
        status, _, answer = self.instance.raw(method, path, body, timeout=patience(60))
        if status >= 400:
            raise ApiError(status, json.loads(answer))
        return answer

    def hang_up(self, path, after):
        """Read @after bytes of an answer, then leave."""
        connection = UnixConnection(self.instance.socket, patience(60))
        connection.request("GET", path)
        connection.getresponse().read(after)
        connection.close()

    # -- sandboxes ----------------------------------------------------------------------------------------------------------------------

    def do_create(self):
        kind = dict(self.random.choice(KINDS))
        if self.chance(0.3):
            kind["mounts"] = [{"source": self.place.source, "target": "/work"}]
        if self.chance(0.1):
            kind.update(image=self.image(), start=False)
        self.post("/v1/sandboxes", {"name": self.box(), **kind})

    def do_remove(self):
        self.delete(f"/v1/sandboxes/{self.box()}?force=true")

    def do_stop(self):
        self.post(f"/v1/sandboxes/{self.box()}/stop", {"grace_ms": 200} if self.chance() else None)

    def do_start(self):
        self.post(f"/v1/sandboxes/{self.box()}/start")

    def do_pause(self):
        self.post(f"/v1/sandboxes/{self.box()}/pause")

    def do_suspend(self):
        self.post(f"/v1/sandboxes/{self.box()}/suspend")

    def do_resume(self):
        self.post(f"/v1/sandboxes/{self.box()}/resume", {"files_only": True} if self.chance(0.2) else None)

    def do_settings(self):
        self.put(f"/v1/sandboxes/{self.box()}/settings", self.random.choice([{"checkpoint": "each-exec"}, {"checkpoint": "none"}, {"idle_ms": 200}, {"idle_ms": 0}]))

    def look(self, path):
        """The answer, or None where it may be refused."""
        try:
            return self.raw("GET", path)
        except ApiError as error:
            if not self.place.tolerates("do_look", error):
                raise
            return None

    def do_look(self):
        for what in ("usage", "doctor", "events", "mails", "steps", "nearest?epoch=1", "policy"):
            self.look(f"/v1/sandboxes/{self.box()}/{what}")
        for what in ("snapshots", "sandboxes", "images", "secrets", "storage"):
            self.get(f"/v1/{what}")

    def do_verify_events(self):
        for path in (f"/v1/sandboxes/{self.box()}/events/verify", "/v1/events/verify"):
            answer = self.look(path)
            assert answer is None or json.loads(answer)["ok"], answer

    def do_follow_events(self):
        self.hang_up("/v1/events?follow=true", 500)

    def do_prune(self):
        self.post("/v1/prune", {"stopped": self.chance(0.2), "snapshots": self.chance()})

    def do_policy(self):
        self.put(f"/v1/sandboxes/{self.box()}/policy", {"policy": policy([self.secret()] if self.chance() else [])})

    # -- commands -----------------------------------------------------------------------------------------------------------------------

    def do_exec(self):
        env = self.random.choice([{}, {}, {"env": {"CAY_FORK_SIGNAL": "28"}}, {"env": {"CAY_FORK_HOOK": "/bin/true"}}])
        self.post(f"/v1/sandboxes/{self.box()}/execs", {"argv": ["/bin/sh", "-c", COUNT], **env})

    def do_exec_to_its_end(self):
        self.post(f"/v1/sandboxes/{self.box()}/execs?wait_ms=60000", {"argv": ["/bin/echo", "hello"]})

    def do_ask_for_a_name(self):
        self.post(f"/v1/sandboxes/{self.box()}/execs?wait_ms=60000", {"argv": ["/usr/bin/getent", "hosts", "a.example"]})

    def do_exec_with_input(self):
        box = self.box()
        run = self.post(f"/v1/sandboxes/{box}/execs", {"argv": ["/bin/cat"], "stdin": True})["id"]
        self.raw("POST", f"/v1/sandboxes/{box}/execs/{run}/stdin?close=true", b"some input\n" * 1000)

    def do_kill(self):
        path = self.exec_of(self.box())
        if path:
            self.post(f"{path}/signal", {"signal": 9, "tree": self.chance()})

    def do_output(self):
        path = self.exec_of(self.box())
        # cut short where its sandbox went, or back in time, in the middle
        with contextlib.suppress(http.client.IncompleteRead):
            if path:
                self.raw("GET", f"{path}/output")

    def do_follow_output(self):
        path = self.exec_of(self.box())
        with contextlib.suppress(http.client.IncompleteRead):  # removed meanwhile: what is missing must not look like the end
            if path:
                self.hang_up(f"{path}/output?follow=true", 1)

    def do_attach(self):
        box = self.box()
        path = self.exec_of(box)
        if path:
            frames = self.instance.attach(box, path.rsplit("/", 1)[1])
            frames.next(patience(60))
            frames.close()

    def do_run(self):
        frames = self.instance.run_stream(["/bin/sh", "-c", "echo x > /var/tmp/x"], rm=self.chance())
        if self.chance():
            with contextlib.suppress(ApiError):
                frames.collect(patience(60))
        frames.close()

    def do_run_and_leave(self):
        frames = self.instance.run_stream(["/bin/sh", "-c", COUNT])
        frames.until(STDOUT, patience(60))
        frames.close()

    # -- files --------------------------------------------------------------------------------------------------------------------------

    def do_put(self):
        self.raw("PUT", f"/v1/sandboxes/{self.box()}/files?path=/var/tmp/put", b"x" * 300000)

    def do_get(self):
        with contextlib.suppress(http.client.IncompleteRead):  # removed or rewound meanwhile: the same
            self.raw("GET", f"/v1/sandboxes/{self.box()}/files?path=/etc&format=tar")

    def do_diff(self):
        self.get(f"/v1/diff?a={self.box()}")

    def do_diff_of_two(self):
        sides = [self.box(), self.snapshot(), self.step()]
        self.get(f"/v1/diff?a={self.random.choice(sides)}&b={self.random.choice(sides)}")

    def do_apply(self):
        how = self.random.choice([{}, {"dry_run": True}, {"if_argv": ["/bin/true"]}])
        self.post(f"/v1/sandboxes/{self.box()}/apply", {"to": self.place.target, **how})

    # -- snapshots ----------------------------------------------------------------------------------------------------------------------

    def do_snapshot(self):
        name = {"name": self.snapshot()} if self.chance(0.8) else {}
        self.post(f"/v1/sandboxes/{self.box()}/snapshots", {**name, "files_only": self.chance(0.3)})

    def do_snapshot_remove(self):
        self.delete(f"/v1/snapshots/{self.snapshot()}")

    def do_step_remove(self):
        self.delete(f"/v1/snapshots/{self.step()}")

    def do_verify(self):
        self.post(f"/v1/snapshots/{self.random.choice([self.snapshot(), self.step()])}/verify")

    def do_fork(self):
        body = {"count": self.random.randrange(1, 3), "keep_identity": self.chance(0.3), **self.random.choice([{}, {}, {"live": True}, {"live": False}, {"start": False}])}
        for fork in self.post(f"/v1/sandboxes/{self.box()}/fork", body)["sandboxes"]:
            self.instance.remove(fork["id"])

    def do_fork_of_snapshot(self):
        for fork in self.post(f"/v1/snapshots/{self.random.choice([self.snapshot(), self.step()])}/fork", {})["sandboxes"]:
            self.instance.remove(fork["id"])

    def do_rewind(self):
        self.post(f"/v1/sandboxes/{self.box()}/rewind", {"snapshot": self.snapshot()})

    def do_rewind_to_a_step(self):
        self.post(f"/v1/sandboxes/{self.box()}/rewind", {"snapshot": f"@{self.random.randrange(1, 6)}", "keep_identity": self.chance(0.3)})

    # -- images and secrets -------------------------------------------------------------------------------------------------------------

    def do_image_import(self):
        self.post("/v1/images", {"path": self.place.image, "name": self.image()})

    def do_image_remove(self):
        self.delete(f"/v1/images/{self.image()}")

    def do_secret_set(self):
        self.put(f"/v1/secrets/{self.secret()}", {"value": "k" + "".join(self.random.choices("abcdef0123456789", k=24))})

    def do_secret_remove(self):
        if self.chance(0.2):
            self.delete(f"/v1/secrets/{self.secret()}")

    # -- violence -----------------------------------------------------------------------------------------------------------------------

    def kill_one(self, name):
        """kill -9 of one of the instance's processes of that name."""
        found = [pid for pid, (_, _, comm) in leaks.processes().items() if comm == name and leaks.cgroup_tags([pid]) & self.instance.tags]
        if found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.random.choice(found), signal.SIGKILL)

    def do_kill_a_keeper(self):
        if self.chance(0.3):
            pid = self.get(f"/v1/sandboxes/{self.box()}")["init_pid"]
            table = leaks.processes()
            while pid in table and table[pid][2] != "cay-keeper":
                pid = table[pid][0]
            if pid in table:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def part(self):
        """One of the processes of ours, of a kind that is drawn first: a starter, a waiter, a job, a dumper, an init, …; not the server, nor what ends with it."""
        kinds = collections.defaultdict(list)
        for pid, (_, _, comm) in leaks.processes().items():
            if comm.startswith(("cay-", "memfd:cay-")) and comm != "cay-spawn" and leaks.cgroup_tags([pid]) & self.instance.tags:
                kinds[comm].append(pid)
        return self.random.choice(kinds[self.random.choice(sorted(kinds))]) if kinds else None

    def do_kill_a_part(self):
        pid = self.part()
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def do_kill_a_part_that_has_stood_still(self):
        """Or that goes on when it has."""
        pid = self.part()
        if pid:
            with contextlib.suppress(ProcessLookupError), stopped(pid):
                time.sleep(self.random.choice((0.01, 0.1, 0.5)))
                if self.chance():
                    os.kill(pid, signal.SIGKILL)

    def do_kill_a_gateway(self):
        self.kill_one("cay-gateway")

    def do_kill_a_template(self):
        if self.chance(0.3):
            self.kill_one("cay-template")
