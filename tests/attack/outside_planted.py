# SPDX-License-Identifier: Apache-2.0
"""Attacks from outside: what was planted inside, looked at or used from the host's side; execs, terminals and namespaces seen from outside."""

import json
import os
import re
import select
import shutil
import stat
import subprocess
import threading
import time

import posture
from lib import cay
from outside import alive, case, files, keeper_memory, memory_grown, refused, suid_reachable, verdict


def host_suid_reachable(session, box):
    """Can an ordinary user of the host reach a set-uid file that the sandbox made? (reason or None)"""
    return suid_reachable(os.path.join(session.instance.state, "pool", "live", box["id"]))


def plant(path, text, mode):
    """A file of the host's with exactly this mode."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


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


@case("FS-19", "reads what becomes private on the host while it runs, in every way, as root", "permission denied", "secret of a new file; of one that loses its read bit; of a new directory")
def fs_19(session):
    found, top = [], "/etc/cay-test-later-" + os.urandom(4).hex()
    os.mkdir(top, 0o755)
    os.chmod(top, 0o755)
    try:
        for name in ("loses", "open"):
            plant(f"{top}/{name}", session.host.secret if name == "loses" else "anybody's", 0o644)
        box = session.victim("default")
        plant(top + "/new", session.host.secret, 0o600)
        os.chmod(top + "/loses", 0o600)
        os.mkdir(top + "/dir", 0o700)
        plant(top + "/dir/inside", session.host.secret, 0o644)
        for path in ("new", "loses", "dir/inside"):
            ways = "; ".join(f"{how}; rm -f /tmp/fs19" for how in ('cat "$f"', 'cp "$f" /tmp/fs19; cat /tmp/fs19', 'mv "$f" /tmp/fs19; cat /tmp/fs19',
                                                                   'ln "$f" /tmp/fs19; cat /tmp/fs19', 'chmod 666 "$f"; cat "$f"', 'tar -cf - "$f"'))
            _, out = session.shell(box, f"f={top}/{path}; {ways}")
            if session.host.secret in out:
                found.append(f"{path} was read")
        _, out = session.shell(box, f"cat {top}/open")
        if "anybody's" not in out:
            found.append(f"the control was not read: {out[-200:]}")
    finally:
        shutil.rmtree(top)
    return verdict(found)


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
                answer = refused(session, "POST", f"/v1/sandboxes/{box['id']}/execs", {"argv": ["/bin/true"], "user": "nobody"}, timeout=20)
                if answer[1] == "internal":
                    found.append(f"{what}: {answer[2][:150]!r}")
            except OSError as error:
                # one that hangs is enough, and ties up the sandbox
                return verdict([f"{what}: no answer after {time.monotonic() - start:.0f} s: {error}"])
            try:
                session.ended(box, session.exec(box, ["/bin/true"], user="0"), 20)
            except (cay.ApiError, OSError) as error:
                if isinstance(error, OSError):
                    found.append(f"{what}: a later exec hangs")
        finally:
            start = time.monotonic()
            session.remove(box)
            if time.monotonic() - start > 20:
                found.append(f"{what}: removal took {time.monotonic() - start:.0f} s")
    return verdict(found + alive(session))


@case("DV-08", "keeps a terminal open and floods it, nobody reads", "bounded; the sandbox can be removed", "memory of the keeper; server", 60)
def dv_08(session):
    box, found = session.create("dv08-" + os.urandom(3).hex()), []
    ex = session.exec(box, ["/bin/sh", "-c", "setsid sh -c 'while :; do echo AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA; done' & sleep 30"], tty={"rows": 24, "columns": 80})
    before = keeper_memory(session)
    status = session.ended(box, ex, 2)
    grown = memory_grown(session, before)
    if grown > 32 << 20:
        found.append(f"keepers grew by {grown >> 20} MiB")
    session.remove(box)
    return verdict(found + alive(session), f"{status.get('status')}, grown {grown >> 10} KiB")
