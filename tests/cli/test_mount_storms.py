# SPDX-License-Identifier: Apache-2.0
"""Starts on a machine whose mounts change: prepared sandboxes are stale then, and nobody may wait for their clearing up, nor may new ones be made for nothing."""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading

from lib import cay, leaks
from lib.case import equal, require
from lib.pool import in_own_mounts

POOL = 4


def prepared(instance):
    return instance.get("/v1/version")["pool"]


def wait_full(instance):
    cay.wait_until(lambda: prepared(instance) == len(sockets(instance)) == POOL, 60, "a full pool, and nothing else")


def logged(instance, text):
    """How often the log says it."""
    return leaks.read(instance.log).count(text)


def stale_batches(instance):
    return logged(instance, "prepared sandboxes are stale")


def cleared_up(instance):
    return logged(instance, "is cleared up")


def processes_named(instance, name):
    """Pids of the instance's processes whose program is @name."""
    return {pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/cmdline").split("\0")[0].rpartition("/")[2] == name}


def sockets(instance):
    return set(os.listdir(os.path.join(instance.run, "keepers")))


@contextlib.contextmanager
def mounted(place):
    # by the calls themselves: a storm of programs is none where they take longer than the server waits for quiet
    libc, at = ctypes.CDLL(None, use_errno=True), place.encode()
    equal(libc.mount(b"tmpfs", at, b"tmpfs", 0, b"size=1m"), 0, "mount")
    try:
        yield
    finally:
        equal(libc.umount2(at, 0), 0, "umount")


@contextlib.contextmanager
def instance_telling(tmp):
    """One whose log says what becomes of its prepared sandboxes. It sees the mounts of this test alone."""
    in_own_mounts()
    instance = cay.Instance(parent=tmp, env={"CAY_DEBUG": "pool", "CAY_POOL": str(POOL)})
    try:
        yield instance.start()
    finally:
        instance.close()


@require("root")
def test_what_stale_ones_had_made_goes(tmp):
    """Their directories in the pool are nobody's."""
    with instance_telling(tmp) as instance:
        wait_full(instance)
        live = os.path.join(instance.state, "pool", "live")
        before = set(os.listdir(live))
        equal(len(before), POOL)
        place = os.path.join(tmp, "place")
        os.mkdir(place)
        with mounted(place):
            instance.cay("run", "--rm", "--", "true")
            cay.wait_until(lambda: not before & set(os.listdir(live)), 60, "the directories of stale ones are gone")
        wait_full(instance)


@require("root")
def test_stale_ones_are_cleared_up_behind_the_start(tmp):
    """While the new sandbox is being prepared (here: cannot be, because who would start it stands still) the stale ones are left alone."""
    place = os.path.join(tmp, "disk")
    os.mkdir(place)
    with instance_telling(tmp) as instance:
        wait_full(instance)
        before, batches, cleared = sockets(instance), stale_batches(instance), cleared_up(instance)
        spawner, = processes_named(instance, "cay-spawn")
        with mounted(place):
            os.kill(spawner, signal.SIGSTOP)
            try:
                run = instance.popen([os.path.join(instance.programs, "cay"), "run", "--rm", "--", "echo", "there"], stdout=subprocess.PIPE, text=True)
                cay.wait_until(lambda: stale_batches(instance) > batches, 60, "the start")
                for _ in range(50):  # turns of its loop, and requests that keep it busy
                    equal(prepared(instance), 0)
                equal((sockets(instance) >= before, cleared_up(instance)), (True, cleared))
            finally:
                os.kill(spawner, signal.SIGCONT)
            equal((run.communicate(timeout=cay.patience(60))[0], run.returncode), ("there\n", 0))
            cay.wait_until(lambda: not sockets(instance) & before, 60, "the stale ones have gone")
            wait_full(instance)
            # more where another batch went stale meanwhile: who removes a directory that was a place of mounts when this test's were copied (a test beside it, its
            # pool) takes that mount off here, too
            assert cleared_up(instance) >= cleared + POOL


class Storm(threading.Thread):
    """Mounts and unmounts without a pause."""

    def __init__(self, place):
        super().__init__()
        self.place, self.over, self.rounds = place, False, 0

    def run(self):
        while not self.over:
            with mounted(self.place):
                self.rounds += 1

    def __enter__(self):
        self.start()
        cay.wait_until(lambda: self.rounds > 0, 60, "a first mount")
        return self

    def __exit__(self, *unused):
        self.over = True
        self.join()


@require("root")
def test_nothing_is_prepared_in_a_storm(tmp):
    """Each batch that is lost doubles the time that mounts have to be quiet before another one is made, so a storm costs a few of them, not one for each start."""
    runs = 24
    place = os.path.join(tmp, "disk")
    os.mkdir(place)
    with instance_telling(tmp) as instance:
        wait_full(instance)
        with Storm(place):
            batches = stale_batches(instance)
            for turn in range(runs):
                equal(instance.cay("run", "--rm", "--", "echo", str(turn)).stdout, f"{turn}\n")
            lost = stale_batches(instance) - batches
        assert 0 < lost <= runs / 3, f"{lost} batches of prepared sandboxes were lost in {runs} starts"
        wait_full(instance)  # when it is over


@require("root")
def test_the_server_ends_while_stale_ones_are_left(tmp):
    place = os.path.join(tmp, "disk")
    os.mkdir(place)
    with instance_telling(tmp) as instance:
        for _ in range(3):
            wait_full(instance)
            with mounted(place):
                equal(instance.cay("run", "--rm", "--", "echo", "there").stdout, "there\n")
                instance.stop()
            instance.check_clean()
            instance.start()


@require("root")
def test_who_looks_into_a_prepared_one_does_not_hide_a_mount_point(tmp):
    """A directory that somebody has open (a tool outside, or what is prepared inside and looks a user up) is as it was before the mount point came into it, until he has done."""
    place = os.path.join(tmp, "place")
    os.mkdir(place)
    with instance_telling(tmp) as instance:
        wait_full(instance)
        looking = [os.open(f"/proc/{pid}/root/etc/passwd", os.O_RDONLY) for pid in processes_named(instance, "cay-init")]
        assert len(looking) >= POOL, looking
        done = threading.Timer(0.05, lambda: [os.close(fd) for fd in looking])
        done.start()
        try:
            box = instance.post("/v1/sandboxes", {"mounts": [{"source": place, "target": "/etc/new/place", "mode": "ro"}]})["id"]
            instance.ok(box, "test -d /etc/new/place")
            instance.remove(box)
        finally:
            done.join()
