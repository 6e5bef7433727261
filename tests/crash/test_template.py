# SPDX-License-Identifier: Apache-2.0
"""A template by itself: whose orders it takes, and what it leaves."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import signal
import socket
import struct
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require
from lib.pace import patience

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "checkpoint")]
from forking import say, start  # noqa: E402
from points import own_instance  # noqa: E402
from stops import Asked, stopped  # noqa: E402

TIMEOUT = 120

# src/checkpoint/template_wire.h
ALLOW, FORK, SAVE, LOAD, GATHER, MEMORY, LEND, DONE, FAILED = 1, 3, 6, 7, 8, 10, 12, 100, 101
PIDS_MAX, HAND_MAX = 4096, 64
EPERM, EINVAL = -1, -22


def lost(instance, box):
    """A snapshot whose processes went with their template: not yet on disk, as some are that are slow to be asked for."""
    while True:
        s = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        for template in instance.programs_named("cay-template"):
            os.kill(template, signal.SIGKILL)
        cay.wait_until(lambda: not instance.programs_named("cay-template"), 30, "it has not ended")
        if instance.get(f"/v1/snapshots/{s}")["files_only"]:
            return s


def files(instance, ending):
    folder = os.path.join(instance.run, "keepers")
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(ending)]


def sent_by_another(peer, order):
    pid = os.fork()
    if pid == 0:
        peer.send(order)
        os._exit(0)
    equal(os.waitpid(pid, 0)[1], 0)


def answer(peer):
    kind, _, _, status = struct.unpack_from("<Iiii", peer.recv(4096))
    equal(kind, FAILED if status < 0 else DONE)
    return status


def answers(peer, order, send):
    send(order)
    return answer(peer)


def allow(*pids):
    return struct.pack(f"<II{len(pids)}i", ALLOW, len(pids), *pids).ljust(8 + 4 * PIDS_MAX, b"\0")


def hand(peer, pid, path, n=1):
    order = struct.pack("<IIi", MEMORY, n, pid).ljust(8 + 4 * HAND_MAX, b"\0")
    with open(path, "rb", buffering=0) as memory:
        socket.send_fds(peer, [order], [memory.fileno()])
    return answer(peer)


def status_of_child(work):
    """The exit status of a child that does work(); 255: that failed. It never comes back into the test."""
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(work())
        finally:
            os._exit(255)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def hand_of_another_proc(peer):
    """The first process of a namespace of pids, by its /proc, in the place of this machine's."""
    libc = ctypes.CDLL(None, use_errno=True)

    def first():
        assert libc.mount(None, b"/", None, 0x44000, None) == 0  # MS_REC, MS_PRIVATE
        assert libc.mount(b"proc", b"/proc", b"proc", 0, None) == 0
        return -hand(peer, 1, "/proc/1/mem")

    def reader():
        assert libc.unshare(0x20020000) == 0  # CLONE_NEWPID, CLONE_NEWNS
        return status_of_child(first)
    return -status_of_child(reader)


def check_memories(peer):
    """Only what is the memory of a process that the keeper has named is taken for it."""
    me, other = os.getpid(), os.getppid()
    peer.send(allow(me, 1))
    equal(hand(peer, me, "/proc/self/mem"), 0)
    equal(hand(peer, other, f"/proc/{other}/mem"), EPERM)
    for path in (f"/proc/{other}/mem", "/proc/self/maps", f"/proc/self/task/{me}/mem", __file__):
        equal(hand(peer, me, path), EPERM, path)
    equal(hand_of_another_proc(peer), EPERM)
    for n in (0, 2, HAND_MAX + 1):
        equal(hand(peer, me, "/proc/self/mem", n), EINVAL)


# shared memory without a name, and a file that is mapped
SHARER = """
import mmap, sys
held = mmap.mmap(-1, 1 << 20)
held[:] = b"held" * (1 << 18)
with open(sys.executable, "rb") as f:
    program = mmap.mmap(f.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
print("ready", flush=True)
sys.stdin.read()
"""


def shared_mappings(pid):
    """(start, end) of each that is of memory, and of each that is of a file."""
    found = ([], [])
    for words in map(str.split, leaks.read(f"/proc/{pid}/maps").splitlines()):
        if words[1][3] == "s":
            found[words[5] != "/dev/zero"].append([int(n, 16) for n in words[0].split("-")])
    return found


def lent(peer, pid, place):
    """The first bytes of what is lent, or the error."""
    peer.send(struct.pack("<IiQQ", LEND, pid, *place))
    message, fds, _, _ = socket.recv_fds(peer, 4096, 1)
    kind, _, _, status = struct.unpack_from("<Iiii", message)
    if kind == FAILED:
        equal(fds, [])
        return status
    with open(fds[0], "rb", closefd=True) as f, mmap.mmap(f.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ) as memory:
        return memory[:4]


def by_a_dumper(pid, work):
    """Whether work() is true in the user namespace above that of process @pid, which is where dumpers are executed."""
    def enter():
        with open(f"/proc/{pid}/ns/user", encoding="ascii") as own:
            above = fcntl.ioctl(own.fileno(), 0xb702)  # NS_GET_PARENT
        assert ctypes.CDLL(None, use_errno=True).setns(above, 0x10000000) == 0  # CLONE_NEWUSER
        return 0 if work() else 1
    return status_of_child(enter) == 0


def check_lending(peer, sharer):
    """Only memory without a name, of a process that the keeper has named, and only to whom is in the namespace that its own is made in."""
    (memory, *_), (file, *_) = shared_mappings(sharer)
    peer.send(allow(sharer))
    equal(lent(peer, sharer, memory), EPERM)
    assert by_a_dumper(sharer, lambda: lent(peer, sharer, memory) == b"held")
    assert by_a_dumper(sharer, lambda: lent(peer, sharer, file) == EPERM)
    assert by_a_dumper(sharer, lambda: lent(peer, sharer, (memory[0], memory[1] + 4096)) < 0)
    peer.send(allow(me := os.getpid()))
    with mmap.mmap(-1, 1 << 20):
        mine = shared_mappings(me)[0][0]
        assert by_a_dumper(sharer, lambda: lent(peer, me, mine) == EPERM)
    assert by_a_dumper(sharer, lambda: lent(peer, sharer, memory) == EPERM)


def check_orders(path, sharer):
    """Whoever has connected may do all; a process that has its connection, as a dumper has its keeper's, may not name processes, save, load or fork."""
    me = allow(os.getpid())
    gather = struct.pack("<IiQQ", GATHER, os.getpid(), 0, 0)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.settimeout(patience(30))
        peer.connect(path)

        def another(order):
            sent_by_another(peer, order)
        for kind in (FORK, SAVE, LOAD):
            order = struct.pack("<I", kind)
            equal((answers(peer, order, peer.send), answers(peer, order, another)), (EINVAL, EPERM), str(kind))
        another(me)
        equal(answers(peer, gather, peer.send), EPERM)
        peer.send(me)
        for send in (peer.send, another):
            assert answers(peer, gather, send) != EPERM
        check_memories(peer)
        check_lending(peer, sharer)


@require("root", "cgroup2")
def test_whose_orders_it_takes(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="live.take.template=hold")
        with instance.sandbox() as box:
            start(instance, box, "/usr/bin/python3", "-c", SHARER)
            sharer, = instance.programs_named("python3")
            made = []
            thread = threading.Thread(target=lambda: made.append(instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})))
            thread.start()
            cayd = instance.process.pid
            cay.wait_until(lambda: leaks.processes()[cayd][1] == "T", 30, "cayd is held")
            try:
                path, = files(instance, ".tpl")
                check_orders(path, sharer)
            finally:
                os.kill(cayd, signal.SIGCONT)
            thread.join(patience(60))
            equal([snapshot["files_only"] for snapshot in made], [False])


@require("root", "cgroup2")
def test_nothing_is_left_of_one_that_ends_last(fresh):
    """The server has ended, and cay-spawn, which clears up behind others."""
    with fresh.sandbox() as box:
        start(fresh, box, "/bin/sh", "-c", "echo ready; exec sleep 1000")
        fresh.post(f"/v1/sandboxes/{box}/snapshots", {"name": "last"})  # on disk: the server writes it no more
        template, = fresh.programs_named("cay-template")
        spawn, = fresh.programs_named("cay-spawn")
        with stopped(template):
            fresh.stop()
            cay.wait_until(lambda: spawn not in fresh.programs_named("cay-spawn"), 30, "cay-spawn ends, or only reaps")
            equal((len(files(fresh, ".tpl")), len(files(fresh, ".state"))), (1, 1))
        cay.wait_until(lambda: not files(fresh, ".tpl") + files(fresh, ".state"), 30, "its files are gone")
        fresh.start()


@require("root", "cgroup2")
def test_one_that_has_ended_is_not_what_was_not_found(tmp):
    """It ends behind the server's look at it, and before the keeper of the fork comes to it."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="live.restore.begun=hold")
        box = instance.post("/v1/sandboxes", {})["id"]
        start(instance, box, "/bin/sh", "-c", "echo ready; exec sleep 1000")
        s = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        templates = instance.programs_named("cay-template")  # and perhaps that of the next snapshot
        fork = Asked(instance, "POST", f"/v1/snapshots/{s}/fork", {"live": True})
        held = []
        cay.wait_until(lambda: held.extend(p for p in instance.own_processes() if leaks.processes().get(p, ("", "Z"))[1] == "T") or held, 30, "the keeper is not held")
        for template in templates:
            os.kill(template, signal.SIGKILL)
        for path in files(instance, ".tpl"):  # as cay-spawn does behind it, and may have done by now
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        os.kill(held[0], signal.SIGCONT)
        status, answer = fork.answer()
        equal((status, answer["error"]["code"]), (503, "unavailable"), answer["error"]["message"])


@require("root", "cgroup2")
def test_a_server_that_ends_in_order_takes_no_processes_with_it(fresh):
    with fresh.sandbox() as box:
        run = start(fresh, box, "/bin/sh", "-c", "echo ready; read x; echo $x")
        s = fresh.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        fresh.stop()
        fresh.start()
        equal(fresh.get(f"/v1/snapshots/{s}")["files_only"], False)
        fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": s})
        say(fresh, box, run, "on\n")
        equal((fresh.wait(box, run)["code"], fresh.output(box, run)), (0, b"ready\non\n"))


@require("root", "cgroup2")
def test_a_rewind_to_lost_processes_ends_none(fresh):
    with fresh.sandbox() as box:
        run = start(fresh, box, "/bin/sh", "-c", "echo ready; read x; echo $x")
        s = lost(fresh, box)
        error = raises(cay.ApiError, fresh.post, f"/v1/sandboxes/{box}/rewind", {"snapshot": s})
        equal(error.code, "state")
        contains(error.message, "has lost its processes")
        contains(error.hint, "--files-only")
        say(fresh, box, run, "on\n")
        equal((fresh.wait(box, run)["code"], fresh.output(box, run)), (0, b"ready\non\n"))
        fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": s, "files_only": True})


@require("root", "cgroup2")
def test_a_fork_without_its_processes_is_made_only_where_that_is_said(fresh):
    with fresh.sandbox() as box:
        start(fresh, box, "/bin/sh", "-c", "echo ready; exec sleep 1000")
        s = lost(fresh, box)
        error = raises(cay.ApiError, fresh.post, f"/v1/snapshots/{s}/fork", {})
        equal(error.code, "state")
        contains(error.hint, "--files-only")
        fork = fresh.post(f"/v1/snapshots/{s}/fork", {"live": False})["sandboxes"][0]
        equal(fresh.get(f"/v1/sandboxes/{fork['id']}/execs")["execs"], [])
        fresh.call("DELETE", f"/v1/sandboxes/{fork['id']}?force=true")
