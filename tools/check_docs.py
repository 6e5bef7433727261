#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Headers are manuals: every prototype in src/**/*.h has a /** block just above it, every header opens with a DOC block, and the
@names of a block are parameters of its function, in their order."""

import re

import tree

PROTOTYPE = re.compile(r"^(?!typedef|static|extern|struct \w+ \{|enum|union|#|\s|\}|/|\*|_Static_assert)"
                       r"[A-Za-z_][\w \t\*]*?\**([a-z_]\w*)\(", re.M)


def parameters(source, at):
    """Parameter names of the prototype whose "(" is at @at."""
    depth, end = 0, at
    while end < len(source):
        depth += {"(": 1, ")": -1}.get(source[end], 0)
        end += 1
        if depth == 0:
            break
    inside, parts, level = source[at + 1:end - 1], [""], 0
    for c in inside:
        level += {"(": 1, ")": -1, "[": 1, "]": -1}.get(c, 0)
        if c == "," and level == 0:
            parts.append("")
        else:
            parts[-1] += c
    names = []
    for part in parts:
        pointer = re.search(r"\(\s*\*\s*(\w+)", part)
        plain = re.search(r"(\w+)\s*(?:\[[^\]]*\])*\s*$", part.strip())
        names.append(pointer[1] if pointer else "..." if "..." in part else plain[1] if plain else "")
    return [n for n in names if n != "void"]


def in_order(wanted, have):
    rest = iter(have)
    return all(any(w == h for h in rest) for w in wanted)


def check_header(path):
    source = tree.text(path)
    bare = tree.blank(source)
    found = []
    if "/** DOC:" not in source and "* DOC:" not in source:
        found.append(f"{path}:1: no DOC block says what the header is for")
    for match in PROTOTYPE.finditer(bare):
        name, line = match[1], tree.line_of(source, match.start())
        end = bare.find(";", match.end())
        brace = bare.find("{", match.end())
        if end < 0 or (0 <= brace < end):
            continue  # a definition
        before = source[:match.start()].rstrip()
        if not before.endswith("*/") or (block := before[before.rfind("/*"):]) and not block.startswith("/**") or "DOC:" in block:
            found.append(f"{path}:{line}: {name}() has no /** block")
            continue
        tags = re.findall(r"^\s*\*\s*@(\w+|\.\.\.):", block, re.M)
        have = parameters(bare, match.end() - 1)
        if tags and not in_order(tags, have):
            found.append(f"{path}:{line}: {name}(): @{', @'.join(tags)} are not its parameters in their order ({', '.join(have)})")
    return found


def check():
    return [line for path in tree.files(".h", under="src") for line in check_header(path)]


if __name__ == "__main__":
    import lint
    lint.report(check())
