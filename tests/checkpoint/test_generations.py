# SPDX-License-Identifier: Apache-2.0
"""A fork of a fork of a Java program with sixty threads, as root and as an ordinary user: what a template made is stopped, looked at and copied again."""

import os
import sys

from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, rootless  # noqa: E402
from programs import Java  # noqa: E402

TIMEOUT = 170


def generations(instance, box):
    """@box, its fork and the fork of that work on."""
    program = Java(instance, box)
    line = [box]
    for _ in range(2):
        line += fork_live(instance, line[-1])
    for one in reversed(line):
        equal(program.tell(one, one), [one])
    for one in line[1:]:
        instance.remove(one)


@require("root", "cgroup2", *Java.needs)
def test_java_with_sixty_threads_as_root(instance):
    with instance.sandbox(limits={"memory_bytes": 4 << 30, "pids": 2000}) as box:
        generations(instance, box)


@require("root", "cgroup2", "userns", "newuidmap", *Java.needs)
def test_java_with_sixty_threads_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        generations(instance, box)
