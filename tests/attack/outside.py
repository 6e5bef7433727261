# SPDX-License-Identifier: Apache-2.0
"""What the attack cases that are driven from outside share: how one is listed, and the questions that several ask.

Each case takes the session and answers (outcome, detail). The canaries are looked at after each one by the session.
"""

import http.client
import json
import os
import re
import subprocess
import urllib.parse

import posture
from cases import Case
from lib import cay

CASES = []


def case(case_id, attack, expected, oracle, seconds=60):
    """Decorator: a case that runs outside."""
    def add(function):
        CASES.append(Case(case_id, expected, oracle, kind="outside", users=("-",), profiles=("-",), function=function,
                          attack=attack, seconds=seconds))
        return function
    return add


def refused(session, method, path, body=None, **kwargs):
    """(status, code, text) of a request that ought to be refused; never raises for an HTTP error."""
    headers = kwargs.pop("headers", {})
    data = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
    if data is not None and "Content-Type" not in headers:
        headers["Content-Type"] = "application/json"
    try:
        status, head, text = session.instance.raw(method, path, data, headers, timeout=kwargs.get("timeout", 20))
    except http.client.IncompleteRead as cut:
        # what came before the server gave up is judged like the rest
        status, head, text = 200, {}, cut.partial
    try:
        code = json.loads(text)["error"]["code"]
    except (ValueError, KeyError, TypeError):
        code = None
    return status, code, text, head


def verdict(reasons, detail="refused"):
    return ("escaped", "; ".join(str(r) for r in reasons)[:600]) if reasons else ("blocked", detail)


def files(session, box, path, fmt="file"):
    return f"/v1/sandboxes/{box['id']}/files?format={fmt}&path={urllib.parse.quote(path, safe='')}"


def files_work(session, box):
    """Without a file that can be written and read the refusal of others says nothing."""
    path = f"/tmp/{session.host.tag}-plain"
    status = refused(session, "PUT", files(session, box, path), b"plain", headers={"Content-Type": "application/octet-stream"})[0]
    got = refused(session, "GET", files(session, box, path))[2]
    if os.path.exists(path):
        # with paths that are not resolved inside: on the host
        os.unlink(path)
        return
    if status >= 300 or got != b"plain":
        raise RuntimeError(f"the file API does not work: {status} {got[:150]!r}")


def alive(session):
    try:
        session.instance.get("/v1/version")
        return []
    except (OSError, cay.ApiError) as error:
        return [f"the server does not answer: {error}"]


def suid_reachable(path):
    child = ("import os,sys\nos.setgroups([]);os.setgid(65534);os.setuid(65534)\n"
             "for b,d,f in os.walk(sys.argv[1]):\n"
             " for n in f:\n"
             "  s=os.lstat(os.path.join(b,n))\n"
             "  if s.st_mode&0o6000: print(os.path.join(b,n),s.st_uid)\n")
    done = subprocess.run(["/usr/bin/python3", "-c", child, path], capture_output=True, text=True, check=False)
    return f"an ordinary user reaches {done.stdout.splitlines()[0]}" if done.stdout else None


FRESH = 12 << 20  # bytes, more than a keeper has that has just begun


def keeper_memory(session):
    """{pid: most bytes that it ever held} of the keepers and the server of this instance."""
    held = {}
    for pid in session.instance.own_processes():
        # a keeper runs from a sealed copy, whose name the kernel makes up: its first argument tells
        words = posture.text(f"/proc/{pid}/cmdline").split("\0")
        if os.path.basename(words[0]) in ("cay-keeper", "cayd"):
            m = re.search(r"VmHWM:\s+(\d+)", posture.text(f"/proc/{pid}/status"))
            held[pid] = int(m[1]) << 10 if m else 0
    return held


def memory_grown(session, before):
    """Bytes by which they hold more than they had ever held @before; those that are new, more than a new one does."""
    return sum(max(0, held - before.get(pid, FRESH)) for pid, held in keeper_memory(session).items())
