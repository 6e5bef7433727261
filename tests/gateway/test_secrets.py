# SPDX-License-Identifier: Apache-2.0
"""Secrets through the gateway's core: put in only where they belong, and nowhere on the way back."""

import base64
import gzip
import json
import os
import urllib.parse

from lib.case import contains, equal
from lib.proxy import Proxy, Upstream, certificate, echo, parse

QUICK = True
VALUE = "sk_live_51Hxyz/ABCdef+0123456789"
PLACEHOLDER = "sk_live_77Aabc/XYZxyz+9876543210"
ALLOW = [{"name": "api", "match": {"host": ["api.example", "other.example"]}, "action": "allow"}]
BINDING = [{"name": "KEY", "hosts": ["api.example"], "in": [{"header": "authorization"}, {"query": "key"}, {"json": "/auth/*/token"}]}]


class Setup:
    """A proxy with one secret bound to api.example; both hosts are the same upstream, over TLS and not."""

    def __init__(self, tmp, handler=echo, value=VALUE):
        pem, root = certificate(os.path.join(tmp, "upstream"), "api.example", "other.example")
        self.upstream, self.bare = Upstream(handler, pem), Upstream(handler)
        self.proxy = Proxy(tmp, ALLOW + [{"name": "plain", "match": {"host": "plain.example"}, "action": "allow"}],
                           {"api.example": self.upstream.address, "other.example": self.upstream.address, "plain.example": self.bare.address}, extra=root,
                           bindings=[{**BINDING[0], "hosts": ["api.example", "plain.example"]}],
                           secrets=[{"name": "KEY", "value": value, "placeholder": PLACEHOLDER}])

    def __enter__(self):
        return self.proxy, self.upstream

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()
        self.bare.close()


def nowhere(data, value=VALUE):
    """The value is in @data in no rendering."""
    data = data if isinstance(data, bytes) else data.encode()
    inner = base64.b64encode(value.encode())[4:-8]
    for form in (value.encode(), urllib.parse.quote(value, safe="").encode(), value.replace("/", "\\/").encode(), value.encode().hex().encode(), inner):
        assert form not in data, form


def events(proxy, count=1):
    found = proxy.events("net.exchange", count)
    nowhere(json.dumps(found))
    return found


def test_it_is_put_into_the_named_header_and_scrubbed_from_the_echo(tmp):
    with Setup(tmp) as (proxy, upstream):
        status, body = proxy.get("api.example", sni="api.example", headers=f"Authorization: Bearer {PLACEHOLDER}\r\n".encode())
        equal(status, 200)
        contains(upstream.text(), b"Bearer " + VALUE.encode())
        contains(body, b"Bearer " + PLACEHOLDER.encode())
        nowhere(body)
        contains(json.dumps(events(proxy)), PLACEHOLDER)


def test_basic_authorization(tmp):
    with Setup(tmp) as (proxy, upstream):
        given = base64.b64encode(f"user:{PLACEHOLDER}".encode())
        status, body = proxy.get("api.example", sni="api.example", headers=b"Authorization: Basic " + given + b"\r\n")
        equal(status, 200)
        contains(upstream.text(), base64.b64encode(f"user:{VALUE}".encode()))
        nowhere(body)
        events(proxy)


def test_query_and_body_fields(tmp):
    with Setup(tmp) as (proxy, upstream):
        quoted = urllib.parse.quote(PLACEHOLDER, safe="")
        equal(proxy.get("api.example", f"/?a=1&key={quoted}&b=2", sni="api.example")[0], 200)
        contains(upstream.text(), ("/?a=1&key=" + urllib.parse.quote(VALUE, safe="") + "&b=2").encode())
        body = json.dumps({"auth": [{"token": "x " + PLACEHOLDER}], "n": 1}).encode()
        status, answer = proxy.get("api.example", sni="api.example", method=b"POST", body=body)
        equal(status, 200)
        contains(upstream.text(), ("x " + VALUE).encode())
        nowhere(answer)
        events(proxy, 2)


def test_a_value_of_another_length_after_rotation(tmp):
    value = "rotated_Key/0123456789abcdefghijKLMNOP_and_longer"
    with Setup(tmp, value=value) as (proxy, upstream):
        status, body = proxy.get("api.example", sni="api.example", headers=f"Authorization: Bearer {PLACEHOLDER}\r\n".encode())
        equal(status, 200)
        contains(upstream.text(), value.encode())
        nowhere(body, value)
        nowhere(json.dumps(proxy.events("net.exchange", 1)), value)


MISPLACED = {
    "another header": ("api.example", "/", b"X-Token: %s\r\n", b""),
    "another query parameter": ("api.example", "/?token=%s", b"", b""),
    "the path": ("api.example", "/%s", b"", b""),
    "another host": ("other.example", "/", b"Authorization: Bearer %s\r\n", b""),
    "a body that is no JSON": ("api.example", "/", b"", b"token=%s"),
    "another field of a body": ("api.example", "/", b"", b'{"token": "%s"}'),
    "base64": ("other.example", "/", b"Authorization: Basic " + base64.b64encode(b"ab:" + PLACEHOLDER.encode()) + b"\r\n", b""),
}


def test_a_placeholder_elsewhere_stops_the_request(tmp):
    with Setup(tmp) as (proxy, upstream):
        for what, (host, path, headers, body) in MISPLACED.items():
            quoted = urllib.parse.quote(PLACEHOLDER, safe="")
            status, answer = proxy.get(host, path.replace("%s", quoted), sni=host, headers=headers.replace(b"%s", PLACEHOLDER.encode()),
                                       method=b"POST" if body else b"GET", body=body.replace(b"%s", PLACEHOLDER.encode()))
            equal(status, 403, what)
            contains(answer, b'"code":"secret"', what)
        equal(upstream.text().count(b"HTTP/1.1"), 0, "what the upstream heard")
        found = proxy.events("secret.misplaced", len(MISPLACED))
        equal({e["name"] for e in found}, {"KEY"})


def test_a_streamed_body_is_cut_before_the_placeholder_leaves(tmp):
    with Setup(tmp) as (proxy, upstream):
        half = len(PLACEHOLDER) // 2
        chunks = [b"a" * 5000, PLACEHOLDER[:half].encode(), PLACEHOLDER[half:].encode(), b"b" * 10]
        data = b"POST / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        data += b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"
        status, _ = parse(proxy.send(data, "other.example"))
        equal(status, 403)
        assert PLACEHOLDER[:half].encode() not in upstream.text()


def test_without_tls_it_never_leaves(tmp):
    with Setup(tmp) as (proxy, _):
        status, _ = proxy.get("plain.example", headers=f"Authorization: Bearer {PLACEHOLDER}\r\n".encode())
        equal(status, 403)


def reflecting(peer):
    """Tells the secret in every way that a server could: headers, split chunks, trailers."""
    while (head := peer.head()) is not None:
        peer.body(head)
        secret = head.split(b"Bearer ")[1].split(b"\r\n")[0] if b"Bearer " in head else head.lower().split(b"authorization: ")[1].split(b"\r\n")[0]
        body = [b"raw " + secret[:7], secret[7:] + b" json " + secret.replace(b"/", b"\\/"), b" quoted " + urllib.parse.quote_from_bytes(secret, safe="").encode(),
                b" base64 " + base64.b64encode(b"x" + secret), b" hex " + secret.hex().encode()]
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nLocation: https://api.example/?k=" + secret + b"\r\nTrailer: X-T\r\n\r\n")
        for part in body:
            peer.send(b"%x\r\n%s\r\n" % (len(part), part))
        peer.send(b"0\r\nX-T: " + secret + b"\r\n\r\n")


def test_every_reflection_is_scrubbed(tmp):
    with Setup(tmp, reflecting) as (proxy, _):
        request = b"GET / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nTE: trailers\r\nAuthorization: Bearer " + PLACEHOLDER.encode() + b"\r\n\r\n"
        answer = proxy.send(request, "api.example")
        contains(answer, b"k=" + PLACEHOLDER.encode())
        contains(answer, b"x-t: " + PLACEHOLDER.encode())
        nowhere(answer)
        _, body = parse(answer)
        contains(body, b"raw " + PLACEHOLDER.encode())
        nowhere(body)
        events(proxy)


def compressing(peer):
    while (head := peer.head()) is not None:
        body = gzip.compress(head)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def test_a_compressed_answer_that_was_not_asked_for_is_not_shown(tmp):
    with Setup(tmp, compressing) as (proxy, upstream):
        status, body = proxy.get("api.example", sni="api.example", headers=f"Authorization: {PLACEHOLDER}\r\nAccept-Encoding: gzip\r\n".encode())
        contains(upstream.text().lower(), b"accept-encoding: identity")
        equal(status, 502)
        nowhere(body)
        nowhere(gzip.compress(body))
