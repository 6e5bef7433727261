# SPDX-License-Identifier: Apache-2.0
"""How much of the event log is kept: whole segments go, chains that go on begin behind an anchor, and nobody reads nothing for something that is gone."""

import contextlib
import glob
import json
import os
import sqlite3
import struct

from lib import cay
from lib.case import contains, equal, raises, require, timeout
from lib.cay import wait_until
from lib.proxy import Upstream, fixed

SEGMENT = 64 << 10


def events_directory(instance):
    return os.path.join(instance.state, "events")


def segments(instance):
    return sorted(os.path.basename(p) for p in glob.glob(os.path.join(events_directory(instance), "*.jsonl")))


def make_events(instance, box, kib):
    """Events of at least so many KiB: an exec's arguments are in its first one."""
    for _ in range(kib // 16):
        run = instance.exec(box, "true", "x" * 16384)
        instance.wait(box, run)
    # what the kernel tells of processes comes in later, and would drive older events out
    instance.wait_event("process.ended", box, match=lambda event: event["exec"] == run["id"])


def retention(instance, **rules):
    return instance.call("PUT", "/v1/events/retention", rules)


def first_events(instance, box):
    return instance.events(box)[0]


@require("root")
@timeout(120)
def test_the_oldest_go_by_size_and_chains_hold_from_their_anchor(fresh):
    retention(fresh, segment_bytes=SEGMENT)
    with fresh.sandbox() as old, fresh.sandbox() as live:
        make_events(fresh, old, 64)
        make_events(fresh, live, 512)
        before = fresh.events(live)
        retention(fresh, max_bytes=4 * SEGMENT)
        kept = retention(fresh, max_bytes=0)  # nothing more goes, however late the kernel tells of processes
        assert kept["first_n"] > 1, kept
        after = fresh.events(live)
        assert 0 < len(after) < len(before)
        cut = after[0]["seq"] - 1
        for _ in ("at once", "after a start"):
            report = fresh.get(f"/v1/sandboxes/{live}/events/verify")
            equal((report["ok"], report["bad"]), (True, None))
            equal((report["anchor"]["seq"], report["anchor"]["hash"]), (cut, before[cut - 1]["hash"]))
            contains(fresh.cay("events", "verify", live).stdout, f"the first {cut} events were retired")
            # all events of this one are gone, but it lives: its chain goes on from the anchor
            report = fresh.get(f"/v1/sandboxes/{old}/events/verify")
            assert report["ok"] and report["anchor"], report
            whole = fresh.get("/v1/events/verify")
            assert whole["ok"] and whole["anchored"] >= 2 and whole["first_n"] == kept["first_n"], whole
            contains(fresh.cay("events", "verify").stdout, "all of them hold")
            fresh.kill()
            fresh.start()
        fresh.ok(old, "true")
        equal(fresh.get(f"/v1/sandboxes/{old}/events/verify")["ok"], True)
        told = [e for e in fresh.events(start=kept["first_n"]) if e["type"] == "events.retired"]
        equal((told[0]["sandbox"], told[0]["data"]["first_n"], told[-1]["data"]["last_n"], told[0]["data"]["reason"]),
              (None, 1, kept["first_n"] - 1, "bytes"))


@require("root")
def test_a_cursor_to_what_is_gone_is_an_error(fresh):
    retention(fresh, segment_bytes=SEGMENT)
    with fresh.sandbox() as box:
        make_events(fresh, box, 400)
        retention(fresh, max_bytes=3 * SEGMENT)  # at once
        first = retention(fresh, max_bytes=0)["first_n"]  # and nothing more, however late the kernel tells of processes
        assert first > 1
        error = raises(cay.ApiError, fresh.events, start=first - 1)
        equal((error.status, error.code), (410, "events_retired"))
        contains(error.message, f"the oldest is {first}")
        seq = first_events(fresh, box)["seq"]
        equal(raises(cay.ApiError, fresh.events, box, start=seq - 1).code, "events_retired")
        equal(fresh.events(box, start=seq)[0]["seq"], seq)
        status, head, _ = fresh.raw("GET", f"/v1/sandboxes/{box}/events")
        equal((status, {k.lower(): v for k, v in head.items()}["cay-events-from"]), (200, str(seq)))
        status, _, text = fresh.raw("GET", "/v1/events", headers={"Accept": "text/event-stream", "Last-Event-ID": "1"})
        equal((status, json.loads(text)["error"]["code"]), (410, "events_retired"))
        said = fresh.cay("events", box, "--from", "1", want=125).stderr
        contains(said, "no longer kept")
        again = said.split("--from ")[1].split()[0].rstrip(")")
        equal(json.loads(fresh.cay("events", box, "--json", "--from", again).stdout.splitlines()[0])["seq"], seq)


def heads(instance):
    """How many the catalogue has."""
    with contextlib.closing(sqlite3.connect(f"file:{instance.state}/cay.db?mode=ro", uri=True)) as catalogue:
        return catalogue.execute("SELECT count(*) FROM heads").fetchone()[0]


def commits(instance):
    """How many transactions the catalogue's log has, since it was begun anew."""
    with open(os.path.join(instance.state, "cay.db-wal"), "rb") as f:
        log = f.read()
    page, salt = struct.unpack(">I", log[8:12])[0], log[16:24]
    frames = [log[at:at + 24] for at in range(32, len(log), 24 + page)]
    return sum(1 for frame in frames if frame[8:16] == salt and frame[4:8] != bytes(4))


@require("root")
@timeout(300)
def test_what_many_removed_sandboxes_had_is_forgotten_in_few_transactions(fresh):
    retention(fresh, segment_bytes=SEGMENT)
    for _ in range(60):
        fresh.cay("run", "--", "true")
    wait_until(lambda: heads(fresh) >= 60, 60, "all heads are in the catalogue")
    have, made = heads(fresh), commits(fresh)
    retention(fresh, max_bytes=SEGMENT)
    gone, made = have - heads(fresh), commits(fresh) - made
    assert gone >= 30 and made < gone / 2, (gone, made)


@require("root")
def test_events_of_removed_sandboxes_stay_and_can_go_earlier(fresh):
    retention(fresh, segment_bytes=SEGMENT)
    with fresh.sandbox() as gone:
        make_events(fresh, gone, 200)
    fresh.wait_event("sandbox.removed", gone)
    report = fresh.get(f"/v1/sandboxes/{gone}/events/verify")
    assert report["ok"] and report["events"] > 10 and report["anchor"] is None, report
    contains(fresh.cay("events", "verify", gone).stdout, "the chain holds")
    with fresh.sandbox() as live:
        make_events(fresh, live, 200)
        # its age counts in whole seconds: wait for it by the log itself
        cay.wait_until(lambda: retention(fresh, removed_age_s=1)["first_n"] > 1, 30, "retirement", events_directory(fresh))
        assert first_events(fresh, live)["type"] == "sandbox.created"
        equal(fresh.get(f"/v1/sandboxes/{live}/events/verify")["anchor"], None)
        told = [e for e in fresh.events() if e["type"] == "events.retired"]
        equal(told[0]["data"]["reason"], "removed")


@require("root")
@timeout(120)
def test_a_crash_while_retiring_leaves_no_chain_without_its_beginning(tmp):
    for point in ("events.anchors.saved", "events.retire.unlinked"):
        instance = cay.Instance(tmp)
        try:
            instance.start()
            retention(instance, segment_bytes=SEGMENT)
            with instance.sandbox() as box:
                make_events(instance, box, 300)
                instance.kill()
                instance.start(CAY_FAULT=f"{point}=kill")
                raises((cay.ApiError, OSError, Exception), retention, instance, max_bytes=2 * SEGMENT)
                instance.kill()
                instance.start()
                report = instance.get(f"/v1/sandboxes/{box}/events/verify")
                assert report["ok"], (point, report)
                events = instance.events(box)
                equal([e["seq"] for e in events], list(range(events[0]["seq"], events[0]["seq"] + len(events))))
                cay.wait_until(lambda: retention(instance)["first_n"] > 1, 10, "the end of the retirement", events_directory(instance))
                names = segments(instance)
                for index in glob.glob(os.path.join(events_directory(instance), "*.index")):
                    assert os.path.basename(index).replace("index", "jsonl") in names, (index, names)
        finally:
            instance.close()


@require("root")
@timeout(120)
def test_a_crash_while_sealing_loses_nothing(tmp):
    for point in ("events.index.before_rename", "events.seal.indexed"):
        instance = cay.Instance(tmp)
        try:
            instance.start(CAY_FAULT=f"{point}=kill")
            retention(instance, segment_bytes=SEGMENT)
            with instance.sandbox() as box:
                raises(Exception, make_events, instance, box, 200)
                instance.kill()
                instance.start()
                make_events(instance, box, 100)
                report = instance.get("/v1/events/verify")
                assert report["ok"], (point, report)
                assert len(segments(instance)) > 1
        finally:
            instance.close()


@require("root")
def test_a_broken_chain_of_a_removed_sandbox_is_found(fresh):
    with fresh.sandbox() as gone:
        fresh.ok(gone, "true")
    fresh.wait_event("sandbox.removed", gone)
    assert fresh.get("/v1/events/verify")["ok"]
    fresh.kill()
    path = os.path.join(events_directory(fresh), segments(fresh)[-1])
    with open(path, encoding="utf-8") as f:
        text = f.read()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text.replace('"argv":["/bin/sh"', '"argv":["/bin/sx"', 1))
    fresh.start()
    report = fresh.get("/v1/events/verify")
    equal((report["ok"], [b["sandbox"] for b in report["bad"]]), (False, [gone]))
    contains(fresh.cay("events", "verify", want=1).stdout, f"{gone}: the chain breaks at event")
    contains(fresh.cay("events", "verify", gone, want=1).stdout, "the chain breaks")


@require("root")
def test_the_rules_outlive_the_server_and_the_command_shows_them(fresh):
    contains(fresh.cay("events", "retention").stdout, "1.0 GiB")
    fresh.cay("events", "retention", "--max-size", "2G", "--removed-age", "7d", "--max-age", "12h")
    fresh.kill()
    fresh.start()
    equal({k: v for k, v in fresh.get("/v1/events/retention").items() if not k.endswith("_n")},
          {"max_bytes": 2 << 30, "removed_age_s": 7 * 86400, "max_age_s": 43200, "segment_bytes": 32 << 20})
    text = fresh.cay("events", "retention", "--max-age", "0").stdout
    for word in ("2.0 GiB", "7 d", "no limit"):
        contains(text, word)
    fresh.cay("events", "retention", "--max-size", "much", want=64)
    equal(raises(cay.ApiError, retention, fresh, segment_bytes=1).code, "invalid")


@require("root")
def test_rules_of_which_a_power_cut_left_nothing_are_the_first_ones(fresh):
    """A name, and none of the bytes behind it: that kept the server from starting. Other damage still does."""
    wanted = {k: v for k, v in fresh.get("/v1/events/retention").items() if not k.endswith("_n")}
    fresh.cay("events", "retention", "--max-size", "2G")
    path = os.path.join(events_directory(fresh), "retention.json")
    fresh.kill()
    with open(path, "w", encoding="ascii"):
        pass
    fresh.start()
    equal({k: v for k, v in fresh.get("/v1/events/retention").items() if not k.endswith("_n")}, wanted)
    fresh.cay("events", "retention", "--max-size", "2G")
    equal(retention(fresh)["max_bytes"], 2 << 30)


@require("root")
@timeout(120)
def test_processes_of_one_sandbox_do_not_drive_out_the_events_of_others(fresh):
    """What is above its budget is counted and told; what came before it stays."""
    retention(fresh, segment_bytes=SEGMENT, max_bytes=64 * SEGMENT)
    with fresh.sandbox() as quiet, fresh.sandbox() as noisy:
        fresh.ok(quiet, "true")
        before = [e["n"] for e in fresh.events(quiet)]
        fresh.ok(noisy, "i=0; x=$(printf '%01000d' 0); while [ $i -lt 3000 ]; do /bin/true $x; i=$((i+1)); done", seconds=100)
        told = fresh.wait_event("events.lost", noisy, lambda event: event["data"]["source"] == "process budget", timeout=60)
        assert told["data"]["n"] > 100, told
        retention(fresh, segment_bytes=SEGMENT, max_bytes=64 * SEGMENT)  # what is too much goes at once
        equal([e["n"] for e in fresh.events(quiet)][:len(before)], before)
        equal(fresh.events(noisy)[0]["type"], "sandbox.created")
        report = fresh.get(f"/v1/sandboxes/{noisy}/events/verify")
        equal((report["ok"], report["anchor"]), (True, None))


DENIED = r'''
import socket, sys
s = socket.create_connection(("api.example", 80))
def get(path):
    s.sendall(f"GET {path} HTTP/1.1\r\nHost: api.example\r\n\r\n".encode())
    head = b""
    while b"\r\n\r\n" not in head:
        more = s.recv(1)
        assert more, "the connection has ended"
        head += more
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    while length > 0:
        length -= len(s.recv(length))
for i in range(int(sys.argv[1])):
    get(f"/denied/{i}")
get("/allowed")
'''


@require("root")
@timeout(240)
def test_denied_requests_of_one_sandbox_do_not_drive_out_the_events_of_others(fresh):
    """Each is told or counted, also where the server is killed meanwhile; what a rule lets through is told however many were denied before it."""
    retention(fresh, segment_bytes=SEGMENT, max_bytes=64 * SEGMENT)
    upstream = Upstream(fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nyes"))
    rules = [{"name": "api", "match": {"host": "api.example", "path": "/allowed"}, "action": "allow", "upstream": upstream.address, "private": True}]
    with fresh.sandbox() as quiet, fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules})) as noisy:
        fresh.ok(quiet, "true")
        before = [e["n"] for e in fresh.events(quiet)]
        run = fresh.exec(noisy, "python3", "-c", DENIED, "6000")
        fresh.wait_event("net.lost", noisy, timeout=100)
        fresh.kill()
        fresh.start()
        equal(fresh.wait(noisy, run).get("code"), 0)
        fresh.wait_event("net.exchange", noisy, lambda e: e["data"]["outcome"] == "forwarded")
        wait_until(lambda: denied(fresh, noisy) >= 6000, 30, "each is told or counted")
        equal(denied(fresh, noisy), 6000)
        equal([e["n"] for e in fresh.events(quiet)][:len(before)], before)
        equal(fresh.events(noisy)[0]["type"], "sandbox.created")
        contains(fresh.cay("net", noisy).stdout, "refusals could not be told one by one")
    upstream.close()


def denied(instance, box):
    events = instance.events(box)
    told = {e["data"]["exchange"] for e in events if e["type"] == "net.exchange" and e["data"]["outcome"] == "denied"}
    return len(told) + sum(e["data"]["n"] for e in events if e["type"] == "net.lost")
