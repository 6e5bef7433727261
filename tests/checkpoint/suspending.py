# SPDX-License-Identifier: Apache-2.0
"""Suspending and resuming a sandbox, with a look at what is left of it in between."""

import contextlib
import ctypes
import fcntl
import os
import re

from lib import leaks
from lib.case import equal
from lib.cay import wait_until

NS_GET_ID = 0x8008b70d  # linux/nsfs.h of 6.18
NAMESPACE = re.compile(r"(cgroup|ipc|mnt|net|pid|time|user|uts):\[")


def drop_cache(instance, box):
    """The sandbox's own files and memory leave the page cache; the host's settings are nobody's business."""
    for top in (os.path.join(instance.state, "pool", "memory"), os.path.join(instance.state, "pool", "live", box)):
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    fd = os.open(path, os.O_RDONLY)
                    os.fsync(fd)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)


def memories(instance):
    """Objects of memory on disk; snapshots of earlier tests have some too."""
    return set(os.listdir(os.path.join(instance.state, "pool", "memory")))


def forgotten(instance, gone):
    """What was resumed is removed behind the answer."""
    wait_until(lambda: not memories(instance) & gone, 30, f"{gone} are removed")


def templates(instance):
    """Pids of what holds memory, or makes processes of it."""
    return {pid for name in ("cay-template", "cay-fork") for pid in instance.programs_named(name)}


def namespace_of(path):
    """The number of the namespace that @path in /proc leads to, which no later one gets (those in the links' text are given again); None: there is none, or the kernel has no such number."""
    number = ctypes.c_uint64()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.ioctl(fd, NS_GET_ID, number)
    os.close(fd)
    return number.value or None


def leads_to(path):
    """What link @path leads to; nothing where it is gone."""
    with contextlib.suppress(OSError):
        return os.readlink(path)
    return ""


def namespaces(pid):
    """Those that process @pid is in, or has open."""
    found = set()
    for folder in (f"/proc/{pid}/ns", f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            paths = [os.path.join(folder, name) for name in os.listdir(folder)]
            found |= {namespace_of(path) for path in paths if NAMESPACE.match(leads_to(path))}
    return found - {None}


def namespaces_inside(instance, box):
    """Those that are neither ours nor the server's, which may run in some of its own."""
    pid = instance.get(f"/v1/sandboxes/{box}")["init_pid"]
    return namespaces(pid).difference(namespaces("self"), *map(namespaces, instance.programs_named("cayd")))


def nothing_left(instance, box, before, inside):
    """No process, namespace (of those that its processes were @inside), group or socket of the sandbox, and no template that was not there @before (of snapshots)."""
    names = set(os.listdir(os.path.join(instance.run, "keepers")))
    equal([n for n in names if n.startswith(box)], [])
    for tag in instance.tags:
        equal([c for c in leaks.cgroups(tag) if box in c], [])
    mine = instance.own_processes()
    for pid in mine:
        line = leaks.read(f"/proc/{pid}/cmdline").replace("\0", " ")
        assert box not in line, f"a process is left: {line}"
        assert not inside & namespaces(pid), f"a namespace is left of {line}"
    equal(templates(instance) - before, set(), "templates are left")


def suspend(instance, box):
    before, inside = templates(instance), namespaces_inside(instance, box)
    assert inside or namespace_of("/proc/self/ns/pid") is None
    answer = instance.post(f"/v1/sandboxes/{box}/suspend")
    equal(answer["state"], "suspended")
    nothing_left(instance, box, before, inside)
    return answer


def resume(instance, box):
    answer = instance.post(f"/v1/sandboxes/{box}/resume")
    equal(answer["state"], "running")
    return answer


def there_and_back(instance, box):
    memory = suspend(instance, box)["memory"]["id"]
    drop_cache(instance, box)
    resume(instance, box)
    forgotten(instance, {memory})


def through_suspend_and_rewind(instance, box, check):
    """check(), which ends the program, holds behind a suspension, and behind a rewind to a snapshot with processes that are suspended again."""
    name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
    there_and_back(instance, box)
    check()
    instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
    there_and_back(instance, box)
    check()
    instance.call("DELETE", f"/v1/snapshots/{name}")
