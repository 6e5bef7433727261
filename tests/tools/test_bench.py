# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks count: a command that fails is no fast sample, and a sandbox that is gone no small one."""

import os
import sys

from lib import cay
from lib.case import contains, equal, require

os.environ.setdefault("CAY_TEST_BUILD", cay.BUILD)
sys.path.insert(0, os.path.join(cay.TOP, "bench"))
import cases  # noqa: E402
import measure  # noqa: E402


def measured(instance, argv):
    """What apibench makes of an exec of @argv, twice."""
    return measure.api(instance.socket, 1, 2, [cases.once(cases.CREATE), *cases.execute(argv), cases.once(cases.REMOVE, "~")])


def test_a_command_that_fails_is_an_error(instance):
    done = measured(instance, ["true"])
    equal((len(done["steps"]["exec"]["ns"]), done["steps"]["exec"]["errors"], done["errors"]), (2, 0, []))
    for argv, said in ((["false"], '"wait_status":256'), (["sh", "-c", "kill -9 $$"], "signaled"), (["/nonexistent"], "command_not_found")):
        done = measured(instance, argv)
        equal((done["steps"]["exec"]["ns"], done["steps"]["exec"]["errors"]), ([], 2), str(argv))
        contains(" ".join(done["errors"]), said)


@require("root")
def test_a_sandbox_that_ended_is_an_error(instance):
    class Bench:
        pass
    Bench.instance = instance
    with instance.sandbox() as one, instance.sandbox() as other:
        equal(cases.not_running(Bench, [one, other]), 0)
        instance.post(f"/v1/sandboxes/{one}/stop")
        equal(cases.not_running(Bench, [one, other]), 1)
        equal(cases.not_running(Bench, ["a" * 20]), 1)
