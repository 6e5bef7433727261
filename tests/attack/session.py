# SPDX-License-Identifier: Apache-2.0
"""One instance of this build with its canaries, a victim and a neighbour, and how one case is run and judged in it."""

import http.client
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import canary  # noqa: E402
import cases  # noqa: E402
import posture  # noqa: E402
import tracer  # noqa: E402
from lib import cay, leaks  # noqa: E402

WORST = {"blocked": 0, "unreachable": 1, "leaked": 2, "broken": 3, "escaped": 4}
LIMITS = {"memory_bytes": 128 << 20, "pids": 96, "disk_bytes": 64 << 20, "inodes": 20000, "files": 256}


class Verdict:
    """What came of one case in one sandbox: outcome, the reasons for it, what the attacker said, and whether an oracle saw it."""

    def __init__(self, outcome, reasons, claim=None, by_oracle=False):
        self.outcome, self.reasons, self.claim, self.by_oracle = outcome, reasons, claim or {}, by_oracle

    @property
    def broken(self):
        return self.outcome not in ("blocked", "unreachable", "unjudged")


class Session:
    """An instance (perhaps with defences switched off), its canaries and sandboxes."""

    def __init__(self, build, ablate=(), user=None, single=False):
        """@user: an ordinary user whose server it is; @single: without its subordinate ids."""
        self.build, self.ablate = build, tuple(sorted(ablate))
        self.user, self.single = user, single
        self.top = tempfile.mkdtemp(prefix="attack-", dir="/tmp")
        os.chmod(self.top, 0o755)
        self.host = canary.Host(self.top, user.pw_uid if user else 12345)
        tools = os.path.join(self.top, "redcell")
        os.mkdir(tools, 0o755)
        shutil.copy(os.path.join(build, "tests", "attack", "redcell"), tools)
        os.chmod(os.path.join(tools, "redcell"), 0o755)
        self.tools = tools
        self.posture, self.sandboxes, self.neighbour, self.instance = {}, {}, None, None
        self.can_import, self.import_error = None, ""
        self.at_end = []  # what else cases have started and close() has to end
        self.programs = {p: canary.digest(os.path.join(build, p)) for p in ("cay-keeper", "cay-init", "cay-spawn", "cayd")}

    def __enter__(self):
        cay.BUILD = self.build
        self.host.key_for_children()
        # a hostile environment of the caller, and a secret in it: neither may reach a payload
        env = {"SECRET_OF_CAYD": self.host.secret, "BASH_ENV": "/tmp/x", "GLIBC_TUNABLES": "glibc.malloc.check=0",
               "PYTHONSTARTUP": "/tmp/x"}
        # so that less of the machine's memory is wanted to see it noticed
        env["CAY_UNCOUNTED"] = str(32 << 20)
        if self.single:
            env["CAY_WITHOUT"] = "newuidmap"
        if self.ablate:
            env["CAY_ABLATE"] = ",".join(self.ablate)
        self.instance = cay.Instance(parent=self.top, user=self.user, env=env, programs=self.build)
        os.chmod(self.instance.dir, 0o755)
        try:
            self.instance.start()
            self.neighbour = self.create("neighbour", mounts=False)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            for end in self.at_end:
                end()
            if self.instance is not None:
                self.instance.close()
        except AssertionError as error:
            # what an instance leaves behind is judged by the end-to-end tests; here it must not stay either
            print(f"# {error}"[:300], file=sys.stderr)
            self.clear_up()
        finally:
            self.host.close()
            subprocess.run(["rm", "-rf", "--one-file-system", self.top], check=False)

    def clear_up(self):
        """Mounts, loop devices and control groups of this instance."""
        for line in posture.text("/proc/self/mountinfo").splitlines():
            if self.top + "/" in line.split()[4]:
                subprocess.run(["umount", line.split()[4]], check=False)
        for tag in self.instance.tags:
            for path in leaks.cgroups(tag):
                subprocess.run(["find", path, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"], check=False, capture_output=True)

    # -- sandboxes ----------------------------------------------------------------------------------------------------------------

    def mounts(self):
        return [{"source": os.path.join(self.top, d), "target": "/" + d, "mode": m}
                for d, m in (("redcell", "ro"), ("ro", "ro"), ("cow", "cow"), ("rw", "rw"))]

    def create(self, name, profile="default", limits=None, mounts=True, extra=(), **more):
        limits = limits or LIMITS
        if self.user:
            # the others need control groups with controllers and a pool of root's
            limits = {"files": limits["files"]}
        body = {"name": name, "profile": profile, "limits": limits,
                "mounts": (self.mounts() if mounts else self.mounts()[:1]) + list(extra), **more}
        box = self.instance.post("/v1/sandboxes", body)
        if box.get("init_pid"):
            self.posture[box["id"]] = posture.Sandbox(box["init_pid"], profile, self.ablate)
        return box

    def victim(self, profile):
        """The sandbox that cases without after-effects share; a new one when an attack ended the last one."""
        box = self.sandboxes.get(profile)
        if box is None or not os.path.exists(f"/proc/{box['init_pid']}"):
            box = self.create(f"victim-{profile}-{os.urandom(2).hex()}", profile)
            self.sandboxes[profile] = box
        return box

    def remove(self, box):
        self.instance.call("DELETE", f"/v1/sandboxes/{box['id']}?force=true")

    def drop_victim(self, profile):
        box = self.sandboxes.pop(profile, None)
        if box:
            self.remove(box)

    def posture_ids(self):
        """Every sandbox of the instance."""
        return self.instance.get("/v1/sandboxes")["sandboxes"]

    def usage(self, box):
        return self.instance.get(f"/v1/sandboxes/{box['id']}/usage")

    def disk_of(self, box):
        """Bytes that the sandbox's own directory takes on the host, whatever the API says."""
        path = os.path.join(self.instance.state, "pool", "live", box["id"])
        done = subprocess.run(["du", "-sxB1", path], capture_output=True, text=True, check=False)
        return int(done.stdout.split()[0]) if done.stdout else 0

    def processes(self, box):
        """Host pids of the sandbox's processes: those in its pid namespace, or where it has none of its own in its control group."""
        looked, found = self.posture[box["id"]], []
        own = looked.namespaces.get("pid") != looked.host.get("pid")
        for pid in filter(str.isdigit, os.listdir("/proc")):
            inside = posture.namespaces(pid).get("pid") == looked.namespaces.get("pid") if own else f"{box['id']}/box/" in posture.text(f"/proc/{pid}/cgroup")
            # another instance may use the same ids, and helpers of ours are in the group
            if inside and looked.owns(int(posture.status(pid).get("Uid", "-1").split()[0])) and not self.waits(box, pid):
                found.append(int(pid))
        return found

    @staticmethod
    def waits(box, pid):
        """Is it the process that waits to become the next command, which rootless has an id of the sandbox? It still is the keeper's program, which nothing inside can execute."""
        try:
            keeper = posture.status(box["init_pid"])["PPid"].strip()
            return os.path.samestat(os.stat(f"/proc/{pid}/exe"), os.stat(f"/proc/{keeper}/exe"))
        except (OSError, KeyError):
            return False

    def process_count(self, box):
        return len(self.processes(box))

    def addresses(self):
        done = subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True, check=False)
        return ",".join(line.split()[3].split("/")[0] for line in done.stdout.splitlines() if " lo " not in line)

    # -- running something inside -------------------------------------------------------------------------------------------------

    def exec(self, box, argv, **more):
        """Start a command; returns the exec object."""
        return self.instance.post(f"/v1/sandboxes/{box['id']}/execs", {"argv": argv, **more})

    def ended(self, box, ex, seconds=30):
        done = self.instance.call("GET", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}?wait_ms={seconds * 1000}",
                                  timeout=seconds + 15)
        return done.get("status") or {"status": "running"}

    def output(self, box, ex, stream="stdout", start=0):
        status, _, body = self.instance.raw("GET", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/output?stream={stream}&from={start}")
        return body if status == 200 else b""

    def shell(self, box, script, user="root", seconds=30, **more):
        """(status, output) of a shell command inside."""
        ex = self.exec(box, ["/bin/sh", "-c", script], user=user, **more)
        status = self.ended(box, ex, seconds)
        return status, self.output(box, ex).decode(errors="replace")

    def first_line(self, box, ex, seconds):
        """What the attacker prints before it holds still, or what is there when it has ended."""
        path = f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/output?stream=stdout&follow=true"
        connection = cay.UnixConnection(self.instance.socket, timeout=seconds)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.readline() if answer.status == 200 else b""
        except (TimeoutError, OSError):
            return b""
        finally:
            connection.close()

    def neighbour_answers(self):
        start = time.monotonic()
        try:
            ex = self.exec(self.neighbour, ["/bin/true"])
            status = self.ended(self.neighbour, ex, 10)
        except (cay.ApiError, OSError) as error:
            return [f"the neighbour does not answer: {error}"]
        took = time.monotonic() - start
        if status.get("status") != "exited" or status.get("code") != 0:
            return [f"the neighbour's command ended with {status}"]
        return [f"the neighbour took {took:.1f} s"] if took > 8 else []

    # -- one case -----------------------------------------------------------------------------------------------------------------

    def arguments(self, case, box, user):
        profile = self.posture[box["id"]].profile
        args = {"nonce": self.host.nonce, "secrets": ":".join(self.host.secret_paths), "rofile": "/ro/canary", "rodir": "/ro",
                "outdir": self.host.outside, "key": self.host.tag, "capmask": f"{posture.CAPS[profile]:x}",
                "nnp": int(profile == "strict"), "hold": 1}
        disk = os.stat("/").st_dev
        args.update(diskmajor=os.major(disk), diskminor=os.minor(disk))
        args.update({"start": 1} if case.traced else {})
        args.update(case.args(self, box) if case.args else {})
        return [f"{k}={v}" for k, v in args.items()]

    def judge(self, result):
        """The attacker's own claims, and what the canaries say."""
        claims = []
        if result["outcome"] in ("escaped", "leaked"):
            claims.append(f"{result['outcome']}: {result['detail'][:300]}")
        seen = []
        if self.host.secret in result["proof"]:
            seen.append("the secret was read")
        shadow = canary.read("/etc/shadow").decode(errors="replace").splitlines()
        if shadow and shadow[0] in result["proof"]:
            seen.append("/etc/shadow was read")
        seen += self.host.broken()
        for program, before in self.programs.items():
            if canary.digest(os.path.join(self.build, program)) != before:
                seen.append(f"{program} was changed")
        return claims, seen

    def inside(self, case, profile, user):
        """Run one case inside; returns its verdict."""
        if case.unreachable and (reason := case.unreachable()):
            return Verdict("unreachable", [reason])
        fresh = case.kind == "fresh"
        box = self.create(f"case-{case.id.lower()}-{os.urandom(2).hex()}", profile, case.limits) if fresh else self.victim(profile)
        try:
            return self.attack(case, box, user, fresh)
        finally:
            if fresh:
                self.remove(box)

    def report(self, case, box, ex):
        """The attacker's line, and what a tracer has seen that ought not to be."""
        if not case.traced:
            return self.first_line(box, ex, case.seconds), []
        traced = tracer.Tracer(ex["pid"], os.path.join(self.top, "trace"), case.children)
        try:
            self.instance.raw("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/stdin", b"\n")
            line = self.first_line(box, ex, case.seconds)
        finally:
            calls = traced.end()
        return line, tracer.judged(calls, case.traced)

    def attack(self, case, box, user, fresh):
        argv = ["/redcell/redcell", case.redcell or case.id] + self.arguments(case, box, user)
        ex = self.exec(box, argv, user=user, stdin=True, timeout_ms=case.seconds * 2000)
        line, seen = self.report(case, box, ex)
        result = {"outcome": "blocked", "errno": "", "detail": "", "proof": "", "attempts": 0}
        ran = line.startswith(b"{")
        if ran:
            result.update(json.loads(line))
            # while it holds everything open, look at it from outside
            if ex.get("pid") and os.path.exists(f"/proc/{ex['pid']}"):
                seen += self.posture[box["id"]].broken(ex["pid"])
            seen += case.check(self, box, result, {"status": "held"}) if case.check else []
            if fresh:
                seen += self.neighbour_answers()
        status, body = {"status": "running"}, b""
        try:
            self.instance.raw("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/stdin?close=true", body)
        except OSError:
            pass
        status = self.ended(box, ex, case.seconds)
        if status.get("status") == "running":
            self.instance.call("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/signal", {"signal": 9, "tree": True})
        if not ran and case.check:
            seen += case.check(self, box, result, status)
        claims, more = self.judge(result)
        seen += more
        if fresh:
            seen += self.neighbour_answers()
        if case.id != "PS-01" and not os.path.exists(f"/proc/{box['init_pid']}"):
            seen.append("the sandbox's init ended")
        # an attacker that was ended by a limit is silent; any other silence is no pass
        if not ran and status.get("status") not in ("oom", "limit", "disk_full", "signaled"):
            seen.append(f"no report from the attacker: {status} {self.output(box, ex, 'both')[:300]!r}")
        if ran and result["attempts"] == 0 and result["outcome"] == "blocked":
            seen.append("the attacker attempted nothing")
        seen = list(dict.fromkeys(seen))
        if claims or seen:
            outcome = "leaked" if result["outcome"] == "leaked" and not seen else "escaped"
            return Verdict(outcome, claims + seen, result, bool(seen))
        return Verdict("blocked", [result["errno"] or status.get("status", "")], result)

    def run(self, case, profile="default", user="root"):
        """One case, wherever it is driven from. An error of the harness is a failure, never a pass."""
        if self.user and (reason := cases.not_rootless(case, self.single)):
            return Verdict("unjudged", [reason])
        try:
            if case.kind != "outside":
                return self.inside(case, profile, user)
            outcome, detail = case.function(self)
            more = self.host.broken() + ([] if outcome == "unreachable" else self.neighbour_answers())
            if more:
                return Verdict("escaped", [detail] + more, by_oracle=True)
            return Verdict(outcome, [detail], by_oracle=outcome != "blocked")
        except (cay.ApiError, cay.CommandFailed, OSError, TypeError, RuntimeError, AssertionError, ValueError, KeyError, IndexError, EOFError, http.client.HTTPException,
                subprocess.SubprocessError) as error:
            return Verdict("error", [f"{type(error).__name__}: {error}"[:600]])


def nobody():
    return pwd.getpwnam("nobody").pw_uid
