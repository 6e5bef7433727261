# SPDX-License-Identifier: Apache-2.0
"""A cow mount that is made before it is asked for: it shows what one that is made then would show, and where it was foreseen wrongly nothing of it is left."""

import contextlib
import os
import shutil

from lib import cay, leaks
from lib.case import contains, equal, require
from lib.pool import in_own_mounts

POOL = 2
TURNS = 40  # prepared sandboxes may go stale because of others' mounts: then it is tried again
RIGHT, WRONG = "was foreseen\n", "was foreseen wrongly\n"


@contextlib.contextmanager
def telling(tmp, user=None):
    """An instance whose log says what was foreseen."""
    in_own_mounts()
    instance = cay.Instance(tmp, user=user, env={"CAY_DEBUG": "keeper", "CAY_POOL": str(POOL)})
    try:
        yield instance.start()
    finally:
        instance.close()


def counted(instance, what):
    return leaks.read(instance.log).count(what)


def wait_full(instance):
    cay.wait_until(lambda: instance.get("/v1/version")["pool"] == POOL, 60, "a full pool")


def project(tmp, name, note, user=None):
    place = os.path.join(tmp, name)
    os.mkdir(place)
    with open(os.path.join(place, "note"), "w", encoding="utf-8") as file:
        file.write(note)
    if user is not None:
        for path in (place, os.path.join(place, "note")):
            os.chown(path, user.pw_uid, user.pw_gid)
    return place


def run(instance, place, *argv):
    return instance.cay("run", "--rm", "--", *argv, cwd=place).stdout


def until_foreseen(instance, what, act):
    """@act again and again, until a mount was foreseen rightly or wrongly."""
    before = counted(instance, what)
    for _ in range(TURNS):
        wait_full(instance)
        act()
        if counted(instance, what) > before:
            return
    raise AssertionError(f"{TURNS} starts, and none of a mount that {what}")


def teach(instance, place):
    """All prepared sandboxes have the mount of @place afterwards, unless they go stale meanwhile."""
    for _ in range(POOL + 1):
        until_foreseen(instance, RIGHT, lambda: run(instance, place, "true"))
    wait_full(instance)


def check_right(instance, place):
    """Reads, writes, diff and apply; the directory itself is not written before that."""
    def act():
        equal(run(instance, place, "sh", "-c", "cat note; echo more >> note; mkdir d; mv note d; cat d/note"), "firstfirstmore\n")
        equal((os.listdir(place), open(os.path.join(place, "note"), encoding="utf-8").read()), (["note"], "first"))
    until_foreseen(instance, RIGHT, act)

    def keep():
        instance.cay("run", "--", "sh", "-c", "echo yes > made", cwd=place)
        contains(instance.cay("diff", cwd=place).stdout, "made")
        instance.cay("apply", cwd=place)
        equal(open(os.path.join(place, "made"), encoding="utf-8").read(), "yes\n")
        os.unlink(os.path.join(place, "made"))
        instance.cay("rm", cwd=place)
    until_foreseen(instance, RIGHT, keep)
    until_foreseen(instance, RIGHT, lambda: equal(instance.cay("run", "--rm", "--profile", "strict", "--", "cat", "note", cwd=place).stdout, "first"))


def check_replaced(instance, place, user=None):
    """Another directory of the same name, another mode: what is there now counts."""
    turn = 0

    def replace():
        nonlocal turn
        turn += 1
        teach(instance, place)
        shutil.rmtree(place)
        project(os.path.dirname(place), os.path.basename(place), f"turn {turn}", user)
        equal(run(instance, place, "cat", "note"), f"turn {turn}")
    until_foreseen(instance, WRONG, replace)

    def change():
        teach(instance, place)
        for mode in (0o700, 0o755):
            os.chmod(place, mode)
            equal(run(instance, place, "stat", "-c", "%a", "."), f"{mode:o}\n")
    until_foreseen(instance, WRONG, change)


def check_nothing_left(instance, tmp, place, other):
    """Without a mount, and with another one: the one that was foreseen is nowhere."""
    name = os.path.basename(place)

    def look_into(box):
        equal(instance.ok(box, f"test ! -e {tmp} && echo made > /var/tmp/made; cat /var/tmp/made; grep -c ' {place} ' /proc/self/mountinfo || true"), "made\n0\n")
        live = os.path.join(instance.state, "pool", "live", box)
        equal([path for path, _, _ in os.walk(os.path.join(live, "points")) if name in path], [])
        equal(os.listdir(os.path.join(live, "1", "upper")), [])
        keeper = leaks.keeper_of(box)
        equal([line for line in leaks.read(f"/proc/{keeper}/mountinfo").splitlines() if line.split()[3].endswith(name)], [])

    def boxes(stack, **spec):
        # at once: those for which nothing was foreseen are taken first
        teach(instance, place)
        return [stack.enter_context(instance.sandbox(**spec)) for _ in range(POOL)]

    def none():
        with contextlib.ExitStack() as stack:
            for box in boxes(stack):
                look_into(box)
    until_foreseen(instance, WRONG, none)

    def another():
        with contextlib.ExitStack() as stack:
            for box in boxes(stack, mounts=[{"source": other, "target": other}]):
                equal(instance.ok(box, f"cat {other}/note; test ! -e {place} && echo . > {other}/made; cat {other}/made; grep -c ' {place} ' /proc/self/mountinfo || true"), "other.\n0\n")
                equal(os.listdir(os.path.join(instance.state, "pool", "live", box, "1", "upper")), ["made"])
    until_foreseen(instance, WRONG, another)


def all_checks(instance, tmp, user=None):
    place, other = project(tmp, "project", "first", user), project(tmp, "another", "other", user)
    check_right(instance, place)
    check_nothing_left(instance, tmp, place, other)
    check_replaced(instance, place, user)


@require("root")
def test_foreseen_or_not_it_is_the_same(tmp):
    with telling(tmp) as instance:
        all_checks(instance, tmp)


@require("root", "userns", "newuidmap")
def test_as_an_ordinary_user(tmp):
    with cay.ThrowawayUser() as user, telling(tmp, user) as instance:
        all_checks(instance, tmp, user)


@require("root")
def test_two_directories_in_turn(tmp):
    """Whoever works in the one does not cost the other its mount."""
    one, other = project(tmp, "project", "first"), project(tmp, "another", "other")
    with telling(tmp) as instance:
        for _ in range(TURNS):
            before = counted(instance, RIGHT)
            for place, note in ((one, "first"), (other, "other")):
                wait_full(instance)
                equal(run(instance, place, "cat", "note"), note)
            if counted(instance, RIGHT) == before + 2:
                return
    raise AssertionError(f"{TURNS} turns, and in none were both mounts foreseen")


@require("root")
def test_stopped_and_started_again(tmp):
    """Its changes are there again, over the directory as it is now."""
    place = project(tmp, "project", "first")
    with telling(tmp) as instance:
        def act():
            box = instance.post("/v1/sandboxes", {"mounts": [{"source": place, "target": place}]})["id"]
            instance.ok(box, f"echo mine > {place}/made")
            instance.post(f"/v1/sandboxes/{box}/stop")
            instance.post(f"/v1/sandboxes/{box}/start")
            equal(instance.ok(box, f"cat {place}/made {place}/note"), "mine\nfirst")
            instance.remove(box)
        until_foreseen(instance, RIGHT, act)


@require("root")
def test_a_disk_of_its_own(tmp):
    """Its trees lie elsewhere: what was foreseen is of no use to it."""
    place = project(tmp, "project", "first")
    with telling(tmp) as instance:
        teach(instance, place)
        with contextlib.ExitStack() as stack:
            for _ in range(POOL):
                box = stack.enter_context(instance.sandbox(limits={"inodes": 300}, mounts=[{"source": place, "target": place}]))
                equal(instance.ok(box, f"cat {place}/note; echo more > {place}/made; cat {place}/made"), "firstmore\n")
                equal(os.listdir(os.path.join(instance.state, "pool", "live", box, "1", "upper")), [])
        equal(os.listdir(place), ["note"])


UNTOUCHED = "is untouched\n"
ATTRIBUTE = "import os; os.setxattr('.', 'user.ours', b'1')"
READS = [("true",), ("sh", "-c", "cat note sub/deep/note >/dev/null; test -w note")]
# that come to nothing, or to nothing that a diff tells
VOID = [("sh", "-c", "touch made; rm made"), ("sh", "-c", "mkdir made; rmdir made"), ("sh", "-c", "exec 3<>note"), ("chmod", "701", "."), ("chown", "1:1", "."), ("python3", "-c", ATTRIBUTE)]
WRITES = [("sh", "-c", "echo more >> note"), ("sh", "-c", "echo more >> sub/deep/note"), ("rm", "note"), ("ln", "note", "another"), ("chmod", "600", "sub/deep/note")]


@require("root")
def test_what_is_changed_in_a_foreseen_mount_is_seen(tmp):
    """The time of the last change of the top of its tree tells that nothing was: what it does not tell is looked at as of any other mount."""
    with telling(tmp) as instance:
        place = project(tmp, "place", "first")
        os.makedirs(os.path.join(place, "sub", "deep"))
        shutil.copy(os.path.join(place, "note"), os.path.join(place, "sub", "deep", "note"))
        teach(instance, place)

        def kept(argv):
            until_foreseen(instance, RIGHT, lambda: instance.cay("run", "--", *argv, cwd=place))
            ids = [s["id"] for s in instance.get("/v1/sandboxes")["sandboxes"]]
            for box in ids:
                instance.remove(box)
            return len(ids)

        for argv in READS:
            before = counted(instance, UNTOUCHED)
            for _ in range(TURNS):  # one that is prepared at the last moment is not asked
                equal((argv, kept(argv)), (argv, 0))
                if counted(instance, UNTOUCHED) > before:
                    break
            assert counted(instance, UNTOUCHED) > before, f"the time of the last change never tells what {argv} has not done"
        before = counted(instance, UNTOUCHED)
        for argv in VOID:
            equal((argv, kept(argv)), (argv, 0))
        for argv in WRITES:
            equal((argv, kept(argv)), (argv, 1))
        equal(counted(instance, UNTOUCHED), before)
