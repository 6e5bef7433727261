# SPDX-License-Identifier: Apache-2.0
"""Limits of bytes and inodes that hold exactly, by a disk of the sandbox's own: on every kind of pool in root mode, refused in rootless mode."""

import os
import signal
import subprocess

from lib import cay, leaks
from lib.case import contains, equal, raises, require
from lib.job import JobDied, JobError, new_id
from lib.pool import Pool

TIMEOUT = 120
MIB = 1 << 20
INODES, BYTES = 300, 16 * MIB
FILL_INODES = "mkdir /var/tmp/d && i=0; while : > /var/tmp/d/$i; do i=$((i+1)); done; echo made $i >&2"


def created(run):
    """How many files the shell of FILL_INODES made."""
    return int(run.stderr.split("cannot create /var/tmp/d/")[1].split(":")[0])


def started(tmp, kind):
    """An instance with a pool of @kind."""
    instance = cay.Instance(tmp)
    os.makedirs(os.path.join(instance.state, "pool/layers") if kind == "directory" else instance.state, exist_ok=True)
    instance.start()
    equal(instance.get("/v1/storage")["kind"], kind)
    return instance


def check_limits(instance, kind):
    """Both limits, with a neighbour that is not disturbed; then snapshot, fork, rewind, diff of that sandbox."""
    equal(instance.get("/v1/storage")["inode_limit"], "disk")
    with instance.sandbox(name="small", limits={"inodes": INODES, "disk_bytes": BYTES}) as box, instance.sandbox(name="other") as other:
        equal(instance.get(f"/v1/sandboxes/{box}")["disk"], {"kind": "disk"})
        free = instance.ok(box, "stat -f -c '%a %S %d' /var/tmp").split()
        equal((int(free[0]) * int(free[1]), int(free[2])), (BYTES, INODES))

        run = instance.cay("exec", box, "--", "sh", "-c", FILL_INODES + "; exit 3", check=False)
        equal(run.returncode, 2, "the shell's own, which ends there")
        contains(run.stderr, "No space left on device")
        contains(run.stderr, "disk limit")
        assert INODES - 10 <= created(run) <= INODES, created(run)
        equal(instance.ok(other, "echo fine"), "fine\n")
        equal(instance.get(f"/v1/sandboxes/{box}/usage")["inodes"], INODES)
        instance.ok(box, "rm -r /var/tmp/d; echo room > /var/tmp/room")

        wrote = instance.cay("exec", box, "--", "sh", "-c", "dd if=/dev/zero of=/var/tmp/big bs=64k; exit 4", check=False)
        equal(wrote.returncode, 4)
        contains(wrote.stderr, "No space left on device")
        contains(wrote.stderr, "disk limit")
        size = int(instance.ok(box, "stat -c %s /var/tmp/big"))
        assert BYTES - MIB <= size <= BYTES, size
        equal(instance.ok(other, "echo fine"), "fine\n")
        instance.ok(box, "rm /var/tmp/big")
        hits = [e["data"] for e in instance.events(box) if e["type"] == "limit.hit"]
        equal([h["limit"] for h in hits], ["inodes", "disk"])
        assert hits[1]["evidence"]["disk_bytes"] >= BYTES - MIB, hits

        instance.ok(box, "echo one > /var/tmp/a; ln /var/tmp/a /var/tmp/b; ln -s a /var/tmp/c; rm /etc/hostname; mkdir /opt/new")
        snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "full-" + kind})
        equal(snapshot["capture"], "copy")
        equal(instance.json("diff", box, snapshot["id"])["changes"], [])
        instance.ok(box, "echo two > /var/tmp/a; rm /var/tmp/c")
        changed = {c["path"]: c["kind"] for c in instance.json("diff", snapshot["id"], box)["changes"]}
        equal(changed, {"/var/tmp/a": "modified", "/var/tmp/b": "modified", "/var/tmp/c": "deleted"})
        [fork] = instance.post(f"/v1/snapshots/{snapshot['id']}/fork", {})["sandboxes"]
        equal(fork["disk"], {"kind": "disk"})
        check_content(instance, fork["id"])
        contains(instance.cay("exec", fork["id"], "--", "sh", "-c", FILL_INODES, check=False).stderr, "No space left on device")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": snapshot["id"]})
        check_content(instance, box)

        instance.post(f"/v1/sandboxes/{box}/stop")
        still = instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "still-" + kind})
        equal((still["capture"], instance.json("diff", still["id"], snapshot["id"])["changes"]), ("copy", []))
        instance.post(f"/v1/sandboxes/{box}/start")
        check_content(instance, box)
        for one in (snapshot, still):
            equal(instance.post(f"/v1/snapshots/{one['id']}/verify")["state"], "verified")
        instance.remove(fork["id"])
        for one in (snapshot, still):
            instance.call("DELETE", f"/v1/snapshots/{one['id']}")


def check_content(instance, box):
    equal(instance.ok(box, "cat /var/tmp/a /var/tmp/b; stat -c %h /var/tmp/a; readlink /var/tmp/c; ls /etc/hostname || ls -d /opt/new"),
          "one\none\n2\na\n/opt/new\n")


def no_disk_left(instance):
    """What a disk is: a loop device over live/…/disk.ext4, and mounts of it."""
    cay.wait_until(lambda: not [d for d in leaks.loops(instance.dir) if "disk.ext4" in d], 10, "loop devices of disks are gone")
    equal([m for m in leaks.mounts(instance.dir) if "disk.ext4" in m], [])


@require("root", "btrfs")
def test_limits_on_a_btrfs_pool(tmp):
    instance = started(tmp, "btrfs")
    try:
        check_limits(instance, "btrfs")
        no_disk_left(instance)
    finally:
        instance.close()


@require("root")
def test_limits_on_a_directory_pool(tmp):
    """Here bytes alone get a disk too."""
    instance = started(tmp, "directory")
    try:
        check_limits(instance, "directory")
        with instance.sandbox(limits={"disk_bytes": BYTES}) as box:
            equal(instance.sh(box, "head -c 20M /dev/zero > /var/tmp/big")[0]["status"], "disk_full")
        with instance.sandbox() as box:
            equal(instance.get(f"/v1/sandboxes/{box}")["disk"], {"kind": "none"})
        no_disk_left(instance)
    finally:
        instance.close()


@require("root", "btrfs")
def test_bytes_alone_are_the_quotas_business(instance):
    with instance.sandbox(limits={"disk_bytes": BYTES}) as box:
        equal(instance.get(f"/v1/sandboxes/{box}")["disk"], {"kind": "quota"})
        assert "inodes" not in instance.get(f"/v1/sandboxes/{box}")["limits"]


@require("root")
def test_the_command_asks_and_tells(instance):
    shown = instance.cay("run", "--rm", "--inodes", "100", "--", "stat", "-f", "-c", "%d", "/var/tmp").stdout
    equal(shown, "100\n")
    instance.cay("create", "--name", "told", "--inodes", "5000")
    contains(instance.cay("info", "told").stdout, "10 GiB disk, 5000 files")
    instance.cay("rm", "-f", "told")
    contains(instance.cay("run", "--inodes", "few", "--", "true", want=64).stderr, "a number is wanted")


@require("root")
def test_cow_mounts_lie_on_the_disk_too(instance, tmp):
    source = os.path.join(tmp, "project")
    os.mkdir(source)
    with open(os.path.join(source, "file"), "w", encoding="ascii") as f:
        f.write("one\n")
    with instance.sandbox(limits={"inodes": 50}, mounts=[{"source": source, "target": "/p", "mode": "cow"}]) as box:
        instance.ok(box, "echo two > /p/file; echo new > /p/new")
        run = instance.cay("exec", box, "--", "sh", "-c", "i=0; while : > /p/x$i; do i=$((i+1)); done", check=False)
        contains(run.stderr, "No space left on device")
        instance.ok(box, "rm /p/x*")
        changed = {c["path"]: c["kind"] for c in instance.json("diff", box)["changes"]}
        equal(changed, {"/p/file": "modified", "/p/new": "added"})
        instance.cay("apply", box)
        equal(sorted(os.listdir(source)), ["file", "new"])


@require("root")
def test_a_killed_keeper_leaves_the_disk_whole_and_nothing_mounted(fresh):
    with fresh.sandbox(limits={"inodes": 1000}) as box:
        fresh.ok(box, "echo kept > /var/tmp/kept; sync /var/tmp/kept")
        init = fresh.get(f"/v1/sandboxes/{box}")["init_pid"]
        fresh.kill()
        fresh.start()
        equal(fresh.ok(box, "cat /var/tmp/kept"), "kept\n", "a new server took it over")
        os.kill(leaks.processes()[init][0], signal.SIGKILL)
        cay.wait_until(lambda: fresh.get(f"/v1/sandboxes/{box}")["state"] in ("failed", "stopped"), 30, "the sandbox is lost")
        no_disk_left(fresh)
        fresh.post(f"/v1/sandboxes/{box}/start")
        equal(fresh.ok(box, "cat /var/tmp/kept; stat -f -c %c /var/tmp").split()[0], "kept")


# ---- the jobs alone --------------------------------------------------------------------------------------------------------------


@require("root", "btrfs")
def test_sizes_are_exact(tmp):
    with Pool(tmp, "btrfs") as pool:
        for size, inodes in ((1 << 20, 16), (10 << 20, 70000), (1 << 30, 1000), (100 << 30, 1000000)):
            box = new_id()
            pool.run("disk", sandbox=box, bytes=size, inodes=inodes, trees=3)
            pool.run("disk", sandbox=box, bytes=size * 2, inodes=inodes * 2)  # it has one: it stays as it is
            equal(pool.run("usage", sandboxes=[box])["usage"][box], {"bytes": 0, "inodes": 0})
            equal(mounted(pool, box, lambda at: statvfs(at)), (size, inodes))
            assert os.stat(pool.path("live", box, "disk.ext4")).st_blocks * 512 < 8 * MIB, "the file is not sparse"


@require("root")
def test_bad_sizes_and_a_killed_job(tmp):
    with Pool(tmp, "directory") as pool:
        for members in ({"bytes": 0}, {"bytes": -1}, {"bytes": MIB, "trees": 0}, {"bytes": MIB, "trees": 1000}, {"bytes": 1 << 62}):
            raises(JobError, pool.run, "disk", sandbox=new_id(), **members)
        box = new_id()
        killed = pool.job("disk", sandbox=box, bytes=MIB, inodes=100, env={"CAY_FAULT": "store.disk.filled"})
        raises(JobDied, killed.result)
        assert not os.path.exists(pool.path("live", box, "disk.ext4"))
        pool.run("disk", sandbox=box, bytes=2 * MIB, inodes=200)
        equal(mounted(pool, box, lambda at: statvfs(at)), (2 * MIB, 200))
        equal(os.listdir(pool.path("live", box)).count("disk.ext4.new"), 0)
        cay.wait_until(lambda: not leaks.loops(tmp), 10, "loop devices are gone")


def statvfs(at):
    found = os.statvfs(at)
    return found.f_bavail * found.f_frsize, found.f_favail


def mounted(pool, box, look):
    at = os.path.join(pool.state, "look")
    os.makedirs(at, exist_ok=True)
    subprocess.run(["mount", "-o", "loop,noinit_itable", pool.path("live", box, "disk.ext4"), at], check=True)
    try:
        return look(at)
    finally:
        subprocess.run(["umount", at], check=True)
        cay.wait_until(lambda: not leaks.loops(pool.state + "/pool/live"), 10, "the loop device of the look is gone")


@require("root")
def test_doctor_tells_how_the_modes_differ(instance):
    rows = {row["what"]: row for row in instance.json("doctor", check=False)["modes"]}
    contains(rows["limit of inodes"]["root"], "a disk")
    contains(rows["limit of inodes"]["rootless"], "unsupported")
    contains(instance.cay("doctor", "--all", check=False).stdout, rows["limit of inodes"]["root"])
