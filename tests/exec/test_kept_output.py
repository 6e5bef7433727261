# SPDX-License-Identifier: Apache-2.0
"""Output on disk: all of it when that was asked for, what the ring held when the sandbox stopped; readable at any offset, gaps told, crash or not."""

import os
import signal
import struct

from lib import cay, leaks
from lib.case import contains, equal, raises, require, timeout

RING = 65536
COUNT = 400000  # lines of `seq`: 2.7 MB, forty times the ring


def numbers(first, last):
    return "".join(f"{i}\n" for i in range(first, last + 1)).encode()


def read(instance, box, run, start=0):
    """All output from @start as {offset: byte string} runs, gaps, and the status."""
    stream = instance.attach(box, run, start)
    runs, gaps, status = [], [], None
    while (frame := stream.next()) is not None:
        kind, channel, payload = frame
        if kind in (cay.STDOUT, cay.STDERR):
            runs.append((struct.unpack("<Q", payload[:8])[0], payload[8:], kind))
            stream.send(cay.WINDOW, struct.pack("<I", len(payload) - 8), channel)
        elif kind == cay.GAP:
            gaps.append(struct.unpack("<QQ", payload))
        elif kind == cay.STATUS:
            status = payload
    stream.close()
    return runs, gaps, status


def whole(runs, start):
    at, text = start, b""
    for offset, part, _ in runs:
        equal(offset, at, "offset")
        text += part
        at += len(part)
    return text


def test_all_output_is_there_at_any_offset(instance):
    want = numbers(1, COUNT)
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", str(COUNT), ring_bytes=RING, spill_bytes=1 << 30)
        status = instance.wait(box, run)
        equal((status["output_bytes"], status["kept_bytes"]), (len(want), len(want)))
        for start in (0, 1, 999_999, len(want) - RING - 1, len(want) - 5, len(want)):
            runs, gaps, _ = read(instance, box, run, start)
            equal(gaps, [])
            equal(whole(runs, start), want[start:], f"from {start}")
        equal(instance.output(box, run), want)
        instance.post(f"/v1/sandboxes/{box}/stop")
        for start in (0, 1, 999_999, len(want) - 5, len(want)):
            runs, gaps, last = read(instance, box, run, start)
            equal((whole(runs, start), gaps), (want[start:], []))
            contains(last, b'"exited"')
        equal(instance.cay("logs", box, run["id"][:8]).stdout.encode(), want)
        equal(instance.cay("logs", box, "--from", "2700000").stdout.encode(), want[2700000:])


def test_streams_stay_apart_on_disk(instance):
    script = "i=0; while [ $i -lt 3000 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"
    out = "".join(f"o{i}\n" for i in range(3000))
    err = "".join(f"e{i}\n" for i in range(3000))
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", script, ring_bytes=4096, spill_bytes=1 << 20)
        instance.wait(box, run)
        for _ in ("running", "stopped"):
            done = instance.cay("logs", box)
            equal((done.stdout, done.stderr), (out, err))
            equal(instance.output(box, run, "stderr"), err.encode())
            instance.post(f"/v1/sandboxes/{box}/stop")


def test_beyond_its_size_the_middle_is_a_gap(instance):
    want = numbers(1, COUNT)
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", str(COUNT), ring_bytes=RING, spill_bytes=100_000)
        status = instance.wait(box, run)
        equal(status["kept_bytes"], 100_000)
        gap = [(100_000, len(want) - RING)]
        for _ in ("running", "stopped"):
            runs, gaps, last = read(instance, box, run)
            equal(gaps, gap)
            equal(b"".join(part for _, part, _ in runs), want[:100_000] + want[-RING:])
            assert last is not None
            contains(instance.cay("logs", box).stderr, f"{gap[0][1] - gap[0][0]} bytes of output are no longer kept")
            instance.post(f"/v1/sandboxes/{box}/stop")
        hit = instance.wait_event("limit.hit", box, lambda e: e["exec"] == run["id"])
        equal((hit["data"]["limit"], hit["data"]["detail"]["kept_bytes"]), ("output", 100_000))


def test_changes_of_stream_count_too(instance):
    """Each of them takes room on disk, too: a byte here and a byte there are seventeen times as much."""
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "while read go; do printf o; read go; printf e >&2; done", stdin=True, spill_bytes=4096)
        stream = instance.attach(box, run)
        for _ in range(150):
            for kind in (cay.STDOUT, cay.STDERR):
                stream.send(cay.STDIN, b"go\n")
                stream.until(kind)
        stream.close()
        files = [os.path.join(instance.state, "exec", box, f"{run['id']}.{part}") for part in ("bytes", "runs")]
        kept, runs = map(os.path.getsize, files)
        equal((kept, runs), (241, 241 * 16))  # the first run is for nothing
        hit = instance.wait_event("limit.hit", box, lambda e: e["exec"] == run["id"])
        equal((hit["data"]["limit"], hit["data"]["detail"]["kept_bytes"]), ("output", kept))


def test_without_asking_the_ring_is_kept_at_the_end(instance):
    want = numbers(1, COUNT)
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", str(COUNT), ring_bytes=RING)
        instance.wait(box, run)
        instance.post(f"/v1/sandboxes/{box}/stop")
        runs, gaps, _ = read(instance, box, run)
        equal((gaps, b"".join(part for _, part, _ in runs)), ([(0, len(want) - RING)], want[-RING:]))


def test_a_command_that_is_stopped_leaves_its_output(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo before; cat", stdin=True)
        instance.attach(box, run).until(cay.STDOUT)
        instance.post(f"/v1/sandboxes/{box}/stop")
        equal(instance.output(box, run), b"before\n")


@require("root", "btrfs", "loop")
def unreadable(instance, box, run):
    """What is on disk of the output of @run is there, and cannot be opened."""
    path = os.path.join(instance.state, "exec", box, f"{run['id']}.bytes")
    os.rename(path, path + ".away")
    os.symlink(path + ".away", path)


def test_who_attaches_is_told_that_the_output_cannot_be_read(instance):
    """A stream that only ends is one that goes on at the next server."""
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo text; exit 3")
        instance.wait(box, run)
        instance.post(f"/v1/sandboxes/{box}/stop")
        unreadable(instance, box, run)
        contains(raises(cay.ApiError, instance.attach(box, run).collect).body["message"], run["id"])


def test_it_counts_against_the_disk_limit(instance):
    """100 MB of limit, 60 MB of output on disk: the payload can write less than 40 MB more, and a command that goes on writing output is not harmed."""
    with instance.sandbox(limits={"disk_bytes": 100 << 20}) as box:
        run = instance.exec(box, "head", "-c", "60000000", "/dev/zero", ring_bytes=RING, spill_bytes=1 << 30)
        equal(instance.wait(box, run)["kept_bytes"], 60_000_000)
        done = instance.sh(box, "head -c 60000000 /dev/urandom > /var/tmp/f && sync /var/tmp/f")
        assert done[0]["status"] in ("disk_full", "exited") and done[0].get("code") != 0, done
        instance.ok(box, "rm -f /var/tmp/f; sync")
        more = instance.exec(box, "head", "-c", "90000000", "/dev/zero", ring_bytes=RING, spill_bytes=1 << 30)
        status = instance.wait(box, more)
        equal((status["status"], status["code"], status["output_bytes"]), ("exited", 0, 90_000_000))
        assert status["kept_bytes"] < 45_000_000, status


def test_a_slow_reader_does_not_hold_the_command_up(instance):
    """Who is behind reads from disk: the command ends while its client has not read a byte."""
    want = numbers(1, COUNT)
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", f"read go; seq 1 {COUNT}", stdin=True, ring_bytes=RING, spill_bytes=1 << 30)
        stream = instance.attach(box, run)
        stream.send(cay.STDIN, b"go\n")
        equal(instance.wait(box, run)["code"], 0)
        out, _, status = stream.collect()
        equal((out, status["code"]), (want, 0))


@require("root")
@timeout(120)
def test_it_outlives_the_keeper_and_the_server(fresh):
    want = numbers(1, COUNT)
    with fresh.sandbox() as box:
        run = fresh.exec(box, "sh", "-c", f"seq 1 {COUNT}; cat", stdin=True, ring_bytes=RING, spill_bytes=1 << 30)
        stream = fresh.attach(box, run)
        seen = 0
        while seen < len(want):
            _, channel, payload = stream.until(cay.STDOUT)[-1]
            seen += len(payload) - 8
            stream.send(cay.WINDOW, struct.pack("<I", len(payload) - 8), channel)
        stream.close()
        fresh.kill()
        fresh.start()
        equal(fresh.output(box, run), want)
        os.kill(leaks.keeper_of(box), signal.SIGKILL)
        fresh.wait_event("sandbox.failed", box)
        runs, gaps, last = read(fresh, box, run)
        equal((whole(runs, 0), gaps), (want, []))
        contains(last, b'"lost"')
        equal(fresh.cay("logs", box).stdout.encode(), want)


def test_it_goes_with_its_sandbox(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", "10", spill_bytes=1 << 20)
        instance.wait(box, run)
        place = os.path.join(instance.state, "exec", box)
        equal(sorted(os.listdir(place)), [f"{run['id']}.bytes", f"{run['id']}.runs"])
    assert not os.path.exists(place), place


def test_logs_of_a_running_command_show_what_is_there(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo here; read more", stdin=True)
        instance.attach(box, run).until(cay.STDOUT)
        equal(instance.cay("logs", box).stdout, "here\n")


def test_the_commands_ask_for_it(instance):
    with instance.sandbox() as box:
        equal(instance.cay("exec", "--keep-output", "1G", "--output-ring", "64K", box, "--", "seq", "1", "100000").stdout.encode(), numbers(1, 100000))
        equal(instance.cay("logs", box).stdout.encode(), numbers(1, 100000))
        instance.cay("exec", "--keep-output", "lots", box, "--", "true", want=64)


@require("root")
def test_a_keeper_that_dies_while_writing_leaves_the_beginning(tmp):
    """Killed between a run's note and its bytes: what was written before is there, nothing is in the wrong stream."""
    instance = cay.Instance(tmp)
    try:
        point = "outfile.run_written"
        instance.start(CAY_FAULT=f"{point}:4=kill")
        with instance.sandbox() as box:
            run = instance.exec(box, "sh", "-c", "for i in 1 2 3 4 5 6; do read go; echo out$i; read go; echo err$i >&2; done", stdin=True, spill_bytes=1 << 20)
            stream = instance.attach(box, run)
            for kind in (cay.STDOUT, cay.STDERR, cay.STDOUT):
                stream.send(cay.STDIN, b"go\n")
                stream.until(kind)
            stream.send(cay.STDIN, b"go\n")
            instance.wait_event("sandbox.failed", box)
            done = instance.cay("logs", box)
            equal((done.stdout, done.stderr), ("out1\nout2\n", "err1\n"))
            stream.close()
    finally:
        instance.close()


def test_a_slow_reader_has_all_of_it_though_the_sandbox_is_stopped_meanwhile(instance):
    """Its keeper ends in the middle, and what it still had is on disk then. What looked whole was the first part."""
    want = numbers(1, 3_000_000)
    for headers in ({}, {"Accept": "application/vnd.cay.frames"}):
        with instance.sandbox() as box:
            run = instance.exec(box, "seq", "1", "3000000", ring_bytes=RING, spill_bytes=1 << 30)
            instance.wait(box, run)
            slow = cay.UnixConnection(instance.socket, 60)
            slow.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output", headers=headers)
            answer = slow.getresponse()
            text = answer.read(1000)
            instance.post(f"/v1/sandboxes/{box}/stop")
            text += answer.read()
            slow.close()
            if headers:
                frames, at = [], 0
                while at < len(text):
                    size, kind = struct.unpack_from("<IB", text, at)
                    frames.append((kind, text[at + 8:at + 8 + size]))
                    at += 8 + size
                equal((len(frames) > 0, frames[-1][0]), (True, cay.STATUS))
                text = b"".join(part[8:] for kind, part in frames if kind == cay.STDOUT)
            equal((len(text), text == want), (len(want), True))


def test_who_is_attached_has_all_of_it_though_the_sandbox_is_stopped_meanwhile(instance):
    """A status that came while output was missing was taken for the end of it."""
    want = numbers(1, 1_000_000)
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", "1000000", ring_bytes=RING, spill_bytes=1 << 30)
        instance.wait(box, run)
        stream = instance.attach(box, run)
        frames = stream.until(cay.STDOUT)
        instance.post(f"/v1/sandboxes/{box}/stop")
        while (frame := stream.next()) is not None:
            frames.append(frame)
        stream.close()
        parts = [(struct.unpack("<Q", payload[:8])[0], payload[8:], kind) for kind, _, payload in frames if kind == cay.STDOUT]
        equal((len(whole(parts, 0)), whole(parts, 0) == want, frames[-1][0]), (len(want), True, cay.STATUS))
