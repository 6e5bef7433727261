#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The tables of defs/: error codes are unique, in range and all of them used; no empty cell; every fault point is named by a test;
every row of defences.def names cases that exist; names in %ERR_... comments exist."""

import os
import re

import tree

ERROR = re.compile(r'^ERR\((\w+), "([^"]*)", (\d+), (\d+), "([^"]*)"\)$', re.M)


def check_errors():
    path = "defs/errors.def"
    source = tree.text(path)
    found, names, wires = [], set(), set()
    rows = ERROR.findall(source)
    calls = len(re.findall(r"^ERR\(", source, re.M))
    if len(rows) != calls:
        found.append(f"{path}: {calls - len(rows)} rows are not written as ERR(NAME, \"wire\", http, status, \"meaning\") in one line")
    for name, wire, http, status, meaning in rows:
        if name in names or wire in wires:
            found.append(f"{path}: {name} \"{wire}\" is there twice")
        names.add(name)
        wires.add(wire)
        if not re.fullmatch(r"[a-z][a-z0-9_]*", wire) or not meaning or not 400 <= int(http) <= 599 or not 1 <= int(status) <= 255:
            found.append(f"{path}: {name}: a cell is empty or out of range")
    for header in tree.files(".h", ".c", under="src"):
        for match in re.finditer(r"\bERR_([A-Z_]+)\b", tree.text(header)):
            known = names | {"NONE", "CODE_COUNT"}
            if match[1] not in known and header.endswith(".h") and "%" + match[0] in tree.text(header):
                found.append(f"{header}:{tree.line_of(tree.text(header), match.start())}: no code {match[0]} in errors.def")
    return found


def check_cells():
    """A row of a table has no empty cell: NAME("", ...) or NAME(, ...)."""
    found = []
    for path in tree.files(".def", under="defs"):
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            if re.match(r"^[A-Z_]+\(", line) and re.search(r'[(,]\s*(""|(?=[,)]))\s*[,)]', tree.blank(line, strings=False)) \
                    and os.path.basename(path) in ("defences.def", "errors.def"):
                found.append(f"{path}:{number}: an empty cell")
    return found


def fault_points():
    """{name: where} of every fault("...") in the source."""
    points = {}
    for path in tree.files(".c", under="src"):
        source = tree.text(path)
        for match in re.finditer(r'\b(?:bare_)?fault\("([^"]+)"\)', source):
            points[match[1]] = f"{path}:{tree.line_of(source, match.start())}"
    return points


def check_faults():
    """Every point is written out in a test, so that one that is never reached is noticed."""
    tests = "".join(tree.text(p) for p in tree.files(".py", ".c", ".txt", under="tests"))
    return [f"{where}: fault point {name} is in no test" for name, where in sorted(fault_points().items()) if f'"{name}"' not in tests]


def check():
    return check_errors() + check_cells() + check_faults()


if __name__ == "__main__":
    import lint
    lint.report(check())
