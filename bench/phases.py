# SPDX-License-Identifier: Apache-2.0
"""bench/run --phases: where the time of one start goes. Every switch of a processor is recorded while operations run one at a time, and each moment of an
operation is given to whoever ran then: the table says who was on a processor, for how long, in which order, and how many system calls it made. Recording costs time
itself (a table of system calls more than one of switches), so these figures show proportions; those of the other cases are the truth about durations."""

import json
import os
import re
import signal
import socket
import subprocess
import time

from measure import percentile

OURS = ("cay*", "memfd:cay*", "true", "python3")  # names of our processes, and of the command and the client
TRACE = """mount -t tracefs none /sys/kernel/tracing 2>/dev/null
exec perf record -q -a -k CLOCK_MONOTONIC -o "$1" -e sched:sched_switch --filter "$2" -e sched:sched_process_fork --filter "$3" -e raw_syscalls:sys_enter --filter "$3" """
LINE = re.compile(r"^\s*(.+?)\s+(\d+)\s+\[(\d+)\]\s+(\d+)\.(\d+):\s+(\S+?):\s+(.*)$")
FORK = re.compile(r"comm=.* pid=(\d+) child_comm=.* child_pid=(\d+)")
SWITCH = re.compile(r"prev_comm=(.*) prev_pid=(\d+) prev_prio=.* ==> next_comm=(.*) next_pid=(\d+) ")
AFTER_NS = 20_000_000  # what still runs for an operation after its answer
ROLES = (("cayd", "server"), ("cay-spawn", "spawner"), ("memfd:cay", "keeper"), ("cay-keeper", "keeper"), ("cay-starter", "starter or child of it"), ("cay-placer", "placer"), ("cay-waiter", "waiting process"),
         ("cay-init", "init"), ("cay", "client"))


def names(*fields):
    """A filter for the kernel: one of @fields is one of our names."""
    return " || ".join(f'{field} ~ "{name}"' for field in fields for name in OURS)


def role(comm):
    return next((name for start, name in ROLES if comm.startswith(start)), "command")


class Recorder:
    """perf over the whole machine, in a mount namespace of its own."""

    def __init__(self, path):
        self.path = path
        self.process = subprocess.Popen(["unshare", "-m", "--propagation", "private", "sh", "-c", TRACE, "sh", path, names("prev_comm", "next_comm"), names("COMM")], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while not (os.path.exists(path) and os.path.getsize(path) > 0):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("perf record: " + self.process.stderr.read().decode()[-500:])
            time.sleep(0.05)

    def events(self):
        """(time ns, processor, comm, tid, event, text), in order."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=60)
        text = subprocess.run(["perf", "script", "-i", self.path, "--ns", "-F", "comm,tid,cpu,time,event,trace"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, errors="replace", timeout=100, check=True).stdout
        found = filter(None, map(LINE.match, text.splitlines()))
        return sorted((int(m[4]) * 10**9 + int(m[5]), int(m[3]), m[1], int(m[2]), m[6], m[7]) for m in found)


def family(events, roots):
    """@roots and all that came of them."""
    ours = set(roots)
    for _, _, _, _, event, text in events:
        if event == "sched:sched_process_fork" and (m := FORK.match(text)) and int(m[1]) in ours:
            ours.add(int(m[2]))
    return ours


def slices(events, ours):
    """[(from, to, comm at its end, tid, [times of system calls])]: when a task of @ours was on a processor."""
    running, found, calls = {}, [], {}
    for at, cpu, comm, tid, event, text in events:
        if event == "raw_syscalls:sys_enter":
            calls.setdefault(tid, []).append(at)
        elif event == "sched:sched_switch" and (m := SWITCH.match(text)):
            if int(m[2]) in ours and running.get(cpu, (0, 0))[1] == int(m[2]):
                found.append((running[cpu][0], at, m[1], int(m[2]), calls.pop(int(m[2]), [])))
            running[cpu] = (at, int(m[4]))
    return sorted(found)


def hops(found, start, end, client):
    """What ran between @start and @end, neighbours of one role together: [[role, from, ns, system calls]]."""
    merged = []
    for begin, stop, comm, tid, calls in found:
        begin, stop = max(begin, start), min(stop, end)
        if stop <= begin or (tid == os.getpid() and tid != client):
            continue
        who, n = "client" if tid == client else role(comm), sum(start <= at < end for at in calls)
        if merged and merged[-1][0] == who:
            merged[-1][2] += stop - begin
            merged[-1][3] += n
        else:
            merged.append([who, begin - start, stop - begin, n])
    return merged


def totals(found, start, end, client):
    total = {}
    for who, _, ns, calls in hops(found, start, end, client):
        have = total.setdefault(who, [0, 0])
        have[0] += ns
        have[1] += calls
    return total


def table(name, found, windows):
    """Markdown of one operation: medians over all of them, then the hops of the quickest, which was disturbed least."""
    start, end, client = min(windows, key=lambda w: w[1] - w[0])
    during = [totals(found, a, b, c) for a, b, c in windows]
    after = [totals(found, b, b + AFTER_NS, c) for a, b, c in windows]
    lines = [f"### {name}", "", f"{len(windows)} operations, p50 {percentile([b - a for a, b, _ in windows], 50) / 1e6:.2f} ms while recorded.", "",
             "| who | ms during | system calls | ms after the answer |", "|---|--:|--:|--:|"]
    for who in dict.fromkeys([name for _, name in ROLES] + ["command"]):
        ns, calls, rest = (percentile([t.get(who, [0, 0])[i] for t in of], 50) for of, i in ((during, 0), (during, 1), (after, 0)))
        if ns or rest:
            lines.append(f"| {who} | {ns / 1e6:.2f} | {calls} | {rest / 1e6:.2f} |")
    lines += ["", "The quickest, hop by hop (at: ms after its begin):", "", "| at | who | ms | system calls |", "|--:|---|--:|--:|"]
    lines += [f"| {at / 1e6:.2f} | {who} | {ns / 1e6:.2f} | {calls} |" for who, at, ns, calls in hops(found, start, end, client) if ns >= 10_000]
    return lines + [f"| {(end - start) / 1e6:.2f} | end | | |", ""]


def run_once(b, cay):
    """One `cay run -- true`: (begin, end, pid)."""
    begin = time.monotonic_ns()
    child = os.posix_spawn(cay, [cay, "run", "--", "true"], b.instance.environment(), setpgroup=0)
    _, status = os.waitpid(child, 0)
    assert status == 0, status
    return begin, time.monotonic_ns(), child


def request(sock, method, path, body):
    """One exchange on a kept connection: (begin, end, object or None)."""
    text = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: cay\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    begin = time.monotonic_ns()
    sock.sendall(head.encode() + text)
    answer = sock.recv(65536)
    end = time.monotonic_ns()
    head, _, rest = answer.partition(b"\r\n\r\n")
    assert head.split()[1].startswith(b"2"), answer
    return begin, end, json.loads(rest) if rest else None


def measure(b, cay):
    """{name: [(begin, end, client's thread)]}."""
    empty, windows = os.path.join(b.scratch, "empty"), {"run": [], "create": [], "exec": []}
    os.makedirs(empty, exist_ok=True)
    os.chdir(empty)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(b.instance.socket)
        for _ in range(b.count(30)):
            b.settle()
            windows["run"].append(run_once(b, cay))
            b.settle()
            begin, end, box = request(sock, "POST", "/v1/sandboxes", {})
            windows["create"].append((begin, end, os.getpid()))
            for _ in range(2):  # the first exec of a sandbox is like that of a run
                b.settle(1)
                begin, end, _ = request(sock, "POST", f"/v1/sandboxes/{box['id']}/execs?wait_ms=50000", {"argv": ["true"]})
            windows["exec"].append((begin, end, os.getpid()))
            request(sock, "DELETE", f"/v1/sandboxes/{box['id']}?force=true", None)
    os.chdir("/")
    return windows


def markdown(b, cay):
    recorder = Recorder(os.path.join(b.scratch, "trace"))
    roots = b.instance.own_processes()
    windows = measure(b, cay)
    events = recorder.events()
    found = slices(events, family(events, [*roots, *(w[2] for of in windows.values() for w in of)]))
    lines = []
    for name, of in windows.items():
        lines += table({"run": "`cay run -- true`", "create": "create through the API", "exec": "exec of `true` through the API"}[name], found, of)
    return "\n".join(lines)
