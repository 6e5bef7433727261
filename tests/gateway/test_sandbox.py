# SPDX-License-Identifier: Apache-2.0
"""The whole way: a program in a sandbox, the gateway process, an upstream outside."""

import json
import os
import subprocess

from lib import cay
from lib.case import contains, equal
from lib.proxy import Upstream, certificate, echo, fixed, tunnel

CURL = ["sh", "-c", """curl -sk --max-time 20 -w '\\n%{http_code}' "$@"; true""", "curl"]


def policy(upstream, **more):
    return json.dumps({"version": 1, "rules": [
        {"name": "no-writes", "match": {"host": "api.example", "method": ["POST"]}, "action": "deny", "deny": {"message": "read only"}},
        {"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True}], **more})


def curl(instance, box, *args):
    done = instance.cay("exec", box, "--", *CURL, *args, timeout=50)
    body, _, status = done.stdout.rpartition("\n")
    return int(status), body


def test_http_from_a_sandbox(instance):
    upstream = Upstream(echo)
    with instance.sandbox(policy=policy(upstream)) as box:
        status, body = curl(instance, box, "http://other.example/")
        equal(status, 0, "a name that no rule knows does not exist")
        status, body = curl(instance, box, "-d", "x", "http://api.example/v1/things")
        equal(status, 403)
        contains(body, "read only")
        status, body = curl(instance, box, "-H", "Host: other.example", "http://api.example/")
        equal(status, 421)
        equal(upstream.heard, [])
        status, body = curl(instance, box, "http://api.example/a/../v1/things?x=1")
        equal(status, 200)
        contains(body, "GET /v1/things?x=1 HTTP/1.1\r\nhost: api.example\r\n")
        instance.wait_event("net.exchange", box, lambda e: e["data"]["outcome"] == "forwarded")
        told = [e["data"] for e in instance.events(box) if e["type"] == "net.exchange"]
        equal([(e["outcome"], e.get("rule")) for e in told], [("denied", "no-writes"), ("refused", None), ("forwarded", "api")])
    upstream.close()


def test_https_is_opened_and_the_world_is_verified(instance, tmp):
    """The upstream's certificate is of nobody that this machine trusts: the request is not sent."""
    pem, _ = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    with instance.sandbox(policy=policy(upstream)) as box:
        for version in ("--http1.1", "--http2"):
            status, body = curl(instance, box, version, "-d", "x", "https://api.example/")
            equal(status, 403)
            status, body = curl(instance, box, version, "https://api.example/secret-path")
            equal(status, 502)
            contains(body, "certificate is not accepted")
        equal(b"secret-path" in upstream.text(), False)
    upstream.close()


def test_further_roots_are_trusted(fresh, tmp):
    """CAY_TRUST: the certificate is checked against them as against the machine's, and by name."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    rule = {"action": "allow", "upstream": upstream.address, "private": True}
    rules = [{**rule, "name": name, "match": {"host": name}} for name in ("api.example", "other.example")]
    with fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        status, body = curl(fresh, box, "https://api.example/v1")
        equal(status, 200, body)
        status, body = curl(fresh, box, "https://other.example/secret-path")
        equal(status, 502, body)
    contains(upstream.text(), b"GET /v1 ")
    equal(b"secret-path" in upstream.text(), False)
    upstream.close()


def test_rules_above_one_that_passes_tls_on_hold(fresh, tmp):
    """Rules are tried from the top: TLS for which a rule of http comes first is opened and judged, whatever a later one passes on; and so it is explained."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example", "pinned.example")
    upstream = Upstream(echo, pem)
    way = {"action": "allow", "upstream": upstream.address, "private": True}
    rules = [{"name": "no-admin", "match": {"host": "api.example", "path": "/admin/**"}, "action": "deny"}, {**way, "name": "api", "match": {"host": "api.example"}},
             {**way, "name": "pinned", "match": {"host": ".example", "transport": "tls"}}]
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    with fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        for url, status, rule in (("https://api.example/admin/x", 403, "no-admin"), ("https://api.example/x", 200, "api"), ("https://pinned.example/admin/x", 200, "pinned")):
            equal((fresh.json("policy", "explain", box, url)["rule"], curl(fresh, box, url)[0]), (rule, status), url)
    equal(upstream.text().count(b"/admin/"), 1)
    upstream.close()


FIRST = r"""
import json, socket, sys
told = {}
for method in json.loads(sys.argv[1]):
    with socket.create_connection(("api.example", 80)) as s:
        s.settimeout(60)
        try:
            s.sendall(method.encode() + b" /x HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n")
            told[method] = s.makefile("rb").read()[9:12].decode()
        except ConnectionResetError:
            told[method] = "reset"
print(json.dumps(told))
"""


def test_a_connection_may_begin_with_any_method_that_a_rule_can_name(instance):
    """Dashes and long words among them: they are judged, and a denial says why; a rule of transport tcp does not take them for something else."""
    upstream = Upstream(fixed(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nheard"))
    way = {"action": "allow", "upstream": upstream.address}
    rules = [{**way, "name": "http", "match": {"host": "api.example", "method": ["GET", "M-SEARCH", "X" * 32]}}, {**way, "name": "raw", "match": {"host": "api.example", "port": 80, "transport": "tcp"}}]
    asked = {"GET": "200", "M-SEARCH": "200", "X" * 32: "200", "DELETE": "403", "VERSION-CONTROL": "403", "BASELINE-CONTROL-OF-ALL-THINGS": "403"}
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        done = instance.cay("exec", box, "--", "/usr/bin/python3", "-c", FIRST, json.dumps(list(asked)), timeout=60)
        equal(json.loads(done.stdout), asked)
    equal(b"CONTROL" in upstream.text(), False)
    upstream.close()


def test_who_says_no_server_name_is_told_so(instance):
    """redis-cli --tls, for one, says none unless it is told to: a rule of transport tls has nothing to go by, one of tcp wants none."""
    rules = [{"name": "pinned", "match": {"host": "pinned.example", "port": 6379, "transport": "tls"}, "action": "allow", "upstream": "127.0.0.1:9"}]
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        for option, reason in (("-noservername", "the client named no server; a rule of transport tcp wants no name"), ("-servername=x.example", "the server name is not the name that was dialled")):
            instance.cay("exec", box, "--", "openssl", "s_client", *option.split("="), "-connect", "pinned.example:6379", check=False)
            cay.wait_until(lambda: reason in instance.cay("net", box).stdout, 30, reason)


def test_everything_goes_through_the_proxy_that_the_server_was_told(fresh, tmp):
    """CAY_THROUGH: also when it is at a private address; what it refuses is refused. The certificate behind it is checked all the same."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    secure, plain, asked = Upstream(echo, pem), Upstream(echo), []
    proxies = {"https": Upstream(tunnel(secure, asked)), "http": Upstream(tunnel(plain, asked))}
    rules = [{"name": name, "match": {"host": name}, "action": "allow"} for name in ("api.example", "other.example", "evil.example")]
    for scheme, proxy in proxies.items():
        fresh.stop()
        fresh.start(CAY_TRUST=root, CAY_THROUGH="http://" + proxy.address)
        with fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
            status, body = curl(fresh, box, scheme + "://api.example/v1")
            equal((status, body.splitlines()[0]), (200, "GET /v1 HTTP/1.1"))
            equal(curl(fresh, box, scheme + "://evil.example/secret-path")[0], 502)
            if scheme == "https":
                equal(curl(fresh, box, scheme + "://other.example/secret-path")[0], 502)
    equal(asked, [b"CONNECT api.example:443 HTTP/1.1", b"CONNECT evil.example:443 HTTP/1.1", b"CONNECT other.example:443 HTTP/1.1",
                  b"CONNECT api.example:80 HTTP/1.1", b"CONNECT evil.example:80 HTTP/1.1"])
    equal(b"secret-path" in secure.text() + plain.text(), False)
    for upstream in (secure, plain, *proxies.values()):
        upstream.close()
    fresh.stop()
    refused = fresh.popen([os.path.join(fresh.programs, "cayd"), "--foreground"], env=fresh.environment(CAY_THROUGH="proxy"), stderr=subprocess.PIPE)
    contains(refused.communicate(timeout=30)[1].decode(), "CAY_THROUGH 'proxy': HOST:PORT of an HTTP proxy is wanted")
    equal(refused.returncode, 1)
