# SPDX-License-Identifier: Apache-2.0
"""The mailbox: every mail is kept and readable, none leaves; budgets stop a flood; what was said to be kept is kept."""

import json
import os
import signal
import threading

from lib.case import contains, equal, require
from lib.cay import wait_until
from lib.pace import patience

WAITS = True
PRESET = json.dumps({"preset": "mail-sink"})
SEND = """
import smtplib, sys
from email.message import EmailMessage
def message(i):
    m = EmailMessage()
    m["From"], m["To"], m["Subject"] = "me@shop.example", f"user{i}@people.example", f"offer {i} für dich"
    m.set_content("Buy it!\\nü\\n")
    m.add_attachment(b"\\x00" * 10, maintype="application", subtype="pdf", filename="offer.pdf")
    return m
"""


def python(instance, box, code, want=0):
    return instance.cay("exec", box, "--", "/usr/bin/python3", "-c", SEND + code, timeout=100, want=want)


def test_a_mail_is_kept_and_readable(instance):
    with instance.sandbox(policy=PRESET) as box:
        python(instance, box, "s = smtplib.SMTP('mx.people.example', 25); s.ehlo(); s.starttls(); s.login('a', 'b'); s.send_message(message(1)); s.quit()")
        mails = instance.json("mail", "ls", box)
        equal(mails["total"], 1)
        equal((mails["mails"][0]["host"], mails["mails"][0]["from"], mails["mails"][0]["to"], mails["mails"][0]["tls"]),
              ("mx.people.example", "me@shop.example", ["user1@people.example"], True))
        mail = instance.json("mail", "show", box, 1)["mail"]
        equal((mail["subject"], mail["text"].replace("\r\n", "\n"), mail["attachments"]),
              ("offer 1 für dich", "Buy it!\nü\n", [{"name": "offer.pdf", "type": "application/pdf", "bytes": 10}]))
        shown = instance.cay("mail", "show", box, 1).stdout
        contains(shown, "Subject: offer 1 für dich\n")
        contains(shown, "\n\nBuy it!\nü\n")
        event = instance.wait_event("net.mail", box, lambda e: True)
        assert event["exec"] and "mail" not in event["data"], event
        contains(instance.cay("net", box).stdout, "me@shop.example to user1@people.example  kept: offer 1 für dich  python3[")
        equal(instance.cay("mail", "show", box, 2, check=False).returncode, 125)


def test_ten_thousand_mails_are_ten_thousand_entries(instance):
    with instance.sandbox(policy=PRESET) as box:
        python(instance, box, """
s = smtplib.SMTP('mx.people.example', 587)
for i in range(2000):
    s.sendmail('me@shop.example', [f'{i}-{k}@people.example' for k in range(5)], f'Subject: {i}\\r\\n\\r\\nx')
s.quit()""")
        mails = instance.json("mail", "ls", box)
        equal((mails["total"], sum(m["recipients"] for m in mails["mails"])), (2000, 10000))
        equal([m["subject"] for m in mails["mails"]], [str(i) for i in range(2000)])


def test_a_budget_stops_a_flood(instance):
    rules = [{"name": "mail", "match": {"host": "*", "transport": "smtp"}, "action": "mailbox", "budget": {"requests": {"max": 5}}}]
    with instance.sandbox(policy=json.dumps({"rules": rules})) as box:
        done = python(instance, box, """
s, kept, refused = smtplib.SMTP('mx.people.example'), 0, 0
for i in range(20):
    try:
        s.send_message(message(i)); kept += 1
    except smtplib.SMTPDataError as e:
        assert e.smtp_code == 550, e; refused += 1
print(kept, refused)""")
        equal(done.stdout.split(), ["5", "15"])
        equal(instance.json("mail", "ls", box)["total"], 5)


def test_a_mail_that_cannot_be_written_down_is_not_said_to_be_kept(fresh):
    fresh.stop()
    fresh.start(CAY_FAULT="mail.put.before" + ":1=error")
    with fresh.sandbox(policy=PRESET) as box:
        said = python(fresh, box, """
s = smtplib.SMTP('mx.people.example')
for _ in range(2):
    try:
        s.send_message(message(1)); print('kept')
    except smtplib.SMTPDataError as e:
        print(e.smtp_code)""").stdout.split()
        equal(said, ["451", "kept"])
        equal(fresh.json("mail", "ls", box)["total"], 1)
        equal([e["data"]["kept"] for e in fresh.events(box) if e["type"] == "net.mail"], [False, True])


AWAY = """
import socket, struct, os, sys, threading, time
def at_once(name, fn):
    def run():
        said = fn()
        with open('/shared/' + name + '.new', 'w') as f:
            f.write(str(said))
        os.rename('/shared/' + name + '.new', '/shared/' + name)
    threading.Thread(target=run).start()
def send(s, i):
    try:
        s.send_message(message(i))
        return 'kept'
    except smtplib.SMTPDataError as e:
        return e.smtp_code
def raw():
    try:
        with socket.create_connection(('raw.example', 1234), 60) as s:
            return s.recv(1)
    except OSError as e:
        return type(e).__name__
def records():
    question = struct.pack('>HHHHHH', 7, 0x100, 1, 0, 0, 0) + b'\\3txt\\7example\\0' + struct.pack('>HH', 16, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(60)
        s.sendto(question, ('9.9.9.9', 53))
        return s.recv(512)[3] & 15
def wait(name):
    while not os.path.exists('/shared/' + name):
        time.sleep(0.05)
free, bounded = smtplib.SMTP('mx.people.example'), smtplib.SMTP('mx.bounded.example')
open('/shared/ready', 'w')
wait('away')
at_once('free', lambda: send(free, 1))
at_once('bounded', lambda: send(bounded, 2))
at_once('raw', raw)
at_once('records', records)
wait('back')
at_once('again', lambda: [send(free, 1), send(bounded, 2)])
"""


BUDGET = {"requests": {"max": 5}}
BOUNDED = [{"name": "bounded", "match": {"host": "mx.bounded.example", "transport": "smtp"}, "action": "mailbox", "budget": BUDGET},
           {"name": "mail", "match": {"host": "*", "transport": "smtp"}, "action": "mailbox"},
           {"name": "raw", "match": {"host": "raw.example", "port": 1234, "transport": "tcp"}, "action": "allow", "budget": BUDGET},
           {"name": "records", "match": {"host": "txt.example", "transport": "dns"}, "action": "allow", "budget": BUDGET}]


def while_away(fresh, tmp, box, leave, come_back):
    """What AWAY was told while the server was not there, and behind that."""
    def said(name):
        wait_until(lambda: os.path.exists(os.path.join(tmp, name)), 60, name)
        with open(os.path.join(tmp, name), encoding="ascii") as f:
            return f.read()

    def tell(name):
        with open(os.path.join(tmp, name), "w", encoding="ascii"):
            pass

    fresh.exec(box, "/usr/bin/python3", "-c", SEND + AWAY)
    said("ready")
    leave()
    tell("away")
    got = {name: said(name) for name in ("free", "bounded", "raw", "records")}
    come_back()
    tell("back")
    return got, said("again")


def check_away(fresh, tmp, leave, come_back):
    os.chmod(tmp, 0o777)
    with fresh.sandbox(policy=json.dumps({"rules": BOUNDED}), mounts=[{"source": tmp, "target": "/shared", "mode": "rw"}]) as box:
        equal(while_away(fresh, tmp, box, leave, come_back),
              ({"free": "451", "bounded": "451", "raw": "ConnectionResetError", "records": "2"}, "['kept', 'kept']"))
        equal([m["subject"] for m in fresh.json("mail", "ls", box)["mails"]], ["offer 1 für dich", "offer 2 für dich"])
        event = fresh.wait_event("net.connection", box, lambda e: True)
        contains(event["data"]["error"], "a budget of rule 'raw' cannot be asked now: try again")
        return [e["data"]["kept"] for e in fresh.events(box) if e["type"] == "net.mail"]


@require("root")
def test_while_no_server_is_there_it_is_for_later(fresh, tmp):
    """What nobody can write down, or count, is refused for now: who tries again is served, once."""
    equal(sorted(check_away(fresh, tmp, fresh.kill, fresh.start)), [False, False, True, True])


@require("root")
def test_a_mail_that_the_server_comes_to_too_late_is_there_once(fresh, tmp):
    check_away(fresh, tmp, lambda: os.kill(fresh.process.pid, signal.SIGSTOP), lambda: os.kill(fresh.process.pid, signal.SIGCONT))


def test_mail_goes_on_in_forks_and_ends_with_the_sandbox(instance):
    with instance.sandbox(policy=PRESET) as box:
        python(instance, box, "smtplib.SMTP('a.example').send_message(message(1))")
        child = instance.json("fork", box)["sandboxes"][0]["id"]
        try:
            python(instance, child, "smtplib.SMTP('a.example').send_message(message(2))")
            equal([m["subject"] for m in instance.json("mail", "ls", child)["mails"]], ["offer 1 für dich", "offer 2 für dich"])
            equal(instance.json("mail", "ls", box)["total"], 1)
        finally:
            instance.remove(child)


SWAKS = ["swaks", "--from", "me@shop.example", "--to", "one@people.example,two@people.example", "--header", "Subject: by swaks", "--body", "line\\n.dot\\n..dots"]


@require("program:swaks")
def test_swaks_finds_nothing_wrong(instance):
    """A mailer that reports every answer that is not what the RFCs want; with and without TLS, each way to authenticate, pipelined, over IPv6."""
    ways = {"plain": ("--server", "mx.people.example"),
            "HELO": ("--server", "mx.people.example", "--protocol", "SMTP"),
            "STARTTLS, verified": ("--server", "mx.people.example:587", "--tls", "--tls-verify"),
            "TLS from the start": ("--server", "mx.people.example:465", "--tls-on-connect", "--tls-verify"),
            "AUTH LOGIN": ("--server", "mx.people.example:587", "--tls", "--auth", "LOGIN", "--auth-user", "a", "--auth-password", "b"),
            "AUTH PLAIN": ("--server", "mx.people.example:587", "--tls", "--auth", "PLAIN", "--auth-user", "a", "--auth-password", "b"),
            "pipelined": ("--server", "mx.people.example", "--pipeline"),
            "IPv6": ("--server", "mx.people.example", "-6"),
            "an attachment": ("--server", "mx.people.example", "--attach", "@/etc/passwd")}
    with instance.sandbox(policy=PRESET) as box:
        for name, options in ways.items():
            done = instance.cay("exec", box, "--", *SWAKS, *options, timeout=60, check=False)
            equal((done.returncode, [line for line in done.stdout.splitlines() if line.startswith(("<**", "<~*", "***"))]), (0, []), name + "\n" + done.stdout + done.stderr)
        equal(instance.json("mail", "ls", box)["total"], len(ways))
        first, last = (instance.json("mail", "show", box, n) for n in (1, len(ways)))
        equal((first["to"], first["mail"]["subject"]), (["one@people.example", "two@people.example"], "by swaks"))
        equal(first["mail"]["text"].split(), ["line", ".dot", "..dots"])
        equal([a["name"] for a in last["mail"]["attachments"]], ["passwd"])


def test_the_raw_message_is_kept(instance):
    """Byte by byte, whatever they are; of a large one the beginning."""
    parts = {"text": (b"X-Odd:  \tspaced \r\n\r\n.leading dot\r\ntrailing \r\n", 1),
             "bytes": (b"\r\n" + bytes(range(1, 256)).replace(b"\r", b"").replace(b"\n", b"") + b"\xe4\r\n", 1),
             "nul": (b"X: a\x00b\r\n\r\n\x00\r\n", 1),
             "large": (b"0123456789\r\n", 30000),
             "escapes": (b"\x02" * 900 + b"\r\n", 120)}
    raw = {name: b"Subject: raw\r\n" + part * count for name, (part, count) in parts.items()}
    with instance.sandbox(policy=PRESET) as box:
        python(instance, box, f"""
import smtplib
s = smtplib.SMTP('mx.people.example'); s.ehlo()
for part, count in {list(parts.values())!r}:
    data = b"Subject: raw\\r\\n" + part * count
    s.mail('me@shop.example'); s.rcpt('you@people.example')
    s.docmd('DATA'); s.send(smtplib._quote_periods(data) + b'.\\r\\n'); code, _ = s.getreply(); assert code == 250, code
s.quit()""")
        equal(instance.json("mail", "ls", box)["total"], len(raw))
        for number, (name, data) in enumerate(raw.items(), 1):
            shown = instance.cay("mail", "show", box, number, "--raw", text=False)
            equal(shown.stdout == data[:192 << 10], True, name + repr(shown.stdout[:80]))
            equal(b"the mail is longer" in shown.stderr, name == "large", name)
        equal(any("mail" in mail for mail in instance.get(f"/v1/sandboxes/{box}/mails")["mails"]), False, "the list holds no messages")


def test_a_rewind_does_not_call_mail_back(instance):
    """What was given away stays in the mailbox, marked; forks of the present begin with what belongs to it."""
    def send(box, number):
        python(instance, box, f"smtplib.SMTP('a.example').sendmail('me@shop.example', ['you@a.example'], 'Subject: {number}\\r\\n\\r\\nx')")

    def mails(box):
        return [(m["subject"], m["undone"]) for m in instance.json("mail", "ls", box)["mails"]]

    with instance.sandbox(policy=PRESET) as box:
        send(box, 1)
        instance.cay("snapshot", box, "--name", f"s-{box[:6]}")
        send(box, 2)
        equal(mails(box), [("1", False), ("2", False)])
        instance.cay("rewind", box, f"s-{box[:6]}")
        send(box, 3)
        equal(mails(box), [("1", False), ("2", True), ("3", False)])
        contains(instance.cay("mail", "ls", box).stdout, "2  (undone by a rewind)")
        child = instance.json("fork", box)["sandboxes"][0]["id"]
        try:
            send(child, 4)
            equal(mails(child), [("1", False), ("3", False), ("4", False)])
            instance.cay("rewind", child, f"s-{box[:6]}")
            equal(mails(child), [("1", False), ("3", False), ("4", True)])
        finally:
            instance.remove(child)


def test_without_a_rule_there_is_no_mail_server(instance):
    with instance.sandbox() as box:
        python(instance, box, "smtplib.SMTP('mx.people.example', 25, timeout=20)", want=1)


def test_a_connection_from_before_a_change_goes_on_under_the_rule_of_that_name(instance):
    """What it spends is counted there, whatever the rule says by now."""
    def policy(most):
        return json.dumps({"rules": [{"name": "mail", "match": {"host": "*", "transport": "smtp"}, "action": "mailbox", "budget": {"requests": {"max": most}}}]})

    with instance.sandbox(policy=policy(2)) as box:
        instance.ok(box, "mkfifo /tmp/sent /tmp/go")
        done = []
        sender = threading.Thread(target=lambda: done.append(python(instance, box, """
s = smtplib.SMTP('mx.people.example', 25)
s.sendmail('a@b.example', ['c@d.example'], 'x')
open('/tmp/sent', 'w').write('1')
open('/tmp/go').read()
kept = 0
try:
    for _ in range(5):
        s.sendmail('a@b.example', ['c@d.example'], 'x')
        kept += 1
except smtplib.SMTPException:
    pass
print(kept)""")))
        sender.start()
        equal(instance.ok(box, "cat /tmp/sent"), "1")
        instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": policy(4)})
        instance.ok(box, "echo >/tmp/go")
        sender.join(patience(100))
        equal([run.stdout.strip() for run in done], ["3"])


def test_a_mail_whose_heads_are_too_large_to_be_told(instance):
    """All that is said of it as large as it may be, in bytes that take six times their room in an event: parts are left out, and it is kept."""
    with instance.sandbox(policy=PRESET) as box:
        python(instance, box, """
s = smtplib.SMTP('mx.people.example'); s.ehlo()
odd = '\\x01'
s.docmd('MAIL', f'FROM:<{odd * 320}>')
for i in range(100):
    code, _ = s.docmd('RCPT', f'TO:<{odd * 317}{i:03}>'); assert code == 250, code
heads = ''.join(f'{name}: {odd * 16380}\\r\\n' for name in ('From', 'To', 'Cc', 'Reply-To', 'Subject', 'Date', 'Message-ID'))
s.docmd('DATA'); s.send((heads + '\\r\\n' + (odd * 900 + '\\r\\n') * 220 + '.\\r\\n').encode()); code, said = s.getreply(); assert code == 250, said
s.sendmail('me@shop.example', ['you@people.example'], 'Subject: next\\r\\n\\r\\nx')
s.quit()""")
        mails = instance.json("mail", "ls", box)["mails"]
        equal([(m["subject"], m["recipients"], len(m["to"]), len(m["from"])) for m in mails], [("\x01" * 16380, 100, 100, 320), ("next", 1, 1, 15)])
        mail = instance.json("mail", "show", box, 1)["mail"]
        equal((mail["cut"], mail["html"], mail["text"], mail["from"], mail["subject"]), (True, None, None, "\x01" * 16380, "\x01" * 16380))
        equal([e for e in instance.events(box) if e["type"] == "gateway.ended"], [])
