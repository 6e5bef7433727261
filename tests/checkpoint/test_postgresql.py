# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL under pgbench, forked live, rewound, suspended: it goes on from one instant, no commit is lost, and the open transaction ends in each world as that world wants."""

import os
import sys

from lib.case import equal, require
from lib.cay import POSTGRESQL

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, rootless  # noqa: E402
from postgres import Database  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 170
NEEDS = ("root", "cgroup2", f"program:{POSTGRESQL}/postgres")


def ends(database, box, how, notes):
    """The open transaction of this side ends as @how says, and leaves @notes."""
    equal(database.say(box, f"{how}; select 'over';"), "over\n")
    equal(database.query(box, "select * from notes"), notes)
    database.check(box)


def both_go_on(instance):
    with instance.sandbox() as box:
        database = Database(instance, box)
        fork = fork_live(instance, box)[0]
        again = fork_live(instance, fork)[0]
        ends(database, fork, "commit", "open")
        ends(database, box, "rollback", "")
        ends(database, again, "commit", "open")
        instance.remove(again)
        instance.remove(fork)


@require(*NEEDS)
def test_both_go_on_as_root(instance):
    both_go_on(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_both_go_on_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance)


@require(*NEEDS)
def test_suspended(instance):
    with instance.sandbox() as box:
        database = Database(instance, box)
        there_and_back(instance, box)
        database.check(box)
        there_and_back(instance, box)
        ends(database, box, "commit", "open")


@require(*NEEDS)
def test_rewind(instance):
    with instance.sandbox() as box:
        database = Database(instance, box)
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "instant", "files_only": False})
        for how, notes in (("commit", "open"), ("rollback", ""), ("commit", "open")):
            ends(database, box, how, notes)
            database.query(box, "drop table pgbench_history, numbers")
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "instant"})
        ends(database, box, "commit", "open")
        fork = instance.post("/v1/snapshots/instant/fork", {})["sandboxes"][0]["id"]
        ends(database, fork, "rollback", "")
        instance.remove(fork)
        instance.call("DELETE", "/v1/snapshots/instant")
