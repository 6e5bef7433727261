# SPDX-License-Identifier: Apache-2.0
"""The same as an ordinary user: an account made for this test, with subordinate ids, and removed afterwards."""

import concurrent.futures
import contextlib
import ctypes
import json
import os
import stat
import struct
import subprocess

from images.importing import member, tar
from lib import cay, leaks
from lib.case import contains, equal, raises, require
from lib.pool import in_own_mounts
from lib.proxy import Upstream, certificate, echo

NEEDS = ("root", "userns", "newuidmap")


def as_user(tmp, function, **env):
    """Run @function with an instance of a throw-away user."""
    with cay.ThrowawayUser() as user:
        os.chmod(tmp, 0o755)
        instance = cay.Instance(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1", **{k: v for k, v in env.items() if v is not None}})
        try:
            instance.start()
            function(instance, user)
        finally:
            instance.close()


@require(*NEEDS)
def test_run_and_exec(tmp):
    def check(instance, user):
        equal(instance.get("/v1/version")["mode"], "rootless")
        equal(instance.cay("run", "--rm", "--no-cwd", "--", "sh", "-c", "id -u; exit 5", want=5).stdout, "0\n")
        with instance.sandbox() as box:
            equal(instance.ok(box, "id -un"), "root\n")
            equal(instance.cay("exec", box, "--", "cat", "/dev/stdin").stdout, "", "no input")
            for user in ("root", "nobody"):
                done = instance.cay("exec", "-i", "-u", user, box, "--", "sh", "-c", "echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin", stdin="in\n")
                equal((done.stdout, done.stderr), ("out\nin\n", "err\n"), user)
            init = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
            uid = os.stat(f"/proc/{init}").st_uid
            assert uid != 0, "a process of a rootless sandbox is root outside"
            equal(raises(cay.ApiError, instance.exec, box, "no-such-command").code, "command_not_found")
    as_user(tmp, check)


@require(*NEEDS)
def test_an_image_comes_by_standard_input(tmp):
    """Its spool is gone behind it, also where it was no image."""
    def check(instance, user):
        spool = os.path.join(user.pw_dir, "spool")
        os.mkdir(spool)
        os.chown(spool, user.pw_uid, user.pw_gid)
        bytes_ = tar(member("etc/motd", data=b"x")).decode("latin-1")
        done = instance.cay("image", "import", "-", "piped", "--json", stdin=bytes_, env={"TMPDIR": spool})
        equal((json.loads(done.stdout)["source"], os.listdir(spool)), ("standard input", []))
        contains(instance.cay("image", "import", "-", stdin="junk", env={"TMPDIR": spool}, want=125).stderr, "import 'standard input': ")
        equal(os.listdir(spool), [])
    as_user(tmp, check)


@require(*NEEDS)
def test_limits_that_nothing_holds_are_named(tmp):
    """Those that were asked for: of the others whoever started the server has said that there are none."""
    def check(instance, user):
        if "memory" in leaks.read("/sys/fs/cgroup/cgroup.controllers"):
            return
        warning = "cay: warning: no control group here holds what was asked for: memory, processors (cay doctor)\n"
        equal(instance.cay("create").stderr, "")
        done = instance.cay("create", "--memory", "64M", "--cpus", "1")
        equal(done.stderr, warning)
        equal(instance.get(f"/v1/sandboxes/{done.stdout.strip()}")["limits_not_held"], ["memory_bytes", "cpu_millis"])
        equal(instance.cay("run", "--rm", "--no-cwd", "--memory", "64M", "--cpus", "1", "--", "true").stderr, warning)
        equal(instance.cay("run", "--rm", "--no-cwd", "--", "true").stderr, "")
    as_user(tmp, check)


@require(*NEEDS)
def test_a_file_system_below_a_mount_is_named(tmp):
    """The kernel lays no overlay over that; without one it is shown."""
    def check(instance, user):
        top = os.path.join(user.pw_dir, "project")
        place = os.path.join(top, "deep", "data")
        os.makedirs(place)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", place], check=True)
        try:
            with open(os.path.join(place, "there"), "w", encoding="ascii"):
                pass
            error = raises(cay.ApiError, instance.post, "/v1/sandboxes", {"mounts": [{"source": top, "target": "/p"}]})
            equal(error.code, "unsupported")
            contains(error.message, f"another file system is mounted below it, at '{place}'")
            with instance.sandbox(mounts=[{"source": top, "target": "/p", "mode": "ro"}]) as box:
                equal(instance.ok(box, "find /p -name there"), "/p/deep/data/there\n")
        finally:
            subprocess.run(["umount", place], check=True)
    as_user(tmp, check)


def names_of_the_host(places):
    """What everybody may read directly in directories of the host."""
    def shown(entry):
        mode = entry.stat(follow_symlinks=False).st_mode
        return stat.S_ISLNK(mode) or mode & (stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH)
    return {entry.path for place in places for entry in os.scandir(place) if shown(entry)}


@require(*NEEDS)
def test_the_host_image_is_whole_where_something_is_mounted_below_its_directories(tmp):
    """The kernel lays no overlay over those: they are put together, and files in them are changed, removed and shown by a diff."""
    in_own_mounts()
    places = ("/etc", "/usr", "/usr/sbin", "/usr/bin", "/usr/lib", "/var", "/opt")
    hidden = {"/etc/fstab", "/etc/crypttab", "/etc/exports", "/etc/iscsi", "/etc/kubernetes", "/etc/letsencrypt", "/etc/openvpn", "/etc/ppp", "/etc/wireguard"}
    tool = sorted(e.path for e in os.scandir("/usr/sbin") if e.is_file(follow_symlinks=False) and os.access(e.path, os.R_OK | os.X_OK))[0]

    def check(instance, _user):
        def look(apart=False):
            with instance.sandbox() as box:
                found = set(instance.ok(box, f"find {' '.join(places)} -maxdepth 1 -mindepth 1").split("\n"))
                equal(names_of_the_host(places) - hidden - found, set())
                equal(instance.ok(box, f"id -un; cat {tool} | cksum; cat /etc/hosts"), "root\n" + subprocess.run(["sh", "-c", f"cat {tool} | cksum"], check=True, text=True,
                      capture_output=True).stdout + instance.ok(box, "cat /etc/hosts"))
                instance.ok(box, "echo new > /etc/cay-new")
                changes = [("/etc/cay-new", "added")]
                if apart:  # copies are its own; what is the machine's it may not write
                    instance.ok(box, f"rm {tool}; echo more >> /etc/passwd; echo new > /etc/alternatives/cay-new")
                    changes += [("/etc/alternatives/cay-new", "added"), ("/etc/passwd", "modified"), (tool, "deleted")]
                equal([(c["path"], c["kind"]) for c in instance.json("diff", box)["changes"]], sorted(changes))
        for mounted in ((), ("/etc/hosts",), ("/etc/hosts", tool)):  # the server runs while they come, and while they go
            with contextlib.ExitStack() as stack:
                for place in mounted:
                    subprocess.run(["mount", "--bind", place, place], check=True)
                    stack.callback(subprocess.run, ["umount", place], check=True)
                look(apart=tool in mounted)
        look()
    as_user(tmp, check)


@contextlib.contextmanager
def mounted_at(place):
    """A file system of its own."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755,size=1m", "none", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


def masks_made(instance):
    """How often the server had the mask of the host image made."""
    return leaks.read(instance.log).count("the mask of the host image is made")


def create_at_once(instance, n):
    """Create @n sandboxes of the host image side by side, and remove them."""
    with concurrent.futures.ThreadPoolExecutor(n) as threads:
        for box in list(threads.map(lambda _: instance.post("/v1/sandboxes", {})["id"], range(n))):
            instance.remove(box)


@require(*NEEDS)
def test_the_mask_is_made_once_for_mounts_that_the_user_can_see(tmp):
    """Layers and pods of other users come and go all the time, where nobody else may look; who creates a sandbox waits for none of them."""
    in_own_mounts()

    def check(instance, _user):
        cay.wait_until(lambda: instance.get("/v1/version")["pool"] > 0, 60, "a prepared sandbox")
        before = masks_made(instance)

        def made(n=1):
            """How often since the last look; it may be for a prepared sandbox, too."""
            nonlocal before
            create_at_once(instance, n)
            last, before = before, masks_made(instance)
            return before - last

        equal(made(), 0)
        with mounted_at("/opt/closed/one"):
            equal(made(6), 1, "the first one takes directories above it apart")
            with mounted_at("/opt/closed/two"), mounted_at("/opt/closed/three"):
                equal(made(), 0, "nobody sees those")
                with instance.sandbox() as box:
                    equal(instance.ok(box, "ls /opt"), "closed\nopen\n")
            with mounted_at("/opt/open"):
                equal(made(), 1)
            equal(made(), 1)

    with mounted_at("/opt"):
        for name in ("one", "two", "three"):
            os.makedirs(f"/opt/closed/{name}")
        os.mkdir("/opt/open")
        os.chmod("/opt/closed", 0o710)
        as_user(tmp, check, CAY_DEBUG="store")


@require(*NEEDS)
def test_sandboxes_are_prepared_for_what_is_mounted_now(tmp):
    """Also where nobody has asked for the host image since: those that were prepared with the mask of before failed, and none was there for the next."""
    in_own_mounts()

    def check(instance, user):
        path = os.path.join(user.pw_dir, "root.tar")
        subprocess.run(["tar", "-C", "/usr/share/zoneinfo/Etc", "-cf", path, "UTC"], check=True)
        image = instance.post("/v1/images", {"path": path})["id"]
        # none is being prepared then: a mount that comes meanwhile would be one too late for it
        cay.wait_until(lambda: instance.get("/v1/version")["pool"] == 2, 60, "all are prepared")
        with mounted_at("/opt/deep/place"):
            with instance.sandbox(image=image):
                cay.wait_until(lambda: instance.get("/v1/version")["pool"] > 0 or "could not be prepared" in leaks.read(instance.log), 60, "a prepared sandbox")
            assert "could not be prepared" not in leaks.read(instance.log), leaks.read(instance.log)

    with mounted_at("/opt"):
        os.makedirs("/opt/deep/place")
        as_user(tmp, check, CAY_POOL="2")


@require(*NEEDS)
def test_what_is_mounted_later_below_a_mount_is_no_change(tmp):
    """The overlay does not show it, and a diff that looks at the machine must not see it either."""
    def check(instance, user):
        top = os.path.join(user.pw_dir, "project")
        place = os.path.join(top, "data")
        os.makedirs(place)
        with instance.sandbox(mounts=[{"source": top, "target": "/p"}]) as box:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", place], check=True)
            try:
                with open(os.path.join(place, "there"), "w", encoding="ascii"):
                    pass
                instance.ok(box, "rm -r /p/data")
                equal([(c["path"], c["kind"]) for c in instance.json("diff", box)["changes"]], [("/p/data", "deleted")])
            finally:
                subprocess.run(["umount", place], check=True)
    as_user(tmp, check)


@require(*NEEDS)
def test_mounts_where_the_host_has_nothing(tmp):
    """Below directories of the host, too, each of which is one more overlay; and the host's own is there beside them."""
    def check(instance, user):
        project = os.path.join(user.pw_dir, "project")
        os.mkdir(project)
        with open(os.path.join(project, "f"), "w", encoding="ascii") as f:
            f.write("mine\n")
        targets = ("/etc/cay-new/deep", "/usr/share/cay-new", "/var/lib/cay-new", "/cay-new")
        for _ in range(2):  # the second is prepared ahead
            with instance.sandbox(mounts=[{"source": project, "target": t} for t in targets]) as box:
                equal(instance.ok(box, f"cat {' '.join(t + '/f' for t in targets)}; ls -d /etc/passwd /usr/share/doc"), "mine\n" * 4 + "/etc/passwd\n/usr/share/doc\n")
                instance.ok(box, "echo changed > /etc/cay-new/beside")
                equal([c["path"] for c in instance.json("diff", box)["changes"]], ["/etc/cay-new", "/etc/cay-new/beside"])
    as_user(tmp, check)


@require(*NEEDS)
def test_a_server_that_runs_looks_at_its_user(tmp):
    """Its jobs are root in its namespace; what they report is about the user all the same."""
    def check(instance, user):
        report = instance.get("/v1/doctor")
        found = next(c for c in report["checks"] if c["id"] == "subids")
        equal((report["mode"], found["ok"]), ("rootless", True))
        contains(found["found"], f"for {user.pw_name}")
    as_user(tmp, check)


@require(*NEEDS)
def test_what_cannot_be_counted_is_not_said_to_be_nothing(tmp):
    def check(instance, _user):
        with instance.sandbox() as box:
            instance.ok(box, "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done")
            usage = instance.get(f"/v1/sandboxes/{box}/usage")
            if usage["memory_peak_bytes"] is not None:
                return  # a control group was delegated
            equal(usage["memory_gb_seconds"], None)
            contains(instance.cay("usage", box).stdout, "memory        not counted")
            instance.post(f"/v1/sandboxes/{box}/stop", {})
            equal(instance.get(f"/v1/sandboxes/{box}/usage")["memory_gb_seconds"], None)
    as_user(tmp, check)


@contextlib.contextmanager
def without_group(tmp):
    """An ordinary user's instance that has started, and has no control group."""
    with cay.ThrowawayUser() as user:
        group = cay.ThrowawayUser.group(user.pw_name)
        for folder in (os.path.join(group, "server"), group):
            os.rmdir(folder)
        os.chmod(tmp, 0o755)
        instance = cay.Instance(tmp, user=user)
        try:
            instance.start()
            yield instance
        finally:
            instance.close()


@require(*NEEDS)
def test_what_cannot_be_frozen_is_named_as_the_user_names_it(tmp):
    """Without a control group; and what there is to do is said."""
    with without_group(tmp) as instance, instance.sandbox(name="mine"):
        for verb in ("pause", "suspend"):
            said = instance.cay(verb, "mine", want=125).stderr
            contains(said, f"{verb} sandbox 'mine'")
            contains(said, "without a control group nothing can be frozen")
            contains(said, "cay doctor")


@require(*NEEDS)
def test_settings_that_do_nothing_without_a_control_group_are_named(tmp):
    """Where they are asked for: no step would have a snapshot, and nothing be suspended."""
    said = "cay: warning: without a control group nothing can be frozen, so this does nothing: %s (cay doctor)\n"
    with without_group(tmp) as instance:
        both = ("--idle", "1h", "--checkpoint", "each-exec")
        equal(instance.cay("create", "--name", "mine", *both).stderr, said % "--checkpoint each-exec, --idle")
        equal(instance.get("/v1/sandboxes/mine")["settings_without_effect"], ["checkpoint", "idle_ms"])
        equal(instance.cay("set", "mine", "--checkpoint", "none").stderr, said % "--idle")
        equal(instance.cay("set", "mine", "--idle", "off").stderr, "")
        assert "settings_without_effect" not in instance.get("/v1/sandboxes/mine")
        contains(instance.cay("run", "--rm", "--no-cwd", *both, "--", "true").stderr, said % "--checkpoint each-exec, --idle")
        instance.remove("mine")


@require(*NEEDS)
def test_other_users_inside(tmp):
    def check(instance, _user):
        with instance.sandbox() as box:
            instance.ok(box, "touch /var/tmp/f && chown nobody /var/tmp/f && stat -c %U /var/tmp/f | grep -qx nobody")
            equal(instance.ok(box, "su -s /bin/sh nobody -c 'id -un'"), "nobody\n")
    as_user(tmp, check)


@require(*NEEDS)
def test_limits_of_bytes_and_inodes_are_refused_with_the_reason(tmp):
    def check(instance, _user):
        storage = instance.get("/v1/storage")
        equal((storage["disk_limit"], storage["inode_limit"]), ("none", "none"))
        for limits in ({"inodes": 100}, {"disk_bytes": 1 << 30}):
            error = raises(cay.ApiError, instance.post, "/v1/sandboxes", {"limits": limits})
            equal(error.code, "unsupported")
            contains(error.message, "inodes" if "inodes" in limits else "bytes")
            contains(error.hint, "cay doctor")
        equal(instance.get("/v1/sandboxes")["sandboxes"], [])
        with instance.sandbox() as box:
            equal(instance.get(f"/v1/sandboxes/{box}")["disk"], {"kind": "none"})
    as_user(tmp, check)


@require(*NEEDS)
def test_snapshot_fork_diff_rewind_apply(tmp):
    def check(instance, user):
        project = os.path.join(instance.dir, "p")
        os.mkdir(project)
        with open(os.path.join(project, "f"), "w", encoding="utf-8") as f:
            f.write("one\n")
        for path in (project, os.path.join(project, "f")):
            os.chown(path, user.pw_uid, user.pw_gid)
        with instance.sandbox(name="one", mounts=[{"source": project, "target": "/p"}]) as box:
            instance.ok(box, "echo two > /p/f; echo x > /var/tmp/x")
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "s"})
            instance.ok(box, "rm /var/tmp/x")
            fork = instance.post("/v1/snapshots/s/fork", {})["sandboxes"][0]["id"]
            equal(instance.ok(fork, "cat /var/tmp/x"), "x\n")
            contains(str(instance.get(f"/v1/diff?a={box}")["changes"]), "/p/f")
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "s"})
            equal(instance.ok(box, "cat /var/tmp/x"), "x\n")
            instance.post(f"/v1/sandboxes/{box}/apply", {})
        with open(os.path.join(project, "f"), encoding="utf-8") as f:
            equal(f.read(), "two\n")
        equal(os.stat(os.path.join(project, "f")).st_uid, user.pw_uid)
    as_user(tmp, check)


@require(*NEEDS)
def test_apply_against_what_the_host_removed(tmp):
    """Without privileges the kernel does not tell which file of the host a changed one was: those moved inside are told from those removed outside."""
    cases = (("echo two > a", "rm a", True), ("echo two > a; echo two > b; mv c n; echo x > m", "rm a", True),
             ("mv a b", "true", False), ("sed -i.old s/one/two/ a", "true", False), ("mv a n; echo two > a; echo three >> n", "true", False),
             ("mkdir d; mv a b d", "true", False), ("ln a n; echo two >> n", "true", False), ("echo two > a; rm b", "rm c", False))

    def check(instance, user):
        for number, (inside, outside, conflict) in enumerate(cases):
            project = os.path.join(instance.dir, f"p{number}")
            os.mkdir(project)
            for name in "abc":
                with open(os.path.join(project, name), "w", encoding="utf-8") as f:
                    f.write("one\n")
                os.chown(os.path.join(project, name), user.pw_uid, user.pw_gid)
            os.chown(project, user.pw_uid, user.pw_gid)
            for snapshot in (False, True):
                with instance.sandbox(mounts=[{"source": project, "target": "/p"}]) as box:
                    instance.ok(box, f"cd /p; {inside}")
                    if snapshot:
                        instance.post(f"/v1/sandboxes/{box}/snapshots", {})
                        instance.ok(box, "echo more > /p/more; mv /p/more /p/most")
                    subprocess.run(outside, shell=True, cwd=project, check=True)
                    found = instance.post(f"/v1/sandboxes/{box}/apply", {"dry_run": True})["conflicts"]
                    equal(bool(found), conflict, f"{inside} against {outside}: {found}")
                if outside != "true" and not snapshot:
                    with open(os.path.join(project, outside[-1]), "w", encoding="utf-8") as f:
                        f.write("one\n")
                    os.chown(os.path.join(project, outside[-1]), user.pw_uid, user.pw_gid)
    as_user(tmp, check)


@require(*NEEDS)
def test_a_renamed_file_is_applied_in_two_halves(tmp):
    """Which place of the host became vacant for which file is only counted: also over applies of parts."""
    def check(instance, user):
        for number, parts in enumerate((["a", "n"], ["n", "a"], ["n"], ["a"])):
            project = os.path.join(instance.dir, f"p{number}")
            os.mkdir(project)
            for name in ("a", "b"):
                with open(os.path.join(project, name), "w", encoding="utf-8") as f:
                    f.write(name)
            os.system(f"chown -R {user.pw_uid}:{user.pw_gid} {project}")
            with instance.sandbox(mounts=[{"source": project, "target": "/p"}]) as box:
                instance.ok(box, "cd /p; mv a n; echo two >> b")
                for part in parts:
                    instance.post(f"/v1/sandboxes/{box}/apply", {"paths": [f"/p/{part}"]})
                os.unlink(os.path.join(project, "b"))
                found = instance.post(f"/v1/sandboxes/{box}/apply", {"dry_run": True})["conflicts"]
                equal("b" in [os.path.basename(c["path"]) for c in found], parts != ["n"], f"{parts}: {found}")
    as_user(tmp, check)


@require(*NEEDS)
def test_a_single_uid_is_named_and_refuses_clearly(tmp):
    def check(instance, _user):
        equal(instance.get("/v1/version")["uid_map"], "single")
        with instance.sandbox() as box:
            equal(instance.json("diff", box)["changes"], [], "an owner that cannot be expressed is no change")
        with instance.sandbox() as box:
            equal(instance.ok(box, "id -u"), "0\n")
            status, _, said = instance.sh(box, "touch /tmp/f && chown nobody /tmp/f")
            equal((status["code"], "Invalid argument" in said), (1, True), said)
            equal(raises(cay.ApiError, instance.exec, box, "id", user="nobody").code, "bad_user")
            # what package managers say, and with which status: the directories are not theirs
            for command, code, words in (("dpkg --configure -a", 2, "required read/write access"), ("apt-get install -y nothing", 100, "are you root?")):
                status, _, said = instance.sh(box, command)
                equal((status.get("code"), words in said), (code, True), f"{command}: {said}")
    as_user(tmp, check, CAY_WITHOUT="newuidmap")


@require(*NEEDS)
def test_foreign_users_cannot_reach_the_instance(tmp):
    def check(instance, _user):
        import socket
        pid = os.fork()
        if pid == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(instance.socket)
                    s.sendall(b"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\n\r\n")
                    os._exit(0 if b" 200 " in s.recv(100) else 1)
            except OSError:
                os._exit(1)
        equal(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 1, "another user was served")
    as_user(tmp, check)


def late_policy(tmp, **env):
    """The trust stores come with the first policy, into the one sandbox that it is for, and into none beside it."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    policy = json.dumps({"rules": [{"match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True}]})
    bundle = "sha256sum </etc/ssl/certs/ca-certificates.crt"

    def check(instance, _user):
        with instance.sandbox() as box, instance.sandbox() as other:
            before = instance.ok(box, bundle)
            equal(instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": policy}).get("hint"), None)
            equal(instance.ok(box, "env -i curl -sS -o /dev/null -w '%{http_code}' https://api.example/"), "200")
            assert instance.ok(box, bundle) != before
            equal(instance.ok(other, bundle), before)
            equal(instance.sh(box, ": >/etc/ssl/certs/ca-certificates.crt")[0]["code"] != 0, True, "it is read-only and stays")
            equal(instance.json("diff", box)["changes"], [])
    as_user(tmp, check, CAY_TRUST=root, **env)
    upstream.close()


@require(*NEEDS)
def test_a_policy_that_comes_after_the_start(tmp):
    late_policy(tmp)


@require(*NEEDS)
def test_a_policy_that_comes_after_the_start_with_a_single_uid(tmp):
    late_policy(tmp, CAY_WITHOUT="newuidmap")


def pings(tmp, users, **env):
    """Any of @users inside pings the sandbox itself; nothing else is pinged, and who tried is told."""
    script = """import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 1)
s.settimeout(20)
s.sendto(bytes([8] + [0] * 7), ("127.0.0.1", 0))
print(s.recv(100)[0])
try: s.sendto(bytes([8] + [0] * 7), ("8.8.8.8", 0))
except PermissionError: print("refused")
"""

    def check(instance, _user):
        with instance.sandbox() as box:
            for user in users:
                prefix = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups") if user else ()
                run = instance.exec(box, *prefix, "python3", "-c", script)
                equal(instance.wait(box, run).get("code"), 0)
                equal(instance.output(box, run).decode(), "0\nrefused\n")
                told = instance.wait_event("net.denied", box, lambda e, run=run: e["exec"] == run["id"])
                equal((told["data"]["protocol"], told["data"]["address"]), ("icmp", "8.8.8.8"))
    as_user(tmp, check, **env)


@require(*NEEDS, "ping_sockets")
def test_pings(tmp):
    pings(tmp, (0, 1000, 65534))


@require(*NEEDS, "ping_sockets")
def test_pings_with_a_single_uid(tmp):
    pings(tmp, (0,), CAY_WITHOUT="newuidmap")


@require(*NEEDS)
def test_files_in_and_out(tmp):
    def check(instance, user):
        source, back = (os.path.join(instance.dir, name) for name in ("in.txt", "out"))
        with open(source, "w", encoding="utf-8") as f:
            f.write("carried\n")
        os.chown(source, user.pw_uid, user.pw_gid)
        with instance.sandbox(name="one") as box:
            instance.cay("cp", source, "one:/var/tmp/f")
            equal(instance.ok(box, "cat /var/tmp/f; stat -c %U /var/tmp/f"), "carried\nroot\n")
            instance.ok(box, "mkdir /var/tmp/d; echo x > /var/tmp/d/x; chown nobody /var/tmp/d/x; chmod 600 /var/tmp/d/x")
            instance.cay("cp", "-r", "one:/var/tmp/d", back)
            with open(os.path.join(back, "x"), encoding="utf-8") as f:
                equal(f.read(), "x\n")
            instance.kill()
            instance.start()
            instance.cay("cp", source, "one:/var/tmp/g")  # by a server that did not start the keeper
            equal(instance.ok(box, "cat /var/tmp/g"), "carried\n")
    as_user(tmp, check)


HOG = """
import ctypes, errno, sys
call = ctypes.CDLL(None, use_errno=True).syscall
keys = 0
while call(248, b"user", b"k%d" % keys, b"x", ctypes.c_size_t(1), -2) >= 0:  # add_key, to the keyring of this process
    keys += 1
assert ctypes.get_errno() == errno.EDQUOT
print("full", flush=True)
sys.stdin.read()
"""


@require(*NEEDS)
def test_programs_take_no_kernel_keys_and_a_sandbox_without_one_is_refused_with_the_reason(tmp):
    def check(instance, user):
        with instance.sandbox() as box, contextlib.ExitStack() as more:
            hog = more.enter_context(subprocess.Popen(["/usr/bin/python3", "-c", HOG], user=user.pw_uid, group=user.pw_gid, extra_groups=[],
                                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            equal(hog.stdout.readline(), b"full\n")
            runs = [instance.exec(box, "sh", "-c", "read line; exit $line", stdin=True) for _ in range(5)]
            equal(instance.get(f"/v1/sandboxes/{box}")["execs_running"], len(runs))
            for code, run in enumerate(runs):
                equal(instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", f"{code}\n".encode(),
                                   {"Content-Type": "application/octet-stream"})[0], 204)
                equal(instance.wait(box, run)["code"], code)

            def more_sandboxes():
                for _ in range(50):  # some have been prepared before
                    more.enter_context(instance.sandbox())
            error = raises(cay.ApiError, more_sandboxes)
            equal(error.code, "limit")
            contains(error.message, "kernel.keys.maxkeys")
            hog.stdin.close()
            hog.wait()
            cay.wait_until(lambda: can_create(instance), 60, "the keys to be free again")
    # as after a login: whoever has no session keyring gets a first one beyond any limit
    assert ctypes.CDLL(None).syscall(250, 1, None) > 0  # keyctl(KEYCTL_JOIN_SESSION_KEYRING)
    as_user(tmp, check)


def can_create(instance):
    try:
        with instance.sandbox():
            return True
    except cay.ApiError as error:
        equal(error.code, "limit")
        return False


@require(*NEEDS)
def test_access_lists_with_users_who_have_no_number_here(tmp):
    """What they might is not carried over; nobody else gets more by that."""
    def acl(*named):
        entries = [(1, 6, 0xffffffff), *named, (4, 0, 0xffffffff), (16, 6, 0xffffffff), (32, 0, 0xffffffff)]
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)

    def check(instance, user):
        top = os.path.join(tmp, "project")
        os.mkdir(top)
        with open(top + "/a", "w", encoding="utf-8"):
            pass
        for path in (top, top + "/a"):
            os.chown(path, user.pw_uid, user.pw_gid)
        own = (2, 6, user.pw_uid)
        os.setxattr(top + "/a", "system.posix_acl_access", acl(own, (2, 6, 54321)))
        with instance.sandbox(mounts=[{"source": top, "target": "/p"}]) as box:
            instance.ok(box, "echo changed > /p/a")
            instance.post(f"/v1/sandboxes/{box}/apply", {})
        with open(top + "/a", encoding="utf-8") as f:
            equal(f.read(), "changed\n")
        equal(os.getxattr(top + "/a", "system.posix_acl_access"), acl(own))
    as_user(tmp, check)


@require(*NEEDS, "program:strace")
def test_a_durable_snapshot_has_all_of_its_layers_on_the_disk(tmp):
    """Also those below its own, of snapshots that nobody has asked to be durable yet: here each is written alone."""
    def check(instance, _):
        log = os.path.join(tmp, "log")
        with instance.sandbox() as box:
            def with_file(what, **options):
                instance.ok(box, f"echo {what} > /root/{what}")
                instance.post(f"/v1/sandboxes/{box}/stop", {})
                made = instance.post(f"/v1/sandboxes/{box}/snapshots", options)
                instance.post(f"/v1/sandboxes/{box}/start", {})
                return made
            lower = with_file("lower")
            pids = [argument for pid in instance.own_processes() for argument in ("-p", str(pid))]
            with subprocess.Popen(["strace", "-f", "-qq", "-y", "-e", "trace=fsync", "-o", log, *pids], stderr=subprocess.PIPE) as tracer:
                try:
                    cay.wait_until(lambda: all("TracerPid:\t0\n" not in leaks.read(f"/proc/{pid}/status") for pid in pids[1::2]), 30, "all are traced")
                    upper = with_file("upper", name="kept")
                finally:
                    tracer.terminate()
            equal((lower["state"], upper["state"]), ("sealed", "durable"))
            equal(upper["layers"][1:], lower["layers"])
            for layer, name in zip(upper["layers"], ("upper", "lower")):
                contains(leaks.read(log), f"/layers/{layer}/MANIFEST>")
                assert [line for line in leaks.read(log).splitlines() if layer in line and line.rstrip().split(" = ")[-1] == "0" and f"/root/{name}>" in line], name
    as_user(tmp, check)
