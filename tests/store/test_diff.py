# SPDX-License-Identifier: Apache-2.0
"""The diff of stacks: equal to what rsync finds between the mounted trees, for random changes over several layers."""

import os
import random
import resource
import shutil
import signal
import stat
import subprocess

from lib import cay, job, leaks
from lib.case import contains, equal, raises, require, timeout
from lib.pool import Pool, describe, in_own_mounts  # noqa: F401


def grow(top, rng, dirs=12, files=60):
    """A lower tree to change."""
    places = [top]
    for i in range(dirs):
        places.append(os.path.join(rng.choice(places), f"dir{i}"))
        os.mkdir(places[-1])
    for i in range(files):
        path = os.path.join(rng.choice(places), f"file{i}")
        with open(path, "wb") as f:
            f.write(rng.randbytes(rng.choice([0, 3, 500, 9000])))
        os.chmod(path, rng.choice([0o644, 0o755, 0o600]))
    os.symlink("dir0", os.path.join(top, "link0"))


class Changer:
    """Random operations of an ordinary program on a mounted tree."""

    made = 0  # names are never used twice

    def __init__(self, top, rng):
        self.top, self.rng = top, rng

    def entries(self, want):
        found = []
        for base, dirs, files in os.walk(self.top):
            for name in (dirs if want == "dir" else files) if want != "any" else dirs + files:
                path = os.path.join(base, name)
                if want != "file" or stat.S_ISREG(os.lstat(path).st_mode):
                    found.append(path)
        return sorted(p for p in found if want != "dir" or not os.path.islink(p))

    def pick(self, want):
        found = self.entries(want)
        return self.rng.choice(found) if found else None

    def fresh(self):
        Changer.made += 1
        base = self.rng.choice([self.top] + self.entries("dir"))
        return os.path.join(base, f"n{Changer.made}" + self.rng.choice(["", "é", " x", ".txt"]))

    def create(self):
        with open(self.fresh(), "wb") as f:
            f.write(self.rng.randbytes(self.rng.choice([0, 7, 4000])))

    def overwrite(self):
        path = self.pick("file")
        if path:
            with open(path, "wb") as f:
                f.write(self.rng.randbytes(self.rng.choice([0, 3, 500])))

    def append(self):
        path = self.pick("file")
        if path:
            with open(path, "ab") as f:
                f.write(b"more")

    def rewrite_same(self):
        path = self.pick("file")
        if path:
            with open(path, "rb") as f:
                data = f.read()
            with open(path, "wb") as f:
                f.write(data)

    def chmod(self):
        path = self.pick("any")
        if path and not os.path.islink(path):
            os.chmod(path, self.rng.choice([0o640, 0o700, 0o755, 0o4711]))

    def chown(self):
        path = self.pick("any")
        if path:
            os.chown(path, self.rng.choice([0, 33]), self.rng.choice([0, 33]), follow_symlinks=False)

    def xattr(self):
        path = self.pick("file")
        if path:
            if os.listxattr(path):
                os.removexattr(path, os.listxattr(path)[0])
            else:
                os.setxattr(path, "user.k", self.rng.randbytes(3))

    def unlink(self):
        path = self.pick("file")
        if path:
            os.unlink(path)

    def rmtree(self):
        path = self.pick("dir")
        if path and self.rng.random() < 0.4:
            shutil.rmtree(path)

    def replace_dir(self):
        """Remove a directory and make it anew: opaque."""
        path = self.pick("dir")
        if path and self.rng.random() < 0.5:
            shutil.rmtree(path)
            os.mkdir(path)
            with open(path + "/inside", "w") as f:
                f.write("inside")

    def rename(self):
        path = self.pick("any")
        if path:
            to = self.fresh()
            if not (to + "/").startswith(path + "/"):
                os.rename(path, to)

    def rename_over(self):
        a, b = self.pick("file"), self.pick("file")
        if a and a != b:
            os.rename(a, b)

    def mkdir(self):
        os.mkdir(self.fresh())

    def symlink(self):
        os.symlink(self.rng.choice(["a", "/etc/passwd", "../b"]), self.fresh())

    def special(self):
        os.mkfifo(self.fresh())

    def retype(self):
        path = self.pick("file")
        if path:
            os.unlink(path)
            if self.rng.random() < 0.5:
                os.mkdir(path)
            else:
                os.symlink("x", path)

    OPERATIONS = (create, overwrite, append, rewrite_same, chmod, chown, xattr, unlink, rmtree, replace_dir, rename, rename, rename_over,
                  mkdir, symlink, special, retype)

    def run(self, n):
        for _ in range(n):
            self.rng.choice(self.OPERATIONS)(self)


class Mover(Changer):
    """Mostly moves of directories into new and renamed ones, and out of them again."""

    def move(self):
        path = self.pick("dir")
        if path:
            to = self.fresh()
            if not (to + "/").startswith(path + "/"):
                os.rename(path, to)

    def move_into_new(self):
        to = self.fresh()
        os.mkdir(to)
        path = self.pick("dir")
        if not (to + "/").startswith(path + "/"):
            os.rename(path, to + "/" + os.path.basename(path))

    OPERATIONS = (move, move, move, move_into_new, move_into_new, Changer.create, Changer.unlink, Changer.rmtree, Changer.replace_dir)


def by_rsync(after, before):
    """{path: class} that rsync would do to make @before equal @after."""
    run = subprocess.run(["rsync", "-rlpgoDinHAX8", "--checksum", "--delete", "--no-whole-file", after + "/", before + "/"],
                         check=True, stdout=subprocess.PIPE)
    found = {}
    for line in run.stdout.decode().splitlines():
        item, path = line[:11], line[12:]
        path = path.split(" -> ")[0].rstrip("/")
        if item.startswith("*deleting"):
            found.setdefault(path, "deleted")
        elif item[2:] == "+++++++++":
            found[path] = "added"
        elif item[2] == "c" or item[3] == "s":
            found[path] = "modified"
        elif set(item[5:]) & set("pogax"):
            found[path] = "metadata"
    return found


def by_cay(pool, a, b, **members):
    run = pool.job("diff", trees=[{"target": "/", "a": a, "b": b}], **members)
    reply = run.result()
    changes = [c for o in run.objects for c in o.get("changes", [])]
    equal(len(changes), reply["n"])
    return changes, "".join(o.get("text", "") for o in run.objects)


def as_classes(changes):
    found = {}
    for c in changes:
        path = c["path"][1:]
        if c["kind"] == "renamed":
            found[path], found[c["from"][1:]] = "added", "deleted"
        elif c["kind"] == "modified" and c["before"]["type"] != c["after"]["type"]:
            found[path] = "added"  # rsync makes it anew
        else:
            found[path] = c["kind"]
    return found


def check_states(changes, after, before):
    """before and after of each change are what lstat and sha256 say."""
    trees = {"after": describe(after), "before": describe(before)}
    for c in changes:
        for side, tree in trees.items():
            path = c["path"] if side == "after" else c.get("from", c["path"])
            real, told = tree.get(os.fsencode(path[1:])), c[side]
            if real is None or told is None:
                equal((real, told), (None, None), f"{side} of {c}")
                continue
            equal((told["mode"], told["uid"], told["gid"]), (real["mode"], real["uid"], real["gid"]), f"{side} of {c}")
            equal(told.get("hash"), real.get("hash"), f"{side} of {c}")
            equal(told.get("size"), real.get("size"))
            equal(told.get("target"), os.fsdecode(real["target"]) if "target" in real else None)
            equal(set(told.get("xattrs", {})), {os.fsdecode(x) for x in real["xattrs"]})


def one_world(tmp, pool, seed, changer=Changer):
    rng = random.Random(seed)
    lower, at = os.path.join(tmp, f"lower{seed}"), os.path.join(tmp, f"at{seed}")
    os.mkdir(lower)
    grow(lower, rng)
    sandbox, stack, stacks = pool.live(), [lower], [[lower]]
    for _ in range(3):
        mounted = pool.overlay(at, stack, sandbox)
        changer(mounted, rng).run(rng.choice([3, 15, 40]))
        if rng.random() < 0.5:
            layer, _reply = pool.capture(sandbox, how=rng.choice(["auto", "copy"]))
            stacks.append([pool.layer(layer)] + stack)
            changer(mounted, rng).run(10)
        pool.unmount(at)
        layer, _reply = pool.seal(sandbox)
        stack = [pool.layer(layer)] + stack
        stacks.append(stack)
    return stacks


def all_equal_rsync(tmp, pool, stacks, seed):
    """The diff of every two of @stacks is what rsync finds between what the kernel shows of them."""
    views = []
    for i, stack in enumerate(stacks):
        os.makedirs(os.path.join(tmp, "empty"), exist_ok=True)
        views.append(pool.overlay(os.path.join(tmp, f"view{i}"), stack + [os.path.join(tmp, "empty")]))
    for i, a in enumerate(stacks):
        for k, b in enumerate(stacks):
            changes, _text = by_cay(pool, a, b)
            what = f"seed {seed}, {i} against {k}"
            want, got = by_rsync(views[i], views[k]), as_classes(changes)
            odd = {p: (got.get(p), want.get(p)) for p in set(got) | set(want) if got.get(p) != want.get(p)}
            equal(odd, {}, f"{what}: (ours, rsync's)")
            check_states(changes, views[i], views[k])
    for view in views:
        pool.unmount(view)


@require("root", "btrfs", "loop", "program:rsync")
@timeout(300)
def test_equals_rsync(tmp):
    """For random changes over several layers, between every two states."""
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            for seed in range(20, 28) if kind == "btrfs" else range(40, 44):
                all_equal_rsync(tmp, pool, one_world(tmp, pool, seed), seed)


@require("root", "btrfs", "loop", "program:rsync")
@timeout(300)
def test_moves_of_directories_equal_rsync(tmp):
    """A directory that moved into another in one layer and out of it in a later one has what it had."""
    with Pool(tmp, "btrfs") as pool:
        for seed in range(60, 68):
            all_equal_rsync(tmp, pool, one_world(tmp, pool, seed, Mover), seed)


@require("root", "btrfs", "loop", "program:diff")
@timeout(120)
def test_the_text_of_many_files(tmp):
    """Many go to one `diff`: what comes is what it says of each, in their order."""
    rng = random.Random(7)

    def content():
        lines = [rng.choice([b"a", b"b", b"diff -r x 0001", b"--- d", b"+++ x", b"@@ -1 +1 @@", b"", b"\\ No newline"]) for _ in range(rng.randrange(1, 12))]
        return b"begin\n" + b"\n".join(lines) + rng.choice([b"", b"\n", b"\n" + b"x" * 9000 + b"\0\nd\n" if rng.random() < 0.3 else b"\n"])

    with Pool(tmp, "btrfs") as pool:
        lower, at = os.path.join(tmp, "lower"), os.path.join(tmp, "at")
        os.mkdir(lower)
        names = [f"{n:03}{rng.choice(['', ' x', chr(39), '.txt'])}" for n in range(400)]
        before = {n: content() for n in names if rng.random() < 0.8}
        for name, data in before.items():
            with open(f"{lower}/{name}", "wb") as f:
                f.write(data)
        sandbox = pool.live()
        mounted, want = pool.overlay(at, [lower], sandbox), b""
        for name in names:
            path, old, data = f"{mounted}/{name}", f"{lower}/{name}", content()
            if name in before and rng.random() < 0.2:
                os.unlink(path)
            elif rng.random() < 0.1:
                continue
            elif rng.random() < 0.1:
                if name in before:
                    os.unlink(path)
                os.symlink("to", path)
            else:
                with open(path, "wb") as f:
                    f.write(data)
            there, regular = os.path.lexists(path), os.path.isfile(path) and not os.path.islink(path)
            if os.path.islink(path):
                want += f"Symbolic link b/{name} is to to\n".encode()
            if name in before or regular:
                labels = ["--label", f"a/{name}" if name in before else "/dev/null", "--label", f"b/{name}" if there else "/dev/null"]
                want += subprocess.run(["diff", "-u", "--text", *labels, old if name in before else "/dev/null", path if regular else "/dev/null"],
                                       check=False, stdout=subprocess.PIPE).stdout
        _changes, text = by_cay(pool, [pool.upper(sandbox), lower], [lower], text=True)
        for got, wanted in zip(text.split("\n"), want.decode().replace("\0", "\ufffd").split("\n"), strict=True):
            equal(got, wanted)
        equal(os.listdir(pool.path("tmp")), [])


@require("root", "btrfs", "loop")
def test_attributes_of_megabytes(tmp):
    """They are compared whole; what does not fit into a change is counted."""
    with Pool(tmp, "btrfs") as pool:
        lower, at = os.path.join(tmp, "lower"), os.path.join(tmp, "at")
        os.mkdir(lower)
        sandbox = pool.live()
        mounted = pool.overlay(at, [lower], sandbox)
        with open(mounted + "/f", "w") as f:
            f.write("f")
        for n in range(150):
            os.setxattr(mounted + "/f", f"user.{n:03}", bytes([n]) * 12000)
        stack = [pool.upper(sandbox), lower]
        changes, _ = by_cay(pool, stack, [lower])
        equal([(c["path"], len(c["after"]["xattrs"]), c["after"]["xattrs_left_out"]) for c in changes], [("/f", 8, 142)])
        layer, _reply = pool.capture(sandbox, how="copy")
        snapshot = [pool.layer(layer), lower]
        equal(by_cay(pool, stack, snapshot)[0], [])
        os.setxattr(mounted + "/f", "user.149", b"another")
        equal([(c["path"], c["kind"]) for c in by_cay(pool, stack, snapshot)[0]], [("/f", "metadata")])


@require("root", "btrfs", "loop")
@timeout(60)
def test_holes(tmp):
    """A file of exabytes costs who makes it one call, and who looks at it no more: it is compared, captured and verified by what is stored of it."""
    with Pool(tmp, "btrfs") as pool:
        lower = os.path.join(tmp, "lower")
        os.mkdir(lower)
        with open(lower + "/same", "wb") as f:
            f.truncate(1 << 43)
        sandbox = pool.live()
        mounted = pool.overlay(os.path.join(tmp, "at"), [lower], sandbox)
        for name, size in {"vast": 7 << 60, "wide": 1 << 29}.items():
            with open(os.path.join(mounted, name), "wb") as f:
                f.truncate(size)
        os.utime(mounted + "/same")  # copied up, with the same content
        first, _reply = pool.capture(sandbox)
        with open(mounted + "/vast", "r+b") as f:
            f.seek(3 << 60)
            f.write(b"x")
        second, _reply = pool.capture(sandbox)
        pool.unmount(mounted)
        for layer in (first, second, first, second):
            equal(pool.run("verify", layers=[layer])["state"], "verified")
        changes, _text = by_cay(pool, [pool.layer(first), lower], [lower])
        equal([(c["path"], c["kind"], "hash" in c["after"]) for c in changes], [("/vast", "added", False), ("/wide", "added", True)])
        changes, text = by_cay(pool, [pool.layer(second), lower], [pool.layer(first), lower], text=True)
        equal([(c["path"], c["kind"]) for c in changes], [("/vast", "modified")])
        contains(text, "Binary files a/vast and b/vast differ")


@require("root", "btrfs", "loop")
def test_small_things(tmp):
    with Pool(tmp, "btrfs") as pool:
        lower = os.path.join(tmp, "lower")
        os.makedirs(lower + "/deep/er")
        for name in ("a", "b", "deep/er/c"):
            with open(f"{lower}/{name}", "w") as f:
                f.write(f"line {name}\nsecond\n")
        sandbox = pool.live()
        at = pool.overlay(os.path.join(tmp, "at"), [lower], sandbox)
        with open(at + "/a", "w") as f:
            f.write("line a\nchanged\n")
        os.rename(at + "/deep/er/c", at + "/moved")
        with open(os.fsencode(at) + b"/bad\xffname", "w") as f:
            f.write("x")
        with open(at + "/binary", "wb") as f:
            f.write(b"\0\1")
        with open(at + "/new\nline", "w") as f:
            f.write("n\n")
        stack = [pool.upper(sandbox), lower]
        changes, text = by_cay(pool, stack, [lower], text=True)
        equal({c["path"]: c["kind"] for c in changes},
              {"/a": "modified", "/moved": "renamed", "/bad\ufffdname": "added", "/binary": "added", "/new\nline": "added"})
        moved = [c for c in changes if c["kind"] == "renamed"][0]
        equal((moved["from"], moved["before"]["size"]), ("/deep/er/c", 22))
        equal([c["raw"] for c in changes if "raw" in c], ["2f626164ff6e616d65"])
        contains(text, "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n line a\n-second\n+changed\n")
        contains(text, "+++ b/new?line\n")
        contains(text, "Binary files /dev/null and b/binary differ\n")
        equal(by_cay(pool, stack, stack)[0], [])
        equal(len(by_cay(pool, stack, [lower], limit=2)[0]), 2)
        # changed and put back, touched: no change
        with open(at + "/b", "a") as f:
            f.write("more")
        os.truncate(at + "/b", 14)
        os.utime(at + "/deep")
        equal(sorted(c["path"] for c in by_cay(pool, stack, [lower])[0] if c["path"] in ("/b", "/deep")), [])


@require("root", "btrfs", "loop")
def test_very_long_paths(tmp):
    """Two hundred changes with such names are more than goes into one frame."""
    with Pool(tmp, "btrfs") as pool:
        top = tmp + "/lower"
        os.mkdir(top)
        sandbox = pool.live()
        here = os.open(pool.overlay(os.path.join(tmp, "at"), [top], sandbox), os.O_RDONLY)
        for _ in range(300):
            os.mkdir("l" * 200, dir_fd=here)
            below = os.open("l" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        changes, _text = by_cay(pool, [pool.upper(sandbox), top], [top])
        equal([len(c["path"]) for c in changes], [n * 201 for n in range(1, 301)])


@require("root", "btrfs", "loop")
def test_the_text_tells_what_a_unified_diff_does_not(tmp):
    """Who reviews the text alone sees links, modes, empty files, and where it has no more room."""
    with Pool(tmp, "btrfs") as pool:
        lower = os.path.join(tmp, "lower")
        os.makedirs(lower + "/dir")
        for name in ("mode", "empty-gone", "was-file", "owner"):
            with open(f"{lower}/{name}", "w") as f:
                f.write("" if name == "empty-gone" else "text\n")
        os.symlink("old", lower + "/link")
        os.symlink("gone", lower + "/link-gone")
        sandbox = pool.live()
        at = pool.overlay(os.path.join(tmp, "at"), [lower], sandbox)
        os.chmod(at + "/mode", 0o755)
        os.chmod(at + "/dir", 0o700)
        os.chown(at + "/owner", 5, 5)
        for name in ("empty-gone", "was-file", "link", "link-gone"):
            os.unlink(f"{at}/{name}")
        os.symlink("/etc\n+++ x", at + "/link")
        os.symlink("x", at + "/was-file")
        os.mkfifo(at + "/pipe")
        for name, mode in (("empty", 0o644), ("tool", 0o4755)):
            with open(f"{at}/{name}", "w"):
                os.chmod(f"{at}/{name}", mode)
        stack = [pool.upper(sandbox), lower]
        _changes, text = by_cay(pool, stack, [lower], text=True)
        equal(text.split("\n"), ["Mode of b/dir: 0700, was 0755", "Empty file b/empty", "Empty file a/empty-gone is gone", "Symbolic link a/link was to old",
                                 "Symbolic link b/link is to /etc?+++ x", "Symbolic link a/link-gone was to gone", "Mode of b/mode: 0755, was 0644",
                                 "Owner or attributes of b/owner changed", "b/pipe is a fifo", "Mode of b/tool: 4755", "Empty file b/tool",
                                 "Symbolic link b/was-file is to x", "--- a/was-file", "+++ b/was-file", "@@ -1 +0,0 @@", "-text", ""])
        for name in range(5):
            with open(f"{at}/big{name}", "w") as f:
                f.write("x" * 63 + "\n")
                f.write(("y" * 63 + "\n") * (4 << 14))
                f.truncate(4 << 20)
        _changes, text = by_cay(pool, stack, [lower], text=True)
        contains(text, "+++ b/big0\n")
        equal(text.split("\n")[-2], "The text ends here, and is not all: it has no more room")


@require("root")
def test_text_in_any_encoding_fits_into_frames(tmp):
    """Bytes that are no UTF-8 take three in JSON, controls six: CP1251, a log full of escapes, one line without an end, whole characters where it is UTF-8."""
    with Pool(tmp, "directory") as pool:
        lower = os.path.join(tmp, "lower")
        os.mkdir(lower)
        top = pool.upper(pool.live())
        for content, shown in ((b"\xcf" * 50 + b"\n", "\ufffd" * 50 + "\n"), (b"\xcf", "\ufffd"), (b"\x1b", "\x1b"), (b'"' * 99 + b"\n", '"' * 99 + "\n"),
                               ("a\u20ac".encode(), "a\u20ac"), ("\U0001f600".encode(), "\U0001f600")):
            times = (700 << 10) // len(content)
            with open(top + "/text", "wb") as f:
                f.write(content * times)
            _changes, text = by_cay(pool, [top, lower], [lower], text=True)
            lines = "".join(line[1:] + "\n" for line in text.split("\n")[3:] if line.startswith("+"))
            equal(lines.rstrip("\n") == (shown * times).rstrip("\n"), True, repr(content))


@require("root")
def test_a_nul_in_text_hides_nothing(tmp):
    """Behind the first 8 KiB of a file it makes no binary of it, and no reader of JSON from jobs takes one: all that came in one piece with it would be missing."""
    with Pool(tmp, "directory") as pool:
        lower = os.path.join(tmp, "lower")
        os.mkdir(lower)
        top = pool.upper(pool.live())
        with open(top + "/text", "wb") as f:
            f.write(b"seen\n" * 2000 + b"a\0b\n")
        _changes, text = by_cay(pool, [top, lower], [lower], text=True)
        equal(text.split("\n")[-2:], ["+a\ufffdb", ""])
        equal(text.count("+seen\n"), 2000)


@require("root", "program:diff")
def test_text_is_of_what_was_looked_at(tmp):
    """Files of a sandbox that runs become larger than any memory, of holes, before `diff`, which reads the whole of one, comes to them."""
    with Pool(tmp, "directory") as pool:
        lower = os.path.join(tmp, "lower")
        os.mkdir(lower)
        top = pool.upper(pool.live())
        for name in ("a", "b"):
            for where, text in ((top, f"new {name}\n"), (lower, "old\n")):
                with open(f"{where}/{name}", "w") as f:
                    f.write(text)
        run = pool.job("diff", trees=[{"target": "/", "a": [top, lower], "b": [lower]}], text=True, env={"CAY_FAULT": "store.diff.compared=hold"})
        cay.wait_until(lambda: leaks.processes().get(run.process.pid, (0, "", ""))[1] == "T", 60, "it is held")
        for name in ("a", "b"):
            os.truncate(f"{top}/{name}", 512 << 20)
        os.kill(run.process.pid, signal.SIGCONT)
        run.result()
        equal("".join(o.get("text", "") for o in run.objects),
              "".join(f"--- a/{n}\n+++ b/{n}\n@@ -1 +1 @@\n-old\n+new {n}\n" for n in ("a", "b")))
        equal(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 128 << 10, True, "it was not read")


@require("root")
def test_text_of_large_files_does_not_wait_in_memory(tmp):
    """The two sides of a hundred changes may be nearly a gigabyte: they are compared a few at a time."""
    with Pool(tmp, "directory") as pool:
        lower = os.path.join(tmp, "lower")
        os.mkdir(lower)
        top = pool.upper(pool.live())
        for n in range(20):
            for where, text in ((top, "new\n"), (lower, "old\n")):
                with open(f"{where}/{n:02}", "w") as f:
                    f.write(text + "x" * ((4 << 20) - 4))
        run = pool.job("diff", trees=[{"target": "/", "a": [top, lower], "b": [lower]}], text=True, hash=False, env={"CAY_FAULT": "store.diff.compared=hold"})
        cay.wait_until(lambda: leaks.processes().get(run.process.pid, (0, "", ""))[1] == "T", 60, "it is held")
        held = [os.stat(f"/proc/{run.process.pid}/fd/{fd}").st_size for fd in os.listdir(f"/proc/{run.process.pid}/fd")
                if os.readlink(f"/proc/{run.process.pid}/fd/{fd}").startswith("/memfd:text")]
        os.kill(run.process.pid, signal.SIGCONT)
        run.result()
        equal(sum(held) <= 32 << 20, True, str(held))
        contains("".join(o.get("text", "") for o in run.objects), "+++ b/00\n")


@require("root", "btrfs", "loop")
def test_snapshots_of_one_sandbox(tmp):
    """Captures of a running sandbox against each other and against the live directory; writes in the same tick are seen."""
    with Pool(tmp, "btrfs") as pool:
        sandbox, last = pool.live(), None
        path = pool.upper(sandbox) + "/f"
        with open(path, "w") as f:
            f.write("0000")
        for i in range(1, 30):
            layer, _ = pool.capture(sandbox)
            with open(path, "r+") as f:
                f.write(f"{i:04}")
            changes, _ = by_cay(pool, [pool.upper(sandbox)], [pool.layer(layer)])
            equal([c["path"] for c in changes], ["/f"], f"round {i}")
            if last:
                equal([c["path"] for c in by_cay(pool, [pool.layer(layer)], [pool.layer(last)])[0]], ["/f"])
            last = layer


@require("root")
def test_bad_requests(tmp):
    with Pool(tmp, "directory") as pool:
        for members, code in (({}, "invalid"), ({"trees": []}, "invalid"), ({"trees": [{}]}, "invalid"),
                              ({"trees": [{"target": "x", "a": [], "b": []}]}, "invalid"),
                              ({"trees": [{"target": "/", "a": "/", "b": []}]}, "invalid"),
                              ({"trees": [{"target": "/", "a": ["../x"], "b": []}]}, "invalid"),
                              ({"trees": [{"target": "/", "a": [tmp + "/none"], "b": []}]}, "not_found"),
                              ({"trees": [{"target": "/", "a": [tmp] * 600, "b": []}]}, "invalid")):
            equal(raises(job.JobError, pool.run, "diff", **members).code, code, str(members)[:80])


def stopped_jobs(instance):
    processes = leaks.processes()
    return [pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/cmdline").startswith("cay-keeper\0job\0") and processes.get(pid, (0, "", ""))[1] == "T"]


def was_told(pid):
    """Has somebody been told by a signal that his socket has changed, and not heard it yet?"""
    waiting = [int(line.split()[1], 16) for line in leaks.read(f"/proc/{pid}/status").splitlines() if line.startswith(("SigPnd:", "ShdPnd:"))]
    return any(mask >> (signal.SIGIO - 1) & 1 for mask in waiting)


@require("root")
@timeout(120)
def test_a_diff_ends_with_its_client(tmp):
    log, held = cay.fault_log(tmp), "store.diff.begun"
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{held}=hold", "CAY_FAULT_LOG": log})
    try:
        instance.start()
        with instance.sandbox() as box:
            client = cay.UnixConnection(instance.socket, 60)
            client.request("GET", f"/v1/diff?a={box}")
            cay.wait_until(lambda: stopped_jobs(instance), 60, "the job is held")
            worker = stopped_jobs(instance)[0]
            client.close()
            cay.wait_until(lambda: was_told(worker), 20, "the server has given the job up")
            os.kill(worker, signal.SIGCONT)
            cay.wait_until(lambda: not leaks.read(f"/proc/{worker}/cmdline"), 60, "the job has ended")
        with open(log, encoding="utf-8") as f:
            equal("store.diff.compared" in f.read(), False)
    finally:
        instance.close()


def anonymous_kib(pid):
    return next(int(line.split()[1]) for line in leaks.read(f"/proc/{pid}/status").splitlines() if line.startswith("RssAnon:"))


@timeout(300)
def test_a_large_diff_does_not_stay_in_the_memory_of_the_server(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "mkdir /root/many && cd /root/many && seq 10000 | xargs touch", seconds=240)
        before = anonymous_kib(fresh.process.pid)
        equal(len([c for c in fresh.get(f"/v1/diff?a={box}")["changes"] if c["path"].startswith("/root/many/")]), 10000)
        after = anonymous_kib(fresh.process.pid)
        assert after - before < 8 << 10, (before, after)
