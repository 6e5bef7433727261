# SPDX-License-Identifier: Apache-2.0
"""Programs at a terminal, forked live: a shell with jobs, a line that is half typed. (tmux with an editor open: test_live_programs.py.)"""

import os
import sys

from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live, say, wait_output, wait_until_wrote  # noqa: E402

TIMEOUT = 90
NEEDS = ("root", "cgroup2")
SHELL = ("/bin/bash", "--norc", "--noprofile", "-i")
# says that it runs, and that it goes on; ends by the signal
FOREGROUND = ("/usr/bin/python3 -c 'import os, signal as s; s.signal(s.SIGINT, s.SIG_DFL); s.signal(s.SIGCONT, lambda *a: os.write(1, b\"b\" b\"ack\\n\")); "
              "os.write(1, b\"run\" b\"ning\\n\"); [s.pause() for _ in iter(int, 1)]'")


def at_terminal(instance, box, *argv, rows=24, columns=80, env=()):
    return instance.exec(box, *argv, tty={"rows": rows, "columns": columns}, stdin=True, env=dict(env))


def type_in(instance, box, run, text, until):
    """Type @text and give what the terminal shows from then on, up to @until."""
    start = len(instance.output(box, run))
    say(instance, box, run, text)
    return wait_until_wrote(instance, box, run, lambda shown: until in shown, start, 15)


def shell(instance, box):
    run = at_terminal(instance, box, *SHELL, rows=33, columns=101)
    type_in(instance, box, run, "PS1='prom''pt> '\n", b"prompt> ")
    return run


@require(*NEEDS)
def test_a_shell_at_a_terminal(instance):
    """Size, job control, the controlling terminal and its foreground group are the fork's own, and its exec can be attached to."""
    with instance.sandbox() as box:
        run = shell(instance, box)
        type_in(instance, box, run, f"x=before; sleep 1000 & {FOREGROUND}\n", b"running\r\n")
        line = [box]
        for _ in range(2):
            line += fork_live(instance, line[-1])
        for i, one in enumerate(reversed(line)):
            contains(type_in(instance, one, run, "\x03", b"prompt> "), b"^C")
            shown = type_in(instance, one, run, f"echo $x-$?-{i} $(jobs -r | wc -l) $(tty) $(stty size) | tr a-z A-Z; : > /dev/tty\n", b"prompt> ")
            contains(shown, f"BEFORE-130-{i} 1 /DEV/PTS/0 33 101".encode())
            type_in(instance, one, run, FOREGROUND + "\n", b"running\r\n")
            contains(type_in(instance, one, run, "\x1a", b"prompt> "), b"Stopped")
            type_in(instance, one, run, "fg %2\n", b"back\r\n")
            type_in(instance, one, run, "\x03", b"prompt> ")
            say(instance, one, run, "exit 7\n")
            status = instance.wait(one, run, 20)
            equal((status["status"], status.get("code")), ("exited", 7))
        for one in line[1:]:
            instance.remove(one)


@require(*NEEDS)
def test_what_was_typed_and_not_read(instance):
    """Two lines and the beginning of a third wait in the terminal; in each world the third is edited and ended differently."""
    with instance.sandbox() as box:
        run = at_terminal(instance, box, "/usr/bin/python3", "-c",
                          "import signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])\nprint('ready', flush=True)\n"
                          "signal.sigwait([signal.SIGUSR1])\nfor line in sys.stdin: print('got', repr(line), flush=True)")
        wait_output(instance, box, run, b"ready\r\n")
        type_in(instance, box, run, "one\ntwo\nthree", b"three")
        line = [box]
        for _ in range(2):
            line += fork_live(instance, line[-1])
        for i, one in enumerate(reversed(line)):
            before = len(instance.output(one, run))
            instance.ok(one, "kill -USR1 $(pidof python3)")
            wait_output(instance, one, run, b"got 'two\\n'\r\n", before)
            shown = type_in(instance, one, run, f"\x7f\x7f-{i}\n", f"got 'thr-{i}\\n'\r\n".encode())
            equal(shown.count(b"got"), 1)
            say(instance, one, run, "\x04")
            equal(instance.wait(one, run, 20).get("code"), 0)
        for one in line[1:]:
            instance.remove(one)
