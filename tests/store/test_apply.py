# SPDX-License-Identifier: Apache-2.0
"""Bringing the changes of a cow mount to the host directory: exact, refused whole on conflicts and dangers, done or undone after kill -9."""

import errno
import json
import os
import random
import shutil
import signal
import stat
import struct
import subprocess
import time

from lib import job, leaks
from lib.case import contains, equal, raises, require, timeout
from lib.cay import wait_until
from lib.pool import Pool, describe, same_trees


APPLIES_FROM, APPLIES = int(os.environ.get("CAY_TEST_SEED", "100")), 12


class World:
    """A host directory, and a sandbox that has it as its only tree."""

    def __init__(self, tmp, pool, name="host"):
        self.pool, self.host, self.at = pool, os.path.join(tmp, name), os.path.join(tmp, name + "-at")
        os.mkdir(self.host)
        for d in ("src", "src/deep", "gone"):
            os.mkdir(f"{self.host}/{d}")
        for f in ("a", "b", "src/c", "src/deep/d", "gone/e", "gone/f"):
            with open(f"{self.host}/{f}", "w") as out:
                out.write(f"{f}\n")
        os.symlink("a", self.host + "/link")
        self.since = time.time_ns()
        self.sandbox, self.layers = pool.live(), []
        self.later()
        self.mount()

    def later(self):
        """Return when the clock of the file system has moved on."""
        path = os.path.join(self.pool.state, "clock")
        while True:
            with open(path, "w") as f:
                f.write("x")
            now = os.stat(path).st_ctime_ns
            if now > getattr(self, "last", 0) + 5_000_000:
                self.last = now
                return now

    def mount(self):
        self.pool.overlay(self.at, self.layers + [self.host], self.sandbox)

    def seal(self):
        """What is in the sandbox becomes a layer: nobody changes it any more."""
        self.pool.unmount(self.at)
        self.layers.insert(0, self.pool.layer(self.pool.seal(self.sandbox)[0]))
        self.mount()

    def again(self):
        """As the next start mounts it."""
        self.pool.unmount(self.at)
        self.mount()

    def stack(self):
        return [self.pool.upper(self.sandbox)] + self.layers + [self.host]

    def write(self, path, text="changed\n", where=None):
        os.makedirs(os.path.dirname(f"{where or self.at}/{path}"), exist_ok=True)
        with open(f"{where or self.at}/{path}", "w") as f:
            f.write(text)

    def request(self, verb="apply", **more):
        return self.pool.job(verb, **{"apply": job.new_id(), "since_ns": self.since, "uid": 0, "gid": 0, "sandbox": self.sandbox,
                                      "trees": [{"target": self.host, "a": self.stack()}], **more})

    @staticmethod
    def lists(run):
        """What an apply told besides its changes; it may have come in pieces."""
        return {name: [e for o in run.objects for e in o.get(name, [])] for name in ("conflicts", "executables", "programs", "skipped", "renamed")}

    def apply(self, verb="apply", **more):
        run = self.request(verb, **more)
        return {**run.result(), **self.lists(run)}

    def refused(self, code, **more):
        """An apply that must be refused whole. Returns the conflicts and executables that it listed."""
        before = describe(self.host, times=True)
        run = self.request(**more)
        equal(raises(job.JobError, run.result).code, code)
        equal(describe(self.host, times=True) == before, True, "the host is as it was")
        return {c["path"][len(self.host) + 1:]: c["reason"] for c in self.lists(run)["conflicts" if code == "conflict" else "executables"]}

    def equals_sandbox(self):
        same_trees(self.host, self.at)


def change(w):
    w.write("a")
    w.write("new/x/y", "new\n")
    os.unlink(w.at + "/b")
    shutil.rmtree(w.at + "/gone")
    os.rename(w.at + "/src/c", w.at + "/src/c2")
    os.chmod(w.at + "/src/deep/d", 0o600)
    os.unlink(w.at + "/link")
    os.symlink("src", w.at + "/link")


@require("root", "btrfs", "loop")
def test_apply_is_exact(tmp):
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            w = World(tmp, pool, "host-" + kind)
            change(w)
            check = w.apply("check_apply")
            equal((check["applied"], check["conflicts"], check["executables"]), (False, [], []))
            reply = w.apply()
            equal((reply["applied"], reply["changes"]), (True, check["changes"]))
            w.equals_sandbox()
            equal([n for n in os.listdir(w.host) if n.startswith(".cay")], [])
            equal(w.apply("check_apply")["changes"], 0)


def changer(top, rng, kind="Changer"):
    """Random operations as in test_diff, without those whose result is not applied."""
    from importlib import util
    spec = util.spec_from_file_location("test_diff", os.path.join(os.path.dirname(os.path.abspath(__file__)), "test_diff.py"))
    test_diff = util.module_from_spec(spec)
    spec.loader.exec_module(test_diff)
    made = getattr(test_diff, kind)(top, rng)
    made.OPERATIONS = [o for o in made.OPERATIONS if o.__name__ not in ("special", "chown", "xattr")]
    return made


@require("root", "btrfs", "loop")
@timeout(200)
def test_random_changes(tmp):
    for seed in range(60, 72):
        with Pool(tmp, "btrfs") as pool:
            rng = random.Random(seed)
            w = World(tmp, pool, f"host{seed}")
            changes = changer(w.at, rng)
            for _ in range(2):
                changes.run(rng.choice([3, 20]))
                w.seal()
            changes.run(5)
            # a mounted overlay does not bear that its lower directory changes: look before
            want = describe(w.at)
            w.apply(allow_exec=True)
            equal(describe(w.host) == want, True, f"seed {seed}: the host is what the sandbox showed")
        shutil.rmtree(os.path.join(tmp, "state-btrfs"))


@require("root", "btrfs", "loop")
@timeout(200)
def test_random_moves_of_directories(tmp):
    """Through layers in between, into new and renamed ones and out of them."""
    with Pool(tmp, "btrfs") as pool:
        for seed in range(APPLIES_FROM, APPLIES_FROM + APPLIES):
            rng = random.Random(seed)
            w = World(tmp, pool, f"host{seed}")
            for number in range(20):
                w.write(f"src/{'deep/' * rng.randrange(2)}d{rng.randrange(6)}/f{number}", where=w.host)
            w.again()
            w.since = w.later()
            moves = changer(w.at, rng, "Mover")
            for _ in range(3):
                moves.run(rng.choice([2, 4, 8]))
                w.seal()
            want = describe(w.at)
            reply = w.apply(allow_exec=True)
            equal((reply["conflicts"], describe(w.host) == want), ([], True), f"seed {seed}: the host is what the sandbox showed")
            pool.unmount(w.at)


@require("root", "btrfs", "loop", "program:rsync")
@timeout(300)
def test_random_changes_applied_again_and_again(tmp):
    """Nobody but the sandbox changes anything: no apply may name a conflict, and behind each the host is what the sandbox shows, by rsync too."""
    for seed in range(APPLIES_FROM, APPLIES_FROM + APPLIES):
        rng = random.Random(seed)
        with Pool(tmp, "btrfs" if seed % 3 else "directory") as pool:
            w = World(tmp, pool, f"host{seed}")
            changes = changer(w.at, rng)
            for applied in range(5):
                changes.run(rng.choice([1, 4, 15]))
                if seed % 2 and rng.random() < 0.3:
                    w.seal()
                want = describe(w.at)
                shown = os.path.join(tmp, f"shown{seed}-{applied}")
                subprocess.run(["cp", "-a", w.at, shown], check=True)
                pool.unmount(w.at)
                reply = w.apply(allow_exec=True)
                w.mount()
                equal(describe(w.host) == want, True, f"seed {seed}, apply {applied}: the host is what the sandbox showed")
                differ = subprocess.run(["rsync", "-ainHAX", "--checksum", "--delete", "--omit-dir-times", shown + "/", w.host + "/"], check=True, stdout=subprocess.PIPE).stdout
                equal([line for line in differ.decode("utf-8", "replace").splitlines() if line[3:9].strip(".t") or line[:1] != "."], [])
                shutil.rmtree(shown)
                if reply["renamed"]:  # it has layers in between: it lacks what was in there
                    break
                equal(describe(w.at) == want, True, f"seed {seed}, apply {applied}: so does it still")
                equal(w.apply("check_apply")["changes"], 0)
        shutil.rmtree(pool.state)


class Host:
    """Random operations of a person beside the sandbox; each content says when it was written."""

    def __init__(self, top, rng):
        self.top, self.rng, self.serial = top, rng, 0

    def found(self, want_files):
        paths = [os.path.join(base, n) for base, dirs, files in os.walk(self.top) for n in (files if want_files else dirs)]
        return sorted(p for p in paths if not os.path.islink(p))

    def fresh(self):
        return os.path.join(self.rng.choice([self.top] + self.found(False)), f"host{self.serial}")

    def write(self, path):
        with open(path, "w") as f:
            f.write(f"host {self.serial}\n")

    def change(self):
        self.serial += 1
        what, new = self.rng.choice(["create", "create", "overwrite", "replace", "move a file", "move a directory"]), self.fresh()
        old = self.rng.choice(self.found(what != "move a directory") or [new])
        if what == "create":
            self.write(new)
        elif what == "overwrite":
            self.write(old)
        elif what == "replace":
            self.write(new)
            os.rename(new, old)
        elif old != new and not (new + "/").startswith(old + "/"):
            os.rename(old, new)

    def written(self, since):
        """What there is of it, by number."""
        seen = set()
        for path in self.found(True):
            with open(path, "rb") as f:
                word, _, number = f.read(20).partition(b" ")
            if word == b"host" and number.strip().isdigit() and int(number) > since:
                seen.add(int(number))
        return seen


@require("root", "btrfs", "loop")
@timeout(300)
def test_random_changes_on_both_sides(tmp):
    """Nothing is lost that the host wrote and the sandbox cannot have seen; what is refused leaves the host as it is."""
    for seed in range(APPLIES_FROM, APPLIES_FROM + 2 * APPLIES):
        rng = random.Random(seed)
        with Pool(tmp, "btrfs") as pool:
            w = World(tmp, pool, f"host{seed}")
            host, changes = Host(w.host, rng), changer(w.at, rng)
            for turn in range(4):
                try:
                    changes.run(rng.choice([1, 3, 8]))
                except OSError as e:
                    if e.errno != errno.ESTALE:  # of the kernel's overlay, where the host moved what had been copied up
                        raise
                    break
                if rng.random() < 0.2:
                    w.seal()
                pool.unmount(w.at)
                w.later()
                since = host.serial
                for _ in range(rng.choice([0, 1, 2])):
                    host.change()
                before, had = host.written(since), describe(w.host)
                run = w.request(allow_exec=True)
                try:
                    run.result()
                except job.JobError as e:
                    equal(e.code, "conflict")
                    equal(describe(w.host) == had, True, f"seed {seed}, {turn}: refused")
                    w.mount()
                    break
                w.mount()
                equal(before - host.written(since), set(), f"seed {seed}, {turn}: what the host wrote and has not any more")
                if w.lists(run)["renamed"]:
                    break
        shutil.rmtree(pool.state)


@require("root", "btrfs", "loop")
def test_conflicts(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        change(w)
        w.later()
        w.write("unrelated", "fine", w.host)
        w.write("a", "host's\n", w.host)  # both changed it
        w.write("gone/e", "host's\n", w.host)  # the sandbox removed what the host changed
        w.write("gone/new", "host's\n", w.host)  # and what is new there
        w.write("new/x/y", "host's\n", w.host)  # both made it
        os.unlink(w.host + "/src/deep/d")  # the host removed what the sandbox changed
        w.write("tmp", "moved over\n", w.host)
        os.rename(w.host + "/tmp", w.host + "/src/c")  # the host replaced what the sandbox renamed
        listed = w.refused("conflict")
        equal(sorted(listed), ["a", "gone/e", "gone/new", "new/x/y", "src/c", "src/c2", "src/deep/d"])
        check = w.apply("check_apply")
        equal((check["applied"], len(check["conflicts"])), (False, 7))


@require("root", "btrfs", "loop")
def test_what_was_made_anew_does_not_hide_what_the_host_changed_before(tmp):
    """An editor, sed -i and git put a new file in the place of the one that they had read before: it is younger than what the host did meanwhile."""
    def host_writes(w, path):
        w.later()
        w.write(path, "the host's\n", w.host)
        w.later()

    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool, "replaced")
        w.write("a", "one\n")
        host_writes(w, "a")
        subprocess.run(["sed", "-i", "s/one/two/", w.at + "/a"], check=True)
        equal(list(w.refused("conflict")), ["a"])
        w = World(tmp, pool, "removed and made")
        os.unlink(w.at + "/a")
        host_writes(w, "a")
        w.write("a")
        equal(list(w.refused("conflict")), ["a"])
        w = World(tmp, pool, "changed and removed")
        w.write("a", "one\n")
        host_writes(w, "a")
        os.unlink(w.at + "/a")
        equal(list(w.refused("conflict")), ["a"])
        w = World(tmp, pool, "directory")
        shutil.rmtree(w.at + "/gone")
        host_writes(w, "gone/new")
        os.mkdir(w.at + "/gone")
        w.again()
        equal(list(w.refused("conflict")), ["gone/new"])
        w = World(tmp, pool, "its own")
        for text in ("one", "two", "three"):
            w.write("new", text)
            os.rename(w.at + "/new", w.at + "/a")
            shutil.rmtree(w.at + "/gone")
            w.write("gone/" + text)
            w.apply()
            w.again()
            w.equals_sandbox()


@require("root", "btrfs", "loop")
def test_what_was_changed_before_a_snapshot_is_as_old_as_that_change(tmp):
    """What a fork, or a sandbox behind a snapshot, changes again is not copied up from the host: it has not seen what the host did since."""
    def again(w, path):
        w.write(path, "again\n")

    def as_another(w, path):
        os.rename(w.at + "/src/deep", w.at + "/src/other")
        w.write(path.replace("deep", "other"), "again\n")

    def removed(w, path):
        os.unlink(f"{w.at}/{path}")

    with Pool(tmp, "btrfs") as pool:
        for n, act in enumerate((again, as_another, removed)):
            for host_writes in (True, False):
                path = "src/deep/d"
                w = World(tmp, pool, f"{act.__name__}-{host_writes}")
                w.later()
                w.write(path, "first\n")
                w.seal()
                if host_writes:
                    w.later()
                    w.write(path, "the host's\n", w.host)
                w.later()
                act(w, path)
                w.seal()
                if not host_writes:
                    w.apply()
                    w.equals_sandbox()
                    continue
                listed = list(w.refused("conflict"))
                assert path in listed or path.replace("deep", "other") in listed, (n, listed)


@require("root", "btrfs", "loop")
def test_what_the_host_put_in_the_place_of_a_directory_is_not_what_was_there(tmp):
    """Older than the sandbox's changes, as what is moved is."""
    def replace(w, name):
        w.later()
        os.rename(f"{w.host}/{name}", f"{w.host}/away")
        os.rename(f"{w.host}/other", f"{w.host}/{name}")

    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool, "deleted")
        w.write("other/precious", "precious\n", w.host)
        w.since = w.later()
        shutil.rmtree(w.at + "/gone")
        replace(w, "gone")
        equal(list(w.refused("conflict")), ["gone"])
        for number, act in enumerate((lambda w: os.unlink(w.at + "/src/c"), lambda w: w.write("src/c"))):
            w = World(tmp, pool, f"within {number}")
            w.write("other/c", "precious\n", w.host)
            w.since = w.later()
            act(w)
            replace(w, "src")
            equal(list(w.refused("conflict")), ["src/c"])
        w = World(tmp, pool, "less in it")
        shutil.rmtree(w.at + "/gone")
        w.later()
        os.unlink(w.host + "/gone/e")
        equal(w.apply()["conflicts"], [])


@require("root", "btrfs", "loop")
def test_what_the_host_moved_away_is_not_put_back(tmp):
    """A file that the sandbox changed, and a directory that it wrote into; what it moved itself is no conflict."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a")
        w.write("src/deep/d")
        os.rename(w.at + "/b", w.at + "/b2")
        os.rename(w.at + "/gone", w.at + "/gone2")
        w.later()
        os.rename(w.host + "/a", w.host + "/moved")
        os.rename(w.host + "/src/deep", w.host + "/moved-deep")
        equal(sorted(w.refused("conflict")), ["a", "src/deep"])
        os.rename(w.host + "/moved", w.host + "/a")
        os.rename(w.host + "/moved-deep", w.host + "/src/deep")
        equal(list(w.refused("conflict")), ["a"], "its ctime says no more than that")
        w.write("gone/of-host", where=w.host)
        os.unlink(w.host + "/gone/of-host")
        os.unlink(w.at + "/a")
        os.unlink(w.host + "/a")
        want = describe(w.at)
        w.apply()
        equal(describe(w.host) == want, True)


@require("root", "btrfs", "loop")
def test_an_empty_directory_that_the_host_made_is_not_deleted(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        os.mkdir(w.host + "/empty")
        w.later()
        shutil.rmtree(w.at + "/gone")
        os.rmdir(w.at + "/empty")
        w.write("made/by/it")
        w.later()
        os.mkdir(w.host + "/gone/new")
        equal(w.refused("conflict"), {"gone/new": "it was made on the host after the sandbox had deleted what was there"})
        os.rmdir(w.host + "/gone/new")
        w.apply()
        w.equals_sandbox()
        w.write("made/by/too")  # into what it made itself, which is younger than its beginning
        w.apply()
        w.again()
        shutil.rmtree(w.at + "/made")
        w.apply()
        w.equals_sandbox()


@require("root", "btrfs", "loop")
def test_a_mode_that_the_host_gave_a_directory_is_not_taken_back(tmp):
    """Who writes into a directory copies it up, with the mode that it has then."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("src/new")
        w.later()
        os.chmod(w.host + "/src", 0o700)
        contains(w.refused("conflict")["src"], "another mode on the host")
        os.chmod(w.at + "/src", 0o700)
        w.apply()
        w.equals_sandbox()
        os.chmod(w.at + "/src", 0o750)  # its own change, also again, and behind what it brought itself
        w.apply()
        w.write("src/another")
        w.apply()
        os.chmod(w.at + "/src", 0o751)
        w.apply()
        equal(stat.S_IMODE(os.stat(w.host + "/src").st_mode), 0o751)
        w.later()
        os.chmod(w.host + "/src", 0o700)
        w.write("src/of-host", where=w.host)  # its times do not tell any more that it got another mode
        contains(w.refused("conflict")["src"], "another mode on the host")


@require("root", "btrfs", "loop")
def test_same_change_on_both_sides_is_none(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a", "same\n")
        os.unlink(w.at + "/b")
        w.later()
        w.write("a", "same\n", w.host)
        os.unlink(w.host + "/b")
        equal(w.apply("check_apply")["conflicts"], [])


@require("root", "btrfs", "loop")
def test_apply_again(tmp):
    """What an apply of this sandbox put there is no change of the host; what another one put there is."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a", "one\n")
        w.apply()
        w.write("a", "two\n")
        equal(w.apply()["conflicts"], [])
        w.equals_sandbox()
        w.write("a", "three\n")
        w.later()
        w.write("a", "the host's\n", w.host)
        equal(list(w.refused("conflict")), ["a"])


@require("root", "btrfs", "loop")
def test_what_an_apply_replaced_was_not_removed_by_the_host(tmp):
    """The host's file that an entry was copied up from goes with the first apply; what that put there counts from then on."""
    def append(w, name):
        with open(f"{w.at}/{name}", "a") as f:
            f.write("more\n")

    with Pool(tmp, "btrfs") as pool:
        for sealed in (False, True):
            w = World(tmp, pool, f"renamed {sealed}")
            append(w, "a")
            append(w, "src/c")
            w.apply()
            for old, new in (("a", "a2"), ("src/c", "gone/c"), ("a2", "src/a3"), ("gone/c", "a")):
                os.rename(f"{w.at}/{old}", f"{w.at}/{new}")
                if sealed:
                    w.seal()
                equal(w.apply()["conflicts"], [])
                w.equals_sandbox()
            append(w, "a")
            equal(w.apply()["conflicts"], [])
            w.equals_sandbox()
            w.later()
            os.rename(w.host + "/src/a3", w.host + "/src/away")
            os.rename(w.at + "/src/a3", w.at + "/src/a4")
            equal(list(w.refused("conflict")), ["src/a4"])
            os.rename(w.at + "/src/a4", w.at + "/src/a3")
            equal(list(w.refused("conflict")), ["src/a3"])
        w = World(tmp, pool, "both")
        append(w, "a")
        w.apply()
        w.later()
        append(w, "a")
        w.write("a", "the host's\n", w.host)
        os.rename(w.at + "/a", w.at + "/a2")
        equal(sorted(w.refused("conflict")), ["a", "a2"])


@require("root", "btrfs", "loop")
def test_what_the_host_removed_behind_an_apply_is_not_put_back(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("new/x")
        w.write("y")
        w.apply()
        shutil.rmtree(w.host + "/new")
        w.write("y", "again\n")
        contains(w.refused("conflict")["new/x"], "removed or moved on the host since")
        w.again()
        shutil.rmtree(w.at + "/new")
        w.apply()
        w.equals_sandbox()
        w.write("new/x")  # what the sandbox itself took away and makes anew
        w.apply()
        w.write("z", "new\n")
        w.apply()
        os.unlink(w.at + "/z")
        w.apply()
        w.write("z")
        w.apply()
        w.equals_sandbox()


@require("root", "btrfs", "loop")
def test_a_renamed_directory_keeps_its_content(tmp):
    """The apply moves on the host what the sandbox shows in there; the sandbox, which is not mounted, is told where it is now."""
    def rename(w, *pairs):
        for old, new in pairs:
            os.rename(f"{w.at}/{old}", f"{w.at}/{new}")

    def applied(w):
        want = describe(w.at)
        pool.unmount(w.at)
        reply = w.apply()
        equal((reply["conflicts"], reply["renamed"]), ([], []))
        w.mount()
        equal(describe(w.at) == want, True, "the sandbox shows what it did")
        w.equals_sandbox()
        equal(w.apply("check_apply")["changes"], 0)

    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool, "simple")
        rename(w, ("src", "moved"))
        applied(w)
        rename(w, ("moved", "again"))
        os.unlink(w.at + "/again/c")
        applied(w)
        shutil.rmtree(w.at + "/again")
        applied(w)
        w = World(tmp, pool, "nested")
        rename(w, ("src", "moved"), ("moved/deep", "moved/deeper"))
        w.write("moved/deeper/d")
        w.write("src/new")
        applied(w)
        w = World(tmp, pool, "into what is new")
        os.mkdir(w.at + "/new")
        rename(w, ("src", "new/src"), ("new/src/deep", "gone/deep"))
        applied(w)
        rename(w, ("new", "old"))
        applied(w)
        w = World(tmp, pool, "in the place of another")
        shutil.rmtree(w.at + "/gone")
        rename(w, ("src", "gone"))
        applied(w)
        rename(w, ("gone", "src"))
        applied(w)
        w = World(tmp, pool, "with what was changed in it")
        w.write("src/deep/d", "one\n")
        rename(w, ("src", "moved"))
        applied(w)
        w.write("moved/deep/d", "two\n")
        applied(w)
        rename(w, ("moved", "gone/moved"))
        applied(w)
        rename(w, ("gone", "again"))
        applied(w)
        w = World(tmp, pool, "something new in it")
        shutil.rmtree(w.at + "/src/deep")
        w.write("src/deep/own/new")
        rename(w, ("src", "moved"))
        applied(w)
        shutil.rmtree(w.at + "/moved/deep/own")
        applied(w)
        w = World(tmp, pool, "killed")
        rename(w, ("src", "moved"))
        raises(job.JobDied, w.apply, env={"CAY_FAULT": "store.apply.follow"})
        contains(w.refused("conflict")["moved/c"], "an earlier apply renamed it")
        w = World(tmp, pool, "swapped")
        rename(w, ("src", "x"), ("gone", "src"), ("x", "gone"))
        applied(w)
        applied(w)


@require("root", "btrfs", "loop")
def test_a_renamed_directory_that_lost_its_content_deletes_nothing(tmp):
    """Overlay keeps where it was; when that is gone on the host, the sandbox has it empty: by an apply, or because the host renamed it too."""
    with Pool(tmp, "btrfs") as pool:
        for number, (old, new) in enumerate((("src", "moved"), ("src", "gone/moved"), ("src/deep", "src/deeper"))):
            w = World(tmp, pool, f"applied{number}")
            os.rename(f"{w.at}/{old}", f"{w.at}/{new}")
            w.seal()
            equal([r["path"] for r in w.apply("check_apply")["renamed"]], [f"{w.host}/{new}"])
            equal(w.apply()["conflicts"], [])
            inside = sorted(os.path.relpath(os.path.join(top, f), w.host) for top, _, files in os.walk(f"{w.host}/{new}") for f in files)
            equal(len(inside), 1 if "deep" in old else 2)
            listed = w.refused("conflict")
            equal(sorted(path for path in listed if os.path.isfile(f"{w.host}/{path}")), inside)
            contains(listed[inside[0]], "an earlier apply renamed it")
            w.again()
            shutil.rmtree(f"{w.at}/{new}")
            equal(w.apply()["conflicts"], [])
            equal(os.path.exists(f"{w.host}/{new}"), False)
        w = World(tmp, pool, "both")
        os.rename(f"{w.at}/src", f"{w.at}/moved")
        os.rename(f"{w.host}/src", f"{w.host}/moved")
        contains(w.refused("conflict")["moved/c"], "is gone on the host")
        w = World(tmp, pool, "away")
        os.rename(f"{w.at}/src", f"{w.at}/moved")
        os.rename(f"{w.host}/src", f"{w.host}/elsewhere")
        contains(w.refused("conflict")["moved"], "is gone on the host")


@require("root", "btrfs", "loop")
def test_what_is_new_at_the_old_name_of_a_renamed_directory_is_not_its_content(tmp):
    """Overlay looks there by name: what it finds is another directory, by an apply of this sandbox or of the host's own."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool, "log")
        os.rename(f"{w.at}/src", f"{w.at}/moved")
        w.write("src/new", "new\n")
        w.seal()
        equal(w.apply()["conflicts"], [])
        equal(sorted(os.listdir(f"{w.host}/moved")), ["c", "deep"])
        equal(os.listdir(f"{w.host}/src"), ["new"])
        listed = w.refused("conflict")
        contains(listed["moved/c"], "renamed it there")
        contains(listed["moved/deep/d"], "renamed it there")
        equal(sorted(os.listdir(f"{w.host}/moved")), ["c", "deep"])
        w.again()
        shutil.rmtree(f"{w.at}/moved")
        equal(w.apply()["conflicts"], [])
        equal((os.path.exists(f"{w.host}/moved"), os.listdir(f"{w.host}/src")), (False, ["new"]))
        w = World(tmp, pool, "replaced")
        os.rename(f"{w.at}/src", f"{w.at}/moved")
        os.rename(f"{w.host}/src", f"{w.host}/elsewhere")
        w.write("src/other", "the host's\n", w.host)
        contains(w.refused("conflict")["moved"], "is gone on the host")
        equal(os.listdir(f"{w.host}/src"), ["other"])
        for layers in (1, 2):
            w = World(tmp, pool, f"as it was {layers}")
            w.write("src/more", "more\n")
            if layers == 2:
                w.seal()
            os.rename(f"{w.at}/src", f"{w.at}/moved")
            want = describe(w.at)
            equal(w.apply()["conflicts"], [])
            equal(describe(w.host) == want, True)


@require("root", "btrfs", "loop")
def test_directories_renamed_within_what_is_new_are_applied(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("new/one/f")
        w.seal()
        os.rename(w.at + "/new/one", w.at + "/new/two")
        os.rename(w.at + "/src/deep", w.at + "/new/deep")
        os.rename(w.at + "/src", w.at + "/moved")
        want = describe(w.at)
        equal(w.apply()["conflicts"], [])
        equal(describe(w.host) == want, True)


@require("root", "btrfs", "loop")
def test_a_directory_that_leaves_what_is_new_or_renamed_in_a_later_layer_deletes_nothing(tmp):
    """What is in there comes from the host, by a way through layers in between: all of it moves there too, and none of it was deleted."""
    with Pool(tmp, "btrfs") as pool:
        for number, (first, then) in enumerate(((("mkdir new", "src new/src"), ("new/src lib",)),
                                                (("src moved",), ("moved/deep lib",)),
                                                (("mkdir new", "src new/src"), ("new/src/deep lib", "new/src gone/src")),
                                                (("src moved",), ("moved/deep moved/deeper", "moved src")))):
            w = World(tmp, pool, f"moves{number}")
            for moves in (first, then):
                for old, new in map(str.split, moves):
                    if old == "mkdir":
                        os.mkdir(f"{w.at}/{new}")
                    else:
                        os.rename(f"{w.at}/{old}", f"{w.at}/{new}")
                w.seal()
            want = describe(w.at)
            reply = w.apply()
            equal((reply["conflicts"], describe(w.host) == want), ([], True), f"{first}, {then}")
            contains(str(w.refused("conflict")), "renamed it there")


@require("root")
def test_copied_layers_are_judged_by_since(tmp):
    with Pool(tmp, "directory") as pool:
        w = World(tmp, pool)
        w.write("a")
        layer, reply = pool.capture(w.sandbox)
        equal(reply["how"] in ("copy", "reflink"), True)
        pool.unmount(w.at)
        fork = pool.live()
        w.sandbox, w.layers = fork, [pool.layer(layer)]
        w.mount()
        equal(w.apply("check_apply")["conflicts"], [])
        w.later()
        w.write("a", "the host's\n", w.host)
        equal(list(w.refused("conflict")), ["a"])


@require("root", "btrfs", "loop")
def test_dangers(tmp):
    dangerous = {".git/hooks/pre-commit": "git runs", "sub/.git/config": "git obeys", "AGENTS.md": "coding agents", "x/.cursor/rules": "coding agents",
                 ".vscode/tasks.json": "editor", ".github/workflows/ci.yml": "continuous integration", "tool.sh": "new executable",
                 "suid": "rights of its owner", "leak": "leads out", "up": "leads out", ".envrc": "direnv", ".git/commondir": "another repository",
                 "sub/.git/hooks": "git runs", "sub/.github": "continuous integration"}
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("fine.py")
        os.symlink("src/deep", w.at + "/fine-link")
        os.symlink("../a", w.at + "/src/fine-link")
        for path in dangerous:
            if path == "leak":
                os.symlink("/etc/passwd", w.at + "/leak")
            elif path == "up":
                os.symlink("src/../../x", w.at + "/up")
            elif path in ("sub/.git/hooks", "sub/.github"):
                os.symlink("../src", f"{w.at}/{path}")  # what such files are called there is not told by their names
            else:
                w.write(path)
        os.chmod(w.at + "/tool.sh", 0o755)
        os.chmod(w.at + "/suid", 0o4644)
        listed = w.refused("needs_allow_exec")
        equal(sorted(listed), sorted(dangerous))
        for path, reason in dangerous.items():
            contains(listed[path], reason)
        equal(w.apply(allow_exec=True)["applied"], True)
        w.equals_sandbox()
        equal(stat.S_IMODE(os.stat(w.host + "/suid").st_mode), 0o4644)


@require("root", "btrfs", "loop")
def test_dangers_under_another_name(tmp):
    """What a hook leads to is executed as the hook is."""
    def prepare(w):
        for path in ("scripts/x", "scripts/y", "scripts/plain", "tools/z", "docs/agents", "ci/flows/one.yml", "ci/flows/more/two.yml", "own/pre-push", "conf/git", "scripts/odd"):
            w.write(path, where=w.host)
            os.chmod(f"{w.host}/{path}", 0o644 if "plain" in path else 0o755)
        for name in ("hooks", "objects", "refs", "HEAD"):
            os.makedirs(f"{w.host}/.git/{name}")
        os.makedirs(w.host + "/.github")
        os.symlink("../../tools/hook", w.host + "/.git/hooks/pre-commit")
        os.symlink("../scripts/x", w.host + "/tools/hook")
        os.symlink("docs/agents", w.host + "/AGENTS.md")
        os.symlink("../ci/flows", w.host + "/.github/workflows")
        os.symlink(w.host + "/tools/z", w.host + "/.envrc")
        os.mkdir(w.host + "/.husky")
        os.symlink(b"../scripts/odd", os.fsencode(w.host) + b"/.husky/caf\xe9")
        w.write(".git/config", "[core]\n\thooksPath = own\n[include]\n\tpath = ../conf/git\n[submodule \"x\"]\n\tpath = src\n", w.host)
        w.since = w.later()

    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        prepare(w)
        for path in ("scripts/x", "scripts/y", "scripts/plain", "tools/z", "docs/agents", "ci/flows/one.yml", "ci/flows/more/two.yml", "own/pre-push", "conf/git", "scripts/odd", "src/c"):
            w.write(path, "another\n")
        reasons = {"scripts/x": "git runs it: '.git/hooks/pre-commit' leads here", "docs/agents": "instructions from it: 'AGENTS.md' leads",
                   "ci/flows/one.yml": "integration runs it: '.github/workflows' leads", "ci/flows/more/two.yml": "integration", "tools/z": "direnv runs it",
                   "own/pre-push": "git runs it: '.git/config' leads here", "conf/git": "git obeys it", "scripts/odd": "git may run it: '.husky/caf?' leads here"}
        listed = w.refused("needs_allow_exec")
        equal(sorted(listed), sorted(reasons))
        for path, reason in reasons.items():
            contains(listed[path], reason)
        check = w.apply("check_apply")
        equal(([p["path"] for p in check["programs"]], check["conflicts"]), ([w.host + "/scripts/y"], []))
        equal(w.apply(allow_exec=True)["applied"], True)
        w.equals_sandbox()
        w = World(tmp, pool, "on the way")
        prepare(w)
        os.unlink(w.at + "/tools/hook")
        os.symlink("../scripts/y", w.at + "/tools/hook")
        equal(list(w.refused("needs_allow_exec")), ["tools/hook"])
        os.unlink(w.at + "/tools/hook")
        os.rename(w.at + "/docs", w.at + "/d2")
        os.symlink("src", w.at + "/docs")
        equal("docs" in w.refused("needs_allow_exec"), True)


@require("root", "btrfs", "loop")
def test_dangers_of_a_part_of_a_checkout(tmp):
    """Hooks above what is mounted lead into it; hooks of a bare repository may be all that is."""
    with Pool(tmp, "btrfs") as pool:
        top = os.path.join(tmp, "project")
        os.makedirs(top + "/.git/hooks")
        os.symlink("../../scripts/deep/x", top + "/.git/hooks/pre-commit")
        w = World(tmp, pool, "project/scripts")
        w.write("deep/x", where=w.host)
        w.write("deep/y", where=w.host)
        w.later()
        w.write("deep/x", "another\n")
        w.write("deep/y", "another\n")
        equal(list(w.refused("needs_allow_exec")), ["deep/x"])
        for name in ("HEAD", "objects", "refs"):
            os.makedirs(os.path.join(tmp, "bare.git", name))
        w = World(tmp, pool, "bare.git/hooks")
        w.write("update", where=w.host)
        os.chmod(w.host + "/update", 0o755)
        w.later()
        w.write("update", "another\n")
        contains(w.refused("needs_allow_exec")["update"], "git runs")


def repository(path, config="", **files):
    """What git takes for one."""
    for name in ("hooks", "objects", "refs", "HEAD"):
        os.makedirs(f"{path}/{name}")
    for name, text in {"config": config, **files}.items():
        with open(f"{path}/{name.replace('_', '.')}", "w", encoding="utf-8") as f:
            f.write(text)


@require("root", "btrfs", "loop")
def test_dangers_of_a_checkout_whose_repository_lies_elsewhere(tmp):
    """Of a linked worktree and of a submodule ".git" is a file. Paths of hooks are relative to this tree, whatever repository they are written in."""
    def prepare(w, git):
        w.write(".git", f"gitdir: {git}\n", w.host)
        for path in ("tools/hooks/pre-commit", "more/pre-push", "conf/git", "linked"):
            w.write(path, where=w.host)
            os.chmod(f"{w.host}/{path}", 0o755)
        w.since = w.later()
        for path in ("tools/hooks/pre-commit", "more/pre-push", "conf/git", "linked", "src/c"):
            w.write(path, "another\n")

    with Pool(tmp, "btrfs") as pool:
        main = f"{tmp}/main/.git"
        repository(main, "[core]\n\thooksPath = tools/hooks\n")
        os.makedirs(main + "/worktrees/w")
        w = World(tmp, pool, "worktree")
        for name, text in (("commondir", "../..\n"), ("gitdir", w.host + "/.git\n"), ("HEAD", "x\n"), ("config.worktree", "[core]\n\thooksPath = more\n")):
            w.write("worktrees/w/" + name, text, main)
        os.symlink(w.host + "/linked", main + "/hooks/post-merge")
        prepare(w, main + "/worktrees/w")
        listed = w.refused("needs_allow_exec")
        equal(sorted(listed), ["linked", "more/pre-push", "tools/hooks/pre-commit"])
        for path in listed:
            contains(listed[path], "git runs it: '" + main)
        # a part of it is all that is mounted
        part = World(tmp, pool, "worktree/part")
        part.write("hooks/x", where=part.host)
        part.since = part.later()
        with open(main + "/config", "w", encoding="utf-8") as f:
            f.write("[core]\n\thooksPath = part/hooks\n")
        part.write("hooks/x", "another\n")
        equal(list(part.refused("needs_allow_exec")), ["hooks/x"])

        repository(f"{tmp}/super/.git", "[core]\n\thooksPath = sub/more\n")
        w = World(tmp, pool, "super/sub")
        os.mkdir(f"{tmp}/super/.git/modules")
        repository(f"{tmp}/super/.git/modules/sub", "[core]\n\tworktree = ../../../sub\n\thooksPath = tools/hooks\n[include]\n\tpath = ../../../sub/conf/git\n")
        prepare(w, "../.git/modules/sub")
        equal(sorted(w.refused("needs_allow_exec")), ["conf/git", "more/pre-push", "tools/hooks/pre-commit"])


@require("root", "btrfs", "loop")
def test_dangers_of_a_module_and_of_a_worktrees_own_configuration(tmp):
    """What a submodule obeys may lie in the project around it; what git keeps for each worktree (extensions.worktreeConfig) counts in an ordinary checkout, too."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        repository(w.host + "/.git", config_worktree="[core]\n\thooksPath = own\n")
        os.mkdir(w.host + "/.git/modules")
        repository(w.host + "/.git/modules/sub", "[core]\n\tworktree = ../../../sub\n\thooksPath = ../tools\n")
        os.mkdir(w.host + "/sub")
        for path in ("own/pre-commit", "tools/pre-push"):
            w.write(path, where=w.host)
        w.since = w.later()
        for path in ("own/pre-commit", "tools/pre-push", "src/c"):
            w.write(path, "another\n")
        equal(sorted(w.refused("needs_allow_exec")), ["own/pre-commit", "tools/pre-push"])


@require("root", "btrfs", "loop")
def test_a_path_that_is_too_long_leaves_nothing(tmp):
    """Inside one gets there step by step; an apply has to say where."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a")
        here = os.open(w.at, os.O_RDONLY)
        for _ in range(30):
            os.mkdir("l" * 200, dir_fd=here)
            below = os.open("l" * 200, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        before = describe(w.host, times=True)
        message = str(raises(job.JobError, w.apply))
        equal("put back" in message, False, message)
        equal(describe(w.host, times=True) == before, True)
        raises(job.JobDied, w.apply, env={"CAY_FAULT": "store.apply.step:4"})
        equal(pool.run("recover", layers=[], sandboxes=[w.sandbox])["problems"], [])
        equal(describe(w.host, times=True) == before, True)


@require("root", "btrfs", "loop")
def test_more_dangers_than_fit_into_a_frame(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        names = [f"{n:0100}" for n in range(9000)]
        for name in names:
            os.close(os.open(f"{w.at}/{name}", os.O_CREAT, 0o755))
        equal(sorted(w.refused("needs_allow_exec")), names)
        equal(w.apply(allow_exec=True)["changes"], len(names))


@require("root", "btrfs", "loop")
def test_dangers_of_a_part_of_a_project(tmp):
    """Mounted may be what rules name from further up: a repository's own directory, also a bare one's, or one of workflows."""
    def refused(name, path):
        w = World(tmp, pool, name)
        w.write(path)
        return w.refused("needs_allow_exec")

    with Pool(tmp, "btrfs") as pool:
        os.makedirs(os.path.join(tmp, "project/.github"))
        contains(refused("project/.git", "config")["config"], "git obeys")
        contains(refused("project/.github/workflows", "ci.yml")["ci.yml"], "continuous integration")
        contains(refused("project/.github/workflows/.parts", "ci.yml")["ci.yml"], "continuous integration")
        bare = World(tmp, pool, "bare.git")
        for name in ("objects", "refs", "HEAD"):
            os.mkdir(f"{bare.host}/{name}")
        bare.write("worktrees/one/config.worktree")
        bare.write("worktrees/one/index")
        equal(list(bare.refused("needs_allow_exec")), ["worktrees/one/config.worktree"])
        checkout = World(tmp, pool, ".vscode")  # the top of a checkout is a project, whatever it is called
        os.mkdir(checkout.host + "/.git")
        checkout.write("tasks.json")
        equal(checkout.apply("check_apply")["executables"], [])


@require("root", "btrfs", "loop")
def test_a_repository_needs_no_name(tmp):
    """git takes each directory with HEAD, objects and refs for one, also below a checkout, and obeys the config in it."""
    def make(w, top, *names, where=None):
        for name in names:
            w.write(f"{top}{name}", where=where)

    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        os.mkdir(w.host + "/.git")
        make(w, "sub/", "HEAD", "config", "hooks/one", "info/attributes", "objects/x", "refs/heads/x")
        make(w, "linked/", "HEAD", "commondir", "config")
        make(w, "none/", "HEAD", "config", "hooks/one", "refs/x")
        listed = w.refused("needs_allow_exec")
        equal(sorted(listed), ["linked/HEAD", "linked/commondir", "linked/config"] +
              ["sub/HEAD", "sub/config", "sub/hooks/one", "sub/info/attributes", "sub/objects", "sub/refs"])
        contains(listed["sub/config"], "git obeys")
        contains(listed["sub/objects"], "for a repository")
        w = World(tmp, pool, "top")
        make(w, "", "HEAD", "config", "refs/heads/x", where=w.host)  # its config came with an earlier apply, say
        make(w, "", "objects/x")
        equal(list(w.refused("needs_allow_exec")), ["objects"])
        w = World(tmp, pool, "old")
        make(w, "sub/", "HEAD", "config", "objects/x", "refs/heads/x", where=w.host)
        w.later()
        make(w, "sub/", "HEAD", "objects/y", "refs/heads/y", "description")
        equal(w.apply()["applied"], True)
        w.write("sub/config", "another\n")
        equal(list(w.refused("needs_allow_exec")), ["sub/config"])


@require("root", "btrfs", "loop")
def test_caller_may_only_what_he_may(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a", "changed\n")
        w.write("new")
        before = describe(w.host, times=True)
        equal(raises(job.JobError, w.apply, uid=1000, gid=1000).code, "denied")
        equal(describe(w.host, times=True) == before, True)
        # his directory, but one part of it is another's
        os.chown(w.host, 1000, 1000)
        os.chown(w.host + "/a", 1000, 1000)
        w.since = time.time_ns()
        w2_before = describe(w.host, times=True)
        w.write("src/c", "not his\n")
        equal(raises(job.JobError, w.apply, uid=1000, gid=1000).code in ("denied", "conflict"), True)
        equal(describe(w.host, times=True) == w2_before, True)


@require("root", "btrfs", "loop")
def test_groups_of_the_caller_count(tmp):
    """A directory that several work in belongs to a group of theirs."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        for folder in (w.host, w.host + "/src"):
            os.chown(folder, 0, 4242)
            os.chmod(folder, 0o2775)
        w.later()
        w.write("a", "changed\n")
        w.write("src/new")
        for groups in ({}, {"groups": []}, {"groups": [5]}):
            equal(raises(job.JobError, w.apply, uid=1000, gid=1000, **groups).code, "denied")
        equal(raises(job.JobError, w.apply, uid=1000, gid=1000, groups=[-1]).code, "invalid")
        w.apply(uid=1000, gid=1000, groups=[5, 4242])
        equal((os.stat(w.host + "/src/new").st_uid, open(w.host + "/a").read()), (1000, "changed\n"))


def closed_world(tmp, pool, name="host"):
    """Directories that their owner may not write: new ones, as module caches have them, some of the host's that go, and some that stay."""
    w = World(tmp, pool, name)
    os.makedirs(w.host + "/old/inner")
    for path in ("old/f", "old/inner/g", "kept/changed", "kept/gone", "kept/below/f", "shut/old/f", "shut/f"):
        w.write(path, where=w.host)
    for path in [w.host] + [os.path.join(at, x) for at, ds, fs in os.walk(w.host) for x in ds + fs]:
        os.lchown(path, 1000, 1000)
    for path, mode in (("old/inner", 0o500), ("old", 0o555), ("shut/old", 0o555), ("shut", 0o400)):
        os.chmod(f"{w.host}/{path}", mode)
    w.since = w.later()
    w.again()
    for path in ("mod/pkg/f", "kept/new", "kept/changed", "kept/below/new", "kept/sub/f", "shut/f"):
        w.write(path)
    os.makedirs(w.at + "/mod/pkg/none/empty")
    os.unlink(w.at + "/kept/gone")
    shutil.rmtree(w.at + "/old")
    shutil.rmtree(w.at + "/shut/old")
    for path, mode in (("mod/pkg/none/empty", 0o555), ("mod/pkg/none", 0), ("mod/pkg", 0o555),
                       ("kept/sub", 0o555), ("kept/below", 0o500), ("kept", 0), ("shut", 0o555)):
        os.chmod(f"{w.at}/{path}", mode)
    return w


@require("root", "btrfs", "loop")
def test_directories_that_their_owner_may_not_write(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = closed_world(tmp, pool)
        w.apply(uid=1000, gid=1000)
        equal({path: owner(f"{w.host}/{path}") for path in ("mod", "mod/pkg", "mod/pkg/none", "mod/pkg/none/empty")},
              {"mod": (1000, 1000, 0o755), "mod/pkg": (1000, 1000, 0o555), "mod/pkg/none": (1000, 1000, 0),
               "mod/pkg/none/empty": (1000, 1000, 0o555)})
        equal(os.path.exists(w.host + "/old"), False)
        equal(open(w.host + "/mod/pkg/f").read(), "changed\n")
        equal({path: owner(f"{w.host}/{path}") for path in ("kept", "kept/below", "kept/sub", "shut")},
              {"kept": (1000, 1000, 0), "kept/below": (1000, 1000, 0o500), "kept/sub": (1000, 1000, 0o555), "shut": (1000, 1000, 0o555)})
        equal(sorted(os.listdir(w.host + "/kept")), ["below", "changed", "new", "sub"])
        equal(os.listdir(w.host + "/shut"), ["f"])
        for path in ("kept/new", "kept/changed", "kept/below/new", "kept/sub/f", "shut/f"):
            equal(open(f"{w.host}/{path}").read(), "changed\n", path)


@require("root", "btrfs", "loop")
def test_directories_that_their_owner_may_not_write_when_it_is_broken_off(tmp):
    """At each step: they have the mode that they had."""
    with Pool(tmp, "btrfs") as pool:
        w = closed_world(tmp, pool)
        before = describe(w.host)
        step = 0
        while True:
            step += 1
            run = w.request(uid=1000, gid=1000, env={"CAY_FAULT": f"store.apply.step:{step}={'error' if step % 2 else 'kill'}"})
            try:
                run.result()
                break
            except (job.JobError, job.JobDied):
                pool.run("recover", layers=[], sandboxes=[w.sandbox])
            equal(describe(w.host) == before, True, f"step {step}")
            equal([x for x in os.listdir(w.host) if x.startswith(".cay")], [])
        equal(step > 12, True)
        equal(owner(w.host + "/mod/pkg")[2], 0o555)


def owner(path):
    st = os.lstat(path)
    return st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)


@require("root", "btrfs", "loop")
def test_what_is_replaced_or_new_has_the_group_that_it_would_have(tmp):
    """As if the caller had written there himself: else the others of a group lose what they could do, and git its shared repositories."""
    with Pool(tmp, "btrfs") as pool:
        for name, who, kept, new in (("mine", {"uid": 1000, "gid": 1000, "groups": [4242, 4343]}, 4343, 1000),
                                     ("foreign", {"uid": 1000, "gid": 1000, "groups": [4242]}, 1000, 1000),
                                     ("root", {"uid": 0, "gid": 0}, 4343, 0)):
            w = World(tmp, pool, name)
            os.chown(w.host, 1000, 1000)
            os.chown(w.host + "/src", 0, 4242)
            os.chmod(w.host + "/src", 0o2775)
            for path, gid, mode in (("a", 4343, 0o664), ("b", 4343, 0o2755), ("src/c", 4242, 0o660)):
                os.chown(f"{w.host}/{path}", 0, gid)
                os.chmod(f"{w.host}/{path}", mode)
            w.since = w.later()
            w.again()
            for path in ("a", "b", "src/c", "new", "src/new", "src/dir/deep/new"):
                w.write(path)
            os.chmod(w.at + "/b", 0o2755)  # to write takes the bit
            os.chmod(w.at + "/src/new", 0o2755)
            os.symlink("a", w.at + "/src/link")
            skipped = w.apply(allow_exec=True, **who)["skipped"]
            uid = who["uid"]
            equal({path: owner(f"{w.host}/{path}") for path in ("a", "b", "src/c", "new", "src/new", "src/dir", "src/dir/deep/new")},
                  {"a": (uid, kept, 0o664), "b": (uid, kept, 0o2755), "src/c": (uid, 4242, 0o660), "new": (uid, new, 0o644),
                   "src/new": (uid, 4242, 0o2755), "src/dir": (uid, 4242, 0o2755), "src/dir/deep/new": (uid, 4242, 0o644)}, name)
            equal(owner(w.host + "/src/link")[:2], (uid, 4242))
            equal(sorted(os.path.basename(e["path"]) for e in skipped if "group" in e["reason"]), ["a", "b"] if name == "foreign" else [])


@require("root", "btrfs", "loop")
def test_a_group_that_the_caller_is_not_in_gives_him_no_program(tmp):
    """A directory gives its group away, but no set-gid program of it: as the kernel does it."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        os.chown(w.host + "/src", 1000, 4242)
        os.chmod(w.host + "/src", 0o2775)
        os.chown(w.host, 1000, 1000)
        w.since = w.later()
        w.again()
        w.write("src/new")
        os.chmod(w.at + "/src/new", 0o2755)
        w.apply(allow_exec=True, uid=1000, gid=1000)
        equal(owner(w.host + "/src/new"), (1000, 4242, 0o755))


@require("root", "btrfs", "loop")
def test_what_is_mounted_in_the_directory_is_left_alone(tmp):
    """The sandbox shows the empty directory below it."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        os.makedirs(w.host + "/src/mnt/below")
        w.since = w.later()
        subprocess.run(["mount", "-t", "tmpfs", "cay-test", w.host + "/src/mnt"], check=True)
        pool.mounts.append(w.host + "/src/mnt")
        w.write("src/mnt/precious", where=w.host)
        w.again()
        w.write("a")
        w.write("src/c")
        w.write("src/mnt/below/new")

        def changes():
            run = w.request("check_apply")
            run.result()
            return sorted(c["path"][len(w.host) + 1:] for o in run.objects for c in o.get("changes", []))
        equal(changes(), ["a", "src/c", "src/mnt/below/new"])
        contains(str(raises(job.JobError, w.apply)), "another file system")
        shutil.rmtree(w.at + "/src/mnt")
        equal(changes(), ["a", "src/c", "src/mnt", "src/mnt/below"])
        contains(str(raises(job.JobError, w.apply)), "nothing was applied")
        with open(w.host + "/a") as f:
            equal(f.read(), "a\n")
        equal(os.listdir(w.host + "/src/mnt"), ["precious"])
        os.rename(w.at + "/src", w.at + "/moved")
        raises(job.JobError, w.apply)
        equal(os.listdir(w.host + "/src/mnt"), ["precious"])


@require("root", "btrfs", "loop")
def test_owner_of_applied_files(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        for d, _dirs, files in os.walk(w.host):
            os.chown(d, 1000, 1000)
            for f in files:
                os.chown(os.path.join(d, f), 1000, 1000, follow_symlinks=False)
        w.later()
        w.write("a")
        w.write("src/new")
        w.apply(uid=1000, gid=1000)
        for path in ("a", "src/new"):
            st = os.stat(f"{w.host}/{path}")
            equal((st.st_uid, st.st_gid), (1000, 1000), path)
        w.write("b")
        w.apply()
        equal(os.stat(w.host + "/b").st_uid, 1000, "a replaced file keeps its owner")


def at_point(w, point, meanwhile, **more):
    """An apply during which @meanwhile is done, at fault point @point. Returns the request, which goes on."""
    held = w.request(env={"CAY_FAULT": point + "=hold"}, **more)
    wait_until(lambda: leaks.processes().get(held.process.pid, (0, "", ""))[1] == "T", 60, "it is held")
    try:
        meanwhile()
    finally:
        os.kill(held.process.pid, signal.SIGCONT)
    return held


def staged(w, name):
    """What an apply has staged so far as @name."""
    [place] = [e for e in os.listdir(w.host) if e.startswith(".cay-apply-")]
    return os.path.join(w.host, place, name)


def kept_by_apply(w, content):
    """The file with @content that lies in the staging directory of an apply that is not settled."""
    for place in (e for e in os.listdir(w.host) if e.startswith(".cay-apply-")):
        for name in os.listdir(f"{w.host}/{place}"):
            path = f"{w.host}/{place}/{name}"
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    if f.read() == content:
                        return path
    raise AssertionError(f"{content!r} is nowhere in {os.listdir(w.host)}")


class Canary:
    """A file of root's beside a host directory of another user's."""

    def __init__(self, tmp, pool):
        self.world, self.path = World(tmp, pool), os.path.join(tmp, "canary")
        for d, _dirs, files in os.walk(self.world.host):
            os.chown(d, 1000, 1000)
            for f in files:
                os.chown(os.path.join(d, f), 1000, 1000, follow_symlinks=False)
        self.world.later()
        with open(self.path, "w", encoding="utf-8") as f:
            f.write("root's\n")
        os.chmod(self.path, 0o600)

    def stays(self, held):
        """Whatever becomes of the apply."""
        try:
            held.result()
        except job.JobError:
            pass
        st = os.stat(self.path)
        with open(self.path, encoding="utf-8") as f:
            equal((oct(st.st_mode & 0o7777), st.st_uid, f.read()), ("0o600", 0, "root's\n"))


@require("root", "btrfs", "loop")
def test_a_link_in_place_of_a_staged_directory_is_not_followed(tmp):
    """The staging directory is the caller's, and whoever acts as him may exchange what is in it, while the job works in it as root."""
    with Pool(tmp, "btrfs") as pool:
        canary = Canary(tmp, pool)
        w = canary.world
        os.mkdir(w.at + "/new")

        def exchange():
            os.rmdir(staged(w, "n0"))
            os.symlink(canary.path, staged(w, "n0"))
        canary.stays(at_point(w, "store.apply.made", exchange, uid=1000, gid=1000))


@require("root", "btrfs", "loop")
def test_what_was_not_staged_does_not_become_the_callers(tmp):
    with Pool(tmp, "btrfs") as pool:
        canary = Canary(tmp, pool)
        w = canary.world
        w.write("a")
        w.write("b")

        def exchange():
            os.unlink(staged(w, "n0"))
            os.link(canary.path, staged(w, "n0"))
        canary.stays(at_point(w, "store.apply.made:2", exchange, uid=1000, gid=1000))


@require("root", "btrfs", "loop")
def test_a_link_in_place_of_a_file_whose_mode_changes_is_not_followed(tmp):
    with Pool(tmp, "btrfs") as pool:
        canary = Canary(tmp, pool)
        w = canary.world
        os.chmod(w.at + "/a", 0o755)

        def exchange():
            os.rename(w.host + "/a", w.host + "/aside")
            os.symlink(canary.path, w.host + "/a")
        canary.stays(at_point(w, "store.apply.mode", exchange, allow_exec=True))


def acl(**names):
    """A user's entry beside the owner's, with a mask: what the group's bits of the mode are then."""
    entries = [(1, 6, 0xffffffff), (2, 6, names.get("user", 1000)), (4, 0, 0xffffffff), (16, names.get("mask", 6), 0xffffffff), (32, 0, 0xffffffff)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries)


@require("root", "btrfs", "loop")
def test_access_lists_of_replaced_files(tmp):
    """The list stays: its mask is no right of the group's. What has none gets none, whatever new files in the directory get."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        name = "system.posix_acl_access"
        os.setxattr(w.host + "/a", name, acl())
        os.setxattr(w.host + "/src/c", name, acl())
        os.setxattr(w.host, "system.posix_acl_default", acl())
        w.later()
        for path in ("a", "b", "src/c"):
            w.write(path)
        os.chmod(w.at + "/src/c", 0o640)
        w.apply()
        equal([name in os.listxattr(f"{w.host}/{path}") for path in ("a", "b", "src/c")], [True, False, True])
        equal([oct(os.stat(f"{w.host}/{path}").st_mode & 0o7777) for path in ("a", "b", "src/c")], ["0o660", "0o644", "0o640"])
        equal(os.getxattr(w.host + "/a", name), acl())
        equal(os.getxattr(w.host + "/src/c", name), acl(mask=4))


@require("root", "btrfs", "loop")
def test_access_lists_of_the_sandbox_are_no_right_of_the_group(tmp):
    """They are not applied, and told of. With one the bits of the group are its mask: what a user got inside the file's group does not get on the host."""
    name = "system.posix_acl_access"
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        for path in ("a", "b", "src/c", "src/deep/d"):
            os.chmod(f"{w.host}/{path}", 0o640)
        os.setxattr(w.host + "/src/deep/d", name, acl(mask=4))
        w.since = w.later()
        w.again()
        for path in ("b", "new", "src/c", "src/deep/d"):
            w.write(path)
        os.mkdir(w.at + "/made")
        os.chmod(w.at + "/src/c", 0o600)
        for path in ("a", "b", "new", "made", "src/c", "gone"):
            os.setxattr(f"{w.at}/{path}", name, acl())
        os.setxattr(w.at + "/src/deep/d", name, acl(user=1001))
        reply = w.apply()
        equal({s["path"][len(w.host) + 1:]: s["reason"] for s in reply["skipped"]},
              {path: "its access list is not applied" for path in ("a", "b", "new", "made", "src/c", "src/deep/d", "gone")})
        equal({path: oct(os.stat(f"{w.host}/{path}").st_mode & 0o7777) for path in ("a", "b", "new", "made", "src/c", "gone")},
              {path: "0o600" for path in ("a", "b", "new", "made", "src/c", "gone")})
        equal([path for path in ("a", "b", "new", "made", "src/c", "gone") if name in os.listxattr(f"{w.host}/{path}")], [])
        equal(os.getxattr(w.host + "/src/deep/d", name), acl(mask=4), "the host's own stays as it was")
        # what is left is the lists alone: that is no change of a mode
        reply = w.apply()
        equal({s["reason"] for s in reply["skipped"]}, {"owners and attributes alone are not applied"})
        equal(os.getxattr(w.host + "/src/deep/d", name), acl(mask=4))


@require("root", "btrfs", "loop")
def test_access_lists_of_new_files(tmp):
    """Those that the directory gives, as inside; not those of the directory that is mounted."""
    with Pool(tmp, "btrfs") as pool:
        for number, listed in enumerate(("src", "", "gone")):
            w = World(tmp, pool, f"{number}")
            os.setxattr(f"{w.host}/{listed}", "system.posix_acl_default", acl())
            if not listed:
                os.setxattr(pool.upper(w.sandbox), "system.posix_acl_default", acl())
            w.since = w.later()
            w.again()
            w.write("src/new")
            w.write("src/deep/new")
            w.write("src/made/too/new")
            w.write("new")
            os.chmod(w.at + "/src/made/too/new", 0o640)
            shutil.rmtree(w.at + "/gone")
            w.write("gone", "a file in the place of a directory\n")
            w.apply()
            w.equals_sandbox()
            equal(w.apply("check_apply")["changes"], 0)


@require("root", "btrfs", "loop")
@timeout(200)
def test_kill_at_each_point(tmp):
    """kill -9 at each fault point and at each step: after recovery everything or nothing is applied, and nothing is left."""
    with Pool(tmp, "btrfs") as pool:
        log = os.path.join(tmp, "points")
        w = World(tmp, pool, "first")
        change(w)
        w.apply(env={"CAY_FAULT_LOG": log})
        with open(log) as f:
            passed = f.read().split()
        points = [f"{p}:{passed[:i + 1].count(p)}" for i, p in enumerate(passed)]
        equal(len(points) > 10, True, str(points))
        w = World(tmp, pool, "second")
        change(w)
        want, before = describe(w.at), describe(w.host, times=True)
        for point in points:
            for action, error in (("", job.JobDied), ("=error", job.JobError)):
                raises(error, w.apply, env={"CAY_FAULT": point + action})
                reply = pool.run("recover", layers=[], sandboxes=[w.sandbox])
                equal([n for n in os.listdir(w.host) if n.startswith(".cay")], [], point)
                equal(os.listdir(os.path.join(pool.state, "apply")), [f for f in os.listdir(os.path.join(pool.state, "apply"))
                                                                    if f.endswith(".applied")], point)
                if describe(w.host) == want:  # after it was marked done
                    equal("store.apply.done" in point, True, point)
                    equal(reply["applies_finished"], 0 if action else 1)
                    break
                equal(describe(w.host, times=True) == before, True, f"{point}{action}: undone")
            else:
                continue
            break
        else:
            raise AssertionError("the last point did not come")


@require("root", "btrfs", "loop")
def test_nothing_is_brought_onto_a_file_system_mounted_below(tmp):
    """The sandbox has never seen it. Nothing is left of the apply."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        change(w)
        w.write("src/deep/new", "one\n")
        place = os.path.join(w.host, "src", "deep")
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        try:
            error = raises(job.JobError, w.apply)
            equal(error.code, "unsupported")
            assert error.message.startswith("nothing was applied: 'src/deep/"), error.message
            assert error.message.endswith("' lies on another file system than its directory"), error.message
            equal(([n for n in os.listdir(w.host) if n.startswith(".cay")], os.listdir(place)), ([], []))
        finally:
            subprocess.run(["umount", place], check=True)


@require("root", "btrfs", "loop")
def test_nothing_is_undone_beside_the_apply_itself(tmp):
    """One that hangs in the kernel does not end when nobody waits for it any more."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        change(w)
        before, name = describe(w.host, times=True), job.new_id()
        held = w.request(apply=name, env={"CAY_FAULT": "store.apply.step:4=hold"})
        wait_until(lambda: leaks.processes().get(held.process.pid, (0, "", ""))[1] == "T", 60, "it is held")
        held.socket.close()
        undo = pool.job("undo_apply", apply=name, alone=True)
        try:
            wait_until(lambda: f" {undo.process.pid} " in "".join(line for line in leaks.read("/proc/locks").splitlines() if "->" in line), 20, "it waits")
        finally:
            os.kill(held.process.pid, signal.SIGCONT)
        equal(undo.result(), {"undone": 1, "finished": 0})
        held.process.wait(60)
        equal(describe(w.host, times=True) == before, True)


@require("root", "btrfs", "loop")
def test_what_the_host_did_since_is_not_undone(tmp):
    """An apply is broken off when all its steps are done; hours may pass until it is undone. What was written to meanwhile, or filled, stays, and so
    does what it had taken the place of, beside it: a person is told where."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        for name in ("a", "b", "new", "added", "filled/f", "empty/f"):
            w.write(name, "inside\n")
        raises(job.JobDied, w.apply, env={"CAY_FAULT": "store.apply.synced"})
        for name in ("a", "new"):
            with open(os.path.join(w.host, name), "a", encoding="utf-8") as f:
                f.write("mine\n")
        with open(os.path.join(w.host, "filled", "mine"), "w", encoding="utf-8") as f:
            f.write("mine\n")
        original = kept_by_apply(w, b"a\n")
        [told] = pool.run("recover", layers=[], sandboxes=[w.sandbox])["problems"]
        equal(kept_by_apply(w, b"a\n"), original, "what the host had in its place")
        contains(told, os.path.basename(os.path.dirname(original)))
        found = {}
        for top, _, names in os.walk(w.host):
            for name in names:
                path = os.path.join(top, name)
                with open(path, encoding="utf-8") as f:
                    found[os.path.relpath(path, w.host)] = f.read()
        equal({n: found.get(n) for n in ("a", "b", "new", "added", "filled/mine", "filled/f", "empty/f")},
              {"a": "inside\nmine\n", "b": "b\n", "new": "inside\nmine\n", "added": None, "filled/mine": "mine\n", "filled/f": None, "empty/f": None})
        equal(os.path.exists(os.path.join(w.host, "empty")), False)


@require("root", "btrfs", "loop")
def test_what_the_host_went_on_from_is_told_of_by_the_apply_itself(tmp):
    """It meets a conflict behind a step from whose result the host went on meanwhile: written to, removed, replaced, as editors do."""
    def write(w):
        with open(w.host + "/a", "a", encoding="utf-8") as f:
            f.write("mine\n")

    def replace(w):
        w.write("mine", "mine\n", where=w.host)
        os.rename(w.host + "/mine", w.host + "/a")

    for n, (go_on, left) in enumerate(((write, "inside\nmine\n"), (lambda w: os.unlink(w.host + "/a"), None), (replace, "mine\n"))):
        with Pool(f"{tmp}/{n}", "btrfs") as pool:
            w = World(f"{tmp}/{n}", pool)
            for name in ("a", "b"):
                w.write(name, "inside\n")

            def meanwhile(w=w, go_on=go_on):
                go_on(w)
                w.write("b", "mine\n", where=w.host)
            error = raises(job.JobError, at_point(w, "store.apply.step:2", meanwhile).result)
            equal(error.code, "conflict")
            place, name = os.path.split(kept_by_apply(w, b"a\n"))
            contains(error.message, os.path.basename(place))
            equal("nothing was applied" in error.message, False, error.message)
            journal = os.path.basename(place).removeprefix(".cay-apply-") + ".json.failed"
            contains(error.message, journal)
            with open(os.path.join(pool.state, "apply", journal), encoding="utf-8") as f:
                equal(bytes.fromhex(json.load(f)["steps"][int(name[1:])]["path"]), b"a", "whose it is")
            equal(pool.run("recover", layers=[], sandboxes=[w.sandbox])["problems"], [], "it is told once")
            equal(kept_by_apply(w, b"a\n"), os.path.join(place, name))
            found = {}
            for name in ("a", "b"):
                if os.path.exists(f"{w.host}/{name}"):
                    with open(f"{w.host}/{name}", encoding="utf-8") as f:
                        found[name] = f.read()
            equal((found.get("a"), found["b"]), (left, "mine\n"))


@require("root", "btrfs", "loop")
def test_what_cannot_be_undone_is_told(tmp):
    """The disk with the project is not mounted when recovery looks, or the project was moved: what the apply took away is somewhere else."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        change(w)
        raises(job.JobDied, w.apply, env={"CAY_FAULT": "store.apply.step:4"})
        os.rename(w.host, w.host + "-moved")
        os.mkdir(w.host)
        told = pool.run("recover", layers=[], sandboxes=[w.sandbox])["problems"]
        equal(len(told), 1)
        kept = [n for n in os.listdir(os.path.join(pool.state, "apply")) if n.endswith(".failed")]
        equal(len(kept), 1)
        contains(told[0], kept[0])
        contains(told[0], [n for n in os.listdir(w.host + "-moved") if n.startswith(".cay-apply-")][0])
        equal(pool.run("recover", layers=[], sandboxes=[w.sandbox])["problems"], [], "it is told once")


@require("root", "btrfs", "loop")
def test_what_was_applied_is_forgotten_with_its_sandbox(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a")
        name = job.new_id()
        w.apply(apply=name)
        equal(pool.run("undo_apply", apply=name), {"undone": 0, "finished": 1}, "what says so stays until its answer was taken")
        kept = [f"{w.sandbox}.applied"]
        for verb in ("gc", "recover"):
            for sandboxes, want in (([w.sandbox], kept), ([], [])):
                pool.run(verb, layers=[], sandboxes=sandboxes, until_ns=time.time_ns() + 10**10)
                equal(os.listdir(os.path.join(pool.state, "apply")), want, verb)
            with open(os.path.join(pool.state, "apply", kept[0]), "w") as f:
                f.write("{}")


@require("root")
def test_bad_requests(tmp):
    with Pool(tmp, "directory") as pool:
        w = World(tmp, pool)
        w.write("a")
        before = describe(w.host, times=True)
        for members, code in (({"apply": "x"}, "invalid"), ({"trees": []}, "invalid"), ({"since_ns": "x"}, "invalid"),
                              ({"trees": [{"target": "/etc", "a": w.stack()}]}, "invalid"),
                              ({"trees": [{"target": tmp + "/none", "a": [tmp + "/none"]}]}, "not_found"),
                              ({"uid": 1 << 40}, "invalid")):
            equal(raises(job.JobError, w.apply, **members).code, code, str(members))
        equal(describe(w.host, times=True) == before, True)


@require("root", "btrfs")
def test_a_fresh_copy_of_the_project_is_no_conflict(tmp):
    """Every file of the copy is younger than the sandbox's changes: what it holds decides."""
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        w.write("a")
        w.write("src/c", "changed\n")
        w.write("src/new", "new\n")
        os.unlink(w.at + "/b")
        os.unlink(w.at + "/link")
        os.symlink("b", w.at + "/link")
        subprocess.run(["rm", "-r", w.at + "/gone"], check=True)
        copy = os.path.join(tmp, "copy")
        w.later()
        subprocess.run(["cp", "-r", w.host, copy], check=True)
        trees = [{"target": copy, "source": w.host, "a": w.stack()[:-1] + [copy]}]
        equal(w.apply("check_apply", trees=trees)["conflicts"], [])
        w.write("src/c", "another\n", copy)
        equal([c["path"][len(copy) + 1:] for c in w.apply("check_apply", trees=trees)["conflicts"]], ["src/c"])
        w.write("src/c", "src/c\n", copy)
        w.later()
        w.write("a", "the original moved on\n", w.host)
        equal([c["path"][len(copy) + 1:] for c in w.apply("check_apply", trees=trees)["conflicts"]], ["a"])
        w.write("a", "changed\n", copy)  # both the same: nothing to do there
        before = describe(w.host, times=True)
        equal(w.apply(trees=trees)["applied"], True)
        same_trees(copy, w.at)
        equal(describe(w.host, times=True) == before, True, "the original was not touched")


@require("root", "btrfs")
def test_thousands_of_files(tmp):
    with Pool(tmp, "btrfs") as pool:
        w = World(tmp, pool)
        for n in range(2000):
            w.write(f"many/{n % 50}/{n}", f"{n}\n")
        equal(w.apply()["changes"], 2051)
        w.equals_sandbox()
        subprocess.run(["rm", "-r", w.at + "/many"], check=True)
        w.later()
        equal(w.apply()["changes"], 2051)
        w.equals_sandbox()


@require("root", "btrfs", "loop")
def test_two_applies_at_once(tmp):
    """Of two sandboxes: each has the journal that says how to undo it, also while the other one writes its own."""
    with Pool(tmp, "btrfs") as pool:
        one, other = World(tmp, pool, "one"), World(tmp, pool, "other")
        for w in (one, other):
            change(w)
        held = one.request(env={"CAY_FAULT": "store.apply.written:2=hold"})
        wait_until(lambda: leaks.processes().get(held.process.pid, (0, "", ""))[1] == "T", 60, "the first one is held")
        before = describe(one.host, times=True)
        equal(other.apply()["applied"], True)
        other.equals_sandbox()
        os.kill(held.process.pid, signal.SIGCONT)
        equal(held.result()["applied"], True)
        equal(describe(one.host, times=True) == before, False)
        one.equals_sandbox()
