# SPDX-License-Identifier: Apache-2.0
"""The checks of make lint notice what they are there for: each is given a small tree with one mistake."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import check_banned
import check_defs
import check_docs
import check_layers
import lint
import tree
from lib.case import Skip, contains, equal

QUICK = True


def findings(check, tmp, **files):
    """What @check says about a tree of @files; a name's __ stands for /, its last _ for a dot."""
    for name, text in files.items():
        path = os.path.join(tmp, name.replace("__", "/")[::-1].replace("_", ".", 1)[::-1])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
    before, tree.TOP = tree.TOP, tmp
    try:
        return check()
    finally:
        tree.TOP = before


def one(found, part):
    equal(len(found), 1, str(found))
    contains(found[0], part)


def test_layers_refuse_the_way_up(tmp):
    one(findings(check_layers.check, tmp, src__base__x_c='#include "sys/y.h"\n'), "may not include sys/y.h")


def test_layers_keep_the_command_away_from_the_engine(tmp):
    one(findings(check_layers.check, tmp, src__prog__cay__x_c='#include "store/y.h"\n#include "io/z.h"\n'), "store/y.h")


def test_layers_refuse_relative_includes(tmp):
    one(findings(check_layers.check, tmp, src__store__x_c='#include "../base/y.h"\n'), "written from src/")


def test_layers_refuse_a_name_twice(tmp):
    one(findings(check_layers.check, tmp, src__store__x_c="", src__base__x_c=""), "unique")


def test_layers_refuse_an_unknown_folder(tmp):
    one(findings(check_layers.check, tmp, src__misc__x_c=""), "no layer")


def test_layers_accept_the_way_down(tmp):
    equal(findings(check_layers.check, tmp, src__store__x_c='#include "base/y.h"\n#include "store/z.h"\n#include <stdio.h>\n'), [])


def test_docs_want_a_block(tmp):
    one(findings(check_docs.check, tmp, src__base__x_h="/** DOC: x */\nint x_do(int a);\n"), "x_do() has no /** block")


def test_docs_want_the_real_parameters(tmp):
    text = "/** DOC: x */\n/**\n * x_do() - does\n * @b: wrong\n */\nint x_do(int a, void (*f)(int));\n"
    one(findings(check_docs.check, tmp, src__base__x_h=text), "@b are not its parameters")


def test_docs_accept_parameters_in_order(tmp):
    text = "/** DOC: x */\n/**\n * x_do() - does\n * @a: one\n * @f: two\n */\nint x_do(int a,\n\tvoid (*f)(int));\n"
    equal(findings(check_docs.check, tmp, src__base__x_h=text), [])


def test_docs_want_to_know_what_a_header_is_for(tmp):
    one(findings(check_docs.check, tmp, src__base__x_h="#define X 1\n"), "no DOC block")


def test_banned_calls_are_seen(tmp):
    for call in ("strcpy(a, b)", "sprintf(a, b)", "strtok(a, b)", "atoi(a)", "system(a)", "popen(a, b)", "alloca(1)", "sleep(1)", "usleep(1)",
                 "signal(SIGTERM, f)", "getenv(a)", "pipe(a)"):
        one(findings(check_banned.check, tmp, src__store__x_c=f"void f(void)\n{{\n\t{call};\n}}\n"), call.split("(")[0] + "()")


def test_banned_calls_in_comments_and_strings_are_not_calls(tmp):
    text = 'void f(void)\n{\n\t/* system("x") and\n\t   sprintf(y) */\n\tputs("sleep(1)");\n\tmy_sleep(1);\n\tx->system(2);\n}\n'
    equal(findings(check_banned.check, tmp, src__store__x_c=text), [])


def test_descriptors_that_leak_are_seen(tmp):
    one(findings(check_banned.check, tmp, src__store__x_c="int f(void)\n{\n\treturn open(p, O_RDONLY);\n}\n"), "O_CLOEXEC")
    equal(findings(check_banned.check, tmp, src__store__x_c="int f(void)\n{\n\treturn open(p,\n\t\tO_RDONLY | O_CLOEXEC);\n}\n"), [])


def test_notes_to_do_something_later_are_seen(tmp):
    one(findings(check_banned.check, tmp, src__store__x_c="/* TO" + "DO: all of it */\n"), "later")


def test_places_of_one_machine_are_seen(tmp):
    one(findings(check_banned.check, tmp, docs__x_md="see /wo" + "rk/shared\n"), "no place")


def test_error_codes_are_unique_and_whole(tmp):
    row = 'ERR(A, "a", 400, 125, "means")\n'
    equal(findings(check_defs.check_errors, tmp, defs__errors_def=row), [])
    contains(str(findings(check_defs.check_errors, tmp, defs__errors_def=row + row)), "twice")
    contains(str(findings(check_defs.check_errors, tmp, defs__errors_def='ERR(A, "a", 200, 125, "means")\n')), "out of range")
    contains(str(findings(check_defs.check_errors, tmp, defs__errors_def='ERR(A, "a", 400, 125, "")\n')), "empty")
    contains(str(findings(check_defs.check_errors, tmp, defs__errors_def='ERR(A, "a", 400,\n125, "x")\n')), "one line")


def test_empty_cells_are_seen(tmp):
    contains(str(findings(check_defs.check_cells, tmp, defs__defences_def='DEFENCE(A, "", "x")\n')), "empty cell")
    contains(str(findings(check_defs.check_cells, tmp, defs__defences_def='DEFENCE(A, "x", )\n')), "empty cell")
    equal(findings(check_defs.check_cells, tmp, defs__defences_def='DEFENCE(A, "x, y", "z")\n'), [])


def test_fault_points_need_a_test(tmp):
    source = 'int f(void)\n{\n\treturn fault("store.x");\n}\n'
    one(findings(check_defs.check_faults, tmp, src__store__x_c=source), "store.x is in no test")
    equal(findings(check_defs.check_faults, tmp, src__store__x_c=source, tests__crash__x_py='POINTS = ["store.x"]\n'), [])


def test_broken_scripts_are_seen(tmp):
    one(findings(lint.check_scripts, tmp, tools__x_py="def f(:\n"), "invalid syntax")
    os.remove(os.path.join(tmp, "tools/x.py"))
    contains(str(findings(lint.check_scripts, tmp, tools__x_sh="#!/bin/sh\nif\n")), "unexpected")


def test_format_is_law(tmp):
    if not lint.formatter_decides():
        raise Skip(f"needs clang-format {lint.CLANG_FORMAT}")
    with open(os.path.join(tmp, ".clang-format"), "w", encoding="utf-8") as f:
        f.write("BasedOnStyle: LLVM\n")
    one(findings(lint.check_format, tmp, src__base__x_c="int   x;\n"), "clang-format -i")
