# SPDX-License-Identifier: Apache-2.0
"""What one test left behind: processes, mounts, loop devices, cgroups, files. Reads the kernel's own lists; changes nothing
except in kill_all(), which ends exactly the processes that it is given."""

import ctypes
import os
import re
import select
import signal
import subprocess
import time

PR_SET_CHILD_SUBREAPER = 36
CGROUP_ROOT = "/sys/fs/cgroup"


def become_subreaper():
    """Orphans of our descendants become our children, so that no process of a test can slip away."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read(path, default=""):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return default


def processes():
    """{pid: (ppid, state, comm)} of every process."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        stat = read(f"/proc/{name}/stat")
        if not stat:
            continue
        comm = stat[stat.index("(") + 1:stat.rindex(")")]
        rest = stat[stat.rindex(")") + 2:].split()
        table[int(name)] = (int(rest[1]), rest[0], comm)
    return table


def keeper_of(box):
    """Pid of the keeper of sandbox @box."""
    return next(pid for pid in processes() if f"cay-keeper\0sandbox\0{box}\0" in read(f"/proc/{pid}/cmdline"))


def descendants(root):
    """Pids below @root, zombies that nobody has reaped yet included, nearest first."""
    table = processes()
    children = {}
    for pid, (ppid, _, _) in table.items():
        children.setdefault(ppid, []).append(pid)
    found, todo = [], [root]
    while todo:
        for pid in children.get(todo.pop(0), []):
            found.append(pid)
            todo.append(pid)
    return found


def reap(but=0):
    """Collect children of ours that have ended, all except @but: orphans that came to us, which an init would collect elsewhere."""
    mine = os.getpid()
    for pid, (parent, state, _) in processes().items():
        if parent == mine and state == "Z" and pid != but:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def describe(pid):
    """What a process is and where it stands; for reports."""
    _, state, comm = processes().get(pid, (0, "?", "?"))
    command = read(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
    where = read(f"/proc/{pid}/wchan").strip()
    return f"{pid} {comm} [{state}] wchan={where or '?'} {command[:160]}"


def stack(pid):
    lines = read(f"/proc/{pid}/stack").splitlines()[:12]
    call = read(f"/proc/{pid}/syscall").strip()
    return "".join(f"      {line}\n" for line in [f"syscall {call}"] + lines)


def wait_gone(root, seconds):
    """Wait until no descendant of @root is left. Returns those that stayed."""
    deadline = time.monotonic() + seconds
    while True:
        reap()
        left = descendants(root)
        if not left or time.monotonic() > deadline:
            return left
        try:
            fd = os.pidfd_open(left[0])
        except ProcessLookupError:
            continue
        poller = select.poll()
        poller.register(fd, select.POLLIN)
        poller.poll(max(1, min(200, int((deadline - time.monotonic()) * 1000))))
        os.close(fd)


def kill_all(root, seconds=20):
    """End every descendant of @root; again until none is left, since a keeper may start others meanwhile."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        reap()
        left = descendants(root)
        if not left:
            return []
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        wait_gone(root, 1)
    return descendants(root)


def processor_quota(pid):
    """Microseconds of processor time in each tenth of a second that a process's own control group may have; None: as many as it likes."""
    for line in read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            quota = read(f"{CGROUP_ROOT}/{controllers}{path}/cpu.cfs_quota_us", read(f"{CGROUP_ROOT}/cpu{path}/cpu.cfs_quota_us", "-1"))
            return int(quota) if int(quota) > 0 else None
    unified = next(line.split("::", 1)[1] for line in read(f"/proc/{pid}/cgroup").splitlines() if line.startswith("0::"))
    quota = read(f"{CGROUP_ROOT}{unified}/cpu.max", "max").split()[0]
    return None if quota == "max" else int(quota)


def own_group():
    """The v2 control group below which servers that we start may make theirs: root's is the root of the tree; None when there is none."""
    point = next((line.split()[4] for line in read("/proc/self/mountinfo").splitlines() if " - cgroup2 " in line), None)
    own = re.search(r"^0::(\S*)$", read("/proc/self/cgroup"), re.M)
    if point is None or own is None:
        return None
    group = point if os.getuid() == 0 else point + own[1].removesuffix("/server")
    return group if os.access(os.path.join(group, "cgroup.procs"), os.W_OK) else None


def cgroup_tags(pids):
    """Instances (cay-TAG) whose cgroups hold one of @pids."""
    tags = set()
    for pid in pids:
        tags.update(re.findall(r"/(cay-[0-9a-f]{8})(?=/|$)", read(f"/proc/{pid}/cgroup"), re.M))
    return tags


def remove(path):
    """Remove a tree of a test, also what belongs to an ordinary user's subordinate ids or what nobody may read."""
    within = [] if os.getuid() == 0 else ["unshare", "--user", "--map-root-user", "--map-auto"]
    subprocess.run([*within, "rm", "-rf", "--one-file-system", path], check=False)


def cgroups(tag):
    """Directories of instance @tag (cay-XXXXXXXX) in every hierarchy, v1 and v2."""
    found = []
    hierarchies = [CGROUP_ROOT]
    try:
        hierarchies += [os.path.join(CGROUP_ROOT, d) for d in os.listdir(CGROUP_ROOT)]
    except OSError:
        return []
    for base in hierarchies:
        path = os.path.join(base, tag)
        if os.path.isdir(path):
            found.append(path)
    return found


def cgroup_report(path):
    """A left-over cgroup with what is in it."""
    inside = [os.path.relpath(where, path) for where, _, _ in os.walk(path) if where != path]
    return path + (": " + " ".join(inside[:8]) if inside else "")


def mounts(prefix):
    """Mount points at or below @prefix, and mounts whose source lies there, seen from here."""
    found = []
    for line in read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        target = left.split()[4]
        source = (right.split() + ["", ""])[1]
        if target.startswith(prefix) or source.startswith(prefix) or prefix + "/" in right:
            found.append(f"{target} ({source})")
    return found


def loops(prefix):
    """Loop devices whose backing file lies below @prefix (also when it was deleted). One that goes by itself with its last user is
    none: a mount or an open descriptor of ours is found as such, and a mount namespace of somebody else may hold a copy for a while."""
    found = []
    for name in os.listdir("/sys/block"):
        backing = read(f"/sys/block/{name}/loop/backing_file").strip()
        if backing.startswith(prefix) and read(f"/sys/block/{name}/loop/autoclear").strip() != "1":
            found.append(f"/dev/{name} ({backing})")
    return found


def listing():
    """What may be ours in the places where careless programs leave things, cgroups and network namespaces included; compared only when
    no other instance runs on this machine."""
    names = set()
    for place in ("/tmp", "/dev/shm", "/run", "/run/netns", "/sys/fs/cgroup", *(e.path for e in os.scandir(CGROUP_ROOT) if e.is_dir())):
        try:
            names.update(os.path.join(place, n) for n in os.listdir(place) if "cay" in n or place in ("/dev/shm", "/run/netns"))
        except OSError:
            pass
    return names
