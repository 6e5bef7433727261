# SPDX-License-Identifier: Apache-2.0
"""The diff is exact: after random file operations it names the paths that an independent rsync of the two trees finds, no other, and says of each
what it was and what it is."""

import hashlib
import os
import random
import re
import stat
import subprocess

from lib.case import equal, require, timeout

SEEDS = (1, 2, 3, 4)

# Runs inside; the seed makes it repeatable.
OPERATIONS = """
import os, random, shutil, sys
random.seed(int(sys.argv[1])); rounds = int(sys.argv[2]); os.makedirs('/var/tmp/t', exist_ok=True); os.chdir('/var/tmp/t')
def every(kind):
    found = []
    for where, folders, files in os.walk('.'):
        names = files + [f for f in folders if os.path.islink(os.path.join(where, f))] if kind == 'file' else [f for f in folders if not os.path.islink(os.path.join(where, f))]
        found += [os.path.join(where, n) for n in names]
    return sorted(found) + (['.'] if kind == 'dir' else [])
def fresh(): return os.path.join(random.choice(every('dir')), random.choice('abcdefgh') + str(random.randrange(30)) + random.choice(['', ' b', '\\u00e9']))
def write(p, mode):
    with open(p, mode) as f: f.write(random.choice('xyz') * random.choice([0, 1, 100, 5000, 200000]))
for _ in range(rounds):
    op, files, dirs, p = random.randrange(16), every('file'), every('dir'), fresh()
    f = random.choice(files) if files else None
    d = random.choice(dirs)
    try:
        if op < 3: write(p, 'w')
        elif op == 3: os.mkdir(p)
        elif op == 4: os.symlink(random.choice(['a', '/etc/passwd', 'nowhere']), p)
        elif op == 5: os.mkfifo(p)
        elif op == 6 and f: os.unlink(f)
        elif op == 7 and f and os.path.isfile(f) and not os.path.islink(f): write(f, random.choice(['a', 'w']))
        elif op == 8 and f and not os.path.islink(f): os.chmod(f, random.choice([0o600, 0o644, 0o755, 0o4755]))
        elif op == 9 and d != '.': shutil.rmtree(d) if random.random() < 0.4 else os.chmod(d, random.choice([0o700, 0o755]))
        elif op == 10 and f: os.rename(f, p)
        elif op == 11 and d != '.' and not p.startswith(d + '/'): os.rename(d, p)
        elif op == 12 and f and not os.path.islink(f): os.setxattr(f, 'user.mark', random.choice([b'1', b'2']))
        elif op == 13 and f and not os.path.islink(f): os.link(f, p)
        elif op == 14 and f: os.chown(f, random.choice([0, 1, 33]), random.choice([0, 33]), follow_symlinks=False)
        elif op == 15 and f and os.path.isfile(f) and not os.path.islink(f) and os.path.getsize(f):
            st = os.stat(f)  # other content of the same size and time
            with open(f, 'r+b') as o: o.write(random.choice(b'uvw').to_bytes(1, 'big'))
            os.utime(f, ns=(st.st_atime_ns, st.st_mtime_ns))
    except (FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError, OSError): pass
"""


def unpack(instance, box, to):
    """The tree as it is in the sandbox, laid out here."""
    status, _, data = instance.raw("GET", f"/v1/sandboxes/{box}/files?path=/var/tmp/t&format=tar", timeout=60)
    equal(status, 200, str(data[:300]))
    os.mkdir(to)
    subprocess.run(["tar", "-x", "--xattrs", "--xattrs-include=*", "--numeric-owner", "-p", "-C", to], input=data, check=True, capture_output=True)
    inside = os.path.join(to, "t")
    return inside if os.path.isdir(inside) else to


def by_rsync(after, before):
    """Paths that differ in more than a time stamp."""
    done = subprocess.run(["rsync", "-ainHAX", "--8-bit-output", "--checksum", "--delete", after + "/", before + "/"],
                          stdout=subprocess.PIPE, check=True).stdout.decode()
    paths = set()
    for line in done.splitlines():
        what, path = line.split(" ", 1)
        path = path.lstrip() if what == "*deleting" else re.split(" [-=]> ", path)[0]
        if what != "*deleting" and set(what[2:]) <= {".", "t", " "} and what[0] in ".":
            continue
        if path.rstrip("/") not in (".", ""):
            paths.add("/var/tmp/t/" + path.rstrip("/"))
    return paths


def below(tree, path):
    """@path of the sandbox and all that lies below it in the unpacked @tree."""
    inner = os.path.join(tree, os.path.relpath(path, "/var/tmp/t"))
    found = {path}
    for where, folders, files in os.walk(inner):
        for name in folders + files:
            found.add(path + "/" + os.path.relpath(os.path.join(where, name), inner))
    return found


def by_cay(changes, before, after):
    paths = set()
    for change in changes:
        if not change["path"].startswith("/var/tmp/t/"):
            continue
        paths.add(change["path"])
        if change["kind"] == "renamed":
            paths |= below(after, change["path"]) | below(before, change["from"])
    return paths


TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink", stat.S_IFIFO: "fifo"}


def state(tree, path):
    """What @path of the sandbox is in the unpacked @tree, in the words of the diff; None where it is not there."""
    inner = os.path.join(tree, os.path.relpath(path, "/var/tmp/t"))
    if not os.path.lexists(inner):
        return None
    st = os.lstat(inner)
    found = {"type": TYPES[stat.S_IFMT(st.st_mode)], "uid": st.st_uid, "gid": st.st_gid}
    if stat.S_ISLNK(st.st_mode):
        return found | {"target": os.readlink(inner)}
    found |= {"mode": stat.S_IMODE(st.st_mode)}
    found |= {"xattrs": [name for name in os.listxattr(inner) if name.startswith("user.")]} if not stat.S_ISFIFO(st.st_mode) else {}
    if stat.S_ISREG(st.st_mode):
        with open(inner, "rb") as f:
            found |= {"size": st.st_size, "hash": hashlib.sha256(f.read()).hexdigest()}
    return found


def said(whole, wanted):
    """Of the state that a diff tells, the members that are in @wanted."""
    if whole is None or wanted is None:
        return whole
    whole = dict(whole, mode=stat.S_IMODE(whole.get("mode", 0)), xattrs=list(whole.get("xattrs") or {}))
    return {member: whole.get(member) for member in wanted}


def kind_of(before, after):
    """The kind of change at one path."""
    if before is None or after is None:
        return "added" if before is None else "deleted"
    content = ("type", "hash", "target")
    return "modified" if any(before.get(m) != after.get(m) for m in content) else "metadata"


def check_states(changes, before, after, what):
    """Each change says what was and what is, and its kind is what follows from that."""
    for change in (c for c in changes if c["path"].startswith("/var/tmp/t/")):
        path, renamed = change["path"], change["kind"] == "renamed"
        was, now = state(before, change["from"] if renamed else path), state(after, path)
        equal((said(change["before"], was), said(change["after"], now)), (was, now), f"{what}: {change}")
        if renamed:
            equal((state(after, change["from"]), was["type"]), (None, now["type"]), f"{what}: {change}")
        else:
            equal(change["kind"], kind_of(was, now), f"{what}: {change}")


@require("root", "program:rsync")
@timeout(240)
def test_random_operations(instance, tmp):
    for seed in SEEDS:
        with instance.sandbox() as box:
            run = instance.exec(box, "/usr/bin/python3", "-c", OPERATIONS, str(seed), "150")
            equal(instance.wait(box, run)["code"], 0, instance.output(box, run).decode())
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": f"before-{seed}"})
            before = unpack(instance, box, os.path.join(tmp, f"before-{seed}"))
            run = instance.exec(box, "/usr/bin/python3", "-c", OPERATIONS, str(seed + 1000), str(random.Random(seed).choice([5, 40, 150])))
            equal(instance.wait(box, run)["code"], 0, instance.output(box, run).decode())
            after = unpack(instance, box, os.path.join(tmp, f"after-{seed}"))
            changes = instance.get(f"/v1/diff?a={box}&b=before-{seed}")["changes"]
            want, got = by_rsync(after, before), by_cay(changes, before, after)
            equal(sorted(got - want), [], f"seed {seed}: only in the diff")
            equal(sorted(want - got), [], f"seed {seed}: missing in the diff")
            check_states(changes, before, after, f"seed {seed}")
            # The same once sealed: between two snapshots.
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": f"after-{seed}"})
            changes = instance.get(f"/v1/diff?a=after-{seed}&b=before-{seed}")["changes"]
            equal(sorted(by_cay(changes, before, after)), sorted(want), f"seed {seed}: between snapshots")
            check_states(changes, before, after, f"seed {seed}: between snapshots")
        for name in (f"before-{seed}", f"after-{seed}"):
            instance.call("DELETE", f"/v1/snapshots/{name}")
