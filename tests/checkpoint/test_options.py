# SPDX-License-Identifier: Apache-2.0
"""Options of sockets: where the server's network has other defaults than a sandbox's; those that cannot be carried over are refused by name."""

import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, start  # noqa: E402

NEEDS = ("root", "cgroup2")
PYTHON = "/usr/bin/python3"
SO_TIMESTAMP, SO_TIMESTAMPING, SO_ZEROCOPY = 29, 37, 60

HOLDER = """
import socket, sys
from socket import *
held = []
def hold(domain, kind, protocol, *options):
    held.append(socket(domain, kind, protocol))
    for level, name, value in options: held[-1].setsockopt(level, name, value)
    return held[-1].fileno()
def value(i, level, name):
    return held[i].getsockopt(level, name)
def drop():
    held.pop().close()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


class Elsewhere(cay.Instance):
    """Its server runs in a network of its own, where connections are kept alive otherwise and nobody may have a ping socket."""

    def command(self, argv):
        script = "echo 111 > /proc/sys/net/ipv4/tcp_keepalive_time && echo 1 0 > /proc/sys/net/ipv4/ping_group_range && exec \"$@\""
        return ["unshare", "--net", "sh", "-c", script, "sh", *argv]


@require(*NEEDS)
def test_defaults_are_those_of_the_sandbox(tmp):
    """What the server's network begins with is not what the sandbox's does: it was set, and is set in the fork."""
    instance = Elsewhere(tmp)
    try:
        instance.start()
        with instance.sandbox() as box:
            put(instance, box, "/tmp/holder.py", HOLDER)
            run = start(instance, box, PYTHON, "/tmp/holder.py")
            ask(instance, box, run, "hold(AF_INET, SOCK_STREAM, 0, (IPPROTO_TCP, TCP_KEEPIDLE, 111))")
            ask(instance, box, run, f"hold(AF_INET, SOCK_DGRAM, IPPROTO_ICMP, (SOL_SOCKET, {SO_TIMESTAMP}, 1), (IPPROTO_IP, IP_TTL, 9))")
            fork = fork_live(instance, box)[0]
            for one in (box, fork):
                equal(ask(instance, one, run, "value(0, IPPROTO_TCP, TCP_KEEPIDLE)"), "111\n")
                equal(ask(instance, one, run, f"value(1, SOL_SOCKET, {SO_TIMESTAMP})"), "1\n")
                equal(ask(instance, one, run, "value(1, IPPROTO_IP, IP_TTL)"), "9\n")
            instance.remove(fork)
    finally:
        instance.close()


NUMBERED = {
    f"hold(AF_INET, SOCK_DGRAM, 0, (SOL_SOCKET, {SO_TIMESTAMPING}, 1 << 4 | 1 << 7))": "a socket that numbers its timestamps (SOF_TIMESTAMPING_OPT_ID)",
    f"hold(AF_INET, SOCK_STREAM, 0, (SOL_SOCKET, {SO_ZEROCOPY}, 1))": "a socket that numbers what it sends without a copy (SO_ZEROCOPY)",
}


@require(*NEEDS)
def test_what_the_kernel_numbers(instance):
    """It tells nobody how far it has come."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/holder.py", HOLDER)
        run = start(instance, box, PYTHON, "/tmp/holder.py")
        for hold, reason in NUMBERED.items():
            fd = int(ask(instance, box, run, hold))
            contains(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"][0]["reason"], f"descriptor {fd} is {reason}")
            error = raises(cay.ApiError, fork_live, instance, box)
            equal(error.code, "unsupported")
            contains(error.message, f"descriptor {fd} is {reason}")
            equal(ask(instance, box, run, "drop()"), "None\n")
        fork_live(instance, box)
