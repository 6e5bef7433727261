# SPDX-License-Identifier: Apache-2.0
"""A hundred live forks of one working program after another, each of them verified; the source is verified at the end and goes on all the while."""

import os
import sys

from lib.case import equal, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import fork_live  # noqa: E402
from programs import Node, PostgreSQL, Redis, Repl  # noqa: E402

LONG = True
ROUNDS = int(os.environ.get("CAY_TEST_ROUNDS", "100"))
NEEDS = ("root", "cgroup2")


def make_case(kind):
    def case(instance):
        with instance.sandbox() as box:
            program = kind(instance, box)
            for n in range(ROUNDS):
                fork = fork_live(instance, box)[0]
                try:
                    equal(program.tell(fork, str(n)), [str(n)])
                    program.end(fork)
                except AssertionError as e:
                    raise AssertionError(f"round {n}: {e}") from e
                instance.remove(fork)
            equal(program.tell(box, "source"), ["source"])
            program.end(box)
    case.__name__ = f"test_{kind.__name__.lower()}"
    return timeout(3000)(require(*NEEDS, *kind.needs)(case))


for _kind in (PostgreSQL, Redis, Repl, Node):
    _case = make_case(_kind)
    globals()[_case.__name__] = _case
