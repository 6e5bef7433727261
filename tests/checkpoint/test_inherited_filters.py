# SPDX-License-Identifier: Apache-2.0
"""A server that began under system call filters (a service manager's, a container's) hands them on to all that it starts: they are nobody's own there, and live work goes on.

Filters of programs' own can then be read by nobody, and are learned (test_filters.py)."""

import contextlib
import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "crash")]
from forking import ask, fork_live, put, start  # noqa: E402
from points import own_instance  # noqa: E402
from suspending import resume, suspend, through_suspend_and_rewind  # noqa: E402
from test_objects import begin, both_go_on, check  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")


@contextlib.contextmanager
def under(tmp, filters, user=False, no_new_privs=False):
    """A server, @user's or root's, that begins under so many filters, and may gain no privileges."""
    with contextlib.ExitStack() as stack:
        instance = cay.Instance(tmp, user=stack.enter_context(cay.ThrowawayUser()) if user else None)
        os.chmod(tmp, 0o755)
        stack.callback(instance.close)
        instance.filters, instance.no_new_privs = filters, no_new_privs
        yield instance.start()


def go_on(instance, name):
    """Nothing is found in advance; live forks, a suspension, a rewind: the object @name finds itself there."""
    both_go_on(instance, name, "/tmp")
    with instance.sandbox() as box:
        run = begin(instance, box, name, "/tmp")
        equal(instance.json("doctor", box)["findings"], [])
        through_suspend_and_rewind(instance, box, lambda: check(instance, box, run))


@require(*NEEDS)
def test_one_filter(tmp):
    with under(tmp, 1) as instance:
        go_on(instance, "threads")


@require(*NEEDS)
def test_more_filters_than_are_ours(tmp):
    with under(tmp, 4) as instance:
        go_on(instance, "threads")


@require(*NEEDS)
def test_programs_with_their_own(tmp):
    with under(tmp, 2) as instance:
        go_on(instance, "filters")


@require(*NEEDS, "userns", "newuidmap")
def test_rootless(tmp):
    with under(tmp, 2, user=True) as instance:
        go_on(instance, "filters")


@require(*NEEDS, "userns", "newuidmap")
def test_a_confined_service_of_a_user(tmp):
    """Below no_new_privs, without which no user's service has filters, newuidmap gains nothing: one id is left, and doctor says why."""
    with under(tmp, 1, user=True, no_new_privs=True) as instance:
        equal(instance.get("/v1/version")["uid_map"], "single")
        row = next(one for one in instance.json("doctor")["checks"] if one["id"] == "subids")
        contains(row["found"], "no_new_privs")
        go_on(instance, "threads")


@require(*NEEDS)
def test_what_cannot_be_asked_is_refused_for_the_right_reason(tmp):
    """Its filter refuses all by which it could be asked; where the server has none itself that is no matter."""
    with under(tmp, 1) as instance, instance.sandbox() as box:
        begin(instance, box, "jail")
        finding = instance.json("doctor", box, want=1)["findings"][0]["reason"]
        contains(finding, "its system call filter refuses")
        contains(raises(cay.ApiError, fork_live, instance, box).message, finding)


def restart(instance, filters):
    instance.stop()
    instance.filters = filters
    instance.start()


class Object:
    """One of objects/, which looks at what it can see itself, once."""

    def __init__(self, name):
        self.name = name

    def begin(self, instance, box):
        return begin(instance, box, self.name, "/tmp")

    def check(self, instance, box, run):
        check(instance, box, run)


# Two filters: the first refuses seccomp(2), so that only prctl(2) can put the second, which refuses times(2), above it. How many there are below is none of its business.
BY_PRCTL = """
import ctypes, errno, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
for number, error in ((317, errno.ENOSYS), (100, errno.EXDEV)):
    code = b"".join(struct.pack("=HBBI", *step) for step in ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7fff0000)))
    memory = ctypes.create_string_buffer(code)
    assert libc.prctl(22, 2, struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory)), 0, 0) == 0
print("ready", flush=True)
for line in sys.stdin:
    print([libc.syscall(number, 0, 0, 0) and errno.errorcode[ctypes.get_errno()] for number in (317, 100)], flush=True)
"""


class ByPrctl:
    """A program that says of two calls what its filters make of them, as often as it is asked."""

    @staticmethod
    def begin(instance, box):
        put(instance, box, "/tmp/by_prctl.py", BY_PRCTL)
        return start(instance, box, "/usr/bin/python3", "/tmp/by_prctl.py")

    @staticmethod
    def check(instance, box, run):
        equal(ask(instance, box, run, ""), "['ENOSYS', 'EXDEV']\n")


def through_another_server(tmp, before, after, program):
    """A durable snapshot and a suspended sandbox of a server under @before filters, and one that runs, go on below one under @after; what is begun there is beside them."""
    with own_instance(tmp) as instance:
        restart(instance, before)
        with instance.sandbox() as box, instance.sandbox() as sleeper:
            runs = {one: program.begin(instance, one) for one in (box, sleeper)}
            snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "kept"})["id"]
            suspend(instance, sleeper)
            restart(instance, after)
            resume(instance, sleeper)
            fork = instance.post(f"/v1/snapshots/{snapshot}/fork", {})["sandboxes"][0]["id"]
            further = [fork]
            for one in (box, fork, sleeper):
                beside = program.begin(instance, one)
                equal(instance.json("doctor", one)["findings"], [])
                further += fork_live(instance, one)
                program.check(instance, further[-1], beside)
                program.check(instance, further[-1], runs[sleeper if one == sleeper else box])
                program.check(instance, one, beside)
            program.check(instance, fork, runs[box])
            for one in runs:
                program.check(instance, one, runs[one])
            for one in further:
                instance.remove(one)


@require(*NEEDS)
def test_a_server_with_other_filters(tmp):
    for before, after in ((0, 2), (3, 1), (2, 0)):
        through_another_server(tmp, before, after, Object("threads"))


@require(*NEEDS)
def test_programs_with_their_own_below_a_server_with_other_filters(tmp):
    for before, after in ((3, 1), (2, 0), (0, 2)):
        through_another_server(tmp, before, after, ByPrctl)


@require(*NEEDS)
def test_what_nobody_could_ask_is_resumed_below_filters(tmp):
    """Its filter allows next to nothing, and was read where that is possible. It is put back where it counts."""
    with own_instance(tmp) as instance:
        instance.start()
        with instance.sandbox() as box:
            run = begin(instance, box, "jail")
            suspend(instance, box)
            restart(instance, 2)
            resume(instance, box)
            check(instance, box, run)


@require(*NEEDS)
def test_doctor_says_so(tmp):
    with under(tmp, 2) as instance:
        row = next(one for one in instance.json("doctor")["checks"] if one["id"] == "program_filters")
        equal(row["ok"], False)
        contains(row["found"], "begins under 2 system call filters of whoever starts it")
