# SPDX-License-Identifier: Apache-2.0
"""Contract OUT, HTTP: what the gateway (or a rule) and an upstream could read differently.

The oracle stands outside: a server that hears every byte. MARK is in what a rule does not let through, for one of the readers that there are: a server that takes ';' for the end of a
segment, '_' for '-' in the names of fields, members whatever their case, a form for a form. Where the same request is harmless for every reader it is heard.
"""

import gzip
import os

from lib.case import contains, equal
from lib.proxy import Proxy, Upstream, certificate, frame, head, read_all

QUICK = True
TIMEOUT = 120
MARK = b"m4rk-that-must-not-leave"

# open.example: everything but what is denied; api.example: nothing but what is allowed
DENIED = {"path": ["/admin", "/admin/**"]}, {"method": "DELETE"}, {"headers": {"x-mode": "danger"}}, {"headers": {"x-team": None}, "path": "/team"}, \
    {"query": {"admin": "true"}}, {"query": {"is_admin": True}}, {"path": "/kind", "json": {"kind": "bad"}}, \
    {"path": "/sum", "json": {"sum": {"min": 1000}}}, {"path": "/n", "json": {"n": 5}}, {"path": "/n", "json": {"m": "7"}}, {"path": "/said", "json": {"said": None}}
RULES = [*({"name": f"no-{i}", "match": {"host": "open.example", **match}, "action": "deny"} for i, match in enumerate(DENIED)),
         {"name": "open", "match": {"host": "open.example"}, "action": "allow"},
         {"name": "get", "match": {"host": "api.example", "method": "GET", "path": ["/ok/**", "/ws"]}, "action": "allow"},
         {"name": "ws", "match": {"host": "api.example", "path": "/ws", "upgrade": "websocket"}, "action": "allow"},
         {"name": "one", "match": {"host": "api.example", "path": "/one/*/read"}, "action": "allow"},
         {"name": "put", "match": {"host": "api.example", "method": ["PUT"], "path": "/put"}, "action": "allow"},
         {"name": "team", "match": {"host": "api.example", "path": "/team", "headers": {"x-team": "a*"}}, "action": "allow"},
         {"name": "none", "match": {"host": "api.example", "path": "/none", "headers": {"x-team": None}}, "action": "allow"},
         {"name": "q", "match": {"host": "api.example", "path": "/q", "query": {"q": "good*"}}, "action": "allow"},
         {"name": "qq", "match": {"host": "api.example", "path": "/qq", "query": {"q_q": "good*"}}, "action": "allow"},
         {"name": "kind", "match": {"host": "api.example", "method": "POST", "path": "/kind", "json": {"kind": "good"}}, "action": "allow"},
         {"name": "small", "match": {"host": "api.example", "path": "/small"}, "action": "transform", "transform": {"json": {"set": {"/model": "small"}}}},
         {"name": "agent", "match": {"host": "api.example", "path": "/agent"}, "action": "transform", "transform": {"headers": {"set": {"x-agent": "cay"}}}}]
HOSTS = ("open.example", "api.example")


def ask(path, host=b"api.example", method=b"GET", headers=b"", body=None):
    if body is not None:
        headers += b"Content-Length: %d\r\n" % len(body)
    return method + b" " + path + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + headers + b"\r\n" + (body or b"")


def deny(path, **more):
    return ask(path, b"open.example", **more)


JSON = b"Content-Type: application/json\r\n"


def kind(body, headers=JSON, **more):
    return ask(b"/kind", method=b"POST", headers=headers, body=body, **more)


def deny_kind(body, headers=JSON):
    return kind(body, headers, host=b"open.example")


FORM = b"Content-Type: application/x-www-form-urlencoded\r\n"
WS = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
BEHIND = deny(b"/admin/" + MARK)
PARTS = b"Content-Type: multipart/form-data; boundary=b\r\n"


def form(body, headers=FORM, host=b"open.example", method=b"POST", path=b"/"):
    return ask(path, host, method, headers, body)


def part(disposition, value=b"DELETE"):
    """A form of two parts, the second of which holds MARK."""
    return b"--b\r\n%s\r\n\r\n%s\r\n--b\r\nContent-Disposition: form-data; name=x\r\n\r\n%s\r\n--b--\r\n" % (disposition, value, MARK)


def in_chunks(*pieces):
    return ask(b"/", b"open.example", b"POST", FORM + b"Transfer-Encoding: chunked\r\n") + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


UNHEARD = {
    # paths
    "parameters of a segment": deny(b"/admin;x=1/" + MARK),
    "an empty parameter": deny(b"/admin;/" + MARK),
    "an escaped parameter": deny(b"/admin%3bx/" + MARK),
    "an escaped slash": deny(b"/admin%2f" + MARK),
    "an escaped backslash": deny(b"/admin%5C" + MARK),
    "a slash escaped twice": deny(b"/admin%252f" + MARK),
    "a letter escaped twice": deny(b"/%2561dmin/" + MARK),
    "a slash at the end": deny(b"/admin/", headers=b"X: " + MARK + b"\r\n"),
    "a parameter that takes the rest of an allowed path along": ask(b"/one/;" + MARK + b"/read"),
    "a path in another field": ask(b"/ok/x", headers=b"X-Original-URL: /" + MARK + b"\r\n"),
    "a path in one more field": ask(b"/ok/x", headers=b"X_Rewrite_Url: /" + MARK + b"\r\n"),
    "a path in capitals": deny(b"/ADMIN/" + MARK),
    "a path in capitals that are escaped": deny(b"/%41dmin/" + MARK),
    "a dot at the end of a name": deny(b"/admin./" + MARK),
    "dots and spaces at the end of a name": deny(b"/Admin.%20./" + MARK),
    "a dot at the end of a path": deny(b"/admin.", headers=b"X: " + MARK + b"\r\n"),
    # methods
    "another method in a field": deny(b"/" + MARK, method=b"POST", headers=b"X-HTTP-Method-Override: DELETE\r\n"),
    "another method in a field, written otherwise": deny(b"/" + MARK, method=b"POST", headers=b"x_http_method: delete\r\n"),
    "another method in one more field": ask(b"/put", method=b"PUT", headers=b"X-Method-Override: PATCH\r\nX: " + MARK + b"\r\n"),
    "another method in the query": deny(b"/" + MARK + b"?_method=delete", method=b"POST"),
    "another method in the query, written otherwise": deny(b"/" + MARK + b"?.method=delete", method=b"POST"),
    "another method in a form": form(b"_method=delete&x=" + MARK),
    "another method in a form, behind something": form(b"a=b&c&_method=DELETE&x=" + MARK),
    "another method in a form, escaped": form(b"%5Fm%65thod=D%45LETE&x=" + MARK),
    "another method in a form, with a dot": form(b".method=DELETE&x=" + MARK),
    "another method in a form, behind spaces": form(b"+" * 300 + b"%20" * 300 + b"_method=DELETE&x=" + MARK),
    "another method in a form, as a list": form(b"_method[]=DELETE&x=" + MARK),
    "another method in a form parted by ';'": form(b"a=1;_method=DELETE&x=" + MARK),
    "another method at the end of a form": form(b"x=" + MARK + b"&_method=DELETE"),
    "another method in a form, in pieces": in_chunks(b"a=b&_met", b"hod=DEL", b"ETE&x=" + MARK),
    "another method in a form, longer than methods are": form(b"_method=DELETE" + b"+" * 600 + b"&x=" + MARK),
    "another method in a form that is compressed": form(gzip.compress(b"_method=DELETE&x=" + MARK, 0), FORM + b"Content-Encoding: gzip\r\n"),
    "another method in a form of two types": form(b"_method=DELETE&x=" + MARK, FORM + b"Content-Type: text/plain\r\n"),
    "another method in a form to a rule that lets through": form(b"_method=PATCH&x=" + MARK, host=b"api.example", method=b"PUT", path=b"/put"),
    "another method in a part": form(part(b'Content-Disposition: form-data; name="_method"'), PARTS),
    "another method in a part, without quotes": form(part(b"content-disposition: form-data; name=_method"), PARTS),
    "another method in a part, with a quoted letter": form(part(b'Content-Disposition: form-data; name="_\\method"'), PARTS),
    "another method in a part, escaped": form(part(b"Content-Disposition: form-data; name*=UTF-8''%5Fmethod"), PARTS),
    "another method in a part, folded": form(part(b'Content-Disposition: form-data;\r\n name="_method"'), PARTS),
    "another method in a part with a long head": form(part(b'Content-Disposition: form-data; filename="' + b"a" * 5000 + b'"; name="_method"'), PARTS),
    "another method in a form of no type": form(b"_method=DELETE&x=" + MARK, b""),
    "another method in a form of an empty type": form(b"_method=DELETE&x=" + MARK, b"Content-Type: \r\n"),
    "another method in a form, in brackets": form(b"[_method]=DELETE&x=" + MARK),
    "another method in a form, behind brackets": form(b"[" * 300 + b"%5D" * 300 + b"_method=DELETE&x=" + MARK),
    "another method in a form, before a bracket": form(b"_method]=DELETE&x=" + MARK),
    "another method in a form, before a NUL": form(b"_method%00%FF=DELETE&x=" + MARK),
    "another method in a form, before half an escape": form(b"_method%00" + b"a" * 500 + b"%41=DELETE&x=" + MARK),
    "another method in a form of another charset": form(b"%00_%00m%00e%00t%00h%00o%00d=%00D%00E%00L%00E%00T%00E&x=" + MARK, FORM.replace(b"urlencoded", b"urlencoded; charset=utf-16")),
    "other methods in a form, more than anybody would say": form(b"_method=PATCH&" * 9 + b"x=" + MARK),
    "another method in the query, before a NUL": ask(b"/put?_method%00%FF=PATCH", method=b"PUT", headers=b"X: " + MARK + b"\r\n"),
    "another method in the query, in brackets": deny(b"/" + MARK + b"?[_method]=delete", method=b"POST"),
    "another method in the query that nobody can read": ask(b"/put?_method=%FF", method=b"PUT", headers=b"X: " + MARK + b"\r\n"),
    "another method in a part, in base64": form(part(b'Content-Disposition: form-data; name="=?utf-8?B?X21ldGhvZA==?="'), PARTS),
    "another method in a part, half of it escaped": form(part(b"Content-Disposition: form-data; name*=UTF-8''_%6Dethod"), PARTS),
    "another method in a part, in two pieces": form(part(b'Content-Disposition: form-data; name*0="_met"; name*1="hod"'), PARTS),
    "another method in a part, behind an empty line": form(part(b'\r\nContent-Disposition: form-data; name="_method"'), PARTS),
    "another method in a part, behind half an empty line": form(part(b'X: y\n\r\nContent-Disposition: form-data; name="_method"'), PARTS),
    "another method in a part, behind CR": form(part(b'Content-Disposition: form-data; name="y"', b'y\r--b\rContent-Disposition: form-data; name="_method"\r\rDELETE'), PARTS),
    "another method in a part, lines of LF": form(part(b'Content-Disposition: form-data; name="_method"').replace(b"\r", b""), PARTS),
    "another method in a part, lines of LF, behind another part": form(part(b'Content-Disposition: form-data; name="y"', b'y\n--b\nContent-Disposition: form-data; name="_method"\n\nDELETE').replace(b"\r", b""), PARTS),
    "another method in a part, behind an empty line of LF": form(part(b'X: y\n\nContent-Disposition: form-data; name="_method"'), PARTS),
    "another method in a part, behind an empty line of LF and a part of them": form(part(b'X: y\n\nz\n--b\nX: y\n\nContent-Disposition: form-data; name="_method"'), PARTS),
    "another method in a part within a line": form(part(b'Content-Disposition: form-data; name="y"', b'y--b\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE'), PARTS),
    "another method in a part of two boundaries": form(part(b'Content-Disposition: form-data; name="y"', b'y--c\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE'),
                                                       PARTS.replace(b"=b", b"=b; boundary=c")),
    "another method in a compressed form of no type": form(gzip.compress(b"_method=DELETE&x=" + MARK, 0), b"Content-Encoding: gzip\r\n"),
    "another method in a form whose type has a '_'": form(b"_method=PATCH&x=" + MARK, FORM.replace(b"-", b"_", 1), b"api.example", b"PUT", b"/put"),
    "another method in a part, the type has a '_'": form(part(b'Content-Disposition: form-data; name="_method"'), PARTS.replace(b"-", b"_", 1)),
    "another method in a part, beside another type there is one with '_'": form(part(b'Content-Disposition: form-data; name="_method"'), JSON + PARTS.replace(b"-", b"_", 1)),
    "a method in small letters": deny(b"/" + MARK, method=b"delete"),
    # parameters
    "a parameter with a dot": deny(b"/?is.admin=" + MARK),
    "a parameter with a space": deny(b"/?is+admin=" + MARK),
    "a parameter with an escaped space in front": deny(b"/?%20is_admin=" + MARK),
    "a parameter with a bracket": deny(b"/?is[admin=" + MARK),
    "a second parameter with a dot": ask(b"/qq?q_q=good&q.q=" + MARK),
    # fields
    "a field with '_'": deny(b"/" + MARK, headers=b"X_Mode: danger\r\n"),
    "a field twice, once with '_'": ask(b"/team", headers=b"X-Team: a\r\nX_Team: " + MARK + b"\r\n"),
    "a field with '_' alone": ask(b"/team", headers=b"X_Team: a" + MARK + b"\r\n"),
    "a field that must be missing, with '_'": ask(b"/none", headers=b"X_Team: " + MARK + b"\r\n"),
    "a field that must be there, with '_'": deny(b"/team", headers=b"X_Team: " + MARK + b"\r\n"),
    "a field behind the body": ask(b"/ok/x", headers=b"Transfer-Encoding: chunked\r\n") + b"0\r\nX-HTTP-Method-Override: " + MARK + b"\r\nCookie: " + MARK + b"\r\n\r\n",
    # queries
    "a query parted by ';'": deny(b"/" + MARK + b"?a=1;admin=true"),
    "a query of two values parted by ';'": ask(b"/q?q=good;q=" + MARK),
    "a parameter twice": ask(b"/q?q=good&q=" + MARK),
    "a parameter twice, once escaped": ask(b"/q?q=good&%71=" + MARK),
    "a parameter as a list": ask(b"/q?q=good&q[]=" + MARK),
    "a parameter in capitals": deny(b"/" + MARK + b"?ADMIN=true"),
    # bodies
    "a member in another case": kind(b'{"kind": "good", "Kind": "' + MARK + b'"}'),
    "a member in another case alone": deny_kind(b'{"KIND": "bad", "x": "' + MARK + b'"}'),
    "JSON that is a form as well": kind(b'{"kind": "good", "x": "&kind=' + MARK + b'&"}', FORM),
    "a form to a rule that denies": deny_kind(b"kind=bad&x=" + MARK, FORM),
    "JSON that a boundary parts": kind(b'{"kind": "good"}' + MARK, b"Content-Type: multipart/form-data; boundary=x\r\n"),
    "JSON in UTF-7": kind(b'{"kind": "good", "+AGsAaQBuAGQ-": "' + MARK + b'"}', b"Content-Type: application/json; charset=utf-7\r\n"),
    "JSON in EBCDIC, in capitals and quotes": kind(b'{"kind": "good", "x": "' + MARK + b'"}', b'Content-Type: application/json; x=y; CharSet="cp037"\r\n'),
    "JSON in two charsets": kind(b'{"kind": "good", "x": "' + MARK + b'"}', b"Content-Type: application/json; charset=utf-8; charset=utf-7\r\n"),
    "JSON behind a byte order mark": kind(b'\xef\xbb\xbf{"kind": "good", "x": "' + MARK + b'"}'),
    "a list of requests": deny_kind(b'[{"kind": "good"}, {"kind": "bad", "x": "' + MARK + b'"}]'),
    "members in their order": deny_kind(b'["bad", "' + MARK + b'"]'),
    "a number as text": deny(b"/sum", method=b"POST", headers=JSON, body=b'{"sum": "5000", "x": "' + MARK + b'"}'),
    "a number that is wanted as text, and text as a number": deny(b"/n", method=b"POST", headers=JSON, body=b'{"n": "5", "m": "x", "x": "' + MARK + b'"}'),
    "text in place of a number": deny(b"/n", method=b"POST", headers=JSON, body=b'{"m": 7, "x": "' + MARK + b'"}'),
    "a number in place of text, written otherwise": deny(b"/n", method=b"POST", headers=JSON, body=b'{"n": "+5.0", "x": "' + MARK + b'"}'),
    "the other name of a member": deny(b"/sum", method=b"POST", headers=JSON, body=b'{"su_m": 5000, "x": "' + MARK + b'"}'),
    "null in place of nothing": deny(b"/said", method=b"POST", headers=JSON, body=b'{"said": null, "x": "' + MARK + b'"}'),
    "two types": kind(b'{"kind": "good", "x": "&kind=' + MARK + b'&"}', b"Content-Type: application/json\r\n" + FORM),
    "no type": kind(b'{"kind": "good", "x": "&kind=' + MARK + b'&"}', b""),
    "an empty type": kind(b'{"kind": "good", "x": "&kind=' + MARK + b'&"}', b"Content-Type: \r\n"),
    "a type under a name with '_'": kind(b'{"kind": "good", "x": "&kind=' + MARK + b'&"}', FORM.replace(b"-", b"_", 1)),
    "a coding of the body under a name with '_'": kind(b'{"kind": "good", "x": "' + MARK + b'"}', JSON + b"Content_Encoding: br\r\n"),
    "two codings": kind(gzip.compress(b'{"kind": "good", "x": "' + MARK + b'"}', 0), b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\n"),
    "a member that a transform sets, in another case": ask(b"/small", method=b"POST", headers=JSON, body=b'{"model": "x", "Model": "' + MARK + b'"}'),
    "a field that a transform sets, with '_'": ask(b"/agent", headers=b"X_Agent: " + MARK + b"\r\n"),
    # framing, whatever else it says
    "a length under a name with '_'": ask(b"/ok/x", headers=b"Content_Length: %d\r\nX: " % len(BEHIND) + MARK + b"\r\n") + BEHIND,
    "a coding under a name with '_'": ask(b"/put", method=b"PUT", headers=b"Transfer_Encoding: chunked\r\nX: " + MARK + b"\r\n", body=b"0\r\n\r\n" + BEHIND),
    "a length with leading zeros and one without": ask(b"/ok/x", headers=b"Content-Length: 00\r\nContent-Length: %d\r\n" % len(BEHIND)) + BEHIND,
    "a length in hexadecimal": ask(b"/ok/x", headers=b"Content-Length: 0x0\r\n") + BEHIND,
    "a coding with a parameter": ask(b"/ok/x", headers=b"Transfer-Encoding: chunked;q=1\r\n") + b"0\r\n\r\n" + BEHIND,
    "a chunk's size with a space": ask(b"/ok/x", headers=b"Transfer-Encoding: chunked\r\n") + b"0 \r\n\r\n" + BEHIND,
    "an extension with a bare line end": ask(b"/ok/x", headers=b"Transfer-Encoding: chunked\r\n") + b"0;a=\nb\r\n\r\n" + BEHIND,
    "a body that nobody waits to be asked for": deny(b"/admin", headers=b"Expect: 100-continue\r\n", body=BEHIND),
    # upgrades
    "an upgrade where something is denied": deny(b"/ws", headers=WS + b"X: " + MARK + b"\r\n"),
    "an upgrade where one method is let through": ask(b"/ok/ws", headers=WS + b"X: " + MARK + b"\r\n"),
    "an upgrade that says another method": ask(b"/ws", headers=WS + b"X-HTTP-Method-Override: DELETE\r\nX: " + MARK + b"\r\n"),
    "an upgrade with a body": ask(b"/ws", headers=WS, body=BEHIND),
    "an upgrade with chunks": ask(b"/ws", headers=WS + b"Transfer-Encoding: chunked\r\n") + b"%x\r\n" % len(BEHIND) + BEHIND + b"\r\n0\r\n\r\n",
    "an upgrade by another method": deny(b"/ws", method=b"POST", headers=WS + b"X: " + MARK + b"\r\n"),
    "an upgrade of another version": ask(b"/ws", headers=WS.replace(b"13", b"8") + b"X: " + MARK + b"\r\n"),
    "an upgrade without a key": ask(b"/ws", headers=WS.replace(b"Sec-WebSocket-Key", b"X-Key") + b"X: " + MARK + b"\r\n"),
    "an upgrade with two keys": ask(b"/ws", headers=WS + b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nX: " + MARK + b"\r\n"),
    "an upgrade to two protocols": ask(b"/ws", headers=WS.replace(b"Upgrade: websocket", b"Upgrade: h2c, websocket") + b"X: " + MARK + b"\r\n"),
    "a request behind an upgrade": ask(b"/ws", headers=WS) + BEHIND,
}

HEARD = {
    "a path": deny(b"/administrator/" + MARK),
    "an escaped slash in a name": ask(b"/ok/@scope%2f" + MARK),
    "a parameter": ask(b"/ok/a;b=c/" + MARK),
    "another field with '_'": deny(b"/" + MARK, headers=b"api_key: x\r\n"),
    "the same method in a field": ask(b"/put", method=b"PUT", headers=b"X-HTTP-Method-Override: PUT\r\nX: " + MARK + b"\r\n"),
    "another method where rules let every one through": ask(b"/team", headers=b"X-Team: a\r\nX-HTTP-Method-Override: PATCH\r\nX: " + MARK + b"\r\n"),
    "a query": ask(b"/q?q=good;x=1&z=" + MARK),
    "members of other names in two cases": kind(b'{"kind": "good", "env": {"path": 1, "PATH": 2}, "x": "' + MARK + b'"}'),
    "a list where a rule looks for no member": deny_kind(b'{"kind": ["good"], "x": ["' + MARK + b'"]}'),
    "a small number": deny(b"/sum", method=b"POST", headers=JSON, body=b'{"sum": 50, "x": "' + MARK + b'"}'),
    "another number as text": deny(b"/n", method=b"POST", headers=JSON, body=b'{"n": "50", "m": 70, "x": "' + MARK + b'"}'),
    "something that is said": deny(b"/said", method=b"POST", headers=JSON, body=b'{"said": false, "x": "' + MARK + b'"}'),
    "JSON with its charset": kind(b'{"kind": "good", "x": "' + MARK + b'"}', b"Content-Type: application/json; charset=UTF-8\r\n"),
    "JSON with its charset in short": kind(b'{"kind": "good", "x": "' + MARK + b'"}', b"Content-Type: application/json;charset=utf8\r\n"),
    "JSON with its charset and more": kind(b'{"kind": "good", "x": "' + MARK + b'"}', b'Content-Type: application/json; charset="utf-8"; odata=minimal\r\n'),
    "JSON of another name": kind(b'{"kind": "good", "x": "' + MARK + b'"}', b"Content-Type: application/vnd.x+json\r\n"),
    "a body of no type that no rule has to read": deny(b"/x", method=b"POST", body=b'{"x": "' + MARK + b'"}'),
    "a form that no rule has to read": ask(b"/put", method=b"PUT", headers=FORM, body=b"kind=" + MARK),
    "an upgrade": ask(b"/ws", headers=WS + b"X: " + MARK + b"\r\n"),
    "a form": form(b"method=DELETE&x_method=DELETE&_methods=DELETE&x=" + MARK),
    "a form that says a method that is let through": form(b"_method=PATCH&x=" + MARK),
    "a form that says such methods more than once": form(b"_method=PATCH&" * 8 + b"x=" + MARK),
    "a form of one long text": form(b"x" * 5000 + MARK),
    "a form that says its own method": form(b"_method=put&x=" + MARK, host=b"api.example", method=b"PUT", path=b"/put"),
    "a form of parts": form(part(b'Content-Disposition: form-data; name="x_method"'), PARTS),
    "a form of parts in UTF-8, of a long boundary": form(part(b'Content-Disposition: form-data; name="x_method"').replace(b"--b", b"-" * 40 + b"b1"),
                                                        PARTS.replace(b"=b", b'="' + b"-" * 38 + b'b1"; charset=UTF-8')),
    "a file with dashes in a form of parts": form(part(b'Content-Disposition: form-data; name="f"; filename="a.py"', b"x --c = y._method"), PARTS),
    "a file of whatever bytes in a form of parts": form(part(b'Content-Disposition: form-data; name="f"; filename="a"', b'\r\n--\0"=?_method' * 3), PARTS),
    "a file of whatever bytes in a form of parts, lines of LF": form(part(b'Content-Disposition: form-data; name="f"; filename="a"', b'\n--\0"=?_method' * 3).replace(b"\r", b""), PARTS),
    "a form in UTF-8": form(b"x=" + MARK, FORM.replace(b"urlencoded", b"urlencoded; charset=UTF-8")),
    "a query in another charset": ask(b"/put?x=%FF", method=b"PUT", headers=b"X: " + MARK + b"\r\n"),
    "a file that shows a form": form(part(b'Content-Disposition: form-data; name="f"; filename="a.html"', b'<input name="_method" value="DELETE">'), PARTS),
    "a form of parts, whatever it says, where rules let every method through": form(part(b'Content-Disposition: form-data; name="_method"'), PARTS + b"X-Team: a\r\n", b"api.example",
                                                                                     path=b"/team"),
}


def answer(peer):
    """Reads head after head, and what follows as more of them: bytes that arrived were heard."""
    while (asked := peer.head()) is not None:
        peer.body(asked)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class World:
    def __init__(self, tmp, handler=answer, alpn=None):
        pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
        self.plain, self.tls = Upstream(handler), Upstream(handler, pem, alpn)
        ways = [{**rule, "match": {**rule["match"], "port": port}, "name": f"{rule['name']}-{port}", "upstream": up.address}
                for port, up in ((80, self.plain), (443, self.tls)) for rule in RULES if rule["action"] != "deny"]
        self.proxy = Proxy(tmp, [*(r for r in RULES if r["action"] == "deny"), *ways], extra=root)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.plain.close()
        self.tls.close()

    def heard(self):
        """How often MARK was heard so far."""
        return (self.plain.text() + self.tls.text()).count(MARK)

    def adds(self, before):
        """Was MARK heard since @before? An answer means that all of its request was."""
        return self.heard() > before


def test_nothing_is_heard_that_somebody_reads_otherwise(tmp):
    with World(tmp) as world:
        let = []
        for name, data in UNHEARD.items():
            before = world.heard()
            world.proxy.send(data, end=True)
            let += [name] if world.adds(before) else []
        equal(let, [])
        equal(world.proxy.get("api.example", "/ok/x")[0], 200)
        contains(world.proxy.send(UNHEARD["no type"], end=True), b"there is no Content-Type")
    equal(world.heard(), 0, "all told")


def test_what_everybody_reads_alike_is_heard(tmp):
    with World(tmp) as world:
        kept = []
        for name, data in HEARD.items():
            before = world.heard()
            world.proxy.send(data, end=True)
            kept += [] if world.adds(before) else [name]
        equal(kept, [])


def test_an_upgrade_that_is_none(tmp):
    """Whatever an upstream answers, what follows a refused upgrade is a request like any other, and no byte of it follows an upgrade that was half agreed to."""
    agreed = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
    cases = {"200": (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"200"),
             "426": (b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n", b"426"),
             "200 that says it upgrades": (agreed.replace(b"101 Switching Protocols", b"200 OK\r\nContent-Length: 0"), b"200"),
             "101 without Upgrade": (agreed.replace(b"Upgrade: websocket\r\n", b""), b"502"),
             "101 without Connection": (agreed.replace(b"Connection: Upgrade\r\n", b""), b"502"),
             "101 to something else": (agreed.replace(b"Upgrade: websocket", b"Upgrade: h2c"), b"502"),
             "101 for another key": (agreed.replace(b"s3pP", b"t3pP"), b"502"),
             "101 without the key's answer": (agreed.replace(b"Sec-WebSocket-Accept", b"X-Accept"), b"502"),
             "101 for two protocols": (agreed.replace(b"Upgrade: websocket", b"Upgrade: websocket, h2c"), b"502")}
    for i, (name, (said, status)) in enumerate(cases.items()):
        folder = os.path.join(tmp, str(i))
        os.mkdir(folder)

        def handler(peer, said=said):
            peer.head()
            peer.send(said)
            while peer.more():
                pass

        with World(folder, handler) as world:
            with world.proxy.connect() as sock:
                sock.sendall(ask(b"/ws", headers=WS))
                equal(head(sock)[9:12], status, name)
                try:
                    sock.sendall(BEHIND + frame(1, MARK, b"mask"))
                    sock.shutdown(1)
                except OSError:
                    pass
                read_all(sock)
        equal((len(world.plain.heard), world.plain.text().count(b"HTTP/1.1"), world.heard()), (1, 1, 0), name)


def test_a_connection_is_not_kept_behind_an_upgrade(tmp):
    """A host that answers 200 may have upgraded all the same: the next request gets another connection."""
    with World(tmp) as world:
        with world.proxy.connect() as sock:
            sock.sendall(ask(b"/ws", headers=WS))
            contains(head(sock), b" 200 ")
            equal(sock.recv(2), b"ok")
            sock.sendall(ask(b"/ok/x", headers=b"Connection: close\r\n"))
            contains(read_all(sock), b" 200 ")
        equal(len(world.plain.heard), 2)


def test_an_answer_that_nobody_asked_for_is_not_the_next_ones(tmp):
    """A host that answers twice: the second answer is nobody's, however early it comes."""
    def twice(peer):
        while peer.head() is not None:
            one = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
            peer.send(one % 2 + b"ok" + one % len(MARK) + MARK)

    with World(tmp, twice) as world:
        with world.proxy.connect() as sock:
            for _ in range(3):
                sock.sendall(ask(b"/ok/x"))
                contains(head(sock), b" 200 ")
                equal(sock.recv(2), b"ok")
        equal(len(world.plain.heard), 3)


def fields(path=b"/ok/" + MARK, authority=b"api.example", method=b"GET", scheme=b"https", more=(), order=(b":method", b":scheme", b":authority", b":path")):
    named = {b":method": method, b":scheme": scheme, b":authority": authority, b":path": path}
    return [*((name, named[name]) for name in order if named[name] is not None), *more]


HTTP2 = {
    "another host": fields(more=[(b"host", b"open.example")]),
    "a host in front": [(b"host", b"open.example"), *fields()],
    "two authorities": [*fields(), (b":authority", b"open.example")],
    "user information": fields(authority=b"api.example@open.example"),
    "another port": fields(authority=b"api.example:80"),
    "no path": fields(path=b"", more=[(b"x", MARK)]),
    "a fragment": fields(b"/ok/x#" + MARK),
    "a path that is a URL": fields(b"https://open.example/ok/" + MARK),
    "a path without a slash": fields(b"ok/" + MARK),
    "a star": fields(b"*", more=[(b"x", MARK)]),
    "a space in the path": fields(b"/ok/x HTTP/1.1\r\nx: " + MARK),
    "a request line in the method": fields(b"/ok/x", method=b"GET /" + MARK + b" HTTP/1.1\r\nx: "),
    "a space in the method": fields(b"/ok/x", method=b"GET /" + MARK),
    "another scheme": fields(scheme=b"http"),
    "a name in capitals": fields(b"/ok/x", more=[(b"X-Mode", MARK)]),
    "a name with a colon": fields(b"/ok/x", more=[(b"x:y", MARK)]),
    "a name with a line": fields(b"/ok/x", more=[(b"x\r\ny", MARK)]),
    "an empty name": fields(b"/ok/x", more=[(b"", MARK)]),
    "a value with a line": fields(b"/ok/x", more=[(b"x", b"a\r\ny: " + MARK)]),
    "a value with NUL": fields(b"/ok/x", more=[(b"x", b"a\0" + MARK)]),
    "a value behind a space": [*fields(b"/" + MARK, b"open.example", more=[(b"x-mode", b" danger")])],
    "a value in front of a space": [*fields(b"/" + MARK, b"open.example", more=[(b"x-mode", b"danger\t")])],
    "a field of the connection": fields(more=[(b"connection", b"x")]),
    "an upgrade": fields(more=[(b"upgrade", b"websocket")]),
    "a coding": fields(more=[(b"transfer-encoding", b"chunked")]),
    "another kind of TE": fields(more=[(b"te", b"chunked")]),
    "an extended CONNECT": fields(method=b"CONNECT", more=[(b":protocol", b"websocket")]),
    "an unknown pseudo field": fields(more=[(b":mode", b"x")]),
    "a pseudo field behind the others": [*fields(path=None), (b"x", b"y"), (b":path", b"/ok/" + MARK)],
    "a length that is not true": fields(more=[(b"content-length", b"5")]),
    "a length under a name with '_'": fields(b"/ok/x", more=[(b"content_length", b"5"), (b"x", MARK)]),
    "two lengths": fields(more=[(b"content-length", b"0"), (b"content-length", b"5")]),
    "cookies that say a line": fields(b"/ok/x", more=[(b"cookie", b"a"), (b"cookie", b"b\r\ny: " + MARK)]),
    "parameters of a segment": fields(b"/admin;x/" + MARK, b"open.example"),
}


def test_http2_that_somebody_reads_otherwise(tmp):
    from gateway.test_http2 import Client  # pylint: disable=import-outside-toplevel
    with World(tmp) as world:
        let = []
        for name, sent in HTTP2.items():
            before = world.heard()
            sni = b"open.example" if (b":authority", b"open.example") in sent and name != "two authorities" else b"api.example"
            client = Client(world.proxy, sni.decode(), validate=False)
            try:
                client.answer(client.request(sent))
            except (OSError, client.lib.exceptions.ProtocolError):
                pass
            client.close()
            let += [name] if world.adds(before) else []
        equal(let, [])
        equal(world.heard(), 0, "all told")
        for sent in (fields(), fields(b"/" + MARK, b"open.example", more=[(b"x-mode", b"safe")]), fields(more=[(b"host", b"api.example"), (b"te", b"trailers")])):
            before = world.heard()
            client = Client(world.proxy, dict(sent)[b":authority"].decode())
            equal(client.answer(client.request(sent))[0], 200)
            client.close()
            equal(world.adds(before), True)
