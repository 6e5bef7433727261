# SPDX-License-Identifier: Apache-2.0
"""Whoever holds a secret may crash, with core files asked for without bound: none of them tells it."""

import glob
import os
import re
import resource
import signal
import subprocess

from lib import cay
from lib.case import Skip, equal, require
from lib.proxy import Upstream, echo

SECRET = "sk_live_4f9a0c7e2b8d41956370"
CRASH = "import os, signal, sys; secret = sys.stdin.read(); os.kill(os.getpid(), signal.SIGSEGV)"


def pattern():
    with open("/proc/sys/kernel/core_pattern", encoding="utf-8") as f:
        return f.read().strip()


def core_files(folder):
    """Core files of processes that were in @folder, as this machine names them; none where it hands them to a program."""
    if pattern().startswith("|"):
        return set()
    return set(glob.glob(os.path.join(folder, re.sub("%.", "*", pattern()) + "*")))


def holds(path):
    with open(path, "rb") as f:
        return SECRET.encode() in f.read()


def machine_dumps(tmp):
    """The control: a program that holds it, and nothing between it and its core file."""
    folder = os.path.join(tmp, "control")
    os.mkdir(folder)
    before = core_files(folder)
    with subprocess.Popen(["/usr/bin/python3", "-c", CRASH], cwd=folder, stdin=subprocess.PIPE) as process:
        process.stdin.write(SECRET.encode())
        process.stdin.close()
        status = os.waitpid(process.pid, 0)[1]
        process.returncode = -os.WTERMSIG(status)
    if not os.WCOREDUMP(status):
        raise Skip(f"this machine makes no core files here (core_pattern is {pattern()!r})")
    made = core_files(folder) - before
    equal([holds(path) for path in made], [] if pattern().startswith("|") else [True])
    for path in made:
        os.unlink(path)


def crash(pid, ended):
    """Kill @pid as a fault of its own would, wait until @ended(), and look where its core file would be."""
    folder = os.path.realpath(f"/proc/{pid}/cwd")
    before = core_files(folder)
    os.kill(pid, signal.SIGSEGV)
    ended()
    made = core_files(folder) - before
    found = {path: holds(path) for path in made}
    for path in made:
        os.unlink(path)
    equal(found, {}, "core files, and whether they hold the secret")


@require("root")
def test_a_crash_leaves_no_secret_behind(fresh, tmp):
    upstream = Upstream(echo)
    policy = (f'{{"rules": [{{"match": {{"host": "api.example"}}, "action": "allow", "upstream": "{upstream.address}", "private": true}}],'
              ' "secrets": [{"name": "API_KEY", "hosts": ["api.example"], "in": [{"header": "authorization"}]}]}')
    unbounded, before = (resource.RLIM_INFINITY, resource.RLIM_INFINITY), resource.getrlimit(resource.RLIMIT_CORE)
    fresh.stop()
    resource.setrlimit(resource.RLIMIT_CORE, unbounded)
    try:
        machine_dumps(tmp)
        os.chmod(fresh.dir, 0o777)  # where they are: nobody's core file fails for want of a right to make it
        fresh.start()
        fresh.cay("secret", "set", "API_KEY", stdin=SECRET)
        box = fresh.post("/v1/sandboxes", {"policy": policy})["id"]
        fresh.ok(box, "curl -s -o /dev/null http://api.example/")
        gateway = fresh.wait_event("gateway.started", box)["data"]["pid"]
        with open(f"/proc/{fresh.get(f'/v1/sandboxes/{box}')['init_pid']}/status", encoding="utf-8") as f:
            keeper = int(re.search(r"^PPid:\t(\d+)", f.read(), re.M)[1])
        crash(gateway, lambda: equal(fresh.wait_event("gateway.ended", box)["data"]["wait_status"], signal.SIGSEGV, "without the bit that says that a core was dumped"))
        crash(keeper, lambda: cay.wait_until(lambda: fresh.get(f"/v1/sandboxes/{box}")["state"] != "running", 60, "the end of the sandbox"))
        crash(fresh.process.pid, lambda: equal(fresh.process.wait(60), -signal.SIGSEGV))
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)
    fresh.start()
    upstream.close()
