#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the attack cases against an instance of this build and prints what came of each.

Every case is judged by oracles outside of the sandbox (canary.py, posture.py). With --ablate each defence of defs/defences.def is
switched off in a second build and the cases that it claims to stop must then be seen to break: only those are counted, since a case
that nothing can break proves nothing. Exit status 0 only when every case is blocked (or this kernel has nothing to attack).
"""

import argparse
import ctypes
import os
import re
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE)]
sys.dont_write_bytecode = True

import cases  # noqa: E402
import outside  # noqa: E402
from session import Session, Verdict  # noqa: E402

ALL = {c.id: c for c in cases.INSIDE + outside.CASES}
ROW = re.compile(r'^DEFENCE\((\w+),\s*"([^"]*)",\s*"([^"]*)",\s*"([^"]*)",\s*"([^"]*)"\)$', re.M)
CLAIM = re.compile(r"^([A-Z]{2}-\d+[A-Z]?)((?:\+\w+)*)(?:@(\w+))?$")


class Claim:
    """One defence claims to stop one case; @with_: other belts that must be off too, so that this one is seen alone."""

    def __init__(self, defence, text):
        match = CLAIM.match(text)
        if not match:
            raise ValueError(f"defences.def: {defence}: {text!r} is not CASE[+defence…][@profile]")
        self.defence, self.case = defence, match[1]
        self.others = tuple(w for w in match[2].split("+") if w)
        self.profile = match[3] or "default"
        self.verdict = self.control = None

    @property
    def off(self):
        return frozenset((self.defence,) + self.others)

    @property
    def broke(self):
        """It broke with the defence off, and (where others were off as well) held with the defence on."""
        held = self.control is None or not self.control.broken
        return self.verdict is not None and self.verdict.outcome in ("escaped", "leaked") and held


def defences():
    """{id: (what, where, [Claim], how)} of defs/defences.def."""
    with open(os.path.join(TOP, "defs", "defences.def"), encoding="ascii") as f:
        rows = ROW.findall(f.read())
    return {name: (what, where, [Claim(name, c) for c in stops.split()], how) for name, what, where, stops, how in rows}


def attack_names(build):
    """What each case does, in the attacker's own words."""
    import subprocess
    done = subprocess.run([os.path.join(build, "tests", "attack", "redcell"), "--list"], capture_output=True, text=True, check=True)
    names = dict(line.split("\t") for line in done.stdout.splitlines())
    for case in ALL.values():
        if not case.attack:
            case.attack = names[case.redcell or case.id]


def worst(verdicts):
    order = {"error": 4, "escaped": 3, "leaked": 2, "blocked": 1, "unreachable": 0}
    return max(verdicts, key=lambda v: order[v.outcome]) if verdicts else Verdict("error", ["not run"])


def run_plain(build, chosen, options):
    """{case id: (worst verdict, [(profile, user, verdict)])}"""
    results = {}
    with Session(build) as session:
        for case in chosen:
            ran = []
            for profile in case.profiles:
                for user in case.users if not options.quick else case.users[:1]:
                    start = time.monotonic()
                    v = session.run(case, profile, user)
                    ran.append((profile, user, v))
                    if options.verbose or v.broken:
                        print(f"# {case.id} {profile}/{user} {v.outcome} {time.monotonic() - start:.2f}s {'; '.join(map(str, v.reasons))[:500]}",
                              file=sys.stderr, flush=True)
                    if v.broken and case.kind == "shared":
                        session.drop_victim(profile)
            results[case.id] = (worst([v for _, _, v in ran]), ran)
    return results


def run_ablated(build, table, chosen, options):
    """Fill in the verdict of every claim: one instance for each set of defences that is off."""
    wanted = {c.id for c in chosen}
    claims = [c for _, _, row, _ in table.values() for c in row if c.case in wanted]
    jobs = {}
    for c in claims:
        jobs.setdefault(c.off, []).append((c, "verdict"))
        if c.others:
            jobs.setdefault(frozenset(c.others), []).append((c, "control"))
    for off, todo in sorted(jobs.items(), key=lambda j: sorted(j[0])):
        try:
            with Session(build, off) as session:
                for claim, field in todo:
                    user = "root"
                    v = session.run(ALL[claim.case], claim.profile, user)
                    setattr(claim, field, v)
                    if claim.profile in session.sandboxes and v.broken:
                        session.drop_victim(claim.profile)
                    if options.verbose:
                        print(f"# off {'+'.join(sorted(off))}: {claim.case} {v.outcome} {'; '.join(map(str, v.reasons))[:300]}", file=sys.stderr, flush=True)
        except Exception as error:  # pylint: disable=broad-except
            print(f"# off {'+'.join(sorted(off))}: no instance: {error}"[:600], file=sys.stderr, flush=True)
            for claim, field in todo:
                if getattr(claim, field) is None:
                    setattr(claim, field, Verdict("error", [f"no instance: {error}"[:200]]))
    return claims


def cell(text, width):
    text = " ".join(str(text).split())
    return (text if len(text) <= width else text[:width - 1] + "…").ljust(width)


def print_table(results, claims):
    by_case = {}
    for c in claims:
        by_case.setdefault(c.case, []).append(c)
    print(f"{'case':<8}{cell('attack', 46)} {cell('expected', 30)} {'outcome':<12}{cell('oracle', 34)} {cell('defences', 34)} ablation")
    for name, (v, _) in sorted(results.items()):
        case, mine = ALL[name], by_case.get(name, [])
        shown = []
        for c in mine:
            word = "broke" if c.broke else "held" if c.verdict and not c.verdict.broken else "error"
            shown.append(f"{word} ({'oracle' if c.verdict.by_oracle else 'call'})" if c.broke else word)
        print(f"{name:<8}{cell(case.attack, 46)} {cell(case.expected, 30)} {v.outcome:<12}{cell(case.oracle, 34)} "
              f"{cell(' '.join(sorted({'+'.join((c.defence,) + c.others) for c in mine})) or '-', 34)} {' '.join(sorted(set(shown))) or '-'}")
        if v.broken:
            print(f"        {'; '.join(map(str, v.reasons))[:600]}")


def summary(results, claims, ablated):
    outcomes = [v.outcome for v, _ in results.values()]
    unproved = sorted({f"{c.defence}:{c.case}" for c in claims if not c.broke})
    if unproved:
        print(f"{len(unproved)} claims not seen to break, not counted: {' '.join(unproved)}")
    counted = {c.case for c in claims if c.broke and not results[c.case][0].broken and results[c.case][0].outcome == "blocked"}
    tail = f"; {len(counted)} counted (their ablated run broke)" if ablated else "; none counted (no ablated run)"
    bad = sum(o in ("escaped", "leaked") for o in outcomes)
    errors = outcomes.count("error")
    print(f"{len(outcomes)} cases: {outcomes.count('blocked')} blocked, {bad} broken, {outcomes.count('unreachable')} unreachable"
          + (f", {errors} not run" if errors else "") + tail)
    return 0 if outcomes and not bad and not errors else 1


def become_subreaper():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--ablation-build", default=os.path.join(TOP, "build-ablation"))
    parser.add_argument("--ablate", action="store_true", help="also switch off each defence and see its attacks succeed")
    parser.add_argument("--quick", action="store_true", help="one user for each case")
    parser.add_argument("--verbose", "-v", action="store_true")
    parser.add_argument("only", nargs="*", help="case ids, or their first letters")
    options = parser.parse_args()
    if os.getuid() != 0:
        print("the attack suite needs root: its oracles look into other processes", file=sys.stderr)
        return 77
    become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    chosen = [c for c in ALL.values() if not options.only or any(c.id.startswith(o) for o in options.only)]
    attack_names(options.build)
    results = run_plain(os.path.abspath(options.build), chosen, options)
    claims = run_ablated(os.path.abspath(options.ablation_build), defences(), chosen, options) if options.ablate else []
    print_table(results, claims)
    return summary(results, claims, options.ablate)


if __name__ == "__main__":
    sys.exit(main())
