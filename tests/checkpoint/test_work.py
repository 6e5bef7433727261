# SPDX-License-Identifier: Apache-2.0
"""Work that is under way when it is forked live: a database file with readers and a writer, a clone, a build; it ends well in the fork, in the source, which is suspended meanwhile, and
in the source once more, rewound to the midst of it."""

import os
import sys
import time

from lib.case import contains, equal, raises, require
from lib.cay import ApiError, wait_until

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, say, start  # noqa: E402
from suspending import resume, suspend, there_and_back  # noqa: E402

TIMEOUT = 240
NEEDS = ("root", "cgroup2")

SQLITE = """
import os, sqlite3, sys, threading
path = "/var/tmp/wal.db"
def connect():
    c = sqlite3.connect(path, isolation_level=None, timeout=30)
    c.execute("pragma journal_mode = wal"); c.execute("pragma wal_autocheckpoint = 50")
    return c
first = connect()
first.execute("create table t (n integer primary key, double integer)")
first.close() # a library that forgets its locks in a child must have none
if os.fork() == 0: # readers, of another process: each reading sees a whole transaction
    c = connect()
    while True:
        c.execute("begin")
        count, highest, total = c.execute("select count(*), coalesce(max(n), 0), coalesce(sum(double), 0) from t").fetchone()
        assert count == highest and total == highest * (highest + 1), (count, highest, total)
        c.execute("commit")
lock, written = threading.Lock(), 0
def work():
    global written
    c = connect()
    while True:
        with lock:
            c.execute("begin immediate")
            for n in range(written + 1, written + 4):
                c.execute("insert into t values (?, ?)", (n, 2 * n))
            c.execute("commit")
            written += 3
threading.Thread(target=work, daemon=True).start()
mine = connect()
mine.execute("begin"); old = mine.execute("select count(*) from t").fetchone()[0] # a snapshot that stays open
while written < 30: pass
print("ready", flush=True)
for line in sys.stdin:
    before = written
    while written < before + 9: pass
    with lock:
        c = connect()
        print(mine.execute("select count(*) from t").fetchone()[0] == old, c.execute("select count(*) from t").fetchone()[0] == written,
              c.execute("pragma integrity_check").fetchone()[0], os.waitpid(-1, os.WNOHANG), flush=True)
"""


@require(*NEEDS)
def test_sqlite_with_readers_and_a_writer(instance):
    with instance.sandbox() as box:
        put(instance, box, "/var/tmp/wal.py", SQLITE)
        run = start(instance, box, "/usr/bin/python3", "/var/tmp/wal.py")
        name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        fork = fork_live(instance, box)[0]
        again = fork_live(instance, fork)[0]
        there_and_back(instance, box)
        for one in (again, fork, box):
            for _ in range(2):
                equal(ask(instance, one, run, "check"), "True True ok (0, 0)\n")
        for _ in range(2):
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
            equal(ask(instance, box, run, "check"), "True True ok (0, 0)\n")
        equal(ask(instance, fork, run, "check"), "True True ok (0, 0)\n", "the fork is not rewound")
        instance.call("DELETE", f"/v1/snapshots/{name}")
        instance.remove(again)
        instance.remove(fork)


# A script that comes through a pipe (/dev/fd/63), one that goes into one, and a log that is standard error by its name, as nginx has it.
SHELL = """
exec 7> >(while read -r line; do echo "$line" >> /var/tmp/copied; done) 8>/dev/stderr
exec bash <(echo 'echo ready; while read -r line; do echo $line >&7; echo $line >&8; echo $line; done'; exec tail -f /dev/null)
"""


@require(*NEEDS)
def test_pipes_that_a_shell_gives_by_their_names(instance):
    def goes_on(one, words):
        equal(ask(instance, one, run, words[-1], f"{words[-1]}\n".encode() * 2), f"{words[-1]}\n" * 2)
        instance.ok(one, f"until [ $(wc -l < /var/tmp/copied) = {len(words)} ]; do sleep 0.1; done")
        equal(instance.ok(one, "cat /var/tmp/copied").split(), words)

    with instance.sandbox() as box:
        put(instance, box, "/var/tmp/pipes.sh", SHELL)
        run = start(instance, box, "/bin/bash", "/var/tmp/pipes.sh")
        goes_on(box, ["one"])
        name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        fork = fork_live(instance, box)[0]
        goes_on(fork, ["one", "fork"])
        goes_on(box, ["one", "two"])
        there_and_back(instance, box)
        goes_on(box, ["one", "two", "three"])
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
        goes_on(box, ["one", "rewound"])
        goes_on(fork, ["one", "fork", "again"])
        instance.remove(fork)
        instance.call("DELETE", f"/v1/snapshots/{name}")


def ends_well(instance, box, run, check, want):
    """In a fork, in the source, which is suspended meanwhile, and in the source rewound: to the midst of it, in the midst of it and when it is over."""
    def check_end(one):
        status = instance.wait(one, run, 90)
        equal((status["status"], status.get("code")), ("exited", 0), instance.output(one, run).decode()[-2000:])
        equal(instance.ok(one, check), want)
    name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
    fork = fork_live(instance, box)[0]
    there_and_back(instance, box)
    instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
    for one in (fork, box):
        check_end(one)
    instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
    equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running", "it goes on from the midst of it")
    check_end(box)
    instance.remove(fork)
    instance.call("DELETE", f"/v1/snapshots/{name}")


@require(*NEEDS, "program:git")
def test_a_clone_in_progress(instance):
    with instance.sandbox() as box:
        instance.ok(box, """set -e; cd /var/tmp; git init -q from; cd from; git config user.email a@b; git config user.name a
            for i in $(seq 400); do head -c 60000 /dev/urandom >f$i; done; git add .; git commit -qm first""")
        run = instance.exec(box, "/bin/sh", "-c", "cd /var/tmp && git clone --progress --no-local from to")
        instance.ok(box, "while [ ! -e /var/tmp/to/.git/objects/pack ]; do sleep 0.01; done; while [ -z \"$(ls /var/tmp/to/.git/objects/pack)\" ]; do sleep 0.01; done")
        ends_well(instance, box, run, "cd /var/tmp/to && git fsck --full 2>&1 && git status --porcelain | wc -l && ls | wc -l", "0\n400\n")


@require(*NEEDS, "program:gcc", "program:make")
def test_a_build_with_four_jobs(instance):
    with instance.sandbox() as box:
        instance.ok(box, """set -e; mkdir /var/tmp/b; cd /var/tmp/b
            for i in $(seq 16); do { echo '#include <stdio.h>'; for j in $(seq 30); do
                echo "int f_${i}_$j(int x) { for (int k = 0; k < x; k++) x = x * 3 + k % ($j + 1) - printf(\\"\\"); return x; }"; done; } >f$i.c; done
            echo 'int f_1_1(int); int main(void) { return f_1_1(0); }' >main.c
            printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n\\tgcc -o all *.o\\n%%.o: %%.c\\n\\tgcc -O1 -c -o $@ $<\\n' >Makefile""")
        run = instance.exec(box, "/usr/bin/make", "-C", "/var/tmp/b", "-j4")
        instance.ok(box, "while [ $(ls /var/tmp/b/*.o 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.02; done")
        ends_well(instance, box, run, "cd /var/tmp/b && ./all && ls *.o | wc -l", "17\n")


WATCH = """
import ctypes, os, struct, sys
l = ctypes.CDLL(None)
q = l.inotify_init1(os.O_NONBLOCK)
wd = [l.inotify_add_watch(q, f"/project/{name}".encode(), 0x100) for name in ("packages/some/very/deep", "src")]
print("ready", flush=True)
for line in sys.stdin:
    place, name = line.split()
    open(os.path.join("/project", place, name), "w").close()
    got, _, _, n = struct.unpack("iIII", (all := os.read(q, 4096))[:16])
    print(wd.index(got), all[16:16 + n].rstrip(b"\\0").decode(), flush=True)
"""


@require(*NEEDS)
def test_what_is_watched_in_a_large_project(instance, tmp):
    """Behind more files than are looked through while everything stands still."""
    project = os.path.join(tmp, "project")
    os.makedirs(os.path.join(project, "packages/some/very/deep"))
    os.makedirs(os.path.join(project, "src"))
    os.makedirs(os.path.join(project, "packages/many"))
    for n in range(21000):
        os.mknod(os.path.join(project, f"packages/many/{n}"))
    with instance.sandbox(mounts=[{"source": project, "target": "/project", "mode": "cow"}]) as box:
        put(instance, box, "/var/tmp/watch.py", WATCH)
        run = start(instance, box, "/usr/bin/python3", "/var/tmp/watch.py", cwd="/project/src")
        fork = fork_live(instance, box)[0]
        again = fork_live(instance, fork)[0]
        there_and_back(instance, box)
        for one in (again, fork, box):
            equal(ask(instance, one, run, "packages/some/very/deep one"), "0 one\n")
            equal(ask(instance, one, run, "src two"), "1 two\n")


@require(*NEEDS)
def test_what_the_host_moved_to_where_a_directory_was_removed(instance, tmp):
    """While a program that works in it was suspended: it is refused by apply afterwards as before."""
    project = os.path.join(tmp, "project")
    for name in ("gone/below", "other"):
        os.makedirs(os.path.join(project, name))
        with open(os.path.join(project, name, "precious"), "w", encoding="utf-8") as f:
            f.write("precious\n")
    with instance.sandbox(mounts=[{"source": project, "target": "/project", "mode": "cow"}]) as box:
        run = start(instance, box, "/usr/bin/python3", "-c", "import os, sys\nprint('ready', flush=True)\nfor line in sys.stdin: print(eval(line), flush=True)",
                    cwd="/project/gone/below")
        instance.ok(box, "rm -r /project/gone")
        suspend(instance, box)
        time.sleep(0.05)  # of a clock of files
        os.rename(os.path.join(project, "gone"), os.path.join(tmp, "away"))
        os.rename(os.path.join(project, "other"), os.path.join(project, "gone"))
        time.sleep(0.05)
        changed = instance.cay("diff", box).stdout
        resume(instance, box)
        equal(ask(instance, box, run, "os.stat('.').st_nlink, os.listdir('../..')"), "(0, [])\n")
        equal(instance.cay("diff", box).stdout, changed)
        done = instance.cay("apply", box, check=False)
        equal((done.returncode != 0, os.listdir(os.path.join(project, "gone"))), (True, ["precious"]))
        contains(done.stderr, "conflict")


VFORK = """
import ctypes, os, sys, time
print("ready", flush=True)
libc = ctypes.CDLL(None)
def nest(parents, seconds):
    if libc.syscall(56, 0x4000 | 17, 0, 0, 0, 0) == 0: # clone(CLONE_VFORK | SIGCHLD)
        nest(parents - 1, seconds) if parents > 1 else time.sleep(seconds)
        os._exit(0)
    os.wait()
for line in sys.stdin:
    nest(*map(int, line.split()))
    print("on", flush=True)
"""


@require(*NEEDS)
def test_the_parent_of_a_vfork_is_waited_for_or_named(instance):
    """It cannot be stopped before its child has executed a program: try again, and give up with the sandbox going on."""
    with instance.sandbox() as box:
        put(instance, box, "/var/tmp/vfork.py", VFORK)
        run = start(instance, box, "/usr/bin/python3", "/var/tmp/vfork.py")
        say(instance, box, run, "1 1\n")
        name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        instance.call("DELETE", f"/v1/snapshots/{name}")
        say(instance, box, run, "1 20\n")
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/snapshots", {})
        equal((error.code, "vfork" in error.message), ("busy", True))
        equal(instance.ok(box, "echo on"), "on\n")


@require(*NEEDS)
def test_hundreds_of_parents_of_vforks_are_given_up_together(instance):
    """With half a second for each of them the keeper was given up, and with it the sandbox."""
    with instance.sandbox() as box:
        put(instance, box, "/var/tmp/vfork.py", VFORK)
        run = start(instance, box, "/usr/bin/python3", "/var/tmp/vfork.py")
        say(instance, box, run, "300 600\n")
        wait_until(lambda: int(instance.ok(box, "ls -d /proc/[0-9]* | wc -l")) > 300, 60, "there are hundreds of them")
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/snapshots", {})
        equal((error.code, "vfork" in error.message), ("busy", True))
        equal(instance.ok(box, "echo on"), "on\n")


ALIKE = """
import ctypes, os, sys
l = ctypes.CDLL(None)
q = l.inotify_init1(os.O_NONBLOCK)
for at, _, _ in os.walk("/usr"):
    if os.stat(at).st_ino > 800: break
os.makedirs("/srv/x/y/watched")
number, n = os.stat("/srv/x/y/watched").st_ino, 0
while not n or os.lstat("/etc/alike").st_ino < number:
    if n: os.unlink("/etc/alike")
    os.symlink("nowhere", "/etc/alike")
    n += 1
os.mkdir("/srv/many")
for n in range(21000): os.mknod(f"/srv/many/{n}")
l.inotify_add_watch(q, b"/srv/x/y/watched", 0x100)
print(os.lstat("/etc/alike").st_ino == number == os.stat("/srv/x/y/watched").st_ino, "ready", flush=True)
for line in sys.stdin:
    open("/srv/x/y/watched/" + line.strip(), "w").close()
    print(os.read(q, 4096)[16:].rstrip(b"\\0").decode(), flush=True)
"""


@require(*NEEDS, "btrfs")
def test_what_is_watched_has_the_number_of_a_link(instance):
    """In the sandbox's root, whose directories are numbered as they are met, the kernel knows what is watched by its number alone; the link is found first."""
    with instance.sandbox() as box:
        put(instance, box, "/var/tmp/watch.py", ALIKE)
        run = start(instance, box, "/usr/bin/python3", "/var/tmp/watch.py", ready=b"True ready\n", cwd="/usr")
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            equal(ask(instance, one, run, "new"), "new\n")


# As V8 does: a terabyte at a random place below 2^46, of which this one is the last. It has a page at its beginning and one at its end.
RESERVES = """
import ctypes, sys
BEGIN, LENGTH = (1 << 46) - 4096, 1 << 40
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
assert libc.mmap(BEGIN, LENGTH, 0, 0x104022, -1, 0) == BEGIN, ctypes.get_errno()  # PRIVATE | ANONYMOUS | NORESERVE | FIXED_NOREPLACE
ends = [BEGIN, BEGIN + LENGTH - 4096]
for at in ends:
    assert libc.mprotect(ctypes.c_void_p(at), 4096, 3) == 0
    ctypes.memset(at, 65, 10)
print("ready", flush=True)
for line in sys.stdin:
    print(*(ctypes.string_at(at, 10).decode() for at in ends), flush=True)
"""


@require(*NEEDS)
def test_a_reservation_that_reaches_over_2_46(instance):
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", RESERVES)
        fork = fork_live(instance, box)[0]
        for each in (box, fork):
            equal(ask(instance, each, run, ""), "AAAAAAAAAA AAAAAAAAAA\n")
        instance.remove(fork)
