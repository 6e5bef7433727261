# SPDX-License-Identifier: Apache-2.0
"""State and runtime directories that are not as they should be: nothing is lost, and who starts the server is told why it does not start."""

import contextlib
import glob
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys

from lib import cay, leaks
from lib.case import contains, equal, require
from lib.pool import in_own_mounts

NOBODY = 65534


def elsewhere(instance, tmp):
    """The environment of a server on the same state that has its runtime directory in another place."""
    run = os.path.join(tmp, "other-run")
    return {"CAY_RUN": run, "CAY_SOCKET": os.path.join(run, "cayd.sock")}


@require("root")
def test_a_state_has_one_server_wherever_that_has_its_runtime_directory(fresh, tmp):
    """As an ordinary user's second session, or a cron job, has another XDG_RUNTIME_DIR."""
    other = elsewhere(fresh, tmp)
    with fresh.sandbox(name="busy") as box:
        fresh.ok(box, "echo precious > /root/file")
        said = fresh.cay("ps", env=other, want=125).stderr
        contains(said, f"another cayd serves '{fresh.state}', from '{fresh.run}'")
        contains(said, f"CAY_RUN={fresh.run}")
        equal(fresh.ok(box, "cat /root/file"), "precious\n")
    fresh.stop()
    fresh.cay("ps", env=other)  # nobody else is there any more
    fresh.cay("shutdown", "--stop", env=other)


def doctor_where(fresh, target, flags):
    """The failed required checks of `cay doctor` in mounts of its own, where @target is mounted read-only."""
    script = f'mount --bind {target} {target} && mount -o remount,{flags},bind {target} && exec "$0" doctor --json'
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, os.path.join(cay.BUILD, "cay")], env=fresh.environment(), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    report = json.loads(done.stdout)
    return done.returncode, [c["id"] for c in report["checks"] if not c["ok"] and c["level"] == "required"], report["ok"]


@require("root")
def test_the_doctor_names_what_is_mounted_read_only(fresh):
    """Where no sandbox can start all is not well."""
    fresh.stop()
    groups = next(line.split()[4] for line in open("/proc/self/mountinfo", encoding="ascii") if " - cgroup2 " in line)
    equal(doctor_where(fresh, groups, "rw"), (0, [], True))
    equal(doctor_where(fresh, groups, "ro"), (1, ["cgroup_v2"], False))
    equal(doctor_where(fresh, fresh.state, "ro"), (1, ["state_writable"], False))


@contextlib.contextmanager
def an_account(tmp):
    """The machine has an account `cay`, as a package makes it."""
    with contextlib.ExitStack() as stack:
        for table, line in (("passwd", "cay:x:991:991::/var/lib/cay:/usr/sbin/nologin"), ("group", "cay:x:991:")):
            changed = os.path.join(tmp, table)
            with open(f"/etc/{table}", encoding="utf-8") as before, open(changed, "w", encoding="utf-8") as f:
                f.write(before.read() + line + "\n")
            subprocess.run(["mount", "--bind", changed, f"/etc/{table}"], check=True)
            stack.callback(subprocess.run, ["umount", f"/etc/{table}"], check=True)
        yield


ASK = r"""
import os, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    os.chdir(os.path.dirname(sys.argv[1]))
    os.setgroups([int(group) for group in sys.argv[2:]])
    os.setgid(4242)
    os.setuid(4242)
    s.connect(os.path.basename(sys.argv[1]))
    try:
        s.sendall(b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        print(s.recv(65536)[:12].decode())
    except ConnectionError:  # who is refused is not listened to
        print("HTTP/1.1 403")
"""


@require("root")
def test_the_kernel_says_who_is_in_the_group(fresh, tmp):
    """However many others a member is in, and whether or not anybody knows its name."""
    in_own_mounts()
    fresh.stop()
    with an_account(tmp):
        fresh.start()
        many = [str(group) for group in range(5000, 5300)]
        for groups, status in (([], 403), (many, 403), (["991"], 200), ([*many, "991"], 200)):
            done = subprocess.run([sys.executable, "-c", ASK, fresh.socket, *groups], stdout=subprocess.PIPE, text=True, check=True)
            equal(done.stdout, f"HTTP/1.1 {status}\n", f"{len(groups)} groups")
        fresh.stop()


@require("root")
def test_an_account_that_comes_or_goes_leaves_a_state_as_it_is(fresh, tmp):
    """What runs goes on, the log and the secrets are there."""
    in_own_mounts()

    def check(instance, number):
        instance.cay("ps")
        equal(instance.ok("kept", "cat /root/file"), "precious\n")
        equal((os.stat(os.path.join(instance.state, "cay.db")).st_uid, instance.get("/v1/sandboxes/kept/events/verify")["ok"]), (number, True))
        equal([one["name"] for one in instance.get("/v1/secrets")["secrets"]], ["key"])

    def begin(instance):
        instance.start()
        instance.post("/v1/sandboxes", {"name": "kept"})
        instance.ok("kept", "echo precious > /root/file")
        instance.cay("secret", "set", "key", stdin="a-long-value\n")

    with contextlib.closing(cay.Instance(tmp)) as other:
        fresh.stop()
        begin(fresh)
        number = os.stat(os.path.join(fresh.state, "cay.db")).st_uid
        fresh.stop()
        with an_account(tmp):
            fresh.start()
            check(fresh, number)
            begin(other)
            check(other, 991)
            other.stop()
        other.start()
        check(other, 991)


@require("root")
def test_a_lost_catalogue_takes_nothing_with_it(fresh, tmp):
    """What no catalogue knows is removed at a start: over none, or an empty one, there is no start."""
    box = fresh.post("/v1/sandboxes", {"name": "kept"})["id"]
    fresh.ok(box, "echo precious > /root/file")
    fresh.cay("shutdown", "--stop")
    fresh.process.wait(cay.STOP_SECONDS)
    saved = os.path.join(tmp, "saved")
    os.mkdir(saved)
    for path in glob.glob(os.path.join(fresh.state, "cay.db*")):
        shutil.move(path, saved)
    contains(fresh.cay("ps", want=125).stderr, f"the catalogue '{fresh.state}/cay.db' is gone or empty")
    with open(os.path.join(fresh.state, "cay.db"), "wb"):
        pass
    contains(fresh.cay("ps", want=125).stderr, "put the catalogue back")
    for name in os.listdir(saved):
        shutil.move(os.path.join(saved, name), os.path.join(fresh.state, name))
    fresh.start()
    fresh.cay("start", "kept")
    equal(fresh.ok(box, "cat /root/file"), "precious\n")


def ended(instance):
    instance.cay("shutdown", "--stop")
    instance.process.wait(cay.STOP_SECONDS)


@require("root", "cgroup2")
def test_a_state_is_restored_from_a_backup_and_moved(fresh):
    """As docs/operate.md says: stopped and suspended sandboxes, snapshots, secrets, events are those of the copy, and go on where it lies."""
    first, backup, moved = fresh.state, os.path.join(fresh.dir, "backup"), os.path.join(fresh.dir, "moved")
    boxes = {name: fresh.post("/v1/sandboxes", {"name": name})["id"] for name in ("files", "processes")}
    fresh.ok(boxes["files"], "echo then > /root/file")
    run = fresh.exec(boxes["processes"], "sh", "-c", "words=; while read -r word; do words=\"$words $word\"; echo $words; done", stdin=True)
    fresh.cay("snapshot", "files", "--name", "kept")
    fresh.cay("secret", "set", "KEY", stdin="sk_live_0123456789")

    def tell(word):
        fresh.raw("POST", f"/v1/sandboxes/{boxes['processes']}/execs/{run['id']}/stdin", f"{word}\n".encode(), {"Content-Type": "application/octet-stream"})
        cay.wait_until(lambda: f"{word}\n".encode() in fresh.output(boxes["processes"], run), 20, word)
        return fresh.output(boxes["processes"], run).decode().splitlines()[-1]
    equal(tell("before"), "before")
    fresh.cay("suspend", "processes")
    ended(fresh)
    subprocess.run(["cp", "-a", "--sparse=always", first, backup], check=True)
    shutil.rmtree(first)
    for place, word, known in ((first, "restored", "before restored"), (moved, "moved", "before restored moved")):
        os.rename(fresh.state if place == moved else backup, place)
        fresh.state = place
        fresh.start()
        fresh.cay("start", "files")
        fresh.cay("resume", "processes")
        equal((fresh.ok(boxes["files"], "cat /root/file"), tell(word)), ("then\n", known))
        fresh.cay("rewind", "files", "kept")
        contains(fresh.cay("verify", "kept").stdout, "verified")
        contains(fresh.cay("events", "verify").stdout, "all of them hold")
        contains(fresh.cay("secret", "ls").stdout, "KEY")
        fresh.cay("suspend", "processes")
        ended(fresh)
    fresh.start()


@require("root", "btrfs")
def test_a_lost_pool_is_not_replaced_by_an_empty_one(fresh, tmp):
    """Its sandboxes would start, without a word, without their files."""
    box = fresh.post("/v1/sandboxes", {"name": "kept"})["id"]
    fresh.ok(box, "echo precious > /root/file")
    fresh.cay("shutdown", "--stop")
    fresh.process.wait(cay.STOP_SECONDS)
    pool, saved = os.path.join(fresh.state, "pool.btrfs"), os.path.join(tmp, "saved")
    os.rename(pool, saved)
    fresh.start()
    for command in (["start", "kept"], ["create"], ["storage", "init"]):
        contains(fresh.cay(*command, want=125).stderr, f"the pool of '{fresh.state}' is gone")
    os.rename(saved, pool)
    fresh.cay("storage", "init")
    fresh.cay("start", "kept")
    equal(fresh.ok(box, "cat /root/file"), "precious\n")


def write_row(instance, table, number, doc):
    """What @doc was before."""
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as db, db:
        [(was,)] = db.execute(f"SELECT doc FROM {table} WHERE id = ?", (number,)).fetchall()
        db.execute(f"UPDATE {table} SET doc = ? WHERE id = ?", (doc, number))
    return was


@require("root")
def test_a_row_that_cannot_be_read_takes_nothing_with_it(fresh):
    """It was ignored, and its files were removed as nobody's."""
    box = fresh.post("/v1/sandboxes", {"name": "kept"})["id"]
    fresh.ok(box, "echo precious > /root/file")
    snapshot = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"name": "saved"})["id"]
    fresh.cay("shutdown", "--stop")
    fresh.process.wait(cay.STOP_SECONDS)
    for table, number in (("sandboxes", box), ("snapshots", snapshot)):
        for doc in ('{"name":"ke', "[]", "{}"):
            was = write_row(fresh, table, number, doc)
            contains(refused(fresh, f"row '{number}' of the table '{table}' in the catalogue cannot be read"), f"DELETE FROM {table} WHERE id = '{number}'")
            write_row(fresh, table, number, was)
    fresh.start()
    fresh.cay("start", "kept")
    equal(fresh.ok(box, "cat /root/file"), "precious\n")
    equal(fresh.post("/v1/snapshots/saved/verify")["state"], "verified")


@contextlib.contextmanager
def damaged(path):
    """Its first bytes are others meanwhile."""
    with open(path, "rb") as f:
        was = f.read()
    with open(path, "r+b") as f:
        f.write(b"no catalogue" * 1000)
    yield
    with open(path, "wb") as f:
        f.write(was)


def refused(fresh, words, **env):
    """A command's words when no server can be started; that is tried once."""
    log = os.path.join(env.get("CAY_RUN", fresh.run), "cayd.log")
    before = leaks.read(log).count(words)
    said = fresh.cay("ps", want=125, env=env).stderr
    contains(said, words)
    equal(leaks.read(log).count(words), before + 1)
    return said


@require("root")
def test_why_the_server_does_not_start_is_told(fresh, tmp):
    fresh.stop()
    other = elsewhere(fresh, tmp)
    link, theirs = os.path.join(tmp, "link"), os.path.join(tmp, "theirs")
    os.symlink(fresh.state, link)
    contains(refused(fresh, f"'{link}' is a symbolic link", CAY_STATE=link, **other), "mount --bind")
    os.mkdir(theirs)
    os.chown(theirs, 4321, 4321)
    contains(refused(fresh, f"'{theirs}' belongs to user 4321", CAY_STATE=theirs, **other), "chown")
    with damaged(os.path.join(fresh.state, "cay.db")), damaged(os.path.join(fresh.state, "cay.db-wal")):
        contains(refused(fresh, "file is not a database"), "sqlite3 cay.db .recover")
    fresh.start()


@require("root")
def test_a_directory_above_the_state_may_be_a_symbolic_link(tmp):
    """The pool is then mounted at another path than the one that the instance is told; the last part may be none."""
    link = os.path.join(tmp, "link")
    with contextlib.closing(cay.Instance(tmp)) as instance:
        os.symlink(instance.dir, link)
        instance.state = os.path.join(link, "state")
        instance.start()
        with instance.sandbox() as box:
            equal(instance.ok(box, "echo here > /root/file; cat /root/file"), "here\n")
            instance.post(f"/v1/sandboxes/{box}/stop")
            instance.post(f"/v1/sandboxes/{box}/start")
            equal(instance.ok(box, "cat /root/file"), "here\n")


@require("root")
def test_a_server_of_somebody_else_in_tmp_is_told_nothing(tmp):
    """An ordinary user without a directory for running programs has his socket below /tmp, where anybody may have been before."""
    os.chmod(tmp, 0o755)
    with cay.ThrowawayUser() as user, contextlib.closing(cay.Instance(tmp, user=user)) as instance:
        place = f"/tmp/cay-{user.pw_uid}"
        os.mkdir(place, 0o755)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                s.bind(os.path.join(place, "cayd.sock"))
                os.chmod(os.path.join(place, "cayd.sock"), 0o666)
                s.listen(8)
                done = subprocess.run([os.path.join(instance.programs, "cay"), "secret", "set", "X"], input="very secret", capture_output=True, text=True, check=False, cwd="/",
                                      user=user.pw_uid, group=user.pw_gid, env={"PATH": "/usr/bin:/bin", "HOME": user.pw_dir})
                contains(done.stderr, "belongs to user 0, not to you")
                assert done.returncode != 0
                s.settimeout(5)
                connection, _ = s.accept()
                equal(connection.recv(100), b"")
                connection.close()
        finally:
            shutil.rmtree(place)


def test_directories_as_people_write_them(fresh, tmp):
    """Slashes at the end and twice, no HOME, variables that are empty: client and server read them the same way."""
    base = os.path.join(tmp, "home")
    os.mkdir(base)
    os.chown(base, NOBODY, NOBODY)
    os.chmod(tmp, 0o755)
    clean = {"PATH": os.environ["PATH"], "CAY_ACCEPT_NO_LIMITS": "1"}
    usual = f"/tmp/cay-{NOBODY}"  # where neither CAY_RUN nor XDG_RUNTIME_DIR names another place
    was_there = os.path.exists(usual)
    for given in ({"HOME": base + "/"}, {"HOME": "/", "XDG_DATA_HOME": base + "//data/", "XDG_RUNTIME_DIR": base + "/"},
                  {"HOME": base, "CAY_RUN": base + "//run/", "CAY_STATE": ""}, {"HOME": base, "CAY_RUN": "", "CAY_SOCKET": "", "XDG_RUNTIME_DIR": base}):
        for words in (["ps"], ["shutdown", "--stop"]):
            done = subprocess.run([os.path.join(cay.BUILD, "cay"), *words], env={**clean, **given}, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True,
                                  check=False)
            equal((done.returncode, done.stderr), (0, ""), (given, words))
    if not was_there:
        shutil.rmtree(usual)


def test_a_directory_that_is_not_absolute_is_named_by_its_variable(fresh):
    for given, name in (({"CAY_STATE": "here"}, "CAY_STATE"), ({"CAY_RUN": "/a/../b"}, "CAY_RUN")):
        done = subprocess.run([os.path.join(cay.BUILD, "cayd"), "--foreground"], env={"PATH": os.environ["PATH"], "CAY_STATE": fresh.state, "CAY_RUN": fresh.run, **given}, capture_output=True,
                              text=True, check=False)
        contains(done.stderr, f"{name} must be an absolute path, not '{given[name]}'")


@require("root")
def test_a_directory_that_others_use_stays_as_it_is(fresh, tmp):
    """A slip (CAY_STATE=/root, CAY_RUN=/tmp) opens no private directory and takes none from all others. Anybody can make a file there that looks like ours."""
    own = os.path.join(tmp, "own")
    for mode, variable, mark in ((0o1777, "CAY_RUN", "cayd.lock"), (0o700, "CAY_STATE", None)):
        used = os.path.join(tmp, variable)
        os.mkdir(used)
        os.chmod(used, mode)
        with open(os.path.join(used, "private"), "w", encoding="utf-8"):
            pass
        if mark is not None:
            with open(os.path.join(used, mark), "w", encoding="utf-8") as f:
                os.chown(f.fileno(), NOBODY, NOBODY)
        places = {"CAY_STATE": own + "/s", "CAY_RUN": own + "/r", "CAY_SOCKET": own + "/sock", variable: used}
        said = fresh.cay("ps", env=places, want=125).stderr
        contains(said, f"'{used}' holds other files")
        contains(said, "name a directory of its own")
        st = os.stat(used)
        equal((st.st_mode & 0o7777, st.st_uid), (mode, 0))


@require("root")
def test_an_empty_directory_is_taken_and_each_place_may_be_in_the_other(fresh, tmp):
    top = os.path.join(tmp, "top")
    os.makedirs(top + "/lost+found")
    os.chmod(top, 0o700)
    for places in ({"CAY_STATE": top, "CAY_RUN": top + "/run/cay"}, {"CAY_RUN": top + "-2", "CAY_STATE": top + "-2/state/cay"}):
        places["CAY_SOCKET"] = places["CAY_RUN"] + "/cayd.sock"
        for _ in range(2):  # the second time they are ours
            fresh.cay("ps", env=places)
            fresh.cay("shutdown", "--stop", env=places)
    equal(os.stat(top).st_mode & 0o7777, 0o755)
