# SPDX-License-Identifier: Apache-2.0
"""Contract DATA for suspend and resume: kill -9 of cayd, keeper, job, template, coder and dumper at every named point. Afterwards the sandbox runs, or is suspended,
whole; or its processes are truly gone and its execs are `lost`. Never another state than the program's own, and nothing leaks."""

import contextlib
import fcntl
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path += [HERE, os.path.join(HERE, "..", "checkpoint")]
from forking import ask, say, wait_output  # noqa: E402
from points import own_instance, passed  # noqa: E402

TIMEOUT = 90
WAITS = True

# Every fault("...") on the way, and what may be left of the sandbox when something dies there. `lost` only where its processes cannot be saved.
POINTS = {
    "sandbox.suspend.stopped": ("running",),
    "memory.save.chunk": ("running",),
    "memory.commit.before_rename": ("running",),
    "memory.commit.after_rename": ("running",),
    "sandbox.suspend.saved": ("running",),
    "sandbox.suspend.impatient": ("running",),
    "keeper.suspend.frozen": ("lost",),
    "keeper.suspend.marked": ("running",),
    "sandbox.suspend.ended": ("suspended",),
    "sandbox.suspend.before_commit": ("suspended",),
    "sandbox.suspend.committed": ("suspended",),
    "memory.load.tables": ("suspended",),
    "memory.pager.serving": ("suspended", "lost"),
    "sandbox.resume.launched": ("suspended",),
    "sandbox.resume.loaded": ("suspended",),
    "sandbox.resume.held": ("suspended",),
    "sandbox.resume.before_commit": ("suspended",),
    "sandbox.resume.committed": ("running",),
    "sandbox.resume.gone": ("running",),
}

# Inside the sandbox, where the log of points is out of reach.
INSIDE = {"live.process.made": ("suspended",), "live.opener.removed": ("suspended",), "live.loader.begun": ("suspended",), "live.loader.chunk": ("suspended",)}

# Its state is in its memory and in a file: both must be of one instant. It works in a directory that is gone.
PROGRAM = """
import os, sys
n = 0
os.makedirs("/tmp/above/here")
os.chdir("/tmp/above/here")
os.removedirs("/tmp/above/here")
print("ready", flush=True)
for line in sys.stdin:
    n += 1
    with open("/tmp/n", "a") as f: f.write("x")
    print(n, len(open("/tmp/n").read()), flush=True)
"""


class Story:
    """One program that counts, through a suspension in which something dies."""

    def __init__(self, instance):
        self.box = instance
        self.id = instance.post("/v1/sandboxes", {})["id"]
        instance.ok(self.id, f"cat > /tmp/count.py <<'END'\n{PROGRAM}\nEND\n")
        self.run = instance.exec(self.id, "/usr/bin/python3", "/tmp/count.py", stdin=True)
        wait_output(instance, self.id, self.run, b"ready\n")
        self.n = 0

    def count(self):
        self.n += 1
        equal(ask(self.box, self.id, self.run, "go"), f"{self.n} {self.n}\n")

    def state(self):
        return self.box.get(f"/v1/sandboxes/{self.id}")["state"]

    def there_and_back(self):
        """Return: whether both were answered for."""
        try:
            self.box.post(f"/v1/sandboxes/{self.id}/suspend")
            self.box.post(f"/v1/sandboxes/{self.id}/resume")
        except (cay.ApiError, OSError, EOFError, ValueError) as error:
            print(f"failed as it may: {error}", flush=True)
            return False
        return True

    def left(self):
        """What is left of it, all checked: running and suspended ones go on."""
        state = self.state()
        if state == "suspended":
            self.box.post(f"/v1/sandboxes/{self.id}/resume")
        elif state != "running":
            equal(self.box.wait(self.id, self.run, 20)["status"], "lost")
            assert state in ("stopped", "failed"), state
            self.box.post(f"/v1/sandboxes/{self.id}/start")
            equal(self.box.ok(self.id, "wc -c < /tmp/n").strip(), str(self.n))
            state = "lost"
        if state == "running" and self.box.get(f"/v1/sandboxes/{self.id}/execs/{self.run['id']}")["state"] == "ended":
            # its tracer died: the kernel ends what had been changed
            status = self.box.wait(self.id, self.run)
            assert (status["status"], status.get("signal")) in (("signaled", 9), ("lost", None)), status  # killed by us, or with what held it stopped
            state = "lost"
        if state != "lost":
            self.count()
        assert "suspended_by" not in self.box.get(f"/v1/sandboxes/{self.id}")
        cay.wait_until(lambda: not os.listdir(os.path.join(self.box.state, "pool", "memory")), 30, "memory that nothing needs goes")
        assert self.box.get(f"/v1/sandboxes/{self.id}/events/verify")["ok"]
        return state


def told(tmp, use, **environment):
    with own_instance(tmp) as instance:
        story = Story(instance.start(**environment))
        story.count()
        use(instance, story)


def make_case(point, allowed, setting=None):
    def case(tmp):
        def use(instance, story):
            # a keeper that dies when all is on disk takes nothing along
            equal(story.there_and_back(), point == "keeper.suspend.marked", "was anything killed?")
            instance.process.kill()
            instance.process.wait(30)
            instance.start()
            left = story.left()
            assert left in allowed, f"{left} after a kill at {point}"
            if left != "lost":
                equal(instance.ok(story.id, "ls -A /tmp").split(), ["count.py", "n"])
            assert story.there_and_back() or left == "lost"
            if left != "lost":
                story.count()
        lazy = {"CAY_LAZY_RESUME": "1"} if ".pager." in point or ".loader." in point else {}
        told(tmp, use, CAY_FAULT=setting or point, **lazy)
    case.__name__ = f"test_kill_at_{point.replace('.', '_')}"
    return require("root", "cgroup2")(case)


for _point, _allowed in (POINTS | INSIDE).items():
    _case = make_case(_point, _allowed)
    globals()[_case.__name__] = _case


# A setting may name several points, also where processes are made.
test_kill_at_a_point_behind_others = make_case("live.process.made", INSIDE["live.process.made"], "live.fork.nowhere:2,memory.nowhere,live.process.made")


@require("root", "cgroup2")
def test_a_keeper_that_is_told_to_end_meanwhile_suspends_all_the_same(tmp):
    """It is ending anyway: it said that this could not be, and died of it before it had answered."""
    def use(instance, story):
        took = []
        thread = threading.Thread(target=lambda: took.append(story.there_and_back()))
        thread.start()
        (pid,) = keeper(instance, story)
        cay.wait_until(lambda: leaks.processes()[pid][1] == "T", 30, "it stands before it kills")
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        thread.join(60)
        equal((took, story.left()), ([True], "running"))
        assert "Assertion" not in leaks.read(instance.log), leaks.read(instance.log)
    told(tmp, use, CAY_FAULT="keeper.suspend.marked=hold")


@require("root", "cgroup2")
def test_a_suspension_that_is_finished_while_the_next_server_starts_is_one(tmp):
    """Its object was not EXACT when that looked first. The keeper goes on without a server."""
    def use(instance, story):
        thread = threading.Thread(target=story.there_and_back)
        thread.start()
        (pid,) = keeper(instance, story)
        cay.wait_until(lambda: leaks.processes()[pid][1] == "T", 30, "it stands before it writes")
        instance.kill()
        thread.join(60)
        goes_on = threading.Timer(2, os.kill, (pid, signal.SIGCONT))
        goes_on.start()
        instance.start()
        equal(story.left(), "suspended")
    told(tmp, use, CAY_FAULT="keeper.suspend.frozen=hold")


@require("root", "cgroup2")
def test_a_suspension_that_the_catalogue_did_not_take_is_one_for_the_next_server(tmp):
    """Its object is the only copy of its processes, whatever the catalogue says; the keeper that was to get them back has none."""
    def use(instance, story):
        instance.post(f"/v1/sandboxes/{story.id}/suspend")
        raises(Exception, instance.post, f"/v1/sandboxes/{story.id}/resume")
        equal(instance.process.wait(30), -signal.SIGKILL)
        instance.start()
        equal(story.state(), "suspended")
        equal(story.left(), "suspended")
    told(tmp, use, CAY_FAULT="sandbox.suspend.before_commit=error,sandbox.resume.launched")


def without_storage(tmp, point, left):
    """The server dies at @point of a suspension, and the next one has no storage at first, so that nobody can look whether the processes are on disk: they count as that until somebody can."""
    def use(instance, story):
        raises(Exception, instance.post, f"/v1/sandboxes/{story.id}/suspend")
        equal(instance.process.wait(30), -signal.SIGKILL)
        # the keeper too: what it holds cannot be asked for
        for pid in keeper(instance, story):
            with contextlib.suppress(ProcessLookupError):  # it ends by itself where all is on disk
                os.kill(pid, signal.SIGKILL)
        state = os.open(instance.state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(state, fcntl.LOCK_SH)
            instance.start()  # answers when it has given up waiting
            equal(story.state(), "suspended")
            equal(raises(cay.ApiError, instance.post, f"/v1/sandboxes/{story.id}/resume").code, "busy")
        finally:
            os.close(state)
        instance.post("/v1/storage", {})
        equal(story.state(), left)
        equal(story.left(), "suspended" if left == "suspended" else "lost")
    told(tmp, use, CAY_FAULT=point)


@require("root", "cgroup2")
def test_what_is_on_disk_waits_for_the_storage(tmp):
    without_storage(tmp, "sandbox.suspend.ended", "suspended")


@require("root", "cgroup2")
def test_what_never_came_to_the_disk_is_over_when_the_storage_is_there(tmp):
    without_storage(tmp, "sandbox.suspend.saved", "stopped")


# A job that looks for the object and cannot: not the same as one that finds none.
UNSEEN = "memory.exact.before"


def cannot_be_asked(instance, story):
    """Nobody can say whether its processes are on disk: it counts as suspended, nothing is made of it, and nothing of it is forgotten."""
    equal(story.state(), "suspended")
    for what, body in (("resume", {}), ("snapshots", {}), ("fork", {})):
        error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{story.id}/{what}", body)
        contains(error.message, "nobody can say yet whether the processes")
        contains(error.hint, "each resume looks again")
    equal(story.state(), "suspended")
    instance.post("/v1/prune", {})
    equal(len(os.listdir(os.path.join(instance.state, "pool", "memory"))), 1)


def by_a_server_that_cannot_ask(tmp, point, left):
    """The server dies at @point of a suspension, and the next one cannot look at its object: what is @left is seen by the one after it."""
    def use(instance, story):
        raises(Exception, instance.post, f"/v1/sandboxes/{story.id}/suspend")
        equal(instance.process.wait(30), -signal.SIGKILL)
        for pid in keeper(instance, story):
            with contextlib.suppress(ProcessLookupError):  # it ends by itself where all is on disk
                os.kill(pid, signal.SIGKILL)
        instance.start(CAY_FAULT=f"{UNSEEN}=error")
        cannot_be_asked(instance, story)
        instance.kill()
        instance.start()
        equal(story.state(), left)
        equal(story.left(), "suspended" if left == "suspended" else "lost")
    told(tmp, use, CAY_FAULT=point)


@require("root", "cgroup2")
def test_an_object_that_cannot_be_looked_at_is_not_forgotten(tmp):
    by_a_server_that_cannot_ask(tmp, "sandbox.suspend.ended", "suspended")


@require("root", "cgroup2")
def test_one_that_never_came_to_the_disk_is_over_when_it_can_be_looked_for(tmp):
    by_a_server_that_cannot_ask(tmp, "sandbox.suspend.saved", "stopped")


@require("root", "cgroup2")
def test_a_keeper_that_does_not_answer_in_time_is_not_taken_for_one_that_failed(tmp):
    """It ends the processes behind the server's back: what it has written is the only copy of them."""
    def use(instance, story):
        contains(raises(cay.ApiError, instance.post, f"/v1/sandboxes/{story.id}/suspend").message, "nobody can say yet")
        equal(story.state(), "suspended")
        equal(story.left(), "suspended")
    told(tmp, use, CAY_FAULT="sandbox.suspend.impatient=error")


@require("root", "cgroup2")
def test_a_keeper_dies_while_suspending_and_nobody_can_say_how_far_it_came(tmp):
    """By the same server: what it holds is suspended until the next one has looked."""
    def use(instance, story):
        contains(raises(cay.ApiError, instance.post, f"/v1/sandboxes/{story.id}/suspend").message, "nobody can say yet")
        cannot_be_asked(instance, story)
        instance.kill()
        instance.start()
        equal(story.left(), "suspended")
    told(tmp, use, CAY_FAULT=f"keeper.suspend.marked,{UNSEEN}=error")


@require("root", "cgroup2")
def test_processes_that_nobody_can_look_for_can_be_given_up(tmp):
    def use(instance, story):
        raises(cay.ApiError, instance.post, f"/v1/sandboxes/{story.id}/suspend")
        instance.post(f"/v1/sandboxes/{story.id}/stop")
        equal(story.box.wait(story.id, story.run, 20)["status"], "killed")
        cay.wait_until(lambda: not os.listdir(os.path.join(instance.state, "pool", "memory")), 30, "its memory goes")
        instance.kill()
        instance.start()
        equal(story.state(), "stopped")
        instance.post(f"/v1/sandboxes/{story.id}/start")
        equal(instance.ok(story.id, "wc -c < /tmp/n").strip(), str(story.n))
    told(tmp, use, CAY_FAULT=f"keeper.suspend.marked,{UNSEEN}=error")


@require("root", "cgroup2")
def test_the_story_passes_every_point(tmp):
    def use(instance):
        story = Story(instance)
        assert story.there_and_back()
        story.count()
    seen = passed(tmp, use, CAY_LAZY_RESUME="1")
    equal(sorted(set(POINTS) - set(seen)), [], "points that are never reached")
    equal(sorted(p for p in seen if p.split(".")[0] == "memory" or ".suspend." in p or ".resume." in p), sorted(POINTS), "points that no case kills at")


def the(instance, *words):
    """Pids of this instance's processes whose command line begins with @words."""
    lines = {pid: leaks.read(f"/proc/{pid}/cmdline").rstrip("\0").split("\0") for pid in instance.own_processes()}
    return [pid for pid, line in lines.items() if line[:len(words)] == list(words)]


def held(instance, *words):
    """Those of them that a fault point has stopped."""
    states = leaks.processes()
    return [pid for pid in the(instance, *words) if states.get(pid, ("", ""))[1] == "T"]


def killed_outside(tmp, point, victim, allowed, then_ends=True):
    """cayd is held at @point, @victim(instance, story) named and killed, cayd goes on."""
    def use(instance, story):
        result = []
        thread = threading.Thread(target=lambda: result.append(story.there_and_back()))
        thread.start()
        cayd = instance.process.pid
        cay.wait_until(lambda: leaks.processes()[cayd][1] == "T", 30, "cayd is held")
        try:
            pids = victim(instance, story)
            assert pids, "there is nothing to kill"
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            cay.wait_until(lambda: all(leaks.processes().get(pid, ("", "Z"))[1] == "Z" for pid in pids), 30, "they are dead")
        finally:
            os.kill(cayd, signal.SIGCONT)
        thread.join(60)
        equal(result, [not then_ends])
        # without its keeper it runs no more, but the server may be the last to hear of it
        settled = ("failed", "stopped") if allowed == ("lost",) else ("running", "suspended", "failed", "stopped")
        cay.wait_until(lambda: story.state() in settled, 10, "it settles")
        left = story.left()
        assert left in allowed, left
    told(tmp, use, CAY_FAULT=f"{point}=hold")


def template(instance, _):
    return instance.programs_named("cay-template")


def dumper(instance, _):
    return the(instance, "cay-keeper", "dump")


def keeper(instance, story):
    return the(instance, "cay-keeper", "sandbox", story.id)[:1]


# Says what it was sent.
CATCHES = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b"told\\n"))
os.write(1, b"ready\\n")
for line in sys.stdin: os.write(1, b"here\\n")
"""


# Says how large its terminal has become.
RESIZED = """
import os, signal, sys
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b"%d\\n" % os.get_terminal_size(0).lines))
os.write(1, b"ready\\n")
for line in sys.stdin: os.write(1, b"here\\n")
"""


def while_it_is_written(tmp, meanwhile, left, program=CATCHES, end=b"\n", **options):
    """A job that writes the memory of a suspension is held, meanwhile(instance, box, run) happens, it goes on: the suspension is given up, and left(instance, box, run)."""
    with own_instance(tmp) as instance:
        instance.start(CAY_FAULT="memory.save.chunk=hold")
        with instance.sandbox() as box:
            run = instance.exec(box, "/usr/bin/python3", "-c", program, stdin=True, **options)
            wait_output(instance, box, run, b"ready" + end)
            result = []

            def suspend():
                try:
                    instance.post(f"/v1/sandboxes/{box}/suspend")
                except cay.ApiError as error:
                    result.append(error.code)
            thread = threading.Thread(target=suspend)
            thread.start()
            cay.wait_until(lambda: held(instance, "cay-keeper", "job"), 30, "the job is held")
            stopped = held(instance, "cay-keeper", "job")
            try:
                meanwhile(instance, box, run)
            finally:
                for pid in stopped:  # no other: its coders end as soon as it goes on
                    os.kill(pid, signal.SIGCONT)
            thread.join(60)
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
            left(instance, box, run, result)


@require("root", "cgroup2")
def test_a_signal_is_not_lost_while_suspending(tmp):
    def send(instance, box, run):
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": int(signal.SIGUSR1)})

    def arrived(instance, box, run, result):
        equal(result, ["busy"])
        wait_output(instance, box, run, b"ready\ntold\n")
        equal(ask(instance, box, run, "hello"), "here\n")
    while_it_is_written(tmp, send, arrived)


@require("root", "cgroup2")
def test_input_is_not_lost_while_suspending(tmp):
    """Of input that a request has brought nobody has a copy."""
    def write(instance, box, run):
        say(instance, box, run, "hello\n")

    def arrived(instance, box, run, result):
        equal(result, ["busy"])
        wait_output(instance, box, run, b"ready\nhere\n")
    while_it_is_written(tmp, write, arrived)


@require("root", "cgroup2")
def test_a_size_is_not_lost_while_suspending(tmp):
    """Nor is one of a terminal that a request has given."""
    def resize(instance, box, run):
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/resize", {"rows": 33, "columns": 90})

    def arrived(instance, box, run, result):
        equal(result, ["busy"])
        wait_output(instance, box, run, b"ready\r\n33\r\n")
    while_it_is_written(tmp, resize, arrived, RESIZED, b"\r\n", tty={"rows": 24, "columns": 80})


@require("root", "cgroup2")
def test_nothing_begins_while_suspending(tmp):
    def begin(instance, box, run):
        equal(raises(cay.ApiError, instance.exec, box, "/bin/true").code, "busy")
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": int(signal.SIGUSR1)})

    def goes_on(instance, box, run, result):
        equal(result, ["busy"])
        equal(instance.ok(box, "echo begun"), "begun\n")
    while_it_is_written(tmp, begin, goes_on)


@require("root", "cgroup2")
def test_who_is_killed_while_suspending_has_ended(tmp):
    def send(instance, box, run):
        instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 9, "tree": True})

    def ended(instance, box, run, result):
        equal(len(result), 1)  # busy, or its memory could not be read any more
        status = instance.wait(box, run)
        equal((status["status"], status["signal"]), ("killed", 9))
    while_it_is_written(tmp, send, ended)


@require("root", "cgroup2")
def test_what_is_refused_last_is_tried_again(tmp):
    """When all has been looked at a program ends, say: the template forgets what it holds."""
    def use(_, story):
        assert story.there_and_back()
        story.count()
    point = "keeper.carry.save"
    told(tmp, use, CAY_FAULT=f"{point}=error")


@require("root", "cgroup2")
def test_kill_the_template_while_suspending(tmp):
    killed_outside(tmp, "sandbox.suspend.stopped", template, ("running",))


@require("root", "cgroup2")
def test_kill_the_template_after_it_was_saved(tmp):
    killed_outside(tmp, "sandbox.suspend.saved", template, ("running",), then_ends=False)


@require("root", "cgroup2")
def test_kill_the_dumper_while_suspending(tmp):
    """Its processes die with it, or run on without it: in neither case is the object what they are."""
    killed_outside(tmp, "sandbox.suspend.saved", dumper, ("running", "lost"))


@require("root", "cgroup2")
def test_kill_the_keeper_while_suspending(tmp):
    killed_outside(tmp, "sandbox.suspend.saved", keeper, ("lost",))


@require("root", "cgroup2")
def test_server_and_keeper_die_while_suspending(tmp):
    """As when the machine goes down: its memory was written, and is of no use to anybody."""
    def use(instance, story):
        result = []
        thread = threading.Thread(target=lambda: result.append(story.there_and_back()))
        thread.start()
        cay.wait_until(lambda: leaks.processes()[instance.process.pid][1] == "T", 30, "cayd is held")
        equal(len(os.listdir(os.path.join(instance.state, "pool", "memory"))), 1)
        pids = keeper(instance, story)
        instance.kill()
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        cay.wait_until(lambda: all(leaks.processes().get(pid, ("", "Z"))[1] == "Z" for pid in pids), 30, "the keeper is dead")
        thread.join(60)
        equal(result, [False])
        instance.start()
        equal(story.left(), "lost")
    told(tmp, use, CAY_FAULT="sandbox.suspend.saved=hold")


@require("root", "cgroup2")
def test_kill_the_keeper_while_resuming(tmp):
    killed_outside(tmp, "sandbox.resume.held", keeper, ("suspended", "running", "lost"))


@require("root", "cgroup2")
def test_kill_the_template_while_resuming(tmp):
    killed_outside(tmp, "sandbox.resume.loaded", template, ("suspended",))


def suspended(story):
    """Suspend it; the server says so."""
    story.box.post(f"/v1/sandboxes/{story.id}/suspend")
    equal(story.state(), "suspended")


@require("root", "cgroup2")
def test_the_catalogue_cannot_take_that_it_is_suspended(tmp):
    """Its processes are on disk and nowhere else: it is suspended for this server, for the next one, and goes on."""
    def use(instance, story):
        suspended(story)
        instance.kill()
        instance.start(CAY_FAULT="sandbox.suspend.before_commit=error")
        equal(story.state(), "suspended")
        story.box.post(f"/v1/sandboxes/{story.id}/resume")
        story.count()
        suspended(story)
        story.box.post(f"/v1/sandboxes/{story.id}/resume")
        story.count()
        equal(story.left(), "running")
    told(tmp, use, CAY_FAULT="sandbox.suspend.before_commit=error")


def back_while_suspended(tmp, fault, after, happened):
    """A suspended sandbox goes back to its files as they were before anything was counted; after(instance, story) something has failed, which @happened, or has not."""
    def use(instance, story):
        snapshot = instance.post(f"/v1/sandboxes/{story.id}/snapshots", {"files_only": True})["id"]
        story.count()
        suspended(story)
        raises(Exception, instance.post, f"/v1/sandboxes/{story.id}/rewind", {"snapshot": snapshot})
        after(instance)
        if not happened:
            equal(story.state(), "suspended")
            story.box.post(f"/v1/sandboxes/{story.id}/resume")
            equal(story.left(), "running")
            return
        equal(story.box.wait(story.id, story.run, 20)["status"], "killed")
        equal(story.state(), "stopped")
        story.box.post(f"/v1/sandboxes/{story.id}/start")
        equal(story.box.ok(story.id, "wc -c < /tmp/n").strip(), str(story.n - 1))
        cay.wait_until(lambda: not os.listdir(os.path.join(instance.state, "pool", "memory")), 30, "its memory goes")
    told(tmp, use, CAY_FAULT=fault)


def next_server(instance):
    equal(instance.process.wait(30), -signal.SIGKILL)
    instance.start()


@require("root", "cgroup2")
def test_a_rewind_whose_commit_fails_forgets_no_process(tmp):
    back_while_suspended(tmp, "rewind.commit.before=error", lambda _: None, False)


@require("root", "cgroup2")
def test_a_server_that_dies_before_that_commit_forgets_no_process(tmp):
    back_while_suspended(tmp, "rewind.commit.before", next_server, False)


@require("root", "cgroup2")
def test_a_server_that_dies_behind_that_commit_leaves_no_process(tmp):
    back_while_suspended(tmp, "rewind.commit.after", next_server, True)


@require("root", "cgroup2")
def test_a_server_that_dies_while_it_forgets_leaves_no_process(tmp):
    back_while_suspended(tmp, "sandbox.forget.committed", next_server, True)


def stopped_while_suspended(tmp, fault, after):
    """A suspended sandbox is to be stopped, which fails: it is suspended, and goes on."""
    def use(instance, story):
        suspended(story)
        raises(Exception, story.box.post, f"/v1/sandboxes/{story.id}/stop")
        after(instance)
        equal(story.state(), "suspended")
        story.box.post(f"/v1/sandboxes/{story.id}/resume")
        equal(story.left(), "running")
    told(tmp, use, CAY_FAULT=fault)


@require("root", "cgroup2")
def test_a_stop_whose_commit_fails_forgets_no_process(tmp):
    stopped_while_suspended(tmp, "sandbox.forget.before_commit=error", lambda _: None)


@require("root", "cgroup2")
def test_a_server_that_dies_before_a_stop_is_written_forgets_no_process(tmp):
    stopped_while_suspended(tmp, "sandbox.forget.before_commit", next_server)
