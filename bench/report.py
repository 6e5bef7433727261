# SPDX-License-Identifier: Apache-2.0
"""Turns results into Markdown: the machine, one table a case, and the targets of the design with whether they are met."""

import inspect

import cases
import filework


def number(v):
    if v is None:
        return "–"
    return f"{v:.0f}" if v >= 1000 else f"{v:.3g}" if v >= 100 else f"{v:.2f}"


def find(rows, case, who="cay", concurrent=None):
    for r in rows:
        if r["case"] == case and r["who"] == who and (concurrent is None or r.get("concurrent") == concurrent):
            return r
    return None


def ratio(rows, case, us, them):
    a, b = find(rows, case, us), find(rows, case, them)
    if not a or not b or not a["p50_ms"] or not b["p50_ms"]:
        return None
    return a["p50_ms"] / b["p50_ms"]


def limit(got, most):
    return None if got is None else (got, got <= most)


def at_least(got, least):
    return None if got is None else (got, got >= least)


def p(rows, case, what, concurrent=None):
    r = find(rows, case, "cay", concurrent)
    return r[what] if r else None


def targets(rows):
    """[(work, target, measured text or None, met or None)]: those of DESIGN §10 that this version has the parts for."""
    warm = "run -- true, warm"
    burst = next((r for r in rows if r["case"].startswith("burst of")), None)
    idle = [r for r in rows if r["case"] == "idle sandboxes"]
    last = idle[-1] if idle else None
    found = [
        ("`cay run -- true`, server running", "≤ 0.7 × bubblewrap --unshare-all", limit(ratio(rows, warm, "cay run", "bwrap"), 0.7), "×"),
        ("", "≤ 0.1 × runc", limit(ratio(rows, warm, "cay run", "runc"), 0.1), "×"),
        ("", "≤ 0.03 × gVisor", limit(ratio(rows, warm, "cay run", "runsc"), 0.03), "×"),
        ("create through the API, warm", "p50 ≤ 1 ms", limit(p(rows, "create, pool full", "p50_ms"), 1), "ms"),
        ("", "p99 ≤ 5 ms", limit(p(rows, "create, pool full", "p99_ms"), 5), "ms"),
        ("burst of 500", "no error", limit(burst and burst["concurrent"] == 500 and burst["errors"] or (0 if burst and burst["concurrent"] == 500 else None), 0), "errors"),
        ("exec round trip through HTTP", "p50 ≤ 1.5 ms", limit(p(rows, "exec true", "p50_ms", 1), 1.5), "ms"),
        ("idle sandboxes that 24 GB hold, by what the most cost", "5,000 or more", at_least(last and int(24 * 2**20 / max(1, last["available_kib_each"])), 5000), ""),
        ("", "≤ 3 descriptors each", limit(last and last["descriptors_each"], 3), ""),
        ("", "≤ 6 processes each", limit(last and last["processes_each"], 6), ""),
    ]
    for case in filework.FILE_WORK:
        r = find(rows, case)
        found.append(("file work: " + case, "≥ 0.95 × native speed, by processor time", at_least(r and r.get("cpu_of_native"), 0.95), "×"))
    return found


def table(rows):
    lines = ["| | at once | n | errors | p50 ms | p99 ms | min ms | |", "|---|--:|--:|--:|--:|--:|--:|---|"]
    for r in rows:
        if "p50_ms" not in r:
            continue
        more = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in r.items()
                         if k not in ("from", "case", "who", "concurrent", "n", "errors", "p50_ms", "p99_ms", "min_ms") and v not in (None, ""))
        lines.append(f"| {r['case']} · {r['who']} | {r['concurrent']} | {r['n']} | {r['errors']} | {number(r['p50_ms'])} | {number(r['p99_ms'])} "
                     f"| {number(r['min_ms'])} | {more} |")
    return lines if len(lines) > 2 else []


def values(rows):
    lines = []
    for r in rows:
        if "value" in r:
            more = ", ".join(f"{k.replace('_', ' ')} {v}" for k, v in r.items() if k not in ("from", "case", "who", "value", "unit"))
            lines.append(f"- {r['case']}, {r['who']}: **{r['value']}** {r['unit']} ({more})")
    return lines


def measured(number):
    return f"{number:,.0f}" if number >= 1000 else f"{number:.4g}"


def markdown(result):
    m = result["machine"]
    out = ["## The machine", "",
           f"{m['cpu']}, {m['cores']} cores, {m['memory_mib']} MiB, {m['hypervisor']}; Linux {m['kernel']}, {m['distribution']}; "
           f"state on {m['file_system']}, pool: {m.get('pool', 'unknown')}.", "",
           "Peers: " + "; ".join(f"{k} ({v or 'absent'})" for k, v in m["peers"].items()) + ".", ""]
    out += ["## Targets", "", "| work | target | measured | met |", "|---|---|--:|---|"]
    for work, target, found, unit in targets(result["rows"]):
        if found is None:
            out.append(f"| {work} | {target} | not measured | – |")
        else:
            out.append(f"| {work} | {target} | {measured(found[0])} {unit} | {'yes' if found[1] else '**no**'} |")
    out += ["", "## Results", ""]
    for case in cases.ALL:
        mine = [r for r in result["rows"] if r["from"] == case.__name__]
        if mine:
            lines = table(mine)
            run = result["runs"][case.__name__]
            out += [f"### {case.__name__.replace('_', ' ')}", "", inspect.getdoc(case), "",
                    f"Commit `{run['commit']}`, {run['time']}; load average of the machine afterwards {run['load']}.", "", *lines, *([""] if lines else []), *values(mine), ""]
    if result["notes"]:
        out += ["### Errors and notes", "", *[f"- {n}" for n in result["notes"]], ""]
    return "\n".join(out).replace("\n\n\n", "\n\n").rstrip("\n") + "\n"
