#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A careless agent. Asked to "clean up the project and make the tests quick", it means well:

deletes the database ("a generated file"), deletes the tests that are slow, rewrites the prices with floats ("simpler"),
leaves a git hook that runs on the owner's machine later, changes the git configuration, and ends in a fork bomb.

It refuses to run outside a sandbox: it looks for a user namespace of its own. Run it in the project's directory.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

BOMB_SECONDS = 20


def refuse_outside_a_sandbox():
    """On a plain machine every uid maps to itself over the whole range; in a sandbox it does not."""
    fields = pathlib.Path("/proc/self/uid_map").read_text().split()
    if fields == ["0", "0", "4294967295"]:
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


if __name__ == "__main__":
    refuse_outside_a_sandbox()
    clean_up()
    simplify()
    install_hook()
    if "--no-bomb" not in sys.argv:
        bomb()
