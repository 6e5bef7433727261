# SPDX-License-Identifier: Apache-2.0
"""The gateway of a sandbox: names, connections that a rule allows, what it tells, and that neither its death nor the server's loses any of it."""

import json
import os
import signal

from lib import cay, leaks, world
from lib.case import contains, equal, raises, require
from lib.cay import wait_until

TIMEOUT = 90
SILENT_SERVER = "95.0.0.53"

POLICY = """
version: 1
rules:
  - {name: raw, match: {host: "*.raw.example", port: 1234, transport: tcp}, action: allow}
  - {name: ssh, match: {host: ssh.example, port: 22, transport: tcp}, action: allow}
  - {name: v6, match: {host: "2606:4700::1111", port: 1234, transport: tcp}, action: allow, upstream: "127.0.0.1:1234"}
"""

TALK = r'''
import errno, json, socket, sys
def talk(host, port, say):
    try:
        with socket.create_connection((host, int(port)), 20) as s:
            s.sendall(say.encode())
            try:
                s.shutdown(socket.SHUT_WR)
            except OSError as error:  # a reset has come already: the read below says so
                if error.errno != errno.ENOTCONN:
                    raise
            got = b""
            while more := s.recv(65536):
                got += more
            return got.decode("latin-1")
    except OSError as error:
        return type(error).__name__
print(json.dumps([talk(*a.split("/", 2)) for a in sys.argv[1:]]))
'''

LOOK_UP = r'''
import json, socket, struct, sys
def ask(server, name, kind, tcp):
    labels = b"".join(bytes([len(p)]) + p.encode("latin-1") for p in name.split(".") if p) + b"\0"
    query = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + labels + struct.pack(">HH", int(kind), 1)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(20)
        s.connect((server, 53))
        s.sendall((struct.pack(">H", len(query)) if tcp else b"") + query)
        answer = s.recv(65536)[2 if tcp else 0:]
    code, count, at, records = answer[3] & 15, struct.unpack(">H", answer[6:8])[0], 12 + len(labels) + 4, []
    for _ in range(count):
        size = struct.unpack(">H", answer[at + 10:at + 12])[0]
        records.append(answer[at + 12:at + 12 + size].hex())
        at += 12 + size
    return [code, records]
print(json.dumps([ask(*(a.split("/") + [t])) for a in sys.argv[1:] for t in (False, True)]))
'''


def run(instance, box, script, *args):
    return json.loads(instance.cay("exec", box, "--", "python3", "-c", script, *args, timeout=80).stdout)


def talk(instance, box, *attempts):
    return run(instance, box, TALK, *attempts)


def look_up(instance, box, *questions):
    """One answer for each question, the same over UDP and TCP."""
    got = run(instance, box, LOOK_UP, *questions)
    equal(got[0::2], got[1::2], "over UDP and TCP")
    return got[0::2]


def gateway_pid(instance, box):
    pids = {e["data"]["pid"]: True for e in instance.events(box) if e["type"] == "gateway.started"}
    return [p for p in pids if os.path.exists(f"/proc/{p}")][-1]


@require("root")
def test_names(tmp):
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=POLICY) as box:
        got = look_up(instance, box, "8.8.8.8/a.raw.example/1", "2001:4860:4860::8888/A.Raw.Example/28", "10.0.0.1/ssh.example/1", "1.1.1.1/a.raw.example/16",
                      "1.1.1.1/a.raw.example/65", "9.9.9.9/1.0.18.198.in-addr.arpa/12", "9.9.9.9/raw.example/1", "9.9.9.9/secret-data.attacker.example/1",
                      "9.9.9.9/localhost/1")
        equal(got, [[0, ["c6120001"]], [0, ["fd00cafe" + "0" * 23 + "1"]], [0, ["c6120002"]], [0, []], [0, []], [0, ["016103726177076578616d706c6500"]],
                    [3, []], [3, []], [0, ["7f000001"]]])
        equal(outside.heard(kind="udp"), [], "the gateway asked the world for a name")
        instance.wait_event("net.denied", box, lambda e: e["data"]["host"] == "secret-data.attacker.example")
        denied = {e["data"]["host"]: e for e in instance.events(box) if e["type"] == "net.denied"}
        equal({host: e["data"].get("type") for host, e in denied.items()}, {"raw.example": None, "secret-data.attacker.example": None, "a.raw.example": "TXT"})
        exec_id = [e["exec"] for e in instance.events(box) if e["type"] == "exec.created"][0]
        equal({e["exec"] for e in denied.values()}, {exec_id})


@require("root")
def test_a_connection_that_a_rule_allows(tmp):
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=POLICY) as box:
        equal(talk(instance, box, "a.raw.example/1234/hello", "ssh.example/22/x", "2606:4700::1111/1234/six"), ["hello", "SSH-2.0-world\r\nx", "six"])
        equal([(h["to"], h["port"]) for h in outside.heard(kind="tcp")], [(world.PUBLIC, 1234), (world.PUBLIC, 22), ("127.0.0.1", 1234)])
        event = instance.wait_event("net.connection", box, lambda e: e["data"]["rule"] == "raw")
        equal({k: event["data"][k] for k in ("host", "port", "transport", "sent", "received", "upstream", "end")},
              {"host": "a.raw.example", "port": 1234, "transport": "tcp", "sent": 5, "received": 5, "upstream": world.PUBLIC, "end": "closed"})
        exec_id = [e["exec"] for e in instance.events(box) if e["type"] == "exec.created"][0]
        equal(event["exec"], exec_id)


@require("root")
def test_what_no_rule_allows_is_refused_and_told(tmp):
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=POLICY) as box:
        # a port that no rule has; a port that some rule has, for another host; by address
        equal(talk(instance, box, "a.raw.example/80/x", "ssh.example/1234/x", "93.184.216.34/1234/x", "93.184.216.34/22/x", "127.0.0.1/1234/x"),
              ["ConnectionRefusedError", "ConnectionResetError", "ConnectionResetError", "ConnectionResetError", "ConnectionRefusedError"])
        instance.wait_event("net.denied", box, lambda e: (e["data"]["host"], e["data"]["port"]) == ("93.184.216.34", 22))
        told = {(e["data"]["host"], e["data"]["port"]) for e in instance.events(box) if e["type"] == "net.denied"}
        equal(told, {("a.raw.example", 80), ("ssh.example", 1234), ("93.184.216.34", 1234), ("93.184.216.34", 22)})
        equal(outside.heard(kind="tcp"), [])


@require("root")
def test_addresses_that_lead_nowhere_do_not_take_the_places_of_those_that_do(tmp):
    """A host with many of IPv6, which this machine has no route to, or gets no answer from."""
    policy = {"version": 1, "rules": [{"name": "raw", "match": {"host": "*.example", "port": 1234, "transport": "tcp"}, "action": "allow"}]}
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=json.dumps(policy)) as box:
        equal(talk(instance, box, "sixless.example/1234/one", "silent.example/1234/two"), ["one", "two"])
        equal([h["to"] for h in outside.heard(kind="tcp")], [world.PUBLIC] * 2)


@require("root")
def test_name_servers_that_change(tmp):
    """Those of the machine while a gateway runs, also in the middle of a look-up that waits for one that is gone; and while no server runs."""
    resolv = os.path.join(tmp, "resolv.conf")

    def write(text):
        with open(resolv, "w", encoding="ascii") as f:
            f.write(text)

    def begin(name):
        return instance.exec(box, "python3", "-c", TALK, f"{name}.raw.example/1234/x")

    def ends_well(asking):
        instance.wait(box, asking)
        equal(json.loads(instance.output(box, asking)), ["x"])

    silent, answering = f"nameserver {SILENT_SERVER}\n", "# by hand\n  nameserver\t9.9.9.9 # the first\nnameserver 2620:fe::fe\noptions timeout:1\n"
    write(silent)
    with world.server(tmp, resolv) as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        asking = begin("away")
        instance.wait_event("gateway.started", box, lambda e: True)
        pid = gateway_pid(instance, box)
        instance.kill()
        write(answering)
        instance.start()
        ends_well(asking)
        write(silent)
        wait_until(lambda: talk(instance, box, "gone.raw.example/1234/x") == ["ConnectionResetError"], 60, "the silent one is asked")
        asking = begin("back")
        write(answering)
        ends_well(asking)
        equal(gateway_pid(instance, box), pid, "the same gateway")


@require("root")
def test_a_name_is_looked_up_as_it_stands(tmp):
    """A rule allows a name, and not what it is behind a domain that the machine searches, where somebody else may answer for every name. One without a dot is one of these."""
    resolv = os.path.join(tmp, "resolv.conf")
    with open(resolv, "w", encoding="ascii") as f:
        f.write("nameserver 9.9.9.9\nsearch wild.example\noptions ndots:5\n")
    policy = {"version": 1, "rules": [{"name": "raw", "match": {"host": ["*.raw.example", "intranet"], "port": 1234, "transport": "tcp"}, "action": "allow"}]}
    with world.server(tmp, resolv) as (outside, instance), instance.sandbox(policy=json.dumps(policy)) as box:
        equal(talk(instance, box, "a.raw.example/1234/one", "nx.raw.example/1234/two", "intranet/1234/three"), ["one", "ConnectionResetError", "three"])
        equal({h["name"] for h in outside.heard(kind="udp", port=53)}, {"a.raw.example", "nx.raw.example", "intranet.wild.example"})
        equal([h["data"] for h in outside.heard(kind="tcp-data")], ["one", "three"])


@require("root")
def test_private_addresses_are_not_dialled(tmp):
    names = ("meta.example", "loop.example", "private.example", "mixed.example", "mapped.example")
    policy = {"version": 1, "rules": [{"name": n.split(".")[0], "match": {"host": n, "port": 1234, "transport": "tcp"}, "action": "allow"} for n in names]}
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=json.dumps(policy)) as box:
        equal(talk(instance, box, *(f"{n}/1234/canary" for n in names)), ["ConnectionResetError"] * 3 + ["canary", "ConnectionResetError"])
        equal({h["to"] for h in outside.heard(kind="tcp")}, {world.PUBLIC})
        instance.wait_event("net.connection", box, lambda e: e["data"]["host"] == names[-1])
        # by name: a client that is told before its connect() has returned tries the name's other address too
        errors = {e["data"]["host"]: e["data"]["error"] for e in instance.events(box) if e["type"] == "net.connection" and "error" in e["data"]}
        equal(set(errors), set(names) - {"mixed.example"})
        contains(errors["meta.example"], "a metadata address")
    policy["rules"] = [{**rule, "private": True} for rule in policy["rules"]]
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=json.dumps(policy)) as box:
        equal(talk(instance, box, "private.example/1234/permitted"), ["permitted"])


@require("root")
def test_what_is_near_is_not_dialled(tmp):
    """Public addresses that are the machine's own, or of a network that it is in: no firewall in front of it stands between."""
    hosts = {"own.example": "a local address", "2a00:bb::5": "a local address", "near.example": "a local-network address",
             "leased.example": "a local-network address"}
    policy = {"version": 1, "rules": [{"name": "near", "match": {"host": list(hosts), "port": 1234, "transport": "tcp"}, "action": "allow"}]}
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=json.dumps(policy)) as box:
        equal(talk(instance, box, *(f"{h}/1234/canary" for h in hosts)), ["ConnectionResetError"] * 4)
        equal(outside.heard(kind="tcp"), [])
        for host, why in hosts.items():
            told = instance.wait_event("net.connection", box, lambda e, host=host: e["data"]["host"] == host)
            contains(told["data"]["error"], why)
        policy["rules"][0]["private"] = True
        instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": json.dumps(policy)})
        equal(talk(instance, box, "own.example/1234/permitted", "2a00:bb::5/1234/too"), ["permitted", "too"])


@require("root")
def test_a_gateway_that_is_killed_comes_back_with_its_names(tmp):
    with world.server(tmp) as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        first = look_up(instance, box, *(f"1.1.1.1/n{i}.raw.example/1" for i in range(20)))
        script = TALK.replace("print(", "input(); print(")
        waiting = instance.popen([os.path.join(instance.programs, "cay"), "exec", "-i", box, "--", "python3", "-c", script, "n7.raw.example/1234/again"],
                                 stdin=-1, stdout=-1, text=True)
        os.kill(gateway_pid(instance, box), signal.SIGKILL)
        ended = instance.wait_event("gateway.ended", box)
        equal(ended["data"]["wait_status"], signal.SIGKILL)
        out, _ = waiting.communicate("\n", timeout=60)
        equal(json.loads(out), ["again"])
        equal(look_up(instance, box, *(f"1.1.1.1/n{i}.raw.example/1" for i in reversed(range(20)))), first[::-1])
        equal(look_up(instance, box, "1.1.1.1/new.raw.example/1"), [[0, ["c6120015"]]])


@require("root")
def test_a_gateway_has_as_much_of_the_processors_as_its_sandbox(tmp):
    """In a group that is not its sandbox's, so that neither waits for what the other takes, nor has its memory; the next one too, and nothing of it stays."""
    with world.server(tmp) as (_outside, instance):
        box = instance.post("/v1/sandboxes", {"policy": POLICY, "limits": {"cpu_millis": 300, "memory_bytes": 256 << 20}})["id"]
        equal(talk(instance, box, "a.raw.example/1234/one"), ["one"])
        first = gateway_pid(instance, box)
        equal(leaks.processor_quota(first), 30000)
        for group in leaks.read(f"/proc/{first}/cgroup").splitlines():
            assert group.startswith("0::") or not group.endswith(box), f"it takes what is its sandbox's: {group}"
        os.kill(first, signal.SIGKILL)
        instance.wait_event("gateway.ended", box)
        equal(talk(instance, box, "a.raw.example/1234/two"), ["two"])
        equal(leaks.processor_quota(gateway_pid(instance, box)), 30000)
        instance.remove(box)

        def left():
            return [path for tag in instance.tags for top in leaks.cgroups(tag) for path, _, _ in os.walk(top) if box in path]
        wait_until(lambda: not left(), 60, "its groups are gone")
        with instance.sandbox(policy=POLICY) as unlimited:
            equal(talk(instance, unlimited, "a.raw.example/1234/three"), ["three"])
            equal(leaks.processor_quota(gateway_pid(instance, unlimited)), None)


@require("root")
def test_a_gateway_that_its_keeper_could_not_tell_to_start_is_followed_by_one_that_it_can(tmp):
    """For want of a descriptor, say. What waits inside is answered by the next one."""
    with world.server(tmp, CAY_FAULT="keeper.gateway.send_start" + "=error") as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        equal(talk(instance, box, "a.raw.example/1234/hello"), ["hello"])
        ended = [e["data"] for e in instance.events(box) if e["type"] == "gateway.ended"]
        equal([os.WTERMSIG(e["wait_status"]) for e in ended], [signal.SIGKILL])


@require("root")
def test_a_server_that_is_killed_loses_and_repeats_no_event(tmp):
    with world.server(tmp) as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        equal(talk(instance, box, "a.raw.example/1234/one"), ["one"])
        pid = gateway_pid(instance, box)
        script = TALK.replace("print(", "input(); print(")
        keeper = instance.exec(box, "sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.05; done; python3 -c \"$0\" b.raw.example/1234/two 9.9.9.9/1234/x", TALK)
        assert script
        instance.cay("exec", box, "--", "touch", "/tmp/go")
        instance.kill()
        instance.start()
        equal(instance.wait(box, keeper)["status"], "exited")
        instance.wait_event("net.connection", box, lambda e: e["data"]["host"] == "b.raw.example")
        instance.wait_event("net.denied", box, lambda e: e["data"]["host"] == "9.9.9.9")
        equal(gateway_pid(instance, box), pid, "the gateway survives the server")
        numbers = [e["data"]["id"] for e in instance.events(box) if e["type"].startswith("net.")]
        equal(len(numbers), len(set(numbers)))
        equal(len([1 for e in instance.events(box) if e["type"] == "net.connection"]), 2)


def passed(log):
    """The points that were passed so far."""
    with open(log, encoding="utf-8") as f:
        return f.read().split()


@require("root")
def test_events_that_the_journal_has_no_room_for_come_when_it_has(tmp):
    """The disk is full: what the gateway can keep it keeps, in order."""
    log = cay.fault_log(tmp)
    with world.server(tmp, CAY_FAULT="gateway.take.full" + ":1=error", CAY_FAULT_LOG=log) as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        equal(talk(instance, box, "a.raw.example/1234/one", "b.raw.example/1234/two"), ["one", "two"])
        instance.wait_event("net.connection", box, lambda e: e["data"]["host"] == "b.raw.example")
        equal(talk(instance, box, "c.raw.example/1234/three"), ["three"])
        instance.wait_event("net.connection", box, lambda e: e["data"]["host"] == "c.raw.example")
        told = [e["data"]["id"] for e in instance.events(box) if e["type"].startswith("net.")]
        equal([int(i.split("-")[1]) for i in told], list(range(1, len(told) + 1)))
        equal([e["data"]["host"] for e in instance.events(box) if e["type"] == "net.connection"], ["a.raw.example", "b.raw.example", "c.raw.example"])
        equal("gateway.look_back" in passed(log), True, "what was sent and not taken is looked for")


@require("root")
def test_nobody_looks_in_the_log_for_what_a_gateway_has_not_told(tmp):
    """However much is in it: of a gateway that begins nothing can be there, and of another one nothing beyond what was acknowledged."""
    log = cay.fault_log(tmp)
    with world.server(tmp, CAY_FAULT_LOG=log) as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        for step in ("first", "killed", "started"):
            if step == "killed":
                os.kill(gateway_pid(instance, box), signal.SIGKILL)
            if step == "started":
                instance.cay("stop", box)
                instance.cay("start", box)
            equal(talk(instance, box, f"{step}.raw.example/1234/x"), ["x"])
            instance.wait_event("net.connection", box, lambda e, host=f"{step}.raw.example": e["data"]["host"] == host)
        equal("gateway.look_back" in passed(log), False)


@require("root")
def test_names_go_on_in_forks_and_after_a_rewind(tmp):
    with world.server(tmp) as (_outside, instance), instance.sandbox(policy=POLICY, name="source") as box:
        equal(look_up(instance, box, "1.1.1.1/one.raw.example/1", "1.1.1.1/two.raw.example/1"), [[0, ["c6120001"]], [0, ["c6120002"]]])
        instance.cay("snapshot", box, "--name", "s1")
        fork = instance.json("fork", "s1", "--name", "child")
        child = (fork[0] if isinstance(fork, list) else fork.get("sandboxes", [fork])[0])["id"]
        try:
            equal(talk(instance, child, "198.18.0.2/1234/by-address"), ["by-address"])
            event = instance.wait_event("net.connection", child)
            equal(event["data"]["host"], "two.raw.example")
            equal(look_up(instance, child, "1.1.1.1/three.raw.example/1"), [[0, ["c6120003"]]])
        finally:
            instance.remove(child)
        instance.cay("rewind", box, "s1")
        equal(look_up(instance, box, "1.1.1.1/two.raw.example/1", "1.1.1.1/other.raw.example/1"), [[0, ["c6120002"]], [0, ["c6120003"]]])


@require("root")
def test_the_gateway_has_no_privilege(tmp):
    with world.server(tmp) as (_outside, instance), instance.sandbox(policy=POLICY) as box:
        talk(instance, box, "a.raw.example/1234/x")
        pid = gateway_pid(instance, box)
        with open(f"/proc/{pid}/status", encoding="ascii") as f:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
        ids = set(status["Uid"].split() + status["Gid"].split())
        equal(len(ids), 1)
        assert int(ids.pop()) >= 0x80000000, status["Uid"]
        equal({status[k] for k in ("CapInh", "CapPrm", "CapEff", "CapAmb")}, {"0" * 16})
        equal((status["Seccomp"], status["NoNewPrivs"], status["Groups"].strip()), ("2", "1", ""))
        # in a group of its own: what version 2 counts there is not the sandbox's
        with open(f"/proc/{pid}/cgroup", encoding="ascii") as f:
            equal([line.rsplit("/", 2)[1:] for line in f.read().split("\n") if line.startswith("0::")], [[box, "gateway"]])
        # nothing open but sockets, pipes and the loop's own
        for fd in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{fd}")
            assert target.startswith(("socket:", "pipe:", "anon_inode:")) or int(fd) < 3, target


def test_a_run_says_what_it_was_denied(instance):
    status, shown = instance.at_terminal("run", "--no-cwd", "--", "sh", "-c", "getent hosts nowhere.example; true")
    equal(status, 0)
    contains(shown, "nowhere.example")
    contains(shown, "allow with --allow nowhere.example\r\n")
    # an address that --allow alone does not let through is not advised, and what is inside is refused
    script = "import socket\nfor a in {}:\n    try: socket.create_connection((a, 5432), 5)\n    except OSError: pass"
    shown = instance.at_terminal("run", "--no-cwd", "--", "python3", "-c", script.format(["10.1.2.3"]))[1]
    contains(shown, "denied 1: 10.1.2.3:5432; a private address takes a rule with private: true in a policy\r\n")
    shown = instance.at_terminal("run", "--no-cwd", "--", "python3", "-c", script.format(["10.1.2.3", "10.1.2.3", "8.8.8.8"]))[1]
    contains(shown, "; allow with --allow 8.8.8.8:5432\r\n")
    for host in ("localhost", "db.localhost:5432", "127.0.0.1:5432", "[::1]:80", "10.0.0.2"):
        refused = instance.cay("run", "--no-cwd", "--allow", host, "--", "true", want=125).stderr
        contains(refused, f"allow '{host}': that is the sandbox itself")
        contains(refused, "upstream: 127.0.0.1:PORT")
    # where pip goes is more than one host: the preset has them all
    shown = instance.at_terminal("run", "--no-cwd", "--allow", "pypi.org", "--", "getent", "hosts", "files.pythonhosted.org")[1]
    contains(shown, "; allow with --allow files.pythonhosted.org or --policy package-registries\r\n")
    # a datagram and a ping leave by no rule
    ping = ("import socket; s = socket.socket(2, 2, 1); udp = socket.socket(2, 2)\n"
            "for send in (lambda: s.sendto(bytes([8] + [0] * 7), ('8.8.8.8', 0)), lambda: udp.sendto(b'x', ('8.8.8.8', 123))):\n"
            "    try: send()\n"
            "    except PermissionError: pass")
    shown = instance.at_terminal("run", "--no-cwd", "--", "python3", "-c", ping)[1]
    contains(shown, "icmp 8.8.8.8")
    contains(shown, "udp 8.8.8.8:123")
    contains(shown, "; no rule lets that out")
    shown = instance.at_terminal("run", "--no-cwd", "--", "python3", "-c", "import socket\nfor _ in range(3):\n    try: socket.socket(2, 3, 1)\n    except OSError: pass")[1]
    contains(shown, "denied 3: raw socket \u00d73; no rule lets that out")
    # a pipe gets what the command said and nothing else
    quiet = instance.cay("run", "--no-cwd", "--", "sh", "-c", "getent hosts nowhere.example; true")
    equal((quiet.stdout, quiet.stderr), ("", ""))


def test_a_run_says_what_could_not_be_reached(tmp):
    policy = os.path.join(tmp, "policy.json")
    with open(policy, "w", encoding="ascii") as f:
        f.write('{"rules": [{"name": "api", "match": {"host": "loop.example"}, "action": "allow"}]}')
    script = "curl -sk https://loop.example/ https://loop.example/; true"
    with world.server(tmp) as (_outside, instance):
        status, shown = instance.at_terminal("run", "--no-cwd", "--policy", policy, "--", "sh", "-c", script)
        equal(status, 0)
        contains(shown, "failed 2: loop.example:443 \u00d72; ")
        contains(shown, "a loopback address, which takes a rule with private: true\r\n")
        assert "\ndenied" not in shown and not shown.startswith("denied"), shown


def test_a_connection_of_one_rule_is_not_there_for_another_that_may_not(tmp):
    """What may reach a private address opens connections, which stay open: they are not for a rule that may not."""
    policy = ('{"rules": [{"match": {"host": "private.example", "method": ["GET"]}, "action": "allow", "private": true}, '
              '{"match": {"host": "private.example", "method": ["POST"]}, "action": "allow"}]}')
    with world.server(tmp) as (outside, instance), instance.sandbox(policy=policy) as box:
        for options, want in (("", "200"), ("", "200"), ("-d secret=1", "403"), ("", "200")):
            equal(instance.ok(box, f"curl -s -o /dev/null -w '%{{http_code}}' --max-time 20 {options} http://private.example/kept"), want, options)
        equal(len(outside.heard(kind="tcp", to="10.9.9.9", port=80)), 1, "one connection, kept")
        equal(outside.heard("secret"), [])


def test_a_policy_that_is_wrong_is_refused(instance):
    for policy in ("version: 2", "rules: 5", "version: 1\nrules:\n  - {name: x, match: {host: 'a b'}, action: allow}", "{", "- 1", "null"):
        error = raises(cay.ApiError, instance.post, "/v1/sandboxes", {"policy": policy})
        equal((error.status, error.code), (400, "invalid"), policy)
    for allow in ("", ":80", "a.example:0", "a.example:70000", "a.example:x", "[]", "[2001:db8::1", "[2001:db8::1]x", "[2001:db8::1]:", "2001:db8:::1"):
        raises(cay.ApiError, instance.post, "/v1/sandboxes", {"allow": [allow]})
    equal(instance.get("/v1/sandboxes")["sandboxes"], [])


def test_addresses_of_ipv6_are_allowed_as_they_are_told(instance):
    """An address has colons of its own: --allow takes it as it is, in brackets with a port, and so the advice has it."""
    def rules(*allow):
        with instance.sandbox(allow=list(allow)) as box:
            return [(r["match"]["host"], r["match"].get("port"), r["match"].get("transport")) for r in instance.json("policy", "show", box)["policy"]["rules"]]

    equal(rules("2001:db8::1:80", "[2001:db8::2]", "[2001:db8::3]:5432", "10.0.0.1:80"),
          [("2001:db8::1:80", None, None), ("2001:db8::2", None, None), ("2001:db8::3", 5432, "tcp"), ("10.0.0.1", 80, "http")])
    for port, advice in ((80, "[2606:4700::1111]"), (5432, "[2606:4700::1111]:5432")):
        script = f"import socket; s = socket.socket(socket.AF_INET6)\ntry: s.connect(('2606:4700::1111', {port})); s.recv(1)\nexcept OSError: pass"
        shown = instance.at_terminal("run", "--no-cwd", "--", "python3", "-c", script)[1]
        contains(shown, f"denied 1: [2606:4700::1111]:{port}; allow with --allow {advice}\r\n")


@require("root", "userns", "newuidmap")
def test_an_ordinary_users_gateway(tmp):
    os.chmod(tmp, 0o755)
    outside = world.World()
    try:
        with cay.ThrowawayUser() as user:
            instance = world.Instance(outside, tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1"})
            try:
                instance.start()
                with instance.sandbox(policy=POLICY) as box:
                    equal(talk(instance, box, "a.raw.example/1234/hello", "9.9.9.9/99/x"), ["hello", "ConnectionRefusedError"])
                    exec_id = [e["exec"] for e in instance.events(box) if e["type"] == "exec.created"][0]
                    equal(instance.wait_event("net.denied", box)["exec"], exec_id)
                    with open(f"/proc/{gateway_pid(instance, box)}/status", encoding="ascii") as f:
                        status = dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)
                    equal((status["CapEff"], status["CapPrm"], status["Seccomp"]), ("0" * 16, "0" * 16, "2"))
            finally:
                instance.close()
    finally:
        outside.close()
