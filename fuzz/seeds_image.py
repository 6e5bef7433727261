#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the corpus of image_check: plans and images that real dumpers made of programs of tests/checkpoint/objects, as a template holds them. As root, with a build; commit the result.

fuzz/seeds_image.py BUILD [OBJECT]...   Those with much in pipes and sockets are left out: bytes say nothing of a table.
"""

import os
import re
import socket
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests"))
os.environ["CAY_TEST_BUILD"] = os.path.abspath(sys.argv[1])
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "tests", "checkpoint"))

from lib import cay  # noqa: E402  pylint: disable=wrong-import-position
from forking import put_file, start  # noqa: E402  pylint: disable=wrong-import-position

OBJECTS = ("advice", "attributes", "backlogs", "datagrams", "events", "files", "filters", "locks", "memory", "notify", "options", "owners", "passed", "pings",
           "registers", "signals", "sparse", "sysv", "terminals", "threads", "timers", "tree")
PLAN_HEAD, PROCESS, MAP, COPY = "<12I", 56, 24, 32


def window(name):
    """Where a template has it."""
    with open(os.path.join(cay.TOP, "src", "checkpoint", "image.h"), encoding="utf-8") as f:
        return int(re.search(rf"#define WINDOW_{name}\s+(0x[0-9a-f]+)ULL", f.read())[1], 16)


IMAGE, PLAN = window("IMAGE"), window("PLAN")


def template(instance):
    """The process that holds what was captured last."""
    keepers = os.path.join(instance.run, "keepers")
    last = max((os.path.join(keepers, name) for name in os.listdir(keepers) if name.endswith(".tpl")), key=os.path.getmtime)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(last)
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def dumped(pid):
    with open(f"/proc/{pid}/mem", "rb") as mem:
        def at(address, n):
            mem.seek(address)
            return mem.read(n)
        head = struct.unpack(PLAN_HEAD, at(PLAN, struct.calcsize(PLAN_HEAD)))
        plan = at(PLAN, struct.calcsize(PLAN_HEAD) + head[2] * PROCESS + head[3] * MAP + head[4] * COPY)
        size, = struct.unpack("<Q", at(IMAGE + 8, 8))
        return plan, at(IMAGE, size)


def main():
    folder = os.path.join(HERE, "corpus", "image_check")
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        instance = cay.Instance(tmp).start()
        try:
            for name in sys.argv[2:] or OBJECTS:
                with instance.sandbox() as box:
                    put_file(instance, box, os.path.join(sys.argv[1], "tests", "checkpoint", "object_" + name), "/tmp/object")
                    start(instance, box, "/tmp/object")
                    instance.ok(box, "rm -f /tmp/object")
                    instance.post(f"/v1/sandboxes/{box}/snapshots", {})
                    plan, image = dumped(template(instance))
                    with open(os.path.join(folder, "dump-" + name), "wb") as f:
                        f.write(struct.pack("<Q", len(plan)) + plan + image)
                    print(name, len(plan), len(image))
        finally:
            instance.close()


if __name__ == "__main__":
    main()
