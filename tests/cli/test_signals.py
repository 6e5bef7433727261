# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, Ctrl-Z and their kin, without a terminal inside."""

import os
import signal
import subprocess

from lib.case import contains, equal


def started(instance, tmp, *argv, **more):
    """`cay ARGS` that has printed "ready"."""
    process = instance.popen([os.path.join(instance.programs, "cay"), *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=tmp, env=instance.environment(), **more)
    equal(process.stdout.readline(), b"ready\n")
    return process


def test_an_interrupt_reaches_the_child_that_a_shell_waits_for(instance, tmp):
    process = started(instance, tmp, "run", "--rm", "--", "sh", "-c",
                      "python3 -u -c 'print(\"ready\"); import time; time.sleep(1000)' 2>/dev/null; echo not reached")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    equal((process.returncode, out, err), (130, b"", b""))


def test_a_second_interrupt_kills_what_ignores_the_first(instance, tmp):
    process = started(instance, tmp, "run", "--rm", "--", "python3", "-u", "-c",
                      "import signal; signal.signal(2, lambda *_: print('no')); print('ready')\nwhile True: signal.pause()")
    process.send_signal(signal.SIGINT)
    equal(process.stdout.readline(), b"no\n")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    equal((process.returncode, out), (137, b""))
    contains(err, b"killed, with everything that it started")


def test_a_second_interrupt_kills_the_whole_tree(instance, tmp):
    """Children in sessions of their own, which no terminal's signal reaches, with all streams elsewhere: gone as well."""
    script = ("trap 'echo no' INT; for i in 1 2 3; do setsid sh -c 'trap \"\" INT; echo $$ >> pids; exec sleep 1000' > /dev/null 2>&1 < /dev/null & done; "
              "until [ $(wc -l < pids) = 3 ]; do :; done; echo ready; while :; do sleep 1000 & wait $!; done")
    for verb in ("run", "exec"):
        with instance.sandbox() as box:
            argv = ("exec", "--cwd", "/tmp", box) if verb == "exec" else ("run", "--rm", "--name", "tree", "--cwd", "/tmp")
            process = started(instance, tmp, *argv, "--", "bash", "-c", script)
            process.send_signal(signal.SIGINT)
            equal(process.stdout.readline(), b"no\n")
            process.send_signal(signal.SIGINT)
            equal(process.wait(20), 137)
            if verb == "exec":
                equal(instance.cay("exec", box, "--", "sh", "-c", "ps ax -o args= | grep '[s]leep 1000'", want=1).stdout, "")


def test_stop_and_continue_stop_and_continue_the_command(instance, tmp):
    with instance.sandbox() as box:
        # a job of ours, as of a shell
        process = started(instance, tmp, "exec", box, "--", "sh", "-c", "echo ready; sleep 1; echo done", process_group=0)
        process.send_signal(signal.SIGTSTP)
        equal(os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1]), True)
        # whoever was just being started stops a moment later
        instance.ok(box, "until ps ax -o stat=,args= | grep '^T.*[s]leep 1'; do [ $((n += 1)) -lt 500 ] || exit 1; done")
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=20)
        equal((process.returncode, out), (0, b"done\n"))
