#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Includes go only downwards: a folder of src/ includes itself and those above it in LAYERS. File names are unique in src/."""

import os
import re

import tree

LAYERS = ["base", "sys", "codec", "io", "policy", "store", "checkpoint", "services", "gateway", "sandbox", "events", "tasks", "api",
          "prog"]
# Some folders see less than what stands above them.
ONLY = {
    "sys": {"base", "sys"},
    "codec": {"base", "codec"},
    "policy": {"base", "codec", "policy"},
    "gateway": {"base", "sys", "codec", "io", "policy", "gateway"},
    "services": {"base", "sys", "codec", "io", "policy", "services"},
}
PROGRAMS = {
    "cay": {"base", "codec", "io"},
    "cay-spawn": {"base", "sys"},
    "cay-init": {"base", "sys"},
}
# Several programs have a main.c; nothing else repeats.
REPEATED = {"main.c", "meson.build"}


def allowed(path):
    """Layers that the file may include."""
    parts = path.split("/")
    layer = parts[1]
    if layer == "prog":
        return PROGRAMS.get(parts[2], set(LAYERS)) | {"prog"}
    return ONLY.get(layer) or set(LAYERS[:LAYERS.index(layer) + 1])


def check():
    found, names = [], {}
    for path in tree.files(under="src"):
        parts = path.split("/")
        if len(parts) < 3:
            continue
        if parts[1] not in LAYERS:
            found.append(f"{path}: folder src/{parts[1]} is no layer (DESIGN §4)")
            continue
        name = os.path.basename(path)
        if name in names and name not in REPEATED:
            found.append(f"{path}: there is a {names[name]} already; names are unique in src/")
        names.setdefault(name, path)
        if not path.endswith((".c", ".h")):
            continue
        for match in re.finditer(r'^\s*#\s*include\s+"([^"]+)"', tree.text(path), re.M):
            layer = match[1].split("/")[0]
            where = f"{path}:{tree.line_of(tree.text(path), match.start())}"
            if match[1].startswith("."):
                found.append(f"{where}: includes are written from src/: {match[1]}")
            elif layer in LAYERS and "/" in match[1] and layer not in allowed(path):
                found.append(f"{where}: {'/'.join(parts[1:-1])} may not include {match[1]}")
    return found


if __name__ == "__main__":
    import lint
    lint.report(check())
