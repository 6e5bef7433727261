# SPDX-License-Identifier: Apache-2.0
"""Attack cases that are driven from outside: file API, archives, images, snapshots, lifecycle, HTTP.

Each takes the session and answers (outcome, detail). The canaries are looked at after each one by the session.
"""

import hashlib
import http.client
import io
import json
import os
import re
import select
import signal
import socket
import stat
import subprocess
import tarfile
import threading
import time
import urllib.parse

import canary
import posture
from cases import Case
from lib import cay

CASES = []


def case(case_id, attack, expected, oracle, seconds=60):
    """Decorator: a case that runs outside."""
    def add(function):
        CASES.append(Case(case_id, expected, oracle, kind="outside", users=("-",), profiles=("-",), function=function,
                          attack=attack, seconds=seconds))
        return function
    return add


def refused(session, method, path, body=None, **kwargs):
    """(status, code, text) of a request that ought to be refused; never raises for an HTTP error."""
    headers = kwargs.pop("headers", {})
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    if data is not None and "Content-Type" not in headers:
        headers["Content-Type"] = "application/json"
    try:
        status, head, text = session.instance.raw(method, path, data, headers, timeout=kwargs.get("timeout", 20))
    except http.client.IncompleteRead as cut:
        # what came before the server gave up is judged like the rest
        status, head, text = 200, {}, cut.partial
    try:
        code = json.loads(text)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return status, code, text, head


def verdict(reasons, detail="refused"):
    return ("escaped", "; ".join(str(r) for r in reasons)[:600]) if reasons else ("blocked", detail)


def files(session, box, path, fmt="file"):
    return f"/v1/sandboxes/{box['id']}/files?format={fmt}&path={urllib.parse.quote(path, safe='')}"


def files_work(session, box):
    """Without a file that can be written and read the refusal of others says nothing."""
    path = f"/tmp/{session.host.tag}-plain"
    status = refused(session, "PUT", files(session, box, path), b"plain", headers={"Content-Type": "application/octet-stream"})[0]
    got = refused(session, "GET", files(session, box, path))[2]
    if os.path.exists(path):
        # with paths that are not resolved inside: on the host
        os.unlink(path)
        return
    if status >= 300 or got != b"plain":
        raise RuntimeError(f"the file API does not work: {status} {got[:150]!r}")


def alive(session):
    try:
        session.instance.get("/v1/version")
        return []
    except (OSError, cay.ApiError) as error:
        return [f"the server does not answer: {error}"]


# ---- file API ----------------------------------------------------------------------------------------------------------------------

@case("FA-01", "reads and writes API paths with ../, escapes, NUL, magic links", "refused, or inside the root", "secrets in answers; directory outside")
def fa_01(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    secret, out = session.host.secret_paths[0], session.host.drop
    up = "/.." * 40
    shapes = [secret, up + secret, "/tmp" + up + secret, "/proc/self/root" + secret, "/proc/1/root" + secret, "//" + secret[1:],
              "/proc/self/cwd" + secret, "/proc/self/fd/0", "/ro/.." + up + secret, "/." + secret, secret + "/", "relative" + secret]
    raw = [urllib.parse.quote(secret[1:], safe=""), "%2e%2e%2f" * 20 + secret[1:], "..%c0%af" * 20 + secret[1:],
           "/tmp/x%00" + secret, "\\..\\..", "%ff%fe", "/" + "a" * 5000, ""]
    for p in [urllib.parse.quote(s, safe="") for s in shapes] + raw:
        for fmt in ("file", "tar"):
            status, _, text, _ = refused(session, "GET", f"/v1/sandboxes/{box['id']}/files?format={fmt}&path={p}")
            if session.host.secret.encode() in text:
                found.append(f"GET {p[:60]} gave the secret")
            if status >= 500 and status not in (501, 507):
                found.append(f"GET {p[:60]}: {status} {text[:120]!r}")
    for s in (out + "/planted", up + out + "/planted", "/proc/self/root" + out + "/planted", "/proc/1/root" + out + "/planted"):
        refused(session, "PUT", files(session, box, s), b"planted", headers={"Content-Type": "application/octet-stream"})
    return verdict(found + alive(session))


@case("FA-02", "reads and writes through symlinks to host files and magic links", "resolved inside the root", "secrets in answers; directory outside")
def fa_02(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    secret, out = session.host.secret_paths[0], session.host.drop
    session.shell(box, f"mkdir -p /tmp/l; cd /tmp/l; ln -sf {secret} a; ln -sf /proc/1/environ b; ln -sf ../../../../../../../..{secret} c;"
                       f" ln -sf /proc/self/root{secret} d; ln -sfn /proc/1/root e; ln -sfn {out} f; ln -sf /proc/self/environ g; ln -sf nowhere h;"
                       " ln -sfn /proc/self/fd i; ln -sfn / j")
    for name in ("a", "b", "c", "d", f"e{secret}", "f/secret", "g", "h", "i/0", "i/1", f"j{secret}"):
        status, _, text, _ = refused(session, "GET", files(session, box, "/tmp/l/" + name))
        if session.host.secret.encode() in text or b"SECRET_OF_CAYD" in text:
            found.append(f"{name} gave a secret")
        if b"CAY_" in text and name in ("b", "g"):
            found.append(f"{name} gave a helper's environment")
    for name in ("f/planted", f"e{out}/planted", f"j{out}/planted", "a"):
        refused(session, "PUT", files(session, box, "/tmp/l/" + name), b"planted", headers={"Content-Type": "application/octet-stream"})
    return verdict(found + alive(session))


@case("FA-03", "swaps a directory for a symlink while the API reads and writes through it", "no touch outside", "secrets in answers; directory outside", 90)
def fa_03(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    out = session.host.drop
    ex = session.exec(box, ["/redcell/redcell", "FA-03", f"outdir={out}", "ms=4000"], user="root")
    end, rounds = time.monotonic() + 4, 0
    while time.monotonic() < end:
        rounds += 1
        _, _, text, _ = refused(session, "GET", files(session, box, "/tmp/race/d/secret"))
        if session.host.secret.encode() in text:
            found.append("the secret was read in a race")
            break
        refused(session, "PUT", files(session, box, f"/tmp/race/d/planted{rounds}"), b"x", headers={"Content-Type": "application/octet-stream"})
        if rounds % 8 == 0:
            refused(session, "GET", files(session, box, "/tmp/race", "tar"))
    status = session.ended(box, ex)
    swaps = re.search(rb"(\d+) swaps", session.output(box, ex))
    if not swaps or int(swaps[1]) < 1000:
        found.append(f"the race was not run: {status}")
    return verdict(found + alive(session), f"{rounds} rounds against {swaps[1].decode() if swaps else 0} swaps")


@case("FA-04", "gives FIFO, socket, device, endless and huge files to the file API", "refused by type and size; never blocks", "time of each answer; server")
def fa_04(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    session.shell(box, "mkdir -p /tmp/odd; cd /tmp/odd; mkfifo fifo; ln -sf /dev/zero zero; ln -sf /dev/random random; truncate -s 1T huge;"
                       " python3 -c 'import socket;s=socket.socket(socket.AF_UNIX);s.bind(\"sock\")' || true; ln -sf /dev/tty tty; ln -sf /proc/kmsg kmsg")
    for name in ("fifo", "sock", "zero", "random", "tty", "kmsg"):
        start = time.monotonic()
        try:
            status, code, text, _ = refused(session, "GET", files(session, box, "/tmp/odd/" + name), timeout=10)
            # what is masked is an empty file, and may be served as one
            if status == 200 and (text or name != "kmsg"):
                found.append(f"{name} was served, {len(text)} bytes")
        except OSError as error:
            found.append(f"{name}: {error} after {time.monotonic() - start:.1f} s")
    # a sparse file: read a little and go away
    s = cay.UnixConnection(session.instance.socket, 10)
    try:
        s.request("GET", files(session, box, "/tmp/odd/huge"))
        s.sock.recv(65536)
    except OSError as error:
        found.append(f"huge: {error}")
    finally:
        s.close()
    session.shell(box, "rm -rf /tmp/odd")
    return verdict(found + alive(session))


@case("FA-05", "downloads a tree with symlink loops, other mounts and many files", "bounded, no other mount entered", "secrets in the archive; time")
def fa_05(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    session.shell(box, "mkdir -p /tmp/loop/a/b; cd /tmp/loop; ln -sfn .. a/up; ln -sfn / a/root; ln -sfn /proc proc; i=0;"
                       " while [ $i -lt 500 ]; do : > a/b/$i; i=$((i+1)); done")
    start = time.monotonic()
    status, _, text, _ = refused(session, "GET", files(session, box, "/tmp/loop", "tar"), timeout=30)
    if session.host.secret.encode() in text:
        found.append("the secret is in the archive")
    if len(text) > 16 << 20:
        found.append(f"{len(text) >> 20} MiB for an empty tree")
    if time.monotonic() - start > 20:
        found.append("unbounded")
    if status == 200:
        names = tarfile.open(fileobj=io.BytesIO(text)).getnames()
        if any("meminfo" in n for n in names):
            found.append("another mount was entered")
    return verdict(found + alive(session))


@case("FA-06", "reads /proc and /dev through the file API, as a tree", "nothing of helpers or the host", "secrets in the archive; time")
def fa_06(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    for path in ("/proc", "/proc/1", "/dev", "/sys", "/proc/self"):
        try:
            _, _, text, _ = refused(session, "GET", files(session, box, path, "tar"), timeout=20)
        except OSError as error:
            found.append(f"{path}: {error}")
            continue
        if session.host.secret.encode() in text or session.instance.state.encode() in text:
            found.append(f"{path} gave secrets or host paths")
    return verdict(found + alive(session))


@case("FA-07", "uploads with set-uid mode, and trees with devices, links and foreign owners", "masked or refused; nothing outside", "mode and owner on disk; directory outside")
def fa_07(session):
    box, found = session.victim("default"), []
    files_work(session, box)
    url = files(session, box, "/tmp/up-suid") + "&mode=4755"
    refused(session, "PUT", url, b"#!/bin/sh\n", headers={"Content-Type": "application/octet-stream"})
    # all in one, and each alone: the first that is refused ends an archive
    for entries in [hostile_entries(session.host.drop)] + [[hostile_entries(session.host.drop)[0]] + one for one in hostile_pairs(session.host.drop)]:
        status, code, text, _ = refused(session, "PUT", files(session, box, "/tmp", "tar"), tar(entries), headers={"Content-Type": "application/x-tar"})
    status2, listing = session.shell(box, "ls -la /tmp /tmp/up 2>/dev/null; find /tmp -type b -o -type c 2>/dev/null; test -e /tmp/up-suid && stat -c %a /tmp/up-suid")
    if re.search(r"^[bc][rwx-]{9}", listing, re.M):
        found.append("a device node came in")
    if host_suid_reachable(session, box):
        found.append(host_suid_reachable(session, box))
    session.shell(box, "rm -rf /tmp/up*")
    return verdict(found + alive(session), f"tree: {status} {code}")


@case("FA-09", "file operations while the sandbox is being removed", "404 or 409, never a reused place", "answers")
def fa_09(session):
    found = []
    for _ in range(3):
        box = session.create("fa09-" + os.urandom(3).hex())
        stop, answers = threading.Event(), []

        def work():
            while not stop.is_set():
                try:
                    answers.append(refused(session, "PUT", files(session, box, "/tmp/f"), b"x", headers={"Content-Type": "application/octet-stream"})[0])
                except OSError:
                    answers.append(0)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for t in threads:
            t.start()
        session.remove(box)
        stop.set()
        for t in threads:
            t.join(30)
        if any(a >= 500 and a not in (501, 503) for a in answers):
            found.append(f"answers {sorted(set(answers))}")
        live = os.path.join(session.instance.state, "pool", "live", box["id"])
        end = time.monotonic() + 5
        while os.path.exists(live) and time.monotonic() < end:
            select.select([], [], [], 0.05)
        if os.path.exists(live):
            found.append("the directory is still there")
    return verdict(found + alive(session))


# ---- archives and images -------------------------------------------------------------------------------------------------------------

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


@case("AR-01", "image with ../ and absolute names", "hostile_archive, or inside its tree", "directory outside")
def ar_01(session):
    out = session.host.drop
    return import_outcomes(session, [entry("../" * 30 + out[1:] + "/planted", data=b"x")], [entry("etc/../../x", data=b"x")])


@case("AR-01B", "image with absolute names", "inside its tree, or refused", "directory outside")
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


# ---- host side of what was planted inside -----------------------------------------------------------------------------------------------

def host_suid_reachable(session, box):
    """Can an ordinary user of the host reach a set-uid file that the sandbox made? (reason or None)"""
    return suid_reachable(os.path.join(session.instance.state, "pool", "live", box["id"]))


def suid_reachable(path):
    child = ("import os,sys\nos.setgroups([]);os.setgid(65534);os.setuid(65534)\n"
             "for b,d,f in os.walk(sys.argv[1]):\n"
             " for n in f:\n"
             "  s=os.lstat(os.path.join(b,n))\n"
             "  if s.st_mode&0o6000: print(os.path.join(b,n),s.st_uid)\n")
    done = subprocess.run(["/usr/bin/python3", "-c", child, path], capture_output=True, text=True, check=False)
    return f"an ordinary user reaches {done.stdout.splitlines()[0]}" if done.stdout else None


@case("FS-07", "plants set-uid and capability programs in its layer; a host user looks for them", "not reachable from outside", "walk of the pool as an ordinary user")
def fs_07(session):
    found = []
    # in the pool itself, not on a disk of its own
    box = session.create("fs07-" + os.urandom(3).hex(), limits={"files": 256, "disk_bytes": 64 << 20})
    try:
        for user in ("root", "daemon"):
            status, out = session.shell(box, "mkdir -p /tmp/suid && chmod 777 /tmp/suid && /redcell/redcell FS-07 suiddir=/tmp/suid; ls -ln /tmp/suid", user=user)
            if "rws" not in out and user == "root":
                found.append(f"nothing was planted: {out[-200:]}")
        reach = host_suid_reachable(session, box)
    finally:
        session.remove(box)
    return verdict(found + ([reach] if reach else []), "not reachable")


@case("FS-07A", "runs what it planted, in both profiles", "no capability beyond the profile; strict ignores set-uid", "ids and capabilities from outside")
def fs_07a(session):
    found = []
    for profile in ("default", "strict"):
        box = session.victim(profile)
        session.shell(box, "mkdir -p /tmp/run; chmod 755 /tmp/run; /redcell/redcell FS-07 suiddir=/tmp/run")
        for program in ("suid", "fcap"):
            argv = [f"/tmp/run/{program}", "FS-07R", "hold=1", f"capmask={posture.CAPS[profile]:x}"]
            if profile == "strict":
                argv.append("wantuid=1")
            try:
                ex = session.exec(box, argv, user="daemon", stdin=True)
            except cay.ApiError as error:
                # capabilities that the bounding set lacks: the kernel refuses to execute it
                found += [] if error.code == "command_not_executable" else [str(error)]
                continue
            line = session.first_line(box, ex, 10)
            if ex.get("pid") and os.path.exists(f"/proc/{ex['pid']}"):
                found += session.posture[box["id"]].broken(ex["pid"])
            session.instance.raw("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/stdin?close=true", b"")
            session.ended(box, ex)
            if b'"escaped"' in line:
                found.append(f"{profile}: {line.decode()[:200]}")
    return verdict(found, "none")


@case("FS-07B", "plants a set-uid root program in a shared rw directory of an ordinary user", "not set-uid root on the host", "owner and mode of the file outside")
def fs_07b(session):
    box, found = session.victim("default"), []
    session.shell(box, "/redcell/redcell FS-07 suiddir=/rw")
    directory = os.path.join(session.top, "rw")
    for name in ("suid", "fcap"):
        path = os.path.join(directory, name)
        if not os.path.exists(path):
            found.append(f"{name} was not planted")
            continue
        st = os.lstat(path)
        if st.st_uid == 0 or st.st_gid == 0:
            found.append(f"{name} belongs to {st.st_uid}:{st.st_gid} on the host")
        if st.st_mode & 0o4000 and st.st_uid == 0:
            found.append(f"{name} is set-uid root on the host (mode {st.st_mode:o})")
        if "security.capability" in os.listxattr(path):
            # a capability of another user namespace is void outside: its root id is stored with it
            raw = os.getxattr(path, "security.capability")
            if len(raw) == 20:
                found.append("file capabilities without a namespace")
        os.unlink(path)
    return verdict(found, "harmless outside")


@case("FS-18", "asks the API to expose places of credentials, by name, by links, as a whole", "denied", "secret of such a place; sandboxes")
def fs_18(session):
    found, home = [], os.path.join(session.top, "home")
    os.makedirs(os.path.join(home, ".ssh"), exist_ok=True)
    with open(os.path.join(home, ".ssh", "id_ed25519"), "w", encoding="ascii") as f:
        f.write(session.host.secret)
    link = os.path.join(session.top, "harmless")
    if not os.path.islink(link):
        os.symlink(os.path.join(home, ".ssh"), link)
    for place in (os.path.join(home, ".ssh"), link, home, session.instance.state, os.path.dirname(session.instance.state), "/", "/etc", "/home", "/var/lib"):
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", {"name": "fs18-" + os.urandom(3).hex(), "expose": [place]})
        if status < 400:
            box = json.loads(text)
            _, out = session.shell(box, f"cat {place}/id_ed25519 {place}/.ssh/id_ed25519; ls {place} | wc -l")
            found.append(f"{place} is exposed" + (", the secret was read" if session.host.secret in out else ""))
            session.remove(box)
        elif code != "denied":
            found.append(f"{place}: {status} {code}")
    return verdict(found + alive(session))


@case("FS-10", "overlay attributes in its layer, then snapshot and fork", "the next mount does not believe them", "secrets in the fork; directory outside")
def fs_10(session):
    box, found = session.victim("default"), []
    session.shell(box, f"/redcell/redcell FS-10 outdir={session.host.outside}; ls -la /tmp/ovl")
    fork = session.instance.post(f"/v1/sandboxes/{box['id']}/fork", {})
    child = (fork.get("sandboxes") or [fork])[0]
    try:
        _, out = session.shell(child, "cat /tmp/ovl/* /tmp/ovl/secret 2>&1; ls -la /tmp/ovl /tmp")
        if session.host.secret in out:
            found.append("the fork shows a directory of the host")
    finally:
        session.remove(child)
    return verdict(found, "without effect")


@case("FS-11", "hard-link and whiteout storms, then diff", "own paths only", "paths of the diff")
def fs_11(session):
    box, found = session.create("fs11-" + os.urandom(3).hex()), []
    try:
        session.shell(box, "/redcell/redcell FS-11; ln /etc/passwd /tmp/passwd-link; rm -f /etc/motd")
        changes = session.instance.get(f"/v1/diff?a={box['id']}")["changes"]
        for c in changes:
            if session.top in c["path"] or ".." in c["path"] or not c["path"].startswith("/"):
                found.append(c["path"])
        if not changes:
            found.append("the diff is empty")
    finally:
        session.remove(box)
    return verdict(found, f"{len(changes)} changes")


@case("FS-15", "odd and deep names, then diff, list and remove", "listed, removed fully, in time", "files left; server; time")
def fs_15(session):
    box, found = session.create("fs15-" + os.urandom(3).hex()), []
    session.shell(box, "/redcell/redcell FS-15")
    start = time.monotonic()
    status, code, text, _ = refused(session, "GET", f"/v1/diff?a={box['id']}", timeout=30)
    # too deep to be listed is said so
    if status != 200 and code != "limit":
        found.append(f"diff: {status} {text[:150]!r}")
    shown = session.instance.cay("diff", box["name"], check=False)
    if "\x1b" in shown.stdout or "\u202e" in shown.stdout:
        found.append("control characters of a file name reach the terminal")
    session.remove(box)
    # removal happens in the background: wait for the directory to go
    path = os.path.join(session.instance.state, "pool")
    end = time.monotonic() + 20
    while time.monotonic() < end and any(os.listdir(os.path.join(path, d)) for d in ("trash",) if os.path.isdir(os.path.join(path, d))):
        select.select([], [], [], 0.05)
    if os.path.isdir(os.path.join(path, "trash")) and os.listdir(os.path.join(path, "trash")):
        found.append(f"left in trash: {os.listdir(os.path.join(path, 'trash'))[:3]}")
    if time.monotonic() - start > 40:
        found.append("unbounded time")
    return verdict(found + alive(session))


@case("MN-05", "mounts outside below a shared directory, looks inside", "nothing crosses", "secret of the later mount", 30)
def mn_05(session):
    found, later = [], os.path.join(session.host.shared, "later")
    box = session.create("mn05-" + os.urandom(3).hex(), mounts=False, extra=[{"source": session.host.shared, "target": "/shared", "mode": "rw"}])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "x", later], check=True)
    try:
        with open(os.path.join(later, "mounted-later"), "w", encoding="ascii") as f:
            f.write(session.host.secret)
        _, out = session.shell(box, "ls /shared/later; cat /shared/later/mounted-later; grep later /proc/self/mountinfo")
        if "mounted-later" in out or session.host.secret in out:
            found.append("a mount made outside later appeared inside")
    finally:
        subprocess.run(["umount", "-l", later], check=True)
        session.remove(box)
    return verdict(found, "private")


@case("NS-10", "compares the host ids of two sandboxes", "disjoint ranges, none is 0", "id maps from outside")
def ns_10(session):
    found, ranges = [], []
    for box in (session.victim("default"), session.victim("strict"), session.neighbour):
        base = posture.Sandbox.host_uid(box["init_pid"])
        state = posture.status(box["init_pid"])
        if int(state.get("Uid", "0").split()[0]) == 0 or base <= 0:
            found.append(f"{box['name']}: uid {state.get('Uid')} base {base}")
        ranges.append(range(base, base + 65536))
    for i, a in enumerate(ranges):
        for b in ranges[i + 1:]:
            if a.start < b.stop and b.start < a.stop:
                found.append(f"{a} and {b} overlap")
    return verdict(found, "disjoint")


@case("CG-04", "looks for its control groups in every hierarchy", "own directory in all", "/proc/PID/cgroup from outside")
def cg_04(session):
    box, found = session.victim("default"), []
    ex = session.exec(box, ["/bin/sleep", "5"])
    text = posture.text(f"/proc/{ex['pid']}/cgroup")
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        if any(c in ("memory", "pids", "cpu") for c in controllers.split(",")) and "cay-" not in path:
            found.append(line)
        if controllers == "" and "cay-" not in path:
            found.append(line)
    session.instance.call("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/signal", {"signal": 9, "tree": True})
    return verdict(found, "own directory in each")


@case("PS-02", "processes that do not want to end, at teardown", "none is left", "processes of the sandbox's ids")
def ps_02(session):
    box = session.create("ps02-" + os.urandom(3).hex())
    for _ in range(3):
        session.shell(box, "/redcell/redcell PS-02 hold=0")
    before = session.process_count(box)
    start = time.monotonic()
    session.instance.post(f"/v1/sandboxes/{box['id']}/stop", {}, timeout=30)
    took = time.monotonic() - start
    left = session.process_count(box)
    session.remove(box)
    found = ["nothing was running"] if before < 4 else []
    if left:
        found.append(f"{left} processes are left")
    if took > 10:
        found.append(f"took {took:.1f} s")
    return verdict(found, f"{before} processes ended in {took * 1000:.0f} ms")


@case("PS-03B", "looks for a neighbour's shared memory", "not visible", "secret of the neighbour's segment")
def ps_03b(session):
    key, found = session.host.shm.key ^ 0x5555, []
    ex = session.exec(session.neighbour, ["/redcell/redcell", "PS-03M", f"shmkey={key}", f"nonce={session.host.secret}", "hold=1"], stdin=True)
    session.first_line(session.neighbour, ex, 10)
    _, out = session.shell(session.victim("default"), f"/redcell/redcell PS-03 shmkey={key} hold=0")
    session.instance.raw("POST", f"/v1/sandboxes/{session.neighbour['id']}/execs/{ex['id']}/stdin?close=true", b"")
    if session.host.secret in out:
        found.append("the neighbour's memory was read")
    return verdict(found, "not visible")


@case("PS-09", "ends in every way: status 255, signals, stop and go", "reported exactly", "what was asked for")
def ps_09(session):
    box, found = session.victim("default"), []
    for script, want in (("exit 255", ("exited", 255)), ("exit 0", ("exited", 0)), ("exit 137", ("exited", 137)), ("kill -9 $$", ("signaled", 9)),
                         ("kill -15 $$", ("signaled", 15)), ("kill -6 $$", ("signaled", 6)), ("(sleep 0.1; kill -CONT $$)& kill -STOP $$; exit 7", ("exited", 7))):
        status, _ = session.shell(box, script)
        got = (status["status"], status.get("code") if status["status"] == "exited" else status.get("signal"))
        if got != want:
            found.append(f"{script!r}: {got}, want {want}")
    return verdict(found, "exact")


@case("PS-06", "an ordinary user of the host talks to our sockets", "refused", "answers as uid nobody")
def ps_06(session):
    sockets = [session.instance.socket]
    for base, _, names in os.walk(session.instance.run):
        sockets += [os.path.join(base, n) for n in names if n.endswith(".sock")]
    # ours are below a private directory: open it, so that the sockets' own protection is what is tested
    child = ("import os,socket,sys\nos.setgroups([]);os.setgid(65534);os.setuid(65534)\n"
             "for p in sys.argv[1:]:\n"
             " s=socket.socket(socket.AF_UNIX)\n"
             " s.settimeout(3)\n"
             " try:\n  s.connect(p); s.sendall(b'GET /v1/sandboxes HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); d=s.recv(4096); print(p, d[:80] if d else '')\n"
             " except OSError as e: pass\n")
    done = subprocess.run(["/usr/bin/python3", "-c", child] + sorted(set(sockets)), capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if " b'" in line and not re.search(r"HTTP/1.1 40[13]", line)]
    return verdict(found, f"{len(set(sockets))} sockets closed")


@case("AT-15", "an ordinary user of the host uses the API socket when its directory and mode are open", "denied by credentials", "answer as uid nobody")
def at_15(session):
    mode = stat.S_IMODE(os.stat(session.instance.socket).st_mode)
    modes = {p: stat.S_IMODE(os.stat(p).st_mode) for p in (session.instance.run, session.instance.dir, session.top)}
    try:
        for p in modes:
            os.chmod(p, 0o755)
        os.chmod(session.instance.socket, 0o777)
        child = ("import os,socket,sys\nos.setgroups([]);os.setgid(65534);os.setuid(65534)\ns=socket.socket(socket.AF_UNIX);s.settimeout(5)\n"
                 "s.connect(sys.argv[1]); s.sendall(b'GET /v1/sandboxes HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n'); print(s.recv(4096).decode()[:200])\n")
        done = subprocess.run(["/usr/bin/python3", "-c", child, session.instance.socket], capture_output=True, text=True, check=False)
    finally:
        for p, m in modes.items():
            os.chmod(p, m)
        os.chmod(session.instance.socket, mode)
    return verdict([done.stdout[:150]] if "HTTP/1.1 200" in done.stdout else [], (done.stdout or done.stderr[-60:]).splitlines()[0][:60] if done.stdout or done.stderr else "closed")


@case("EX-02", "working directories /proc/self/fd/N, deleted, moved", "bad_cwd, or inside the root", "climb from there")
def ex_02(session):
    box, found = session.victim("default"), []
    for cwd in [f"/proc/self/fd/{n}" for n in range(0, 40)] + ["/proc/1/cwd", "/proc/1/root", "/proc/self/cwd", "/proc/thread-self/root"]:
        try:
            ex = session.exec(box, ["/redcell/redcell", "EX-02", "hold=0"], cwd=cwd)
        except cay.ApiError as error:
            if error.code not in ("bad_cwd", "invalid", "denied"):
                found.append(f"{cwd}: {error}")
            continue
        line = session.first_line(box, ex, 10)
        session.ended(box, ex)
        if b'"escaped"' in line:
            found.append(f"{cwd}: {line.decode()[:200]}")
    return verdict(found, "bad_cwd")


@case("EX-02B", "working directory that is a symlink out of the sandbox", "inside the root", "secrets")
def ex_02b(session):
    box, found = session.victim("default"), []
    session.shell(box, f"ln -sfn {session.host.outside} /tmp/outlink; ln -sfn /proc/self/fd/3 /tmp/fdlink")
    for cwd in ("/tmp/outlink", "/tmp/fdlink", session.host.outside):
        try:
            ex = session.exec(box, ["/bin/cat", "secret"], cwd=cwd)
            session.ended(box, ex)
            if session.host.secret.encode() in session.output(box, ex, "both"):
                found.append(f"{cwd} leads outside")
        except cay.ApiError:
            pass
    return verdict(found, "inside")


@case("EX-06", "watches for entering helpers and tries to take them over, over 100 execs", "closed always", "memory, descriptors and environment of helpers", 90)
def ex_06(session):
    found, detail = [], ""
    for profile in ("default", "debug"):
        box = session.create(f"ex06-{profile}-" + os.urandom(3).hex(), profile)
        try:
            ex = session.exec(box, ["/redcell/redcell", "EX-06", "ms=3000", "hold=0"])
            end, execs = time.monotonic() + 2.5, 0
            while time.monotonic() < end:
                session.ended(box, session.exec(box, ["/bin/true"]), 10)
                execs += 1
            line = session.first_line(box, ex, 15)
            session.ended(box, ex)
            if b'"escaped"' in line or b'"leaked"' in line or b"SECRET" in line:
                found.append(f"{profile}: {line.decode()[:300]}")
            if execs < 20 or not line.startswith(b"{"):
                found.append(f"{profile}: not run: {execs} execs, {line[:80]!r}")
            detail += f"{profile}: {execs} execs, {json.loads(line)['detail'] if line.startswith(b'{') else ''} "
        finally:
            session.remove(box)
    return verdict(found, detail)


@case("EX-06B", "holds a helper up at a FIFO for its user names and takes it over", "closed, or never held up", "memory and descriptors of the helper", 60)
def ex_06b(session):
    box = session.create("ex06b-" + os.urandom(3).hex(), "debug")
    try:
        # the attacker makes the FIFO itself: afterwards no command may get in any more
        ex = session.exec(box, ["/bin/sh", "-c", "rm -f /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group; exec /redcell/redcell EX-06 ms=2500 trace=1 hold=0"])
        end = time.monotonic() + 5
        while posture.text(f"/proc/{ex['pid']}/comm").strip() != "redcell" and time.monotonic() < end:
            select.select([], [], [], 0.01)
        try:
            refused(session, "POST", f"/v1/sandboxes/{box['id']}/execs", {"argv": ["/bin/true"], "user": "nobody"}, timeout=4)
        except OSError:
            pass
        line = session.first_line(box, ex, 10)
        session.ended(box, ex)
        bad = b'"escaped"' in line or b'"leaked"' in line
        return verdict([line.decode(errors="replace")[:300]] if bad or not line.startswith(b"{") else [], line.decode(errors="replace")[:120])
    finally:
        session.remove(box)


@case("EX-07", "an exec by a name that its own directory supplies", "the sandbox's own programs only", "marker on the host")
def ex_07(session):
    box, found = session.victim("default"), []
    marker = os.path.join(session.host.outside, "planted")
    session.shell(box, f"mkdir -p /tmp/bin; for n in tar sh cp btrfs cay-init mount; do printf '#!/bin/sh\\ntouch {marker}\\n' > /tmp/bin/$n; chmod 755 /tmp/bin/$n; done")
    session.exec(box, ["/bin/true"], env={"PATH": "/tmp/bin", "LD_PRELOAD": "/tmp/bin/tar", "LD_LIBRARY_PATH": "/tmp/bin", "LD_AUDIT": "/tmp/bin/sh"})
    refused(session, "GET", files(session, box, "/tmp/bin", "tar"))
    refused(session, "GET", f"/v1/diff?a={box['id']}")
    return verdict(found + (["a program of the sandbox ran outside"] if os.path.exists(marker) else []))


@case("EX-08", "exec, stop, fork, remove by eight clients at once", "clear errors, no orphans", "processes; states; server", 120)
def ex_08(session):
    box, found = session.create("ex08-" + os.urandom(3).hex()), []

    def client(n):
        path = f"/v1/sandboxes/{box['id']}"
        for i in range(6):
            try:
                kind = (n + i) % 4
                if kind == 0:
                    answer = refused(session, "POST", path + "/execs", {"argv": ["/bin/true"]})
                elif kind == 1:
                    answer = refused(session, "POST", path + "/pause", {})
                elif kind == 2:
                    answer = refused(session, "POST", path + "/resume", {})
                else:
                    answer = refused(session, "POST", path + ("/stop" if i % 2 else "/start"), {})
                if answer[0] >= 500 and answer[1] not in ("unavailable", "timeout"):
                    found.append(f"kind {kind}: {answer[0]} {answer[1]} {answer[2][:100]!r}")
            except OSError as error:
                found.append(f"client {n}: {error}")
    threads = [threading.Thread(target=client, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    try:
        session.remove(box)
    except cay.ApiError as error:
        found.append(f"remove: {error}")
    left = [p for p in session.processes(box) if posture.status(p).get("State", "").strip()[:1] != "Z"]
    if left:
        found.append(f"orphans {left[:5]}")
    return verdict(sorted(set(found)) + alive(session))


@case("DV-10", "watches its device nodes while others use theirs", "nothing is seen", "events against uses by the host")
def dv_10(session):
    box = session.victim("default")
    ex = session.exec(box, ["/redcell/redcell", "DV-10"], stdin=True)
    session.first_line(box, ex, 10)
    for _ in range(20):
        for node in ("/dev/null", "/dev/zero", "/dev/urandom"):
            os.close(os.open(node, os.O_RDWR if node == "/dev/null" else os.O_RDONLY))
    session.instance.raw("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/stdin?close=true", b"")
    session.ended(box, ex, 10)
    seen = re.search(rb"(\d+) events", session.output(box, ex))
    if not seen:
        return "escaped", f"not run: {session.output(box, ex, 'both')[:200]!r}"
    return verdict([f"saw {seen[1].decode()} uses"] if int(seen[1]) else [], "nothing seen")


@case("DV-11", "locks /dev/null", "the host's /dev/null is free", "lock taken on the host; times of the host's node")
def dv_11(session):
    import fcntl
    box, found = session.victim("default"), []
    fd = os.open("/dev/null", os.O_RDWR)
    try:
        before = os.fstat(fd).st_mtime_ns
        ex = session.exec(box, ["/redcell/redcell", "DV-11", "hold=1"], stdin=True)
        line = session.first_line(box, ex, 10)
        if b"taken" not in line:
            found.append(f"not run: {line[:200]!r}")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
        except BlockingIOError:
            found.append("the host's /dev/null is locked by the sandbox")
        if os.fstat(fd).st_mtime_ns != before:
            found.append("the times of the host's /dev/null changed")
        session.instance.raw("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/stdin?close=true", b"")
        session.ended(box, ex, 10)
    finally:
        os.close(fd)
    return verdict(found, "free")


@case("EX-09", "makes /etc/passwd a FIFO, an endless device, a huge file, then a user is looked up", "an error in time; the sandbox can be removed", "time of the answers; server", 90)
def ex_09(session):
    found = []
    for what, script in (("fifo", "rm -f /etc/passwd /etc/group; mkfifo /etc/passwd /etc/group"),
                         ("endless", "rm -f /etc/passwd /etc/group; ln -s /dev/zero /etc/passwd; ln -s /dev/zero /etc/group"),
                         ("huge", "rm -f /etc/passwd; truncate -s 1T /etc/passwd")):
        box = session.create(f"ex09-{what}-" + os.urandom(3).hex())
        try:
            session.shell(box, script)
            start = time.monotonic()
            try:
                answer = refused(session, "POST", f"/v1/sandboxes/{box['id']}/execs", {"argv": ["/bin/true"], "user": "nobody"}, timeout=6)
                if answer[1] == "internal":
                    found.append(f"{what}: {answer[2][:150]!r}")
            except OSError as error:
                # one that hangs is enough, and ties up the sandbox
                return verdict([f"{what}: no answer after {time.monotonic() - start:.0f} s: {error}"])
            try:
                session.ended(box, session.exec(box, ["/bin/true"], user="0"), 5)
            except (cay.ApiError, OSError) as error:
                if isinstance(error, OSError):
                    found.append(f"{what}: a later exec hangs")
        finally:
            start = time.monotonic()
            session.remove(box)
            if time.monotonic() - start > 8:
                found.append(f"{what}: removal took {time.monotonic() - start:.0f} s")
    return verdict(found + alive(session))


@case("DV-08", "keeps a terminal open and floods it, nobody reads", "bounded; the sandbox can be removed", "memory of the keeper; server", 60)
def dv_08(session):
    box, found = session.create("dv08-" + os.urandom(3).hex()), []
    ex = session.exec(box, ["/bin/sh", "-c", "setsid sh -c 'while :; do echo AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA; done' & sleep 30"], tty={"rows": 24, "columns": 80})
    before = keeper_memory(session)
    status = session.ended(box, ex, 2)
    grown = keeper_memory(session) - before
    if grown > 32 << 20:
        found.append(f"keepers grew by {grown >> 20} MiB")
    session.remove(box)
    return verdict(found + alive(session), f"{status.get('status')}, grown {grown >> 10} KiB")


def keeper_memory(session):
    """Most bytes that all keepers and the server of this instance ever held at once."""
    total = 0
    for pid in session.instance.own_processes():
        # a keeper runs from a sealed copy, whose name the kernel makes up: its first argument tells
        words = posture.text(f"/proc/{pid}/cmdline").split("\0")
        if os.path.basename(words[0]) in ("cay-keeper", "cayd"):
            m = re.search(r"VmHWM:\s+(\d+)", posture.text(f"/proc/{pid}/status"))
            total += int(m[1]) << 10 if m else 0
    return total


# ---- exhaustion that is driven from outside -----------------------------------------------------------------------------------------

@case("RX-01B", "fork bomb", "limit holds; neighbour answers; ends in a second", "processes counted outside; neighbour; time", 60)
def rx_01b(session):
    limits = {"memory_bytes": 128 << 20, "pids": 64, "disk_bytes": 16 << 20, "inodes": 1000, "files": 256}
    box, found = session.create("bomb-" + os.urandom(3).hex(), limits=limits), []
    try:
        ex = session.exec(box, ["/redcell/redcell", "RX-01B"])
        most, end = 0, time.monotonic() + 2
        while time.monotonic() < end:
            most = max(most, session.process_count(box))
            select.select([], [], [], 0.1)
        found += session.neighbour_answers()
        if most > limits["pids"] + 2:
            found.append(f"{most} processes, the limit is {limits['pids']}")
        if most < limits["pids"] // 2:
            found.append(f"the bomb did not go off: {most} processes")
        start = time.monotonic()
        session.instance.call("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/signal", {"signal": 9, "tree": True})
        session.ended(box, ex, 10)
        took = time.monotonic() - start
        if took > 3:
            found.append(f"killing took {took:.1f} s")
    finally:
        session.remove(box)
    return verdict(found, f"{most} processes, ended in {took * 1000:.0f} ms")


@case("RX-12", "floods standard output without a line end", "the ring is bounded", "memory of the keeper; bytes kept", 90)
def rx_12(session):
    box, found = session.create("flood-" + os.urandom(3).hex()), []
    try:
        before = keeper_memory(session)
        ex = session.exec(box, ["/redcell/redcell", "RX-12", "mib=96"], ring_bytes=65536)
        status = session.ended(box, ex, 60)
        kept = len(session.output(box, ex))
        grown = keeper_memory(session) - before
        if status.get("status") != "exited":
            found.append(f"ended with {status}")
        if grown > 24 << 20:
            found.append(f"keepers grew by {grown >> 20} MiB for a ring of 64 KiB")
        if kept > 1 << 20:
            found.append(f"{kept} bytes kept for a ring of 65536")
    finally:
        session.remove(box)
    return verdict(found, f"kept {kept} bytes, grown {grown >> 10} KiB")


@case("RX-16", "a body of 64 MiB to every kind of route", "too_large, memory bounded", "memory of the server; answers", 60)
def rx_16(session):
    found, before = [], keeper_memory(session)
    for path in ("/v1/sandboxes", "/v1/images", "/v1/prune"):
        try:
            status, code, _, _ = refused(session, "POST", path, b'{"name":"' + b"a" * (64 << 20) + b'"}', timeout=30)
            if status not in (413, 400):
                found.append(f"{path}: {status} {code}")
        except OSError:
            pass
    grown = keeper_memory(session) - before
    if grown > 32 << 20:
        found.append(f"grown by {grown >> 20} MiB")
    return verdict(found + alive(session), f"grown {grown >> 10} KiB")


@case("RX-17", "makes and removes sandboxes again and again", "nothing grows", "mounts, control groups, descriptors, memory of the server", 120)
def rx_17(session):
    def counts():
        pid = session.instance.process.pid
        groups = subprocess.run(["find", "/sys/fs/cgroup", "-maxdepth", "6", "-type", "d", "-path", "*/cay-*"], capture_output=True, text=True, check=False).stdout
        tags = session.instance.tags
        return (len(session.host.host_mounts()), sum(1 for g in groups.splitlines() if any(t in g for t in tags)), len(os.listdir(f"/proc/{pid}/fd")), len(session.instance.own_processes()))

    def settled():
        end, last = time.monotonic() + 15, None
        while time.monotonic() < end:
            now = counts()
            if now == last:
                return now
            last = now
            select.select([], [], [], 0.5)
        return last
    for _ in range(3):
        session.remove(session.create("churn-" + os.urandom(3).hex()))
    session.instance.note_tags()
    before = settled()
    for _ in range(20):
        session.remove(session.create("churn-" + os.urandom(3).hex()))
    after = settled()
    end = time.monotonic() + 15
    while time.monotonic() < end and any(a > b + 2 for a, b in zip(after, before)):
        after = settled()
    found = [f"{n}: {b} before, {a} after" for n, b, a in zip(("mounts", "control groups", "descriptors", "processes"), before, after) if a > b + 2]
    return verdict(found, f"{before} before, {after} after")


@case("RX-18", "a reader that never reads", "others are served", "time of another request", 60)
def rx_18(session):
    box, found = session.victim("default"), []
    readers = []
    for _ in range(4):
        ex = session.exec(box, ["/redcell/redcell", "RX-12", "mib=16"])
        c = cay.UnixConnection(session.instance.socket, 10)
        c.request("GET", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/output?follow=true")
        readers.append(c)
    start = time.monotonic()
    found += session.neighbour_answers()
    status, out = session.shell(box, "echo still here")
    if "still here" not in out:
        found.append(f"another exec of the sandbox: {status}")
    took = time.monotonic() - start
    for c in readers:
        c.close()
    return verdict(found, f"{took * 1000:.0f} ms")


@case("RX-18B", "requests that are never finished", "others are served", "time of another request", 60)
def rx_18b(session):
    slow = []
    for _ in range(40):
        s = socket.socket(socket.AF_UNIX)
        s.connect(session.instance.socket)
        s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        slow.append(s)
    start = time.monotonic()
    found = alive(session) + session.neighbour_answers()
    took = time.monotonic() - start
    for s in slow:
        s.close()
    return verdict(found, f"{took * 1000:.0f} ms")


@case("RX-19", "stopped, traced-like and vforked processes, then kill of the exec", "ends within a second", "processes counted outside")
def rx_19(session):
    box = session.create("rx19-" + os.urandom(3).hex())
    ex = session.exec(box, ["/bin/sh", "-c", "/redcell/redcell PS-02 hold=0; kill -STOP $$; sleep 60"])
    end = time.monotonic() + 5
    while session.process_count(box) < 4 and time.monotonic() < end:
        select.select([], [], [], 0.05)
    start = time.monotonic()
    session.instance.call("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/signal", {"signal": 9, "tree": True})
    status = session.ended(box, ex, 10)
    took = time.monotonic() - start
    left = session.process_count(box)
    session.remove(box)
    found = [f"took {took:.1f} s"] if took > 3 else []
    if left > 1:
        found.append(f"{left} processes left, one is init")
    if status.get("status") not in ("killed", "signaled"):
        found.append(f"reported as {status}")
    return verdict(found, f"{took * 1000:.0f} ms")


@case("RX-22", "runs longer than its deadline, with children that left the session", "the whole tree ends as timeout", "processes counted outside")
def rx_22(session):
    box = session.create("rx22-" + os.urandom(3).hex())
    ex = session.exec(box, ["/bin/sh", "-c", "setsid sleep 60 & setsid sh -c 'trap \"\" TERM HUP INT; sleep 60' & sleep 60"], timeout_ms=500)
    status = session.ended(box, ex, 15)
    end = time.monotonic() + 3
    while session.process_count(box) > 1 and time.monotonic() < end:
        select.select([], [], [], 0.05)
    left = session.process_count(box)
    session.remove(box)
    found = [f"{left} processes left, one is init"] if left > 1 else []
    if status.get("status") != "timeout":
        found.append(f"reported as {status}")
    return verdict(found, "timeout")


# ---- HTTP API --------------------------------------------------------------------------------------------------------------------------

def talk(session, data, seconds=5):
    """Raw bytes to the API socket: what comes back until the end or the deadline."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(seconds)
    got = b""
    try:
        s.connect(session.instance.socket)
        s.sendall(data)
        while len(got) < 1 << 20:
            more = s.recv(65536)
            if not more:
                break
            got += more
            if b"\r\n\r\n" in got and re.search(rb"(?i)connection: close", data) is None:
                s.settimeout(0.5)
    except OSError:
        pass
    finally:
        s.close()
    return got


def statuses(answer):
    return [int(n) for n in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


@case("WB-01", "foreign, doubled and missing Host headers (a page that rebinds its name)", "refused before routing", "answers")
def wb_01(session):
    found = []
    for host in (b"evil.com", b"localhost.evil.com", b"127.0.0.1.evil.com:80", b"evil.com:80@localhost", b"169.254.169.254"):
        got = statuses(talk(session, b"GET /v1/sandboxes HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"))
        if not got or got[0] < 400:
            found.append(f"Host {host.decode()}: {got}")
    got = statuses(talk(session, b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n"))
    if got and got[0] < 400:
        found.append(f"two Host headers: {got}")
    got = statuses(talk(session, b"GET http://evil.com/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    if got and got[0] < 400:
        found.append(f"absolute form: {got}")
    return verdict(found + alive(session))


@case("WB-02", "requests with the Origin of a web page", "refused before routing", "answers")
def wb_02(session):
    found = []
    for origin in (b"http://evil.com", b"null", b"https://localhost.evil.com"):
        body = b"{}"
        got = statuses(talk(session, b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin + b"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n" + body))
        if not got or got[0] < 400:
            found.append(f"Origin {origin.decode()}: {got}")
    return verdict(found + alive(session))


@case("WB-03", "forms of a web page: text/plain, urlencoded, multipart", "refused by content type", "answers")
def wb_03(session):
    found = []
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        name = "csrf-" + os.urandom(3).hex()
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", json.dumps({"name": name, "start": False}).encode(), headers={"Content-Type": kind})
        if status < 400:
            found.append(f"{kind}: {status}")
            session.instance.raw("DELETE", f"/v1/sandboxes/{name}?force=true")
    return verdict(found + alive(session))


@case("WB-05", "looks for missing headers on answers and errors", "no sniffing, no storing", "headers")
def wb_05(session):
    found = []
    for path in ("/v1/version", "/v1/sandboxes/none", "/nothing"):
        _, _, _, head = refused(session, "GET", path)
        low = {k.lower(): v for k, v in head.items()}
        if "nosniff" not in low.get("x-content-type-options", ""):
            found.append(f"{path}: no X-Content-Type-Options")
        if "no-store" not in low.get("cache-control", ""):
            found.append(f"{path}: no Cache-Control: no-store")
        if not low.get("content-type", "").startswith("application/json"):
            found.append(f"{path}: Content-Type {low.get('content-type')}")
    return verdict(found)


@case("WB-07", "JSON 100,000 levels deep", "refused, memory bounded", "answers; server")
def wb_07(session):
    status, code, _, _ = refused(session, "POST", "/v1/sandboxes", b'{"labels":' + b'[' * 100000 + b']' * 100000 + b'}')
    return verdict((["accepted"] if status < 400 else [f"{status} {code}"] if status >= 500 else []) + alive(session), f"{status} {code}")


@case("WB-07A", "JSON 40 levels deep where it is allowed by type", "refused by depth", "answers")
def wb_07a(session):
    status, code, text, _ = refused(session, "POST", "/v1/sandboxes", b'{"labels":{"a":' + b'{"a":' * 40 + b'1' + b'}' * 40 + b'}}')
    found = [] if 400 <= status < 500 else [f"{status} {code}"]
    if b"deep" not in text and b"depth" not in text and b"level" not in text and b"nest" not in text:
        found.append(f"not refused by depth: {text[:150]!r}")
    return verdict(found + alive(session), f"{status} {code}")


@case("WB-07B", "odd JSON: doubled keys, 1e999, NUL, lone surrogates, BOM, trailing bytes, wrong types", "refused, one meaning", "answers; sandboxes")
def wb_07b(session):
    found = []
    odd = [b'{"name":"a1","name":"a2","start":false}', b'{"limits":{"pids":1e999}}', b'{"name":"a\\u0000b"}', b'{"name":"\\ud800"}', b'\xef\xbb\xbf{}', b'{} {}', b'[]',
           b'{"limits":{"pids":1.5}}', b'{"limits":{"pids":-1}}', b'{"limits":{"memory_bytes":99999999999999999999}}', b'\xff\xfe{}', b'{"name":"../x"}', b'{"name":""}',
           b'{"unknown":1}', b'{"name":["x"]}', b'nul', b'', b'{"image":"../../etc"}', b'{"hostname":"a b\\nc"}', b'{"mounts":[{"source":"relative","target":"/x"}]}',
           b'{"mounts":[{"source":"/tmp","target":"/proc/1"}]}', b'{"mounts":[{"source":"/tmp","target":"/../x"}]}', b'{"env":{"A=B":"x"}}', b'{"env":{"":"x"}}']
    before = {b["id"] for b in session.instance.get("/v1/sandboxes")["sandboxes"]}
    for body in odd:
        if body == b'':
            continue
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", body)
        if status < 400 or status >= 500:
            found.append(f"{body[:50]!r}: {status} {text[:100]!r}")
    after = session.instance.get("/v1/sandboxes")["sandboxes"]
    for b in after:
        if b["id"] not in before:
            session.remove(b)
    return verdict(found + alive(session))


@case("WB-07C", "header torture: a MiB of header, ten thousand headers, NUL, bare LF, bad lengths", "4xx, memory bounded", "answers; server; memory")
def wb_07c(session):
    found, before = [], keeper_memory(session)
    start = b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n"
    shapes = {"long header": start + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", "many headers": start + b"X: y\r\n" * 10000 + b"\r\n",
              "NUL": start + b"X: a\0b\r\n\r\n", "bare LF": b"GET /v1/version HTTP/1.1\nHost: localhost\n\n", "obs-fold": start + b"X: a\r\n b\r\n\r\n",
              "long target": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "space before colon": start + b"X : y\r\n\r\n",
              "HTTP/0.9": b"GET /v1/version\r\n\r\n", "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "method": b"G\x00T / HTTP/1.1\r\nHost: localhost\r\n\r\n"}
    for name, data in shapes.items():
        got = statuses(talk(session, data))
        if any(c < 400 or c >= 500 for c in got):
            found.append(f"{name}: {got}")
    if keeper_memory(session) - before > 16 << 20:
        found.append("memory grew")
    return verdict(found + alive(session))


@case("WB-07D", "request smuggling: CL.TE, TE.CL, two lengths, chunk lies", "400 and close, one answer", "answers; sandboxes")
def wb_07d(session):
    found = []
    inner = b"DELETE /v1/sandboxes/" + session.neighbour["name"].encode() + b"?force=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
    start = b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    shapes = {"CL.TE": start + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(inner)) + inner,
              "TE.TE": start + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}" + inner,
              "two lengths": start + b"Content-Length: 2\r\nContent-Length: %d\r\n\r\n{}" % (2 + len(inner)) + inner,
              "signed length": start + b"Content-Length: +2\r\n\r\n{}" + inner, "chunk sign": start + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + inner,
              "chunk hex": start + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + inner, "huge chunk": start + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}"}
    for name, data in shapes.items():
        got = statuses(talk(session, data))
        if len(got) > 1 or (got and got[0] < 400):
            found.append(f"{name}: {got}")
    if not any(b["id"] == session.neighbour["id"] for b in session.instance.get("/v1/sandboxes")["sandboxes"]):
        found.append("a smuggled request removed the neighbour")
    return verdict(found + alive(session))


@case("WB-08", "path tricks against the router", "not found or refused", "answers")
def wb_08(session):
    found = []
    for path in ("/v1//sandboxes", "/v1/sandboxes/..%2f..%2fversion", "/V1/sandboxes", "/v1/sandboxes/%2e%2e/version", "/v1/./sandboxes", "/v1/sandboxes;x=y", "/v1/sandboxes/%00",
                 "/v1/sandboxes/" + "a" * 300, "/v1/sandboxes/..", "/../v1/sandboxes", "/v1/version%00", "/v1/version/extra"):
        got = statuses(talk(session, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))
        if not got or got[0] < 400 or got[0] >= 500:
            found.append(f"{path[:40]}: {got}")
    return verdict(found + alive(session))


@case("AT-09", "the same idempotency key with another request", "idempotency_mismatch", "answers; sandboxes")
def at_09(session):
    key, found = os.urandom(8).hex(), []
    first = refused(session, "POST", "/v1/sandboxes", {"name": "idem-" + key[:6], "start": False}, headers={"Idempotency-Key": key})
    second = refused(session, "POST", "/v1/sandboxes", {"name": "idem2-" + key[:6], "start": False}, headers={"Idempotency-Key": key})
    third = refused(session, "POST", "/v1/sandboxes", {"name": "idem-" + key[:6], "start": False}, headers={"Idempotency-Key": key})
    if second[1] != "idempotency_mismatch":
        found.append(f"another body: {second[:2]}")
    if first[0] < 400 and (third[0] >= 400 or json.loads(third[2])["id"] != json.loads(first[2])["id"]):
        found.append(f"the same body: {third[:2]}")
    for a in (first, second, third):
        if a[0] < 400:
            session.instance.raw("DELETE", f"/v1/sandboxes/{json.loads(a[2])['id']}?force=true")
    return verdict(found, str(second[1]))


@case("AT-12", "looks for secrets in logs, events, command lines and errors", "none", "the secret in what the host keeps")
def at_12(session):
    found, mark = [], "SECRETENV" + os.urandom(8).hex()
    box = session.create("at12-" + os.urandom(3).hex(), env={"TOKEN": mark})
    try:
        session.ended(box, session.exec(box, ["/bin/true"], env={"KEY": mark}))
        try:
            session.exec(box, ["/none"], env={"KEY": mark})
        except cay.ApiError as error:
            if mark in str(error):
                found.append("in an error")
        if mark in session.instance.raw("GET", "/v1/events")[2].decode(errors="replace"):
            found.append("in the events")
        if mark in canary.read(session.instance.log).decode(errors="replace"):
            found.append("in the server's log")
        for pid in session.instance.own_processes():
            if mark.encode() in canary.read(f"/proc/{pid}/cmdline") + canary.read(f"/proc/{pid}/environ") and posture.text(f"/proc/{pid}/comm").startswith("cay"):
                found.append(f"in the command line or environment of {posture.text(f'/proc/{pid}/comm').strip()}")
        for base, _, names in os.walk(os.path.join(session.instance.state, "events")):
            for n in names:
                if mark.encode() in canary.read(os.path.join(base, n)):
                    found.append("in the journal")
    finally:
        session.remove(box)
    return verdict(found, "none")


@case("AT-13", "twenty clients create the same name at once", "exactly one wins", "sandboxes")
def at_13(session):
    name, answers = "race-" + os.urandom(3).hex(), []

    def work():
        try:
            answers.append(refused(session, "POST", "/v1/sandboxes", {"name": name, "start": False})[:2])
        except OSError as error:
            answers.append((0, str(error)))
    threads = [threading.Thread(target=work) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    won = [a for a in answers if a[0] in (200, 201)]
    mine = [b for b in session.instance.get("/v1/sandboxes")["sandboxes"] if b["name"] == name]
    for b in mine:
        session.remove(b)
    found = [] if len(won) == 1 and len(mine) == 1 else [f"{len(won)} won, {len(mine)} exist"]
    found += [f"{a}" for a in answers if a[0] >= 500 or a[0] == 0][:2]
    return verdict(found, "one")


@case("AT-14", "X-Forwarded, X-Original-URL and method override headers", "ignored", "answers; sandboxes")
def at_14(session):
    found = []
    path = f"/v1/sandboxes/{session.neighbour['id']}"
    for head in ({"X-HTTP-Method-Override": "DELETE"}, {"X-Original-URL": "/v1/shutdown"}, {"X-Rewrite-URL": "/v1/shutdown"}, {"X-Forwarded-For": "127.0.0.1"}):
        status, _, text, _ = refused(session, "GET", path, headers=head)
        if status != 200 or session.neighbour["id"].encode() not in text:
            found.append(f"{head}: {status}")
    status, _, _, _ = refused(session, "POST", path + "?_method=DELETE", {})
    if status < 400:
        found.append(f"_method: {status}")
    return verdict(found + alive(session), "ignored")


@case("LG-01", "escape sequences in file names, arguments and output, shown by the command line", "escaped", "bytes that reach the terminal")
def lg_01(session):
    box, found = session.create("lg01-" + os.urandom(3).hex()), []
    try:
        evil = "x\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202ey"
        session.ended(box, session.exec(box, ["/bin/sh", "-c", "touch \"/tmp/$1\"", "sh", evil]))
        for argv in (["diff", box["name"]], ["ps"], ["events", box["name"]], ["info", box["name"]]):
            done = session.instance.cay(*argv, check=False)
            for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
                if "\x1b" in text or "\u202e" in text or "\x07" in text:
                    found.append(f"cay {argv[0]} shows raw control characters on {name}")
        done = session.instance.cay("exec", box["name"], "--", "/none\x1b[2J\u202e", check=False)
        if "\x1b" in done.stderr or "\u202e" in done.stderr:
            found.append("an error message shows raw control characters")
        done = session.instance.cay("info", "none\x1b[2J", check=False)
        if "\x1b" in done.stderr:
            found.append("an error message shows raw control characters of an argument")
    finally:
        session.remove(box)
    return verdict(found, "escaped")


@case("LG-02", "line ends and JSON in names, arguments and user agents", "one record stays one record", "lines of the event log")
def lg_02(session):
    box, found = session.create("lg02-" + os.urandom(3).hex()), []
    try:
        evil = 'x"}\n{"n":999999,"type":"forged"}\r\n'
        session.ended(box, session.exec(box, ["/bin/echo", evil]))
        text = session.instance.raw("GET", f"/v1/sandboxes/{box['id']}/events")[2]
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        if any(r.get("type") == "forged" for r in rows) or not rows:
            found.append("a forged record")
        seqs = [r["seq"] for r in rows]
        if seqs != list(range(1, len(seqs) + 1)):
            found.append(f"sequence {seqs[:10]}")
    finally:
        session.remove(box)
    return verdict(found, f"{len(rows)} records")


@case("LG-04", "changes, removes and reorders records of the journal", "verify names the first bad one", "answers of verify", 60)
def lg_04(session):
    found = []
    box = session.create("lg04-" + os.urandom(3).hex())
    for _ in range(3):
        session.ended(box, session.exec(box, ["/bin/true"]))
    before = session.instance.get(f"/v1/sandboxes/{box['id']}/events/verify")
    if not before.get("ok"):
        return "escaped", f"not even the untouched journal is good: {before}"
    directory = os.path.join(session.instance.state, "events")
    names = sorted(os.listdir(directory))
    session.instance.stop()
    saved = {n: canary.read(os.path.join(directory, n)) for n in names}
    journal = [n for n in names if n.endswith(".jsonl") and box["id"].encode() in saved[n]][-1]

    def tampered(change):
        with open(os.path.join(directory, journal), "wb") as f:
            f.write(change(saved[journal]))
        session.instance.start()
        try:
            answer = refused(session, "GET", f"/v1/sandboxes/{box['id']}/events/verify")
            return answer[0] != 200 or not json.loads(answer[2]).get("ok")
        finally:
            session.instance.stop()
            for n, data in saved.items():
                with open(os.path.join(directory, n), "wb") as f:
                    f.write(data)
            for n in set(os.listdir(directory)) - set(saved):
                os.unlink(os.path.join(directory, n))
    lines = [i for i, line in enumerate(saved[journal].splitlines(True)) if box["id"].encode() in line]

    def edit(n, fn):
        def change(data):
            rows = data.splitlines(True)
            fn(rows, lines[n])
            return b"".join(rows)
        return change
    try:
        for what, fn in (("changed", lambda r, i: r.__setitem__(i, r[i].replace(b"/bin/true", b"/bin/evil") if b"/bin/true" in r[i] else r[i].replace(b'"seq":', b'"seq":1'))),
                         ("removed", lambda r, i: r.pop(i)), ("swapped", lambda r, i: r.__setitem__(slice(i, i + 2), [r[i + 1], r[i]]))):
            if not tampered(edit(len(lines) // 2, fn)):
                found.append(f"a {what} record is not noticed")
    finally:
        session.instance.start()
        session.remove(box)
    return verdict(found, "noticed")


# ---- snapshots ---------------------------------------------------------------------------------------------------------------------------

@case("SN-01", "flips bytes of a snapshot's manifest and files, then verifies and forks", "corrupt, with a reason", "answers", 90)
def sn_01(session):
    found = []
    box = session.create("sn01-" + os.urandom(3).hex())
    try:
        session.shell(box, "for i in 1 2 3; do echo $i > /tmp/f$i; done")
        snap = session.instance.post(f"/v1/sandboxes/{box['id']}/snapshots", {"name": "sn01-" + os.urandom(3).hex()})
        # from here on every byte is known
        if session.instance.call("POST", f"/v1/snapshots/{snap['id']}/verify").get("state") != "verified":
            return "escaped", "not even the untouched snapshot is good"
        layers = os.path.join(session.instance.state, "pool", "layers", snap["layers"][0])
        manifest = os.path.join(layers, "MANIFEST")
        data = canary.read(manifest)
        if not data:
            return "escaped", f"no manifest in {os.listdir(layers)}"
        for at in (0, len(data) // 3, len(data) // 2, len(data) - 2):
            bad = bytearray(data)
            bad[at] ^= 0x01
            write_over(manifest, bytes(bad))
            status, code, text, _ = refused(session, "POST", f"/v1/snapshots/{snap['id']}/verify")
            if status < 400 and json.loads(text).get("state") != "corrupt":
                found.append(f"a flipped byte at {at} of the manifest is verified")
            elif status >= 400 and code != "corrupt":
                found.append(f"verify: {status} {code} {text[:100]!r}")
        write_over(manifest, data[:len(data) // 2])
        status, code, _, _ = refused(session, "POST", f"/v1/snapshots/{snap['id']}/verify")
        if status < 400:
            found.append("a truncated manifest is verified")
        write_over(manifest, data)
        target = [os.path.join(b, n) for b, _, ns in os.walk(os.path.join(layers, "0")) for n in ns if n == "f2"]
        if target:
            write_over(target[0], b"evil\n")
            status, code, text, _ = refused(session, "POST", f"/v1/snapshots/{snap['id']}/verify")
            if status < 400 and json.loads(text).get("state") != "corrupt":
                found.append("a changed file is verified")
        else:
            found.append("the file is not in the layer")
    finally:
        session.remove(box)
    return verdict(found + alive(session), "corrupt")


@case("SN-01B", "forges a manifest whose form is right", "corrupt, with a reason", "answers", 90)
def sn_01b(session):
    found = []
    box = session.create("sn01b-" + os.urandom(3).hex())
    try:
        snap = session.instance.post(f"/v1/sandboxes/{box['id']}/snapshots", {"name": "sn01b-" + os.urandom(3).hex()})
        if session.instance.call("POST", f"/v1/snapshots/{snap['id']}/verify").get("state") != "verified":
            return "escaped", "not even the untouched snapshot is good"
        manifest = os.path.join(session.instance.state, "pool", "layers", snap["layers"][0], "MANIFEST")
        forged = json.loads(canary.read(manifest))
        forged["parents"] = ["0" * 20]
        write_over(manifest, json.dumps(forged).encode())
        status, code, text, _ = refused(session, "POST", f"/v1/snapshots/{snap['id']}/verify")
        if status < 400 and json.loads(text).get("state") != "corrupt":
            found.append("a forged manifest is verified")
        elif status >= 400 and code != "corrupt":
            found.append(f"verify: {status} {code} {text[:100]!r}")
    finally:
        session.remove(box)
    return verdict(found + alive(session), "corrupt")


def write_over(path, data):
    """Overwrite also where the layer is a read-only subvolume."""
    top = path
    while top != "/" and os.stat(top).st_ino != 256:
        top = os.path.dirname(top)
    if top != "/":
        subprocess.run(["btrfs", "property", "set", "-ts", top, "ro", "false"], check=False, capture_output=True)
    with open(path, "wb") as f:
        f.write(data)


@case("SN-02", "names of snapshots and sandboxes that do not exist, prefixes, paths", "not_found", "answers")
def sn_02(session):
    found = []
    for name in ("none", "..", "%2e%2e", "a" * 63, "*", "%25", session.neighbour["id"] + "x"):
        for method, path in (("POST", f"/v1/snapshots/{name}/fork"), ("GET", f"/v1/snapshots/{name}"), ("DELETE", f"/v1/snapshots/{name}")):
            status, code, text, _ = refused(session, method, path, {} if method == "POST" else None)
            if status not in (400, 404, 405) or status >= 500:
                found.append(f"{method} {path}: {status} {code}")
    return verdict(sorted(set(found)) + alive(session))


@case("SN-09", "snapshot in the middle of writes", "a database in it is whole", "integrity check in the fork", 90)
def sn_09(session):
    box, found = session.create("sn09-" + os.urandom(3).hex()), []
    script = ("import sqlite3,os\nc=sqlite3.connect('/tmp/db');c.execute('pragma journal_mode=wal');c.execute('create table t(a,b)');c.commit()\n"
              "print('ready',flush=True)\nn=0\n"
              "while True:\n c.execute('insert into t values(?,?)',(n,-n));c.execute('insert into t values(?,?)',(-n,n));c.commit();n+=1\n")
    try:
        ex = session.exec(box, ["/usr/bin/python3", "-c", script])
        if not session.first_line(box, ex, 15).startswith(b"ready"):
            return "escaped", f"not run: {session.output(box, ex, 'stderr')[-200:]!r}"
        for _ in range(3):
            fork = session.instance.post(f"/v1/sandboxes/{box['id']}/fork", {"files_only": True} if False else {})
            child = fork["sandboxes"][0]
            try:
                check = "import sqlite3;c=sqlite3.connect('/tmp/db');print(c.execute('pragma integrity_check').fetchone()[0],c.execute('select sum(a+b),count(*)%2 from t').fetchone())"
                _, out = session.shell(child, f"/usr/bin/python3 -c \"{check}\"")
                if not out.startswith("ok (0, 0)") and not out.startswith("ok (None, 0)"):
                    found.append(f"in the fork: {out[:200]!r}")
            finally:
                session.remove(child)
    finally:
        session.remove(box)
    return verdict(found, "whole")


@case("SN-13", "snapshot and sandbox names with path characters, emoji, 300 bytes", "invalid", "answers; files below the state")
def sn_13(session):
    box, found = session.victim("default"), []
    for name in ("../x", "a/b", "x" * 300, "\U0001f600", "a\nb", "a\0b", ".", "..", "-rf", " ", "A B", "%2e%2e"):
        status, code, text, _ = refused(session, "POST", f"/v1/sandboxes/{box['id']}/snapshots", {"name": name})
        if status < 400 or status >= 500:
            found.append(f"snapshot {name[:20]!r}: {status} {code}")
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", {"name": name, "start": False})
        if status < 400 or status >= 500:
            found.append(f"sandbox {name[:20]!r}: {status} {code}")
            if status < 400:
                session.instance.raw("DELETE", f"/v1/sandboxes/{json.loads(text)['id']}?force=true")
    return verdict(found + alive(session), "invalid")


@case("SN-08", "forks of forks of forks", "bounded by the host, each is a sandbox of its own", "id ranges; server", 90)
def sn_08(session):
    found, made = [], []
    box = session.create("sn08-" + os.urandom(3).hex())
    try:
        current = box
        for _ in range(4):
            current = session.instance.post(f"/v1/sandboxes/{current['id']}/fork", {})["sandboxes"][0]
            made.append(current)
        bases = [posture.Sandbox.host_uid(b["init_pid"]) for b in made + [box]]
        if len(set(bases)) != len(bases) and not session.user:
            found.append(f"shared id ranges {bases}")
        for b in made:
            if b["limits"] != box["limits"] or b["profile"] != box["profile"]:
                found.append("a fork has other limits or another profile than its parent")
        status, code, _, _ = refused(session, "POST", f"/v1/sandboxes/{box['id']}/fork", {"count": 1000000})
        if status < 400:
            found.append("a million forks were accepted")
    finally:
        for b in made + [box]:
            session.remove(b)
    return verdict(found + alive(session))


@case("SN-11", "a fork asks for a weaker profile, more limits, more mounts", "refused", "answers")
def sn_11(session):
    box, found = session.victim("strict"), []
    for more in ({"profile": "debug"}, {"limits": {"pids": 100000}}, {"mounts": [{"source": "/", "target": "/host", "mode": "rw"}]}, {"image": "host"}):
        status, code, text, _ = refused(session, "POST", f"/v1/sandboxes/{box['id']}/fork", more)
        if status < 400:
            found.append(f"{more} accepted")
            for b in json.loads(text)["sandboxes"]:
                session.remove(b)
    return verdict(found, "refused")


def answers_or_ends(process, path, seconds=8):
    """Waits until a server answers, which it does when its storage is prepared or could not be. None when it ends before."""
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        asked = cay.UnixConnection(path, seconds)
        try:
            asked.request("GET", "/v1/version")
            return asked.getresponse().read()
        except OSError:
            select.select([process.stderr], [], [], 0.05)
        finally:
            asked.close()
    return None


@case("FA-10", "a host user has put a symlink where the pool is to be", "refused", "directory outside")
def fa_10(session):
    found, detail = [], ""
    for without in ("", "btrfs_squota"):
        top, target = os.path.join(session.top, "linked"), os.path.join(session.top, "elsewhere")
        for d in (top, target, os.path.join(top, "state"), os.path.join(top, "run")):
            os.makedirs(d)
        os.chown(target, 65534, 65534)
        os.symlink(target, os.path.join(top, "state", "pool"))
        env = session.instance.environment(CAY_STATE=os.path.join(top, "state"), CAY_RUN=os.path.join(top, "run"), CAY_SOCKET=os.path.join(top, "run", "cayd.sock"),
                                           CAY_WITHOUT=without)
        process = subprocess.Popen([os.path.join(session.build, "cayd"), "--foreground"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        detail = "the server refused" if answers_or_ends(process, os.path.join(top, "run", "cayd.sock")) is None else "the server runs"
        process.terminate()
        process.wait(20)
        process.stderr.close()
        if os.listdir(target):
            found.append(f"written through the link: {os.listdir(target)[:3]}")
        subprocess.run(["umount", os.path.join(top, "state", "pool")], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--one-file-system", top, target], check=False)
    return verdict(found, detail)
