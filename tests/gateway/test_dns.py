# SPDX-License-Identifier: Apache-2.0
"""Records other than addresses: looked up outside where a rule says so, for that name and type alone; every look-up is told."""

import json
import os
import socket
import struct
import threading

from lib.case import contains, equal

TYPES = {"MX": 15, "TXT": 16, "SRV": 33, "A": 1, "CAA": 257, "ANY": 255, "AAAA": 28, "PTR": 12, "HTTPS": 65}

INSIDE = r"""
import json, socket, struct, sys
def ask(name, kind, tcp):
    message = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p for p in name.encode(errors="surrogateescape").split(b".")) + b"\0" + struct.pack(">HH", kind, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as s:
        s.settimeout(30)
        s.connect(("9.9.9.9", 53))
        s.sendall((struct.pack(">H", len(message)) if tcp else b"") + message)
        data = s.recv(65535)
        while tcp and len(data) < 2 + struct.unpack(">H", data[:2])[0]:
            data += s.recv(65535)
    data = data[2:] if tcp else data
    return [data[3] & 15, struct.unpack(">H", data[6:8])[0], data[len(message):].hex()]
print(json.dumps([ask(*q) for q in json.loads(sys.argv[1])]))
"""


def name(text):
    return b"".join(bytes([len(p)]) + p.encode() for p in text.split(".")) + b"\0"


RECORDS = {15: [b"\0\x0a" + name("mx1.shop.example"), b"\0\x14" + name("mx2.shop.example")],
           16: [b"\x06v=spf1\x04 all", b"\xff" + b"x" * 255 + b"\x01y"],
           33: [b"\0\x01\0\x02\x69\x89" + name("db1.shop.example")]}


class NameServer:
    """Answers as RECORDS say, behind an alias and with an address that nobody asked for; @heard are the questions."""

    def __init__(self):
        self.sock, self.heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), []
        self.sock.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.sock.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while True:
            data, peer = self.sock.recvfrom(65535)
            if not data:
                return
            at, labels = 12, []
            while data[at]:
                labels.append(data[at + 1:at + 1 + data[at]].decode())
                at += 1 + data[at]
            kind = struct.unpack(">H", data[at + 1:at + 3])[0]
            asked = ".".join(labels)
            self.heard.append((asked, kind))
            records = [] if asked.startswith("none.") else RECORDS[kind]
            alias = name("alias.elsewhere.example")
            answers = [b"\xc0\x0c" + struct.pack(">HHIH", 5, 1, 9, len(alias)) + alias] if records else []
            answers += [alias + struct.pack(">HHIH", kind, 1, 9, len(r)) + r for r in records]
            code = 3 if asked.startswith("gone.") else 0
            self.sock.sendto(data[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, 0 if code else len(answers), 0, 0) + data[12:at + 5]
                             + (b"" if code else b"".join(answers)), peer)

    def close(self):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            host, port = self.address.split(":")
            s.sendto(b"", (host, int(port)))
        self.thread.join(20)
        self.sock.close()


def policy(server, **more):
    rules = [{"name": "records", "match": {"host": [".shop.example"], "transport": "dns"}, "action": "allow", "upstream": server.address, **more},
             {"name": "mail", "match": {"host": "mail.example", "transport": "dns", "type": "MX"}, "action": "allow", "upstream": server.address},
             {"name": "web", "match": {"host": ["web.example", "mail.example"]}, "action": "allow"}]
    return json.dumps({"version": 1, "rules": rules})


def ask(instance, box, *questions):
    questions = [(host, TYPES[kind], tcp) for host, kind, tcp in questions]
    return json.loads(instance.cay("exec", box, "--", "/usr/bin/python3", "-c", INSIDE, json.dumps(questions), timeout=60).stdout)


def test_records_are_looked_up_as_rules_say(instance):
    server = NameServer()
    with instance.sandbox(policy=policy(server)) as box:
        (mx, txt, srv), (_, txt_tcp, _) = (ask(instance, box, *((h, k, tcp) for h, k in (("shop.example", "MX"), ("Shop.example", "TXT"), ("_db._tcp.shop.example", "SRV"))))
                                           for tcp in (False, True))
        equal(mx[:2], [0, 2])
        contains(bytes.fromhex(mx[2]), b"\0\x0a" + name("mx1.shop.example"))
        equal((txt[:2], txt_tcp[:2]), ([0, 2], [0, 2]))
        contains(bytes.fromhex(txt[2]), b"\x06v=spf1\x04 all")
        contains(bytes.fromhex(txt_tcp[2]), RECORDS[16][1])
        equal(srv[:2], [0, 1])
        contains(bytes.fromhex(srv[2]), RECORDS[33][0])
        equal([b"elsewhere" in bytes.fromhex(a[2]) for a in (mx, txt, srv)], [False] * 3, "aliases are hidden")
        before = len(server.heard)
        # a name, but no connection; a type, but not that one; names that no rule allows
        answers = ask(instance, box, ("shop.example", "A", False), ("mail.example", "TXT", False), ("mail.example", "SRV", True), ("web.example", "MX", False),
                      ("shop.example", "ANY", False), ("secret-data.evil.example", "TXT", False), ("shop.example.evil.example", "MX", True))
        equal([a[:2] for a in answers], [[0, 0]] * 5 + [[3, 0]] * 2)
        equal(len(server.heard), before, "questions that left")
        equal([a[:2] for a in ask(instance, box, ("mail.example", "MX", False), ("none.shop.example", "TXT", False), ("gone.shop.example", "MX", True))],
              [[0, 2], [0, 0], [3, 0]])
        equal({q[0] for q in server.heard}, {"shop.example", "_db._tcp.shop.example", "mail.example", "none.shop.example", "gone.shop.example"})
        instance.wait_event("net.lookup", box, lambda e: e["data"]["code"] == "nxdomain")
        told = [e for e in instance.events(box) if e["type"] == "net.lookup"]
        equal(len(told), len(server.heard))
        equal({k: told[0]["data"][k] for k in ("name", "type", "rule", "code", "records")},
              {"name": "shop.example", "type": "MX", "rule": "records", "code": "noerror", "records": ["10 mx1.shop.example", "20 mx2.shop.example"]})
        equal(all(e.get("exec") for e in told), True, "each names the exec")
        contains(instance.cay("net", box).stdout, "SRV of _db._tcp.shop.example  noerror: 1 2 27017 db1.shop.example")
        explained = instance.json("policy", "explain", box, "dns://mail.example?type=TXT")
        equal((explained["action"], instance.json("policy", "explain", box, "dns://mail.example?type=MX")["rule"]), ("deny", "mail"))
    server.close()


def test_a_budget_bounds_what_names_can_carry_out(instance):
    server = NameServer()
    with instance.sandbox(policy=policy(server, budget={"requests": {"max": 3}})) as box:
        answers = ask(instance, box, *((f"data-{i}.shop.example", "TXT", i % 2 == 0) for i in range(6)))
        equal([a[0] for a in answers], [0, 0, 0, 5, 5, 5])
        equal(len(server.heard), 3)
    server.close()


def test_a_budget_of_bytes_counts_questions_and_answers(instance):
    server = NameServer()
    with instance.sandbox(policy=policy(server, budget={"bytes": {"max": 500}})) as box:
        # 37 of a question, 184 of an answer; that of TXT has 414, which do not fit
        answers = ask(instance, box, *((f"data-{i}.shop.example", "MX", i % 2 == 0) for i in range(2)), ("data-2.shop.example", "TXT", False), ("data-3.shop.example", "MX", False))
        equal([a[:2] for a in answers], [[0, 2], [0, 2], [5, 0], [5, 0]])
        equal(len(server.heard), 3)
    with instance.sandbox(policy=policy(server, budget={"bytes": {"max": 20}})) as box:
        equal([a[:2] for a in ask(instance, box, ("data-4.shop.example", "MX", False))], [[5, 0]])
        equal(len(server.heard), 3, "a question that does not fit is not asked")
    server.close()


def test_a_name_server_that_is_silent(instance):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as closed:
        closed.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % closed.getsockname()[1]
    rules = [{"match": {"host": "a.example", "transport": "dns"}, "action": "allow", "upstream": address}]
    with instance.sandbox(policy=json.dumps({"rules": rules})) as box:
        equal(ask(instance, box, ("a.example", "TXT", True)), [[2, 0, ""]])


def test_records_that_no_rule_allows_are_told_as_such(instance, tmp):
    """apt asks for SRV of every host: --allow does not give that, and what it could give is advised first."""
    path = os.path.join(tmp, "policy.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"version": 1, "rules": [{"match": {"host": "web.example"}, "action": "allow"}]}, f)

    def shown(*questions):
        return instance.at_terminal("run", "--no-cwd", "--rm", "--policy", path, "--", "/usr/bin/python3", "-c", INSIDE, json.dumps([(n, TYPES[k], False) for n, k in questions]))[1]

    text = shown(("_http._tcp.web.example", "SRV"), ("web.example", "TXT"))
    contains(text, "SRV of _http._tcp.web.example")
    contains(text, "TXT of web.example")
    contains(text, "; records take a rule of transport dns in a policy")
    contains(shown(("_http._tcp.other.example", "SRV"), ("other.example", "A")), "; allow with --allow other.example\r\n")
    with instance.sandbox(policy=json.dumps({"rules": [{"match": {"host": "web.example"}, "action": "allow"}]})) as box:
        equal([a[:2] for a in ask(instance, box, ("web.example", "MX", False), ("web.example", "CAA", False), ("gone.example", "TXT", True), ("gone.example", "A", True))],
              [[0, 0], [0, 0], [3, 0], [3, 0]])
        instance.wait_event("net.denied", box, lambda e: e["data"]["what"] == "name")
        instance.wait_event("net.denied", box, lambda e: e["data"].get("type") == "TXT")
        told = {(e["data"]["what"], e["data"].get("type"), e["data"]["host"], e["data"]["reason"]) for e in instance.events(box) if e["type"] == "net.denied"}
        records = "no rule of transport dns allows these records"
        equal(told, {("records", "MX", "web.example", records), ("records", "TXT", "gone.example", records), ("name", None, "gone.example", "no rule allows this name")})
        contains(instance.cay("net", box).stdout, f"denied      dns MX of web.example  {records}")


def test_a_look_up_of_a_name_is_told_once(instance, tmp):
    """A resolver asks for addresses of both kinds, a browser for HTTPS too. Who asks again is counted again."""
    path = os.path.join(tmp, "policy.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"version": 1, "rules": []}, f)

    def shown(*command):
        return instance.at_terminal("run", "--no-cwd", "--rm", "--policy", path, "--", *command)[1]

    def asked(*kinds):
        return shown("/usr/bin/python3", "-c", INSIDE, json.dumps([("no.example", TYPES[k], False) for k in kinds]))

    contains(shown("sh", "-c", "getent ahosts no.example; true"), "denied 1: no.example; allow with --allow no.example\r\n")
    contains(asked("A", "AAAA", "HTTPS"), "denied 1: no.example;")
    contains(asked("A", "AAAA", "AAAA", "A"), "denied 2: no.example \u00d72;")
    contains(asked("AAAA", "AAAA", "AAAA"), "denied 3: no.example \u00d73;")


def test_a_name_that_is_no_text(instance):
    """Labels may hold any bytes: such a name does not exist, which is told, and the gateway goes on."""
    with instance.sandbox(policy=json.dumps({"rules": [{"match": {"host": "web.example"}, "action": "allow"}]})) as box:
        equal([a[:2] for a in ask(instance, box, ("\udcff.example", "A", False), ("ok\udcc3.example", "A", True), ("\udcc3\udcbc.example", "A", False))], [[3, 0]] * 3)
        for host in ("?.example", "ok?.example", "ü.example"):
            instance.wait_event("net.denied", box, lambda e, host=host: e["data"]["host"] == host)
        equal([e for e in instance.events(box) if e["type"] == "gateway.ended"], [])


def test_what_asks_for_no_address_takes_none(instance):
    """A sandbox has 8192 names, for ever: the names of all addresses in a log, and other records, must not use them up."""
    others = [("8.8.8.8.in-addr.arpa", "PTR", False), ("x.example", "HTTPS", True), ("y.example", "MX", False), ("z.example", "SRV", False)]
    with instance.sandbox(policy='{"rules": [{"match": {"host": "*"}, "action": "allow"}]}') as box:
        equal([a[:2] for a in ask(instance, box, *others)], [[0, 0]] * 4)
        said = ask(instance, box, ("first.example", "A", False), ("x.example", "AAAA", False), ("y.example", "ANY", False))
    equal([a[1] for a in said], [1, 1, 2])
    equal([a[2][-8:] for a in said], ["c6120001", "00000002", "00000003"])
