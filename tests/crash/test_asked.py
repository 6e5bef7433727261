# SPDX-License-Identifier: Apache-2.0
"""A keeper that does not answer in time may start still what it was asked for: that it may is not forgotten, whoever asked. Of one that ends before it answers, output is what is kept."""

import os
import signal
import subprocess
import sys

from lib import cay, leaks
from lib.case import equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402
from stops import Asked, stopped  # noqa: E402

# the keeper stands still before it starts a command, and whoever asked it waits for a millisecond instead of half a minute
SILENT = {"CAY_FAULT": "exec.ask.sent:1=error,keeper.launch.found:1=hold"}


def silent_keeper(instance):
    """Pid of the one that stands still, or None."""
    held = [pid for pid, (_, state, _) in leaks.processes().items()
            if state == "T" and leaks.read(f"/proc/{pid}/cmdline").startswith("cay-keeper\0") and leaks.cgroup_tags([pid]) & instance.tags]
    return held[0] if held else None


@require("root", "cgroup2")
def test_the_hook_of_a_fork_that_is_started_late_is_known(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        instance.exec(box, "sleep", "1000", env={"CAY_FORK_HOOK": "/bin/true"})
        instance.stop()
        instance.start(**SILENT)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]
        [hook] = [e for e in instance.get(f"/v1/sandboxes/{fork}/execs")["execs"] if e["argv"] == ["/bin/true"]]
        equal(hook["state"], "starting")
        os.kill(silent_keeper(instance), signal.SIGCONT)
        equal(instance.wait(fork, hook)["code"], 0)


@require("root")
def test_the_check_of_an_apply_that_may_have_been_started_has_not_failed(tmp):
    """The fork that it would run in goes, and nobody can say that it has not run there."""
    top = os.path.join(tmp, "project")
    os.mkdir(top)
    with own_instance(tmp) as instance:
        instance.start(**SILENT)
        box = instance.post("/v1/sandboxes", {"name": "box", "mounts": [{"source": top, "target": "/p", "mode": "cow"}]})["id"]
        asked = Asked(instance, "POST", f"/v1/sandboxes/{box}/apply", {"if_argv": ["true"]})
        cay.wait_until(lambda: silent_keeper(instance), 30, "its keeper stands still")
        cay.wait_until(lambda: len(instance.get("/v1/sandboxes")["sandboxes"]) == 1, 30, "it is given up")
        os.kill(silent_keeper(instance), signal.SIGCONT)
        equal(asked.answer()[1]["error"]["code"], "timeout")
        told = [e["type"] for e in instance.events() if e["type"].startswith("exec.")]
        equal((told[0], "exec.failed" in told), ("exec.created", False))


@require("root", "cgroup2")
def test_a_command_that_is_asked_for_while_the_processes_are_ended_is_refused(tmp):
    """Their keeper reads nothing any more: it would be starting for ever."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="keeper.suspend.marked=hold")
        instance.post("/v1/sandboxes", {"name": "box"})
        instance.exec("box", "sleep", "1000")
        suspended = Asked(instance, "POST", "/v1/sandboxes/box/suspend")
        cay.wait_until(lambda: silent_keeper(instance), 30, "its keeper stands still")
        asked = Asked(instance, "POST", "/v1/sandboxes/box/execs", {"argv": ["true"]})
        os.kill(silent_keeper(instance), signal.SIGCONT)
        equal((suspended.answer()[0], asked.answer()[1].get("error", {}).get("code")), (200, "busy"))
        instance.post("/v1/sandboxes/box/resume")
        equal([run["argv"] for run in instance.get("/v1/sandboxes/box/execs")["execs"]], [["sleep", "1000"]])


@require("root")
def test_a_command_whose_keeper_ends_before_it_has_answered_is_an_exec(tmp):
    """Its status tells what became of it, whoever ended the keeper: nobody can say that it has not run."""
    def lost(ask):
        with stopped(leaks.keeper_of(box)):
            asked = Asked(instance, "POST", "/v1/sandboxes/box/execs", {"argv": ["true"]})
            other = Asked(instance, *ask) if ask else None
            os.kill(leaks.keeper_of(box), 9)
        status, made = asked.answer()
        if other:
            equal(other.answer()[0] // 100, 2)
        equal((status, made.get("state")), (201, "ended"))
        return made["status"]["status"]

    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        first = instance.post("/v1/sandboxes/box/snapshots", {"files_only": True})["id"]
        equal(lost(("POST", "/v1/sandboxes/box/rewind", {"snapshot": first})), "killed")
        equal(lost(("POST", "/v1/sandboxes/box/stop")), "killed")
        instance.post("/v1/sandboxes/box/start")
        equal(lost(None), "lost")
        instance.post("/v1/sandboxes/box/start")
        equal(lost(("DELETE", "/v1/sandboxes/box?force=true")), "killed")


@require("root")
def test_cay_exec_says_what_became_of_it(tmp):
    """Also where its sandbox is gone when it would attach."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        with stopped(leaks.keeper_of(box)):
            with instance.popen([os.path.join(instance.programs, "cay"), "exec", "box", "--", "true"], stderr=subprocess.PIPE) as command:
                cay.wait_until(lambda: instance.get("/v1/sandboxes/box/execs")["execs"], 30, "it has asked")
                removed = Asked(instance, "DELETE", "/v1/sandboxes/box?force=true")
                os.kill(leaks.keeper_of(box), 9)
                said = command.communicate()[1]
        equal((removed.answer()[0], command.returncode), (204, 137))
        equal(said, b"cay: killed, with everything that it started (reason the sandbox was removed)\n")


@require("root")
def test_a_command_that_is_asked_for_behind_the_end_of_its_keeper_is_refused(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        keeper = leaks.keeper_of(instance.post("/v1/sandboxes", {"name": "box"})["id"])
        with stopped(instance.programs_named("cay-spawn")[0]):  # who would say that it has ended
            os.kill(keeper, 9)
            cay.wait_until(lambda: leaks.processes()[keeper][1] == "Z", 30, "its keeper has ended")
            for _ in range(2):  # the end of its connection is seen
                instance.get("/v1/version")
            refused = raises(cay.ApiError, instance.exec, "box", "true")
        equal((refused.code, refused.message), ("busy", "the processes of sandbox 'box' are just being ended"))
        equal(instance.get("/v1/sandboxes/box/execs")["execs"], [])


@require("root")
def test_output_of_a_keeper_that_dies_when_it_is_asked_for_it(tmp):
    """It is what is kept of it, as a moment later."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box"})["id"]
        run = instance.exec("box", "echo", "said")
        equal(instance.wait("box", run)["code"], 0)
        with stopped(leaks.keeper_of(box)):
            asked = Asked(instance, "GET", f"/v1/sandboxes/box/execs/{run['id']}/output")
            os.kill(leaks.keeper_of(box), 9)
        equal(asked.answer()[0], 200)


@require("root", "cgroup2")
def test_who_asks_while_a_sandbox_is_being_started_is_told_so(tmp):
    """Not of a stack that is no array, nor of an older version of cay."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="keeper.start.mounted=hold")
        asked = Asked(instance, "POST", "/v1/sandboxes", {"name": "box"})
        cay.wait_until(lambda: silent_keeper(instance), 30, "its keeper stands still")
        try:
            files = raises(cay.ApiError, instance.get, "/v1/sandboxes/box/files?path=/etc/passwd")
            doctor = raises(cay.ApiError, instance.get, "/v1/sandboxes/box/doctor")
        finally:
            os.kill(silent_keeper(instance), signal.SIGCONT)
        equal((files.code, files.message), ("busy", "sandbox 'box' is being started or ended: its files can be read behind that"))
        equal((doctor.code, doctor.message), ("state", "sandbox 'box' is creating: it has no processes"))
        equal(asked.answer()[0], 201)
