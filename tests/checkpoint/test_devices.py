# SPDX-License-Identifier: Apache-2.0
"""Files keep their device numbers behind a resume and a rewind: a connection of SQLite that is opened there sees the lock that one from before holds."""

import contextlib
import os
import random
import sys
import time

from lib import cay
from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, rootless, start  # noqa: E402

# A transaction is open in each database from the beginning. Each line: which of them a new connection may write to all the same, and what stat() says that it did not say at the beginning.
PROGRAM = """
import os, sqlite3, sys
paths = sys.argv[1:]
def said(path):
    return [(name, os.stat(name).st_dev) for name in (path, path + "-wal", os.path.dirname(path))]
def connect(path):
    return sqlite3.connect(path, isolation_level=None, timeout=0)
all = [connect(path) for path in paths]
for one in all:
    one.execute("pragma journal_mode=wal")
    one.execute("create table if not exists rows(x)")
    one.execute("begin immediate")
    one.execute("insert into rows values(0)")
then = [said(path) for path in paths]
print("ready", flush=True)
for line in sys.stdin:
    changed = [(a, b) for p, path in zip(then, paths) for a, b in zip(p, said(path)) if a != b]
    free = []
    for path in paths:
        other = connect(path)
        try:
            other.execute("begin immediate")
            free.append(path)
        except sqlite3.OperationalError as e:
            assert "locked" in str(e), e
        other.close()  # by one that does not see the lock this removes the log
    print(free, changed, flush=True)
"""

SAME = "[] []\n"
TRIES = 30  # whoever makes a mount in just the wrong instant, on a machine with other work, takes a number away


def project(instance, tmp, name):
    top = os.path.join(tmp, name)
    os.makedirs(os.path.join(top, "a b"), exist_ok=True)
    for each in (top, os.path.join(top, "a b")):
        if instance.user:
            os.chown(each, instance.user.pw_uid, instance.user.pw_gid)
    return top


def begin(instance, box):
    run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM, "/var/tmp/own.db", "/shop one/a b/first.db", "/shop one/second.db", "/two/third.db")
    equal(ask(instance, box, run, ""), SAME)
    return run


def sandbox(instance, tmp):
    return instance.sandbox(mounts=[{"source": project(instance, tmp, "one"), "target": "/shop one"}, {"source": tmp, "target": "/host", "mode": "ro"}, {"source": project(instance, tmp, "two"), "target": "/two"}])


@contextlib.contextmanager
def others(instance, n):
    """Sandboxes that are made meanwhile take what numbers are free."""
    made = [instance.post("/v1/sandboxes", {"image": "host"})["id"] for _ in range(n)]
    yield made
    for one in made:
        instance.remove(one)


def told(instance, box):
    """What the last start of its processes said of the numbers."""
    events = [e for e in instance.events(sandbox=box) if e["type"] in ("sandbox.started", "sandbox.resumed")]
    return events[-1]["data"].get("devices_changed", False)


def kept(instance, box, run):
    """What the program says of the numbers; the event says the same."""
    said = ask(instance, box, run, "")
    equal(told(instance, box), "db" in said, said)
    return said


def until_kept(instance, tmp, rounds):
    for _ in range(TRIES):
        with others(instance, 2) as early, sandbox(instance, tmp) as box, contextlib.ExitStack() as stack:
            run = begin(instance, box)
            instance.remove(early.pop())
            said = rounds(box, run, stack)
            if said == SAME:
                return
        time.sleep(random.random() / 4)  # what the machine does besides may come at regular times
    raise AssertionError(f"the numbers were others in {TRIES} of {TRIES} tries, at last {said}")


def resumed(instance, tmp):
    def rounds(box, run, stack):
        said = ""
        for _ in range(3):
            instance.cay("suspend", box)
            stack.enter_context(others(instance, 2))
            instance.cay("resume", box)
            said = kept(instance, box, run)
            if said != SAME:
                break
        return said
    until_kept(instance, tmp, rounds)


def rewound(instance, tmp):
    def rounds(box, run, stack):
        then = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})["id"]
        said = ""
        for suspended in (False, False, True):
            if suspended:
                instance.cay("suspend", box)
            stack.enter_context(others(instance, 2))
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": then})
            said = kept(instance, box, run)
            if said != SAME:
                break
        return said
    until_kept(instance, tmp, rounds)


@require("root", "cgroup2")
def test_resumed(instance, tmp):
    resumed(instance, tmp)


@require("root", "btrfs_squota", "cgroup2")  # elsewhere a rewind does not keep inode numbers
def test_rewound(instance, tmp):
    rewound(instance, tmp)


@require("root", "cgroup2")
def test_without_layers_added_one_by_one(tmp):
    """Kernels before 6.5 make overlays by mount(2)."""
    instance = cay.Instance(tmp, env={"CAY_WITHOUT": "overlay_append"})
    with contextlib.closing(instance):
        resumed(instance.start(), tmp)


@require("root", "cgroup2")
def test_rootless(tmp):
    with rootless(tmp) as instance:
        resumed(instance, tmp)


@require("root", "cgroup2")
def test_a_fork_says_that_they_are_others(instance, tmp):
    with sandbox(instance, tmp) as box:
        run = begin(instance, box)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        equal(told(instance, fork), True)
        contains(ask(instance, fork, run, ""), "first.db")
        instance.remove(fork)


def names_databases(instance, tmp):
    """A fork, in the answer, in the event and on standard error, for as long as its processes go on."""
    with sandbox(instance, tmp) as box:
        begin(instance, box)
        start(instance, box, "/usr/bin/python3", "-c", "print('ready', flush=True)\nwith open('/var/tmp/a.log', 'w') as f: input()")
        all_of_them = ["/shop one/a b/first.db", "/shop one/second.db", "/two/third.db", "/var/tmp/own.db"]
        done = instance.cay("fork", box, "--name", "other")
        said = instance.get("/v1/sandboxes/other")
        equal(sorted(said["databases"]), all_of_them)
        equal([e for e in instance.events(sandbox=said["id"]) if e["type"] == "sandbox.started"][-1]["data"]["databases"], said["databases"])
        contains(done.stderr, "programs in 'other' have SQLite databases open (" + ", ".join(said["databases"]) + "): a connection that one of them opens from now on")
        equal((done.stdout, "databases" in instance.get(f"/v1/sandboxes/{box}")), ("other\n", False))
        instance.post("/v1/sandboxes/other/stop")
        equal("databases" in instance.get("/v1/sandboxes/other"), False)
        instance.remove("other")


@require("root", "cgroup2")
def test_a_fork_names_the_databases(instance, tmp):
    names_databases(instance, tmp)


@require("root", "cgroup2")
def test_a_fork_names_the_databases_rootless(tmp):
    with rootless(tmp) as instance:
        names_databases(instance, tmp)


@require("root", "cgroup2")
def test_no_database_no_word(instance):
    """Files that are open, and one that is called like a database and leads out."""
    with instance.sandbox() as box:
        instance.ok(box, "mkfifo /var/tmp/pipe.db; ln -s /proc/self/root/etc/passwd /var/tmp/link.db")
        start(instance, box, "/usr/bin/python3", "-c", "import os\nf = [open('/var/tmp/a.log', 'w'), open('/var/tmp/b.db', 'w+b'), os.open('/var/tmp/pipe.db', os.O_RDWR)]\n"
              "f[1].write(b'SQLite format 2' + bytes(4096)); f[1].flush()\nprint('ready', flush=True)\ninput()")
        done = instance.cay("fork", box, "--name", "other")
        equal((done.stdout, done.stderr, "databases" in instance.get("/v1/sandboxes/other")), ("other\n", "", False))
        instance.remove("other")


@require("root", "cgroup2")
def test_nothing_is_held_without_need(instance, tmp):
    """Of a program that has no file open for writing, and of what was stopped or removed while it was suspended."""
    def held():
        fds = f"/proc/{instance.process.pid}/fd"
        return sum(os.readlink(f"{fds}/{fd}") in ("/", "/two", "/shop one") for fd in os.listdir(fds) if os.path.lexists(f"{fds}/{fd}"))
    before = held()
    with sandbox(instance, tmp) as box:
        start(instance, box, "/usr/bin/python3", "-c", "print('ready', flush=True)\nimport time\ntime.sleep(1000)")
        instance.cay("suspend", box)
        equal(held(), before)
        instance.cay("resume", box)
        equal(told(instance, box), False)
    with sandbox(instance, tmp) as box:
        begin(instance, box)
        instance.cay("suspend", box)
        assert held() > before
        instance.cay("stop", box)
        equal(held(), before)
    with sandbox(instance, tmp) as box:
        begin(instance, box)
        instance.cay("suspend", box)
        assert held() > before
    equal(held(), before)
