# SPDX-License-Identifier: Apache-2.0
"""What programs inside could take of the machine's, or do to those outside, without a privilege and past every limit: refused as on a machine that has none of it."""

import os

from lib import cay
from lib.case import equal

NEEDS = ("root", "cgroup2")

LEASE = """
import errno, fcntl, os, sys
for path in sys.argv[1:]:
    fd = os.open(path, os.O_RDONLY)
    for command in (fcntl.F_SETLEASE, 1040):
        try:
            print(fcntl.fcntl(fd, command, fcntl.F_RDLCK))
        except OSError as e:
            print(errno.errorcode[e.errno])
print(fcntl.fcntl(fd, fcntl.F_GETLEASE) == fcntl.F_UNLCK, fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 50), flush=True)
sys.stdin.read()
"""

# A size of pages that no machine has: who looks at it has let the flag pass.
HUGE = """
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def said(*call):
    ctypes.set_errno(0)
    return "done" if libc.syscall(*(ctypes.c_long(a) for a in call)) != -1 else errno.errorcode[ctypes.get_errno()]
nowhere = 63 << 26
print(said(9, 0, 1 << 21, 3, 0x22 | 0x40000 | nowhere, -1, 0), said(319, ctypes.addressof(ctypes.create_string_buffer(b"x")), 4), said(29, 0, 1 << 21, 0o1600 | 0o4000 | nowhere))
print(said(9, 0, 1 << 21, 3, 0x22, -1, 0), said(319, ctypes.addressof(ctypes.create_string_buffer(b"x")), 3), said(29, 0, 1 << 21, 0o1600))
"""

CIPHER = """
import errno, socket
s = socket.socket()
for option in (38, 39, 40, 41, 43, 64):
    try:
        s.setsockopt(socket.IPPROTO_TCP, option, bytes(320))
    except OSError as e:
        print(errno.errorcode[e.errno])
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
s.setsockopt(socket.IPPROTO_TCP, 37, 0)
"""

# As programs with secrets do, in both ways, and one that wants it high.
CORES = """
import ctypes, resource
libc = ctypes.CDLL(None)
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
print(libc.syscall(160, 4, (ctypes.c_ulong * 2)(0, 0)), libc.syscall(160, 4, (ctypes.c_ulong * 2)(1 << 30, 1 << 30)))
# a pointer whose low half is none
libc.mmap.restype = ctypes.c_void_p
at = libc.mmap(ctypes.c_void_p(1 << 40), ctypes.c_size_t(4096), 3, 0x22 | 0x100000, -1, ctypes.c_long(0))
print(at == 1 << 40, libc.syscall(302, 0, 4, ctypes.c_void_p(at), None))
print(resource.getrlimit(resource.RLIMIT_CORE))
resource.setrlimit(resource.RLIMIT_NOFILE, (500, 500))
print(resource.getrlimit(resource.RLIMIT_NOFILE))
"""

# On the disk and in memory.
ATTRIBUTES = """
import errno, os
def said(path, *how):
    try:
        return os.setxattr(path, "user.note", *how) or os.getxattr(path, "user.note") == how[0]
    except OSError as e:
        return errno.errorcode[e.errno]
fd = os.memfd_create("x")
for at in ("/root/f", f"/proc/self/fd/{fd}", fd):
    if at == "/root/f":
        open(at, "w")
    print(said(at, b""), said(at, bytes(4031)), said(at, bytes(4032)), said(at, bytes(65536)))
"""


def python(instance, box, program, *args):
    return instance.cay("exec", box, "--", "python3", "-c", program, *args).stdout


def test_no_lease_keeps_writers_outside_waiting(instance, tmp):
    """Through a mount that may only be read, too: the machine's programs open the file as if nobody was there."""
    path = os.path.join(tmp, "file")
    with open(path, "w", encoding="ascii") as f:
        f.write("x")
    with instance.sandbox(mounts=[{"source": tmp, "target": "/ro", "mode": "ro"}]) as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", LEASE, "/ro/file", stdin=True)
        cay.wait_until(lambda: instance.output(box, run).endswith(b"50\n"), 30, "it has tried")
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))  # EWOULDBLOCK while somebody has one
        equal(instance.output(box, run).decode(), "EINVAL\nEINVAL\nTrue 50\n")


def test_no_huge_pages_of_the_machine(instance):
    with instance.sandbox() as box:
        equal(python(instance, box, HUGE), "ENOMEM EINVAL ENOMEM\ndone done done\n")


def test_attributes_of_files_are_small(instance):
    """As on ext4: what others bring is charged to nobody where it is an access list in memory."""
    with instance.sandbox() as box:
        said = python(instance, box, ATTRIBUTES).replace("EOPNOTSUPP", "True")  # of files in memory before Linux 6.6
        equal(said, "True True ENOSPC ENOSPC\n" * 3)


def test_no_option_of_tcp_chooses_a_cipher(instance):
    with instance.sandbox() as box:
        equal(python(instance, box, CIPHER), "EPERM\n" * 6)


def test_who_forbids_core_dumps_leaves_them_forbidden_for_collectors_too(instance):
    """1 is the one value with which the kernel hands none to a program behind a pipe: it stays, and in a fork."""
    with instance.sandbox() as box:
        equal(python(instance, box, CORES), "(1, 1)\n0 0\nTrue 0\n(1, 1)\n(500, 500)\n")
        run = instance.exec(box, "/bin/sh", "-c", "ulimit -c 0; exec cat", stdin=True)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        for one in (box, fork):
            pid = instance.get(f"/v1/sandboxes/{one}/execs/{run['id']}")["pid"]
            with open(f"/proc/{pid}/limits", encoding="ascii") as f:
                equal([line.split()[4:6] for line in f if line.startswith("Max core")], [["1", "1"]])
        instance.remove(fork)
