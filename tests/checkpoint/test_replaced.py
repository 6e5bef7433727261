# SPDX-License-Identifier: Apache-2.0
"""Programs whose own files are replaced while they run, as a package manager does it: they go on with what they have, here as there. In detail: objects/gone.c."""

import contextlib
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import contains, equal, raises, require
from lib.cay import ApiError, Instance

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)
from forking import ask, fork_live, put, put_file, rootless, start  # noqa: E402
from suspending import resume, suspend, there_and_back, through_suspend_and_rewind  # noqa: E402
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

# Processes that each map a removed file of holes, so that their children do not.
APART = """
import ctypes, os, sys
size = int(sys.argv[1])
c = ctypes.CDLL(None)
c.mmap.restype = ctypes.c_void_p
c.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
c.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
fd = os.open("/var/tmp/holes", os.O_RDWR | os.O_CREAT)
os.truncate(fd, size)
os.unlink("/var/tmp/holes")
for _ in range(int(sys.argv[2])):
    goes_on, done = os.pipe()
    if os.fork() == 0:
        assert c.madvise(c.mmap(None, size, 1, 2, fd, 0), size, 10) == 0
        os.close(fd)
        os.close(done)
        while True:
            os.read(0, 1)
    os.close(done)
    os.read(goes_on, 1)
    os.close(goes_on)
os.close(fd)
print("ready", flush=True)
os.read(0, 1)
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


# --- on the machine, between the capture and what is made of it ---

# Maps each file as it is told: privately, or to see what others write (letters p, s), and tells what it has of it.
MAPS_ALL = """
import mmap, sys
kinds = {"p": (mmap.MAP_PRIVATE, mmap.PROT_READ), "s": (mmap.MAP_SHARED, mmap.PROT_READ)}
held = []
for arg in sys.argv[1:]:
    flags, prot = kinds[arg[0]]
    with open(arg[1:], "rb") as file:
        held.append(mmap.mmap(file.fileno(), 0, prot=prot, flags=flags))
print("ready", flush=True)
for line in sys.stdin:
    print([bytes(one[:5]) for one in held], flush=True)
"""


def write(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def replace(path, text):
    """As a package manager does it: another file of the name."""
    write(path + ".new", text)
    os.replace(path + ".new", path)


class OnTheMachine:
    """A directory of the machine that is mounted at /m, with a file `data` that a program inside maps."""

    def __init__(self, instance, tmp, mode, how):
        self.instance, self.file = instance, os.path.join(tmp, "m", "data")
        os.makedirs(os.path.dirname(self.file), exist_ok=True)
        os.chmod(tmp, 0o755)
        write(self.file, "first" * 2000)
        self.box = instance.post("/v1/sandboxes", {"mounts": [{"source": os.path.dirname(self.file), "target": "/m", "mode": mode}]})["id"]
        self.run = start(instance, self.box, "/usr/bin/python3", "-c", MAPS_ALL, how + "/m/data")

    def has(self, text, box=None):
        equal(ask(self.instance, box or self.box, self.run, "?"), f"{[text.encode()]}\n")

    def refused(self, verb, **body):
        error = raises(ApiError, lambda: self.instance.post(f"/v1/{verb}", body))
        equal((error.status, error.code), (409, "conflict"))
        contains(str(error), "'/m/data' is not the file any more that a program has mapped")
        return error


@contextlib.contextmanager
def on_the_machine(instance, tmp, mode, how):
    place = OnTheMachine(instance, tmp, mode, how)
    try:
        yield place
    finally:
        instance.remove(place.box)


@require(*NEEDS)
def test_replaced_on_the_machine_while_suspended(instance, tmp):
    """The program has what it had of the old file, and would have the rest of the new one."""
    with on_the_machine(instance, tmp, "cow", "p") as place:
        suspend(instance, place.box)
        os.rename(place.file, place.file + ".old")
        write(place.file, "other" * 2000)
        place.refused(f"sandboxes/{place.box}/resume")
        equal(instance.get(f"/v1/sandboxes/{place.box}")["state"], "suspended")
        os.rename(place.file + ".old", place.file)
        resume(instance, place.box)
        place.has("first")
        suspend(instance, place.box)
        os.truncate(place.file, 10)
        place.refused(f"sandboxes/{place.box}/resume")
        instance.post(f"/v1/sandboxes/{place.box}/resume", {"files_only": True})


@require(*NEEDS)
def test_replaced_on_the_machine_behind_a_snapshot(instance, tmp):
    """Neither forks of it nor a rewind to it; a fork of now has the old one by itself."""
    with on_the_machine(instance, tmp, "cow", "p") as place:
        name = instance.post(f"/v1/sandboxes/{place.box}/snapshots", {"files_only": False})["id"]
        replace(place.file, "other" * 2000)
        place.refused(f"snapshots/{name}/fork")
        place.has("first")
        fork = fork_live(instance, place.box)[0]
        place.has("first", fork)
        instance.remove(fork)
        place.refused(f"sandboxes/{place.box}/rewind", snapshot=name)
        instance.post(f"/v1/sandboxes/{place.box}/rewind", {"snapshot": name, "files_only": True})


@require(*NEEDS)
def test_what_others_write_to_a_shared_file_is_seen(instance, tmp):
    """Changed in place it is the same file; not if it was replaced."""
    with on_the_machine(instance, tmp, "rw", "s") as place:
        suspend(instance, place.box)
        with open(place.file, "r+", encoding="ascii") as file:
            file.write("later")
        resume(instance, place.box)
        place.has("later")
        suspend(instance, place.box)
        replace(place.file, "other" * 2000)
        place.refused(f"sandboxes/{place.box}/resume")


def own_files(instance, tmp):
    with on_the_machine(instance, tmp, "cow", "s") as place:
        instance.ok(place.box, "cp /m/data /m/own; printf later | dd of=/m/data conv=notrunc status=none")
        own = start(instance, place.box, "/usr/bin/python3", "-c", MAPS_ALL, "p/m/own", "s/m/own", "p/m/data")
        replace(place.file, "other" * 2000)
        name = instance.post(f"/v1/sandboxes/{place.box}/snapshots", {"files_only": False})["id"]
        forks = fork_live(instance, place.box)
        forks += fork_live(instance, forks[0])
        forks += [one["id"] for one in instance.post(f"/v1/snapshots/{name}/fork", {})["sandboxes"]]
        there_and_back(instance, place.box)
        instance.post(f"/v1/sandboxes/{place.box}/rewind", {"snapshot": name})
        for one in (*forks, place.box):
            equal(ask(instance, one, own, "?"), f"{[b'first', b'first', b'later']}\n")
        for one in forks:
            instance.remove(one)


@require(*NEEDS)
def test_what_the_sandbox_has_written_itself_comes_with_its_layers(instance, tmp):
    """Copied up, in layers, behind a suspension and a rewind."""
    own_files(instance, tmp)


@require(*NEEDS)
def test_where_layers_are_copies(tmp):
    """On a kernel without what newer ones have; both parts of it."""
    with contextlib.closing(Instance(tmp, env={"CAY_WITHOUT": "all"}).start()) as instance:
        own_files(instance, tmp)
        with on_the_machine(instance, tmp, "ro", "p") as place:
            suspend(instance, place.box)
            replace(place.file, "other" * 2000)
            place.refused(f"sandboxes/{place.box}/resume")


@require(*NEEDS, "userns", "newuidmap")
def test_replaced_on_the_machine_rootless(tmp):
    with rootless(tmp) as instance, on_the_machine(instance, tmp, "cow", "p") as place:
        there_and_back(instance, place.box)
        place.has("first")
        suspend(instance, place.box)
        replace(place.file, "other" * 2000)
        place.refused(f"sandboxes/{place.box}/resume")


def held(instance):
    return [pid for pid, (_, state, _) in leaks.processes().items() if state == "T" and pid in instance.own_processes()]


@require(*NEEDS)
def test_removed_file_is_kept_once(tmp):
    """What a twin does not map is copied in the pause: not once for each of those that map it."""
    size, processes = 32 << 20, 8
    with contextlib.closing(Instance(tmp, env={"CAY_FAULT": "live.dump.twins=hold"}).start()) as instance, instance.sandbox() as box:
        start(instance, box, "/usr/bin/python3", "-c", APART, str(size), str(processes))
        taken = threading.Thread(target=fork_live, args=(instance, box))
        taken.start()
        cay.wait_until(lambda: held(instance), 60, "the dumper is held")
        for one in held(instance):
            with open(f"/proc/{one}/status", encoding="ascii") as f:
                kib = int(next(line for line in f if line.startswith("RssAnon")).split()[1])
            os.kill(one, signal.SIGCONT)
            assert kib << 10 < 2 * size, f"it has {kib} KiB"
        taken.join()
