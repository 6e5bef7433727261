# SPDX-License-Identifier: Apache-2.0
"""The overlays of a sandbox do not sync: what that changes, and what it must not."""

import os
import signal

from lib.case import contains, equal, require, timeout

FILL = """
import mmap, os
files = 0
try:
    for files in range(400):
        fd = os.open(f"/fill{files}", os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 1 << 20)
        with mmap.mmap(fd, 1 << 20) as m:
            m[:4096] = bytes(4096)
        os.pwrite(fd, os.urandom(1 << 20), 0)
        os.close(fd)
except OSError as error:
    print(error.strerror)
"""

SYNC = """
import os
fd = os.open("/database", os.O_RDWR | os.O_CREAT)
os.pwrite(fd, b"row", 0)
os.fsync(fd)
os.sync()
print("synced")
"""


def python(instance, box, program):
    return instance.ok(box, f"exec python3 - <<'END'\n{program}\nEND")


def overlays(instance, box):
    """Options of the overlays that the payload's init sees."""
    pid = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as f:
        return [line.split(" - ")[1] for line in f if " - overlay " in line]


def test_root_and_cow_mounts_are_volatile(instance):
    source = os.path.join(instance.dir, "project")
    os.mkdir(source)
    with instance.sandbox(mounts=[{"source": source, "target": "/project"}]) as box:
        found = overlays(instance, box)
        equal(len(found), 2, found)
        for options in found:
            contains(options, "volatile")


@timeout(120)
def test_stopped_and_killed_sandboxes_start_again_with_what_was_written(instance):
    with instance.sandbox() as box:
        equal(python(instance, box, SYNC), "synced\n")
        instance.post(f"/v1/sandboxes/{box}/stop", {})
        instance.post(f"/v1/sandboxes/{box}/start", {})
        equal(instance.ok(box, "cat /database"), "row")
        contains(overlays(instance, box)[0], "volatile")
        os.kill(instance.get(f"/v1/sandboxes/{box}")["init_pid"], signal.SIGKILL)
        instance.wait_event("sandbox.failed", box)
        instance.post(f"/v1/sandboxes/{box}/start", {})
        equal(instance.ok(box, "cat /database"), "row")


@require("btrfs")
@timeout(120)
def test_a_neighbour_that_hit_its_disk_limit_does_not_make_fsync_fail(instance):
    with instance.sandbox() as careful, instance.sandbox(limits={"disk_bytes": 32 << 20}) as greedy:
        equal(python(instance, careful, SYNC), "synced\n")
        equal(python(instance, greedy, FILL), "Disk quota exceeded\n")
        pool = os.open(os.path.join(instance.state, "pool"), os.O_RDONLY)
        os.fsync(pool)
        os.close(pool)
        equal(python(instance, careful, SYNC), "synced\n")
