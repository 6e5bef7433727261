# SPDX-License-Identifier: Apache-2.0
"""Bodies far beyond what fits into a window: read by rules however they travel, never more of them at once than the gateway may hold, and not held where nobody reads them."""

import base64
import gzip
import hashlib
import json
import os
import re
import subprocess
import threading

from lib.case import contains, equal
from lib.cay import wait_until
from lib.pace import patience
from lib.proxy import Proxy, Upstream, certificate, parse, read_all
from lib.proxy import head as head_of

TIMEOUT = 240
MIB = 1 << 20
IMAGE = base64.b64encode(bytes(range(256)) * (15 << 10)).decode()  # 5 MiB of text
HOSTS = ("api.anthropic.com", "api.openai.com", "api.example")


class Sink:
    """An upstream that keeps of a body its size and digest; answers what @answer says."""

    def __init__(self, pem=None, alpn=None, answer=b'{"usage": {"output_tokens": 40}}', wait=None):
        self.got, self.answer, self.wait = [], answer, wait
        self.upstream = Upstream(self.handle, pem, alpn)
        self.address = self.upstream.address

    def handle(self, peer):
        data = b""

        def more():
            piece = peer.sock.recv(262144)
            if not piece:
                raise OSError("end")
            return piece

        while True:
            while b"\r\n\r\n" not in data:
                data += more()
            head, _, data = data.partition(b"\r\n\r\n")
            digest, size = hashlib.sha256(), 0
            length = re.search(rb"content-length: (\d+)", head)
            if self.wait:
                self.wait()
            if length:
                left = int(length[1])
                while left:
                    piece, data = data[:left] or more(), data[left:]
                    piece, data = piece[:left], piece[left:] + data
                    digest.update(piece)
                    size += len(piece)
                    left -= len(piece)
            elif b"transfer-encoding: chunked" in head:
                left = 1
                while left:
                    while b"\r\n" not in data:
                        data += more()
                    line, _, data = data.partition(b"\r\n")
                    left = int(line, 16)
                    while len(data) < left + 2:
                        data += more()
                    digest.update(data[:left])
                    size += left
                    data = data[left + 2:]
            self.got.append((head.split(b"\r\n")[0].decode(), size, digest.hexdigest()))
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(self.answer) + self.answer)


class Setup:
    """A sink that is every host, and a proxy that may reach it, also over TLS."""

    def __init__(self, tmp, policy, pem=None, root=None, **config):
        self.tmp = tmp
        self.sink = Sink(pem)
        config.update({"extra": root} if root else {})
        self.proxy = Proxy(tmp, [], {host: self.sink.address for host in HOSTS}, policy={"version": 1, **policy}, **config)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.sink.upstream.close()

    def post(self, url, body, *options, kind="application/json"):
        """(status, answer) of curl, which waits for 100 before it sends much, and speaks what it is told to."""
        path = os.path.join(self.tmp, f"body-{threading.get_ident()}")
        with open(path, "wb") as f:
            f.write(body if isinstance(body, bytes) else json.dumps(body).encode())
        host = url.split("/")[2]
        done = subprocess.run(["curl", "-sS", "--max-time", str(patience(120)), "--noproxy", "*", "--cacert", self.proxy.root, "--connect-to", f"{host}:443:127.0.0.1:{self.proxy.tls}",
                               "--connect-to", f"{host}:80:127.0.0.1:{self.proxy.plain}", "-H", f"Content-Type: {kind}", "--expect100-timeout", str(patience(60)), "-w", "\n%{http_code}", *options,
                               "--data-binary", f"@{path}", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        answer, _, status = done.stdout.decode().rpartition("\n")
        return int(status), answer, done.stderr.decode()

    def peak(self):
        with open(f"/proc/{self.proxy.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))


def sent(body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return len(body), hashlib.sha256(body).hexdigest()


def images(count, **more):
    """Messages with @count images of 5 MiB; what @more adds stands behind them."""
    content = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}} for _ in range(count)]
    return {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": [*content, {"type": "text", "text": "what is this?"}]}], **more}


LONG = {"model": "m", "max_tokens": 1, "system": "be \u00e4" * 400_000, "messages": [{"role": ("user", "assistant")[i % 2], "content": "word " * 400} for i in range(2000)]}
CHAT = {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + IMAGE}}] * 4}]}
RESPONSES = {"model": "m", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64," + IMAGE}] * 4}]}
PRESETS = {"preset": ["llm-anthropic", "llm-openai"]}
MESSAGES, OPENAI = "http://api.anthropic.com/v1/messages", "http://api.openai.com/v1"
BEHIND = {  # what the provider would fetch, behind 20 MiB
    "no-provider-tools": (MESSAGES, images(4, tools=[{"name": "own", "input_schema": {}}, {"type": "web_search_20250305", "name": "web_search"}])),
    "no-mcp-servers": (MESSAGES, images(4, mcp_servers=[{"type": "url"}])),
    "no-urls": (MESSAGES, {"messages": [*images(4)["messages"], {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://x.example/"}}]}]}),
    "no-image-urls": (OPENAI + "/chat/completions", {"messages": [*CHAT["messages"], {"content": [{"type": "image_url", "image_url": {"url": "https://x.example/"}}]}]}),
    "no-input-image-urls": (OPENAI + "/responses", {"input": [*RESPONSES["input"], {"content": [{"type": "input_image", "image_url": "https://x.example/"}]}]}),
    "no-web-search": (OPENAI + "/chat/completions", {**CHAT, "web_search_options": {}}),
}


def test_what_model_apis_get_passes(tmp):
    with Setup(tmp, PRESETS) as s:
        for url, body in ((MESSAGES, images(4)), (MESSAGES, LONG), (OPENAI + "/chat/completions", CHAT), (OPENAI + "/responses", RESPONSES),
                          (OPENAI + "/embeddings", {"model": "m", "input": ["some text " * 100] * 2000}),
                          (OPENAI + "/embeddings", {"model": "m", "input": [[1, 2, 3], [4]]}), (OPENAI + "/completions", {"model": "m", "prompt": ["one", "two"]}),
                          (OPENAI + "/moderations", {"input": ["one", "two"]})):
            status, answer, error = s.post(url, body)
            equal((status, error), (200, ""), answer)
            equal(s.sink.got[-1][1:], sent(body))
        equal(s.peak() < 150 << 10, True, f"peak memory {s.peak()} KiB")
        event = s.proxy.events("net.exchange", 5)[0]
        equal((event["request"]["bytes"], event["request"]["body_cut"]), (sent(images(4))[0], True))


def test_what_the_provider_would_fetch_is_found_behind_images(tmp):
    with Setup(tmp, PRESETS) as s:
        for rule, (url, body) in BEHIND.items():
            for options in ((), ("-H", "Transfer-Encoding: chunked")):
                status, answer, _ = s.post(url, body, *options)
                equal((status, json.loads(answer)["error"]["rule"].split("/")[1]), (403, rule))
        # a name that comes twice, or in other letters, could be the one that is read
        text = json.dumps(images(4))[:-1].encode()
        for twice in (b', "tools": [], "tools": [{"type": "web_search"}]}', b', "tools": [{"type": "web_search"}], "tools": []}', b', "Tools": [{"type": "web_search"}]}', b', "tool\\u0073": [{"type": "web_search"}]}', b', "tools": ['):
            equal(s.post(MESSAGES, text + twice)[0], 403, twice.decode())
        equal(s.sink.got, [])


def test_every_way_to_travel(tmp):
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    good, evil = images(4), images(4, tools=[{"type": "web_search"}])
    ways = {"plain": (MESSAGES,), "TLS": (MESSAGES.replace("http", "https", 1), "--http1.1"), "HTTP/2": (MESSAGES.replace("http", "https", 1), "--http2"),
            "HTTP/2 of unknown length": (MESSAGES.replace("http", "https", 1), "--http2", "-H", "Transfer-Encoding: chunked"), "chunked": (MESSAGES, "-H", "Transfer-Encoding: chunked"),
            "without Expect": (MESSAGES, "-H", "Expect:")}
    beside = os.path.join(tmp, "plain")
    os.mkdir(beside)
    with Setup(tmp, PRESETS, pem, root) as tls, Setup(beside, PRESETS) as plain:
        for name, (url, *options) in ways.items():
            s = tls if url.startswith("https") else plain
            status, answer, error = s.post(url, good, *options)
            equal((status, error), (200, ""), f"{name}: {answer}")
            equal(s.sink.got[-1][1:], sent(good), name)
            before = len(s.sink.got)
            status, answer, error = s.post(url, evil, *options)
            equal((status, error), (403, ""), f"{name}: {answer}")
            equal(len(s.sink.got), before, name)


def packed(body):
    import brotli  # pylint: disable=import-outside-toplevel
    text = json.dumps(body).encode()
    zstd = subprocess.run(["zstd", "-q", "-3", "-c"], input=text, stdout=subprocess.PIPE, check=True).stdout
    return {"gzip": gzip.compress(text, 1), "br": brotli.compress(text, quality=1), "zstd": zstd, "gzip, identity": gzip.compress(text, 1)}


def test_compressed_bodies(tmp):
    good, evil = packed(images(4)), packed(images(4, tools=[{"type": "web_search"}]))
    bomb = packed({"model": "m", "messages": [], "x": "a" * (40 * MIB)})
    with Setup(tmp, PRESETS) as s:
        for coding, text in good.items():
            coded = ("-H", f"Content-Encoding: {coding}")
            equal(s.post(MESSAGES, text, *coded)[0], 200, coding)
            equal(s.sink.got[-1][1:], sent(text), coding)
            equal(s.post(MESSAGES, evil[coding], *coded)[0], 403, coding)
            equal(s.post(MESSAGES, text[:-9], *coded)[0], 403, f"{coding}, cut")
            equal(s.post(MESSAGES, bomb[coding], *coded)[0], 403, f"{coding}, a bomb")
        equal(len(s.sink.got), len(good))
        equal(s.peak() < 200 << 10, True, f"peak memory {s.peak()} KiB")


def test_the_limit_is_told(tmp):
    body = images(7)
    with Setup(tmp, PRESETS) as s:
        for options in ((), ("-H", "Transfer-Encoding: chunked")):
            status, answer, _ = s.post(MESSAGES, body, *options)
            equal((status, json.loads(answer)["error"]["code"]), (413, "too_large"))
            contains(json.loads(answer)["error"]["message"], "body_max")
        equal(s.sink.got, [])
        equal([e["outcome"] for e in s.proxy.events("net.exchange", 2)], ["denied", "denied"])
    with Setup(tmp, {**PRESETS, "body_max": "40M"}) as s:
        equal(s.post(MESSAGES, body)[0], 200)
        equal(s.post(MESSAGES, images(7, tools=[{"type": "web_search"}]))[0], 403)
    with Setup(tmp, {**PRESETS, "body_max": "100K"}) as s:
        equal(s.post(MESSAGES, images(1))[0], 413)
        equal(s.post(MESSAGES, images(0))[0], 200)


def test_uploads_pass_unread(tmp):
    """Of 100 MiB that no rule reads the gateway holds none."""
    body = b"--x\r\nContent-Disposition: form-data; name=file; filename=f\r\n\r\n" + bytes(100 * MIB) + b"\r\n--x--\r\n"
    with Setup(tmp, PRESETS) as s:
        for path in ("/files", "/audio/transcriptions"):
            status, answer, error = s.post(OPENAI + path, body, kind="multipart/form-data; boundary=x")
            equal((status, error), (200, ""), answer)
            equal(s.sink.got[-1][1:], sent(body))
        equal(s.post(OPENAI + "/responses", body, kind="multipart/form-data; boundary=x")[0], 403)  # whatever it holds
        equal(s.peak() < 60 << 10, True, f"peak memory {s.peak()} KiB")
        equal(len(s.sink.got), 2)


def test_bodies_that_are_changed(tmp):
    """Fields set, secrets put into JSON and forms, all of it written anew."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    value, placeholder = "k3y-9fA2c7Qx81LmZr5T", "k3y-PlaceHolder0000x"
    transform = {"json": {"set": {"model": "small"}, "remove": ["/metadata"]}}
    policy = {"rules": [{"name": "smaller", "match": {"host": "api.example", "path": "/transform"}, "action": "transform", "transform": transform},
                        {"name": "rest", "match": {"host": "api.example"}, "action": "allow"}],
              "secrets": [{"name": "KEY", "hosts": ["api.example"], "in": [{"json": "/metadata/key"}, {"form": "key"}]}]}
    body = images(4, metadata={"key": "the " + placeholder})
    with Setup(tmp, policy, pem, root, secrets=[{"name": "KEY", "value": value, "placeholder": placeholder}]) as s:
        url = "https://api.example"
        changed = {**body, "model": "small"}
        del changed["metadata"]
        equal(s.post(url + "/transform", body)[0], 200)
        equal(s.sink.got[-1][1:], sent(json.dumps(changed, separators=(",", ":"), ensure_ascii=False).encode()))
        equal(s.post(url + "/x", gzip.compress(json.dumps(body).encode(), 1), "-H", "Content-Encoding: gzip")[0], 200)
        equal(s.sink.got[-1][1:], sent(json.dumps({**body, "metadata": {"key": "the " + value}}, separators=(",", ":")).encode()))
        image = b"image=" + IMAGE.replace("+", "%2B").encode() * 3 + b"&key="
        equal(s.post(url + "/x", image + placeholder.encode() + b"&z=1", kind="application/x-www-form-urlencoded")[0], 200)
        equal(s.sink.got[-1][1:], sent(image + value.encode() + b"&z=1"))
        for misplaced in (images(4, other=placeholder), images(7, metadata={"key": placeholder})):
            before = len(s.sink.got)
            equal(s.post(url + "/x", misplaced)[0], 403)
            equal(len(s.sink.got), before)


def test_what_is_written_anew_counts_as_often_as_it_is_there(tmp):
    """Beside its tree a changed body is there twice while it is written; what the value of a secret adds to it counts, too."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    value, placeholder = "k3y-9fA2c7Qx81LmZr5T" * 2, "k3y-PlaceHolder0000x"
    policy = {"rules": [{"name": "smaller", "match": {"host": "api.example", "path": "/transform"}, "action": "transform", "transform": {"json": {"set": {"model": "small"}}}},
                        {"name": "rest", "match": {"host": "api.example"}, "action": "allow"}],
              "secrets": [{"name": "KEY", "hosts": ["api.example"], "in": [{"json": "/key"}]}]}
    tree = 2 * MIB + (64 << 10)
    body = {"key": placeholder, "x": "a" * (2 * MIB)}
    for path, room, status in (("/transform", tree + 7 * MIB, 503), ("/x", tree + 7 * MIB, 503), ("/x", tree + 9 * MIB, 200)):
        folder = os.path.join(tmp, f"{path[1:]}-{room}")
        os.mkdir(folder)
        with Setup(folder, policy, pem, root, secrets=[{"name": "KEY", "value": value, "placeholder": placeholder}], room=room) as s:
            equal(s.post("https://api.example" + path, body)[0], status, f"{path} {room}")


def test_what_is_coded_and_changed_counts_as_what_it_is(tmp):
    """A coded body could become a thousand times as much: an ordinary one takes no more than its share all the same, so that sixteen of them need not wait for each other."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    value, placeholder = "k3y-9fA2c7Qx81LmZr5T", "k3y-PlaceHolder0000x"
    policy = {"rules": [{"name": "smaller", "match": {"host": "api.example", "path": "/transform"}, "action": "transform", "transform": {"json": {"set": {"model": "small"}}}},
                        {"name": "rest", "match": {"host": "api.example"}, "action": "allow"}],
              "secrets": [{"name": "KEY", "hosts": ["api.example"], "in": [{"json": "/key"}]}]}
    body = {"key": placeholder, "model": "large", "rows": [{"n": i, "hash": hashlib.sha256(b"%d" % i).hexdigest()[:16]} for i in range(1500)]}
    changed = {**body, "key": value}
    coded = gzip.compress(json.dumps(body).encode())
    equal(16 << 10 < len(coded) < 24 << 10, True, str(len(coded)))
    with Setup(tmp, policy, pem, root, secrets=[{"name": "KEY", "value": value, "placeholder": placeholder}], room=80 * MIB // 16) as s:
        for path, expected in (("/x", changed), ("/transform", {**changed, "model": "small"})):
            equal(s.post("https://api.example" + path, coded, "-H", "Content-Encoding: gzip")[0], 200, path)
            equal(s.sink.got[-1][1:], sent(json.dumps(expected, separators=(",", ":")).encode()), path)


KEY_IN_JSON = [{"name": "KEY", "hosts": ["api.example"], "in": [{"json": "/key"}]}]
KEY = {"name": "KEY", "value": "k3y-9fA2c7Qx81LmZr5T", "placeholder": "k3y-PlaceHolder0000x"}


def test_what_changed_bodies_become_is_held_within_the_limit(tmp):
    """Ten of 16 KiB that become 16 MiB each, for a host that takes none of them yet: who finds no room is told so."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    go, heads = threading.Event(), []

    def lazy(peer):
        head = peer.head()
        heads.append(head)
        equal(go.wait(patience(200)), True)
        size = left = int(re.search(rb"content-length: (\d+)", head)[1])
        left -= len(peer.rest)
        while left > 0 and (piece := peer.sock.recv(262144)):
            left -= len(piece)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\n%08x" % (size - left))

    upstream = Upstream(lazy, pem)
    proxy = Proxy(tmp, [{"name": "all", "match": {"host": "api.example"}, "action": "allow"}], {"api.example": upstream.address}, bindings=KEY_IN_JSON, secrets=[KEY], extra=root, room=80 * MIB)
    body = {"key": KEY["placeholder"], "x": "a" * (16 * MIB)}
    coded = gzip.compress(json.dumps(body).encode(), 9)

    def begin():
        sock = proxy.connect_tls("api.example")
        sock.settimeout(patience(200))
        sock.sendall(b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(coded))
        contains(head_of(sock).decode(), " 100 ")
        return sock

    socks = [begin() for _ in range(10)]
    for i, sock in enumerate(socks):
        sock.sendall(coded)
        wait_until(lambda i=i: len(heads) + len(proxy.events("net.exchange")) == i + 1, 100, f"request {i}")
    peak = proxy.peak()
    go.set()
    answers = [parse(read_all(sock)) for sock in socks]
    size = b"%08x" % len(json.dumps({**body, "key": KEY["value"]}, separators=(",", ":")))
    equal(answers[:4], [(200, size)] * 4)
    equal([answer[0] for answer in answers[4:]], [503] * 6)
    equal(peak < 200 << 10, True, f"peak memory {peak} KiB")
    again = begin()
    again.sendall(coded)
    equal(parse(read_all(again)), (200, size))
    equal(proxy.close(), 0)
    upstream.close()


def test_what_is_written_in_bytes_lies_together(tmp):
    """Line ends in a string are written one by one."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    body = {"key": KEY["placeholder"], "x": "\n" * (8 * MIB)}
    with Setup(tmp, {"rules": [{"name": "rest", "match": {"host": "api.example"}, "action": "allow"}], "secrets": KEY_IN_JSON}, pem, root, secrets=[KEY]) as s:
        equal(s.post("https://api.example/x", gzip.compress(json.dumps(body).encode(), 9), "-H", "Content-Encoding: gzip")[0], 200)
        equal(s.sink.got[-1][1:], sent(json.dumps({**body, "key": KEY["value"]}, separators=(",", ":")).encode()))
        equal(s.peak() < 150 << 10, True, f"peak memory {s.peak()} KiB")


def test_a_form_that_is_written_anew_is_there_twice(tmp):
    """Where there is no secret to be put in it is not written."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    policy = {"rules": [{"name": "rest", "match": {"host": "api.example"}, "action": "allow"}], "secrets": [{"name": "KEY", "hosts": ["api.example"], "in": [{"form": "key"}]}]}
    rest = b"&image=" + b"a" * (2 * MIB)
    for room, status in ((MIB, 503), (3 * MIB, 200)):
        folder = os.path.join(tmp, str(room))
        os.mkdir(folder)
        with Setup(folder, policy, pem, root, secrets=[KEY], room=room) as s:
            for key, expected in ((KEY["placeholder"], status), ("none", 200)):
                equal(s.post("https://api.example/x", b"key=" + key.encode() + rest, kind="application/x-www-form-urlencoded")[0], expected, f"{room} {key}")
            equal(s.sink.got[-1][1:], sent(b"key=none" + rest))
            equal(len(s.sink.got), 2 if status == 200 else 1)
            equal(s.sink.got[0][1:], sent(b"key=" + (KEY["value"].encode() if status == 200 else b"none") + rest))


def test_a_body_that_its_secrets_make_too_large(tmp):
    """However large it would be."""
    pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
    placeholder = "k3y-PlaceHolder0000x"
    policy = {"rules": [{"name": "rest", "match": {"host": "api.example"}, "action": "allow"}],
              "secrets": [{"name": "KEY", "hosts": ["api.example"], "in": [{"json": "/key"}, {"form": "key"}]}]}
    form = "application/x-www-form-urlencoded"
    with Setup(tmp, policy, pem, root, secrets=[{"name": "KEY", "value": "v" * 4000, "placeholder": placeholder}]) as s:
        for body, kind in (({"key": placeholder * 10_000}, "application/json"), ({"key": placeholder * 20_000}, "application/json"),
                           (b"key=" + placeholder.encode() * 20_000, form), ((b"key=" + placeholder.encode() + b"&") * 20_000, form)):
            status, answer, _ = s.post("https://api.example/x", body, kind=kind)
            equal((status, json.loads(answer).get("error", {}).get("code")), (413, "too_large"))
        equal(s.sink.got, [])
        equal(s.peak() < 100 << 10, True, f"peak memory {s.peak()} KiB")


def test_an_answer_that_comes_before_the_body_has_gone(tmp):
    def refuse(peer):
        while b"\r\n\r\n" not in peer.rest:
            assert peer.more()
        peer.send(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 4\r\nConnection: close\r\n\r\nwho?")

    early = Upstream(refuse)
    proxy = Proxy(tmp, [{"name": "json", "match": {"host": "api.example", "json": {"kind": "good"}}, "action": "allow"}], {"api.example": early.address})
    equal(proxy.get("api.example", method=b"POST", body=json.dumps({"kind": "good", "x": IMAGE * 4}).encode()), (401, b"who?"))
    equal(proxy.close(), 0)
    early.close()


def answered_together(tmp, count, body, early):
    """Statuses of @count requests with @body whose answers end when all have begun: @early with their heads, else with nothing."""
    all_there = threading.Barrier(count)

    def slow(peer):
        head = peer.head()
        length = int(re.search(rb"content-length: (\d+)", head)[1]) - len(peer.rest)
        while length > 0:
            piece = peer.sock.recv(262144)
            assert piece
            length -= len(piece)
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        if early:
            peer.send(answer)
        all_there.wait(patience(100))
        peer.send(b"ok" if early else answer + b"ok")

    upstream = Upstream(slow)
    proxy = Proxy(tmp, [{"name": "json", "match": {"host": "api.example", "json": {"kind": "good"}}, "action": "allow"}], {"api.example": upstream.address})
    statuses = []

    def ask():
        with proxy.connect() as sock:
            sock.settimeout(patience(120))
            sock.sendall(b"POST / HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            statuses.append(parse(read_all(sock)))
    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(150))
    equal(statuses, [(200, b"ok")] * count)
    equal(proxy.close(), 0)
    upstream.close()


def test_room_is_given_back_when_the_body_has_gone(tmp):
    """Answers that take long hold no bodies: twelve of 20 MiB wait for theirs at once."""
    answered_together(tmp, 12, json.dumps({"kind": "good", "x": IMAGE * 4}).encode(), False)


def test_room_is_given_back_when_the_answer_begins(tmp):
    """Small ones are kept to be sent again, but not while a stream of events goes on: a hundred of 800 KiB."""
    answered_together(tmp, 100, json.dumps({"kind": "good", "x": "a" * (800 << 10)}).encode(), True)


READ_OR_PASSED = [{"name": "json", "match": {"host": "api.example", "json": {"kind": "good"}}, "action": "allow"}, {"name": "rest", "match": {"host": "api.example", "path": "/rest"}, "action": "allow"}]


def begin_chunk(proxy, data):
    """A connection with a request of unknown length, of whose body @data was sent."""
    sock = proxy.connect()
    sock.settimeout(patience(100))
    sock.sendall(b"POST /rest HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % len(data) + data + b"\r\n")
    return sock


class Heard:
    """A handler that counts what it hears, and answers bodies whose length is known."""

    def __init__(self):
        self.changed, self.sizes, self.end = threading.Condition(), [], b""

    def __call__(self, peer):
        head = peer.head()
        if b"content-length" in head.lower():
            peer.body(head)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        at = len(self.sizes)
        self.sizes.append(len(peer.rest))
        peer.sock.settimeout(patience(150))  # it would give the room back by leaving
        while piece := peer.sock.recv(262144):
            with self.changed:
                self.sizes[at] += len(piece)
                self.end = (self.end + piece)[-1000:]
                self.changed.notify_all()

    def wait(self, count, size):
        with self.changed:
            equal(self.changed.wait_for(lambda: sum(n >= size for n in self.sizes) >= count, patience(100)), True, str(self.sizes))


def test_room_is_given_back_when_the_rest_passes_unread(tmp):
    """A body that turned out to be too large for rules, and goes on and on, holds nothing."""
    heard = Heard()
    upstream = Upstream(heard)
    proxy = Proxy(tmp, [], {"api.example": upstream.address}, policy={"version": 1, "body_max": "40M", "rules": READ_OR_PASSED})
    socks = [begin_chunk(proxy, bytes(41 * MIB)) for _ in range(2)]
    heard.wait(2, 41 * MIB)
    equal(proxy.get("api.example", method=b"POST", body=json.dumps({"kind": "good", "x": IMAGE * 6}).encode())[0], 200)
    for sock in socks:
        sock.close()
    equal(proxy.close(), 0)
    upstream.close()


def test_a_placeholder_where_the_body_stops_being_held(tmp):
    """Half of it in what was held, half in what follows: it is found all the same."""
    heard = Heard()
    placeholder = "k3y-PlaceHolder0000x"
    upstream = Upstream(heard)
    proxy = Proxy(tmp, [], {"api.example": upstream.address}, secrets=[{"name": "KEY", "value": "k3y-9fA2c7Qx81LmZr5T", "placeholder": placeholder}],
                  policy={"version": 1, "body_max": "100K", "rules": READ_OR_PASSED, "secrets": [{"name": "KEY", "hosts": ["other.example"], "in": [{"header": "x"}]}]})
    sock = begin_chunk(proxy, b"." * (100 * 1024 - 9) + placeholder[:10].encode())
    heard.wait(1, 99 * 1024)
    sock.sendall(b"a\r\n" + placeholder[10:].encode() + b"\r\n0\r\n\r\n")
    equal(parse(read_all(sock))[0], 403)
    equal(proxy.events("secret.misplaced", 1)[0]["where"], "body")
    equal(placeholder[10:].encode() in heard.end, False)
    sock.close()
    equal(proxy.close(), 0)
    upstream.close()


def test_depth_is_bounded(tmp):
    """What is written anew is walked level by level; what is deeper than that can be is not read, and ends nobody."""
    rules = [{"name": "small", "match": {"host": "api.example"}, "action": "transform", "transform": {"json": {"set": {"model": "small"}}}}]
    with Setup(tmp, {"rules": rules}) as s:
        for depth, status in ((300, 200), (2000, 403), (300, 200)):
            for opens, closes in ((b"[", b"]"), (b'{"a":', b"}")):
                text = b'{"x": ' + opens * depth + b"1" + closes * depth + b"}"
                equal(s.post("http://api.example/", text)[0], status, f"{depth} {opens}")
