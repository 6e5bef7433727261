# SPDX-License-Identifier: Apache-2.0
"""cay net: what people see of a sandbox's exchanges, and the HTTP Archive of them."""

import glob
import json

import jsonschema

from lib.case import contains, equal
from lib.proxy import Upstream, echo

HAR_SCHEMA = "/usr/share/nodejs/har-schema/lib"  # Debian's node-har-schema: what har-validator checks with


def test_lines_and_archive(instance):
    upstream = Upstream(echo)
    policy = json.dumps({"preset": "mail-sink", "rules": [{"name": "api", "match": {"host": "api.example", "method": ["GET", "POST"]}, "action": "allow",
                                                           "upstream": upstream.address, "private": True}]})
    with instance.sandbox(policy=policy) as box:
        instance.cay("exec", box, "--", "sh", "-c", "curl -s 'http://api.example/a/b?x=1&y=%20z'; curl -s -d '{\"n\":1}' -H 'Content-Type: application/json' "
                                                    "http://api.example/c; curl -s -X DELETE http://api.example/d")
        instance.wait_event("net.exchange", box, lambda e: e["data"]["method"] == "DELETE")
        lines = instance.cay("net", box).stdout
        contains(lines, "GET http://api.example/a/b?x=1&y=%20z  forwarded 200, rule api")
        contains(lines, "DELETE http://api.example/d  denied 403, rule -: no rule allows DELETE api.example")
        log = json.loads(instance.cay("net", box, "--har").stdout)["log"]
        equal((log["version"], [(e["request"]["method"], e["request"]["url"], e["response"]["status"]) for e in log["entries"]]),
              ("1.2", [("GET", "http://api.example/a/b?x=1&y=%20z", 200), ("POST", "http://api.example/c", 200), ("DELETE", "http://api.example/d", 403)]))
        first, second, third = log["entries"]
        equal(first["request"]["queryString"], [{"name": "x", "value": "1"}, {"name": "y", "value": "%20z"}])
        equal((second["request"]["postData"]["mimeType"], second["request"]["postData"]["text"]), ("application/json", '{"n":1}'))
        contains(first["response"]["content"]["text"], "GET /a/b?x=1&y=%20z HTTP/1.1")
        equal((first["_outcome"], third["_outcome"], first["_rule"], third["_rule"]), ("forwarded", "denied", "api", None))
        for entry in log["entries"]:
            for member in ("startedDateTime", "time", "cache", "timings"):
                assert member in entry, member
            assert all(entry["timings"][t] >= 0 for t in ("send", "wait", "receive")), entry["timings"]
        second = [e["seq"] for e in instance.events(box) if e["type"] == "net.exchange"][1]
        interval = json.loads(instance.cay("net", box, "--har", "--from", str(second), "--until", str(second)).stdout)["log"]["entries"]
        equal([e["request"]["url"] for e in interval], ["http://api.example/c"])
        equal(instance.cay("net", box, "--until", "x", check=False).returncode, 64)
        equal(instance.cay("net", box, "--har", "--json", check=False).returncode, 64)
    upstream.close()


def test_an_exchange_is_told_with_its_port(instance):
    """Of a port that is not the scheme's own, and of an address of IPv6, the URL says so, in lines and in the archive."""
    upstream = Upstream(echo)
    rules = [{"match": {"host": ["api.example", "2001:db8::1"], "port": [80, 8080]}, "action": "allow", "upstream": upstream.address}]
    urls = ("http://api.example/a", "http://api.example:8080/b", "http://[2001:db8::1]/c", "http://[2001:db8::1]:8080/d")
    with instance.sandbox(policy=json.dumps({"rules": rules})) as box:
        instance.cay("exec", box, "--", "curl", "-sS", *urls)
        instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/d")
        lines = instance.cay("net", box).stdout
        for url in urls:
            contains(lines, f"GET {url}  forwarded 200")
        equal(sorted(e["request"]["url"] for e in json.loads(instance.cay("net", box, "--har").stdout)["log"]["entries"]), sorted(urls))
    upstream.close()


def test_bytes_that_are_no_text_hide_no_exchange(instance):
    """A NUL in a body, a path or an answer: the exchange is told like any other, with all its bytes."""
    def answer(peer):
        while (head := peer.head()) is not None:
            peer.body(head)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nx\0y")

    upstream = Upstream(answer)
    rules = [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True}]
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as box:
        instance.cay("exec", box, "--", "sh", "-c", "printf 'a\\000b' | curl -s -o /dev/null --data-binary @- 'http://api.example/p%00'; "
                     "printf 'a\\000b' | curl -s -o /dev/null --data-binary @- http://api.example/first; curl -s -o /dev/null http://api.example/last")
        instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/last")
        told = [e["data"] for e in instance.events(box) if e["type"] == "net.exchange"]
        equal([e["path"] for e in told[1:]], ["/first", "/last"])
        equal((told[1]["request"]["body_base64"], told[1]["response"]["body_base64"]), ("YQBi", "eAB5"))
    upstream.close()


def archive_errors(archive):
    schemas = {}
    for path in glob.glob(f"{HAR_SCHEMA}/*.json"):
        with open(path, encoding="utf-8") as f:
            schema = json.load(f)
        schemas[schema["$id"].rstrip("#")] = schema
    checker = jsonschema.Draft6Validator(schemas["har.json"], resolver=jsonschema.RefResolver("har.json", schemas["har.json"], schemas),
                                         format_checker=jsonschema.FormatChecker())
    return [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}" for e in checker.iter_errors(archive)]


def cookies(side):
    return [(c["name"], c["value"]) for c in side["cookies"]]


def test_the_archive_is_one_by_the_schema_of_others(instance):
    """Every outcome that an exchange can have, cookies, bytes that are no text; times that add up."""
    def answer(peer):
        while (head := peer.head()) is not None:
            peer.body(head)
            if b"/gone" in head:
                return
            more, body = (b"Set-Cookie: a=b; Path=/\r\nSet-Cookie: c\r\nLocation: /x\r\n", b"x\0y") if b"/cookies" in head else (b"", b"text")
            peer.send(b"HTTP/1.1 200 OK\r\n" + more + b"Content-Length: %d\r\n\r\n" % len(body) + body)

    upstream = Upstream(answer)
    rules = [{"match": {"host": "api.example", "method": ["GET", "POST"]}, "action": "allow", "upstream": upstream.address, "private": True},
             {"match": {"host": "reset.example"}, "action": "fault", "fault": {"reset": True}}]
    script = ("c='curl -s -o /dev/null'; $c 'http://api.example/plain?a=1&b&=c'; $c -b 'k=v; l=w' http://api.example/cookies; printf 'a\\000b' | $c --data-binary @- http://api.example/bytes; "
              "$c -X DELETE http://api.example/denied; $c http://reset.example/fault; $c http://api.example/gone; $c -d 'x=1' http://api.example/last; true")
    with instance.sandbox(policy=json.dumps({"rules": rules})) as box:
        instance.cay("exec", box, "--", "sh", "-c", script)
        instance.wait_event("net.exchange", box, lambda e: e["data"]["path"] == "/last")
        archive = json.loads(instance.cay("net", box, "--har").stdout)
    upstream.close()
    equal(archive_errors(archive), [])
    entries = {e["request"]["url"].rpartition("/")[2].split("?")[0]: e for e in archive["log"]["entries"]}
    equal({name: e["_outcome"] for name, e in entries.items()}, {"plain": "forwarded", "cookies": "forwarded", "bytes": "forwarded", "denied": "denied", "fault": "fault",
                                                                "gone": "failed", "last": "forwarded"})
    equal((cookies(entries["cookies"]["request"]), cookies(entries["cookies"]["response"]), cookies(entries["plain"]["request"])),
          ([("k", "v"), ("l", "w")], [("a", "b"), ("", "c")], []))
    for name, e in entries.items():
        equal(round(sum(t for t in e["timings"].values() if t > 0), 3), round(e["time"], 3), name)
    del archive["log"]["entries"][0]["response"]["status"]
    equal(len(archive_errors(archive)), 1, "the check itself")
