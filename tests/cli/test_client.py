# SPDX-License-Identifier: Apache-2.0
"""The command line by itself, against a server that says what it is told to: bad streams, hostile archives, signals, the terminal."""

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tarfile
import termios
import threading
import time

from lib import fake_cayd as fake
from lib.case import contains, equal, require
from lib.pace import patience

QUICK = True
BOX = {"id": "a" * 20, "name": "swift-otter", "state": "stopped"}
ENDED = {"status": "exited", "code": 0, "evidence": {"wait_status": 0}}


def begin(request, *frames):
    request.upgrade(fake.frame(fake.OBJECT, {"sandbox": BOX}), fake.frame(fake.OBJECT, {"exec": {"id": "e" * 20, "state": "running"}}), *frames)


def ends(status, summary=None, *frames):
    def answer(request):
        begin(request, *frames, fake.frame(fake.STATUS, status),
              fake.frame(fake.OBJECT, {"summary": summary or {"kept": False, "changes": 0, "name": "swift-otter", "id": BOX["id"], "denied": []}}))
    return answer


def run(tmp, status, *argv, want, summary=None, frames=()):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", ends(status, summary, *frames))
        return server.cay("run", *argv, "--", "true", want=want)


def test_each_final_status_has_an_exit_status_and_its_reason(tmp):
    for number, (status, want, says) in enumerate([
            ({"status": "exited", "code": 7}, 7, b""), ({"status": "signaled", "signal": 11}, 139, b"SIGSEGV"),
            ({"status": "oom", "evidence": {"oom_kills": 2}}, 137, b"out of memory: the kernel killed it at the memory limit (oom_kills 2)"),
            ({"status": "oom", "code": 3}, 3, b"out of memory"), ({"status": "oom", "signal": 9}, 137, b"out of memory"),
            ({"status": "limit", "code": 1}, 1, b"a limit"), ({"status": "limit"}, 125, b"a limit"), ({"status": "disk_full", "code": 2}, 2, b"disk limit"),
            ({"status": "timeout"}, 124, b"--timeout"), ({"status": "disk_full"}, 125, b"disk limit"), ({"status": "killed"}, 137, b"killed"),
            ({"status": "lost"}, 125, b"lost"), ({"status": "novel"}, 125, b"does not know")]):
        directory = os.path.join(tmp, str(number))
        os.mkdir(directory)
        contains(run(directory, status, want=want).stderr, says)


def test_an_older_server_that_knows_no_hold_runs_it_all_the_same(tmp):
    """One that was started before cay was replaced: its errors name the member that it does not know."""
    asked = []

    def older(request):
        asked.append(request.json)
        if "hold" in request.json:
            return 400, {"error": {"code": "invalid", "message": "unknown member 'hold'", "member": "hold"}}
        return 201, {"id": "run", "state": "running"}
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/execs", older)
        server.on("GET", "/v1/sandboxes/box/execs/run/attach", lambda request: begin(request, fake.frame(fake.STATUS, ENDED)))
        server.cay("exec", "box", "--", "true", want=0)
    equal([one.pop("hold", None) for one in asked], [True, None])
    equal(asked[0], asked[1])


def test_the_last_line_says_what_was_kept(tmp):
    done = run(tmp, ENDED, want=0, summary={"kept": True, "changes": 7, "name": "swift-otter", "id": BOX["id"], "denied": []})
    equal(done.stderr.decode(), "7 files changed: cay diff swift-otter · cay apply swift-otter · cay rm swift-otter\n")


def test_output_keeps_its_streams_and_a_gap_is_told(tmp):
    frames = (fake.output(fake.STDOUT, b"out\n"), fake.output(fake.STDERR, b"err\n", 4), fake.frame(fake.GAP, struct.pack("<QQ", 8, 108)))
    done = run(tmp, ENDED, want=0, frames=frames)
    equal(done.stdout, b"out\n")
    contains(done.stderr, b"err\n")
    contains(done.stderr, b"100 bytes of output were overwritten")


def test_json_is_one_object_and_the_output_goes_to_standard_error(tmp):
    done = run(tmp, ENDED, "--json", want=0, frames=(fake.output(fake.STDOUT, b"out\n"),))
    equal(json.loads(done.stdout)["id"], BOX["id"])
    contains(done.stderr, b"out\n")


def test_a_broken_stream_is_no_success(tmp):
    for number, tail in enumerate([b"", fake.frame(fake.STDOUT, b"x"), b"\xff" * 16, fake.frame(fake.STATUS, b"{"), fake.output(fake.STDOUT, b"abc")[:12]]):
        directory = os.path.join(tmp, str(number))
        os.mkdir(directory)
        with fake.FakeCayd(directory) as server:
            server.on("POST", "/v1/run", lambda request, t=tail: begin(request, t))
            contains(server.cay("run", "--", "true", want=125).stderr, b"cay: ")


def test_what_is_asked_for_reaches_the_server(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", ends(ENDED))
        server.cay("run", "--name", "n", "--memory", "64M", "--cpus", "1.5", "--pids", "9", "-e", "A=b=c", "-l", "k=v", "--timeout", "250ms",
                   "-u", "nobody", "--mount", f"{tmp}:/x:ro", "--", "ls", "-l", cwd=tmp)
        body = server.requests[0].json
    equal(body["exec"]["argv"], ["ls", "-l"])
    equal((body["exec"]["env"]["A"], body["exec"]["user"], body["exec"]["timeout_ms"], body["exec"]["cwd"]), ("b=c", "nobody", 250, tmp))
    equal(body["sandbox"]["limits"], {"memory_bytes": 64 << 20, "cpu_millis": 1500, "pids": 9})
    equal(body["sandbox"]["mounts"], [{"source": tmp, "target": "/x", "mode": "ro"}, {"source": tmp, "target": tmp, "mode": "cow"}])
    equal(body["sandbox"]["labels"], {"k": "v", "cay.run.cwd": tmp})
    equal((body["keep"], body["rm"], body["exec"].get("stdin")), (True, False, None))


def test_input_is_forwarded_from_a_pipe(tmp):
    got = []

    def answer(request):
        begin(request)
        for kind, payload in request.frames():
            if kind == fake.STDIN:
                got.append(payload)
                if payload == b"":
                    break
        request.connection.sendall(fake.frame(fake.STATUS, ENDED))

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        server.cay("run", "--", "cat", stdin=b"some input")
        equal(server.requests[0].json["exec"]["stdin"], True)
    equal(b"".join(got), b"some input")


def test_errors_have_one_shape(tmp):
    error = {"code": "not_found", "message": "no sandbox 'x\x1b[2J\nhint: y'", "hint": "look\nagain", "errno": 2}
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes", (404, {"error": error}))
        done = server.cay("ps", want=125)
        equal(done.stderr, b"cay: no sandbox 'x\\x1b[2J\\nhint: y'\nhint: look\\nagain\n", "a name that says a line of its own")
        done = server.cay("ps", "--json", want=125)
        equal(json.loads(done.stderr), {"error": error})
        equal(done.stdout, b"")
        for answer in (b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 500 X\r\nContent-Length: 3\r\n\r\nxxx", b"HTTP/1.1 200 X\r\nContent-Length: 9\r\n\r\n{",
                       b"HTTP/1.1 200 X\r\nContent-Length: 1\r\n\r\n{", b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
            server.on("GET", "/v1/sandboxes", lambda request, a=answer: request.connection.sendall(a))
            contains(server.cay("ps", want=125).stderr, b"cay: ")


def test_names_of_others_cannot_move_the_cursor(tmp):
    change = {"path": "/a\x1b]0;x\x07\u202eb", "kind": "added", "before": None, "after": {"type": "file", "mode": 0o100644, "size": 5}}
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/diff", (200, {"a": "x", "changes": [change]}))
        out = server.cay("diff", "x").stdout
        assert b"\x1b" not in out and b"\x07" not in out and "\u202e".encode() not in out, out
        equal(json.loads(server.cay("diff", "x", "--json").stdout)["changes"], [change])


def test_a_part_of_the_changes_is_not_taken_for_all(tmp):
    state = {"type": "file", "mode": 0o644, "size": 1}
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/diff", lambda request: (200, {"changes": [{"path": "/a", "kind": "added", "before": None, "after": state}],
                                                            "text": "--- /dev/null\n", "truncated": True}))
        for flags, told in (((), "stdout"), (("--text",), "stdout"), (("-q",), "stderr")):
            contains(getattr(server.cay("diff", "box", *flags), told), b"not all changes")
        equal(server.cay("diff", "box", "-q").stdout, b"/a\n")


def test_a_very_long_path_is_shown(tmp):
    path = "/" + "long/" * 20000 + "AGENTS.md"
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/diff", (200, {"changes": [{"path": path, "kind": "added", "before": None, "after": {"type": "file", "mode": 0o644, "size": 1}}]}))
        contains(server.cay("diff", "box").stdout, path.encode())


def test_what_an_apply_leaves_out_is_told(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/apply", lambda request: (200, {"changes": [], "skipped": [{"path": "/p/pipe", "reason": "FIFOs are not applied"}]}))
        for flags in ((), ("--dry-run",)):
            said = server.cay("apply", "box", *flags).stdout
            contains(said, b"! /p/pipe: FIFOs are not applied")
            assert b"applied: " not in said, said  # nothing was


def test_programs_that_an_apply_changes_are_told(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/apply", lambda request: (200, {"changes": [], "programs": [{"path": "/p/scripts/x"}]}))
        for flags in ((), ("--dry-run",)):
            contains(server.cay("apply", "box", *flags).stdout, b"* /p/scripts/x\n")


def test_an_interrupted_apply_goes_on_and_says_so(tmp):
    asked, go_on = threading.Event(), threading.Event()

    def answer(_request):
        asked.set()
        go_on.wait(30)
        return 200, {"changes": [{"path": "/p/a", "kind": "modified"}]}
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/apply", answer)
        process = subprocess.Popen([fake.CAY, "apply", "box"], env=server.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        asked.wait(30)
        process.send_signal(signal.SIGINT)
        said = b""
        while b"or not at all" not in said:
            said += os.read(process.stderr.fileno(), 4096) or b"it ended: or not at all"
        go_on.set()
        out, _ = process.communicate(timeout=30)
        contains(out, b"applied")
        equal((b"ended" in said, process.returncode), (False, 0))


def test_directories_that_no_run_can_be_found_by(tmp):
    with fake.FakeCayd(tmp) as server:
        odd = os.path.join(os.fsencode(tmp), b"x\xe9")
        os.mkdir(odd)
        for verb in ("diff", "apply", "rm"):
            contains(server.cay(verb, cwd=odd, want=None).stderr, b"is not valid UTF-8")
        deep = "import os\nfor _ in range(30): os.mkdir('l' * 200); os.chdir('l' * 200)\nos.execv(%r, ['cay'] + %r)\n"
        for argv in (["diff"], ["run", "--", "true"]):
            done = subprocess.run(["python3", "-c", deep % (fake.CAY, argv)], cwd=odd, env=server.environment(), capture_output=True, check=False)
            contains(done.stderr, b"path is longer than")
            subprocess.run(["rm", "-r", odd], check=True)
            os.mkdir(odd)


def test_without_a_name_this_directorys_last_kept_run(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes", (200, {"sandboxes": [dict(BOX, name="older"), BOX]}))
        server.on("GET", "/v1/diff", (200, {"a": "x", "changes": []}))
        server.cay("diff", cwd=tmp)
        contains(server.requests[0].target, "label=cay.run.cwd%3D")
        contains(server.requests[1].target, "a=swift-otter")
        server.on("GET", "/v1/sandboxes", (200, {"sandboxes": []}))
        contains(server.cay("diff", want=125, cwd=tmp).stderr, b"no run of")
        deep = os.path.join(tmp, "d" * 250, "e")
        os.makedirs(deep)
        server.on("POST", "/v1/run", ends(ENDED))
        server.cay("run", "--", "x", cwd=deep)
        equal(server.requests[-1].json["sandbox"].get("labels"), None, "what is no label's value")
        contains(server.cay("diff", want=125, cwd=deep).stderr, b"too long to find its runs by")


def test_a_hidden_command_names_its_place(tmp):
    tools = os.path.join(tmp, "tools", "bin")
    os.makedirs(tools)
    with open(os.path.join(tools, "mytool"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\n")
    os.chmod(os.path.join(tools, "mytool"), 0o755)
    missing = fake.frame(fake.ERROR, {"error": {"code": "command_not_found", "message": "command 'mytool' not found in the sandbox"}})
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", lambda request: begin(request, missing))
        env = server.environment(PATH=f"{tools}:/usr/bin")
        done = server.cay("run", "--json", "--", "mytool", want=127, env=env)
        equal(json.loads(done.stderr)["error"]["code"], "command_hidden")
        contains(done.stderr, f"--expose {tmp}/tools".encode())
        with open(os.path.join(tmp, "tools", ".npmrc"), "w", encoding="utf-8"):
            pass
        contains(server.cay("run", "--", "mytool", want=127, env=env).stderr, f"--expose {tools} ".encode(), "what may be exposed")
        equal(json.loads(server.cay("run", "--json", "--", "nowhere", want=127, env=env).stderr)["error"]["code"], "command_not_found")
        # an image that lacks it, or another PATH inside: nothing is hidden, and /usr/bin of this machine laid over that of the image would be no help
        for command in ("env", "/usr/bin/env"):
            done = server.cay("run", "--json", "debian:12", "--", command, want=127, env=env)
            equal(json.loads(done.stderr)["error"]["code"], "command_not_found", command)


def test_a_command_that_is_there_but_not_on_the_path(tmp):
    """As /usr/local/go/bin: nothing of it is hidden, and a way to it is told."""
    tools = os.path.join(tmp, "go", "bin")
    os.makedirs(tools)
    shutil.copy("/bin/true", os.path.join(tools, "mytool"))
    box = dict(BOX, image="host", expose=[tools], mounts=[])
    error = {"error": {"code": "command_not_found", "message": "command 'mytool' not found in the sandbox"}}
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/b/execs", (422, error))
        server.on("GET", "/v1/sandboxes/b", (200, box))
        env = server.environment(PATH=f"/usr/bin:{tools}")
        said = json.loads(server.cay("exec", "b", "--json", "--", "mytool", want=127, env=env).stderr)["error"]
        equal((said["code"], said["message"]), ("command_not_found", f"command 'mytool' not found in the sandbox: '{tools}/mytool' is there, but not on the PATH"))
        contains(said["hint"], "-e PATH")
        said = json.loads(server.cay("exec", "b", "-e", "PATH=/bin", "--json", "--", "mytool", want=127, env=env).stderr)["error"]
        equal(said["message"], error["error"]["message"])


def test_info_of_nothing_speaks_of_sandboxes(tmp):
    with fake.FakeCayd(tmp) as server:
        for kind, path in (("sandbox", "sandboxes"), ("snapshot", "snapshots")):
            server.on("GET", f"/v1/{path}/nobody", (404, {"error": {"code": "not_found", "message": f"no {kind} 'nobody'"}}))
        contains(server.cay("info", "nobody", want=125).stderr, b"no sandbox 'nobody'")
        equal(json.loads(server.cay("info", "--json", "nobody", want=125).stderr)["error"]["message"], "no sandbox 'nobody'")


def test_what_a_command_needs_is_hidden(tmp):
    """Its file is mounted, and what it is a link to, or what runs it, is not: that is named, and nothing that is there already."""
    here, away = os.path.join(tmp, "venv/bin"), os.path.join(tmp, "away/python-3/bin")
    os.makedirs(here)
    os.makedirs(away)
    shutil.copy("/bin/true", os.path.join(away, "python3.11"))
    os.symlink(os.path.join(away, "python3.11"), os.path.join(here, "python"))
    for name, line in (("tool", f"#!{here}/python -I\n"), ("lost", f"#! {tmp}/nowhere\n"), ("fine", "#!/bin/sh\n")):
        with open(os.path.join(here, name), "w", encoding="utf-8") as f:
            f.write(line)
        os.chmod(os.path.join(here, name), 0o755)
    box = dict(BOX, image="host", expose=[], mounts=[{"source": f"{tmp}/venv", "target": f"{tmp}/venv", "mode": "cow"}])
    error = {"error": {"code": "command_not_found", "message": "command not found in the sandbox"}}
    place, python = f"{tmp}/away/python-3", f"{away}/python3.11"
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/b/execs", (422, error))
        server.on("POST", "/v1/run", lambda request: request.upgrade(fake.frame(fake.OBJECT, {"sandbox": box}), fake.frame(fake.ERROR, error)))
        server.on("GET", "/v1/sandboxes/b", (200, box))

        def told(command, *verb):
            return json.loads(server.cay(*verb, "--json", "--", os.path.join(here, command), want=127).stderr)["error"]
        for verb in (("exec", "b"), ("run", "--no-cwd")):
            for command, how in (("python", "leads to"), ("tool", "is run by")):
                said = told(command, *verb)
                equal((said["code"], said["message"]), ("command_hidden", f"'{here}/{command}' {how} '{python}' here, in a place that the sandbox hides"))
                contains(said["hint"], f"--expose {place}")
                equal(said["hint"].count("--expose"), 1)
            for command in ("lost", "fine"):
                equal(told(command, *verb)["code"], "command_not_found")
        server.on("GET", "/v1/sandboxes/b", (200, dict(box, mounts=[])))
        said = told("tool", "exec", "b")
        equal(said["message"], f"'{here}/tool' is '{here}/tool' here, in a place that the sandbox hides")
        contains(said["hint"], f"cay create --expose {tmp}/venv --expose {place}")
        server.on("GET", "/v1/sandboxes/b", (200, dict(box, expose=[f"{tmp}/away"])))
        equal(told("tool", "exec", "b")["code"], "command_not_found")
        # what it was told already is not forgotten where the sandbox is gone since
        server.on("GET", "/v1/sandboxes/b", (404, {"error": {"code": "not_found", "message": "no sandbox 'b'"}}))
        contains(told("tool", "exec", "b")["message"], f"is '{here}/tool' here")


def test_places_of_credentials_are_refused(tmp):
    for inner in (".ssh", ".aws", ".gnupg", ".config/gcloud", ".kube", ".docker"):
        os.makedirs(os.path.join(tmp, "home", inner))
    os.symlink(os.path.join(tmp, "home", ".ssh"), os.path.join(tmp, "link"))
    with fake.FakeCayd(tmp) as server:
        for place in ("home/.ssh", "home/.aws", "home/.gnupg", "home/.config/gcloud", "home/.kube", "home/.docker", "home", "link"):
            done = server.cay("run", "--json", "--no-cwd", "--expose", os.path.join(tmp, place), "--", "ls", want=125)
            equal(json.loads(done.stderr)["error"]["code"], "denied", place)
        server.cay("run", "--", "ls", want=125, cwd=os.path.join(tmp, "home"))
        equal(server.requests, [])


def test_an_image_for_which_there_is_no_room_is_told_as_that(tmp):
    """Of a write that does not fit the first part is written, and sets no error."""
    with fake.FakeCayd(tmp) as server:
        script = f"trap '' XFSZ; ulimit -f 8; exec {fake.CAY} image import - big"
        done = subprocess.run(["sh", "-c", script], input=bytes(100000), capture_output=True, env=server.environment(TMPDIR=tmp), check=False)
        contains(done.stderr, b"write a temporary file in '%b': File too large" % tmp.encode())
        done = server.cay("image", "import", "-", "big", want=125, env=server.environment(TMPDIR="/nonexistent"))
        contains(done.stderr, b"make a temporary file in '/nonexistent': No such file")


def test_what_is_no_utf8_is_refused_not_left_out(tmp):
    """An apply without its --to would write to the project, one without its --if checks nothing, a command without its --user is root's."""
    with fake.FakeCayd(tmp) as server:
        for argv in (("apply", "box", "--to", b"/tmp/\xe9"), ("apply", "box", "--target", b"/\xe9"), ("apply", "box", b"--if=caf\xe9"), ("exec", b"-u\xe9", "box", "true"),
                     ("exec", "-w", b"/\xe9", "box", "true"), ("create", "--profile", b"\xe9"), ("create", "--name", b"\xe9"), ("create", b"\xe9"),
                     ("image", "import", "/dev/null", b"\xe9"), ("fork", "box", "--name", b"\xe9"), ("snapshot", "box", "--name", b"\xe9")):
            contains(server.cay(*argv, want=64).stderr, b"not valid UTF-8", argv)
        equal(server.requests, [])


def test_an_empty_check_is_refused(tmp):
    """An unset variable of a script: the shell would call an empty command a success, and nothing would have been checked."""
    with fake.FakeCayd(tmp) as server:
        for check in ("", " \t\n"):
            contains(server.cay("apply", "box", "--if", check, want=64).stderr, b"a command is wanted")
        equal(server.requests, [])


def test_directories_with_credentials_in_them_are_refused(tmp):
    """Whatever defs/credentials.def names is looked for in what is exposed; a project may have an .npmrc or a .codex of its own."""
    for inner in ("a/.config/gh", "a/.cargo/bin", "b/.codex", "c/.local/share/keyrings"):
        os.makedirs(os.path.join(tmp, inner))
    with open(os.path.join(tmp, "a", ".cargo", "credentials.toml"), "w", encoding="utf-8"):
        pass
    with fake.FakeCayd(tmp) as server:
        for place in ("a", "a/.config", "a/.cargo", "b", "c", "c/.local/share"):
            done = server.cay("run", "--json", "--no-cwd", "--expose", os.path.join(tmp, place), "--", "ls", want=125)
            equal(json.loads(done.stderr)["error"]["code"], "denied", place)
        equal(server.requests, [])
        server.cay("run", "--no-cwd", "--expose", os.path.join(tmp, "a/.cargo/bin"), "--", "ls", want=None)
        server.cay("run", "--", "ls", want=None, cwd=os.path.join(tmp, "b"))
        equal(len([request for request in server.requests if request.method == "POST"]), 2)


def tar_of(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        for name, kind, data in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o4755
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = data
                t.addfile(info)
            else:
                info.size = len(data)
                t.addfile(info, io.BytesIO(data))
    return out.getvalue()


def copied_out(server, archive):
    server.on("GET", "/v1/sandboxes/box/files?path=%2Fd&format=file", (400, {"error": {"code": "invalid", "message": "a directory"}}))
    server.on("GET", "/v1/sandboxes/box/files?path=%2Fd&format=tar", b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % len(archive) + archive)


def test_a_hostile_archive_leaves_the_directory_alone(tmp):
    secret = os.path.join(tmp, "secret")
    with open(secret, "w", encoding="utf-8") as f:
        f.write("mine")
    with fake.FakeCayd(tmp) as server:
        for number, members in enumerate([
                [("../secret", tarfile.REGTYPE, b"theirs")], [(secret, tarfile.REGTYPE, b"theirs")], [("d/a/../../../secret", tarfile.REGTYPE, b"x")],
                [("d/../../secret", tarfile.REGTYPE, b"x")], [("secret", tarfile.REGTYPE, b"x")],
                [("d/l", tarfile.SYMTYPE, ".."), ("d/l/secret", tarfile.REGTYPE, b"theirs")],
                [("d/l", tarfile.SYMTYPE, tmp), ("d/l/new", tarfile.DIRTYPE, b"")],
                [("d", tarfile.SYMTYPE, tmp), ("d/new", tarfile.DIRTYPE, b"")],
                [("d/h", tarfile.LNKTYPE, "d/../../secret"), ("d/h", tarfile.REGTYPE, b"theirs")]]):
            copied_out(server, tar_of(*members))
            server.cay("cp", "box:/d", os.path.join(tmp, f"to{number}"), want=None)
            with open(secret, encoding="utf-8") as f:
                equal(f.read(), "mine", str(members))
            assert not os.path.exists(os.path.join(tmp, "new"))


def test_the_error_is_not_that_of_an_earlier_request(tmp):
    """What cay asks first, to find out whether there is a directory, may be refused."""
    refused = (400, {"error": {"code": "invalid", "message": "a directory", "member": "format"}})
    with fake.FakeCayd(tmp) as server:
        copied_out(server, tar_of(("d/x", tarfile.REGTYPE, b"")))
        server.on("GET", "/v1/sandboxes/box/files?path=%2Fe&format=file", refused)
        for words, said in ((("box:/d", os.path.join(tmp, "no", "to")), "make '"), (("-", "box:/e"), "a file name")):
            done = server.cay("cp", *words, "--json", want=None)
            contains(json.loads(done.stderr)["error"]["message"], said)


def test_a_fork_is_asked_for_again_behind_a_refusal(tmp):
    """A snapshot comes first; that there is none says nothing of a server that ends under the second request."""
    answers = [None, (201, {"sandboxes": [{"name": "fork"}]})]
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/snapshots/box/fork", (404, {"error": {"code": "not_found", "message": "no snapshot"}}))
        server.on("POST", "/v1/sandboxes/box/fork", lambda request: answers.pop(0))
        equal(server.cay("fork", "box", "--idempotency-key", "k").stdout, b"fork\n")


def test_a_path_that_is_too_long_is_no_hostile_one(tmp):
    with fake.FakeCayd(tmp) as server:
        copied_out(server, tar_of(("d/" * 2050 + "x", tarfile.REGTYPE, b"")))
        done = server.cay("cp", "box:/d", os.path.join(tmp, "to"), "--json", want=125)
        equal(json.loads(done.stderr)["error"]["code"], "too_large")


def test_of_several_names_those_that_fail_are_told_and_the_others_are_done(tmp):
    missing = (404, {"error": {"code": "not_found", "message": "there is no 'b'"}})
    with fake.FakeCayd(tmp) as server:
        for name in "ac":
            server.on("DELETE", f"/v1/sandboxes/{name}", (204, None))
            server.on("POST", f"/v1/sandboxes/{name}/stop", (200, {"name": name}))
            server.on("DELETE", f"/v1/secrets/{name}", (204, None))
            server.on("DELETE", f"/v1/images/{name}", (204, None))
        for target in ("sandboxes/b", "snapshots/b", "sandboxes/b/stop", "secrets/b", "images/b"):
            server.on("POST" if "stop" in target else "DELETE", f"/v1/{target}", missing)
        for verb, out in ((["rm"], b"a\nc\n"), (["stop"], b"a\nc\n"), (["secret", "rm"], b""), (["image", "rm"], b"")):
            done = server.cay(*verb, "a", "b", "c", want=125)
            equal(done.stdout, out)
            equal(done.stderr, b"cay: there is no 'b'\n")
            done = server.cay(*verb, "a", "b", "c", "--json", want=125)
            equal(json.loads(done.stderr)["error"]["message"], "there is no 'b'")
            equal(json.loads(done.stdout), [{"name": "a"}, {"name": "c"}] if verb == ["stop"] else {"removed": ["a", "c"]})
            equal(server.cay(*verb, "b", "--json", want=125).stdout, b"")
        # as many as one fork makes
        equal(server.cay("rm", *("a",) * 1000).stdout, b"a\n" * 1000)


def test_a_step_without_a_snapshot_is_no_missing_sandbox(tmp):
    with fake.FakeCayd(tmp) as server:
        for kind, message in (("sandboxes", "no sandbox 'box@9'"), ("snapshots", "sandbox 'box' has no step 9: its steps are 1 to 2")):
            for method in ("GET", "DELETE"):
                server.on(method, f"/v1/{kind}/box%409", (404, {"error": {"code": "not_found", "message": message}}))
                server.on(method, f"/v1/{kind}/box@9", (404, {"error": {"code": "not_found", "message": message}}))
        for verb in ("info", "rm"):
            equal(server.cay(verb, "box@9", want=125).stderr, b"cay: sandbox 'box' has no step 9: its steps are 1 to 2\n")


def test_what_newcomers_write_is_answered_with_what_they_mean(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes", (404, {"error": {"code": "not_found", "message": "no image 'box'"}}))
        contains(server.cay("create", "box", want=125).stderr, b"given with --name box\n")
        for flag in ("--mount", "--expose"):
            contains(server.cay("create", flag, "/etc/passwd", want=None).stderr, flag.encode() + b" '/etc/passwd': that is no directory\n")
        for verb in ("rm", "info", "apply"):  # "$box", never set
            contains(server.cay(verb, "", want=64).stderr, b"an argument is empty\n")
        contains(server.cay("logs", "-f", "box", want=64).stderr, b"did you mean --follow?")
        contains(server.cay("--json", "ps", want=64).stderr, b"the verb comes first, then '--json'")
        contains(server.cay("secret", "set", "X", want=125).stderr, b"no value for secret 'X'")


def test_info_shows_what_cay_does_by_itself(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box", (200, {**BOX, "idle_ms": 90500, "checkpoint": "each-exec"}))
        server.on("GET", "/v1/sandboxes/box/execs", (200, {"execs": []}))
        shown = server.cay("info", "box").stdout.decode()
    contains(shown, "idle       suspended after 90.5 s without activity\n")
    contains(shown, "checkpoint behind each exec")


def test_a_connection_that_failed_is_told_with_its_reason(tmp):
    lines = [{"seq": n, "time": "2026-01-01T00:00:00.000000Z", "type": "net.connection",
              "data": {"transport": "tcp", "host": "db.example", "port": 5432, "rule": "db", "sent": 0, "received": 0, **end}}
             for n, end in enumerate(({"end": "failed", "error": "nobody listens"}, {"end": "idle"}, {"end": "closed"}), 1)]
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box/events", b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        shown = server.cay("net", "box").stdout.decode().splitlines()
    equal([line.split("rule ")[1] for line in shown], ["db, failed: nobody listens", "db, idle", "db"])


def test_a_file_that_loses_its_end_while_it_is_copied_in_is_named(tmp):
    """A log that is rotated: zeros stand in its place, since its size was said before."""
    folder = os.path.join(tmp, "logs")
    os.mkdir(folder)
    log = os.path.join(folder, "log")
    with open(log, "wb") as f:
        f.write(b"x" * (8 << 20))

    def body(connection, headers, data):
        if "transfer-encoding" in headers:
            while len(data) < 65536:
                data += connection.recv(65536)
            os.truncate(log, 0)
        return read_body(connection, headers, data)
    with fake.FakeCayd(tmp) as server:
        server.on("PUT", "/v1/sandboxes/box/files", (204, None))
        read_body, server.read_body = server.read_body, body
        done = server.cay("cp", folder, "box:/root/logs", want=125)
        contains(done.stderr.decode(), "'logs/log' lost its end while it was read")
        equal(len([request for request in server.requests if request.method == "PUT"]), 1)


def test_a_copy_out_that_is_interrupted_leaves_nothing(tmp):
    go_on = threading.Event()

    def answer(request):
        request.connection.sendall(b"HTTP/1.1 200 X\r\nCay-Mode: 0640\r\nContent-Length: 8\r\n\r\ndata")
        go_on.wait(patience(20))

    def halves():
        return [name for name in os.listdir(tmp) if name != "run" and os.path.getsize(os.path.join(tmp, name)) == 4]
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box/files?path=%2Ff&format=file", answer)
        process = subprocess.Popen([fake.CAY, "cp", "box:/f", os.path.join(tmp, "f")], env=server.environment(), stdin=subprocess.DEVNULL)
        until(halves, patience(10))
        process.send_signal(signal.SIGINT)
        equal(process.wait(patience(20)), -signal.SIGINT)
        go_on.set()
    equal(os.listdir(tmp), ["run"])


def test_what_is_copied_out_replaces_no_device_pipe_or_link(tmp):
    os.mkfifo(os.path.join(tmp, "pipe"))
    os.symlink("/dev/null", os.path.join(tmp, "null"))
    os.symlink("notes", os.path.join(tmp, "link"))
    with open(os.path.join(tmp, "notes"), "w", encoding="utf-8") as f:
        f.write("old")
    reader = os.open(os.path.join(tmp, "pipe"), os.O_RDONLY | os.O_NONBLOCK)
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box/files?path=%2Ff&format=file", b"HTTP/1.1 200 X\r\nCay-Mode: 0640\r\nContent-Length: 4\r\n\r\ndata")
        for name in ("pipe", "null", "link"):
            server.cay("cp", "box:/f", os.path.join(tmp, name))
    equal(os.read(reader, 10), b"data")
    os.close(reader)
    equal([os.readlink(os.path.join(tmp, name)) for name in ("null", "link")], ["/dev/null", "notes"])
    with open(os.path.join(tmp, "notes"), encoding="utf-8") as f:
        equal(f.read(), "data")
    equal(sorted(name for name in os.listdir(tmp) if name != "run"), ["link", "notes", "null", "pipe"])


def test_a_directory_is_known_as_one_whatever_the_server_s_age(tmp):
    """A server stays over an update; one of before names no parameter that it refuses."""
    with open(os.path.join(tmp, "f"), "w", encoding="utf-8") as f:
        f.write("data")
    for error, into in (({"member": "format", "hint": "-"}, "%2Fd%2Ff"), ({"hint": "ask for it as tar"}, "%2Fd%2Ff"), ({"hint": ""}, "%2Fd")):
        os.makedirs(os.path.join(tmp, into))
        with fake.FakeCayd(os.path.join(tmp, into)) as server:
            server.on("GET", "/v1/sandboxes/box/files", (400, {"error": {"code": "invalid", "message": "no file", **error}}))
            server.cay("cp", os.path.join(tmp, "f"), "box:/d", want=None)
            places = [one.target.split("path=")[1].split("&")[0] for one in server.requests if one.method == "PUT"]
            equal(places, [into], str(error))
        shutil.rmtree(os.path.join(tmp, into))


def test_what_is_copied_into_a_directory_goes_nowhere_else(tmp):
    """A sandbox may have put links there: who names the directory means what is in it."""
    inside, outside = os.path.join(tmp, "inside"), os.path.join(tmp, "outside")
    os.makedirs(inside)
    os.makedirs(outside)
    with open(os.path.join(outside, "key"), "w", encoding="utf-8") as f:
        f.write("mine")
    os.symlink("../outside/key", os.path.join(inside, "f"))
    os.symlink("../outside", os.path.join(inside, "d"))
    os.mkfifo(os.path.join(inside, "pipe"))
    with fake.FakeCayd(tmp) as server:
        for name in ("f", "pipe"):
            server.on("GET", f"/v1/sandboxes/box/files?path=%2F{name}&format=file", b"HTTP/1.1 200 X\r\nCay-Mode: 0640\r\nContent-Length: 4\r\n\r\ndata")
        server.cay("cp", "box:/f", inside)
        contains(server.cay("cp", "box:/pipe", inside, want=None).stderr.decode(), "is there and is no file")
        copied_out(server, tar_of(("d/", tarfile.DIRTYPE, b""), ("d/key", tarfile.REGTYPE, b"x\n")))
        server.cay("cp", "box:/d", inside, want=None)
    equal(os.path.islink(os.path.join(inside, "f")), False)
    with open(os.path.join(inside, "f"), encoding="utf-8") as f:
        equal(f.read(), "data")
    with open(os.path.join(outside, "key"), encoding="utf-8") as f:
        equal(f.read(), "mine")
    equal(sorted(os.listdir(inside)), ["d", "f", "pipe"])


def test_what_ends_with_a_slash_is_a_directory_to_copy_into(tmp):
    """A mistyped directory must not become a file, nor a file be replaced that was taken for a directory."""
    notes, new = os.path.join(tmp, "notes"), os.path.join(tmp, "new")
    with open(notes, "w", encoding="utf-8") as f:
        f.write("mine")
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box/files?path=%2Ff&format=file", b"HTTP/1.1 200 X\r\nCay-Mode: 0640\r\nContent-Length: 4\r\n\r\ndata")
        contains(server.cay("cp", "box:/f", f"{new}/", want=125).stderr.decode(), f"open '{new}': No such file or directory")
        contains(server.cay("cp", "box:/f", f"{notes}/", want=125).stderr.decode(), f"open '{notes}': Not a directory")
    equal(os.path.exists(new), False)
    with open(notes, encoding="utf-8") as f:
        equal(f.read(), "mine")


def test_what_is_no_tree_makes_no_directory(tmp):
    with fake.FakeCayd(tmp) as server:
        copied_out(server, tar_of(("d", tarfile.FIFOTYPE, b"")))
        contains(server.cay("cp", "box:/d", os.path.join(tmp, "out"), want=None).stderr, b"neither a file nor a directory")
    equal(os.path.exists(os.path.join(tmp, "out")), False)


def test_a_private_tree_stays_private(tmp):
    top = tarfile.TarInfo("d")
    top.type, top.mode = tarfile.DIRTYPE, 0o700
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        t.addfile(top)
    with fake.FakeCayd(tmp) as server:
        copied_out(server, out.getvalue())
        server.cay("cp", "box:/d", os.path.join(tmp, "out"))
    equal(os.stat(os.path.join(tmp, "out")).st_mode & 0o7777, 0o700)


def test_a_file_with_the_longest_name_is_copied_out(tmp):
    name = "n" * 255
    with fake.FakeCayd(tmp) as server:
        server.on("GET", f"/v1/sandboxes/box/files?path=%2F{name}&format=file", b"HTTP/1.1 200 X\r\nCay-Mode: 0640\r\nContent-Length: 4\r\n\r\ndata")
        server.cay("cp", f"box:/{name}", os.path.join(tmp, "run"))
    equal([n for n in os.listdir(os.path.join(tmp, "run")) if n.startswith(("n", "."))], [name])


def test_a_tree_is_copied_out_without_set_uid(tmp):
    with fake.FakeCayd(tmp) as server:
        copied_out(server, tar_of(("d/", tarfile.DIRTYPE, b""), ("d/e/", tarfile.DIRTYPE, b""), ("d/e/f", tarfile.REGTYPE, b"x\n"),
                                  ("d/l", tarfile.SYMTYPE, "e/f"), ("d/h", tarfile.LNKTYPE, "d/e/f")))
        server.cay("cp", "box:/d", os.path.join(tmp, "out"))
    with open(os.path.join(tmp, "out", "l"), encoding="utf-8") as f:
        equal(f.read(), "x\n")
    equal(os.stat(os.path.join(tmp, "out", "e", "f")).st_mode & 0o7777, 0o755)
    equal(os.stat(os.path.join(tmp, "out", "h")).st_nlink, 2)


def test_labels_of_ps_have_to_be_there_all(tmp):
    boxes = [{"name": name, "id": name * 20, "state": "running", "labels": labels}
             for name, labels in (("a", {"project": "shop", "user": "me"}), ("b", {"project": "other", "user": "me"}), ("c", {"user": "me"}))]
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes?label=user%3Dme", (200, {"sandboxes": boxes}))
        equal(server.cay("ps", "-q", "-l", "project=shop", "-l", "user=me").stdout, b"a\n")
        equal([b["name"] for b in json.loads(server.cay("ps", "--json", "-l", "project", "-l", "user=me").stdout)["sandboxes"]], ["a", "b"])


def test_a_command_s_own_json_is_not_cay_s(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/execs", (404, {"error": {"code": "not_found", "message": "no sandbox 'box'"}}))
        for argv, ours in ((("exec", "box", "npm", "ls", "--json"), False), (("exec", "--json", "box", "npm", "ls"), True), (("exec", "box", "--", "npm", "--json"), False)):
            done = server.cay(*argv, want=None)
            equal((done.stderr.startswith(b"{"), done.stderr.startswith(b"cay: ")), (ours, not ours), argv)


def test_a_dry_run_takes_no_check(tmp):
    with fake.FakeCayd(tmp) as server:
        contains(server.cay("apply", "box", "--dry-run", "--if", "make test", want=64).stderr, b"--dry-run runs no command")
        equal(server.requests, [])


def test_conflicts_of_an_apply_are_in_its_json(tmp):
    refused = {"error": {"code": "conflict", "message": "1 conflict"}, "conflicts": [{"path": "/p/f", "reason": "changed"}], "executables": []}
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/apply", (409, refused))
        equal(json.loads(server.cay("apply", "--json", "box", want=None).stderr), refused)
        contains(server.cay("apply", "box", want=125).stderr, b"cay apply box -- PATH")


def test_a_secret_with_a_nul_is_refused(tmp):
    with fake.FakeCayd(tmp) as server:
        contains(server.cay("secret", "set", "X", stdin=b"abcdefgh12\0more", want=None).stderr, b"is no text")
        equal([r for r in server.requests if r.method == "PUT"], [])


def test_a_secret_that_is_interrupted_leaves_the_terminal_as_it_was(tmp):
    with fake.FakeCayd(tmp) as server:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execve(fake.CAY, ["cay", "secret", "set", "X"], server.environment())
        def echoes():
            return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)
        until(lambda: not echoes())
        os.write(terminal, b"\x03")
        until(echoes)
        equal(os.WTERMSIG(os.waitpid(pid, 0)[1]), signal.SIGINT)
        os.close(terminal)


def test_nothing_of_a_secret_is_shown_from_the_prompt_on(tmp):
    """A prompt that cannot be written yet: the terminal shows nothing of what is typed already."""
    ours, terminal = pty.openpty()
    reading, stuck = os.pipe()
    os.set_blocking(stuck, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(stuck, bytes(4096))
    os.set_blocking(stuck, True)
    with fake.FakeCayd(tmp) as server:
        process = subprocess.Popen([fake.CAY, "secret", "set", "X"], env=server.environment(), stdin=terminal, stdout=subprocess.DEVNULL, stderr=stuck)
        try:
            until(lambda: not termios.tcgetattr(terminal)[3] & termios.ECHO, patience(10))
        finally:
            process.kill()
            process.wait()
    for fd in (ours, terminal, reading, stuck):
        os.close(fd)


def test_following_ends_with_the_event_that_was_named(tmp):
    """Nobody waits for one behind it."""
    with fake.FakeCayd(tmp) as server:
        lines = b"".join(json.dumps({"n": n, "seq": n, "type": "x", "time": "2026-01-01T00:00:00Z", "data": {}}).encode() + b"\n" for n in (1, 2))
        server.on("GET", "/v1/events?from=0&follow=true", b"HTTP/1.1 200 X\r\nContent-Length: 100000\r\n\r\n" + lines)
        equal(server.cay("events", "--follow", "--json", "--until", "2").stdout.count(b"\n"), 2)


def test_following_ends_with_a_failure_when_the_server_ends(tmp):
    """What comes behind it is not there, and where to go on is told."""
    with fake.FakeCayd(tmp) as server:
        line = json.dumps({"n": 7, "seq": 3, "type": "x", "time": "2026-01-01T00:00:00Z", "data": {}}).encode() + b"\n"
        for target in ("/v1/events", "/v1/sandboxes/box/events"):
            server.on("GET", f"{target}?from=0&follow=true", b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % len(line) + line)
            server.on("GET", f"{target}?from=0", b"HTTP/1.1 200 X\r\nContent-Length: %d\r\n\r\n" % len(line) + line)
        contains(server.cay("events", "--follow", want=125).stderr, b"--from 8 goes on")
        contains(server.cay("events", "box", "--follow", want=125).stderr, b"--from 4 goes on")
        server.cay("events")


def test_output_is_no_json(tmp):
    """`cay logs --json` says what the exec is; it does not take for said what it does not do."""
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box/execs?limit=1", (200, {"execs": [{"id": "e" * 20}]}))
        equal(json.loads(server.cay("logs", "box", "--json").stdout), {"id": "e" * 20})
        for option in (("--follow",), ("--from", "7")):
            contains(server.cay("logs", "box", "--json", *option, want=64).stderr, option[0].encode())


def test_what_is_left_out_of_a_tree_replaces_nothing(tmp):
    """A pipe of the sandbox where the machine has a file; and a directory there, which is told."""
    top = os.path.join(tmp, "out")
    for name in ("d/pipe", "d/e"):
        os.makedirs(os.path.join(top, os.path.dirname(name)), exist_ok=True)
        with open(os.path.join(top, name), "w", encoding="utf-8") as f:
            f.write("mine\n")
    with fake.FakeCayd(tmp) as server:
        copied_out(server, tar_of(("d/", tarfile.DIRTYPE, b""), ("d/pipe", tarfile.FIFOTYPE, b"")))
        contains(server.cay("cp", "box:/d", top).stderr, b"pipes and devices were left out: 1")
        copied_out(server, tar_of(("d/", tarfile.DIRTYPE, b""), ("d/e/", tarfile.DIRTYPE, b"")))
        contains(server.cay("cp", "box:/d", top, want=None).stderr, b"Not a directory")
    for name in ("d/pipe", "d/e"):
        with open(os.path.join(top, name), encoding="utf-8") as f:
            equal(f.read(), "mine\n")


@require("program:strace")
def test_a_directory_that_cannot_be_read_to_its_end_is_no_whole_tree(tmp):
    """The disk or the network gives an error in the middle: that is not the end."""
    top = os.path.join(tmp, "tree")
    os.mkdir(top)
    for n in range(300):
        with open(os.path.join(top, "n" * 100 + str(n)), "wb"):
            pass
    with fake.FakeCayd(tmp) as server:
        server.on("PUT", "/v1/sandboxes/box/files", (204, None))
        done = subprocess.run(["strace", "-o", os.path.join(tmp, "trace"), "-e", "inject=getdents64:error=EIO:when=2", fake.CAY, "cp", top, "box:/x"],
                              env=server.environment(), capture_output=True, timeout=patience(20), check=False)
    equal(done.returncode, 125)
    contains(done.stderr, b"read the directory 'x/': ")


def test_a_tree_is_sent_as_a_tar_that_others_read(tmp):
    top = os.path.join(tmp, "tree")
    os.makedirs(os.path.join(top, "d" * 90, "e" * 90))
    for name, data in (("f", b"x" * 70000), (os.path.join("d" * 90, "e" * 90, "n" * 200), b"deep"), ("empty", b"")):
        with open(os.path.join(top, name), "wb") as f:
            f.write(data)
    os.symlink("x" * 150, os.path.join(top, "link"))
    os.mkfifo(os.path.join(top, "fifo"))
    with fake.FakeCayd(tmp) as server:
        server.on("PUT", "/v1/sandboxes/box/files", (204, None))
        contains(server.cay("cp", top, "box:/x").stderr, b"sockets, pipes and devices were left out: 1")
        request = server.requests[1]
    contains(request.target, "path=%2F&format=tar")
    with tarfile.open(fileobj=io.BytesIO(request.body)) as t:
        names = {m.name: m for m in t.getmembers()}
        equal(sorted(names), sorted(["x", "x/f", "x/empty", "x/link", "x/" + "d" * 90, f"x/{'d' * 90}/{'e' * 90}",
                                     f"x/{'d' * 90}/{'e' * 90}/{'n' * 200}"]))
        equal(t.extractfile("x/f").read(), b"x" * 70000)
        equal(names["x/link"].linkname, "x" * 150)


def test_a_file_of_several_names_is_sent_once(tmp):
    top = os.path.join(tmp, "tree")
    os.makedirs(os.path.join(top, "d"))
    for name in ("f", "alone"):
        with open(os.path.join(top, name), "w", encoding="utf-8") as f:
            f.write("once")
    for name in ("g", "d/" + "h" * 120):
        os.link(os.path.join(top, "f"), os.path.join(top, name))
    with fake.FakeCayd(tmp) as server:
        server.on("PUT", "/v1/sandboxes/box/files", (204, None))
        server.cay("cp", top, "box:/x")
        request = server.requests[1]
    with tarfile.open(fileobj=io.BytesIO(request.body)) as t:
        equal(sorted(m.type for m in t.getmembers() if not m.isdir()), [tarfile.REGTYPE, tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.LNKTYPE])
        t.extractall(os.path.join(tmp, "there"))
    there = os.path.join(tmp, "there", "x")
    equal({os.stat(os.path.join(there, name)).st_nlink for name in ("f", "g", "d/" + "h" * 120)}, {3})
    equal(os.stat(os.path.join(there, "alone")).st_nlink, 1)


def until(condition, seconds=10):
    """Wait for something that another thread does."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen")
        select.select([], [], [], 0.01)


def test_interrupts_are_forwarded_then_kill_then_leave(tmp):
    got = []

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"ready\n"))
        for kind, payload in request.frames():
            if kind == fake.SIGNAL:
                got.append(struct.unpack("<I", payload)[0])

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        with subprocess.Popen([fake.CAY, "run", "--", "x"], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            equal(process.stdout.readline(), b"ready\n")
            for number, want in ((signal.SIGUSR1, [10]), (signal.SIGINT, [10, 2]), (signal.SIGINT, [10, 2, 9])):
                process.send_signal(number)
                until(lambda w=want: got == w)
            process.send_signal(signal.SIGINT)
            equal(process.wait(10), 130)


def test_what_its_caller_ignores_is_ignored(tmp):
    """nohup, and jobs of a script in the background: the end of a session, or Ctrl-C for others, ends no command."""
    got = []

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"ready\n"))
        for kind, payload in request.frames():
            if kind == fake.SIGNAL:
                got.append(struct.unpack("<I", payload)[0])
            if got[-1:] == [signal.SIGUSR1]:
                request.connection.sendall(fake.frame(fake.STATUS, ENDED) + fake.frame(fake.OBJECT, {"summary": {"kept": False, "changes": 0, "denied": []}}))
                return

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        with subprocess.Popen(["sh", "-c", "trap '' HUP INT QUIT; exec \"$0\" run -- x", fake.CAY], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            equal(process.stdout.readline(), b"ready\n")
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
                process.send_signal(number)
            equal(process.wait(10), 0)
    equal(got, [signal.SIGUSR1])


def test_a_reader_that_goes_away_is_the_commands_sigpipe(tmp):
    got = []

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"y\n" * 2000))
        for kind, payload in request.frames():
            if kind == fake.SIGNAL:
                got.append(struct.unpack("<I", payload)[0])
                request.connection.sendall(fake.frame(fake.STATUS, {"status": "signaled", "signal": 13}))
                return

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        readable, writable = os.pipe()
        os.close(readable)
        with subprocess.Popen([fake.CAY, "run", "--", "yes"], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL, stdout=writable,
                              stderr=subprocess.PIPE) as process:
            os.close(writable)
            equal(process.wait(10), 141)
    equal(got, [signal.SIGPIPE])


def test_output_that_cannot_be_written_is_no_success(tmp):
    """A full disk behind `cay run … > file`: the command may have ended well long before its output is written here."""
    with fake.FakeCayd(tmp) as server, open("/dev/full", "wb") as full:
        kept = {"kept": True, "changes": 7, "name": "swift-otter", "id": BOX["id"], "denied": []}
        server.on("POST", "/v1/run", ends(ENDED, kept, fake.output(fake.STDOUT, b"a dump\n")))
        done = subprocess.run([fake.CAY, "run", "--", "x"], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL, stdout=full,
                              stderr=subprocess.PIPE, timeout=20, check=False)
    equal(done.returncode, 125)
    contains(done.stderr, b"cay: write the command's output: No space left on device")
    contains(done.stderr, b"cay apply swift-otter")


def test_what_is_printed_on_a_full_disk_is_no_success(tmp):
    """`cay diff --json > file`: half an object, or a name that somebody needs, is a failure like any other output that is not there."""
    with fake.FakeCayd(tmp) as server, open("/dev/full", "wb") as full:
        server.on("POST", "/v1/run", ends(ENDED))
        server.on("GET", "/v1/sandboxes", (200, {"sandboxes": [BOX]}))
        server.on("POST", "/v1/sandboxes", (201, BOX))
        server.on("POST", "/v1/sandboxes/box/execs", (201, {"id": "e" * 20, "state": "running"}))
        server.on("POST", "/v1/snapshots/point/verify", (200, {"id": "p" * 20, "state": "verified"}))
        for argv in (("ps", "--json"), ("create",), ("exec", "-d", "box", "--", "x"), ("verify", "point"), ("run", "--json", "--", "x")):
            done = subprocess.run([fake.CAY, *argv], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL, stdout=full,
                                  stderr=subprocess.PIPE, timeout=20, check=False)
            equal(done.returncode, 125, argv)
            contains(done.stderr, b"write to standard output: No space left on device")


def test_output_is_held_for_a_cay_that_attaches(tmp):
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/execs", (201, {"id": "e" * 20, "state": "running"}))
        server.cay("exec", "-d", "box", "--", "x")
        server.cay("exec", "box", "--", "x", want=None)
        equal([request.json.get("hold") for request in server.requests if request.method == "POST"], [None, True])


def test_who_waits_for_a_reader_behind_the_end_can_be_ended(tmp):
    """The command is over, what it wrote last waits for a pager that does not read on."""
    taken = []

    def answer(request):
        ends(ENDED, None, *(fake.output(fake.STDOUT, b"y\n" * 20000, 40000 * n) for n in range(5)))(request)
        until(lambda: struct.unpack("I", fcntl.ioctl(request.connection, termios.TIOCOUTQ, b"1234"))[0] == 0)
        taken.append(True)

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        with subprocess.Popen([fake.CAY, "run", "--", "yes"], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            try:
                until(lambda: taken)
                until(lambda: process.send_signal(signal.SIGTERM) or process.poll() is not None)
                equal(process.returncode, 143)
            finally:
                process.kill()


def test_a_closed_standard_stream_is_nothing(tmp):
    """Who starts a command without one (`<&-`, a daemon) has the next descriptor that is opened in its place: never the connection to the server."""
    got = []

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"out"), fake.output(fake.STDERR, b"err", 3), fake.frame(fake.STATUS, {"status": "exited", "code": 3}),
              fake.frame(fake.OBJECT, {"summary": {"kept": False, "changes": 0, "name": "swift-otter", "id": BOX["id"], "denied": []}}))
        while more := request.connection.recv(65536):
            got.append(more)

    for number, closed in enumerate(("<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-")):
        directory = os.path.join(tmp, str(number))
        os.mkdir(directory)
        with fake.FakeCayd(directory) as server:
            server.on("POST", "/v1/run", answer)
            done = subprocess.run(["sh", "-c", f'exec "$0" run -- x {closed}', fake.CAY], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, timeout=20, check=False)
            equal((done.returncode, done.stdout, done.stderr), (3, b"" if " >" in " " + closed else b"out", b"" if "2>" in closed else b"err"), closed)
            equal((len(server.requests), server.requests[0].json["exec"].get("stdin"), got), (1, None, []), closed)


@contextlib.contextmanager
def on_terminal(server, *argv, program=fake.CAY, stdout=None):
    """The process, both ends of its terminal, and how that was before; all of it goes at the end. @stdout: where else its output goes."""
    ours, theirs = pty.openpty()

    def control():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    before = termios.tcgetattr(theirs)
    process = subprocess.Popen([program, *argv], cwd="/", env=server.environment(TERM="xterm"), stdin=theirs,  # pylint: disable=consider-using-with
                               stdout=stdout or theirs, stderr=theirs, preexec_fn=control)  # pylint: disable=subprocess-popen-preexec-fn
    try:
        yield process, ours, theirs, before
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)
        os.close(theirs)


def test_the_terminal_is_raw_inside_and_as_before_whatever_ends_it(tmp):
    states = []

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"ready"))
        for kind, payload in request.frames():
            states.append((kind, payload))

    for number, end in enumerate((signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGABRT, signal.SIGSEGV, None)):
        directory = os.path.join(tmp, str(number))
        os.mkdir(directory)
        with fake.FakeCayd(directory) as server:
            server.on("POST", "/v1/run", ends(ENDED) if end is None else answer)
            with on_terminal(server, "run", "-it", "--", "bash") as (process, ours, theirs, before):
                if end is None:
                    equal(process.wait(10), 0)
                else:
                    seen = b""
                    while b"ready" not in seen:
                        seen += os.read(ours, 100)
                    equal(termios.tcgetattr(theirs)[3] & (termios.ICANON | termios.ECHO | termios.ISIG), 0, "raw")
                    for wanted in range(3):
                        process.send_signal(end)
                        if end in (signal.SIGABRT, signal.SIGSEGV):
                            break
                        until(lambda w=wanted: sum(k == fake.SIGNAL for k, _ in states) > w or process.poll() is not None)
                    process.wait(10)
                    states.clear()
                equal(termios.tcgetattr(theirs), before, f"after {end}")


def test_ctrl_z_that_nobody_can_continue_stops_nobody(tmp):
    """`ssh -t host cay exec box -- make`: no shell is there that could continue it."""
    got = []

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"ready\n"))
        for kind, payload in request.frames():
            if kind == fake.SIGNAL:
                got.append(struct.unpack("<I", payload)[0])
            if got[-1:] == [signal.SIGCONT]:
                request.connection.sendall(fake.frame(fake.STATUS, ENDED) + fake.frame(fake.OBJECT, {"summary": {"kept": False, "changes": 0, "denied": []}}))
                return

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        with on_terminal(server, "run", "--", "make") as (process, ours, theirs, _):
            seen = b""
            while b"ready" not in seen:
                seen += os.read(ours, 100)
            os.write(ours, b"\x1a")
            equal(process.wait(10), 0)


def test_only_connections_that_bring_nothing_are_counted(tmp):
    """Each rewind, suspension and resume ends one, and the next one goes on. Who gets nothing again and again gives up."""
    def answer(request):
        n = sum("/attach" in r.target for r in server.requests)
        frames = [] if brings is None else [brings(n)]
        begin(request, *frames, *([fake.frame(fake.STATUS, ENDED)] if n == 250 else []))

    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/execs", (201, {"id": "run", "state": "running"}))
        server.on("GET", "/v1/sandboxes/box/execs/run/attach", answer)
        for brings in (lambda n: fake.output(fake.STDOUT, b"%03d\n" % n, 4 * (n - 1)), lambda _: fake.frame(fake.OBJECT, {"input": {"received": 0, "taken": 0}})):
            server.requests.clear()
            server.cay("exec", "box", "--", "x")
            equal(sum("/attach" in r.target for r in server.requests), 250)
        brings = None
        server.requests.clear()
        contains(server.cay("exec", "box", "--", "x", want=125).stderr, b"the connection to the server ended before the command did")
        equal(sum("/attach" in r.target for r in server.requests), 101)


def test_who_waits_for_the_next_server_can_be_ended(tmp):
    """Signals do what they do to any program, and so do keys: the terminal is as before meanwhile."""
    def answer(request):
        if sum("/attach" in r.target for r in server.requests) == 1:
            begin(request, fake.output(fake.STDOUT, b"ready\n"))
        else:
            request.connection.recv(1)

    for number, (tty, end) in enumerate(((False, signal.SIGTERM), (True, signal.SIGHUP), (True, signal.SIGINT))):
        directory = os.path.join(tmp, str(number))
        os.mkdir(directory)
        with fake.FakeCayd(directory) as server:
            server.on("GET", "/v1/sandboxes/box/execs/run", (200, {"id": "run", "state": "running", "tty": tty, "stdin": tty}))
            server.on("GET", "/v1/sandboxes/box/execs/run/attach", answer)
            with on_terminal(server, "attach", "box", "run") as (process, ours, theirs, before):
                until(lambda s=server: sum("/attach" in r.target for r in s.requests) == 2)
                until(lambda t=theirs, b=before: termios.tcgetattr(t) == b)
                if end == signal.SIGINT:
                    os.write(ours, b"\x03")
                else:
                    process.send_signal(end)
                equal(process.wait(10), -end)
                equal(termios.tcgetattr(theirs), before)


def test_a_terminal_that_is_closed_does_not_end_what_was_only_joined(tmp):
    """Of an attach; what we started ourselves is told (test_the_terminal_is_raw_inside…)."""
    for tty in (False, True):
        directory, got = os.path.join(tmp, str(tty)), []
        os.mkdir(directory)

        def answer(request, got=got):
            begin(request, fake.output(fake.STDOUT, b"ready"))
            got.extend(kind for kind, _ in request.frames())
        with fake.FakeCayd(directory) as server:
            server.on("GET", "/v1/sandboxes/box/execs/run", (200, {"id": "run", "state": "running", "tty": tty, "stdin": tty}))
            server.on("GET", "/v1/sandboxes/box/execs/run/attach", answer)
            with on_terminal(server, "attach", "box", "run") as (process, ours, theirs, before):
                equal(os.read(ours, 5), b"ready")
                process.send_signal(signal.SIGHUP)
                equal(process.wait(10), 128 + signal.SIGHUP)
                equal(termios.tcgetattr(theirs), before)
        assert fake.SIGNAL not in got, got


def test_keys_leave_a_command_without_a_terminal(tmp):
    """`~.` on a line of its own, also where nothing of what is typed is for the command. A pipe may say what it likes."""
    for takes in (False, True):
        directory, got, left = os.path.join(tmp, str(takes)), [], threading.Event()
        os.mkdir(directory)

        def answer(request, got=got, left=left):
            begin(request, fake.output(fake.STDOUT, b"ready"))
            for kind, payload in request.frames():
                got.append((kind, payload))
                if (kind, payload) == (fake.STDIN, b""):
                    request.connection.sendall(fake.frame(fake.STATUS, ENDED))
                    return
            left.set()
        with fake.FakeCayd(directory) as server:
            server.on("GET", "/v1/sandboxes/box/execs/run", (200, {"id": "run", "state": "running", "tty": False, "stdin": takes}))
            server.on("GET", "/v1/sandboxes/box/execs/run/attach", answer)
            with on_terminal(server, "attach", "box", "run") as (process, ours, _, _):
                equal(os.read(ours, 5), b"ready")
                os.write(ours, b"a word ~.\n")
                if not takes:
                    os.write(ours, b"\x04")  # Ctrl-D ends what is for the command, and is no end of the keys
                os.write(ours, b"~.\n")
                equal(process.wait(10), 0)
            assert left.wait(10)
            equal(got, [(fake.STDIN, b"a word ~.\n")] if takes else [])
            if takes:
                server.cay("attach", "box", "run", stdin=b"~.\n")
                equal(got[1:], [(fake.STDIN, b"~.\n"), (fake.STDIN, b"")])


def test_what_is_typed_is_left_to_a_pager_behind_the_output(tmp):
    """It reads the same terminal, and may be there before us or not."""
    go = threading.Event()

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"ready"))
        go.wait(30)
        request.connection.sendall(fake.frame(fake.STATUS, ENDED))
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/sandboxes/box/execs/run", (200, {"id": "run", "state": "running", "tty": False, "stdin": False}))
        server.on("GET", "/v1/sandboxes/box/execs/run/attach", answer)
        pager, output = os.pipe()
        try:
            with on_terminal(server, "attach", "box", "run", stdout=output) as (process, ours, theirs, _):
                os.close(output)
                equal(os.read(pager, 5), b"ready")
                os.write(ours, b"q\n")
                go.set()
                equal(process.wait(10), 0)
                equal(os.read(theirs, 10), b"q\n")
        finally:
            os.close(pager)


def test_keys_leave_a_command_without_a_terminal_whose_sandbox_is_suspended(tmp):
    def answer(request):
        begin(request, fake.frame(fake.OBJECT, {"exec": {"id": "run", "sandbox": "k3v9", "state": "suspended"}}))
        list(request.frames())
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/sandboxes/box/execs", (201, {"id": "run", "state": "running"}))
        server.on("GET", "/v1/sandboxes/box/execs/run/attach", answer)
        with on_terminal(server, "exec", "box", "--", "make") as (process, ours, _, _):
            seen = b""
            while b"~. and Enter leave it" not in seen:
                seen += os.read(ours, 1000)
            os.write(ours, b"~.\n")
            equal(process.wait(10), 0)


def test_a_job_in_the_background_leaves_the_terminal_to_the_shell(tmp):
    """Ctrl-Z, bg, and the shell's next line: it is for the shell, and the job goes on. Back in the foreground it reads again."""
    got, go = [], threading.Event()

    def answer(request):
        begin(request, fake.output(fake.STDOUT, b"ready\r\n"))
        threading.Thread(target=lambda: go.wait(20) and request.connection.sendall(fake.frame(fake.STDOUT, struct.pack("<Q", 7) + b"more\r\n"))).start()
        for kind, payload in request.frames():
            got.append((kind, payload))
            if kind == fake.STDIN:
                request.connection.sendall(fake.frame(fake.STATUS, ENDED))
                return

    def shows(text):
        while text not in seen[0]:
            assert select.select([ours], [], [], 10)[0], f"no {text}: {seen[0]}"
            seen[0] += os.read(ours, 1000)
        seen[0] = seen[0].split(text, 1)[1]

    seen = [b""]
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", answer)
        with on_terminal(server, "--norc", "-i", program="bash") as (process, ours, theirs, _):
            os.write(ours, b"PS1='prom''pt> '\n")
            shows(b"prompt> ")
            os.write(ours, fake.CAY.encode() + b" run -- x\n")
            shows(b"ready")
            os.write(ours, b"\x1a")
            shows(b"prompt> ")
            os.write(ours, b"bg\n")
            shows(b"prompt> ")
            os.write(ours, b"#for the shell")
            shows(b"shell")
            go.set()
            shows(b"more")
            os.write(ours, b"\nfg\n")
            shows(b"fg\r\n")
            shows(b"run -- x")
            os.write(ours, b"for the job\n")
            until(lambda: (fake.STDIN, b"for the job\n") in got)
            shows(b"prompt> ")
    equal([payload for kind, payload in got if kind == fake.STDIN], [b"for the job\n"])


def test_a_terminal_that_nobody_reads_keeps_nobody_from_ending(tmp):
    """The window hangs: what asks us to end is heard all the same."""
    def answer(request):
        begin(request, *(fake.output(fake.STDOUT, b"y\r\n" * 10000, 30000 * n) for n in range(8)))
        for _ in request.frames():
            pass

    for number, flag in enumerate(("-i", "-it")):
        directory = os.path.join(tmp, str(number))
        os.mkdir(directory)
        with fake.FakeCayd(directory) as server:
            server.on("POST", "/v1/run", answer)
            with on_terminal(server, "run", flag, "--", "yes") as (process, ours, theirs, before):
                equal(select.select([ours], [], [], 10)[0], [ours])
                until(lambda p=process: p.send_signal(signal.SIGTERM) or p.poll() is not None)
                equal(process.returncode, 143)
                equal(termios.tcgetattr(theirs), before)


def test_what_is_written_to_the_other_side_of_a_terminal_comes_out_of_it(tmp):
    """Opened once more that would be the side of another terminal, which nobody has."""
    ours, theirs = pty.openpty()
    with fake.FakeCayd(tmp) as server:
        server.on("POST", "/v1/run", ends({"status": "exited", "code": 0}, None, fake.output(fake.STDOUT, b"here\n")))
        try:
            subprocess.run([fake.CAY, "run", "--", "true"], cwd="/", env=server.environment(), stdin=subprocess.DEVNULL, stdout=ours, timeout=30, check=True)
            equal(select.select([theirs], [], [], 10)[0], [theirs])
            equal(os.read(theirs, 100), b"here\n")
        finally:
            os.close(ours)
            os.close(theirs)


def test_the_reference_page_is_what_the_program_says(tmp):
    with fake.FakeCayd(tmp) as server:
        page = server.cay("help", "--markdown").stdout.decode()
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with open(os.path.join(top, "docs", "reference", "cli.md"), encoding="utf-8") as f:
        equal(f.read(), page, "docs/reference/cli.md: build/cay help --markdown writes it")


def test_completion_scripts_are_accepted_by_their_shells(tmp):
    with fake.FakeCayd(tmp) as server:
        script = server.cay("completion", "bash").stdout
        done = subprocess.run(["bash", "-c", script.decode() + "\nCOMP_WORDS=(cay sna); COMP_CWORD=1; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay run --ti); COMP_CWORD=2; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay policy ''); COMP_CWORD=2; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay events ret); COMP_CWORD=2; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay events retention --max-s); COMP_CWORD=3; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay event); COMP_CWORD=1; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay run --profile s); COMP_CWORD=3; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay run --policy /etc/hostn); COMP_CWORD=3; _cay; echo ${COMPREPLY[@]}\n"
                                                               "COMP_WORDS=(cay exec -w ''); COMP_CWORD=3; _cay; echo none ${COMPREPLY[@]}"],
                              capture_output=True, text=True, timeout=20, check=True)
        equal(done.stdout, "snapshot snapshots\n--timeout\ncheck show set explain presets\nretention\n--max-size\nevents\nstrict\n/etc/hostname\nnone\n")
        server.cay("completion", "tcsh", want=64)


def test_completion_starts_no_server(tmp):
    """Not for a key that was pressed: it offers nothing then."""
    mark, own = os.path.join(tmp, "started"), os.path.join(tmp, "bin")
    os.mkdir(own)
    subprocess.run(["cp", fake.CAY, own], check=True)
    with open(os.path.join(own, "cayd"), "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\n: > {mark}\nexit 3\n")
    os.chmod(os.path.join(own, "cayd"), 0o755)
    env = {"PATH": f"{own}:/usr/bin:/bin", "CAY_RUN": os.path.join(tmp, "none"), "CAY_STATE": os.path.join(tmp, "state")}
    script = subprocess.run(["cay", "completion", "bash"], env=env, capture_output=True, text=True, timeout=20, check=True).stdout
    for words in ("cay rm ''", "cay fork ''", "cay diff ''", "cay run --image ''"):
        done = subprocess.run(["bash", "-c", f"{script}\nCOMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _cay; echo ${{COMPREPLY[@]}}"],
                              env=env, capture_output=True, text=True, timeout=20, check=True)
        equal((done.stdout, os.path.exists(mark)), ("\n", False), words)
    done = subprocess.run(["cay", "ps"], env={**env, "CAY_START": "0"}, capture_output=True, text=True, timeout=20, check=False)
    equal((done.returncode, os.path.exists(mark)), (125, False))
    contains(done.stderr, "CAY_START=0")
    equal((subprocess.run(["cay", "ps"], env=env, capture_output=True, timeout=20, check=False).returncode, os.path.exists(mark)), (125, True))


@require("program:fish")
def test_fish_completes(tmp):
    with fake.FakeCayd(tmp) as server:
        script = os.path.join(tmp, "cay.fish")
        with open(script, "wb") as f:
            f.write(server.cay("completion", "fish").stdout)
        for line, wanted in (("cay sna", ["snapshot", "snapshots"]), ("cay run --ti", ["--timeout"]), ("cay events v", ["verify"])):
            done = subprocess.run(["fish", "--no-config", "-c", f"source {script}; complete -C '{line}'"], capture_output=True, text=True,
                                  timeout=20, check=True, env={"HOME": tmp, "PATH": os.path.dirname(fake.CAY) + ":/usr/bin:/bin", "CAY_RUN": server.run})
            # newer ones offer what holds the letters anywhere after it
            offered = [row.split("\t")[0] for row in done.stdout.splitlines()]
            equal([word for word in offered if word.startswith(line.split()[-1])], wanted, line)


@require("program:zsh")
def test_zsh_reads_its_script(tmp):
    with fake.FakeCayd(tmp) as server:
        script = os.path.join(tmp, "_cay")
        with open(script, "wb") as f:
            f.write(server.cay("completion", "zsh").stdout)
        done = subprocess.run(["zsh", "-f", "-c", f"autoload -U compinit; compinit -u -D; source {script}; whence -w _cay; print $_comps[cay]"],
                              capture_output=True, text=True, timeout=20, check=True, env={"HOME": tmp, "PATH": "/usr/bin:/bin"})
        equal((done.stdout.splitlines()[0], done.stderr), ("_cay: function", ""))
        contains(done.stdout, "_bash_complete")


@require("program:zsh")
def test_zsh_completes_at_the_first_key(tmp):
    """Where the script was read, and where it lies in a directory of functions, as an installation puts it."""
    for n, how in enumerate((f"source {tmp}/_cay", f"fpath=({tmp} $fpath)")):
        with fake.FakeCayd(os.path.join(tmp, str(n))) as server:
            with open(os.path.join(tmp, "_cay"), "wb") as f:
                f.write(server.cay("completion", "zsh").stdout)
            pid, terminal = pty.fork()
            if pid == 0:
                os.execve("/usr/bin/zsh", ["zsh", "-f", "-i"], {"HOME": tmp, "TERM": "dumb", "PATH": os.path.dirname(fake.CAY) + ":/usr/bin:/bin", "CAY_RUN": server.run})
            order = ("autoload -U compinit; compinit -u -D", how) if n == 0 else (how, "autoload -U compinit; compinit -u -D")
            os.write(terminal, "; ".join((*order, "PS1='rea''dy> '\n")).encode())
            seen(terminal, b"ready> ")
            os.write(terminal, b"cay sna\t")
            seen(terminal, b"cay snapshot")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(terminal)


def seen(terminal, what):
    """Wait until @terminal has shown @what."""
    said = b""
    while what not in said:
        assert select.select([terminal], [], [], patience(20))[0], f"{what!r} was not shown: {said!r}"
        said += os.read(terminal, 65536)


def test_no_server_and_none_to_start(tmp):
    env = {"PATH": "/usr/bin", "CAY_RUN": os.path.join(tmp, "none"), "CAY_STATE": os.path.join(tmp, "state")}
    alone = os.path.join(tmp, "cay")
    os.link(fake.CAY, alone) if os.stat(fake.CAY).st_dev == os.stat(tmp).st_dev else subprocess.run(["cp", fake.CAY, alone], check=True)
    done = subprocess.run([alone, "ps"], env=env, capture_output=True, timeout=20, check=False)
    equal(done.returncode, 125)
    contains(done.stderr, b"no server runs")
    with open(os.path.join(tmp, "cayd"), "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\necho no cgroups here >&2\nexit 3\n")
    os.chmod(os.path.join(tmp, "cayd"), 0o755)
    done = subprocess.run([alone, "ps"], env=env, capture_output=True, timeout=20, check=False)
    equal(done.returncode, 125)
    contains(done.stderr, b"ended with 3: no cgroups here")


def standing(server, argv, on_terminal, **more):
    """`cay ARGV` with standard output and error each on a terminal or not, as "out" and "err" are in @on_terminal: (process, {name: descriptor to read})."""
    ours, theirs = {}, {}
    for name in ("out", "err"):
        ours[name], theirs[name] = pty.openpty() if name in on_terminal else os.pipe()
    process = subprocess.Popen([fake.CAY, *argv], stdin=subprocess.DEVNULL, stdout=theirs["out"], stderr=theirs["err"], env=server.environment(**more))
    for descriptor in theirs.values():
        os.close(descriptor)
    return process, ours


def rest(process, ours):
    """{name: what it wrote} up to its end."""
    said = {}
    for name, descriptor in ours.items():
        said[name] = b""
        try:
            while more := os.read(descriptor, 65536):
                said[name] += more
        except OSError:
            pass  # the other end of a terminal is closed
        os.close(descriptor)
    process.wait(patience(20))
    return said


def test_colours_are_for_terminals_alone(tmp):
    """Each of the two outputs by itself, and none where NO_COLOR is set to something (no-color.org); what is said is the same."""
    changes = {"changes": [{"path": "/a", "kind": "deleted", "before": {"type": "file", "mode": 0o100644, "size": 5}, "after": None}]}
    error = {"code": "not_found", "message": "no sandbox 'x'", "hint": "look again"}
    escape = re.compile(rb"\x1b\[[0-9;]*m")
    with fake.FakeCayd(tmp) as server:
        server.on("GET", "/v1/diff", (200, changes))
        server.on("GET", "/v1/sandboxes", (200, {"sandboxes": [dict(BOX, created="2026-01-01T00:00:00Z")]}))
        server.on("GET", "/v1/sandboxes/x", (404, {"error": error}))
        for argv, name in ((["diff", "swift-otter"], "out"), (["ps"], "out"), (["info", "x"], "err")):
            plain = rest(*standing(server, argv, ()))[name]
            assert b"\x1b" not in plain, plain
            coloured = rest(*standing(server, argv, ("out", "err")))[name]
            assert escape.search(coloured), f"{argv} has no colours on a terminal: {coloured!r}"
            assert escape.search(rest(*standing(server, argv, ("out", "err"), NO_COLOR=""))[name]), "an empty NO_COLOR says nothing"
            without = rest(*standing(server, argv, ("out", "err"), NO_COLOR="1"))[name]
            equal(without, escape.sub(b"", coloured), f"{argv} with NO_COLOR")
            other = rest(*standing(server, argv, {"out": "err", "err": "out"}[name]))[name]
            equal(other, plain, f"{argv}: the other output is the terminal")


def test_who_waits_at_a_terminal_sees_that_it_goes_on(tmp):
    """Behind a second a line says what is waited for and how long, and is gone when the answer comes; where nobody looks there is none."""
    go_on = threading.Event()

    def late(_request):
        go_on.wait(patience(20))
        return 200, {"sandboxes": []}
    places = [os.path.join(tmp, name) for name in ("a", "b")]
    for place in places:
        os.mkdir(place)
    with fake.FakeCayd(places[0]) as one, fake.FakeCayd(places[1]) as other:
        one.on("GET", "/v1/sandboxes", late)
        other.on("GET", "/v1/sandboxes", late)
        unseen = standing(one, ["ps"], ())
        while not one.requests:
            select.select([], [], [], 0.01)
        seen = standing(other, ["ps"], ("err",))
        said = b""
        while " … 2 s".encode() not in said:
            assert select.select([seen[1]["err"]], [], [], patience(20))[0], said
            said += os.read(seen[1]["err"], 65536)
        go_on.set()
        said += rest(*seen)["err"]
        equal(rest(*unseen)["err"], b"")
    lines = said.split(b"\r\x1b[K")
    equal(lines[0], b"")
    assert re.fullmatch(rb".+ \xe2\x80\xa6 1 s", lines[1]), lines
    equal(lines[-1], b"", "the line is left")
