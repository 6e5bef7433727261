# SPDX-License-Identifier: Apache-2.0
"""Where a mount comes from: the directory that was there when the sandbox was made, and never what a link leads to that somebody has put there since."""

import os

from lib import cay
from lib.case import contains, equal, raises, require

TIMEOUT = 120


def write(path, text):
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def tree(top):
    """{path: what it is} of @top and all below it."""
    found = {}
    for base, _, files in os.walk(top):
        for path in [base] + [os.path.join(base, name) for name in files]:
            st = os.lstat(path)
            with open(path if path != base else os.devnull, "rb") as f:
                found[path] = (oct(st.st_mode), st.st_uid, st.st_gid, st.st_nlink, st.st_mtime_ns, f.read())
    return found


class World:
    """A directory that one sandbox may write, a project in it that is another's, and a place that is neither's."""

    def __init__(self, instance, tmp):
        self.instance = instance
        self.work, self.canary = os.path.join(tmp, "work"), os.path.join(tmp, "canary")
        self.project = os.path.join(self.work, "deep", "project")
        os.makedirs(self.project)
        os.mkdir(self.canary)
        os.mkdir(os.path.join(self.canary, "project"))
        write(os.path.join(self.project, "a"), "of the project\n")
        for top in (self.canary, os.path.join(self.canary, "project")):
            write(os.path.join(top, "a"), "of the machine\n")
        for top, _, _ in os.walk(tmp):
            if top != tmp:
                os.chown(top, 1000, 1000)
        self.before = tree(self.canary)

    def other(self):
        return self.instance.sandbox(mounts=[{"source": self.work, "target": "/w", "mode": "rw"}])

    def over(self, mode, **more):
        return self.instance.sandbox(mounts=[{"source": self.project, "target": "/p", "mode": mode}], **more)

    def untouched(self):
        equal(tree(self.canary), self.before)


def refused(function, *args):
    error = raises(cay.ApiError, function, *args)
    equal(error.code, "conflict")
    contains(str(error.body), "symbolic link")


@require("root")
def test_a_link_in_place_of_a_source_is_not_followed(instance, tmp):
    """What another sandbox may write there it could make lead anywhere, and the keeper is root."""
    w = World(instance, tmp)
    swaps = [("mv /w/deep/project /w/deep/x && ln -s %s /w/deep/project" % w.canary, "rm /w/deep/project && mv /w/deep/x /w/deep/project"),
             ("mv /w/deep /w/x && ln -s %s /w/deep" % w.canary, "rm /w/deep && mv /w/x /w/deep")]
    with w.other() as other:
        for mode in ("cow", "ro", "rw"):
            with w.over(mode) as box:
                for swap, back in swaps:
                    instance.post(f"/v1/sandboxes/{box}/stop")
                    instance.ok(other, swap)
                    refused(instance.post, f"/v1/sandboxes/{box}/start")
                    instance.ok(other, back)
                    instance.post(f"/v1/sandboxes/{box}/start")
                    equal(instance.ok(box, "cat /p/a"), "of the project\n")
    w.untouched()


@require("root")
def test_nor_by_a_rewind_a_fork_a_diff_or_an_apply(instance, tmp):
    w = World(instance, tmp)
    with w.other() as other, w.over("cow") as box:
        instance.ok(box, "echo changed > /p/a; echo new > /p/n")
        snap = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        instance.ok(other, f"mv /w/deep/project /w/deep/x && ln -s {w.canary} /w/deep/project")
        refused(instance.post, f"/v1/sandboxes/{box}/apply", {})
        refused(instance.post, f"/v1/sandboxes/{box}/apply", {"to": w.project})
        refused(instance.get, f"/v1/diff?a={box}")
        refused(instance.post, f"/v1/snapshots/{snap}/fork", {})
        refused(instance.post, f"/v1/sandboxes/{box}/rewind", {"snapshot": snap})
        instance.ok(other, "rm /w/deep/project && mv /w/deep/x /w/deep/project")
        instance.post(f"/v1/sandboxes/{box}/start")
        equal(instance.ok(box, "cat /p/a /p/n"), "changed\nnew\n")
        instance.post(f"/v1/sandboxes/{box}/apply", {})
    equal(sorted(os.listdir(w.project)), ["a", "n"])
    w.untouched()


@require("root")
def test_what_is_exposed_is_not_followed_either(instance, tmp):
    w = World(instance, tmp)
    with w.other() as other, instance.sandbox(expose=[w.project]) as box:
        equal(instance.ok(box, f"cat {w.project}/a"), "of the project\n")
        instance.post(f"/v1/sandboxes/{box}/stop")
        instance.ok(other, f"mv /w/deep/project /w/deep/x && ln -s {w.canary} /w/deep/project")
        refused(instance.post, f"/v1/sandboxes/{box}/start")


@require("root")
def test_the_interface_takes_a_source_by_its_own_name(instance, tmp):
    w = World(instance, tmp)
    os.symlink(w.project, os.path.join(tmp, "link"))
    for body in ({"mounts": [{"source": os.path.join(tmp, "link"), "target": "/p"}]}, {"expose": [os.path.join(tmp, "link")]}):
        refused(instance.post, "/v1/sandboxes", body)


@require("root")
def test_a_person_may_name_a_source_through_a_link(instance, tmp):
    """It is the place to which the link leads then, also at the next start; inside it lies where it was said to."""
    w = World(instance, tmp)
    link = os.path.join(tmp, "link")
    os.symlink(w.project, link)
    box = instance.json("create", "--mount", link)["id"]
    try:
        equal([(m["source"], m["target"]) for m in instance.get(f"/v1/sandboxes/{box}")["mounts"]], [(w.project, link)])
        equal(instance.ok(box, f"cat {link}/a"), "of the project\n")
        instance.ok(box, f"echo changed > {link}/a")
        instance.cay("apply", box, "--to", link)
        os.unlink(link)
        os.symlink(w.canary, link)
        instance.cay("stop", box)
        instance.cay("start", box)
        equal(instance.ok(box, f"cat {link}/a"), "changed\n")
    finally:
        instance.remove(box)
    with open(os.path.join(w.project, "a"), encoding="utf-8") as f:
        equal(f.read(), "changed\n")
    w.untouched()


@require("root")
def test_a_person_may_expose_a_tool_through_a_link(instance, tmp):
    w = World(instance, tmp)
    tools, link = os.path.join(tmp, "tools-1"), os.path.join(tmp, "tools")
    os.makedirs(os.path.join(tools, "bin"))
    write(os.path.join(tools, "bin", "a-tool"), "#!/bin/sh\necho worked\n")
    os.chmod(os.path.join(tools, "bin", "a-tool"), 0o755)
    os.symlink(tools, link)
    for flag in (["--expose", link], ["--mount", f"{link}:{link}:ro"]):
        done = instance.cay("run", "--rm", "--no-cwd", *flag, "--", "a-tool", env={"PATH": f"{link}/bin:/usr/bin:/bin"})
        equal(done.stdout, "worked\n")
    w.untouched()


def test_what_is_exposed_through_a_link_is_judged(instance, tmp):
    """As what is exposed by its own name: neither cay's own files nor credentials."""
    keys = os.path.join(tmp, ".ssh")
    os.mkdir(keys)
    for place in (instance.state, keys):
        link = os.path.join(tmp, "innocent")
        os.symlink(place, link)
        contains(instance.cay("run", "--no-cwd", "--expose", link, "--", "true", want=125).stderr, "lie there")
        for mode in ("ro", "cow"):
            body = {"mounts": [{"source": place, "target": "/x", "mode": mode, "exposed": True}]}
            equal(raises(cay.ApiError, instance.post, "/v1/sandboxes", body).code, "denied")
        os.unlink(link)
