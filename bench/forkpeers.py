# SPDX-License-Identifier: Apache-2.0
"""The peers of make bench-fork: gVisor's checkpoint and restore of the same program, and CRIU where it starts."""

import json
import os
import shutil
import subprocess

from forksource import TIMEOUT, holder, milliseconds, summary
from measure import NOTHING, SINK

# A mount namespace that ends with its command: the machine's root as the bundle's.
WRAP = 'mount --bind / rootfs && exec "$@"'


class Gvisor:
    """One container after the other; its standard input and output are pipes of ours."""

    def __init__(self, directory):
        self.directory, self.image = directory, os.path.join(directory, "image")
        os.makedirs(os.path.join(directory, "rootfs"))
        subprocess.run(["runsc", "spec"], cwd=directory, stdout=subprocess.DEVNULL, check=True)

    def prepare(self, argv):
        path = os.path.join(self.directory, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["process"].update(terminal=False, args=argv, cwd="/")
        config["root"].update(path="rootfs", readonly=True)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)

    def command(self, *words):
        return ["unshare", "-m", "--propagation", "private", "sh", "-c", WRAP, "sh", "runsc", "--root", os.path.join(self.directory, "state"), "--network=none",
                "--ignore-cgroups", *words]

    def start(self, *words):
        return subprocess.Popen(self.command(*words), cwd=self.directory, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=SINK)

    def do(self, *words):
        done = subprocess.run(self.command(*words), cwd=self.directory, stdin=NOTHING, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"runsc {words[0]}: " + (done.stderr or done.stdout).strip()[-300:])

    def ended(self, process):
        process.stdin.close()
        process.wait(TIMEOUT)
        process.stdout.close()

    def end(self, name, process):
        self.do("kill", name, "KILL")
        self.ended(process)
        shutil.rmtree(os.path.join(self.directory, "state"))

    def restored(self):
        """A copy that has answered."""
        process = self.start("restore", "--image-path", self.image, "--bundle", ".", "copy")
        say(process)
        return process


def expect(process, line):
    got = process.stdout.readline()
    if got != line:
        raise RuntimeError(f"it said {got!r} instead of {line!r}")


def say(process):
    process.stdin.write(b"hello\n")
    process.stdin.flush()
    expect(process, b"here\n")


def gvisor(scratch, mebibytes, processes, clock):
    """Checkpoint (the container ends with it) and restore until the first answer."""
    if shutil.which("runsc") is None:
        raise RuntimeError("runsc is not installed")
    directory, downs, ups = os.path.join(scratch, "gvisor"), [], []
    peer = Gvisor(directory)
    peer.prepare(holder(mebibytes, processes))
    try:
        for _ in clock.rounds():
            process = peer.start("run", "--bundle", ".", "source")
            expect(process, b"ready\n")
            say(process)
            os.makedirs(peer.image)
            downs.append(milliseconds(peer.do, "checkpoint", "--image-path", peer.image, "source")[0])
            peer.ended(process)
            ms, process = milliseconds(peer.restored)
            ups.append(ms)
            peer.end("copy", process)
            shutil.rmtree(peer.image)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return {"mebibytes": mebibytes, "processes": processes, "who": "gVisor", "down": summary(downs), "up": summary(ups)}


def criu():
    """A line about why CRIU is not in the tables."""
    if shutil.which("criu") is None:
        return "CRIU is not installed."
    done = subprocess.run(["criu", "check"], capture_output=True, text=True, timeout=60, check=False)
    version = subprocess.run(["criu", "--version"], capture_output=True, text=True, timeout=60, check=False).stdout.split("\n")[0]
    if done.returncode == 0:
        return f"CRIU ({version}) starts on this kernel, but nothing here measures it."
    said = [line for line in (done.stderr + done.stdout).splitlines() if "exited, status" not in line]  # the first line is about a child of its own
    return f"CRIU ({version}) does not start on this kernel: `{said[0][:200] if said else done.returncode}`"
