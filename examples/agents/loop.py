#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The smallest agent loop with undo: loop.py PROJECT CHECK MODEL

MODEL is a program that reads what has happened so far (JSON lines of {"command", "output", "returncode", "kept"}) on standard
input and prints the next shell command, or nothing when it is done. Each command runs in a sandbox over PROJECT. When the shell
command CHECK succeeds no more after a step, though it did before, the step is undone and the model is told so. In the end
the changes are shown, and applied to PROJECT only when CHECK succeeds. What was not applied, for whatever reason, stays in the sandbox.

    loop.py examples/shop 'python3 -B -m unittest tests.test_orders' examples/agents/recorded_model.py
"""

import json
import subprocess
import sys

from cay_environment import CayEnvironment, CayError

MAX_STEPS = 50


def next_command(model, history):
    lines = "".join(json.dumps(step) + "\n" for step in history)
    return subprocess.run([model], input=lines, capture_output=True, text=True, check=True).stdout.strip()


def work(environment, check, model):
    """Steps until the model is done. Returns whether CHECK succeeds at the end."""
    history, good = [], environment.execute(check)["returncode"] == 0
    snapshot = environment.snapshot()
    for _ in range(MAX_STEPS):
        command = next_command(model, history)
        if not command:
            break
        result = environment.execute(command)
        still_good = environment.execute(check)["returncode"] == 0
        kept = still_good or not good
        history.append({"command": command, "output": result["output"][-4000:], "returncode": result["returncode"], "kept": kept})
        print(f"{'kept  ' if kept else 'undone'} {command}", flush=True)
        if kept:
            good, snapshot = still_good, environment.snapshot()
        else:
            environment.rewind(snapshot)
    return good


def bring_home(environment, good):
    """Show the changes, and apply them if @good. Returns whether they are in the project."""
    for change in environment.changes():
        print(f"{change['kind']:9} {change['path']}")
    if not good:
        print("the check fails: nothing applied")
        return False
    try:
        environment.apply()
    except CayError as error:
        print(error, error.hint or "", sep="\n")
        return False
    print("applied")
    return True


def leave(environment):
    """Hours of work may be in it, and a person can judge what we cannot."""
    name = environment.name
    print(f"what was done stays in sandbox {name}: cay diff {name}; cay apply {name} (--allow-exec); cay rm {name}", flush=True)
    environment.keep()


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    project, check, model = sys.argv[1:]
    environment = CayEnvironment(project)
    home = False
    try:
        home = bring_home(environment, work(environment, check, model))
    finally:
        if home:
            environment.close()
        else:
            leave(environment)
    sys.exit(0 if home else 1)


if __name__ == "__main__":
    main()
