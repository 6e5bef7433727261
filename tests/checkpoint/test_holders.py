# SPDX-License-Identifier: Apache-2.0
"""Mail and budgets are of the same instant as the program that sends and spends: what a fork's mailbox has is what its program was told, and at most the one message whose
answer was under way and is lost with the connection (docs/design/0006, "Holders")."""

import json
import os
import sys

from lib import cay
from lib.case import equal, require
from lib.proxy import Upstream, echo

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, put, start  # noqa: E402

TIMEOUT = 170
NEEDS = ("root", "cgroup2")

# Sends as fast as it is answered. `acked` is in its memory and in a file: the next line of either is reached only after the answer.
MAILS = """
import os, smtplib, sys, threading
acked, stop, broke = 0, False, None
fd = os.open("/tmp/acked", os.O_RDWR | os.O_CREAT, 0o600)
os.pwrite(fd, b"%10d" % 0, 0)
def flood():
    global acked, broke
    try:
        s = smtplib.SMTP("a.example")
        while not stop:
            try:
                s.sendmail("me@shop.example", ["you@a.example"], f"Subject: {acked}\\r\\n\\r\\nx")
            except smtplib.SMTPDataError: # the mailbox is away: once more
                continue
            acked += 1
            os.pwrite(fd, b"%10d" % acked, 0)
    except (OSError, smtplib.SMTPException) as error:
        broke = type(error).__name__
thread = threading.Thread(target=flood, daemon=True)
thread.start()
def more(than):
    while acked <= than and broke is None: pass
    return acked
def ended():
    thread.join()
    return acked, broke is not None
def end():
    global stop
    stop = True
    return ended()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""

# Spends up to a limit of its own, then waits for a higher one.
SPENDER = """
import http.client, sys, threading
granted = lost = 0
limit, over, changed = 0, False, threading.Condition()
def wait():
    with changed:
        changed.wait_for(lambda: granted < limit)
first = http.client.HTTPConnection("api.example", timeout=60)
first.connect() # an answer to a question for a name is a datagram, which no capture takes along
def spend():
    global granted, lost, over
    c = first
    while not over:
        wait()
        try:
            c.request("GET", "/")
            answer = c.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            c = http.client.HTTPConnection("api.example", timeout=60)
            lost += 1
            continue
        if answer.status == 429: over = True
        else: granted += 1
thread = threading.Thread(target=spend, daemon=True)
thread.start()
def up_to(n):
    global limit
    with changed:
        limit = n
        changed.notify()
    return n
def all():
    up_to(1 << 30)
    thread.join()
    return granted, lost
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def begin(instance, box, program):
    put(instance, box, "/tmp/program.py", program)
    return start(instance, box, "/usr/bin/python3", "/tmp/program.py")


def mailbox(instance, box):
    """Subjects of what belongs to the present."""
    return [int(m["subject"]) for m in instance.get(f"/v1/sandboxes/{box}/mails?limit=100000")["mails"] if not m["undone"]]


def one_instant(instance, box, acked, what):
    """The mailbox holds what was acknowledged, in order, and at most one more."""
    got = mailbox(instance, box)
    assert got in (list(range(acked)), list(range(acked + 1))), f"{what}: the program was told of {acked} mails, the mailbox has {len(got)}: {got[-3:]}"


@require(*NEEDS)
def test_mail_of_the_instant(instance):
    with instance.sandbox(policy=json.dumps({"preset": "mail-sink"})) as box:
        run = begin(instance, box, MAILS)
        acked = 0
        for _ in range(3):
            acked = int(ask(instance, box, run, f"more({acked})"))
            fork = fork_live(instance, box)[0]
            told, broke = eval(ask(instance, fork, run, "ended()"))
            equal(broke, True, "a connection that left the sandbox ends in the fork")
            assert told >= acked, (told, acked)
            one_instant(instance, fork, told, "live")
            instance.remove(fork)

            acked = int(ask(instance, box, run, f"more({acked})"))
            fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": False})["sandboxes"][0]["id"]
            told = int(instance.ok(fork, "cat /tmp/acked"))
            assert told >= acked, (told, acked)
            one_instant(instance, fork, told, "files alone")
            instance.remove(fork)
        told, broke = eval(ask(instance, box, run, "end()"))
        equal((broke, mailbox(instance, box)), (False, list(range(told))), "the source's connection went on")


@require(*NEEDS)
def test_mail_across_a_rewind_and_a_suspension(instance):
    with instance.sandbox(policy=json.dumps({"preset": "mail-sink"})) as box:
        run = begin(instance, box, MAILS)
        acked = int(ask(instance, box, run, "more(0)"))
        instance.cay("snapshot", box, "--name", f"h-{box[:6]}")
        acked = int(ask(instance, box, run, f"more({acked})"))
        instance.cay("rewind", box, f"h-{box[:6]}")
        told, broke = eval(ask(instance, box, run, "ended()"))
        equal(broke, True)
        one_instant(instance, box, told, "rewind")

        put(instance, box, "/tmp/more.py", MAILS.replace("acked, stop, broke = 0", f"acked, stop, broke = {len(mailbox(instance, box))}"))
        run = start(instance, box, "/usr/bin/python3", "/tmp/more.py")
        ask(instance, box, run, f"more({told + 1})")
        instance.cay("suspend", box)
        instance.cay("resume", box)
        told, broke = eval(ask(instance, box, run, "ended()"))
        equal(broke, True)
        one_instant(instance, box, told, "suspended and resumed")


def budget(upstream, most):
    return json.dumps({"version": 1, "rules": [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address,
                                                "private": True, "budget": {"requests": {"max": most}}}]})


@require(*NEEDS)
def test_a_budget_of_the_instant(instance):
    """Each fork can spend what is left, to the last request but the one whose answer was lost; so can the source, after any number of snapshots."""
    most = 600
    upstream = Upstream(echo)
    with instance.sandbox(policy=budget(upstream, most)) as box:
        run = begin(instance, box, SPENDER)
        forks = []
        for n in range(1, 4):
            ask(instance, box, run, f"up_to({n * 150})")
            forks.append(fork_live(instance, box)[0])
        for fork in forks:
            granted, lost = eval(ask(instance, fork, run, "all()"))
            equal((granted in (most - 1, most), lost), (True, 1), f"{granted} of {most}")
            instance.remove(fork)
        instance.cay("suspend", box)
        instance.cay("resume", box)
        granted, lost = eval(ask(instance, box, run, "all()"))
        equal((granted in (most - 1, most), lost), (True, 1), f"{granted} of {most}")
    upstream.close()


@require(*NEEDS)
def test_a_server_that_dies_holds_nobody(tmp):
    """Killed while the gateway stands still for its capture: connections go on, and every mail that was acknowledged is there. One may be there twice: its sender was told to try again."""
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT="live.take.held")
        box = instance.post("/v1/sandboxes", {"policy": json.dumps({"preset": "mail-sink"})})["id"]
        run = begin(instance, box, MAILS)
        acked = int(ask(instance, box, run, "more(0)"))
        try:
            fork_live(instance, box)
        except (cay.ApiError, OSError, EOFError) as error:
            print(f"failed as it must: {error}")
        instance.process.wait(30)
        instance.start()
        ask(instance, box, run, f"more({acked + 1})")
        told, broke = eval(ask(instance, box, run, "end()"))
        equal((broke, sorted(set(mailbox(instance, box)))), (False, list(range(told))))
    finally:
        instance.close()
