# SPDX-License-Identifier: Apache-2.0
"""cay apply: the exact changes after review, or nothing at all."""

import concurrent.futures
import contextlib
import fcntl
import http.client
import os
import signal
import threading
import time

from lib import cay, leaks
from lib.case import contains, equal, raises


def project(tmp, **files):
    top = os.path.join(tmp, "project")
    os.mkdir(top)
    for name, text in {"a": "one\n", "b": "one\n", "c": "one\n", **files}.items():
        with open(os.path.join(top, name), "w", encoding="utf-8") as f:
            f.write(text)
    return top


def tree(top):
    found = {}
    for where, folders, files in os.walk(top):
        for name in folders + files:
            path = os.path.join(where, name)
            kind = os.readlink(path) if os.path.islink(path) else "dir" if os.path.isdir(path) else open(path, encoding="utf-8").read()
            found[os.path.relpath(path, top)] = (kind, os.lstat(path).st_mode & 0o7777 if not os.path.islink(path) else 0)
    return found


@contextlib.contextmanager
def over(instance, top):
    """What the machine changes in it comes later than its beginning, by the clock of file systems too: they stamp by the last tick."""
    with instance.sandbox(mounts=[{"source": top, "target": "/p"}]) as box:
        time.sleep(0.02)
        yield box


def apply(instance, box, **options):
    return instance.post(f"/v1/sandboxes/{box}/apply", options)


def test_a_conflict_applies_nothing(instance, tmp):
    top = project(tmp)
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/a; echo two > /p/b; echo new > /p/n")
        with open(os.path.join(top, "b"), "w", encoding="utf-8") as f:
            f.write("changed on the host\n")
        before = tree(top)
        error = raises(cay.ApiError, apply, instance, box)
        equal(error.code, "conflict")
        contains(str(error.body), "/b")
        equal(tree(top), before)
        conflicts = apply(instance, box, dry_run=True)["conflicts"]
        equal(len(conflicts), 1)


def test_conflicts_of_every_kind(instance, tmp):
    for host, inside in (("rm b", "echo two > /p/b"), ("echo three > b", "rm /p/b"), ("echo mine > n", "echo yours > /p/n"),
                         ("rm b; mkdir b", "echo two > /p/b"), ("chmod 600 b", "chmod 755 /p/b")):
        base = os.path.join(tmp, str(abs(hash((host, inside)))))
        os.mkdir(base)
        top = project(base)
        with over(instance, top) as box:
            instance.ok(box, inside)
            os.system(f"cd {top} && {host}")
            before = tree(top)
            equal(raises(cay.ApiError, apply, instance, box).code, "conflict", f"{host} against {inside}")
            equal(tree(top), before)


def test_the_same_change_on_both_sides_is_no_conflict(instance, tmp):
    top = project(tmp)
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/a; rm /p/b; echo x > /p/c")
        os.system(f"cd {top} && echo two > a && rm b")
        apply(instance, box)
        equal({k: v[0] for k, v in tree(top).items()}, {"a": "two\n", "c": "x\n"})


def test_a_dry_run_changes_nothing(instance, tmp):
    top = project(tmp)
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/a; rm /p/b")
        before = tree(top)
        result = apply(instance, box, dry_run=True)
        equal((result["dry_run"], result["applied"], len(result["changes"])), (True, False, 2))
        equal(tree(top), before)


def test_everything_arrives_exactly(instance, tmp):
    top = project(tmp)
    os.makedirs(os.path.join(top, "gone", "deep"))
    with open(os.path.join(top, "gone", "deep", "f"), "w", encoding="utf-8") as f:
        f.write("x")
    with over(instance, top) as box:
        instance.ok(box, "cd /p; echo two > a; rm b; chmod 600 c; mkdir -p d/e; echo new > d/e/f; ln -s d/e/f l; rm -r gone; mv c moved")
        apply(instance, box)
        equal(tree(top), {"a": ("two\n", 0o644), "moved": ("one\n", 0o600), "d": ("dir", 0o755), "d/e": ("dir", 0o755), "d/e/f": ("new\n", 0o644),
                          "l": ("d/e/f", 0)})
        for name in ("a", "d", "d/e/f"):
            equal(os.stat(os.path.join(top, name)).st_uid, os.getuid(), name)
        # Nothing is left to apply.
        equal(apply(instance, box)["changes"], [])


def test_what_a_tool_outside_would_execute_needs_a_word(instance, tmp):
    for script in ("mkdir -p /p/.git/hooks; echo x > /p/.git/hooks/pre-commit; chmod 755 /p/.git/hooks/pre-commit",
                   "mkdir -p /p/.git; printf '[core]\\n\\tfsmonitor = evil\\n' > /p/.git/config", "mkdir -p /p/.vscode; echo '{}' > /p/.vscode/tasks.json",
                   "mkdir -p /p/.github/workflows; echo x > /p/.github/workflows/ci.yml", "echo x > /p/AGENTS.md",
                   "printf '#!/bin/sh\\n' > /p/tool; chmod 755 /p/tool", "cp /bin/true /p/suid; chmod 4755 /p/suid"):
        base = os.path.join(tmp, str(abs(hash(script))))
        os.mkdir(base)
        top = project(base)
        with over(instance, top) as box:
            instance.ok(box, script)
            before = tree(top)
            error = raises(cay.ApiError, apply, instance, box)
            equal(error.code, "needs_allow_exec", script)
            equal(tree(top), before)
            assert apply(instance, box, dry_run=True)["executables"], script


def test_allow_exec_applies_it(instance, tmp):
    top = project(tmp)
    with over(instance, top) as box:
        instance.ok(box, "printf '#!/bin/sh\\n' > /p/tool; chmod 755 /p/tool")
        apply(instance, box, allow_exec=True)
        equal(tree(top)["tool"], ("#!/bin/sh\n", 0o755))


def test_links_out_of_the_directory_are_not_followed(instance, tmp):
    top = project(tmp)
    outside = os.path.join(tmp, "outside")
    os.mkdir(outside)
    os.mkdir(os.path.join(top, "sub"))
    with open(os.path.join(top, "sub", "f"), "w", encoding="utf-8") as f:
        f.write("one\n")
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/sub/f; echo new > /p/sub/g")
        os.system(f"cd {top} && mv sub sub.old && ln -s {outside} sub")
        try:
            apply(instance, box)
        except cay.ApiError as error:
            equal(error.code, "conflict")
        equal(os.listdir(outside), [], "written through a link that the host placed meanwhile")


def test_a_check_decides(instance, tmp):
    top = project(tmp)
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/a")
        error = raises(cay.ApiError, apply, instance, box, if_argv=["sh", "-c", "grep -q three /p/a"])
        equal(error.code, "check_failed")
        contains(error.message, "did not exit with 0 (exited 1)")
        equal(tree(top)["a"][0], "one\n")
        result = apply(instance, box, if_argv=["sh", "-c", "grep -q two /p/a && echo junk > /p/made-by-the-check"])
        equal((result["applied"], result["check"]["code"]), (True, 0))
        equal(tree(top)["a"][0], "two\n")
        assert "made-by-the-check" not in tree(top), "changes of the check itself were applied"


def test_a_part_is_named_as_people_name_it(instance, tmp):
    """As cay diff shows it, as it is called on the machine, from the current directory, and from the mount where that is elsewhere."""
    top = project(tmp)
    os.mkdir(top + "/sub")
    for number, (paths, cwd) in enumerate(((["/p/sub/x"], "/"), ([top + "/sub/x"], "/"), (["sub/x"], top), (["x"], top + "/sub"), (["../sub/./x/"], top + "/sub"), (["sub/x"], "/"))):
        with over(instance, top) as box:
            instance.ok(box, f"echo {number} > /p/sub/x; echo {number} > /p/y")
            said = instance.cay("apply", box, "--", *paths, cwd=cwd).stdout
            contains(said, f"applied: 1 change stays in the sandbox: cay diff {box}\n")
            equal({k: v[0] for k, v in tree(top).items() if k in ("sub/x", "y")}, {"sub/x": f"{number}\n"}, str(paths))
            equal([(c["path"], c["kind"]) for c in instance.get(f"/v1/diff?a={box}")["changes"]], [("/p/y", "added")])
            equal([e["data"]["left"] for e in instance.events(box) if e["type"] == "files.applied"], [1])


def test_a_part_that_is_not_meant_applies_nothing(instance, tmp):
    top = project(tmp)
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/a; echo two > /p/b")
        before = tree(top)
        for words, said in ((["--", "a", "c"], "nothing changed at or below '/p/c'"), (["--"], "no path behind --"), (["a"], f"paths come behind --: cay apply {box} -- a"),
                            (["--", "/etc"], "nothing changed at or below '/etc'"), (["--if", "true", "--", "a"], "--if checks all changes"), (["--dry-run", "--", "c"], "nothing changed")):
            done = instance.cay("apply", box, *words, check=False, cwd=top)
            equal(done.returncode in (64, 125), True, str(words))
            contains(done.stderr, said)
        equal(raises(cay.ApiError, apply, instance, box, paths=["/p/a"], if_argv=["true"]).code, "invalid")
        equal(raises(cay.ApiError, apply, instance, box, paths=[]).code, "invalid")
        equal(tree(top), before)
        equal([c["path"] for c in apply(instance, box, dry_run=True, paths=["/p/a"])["changes"]], [top + "/a"])
        apply(instance, box, paths=["/"])
        equal({k: v[0] for k, v in tree(top).items()}, {"a": "two\n", "b": "two\n", "c": "one\n"})


def test_a_check_leaves_nothing_when_the_server_ends(fresh, tmp):
    """Neither its sandbox nor the snapshot that it was of, whether the server is told to end or killed; one that is told so does not wait for the check."""
    top = project(tmp)
    with over(fresh, top) as box:
        fresh.ok(box, "echo two > /p/a")
        for end in (fresh.stop, fresh.kill):
            errors = []
            thread = threading.Thread(target=lambda: errors.append(raises((cay.ApiError, OSError, http.client.HTTPException), apply, fresh, box, if_argv=["sleep", "300"])))
            thread.start()
            cay.wait_until(lambda: [s["execs_running"] for s in fresh.get("/v1/sandboxes")["sandboxes"] if s["id"] != box] == [1], 30, "the check runs")
            end()
            thread.join()
            if end == fresh.stop:
                contains(errors[0].message, "nothing was applied")
            fresh.start()
            cay.wait_until(lambda: [s["id"] for s in fresh.get("/v1/sandboxes")["sandboxes"]] == [box], 30, "its sandbox is gone")
            cay.wait_until(lambda: fresh.get("/v1/snapshots")["snapshots"] == [], 30, "its snapshot is gone")
        equal(tree(top)["a"][0], "one\n")
        equal(fresh.ok(box, "cat /p/a"), "two\n")


def test_to_another_directory(instance, tmp):
    top = project(tmp)
    other = os.path.join(tmp, "other")
    os.mkdir(other)
    os.system(f"cp -a {top}/. {other}/")
    with over(instance, top) as box:
        instance.ok(box, "echo two > /p/a")
        apply(instance, box, to=other)
        equal((tree(top)["a"][0], tree(other)["a"][0]), ("one\n", "two\n"))


def test_two_mounts_of_one_directory(instance, tmp):
    top = project(tmp)
    with instance.sandbox(mounts=[{"source": top, "target": "/p"}, {"source": top, "target": "/q"}]) as box:
        instance.ok(box, "echo two > /p/a; echo two > /q/b")
        before = tree(top)
        error = raises(cay.ApiError, apply, instance, box)
        equal(error.code, "invalid")
        contains(error.message, "mounted more than once")
        equal(tree(top), before)
        apply(instance, box, mount="/p")
        apply(instance, box, mount="/q")
        equal([tree(top)[name][0] for name in "ab"], ["two\n", "two\n"])


def test_the_host_directory_is_never_written_by_the_sandbox(instance, tmp):
    top = project(tmp)
    before = tree(top)
    with over(instance, top) as box:
        instance.ok(box, "rm -rf /p/* ; mkdir /p/x; echo y > /p/x/y; chmod 700 /p; touch /p/.hidden")
        equal(tree(top), before)
    equal(tree(top), before)


def test_an_apply_whose_job_is_killed_is_undone_at_once(tmp):
    """The server lives on: nobody waits for its next start with half of the changes in his project."""
    for point, applied in (("store.apply.journal", False), ("store.apply.step:1", False), ("store.apply.step:4", False), ("store.apply.done", True),
                           ("store.apply.over", True)):
        instance = cay.Instance(tmp)
        top = project(instance.dir)
        try:
            instance.start(CAY_FAULT=f"{point}=kill")
            with over(instance, top) as box:
                instance.ok(box, "echo two > /p/a; rm /p/b; mkdir /p/n; echo three > /p/n/c; echo four > /p/c")
                before = tree(top)
                error = raises(cay.ApiError, apply, instance, box)
                contains(error.message, "all changes were applied" if applied else "nothing was applied")
                equal(tree(top) == before, not applied, point)
                equal([n for n in os.listdir(top) if n.startswith(".cay")], [])
                equal([n for n in os.listdir(os.path.join(instance.state, "apply")) if not n.endswith(".applied")], [])
        finally:
            instance.close()


def journals(instance):
    return [n for n in os.listdir(os.path.join(instance.state, "apply")) if not n.endswith(".applied")]


def stopped(instance):
    return [pid for pid in instance.own_processes() if leaks.processes().get(pid, ("", ""))[1] == "T"]


def test_who_applied_does_not_wait_until_its_journal_is_cleared_away(tmp):
    """It goes behind the answer; where it cannot, with the next start."""
    instance, top = cay.Instance(tmp), project(tmp)
    instance.start(CAY_FAULT="store.apply.over=hold")
    state = os.open(instance.state, os.O_RDONLY)
    try:
        with over(instance, top) as box, concurrent.futures.ThreadPoolExecutor() as pool:
            instance.ok(box, "echo two > /p/a")
            instance.post(f"/v1/sandboxes/{box}/stop")
            applied = pool.submit(apply, instance, box)
            cay.wait_until(lambda: stopped(instance), 30, "it is done")
            job, = stopped(instance)
            locked = pool.submit(fcntl.flock, state, fcntl.LOCK_EX)  # behind the apply: no job that changes anything goes on
            os.kill(job, signal.SIGCONT)
            locked.result()
            try:
                equal(applied.result(cay.patience(20))["applied"], True)
            finally:
                fcntl.flock(state, fcntl.LOCK_UN)
            cay.wait_until(lambda: not journals(instance), 30, "the journal is gone")
            instance.stop()
            with open(os.path.join(instance.state, "apply", "a" * 20 + ".done"), "w", encoding="utf-8"):
                pass
            instance.start()
            cay.wait_until(lambda: not journals(instance), 30, "that of a server that ended before is gone")
            equal(tree(top)["a"][0], "two\n")
    finally:
        os.close(state)
        instance.close()


def test_nothing_is_left_of_it_when_its_sandbox_is_removed(instance, tmp):
    """What it put on the machine is known as long as the sandbox is there, also behind a rewind: a server that makes and removes sandboxes for months keeps nothing of any of them."""
    known = os.path.join(instance.state, "apply")
    with over(instance, project(tmp)) as box:
        first = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        instance.ok(box, "echo two > /p/a")
        apply(instance, box)
        name = f"{instance.get(f'/v1/sandboxes/{box}')['id']}.applied"
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first, "files_only": True})
        contains(os.listdir(known), name)
    cay.wait_until(lambda: name not in os.listdir(known), 30, f"{name} is still there")
