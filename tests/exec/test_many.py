# SPDX-License-Identifier: Apache-2.0
"""Contract EXEC: many at once, and asking twice."""

import concurrent.futures

from lib import cay
from lib.case import equal, raises, require, timeout


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
