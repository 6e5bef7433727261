# SPDX-License-Identifier: Apache-2.0
"""The server ends and another one begins while commands run: every exit status and every byte arrive, once."""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require, timeout

WAITS = True


def server_pid(instance):
    for pid, (_, _, name) in leaks.processes().items():
        if name == "cayd" and f"CAY_STATE={instance.state}\0" in leaks.read(f"/proc/{pid}/environ"):
            return pid
    return None


def wait_gone(pid):
    cay.wait_until(lambda: not os.path.exists(f"/proc/{pid}") or ") Z " in leaks.read(f"/proc/{pid}/stat"), 30, f"end of server {pid}")


def end_server(instance, how):
    """End the server that runs now; commands start the next one by themselves."""
    pid = server_pid(instance)
    if pid is not None:
        os.kill(pid, how)
        wait_gone(pid)


@contextlib.contextmanager
def ours_at_the_end(instance):
    """Whoever started the server that runs at the end: it makes room for one that the instance knows."""
    try:
        yield
    finally:
        end_server(instance, signal.SIGTERM)
        instance.start()


class Loop:
    """`cay run` again and again in a thread; what was wrong, if anything."""

    def __init__(self, instance, tmp, number):
        self.instance, self.tmp, self.number = instance, tmp, number
        self.runs, self.wrong, self.over = 0, [], False
        self.thread = threading.Thread(target=self.main)
        self.thread.start()

    def main(self):
        lines = 60000
        data = os.urandom(300_000)
        digest = hashlib.sha256(data).hexdigest()
        script = f"seq 1 {lines}; sha256sum; echo done >&2; exit {self.number + 3}"
        want = "".join(f"{i}\n" for i in range(1, lines + 1)).encode() + f"{digest}  -\n".encode()
        while not self.over:
            done = subprocess.run([os.path.join(self.instance.programs, "cay"), "run", "--rm", "--no-cwd", "-i", "--", "sh", "-c", script], input=data,
                                  capture_output=True, env=self.instance.environment(), cwd=self.tmp, timeout=120, check=False)
            self.runs += 1
            if (done.returncode, done.stdout, done.stderr) != (self.number + 3, want, b"done\n"):
                at = next((i for i, (a, b) in enumerate(zip(done.stdout, want)) if a != b), min(len(done.stdout), len(want)))
                self.wrong.append((done.returncode, len(done.stdout), len(want), at, done.stderr[-300:]))


def restarts(instance, tmp, how, times):
    loops = [Loop(instance, tmp, n) for n in range(2)]
    try:
        for i in range(times):
            wanted = [loop.runs + 1 for loop in loops]
            end_server(instance, how(i))
            # every loop gets on: nobody hangs
            cay.wait_until(lambda: all(loop.runs >= n or loop.wrong for loop, n in zip(loops, wanted)), 60, "the next end of each loop's run")
    finally:
        for loop in loops:
            loop.over = True
        for loop in loops:
            loop.thread.join()
    print("runs:", [loop.runs for loop in loops])
    equal([loop.wrong for loop in loops], [[], []])


@require("root")
@timeout(300)
def test_twenty_orderly_restarts_under_a_loop_of_runs(fresh, tmp):
    with ours_at_the_end(fresh):
        restarts(fresh, tmp, lambda i: signal.SIGTERM, 20)


def started(instance, tmp, *argv, stdin=subprocess.PIPE):
    process = instance.popen([os.path.join(instance.programs, "cay"), *argv], stdin=stdin, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=tmp, env=instance.environment())
    equal(process.stdout.readline(), b"ready\n")
    return process


@require("root")
@timeout(120)
def test_a_run_outlives_servers_that_are_killed(fresh, tmp):
    """Three servers killed under one command that answers line by line: each line once, in order, and its own exit status."""
    with ours_at_the_end(fresh):
        process = started(fresh, tmp, "run", "--rm", "-i", "--", "sh", "-c", "echo ready; while read line; do echo got $line; done; exit 9")
        for i in range(12):
            if i % 4 == 3:
                end_server(fresh, signal.SIGKILL)
            process.stdin.write(f"{i}\n".encode())
            process.stdin.flush()
            equal(process.stdout.readline(), f"got {i}\n".encode())
        out, err = process.communicate(timeout=30)
        equal((process.returncode, out, err), (9, b"", b""))


@require("root")
@timeout(120)
def test_an_exec_outlives_servers(fresh, tmp):
    with ours_at_the_end(fresh):
        with fresh.sandbox() as box:
            process = started(fresh, tmp, "exec", "-i", box, "--", "sh", "-c", "echo ready; while read line; do echo got $line; done; exit 9")
            for i, how in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)):
                end_server(fresh, how)
                process.stdin.write(f"{i}\n".encode())
                process.stdin.flush()
                equal(process.stdout.readline(), f"got {i}\n".encode())
            out, err = process.communicate(timeout=30)
            equal((process.returncode, out, err), (9, b"", b""))


@require("root")
@timeout(120)
def test_who_has_joined_in_the_middle_of_the_output_goes_on_there(fresh):
    """Also where nothing has come yet since: it began at the first byte then."""
    with ours_at_the_end(fresh), fresh.sandbox(name="box") as box:
        run = fresh.exec(box, "sh", "-c", "echo one; read x; touch /tmp/joined; read x; echo two", stdin=True)
        cay.wait_until(lambda: fresh.output(box, run) == b"one\n", 30, "it has written")
        client = fresh.popen([os.path.join(fresh.programs, "cay"), "attach", "--from", "4", "box", run["id"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        client.stdin.write(b"a\n")
        client.stdin.flush()
        cay.wait_until(lambda: fresh.sh(box, "test -e /tmp/joined")[0].get("code") == 0, 30, "it has joined")
        end_server(fresh, signal.SIGKILL)
        out, _ = client.communicate(b"b\n", 60)
        equal((client.returncode, out), (0, b"two\n"))


@require("root")
@timeout(120)
def test_output_waits_for_a_client_without_server(fresh, tmp):
    """Nobody reads while there is no server: the command fills its ring and waits; then everything arrives."""
    with ours_at_the_end(fresh):
        process = started(fresh, tmp, "run", "--rm", "--no-cwd", "-i", "--", "sh", "-c", "echo ready; read go; seq 1 1000000")
        process.stdin.write(b"go\n")
        process.stdin.flush()
        first = b""
        while len(first) < 100_000:
            first += os.read(process.stdout.fileno(), 65536)  # not through its buffer, which communicate() does not see
        end_server(fresh, signal.SIGKILL)
        rest, err = process.communicate(timeout=60)
        want = "".join(f"{i}\n" for i in range(1, 1000001)).encode()
        equal((process.returncode, err), (0, b""))
        equal(len(first + rest), len(want))
        assert first + rest == want


@require("root")
@timeout(120)
def test_a_run_whose_client_never_comes_back_is_ended(fresh, tmp):
    with ours_at_the_end(fresh):
        process = started(fresh, tmp, "run", "--no-cwd", "--name", "left", "--", "sh", "-c", "echo ready; while :; do sleep 1000; done", stdin=subprocess.DEVNULL)
        process.send_signal(signal.SIGSTOP)  # or it might start the next server
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        end_server(fresh, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
        fresh.start()
        equal(fresh.get("/v1/sandboxes/left")["state"], "running")
        fresh.wait_event("sandbox.stopped", "left", timeout=60)
        equal(fresh.get("/v1/sandboxes/left/execs")["execs"][0]["status"]["status"], "killed")


@require("root")
@timeout(150)
def test_a_run_that_nobody_follows_is_ended_however_long_others_work_on_it(fresh):
    """Neither its client, which comes back and is refused, nor the server gets hold of it at the first try."""
    stream = fresh.upgrade("POST", "/v1/run", {"sandbox": {"name": "left"}, "exec": {"argv": ["sleep", "1000"]}, "keep": True, "key": "thekeyofit"})
    fresh.wait_event("exec.started")
    fresh.kill()
    stream.close()
    fresh.start(CAY_FAULT="run.join.lock=error,run.orphan.lock=error")
    equal(raises(cay.ApiError, fresh.upgrade, "GET", "/v1/runs/thekeyofit/attach?from=0").code, "busy")
    fresh.wait_event("sandbox.stopped", "left", timeout=90)
    equal(fresh.get("/v1/sandboxes/left/execs")["execs"][0]["status"]["status"], "killed")
    fresh.remove("left")


@require("root")
@timeout(150)
def test_a_run_whose_keeper_does_not_answer_goes_on(fresh):
    """Its command is neither lost nor ended: the client, whose stream ends without a word, comes back."""
    stream = fresh.upgrade("POST", "/v1/run", {"sandbox": {"name": "slow"}, "exec": {"argv": ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; exit 7"]}, "key": "thekeyofit"})
    fresh.wait_event("exec.started")
    fresh.kill()
    stream.close()
    fresh.start(CAY_FAULT="run.again.attach" + "=error")
    equal(fresh.upgrade("GET", "/v1/runs/thekeyofit/attach?from=0").collect(), (b"", b"", None))
    stream = fresh.upgrade("GET", "/v1/runs/thekeyofit/attach?from=0")
    fresh.cay("exec", "slow", "--", "touch", "/tmp/go")
    equal(stream.collect()[2]["code"], 7)
    stream.close()


@require("root")
@timeout(150)
def test_a_run_whose_output_cannot_be_read_has_its_status_all_the_same(fresh):
    """Its keeper dies while no server is there, and what it kept cannot be read: that is a gap."""
    begin = {"sandbox": {"name": "lost"}, "exec": {"argv": ["sh", "-c", "echo text; sleep 1000"], "spill_bytes": 1 << 20}, "keep": True, "key": "thekeyofit"}
    stream = fresh.upgrade("POST", "/v1/run", begin)
    stream.until(cay.STDOUT)
    (box,), (run,) = fresh.get("/v1/sandboxes")["sandboxes"], fresh.get("/v1/sandboxes/lost/execs")["execs"]
    keeper = leaks.keeper_of(box["id"])
    fresh.kill()
    stream.close()
    os.kill(keeper, signal.SIGKILL)
    path = os.path.join(fresh.state, "exec", box["id"], f"{run['id']}.bytes")
    os.rename(path, path + ".away")
    os.symlink(path + ".away", path)
    fresh.start()
    stream = fresh.upgrade("GET", "/v1/runs/thekeyofit/attach?from=0")
    equal(stream.collect()[2]["status"], "lost")
    stream.close()
    fresh.remove("lost")


@require("root")
@timeout(150)
def test_a_run_that_its_client_was_told_is_gone(tmp):
    """Its rows go behind the last word to the client. A server that dies in between leaves them to the next one, one that cannot delete them tries again: when nobody came back for it."""
    with contextlib.ExitStack() as stack:
        left = []
        for how in ("", "=error"):
            top = os.path.join(tmp, f"server{how}")
            os.mkdir(top)
            instance = stack.enter_context(contextlib.closing(cay.Instance(top)))
            instance.start(CAY_FAULT="run.told" + how)
            equal(instance.cay("run", "--no-cwd", "--", "sh", "-c", "echo all; exit 3", want=3).stdout, "all\n")
            if how == "":
                instance.process.wait(30)
                instance.start()
            (box,) = instance.get("/v1/sandboxes")["sandboxes"]
            equal(box["state"], "running")
            left.append((instance, box["id"]))
        for instance, box in left:
            cay.wait_until(lambda i=instance: i.get("/v1/sandboxes")["sandboxes"] == [], 60, "the sandbox goes")
            told = [(e["type"], e["data"].get("code")) for e in instance.events(box) if e["type"] in ("exec.ended", "sandbox.removed", "sandbox.stopped")]
            equal(told, [("exec.ended", 3), ("sandbox.removed", None)])


@require("root")
def test_what_changed_is_kept_across_a_restart(fresh, tmp):
    with ours_at_the_end(fresh):
        work = os.path.join(tmp, "work")
        os.mkdir(work)
        process = started(fresh, work, "run", "-i", "--", "sh", "-c", "echo ready; read go; echo new > file")
        end_server(fresh, signal.SIGTERM)
        out, err = process.communicate(b"go\n", timeout=60)
        equal((process.returncode, out), (0, b""))
        contains(err, b"1 file changed: cay diff ")
        equal(os.listdir(work), [])
        name = err.decode().split("cay diff ")[1].split()[0]
        contains(fresh.cay("diff", name).stdout, "file")
        fresh.cay("rm", name)


@require("root")
def test_what_changed_is_kept_and_told_when_the_server_dies_behind_the_stop(fresh, tmp):
    """Its client has not been told then."""
    fresh.stop()
    fresh.start(CAY_FAULT="sandbox.stop.committed")
    with ours_at_the_end(fresh):
        process = started(fresh, tmp, "run", "--", "sh", "-c", "echo ready; echo new > file; exit 3")
        out, err = process.communicate(timeout=60)
        equal((process.returncode, out), (3, b""), err.decode())
        contains(err, b"1 file changed: cay diff ")
        (box,) = fresh.get("/v1/sandboxes")["sandboxes"]
        equal(box["state"], "stopped")
        fresh.remove(box["id"])


@require("root")
@timeout(150)
def test_what_was_kept_is_no_runs_any_more_for_who_starts_it(fresh):
    """Its client comes back when it goes on already."""
    fresh.stop()
    fresh.start(CAY_FAULT="sandbox.stop.committed")
    stream = fresh.upgrade("POST", "/v1/run", {"sandbox": {"name": "kept"}, "exec": {"argv": ["sh", "-c", "exit 3"]}, "keep": True, "key": "thekeyofit"})
    fresh.process.wait(30)
    stream.close()
    fresh.start()
    fresh.cay("start", "kept")
    stream = fresh.upgrade("GET", "/v1/runs/thekeyofit/attach?from=0")
    equal(json.loads(stream.until(cay.STATUS)[-1][2])["code"], 3)
    equal(json.loads(stream.next()[2])["summary"]["kept"], True)
    equal(stream.next(), None)
    equal(fresh.get("/v1/sandboxes/kept")["state"], "running")
    equal(raises(cay.ApiError, fresh.upgrade, "GET", "/v1/runs/thekeyofit/attach?from=0").code, "not_found")
    fresh.remove("kept")


@require("root")
def test_a_request_on_an_old_connection_is_told(fresh):
    """A kept connection, a server that ends: the answer says that nothing was done, or the connection is closed; never half an answer."""
    with ours_at_the_end(fresh):
        connection = cay.UnixConnection(fresh.socket)
        connection.request("GET", "/v1/version")
        equal(connection.getresponse().read()[:1], b"{")
        with fresh.sandbox() as box:
            run = fresh.exec(box, "sh", "-c", "read x", stdin=True)
            waiting = cay.UnixConnection(fresh.socket)
            waiting.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}?wait_ms=60000")
            fresh.get("/v1/version")  # it has been read, and is answered: one that comes later is told that nothing was done
            pid = server_pid(fresh)
            os.kill(pid, signal.SIGTERM)
            answer = waiting.getresponse()
            equal((answer.status, b'"running"' in answer.read()), (200, True))
            wait_gone(pid)
            assert not os.path.exists(fresh.socket)
            fresh.cay("ps")
            equal(fresh.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
        connection.close()
        waiting.close()


def start_kept(instance):
    """A server as systemd starts it."""
    with open(instance.log, "ab") as log:
        instance.process = instance.popen(["sh", "-c", "SYSTEMD_EXEC_PID=$$; export SYSTEMD_EXEC_PID; exec \"$0\" --foreground", os.path.join(instance.programs, "cayd")],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    instance.wait_answering()


@require("root")
@timeout(120)
def test_a_server_that_is_kept_is_followed_by_one_that_is_kept(fresh, tmp):
    """`systemctl restart cayd` under an attached client, which needs a server too, and at once; also when it was killed. When none comes the client starts one."""
    def starting():
        return [pid for pid, (_, state, name) in leaks.processes().items()
                if name == "cayd" and state != "Z" and f"CAY_STATE={fresh.state}\0" in leaks.read(f"/proc/{pid}/environ")]

    with ours_at_the_end(fresh):
        fresh.stop()
        start_kept(fresh)
        with fresh.sandbox() as box:
            process = started(fresh, tmp, "exec", "-i", box, "--", "sh", "-c", "echo ready; while read line; do echo got $line; done; exit 9")
            for number, end in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGTERM)):
                kept = fresh.process
                kept.send_signal(end)
                kept.wait(cay.STOP_SECONDS)
                if number < 2:
                    cay.wait_until(starting, 30, "the client wants a server")
                    start_kept(fresh)
                process.stdin.write(b"%d\n" % number)
                process.stdin.flush()
                equal(process.stdout.readline(), b"got %d\n" % number)
                equal(fresh.process.poll() is None, number < 2)
            out, err = process.communicate(timeout=30)
            equal((process.returncode, out, err), (9, b"", b""))


@require("root")
@timeout(120)
def test_a_server_that_a_command_started_leaves_its_place_to_one_that_is_kept(fresh, tmp):
    """`systemctl start cayd`, also under an attached client, which needs the next server at once; the commands go on. Of two that are kept the first stays."""
    with ours_at_the_end(fresh):
        fresh.stop()
        fresh.cay("ps")
        with fresh.sandbox() as box:
            process = started(fresh, tmp, "exec", "-i", box, "--", "sh", "-c", "echo ready; while read line; do echo got $line; done; exit 9")
            first = server_pid(fresh)
            start_kept(fresh)
            cay.wait_until(lambda: not os.path.exists(f"/proc/{first}"), 30, "the first server ends")
            process.stdin.write(b"1\n")
            process.stdin.flush()
            equal(process.stdout.readline(), b"got 1\n")
            kept = fresh.process
            equal(fresh.get("/v1/version")["pid"], kept.pid)
            start_kept(fresh)
            equal(fresh.process.wait(60), 1)
            fresh.process = kept
            out, err = process.communicate(timeout=30)
            equal((process.returncode, out, err), (9, b"", b""))


@require("root")
def test_a_kept_server_that_is_asked_to_end_promises_no_other(fresh):
    """`cay shutdown`: systemd starts none behind it, and whoever needs one starts it at once."""
    for ask, word in ((lambda: fresh.process.send_signal(signal.SIGTERM), "next"), (lambda: fresh.cay("shutdown"), "")):
        fresh.stop()
        start_kept(fresh)
        equal(leaks.read(os.path.join(fresh.run, "cayd.lock")), "kept")
        ask()
        equal(fresh.process.wait(cay.STOP_SECONDS), 0)
        equal(leaks.read(os.path.join(fresh.run, "cayd.lock")), word)
    fresh.start()
    equal(leaks.read(os.path.join(fresh.run, "cayd.lock")), "")


@require("root")
def test_a_server_may_be_started_while_the_one_before_it_ends(fresh):
    """It waits for that, as a supervisor cannot know."""
    with fresh.sandbox() as box:
        run = fresh.exec(box, "cat", stdin=True)
        writer = cay.UnixConnection(fresh.socket)
        writer.putrequest("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin")
        writer.putheader("Content-Length", "2")
        writer.endheaders(b"x")  # which it waits for
        cay.wait_until(lambda: fresh.output(box, run), 30, "some of it has come")
        before = fresh.process
        before.send_signal(signal.SIGTERM)
        cay.wait_until(lambda: not os.path.exists(fresh.socket), 30, "it ends")
        fresh.start()
        equal(before.wait(cay.STOP_SECONDS), 0)
        writer.close()


def ends_soon(instance):
    """A server that is told to end waits for those who wait for it no longer than it has to (it gives all others a minute)."""
    pid = server_pid(instance)
    os.kill(pid, signal.SIGTERM)
    cay.wait_until(lambda: leaks.processes().get(pid, (0, "Z", ""))[1] == "Z", 20, "the end of the server")
    instance.start()


@timeout(120)
def test_who_follows_output_does_not_keep_a_server_that_ends(fresh):
    """Neither of a command that says nothing nor of one that never pauses: the answer is cut short, which is not the end of the output."""
    with fresh.sandbox() as box:
        for command in ("sleep 1000", "exec yes"):
            run = fresh.exec(box, "sh", "-c", "echo ready; " + command)
            follower = fresh.popen([os.path.join(fresh.programs, "cay"), "logs", "--follow", box, run["id"]], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=fresh.environment())
            equal(os.read(follower.stdout.fileno(), 6), b"ready\n")  # not through its buffer, which communicate() does not see
            rest = []
            reading = threading.Thread(target=lambda: rest.append(follower.communicate()))
            reading.start()
            ends_soon(fresh)
            reading.join(30)
            (out, err), = rest
            equal(follower.returncode, 125, err)
            contains(err.decode(), f"cay logs {box} {run['id']} --follow --from {len(out) + 6}")
            fresh.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9})
            fresh.wait(box, run)


@timeout(120)
def test_who_brings_no_input_does_not_keep_a_server_that_ends(fresh):
    """A body that has begun, and one for which there is no room."""
    with fresh.sandbox() as box:
        for script, size in (("cat", 3), ("sleep 1000", 3 << 20)):
            run = fresh.exec(box, "sh", "-c", script, stdin=True)
            writer = cay.UnixConnection(fresh.socket)
            writer.putrequest("POST", f"/v1/sandboxes/{box}/execs/{run['id']}/stdin")
            writer.putheader("Content-Type", "application/octet-stream")
            writer.putheader("Content-Length", str(size + 1))
            writer.endheaders(b"x" * 3)
            if size > 3:
                threading.Thread(target=lambda w=writer, n=size - 3: w.send(b"x" * n)).start()
            fresh.get("/v1/version")
            ends_soon(fresh)
            answer = writer.getresponse()
            contains(answer.read(), b"the server ends")
            equal(answer.status, 503)
            writer.close()


@timeout(120)
def test_a_body_that_does_not_come_does_not_keep_a_server_that_ends(fresh):
    """Of a file, of an image, of anything else; each is told, and of the file nothing is there."""
    with fresh.sandbox() as box:
        bodies = []
        for method, path, kind in (("PUT", f"/v1/sandboxes/{box}/files?path=/root/half", "application/octet-stream"), ("POST", "/v1/sandboxes", "application/json")):
            bodies.append(cay.UnixConnection(fresh.socket, 120))
            bodies[-1].putrequest(method, path)
            bodies[-1].putheader("Content-Type", kind)
            bodies[-1].putheader("Content-Length", "100")
            bodies[-1].endheaders(b"{")
        fresh.get("/v1/version")
        ends_soon(fresh)
        for connection in bodies:
            answer = connection.getresponse()
            body = json.loads(answer.read())
            equal((answer.status, body["error"]["code"]), (503, "shutting_down"))
            connection.close()
        equal(fresh.ok(box, "ls /root"), "")


def test_who_does_not_read_an_answer_does_not_keep_a_server_that_ends(fresh):
    """`cay events | less`, and its like."""
    with fresh.sandbox() as box:
        run = fresh.exec(box, "head", "-c", "8000000", "/dev/zero", ring_bytes=16 << 20)
        fresh.wait(box, run)
        reader = cay.UnixConnection(fresh.socket)
        reader.request("GET", f"/v1/sandboxes/{box}/execs/{run['id']}/output")
        equal(reader.getresponse().status, 200)
        ends_soon(fresh)
        reader.close()


@require("root")
@timeout(120)
def test_what_became_of_a_command_is_told_by_the_next_server(fresh, tmp):
    """Its keeper is killed while somebody stops its sandbox, and the server ends before anybody has said how it ended."""
    with ours_at_the_end(fresh):
        box = fresh.post("/v1/sandboxes", {})["id"]
        process = started(fresh, tmp, "exec", box, "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done")
        stop = cay.UnixConnection(fresh.socket)
        stop.request("POST", f"/v1/sandboxes/{box}/stop", body='{"grace_ms":5000}', headers={"Content-Type": "application/json"})
        fresh.get("/v1/version")
        keeper = leaks.keeper_of(box)
        os.kill(keeper, signal.SIGKILL)
        wait_gone(keeper)
        fresh.get("/v1/version")
        end_server(fresh, signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        contains(err.decode(), "killed, with everything that it started")
        equal(process.returncode, 137)
        stop.close()
    fresh.remove(box)


@require("root")
@timeout(120)
def test_a_stop_does_not_wait_for_commands_whose_keeper_has_gone(fresh):
    """It gives them ten minutes; there is nobody left who could use them."""
    box = fresh.post("/v1/sandboxes", {})["id"]
    run = fresh.exec(box, "sh", "-c", "trap 'echo deaf' TERM; echo ready; while :; do sleep 0.1; done")
    output = fresh.attach(box, run["id"])
    equal(output.until(cay.STDOUT)[-1][2][8:], b"ready\n")
    stop = cay.UnixConnection(fresh.socket, 60)
    stop.request("POST", f"/v1/sandboxes/{box}/stop", body='{"grace_ms":600000}', headers={"Content-Type": "application/json"})
    equal(output.until(cay.STDOUT)[-1][2][8:], b"deaf\n")
    os.kill(leaks.keeper_of(box), signal.SIGKILL)
    answer = stop.getresponse()
    equal((answer.status, json.loads(answer.read())["state"]), (200, "stopped"))
    for connection in (output, stop):
        connection.close()
    fresh.remove(box)


def test_sandboxes_that_go_while_the_server_stops_all_of_them(fresh):
    """It waits for the first, which somebody else is stopping; meanwhile those behind it are removed."""
    first, *others = (fresh.post("/v1/sandboxes", {})["id"] for _ in range(4))
    run = fresh.exec(first, "sh", "-c", "trap 'echo deaf' TERM; echo ready; while :; do sleep 0.1; done")
    output = fresh.attach(first, run["id"])
    equal(output.until(cay.STDOUT)[-1][2][8:], b"ready\n")
    pid = server_pid(fresh)
    stop, shutdown = cay.UnixConnection(fresh.socket), cay.UnixConnection(fresh.socket)
    stop.request("POST", f"/v1/sandboxes/{first}/stop", body='{"grace_ms":2000}', headers={"Content-Type": "application/json"})
    equal(output.until(cay.STDOUT)[-1][2][8:], b"deaf\n")
    shutdown.request("POST", "/v1/shutdown", body='{"sandboxes":"stop"}', headers={"Content-Type": "application/json"})
    for box in others:
        fresh.remove(box)
    equal((stop.getresponse().status, shutdown.getresponse().status), (200, 204))
    for connection in (output, stop, shutdown):
        connection.close()
    wait_gone(pid)
    fresh.check_clean()


def test_a_sandbox_that_does_not_end_is_in_nobodys_way(fresh):
    """The server stops many at a time: here the others, while a keeper stands still."""
    stuck, *others = (fresh.post("/v1/sandboxes", {})["id"] for _ in range(4))
    pid, connection = server_pid(fresh), cay.UnixConnection(fresh.socket, 120)
    keeper = leaks.keeper_of(stuck)
    os.kill(keeper, signal.SIGSTOP)
    try:
        connection.request("POST", "/v1/shutdown", body='{"sandboxes":"stop"}', headers={"Content-Type": "application/json"})
        for box in others:
            fresh.wait_event("sandbox.stopped", box)
        equal(fresh.get(f"/v1/sandboxes/{stuck}")["state"], "running")
    finally:
        os.kill(keeper, signal.SIGCONT)
    equal(connection.getresponse().status, 204)
    connection.close()
    wait_gone(pid)
    fresh.start()
    equal({box["id"]: box["state"] for box in fresh.get("/v1/sandboxes")["sandboxes"]}, {box: "stopped" for box in (stuck, *others)})


def test_a_run_is_no_reason_to_wait_for_who_stops_all_sandboxes(fresh, tmp):
    """Its command is ended with the others, and its client starts no server for it."""
    pid = server_pid(fresh)
    process = fresh.popen([os.path.join(fresh.programs, "cay"), "run", "--no-cwd", "--name", "going", "--", "sh", "-c", "echo ready; exec sleep 1000"],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp, start_new_session=True)
    try:
        equal(process.stdout.readline(), b"ready\n")
        fresh.cay("shutdown", "--stop", timeout=30)
        wait_gone(pid)
        _, err = process.communicate(timeout=30)
        equal(process.returncode, 137)
        contains(err, b"killed")
        equal(server_pid(fresh), None)
    finally:
        process.kill()
        end_server(fresh, signal.SIGTERM)
        fresh.start()
    equal(fresh.get("/v1/sandboxes/going")["state"], "stopped")


def test_shutdown_ends_the_server_and_says_so_when_it_has_ended(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    for how, state in (([], "running"), (["--stop"], "stopped")):
        fresh.cay("shutdown", *how)
        equal(fresh.alive(), False)
        contains(fresh.cay("shutdown").stderr, "no server runs")
        equal(json.loads(fresh.cay("shutdown", "--json").stdout), {"ended": False})
        fresh.start()
        equal(fresh.get(f"/v1/sandboxes/{box}")["state"], state)


def client_in(unshare):
    """Pid of the `cay` that process @unshare has started in a pid namespace, and its state; (None, "") when it has ended."""
    return next(((pid, state) for pid, (parent, state, comm) in leaks.processes().items() if parent == unshare.pid and comm == "cay"), (None, ""))


@require("root")
def test_shutdown_waits_for_a_server_that_it_cannot_see(fresh):
    """From another pid namespace its process has no number."""
    fresh.remove(fresh.post("/v1/sandboxes", {})["id"])
    spawn, = fresh.programs_named("cay-spawn")
    os.kill(spawn, signal.SIGSTOP)  # which the server wants to unmount the pool
    try:
        unshare = fresh.popen(["unshare", "--pid", "--fork", os.path.join(fresh.programs, "cay"), "shutdown"])
        cay.wait_until(lambda: not os.path.exists(fresh.socket), 30, "it ends")
        cay.wait_until(lambda: client_in(unshare)[1] in ("S", "Z", ""), 30, "the client waits, or is done")
        equal((client_in(unshare)[1], fresh.alive()), ("S", True))
    finally:
        os.kill(spawn, signal.SIGCONT)
    equal(unshare.wait(60), 0)
    cay.wait_until(lambda: not fresh.alive(), 30, "it has ended")  # its lock goes an instant before it does
