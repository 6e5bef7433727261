# SPDX-License-Identifier: Apache-2.0
"""mini-swe-agent in a sandbox: put this directory on PYTHONPATH, and in the agent's configuration

    environment:
      environment_class: mini_swe.MiniSweEnvironment
      cwd: /path/to/the/project
      timeout: 60

The agent and its model stay outside, every command it thinks of runs inside. When it is done: `cay ps`, `cay diff NAME`, `cay apply NAME`.
"""

from types import SimpleNamespace

from cay_environment import CayEnvironment
from minisweagent.exceptions import Submitted

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class MiniSweEnvironment(CayEnvironment):
    def __init__(self, cwd=".", timeout=60, **others):
        super().__init__(project=cwd, timeout_seconds=timeout)
        self.config = SimpleNamespace(cwd=self.project, timeout=timeout, **others)

    def execute(self, action, cwd="", *, timeout=None):
        """As CayEnvironment; ends the agent's run when a command says that the task is done."""
        result = super().execute(action, cwd, timeout=timeout)
        first, _, submission = result["output"].lstrip().partition("\n")
        if first.strip() == DONE and result["returncode"] == 0:
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return result
