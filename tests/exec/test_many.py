# SPDX-License-Identifier: Apache-2.0
"""Contract EXEC: many at once, and asking twice."""

import concurrent.futures
import json
import os
import signal
import socket

from lib import cay, leaks
from lib.case import contains, equal, raises, require, timeout


@timeout(180)
def test_two_hundred_at_once_each_with_its_own_answer(instance):
    def one(number):
        run = instance.exec(box, "sh", "-c", f"echo {number}; exit {number % 256}")
        status = instance.wait(box, run, 120)
        return status["status"], status.get("code"), instance.output(box, run)
    with instance.sandbox() as box:
        with concurrent.futures.ThreadPoolExecutor(40) as pool:
            for number, (status, code, out) in enumerate(pool.map(one, range(200))):
                equal((status, code, out), ("exited", number % 256, f"{number}\n".encode()), f"exec {number}")


@timeout(120)
def test_a_keeper_that_stands_still_is_in_nobodys_way(instance):
    """Also when more want to talk to it than may wait at its door. They are answered when it goes on."""
    n = 70
    with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor(n) as pool:
        run = instance.exec(box, "echo", "here")
        instance.wait(box, run)
        keeper = leaks.keeper_of(box)
        os.kill(keeper, signal.SIGSTOP)
        try:
            readers = [cay.UnixConnection(instance.socket, 60) for _ in range(n)]
            for reader in readers:
                reader.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output")
            instance.get("/v1/version", timeout=20)
            instance.get("/v1/version", timeout=20)
        finally:
            os.kill(keeper, signal.SIGCONT)
        equal(list(pool.map(lambda reader: reader.getresponse().read(), readers)), [b"here\n"] * n)
        for reader in readers:
            reader.close()


@timeout(180)
def test_two_hundred_that_run_at_the_same_time(instance):
    with instance.sandbox(limits={"pids": 2000}) as box:
        runs = [instance.exec(box, "sh", "-c", "read line; echo got $line", stdin=True) for _ in range(200)]
        equal(instance.get(f"/v1/sandboxes/{box}")["execs_running"], 200)
        for number, run in enumerate(runs):
            status, _, text = instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", f"{number}\n".encode(),
                                           {"Content-Type": "application/octet-stream"})
            equal(status, 204, text)
        for number, run in enumerate(runs):
            equal(instance.wait(box, run)["code"], 0)
            equal(instance.output(box, run), f"got {number}\n".encode())


def test_another_request_with_the_same_key_is_refused(instance):
    with instance.sandbox() as box:
        instance.wait(box, instance.exec(box, "true", headers={"Idempotency-Key": "k1"}))
        error = raises(cay.ApiError, instance.exec, box, "false", headers={"Idempotency-Key": "k1"})
        equal((error.status, error.code), (422, "idempotency_mismatch"))


def test_the_same_request_with_the_same_key_runs_once(instance):
    with instance.sandbox() as box:
        runs = [instance.exec(box, "sh", "-c", "echo x >> /tmp/ran", headers={"Idempotency-Key": "k2"}) for _ in range(5)]
        equal(len({r["id"] for r in runs}), 1)
        instance.wait(box, runs[0])
        equal(instance.ok(box, "cat /tmp/ran"), "x\n")


def test_the_same_key_at_the_same_time_runs_once(instance):
    with instance.sandbox() as box:
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            runs = list(pool.map(lambda _: instance.exec(box, "sh", "-c", "echo x >> /tmp/ran", headers={"Idempotency-Key": "k3"}),
                                 range(10)))
        equal(len({r["id"] for r in runs}), 1)
        instance.wait(box, runs[0])
        equal(instance.ok(box, "cat /tmp/ran"), "x\n")


def test_creating_with_the_same_key_creates_once(instance):
    boxes = [instance.post("/v1/sandboxes", {"labels": {"a": "b"}}, headers={"Idempotency-Key": "c1"}) for _ in range(3)]
    try:
        equal(len({b["id"] for b in boxes}), 1)
        error = raises(cay.ApiError, instance.post, "/v1/sandboxes", {"labels": {"a": "c"}}, headers={"Idempotency-Key": "c1"})
        equal(error.code, "idempotency_mismatch")
    finally:
        instance.call("DELETE", f"/v1/sandboxes/{boxes[0]['id']}?force=true")


@require("root")
def test_cpu_time_belongs_to_the_exec(instance):
    with instance.sandbox() as box:
        busy = instance.exec(box, "python3", "-c", "import time\nwhile time.process_time() < 0.5: pass")
        idle = instance.exec(box, "true")
        busy_us, idle_us = instance.wait(box, busy)["cpu_us"], instance.wait(box, idle)["cpu_us"]
        assert busy_us >= 500_000, busy_us
        assert idle_us < 400_000, idle_us


WHEN_TOLD = """
import os, sys, time
print("here", flush=True)
while not os.path.exists("/tmp/go"):
    time.sleep(0.01)
n = 0
while piece := os.read(0, 1 << 16):
    n += len(piece)
    print(n, flush=True)
"""
OCTETS = {"Content-Type": "application/octet-stream"}


def reads_when_told(instance, box):
    run = instance.exec(box, "/usr/bin/python3", "-c", WHEN_TOLD, stdin=True)
    return run, f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"


@timeout(120)
def test_input_goes_on_when_what_came_before_it_is_taken_meanwhile(instance):
    """A request whose body is still coming hears of bytes that another one brought."""
    first, piece = 300_000, 1000
    with instance.sandbox() as box:
        run, path = reads_when_told(instance, box)
        equal(instance.raw("POST", path, b"x" * first, OCTETS)[0], 204)
        second = cay.UnixConnection(instance.socket, 60)
        try:
            second.putrequest("POST", f"{path}?close=true")
            second.putheader("Content-Type", OCTETS["Content-Type"])
            second.putheader("Content-Length", str(2 * piece))
            second.endheaders(b"y" * piece)
            instance.ok(box, "touch /tmp/go")
            cay.wait_until(lambda: instance.output(box, run).split()[-1:] == [b"%d" % (first + piece)], 60, "the first piece taken")
            second.send(b"y" * piece)
            equal(second.getresponse().status, 204)
        finally:
            second.close()
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run).split()[-1], b"%d" % (first + 2 * piece))


def test_input_behind_its_end_is_refused(instance):
    """It is not taken for written. Who says twice that it ends is right twice."""
    with instance.sandbox() as box:
        for script in ("cat; sleep 60", "exec <&-; echo; sleep 60"):
            run = instance.exec(box, "sh", "-c", script, stdin=True)
            path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
            if script.startswith("exec"):
                cay.wait_until(lambda e=run: instance.output(box, e), 20, "nobody reads it any more")
                equal(instance.raw("POST", path, b"lost", OCTETS)[0], 409, "what finds that out")
            else:
                equal(instance.raw("POST", path + "?close=true", b"one", OCTETS)[0], 204)
            status, _, text = instance.raw("POST", path, b"two", OCTETS)
            equal((status, json.loads(text)["error"]["code"]), (409, "state"), script)
            equal(instance.raw("POST", path + "?close=true", b"", OCTETS)[0], 204)
        equal(instance.output(box, run), b"\n")


def test_a_size_without_a_terminal_is_refused(instance):
    with instance.sandbox() as box:
        path = f"/v1/sandboxes/{box}/execs/{instance.exec(box, 'sleep', '60')['id']}"
        equal(raises(cay.ApiError, instance.post, path + "/resize", {"rows": 10, "columns": 20}).code, "state")


@timeout(120)
def test_input_that_nobody_takes_makes_the_next_request_wait(instance):
    """However many requests bring it: they are told nothing but that it is there."""
    size, n = 1 << 20, 8
    with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor(1) as pool:
        run, path = reads_when_told(instance, box)
        answers = [pool.submit(instance.raw, "POST", path, b"x" * size, OCTETS, 90) for _ in range(n)]
        answers.append(pool.submit(instance.raw, "POST", f"{path}?close=true", b"", OCTETS, 90))
        concurrent.futures.wait(answers[4:5], timeout=1)  # there is room for four
        instance.ok(box, "touch /tmp/go")
        equal([a.result()[0] for a in answers], [204] * (n + 1))
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run).split()[-1], b"%d" % (size * n))


def begin_body(instance, path, size, first=b""):
    """A request whose body of @size bytes has come as far as @first, and the server knows it."""
    connection = cay.UnixConnection(instance.socket, 60)
    connection.putrequest("POST", path)
    connection.putheader("Content-Type", OCTETS["Content-Type"])
    connection.putheader("Content-Length", str(size))
    connection.endheaders(first)
    instance.get("/v1/version")
    return connection


@timeout(120)
def test_bodies_that_come_at_the_same_time_are_not_mixed(instance):
    """One is written whole before the next one begins, in the order in which they came."""
    with instance.sandbox() as box:
        run = instance.exec(box, "cat", stdin=True)
        path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
        first = begin_body(instance, path, 6, b"aaa")
        cay.wait_until(lambda: instance.output(box, run) == b"aaa", 60, "the first half taken")
        second, third = begin_body(instance, path, 3, b"bbb"), begin_body(instance, f"{path}?close=true", 3, b"ccc")
        first.send(b"AAA")
        equal([c.getresponse().status for c in (first, second, third)], [204] * 3)
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run), b"aaaAAAbbbccc")
        for connection in (first, second, third):
            connection.close()


@timeout(120)
def test_large_bodies_at_the_same_time_wait_for_each_other(instance):
    """Together they bring more than a keeper takes."""
    size, n = 3 << 20, 6
    with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor(n) as pool:
        run, path = reads_when_told(instance, box)
        answers = [pool.submit(instance.raw, "POST", path, b"x" * size, OCTETS, 90) for _ in range(n)]
        concurrent.futures.wait(answers, timeout=1, return_when=concurrent.futures.FIRST_COMPLETED)
        instance.ok(box, "touch /tmp/go")
        equal([a.result()[0] for a in answers], [204] * n)
        equal(instance.raw("POST", f"{path}?close=true", b"", OCTETS)[0], 204)
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run).split()[-1], b"%d" % (size * n))


@timeout(120)
def test_who_writes_input_holds_back_no_output(instance):
    """A command that gives back what it gets writes more than its ring holds during one body, with and without somebody who reads that."""
    data = bytes(range(256)) * 16384
    with instance.sandbox() as box, concurrent.futures.ThreadPoolExecutor(1) as pool:
        for reads in (False, True):
            run = instance.exec(box, "cat", stdin=True, ring_bytes=65536)
            path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true"
            reader = pool.submit(instance.output, box, run, follow=True) if reads else None
            equal(instance.raw("POST", path, data, OCTETS)[0], 204)
            status = instance.wait(box, run)
            equal((status["status"], status["code"]), ("exited", 0))
            if reader is not None:  # what it has not taken yet is not counted at the end
                equal(reader.result()[-4096:], data[-4096:])
            else:
                equal(status["output_bytes"], len(data))


@timeout(120)
def test_who_writes_input_is_not_the_one_for_whom_output_is_kept(fresh):
    """A client was attached when the server went away: what the command writes waits for it, also when another one brings input first."""
    program = "p = os.open('/tmp/progress', os.O_CREAT | os.O_WRONLY); print(flush=True); input(); [os.write(1, b'x' * 4096) + os.write(p, b'x' * 4096) for _ in range(100)]; input()"
    with fresh.sandbox() as box:
        run = fresh.exec(box, "/usr/bin/python3", "-c", "import os; " + program, stdin=True, ring_bytes=4096)
        path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
        stream = fresh.attach(box, run)
        stream.until(cay.STDOUT)
        fresh.kill()
        stream.close()
        fresh.start()
        equal(fresh.raw("POST", path, b"go\n", OCTETS)[0], 204)
        cay.wait_until(lambda: int(fresh.ok(box, "stat -c %s /tmp/progress")) >= 65536, 30, "more than the ring holds, with what is in the pipe")
        stream = fresh.attach(box, run, start=1)
        equal(fresh.raw("POST", f"{path}?close=true", b"go\n", OCTETS)[0], 204)
        out, _, status = stream.collect()
        equal((len(out), status["code"]), (100 * 4096, 0))


@timeout(120)
def test_who_leaves_while_waiting_to_write_is_passed_over(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "cat", stdin=True)
        path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
        first = begin_body(instance, path, 2, b"a")
        gone, last = begin_body(instance, path, 1, b"g"), begin_body(instance, f"{path}?close=true", 1, b"z")
        gone.close()
        instance.get("/v1/version")
        first.send(b"A")
        equal([c.getresponse().status for c in (first, last)], [204, 204])
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run), b"aAz")
        first.close()
        last.close()


@timeout(120)
def test_who_has_left_in_the_middle_of_a_body_lets_the_next_one_write(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "cat", stdin=True)
        path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
        gone = begin_body(instance, path, 2, b"a")
        cay.wait_until(lambda: instance.output(box, run) == b"a", 60, "the half taken")
        last = begin_body(instance, f"{path}?close=true", 1, b"z")
        gone.close()
        equal(last.getresponse().status, 204)
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run), b"az")
        last.close()


@timeout(120)
def test_who_has_left_behind_a_body_that_nobody_reads_is_let_go_of(instance):
    """It had ended its own side of the connection before, as `nc -N` does: nothing comes from it any more that would tell. Nor does it stand before others then."""
    def connections():
        with open("/proc/net/unix") as f:
            return sum(line.split()[5:6] == ["03"] and line.split()[7:] == [instance.socket] for line in f)

    size = (1 << 20) + (200 << 10)
    with instance.sandbox() as box:
        _, path = reads_when_told(instance, box)
        cay.wait_until(lambda: connections() == 0, 30, "all before them have ended")
        gone = [begin_body(instance, path, size, b"x" * size) for _ in range(3)]
        for connection in gone:
            connection.sock.shutdown(socket.SHUT_WR)
            instance.get("/v1/version")
        cay.wait_until(lambda: connections() == 3, 30, "they wait")
        for connection in gone:
            connection.close()
        cay.wait_until(lambda: connections() == 0, 30, "nothing of them is left")


@timeout(120)
def test_the_end_of_a_command_answers_all_who_write_to_it(instance):
    """Also the one whose body does not come, which the others wait for."""
    with instance.sandbox() as box:
        run = instance.exec(box, "cat", stdin=True)
        path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
        writers = [begin_body(instance, path, 2, b"a") for _ in range(3)]
        instance.call("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9})
        for writer in writers:
            answer = writer.getresponse()
            body = answer.read()
            equal(answer.status, 409, body)
            contains(body, b"has ended")
            writer.close()


@timeout(120)
def test_only_so_many_wait_to_write(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "cat", stdin=True)
        path = f"/v1/sandboxes/{box}/execs/{run['id']}/stdin"
        writers = [begin_body(instance, path, 1) for _ in range(32)]
        status, _, body = instance.raw("POST", path, b"x", OCTETS)
        equal(status, 429, body)
        contains(body, b"wait already")
        for writer in writers:
            writer.send(b"y")
        equal([writer.getresponse().status for writer in writers], [204] * 32)
        equal(instance.raw("POST", f"{path}?close=true", b"z", OCTETS)[0], 204)
        equal(instance.wait(box, run)["code"], 0)
        equal(instance.output(box, run), b"y" * 32 + b"z")
        for writer in writers:
            writer.close()
