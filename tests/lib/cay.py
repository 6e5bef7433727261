# SPDX-License-Identifier: Apache-2.0
"""An instance of cay for tests: its own state, runtime directory and socket; the `cay` command; the HTTP API; frames; events."""

import contextlib
import glob
import http.client
import json
import os
import pty
import pwd
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

from lib import leaks
from lib.pace import patience

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
POSTGRESQL = max(glob.glob("/usr/lib/postgresql/*/bin"), default="/usr/lib/postgresql/bin")  # one version is installed at a time
BUILD = os.path.abspath(os.environ.get("CAY_TEST_BUILD", os.path.join(TOP, "build")))
START_SECONDS = patience(30)
STOP_SECONDS = patience(30)

REQUEST, REPLY, EVENT, STDIN, STDOUT, STDERR, STATUS, RESIZE, SIGNAL, WINDOW, OBJECT, ERROR, GAP = range(1, 14)


def fault_log(tmp):
    """A file for CAY_FAULT_LOG, to which all our processes may write the points that they pass."""
    log = os.path.join(tmp, "points")
    with open(log, "w", encoding="utf-8"):
        pass
    os.chmod(log, 0o666)
    return log


class CommandFailed(Exception):
    """`cay` ended with another status than the test wants."""


class ApiError(Exception):
    """The API answered with an error; .status, .code, .message, .hint, .body."""

    def __init__(self, status, body):
        self.status, self.body = status, body
        error = body.get("error", {}) if isinstance(body, dict) else {}
        self.code, self.message, self.hint = error.get("code"), error.get("message"), error.get("hint")
        super().__init__(f"{status} {self.code}: {self.message}")


class UnixConnection(http.client.HTTPConnection):
    """http.client over a unix socket."""

    def __init__(self, path, timeout=30):
        super().__init__("localhost", timeout=patience(timeout))
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Frames:
    """One upgraded stream (docs/design/0001): frames both ways."""

    def __init__(self, sock, rest=b""):
        self.sock, self.rest = sock, rest

    def send(self, kind, payload=b"", channel=0):
        if isinstance(payload, (dict, list)):
            payload = json.dumps(payload).encode()
        self.sock.sendall(struct.pack("<IBBH", len(payload), kind, 0, channel) + payload)

    def next(self, timeout=30):
        """The next frame as (type, channel, payload), or None at the end of the stream."""
        deadline = time.monotonic() + patience(timeout)
        while True:
            if len(self.rest) >= 8:
                size, kind, _, channel = struct.unpack("<IBBH", self.rest[:8])
                if len(self.rest) >= 8 + size:
                    payload, self.rest = self.rest[8:8 + size], self.rest[8 + size:]
                    return kind, channel, payload
            self.sock.settimeout(max(0.01, deadline - time.monotonic()))
            more = self.sock.recv(65536)
            if not more:
                if self.rest:
                    raise EOFError("the stream ends inside a frame")
                return None
            self.rest += more

    def until(self, wanted, timeout=30):
        """Frames up to and with the first of type @wanted."""
        seen, deadline = [], time.monotonic() + patience(timeout)
        while True:
            frame = self.next(max(0.01, deadline - time.monotonic()))
            if frame is None:
                raise EOFError(f"the stream ended before a frame of type {wanted}; seen {seen}")
            seen.append(frame)
            if frame[0] == wanted:
                return seen

    def collect(self, timeout=30):
        """All output and the final status: (stdout, stderr, status or None)."""
        out, err, status = b"", b"", None
        deadline = time.monotonic() + patience(timeout)
        while (frame := self.next(max(0.01, deadline - time.monotonic()))) is not None:
            kind, channel, payload = frame
            if kind == STDOUT:
                out += payload[8:]
            elif kind == STDERR:
                err += payload[8:]
            elif kind == STATUS:
                status = json.loads(payload)
            elif kind == ERROR:
                raise ApiError(0, json.loads(payload))
            if kind in (STDOUT, STDERR):
                self.send(WINDOW, struct.pack("<I", len(payload) - 8), channel)
        return out, err, status

    def close(self):
        self.sock.close()


def reachable(programs, folder):
    """@programs, or a copy of them in @folder when other users cannot get there (a checkout in /root)."""
    at = programs
    while os.stat(at).st_mode & 0o001 and at != "/":
        at = os.path.dirname(at)
    if at == "/":
        return programs
    place = os.path.join(folder, "programs")
    os.mkdir(place, 0o755)
    for entry in os.scandir(programs):
        if entry.name.startswith("cay") and entry.is_file():
            shutil.copy(entry.path, place)
    return place


class Instance:
    """One cayd of this build with its own places; ends with everything that it started."""

    def __init__(self, parent="/tmp", user=None, env=None, programs=BUILD):
        self.dir = tempfile.mkdtemp(prefix="i-", dir=parent)
        os.chmod(self.dir, 0o755)  # cayd gives up root and must get through
        self.user, self.programs = user, programs if user is None else reachable(programs, self.dir)
        self.state, self.run = os.path.join(self.dir, "state"), os.path.join(self.dir, "run")
        self.socket = os.path.join(self.run, "cayd.sock")
        self.log = os.path.join(self.dir, "cayd.log")
        self.extra = dict(env or {})
        self.filters = 0  # system call filters that its programs begin under
        self.no_new_privs = False  # an ordinary user's gain none
        self.process, self.answered = None, False
        self.tags = set()
        for path in (self.state, self.run):
            os.mkdir(path, 0o755)
        if user is not None:
            for path in (self.dir, self.state, self.run):
                os.chown(path, user.pw_uid, user.pw_gid)

    # -- life -------------------------------------------------------------------------------------------------------------------

    def environment(self, **more):
        keep = ("PATH", "HOME", "LANG", "TERM", "TMPDIR", "CAY_WITHOUT", "CAY_DEBUG", "CAY_ABLATE", "ASAN_OPTIONS", "UBSAN_OPTIONS",
                "MALLOC_PERTURB_", "CAY_STRICT", "CAY_LAZY_RESUME")
        env = {k: os.environ[k] for k in keep if k in os.environ}
        env.update(CAY_STATE=self.state, CAY_RUN=self.run, CAY_SOCKET=self.socket)
        if self.user is not None:
            env.update(HOME=self.user.pw_dir, USER=self.user.pw_name, LOGNAME=self.user.pw_name)
            # on a hybrid host a delegated v2 group freezes and kills, but has no controllers for limits
            if not os.path.exists(os.path.join(ThrowawayUser.group(self.user.pw_name), "memory.max")):
                env["CAY_ACCEPT_NO_LIMITS"] = "1"
        elif not leaks.own_group():
            env["CAY_ACCEPT_NO_LIMITS"] = "1"
        env.update(self.extra)
        env.update(more)
        return env

    def command(self, argv):
        """How a program of this instance is started: as its user, when it has one."""
        if self.user is not None:
            argv = ["sh", "-c", 'if [ -d "$1" ]; then echo $$ > "$1/server/cgroup.procs"; fi && shift && exec setpriv "$@"', "sh", ThrowawayUser.group(self.user.pw_name),
                    f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--clear-groups",
                    *(["--no-new-privs"] if self.no_new_privs else []), "--", *argv]
        if self.filters > 0:
            argv = [sys.executable, os.path.join(TOP, "tests", "lib", "filtered.py"), str(self.filters), shutil.which(argv[0]), *argv[1:]]
        return argv

    def popen(self, argv, env=None, **kwargs):
        """Start a program of this instance."""
        kwargs.setdefault("cwd", self.dir)
        return subprocess.Popen(self.command(argv), env=env or self.environment(), **kwargs)

    def start(self, **more):
        """Start cayd in the foreground and wait until it answers. @more: environment."""
        with open(self.log, "ab") as log:
            self.process = self.popen([os.path.join(self.programs, "cayd"), "--foreground"], env=self.environment(**more),
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        self.wait_answering()
        self.answered = True
        self.note_tags()
        return self

    def wait_answering(self, seconds=START_SECONDS):
        """Until the socket accepts: connecting blocks nowhere, so look again each time the runtime directory changes."""
        deadline = time.monotonic() + seconds
        watch = DirectoryWatch(self.run)
        try:
            while True:
                try:
                    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                        s.connect(self.socket)
                    return
                except (FileNotFoundError, ConnectionRefusedError):
                    pass
                if self.process is not None and self.process.poll() is not None:
                    raise RuntimeError(f"cayd ended with {self.process.returncode}\n" + self.log_tail())
                if time.monotonic() > deadline:
                    raise RuntimeError(f"cayd does not answer after {seconds} s\n" + self.log_tail())
                watch.wait(0.1)
        finally:
            watch.close()

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def crash(self):
        """How cayd ended, as text, when nobody asked it to; else ""."""
        status = self.process.poll() if self.process is not None else None
        if status in (None, 0, -signal.SIGKILL, -signal.SIGTERM) or not self.answered:
            return ""
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"cayd ended by itself: {how}\n" + self.log_tail()

    def note_tags(self):
        """Remember which cgroups are this instance's; the server says."""
        self.tags.add("cay-" + self.get("/v1/version")["tag"])

    def kill(self):
        """kill -9 of cayd alone; keepers stay."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self):
        """Ask cayd to end and wait for it. Sandboxes stay."""
        if not self.alive():
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"cayd ignores SIGTERM\n{leaks.describe(self.process.pid)}\n" + self.log_tail()) from error

    def close(self):
        """Remove every sandbox, stop cayd, check that nothing is left, delete the directory."""
        if self.process is None:
            shutil.rmtree(self.dir, ignore_errors=True)
            return
        try:
            if not self.answered:
                return
            crash = self.crash()
            if not self.alive():
                self.start()
            for box in self.get("/v1/sandboxes").get("sandboxes", []):
                self.remove(box["id"])
            self.stop()
            self.check_clean()
            if crash:
                raise AssertionError(crash)
        finally:
            if self.alive():
                self.process.kill()
                self.process.wait(STOP_SECONDS)
            self.put_away()
            leaks.remove(self.dir)

    def leftovers(self, seconds=10):
        """What is left of a stopped instance, as text lines. Waits for what is on its way out."""
        mine = self.own_processes()
        deadline = time.monotonic() + patience(seconds)
        while mine and time.monotonic() < deadline:
            with_fd = [leaks.os.pidfd_open(p) for p in mine if os.path.exists(f"/proc/{p}")][:1]
            for fd in with_fd:
                select.select([fd], [], [], 0.2)
                os.close(fd)
            leaks_reap_known(self)
            mine = self.own_processes()
        self.put_away()
        found = ["process " + leaks.describe(p) for p in mine]
        found += ["mount " + m for m in leaks.mounts(self.dir)]
        found += ["loop device " + d for d in leaks.loops(self.dir)]
        for tag in self.tags:
            found += ["cgroup " + leaks.cgroup_report(c) for c in leaks.cgroups(tag)]
        keepers = os.path.join(self.run, "keepers")
        if os.path.isdir(keepers):
            found += ["socket " + n for n in os.listdir(keepers)]
        return found

    def put_away(self):
        """What stays by design when cayd ends: the mounted pool, and the instance's own cgroup while nothing is in it."""
        pool = os.path.join(self.state, "pool")
        if os.path.ismount(pool):
            subprocess.run(["umount", pool], check=False, capture_output=True)
        for tag in self.tags:
            for path in leaks.cgroups(tag):
                try:
                    os.rmdir(path)
                except OSError:
                    pass

    def own_processes(self):
        """Live processes in the cgroups of this instance, or whose environment names its state directory."""
        mine = []
        mark = ("CAY_STATE=" + self.state).encode()
        for pid, (_, state, _) in leaks.processes().items():
            if state == "Z" or pid == os.getpid():
                continue
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    named = mark in f.read().split(b"\0")
            except OSError:
                named = False
            if named or leaks.cgroup_tags([pid]) & self.tags:
                mine.append(pid)
        return mine

    def programs_named(self, name):
        """Pids of its own processes that run the program @name, as the kernel knows it (a template has no command line any more)."""
        return [pid for pid in self.own_processes() if is_named(pid, name)]

    def check_clean(self):
        left = self.leftovers()
        if left:
            raise AssertionError("left behind:\n  " + "\n  ".join(left) + "\n" + self.log_tail())

    def log_tail(self, lines=40):
        text = leaks.read(self.log).splitlines()[-lines:]
        return f"--- {self.log} (last {len(text)} lines)\n" + "\n".join(text) + "\n"

    # -- the command --------------------------------------------------------------------------------------------------------------

    def cay(self, *args, stdin=None, check=True, want=0, timeout=60, env=None, cwd=None, text=True):
        """Run `cay ARGS`. Returns CompletedProcess; fails unless the exit status is @want (check=False: any)."""
        argv = [os.path.join(self.programs, "cay"), *map(str, args)]
        given = stdin.encode() if isinstance(stdin, str) else stdin
        process = self.popen(argv, env=self.environment(**(env or {})), cwd=cwd or self.dir,
                             stdin=subprocess.DEVNULL if given is None else subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            out, err = process.communicate(given, patience(timeout))
        except subprocess.TimeoutExpired as error:
            where = leaks.describe(process.pid) + "\n" + leaks.stack(process.pid)
            process.kill()
            out, err = process.communicate()
            raise RuntimeError(f"{' '.join(argv)}: no end after {patience(timeout)} s\n{where}\nstdout: {out[-2000:]!r}\n"
                               f"stderr: {err[-2000:]!r}\n" + self.log_tail()) from error
        done = subprocess.CompletedProcess(argv, process.returncode, out, err)
        if text:
            done.stdout, done.stderr = out.decode(errors="replace"), err.decode(errors="replace")
        if check and done.returncode != want:
            raise CommandFailed(f"{' '.join(argv)}: status {done.returncode}, want {want}\nstdout: {done.stdout[-3000:]}\n"
                                f"stderr: {done.stderr[-3000:]}\n" + self.log_tail())
        return done

    def json(self, *args, **kwargs):
        """Run `cay ARGS --json` and parse what it prints. Options come before a "--"."""
        args = list(args)
        at = args.index("--") if "--" in args else len(args)
        args.insert(at, "--json")
        return json.loads(self.cay(*args, **kwargs).stdout)

    def terminal(self, *args, rows=24, columns=80):
        """Start `cay ARGS` on a terminal of its own: (process, descriptor of the other end)."""
        ours, theirs = pty.openpty()
        import fcntl
        import termios
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

        def control():
            os.setsid()
            fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        process = self.popen([os.path.join(self.programs, "cay"), *map(str, args)], stdin=theirs, stdout=theirs, stderr=theirs,
                             preexec_fn=control, env=self.environment(TERM="xterm"))
        os.close(theirs)
        return process, ours

    def at_terminal(self, *args, seconds=60):
        """(status, what it showed) of `cay ARGS` on a terminal."""
        process, terminal = self.terminal(*args)
        shown = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while more := os.read(terminal, 65536):
                shown += more
        os.close(terminal)
        return process.wait(patience(seconds)), shown.decode(errors="replace")

    # -- the API --------------------------------------------------------------------------------------------------------------------

    def raw(self, method, path, body=None, headers=None, timeout=30):
        """One request, any body: (status, headers, bytes)."""
        connection = UnixConnection(self.socket, timeout)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def call(self, method, path, body=None, headers=None, timeout=60):
        """One JSON request. Returns the parsed answer; raises ApiError."""
        head = dict(headers or {})
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            head.setdefault("Content-Type", "application/json")
        status, _, text = self.raw(method, path, data, head, timeout)
        try:
            answer = json.loads(text) if text else {}
        except ValueError:
            answer = {"error": {"code": None, "message": f"not JSON: {text[:300]!r}"}}
            status = status if status >= 400 else 599
        if status >= 400:
            raise ApiError(status, answer)
        return answer

    def get(self, path, **kwargs):
        return self.call("GET", path, **kwargs)

    def post(self, path, body=None, **kwargs):
        return self.call("POST", path, body, **kwargs)

    def upgrade(self, method, path, body=None, timeout=30):
        """A request that becomes a frame stream. Raises ApiError when it is refused."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(patience(timeout))
        sock.connect(self.socket)
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: cay-frames\r\n"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n"
        sock.sendall(head.encode() + b"\r\n" + data)
        received = b""
        while b"\r\n\r\n" not in received:
            more = sock.recv(65536)
            if not more:
                raise EOFError(f"connection closed after {received!r}")
            received += more
        start, rest = received.split(b"\r\n\r\n", 1)
        status = int(start.split(b" ", 2)[1])
        if status != 101:
            size = [int(line.split(b":")[1]) for line in start.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            while size and len(rest) < size[0] and (more := sock.recv(65536)):
                rest += more
            sock.close()
            raise ApiError(status, json.loads(rest or b"{}"))
        return Frames(sock, rest)

    def run_stream(self, argv, sandbox=None, **options):
        """POST /v1/run: the frame stream of a new sandbox with one exec."""
        rm = options.pop("rm", True)
        return self.upgrade("POST", "/v1/run", {"sandbox": sandbox or {}, "exec": {"argv": argv, **options}, "rm": rm})

    def events(self, sandbox=None, start=0):
        """All events written so far, of one sandbox or of all."""
        path = f"/v1/sandboxes/{sandbox}/events" if sandbox else "/v1/events"
        status, _, text = self.raw("GET", f"{path}?from={start}")
        if status != 200:
            raise ApiError(status, json.loads(text))
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    def wait_event(self, kind, sandbox=None, match=lambda event: True, start=0, timeout=30):
        """Follow the log until an event of type @kind that @match accepts."""
        path = (f"/v1/sandboxes/{sandbox}/events" if sandbox else "/v1/events") + f"?follow=true&from={start}"
        connection = UnixConnection(self.socket, timeout)
        deadline = time.monotonic() + patience(timeout)
        try:
            connection.request("GET", path, headers={"Accept": "application/x-ndjson"})
            answer = connection.getresponse()
            while time.monotonic() < deadline:
                line = answer.readline()
                if not line:
                    break
                event = json.loads(line) if line.strip() else {}
                if event.get("type") == kind and match(event):
                    return event
        except TimeoutError:
            pass
        finally:
            connection.close()
        raise AssertionError(f"no event {kind} in {patience(timeout)} s; log: {[e.get('type') for e in self.events(sandbox)][-20:]}")

    # -- sandboxes and execs --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def sandbox(self, **spec):
        """A running sandbox that is removed at the end; gives its id."""
        box = self.post("/v1/sandboxes", spec)["id"]
        try:
            yield box
        finally:
            self.remove(box)

    def remove(self, box):
        """Remove a sandbox, unless it is gone already."""
        try:
            self.call("DELETE", f"/v1/sandboxes/{box}?force=true")
        except ApiError as error:
            if error.code != "not_found":
                raise

    def exec(self, box, *argv, headers=None, **options):
        """Start a command; the exec object as the API gives it."""
        return self.post(f"/v1/sandboxes/{box}/execs", {"argv": list(argv), **options}, headers=headers)

    def wait(self, box, run, seconds=60):
        """Wait for the end of an exec; its final status object."""
        name = run["id"] if isinstance(run, dict) else run
        ended = self.get(f"/v1/sandboxes/{box}/execs/{name}?wait_ms={int(patience(seconds) * 1000)}", timeout=seconds + 30)
        if ended["state"] != "ended":
            raise AssertionError(f"exec {ended['argv']} is still {ended['state']} after {seconds} s\n" + self.log_tail())
        return ended["status"]

    def output(self, box, run, stream="both", start=0, follow=False, timeout=60):
        """Output of an exec as bytes."""
        name = run["id"] if isinstance(run, dict) else run
        query = f"from={start}&stream={stream}&follow={'true' if follow else 'false'}"
        status, _, data = self.raw("GET", f"/v1/sandboxes/{box}/execs/{name}/output?{query}", timeout=timeout)
        if status != 200:
            raise ApiError(status, json.loads(data))
        return data

    def sh(self, box, script, seconds=60, **options):
        """Run a shell script to its end: (final status, stdout, stderr)."""
        run = self.exec(box, "/bin/sh", "-c", script, **options)
        status = self.wait(box, run, seconds)
        return status, self.output(box, run, "stdout").decode(errors="replace"), self.output(box, run, "stderr").decode(errors="replace")

    def ok(self, box, script, seconds=60, **options):
        """Run a shell script that must succeed; its standard output."""
        status, out, err = self.sh(box, script, seconds, **options)
        if (status["status"], status.get("code")) != ("exited", 0):
            raise AssertionError(f"{script}\n{status}\nstdout: {out[-3000:]}\nstderr: {err[-3000:]}")
        return out

    def attach(self, box, run, start=0):
        name = run["id"] if isinstance(run, dict) else run
        return self.upgrade("GET", f"/v1/sandboxes/{box}/execs/{name}/attach?from={start}")


def is_named(pid, name):
    """Is @pid called @name? A template that is started ahead of time is called cay-template until it has had its first turn, and cay-spare from then on."""
    if leaks.read(f"/proc/{pid}/comm").strip() != name:
        return False
    if name != "cay-template":
        return True
    megabytes = leaks.read(f"/proc/{pid}/cmdline").split("\0")[2:3]  # that it is to have ready; it gives up its arguments behind its name
    return megabytes in ([], ["0"]) and leaks.read(f"/proc/{pid}/comm").strip() == name


def leaks_reap_known(instance):
    """Collect ended orphans of ours, but leave cayd's own status to subprocess."""
    for pid in leaks.descendants(os.getpid()):
        if instance.process is not None and pid == instance.process.pid:
            continue
        if leaks.processes().get(pid, (0, "", ""))[1] == "Z":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


class DirectoryWatch:
    """inotify on one directory: wait() returns when something in it changed, or after the time given."""

    def __init__(self, path):
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        libc.inotify_add_watch(self.fd, path.encode(), 0x3c8)

    def wait(self, seconds):
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                os.read(self.fd, 65536)
            except BlockingIOError:
                pass

    def close(self):
        os.close(self.fd)


def wait_until(condition, seconds, what, watch=None):
    """Ask @condition until it holds; between two asks wait for a change in directory @watch, else give up the processor."""
    deadline = time.monotonic() + patience(seconds)
    watcher = DirectoryWatch(watch) if watch else None
    try:
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not after {seconds} s")
            if watcher:
                watcher.wait(0.1)
            else:
                select.select([], [], [], 0.02)
    finally:
        if watcher:
            watcher.close()


class ThrowawayUser:
    """An account with subordinate ids and a delegated control group for rootless tests; removed at the end with everything of it."""

    @staticmethod
    def group(name):
        """Where the account's delegated group is: what systemd's user manager would have given it. Its processes are in the leaf `server`."""
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            point = next(line.split()[4] for line in f if " - cgroup2 " in line)
        return os.path.join(point, f"{name}.delegated")

    def delegate(self):
        group = self.group(self.name)
        for folder in (group, os.path.join(group, "server")):  # DelegateSubgroup=server
            os.mkdir(folder)
            for name in ("", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"):
                os.chown(os.path.join(folder, name), self.entry.pw_uid, self.entry.pw_gid)

    def __enter__(self):
        self.name = f"cayt{os.getpid()}"
        self.home = tempfile.mkdtemp(prefix="cayu-", dir="/tmp")
        subprocess.run(["useradd", "--no-create-home", "--home-dir", self.home, "--shell", "/bin/sh",
                        "--add-subids-for-system", "--system", self.name], check=True, capture_output=True)
        self.entry = pwd.getpwnam(self.name)
        os.chown(self.home, self.entry.pw_uid, self.entry.pw_gid)
        os.chmod(self.home, 0o755)
        self.delegate()
        return self.entry

    def __exit__(self, *_):
        for folder, _folders, _files in os.walk(self.group(self.name), topdown=False):
            os.rmdir(folder)
        subprocess.run(["userdel", "-f", self.name], check=False, capture_output=True)
        subprocess.run(["rm", "-rf", "--one-file-system", self.home], check=False)
