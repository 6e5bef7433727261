# SPDX-License-Identifier: Apache-2.0
"""A pool of its own for a test of jobs, real overlay mounts over it, and an independent description of a tree."""

import ctypes
import hashlib
import os
import shutil
import stat
import subprocess

from lib import job

MIB = 1 << 20
XATTR = "trusted.overlay."


class Pool:
    """A state directory with a pool of @kind ("btrfs" or "directory"); close() leaves nothing."""

    def __init__(self, top, kind, size=1 << 30):
        self.state = os.path.join(top, "state-" + kind)
        self.kind, self.mounts = kind, []
        os.makedirs(self.state)
        self.info = job.run(self.state, "storage", op="init", kind=kind, size_bytes=size)

    def close(self):
        while self.mounts:
            subprocess.run(["umount", self.mounts.pop()], check=True)
        job.run(self.state, "storage", op="unmount")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def path(self, *parts):
        return os.path.join(self.state, "pool", *parts)

    def run(self, verb, **members):
        return job.run(self.state, verb, **members)

    def job(self, verb, **members):
        return job.Job(self.state, verb, **members)

    def live(self, trees=1):
        """A live directory as the keeper makes it. Returns its id."""
        sandbox = job.new_id()
        if self.kind == "btrfs":
            subprocess.run(["btrfs", "-q", "subvolume", "create", self.path("live", sandbox)], check=True)
        else:
            os.mkdir(self.path("live", sandbox), 0o700)
        for n in range(trees):
            os.makedirs(self.path("live", sandbox, str(n), "upper"))
            os.mkdir(self.path("live", sandbox, str(n), "work"))
        os.mkdir(self.path("live", sandbox, "points"))
        return sandbox

    def upper(self, sandbox, n=0):
        return self.path("live", sandbox, str(n), "upper")

    def overlay(self, at, lower, sandbox=None, n=0):
        """Mount an overlay at @at over @lower (top first), writable when there is a @sandbox."""
        os.makedirs(at, exist_ok=True)
        options = "index=off,metacopy=off,xino=off,redirect_dir=on,lowerdir=" + ":".join(lower)
        if sandbox:
            options += f",upperdir={self.upper(sandbox, n)},workdir={self.path('live', sandbox, str(n), 'work')}"
        # by mount(2): fsconfig(), which newer versions of mount prefer, takes 255 bytes of an option
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, at], check=True, env={**os.environ, "LIBMOUNT_FORCE_MOUNT2": "always"})
        self.mounts.append(at)
        return at

    def unmount(self, at):
        subprocess.run(["umount", at], check=True)
        self.mounts.remove(at)

    def capture(self, sandbox, trees=1, **members):
        layer = job.new_id()
        reply = self.run("capture", sandbox=sandbox, layer=layer, parents=[],
                         trees=[{"n": n, "target": "/" if n == 0 else f"/t{n}"} for n in range(trees)], **members)
        return layer, reply

    def seal(self, sandbox, trees=1, **members):
        layer = job.new_id()
        reply = self.run("seal", sandbox=sandbox, layer=layer, parents=[],
                         trees=[{"n": n, "target": "/" if n == 0 else f"/t{n}"} for n in range(trees)], **members)
        return layer, reply

    def layer(self, layer, n=0):
        return self.path("layers", layer, str(n))


def describe(top, times=False, overlay=False):
    """{relative path: what it is} of a tree, by nothing but lstat, readlink, read and listxattr."""
    found, inodes = {}, {}

    def one(path, name):
        st = os.lstat(path)
        kind = stat.S_IFMT(st.st_mode)
        what = {"kind": kind, "mode": stat.S_IMODE(st.st_mode), "uid": st.st_uid, "gid": st.st_gid}
        what["xattrs"] = {x: os.getxattr(path, x, follow_symlinks=False) for x in os.listxattr(path, follow_symlinks=False)
                          if overlay or not x.startswith(XATTR)}
        if stat.S_ISREG(kind):
            what["size"] = st.st_size
            with open(path, "rb") as f:
                what["hash"] = hashlib.sha256(f.read()).hexdigest()
            if overlay and inodes.setdefault(st.st_ino, name) != name:
                what["twin"] = inodes[st.st_ino]
        elif stat.S_ISLNK(kind):
            what["target"] = os.readlink(path)
        elif stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
            what["device"] = st.st_rdev
        if times and not stat.S_ISDIR(kind):
            what["mtime"] = st.st_mtime_ns
        found[name] = what

    def below(path, name):
        for entry in sorted(os.listdir(path)):
            child, child_name = path + b"/" + entry, name + b"/" + entry if name else entry
            one(child, child_name)
            if stat.S_ISDIR(os.lstat(child).st_mode):
                below(child, child_name)
    below(os.fsencode(top), b"")
    return found


def same_trees(a, b, **how):
    """AssertionError naming the first entries that differ."""
    left, right = describe(a, **how), describe(b, **how)
    if left != right:
        odd = [name for name in sorted(set(left) | set(right)) if left.get(name) != right.get(name)]
        raise AssertionError(f"{len(odd)} entries differ: " + "; ".join(f"{n!r}: {left.get(n)} / {right.get(n)}" for n in odd[:5]))


def in_own_mounts():
    """Mounts of this process stay in it and vanish with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(0x00020000) != 0 or libc.mount(None, b"/", None, 0x4000 | 0x40000, None) != 0:
        raise OSError(ctypes.get_errno(), "make the mounts of this process private")


def remove(path):
    shutil.rmtree(path, ignore_errors=True)
