# SPDX-License-Identifier: Apache-2.0
"""Contract OUT, the kernel's half: without a policy nothing leaves, and whoever tries learns it at once."""

import json

from lib.case import contains, equal, raises
from lib.cay import ApiError, Instance

# One line of JSON for each attempt: what the program saw.
PROBE = r'''
import errno, json, socket, sys
V4, V6, TCP, UDP = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM, socket.SOCK_DGRAM
def attempt(family, kind, host, port):
    s = socket.socket(family, kind)
    s.settimeout(20)
    try:
        s.connect((host, port))
        if kind == UDP:
            s.send(b"x")
            s.recv(1)
        return "connected"
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
family = {"4": V4, "6": V6}
kinds = {"tcp": TCP, "udp": UDP}
print(json.dumps([attempt(family[f], kinds[k], h, int(p)) for f, k, h, p in (a.split("/") for a in sys.argv[1:])]))
'''


def probe(instance, box, *attempts):
    done = instance.cay("exec", box, "--", "python3", "-c", PROBE, *attempts, timeout=50)
    return json.loads(done.stdout)


def test_a_connection_is_refused_at_once(instance):
    with instance.sandbox() as box:
        got = probe(instance, box, "4/tcp/93.184.216.34/80", "4/tcp/169.254.169.254/80", "6/tcp/2606:4700::1111/443", "6/tcp/::ffff:93.184.216.34/443",
                    "6/tcp/fd00:ec2::254/80", "4/tcp/10.1.2.3/22", "4/tcp/255.255.255.255/80", "6/tcp/fe80::1/80")
        equal(got[:6], ["ECONNREFUSED"] * 6)
        assert "connected" not in got and "TimeoutError" not in got, got


def test_a_datagram_is_refused_at_once(instance):
    with instance.sandbox() as box:
        got = probe(instance, box, "4/udp/93.184.216.34/443", "6/udp/2606:4700::1111/443", "4/udp/224.0.0.251/5353", "6/udp/ff02::fb/5353", "4/udp/8.8.8.8/123")
        for one in got:
            assert one not in ("connected", "TimeoutError"), got


def test_the_sandbox_reaches_itself_on_any_port(instance):
    script = r'''
import socket
for family, hosts in ((socket.AF_INET, ("127.0.0.1", "127.9.9.9", "10.0.0.2")), (socket.AF_INET6, ("::1", "fd00::2", "::ffff:127.0.0.1"))):
    for port in (22, 53, 80, 443, 5432, 8080, 60000):
        with socket.create_server((("0.0.0.0" if family == socket.AF_INET else "::"), port), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
            for host in hosts:
                with socket.socket(family) as client:
                    client.settimeout(20)
                    client.connect((host, port))
                    client.sendall(b"hello")
                    with server.accept()[0] as peer:
                        assert peer.recv(5) == b"hello"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as a, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as b:
    a.bind(("127.0.0.1", 53)); a.settimeout(20)
    b.sendto(b"x", ("127.0.0.1", 53))
    assert a.recv(1) == b"x"
print("all")
'''
    with instance.sandbox() as box:
        equal(instance.cay("exec", box, "--", "python3", "-c", script, timeout=50).stdout, "all\n")


def test_there_is_no_other_device(instance):
    with instance.sandbox() as box:
        lines = instance.cay("exec", box, "--", "cat", "/proc/net/dev").stdout.splitlines()[2:]
        equal([line.split(":")[0].strip() for line in lines], ["lo"])


def test_the_gateways_port_is_closed_to_the_sandbox(instance):
    with instance.sandbox() as box:
        equal(probe(instance, box, "4/tcp/127.0.0.1/15001", "6/tcp/::1/15001", "4/tcp/10.0.0.2/15001", "6/tcp/fd00::2/15001", "4/tcp/1.2.3.4/15001"), ["ECONNREFUSED"] * 5)
        for one in probe(instance, box, "4/udp/127.0.0.1/15001", "6/udp/::1/15001"):
            assert one not in ("connected", "TimeoutError"), one


def test_the_payload_owns_none_of_it(instance):
    script = r'''
import socket
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
s.send(b"\x20\0\0\0" + b"\x10\0" + b"\x05\0" + b"\1\0\0\0" + b"\0\0\0\0" + b"\0\0\0\0" + b"\1\0\0\0" + b"\0\0\0\0" + b"\1\0\0\0")
print(int.from_bytes(s.recv(4096)[16:20], "little", signed=True))
'''
    with instance.sandbox() as box:
        done = instance.cay("exec", box, "--", "python3", "-c", script, check=False)
        # taking the device down: refused by the kernel, or the socket already
        assert done.stdout.strip() == "-1" or "PermissionError" in done.stderr or "not permitted" in done.stderr or "Errno 97" in done.stderr, (done.stdout, done.stderr)
        contains(instance.cay("exec", box, "--", "cat", "/proc/net/if_inet6").stdout, "lo")


def test_a_kernel_that_cannot_steer_connections(tmp):
    """A policy that allows connections is refused with the missing part and the fix; without one a sandbox runs and reaches nothing."""
    instance = Instance(tmp, env={"CAY_WITHOUT": "packet_filter"})
    try:
        instance.start()
        error = raises(ApiError, instance.post, "/v1/sandboxes", {"allow": ["a.example"]})
        equal(error.code, "unsupported")
        contains(error.hint, "packet_filter")
        with instance.sandbox() as box:
            done = instance.cay("exec", box, "--", "python3", "-c", "import socket; socket.create_connection(('192.0.2.1', 80), 20)", want=1)
            contains(done.stderr, "unreachable")
        row = next(r for r in instance.json("doctor", check=False)["checks"] if r["id"] == "packet_filter")
        equal(row["ok"], False)
        contains(row["fix"], "nft_tproxy")
    finally:
        instance.close()
