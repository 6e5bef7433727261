# SPDX-License-Identifier: Apache-2.0
"""Dense memory, which is gathered into huge pages before a capture stops anybody: it is of one instant, and what relatives share they go on sharing."""

import os
import sys

from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live  # noqa: E402
from test_live_programs import put, start  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")

# One thread writes a rising number into all pages, first to last, without end: at any instant each page holds its last number or the one before, and no page a
# younger one than a page before it.
WRITER = """
import mmap, sys, threading
SIZE = 24 << 20
m = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
lock, rounds = threading.Lock(), 0
def write(at, n):
    m[at:at + 8] = n.to_bytes(8, "little")
for at in range(0, SIZE, 4096):
    write(at, 0)
def work():
    global rounds
    while True:
        for at in range(0, SIZE, 4096):
            with lock:
                write(at, rounds + 1)
        rounds += 1
threading.Thread(target=work, daemon=True).start()
def check():
    with lock:
        numbers = [int.from_bytes(m[at:at + 8], "little") for at in range(0, SIZE, 4096)]
    return numbers == sorted(numbers, reverse=True) and numbers[0] - numbers[-1] in (0, 1)
def goes_on():
    before = rounds
    while rounds < before + 2: pass
    return True
print("ready", flush=True)
for line in sys.stdin:
    print(check(), goes_on(), check(), flush=True)
"""

RELATIVES = """
import mmap, os, signal, sys
SIZE = 16 << 20
m = mmap.mmap(-1, SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, SIZE, 4096):
    m[at:at + 8] = (at + 1).to_bytes(8, "little")
child = os.fork()
if child == 0:
    while True: signal.pause()
def shared_kib(pid):
    with open(f"/proc/{pid}/smaps_rollup") as f:
        return sum(int(line.split()[1]) for line in f if line.startswith("Shared_Dirty:"))
def whole():
    return all(int.from_bytes(m[at:at + 8], "little") == at + 1 for at in range(0, SIZE, 4096))
print("ready", flush=True)
for line in sys.stdin:
    print(whole() if line == "whole\\n" else shared_kib("self") >= SIZE >> 10 and shared_kib(child) >= SIZE >> 10, flush=True)
"""


def forked_again_and_again(instance, program, question, answer):
    """Three times a fork; it and the source answer so. Gives the sandbox and the exec after each."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/program.py", program)
        run = start(instance, box, "/usr/bin/python3", "/tmp/program.py")
        for _ in range(3):
            fork = fork_live(instance, box)[0]
            for one in (fork, box):
                equal(ask(instance, one, run, question), answer)
            yield box, run
            instance.remove(fork)


@require(*NEEDS)
def test_memory_written_while_it_is_gathered_is_of_one_instant(instance):
    equal(len(list(forked_again_and_again(instance, WRITER, "check", "True True True\n"))), 3)


@require(*NEEDS)
def test_relatives_go_on_sharing(instance):
    for box, run in forked_again_and_again(instance, RELATIVES, "whole", "True\n"):
        equal(ask(instance, box, run, "shared"), "True\n")


def own_kib(pid, begin, end):
    """What only the process has of its memory from @begin to @end."""
    own, inside = 0, False
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
        for line in file:
            word = line.split()[0]
            if not word.endswith(":"):
                first, last = (int(text, 16) for text in word.split("-"))
                inside = first < end and begin < last
            elif inside and word == "Private_Dirty:":
                own += int(line.split()[1])
    return own


def pid_of(instance, box, run):
    return instance.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["pid"]


def own_data_kib(instance, box, run):
    """(size, what only it has) of the data of the program of @run."""
    pid = pid_of(instance, box, run)
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        begin, end = (int(word) for word in file.read().rsplit(")", 1)[1].split()[42:44])
    return (end - begin) >> 10, own_kib(pid, begin, end)


def closed_by_the_linker(pid, library):
    """(begin, end) of what the linker has relocated of a library and made read-only: the read-only mapping of which the process has changed most."""
    most, found, here = 0, None, None
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            if not words[0].endswith(":"):
                here = [int(text, 16) for text in words[0].split("-")] if words[1] == "r--p" and library in line else None
            elif here is not None and words[0] == "Anonymous:" and int(words[1]) > most:
                most, found = int(words[1]), here
    return found


@require(*NEEDS)
def test_data_of_a_program_is_shared_until_it_is_written(instance):
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", "print('ready', flush=True); print(eval(input()), flush=True)")
        snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})["id"]
        fork = instance.post(f"/v1/snapshots/{snapshot}/fork", {})["sandboxes"][0]["id"]
        size, changed = own_data_kib(instance, box, run)
        if changed < size / 2:
            raise AssertionError(f"of {size} KiB it has changed {changed}: that shows nothing")
        _, own = own_data_kib(instance, fork, run)
        # a few pages in a row are copied: of Python 3.11 less than a quarter, of 3.13 half
        if own > changed * 2 / 3:
            raise AssertionError(f"of {changed} KiB that were changed the fork has {own} for itself")
        equal(ask(instance, fork, run, "6 * 7"), "42\n")
        instance.remove(fork)
        instance.call("DELETE", f"/v1/snapshots/{snapshot}")


@require(*NEEDS)
def test_what_the_linker_has_closed_is_shared(instance):
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", "import ssl; print('ready', flush=True)\nwhile True: print(eval(input()), flush=True)")
        begin, end = closed_by_the_linker(pid_of(instance, box, run), "libcrypto")
        own = own_kib(pid_of(instance, box, run), begin, end)
        if own < 200:
            raise AssertionError(f"the source has {own} KiB of it: that shows nothing")
        snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})["id"]
        fork = instance.post(f"/v1/snapshots/{snapshot}/fork", {})["sandboxes"][0]["id"]
        own = own_kib(pid_of(instance, fork, run), begin, end)
        if own > 50:
            raise AssertionError(f"the fork has {own} KiB for itself")
        equal(ask(instance, fork, run, "len(ssl.create_default_context().get_ciphers()) > 0"), "True\n")
        again = fork_live(instance, fork)[0]
        equal(ask(instance, again, run, "len(ssl.create_default_context().get_ciphers()) > 0"), "True\n")
        instance.remove(again)
        instance.remove(fork)
        instance.call("DELETE", f"/v1/snapshots/{snapshot}")
