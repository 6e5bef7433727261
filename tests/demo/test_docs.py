# SPDX-License-Identifier: Apache-2.0
"""What the documents name must exist: paths in the repository, and the targets of links."""

import glob
import os
import re

from lib.case import equal
from lib.cay import TOP

FOLDERS = ("src/", "defs/", "tests/", "tools/", "docs/", "examples/", "bench/", "fuzz/", "third_party/", ".ci/", "packaging/")
MADE = ("bench/results/",)  # by a command, not kept in the repository


def documents():
    pages = glob.glob(os.path.join(TOP, "*.md"))
    for folder in ("docs", "examples"):
        pages += glob.glob(os.path.join(TOP, folder, "**", "*.md"), recursive=True)
    return pages


def text_of(page):
    with open(page, encoding="utf-8") as file:
        return re.sub(r"```.*?```", "", file.read(), flags=re.S)


def missing_paths(text, page="README.md"):
    """Repository paths in `code` that name nothing, neither from the top nor from the page. A pattern is not a path."""
    here = os.path.dirname(os.path.join(TOP, page))
    missing = []
    for path in re.findall(r"`([^`\s]+)`", text):
        if not path.startswith(FOLDERS) or re.search(r"[*<>{}…]", path) or path in MADE:
            continue
        if not os.path.exists(os.path.join(TOP, path)) and not os.path.exists(os.path.join(here, path)):
            missing.append(path)
    return missing


def broken_links(text, page):
    found = []
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not os.path.exists(os.path.join(os.path.dirname(page), target)):
            found.append(target)
    return found


def test_the_check_itself():
    equal(missing_paths("see `src/nothing.c`, `src/base/err.h`, `tests/*/x`"), ["src/nothing.c"])
    equal(broken_links("[a](README.md) [b](nothing.md) [c](https://example.org)", os.path.join(TOP, "README.md")), ["nothing.md"])


def test_paths_exist():
    found = {os.path.relpath(page, TOP): missing_paths(text_of(page), page) for page in documents()}
    equal({page: paths for page, paths in found.items() if paths}, {})


def test_links_resolve():
    found = {os.path.relpath(page, TOP): broken_links(text_of(page), page) for page in documents()}
    equal({page: links for page, links in found.items() if links}, {})
