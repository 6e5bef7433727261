# SPDX-License-Identifier: Apache-2.0
"""A power cut: of the pool is left what its file holds in that instant, not what was still in the kernel's memory; of the catalogue, which lies on another file system, all. What a
commit names must be on the disk before it, and what it says is gone must be gone from there."""

import contextlib
import os
import signal
import subprocess
import sys

from lib import cay, job, leaks
from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from test_undone import inside, read, snapshot, with_file, write  # noqa: E402

TIMEOUT = 180


def end_all(instance):
    """Whoever belongs to it ends at once."""
    instance.kill()
    for pid in instance.own_processes():
        with contextlib.suppress(ProcessLookupError):  # it may have ended with its server
            os.kill(pid, signal.SIGKILL)
    cay.wait_until(lambda: all(leaks.processes().get(pid, ("", "Z"))[1] == "Z" for pid in instance.own_processes()), 30, "all have ended")


def extents(fd):
    """What a sparse file holds: [(offset, bytes)]."""
    found, at, end = [], 0, os.fstat(fd).st_size
    while at < end:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:  # no more of it
            break
        until = os.lseek(fd, at, os.SEEK_HOLE)
        found.append((at, os.pread(fd, until - at, at)))
        at = until
    return found


def power_cut(instance):
    """The pool's file becomes again what it is at this instant, before anybody can write more to it."""
    seen = []
    end_all(instance)
    pool = os.open(os.path.join(instance.state, "pool.btrfs"), os.O_RDWR)

    def looked():
        seen.append(extents(pool))
        return len(seen) > 1 and seen[-1] == seen[-2]
    cay.wait_until(looked, 30, "no commit comes in between")
    job.run(instance.state, "storage", op="unmount")
    size = os.fstat(pool).st_size
    os.ftruncate(pool, 0)
    os.ftruncate(pool, size)
    for at, data in seen[-1]:
        os.pwrite(pool, data, at)
    os.close(pool)


def on_disk(instance):
    """What the pool holds now survives: as after half a minute."""
    subprocess.run(["sync", "-f", os.path.join(instance.state, "pool")], check=True)


@require("root", "btrfs")
def test_what_was_before_a_rewind_does_not_come_back(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        box = with_file(instance, "first")
        first = snapshot(instance, box, name="first")  # durable
        for _ in range(3):  # the pool may happen to be written by itself
            write(instance, box, "second")
            on_disk(instance)
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
            power_cut(instance)
            instance.start()
            equal(read(instance, box), "first")


@require("root")
def test_what_a_rewind_names_is_on_the_disk_before_it(tmp):
    """A snapshot that was not durable: from the commit on nothing else has its files."""
    log = cay.fault_log(tmp)
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT_LOG=log)
        box = with_file(instance, "first")
        first = snapshot(instance, box)
        equal(instance.get(f"/v1/snapshots/{first}")["state"], "sealed")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
        seen = leaks.read(log).split()
        contains(seen[:seen.index("rewind.commit.before")], "store.sync.done")
        equal(read(instance, box), "first")


@require("root", "btrfs")
def test_a_layer_that_was_durable_is_lost_and_not_unmade(tmp):
    """Somebody took it away: its snapshot stays and says so, and nobody goes on as if it had never been."""
    with own_instance(tmp) as instance:
        instance.start()
        box = with_file(instance, "first")
        kept = snapshot(instance, box, name="kept")
        name, [layer] = (instance.get(f"/v1/sandboxes/{box}")[what] for what in ("name", "layers"))
        end_all(instance)
        subprocess.run(["btrfs", "subvolume", "delete", os.path.join(instance.state, "pool", "layers", layer)], check=True, stdout=subprocess.DEVNULL)
        instance.start()
        equal([s["id"] for s in instance.get("/v1/snapshots")["snapshots"]], [kept])
        equal(instance.get(f"/v1/sandboxes/{box}")["layers"], [layer])
        contains(leaks.read(instance.log), f"layer '{layer}' of sandbox '{name}' is lost")
        equal(inside(instance, "sealing"), [])
