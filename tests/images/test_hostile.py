# SPDX-License-Identifier: Apache-2.0
"""Archives that want out, or to fill the disk: each is refused whole, with its code, and leaves neither a tree nor a trace outside."""

import gzip
import json
import os
import subprocess
import tarfile
import zlib

from images.importing import (END, Layout, Store, digest, header, member, padded, pax, raw_pax, tar, write)
from lib import job
from lib.case import contains, equal, require, timeout

DIR, SYM, LNK = tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


class Watch:
    """A store, and a directory outside that no import may touch."""

    def __init__(self, top):
        self.top = top
        self.store = Store(top)
        self.outside = os.path.join(top, "outside")
        os.mkdir(self.outside)
        write(self.outside, "canary", b"alive")
        os.chmod(self.outside, 0o777)
        self.before = self.look()

    def look(self):
        names = sorted(os.listdir(self.outside))
        return [(n, os.stat(os.path.join(self.outside, n)).st_ctime_ns) for n in names], os.stat(self.outside).st_mtime_ns

    def refuse(self, what, code="hostile_archive", **members):
        """@what (bytes of an archive, or a path) is refused with @code. Returns the message."""
        path = what if isinstance(what, str) else write(self.top, "archive", what)
        try:
            reply = self.store.load(path, **members)
        except job.JobError as error:
            equal(error.code, code, error.message)
            equal(self.store.left(), [], "left in the pool")
            equal(self.look(), self.before, "outside of the tree")
            return error.message
        raise AssertionError(f"it was imported: {reply}")


def refused_names(watch, names, word):
    for name in names:
        contains(watch.refuse(tar(member("d", DIR), member(name, data=b"x"))), word)
        contains(watch.refuse(header(name.encode(), 1) + padded(b"x") + END), word)


@require("root")
def test_names_that_lead_upwards(tmp):
    refused_names(Watch(tmp), ["../x", "../../../../../../tmp/x", "d/../../x", "d/..", "..", "./../x", "d//../..//x"], "leads upwards")


@require("root")
def test_absolute_names(tmp):
    """Not hostile: they are names below the tree. Through a link, or upwards, they lead no further than others."""
    watch = Watch(tmp)
    for name in ("/x", "//x", os.path.join(watch.outside, "canary")):
        for archive in (tar(member("d", DIR), member(name, data=b"x")), header(b"d/", kind=b"5") + header(name.encode(), 1) + padded(b"x") + END):
            root = watch.store.rootfs(watch.store.load(write(tmp, "archive", archive)))
            equal(open(root + name, "rb").read(), b"x")
            equal(watch.look(), watch.before)
            subprocess.run(["rm", "-rf", os.path.dirname(root)], check=True)
    refused_names(watch, ["/../x", "//d/../../x", "/.."], "leads upwards")
    contains(watch.refuse(tar(member("/l", SYM, linkname=watch.outside), member("/l/x", data=b"x"))), "symbolic link")
    contains(watch.refuse(tar(member("/h", LNK, linkname=watch.outside + "/canary"))), "not there")


@require("root")
def test_file_through_a_symlink(tmp):
    watch = Watch(tmp)
    for target in (watch.outside, "../../../../.." + watch.outside, ".", "/", "../../.."):
        contains(watch.refuse(tar(member("l", SYM, linkname=target), member("l/x", data=b"x"))), "symbolic link")
        contains(watch.refuse(tar(member("d", DIR), member("d/l", SYM, linkname=target), member("d/l/a/b/x", data=b"x"))), "symbolic link")


@require("root")
def test_chain_of_symlinks(tmp):
    watch = Watch(tmp)
    links = [member("a", SYM, linkname="b"), member("b", SYM, linkname="c"), member("c", SYM, linkname=watch.outside)]
    contains(watch.refuse(tar(*links, member("a/x", data=b"x"))), "symbolic link")


@require("root")
def test_directory_replaced_by_a_symlink(tmp):
    watch = Watch(tmp)
    contains(watch.refuse(tar(member("d", DIR), member("d/x", data=b"1"), member("d", SYM, linkname=watch.outside),
                              member("d/canary", data=b"2"))), "symbolic link")


@require("root")
def test_file_over_a_symlink_replaces_the_link(tmp):
    """Not hostile: the link goes, what it points at stays."""
    watch = Watch(tmp)
    reply = watch.store.load(write(tmp, "archive", tar(member("l", SYM, linkname=watch.outside + "/canary"), member("l", data=b"new"))))
    path = os.path.join(watch.store.rootfs(reply), "l")
    assert not os.path.islink(path)
    equal(open(path, "rb").read(), b"new")
    equal(watch.look(), watch.before)


@require("root")
def test_symlink_in_a_lower_layer(tmp):
    watch = Watch(tmp)
    layers = [tar(member("l", SYM, linkname=watch.outside)), tar(member("l/x", data=b"x"))]
    contains(watch.refuse(Layout().image(layers).to_dir(os.path.join(tmp, "layout"))), "symbolic link")


@require("root")
def test_whiteout_through_a_symlink(tmp):
    watch = Watch(tmp)
    layers = [tar(member("l", SYM, linkname=watch.outside)), tar(member("l/.wh.canary"))]
    contains(watch.refuse(Layout().image(layers).to_dir(os.path.join(tmp, "layout"))), "symbolic link")
    layers = [tar(member("l", SYM, linkname=watch.outside)), tar(member("l/.wh..wh..opq"))]
    contains(watch.refuse(Layout().image(layers).to_dir(os.path.join(tmp, "layout2"))), "symbolic link")


@require("root")
def test_hard_link_outside(tmp):
    watch = Watch(tmp)
    for target in ("../outside/canary", watch.outside + "/canary", "/etc/passwd", "..", "d/../../x"):
        watch.refuse(tar(member("h", LNK, linkname=target)))


@require("root")
def test_hard_link_through_a_symlink(tmp):
    watch = Watch(tmp)
    contains(watch.refuse(tar(member("l", SYM, linkname=watch.outside), member("h", LNK, linkname="l/canary"))), "symbolic link")


@require("root")
def test_hard_link_to_a_symlink(tmp):
    watch = Watch(tmp)
    contains(watch.refuse(tar(member("l", SYM, linkname=watch.outside + "/canary"), member("h", LNK, linkname="l"),
                              member("h", data=b"x"))), "hard link to a symbolic link")


@require("root")
def test_hard_links_to_nothing_directories_and_themselves(tmp):
    watch = Watch(tmp)
    contains(watch.refuse(tar(member("h", LNK, linkname="missing"))), "not there")
    contains(watch.refuse(tar(member("h", LNK, linkname="missing/deep"))), "not there")
    contains(watch.refuse(tar(member("d", DIR), member("h", LNK, linkname="d"))), "no file")
    contains(watch.refuse(tar(member("f", data=b"x"), member("f", LNK, linkname="./f"))), "itself")
    contains(watch.refuse(tar(member("h", LNK, linkname="."))), "itself or to the root")


@require("root")
def test_links_without_a_target(tmp):
    watch = Watch(tmp)
    for kind in (b"1", b"2"):
        contains(watch.refuse(header(b"l", kind=kind) + END), "no target")
        contains(watch.refuse(pax((b"linkpath", b"")) + header(b"l", kind=kind, link=b"x") + END), "empty name")


@require("root")
def test_empty_and_odd_names(tmp):
    watch = Watch(tmp)
    contains(watch.refuse(header(b"", 1) + padded(b"x") + END), "no name")
    contains(watch.refuse(header(b".", 1) + padded(b"x") + END), "root is no directory")
    contains(watch.refuse(header(b"./", kind=b"2", link=b"/etc") + END), "root is no directory")
    contains(watch.refuse(header(b"f/", 1) + padded(b"x") + END), "name of a directory")
    contains(watch.refuse(pax((b"path", b"a" * 256)) + header(b"x") + END), "longer than 255")
    contains(watch.refuse(pax((b"path", b"a/" * 300 + b"f")) + header(b"x") + END), "too deep")
    contains(watch.refuse(pax((b"path", b"/".join([b"a" * 200] * 30))) + header(b"x") + END), "4095")
    contains(watch.refuse(pax((b"path", b"a\0b")) + header(b"x") + END), "NUL")


@require("root")
def test_file_below_a_file(tmp):
    contains(Watch(tmp).refuse(tar(member("f", data=b"x"), member("f/g", data=b"x"))), "no directory")


@require("root")
def test_messages_escape_names(tmp):
    watch = Watch(tmp)
    message = watch.refuse(header(b"../\x1b[2J\xff\n\xc2\x9b", 0) + END)
    contains(message, "\\x1b[2J\\xff\\x0a\\xc2\\x9b")


@require("root")
def test_extended_headers_that_say_two_things(tmp):
    watch = Watch(tmp)
    long = header(b"././@LongLink", 4, b"L") + padded(b"abc\0")
    one = pax((b"path", b"a"))
    for archive in (one + one + header(b"x"), long + long + header(b"x"), one + long + header(b"x"), long + one + header(b"x"),
                    pax((b"path", b"a"), (b"path", b"b")) + header(b"x"), pax((b"size", b"1"), (b"size", b"2")) + header(b"x", 1),
                    pax((b"SCHILY.xattr.user.a", b"1"), (b"SCHILY.xattr.user.a", b"2")) + header(b"x")):
        watch.refuse(archive + END)


@require("root")
def test_global_headers_that_rename(tmp):
    watch = Watch(tmp)
    for key, value in ((b"path", b"../../x"), (b"linkpath", b"/etc/passwd"), (b"size", b"0"), (b"uid", b"0"),
                       (b"SCHILY.xattr.security.capability", b"x"), (b"GNU.sparse.name", b"x")):
        contains(watch.refuse(pax((key, value), kind=b"g") + header(b"x") + END), "global")


@require("root")
def test_overrides_are_what_is_judged(tmp):
    """The name of the extended header counts, not the one that a simpler reader sees."""
    watch = Watch(tmp)
    contains(watch.refuse(pax((b"path", b"../../x")) + header(b"harmless") + END), "upwards")
    contains(watch.refuse(header(b"././@LongLink", 8, b"L") + padded(b"../../x\0") + header(b"harmless") + END), "upwards")
    contains(watch.refuse(header(b"x", magic=b"ustar\x0000", fields=[(345, b"../..")]) + END), "upwards")


@require("root")
def test_absurd_sizes(tmp):
    watch = Watch(tmp)
    for field in (b"\xff" * 12, b"\x80" + b"\xff" * 11, b"\x80\0\0\0" + b"\x7f" + b"\xff" * 7, b"\x80\0\0\0" + b"\x80" + b"\0" * 7):
        contains(watch.refuse(header(b"x", fields=[(124, field)]) + END), "negative or absurd")
    contains(watch.refuse(pax((b"size", b"9" * 30)) + header(b"x") + END), "out of range")
    contains(watch.refuse(pax((b"size", b"-1")) + header(b"x") + END, "corrupt"), "malformed")
    contains(watch.refuse(header(b"x", fields=[(124, b"77777777777 ")]) + END, limit_bytes=1 << 30), "more bytes than allowed")
    watch.refuse(header(b"d", 512, b"5") + b"x" * 512 + END)
    watch.refuse(header(b"l", 512, b"2", b"t") + b"x" * 512 + END)
    watch.refuse(header(b"long", 2 << 20, b"L") + b"x" * (2 << 20) + END)


@require("root")
def test_sparse_maps_that_lie(tmp):
    watch = Watch(tmp)

    def sparse(pieces, size, stored):
        text = ",".join(f"{a},{b}" for a, b in pieces).encode()
        return pax((b"GNU.sparse.map", text), (b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.name", b"f")) + \
            header(b"x", len(stored)) + padded(stored) + END
    for pieces, size in (([(0, 4), (2, 4)], 100), ([(50, 4), (0, 4)], 100), ([(98, 8)], 100), ([(0, 4)], 100), ([(0, 12)], 100)):
        watch.refuse(sparse(pieces, size, b"12345678"))
    contains(watch.refuse(sparse([(0, 8)], 1 << 61, b"12345678")), "more bytes than allowed")
    watch.refuse(sparse([(1 << 63, 8)], 1 << 61, b"12345678"), "corrupt")
    watch.refuse(header(b"f", 0, b"S", magic=b"ustar  \0", fields=[(386, b"00000000000\0" + b"00000000010\0"), (483, b"00000000004\0")]) + END)


@require("root")
def test_unknown_types(tmp):
    watch = Watch(tmp)
    for kind in b"8MNVXDAz\x01":
        watch.refuse(header(b"x", kind=bytes([kind])) + END)


@require("root")
def test_damaged_archives(tmp):
    watch = Watch(tmp)
    whole = tar(member("f", data=b"x" * 5000))
    for archive in (b"", b"x" * 4096, whole[:700], whole[:3000], header(b"x")[:-1], raw_pax(b"5 a=b\n") + header(b"x") + END,
                    raw_pax(b"06 a=b\n") + header(b"x") + END, raw_pax(b"9 a=b\n") + header(b"x") + END, raw_pax(b"abc") + header(b"x") + END,
                    pax((b"path", b"x")) + END, header(b"x") + b"\0" * 512 + header(b"y") + END,
                    bytes(b ^ (i == 3) for i, b in enumerate(header(b"abcdef"))) + END):
        watch.refuse(archive, "corrupt")


@require("root", "program:zstd")
def test_damaged_compression(tmp):
    watch = Watch(tmp)
    plain = tar(member("f", data=os.urandom(20000)))
    packed = gzip.compress(plain)
    for archive in (packed[:-9], packed[:500], packed[:-8] + b"\0" * 8, packed + b"garbage", packed[:100] + b"\xff" * 50 + packed[150:]):
        watch.refuse(archive, "corrupt")
    packed = subprocess.run(["zstd", "-qc"], input=plain, stdout=subprocess.PIPE, check=True).stdout
    for archive in (packed[:-9], packed[:200], packed + b"garbage"):
        watch.refuse(archive, "corrupt")


@require("root")
def test_bomb_of_zeros(tmp):
    """600 MB of zeros in 600 KB."""
    watch = Watch(tmp)
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = packer.compress(header(b"f", 600 << 20))
    for _ in range(600):
        data += packer.compress(b"\0" * (1 << 20))
    contains(watch.refuse(data + packer.compress(END) + packer.flush()), "times its size")


@require("root", "program:zstd")
def test_bomb_of_zstd_behind_the_end(tmp):
    """The tar ends, the stream does not: what is read only for the digest counts too."""
    watch = Watch(tmp)
    data = subprocess.run(["zstd", "-qc"], input=tar(member("f")) + b"\0" * (400 << 20), stdout=subprocess.PIPE, check=True).stdout
    contains(watch.refuse(data), "times its size")


@require("root")
def test_limits(tmp):
    watch = Watch(tmp)
    many = tar(*[member(f"f{i}") for i in range(101)])
    contains(watch.refuse(many, limit_entries=100), "more than 100 entries")
    contains(watch.refuse(tar(*[member(f"f{i}", data=b"x" * 1000) for i in range(10)]), limit_bytes=9999), "more")
    contains(watch.refuse(gzip.compress(tar(member("f", data=os.urandom(100000)))), limit_bytes=50000), "more")
    two = Layout().image([tar(member("a", data=b"x" * 20000)), tar(member("b", data=b"x" * 20000))])
    contains(watch.refuse(two.to_dir(os.path.join(tmp, "l")), limit_bytes=35000), "more bytes than allowed")
    contains(watch.refuse(many, "timeout", timeout_ms=0), "longer than allowed")


@require("root")
def test_archive_that_holds_itself(tmp):
    """Nothing is ever unpacked twice: an archive inside an archive is a file, so a quine ends after one step."""
    watch = Watch(tmp)
    inner = gzip.compress(tar(member("../x")))
    reply = watch.store.load(write(tmp, "archive", gzip.compress(tar(member("again.tar.gz", data=inner)))))
    equal(open(os.path.join(watch.store.rootfs(reply), "again.tar.gz"), "rb").read(), inner)


@require("root")
def test_malformed_whiteouts(tmp):
    watch = Watch(tmp)
    for n, entry in enumerate([member(".wh."), member("d/.wh.."), member(".wh..."), member(".wh..wh.plnk"), member(".wh..wh.x"), member("d/.wh..wh."),
                               member(".wh.x/y"), member(".wh..wh..opq/y"), member(".wh.x", data=b"1"), member(".wh.x", DIR),
                               member(".wh.x", SYM, linkname="y")]):
        layers = [tar(member("x"), member("d", DIR), member("d/e")), tar(entry)]
        watch.refuse(Layout().image(layers).to_dir(os.path.join(tmp, f"layout{n}")))
    contains(watch.refuse(tar(member("bin", DIR), member("bin/.wh.x"))), "no layer")


@require("root")
def test_digests_that_do_not_match(tmp):
    watch = Watch(tmp)
    layer = tar(member("f", data=b"honest"))
    other = tar(member("f", data=b"robber"))
    cases = {}
    cases["blob"] = Layout().image([layer])
    cases["blob"].files["blobs/sha256/" + digest(layer)[7:]] = other
    cases["diff_id"] = Layout().image([layer], diff_ids=[digest(other)])
    cases["size"] = Layout().image([layer + b"\0" * 512], diff_ids=[digest(layer + b"\0" * 512)])
    cases["size"].files["blobs/sha256/" + digest(layer + b"\0" * 512)[7:]] = layer
    for name in ("config", "manifest"):
        cases[name] = Layout().image([layer])
        for path, data in list(cases[name].files.items()):
            if (name == "config" and b"diff_ids" in data) or (name == "manifest" and b'"layers": [{' in data):
                cases[name].files[path] = data + b" "
    for name, layout in cases.items():
        watch.refuse(layout.to_dir(os.path.join(tmp, name)))
        watch.refuse(layout.to_tar())


@require("root")
def test_second_layer_is_checked_before_it_hides(tmp):
    watch = Watch(tmp)
    base, upper = tar(member("d", DIR), member("d/f", data=b"x")), tar(member("d/.wh.f"))
    layout = Layout().image([base, upper], diff_ids=[digest(base), digest(base)])
    watch.refuse(layout.to_dir(os.path.join(tmp, "layout")))


@require("root")
def test_missing_and_linked_blobs(tmp):
    watch = Watch(tmp)
    layer = tar(member("f", data=b"x"))
    path = Layout().image([layer]).to_dir(os.path.join(tmp, "missing"))
    os.unlink(os.path.join(path, "blobs/sha256", digest(layer)[7:]))
    contains(watch.refuse(path, "corrupt"), "missing")
    os.symlink(os.path.join(watch.outside, "canary"), os.path.join(path, "blobs/sha256", digest(layer)[7:]))
    contains(watch.refuse(path), "link")
    os.unlink(os.path.join(path, "blobs/sha256", digest(layer)[7:]))
    os.mkfifo(os.path.join(path, "blobs/sha256", digest(layer)[7:]))
    watch.refuse(path)
    os.rename(os.path.join(path, "blobs"), os.path.join(watch.top, "elsewhere"))
    os.symlink(os.path.join(watch.top, "elsewhere"), os.path.join(path, "blobs"))
    watch.refuse(path)


@require("root")
def test_nested_indexes_and_cycles(tmp):
    watch = Watch(tmp)
    layout = Layout().image([tar(member("f"))])
    inner = layout.manifests.pop()
    for _ in range(5):
        inner = layout.blob({"schemaVersion": 2, "manifests": [inner]}, "index.v1+json")
    layout.manifests = [inner]
    contains(watch.refuse(layout.to_dir(os.path.join(tmp, "deep"))), "nested too deeply")
    # An index that claims to hold itself cannot have its own digest.
    cycle = Layout()
    claimed = {"mediaType": "application/vnd.oci.image.index.v1+json", "digest": "sha256:" + "a" * 64, "size": 1}
    cycle.files["blobs/sha256/" + "a" * 64] = json.dumps({"schemaVersion": 2, "manifests": [claimed]}).encode()
    cycle.manifests = [claimed]
    contains(watch.refuse(cycle.to_dir(os.path.join(tmp, "cycle"))), "not what its digest says")


@require("root")
def test_hostile_documents(tmp):
    watch = Watch(tmp)

    def layout(n, **files):
        made = Layout().image([tar(member("f"))])
        made.files.update({k.replace("_", "-").replace("-json", ".json"): v for k, v in files.items()})
        return made.to_dir(os.path.join(tmp, f"layout{n}"))
    watch.refuse(layout(1, index_json=b" " * (5 << 20)))
    watch.refuse(layout(2, index_json=b"[" * 100000), "corrupt")
    watch.refuse(layout(3, index_json=b'{"schemaVersion":2,"schemaVersion":2,"manifests":[]}'), "corrupt")
    watch.refuse(layout(4, index_json=b'{"schemaVersion":2,"manifests":[]}'), "corrupt")
    watch.refuse(layout(5, index_json=b"\xff\xfe"), "corrupt")
    watch.refuse(layout(6, oci_layout=b'{"imageLayoutVersion":"9"}'), "corrupt")
    many = [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + "a" * 64, "size": 1}] * 600
    watch.refuse(layout(7, index_json=json.dumps({"schemaVersion": 2, "manifests": many}).encode()))
    for n, bad in enumerate(["sha256:" + "A" * 64, "sha256:../../../../etc/passwd", "../../x", "md5:" + "a" * 32, "sha256:" + "a" * 63, ""]):
        entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": bad, "size": 1}
        watch.refuse(layout(f"d{n}", index_json=json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()), "corrupt")
    big = Layout().image([tar(member("f"))], config={"Labels": {"x": "y" * 200000}})
    contains(watch.refuse(big.to_dir(os.path.join(tmp, "big"))), "96 KiB")


@require("root")
def test_docker_archives_that_reach_out(tmp):
    watch = Watch(tmp)
    layer = tar(member("f", data=b"x"))
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": [digest(layer)]}}).encode()

    def save(layers, config_name="c.json", more=()):
        manifest = json.dumps([{"Config": config_name, "RepoTags": ["a:b"], "Layers": layers}]).encode()
        return tar(member("manifest.json", data=manifest), member(digest(config)[7:] + ".json", data=config), *more)
    name = digest(config)[7:] + ".json"
    where = "a" * 64
    watch.refuse(save(["../../outside/canary"], name))
    watch.refuse(save(["/etc/passwd"], name), "corrupt")
    watch.refuse(save([where + "/layer.tar"], "../../../etc/passwd"))
    watch.refuse(save([where + "/layer.tar"], name), "corrupt")
    linked = member(where + "/layer.tar", SYM, linkname="../../outside/canary")
    watch.refuse(save([where + "/layer.tar"], name, [linked]))
    twice = [member(where + "/layer.tar", data=layer), member(where + "/layer.tar", data=layer)]
    contains(watch.refuse(save([where + "/layer.tar"], name, twice)), "twice")
    wrong = [member(where + "/layer.tar", data=tar(member("f", data=b"y")))]
    watch.refuse(save([where + "/layer.tar"], name, wrong))
    other = tar(member("manifest.json", data=json.dumps([{"Config": name, "Layers": []}]).encode()), member(name, data=config + b" "))
    contains(watch.refuse(other), "digest")


@require("root")
def test_other_platforms_and_artifacts(tmp):
    watch = Watch(tmp)
    layer = tar(member("f"))
    contains(watch.refuse(Layout().image([layer], arch="s390x").to_dir(os.path.join(tmp, "arch")), "unsupported"), "is not for linux/")
    contains(watch.refuse(Layout().image([layer], os="windows").to_dir(os.path.join(tmp, "os")), "unsupported"), "windows")
    artifact = Layout()
    manifest = {"schemaVersion": 2, "config": artifact.blob({}, "empty.v1+json"), "layers": []}
    artifact.manifests = [artifact.blob(manifest, "manifest.v1+json")]
    watch.refuse(artifact.to_dir(os.path.join(tmp, "artifact")), "unsupported")
    two = Layout().image([layer]).image([layer], config={"Cmd": ["other"]})
    watch.refuse(two.to_dir(os.path.join(tmp, "two")), "ambiguous")


@require("root")
def test_bad_requests(tmp):
    watch = Watch(tmp)
    good = tar(member("f"))
    watch.refuse(os.path.join(tmp, "missing"), "not_found")
    watch.refuse("relative", "invalid")
    os.mkfifo(os.path.join(tmp, "fifo"))
    watch.refuse(os.path.join(tmp, "fifo"), "invalid")
    watch.refuse("/dev/zero", "invalid")
    watch.refuse(watch.outside, "corrupt")
    watch.refuse(watch.outside, "invalid", format="docker")
    watch.refuse(good, "invalid", format="zip")
    watch.refuse(good, "corrupt", format="oci")
    for name in ("A", "a:b:c", "../x", "a@sha256:12", "", 7):
        watch.refuse(good, "invalid", name=name)
    for limit in (-1, "many", 1 << 80):
        try:
            watch.refuse(good, "invalid", limit_bytes=limit)
        except job.JobDied:
            assert limit == 1 << 80  # no such number in JSON of the job


@require("root")
@timeout(120)
def test_every_byte_of_a_header_changed(tmp):
    """Flips in the headers of a small archive: refused or imported, never a crash, nothing outside."""
    watch = Watch(tmp)
    whole = bytearray(tar(member("d", DIR), member("d/f", data=b"x" * 600), member("l", SYM, linkname="/etc"), form=tarfile.GNU_FORMAT))
    codes = {}
    for at in range(0, 2048, 13):
        changed = bytearray(whole)
        changed[at] ^= 0x41
        block = at // 512 * 512
        changed[block + 148:block + 156] = b" " * 8
        changed[block + 148:block + 156] = b"%06o\0 " % sum(changed[block:block + 512])
        try:
            watch.store.load(write(tmp, "archive", bytes(changed)))
            code = "imported"
        except job.JobError as error:
            code = error.code
        codes[code] = codes.get(code, 0) + 1
    assert codes.keys() <= {"imported", "corrupt", "hostile_archive"}, codes
    equal(watch.look(), watch.before)
    assert codes.get("imported", 0) > 0 and codes.get("hostile_archive", 0) > 0, codes
