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
