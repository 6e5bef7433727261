# SPDX-License-Identifier: Apache-2.0
"""The first start of a server: whoever happens to need it first does not shape it, and whoever is killed in it leaves nothing that keeps the next one from starting."""

import contextlib
import os
import signal
import subprocess

from lib import cay, leaks
from lib.case import contains, equal, require

SHOW = "ulimit -t; ulimit -v; ulimit -f; ulimit -d; ulimit -s; nice; ionice; grep Cpus_allowed_list /proc/self/status | cut -f2; cat /proc/self/timerslack_ns; uname -m"
IGNORANT = 'exec python3 -c "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); os.execv(sys.argv[1], sys.argv[1:])" '
# A sanitizer wants terabytes of addresses.
ADDRESSES = 1 << 40 if "ASAN_OPTIONS" in os.environ else 16000000
# Of a program that somebody starts with little of everything.
MEAN = f"ulimit -S -t 900; ulimit -S -v {ADDRESSES}; ulimit -S -f 4000000; ulimit -S -d {ADDRESSES}; ulimit -S -s 2048; exec nice -n 7 ionice -c 3 taskset -c 0 setarch linux32 "


def server_of(instance):
    return next((pid for pid, (_, _, name) in leaks.processes().items() if name == "cayd" and f"CAY_STATE={instance.state}\0" in leaks.read(f"/proc/{pid}/environ")), None)


@contextlib.contextmanager
def not_started(tmp, user=None):
    """An instance whose server whatever is run in it starts."""
    instance = cay.Instance(tmp, user)
    try:
        yield instance
    finally:
        pid = server_of(instance)
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            cay.wait_until(lambda: server_of(instance) is None, 30, "end of the server")
        instance.start()  # clears up
        instance.close()


def run(instance, before, *argv, status=0):
    done = instance.popen(["bash", "-c", f'{before}"$@"', "bash", os.path.join(instance.programs, "cay"), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = done.communicate(timeout=60)
    equal(done.returncode, status, err)
    return out.split("\n")


@require("root", "program:ionice")
def test_who_starts_it_does_not_shape_the_sandboxes(tmp):
    with not_started(tmp) as instance:
        first = run(instance, MEAN, "run", "--no-cwd", "--", "bash", "-c", SHOW)
        then = run(instance, "", "run", "--no-cwd", "--", "bash", "-c", SHOW)
        cpus = leaks.read("/proc/1/status").split("Cpus_allowed_list:")[1].split()[0]
        equal(first, ["unlimited", "unlimited", "unlimited", "unlimited", "8192", "0", "none: prio 0", cpus, "50000", os.uname().machine, ""])
        equal(then, first)


@require("root")
def test_whoever_starts_it_may_ignore_ends_of_children_and_block_signals(tmp):
    with not_started(tmp) as instance:
        equal(run(instance, IGNORANT, "run", "--no-cwd", "--", "sh", "-c", "sh -c 'exit 5'; echo $?; grep -E 'SigBlk|SigIgn' /proc/self/status"), ["5", "SigBlk:\t" + 16 * "0", "SigIgn:\t" + 16 * "0", ""])
    with not_started(tmp) as instance:
        server = instance.popen(["bash", "-c", f'{IGNORANT} {instance.programs}/cayd --foreground'], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        instance.wait_answering()
        equal(run(instance, IGNORANT, "run", "--no-cwd", "--", "sh", "-c", "exit 5", status=5), [""])
        server.terminate()
        equal(server.wait(30), 0)


@require("root", "userns", "newuidmap")
def test_what_a_user_may_not_change_is_logged(tmp):
    with cay.ThrowawayUser() as user, not_started(user.pw_dir, user) as instance:
        shown = run(instance, f"ulimit -S -t 900; ulimit -v {ADDRESSES}; nice -n 7 ", "run", "--no-cwd", "--", "bash", "-c", "ulimit -t; ulimit -v; nice")
        equal(shown, ["unlimited", str(ADDRESSES), "7", ""])
        log = leaks.read(os.path.join(instance.run, "cayd.log"))
        contains(log, f"something of whoever started this server holds for it and for all sandboxes (limit of address space: {ADDRESSES << 10})")
        contains(log, "(niceness: 7)")


@require("root")
def test_one_that_is_killed_while_it_makes_the_catalogue_keeps_no_other_from_starting(tmp):
    """At the size at which the kernel ends it for a file that is too large: in the journal, in the file, in its log."""
    for kibibytes in (0, 8, 500, 1000, 1010):
        with not_started(tmp) as instance:
            died = instance.popen(["bash", "-c", f"ulimit -f {kibibytes}; exec {instance.programs}/cayd --foreground"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            assert died.wait(30) != 0, f"it lived with {kibibytes} KiB"
            equal(run(instance, "", "run", "--no-cwd", "--", "echo", "there")[0], "there")
    with not_started(tmp) as instance:
        died = instance.popen([f"{instance.programs}/cayd", "--foreground"], env=instance.environment(CAY_FAULT="cayd.catalogue.made"), stdin=subprocess.DEVNULL)
        equal(died.wait(30), -signal.SIGKILL)
        equal(os.path.exists(f"{instance.state}/cay.db"), False)
        equal(run(instance, "", "run", "--no-cwd", "--", "echo", "there")[0], "there")
        equal([name for name in os.listdir(instance.state) if name.startswith("new.db")], [])


@require("root")
def test_one_that_cannot_have_a_process_says_so(tmp):
    with not_started(tmp) as instance:
        done = subprocess.run([os.path.join(instance.programs, "cayd"), "--background"], env=instance.environment(CAY_FAULT="server.background.fork" + "=error"),
                              stderr=subprocess.PIPE, text=True, check=False)
        equal(done.returncode, 1)
        contains(done.stderr, "start a process")
