# SPDX-License-Identifier: Apache-2.0
"""Contract DATA on a full disk: the file system of the state directory has no bytes, or no inodes, left. Every refusal has the code disk_full, what was
acknowledged is there afterwards, and our own commands are enough to make room."""

import contextlib
import errno
import os
import subprocess
import sys

from lib import cay, leaks
from lib.case import contains, equal, raises, require
from lib.pool import in_own_mounts

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "checkpoint"))
from forking import ask, start  # noqa: E402
from suspending import memories  # noqa: E402

TIMEOUT = 180


@contextlib.contextmanager
def small_disk(tmp, inodes, reserved=0):
    """An instance, not started, on a file system of its own of 700 MB, of which @reserved percent are root's. Keepers of others would hold mounts that they can see."""
    in_own_mounts()
    image, top = os.path.join(tmp, "disk"), os.path.join(tmp, "top")
    os.mkdir(top)
    with open(image, "wb") as f:
        f.truncate(700 << 20)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", "-m", str(reserved), "-N", str(inodes), image], check=True)
    subprocess.run(["mount", "-o", "loop", image, top], check=True)
    os.chmod(top, 0o755)
    instance = cay.Instance(top)
    try:
        yield instance, top
    finally:
        subprocess.run(["rm", "-rf", os.path.join(top, "filler")], check=True)
        try:
            instance.close()
        finally:
            subprocess.run(["umount", top], check=True)


def fill_bytes(top):
    with open(os.path.join(top, "filler"), "wb") as f:
        size = 1 << 30
        while size >= 4096:
            try:
                os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, size)
            except OSError as error:
                equal(error.errno, errno.ENOSPC)
                size //= 2


def fill_inodes(top):
    os.mkdir(os.path.join(top, "filler"))
    number = 0
    while True:
        try:
            with open(os.path.join(top, "filler", str(number)), "wb"):
                number += 1
        except OSError as error:
            equal(error.errno, errno.ENOSPC)
            return


def give_up_log(instance):
    """The room that the catalogue's log has set aside: as if it were used up."""
    log = os.path.join(instance.state, "cay.db-wal")
    os.truncate(log, os.stat(log).st_size)  # what is allocated beyond the end goes


def refused(function, *args):
    equal(raises(cay.ApiError, function, *args).code, "disk_full")


def begin(instance):
    """A sandbox with a file that was synced, and a snapshot that was acknowledged."""
    instance.start()
    instance.post("/v1/sandboxes", {"name": "old"})
    instance.ok("old", "echo kept > /var/tmp/kept; sync")
    instance.post("/v1/sandboxes/old/snapshots", {"name": "snap"})


def check_all_is_there(instance):
    if instance.get("/v1/sandboxes/old")["state"] != "running":
        instance.post("/v1/sandboxes/old/start")
    equal(instance.ok("old", "cat /var/tmp/kept"), "kept\n")
    equal(instance.post("/v1/snapshots/snap/verify")["state"], "verified")
    [fork] = instance.post("/v1/snapshots/snap/fork", {})["sandboxes"]
    equal(instance.ok(fork["id"], "cat /var/tmp/kept"), "kept\n")
    assert instance.get("/v1/sandboxes/old/events/verify")["ok"]


@require("root", "loop")
def test_no_bytes_left_under_a_directory_pool(tmp):
    with small_disk(tmp, 60000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        instance.post("/v1/sandboxes", {"name": "victim"})
        fill_bytes(top)
        refused(instance.post, "/v1/sandboxes/old/snapshots", {"name": "more", "files_only": True})
        refused(instance.post, "/v1/sandboxes", {"name": "another"})
        refused(instance.post, "/v1/snapshots/snap/fork", {})
        equal(sorted(s["name"] for s in instance.get("/v1/sandboxes")["sandboxes"]), ["old", "victim"])
        # what makes room works, and is remembered
        instance.post("/v1/sandboxes/old/stop")
        instance.cay("rm", "-f", "victim")
        instance.kill()
        instance.start()
        equal([(s["name"], s["state"]) for s in instance.get("/v1/sandboxes")["sandboxes"]], [("old", "stopped")])
        os.unlink(os.path.join(top, "filler"))
        check_all_is_there(instance)


@require("root", "loop")
def test_room_is_made_by_a_command_inside(tmp):
    """What a program has filled the disk with is removed as it came, by a command; nobody else takes what the catalogue needs for that."""
    with small_disk(tmp, 60000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        instance.sh("old", "fallocate -l 50M /var/tmp/big; cat > /var/tmp/rest < /dev/zero")
        fill_bytes(top)
        for _ in range(60):
            instance.ok("old", "true")
        refused(instance.post, "/v1/sandboxes", {"name": "another"})
        refused(instance.post, "/v1/sandboxes/old/snapshots", {"name": "more", "files_only": True})
        instance.ok("old", "rm /var/tmp/big /var/tmp/rest")
        instance.post("/v1/sandboxes/old/snapshots", {"name": "more", "files_only": True})
        os.unlink(os.path.join(top, "filler"))
        check_all_is_there(instance)


@require("root", "loop")
def test_a_stopped_sandbox_is_started_to_make_room(tmp):
    """Also by the next server, which finds the disk full."""
    with small_disk(tmp, 60000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        instance.ok("old", "fallocate -l 50M /var/tmp/big")
        instance.post("/v1/sandboxes/old/stop")
        fill_bytes(top)
        instance.kill()
        instance.start()
        instance.post("/v1/sandboxes/old/start")
        for _ in range(60):
            instance.ok("old", "true")
        instance.ok("old", "rm /var/tmp/big")
        instance.post("/v1/sandboxes", {"name": "another"})
        os.unlink(os.path.join(top, "filler"))
        check_all_is_there(instance)


@require("root", "loop")
def test_a_server_that_finds_no_room_at_all_says_so(tmp):
    """What root has filled to the last of its own blocks leaves nobody else one, what was given back included."""
    with small_disk(tmp, 60000, reserved=5) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        fill_bytes(top)
        instance.kill()
        run = os.path.join(tmp, "run")  # its log has room
        contains(instance.cay("ps", want=125, env={"CAY_RUN": run, "CAY_SOCKET": run + "/cayd.sock"}).stderr, "database or disk is full; make room on the disk of the state directory")
        os.unlink(os.path.join(top, "filler"))
        instance.start()
        check_all_is_there(instance)


@require("root", "loop")
def test_no_inodes_left_under_a_directory_pool(tmp):
    with small_disk(tmp, 2000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        fill_inodes(top)
        run = instance.sh("old", "echo new > /var/tmp/new")
        equal((run[0]["status"], run[0]["evidence"]["full"]), ("disk_full", "inodes"))
        equal(instance.ok("old", "cat /var/tmp/kept"), "kept\n")
        refused(instance.post, "/v1/sandboxes/old/snapshots", {"name": "more", "files_only": True})
        refused(instance.post, "/v1/snapshots/snap/fork", {})
        equal([s["name"] for s in instance.get("/v1/snapshots")["snapshots"]], ["snap"])
        instance.kill()
        instance.start()
        equal(instance.ok("old", "cat /var/tmp/kept"), "kept\n")
        subprocess.run(["rm", "-r", os.path.join(top, "filler")], check=True)
        equal(instance.ok("old", "echo new > /var/tmp/new; cat /var/tmp/new"), "new\n")
        check_all_is_there(instance)


@require("root", "loop")
def test_what_is_told_where_no_bytes_are_left_is_told_once(tmp):
    """Whatever of it, its announcement or what takes that away could be written, and however often the server dies."""
    with small_disk(tmp, 60000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        victim = instance.post("/v1/sandboxes", {"name": "victim"})["id"]
        old = instance.get("/v1/sandboxes/old")["id"]
        instance.call("PUT", "/v1/secrets/API_KEY", {"value": "sk_live_0123456789"})
        runs = [instance.exec(box, "/bin/sh", "-c", "read line; exit 7", stdin=True) for box in ("old", "victim", "old")]
        give_up_log(instance)
        fill_bytes(top)
        stream = instance.attach("old", runs[0])
        stream.send(cay.STDIN, b"go\n")
        equal(stream.collect()[2]["code"], 7)
        for _ in range(2):
            instance.kill()
            instance.start()
        instance.post("/v1/sandboxes/old/stop")
        instance.cay("rm", "-f", "victim")
        instance.call("DELETE", "/v1/secrets/API_KEY")
        for _ in range(2):
            instance.kill()
            instance.start()
        os.unlink(os.path.join(top, "filler"))
        for _ in range(2):
            instance.kill()
            instance.start()
            events = instance.events()
            for run in (runs[0], runs[2]):
                equal([e["type"] for e in events if e["exec"] == run["id"] and e["type"] in ("exec.created", "exec.ended")], ["exec.created", "exec.ended"])
            equal([e["data"].get("code") for e in events if e["type"] == "exec.ended" and e["exec"] == runs[0]["id"]], [7])
            for wanted in (("sandbox.stopped", old), ("sandbox.removed", victim), ("secret.removed", None), ("secret.set", None)):
                equal([(e["type"], e["sandbox"]) for e in events if (e["type"], e["sandbox"]) == wanted], [wanted])
        check_all_is_there(instance)


@require("root", "loop")
def test_events_are_read_where_no_more_can_be_written(tmp):
    """Those that are on the disk; that there are others is told at their end."""
    with small_disk(tmp, 60000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        instance.log = os.path.join(tmp, "cayd.log")
        begin(instance)
        fill_bytes(top)
        for _ in range(20):  # the last block of the log has room for some
            instance.ok("old", "true")
        done = instance.cay("events", "old", want=125)
        contains(done.stdout, "sandbox.started")
        last = int(done.stdout.splitlines()[-1].split()[0])
        contains(instance.cay("events", "old", "--from", last + 1, want=125).stderr, "read the event log: No space left on device")
        equal(leaks.read(instance.log).count("write the journal: No space left on device"), 1, "how often it is logged")
        os.unlink(os.path.join(top, "filler"))
        equal(instance.cay("events", "old").stdout.startswith(done.stdout), True)
        contains(leaks.read(instance.log), "the journal is written again")
        check_all_is_there(instance)


@require("root", "loop")
def test_prune_says_what_became_free(tmp):
    """Of what it removes itself, too, snapshots and sandboxes; what is given back later, that more comes."""
    for kind in ("directory", "btrfs"):
        os.mkdir(os.path.join(tmp, kind))
        with small_disk(os.path.join(tmp, kind), 60000) as (instance, _):
            if kind == "directory":
                os.makedirs(os.path.join(instance.state, "pool", "layers"))
            instance.start()
            equal(instance.get("/v1/storage")["kind"], kind)
            for name in ("one", "two"):
                instance.post("/v1/sandboxes", {"name": name})
                instance.ok(name, "head -c 30M /dev/urandom > /var/tmp/big")
            instance.post("/v1/sandboxes/one/snapshots", {"files_only": True})
            instance.ok("one", "rm /var/tmp/big")
            instance.post("/v1/sandboxes/two/stop")
            said = instance.cay("prune", "--all", "--yes").stdout
            contains(said, "removed 1 sandboxes, 1 snapshots, ")
            contains(said, "the rest follows")
            if kind == "directory":
                assert float(said.split("MiB freed")[0].split()[-1]) > 25, said


# Holds 64 MB that no compression makes small.
HOLDER = """
import hashlib, os, sys
held = os.urandom(64 << 20)
print("ready", flush=True)
for line in sys.stdin:
    print(hashlib.sha256(held).hexdigest(), flush=True)
"""


@require("root", "loop", "cgroup2")
def test_suspended_where_no_bytes_are_left(tmp):
    """Refused, and the program goes on as it was; with room it is suspended, and stays so where it has none to be resumed."""
    with small_disk(tmp, 60000) as (instance, top):
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        begin(instance)
        run = start(instance, "old", "/usr/bin/python3", "-c", HOLDER)
        held = ask(instance, "old", run, "what?")
        before = memories(instance)
        for _ in range(2):
            fill_bytes(top)
            refused(instance.post, "/v1/sandboxes/old/suspend")
            equal(ask(instance, "old", run, "what?"), held)
            equal(memories(instance), before)
            os.unlink(os.path.join(top, "filler"))
        equal(instance.post("/v1/sandboxes/old/suspend")["state"], "suspended")
        fill_bytes(top)
        refused(instance.post, "/v1/sandboxes/old/resume")  # a sandbox that runs must be able to write
        equal(instance.get("/v1/sandboxes/old")["state"], "suspended")
        os.unlink(os.path.join(top, "filler"))
        equal(instance.post("/v1/sandboxes/old/resume")["state"], "running")
        equal(ask(instance, "old", run, "what?"), held)
        check_all_is_there(instance)


@require("root", "btrfs", "loop")
def test_no_bytes_left_under_the_pool_file(tmp):
    """The pool's file is sparse: when it cannot grow, btrfs stops writing. What was durable is there when it is mounted anew."""
    with small_disk(tmp, 60000) as (instance, top):
        begin(instance)
        equal(instance.get("/v1/storage")["kind"], "btrfs")
        run = instance.exec("old", "sh", "-c", "read x; dd if=/dev/urandom of=/var/tmp/big bs=1M count=200 conv=fsync", stdin=True)
        stream = instance.attach("old", run)
        fill_bytes(top)
        stream.send(cay.STDIN, b"go\n")
        stream.collect()  # inside nothing is synced: whether the program notices is the kernel's choice
        subprocess.run(["sync", "-f", os.path.join(instance.state, "pool")], check=False)  # half a minute later it does so by itself
        error = raises(cay.ApiError, instance.post, "/v1/sandboxes/old/snapshots", {"name": "more", "files_only": True})
        equal(error.code, "disk_full")
        contains(error.message, "the pool can no longer be written")
        contains(error.hint, "cay storage init")
        equal([s["name"] for s in instance.get("/v1/snapshots")["snapshots"]], ["snap"])
        instance.post("/v1/sandboxes/old/stop")
        os.unlink(os.path.join(top, "filler"))
        instance.cay("storage", "init")
        check_all_is_there(instance)


def it_is_told(instance, state):
    """Of a pool that cannot be written: that it is @state, by whom it is held, and that all is not well."""
    storage = instance.get("/v1/storage")
    equal((storage["writable"], storage["held_by"]), (False, ["holder"]))
    text = instance.cay("storage", "info").stdout
    contains(text, f"state         {state}")
    contains(text, "held by       holder\n")
    equal("writable" in instance.get("/v1/doctor")["storage"], False)  # a check says it
    failed = [check for check in instance.json("doctor", want=1)["checks"] if not check["ok"] and check["level"] == "required"]
    equal([check["id"] for check in failed], ["state_writable"])
    contains(failed[0]["found"], f"is {state}")


@require("root", "btrfs", "loop")
def test_the_pool_file_is_mounted_anew_while_another_instance_runs(tmp):
    """Its sandboxes hold nothing of this one's. Where our own hold it that is said each time."""
    with small_disk(tmp, 60000) as (instance, top):
        begin(instance)
        with contextlib.closing(cay.Instance(tmp)) as other:
            other.start()
            other.post("/v1/sandboxes", {"name": "beside"})
            instance.post("/v1/sandboxes", {"name": "holder"})
            fill_bytes(top)
            instance.exec("old", "dd", "if=/dev/urandom", "of=/var/tmp/big", "bs=1M", "count=200")
            cay.wait_until(lambda: subprocess.run(["sync", "-f", os.path.join(instance.state, "pool")], check=False).returncode != 0, 60, "the pool is read-only")
            os.unlink(os.path.join(top, "filler"))
            instance.post("/v1/sandboxes/old/stop")
            for told in ("read-only", "not mounted"):
                it_is_told(instance, told)
                contains(instance.cay("storage", "init", want=125).stderr, "is read-only after an error and sandboxes still use it")
            instance.post("/v1/sandboxes/holder/stop")
            equal(instance.get("/v1/storage")["held_by"], [])
            instance.cay("storage", "init")
            storage = instance.get("/v1/storage")
            equal((storage["kind"], storage["writable"], "held_by" in storage), ("btrfs", True, False))
            check_all_is_there(instance)
            equal(other.ok("beside", "echo here"), "here\n")
