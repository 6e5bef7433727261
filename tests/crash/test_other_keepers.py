# SPDX-License-Identifier: Apache-2.0
"""Keepers of other versions of cay: they outlive the server that started them, and the next one may be newer or older than they are.

Somebody stands between the server and the keeper and changes what the keeper says, so that it says what one of another version would.
"""

import contextlib
import http.client
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lib import cay, leaks  # noqa: E402
from lib.between import Between  # noqa: E402
from lib.case import contains, equal, raises, require  # noqa: E402
from stops import stopped  # noqa: E402

TIMEOUT = 120
@contextlib.contextmanager
def next_server(instance, box, hello, **more):
    """The next server, which hears of the keeper of @box what @hello makes of it; afterwards one that hears the truth."""
    instance.kill()
    with Between(instance, box, hello, **more) as between:
        instance.start()
        yield between
        instance.kill()
    instance.start()


def running(instance):
    """A sandbox with a command that counts what it is told, and that command."""
    box = instance.post("/v1/sandboxes", {})["id"]
    run = instance.exec(box, "sh", "-c", "while read line; do echo heard $line; done; echo end", stdin=True)
    return box, run, instance.get(f"/v1/sandboxes/{box}")["init_pid"]


def goes_on(instance, box, run, init, word):
    """The same processes are there, and answer."""
    equal(instance.get(f"/v1/sandboxes/{box}")["init_pid"], init)
    instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin", word.encode() + b"\n")
    cay.wait_until(lambda: f"heard {word}\n".encode() in instance.output(box, run), 30, "the command does not hear")
    equal(instance.ok(box, "echo another"), "another\n")


@require("root", "cgroup2")
def test_an_older_keeper_goes_on_under_a_newer_server(fresh):
    """It says less of itself, and knows fewer verbs: its commands go on, others start; what it cannot do is an error."""
    box, run, init = running(fresh)

    def older(hello):
        return {member: value for member, value in hello.items() if member not in ("image", "version", "held", "gateway", "fork_pid")}
    with next_server(fresh, box, older, knows=lambda verb: verb not in ("ready", "examine", "capture", "changed", "hold")) as between:
        goes_on(fresh, box, run, init, "one")
        error = raises(cay.ApiError, fresh.post, f"/v1/sandboxes/{box}/snapshots", {"name": "none"})
        equal(error.code, "unsupported")
        contains(error.message, "older version")
        fresh.post(f"/v1/sandboxes/{box}/snapshots", {"name": "files", "files_only": True})
        assert "adopt" in between.verbs, between.verbs
        goes_on(fresh, box, run, init, "two")
    goes_on(fresh, box, run, init, "three")
    fresh.call("DELETE", "/v1/snapshots/files")


@require("root", "cgroup2")
def test_what_a_newer_keeper_says_besides_is_passed_over(fresh):
    box, run, init = running(fresh)
    with next_server(fresh, box, lambda hello: {**hello, "image": hello["image"] + 1, "version": "99", "later": {"a": [1, 2]}}):
        goes_on(fresh, box, run, init, "one")
        error = raises(cay.ApiError, fresh.post, f"/v1/sandboxes/{box}/snapshots", {"name": "none"})
        equal(error.code, "unsupported")
        contains(error.message, "newer version")
    goes_on(fresh, box, run, init, "two")


def check_refused(fresh, hello, said):
    box, run, init = running(fresh)
    fresh.kill()
    with Between(fresh, box, hello) as between:
        with contextlib.suppress(RuntimeError, OSError, http.client.HTTPException):  # it may have answered before it knew
            fresh.start()
        equal(fresh.process.wait(60), 1)
        contains(fresh.log_tail(), said)
        equal(between.verbs, [], "it was spoken to")
    fresh.answered = True
    fresh.start()
    goes_on(fresh, box, run, init, "one")


@require("root", "cgroup2")
def test_a_server_leaves_a_keeper_alone_whose_protocol_it_does_not_know(fresh):
    """It ends, as it does with a catalogue that is too new: neither are the processes ended, nor is the sandbox started a second time beside them."""
    check_refused(fresh, lambda hello: {**hello, "protocol": hello["protocol"] + 1}, "speaks version 2 of the protocol")


@require("root", "cgroup2")
def test_a_server_that_serves_goes_on_when_such_a_keeper_answers_late(fresh):
    """Its sandbox stays busy, and is left alone; also when all are to be stopped."""
    box, run, init = running(fresh)
    other = fresh.post("/v1/sandboxes", {})["id"]
    fresh.kill()
    with Between(fresh, box, lambda hello: {**hello, "protocol": hello["protocol"] + 1}) as between:
        with stopped(leaks.keeper_of(box)):
            fresh.start(CAY_FAULT="sandbox.awaited=error")
            equal(fresh.get(f"/v1/sandboxes/{box}")["awaited"], True)
        cay.wait_until(lambda: "speaks version 2 of the protocol" in fresh.log_tail(), 30, "it is seen")
        fresh.ok(other, "true")
        for path, body in (("execs", {"argv": ["true"]}), ("stop", {}), ("start", {})):
            error = raises(cay.ApiError, fresh.post, f"/v1/sandboxes/{box}/{path}", body)
            equal((error.code, "protocol" in error.message), ("busy", True), error.message)
        equal(fresh.get(f"/v1/sandboxes/{box}")["awaited"], True)
        fresh.post("/v1/shutdown", {"sandboxes": "stop"})
        equal(fresh.process.wait(60), 0)
        equal(between.verbs, [], "it was spoken to")
    fresh.start()
    equal(fresh.get(f"/v1/sandboxes/{other}")["state"], "stopped")
    goes_on(fresh, box, run, init, "one")


@require("root", "cgroup2")
def test_and_one_that_says_none(fresh):
    check_refused(fresh, lambda hello: {m: v for m, v in hello.items() if m != "protocol"}, "speaks version 0 of the protocol")
