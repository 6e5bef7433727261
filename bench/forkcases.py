# SPDX-License-Identifier: Apache-2.0
"""What make bench-fork measures of cay. Each function gives a row, or a list of rows, with times in milliseconds."""

import os
import sys

import measure
from forksource import Clock, Source, milliseconds, plain, settle, summary
from measure import percentile

sys.path.insert(0, os.path.join(measure.TOP, "tests", "checkpoint"))
from suspending import drop_cache  # noqa: E402  pylint: disable=wrong-import-position

PHASES = ("freeze_us", "stop_us", "look_us", "twin_us", "files_us", "release_us")


def live(instance, mebibytes, processes, rest, clock):
    """Live snapshots of a running source, each with a first fork and a further one; beside it plain fork() of that size. With @rest each round begins when the one before has no more to do, else at once."""
    firsts, forks, lives, bound = [], [], [], plain(mebibytes, processes, min(clock.most, 10))
    with Source(instance, mebibytes, processes) as source:
        def first():
            snapshot = source.snapshot()
            source.answer(source.fork(snapshot)[0])
            return snapshot

        for _ in clock.rounds():
            if rest:
                settle()
            ms, snapshot = milliseconds(first)
            firsts.append(ms)
            lives.append(snapshot["live"])
            source.drop_forks()
            forks.append(milliseconds(lambda: source.answer(source.fork(snapshot)[0]))[0])  # pylint: disable=cell-var-from-loop
            source.drop_forks()
            source.drop_snapshot(source.snapshots.pop())
    paused, plainly = summary([one["paused_us"] / 1000 for one in lives]), summary(bound)
    return {"mebibytes": mebibytes, "processes": processes, "rest": rest, "paused": paused, "phases": {p[:-3]: summary([one.get(p, 0) / 1000 for one in lives]) for p in PHASES},
            "first": summary(firsts), "further": summary(forks), "plain": plainly, "paused_of_plain": paused["p50"] / plainly["p50"],
            "further_of_plain": percentile(forks, 50) / plainly["p50"]}


def own_kib(instance, without):
    """Private memory of what is not in @without; the template that is started for the next snapshot is no fork's."""
    return sum(measure.own_kib(p) for p in set(instance.own_processes()) - without if measure.name_of(p) != "cay-spare")


def together(instance, mebibytes, count, _):
    """@count forks of one snapshot in one request: time, and the memory of their processes (keepers too) before and after each has written a tenth of its pages."""
    with Source(instance, mebibytes) as source:
        snapshot = source.snapshot()
        others = set(instance.own_processes())
        ms, boxes = milliseconds(source.fork, snapshot, count)
        idle = own_kib(instance, others) / count
        for box in boxes:
            source.answer(box, "write")
        return {"mebibytes": mebibytes, "forks": count, "each": ms / count, "kib_before": round(idle), "kib_after": round(own_kib(instance, others) / count)}


def chain(instance, mebibytes, clock):
    """A fork of a fork of a fork …: each generation's pause and fork."""
    rows, box = [], None
    with Source(instance, mebibytes) as source:
        for generation in clock.rounds():
            snapshot = source.snapshot(box)
            ms, boxes = milliseconds(source.fork, snapshot)
            source.answer(boxes[0])
            if box is not None:
                source.forks.remove(box)
                instance.remove(box)
            box = boxes[0]
            rows.append({"generation": generation + 1, "paused": snapshot["live"]["paused_us"] / 1000, "fork": ms})
    return rows


def server_ms(instance):
    """Processor time of the server, and of everything below the spawner that has ended."""
    pids = {measure.name_of(p): p for p in instance.own_processes()}
    return (measure.cpu_ns(pids["cayd"]) + measure.cpu_ns(pids["cay-spawn"], children=True)) / 1e6


def suspended(instance, mebibytes, cold, clock):
    """To disk and back until the first answer; @cold: what was written has left the page cache meanwhile."""
    downs, ups, stored, before = [], [], 0, server_ms(instance)
    with Source(instance, mebibytes) as source:
        def wake():
            source.resume()
            source.answer(source.box)

        for _ in clock.rounds():
            ms, answer = milliseconds(source.suspend)
            downs.append(ms)
            stored = answer["memory"]["stored"]
            if cold:
                drop_cache(instance, source.box)
            ups.append(milliseconds(wake)[0])
    return {"mebibytes": mebibytes, "cache": "cold" if cold else "warm", "suspend": summary(downs), "resume": summary(ups), "stored_mib": stored / 2**20,
            "processor": (server_ms(instance) - before) / len(downs)}


def durable(instance, mebibytes, clock):
    """Snapshots behind each other, their memory on disk: the first writes all of it, a further one what the program has changed since."""
    rows = []
    with Source(instance, mebibytes) as source:
        for n in clock.rounds():
            before = server_ms(instance)
            ms, made = milliseconds(source.snapshot, None, f"durable-{n}")
            rows.append({"ms": ms, "processor": server_ms(instance) - before, "stored_mib": made["memory"]["stored"] / 2**20})
            source.answer(source.box)
    first, others = rows[0], rows[1:]
    return {"mebibytes": mebibytes, "first": first, "further": {key: summary([row[key] for row in others]) for key in first}}
