# SPDX-License-Identifier: Apache-2.0
"""Attacks from outside: exhaustion."""

import os
import select
import socket
import subprocess
import time

import posture
from lib import cay
from outside import alive, case, keeper_memory, memory_grown, refused, verdict


@case("RX-01B", "fork bomb", "limit holds; neighbour answers; ends in a second", "processes counted outside; neighbour; time", 60)
def rx_01b(session):
    limits = {"memory_bytes": 128 << 20, "pids": 64, "disk_bytes": 16 << 20, "inodes": 1000, "files": 256}
    box, found = session.create("bomb-" + os.urandom(3).hex(), limits=limits), []
    try:
        ex = session.exec(box, ["/redcell/redcell", "RX-01B"])
        most, end = 0, time.monotonic() + 2
        while time.monotonic() < end:
            most = max(most, session.process_count(box))
            select.select([], [], [], 0.1)
        found += session.neighbour_answers()
        if most > limits["pids"] + 2:
            found.append(f"{most} processes, the limit is {limits['pids']}")
        if most < limits["pids"] // 2:
            found.append(f"the bomb did not go off: {most} processes")
        start = time.monotonic()
        session.instance.call("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/signal", {"signal": 9, "tree": True})
        session.ended(box, ex, 10)
        took = time.monotonic() - start
        if took > 3:
            found.append(f"killing took {took:.1f} s")
    finally:
        session.remove(box)
    return verdict(found, f"{most} processes, ended in {took * 1000:.0f} ms")


@case("RX-12", "floods standard output without a line end", "the ring is bounded", "memory of the keeper; bytes kept", 90)
def rx_12(session):
    box, found = session.create("flood-" + os.urandom(3).hex()), []
    try:
        before = keeper_memory(session)
        ex = session.exec(box, ["/redcell/redcell", "RX-12", "mib=96"], ring_bytes=65536)
        status = session.ended(box, ex, 60)
        kept = len(session.output(box, ex))
        grown = memory_grown(session, before)
        if status.get("status") != "exited":
            found.append(f"ended with {status}")
        if grown > 24 << 20:
            found.append(f"keepers grew by {grown >> 20} MiB for a ring of 64 KiB")
        if kept > 1 << 20:
            found.append(f"{kept} bytes kept for a ring of 65536")
    finally:
        session.remove(box)
    return verdict(found, f"kept {kept} bytes, grown {grown >> 10} KiB")


@case("RX-16", "a body of 64 MiB to every kind of route", "too_large, memory bounded", "memory of the server; answers", 60)
def rx_16(session):
    found, before = [], keeper_memory(session)
    for path in ("/v1/sandboxes", "/v1/images", "/v1/prune"):
        try:
            status, code, _, _ = refused(session, "POST", path, b'{"name":"' + b"a" * (64 << 20) + b'"}', timeout=30)
            if status not in (413, 400):
                found.append(f"{path}: {status} {code}")
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was not read to its end
    grown = memory_grown(session, before)
    if grown > 32 << 20:
        found.append(f"grown by {grown >> 20} MiB")
    return verdict(found + alive(session), f"grown {grown >> 10} KiB")


@case("RX-17", "makes and removes sandboxes again and again", "nothing grows", "mounts, control groups, descriptors, memory of the server", 120)
def rx_17(session):
    def counts():
        pid = session.instance.process.pid
        groups = subprocess.run(["find", "/sys/fs/cgroup", "-maxdepth", "6", "-type", "d", "-path", "*/cay-*"], capture_output=True, text=True, check=False).stdout
        tags = session.instance.tags
        return (len(session.host.host_mounts()), sum(1 for g in groups.splitlines() if any(t in g for t in tags)), len(os.listdir(f"/proc/{pid}/fd")), len(session.instance.own_processes()))

    def settled():
        end, last = time.monotonic() + 15, None
        while time.monotonic() < end:
            now = counts()
            if now == last:
                return now
            last = now
            select.select([], [], [], 0.5)
        return last
    for _ in range(3):
        session.remove(session.create("churn-" + os.urandom(3).hex()))
    session.instance.note_tags()
    before = settled()
    for _ in range(20):
        session.remove(session.create("churn-" + os.urandom(3).hex()))
    after = settled()
    end = time.monotonic() + 15
    while time.monotonic() < end and any(a > b + 2 for a, b in zip(after, before)):
        after = settled()
    found = [f"{n}: {b} before, {a} after" for n, b, a in zip(("mounts", "control groups", "descriptors", "processes"), before, after) if a > b + 2]
    return verdict(found, f"{before} before, {after} after")


@case("RX-18", "a reader that never reads", "others are served", "time of another request", 60)
def rx_18(session):
    box, found = session.victim("default"), []
    readers = []
    for _ in range(4):
        ex = session.exec(box, ["/redcell/redcell", "RX-12", "mib=16"])
        c = cay.UnixConnection(session.instance.socket, 10)
        c.request("GET", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/output?follow=true")
        readers.append(c)
    start = time.monotonic()
    found += session.neighbour_answers()
    status, out = session.shell(box, "echo still here")
    if "still here" not in out:
        found.append(f"another exec of the sandbox: {status}")
    took = time.monotonic() - start
    for c in readers:
        c.close()
    return verdict(found, f"{took * 1000:.0f} ms")


@case("RX-18B", "requests that are never finished", "others are served", "time of another request", 60)
def rx_18b(session):
    slow = []
    for _ in range(40):
        s = socket.socket(socket.AF_UNIX)
        s.connect(session.instance.socket)
        s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        slow.append(s)
    start = time.monotonic()
    found = alive(session) + session.neighbour_answers()
    took = time.monotonic() - start
    for s in slow:
        s.close()
    return verdict(found, f"{took * 1000:.0f} ms")


def wait_for_processes(session, box, wanted):
    """Until there are so many. Return: how many there were at most."""
    most, end = 0, time.monotonic() + 5
    while most < wanted and time.monotonic() < end:
        most = max(most, session.process_count(box))
        select.select([], [], [], 0.05)
    return most


@case("RX-19", "stopped, traced-like and vforked processes, then kill of the exec", "ends within a second", "processes counted outside")
def rx_19(session):
    box = session.create("rx19-" + os.urandom(3).hex())
    ex = session.exec(box, ["/bin/sh", "-c", "/redcell/redcell PS-02 hold=0; kill -STOP $$; sleep 60"])
    # init, the shell, four families, what one of them has vforked
    there = wait_for_processes(session, box, 7)
    stopped = sum(posture.status(p).get("State", "").strip().startswith("T") for p in session.processes(box))
    start = time.monotonic()
    session.instance.call("POST", f"/v1/sandboxes/{box['id']}/execs/{ex['id']}/signal", {"signal": 9, "tree": True})
    status = session.ended(box, ex, 10)
    took = time.monotonic() - start
    left = session.process_count(box)
    session.remove(box)
    found = [f"took {took:.1f} s"] if took > 3 else []
    if there < 7 or stopped < 2:
        found.append(f"only {there} processes were there to be killed, {stopped} of them stopped")
    if left > 1:
        found.append(f"{left} processes left, one is init")
    if status.get("status") not in ("killed", "signaled"):
        found.append(f"reported as {status}")
    return verdict(found, f"{took * 1000:.0f} ms")


@case("RX-22", "runs longer than its deadline, with children that left the session", "the whole tree ends as timeout", "processes counted outside")
def rx_22(session):
    box = session.create("rx22-" + os.urandom(3).hex())
    ex = session.exec(box, ["/bin/sh", "-c", "setsid sleep 60 & setsid sh -c 'trap \"\" TERM HUP INT; sleep 60' & sleep 60"], timeout_ms=3000)
    # init, the shell, what it started, what that started
    there = wait_for_processes(session, box, 6)
    status = session.ended(box, ex, 15)
    end = time.monotonic() + 3
    while session.process_count(box) > 1 and time.monotonic() < end:
        select.select([], [], [], 0.05)
    left = session.process_count(box)
    session.remove(box)
    found = [f"{left} processes left, one is init"] if left > 1 else []
    if there < 6:
        found.append(f"only {there} processes were there to be ended")
    if status.get("status") != "timeout":
        found.append(f"reported as {status}")
    return verdict(found, "timeout")
