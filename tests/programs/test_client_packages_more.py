# SPDX-License-Identifier: Apache-2.0
"""More client packages that nobody here wrote, as they come: of other APIs and protocols. The servers are packages of others, too, where there are any."""

import concurrent.futures
import hashlib
import json
import os
import ssl
import sys
import threading

from gateway.test_http2 import serve_h2
from gateway.test_sigv4 import KEY, signature
from lib import packages
from lib.case import contains, equal, require
from lib.proxy import Upstream, certificate

TIMEOUT = 500
PYTHON = ("boto3==1.44.5", "grpcio==1.85.1", "websockets==17.4", "aiohttp==3.14.5", "httpx[http2]==0.28.1", "stripe==16.1.0")
HOSTS = ("h1.example", "h2.example", "grpc.example", "ws.example", "bucket.s3.eu-west-1.amazonaws.com", "dynamodb.eu-west-1.amazonaws.com")
FORM_KEY = "sk_live_51HqJ8k2eZvKYlo2C9fKq2LwZx7RbT4vNc8YdH3"

PROTOCOLS = r"""
import aiohttp, asyncio, grpc, httpx, json, stripe, os, websockets.sync.client
said = {}
with httpx.Client(http2=True) as client:
    answers = [client.get("https://h2.example/x"), client.post("https://h2.example/x", content=b"x" * 300_000), client.get("https://h1.example/x")]
    said["httpx"] = [[a.http_version, a.status_code] for a in answers]
async def many():
    async with aiohttp.ClientSession() as client:
        async def one():
            async with client.get("https://h1.example/x") as answer:
                return answer.status
        return await asyncio.gather(*(one() for _ in range(20)))
said["aiohttp"] = asyncio.run(many())
with websockets.sync.client.connect("wss://ws.example/x") as ws:
    ws.send("hello")
    first = ws.recv()
    ws.send(b"\1" * 300000)
    said["websockets"] = [first, len(ws.recv())]
with grpc.secure_channel("grpc.example:443", grpc.ssl_channel_credentials()) as channel:
    answer, call = channel.unary_unary("/test.Echo/One").with_call(b"hi", timeout=60)
    said["one"] = [answer.decode(), dict(call.trailing_metadata()).get("x-t")]
    said["many"] = [m.decode() for m in channel.stream_stream("/test.Echo/Many")(iter([b"1", b"2", b"3"]), timeout=60)]
    try:
        channel.unary_unary("/test.Echo/Fail")(b"x", timeout=60)
    except grpc.RpcError as error:
        said["fail"] = [error.code().name, error.details()]
    try:
        channel.unary_unary("/test.Other/One")(b"x", timeout=60)
    except grpc.RpcError as error:
        said["denied"] = error.code().name
# this one brings its own list of authorities, and knows no variable
stripe.api_key, stripe.ca_bundle_path, stripe.api_base = os.environ["FORM_KEY"], os.environ["SSL_CERT_FILE"], "https://h1.example"
said["form"] = stripe.Customer.create(email="a@b.example", metadata={"a": "b"}, idempotency_key="x").id
print(json.dumps(said))
"""

AWS = r"""
import boto3, io, json, os
os.environ["AWS_ACCESS_KEY_ID"] = "AKIAIOSFODNN7EXAMPLE"
client = boto3.client("s3", region_name="eu-west-1")
with open("/tmp/large", "wb") as f:
    f.write(bytes(3 << 20))
said = {"put": client.put_object(Bucket="bucket", Key="small", Body=b"hello")["ResponseMetadata"]["HTTPStatusCode"]}
with open("/tmp/large", "rb") as f:
    said["file"] = client.put_object(Bucket="bucket", Key="large", Body=f)["ResponseMetadata"]["HTTPStatusCode"]
client.upload_fileobj(io.BytesIO(b"x" * 100000), "bucket", "through")
said["list"] = client.list_objects_v2(Bucket="bucket", Prefix="a b/\u00fc")["ResponseMetadata"]["HTTPStatusCode"]
said["tables"] = boto3.client("dynamodb", region_name="eu-west-1").list_tables()["TableNames"]
print(json.dumps(said))
"""


def fixed_answer(text, kind):
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nETag: \"x\"\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


class Cloud:
    """AWS as far as it is asked: who signed each request."""

    def __init__(self):
        self.signers, self.bodies = [], []

    def __call__(self, peer):
        while (head := peer.head()) is not None:
            body = peer.body(head)
            self.bodies.append(body)
            lines = head.decode().split("\r\n")
            method, target, _ = lines[0].split(" ")
            path, _, query = target.partition("?")
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            parts = dict(p.strip().split("=", 1) for p in fields["authorization"].removeprefix("AWS4-HMAC-SHA256").split(","))
            payload = fields.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()
            made = signature(KEY, parts["Credential"].split("/", 1)[1], method, path, query, fields, parts["SignedHeaders"], payload, time=fields["x-amz-date"])
            self.signers.append(made == parts["Signature"])
            if "dynamodb" in fields["host"]:
                peer.send(fixed_answer('{"TableNames": ["t"]}', "application/x-amz-json-1.0"))
            else:
                peer.send(fixed_answer('<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>' if "list-type" in query else "", "application/xml"))


def grpc_server(grpc, key, chain):
    def answer(request, context):
        context.set_trailing_metadata((("x-t", "1"),))
        return b"re:" + request

    def fail(_, context):
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")

    handlers = {"One": grpc.unary_unary_rpc_method_handler(answer), "Fail": grpc.unary_unary_rpc_method_handler(fail),
                "Many": grpc.stream_stream_rpc_method_handler(lambda requests, _: (b"re:" + r for r in requests))}
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", handlers), grpc.method_handlers_generic_handler("test.Other", handlers)))
    with open(key, "rb") as k, open(chain, "rb") as c:
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(k.read(), c.read())]))
    server.start()
    return server, port


def websocket_server(websockets, pem):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    server = websockets.sync.server.serve(lambda c: [c.send(m) for m in c], "127.0.0.1", 0, ssl=context)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    return server, thread, server.socket.getsockname()[1]


def customer(peer):
    """Echoes, but for a form: that is a customer."""
    while (head := peer.head()) is not None:
        body = peer.body(head)
        good = f"authorization: Bearer {FORM_KEY}" in head.decode() and body == b"email=a%40b.example&metadata[a]=b"
        peer.send(fixed_answer('{"id": "cus_1", "object": "customer"}' if good else "{}", "application/json"))


def rule(host, port, **match):
    return {"name": host, "match": {"host": host, **match}, "action": "allow", "upstream": f"127.0.0.1:{port}", "private": True}


def run(instance, box, *argv):
    done = instance.cay("exec", "--env", "PYTHONPATH=/packages", box, "--", *argv, check=False, timeout=240)
    equal(done.returncode, 0, done.stderr[-3000:] + done.stdout[-1000:])
    return json.loads(done.stdout)


@require("root")
def test_packages_of_other_protocols(fresh, tmp):
    place = packages.python(*PYTHON)
    sys.path.insert(0, place)
    import grpc  # pylint: disable=import-outside-toplevel
    import websockets.sync.server  # pylint: disable=import-outside-toplevel
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    h1, h2 = Upstream(customer, pem), Upstream(serve_h2, pem, ["h2"])
    calls, calls_port = grpc_server(grpc, os.path.join(tmp, "up", "key.pem"), root)
    ws, thread, ws_port = websocket_server(websockets, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    fresh.cay("secret", "set", "FORM_KEY", stdin=FORM_KEY)
    rules = [rule("h1.example", h1.port), rule("h2.example", h2.port), rule("grpc.example", calls_port, path="/test.Echo/*"), rule("ws.example", ws_port)]
    policy = {"version": 1, "rules": rules, "secrets": [{"name": "FORM_KEY", "hosts": ["h1.example"], "in": [{"header": "authorization"}]}]}
    with fresh.sandbox(policy=json.dumps(policy), mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        said = run(fresh, box, "/usr/bin/python3", "-c", PROTOCOLS)
        equal(said, {"httpx": [["HTTP/2", 200], ["HTTP/2", 200], ["HTTP/2", 200]], "aiohttp": [200] * 20, "websockets": ["hello", 300000], "one": ["re:hi", "1"], "many": ["re:1", "re:2", "re:3"],
                     "fail": ["NOT_FOUND", "no such thing"], "denied": "PERMISSION_DENIED", "form": "cus_1"})
    ws.shutdown()
    thread.join()
    calls.stop(None).wait()
    for upstream in (h1, h2):
        upstream.close()


@require("root")
def test_the_package_of_aws_signs_with_a_placeholder(fresh, tmp):
    """Uploads as it makes them by default: in chunks, with a sum behind the body."""
    place = packages.python(*PYTHON)
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    cloud = Cloud()
    upstream = Upstream(cloud, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    fresh.cay("secret", "set", "AWS_SECRET_ACCESS_KEY", stdin=KEY)
    policy = {"version": 1, "rules": [rule(".amazonaws.com", upstream.port)], "secrets": [{"name": "AWS_SECRET_ACCESS_KEY", "hosts": [".amazonaws.com"], "in": [{"sigv4": "*"}]}]}
    with fresh.sandbox(policy=json.dumps(policy), mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        equal(run(fresh, box, "/usr/bin/python3", "-c", AWS), {"put": 200, "file": 200, "list": 200, "tables": ["t"]})
    equal(cloud.signers, [True] * 5)
    contains(cloud.bodies[0], b"5\r\nhello\r\n0\r\nx-amz-checksum-crc32:")
    equal(len(cloud.bodies[1]) > 3 << 20, True)
    upstream.close()
