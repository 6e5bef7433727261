# SPDX-License-Identifier: Apache-2.0
"""What is rationed (docs/design/0007, Rations) stays so while processes are made again: who of them runs already gets no more than it would have got without a fork."""

import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, start  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")

# It never ceases to ask for sockets of netlink, and writes down how many it has and how often it was refused one.
PROGRAM = """
import os, select, socket
held, refused = [], 0
print("ready", flush=True)
while True:
    try:
        held.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
    except OSError:
        refused += 1
    with open("/tmp/new", "w") as f:
        f.write(f"{len(held)} {refused}")
    os.rename("/tmp/new", "/tmp/said")
    if select.select([0], [], [], 0.001)[0]:
        os.read(0, 100)
        print(len(held), flush=True)
"""


def said(pid):
    """How many the program @pid has, and how often it was refused one."""
    return [int(word) for word in leaks.read(f"/proc/{pid}/root/tmp/said").split()]


def asking(instance):
    return {pid for pid in instance.own_processes() if "held.append(socket" in leaks.read(f"/proc/{pid}/cmdline")}


def held_parent(instance):
    """Of processes that run again: it has not said so yet."""
    return [pid for pid in instance.programs_named("cay-fork") if leaks.processes().get(pid, ("", ""))[1] == "T"]


def while_they_come(instance, verb, body):
    """POST it, and have those that run again ask for long before their keeper hears that all of them do. Return: the answer."""
    answers, before = [], asking(instance)
    thread = threading.Thread(target=lambda: answers.append(verb(body)))
    thread.start()
    try:
        cay.wait_until(lambda: held_parent(instance), 60, "they run")
        cay.wait_until(lambda: asking(instance) - before, 10, "it runs")
        pid = (asking(instance) - before).pop()
        held, refused = said(pid)
        cay.wait_until(lambda: said(pid)[0] > held + 50 or said(pid)[1] > refused + 50, 30, "it has asked for more")
    finally:
        while thread.is_alive():
            for pid in held_parent(instance):
                os.kill(pid, signal.SIGCONT)
            thread.join(0.05)
    return answers[0]


@require(*NEEDS)
def test_sockets_that_are_asked_for_meanwhile(tmp):
    """In a fork, in a fork of it, behind a resume, and behind a rewind."""
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.fork.left=hold"})
    try:
        instance.start()
        with instance.sandbox(limits={"memory_bytes": 256 << 20, "pids": 300}) as box:
            def post(one, what):
                return lambda body: instance.post(f"/v1/sandboxes/{one}/{what}", body)

            run = start(instance, box, "/usr/bin/python3", "-c", PROGRAM)
            cay.wait_until(lambda: said(asking(instance).copy().pop())[1] > 10, 30, "it has all that it gets")
            most = int(ask(instance, box, run, ""))
            forks = [while_they_come(instance, post(box, "fork"), {"live": True})["sandboxes"][0]["id"]]
            forks += [while_they_come(instance, post(forks[0], "fork"), {"live": True})["sandboxes"][0]["id"]]
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "before", "files_only": False})
            instance.post(f"/v1/sandboxes/{box}/suspend")
            while_they_come(instance, post(box, "resume"), {})
            for one in (*forks, box):
                assert int(ask(instance, one, run, "")) <= most + 1, f"{one} has more than {most}"
            while_they_come(instance, post(box, "rewind"), {"snapshot": "before"})
            assert int(ask(instance, box, run, "")) <= most + 1
            for one in forks:
                instance.remove(one)
    finally:
        instance.close()
