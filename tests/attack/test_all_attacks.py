# SPDX-License-Identifier: Apache-2.0
"""The attacks that the short form leaves out: those that end, fill or exhaust their sandbox, and those that are driven from outside, as root.
The ways around the gateway are in tests/bypass; what breaks with its defence switched off shows `make attack`."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import run  # noqa: E402
from lib import cay  # noqa: E402
from lib.case import equal, require  # noqa: E402

LONG = True
TIMEOUT = 600
# on a busy machine its programs, which have a fifth of a processor, may not have begun when it is judged: `make attack` has it, and tests/unit/test_argv_reader.c shows the mechanism
UNSTEADY = {"RX-28"}


def check_blocked(kind):
    """No case of @kind may break, none may fail to run, and most must have something to attack here."""
    around = {case.id for case in run.bypass.CASES}
    chosen = [case for case in run.ALL.values() if case.kind == kind and case.id not in around | UNSTEADY]
    verdicts = {}
    with run.Session(cay.BUILD) as session:
        for case in chosen:
            verdicts[case.id] = session.run(case)
    equal([f"{name} {v.outcome}: {v.reasons}"[:400] for name, v in verdicts.items() if v.broken], [])
    blocked = sum(v.outcome == "blocked" for v in verdicts.values())
    assert blocked > len(chosen) * 3 // 4, f"{blocked} of {len(chosen)} were blocked, the others had nothing to attack"


@require("root", "cgroup2", "program:strace")
def test_attacks_that_end_or_fill_their_sandbox_are_blocked():
    check_blocked("fresh")


@require("root", "cgroup2", "program:strace")
def test_attacks_from_outside_are_blocked():
    check_blocked("outside")
