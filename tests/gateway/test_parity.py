# SPDX-License-Identifier: Apache-2.0
"""The same question gets the same answer whichever way it comes in: HTTP/1, HTTP/2, absolute-form, WebSocket, CONNECT, bare TCP; IPv4 and IPv6."""

import json
import os

from lib.case import equal
from lib.proxy import Upstream, certificate, echo

AGREED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
FAMILIES = ("4", "6")

# name: (Host, path, what the policy says to it)
ASKED = {
    "allowed": ("api.example", "/ok/1", 200),
    "denied path": ("api.example", "/no/1", 403),
    "dots": ("api.example", "/ok/../no/1", 403),
    "escaped dots": ("api.example", "/ok/%2e%2e/no/1", 403),
    "two readings": ("api.example", "/ok/..%2fno/1", 400),
    "doubled slash": ("api.example", "/no//1", 403),
    "denied query": ("api.example", "/ok/1?debug=1", 403),
    "another host": ("other.example", "/ok/1", 421),
    "another port": ("api.example:8443", "/ok/1", 421),
}

INSIDE = r"""
import json, socket, ssl, subprocess, sys
asked = json.loads(sys.argv[1])
UPGRADE = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

def connect(family, tls):
    address = socket.getaddrinfo("api.example", 443 if tls else 80, {"4": socket.AF_INET, "6": socket.AF_INET6}[family], socket.SOCK_STREAM)[0]
    sock = socket.socket(address[0], socket.SOCK_STREAM)
    sock.settimeout(30)
    sock.connect(address[4])
    return ssl.create_default_context().wrap_socket(sock, server_hostname="api.example") if tls else sock

def ask(family, tls, data):
    data = data.encode() if isinstance(data, str) else data
    with connect(family, tls) as sock:
        try:
            sock.sendall(data)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                piece = sock.recv(1)
                if not piece:
                    return 0
                head += piece
            return int(head.split()[1])
        except ConnectionResetError:
            return 0

def request(target, host, more=""):
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"

def curl(family, version, host, path):
    done = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{http_version}", "--max-time", "30", "-" + family, "--http" + version,
                           "--path-as-is", "-H", "Host: " + host, "https://api.example" + path], capture_output=True, text=True)
    status, spoken = done.stdout.split()
    assert spoken == version, (spoken, version)
    return int(status)

told = {}
for family in "46":
    for name, (host, path, _) in asked.items():
        for way, function in {
            "HTTP/1": lambda: ask(family, False, request(path, host)),
            "absolute-form": lambda: ask(family, False, request("http://" + host + path, host)),
            "HTTP/1, TLS": lambda: ask(family, True, request(path, host)),
            "absolute-form, TLS": lambda: ask(family, True, request("https://" + host + path, host)),
            "HTTP/2": lambda: curl(family, "2", host, path),
            "WebSocket": lambda: ask(family, False, request(path, host, UPGRADE)),
            "WebSocket, TLS": lambda: ask(family, True, request(path, host, UPGRADE)),
        }.items():
            told[f"{name}|{way}|{family}"] = function()
    for tls in (False, True):
        told[f"|CONNECT|{family}{tls}"] = ask(family, tls, "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n")
    told[f"|TCP|{family}"] = ask(family, False, b"\x00\x01hidden in bare TCP\r\n\r\n")
    told[f"|SSH|{family}"] = ask(family, False, b"SSH-2.0-hidden\r\n\r\n")
    told[f"|HTTP/2 without TLS|{family}"] = ask(family, False, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"hidden\r\n\r\n")
print(json.dumps(told))
"""


def agreeable(peer):
    """Agrees to a WebSocket, echoes everything else."""
    while (head := peer.head()) is not None:
        if b"upgrade: websocket" in head.lower():
            peer.send(AGREED)
            while peer.more():
                pass
            return
        answer = head + peer.body(head)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


def test_every_way_in_gets_the_same_verdict(fresh, tmp):
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    plain, tls = Upstream(agreeable), Upstream(agreeable, pem)
    way = {"action": "allow", "private": True}
    rules = [{"name": "debug", "match": {"host": "api.example", "query": {"debug": True}}, "action": "deny"},
             {"name": "plain", "match": {"host": "api.example", "port": 80, "path": "/ok/*"}, **way, "upstream": plain.address},
             {"name": "tls", "match": {"host": "api.example", "port": 443, "path": "/ok/*"}, **way, "upstream": tls.address}]
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    with fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        done = fresh.cay("exec", box, "--", "/usr/bin/python3", "-c", INSIDE, json.dumps(ASKED), timeout=110)
        for key, status in json.loads(done.stdout).items():
            name, way_in, _ = key.split("|")
            want = {"CONNECT": 405}.get(way_in, 0) if not name else ASKED[name][2]
            equal(status, 101 if want == 200 and way_in.startswith("WebSocket") else want, key)
    heard = plain.text() + tls.text()
    equal(heard.count(b"GET /ok/1 HTTP/1.1\r\n"), 7 * len(FAMILIES))
    equal([word for word in (b"/no", b"debug", b"hidden", b"other", b"8443", b"CONNECT") if word in heard], [])
    plain.close()
    tls.close()


def test_an_upstream_at_an_ipv6_address(instance):
    upstream = Upstream(echo, host="::1")
    rules = [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address}]
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        for family in FAMILIES:
            done = instance.cay("exec", box, "--", "curl", "-s", "-" + family, "--max-time", "20", "http://api.example/v1")
            equal(done.stdout.splitlines()[0], "GET /v1 HTTP/1.1")
        told = instance.wait_event("net.exchange", box, lambda e: e["data"]["outcome"] == "forwarded")["data"]
        equal(told["upstream"]["address"], upstream.address)
    upstream.close()


def test_literal_ipv6_addresses_are_judged_as_addresses(instance):
    upstream = Upstream(echo)
    rules = [{"name": "net", "match": {"host": "2001:db8::/64", "path": "/ok"}, "action": "allow", "upstream": upstream.address}]
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        def status(url, *more):
            return instance.cay("exec", box, "--", "curl", "-sg", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", *more, url, check=False).stdout
        equal([status("http://[2001:db8::7]/ok"), status("http://[2001:db8::7]/no"), status("http://[2001:db8:0:0:0::7]/ok")], ["200", "403", "200"])
        equal(status("http://[2001:db8:1::7]/ok"), "000", "another network")
        equal(status("http://[2001:db8::7]/ok", "-H", "Host: [2001:db8::8]"), "421")
    equal(upstream.text().count(b"GET "), 2)
    upstream.close()
