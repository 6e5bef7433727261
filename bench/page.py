# SPDX-License-Identifier: Apache-2.0
"""docs/performance.md: what a benchmark measured stands there between two marks of its own."""

import os

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "docs", "performance.md")


def replace_between(begin, end, text):
    """Put @text between two marks of the page."""
    with open(PAGE, encoding="utf-8") as f:
        before, rest = f.read().split(begin, 1)
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(before + begin + "\n" + text + "\n" + end + rest.split(end, 1)[1])
