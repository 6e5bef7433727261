# SPDX-License-Identifier: Apache-2.0
"""Contract EXEC: the final status says what really happened, with evidence, and an exit code is never made up."""

import contextlib
import os
import sqlite3
import subprocess

from lib import cay
from lib.case import contains, equal, raises, require
from lib.leaks import keeper_of

STATUSES = {"exited", "signaled", "oom", "timeout", "disk_full", "limit", "killed", "lost"}


def test_a_command_that_does_not_exist(instance):
    with instance.sandbox() as box:
        error = raises(cay.ApiError, instance.exec, box, "no-such-command")
        equal((error.status, error.code), (422, "command_not_found"))
        contains(error.message, "no-such-command")
        error = raises(cay.ApiError, instance.exec, box, "/no/such/file")
        equal(error.code, "command_not_found")


def test_one_exchange_from_the_request_to_the_final_status(instance):
    with instance.sandbox() as box:
        done = instance.post(f"/v1/sandboxes/{box}/execs?wait_ms=60000", {"argv": ["sh", "-c", "exit 7"]})
        equal((done["state"], done["status"]["status"], done["status"]["code"]), ("ended", "exited", 7))
        begun = instance.post(f"/v1/sandboxes/{box}/execs?wait_ms=1", {"argv": ["sleep", "1000"]})
        equal((begun["state"], begun["status"]), ("running", None))


def test_an_empty_member_of_path_is_the_working_directory(instance):
    """Wherever it stands, as POSIX has it."""
    with instance.sandbox() as box:
        instance.ok(box, "printf '#!/bin/sh\\nexit 3\\n' > /tmp/of-its-own && chmod +x /tmp/of-its-own")
        for path in (":/bin", "/usr/bin::/bin", "/bin:", ""):
            equal(instance.wait(box, instance.exec(box, "of-its-own", cwd="/tmp", env={"PATH": path}))["code"], 3, path)
        equal(raises(cay.ApiError, instance.exec, box, "of-its-own", cwd="/tmp", env={"PATH": "/bin"}).code, "command_not_found")


def test_a_command_that_cannot_be_executed(instance):
    with instance.sandbox() as box:
        equal(raises(cay.ApiError, instance.exec, box, "/etc/passwd").code, "command_not_executable")
        equal(raises(cay.ApiError, instance.exec, box, "/tmp").code, "command_not_executable")


def test_a_working_directory_that_does_not_exist(instance):
    with instance.sandbox() as box:
        equal(raises(cay.ApiError, instance.exec, box, "true", cwd="/no/such/dir").code, "bad_cwd")
        equal(raises(cay.ApiError, instance.exec, box, "true", cwd="/etc/passwd").code, "bad_cwd")


def test_a_user_that_does_not_exist(instance):
    with instance.sandbox() as box:
        equal(raises(cay.ApiError, instance.exec, box, "true", user="nobody-of-that-name").code, "bad_user")


def test_a_refused_exec_leaves_no_exec_behind(instance):
    with instance.sandbox() as box:
        raises(cay.ApiError, instance.exec, box, "no-such-command")
        raises(cay.ApiError, instance.exec, box, "true", cwd="/no/such/dir")
        states = {e["state"] for e in instance.get(f"/v1/sandboxes/{box}/execs")["execs"]}
        assert "running" not in states and "starting" not in states, states


def test_exit_codes_pass_through(instance):
    with instance.sandbox() as box:
        for code in (0, 1, 2, 42, 126, 127, 128, 130, 137, 255):
            status = instance.wait(box, instance.exec(box, "sh", "-c", f"exit {code}"))
            equal((status["status"], status["code"]), ("exited", code))
            assert "signal" not in status, status


def test_a_signal_is_no_exit_code(instance):
    with instance.sandbox() as box:
        for number in (1, 6, 9, 11, 15):
            status = instance.wait(box, instance.exec(box, "sh", "-c", f"kill -{number} $$"))
            equal((status["status"], status["signal"]), ("signaled", number))
            assert "code" not in status, status


def test_a_signal_that_was_sent_through_the_api(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "trap 'exit 33' USR1; echo ready; while :; do sleep 1000 & wait; done")
        with_ready(instance, box, run)
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 10})
        equal(instance.wait(box, run)["code"], 33)


def with_ready(instance, box, run):
    """Wait until the exec has written "ready"."""
    stream = instance.attach(box, run)
    text = b""
    while b"ready" not in text:
        frame = stream.next()
        assert frame is not None, f"ended before it was ready: {text!r}"
        if frame[0] in (cay.STDOUT, cay.STDERR):
            text += frame[2][8:]
    stream.close()


@require("group")
def test_killing_an_exec_ends_its_whole_tree(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "setsid sleep 1000 & (sleep 1001 &) ; echo ready; sleep 1002")
        with_ready(instance, box, run)
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9, "tree": True})
        equal(instance.wait(box, run)["status"], "killed")
        equal(instance.ok(box, "ps -eo args | grep -c '[s]leep 100' || :").strip(), "0")


# What takes long to end: a process whose memory, small pages, is given back by the kernel when its parent is gone already.
SLOW_TO_END = """
import mmap, os, time
if os.fork() == 0:
    memory = mmap.mmap(-1, 400 << 20)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(memory), 4096):
        memory[at] = 1
    print("ready", flush=True)
time.sleep(1000)
"""


def reads(pid):
    """How many times a process has called read()."""
    with open(f"/proc/{pid}/io", encoding="ascii") as f:
        return int(f.read().split("syscr: ")[1].split()[0])


@require("root", "group")
def test_the_end_of_a_tree_is_waited_for_and_not_asked_for(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "python3", "-c", SLOW_TO_END)
        with_ready(instance, box, run)
        before = reads(keeper_of(box))
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9, "tree": True})
        equal(instance.wait(box, run)["status"], "killed")
        looked = reads(keeper_of(box)) - before
        equal(looked < 300, True, f"{looked} reads of the keeper")


def test_killing_one_exec_spares_the_others(instance):
    with instance.sandbox() as box:
        first = instance.exec(box, "sh", "-c", "echo ready; sleep 1000")
        second = instance.exec(box, "sh", "-c", "echo ready; sleep 1001")
        with_ready(instance, box, first)
        with_ready(instance, box, second)
        instance.post(f"/v1/sandboxes/{box}/execs/{first['id']}/signal", {"signal": 9, "tree": True})
        equal(instance.wait(box, first)["status"], "killed")
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{second['id']}")["state"], "running")


@require("group")
def test_a_deadline_ends_the_whole_tree(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "setsid sleep 1000 & trap '' TERM; echo started; sleep 1001; sleep 1002", timeout_ms=500)
        status = instance.wait(box, run)
        equal(status["status"], "timeout")
        assert "code" not in status, status
        equal(instance.output(box, run), b"started\n")
        equal(instance.ok(box, "ps -eo args | grep -c '[s]leep 100' || :").strip(), "0")


def test_stopping_the_sandbox_is_no_exit(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo ready; sleep 1000")
        with_ready(instance, box, run)
        instance.post(f"/v1/sandboxes/{box}/stop")
        status = instance.wait(box, run)
        equal(status["status"], "killed")
        assert "code" not in status, status


@require("group")
def test_who_follows_a_command_is_told_that_its_sandbox_was_stopped(instance):
    """Also where its connection ends before anybody knows the status, as when the sandbox was resumed."""
    with instance.sandbox() as box:
        for _ in range(5):
            instance.cay("suspend", box)
            instance.cay("resume", box)
            process = instance.popen([os.path.join(instance.programs, "cay"), "exec", box, "--", "sh", "-c", "echo ready; exec sleep 1000"],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            equal(process.stdout.readline(), b"ready\n")
            instance.cay("stop", box)
            _, err = process.communicate(timeout=30)
            equal(process.returncode, 137)
            contains(err, b"cay: killed, with everything that it started")
            instance.cay("start", box)


def test_nothing_is_written_of_what_ran_in_a_sandbox_that_is_removed(instance):
    box = instance.post("/v1/sandboxes", {})["id"]
    run = instance.exec(box, "sleep", "1000")
    instance.call("DELETE", f"/v1/sandboxes/{box}?force=true")
    instance.wait_event("exec.ended", box, match=lambda event: event["exec"] == run["id"])
    with contextlib.closing(sqlite3.connect(f"file:{os.path.join(instance.state, 'cay.db')}?mode=ro", uri=True)) as catalogue:
        equal(catalogue.execute("SELECT id FROM execs WHERE owner = ?", (box,)).fetchall(), [])


@require("root")
def test_out_of_memory_is_seen_by_the_kernel_not_guessed(instance):
    with instance.sandbox(limits={"memory_bytes": 64 << 20}) as box:
        run = instance.exec(box, "python3", "-c", "x = bytearray(512 << 20); print(len(x))")
        status = instance.wait(box, run)
        equal(status["status"], "oom")
        assert status["evidence"], "no evidence"
        equal(instance.output(box, run, "stdout"), b"")
        # The sandbox answers afterwards.
        equal(instance.ok(box, "echo alive"), "alive\n")


@require("root")
def test_a_kill_that_is_no_oom_is_not_called_oom(instance):
    with instance.sandbox(limits={"memory_bytes": 64 << 20}) as box:
        status = instance.wait(box, instance.exec(box, "sh", "-c", "kill -9 $$"))
        equal((status["status"], status["signal"]), ("signaled", 9))


def test_nobody_inside_becomes_a_child_of_the_keeper(instance):
    """Who makes a child for its own parent (CLONE_PARENT) would put one beside the programs of execs, whose ends the keeper tells by their numbers."""
    script = "import ctypes,os\nfor flags in (0x8000 | 17, 0x8000): print(ctypes.CDLL(None, use_errno=True).syscall(56, flags, 0, 0, 0, 0), ctypes.get_errno())"
    for profile in ("default", "strict", "debug"):
        with instance.sandbox(profile=profile) as box:
            equal(instance.ok(box, f"python3 -c '{script}'"), "-1 1\n-1 1\n", profile)


@require("root")
def test_the_limit_of_processes_is_named(instance):
    script = "import os,sys\ntry:\n  for i in range(200):\n    if os.fork() == 0:\n      import signal; signal.pause()\nexcept OSError as e:\n  sys.exit(e.errno)\n"
    with instance.sandbox(limits={"pids": 40}) as box:
        status = instance.wait(box, instance.exec(box, "python3", "-c", script))
        equal((status["status"], status["code"]), ("limit", 11))
        assert status["evidence"].get("forks_refused", 0) > 0, status
        equal(instance.wait_event("limit.hit", box)["data"]["limit"], "pids")
        equal(instance.ok(box, "echo alive"), "alive\n")
        equal(instance.get(f"/v1/sandboxes/{box}/usage")["forks_refused"], status["evidence"]["forks_refused"])


@require("root")
def test_a_limit_that_another_program_hit_is_not_named(instance):
    script = "import os,signal,sys\nmade=[]\ntry:\n  for i in range(200):\n    made.append(os.fork())\n    if made[-1] == 0: signal.pause()\nexcept OSError as e:\n" \
             "  for pid in made: os.kill(pid, 9), os.waitpid(pid, 0)\n  sys.exit(e.errno)\n"
    with instance.sandbox(limits={"pids": 40}) as box:
        equal(instance.wait(box, instance.exec(box, "python3", "-c", script))["status"], "limit")
        for _ in range(2):
            status = instance.wait(box, instance.exec(box, "sh", "-c", "exit 3"))
            equal((status["status"], status.get("code")), ("exited", 3))


def test_every_final_status_is_of_the_closed_set(instance):
    with instance.sandbox() as box:
        for script in ("exit 3", "kill -9 $$", "exit 0"):
            status = instance.wait(box, instance.exec(box, "sh", "-c", script))
            assert status["status"] in STATUSES, status
            for member in ("evidence", "started", "ended", "output_bytes", "cpu_us"):
                assert member in status, f"{member} is missing: {status}"


def test_the_command_passes_the_status_on(instance):
    with instance.sandbox() as box:
        instance.cay("exec", box, "--", "sh", "-c", "exit 9", want=9)
        instance.cay("exec", box, "--", "sh", "-c", "kill -15 $$", want=143)
        instance.cay("exec", box, "--", "no-such-command", want=127)
        instance.cay("exec", box, "--", "/etc/passwd", want=126)
        instance.cay("exec", "--timeout", "300ms", box, "--", "sleep", "1000", want=124)
        equal(instance.cay("exec", box, "--", "sh", "-c", "echo out; echo err >&2").stdout, "out\n")


def test_no_signal_is_ignored_or_blocked_at_the_start(instance):
    with instance.sandbox() as box:
        masks = dict(line.split(":\t") for line in instance.ok(box, "grep '^Sig[BI]' /proc/self/status").splitlines())
        equal(int(masks["SigBlk"], 16), 0, "blocked")
        equal(int(masks["SigIgn"], 16), 0, "ignored")
        # A pipeline whose reader goes away ends in silence.
        equal(instance.sh(box, "yes | head -n 1")[1:], ("y\n", ""))


@require("root")
def test_a_full_disk_is_told_as_what_it_is(instance):
    """Where bytes are counted for files too, none can be made when the bytes are used up."""
    with instance.sandbox(limits={"disk_bytes": 20 << 20}) as box:
        run = instance.exec(box, "sh", "-c", "head -c 40000000 /dev/urandom >/root/f")
        status = instance.wait(box, run)
        equal((status["status"], status["evidence"]["full"]), ("disk_full", "disk"))
        equal(instance.wait_event("limit.hit", box)["data"]["limit"], "disk")
