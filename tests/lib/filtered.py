# SPDX-License-Identifier: Apache-2.0
"""filtered.py N PROGRAM ARGUMENTS…: the program begins under N system call filters that refuse nothing, as one does whom a service manager or a container starts."""

import ctypes
import os
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
SECCOMP, SET_MODE_FILTER = 317, 1
ALLOW = struct.pack("=HBBI", 0x06, 0, 0, 0x7fff0000)


class Program(ctypes.Structure):  # pylint: disable=too-few-public-methods
    """struct sock_fprog"""

    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def main():
    for _ in range(int(sys.argv[1])):
        if LIBC.syscall(SECCOMP, SET_MODE_FILTER, 0, ctypes.byref(Program(1, ALLOW))) != 0:
            sys.exit(f"install a system call filter: {os.strerror(ctypes.get_errno())}")
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
