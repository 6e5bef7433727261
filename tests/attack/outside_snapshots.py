# SPDX-License-Identifier: Apache-2.0
"""Attacks from outside: snapshots and forks."""

import json
import os
import select
import subprocess
import time

import canary
import posture
from lib import cay
from outside import alive, case, refused, verdict


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
