# SPDX-License-Identifier: Apache-2.0
"""The server as any HTTP client finds it: who only ends his own side waits for his answer, who has gone is not waited for, and an answer is as long as it says."""

import contextlib
import json
import os
import socket

from lib import cay
from lib.case import contains, equal


@contextlib.contextmanager
def connected(instance, data):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(30)
        s.connect(instance.socket)
        s.sendall(data)
        yield s


def request(method, target, body=b"", more=b""):
    return f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n".encode() + more + b"\r\n" + body


def everything(s):
    return b"".join(iter(lambda: s.recv(1 << 20), b""))


def half(instance, *words):
    """The whole answer to a client that has ended its own side, as socat and nc do."""
    with connected(instance, request(*words)) as s:
        s.shutdown(socket.SHUT_WR)
        return everything(s)


def test_who_only_ends_his_own_side_has_his_answer(instance, tmp):
    top = os.path.join(tmp, "top")
    os.mkdir(top)
    with instance.sandbox(mounts=[{"source": top, "target": "/top"}]) as box:
        equal(instance.wait(box, instance.exec(box, "sh", "-c", "echo one >/root/f; echo two >/top/g"))["code"], 0)
        contains(half(instance, "GET", f"/v1/sandboxes/{box}/files?path=/root/f"), b"one\n")
        contains(half(instance, "GET", f"/v1/sandboxes/{box}/files?path=/root&format=tar"), b"0\r\n\r\n")
        answer = half(instance, "POST", f"/v1/sandboxes/{box}/execs?wait_ms=20000", b'{"argv":["sh","-c","sleep 1.2; exit 3"]}')
        equal(json.loads(answer.split(b"\r\n\r\n")[1])["status"]["code"], 3)
        answer = half(instance, "POST", f"/v1/sandboxes/{box}/apply", b'{"if_argv":["sh","-c","sleep 1.2"]}')
        equal(json.loads(answer.split(b"\r\n\r\n")[1])["applied"], True)
        last = instance.get(f"/v1/sandboxes/{box}")
        with connected(instance, request("GET", f"/v1/sandboxes/{box}/events?follow=true")) as s:
            s.shutdown(socket.SHUT_WR)
            instance.post(f"/v1/sandboxes/{last['id']}/stop")
            seen = b""
            while b"sandbox.stopped" not in seen:
                more = s.recv(65536)
                assert more, seen[-300:]
                seen += more


def sockets(instance):
    pid = instance.get("/v1/version")["pid"]
    return sum(os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:") for fd in os.listdir(f"/proc/{pid}/fd") if os.path.lexists(f"/proc/{pid}/fd/{fd}"))


def test_who_has_gone_is_not_waited_for(tmp):
    instance = cay.Instance(tmp, env={"CAY_POOL": "0"})  # prepared sandboxes come and go with sockets of their own
    try:
        instance.start()
        with instance.sandbox() as box:
            exec_id = instance.exec(box, "sleep", "600")["id"]
            before = sockets(instance)
            for target in (f"/v1/sandboxes/{box}/execs/{exec_id}?wait_ms=600000", f"/v1/sandboxes/{box}/execs/{exec_id}/output?follow=true"):
                for ends in (True, False):
                    with connected(instance, request("GET", target)) as s:
                        cay.wait_until(lambda: sockets(instance) > before, 10, "the server has it")
                        if ends:
                            s.shutdown(socket.SHUT_WR)
                    cay.wait_until(lambda: sockets(instance) <= before, 30, f"the server has let go of who asked for {target}")
    finally:
        instance.close()


def test_an_answer_to_head_has_no_body(instance):
    """Else it would be taken for the beginning of the next answer on the connection."""
    with connected(instance, request("HEAD", "/v1/version") + request("HEAD", "/nowhere") + request("GET", "/v1/version", more=b"Connection: close\r\n")) as s:
        first, second, third, body = everything(s).split(b"\r\n\r\n")
        equal([part.split(b"\r\n")[0] for part in (first, second, third)], [b"HTTP/1.1 405 Method Not Allowed", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 200 OK"])
        assert "version" in json.loads(body)


def test_another_method_is_told_those_that_there_are(instance):
    for path, methods in (("/v1/version", "GET"), ("/v1/sandboxes", "GET, POST"), ("/v1/secrets/x", "PUT, DELETE")):
        status, head, _ = instance.raw("PATCH", path)
        equal((status, head.get("Allow")), (405, methods), path)


def resident(instance):
    with open(f"/proc/{instance.get('/v1/version')['pid']}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) << 10


def test_answers_that_nobody_reads_are_not_piled_up(instance):
    """Requests in a pipeline wait until those before them have been answered, which is when the answers have gone."""
    with instance.sandbox() as box:
        for _ in range(4):
            instance.wait(box, instance.exec(box, "true", *["x" * 100_000] * 4))
        before, n = resident(instance), 100  # answers of 1.6 MB
        with connected(instance, request("GET", f"/v1/sandboxes/{box}/execs") * n) as s:
            for _ in range(20):
                instance.get("/v1/version")
            assert resident(instance) < before + (64 << 20), "the answers wait in memory"
            s.shutdown(socket.SHUT_WR)
            equal(everything(s).count(b"HTTP/1.1 200 OK\r\n"), n)
