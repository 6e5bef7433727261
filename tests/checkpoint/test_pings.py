# SPDX-License-Identifier: Apache-2.0
"""Many ping sockets: what the kernel tells of all of them is read once; and one that has an error to tell."""

import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, start  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2", "ping_sockets")
MANY = 24  # a sandbox may have a few more (sandbox/ration.h)
READ = "live.dump.pings"

HOLDER = """
import resource, select, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
V4, V6 = (socket.AF_INET, socket.IPPROTO_ICMP, "127.0.0.1", 8), (socket.AF_INET6, socket.IPPROTO_ICMPV6, "::1", 128)
held = []
def one(version):
    family, protocol, host, _ = version
    held.append(socket.socket(family, socket.SOCK_DGRAM, protocol))
    held[-1].bind((host, 0))
def many(n):
    for i in range(n): one(V6 if i % 2 else V4)
    return len(held)
def numbers():
    return hash(tuple(s.getsockname()[1] for s in held))
def answered(i):
    held[i].sendto(bytes([(V6 if i % 2 else V4)[3]] + [0] * 7), ((V6 if i % 2 else V4)[2], 0))
    return len(held[i].recv(100))
def refused():
    held.append(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM, socket.IPPROTO_ICMPV6))
    held[-1].connect(("2606:4700::1111", 0))
    held[-1].send(bytes([128] + [0] * 7))
    poll = select.poll()
    poll.register(held[-1], 0)
    return bool(poll.poll(20000)) and held[-1].fileno()
def told():
    return held[-1].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def reads(log):
    with open(log, encoding="utf-8") as f:
        return f.read().split().count(READ)


@require(*NEEDS)
def test_many_are_read_of_once(tmp):
    log = cay.fault_log(tmp)
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT_LOG=log)
        with instance.sandbox() as box:
            put(instance, box, "/tmp/holder.py", HOLDER)
            run = start(instance, box, "/usr/bin/python3", "/tmp/holder.py")
            equal(ask(instance, box, run, f"many({MANY})"), f"{MANY}\n")
            numbers = ask(instance, box, run, "numbers()")
            before = reads(log)
            fork = fork_live(instance, box)[0]
            equal(reads(log) - before, 2, "of each version once")
            equal(ask(instance, fork, run, "numbers()"), numbers)
            for one in (box, fork):
                equal([ask(instance, one, run, f"answered({i})") for i in (0, 1, MANY - 1)], ["8\n"] * 3)
            before = reads(log)
            equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
            equal(reads(log) - before, 2)
    finally:
        instance.close()


@require(*NEEDS)
def test_an_error_that_nobody_has_been_told(instance):
    """To look at it would be to take it. When somebody has been told all is carried."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/holder.py", HOLDER)
        run = start(instance, box, "/usr/bin/python3", "/tmp/holder.py")
        fd = int(ask(instance, box, run, "refused()"))
        want = f"descriptor {fd} is a ping socket with an error that nobody has been told yet"
        contains(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"][0]["reason"], want)
        error = raises(cay.ApiError, fork_live, instance, box)
        equal(error.code, "busy")
        contains(error.message, want)
        equal(ask(instance, box, run, "told()"), "True\n")
        fork_live(instance, box)
