# SPDX-License-Identifier: Apache-2.0
"""Who holds more of the kernel's memory than its limit, charged to no control group, is ended (docs/design/0007, Uncounted); whose memory is counted is not.

What keeps an attacker: tests/attack, RX-02N to RX-02S."""

import contextlib
import json
import os
import signal
import socket
import threading

from lib import cay
from lib.case import contains, equal, require
from lib.leaks import processes, read

TIMEOUT = 90
NEEDS = ("root", "cgroup2")

LIMITS = {"memory_bytes": 64 << 20}
SOON = {"CAY_UNCOUNTED": str(16 << 20)}
ALWAYS = {"CAY_UNCOUNTED": "1"}  # at each look
NEVER = {"CAY_UNCOUNTED": str(1 << 50)}

# Connections that nobody accepts, of which each holds more than two megabytes.
HOLD = """
import signal, socket
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
l.bind(("127.0.0.1", 0))
l.listen(4096)
keep = []
for _ in range(80):
    c = socket.create_connection(l.getsockname())
    c.setblocking(False)
    keep.append(c)
    try:
        while True:
            c.send(bytes(60000))
    except BlockingIOError:
        pass
print("held", flush=True)
signal.pause()
"""

# As much in as many as that takes, whatever each may hold (net.core.rmem_max), and little where they are sent from, which version 2 counts as memory.
HOLD_MANY = """
import resource, signal, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
l = socket.socket()
l.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
l.bind(("127.0.0.1", 0))
l.listen(4096)
keep, held = [], 0
while held < 88 << 20:
    c = socket.socket()
    c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16384)
    c.connect(l.getsockname())
    c.setblocking(False)
    keep.append(c)
    try:
        for _ in range(100):
            held += c.send(bytes(60000))
    except BlockingIOError:
        pass
print("held", flush=True)
signal.pause()
"""

# The same and datagrams, but accepted: all that waits is counted. It is filled when a line has come.
ACCEPT = """
import signal, socket, sys
def full(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    s.bind(("127.0.0.1", 0))
    return s
l, keep, ends = full(socket.socket()), [], []
l.listen(4096)
for _ in range(150):
    ends.append(socket.create_connection(l.getsockname()))
    keep.append(l.accept()[0])
for _ in range(20):
    keep.append(full(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
    ends.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    ends[-1].connect(keep[-1].getsockname())
print("ready", flush=True)
sys.stdin.readline()
for s in ends:
    s.setblocking(False)
    try:
        for _ in range(200):
            s.send(bytes(60000))
    except OSError:
        pass
print("held", flush=True)
signal.pause()
"""

# Listings of a directory, each behind a change of a name in it: the overlay keeps the names for each as long as it is open.
LIST = """
import os, signal
for i in range(3000):
    os.mknod(f"/srv/name-{i}")
keep = []
for i in range(400):
    keep.append(os.open("/srv", os.O_RDONLY))
    os.listdir(keep[-1])
    os.unlink(f"/srv/name-{i}")
    os.mknod(f"/srv/name-{i}")
print("held", flush=True)
signal.pause()
"""

# The same behind many others.
LIST_LAST = LIST.replace("keep = []", """keep = []
for i in range(300):
    os.mkdir(f"/root/{i}")
    keep.append(os.open(f"/root/{i}", os.O_RDONLY))""")

# The same of a directory that the overlay has in one layer alone, and keeps nothing of.
LIST_MADE = LIST.replace("import os, signal", "import os, signal\nos.mkdir('/srv/made')").replace("/srv", "/srv/made").replace("('/srv/made/made')", "('/srv/made')")

# One listing, which many have.
INHERIT = """
import os, signal
for i in range(8000):
    os.mknod(f"/srv/name-{i}")
fd = os.open("/srv", os.O_RDONLY)
os.listdir(fd)
for _ in range(100):
    if os.fork() == 0:
        signal.pause()
print("held", flush=True)
signal.pause()
"""

# One listing, too, since no name has changed: of a directory of an image.
LIST_OLD = """
import os, signal
keep, most = [], max((len(names) + len(files), path) for path, names, files in os.walk("/usr"))
while len(keep) * most[0] < 3000 * 400 and len(keep) < 3500:
    keep.append(os.open(most[1], os.O_RDONLY))
    os.listdir(keep[-1])
print("held", flush=True)
signal.pause()
"""

# As file managers and indexers have them; and more that are not listed.
BROWSE = """
import os, signal
keep = []
for path, names, _ in os.walk("/usr"):
    keep.append(os.open(path, os.O_RDONLY))
    os.listdir(keep[-1])
    if len(keep) == 200:
        break
keep += [os.open("/usr/bin", os.O_PATH) for _ in range(600)]
print("held", flush=True)
signal.pause()
"""

# Downloads through the gateway that nobody takes.
DOWNLOAD = """
import signal, socket
keep = [socket.create_connection(("a.example", 5000)) for _ in range(60)]
for c in keep:
    c.recv(1)
print("held", flush=True)
signal.pause()
"""


@contextlib.contextmanager
def outside():
    """A server of the machine's that says more than anybody takes, to each; gives its port."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    stop, kept = threading.Event(), []

    def say():
        while not stop.is_set():
            kept.append(listener.accept()[0])
            kept[-1].setblocking(False)
            with contextlib.suppress(OSError):
                while True:
                    kept[-1].send(bytes(1 << 20))
    thread = threading.Thread(target=say)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        socket.create_connection(listener.getsockname()).close()
        thread.join()
        for one in (listener, *kept):
            one.close()


# Record locks, of which no group is charged for any: of a process.
LOCK = """
import fcntl, signal
keep = []
for i in range(900):
    keep.append(open(f"/tmp/{i}", "w"))
    for at in range(400):
        fcntl.lockf(keep[-1], fcntl.LOCK_EX, 1, 2 * at)
print("held", flush=True)
signal.pause()
"""

# The same of descriptions.
LOCK_DESCRIBED = LOCK.replace("fcntl.lockf(keep[-1], fcntl.LOCK_EX, 1, 2 * at)", "fcntl.fcntl(keep[-1], fcntl.F_OFD_SETLK, struct.pack('hhqqi4x', 1, 0, 2 * at, 1, 0))").replace(
    "import fcntl", "import fcntl, struct")

# A third of as many, which several descriptors show, or several processes.
LOCK_FEW = LOCK_DESCRIBED.replace("range(900)", "range(100)").replace("range(400)", "range(500)").replace("print", """
for i in range(100):
    keep += [open(f"/tmp/own-{i}", "w"), open(f"/tmp/own-{i}", "w")]
    for at in range(500):
        fcntl.lockf(keep[-1 - at % 2], fcntl.LOCK_EX, 1, 2 * at)
    for _ in range(5):
        os.dup(keep[-1].fileno())
for _ in range(6):
    if os.fork() == 0:
        signal.pause()
print""").replace("import fcntl", "import fcntl, os")


@contextlib.contextmanager
def server(tmp, env, user=None):
    instance = cay.Instance(tmp, env=env, user=user)
    try:
        yield instance.start()
    finally:
        instance.close()


def hold(instance, box, script=HOLD):
    return instance.exec(box, "python3", "-c", script)


def held(instance, box, run, lines=1):
    """The last of so many lines that it has said, or less where it was ended before."""
    connection = cay.UnixConnection(instance.socket, 30)
    connection.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output?follow=true")
    answer = connection.getresponse()
    said = [answer.readline() for _ in range(lines)][-1]
    connection.close()
    return said


def check_ended(instance, box, run):
    status = instance.wait(box, run)
    equal((status["status"], status["signal"]), ("limit", signal.SIGKILL))
    assert status["evidence"]["uncounted_bytes"] > LIMITS["memory_bytes"], status
    hits = [e for e in instance.events(box) if e["type"] == "limit.hit"]
    equal([(e["exec"], e["data"]["limit"], e["data"]["detail"]["most"]) for e in hits], [(run["id"], "kernel_memory", LIMITS["memory_bytes"])])


def test_who_holds_too_much_is_ended_and_told(tmp):
    """It alone: not another command of its sandbox, nor the sandbox."""
    with server(tmp, SOON) as instance, instance.sandbox(limits=LIMITS) as box:
        other = instance.exec(box, "cat", stdin=True)
        check_ended(instance, box, hold(instance, box))
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{other['id']}")["state"], "running")
        equal(instance.ok(box, "echo goes on"), "goes on\n")


def fill(instance, box, run):
    """What has said that it is ready fills its buffers."""
    instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin", b"\n")
    contains(held(instance, box, run, 2).decode(), "held")


def check_goes_on(instance, box, run):
    """While another one is looked at, and ended."""
    with instance.sandbox(limits=LIMITS) as other:
        for _ in range(2):
            equal(instance.wait(other, hold(instance, other))["status"], "limit")
    equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
    equal([e for e in instance.events(box) if e["type"] == "limit.hit"], [])


def test_what_is_counted_may_be_held(tmp):
    """However much, also in sockets that were made for a fork before its programs ran."""
    with server(tmp, ALWAYS) as instance, instance.sandbox(limits=LIMITS) as box:
        run = instance.exec(box, "python3", "-c", ACCEPT, stdin=True)
        equal(held(instance, box, run), b"ready\n")
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        again = instance.get(f"/v1/sandboxes/{fork}/execs")["execs"][0]
        fill(instance, box, run)
        check_goes_on(instance, box, run)
        fill(instance, fork, again)
        check_goes_on(instance, fork, again)
        instance.remove(fork)


def test_who_keeps_too_many_listings_is_ended_and_told(tmp):
    with server(tmp, SOON) as instance, instance.sandbox(limits=dict(LIMITS, files=4096)) as box:
        check_ended(instance, box, hold(instance, box, LIST))


def test_many_others_hide_no_listings(tmp):
    with server(tmp, SOON) as instance, instance.sandbox(limits=dict(LIMITS, files=4096)) as box:
        check_ended(instance, box, hold(instance, box, LIST_LAST))


def test_directories_may_be_open(tmp):
    """Two hundred of them, all listed, and however many that are not."""
    with server(tmp, ALWAYS) as instance, instance.sandbox(limits=dict(LIMITS, files=4096)) as box:
        run = hold(instance, box, BROWSE)
        equal(held(instance, box, run), b"held\n")
        check_goes_on(instance, box, run)
        equal(instance.ok(box, "find /etc /usr/bin /usr/include > /dev/null 2>&1; echo found"), "found\n")


def check_may_be_open(tmp, script):
    with server(tmp, ALWAYS) as instance, instance.sandbox(limits=dict(LIMITS, files=4096)) as box:
        run = hold(instance, box, script)
        equal(held(instance, box, run), b"held\n")
        check_goes_on(instance, box, run)


def test_directories_that_are_in_one_layer_may_be_open(tmp):
    check_may_be_open(tmp, LIST_MADE)


def test_a_directory_that_was_opened_once_is_held_once(tmp):
    """However many processes have it."""
    check_may_be_open(tmp, INHERIT)


def test_a_directory_that_has_not_changed_is_held_once(tmp):
    check_may_be_open(tmp, LIST_OLD)


def check_locks(tmp, script, env=SOON, user=None):
    with server(tmp, env, user) as instance, instance.sandbox(limits=LIMITS) as box:
        check_ended(instance, box, hold(instance, box, script))


def test_who_has_too_many_record_locks_is_ended_and_told(tmp):
    check_locks(tmp, LOCK)


def test_who_has_too_many_locks_of_descriptions_is_ended_and_told(tmp):
    check_locks(tmp, LOCK_DESCRIBED)


@require(*NEEDS, "userns", "newuidmap")
def test_rootless_record_locks_are_looked_at_without_controllers(tmp):
    with cay.ThrowawayUser() as user:
        os.chmod(tmp, 0o755)
        check_locks(tmp, LOCK, dict(SOON, CAY_ACCEPT_NO_LIMITS="1"), user)


def most_said(instance, said):
    return max((int(line.split(said)[1].split()[0]) for line in read(instance.log).splitlines() if said in line), default=0)


def test_a_record_lock_counts_once(tmp):
    """However many descriptors and processes show it. They are looked at where somebody could have too many."""
    with server(tmp, dict(ALWAYS, CAY_DEBUG="memory")) as instance, instance.sandbox(limits=dict(LIMITS, files=4096)) as box:
        said = f"programs of sandbox '{box}' hold "
        equal(held(instance, box, hold(instance, box, LOCK_FEW)), b"held\n")
        with instance.sandbox(limits=dict(LIMITS, memory_bytes=1 << 30, files=4096)) as other:
            equal(held(instance, other, hold(instance, other, LOCK)), b"held\n")
            # a look may have begun before all were held, where others on this machine have many
            cay.wait_until(lambda: most_said(instance, said) >= 100000 * 192, 60, "a look at the locks")
        equal(most_said(instance, said), 100000 * 192)


def test_what_its_gateway_holds_is_not_its_own(tmp):
    """The ends of the gateway are in the same network."""
    with server(tmp, ALWAYS) as instance, outside() as port:
        rule = {"match": {"host": "a.example", "port": 5000, "transport": "tcp"}, "action": "allow", "upstream": f"127.0.0.1:{port}", "private": True}
        with instance.sandbox(limits=LIMITS, policy=json.dumps({"rules": [rule]})) as box:
            run = hold(instance, box, DOWNLOAD)
            equal(held(instance, box, run), b"held\n")
            check_goes_on(instance, box, run)


def test_what_its_gateway_holds_hides_nothing(tmp):
    """Version 2 counts the gateway's sockets, too, those outside among them, which are none of the sandbox's."""
    with server(tmp, NEVER) as instance, outside() as port:
        rule = {"match": {"host": "a.example", "port": 5000, "transport": "tcp"}, "action": "allow", "upstream": f"127.0.0.1:{port}", "private": True}
        box = instance.post("/v1/sandboxes", {"limits": LIMITS, "policy": json.dumps({"rules": [rule]})})["id"]
        # few of them: machines with 4 GiB give all TCP together some 240 MiB before it is short
        download, run = hold(instance, box, DOWNLOAD.replace("60", "14")), hold(instance, box, HOLD_MANY)
        for one in (download, run):
            equal(held(instance, box, one), b"held\n")
        instance.kill()
        instance.start(**SOON)
        check_ended(instance, box, run)
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{download['id']}")["state"], "running")
        instance.remove(box)


def test_the_next_server_sees_what_was_held_before(tmp):
    """Also by those who stand still."""
    with server(tmp, NEVER) as instance:
        box = instance.post("/v1/sandboxes", {"limits": LIMITS})["id"]
        run = hold(instance, box)
        equal(held(instance, box, run), b"held\n")
        instance.post(f"/v1/sandboxes/{box}/pause", {})
        instance.kill()
        instance.start(**SOON)
        instance.wait_event("limit.hit", box)
        instance.post(f"/v1/sandboxes/{box}/resume", {})
        check_ended(instance, box, run)
        instance.remove(box)


def keeper_of(instance, box):
    return parent(instance.get(f"/v1/sandboxes/{box}")["init_pid"])


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        return int(f.read().rsplit(")", 1)[1].split()[1])


def test_a_keeper_that_stands_still_keeps_nobody_from_being_looked_at(tmp):
    with server(tmp, SOON) as instance, instance.sandbox(limits=LIMITS) as box, instance.sandbox(limits=LIMITS) as still:
        keeper = keeper_of(instance, still)
        os.kill(keeper, signal.SIGSTOP)
        try:
            check_ended(instance, box, hold(instance, box))
        finally:
            os.kill(keeper, signal.SIGCONT)


def test_in_a_fork_it_is_the_same(tmp):
    """Sockets that were made for it before its programs ran have their command's group."""
    with server(tmp, NEVER) as instance:
        box = instance.post("/v1/sandboxes", {"limits": LIMITS})["id"]
        script = HOLD.replace("keep = []", 'keep = []\nprint("ready", flush=True)\nimport sys\nsys.stdin.readline()')
        run = instance.exec(box, "python3", "-c", script, stdin=True)
        equal(held(instance, box, run), b"ready\n")
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        instance.kill()
        instance.start(**SOON)
        again = instance.get(f"/v1/sandboxes/{fork}/execs")["execs"][0]
        instance.raw("POST", f"/v1/sandboxes/{fork}/execs/{again['id']}/stdin?close=true", b"\n")
        check_ended(instance, fork, again)
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        for one in (fork, box):
            instance.remove(one)


def counts(keeper):
    """Processes of a keeper that have looked at locks, and not been heard yet."""
    return [pid for pid, (above, state, _) in processes().items() if above == keeper and state == "Z"]


def test_who_has_ended_when_it_is_heard_is_laid_to_nobody(tmp):
    """What has been counted is heard later, here by a server that stands still meanwhile."""
    with server(tmp, NEVER) as instance:
        box = instance.post("/v1/sandboxes", {"limits": LIMITS})["id"]
        other = instance.exec(box, "cat", stdin=True)
        run = hold(instance, box, LOCK)
        equal(held(instance, box, run), b"held\n")
        keeper, pid = keeper_of(instance, box), instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"]
        instance.kill()
        instance.start(**SOON)
        cay.wait_until(lambda: counts(keeper), 60, "a look at the locks")
        server_pid = instance.process.pid
        os.kill(server_pid, signal.SIGSTOP)
        equal(len(counts(keeper)), 1)
        os.kill(pid, signal.SIGKILL)
        cay.wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 60, "its end")
        os.kill(server_pid, signal.SIGCONT)
        equal(instance.wait(box, run)["status"], "signaled")
        cay.wait_until(lambda: not counts(keeper), 60, "a hearing")
        equal(instance.ok(box, "echo goes on"), "goes on\n")
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{other['id']}")["state"], "running")
        equal([e for e in instance.events(box) if e["type"] == "limit.hit"], [])
        instance.remove(box)
