# SPDX-License-Identifier: Apache-2.0
"""Bringing a part of the changes: what is named, exactly; all else stays the sandbox's, as it was, and comes with another apply."""

import os
import random
import shutil
import sys

sys.path.insert(0, os.path.dirname(__file__))
from test_apply import APPLIES_FROM, World, changer  # noqa: E402

from lib import job  # noqa: E402
from lib.case import contains, equal, raises, require  # noqa: E402
from lib.pool import Pool, describe  # noqa: E402


def shown(top):
    return {os.fsdecode(path): what for path, what in describe(top).items()}


class Part(World):
    """Its places are named as the sandbox has them: below /p."""

    def request(self, verb="apply", paths=None, **more):
        named = {"paths": [f"/p/{p}" if p else "/p" for p in paths]} if paths is not None else {}
        return super().request(verb, **{"trees": [{"target": self.host, "at": "/p", "a": self.stack()}], **named, **more})

    def changes(self):
        """What the host lacks, by the sandbox as it stands."""
        run = self.request("check_apply")
        run.result()
        return {c["path"][len(self.host) + 1:]: c["kind"] for o in run.objects for c in o.get("changes", [])}

    def apply_part(self, *paths, **more):
        """The sandbox shows the same behind it, and so does the host but for what is not named."""
        inside, before = shown(self.at), shown(self.host)
        self.pool.unmount(self.at)
        reply = self.apply(paths=list(paths), **more)
        self.mount()
        still = shown(self.at)
        equal({p: (inside.get(p), still.get(p)) for p in set(inside) | set(still) if inside.get(p) != still.get(p)}, {}, f"the sandbox is as it was behind {paths}")
        after, left = shown(self.host), self.changes()
        equal(reply["left"], sum(1 + (kind == "renamed") for kind in left.values()), f"what stays is counted: {left}")
        for path in set(before) | set(after) | set(inside):
            named = any(p in ("", path) or path.startswith(p + "/") for p in paths)
            above = any(p.startswith(path + "/") for p in paths)
            if named:
                equal(after.get(path), inside.get(path), f"{path} is named by {paths}")
            elif not above:
                equal(after.get(path), before.get(path), f"{path} is not named by {paths}")
        return reply

    def all_applied(self, **more):
        want = shown(self.at)
        self.pool.unmount(self.at)
        reply = self.apply(**more)
        equal((reply["left"], reply["conflicts"]), (0, []))
        self.mount()
        equal((shown(self.host) == want, self.changes()), (True, {}))


@require("root", "btrfs", "loop")
def test_what_is_named_is_brought_and_nothing_else(tmp):
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            w = Part(tmp, pool, "host-" + kind)
            w.write("a")
            w.write("new/x/y", "new\n")
            w.write("new/x/z", "new\n")
            os.unlink(w.at + "/b")
            shutil.rmtree(w.at + "/gone")
            os.chmod(w.at + "/src/deep/d", 0o600)
            equal(w.apply_part("new/x/y", "src")["changes"], 4)  # with the two directories above it
            equal(w.changes(), {"a": "modified", "b": "deleted", "gone": "deleted", "gone/e": "deleted", "gone/f": "deleted", "new/x/z": "added"})
            equal(w.apply_part("gone/e")["left"], 5)
            w.apply_part("gone", "b")
            equal(w.changes(), {"a": "modified", "new/x/z": "added"})
            w.all_applied()
            w.write("a", "again\n")
            w.write("new/x/z", "again\n")
            w.apply_part("new/x/z")
            w.apply_part("")  # all of it


@require("root", "btrfs", "loop")
def test_a_path_at_which_nothing_changed_applies_nothing(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = Part(tmp, pool)
        w.write("a")
        w.write("new/x")
        before = describe(w.host, times=True)
        for paths in (["a", "src"], ["a", "new/y"], ["ab"], ["new/x/y"], ["nowhere"]):
            for verb in ("apply", "check_apply"):
                error = raises(job.JobError, w.request(verb, paths=paths).result)
                equal((error.code, str(error).endswith(f"nothing changed at or below '/p/{paths[-1]}'")), ("invalid", True), str(error))
        for bad in ({"paths": []}, {"paths": "/p"}, {"paths": ["p"]}, {"paths": ["/p/../p"]}, {"paths": [1]}):
            equal(raises(job.JobError, World.request(w, **bad).result).code, "invalid")
        equal(describe(w.host, times=True) == before, True)


@require("root", "btrfs", "loop")
def test_conflicts_and_dangers_are_those_of_the_part(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = Part(tmp, pool)
        w.write("a")
        w.write("b")
        w.write(".git/hooks/pre-commit")
        w.later()
        w.write("b", "the host's\n", where=w.host)
        w.apply_part("a")
        equal(set(w.refused("conflict", paths=["b"])), {"b"})
        equal(set(w.refused("needs_allow_exec", paths=[".git"])), {".git/hooks/pre-commit"})
        w.apply_part(".git", allow_exec=True)
        equal(set(w.refused("conflict")), {"b"}, "still one")


@require("root", "btrfs", "loop")
def test_what_the_host_removed_behind_an_apply_stays_a_conflict_behind_that_of_another_part(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = Part(tmp, pool)
        w.write("new", "one\n")
        w.write("a", "one\n")
        w.apply_part("new")
        w.later()
        os.unlink(w.host + "/new")
        w.write("new", "two\n")
        w.apply_part("a")
        contains(w.refused("conflict")["new"], "an earlier apply put it there")


@require("root", "btrfs", "loop")
def test_a_file_that_was_renamed_is_brought_in_two_halves(tmp):
    """The kernel knows only what it came from, and an apply has taken that away."""
    with Pool(tmp, "btrfs") as pool:
        for first, then in (("a", "z"), ("z", "a")):
            w = Part(tmp, pool, first)
            os.rename(w.at + "/a", w.at + "/z")
            w.apply_part(first)
            w.apply_part(then)
            os.rename(w.at + "/b", w.at + "/y")
            w.write("b", "another\n")
            w.apply_part("b")
            w.seal()
            w.all_applied()


@require("root", "btrfs", "loop")
def test_what_a_renamed_directory_shows_is_not_taken_from_it(tmp):
    """Its content lies on the host alone, at the old name."""
    with Pool(tmp, "btrfs") as pool:
        for seal in (False, True):
            w = Part(tmp, pool, f"old-{seal}")
            os.rename(w.at + "/src", w.at + "/moved")
            if seal:
                w.seal()
            for path in ("src", "src/deep", "src/c"):
                contains(list(w.refused("conflict", paths=[path]).values())[0], "'/p/moved", path)
            contains(w.refused("conflict", paths=["src", "moved/deep"])["src/c"], "'/p/moved")
            w.apply(paths=["src", "moved"])
            w.again()
            equal(w.changes() if not seal else {}, {})
        w = Part(tmp, pool, "new")
        os.rename(w.at + "/src", w.at + "/moved")
        w.apply_part("moved/deep")
        contains(w.refused("conflict", paths=["src"])["src/c"], "'/p/moved/c'")
        w.apply_part("moved")
        w.apply_part("src")
        equal(w.changes(), {})
        w = Part(tmp, pool, "in the place of the old one")
        os.rename(w.at + "/src", w.at + "/moved")
        w.write("src/new")
        w.write("src/c", "another\n")
        for path in ("src/new", "src/c"):
            contains(w.refused("conflict", paths=[path])[path], "'/p/moved")
        w.apply_part("moved")
        w.apply_part("src/new")
        w.apply_part("src")
        equal(w.changes(), {})


@require("root", "btrfs", "loop")
def test_a_file_in_the_place_of_a_directory_and_the_reverse(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = Part(tmp, pool)
        shutil.rmtree(w.at + "/gone")
        w.write("gone", "a file\n")
        os.unlink(w.at + "/a")
        w.write("a/in", "in a directory\n")
        w.write("a/too", "in a directory\n")
        w.apply(paths=["gone/e", "a/in"])
        equal((os.listdir(w.host + "/gone"), os.listdir(w.host + "/a")), (["f"], ["in"]))
        w.all_applied()


@require("root", "btrfs", "loop")
def test_a_part_that_was_broken_off_is_undone_or_done(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = Part(tmp, pool)
        os.rename(w.at + "/src", w.at + "/moved")
        os.rename(w.at + "/a", w.at + "/z")
        before = describe(w.host, times=True)
        for point in ("store.apply.written:2", "store.apply.made:2", "store.apply.step:3", "store.apply.synced"):
            raises(job.JobDied, w.apply, paths=["moved", "a"], env={"CAY_FAULT": point})
            pool.run("recover", layers=[], sandboxes=[w.sandbox])
            equal(describe(w.host, times=True) == before, True, point)
        w.apply_part("moved", "a")
        w.apply_part("src")
        w.all_applied()


@require("root", "btrfs", "loop")
def test_random_parts_until_all_is_applied(tmp):
    """Whatever is named first, the sandbox shows the same, and in the end the host does, too."""
    with Pool(tmp, "btrfs") as pool:
        for seed in range(APPLIES_FROM, APPLIES_FROM + 4):
            rng = random.Random(seed)
            w = Part(tmp, pool, f"host-{seed}")
            changer(w.at, rng).run(20)
            for _ in range(6):
                names = sorted(p for p in w.changes() if "\ufffd" not in p)
                if not names:
                    break
                chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 2, 4))))
                try:
                    w.apply_part(*chosen, allow_exec=True)
                except job.JobError as e:
                    equal(e.code, "conflict", f"seed {seed}, {chosen}: {e}")
                    contains(str(e), "has to be named, too", f"seed {seed}, {chosen}")
                    w.mount()
            w.all_applied(allow_exec=True)
