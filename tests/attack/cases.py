# SPDX-License-Identifier: Apache-2.0
"""The attack cases that one program performs inside: what must be observed, which oracle says so, in which sandboxes they run.

Ids are those of the catalogue; a letter after the number is one of several attacks of a row. `shared` cases leave nothing behind and
share a sandbox; `fresh` ones end, fill or change theirs. What each read is compared with what was hidden (`check`).
"""

import ctypes
import dataclasses
import os
import re
import signal
import socket
import time
from typing import Callable, Optional

import posture
from canary import read
from lib import cay
from lib.pace import patience


@dataclasses.dataclass
class Case:
    id: str
    expected: str
    oracle: str
    kind: str = "shared"                       # shared, fresh, outside
    users: tuple = ("root", "daemon")
    profiles: tuple = ("default", "strict")
    args: Optional[Callable] = None            # session, sandbox -> {key: value}
    check: Optional[Callable] = None           # session, sandbox, result, status -> [reason]
    unreachable: Optional[Callable] = None     # -> reason when this kernel has nothing to attack
    redcell: str = ""                          # id known to the attacker, when it is another
    limits: Optional[dict] = None
    traced: Optional[dict] = None              # pattern of a call -> the refusals that a tracer outside must see (tracer.py)
    children: bool = False                     # the calls are those of its children
    function: Optional[Callable] = None        # outside cases: session -> (outcome, detail)
    attack: str = ""
    seconds: int = 20


# ---- what the runner knows better than the attacker ------------------------------------------------------------------------------

def host_lines(session, sandbox, result, status):
    """Nothing of this instance's places or of other sandboxes may be readable inside."""
    found = []
    others = [b["id"] for b in session.posture_ids() if b["id"] != sandbox["id"]]
    # where a bind mount comes from is shown by the kernel; who mounts a directory has named it
    for word in [session.instance.dir, "/cay-", "keeper"] + others:
        for line in result["proof"].splitlines():
            if word in line:
                found.append(f"{word!r} is visible: {line.strip()[:120]}")
                break
    return found


def host_size(session, sandbox, result, status):
    found = []
    total = [line for line in read("/proc/meminfo").decode().splitlines() if line.startswith("MemTotal")][0]
    if total in result["proof"]:
        found.append(f"the host's {total}")
    version = read("/proc/version").decode().strip()
    if version and version in result["proof"]:
        found.append("the host's kernel version string")
    return found


def own_namespaces(session, sandbox, result, status):
    seen = set(result["proof"].split())
    found = [f"shares {link} with the host" for link in posture.namespaces("self").values() if link in seen]
    other = posture.namespaces(session.neighbour["init_pid"])
    return found + [f"shares {link} with the neighbour" for link in other.values() if link in seen]


def lo_only(session, sandbox, result, status):
    names = [line.split(":")[0].strip() for line in read(f"/proc/{sandbox['init_pid']}/net/dev").decode().splitlines() if ":" in line]
    return [f"interfaces {names}"] if names != ["lo"] else []


def score_kept(session, sandbox, result, status):
    scores = [int(read(f"/proc/{p}/oom_score_adj") or b"500") for p in session.processes(sandbox)]
    return [f"oom_score_adj {min(scores)}"] if min(scores, default=500) < 500 else []


def own_dev(session, sandbox, result, status):
    return posture.own_places(sandbox["init_pid"])


def no_cores(session, sandbox, result, status):
    """Nothing that the kernel wrote because a program crashed, where it stood."""
    root = f"/proc/{sandbox['init_pid']}/root"
    return [f"core dump {os.path.join(base, n)}" for place in ("/root", "/tmp") for base, _, names in os.walk(root + place)
            for n in names if n == "core" or n.startswith("core.")][:1]


def environment(session, sandbox, result, status):
    bad = ("LD_", "GCONV", "GLIBC_TUNABLES", "BASH_ENV", "PYTHONSTARTUP", "CAY_", "SSH_", "SECRET")
    return [f"inherited {line.split('=')[0]}" for line in result["proof"].splitlines() if line.startswith(bad)]


def descriptors_bounded(session, sandbox, result, status):
    """What the attacker holds, in its descriptor table."""
    most = max((len(os.listdir(f"/proc/{p}/fd")) for p in session.processes(sandbox)), default=0)
    limit = sandbox["limits"]["files"]
    return [f"{most} descriptors, the limit is {limit}"] if not limit // 2 < most <= limit else []


TERMINALS_MAX = 64  # of a sandbox


def terminals_bounded(session, sandbox, result, status):
    """What the attacker holds, in the sandbox's directory of terminals."""
    made = sum(name.isdigit() for name in os.listdir(f"/proc/{sandbox['init_pid']}/root/dev/pts"))
    return [f"{made} terminals, the limit is {TERMINALS_MAX}"] if not TERMINALS_MAX // 2 < made <= TERMINALS_MAX else []


def ended_by_oom(session, sandbox, result, status):
    """Either refused, or the end is reported with its reason; memory outside stays below the limit."""
    used = session.usage(sandbox)
    limit = sandbox["limits"]["memory_bytes"]
    found = []
    if used.get("memory_peak_bytes", 0) > limit * 1.05:
        found.append(f"peak {used['memory_peak_bytes']} bytes, the limit is {limit}")
    if not result["detail"] and status["status"] not in ("oom", "killed", "signaled", "limit"):
        found.append(f"ended without a reason: {status}")
    return found


def sockets_bounded(session, sandbox, result, status):
    """What the protocols hold on this machine, others' too, while the attacker holds what it got."""
    limit = sandbox["limits"]["memory_bytes"]
    held = {p: int(n) * os.sysconf("SC_PAGESIZE") for p, n in re.findall(r"^(TCP|UDP): .*mem (\d+)", read("/proc/net/sockstat").decode(), re.M)}
    return ended_by_oom(session, sandbox, result, status) + [
        f"{n >> 20} MiB of the machine's in buffers of {p}, the limit is {limit >> 20}" for p, n in held.items() if n > limit]


def net_of(sandbox, name):
    """Rows of a file of the sandbox's /proc/net, read from outside."""
    return [line.split() for line in read(f"/proc/{sandbox['init_pid']}/net/{name}").decode().splitlines()]


def unread_bounded(session, sandbox, result, status):
    """What waits in sockets of netlink and ping, which no control group counts."""
    limit = sandbox["limits"]["memory_bytes"]
    held = sum(int(r[4]) for r in net_of(sandbox, "netlink")[1:])
    held += sum(int(r[4].split(":")[1], 16) for name in ("icmp", "icmp6") for r in net_of(sandbox, name)[1:])
    return [f"{held >> 20} MiB in queues that nobody reads, the limit is {limit >> 20}"] if held > limit * 2 else []


def unread_uncounted(session, sandbox):
    """Bytes that wait in the attacker's sockets, and in connections that nobody has accepted, which are no descriptor's."""
    held = sum(posture.held_in(p) for p in session.processes(sandbox))
    return held + sum(int(r[4].split(":")[1], 16) for r in net_of(sandbox, "tcp")[1:] if r[9] == "0")


def soon_no_more(held, sandbox, where):
    """What no control group counts, while the attacker holds it: soon no more than it may have of what is counted."""
    limit = sandbox["limits"]["memory_bytes"]
    try:
        cay.wait_until(lambda: held() <= limit, 15, "the attacker's end")
    except AssertionError:
        return [f"{held() >> 20} MiB {where}, the limit is {limit >> 20}"]
    return []


def uncounted_ends(session, sandbox, result, status):
    return soon_no_more(lambda: unread_uncounted(session, sandbox), sandbox, "in queues that nobody reads")


NAMES, NAME_BYTES = 3000, 96  # at least


def listings_end(session, sandbox, result, status):
    """What the overlay keeps for descriptors of a directory that the attacker has listed, each of them behind a change."""
    return soon_no_more(lambda: posture.opened(session.processes(sandbox), "/srv") * NAMES * NAME_BYTES, sandbox, "of names for directories that are open")


LOCK_BYTES = 192  # at least


def locks_end(session, sandbox, result, status):
    """What the kernel keeps for locks, of which each is shown by one descriptor."""
    return soon_no_more(lambda: posture.locks(session.processes(sandbox)) * LOCK_BYTES, sandbox, "of record locks")


STALLING = 8  # red_stall.c: CHILDREN
STALL_S = 4  # by which a server that waits for somebody is told from one on a busy machine


def server_answers(session, sandbox, result, status):
    """The server itself, which comes to what the attacker has begun (red_stall.c: BEGIN_S) when that is under way, as one that is busy does."""
    server = session.instance.process.pid
    os.kill(server, signal.SIGSTOP)
    try:
        cay.wait_until(lambda: sum(read(f"/proc/{p}/comm") == b"exe\n" for p in session.processes(sandbox)) >= STALLING, 30, "the attacker's programs")
    finally:
        os.kill(server, signal.SIGCONT)
    start = time.monotonic()
    session.instance.get("/v1/version")
    took = time.monotonic() - start
    return [f"the server took {took:.1f} s to answer"] if took > patience(STALL_S) else []


GROUPS_MAX = 1024  # sandbox/ration.h
SOURCES_MAX = 1024


def groups_bounded(session, sandbox, result, status):
    """Groups of multicast and their sources, as the kernel lists them."""
    n = sum(len(net_of(sandbox, name)) for name in ("igmp", "igmp6", "mcfilter", "mcfilter6"))
    return [f"{n} groups and sources of multicast"] if n > GROUPS_MAX + SOURCES_MAX + 64 else []


def labels_left(session, sandbox, result, status):
    n = len(net_of(sandbox, "ip6_flowlabel")) - 1
    return [f"{n} of the machine's flow labels"] if n > 0 else []


PROGRAMS_MAX = 1024  # sandbox/ration.h


def programs_bounded(session, sandbox, result, status):
    """System call filters of programs, of each thread another one."""
    own = posture.filters_of_ours()
    n = sum(int(posture.status(f"{p}/task/{t}").get("Seccomp_filters", own)) - own
            for p in session.processes(sandbox) for t in os.listdir(f"/proc/{p}/task"))
    return [f"{n} filters of system calls, the limit is {PROGRAMS_MAX}"] if n > PROGRAMS_MAX else []


FILTERS_MAX = 256  # sandbox/ration.h


def filters_bounded(session, sandbox, result, status):
    """Sockets with a filter, each asked from outside."""
    n = sum(posture.filter_length(p, int(fd)) > 0 for p in session.processes(sandbox) for fd in os.listdir(f"/proc/{p}/fd"))
    return [f"{n} filters of sockets, the limit is {FILTERS_MAX}"] if n > FILTERS_MAX else []


def disk_bounded(session, sandbox, result, status):
    """The bytes that the sandbox takes on the host."""
    used = session.disk_of(sandbox)
    limit = sandbox["limits"]["disk_bytes"]
    return [f"{used >> 20} MiB on the host's disk, the limit is {limit >> 20}"] if used > limit * 1.25 + (4 << 20) else []


def timers_bounded(session, sandbox, result, status):
    """Each POSIX timer holds a signal of the machine's quota for this user; /proc shows the timers of a process."""
    counts = [read(f"/proc/{p}/timers").count(b"\nsignal:") for p in session.processes(sandbox)]
    most = max(counts, default=0)
    return [f"{most} timers, the limit is 4096"] if most > 4096 else []


INSTANCES_MAX = 240  # more than these the sandbox's own limit of descriptors keeps an attacker from taking


def inotify_left(session, sandbox, result, status):
    """While the attacker holds all that it got, the machine's root still gets an instance."""
    fd = ctypes.CDLL(None, use_errno=True).inotify_init1(os.O_CLOEXEC)
    if fd < 0:
        return [f"no instance is left to the machine's root ({os.strerror(ctypes.get_errno())})"]
    os.close(fd)
    return []


def inotify_is_plenty():
    most = int(read("/proc/sys/fs/inotify/max_user_instances"))
    return None if most < INSTANCES_MAX else f"fs.inotify.max_user_instances is {most}: one sandbox cannot take them all"


def inodes_bounded(session, sandbox, result, status):
    """Counted from outside, through the sandbox's root."""
    made = len(os.listdir(f"/proc/{sandbox['init_pid']}/root/tmp/inodes"))
    limit = sandbox["limits"]["inodes"]
    return [f"{made} files, the limit is {limit}"] if made > limit else []


def pids_bounded(session, sandbox, result, status):
    # children of the attacker, and the limit's own overhead: init
    n = session.process_count(sandbox)
    limit = sandbox["limits"]["pids"]
    return [f"{n} processes, the limit is {limit}"] if n > limit + 2 else []


def no_family(family, kind=socket.SOCK_STREAM):
    def probe():
        try:
            socket.socket(family, kind).close()
            return None
        except OSError as error:
            return f"not in this kernel: {error.strerror}"
    return probe


def no_x32():
    return "no x32 calls in this kernel" if ctypes.CDLL(None).syscall(0x40000000 | 39) < 0 else None


def no_ksm():
    return None if os.path.exists("/sys/kernel/mm/ksm") else "no page merging in this kernel"


def no_permissions():
    return None if tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 11) else "this kernel does not say what a mapping is"


def other_machine():
    return None if os.uname().machine == "x86_64" else "the attacker begins so on x86_64 alone"


def pid_of_canary(session, sandbox):
    return {"pid": session.host.process_of_uid(session.posture[sandbox["id"]].base)}


def suid_args(session, sandbox):
    return {"suiddir": "/rw"}


MEMORY = {"memory_bytes": 64 << 20, "pids": 64, "disk_bytes": 64 << 20, "inodes": 4000, "files": 256}
PIPES = dict(MEMORY, files=8192)
DISK = {"memory_bytes": 256 << 20, "pids": 64, "disk_bytes": 16 << 20, "inodes": 1000, "files": 256}

ROOT_ONLY = {"users": ("root",)}
FRESH = {"kind": "fresh", "users": ("root",), "profiles": ("default",)}

# What a tracer outside must see, of calls whose success would leave nothing to look at (tracer.py).
CLOSED = {rf"{call}\(": error for error, calls in {
    "EPERM": "ptrace process_vm_readv process_vm_writev kcmp bpf perf_event_open userfaultfd fanotify_init quotactl open_by_handle_at mount umount2 "
             "pivot_root move_mount fsopen fsmount setns swapon init_module finit_module kexec_load iopl ioperm syslog modify_ldt move_pages "
             "migrate_pages vmsplice",
    "ENOSYS": "keyctl add_key request_key io_uring_setup io_uring_enter io_uring_register io_setup clone3 memfd_secret",
    "EPERM ENOSYS": "lookup_dcookie uselib nfsservctl"}.items() for call in calls.split()}
UNKNOWN = {r"syscall_0x(?:1d[6-9a-f]|1[ef][0-9a-f]|20[0-9a-f]|21[0-9ab])\(": "ENOSYS"}
TERMINAL_REQUESTS = {rf"ioctl\(\d+, {request}\b": "ENOTTY" for request in ("0x5423", "0x541c", "0x541d", "0x4b4d", "0x5606")}
SOCKET_OPTIONS = {rf"setsockopt\(\d+, {option}, ": "EPERM" for option in ("0x11, 0x64", "0x6, 0x13", "0x6, 0x1e", "0x6, 0x1f", "0x1, 0x32")}
OPTIONS = {rf"prctl\({option}[,)]": error for option, error in {"0x23": "EPERM", "0x1a": "EINVAL", "0x43": "EINVAL", "0x1f": "EINVAL"}.items()}
LIMITS_RAISED = {rf"prlimit64\(0, {limit}, {{": "EPERM" for limit in ("0x8", "0xc", "0xb")} | {r"mlock\(": "EPERM ENOMEM"}

INSIDE = [
    Case("FS-01", "not there, not read", "secrets in what was read; access times"),
    Case("FS-02", "stays at /", "secrets in what was read; access times"),
    Case("FS-03", "stays in the root", "secrets in what was read; posture", users=("root",)),
    Case("FS-04", "0-2 and nothing else", "descriptor table from outside"),
    Case("FS-05", "EXDEV", "links and mode of the volume's file"),
    Case("FS-06", "closed, or the same view", "directory outside"),
    Case("FS-08", "EPERM", "posture"),
    Case("FS-08B", "inert", "posture"),
    Case("FS-09", "EPERM", "posture"),
    Case("FS-12", "ENOTTY", "posture; directory outside"),
    Case("FS-13", "refused", "content of the volume"),
    Case("FS-16", "EROFS", "content, mode, owner, times of the volume", **FRESH),
    Case("FS-17", "the copy changes, the host's file does not", "content, mode, links of the directory below", **FRESH),
    Case("PR-01", "closed", "settings of the host"),
    Case("PR-01B", "closed", "settings of the host; posture"),
    Case("PR-02", "closed or empty", "what was read"),
    Case("PR-03", "own processes only", "secret of the canary process", args=lambda s, b: {"pid": s.host.process.pid}),
    Case("PR-04", "no path and no name of the host", "this instance's paths and ids in what was read", check=host_lines),
    Case("PR-05", "closed", "secrets in what was read"),
    Case("PR-06", "the sandbox's own numbers", "host's numbers in what was read", check=host_size),
    Case("PR-07", "EROFS", "content of the volume"),
    Case("PR-08", "EPERM", "mounts of the sandbox from outside"),
    Case("PR-13", "absent", "what is there"),
    Case("PR-14", "all differ", "ids of the host's and the neighbour's namespaces", check=own_namespaces),
    Case("MN-01", "EPERM", "mounts of the sandbox from outside"),
    Case("MN-02", "EPERM", "mounts of the sandbox from outside"),
    Case("MN-03", "EPERM", "mounts of the sandbox from outside"),
    Case("MN-04", "EPERM", "descriptor table"),
    Case("MN-08", "no nested namespace", "posture"),
    Case("NS-01", "EPERM, ENOSYS", "namespaces of each process from outside"),
    Case("NS-02", "EPERM, ENOSPC", "namespaces and capabilities from outside"),
    Case("NS-03", "EPERM", "namespaces of each process from outside"),
    Case("NS-04", "EPERM", "capabilities from outside; settings of the host"),
    Case("NS-05", "EPERM", "posture"),
    Case("NS-05B", "EPERM", "posture"),
    Case("NS-05C", "EPERM", "host name"),
    Case("NS-06", "EPERM", "ids from outside"),
    Case("NS-07", "ENOSYS", "secret key of the host"),
    Case("NS-07B", "not found", "secret key of the host"),
    Case("NS-08", "EPERM", "posture"),
    Case("NS-09", "EPERM, ENOTTY", "posture"),
    Case("NS-11", "none beyond the profile", "capabilities from outside"),
    Case("NS-12", "ids of the range only", "ids from outside"),
    Case("DV-01", "the six nodes", "nodes below the sandbox's /dev, from outside", check=own_dev),
    Case("DV-02", "ENOTTY", "a tracer outside", traced={r"ioctl\(\d+, 0x5412\b": "ENOTTY"}, children=True),
    Case("DV-02B", "ENOTTY", "a tracer outside", traced={r"ioctl\(\d+, 0x5412\b": "ENOTTY"}, children=True),
    Case("DV-03", "ENOTTY", "a tracer outside", traced=TERMINAL_REQUESTS, children=True),
    Case("DV-04", "ENXIO, ENOENT", "a terminal of the host"),
    Case("DV-05", "stops at the limit", "neighbour; number of terminals", check=terminals_bounded, kind="fresh", users=("root",), profiles=("default",),
         args=lambda s, b: {"ptys": 200}, limits=dict(MEMORY, files=1024)),
    Case("DV-09", "absent", "nodes below the sandbox's /dev, from outside", check=own_dev),
    Case("KS-01", "the refusal that the profile promises", "a tracer outside", traced=CLOSED | UNKNOWN),
    Case("KS-02", "killed or ENOSYS", "exit of the process"),
    Case("KS-02B", "ENOSYS or killed", "system call", unreachable=no_x32),
    Case("KS-03", "as without the high bits", "posture"),
    Case("KS-04", "families of the allow-list only", "family of each socket, asked from outside"),
    Case("KS-04B", "route only", "protocol of each socket, asked from outside"),
    Case("KS-05", "no socket", "family of each socket, asked from outside", unreachable=no_family(40)),
    Case("KS-06", "no socket", "family of each socket, asked from outside", unreachable=no_family(38, socket.SOCK_SEQPACKET)),
    Case("KS-07", "ENOSYS", "descriptor table"),
    Case("KS-08A", "EPERM", "descriptor table"),
    Case("KS-08B", "EPERM", "descriptor table"),
    Case("KS-08C", "EPERM", "descriptor table"),
    Case("KS-08D", "EPERM", "descriptor table"),
    Case("KS-09", "EPERM", "a tracer outside", traced={r"ptrace\(0x4206, ": "EPERM"}),
    Case("KS-09B", "EPERM", "descriptor table"),
    Case("KS-10", "EPERM", "a tracer outside", traced=SOCKET_OPTIONS),
    Case("KS-11", "denied stays denied", "descriptor table"),
    Case("KS-12", "filtered", "filters counted from outside"),
    Case("KS-13", "every thread filtered", "filters counted from outside"),
    Case("KS-16", "no core dump", "files outside and in the sandbox"),
    Case("KS-17", "EINVAL, EPERM", "a tracer outside", traced=OPTIONS),
    Case("KS-18", "EPERM", "a tracer outside", traced={r"personality\(0\|0x40000\)": "EPERM", r"personality\(0\|0x400000\)": "EPERM"}),
    Case("KS-19", "EPERM", "a tracer outside", traced={r"modify_ldt\(": "EPERM"}),
    Case("KS-20", "ENOSYS", "descriptor table"),
    Case("KS-21", "EPERM", "a tracer outside", traced={r"pidfd_getfd\(": "EPERM", r"process_vm_readv\(": "EPERM"}),
    Case("KS-22", "EFAULT", "the kernel's answers", unreachable=no_permissions),
    Case("LL-02", "nothing arrives", "listeners on the host's addresses", users=("root",), profiles=("default",),
         args=lambda s, b: {"port": s.host.listeners.port, "addresses": s.addresses(), "nonce": s.host.nonce}, seconds=60),
    Case("LL-02B", "lo only", "interfaces of the sandbox, from outside", check=lo_only),
    Case("NW-03", "ECONNREFUSED", "a tracer outside", traced={r"connect\(": "ECONNREFUSED"}),
    Case("LL-03", "ECONNREFUSED", "abstract listeners of the host",
         args=lambda s, b: {"abstract": s.host.listeners.name, "abstract_dgram": s.host.listeners.name + "-dgram"}),
    Case("LL-03B", "ENOENT, ECONNREFUSED", "path listeners of the host, the API socket",
         args=lambda s, b: {"sockets": ":".join(s.host.listeners.paths + [s.instance.socket])}),
    Case("LL-03C", "absent", "a tracer outside", traced={r"connect\(": "ENOENT ECONNREFUSED"}),
    Case("LL-04", "ESRCH, EPERM", "signals that the canary process counts", args=pid_of_canary),
    Case("LL-04B", "ESRCH", "priority of the canary process", args=pid_of_canary),
    Case("LL-06", "ESRCH, no signal", "signals that the canary process counts", args=pid_of_canary),
    Case("PS-03", "not visible", "secret in the host's segment", args=lambda s, b: {"shmkey": s.host.shm.key}),
    Case("PS-07", "init goes on", "init from outside"),
    Case("PS-10", "closed", "descriptor table"),
    Case("EX-01", "closed", "hash of our programs"),
    Case("EX-04", "only what was asked for", "names in the environment", check=environment),
    Case("SC-02", "ENOSYS", "a tracer outside", traced={r"(?:cachestat|syscall_0x1c3)\(": "ENOSYS"}),
    Case("SC-03", "EINVAL", "ksm switch of the host", unreachable=no_ksm),
    Case("SC-03B", "EINVAL", "a tracer outside", traced={r"madvise\([^,]+, (?:4096|0x1000), (?:12|0xc)\)": "EINVAL"}, unreachable=no_ksm),
    Case("SC-06", "none", "what was read"),
    Case("SC-07", "synthetic or absent", "host's numbers in what was read", check=host_size),
    Case("CG-01", "EPERM", "mounts of the sandbox from outside"),
    Case("CG-02", "absent, or not theirs to write", "a tracer outside", traced={r'openat\(-100, "/sys/fs/cgroup/': "ENOENT EACCES"}),
    Case("CG-03", "ENOSYS", "posture"),
    Case("RX-08", "ENOSYS", "a tracer outside", traced={r"io_setup\(": "ENOSYS"}),
    Case("RX-10", "EPERM", "scheduling class from outside"),
    Case("RX-20", "EROFS", "oom_score_adj from outside", check=score_kept),
    Case("RX-20B", "EROFS", "oom_score_adj from outside", check=score_kept),
    Case("RX-21", "limits stand", "a tracer outside", traced=LIMITS_RAISED),
    Case("RX-23", "EPERM", "labels that the kernel lists", check=labels_left),
    Case("RX-26", "ENOSPC, ENOSYS", "a tracer outside",
         traced={r"l?setxattr\(": "ENOSPC", r"fsetxattr\(": "ENOSPC", r"(?:setxattrat|syscall_0x1cf)\(": "ENOSYS"}),
    # fresh sandboxes: these end or fill theirs
    Case("PS-01", "only the sandbox's own processes end", "canary processes; neighbour; init", **FRESH),
    Case("PS-08", "stops at the limit", "processes counted outside; neighbour", check=pids_bounded, limits=MEMORY,
         args=lambda s, b: {"processes": 200}, **FRESH),
    Case("RX-01", "stops at the limit", "processes counted outside; neighbour", check=pids_bounded, limits=MEMORY,
         args=lambda s, b: {"processes": 200}, **FRESH),
    Case("RX-02A", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=MEMORY,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02B", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=MEMORY,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02C", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=MEMORY,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02D", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=MEMORY,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02E", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=PIPES,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02F", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=PIPES,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02G", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=MEMORY,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02H", "refused or ended as oom", "peak memory of the cgroup; neighbour", check=ended_by_oom, limits=MEMORY,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02I", "refused", "buffers of TCP on the machine; neighbour", check=sockets_bounded, limits=PIPES,
         args=lambda s, b: {"mib": 160, "sockets": 200}, **FRESH),
    Case("RX-02J", "refused", "buffers of UDP on the machine; neighbour", check=sockets_bounded, limits=PIPES,
         args=lambda s, b: {"mib": 160}, **FRESH),
    Case("RX-02K", "ENOBUFS", "bytes that wait in the sandbox's sockets of netlink; neighbour", check=unread_bounded, limits=PIPES,
         args=lambda s, b: {"sockets": 24}, **FRESH),
    Case("RX-02L", "ENOBUFS", "bytes that wait in the sandbox's ping sockets; neighbour", check=unread_bounded, limits=PIPES,
         args=lambda s, b: {"sockets": 24}, **FRESH),
    Case("RX-02M", "ENOBUFS", "groups and sources that the kernel lists; neighbour", check=groups_bounded, limits=PIPES,
         args=lambda s, b: {"sockets": 200}, **FRESH),
    Case("RX-02N", "ended for it", "bytes that wait in connections without a descriptor; neighbour", check=uncounted_ends, limits=PIPES,
         args=lambda s, b: {"connections": 100}, **FRESH),
    Case("RX-02O", "ended for it", "bytes that wait in the attacker's sockets; neighbour", check=uncounted_ends, limits=PIPES,
         args=lambda s, b: {"mib": 256}, **FRESH),
    Case("RX-02P", "ended for it", "bytes that wait in the attacker's sockets; neighbour", check=uncounted_ends, limits=PIPES,
         args=lambda s, b: {"mib": 256}, **FRESH),
    Case("RX-02Q", "ended for it", "bytes that wait in the attacker's sockets; neighbour", check=uncounted_ends, limits=PIPES,
         args=lambda s, b: {"mib": 256}, **FRESH),
    Case("RX-02R", "ended for it", "descriptors of the directory, seen from outside; neighbour", check=listings_end, limits=PIPES,
         args=lambda s, b: {"names": NAMES, "listings": 700}, **FRESH),
    Case("RX-02S", "ended for it", "locks that descriptors show; neighbour", check=locks_end, limits=PIPES,
         args=lambda s, b: {"files": 900, "locks": 400}, **FRESH),
    Case("RX-24", "ENOBUFS", "sockets with a filter, asked from outside; neighbour", check=filters_bounded, limits=PIPES, **FRESH),
    Case("RX-25", "ENOMEM", "filters of each thread, seen from outside; neighbour", check=programs_bounded, limits=dict(MEMORY, pids=200), seconds=60, **FRESH),
    Case("RX-27", "the kernel answers", "what is told; neighbour", limits=MEMORY, args=lambda s, b: {"calls": 6000}, **FRESH),
    Case("RX-28", "not waited for", "the server's answers; neighbour", check=server_answers,
         limits=dict(MEMORY, memory_bytes=512 << 20, cpu_millis=200), unreachable=other_machine, **FRESH),
    Case("RX-04A", "ENOSPC, EDQUOT", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64}, **FRESH),
    Case("RX-04B", "ENOSPC, EDQUOT", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64}, **FRESH),
    Case("RX-04C", "SIGBUS, ENOSPC", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64}, **FRESH),
    Case("RX-04D", "ENOSPC, EDQUOT", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64}, **FRESH),
    Case("RX-04E", "ENOSPC, EDQUOT in a cow mount too", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64, "fill": "/cow/fill"}, redcell="RX-04A", **FRESH),
    Case("RX-05A", "ENOSPC, EDQUOT", "files in the sandbox's layer; neighbour", check=inodes_bounded, limits=DISK,
         args=lambda s, b: {"inodes": 8000}, **FRESH),
    Case("RX-05B", "ENOSPC, EDQUOT", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64}, **FRESH),
    Case("RX-05C", "ENOSPC, EDQUOT", "bytes on the host's disk; neighbour", check=disk_bounded, limits=DISK,
         args=lambda s, b: {"mib": 64}, **FRESH),
    Case("RX-06", "EMFILE at the limit", "number in the descriptor table; neighbour", check=descriptors_bounded,
         limits=MEMORY, args=lambda s, b: {"files": 20000}, **FRESH),
    Case("RX-09", "stops at the limit", "timers that the kernel lists; neighbour", limits=MEMORY, check=timers_bounded, **FRESH),
    Case("RX-09B", "EMFILE at the quota", "an instance for the machine's root; neighbour", limits=MEMORY, check=inotify_left,
         unreachable=inotify_is_plenty, args=lambda s, b: {"instances": INSTANCES_MAX}, **FRESH),
    Case("RX-13", "bounded, no core dump", "files outside and in the sandbox's layer; neighbour", limits=MEMORY, check=no_cores, **FRESH),
]

# ---- what an ordinary user's server is not judged by -----------------------------------------------------------------------------------

NO_LIMITS = "no limit of this kind for an ordinary user without delegated controllers; the server says so and wants CAY_ACCEPT_NO_LIMITS"
FILE_API = "the file API does not reach running sandboxes of an ordinary user's server: its job is in another user namespace"
SHARED_IDS = "all sandboxes of a user have the ids of that user: namespaces keep them apart, not ids"
HOST_NODES = "no user namespace may make device nodes: the host's are bound, so watches, locks and times of them are shared (cay doctor)"
NOT_ROOTLESS = {name: FILE_API for name in ("FA-01", "FA-02", "FA-03", "FA-04", "FA-05", "FA-06", "FA-07", "FA-09")}
NOT_ROOTLESS |= {"NS-10": SHARED_IDS, "RX-09B": SHARED_IDS, "DV-10": HOST_NODES, "DV-11": HOST_NODES, "CG-04": NO_LIMITS}
NOT_ROOTLESS |= {name: NO_LIMITS for name in (
    "RX-01", "RX-01B", "PS-08", "RX-02A", "RX-02B", "RX-02C", "RX-02D", "RX-02E", "RX-02F", "RX-02G", "RX-02H", "RX-02I", "RX-02J", "RX-02K", "RX-02L", "RX-02N", "RX-02O", "RX-02P", "RX-02Q", "RX-02R", "RX-02S", "RX-05C", "RX-04A", "RX-04B", "RX-04C", "RX-04D", "RX-04E", "RX-05A", "RX-05B")}
ONE_ID = "there is one id: no other user inside to run it as"
NOT_SINGLE = {"FS-07": ONE_ID, "FS-07A": ONE_ID}


def not_rootless(case, single):
    """Why a case cannot be judged against a server of an ordinary user, or None."""
    return NOT_ROOTLESS.get(case.id) or (NOT_SINGLE.get(case.id) if single else None)


# ---- what is not counted, and why ------------------------------------------------------------------------------------------------------

# The kernel itself refuses, whatever cay does.
KERNEL = {
    "EX-01": "a running program cannot be opened for writing, and belongs to the host's root",
    "FS-05": "links do not cross mounts",
    "FS-08": "device nodes want a capability of the first user namespace",
    "FS-09": "file handles want a capability of the first user namespace",
    "FS-10": "trusted attributes want a capability of the first user namespace; overlayfs escapes its own in user.",
    "FS-12": "overlayfs passes no such request on, and the volumes here are not btrfs",
    "FS-13": "overlayfs shares no extents with a volume",
    "KS-02B": "seccomp answers ENOSYS where the kernel has x32",
    "KS-06": "seccomp_socket_families where the kernel has it",
    "NS-12": "an id that is not mapped cannot be taken",
    "RX-02E": "a user's pipes are bounded by fs.pipe-user-pages-soft before the memory limit is reached",
    "RX-10": "real-time scheduling wants a capability of the first user namespace",
    "RX-21": "hard limits are raised by a capability of the first user namespace only",
}
# No switch would leave a program that does the attacker's will: the code has no such path, or several lines share the work.
CONSTRUCTION = {
    "AR-01B": "the tree is walked part by part", "AR-04": "the tree is walked part by part", "AR-10B": "the tree is walked part by part",
    "AR-12": "images appear by rename", "AT-12": "events and logs are never given values", "AT-13": "one loop decides, and the catalogue's names are unique",
    "AT-14": "these headers are not read", "DV-08": "rings are bounded (RX-12)", "EX-03": "helpers load nothing and bound what they read (EX-09)",
    "EX-06": "EX-06B shows the same without a race", "EX-07": "helpers take no program from a sandbox", "EX-08": "states move by one table",
    "FA-05": "trees are walked without following links", "FA-06": "regular files only (FA-04)", "FA-09": "a sandbox is locked while it ends",
    "FS-11": "changes are read from the sandbox's own layer", "FS-15": "names are escaped (LG-01)", "LG-02": "records are written by a JSON library",
    "LL-03B": "overlayfs gives path sockets other inodes", "LL-03C": "mask_layer hides them", "MN-06": "RESOLVE_IN_ROOT and the layer of mount points",
    "MN-09": "only directories and regular files are mounted", "PS-02": "the end of PID 1 ends all", "PS-09": "the kernel tells the keeper",
    "PS-10": "init has no descriptors", "RX-17": "each end gives back what its beginning took", "RX-18": "one fiber for each connection",
    "RX-18B": "one fiber for each connection", "SN-02": "ids are looked up, not built into paths", "SN-08": "json schema: count has a maximum",
    "SN-09": "capture takes one instant", "WB-07": "the JSON library bounds it as well (WB-07A)", "WB-07D": "llhttp refuses as well",
    "WB-08": "one parse for router and routes",
}
UNCOUNTED = {name: "kernel: " + why for name, why in KERNEL.items()} | {name: "construction: " + why for name, why in CONSTRUCTION.items()}
