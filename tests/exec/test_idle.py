# SPDX-License-Identifier: Apache-2.0
"""What a sandbox in which nothing runs holds open, by purpose: thousands of them wait most of the time."""

import os

from lib.case import equal, require
from lib.cay import wait_until

STDIO = {"0", "1", "2"}


def kind(pid, number):
    """Sockets by what they are to the process; anything else by what it is."""
    target = os.readlink(f"/proc/{pid}/fd/{number}")
    return "socket" if target.startswith("socket:[") else target


def descriptors(pid):
    return [kind(pid, number) for number in os.listdir(f"/proc/{pid}/fd") if number not in STDIO]


def name(pid):
    with open(f"/proc/{pid}/comm") as comm:
        return comm.read().strip()


def family(instance, box):
    """The keeper and its children by name, or {} while one of them is on its way."""
    init = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
    with open(f"/proc/{init}/stat") as stat:
        keeper = int(stat.read().rsplit(")", 1)[1].split()[1])
    with open(f"/proc/{keeper}/task/{keeper}/children") as children:
        return {"keeper": keeper, **{name(int(child)): int(child) for child in children.read().split()}}


def holds(instance, box):
    """{process: its descriptors}, or None when something ended while it was looked at."""
    try:
        return {who: sorted(descriptors(pid)) for who, pid in family(instance, box).items()}
    except (FileNotFoundError, ProcessLookupError):
        return None


@require("root")
def test_nothing_is_kept_open_that_can_be_opened_again(instance):
    # of the keeper: to the server, for the next one, to starter and waiter; connections, datagrams and what is refused inside; sockets that are refused when they are made
    idle = {"keeper": ["anon_inode:[signalfd]", "anon_inode:seccomp notify"] + ["socket"] * 7, "cay-starter": ["socket"], "cay-waiter": ["socket"], "cay-init": []}
    with instance.sandbox() as box:
        equal(instance.ok(box, "echo before"), "before\n")
        wait_until(lambda: holds(instance, box) == idle, 30, f"an idle sandbox to hold {idle}")
        equal(instance.ok(box, "echo after; test -w /dev/ptmx && echo terminals"), "after\nterminals\n")
