# SPDX-License-Identifier: Apache-2.0
"""Sandboxes that are prepared as forks of the snapshot that was forked last: those that are it show what any fork shows, in all others nothing is left of it."""

import contextlib
import os
import sys

from lib import cay, leaks
from lib.case import equal, require
from lib.pool import in_own_mounts

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, rootless, start  # noqa: E402

TIMEOUT = 170
POOL = 2
TURNS = 40  # prepared sandboxes may go stale because of others' mounts: then it is tried again
RIGHT, WRONG = "was foreseen\n", "was foreseen wrongly\n"
COUNTER = "import sys\nn = 0\nprint('ready', flush=True)\nfor line in sys.stdin:\n    n += 1\n    print(n, open('/var/tmp/mine').read(), flush=True)\n"
# says whether the file that it writes to is still the one that the path leads to
WRITER = ("import os, sys\nf = open('/shop/orders', 'a')\nprint('ready', flush=True)\n"
          "for line in sys.stdin:\n    f.write(line)\n    f.flush()\n    print(os.fstat(f.fileno()).st_ino == os.stat('/shop/orders').st_ino, flush=True)\n")
ENVIRONMENT = {"CAY_DEBUG": "keeper", "CAY_POOL": str(POOL)}


@contextlib.contextmanager
def telling(tmp):
    """An instance whose log says what was foreseen."""
    in_own_mounts()
    instance = cay.Instance(tmp, env=ENVIRONMENT)
    try:
        yield instance.start()
    finally:
        instance.close()


def wait_full(instance):
    cay.wait_until(lambda: instance.get("/v1/version")["pool"] == POOL, 60, "a full pool")


def until_foreseen(instance, what, act):
    before = leaks.read(instance.log).count(what)
    for _ in range(TURNS):
        wait_full(instance)
        act()
        if leaks.read(instance.log).count(what) > before:
            return
    raise AssertionError(f"{TURNS} starts, and none that {what}")


def forked(instance, snapshot, **options):
    return instance.post(f"/v1/snapshots/{snapshot['id']}/fork", options)["sandboxes"][0]["id"]


class World:
    """A sandbox with a program that counts, and a snapshot of both."""

    def __init__(self, instance):
        self.instance = instance
        self.box = instance.post("/v1/sandboxes", {})["id"]
        instance.ok(self.box, "printf first > /var/tmp/mine")
        self.run = start(instance, self.box, "/usr/bin/python3", "-c", COUNTER)
        equal(ask(instance, self.box, self.run, ""), "1 first\n")
        self.snapshot = instance.post(f"/v1/sandboxes/{self.box}/snapshots", {"files_only": False})
        self.generations = set()

    def check(self):
        """A fork is one of its own, whether or not it was foreseen; and so are what it writes, and what is started in it."""
        fork = forked(self.instance, self.snapshot)
        equal(ask(self.instance, fork, self.run, ""), "2 first\n")
        said = self.instance.ok(fork, "cat /run/cay/generation; cat /var/tmp/mine; printf changed > /var/tmp/mine; kill -0 $(pgrep -x python3) && echo ' there'")
        generation, rest = said.split("\n", 1)
        equal((rest, generation in self.generations, len(generation)), ("first there\n", False, 20))
        self.generations.add(generation)
        equal(ask(self.instance, fork, self.run, ""), "3 changed\n")
        equal(self.instance.ok(fork, "ls /run/cay; grep -c ' /run/cay/generation ' /proc/self/mountinfo"), "generation\n1\n")
        self.instance.remove(fork)

    def close(self):
        self.instance.remove(self.box)
        self.instance.call("DELETE", f"/v1/snapshots/{self.snapshot['id']}")

    def teach(self):
        for _ in range(POOL + 1):
            until_foreseen(self.instance, RIGHT, self.check)
        wait_full(self.instance)


def who_shows(instance, layer):
    """Our processes in whose root the layer is."""
    return [pid for pid in instance.own_processes() if layer in leaks.read(f"/proc/{pid}/mountinfo")]


@require("root")
def test_foreseen_or_not_it_is_the_same(tmp):
    with telling(tmp) as instance:
        world = World(instance)
        for _ in range(3):
            until_foreseen(instance, RIGHT, world.check)
        world.close()


@require("root", "userns", "newuidmap")
def test_as_an_ordinary_user(tmp):
    with rootless(tmp, **ENVIRONMENT) as instance:
        world = World(instance)
        for _ in range(3 * POOL):
            wait_full(instance)
            world.check()
        world.close()


@require("root")
def test_nothing_is_left_in_others(tmp):
    """New sandboxes, and forks of the files alone, that get what was prepared."""
    with telling(tmp) as instance:
        world = World(instance)

        def look_into(box, mine):
            equal(instance.ok(box, "cat /var/tmp/mine 2>/dev/null; ls -d /run/cay 2>/dev/null; echo made > /var/tmp/made; cat /var/tmp/made"), mine + "made\n")
            points = os.path.join(instance.state, "pool", "live", box, "points")
            equal([path for path, _, files in os.walk(points) if "generation" in files], [])

        def act(make, mine):
            # at once: those for which nothing was foreseen are taken first
            world.teach()
            boxes = [make() for _ in range(POOL)]
            for box in boxes:
                look_into(box, mine)
                instance.remove(box)
        until_foreseen(instance, WRONG, lambda: act(lambda: instance.post("/v1/sandboxes", {})["id"], ""))
        until_foreseen(instance, WRONG, lambda: act(lambda: forked(instance, world.snapshot, live=False), "first"))
        world.close()


@require("root")
def test_its_snapshot_is_removed(tmp):
    """What was prepared for its forks is cleared up, and its layers go."""
    with telling(tmp) as instance:
        world = World(instance)
        world.teach()
        layer = world.snapshot["layers"][0]
        equal(bool(who_shows(instance, layer)), True)
        world.close()
        cay.wait_until(lambda: not who_shows(instance, layer), 60, "the end of what was prepared")
        cay.wait_until(lambda: not os.path.exists(os.path.join(instance.state, "pool", "layers", layer)), 60, "the end of the layer")
        wait_full(instance)
        with instance.sandbox() as box:
            equal(instance.ok(box, "ls /var/tmp/mine 2>/dev/null || echo none"), "none\n")


@require("root", "btrfs_squota", "cgroup2")
def test_a_fork_that_gets_what_was_prepared_for_new_sandboxes_keeps_open_files_of_its_mount(tmp):
    """They are copied up again into the tree over which the foreseen mount lay: that goes before."""
    place = os.path.join(tmp, "shop")
    os.mkdir(place)
    with open(os.path.join(place, "orders"), "w", encoding="utf-8") as orders:
        orders.write("first\n")
    mounts = [{"source": place, "target": "/shop"}]
    with telling(tmp) as instance:
        box = instance.post("/v1/sandboxes", {"mounts": mounts})["id"]
        run = start(instance, box, "/usr/bin/python3", "-c", WRITER)
        equal(ask(instance, box, run, "second"), "True\n")

        def begin():
            instance.remove(instance.post("/v1/sandboxes", {"mounts": mounts})["id"])

        def act():
            for _ in range(POOL + 1):
                until_foreseen(instance, RIGHT, begin)
            wait_full(instance)
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
            equal(ask(instance, fork, run, "third"), "True\n")
            equal(instance.ok(fork, "cat /shop/orders"), "first\nsecond\nthird\n")
            instance.remove(fork)
        until_foreseen(instance, WRONG, act)
