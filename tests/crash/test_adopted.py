# SPDX-License-Identifier: Apache-2.0
"""What happened to a sandbox while no server was there: the next one tells it as if it had been."""

import concurrent.futures
import os
import sys

from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402

PIECE = 512  # as many commands


@require("root")
def test_commands_of_which_one_message_cannot_tell(tmp):
    """The keeper tells of them in pieces."""
    with own_instance(tmp) as instance, concurrent.futures.ThreadPoolExecutor(4) as threads:
        instance.start()
        box = instance.post("/v1/sandboxes", {"name": "box", "limits": {"pids": 4 * PIECE}})["id"]
        runs = list(threads.map(lambda _: instance.exec(box, "sleep", "1000"), range(PIECE + 20)))
        instance.kill()
        instance.start()
        listed = {run["id"]: (run["state"], run["pid"]) for run in instance.get(f"/v1/sandboxes/{box}/execs?limit=1000")["execs"]}
        equal(listed, {run["id"]: ("running", run["pid"]) for run in runs})
