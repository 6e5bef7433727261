# SPDX-License-Identifier: Apache-2.0
"""mini-swe-agent in a sandbox: put this directory on PYTHONPATH, and beside the agent's own configuration (mini -c mini.yaml -c FILE) say

    environment:
      environment_class: mini_swe.MiniSweEnvironment
      cwd: /path/to/the/project
      timeout: 60

The agent and its model stay outside, every command it thinks of runs inside. When it is done: `cay ps`, `cay diff NAME`, `cay apply NAME`.
"""

import platform
from types import SimpleNamespace

from cay_environment import CayEnvironment
from minisweagent.exceptions import Submitted

DONE = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


class MiniSweEnvironment(CayEnvironment):
    def __init__(self, cwd=".", timeout=60, env=None, **others):
        super().__init__(project=cwd, timeout_seconds=timeout, variables=env)
        self.config = SimpleNamespace(cwd=self.project, timeout=timeout, env=env or {}, **others)

    def execute(self, action, cwd="", *, timeout=None):
        """As CayEnvironment; ends the agent's run when a command says that the task is done."""
        result = super().execute(action, cwd, timeout=timeout)
        first, _, submission = result["output"].lstrip().partition("\n")
        if first.strip() == DONE and result["returncode"] == 0:
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return result

    def get_template_vars(self, **variables):
        """What the agent's prompts may mention: what they say of the machine holds inside too. No variable of ours: some are keys."""
        return {**platform.uname()._asdict(), "cwd": self.project, "timeout": self.timeout_seconds, **variables}

    def serialize(self):
        return {"info": {"config": {"environment": {"project": self.project, "sandbox": self.name}}}}
