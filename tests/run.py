#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests: lint, unit programs, replayed fuzz corpora, and the Python files tests/*/test_*.py.

Every Python file runs in a process of its own below a supervisor, which is the subreaper of all it starts: what is left when the
file has ended (process, mount, loop device, cgroup, file) is a failure of its own, reported and then removed by process id. A file
that hangs is shown (processes, kernel stacks, log tails) and ended. REQUIRE=all turns skips into failures, REQUIRE=root,btrfs those.
Files that say WAITS = True wait for deadlines most of their time: several run side by side, before the others. --steady repeats what
failed by itself: what then passes three times of three is named "unsteady" instead, a few of them at most.
The last line is "N passed, N failed, N skipped". No test at all is a failure.
"""

import argparse
import concurrent.futures
import functools
import glob
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

PYTHON = "/usr/bin/python3"
TESTS = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(TESTS)
sys.path.insert(0, TESTS)
sys.dont_write_bytecode = True

from lib import leaks  # noqa: E402  pylint: disable=wrong-import-position
from lib.pace import patience  # noqa: E402  pylint: disable=wrong-import-position

PROGRAM_SECONDS = patience(120)
FILE_SECONDS, LONG_SECONDS = patience(900), patience(7200)
# How often a failed case must pass by itself to count as unsteady, and how many cases may: more are no accident.
REPEATS, UNSTEADY = 3, 5
WAITING_AT_ONCE = 6
# Programs that are built with sanitizers: left to itself undefined behaviour is told, and changes no status.
UNDEFINED = "print_stacktrace=1:halt_on_error=1"
say = threading.Lock()


class Totals:
    """Counts, and the one place that prints results."""

    def __init__(self, quiet):
        self.passed = self.failed = self.skipped = 0
        self.failures = {}  # name: how to run it again; None when cases behind it never ran, which no repetition shows
        self.unsteady = []
        self.quiet = quiet

    def add(self, result, name, seconds=0.0, detail="", again=None):
        with say:
            if result == "pass":
                self.passed += 1
            elif result == "skip":
                self.skipped += 1
            else:
                self.failed += 1
                self.failures[name] = again
            word = {"pass": "ok  ", "skip": "skip", "fail": "FAIL"}[result]
            reason = f"  ({detail})" if result == "skip" and detail else ""
            if result == "fail" or not self.quiet:
                print(f"{word} {name} {seconds:.2f}s{reason}")
            if result == "fail" and detail:
                print("     " + detail.rstrip().replace("\n", "\n     "))
            sys.stdout.flush()

    def repeat(self):
        """Run each failure again by itself. One that now always passes was a race: told as such, still to be mended, not a failure."""
        if not 0 < self.failed <= UNSTEADY or None in self.failures.values():
            return
        for name, again in list(self.failures.items()):
            print(f"\nagain: {name}")
            rounds = Totals(quiet=False)
            for _ in range(REPEATS):
                again(rounds)
            if rounds.passed >= REPEATS and not rounds.failed and not rounds.skipped:
                del self.failures[name]
                self.unsteady.append(name)
                self.failed -= 1
                self.passed += 1


# ---- programs: unit tests, corpora, lint -----------------------------------------------------------------------------------------

def run_program(argv, name, totals, required, tap=False):
    """One program: TAP gives a case a line, else the exit status is the case (77 = skipped)."""
    def again(rounds):
        run_program(argv, name, rounds, required, tap)
    start = time.monotonic()
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=PROGRAM_SECONDS, cwd=TOP, check=False, start_new_session=True,
                              env={**os.environ, "UBSAN_OPTIONS": UNDEFINED})
        text, status = done.stdout.decode(errors="replace"), done.returncode
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode(errors="replace") + f"\nstill running after {PROGRAM_SECONDS} s"
        status = -1
    seconds = time.monotonic() - start
    if status == 77:
        reason = text.strip().splitlines()[-1] if text.strip() else "no reason given"
        totals.add("fail" if "all" in required else "skip", name, seconds, reason, again)
        return
    seen = tap_lines(text, name, totals, required, argv) if tap else 0
    if status != 0 and (not tap or not re.search(r"^not ok", text, re.M)):
        totals.add("fail", name, seconds, f"status {status}\n{text[-4000:]}", again)
    elif not tap:
        totals.add("pass", name, seconds)
    elif seen == 0:
        totals.add("fail", name, seconds, "ran no case\n" + text[-2000:], again)


def tap_lines(text, name, totals, required, argv):
    """Report every case of a TAP output; comment lines before a failed case are its detail. Again it is run without the others: @argv and its name."""
    notes, seen = [], 0
    for line in text.splitlines():
        match = re.match(r"(not )?ok \d+ - (\S+)(?: # SKIP (.*?))?(?: # time=([0-9.]+))?$", line)
        if not match:
            notes.append(line)
            continue
        seen += 1
        seconds = float(match[4] or 0)

        def again(rounds, case=match[2]):
            run_program([*argv, case], name, rounds, required, True)
        if match[3] is not None:
            totals.add("fail" if "all" in required else "skip", f"{name}.{match[2]}", seconds, match[3], again)
        else:
            totals.add("fail" if match[1] else "pass", f"{name}.{match[2]}", seconds, "\n".join(notes), again)
        notes = []
    return seen


# ---- Python files ----------------------------------------------------------------------------------------------------------------

class Supervisor:
    """Runs one test file in a child, in this process: the subreaper of everything the file starts."""

    def __init__(self, path, options):
        self.path, self.options = path, options
        self.name = os.path.relpath(path, TESTS)[:-3]
        self.seconds = LONG_SECONDS if flag(path, "LONG") else FILE_SECONDS
        self.top, self.running, self.died = None, None, False
        self.tags = set()

    def report(self, **line):
        os.write(self.options.results, json.dumps(line).encode() + b"\n")

    def run(self):
        """Start the child, read its results until it ends or its deadline passes, then look for leaks."""
        leaks.become_subreaper()
        os.set_inheritable(self.options.results, False)
        before = leaks.listing() if self.options.exclusive else set()
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        child = subprocess.Popen(
            [PYTHON, "-B", os.path.join(TESTS, "lib", "case.py"), self.path, str(write_end), self.options.only or "",
             "1" if self.options.keep else "0"],
            pass_fds=[write_end], stdin=subprocess.DEVNULL, start_new_session=True, cwd=TOP)
        os.close(write_end)
        self.read_results(child, read_end)
        self.check_left(before)

    def read_results(self, child, fd):
        deadline = time.monotonic() + self.seconds
        pending = b""
        while True:
            leaks.reap(but=child.pid)
            if not select.select([fd], [], [], max(0, min(0.2, deadline - time.monotonic())))[0]:
                self.tags |= leaks.cgroup_tags(leaks.descendants(os.getpid()))
                if time.monotonic() < deadline:
                    continue
                self.hung()
                self.died = True
                child.kill()
                break
            data = os.read(fd, 65536)
            if not data:
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self.take(json.loads(line))
        status = child.wait()
        if status != 0 or self.running is not None:
            self.died = True
            self.report(case=self.running or "(file)", result="fail", seconds=0, final=True,
                        detail=f"the test process ended with {status}\n" + self.log_tails())

    def take(self, line):
        if "top" in line:
            self.top = line["top"]
        elif "begin" in line:
            self.running = line["begin"]
        else:
            self.running = None
            self.report(**line)

    def hung(self):
        text = f"the file still runs after {self.seconds} s\n"
        for pid in leaks.descendants(os.getpid()):
            text += f"  {leaks.describe(pid)}\n{leaks.stack(pid)}"
        self.report(case=self.running or "(file)", result="fail", detail=text + self.log_tails(), seconds=self.seconds, final=True)
        self.running = None

    def log_tails(self):
        text = ""
        for path in glob.glob((self.top or "/nonexistent") + "/**/*.log", recursive=True)[:8]:
            text += f"--- {path}\n" + "\n".join(leaks.read(path).splitlines()[-30:]) + "\n"
        return text

    def check_left(self, before):
        """Whatever is left now is a leak: name it, then remove it."""
        left = []
        stayed = leaks.wait_gone(os.getpid(), patience(5))
        self.tags |= leaks.cgroup_tags(stayed)
        left += ["process " + leaks.describe(pid) for pid in stayed]
        leaks.kill_all(os.getpid())
        if self.top is not None:
            left += ["mount " + m for m in leaks.mounts(self.top)] + ["loop device " + d for d in leaks.loops(self.top)]
            if os.path.exists(self.top) and not self.options.keep and not self.died:
                left.append("directory " + self.top)
        for tag in self.tags:
            left += ["cgroup " + leaks.cgroup_report(c) for c in leaks.cgroups(tag)]
        if self.options.exclusive:
            left += ["file " + n for n in sorted(leaks.listing() - before) if n != self.top]
        if left:
            self.report(case="(leaks)", result="fail", seconds=0, detail="\n".join(left))
        if left or self.died:
            self.remove()

    def remove(self):
        """Make the machine usable for the next file. Only what belongs to this file's own directory is touched."""
        if self.top is None or not self.top.startswith("/tmp/cayt-"):
            return
        for line in reversed(leaks.read("/proc/self/mountinfo").splitlines()):
            target = line.split()[4]
            if target.startswith(self.top):
                subprocess.run(["umount", "-l", target], check=False, capture_output=True)
        for device in leaks.loops(self.top):
            subprocess.run(["losetup", "-d", device.split()[0]], check=False, capture_output=True)
        for tag in self.tags:
            for path in leaks.cgroups(tag):
                for where, _, _ in os.walk(path, topdown=False):
                    try:
                        os.rmdir(where)
                    except OSError:
                        pass
        leaks.remove(self.top)


def run_file(path, options, totals):
    """Run the supervisor of one file and pass its results on. Results have a pipe of their own, what the tests print goes to a file."""
    name = os.path.relpath(path, TESTS)[:-3]

    def again(rounds, only=None):
        run_file(path, argparse.Namespace(**{**vars(options), "only": only or options.only}), rounds)
    read_end, write_end = os.pipe()
    argv = [PYTHON, "-B", os.path.abspath(__file__), "--supervise", path, "--only", options.only or "", "--results", str(write_end)]
    argv += ["--keep"] * options.keep
    start, seen, failed = time.monotonic(), 0, False
    with tempfile.TemporaryFile("a+", errors="replace") as noise, os.fdopen(read_end, errors="replace") as results:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=None if options.verbose else noise, stderr=subprocess.STDOUT,
                                   pass_fds=[write_end],
                                   env={**os.environ, "CAY_TEST_BUILD": options.build, "CAY_TEST_EXCLUSIVE": "1" if options.exclusive else "0"})
        os.close(write_end)

        def printed():
            noise.seek(0)
            lines = noise.readlines()
            marks = [i for i, line in enumerate(lines) if line.startswith("=== ")]
            return "".join(lines[marks[-1] if marks else 0:][-60:])
        for line in results:
            result = json.loads(line)
            seen += 1
            detail = result["detail"]
            if result["result"] == "fail":
                failed = True
                detail += "\n--- printed last\n" + printed()
            case = f"{name}.{result['case']}"
            only = case if result["case"].startswith("test_") else None  # a leak is of the file as a whole
            totals.add(result["result"], case, result["seconds"], detail, None if result.get("final") else functools.partial(again, only=only))
        if process.wait() != 0 and not failed:
            totals.add("fail", name, time.monotonic() - start, printed())
        elif seen == 0 and not options.only:
            totals.add("fail", name, time.monotonic() - start, "no case ran\n" + printed())


def run_files(files, jobs, options, totals):
    """Run @files, @jobs at a time. The machine's lists tell what a file left when it runs alone, and else what all of them did."""
    several = jobs > 1 and options.exclusive
    each = argparse.Namespace(**{**vars(options), "exclusive": False}) if several else options
    before = leaks.listing() if several else set()
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda f: run_file(f, each, totals), files))
    left = sorted(leaks.listing() - before) if several else []
    if left:
        totals.add("fail", "(leaks of those that ran side by side)", detail="\n".join("file " + name for name in left))


# ---- which -----------------------------------------------------------------------------------------------------------------------

def flag(path, name):
    """Does the test file say NAME = True? Read as text: importing it may need what is missing here."""
    return re.search(rf"^{name} = True\b", leaks.read(path), re.M) is not None


def chosen_files(options):
    files = sorted(glob.glob(os.path.join(TESTS, "*", "test_*.py")))
    if options.quick:
        files = [f for f in files if flag(f, "QUICK")]
    elif not options.long:
        files = [f for f in files if not flag(f, "LONG")]
    if not options.only:
        return [f for f in files if not flag(f, "APART")]
    return [f for f in files if any(may_hold(f, part) for part in options.only.split(","))]


def may_hold(path, part):
    """Can a case's name in file @path hold @part? Some files make their cases from a table: one that could be theirs counts."""
    name = os.path.relpath(path, TESTS)
    return part in name or part.startswith(name[:-3]) or any(part in case for case in re.findall(r"^def (test_\w+)", leaks.read(path), re.M))


def chosen_programs(options):
    """[(argv, name, tap)]"""
    found = []
    lint = os.path.join(TOP, "tools", "lint.py")
    if os.path.exists(lint):
        found.append(([PYTHON, "-B", lint] + (["--quick"] if options.quick else []), "lint", False))
    for build, prefix in ((options.build, ""), (options.sanitized, "sanitized/")):
        for path in sorted(glob.glob(os.path.join(build, "tests", "unit", "test_*"))) if build else []:
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                found.append(([path], f"{prefix}unit/{os.path.basename(path)[5:]}", True))
        for path in sorted(glob.glob(os.path.join(build, "fuzz", "replay_*"))) if build else []:
            if os.access(path, os.X_OK) and not os.path.isdir(path):
                corpus = os.path.join(TOP, "fuzz", "corpus", os.path.basename(path)[7:])
                found.append(([path, corpus], f"{prefix}fuzz/{os.path.basename(path)[7:]}", False))
    if options.only:
        found = [p for p in found if any(part in p[1] for part in options.only.split(","))]
    return found


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="unit tests, corpora and quick lint: under a minute")
    parser.add_argument("--long", action="store_true", help="also files that say LONG = True")
    parser.add_argument("--only", metavar="PART,…", help="only cases whose name holds a PART (exec/test_status.test_oom)")
    parser.add_argument("--jobs", type=int, default=max(1, min(2, os.cpu_count() or 1)), help="files at a time")
    parser.add_argument("--build", default=os.path.join(TOP, "build"), help="build directory")
    parser.add_argument("--sanitized", metavar="DIR", default="", help="build with sanitizers: its unit tests and corpora run too")
    parser.add_argument("--list", action="store_true", help="say what would run")
    parser.add_argument("--keep", action="store_true", help="keep the directories of the tests")
    parser.add_argument("--steady", action="store_true", help="repeat what failed by itself; what then always passes is unsteady, not failed")
    parser.add_argument("--exclusive", action="store_true", default=os.environ.get("CAY_TEST_EXCLUSIVE") == "1",
                        help="the machine is ours alone: any new file in /tmp, /run, /dev/shm is a leak")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the tests print")
    parser.add_argument("--supervise", metavar="FILE", help=argparse.SUPPRESS)
    parser.add_argument("--results", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def in_a_group_of_our_own():
    """An ordinary user's servers put their sandboxes below the control group that they are started in: get one from systemd, if it is there."""
    manager = os.path.join(os.environ.get("XDG_RUNTIME_DIR", "/nonexistent"), "systemd", "private")
    if os.getuid() != 0 and leaks.own_group() is None and os.path.exists(manager):
        os.execvp("systemd-run", ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes", "--", PYTHON, *sys.argv])


def main():
    in_a_group_of_our_own()
    options = parse()
    options.build = os.path.abspath(options.build)
    if options.supervise:
        Supervisor(options.supervise, options).run()
        return 0
    programs, files = chosen_programs(options), chosen_files(options)
    if options.list:
        for item in [name for _, name, _ in programs] + [os.path.relpath(f, TESTS)[:-3] for f in files]:
            print(item)
        return 0
    waiting, others = [f for f in files if flag(f, "WAITS")], [f for f in files if not flag(f, "WAITS")]
    totals = Totals(options.quick and not options.verbose)
    required = os.environ.get("REQUIRE", "").replace(",", " ").split()
    start = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda p: run_program(p[0], p[1], totals, required, p[2]), programs))
    run_files(waiting, WAITING_AT_ONCE, options, totals)
    run_files(others, 1 if options.exclusive else options.jobs, options, totals)
    if options.steady:
        totals.repeat()
    print(f"\n{time.monotonic() - start:.0f} s" + "".join(f"\nunsteady, it failed once and then passed {REPEATS} times: {name}" for name in totals.unsteady) +
          "".join(f"\nfailed: {name}" for name in totals.failures))
    if totals.passed + totals.failed == 0:
        print("no test ran")
    print(f"{totals.passed} passed, {totals.failed} failed, {totals.skipped} skipped")
    return 1 if totals.failed or not totals.passed else 0


if __name__ == "__main__":
    sys.exit(main())
