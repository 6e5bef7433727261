# SPDX-License-Identifier: Apache-2.0
"""Memory on disk beside that of an earlier snapshot: what both have is written once, neither needs the other to stay, and each comes back byte for byte."""

import os
import sys

from lib.case import equal, raises, require, timeout
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, put, rootless, start  # noqa: E402
from suspending import memories, resume, suspend  # noqa: E402

TIMEOUT = 180
NEEDS = ("root", "cgroup2")
MIB = 1 << 20

# argv: mebibytes, number of children that have the same. "set N" changes the byte at N, "each" one of each page, "grow" adds memory, anything else is answered with the digest of all that each has.
HOLDER = """
import hashlib, mmap, os, sys
size, children = int(sys.argv[1]) << 20, int(sys.argv[2])
held = [mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)]
held[0][:] = os.urandom(size)
pipes = []
for _ in range(children):
    there, back = os.pipe(), os.pipe()
    if os.fork() == 0:
        while os.read(there[0], 1):
            os.write(back[1], hashlib.sha256(held[0]).digest())
        os._exit(0)
    pipes.append((there[1], back[0]))
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("set "):
        at = int(line[4:])
        held[0][at] ^= 1
    elif line == "each\\n":
        for at in range(0, size, 4096):
            held[0][at] ^= 1
    elif line == "grow\\n":
        held.append(bytearray(os.urandom(300 << 10)))
    digest = hashlib.sha256()
    for one in held:
        digest.update(one)
    for there, back in pipes:
        os.write(there, b"?")
        digest.update(os.read(back, 32))
    print(digest.hexdigest(), flush=True)
"""


class Holder:
    """The program in a sandbox, and its named snapshots with what it said then."""

    def __init__(self, instance, box, mebibytes=16, children=0):
        self.instance, self.box, self.said = instance, box, {}
        put(instance, box, "/tmp/holder.py", HOLDER)
        self.run = start(instance, box, "/usr/bin/python3", "/tmp/holder.py", str(mebibytes), str(children))

    def ask(self, line="?", box=None):
        return ask(self.instance, box or self.box, self.run, line)

    def snapshot(self, name):
        """Return: its `memory`."""
        self.said[name] = self.ask()
        made = self.instance.post(f"/v1/sandboxes/{self.box}/snapshots", {"name": name, "files_only": False})
        equal(made["state"], "durable")
        return made["memory"]

    def from_disk(self):
        """No template is left: what is forked next is read."""
        self.instance.stop()
        self.instance.start()

    def check(self, name):
        equal(self.instance.post(f"/v1/snapshots/{name}/verify")["state"], "verified")
        fork = self.instance.post(f"/v1/snapshots/{name}/fork", {})["sandboxes"][0]["id"]
        equal(self.ask(box=fork), self.said[name])
        self.instance.remove(fork)

    def drop(self, *names):
        for name in names:
            self.instance.call("DELETE", f"/v1/snapshots/{name}")


def folder(instance, memory):
    return os.path.join(instance.state, "pool", "memory", memory["id"])


def on_disk(instance):
    """Bytes of all files of memory, each counted once."""
    sizes = {}
    for memory in memories(instance):
        place = os.path.join(instance.state, "pool", "memory", memory)
        for name in os.listdir(place):
            found = os.stat(os.path.join(place, name))
            sizes[found.st_ino] = found.st_size
    return sum(sizes.values())


def what_changed_is_written(instance):
    with instance.sandbox() as box:
        holder = Holder(instance, box)
        first = holder.snapshot("first")
        equal(first["shared"], 0)
        assert first["stored"] > 16 * MIB, first
        holder.ask(f"set {5 * MIB + 12345}")
        holder.ask("grow")
        second = holder.snapshot("second")
        assert second["stored"] < 4 * MIB, second
        assert second["shared"] > 15 * MIB, second
        holder.from_disk()
        for name in ("first", "second"):
            holder.check(name)
        holder.drop("first")
        equal(memories(instance), {second["id"]})
        holder.from_disk()
        holder.check("second")
        # what the sandbox goes on from is what its next snapshot is compared with
        fork = instance.post("/v1/snapshots/second/fork", {})["sandboxes"][0]["id"]
        other = instance.post(f"/v1/sandboxes/{fork}/snapshots", {"name": "of-the-fork", "files_only": False})
        assert other["memory"]["stored"] < 4 * MIB, other
        equal(holder.ask(box=fork), holder.said["second"])
        instance.remove(fork)
        holder.drop("second", "of-the-fork")
        equal(memories(instance), set())


@require(*NEEDS)
def test_what_changed_is_written(fresh):
    what_changed_is_written(fresh)


@require(*NEEDS, "userns", "newuidmap")
def test_what_changed_is_written_rootless(tmp):
    with rootless(tmp) as instance:
        what_changed_is_written(instance)


@require(*NEEDS)
def test_relatives_are_written_once(fresh):
    """Four processes with the same eight mebibytes, and what becomes of them when one writes; and three that have the same where their parent has something else."""
    with fresh.sandbox() as box:
        holder = Holder(fresh, box, 8, 3)
        memory = holder.snapshot("four")
        assert 8 * MIB < memory["bytes"] < 24 * MIB, memory
        holder.ask("set 0")
        memory = holder.snapshot("one-differs")
        assert memory["stored"] < 4 * MIB, memory
        holder.ask("each")
        memory = holder.snapshot("three")
        assert memory["bytes"] > 32 * MIB, memory
        assert memory["stored"] < 12 * MIB, memory
        holder.from_disk()
        for name in ("four", "one-differs", "three"):
            holder.check(name)
        holder.drop("four", "one-differs", "three")


@require(*NEEDS)
def test_suspended_beside_a_snapshot(fresh):
    with fresh.sandbox() as box:
        holder = Holder(fresh, box)
        holder.snapshot("point")
        said = holder.ask(f"set {MIB}")
        memory = suspend(fresh, box)["memory"]
        assert memory["stored"] < 4 * MIB, memory
        holder.drop("point")
        equal(memories(fresh), {memory["id"]})
        fresh.stop()
        fresh.start()
        resume(fresh, box)
        equal(holder.ask(), said)
        equal(memories(fresh), set())


@require(*NEEDS)
@timeout(300)
def test_a_long_chain(fresh):
    """Each snapshot changes a part; older ones go. What stays is right, few files hang on each other, and bytes that nobody has are not kept for long."""
    with fresh.sandbox() as box:
        holder, names = Holder(fresh, box, 8), []
        for n in range(24):
            for at in range(3):
                holder.ask(f"set {(n * 3 + at) * 300 * 1024 % (8 * MIB)}")
            names.append(f"s{n}")
            memory = holder.snapshot(names[-1])
            assert len(os.listdir(folder(fresh, memory))) <= 4 + 8, os.listdir(folder(fresh, memory))
            assert n == 0 or memory["shared"] > 3 * MIB, memory
            while len(names) > 3:
                holder.drop(names.pop(0))
        # three snapshots of little more than eight mebibytes that differ in two at most; a file stays as long as half of it was in use
        assert on_disk(fresh) < 3 * 2 * 12 * MIB, on_disk(fresh)
        holder.from_disk()
        for name in names:
            holder.check(name)
        holder.drop(*names)
        equal(memories(fresh), set())


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        byte = f.read(1)[0]
        f.seek(-1, 1)
        f.write(bytes([byte ^ 1]))


@require(*NEEDS)
def test_a_shared_file_that_was_changed(fresh):
    """All that have it are refused. What is written afterwards shares nothing with an object of which anything is not as it was."""
    with fresh.sandbox() as box:
        holder = Holder(fresh, box)
        first, second = holder.snapshot("first"), holder.snapshot("second")
        holder.from_disk()
        shared = [n for n in os.listdir(folder(fresh, second)) if n.startswith("PAGES.")]
        equal(len(shared), 1)
        path = os.path.join(folder(fresh, second), shared[0])
        equal(os.stat(path).st_ino, os.stat(os.path.join(folder(fresh, first), "PAGES")).st_ino)
        flip(path, os.path.getsize(path) // 2)
        beside = holder.snapshot("beside")
        equal(beside["shared"], 0)
        for name in ("first", "second"):
            equal(raises(ApiError, fresh.post, f"/v1/snapshots/{name}/fork", {}).code, "corrupt")
            equal(raises(ApiError, fresh.post, f"/v1/snapshots/{name}/verify").code, "corrupt")
        holder.check("beside")
        flip(os.path.join(folder(fresh, beside), "INDEX"), 100)
        third = holder.snapshot("third")
        equal(third["shared"], 0)
        os.remove(os.path.join(folder(fresh, third), "PAGES"))
        fourth = holder.snapshot("fourth")
        equal(fourth["shared"], 0)
        holder.drop("first", "second", "beside", "third", "fourth")
