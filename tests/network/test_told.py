# SPDX-License-Identifier: Apache-2.0
"""Sockets that go past everything that is decided of connections are refused when they are made, and told: which kind, by which exec and which process."""

import collections
import contextlib
import json
import os
import signal

from lib import leaks
from lib.case import contains, equal, require
from lib.cay import Instance, wait_until

EAFNOSUPPORT = 97
# family, type, protocol, as it is told
KINDS = ((2, 3, 1, "raw"), (10, 3, 58, "raw"), (2, 3, 255, "raw"), (2, 3 | 0o2000000, 6, "raw"), (17, 3, 768, "packet"), (17, 2, 768, "packet"), (2, 10, 768, "packet"),
         (40, 1, 0, "vsock"), (2, 1, 132, "sctp"), (10, 5, 132, "sctp"), (2, 6, 33, "dccp"), (10, 2, 136, "udplite"))
# refused as if the kernel had none of it, and no way out: programs that look what there is do no harm
QUIET = ((16, 3, 9), (38, 5, 0), (2, 1, 262), (1, 3, 0))

TRY = r'''
import json, os, socket, sys
said = []
for family, kind, protocol in json.loads(sys.argv[1]):
    try:
        socket.socket(family, kind, protocol).close()
        said.append(0)
    except OSError as error:
        said.append(error.errno)
print(json.dumps([os.getpid(), said]))
'''

# argv: processes, threads of each, sockets of each thread
MANY = r'''
import os, socket, sys, threading
processes, threads, each = map(int, sys.argv[1:])
def work():
    for _ in range(each):
        try:
            socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
        except OSError as error:
            assert error.errno == 97, error
children = []
for _ in range(processes):
    pid = os.fork()
    if pid == 0:
        all = [threading.Thread(target=work) for _ in range(threads)]
        for one in all: one.start()
        for one in all: one.join()
        os._exit(0)
    children.append(pid)
sys.exit(max(os.waitpid(pid, 0)[1] for pid in children))
'''


def attempt(instance, box, kinds, *prefix):
    """Return: the number of the program inside, and the errors."""
    return json.loads(instance.cay("exec", box, "--", *prefix, "python3", "-c", TRY, json.dumps([k[:3] for k in kinds])).stdout)


def told(instance, box):
    return [e for e in instance.events(box) if e["type"] == "net.denied" and e["data"]["what"] == "socket"]


def last_exec(instance, box):
    return [e["exec"] for e in instance.events(box) if e["type"] == "exec.created"][-1]


def counts(events):
    found = collections.Counter()
    for event in events:
        found[event["data"]["protocol"]] += event["data"]["count"]
    return dict(found)


def check(instance, **sandbox):
    with instance.sandbox(**sandbox) as box:
        pid, said = attempt(instance, box, KINDS)
        equal(said, [EAFNOSUPPORT] * len(KINDS))
        wanted = dict(collections.Counter(kind[3] for kind in KINDS))
        wait_until(lambda: counts(told(instance, box)) == wanted, 30, "each is told, by the end of its exec")
        equal({e["exec"] for e in told(instance, box)}, {last_exec(instance, box)})
        for event in told(instance, box):
            data = event["data"]
            equal((data["inner_pid"], data["comm"], data["host"], data["port"]), (pid, "python3", "", 0))
            contains(data["reason"], "sockets")
        before = len(told(instance, box))
        assert 0 not in attempt(instance, box, QUIET)[1]
        equal(attempt(instance, box, ((2, 1, 0), (10, 2, 0), (2, 2, 1), (1, 1, 0)))[1], [0] * 4)
        instance.ok(box, "true")
        equal(len(told(instance, box)), before)
        line = next(line for line in instance.cay("net", box).stdout.splitlines() if "vsock" in line)
        contains(line, "vsock socket  only sockets of")


def test_each_kind_is_refused_and_told(instance):
    check(instance)
    check(instance, allow=["a.example"])


def test_in_every_profile(instance):
    for profile in ("strict", "debug"):
        check(instance, profile=profile)


@require("program:strace")
def test_a_tracer_inside_changes_nothing(instance):
    with instance.sandbox(profile="debug") as box:
        done = instance.cay("exec", box, "--", "strace", "-f", "--seccomp-bpf", "-e", "trace=socket", "-o", "/tmp/log", "python3", "-c", TRY, json.dumps([(2, 3, 1)]))
        equal(json.loads(done.stdout)[1], [EAFNOSUPPORT])
        wait_until(lambda: counts(told(instance, box)) == {"raw": 1}, 30, "it is told")


def test_a_flood_is_a_few_events(instance):
    """The counts add up, whoever of many it was, and the sandbox goes on."""
    with instance.sandbox() as box:
        equal(instance.cay("exec", box, "--", "python3", "-c", MANY, "3", "4", "500", timeout=80, check=False).returncode, 0)
        wait_until(lambda: counts(told(instance, box)) == {"raw": 6000}, 30, "all are told")
        assert len(told(instance, box)) < 200, len(told(instance, box))
        assert any("pid" not in e["data"] for e in told(instance, box)), "a count of several names none"
        equal(instance.ok(box, "echo here"), "here\n")


def test_many_execs_at_once(instance):
    """More than there is room to count for: what has to make room is told sooner."""
    with instance.sandbox() as box:
        runs = [instance.exec(box, "python3", "-c", MANY, "1", "1", "3") for _ in range(40)]
        for run in runs:
            equal(instance.wait(box, run).get("code"), 0)
        equal(counts(told(instance, box)), {"raw": 120})
        found = collections.Counter()
        for event in told(instance, box):
            found[event["exec"]] += event["data"]["count"]
        equal(dict(found), {run["id"]: 3 for run in runs})


def test_more_kinds_than_can_be_counted(instance):
    """Daemons of execs that have ended count as theirs: whatever there is no room for is told as a number, and all is told."""
    script = "import os, socket, sys\nif os.fork(): os._exit(0)\nos.setsid()\nwhile not os.path.exists('/tmp/go'): os.sched_yield()\n" \
             "for _ in range(3):\n  for f, k, p in ((2, 3, 1), (17, 3, 3), (40, 1, 0), (2, 1, 132), (2, 6, 33), (2, 2, 136)):\n    try: socket.socket(f, k, p)\n    except OSError: pass\n" \
             "open(f'/tmp/done{os.getpid()}', 'w').close()"
    with instance.sandbox() as box:
        for _ in range(25):  # 150 kinds
            instance.cay("exec", box, "--", "python3", "-c", script.replace("os.sched_yield()", "__import__('time').sleep(0.05)"))
        instance.ok(box, "touch /tmp/go; while [ $(ls /tmp | grep -c done) -lt 25 ]; do sleep 0.1; done")

        def all_told():
            lost = sum(e["data"]["n"] for e in instance.events(box) if e["type"] == "net.lost")
            return sum(counts(told(instance, box)).values()) + lost
        wait_until(lambda: all_told() >= 25 * 18, 30, "all are told")
        equal(all_told(), 25 * 18)


def test_a_signal_does_not_make_it_nobodys(instance):
    """Whoever is sent signals all the while is refused as ever, is named, and counts once."""
    script = r'''
import os, signal, socket, threading
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.siginterrupt(signal.SIGUSR1, False)
me, over = os.getpid(), threading.Event()
def storm():
    while not over.is_set():
        os.kill(me, signal.SIGUSR1)
t = threading.Thread(target=storm)
t.start()
said = []
for _ in range(300):
    try:
        socket.socket(2, 3, 1)
    except OSError as error:
        said.append(error.errno)
over.set()
t.join()
print(len(said), set(said))
'''
    with instance.sandbox() as box:
        equal(instance.cay("exec", box, "--", "python3", "-c", script).stdout, "300 {97}\n")
        wait_until(lambda: counts(told(instance, box)).get("raw", 0) >= 300, 30, "all are told")
        equal(counts(told(instance, box)), {"raw": 300})
        equal({e["exec"] for e in told(instance, box)}, {last_exec(instance, box)})


def test_who_is_killed_while_it_waits(instance):
    """Its keeper stands still, so it waits in the kernel; then it is no more. The next one is answered."""
    script = "import signal, socket; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); print('ready', flush=True); signal.sigwait([signal.SIGUSR1]); socket.socket(2, 3, 1)"
    with instance.sandbox() as box:
        keeper = leaks.keeper_of(box)
        run = instance.exec(box, "python3", "-c", script)
        pid = instance.wait_event("exec.started", box, lambda e: e["exec"] == run["id"])["data"]["pid"]
        wait_until(lambda: instance.output(box, run) == b"ready\n", 30, "it begins")
        os.kill(keeper, signal.SIGSTOP)
        try:
            os.kill(pid, signal.SIGUSR1)
            wait_until(lambda: leaks.read(f"/proc/{pid}/syscall").startswith("41 "), 30, "it waits")
            os.kill(pid, signal.SIGKILL)
        finally:
            os.kill(keeper, signal.SIGCONT)
        equal(instance.wait(box, run)["status"], "signaled")
        equal(attempt(instance, box, KINDS[:1])[1], [EAFNOSUPPORT])
        wait_until(lambda: told(instance, box), 30, "the next one is told")


def test_nobody_is_left_who_could_be_told_of(instance):
    """The keeper does not look for ever at a listener that nobody has a call for: it closes it, or has ended with the sandbox that nobody can start anything in."""
    def listeners(keeper):
        found = []
        with contextlib.suppress(FileNotFoundError):
            for fd in os.listdir(f"/proc/{keeper}/fd"):
                found += [fd] if "seccomp notify" in os.readlink(f"/proc/{keeper}/fd/{fd}") else []
        return found

    with instance.sandbox() as box:
        instance.ok(box, "true")
        keeper = leaks.keeper_of(box)
        equal(len(listeners(keeper)), 1)
        for pid, (parent, _, name) in leaks.processes().items():
            if parent == keeper and name in ("cay-starter", "cay-waiter"):
                os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not listeners(keeper), 30, "it is closed")


def test_a_program_that_wants_to_listen_itself(instance):
    """One listener for a process is all that the kernel allows: a program inside is told that it is taken, and goes on without."""
    script = r'''
import ctypes, errno, struct
libc = ctypes.CDLL(None, use_errno=True)
code = ctypes.create_string_buffer(struct.pack("=HBBI", 6, 0, 0, 0x7fff0000))
program = struct.pack("=HxxxxxxQ", 1, ctypes.addressof(code))
assert libc.prctl(38, 1, 0, 0, 0) == 0
print(libc.syscall(317, 1, 8, program), errno.errorcode[ctypes.get_errno()])
print(libc.syscall(317, 1, 0, program))
'''
    with instance.sandbox() as box:
        equal(instance.cay("exec", box, "--", "python3", "-c", script).stdout, "-1 EBUSY\n0\n")


def test_where_nobody_may_listen(tmp):
    """Refused all the same, and nobody is told."""
    with contextlib.closing(Instance(tmp, env={"CAY_WITHOUT": "seccomp_listener"})) as instance:
        instance.start()
        with instance.sandbox() as box:
            equal(attempt(instance, box, KINDS)[1], [EAFNOSUPPORT] * len(KINDS))
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {"count": 1})["sandboxes"][0]["id"]
            equal(attempt(instance, fork, KINDS)[1], [EAFNOSUPPORT] * len(KINDS))
            equal(told(instance, box) + told(instance, fork), [])
            instance.remove(fork)
