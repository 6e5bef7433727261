# SPDX-License-Identifier: Apache-2.0
"""What happened to a sandbox while no server was there: the next one tells it as if it had been."""

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys

from lib import cay, leaks
from lib.case import equal, require, timeout
from lib.numbered import process_with_number

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked  # noqa: E402

PIECE = 512  # as many commands
MANY = 24  # of their output a keeper remembers less than that
EVENTS = 65536  # so many wait for a server


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

    def open_gate():
        with open(os.path.join(top, "opened"), "w", encoding="ascii"):
            pass
        os.replace(os.path.join(top, "opened"), os.path.join(top, "gate"))  # who comes later would wait for somebody who writes
        os.close(held)
    yield {"source": top, "target": "/p", "mode": "rw"}, open_gate


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
def test_the_catalogue_cannot_take_that_it_is_paused_or_goes_on(tmp):
    """Its keeper has done it: who asked is told so, and so is the next server."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="sandbox.pause.before_commit" + ":1+=error")
        box = instance.post("/v1/sandboxes", {})["id"]
        for verb, state, where in (("pause", "paused", "for this server"), ("resume", "running", "for this server"), ("pause", "paused", "for the next one")):
            instance.post(f"/v1/sandboxes/{box}/{verb}")
            if where != "for this server":
                instance.kill()
                instance.start()
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], state, where)
        instance.post(f"/v1/sandboxes/{box}/resume")
        equal(instance.ok(box, "echo on"), "on\n")


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


@require("root")
def test_nobody_outside_is_told_who_has_the_number_of_a_command_that_had_ended(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        instance.post("/v1/sandboxes", {"name": "box"})
        run = instance.exec("box", "sleep", "1000")
        [number] = pids(instance, "box", [run])
        instance.kill()
        os.kill(number, signal.SIGKILL)
        cay.wait_until(lambda: number not in leaks.processes(), 30, "it has ended")
        go = os.path.join(tmp, "go")
        os.mkfifo(go)
        stranger = process_with_number(number, "sh", "-c", 'read go < "$0"; /bin/true; exec sleep 1000', go)
        try:
            instance.start()
            instance.wait("box", run)
            with open(go, "w", encoding="utf-8") as f:
                f.write("go\n")
            cay.wait_until(lambda: leaks.read(f"/proc/{stranger}/cmdline").startswith("sleep"), 30, "it has run a program")
            for _ in range(4):  # the first may be by who was made before the server began, of whom less is told
                instance.ok("box", "/bin/echo")
            instance.wait_event("process.exec", "box", lambda event: event["data"]["argv"] == ["/bin/echo"])
            programs = [e["data"]["argv"] for e in instance.events("box") if e["type"] == "process.exec"]
            equal([argv for argv in programs if argv == ["/bin/true"]], [])
        finally:
            os.kill(stranger, signal.SIGKILL)
            os.waitpid(stranger, 0)


def fill_events(instance, box):
    """Nobody waits for the answers to as many starts as fail: its keeper has no room for another event."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as keeper:
        keeper.connect(os.path.join(instance.run, "keepers", f"{box}.sock"))
        frames = cay.Frames(keeper)
        frames.next()  # its hello
        for number in range(EVENTS):
            frames.send(1, {"id": number + 1, "verb": "exec"})
        frames.send(1, {"id": EVENTS + 1, "verb": "where"})
        equal(json.loads(frames.next()[2])["id"], EVENTS + 1)


@require("root")
def test_a_command_ends_while_no_server_is_there_and_no_more_can_be_told(tmp):
    with own_instance(tmp) as instance, gate(tmp) as (mount, open_gate):
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box", "mounts": [mount]})["id"]
        run = instance.exec(box, "sh", "-c", "cat /p/gate; exit 3")
        programs = pids(instance, box, [run])
        instance.kill()
        fill_events(instance, box)
        open_gate()
        cay.wait_until(lambda: all(map(is_gone, programs)), 60, "it has ended")
        instance.start()
        cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"] == "ended", 30, "its end is told")
        equal(instance.wait(box, run)["code"], 3)
        instance.ok(box, "true")


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


@require("root", "cgroup2")
def test_a_command_that_begins_when_its_server_is_gone_runs_and_has_its_pid(tmp):
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="waiter.asked:1=hold")
        instance.post("/v1/sandboxes", {"name": "box"})
        Asked(instance, "POST", "/v1/sandboxes/box/execs", {"argv": ["sleep", "1000"]})
        cay.wait_until(lambda: held_waiter(instance), 30, "it is about to be started")
        waiter = held_waiter(instance)
        instance.kill()
        instance.start()
        [run] = instance.get("/v1/sandboxes/box/execs")["execs"]
        equal((run["state"], run.get("pid")), ("starting", None))
        os.kill(waiter, signal.SIGCONT)
        cay.wait_until(lambda: any(e["type"] == "exec.started" for e in instance.events()), 30, "it has begun")
        run = instance.get(f"/v1/sandboxes/box/execs/{run['id']}")
        equal((run["state"], run["pid"]), ("running", waiter))


def loses_its_first_process(instance, name, while_away):
    """What is told of it: error, and status and output of a command that had ended before and of one that had not."""
    box = instance.post("/v1/sandboxes", {"name": name})
    ended, running = instance.exec(name, "sh", "-c", "echo result; exit 3"), instance.exec(name, "sh", "-c", "echo longer; exec sleep 1000")
    cay.wait_until(lambda: b"longer" in instance.output(name, running), 30, "it runs")
    instance.wait(name, ended)
    if while_away:
        instance.kill()
    os.kill(box["init_pid"], signal.SIGKILL)
    cay.wait_until(lambda: is_gone(box["init_pid"]), 30, "its first process has ended")
    if while_away:
        instance.start()
    cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{name}")["state"] not in ("running", "creating"), 30, "it is over")
    told = instance.get(f"/v1/sandboxes/{name}")
    ends = [instance.wait(name, run) for run in (ended, running)]
    return (told["state"], told.get("error", {}).get("message", "").replace(name, "it"),
            [(end["status"], end.get("code"), end.get("signal")) for end in ends], [instance.output(name, run) for run in (ended, running)])


@require("root")
def test_a_sandbox_ends_while_no_server_is_there(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        seen = loses_its_first_process(instance, "seen", False)
        equal(seen[2:], ([("exited", 3, None), ("signaled", None, 9)], [b"result\n", b"longer\n"]))
        equal(loses_its_first_process(instance, "unseen", True), seen)


BARE_PID_1 = """
import subprocess, sys
sys.exit(subprocess.Popen(["sh", "-ec", sys.argv[1]]).wait())
"""
STOPPED = """
cay create --name source; cay exec -d source -- sleep 99991
cay fork source --name fork
cay shutdown; cay ps
init=$(cay info fork --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["init_pid"])')
cay stop fork
grep State: /proc/$init/status || echo gone
cay shutdown --stop; grep -c 'did not end' "$CAY_RUN"/cayd.log || true
"""


@require("root")
@timeout(120)
def test_an_adopted_fork_ends_without_the_help_of_pid_1(fresh):
    """In containers PID 1 often waits for its own child alone. What a fork's helper leaves must be reaped all the same, or the sandbox's PID 1 cannot end."""
    fresh.stop()
    environment = {**fresh.environment(), "PATH": cay.BUILD + ":" + os.environ["PATH"]}
    done = subprocess.run(["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--propagation", "private", sys.executable, "-c", BARE_PID_1, STOPPED],
                          env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    equal(done.returncode, 0, done.stderr)
    equal(done.stdout.split()[-2:], ["gone", "0"], done.stdout + done.stderr)
