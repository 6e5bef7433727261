# SPDX-License-Identifier: Apache-2.0
"""Contracts FORK (files) and DATA: what a snapshot holds, what it leaves alone, and what it never does."""

import contextlib
import errno
import hashlib
import hmac
import json
import os
import sqlite3
import subprocess
import threading

from lib import cay, job
from lib.cay import ApiError
from lib.case import contains, equal, raises, require, timeout

TIMEOUT = 120


def take(instance, box, name):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": name})


def fork(instance, source, kind="snapshots"):
    return instance.post(f"/v1/{kind}/{source}/fork", {})["sandboxes"][0]["id"]


def drop(instance, *names):
    for name in names:
        instance.call("DELETE", f"/v1/snapshots/{name}")


@require("root", "btrfs")
def test_the_layer_of_a_durable_snapshot_cannot_be_written(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo one >/file")
        layer = os.path.join(instance.state, "pool", "layers", take(instance, box, "closed")["layers"][0])
        error = raises(OSError, os.mkdir, os.path.join(layer, "mine"))
        equal(error.errno, errno.EROFS)
        drop(instance, "closed")


def waiting(instance, box, program, ready=b"ready"):
    """A Python program that prints "ready", then waits for a line; gives a function that sends the line and returns its output."""
    run = instance.exec(box, "/usr/bin/python3", "-c", program, stdin=True)
    stream = instance.attach(box, run)
    text = b""
    while ready not in text:
        frame = stream.next()
        assert frame is not None, f"ended early: {text!r}"
        if frame[0] in (cay.STDOUT, cay.STDERR):
            text += frame[2][8:]

    def go_on():
        stream.send(cay.STDIN, b"go\n")
        out, err, status = stream.collect()
        equal((status["status"], status.get("code")), ("exited", 0), (out + err).decode())
        return out.decode()
    return go_on


def test_a_name_can_be_taken_once_and_an_unknown_one_not_at_all(instance):
    with instance.sandbox() as box:
        take(instance, box, "n1")
        equal(raises(cay.ApiError, take, instance, box, "n1").code, "exists")
        equal(raises(cay.ApiError, take, instance, "nope", "n2").code, "not_found")
        equal(raises(cay.ApiError, fork, instance, "nope").code, "not_found")
        equal(len(instance.get("/v1/snapshots")["snapshots"]), 1)
        drop(instance, "n1")


def test_a_name_goes_before_the_beginning_of_an_id_of_the_other_kind(fresh):
    """`cay rm -f` of a snapshot by its name must not remove the sandbox whose id happens to begin with it."""
    with fresh.sandbox() as box:
        point = take(fresh, box, box[:4])
        equal(fresh.json("info", box[:4])["id"], point["id"])
        equal(fresh.get(f"/v1/diff?a={box[:4]}")["a"], point["id"])
        equal(raises(cay.ApiError, fresh.call, "DELETE", f"/v1/sandboxes/{box[:4]}?force=true").code, "not_found")
        with fresh.sandbox(name=point["id"][:4]) as other:
            copy = fresh.cay("fork", "--files-only", point["id"][:4]).stdout.strip()
            equal(fresh.get(f"/v1/sandboxes/{copy}")["parent"], other)
            fresh.remove(copy)
        fresh.cay("rm", "-f", box[:4])
        equal(raises(cay.ApiError, fresh.get, f"/v1/snapshots/{point['id']}").code, "not_found")
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "running")


@require("group")
def test_memory_is_refused_not_pretended(instance):
    """A live snapshot holds processes; one that cannot be held is refused by name, and there is no snapshot of half of it."""
    with instance.sandbox() as box:
        exec_id = instance.json("exec", "-d", box, "--", "/usr/bin/python3", "-c",
                                "import os, time; os.mkfifo('/tmp/p'); p = os.open('/tmp/p', os.O_RDWR); os.unlink('/tmp/p'); print('held', flush=True); time.sleep(600)")["id"]
        cay.wait_until(lambda: "held" in instance.cay("logs", box, exec_id).stdout, 30, "the socket")
        for kind, body in (("snapshots", {}), ("snapshots", {"files_only": False}), ("fork", {}), ("fork", {"live": True})):
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{kind}", body)
            equal(error.code, "unsupported")
            contains(error.message, "(python3): descriptor 3 is a deleted named pipe")
            contains(error.hint, "--files-only")
        equal(instance.get("/v1/snapshots")["snapshots"], [])
        instance.cay("snapshot", box, "--files-only", "--name", "files")
        equal(instance.get("/v1/snapshots/files")["files_only"], True)
        drop(instance, "files")


def test_rewinding_to_a_foreign_snapshot_is_refused(instance):
    with instance.sandbox() as one, instance.sandbox() as other:
        take(instance, one, "foreign")
        error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{other}/rewind", {"snapshot": "foreign"})
        assert error.code in ("invalid", "state", "conflict"), error.code
        contains(error.message, "snapshot 'foreign' is not of the lineage")
        equal(instance.ok(other, "echo alive"), "alive\n")
        drop(instance, "foreign")


def test_a_snapshot_holds_what_was_written_just_before(instance):
    with instance.sandbox() as box:
        for number in range(10):
            instance.ok(box, f"echo {number} > /var/tmp/x")
            take(instance, box, f"just-{number}")
        for number in range(10):
            copy = fork(instance, f"just-{number}")
            equal(instance.ok(copy, "cat /var/tmp/x"), f"{number}\n")
            instance.call("DELETE", f"/v1/sandboxes/{copy}?force=true")
        drop(instance, *[f"just-{n}" for n in range(10)])


def test_forks_share_nothing(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo base > /var/tmp/x; mkdir /var/tmp/d; echo a > /var/tmp/d/a")
        take(instance, box, "share")
        one, two = fork(instance, "share"), fork(instance, "share")
        instance.ok(one, "echo one > /var/tmp/x; rm -r /var/tmp/d")
        instance.ok(two, "echo two >> /var/tmp/x; echo b > /var/tmp/d/b")
        equal(instance.ok(box, "cat /var/tmp/x; ls /var/tmp/d"), "base\na\n")
        equal(instance.ok(one, "cat /var/tmp/x; ls -d /var/tmp/d 2>/dev/null || echo none"), "one\nnone\n")
        equal(instance.ok(two, "cat /var/tmp/x; ls /var/tmp/d"), "base\ntwo\na\nb\n")
        for copy in (one, two):
            instance.call("DELETE", f"/v1/sandboxes/{copy}?force=true")
        drop(instance, "share")


def test_a_fork_of_a_running_sandbox_is_of_now(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo now > /var/tmp/x")
        copy = fork(instance, box, "sandboxes")
        equal(instance.ok(copy, "cat /var/tmp/x"), "now\n")
        equal(instance.get(f"/v1/sandboxes/{copy}")["parent"], instance.get(f"/v1/sandboxes/{box}")["id"])
        instance.call("DELETE", f"/v1/sandboxes/{copy}?force=true")


def test_rewind_puts_everything_back(instance):
    with instance.sandbox() as box:
        instance.ok(box, "cd /var/tmp; echo 1 > a; mkdir -p d/e; echo 2 > d/e/f; ln -s a l; ln a h; chmod 640 a; mkfifo p")
        listing = "cd /var/tmp; find . -mindepth 1 -printf '%p %y %m %l %n\\n' | sort; cat a d/e/f"
        before = instance.ok(box, listing)
        take(instance, box, "back")
        instance.ok(box, "cd /var/tmp; rm -rf d l; echo 9 > a; echo new > n; chmod 600 h; mkdir l; rm p; echo > p; rm /etc/hostname")
        ident = instance.get(f"/v1/sandboxes/{box}")
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "back"})
        after = instance.get(f"/v1/sandboxes/{box}")
        equal((after["id"], after["name"], after["state"]), (ident["id"], ident["name"], "running"))
        equal(instance.ok(box, listing), before)
        instance.ok(box, "test -e /etc/hostname")
        equal(instance.get(f"/v1/diff?a={box}&b=back")["changes"], [])
        drop(instance, "back")


def test_rewind_again_and_again(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo 0 > /var/tmp/x")
        take(instance, box, "again")
        for _ in range(5):
            instance.ok(box, "echo more >> /var/tmp/x; rm -f /etc/motd; touch /var/tmp/$$")
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "again"})
            equal(instance.ok(box, "cat /var/tmp/x; ls /var/tmp"), "0\nx\n")
        drop(instance, "again")


@timeout(240)
def test_a_chain_of_fifty_snapshots(instance):
    with instance.sandbox() as box:
        for number in range(50):
            instance.ok(box, f"echo {number} > /var/tmp/f{number}; rm -f /var/tmp/f{number - 3}")
            take(instance, box, f"chain-{number}")
        copy = fork(instance, "chain-49")
        equal(instance.ok(copy, "ls /var/tmp"), "f47\nf48\nf49\n")
        early = fork(instance, "chain-1")
        equal(instance.ok(early, "ls /var/tmp"), "f0\nf1\n")
        for name in (copy, early):
            instance.call("DELETE", f"/v1/sandboxes/{name}?force=true")
        drop(instance, *[f"chain-{n}" for n in range(50)])


# ---- a running program does not notice -------------------------------------------------------------------------------------------

OPEN_FILES = """
import os, sys, fcntl, mmap
fd = os.open('/var/tmp/open', os.O_RDWR | os.O_CREAT); os.write(fd, b'before')
lock = os.open('/var/tmp/lock', os.O_RDWR | os.O_CREAT); fcntl.flock(lock, fcntl.LOCK_EX)
gone = os.open('/var/tmp/gone', os.O_RDWR | os.O_CREAT); os.write(gone, b'unlinked'); os.unlink('/var/tmp/gone')
os.ftruncate(lock, 4096); shared = mmap.mmap(lock, 4096)
shared[:5] = b'first'
os.mkdir('/var/tmp/cwd'); os.chdir('/var/tmp/cwd')
ino = os.fstat(fd).st_ino
print('ready', flush=True); sys.stdin.readline()
os.write(fd, b'+after'); assert open('/var/tmp/open').read() == 'before+after'
assert os.pread(gone, 99, 0) == b'unlinked'
assert os.fstat(fd).st_ino == ino == os.stat('/var/tmp/open').st_ino
other = os.open('/var/tmp/lock', os.O_RDWR)
try:
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB); sys.exit('the lock is gone')
except BlockingIOError: pass
shared[:6] = b'second'; assert os.pread(other, 6, 0) == b'second'
os.pwrite(other, b'third', 0); assert shared[:5] == b'third'
open('relative', 'w').write('x'); assert os.path.exists('/var/tmp/cwd/relative')
print('good')
"""

SOCKETS = """
import os, socket, sys, threading
s = socket.socket(socket.AF_UNIX); s.bind('/var/tmp/sock'); s.listen()
t = socket.create_server(('127.0.0.1', 0)); port = t.getsockname()[1]
a, b = socket.socketpair()
c = socket.create_connection(('127.0.0.1', port)); d, _ = t.accept()
os.mkfifo('/var/tmp/fifo'); f = os.open('/var/tmp/fifo', os.O_RDWR)
os.write(f, b'in the pipe'); c.sendall(b'in flight')
print('ready', flush=True); sys.stdin.readline()
n = socket.socket(socket.AF_UNIX); n.connect('/var/tmp/sock'); p, _ = s.accept(); n.sendall(b'x'); assert p.recv(1) == b'x'
assert d.recv(99) == b'in flight'; a.sendall(b'y'); assert b.recv(1) == b'y'
g = os.open('/var/tmp/fifo', os.O_RDWR); assert os.read(g, 99) == b'in the pipe'
print('good')
"""

WATCHES = """
import ctypes, os, select, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0); os.mkdir('/var/tmp/w'); assert libc.inotify_add_watch(fd, b'/var/tmp/w', 0x100) >= 0
print('ready', flush=True); sys.stdin.readline()
assert not select.select([fd], [], [], 0)[0], 'an event that nobody caused'
open('/var/tmp/w/new', 'w').close()
assert select.select([fd], [], [], 10)[0], 'the watch is dead'
assert b'new' in os.read(fd, 4096)
print('good')
"""

LANDLOCK = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
attr = struct.pack('QQQ', 1 << 1 | 1 << 8, 0, 0)  # write files, make regular files
fd = libc.syscall(444, attr, 8, 0)
assert fd >= 0, f'no ruleset: errno {ctypes.get_errno()}'
os.mkdir('/var/tmp/may'); os.mkdir('/var/tmp/maynot')
beneath = os.open('/var/tmp/may', os.O_PATH)
rule = struct.pack('=Qi', 1 << 1 | 1 << 8, beneath)
assert libc.syscall(445, fd, 1, rule, 0) == 0
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, fd, 0) == 0
print('ready', flush=True); sys.stdin.readline()
open('/var/tmp/may/a', 'w').write('x')
try: open('/var/tmp/maynot/a', 'w'); sys.exit('the rule is gone')
except PermissionError: pass
print('good')
"""


def check_undisturbed(instance, program):
    with instance.sandbox() as box:
        go_on = waiting(instance, box, program)
        for number in range(3):
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": f"und-{number}", "files_only": True})
        contains(go_on(), "good")
        drop(instance, "und-0", "und-1", "und-2")


def test_descriptors_mappings_locks_and_directories_go_on(instance):
    check_undisturbed(instance, OPEN_FILES)


def test_sockets_and_fifos_go_on(instance):
    check_undisturbed(instance, SOCKETS)


def test_watches_go_on(instance):
    check_undisturbed(instance, WATCHES)


@require("landlock")
def test_landlock_rules_go_on(instance):
    check_undisturbed(instance, LANDLOCK)


@timeout(300)
def test_a_log_that_is_being_written_loses_nothing(instance):
    """A process appends without pause during 100 snapshots: the file is whole, and each snapshot holds a prefix of it."""
    program = "import os,sys\nf=os.open('/var/tmp/log',os.O_WRONLY|os.O_CREAT|os.O_APPEND)\nprint('ready',flush=True)\nimport select\nn=0\n" \
              "while not select.select([0],[],[],0)[0]:\n  os.write(f,b'%08d\\n'%n); n+=1\nprint(n)\n"
    with instance.sandbox() as box:
        go_on = waiting(instance, box, program)
        instance.ok(box, "until [ -s /var/tmp/log ]; do sleep 0.01; done")  # the first one holds something, too
        for number in range(100):
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": f"log-{number}"})
        lines = int(go_on().split()[-1])
        want = "".join(f"{i:08d}\n" for i in range(lines)).encode()
        status, _, whole = instance.raw("GET", f"/v1/sandboxes/{box}/files?path=/var/tmp/log")
        equal((status, len(whole), whole == want), (200, len(want), True))
        last, grew = 0, 0
        for number in range(0, 100, 9):
            copy = fork(instance, f"log-{number}")
            _, _, part = instance.raw("GET", f"/v1/sandboxes/{copy}/files?path=/var/tmp/log")
            assert want.startswith(part), f"snapshot {number} is no prefix"
            assert len(part) >= last, "an earlier snapshot holds more"
            grew += len(part) > last
            last = len(part)
            instance.call("DELETE", f"/v1/sandboxes/{copy}?force=true")
        # the program writes on between them, though it need not get its turn between any two
        assert grew >= 6, f"{grew} snapshots of 12 hold more than the one before"
        drop(instance, *[f"log-{n}" for n in range(100)])


@require("root")
def test_a_layer_never_changes(instance):
    def hashes(layer):
        found = subprocess.run(["find", layer, "-type", "f", "-exec", "sha256sum", "{}", "+"], stdout=subprocess.PIPE, check=True).stdout
        return sorted(found.splitlines())
    with instance.sandbox() as box:
        instance.ok(box, "cd /var/tmp; for i in 1 2 3 4 5; do head -c 100000 /dev/urandom > f$i; done")
        snapshot = take(instance, box, "fixed")
        layers = [os.path.join(instance.state, "pool", "layers", name) for name in snapshot["layers"]]
        before = [hashes(layer) for layer in layers if os.path.isdir(layer)]
        assert any(before), f"no layer of {snapshot} is on disk"
        copy = fork(instance, "fixed")
        for target in (box, copy):
            instance.ok(target, "cd /var/tmp; for i in 1 2 3; do echo changed >> f$i; done; truncate -s 5 f4; rm f5; "
                        "/usr/bin/python3 -c 'import mmap,os; f=os.open(\"f1\",os.O_RDWR); m=mmap.mmap(f,4096); m[:4]=b\"mmap\"'")
        equal([hashes(layer) for layer in layers if os.path.isdir(layer)], before)
        equal(instance.post("/v1/snapshots/fixed/verify")["state"], "verified")
        instance.call("DELETE", f"/v1/sandboxes/{copy}?force=true")
        drop(instance, "fixed")


def test_what_could_not_be_made_durable_is_tried_again(tmp):
    """A full disk has room again one day; nobody has to ask."""
    instance = cay.Instance(tmp)
    instance.start(CAY_FAULT="snapshot.durable.before:1=error,snapshot.verify.before:1=error")
    try:
        with instance.sandbox() as box:
            snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {})
            equal(snapshot["state"], "sealed")
            cay.wait_until(lambda: instance.get(f"/v1/snapshots/{snapshot['id']}")["state"] == "verified", 90, "it is verified")
    finally:
        instance.close()


@require("root")
def test_a_corrupt_snapshot_is_refused(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "head -c 100000 /dev/zero > /var/tmp/victim")
        snapshot = take(fresh, box, "rotten")
        victim = subprocess.run(["find", *[os.path.join(fresh.state, "pool", "layers", name) for name in snapshot["layers"]], "-name", "victim"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout.split()
        equal(len(victim), 1)
        subprocess.run(["btrfs", "property", "set", "-ts", os.path.join(fresh.state, "pool", "layers", snapshot["layers"][0]), "ro", "false"],
                       check=False, capture_output=True)
        with open(victim[0], "r+b") as f:
            f.seek(50000)
            f.write(b"x")
        error = raises(cay.ApiError, fresh.post, "/v1/snapshots/rotten/verify")
        equal(error.code, "corrupt")
        contains(error.message, "victim")
        equal(fresh.get("/v1/snapshots/rotten")["state"], "corrupt")
        equal(raises(cay.ApiError, fork, fresh, "rotten").code, "corrupt")
        drop(fresh, "rotten")


def list_as_before(instance, layer):
    """The signed list of @layer as it was before it had a first line: with the plain SHA-256 of each file."""
    path = os.path.join(instance.state, "pool", "verified", f"{layer}.json")
    with open(path, encoding="ascii") as f:
        lines = [json.loads(line) for line in f]
    equal(lines[0], ["digest_data"])
    for line in lines[1:-1]:
        if line[1] == "file":
            with open(os.path.join(instance.state, "pool", "layers", layer, line[0]), "rb") as f:
                line[6] = hashlib.sha256(f.read()).hexdigest()
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines[1:-1]).encode()
    with open(os.path.join(instance.state, "key"), "rb") as f:
        signed = hmac.new(f.read(32), text, "sha256").hexdigest()
    with open(path, "wb") as f:
        f.write(text + f'["hmac","{signed}"]\n'.encode())


@require("root")
def test_what_was_verified_by_an_older_version_stays_so(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "head -c 100000 /dev/zero > /var/tmp/zeros; echo text >/var/tmp/text; truncate -s 1M /var/tmp/holes")
        layer = take(fresh, box, "old")["layers"][0]
        equal(fresh.post("/v1/snapshots/old/verify")["state"], "verified")
        list_as_before(fresh, layer)
        equal(fresh.post("/v1/snapshots/old/verify")["state"], "verified")
        subprocess.run(["btrfs", "property", "set", "-ts", os.path.join(fresh.state, "pool", "layers", layer), "ro", "false"], check=False, capture_output=True)
        victim = subprocess.run(["find", os.path.join(fresh.state, "pool", "layers", layer), "-name", "text"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
        with open(victim, "r+b") as f:
            f.write(b"n")
        error = raises(cay.ApiError, fresh.post, "/v1/snapshots/old/verify")
        equal((error.code, "text" in error.message), ("corrupt", True))
        drop(fresh, "old")


def test_a_key_that_is_gone_is_not_made_anew(fresh):
    """With another one all that it has signed would count as changed. Nothing is made of it, and with the old one back all is as before."""
    key, aside = os.path.join(fresh.state, "key"), os.path.join(fresh.state, "key.aside")

    def looks_at_it():
        error = raises(cay.ApiError, fresh.post, "/v1/snapshots/signed/verify")
        equal(error.code, "host", error.message)
        contains(error.message, f"{fresh.state}/key")
        contains(error.hint, "back from a copy")
        equal(fresh.get("/v1/snapshots/signed")["state"], "verified")
        equal(os.path.exists(key), False)

    with fresh.sandbox() as box:
        fresh.ok(box, "echo text >/var/tmp/text")
        take(fresh, box, "signed")
        equal(fresh.post("/v1/snapshots/signed/verify")["state"], "verified")
        os.rename(key, aside)
        looks_at_it()
        contains(raises(cay.ApiError, take, fresh, box, "another").message, f"{fresh.state}/key")
        fresh.kill()
        fresh.start()
        error = raises(cay.ApiError, fork, fresh, "signed")
        equal(error.code, "host", error.message)
        contains(error.message, f"{fresh.state}/key")
        contains(error.hint, "back from a copy")
        equal((fresh.ok(box, "cat /var/tmp/text"), os.path.exists(key)), ("text\n", False), "what runs goes on")
        os.rename(aside, key)
        fresh.post("/v1/storage", {})
        equal(fresh.post("/v1/snapshots/signed/verify")["state"], "verified")
        fresh.remove(fork(fresh, "signed"))
        drop(fresh, "signed")


def test_more_snapshots_than_go_into_a_frame(fresh):
    """Jobs that clear up are told of all that the catalogue knows; where that was more than a mebibyte of ids nothing started any more."""
    with fresh.sandbox() as box:
        take(fresh, box, "first")
        fresh.kill()
        with contextlib.closing(sqlite3.connect(os.path.join(fresh.state, "cay.db"))) as db, db:
            [(text,)] = db.execute("SELECT doc FROM snapshots").fetchall()
            doc = {**json.loads(text), "name": None, "state": "verified", "sandbox": job.new_id()}
            rows = [{**doc, "id": job.new_id(), "layers": [job.new_id()], "base_layers": []} for _ in range(50000)]
            db.executemany("INSERT INTO snapshots (id, owner, doc) VALUES (?, ?, ?)", [(row["id"], row["sandbox"], json.dumps(row)) for row in rows])
        fresh.start()
        with fresh.sandbox():
            pass
        equal(fresh.post("/v1/prune", {})["layers_removed"], 0)
        fresh.kill()
        with contextlib.closing(sqlite3.connect(os.path.join(fresh.state, "cay.db"))) as db, db:
            db.executemany("DELETE FROM snapshots WHERE id = ?", [(row["id"],) for row in rows])
        fresh.start()
        drop(fresh, "first")


# ---- limits ------------------------------------------------------------------------------------------------------------------------

@require("root")
def test_a_full_disk_stops_one_sandbox_and_loses_nothing(instance):
    with instance.sandbox(limits={"disk_bytes": 64 << 20}) as box, instance.sandbox() as neighbour:
        instance.ok(box, "echo kept > /var/tmp/kept; sync")
        status, _, err = instance.sh(box, "dd if=/dev/zero of=/var/tmp/big bs=1M count=200 conv=fsync")
        assert status["status"] == "disk_full" or status.get("code", 0) != 0, (status, err)
        equal(instance.ok(neighbour, "head -c 1000000 /dev/zero > /var/tmp/x; echo fine"), "fine\n")
        equal(instance.ok(box, "rm /var/tmp/big; cat /var/tmp/kept; sync; echo again > /var/tmp/x; cat /var/tmp/x"), "kept\nagain\n")


# ---- the diff ----------------------------------------------------------------------------------------------------------------------

def test_every_kind_of_change(instance):
    with instance.sandbox() as box:
        instance.ok(box, "cd /var/tmp; echo 1 > modified; echo 1 > deleted; echo 1 > meta; mkdir dir; echo 1 > dir/inside; ln -s a link; echo same > same")
        take(instance, box, "kinds")
        instance.ok(box, "cd /var/tmp; echo 2 > modified; rm deleted; chmod 600 meta; rm -r dir; ln -sfn b link; echo 1 > added; touch same; "
                    "echo same > same; mkdir newdir")
        changes = {c["path"]: c for c in instance.get(f"/v1/diff?a={box}&b=kinds")["changes"] if c["path"].startswith("/var/tmp/")}
        kinds = {path[9:]: c["kind"] for path, c in changes.items()}
        for path, kind in {"modified": "modified", "deleted": "deleted", "meta": "metadata", "dir": "deleted", "dir/inside": "deleted",
                           "link": "modified", "added": "added", "newdir": "added"}.items():
            equal(kinds.get(path), kind, path)
        assert kinds.get("same") in (None, "metadata"), kinds
        equal((changes["/var/tmp/modified"]["before"]["size"], changes["/var/tmp/modified"]["after"]["size"]), (2, 2))
        assert changes["/var/tmp/modified"]["before"]["hash"] != changes["/var/tmp/modified"]["after"]["hash"]
        equal((changes["/var/tmp/deleted"]["after"], changes["/var/tmp/added"]["before"]), (None, None))
        text = instance.get(f"/v1/diff?a={box}&b=kinds&text=true")["text"]
        contains(text, "-1\n+2")
        drop(instance, "kinds")


def test_the_table_and_the_text_of_the_command(instance, tmp):
    with open(os.path.join(tmp, "f"), "w", encoding="utf-8") as f:
        f.write("one\n")
    with instance.sandbox(mounts=[{"source": tmp, "target": "/p"}]) as box:
        instance.ok(box, "echo two > /p/f")
        contains(instance.cay("diff", box).stdout, "/p/f")
        text = instance.cay("diff", box, "--text").stdout
        contains(text, "-one\n+two")
        paths = [c["path"] for c in json.loads(instance.cay("diff", box, "--json").stdout)["changes"]]
        equal([p for p in paths if p.startswith("/p")], ["/p/f"])


@require("root")
def test_a_sandbox_that_goes_while_its_snapshot_is_made_durable(fresh):
    """What the background does with a snapshot outlives the sandbox that it was taken from."""
    box = fresh.post("/v1/sandboxes", {})["id"]
    waiting(fresh, box, "import os, sys; held = os.urandom(100_000_000); print('ready', flush=True); sys.stdin.readline()")
    snapshot = fresh.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
    work = os.path.join(fresh.state, "pool", "tmp")
    cay.wait_until(lambda: os.listdir(work), 60, "its memory is written to disk", watch=work)
    fresh.remove(box)
    fresh.wait_event("snapshot.verified", match=lambda event: event["data"]["snapshot"] == snapshot, timeout=90)
    equal([event["type"] for event in fresh.events() if event["data"].get("snapshot") == snapshot],
          ["snapshot.created", "snapshot.durable", "snapshot.verified"])


@require("root")
def test_a_snapshot_that_is_forked_and_removed_at_once(fresh):
    """Forks hold what they are made from: a removal says that it is busy, or finds it done."""
    with fresh.sandbox() as box:
        run = fresh.exec(box, "/bin/sleep", "1000")
        for _ in range(5):
            snapshot = fresh.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
            forks = []
            thread = threading.Thread(target=lambda s=snapshot: forks.extend(fork_if_there(fresh, s)))
            thread.start()
            while (gone := remove_snapshot(fresh, snapshot)) == "busy":
                pass
            thread.join()
            equal(gone, "removed")
            for fork in forks:
                equal(fresh.get(f"/v1/sandboxes/{fork}/execs/{run['id']}")["state"], "running")
                fresh.remove(fork)


def fork_if_there(instance, snapshot):
    try:
        return [one["id"] for one in instance.post(f"/v1/snapshots/{snapshot}/fork", {"count": 3})["sandboxes"]]
    except ApiError as error:
        if error.code != "not_found":
            raise
        return []


def remove_snapshot(instance, snapshot):
    try:
        instance.call("DELETE", f"/v1/snapshots/{snapshot}")
        return "removed"
    except ApiError as error:
        if error.code != "busy":
            raise
        return "busy"
