# SPDX-License-Identifier: Apache-2.0
"""Memory and files are of one instant, however much of them changes meanwhile. How long the source stood still is printed (-v), never judged."""

import json
import os
import sys

from lib.case import contains, equal, raises, require
from lib.cay import ApiError, POSTGRESQL

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "crash")]
from forking import ask, fork_live, put, start  # noqa: E402
from points import own_instance  # noqa: E402
from postgres import Database  # noqa: E402

TIMEOUT = 170
NEEDS = ("root", "cgroup2")

FILES = """
import hashlib, os, random, sys, threading
N, DIRECTORY = 10000, "/tmp/many"
os.mkdir(DIRECTORY)
lock, expected = threading.Lock(), [0] * N
def put(i, value):
    with open(f"{DIRECTORY}/{i}", "w") as f:
        f.write(f"{value} " * 200)
    expected[i] = value
for i in range(N):
    put(i, 0)
def change():
    r = random.Random(1)
    while True:
        with lock:
            put(r.randrange(N), r.randrange(1 << 30))
threading.Thread(target=change, daemon=True).start()
def check():
    h = hashlib.sha256()
    for i in range(N):
        with open(f"{DIRECTORY}/{i}") as f:
            text = f.read()
        if text != f"{expected[i]} " * 200:
            return f"file {i} is not of the instant of the memory"
        h.update(text.encode())
    return "equal " + str(sum(1 for v in expected if v) > 0)
print("ready", flush=True)
for line in sys.stdin:
    with lock:
        print(check(), flush=True)
"""

SHARED = """
import hashlib, mmap, os, sys
SIZE = 128 << 20
m = mmap.mmap(-1, SIZE)
for i in range(0, SIZE, 4096):
    m[i:i + 8] = (i * 2654435761 & (1 << 63) - 1).to_bytes(8, "little")
if os.fork() == 0: # a relative that goes on writing into it
    n = 0
    while True:
        n += 1
        m[4000:4008] = n.to_bytes(8, "little")
def goes_on():
    before = m[4000:4008]
    while m[4000:4008] == before: pass
    return True
def digest():
    h = hashlib.sha256(m[:4000])
    h.update(memoryview(m)[4008:])
    return h.hexdigest()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def tell_pause(instance, box, what):
    mine = [s for s in instance.get(f"/v1/snapshots?sandbox={box}")["snapshots"] if s["live"]]
    print(f"{what}: the source stood still for {mine[-1]['live']['paused_us'] / 1000:.1f} ms", json.dumps(mine[-1]["live"]))


@require(*NEEDS)
def test_ten_thousand_files_that_change(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/files.py", FILES)
        run = start(instance, box, "/usr/bin/python3", "/tmp/files.py")
        forks = [fork_live(instance, box)[0] for _ in range(3)]
        tell_pause(instance, box, "10,000 files")
        for one in forks + [box]:
            equal(ask(instance, one, run, "check"), "equal True\n")
        for one in forks:
            instance.remove(one)


@require(*NEEDS)
def test_shared_memory_that_changes(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/shared.py", SHARED)
        run = start(instance, box, "/usr/bin/python3", "/tmp/shared.py")
        fork = fork_live(instance, box)[0]
        tell_pause(instance, box, "128 MB of shared memory")
        whole = ask(instance, box, run, "digest()")
        equal(ask(instance, fork, run, "digest()"), whole)
        for one in (fork, box):
            equal(ask(instance, one, run, "goes_on()"), "True\n")
        instance.remove(fork)


ALL_ROWS = " || ' ' || ".join(f"(select sum(hashtextextended(t::text, 0)) from pgbench_{name} t)" for name in ("accounts", "tellers", "branches", "history"))


@require(*NEEDS, f"program:{POSTGRESQL}/postgres")
def test_a_database_under_load(instance):
    """A transaction that began before sees the same rows in every fork, whatever has been changed and written out since."""
    with instance.sandbox() as box:
        database = Database(instance, box, scale=5, settings="checkpoint_timeout = 30s\\nbgwriter_delay = 10ms")
        equal(database.say(box, "rollback; begin isolation level repeatable read; select count(*) > 0 from pgbench_history;"), "t\n")
        forks = [fork_live(instance, box)[0]]
        forks += fork_live(instance, forks[0])
        tell_pause(instance, box, "PostgreSQL under pgbench")
        digest = database.say(box, f"select {ALL_ROWS};")
        for one in forks:
            equal(database.say(one, f"select {ALL_ROWS};"), digest)
            database.check(one)
        database.check(box)
        for one in reversed(forks):
            instance.remove(one)


@require(*NEEDS)
def test_files_that_cannot_be_captured(tmp):
    """Whoever asked is told why by the job, not that the keeper cannot reach it; the source goes on."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="store.capture.frozen=error")
        with instance.sandbox() as box:
            put(instance, box, "/tmp/shared.py", SHARED)
            run = start(instance, box, "/usr/bin/python3", "/tmp/shared.py")
            error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/snapshots", {"files_only": False})
            contains(str(error), f"capture sandbox '{box}': Input/output error")
            equal(ask(instance, box, run, "goes_on()"), "True\n")


MAPPED = """
import mmap, sys
f = open("/var/tmp/mapped", "w+b")
f.write(bytes(1 << 16))
f.flush()
m = mmap.mmap(f.fileno(), 0)
print("ready", flush=True)
for line in sys.stdin:
    m[0] = m[65535] = int(line)
    print("stored", flush=True)
"""


@require("root", "cgroup2")
def test_what_is_stored_through_a_mapping_between_two_captures_by_copy(instance):
    """Where the page was dirty already no time of the file has moved: that it is mapped is how it is known."""
    with instance.sandbox(limits={"inodes": 1000, "disk_bytes": 16 << 20}) as box:
        run = start(instance, box, "/usr/bin/python3", "-c", MAPPED)
        for n in range(1, 6):
            equal(ask(instance, box, run, str(n)), "stored\n")
            taken = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})
            equal(taken["capture"], "copy")
            fork = instance.post(f"/v1/snapshots/{taken['id']}/fork", {"live": False})["sandboxes"][0]["id"]
            equal(instance.ok(fork, "od -An -tu1 -N1 /var/tmp/mapped; tail -c 1 /var/tmp/mapped | od -An -tu1").split(), [str(n)] * 2)
            instance.remove(fork)
