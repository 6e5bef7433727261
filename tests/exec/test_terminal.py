# SPDX-License-Identifier: Apache-2.0
"""cay run -it and cay exec -it give a real terminal: size, job control, raw mode and back."""

import fcntl
import os
import select
import signal
import struct
import subprocess
import termios
import time

from lib import cay, leaks
from lib.case import contains, equal, require
from lib.numbered import process_with_number


def read_until(fd, wanted, seconds=20):
    """What comes from the terminal up to @wanted."""
    text, deadline = b"", time.monotonic() + seconds
    while wanted not in text:
        if not select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"no {wanted!r} in {seconds} s; seen {text!r}")
        try:
            more = os.read(fd, 65536)
        except OSError:
            more = b""
        if not more:
            raise AssertionError(f"the terminal closed before {wanted!r}; seen {text!r}")
        text += more
    return text


def finish(process, fd, seconds=20):
    """Wait for the end of the command while reading what it still writes."""
    deadline = time.monotonic() + seconds
    text = b""
    while True:
        if not select.select([fd], [], [], max(0, deadline - time.monotonic()))[0]:
            raise AssertionError(f"no end in {seconds} s; seen {text!r}")
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        text += more
    os.close(fd)
    process.wait(seconds)
    return text


def test_no_terminal_without_t(instance):
    with instance.sandbox() as box:
        equal(instance.ok(box, "tty || echo none").split()[-1], "none")


def test_the_command_sees_a_terminal_of_our_size(instance):
    with instance.sandbox() as box:
        process, fd = instance.terminal("exec", "-it", box, "--", "sh", "-c", "tty; stty size; exit 5", rows=33, columns=101)
        text = finish(process, fd)
        contains(text, b"/dev/pts/")
        contains(text, b"33 101")
        equal(process.returncode, 5)


def test_a_detached_command_has_the_terminal_that_was_asked_for(instance):
    """-d -it: it waits for who attaches; with -d -i its input does."""
    with instance.sandbox() as box:
        run = instance.cay("exec", "-d", "-it", box, "--", "sh", "-c", "tty; read word; echo got $word; exit 5").stdout.strip()
        process, fd = instance.terminal("attach", "--from", "0", box, run)
        read_until(fd, b"/dev/pts/")
        os.write(fd, b"it\n")
        contains(finish(process, fd), b"got it")
        equal(process.returncode, 5)
        run = instance.cay("exec", "-d", "-i", box, "--", "cat").stdout.strip()
        equal(instance.cay("attach", box, run, stdin="it\n").stdout, "it\n")
        equal(instance.cay("exec", "-d", box, "--", "cat").returncode, 0)


def somebody_types(instance, *command):
    """A line, at the terminal of @command, which is taken; then whoever it was is gone."""
    process, fd = instance.terminal(*command)
    read_until(fd, b"ready")
    os.write(fd, b"a-line-of-somebody-else\n")
    read_until(fd, b"got-a-line-of-somebody-else")
    process.kill()
    process.wait()
    os.close(fd)


def test_what_is_typed_for_a_suspended_command_arrives_behind_the_input_of_others(instance):
    """Somebody else has typed to it before: that is not of ours, whether we attached while it ran or while it was suspended."""
    with instance.sandbox() as box:
        run = instance.cay("exec", "-d", "-it", box, "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo got-$x; done").stdout.strip()
        somebody_types(instance, "attach", box, run)
        for when, word in (("before", b"one"), ("while", b"two")):
            if when == "while":
                instance.cay("suspend", box)
            process, fd = instance.terminal("attach", box, run)
            if when == "before":
                read_until(fd, b"got-a-line-of-somebody-else")
                instance.cay("suspend", box)
            read_until(fd, b"leaves it\r\n")
            os.write(fd, word + b"\n")
            instance.cay("resume", box)
            read_until(fd, b"got-" + word)
            process.kill()
            process.wait()
            os.close(fd)


def test_what_is_typed_arrives_behind_the_input_of_an_exec_with_the_same_key(instance):
    """Asked for again by its key it is the same exec, which has had input of its first client."""
    with instance.sandbox() as box:
        wanted = ("exec", "-it", "--idempotency-key", "typed", box, "--", "sh", "-c", "stty -echo; echo ready; while read x; do echo got-$x; done")
        somebody_types(instance, *wanted)
        process, fd = instance.terminal(*wanted)
        read_until(fd, b"got-a-line-of-somebody-else")
        instance.cay("suspend", box)
        read_until(fd, b"leaves it\r\n")
        os.write(fd, b"one\n")
        instance.cay("resume", box)
        read_until(fd, b"got-one")
        process.kill()
        process.wait()
        os.close(fd)


# asks where the cursor is, and shows what comes as an answer to it: an ESC, up to R
ASKS = r"""
import os, sys, tty
tty.setraw(0)
os.write(1, b"<\x1b[31m\x1b[6n\x1b]0;why?\x07>")
while (c := os.read(0, 1)) != b"q":
    os.write(1, b"[" + c.hex().encode() + b"]")
    if c == b"a":
        os.write(1, b"again\x1b[6n.")
"""


def test_what_a_terminal_has_answered_is_not_asked_again(instance):
    """Who attaches sees what was shown before, without what the terminal would answer: the command would take that for typed."""
    shown = b"<\x1b[31m\x1b]0;why?\x07>[62]"
    with instance.sandbox() as box:
        run = instance.cay("exec", "-d", "-it", box, "--", "python3", "-c", ASKS).stdout.strip()
        cay.wait_until(lambda: "why?" in instance.cay("logs", box, run).stdout, 20, "it has asked")  # who reads logs answers nothing
        process, fd = instance.terminal("attach", box, run)
        first = read_until(fd, b">")  # nobody has answered that yet
        contains(first, b"<\x1b[31m\x1b[6n\x1b]0;why?\x07>")
        os.write(fd, b"b")
        read_until(fd, b"[62]")
        process.kill()
        process.wait()
        os.close(fd)
        instance.cay("snapshot", box, "--name", box + "-shown")
        fork = instance.cay("fork", box + "-shown", "--name", box + "-fork").stdout.strip()
        instance.cay("suspend", box)
        away, away_fd = instance.terminal("attach", box, run)
        contains(read_until(away_fd, b"[62]"), shown)
        instance.cay("resume", box)
        os.write(away_fd, b"c")
        read_until(away_fd, b"[63]")
        for name in (box, fork):
            process, fd = instance.terminal("attach", name, run)
            contains(read_until(fd, b"[62]"), shown)
            os.write(fd, b"a")  # what comes from now on is new
            read_until(fd, b"again\x1b[6n.")
            os.write(fd, b"q")
            finish(process, fd)
            equal(process.returncode, 0)
        finish(away, away_fd)
        status, text = instance.at_terminal("attach", fork, run)
        equal(status, 0)
        assert "\x1b[6n" not in text and "\x1b[31m" in text, text
        contains(instance.cay("attach", fork, run).stdout, "\x1b[6n")  # to a pipe all of it goes as it was
        instance.cay("rm", "-f", fork)
        instance.cay("rm", box + "-shown")


def test_an_ended_command_asks_nothing_whoever_comes_to_it(instance):
    """Also where its end is first heard of by the stream: an exec that is asked for again by its key."""
    with instance.sandbox() as box:
        wanted = ("exec", "-i", "--idempotency-key", "ended", box, "--", "printf", r"<\033[31m\033[6n>")
        equal(instance.cay(*wanted).stdout, "<\x1b[31m\x1b[6n>")
        instance.cay("stop", box)  # no keeper says what of it was shown
        equal(instance.at_terminal(*wanted), (0, "<\x1b[31m>"))
        equal(instance.cay(*wanted).stdout, "<\x1b[31m\x1b[6n>")


def test_a_pipe_beside_the_terminal_gets_all_as_it_was(instance):
    """What an ended command has asked is left out of the one of both streams that a terminal shows."""
    with instance.sandbox() as box:
        run = instance.cay("exec", "-d", box, "--", "sh", "-c", r"printf '<\033[6n>'; printf '<\033[5n>' >&2").stdout.strip()
        instance.wait(box, run)
        for shown, piped, left in (("stdout", "stderr", b"<\x1b[5n>"), ("stderr", "stdout", b"<\x1b[6n>")):
            ours, theirs = os.openpty()
            process = instance.popen([os.path.join(instance.programs, "cay"), "attach", box, run], stdin=subprocess.DEVNULL,
                                     **{shown: theirs, piped: subprocess.PIPE})
            os.close(theirs)
            equal(getattr(process, piped).read(), left)
            equal(finish(process, ours), b"<>")
            getattr(process, piped).close()


def test_logs_on_a_terminal_ask_it_nothing(instance):
    with instance.sandbox() as box:
        run = instance.cay("exec", "-d", box, "--", "printf", r"<\033[31m\033[6n>").stdout.strip()
        status, text = instance.at_terminal("logs", "--follow", box, run)
        equal((status, text), (0, "<\x1b[31m>"))
        equal(instance.cay("logs", box, run).stdout, "<\x1b[31m\x1b[6n>")


def test_a_new_size_reaches_the_command(instance):
    with instance.sandbox() as box:
        process, fd = instance.terminal("exec", "-it", box, "--", "bash", "-c",
                                        "trap 'stty size' WINCH; echo ready; while :; do read -t 1 x; [ \"$x\" = q ] && exit; done")
        read_until(fd, b"ready")
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 132, 0, 0))
        read_until(fd, b"44 132")
        os.write(fd, b"q\n")
        finish(process, fd)
        equal(process.returncode, 0)


def test_control_c_goes_to_the_command_not_to_us(instance):
    with instance.sandbox() as box:
        process, fd = instance.terminal("exec", "-it", box, "--", "sh", "-c", "trap 'echo caught; exit 3' INT; echo ready; while :; do read x; done")
        read_until(fd, b"ready")
        os.write(fd, b"\x03")
        read_until(fd, b"caught")
        finish(process, fd)
        equal(process.returncode, 3)


def test_job_control(instance):
    with instance.sandbox() as box:
        process, fd = instance.terminal("exec", "-it", box, "--", "bash", "--norc", "--noprofile", "-i")
        os.write(fd, b"PS1='prom''pt> '\n")  # what is typed is echoed too, and is not the prompt
        read_until(fd, b"prompt> ")
        # it says itself that it goes on: what the shell prints of it may come before it has the terminal. It starts nothing: a
        # process that is stopped between vfork and exec holds its parent, too. By write(2): it may have been stopped in the middle of print()
        os.write(fd, b"/usr/bin/python3 -c 'import os, signal as s; s.signal(s.SIGCONT, lambda *a: os.write(1, b\"ba\" + b\"ck\\n\")); "
                     b"print(\"run\" + \"ning\", flush=True); [s.pause() for _ in iter(int, 1)]'\n")
        read_until(fd, b"running\r\n")
        os.write(fd, b"\x1a")
        read_until(fd, b"Stopped")
        os.write(fd, b"jobs; fg %1\n")
        read_until(fd, b"back\r\n")
        os.write(fd, b"\x03")
        read_until(fd, b"prompt> ")
        os.write(fd, b"exit 4\n")
        finish(process, fd)
        equal(process.returncode, 4)


def test_our_terminal_is_as_it_was(instance):
    with instance.sandbox() as box:
        ours, theirs = os.openpty()
        before = termios.tcgetattr(theirs)
        process = instance.popen([os.path.join(instance.programs, "cay"), "exec", "-it", box, "--", "sh", "-c", "echo hi"],
                                 stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
        read_until(ours, b"hi")
        process.wait(20)
        equal(termios.tcgetattr(theirs), before)
        os.close(ours)
        os.close(theirs)


def test_a_session_of_run(instance):
    process, fd = instance.terminal("run", "-it", "--rm", "--no-cwd", "--", "sh")
    os.write(fd, b"echo $((6*7))\n")
    read_until(fd, b"42")
    os.write(fd, b"exit 8\n")
    finish(process, fd)
    equal(process.returncode, 8)


# The group that has the terminal has ended: its number is anybody's.
GONE = """
import os, signal, sys, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.pause()
while os.getpgid(child) != child: time.sleep(0.01)
os.tcsetpgrp(0, child)
os.kill(child, 9)
os.waitpid(child, 0)
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), os._exit(5)))
print("re" + "ady", os.tcgetpgrp(0) == child, flush=True)
while True: signal.pause()
"""


@require("root")
def test_nobody_outside_is_told_what_a_terminal_s_group_is_that_has_ended(instance):
    """A stop, or whoever ends the command, tells its processes, not who has the number of a group that was there."""
    with instance.sandbox() as box:
        run = instance.exec(box, "python3", "-c", GONE, tty={"rows": 24, "columns": 80}, stdin=True)
        cay.wait_until(lambda: b"ready True" in instance.output(box, run), 20, "its group is gone")
        leader = [pid for pid in instance.own_processes() if "while os.getpgid(child)" in leaks.read(f"/proc/{pid}/cmdline")][0]
        group = int(leaks.read(f"/proc/{leader}/stat").rpartition(")")[2].split()[5])  # tpgid
        stranger = process_with_number(group, "sleep", "1000")
        try:
            instance.post(f"/v1/sandboxes/{box}/execs/{run['id']}/signal", {"signal": 15})
            equal(instance.wait(box, run)["code"], 5)
            equal(os.waitpid(stranger, os.WNOHANG), (0, 0))
        finally:
            os.kill(stranger, signal.SIGKILL)
            os.waitpid(stranger, 0)
