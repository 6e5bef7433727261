# SPDX-License-Identifier: Apache-2.0
"""bench/run --parts: what the processor time of file work in a sandbox is made of. Two tables: the same script in places that differ by one thing each, in turn,
from a directory of the host to the sandbox; and samples of the kernel's stacks, each given to the part of the kernel that its innermost known function belongs to.
Both are processor time of the script's processes: what the kernel does for them later, in its own threads, is not in it."""

import collections
import os
import re
import shutil
import signal
import subprocess
import time

from filework import FILE_WORK, Boxed, Native, compare, make_inputs
from measure import TOP, close, name_of

from lib.cay import Instance

# the first that matches a function, innermost function first
PARTS = (
    ("Landlock", r"hook_|landlock|is_access_to_paths|find_rule|unmask_|current_check_"),
    ("seccomp", r"(__)?seccomp|__secure_computing"),
    ("memory cgroup", r".*memcg|mem_cgroup|obj_cgroup|try_charge"),
    ("quotas", r".*qgroup|.*squota"),
    ("overlayfs", r"ovl_"),
    ("file system", r"_*btrfs|_*ext4|jbd2|.*(split|push)_leaf|.*extent_buffer|.*reserve_bytes|.*setup_items|read_block_for_search|.*extent_bit"),
)
PARTS = tuple((name, re.compile(pattern)) for name, pattern in PARTS)
REST, USER = "rest of the kernel", "the programs"
COLUMNS = (USER, REST, "file system", "overlayfs", "quotas", "memory cgroup", "Landlock", "seccomp")
HERTZ = 4000
# a mount namespace with an overlay like that of a sandbox over "/", kept by a process whose root it is
OVERLAY = """set -e
mkdir -p "$1/upper" "$1/work" "$1/points/in" "$1/points/proc" "$1/points/dev" "$1/root"
mount -t overlay overlay -o "lowerdir=$1/points:/,upperdir=$1/upper,workdir=$1/work,index=off,metacopy=off,xino=off,volatile,redirect_dir=on" "$1/root"
mount --rbind /dev "$1/root/dev"
mount -t proc proc "$1/root/proc"
mount --bind "$2" "$1/root/in"
exec chroot "$1/root" sh -c 'echo ready; exec sleep 1000000'"""
LADDER = ("untar 4,000 files", "git clone")  # what compiling costs is below the noise, step by step
LESS = "landlock,seccomp,memory_limit,pids_limit,uid_shift".split(",")


class Subvolume(Native):
    """A subvolume of the pool with a limit, as a sandbox's live directory is one."""

    def __init__(self, given, base):
        for argv in (["subvolume", "create", base], ["qgroup", "limit", "10G", base]):
            subprocess.run(["btrfs", *argv], check=True, stdout=subprocess.DEVNULL)
        super().__init__(given, base)

    def close(self):
        subprocess.run(["btrfs", "subvolume", "delete", self.base], check=True, stdout=subprocess.DEVNULL)


class Overlay(Native):
    """The same with an overlay over the host's root on top, ids as they are."""

    def __init__(self, given, lower):
        self.lower = lower
        self.holder = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", OVERLAY, "sh", lower.base, given], stdout=subprocess.PIPE)
        if self.holder.stdout.readline() != b"ready\n":
            raise RuntimeError("the overlay could not be mounted")
        super().__init__("/in", lower.base, ["nsenter", "-t", str(self.holder.pid), "-m", "-r", "env", "-C", "/"])
        self.base = "/work"

    def close(self):
        self.holder.kill()
        self.holder.wait()
        self.lower.close()


class Ablated(Boxed):
    """A sandbox of a server of its own with defences switched off."""

    def __init__(self, given, scratch, programs, off):
        self.own = Instance(parent=scratch, env={"CAY_ABLATE": ",".join(off)}, programs=programs)
        self.own.start()
        super().__init__(self.own, given)

    def close(self):
        super().close()
        close(self.own)


def ladder(b, given, places):
    """Fill {what came on top: place}, from native to the whole sandbox."""
    pool, built = os.path.join(b.instance.state, "pool", "tmp"), os.path.join(TOP, "build-ablation")
    places["native"] = Native(given, os.path.join(b.scratch, "native"))
    if os.path.ismount(os.path.dirname(pool)):
        places["directory of the pool"] = Native(given, os.path.join(pool, "bench-native"))
        places["+ subvolume with a limit"] = Subvolume(given, os.path.join(pool, "bench-subvolume"))
        places["+ overlay"] = Overlay(given, Subvolume(given, os.path.join(pool, "bench-overlay")))
    if os.path.exists(os.path.join(built, "cayd")):
        for i, what in enumerate(("+ namespaces", "+ shifted ids", "+ limits of memory and processes", "+ system call filter")):
            off = LESS[:(5, 4, 2, 1)[i]]
            places[what] = Ablated(given, b.scratch, built, off)
    else:
        b.notes.append("build-ablation is missing: the steps inside the sandbox were left out")
    places["+ Landlock = the sandbox"] = Boxed(b.instance, given)


def part_of(stack):
    """@stack: function names, innermost first; empty for a program's own code."""
    for function in stack:
        for name, pattern in PARTS:
            if pattern.match(function):
                return name
    return REST if stack else USER


def samples(path):
    """Kernel stacks of a recording, as lists of functions, innermost first."""
    text = subprocess.run(["perf", "script", "-i", path, "-F", "ip,sym,dso"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
                          timeout=300, check=True).stdout
    for block in filter(None, text.split("\n\n")):
        lines = (line.split() for line in block.splitlines())
        yield [words[1].split("+")[0] for words in lines if len(words) > 2 and "kernel" in words[-1]]


PERF = ["perf", "record", "-q", "-F", str(HERTZ), "-g", "-o"]


class Recorded(Native):
    """A directory of the host; each run is recorded into @path."""

    def __init__(self, given, base, path):
        super().__init__(given, base, [*PERF, path, "--"])


class RecordedBox(Boxed):
    """A sandbox; whatever its starter starts is recorded into @path."""

    def __init__(self, instance, given, path):
        super().__init__(instance, given)
        self.path = path

    def start(self, argv):
        starters = [str(p) for p in self.instance.own_processes() if name_of(p) == "cay-starter"]
        with subprocess.Popen([*PERF, self.path, "-p", ",".join(starters)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as perf:
            while not (os.path.exists(self.path) and os.path.getsize(self.path) > 0) and perf.poll() is None:
                time.sleep(0.05)
            try:
                return super().start(argv)
            finally:
                perf.send_signal(signal.SIGINT)


def sampled(place, path, script, runs):
    """{part: ms of one run} of @script in @place, which records into @path."""
    found = collections.Counter()
    place.run(script)
    for _ in range(runs):
        os.unlink(path)
        place.run(script)
        found.update(map(part_of, samples(path)))
    return {part: n * 1000 / HERTZ / runs for part, n in found.items()}


def sampled_rows(b, given):
    """[(case, place, {part: ms})]"""
    path, pool = os.path.join(b.scratch, "perf.data"), os.path.join(b.instance.state, "pool", "tmp")
    places = {"native": Recorded(given, os.path.join(b.scratch, "recorded"), path),
              "directory of the pool": Recorded(given, os.path.join(pool, "bench-recorded"), path), "sandbox": RecordedBox(b.instance, given, path)}
    try:
        return [(case, who, sampled(place, path, script, b.count(5))) for case, script in FILE_WORK.items() for who, place in places.items()]
    finally:
        for place in places.values():
            place.close()


def ladder_rows(b, given):
    places = {}
    try:
        ladder(b, given, places)
        return compare(places, {case: script for case, script in FILE_WORK.items() if case in LADDER}, b.count(5))
    finally:
        for place in places.values():
            place.close()


def markdown(b):
    """Both tables."""
    given = make_inputs(b.scratch)
    out = ["| script | place | n | processor ms | speed beside native | fastest, processor ms |", "|---|---|--:|--:|--:|--:|"]
    for r in ladder_rows(b, given):
        out.append(f"| {r['case']} | {r['who']} | {r['n']} | " + " | ".join(str(r.get(k, "failed")) for k in ("cpu_ms", "cpu_of_native", "cpu_min_ms")) + " |")
    if shutil.which("perf"):
        out += ["", "| script | place | sum | " + " | ".join(COLUMNS) + " |", "|---|---|" + "--:|" * (len(COLUMNS) + 1)]
        for case, who, ms in sampled_rows(b, given):
            out.append(f"| {case} | {who} | {sum(ms.values()):.0f} | " + " | ".join(f"{ms.get(part, 0):.1f}" for part in COLUMNS) + " |")
    return "\n".join(out) + "\n"
