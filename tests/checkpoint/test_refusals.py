# SPDX-License-Identifier: Apache-2.0
"""What cannot be carried over is refused while everything stands still, before anything is changed: no copy of a process has been made, none has been released, and all goes on as it was."""

import os
import sys

from lib import cay
from lib.case import Skip, contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import WINDOW, ask, fork_live, rootless, wait_output  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")

# Where no program that was just restored has anything still, so that it is not asked once more.
WITHIN = WINDOW[0] + (1 << 40)
# As sanitizers reserve it: from far below, with nothing in it.
BELOW, ACROSS = WINDOW[0] - (1 << 40), 3 << 40
# Each comes and goes by itself; a child shares nothing with it.
PROGRAM = f"""
WITHIN, BELOW, ACROSS, PAGE = {WITHIN:#x}, {BELOW:#x}, {ACROSS:#x}, 4096
import ctypes, mmap, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
held = []
def beyond():
    fd = os.open("/var/tmp/gone", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * PAGE)
    held.append(libc.mmap(None, 2 * PAGE, 3, mmap.MAP_SHARED, fd, 0))
    os.close(fd)
    os.unlink("/var/tmp/gone")
def beyond_end():
    assert libc.munmap(held.pop(), 2 * PAGE) == 0
def hollow():
    fd = os.open("/var/tmp/hollow", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 2 << 30)
    held.append(libc.mmap(None, 2 << 30, 1, mmap.MAP_PRIVATE, fd, 0))
    os.close(fd)
    os.unlink("/var/tmp/hollow")
def hollow_end():
    assert libc.munmap(held.pop(), 2 << 30) == 0
def window():
    at = libc.mmap(WITHIN, PAGE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000, -1, 0)
    assert at == WITHIN, at
def window_end():
    assert libc.munmap(WITHIN, PAGE) == 0
def across():
    at = libc.mmap(BELOW, ACROSS, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x104000, -1, 0)
    assert at == BELOW, at
def across_end():
    assert libc.munmap(BELOW, ACROSS) == 0
def half():
    held.append(libc.mmap(None, 2 * PAGE, 3, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, -1, 0))
    assert libc.munmap(held[-1], PAGE) == 0
def half_end():
    assert libc.munmap(held.pop() + PAGE, PAGE) == 0
if os.fork() == 0:
    while True: signal.pause()
def do(f):
    f()
    return os.getpid()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""

# How to get it, and what is said of it.
REFUSED = {
    "beyond": "it maps '/var/tmp/gone (deleted)' beyond its end",
    "hollow": "it maps '/var/tmp/hollow (deleted)', and files that were removed are more than 1024 MiB large",
    "window": f"it has memory at {WITHIN:x}, where the restorer must be",
    "across": f"it has memory at {WINDOW[0]:x} (mapped from {BELOW:x} to {BELOW + ACROSS:x}), where the restorer must be",
    "half": "it maps a part of shared memory at ",
}
# Of a capture that is refused nothing of this happens: what runs again, what is copied.
AFTER = ("live.dump.copied", "live.capture.looked", "live.capture.released")


def points(log):
    with open(log, encoding="utf-8") as f:
        return f.read().split()


@require(*NEEDS)
def test_before_anything_is_changed(tmp):
    log = cay.fault_log(tmp)
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT_LOG=log)
        box = instance.post("/v1/sandboxes", {})["id"]
        instance.ok(box, f"cat > /tmp/program.py <<'END'\n{PROGRAM}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/program.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        for name, reason in REFUSED.items():
            pid = int(ask(instance, box, run, f"do({name})"))
            contains(instance.cay("doctor", box, check=False).stdout, f"process {pid} (python3): {reason}")
            before = len(points(log))
            for verb, body in (("fork", {"live": True}), ("suspend", None)):
                error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
                contains(error.message, f"process {pid} (python3): {reason}")
                equal(error.code, "unsupported")
            passed = points(log)[before:]
            assert "live.dump.seized" in passed, passed
            equal([p for p in passed if p in AFTER], [], name)
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
            equal(int(ask(instance, box, run, f"do({name}_end)")), pid)
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "len(held)"), "0\n")
        equal(sorted(set(AFTER) - set(points(log))), [], "an accepted one passes them")
    finally:
        instance.close()


# A child with a thread, and a descriptor of that.
OF_THREAD = """
import os, signal, sys, threading
def child(tell):
    threading.Thread(target=signal.pause, daemon=True).start()
    os.write(tell, b"%d" % [t.native_id for t in threading.enumerate()][-1])
    signal.pause()
reads, tell = os.pipe()
pid = os.fork()
if pid == 0:
    child(tell)
of = os.pidfd_open(int(os.read(reads, 16)), os.O_EXCL)
def end():
    os.close(of)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_a_descriptor_of_a_thread_of_another_process_is_refused(instance):
    """Such a suspension was accepted, and could not be resumed."""
    try:
        os.close(os.pidfd_open(os.getpid(), os.O_EXCL))
    except OSError as e:
        raise Skip("this kernel has no PIDFD_THREAD") from e
    with instance.sandbox() as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", OF_THREAD, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        says = "of a thread of another process (PIDFD_THREAD), which cannot be carried over yet"
        contains(instance.cay("doctor", box, check=False).stdout, says)
        for verb, body in (("fork", {"live": True}), ("suspend", None)):
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
            contains(error.message, says)
            equal(error.code, "unsupported")
        ask(instance, box, run, "end()")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "1"), "1\n")
        instance.remove(fork)


# Takes of the semaphore, or gives to it, what the kernel is to put right at its end. Its neighbour has threads, and for that alone such a list.
SEMAPHORE = """
import ctypes, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
one = libc.semget(0x77, 2, 0o1600)
libc.semctl(one, 1, 16, 100)
def by(n, flags=0x1800):
    done = libc.semop(one, (ctypes.c_short * 3)(1, n, flags), 1)
    return done if done == 0 else ctypes.get_errno()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
NEIGHBOUR = "import threading, time; threading.Thread(target=time.sleep, args=(1000,)).start(); print('ready', flush=True)"


@require(*NEEDS)
def test_what_a_semaphore_would_get_back_is_refused(instance):
    """Of whoever would give back something, and of nobody else; what was given back already is no reason."""
    with instance.sandbox() as box:
        wait_output(instance, box, instance.exec(box, "/usr/bin/python3", "-c", NEIGHBOUR), b"ready\n")
        run = instance.exec(box, "/usr/bin/python3", "-c", SEMAPHORE, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        pid = instance.ok(box, "pgrep -f semget | head -1").strip()
        for by in (-1, 1, -100, 32667):
            equal(ask(instance, box, run, f"by({by})"), "0\n")
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/fork", {"live": True})
            contains(error.message, f"process {pid} (python3): it has used a System V semaphore with SEM_UNDO")
            equal(error.code, "busy")
            equal(ask(instance, box, run, "libc.semctl(one, 1, 12)"), f"{100 + by}\n")  # GETVAL
            equal(ask(instance, box, run, f"by({-by})"), "0\n")
            instance.remove(fork_live(instance, box)[0])


@require(*NEEDS)
def test_processes_of_another_version_of_cay(fresh):
    """After an upgrade: their keeper and its dumper are of the version that started them. They are left alone, and what to do is said."""
    box = fresh.post("/v1/sandboxes", {"name": "old"})["id"]
    run = fresh.exec(box, "sleep", "1000")
    fresh.kill()
    fresh.start(CAY_FAULT="moment.version" + ":1+=error")
    for method, path, body in (("POST", "snapshots", {}), ("POST", "fork", {"live": True}), ("POST", "suspend", None), ("GET", "doctor", None)):
        error = raises(cay.ApiError, fresh.call, method, f"/v1/sandboxes/{box}/{path}", body)
        contains(error.message, "the processes of sandbox 'old' were started by an older version of cay")
        contains(error.hint, "--files-only")
        equal(error.code, "unsupported")
    fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})
    equal(fresh.get(f"/v1/sandboxes/{box}/execs/{run['id']}")["state"], "running")
    fresh.kill()
    fresh.start()  # of one version again
    equal(fresh.post(f"/v1/sandboxes/{box}/snapshots", {})["files_only"], False)


@require(*NEEDS)
def test_a_directory_that_is_called_removed(instance):
    """Its name says so and it is there: carried. One that is not there stays so, also one that had such a name."""
    with instance.sandbox() as box:
        for place in ("/tmp/x (deleted)", "/var/tmp/x (deleted)"):
            instance.ok(box, f"mkdir '{place}'")
            run = instance.exec(box, "/usr/bin/python3", "-c", "import os, sys\nprint('ready', flush=True)\nfor line in sys.stdin: print(eval(line), flush=True)",
                                cwd=place, stdin=True)
            wait_output(instance, box, run, b"ready\n")
            fork = fork_live(instance, box)[0]
            for one in (fork, box):
                equal(ask(instance, one, run, "os.getcwd()"), place + "\n")
            instance.remove(fork)
            instance.ok(box, f"rmdir '{place}'")
            fork = fork_live(instance, box)[0]
            for one in (fork, box):
                called = os.path.dirname(place) + "/.cay-removed-0" if one == fork else place
                equal(ask(instance, one, run, "os.readlink('/proc/self/cwd'), os.stat('.').st_nlink"), f"('{called} (deleted)', 0)\n")
            instance.remove(fork)
            equal(ask(instance, box, run, "os.chdir('/')"), "None\n")


@require(*NEEDS)
def test_a_file_that_is_called_like_memory(instance):
    """A file in the root directory is one whatever it is called: who writes to it writes to it in a fork, too. Removed, it is carried as others are."""
    with instance.sandbox() as box:
        for name in ("/memfd:x", "/memfd:x y", "/memfd:x (deleted)"):
            run = instance.exec(box, "/usr/bin/python3", "-c", "import os, sys\nf = open(sys.argv[1], 'w+')\nprint('ready', flush=True)\n"
                                "for line in sys.stdin: print(eval(line), flush=True)", name, stdin=True)
            wait_output(instance, box, run, b"ready\n")
            equal(ask(instance, box, run, "f.write('before'), f.flush()"), "(6, None)\n")
            fork = fork_live(instance, box)[0]
            equal(ask(instance, fork, run, "f.write(' and behind'), f.flush()"), "(11, None)\n")
            equal([instance.ok(one, f"cat '{name}'") for one in (fork, box)], ["before and behind", "before"])
            instance.remove(fork)
            equal(ask(instance, box, run, f"os.unlink('{name}')"), "None\n")
            fork = fork_live(instance, box)[0]
            equal(ask(instance, fork, run, "f.seek(0), f.read(), os.fstat(f.fileno()).st_nlink"), "(0, 'before', 0)\n")
            instance.remove(fork)


@require(*NEEDS)
def test_a_socket_with_a_name_seen_from_a_removed_directory(instance):
    """There is no directory of that name any more in which it could be bound again."""
    with instance.sandbox() as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\nprint('ready', flush=True)\n"
                            "for line in sys.stdin: print(eval(line), flush=True)", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        equal(ask(instance, box, run, "os.makedirs('/tmp/x/y'), os.chdir('/tmp/x/y'), s.bind('../s'), s.listen(), os.rmdir('../y')"), f"{(None,) * 5}\n")
        for verb, body in (("fork", {"live": True}), ("suspend", None)):
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
            equal(error.code, "unsupported")
            contains(error.message, "a socket whose name is seen from a directory that was removed")
        equal(ask(instance, box, run, "os.chdir('/tmp/x'), os.mkdir('y'), os.chdir('y')"), f"{(None,) * 3}\n")
        instance.remove(fork_live(instance, box)[0])


# Its first thread ends, another answers.
HEADLESS = """
import ctypes, os, sys, threading
def wait():
    while open("/proc/self/stat").read().rsplit(")")[-1].split()[0] != "Z": os.sched_yield()
def talk():
    for line in sys.stdin: print(eval(line), flush=True)
threading.Thread(target=talk).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall(60, 0) # exit
"""


@require(*NEEDS)
def test_a_process_whose_first_thread_has_ended(instance):
    """It is no ended process: it is named, and its other threads go on."""
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/headless.py <<'END'\n{HEADLESS}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/headless.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        equal(ask(instance, box, run, "wait()"), "None\n")
        for _ in range(2):
            error = raises(cay.ApiError, fork_live, instance, box)
            equal(error.code, "unsupported")
            contains(error.message, "(python3): its first thread has ended, and others have not")
            equal(ask(instance, box, run, "1 + 1"), "2\n")


TALK = "import os, sys\nprint('ready', flush=True)\nfor line in sys.stdin: print(eval(line), flush=True)"


@require(*NEEDS)
def test_what_was_removed_of_the_image(instance):
    """It keeps its links: an open file is carried with what is in it, directories as what they are."""
    with instance.sandbox() as first:
        instance.ok(first, "cd /var/tmp && echo text > file && mkdir plain changed && ln file other")
        box = fork_live(instance, first)[0]
        run = instance.exec(box, "/usr/bin/python3", "-c", TALK, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        fd = int(ask(instance, box, run, "os.open('/var/tmp/file', os.O_RDONLY)"))
        instance.ok(box, "rm /var/tmp/file")
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            equal(ask(instance, one, run, f"os.pread({fd}, 99, 0)"), "b'text\\n'\n")
        instance.remove(fork)
        writer = int(ask(instance, box, run, "os.open('/var/tmp/other', os.O_RDWR)"))
        instance.ok(box, "cd /var/tmp && ln other third && rm other")
        contains(raises(cay.ApiError, fork_live, instance, box).message, f"descriptor {writer} is a deleted file that has another name")
        equal(ask(instance, box, run, f"os.close({writer})"), "None\n")
        instance.ok(box, "touch /var/tmp/changed/new")
        for name in ("plain", "changed"):
            below = int(ask(instance, box, run, f"os.open('/var/tmp/{name}', os.O_RDONLY)"))
            equal(ask(instance, box, run, f"os.chdir('/var/tmp/{name}')"), "None\n")
            instance.ok(box, f"rm -r /var/tmp/{name}")
            fork = fork_live(instance, box)[0]
            for one in (fork, box):
                called = "/var/tmp/.cay-removed-0" if one == fork else f"/var/tmp/{name}"
                equal(ask(instance, one, run, f"[os.readlink('/proc/self/' + n) for n in ('cwd', 'fd/{below}')]"), f"{[called + ' (deleted)'] * 2}\n")
                equal(ask(instance, one, run, f"os.path.sameopenfile({below}, os.open('.', os.O_PATH))"), "True\n")
                equal(ask(instance, one, run, f"os.close({below})"), "None\n")
                equal(ask(instance, one, run, "os.chdir('..')"), "None\n")
                equal(ask(instance, one, run, "os.getcwd()"), "/var/tmp\n")
            equal(instance.ok(fork, f"ls -A /var/tmp | grep {name} || echo none").strip(), "none")
            instance.remove(fork)
        instance.remove(box)


@require(*NEEDS)
def test_a_removed_file_that_has_another_name(instance):
    """What is written to it in the fork would not be there by that name: whoever else has it open to read, and comes first."""
    with instance.sandbox() as first:
        instance.ok(first, "cd /var/tmp && echo text > one && echo text > two")
        box = fork_live(instance, first)[0]  # they belong to what is below now, and are copied up when they are written to
        run = instance.exec(box, "/usr/bin/python3", "-c", TALK, stdin=True)
        wait_output(instance, box, run, b"ready\n")
        for name in ("one", "two"):
            fds = [int(ask(instance, box, run, f"os.open('/var/tmp/{name}', os.{mode})")) for mode in ("O_RDONLY", "O_RDWR", "O_WRONLY")]
            equal(fds, sorted(fds))
            instance.ok(box, f"cd /var/tmp && {'ln one other && ' if name == 'one' else ''}rm {name}")
            if name == "one":
                for fd in fds[1:]:
                    contains(raises(cay.ApiError, fork_live, instance, box).message, f"descriptor {fd} is a deleted file that has another name")
                    equal(ask(instance, box, run, f"os.close({fd})"), "None\n")
            else:
                equal(ask(instance, box, run, f"os.pwrite({fds[2]}, b'new', 0)"), "3\n")
            fork = fork_live(instance, box)[0]
            for one in (fork, box):
                for fd in fds[:1] if name == "one" else fds[:2]:
                    equal(ask(instance, one, run, f"os.pread({fd}, 99, 0)"), "b'text\\n'\n" if name == "one" else "b'newt\\n'\n")
            instance.remove(fork)
        instance.remove(box)


# What cannot be had again: how it comes about, what is said of it (of which thread or process: {}), and how it is undone.
SHARING = """
import ctypes, mmap, os, signal, struct, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def thread(*calls):
    def run():
        for number, *arguments in calls:
            assert libc.syscall(number, *arguments) == 0, ctypes.get_errno()
        ready.set()
        end.wait()
    global ready, end, one
    ready, end, one = threading.Event(), threading.Event(), threading.Thread(target=run)
    one.start()
    ready.wait()
    return one.native_id
def thread_end():
    end.set()
    one.join()
def process(flags, left=False):
    global child
    if left:
        os.setpgid(0, 0)
    child = libc.syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0)  # clone
    if child == 0:
        libc.pause()
    if left:
        os.setpgid(0, os.getppid())
    return child
def process_end():
    os.kill(child, 9)
    os.waitpid(child, 0)
def through(flags): # whoever had both of them has ended
    global child
    r, w = os.pipe()
    middle = libc.syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0)
    if middle == 0:
        if libc.syscall(56, flags | signal.SIGCHLD, 0, 0, 0, 0) == 0:
            os.write(w, str(os.getpid()).encode())
            libc.pause()
        os._exit(0)
    os.waitpid(middle, 0)
    child = int(os.read(r, 20))
    os.close(r)
    os.close(w)
    return child
def through_end():
    os.kill(child, 9)
    while os.path.exists(f"/proc/{child}"):
        os.sched_yield()
def through_in_memory(): # in machine code: all have one memory, and each a stack
    global child, page
    page = mmap.mmap(-1, 1 << 17, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, 7)
    start, told = ctypes.addressof(ctypes.c_char.from_buffer(page)), ctypes.c_int.from_buffer(page, 4096)
    page.write(b"\\xbf" + struct.pack("<I", 0x100100 | signal.SIGCHLD) # mov edi, CLONE_VM | CLONE_PARENT_SETTID | SIGCHLD
        + b"\\x48\\xbe" + struct.pack("<Q", start + (1 << 16)) # mov rsi, its stack
        + b"\\x48\\xba" + struct.pack("<Q", start + 4096) # mov rdx, where its number goes
        + b"\\x45\\x31\\xd2\\x45\\x31\\xc0\\xb8" + struct.pack("<I", 56) + b"\\x0f\\x05" # clone
        + b"\\x85\\xc0\\x74\\x09\\x31\\xff\\xb8" + struct.pack("<I", 231) + b"\\x0f\\x05" # who made it: exit_group(0)
        + b"\\xb8" + struct.pack("<I", 34) + b"\\x0f\\x05\\xeb\\xf7") # it: pause, again and again
    os.waitpid(libc.clone(ctypes.c_void_p(start), ctypes.c_void_p(start + (1 << 17) - 64), 0x100 | signal.SIGCHLD, None), 0)
    child = told.value
    return child
def timer():
    global timer_id
    thread()
    timer_id = ctypes.c_int()
    assert libc.syscall(222, 3, 0, ctypes.byref(timer_id)) == 0  # timer_create(CLOCK_THREAD_CPUTIME_ID)
    return timer_id.value
def timer_end():
    assert libc.syscall(226, timer_id) == 0  # timer_delete
    thread_end()
held = []
def opened(fd):
    held.append(fd)
    return fd
def close(name=None):
    os.close(held.pop())
    assert name is None or libc.syscall(241, name) == 0  # mq_unlink
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""
UNSHARED = (
    ("thread((117, 65534, 65534, 65534))", "its thread {} has ids or capabilities of its own", "thread_end()"),  # setresuid
    ("thread((116, 1, (ctypes.c_uint * 1)(7)))", "its thread {} has ids or capabilities of its own", "thread_end()"),  # setgroups
    ("thread((272, 0x400))", "its thread {} has descriptors of its own", "thread_end()"),  # unshare(CLONE_FILES)
    ("thread((272, 0x200))", "its thread {} has a working directory, root directory and umask of its own", "thread_end()"),
    ("process(0x400)", "process {} (python3): it shares its descriptors with process", "process_end()"),
    ("process(0x200)", "process {} (python3): it shares its working directory, root directory and umask with process", "process_end()"),
    ("through(0x400)", "process {} (python3): it shares its descriptors with process", "through_end()"),
    ("through(0x200)", "process {} (python3): it shares its working directory, root directory and umask with process", "through_end()"),
    ("through_in_memory()", "process {} (python3): it shares its memory with process", "through_end()"),
    ("process(0, True)", "process {}: nobody can put it into group", "process_end()"),
    ("timer()", "its POSIX timer {} counts the processor time of one of several threads", "timer_end()"),
    ("opened(os.open('/proc/self/ns/net', os.O_RDONLY))", "descriptor {} is of a kind that cannot be carried over yet", "close()"),
)


QUEUE = ("opened(libc.syscall(240, b'queue', 0o102, 0o600, 0))", "descriptor {} is a POSIX message queue", "close(b'queue')")  # mq_open


def each_is_refused(instance, cases, **options):
    """It was lost in forks without a word, or the fork failed. `cay doctor` tells of it in advance, but for threads and groups."""
    with instance.sandbox(**options) as box:
        instance.ok(box, f"cat > /tmp/sharing.py <<'END'\n{SHARING}\nEND")
        # (a group that it can join again)
        run = instance.exec(box, "/bin/sh", "-c", "/usr/bin/python3 /tmp/sharing.py; :", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        for begin, says, finish in cases:
            number = ask(instance, box, run, begin).strip()
            for verb in ("fork", "suspend"):
                error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}")
                contains(error.message, says.format(number))
                equal(error.code, "unsupported")
            if not says.startswith("its thread") and "group" not in says:
                contains(instance.cay("doctor", box, check=False).stdout, says.format(number))
            equal(ask(instance, box, run, finish), "None\n")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "len(held)"), "0\n")
        instance.remove(fork)


@require(*NEEDS)
def test_what_is_shared_otherwise_than_by_threads(instance):
    each_is_refused(instance, UNSHARED)
    each_is_refused(instance, [QUEUE], profile="debug")  # elsewhere Landlock refuses it


@require(*NEEDS, "userns", "newuidmap")
def test_what_is_shared_otherwise_than_by_threads_rootless(tmp):
    with rootless(tmp) as instance:
        each_is_refused(instance, UNSHARED)


# A thread that goes to a 32-bit code segment, says so, and comes back when it is told: nothing but instructions.
SEGMENTS = """
import ctypes, mmap, os, struct, sys, threading
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
page = libc.mmap(None, 4096, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, -1, 0) # MAP_32BIT
there, back, narrow, wide = page + 0xf00, page + 0xf04, page + 0x40, page + 0x80
def put(at, code):
    ctypes.memmove(at, code, len(code))
def push(segment, to):
    return b"\\x6a" + bytes([segment]) + b"\\x68" + struct.pack("<I", to) + b"\\x48\\xcb" # push segment; push to; lretq
put(page, push(0x23, narrow))
put(narrow, b"\\x36\\xc7\\x05" + struct.pack("<II", there, 1) # mov dword ss:[there], 1
    + b"\\xf3\\x90\\x36\\x83\\x3d" + struct.pack("<I", back) + b"\\x00\\x74\\xf4" # again: pause; cmp dword ss:[back], 0; je again
    + b"\\xea" + struct.pack("<IH", wide, 0x33)) # ljmp
put(wide, b"\\xc3")
stack = libc.mmap(None, 65536, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, -1, 0)
put(page + 0x200, b"\\x48\\x89\\xe3" + b"\\x48\\xc7\\xc4" + struct.pack("<I", stack + 65536 - 64) # mov rbx, rsp; mov rsp, stack
    + b"\\xe8" + struct.pack("<i", page - (page + 0x200 + 15)) + b"\\x48\\x89\\xdc\\x5b\\xc3") # call; mov rsp, rbx; pop rbx; ret
put(page + 0x1ff, b"\\x53") # push rbx
thread = threading.Thread(target=ctypes.CFUNCTYPE(None)(page + 0x1ff))
def go():
    thread.start()
    while ctypes.c_uint.from_address(there).value == 0: os.sched_yield()
    return thread.native_id
def come():
    ctypes.c_uint.from_address(back).value = 1
    thread.join()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_a_thread_that_runs_32_bit_code(instance):
    """In it no call could be made: it is named before one is, and when it has come back all is well."""
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/segments.py <<'END'\n{SEGMENTS}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/segments.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        tid = int(ask(instance, box, run, "go()"))
        for _ in range(2):
            error = raises(cay.ApiError, fork_live, instance, box)
            equal(error.code, "unsupported")
            contains(error.message, f"(python3): its thread {tid} runs 32-bit code")
        equal(ask(instance, box, run, "come()"), "None\n")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "thread.is_alive()"), "False\n")
        instance.remove(fork)


# Register states that a thread has once it has used them: they cannot be given back to one that has not.
TILES = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
if libc.syscall(158, 0x1023, 18) != 0: # arch_prctl(ARCH_REQ_XCOMP_PERM)
    print("none", flush=True)
    sys.exit(0)
page = libc.mmap(None, 4096, 7, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
ctypes.memmove(page, b"\\xc4\\xe2\\x78\\x49\\x07\\xc4\\xe2\\x7b\\x49\\xc0\\xc3", 11) # ldtilecfg [rdi]; tilezero tmm0; ret
ctypes.memmove(page + 16, b"\\xc4\\xe2\\x78\\x49\\xc0\\xc3", 6) # tilerelease; ret
shape = bytearray(64)
shape[0], shape[16], shape[48] = 1, 64, 16
use = lambda: ctypes.CFUNCTYPE(None, ctypes.c_char_p)(page)(bytes(shape))
drop = lambda: ctypes.CFUNCTYPE(None)(page + 16)()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_tiles_in_registers(instance):
    """Named while a thread has some; without them the permission goes along."""
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/tiles.py <<'END'\n{TILES}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/tiles.py", stdin=True)
        if wait_output(instance, box, run, b"\n") == b"none\n":
            return  # the processor has none, so nobody has some to lose
        equal(ask(instance, box, run, "use()"), "None\n")
        error = raises(cay.ApiError, fork_live, instance, box)
        equal(error.code, "unsupported")
        contains(error.message, "has tiles (AMX) in its registers")
        equal(ask(instance, box, run, "drop()"), "None\n")
        fork = fork_live(instance, box)[0]
        for one in (fork, box):
            equal(ask(instance, one, run, "[use(), drop()]"), "[None, None]\n")
        instance.remove(fork)


SHARED = """
import os, signal, sys
held = os.open(sys.argv[1], os.O_RDONLY)
if os.fork() == 0:
    while True: signal.pause()
print("ready", flush=True)
for line in sys.stdin:
    print(len(os.read(held, 10)), flush=True)
"""


@require(*NEEDS)
def test_a_file_of_proc_that_is_held_over_a_fork(instance):
    """Of memory only its own process may have it opened again: who has it too, from its parent, is refused by name. What is no memory goes along."""
    with instance.sandbox() as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", SHARED, "/proc/self/maps", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        error = raises(cay.ApiError, fork_live, instance, box)
        equal(error.code, "unsupported")
        contains(error.message, "a file of a process in /proc")
        equal(ask(instance, box, run, "go"), "10\n")
    with instance.sandbox() as box:
        run = instance.exec(box, "/usr/bin/python3", "-c", SHARED, "/proc/self/statm", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        fork = fork_live(instance, box)[0]
        for one in (box, fork):
            equal(ask(instance, one, run, "go"), "10\n")
        instance.remove(fork)


# What is under way in sockets, and nobody can put back.
UNDER_WAY = """
import fcntl, os, select, socket, struct, sys
held = []
def tcp():
    listener = socket.create_server(("127.0.0.1", 0))
    held[:] = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
def urgent():
    tcp()
    held[0].send(b"abc")
    held[0].send(b"!", socket.MSG_OOB)
    return held[1].fileno()
def marked():
    tcp()
    held[1].setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
    held[0].send(b"!", socket.MSG_OOB)
    return held[1].fileno()
def reset():
    tcp()
    held[0].send(b"not all")
    held[0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    held.pop(0).close()
    poll = select.poll()
    poll.register(held[0], 0)
    poll.poll() # POLLERR, POLLHUP
    return held[0].fileno()
def urgent_unix():
    held[:] = socket.socketpair()
    held[0].send(b"!", socket.MSG_OOB)
    return held[1].fileno()
def begun():
    held[:] = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
    held[0].sendto(b"one, ", socket.MSG_MORE, ("127.0.0.1", 9))
    return held[0].fileno()
def shared():
    held[:] = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0) if one is held[0] else held[0].getsockname())
        if one is held[0]:
            one.sendto(b"early", one.getsockname())
    select.select(held[:1], [], [])
    return held[0].fileno()
def shared_no_more():
    fd = shared()
    for one in held:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return fd
def watched():
    held[:] = [os.open("/tmp", os.O_RDONLY)]
    fcntl.fcntl(held[0], fcntl.F_NOTIFY, fcntl.DN_CREATE)
    return held[0]
def drop():
    while held:
        one = held.pop()
        os.close(one) if isinstance(one, int) else one.close()
print("ready", flush=True)
for line in sys.stdin: print(eval(line), flush=True)
"""
WHAT = {
    "urgent": ("a socket with urgent data in it", "busy"),
    "marked": ("a socket with urgent data in it", "busy"),
    "reset": ("a connection that was reset, with data in it", "busy"),
    "urgent_unix": ("a socket with urgent data in it", "busy"),
    "begun": ("a UDP socket with a datagram that is still being put together", "busy"),
    "shared": ("a UDP socket that shares its address, with datagrams in it", "busy"),
    "shared_no_more": ("a UDP socket that shares its address, with datagrams in it", "busy"),
    "watched": ("a directory that is watched by F_NOTIFY (fcntl(2))", "unsupported"),
}


@require(*NEEDS)
def test_what_nobody_can_put_back(instance):
    """It was lost in the fork without a word: told in advance, refused by name, and when it is gone all is carried."""
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/under_way.py <<'END'\n{UNDER_WAY}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/under_way.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        for name, (reason, code) in WHAT.items():
            fd = int(ask(instance, box, run, f"{name}()"))
            if name != "shared_no_more":  # its address tells, when all sockets are known
                contains(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"][0]["reason"], f"descriptor {fd} is {reason}")
            error = raises(cay.ApiError, fork_live, instance, box)
            contains(error.message, f"descriptor {fd} is {reason}")
            equal(error.code, code, name)
            equal(ask(instance, box, run, "drop()"), "None\n")
        instance.remove(fork_live(instance, box)[0])


@require(*NEEDS)
def test_a_program_whose_file_may_not_be_executed_any_more(instance):
    """The kernel lets nobody say that it is what runs: removed or not, what could not be resumed is not suspended."""
    with instance.sandbox() as box:
        run = instance.exec(box, "/bin/sh", "-c", "cp /bin/cat /root/s && /root/s; :", stdin=True)
        equal(ask(instance, box, run, "one"), "one\n")
        for begin, finish in (("chmod -x /root/s", "chmod +x /root/s"), ("chmod -x /root/s && ln /root/s /root/u && rm /root/s", "chmod +x /root/u")):
            instance.ok(box, begin)
            contains(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"][0]["reason"], "the file of its program may not be executed any more")
            for verb, body in (("fork", {"live": True}), ("suspend", None)):
                error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
                contains(error.message, "(s): the file of its program may not be executed any more")
                equal(error.code, "unsupported")
            instance.ok(box, finish)
            there_and_back(instance, box)
            equal(ask(instance, box, run, "two"), "two\n")


@require(*NEEDS)
def test_a_lock_that_its_source_goes_on_holding(instance, tmp):
    """Of a file of the host, which forks share with their source: it is named, and the snapshot is good for a rewind, and for a fork when the source has let go."""
    with open(os.path.join(tmp, "l"), "wb") as f:
        f.write(b"text")
    for take, drop in (("fcntl.flock(f, fcntl.LOCK_EX)", "fcntl.flock(f, fcntl.LOCK_UN)"), ("fcntl.lockf(f, fcntl.LOCK_EX)", "fcntl.lockf(f, fcntl.LOCK_UN)")):
        with instance.sandbox(mounts=[{"source": tmp, "target": "/w", "mode": "rw"}]) as box:
            run = instance.exec(box, "/usr/bin/python3", "-c", "import fcntl\nf = open('/w/l', 'r+')\n" + TALK, stdin=True)
            wait_output(instance, box, run, b"ready\n")
            equal(ask(instance, box, run, take), "None\n")
            name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
            error = raises(cay.ApiError, instance.post, f"/v1/snapshots/{name}/fork", {"live": True})
            contains(error.message, "a program holds a lock of '/w/l', which somebody else has locked")
            equal(error.code, "unsupported")
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
            there_and_back(instance, box)
            equal(ask(instance, box, run, drop), "None\n")
            instance.remove(instance.post(f"/v1/snapshots/{name}/fork", {"live": True})["sandboxes"][0]["id"])


# Every other page of a range is memory, and each a mapping of its own.
SCATTERED = """
import ctypes, mmap, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def scatter(n):
    global at
    at = libc.mmap(None, n * 8192, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    for page in range(at, at + n * 8192, 8192):
        ctypes.c_char.from_address(page).value = 1
        assert libc.munmap(page + 4096, 4096) == 0
def unmap(n):
    assert libc.munmap(at, n * 8192) == 0
print("ready", flush=True)
for line in sys.stdin: print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_memory_in_more_mappings_than_a_process_can_have(instance):
    """All of it has to be in one template: a suspension that nobody could resume is refused, and nothing has happened. So is one process with nearly as many."""
    with open("/proc/sys/vm/max_map_count", encoding="utf-8") as f:
        most = int(f.read())
    if most > 1 << 17:
        raise Skip(f"vm.max_map_count is {most}, and so many are more memory than a test may take")
    with instance.sandbox() as box:
        instance.ok(box, f"cat > /tmp/scattered.py <<'END'\n{SCATTERED}\nEND")
        runs = [instance.exec(box, "/usr/bin/python3", "/tmp/scattered.py", stdin=True) for _ in range(2)]
        for run in runs:
            wait_output(instance, box, run, b"ready\n")
            equal(ask(instance, box, run, f"scatter({most // 2})"), "None\n")
        for verb, body in (("suspend", None), ("fork", {"live": True})):
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}", body)
            equal(error.code, "unsupported")
            contains(error.message, "vm.max_map_count")
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
        for run in runs:
            equal(ask(instance, box, run, f"unmap({most // 2})"), "None\n")
        equal(ask(instance, box, runs[0], f"scatter({most - 100})"), "None\n")
        contains(instance.get(f"/v1/sandboxes/{box}/doctor")["findings"][0]["reason"], "mappings, and a restored process can have")
        contains(raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/suspend").message, "(python3): it has")
        equal(ask(instance, box, runs[0], f"unmap({most - 100})"), "None\n")
        # what is not too much is resumed
        some = most // 2 - 500
        for run in runs:
            equal(ask(instance, box, run, f"scatter({some})"), "None\n")
        there_and_back(instance, box)
        for run in runs:
            equal(ask(instance, box, run, f"sum(ctypes.c_char.from_address(at + 8192 * i).value[0] for i in range({some}))"), f"{some}\n")


@require(*NEEDS)
def test_nobody_gets_protection_keys(instance):
    """A fork would not have them, and whoever uses some is prepared for the machine's having none left (node, for what it compiles)."""
    with instance.sandbox() as box:
        program = "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); print(c.syscall(330, 0, 0), errno.errorcode[ctypes.get_errno()])"
        equal(instance.ok(box, f"python3 -c '{program}'"), "-1 ENOSPC\n")


@require(*NEEDS)
def test_nobody_seals_mappings(instance):
    """Neither a fork's nor a capture's own could be put in order where memory is sealed: mseal(2) is as on a kernel that has none, in every profile."""
    program = "import ctypes, errno; c = ctypes.CDLL(None, use_errno=True); print(c.syscall(462, 0, 0, 0), errno.errorcode[ctypes.get_errno()])"
    for profile in ("default", "strict", "debug"):
        with instance.sandbox(profile=profile) as box:
            equal(instance.ok(box, f"python3 -c '{program}'"), "-1 ENOSYS\n", profile)


# Who may only write below /tmp from now on; a fork would have let it write anywhere.
CONFINED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.syscall(444, struct.pack('QQQ', 1 << 1 | 1 << 8, 0, 0), 8, 0)
assert fd >= 0 and libc.syscall(445, fd, 1, struct.pack('=Qi', 1 << 1 | 1 << 8, os.open('/tmp', os.O_PATH)), 0) == 0
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.syscall(446, fd, 0) == 0
print('confined', flush=True)
if sys.argv[1:] == ['leave'] and (os.fork() or os.setsid() and os.fork()): os._exit(0)
for f in (0, 1, 2): os.close(f)
os.execvp('sleep', ['sleep', '1000'])
"""
SAYS_CONFINED = "(sleep): it may be confined by Landlock rules of its own"


def who_confines_itself_is_refused(instance, **options):
    """Nothing shows such a domain, so it was gone in forks, and behind a resume, without a word."""
    with instance.sandbox(**options) as box:
        equal(instance.ok(box, "setpriv --no-new-privs sleep 1000 >/dev/null 2>&1 & echo y"), "y\n")
        instance.ok(box, f"cat > /tmp/confined.py <<'END'\n{CONFINED}\nEND")
        for words in ([], ["leave"]):  # a command that goes on, and what one has left behind
            instance.remove(fork_live(instance, box)[0])
            run = instance.exec(box, "/usr/bin/python3", "/tmp/confined.py", *words)
            wait_output(instance, box, run, b"confined\n") if not words else instance.wait(box, run)
            for verb in ("fork", "suspend"):
                error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/{verb}")
                contains(error.message, SAYS_CONFINED)
                equal(error.code, "unsupported")
            contains(instance.cay("doctor", box, check=False).stdout, SAYS_CONFINED)
            instance.ok(box, "pkill -n -x sleep; while pgrep -x sleep | tail -n +2 | grep .; do sleep 0.05; done")


@require(*NEEDS)
def test_who_confines_itself(instance):
    who_confines_itself_is_refused(instance)


@require(*NEEDS, "userns", "newuidmap")
def test_who_confines_itself_rootless(tmp):
    with rootless(tmp) as instance:
        who_confines_itself_is_refused(instance)


@require(*NEEDS)
def test_many_who_confine_themselves(instance):
    """In more groups than the keeper has room for, which stay as long as their commands are remembered: of those who have ended nothing is left."""
    with instance.sandbox() as box:
        equal(instance.ok(box, "setpriv --no-new-privs sleep 1000 >/dev/null 2>&1 & echo y"), "y\n")
        instance.ok(box, f"cat > /tmp/confined.py <<'END'\n{CONFINED}\nEND")
        for _ in range(110):
            instance.ok(box, "/usr/bin/python3 /tmp/confined.py leave")
            instance.ok(box, "while [ $(pgrep -x sleep | wc -l) -lt 2 ]; do sleep 0.01; done; pkill -n -x sleep")
        instance.remove(fork_live(instance, box)[0])


@require(*NEEDS)
def test_nobody_listens(tmp):
    """Then there is no Landlock, which programs are used to."""
    instance = cay.Instance(tmp, env={"CAY_WITHOUT": "seccomp_listener"})
    try:
        instance.start()
        with instance.sandbox() as box:
            instance.ok(box, f"cat > /tmp/confined.py <<'END'\n{CONFINED}\nEND")
            contains(instance.cay("exec", box, "--", "/usr/bin/python3", "/tmp/confined.py", want=1).stderr, "AssertionError")
            instance.remove(fork_live(instance, box)[0])
    finally:
        instance.close()
