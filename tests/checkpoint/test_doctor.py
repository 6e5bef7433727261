# SPDX-License-Identifier: Apache-2.0
"""`cay doctor SANDBOX`: what a live snapshot would refuse, told in advance, by process, descriptor and reason, while its processes go on."""

import os
import sys

from lib.case import Skip, contains, equal, raises, require, timeout
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, start, wait_output  # noqa: E402

NEEDS = ("root", "cgroup2")

HOLDER = """
import os, signal, socket, sys
held = []
def pipe():
    path = f"/tmp/pipe.{os.getpid()}"
    os.mkfifo(path)
    held.append(open(path, "r+b", 0))
    os.unlink(path)
    return held[-1].fileno()
def ping():
    held.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP))
    held[-1].sendto(bytes([8] + [0] * 7), ("127.0.0.1", 0))
    return held[-1].recv(100, socket.MSG_PEEK) and held[-1].fileno()
def answered():
    return len(held[-1].recv(100))
def orphan():
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as other:
        held.append(listener.accept()[0])
        other.setblocking(False)
        try:
            while True:
                other.send(bytes(65536))
        except BlockingIOError:
            return held[-1].fileno()
def drop():
    held.pop().close()
    return len(held)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_it_names_process_descriptor_and_reason(instance):
    with instance.sandbox(name="patient") as box:
        instance.ok(box, f"cat > /tmp/holder.py <<'END'\n{HOLDER}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/holder.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        instance.exec(box, "/usr/bin/python3", "-c", "input()", tty={"rows": 24, "columns": 80}, stdin=True)
        report = instance.json("doctor", "patient")
        equal((report["ok"], report["findings"], report["more"]), (True, [], 0))
        contains(instance.cay("doctor", "patient").stdout, "nothing here")
        fd = int(ask(instance, box, run, "pipe()"))
        pid = int(ask(instance, box, run, "os.getpid()"))
        report = instance.json("doctor", "patient", want=1)
        equal(report["ok"], False)
        equal([(f["process"], f["descriptor"], f["name"]) for f in report["findings"]], [(pid, fd, "python3")])
        contains(report["findings"][0]["reason"], f"descriptor {fd} is a deleted named pipe")
        contains(instance.cay("doctor", "patient", want=1).stdout, f"process {pid} (python3): descriptor {fd} is")
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"live": True})
        contains(error.message, f"process {pid} (python3): descriptor {fd} is")
        equal(ask(instance, box, run, "drop()"), "0\n")
        equal(instance.json("doctor", "patient")["ok"], True)


@require(*NEEDS, "program:strace")
def test_who_is_traced_and_a_connection_that_only_the_kernel_has(instance):
    """By the numbers and names that they have inside."""
    with instance.sandbox(profile="debug") as box:
        instance.ok(box, f"cat > /tmp/holder.py <<'END'\n{HOLDER}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/holder.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        pid = int(ask(instance, box, run, "os.getpid()"))
        tracer = instance.exec(box, "/usr/bin/strace", "-o", "/dev/null", "-p", str(pid))
        wait_output(instance, box, tracer, b"attached\n")
        says = f"process {pid} (python3): it is being traced (ptrace(2))"
        contains(instance.cay("doctor", box, want=1).stdout, says)
        contains(raises(ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"live": True}).message, says)
        instance.ok(box, "kill -INT $(pidof strace)")
        instance.wait(box, tracer)
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        fd = int(ask(instance, box, run, "orphan()"))
        says = f"process {pid} (python3): descriptor {fd} is a connection whose other end was closed before"
        contains(instance.cay("doctor", box, want=1).stdout, says)
        contains(raises(ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"live": True}).message, says)
        equal(ask(instance, box, run, "drop()"), "0\n")
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])


@require(*NEEDS)
def test_a_ping_whose_answer_waits(instance):
    """Nobody could send it again. Told in advance, tried again, refused by name; when it has been read all is carried."""
    with instance.sandbox(name="patient") as box:
        instance.ok(box, f"cat > /tmp/holder.py <<'END'\n{HOLDER}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/holder.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        fd = int(ask(instance, box, run, "ping()"))
        findings = instance.json("doctor", "patient", want=1)["findings"]
        equal([(f["descriptor"], f["name"]) for f in findings], [(fd, "python3")])
        contains(findings[0]["reason"], f"descriptor {fd} is a ping socket with answers in it")
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"live": True})
        equal(error.code, "busy")
        contains(error.message, f"descriptor {fd} is a ping socket with answers in it")
        contains(error.hint, "tried ")
        contains(error.hint, "try again, or take its files alone: --files-only")
        error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/suspend")
        contains(error.hint, "tried ")
        equal("--files-only" in error.hint, False)
        equal(ask(instance, box, run, "answered()"), "8\n")
        equal(instance.json("doctor", "patient")["ok"], True)
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "ping()"), f"{fd + 1}\n")
        equal(ask(instance, fork, run, "answered()"), "8\n")


CHANGING = """
import os, select, threading
print("ready", flush=True)
def change():
    watched = select.epoll()
    while True:
        pipes = [os.pipe() for _ in range(20)]
        for read, _ in pipes:
            watched.register(read, select.EPOLLIN)
        for pair in pipes:
            for fd in pair:
                os.close(fd)
for _ in range(4):
    threading.Thread(target=change, daemon=True).start()
input()
"""


@require(*NEEDS)
def test_what_changes_while_it_is_looked_at_is_left_out(instance):
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/changing.py <<'END'\n{CHANGING}\nEND")
        wait_output(instance, box, instance.exec(box, "/usr/bin/python3", "/tmp/changing.py", stdin=True), b"ready\n")
        for _ in range(20):
            equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])


@require(*NEEDS)
def test_several_at_once_and_none_that_runs(instance):
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/holder.py <<'END'\n{HOLDER}\nEND")
        runs = [instance.exec(box, "/usr/bin/python3", "/tmp/holder.py", stdin=True) for _ in range(3)]
        want = set()
        for run in runs:
            wait_output(instance, box, run, b"ready\n")
            for _ in range(2):
                want.add((int(ask(instance, box, run, "os.getpid()")), int(ask(instance, box, run, "pipe()"))))
        found = instance.get(f"/v1/sandboxes/{box}/doctor")["findings"]
        equal({(f["process"], f["descriptor"]) for f in found}, want)
        instance.post(f"/v1/sandboxes/{box}/stop")
        equal(raises(ApiError, instance.get, f"/v1/sandboxes/{box}/doctor").code, "state")


# The first of a group is in another one, and somebody is still in the group.
LEFT = """
import os, signal
def wait():
    signal.pause()
def child(run):
    pid = os.fork()
    if pid == 0:
        run()
        os._exit(0)
    return pid
first, other = child(wait), child(wait)
os.setpgid(first, first)
os.setpgid(other, first)
os.setpgid(first, os.getpgid(0))
print("ready", other, flush=True)
input()
"""


@require(*NEEDS)
def test_a_group_that_its_first_process_has_left(instance):
    """What the order of processes would be is looked at too."""
    with instance.sandbox() as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", LEFT, stdin=True)
        other = int(wait_output(instance, box, run, b"\n").split()[1])
        says = f"process {other}: nobody can put it into group"
        contains(instance.cay("doctor", box, want=1).stdout, says)
        contains(raises(ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"live": True}).message, says)


@require(*NEEDS)
def test_nothing_is_said_of_who_has_only_just_ended(instance):
    """Processes that come and go while they are looked at, with sessions and orphans."""
    with instance.sandbox() as box:
        run = instance.exec(box, "/bin/sh", "-c", "echo ready; while :; do setsid sh -c 'sh -c : & exit' & wait; done")
        wait_output(instance, box, run, b"ready\n")
        for _ in range(20):
            equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])


# Descriptors of a child that has ended and is not waited for, of its first thread.
OF_ENDED = """
import os, sys
pid = os.posix_spawn("/bin/true", ["true"], {})
of = os.pidfd_open(pid, os.O_EXCL)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_nothing_is_said_of_a_first_thread_that_has_ended(instance):
    """A capture takes a descriptor of it (PIDFD_THREAD)."""
    try:
        os.close(os.pidfd_open(os.getpid(), os.O_EXCL))
    except OSError as e:
        raise Skip("this kernel has no PIDFD_THREAD") from e
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", OF_ENDED)
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            equal(ask(instance, one, run, "os.waitid(os.P_PIDFD, of, os.WEXITED).si_pid == pid"), "True\n")
        instance.remove(fork)


# As much memory as it may have.
FULL = """
import os, re, resource, sys
def limit(more):
    size = int(re.search("VmSize:\\s+(\\d+)", open("/proc/self/status").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + more, -1))
    return os.getpid()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_who_may_have_no_more_memory(instance):
    """A capture maps a little in each process. What is let go of in between leaves room for that."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", FULL)
        pid = int(ask(instance, box, run, "limit(0)"))
        says = f"process {pid} (python3): its limit of memory (RLIMIT_AS) leaves no room for the 32 KiB that a capture needs in it"
        contains(instance.cay("doctor", box, want=1).stdout, says)
        for verb, body in (("fork", {"live": True}), ("suspend", None)):
            error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
            contains(error.message, says)
            equal(error.code, "unsupported")
        equal(int(ask(instance, box, run, "limit(1 << 20)")), pid)
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        instance.remove(fork_live(instance, box)[0])


# One loop over an epoll set, and one over a unix socket, with connections that come and go: whatever is told of a descriptor that is closed already is counted.
BUSY = """
import os, select, socket, sys, threading
def serve(listener, note):
    known, told = {}, select.epoll()
    listener.setblocking(False)
    told.register(listener.fileno(), select.EPOLLIN)
    while True:
        for fd, events in told.poll():
            if fd == listener.fileno():
                try:
                    one, _ = listener.accept()
                except BlockingIOError:
                    continue
                one.setblocking(False)
                known[one.fileno()] = one
                told.register(one.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
                continue
            try:
                if known[fd].recv(1) == b"x":
                    known[fd].send(b"y")
            except (KeyError, BlockingIOError) as e:
                note(repr(e))
            except OSError:
                pass
            if fd in known:
                known.pop(fd).close()
def use(family, address):
    while True:
        one = socket.socket(family)
        one.connect(address)
        one.sendall(b"x")
        one.recv(1)
        one.close()
listeners = [socket.create_server(("127.0.0.1", 0), backlog=100), socket.socket(socket.AF_UNIX)]
listeners[1].bind("/tmp/busy.sock")
listeners[1].listen(100)
for listener in listeners:
    if os.fork() == 0:
        for _ in range(8):
            threading.Thread(target=use, args=(listener.family, listener.getsockname())).start()
        threading.Event().wait()
wrong = []
for listener in listeners:
    threading.Thread(target=serve, args=(listener, wrong.append), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(len(wrong), wrong[:3], flush=True)
"""


@require(*NEEDS)
@timeout(120)
def test_a_server_with_connections_that_come_and_go(instance):
    """No event of theirs goes astray because somebody looks at them, and none of them is told as what nobody knows."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/busy.py", BUSY)
        run = start(instance, box, "/usr/bin/python3", "/tmp/busy.py")
        found = [f["reason"] for _ in range(100) for f in instance.get(f"/v1/sandboxes/{box}/doctor")["findings"]]
        unknown = [reason for reason in found if "kernel tells nothing" in reason]
        equal((ask(instance, box, run, "wrong"), unknown[:3]), ("0 []\n", []))
