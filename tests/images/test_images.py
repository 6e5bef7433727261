# SPDX-License-Identifier: Apache-2.0
"""Imports of honest images: trees equal what umoci unpacks, every format and packing, what is dropped, crashes, and what cay-import may do."""

import contextlib
import ctypes
import gzip
import hashlib
import hmac
import json
import os
import select
import struct
import subprocess
import tarfile

from images.importing import END, Layout, Store, difference, digest, header, member, padded, pax, tar, tree, write
from lib import cay, job
from lib.case import Skip, contains, equal, raises, require, timeout

DIR, SYM, LNK, FIFO = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE
CAPS = bytes.fromhex("0100000202000000000000000000000000000000")  # version 2, effective, cap_dac_override
POINTS = ["image.import.unpacked", "image.import.before_rename", "image.import.after_rename"]


def run(*argv, **more):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, **more).stdout


def umoci(layout, name, top):
    """The tree that umoci makes of image @name of @layout."""
    bundle = os.path.join(top, "umoci-" + name)
    run("umoci", "unpack", "--image", f"{layout}:{name}", bundle)
    return os.path.join(bundle, "rootfs")


def same(left, right, but=()):
    """Two trees are equal but for the entries in @but."""
    a, b = tree(left), tree(right)
    for name in but:
        a.pop(name, None)
        b.pop(name, None)
    found = difference(a, b)
    assert not found, "\n".join(found[:20])
    assert len(a) > 3


def rsync_same(left, right):
    """The same by another program: rsync finds nothing to do."""
    equal(run("rsync", "-ainHAX", "--checksum", "--delete", left + "/", right + "/").decode(), "")


def furnish(root):
    """Fill a directory with one of everything, as a distribution would have it."""
    def path(*parts):
        return os.path.join(root, *parts)
    for name, mode in (("etc", 0o755), ("usr", 0o755), ("usr/bin", 0o755), ("tmp", 0o1777), ("secret", 0o700), ("var", 0o755), ("var/empty", 0o711),
                       ("sgid", 0o2775), ("deep", 0o755)):
        os.mkdir(path(name))
        os.chmod(path(name), mode)
    for name, data, mode, uid in (("etc/passwd", b"root:x:0:0::/:/bin/sh\n", 0o644, 0), ("etc/shadow", b"root:*:\n", 0o640, 0),
                                  ("usr/bin/su", b"\x7fELF" + os.urandom(5000), 0o4755, 0), ("usr/bin/wall", os.urandom(70000), 0o2755, 0),
                                  ("usr/bin/ping", b"ping", 0o755, 0), ("empty", b"", 0o000, 1000), ("home", b"x" * 512, 0o600, 33)):
        write(root, name, data)
        os.chown(path(name), uid, uid)
        os.chmod(path(name), mode)
    os.setxattr(path("usr/bin/ping"), "security.capability", CAPS)
    os.setxattr(path("etc/passwd"), "user.note", bytes(range(1, 200)))
    os.setxattr(path("etc"), "user.dir", b"")
    os.link(path("etc/passwd"), path("usr/passwd-link"))
    os.link(path("usr/bin/su"), path("usr/bin/sudo"))
    for name, target in (("bin", "usr/bin"), ("abs", "/etc/passwd"), ("up", "../../../etc"), ("dangling", "nowhere"), ("long", "x" * 300)):
        os.symlink(target, path(name))
    os.lchown(path("abs"), 7, 8)
    os.mkfifo(path("fifo"), 0o622)
    os.chmod(path("fifo"), 0o622)
    with open(path("sparse"), "wb") as f:
        f.seek(5 << 20)
        f.write(b"end")
        f.truncate(9 << 20)
    where = path("deep")
    for _ in range(20):
        where = os.path.join(where, "d" * 30)
        os.mkdir(where)
    write(where, "f" * 255, b"long")
    write(root, "e\u0301 nfd", b"1")
    write(root, "\u00e9 nfd", b"2")
    write(root, "back\\slash:c", b"3")
    write(root, "new\nline", b"4")


def set_times(root):
    for n, (where, dirs, files) in enumerate(os.walk(root, topdown=False)):
        for k, name in enumerate(dirs + files):
            os.utime(os.path.join(where, name), (1000000000 + n * 100 + k,) * 2, follow_symlinks=False)
    os.utime(root, (999999999, 999999999))


def quiet_mount(top):
    """A tmpfs without set-uid, as a real pool is, so that file capabilities are kept. The caller unmounts."""
    at = os.path.join(top, "nosuid")
    os.mkdir(at)
    run("mount", "-t", "tmpfs", "-o", "nosuid,nodev,size=200m,mode=755", "tmpfs", at)
    return at


@require("root", "program:umoci", "program:rsync")
@timeout(120)
def test_equal_to_umoci(tmp):
    """Three layers made by umoci: everything, then deletions and replacements, then more of both."""
    at = quiet_mount(tmp)
    try:
        layout, bundle = os.path.join(tmp, "layout"), os.path.join(tmp, "bundle")
        root = os.path.join(bundle, "rootfs")
        run("umoci", "init", "--layout", layout)
        run("umoci", "new", "--image", layout + ":v")
        run("umoci", "unpack", "--image", layout + ":v", bundle)
        furnish(root)
        set_times(root)
        run("umoci", "repack", "--refresh-bundle", "--image", layout + ":v", bundle)
        for gone in ("etc/shadow", "usr/bin/wall", "dangling", "fifo"):
            os.unlink(os.path.join(root, gone))
        run("rm", "-rf", os.path.join(root, "deep"), os.path.join(root, "var"))
        write(root, "var", b"a file where a directory was")
        os.unlink(os.path.join(root, "home"))
        os.makedirs(os.path.join(root, "home/user"))
        os.chmod(os.path.join(root, "secret"), 0o711)
        run("umoci", "repack", "--refresh-bundle", "--image", layout + ":v", bundle)
        os.unlink(os.path.join(root, "var"))
        os.makedirs(os.path.join(root, "var/lib"))
        write(os.path.join(root, "var/lib"), "state", b"new")
        os.unlink(os.path.join(root, "abs"))
        os.link(os.path.join(root, "etc/passwd"), os.path.join(root, "abs"))
        run("umoci", "repack", "--refresh-bundle", "--image", layout + ":v", bundle)
        with Store(at) as store:
            reply = store.load(layout, name="any:v")
            equal((reply["kind"], reply["layers"], reply["dropped"]["devices"]), ("oci", 3, 0))
            assert reply["setuid"] >= 2
            want = umoci(layout, "v", tmp)
            same(store.rootfs(reply), want)
            rsync_same(want, store.rootfs(reply))
            equal(os.getxattr(os.path.join(store.rootfs(reply), "usr/bin/ping"), "security.capability"),
                  os.getxattr(os.path.join(want, "usr/bin/ping"), "security.capability"))
            packed = write(tmp, "layout.tar", run("tar", "-C", layout, "-cf", "-", "oci-layout", "index.json", "blobs"))
            same(store.rootfs(store.load(packed)), want)
            run("zstd", "-q", packed)
            same(store.rootfs(store.load(packed + ".zst")), want)
    finally:
        run("umount", at)


@require("root", "program:umoci")
def test_layers_of_hand(tmp):
    """Whiteouts wherever they stand, opaque directories, hard links into lower layers, directories that come again."""
    base = tar(member("./", DIR), member("d", DIR, mode=0o700), member("d/a", data=b"a"), member("d/b", data=b"b"), member("d/sub", DIR),
               member("d/sub/x", data=b"x"), member("keep", data=b"keep", mode=0o4711), member("o", DIR), member("o/1", data=b"1"),
               member("o/sub", DIR), member("o/sub/2", data=b"2"), member("s", SYM, linkname="d"), member("file", data=b"f"))
    second = tar(member("./", DIR), member("d", DIR, mode=0o755, mtime=1500000000), member("d/.wh.a"), member("d/c", data=b"c"), member("d/.wh.sub"),
                 member("o", DIR), member("o/3", data=b"3"), member("o/.wh..wh..opq"), member("link", LNK, linkname="keep"),
                 member(".wh.missing"), member(".wh.s"), member("file", DIR), member("file/in", data=b"i"))
    third = tar(member("d", SYM, linkname="o"), member("o", DIR), member("o/sub", data=b"now a file"), member(".wh.file"), member("file", data=b"again"),
                member("o/.wh.3"), member("o/3", data=b"new three"))
    layout = Layout().image([base, second, third], ref="v").to_dir(os.path.join(tmp, "layout"))
    store = Store(tmp)
    reply = store.load(layout)
    root = store.rootfs(reply)
    found = tree(root)
    equal(sorted(found), sorted([b"", b"d", b"file", b"keep", b"link", b"o", b"o/3", b"o/sub"]))
    equal(found[b"link"][5], b"keep", "a hard link into a lower layer")
    equal(open(os.path.join(root, "o/3"), "rb").read(), b"new three", "a whiteout hides only what lies below its layer")
    equal(oct(os.stat(os.path.join(root, "keep")).st_mode), "0o104711")
    two = Layout().image([base, second], ref="v").to_dir(os.path.join(tmp, "two"))
    same(store.rootfs(store.load(two)), umoci(two, "v", tmp))


def acl(tag_of_user):
    """An access list as the kernel keeps it: its owner, a user, a group, mask, others, all of whom may do everything."""
    entries = [(0x01, 0xffffffff), (0x02, tag_of_user), (0x04, 0xffffffff), (0x10, 0xffffffff), (0x20, 0xffffffff)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, 7, who) for tag, who in entries)


@require("root", "program:umoci")
def test_attributes_are_those_of_the_archive_alone(tmp):
    """An entry that comes again has none of its earlier ones, and none has those that its directory gives."""
    def entry(name, kind, *attributes, mode=0o644):
        return pax(*((b"SCHILY.xattr." + k, v) for k, v in attributes)) + header(name, mode=mode, kind=kind) if attributes else header(name, mode=mode, kind=kind)
    everybody, one = (b"system.posix_acl_default", acl(1000)), (b"system.posix_acl_access", acl(1000))
    first = entry(b"d/", b"5", (b"user.a", b"1"), (b"user.b", b"1"), mode=0o755) + entry(b"given/", b"5", everybody, one, mode=0o777) + \
        entry(b"given/file", b"0") + entry(b"given/dir/", b"5", mode=0o750) + entry(b"given/dir/file", b"0", mode=0o640) + \
        entry(b"given/pipe", b"6", mode=0o620) + entry(b"given/own", b"6", one, mode=0o777) + entry(b"later/", b"5", everybody, mode=0o755) + END
    second = entry(b"d/", b"5", (b"user.b", b"2"), mode=0o755) + entry(b"later/", b"5", mode=0o755) + entry(b"later/file", b"0") + END
    store = Store(tmp)
    layout = Layout().image([first, second], ref="v").to_dir(os.path.join(tmp, "layout"))
    root = store.rootfs(store.load(layout))
    found = {name.decode(): (entry[1], sorted(entry[6])) for name, entry in tree(root).items() if name}
    equal(found, {"d": ("0o755", ["user.b"]), "given": ("0o777", ["system.posix_acl_access", "system.posix_acl_default"]), "given/file": ("0o644", []),
                  "given/dir": ("0o750", []), "given/dir/file": ("0o640", []), "given/pipe": ("0o620", []), "given/own": ("0o777", ["system.posix_acl_access"]),
                  "later": ("0o755", []), "later/file": ("0o644", [])})
    same(root, umoci(layout, "v", tmp), but=[b""])


@require("root", "program:zstd")
def test_every_packing_gives_one_tree(tmp):
    store = Store(tmp)
    plain = tar(member("./", DIR), member("bin", DIR), member("bin/sh", data=os.urandom(300000), mode=0o755), member("l", SYM, linkname="bin"))

    def zstd(data):
        return subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE, check=True).stdout
    half = len(plain) // 1024 * 512
    packings = {"plain": plain, "gzip": gzip.compress(plain), "zstd": zstd(plain), "members": gzip.compress(plain[:half]) + gzip.compress(plain[half:]),
                "frames": zstd(plain[:half]) + zstd(plain[half:]), "unclosed": plain[:plain.rindex(b"l\0\0\0") + 512], "tape": plain + b"\0" * 10240,
                "padded": gzip.compress(plain) + b"\0" * 777}
    trees = {}
    for name, data in packings.items():
        reply = store.load(write(tmp, name, data))
        equal(reply["kind"], "rootfs", name)
        trees[name] = tree(store.rootfs(reply))
        if name in ("plain", "gzip", "zstd", "members", "frames", "padded"):
            equal(reply["digest"], digest(plain), name)
    for name, found in trees.items():
        equal(difference(trees["plain"], found), [], name)
    for kind, pack in (("layer.v1.tar+gzip", gzip.compress), ("layer.v1.tar+zstd", zstd)):
        layout = Layout().image([plain], pack, kind)
        equal(difference(trees["plain"], tree(store.rootfs(store.load(layout.to_dir(os.path.join(tmp, kind)))))), [], kind)
        equal(difference(trees["plain"], tree(store.rootfs(store.load(write(tmp, "packed", gzip.compress(layout.to_tar())))))), [], kind)


@require("root")
def test_formats_of_tar(tmp):
    """V7, ustar, GNU and PAX, long names, and sparse files in all four ways, as GNU tar writes them."""
    store, source = Store(tmp), os.path.join(tmp, "source")
    os.mkdir(source)
    where = source
    for _ in range(8):
        where = os.path.join(where, "n" * 40)
        os.mkdir(where)
    write(where, "x" * 120, b"deep")
    os.symlink("t" * 200, os.path.join(where, "l"))
    with open(os.path.join(source, "holes"), "wb") as f:
        for at in range(0, 40 << 16, 1 << 16):
            f.seek(at)
            f.write(b"%d" % at)
        f.truncate(50 << 16)
    set_times(source)
    want = tree(source)
    for form in ("gnu", "posix", "gnu --sparse", "posix --sparse --sparse-version=0.0", "posix --sparse --sparse-version=0.1",
                 "posix --sparse --sparse-version=1.0"):
        path = os.path.join(tmp, "a.tar")
        run("tar", "-C", source, "--format", *form.split(), "-cf", path, ".")
        reply = store.load(path)
        equal(difference(want, tree(store.rootfs(reply))), [], form)
        if "sparse" in form:
            got = os.stat(os.path.join(store.rootfs(reply), "holes"))
            assert got.st_blocks * 512 < got.st_size / 2, form
    old = header(b"old/", mode=0o755, magic=b"\0" * 8, kind=b"\0") + header(b"old/f", 3, magic=b"\0" * 8, kind=b"\0") + padded(b"abc") + END
    root = store.rootfs(store.load(write(tmp, "v7", old)))
    equal(open(os.path.join(root, "old/f"), "rb").read(), b"abc")


@require("root")
def test_names_are_bytes(tmp):
    """What is not UTF-8, and two names that only normal forms tell apart."""
    store = Store(tmp)
    names = [b"\xff\xfe", b"caf\xe9", "e\u0301".encode(), "\u00e9".encode(), b"a\\..\\b", b"C:", b"-rf", b"\x1b[1m", b" "]
    archive = b"".join(header(name, 1) + padded(b"x") for name in names) + pax((b"path", b"\xff" * 150)) + header(b"x", 1) + padded(b"x")
    archive += b"".join(pax((b"path", name + b"-pax")) + header(b"x") for name in names) + END
    found = os.listdir(os.fsencode(store.rootfs(store.load(write(tmp, "a", archive)))))
    equal(sorted(found), sorted(names + [b"\xff" * 150] + [name + b"-pax" for name in names]))


@require("root")
def test_times_owners_modes(tmp):
    store = Store(tmp)
    archive = pax((b"mtime", b"1234567890.987654321"), (b"atime", b"1.5"), (b"uid", b"1234"), (b"gid", b"65535")) + header(b"f", mode=0o6751) + \
        pax((b"mtime", b"-5.25")) + header(b"g", mode=0o100644) + pax((b"uid", b"70000"), (b"gid", b"4294967294")) + header(b"h") + END
    reply = store.load(write(tmp, "a", archive))
    f, g, h = (os.stat(os.path.join(store.rootfs(reply), name)) for name in "fgh")
    equal((f.st_mtime_ns, f.st_uid, f.st_gid, oct(f.st_mode)), (1234567890987654321, 1234, 65535, "0o106751"))
    equal((g.st_mtime_ns, oct(g.st_mode)), (-5250000000, "0o100644"))
    equal((h.st_uid, h.st_gid, reply["dropped"]["ids"]), (65534, 65534, 2))


@require("root")
def test_what_is_dropped_is_reported(tmp):
    store = Store(tmp)
    attributes = {"user.fine": "1", "user.overlay.opaque": "y", "trusted.overlay.opaque": "y", "trusted.overlay.redirect": "/x",
                  "security.selinux": "s", "security.ima": "i", "system.x": "x", "security.capability": "x" * 20}
    archive = tar(member("f", pax_headers={"SCHILY.xattr." + k: v for k, v in attributes.items()}),
                  member("dev", DIR), member("dev/sda", tarfile.BLKTYPE, devmajor=8, devminor=0), member("dev/mem", tarfile.CHRTYPE, devmajor=1, devminor=1),
                  member("whiteout", tarfile.CHRTYPE), member("again", LNK, linkname="dev/mem"), member("pipe", FIFO))
    reply = store.load(write(tmp, "a", archive))
    root = store.rootfs(reply)
    equal(sorted(os.listdir(root)), ["dev", "f", "pipe"])
    equal(os.listdir(os.path.join(root, "dev")), [])
    equal(os.listxattr(os.path.join(root, "f")), ["user.fine"])
    equal(reply["dropped"], {"devices": 4, "xattrs": 7, "ids": 0, "names": ["dev/sda", "dev/mem", "whiteout", "again"]})


@require("root")
def test_a_link_to_what_took_the_place_of_a_device_is_made(tmp):
    """A hard link leads to what has its name when it comes: a file of a later layer, or the device that was dropped."""
    store = Store(tmp)
    first = tar(member("file", tarfile.CHRTYPE, devmajor=1, devminor=3), member("device", data=b"f"))
    second = tar(member("file", data=b"now a file"), member("one", LNK, linkname="file"), member("device", tarfile.CHRTYPE), member("two", LNK, linkname="device"))
    reply = store.load(Layout().image([first, second]).to_dir(os.path.join(tmp, "layout")))
    root = store.rootfs(reply)
    equal(sorted(os.listdir(root)), ["file", "one"])
    equal(os.path.samefile(root + "/file", root + "/one"), True)
    equal((reply["dropped"]["devices"], reply["dropped"]["names"]), (3, ["file", "device", "two"]))


@require("root")
def test_capabilities_need_a_quiet_mount(tmp):
    archive = write(tmp, "a", pax((b"SCHILY.xattr.security.capability", CAPS)) + header(b"ping", mode=0o755) + END)
    store = Store(tmp)
    reply = store.load(archive)
    kept = os.statvfs(store.path()).f_flag & os.ST_NOSUID != 0
    equal("security.capability" in os.listxattr(os.path.join(store.rootfs(reply), "ping")), kept)
    equal(reply["dropped"]["xattrs"], 0 if kept else 1)
    at = quiet_mount(tmp)
    try:
        with Store(at) as quiet:
            reply = quiet.load(archive)
            equal(os.listxattr(os.path.join(quiet.rootfs(reply), "ping")), ["security.capability"])
    finally:
        run("umount", at)


def docker_archive(images, legacy=False):
    """What docker save writes. @images: [(tags, [layer])]."""
    members, manifest, layers = [], [], {}
    for tags, content in images:
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Env": ["A=" + (tags or ["?"])[0]]},
                             "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in content]}}).encode()
        names = []
        for layer in content:
            number = f"{len(members):064x}"
            name = number + "/layer.tar"
            if legacy and layer in layers:  # the second time is a link
                members.append(member(name, SYM, linkname="../" + layers[layer]))
            else:
                members.append(member(name, data=layer))
            layers[layer] = name
            names.append(name)
        name = hashlib.sha256(config).hexdigest() + ".json"
        members.append(member(name, data=config))
        manifest.append({"Config": name, "RepoTags": tags or None, "Layers": names})
    members.append(member("manifest.json", data=json.dumps(manifest).encode()))
    members.append(member("repositories", data=b"{}"))
    return tar(*members)


@require("root")
def test_docker_save(tmp):
    store = Store(tmp)
    base, upper = tar(member("f", data=b"1"), member("g", data=b"1")), tar(member(".wh.f"), member("h", data=b"2"))
    one = docker_archive([(["shop:1"], [base, upper])])
    for data in (one, gzip.compress(one), docker_archive([(["shop:1"], [base, base, upper])], legacy=True)):
        reply = store.load(write(tmp, "a", data))
        equal((reply["kind"], reply["config"]["config"]["Env"]), ("docker", ["A=shop:1"]))
        equal(sorted(os.listdir(store.rootfs(reply))), ["g", "h"])
    several = write(tmp, "b", docker_archive([(["shop:1"], [base]), (["localhost:5000/shop:2", "other"], [upper])]))
    try:
        store.load(several)
        raise AssertionError("took one of several")
    except job.JobError as error:
        equal(error.code, "ambiguous")
    for name, files in (("shop:1", ["f", "g"]), ("docker.io/library/shop:1", ["f", "g"]), ("localhost:5000/shop:2", ["h"]), ("other:latest", ["h"])):
        equal(sorted(os.listdir(store.rootfs(store.load(several, name=name)))), files, name)


@require("root")
def test_archives_of_other_builders(tmp):
    """Names that other programs give to the parts of the same kind of archive; what none gives is not taken for a root file system either."""
    store = Store(tmp)
    base, upper = tar(member("f", data=b"1"), member("g", data=b"1")), tar(member(".wh.f"), member("h", data=b"2"))
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest(base), digest(upper)]}}).encode()
    packed = [gzip.compress(base), gzip.compress(upper)]

    def archive(config_name, *more, content=config):
        names = [digest(data)[7:] + ".tar.gz" for data in packed]
        parts = [member(name, data=data) for name, data in zip(names, packed)]
        parts.insert(0 if config_name.startswith("sha256") else 2, member(config_name, data=content))
        manifest = [{"Config": config_name, "RepoTags": ["shop:1"], "Layers": names}]
        return tar(*more, *parts, member("manifest.json", data=json.dumps(manifest).encode()))
    for data in (archive(digest(config)), archive("config.json")):
        reply = store.load(write(tmp, "a", data))
        equal((reply["kind"], reply["layers"]), ("docker", 2))
        equal(sorted(os.listdir(store.rootfs(reply))), ["g", "h"])
    for data, code in ((archive(digest(config), content=config + b" "), "hostile_archive"), (archive("config.json", member("other", DIR)), "unsupported")):
        try:
            store.load(write(tmp, "a", data))
            raise AssertionError("it was imported")
        except job.JobError as error:
            equal(error.code, code, error.message)
    equal(store.load(write(tmp, "a", tar(member("etc", DIR), member("manifest.json", data=b"[{}]"))))["kind"], "rootfs")


@require("root")
def test_layers_of_other_builders(tmp):
    """Absolute names (kaniko, ko, buildpacks), whiteouts that are hard links of one file (AUFS)."""
    store = Store(tmp)
    lower = tar(member("a", data=b"1"), member("b", data=b"1"), member("c", data=b"1"), member("d", DIR), member("d/e", data=b"1"))
    upper = tar(member("/", DIR, mode=0o711), member("/x", data=b"2"), member("/sub/y", LNK, linkname="/x"), member(".wh.a"),
                member("/.wh.b", LNK, linkname="/.wh.a"), member("d/.wh..wh..opq", LNK, linkname=".wh.a"), member("/c", SYM, linkname="/x"))
    root = store.rootfs(store.load(Layout().image([lower, upper]).to_dir(os.path.join(tmp, "layout"))))
    equal(sorted(os.listdir(root)), ["c", "d", "sub", "x"])
    equal((os.listdir(root + "/d"), os.readlink(root + "/c"), oct(os.stat(root).st_mode)), ([], "/x", "0o40711"))
    equal(os.path.samefile(root + "/x", root + "/sub/y"), True)
    equal(os.listdir(store.rootfs(store.load(write(tmp, "root.tar", tar(member("/", DIR), member("/f", data=b"x")))))), ["f"])


@require("root")
def test_one_of_several_in_a_layout(tmp):
    store = Store(tmp)
    layout = Layout()
    for ref in ("1", "2", "example.org/x:3"):
        layout.image([tar(member("is-" + ref[-1]))], ref=ref)
    layout.image([tar(member("is-other-platform"))], ref="1", arch="riscv64")
    path = layout.to_dir(os.path.join(tmp, "layout"))
    for name, file in (("x:1", "is-1"), ("x:2", "is-2"), ("example.org/x:3", "is-3")):
        equal(os.listdir(store.rootfs(store.load(path, name=name))), [file], name)


@require("root")
def test_one_of_several_that_docker_saved(tmp):
    """Each has its complete name; the other annotation is the tag alone, which may be that of another image."""
    store = Store(tmp)
    app, web, other = (tar(member("is-" + name)) for name in ("app", "web", "postgres"))
    layout = Layout().image([app], saved="docker.io/library/app:latest").image([other], saved="docker.io/library/postgres:16")
    path = write(tmp, "two", layout.to_tar())
    try:
        store.load(path, name="postgres")
        raise AssertionError("took one of another name")
    except job.JobError as error:
        equal(error.code, "ambiguous")
    equal(os.listdir(store.rootfs(store.load(path, name="postgres:16"))), ["is-postgres"])
    path = write(tmp, "latest", Layout().image([app], saved="docker.io/library/app:latest").image([web], saved="docker.io/library/web:latest").to_tar())
    equal(os.listdir(store.rootfs(store.load(path, name="web:latest"))), ["is-web"])
    path = write(tmp, "one", Layout().image([app], saved="docker.io/library/app:1").image([app], saved="docker.io/library/app:latest").to_tar())
    equal(os.listdir(store.rootfs(store.load(path))), ["is-app"])


@require("root")
def test_what_is_committed(tmp):
    store = Store(tmp)
    layout = Layout().image([tar(member("f", data=b"x"))], config={"Cmd": ["sh"], "Env": ["A=b"]}, history=[{"created_by": "x" * 1000}])
    reply = store.load(layout.to_dir(os.path.join(tmp, "layout")), name="ghcr.io/a/b:t")
    top = os.path.dirname(store.rootfs(reply))
    equal(sorted(os.listdir(top)), ["MANIFEST", "config.json", "rootfs"])
    equal(reply["name"], "ghcr.io/a/b:t")
    equal(json.load(open(os.path.join(top, "config.json")))["config"], {"Cmd": ["sh"], "Env": ["A=b"]})
    text = open(os.path.join(top, "MANIFEST"), "rb").read()
    manifest = json.loads(text)
    equal((manifest["image"], manifest["digest"], manifest["files"]), (reply["image"], layout.manifests[0]["digest"], 1))
    with open(os.path.join(store.state, "key"), "rb") as f:
        want = hmac.new(f.read(), text[:text.index(b',"hmac"')], "sha256").hexdigest()
    equal(manifest["hmac"], want)
    equal(oct(os.stat(top).st_mode & 0o777), "0o700")
    try:
        store.run("import", path=os.path.join(tmp, "layout"), image=reply["image"])
        raise AssertionError("replaced an image")
    except job.JobError as error:
        equal(error.code, "exists")


@require("root")
def test_killed_at_every_point(tmp):
    """Nothing half made is ever an image; what is left lies in tmp/."""
    store = Store(tmp)
    archive = write(tmp, "a", tar(member("f", data=b"x" * 100000)))
    for point in POINTS:
        before = os.listdir(store.path("images"))
        try:
            store.load(archive, env={"CAY_FAULT": point})
            raise AssertionError(f"{point} was not reached")
        except job.JobDied:
            pass
        fresh = set(os.listdir(store.path("images"))) - set(before)
        equal(len(fresh), 1 if point == "image.import.after_rename" else 0, point)
        for image in fresh:
            equal(sorted(os.listdir(store.path("images", image))), ["MANIFEST", "config.json", "rootfs"])
        left = os.listdir(store.path("tmp"))
        equal(len(left), 0 if fresh else 1, point)
        for name in left:
            assert name.startswith("import-")
            run("rm", "-rf", store.path("tmp", name))
        try:
            store.load(archive, env={"CAY_FAULT": point + "=error"})
            raise AssertionError(f"{point} did not fail")
        except job.JobError as error:
            equal(error.code, "internal", point)
        equal(os.listdir(store.path("tmp")), [], point)


def slow_archive(tmp):
    """An archive that takes a while: long enough to look at the importer, which says by its filter that it is confined."""
    with open(os.path.join(cay.BUILD, "cay-import"), "rb") as f:
        if b"__asan_init" in f.read():
            raise Skip("a build with sanitizers filters no system calls")
    archive = os.path.join(tmp, "slow.tar")
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as t:
        for n in range(60000):
            t.addfile(member(f"d{n % 100}/f{n}")[0])
    return archive


def importer_of(process):
    """The pid and status of cay-import below a job, once it is confined."""
    while process.poll() is None:
        for pid in os.listdir("/proc"):
            try:
                with open(f"/proc/{pid}/status") as f:
                    status = dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)
            except (OSError, ValueError):
                continue
            if status.get("PPid") == str(process.pid) and status.get("Name") == "cay-import" and status.get("Seccomp") == "2":
                return int(pid), status
    raise AssertionError("the job ended before its importer was seen")


@require("root")
def test_the_importer_can_do_nothing_else(tmp):
    store = Store(tmp)
    started = store.job("import", path=slow_archive(tmp), image=job.new_id())
    pid, status = importer_of(started.process)
    uids = status["Uid"].split()
    assert len(set(uids)) == 1 and int(uids[0]) >= 0x3FFF0000, status["Uid"]
    equal(status["Groups"].strip(), "")
    equal((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))
    allowed = sum(1 << n for n in (0, 1, 3, 4, 31))  # chown, dac_override, fowner, fsetid, setfcap
    equal(int(status["CapEff"], 16), allowed)
    equal(int(status["CapBnd"], 16), allowed)
    for namespace in ("user", "mnt", "pid", "net", "ipc", "uts"):
        assert os.readlink(f"/proc/{pid}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}"), namespace
    with open(f"/proc/{pid}/mountinfo") as f:
        mounts = f.read().splitlines()
    equal(len(mounts), 1, "mounts that it sees")
    links = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it works on meanwhile
            links.append(os.readlink(f"/proc/{pid}/fd/{fd}"))
    assert links, "no descriptor seen"
    strangers = [link for link in links if not link.startswith(("/dev/null", "socket:", "/", "pipe:"))]
    equal(strangers, [])
    with open(f"/proc/{pid}/net/dev") as f:
        equal([line.split(":")[0].strip() for line in f.read().splitlines()[2:]], ["lo"])
    started.result()


@require("root")
def test_a_killed_job_takes_the_importer_along(tmp):
    store = Store(tmp)
    started = store.job("import", path=slow_archive(tmp), image=job.new_id())
    pid, _ = importer_of(started.process)
    fd = os.pidfd_open(pid)
    started.process.kill()
    try:
        started.result()
        raise AssertionError("a killed job replied")
    except job.JobDied:
        pass
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    assert poll.poll(10000), "cay-import still runs"
    os.close(fd)
    equal(len(os.listdir(store.path("tmp"))), 1)
    equal(os.listdir(store.path("images")), [])


def in_user_namespace(ids):
    """preexec: become root of a user namespace with @ids ids, as rootless jobs are."""
    libc = ctypes.CDLL(None, use_errno=True)
    ready, done = os.pipe(), os.pipe()
    helper = os.fork()
    parent = os.getppid() if helper == 0 else os.getpid()
    if helper == 0:
        os.read(ready[0], 1)
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{parent}/{name}", "w") as f:
                # As newuidmap writes it: the own id, then the subordinate range.
                f.write("0 100000 1\n" + (f"1 100001 {ids - 1}\n" if ids > 1 else ""))
        os.write(done[1], b"x")
        os._exit(0)
    if libc.unshare(0x10000000 | 0x00020000) != 0:
        os._exit(99)
    os.write(ready[1], b"x")
    os.read(done[0], 1)
    os.waitpid(helper, 0)
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    os.setgroups([])
    for fd in ready + done:
        os.close(fd)


@require("root")
def test_rootless(tmp):
    """The job in a user namespace with 65,536 ids, and with one."""
    for ids in (65536, 1):
        top = os.path.join(tmp, str(ids))
        os.mkdir(top)
        for name in ("state", "state/pool", "state/pool/tmp", "state/pool/images", "state/pool/layers"):
            os.mkdir(os.path.join(top, name))
            os.chown(os.path.join(top, name), 100000, 100000)
        program = os.path.join(cay.reachable(cay.BUILD, top), "cay-keeper")
        archive = write(top, "a", tar(member("f", data=b"x", uid=33, gid=44), member("g", SYM, linkname="f"), member("d", DIR, mode=0o1777)))
        image = job.new_id()
        reply = job.Job(os.path.join(top, "state"), "import", program=program, path=archive, image=image,
                        preexec_fn=lambda n=ids: in_user_namespace(n)).result()
        found = os.stat(os.path.join(top, "state/pool/images", image, "rootfs/f"))
        equal((found.st_uid, found.st_gid), (100033, 100044) if ids > 1 else (100000, 100000))
        equal(reply["dropped"]["ids"], 0 if ids > 1 else 2)
        try:
            job.Job(os.path.join(top, "state"), "import", program=program, path=write(top, "b", tar(member("../x"))), image=job.new_id(),
                    preexec_fn=lambda n=ids: in_user_namespace(n)).result()
            raise AssertionError("imported")
        except job.JobError as error:
            equal(error.code, "hostile_archive")
        equal(os.listdir(os.path.join(top, "state/pool/tmp")), [])


@require("root", "btrfs", "loop")
def test_on_btrfs(tmp):
    with Store(tmp, "btrfs") as store:
        reply = store.load(write(tmp, "a", tar(member("./", DIR), member("d", DIR), member("d/f", data=b"x" * 9000, uid=5, gid=6, mode=0o4750))))
        found = os.stat(os.path.join(store.rootfs(reply), "d/f"))
        equal((found.st_uid, found.st_gid, oct(found.st_mode)), (5, 6, "0o104750"))


@require("root")
def test_the_caller_must_be_able_to_read(tmp):
    """The job is root; it reads what the caller named only with the caller's own rights."""
    store = Store(tmp)
    path = write(tmp, "secret.tar", tar(member("f", data=b"x")))
    os.chmod(path, 0o600)
    layout = Layout().image([tar(member("f"))]).to_dir(os.path.join(tmp, "layout"))
    os.chmod(os.path.join(layout, "index.json"), 0o600)
    for name in (path, layout, "/etc/shadow"):
        try:
            store.load(name, uid=12345, gid=12345)
            raise AssertionError(f"{name} was read")
        except job.JobError as error:
            equal(error.code, "denied", error.message)
    equal(store.left(), [])
    os.chown(path, 12345, 0)
    store.load(path, uid=12345, gid=12345)
    store.load(layout)
    for name in (path, os.path.join(layout, "index.json")):
        os.chown(name, 0, 23456)
        os.chmod(name, 0o640)
    for name in (path, layout):
        equal(raises(job.JobError, store.load, name, uid=12345, gid=12345, groups=[5, 6]).code, "denied")
        store.load(name, uid=12345, gid=12345, groups=[5, 23456])
    for groups in ("x", 7, ["x"], [-1], [1 << 32]):
        equal(raises(job.JobError, store.load, path, uid=12345, gid=12345, groups=groups).code, "invalid", groups)


@require("root")
def test_full_disk(tmp):
    at = os.path.join(tmp, "small")
    os.mkdir(at)
    run("mount", "-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs", at)
    try:
        with Store(at) as store:
            try:
                store.load(write(tmp, "a", tar(member("f", data=os.urandom(4 << 20)))))
                raise AssertionError("it fitted")
            except job.JobError as error:
                equal(error.code, "disk_full")
            equal(store.left(), [])
            contains(store.load(write(tmp, "b", tar(member("f", data=b"x"))))["kind"], "rootfs")
    finally:
        run("umount", at)
