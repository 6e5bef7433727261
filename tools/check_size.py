#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Report, never a gate: lengths of files and functions, against what the models of the conventions measure."""

import re
import statistics

import tree


def functions(path):
    """[(name, lines)] of the definitions in a clang-formatted C file."""
    found, name, start = [], None, 0
    for number, line in enumerate(tree.text(path).split("\n"), 1):
        match = re.match(r"^[A-Za-z_].*?\b(\w+)\((?!.*;\s*$)", line)
        if match:
            name = match[1]
        if line == "{":
            start = number
        elif line == "}" and start and name:
            found.append((name, number - start - 1))
            name, start = None, 0
    return found


def main():
    sizes, lengths = [], []
    for path in tree.files(".c", under="src"):
        sizes.append((tree.text(path).count("\n"), path))
        lengths += [(n, f"{path}: {name}()") for name, n in functions(path)]
    if not lengths:
        return
    print(f"{len(sizes)} files, median {statistics.median(n for n, _ in sizes):.0f} lines; over 800: "
          + (", ".join(f"{p} {n}" for n, p in sorted(sizes, reverse=True) if n > 800) or "none"))
    print(f"{len(lengths)} functions, median {statistics.median(n for n, _ in lengths):.0f} lines; "
          f"{sum(n > 60 for n, _ in lengths)} over 60:")
    for n, where in sorted(lengths, reverse=True)[:20]:
        if n > 60:
            print(f"  {n:4} {where}")


if __name__ == "__main__":
    main()
