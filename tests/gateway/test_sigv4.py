# SPDX-License-Identifier: Apache-2.0
"""Requests that are signed with a placeholder leave with the signature that the secret makes (AWS Signature Version 4). Both ends are written here, after AWS's description: the
client signs with what a sandbox knows, the upstream checks as AWS would, with what it alone should know."""

import gzip
import hashlib
import hmac
import json
import os
import urllib.parse

from lib.case import contains, equal
from lib.proxy import Proxy, Upstream, certificate, fixed

QUICK = True
KEY, PLACEHOLDER = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "aXbkqYVuoGFNJ/L8NEFOH/cQySgjDZFYBNQMFLFZ"
ID, ID_PLACEHOLDER = "AKIAIOSFODNN7EXAMPLE", "AKIAQWERTYUI5ASDFGHJ"
HOST = "b.s3.example"
BINDINGS = [{"name": "KEY", "hosts": [".s3.example"], "in": [{"sigv4": ID}]},
            {"name": "ID", "hosts": [".s3.example"], "in": [{"header": "authorization"}, {"query": "X-Amz-Credential"}]}]
TIME = "20260102T030405Z"


def signature(key, scope, method, path, query, fields, names, payload, time=TIME):
    """The whole algorithm; @fields: what is signed, by lower-case name."""
    encoded = [[urllib.parse.quote(urllib.parse.unquote(t), safe="~") for t in (p + "=").split("=")[:2]] for p in query.split("&") if p]
    plain = "/".join(urllib.parse.unquote(segment) if "/s3/" in scope else segment for segment in path.split("/"))
    canonical = "\n".join([method, urllib.parse.quote(plain, safe="/~"), "&".join("=".join(p) for p in sorted(encoded)),
                           "".join(f"{n}:{' '.join(fields[n].split())}\n" for n in names.split(";")), names, payload])
    text = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = ("AWS4" + key).encode()
    for part in (*scope.split("/"), text):
        secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
    return secret.hex()


def sha256(body):
    return hashlib.sha256(body).hexdigest()


def signed(service, method, path, query="", body=b"", payload=None, more=None, key_id=ID_PLACEHOLDER):
    """Fields of a request that is signed in its head. @payload: what is said of its body, or nothing."""
    scope = f"20260102/eu-west-1/{service}/aws4_request"
    fields = {"x-amz-date": TIME, **(more or {}), **({"x-amz-content-sha256": payload} if payload else {})}
    names = ";".join(sorted([*fields, "host"]))
    made = signature(PLACEHOLDER, scope, method, path, query, {**fields, "host": HOST}, names, payload or sha256(body))
    fields["Authorization"] = f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={names}, Signature={made}"
    return "".join(f"{n}: {v}\r\n" for n, v in fields.items()).encode()


def presigned(service, method, path, query=""):
    """The query of a presigned URL."""
    scope = f"20260102/eu-west-1/{service}/aws4_request"
    parts = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{ID_PLACEHOLDER}/{scope}", "X-Amz-Date": TIME, "X-Amz-Expires": "60", "X-Amz-SignedHeaders": "host"}
    query = query + ("&" if query else "") + urllib.parse.urlencode(parts)
    payload = "UNSIGNED-PAYLOAD" if service == "s3" else sha256(b"")
    return f"{query}&X-Amz-Signature={signature(PLACEHOLDER, scope, method, path, query, {'host': HOST}, 'host', payload)}"


def checked(head, body):
    """Whose key signed what arrived: "secret", "placeholder" or "nobody"; and the signature."""
    request, *lines = head.decode().split("\r\n")
    method, target, _ = request.split(" ")
    path, _, query = target.partition("?")
    fields = dict(line.lower().split(": ", 1) if line.lower().startswith("host") else (line.split(": ", 1)[0].lower(), line.split(": ", 1)[1]) for line in lines)
    if "authorization" in fields:
        parts = dict(p.strip().split("=", 1) for p in fields["authorization"].removeprefix("AWS4-HMAC-SHA256").split(","))
        names, made = parts["SignedHeaders"], parts["Signature"]
    else:
        parts = dict(urllib.parse.parse_qsl(query))
        query = "&".join(p for p in query.split("&") if not p.startswith("X-Amz-Signature="))
        parts["Credential"], names, made = parts["X-Amz-Credential"], parts["X-Amz-SignedHeaders"], parts["X-Amz-Signature"]
    key_id, scope = parts["Credential"].split("/", 1)
    payload = fields.get("x-amz-content-sha256") or ("UNSIGNED-PAYLOAD" if "X-Amz-Algorithm" in parts and "/s3/" in scope else sha256(body))
    if len(payload) == 64:
        equal(payload, sha256(body))
    for who, key in (("secret", KEY), ("placeholder", PLACEHOLDER)):
        if signature(key, scope, method, path, query, fields, names, payload) == made:
            return key_id, who, made
    return key_id, "nobody", made


def check(peer):
    """An upstream that answers with who signed the request."""
    while (head := peer.head()) is not None:
        answer = json.dumps(checked(head, peer.body(head))).encode()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


class Setup:
    def __init__(self, tmp, rules=()):
        pem, root = certificate(os.path.join(tmp, "upstream"), HOST)
        self.upstream = Upstream(check, pem)
        self.proxy = Proxy(tmp, [*rules, {"name": "all", "match": {"host": ".s3.example"}, "action": "allow"}], {HOST: self.upstream.address}, extra=root, bindings=BINDINGS,
                           secrets=[{"name": "KEY", "value": KEY, "placeholder": PLACEHOLDER}, {"name": "ID", "value": ID, "placeholder": ID_PLACEHOLDER}])

    def __enter__(self):
        return self.proxy

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


REQUESTS = {
    "nothing but a path": ("s3", "GET", "/k", "", b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    "escapes, an order, a name without a value": ("s3", "GET", "/a%20b/c%2Bd%3A%C3%BC", "z=%2F&list-type=2&prefix=x%20y&a-b=1&a=2&acl", b"", sha256(b"")),
    "a hash of the body": ("s3", "PUT", "/k", "", b"hello", sha256(b"hello")),
    "a body that is not signed": ("s3", "PUT", "/k", "", b"h" * 3_000_000, "UNSIGNED-PAYLOAD"),
    "a body with trailers": ("s3", "PUT", "/k", "", b"h", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
    "a body that is hashed": ("dynamodb", "POST", "/", "", b'{"TableName": "t"}', None),
    "escapes of escapes": ("lambda", "POST", "/functions/arn%3Aaws%3Af/invocations", "Qualifier=%24LATEST", b"{}", None),
    "neither body nor hash": ("sts", "GET", "/", "Action=GetCallerIdentity", b"", None),
}


def test_the_signature_is_that_of_the_secret(tmp):
    with Setup(tmp) as proxy:
        for what, (service, method, path, query, body, payload) in REQUESTS.items():
            headers = signed(service, method, path, query, body, payload, {"x-amz-meta-a": "two   spaces"})
            status, answer = proxy.get(HOST, path + ("?" + query if query else ""), sni=HOST, headers=headers, method=method.encode(), body=body)
            equal((status, what), (200, what), answer)
            equal(json.loads(answer)[:2], [ID_PLACEHOLDER, "secret"], what)  # the id is scrubbed from the answer
        told = proxy.events("net.exchange", len(REQUESTS))
        for event, (service, method, path, query, body, payload) in zip(told, REQUESTS.values()):
            own = signed(service, method, path, query, body, payload, {"x-amz-meta-a": "two   spaces"}).decode().rpartition("Signature=")[2].strip()
            contains(json.dumps(event["request"]), own, "whoever is told of it sees what the sandbox sent")
            assert KEY not in json.dumps(event) and ID not in json.dumps(event)


def test_presigned_urls(tmp):
    with Setup(tmp) as proxy:
        for service, path, query in (("s3", "/a%20b", ""), ("s3", "/k", "versionId=a%2Fb"), ("sts", "/", "Action=GetCallerIdentity")):
            status, answer = proxy.get(HOST, f"{path}?{presigned(service, 'GET', path, query)}", sni=HOST)
            equal((status, json.loads(answer)[:2]), (200, [ID_PLACEHOLDER, "secret"]), service)
            sent = json.loads(answer)[2]
            assert sent not in json.dumps(proxy.events("net.exchange", 1)[-1]["query"]), "the signature that was sent is told to nobody"


def test_what_a_rule_changes_is_signed_too(tmp):
    change = {"name": "change", "match": {"host": HOST, "path": "/changed"}, "action": "transform",
              "transform": {"headers": {"set": {"x-amz-meta-a": "other"}}, "json": {"set": {"/a": 2}}}}
    with Setup(tmp, [change]) as proxy:
        body = b'{"a": 1}'
        headers = signed("dynamodb", "POST", "/changed", "", body, None, {"x-amz-meta-a": "one"}) + b"Content-Type: application/json\r\n"
        status, answer = proxy.get(HOST, "/changed", sni=HOST, headers=headers, method=b"POST", body=body)
        equal((status, json.loads(answer)[:2]), (200, [ID_PLACEHOLDER, "secret"]))


def test_what_is_stored_compressed_can_be_fetched(tmp):
    """A store gives objects as they were put there, whatever is asked for. A host that never gets the secret cannot say it; one that gets a secret might."""
    stored = gzip.compress(b"an object")
    pem, root = certificate(os.path.join(tmp, "upstream"), HOST)
    upstream = Upstream(fixed(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(stored) + stored), pem)
    for bindings, wanted in ((BINDINGS[:1], (200, stored)), (BINDINGS, None)):
        folder = os.path.join(tmp, str(len(bindings)))
        os.mkdir(folder)
        proxy = Proxy(folder, [{"name": "all", "match": {"host": HOST}, "action": "allow"}], {HOST: upstream.address}, extra=root, bindings=bindings,
                      secrets=[{"name": "KEY", "value": KEY, "placeholder": PLACEHOLDER}, {"name": "ID", "value": ID, "placeholder": ID_PLACEHOLDER}])
        status, body = proxy.get(HOST, "/k", sni=HOST, headers=signed("s3", "GET", "/k", payload=sha256(b"")))
        equal((status, body) if wanted else status, wanted or 502)
        equal(proxy.close(), 0)
    upstream.close()


def test_a_key_with_another_id_signs_for_itself(tmp):
    with Setup(tmp) as proxy:
        headers = signed("s3", "GET", "/k", payload=sha256(b""), key_id="AKIASOMEBODYELSESKEY")
        status, answer = proxy.get(HOST, "/k", sni=HOST, headers=headers)
        equal((status, json.loads(answer)[:2]), (200, ["AKIASOMEBODYELSESKEY", "placeholder"]))


def test_what_cannot_be_signed_is_not_sent(tmp):
    with Setup(tmp) as proxy:
        several = b"".join(b"x-pad-%d: %s\r\n" % (i, b"x" * 1000) for i in range(20)) + b"Authorization: x\r\n"
        for why, headers, body in (("it has several Authorization fields", signed("s3", "PUT", "/k", payload=sha256(b"")) + several, b""),
                                   ("its body is signed chunk by chunk", signed("s3", "PUT", "/k", payload="STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), b"x"),
                                   ("its body is too large to be held", signed("lambda", "PUT", "/k", body=b"x" * (33 << 20)), b"x" * (33 << 20)),
                                   ("a field that is signed does not leave the gateway", signed("s3", "PUT", "/k", payload=sha256(b"x"), more={"keep-alive": "1"}), b"x")):
            status, answer = proxy.get(HOST, "/k", sni=HOST, headers=headers, method=b"PUT", body=body)
            equal(status, 403, why)
            contains(answer, why.encode())
