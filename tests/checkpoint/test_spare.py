# SPDX-License-Identifier: Apache-2.0
"""A template that is started ahead of time: when there is one, what it brings, and that nobody needs it."""

import hashlib
import os
import signal
import sys

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, rootless, start  # noqa: E402

NEEDS = ("root", "cgroup2")
TIMEOUT = 120
MIB = 1 << 20
SIZES = [24 * MIB + 4096, 5 * MIB - 8192, 3 * MIB]  # mappings whose ends stand anywhere within two megabytes

# Memory that is full of bytes which differ from page to page; each line gives its digest, and changes a byte of it.
PROGRAM = f"""
import hashlib, mmap, sys
maps = [mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for size in {SIZES}]
for n, m in enumerate(maps):
    for at in range(0, len(m), 4096):
        m[at:at + 4096] = (at + n).to_bytes(8, "little") * 512
print("ready", flush=True)
for line in sys.stdin:
    print(*(hashlib.sha256(m).hexdigest() for m in maps), flush=True)
    maps[0][int(line)] ^= 1
"""


def digests():
    return [hashlib.sha256(b"".join((at + n).to_bytes(8, "little") * 512 for at in range(0, size, 4096))).hexdigest() for n, size in enumerate(SIZES)]


def spares(instance):
    return instance.programs_named("cay-spare")


def resident(pid):
    words = leaks.read(f"/proc/{pid}/statm", "0 0").split()
    return int(words[1]) * 4096


def full_spare(instance):
    """The spare template, when it has all the memory that it was told to make."""
    found = []

    def there():
        found[:] = spares(instance)
        return found and resident(found[0]) >= sum(SIZES)
    cay.wait_until(there, 30, "there is a spare template")
    return found[0]


def snapshot(instance, box, **how):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", how)["id"]


def forked(instance, name):
    return instance.post(f"/v1/snapshots/{name}/fork", {})["sandboxes"][0]["id"]


def check_all(instance):
    """Three snapshots, of which the later ones take the spare template: each holds what was there at its instant."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        snapshot(instance, box, files_only=True)
        equal(spares(instance), [])
        known = digests()
        for at in (0, 4096 * 700, SIZES[0] - 1):
            ahead = spares(instance)
            name = snapshot(instance, box)
            if ahead:
                equal(leaks.read(f"/proc/{ahead[0]}/comm").strip(), "cay-template")
            fork = forked(instance, name)
            equal(ask(instance, fork, run, "0").split(), known)
            equal(ask(instance, box, run, str(at)).split(), known)
            known = ask(instance, box, run, "0").split()
            ask(instance, box, run, "0")
            instance.remove(fork)
            full_spare(instance)


@require(*NEEDS)
def test_the_next_snapshot_takes_it(instance):
    check_all(instance)


@require("cgroup2")
def test_rootless_too(tmp):
    with rootless(tmp) as instance:
        check_all(instance)


@require(*NEEDS)
def test_nobody_needs_it(instance):
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        snapshot(instance, box)
        os.kill(full_spare(instance), signal.SIGKILL)
        fork = forked(instance, snapshot(instance, box))
        equal(ask(instance, fork, run, "0").split(), digests())
        instance.remove(fork)


@require(*NEEDS)
def test_what_is_larger_than_the_stock_is_of_huge_pages_too(instance):
    """Made ahead was what a small program took: fork() would copy the tables of the rest page by page."""
    with instance.sandbox() as small, instance.sandbox() as box:
        start(instance, small, "/usr/bin/python3", "-c", "held = bytearray(b'x' * (10 << 20))\nprint('ready', flush=True)\ninput()")
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
        snapshot(instance, small)
        cay.wait_until(lambda: spares(instance) and resident(spares(instance)[0]) >= 12 * MIB, 30, "there is a spare template")
        [template] = spares(instance)
        fork = forked(instance, snapshot(instance, box))
        equal(ask(instance, fork, run, "0").split(), digests())
        huge = next(int(line.split()[1]) << 10 for line in leaks.read(f"/proc/{template}/smaps_rollup").split("\n") if line.startswith("AnonHugePages"))
        assert huge >= 24 * MIB, f"{huge >> 20} MiB of {sum(SIZES) >> 20} lie in huge pages"
        instance.remove(fork)
