# SPDX-License-Identifier: Apache-2.0
"""Kernel objects through a live fork, one program each (objects/): it builds the state, is forked, and checks itself in the source and in the fork."""

import contextlib
import glob
import os

import sys

from lib import leaks
from lib.case import contains, equal, raises, require, timeout
from lib.cay import ApiError, BUILD, Instance

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put_file, rootless, say, start, wait_output  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 40
PROGRAMS = os.path.join(BUILD, "tests", "checkpoint")


def begin(instance, box, name, folder="/usr/local/bin"):
    """Start object @name in @box; return its exec once it says that it is ready."""
    put_file(instance, box, os.path.join(PROGRAMS, "object_" + name), f"{folder}/object_{name}")
    run = instance.exec(box, f"{folder}/object_{name}", stdin=True)
    wait_output(instance, box, run, b"ready\n")
    return run


def check(instance, box, run):
    """Tell it to check itself; it must find everything fine."""
    say(instance, box, run, "check\n")
    status = instance.wait(box, run, 15)
    said = instance.output(box, run).decode()
    equal((status["status"], status.get("code"), said), ("exited", 0, "ready\nfine\n"))


def both_go_on(instance, name, folder="/usr/local/bin"):
    """The source, its fork, and a fork of the fork: each finds what the source has built."""
    with instance.sandbox() as box:
        run = begin(instance, box, name, folder)
        line = [box]
        for _ in range(2):
            line += fork_live(instance, line[-1])
        for one in reversed(line):
            check(instance, one, run)
        for one in line[1:]:
            instance.remove(one)


def test_a_program_for_every_case():
    have = sorted(os.path.basename(p)[len("object_"):] for p in glob.glob(PROGRAMS + "/object_*") if not p.endswith(".p"))
    tested = sorted(n[len("test_object_"):] for n in globals() if n.startswith("test_object_"))
    equal(have, tested)


@require("root", "cgroup2")
@timeout(10 * TIMEOUT)
def test_with_what_linux_6_1_has(tmp):
    """What newer kernels tell, or do at once, has a way there too: pages one by one, semaphores that are tried, files that have a name for an instant, numbers without handles."""
    with contextlib.closing(Instance(tmp, env={"CAY_WITHOUT": "all"}).start()) as instance:
        for name in ("memory", "relatives", "gone", "called", "events", "notify", "files", "modes", "attributes", "sparse"):
            both_go_on(instance, name)
        with instance.sandbox() as box:
            run = begin(instance, box, "memory")
            there_and_back(instance, box)
            check(instance, box, run)


@require("root", "cgroup2")
def test_object_accounts(instance):
    both_go_on(instance, "accounts")


@require("root", "cgroup2")
def test_accounts_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "accounts")
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_accounts_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "accounts", "/tmp")
        for one in (fork_live(instance, box)[0], box):
            check(instance, one, run)


@require("root", "cgroup2")
def test_object_advice(instance):
    both_go_on(instance, "advice")


@require("root", "cgroup2")
def test_object_attributes(instance):
    both_go_on(instance, "attributes")


@require("root", "cgroup2")
def test_object_backlogs(instance):
    both_go_on(instance, "backlogs")


@require("root", "cgroup2")
def test_object_bare(instance):
    both_go_on(instance, "bare")


@require("root", "cgroup2")
def test_object_called(instance):
    both_go_on(instance, "called")


@require("root", "cgroup2")
def test_called_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "called")
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_called_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "called", "/tmp")


@require("root", "cgroup2")
def test_object_calls(instance):
    both_go_on(instance, "calls")


@require("root", "cgroup2")
def test_calls_that_were_stopped_three_times(instance):
    """The kernel takes up a call with another number after a stop: later forks of the same source know which it was."""
    with instance.sandbox() as box:
        run = begin(instance, box, "calls")
        forks = [fork_live(instance, box)[0] for _ in range(3)]
        for one in reversed([box] + forks):
            check(instance, one, run)
        for one in forks:
            instance.remove(one)


@require("root", "cgroup2")
def test_object_closed(instance):
    both_go_on(instance, "closed")


@require("root", "cgroup2")
def test_who_is_closed_is_suspended_again(instance):
    """What was resumed belongs to the template's namespace, as what was forked does."""
    with instance.sandbox() as box:
        run = begin(instance, box, "closed")
        for _ in range(2):
            there_and_back(instance, box)
        fork = fork_live(instance, box)[0]
        name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        check(instance, fork, run)
        check(instance, box, run)
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
        there_and_back(instance, box)
        check(instance, box, run)
        instance.remove(fork)
        instance.call("DELETE", f"/v1/snapshots/{name}")


@require("root", "userns", "newuidmap")
def test_owners_names_pipes_screens_rootless(tmp):
    with rootless(tmp) as instance:
        for name in ("screens", "owners", "names", "pipes"):
            both_go_on(instance, name, "/tmp")


@require("root", "cgroup2", "ping_sockets")
def test_pings_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "pings")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_robust_locks_to_disk_and_back(instance):
    """Who is suspended has not died: what it holds in a file is still its own."""
    with instance.sandbox() as box:
        run = begin(instance, box, "robust")
        for _ in range(2):
            there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_robust_locks_when_a_suspension_fails(fresh):
    fresh.stop()
    fresh.start(CAY_FAULT="memory.save.chunk=error")
    with fresh.sandbox() as box:
        run = begin(fresh, box, "robust")
        raises(ApiError, fresh.post, f"/v1/sandboxes/{box}/suspend")
        check(fresh, box, run)


@require("root", "userns", "newuidmap")
def test_robust_locks_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "robust", "/tmp")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap", "ping_sockets")
def test_pings_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "pings", "/tmp")


@require("root", "userns", "newuidmap")
def test_who_is_closed_rootless(tmp):
    """What a fork has made nobody but the host's root may look at: told by name, and in advance."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "closed", "/tmp")
        fork = fork_live(instance, box)[0]
        error = raises(ApiError, fork_live, instance, fork)
        equal(error.code, "unsupported")
        contains(error.message, "(object_closed): it is not dumpable")
        contains(instance.cay("doctor", fork, want=1).stdout, "(object_closed): it is not dumpable")
        for one in (fork, box):
            check(instance, one, run)


# A child that has no memory any more, and is on its way for a while: queues of inotify are long in closing.
ENDING = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
def end():
    for _ in range(60):
        libc.inotify_add_watch(libc.inotify_init(), b"/tmp", 2)
    os._exit(0)
print("ready", flush=True)
for _ in sys.stdin:
    child = os.fork() or end()
    while open(f"/proc/{child}/statm").read().split()[0] != "0":
        pass
    print("ends", flush=True)
    os.waitpid(child, 0)
"""


@require("root", "userns", "newuidmap")
def test_who_is_ending_is_not_closed_rootless(tmp):
    """The files of such a process in /proc are the host's root's, too."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", ENDING)
        for _ in range(3):
            equal(ask(instance, box, run, "end"), "ends\n")
            instance.remove(fork_live(instance, box)[0])
        equal(ask(instance, box, run, "end"), "ends\n")
        equal(instance.cay("doctor", box).returncode, 0)


@require("root", "cgroup2")
def test_object_creds(instance):
    both_go_on(instance, "creds")


@require("root", "cgroup2")
def test_object_datagrams(instance):
    both_go_on(instance, "datagrams")


@timeout(180)
@require("root", "cgroup2")
def test_object_deep(instance):
    """It is not forked as well: that takes as long again, by the same way."""
    with instance.sandbox() as box:
        run = begin(instance, box, "deep")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_droppable(instance):
    both_go_on(instance, "droppable")


@require("root", "cgroup2")
def test_droppable_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "droppable")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_droppable_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "droppable", "/tmp")


@require("root", "cgroup2")
def test_object_ended(instance):
    both_go_on(instance, "ended")


@require("root", "userns", "newuidmap")
def test_ended_to_disk_and_back_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "ended", "/tmp")
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_ends(instance):
    both_go_on(instance, "ends")


@require("root", "cgroup2")
def test_ends_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "ends")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_ends_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "ends", "/tmp")


@require("root", "cgroup2")
def test_object_events(instance):
    both_go_on(instance, "events")


@require("root", "cgroup2")
def test_object_fifos(instance):
    both_go_on(instance, "fifos")


@require("root", "cgroup2")
def test_object_files(instance):
    both_go_on(instance, "files")


@require("root", "cgroup2")
def test_object_filters(instance):
    both_go_on(instance, "filters")


@require("root", "cgroup2")
def test_object_gone(instance):
    both_go_on(instance, "gone")


@require("root", "cgroup2", "timer_ids")
def test_object_high_timers(instance):
    both_go_on(instance, "high_timers")


@require("root", "userns", "newuidmap", "timer_ids")
def test_high_timers_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "high_timers", "/tmp")


@require("root", "cgroup2")
def test_timers_that_are_counted_up_to(tmp):
    with contextlib.closing(Instance(tmp, env={"CAY_WITHOUT": "timer_ids"}).start()) as instance:
        both_go_on(instance, "timers")


@require("root", "cgroup2")
def test_timers_that_are_out_of_reach(tmp):
    """Before Linux 6.15 a number is reached by counting. Refused by name, and told in advance."""
    with contextlib.closing(Instance(tmp, env={"CAY_WITHOUT": "timer_ids"}).start()) as instance, instance.sandbox() as box:
        run = begin(instance, box, "high_timers")
        says = "has too high a number (above 1048576, before Linux 6.15)"
        for verb in ("fork", "suspend"):
            error = raises(ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}")
            contains(error.message, "(object_high_tim): its POSIX timer 11000")
            contains(error.message, says)
            equal(error.code, "unsupported")
        contains(instance.cay("doctor", box, check=False).stdout, says)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_jail(instance):
    both_go_on(instance, "jail")


@require("root", "cgroup2")
def test_object_groups(instance):
    both_go_on(instance, "groups")


@require("root", "userns", "newuidmap")
def test_groups_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "groups", "/tmp")


@require("root", "cgroup2")
def test_object_limits(instance):
    both_go_on(instance, "limits")


@require("root", "cgroup2")
def test_calls_with_a_limit_that_are_only_looked_at(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "limits")
        for _ in range(3):
            equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        check(instance, box, run)


def goes_on_behind_a_pause(instance, name, folder="/usr/local/bin"):
    with instance.sandbox() as box:
        run = begin(instance, box, name, folder)
        for _ in range(2):
            equal(instance.post(f"/v1/sandboxes/{box}/pause")["state"], "paused")
            equal(instance.post(f"/v1/sandboxes/{box}/resume")["state"], "running")
        check(instance, box, run)


@require("root", "cgroup2")
def test_calls_behind_a_pause(instance):
    """It is no signal: whoever waits goes on waiting, also in calls that the kernel does not make again."""
    for name in ("calls", "limits"):
        goes_on_behind_a_pause(instance, name)


@require("root", "userns", "newuidmap")
def test_calls_behind_a_pause_rootless(tmp):
    with rootless(tmp) as instance:
        for name in ("calls", "limits"):
            goes_on_behind_a_pause(instance, name, "/tmp")


@require("root", "cgroup2")
def test_object_locks(instance):
    both_go_on(instance, "locks")


@require("root", "cgroup2")
def test_object_memory(instance):
    both_go_on(instance, "memory")


@require("root", "cgroup2")
def test_object_modes(instance):
    both_go_on(instance, "modes")


@require("root", "userns", "newuidmap")
def test_modes_rootless(tmp):
    """Behind a fork nobody who has changed its user is captured again there: one fork."""
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "modes", "/tmp")
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            check(instance, one, run)
        instance.remove(fork)


@require("root", "cgroup2")
def test_object_names(instance):
    both_go_on(instance, "names")


@require("root", "userns", "newuidmap")
def test_names_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "names", "/tmp")


@require("root", "cgroup2")
def test_object_netlink(instance):
    both_go_on(instance, "netlink")


@require("root", "cgroup2")
def test_object_notify(instance):
    both_go_on(instance, "notify")


@require("root", "cgroup2")
def test_object_options(instance):
    both_go_on(instance, "options")


@require("root", "cgroup2")
def test_options_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "options")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_options_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "options", "/tmp")


@require("root", "cgroup2")
def test_object_owners(instance):
    both_go_on(instance, "owners")


@require("root", "cgroup2")
def test_object_packet_filters(instance):
    both_go_on(instance, "packet_filters")


@require("root", "userns", "newuidmap")
def test_packet_filters_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "packet_filters", "/tmp")


@require("root", "cgroup2")
def test_object_passed(instance):
    both_go_on(instance, "passed")


@require("root", "cgroup2")
def test_object_paths(instance):
    both_go_on(instance, "paths")


@require("root", "userns", "newuidmap")
def test_paths_to_disk_and_back_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "paths", "/tmp")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_paths_rootless(tmp):
    """One of the files that are listed is open to be written: it is copied up in the fork, whose directory is read on all the same."""
    with rootless(tmp) as instance:
        both_go_on(instance, "paths", "/tmp")


@require("root", "cgroup2", "ping_sockets")
def test_object_pings(instance):
    both_go_on(instance, "pings")


@require("root", "cgroup2")
def test_object_pipes(instance):
    both_go_on(instance, "pipes")


PIPES = """
import fcntl, os, sys
pipes = [os.pipe() for _ in range(400)]
os.mkfifo("/tmp/fifo")
fifo = os.open("/tmp/fifo", os.O_RDWR)
for _, end in pipes + [(fifo, fifo)]:
    os.write(end, b"x" * 5000)
def sizes():
    return sorted({fcntl.fcntl(end, fcntl.F_GETPIPE_SZ) for end, _ in pipes})
def read(n):
    return {len(os.read(end, n + 1)) for end, _ in pipes + [(fifo, fifo)]} == {n}
print("ready", flush=True)
for line in sys.stdin: print(eval(line), flush=True)
"""


@require("root", "userns", "newuidmap")
def test_more_pipes_than_a_user_may_have_large_rootless(tmp):
    """Those of all his sandboxes count. Behind pipe-user-pages-soft the kernel gives smaller ones: in a fork as to a program that makes some itself, as long as what waits has room."""
    with open("/proc/sys/fs/pipe-user-pages-soft", encoding="ascii") as f:
        equal(int(f.read()), 16384)  # the kernel's own; 401 have 6416
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", PIPES)
        forks = [fork_live(instance, box)[0]]
        # as many as there may be, and some; what waits in the last one has no room then
        equal(ask(instance, box, run, "os.write(pipes[-1][1], b'x' * 20000)"), "20000\n")
        contains(raises(ApiError, fork_live, instance, box).message, "size a pipe")
        equal(ask(instance, box, run, "len(os.read(pipes[-1][0], 20000))"), "20000\n")
        forks += [fork_live(instance, box)[0] for _ in range(2)]
        equal([ask(instance, one, run, "sizes()") for one in [box] + forks], 2 * ["[65536]\n"] + ["[8192, 65536]\n", "[8192]\n"])
        equal(ask(instance, box, run, "os.write(pipes[-1][1], b'x' * 20000)"), "20000\n")
        contains(raises(ApiError, fork_live, instance, box).message, "is a pipe in which more waits than fits into a new one of this user")
        equal(ask(instance, box, run, "len(os.read(pipes[-1][0], 20000))"), "20000\n")
        for one in [box] + forks:
            equal(ask(instance, one, run, "read(5000)"), "True\n")
        for one in forks:
            instance.remove(one)


@require("root", "cgroup2")
def test_object_reapers(instance):
    both_go_on(instance, "reapers")


@require("root", "cgroup2")
def test_object_registers(instance):
    both_go_on(instance, "registers")


@require("root", "cgroup2")
def test_object_relatives(instance):
    both_go_on(instance, "relatives")


@require("root", "cgroup2")
def test_relatives_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "relatives")
        for _ in range(2):
            there_and_back(instance, box)
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            check(instance, one, run)
        instance.remove(fork)


@require("root", "userns", "newuidmap")
def test_relatives_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "relatives", "/tmp")


@require("root", "cgroup2")
def test_object_removed(instance):
    both_go_on(instance, "removed")


@require("root", "userns", "newuidmap")
def test_removed_to_disk_and_back_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "removed", "/tmp")
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_reopened(instance):
    both_go_on(instance, "reopened")


@require("root", "cgroup2")
def test_object_robust(instance):
    both_go_on(instance, "robust")


@require("root", "cgroup2")
def test_object_semaphores(instance):
    both_go_on(instance, "semaphores")


@require("root", "userns", "newuidmap")
def test_semaphores_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "semaphores", "/tmp")


@require("root", "userns", "newuidmap")
def test_reopened_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "reopened", "/tmp")


@require("root", "cgroup2")
def test_reopened_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "reopened")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_shared_ports(instance):
    both_go_on(instance, "shared_ports")


@require("root", "userns", "newuidmap")
def test_shared_ports_to_disk_and_back_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = begin(instance, box, "shared_ports", "/tmp")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_shm(instance):
    both_go_on(instance, "shm")


@require("root", "cgroup2")
def test_object_shut(instance):
    both_go_on(instance, "shut")


@require("root", "cgroup2")
def test_object_signals(instance):
    both_go_on(instance, "signals")


@require("root", "cgroup2")
def test_object_sparse(instance):
    both_go_on(instance, "sparse")


@require("root", "cgroup2")
def test_sparse_memory_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "sparse")
        for _ in range(2):
            there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_sparse_memory_beside_filters(instance):
    """Then nothing is prepared: the processes are stopped before the dumper is executed."""
    with instance.sandbox() as box:
        runs = [begin(instance, box, name) for name in ("sparse", "filters")]
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            for run in runs:
                check(instance, one, run)
        instance.remove(fork)


@require("root", "userns", "newuidmap")
def test_sparse_memory_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "sparse", "/tmp")
        with instance.sandbox() as box:
            run = begin(instance, box, "sparse", "/tmp")
            there_and_back(instance, box)
            check(instance, box, run)


def kept_mib(instance):
    """Memory of all that holds some for snapshots."""
    pids = [pid for name in ("cay-template", "cay-spare") for pid in instance.programs_named(name)]
    return sum(int(line.split()[1]) for pid in pids for line in leaks.read(f"/proc/{pid}/status").splitlines() if line.startswith("RssAnon:")) >> 10


@require("root", "cgroup2")
def test_sparse_memory_in_the_template(fresh):
    """32 MiB are there, of 900. (A template may be ahead of time, with as much again.)"""
    with fresh.sandbox() as box:
        run = begin(fresh, box, "sparse")
        name = fresh.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        kept = kept_mib(fresh)
        equal((kept >= 32, kept < 100), (True, True), f"{kept} MiB")
        fresh.call("DELETE", f"/v1/snapshots/{name}")
        check(fresh, box, run)


@require("root", "cgroup2")
def test_object_stopped(instance):
    both_go_on(instance, "stopped")


@require("root", "cgroup2")
def test_object_storm(instance):
    both_go_on(instance, "storm")


@require("root", "cgroup2")
def test_object_sysv(instance):
    both_go_on(instance, "sysv")


@require("root", "cgroup2")
def test_object_threads(instance):
    both_go_on(instance, "threads")


@require("root", "cgroup2")
def test_object_screens(instance):
    both_go_on(instance, "screens")


@require("root", "cgroup2")
def test_full_screens_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "screens")
        for _ in range(2):
            there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_terminals(instance):
    both_go_on(instance, "terminals")


@require("root", "userns", "newuidmap")
def test_terminals_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "terminals", "/tmp")


@require("root", "cgroup2")
def test_terminals_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "terminals")
        equal(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"], [])
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "cgroup2")
def test_object_timers(instance):
    both_go_on(instance, "timers")


@require("root", "cgroup2")
def test_object_traps(instance):
    both_go_on(instance, "traps")


@require("root", "cgroup2")
def test_object_tree(instance):
    both_go_on(instance, "tree")


@require("root", "cgroup2")
def test_object_twins(instance):
    both_go_on(instance, "twins")


@require("root", "cgroup2")
def test_at_the_limit_of_processes(instance):
    """Copies of the processes do not fit below the limit: the fork is made all the same, and nobody is missing or added."""
    with instance.sandbox(limits={"pids": 16}) as box:
        run, sleepers = begin(instance, box, "twins"), []
        try:
            while True:
                sleepers.append(instance.exec(box, "/bin/sleep", "1000"))
        except ApiError as error:
            equal(error.code, "limit")
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            equal([instance.get(f"/v1/sandboxes/{one}/execs/{s['id']}")["status"] for s in sleepers], [None] * len(sleepers))
            check(instance, one, run)
        instance.remove(fork)


@require("root", "cgroup2")
def test_object_tcp(instance):
    both_go_on(instance, "tcp")


@require("root", "cgroup2")
def test_object_unsent(instance):
    both_go_on(instance, "unsent")


@require("root", "userns", "newuidmap")
def test_unsent_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "unsent", "/tmp")


@require("root", "cgroup2")
def test_object_udp(instance):
    both_go_on(instance, "udp")


@require("root", "cgroup2")
def test_object_unbound(instance):
    both_go_on(instance, "unbound")


@require("root", "cgroup2")
def test_object_unix_sockets(instance):
    both_go_on(instance, "unix_sockets")


@require("root", "cgroup2")
def test_object_vast(instance):
    both_go_on(instance, "vast")


@require("root", "cgroup2")
def test_vast_to_disk_and_back(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "vast")
        there_and_back(instance, box)
        check(instance, box, run)


@require("root", "userns", "newuidmap")
def test_vast_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "vast", "/tmp")


@require("root", "cgroup2")
def test_object_viewers(instance):
    both_go_on(instance, "viewers")


@require("root", "userns", "newuidmap")
def test_viewers_rootless(tmp):
    with rootless(tmp) as instance:
        both_go_on(instance, "viewers", "/tmp")


@require("root", "cgroup2")
def test_object_watches(instance):
    both_go_on(instance, "watches")


# Not everybody can be stopped.
VFORK = """
import ctypes, os
if ctypes.CDLL(None).syscall(56, 0x4000 | 17, 0, 0, 0, 0) == 0: # clone(CLONE_VFORK | SIGCHLD)
    print("ready", flush=True)
    os.read(0, 1)
"""
# Known before any thread has been asked for anything.
UNDO = """
import ctypes, sys
libc = ctypes.CDLL(None)
semaphore = libc.semget(0, 1, 0o1600)
assert semaphore >= 0 and libc.semop(semaphore, ctypes.byref((ctypes.c_short * 3)(0, 1, 0o10000)), 1) == 0
print("ready", flush=True)
sys.stdin.read()
"""
SERVER = """
import socket, sys
server = socket.socket(socket.AF_%s)
server.bind("/tmp/server" if server.family == socket.AF_UNIX else ("127.0.0.1", 0))
server.listen(8)
client = socket.socket(server.family)
client.connect(server.getsockname())
client.send(b"asked")
accepted = None
def accept():
    global accepted
    accepted = server.accept()[0]
    return accepted.recv(5)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def refuses_asked(instance, family):
    """What waits in a connection that nobody has accepted cannot be seen: told by name, and nothing has happened."""
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/server.py <<'END'\n{SERVER % family}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/server.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        error = raises(ApiError, fork_live, instance, box)
        equal(error.code, "busy")
        contains(error.message, "(python3): descriptor 3 is a socket with connections waiting")
        equal(ask(instance, box, run, "accept()"), "b'asked'\n")
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            equal(ask(instance, one, run, "[accepted.send(b'told'), client.recv(4)]"), "[4, b'told']\n")
        instance.remove(fork)


@require("root", "cgroup2")
def test_calls_through_captures_that_are_refused(instance):
    """What was stopped and let go again, soon or late in the capture, has noticed nothing of it."""
    for refused, code in ((VFORK, "busy"), (UNDO, "busy"), (SERVER % "UNIX", "busy")):
        with instance.sandbox() as box:
            before = begin(instance, box, "calls")
            instance.ok(box, f"cat > /tmp/refused.py <<'END'\n{refused}\nEND")
            wait_output(instance, box, instance.exec(box, "/usr/bin/python3", "/tmp/refused.py", stdin=True), b"ready\n")
            behind = begin(instance, box, "calls")
            equal(raises(ApiError, fork_live, instance, box).code, code)
            check(instance, box, before)
            check(instance, box, behind)


@require("root", "cgroup2")
def test_what_waits_to_be_accepted_with_data_unix(instance):
    refuses_asked(instance, "UNIX")


@require("root", "cgroup2")
def test_what_waits_to_be_accepted_with_data_tcp(instance):
    refuses_asked(instance, "INET")


@require("root", "cgroup2")
@timeout(180)
def test_a_fork_of_a_fork_of_a_fork(instance):
    """Every generation is dumped from what a template made, and the oldest still goes on."""
    with instance.sandbox() as box:
        run = begin(instance, box, "threads")
        line = [box]
        for _ in range(3):
            line += fork_live(instance, line[-1])
        for one in reversed(line):
            check(instance, one, run)
        for one in line[1:]:
            instance.remove(one)


@require("root", "cgroup2")
def test_several_at_once(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "memory")
        forks = fork_live(instance, box, 5)
        for one in forks + [box]:
            check(instance, one, run)
        for one in forks:
            instance.remove(one)
