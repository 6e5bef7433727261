# SPDX-License-Identifier: Apache-2.0
"""A fork of a fork of a Java program with sixty threads, as root and as an ordinary user: what a template made is stopped, looked at and copied again."""

import base64
import os
import subprocess
import sys

from lib import cay
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, wait_output  # noqa: E402

TIMEOUT = 170
HERE = os.path.dirname(os.path.abspath(__file__))


def generations(instance, tmp):
    subprocess.run(["javac", "-d", tmp, os.path.join(HERE, "Spin.java")], check=True)
    box = instance.post("/v1/sandboxes", {"limits": {"memory_bytes": 4 << 30, "pids": 2000}} if instance.user is None else {})["id"]
    instance.ok(box, "mkdir /tmp/spin")
    for name in sorted(os.listdir(tmp)):
        if name.endswith(".class"):
            with open(os.path.join(tmp, name), "rb") as f:
                text = base64.b64encode(f.read()).decode()
            instance.ok(box, f"echo {text} | base64 -d > '/tmp/spin/{name}'")
    run = instance.exec(box, "java", "-Xmx64m", "-cp", "/tmp/spin", "Spin", stdin=True)
    wait_output(instance, box, run, b"ready\n")
    line = [box]
    for _ in range(2):
        line += fork_live(instance, line[-1])
    for i, one in enumerate(reversed(line)):
        equal(ask(instance, one, run, f"generation-{i}"), f"generation-{i} true 61\n")
    for one in line:
        instance.remove(one)


@require("root", "cgroup2", "program:javac")
def test_java_with_sixty_threads_as_root(instance, tmp):
    generations(instance, tmp)


@require("root", "cgroup2", "userns", "newuidmap", "program:javac")
def test_java_with_sixty_threads_rootless(tmp):
    os.chmod(tmp, 0o755)
    with cay.ThrowawayUser() as user:
        instance = cay.Instance(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1"})
        try:
            instance.start()
            generations(instance, tmp)
        finally:
            instance.close()
