# SPDX-License-Identifier: Apache-2.0
"""What goes while somebody waits for it: a request that stands in the middle of an operation finds its snapshot, gateway or keeper gone, says so, and harms nobody.

Who waits is made to wait by stopping the process that would answer."""

import ctypes
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, require
from lib.pace import patience

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked, stopped, unread  # noqa: E402

TIMEOUT = 120

POLICY = "version: 1\nrules:\n  - {match: {host: a.example}, action: allow}\n"
OTHER = "version: 1\nrules:\n  - {match: {host: b.example}, action: allow}\n"
QUERY = "00070100000100000000000001610765" "78616d706c650000010001"  # a.example, A
ASK = ("import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('8.8.8.8', 53)); "
       f"s.send(bytes.fromhex('{QUERY}')); s.recv(999)")
ASK_WHEN_TOLD = f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, [10]); print('ready', flush=True); signal.sigwait([10]); {ASK}"
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
PTRACE_SEIZE, WALL = 0x4206, 0x40000000
POLL = ("7 ", "271 ", "73 ")  # poll and ppoll of x86-64, ppoll of aarch64


@require("root")
def test_a_snapshot_goes_while_a_diff_waits_for_a_step(fresh):
    old, new = fresh.post("/v1/sandboxes", {})["id"], fresh.post("/v1/sandboxes", {"checkpoint": "each-exec"})["id"]
    snapshot = fresh.post(f"/v1/sandboxes/{old}/snapshots", {"files_only": True})["id"]
    run = fresh.exec(new, "/bin/sh", "-c", "read x", stdin=True)
    with stopped(fresh.programs_named("cay-spawn")[0]):  # no job starts: the step stays due
        fresh.raw("POST", f"/v1/sandboxes/{new}/execs/{run['id']}/stdin?close=true", b"x\n")
        fresh.wait(new, run)
        diff = Asked(fresh, "GET", f"/v1/diff?a={snapshot}&b={new}@1")
        removal = Asked(fresh, "DELETE", f"/v1/snapshots/{snapshot}")
    equal((removal.answer()[0], diff.answer()[0]), (204, 404))


@require("root")
def test_a_gateway_dies_while_it_is_configured(fresh):
    box = fresh.post("/v1/sandboxes", {"policy": POLICY})["id"]
    fresh.ok(box, f'python3 -c "{ASK}"')  # who is answered has a gateway that has its configuration
    gateway = fresh.programs_named("cay-gateway")[0]
    with stopped(gateway):
        change = Asked(fresh, "PUT", f"/v1/sandboxes/{box}/policy", {"policy": OTHER})
        cay.wait_until(lambda: unread(gateway) > 1000, 30, "the configuration has not been sent")  # an acknowledgement is shorter
        os.kill(gateway, signal.SIGKILL)
        status, answer = change.answer()
    equal((status, answer["error"]["code"]), (503, "unavailable"))
    contains(answer["error"]["message"], "gateway")
    equal(fresh.get(f"/v1/sandboxes/{box}/policy")["version"], 1)


@require("root")
def test_a_keeper_dies_before_its_gateway_is_reached(fresh):
    box = fresh.post("/v1/sandboxes", {"policy": POLICY})["id"]
    run = fresh.exec(box, "python3", "-c", ASK_WHEN_TOLD)
    frames = fresh.attach(box, run)
    frames.until(cay.STDOUT)
    frames.close()
    pid = fresh.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"]
    with stopped(fresh.process.pid):
        os.kill(pid, signal.SIGUSR1)
        cay.wait_until(lambda: fresh.programs_named("cay-gateway"), 30, "no gateway was started")
        keeper = leaks.processes()[fresh.programs_named("cay-gateway")[0]][0]
        cay.wait_until(lambda: leaks.read(f"/proc/{keeper}/syscall").startswith(POLL), 30, "the keeper has not told of its gateway")
        os.kill(keeper, signal.SIGKILL)
        cay.wait_until(lambda: leaks.processes().get(keeper, (0, "Z"))[1] == "Z", 30, "the keeper does not end")
    fresh.wait_event("sandbox.failed", box)
    equal(fresh.wait(box, run)["status"], "lost")


def is_pending(pid, signal_number):
    line = next(line for line in leaks.read(f"/proc/{pid}/status").split("\n") if line.startswith("ShdPnd:"))
    return bool(int(line.split()[1], 16) >> (signal_number - 1) & 1)


@require("root", "cgroup2")
def test_a_keeper_that_is_told_to_end_while_it_stops_its_sandbox_says_that_it_has(fresh):
    """It is ending anyway: it said that this could not be, and died of it before it had answered. A debugger of the machine holds one of its processes up."""
    box = fresh.post("/v1/sandboxes", {})["id"]
    run = fresh.exec(box, "sleep", "1000")
    keeper = leaks.keeper_of(box)
    pid = fresh.wait_event("exec.started", box, lambda e: e["exec"] == run["id"])["data"]["pid"]
    equal(LIBC.ptrace(PTRACE_SEIZE, pid, None, None), 0)
    try:
        asked = Asked(fresh, "POST", f"/v1/sandboxes/{box}/stop")
        cay.wait_until(lambda: leaks.processes()[pid][1] == "Z", 30, "it is dead")
        os.kill(keeper, signal.SIGTERM)
        cay.wait_until(lambda: not is_pending(keeper, signal.SIGTERM), 30, "the keeper has taken it")
    finally:
        os.waitpid(pid, WALL)  # by which it is nobody's any more
    equal(asked.answer()[0], 200)
    equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "stopped")
    equal(fresh.wait(box, run)["status"], "killed")
    assert "Assertion" not in leaks.read(fresh.log), leaks.read(fresh.log)


@require("root")
def test_a_keeper_that_is_busy_is_waited_for(fresh):
    """It may stand for as long as a step of a capture takes. The next server waits, and its sandbox goes on."""
    box, other = (fresh.post("/v1/sandboxes", {})["id"] for _ in range(2))
    run = fresh.exec(box, "/bin/sh", "-c", "read x; echo $x", stdin=True)
    keeper = leaks.keeper_of(box)
    # what is tested is that nothing comes of it
    goes_on = threading.Timer(7, os.kill, (keeper, signal.SIGCONT))
    os.kill(keeper, signal.SIGSTOP)
    try:
        fresh.kill()
        goes_on.start()
        fresh.start()
        fresh.wait_event("sandbox.adopted", other)
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], "running")
        equal(fresh.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"on\n")[0], 204)
        equal(fresh.wait(box, run)["status"], "exited")
        equal(fresh.output(box, run), b"on\n")
    finally:
        goes_on.join()


@require("root")
def test_a_name_is_free_when_its_sandbox_is_forgotten(fresh):
    """However long its keeper takes to end. Who has the name then keeps it."""
    for _ in range(8):
        fresh.cay("run", "--rm", "--no-cwd", "--name", "again", "--", "true")
    box = fresh.post("/v1/sandboxes", {"name": "slow"})["id"]
    with stopped(leaks.keeper_of(box)):
        removal = Asked(fresh, "DELETE", f"/v1/sandboxes/{box}?force=true")
        fresh.wait_event("sandbox.removed", box)
        other = fresh.post("/v1/sandboxes", {"name": "slow"})["id"]
    equal(removal.answer()[0], 204)
    equal(fresh.get("/v1/sandboxes/slow")["id"], other)


@require("root")
def test_nobody_waits_for_what_a_killed_spawner_would_have_said(tmp):
    """It had not said that the keeper has ended. The request is answered, and the server ends."""
    with own_instance(tmp) as instance:
        box = instance.start().post("/v1/sandboxes", {"name": "box"})["id"]
        spawner, = instance.programs_named("cay-spawn")
        keeper = leaks.keeper_of(box)
        with stopped(spawner):
            asked = Asked(instance, "POST", "/v1/sandboxes/box/stop")
            cay.wait_until(lambda: leaks.processes()[keeper][1] == "Z", 30, "the keeper ends")
            instance.get("/v1/version")
            os.kill(spawner, signal.SIGKILL)
        equal(instance.process.wait(patience(15)), 1)  # less than a keeper is waited for
        equal(asked.answer()[0], 200)
        instance.start()
