#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the hand-made part of the corpora: fuzz/corpus/TARGET/seed-NAME. Run after a format gained something; commit the result."""

import glob
import io
import json
import os
import struct
import subprocess
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def write(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "seed-" + name), "wb") as f:
        f.write(data)


def frame():
    def one(kind, channel, payload):
        return struct.pack("<IBBH", len(payload), kind, 0, channel) + payload
    for kind in range(1, 14):
        write("frame", f"type-{kind}", one(kind, kind, b"{}" * kind))
    write("frame", "two", one(3, 0, b'{"n":1}') + one(5, 1, struct.pack("<Q", 7) + b"out"))
    write("frame", "short", one(2, 0, b"x" * 64)[:40])
    write("frame", "flag", struct.pack("<IBBH", 0, 1, 1, 0))
    write("frame", "huge", struct.pack("<IBBH", 1 << 31, 1, 0, 0))


def http_response():
    def head(*lines):
        return b"\r\n".join((b"HTTP/1.1 200 OK",) + lines) + b"\r\n\r\n"
    write("http_response", "length", head(b"Content-Type: text/plain", b"Content-Length: 5") + b"hello and more")
    write("http_response", "chunked", head(b"transfer-encoding: chunked") + b"5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\nrest")
    write("http_response", "chunk-extension", head(b"Transfer-Encoding: chunked") + b"5;x=y\r\nhello\r\n0\r\n\r\n")
    write("http_response", "chunk-short", head(b"Transfer-Encoding: chunked") + b"5\r\nhell0\r\n\r\n")
    write("http_response", "trailer-moves", head(b"transfer-encoding: chunked") + b"0\r\nX:" + b"a" * 60 + b"\r\n\r\n")  # the LF makes its buffer grow
    write("http_response", "until-close", head() + b"to the end")
    write("http_response", "upgrade", b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n\x00\x00")
    write("http_response", "none", b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
    write("http_response", "two-lengths", head(b"Content-Length: 5", b"Content-Length: 6") + b"hello")
    write("http_response", "both", head(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"hello")
    write("http_response", "bare-lf", b"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello")
    write("http_response", "folded", head(b"X: a\r\n b"))
    write("http_response", "huge", head(b"Content-Length: 99999999999999999999"))


def pagechunk():
    def head(raw, stored, flags, present):
        return struct.pack("<IIII4Q", raw, stored, flags, 0, present, 0, 0, 0)
    page = bytes(range(256)) * 16
    write("pagechunk", "plain", head(8192, 4096, 0, 2) + page)
    write("pagechunk", "zeros", head(1 << 20, 0, 0, 0))
    write("pagechunk", "short-page", head(5000, 8192, 0, 3) + page + page)
    write("pagechunk", "behind-the-end", head(4096, 8192, 0, 3) + page + page)
    write("pagechunk", "not-zstd", head(4096, 64, 1, 1) + b"x" * 64)
    # a frame of raw blocks: magic, single segment with a content size of two bytes, one last raw block
    frame = b"\x28\xb5\x2f\xfd\x60" + struct.pack("<H", 4096 - 256) + struct.pack("<I", 4096 << 3 | 1)[:3] + page
    write("pagechunk", "zstd", head(4096, len(frame), 1, 1) + frame)
    write("pagechunk", "zstd-too-long", head(8192, len(frame), 1, 3) + frame)
    write("pagechunk", "text", b"memory of a program " * 500)


def reference():
    hexes = b"0123456789abcdef" * 4
    for n, text in enumerate([b"debian", b"debian:12", b"ghcr.io/a/b:t@sha256:" + hexes, b"localhost:5000/a__b/c-d--e.f:v1.2-3_4", b"Host/x",
                              b"a@sha512:" + hexes * 2, b"docker.io/a.b/c", b"index.docker.io/library/x", b"a..b", b"a:", b"a@", b"h.x:99999/a",
                              b"docker.io/localhost/c", b"x" * 260]):
        write("reference", str(n), text)


def yaml_document():
    for n, text in enumerate([b"a: [1, 2.5, ~, true, 'x']", b"{a: {b: [{}]}}", b"- |\n  text\n- >\n  folded\n", b"a: &x 1\nb: *x", b"[[[[[[", b"--- 1\n--- 2",
                              b"a: 1\na: 2", b"\"\\u00e9\\x41\"", b"a: 99999999999999999999", b"a: 1e999", b"? a\n: b"]):
        write("yaml_document", str(n), text)


def policy():
    for path in glob.glob(os.path.join(HERE, "..", "defs", "presets", "*.yaml")):
        with open(path, "rb") as f:
            write("policy", os.path.basename(path)[:-5], f.read())
    write("policy", "all", b"""preset: [llm-openai]
rules:
- {match: {host: [a.example, 10.0.0.0/8], port: [80, 8000-9000], method: [GET, POST], path: /v1/{x}, query: {q: "1", z: null}, headers: {x-a: [b, "c*"]},
   json: {amount: {min: 1, max: 5}, /tools/*/type: [x, 1]}}, action: allow, budget: {requests: {max: 1, per: 1h}, bytes: {max: 1M}, sum: {field: /a, max: 1}}}
- {match: {host: "*"}, action: fault, fault: {chance: 0.5, latency: 1s, status: 500, truncate: 10, rate: 1K}}
- {match: {host: "*"}, action: transform, transform: {headers: {set: {a: b}, remove: [c]}, json: {set: {/x: [1]}}}}
- {match: {host: "*", port: any, transport: tcp}, action: allow, upstream: "[::1]:80", private: true}
- {match: {host: .x}, action: deny, deny: {with: reset}}
- {match: {host: a.example, transport: dns, type: [SRV, TXT]}, action: allow, upstream: "127.0.0.1:53"}
secrets: [{name: K, hosts: "*", in: [{header: a}, {query: b}, {json: /c}, {form: d}]}]
""")


def scrub():
    import base64
    secret = b"s3cretS3cret"
    for n, text in enumerate([secret, b"x" + secret[:-1] + secret, b"%73" + secret[1:], b"\\u0073" + secret[1:], base64.b64encode(b"u:" + secret),
                              base64.b64encode(b"us:" + secret), secret.hex().encode(), b"aaaaaaaaaaaaab", b"key-0\\/1+2_z9", b"key-0%2F1%2b2_z9", b"%%%\\\\\\"]):
        write("scrub", str(n), text)


def sieve():
    write("sieve", "messages", b'/tools/*/type\n/messages/*/content/*/source/type\n\n'
          b'{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","data":"AAAA"}}]}],"tools":[{"type":"web_search"}]}')
    write("sieve", "escapes", b'a\n\n{"\\u0061":"\\ud83d\\ude00\\n","A":1,"x":[1.5e3,-0,true,null]}')
    write("sieve", "twice", b'/a/b\n\n{"a":{"b":1,"b":2}}')
    write("sieve", "places", b'/0\n/1/a\n/*/b\n\n[1,{"a":[],"b":{}},[[]]]')
    write("sieve", "broken", b'a\n\n{"a":"\xed\xa0\x80"}')


def smtp():
    begin = b"EHLO x\r\nMAIL FROM:<a@b> SIZE=100\r\nRCPT TO:<c@d>\r\nDATA\r\n"
    for n, text in enumerate([begin + b"Subject: x\r\n\r\n..\r\n.\r\nQUIT\r\n", begin + b"a\n.\nb\r.\r\r\n.\r\n", b"STARTTLS\r\nEHLO x\r\nSTARTTLS\r\n",
                              b"EHLO x\r\nAUTH PLAIN AGEAYg==\r\n", b"EHLO x\r\nAUTH LOGIN\r\nYQ==\r\nYg==\r\n", b"HELO x\r\nMAIL FROM:<>\r\nRSET\r\nVRFY x\r\n",
                              b"X\r\n" * 30, begin + b"x" * 13000 + b"\r\n.\r\n", b"NOOP\x00\r\nNOOP\xff\r\n"]):
        write("smtp", str(n), text)


def mime():
    from email.message import EmailMessage
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "a@b.example", "c@d.example", "h\u00e4llo w\u00f6rld \u20ac"
    mail.set_content("text \u00e4\n" * 5)
    mail.add_alternative("<p>h\u00e4</p>", subtype="html", cte="quoted-printable")
    mail.add_attachment(b"\x00\x01" * 30, maintype="application", subtype="pdf", filename="x.pdf")
    write("mime", "all", bytes(mail))
    for n, text in enumerate([b"Subject: =?utf-8?q?a=C3=A4_b?= =?iso-8859-1?b?5A==?=\r\n x\r\n\r\nbody", b"a:\n b\n\n", b"Content-Type: multipart/x; boundary=b\n\n--b\n\n--b--",
                              b"Content-Type: multipart/x; boundary=b\n\n--b\nContent-Type: multipart/x; boundary=bb\n\n--bb\n\nx\n--b\n\ny", b"\x00: \x00\n\n\x00"]):
        write("mime", str(n), text)


def proctext():
    write("proctext", "maps", b"7f00-8000 rw-p 00001000 fd:01 1234                       /usr/lib/a b\\012c (deleted)\n9000-a000 r--s 0 00:01 5 /dev/zero (deleted)\n")
    write("proctext", "smaps", b'7f1c2a000000-7f1c2a040000 rw-p 00000000 00:00 0 \nSize:                256 kB\nRss:                 256 kB\nTHPeligible:           0\nVmFlags: rd wr mr mw me dc lo ac sd \n7ffd1c1f2000-7ffd1c213000 rw-p 00000000 00:00 0                          [stack]\nSize:                132 kB\nVmFlags: rd wr mr mw me gd ac\n')
    write("proctext", "maps-bad", b"7f00-7000 rw-p 0 0:0 0\n")
    write("proctext", "stat", b"12 (a) b) S 1 12 12 0 -1 4194560 " + b" ".join(str(i).encode() for i in range(10, 53)) + b"\n")
    write("proctext", "status", b"Name:\tx\nUid:\t0\t1\t2\t3\nNSpid:\t100\t7\nflags:\t02100002\n")
    write("proctext", "locks", b"pos:\t0\nlock:\t1: POSIX  ADVISORY  WRITE 1234 fd:01:5678 0 EOF\nlock:\t2: OFDLCK ADVISORY  READ -1 00:2b:77 100 104\n"
          b"lock:\t3: FLOCK  ADVISORY  READ 12 00:2b:77 0 EOF\nlock:\t1: LEASE  ACTIVE    READ 5 fd:01:9 0 EOF\nlock:\t1: POSIX  ADVISORY  READ 1 0:0:0 9 3\n")


def pax():
    def record(key, value):
        body = b" " + key + b"=" + value + b"\n"
        n = len(body) + len(str(len(body)))
        n = len(body) + len(str(n))
        return str(n).encode() + body
    write("pax", "names", record(b"path", b"a/b" * 40) + record(b"linkpath", b"x") + record(b"size", b"12"))
    write("pax", "times", record(b"mtime", b"1700000000.123456789") + record(b"atime", b"-1.5") + record(b"ctime", b"99999999999999"))
    write("pax", "xattr", record(b"SCHILY.xattr.user.x", bytes(range(256))))
    write("pax", "zero-length", b"00 path=x\n")
    write("pax", "no-newline", b"9 path=xx")
    write("pax", "long", b"99999999999999999999999 path=x\n")


def tar():
    def archive(fill, **options):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", **options) as t:
            fill(t)
        return out.getvalue()[:8192]

    def member(name, kind=tarfile.REGTYPE, data=b"", **more):
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(data)
        for key, value in more.items():
            setattr(info, key, value)
        return info, io.BytesIO(data)

    def tree(t):
        t.addfile(*member("./", tarfile.DIRTYPE, mode=0o755))
        t.addfile(*member("d/", tarfile.DIRTYPE, mode=0o1777, uid=5))
        t.addfile(*member("d/f", data=b"hello" * 200, mode=0o4755))
        t.addfile(*member("d/h", tarfile.LNKTYPE, linkname="d/f"))
        t.addfile(*member("s", tarfile.SYMTYPE, linkname="/etc"))
        t.addfile(*member("p", tarfile.FIFOTYPE))
        t.addfile(*member("n", tarfile.CHRTYPE, devmajor=1, devminor=3))
    for name, form in (("ustar", tarfile.USTAR_FORMAT), ("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        write("tar", name, archive(tree, format=form))
        write("tar", name + "-long", archive(lambda t: t.addfile(*member("/".join(["l" * 40] * 5 if name != "ustar" else ["l" * 40] * 3),
                                                                        tarfile.SYMTYPE, linkname="t" * 90)), format=form))
    write("tar", "xattr", archive(lambda t: t.addfile(*member("f", data=b"x", pax_headers={
        "SCHILY.xattr.user.k": "v", "SCHILY.xattr.security.capability": "cap", "atime": "1.5"})), format=tarfile.PAX_FORMAT))
    write("tar", "big-uid", archive(lambda t: t.addfile(*member("f", uid=1 << 24, mtime=-5)), format=tarfile.GNU_FORMAT))
    write("tar", "sparse-0.1", archive(lambda t: t.addfile(*member("GNUSparseFile.1/f", data=b"abcd", pax_headers={
        "GNU.sparse.map": "0,2,4096,2", "GNU.sparse.size": "8192", "GNU.sparse.name": "f", "GNU.sparse.numblocks": "2"})),
        format=tarfile.PAX_FORMAT))
    write("tar", "sparse-1.0", archive(lambda t: t.addfile(*member("GNUSparseFile.1/f", data=b"1\n4096\n4\n".ljust(512, b"\0") + b"abcd",
        pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "8192", "GNU.sparse.name": "f"})),
        format=tarfile.PAX_FORMAT))
    with tempfile.TemporaryDirectory() as top:
        with open(os.path.join(top, "holes"), "wb") as f:
            for at in range(0, 1 << 20, 1 << 17):
                f.seek(at)
                f.write(b"x")
        for form in ("gnu", "posix --sparse-version=0.0", "posix --sparse-version=0.1", "posix --sparse-version=1.0"):
            if os.path.exists(os.path.join(HERE, "corpus/tar/seed-holes-" + form.split("=")[-1])):
                continue  # GNU tar writes its process id into them
            out = subprocess.run(["tar", "-C", top, "--sparse", "--mtime=@1", "--owner=0", "--group=0", "--format", *form.split(), "-cf", "-", "holes"],
                                 stdout=subprocess.PIPE, check=True).stdout
            write("tar", "holes-" + form.split("=")[-1], out[:16384])


def oci():
    digest = "sha256:" + "0123456789abcdef" * 4
    kind = "application/vnd.oci.image."

    def descriptor(name, **more):
        return {"mediaType": kind + name, "digest": digest, "size": 10, **more}
    documents = {
        "layout": {"imageLayoutVersion": "1.0.0"},
        "index": {"schemaVersion": 2, "manifests": [
            descriptor("manifest.v1+json", platform={"os": "linux", "architecture": "amd64"},
                       annotations={"org.opencontainers.image.ref.name": "12"}),
            descriptor("manifest.v1+json", platform={"os": "linux", "architecture": "arm64"}), descriptor("index.v1+json")]},
        "manifest": {"schemaVersion": 2, "config": descriptor("config.v1+json"),
                     "layers": [descriptor("layer.v1.tar+gzip"), descriptor("layer.v1.tar+zstd"), descriptor("layer.v1.tar")]},
        "config": {"os": "linux", "architecture": "amd64", "config": {"Cmd": ["sh"]}, "rootfs": {"type": "layers", "diff_ids": [digest, digest]}},
        "save": [{"Config": "c.json", "RepoTags": ["a:b"], "Layers": ["x/layer.tar", "y/layer.tar"]}, {"Config": "d.json", "RepoTags": None,
                                                                                                     "Layers": []}],
        "wrong": {"schemaVersion": 2, "config": {"digest": "sha256:x"}, "layers": [1], "manifests": [{}], "rootfs": {"diff_ids": [0]}},
    }
    for name, document in documents.items():
        write("oci", name, json.dumps(document).encode())
    write("oci", "deep", b"[" * 3000)
    write("oci", "twice", b'{"schemaVersion":2,"schemaVersion":2}')


def httphead():
    host = b"Host: localhost\r\n"
    write("httphead", "get", b"GET /v1/sandboxes?limit=5&name=a%20b HTTP/1.1\r\n" + host + b"Accept: */*\r\n\r\n")
    write("httphead", "post", b"POST /v1/run HTTP/1.1\r\n" + host + b"Content-Length: 12\r\nExpect: 100-continue\r\n"
          b"Connection: keep-alive, Upgrade\r\nUpgrade: cay-frames\r\n\r\n")
    write("httphead", "chunked", b"PUT /v1/x HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n")
    for n, lines in enumerate([b"", host + host, host + b"Content-Length: 1\r\nContent-Length: 1\r\n", host + b"X : y\r\n", host + b" folded\r\n",
                               host + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", host + b"X: a\nY: b\r\n", host + b"X: \0\r\n",
                               host + b"Transfer-Encoding: gzip, chunked\r\n"]):
        write("httphead", f"bad-{n}", b"GET / HTTP/1.1\r\n" + lines + b"\r\n")
    for n, line in enumerate([b"GET http://a/ HTTP/1.1", b"GET / HTTP/1.0", b"GET  / HTTP/1.1", b"get / HTTP/1.1", b"GET /%zz%00%ff HTTP/1.1",
                              b"GET /a#b HTTP/1.1", b"CONNECT / HTTP/1.1"]):
        write("httphead", f"line-{n}", line + b"\r\n" + host + b"\r\n")
    write("httphead", "many", b"GET / HTTP/1.1\r\n" + host + b"".join(b"X-%d: y\r\n" % i for i in range(70)) + b"\r\n")


def base64_text():
    for n, text in enumerate((b"Zm9vYmE=", b"Zg==", b"Zh==", bytes(range(256)), b"Zm9v\n")):
        write("base64", str(n), text)


def dns():
    def query(name, kind, more=b"", flags=0x0100, additional=0, questions=1):
        labels = b"".join(bytes([len(part)]) + part for part in name.split(b".") if part) + b"\0"
        return struct.pack(">HHHHHH", 7, flags, questions, 0, 0, additional) + labels + struct.pack(">HH", kind, 1) + more
    edns = b"\0" + struct.pack(">HHIH", 41, 1232, 0, 0)
    for kind in (1, 5, 12, 15, 16, 28, 33, 65, 255):
        write("dns", f"type-{kind}", query(b"Api.Shop.example", kind))
    write("dns", "edns", query(b"a.example", 1, edns, additional=1))
    write("dns", "edns-cut", query(b"a.example", 1, edns[:-1], additional=1))
    write("dns", "reverse-4", query(b"1.0.18.198.in-addr.arpa", 12))
    write("dns", "reverse-6", query(b".".join([b"1"] + [b"0"] * 23 + list(b"e f a c 0 0 d f".split())) + b".ip6.arpa", 12))
    write("dns", "root", query(b"", 2))
    write("dns", "long", query(b".".join([b"x" * 63] * 4), 1))
    write("dns", "longest", query(b".".join([b"x" * 63] * 3 + [b"x" * 61]), 1))
    write("dns", "pointer", struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\xc0\x0c\0\1\0\1")
    write("dns", "dot-in-label", struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0) + b"\x03a.b\0\0\1\0\1")
    write("dns", "two", query(b"a.example", 1, b"\1b\0\0\1\0\1", questions=2))
    write("dns", "answer", query(b"a.example", 1, flags=0x8180))
    write("dns", "update", query(b"a.example", 1, flags=0x2800))
    write("dns", "tail", query(b"a.example", 1, b"tail"))


def packet():
    ports = struct.pack(">HH", 40000, 443)
    v4 = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 44, 1, 0, 64, 6, 0, b"\x0a\0\0\2", b"\x5d\xb8\xd8\x22")
    write("packet", "tcp4", v4 + ports + bytes(16))
    write("packet", "options", b"\x46" + v4[1:] + bytes(4) + ports)
    write("packet", "fragment", v4[:6] + b"\0\7" + v4[8:] + ports)
    write("packet", "short", v4[:15])
    v6 = struct.pack(">IHBB", 6 << 28, 20, 17, 64) + b"\xfd" + bytes(14) + b"\2" + b"\x20\1" + bytes(13) + b"\1"
    write("packet", "udp6", v6 + ports)
    write("packet", "extensions", v6[:6] + b"\0" + v6[7:] + b"\x3c\0" + bytes(6) + b"\x2c\0" + bytes(6) + b"\6\0\0\0" + bytes(4) + ports)
    write("packet", "icmp", v4[:9] + b"\1" + v4[10:] + b"\x08\0" + bytes(6))


def clienthello():
    def vector(size, data):
        return len(data).to_bytes(size, "big") + data

    def extension(kind, data):
        return struct.pack(">H", kind) + vector(2, data)

    def hello(*extensions):
        body = b"\3\3" + bytes(32) + vector(1, bytes(32)) + vector(2, b"\x13\1\x13\2") + vector(1, b"\0") + vector(2, b"".join(extensions))
        return b"\1" + vector(3, body)

    def records(message, size=16384):
        return b"".join(b"\x16\3\1" + vector(2, message[i:i + size]) for i in range(0, len(message), size))

    def name(text):
        return extension(0, vector(2, b"\0" + vector(2, text)))
    alpn = extension(16, vector(2, vector(1, b"h2") + vector(1, b"http/1.1")))
    versions = extension(43, vector(1, b"\3\4\3\3"))
    key_share = extension(51, vector(2, b"\x11\xec" + vector(2, bytes(1216))))
    usual = hello(name(b"API.shop.example"), alpn, versions, key_share)
    write("clienthello", "usual", records(usual))
    write("clienthello", "one-byte-records", records(hello(name(b"a.example")), 1))
    write("clienthello", "two-records", records(usual, 700))
    write("clienthello", "large", records(hello(name(b"a.example"), extension(21, bytes(40000)))))
    write("clienthello", "cut", records(usual)[:-1])
    write("clienthello", "no-name", records(hello(versions)))
    write("clienthello", "nul", records(hello(name(b"a.example\0.b"))))
    write("clienthello", "two-names", records(hello(extension(0, vector(2, b"\0" + vector(2, b"a") + b"\0" + vector(2, b"b"))))))
    write("clienthello", "repeated", records(hello(name(b"a.example"), name(b"b.example"))))
    write("clienthello", "ech", records(hello(name(b"front.example"), extension(0xfe0d, bytes(64)))))
    write("clienthello", "empty-record", b"\x16\3\1\0\0" + records(usual))
    write("clienthello", "server-hello", records(b"\2" + usual[1:]))
    write("clienthello", "trailing", records(usual + b"\0"))


def authority():
    for i, text in enumerate(("a.example:443", "[::ffff:1.2.3.4]:80", "0x7f.1", "x..y", "[::1", "2852039166", "EXAMPLE.com.")):
        write("authority", str(i), text.encode())


def sigv4():
    zero, scope = "0" * 64, "20130524/us-east-1/%s/aws4_request"
    for name, service, query, payload in (("s3", "s3", "prefix=J&max-keys=2&acl", "UNSIGNED-PAYLOAD"), ("iam", "iam", "Action=ListUsers", ""), ("chunks", "s3", "", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")):
        given = f"AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/{scope % service}, SignedHeaders=content-length;host;x-amz-date, Signature={zero}"
        write("sigv4", name, "\n".join(["/a%20b/$c", query, given.replace("content-length;", ""), "20130524T000000Z", payload, "body"]).encode())
        write("sigv4", name + "-missing", "\n".join(["/", query, given, "20130524T000000Z", payload, ""]).encode())
    credential = "AKIAIOSFODNN7EXAMPLE%2F" + (scope % "s3").replace("/", "%2F")
    query = f"b=%2f&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date=20130524T000000Z&X-Amz-SignedHeaders=host&X-Amz-Signature={zero}"
    write("sigv4", "presigned", f"/test.txt\n{query}\n\n\n\n".encode())
    write("sigv4", "sigv4a", b"/\n\nAWS4-ECDSA-P256-SHA256 Credential=a/b, Signature=0\n\n\n")


def urlpath():
    for i, text in enumerate(("/a/../b", "/%2e%2e/..%2fx", "/a;b/..;/c", "/%252e%252e/", "//a//", "/%c3%a4?", "/@scope%2Fname")):
        write("urlpath", str(i), text.encode())


def wsframe():
    write("wsframe", "client", bytes.fromhex("018185010203046869737573898001020304"))
    write("wsframe", "server", bytes.fromhex("000103616263890080026465"))
    write("wsframe", "extended", bytes.fromhex("00827e007e"))


def jsontext():
    write("jsontext", "object", bytes([1, 5, 0, 0, 1, 0, 2, 3]) + b"a\"b" + bytes([3]) + struct.pack(">q", -1) + bytes([4]))
    write("jsontext", "string", bytes([2, 40]) + "\0\1\b\t\n\f\r\x1f\x7f\"\\/ \u00e9\u20ac\U0001f600".encode())
    write("jsontext", "list", bytes([0, 7]) + b"".join(bytes([3]) + struct.pack(">Q", n) for n in (0, 9, 10, 1 << 63, (1 << 63) - 1)) + bytes([4, 5]))


def proxy():
    head = b"POST /a/./b?c HTTP/1.1\r\nHost: a.example\r\n"
    write("proxy", "h1", b"1" + head + b"Content-Length: 2\r\n\r\nhi" + head + b"Connection: close\r\n\r\n")
    write("proxy", "h1-chunked", b"1" + head + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n2;x=y\r\nhi\r\n0\r\nT: 1\r\n\r\n")
    write("proxy", "h1-forms", b"1CONNECT a.example:80 HTTP/1.1\r\nHost: a.example:80\r\n\r\n")
    write("proxy", "h1-absolute", b"1GET http://a.example/ HTTP/1.0\r\nHost: a.example\r\n\r\n")

    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
    fields = bytes([0x82, 0x86, 0x84, 0x41, 9]) + b"a.example"
    write("proxy", "h2", b"2" + preface + frame(1, 5, 1, fields) + frame(1, 4, 3, fields) + frame(0, 1, 3, b"body") + frame(3, 0, 5, b"\0\0\0\x08"))
    write("proxy", "h2-control", b"2" + preface + frame(6, 0, 0, b"12345678") + frame(8, 0, 0, b"\0\0\1\0") + frame(1, 0, 1, fields) + frame(9, 4, 1, b"\0\1x\1y"))
    answer = b"HTTP/1.1 200 OK\r\n"
    write("proxy", "answer", b"a" + answer + b"Content-Length: 2\r\n\r\nok")
    write("proxy", "answer-chunked", b"aHTTP/1.1 100 Continue\r\n\r\n" + answer + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nT: 1\r\n\r\n")
    write("proxy", "answer-close", b"aHTTP/1.0 200\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08")
    write("proxy", "answer-h2", b"b" + frame(4, 0, 0, b"") + frame(1, 4, 1, b"\x88") + frame(0, 0, 1, b"body") + frame(1, 5, 1, b"\0\1t\1v")
          + frame(1, 5, 3, b"\x8d") + frame(7, 0, 0, b"\0" * 8))


def termquery():
    write("termquery", "control", b"\0\x1b[c\x1b[>0c\x1b[?6n\x1b[31mred\x1b[4$p\x1b[18t\x1b[8;24;80t\x1b[3\x1b[x\x1b\x1b[6n")
    write("termquery", "system", b"\3\x1b]11;?\x1b\\\x1b]0;why?\x07\x1b]4;1;?;2;?\x07\x1b]52;c;YQ==\x1b\\\x1b]0;t\x1b[c")
    write("termquery", "device", b"\1\x1bP+q544e\x1b\\\x1bPq#0\x1b\\\x1bP$qm\x18\x1b_Ga=q,i=1;AA\x1b\\\x1b_Ga=T;AA\x1b\\\x1b_Ga=q\x1b[c\x05\x1bZ")


if __name__ == "__main__":
    for function in (httphead, frame, http_response, reference, pax, proctext, tar, oci, yaml_document, policy, scrub, smtp, mime, dns, packet, clienthello,
                     authority, sigv4, urlpath, wsframe, proxy, base64_text, pagechunk, jsontext, sieve, termquery):
        function()
