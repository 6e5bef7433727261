# SPDX-License-Identifier: Apache-2.0
"""Test cases: requirements, checks, and the program that runs the functions of one test file.

A test file holds functions named test_*; each is one case. A parameter named `instance` gets the file's running cayd, `fresh` gets a
cayd of its own, `tmp` a directory of its own. At the top of the file may stand TIMEOUT (seconds for one case, default 120), LONG = True
(only in make test-long), APART = True (only when --only names it: the Makefile has a word for it), QUICK = True (also before a landing),
WAITS = True (it waits for deadlines most of the time: run beside others of that kind, before the rest).
`require("root")` above a function skips it with a reason where that is missing.
"""

import ctypes
import importlib.util
import inspect
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback


class Skip(Exception):
    """The machine lacks something; the reason is the message."""


class Timeout(Exception):
    """The case took longer than its deadline."""


# ---- what the machine has -------------------------------------------------------------------------------------------------------

def _has_cgroup2():
    with open("/proc/self/mountinfo") as f:
        return any(" - cgroup2 " in line for line in f)


def _has_group():
    from lib import leaks
    return leaks.own_group() is not None


def _has_limits():
    from lib import leaks
    return os.getuid() == 0 or os.path.exists(os.path.join(leaks.own_group() or "/nonexistent", "memory.max"))


def _has_btrfs():
    with open("/proc/filesystems") as f:
        known = "btrfs" in f.read()
    return known and shutil.which("mkfs.btrfs") is not None


def _release():
    return tuple(int(number) for number in re.match(r"(\d+)\.(\d+)", os.uname().release).groups())


def _has_userns():
    def child():
        if ctypes.CDLL(None).unshare(0x10000000) != 0:
            os._exit(1)
        os._exit(0)
    pid = os.fork()
    if pid == 0:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        child()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _has_userfaultfd():
    """Also where /dev has no node for it: the call alone is what cay uses."""
    descriptor = ctypes.CDLL(None).syscall(323, os.O_CLOEXEC)
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def _has_landlock():
    """The version of the interface that this kernel has, if it has one."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) > 0


PROBES = {
    "root": (lambda: os.getuid() == 0, "needs root"),
    "cgroup2": (_has_cgroup2, "no cgroup v2 hierarchy is mounted"),
    "group": (_has_group, "no control group was delegated to this user"),
    "limits": (_has_limits, "no control group with controllers was delegated to this user"),
    "btrfs": (_has_btrfs, "no btrfs in this kernel, or no mkfs.btrfs"),
    "btrfs_squota": (lambda: _has_btrfs() and os.path.exists("/sys/fs/btrfs/features/simple_quota"), "no btrfs with simple quotas: pools are directories"),
    "timer_ids": (lambda: _release() >= (6, 15), "before Linux 6.15 POSIX timers cannot be given a number"),
    "mapping_flags": (lambda: _release() >= (6, 11), "before Linux 6.11 nothing says quickly what may be done with a mapping"),
    "ping_sockets": (lambda: _release() >= (6, 18), "before Linux 6.18 sandboxes may not make ping sockets"),
    "userns": (_has_userns, "ordinary users may not make user namespaces here"),
    "newuidmap": (lambda: shutil.which("newuidmap") is not None, "newuidmap is not installed"),
    "loop": (lambda: os.path.exists("/dev/loop-control"), "no loop devices"),
    "timens": (lambda: os.path.exists("/proc/self/ns/time"), "no time namespaces in this kernel"),
    "landlock": (_has_landlock, "no Landlock in this kernel"),
    "userfaultfd": (_has_userfaultfd, "no userfaultfd in this kernel"),
}
_probed = {}


def missing(name):
    """None when the machine has @name, else the reason why a test that needs it cannot run."""
    if name not in _probed:
        if name.startswith("program:"):
            program = name.split(":", 1)[1]
            path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
            _probed[name] = None if shutil.which(program, path=path) else f"{program} is not installed"
        else:
            probe, reason = PROBES[name]
            _probed[name] = None if probe() else reason
    return _probed[name]


def require(*names):
    """Decorator: skip where one of @names is missing (a failure where REQUIRE says so)."""
    def mark(function):
        function.requirements = getattr(function, "requirements", ()) + names
        return function
    return mark


def timeout(seconds):
    """Decorator: another deadline for one case."""
    def mark(function):
        function.timeout = seconds
        return function
    return mark


# ---- checks ---------------------------------------------------------------------------------------------------------------------

def equal(got, want, what=""):
    if got != want:
        raise AssertionError(f"{what + ': ' if what else ''}got {got!r}, want {want!r}")


def contains(text, part, what=""):
    if part not in text:
        raise AssertionError(f"{what + ': ' if what else ''}{part!r} is not in {text!r}")


def raises(kind, function, *args, **kwargs):
    """Call; return the exception of @kind that it must raise."""
    try:
        result = function(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}; returned {result!r}")


# ---- running one file -----------------------------------------------------------------------------------------------------------

class Runner:
    """Runs the cases of one file in this process and writes one JSON line for each to @out."""

    def __init__(self, path, out, parts, keep):
        self.path, self.out, self.parts, self.keep = path, out, parts, keep
        self.shared = None
        self.top = tempfile.mkdtemp(prefix="cayt-", dir="/tmp")
        os.chmod(self.top, 0o755)
        self.required = os.environ.get("REQUIRE", "").replace(",", " ").split()

    def load(self):
        name = os.path.basename(self.path)[:-3]
        spec = importlib.util.spec_from_file_location(name, self.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    def cases(self, module):
        found = [f for n, f in vars(module).items()
                 if n.startswith("test_") and inspect.isfunction(f) and f.__module__ == module.__name__]
        found.sort(key=lambda f: f.__code__.co_firstlineno)
        file = os.path.relpath(self.path, os.path.dirname(os.path.dirname(self.path)))
        return [f for f in found if any(part in f"{file[:-3]}.{f.__name__}" for part in self.parts)]

    def emit(self, **line):
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()

    def arguments(self, function, stack):
        from lib import cay
        given = {}
        for name in inspect.signature(function).parameters:
            if name == "instance":
                if self.shared is not None and not self.shared.alive():
                    stack.append(self.shared.close)  # says why, if it was not asked to
                    self.shared = None
                if self.shared is None:
                    self.shared = cay.Instance(self.top)
                    self.shared.start()
                given[name] = self.shared
            elif name == "fresh":
                given[name] = cay.Instance(self.top)
                stack.append(given[name].close)
                given[name].start()
            elif name == "tmp":
                given[name] = tempfile.mkdtemp(prefix="t-", dir=self.top)
                os.chmod(given[name], 0o755)
            else:
                raise TypeError(f"{function.__name__}: no such fixture: {name}")
        return given

    def run_case(self, function, default_timeout):
        """Returns (result, detail)."""
        from lib.pace import patience
        for need in getattr(function, "requirements", ()):
            reason = missing(need)
            if reason is not None:
                return self.skipped(need, reason)
        seconds = patience(getattr(function, "timeout", default_timeout))
        stack = []
        signal.alarm(seconds)
        try:
            function(**self.arguments(function, stack))
            return "pass", ""
        except Skip as reason:
            return self.skipped("", str(reason))
        except Timeout:
            return "fail", f"still running after {seconds} s\n" + traceback.format_exc() + self.said_last()
        except BaseException:  # pylint: disable=broad-except
            return "fail", traceback.format_exc() + self.said_last()
        finally:
            signal.alarm(patience(60))
            for step in reversed(stack):
                step()
            signal.alarm(0)

    def said_last(self):
        """What the shared server has to say about a failure."""
        return (self.shared.crash() or self.shared.log_tail()) if self.shared else ""

    def skipped(self, need, reason):
        if "all" in self.required or need in self.required:
            return "fail", f"skipped although REQUIRE is set: {reason}"
        return "skip", reason

    def run(self):
        def expired(_signal, _frame):
            raise Timeout(hang_report())  # now: unwinding ends the processes that hang
        signal.signal(signal.SIGALRM, expired)
        module = self.load()
        for function in self.cases(module):
            start = time.monotonic()
            print(f"=== {function.__name__}", flush=True)
            self.emit(begin=function.__name__)
            try:
                result, detail = self.run_case(function, getattr(module, "TIMEOUT", 120))
            except BaseException:  # pylint: disable=broad-except
                result, detail = "fail", "while cleaning up:\n" + traceback.format_exc()
            self.emit(case=function.__name__, result=result, detail=detail, seconds=time.monotonic() - start)
        if self.shared is not None:
            try:
                self.shared.close()
            except BaseException:  # pylint: disable=broad-except
                self.emit(case="(stop)", result="fail", detail=traceback.format_exc(), seconds=0)
        self.clean()

    def clean(self):
        if self.keep:
            print(f"kept: {self.top}")
            return
        shutil.rmtree(self.top, ignore_errors=True)
        if os.path.exists(self.top):  # trees of foreign users or with odd modes
            from lib import leaks
            leaks.remove(self.top)


def hang_report():
    """Every process below us with the place where it waits."""
    from lib import leaks
    text = "processes of the test:\n"
    for pid in leaks.descendants(os.getpid()):
        text += f"    {leaks.describe(pid)}\n{leaks.stack(pid)}"
    return text


def main():
    """case.py FILE RESULT_FD PARTS KEEP: run by tests/run.py."""
    path, fd, parts, keep = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1"
    os.set_inheritable(fd, False)
    # a script has what it starts behind itself ignore these, and what is ignored is inherited
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.environ["MALLOC_PERTURB_"] = "165"  # memory that was given back is not what it was: using it shows (here, not in benchmarks: it costs)
    os.environ["CAY_STRICT"] = "1"  # what the programs otherwise only log as a fault of theirs ends them
    runner = Runner(path, os.fdopen(fd, "w"), parts.split(","), keep)
    runner.emit(top=runner.top)
    runner.run()


if __name__ == "__main__":
    # Test files import lib.case; this program must be that same module, or Skip would exist twice.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    from lib import case
    case.main()
