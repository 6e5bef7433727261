# SPDX-License-Identifier: Apache-2.0
"""Files that a program has open keep their inode numbers in forks, forks of forks and behind a rewind: SQLite writes no more to a database whose number changed."""

import os
import sqlite3
import sys

from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, start  # noqa: E402

NEEDS = ("root", "btrfs_squota", "cgroup2")

# Each line: its databases get a row each; how many they have by then, and whether their numbers and all else that stat() says is as at the beginning.
PROGRAM = """
import os, sqlite3, sys
def said(path):
    s = os.stat(path)
    return s.st_ino, s.st_mode, s.st_uid, s.st_gid
paths = sys.argv[1:]
all = [sqlite3.connect(path, isolation_level=None, timeout=0) for path in paths]
for one in all:
    one.execute("create table if not exists rows(x)")
    one.execute("insert into rows values(0)")
then = [said(path) for path in paths]
folders = [os.stat(os.path.dirname(path)).st_mode for path in paths]
print("ready", flush=True)
for line in sys.stdin:
    for one in all:
        one.execute("insert into rows values(1)")
    print([one.execute("select count(*) from rows").fetchone()[0] for one in all], [said(path) for path in paths] == then,
          [os.stat(os.path.dirname(path)).st_mode for path in paths] == folders, flush=True)
"""


def project(tmp):
    top = os.path.join(tmp, "shop")
    os.makedirs(os.path.join(top, "a", "deep"))
    os.chmod(os.path.join(top, "a"), 0o750)
    for name in ("shop.db", "a/deep/er.db", "linked.db"):
        with sqlite3.connect(os.path.join(top, name)) as db:
            db.execute("create table rows(x)")
        db.close()
    return top


def says(rows, n=4):
    return f"{[rows] * n} True True\n"


@require(*NEEDS)
def test_databases_are_written_to_in_forks_and_rewound(instance, tmp):
    with instance.sandbox(mounts=[{"source": project(tmp), "target": "/shop"}]) as box:
        # a directory that was renamed, one that hides what is below, one of the sandbox's own
        instance.ok(box, "mv /shop/a /shop/b; rm -r /var/tmp/gone 2>/dev/null; mkdir -m 711 /var/tmp/gone; chown 7:8 /var/tmp/gone")
        run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM, "/shop/shop.db", "/shop/b/deep/er.db", "/root/own.db", "/var/tmp/gone/too.db")
        equal(ask(instance, box, run, ""), says(2))
        then = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})["id"]
        forks, of = [], then
        for rows in (3, 4, 5):
            fork = instance.post(f"/v1/snapshots/{of}/fork", {"live": True})["sandboxes"][0]["id"]
            equal(instance.get(f"/v1/diff?a={fork}&b={of}")["changes"], [], "what was copied up again is no change")
            equal(ask(instance, fork, run, ""), says(rows))
            of = instance.post(f"/v1/sandboxes/{fork}/snapshots", {"files_only": False})["id"]
            forks.append(fork)
        equal(ask(instance, box, run, ""), says(3))
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": then})
        equal(ask(instance, box, run, ""), says(3))
        instance.cay("suspend", box)
        instance.cay("resume", box)
        equal(ask(instance, box, run, ""), says(4))
        equal(sorted(c["path"] for c in instance.get(f"/v1/diff?a={forks[1]}")["changes"] if c["path"].endswith(".db")),
              ["/root/own.db", "/shop/b/deep/er.db", "/shop/shop.db", "/var/tmp/gone/too.db"])
        for fork in forks:
            instance.remove(fork)


@require(*NEEDS)
def test_what_a_fork_applies_is_judged_by_its_first_change(instance, tmp):
    """The copy in the fork is younger than what the machine did to the file since the sandbox had opened it."""
    top = project(tmp)
    for touched in (False, True):
        with instance.sandbox(mounts=[{"source": top, "target": "/shop"}]) as box:
            run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM, "/shop/shop.db")
            if touched:
                instance.ok(box, "sleep 0.05")
                os.utime(os.path.join(top, "shop.db"))
                instance.ok(box, "sleep 0.05")
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
            before = int(ask(instance, fork, run, "").split("]")[0][1:])
            status, _, body = instance.raw("POST", f"/v1/sandboxes/{fork}/apply", b"{}", {"Content-Type": "application/json"})
            equal(status // 100, 4 if touched else 2, body)
            if touched:
                contains(body.decode(), "shop.db")
            else:
                equal(sqlite3.connect(os.path.join(top, "shop.db")).execute("select count(*) from rows").fetchone()[0], before)
            instance.remove(fork)


@require(*NEEDS)
def test_hard_links_stay_one_file(instance, tmp):
    """What has several names is not copied: the names would be two files."""
    with instance.sandbox(mounts=[{"source": project(tmp), "target": "/shop"}]) as box:
        instance.ok(box, "echo >> /shop/linked.db; ln /shop/linked.db /shop/other.db")
        run = start(instance, box, "/usr/bin/python3", "-c", "import sys\nf = open('/shop/linked.db')\nprint('ready', flush=True)\nfor line in sys.stdin: print('here', flush=True)")
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        equal(ask(instance, fork, run, ""), "here\n")
        instance.ok(fork, "[ /shop/linked.db -ef /shop/other.db ]")
        instance.remove(fork)
