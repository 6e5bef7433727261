# SPDX-License-Identifier: Apache-2.0
"""The short form of the attack suite (`make attack` is the whole): the table of defences is true, and the attacks that leave nothing
behind are blocked, as root of a default sandbox."""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import run  # noqa: E402
from lib import cay  # noqa: E402
from lib.case import equal, require, timeout  # noqa: E402

TOP = cay.TOP


def sources():
    for base, _, names in os.walk(os.path.join(TOP, "src")):
        for name in names:
            if name.endswith(".c"):
                path = os.path.join(base, name)
                with open(path, encoding="utf-8") as f:
                    yield os.path.relpath(path, TOP), f.read()


def test_every_row_is_in_the_code_and_every_switch_in_a_row():
    """A row names a function that exists and holds its switch; a switch without a row would be a defence nobody checks."""
    table, switches = run.defences(), {}
    for path, text in sources():
        for name in re.findall(r'\bablated\("(\w+)"\)', text):
            switches.setdefault(name, set()).add(path)
    equal(sorted(set(switches) - set(table)), [], "switches without a row")
    for name, (_, where, claims, _) in table.items():
        path, function = where.split(":")
        with open(os.path.join(TOP, path), encoding="utf-8") as f:
            text = f.read()
        assert re.search(rf"\b{function}\(", text), f"{name}: no function {function} in {path}"
        assert name in switches, f"{name}: no ablated(\"{name}\") in the code"
        assert claims, f"{name}: stops nothing"
        for claim in claims:
            assert claim.case in run.ALL, f"{name}: no case {claim.case}"
            for other in claim.others:
                assert other in table, f"{name}: no defence {other}"


def test_every_case_is_known_to_the_attacker():
    run.attack_names(cay.BUILD)
    for case in run.ALL.values():
        assert case.attack and case.expected and case.oracle, case.id


@require("root", "cgroup2")
@timeout(240)
def test_attacks_that_leave_nothing_behind_are_blocked():
    chosen = [c for c in run.ALL.values() if c.kind == "shared"]
    bad = []
    with run.Session(cay.BUILD) as session:
        for case in chosen:
            verdict = session.run(case)
            if verdict.outcome not in ("blocked", "unreachable"):
                bad.append(f"{case.id} {verdict.outcome}: {'; '.join(map(str, verdict.reasons))[:300]}")
                session.drop_victim("default")
    equal(bad, [], f"{len(chosen)} cases")
