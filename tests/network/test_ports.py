# SPDX-License-Identifier: Apache-2.0
"""What becomes of the packet filter when a policy changes: only what changes is touched."""

import json
import subprocess

from lib.case import equal, require

# Prints what is taken out of the packet filter's sets and put in, as the kernel tells it.
WATCH = r'''
import re, socket, sys
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 12)  # NETLINK_NETFILTER
s.bind((0, 1 << 6))  # NFNLGRP_NFTABLES
print("ready", flush=True)
while True:
    rest = s.recv(1 << 18)
    while rest:
        size = int.from_bytes(rest[:4], sys.byteorder)
        message, rest = rest[:size], rest[size + 3 & ~3:]
        kind = {12: "new", 14: "gone"}.get(message[4] if message[5] == 10 else None)
        for protocol, port in re.findall(rb"([\x06\x11])\0\0\0(..)\0\0", message, re.S) if kind else ():
            print(kind, {6: "tcp", 17: "udp"}[protocol[0]], int.from_bytes(port, "big"), flush=True)
'''


def policy(*ports):
    return json.dumps({"rules": [{"name": f"r{port}", "match": {"host": "a.example", "port": port, "transport": "tcp"}, "action": "allow"} for port in ports]})


@require("root")
def test_a_port_that_stays_open_is_not_closed_for_a_moment(instance):
    """A packet may miss it then; that for names no policy closes."""
    with instance.sandbox(policy=policy(5000, 6000)) as box:
        pid = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
        watch = subprocess.Popen(["nsenter", f"--net=/proc/{pid}/ns/net", "python3", "-c", WATCH], stdout=subprocess.PIPE, text=True)
        try:
            equal(watch.stdout.readline(), "ready\n")
            for ports, seen in (((5000, 6000), {}), ((5000, 7000), {"gone tcp 6000", "gone tcp 6001", "new tcp 7000", "new tcp 7001"}),
                                (("50-60", 7000), {"gone tcp 5000", "gone tcp 5001", "gone tcp 53", "gone tcp 54", "new tcp 50", "new tcp 61"}),
                                ((7000,), {"gone tcp 50", "gone tcp 61", "new tcp 53", "new tcp 54"})):
                instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": policy(*ports)})
                equal({watch.stdout.readline().strip() for _ in seen}, set(seen), ports)
        finally:
            watch.kill()
            watch.wait()
