# SPDX-License-Identifier: Apache-2.0
"""File work (untar, git clone, compile) as a command that runs in several places: natively, in a sandbox, and in what lies between."""

import json
import os
import shutil
import subprocess

import project
from measure import SPAWN, percentile, row

FILE_WORK = {
    "untar 4,000 files": "tar xf $IN/tree.tar -C $OUT",
    "git clone": "git -c safe.directory='*' clone -q --no-hardlinks $IN/repo $OUT/clone",
    "make -j2 of a C project": "cp -r $IN/project $OUT/project && make -s -j2 -C $OUT/project",
}
SECONDS = 100  # longest that one run may take


def make_inputs(scratch):
    """The directory with what the scripts read, and the program that starts them, measured, wherever that directory is seen."""
    given = os.path.join(scratch, "in")
    if not os.path.isdir(given):
        project.make_inputs(given)
        shutil.copy(SPAWN, os.path.join(given, "spawnbench"))
    return given


class Place:
    """Somewhere to run a script. Each run gets a new directory: ext4 searches long for an inode after thousands were deleted (recently_deleted())."""

    def __init__(self, given, base, disk):
        self.given, self.base, self.disk, self.turn = given, base, disk, 0

    def command(self, script):
        """argv that prints the JSON of spawnbench for @script in the next directory."""
        self.turn += 1
        out = f"{self.base}/{self.turn}"
        return ["env", "CCACHE_DISABLE=1", f"IN={self.given}", f"OUT={out}", f"{self.given}/spawnbench", "1", "sh", "-c", f"mkdir -p $OUT && {script}"]

    def start(self, argv):
        """Run @argv there; its standard output, or None when it failed."""
        raise NotImplementedError

    def run(self, script):
        """(wall ns, processor ns) or None. What is dirty is written back beforehand, so that each run starts with the same caches."""
        subprocess.run(["sync", "-f", self.disk], check=True)
        text = self.start(self.command(script))
        done = json.loads(text) if text else {"ns": []}
        return (done["ns"][0], done["cpu_us"] * 1000) if done["ns"] else None

    def close(self):
        """Remove what the runs made."""


class Native(Place):
    """A directory of the host; @prefix: a command in which to run (bwrap …)."""

    def __init__(self, given, base, prefix=()):
        super().__init__(given, base, base)
        self.prefix = list(prefix)
        os.makedirs(base, exist_ok=True)

    def start(self, argv):
        done = subprocess.run([*self.prefix, *argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=SECONDS, check=False)
        return done.stdout if done.returncode == 0 else None

    def close(self):
        shutil.rmtree(self.base, ignore_errors=True)


class Boxed(Place):
    """A new sandbox of @instance, in its root overlay."""

    def __init__(self, instance, given):
        super().__init__("/in", "/work", os.path.join(instance.state, "pool"))
        self.instance = instance
        self.box = instance.post("/v1/sandboxes", {"mounts": [{"source": given, "target": "/in", "mode": "ro"}]})["id"]

    def start(self, argv):
        done = self.instance.cay("exec", self.box, "--", *argv, check=False, timeout=SECONDS)
        return done.stdout if done.returncode == 0 else None

    def close(self):
        self.instance.call("DELETE", f"/v1/sandboxes/{self.box}?force=true")


def ratios(samples, base):
    """Members of a row: median processor time, and the speed beside @base: [(wall ns, processor ns)] both."""
    wall, cpu = (percentile([s[i] for s in samples], 50) for i in (0, 1))
    wall0, cpu0 = (percentile([s[i] for s in base], 50) for i in (0, 1))
    return {"cpu_ms": round(cpu / 1e6, 1), "cpu_min_ms": round(min(s[1] for s in samples) / 1e6, 1), "of_native": round(wall0 / wall, 3), "cpu_of_native": round(cpu0 / cpu, 3)}


def compare(places, scripts, rounds):
    """Rows of every script in every place, in turn; the first place is native. One round more, not counted, warms the caches."""
    rows = []
    for case, script in scripts.items():
        got, errors = {who: [] for who in places}, dict.fromkeys(places, 0)
        for turn in range(rounds + 1):
            for who, place in places.items():
                sample = place.run(script)
                errors[who] += sample is None
                got[who] += [sample] if sample and turn > 0 else []
        base = next(iter(got.values()))
        rows += [row(case, who, [s[0] for s in samples], errors[who], **(ratios(samples, base) if samples and base else {}))
                 for who, samples in got.items()]
    return rows


def file_work(b):
    """Wall time of the same script natively (a directory on the host's own file system), in a sandbox (its root overlay), under bwrap, and in a plain
    directory of the pool, in turn. cpu ms is processor time of the script's processes; `bench/run --parts` shows what it is made of."""
    given = make_inputs(b.scratch)
    pool = os.path.join(b.instance.state, "pool", "tmp")
    places = {"native": Native(given, os.path.join(b.scratch, "native")), "cay": Boxed(b.instance, given)}
    if "bwrap" in b.peers.commands:
        places["bwrap"] = Native(given, os.path.join(b.scratch, "bwrap"), ["bwrap", "--unshare-all", "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
    if os.path.ismount(os.path.dirname(pool)):
        places["directory of the pool"] = Native(given, os.path.join(pool, "bench-native"))
    try:
        return compare(places, FILE_WORK, b.count(9))
    finally:
        for place in places.values():
            place.close()
