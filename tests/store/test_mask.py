# SPDX-License-Identifier: Apache-2.0
"""The layer that hides parts of the host: what root inside could read and an ordinary user outside could not is not there."""

import os
import re
import stat
import subprocess
import sys

from lib import leaks
from lib.case import contains, equal, require
from lib.pool import Pool, describe

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "crash"))
from points import own_instance  # noqa: E402

# what other tests make for a moment: useradd and its like lock files, and files that are not finished; secrets of a host
PASSING = re.compile(r"/etc/(?:(?:passwd|group|shadow|gshadow|subuid|subgid)(?:\.lock|\.[0-9]+|\+)|(?:passwd|group|subuid|subgid)-)|/(?:etc|var/log)/cay-test-later-[^/]*/.*")


def view(pool, tmp, name="view", **members):
    """The mask, and the host below it. The pool must be a file system of its own: overlayfs refuses a layer inside another."""
    mask = pool.run("mask", **members)["dir"]
    return mask, pool.overlay(os.path.join(tmp, name), [mask, "/"])


@require("root", "btrfs", "loop")
def test_what_is_hidden_and_shown(tmp):
    with Pool(tmp, "btrfs") as pool:
        mask, top = view(pool, tmp, run=tmp)
        layers = [mask] + [pool.run("mask", run=tmp)["dir"] for _ in range(5)]  # another test may make a secret of the host's meanwhile
        assert any(a == b for a, b in zip(layers, layers[1:])), f"the same host gives the same layer, not {layers}"
        for path in ("home", "root", "tmp", "run", "mnt", "media", "srv", "boot", "var/tmp", "var/spool", "etc/ssl/private"):
            if os.path.isdir("/" + path) and not os.path.islink("/" + path):
                equal(os.listdir(f"{top}/{path}"), [], path)
                outside, inside = os.stat("/" + path), os.stat(f"{top}/{path}")
                equal((inside.st_mode, inside.st_uid, inside.st_gid), (outside.st_mode, outside.st_uid, outside.st_gid), path)
        for path in ("bin/sh", "usr/bin/python3", "etc/passwd", "etc/group", "etc/sudoers", "var/lib/dpkg/status", "etc/apt/sources.list.d"):
            equal(os.path.lexists(f"{top}/{path}"), os.path.lexists("/" + path), path)
        for path in ("etc/shadow-", "etc/gshadow-", "etc/fstab", "lost+found", "work"):
            equal(os.path.lexists(f"{top}/{path}"), False, path)
        with open(top + "/etc/shadow") as f:
            lines = f.read().splitlines()
        with open("/etc/passwd") as f:
            equal([line.split(":")[0] for line in lines], [line.split(":")[0] for line in f])
        equal({line.split(":")[1] for line in lines}, {"*"})
        equal(stat.S_IMODE(os.stat(top + "/etc/shadow").st_mode), 0o640)
        for path, text in (("hostname", "cay\n"), ("resolv.conf", "nameserver 10.0.0.1\n")):
            with open(f"{top}/etc/{path}") as f:
                equal(f.read(), text)
        with open(top + "/etc/hosts") as f:
            contains(f.read(), "127.0.0.1\tlocalhost cay")
        equal(os.readlink(top + "/etc/mtab"), "../proc/self/mounts")
        with open(top + "/etc/machine-id") as f:
            own = f.read().strip()
        assert own not in ("", leaks.read("/etc/machine-id").strip()), f"the machine-id inside is {own!r}"


@require("root", "btrfs", "loop")
def test_no_file_that_others_may_not_read(tmp):
    allowed = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/.pwd.lock", "/var/cache/ldconfig", "/var/cache/man", "/var/lib/apt", "/var/lib/dpkg")
    with Pool(tmp, "btrfs") as pool:
        _, top = view(pool, tmp)
        found = []
        for where in ("etc", "opt", "usr/local", "var"):
            for base, _dirs, files in os.walk(f"{top}/{where}"):
                for name in files:
                    path = os.path.join(base, name)
                    if PASSING.fullmatch(path[len(top):]):
                        continue
                    st = os.lstat(path)
                    if stat.S_ISREG(st.st_mode) and not st.st_mode & 0o004 and not path[len(top):].startswith(allowed):
                        found.append(path[len(top):])
        equal(found, [])


@require("root")
def test_masks_that_nothing_has_mounted_go(tmp):
    """When a server starts and no sandbox runs. What is below the mount of one that does stays: it hides what is private."""
    with own_instance(tmp) as instance:
        old = os.path.join(instance.state, "pool/mask", "0" * 32)
        instance.start()
        with instance.sandbox() as box:
            os.makedirs(old + "/etc")
            instance.stop()
            instance.start()
            equal((os.path.isdir(old), instance.ok(box, "ls /home")), (True, ""), "while a sandbox runs")
        instance.stop()
        instance.start(CAY_FAULT="store.remove.renamed")  # kills the job in the middle
        equal(os.path.exists(old), False)
        instance.stop()
        instance.start()  # another mask goes, too, where something private of this machine has changed since, as by tests beside this one
        with instance.sandbox() as box:
            equal(instance.ok(box, "ls /home"), "")
            instance.stop()
            instance.start()
            equal(os.listdir(os.path.join(instance.state, "pool/trash")), [])


@require("root", "btrfs", "loop")
def test_a_new_secret_gives_a_new_layer(tmp):
    """A file that appears deep below /opt, or loses its read bit, is hidden by the next layer; sandboxes that run keep theirs."""
    place = "/opt/cay-test-mask-" + os.path.basename(tmp)
    os.makedirs(place + "/deep")
    try:
        with Pool(tmp, "btrfs") as pool:
            with open(place + "/deep/open", "w") as f:
                f.write("open")
            first, top = view(pool, tmp, "first")
            equal(os.listdir(top + place + "/deep"), ["open"])
            with open(place + "/deep/secret", "w") as f:
                f.write("secret")
            os.chmod(place + "/deep/secret", 0o600)
            second, top = view(pool, tmp, "second", hide=[])
            equal(first != second, True)
            equal(os.listdir(top + place + "/deep"), ["open"])
            os.chmod(place + "/deep", 0o700)
            third, top = view(pool, tmp, "third")
            equal(third != second, True)
            equal(os.listdir(top + place + "/deep"), [])
            fourth, top = view(pool, tmp, "fourth", hide=[place])
            equal(fourth != third, True)
            equal(os.listdir(top + place), [])
            equal(os.listdir(pool.path("tmp")), [])
    finally:
        subprocess.run(["rm", "-r", place], check=True)


ROOTLESS = """
set -e
lower=$1 at=$2 upper=$3 work=$4
mount -t overlay overlay -o userxattr,index=off,lowerdir=$lower,upperdir=$upper,workdir=$work $at
rm $at/gone
echo two > $at/changed
rm -r $at/dir
mkdir $at/dir
echo new > $at/dir/new
umount $at
"""


@require("root", "userns")
def test_rootless_jobs(tmp):
    """Jobs in a user namespace: user.overlay.* attributes, no quota, the same diff and capture."""
    keeper = os.path.join(tmp, "keeper")
    with Pool(tmp, "directory") as pool:
        from lib import job
        with open(keeper, "w") as f:
            f.write(f"#!/bin/sh\nexec unshare --user --map-root-user {job.BUILD}/cay-keeper \"$@\"\n")
        os.chmod(keeper, 0o755)
        lower, at = tmp + "/lower", tmp + "/at"
        os.makedirs(lower + "/dir")
        os.mkdir(at)
        for name in ("gone", "changed", "same", "dir/old"):
            with open(f"{lower}/{name}", "w") as f:
                f.write("one\n")
        info = pool.run("storage", op="info", program=keeper)
        equal((info["kind"], info["disk_limit"]), ("directory", "none"))
        sandbox = pool.live()
        subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", ROOTLESS, "sh", lower, at, pool.upper(sandbox),
                        pool.path("live", sandbox, "0", "work")], check=True)
        layer, reply = pool.capture(sandbox, program=keeper)
        equal(reply["how"] in ("copy", "reflink"), True)
        equal(describe(pool.layer(layer), overlay=True) == describe(pool.upper(sandbox), overlay=True), True)
        for top in (pool.upper(sandbox), pool.layer(layer)):
            run = pool.job("diff", trees=[{"target": "/", "a": [top, lower], "b": [lower]}], program=keeper)
            run.result()
            equal({c["path"]: c["kind"] for o in run.objects for c in o["changes"]},
                  {"/changed": "modified", "/dir/new": "added", "/dir/old": "deleted", "/gone": "deleted"})
        contains(pool.run("mask", program=keeper)["dir"], "/pool/mask/")
