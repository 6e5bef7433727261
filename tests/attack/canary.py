# SPDX-License-Identifier: Apache-2.0
"""What an escape would touch: files, a process, listeners and settings of the host that stand for everything else on it.

Nothing here believes the attacker. Each canary says from outside whether it was read, written, signalled or reached.
"""

import ctypes
import glob
import hashlib
import os
import secrets
import select
import signal
import socket
import stat
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
KEYCTL_JOIN_SESSION_KEYRING = 1
SYS_KEYCTL, SYS_ADD_KEY = 250, 248
IPC_CREAT, IPC_RMID = 0o1000, 0

# settings that an attacker would like to change; compared before and after each attack
SETTINGS = ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/domainname", "/proc/sys/kernel/panic", "/proc/sys/kernel/sysrq", "/proc/sys/kernel/pid_max",
            "/proc/sys/kernel/shmmax", "/proc/sys/kernel/msgmax", "/proc/sys/vm/overcommit_memory",
            "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/file-max", "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/net/core/somaxconn", "/proc/sys/kernel/tainted", "/sys/kernel/mm/ksm/run"]

PROCESS = """
import os, signal, sys
def hit(number, frame):
    os.write(1, b"!")
for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGIO, signal.SIGURG):
    signal.signal(number, hit)
if sys.argv[1] != "0":
    os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
os.write(1, b".")
while True:
    signal.pause()
"""


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


class File:
    """A file outside: content, mode, owner, links and times must stay; a secret one must not even be read."""

    def __init__(self, path, text, mode=0o600, watch_reads=False):
        self.path, self.text, self.mode, self.watch_reads = path, text, mode, watch_reads
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, mode)
        # an access time before the modification time is brought up to date by the next read, also with relatime
        os.utime(path, (1_000_000_000, 1_100_000_000))
        self.before = self.look()

    def look(self):
        st = os.lstat(self.path)
        return (st.st_mode, st.st_uid, st.st_nlink, st.st_size, st.st_mtime_ns, st.st_atime_ns if self.watch_reads else 0)

    def broken(self):
        try:
            now = self.look()
        except FileNotFoundError:
            return [f"{self.path} is gone"]
        found = []
        if now != self.before:
            found.append(f"{self.path}: {self.before} became {now}")
        elif not self.watch_reads and read(self.path) != self.text.encode():
            found.append(f"{self.path}: content changed")
        return found


class Process:
    """A process outside with a secret in its command line, environment and memory. It counts the signals that reach it."""

    def __init__(self, secret, uid=0):
        self.child = subprocess.Popen([sys.executable, "-c", PROCESS, str(uid), secret], stdout=subprocess.PIPE,
                                      stdin=subprocess.DEVNULL, env={"SECRET": secret}, cwd="/")
        self.child.stdout.read(1)
        self.pid, self.uid = self.child.pid, uid
        self.nice = os.getpriority(os.PRIO_PROCESS, self.pid)

    def broken(self):
        if self.child.poll() is not None:
            return [f"canary process of uid {self.uid} ended with {self.child.returncode}"]
        found = []
        while select.select([self.child.stdout], [], [], 0)[0]:
            if not os.read(self.child.stdout.fileno(), 1):
                break
            found.append(f"canary process of uid {self.uid} got a signal")
        if os.getpriority(os.PRIO_PROCESS, self.pid) != self.nice:
            found.append("canary process has another priority")
            os.setpriority(os.PRIO_PROCESS, self.pid, self.nice)
        return found[:2]

    def close(self):
        self.child.kill()
        self.child.wait()
        self.child.stdout.close()


class Listeners:
    """TCP and UDP on all loopback addresses, abstract and path sockets: whatever arrives is an escape."""

    def __init__(self, directories):
        self.name = "cay-attack-" + secrets.token_hex(4)
        self.sockets, self.paths = [], []
        tcp = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        tcp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        tcp.bind(("::", 0))
        tcp.listen(64)
        self.port = tcp.getsockname()[1]
        udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        udp.bind(("::", self.port))
        self.sockets += [("tcp", tcp), ("udp", udp)]
        for kind, label in ((socket.SOCK_STREAM, ""), (socket.SOCK_DGRAM, "-dgram")):
            s = socket.socket(socket.AF_UNIX, kind)
            s.bind(f"\0{self.name}{label}")
            if kind == socket.SOCK_STREAM:
                s.listen(64)
            self.sockets.append(("abstract" + label, s))
        for directory in directories:
            path = os.path.join(directory, self.name + ".sock")
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.bind(path)
            os.chmod(path, 0o777)
            s.listen(64)
            self.sockets.append((path, s))
            self.paths.append(path)

    def broken(self):
        found = []
        for name, s in self.sockets:
            while select.select([s], [], [], 0)[0]:
                if s.type == socket.SOCK_DGRAM:
                    got = s.recv(256)
                else:
                    peer, _ = s.accept()
                    peer.close()
                    got = b"a connection"
                found.append(f"listener {name} got {got[:40]!r}")
        return sorted(set(found))

    def close(self):
        for _, s in self.sockets:
            s.close()
        for path in self.paths:
            os.unlink(path)


class Terminal:
    """A terminal of the host that everybody may write to: what appears on its other end came out of a sandbox."""

    def __init__(self, nonce):
        """@nonce: what this run's attackers write; those of a run beside it find the same terminals."""
        self.nonce = nonce.encode()
        self.ours, theirs = os.openpty()
        self.theirs = theirs
        os.chmod(os.ttyname(theirs), 0o666)

    def broken(self):
        found = []
        while select.select([self.ours], [], [], 0)[0]:
            got = os.read(self.ours, 256)
            found += [f"the host's terminal got {got[:40]!r}"] if self.nonce in got else []
        return found

    def close(self):
        os.close(self.ours)
        os.close(self.theirs)


class SharedMemory:
    """A System V segment with a secret under a well-known key."""

    def __init__(self, secret):
        self.key = 0x63000000 | secrets.randbits(20)
        LIBC.shmat.restype = ctypes.c_void_p
        self.id = LIBC.shmget(self.key, 4096, IPC_CREAT | 0o666)
        address = LIBC.shmat(self.id, None, 0)
        ctypes.memmove(address, secret.encode() + b"\0", len(secret) + 1)
        LIBC.shmdt(ctypes.c_void_p(address))

    def broken(self):
        return []

    def close(self):
        LIBC.shmctl(self.id, IPC_RMID, None)


class Host:
    """All canaries of one run, in a directory of its own."""

    def __init__(self, top, writer):
        """@writer: the ordinary user whose directory is shared for writing."""
        self.top = top
        self.secret = "SECRET-" + secrets.token_hex(12)
        self.nonce = secrets.token_hex(6)
        self.tag = "cay-attack-" + secrets.token_hex(4)
        for name in ("outside", "outside/drop", "ro", "cow", "rw", "suid"):
            os.mkdir(os.path.join(top, name))
            os.chmod(os.path.join(top, name), 0o755)
        # the one that is shared for writing belongs to an ordinary user of the host
        os.chown(os.path.join(top, "rw"), writer, writer)
        self.outside = os.path.join(top, "outside")
        # whoever gets out finds a place where everybody may write
        self.drop = os.path.join(self.outside, "drop")
        os.chmod(self.drop, 0o777)
        self.extra = []
        self.files = [File(os.path.join(d, "secret"), self.secret, 0o644, True) for d in (self.outside, self.drop)]
        # one where the host image must hide it
        for directory in ("/root", "/home", "/var/lib"):
            path = os.path.join(directory, "." + self.tag)
            if os.path.isdir(directory):
                self.files.append(File(path, self.secret, 0o644, True))
                self.extra.append(path)
        self.secret_paths = [f.path for f in self.files] + ["/etc/shadow"]
        self.volume = [File(os.path.join(top, d, n), f"volume {n}\n", 0o666)
                       for d, n in (("ro", "canary"), ("cow", "canary"), ("cow", "second"), ("cow", "third"))]
        self.files += self.volume
        for d in ("ro", "cow", "rw"):
            # a device of the machine that does no harm, standing for its disk
            os.mknod(os.path.join(top, d, "zero-node"), stat.S_IFCHR | 0o666, os.makedev(1, 5))
        self.shared = self.share()
        self.listing = self.list_directories()
        self.process = Process(self.secret)
        self.neighbour_process = None
        self.listeners = Listeners(self.socket_directories())
        self.shm = SharedMemory(self.secret)
        self.terminal = Terminal(self.nonce)
        self.settings = {p: read(p) for p in SETTINGS}
        self.mounts = self.host_mounts()
        self.core_before = set(glob.glob("/core*") + glob.glob(top + "/core*"))
        self.inside_uid = None

    def share(self):
        """A mount whose copies are told of what is mounted below it later, as / is on many machines."""
        path = os.path.join(self.top, "shared")
        os.mkdir(path)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "x", path], check=True)
        subprocess.run(["mount", "--make-shared", path], check=True)
        os.mkdir(os.path.join(path, "later"))
        return path

    def socket_directories(self):
        return [d for d in (self.top, "/run", "/tmp") if os.access(d, os.W_OK)]

    def key_for_children(self):
        """Puts a secret key into a new session keyring of this process, which children inherit."""
        LIBC.syscall(SYS_KEYCTL, KEYCTL_JOIN_SESSION_KEYRING, None)
        text = self.secret.encode()
        LIBC.syscall(SYS_ADD_KEY, b"user", self.tag.encode(), text, len(text), -3)

    def process_of_uid(self, uid):
        """A second canary process that runs under the host id which the sandbox's root has."""
        if self.inside_uid != uid:
            if self.neighbour_process:
                self.neighbour_process.close()
            self.neighbour_process = Process(self.secret, uid)
            self.inside_uid = uid
        return self.neighbour_process.pid

    def list_directories(self):
        found = []
        for d in ("outside", "ro", "cow"):
            for base, dirs, names in os.walk(os.path.join(self.top, d)):
                found += [os.path.join(base, n) for n in dirs + names]
        return sorted(found)

    def host_mounts(self):
        return [line for line in read("/proc/self/mountinfo").decode().splitlines() if self.top in line and "/state/" not in line]

    def broken(self):
        """What changed outside since the last look; canaries that were hit are put back, so that the next attack is judged alone."""
        found = []
        for f in self.files:
            bad = f.broken()
            if bad:
                found += bad
                f.__init__(f.path, f.text, f.mode, f.watch_reads)
        listing = self.list_directories()
        if listing != self.listing:
            found.append(f"directory outside changed: {sorted(set(listing) ^ set(self.listing))[:4]}")
            for path in set(listing) - set(self.listing):
                subprocess.run(["rm", "-rf", "--one-file-system", path], check=False)
            self.listing = self.list_directories()
        found += self.process.broken() + self.listeners.broken() + self.terminal.broken()
        if self.neighbour_process:
            bad = self.neighbour_process.broken()
            if bad and self.neighbour_process.child.poll() is not None:
                uid, self.inside_uid = self.inside_uid, None
                self.process_of_uid(uid)
            found += bad
        for path, value in self.settings.items():
            now = read(path)
            if now != value:
                found.append(f"{path} changed from {value!r} to {now!r}")
                self.settings[path] = now
        cores = set(glob.glob("/core*") + glob.glob(self.top + "/core*"))
        if cores - self.core_before:
            found.append(f"core dump outside: {sorted(cores - self.core_before)}")
            self.core_before = cores
        mounts = self.host_mounts()
        if mounts != self.mounts:
            found.append("the host's mounts changed")
            self.mounts = mounts
        return found

    def close(self):
        self.process.close()
        if self.neighbour_process:
            self.neighbour_process.close()
        self.listeners.close()
        self.shm.close()
        self.terminal.close()
        subprocess.run(["umount", "-l", self.shared], check=False)
        for path in self.extra:
            if os.path.exists(path):
                os.unlink(path)


def digest(path):
    return hashlib.sha256(read(path)).hexdigest()


def signal_name(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
