# SPDX-License-Identifier: Apache-2.0
"""System call filters that programs have installed themselves go with live forks, suspend and rewind, where the server may read them; else they are refused by name.

What they do to the program itself: objects/filters.c."""

import contextlib
import ctypes
import itertools
import os
import signal
import sys

from lib import cay
from lib.case import contains, equal, raises, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "crash")]
from forking import ask, fork_live, put, rootless, say, start, wait_output, wait_until_wrote  # noqa: E402
from points import own_instance  # noqa: E402
from suspending import there_and_back, through_suspend_and_rewind  # noqa: E402
from test_objects import begin, both_go_on, check  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
LIBC.ptrace.restype = ctypes.c_long
SEIZE, INTERRUPT, DETACH, GET_FILTER, GET_METADATA, WALL = 0x4206, 0x4207, 17, 0x420c, 0x420d, 0x40000000


def filters_of(tid):
    """Each filter of a thread, oldest first: instructions, and whether it logs."""
    found, code = [], ctypes.create_string_buffer(4096 * 8)
    assert LIBC.ptrace(SEIZE, tid, None, None) == 0, os.strerror(ctypes.get_errno())
    try:
        assert LIBC.ptrace(INTERRUPT, tid, None, None) == 0
        os.waitpid(tid, WALL)
        while (n := LIBC.ptrace(GET_FILTER, tid, len(found), code)) >= 0:
            metadata = (ctypes.c_uint64 * 2)(len(found), 0)
            equal(LIBC.ptrace(GET_METADATA, tid, 16, metadata), 16)
            found.append((code.raw[:n * 8], metadata[1]))
    finally:
        assert LIBC.ptrace(DETACH, tid, None, None) == 0
    return found


def threads_of(instance, box, name):
    """Threads of the processes of @box that are called @name, by their ids inside: their ids outside."""
    found = {}
    for pid in instance.own_processes():
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as comm, open(f"/proc/{pid}/cgroup", encoding="utf-8") as group:
                if comm.read().strip() != name or box not in group.read():
                    continue
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended: none of those
        for tid in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8") as status:
                inside = next(line.split()[-1] for line in status if line.startswith("NSpid:"))
            found[int(inside)] = int(tid)
    return found


@require(*NEEDS)
def test_the_same_filters_seen_from_outside(instance):
    """Every instruction, their order, who has which, and which of them log."""
    with instance.sandbox() as box:
        begin(instance, box, "filters")
        fork = fork_live(instance, box)[0]
        seen = [{inside: filters_of(tid) for inside, tid in threads_of(instance, one, "object_filters").items()} for one in (box, fork)]
        equal(seen[1], seen[0])
        equal(sorted({len(chain) for chain in seen[0].values()}), [2, 3, 4, 5])  # two are ours
        equal({flags for chain in seen[0].values() for _code, flags in chain}, {0, 2})
        instance.remove(fork)


@require(*NEEDS)
def test_through_suspend_and_rewind(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "filters")
        through_suspend_and_rewind(instance, box, lambda: check(instance, box, run))


@require(*NEEDS, "program:sshd", "program:ssh")
def test_a_server_that_asks_for_the_password(instance):
    """OpenSSH speaks with a stranger through a process that may do next to nothing; the connection is in the middle of that."""
    with instance.sandbox() as box:
        instance.ok(box, "set -e; mkdir -m 700 -p /var/tmp/ssh /run/sshd; ssh-keygen -q -t ed25519 -N '' -f /var/tmp/ssh/host; echo root:password | chpasswd")
        start(instance, box, "/usr/sbin/sshd", "-D", "-e", "-f", "none", "-h", "/var/tmp/ssh/host", "-p", "2222", "-o", "ListenAddress=127.0.0.1", "-o", "PermitRootLogin=yes",
              "-o", "PidFile=none", ready=b"port 2222.\r\n")
        run = start(instance, box, "/usr/bin/ssh", "-F", "none", "-o", "UserKnownHostsFile=/var/tmp/ssh/known", "-o", "StrictHostKeyChecking=accept-new", "-o", "LogLevel=ERROR",
                    "-o", "PreferredAuthentications=password", "-p", "2222", "root@127.0.0.1", "echo $SSH_CONNECTION; read -r word; echo $word", ready=b"password: ",
                    tty={"rows": 24, "columns": 80})
        report = instance.json("doctor", box)
        equal((report["ok"], report["findings"]), (True, []))
        counts = instance.ok(box, "grep -h ^Seccomp_filters /proc/[0-9]*/status").split()
        assert "2" in counts, f"nobody has a filter of its own: {counts}"
        fork = fork_live(instance, box)[0]
        there_and_back(instance, box)
        for one in (fork, box):
            say(instance, one, run, "password\n")
            wait_until_wrote(instance, one, run, lambda got: b" 2222\r\n" in got)
            say(instance, one, run, "open\n")
            equal(instance.wait(one, run, 20).get("code"), 0)
            contains(instance.output(one, run).decode(), "open\r\n")
        instance.remove(fork)


@require(*NEEDS)
def test_nobody_runs_without_its_filters(tmp):
    """Who lets the threads go is killed when all is prepared, or when all have arrived: the fork fails as a whole, the source has noticed nothing. So it is where they were learned."""
    for point, without in itertools.product(("live.fork.armed", "live.fork.held"), ({}, {"CAY_WITHOUT": "program_filters"})):
        with own_instance(tmp) as instance:
            instance.start(CAY_FAULT=point, **without)
            box = instance.post("/v1/sandboxes", {})["id"]
            run = begin(instance, box, "filters")
            contains(raises(cay.ApiError, fork_live, instance, box).message, "it was killed before all could go on")
            equal([s["id"] for s in instance.get("/v1/sandboxes")["sandboxes"] if s["state"] == "running"], [box])
            check(instance, box, run)


LISTENER = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
code = b"".join(struct.pack("=HBBI", *step) for step in ((0x20, 0, 0, 0), (0x15, 0, 1, 140), (0x06, 0, 0, 0x7fc00000), (0x06, 0, 0, 0x7fff0000)))
memory = ctypes.create_string_buffer(code)
program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory))
print("ready", flush=True)
for line in sys.stdin:
    print(libc.syscall(317, 1, int(line), program) if line != "close\\n" else os.close(3), flush=True)
"""


def start_listener(instance, box):
    put(instance, box, "/tmp/listener.py", LISTENER)
    return start(instance, box, "/usr/bin/python3", "/tmp/listener.py")


def refused(instance, box, reason, findings=1):
    """Told in advance and when it is tried; all goes on."""
    report = instance.json("doctor", box, want=1)
    equal(len(report["findings"]), findings, report["findings"])
    contains(report["findings"][0]["reason"], reason)
    for verb, body in (("fork", {"live": True}), ("suspend", None)):
        error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
        equal(error.code, "unsupported")
        contains(error.message, reason)


@require(*NEEDS)
def test_a_listener_is_refused_while_there_is_one(tmp):
    """Without one the kernel answers what the filter hands on itself, here as there. (A program has one only where the keeper has none.)"""
    with own_instance(tmp) as instance:
        instance.start(CAY_WITHOUT="seccomp_listener")
        box = instance.post("/v1/sandboxes", {})["id"]
        run = start_listener(instance, box)
        equal(ask(instance, box, run, "8"), "3\n")
        refused(instance, box, "descriptor 3 is a listener of a system call filter")
        equal(ask(instance, box, run, "close"), "None\n")
        fork = fork_live(instance, box)[0]
        for one in (box, fork):
            equal(ask(instance, one, run, "0"), "0\n")
        instance.remove(fork)


@contextlib.contextmanager
def learning(tmp, user):
    """An instance that cannot read filters: that of an ordinary user, or one of root's that is told so."""
    if user:
        with rootless(tmp) as instance:
            yield instance
        return
    with own_instance(tmp) as instance:
        instance.start(CAY_WITHOUT="program_filters")
        yield instance


def go_on_learned(tmp, user):
    with learning(tmp, user) as instance:
        both_go_on(instance, "filters", "/tmp")
        with instance.sandbox() as box:
            run = begin(instance, box, "filters", "/tmp")
            equal(instance.json("doctor", box)["findings"], [])
            through_suspend_and_rewind(instance, box, lambda: check(instance, box, run))


@require(*NEEDS)
def test_they_are_learned_when_they_are_installed(tmp):
    go_on_learned(tmp, False)


@require(*NEEDS, "userns", "newuidmap")
def test_they_are_learned_rootless(tmp):
    go_on_learned(tmp, True)


LIBRARY = """
import ctypes, errno, os, subprocess, sys
libc, seccomp = ctypes.CDLL(None, use_errno=True), ctypes.CDLL("libseccomp.so.2", use_errno=True)
seccomp.seccomp_init.restype = ctypes.c_void_p
REFUSE, ALLOW, TSYNC = 0x50000, 0x7fff0000, 4

def confine(call, error):
    context = ctypes.c_void_p(seccomp.seccomp_init(ALLOW))
    assert seccomp.seccomp_attr_set(context, TSYNC, 1) == 0
    assert seccomp.seccomp_rule_add(context, REFUSE | error, seccomp.seccomp_syscall_resolve_name(call), 0) == 0
    assert seccomp.seccomp_load(context) == 0
    seccomp.seccomp_release(context)

def says(number):
    return errno.errorcode.get(ctypes.get_errno(), "nothing") if libc.syscall(number, -1, -1, -1) < 0 else "nothing"

names = {"times": 100, "getpriority": 140}
confine(sys.argv[1].encode(), errno.EXDEV)
if len(sys.argv) > 2:
    # a program of another name, under the same filter
    subprocess.run([sys.executable, "-c", open(sys.argv[0]).read().split("confine(sys")[0] + sys.argv[2]], stdin=sys.stdin)
else:
    print("ready", flush=True)
    for line in sys.stdin:
        print({name: says(number) for name, number in names.items()}, flush=True)
"""
CHILD = """
names = {'times': 100, 'getpriority': 140}
print('ready', flush=True)
for line in sys.stdin:
    print({name: says(number) for name, number in names.items()}, flush=True)
"""
SAYS = {"times": "{'times': 'EXDEV', 'getpriority': 'EINVAL'}\n", "getpriority": "{'times': 'EFAULT', 'getpriority': 'EXDEV'}\n"}


@require(*NEEDS, "userns", "newuidmap")
def test_a_librarys_filters_and_who_inherits_them_rootless(tmp):
    """libseccomp, which first tries what the kernel can do; two filters, so that whose is whose is told by parents; a fork, and a fork of that."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/library.py", LIBRARY)
        runs = [(start(instance, box, "/usr/bin/python3", "/tmp/library.py", call, *child), SAYS[call]) for call in SAYS for child in ((), (CHILD,))]
        equal(instance.json("doctor", box)["findings"], [])
        line = [box]
        for _ in range(2):
            line += fork_live(instance, line[-1])
        there_and_back(instance, line[1])
        for one in line:
            for run, answer in runs:
                equal(ask(instance, one, run, "?"), answer)
        for one in line[1:]:
            instance.remove(one)


ORPHAN = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0

def refuse(call):
    code = b"".join(struct.pack("=HBBI", *step) for step in ((0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x50012), (0x06, 0, 0, 0x7fff0000)))
    memory = ctypes.create_string_buffer(code)
    assert libc.prctl(22, 2, struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory)), 0, 0) == 0

if os.fork() == 0:
    refuse(140)
    sys.stdin.readline()
    os._exit(0)
ends = os.pipe()
if os.fork() == 0:
    refuse(141)
    if os.fork() == 0:
        os.write(ends[1], b"1")
        sys.stdin.readline()
    os._exit(0)
os.wait()
os.read(ends[0], 1)
print("ready", flush=True)
sys.stdin.readline()
"""


@require(*NEEDS, "userns", "newuidmap")
def test_whose_filters_are_not_known_is_refused_rootless(tmp):
    """An orphan, who may have either of two filters from anybody."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/orphan.py", ORPHAN)
        start(instance, box, "/usr/bin/python3", "/tmp/orphan.py")
        refused(instance, box, "it has system call filters of which nobody knows what they are")


ADOPTED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_ulong] * 5
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(157, ctypes.c_ulong(int(sys.argv[1])), ctypes.c_ulong(int(sys.argv[2])), 0, 0, 0) == 0

def refuse(call):
    code = b"".join(struct.pack("=HBBI", *step) for step in ((0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x50012), (0x06, 0, 0, 0x7fff0000)))
    memory = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory)))
    assert libc.prctl(22, 2, ctypes.addressof(program), 0, 0) == 0

if os.fork() == 0:
    refuse(140)
    if os.fork() == 0:
        sys.stdin.readline()
    os._exit(0)
os.wait()
refuse(141)
print("ready", flush=True)
sys.stdin.readline()
"""


@require(*NEEDS)
def test_whom_somebody_has_taken_in_is_not_taken_for_his(tmp):
    """However the kernel is asked for that: it looks at 32 bits of the option, and at 64 of its argument."""
    with learning(tmp, False) as instance:
        for option, argument in ((36, 1), (36, 2), (36, 1 << 32), (36 + (1 << 32), 1)):
            with instance.sandbox() as box:
                put(instance, box, "/tmp/adopted.py", ADOPTED)
                start(instance, box, "/usr/bin/python3", "/tmp/adopted.py", str(option), str(argument))
                refused(instance, box, "it has system call filters of which nobody knows what they are")


OF_OLD = """
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
PERSONALITY, UNAME26 = 135, 0x20000
assert libc.syscall(PERSONALITY, UNAME26) == 0 and libc.prctl(38, 1, 0, 0, 0) == 0
code = b"".join(struct.pack("=HBBI", *step) for step in ((0x20, 0, 0, 0), (0x15, 0, 1, PERSONALITY), (0x06, 0, 0, 0x50012), (0x06, 0, 0, 0x7fff0000)))
memory = ctypes.create_string_buffer(code)
assert libc.syscall(317, 1, 0, struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory))) == 0
print("ready", flush=True)
for line in sys.stdin:
    print(os.uname().release[:4], libc.syscall(PERSONALITY, -1), errno.errorcode[ctypes.get_errno()], flush=True)
"""


@require(*NEEDS)
def test_what_proc_tells_may_refuse_to_be_asked(tmp):
    """The execution domain, which a program sees by the release of its kernel."""
    with learning(tmp, False) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/of_old.py", OF_OLD)
        run = start(instance, box, "/usr/bin/python3", "/tmp/of_old.py")
        equal(instance.json("doctor", box)["findings"], [])
        fork = fork_live(instance, box)[0]
        for one in (box, fork):
            equal(ask(instance, one, run, "?"), "2.6. -1 EXDEV\n")
        instance.remove(fork)


LISTENED_TO = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
memory = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000))
listener = libc.syscall(317, 1, 8, struct.pack("=H6xQ", 1, ctypes.addressof(memory)))
os.set_inheritable(listener, True)
os.execv(sys.argv[1], sys.argv[1:])
"""
CONFINED = """
import ctypes, struct, sys
libc = ctypes.CDLL(None)
memory = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("=H6xQ", 1, ctypes.addressof(memory)), 0, 0) == 0
print("ready", flush=True)
sys.stdin.readline()
"""


@require(*NEEDS)
def test_where_nobody_can_be_told_they_are_refused(tmp):
    """Whoever started the server listens himself, so the kernel tells nobody else."""
    with own_instance(tmp) as instance:
        command = instance.command
        instance.command = lambda argv: command([sys.executable, "-c", LISTENED_TO, *argv] if argv[0].endswith("cayd") else argv)
        instance.start(CAY_WITHOUT="program_filters")
        with instance.sandbox() as box:
            put(instance, box, "/tmp/confined.py", CONFINED)
            start(instance, box, "/usr/bin/python3", "/tmp/confined.py")
            refused(instance, box, "it has system call filters of which nobody knows what they are")


HANDED_ON = """
import ctypes, errno, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
PRCTL, SECCOMP, TRACE, ALLOW = 157, 317, 0x7ff00000, 0x7fff0000
assert libc.prctl(38, 1, 0, 0, 0) == 0
code = b"".join(struct.pack("=HBBI", *step) for step in (
    (0x20, 0, 0, 0), (0x15, 1, 0, PRCTL), (0x15, 0, 1, SECCOMP), (0x06, 0, 0, TRACE), (0x06, 0, 0, ALLOW)))
memory = ctypes.create_string_buffer(code)
program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory))
assert libc.syscall(SECCOMP, 1, 0, program, 0) == 0

def says(*call):
    result = libc.syscall(*call)
    return "done" if result >= 0 else errno.errorcode[ctypes.get_errno()]

print(says(SECCOMP, 1, 0, program, 0), says(PRCTL, 22, 2, program, 0, 0), says(PRCTL, 36, 1, 0, 0, 0), says(PRCTL, 4, 1))
"""


@require(*NEEDS)
def test_what_a_filter_hands_to_a_tracer_is_refused_without_one(tmp):
    """Also calls of which the keeper is told, which comes before that."""
    with learning(tmp, False) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/handed_on.py", HANDED_ON)
        equal(instance.cay("exec", box, "--", "python3", "/tmp/handed_on.py").stdout.split(), 4 * ["ENOSYS"])


@require(*NEEDS)
def test_what_refuses_to_be_asked_is_refused(tmp):
    """What a learned filter refuses its process for us cannot be made in it; that is told by name, and nothing has happened."""
    with learning(tmp, False) as instance, instance.sandbox() as box:
        run = begin(instance, box, "jail")
        refused(instance, box, "its system call filter refuses sigaltstack(2), which it would have to be asked by", findings=2)
        check(instance, box, run)


TIMELESS = """
import ctypes, errno, os, signal, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
GET, ALARM, SET, REFUSE, ALLOW = 36, 37, 38, 0x50012, 0x7fff0000
how = sys.argv[1] if len(sys.argv) > 1 else ""
libc.prctl(38, 1, 0, 0, 0)
steps = {
    "": ((0x20, 0, 0, 0), (0x15, 2, 0, GET), (0x15, 1, 0, ALARM), (0x15, 0, 1, SET), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)),
    "may be set": ((0x20, 0, 0, 0), (0x15, 1, 0, GET), (0x15, 0, 1, ALARM), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)),
    "one may be set": ((0x20, 0, 0, 0), (0x15, 4, 0, GET), (0x15, 3, 0, ALARM), (0x15, 0, 3, SET), (0x20, 0, 0, 16), (0x15, 1, 0, 2), (0x06, 0, 0, REFUSE), (0x06, 0, 0, ALLOW)),
}
code = b"".join(struct.pack("=HBBI", *step) for step in steps.get(how, steps[""]))
memory = ctypes.create_string_buffer(code)
program = struct.pack("=H6xQ", len(code) // 8, ctypes.addressof(memory))

if how == "is set":
    signal.setitimer(signal.ITIMER_REAL, 100000)
if how == "threads":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if how == "children":
    ends = os.pipe()
    for _ in range(300):
        if os.fork() == 0:
            os.close(ends[1])
            os._exit(libc.syscall(317, 1, 0, program) or os.read(ends[0], 1) != b"")
    os.close(ends[1])
    print({os.wait()[1] for _ in range(300)}, flush=True)
else:
    print(libc.syscall(317, 1, 0, program), flush=True)
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(libc.syscall(GET, 0, memory) != -1 or ctypes.get_errno() != errno.EXDEV)
    print(libc.syscall(GET, 0, memory), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def start_timeless(instance, box, how=""):
    put(instance, box, "/tmp/timeless.py", TIMELESS)
    return start(instance, box, "/usr/bin/python3", "/tmp/timeless.py", how)


def be_asked_before(tmp, user):
    with learning(tmp, user) as instance, instance.sandbox() as box:
        run = start_timeless(instance, box)
        equal(instance.output(box, run), b"0\nready\n")
        equal(instance.json("doctor", box)["findings"], [])
        line = [box]
        for _ in range(2):
            line += fork_live(instance, line[-1])
        there_and_back(instance, line[1])
        line += fork_live(instance, line[1])
        for one in line:
            equal(ask(instance, one, run, "?"), "-1 0\n")
        for one in line[1:]:
            instance.remove(one)


@require(*NEEDS)
def test_what_it_cannot_change_it_is_asked_before(tmp):
    """Whoever refuses to be asked for its interval timers, and to set any, has none for ever if it had none when that began."""
    be_asked_before(tmp, False)


@require(*NEEDS, "userns", "newuidmap")
def test_what_it_cannot_change_it_is_asked_before_rootless(tmp):
    be_asked_before(tmp, True)


@require(*NEEDS)
def test_what_may_change_is_not_asked_before(tmp):
    """Nor what is not as it is in every new process, nor where another thread goes on meanwhile."""
    with learning(tmp, False) as instance:
        for how in ("may be set", "one may be set", "is set", "threads"):
            with instance.sandbox() as box:
                start_timeless(instance, box, how)
                refused(instance, box, "its system call filter refuses getitimer(2), which it would have to be asked by")


@require(*NEEDS)
def test_whoever_asks_may_end(tmp):
    """Before the call has been answered, or when the thread has stopped: it makes its call as if nothing had been, and is one that was not asked."""
    for point in ("keeper.ask.begun=error", "keeper.ask.begun", "keeper.ask.stopped"):
        with own_instance(tmp) as instance:
            instance.start(CAY_FAULT=point, CAY_WITHOUT="program_filters")
            with instance.sandbox() as box:
                run = start_timeless(instance, box)
                equal(instance.output(box, run), b"0\nready\n")
                refused(instance, box, "its system call filter refuses getitimer(2), which it would have to be asked by")
                equal(ask(instance, box, run, "?"), "-1 0\n")


def stopped_keeper(instance):
    """A process of @instance that has stopped itself at a fault point."""
    for pid in instance.own_processes():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            name, state = stat.read().split(" ", 1)[1].rsplit(")", 1)
            if "cay-keep" in name and state.startswith(" T "):
                return pid
    return None


@require(*NEEDS)
def test_a_capture_does_not_wait_for_who_does_not_get_on(tmp):
    """It is busy, and others go on; when the thread has been asked all is as ever."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="keeper.ask.stopped=hold", CAY_WITHOUT="program_filters")
        with instance.sandbox() as box:
            put(instance, box, "/tmp/timeless.py", TIMELESS)
            run = instance.exec(box, "/usr/bin/python3", "/tmp/timeless.py", stdin=True)
            cay.wait_until(lambda: stopped_keeper(instance), 60, "it is being asked")
            asker = stopped_keeper(instance)
            error = raises(cay.ApiError, fork_live, instance, box)
            equal(error.code, "busy")
            contains(error.message, "is being asked about itself")
            equal(instance.ok(box, "echo on"), "on\n")
            os.kill(asker, signal.SIGCONT)
            wait_output(instance, box, run, b"ready\n")
            equal(instance.json("doctor", box)["findings"], [])
            instance.remove(fork_live(instance, box)[0])


@require(*NEEDS)
def test_many_that_are_asked_at_once(tmp):
    """All get on, whether they were asked or not, and so does the sandbox."""
    with learning(tmp, False) as instance, instance.sandbox() as box:
        run = start_timeless(instance, box, "children")
        equal(instance.output(box, run), b"{0}\nready\n")
        fork = fork_live(instance, box)[0]
        instance.remove(fork)


@require(*NEEDS, "userns", "newuidmap", "program:man")
def test_a_manual_page_rootless(tmp):
    """man puts itself and what formats a page under filters: they wait for whoever reads it."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/read", "#!/bin/sh\nmkfifo /tmp/on\necho ready\nread -r line < /tmp/on\nwc -c; echo $line")
        instance.ok(box, "chmod 755 /tmp/read; i=0; (echo .TH LONG 1; while [ $i -lt 40000 ]; do echo word $i; i=$((i + 1)); done) > /tmp/long.1")
        run = start(instance, box, "/usr/bin/man", "-P", "/tmp/read", "/tmp/long.1", ready=b"ready\r\n", tty={"rows": 24, "columns": 80})
        # man starts its programs by vfork(): for a moment they share its memory
        cay.wait_until(lambda: instance.cay("doctor", box, check=False).returncode == 0, 30, "nothing would be refused")
        counts = set(instance.ok(box, "grep -h ^Seccomp_filters /proc/[0-9]*/status | cut -f 2").split())
        assert len(counts) > 1, f"nobody has a filter of its own: {counts}"
        fork = fork_live(instance, box)[0]
        again = fork_live(instance, fork)[0]
        there_and_back(instance, box)
        said = set()
        for one in (box, fork, again):
            instance.ok(one, "echo go > /tmp/on")
            equal(instance.wait(one, run, 60).get("code"), 0)
            said.add(instance.output(one, run))
        equal(len(said), 1)
        assert int(said.pop().split()[1]) > 200000
        for one in (again, fork):
            instance.remove(one)


INHERITED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None)
memory = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000))
assert libc.prctl(38, 1, 0, 0, 0) == 0
for _ in range(8):
    assert libc.prctl(22, 2, struct.pack("=H6xQ", 1, ctypes.addressof(memory)), 0, 0) == 0
hold, ends = os.pipe()
for _ in range(130):
    if os.fork() == 0:
        os.close(ends)
        os.read(hold, 1)
        os._exit(0)
print("ready", flush=True)
for line in sys.stdin:
    print("here", flush=True)
"""


@require(*NEEDS)
def test_more_inherited_than_may_be_installed_come_back(tmp):
    """Processes inherit filters without being asked; a resume, which puts them back one by one, is not asked either."""
    with learning(tmp, False) as instance, instance.sandbox() as box:
        put(instance, box, "/tmp/inherited.py", INHERITED)
        run = start(instance, box, "/usr/bin/python3", "/tmp/inherited.py")
        there_and_back(instance, box)
        equal(ask(instance, box, run, "?"), "here\n")


ENDED = """
import ctypes, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
SECCOMP = 317
memory = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000))
program = struct.pack("=H6xQ", 1, ctypes.addressof(memory))
assert libc.prctl(38, 1, 0, 0, 0) == 0
failed = []

def confine(argument):
    if libc.syscall(SECCOMP, 1, 0, argument, 0) != 0:
        failed.append(ctypes.get_errno())

def each(times, argument):
    for _ in range(times):
        thread = threading.Thread(target=confine, args=(argument,))
        thread.start()
        thread.join()

each(1100, program)
print(failed)
failed.clear()
each(1100, None)
print(len(failed), set(failed))
failed.clear()
each(1, program)
print(failed)
"""


@require(*NEEDS)
def test_what_has_ended_with_its_thread_does_not_count(instance):
    """Nor does a call without a program, by which libraries try what the kernel can do."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/ended.py", ENDED)
        equal(instance.cay("exec", box, "--", "python3", "/tmp/ended.py", timeout=100).stdout, "[]\n1100 {14}\n[]\n")
