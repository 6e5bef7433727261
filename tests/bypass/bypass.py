# SPDX-License-Identifier: Apache-2.0
"""Ways around the gateway: what is tried inside (inside.py), in a world (lib/world.py) that hears everything that gets out.

Each case is blocked when the world has not heard the word of the attempt; each defence that stops some of them can be switched off (defs/defences.def), and then the world
hears it. The server, its keepers and its gateways live in that world, so nothing reaches the machine's own network whatever happens.
"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "attack")]

from cases import Case  # noqa: E402
from lib import cay, leaks, world  # noqa: E402
from lib.pace import patience  # noqa: E402

CASES = []

POLICY = """
version: 1
rules:
  - {name: raw, match: {host: "*.raw.example", port: 1234, transport: tcp}, action: allow}
  - {name: tls, match: {host: "pinned.example", port: 443, transport: tls}, action: allow}
  - {name: inside, match: {host: ["meta.example", "loop.example", "private.example", "mapped.example", "alias.example", "rebind.example", "own.example", "2a00:bb::5"], port: 1234, transport: tcp}, action: allow}
"""

with open(os.path.join(HERE, "inside.py"), encoding="utf-8") as f:
    PROGRAM = f.read()


MADE = "the attempt was made"  # the last line of inside.py


class NotMade(Exception):
    """The program inside did not get to its end: that nothing was heard says nothing."""


class Place:
    """A world with a server in it, for all cases of a session."""

    def __init__(self, session):
        self.world = world.World()
        env = {"CAY_ABLATE": ",".join(session.ablate)} if session.ablate else {}
        self.instance = world.Instance(self.world, session.top, env=env, programs=session.build)
        session.at_end.append(self.close)
        self.instance.start()
        self.box = self.instance.post("/v1/sandboxes", {"policy": POLICY})["id"]

    def close(self):
        try:
            self.instance.close()
        finally:
            self.world.close()

    def attempt(self, name, word, *args, seconds=60):
        """Try it inside; what it printed. Raises NotMade when it was not tried."""
        return made(self.inside(self.box, name, word, *args, seconds=seconds))

    def inside(self, box, name, word, *args, seconds=60):
        done = self.instance.cay("exec", box, "--", "python3", "-c", PROGRAM, name, word, *args, check=False, timeout=seconds)
        return (done.stdout + done.stderr).strip()

    def gateway(self):
        """Process id of the sandbox's gateway, brought up if need be."""
        self.attempt("tcp", "x", "198.18.0.1/53")
        pids = [e["data"]["pid"] for e in self.instance.events(self.box) if e["type"] == "gateway.started"]
        return [p for p in pids if os.path.exists(f"/proc/{p}")][-1]


def made(said):
    """What an attempt printed, without the mark at its end."""
    lines = said.splitlines()
    if MADE not in lines:
        raise NotMade(said or "it printed nothing")
    return "\n".join(line for line in lines if line != MADE)


def place_of(session):
    if not hasattr(session, "bypass"):
        session.bypass = Place(session)
    return session.bypass


def add(case_id, attack, function, expected="the world hears nothing", oracle="listeners of the world", seconds=90):
    def judged(session):
        if session.user is not None:
            return "unreachable", "a world needs root"
        try:
            return function(place_of(session))
        except NotMade as error:
            return "error", f"no attempt was made: {error}"[:600]
    CASES.append(Case(case_id, expected, oracle, kind="outside", users=("-",), profiles=("-",), function=judged, attack=attack, seconds=seconds))


def silent(case_id, attack, name, *args, heard=None):
    """The word must not be heard. @heard: looks for something else than the word (members of World.heard())."""
    def function(place):
        word = f"word{case_id.replace('-', '').lower()}{os.urandom(4).hex()}"
        before = len(place.world.heard(**heard)) if heard else 0
        said = place.attempt(name, word, *args)
        found = place.world.heard(**heard)[before:] if heard else place.world.heard(word)
        if found:
            return "escaped", f"the world heard {found[0]}"
        return "blocked", said.splitlines()[0] if said else "nothing arrived"
    add(case_id, attack, function)


V4, V6 = "93.184.216.34", "2606:4700::1111"


def pings(place):
    """Nothing of an echo request is heard, and each address that was tried is told."""
    heard = len(place.world.heard(kind="icmp"))
    said = place.attempt("icmp", "ping", V4, V6)
    found = place.world.heard(kind="icmp")[heard:]
    if found:
        return "escaped", f"the world heard {found[0]}"
    for address in (V4, V6):
        try:
            place.instance.wait_event("net.denied", place.box, lambda e, address=address: (e["data"]["protocol"], e["data"]["address"]) == ("icmp", address))
        except AssertionError:
            return "escaped", f"no event tells of the ping of {address}"
    return "blocked", said.splitlines()[0]


def sockets(place):
    """Nothing that is sent by other kinds of sockets is heard, and each kind that was tried is told."""
    word = f"socketword{os.urandom(4).hex()}"
    said = place.attempt("protocols", word, V4)
    found = place.world.heard(word)
    if found:
        return "escaped", f"the world heard {found[0]}"
    for kind in ("raw", "packet", "vsock", "sctp", "dccp", "udplite"):
        try:
            place.instance.wait_event("net.denied", place.box, lambda e, kind=kind: (e["data"]["what"], e["data"]["protocol"]) == ("socket", kind))
        except AssertionError:
            return "escaped", f"no event tells of the {kind} socket"
    return "blocked", said.splitlines()[0]


add("NW-20C", "pings", pings, "the world hears nothing, events tell", "a listener of the world; events")

silent("NW-01A", "connects by IPv4 address", "tcp", f"{V4}/80", f"{V4}/1234", "8.8.8.8/443", "1.1.1.1/8080")
silent("NW-01B", "connects by IPv6 address", "tcp", f"{V6}/80", f"{V6}/1234", "2001:4860:4860::8888/443")
silent("NW-01C", "connects by IPv4-mapped and translated addresses", "tcp", f"::ffff:{V4}/80", f"64:ff9b::{V4}/80", "2002:5db8:d822::1/80")
silent("NW-01D", "connects to link-local and private networks", "tcp", "169.254.1.1/80", "fe80::1/80", "10.1.2.3/22", "192.168.1.1/80", "172.17.0.1/5432", "fd12::1/80")
silent("NW-01E", "connects to broadcast, multicast and reserved addresses", "tcp", "255.255.255.255/80", "224.0.0.1/80", "240.0.0.1/80", "0.0.0.0/5432", "ff02::1/80")
silent("NW-02A", "asks the metadata services of clouds", "tcp", "169.254.169.254/80", "fd00:ec2::254/80", "168.63.129.16/80", "100.100.100.200/80", "169.254.170.2/80")
silent("NW-02B", "writes addresses in other ways", "by_name", "2852039166/80", "0xa9fea9fe/80", "0251.0376.0251.0376/80", "0x5d.0xb8.0xd8.0x22/80", "93.184.55330/80",
       "[::ffff:169.254.169.254]/80")
silent("NW-03A", "connects to services of the host's loopback", "tcp", "127.0.0.1/5432", "::1/8080", "127.0.0.2/80")
silent("NW-03B", "connects to an abstract socket of the host", "abstract", "cay-world")
silent("NW-11", "sends from addresses of others", "spoofed", "93.184.216.1", V4, "1234")
silent("NW-12", "raw, packet, SCTP, DCCP, MPTCP, UDP-Lite and vsock sockets", "protocols", V4)
add("NW-12C", "the same, looked for in the log", sockets, "the world hears nothing, events tell", "a listener of the world; events")
silent("NW-20A", "sends datagrams: QUIC, NTP, anything", "udp", f"{V4}/443", f"{V6}/443", f"{V4}/123", f"{V4}/1234", f"::ffff:{V4}/443")
silent("NW-20B", "sends multicast and broadcast datagrams: mDNS", "udp", "224.0.0.251/5353", "ff02::fb/5353", "255.255.255.255/1234")
silent("NW-20D", "data in the first packet", "fast_open", V4, "80")
silent("NW-21", "takes rules and routes away, makes a network of its own", "own_rules", V4, "80")
silent("NW-12B", "other families of sockets, tunnels in IP", "families", V4, "1234")
silent("NW-20E", "options of sockets: our mark, devices, source routes, repaired connections", "options", V4, "1234")
silent("NW-20F", "the same to a port that a rule allows", "options", "169.254.169.254", "1234")
silent("NW-01F", "writes IPv4 addresses in IPv6 in yet other ways, and zones", "tcp", f"::{V4}/80", f"::ffff:0:{V4}/80", "2001:0:5db8:d822::1/80", f"fe80::5efe:{V4}/80", "fe80::1%lo/80", "ff02::1%lo/80")
silent("DN-01A", "labels as payload through the resolver", "resolver", "attacker.example")
silent("DN-01B", "labels as payload to any server, any type, malformed", "dns", "attacker.example", "8.8.8.8", "2001:4860:4860::8888")
silent("DN-01C", "labels below a name that is allowed, looked up only", "dns", "raw.example", "9.9.9.9")
silent("DN-01D", "payload in options, other sections, other kinds of DNS messages, pointers that go round", "dns_forms", "attacker.example", "8.8.8.8")
silent("DN-01E", "the same below a name that is allowed", "dns_forms", "raw.example", "2001:4860:4860::8888")
silent("DN-03", "DNS over TLS and HTTPS, mDNS", "tcp", "8.8.8.8/853", "1.1.1.1/443", "2620:fe::fe/853")
silent("GW-01", "connects to the gateway's own port", "tcp", "127.0.0.1/15001", "::1/15001", "10.0.0.2/15001", "fd00::2/15001", f"{V4}/15001")
silent("GW-02", "an address of its choice on a port that a rule allows", "tcp", f"{V4}/1234", f"{V6}/1234", "169.254.169.254/1234", "127.0.0.1/1234")
silent("GW-03", "another host's name on a port that a rule allows", "by_name", "attacker.example/1234", "raw.example/1234", "a.raw.example.attacker.example/1234",
       "xraw.example/1234", "a.raw.exampl\u0435/1234")
silent("GW-04", "addresses of ours that were given out for no name", "tcp", "198.18.200.200/1234", "fd00:cafe::7777/1234")
silent("GW-03B", "an allowed name on other ports", "by_name", "a.raw.example/1235", "a.raw.example/80", "a.raw.example/22", "a.raw.example/15001", "pinned.example/1234")
silent("GW-05A", "an allowed name that is at a metadata address", "by_name", "meta.example/1234")
silent("GW-05B", "an allowed name that is at a loopback address", "by_name", "loop.example/1234")
silent("GW-05C", "an allowed name that is at a private address", "by_name", "private.example/1234")
silent("GW-05D", "an allowed name that is at a mapped loopback address", "by_name", "mapped.example/1234")
silent("GW-05E", "an allowed name that is another name of a private one", "by_name", "alias.example/1234")
silent("GW-05F", "an allowed name that is at another address whenever it is asked for, loopback among them", "by_name", *["rebind.example/1234"] * 6,
       heard={"kind": "tcp-data", "to": "127.0.0.1", "port": 1234})
silent("GW-05G", "an allowed name, and an address, that are public and the machine's own", "by_name", "own.example/1234", "2a00:bb::5/1234")
for letter, kind, text in (("A", "other", "another server name than the one that was dialled"), ("B", "none", "no server name"), ("C", "nul", "a NUL in the server name"),
                           ("D", "encrypted", "an encrypted server name"), ("E", "fragments", "another server name, in records of one byte"),
                           ("F", "quantum", "another server name, in a ClientHello larger than a packet"), ("G", "twice", "two server names"),
                           ("H", "huge", "another server name, in a ClientHello larger than is read")):
    silent(f"GW-06{letter}", text, "tls", kind, "pinned.example", "443")


def is_served(place, who, talk):
    """@talk says a word that begins with @who to the world, again while it is busy with what went before. Is one of them heard?"""
    deadline = time.monotonic() + patience(40)
    while time.monotonic() < deadline:
        word = f"{who}{os.urandom(4).hex()}"
        talk(word)
        if place.world.heard(word):
            return True
    return False


def serves_others(place, name, *args):
    """While the sandbox makes a nuisance of itself, its neighbour is served, and afterwards it is served itself; the gateway stays small."""
    pid = place.gateway()
    other = place.instance.post("/v1/sandboxes", {"policy": POLICY})["id"]
    try:
        # what it is refused may end the program before its end
        place.inside(place.box, name, "x", *args, seconds=80)
        if not is_served(place, "neighbour", lambda word: place.instance.cay("exec", other, "--", "python3", "-c", PROGRAM, "by_name", word, "a.raw.example/1234", check=False)):
            return "escaped", "the neighbour is not served any more"
    finally:
        place.instance.remove(other)
    if not is_served(place, "self", lambda word: place.inside(place.box, "by_name", word, "b.raw.example/1234")):
        return "escaped", "the sandbox is not served any more"
    if os.path.exists(f"/proc/{pid}"):
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            peak = [int(line.split()[1]) for line in status if line.startswith("VmHWM:")][0]
        if peak > 200 << 10:
            return "escaped", f"the gateway grew to {peak} KiB"
    return "blocked", "both are served"


for case_id, text, arguments in (("GW-07A", "opens connections and says nothing", ("flood", "idle", "2400")),
                                 ("GW-07B", "opens connections with half a ClientHello each", ("flood", "half", "1600")),
                                 ("GW-07C", "asks for names without end", ("flood", "names", "16000")),
                                 ("GW-07D", "is refused without end", ("flood", "denied", "8000"))):
    add(case_id, text, lambda place, arguments=arguments: serves_others(place, *arguments), "others are served, memory is bounded", "a neighbour; the gateway's VmHWM", 200)


WEB = """
version: 1
rules:
  - {name: web, match: {host: "*.web.example", port: 80}, action: allow}
"""


def descriptors(pid):
    """Sockets, pipes and shared writable memory of a process, by inode."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        target = os.readlink(f"/proc/{pid}/fd/{fd}")
        found |= {target} if target.startswith(("socket:[", "pipe:[")) else set()
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            _, mode, _, device, inode = line.split()[:5]
            found |= {f"memory {device} {inode}"} if mode[1] == "w" and mode[3] == "s" else set()
    return found


def shared_state(place):
    """
    One sandbox asks for a name and a page; what the world hears of another one that does the same must be what it would hear of the first one who ever did. That the gateway keeps something is seen where the
    first one does it again: over the connection that it has.
    """
    host = f"x{os.urandom(4).hex()}.web.example"

    def heard():
        return len(place.world.heard(kind="udp", port=53, name=host)), len(place.world.heard(kind="tcp", port=80))

    def visit(box):
        before = heard()
        said = made(place.inside(box, "web", "x", f"http://{host}/kept"))
        if said != "200":
            return said
        return tuple(b - a for a, b in zip(before, heard()))

    with place.instance.sandbox(policy=WEB) as one, place.instance.sandbox(policy=WEB) as other:
        first, again, second = visit(one), visit(one), visit(other)
        pids = [[e["data"]["pid"] for e in place.instance.events(box) if e["type"] == "gateway.started"][-1] for box in (one, other)]
        common = descriptors(pids[0]) & descriptors(pids[1])
        uids = [status_of(pid, "Uid")[0] for pid in pids]
    if not isinstance(first, tuple) or first[0] == 0 or first[1] != 1 or again[1] != 0:
        return "error", f"first {first}, again {again}"
    if second != first:
        return "escaped", f"(questions, connections) of the first one {first}, of the other one {second}"
    if common or uids[0] == uids[1]:
        return "escaped", f"the gateways share {common}, uids {uids}"
    return "blocked", f"(questions, connections): first {first}, again {again}, another sandbox {second}"


def told_by_names(place):
    """What others have asked for makes no difference to what is said of a name that no rule allows, and the world is not asked."""
    known, unknown = (f"{word}{os.urandom(4).hex()}.web.example" for word in ("known", "other"))
    with place.instance.sandbox(policy=WEB) as one:
        place.inside(one, "web", "x", f"http://{known}/kept")
        before = len(place.world.heard(kind="udp", port=53))
        said = place.attempt("answers", "x", known, unknown, known).splitlines()
        asked = len(place.world.heard(kind="udp", port=53)) - before
        heard = len(place.world.heard(kind="udp", port=53, name=known))
    if len(said) != 3 or heard == 0:
        return "error", str(said)
    if len(set(said)) != 1 or asked:
        return "escaped", f"{said}, {asked} questions left"
    return "blocked", said[0]


add("NW-13", "finds out by what the gateway keeps what another sandbox did", shared_state, "each has a gateway of its own, nothing of one serves the other", "listeners of the world; /proc of the gateways")
add("DN-05", "asks for names to learn what another sandbox asked for", told_by_names, "one answer for all that no rule allows, without a question", "the world's name server")


def status_of(pid, *members):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        rows = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    return [rows[m] for m in members]


def jailed(place):
    seccomp, privileges = status_of(place.gateway(), "Seccomp", "NoNewPrivs")
    return ("blocked", "a filter") if (seccomp, privileges) == ("2", "1") else ("escaped", f"Seccomp {seccomp}, NoNewPrivs {privileges}")


def own_uid(place):
    uids, gids, capabilities = status_of(place.gateway(), "Uid", "Gid", "CapEff")
    ids = set(uids.split() + gids.split())
    good = len(ids) == 1 and int(min(ids)) >= 0x80000000 and int(capabilities, 16) == 0
    return ("blocked", uids) if good else ("escaped", f"uid {uids}, gid {gids}, capabilities {capabilities}")


def bounded(place):
    with open(f"/proc/{place.gateway()}/limits", encoding="ascii") as limits:
        data = [line.split()[3] for line in limits if line.startswith("Max data size")][0]
    return ("blocked", data) if data.isdigit() and int(data) <= 1 << 30 else ("escaped", f"data size {data}")


def with_its_processors(place):
    with place.instance.sandbox(policy=POLICY, limits={"cpu_millis": 500}) as box:
        place.inside(box, "tcp", "x", "198.18.0.1/53")
        pid = [e["data"]["pid"] for e in place.instance.events(box) if e["type"] == "gateway.started"][-1]
        quota = leaks.processor_quota(pid)
    return ("blocked" if quota == 50000 else "escaped"), f"{quota} us of each tenth of a second"


add("GW-08", "a gateway that was taken over calls the kernel", jailed, "a filter of system calls", "/proc of the gateway")
add("GW-09", "a gateway that was taken over uses its identity", own_uid, "an id that nobody has, no capability", "/proc of the gateway")
add("GW-10", "a gateway is made to take memory without end", bounded, "a limit", "/proc of the gateway")
add("GW-11", "a gateway is made to work without end", with_its_processors, "its sandbox's limit of processors", "control group of the gateway")
