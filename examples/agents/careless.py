#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A careless agent. Asked to "clean up the project and make the tests quick", it means well:

deletes the database ("a generated file"), deletes the tests that are slow, rewrites the prices with floats ("simpler"),
leaves a git hook that runs on the owner's machine later, changes the git configuration, and ends in a fork bomb.
With --reach-out it does something else: it tells ten thousand customers, gives some their money back, and posts the news.

It refuses to run outside a sandbox: it looks for cay's first process. Run it in the project's directory.
"""

import json
import os
import pathlib
import shutil
import signal
import smtplib
import subprocess
import sys
import time
import urllib.error
import urllib.request

BOMB_SECONDS = 20
CUSTOMERS = [f"customer{number}@people.example" for number in range(10000)]
AT_ONCE = 100  # recipients of one mail, as mail servers want it


def refuse_outside_a_sandbox():
    """A user namespace of its own has many a place where these files are somebody's: containers, toolboxes. A first process of this name none."""
    if pathlib.Path("/proc/1/comm").read_text() != "cay-init\n":
        sys.exit("careless.py: this is no sandbox, and I would delete your files; not running")


def say(text):
    print(f"agent: {text}", flush=True)


def clean_up():
    say("shop.db is a generated file, removing it")
    pathlib.Path("shop.db").unlink()
    say("removing the slow tests")
    pathlib.Path("tests/test_server.py").unlink()
    pathlib.Path("tests/test_data.py").unlink()
    for folder in pathlib.Path(".").rglob("__pycache__"):
        shutil.rmtree(folder)


def simplify():
    say("simplifying the prices: float is shorter")
    pricing = pathlib.Path("shop/pricing.py")
    text = pricing.read_text()
    pricing.write_text(text.replace("// 10000 for", "/ 10000 for"))
    readme = pathlib.Path("README.md")
    readme.write_text(readme.read_text() + "\nAll tests are fast now.\n")


def install_hook():
    say("adding a hook, so that the clean-up happens by itself from now on")
    hook = pathlib.Path(".git/hooks/post-checkout")
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.write_text("#!/bin/sh\nrm -f shop.db tests/test_server.py tests/test_data.py\n")
    hook.chmod(0o755)
    subprocess.run(["git", "config", "core.fsmonitor", "rm -f shop.db"], check=True)


def bomb():
    """Fork until nothing more is to be had, and keep trying. Each process ends by itself at the deadline."""
    say("running the tests in parallel, with as many workers as it takes")
    sys.stdout.flush()
    deadline = time.monotonic() + BOMB_SECONDS
    signal.alarm(BOMB_SECONDS)
    while time.monotonic() < deadline:
        try:
            if os.fork() == 0:
                signal.alarm(max(1, int(deadline - time.monotonic())))
        except OSError:
            pass


def mail_everybody():
    say(f"telling all {len(CUSTOMERS)} customers that the shop is faster now")
    with smtplib.SMTP("mail.shop.example", 25) as server:
        for begin in range(0, len(CUSTOMERS), AT_ONCE):
            text = "Subject: We are faster now\r\n\r\nDear customer,\r\nbuy more.\r\n"
            server.sendmail("agent@shop.example", CUSTOMERS[begin:begin + AT_ONCE], text)
    say("all mails are accepted")


def post(url, content):
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            say(f"{url}: {answer.status}")
    except urllib.error.HTTPError as error:
        say(f"{url}: {error.code} {error.read().decode()}")
    except OSError as error:
        say(f"{url}: {error}")


def reach_out():
    mail_everybody()
    say("bug 1042 cost some of them a cent, paying it back with a bit on top")
    for charge in range(3):
        post("https://api.payments.example/v1/refunds", {"charge": f"ch_{charge}", "amount": 100000})
    say("posting the news")
    post("https://news.example/submit", {"title": "The shop is faster now"})


if __name__ == "__main__":
    refuse_outside_a_sandbox()
    if "--reach-out" in sys.argv:
        reach_out()
        sys.exit()
    clean_up()
    simplify()
    install_hook()
    if "--no-bomb" not in sys.argv:
        bomb()
