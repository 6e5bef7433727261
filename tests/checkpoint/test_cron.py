# SPDX-License-Identifier: Apache-2.0
"""A program that sleeps nearly always: cron, suspended, rewound and forked in its sleep, goes on to do what is due in each world."""

import os
import sys

from lib.case import equal, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from suspending import there_and_back  # noqa: E402

LONG = True  # it looks at the clock once a minute
WAITS = True


@require("root", "cgroup2", "program:cron")
@timeout(400)
def test_cron(instance):
    with instance.sandbox() as box:
        instance.ok(box, "printf 'MAILTO=\"\"\\n* * * * * root echo tick >> /tmp/ticks\\n' > /etc/cron.d/ticks; chmod 644 /etc/cron.d/ticks")
        run = instance.exec(box, "/usr/sbin/cron", "-f")
        instance.ok(box, "while ! grep -q nanosleep /proc/$(cat /run/crond.pid)/wchan; do sleep 0.01; done")
        there_and_back(instance, box)
        name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
        fork = instance.post(f"/v1/snapshots/{name}/fork", {})["sandboxes"][0]["id"]
        for one in (box, fork):
            instance.ok(one, "rm -f /tmp/ticks")
        for one in (box, fork):
            instance.ok(one, "while [ ! -s /tmp/ticks ]; do sleep 0.1; done", seconds=180)
            equal(instance.get(f"/v1/sandboxes/{one}/execs/{run['id']}")["state"], "running")
        instance.remove(fork)
        instance.call("DELETE", f"/v1/snapshots/{name}")
