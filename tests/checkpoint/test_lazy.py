# SPDX-License-Identifier: Apache-2.0
"""A sandbox that is resumed runs before all of its memory is there. What it touches is loaded first, and whatever it does with its memory meanwhile, each page is what it was, or zeros where it has given it
up. The loader is made slow here (live.loader.slow): most pages are missing while all this happens. (Real programs, and the whole of it at full speed: test_suspend.py, test_live_programs.py.)"""

import json
import os
import signal
import struct
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require
from lib.cay import BUILD
from lib.pace import patience

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, say, wait_output  # noqa: E402
from suspending import forgotten, memories, resume, suspend, there_and_back  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2", "userfaultfd")
LAZY = {"CAY_LAZY_RESUME": "1"}
SLOW = {**LAZY, "CAY_FAULT": "live.loader.slow"}
PROGRAM = os.path.join(BUILD, "tests", "checkpoint", "lazy_memory")


def named(instance, name):
    return [pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/comm").strip() == name]


def begin(instance, box):
    instance.cay("cp", PROGRAM, f"{box}:/usr/local/bin/lazy_memory")
    run = instance.exec(box, "/usr/local/bin/lazy_memory", stdin=True)
    wait_output(instance, box, run, b"ready\n")
    return run


def loading(instance):
    """Pages are missing still: who loads them is there."""
    assert named(instance, "cay-loader"), "everything had been loaded: the test saw nothing"


def all_there(instance):
    """Nobody loads anything: nothing is missing."""
    equal(named(instance, "cay-loader"), [])


def loaded(instance):
    cay.wait_until(lambda: not named(instance, "cay-loader") and not named(instance, "cay-pager"), 60, "all is loaded")


class Slow:
    """A sandbox with the program, resumed, of which most pages are missing: with Slow(tmp) as (instance, box, run)."""

    def __init__(self, tmp, **environment):
        self.instance = cay.Instance(tmp, env={**SLOW, **environment})

    def __enter__(self):
        instance = self.instance.start()
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        suspend(instance, box)
        before = memories(instance)
        resume(instance, box)
        equal(ask(instance, box, run, "some"), "ok\n")
        loading(instance)
        forgotten(instance, before)
        return instance, box, run

    def __exit__(self, *_):
        self.instance.close()


def slowly(tmp, *commands):
    """Each command is carried out while pages are missing; then all is looked at, and once more when nothing is missing."""
    with Slow(tmp) as (instance, box, run):
        for command in commands:
            equal(ask(instance, box, run, command), "ok\n")
        loading(instance)
        equal(ask(instance, box, run, "check"), "ok\n")
        loaded(instance)
        equal(ask(instance, box, run, "check"), "ok\n")


@require(*NEEDS)
def test_mappings_that_are_moved_dropped_and_replaced(tmp):
    slowly(tmp, "mappings")


@require(*NEEDS)
def test_what_is_started_later_is_as_it_was(tmp):
    with Slow(tmp) as (instance, box, _):
        other = instance.post("/v1/sandboxes", {})["id"]
        ask_kernel = "ulimit -a; cat /proc/self/oom_score_adj; grep -E 'THP|Sig|Cap|Secc|NoNew' /proc/self/status"
        equal(instance.ok(box, ask_kernel), instance.ok(other, ask_kernel))
        loading(instance)


@require(*NEEDS)
def test_children_of_children(tmp):
    slowly(tmp, "forks")


@require(*NEEDS)
def test_programs_that_are_executed_meanwhile(tmp):
    slowly(tmp, "spawn")


@require(*NEEDS)
def test_signals_meanwhile(tmp):
    slowly(tmp, "signals")


@require(*NEEDS)
def test_who_could_not_be_held_is_not_made(tmp):
    slowly(tmp, "untraced")


def held(tmp, made):
    """Who would run in memory whose pages are missing does not, until none is."""
    with Slow(tmp) as (instance, box, run):
        for command in ("mappings", made, "forks"):
            equal(ask(instance, box, run, command), "ok\n")
        loading(instance)
        # all is touched: it does not take so long
        equal(ask(instance, box, run, "check"), "ok\n")
        loaded(instance)
        for command in ("seen", "check", "storm 5", "check"):
            equal(ask(instance, box, run, command), "ok\n")


@require(*NEEDS)
def test_a_thread_waits_until_all_is_there(tmp):
    held(tmp, "thread")


@require(*NEEDS)
def test_who_shares_the_memory_waits_until_all_is_there(tmp):
    held(tmp, "beside")


@require(*NEEDS)
def test_many_hands(tmp):
    """They begin when all is there, which is not long where nothing makes it slow."""
    instance = cay.Instance(tmp, env=LAZY).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        for _ in range(4):
            there_and_back(instance, box)
            equal(ask(instance, box, run, "storm 20"), "ok\n")
            all_there(instance)
            equal(ask(instance, box, run, "check"), "ok\n")
    finally:
        instance.close()


@require(*NEEDS)
def test_of_who_has_threads_all_is_there_first(tmp):
    """Beside one that has none, and waits."""
    instance = cay.Instance(tmp, env=SLOW).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        equal(ask(instance, box, run, "threads"), "ok\n")
        suspend(instance, box)
        resume(instance, box)
        all_there(instance)
        equal(ask(instance, box, run, "check"), "ok\n")
        other = instance.exec(box, "/usr/local/bin/lazy_memory", stdin=True)
        wait_output(instance, box, other, b"ready\n")
        there_and_back(instance, box)
        loading(instance)
        pagers = named(instance, "cay-pager")
        for pid in pagers:
            os.kill(pid, signal.SIGSTOP)
        for command in ("check", "storm 20", "ends", "check"):
            equal(ask(instance, box, run, command), "ok\n")
        loading(instance)
        for pid in pagers:
            os.kill(pid, signal.SIGCONT)
        for command in ("mappings", "forks", "check"):
            equal(ask(instance, box, other, command), "ok\n")
    finally:
        instance.close()


@require(*NEEDS)
def test_everything_in_a_row(tmp):
    """Twice, so that what was loaded piece by piece is suspended, and resumed, again."""
    with Slow(tmp) as (instance, box, run):
        for command in ("mappings", "forks", "signals", "check"):
            equal(ask(instance, box, run, command), "ok\n")
        for _ in range(2):
            there_and_back(instance, box)
            for command in ("forks", "children 100", "storm 10", "check"):
                equal(ask(instance, box, run, command), "ok\n")


def meanwhile(tmp, act):
    """act(instance, box) has to wait for the last page, which comes sooner when all are touched. Return: what it returned."""
    with Slow(tmp) as (instance, box, run):
        answers = []
        equal(ask(instance, box, run, "check"), "ok\n")
        thread = threading.Thread(target=lambda: answers.append(act(instance, box)))
        thread.start()
        thread.join(patience(60))
        equal(len(answers), 1)
        for one in answers[0]:
            equal(ask(instance, one, run, "check"), "ok\n")
            equal(ask(instance, one, run, "storm 5"), "ok\n")
        for one in answers[0]:
            if one != box:
                instance.remove(one)


@require(*NEEDS)
def test_suspended_again_meanwhile(tmp):
    def act(instance, box):
        there_and_back(instance, box)
        return [box]
    meanwhile(tmp, act)


@require(*NEEDS)
def test_forked_meanwhile(tmp):
    meanwhile(tmp, lambda instance, box: [box, *fork_live(instance, box, 2)])


@require(*NEEDS)
def test_the_server_is_killed_meanwhile(tmp):
    with Slow(tmp) as (instance, box, run):
        for end in (instance.kill, instance.stop):
            end()
            instance.start()
            equal(ask(instance, box, run, "some"), "ok\n")
        loading(instance)
        for command in ("mappings", "check"):
            equal(ask(instance, box, run, command), "ok\n")
        loaded(instance)


@require(*NEEDS)
def test_what_was_needed_first_is_there_the_next_time(tmp):
    """Nobody brings anything the second time, and it answers."""
    with Slow(tmp) as (instance, box, run):
        equal(ask(instance, box, run, "check"), "ok\n")
        loaded(instance)
        there_and_back(instance, box)
        pager = named(instance, "cay-pager")
        for pid in pager:
            os.kill(pid, signal.SIGSTOP)
        equal(ask(instance, box, run, "some"), "ok\n")
        loading(instance)
        for pid in pager:
            os.kill(pid, signal.SIGCONT)
        equal(ask(instance, box, run, "check"), "ok\n")


def is_lost(instance, box, run, why=""):
    equal(instance.wait(box, run)["status"], "lost")
    cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{box}")["state"] in ("stopped", "failed"), 30, "the sandbox has ended")
    contains(instance.get(f"/v1/sandboxes/{box}")["error"]["message"], why)
    cay.wait_until(lambda: not [n for n in ("cay-loader", "cay-pager", "cay-fork") if named(instance, n)], 30, "nobody loads anything")
    instance.post(f"/v1/sandboxes/{box}/start")
    equal(instance.ok(box, "ls /tmp"), "")


def lost_at(tmp, point, why=""):
    instance = cay.Instance(tmp, env={**LAZY, "CAY_FAULT": point}).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        suspend(instance, box)
        try:
            resume(instance, box)
        except cay.ApiError as error:
            print(f"failed as it may: {error}")
        is_lost(instance, box, run, why)
    finally:
        instance.close()


@require(*NEEDS)
def test_the_loader_is_killed_when_they_may_run(tmp):
    lost_at(tmp, "live.loader.going")


@require(*NEEDS)
def test_the_loader_is_killed_when_all_is_there(tmp):
    lost_at(tmp, "live.loader.done")


@require(*NEEDS)
def test_the_loader_gives_up_when_they_run(tmp):
    """It was told as one that was killed, wherever it ended."""
    lost_at(tmp, "live.loader.lost", "load the memory: place a page: Argument list too long")


def killed(tmp, name, why=""):
    """What cannot be loaded any more nobody sees: not as zeros either."""
    with Slow(tmp) as (instance, box, run):
        equal(ask(instance, box, run, "watch"), "ok\n")
        victims = named(instance, name)
        assert victims, f"no {name}"
        os.kill(victims[-1], signal.SIGKILL)
        is_lost(instance, box, run, why)


@require(*NEEDS)
def test_the_loader_is_killed(tmp):
    killed(tmp, "cay-loader", "its loader was killed")


@require(*NEEDS)
def test_the_pager_is_killed(tmp):
    killed(tmp, "cay-pager")


@require(*NEEDS)
def test_the_parent_is_killed(tmp):
    killed(tmp, "cay-fork")


RECORD = struct.Struct("<IIII4Q32s32sIIQ")  # struct memory_chunk


def stored_pages(place):
    """[(file, offset)] of the stored chunks of pages of the object at @place, in their order."""
    with open(os.path.join(place, "MANIFEST"), encoding="utf-8") as f:
        manifest = json.load(f)
    with open(os.path.join(place, "INDEX"), "rb") as f:
        records = list(RECORD.iter_unpack(f.read()))
    tables, found = manifest["image"] + manifest["plan"], []
    for raw, stored, *_, file, _, offset in records:
        if tables > 0:
            tables -= raw
        elif stored > 0:
            found.append((os.path.join(place, f"PAGES.{file}" if file else "PAGES"), offset))
    return found


def flip(file, offset):
    """One bit of what lies there."""
    with open(file, "r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 1]))


def damaged_behind(tmp, before, meanwhile):
    """before(place) and meanwhile() see to it that pages in the middle of the program's memory cannot be had; it is resumed in between. Whoever touches them, or comes to them, is shown nothing else."""
    instance = cay.Instance(tmp, env=SLOW).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        memory = suspend(instance, box)["memory"]["id"]
        before(os.path.join(instance.state, "pool", "memory", memory))
        resume(instance, box)
        loading(instance)
        meanwhile()
        try:
            say(instance, box, run, "check\n")
        except AssertionError as error:
            print(f"it had been come to before: {error}")
        equal(instance.wait(box, run)["status"], "lost")
        equal(instance.output(box, run), b"ready\n")
        cay.wait_until(lambda: instance.get(f"/v1/sandboxes/{box}")["state"] == "failed", 30, "the sandbox has ended")
        error = instance.get(f"/v1/sandboxes/{box}")["error"]
        equal(error["code"], "corrupt")
        contains(error["message"], "its memory on disk is damaged")
        forgotten(instance, {memory})
        is_lost(instance, box, run)
    finally:
        instance.close()


@require(*NEEDS)
def test_damage_that_is_found_when_it_runs(tmp):
    """One bit of one chunk."""
    def spoil(place):
        pages = stored_pages(place)
        flip(*pages[len(pages) // 3])
    damaged_behind(tmp, spoil, lambda: None)


@require(*NEEDS)
def test_a_disk_that_fails_when_it_runs(tmp):
    """A file that has become shorter is as one that cannot be read."""
    kept = []

    def keep(place):
        kept.append(os.open(os.path.join(place, "PAGES"), os.O_RDWR))

    def cut():
        os.ftruncate(kept[0], 0)
        os.close(kept[0])
    damaged_behind(tmp, keep, cut)


@require(*NEEDS)
def test_damage_of_what_is_needed_first_is_refused(tmp):
    """By whoever reads it: a process that is being made, or, when it is known from the resume before, the template. Nothing has run, and nothing is lost."""
    instance = cay.Instance(tmp, env=LAZY).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        for _ in range(2):
            memory = suspend(instance, box)["memory"]["id"]
            pages = stored_pages(os.path.join(instance.state, "pool", "memory", memory))
            for page in pages:
                flip(*page)
            for _ in range(2):  # the second time all is read first
                equal(raises(cay.ApiError, resume, instance, box).code, "corrupt")
                equal(instance.get(f"/v1/sandboxes/{box}")["state"], "suspended")
            for page in pages:
                flip(*page)
            resume(instance, box)
            there_and_back(instance, box)
            equal(ask(instance, box, run, "check"), "ok\n")
            loaded(instance)
    finally:
        instance.close()


@require(*NEEDS)
def test_who_loads_is_in_a_group_of_its_own(tmp):
    """Beside that of the programs, with their processor time and 512 MiB where version 2 has the controllers."""
    instance = cay.Instance(tmp, env=SLOW).start()
    try:
        box = instance.post("/v1/sandboxes", {"limits": {"cpu_millis": 500}})["id"]
        begin(instance, box)
        there_and_back(instance, box)
        loaders = named(instance, "cay-loader")
        equal(len(loaders), 1)
        groups = [path for tag in instance.tags for top in leaks.cgroups(tag) for path, _, _ in os.walk(top) if path.endswith(f"{box}/loader")]
        equal(len(groups), 1)
        equal(leaks.read(os.path.join(groups[0], "cgroup.procs")).split(), [str(loaders[0])])
        for name, want in (("memory.max", "536870912"), ("cpu.max", "50000 100000")):
            equal(leaks.read(os.path.join(groups[0], name), want).strip(), want)
        for group in leaks.read(f"/proc/{loaders[0]}/cgroup").splitlines():
            assert group.startswith("0::") or box not in group, f"it takes what is its sandbox's: {group}"
    finally:
        instance.close()


@require(*NEEDS)
def test_who_waits_for_what_waits_for_it_goes_on(tmp):
    with Slow(tmp, CAY_FAULT="live.loader.slow,live.loader.impatient") as (instance, box, run):
        equal(ask(instance, box, run, "grow locked"), "ok\n")
        loading(instance)
        equal(ask(instance, box, run, "check"), "ok\n")


@require(*NEEDS)
def test_more_children_meanwhile_than_there_may_be_at_once(tmp):
    with Slow(tmp, CAY_FAULT="live.loader.slow,live.loader.crowded") as (instance, box, run):
        equal(ask(instance, box, run, "children 2000"), "ok\n")
        loading(instance)
        equal(ask(instance, box, run, "check"), "ok\n")


@require(*NEEDS)
def test_a_resume_whose_memory_is_not_loaded_says_why(tmp):
    """It said the same wherever the loader ended. The sandbox stays suspended, and is resumed when that is over."""
    instance = cay.Instance(tmp, env={**LAZY, "CAY_FAULT": "live.loader.stuck"}).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        suspend(instance, box)
        contains(raises(cay.ApiError, resume, instance, box).message, "load the memory: wait for a change of mappings: Timer expired")
        instance.stop()
        instance.start(CAY_FAULT="")
        resume(instance, box)
        equal(ask(instance, box, run, "check"), "ok\n")
    finally:
        instance.close()


@require(*NEEDS)
def test_who_gives_memory_back_is_heard_while_there_is_no_room(tmp):
    with Slow(tmp, CAY_FAULT="live.loader.slow,live.loader.narrow,live.loader.impatient") as (instance, box, run):
        equal(ask(instance, box, run, "wait for room"), "ok\n")
        loading(instance)
        equal(ask(instance, box, run, "check"), "ok\n")


@require(*NEEDS)
def test_terabytes_that_must_be_there_first(tmp):
    """Of what no child may have all that there is comes before anybody runs; what there is not costs nothing."""
    instance = cay.Instance(tmp, env=SLOW).start()
    try:
        box = instance.post("/v1/sandboxes", {})["id"]
        run = begin(instance, box)
        equal(ask(instance, box, run, "reserve"), "ok\n")
        there_and_back(instance, box)
        loading(instance)
        equal(ask(instance, box, run, "reserved"), "ok\n")
        equal(ask(instance, box, run, "check"), "ok\n")
    finally:
        instance.close()


def eagerly(instance, **spec):
    box = instance.post("/v1/sandboxes", spec)["id"]
    run = begin(instance, box)
    suspend(instance, box)
    resume(instance, box)
    all_there(instance)
    equal(ask(instance, box, run, "check"), "ok\n")


@require(*NEEDS)
def test_where_it_cannot_be_had_all_is_there_first(tmp):
    instance = cay.Instance(tmp, env={**SLOW, "CAY_WITHOUT": "lazy_resume"}).start()
    try:
        eagerly(instance)
    finally:
        instance.close()


@require(*NEEDS)
def test_where_it_could_come_near_the_limit_all_is_there_first(tmp):
    instance = cay.Instance(tmp, env=SLOW).start()
    try:
        eagerly(instance, limits={"memory_bytes": 80 << 20})
    finally:
        instance.close()


@require(*NEEDS)
def test_by_default_it_is_what_gains_something(tmp):
    """Not the few MiB of a shell."""
    instance = cay.Instance(tmp, env={**SLOW, "CAY_LAZY_RESUME": ""}).start()
    try:
        small, large = (instance.post("/v1/sandboxes", {})["id"] for _ in range(2))
        begin(instance, large)
        instance.exec(small, "sh", "-c", "sleep 1000; :")
        there_and_back(instance, small)
        all_there(instance)
        there_and_back(instance, large)
        loading(instance)
    finally:
        instance.close()


@require(*NEEDS)
def test_it_can_be_switched_off(tmp):
    instance = cay.Instance(tmp, env={**SLOW, "CAY_LAZY_RESUME": "0"}).start()
    try:
        eagerly(instance)
    finally:
        instance.close()
