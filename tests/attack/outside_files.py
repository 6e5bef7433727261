# SPDX-License-Identifier: Apache-2.0
"""Attacks from outside: the file API."""

import io
import os
import re
import select
import tarfile
import threading
import time
import urllib.parse

from lib import cay
from outside import alive, case, files, files_work, refused, verdict
from outside_images import hostile_entries, hostile_pairs, tar
from outside_planted import host_suid_reachable


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
