# SPDX-License-Identifier: Apache-2.0
"""Many clients at once, each with its own idea of the same few sandboxes: every request ends, with success or with an error that says whose turn it was,
and the server never fails; in the end somebody shuts it down while the others go on. Which operations follow each other is drawn from a seed, which a failure names."""

import os
import random
import sys
import time

from lib.case import equal, require
from lib.pace import patience

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from hands import Client, Place  # noqa: E402

TIMEOUT = 300
ENDING = 2  # seconds that the clients go on beyond the shutdown


def many_hands(instance, kills):
    seconds = int(os.environ.get("CAY_TEST_SECONDS", "12"))
    seed = int(os.environ.get("CAY_TEST_SEED", random.randrange(1 << 30)))
    print("seed", seed)
    place = Place(instance, kills)
    end = time.monotonic() + seconds
    clients = [Client(place, seed + n, end if n < 6 else end + ENDING) for n in range(8)]
    for client in clients[:6]:
        client.thread.join()
    place.ending = True
    instance.post("/v1/shutdown", {"sandboxes": "stop"}, timeout=patience(120))
    for client in clients:
        client.thread.join()
    instance.process.wait(patience(120))
    equal([f"seed {seed}: {fault}" for fault in place.faults], [])
    print(dict(sorted(place.done.items())))
    assert place.enough(), f"seed {seed}: only {place.done}"


@require("root", "cgroup2")
def test_many_hands(fresh):
    many_hands(fresh, kills=False)


@require("root", "cgroup2")
def test_many_hands_some_of_which_kill(fresh):
    """kill -9 of keepers, gateways and templates, and of whatever else of ours there is but the server, some of which has stood still before."""
    many_hands(fresh, kills=True)
