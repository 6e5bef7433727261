# SPDX-License-Identifier: Apache-2.0
"""The short form of the attack suite (`make attack` is the whole): the table of defences is true, and the attacks that leave nothing
behind are blocked, as root of a default sandbox. The others: test_all_attacks.py."""

import contextlib
import io
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


def test_every_case_is_stopped_by_a_row_or_says_why_none_counts():
    claimed = {claim.case for _, _, claims, _ in run.defences().values() for claim in claims}
    # the ways around the gateway (tests/bypass) have their own account
    here = {case.id for case in run.cases.INSIDE + run.outside.CASES}
    equal(sorted(here - claimed - set(run.cases.UNCOUNTED)), [], "neither a row nor a reason")
    equal(sorted(claimed & set(run.cases.UNCOUNTED)), [], "a row and a reason")
    equal(sorted(set(run.cases.UNCOUNTED) - set(run.ALL)), [], "reasons for cases that do not exist")


def test_every_case_is_known_to_the_attacker():
    run.attack_names(cay.BUILD)
    for case in run.ALL.values():
        assert case.attack and case.expected and case.oracle, case.id
        # the attacker's own word is none; no kernel of ours has what KS-02B attacks
        assert case.oracle != "system call" or case.id == "KS-02B", case.id
        assert bool(case.traced) == (case.oracle == "a tracer outside"), case.id


def seen_to_break(*outcomes, plain="blocked"):
    """Exit status when defence `a` is switched off for as many cases as there are outcomes of that; @plain: what came of each with it."""
    claims = [run.Claim("a", f"XX-{n:02}") for n in range(len(outcomes))]
    for claim, outcome in zip(claims, outcomes):
        claim.verdict = run.Verdict(outcome, [""])
    results = {c.case: (run.Verdict(plain if o != "escaped" else "blocked", [""]), []) for c, o in zip(claims, outcomes)}
    with contextlib.redirect_stdout(io.StringIO()):
        return run.summary(results, claims, 0)


def test_a_claim_that_was_not_seen_to_break_is_told_by_the_exit_status():
    equal(seen_to_break("escaped", "escaped"), 0)
    equal(seen_to_break("escaped", "blocked"), run.UNPROVED)
    equal(seen_to_break("escaped", "error"), run.UNPROVED)
    equal(seen_to_break("escaped", "unreachable", plain="unreachable"), 0, "there is nothing to attack on this kernel")
    equal(seen_to_break("blocked"), 1, "a row that stops nothing")
    equal(seen_to_break("escaped", "escaped", "blocked", plain="escaped"), 1, "an attack that came through")


def programs():
    """All that is shipped: each has a folder of its own."""
    return [e.name for e in os.scandir(os.path.join(TOP, "src", "prog")) if e.is_dir()]


def test_a_shipped_program_knows_no_switch():
    """The switches exist in test builds alone: not even their names are in what is installed."""
    # some are words of the programs themselves
    words = set(re.findall(r"\w+", re.sub(r'\bablated\("\w+"\)', "", "".join(text for _, text in sources()))))
    names = [n.encode() for n in run.defences() if n not in words]
    assert len(names) > 30, names
    assert {"cay", "cay-gateway", "cay-template"} < set(programs()), programs()
    for program in programs():
        with open(os.path.join(cay.BUILD, program), "rb") as f:
            data = f.read()
        equal([n for n in names if b"\0" + n + b"\0" in data], [], program)


@require("root", "cgroup2", "program:strace")
@timeout(120)
def test_a_shipped_server_cannot_be_told_to_drop_a_defence():
    bad = []
    with run.Session(cay.BUILD, ["seccomp", "seccomp_ioctl", "landlock", "proc_mask", "json_depth", "expose_credentials"]) as session:
        for name in ("KS-07", "KS-13", "DV-02", "LL-04", "PR-02", "WB-07A", "FS-18"):
            verdict = session.run(run.ALL[name])
            bad += [] if verdict.outcome == "blocked" else [f"{name} {verdict.outcome}: {verdict.reasons}"[:300]]
    equal(bad, [])


def broken(session):
    """Attacks that leave nothing behind, as root of a default sandbox: what of them is not blocked."""
    bad = []
    for case in (c for c in run.ALL.values() if c.kind == "shared"):
        verdict = session.run(case)
        if verdict.broken:
            bad.append(f"{case.id} {verdict.outcome}: {'; '.join(map(str, verdict.reasons))[:300]}")
            session.drop_victim("default")
    return bad


@require("root", "cgroup2", "program:strace")
@timeout(240)
def test_attacks_that_leave_nothing_behind_are_blocked():
    with run.Session(cay.BUILD) as session:
        equal(broken(session), [])


@require("root", "cgroup2", "userns", "newuidmap", "program:strace")
@timeout(240)
def test_they_are_blocked_by_an_ordinary_users_server_too():
    with cay.ThrowawayUser() as user:
        for single in (False, True):
            with run.Session(cay.BUILD, user=user, single=single) as session:
                equal(broken(session), [], "single uid" if single else "subordinate ids")
