# SPDX-License-Identifier: Apache-2.0
"""Real programs, unmodified, while they work: forked live, and source and forks go on from one instant, each into its own future; rewound to a live snapshot; suspended and resumed.

PostgreSQL: test_postgresql.py; what comes to an end of its own: test_work.py; for each kind of kernel object: test_objects.py."""

import os
import sys

from lib.case import contains, equal, raises, require
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, start, window_at  # noqa: E402
from programs import PROGRAMS, start_repl  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 170
NEEDS = ("root", "cgroup2")


def forked(instance, box, program):
    """Each of three worlds goes on from what the one before knew."""
    fork = fork_live(instance, box)[0]
    equal(program.tell(fork, "fork"), ["before", "fork"])
    again = fork_live(instance, fork)[0]
    equal(program.tell(box, "source"), ["before", "source"])
    equal(program.tell(again, "again"), ["before", "fork", "again"])
    equal(program.tell(fork, "more"), ["before", "fork", "more"])
    equal(program.tell(box, "more"), ["before", "source", "more"])
    for one in (again, fork):
        program.end(one)
        instance.remove(one)
    equal(program.tell(box, "last"), ["before", "source", "more", "last"])


def rewound(instance, box, program):
    name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
    for word in ("lost", "other"):
        equal(program.tell(box, word), ["before", word])
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
    equal(program.tell(box, "after"), ["before", "after"])
    instance.call("DELETE", f"/v1/snapshots/{name}")


def suspended(instance, box, program):
    for n, word in enumerate(("once", "twice")):
        there_and_back(instance, box)
        equal(program.tell(box, word), ["before", "once", "twice"][:n + 2])


def make_case(kind, way):
    def case(instance):
        with instance.sandbox() as box:
            program = kind(instance, box)
            equal(program.tell(box, "before"), ["before"])
            way(instance, box, program)
    case.__name__ = f"test_{kind.__name__.lower()}_{way.__name__}"
    return require(*NEEDS, *kind.needs)(case)


for _kind in PROGRAMS:
    for _way in (forked, rewound, suspended):
        _case = make_case(_kind, _way)
        globals()[_case.__name__] = _case


@require(*NEEDS)
def test_what_is_started_later_belongs_to_the_same_world(instance):
    """An exec in the fork sees, signals and reaps through the restored processes as in the source."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", "import signal; print('ready', flush=True); signal.pause()")
        for one in (fork_live(instance, box)[0], box):
            pid = instance.ok(one, "pidof python3").strip()
            equal(instance.ok(one, f"readlink /proc/{pid}/cwd").strip(), "/root")
            equal(instance.ok(one, f"kill -USR1 {pid} && echo sent"), "sent\n")
            status = instance.wait(one, run, 20)
            equal((status["status"], status.get("signal")), ("signaled", 10))
            if one != box:
                instance.remove(one)


# Counts what its children have open, from the first instant on in which it runs; it opens nothing for that.
LOOKER = """
import os, select, time
children = []
for _ in range(100):
    children.append(os.fork())
    if children[-1] == 0:
        while True: time.sleep(1000)
seen = set()
print("ready", flush=True)
while True:
    for pid in reversed(children):
        seen.add(os.stat(f"/proc/{pid}/fd").st_size)
    if select.select([0], [], [], 0)[0]:
        os.read(0, 100)
        print(sorted(seen), flush=True)
"""


@require(*NEEDS)
def test_who_is_on_its_way_has_nothing_of_ours_when_others_run(instance):
    """The way to the keeper, by which it is told who ended how."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", LOOKER)
        had = ask(instance, box, run, "how many?")
        for fork in fork_live(instance, box, 3):
            equal(ask(instance, fork, run, "how many?"), had)
            instance.remove(fork)


# Reads memory of its children at the address in its argument as soon as it is in a fork. While it is captured it has nothing of /proc open.
READER = """
import os, sys, time
children = []
for _ in range(100):
    children.append(os.fork())
    if children[-1] == 0:
        while True: time.sleep(1000)
def read(pid):
    memory = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        return len(os.pread(memory, 4096, int(sys.argv[1])))
    except OSError:
        return 0
    finally:
        os.close(memory)
print("ready", flush=True)
while not os.path.exists("/run/cay/generation"): pass  # there is one in forks alone
got = sum(read(pid) for pid in reversed(children))
input()
print(got, flush=True)
"""


@require(*NEEDS)
def test_who_is_on_its_way_has_no_memory_of_others_when_others_run(instance):
    """The image, in which is what was taken of all, those of other users included."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", READER, str(window_at("IMAGE")))
        for fork in fork_live(instance, box, 3):
            equal(ask(instance, fork, run, "how much?"), "0\n")
            instance.remove(fork)


RESTORER = ", ".join(str(window_at(name)) for name in ("START", "SHARED", "IMAGE", "PLAN"))
# Threads that make children all the time; each child tells of descriptors and memory that are none of the program's.
MAKERS = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None)
def is_open(fd):
    try:
        return os.get_inheritable(fd) is not None
    except OSError:
        return False
def is_mapped(address):
    return libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(4096), ctypes.create_string_buffer(1)) == 0
def strange():
    return [fd for fd in range(3, 200) if is_open(fd)] + [hex(a) for a in (%s) if is_mapped(a)]
def make():
    while True:
        child = os.fork()
        if child == 0:
            found = strange()
            if found:
                os.write(1, f"{found}\\n".encode())
            os._exit(0)
        os.waitpid(child, 0)
for _ in range(8):
    threading.Thread(target=make, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print("goes on", flush=True)
"""


@require(*NEEDS)
def test_children_that_are_made_at_once_have_nothing_of_the_restorer(instance):
    """Some threads are back in their program before the others have left the restorer."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", MAKERS % RESTORER)
        for _ in range(3):
            fork = fork_live(instance, box)[0]
            equal(ask(instance, fork, run, "?"), "goes on\n")
            equal(instance.output(fork, run).decode().replace("goes on\n", ""), "ready\n")
            instance.remove(fork)


@require(*NEEDS)
def test_rewind_to_a_live_snapshot(instance):
    with instance.sandbox() as box:
        run = start_repl(instance, box)
        equal(ask(instance, box, run, "open('/tmp/f', 'w').write('one') and state['seen'].append(1)"), "None\n")
        snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "instant", "files_only": False})
        equal(snapshot["files_only"], False)
        equal(ask(instance, box, run, "open('/tmp/f', 'w').write('two') and state['seen'].append(2)"), "None\n")
        for _ in range(2):
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "instant"})
            equal(ask(instance, box, run, "(state['seen'], open('/tmp/f').read())"), "([1], 'one')\n")
            equal(ask(instance, box, run, "open('/tmp/f', 'w').write('three') and state['seen'].append(3)"), "None\n")
        fork = instance.post("/v1/snapshots/instant/fork", {})["sandboxes"][0]["id"]
        equal(ask(instance, fork, run, "(state['seen'], open('/tmp/f').read())"), "([1], 'one')\n")
        instance.remove(fork)
        instance.call("DELETE", "/v1/snapshots/instant")


REFUSED = {
    "events of inotify": ("import ctypes; l = ctypes.CDLL(None); q = l.inotify_init1(0); l.inotify_add_watch(q, b'/tmp', 0x100); open('/tmp/new', 'w')", "inotify queue with events"),
    "a watch without a name": ("import ctypes, os; l = ctypes.CDLL(None); q = l.inotify_init1(0); open('/tmp/gone', 'w').close(); f = open('/tmp/gone'); l.inotify_add_watch(q, b'/tmp/gone', 0x100); "
                               "os.unlink('/tmp/gone')", "name was not found"),
    "a file of a process that not everybody may read": ("f = open('/proc/self/environ')", "in /proc"),
    "what a semaphore gets back": ("import ctypes; l = ctypes.CDLL(None); i = l.semget(0, 1, 0o600); "
                                   "assert l.semop(i, ctypes.byref((ctypes.c_short * 3)(0, 1, 0o10000)), 1) == 0", "SEM_UNDO"),
    "a connection that was closed behind more than its reader has room for": (
        "import socket; l = socket.create_server(('127.0.0.1', 0)); a = socket.create_connection(l.getsockname()); b = l.accept()[0]\n"
        "a.setblocking(False)\ntry:\n    while True: a.send(bytes(65536))\nexcept BlockingIOError: a.close()", "closed before all that it sent was received"),
    "a socket whose name is not to be found": (
        "import os, socket; os.chdir('/tmp'); s = socket.socket(socket.AF_UNIX); s.bind('here'); s.listen(); os.chdir('/')", "does not lead to it"),
    "a socket whose name another has now": (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); os.rename('/tmp/s', '/tmp/old'); t = socket.socket(socket.AF_UNIX); t.bind('/tmp/s'); "
        "s.listen(); t.listen()", "not called as it was bound"),
    "a socket whose file was moved, and its directory removed": (
        "import os, socket; os.mkdir('/tmp/d'); s = socket.socket(socket.AF_UNIX); s.bind('/tmp/d/s'); os.rename('/tmp/d/s', '/tmp/s'); os.rmdir('/tmp/d'); s.listen()",
        "not called as it was bound"),
    "a socket whose file was moved, and has two names": (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); os.link('/tmp/s', '/tmp/t'); os.link('/tmp/s', '/tmp/u'); os.unlink('/tmp/s'); s.listen()",
        "has a further name"),
    "a socket whose file was moved elsewhere, and another has its name": (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); os.rename('/tmp/s', '/var/tmp/s'); t = socket.socket(socket.AF_UNIX); t.bind('/tmp/s'); "
        "s.listen(); t.listen()", "not called as it was bound"),
    "two sockets whose files were called the same": (
        "import os, socket; s, t = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)\n"
        "for n, x in enumerate((s, t)): x.bind('/tmp/new'); os.rename('/tmp/new', f'/tmp/{n}'); x.listen()", "bound to the same name as another"),
    "two sockets whose files were called the same, spelt otherwise": (
        "import os, socket; s, t = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX); os.symlink('/tmp', '/var/tmp/t')\n"
        "for n, x in enumerate((s, t)): x.bind(('/tmp/new', '/var/tmp/t/new')[n]); os.rename('/tmp/new', f'/tmp/{n}'); x.listen()", "bound to the same name as another"),
    "a socket whose name leads through a descriptor": (
        "import os, socket; s = socket.socket(socket.AF_UNIX); d = os.open('/tmp', os.O_RDONLY); s.bind(f'/proc/self/fd/{d}/s'); s.listen()", "not called as it was bound"),
    "a socket whose file has two names": (
        "import os, socket; s = socket.socket(socket.AF_UNIX); s.bind('/tmp/s'); os.link('/tmp/s', '/tmp/other'); s.listen()", "has a further name"),
    "a socket whose file was replaced, with one that sends to it": (
        "import os, socket; s, t, c = (socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(3)); s.bind('/tmp/s'); c.connect('/tmp/s'); os.unlink('/tmp/s'); "
        "t.bind('/tmp/s')", "whose name another has now"),
    "a deleted named pipe": ("import os; os.mkfifo('/tmp/p'); f = os.open('/tmp/p', os.O_RDWR); os.unlink('/tmp/p')", "deleted named pipe"),
}
FULL = """
import select, socket, sys
listener = socket.create_server(("127.0.0.1", 0))
a = socket.create_connection(listener.getsockname())
b = listener.accept()[0]
b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 64 << 20)
a.setblocking(False)
n = 0
while select.select([], [a], [], 0.3)[1]:
    try:
        n += a.send(bytes(1 << 20))
    except BlockingIOError:
        pass
b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_as_much_in_a_connection_as_the_machine_allows(instance):
    """Carried, or refused by name where it is more than 32 MiB."""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/full.py", FULL)
        run = start(instance, box, "/usr/bin/python3", "/tmp/full.py")
        n = int(ask(instance, box, run, "n"))
        if n > 32 << 20:
            contains(raises(ApiError, fork_live, instance, box).message, "too much data")
            more = n - (30 << 20)
            equal(ask(instance, box, run, f"len(b.recv({more}, socket.MSG_WAITALL))"), f"{more}\n")
            n -= more
        fork = fork_live(instance, fork_live(instance, box)[0])[0]
        for one in (fork, box):
            equal(ask(instance, one, run, f"len(b.recv({n}, socket.MSG_WAITALL))"), f"{n}\n")


BUSY = ("events of inotify", "a connection that was closed behind more than its reader has room for", "what a semaphore gets back")


@require(*NEEDS)
def test_what_cannot_be_carried_is_refused_by_name_and_nothing_happens(instance):
    for what, (code, says) in REFUSED.items():
        before = {b["id"] for b in instance.get("/v1/sandboxes")["sandboxes"]}
        with instance.sandbox() as box:
            put(instance, box, "/tmp/x.py", f"import sys\n{code}\nprint('ready', flush=True)\nfor l in sys.stdin: print('on', flush=True)")
            run = start(instance, box, "/usr/bin/python3", "/tmp/x.py")
            error = raises(ApiError, fork_live, instance, box)
            equal(error.code, "busy" if what in BUSY else "unsupported", what)
            contains(error.message, "(python3)", what)
            contains(error.message, says, what)
            equal(ask(instance, box, run, "still there?"), "on\n", what)
            equal({b["id"] for b in instance.get("/v1/sandboxes")["sandboxes"]}, before | {box})
