# SPDX-License-Identifier: Apache-2.0
"""
What a program closes is closed, beside a capture as without one: a dumper that still held a copy of it would put that off, and whoever waits for the end
of it would wait for as long as the memory is copied.
"""

import contextlib
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import put, start  # noqa: E402

NEEDS = ("root", "cgroup2")
RELEASED = "live.dump.released_one"
COPIED = "live.dump.copied"

# One of each kind whose end somebody waits for; each is closed, and looked at from its other end.
HOLDER = """
import array, os, pty, select, signal, socket, sys
LONG = 3000
def comes(fd, what=select.POLLIN | select.POLLHUP):
    poll = select.poll()
    poll.register(fd, what)
    return bool(poll.poll(LONG))
def pair():
    a, b = socket.socketpair()
    watched = select.epoll()
    watched.register(a, select.EPOLLIN)
    def close():
        a.close()
        ended = comes(b)
        b.close()
        return ended and not watched.poll(0)
    return close
def stream():
    listener = socket.create_server(("127.0.0.1", 0))
    sender = socket.create_connection(listener.getsockname())
    receiver = listener.accept()[0]
    sender.setblocking(False)
    try:
        while True:
            sender.send(bytes(65536))
    except BlockingIOError:
        pass
    def close():
        sender.close()
        while comes(receiver):
            if not receiver.recv(65536):
                return True
        return False
    return close
def again(kind, fill):
    first = socket.socket(socket.AF_INET, kind)
    first.bind(("127.0.0.1", 0))
    address = first.getsockname()
    other = socket.socket(socket.AF_INET, kind)
    fill(first, other, address)
    def close():
        first.close()
        try:
            socket.socket(socket.AF_INET, kind).bind(address)
            return other.fileno() >= 0
        except OSError:
            return False
    return close
def backlog(first, other, address):
    first.listen()
    other.connect(address)
def datagram(first, other, address):
    other.sendto(b"x", address)
def travels():
    read, write = os.pipe()
    a, b = socket.socketpair()
    a.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [write]))])
    os.close(write)
    def close():
        _, control, _, _ = b.recvmsg(1, 100)
        os.close(array.array("i", control[0][2])[0])
        return comes(read)
    return close
def terminal():
    master, slave = pty.openpty()
    def close():
        os.close(master)
        return comes(slave, 0)
    return close
def pipe():
    read, write = os.pipe()
    def close():
        os.close(write)
        return comes(read)
    return close
KINDS = {"pair": pair, "stream": stream, "listener": lambda: again(socket.SOCK_STREAM, backlog),
         "datagrams": lambda: again(socket.SOCK_DGRAM, datagram), "travels": travels, "terminal": terminal, "pipe": pipe}
held = {name: make() for name, make in KINDS.items()}
if len(sys.argv) > 1:
    os.mkfifo("/tmp/gone")
    gone = open("/tmp/gone", "r+b", 0)
    os.unlink("/tmp/gone")
def close_all(*_):
    with open("/tmp/told.new", "w") as told:
        print(*[name for name, close in held.items() if not close()], file=told)
    os.rename("/tmp/told.new", "/tmp/told")
signal.signal(signal.SIGUSR1, close_all)
print("ready", flush=True)
while True:
    signal.pause()
"""


@contextlib.contextmanager
def capturing(tmp, fault, verb, *how):
    """A holder in a sandbox, beside a capture by @verb whose dumper is held at @fault, when the holder runs again. Gives what @verb will return, in a list."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": f"{fault}=hold"}).start()
    try:
        with instance.sandbox() as box:
            put(instance, box, "/tmp/holder.py", HOLDER)
            start(instance, box, "/usr/bin/python3", "/tmp/holder.py", *how)
            outcome = []
            thread = threading.Thread(target=lambda: outcome.append(verb(instance, box)))
            thread.start()
            cay.wait_until(lambda: held_dumpers(instance), 30, "the dumper stands still")
            try:
                yield instance, outcome
            finally:
                for pid in held_dumpers(instance):
                    os.kill(pid, signal.SIGCONT)
                thread.join(60)
    finally:
        instance.close()


def held_dumpers(instance):
    return [pid for pid, (_, state, _) in leaks.processes().items()
            if state == "T" and leaks.read(f"/proc/{pid}/cmdline").startswith("cay-keeper\0dump\0") and leaks.cgroup_tags([pid]) & instance.tags]


def holder_of(instance):
    (pid,) = [pid for pid in leaks.processes() if leaks.read(f"/proc/{pid}/cmdline").startswith("/usr/bin/python3\0/tmp/holder.py\0")
              and leaks.cgroup_tags([pid]) & instance.tags and not leaks.read(f"/proc/{pid}/fdinfo/1") == ""]
    return pid


def snapshot(instance, box):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]


def refused(instance, box):
    return raises(cay.ApiError, snapshot, instance, box).message


def not_suspended(instance, box):
    return raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/suspend").message


def all_close(instance):
    """The holder closes all, and has told how that went when this returns; nothing else is asked of the keeper, which may be waiting for the dumper."""
    holder = holder_of(instance)
    os.kill(holder, signal.SIGUSR1)
    told = f"/proc/{holder}/root/tmp/told"
    cay.wait_until(lambda: os.path.exists(told), 60, "the holder has closed all")
    equal(leaks.read(told).split(), [])


@require(*NEEDS)
def test_while_the_memory_is_copied(tmp):
    with capturing(tmp, COPIED, snapshot) as (instance, _):
        all_close(instance)


@require(*NEEDS)
def test_nothing_of_theirs_is_held_then(tmp):
    """Of whatever kind: there is but the socket by which the keeper speaks to the dumper."""
    with capturing(tmp, COPIED, snapshot) as (instance, _):
        (pid,) = held_dumpers(instance)
        links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        equal((len([one for one in links if one.startswith("socket:")]),
               [one for one in links if one.startswith(("pipe:", "/dev/pt", "anon_inode:"))]), (1, []))


@require(*NEEDS)
def test_in_the_first_instant(tmp):
    with capturing(tmp, RELEASED, snapshot) as (instance, _):
        all_close(instance)


@require(*NEEDS)
def test_behind_a_refusal(tmp):
    with capturing(tmp, RELEASED, refused, "refused") as (instance, outcome):
        all_close(instance)
    contains(outcome[0], "a deleted named pipe")


@require(*NEEDS)
def test_behind_a_suspension_that_was_refused(tmp):
    with capturing(tmp, RELEASED, not_suspended, "refused") as (instance, outcome):
        all_close(instance)
    contains(outcome[0], "a deleted named pipe")
