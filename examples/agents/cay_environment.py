# SPDX-License-Identifier: Apache-2.0
"""The hands of an agent: every command it thinks of runs in a sandbox, the agent itself stays outside.

Standard library only; drives the `cay` command. Any agent that has a "run this shell command" tool can call execute(); mini_swe.py
fits it to mini-swe-agent.
"""

import json
import os
import subprocess
import uuid


class CayError(Exception):
    """cay itself refused; `code` is one of defs/errors.def."""

    def __init__(self, error):
        super().__init__(error.get("message", "cay failed"))
        self.code, self.hint = error.get("code"), error.get("hint")


def cay(*arguments):
    """One `cay … --json` command: its API object, or CayError."""
    done = subprocess.run(["cay", *arguments, "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        try:
            error = json.loads(done.stderr)
        except ValueError:
            error = {"message": done.stderr.strip()}
        raise CayError(error.get("error", error))
    return json.loads(done.stdout) if done.stdout.strip() else {}


class CayEnvironment:
    """One sandbox over a project directory, which is never written before apply()."""

    def __init__(self, project=".", timeout_seconds=60, options=(), variables=None):
        self.project = os.path.abspath(project)
        self.timeout_seconds = timeout_seconds
        self.variables = [f"--env={name}={value}" for name, value in (variables or {}).items()]
        self.name = f"agent-{uuid.uuid4().hex[:8]}"
        cay("create", "--name", self.name, "--mount", f"{self.project}:{self.project}", *options)

    def execute(self, action, cwd="", *, timeout=None):
        """Run a shell command; the answer has its output and its real exit status (124: too slow, 137: out of memory)."""
        command = action["command"] if isinstance(action, dict) else action
        done = subprocess.run(
            ["cay", "exec", "--timeout", f"{timeout or self.timeout_seconds}s", *self.variables, "-w", cwd or self.project, self.name,
             "--", "bash", "-c", command],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, errors="replace")
        return {"output": done.stdout, "returncode": done.returncode, "exception_info": ""}

    def snapshot(self):
        """The state as it is now; hand the result to rewind()."""
        return cay("snapshot", self.name)["id"]

    def rewind(self, snapshot):
        cay("rewind", self.name, snapshot)

    def changes(self):
        """[{path, kind, before, after}] since the sandbox was made."""
        return cay("diff", self.name)["changes"]

    def apply(self, check=None):
        """Bring the changes to the project; with `check`, only when that command succeeds in a fork."""
        return cay("apply", self.name, *(["--if", check] if check else []))

    def close(self):
        """Remove it, with all that was not applied."""
        cay("rm", "-f", self.name)

    def keep(self):
        """Stop it; what was done in it stays, to be looked at, applied or removed."""
        cay("stop", self.name)
