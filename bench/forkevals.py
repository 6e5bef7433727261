# SPDX-License-Identifier: Apache-2.0
"""Cases of HumanEval: a Python process that has its imports is snapshotted live; each case is a fork of that, which runs it, is scored by its exit status, and is thrown away.

Every case is run twice, with the solution that comes with it, which must pass, and with one that gives nothing, which must fail: a score that cannot tell them apart is a
failure of the run. Beside it the same cases by `python3` from its start and by fork() of such a process, on the host, without any isolation.
"""

import concurrent.futures
import gzip
import json
import os
import subprocess
import threading
import time

import measure
from forksource import Connection

CASES = os.path.join(measure.TOP, "bench", "data", "humaneval", "HumanEval.jsonl.gz")
SECONDS = 60  # longest that one step of a case may take
PASSED, FAILED = 0, 1

# A program on standard input, to its end: the exit status says whether it ran through.
RUN = """
import os, sys
def score(program):
    try:
        exec(compile(program, "case", "exec"), {"__name__": "case"})
        return 0
    except BaseException:
        return 1
"""
IMPORTS = "import collections, copy, hashlib, heapq, itertools, json, math, random, re, string, typing\n"
SERVER = IMPORTS + RUN + 'print("ready", flush=True)\nos._exit(score(sys.stdin.read()))\n'
ALONE = RUN + "os._exit(score(sys.stdin.read()))\n"
# Programs one after the other, each behind a line with its length; answers a line with its score.
ZYGOTE = IMPORTS + RUN + """
for line in iter(sys.stdin.buffer.readline, b""):
    program = sys.stdin.buffer.read(int(line))
    child = os.fork()
    if child == 0:
        os._exit(score(program))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def programs():
    """[(name, program, score that it must have)]."""
    with gzip.open(CASES, "rt", encoding="utf-8") as f:
        rows = [json.loads(line) for line in f]
    found = []
    for row in rows:
        for solution, score in ((row["canonical_solution"], PASSED), ("    return None\n", FAILED)):
            text = f"{row['prompt']}{solution}\n{row['test']}\ncheck({row['entry_point']})\n"
            found.append((row["task_id"], text.encode(), score))
    return found


class Forks:
    """Forks of one snapshot of the server."""

    def __init__(self, instance):
        self.instance, self.mine = instance, threading.local()
        self.box = instance.post("/v1/sandboxes", {})["id"]
        self.run = instance.exec(self.box, "/usr/bin/python3", "-c", SERVER, stdin=True)["id"]
        while not instance.output(self.box, self.run).endswith(b"ready\n"):
            time.sleep(0.01)
        self.snapshot = instance.post(f"/v1/sandboxes/{self.box}/snapshots", {"files_only": False})["id"]

    def close(self):
        self.instance.remove(self.box)
        self.instance.call("DELETE", f"/v1/snapshots/{self.snapshot}")

    def score(self, program):
        """Fork, run, score, throw away."""
        if not hasattr(self.mine, "api"):
            self.mine.api = Connection(self.instance.socket)
        ask = self.mine.api.ask
        fork = json.loads(ask("POST", f"/v1/snapshots/{self.snapshot}/fork", b'{"live":true}'))["sandboxes"][0]["id"]
        exec_path = f"/v1/sandboxes/{fork}/execs/{self.run}"
        ask("POST", f"{exec_path}/stdin?close=true", program, "application/octet-stream")
        status = json.loads(ask("GET", f"{exec_path}?wait_ms={SECONDS * 500}"))["status"]
        ask("DELETE", f"/v1/sandboxes/{fork}?force=true")
        return status.get("code") if status["status"] == "exited" else status["status"]


class Alone:
    """A new interpreter for each, on the host."""

    def score(self, program):
        return subprocess.run(["/usr/bin/python3", "-c", ALONE], input=program, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=SECONDS, check=False).returncode

    def close(self):
        pass


class Zygotes:
    """A fork() for each, of a process on the host that has its imports: one such process for each thread."""

    def __init__(self):
        self.mine, self.all = threading.local(), []

    def score(self, program):
        if not hasattr(self.mine, "zygote"):
            self.mine.zygote = subprocess.Popen(["/usr/bin/python3", "-c", ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.all.append(self.mine.zygote)
        pipe = self.mine.zygote
        pipe.stdin.write(b"%d\n" % len(program) + program)
        pipe.stdin.flush()
        return int(pipe.stdout.readline())

    def close(self):
        for zygote in self.all:
            zygote.stdin.close()
            zygote.stdout.close()
            zygote.wait(SECONDS)


def rate(way, cases, at_once):
    """How many of @cases are run in a second, with @at_once of them in flight, and the milliseconds of processor time for each; each must have the score that it is to have."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(way.score, [cases[0][1]] * at_once))  # connections and processes are there
        begun, busy = time.monotonic(), measure.busy_s()
        scores = list(pool.map(way.score, [program for _, program, _ in cases]))
        seconds, busy = time.monotonic() - begun, measure.busy_s() - busy
    wrong = [f"{name}: {score} instead of {wanted}" for (name, _, wanted), score in zip(cases, scores) if score != wanted]
    if wrong:
        raise RuntimeError(f"{len(wrong)} of {len(cases)} scores are wrong: {'; '.join(wrong[:5])}")
    return {"a_second": len(cases) / seconds, "processor": busy * 1e3 / len(cases)}


def evals(instance, at_once, _):
    """The three ways, @at_once in flight."""
    cases = programs()
    row = {"at_once": at_once, "cases": len(cases), "right": sum(score == PASSED for *_, score in cases)}
    for name, make in (("forks", lambda: Forks(instance)), ("alone", Alone), ("fork", Zygotes)):
        way = make()
        try:
            row[name] = rate(way, cases, at_once)
        finally:
            way.close()
    return row

