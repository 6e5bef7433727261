# SPDX-License-Identifier: Apache-2.0
"""What the kernel answers an attacker, seen by a tracer outside of the sandbox: the oracle for calls that leave nothing behind to look at.

The attacker waits (start=1) until the tracer has it. Each call that a case names must then be seen, and each time with a refusal that is expected.
"""

import glob
import os
import re
import subprocess


class Tracer:
    """strace over one process of a sandbox, and over its children where @follow says so: what is traced cannot be traced by the attacker."""

    def __init__(self, pid, log, follow):
        self.log = log
        argv = ["strace", "-X", "raw", "-s", "200", "-e", "signal=none", "-o", log, "-p", str(pid)] + (["-ff"] if follow else [])
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = self.process.stderr.readline()
        if "attached" not in said:
            self.end()
            raise RuntimeError(f"no tracer: {said.strip()}")

    def end(self):
        """Let go. Return: the lines that it saw."""
        self.process.terminate()
        self.process.communicate()
        lines = []
        # one file, or with children one for each process
        for path in glob.glob(glob.escape(self.log) + "*"):
            with open(path, encoding="utf-8", errors="replace") as f:
                lines += f.read().splitlines()
            os.unlink(path)
        return lines


def answer(line):
    """The error that the call of this line was refused with; None when it was not, or never came back."""
    found = re.search(r"\) += -1 (E\w+)", line)
    return found[1] if found else None


def judged(lines, expected):
    """@expected: {pattern of a call: names of the refusals that are expected}. Return: [what was not as expected]."""
    found = []
    for pattern, errors in expected.items():
        calls = [line for line in lines if re.search(rf"(?:^|\s){pattern}", line)]
        if not calls:
            found.append(f"a tracer sees no call {pattern}")
        found += [f"a tracer sees {line.strip()[:160]}, not {errors}" for line in calls if answer(line) not in errors.split()]
    return found[:5]
