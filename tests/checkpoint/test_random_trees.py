# SPDX-License-Identifier: Apache-2.0
"""Trees of processes as chance would have it (objects/random_tree.c), through a live fork and a suspension: everybody is where it was, or the tree is refused by name."""

import os
import sys

from lib.case import contains, equal, require, timeout
from lib.cay import ApiError, BUILD

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, put_file, rootless, say, start  # noqa: E402
from suspending import there_and_back  # noqa: E402

FIRST = int(os.environ.get("CAY_TEST_SEED", "0"))
TREES = int(os.environ.get("CAY_TEST_ROUNDS", "16"))


def check(instance, box, run, seed):
    say(instance, box, run, "check\n")
    status = instance.wait(box, run, 15)
    said = instance.output(box, run).decode()
    equal((seed, status["status"], status.get("code"), said), (seed, "exited", 0, "ready\nfine\n"))


def forked(instance, box):
    """A fork; None if the tree is one that nobody can make."""
    try:
        return fork_live(instance, box)[0]
    except ApiError as error:
        equal(error.code, "unsupported")
        contains(error.message, "nobody can put it into")
        return None


def goes_on(instance, seed):
    """Return: is it a tree that can be made?"""
    with instance.sandbox() as box:
        put_file(instance, box, os.path.join(BUILD, "tests", "checkpoint", "random_tree"), "/tmp/random_tree")
        run = start(instance, box, "/tmp/random_tree", str(seed))
        fork = forked(instance, box)
        if fork is None:
            return False
        there_and_back(instance, box)
        for one in (fork, box):
            check(instance, one, run, seed)
        instance.remove(fork)
        return True


def all_go_on(instance, seeds):
    made = [goes_on(instance, seed) for seed in seeds]
    assert made.count(True) > len(made) // 2, f"only {made.count(True)} of {len(made)} trees could be made"


@timeout(20 + 10 * TREES)
@require("root", "cgroup2")
def test_random_trees(instance):
    all_go_on(instance, range(FIRST, FIRST + TREES))


@require("root", "userns", "newuidmap")
def test_random_trees_rootless(tmp):
    with rootless(tmp) as instance:
        all_go_on(instance, range(FIRST, FIRST + 4))
