#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the attack cases against an instance of this build and prints what came of each.

Every case is judged by oracles outside of the sandbox (canary.py, posture.py). With --ablate each defence of defs/defences.def is
switched off in a second build and the cases that it claims to stop must then be seen to break: only those are counted, since a case
that nothing can break proves nothing. Exit status: 0 when every case is blocked (or this kernel has nothing to attack) and every claim
was seen to break; 3 when every case is blocked, but a claim was not seen to break in this run; 1 for all that is worse.
"""

import argparse
import concurrent.futures
import ctypes
import multiprocessing
import os
import re
import signal
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "bypass")]
sys.dont_write_bytecode = True

import cases  # noqa: E402
import outside  # noqa: E402
import outside_files  # noqa: E402, F401
import outside_http  # noqa: E402, F401
import outside_images  # noqa: E402, F401
import outside_load  # noqa: E402, F401
import outside_planted  # noqa: E402, F401
import outside_snapshots  # noqa: E402, F401
import bypass  # noqa: E402
from lib import cay  # noqa: E402
from session import Session, Verdict  # noqa: E402

ALL = {c.id: c for c in cases.INSIDE + outside.CASES + bypass.CASES}
ROW = re.compile(r'^DEFENCE\((\w+),\s*"([^"]*)",\s*"([^"]*)",\s*"([^"]*)",\s*"([^"]*)"\)$', re.M)
COUNTED_AT_LEAST = 120
UNPROVED = 3  # exit status
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
    order = {"error": 5, "escaped": 4, "leaked": 3, "blocked": 2, "unreachable": 1, "unjudged": 0}
    return max(verdicts, key=lambda v: order[v.outcome]) if verdicts else Verdict("error", ["not run"])


def run_plain(build, chosen, options, **mode):
    """{case id: (worst verdict, [(profile, user, verdict)])}; @mode: of the session."""
    results = {}
    with Session(build, **mode) as session:
        for case in (ALL[name] for name in chosen):
            ran = []
            for profile in case.profiles:
                # with one id there is no other user
                for user in case.users[:1] if options.quick or session.single else case.users:
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


def run_off(build, off, todo, options):
    """The cases @todo, [(index, case id, profile)], with the defences @off switched off: {index: verdict}."""
    found = {}
    try:
        with Session(build, off) as session:
            for index, case, profile in todo:
                v = found[index] = session.run(ALL[case], profile, "root")
                if profile in session.sandboxes and v.broken:
                    session.drop_victim(profile)
                if options.verbose:
                    print(f"# off {'+'.join(sorted(off))}: {case} {v.outcome} {'; '.join(map(str, v.reasons))[:300]}", file=sys.stderr, flush=True)
    except Stopped:
        raise
    except Exception as error:  # pylint: disable=broad-except
        print(f"# off {'+'.join(sorted(off))}: no instance: {error}"[:600], file=sys.stderr, flush=True)
    return {index: found.get(index, Verdict("error", ["no instance"])) for index, _, _ in todo}


def ablation_jobs(claims):
    """[(defences off, [(index, case, profile)])]; an index is (number of the claim, "verdict" or "control")."""
    jobs = {}
    for n, c in enumerate(claims):
        jobs.setdefault(c.off, []).append(((n, "verdict"), c.case, c.profile))
        if c.others:
            jobs.setdefault(frozenset(c.others), []).append(((n, "control"), c.case, c.profile))
    return sorted(jobs.items(), key=lambda j: sorted(j[0]))


class Stopped(Exception):
    """Told to end: what the instances hold is given back on the way out."""


def stop(*_):
    raise Stopped


def worker():
    become_subreaper()
    # a job that is stopped ends by itself; the others never begin
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def run_both(options, chosen, table):
    """The shipped build as it is, and beside it the other build with one set of defences off after the other: (results, claims)."""
    wanted = {c.id for c in chosen}
    claims = [c for _, _, row, _ in table.values() for c in row if c.case in wanted]
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork"), worker) as pool:
        plain = pool.submit(run_plain, os.path.abspath(options.build), [c.id for c in chosen], options)
        ablated = [pool.submit(run_off, os.path.abspath(options.ablation_build), off, todo, options)
                   for off, todo in (ablation_jobs(claims) if options.ablate else [])]
        try:
            for job in ablated:
                for (n, field), v in job.result().items():
                    setattr(claims[n], field, v)
            return plain.result(), claims if options.ablate else []
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def cell(text, width):
    text = " ".join(str(text).split())
    return (text if len(text) <= width else text[:width - 1] + "…").ljust(width)


def print_table(results, claims):
    by_case = {}
    for c in claims:
        by_case.setdefault(c.case, []).append(c)
    print(f"{'case':<8}{cell('attack', 46)} {cell('expected', 30)} {'outcome':<12}{cell('oracle', 34)} {cell('defences, or why none is counted', 60)} ablation")
    for name, (v, _) in sorted(results.items()):
        case, mine = ALL[name], by_case.get(name, [])
        shown = []
        for c in mine:
            word = "broke" if c.broke else "held" if c.verdict and not c.verdict.broken else "error"
            shown.append(f"{word} ({'oracle' if c.verdict.by_oracle else 'call'})" if c.broke else word)
        belts = " ".join(sorted({"+".join((c.defence,) + c.others) for c in mine}))
        print(f"{name:<8}{cell(case.attack, 46)} {cell(case.expected, 30)} {v.outcome:<12}{cell(case.oracle, 34)} "
              f"{cell(belts or cases.UNCOUNTED.get(name, '-'), 60)} {' '.join(sorted(set(shown))) or '-'}")
        if v.broken:
            print(f"        {'; '.join(map(str, v.reasons))[:600]}")


def summary(results, claims, at_least):
    """Prints what came of it. Return: exit status; 1 when something broke, a row has no case that broke without it, or less than @at_least are counted."""
    n = tally(results)
    unproved = sorted({f"{c.defence}:{c.case}" for c in claims if not c.broke and results[c.case][0].outcome != "unreachable"})
    if unproved:
        print(f"{len(unproved)} claims not seen to break, not counted: {' '.join(unproved)}")
    idle = sorted({c.defence for c in claims} - {c.defence for c in claims if c.broke})
    if idle:
        print(f"rows without a case that broke: {' '.join(idle)}")
    counted = {c.case for c in claims if c.broke and results[c.case][0].outcome == "blocked"}
    print(f"{len(results)} cases: {n['blocked']} blocked, {len(counted)} counted, {n['unreachable']} unreachable, {n['broken']} broken"
          + (f", {n['error']} not run" if n["error"] else "") + (f"; fewer than {at_least} counted" if len(counted) < at_least else ""))
    if not n["blocked"] or n["broken"] or n["error"] or idle or len(counted) < at_least:
        return 1
    return UNPROVED if unproved else 0


ROOTLESS = {"rootless": {}, "single uid": {"single": True}}


def run_rootless(build, chosen, options):
    """The same as an ordinary user, with subordinate ids and with one id: {mode: results}."""
    with cay.ThrowawayUser() as user:
        return {mode: run_plain(build, [c.id for c in chosen], options, user=user, **more) for mode, more in ROOTLESS.items()}


def print_rootless(results):
    print(f"{'case':<8}{cell('attack', 60)} {cell('expected', 34)} " + "".join(f"{mode:<13}" for mode in results) + "not judged because")
    for name in sorted(ALL):
        mine = [r[name][0] for r in results.values() if name in r]
        if not mine:
            continue
        why = next((v.reasons[0] for v in mine if v.outcome in ("unjudged", "unreachable")), "")
        print(f"{name:<8}{cell(ALL[name].attack, 60)} {cell(ALL[name].expected, 34)} " + "".join(f"{v.outcome:<13}" for v in mine) + why)
        for v in mine:
            if v.broken:
                print(f"        {'; '.join(map(str, v.reasons))[:600]}")


def tally(results):
    """{outcome: number of cases}"""
    outcomes = [v.outcome for v, _ in results.values()]
    return {o: outcomes.count(o) for o in ("blocked", "unreachable", "unjudged", "error")} | {"broken": sum(o in ("escaped", "leaked") for o in outcomes)}


def summary_rootless(results):
    bad = 0
    for mode, each in results.items():
        n = tally(each)
        print(f"{mode}: {len(each)} cases: {n['blocked']} blocked, {n['broken']} broken, {n['unreachable']} unreachable, {n['unjudged']} not judged"
              + (f", {n['error']} not run" if n["error"] else ""))
        bad += n["broken"] + n["error"] + (n["blocked"] == 0)
    return 1 if bad else 0


def become_subreaper():
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--build", default=os.path.join(TOP, "build"))
    parser.add_argument("--ablation-build", default=os.path.join(TOP, "build-ablation"))
    parser.add_argument("--ablate", action="store_true", help="also switch off each defence and see its attacks succeed")
    parser.add_argument("--rootless", action="store_true", help="against servers of an ordinary user instead: with subordinate ids, and with one id")
    parser.add_argument("--jobs", type=int, default=2, help="instances at the same time")
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
    if options.rootless:
        results = run_rootless(os.path.abspath(options.build), chosen, options)
        print_rootless(results)
        return summary_rootless(results)
    table = defences()
    results, claims = run_both(options, chosen, table)
    print_table(results, claims)
    return summary(results, claims, COUNTED_AT_LEAST if options.ablate and not options.only else 0)


if __name__ == "__main__":
    sys.exit(main())
