# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL at work in a sandbox, snapshotted and forked live: how long it stands still, and how soon a fork of it answers a query."""

import os
import sys

import measure
from forksource import milliseconds, summary

sys.path.insert(0, os.path.join(measure.TOP, "tests", "checkpoint"))
from forkcases import PHASES  # noqa: E402  pylint: disable=wrong-import-position
from postgres import DIRECTORY, Database  # noqa: E402  pylint: disable=wrong-import-position

SHARED_MIB, CLIENTS, RATE = 128, 8, 1000  # RATE: transactions a second
SETTINGS = f"shared_buffers = {SHARED_MIB}MB\\nmax_wal_size = 256MB"
TIMEOUT = 120


def snapshot_of(instance, box):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False}, timeout=TIMEOUT)


def forget(instance, snapshot):
    instance.call("DELETE", f"/v1/snapshots/{snapshot['id']}")


def answered(instance, db, snapshot):
    """A fork that has answered a query: in the session that was open in the source, in the transaction that it is in."""
    fork = instance.post(f"/v1/snapshots/{snapshot['id']}/fork", {"live": True}, timeout=TIMEOUT)["sandboxes"][0]["id"]
    if db.say(fork, "select 'here';") != "here\n":
        raise RuntimeError("the fork's session says something else")
    return fork


def begin(instance, box, scale):
    """The server with its load, its buffers full; and what it is."""
    db = Database(instance, box, scale, CLIENTS, SETTINGS, RATE)
    db.query(box, "create extension pg_prewarm", "select pg_prewarm('pgbench_accounts', 'buffer', 'main', 0, least(15000, pg_relation_size('pgbench_accounts') / 8192 - 1))")
    data = int(instance.ok(box, f"du -sm {DIRECTORY}/d").split()[0])
    processes = int(instance.ok(box, "ls -d /proc/[0-9]*/fd | wc -l"))
    return db, {"data_mib": data, "shared_mib": SHARED_MIB, "clients": CLIENTS, "rate": RATE, "processes": processes}


def database(instance, scale, clock):
    """Live snapshots of the server, each with a first fork and a further one. Behind each both sides go on, without recovery; at the end sums and an index of both are right."""
    firsts, forks, lives = [], [], []
    with instance.sandbox(limits={"memory_bytes": 4 << 30, "pids": 400}) as box:
        db, row = begin(instance, box, scale)

        def first():
            snapshot = snapshot_of(instance, box)
            return snapshot, answered(instance, db, snapshot)

        for _ in clock.rounds():
            ms, (snapshot, fork) = milliseconds(first)
            firsts.append(ms)
            lives.append(snapshot["live"])
            instance.remove(fork)
            ms, fork = milliseconds(answered, instance, db, snapshot)
            forks.append(ms)
            db.check_running(fork)
            db.check_running(box)
            instance.remove(fork)
            forget(instance, snapshot)
        snapshot, fork = first()
        db.check(fork)
        db.check(box)
        instance.remove(fork)
        forget(instance, snapshot)
    return {**row, "paused": summary([one["paused_us"] / 1000 for one in lives]), "phases": {p[:-3]: summary([one.get(p, 0) / 1000 for one in lives]) for p in PHASES},
            "first": summary(firsts), "further": summary(forks)}
