# SPDX-License-Identifier: Apache-2.0
"""Contract EXEC: output is kept by offset; clients come and go, and read what is theirs exactly once."""

import json
import struct

from lib import cay
from lib.case import equal, raises


def offsets(frames):
    """[(offset, bytes)] of the output frames."""
    return [(struct.unpack("<Q", f[2][:8])[0], f[2][8:]) for f in frames if f[0] in (cay.STDOUT, cay.STDERR)]


def to_end(stream):
    frames = []
    while (frame := stream.next()) is not None:
        frames.append(frame)
        if frame[0] in (cay.STDOUT, cay.STDERR):
            stream.send(cay.WINDOW, struct.pack("<I", len(frame[2]) - 8), frame[1])
    return frames


def joined(frames, start):
    """The bytes of the frames, which must follow each other without gap or overlap from @start on."""
    text = b""
    for at, part in offsets(frames):
        equal(at, start + len(text), "offset")
        text += part
    return text


def test_an_unknown_exec(instance):
    with instance.sandbox() as box:
        for path in (f"/v1/sandboxes/{box}/execs/nope", f"/v1/sandboxes/{box}/execs/nope/output"):
            equal(raises(cay.ApiError, instance.get, path).code, "not_found")
        equal(raises(cay.ApiError, instance.attach, box, "nope").code, "not_found")


def test_an_offset_beyond_the_end(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "echo", "hello")
        instance.wait(box, run)
        try:
            equal(instance.output(box, run, start=1 << 40), b"")
        except cay.ApiError as error:
            equal(error.code, "invalid")


def test_output_is_the_same_however_often_it_is_read(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", "20000")
        instance.wait(box, run)
        want = "".join(f"{i}\n" for i in range(1, 20001)).encode()
        equal(instance.output(box, run), want)
        equal(instance.output(box, run), want)
        equal(instance.output(box, run, start=1000), want[1000:])
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["status"]["output_bytes"], len(want))


def test_attach_detach_and_attach_at_an_offset(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo first; read line; echo second $line; read line; echo third $line", stdin=True)
        stream = instance.attach(box, run)
        seen = b""
        while seen != b"first\n":
            frame = stream.next()
            seen += frame[2][8:] if frame[0] == cay.STDOUT else b""
        stream.close()  # detached: the command goes on
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        stream = instance.attach(box, run, start=len(seen))
        stream.send(cay.STDIN, b"x\n")
        stream.send(cay.STDIN, b"y\n")
        frames = to_end(stream)
        equal(joined(frames, len(seen)), b"second x\nthird y\n")
        status = [json.loads(f[2]) for f in frames if f[0] == cay.STATUS]
        equal([(s["status"], s["code"]) for s in status], [("exited", 0)])
        # And once more, from the start, after it has ended.
        equal(joined(to_end(instance.attach(box, run)), 0), b"first\nsecond x\nthird y\n")


def test_two_clients_see_the_same(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "read go; seq 1 5000", stdin=True)
        one, two = instance.attach(box, run), instance.attach(box, run)
        one.send(cay.STDIN, b"go\n")
        want = "".join(f"{i}\n" for i in range(1, 5001)).encode()
        equal(joined(to_end(one), 0), want)
        equal(joined(to_end(two), 0), want)


def test_the_ring_says_what_it_lost(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "seq", "1", "100000", ring_bytes=65536)
        status = instance.wait(box, run)
        want = "".join(f"{i}\n" for i in range(1, 100001)).encode()
        equal(status["output_bytes"], len(want))
        frames = to_end(instance.attach(box, run))
        gaps = [struct.unpack("<QQ", f[2]) for f in frames if f[0] == cay.GAP]
        parts = offsets(frames)
        if gaps:
            equal(len(gaps), 1)
            equal(gaps[0][0], 0)
            equal(parts[0][0], gaps[0][1])
        equal(joined(frames, parts[0][0]), want[parts[0][0]:])


def test_the_header_says_where_the_bytes_start(instance):
    """Cay-Offset: of a command that runs, that has ended, whose beginning is gone, and whose sandbox has stopped."""
    with instance.sandbox() as box:
        def read(run, start, more=""):
            status, head, text = instance.raw("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output?from={start}{more}")
            equal(status, 200)
            return int({k.lower(): v for k, v in head.items()}["cay-offset"]), text

        runs = instance.exec(box, "sh", "-c", "echo 0123456789; read line", stdin=True)
        whole = instance.exec(box, "sh", "-c", "echo 0123456789")
        cut = instance.exec(box, "sh", "-c", "seq 10000", ring_bytes=4096)
        size = sum(len(f"{n}\n") for n in range(1, 10001))
        for run in (whole, cut):
            instance.wait(box, run)
        cay.wait_until(lambda: read(runs, 0)[1], 60, "output of the command that runs")
        for run in (runs, whole):
            equal([read(run, start) for start in (0, 4, 11, 99)], [(0, b"0123456789\n"), (4, b"456789\n"), (11, b""), (99, b"")])
        equal(read(whole, 4, "&follow=true"), (4, b"456789\n"))
        at, text = read(cut, 0)
        equal((at + len(text), at >= size - 4096), (size, True))
        instance.post(f"/v1/sandboxes/{box}/stop")
        equal(read(whole, 4), (4, b"456789\n"))
        equal(read(cut, 0), (at, text))


def test_nobody_reading_does_not_stop_the_command(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "head -c 50000000 /dev/zero; echo done >&2")
        status = instance.wait(box, run)
        equal((status["status"], status["code"]), ("exited", 0))
        equal(status["output_bytes"], 50000005)


def test_a_slow_reader_loses_nothing(instance):
    """While a client is attached and behind, the command waits for it, as at a pipe: 20 MB through a ring of 64 KiB."""
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "read go; seq 1 2600000", stdin=True, ring_bytes=65536)
        stream = instance.attach(box, run)
        stream.send(cay.STDIN, b"go\n")
        equal(instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        frames = to_end(stream)
        equal([f for f in frames if f[0] == cay.GAP], [])
        equal(joined(frames, 0), "".join(f"{i}\n" for i in range(1, 2600001)).encode())


def test_output_is_held_for_who_attaches_later(instance):
    """`cay exec` starts a command and attaches: what it writes in between is not lost, however much it is."""
    with instance.sandbox() as box:
        program = "import os\nfor n in range(500): os.write(1, b'x' * 4096); os.write(p, b'x' * 4096)".replace("import os", "import os; p = os.open('/tmp/progress', os.O_CREAT | os.O_WRONLY)")
        run = instance.exec(box, "/usr/bin/python3", "-c", program, ring_bytes=65536, hold=True)
        cay.wait_until(lambda: int(instance.ok(box, "stat -c %s /tmp/progress 2>/dev/null || echo 0")) >= 65536, 30, "more than the ring holds, with what is in the pipe")
        frames = to_end(instance.attach(box, run))
        equal([f for f in frames if f[0] == cay.GAP], [])
        equal(len(joined(frames, 0)), 500 * 4096)


def test_stdout_and_stderr_stay_apart(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo out; echo err >&2")
        instance.wait(box, run)
        equal(instance.output(box, run, "stdout"), b"out\n")
        equal(instance.output(box, run, "stderr"), b"err\n")
        equal(len(instance.output(box, run)), 8)


def test_standard_input_reaches_the_command_whole(instance):
    data = bytes(range(256)) * 4096
    done = None
    with instance.sandbox() as box:
        done = instance.cay("exec", "-i", box, "--", "sha256sum", stdin=data)
    import hashlib
    equal(done.stdout.split()[0], hashlib.sha256(data).hexdigest())


def test_without_input_the_command_reads_an_end(instance):
    with instance.sandbox() as box:
        equal(instance.ok(box, "cat; echo ended"), "ended\n")


def test_bytes_that_are_no_text_come_out_as_they_went_in(instance):
    data = bytes(range(256)) * 1000
    with instance.sandbox() as box:
        done = instance.cay("exec", "-i", box, "--", "cat", stdin=data, text=False)
        equal(done.stdout, data)


def test_who_watches_sees_the_exec_as_who_asks(instance):
    """Nothing of what the server notes for itself: numbers of channels, keys of requests."""
    with instance.sandbox() as box:
        closing = json.loads(instance.cay("exec", "--json", box, "--", "true").stdout)
        asked = instance.get(f"/v1/sandboxes/{box}/execs/{closing['exec']['id']}")
        equal(sorted(closing["exec"]), sorted(asked))
    closing = json.loads(instance.cay("run", "--json", "--name", "watched", "--no-cwd", "--", "true").stdout)
    try:
        equal(sorted(closing["exec"]), sorted(asked))
    finally:
        instance.remove("watched")


REOPENS = "echo out >/dev/stdout; echo err >/dev/stderr; cat /dev/stdin; printf tee | tee -a /dev/stderr"


def test_standard_streams_can_be_opened_again(instance):
    """By name, as scripts and servers do (/dev/stderr), by whoever runs; where the end for the program is a pipe of the keeper's."""
    with instance.sandbox() as box:
        for user in ("root", "nobody"):
            done = instance.cay("exec", "-i", "-u", user, box, "--", "sh", "-c", REOPENS, stdin="in\n")
            equal((done.stdout, done.stderr), ("out\nin\ntee", "err\ntee"), user)


NO_INPUT = "stat -L -c %t:%T:%d:%i /proc/self/fd/0; stat -c %t:%T:%d:%i /dev/null; cat /dev/stdin; readlink /proc/self/fd/0"


def test_no_input_is_the_sandbox_s_own_null(instance):
    """Not the host's, which programs could lock and watch, and not open again."""
    with instance.sandbox() as box:
        for words in (("exec", box), ("run", "--rm", "--no-cwd")):
            done = instance.cay(*words, "--", "sh", "-c", NO_INPUT)
            given, own, *rest = done.stdout.split()
            equal((given, rest, done.stderr), (own, ["/dev/null"], ""), words[0])
