# SPDX-License-Identifier: Apache-2.0
"""The server as any HTTP client finds it: who only ends his own side waits for his answer, who has gone is not waited for, and an answer is as long as it says."""

import contextlib
import json
import os
import select
import signal
import socket

from lib import cay, leaks
from lib.case import contains, equal, require

TIMEOUT = 180
WAITS = True


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


def test_who_reads_slowly_has_the_whole_answer(instance):
    """Also when he said that he asks for nothing more, and the server has nothing more to say."""
    size = 5000000
    with instance.sandbox() as box:
        instance.ok(box, f"head -c {size} /dev/zero >/root/f")
        target = f"/v1/sandboxes/{box}/files?path=/root/f"
        with connected(instance, request("GET", target, b"", b"Connection: close\r\n")) as last, connected(instance, request("GET", target)) as ended:
            ended.shutdown(socket.SHUT_WR)
            poll, seen = select.poll(), {}
            for s in (last, ended):
                seen[s] = b""
                while len(seen[s]) < 4300000:
                    seen[s] += s.recv(1 << 16)
                poll.register(s, select.POLLRDHUP | select.POLLHUP)
            equal(poll.poll(9000), [], "hung up on a reader that has not read all")
            for s in (last, ended):
                seen[s] += everything(s)
                equal(seen[s].endswith(b"\r\n0\r\n\r\n"), True, f"{len(seen[s])} bytes")


def told(instance):
    """Everything that the server says to one request, also when it hangs up before it has read that."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(30)
        s.connect(instance.socket)
        with contextlib.suppress(BrokenPipeError):
            s.sendall(request("GET", "/v1/version", b"", b"Connection: close\r\n"))
        said = b""
        with contextlib.suppress(ConnectionResetError):
            while more := s.recv(1 << 16):
                said += more
        return said


def test_whoever_finds_no_descriptor_is_told(tmp):
    """And those of followers that have left are free when somebody asks again."""
    fresh = cay.Instance(tmp)
    command = fresh.command
    try:
        fresh.command = lambda argv: ["prlimit", "--nofile=80:80", "--", *command(argv)]
        fresh.start()
        fresh.command = command
        with contextlib.ExitStack() as stack:
            def none_left():
                """What the server itself had opened for a while and gives back is taken by further followers first."""
                for _ in range(20):
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        stack.enter_context(connected(fresh, request("GET", "/v1/events?follow=true")))
                return b" 429 " in told(fresh) and "no descriptors left" in fresh.cay("ps", check=False).stderr
            cay.wait_until(none_left, 20, "who asks is told that none are left")
            contains(leaks.read(fresh.log), "may have only 80 descriptors")
    finally:
        cay.wait_until(lambda: fresh.cay("ps", check=False).returncode == 0, 10, "they are free again")
        fresh.close()


@require("root")
def test_a_file_of_which_nobody_takes_the_rest_is_not_written(instance):
    """Its job stands still for longer than the server waits (a file system that does): what came so far is not the file."""
    with instance.sandbox() as box:
        instance.ok(box, "echo before > /root/f")
        before = instance.own_processes()
        size = 64 << 20
        head = f"PUT /v1/sandboxes/{box}/files?path=/root/f HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
        with connected(instance, head.encode() + bytes(1 << 16)) as s:
            def job():
                return [pid for pid in set(instance.own_processes()) - set(before) if leaks.read(f"/proc/{pid}/cmdline").startswith("cay-keeper\0job")]
            cay.wait_until(job, 20, "the job is there")
            pid = job()[0]
            os.kill(pid, signal.SIGSTOP)
            try:
                s.settimeout(90)
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    s.sendall(bytes(size - (1 << 16)))
                answer = everything(s)
            finally:
                os.kill(pid, signal.SIGCONT)
        contains(answer, b'"timeout"')
        contains(answer, b"the file was not written")
        cay.wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 20, "the job has ended")
        equal(instance.ok(box, "cat /root/f; ls -A /root | grep -v '^[.]\\(bash\\|prof\\)'"), "before\nf\n")


def sockets(instance):
    pid = instance.get("/v1/version")["pid"]
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found += os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:")
    return found


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
    """One that nobody has ever heard of, too; what comes behind such a head is no request."""
    for path, methods in (("/v1/version", "GET"), ("/v1/sandboxes", "GET, POST"), ("/v1/secrets/x", "PUT, DELETE")):
        for method in ("PATCH", "FROB"):
            status, head, body = instance.raw(method, path)
            equal((status, head.get("Allow"), json.loads(body)["error"]["code"]), (405, methods, "method_not_allowed"), f"{method} {path}")
    equal(instance.raw("FROB", "/nowhere")[0], 404)
    equal(instance.raw("FR/OB", "/v1/version")[0], 400)
    with connected(instance, request("FROB", "/v1/version", request("GET", "/v1/version"))) as s:
        equal(everything(s).count(b"HTTP/1.1 "), 1)


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
