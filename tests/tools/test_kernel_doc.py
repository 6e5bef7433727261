# SPDX-License-Identifier: Apache-2.0
"""docs/reference/kernel.md is what its generator writes; the generator refuses a table with a hole."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import gen_kernel_doc as gen
from lib.case import contains, equal

QUICK = True


def refused(table, part):
    try:
        gen.page(table)
    except SystemExit as error:
        contains(str(error), part)
    else:
        raise AssertionError(f"accepted: {table}")


def test_an_empty_cell_is_refused():
    refused('CHECK(A, "a", INFO,\n\t"what", "", "fix")', "an empty cell")
    refused('CHECK(A, "a", INFO, "what", , "fix")', "an empty cell")


def test_a_missing_cell_is_refused():
    refused('CHECK(A, "a", INFO, "what", "lost")', "5 cells")


def test_an_id_is_there_once():
    refused('CHECK(A, "a", INFO, "w", "l", "f")\nCHECK(B, "a", INFO, "w", "l", "f")', "twice")


def test_the_page_is_up_to_date():
    with open(gen.TABLE, encoding="utf-8") as f:
        table = f.read()
    with open(gen.PAGE, encoding="utf-8") as f:
        equal(f.read(), gen.page(table), "run tools/gen_kernel_doc.py")
