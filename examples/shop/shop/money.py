# SPDX-License-Identifier: Apache-2.0
"""Money is a whole number of cents; nothing here is ever a float."""

import re


def parse(text):
    """'12.34' -> 1234. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d{1,9})(?:\.(\d{2}))?", text)
    if not match:
        raise ValueError(f"not an amount: {text!r}")
    return int(match[1]) * 100 + int(match[2] or 0)


def show(cents):
    """1234 -> '12.34'"""
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100}.{abs(cents) % 100:02d}"


def percent_of(cents, basis_points):
    """The given share of an amount, rounded half up to a cent."""
    return (cents * basis_points + 5000) // 10000
