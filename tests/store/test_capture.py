# SPDX-License-Identifier: Apache-2.0
"""Layers: captured from running sandboxes, sealed from stopped ones, verified, refused when foreign, recovered after kill -9."""

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import signal
import stat
import struct
import subprocess
import time
import uuid

from lib import job, leaks
from lib.case import Skip, contains, equal, raises, require
from lib.cay import wait_until
from lib.pool import Pool, describe, same_trees

CGROUP2 = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"


def fill(top, rng, n=60):
    """A bit of everything that a tree can hold."""
    for i in range(n):
        d = os.path.join(top, f"d{i % 7}", f"e{i % 3}")
        os.makedirs(d, exist_ok=True)
        path = os.path.join(d, f"f{i}")
        with open(path, "wb") as f:
            f.write(rng.randbytes(rng.choice([0, 1, 100, 5000, 70000])))
        os.chown(path, rng.choice([0, 33, 1000]), rng.choice([0, 33]))
        os.chmod(path, rng.choice([0o644, 0o600, 0o755, 0o4755]))
        if i % 5 == 0:
            os.setxattr(path, "user.note", b"x" * i)
    os.link(os.path.join(top, "d0/e0/f0"), os.path.join(top, "twin"))
    os.symlink("../../etc/passwd", os.path.join(top, "link"))
    os.mkfifo(os.path.join(top, "fifo"))
    os.mknod(os.path.join(top, "socket"), 0o755 | stat.S_IFSOCK)
    os.mknod(os.path.join(top, "whiteout"), 0o600 | stat.S_IFCHR, 0)
    os.setxattr(os.path.join(top, "d1"), "trusted.overlay.opaque", b"y")
    os.setxattr(os.path.join(top, "d2"), "user.dir", b"1")
    with open(os.path.join(top, "holes"), "wb") as f:
        f.seek(50 << 20)
        f.write(b"end")
    with open(os.fsencode(top) + b"/bad\xff\xfename\n", "w") as f:
        f.write("odd")
    os.utime(os.path.join(top, "d3"), (1, 2))


def deep(top, depth):
    here = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 200, dir_fd=here)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def each_way(tmp):
    """(pool, how) for the ways to capture; the pools are closed in turn."""
    with Pool(tmp, "btrfs") as pool:
        yield pool, "snapshot"
        yield pool, "reflink"
        yield pool, "copy"
    with Pool(tmp, "directory") as pool:
        yield pool, "copy"


class Group:
    """A cgroup of its own; what runs in it is killed at the end."""

    def __init__(self):
        self.path = os.path.join(CGROUP2, "cay-test-" + job.new_id())
        os.mkdir(self.path)
        self.freeze, self.children = self.path + "/cgroup.freeze", []

    def start(self, code, *args, **how):
        def enter():
            with open(self.path + "/cgroup.procs", "w") as f:
                f.write("0")
        self.children.append(subprocess.Popen(["/usr/bin/python3", "-c", code, *args], preexec_fn=enter, **how))
        return self.children[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with open(self.path + "/cgroup.kill", "w") as f:
            f.write("1")
        for child in self.children:
            child.wait()
        os.rmdir(self.path)


@require("root", "btrfs", "loop")
def test_capture_is_equal(tmp):
    for pool, how in each_way(tmp):
        sandbox = pool.live(trees=2)
        fill(pool.upper(sandbox), random.Random(1))
        fill(pool.upper(sandbox, 1), random.Random(2), 20)
        layer, reply = pool.capture(sandbox, trees=2, how=how)
        equal(reply["how"], how)
        for n in (0, 1):
            same_trees(pool.upper(sandbox, n), pool.layer(layer, n), times=True, overlay=True)
        equal(os.stat(pool.layer(layer) + "/holes").st_blocks < 2048, True, "holes are kept")
        equal(sorted(os.listdir(pool.path("layers", layer))), ["0", "1", "ARRANGED", "MANIFEST"])
        equal(os.stat(pool.layer(layer) + "/d3").st_mtime, 2)
        equal(pool.run("sync", layers=[layer])["state"], "durable")
        equal(pool.run("verify", layers=[layer])["state"], "verified")
        equal(pool.run("verify", layers=[layer])["files"] > 80, True)
        equal(os.listdir(pool.path("tmp")), [])


def fail_to_find_data():
    """In a child: lseek(SEEK_DATA) fails with EIO from here on, as where the map of a file on a damaged disk cannot be read."""
    def step(code, true, false, k):
        return struct.pack("HBBI", code, true, false, k)

    lseek, seek_data, third_argument = 8, 3, 32
    program = b"".join((step(0x20, 0, 0, 0), step(0x15, 0, 3, lseek), step(0x20, 0, 0, third_argument), step(0x15, 0, 1, seek_data),
                        step(0x06, 0, 0, 0x00050000 | errno.EIO), step(0x06, 0, 0, 0x7fff0000)))
    text = ctypes.create_string_buffer(program)
    filters = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(text)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filters) != 0:
        raise OSError(ctypes.get_errno(), "install a filter")


@require("root")
def test_what_cannot_be_read_is_no_hole(tmp):
    """A layer of zeros would be right for every verify."""
    with Pool(tmp, "directory") as pool:
        sandbox, layer = pool.live(), job.new_id()
        with open(pool.upper(sandbox) + "/f", "w") as f:
            f.write("precious" * 1000)
        capture = {"sandbox": sandbox, "layer": layer, "trees": [{"n": 0, "target": "/"}], "how": "copy"}
        contains(str(raises(job.JobError, pool.job("capture", preexec_fn=fail_to_find_data, **capture).result)), "Input/output error")
        equal(os.listdir(pool.path("layers")) + os.listdir(pool.path("tmp")), [])
        pool.run("capture", **capture)
        same_trees(pool.upper(sandbox), pool.layer(layer))


@require("root", "btrfs", "loop")
def test_later_captures_see_every_change(tmp):
    for pool, how in each_way(tmp):
        rng, sandbox = random.Random(3), pool.live()
        top, layers = pool.upper(sandbox), []
        fill(top, rng)
        for step in range(6):
            layers.append((pool.capture(sandbox, how=how)[0], describe(top, overlay=True)))
            with open(top + f"/d{step}/new", "w") as f:
                f.write("x" * step)
            with open(top + "/d0/e0/f0", "r+b") as f:  # same size, in place, maybe in the same tick of the clock
                f.write(bytes([step + 65]))
            if step > 0 and os.path.isdir(top + f"/d{step}/e0"):
                os.rename(top + f"/d{step}/e0", top + f"/d{step}/renamed")
            if step == 2:
                for name in ("fifo", "link"):
                    os.unlink(top + "/" + name)
                    os.mkdir(top + "/" + name)
            if step == 3:
                os.rmdir(top + "/fifo")
                os.removexattr(top + "/d2", "user.dir")
        for layer, then in layers:
            equal(describe(pool.layer(layer), overlay=True) == then, True, f"{how}: a layer is what the sandbox was, and stays so")
        pool.run("remove", sandboxes=[sandbox], layers=[layer for layer, _ in layers])
        equal((os.listdir(pool.path("layers")), os.listdir(pool.path("live"))), ([], []))


MAPPER = """import mmap,sys
f=open(sys.argv[1],'r+b')
m=mmap.mmap(f.fileno(),4096)
m[0:1]=b'a'
for line in sys.stdin:
    m[0:1]=line[0:1].encode()
    print('ok',flush=True)
"""


@require("root", "cgroup2")
def test_store_through_a_mapping_counts(tmp):
    """A store through a shared mapping moves no time stamp: the next capture by copy must see it all the same."""
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox, layers = pool.live(), []
        path = pool.upper(sandbox) + "/mapped"
        with open(path, "wb") as f:
            f.write(b"0" * 4096)
        child = group.start(MAPPER, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for letter in "bcdefg":
            child.stdin.write(letter + "\n")
            child.stdin.flush()
            child.stdout.readline()
            layer = job.new_id()
            # the process sees the upper itself at this path: that is where its "sandbox" has its root
            reply = pool.run("capture", sandbox=sandbox, layer=layer, trees=[{"n": 0, "target": pool.upper(sandbox)}],
                             freeze=group.freeze, how="copy")
            equal(reply["frozen_us"] > 0, True)
            layers.append((layer, letter))
        for layer, letter in layers:
            with open(pool.layer(layer) + "/mapped") as f:
                equal(f.read(1), letter)
        with open(group.freeze) as f:
            equal(f.read(), "0\n", "thawed")
        child.stdin.close()
        child.stdout.close()


COUNTER = """import mmap,sys
files=[open(path,'r+b') for path in sys.argv[1:]]
one,two=[mmap.mmap(f.fileno(),4096) for f in files]
i=0
while True:
    one[0:8]=two[0:8]=b'%08d'%i
    i+=1
    if i==1:
        print('on',flush=True)
"""


def acl(*entries):
    """An access list as the kernel takes it (linux/posix_acl_xattr.h): (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


@require("root", "cgroup2")
def test_what_is_copied_again_inherits_no_access_list(tmp):
    """In a directory with a default list: a mapped file, and what is in the tree's top, and what came between the passes."""
    nobody = 0xffffffff
    default = acl((1, 7, nobody), (2, 7, 12345), (4, 0, nobody), (16, 7, nobody), (32, 0, nobody))
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox = pool.live()
        top = pool.upper(sandbox)
        os.mkdir(top + "/d")
        for name in ("d/f", "d/quiet", "f"):
            with open(f"{top}/{name}", "w") as f:
                f.write("x" * 4096)
            os.chmod(f"{top}/{name}", 0o640)
        os.mkfifo(top + "/d/pipe", 0o640)
        for path in (top, top + "/d"):
            os.setxattr(path, "system.posix_acl_default", default)
        child = group.start(MAPPER, top + "/d/f", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child.stdin.write("b\n")
        child.stdin.flush()
        equal(child.stdout.readline(), "ok\n")
        layer = job.new_id()
        held = pool.job("capture", sandbox=sandbox, layer=layer, trees=[{"n": 0, "target": top}], freeze=group.freeze, how="copy",
                        env={"CAY_FAULT": "store.capture.frozen=hold"})
        wait_until(lambda: leaks.processes().get(held.process.pid, (0, "", ""))[1] == "T", 60, "it is held")
        os.utime(top + "/f")
        os.mkdir(top + "/d/new")
        os.removexattr(top + "/d/new", "system.posix_acl_default")
        os.removexattr(top + "/d/new", "system.posix_acl_access")
        os.kill(held.process.pid, signal.SIGCONT)
        held.result()
        same_trees(top, pool.layer(layer), overlay=True)
        equal(os.getxattr(pool.layer(layer), "system.posix_acl_default"), default)
        child.stdin.close()
        child.stdout.close()


BRIEFLY = """import mmap,sys
for line in sys.stdin:
    if line=='map\\n':
        f=open(sys.argv[1],'r+b')
        m=mmap.mmap(f.fileno(),4096)
        m[0:1]=b'b'
    elif line=='store\\n':
        m[0:1]=b'c'
        m.close()
        f.close()
    print('ok',flush=True)
"""


@require("root", "cgroup2")
def test_store_through_a_mapping_that_came_and_went_between_the_looks_counts(tmp):
    """As linkers write their output, in a capture of many files: nobody maps it when that begins, nor when all stand still."""
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox = pool.live()
        top = pool.upper(sandbox)
        for name in ("a", "z", "zz"):
            with open(f"{top}/{name}", "wb") as f:
                f.write(b"0" * 4096)
        child = group.start(BRIEFLY, top + "/z", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        layers = [job.new_id(), job.new_id()]
        capture = {"sandbox": sandbox, "trees": [{"n": 0, "target": top}], "freeze": group.freeze, "how": "copy"}
        log = tmp + "/points"
        first = pool.job("capture", layer=layers[0], env={"CAY_FAULT": "store.copy.looked:1+=hold", "CAY_FAULT_LOG": log}, **capture)

        def held(times):
            return leaks.read(log).count("!store.copy.looked") == times and leaks.processes().get(first.process.pid, (0, "", ""))[1] == "T"

        def say(word):
            child.stdin.write(word + "\n")
            child.stdin.flush()
            equal(child.stdout.readline(), "ok\n")

        for n, word in enumerate(("map", None, "store")):  # before a, z and zz are copied
            wait_until(lambda n=n: held(n + 1), 60, "it is held")
            if word is not None:
                say(word)
            if word == "map":
                wait_until(lambda: time.time_ns() - os.stat(top + "/z").st_ctime_ns > 50_000_000, 60, "the last change of a time stamp is old")
            os.kill(first.process.pid, signal.SIGCONT)
        first.result()
        pool.run("capture", layer=layers[1], **capture)
        for layer in layers:
            with open(pool.layer(layer) + "/z") as f:
                equal(f.read(1), "c")
        child.stdin.close()
        child.stdout.close()


@require("root", "cgroup2")
def test_store_through_a_mapping_counts_for_each_name(tmp):
    """What is stored through one name of a file is not taken from what another name had before the freeze."""
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox = pool.live()
        top = pool.upper(sandbox)
        for name in ("alone", "z"):
            with open(f"{top}/{name}", "wb") as f:
                f.write(b"0" * 4096)
        os.link(top + "/z", top + "/a")
        child = group.start(COUNTER, top + "/alone", top + "/z", stdout=subprocess.PIPE, text=True)
        equal(child.stdout.readline(), "on\n")
        for _ in range(3):
            wait_until(lambda: time.time_ns() - os.stat(top + "/z").st_ctime_ns > 50_000_000, 60, "the last change of a time stamp is old")
            layer = job.new_id()
            pool.run("capture", sandbox=sandbox, layer=layer, trees=[{"n": 0, "target": top}], freeze=group.freeze, how="copy")
            counts = {}
            for name in ("alone", "z", "a"):
                with open(f"{pool.layer(layer)}/{name}", "rb") as f:
                    counts[name] = int(f.read(8))
            equal(counts["a"], counts["z"])
            equal(counts["alone"] - counts["z"] in (0, 1), True, f"one instant: {counts}")
            equal(os.stat(pool.layer(layer) + "/a").st_ino, os.stat(pool.layer(layer) + "/z").st_ino)
        child.stdout.close()


@require("root", "cgroup2")
def test_store_through_a_mapping_counts_when_the_name_is_gone(tmp):
    """What the kernel tells then is a name that was removed; the file may have another."""
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox = pool.live()
        top = pool.upper(sandbox)
        for name in ("alone", "z"):
            with open(f"{top}/{name}", "wb") as f:
                f.write(b"0" * 4096)
        child = group.start(COUNTER, top + "/alone", top + "/z", stdout=subprocess.PIPE, text=True)
        equal(child.stdout.readline(), "on\n")
        os.link(top + "/z", top + "/a")
        os.unlink(top + "/z")
        wait_until(lambda: time.time_ns() - os.stat(top + "/a").st_ctime_ns > 50_000_000, 60, "the last change of a time stamp is old")
        layer = job.new_id()
        pool.run("capture", sandbox=sandbox, layer=layer, trees=[{"n": 0, "target": top}], freeze=group.freeze, how="copy")
        counts = {}
        for name in ("alone", "a"):
            with open(f"{pool.layer(layer)}/{name}", "rb") as f:
                counts[name] = int(f.read(8))
        equal(counts["alone"] - counts["a"] in (0, 1), True, f"one instant: {counts}")
        child.stdout.close()


@require("root", "cgroup2")
def test_store_through_a_mapping_counts_by_any_spelling_of_its_name(tmp):
    """The kernel writes a newline as four characters, which may as well be the name's own."""
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox = pool.live()
        top = pool.upper(sandbox)
        for name in ("one\\012name", "another\nname"):
            write(f"{top}/{name}", "0" * 4096)
            child = group.start(MAPPER, f"{top}/{name}", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for letter in "bcd":
                child.stdin.write(letter + "\n")
                child.stdin.flush()
                child.stdout.readline()
                wait_until(lambda at=f"{top}/{name}": time.time_ns() - os.stat(at).st_ctime_ns > 50_000_000, 60, "its time stamp is old")
                layer = job.new_id()
                pool.run("capture", sandbox=sandbox, layer=layer, trees=[{"n": 0, "target": top}], freeze=group.freeze, how="copy")
                with open(f"{pool.layer(layer)}/{name}") as f:
                    equal(f.read(1), letter, name)
            child.stdin.close()
            child.stdout.close()


@require("root")
def test_store_through_a_mapping_that_is_gone_counts_on_a_tmpfs(tmp):
    """There a page that was read before moves no time stamp when it is stored into, and nobody maps the file any more."""
    at = os.path.join(tmp, "tmpfs")
    os.mkdir(at)
    subprocess.run(["mount", "-t", "tmpfs", "cay-test", at], check=True)
    try:
        with Pool(at, "directory") as pool:
            sandbox = pool.live()
            path = pool.upper(sandbox) + "/f"
            write(path, "a" * 4096)
            wait_until(lambda: time.time_ns() - os.stat(path).st_ctime_ns > 50_000_000, 60, "its time stamp is old")
            for letter in "abc":
                with open(path, "r+b") as f, mmap.mmap(f.fileno(), 4096) as m:
                    equal(len(m[:]), 4096)
                    m[0:1] = letter.encode()
                layer, _ = pool.capture(sandbox)
                with open(pool.layer(layer) + "/f") as f:
                    equal(f.read(1), letter)
    finally:
        subprocess.run(["umount", at], check=True)


@require("root", "cgroup2")
def test_what_runs_on_a_tmpfs_is_copied_once(tmp):
    """No first copy could stay, and it would take the memory of the tmpfs."""
    at, log = os.path.join(tmp, "tmpfs"), os.path.join(tmp, "passed")
    os.mkdir(at)
    subprocess.run(["mount", "-t", "tmpfs", "cay-test", at], check=True)
    try:
        for top, times in ((tmp, 1), (at, 0)):
            with Pool(top, "directory") as pool, Group() as group:
                group.start("import time; time.sleep(600)")
                sandbox = pool.live()
                write(pool.upper(sandbox) + "/f", "what it has")
                write(log, "")
                layer, _ = pool.capture(sandbox, freeze=group.freeze, env={"CAY_FAULT_LOG": log})
                equal(leaks.read(log).split().count("store.copy.looked"), times, "looked at before all stand still")
                same_trees(pool.upper(sandbox), pool.layer(layer), times=True, overlay=True)
    finally:
        subprocess.run(["umount", at], check=True)


@require("root")
def test_a_torn_list_of_what_was_seen_keeps_no_capture(tmp):
    """What the last capture saw is only a help: a power cut may leave a part of it."""
    with Pool(tmp, "directory") as pool:
        sandbox = pool.live()
        fill(pool.upper(sandbox), random.Random(4))
        pool.capture(sandbox, how="copy")
        seen = pool.path("live", sandbox, "captured.0")
        for left in (-1, -40, 3):
            with open(seen, "r+b") as f:
                whole = f.read()
                f.truncate(left % len(whole))
            layer, _reply = pool.capture(sandbox, how="copy")
            same_trees(pool.upper(sandbox), pool.layer(layer), times=True, overlay=True)
            with open(seen, "rb") as f:
                equal(len(f.read()), len(whole), "the next one has all of it")


def patch(path):
    """Other bytes, and nothing that tells: as a broken disk, or whoever does not want to be found out."""
    st = os.stat(path)
    with open(path, "r+b") as f:
        f.write(b"X")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def old_capture(pool, name="f"):
    """A sandbox with a file that was long there when it was captured, and the layer."""
    sandbox = pool.live()
    path = pool.upper(sandbox) + "/" + name
    write(path, "the sandbox's own")
    wait_until(lambda: time.time_ns() - os.stat(path).st_ctime_ns > 50_000_000, 60, "its time stamp is old")
    return sandbox, pool.capture(sandbox)[0]


def shares(pool, one, other):
    """Is the file of both layers one file?"""
    return os.stat(pool.layer(one) + "/f").st_ino == os.stat(pool.layer(other) + "/f").st_ino


def extents(path):
    """Where the file system keeps the bytes of a file: [(physical, length)] (FS_IOC_FIEMAP)."""
    room = bytearray(struct.pack("=QQIIII", 0, 1 << 62, 1, 0, 100, 0) + bytes(100 * 56))
    with open(path, "rb") as f:
        fcntl.ioctl(f, 0xC020660B, room)
    n = struct.unpack_from("=I", room, 20)[0]
    return [struct.unpack_from("=QQ", room, 32 + 56 * i + 8) for i in range(n)]


@require("root", "btrfs", "loop")
def test_unchanged_files_share_blocks_and_not_names_where_the_file_system_can(tmp):
    """A fork shows st_nlink, and a ctime that moves when a capture of somebody else makes one more name: cron takes no crontab that has two."""
    with Pool(tmp, "btrfs") as pool:
        sandbox = pool.live()
        with open(pool.upper(sandbox) + "/f", "wb") as f:
            f.write(random.Random(1).randbytes(1 << 20))
        os.chmod(pool.upper(sandbox) + "/f", 0o640)
        wait_until(lambda: time.time_ns() - os.stat(pool.upper(sandbox) + "/f").st_ctime_ns > 50_000_000, 60, "the last change of a time stamp is old")
        first, _reply = pool.capture(sandbox, how="copy")
        before = os.stat(pool.layer(first) + "/f")
        layers = [pool.capture(sandbox, how="copy")[0] for _ in range(2)]
        for layer in layers:
            same_trees(pool.upper(sandbox), pool.layer(layer), times=True, overlay=True)
            equal(os.stat(pool.layer(layer) + "/f").st_nlink, 1)
            subprocess.run(["sync", "-f", pool.layer(layer)], check=True)
            equal(extents(pool.layer(layer) + "/f"), extents(pool.layer(first) + "/f"))
        after = os.stat(pool.layer(first) + "/f")
        equal((after.st_nlink, after.st_ctime_ns), (1, before.st_ctime_ns))


@require("root")
def test_nothing_is_linked_from_what_is_damaged(tmp):
    """A capture takes unchanged files from the last one's layer: not what that layer has not got any more."""
    with Pool(tmp, "directory") as pool:
        sandbox, first = old_capture(pool)
        second, _ = pool.capture(sandbox)
        equal(shares(pool, first, second), True, "else nothing is shown here")
        os.truncate(pool.layer(second) + "/f", 3)  # as a power cut leaves it
        third, _ = pool.capture(sandbox)
        same_trees(pool.upper(sandbox), pool.layer(third), times=True, overlay=True)


@require("root")
def test_nothing_is_linked_from_what_was_found_damaged(tmp):
    with Pool(tmp, "directory") as pool:
        sandbox, first = old_capture(pool)
        pool.run("verify", layers=[first])
        patch(pool.layer(first) + "/f")
        second, _ = pool.capture(sandbox)  # nobody knows yet
        equal(raises(job.JobError, pool.run, "verify", layers=[first]).code, "corrupt")
        third, _ = pool.capture(sandbox)
        same_trees(pool.upper(sandbox), pool.layer(third), times=True, overlay=True)
        equal((shares(pool, first, second), shares(pool, first, third)), (True, False))


@require("root")
def test_nothing_is_linked_from_what_is_found_damaged_during_a_capture(tmp):
    """That capture may have the damage already: the next one does not go on from it."""
    with Pool(tmp, "directory") as pool:
        sandbox, first = old_capture(pool)
        pool.run("verify", layers=[first])
        patch(pool.layer(first) + "/f")
        second = job.new_id()
        under_way = pool.job("capture", sandbox=sandbox, layer=second, parents=[], trees=[{"n": 0, "target": "/"}],
                             env={"CAY_FAULT": "store.capture.filled=hold"})
        wait_until(lambda: leaks.processes().get(under_way.process.pid, (0, "", ""))[1] == "T", 60, "it has copied")
        equal(raises(job.JobError, pool.run, "verify", layers=[first]).code, "corrupt")
        os.kill(under_way.process.pid, signal.SIGCONT)
        under_way.result()
        third, _ = pool.capture(sandbox)
        equal((shares(pool, first, second), shares(pool, first, third)), (True, False))
        same_trees(pool.upper(sandbox), pool.layer(third), times=True, overlay=True)


@require("root")
def test_of_another_run_of_the_machine_only_what_was_verified_is_linked(tmp):
    """A power cut leaves parts of what was not on the disk, under names that are whole."""
    with Pool(tmp, "directory") as pool:
        for verified in (False, True):
            sandbox, first = old_capture(pool)
            if verified:
                pool.run("sync", layers=[first])
            note = pool.path("live", sandbox, "captured.layer")
            with open(note) as f:
                text = f.read()
            write(note, text[:20] + " of-another-run")
            second, _ = pool.capture(sandbox)
            equal(shares(pool, first, second), verified)
            third, _ = pool.capture(sandbox)
            equal(shares(pool, second, third), True, "and what is made now is")
            write(note, third)  # as an older version wrote it
            fourth, _ = pool.capture(sandbox)
            equal(shares(pool, third, fourth), False, "it does not say when")


def whiteout(path):
    os.mknod(path, 0o600 | stat.S_IFCHR, 0)


def file_with_a_note(path):
    write(path, "now")
    os.setxattr(path, "user.note", b"x")


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def link(path):
    os.symlink("nowhere", path)


# (what is looked at, what has its place when it is read)
REPLACED = [(write, whiteout), (write, link), (write, os.mkdir), (write, None), (os.mkdir, whiteout), (os.mkdir, link), (os.mkdir, write),
            (os.mkdir, None), (link, file_with_a_note), (link, os.mkdir), (os.mkfifo, file_with_a_note)]


def make(how, path):
    how(path, "was") if how is write else how(path)


@require("root", "cgroup2")
def test_what_is_another_thing_when_it_is_read_is_taken_as_it_is_then(tmp):
    """Processes go on while most of it is copied: what they remove or replace between two calls fails no capture."""
    with Pool(tmp, "directory") as pool, Group() as group:
        for before, after in REPLACED:
            sandbox, layer = pool.live(), job.new_id()
            path = pool.upper(sandbox) + "/it"
            make(before, path)
            one = pool.job("capture", sandbox=sandbox, layer=layer, parents=[], trees=[{"n": 0, "target": "/"}], freeze=group.freeze,
                           how="copy", env={"CAY_FAULT": "store.copy.looked" + "=hold"})
            wait_until(lambda: leaks.processes().get(one.process.pid, (0, "", ""))[1] == "T", 60, "the job is held")
            subprocess.run(["rm", "-rf", path], check=True)
            if after:
                make(after, path)
            os.kill(one.process.pid, signal.SIGCONT)
            one.result()
            same_trees(pool.upper(sandbox), pool.layer(layer), times=True, overlay=True)


APPENDER = """import os,sys
f=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT|os.O_APPEND)
i=0
while True:
    os.write(f,b'%08d\\n'%i)
    i+=1
    if i==1:
        print('on',flush=True)
"""


@require("root", "btrfs", "loop", "cgroup2")
def test_log_is_a_prefix_in_each_capture(tmp):
    for pool, how in each_way(tmp):
        sandbox = pool.live()
        with Group() as group:
            child = group.start(APPENDER, pool.upper(sandbox) + "/log", stdout=subprocess.PIPE)
            child.stdout.readline()
            layers = [pool.capture(sandbox, how=how, freeze=group.freeze)[0] for _ in range(10)]
            child.stdout.close()
        with open(pool.upper(sandbox) + "/log", "rb") as f:
            whole = f.read()
        sizes = []
        for layer in layers:
            with open(pool.layer(layer) + "/log", "rb") as f:
                part = f.read()
            equal(whole.startswith(part) and len(part) % 9 == 0, True, f"{how}: a prefix of whole lines")
            sizes.append(len(part))
        equal(sizes, sorted(sizes))


@require("root", "btrfs", "loop", "cgroup2")
def test_they_go_on_before_the_snapshot_is_on_the_disk(tmp):
    """It holds nothing of what they write from then on; and a job that fails or is killed there leaves nothing."""
    with Pool(tmp, "btrfs") as pool, Group() as group:
        sandbox, layer = pool.live(), job.new_id()
        log = pool.upper(sandbox) + "/log"
        child = group.start(APPENDER, log, stdout=subprocess.PIPE)
        child.stdout.readline()

        def held(layer):
            one = pool.job("capture", sandbox=sandbox, layer=layer, parents=[], trees=[{"n": 0, "target": "/"}], freeze=group.freeze,
                           env={"CAY_FAULT": "store.capture.going_on=hold"})
            wait_until(lambda: leaks.processes().get(one.process.pid, (0, "", ""))[1] == "T", 60, "the job is held")
            equal(os.listdir(pool.path("layers")), [])
            with open(group.freeze) as f:
                equal(f.read(), "0\n", "they go on")
            size = os.stat(log).st_size
            wait_until(lambda: os.stat(log).st_size > size + (1 << 16), 60, "they have written")
            return one, size
        one, _ = held(job.new_id())
        one.process.kill()
        raises(job.JobDied, one.result)
        pool.run("recover", layers=[], sandboxes=[sandbox])
        equal(os.listdir(pool.path("tmp")), [])
        raises(job.JobError, pool.capture, sandbox, freeze=group.freeze, env={"CAY_FAULT": "store.capture.going_on=error"})
        equal(os.listdir(pool.path("tmp")), [])
        one, size = held(layer)
        os.kill(one.process.pid, signal.SIGCONT)
        equal(one.result()["how"], "snapshot")
        with open(pool.layer(layer) + "/log", "rb") as f, open(log, "rb") as whole:
            part = f.read()
            equal((whole.read(len(part)) == part, 0 < len(part) <= size, len(part) % 9), (True, True, 0))
        equal(os.listdir(pool.path("tmp")), [])
        child.stdout.close()


def facts_of(path):
    """What the kernel tells of the commits of the btrfs behind @path, by name."""
    info, fd = bytearray(1024), os.open(path, os.O_RDONLY)
    fcntl.ioctl(fd, 0x8400941F, info)  # BTRFS_IOC_FS_INFO
    os.close(fd)
    with open(f"/sys/fs/btrfs/{uuid.UUID(bytes=bytes(info[16:32]))}/commit_stats", encoding="ascii") as f:
        return {name: int(value) for name, value in (line.split() for line in f)}


@require("root", "btrfs", "loop", "cgroup2")
def test_nothing_is_committed_first_where_nothing_waits(tmp):
    """What is unwritten goes out before they stand still, by a commit of its own; where all is on the disk, or only trees have changed, there is none."""
    with Pool(tmp, "btrfs") as pool, Group() as group:
        sandbox = pool.live()
        if "cur_commit_ms" not in facts_of(pool.path()):
            raise Skip("the kernel does not tell whether a commit is under way")

        def commits(change):
            """The least of three: the kernel makes one by itself at times."""
            found = []
            for n in range(3):
                subprocess.run(["sync", "-f", pool.path()], check=True)
                change(os.path.join(pool.upper(sandbox), f"{change.__name__}-{n}"))
                before = facts_of(pool.path())["commits"]
                equal(pool.capture(sandbox, freeze=group.freeze)[1]["how"], "snapshot")
                found.append(facts_of(pool.path())["commits"] - before)
            return min(found)

        def nothing(_):
            pass

        def unwritten(path):
            with open(path, "wb") as f:
                f.write(b"x" * (1 << 20))
        least = commits(nothing)
        equal((commits(os.mkdir), commits(unwritten)), (least, least + 1))


@require("root", "cgroup2")
def test_error_thaws_and_pause_stays(tmp):
    with Pool(tmp, "directory") as pool, Group() as group:
        sandbox = pool.live()
        child = group.start(APPENDER, pool.upper(sandbox) + "/log", stdout=subprocess.PIPE)
        child.stdout.readline()
        raises(job.JobError, pool.capture, sandbox, freeze=group.freeze, env={"CAY_FAULT": "store.capture.frozen=error"})
        with open(group.freeze) as f:
            equal(f.read(), "0\n", "thawed after an error")
        with open(group.freeze, "w") as f:
            f.write("1")
        equal(pool.capture(sandbox, freeze=group.freeze)[1]["frozen_us"], 0)
        with open(group.freeze) as f:
            equal(f.read(), "1\n", "a paused sandbox stays paused")
        child.stdout.close()


@require("root", "btrfs", "loop")
def test_seal_moves_and_renews(tmp):
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            sandbox = pool.live(trees=2)
            fill(pool.upper(sandbox), random.Random(4))
            os.mkdir(pool.upper(sandbox) + "/upper")
            os.chown(pool.upper(sandbox, 1), 1000, 1000)
            os.chmod(pool.upper(sandbox, 1), 0o2750)
            want = describe(pool.upper(sandbox), overlay=True)
            layer, reply = pool.seal(sandbox, trees=2)
            equal((reply["how"], reply["state"], reply["frozen_us"]), ("seal", "sealed", 0))
            equal(describe(pool.layer(layer), overlay=True) == want, True)
            equal(os.listdir(pool.upper(sandbox)), [])
            st = os.stat(pool.upper(sandbox, 1))
            equal((st.st_uid, stat.S_IMODE(st.st_mode)), (1000, 0o2750), "the new tree's root is like the old one's")


@require("root", "btrfs", "loop")
def test_kill_at_each_point(tmp):
    """kill -9 at every fault point of seal and capture; recovery gives back exactly what the sandbox had."""
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            for verb in ("seal", "capture"):
                log = os.path.join(tmp, "points")
                sandbox = pool.live()
                fill(pool.upper(sandbox), random.Random(5), 10)
                os.mkdir(pool.upper(sandbox) + "/upper")
                want = describe(pool.upper(sandbox), overlay=True)
                members = {"sandbox": sandbox, "trees": [{"n": 0, "target": "/"}]}
                pool.run(verb, layer=job.new_id(), env={"CAY_FAULT_LOG": log}, **members)
                with open(log) as f:
                    points = f.read().split()
                os.unlink(log)
                equal(len(points) >= 4, True, f"fault points of {verb}: {points}")
                pool.run("recover", layers=[], sandboxes=[sandbox])
                equal(describe(pool.upper(sandbox), overlay=True) == want, True, f"{verb} undone")
                for point in points:
                    for action, error in (("", job.JobDied), ("=error", job.JobError)):
                        raises(error, pool.run, verb, layer=job.new_id(), env={"CAY_FAULT": point + action}, **members)
                        pool.run("recover", layers=[], sandboxes=[sandbox])
                        equal(describe(pool.upper(sandbox), overlay=True) == want, True, f"{kind} {verb} {point}{action}")
                        for place in ("layers", "tmp", "trash", "sealing"):
                            equal(os.listdir(pool.path(place)), [], f"{kind} {verb} {point}{action}: {place}")
                pool.run("remove", sandboxes=[sandbox])


@require("root", "btrfs", "loop")
def test_known_layers_stay(tmp):
    with Pool(tmp, "btrfs") as pool:
        sandbox = pool.live()
        fill(pool.upper(sandbox), random.Random(6), 10)
        sealed, _ = pool.seal(sandbox)
        with open(pool.upper(sandbox) + "/more", "w") as f:
            f.write("more")
        taken, _ = pool.capture(sandbox)
        lost = pool.live()
        reply = pool.run("recover", layers=[sealed], sandboxes=[sandbox])
        equal((reply["layers_removed"], reply["sandboxes_removed"], reply["unsealed"]), (1, 1, []))
        equal(os.listdir(pool.path("layers")), [sealed])
        equal(os.path.exists(pool.path("live", lost)) or os.path.exists(pool.path("layers", taken)), False)
        # dead between the commit of the seal and the new live directory
        pool.run("remove", sandboxes=[sandbox])
        pool.run("recover", layers=[sealed], sandboxes=[sandbox])
        equal(os.listdir(pool.upper(sandbox)), [])


@require("root")
def test_what_cannot_be_removed_keeps_nothing_else(tmp):
    """Files of many sandboxes are removed with one job."""
    with Pool(tmp, "directory") as pool:
        boxes = [pool.live() for _ in range(3)]
        stuck = pool.path("live", boxes[1])
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", stuck], check=True)
        pool.mounts.append(stuck)
        contains(raises(job.JobError, pool.run, "remove", sandboxes=boxes).message, boxes[1])
        equal(os.listdir(pool.path("live")), [boxes[1]])
        pool.unmount(stuck)
        equal(pool.run("remove", sandboxes=boxes)["removed"], 1)


@require("root")
def test_what_cannot_be_deleted_keeps_nothing_else_in_the_trash(tmp):
    with Pool(tmp, "directory") as pool:
        for _ in range(5):
            os.makedirs(pool.path("trash", job.new_id(), "inside"))
        stuck = pool.path("trash", sorted(os.listdir(pool.path("trash")))[0], "inside")
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", stuck], check=True)
        pool.mounts.append(stuck)
        raises(job.JobError, pool.run, "remove", sandboxes=[], trash=True)
        [left] = os.listdir(pool.path("trash"))
        pool.mounts[-1] = pool.path("trash", left, "inside")
        pool.unmount(pool.mounts[-1])
        pool.run("remove", sandboxes=[], trash=True)
        equal(os.listdir(pool.path("trash")), [])


@require("root", "btrfs", "loop")
def test_a_seal_that_cannot_be_taken_back_keeps_nothing_else(tmp):
    """Its sandbox was written to since: neither what it wrote nor what the seal holds goes, and all else is cleared up."""
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            def written(since):
                sandbox = pool.live()
                with open(pool.upper(sandbox) + "/before", "w") as f:
                    f.write("before")
                layer, _ = pool.seal(sandbox)
                if since:
                    with open(pool.upper(sandbox) + "/since", "w") as f:
                        f.write("since")
                return sandbox, layer

            made = sorted((written(True), written(False), written(True)), key=lambda pair: pair[1])
            late, _ = written(True)
            [name] = [layer for layer in os.listdir(pool.path("layers")) if layer not in [layer for _, layer in made]]
            if kind == "btrfs":
                subprocess.run(["btrfs", "property", "set", pool.path("layers", name), "ro", "false"], check=True)
            os.rename(pool.path("layers", name), pool.path("sealing", f"{late}.{name}"))
            os.mkdir(pool.path("trash", "left"))
            strange = pool.live()
            sandboxes = [sandbox for sandbox, _ in made] + [late]
            reply = pool.run("recover", layers=[], sandboxes=sandboxes)
            busy = [(sandbox, layer) for sandbox, layer in made if os.listdir(pool.upper(sandbox)) == ["since"]]
            [whole] = [sandbox for sandbox, layer in made if (sandbox, layer) not in busy]
            equal((len(busy), os.listdir(pool.upper(whole)), reply["unsealed"]), (2, ["before"], [whole]))
            equal(sorted(kept["seal"] for kept in reply["kept"]), sorted([layer for _, layer in busy] + [f"{late}.{name}"]))
            equal({kept["reason"] for kept in reply["kept"]}, {"its sandbox was written to since"})
            for _, layer in busy:
                equal(os.listdir(pool.layer(layer)), ["before"])
            equal((os.listdir(pool.upper(late)), os.listdir(pool.path("sealing"))), (["since"], [f"{late}.{name}"]))
            equal((os.listdir(pool.path("trash")), os.path.exists(pool.path("live", strange))), ([], False))
            # once what was written is elsewhere, the next start takes them back
            for sandbox, _ in busy + [(late, name)]:
                os.unlink(pool.upper(sandbox) + "/since")
            reply = pool.run("recover", layers=[], sandboxes=sandboxes)
            equal((reply["kept"], sorted(reply["unsealed"])), ([], sorted([sandbox for sandbox, _ in busy] + [late])))
            equal({tuple(os.listdir(pool.upper(sandbox))) for sandbox in sandboxes}, {("before",)})


@require("root", "btrfs", "loop")
def test_a_seal_that_nobody_knows_is_no_garbage(tmp):
    """Its recovery may have failed, or a power cut may have left nothing of its manifest: no clearing up takes the only copy of a sandbox's files."""
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            def sealed(sandbox):
                with open(pool.upper(sandbox) + "/before", "w") as f:
                    f.write("before")
                return pool.seal(sandbox, epoch=3)[0]

            def tear(layer):
                if kind == "btrfs":
                    subprocess.run(["btrfs", "property", "set", pool.path("layers", layer), "ro", "false"], check=True)
                with open(pool.path("layers", layer, "MANIFEST"), "w"):
                    pass

            whole, cut, unmarked = pool.live(), pool.live(), pool.live()
            seal, marked, torn = sealed(whole), sealed(cut), sealed(unmarked)
            tear(marked)
            tear(torn)
            os.removexattr(pool.path("layers", torn), "trusted.cay.seal")  # of an older version
            known = {"layers": [], "sandboxes": [whole, cut, unmarked], "epochs": {whole: 4, cut: 4, unmarked: 4}}
            late = time.time_ns() + 10 ** 12
            equal(pool.run("gc", until_ns=late, **known)["layers_removed"], 0)
            reply = pool.run("recover", **known)
            equal((sorted(reply["unsealed"]), [kept["seal"] for kept in reply["kept"]], reply["layers_removed"]), (sorted([whole, cut]), [torn], 0))
            contains(reply["kept"][0]["reason"], "manifest")
            equal([os.listdir(pool.upper(sandbox)) for sandbox in (whole, cut)], [["before"]] * 2)
            equal((os.listdir(pool.layer(torn)), os.listxattr(pool.path("live", cut))), (["before"], []))
            # a mark is believed of the layer that it is of, and when this instance wrote it
            other = sealed(cut)
            mark = os.getxattr(pool.path("layers", other), "trusted.cay.seal")
            tear(other)
            for wrong in (mark.replace(other.encode(), torn.encode()), mark.replace(b"seal", b"Seal")):
                os.setxattr(pool.path("layers", other), "trusted.cay.seal", wrong)
                equal([kept["seal"] for kept in pool.run("recover", **known)["kept"]], sorted([torn, other]))
            os.setxattr(pool.path("layers", other), "trusted.cay.seal", mark)
            equal(pool.run("recover", **known)["unsealed"], [cut])
            # what is left of a snapshot, from which its sandbox has gone back since, is garbage
            seal = sealed(whole)
            equal(pool.run("gc", until_ns=late, **{**known, "epochs": {whole: 5}})["layers_removed"], 1)
            equal(os.listdir(pool.path("layers")), [torn], f"not {seal}")


@require("root", "btrfs", "loop")
def test_gc_spares_what_is_young(tmp):
    """What may have been made after the caller listed what it knows stays; what is older and unknown goes."""
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            old = pool.live()
            fill(pool.upper(old), random.Random(9), 10)
            kept, lost = pool.capture(old)[0], pool.capture(old)[0]
            until, clock = time.time_ns(), os.path.join(tmp, "clock")
            while True:  # until the clock of file systems, which lags behind, has passed it
                with open(clock, "w") as f:
                    f.write("x")
                if os.stat(clock).st_ctime_ns > until:
                    break
            young, new = pool.live(), pool.capture(old)[0]
            reply = pool.run("gc", layers=[kept], sandboxes=[], until_ns=until)
            equal((reply["layers_removed"], reply["sandboxes_removed"]), (1, 1), f"not {lost}")
            equal(sorted(os.listdir(pool.path("layers"))), sorted([kept, new]))
            equal(os.listdir(pool.path("live")), [young])
            equal(os.listdir(pool.path("trash")), [])


@require("root", "btrfs", "loop")
def test_what_cannot_be_removed_keeps_nothing_else(tmp):
    """Neither in its own place nor in another one."""
    with Pool(tmp, "btrfs") as pool:
        stuck = pool.capture(pool.live())[0]
        for verb in ("gc", "recover"):
            for place in ("memory", "trash"):
                os.mkdir(pool.path(place, job.new_id()))
            where = "layers" if verb == "gc" else "live"
            pool.live()
            subprocess.run(["chattr", "+a", pool.path(where)], check=True)  # append only: nothing leaves
            try:
                if verb == "gc":
                    contains(raises(job.JobError, pool.run, "gc", layers=[], sandboxes=[], until_ns=time.time_ns() + 10**9).message, stuck)
                else:
                    contains(pool.run("recover", layers=[stuck], sandboxes=[])["problems"][0], "live")
            finally:
                subprocess.run(["chattr", "-a", pool.path(where)], check=True)
            equal((os.listdir(pool.path("memory")), os.listdir(pool.path("trash"))), ([], []), verb)


@require("root", "btrfs", "loop")
def test_what_cannot_be_removed_keeps_no_other_kind(tmp):
    """One verb for sandboxes, layers, images, memories and the trash: what failed is named, all else is gone."""
    with Pool(tmp, "btrfs") as pool:
        other = pool.live()
        stuck, ids = pool.live(), {"layers": [pool.capture(other)[0]]}
        for member, place in (("images", "images"), ("memories", "memory"), (None, "trash")):
            name = job.new_id()
            os.mkdir(pool.path(place, name))
            if member:
                ids[member] = [name]
        subprocess.run(["chattr", "+a", pool.path("live")], check=True)  # append only: nothing leaves
        try:
            contains(raises(job.JobError, pool.run, "remove", sandboxes=[stuck], trash=True, **ids).message, stuck)
        finally:
            subprocess.run(["chattr", "-a", pool.path("live")], check=True)
        equal([os.listdir(pool.path(place)) for place in ("layers", "images", "memory", "trash")], [[], [], [], []])


@require("root")
def test_corrupt_and_foreign_are_refused(tmp):
    with Pool(tmp, "directory") as pool:
        sandbox = pool.live()
        fill(pool.upper(sandbox), random.Random(7), 10)
        layer, _ = pool.capture(sandbox)
        pool.run("verify", layers=[layer])
        path = pool.layer(layer) + "/d1/e1/f1"
        st = os.stat(path)
        with open(path, "r+b") as f:
            f.write(b"!")
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
        error = raises(job.JobError, pool.run, "verify", layers=[layer])
        equal(error.code, "corrupt")
        contains(error.message, "d1/e1/f1")
        manifest = pool.path("layers", layer, "MANIFEST")
        with open(manifest) as f:
            good = json.load(f)
        with open(manifest, "w") as f:
            json.dump({**good, "captured_ns": 1}, f)
        error = raises(job.JobError, pool.run, "verify", layers=[layer])
        equal(error.code, "corrupt")
        contains(error.message, "changed")
        other = job.new_id()
        os.rename(pool.path("layers", layer), pool.path("layers", other))
        with open(pool.path("layers", other, "MANIFEST"), "w") as f:
            json.dump(good, f)
        contains(raises(job.JobError, pool.run, "verify", layers=[other]).message, "has the manifest of layer")


@require("root", "loop")
def test_full_disk_and_full_inodes_lose_nothing(tmp):
    for size, inodes in ((200, 8000), (600, 700)):
        disk, at = os.path.join(tmp, f"disk-{size}"), os.path.join(tmp, f"at-{size}")
        os.mkdir(at)
        with open(disk, "wb") as f:
            f.truncate(size << 20)
        subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-N", str(inodes), disk], check=True)
        subprocess.run(["mount", "-o", "loop", disk, at], check=True)
        try:
            with Pool(at, "directory") as pool:
                sandbox = pool.live()
                fill(pool.upper(sandbox), random.Random(8), 100)
                with open(pool.upper(sandbox) + "/big", "wb") as f:
                    f.write(random.Random(9).randbytes(20 << 20))
                want = describe(pool.upper(sandbox), overlay=True)
                kept, error = [], None
                for _ in range(40):
                    try:
                        kept.append(pool.capture(sandbox)[0])
                    except job.JobError as e:
                        error = e
                        break
                    with contextlib.suppress(FileNotFoundError):  # a hint, that may not have had room
                        os.unlink(pool.path("live", sandbox, "captured.layer"))  # else unchanged files are links
                equal(error is not None and error.code, "disk_full")
                equal(os.listdir(pool.path("tmp")), [])
                equal(len(kept) > 1, True)
                for layer in kept:
                    equal(describe(pool.layer(layer), overlay=True) == want, True)
                equal(describe(pool.upper(sandbox), overlay=True) == want, True)
                try:
                    pool.seal(sandbox)
                    pool.run("recover", layers=kept, sandboxes=[sandbox])
                except job.JobError as e:
                    equal(e.code, "disk_full")
                equal(describe(pool.upper(sandbox), overlay=True) == want, True, "a seal is done or undone")
        finally:
            subprocess.run(["umount", at], check=True)


@require("root", "btrfs", "loop")
def test_limit_of_a_live_directory_holds(tmp):
    with Pool(tmp, "btrfs") as pool:
        equal((pool.info["disk_limit"], pool.info["inode_limit"]), ("quota", "disk"))
        sandbox = pool.live()
        subprocess.run(["btrfs", "qgroup", "limit", "20M", pool.path("live", sandbox)], check=True)
        made = 0
        try:
            for made in range(1000):
                with open(pool.upper(sandbox) + f"/{made}", "wb") as f:
                    f.write(bytes(1 << 20))
                    os.fsync(f.fileno())
        except OSError as e:
            equal(e.errno, 122)
        equal(5 < made < 21, True, "megabytes written")
        usage = pool.run("usage", sandboxes=[sandbox])["usage"][sandbox]
        equal(10 << 20 < usage["bytes"] <= 20 << 20, True, str(usage))
        equal(usage["inodes"] >= made, True)


@require("root")
def test_bad_requests_change_nothing(tmp):
    with Pool(tmp, "directory") as pool:
        sandbox = pool.live()
        good = {"sandbox": sandbox, "layer": job.new_id(), "trees": [{"n": 0, "target": "/"}]}
        for verb, members, code in (
                ("capture", {}, "invalid"), ("capture", {**good, "sandbox": "x"}, "invalid"),
                ("capture", {**good, "sandbox": job.new_id()}, "not_found"), ("capture", {**good, "trees": []}, "invalid"),
                ("capture", {**good, "trees": [{"n": "0"}]}, "invalid"), ("capture", {**good, "how": "magic"}, "invalid"),
                ("capture", {**good, "how": "snapshot"}, "unsupported"), ("capture", {**good, "freeze": "/etc/passwd"}, "invalid"),
                ("seal", {**good, "sandbox": job.new_id()}, "not_found"), ("seal", {**good, "sandbox": "../../etc"}, "invalid"),
                ("seal", {"sandbox": sandbox, "layer": job.new_id()}, "invalid"),
                ("verify", {"layers": [job.new_id()]}, "not_found"), ("remove", {"layers": ["../x"]}, "invalid"),
                ("gc", {"layers": []}, "invalid"), ("recover", {}, "invalid"), ("nonsense", {}, "unsupported")):
            equal(raises(job.JobError, pool.run, verb, **members).code, code, f"{verb} {members}")
        equal(os.listdir(pool.path("live")), [sandbox])
        equal(os.listdir(pool.upper(sandbox)), [])
        for place in ("layers", "tmp", "sealing"):
            equal(os.listdir(pool.path(place)), [])


@require("root")
def test_hostile_trees_are_removed(tmp):
    """Trees beyond PATH_MAX and links to the outside: captured or refused with a reason, and removed."""
    outside = os.path.join(tmp, "outside")
    os.mkdir(outside)
    with open(outside + "/precious", "w") as f:
        f.write("keep")
    with Pool(tmp, "directory") as pool:
        sandbox = pool.live()
        os.symlink(outside, pool.upper(sandbox) + "/way-out")
        deep(pool.upper(sandbox), 300)
        layer, _ = pool.capture(sandbox)
        os.mkdir(pool.upper(sandbox) + "/deeper")
        deep(pool.upper(sandbox) + "/deeper", 3000)
        equal(raises(job.JobError, pool.capture, sandbox).code, "limit")
        pool.run("remove", sandboxes=[sandbox], layers=[layer])
        for place in ("live", "layers", "trash", "tmp"):
            equal(os.listdir(pool.path(place)), [])
    equal(os.listdir(outside), ["precious"])
