# SPDX-License-Identifier: Apache-2.0
"""Programs whose own files are replaced while they run, as a package manager does it: they go on with what they have, here as there. In detail: objects/gone.c."""

import os
import sys

from lib.case import equal, require

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)
from forking import ask, fork_live, put, put_file, rootless, start  # noqa: E402
from suspending import there_and_back, through_suspend_and_rewind  # noqa: E402
from test_objects import PROGRAMS, begin, check  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")

# Each file that it maps, its own program first of all: a copy is put in its place.
REPLACE = """set -e
for file in $(sed -n 's|.* \\(/[^ ]*\\)$|\\1|p' /proc/%d/maps | sort -u); do
    cp --preserve=mode "$file" "$file.dpkg-new"
    mv "$file.dpkg-new" "$file"
done
readlink /proc/%d/exe"""

SERVER = """
import ctypes.util, json, os, sqlite3, ssl, sys
table = sqlite3.connect(":memory:")
table.execute("create table words (word)")
def remember(word):
    table.execute("insert into words values (?)", (word,))
    return [w for w, in table.execute("select word from words")]
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
"""


# Maps a file; tells its first bytes as it has them, and how its name is shown.
MAPS = """
import mmap, sys
with open(sys.argv[1], "rb") as file:
    held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE)
print("ready", flush=True)
for line in sys.stdin:
    print(held[:5], [each.endswith(" (deleted)\\n") for each in open("/proc/self/maps") if "/common-licenses/" in each], flush=True)
"""


def replaced(instance, box):
    put(instance, box, "/tmp/server.py", SERVER)
    run = start(instance, box, "/usr/bin/python3", "/tmp/server.py")
    pid = int(ask(instance, box, run, "os.getpid()"))
    equal(ask(instance, box, run, "remember('before')"), '["before"]\n')
    program = instance.ok(box, REPLACE % (pid, pid)).strip()
    assert program.endswith(" (deleted)"), program
    equal(instance.json("doctor", box)["findings"], [])
    return run


def goes_on(instance, box, run):
    """Also what it loads only now, and itself once more."""
    fork = fork_live(instance, box)[0]
    again = fork_live(instance, fork)[0]
    for one in (again, fork, box):
        equal(ask(instance, one, run, f"remember('{one}')"), f'["before", "{one}"]\n')
        equal(ask(instance, one, run, "len(ssl.create_default_context().get_ciphers()) > 0"), "true\n")
        equal(ask(instance, one, run, "__import__('decimal').Decimal('0.1') + 1 > 1"), "true\n")
        equal(ask(instance, one, run, "__import__('subprocess').check_output(['/proc/self/exe', '-c', 'print(6 * 7)'], text=True)"), '"42\\n"\n')
    for one in (again, fork):
        instance.remove(one)


@require(*NEEDS)
def test_an_interpreter_and_its_libraries(instance):
    with instance.sandbox() as box:
        run = replaced(instance, box)
        goes_on(instance, box, run)
        there_and_back(instance, box)
        equal(ask(instance, box, run, "remember('after')"), f'["before", "{box}", "after"]\n')


@require(*NEEDS)
def test_of_the_same_name_each_keeps_the_file_that_it_has(instance):
    """The one that has been replaced, and the one that has come into its place; whoever of them is looked at first."""
    file = "/usr/share/common-licenses/BSD"
    with instance.sandbox() as box:
        before = instance.ok(box, f"head -c 5 {file}").encode()
        runs = []
        for word, count in ((before, 2), (b"later", 2), (b"least", 1)):
            if word != before:
                instance.ok(box, f"echo {word.decode()} > {file}.new; mv {file}.new {file}")
            for _ in range(count):
                runs.append((word, word == b"least", start(instance, box, "/usr/bin/python3", "-c", MAPS, file)))
        fork = fork_live(instance, box)[0]
        for word, is_there, run in runs:
            equal(ask(instance, fork, run, "?"), f"{word} {[not is_there]}\n")
            assert ask(instance, box, run, "?").startswith(str(word))
        instance.remove(fork)


@require(*NEEDS, "userns", "newuidmap")
def test_rootless(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        run = start(instance, box, put_file(instance, box, os.path.join(PROGRAMS, "object_gone"), "/var/tmp/object_gone"))
        equal(instance.json("doctor", box)["findings"], [])
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            check(instance, one, run)
        instance.remove(fork)


@require(*NEEDS)
def test_through_suspend_and_rewind(instance):
    with instance.sandbox() as box:
        run = begin(instance, box, "gone")
        through_suspend_and_rewind(instance, box, lambda: check(instance, box, run))
