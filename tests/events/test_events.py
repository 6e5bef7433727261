# SPDX-License-Identifier: Apache-2.0
"""Contract LOG: one causal log. Numbers without gaps, a chain that shows every change, causes, and nothing lost in silence."""

import contextlib
import glob
import hashlib
import json
import os
import select
import socket
import struct
import sqlite3
import subprocess

from lib import cay
from lib.case import contains, equal, raises, require, timeout

NETLINK_CONNECTOR, CN_IDX_PROC, SO_RCVBUFFORCE = 11, 1, 33
SMALLEST_EVENT = 16 + 20 + 16  # nlmsghdr, cn_msg, the head of a proc_event


def gapless(events, member, start):
    equal([e[member] for e in events], list(range(start, start + len(events))), member)


def journal_files(instance):
    return sorted(glob.glob(os.path.join(instance.state, "events", "*.jsonl")))


def test_every_event_has_all_its_members(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo x > /var/tmp/x")
        instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "members"})
        events = instance.events(box)
        for event in events:
            for member in ("n", "sandbox", "member", "epoch", "seq", "type", "time", "exec", "cause", "data", "hash"):
                assert member in event, (member, event)
            equal(event["sandbox"], box)
        types = [e["type"] for e in events]
        for wanted in ("sandbox.created", "sandbox.started", "exec.created", "exec.started", "exec.ended", "snapshot.created"):
            assert wanted in types, (wanted, types)
        gapless(events, "seq", 1)
    instance.call("DELETE", "/v1/snapshots/members")


def test_events_of_an_exec_name_it(instance):
    with instance.sandbox() as box:
        run = instance.exec(box, "false")
        instance.wait(box, run)
        mine = [e for e in instance.events(box) if e["exec"] == run["id"]]
        types = [e["type"] for e in mine if e["type"].startswith("exec.")]
        equal(types, ["exec.created", "exec.started", "exec.ended"])
        ended = [e for e in mine if e["type"] == "exec.ended"][0]
        equal((ended["data"]["status"], ended["data"]["code"]), ("exited", 1))


def test_the_global_log_has_no_gap(instance):
    with instance.sandbox() as box, instance.sandbox() as other:
        instance.ok(box, "true")
        instance.ok(other, "true")
        events = instance.events()
        gapless(events, "n", events[0]["n"])
        part = instance.events(start=events[3]["n"])
        equal([e["n"] for e in part[:5]], [e["n"] for e in events[3:8]])


def test_a_reader_continues_from_its_cursor(instance):
    with instance.sandbox() as box:
        instance.ok(box, "true")
        events = instance.events(box)
        equal(instance.events(box, start=events[2]["seq"])[0], events[2])
        equal(instance.events(box, start=10 ** 9), [])


def test_following_shows_what_comes(instance):
    with instance.sandbox() as box:
        start = instance.events(box)[-1]["seq"] + 1
        run = instance.exec(box, "sh", "-c", "exit 6")
        event = instance.wait_event("exec.ended", box, lambda e: e["exec"] == run["id"], start)
        equal(event["data"]["code"], 6)


def test_server_sent_events_carry_the_cursor(instance):
    with instance.sandbox() as box:
        instance.ok(box, "true")
        status, head, text = instance.raw("GET", f"/v1/sandboxes/{box}/events", headers={"Accept": "text/event-stream"})
        equal(status, 200)
        contains({k.lower(): v for k, v in head.items()}["content-type"], "text/event-stream")
        ids = [int(line[3:]) for line in text.decode().splitlines() if line.startswith("id:")]
        data = [json.loads(line[5:]) for line in text.decode().splitlines() if line.startswith("data:")]
        equal(data[0]["seq"], 1)
        equal(len(ids), len(data))
        _, _, rest = instance.raw("GET", f"/v1/sandboxes/{box}/events", headers={"Accept": "text/event-stream", "Last-Event-ID": str(ids[1])})
        equal(json.loads([line for line in rest.decode().splitlines() if line.startswith("data:")][0][5:])["seq"], data[2]["seq"])


def test_a_cursor_that_is_none_is_refused(instance):
    """Else all that there ever was would come again, and look like news."""
    for cursor in ("x", "-1", "1.5", str(2 ** 64), "1" * 40):
        for path in ("/v1/events", "/v1/events?from=3"):
            status, _, text = instance.raw("GET", path, headers={"Accept": "text/event-stream", "Last-Event-ID": cursor})
            equal((status, json.loads(text)["error"]["member"]), (400, "Last-Event-ID"), cursor)


def test_what_is_told_of_arguments_has_a_kibibyte_of_text(instance):
    """However they are written down: a control byte takes six, and whoever fills the log drives out what others did."""
    with instance.sandbox() as box:
        for argument, whole in (("\1" * 999, False), ('"' * 999, False), ("\u00e9" * 800, False), ("x\u00e9\n" * 80, True), ("", True)):
            run = instance.exec(box, "sh", "-c", "sleep 100; :", argument, "", argument)  # it is there when its arguments are read
            event = instance.wait_event("process.exec", box, lambda e, r=run["id"]: e["exec"] == r and (e["data"]["argv"] or [""])[0] == "sh")
            argv = event["data"]["argv"]
            text = json.dumps(argv, separators=(",", ":"), ensure_ascii=False).encode()
            print(len(text), len(argv))
            assert len(text) <= 1024, len(text)
            assert argument.startswith(argv[3]) and (argv[3:] == [argument, "", argument] or not whole), argv
            assert whole or len(text) > 1000, len(text)


def test_a_long_value_is_shown_by_its_beginning(instance):
    """A script may be any length; --json has all of it."""
    script = "true " + "ä" * 3000
    with instance.sandbox() as box:
        instance.cay("exec", box, "--", "sh", "-c", script)
        [line] = [line for line in instance.cay("events", box).stdout.splitlines() if "exec.created" in line]
        contains(line, "true ää")
        contains(line, "…")
        assert len(line) < 1000, line
        contains(instance.cay("events", box, "--json").stdout, script)


@timeout(120)
def test_two_thousand_processes_give_two_thousand_starts_and_ends(instance):
    with instance.sandbox() as box:
        source = instance.get("/v1/doctor")["process_events"]
        print("source:", source)
        run = instance.exec(box, "sh", "-c", "i=0; while [ $i -lt 2000 ]; do /bin/true; i=$((i+1)); done")
        equal(instance.wait(box, run, 100)["code"], 0)
        instance.wait_event("exec.ended", box, lambda e: e["exec"] == run["id"], timeout=30)

        def counted():
            mine = [e for e in instance.events(box) if e["exec"] == run["id"]]
            lost = sum(e["data"]["n"] for e in instance.events() if e["type"] == "events.lost")
            starts, execs, ends = (sum(e["type"] == kind for e in mine) for kind in ("process.started", "process.exec", "process.ended"))
            return starts, execs, ends, lost
        try:
            cay.wait_until(lambda: counted()[2] + counted()[3] >= 2000, 30, "ends of 2,000 processes", os.path.join(instance.state, "events"))
        finally:
            print("starts, execs, ends, lost:", counted())
        starts, execs, ends, lost = counted()
        if lost == 0:
            # The shell itself may or may not count as one more.
            assert 2000 <= starts <= 2001, starts
            assert 2000 <= execs <= 2002, execs
            assert 2000 <= ends <= 2001, ends
        else:
            # what may be lost is what does not fit into the kernel's buffer, while others start processes too: not one of each kind
            assert min(starts, execs, ends) + lost >= 2000 and lost < 2000, (starts, execs, ends, lost)


@require("root")
@timeout(120)
def test_processes_that_go_on_elsewhere_are_told_as_before(instance):
    """In a fork and after a resume: what they begin, and what is begun beside them."""
    if instance.get("/v1/doctor")["process_events"] != "proc connector":
        return

    def begins_one(at, start):
        """What the command begins at a line of input is its own, and it is known itself."""
        instance.raw("POST", f"/v1/sandboxes/{at}/execs/{run['id']}/stdin", b"line\n", {"Content-Type": "application/octet-stream"})
        ran = instance.wait_event("process.exec", at, lambda e: e["exec"] == run["id"], start)["data"]["pid"]
        parent = instance.wait_event("process.started", at, lambda e: e["data"]["pid"] == ran, start)["data"]["parent"]
        instance.wait_event("process.started", at, lambda e: (e["data"]["pid"], e["exec"]) == (parent, run["id"]))

    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "while read -r line; do /bin/true; done", stdin=True)
        instance.ok(box, "setsid sh -c 'while :; do sleep 0.1; done' >/dev/null 2>&1 &")
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {})["sandboxes"][0]["id"]
        try:
            begun = instance.wait_event("sandbox.started", fork)["seq"]
            begins_one(fork, begun)
            begins_one(box, instance.events(box)[-1]["seq"])
            instance.wait_event("process.exec", fork, lambda e: e["exec"] is None, begun)  # of the loop, which belongs to nothing that runs
            beside = instance.exec(fork, "/bin/true")
            instance.wait(fork, beside)
            ended = instance.wait_event("exec.ended", fork, lambda e: e["exec"] == beside["id"])["seq"]
            equal(sorted(e["type"] for e in instance.events(fork) if e["exec"] == beside["id"] and e["seq"] <= ended),
                  ["exec.created", "exec.ended", "exec.started", "process.ended", "process.exec", "process.started"])
            instance.post(f"/v1/sandboxes/{fork}/suspend")
            instance.post(f"/v1/sandboxes/{fork}/resume")
            begins_one(fork, instance.wait_event("sandbox.resumed", fork)["seq"])
        finally:
            instance.remove(fork)


def listen_to_processes():
    """A listener of the machine, as any monitor of it would be (linux/cn_proc.h)."""
    heard = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_CONNECTOR)
    heard.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
    heard.bind((0, CN_IDX_PROC))
    heard.setblocking(False)
    return heard


@require("root")
def test_other_listeners_of_the_machine_hear_what_they_would_without_us(fresh):
    """The kernel gives all listeners of process events the same message: whoever shortens its own shortens that of the others."""
    fresh.stop()
    with listen_to_processes() as before:
        fresh.start()
        with fresh.sandbox() as box, listen_to_processes() as behind:
            fresh.ok(box, "for i in 1 2 3 4 5 6 7 8 9 10; do /bin/true; done")
            equal(fresh.get("/v1/doctor")["process_events"], "proc connector")
            for listener in (before, behind):
                sizes = []
                with contextlib.suppress(BlockingIOError):
                    while True:
                        sizes.append(len(listener.recv(4096)))
                assert len(sizes) > 30, sizes
                assert min(sizes) >= SMALLEST_EVENT, sorted(sizes)[:20]


PROC_CN_MCAST_LISTEN, PROC_CN_MCAST_IGNORE = 1, 2


@require("root")
def test_other_listeners_that_come_and_go_are_no_loss(instance):
    """The kernel acknowledges what they say to all listeners, and numbers that as it does events."""
    def lost():
        return [e["data"] for e in instance.events(box) if e["type"] == "events.lost"]

    if instance.get("/v1/doctor")["process_events"] != "proc connector":
        return
    with instance.sandbox() as box, listen_to_processes() as other:
        for _ in range(8):
            for op in (PROC_CN_MCAST_LISTEN, PROC_CN_MCAST_IGNORE):
                body = struct.pack("=IIIIHHI", CN_IDX_PROC, 1, 0, 0, 4, 0, op)
                other.send(struct.pack("=IHHII", 16 + len(body), 3, 0, 0, 0) + body)
            run = instance.exec(box, "/bin/true")
            instance.wait_event("process.ended", box, lambda e, run=run: e["exec"] == run["id"])
        equal(lost(), [])


def test_the_chain_is_whole_and_computed_as_documented(instance):
    with instance.sandbox() as box:
        instance.ok(box, "echo x")
        report = instance.get(f"/v1/sandboxes/{box}/events/verify")
        assert report["ok"], report
        equal(report["events"], len(instance.events(box)))
        equal(report["head"], instance.events(box)[-1]["hash"])
        contains(instance.cay("events", "verify", box).stdout, "the chain holds")


@require("root")
def test_a_changed_event_is_found(tmp):
    for change in ("edit", "remove", "swap"):
        instance = cay.Instance(tmp)
        try:
            instance.start()
            with instance.sandbox() as box:
                instance.ok(box, "true")
                instance.kill()
                path = journal_files(instance)[-1]
                with open(path, encoding="utf-8") as f:
                    lines = f.readlines()
                at = next(i for i, line in enumerate(lines) if '"exec.started"' in line)
                if change == "edit":
                    lines[at] = lines[at].replace('"exec.started"', '"exec.sXarted"')
                elif change == "remove":
                    del lines[at]
                else:
                    lines[at], lines[at + 1] = lines[at + 1], lines[at]
                with open(path, "w", encoding="utf-8") as f:
                    f.writelines(lines)
                instance.start()
                report = instance.get(f"/v1/sandboxes/{box}/events/verify")
                assert not report["ok"] and report["bad"], (change, report)
                instance.cay("events", "verify", box, want=1)
        finally:
            instance.close()


@require("root")
def test_a_torn_last_line_is_mended_not_fatal(fresh):
    with fresh.sandbox() as box:
        fresh.ok(box, "true")
        count = len(fresh.events(box))
        fresh.kill()
        with open(journal_files(fresh)[-1], "ab") as f:
            f.write(b'{"n":99999,"sandbox":"')
        fresh.start()
        events = fresh.events(box)
        assert len(events) >= count, (len(events), count)
        gapless(events, "seq", 1)
        assert fresh.get(f"/v1/sandboxes/{box}/events/verify")["ok"]


def other_boot(instance):
    """As if the machine had been restarted since the server ended."""
    with contextlib.closing(sqlite3.connect(os.path.join(instance.state, "cay.db"))) as catalogue, catalogue:
        catalogue.execute("UPDATE heads SET doc = json_set(doc, '$.boot', 'another') WHERE id = '.'")


def cut_off(instance, count):
    """The last lines of the journal go."""
    path = journal_files(instance)[-1]
    with open(path, "rb") as f:
        lines = f.readlines()
    with open(path, "wb") as f:
        f.writelines(lines[:-count])


@require("root")
def test_what_a_power_cut_took_from_the_journal_is_told(tmp):
    """What the catalogue has synced leads past its end: no chain is called broken for that, and none whole, however much comes behind it."""
    for points in (None, "events.cut.flushed"):
        instance = cay.Instance(tmp)
        try:
            instance.start()
            with instance.sandbox() as box:
                instance.ok(box, "true")
                before = instance.events(box)
                instance.stop()
                cut_off(instance, 4)
                other_boot(instance)
                if points:  # killed before its catalogue knew
                    raises(Exception, instance.start, CAY_FAULT=f"{points}=kill")
                instance.start()
                for _ in range(2):
                    events = instance.events(box)
                    cuts = [e for e in events if e["type"] == "events.cut"]
                    equal(len(cuts), 1)
                    at = cuts[0]["seq"]
                    equal([e["hash"] for e in events[:at - 1]], [e["hash"] for e in before[:at - 1]])
                    data = cuts[0]["data"]
                    equal((data["n"], data["seq"], data["hash"], data["restarted"]), (len(before) - at + 1, len(before), before[-1]["hash"], True))
                    report = instance.get(f"/v1/sandboxes/{box}/events/verify")
                    equal((report["ok"], report["bad"]), (True, None))
                    equal(report["cut"], {"sandbox": box, "seq": at, "events": data["n"]})
                    contains(instance.cay("events", "verify", box).stdout, f"{data['n']} events are missing before event {at}")
                    whole = instance.get("/v1/events/verify")
                    equal((whole["ok"], report["cut"] in whole["cut"]), (True, True))
                    instance.ok(box, "true")
        finally:
            instance.close()


@require("root")
def test_a_journal_that_was_cut_while_the_machine_went_on_is_broken_for_good(tmp):
    """No power cut did that. It was forgotten with the next event of the chain."""
    instance = cay.Instance(tmp)
    try:
        instance.start()
        with instance.sandbox() as box:
            instance.ok(box, "true")
            instance.stop()
            cut_off(instance, 4)
            instance.start()
            instance.ok(box, "true")
            instance.stop()  # the heads are written
            instance.start()
            report = instance.get(f"/v1/sandboxes/{box}/events/verify")
            equal(report["ok"], False)
            contains(report["bad"]["reason"], "was cut")
            instance.cay("events", "verify", box, want=1)
    finally:
        instance.close()


def test_events_of_an_unknown_sandbox(instance):
    equal(raises(cay.ApiError, instance.events, "nope").code, "not_found")


def ask(instance, path):
    """A request whose answer somebody else waits for."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(instance.socket)
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return sock


@require("root")
@timeout(300)
def test_who_looks_through_a_long_log_keeps_nobody_waiting(fresh):
    fresh.stop()
    place = os.path.join(fresh.state, "events")
    owner = os.stat(place)
    for name in os.listdir(place):
        os.unlink(os.path.join(place, name))
    subprocess.run([os.path.join(cay.BUILD, "bench", "journalfill"), place, "360000", "30000"], check=True)
    for name in os.listdir(place):
        os.chown(os.path.join(place, name), owner.st_uid, owner.st_gid)
    fresh.start()

    def is_overtaken(path, status):
        with ask(fresh, path) as long, ask(fresh, "/v1/version") as short:
            assert b" 200 " in short.recv(65536), path
            overtaken = not select.select([long], [], [], 0)[0]
            assert status in long.recv(65536), path
        return overtaken

    for path, status in ("/v1/events/verify", b" 200 "), ("/v1/sandboxes/nowhere/events", b" 404 "):
        # more than once: where the machine is busy we may be late to look
        assert any(is_overtaken(path, status) for _ in range(5)), path


def test_the_hash_is_sha256_of_the_chain(instance):
    """Independent of cayd: sha256 of the 32 bytes of the hash before (zeros at first) and the canonical JSON without the hash."""
    with instance.sandbox() as box:
        instance.ok(box, "true")
        events = instance.events(box)
    before = bytes(32)
    for event in events:
        body = {k: v for k, v in event.items() if k != "hash"}
        text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        equal(hashlib.sha256(before + text.encode()).hexdigest(), event["hash"], text)
        before = bytes.fromhex(event["hash"])


@require("root")
def test_doctor_says_where_no_process_is_told(fresh, tmp):
    """The kernel tells of processes in its first pid namespace alone, and does not even answer elsewhere. No server is asked."""
    env = fresh.environment(CAY_RUN=tmp, CAY_SOCKET=os.path.join(tmp, "none"))
    for before, served in (([], True), (["unshare", "--pid", "--fork", "--mount-proc"], False)):
        with fresh.popen([*before, os.path.join(fresh.programs, "cay"), "doctor", "--json"], env=env, stdout=subprocess.PIPE) as doctor:
            checks = json.load(doctor.stdout)["checks"]
        equal([c["ok"] for c in checks if c["id"] == "process_events"], [served])


def test_a_removed_sandbox_is_found_by_its_name(instance):
    ids = []
    for _ in range(2):
        with instance.sandbox(name="gone") as box:
            ids.append(instance.get(f"/v1/sandboxes/{box}")["id"])
            instance.ok(box, "true")
        if len(ids) == 1:
            for what in ("gone", ids[0], ids[0][:8]):
                equal(len([e for e in instance.events(what) if e["type"] == "sandbox.removed"]), 1, what)
                contains(instance.cay("events", what).stdout, "sandbox.created")
                instance.cay("events", "verify", what)
    error = raises(cay.ApiError, instance.events, "gone")
    equal(error.code, "ambiguous")
    hint = error.body["error"]["hint"]
    equal([ids[1] in hint, ids[0] in hint, hint.index(ids[1]) < hint.index(ids[0])], [True, True, True], hint)
    equal(instance.events(ids[1])[0]["data"]["name"], "gone")
    with instance.sandbox(name="gone"):
        equal(len([e for e in instance.events("gone") if e["type"] == "sandbox.removed"]), 0, "one that is there comes first")
    equal(raises(cay.ApiError, instance.events, "never").code, "not_found")


def test_events_say_who_asked(instance):
    with instance.sandbox() as box:
        instance.cay("exec", box, "--", "true")
        instance.cay("snapshot", box)
        seen = {e["type"]: e["cause"] for e in instance.events(box)}
        for kind, command in (("sandbox.created", "python3"), ("sandbox.started", "python3"), ("exec.created", "cay"), ("snapshot.created", "cay")):
            equal((seen[kind]["uid"], seen[kind]["command"][:7]), (os.getuid(), command), str(seen))
        equal(seen["sandbox.created"]["pid"], os.getpid())
        equal(set(seen["exec.ended"]), {"event"})
        contains(instance.cay("events", box).stdout, f"  by cay[{seen['exec.created']['pid']}] uid {os.getuid()}")


@require("root", "cgroup2")
def test_processes_are_of_the_epoch_in_which_they_run(fresh):
    """Also those of a keeper that another server has started, and of one that a stopped, suspended or rewound sandbox goes on with."""
    with fresh.sandbox() as box:
        s = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        fresh.kill()
        fresh.start()
        fresh.ok(box, "/bin/true")
        for verbs in (("stop", "start"), ("suspend", "resume")):
            for verb in verbs:
                fresh.post(f"/v1/sandboxes/{box}/{verb}")
            fresh.ok(box, "/bin/true")
        fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": s})
        fresh.ok(box, "/bin/true")
        events = fresh.events(box)
        ours = [e["epoch"] for e in events if e["type"].startswith("process.") and e["exec"] is None]
        equal(ours, sorted(ours))
        created = {e["exec"]: e["epoch"] for e in events if e["type"] == "exec.created"}
        of_execs = {(e["exec"], e["epoch"]) for e in events if e["type"].startswith("process.") and e["exec"] is not None}
        equal(of_execs, set(created.items()))
        assert max(ours) > 2, ours
