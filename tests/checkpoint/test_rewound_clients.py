# SPDX-License-Identifier: Apache-2.0
"""Who is attached to a command when its sandbox is rewound to a state that the command is in goes on with it; to another one, it has ended."""

import os
import subprocess
import sys

from lib import cay
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, say, start, wait_output  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
COUNTS = """n=0; echo ready; while read line; do n=$((n + 1)); echo $n $line; done; echo over"""


def client(instance, *argv):
    return instance.popen([os.path.join(instance.programs, "cay"), *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def write(process, text):
    process.stdin.write(text)
    process.stdin.flush()


def starts(instance, box):
    process = client(instance, "exec", box, "--", "/bin/sh", "-c", COUNTS)
    equal(process.stdout.readline(), "ready\n")
    return process, instance.get(f"/v1/sandboxes/{box}/execs")["execs"][-1]["id"]


def ends(processes, text, code):
    """All of them hear of the end. The first one closes its input."""
    processes[0].stdin.close()
    for process in processes:
        equal((process.stdout.read(), process.wait(60)), (text, code))
        process.stdout.close()
    for process in processes[1:]:
        process.stdin.close()


def snapshot(instance, box, **more):
    return instance.post(f"/v1/sandboxes/{box}/snapshots", more)["id"]


def rewind(instance, box, to):
    equal(instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": to})["state"], "running")


def ended(instance, box, run):
    return [e for e in instance.events(box) if e["type"] == "exec.ended" and e.get("exec") == run]


@require(*NEEDS)
def test_clients_go_on_with_what_goes_on(instance):
    """Their output goes on where the command does, and what they write later arrives once."""
    with instance.sandbox() as box:
        first, run = starts(instance, box)
        second = client(instance, "attach", box, run)
        equal(second.stdout.readline(), "ready\n")
        write(first, "before\n")
        for process in (first, second):
            equal(process.stdout.readline(), "1 before\n")
        point = snapshot(instance, box)
        for n in range(3):
            for line in ("taken back", "this too"):
                write(first, f"{line} {n}\n")
            for process in (first, second):
                equal([process.stdout.readline() for _ in range(2)], [f"2 taken back {n}\n", f"3 this too {n}\n"])
            rewind(instance, box, point)
            equal(instance.get(f"/v1/sandboxes/{box}/execs/{run}")["state"], "running")
        for line in ("after", "and again"):
            write(first, f"{line}\n")
        for process in (first, second):
            equal([process.stdout.readline() for _ in range(2)], ["2 after\n", "3 and again\n"])
        equal(ended(instance, box, run), [])
        ends([first, second], "over\n", 0)
        equal(len(ended(instance, box, run)), 1)


@require(*NEEDS)
def test_who_follows_the_output_goes_on(instance):
    """The end that the command had when its sandbox was rewound is none."""
    with instance.sandbox() as box:
        run = start(instance, box, "/bin/sh", "-c", COUNTS)
        say(instance, box, run, "before\n")
        wait_output(instance, box, run, b"1 before\n")
        point = snapshot(instance, box)
        followers = [client(instance, "logs", "--follow", box) for _ in range(2)]
        for process in followers:
            equal([process.stdout.readline() for _ in range(2)], ["ready\n", "1 before\n"])
        for n in range(3):
            say(instance, box, run, f"taken back {n}\n")
            equal([process.stdout.readline() for process in followers], [f"2 taken back {n}\n"] * 2)
            if n == 1:
                instance.post(f"/v1/sandboxes/{box}/suspend")
            rewind(instance, box, point)
        say(instance, box, run, "after\n")
        equal([process.stdout.readline() for process in followers], ["2 after\n"] * 2)
        instance.raw("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin?close=true", b"")
        for process in followers:
            equal((process.stdout.read(), process.wait(60)), ("over\n", 0))
            process.stdout.close()
            process.stdin.close()


@require(*NEEDS)
def test_a_slow_reader_has_all_of_it_though_it_is_rewound_meanwhile(instance):
    """What there was when it was asked for, in the middle of which the keeper is another one."""
    want = "".join(f"{i}\n" for i in range(1, 1_000_001)).encode()
    with instance.sandbox() as box:
        run = instance.exec(box, "/bin/sh", "-c", "seq 1 1000000; exec sleep 1000", ring_bytes=16 << 20)
        cay.wait_until(lambda: len(instance.output(box, run)) == len(want), 60, "all of it is written")
        point = snapshot(instance, box)
        slow = cay.UnixConnection(instance.socket, 60)
        slow.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output")
        answer = slow.getresponse()
        text = answer.read(1000)
        rewind(instance, box, point)
        text += answer.read()
        slow.close()
        equal((len(text), text == want), (len(want), True))


@require(*NEEDS)
def test_output_waits_for_who_comes_back(instance):
    """What a command writes before its clients are back behind a resume or a rewind is not lost, however much it is."""
    for back in ("resume", "rewind"):
        with instance.sandbox() as box:
            process = instance.popen([os.path.join(instance.programs, "cay"), "exec", box, "--", "head", "-c", "40000000", "/dev/zero"],
                                     bufsize=0, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            equal(process.stdout.read(1), b"\0")
            if back == "rewind":
                rewind(instance, box, snapshot(instance, box))
            else:
                for verb in ("suspend", "resume"):
                    instance.post(f"/v1/sandboxes/{box}/{verb}")
            for _ in range(5):  # a command that waits for nobody would have written it all
                instance.ok(box, "true")
            out, err = process.communicate(timeout=60)
            equal((err, process.returncode), (b"", 0), back)
            if back == "resume":  # behind a rewind some of it comes twice
                equal(len(out), 39999999)


@require(*NEEDS)
def test_input_after_a_rewind_and_suspensions(instance):
    """What is written later arrives, and once."""
    with instance.sandbox() as box:
        process, _ = starts(instance, box)
        point = snapshot(instance, box)
        write(process, "x\n")
        equal(process.stdout.readline(), "1 x\n")
        rewind(instance, box, point)
        for n in range(1, 4):
            write(process, f"{n}\n")
            equal(process.stdout.readline(), f"{n} {n}\n")
            instance.post(f"/v1/sandboxes/{box}/suspend")
            instance.post(f"/v1/sandboxes/{box}/resume")
        ends([process], "over\n", 0)


@require(*NEEDS)
def test_a_command_of_later_has_ended(instance):
    with instance.sandbox() as box:
        old, _ = starts(instance, box)
        point = snapshot(instance, box)
        new, run = starts(instance, box)
        rewind(instance, box, point)
        ends([new], "", 137)
        equal([e["data"]["status"] for e in ended(instance, box, run)], ["killed"])
        ends([old], "over\n", 0)


@require(*NEEDS)
def test_all_end_with_a_rewind_to_files(instance):
    with instance.sandbox() as box:
        process, run = starts(instance, box)
        rewind(instance, box, snapshot(instance, box, files_only=True))
        ends([process], "", 137)
        equal([e["data"]["status"] for e in ended(instance, box, run)], ["killed"])


@require(*NEEDS)
def test_who_waits_while_it_is_suspended_goes_on_with_the_snapshot(instance):
    with instance.sandbox() as box:
        process, run = starts(instance, box)
        point = snapshot(instance, box)
        write(process, "taken back\n")
        equal(process.stdout.readline(), "1 taken back\n")
        instance.post(f"/v1/sandboxes/{box}/suspend")
        rewind(instance, box, point)
        write(process, "after\n")
        equal(process.stdout.readline(), "1 after\n")
        equal(ended(instance, box, run), [])
        ends([process], "over\n", 0)


@require(*NEEDS)
def test_who_only_waits_for_the_end_goes_on_waiting(instance):
    with instance.sandbox() as box:
        process, run = starts(instance, box)
        waits = client(instance, "attach", box, run)
        equal(waits.stdout.readline(), "ready\n")
        rewind(instance, box, snapshot(instance, box))
        ends([process], "over\n", 0)
        equal(instance.wait(box, {"id": run})["code"], 0)
        ends([waits], "over\n", 0)


@require(*NEEDS)
def test_a_rewind_that_fails_when_all_had_ended_for_it(fresh):
    """Then they have ended."""
    fresh.stop()
    fresh.start(CAY_FAULT="rewind.commit.before=error")
    with fresh.sandbox() as box:
        process, run = starts(fresh, box)
        point = snapshot(fresh, box)
        status, _, text = fresh.raw("POST", f"/v1/sandboxes/{box}/rewind", b'{"snapshot": "%s"}' % point.encode(), {"Content-Type": "application/json"})
        assert status >= 400, text
        ends([process], "", 137)
        equal([e["data"]["status"] for e in ended(fresh, box, run)], ["killed"])


def stopped_output(instance, box, run):
    instance.post(f"/v1/sandboxes/{box}/stop", {})
    return instance.output(box, {"id": run}).decode()


@require(*NEEDS)
def test_output_on_disk_goes_back_too(instance):
    """What a command wrote and took back is in no file: of one that keeps all of its output there, and of one whose ring was written when its processes ended for the rewind."""
    for options in ({"spill_bytes": 1 << 20}, {}):
        with instance.sandbox() as box:
            run = instance.exec(box, "/bin/sh", "-c", COUNTS, stdin=True, **options)["id"]
            ask(instance, box, {"id": run}, "before")
            point = snapshot(instance, box)
            for _ in range(2):
                ask(instance, box, {"id": run}, "taken back, and longer than what comes instead")
                rewind(instance, box, point)
            ask(instance, box, {"id": run}, "after")
            equal(instance.output(box, {"id": run}).decode(), "ready\n1 before\n2 after\n")
            equal(stopped_output(instance, box, run), "ready\n1 before\n2 after\n")
