# SPDX-License-Identifier: Apache-2.0
"""Attacks from outside: hostile archives and images."""

import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import threading
import time

import canary
import posture
from lib import cay
from outside import alive, case, refused, suid_reachable, verdict


def entry(name, kind=tarfile.REGTYPE, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    info.mode = more.pop("mode", 0o755 if kind == tarfile.DIRTYPE else 0o644)
    for k, v in more.items():
        setattr(info, k, v)
    return info, data


def tar(entries, fmt=tarfile.GNU_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=fmt) as t:
        for info, data in entries:
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def hostile_pairs(out):
    """Everything that no honest archive holds, in pieces that need nothing of each other."""
    return [[entry("up/../../../../../../../.." + out + "/planted1", data=b"x")], [entry(out + "/planted2", data=b"x")],
            [entry("up/link", tarfile.SYMTYPE, linkname=out), entry("up/link/planted3", data=b"x")],
            [entry("up/hard", tarfile.LNKTYPE, linkname=out + "/secret")], [entry("up/null", tarfile.CHRTYPE, devmajor=1, devminor=5, mode=0o666)],
            [entry("up/suid", data=b"x", mode=0o6755)]]


def hostile_entries(out):
    return [entry("up/", tarfile.DIRTYPE)] + [e for pair in hostile_pairs(out) for e in pair]


def import_works(session):
    """Without a good image that can be imported the refusal of a bad one says nothing."""
    if session.can_import is None:
        status, code, text, _ = post_image(session, tar(base_entries()), "good")
        session.can_import = status in (200, 201)
        if session.can_import:
            session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
        else:
            session.import_error = f"{status} {code} {text[:200]!r}"
    if not session.can_import:
        raise RuntimeError(f"a good image cannot be imported: {session.import_error}")


def import_tar(session, data, name="hostile"):
    import_works(session)
    return post_image(session, data, name)


def post_image(session, data, name):
    path = os.path.join(session.top, f"{name}-{os.urandom(3).hex()}.tar")
    with open(path, "wb") as f:
        f.write(data)
    answer = refused(session, "POST", "/v1/images", {"path": path, "name": "hostile-" + os.urandom(3).hex()}, timeout=60)
    os.unlink(path)
    return answer


def base_entries():
    """A minimal root tree that starts: only directories, the attacker is mounted."""
    return [entry(n, tarfile.DIRTYPE) for n in ("etc", "tmp", "proc", "dev", "sys", "usr", "bin")] + \
        [entry("etc/passwd", data=b"root:x:0:0:root:/:/redcell/redcell\n"), entry("etc/group", data=b"root:x:0:\n")]


def import_outcome(session, data, want_refused=True):
    """Import; refused is right, and so is an image in which nothing leads outside (the canaries say)."""
    status, code, text, _ = import_tar(session, data)
    found = alive(session)
    if status in (200, 201):
        found += [f"accepted: {text[:150]!r}"] if want_refused else []
        session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
    elif code in ("internal", "unsupported", "host", None):
        found.append(f"{status} {code}: {text[:200]!r}")
    left = os.path.join(session.instance.state, "pool", "tmp")
    if os.path.isdir(left) and os.listdir(left):
        found.append(f"left in tmp: {os.listdir(left)[:3]}")
    return verdict(found, f"{status} {code}")


def import_outcomes(session, *archives, fmt=tarfile.GNU_FORMAT):
    """Each alone, after a good tree: all must be refused."""
    verdicts = [import_outcome(session, tar(base_entries() + more, fmt)) for more in archives]
    bad = [detail for outcome, detail in verdicts if outcome != "blocked"]
    return ("escaped", "; ".join(bad)) if bad else verdicts[0]


@case("AR-01", "image with ../ in its names", "hostile_archive, or inside its tree", "directory outside")
def ar_01(session):
    out = session.host.drop
    return import_outcomes(session, [entry("../" * 30 + out[1:] + "/planted", data=b"x")], [entry("etc/../../x", data=b"x")])


@case("AR-01B", "image with absolute names", "inside its tree", "directory outside")
def ar_01b(session):
    return import_outcome(session, tar(base_entries() + [entry(session.host.outside + "/planted", data=b"x")]), want_refused=False)


@case("AR-02", "image with a symlink and a file through it", "hostile_archive", "directory outside")
def ar_02(session):
    out = session.host.drop
    return import_outcomes(session, [entry("l", tarfile.SYMTYPE, linkname=out), entry("l/planted", data=b"x")],
                           [entry("m", tarfile.SYMTYPE, linkname="../" * 20 + out[1:]), entry("m/planted", data=b"x")],
                           [entry("l", tarfile.SYMTYPE, linkname=out), entry("n", tarfile.SYMTYPE, linkname="l"), entry("n/planted", data=b"x")])


@case("AR-03", "image with hard links to files outside and to symlinks", "hostile_archive", "links of the files outside")
def ar_03(session):
    out = session.host.drop
    return import_outcomes(session, [entry("h1", tarfile.LNKTYPE, linkname=out + "/secret")], [entry("h2", tarfile.LNKTYPE, linkname="../" * 20 + out[1:] + "/secret")],
                           [entry("d", tarfile.SYMTYPE, linkname=out), entry("h3", tarfile.LNKTYPE, linkname="d/secret")],
                           [entry("s", tarfile.SYMTYPE, linkname=out + "/secret"), entry("h4", tarfile.LNKTYPE, linkname="s")])


@case("AR-04", "image with empty, dot and directory-like names", "refused or ignored, nothing outside", "directory outside; server")
def ar_04(session):
    data = tar(base_entries() + [entry("", data=b"x"), entry(".", data=b"x"), entry("..", data=b"x"), entry("etc/", data=b"x"), entry("./../.", tarfile.DIRTYPE),
                                 entry("x/..", tarfile.SYMTYPE, linkname="/"), entry("etc/.", tarfile.SYMTYPE, linkname="/")])
    return import_outcome(session, data, want_refused=False)


@case("AR-05", "image with PAX overrides of path and linkpath", "hostile_archive", "directory outside; server")
def ar_05(session):
    out = session.host.drop
    return import_outcomes(session, [entry("a", data=b"x", pax_headers={"path": "../" * 20 + out[1:] + "/planted"})],
                           [entry("b", tarfile.SYMTYPE, linkname="x", pax_headers={"linkpath": out}), entry("b/planted", data=b"x")], fmt=tarfile.PAX_FORMAT)


@case("AR-05B", "image with negative, huge and base-256 sizes", "hostile_archive or corrupt", "server; disk")
def ar_05b(session):
    found = []
    # the header alone, as if nothing followed: whoever takes the size for 0 goes on
    start, good = tar(base_entries()).rstrip(b"\0"), bytearray(entry("a")[0].tobuf(tarfile.GNU_FORMAT))
    start += bytes(-len(start) % 512)
    for field in (b"\xff" * 12, b"\x80" + b"\x7f" * 11, b"77777777777\0", b"-0000000001\0", b"zzzzzzzzzzz\0"):
        bad = bytearray(good)
        bad[124:136] = field
        bad[148:156] = b"        "
        bad[148:156] = b"%06o\0 " % sum(bad[:512])
        status, code, text, _ = import_tar(session, start + bytes(bad) + bytes(1024))
        if status in (200, 201):
            found.append(f"size {field!r} accepted")
        elif code in ("internal", None, "unsupported"):
            found.append(f"{status} {code} {text[:100]!r}")
    return verdict(found + alive(session))


@case("AR-06", "image with device nodes, set-uid files, capabilities and foreign owners", "dropped, or inert inside", "device nodes below the pool; set-uid files that a host user can reach")
def ar_06(session):
    caps = {"SCHILY.xattr.security.capability": "\x01\x00\x00\x02"}
    data = tar(base_entries() + [entry("dev/sda", tarfile.BLKTYPE, devmajor=254, devminor=0, mode=0o666), entry("zero", tarfile.CHRTYPE, devmajor=1, devminor=5, mode=0o666),
                                 entry("etc/whiteout", tarfile.CHRTYPE, devmajor=0, devminor=0, mode=0o666),
                                 entry("suid", data=b"#!/bin/sh\n", mode=0o6755), entry("owner", data=b"x", uid=4294967294, gid=4294967294),
                                 entry("caps", data=b"x", pax_headers=caps)], tarfile.PAX_FORMAT)
    status, code, text, _ = import_tar(session, data)
    found = alive(session)
    if status in (200, 201):
        done = subprocess.run(["find", os.path.join(session.instance.state, "pool"), "-xdev", "(", "-type", "b", "-o", "-type", "c", ")", "-not", "-path",
                               "*/live/*", "-printf", "%p %y\n"], capture_output=True, text=True, check=False)
        nodes = [line for line in done.stdout.splitlines() if "rootfs" in line]
        if nodes:
            found.append(f"device nodes in the image: {nodes[:2]}")
        session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
    elif code in ("internal", None):
        found.append(f"{status} {code} {text[:150]!r}")
    return verdict(found, f"{status} {code}")


@case("AR-08", "archive bomb: a GiB of zeros in a MiB", "refused by size or ratio; or bounded by the disk", "bytes in the pool; time; server", 120)
def ar_08(session):
    import gzip
    out = io.BytesIO()
    block = bytes(1 << 20)
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=9) as g:
        info, _ = entry("bomb")
        info.size = 1 << 30
        g.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(1024):
            g.write(block)
        g.write(bytes(1024))
    start = time.monotonic()
    status, code, text, _ = import_tar(session, out.getvalue())
    found = alive(session)
    if status in (200, 201):
        found.append(f"accepted: a ratio of a thousand to one, {time.monotonic() - start:.1f} s")
        session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
    elif code in ("internal", None):
        found.append(f"{status} {code} {text[:150]!r}")
    return verdict(found, f"{status} {code}")


@case("AR-06B", "image with a set-uid program; a host user looks for it", "not reachable from outside", "walk of the pool as an ordinary user")
def ar_06b(session):
    status, code, text, _ = import_tar(session, tar(base_entries() + [entry("bin/suid", data=b"#!/bin/sh\n", mode=0o6755)]))
    if status not in (200, 201):
        return verdict([f"a set-uid program is refused: {status} {code}"])
    reach = suid_reachable(os.path.join(session.instance.state, "pool", "images"))
    session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
    return verdict([reach] if reach else [], "not reachable")


@case("AR-08B", "archive with a directory 1,000 levels deep", "hostile_archive", "images; server; left files")
def ar_08b(session):
    return import_outcome(session, tar(base_entries() + [entry("/".join(["d"] * 1000), tarfile.DIRTYPE)], tarfile.PAX_FORMAT))


@case("AR-10", "OCI layout with a wrong digest, and a path as a digest", "corrupt or hostile_archive", "images; secrets")
def ar_10(session):
    import_works(session)
    found = []
    top = os.path.join(session.top, "oci-" + os.urandom(3).hex())
    os.makedirs(os.path.join(top, "blobs", "sha256"))
    for digest in ("sha256:" + "0" * 64, "sha256:../../../../" + session.host.outside[1:] + "/secret", "sha256:" + "../" * 10 + "etc/passwd", "md5:1", ""):
        with open(os.path.join(top, "oci-layout"), "w", encoding="ascii") as f:
            f.write('{"imageLayoutVersion":"1.0.0"}')
        with open(os.path.join(top, "blobs", "sha256", "0" * 64), "w", encoding="ascii") as f:
            f.write("{}")
        with open(os.path.join(top, "index.json"), "w", encoding="ascii") as f:
            json.dump({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": 2}]}, f)
        status, code, text, _ = refused(session, "POST", "/v1/images", {"path": top, "name": "oci-" + os.urandom(3).hex()}, timeout=60)
        if status in (200, 201):
            found.append(f"{digest[:40]} accepted")
        elif code in ("internal", "unsupported", None):
            found.append(f"{digest[:30]}: {status} {code} {text[:120]!r}")
        if session.host.secret.encode() in text:
            found.append("the secret is in the answer")
    subprocess.run(["rm", "-rf", top], check=True)
    layer = tar(base_entries())
    for what, kept in (("honest", layer), ("swapped", tar(base_entries() + [entry("evil", data=b"x")]))):
        top = oci_layout(session, layer, kept)
        status, code, text, _ = refused(session, "POST", "/v1/images", {"path": top, "name": "oci-" + os.urandom(3).hex()}, timeout=60)
        if what == "honest" and status not in (200, 201):
            raise RuntimeError(f"a good layout cannot be imported: {status} {code} {text[:200]!r}")
        if what == "swapped" and status in (200, 201):
            found.append("a layer that is not what its digest says is accepted")
        if status in (200, 201):
            session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
        subprocess.run(["rm", "-rf", top], check=True)
    return verdict(found + alive(session))


def oci_layout(session, layer, kept):
    """A layout of one layer, whose blob holds @kept instead."""
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    top = os.path.join(session.top, "oci-" + os.urandom(3).hex())
    os.makedirs(os.path.join(top, "blobs", "sha256"))

    def blob(data, stored):
        digest = hashlib.sha256(data).hexdigest()
        with open(os.path.join(top, "blobs", "sha256", digest), "wb") as f:
            f.write(stored)
        return {"digest": "sha256:" + digest, "size": len(stored)}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                           "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **blob(config, config)},
                           "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar", **blob(layer, kept)}]}).encode()
    with open(os.path.join(top, "oci-layout"), "w", encoding="ascii") as f:
        f.write('{"imageLayoutVersion":"1.0.0"}')
    with open(os.path.join(top, "index.json"), "w", encoding="ascii") as f:
        json.dump({"schemaVersion": 2, "manifests": [{"mediaType": "application/vnd.oci.image.manifest.v1+json", **blob(manifest, manifest)}]}, f)
    return top


@case("AR-10B", "OCI layer with whiteouts of parents and of nothing", "refused or without effect outside", "directory outside; server")
def ar_10b(session):
    import_works(session)
    layer = tar([entry(".wh..", data=b""), entry("etc/.wh..wh..opq", data=b""), entry(".wh." + "../" * 10 + session.host.outside[1:], data=b""), entry(".wh.", data=b"")])
    top = oci_layout(session, layer, layer)
    status, code, text, _ = refused(session, "POST", "/v1/images", {"path": top, "name": "oci-" + os.urandom(3).hex()}, timeout=60)
    subprocess.run(["rm", "-rf", top], check=True)
    found = alive(session)
    if status in (200, 201):
        session.instance.raw("DELETE", "/v1/images/" + json.loads(text)["id"])
    elif code in ("internal", None):
        found.append(f"{status} {code} {text[:150]!r}")
    return verdict(found, f"{status} {code}")


@case("AR-12", "kill -9 of the import in its middle", "no partial image", "images; files below the pool")
def ar_12(session):
    import_works(session)
    path = os.path.join(session.top, "large.tar")
    with open(path, "wb") as f:
        f.write(tar(base_entries() + [entry(f"usr/f{i}", data=os.urandom(65536)) for i in range(400)]))
    name, answer = "large-" + os.urandom(3).hex(), []

    def work():
        try:
            answer.append(refused(session, "POST", "/v1/images", {"path": path, "name": name}, timeout=60))
        except OSError as error:
            answer.append((0, None, str(error).encode(), {}))
    thread = threading.Thread(target=work)
    thread.start()
    killed, end = 0, time.monotonic() + 10
    while not killed and time.monotonic() < end and thread.is_alive():
        for pid in os.listdir("/proc"):
            if pid.isdigit() and posture.text(f"/proc/{pid}/comm").startswith("cay-import") and session.top.encode() in canary.read(f"/proc/{pid}/environ") + canary.read(f"/proc/{pid}/cmdline"):
                os.kill(int(pid), signal.SIGKILL)
                killed += 1
                break
    thread.join(60)
    os.unlink(path)
    listed = [i for i in session.instance.get("/v1/images")["images"] if name in (i.get("name") or "")]
    found = alive(session)
    if answer and answer[0][0] not in (200, 201):
        found += [f"listed though it failed: {listed}"] if listed else []
        left = os.path.join(session.instance.state, "pool", "tmp")
        found += [f"left: {os.listdir(left)[:3]}"] if os.path.isdir(left) and os.listdir(left) else []
    for image in listed:
        session.instance.raw("DELETE", "/v1/images/" + image["id"])
    return verdict(found, f"killed {killed}, answer {answer[0][:2] if answer else None}")


def run_image(session, entries, argv=("/redcell/redcell", "EX-02", "hold=1"), **create):
    """Import a hostile image and start it: (reasons, detail)."""
    status, code, text, _ = import_tar(session, tar(entries))
    if status not in (200, 201):
        return ([f"{status} {code} {text[:150]!r}"] if code in ("internal", "unsupported", None) else []), f"import refused: {code}"
    image = json.loads(text)["id"]
    found, detail = [], "started"
    try:
        box = session.create("image-" + os.urandom(3).hex(), image=image, mounts=False, **create)
        try:
            ex = session.exec(box, list(argv), cwd="/", stdin=True)
            line = session.first_line(box, ex, 10)
            if ex.get("pid") and os.path.exists(f"/proc/{ex['pid']}"):
                found += session.posture[box["id"]].broken(ex["pid"])
            found += posture.own_places(box["init_pid"])
            session.instance.raw("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/stdin?close=true", b"")
            session.ended(box, ex)
            if b'"escaped"' in line or b'"leaked"' in line or session.host.secret.encode() in line:
                found.append(line.decode(errors="replace")[:300])
            detail += " " + line.decode(errors="replace")[:80]
        finally:
            session.remove(box)
    except cay.ApiError as error:
        detail = f"start refused: {error}"
        found += [detail] if error.code == "internal" else []
    finally:
        session.instance.raw("DELETE", "/v1/images/" + image)
    return found, detail


@case("PR-09", "image whose /dev/null is a symlink to core_pattern", "fresh /dev", "settings of the host")
def pr_09(session):
    return verdict(*run_image(session, base_entries() + [entry("dev/null", tarfile.SYMTYPE, linkname="/proc/sys/kernel/core_pattern")]))


@case("PR-10", "image whose /proc, /sys, /dev, /etc are symlinks", "resolved inside, or refused", "directory outside; settings")
def pr_10(session):
    found, detail = [], ""
    out = session.host.outside
    for name in ("proc", "sys", "dev", "etc"):
        rest = [e for e in base_entries() if e[0].name.split("/")[0] != name]
        more, detail = run_image(session, rest + [entry(name, tarfile.SYMTYPE, linkname=out)])
        found += more
        more, detail = run_image(session, rest + [entry(name, tarfile.SYMTYPE, linkname="/proc/self/root" + out)])
        found += more
    return verdict(found, detail)


@case("MN-06", "mount target that is a symlink to the outside", "inside the root, or refused", "directory outside")
def mn_06(session):
    found, detail = [], ""
    out = session.host.outside
    for link in (out, "../" * 20 + out[1:], "/proc/self/root" + out, "/proc/1/root" + out):
        mounts = session.mounts()[:1] + [{"source": os.path.join(session.top, "rw"), "target": "/evil/sub", "mode": "rw"}]
        entries = base_entries() + [entry("evil", tarfile.SYMTYPE, linkname=link)]
        status, code, text, _ = import_tar(session, tar(entries))
        if status not in (200, 201):
            found.append(f"import: {status} {code}")
            continue
        image = json.loads(text)["id"]
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", {"name": "mn06-" + os.urandom(3).hex(), "image": image, "mounts": mounts})
        detail = f"{status} {code}"
        if status in (200, 201):
            session.remove(json.loads(text))
        elif code in ("internal", None):
            found.append(f"{link}: {status} {text[:150]!r}")
        session.instance.raw("DELETE", "/v1/images/" + image)
    return verdict(found, detail)


@case("MN-07", "image whose /dev is a symlink to a place on the host", "fresh /dev, host untouched", "directory outside")
def mn_07(session):
    rest = [e for e in base_entries() if e[0].name != "dev"]
    return verdict(*run_image(session, rest + [entry("dev", tarfile.SYMTYPE, linkname=session.host.outside)]))


@case("EX-03", "image with a hostile passwd, ld.so.preload and nsswitch", "helpers do not follow them", "server; time")
def ex_03(session):
    entries = [e for e in base_entries() if e[0].name != "etc/passwd"]
    entries += [entry("etc/passwd", data=b"root:x:0:0:" + b"A" * (10 << 20) + b":/:/x\nroot:x:99999999999:0::/:/x\n"),
                entry("etc/ld.so.preload", data=b"/evil.so\n"), entry("etc/nsswitch.conf", data=b"passwd: evil\n")]
    return verdict(*run_image(session, entries))


@case("DV-06", "image whose /dev/console and /dev/pts are symlinks, with a terminal", "no host file created or owned", "directory outside")
def dv_06(session):
    out = session.host.outside
    return verdict(*run_image(session, base_entries() + [entry("dev/console", tarfile.SYMTYPE, linkname=out + "/planted"), entry("dev/pts", tarfile.SYMTYPE, linkname=out),
                                                         entry("dev/tty", tarfile.SYMTYPE, linkname=out + "/planted")]))


@case("MN-09", "gives a file-system image as a volume", "never mounted by the kernel", "file-system types mounted inside")
def mn_09(session):
    image = os.path.join(session.top, "fs.img")
    with open(image, "wb") as f:
        f.truncate(1 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=False, capture_output=True)
    found = []
    for mode in ("ro", "rw", "cow"):
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", {"name": "mn09-" + os.urandom(3).hex(), "mounts": [{"source": image, "target": "/img", "mode": mode}]})
        if status in (200, 201):
            box = json.loads(text)
            _, out = session.shell(box, "grep ' /img ' /proc/self/mountinfo; test -d /img && echo DIRECTORY")
            if "DIRECTORY" in out:
                found.append(f"{mode}: {out}")
            session.remove(box)
        elif code in ("internal", None):
            found.append(f"{mode}: {status} {text[:150]!r}")
    return verdict(found)
