# SPDX-License-Identifier: Apache-2.0
"""What the checks share: the files of the tree, and C source without comments and strings."""

import os
import re
import subprocess

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def files(*suffixes, under=""):
    """Tracked and new (not ignored) files below @under whose name ends with one of @suffixes (all when none is given)."""
    listed = subprocess.run(["git", "-C", TOP, "-c", "safe.directory=*", "ls-files", "-co", "--exclude-standard", "--", under or "."],
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True).stdout.splitlines()
    if not listed:  # an unpacked archive: no git
        for where, folders, names in os.walk(os.path.join(TOP, under)):
            folders[:] = [d for d in folders if not d.startswith((".git", "build"))]
            listed += [os.path.relpath(os.path.join(where, n), TOP) for n in names]
    return sorted(f for f in set(listed) if (not suffixes or f.endswith(suffixes)) and os.path.isfile(os.path.join(TOP, f)))


def text(path):
    with open(os.path.join(TOP, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def blank(source, strings=True):
    """@source with comments (and string contents) turned into blanks, so that lines and columns stay."""
    def hide(match):
        token = match.group(0)
        if token.startswith("/"):
            return re.sub(r"[^\n]", " ", token)
        return token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1] if strings else token
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", hide, source, flags=re.S)


def line_of(source, offset):
    return source.count("\n", 0, offset) + 1
