# SPDX-License-Identifier: Apache-2.0
"""What the tests share that stop one of our processes for a while: which there are, what was asked and is not answered, what lies in sockets unread."""

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import termios

from lib import leaks
from lib.pace import patience


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class Asked:
    """A request that was sent and whose answer is read later."""

    def __init__(self, instance, method, path, body=None, headers=None):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(patience(60))
        self.socket.connect(instance.socket)
        data = json.dumps(body).encode() if body is not None else b""
        more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
        self.socket.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                            f"{more}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        for _ in range(2):  # one that is asked later has been answered: this one has begun
            instance.get("/v1/version")

    def leave(self):
        self.socket.close()

    def answer(self):
        """Its status and document."""
        text = b""
        while more := self.socket.recv(65536):
            text += more
        self.socket.close()
        head, body = text.split(b"\r\n\r\n", 1)
        return int(head.split(b" ", 2)[1]), json.loads(body or b"{}")


def unread(pid):
    """Bytes that lie in the sockets of process @pid."""
    libc, total = ctypes.CDLL(None, use_errno=True), 0
    process = os.pidfd_open(pid)
    for name in os.listdir(f"/proc/{pid}/fd"):
        fd = libc.syscall(438, process, int(name), 0)  # pidfd_getfd
        if fd >= 0:
            with contextlib.suppress(OSError):
                total += struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
            os.close(fd)
    os.close(process)
    return total
