# SPDX-License-Identifier: Apache-2.0
"""What a process of a sandbox has, seen from outside: ids, capabilities, filter, namespaces, mounts, descriptors.

The oracle for attacks that end inside the kernel: an attacker that got something must hold it somewhere, and here it is seen.
"""

import ctypes
import os
import pathlib
import socket
import stat

LIBC = ctypes.CDLL(None, use_errno=True)
SYS_PIDFD_OPEN, SYS_PIDFD_GETFD = 434, 438
SO_PROTOCOL, SO_DOMAIN, SO_GET_FILTER, SO_MEMINFO = 38, 39, 26, 55
NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "cgroup", "user")
CAPS_DEFAULT = sum(1 << c for c in (0, 1, 3, 4, 5, 6, 7, 13, 18, 31))
CAPS = {"default": CAPS_DEFAULT, "strict": 0, "debug": CAPS_DEFAULT | 1 << 19}
ANONYMOUS = {"[eventfd]", "[eventpoll]", "inotify", "[timerfd]", "[signalfd]", "[pidfd]", "seccomp notify"}
AGREED = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
FAMILIES = {(socket.AF_UNIX, socket.SOCK_STREAM), (socket.AF_UNIX, socket.SOCK_DGRAM), (socket.AF_UNIX, socket.SOCK_SEQPACKET),
            (socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM),
            (socket.AF_INET6, socket.SOCK_STREAM), (socket.AF_INET6, socket.SOCK_DGRAM)}
# TCP; UDP and echo requests (ping), which the packet filter refuses
PROTOCOLS = {socket.AF_INET: {socket.SOCK_STREAM: (6,), socket.SOCK_DGRAM: (17, socket.IPPROTO_ICMP)},
             socket.AF_INET6: {socket.SOCK_STREAM: (6,), socket.SOCK_DGRAM: (17, socket.IPPROTO_ICMPV6)}}


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def status(pid):
    found = dict(line.split(":", 1) for line in text(f"/proc/{pid}/status").splitlines() if ":" in line)
    # one that ended while it was read is cut short
    return found if found.get("Seccomp", "").strip() else {}


def filters_of_ours():
    """How many system call filters each program of a sandbox has before it installs one: FILTERS_OURS, above those that all of this was started below."""
    return 2 + int(status("self").get("Seccomp_filters", 0))


def namespaces(pid):
    found = {}
    for kind in NAMESPACES:
        try:
            found[kind] = os.readlink(f"/proc/{pid}/ns/{kind}")
        except OSError:
            pass
    return found


def extents(pid, kind):
    """The ids of the host that a process's user namespace has, as ranges."""
    rows = [line.split() for line in text(f"/proc/{pid}/{kind}_map").splitlines()]
    return [range(int(r[1]), int(r[1]) + int(r[2])) for r in rows if len(r) == 3]


def descriptor_of(pid, fd):
    """A copy of a descriptor of another process, or -1."""
    pidfd = LIBC.syscall(SYS_PIDFD_OPEN, pid, 0)
    if pidfd < 0:
        return -1
    copy = LIBC.syscall(SYS_PIDFD_GETFD, pidfd, fd, 0)
    os.close(pidfd)
    return copy


def filter_length(pid, fd):
    """Instructions of the filter of a socket of another process; 0 when there is none, or it is no socket."""
    copy, n = descriptor_of(pid, fd), ctypes.c_uint(0)
    if copy < 0:
        return 0
    rc = LIBC.getsockopt(copy, socket.SOL_SOCKET, SO_GET_FILTER, None, ctypes.byref(n))
    os.close(copy)
    return n.value if rc == 0 else 0


def held_by(pid, fd):
    """Bytes that wait in a socket of another process, with what the kernel takes beside; 0 when it is none."""
    copy = descriptor_of(pid, fd)
    if copy < 0:
        return 0
    said, n = (ctypes.c_uint32 * 16)(), ctypes.c_uint(64)
    rc = LIBC.getsockopt(copy, socket.SOL_SOCKET, SO_MEMINFO, said, ctypes.byref(n))
    os.close(copy)
    return said[0] if rc == 0 else 0


def held_in(pid):
    """The same of all that a process has; 0 when it has ended."""
    try:
        return sum(held_by(pid, int(fd)) for fd in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def opened(pids, path):
    """How many descriptors processes have of what is called so inside."""
    n = 0
    for pid in pids:
        try:
            n += sum(os.readlink(f"/proc/{pid}/fd/{fd}") == path for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            pass  # it has ended
    return n


def locks(pids):
    """How many record locks are shown on the descriptors of processes."""
    n = 0
    for pid in pids:
        try:
            n += sum(pathlib.Path(f"/proc/{pid}/fdinfo/{fd}").read_bytes().count(b"lock:") for fd in os.listdir(f"/proc/{pid}/fdinfo"))
        except OSError:
            pass  # it has ended
    return n


def family(pid, fd):
    """(domain, type, protocol) of a socket of another process, asked of the socket itself."""
    copy = descriptor_of(pid, fd)
    if copy < 0:
        return None
    with socket.socket(fileno=copy) as s:
        return (s.getsockopt(socket.SOL_SOCKET, SO_DOMAIN), s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE),
                s.getsockopt(socket.SOL_SOCKET, SO_PROTOCOL))


def bad_socket(kind):
    domain, sort, protocol = kind
    if domain == socket.AF_NETLINK:
        return protocol != 0
    if (domain, sort) not in FAMILIES:
        return True
    return domain in PROTOCOLS and protocol not in PROTOCOLS[domain][sort]


def descriptors(pid):
    """Descriptors that a payload must not have, as text."""
    found = []
    try:
        numbers = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for n in numbers:
        path = f"/proc/{pid}/fd/{n}"
        try:
            link, st = os.readlink(path), os.stat(path)
        except OSError:
            continue
        if link.startswith("anon_inode:") and link[len("anon_inode:"):] not in ANONYMOUS:
            found.append(f"descriptor {n} is {link}")
        elif link.startswith("socket:"):
            kind = family(pid, int(n))
            if kind and bad_socket(kind):
                found.append(f"descriptor {n} is a socket of family {kind[0]} type {kind[1]} protocol {kind[2]}")
        elif stat.S_ISBLK(st.st_mode):
            found.append(f"descriptor {n} is the block device {link}")
        elif stat.S_ISCHR(st.st_mode):
            number = (os.major(st.st_rdev), os.minor(st.st_rdev))
            if number not in AGREED and not 136 <= number[0] <= 143:
                found.append(f"descriptor {n} is the device {link}")
        elif link.startswith(("/proc/sys", "/proc/sysrq", "/sys/")) and not os.access(path, os.W_OK):
            pass
        elif link.startswith("/secretmem"):
            found.append(f"descriptor {n} is secret memory")
    return found


def own_places(init):
    """Is /dev of the sandbox whose init is @init one of our own, whatever its image brought?"""
    root, found = f"/proc/{init}/root", []
    try:
        dev = os.lstat(root + "/dev")
        if not stat.S_ISDIR(dev.st_mode) or dev.st_dev == os.lstat(root + "/.").st_dev:
            return ["/dev is the image's"]
        for base, _, names in os.walk(root + "/dev"):
            for name in names:
                st = os.lstat(os.path.join(base, name))
                number = (os.major(st.st_rdev), os.minor(st.st_rdev))
                if stat.S_ISBLK(st.st_mode) or (stat.S_ISCHR(st.st_mode) and number not in AGREED and not 136 <= number[0] <= 143):
                    found.append(f"/dev/{name} is a device of {number}")
    except FileNotFoundError:
        pass
    return found[:3]


def tree(pid):
    """@pid and all below it."""
    found, todo = [], [pid]
    while todo and len(found) < 200:
        p = todo.pop()
        found.append(p)
        for t in (os.listdir(f"/proc/{p}/task") if os.path.isdir(f"/proc/{p}/task") else []):
            todo += [int(c) for c in text(f"/proc/{p}/task/{t}/children").split()]
    return found


# what a switched off defence changes about every process by itself: no evidence that an attack broke anything
OWN_EFFECT = {"seccomp": ("seccomp mode", "system call filters"), "capability_drop": ("Cap",), "no_new_privs_strict": ("no_new_privs",),
              "netns_lo_only": ("the sandbox shares the host's net",), "pidns": ("the sandbox shares the host's pid",),
              "ipcns": ("the sandbox shares the host's ipc",), "utsns": ("the sandbox shares the host's uts",),
              "cgroupns": ("the sandbox shares the host's cgroup",), "uid_shift": ("Uid 0", "Gid 0")}


class Sandbox:
    """What is true of a healthy sandbox, taken from its init just after it started; later looks are compared with it."""

    def __init__(self, init_pid, profile, ablate=()):
        self.init, self.profile = init_pid, profile
        self.ids = {kind: extents(init_pid, kind) for kind in ("uid", "gid")}
        self.ignore = tuple(text for defence in ablate for text in OWN_EFFECT.get(defence, ()))
        self.namespaces = namespaces(init_pid)
        self.host = namespaces("self")
        # the map as the host sees it: what uid 0 inside is outside
        self.base = self.host_uid(init_pid)
        self.mounts = self.mountinfo(init_pid)
        self.uid = int(status(init_pid).get("Uid", "0").split()[0])

    @staticmethod
    def host_uid(pid):
        fields = text(f"/proc/{pid}/uid_map").split()
        return int(fields[1]) if len(fields) >= 3 and fields[0] == "0" else -1

    def owns(self, number, kind="uid"):
        """Is @number, an id of the host, one of this sandbox?"""
        return any(number in r for r in self.ids[kind])

    @staticmethod
    def mountinfo(pid):
        return [" ".join(line.split()[2:7]) for line in text(f"/proc/{pid}/mountinfo").splitlines()]

    def broken(self, pid):
        """What is wrong with process @pid and all below it, and with the sandbox."""
        found = []
        # init joins the payload's user namespace as its last step: ask again
        self.namespaces.update(namespaces(self.init))
        for kind in NAMESPACES:
            if self.namespaces.get(kind) == self.host.get(kind):
                found.append(f"the sandbox shares the host's {kind} namespace")
        if self.mountinfo(self.init) != self.mounts and os.path.exists(f"/proc/{self.init}"):
            found.append("the sandbox's mounts changed")
        for p in tree(pid):
            found += self.process(p)
        return [f for f in found if not f.startswith(self.ignore)] if self.ignore else found

    def process(self, pid):
        found = []
        state = status(pid)
        if not state or state.get("State", "").strip().startswith(("Z", "X")):
            return found
        for kind, link in namespaces(pid).items():
            if kind in self.namespaces and link != self.namespaces[kind]:
                found.append(f"process in another {kind} namespace")
        for field in ("Uid", "Gid"):
            for one in state.get(field, "").split():
                if int(one) == 0:
                    found.append(f"{field} 0 outside")
                elif self.base > 0 and not self.owns(int(one), field.lower()):
                    found.append(f"{field} {one} outside of the sandbox's range")
        allowed = CAPS[self.profile]
        for field in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
            if int(state.get(field, "").strip() or "0", 16) & ~allowed:
                found.append(f"{field} {state[field].strip()}")
        if self.profile == "strict" and state.get("NoNewPrivs", "").strip() != "1":
            found.append("no_new_privs is off")
        for task in (os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else []):
            thread = status(f"{pid}/task/{task}")
            mode, filters = thread.get("Seccomp", "2").strip(), thread.get("Seccomp_filters", "").strip()
            if mode != "2":
                found.append(f"seccomp mode {mode}")
            # Linux 5.9
            if filters and int(filters) < filters_of_ours():
                found.append(f"system call filters: {filters}")
        return sorted(set(found)) + descriptors(pid)
