#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/events.md from defs/events.def.

usage: gen_event_doc.py [--check]
"""
import os
import re
import sys

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROW = re.compile(r'^EVENT\((\w+), "([^"]+)", (\d+), "([^"]*)", "([^"]+)"\)$', re.M)

HEAD = """# Events

Generated from `defs/events.def` by `tools/gen_event_doc.py`.

An event is one line of JSON: `cause` (what led to it: `{"event": n}`, `{"pid": p}`, or who asked for it through the API: `{"uid": u, "pid": p, "command": c}`; else null), `data` (below), `epoch` (of the sandbox; a snapshot or rewind
begins a new one), `exec` (the command it belongs to, or null), `member` (the same as `sandbox` for now), `n` (number over all events, without gaps), `sandbox` (null: the
instance itself), `seq` (number within the sandbox, from 1, without gaps), `time`, `type`, `hash`.

`hash` is SHA-256 of the 32 bytes of the sandbox's hash before (zeros for the first) followed by the line without its `,"hash":"…"` member; the line is canonical JSON:
members sorted, no spaces. `cay events verify` recomputes the chain and compares its head with the catalogue's.

`data` of half a MiB and more (a command with as long arguments) are `{"omitted_bytes": N}` instead.

Where the kernel's report of processes lost something, or the disk was full until 256 MiB of events waited to be written, an `events.lost` event says how many at most;
nothing is lost in silence.

| type | version | members of `data` | when |
|---|---|---|---|
"""


def text():
    with open(os.path.join(TOP, "defs/events.def"), encoding="utf-8") as source:
        rows = ROW.findall(source.read())
    if not rows:
        raise SystemExit("no EVENT rows in defs/events.def")
    lines = [f"| `{wire}` | {version} | {' '.join(f'`{m}`' for m in members.split()) or '–'} | {when} |" for _, wire, version, members, when in rows]
    return HEAD + "\n".join(lines) + "\n"


def main():
    path = os.path.join(TOP, "docs/reference/events.md")
    if sys.argv[1:] == ["--check"]:
        with open(path, encoding="utf-8") as present:
            if present.read() != text():
                raise SystemExit("docs/reference/events.md is not what tools/gen_event_doc.py writes: run it")
        return
    if sys.argv[1:]:
        raise SystemExit(__doc__)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text())


if __name__ == "__main__":
    main()
