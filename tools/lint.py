#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make lint: every check of the tree. --quick leaves out those that a half-finished part may still fail (documentation, tables)."""

import ast
import concurrent.futures
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import check_banned  # noqa: E402  pylint: disable=wrong-import-position
import check_defs  # noqa: E402  pylint: disable=wrong-import-position
import check_docs  # noqa: E402  pylint: disable=wrong-import-position
import check_fuzz  # noqa: E402  pylint: disable=wrong-import-position
import check_layers  # noqa: E402  pylint: disable=wrong-import-position
import tree  # noqa: E402  pylint: disable=wrong-import-position


CLANG_FORMAT = 14  # of Debian 12


def report(found):
    """Print findings; end with 1 when there are any."""
    for line in found:
        print(line)
    sys.exit(1 if found else 0)


def formatter_decides():
    """Is this the clang-format that decides? Versions differ in taste."""
    version = subprocess.run(["clang-format", "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return f"version {CLANG_FORMAT}." in version


def check_format():
    """clang-format is law. `clang-format -i FILE` makes it right."""
    if shutil.which("clang-format") is None:
        return ["clang-format is not installed"]
    if not formatter_decides():
        print(f"formatting is not checked: that takes clang-format {CLANG_FORMAT}")
        return []
    sources = [f for f in tree.files(".c", ".h") if not f.startswith("third_party/")]
    parts = [sources[i::os.cpu_count() or 1] for i in range(os.cpu_count() or 1)]

    def one(part):
        if not part:
            return []
        done = subprocess.run(["clang-format", "--dry-run", "-Werror", *part], cwd=tree.TOP, stderr=subprocess.PIPE, text=True, check=False)
        lines = [line.split(": ")[0] for line in done.stderr.splitlines() if ": error:" in line]
        return sorted({line.split(":")[0] + ": clang-format -i changes it (line " + line.split(":")[1] + ")" for line in lines})
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return sorted(line for lines in pool.map(one, parts) for line in lines)


def check_scripts():
    """Python compiles, shell parses, scripts that are run can be run, each C file says its licence."""
    found = []
    for path in tree.files():
        if path.startswith(("third_party/", "fuzz/corpus/", "tests/data/")):
            continue
        full = os.path.join(tree.TOP, path)
        with open(full, "rb") as f:
            first = f.readline(200)
        if path.endswith(".py"):
            try:
                ast.parse(tree.text(path), path)
            except SyntaxError as error:
                found.append(f"{path}:{error.lineno}: {error.msg}")
        elif first.startswith((b"#!/bin/sh", b"#!/bin/bash")):
            shell = "bash" if b"bash" in first else "sh"
            done = subprocess.run([shell, "-n", full], stderr=subprocess.PIPE, text=True, check=False)
            if done.returncode != 0:
                found.append(f"{path}: {done.stderr.strip()}")
        if first.startswith(b"#!") and not path.endswith(".py") and not os.access(full, os.X_OK):
            found.append(f"{path}: starts with #! but is not executable")
        if path.endswith((".c", ".h")) and not first.startswith(b"/* SPDX-License-Identifier: Apache-2.0 */"):
            found.append(f"{path}:1: no SPDX line")
    return found


QUICK = [("layers", check_layers.check), ("banned", check_banned.check), ("scripts", check_scripts), ("format", check_format)]
FULL = QUICK + [("docs", check_docs.check), ("defs", check_defs.check), ("fuzz", check_fuzz.check)]


def main():
    bad = 0
    for name, function in QUICK if "--quick" in sys.argv else FULL:
        found = function()
        bad += len(found)
        print(f"{name}: {len(found) or 'clean'}")
        for line in found:
            print("  " + line)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
