# SPDX-License-Identifier: Apache-2.0
"""The first story: a sandbox over a real small project.

A careless agent wrecks the shop (examples/shop), mails 10,000 people and calls a payment service, and nothing leaves; the sandbox is
rewound; three fixes of a real bug are tried side by side in three forks; the best one is brought back to the project on the host.
"""

import hashlib
import os
import shlex
import shutil
import subprocess

from demo_stage import DEADLINE_SECONDS, REPOSITORY, Stage, check

TESTS = ["python3", "-B", "-m", "unittest"]
FIXES = {"try-1": "fix_last_line.py", "try-2": "fix_store_shares.py", "try-3": "fix_largest_remainder.py"}
TUTORIAL_HEAD = """# The main job, step by step

This page is written by `tools/demo shop --tutorial docs/tutorial.md` from a real run, so the output is what the commands print. `make demo` runs the same and checks every step. To follow by
hand, build cay (`make`), put `build/` on your PATH, and copy the project: `cp -r ~/cay/examples/shop ~/shop`.
"""
TUTORIAL_TAIL = """
## Where to go from here

- `cay run -- COMMAND` does the most common part in one go: a sandbox over the current directory, one command, and the changes kept for you to look at, apply or drop.
- `cay help` lists all commands, `cay help VERB` explains one with examples; `--json` everywhere prints the API's object.
- `examples/agents` shows how a coding agent's commands go into a sandbox.
- `cay doctor` says what your machine can do.
"""


def tree_hashes(folder):
    """{path: (type, mode, content)} of everything below `folder`."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        entries[str(path.relative_to(folder))] = (oct(status.st_mode), content)
    return entries


class Shop(Stage):
    steps = ("prepare", "create", "first_tests", "careless_agent", "look", "reach_out", "rewind", "try_fixes", "judge", "apply", "discard")
    folder = "shop"
    head, tail = TUTORIAL_HEAD, TUTORIAL_TAIL
    moral = """The agent's damage stayed in its sandbox and was rewound; of its mails and payments there is a record, and nothing else.
  Of three fixes tried side by side the smallest one that passes every test is in the project now. Nothing else is left on this
  machine. The same by hand: docs/tutorial.md"""

    def prepare(self):
        """You need a project. Here it is the shop from `examples/shop`, copied somewhere else and put under git. One of its 38 tests
        fails: a real bug."""
        self.title("A project on this machine: a small shop, with one failing test (bug 1042)")
        shutil.copytree(REPOSITORY / "examples" / "shop", self.project,
                        ignore=shutil.ignore_patterns("__pycache__", "shop.db"))
        shutil.copytree(REPOSITORY / "examples" / "agents", self.top / "agents")
        self.show_command("cd", self.project)
        self.typed("python3", "seed.py")
        self.typed("git", "init", "-q", "-b", "main")
        self.typed("git", "add", "-A")
        self.typed("git", "-c", "user.name=demo", "-c", "user.email=demo@example.org", "commit", "-q", "-m", "the shop")
        self.host_before = tree_hashes(self.project)
        print(f"  {len(self.host_before)} files and directories; their checksums are noted")

    def create(self):
        """`create` makes a sandbox from the `host` image: this machine's own root, read-only, with home directories and credentials
        hidden. `--mount SRC:DST` lays a directory into it copy-on-write: the sandbox may change everything there, the directory itself is
        never written. The first command starts the server, `cayd`, in the background."""
        self.title("A sandbox over this machine's own root; the project is laid into it copy-on-write")
        self.cay("create", "--name", "shop", "--pids", "256", "--memory", "1G", "--policy", "policy.yaml",
                 "--mount", f"{self.project}:/shop", "--mount", f"{self.top / 'agents'}:/agents:ro")
        self.note_server()
        check(self.ask("info", "shop")["state"] == "running", "the sandbox runs")

    def first_tests(self):
        """`exec` runs a command and ends with its exit status. Inside there is no network device but its own loopback. A snapshot is named, so that it answers
        when it is safely on disk."""
        self.title("Its tests, inside: one fails, and cay ends with the command's own exit status")
        output = self.cay("exec", "-w", "/shop", "shop", "--", *TESTS, status=1, tail=12)
        check("Ran 38 tests" in output and "FAILED (failures=1)" in output, "38 tests ran, one failed")
        interfaces = self.cay("exec", "shop", "--", "python3", "-c", "import socket; print(socket.if_nameindex())")
        check(interfaces.strip() == "[(1, 'lo')]", "there is no network but its own loopback")
        self.cay("snapshot", "shop", "--name", "before-agent")
        check(self.ask("info", "before-agent")["state"] in ("durable", "verified"), "the snapshot is on disk")

    def careless_agent(self):
        """Now something goes wrong: an agent that means well. `--timeout` ends the command with everything that it started, and the
        exit status 124 says so. The sandbox lives on, and the diff shows exactly what happened to its files. The project on the host is untouched."""
        self.title("A careless agent works on it: deletes the database, leaves a git hook, ends in a fork bomb")
        self.cay("exec", "--timeout", "5s", "-w", "/shop", "shop", "--", "python3", "/agents/careless.py", status=124)
        self.cay("exec", "shop", "--", "echo", "the sandbox still answers")
        self.cay("diff", "before-agent", "shop")
        changed = self.changes("before-agent", "shop")
        wanted = {"/shop/shop.db": "deleted", "/shop/tests/test_server.py": "deleted", "/shop/tests/test_data.py": "deleted",
                  "/shop/shop/pricing.py": "modified", "/shop/README.md": "modified", "/shop/.git/config": "modified",
                  "/shop/.git/hooks/post-checkout": "added"}
        for path, kind in wanted.items():
            check(changed.get(path) == kind, f"{path} was {kind}")
        check(tree_hashes(self.project) == self.host_before, "on the host not one byte of the project changed")

    def look(self):
        """Every command, process and limit is in the log, whose entries are chained by hashes. Had you wanted these changes, `apply` would
        have named the ones that a program outside executes: the git hook and the git configuration."""
        self.title("What happened, and what bringing it back would have meant")
        output = self.typed_line("cay events shop | grep exec.ended")
        check("exec.ended" in output and "timeout" in output, "the log tells how the command ended")
        self.cay("events", "verify")
        self.cay("exec", "-w", "/shop", "shop", "--", *TESTS, status=1, tail=4)
        self.cay("apply", "shop", "--dry-run", status=1)
        self.cay("apply", "shop", status=125, tail=3)
        check(tree_hashes(self.project) == self.host_before, "neither changed anything on the host")

    def reach_out(self):
        """The same agent turns to the world: it mails ten thousand customers, pays money back through the payment service and posts the news.
        The policy gives it a mailbox that sends nothing, refuses payments in words that the agent can read, and names no other host. All that it
        tried is in the log: `cay net` and `cay mail ls` are views of it."""
        self.title("It mails 10,000 people and calls the payment service: nothing leaves")
        self.typed("cat", "policy.yaml")
        self.cay("exec", "shop", "--", "python3", "/agents/careless.py", "--reach-out")
        self.typed_line("cay mail ls shop | tail -n 2")
        self.typed_line("cay net shop | tail -n 6")
        told = self.events("shop", "net.")
        mails = [data for kind, data in told if kind == "net.mail"]
        check(self.ask("mail", "ls", "shop")["total"] == len(mails) == 100, "100 mails are in the mailbox")
        check(sum(mail["recipients"] for mail in mails) == 10000, "to 10000 people")
        tried = [(data["host"], data["outcome"], data["rule"]) for kind, data in told if kind == "net.exchange"]
        check(tried == [("api.payments.example", "denied", "payments")] * 3, "three refunds were denied")
        refused = {data["host"] for kind, data in told if kind == "net.denied"}
        check(refused == {"news.example"}, "another host was refused")
        check(not [kind for kind, _ in told if kind == "net.connection"], "no connection to the world was made")

    def rewind(self):
        """A rewind ends every process and puts the files back as the snapshot has them, however large the tree is."""
        self.title("Rewind: as if the agent had never been there")
        self.cay("rewind", "shop", "before-agent")
        output = self.cay("exec", "-w", "/shop", "shop", "--", *TESTS, status=1, tail=3)
        check("Ran 38 tests" in output and "FAILED (failures=1)" in output, "the 38 tests are back, with the one failure")
        self.cay("diff", "before-agent", "shop")
        check(self.changes("before-agent", "shop") == {}, "no difference from the snapshot")

    def try_fixes(self):
        """Three people would try three things. Three forks of the snapshot cost next to nothing; each is a sandbox of its own."""
        self.title("Three fixes of bug 1042, side by side in three forks of the snapshot")
        self.cay("fork", "before-agent", "--name", "try", "-n", "3")
        running = {}
        for name, script in FIXES.items():
            command = ["cay", "exec", "-w", "/shop", name, "--", "sh", "-c",
                       f"python3 -B /agents/{script} && {shlex.join(TESTS)}"]
            self.show_command(*command, suffix=" &")
            running[name] = self.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.show_command("wait")
        self.passed = {}
        for name, process in running.items():
            output, _ = process.communicate(timeout=DEADLINE_SECONDS)
            lines = output.splitlines()
            shown = [line for line in lines if line.startswith(("fixed", "FAIL", "ERROR", "Ran", "OK"))]
            for line in shown:
                self.show_line(f"{name}: {line}")
            self.passed[name] = process.returncode == 0
        check(self.passed == {"try-1": False, "try-2": True, "try-3": True}, "the first fix breaks other tests, two pass")

    def judge(self):
        """Tests alone do not decide. The first fix breaks other tests. The second passes them all, and the diff shows its price: a rebuilt
        table and a rewritten database. The third changes six lines."""
        self.title("Both that pass: what does each change?")
        sizes = {}
        for name in FIXES:
            self.cay("diff", name)
            if self.passed[name]:
                sizes[name] = self.ask("diff", name)["changes"]
        self.cay("diff", "try-3", "--text")
        self.best = min(sizes, key=lambda name: (len(sizes[name]), name))
        for name, changes in sizes.items():
            print(f"  {name}: {len(changes)} changed files: {', '.join(c['path'] for c in changes)}")
        check(self.best == "try-3", "the best is try-3: every test passes, and it touches one file")
        check("/shop/shop.db" in [c["path"] for c in sizes["try-2"]], "try-2 rewrites the database of every customer")

    def apply(self):
        """`--dry-run` shows what would happen. `--if` runs a command in a fork first and goes on only when it succeeds. Then the exact
        difference is written to the project, all or nothing, unless the project changed there meanwhile: that is a conflict, and nothing is written."""
        self.title("Keep the best: bring it to the project on the host")
        self.cay("apply", self.best, "--dry-run")
        check(tree_hashes(self.project) == self.host_before, "the dry run changed nothing")
        self.cay("apply", self.best, "--if", f"cd /shop && {shlex.join(TESTS)}")
        after = tree_hashes(self.project)
        differing = {p for p in after.keys() | self.host_before.keys() if after.get(p) != self.host_before.get(p)}
        check(differing == {"shop/pricing.py"}, "exactly one file of the project changed: shop/pricing.py")
        self.typed("git", "diff", "--stat")
        output = self.typed(*TESTS, tail=3)
        check("Ran 38 tests" in output and "OK" in output.splitlines(), "all 38 tests pass on the host")

    def discard(self):
        """`usage` reads the kernel's counters. `rm` removes sandboxes and snapshots."""
        self.title("What it used; and away with the rest")
        self.cay("usage", "shop")
        self.cay("ps")
        self.cay("rm", "-f", "shop", *FIXES)
        self.cay("rm", "before-agent")
        check(self.ask("ps")["sandboxes"] == [], "no sandbox is left")
