# SPDX-License-Identifier: Apache-2.0
"""What the stories of `make demo` are told with: an instance of cay in a temporary directory, commands that are shown as a person would type
them with their real output, checks, and the same run as a page."""

import http.client
import json
import os
import pathlib
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
DEADLINE_SECONDS = 120
COLOUR = sys.stdout.isatty()


class Failed(Exception):
    """Something is not as it must be."""


def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def title(text):
    print(f"\n{paint('1;36', '== ' + text)}", flush=True)


def check(condition, text):
    if not condition:
        raise Failed(f"not so: {text}")
    print(paint("32", f"   ok: {text}"), flush=True)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Stage:
    """One story. A subclass has `steps`, methods in order: the docstring of each is its text on the page; and `head` and `tail` of the page."""

    steps = ()
    folder = ""
    head = tail = ""
    moral = ""  # said at the end

    def __init__(self, build, keep):
        self.cay_path = build / "cay"
        self.keep = keep
        self.top = pathlib.Path(tempfile.mkdtemp(prefix="cay-demo-"))
        self.top.chmod(0o755)  # the server gives up root and must still get to its state
        self.project = self.top / self.folder  # where commands are typed
        self.environment = dict(os.environ, CAY_STATE=str(self.top / "state"), CAY_RUN=str(self.top / "run"),
                                PATH=f"{build}:{os.environ['PATH']}", PYTHONDONTWRITEBYTECODE="1")
        self.environment.pop("CAY_SOCKET", None)
        self.server_pid = self.tag = None
        self.page = []

    # --- running commands ---

    def title(self, text):
        title(text)
        self.page.append(["title", text])

    def record(self, kind, text):
        """Keep a line for the tutorial, with this run's directory called what a reader's would be."""
        text = text.replace(str(self.project), f"~/{self.folder}").replace(str(self.top / "agents"), "~/cay/examples/agents")
        if self.page and self.page[-1][0] == "block" and kind == "line":
            self.page[-1][1] += text + "\n"
        else:
            self.page.append(["block" if kind == "line" else kind, text + "\n"])

    def start(self, *argv, **options):
        return subprocess.Popen([str(a) for a in argv], cwd=self.project, env=self.environment, text=True,
                                errors="replace", stdin=subprocess.DEVNULL, **options)

    def show_command(self, *argv, suffix="", shown=None):
        line = "$ " + (shown or shlex.join(str(a) for a in argv)) + suffix
        print(paint("1", line), flush=True)
        self.record("line", line)

    def show_line(self, line):
        print(f"  {line}")
        self.record("line", line)

    def typed_line(self, line, **options):
        """A command line for the shell."""
        return self.typed("sh", "-c", line, shown=line, **options)

    def typed(self, *argv, status=0, tail=None, shown=None):
        """Run a command as a person would, show it and its output (its last `tail` lines), check its exit status."""
        self.show_command(*argv, shown=shown)
        begin = time.monotonic()
        process = self.start(*argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise Failed(f"no end after {DEADLINE_SECONDS} s") from None
        lines = output.splitlines()
        if tail and len(lines) > tail:
            lines = [f"… {len(lines) - tail} lines"] + lines[-tail:]
        for line in lines:
            self.show_line(line)
        print(paint("2", f"  ({time.monotonic() - begin:.2f} s)"), flush=True)
        if process.returncode != status:
            raise Failed(f"exit status {process.returncode}, expected {status}")
        return output

    def cay(self, *argv, **options):
        return self.typed("cay", *argv, **options)

    def quiet(self, *argv):
        """The output of a cay command, not shown."""
        answer = subprocess.run([str(self.cay_path), *argv], cwd=self.project, env=self.environment,
                                capture_output=True, text=True, timeout=DEADLINE_SECONDS)
        if answer.returncode != 0:
            raise Failed(f"cay {shlex.join(argv)}: {answer.stderr.strip()}")
        return answer.stdout

    def ask(self, *argv):
        """The API object of a command, not shown."""
        return json.loads(self.quiet(*argv, "--json"))

    def get(self, path):
        """An object of the API that no command shows alone."""
        connection = UnixConnection(str(self.top / "run" / "cayd.sock"))
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise Failed(f"GET {path}: {answer.status} {text.decode()}")
        return json.loads(text)

    def note_server(self):
        """Once a command has started it."""
        version = self.ask("version")
        self.server_pid, self.tag = version["pid"], version["tag"]

    def changes(self, *argv):
        """{path: kind} of a diff."""
        return {change["path"]: change["kind"] for change in self.ask("diff", *argv)["changes"]}

    def events(self, name, prefix):
        """[(type, data)] of what a sandbox's log tells of one kind."""
        answer = subprocess.run([str(self.cay_path), "events", name, "--json"], cwd=self.project, env=self.environment,
                                capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=True)
        told = map(json.loads, answer.stdout.splitlines())
        return [(event["type"], event["data"]) for event in told if event["type"].startswith(prefix)]

    # --- beginning and end ---

    def stop_server(self):
        path = str(self.top / "run" / "cayd.sock")
        if not os.path.exists(path):
            return
        try:
            connection = UnixConnection(path)
            connection.request("POST", "/v1/shutdown", json.dumps({"sandboxes": "stop"}),
                               {"Content-Type": "application/json"})
            connection.getresponse().read()
        except OSError:
            pass
        self.wait_for_server()

    def wait_for_server(self):
        """Until the server's process is gone; it is ended when it does not go by itself."""
        if self.server_pid is None:
            return
        try:
            descriptor = os.pidfd_open(self.server_pid)
        except ProcessLookupError:
            return
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(20000):
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            raise Failed("the server did not end when asked to")
        os.close(descriptor)

    def leftovers(self):
        """What must not be there any more: mounts, control groups and processes of this instance."""
        found = [line.split()[4] for line in open("/proc/self/mountinfo") if str(self.top) in line]
        found += [str(path) for path in pathlib.Path("/sys/fs/cgroup").glob(f"*/cay-{self.tag}")]
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                if str(self.top).encode() in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                    found.append(f"process {process.name} {(process / 'comm').read_text().strip()}")
            except OSError:
                pass
        return found

    def close(self):
        self.stop_server()
        left, deadline = self.leftovers(), time.monotonic() + 10
        while left and time.monotonic() < deadline:  # cay-spawn goes after the server, and clears up behind itself
            select.select([], [], [], 0.05)
            left = self.leftovers()
        if self.keep:
            print(f"kept: {self.top}")
            return left
        for mount in left:
            if mount.startswith(str(self.top)):
                subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.top, ignore_errors=True)
        return left

    def run(self):
        for step in (getattr(self, name) for name in self.steps):
            prose = textwrap.fill(" ".join(step.__doc__.split()), 150)
            self.page.append(["prose", prose + "\n"])
            step()
            here = next(n for n in range(len(self.page) - 1, -1, -1) if self.page[n][0] == "prose")
            self.page[here], self.page[here + 1] = self.page[here + 1], self.page[here]

    def tutorial(self):
        """The run as a page."""
        text = self.head
        for kind, content in self.page:
            text += {"title": f"\n## {content}\n\n", "prose": f"{content}\n"}.get(kind, f"```console\n{content}```\n")
        return text + self.tail
