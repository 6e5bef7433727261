#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference/kernel.md from defs/kernel.def. --check only compares (lint)."""

import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(TOP, "defs/kernel.def")
PAGE = os.path.join(TOP, "docs/reference/kernel.md")
CELLS = {"FEATURE": 9, "SETTING": 9, "CHECK": 6}


def rows(text):
    """Yields (macro, [cells]); adjacent string literals are joined, as C does."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    token = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([A-Za-z0-9_]+)|([(),]))')
    macro, cells, cell, pos = None, [], "", 0
    while (m := token.match(text, pos)) is not None:
        pos = m.end()
        string, word, mark = m.groups()
        if mark == "(":
            macro, cells, cell = cell, [], ""
        elif mark in (",", ")"):
            cells.append(cell)
            cell = ""
            if mark == ")":
                yield macro, cells
                macro = None
        else:
            cell += word if word is not None else string.replace('\\"', '"').replace("\\\\", "\\")
    if text[pos:].strip():
        raise SystemExit(f"{TABLE}: cannot read: {text[pos:pos + 60]!r}")


def checked(text):
    seen = set()
    for macro, cells in rows(text):
        if len(cells) != CELLS.get(macro, -1):
            raise SystemExit(f"{TABLE}: {macro}({cells[0]}): {len(cells)} cells, want {CELLS.get(macro)}")
        if not all(cells):
            raise SystemExit(f"{TABLE}: {macro}({cells[0]}): an empty cell")
        if cells[1] in seen:
            raise SystemExit(f"{TABLE}: id {cells[1]} twice")
        seen.add(cells[1])
        yield macro, cells


def cell(text):
    return text.replace("|", "\\|")


def page(text):
    features, settings, checks = [], [], []
    for macro, c in checked(text):
        if macro == "FEATURE":
            since = f"{int(c[4]) // 100}.{int(c[4]) % 100}"
            features.append(f"| `{c[1]}` | {c[5].lower()} | {since} | {cell(c[6])} | {cell(c[7])} | {cell(c[8])} |")
        elif macro == "SETTING":
            sign = {"AT_LEAST": "≥", "AT_MOST": "≤", "EQUAL": "="}[c[3]]
            name = c[2].replace("/", ".")
            settings.append(f"| `{c[1]}` | {c[5].lower()} | `{name}` {sign} {c[4]} | {cell(c[6])} | {cell(c[7])} | `{cell(c[8])}` |")
        else:
            checks.append(f"| `{c[1]}` | {c[2].lower()} | {cell(c[3])} | {cell(c[4])} | {cell(c[5])} |")
    return "\n".join([
        "# What cay wants from the machine", "",
        "Generated from `defs/kernel.def` by `tools/gen_kernel_doc.py`; `cay doctor` looks at each row and says what it found.", "",
        "Levels: *required* (no sandbox starts without it), *recommended* (works with less), *info*. Nothing is ever changed by cay.", "",
        "## Conditions", "",
        "| id | level | what | lost without it | fix |", "|---|---|---|---|---|", *checks, "",
        "## Kernel features", "",
        "Found by trying them. `CAY_WITHOUT=id,id,…` pretends that they are missing; `CAY_WITHOUT=all` means every one newer than Linux 6.1, the floor: each of those has a fallback.", "",
        "| id | level | since | used for | without it | fix |", "|---|---|---|---|---|---|", *features, "",
        "## Settings", "",
        "A switch that the kernel does not have counts as fine.", "",
        "| id | level | wanted | what | without it | fix |", "|---|---|---|---|---|---|", *settings, "",
    ])


def main():
    with open(TABLE, encoding="utf-8") as f:
        text = page(f.read())
    if "--check" in sys.argv:
        with open(PAGE, encoding="utf-8") as f:
            if f.read() != text:
                raise SystemExit("docs/reference/kernel.md is not what tools/gen_kernel_doc.py writes: run it")
        return
    os.makedirs(os.path.dirname(PAGE), exist_ok=True)
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(text)


if __name__ == "__main__":
    main()
