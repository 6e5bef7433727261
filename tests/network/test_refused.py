# SPDX-License-Identifier: Apache-2.0
"""Contract OUT, the kernel's half: without a policy nothing leaves, and whoever tries learns it at once."""

import contextlib
import json

from lib.case import contains, equal, raises, require
from lib.cay import ApiError, Instance, wait_until

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


# Options of sockets by level and number, on sockets of both families: the name of errno of each, or None.
OPTIONS = r"""
import errno, json, socket, sys
def attempt(family, kind, level, number):
    with socket.socket(family, kind) as s:
        try:
            s.setsockopt(level, number, 16)
        except OSError as error:
            return errno.errorcode[error.errno]
print(json.dumps([attempt(f, k, level, number) for level, number in json.loads(sys.argv[1]) for f in (2, 10)[level == 41:] for k in (1, 2)]))
"""


def test_a_socket_says_the_class_of_its_traffic(instance):
    for profile in ("default", "strict", "debug"):
        with instance.sandbox(profile=profile) as box:
            def tried(*options, where=box):
                return json.loads(instance.cay("exec", where, "--", "python3", "-c", OPTIONS, json.dumps(options), timeout=50).stdout)

            equal(set(tried((0, 1), (41, 67), (41, 66))), {None}, f"IP_TOS, IPV6_TCLASS, IPV6_RECVTCLASS in {profile}")
            # tables of netfilter, and what has these numbers at another level
            equal(set(tried(*((level, number) for level in (0, 41) for number in (64, 65, 96, 128, 200)), (0, 66), (0, 67))), {"EPERM"})


# An echo request to each address, a number of times: by the last line a name of errno for each address, or "answered" (of the last one sent to it).
PING = r'''
import errno, json, select, socket, sys
def ping(host, times):
    v6 = ":" in host
    said = "nothing"
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM, 58 if v6 else 1) as s:
        for _ in range(times):
            try:
                if v6: s.connect((host, 0))  # of the sender's own packets this version tells him only by the answer
                s.sendto(bytes([128 if v6 else 8] + [0] * 7) + b"letters", (host, 0))
                said = "answered" if select.select([s], [], [], 20)[0] and s.recv(100)[8:] == b"letters" else "nothing"
            except OSError as error:
                said = errno.errorcode[error.errno]
    return said
print(json.dumps([ping(h, int(sys.argv[1])) for h in sys.argv[2:]]))
'''


def ping(instance, box, *hosts, times=1, prefix=()):
    return json.loads(instance.cay("exec", box, "--", *prefix, "python3", "-c", PING, str(times), *hosts, timeout=80).stdout)


def denied_pings(instance, box):
    return [e for e in instance.events(box) if e["type"] == "net.denied" and e["data"]["protocol"] == "icmp"]


@require("ping_sockets")
def test_the_sandbox_pings_itself(instance):
    own = ("127.0.0.1", "127.9.9.9", "10.0.0.2", "::1", "fd00::2")
    with instance.sandbox() as box:
        equal(ping(instance, box, *own), ["answered"] * 5)
        equal(ping(instance, box, *own, prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")), ["answered"] * 5, "any user")
        equal(denied_pings(instance, box), [])
        script = "import socket\nfor f, k, p in ((2, 3, 1), (10, 3, 58), (2, 2, 58), (10, 2, 1), (2, 1, 1), (17, 3, 768)):\n    try: socket.socket(f, k, p)\n    except OSError as e: print(e.errno)"
        equal(instance.cay("exec", box, "--", "python3", "-c", script).stdout, "97\n" * 6, "raw and packet sockets, echo requests of the other version")


@require("program:ping", "ping_sockets")
def test_the_program_ping(instance):
    with instance.sandbox() as box:
        for host in ("localhost", "127.0.0.1", "::1"):
            contains(instance.cay("exec", box, "--", "ping", "-c", "1", "-W", "20", host).stdout, " 0% packet loss")
        refused = instance.cay("exec", box, "--", "ping", "-c", "1", "-W", "20", "8.8.8.8", check=False)
        equal(refused.returncode, 1)
        contains(refused.stderr, "Operation not permitted")
        unknown = instance.cay("exec", box, "--", "ping", "-c", "1", "nowhere.example", check=False)
        equal(unknown.returncode, 2)
        instance.wait_event("net.denied", box, lambda e: (e["data"]["what"], e["data"]["host"]) == ("name", "nowhere.example"))
        equal([e["data"]["address"] for e in denied_pings(instance, box)], ["8.8.8.8"])


@require("ping_sockets")
def test_a_ping_elsewhere_is_refused_at_once_and_told(instance):
    world = ("93.184.216.34", "169.254.169.254", "2606:4700::1111", "198.18.0.77")
    for policy in ({}, {"allow": ["a.example"]}):
        with instance.sandbox(**policy) as box:
            for one in ping(instance, box, *world):
                assert one not in ("answered", "nothing"), one
            runs = {e["exec"] for e in instance.events(box) if e["type"] == "exec.created"}
            for host in world:
                told = instance.wait_event("net.denied", box, lambda e, host=host: e["data"]["address"] == host)
                equal(({told["exec"]}, told["data"]["what"], told["data"]["protocol"], told["data"]["reason"]), (runs, "packet", "icmp", "ICMP (ping) does not leave"))


@require("ping_sockets")
def test_a_ping_of_a_name_that_is_allowed_is_told_by_it(instance):
    with instance.sandbox(allow=["a.example"]) as box:
        script = "import socket; print(socket.getaddrinfo('a.example', None, socket.AF_INET)[0][4][0])"
        address = instance.cay("exec", box, "--", "python3", "-c", script).stdout.strip()
        equal(ping(instance, box, address), ["EPERM"])
        told = instance.wait_event("net.denied", box)
        equal((told["data"]["host"], told["data"]["address"]), ("a.example", address))


def test_what_the_kernel_itself_would_send_is_told_as_that(instance):
    """It answers a datagram to a closed port by an error, to whom it says it is from: anybody may say so in version 6."""
    script = r'''
import socket
with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as s:
    s.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND
    s.bind(("2606:4700::1111", 0))
    s.sendto(b"x", ("::1", 9))
'''
    with instance.sandbox() as box:
        instance.ok(box, f"python3 -c '{script}'")
        told = instance.wait_event("net.denied", box, lambda e: e["data"]["address"] == "2606:4700::1111")
        equal((told["data"]["what"], told["data"]["protocol"], told["data"]["reason"]), ("packet", "icmp", "ICMP of the sandbox's kernel does not leave"))


@require("ping_sockets")
def test_a_flood_of_pings_is_a_few_events(instance):
    with instance.sandbox() as box:
        equal(ping(instance, box, "8.8.8.8", times=20000), ["EPERM"])
        ping(instance, box, "8.8.8.8")  # what the log had no room for shows when there is something behind it

        def counted():
            lost = sum(e["data"]["n"] for e in instance.events(box) if e["type"] == "net.lost")
            return sum(e["data"]["count"] for e in denied_pings(instance, box)) + lost
        wait_until(lambda: counted() >= 20001, 30, "all are counted")
        equal(counted(), 20001)
        assert len(denied_pings(instance, box)) < 200


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


def test_ports_that_a_policy_opens(instance):
    """Each is opened for TCP alone, up to its last, also where it lies beside the port of names, which is always open."""
    def ask(kind, *ports):
        said = probe(instance, box, *(f"{f}/{kind}/{h}/{p}" for p in ports for f, h in (("4", "93.184.216.34"), ("6", "2606:4700::1111"))))
        return ["opened" if one in ("connected", "ECONNRESET") else one for one in said]  # of an address that no rule names the gateway ends the connection

    def policy(*ports):
        return json.dumps({"version": 1, "rules": [{"name": "raw", "match": {"host": "a.example", "port": list(ports), "transport": "tcp"}, "action": "allow"}]})
    closed, opened = (1, 51, 61, 15001, 65534), (52, 53, 54, 60, 65535)
    with instance.sandbox(policy=policy(52, "54-60", 65535)) as box:
        equal(ask("tcp", *closed), ["ECONNREFUSED"] * 10)
        equal(ask("tcp", *opened), ["opened"] * 10)
        equal(ask("udp", 1, 52, 54, 123, 15001, 65534, 65535), ["EPERM"] * 14)
    with instance.sandbox(policy=policy("any")) as box:
        equal(ask("tcp", *opened[:4], 1, 65534, 65535), ["opened"] * 14)
        equal(ask("udp", 1, 52, 54, 65535), ["EPERM"] * 8)
    with instance.sandbox() as box:
        equal(ask("tcp", *closed, 52, 54, 60, 65535), ["ECONNREFUSED"] * 18)
        equal(ask("tcp", 53), ["opened"] * 2)


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


def test_a_kernel_that_does_not_keep_ping_sockets_apart(tmp):
    """Before Linux 6.18 those of all network namespaces share their identifiers: nobody inside gets one."""
    with contextlib.closing(Instance(tmp, env={"CAY_WITHOUT": "ping_sockets"})) as instance:
        instance.start()
        with instance.sandbox() as box:
            script = "import socket\nfor f, p in ((2, 1), (10, 58)):\n    try: socket.socket(f, 2, p)\n    except OSError as e: print(e.errno)"
            equal(instance.cay("exec", box, "--", "python3", "-c", script).stdout, "13\n" * 2)
            equal(instance.cay("exec", box, "--", "ping", "-c", "1", "127.0.0.1", check=False).returncode != 0, True)


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
            equal(ping(instance, box, "127.0.0.1", "::1", "192.0.2.1", "2001:db8::1"), ["answered", "answered", "ENETUNREACH", "ENETUNREACH"])
        row = next(r for r in instance.json("doctor", check=False)["checks"] if r["id"] == "packet_filter")
        equal(row["ok"], False)
        contains(row["fix"], "nft_tproxy")
    finally:
        instance.close()
