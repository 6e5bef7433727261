# SPDX-License-Identifier: Apache-2.0
"""Programs that do nothing but send signals, to themselves and to each other, while live snapshots are taken behind each other: none is lost, and none comes twice."""

import os
import sys

from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, put_file, rootless, say, start  # noqa: E402
from test_objects import PROGRAMS  # noqa: E402

TIMEOUT = 240
NEEDS = ("root", "cgroup2")
SNAPSHOTS = 50


def snapshots_in_a_storm(instance, count):
    with instance.sandbox() as box:
        put_file(instance, box, os.path.join(PROGRAMS, "object_storm"), "/tmp/object_storm")
        run = start(instance, box, "/tmp/object_storm", "stops")
        for i in range(count):
            made = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": False})
            instance.call("DELETE", f"/v1/snapshots/{made['id']}")
            if i % 10 == 9:
                assert ask(instance, box, run, "more") == "more\n"
        say(instance, box, run, "check\n")
        status = instance.wait(box, run)
        equal((status["status"], status.get("code"), instance.output(box, run).decode().splitlines()[-1]), ("exited", 0, "fine"))


@require(*NEEDS)
def test_no_signal_is_lost(instance):
    snapshots_in_a_storm(instance, SNAPSHOTS)


@require(*NEEDS, "userns", "newuidmap")
def test_no_signal_is_lost_rootless(tmp):
    with rootless(tmp) as instance:
        snapshots_in_a_storm(instance, SNAPSHOTS)
