# SPDX-License-Identifier: Apache-2.0
"""Attacks from outside: the HTTP API and the records it leaves."""

import json
import os
import re
import socket
import threading

import canary
import posture
from lib import cay
from outside import alive, case, keeper_memory, memory_grown, refused, verdict


def talk(session, data, seconds=5):
    """Raw bytes to the API socket: what comes back until the end or the deadline."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(seconds)
    got = b""
    try:
        s.connect(session.instance.socket)
        s.sendall(data)
        while len(got) < 1 << 20:
            more = s.recv(65536)
            if not more:
                break
            got += more
            if b"\r\n\r\n" in got and re.search(rb"(?i)connection: close", data) is None:
                s.settimeout(0.5)
    except OSError:
        pass
    finally:
        s.close()
    return got


def statuses(answer):
    return [int(n) for n in re.findall(rb"HTTP/1\.1 (\d{3})", answer)]


@case("WB-01", "foreign, doubled and missing Host headers (a page that rebinds its name)", "refused before routing", "answers")
def wb_01(session):
    found = []
    for host in (b"evil.com", b"localhost.evil.com", b"127.0.0.1.evil.com:80", b"evil.com:80@localhost", b"169.254.169.254"):
        got = statuses(talk(session, b"GET /v1/sandboxes HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"))
        if not got or got[0] < 400:
            found.append(f"Host {host.decode()}: {got}")
    got = statuses(talk(session, b"GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n"))
    if got and got[0] < 400:
        found.append(f"two Host headers: {got}")
    got = statuses(talk(session, b"GET http://evil.com/v1/sandboxes HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    if got and got[0] < 400:
        found.append(f"absolute form: {got}")
    return verdict(found + alive(session))


@case("WB-02", "requests with the Origin of a web page", "refused before routing", "answers")
def wb_02(session):
    found = []
    for origin in (b"http://evil.com", b"null", b"https://localhost.evil.com"):
        body = b"{}"
        got = statuses(talk(session, b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nOrigin: " + origin + b"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n" + body))
        if not got or got[0] < 400:
            found.append(f"Origin {origin.decode()}: {got}")
    return verdict(found + alive(session))


@case("WB-03", "forms of a web page: text/plain, urlencoded, multipart", "refused by content type", "answers")
def wb_03(session):
    found = []
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        name = "csrf-" + os.urandom(3).hex()
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", json.dumps({"name": name, "start": False}).encode(), headers={"Content-Type": kind})
        if status < 400:
            found.append(f"{kind}: {status}")
            session.instance.raw("DELETE", f"/v1/sandboxes/{name}?force=true")
    return verdict(found + alive(session))


@case("WB-05", "looks for missing headers on answers and errors", "no sniffing, no storing", "headers")
def wb_05(session):
    found = []
    for path in ("/v1/version", "/v1/sandboxes/none", "/nothing"):
        _, _, _, head = refused(session, "GET", path)
        low = {k.lower(): v for k, v in head.items()}
        if "nosniff" not in low.get("x-content-type-options", ""):
            found.append(f"{path}: no X-Content-Type-Options")
        if "no-store" not in low.get("cache-control", ""):
            found.append(f"{path}: no Cache-Control: no-store")
        if not low.get("content-type", "").startswith("application/json"):
            found.append(f"{path}: Content-Type {low.get('content-type')}")
    return verdict(found)


@case("WB-07", "JSON 100,000 levels deep", "refused, memory bounded", "answers; server")
def wb_07(session):
    status, code, _, _ = refused(session, "POST", "/v1/sandboxes", b'{"labels":' + b'[' * 100000 + b']' * 100000 + b'}')
    return verdict((["accepted"] if status < 400 else [f"{status} {code}"] if status >= 500 else []) + alive(session), f"{status} {code}")


@case("WB-07A", "JSON 40 levels deep where it is allowed by type", "refused by depth", "answers")
def wb_07a(session):
    status, code, text, _ = refused(session, "POST", "/v1/sandboxes", b'{"labels":{"a":' + b'{"a":' * 40 + b'1' + b'}' * 40 + b'}}')
    found = [] if 400 <= status < 500 else [f"{status} {code}"]
    if b"deep" not in text and b"depth" not in text and b"level" not in text and b"nest" not in text:
        found.append(f"not refused by depth: {text[:150]!r}")
    return verdict(found + alive(session), f"{status} {code}")


@case("WB-07B", "odd JSON: doubled keys, 1e999, NUL, lone surrogates, BOM, trailing bytes, wrong types", "refused, one meaning", "answers; sandboxes")
def wb_07b(session):
    found = []
    odd = [b'{"name":"a1","name":"a2","start":false}', b'{"limits":{"pids":1e999}}', b'{"name":"a\\u0000b"}', b'{"name":"\\ud800"}', b'\xef\xbb\xbf{}', b'{} {}', b'[]',
           b'{"limits":{"pids":1.5}}', b'{"limits":{"pids":-1}}', b'{"limits":{"memory_bytes":99999999999999999999}}', b'\xff\xfe{}', b'{"name":"../x"}', b'{"name":""}',
           b'{"unknown":1}', b'{"name":["x"]}', b'nul', b'', b'{"image":"../../etc"}', b'{"hostname":"a b\\nc"}', b'{"mounts":[{"source":"relative","target":"/x"}]}',
           b'{"mounts":[{"source":"/tmp","target":"/proc/1"}]}', b'{"mounts":[{"source":"/tmp","target":"/../x"}]}', b'{"env":{"A=B":"x"}}', b'{"env":{"":"x"}}']
    before = {b["id"] for b in session.instance.get("/v1/sandboxes")["sandboxes"]}
    for body in odd:
        if body == b'':
            continue
        status, code, text, _ = refused(session, "POST", "/v1/sandboxes", body)
        if status < 400 or status >= 500:
            found.append(f"{body[:50]!r}: {status} {text[:100]!r}")
    after = session.instance.get("/v1/sandboxes")["sandboxes"]
    for b in after:
        if b["id"] not in before:
            session.remove(b)
    return verdict(found + alive(session))


@case("WB-07C", "header torture: a MiB of header, ten thousand headers, NUL, bare LF, bad lengths", "4xx, memory bounded", "answers; server; memory")
def wb_07c(session):
    found, before = [], keeper_memory(session)
    start = b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n"
    shapes = {"long header": start + b"X: " + b"a" * (1 << 20) + b"\r\n\r\n", "many headers": start + b"X: y\r\n" * 10000 + b"\r\n",
              "NUL": start + b"X: a\0b\r\n\r\n", "bare LF": b"GET /v1/version HTTP/1.1\nHost: localhost\n\n", "obs-fold": start + b"X: a\r\n b\r\n\r\n",
              "long target": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "space before colon": start + b"X : y\r\n\r\n",
              "HTTP/0.9": b"GET /v1/version\r\n\r\n", "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "method": b"G\x00T / HTTP/1.1\r\nHost: localhost\r\n\r\n"}
    for name, data in shapes.items():
        got = statuses(talk(session, data))
        if any(c < 400 or c >= 500 for c in got):
            found.append(f"{name}: {got}")
    if memory_grown(session, before) > 16 << 20:
        found.append("memory grew")
    return verdict(found + alive(session))


@case("WB-07D", "request smuggling: CL.TE, TE.CL, two lengths, chunk lies", "400 and close, one answer", "answers; sandboxes")
def wb_07d(session):
    found = []
    inner = b"DELETE /v1/sandboxes/" + session.neighbour["name"].encode() + b"?force=true HTTP/1.1\r\nHost: localhost\r\n\r\n"
    start = b"POST /v1/prune HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    shapes = {"CL.TE": start + b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" % (5 + len(inner)) + inner,
              "TE.TE": start + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}" + inner,
              "two lengths": start + b"Content-Length: 2\r\nContent-Length: %d\r\n\r\n{}" % (2 + len(inner)) + inner,
              "signed length": start + b"Content-Length: +2\r\n\r\n{}" + inner, "chunk sign": start + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n" + inner,
              "chunk hex": start + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n" + inner, "huge chunk": start + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}"}
    for name, data in shapes.items():
        got = statuses(talk(session, data))
        if len(got) > 1 or (got and got[0] < 400):
            found.append(f"{name}: {got}")
    if not any(b["id"] == session.neighbour["id"] for b in session.instance.get("/v1/sandboxes")["sandboxes"]):
        found.append("a smuggled request removed the neighbour")
    return verdict(found + alive(session))


@case("WB-08", "path tricks against the router", "not found or refused", "answers")
def wb_08(session):
    found = []
    for path in ("/v1//sandboxes", "/v1/sandboxes/..%2f..%2fversion", "/V1/sandboxes", "/v1/sandboxes/%2e%2e/version", "/v1/./sandboxes", "/v1/sandboxes;x=y", "/v1/sandboxes/%00",
                 "/v1/sandboxes/" + "a" * 300, "/v1/sandboxes/..", "/../v1/sandboxes", "/v1/version%00", "/v1/version/extra"):
        got = statuses(talk(session, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()))
        if not got or got[0] < 400 or got[0] >= 500:
            found.append(f"{path[:40]}: {got}")
    return verdict(found + alive(session))


@case("AT-09", "the same idempotency key with another request", "idempotency_mismatch", "answers; sandboxes")
def at_09(session):
    key, found = os.urandom(8).hex(), []
    first = refused(session, "POST", "/v1/sandboxes", {"name": "idem-" + key[:6], "start": False}, headers={"Idempotency-Key": key})
    second = refused(session, "POST", "/v1/sandboxes", {"name": "idem2-" + key[:6], "start": False}, headers={"Idempotency-Key": key})
    third = refused(session, "POST", "/v1/sandboxes", {"name": "idem-" + key[:6], "start": False}, headers={"Idempotency-Key": key})
    if second[1] != "idempotency_mismatch":
        found.append(f"another body: {second[:2]}")
    if first[0] < 400 and (third[0] >= 400 or json.loads(third[2])["id"] != json.loads(first[2])["id"]):
        found.append(f"the same body: {third[:2]}")
    for a in (first, second, third):
        if a[0] < 400:
            session.instance.raw("DELETE", f"/v1/sandboxes/{json.loads(a[2])['id']}?force=true")
    return verdict(found, str(second[1]))


@case("AT-12", "looks for secrets in logs, events, command lines and errors", "none", "the secret in what the host keeps")
def at_12(session):
    found, mark = [], "SECRETENV" + os.urandom(8).hex()
    box = session.create("at12-" + os.urandom(3).hex(), env={"TOKEN": mark})
    try:
        session.ended(box, session.exec(box, ["/bin/true"], env={"KEY": mark}))
        try:
            session.exec(box, ["/none"], env={"KEY": mark})
        except cay.ApiError as error:
            if mark in str(error):
                found.append("in an error")
        if mark in session.instance.raw("GET", "/v1/events")[2].decode(errors="replace"):
            found.append("in the events")
        if mark in canary.read(session.instance.log).decode(errors="replace"):
            found.append("in the server's log")
        for pid in session.instance.own_processes():
            if mark.encode() in canary.read(f"/proc/{pid}/cmdline") + canary.read(f"/proc/{pid}/environ") and posture.text(f"/proc/{pid}/comm").startswith("cay"):
                found.append(f"in the command line or environment of {posture.text(f'/proc/{pid}/comm').strip()}")
        for base, _, names in os.walk(os.path.join(session.instance.state, "events")):
            for n in names:
                if mark.encode() in canary.read(os.path.join(base, n)):
                    found.append("in the journal")
    finally:
        session.remove(box)
    return verdict(found, "none")


@case("AT-13", "twenty clients create the same name at once", "exactly one wins", "sandboxes")
def at_13(session):
    name, answers = "race-" + os.urandom(3).hex(), []

    def work():
        try:
            answers.append(refused(session, "POST", "/v1/sandboxes", {"name": name, "start": False})[:2])
        except OSError as error:
            answers.append((0, str(error)))
    threads = [threading.Thread(target=work) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    won = [a for a in answers if a[0] in (200, 201)]
    mine = [b for b in session.instance.get("/v1/sandboxes")["sandboxes"] if b["name"] == name]
    for b in mine:
        session.remove(b)
    found = [] if len(won) == 1 and len(mine) == 1 else [f"{len(won)} won, {len(mine)} exist"]
    found += [f"{a}" for a in answers if a[0] >= 500 or a[0] == 0][:2]
    return verdict(found, "one")


@case("AT-14", "X-Forwarded, X-Original-URL and method override headers", "ignored", "answers; sandboxes")
def at_14(session):
    found = []
    path = f"/v1/sandboxes/{session.neighbour['id']}"
    for head in ({"X-HTTP-Method-Override": "DELETE"}, {"X-Original-URL": "/v1/shutdown"}, {"X-Rewrite-URL": "/v1/shutdown"}, {"X-Forwarded-For": "127.0.0.1"}):
        status, _, text, _ = refused(session, "GET", path, headers=head)
        if status != 200 or session.neighbour["id"].encode() not in text:
            found.append(f"{head}: {status}")
    status, _, _, _ = refused(session, "POST", path + "?_method=DELETE", {})
    if status < 400:
        found.append(f"_method: {status}")
    return verdict(found + alive(session), "ignored")


@case("LG-01", "escape sequences in file names, arguments and output, shown by the command line", "escaped", "bytes that reach the terminal")
def lg_01(session):
    box, found = session.create("lg01-" + os.urandom(3).hex()), []
    try:
        evil = "x\x1b]52;c;ZXZpbA==\x07\x1b[2J\u202e\u009by"
        session.ended(box, session.exec(box, ["/bin/sh", "-c", "touch \"/tmp/$1\"", "sh", evil]))
        escaped, in_json = "x\\x1b]52;c;ZXZpbA==\\x07", "x\\u001B]52;c;ZXZpbA==\\u0007"
        for argv, shown in ((["diff", box["name"]], escaped), (["events", box["name"]], in_json), (["info", box["name"]], escaped), (["ps"], box["name"])):
            done = session.instance.cay(*argv, check=False)
            if shown not in done.stdout:
                found.append(f"cay {argv[0]} does not name the file: {done.stdout[:200]!r} {done.stderr[:200]!r}")
            for name, text in (("stdout", done.stdout), ("stderr", done.stderr)):
                if "\x1b" in text or "\u202e" in text or "\u009b" in text or "\x07" in text:
                    found.append(f"cay {argv[0]} shows raw control characters on {name}")
        for argv in (["events", box["name"]], ["diff", box["name"]]):
            _, shown = session.instance.at_terminal(*argv, "--json")
            if in_json.lower() not in shown.lower():
                found.append(f"cay {argv[0]} --json does not name the file: {shown[:200]!r}")
            if "\x1b" in shown or "\u202e" in shown or "\u009b" in shown or "\x07" in shown:
                found.append(f"cay {argv[0]} --json shows raw control characters on a terminal")
        done = session.instance.cay("exec", box["name"], "--", "/none\x1b[2J\u202e", check=False)
        if "/none" not in done.stderr or "\x1b" in done.stderr or "\u202e" in done.stderr:
            found.append("an error message shows raw control characters")
        done = session.instance.cay("info", "none\x1b[2J", check=False)
        if "none" not in done.stderr or "\x1b" in done.stderr:
            found.append("an error message shows raw control characters of an argument")
    finally:
        session.remove(box)
    return verdict(found, "escaped")


@case("LG-02", "line ends and JSON in names, arguments and user agents", "one record stays one record", "lines of the event log")
def lg_02(session):
    box, found = session.create("lg02-" + os.urandom(3).hex()), []
    try:
        evil = 'x"}\n{"n":999999,"type":"forged"}\r\n'
        session.ended(box, session.exec(box, ["/bin/echo", evil]))
        text = session.instance.raw("GET", f"/v1/sandboxes/{box['id']}/events")[2]
        rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        if any(r.get("type") == "forged" for r in rows) or not rows:
            found.append("a forged record")
        seqs = [r["seq"] for r in rows]
        if seqs != list(range(1, len(seqs) + 1)):
            found.append(f"sequence {seqs[:10]}")
    finally:
        session.remove(box)
    return verdict(found, f"{len(rows)} records")


@case("LG-04", "changes, removes and reorders records of the journal", "verify names the first bad one", "answers of verify", 60)
def lg_04(session):
    found = []
    box = session.create("lg04-" + os.urandom(3).hex())
    for _ in range(3):
        session.ended(box, session.exec(box, ["/bin/true"]))
    before = session.instance.get(f"/v1/sandboxes/{box['id']}/events/verify")
    if not before.get("ok"):
        return "escaped", f"not even the untouched journal is good: {before}"
    directory = os.path.join(session.instance.state, "events")
    names = sorted(os.listdir(directory))
    session.instance.stop()
    saved = {n: canary.read(os.path.join(directory, n)) for n in names}
    journal = [n for n in names if n.endswith(".jsonl") and box["id"].encode() in saved[n]][-1]

    def tampered(change):
        with open(os.path.join(directory, journal), "wb") as f:
            f.write(change(saved[journal]))
        session.instance.start()
        try:
            answer = refused(session, "GET", f"/v1/sandboxes/{box['id']}/events/verify")
            return answer[0] != 200 or not json.loads(answer[2]).get("ok")
        finally:
            session.instance.stop()
            for n, data in saved.items():
                with open(os.path.join(directory, n), "wb") as f:
                    f.write(data)
            for n in set(os.listdir(directory)) - set(saved):
                os.unlink(os.path.join(directory, n))
    lines = [i for i, line in enumerate(saved[journal].splitlines(True)) if box["id"].encode() in line]

    def edit(n, fn):
        def change(data):
            rows = data.splitlines(True)
            fn(rows, lines[n])
            return b"".join(rows)
        return change
    try:
        for what, fn in (("changed", lambda r, i: r.__setitem__(i, r[i].replace(b"/bin/true", b"/bin/evil") if b"/bin/true" in r[i] else r[i].replace(b'"seq":', b'"seq":1'))),
                         ("removed", lambda r, i: r.pop(i)), ("swapped", lambda r, i: r.__setitem__(slice(i, i + 2), [r[i + 1], r[i]]))):
            if not tampered(edit(len(lines) // 2, fn)):
                found.append(f"a {what} record is not noticed")
    finally:
        session.instance.start()
        session.remove(box)
    return verdict(found, "noticed")
