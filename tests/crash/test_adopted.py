# SPDX-License-Identifier: Apache-2.0
"""What happened to a sandbox while no server was there: the next one tells it as if it had been."""

import concurrent.futures
import contextlib
import os
import signal
import sys

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked  # noqa: E402

PIECE = 512  # as many commands
MANY = 24  # of their output a keeper remembers less than that


def is_gone(pid):
    return leaks.processes().get(pid, (0, "Z"))[1] == "Z"


def pids(instance, box, runs):
    return [instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"] for run in runs]


@contextlib.contextmanager
def gate(tmp):
    """A mount whose file `gate` is read to its end when what this gives is called."""
    top = os.path.join(tmp, "project")
    os.mkdir(top)
    os.mkfifo(os.path.join(top, "gate"))
    os.chmod(os.path.join(top, "gate"), 0o666)
    held = os.open(os.path.join(top, "gate"), os.O_RDWR)
    yield {"source": top, "target": "/p", "mode": "rw"}, lambda: os.close(held)


@require("root")
def test_commands_of_which_one_message_cannot_tell(tmp):
    """The keeper tells of them in pieces."""
    with own_instance(tmp) as instance, concurrent.futures.ThreadPoolExecutor(4) as threads:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box", "limits": {"pids": 4 * PIECE}})["id"]
        runs = list(threads.map(lambda _: instance.exec(box, "sleep", "1000"), range(PIECE + 20)))
        instance.kill()
        instance.start()
        listed = {run["id"]: (run["state"], run["pid"]) for run in instance.get(f"/v1/sandboxes/{box}/execs?limit=1000")["execs"]}
        equal(listed, {run["id"]: ("running", run["pid"]) for run in runs})


@require("root")
def test_commands_end_while_no_server_is_there_and_their_keeper_has_forgotten_them(tmp):
    """Their output was too much to be remembered, their ends were not."""
    with own_instance(tmp) as instance, gate(tmp) as (mount, open_gate):
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box", "mounts": [mount]})["id"]
        runs = [instance.exec(box, "sh", "-c", f"cat /p/gate; head -c 1100000 /dev/zero; exit {n}") for n in range(1, MANY + 1)]
        programs = pids(instance, box, runs)
        instance.kill()
        open_gate()
        cay.wait_until(lambda: all(map(is_gone, programs)), 60, "they have ended")
        instance.start()
        ends = [instance.wait(box, run) for run in runs]
        equal([(end["status"], end.get("code")) for end in ends], [("exited", n) for n in range(1, MANY + 1)])


def held_waiter(instance):
    """Pid of the process that stands still before it becomes a command, or None."""
    held = [pid for pid, (_, state, name) in leaks.processes().items() if (state, name) == ("T", "cay-waiter") and leaks.cgroup_tags([pid]) & instance.tags]
    return held[0] if held else None


@require("root", "cgroup2")
def test_a_command_that_cannot_be_started_when_its_server_is_gone_is_over(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="waiter.asked:1=hold")
        instance.post("/v1/sandboxes", {"name": "box"})
        Asked(instance, "POST", "/v1/sandboxes/box/execs", {"argv": ["/no/such/program"]})
        cay.wait_until(lambda: held_waiter(instance), 30, "it is about to be started")
        instance.kill()
        instance.start()
        [run] = instance.get("/v1/sandboxes/box/execs")["execs"]
        looks = Asked(instance, "GET", f"/v1/sandboxes/box/execs/{run['id']}?wait_ms=60000")
        os.kill(held_waiter(instance), signal.SIGCONT)
        equal(looks.answer()[1].get("error", {}).get("code"), "command_not_found")
        equal(instance.get("/v1/sandboxes/box/execs")["execs"], [])
        equal([e["data"]["error"]["code"] for e in instance.events() if e["type"] == "exec.failed"], ["command_not_found"])
