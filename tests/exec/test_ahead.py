# SPDX-License-Identifier: Apache-2.0
"""Sandboxes are finished before anybody asks for them: whatever is asked for then, it is what one gets."""

import os

from lib.case import equal, require
from lib.cay import Instance, wait_until
from lib.pool import in_own_mounts

LOOK = ("echo $(hostname) $(grep -c ^processor /proc/cpuinfo) $(cat /sys/devices/system/cpu/online) $(sed -n 's/^MemTotal: *//p' /proc/meminfo); "
        "for f in /proc/self/oom_score_adj /sys/new; do (echo 600 > $f) 2>/dev/null && echo $f; done; true")
PROCESSORS = len(os.sched_getaffinity(0))
ALL = f"{PROCESSORS} 0-{PROCESSORS - 1}" if PROCESSORS > 1 else "1 0"


def look_once(instance, asked):
    """What look() returns; None when the sandbox was not one of those that were ready."""
    wait_until(lambda: instance.get("/v1/version")["pool"] > 0, 30, "sandboxes to be prepared")
    with instance.sandbox(**asked) as box:
        shown, *writable = instance.ok(box, LOOK).splitlines()
        shown, memory, _ = shown.rsplit(" ", 2)
        warm = next(e["data"]["warm"] for e in instance.events(box) if e["type"] == "sandbox.started")
        return (shown, int(memory), writable) if warm else None


def look(instance, **asked):
    """(hostname and processors, memory, what may be written) inside one that was ready."""
    found = []
    wait_until(lambda: found.append(look_once(instance, asked)) or found[-1], 60, "a sandbox that was ready")
    return found[-1]


def everything(instance):
    shown, machine, writable = look(instance)
    equal((shown, writable), (f"cay {ALL}", []))
    equal(look(instance, hostname="other"), (f"other {ALL}", machine, []))
    equal(look(instance, limits={"memory_bytes": 64 << 20}), (f"cay {ALL}", 65536, []))
    equal(look(instance, limits={"cpu_millis": 1000}), ("cay 1 0", machine, []))
    equal(look(instance, profile="debug"), (f"cay {ALL}", machine, ["/proc/self/oom_score_adj"]))
    equal(look(instance, profile="strict"), (f"cay {ALL}", machine, []))
    equal(look(instance), (f"cay {ALL}", machine, []))


@require("root")
def test_what_was_finished_ahead_is_what_was_asked_for(tmp):
    in_own_mounts()  # those of others would make what is ready stale
    instance = Instance(tmp)
    try:
        instance.start()
        everything(instance)
    finally:
        instance.close()
