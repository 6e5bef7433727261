# SPDX-License-Identifier: Apache-2.0
"""cay run: what a person notices. Status, output, what is kept and what the last line says."""

import contextlib
import json
import os
import re
import signal
import subprocess
import tarfile

from lib import cay, leaks
from lib.case import contains, equal, require


def project(tmp):
    top = os.path.join(tmp, "project")
    os.mkdir(top)
    with open(os.path.join(top, "f"), "w", encoding="utf-8") as f:
        f.write("one\n")
    return top


def boxes(instance):
    """Names of the sandboxes that stay: a removal goes on for a moment after `cay run` has ended."""
    cay.wait_until(lambda: all(s["state"] in ("running", "stopped") for s in instance.get("/v1/sandboxes")["sandboxes"]), 20,
                   "sandboxes under removal are gone", os.path.join(instance.state, "events"))
    return [s["name"] for s in instance.get("/v1/sandboxes")["sandboxes"]]


def forget(instance):
    for name in boxes(instance):
        instance.cay("rm", "-f", name)


@contextlib.contextmanager
def mounted(*places):
    """A file system of memory at each of them, with a file in it."""
    done = []
    try:
        for place in places:
            os.makedirs(place, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", place], check=True)
            done.append(place)
            with open(os.path.join(place, "there"), "w", encoding="utf-8") as f:
                f.write("x\n")
        yield
    finally:
        for place in reversed(done):
            subprocess.run(["umount", place], check=True)


@require("root")
def test_a_file_system_below_a_mount_is_told(instance, tmp):
    """Its place is empty inside, as nobody expects: also one that is mounted later than the server began, and not when it is shown by a mount of its own."""
    top = project(tmp)
    first, second = os.path.join(top, "a b"), os.path.join(top, "deep", "c")
    equal(instance.cay("run", "--rm", "--", "true", cwd=top).stderr, "")
    with mounted(first, second):
        done = instance.cay("run", "--rm", "--", "find", ".", "-name", "there", cwd=top)
        equal(done.stdout, "")
        equal(done.stderr, f"cay: warning: other file systems are mounted there, and their places are empty inside: '{first}', '{second}'\n")
        done = instance.cay("create", "--mount", f"{top}:/p", "--mount", f"{second}:/p/deep/c:ro")
        box = done.stdout.strip()
        equal(done.stderr, f"cay: warning: another file system is mounted there, and its place is empty inside: '{first}'\n")
        equal(instance.get(f"/v1/sandboxes/{box}")["not_shown"], [first])
        equal(instance.wait_event("sandbox.created", box)["data"]["not_shown"], [first])
        equal(instance.ok(box, "find /p -name there"), "/p/deep/c/there\n")
        instance.cay("rm", "-f", box)
    equal(instance.cay("run", "--rm", "--", "true", cwd=top).stderr, "")


def test_an_unknown_image(instance, tmp):
    done = instance.cay("run", "no-such-image", "--", "true", want=125, cwd=tmp)
    contains(done.stderr, "no-such-image")
    equal(boxes(instance), [])


def test_bad_mounts(instance, tmp):
    for mount in ("x", "/no/such/dir:/x", "/tmp:relative", "/tmp:/x:wr", ":/x", "/tmp:/proc", "/tmp:/"):
        done = instance.cay("run", "--no-cwd", "--mount", mount, "--", "true", check=False, cwd=tmp)
        assert done.returncode in (64, 125), (mount, done.returncode, done.stderr)
        assert done.stderr.strip(), mount
    equal(boxes(instance), [])


def test_output_goes_where_the_command_sent_it(instance, tmp):
    done = instance.cay("run", "--no-cwd", "--rm", "--", "sh", "-c", "echo out; echo err >&2; exit 3", want=3, cwd=tmp)
    equal(done.stdout, "out\n")
    contains(done.stderr, "err\n")


def test_a_run_that_changed_nothing_leaves_nothing(instance, tmp):
    top = project(tmp)
    done = instance.cay("run", "--", "cat", "f", cwd=top)
    equal((done.stdout, done.stderr), ("one\n", ""))
    equal(boxes(instance), [])


def test_a_run_that_changed_files_is_kept_and_says_what_to_do(instance, tmp):
    top = project(tmp)
    done = instance.cay("run", "--", "sh", "-c", "echo two > f; echo new > g; exit 4", want=4, cwd=top)
    last = done.stderr.strip().splitlines()[-1]
    match = re.fullmatch(r"(\d+) files? changed: cay diff (\S+) · cay apply (\S+) · cay rm (\S+)", last)
    assert match, last
    equal((match[1], match[2], match[3]), ("2", match[4], match[4]))
    name = match[2]
    equal(instance.get(f"/v1/sandboxes/{name}")["state"], "stopped")
    with open(os.path.join(top, "f"), encoding="utf-8") as f:
        equal(f.read(), "one\n", "the host file")
    # Without a name: the last kept run of this directory.
    paths = [c["path"] for c in json.loads(instance.cay("diff", "--json", cwd=top).stdout)["changes"]]
    equal(sorted(paths), [os.path.join(top, "f"), os.path.join(top, "g")])
    instance.cay("apply", cwd=top)
    with open(os.path.join(top, "f"), encoding="utf-8") as f:
        equal(f.read(), "two\n")
    assert os.path.exists(os.path.join(top, "g"))
    instance.cay("rm", cwd=top)
    equal(boxes(instance), [])


def test_what_was_in_a_renamed_directory_is_there_after_an_apply(instance, tmp):
    """Below its changes the sandbox has the host's directory, which the apply moves. One that runs cannot be told so, and the person is."""
    top = project(tmp)
    os.mkdir(os.path.join(top, "d"))
    with open(os.path.join(top, "d/g"), "w", encoding="utf-8") as f:
        f.write("inside\n")
    instance.cay("run", "--", "mv", "d", "e", cwd=top)
    [name] = boxes(instance)
    assert "new sandbox" not in instance.cay("apply", cwd=top).stdout
    equal(json.loads(instance.cay("diff", "--json", cwd=top).stdout)["changes"], [])
    instance.cay("start", name)
    equal(instance.cay("exec", name, "--", "cat", f"{top}/e/g").stdout, "inside\n")
    instance.cay("exec", name, "--", "mv", f"{top}/e", f"{top}/f2")
    contains(instance.cay("apply", name).stdout, "Go on in a new sandbox")
    with open(os.path.join(top, "f2/g"), encoding="utf-8") as f:
        equal(f.read(), "inside\n")
    forget(instance)


def test_what_changed_elsewhere_is_counted_apart(instance, tmp):
    """As `cay diff` shows it; it alone is nothing that is kept."""
    top = project(tmp)
    done = instance.cay("run", "--", "sh", "-c", "echo two > f; touch ~/one ~/two", cwd=top)
    contains(done.stderr, "1 file changed, 2 elsewhere: cay diff ")
    equal(len(json.loads(instance.cay("diff", "--json", cwd=top).stdout)["changes"]), 3)
    forget(instance)
    equal(instance.cay("run", "--", "sh", "-c", "touch ~/one ~/two", cwd=top).stderr, "")
    equal(boxes(instance), [])


def test_what_an_apply_leaves_out_is_not_counted(instance, tmp):
    """FIFOs, sockets, and owners alone. Such a sandbox is kept all the same."""
    top = project(tmp)
    others = "mkfifo pipe; chown 7 f; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"
    contains(instance.cay("run", "--", "sh", "-c", f"{others}; echo new > new; chmod 600 f", cwd=top).stderr, "2 files changed: cay diff ")
    equal(len(json.loads(instance.cay("diff", "--json", cwd=top).stdout)["changes"]), 4)
    forget(instance)
    then = "cay diff named · cay start named · cay rm named"
    equal(last_line(instance, top, script=others), f"nothing to apply: {then}")
    equal(last_line(instance, top, script=f"{others}; touch ~/one"), f"nothing to apply, 1 elsewhere: {then}")


def last_line(instance, top, *options, script="true", **more):
    """What a run of @script in a sandbox with the name `named` says at its end; the sandbox is removed."""
    done = instance.cay("run", "--name", "named", *options, "--", "sh", "-c", script, cwd=top, **more)
    instance.remove("named")
    return done.stderr.splitlines()[-1]


def test_the_last_line_of_one_with_a_name_tells_what_changed(instance, tmp):
    """It is kept in any case: what changed in no mounted directory is no nothing."""
    top = project(tmp)
    then = "cay start named · cay rm named"
    equal(last_line(instance, top), f"nothing changed, kept: {then}")
    for options in ((), ("--no-cwd",)):
        equal(last_line(instance, top, *options, script="touch ~/one ~/two"), f"2 files changed, none in a mounted directory: cay diff named · {then}", options)
    equal(last_line(instance, top, script="touch ~/one; echo two > f"), "1 file changed, 1 elsewhere: cay diff named · cay apply named · cay rm named")


@require("root")
def test_what_could_not_be_compared_is_not_called_unchanged(tmp):
    top = project(tmp)
    with contextlib.closing(cay.Instance(tmp, env={"CAY_FAULT": "run.compare:1=error"}).start()) as instance:
        equal(last_line(instance, top), "kept, and what changed could not be found out: cay diff named · cay start named · cay rm named")


def test_what_changed_elsewhere_hides_nothing(instance, tmp):
    """More files than a comparison lists, beside one change of the project."""
    top = project(tmp)
    many = "import os\nos.mkdir('/var/tmp/m')\nfor i in range(100001): os.mknod(f'/var/tmp/m/{i}')\nopen('f', 'w').write('two')"
    done = instance.cay("run", "--", "python3", "-c", many, cwd=top, timeout=300)
    contains(done.stderr, "1 file changed, 100000 elsewhere")
    forget(instance)


def test_rm_removes_whatever_changed(instance, tmp):
    top = project(tmp)
    done = instance.cay("run", "--rm", "--", "sh", "-c", "echo two > f", cwd=top)
    assert "cay diff" not in done.stderr, done.stderr
    equal(boxes(instance), [])
    with open(os.path.join(top, "f"), encoding="utf-8") as f:
        equal(f.read(), "one\n")


def test_an_interrupt_ends_the_command_and_keeps_the_changes(instance, tmp):
    top = project(tmp)
    process = instance.popen([os.path.join(instance.programs, "cay"), "run", "--", "sh", "-c", "echo two > f; echo ready; exec sleep 1000"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=top, start_new_session=True)
    equal(process.stdout.readline(), b"ready\n")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    equal(process.returncode, 130)
    contains(err.decode(), "1 file changed")
    equal(len(boxes(instance)), 1)
    equal(instance.get(f"/v1/sandboxes/{boxes(instance)[0]}")["state"], "stopped")
    forget(instance)


def test_a_client_that_is_killed_leaves_no_running_command(instance, tmp):
    top = project(tmp)
    process = instance.popen([os.path.join(instance.programs, "cay"), "run", "--", "sh", "-c", "echo two > f; echo ready; exec sleep 1000"],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=top, start_new_session=True)
    equal(process.stdout.readline(), b"ready\n")
    box = instance.get("/v1/sandboxes")["sandboxes"][0]["id"]
    process.kill()
    process.communicate()
    instance.wait_event("sandbox.stopped", box)
    equal(instance.get(f"/v1/sandboxes/{box}")["state"], "stopped")
    forget(instance)


def test_a_fork_of_a_run_is_not_the_last_run(instance, tmp):
    top = project(tmp)
    instance.cay("run", "--name", "first", "--", "sh", "-c", "echo two > f", cwd=top)
    instance.cay("fork", "first", "--name", "twin", "--files-only")
    instance.cay("stop", "twin")
    instance.cay("rm", "first")
    contains(instance.cay("rm", want=125, cwd=top).stderr, "no run of")
    equal(boxes(instance), ["twin"])
    instance.cay("run", "--name", "second", "--", "sh", "-c", "echo two > g", cwd=top)
    instance.cay("fork", "second", "--name", "third", "--files-only")
    instance.cay("stop", "third")
    equal(instance.cay("rm", cwd=top).stdout, "second\n")
    equal(sorted(boxes(instance)), ["third", "twin"])
    forget(instance)


def going(instance, name, top, script, *options):
    """`cay run --name NAME` that has printed "ready"; it reads its standard input."""
    process = instance.popen([os.path.join(instance.programs, "cay"), "run", "--name", name, *options, "--", "sh", "-c", script],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=top, start_new_session=True)
    equal(process.stdout.readline(), b"ready\n")
    return process


def test_what_leaves_the_command_alone_is_done_while_it_goes_on(instance, tmp):
    """Snapshots, forks, another policy; what would take the sandbox from under the command is refused at once."""
    top = project(tmp)
    process = going(instance, "going", top, "echo two > f; echo ready; read word; echo three > g; echo $word")
    instance.cay("snapshot", "going", "--name", "point", "--files-only")
    instance.cay("fork", "going", "--name", "twin", "--files-only")
    instance.cay("policy", "set", "going", "mail-sink")
    instance.cay("set", "going", "--idle", "10m")
    for verb in (["pause"], ["suspend"], ["resume"], ["start"], ["apply"], ["rm"], ["rewind"]):
        contains(instance.cay(*verb, "going", *(["point"] if verb == ["rewind"] else []), want=125).stderr, "is that of a cay run whose command goes on")
    out, err = process.communicate(b"word\n", timeout=30)
    equal((process.returncode, out), (0, b"word\n"))
    contains(err.decode(), "2 files changed")
    contains(instance.cay("policy", "show", "going").stdout, "mail-sink")
    instance.cay("fork", "point", "--name", "later")
    for box in ("twin", "later"):
        equal(instance.cay("exec", "-w", top, box, "--", "sh", "-c", "cat f; ls").stdout, "two\nf\n")
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
    instance.cay("apply", "going")
    forget(instance)
    instance.cay("rm", "point")


@require("root")
def test_a_live_fork_of_a_run_goes_on_when_that_is_over(instance, tmp):
    process = going(instance, "going", project(tmp), "X=42; echo ready; read word; echo $word$X")
    instance.cay("fork", "going", "--name", "twin")
    out, _ = process.communicate(b"word\n", timeout=30)
    equal((process.returncode, out), (0, b"word42\n"))
    instance.cay("rm", "going")
    run, = instance.get("/v1/sandboxes/twin/execs")["execs"]
    equal(run["state"], "running")
    instance.cay("kill", "twin", run["id"])
    forget(instance)


@require("root")
def test_steps_are_taken_while_the_command_of_a_run_goes_on(instance, tmp):
    """Those of commands beside it; its own when it is over, of what is then there."""
    top = project(tmp)
    process = going(instance, "going", top, "echo two > f; echo ready; read word; echo three > f", "--checkpoint", "each-exec")
    instance.cay("exec", "going", "--", "true")
    instance.cay("exec", "going", "--", "true")
    assert instance.get("/v1/sandboxes/going/steps")["steps"][1]["snapshot"] is not None
    equal(process.communicate(b"word\n", timeout=30)[1].decode().count("1 file changed"), 1)
    for step, text in (2, "two\n"), (1, "three\n"):
        instance.cay("fork", f"going@{step}", "--name", f"twin-{step}", "--files-only")
        equal(instance.cay("exec", "-w", top, f"twin-{step}", "--", "cat", "f").stdout, text)
    equal(instance.get("/v1/sandboxes/going")["state"], "stopped")
    forget(instance)


def test_who_stops_a_run_with_grace_asks_its_command_first(instance, tmp):
    process = going(instance, "going", project(tmp), "trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    instance.cay("stop", "--grace", "1m", "going")
    equal((process.communicate(timeout=30)[0], process.returncode), (b"bye\n", 7))
    forget(instance)
    process = going(instance, "going", tmp, "trap '' TERM; echo ready; while :; do sleep 0.05; done")
    instance.cay("stop", "--grace", "1s", "going")
    process.communicate(timeout=30)
    equal(process.returncode, 137)
    forget(instance)


def test_a_stop_with_grace_waits_for_nobody_where_nothing_runs(instance):
    with instance.sandbox() as box:
        instance.ok(box, "true")
        instance.cay("stop", "--grace", "10m", box)
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "stopped")


def test_who_comes_while_a_run_begins_waits_for_no_more_than_that(instance, tmp):
    """What its command allows is done once it is there, the rest is refused, and who stops it ends it."""
    instance.cay("run", "--no-cwd", "--rm", "--", "true")
    stopped, asked = [], {}
    try:
        for program in ("cay-spawn", "memfd:cay-keepe"):
            for pid in instance.programs_named(program):
                with contextlib.suppress(ProcessLookupError):  # it has just ended, as others do for a while
                    os.kill(pid, signal.SIGSTOP)
                    stopped.append(pid)
        process = instance.popen([os.path.join(instance.programs, "cay"), "run", "--no-cwd", "--name", "going", "--", "sleep", "1000"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp, start_new_session=True)
        cay.wait_until(lambda: "going" in str(instance.get("/v1/sandboxes")), 20, "the sandbox is there", os.path.join(instance.state, "events"))
        equal(instance.get("/v1/sandboxes/going")["state"], "creating")
        for what, body in (("snapshots", {"files_only": True}), ("pause", {}), ("stop", {})):
            asked[what] = cay.UnixConnection(instance.socket, 30)
            asked[what].request("POST", f"/v1/sandboxes/going/{what}", json.dumps(body), {"Content-Type": "application/json"})
        instance.get("/v1/sandboxes")
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    answers = {what: connection.getresponse().status for what, connection in asked.items()}
    _, err = process.communicate(timeout=30)
    equal((process.returncode, answers), (137, {"snapshots": 201, "pause": 409, "stop": 200}), err.decode())
    for connection in asked.values():
        connection.close()
    forget(instance)


def test_who_stops_or_removes_the_sandbox_of_a_run_ends_its_command(instance, tmp):
    """At once: nobody waits for the command."""
    top = project(tmp)
    for verb, options, stays in ((["stop"], (), True), (["rm", "-f"], (), False), (["stop"], ("--rm",), False), (["rm", "-f"], ("--rm",), False)):
        process = going(instance, "going", top, "echo two > f; echo ready; cat", *options)
        equal(instance.cay(*verb, "going").stdout, "going\n")
        _, err = process.communicate(timeout=30)
        equal(process.returncode, 137)
        contains(err.decode(), "killed")
        equal(boxes(instance), ["going"] if stays else [])
        if stays:
            equal(instance.get("/v1/sandboxes/going")["state"], "stopped")
            contains(instance.cay("diff", "going").stdout, "1 modified")
        forget(instance)


def test_the_current_directory_is_where_the_command_starts(instance, tmp):
    top = project(tmp)
    equal(instance.cay("run", "--", "pwd", cwd=top).stdout, top + "\n")
    done = instance.cay("run", "--no-cwd", "--", "ls", top, check=False, cwd=top)
    assert "f" not in done.stdout.split() or done.returncode != 0, done.stdout
    forget(instance)


def git(cwd, *words):
    done = subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def repository(tmp, name):
    """A repository with one commit, and its worktrees "beside" and "inside" (as people have them in bare ones)."""
    top = os.path.join(tmp, name)
    subprocess.run(["git", "init", "-q", "-b", "main", top], check=True)
    git(top, "commit", "-q", "--allow-empty", "-m", "first")
    for place in (f"{tmp}/{name}-beside", f"{top}/.git/inside"):
        git(top, "worktree", "add", "-q", place)
    return top


def test_a_git_worktree_has_its_repository(instance, tmp):
    top = repository(tmp, "repository")
    commit = "echo two > f && git add f && git -c user.name=t -c user.email=t@example.org commit -q -m second && git log --format=%s"
    for place in (top + "-beside", top + "/.git/inside"):
        done = instance.cay("run", "--", "sh", "-c", commit, cwd=place)
        equal(done.stdout.split(), ["second", "first"], done.stderr)
        equal(git(place, "log", "--format=%s"), "first")
        instance.cay("apply", cwd=place)
        equal((git(place, "log", "--format=%s"), git(place, "status", "--short"), git(top, "log", "--format=%s")), ("second\nfirst", "", "first"))
        equal(git(top, "fsck"), "")
    forget(instance)


def test_what_no_worktree_is_shows_no_repository(instance, tmp):
    """A file .git can be what a sandbox wrote: it must not make another directory visible."""
    top = repository(tmp, "other")
    for text in (f"gitdir: {top}/.git", f"gitdir: {top}/.git/worktrees/other-beside", "gitdir: /", "gitdir: " + "x" * 5000, "gitdir:", "", "\0"):
        false = os.path.join(tmp, "false")
        os.makedirs(false, exist_ok=True)
        with open(false + "/.git", "w", encoding="utf-8") as f:
            f.write(text)
        instance.cay("run", "--rm", "--", "test", "!", "-e", top + "/.git", cwd=false)
    os.unlink(false + "/.git")
    os.mkfifo(false + "/.git")
    instance.cay("run", "--rm", "--", "true", cwd=false)


def test_mount_modes(instance, tmp):
    top = project(tmp)
    other = os.path.join(tmp, "other")
    os.mkdir(other)
    os.chmod(other, 0o777)
    done = instance.cay("run", "--rm", "--no-cwd", "--mount", f"{top}:/ro:ro", "--", "sh", "-c", "echo x > /ro/f", check=False, cwd=tmp)
    assert done.returncode != 0
    contains(done.stderr.lower(), "read-only")
    done = instance.cay("run", "--rm", "--no-cwd", "--mount", f"{other}:/rw:rw", "--", "sh", "-c", "echo x > /rw/g", cwd=tmp)
    contains(done.stderr, "warning")
    with open(os.path.join(other, "g"), encoding="utf-8") as f:
        equal(f.read(), "x\n")
    equal(os.stat(os.path.join(other, "g")).st_uid, os.getuid())


def test_json_gives_one_object(instance, tmp):
    top = project(tmp)
    done = instance.cay("run", "--json", "--", "sh", "-c", "echo hello; echo two > f", cwd=top)
    summary = json.loads(done.stdout)
    assert "hello" in done.stderr
    contains(str(summary), "changes")
    forget(instance)


def check_the_end_told(instance, tmp):
    for words in ([], ["--name", "kept"]):
        said = json.loads(instance.cay("run", "--no-cwd", "--json", *words, "--", "sh", "-c", "exit 3", cwd=tmp, want=3).stdout)
        equal((said["sandbox"]["state"], said["exec"]["state"], said["exec"]["status"]), ("stopped" if words else "removing", "ended", said["status"]))
        equal((said["sandbox"]["init_pid"], said["sandbox"]["execs_running"], said["status"]["code"]), (None, 0, 3))
        assert said["exec"]["pid"] > 0 and said["sandbox"]["started"], said
    equal(said["sandbox"], instance.get("/v1/sandboxes/kept"))
    equal(said["exec"], instance.get(f"/v1/sandboxes/kept/execs/{said['exec']['id']}"))
    instance.post("/v1/sandboxes/kept/start")
    said = json.loads(instance.cay("exec", "--json", "kept", "--", "true").stdout)
    equal(said["exec"], instance.get(f"/v1/sandboxes/kept/execs/{said['exec']['id']}"))


def test_json_tells_the_end(instance, tmp):
    """The objects are those of a sandbox and a command that have ended; of one that is kept what a question for it gives."""
    cay.wait_until(lambda: instance.get("/v1/version")["pool"] > 0, 60, "a sandbox is prepared")
    check_the_end_told(instance, tmp)
    forget(instance)


def test_json_tells_the_end_where_no_sandbox_was_prepared(tmp):
    instance = cay.Instance(tmp, env={"CAY_POOL": "0"})
    try:
        instance.start()
        check_the_end_told(instance, tmp)
    finally:
        instance.close()


def test_who_has_the_answer_does_not_find_the_sandbox(instance):
    """Its rows are deleted behind the answer, and before anybody's next question."""
    for _ in range(5):
        with contextlib.closing(instance.run_stream(["true"])) as stream:
            stream.until(cay.STATUS)
            box = json.loads(stream.next()[2])["summary"]["id"]
            equal([s["id"] for s in instance.get("/v1/sandboxes")["sandboxes"] if s["id"] == box], [])


def test_every_verb_has_help_with_an_example(instance):
    verbs = re.findall(r"^VERB\(\w+, \"([^\"]+)\"", open(os.path.join(cay.TOP, "defs", "cli.def"), encoding="utf-8").read(), re.M)
    assert len(verbs) > 20, verbs
    for verb in verbs:
        done = instance.cay(*verb.split(), "--help")
        contains(done.stdout.partition("\nexamples:\n")[2], "cay " + verb)
        assert "\x1b" not in done.stdout, f"{verb}: colours without a terminal"
    contains(instance.cay("--help").stdout, "run")
    contains(instance.cay("--version").stdout, "0.1")


def test_words_that_are_not_there_yet_say_so(instance):
    done = instance.cay("stub", "list", check=False)
    assert done.returncode != 0
    assert done.stderr.strip()


def test_names_and_prefixes(instance):
    with instance.sandbox(name="swift-test") as box:
        for name in ("swift-test", box, box[:10]):
            equal(instance.json("info", name)["id"], box)


def test_a_server_is_started_when_none_runs(tmp):
    instance = cay.Instance(tmp)
    try:
        equal(instance.cay("run", "--rm", "--no-cwd", "--", "echo", "hi", cwd=tmp).stdout, "hi\n")
        pid = instance.get("/v1/version")["pid"]
        instance.tags.add("cay-" + instance.get("/v1/version")["tag"])
        equal(instance.cay("run", "--rm", "--no-cwd", "--", "echo", "ho", cwd=tmp).stdout, "ho\n")
        equal(instance.get("/v1/version")["pid"], pid)
        instance.post("/v1/shutdown", {"sandboxes": "stop"})
        instance.check_clean()
    finally:
        instance.close()


def test_a_copy_that_is_broken_off_leaves_nothing(instance):
    """More is sent than waits on the way, so that the file has been begun."""
    head = tarfile.TarInfo("big")
    head.size = 1 << 30
    with instance.sandbox() as box:
        instance.ok(box, "mkdir /var/tmp/d")
        for query, begin in [("path=/var/tmp/d/big&format=file", b""), ("path=/var/tmp/d&format=tar", head.tobuf())] * 8:
            connection = cay.UnixConnection(instance.socket)
            connection.putrequest("PUT", f"/v1/sandboxes/{box}/files?{query}")
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
            for part in (begin, *[bytes(1 << 20)] * 6):
                connection.send(b"%x\r\n%b\r\n" % (len(part), part) if part else b"")
            connection.close()
        instance.cay("cp", "-", f"{box}:/var/tmp/d/small", stdin="small")
        cay.wait_until(lambda: instance.ok(box, "ls -A /var/tmp/d") == "small\n", 30, "nothing but what came whole")
        equal(instance.ok(box, "stat -c '%a %h %U' /var/tmp/d/small; cat /var/tmp/d/small"), "644 1 root\nsmall")


def test_copies_in_and_out(instance, tmp):
    data = bytes(range(256)) * 5000
    source = os.path.join(tmp, "source")
    with open(source, "wb") as f:
        f.write(data)
    os.chmod(source, 0o640)
    with instance.sandbox() as box:
        instance.cay("cp", source, f"{box}:/var/tmp/copy")
        equal(instance.ok(box, "stat -c '%s %a' /var/tmp/copy").strip(), f"{len(data)} 640")
        instance.cay("cp", f"{box}:/var/tmp/copy", os.path.join(tmp, "back"))
        with open(os.path.join(tmp, "back"), "rb") as f:
            equal(f.read(), data)
        instance.ok(box, "mkdir -p /var/tmp/d/e; echo x > /var/tmp/d/e/f; ln -s e/f /var/tmp/d/l")
        instance.cay("cp", f"{box}:/var/tmp/d", os.path.join(tmp, "d"))
        with open(os.path.join(tmp, "d", "l"), encoding="utf-8") as f:
            equal(f.read(), "x\n")
        instance.ok(box, "mkfifo /var/tmp/fifo")  # is replaced: the path is what was named
        instance.cay("cp", source, f"{box}:/var/tmp/fifo")
        equal(instance.ok(box, "stat -c '%s %F' /var/tmp/fifo").strip(), f"{len(data)} regular file")
        instance.cay("cp", source, f"{box}:/var/tmp/d")
        equal(instance.ok(box, "stat -c '%s %F' /var/tmp/d/source").strip(), f"{len(data)} regular file")
        contains(instance.cay("cp", "-", f"{box}:/var/tmp/d", stdin="x", want=64).stderr, "is a directory")
        instance.cay("cp", f"{box}:/no/such/file", os.path.join(tmp, "no"), want=125)
        assert not os.path.exists(os.path.join(tmp, "no"))


def test_holes_take_no_room_where_they_are_copied_to(instance, tmp):
    """A program says in an instant that its file has a terabyte; what is not stored there takes no room here, nor the other way."""
    size, made = 64 << 20, os.path.join(tmp, "made")

    def whole(path):
        with open(path, "rb") as f:
            data = f.read()
        equal((len(data), data[5 << 20:(5 << 20) + 4], data[-3:], data.count(0)), (size, b"data", b"\0\0\0", size - 4))
        assert os.stat(path).st_blocks * 512 < 1 << 20, f"{path}: {os.stat(path).st_blocks} blocks"
    os.mkdir(made)
    with open(os.path.join(made, "holes"), "wb") as f:
        f.seek(5 << 20)
        f.write(b"data")
        f.truncate(size)
    with instance.sandbox() as box:
        instance.cay("cp", os.path.join(made, "holes"), f"{box}:/var/tmp/holes")
        instance.cay("cp", made, f"{box}:/var/tmp")
        for path in ("/var/tmp/holes", "/var/tmp/made/holes"):
            blocks, length = instance.ok(box, f"stat -c '%b %s' {path}").split()
            equal((int(blocks) * 512 < 1 << 20, int(length)), (True, size), f"{path}: {blocks} blocks")
        instance.ok(box, f"cd /var/tmp/made; rm holes; truncate -s {size} holes; printf data | dd of=holes bs=1M seek=5 conv=notrunc status=none")
        instance.cay("cp", f"{box}:/var/tmp/made/holes", os.path.join(tmp, "file"))
        whole(os.path.join(tmp, "file"))
        instance.cay("cp", f"{box}:/var/tmp/made", os.path.join(tmp, "tree"))
        whole(os.path.join(tmp, "tree", "holes"))
        equal(len(instance.cay("cp", f"{box}:/var/tmp/made/holes", "-").stdout), size)


def test_environment_and_policy_of_a_created_sandbox_are_shown(instance):
    instance.cay("create", "--name", "seen", "-e", "FOO=bar", "--allow", "example.com")
    try:
        equal(instance.cay("exec", "seen", "--", "sh", "-c", "echo $FOO").stdout, "bar\n")
        contains(instance.cay("info", "seen").stdout, "cay policy show seen")
    finally:
        instance.cay("rm", "-f", "seen")


def test_prune_all_asks_or_is_told(fresh):
    fresh.cay("create", "--name", "stopped")
    fresh.cay("stop", "stopped")
    contains(fresh.cay("prune", "--all", want=64).stderr, "--yes")
    contains(fresh.cay("ps", "--all").stdout, "stopped")
    fresh.cay("prune", "--all", "--yes")
    assert "stopped" not in fresh.cay("ps", "--all").stdout


@require("root")
def test_prune_leaves_what_failed(fresh):
    """Its files are whole: who wants to be rid of them says so by cay rm."""
    fresh.cay("create", "--name", "broken")
    fresh.ok("broken", "echo work > /var/tmp/work; sync /var/tmp/work")
    os.kill(leaks.keeper_of(fresh.get("/v1/sandboxes/broken")["id"]), signal.SIGKILL)
    cay.wait_until(lambda: fresh.get("/v1/sandboxes/broken")["state"] == "failed", 20, "it has failed", os.path.join(fresh.state, "events"))
    fresh.cay("prune", "--all", "--yes")
    contains(fresh.cay("ps", "--all").stdout, "broken")
    fresh.cay("start", "broken")
    equal(fresh.cay("exec", "broken", "--", "cat", "/var/tmp/work").stdout, "work\n")
