#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every header of src/codec/ (one codec, in one or more files), and what else reads text from outside, has a fuzz target, listed in fuzz/meson.build, and a committed corpus; no target is without its file."""

import glob
import os
import re

import tree

# Beside the codecs, what reads bytes that somebody else has made: target -> file.
BESIDES = {
    "account": "src/sandbox/account.c",             # /etc/passwd and /etc/group of a sandbox
    "filter_run": "src/checkpoint/filter_run.c",    # system call filters of its programs
    "image_check": "src/checkpoint/image_check.c",
    "learned": "src/sandbox/learned.c",             # who has installed which of these
    "policy": "src/policy/policy.c",
    "proxy": "src/gateway/proxy.c",
    "sieve": "src/policy/sieve.c",
    "sigv4": "src/gateway/sigv4.c",
}


def check(top=tree.TOP):
    """Findings, as text."""
    headers = {os.path.basename(f)[:-2] for f in glob.glob(os.path.join(top, "src/codec/*.h"))}
    codecs = {name for name in headers if not name.endswith("_parts")} | set(BESIDES)
    parts = {name[:-len("_parts")] for name in headers if name.endswith("_parts")}
    files = {os.path.basename(f)[:-2] for f in glob.glob(os.path.join(top, "src/codec/*.c"))}
    targets = {os.path.basename(f)[5:-2] for f in glob.glob(os.path.join(top, "fuzz/fuzz_*.c"))}
    build = os.path.join(top, "fuzz/meson.build")
    text = open(build, encoding="utf-8").read() if os.path.exists(build) else ""
    listed = re.search(r"^fuzz_targets = \[(.*?)\]", text, re.M | re.S)
    built = set(re.findall(r"'(\w+)'", listed[1])) if listed else set()
    found = [f"{BESIDES.get(name, f'src/codec/{name}.c')}: no fuzz target fuzz/fuzz_{name}.c" for name in sorted(codecs - targets)]
    found += [f"src/codec/{name}.c: neither a codec with a header nor a part of one with a {name.split('_')[0]}_parts.h"
              for name in sorted(files - headers) if not any(name.startswith(part + "_") for part in parts)]
    found += [f"fuzz/fuzz_{name}.c: there is no src/codec/{name}.c" for name in sorted(targets - codecs)]
    found += [f"fuzz/meson.build: {name} is not in fuzz_targets" for name in sorted(targets - built)]
    found += [f"fuzz/corpus/{name}: no committed input" for name in sorted(targets)
              if not os.path.isdir(os.path.join(top, "fuzz/corpus", name)) or not os.listdir(os.path.join(top, "fuzz/corpus", name))]
    return found


if __name__ == "__main__":
    import lint
    lint.report(check())
