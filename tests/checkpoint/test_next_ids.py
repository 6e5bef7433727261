# SPDX-License-Identifier: Apache-2.0
"""What chooses the ids of System V objects is opened for images that have some: for one that has none it would take the longer the more forks there are, whose names lie in one chain of the kernel's."""

import contextlib
import os
import signal
import sys
import threading

from lib import cay, leaks
from lib.case import equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import put_file, start  # noqa: E402

TIMEOUT = 60
OBJECT = os.path.join(cay.BUILD, "tests", "checkpoint", "object_sysv")


def entered(instance):
    """Parents of processes to come, each stopped where it has entered its sandbox."""
    return [pid for pid in instance.programs_named("cay-fork") if leaks.processes().get(pid, ("", ""))[1] == "T"]


def opened_for_a_fork(instance, box):
    """What of the kernel's files that choose ids is open while a fork of @box is made."""
    made = []
    thread = threading.Thread(target=lambda: made.append(instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})))
    thread.start()
    try:
        cay.wait_until(lambda: entered(instance), 30, "it has entered")
        fds = f"/proc/{entered(instance)[0]}/fd"
        links = [os.readlink(os.path.join(fds, fd)) for fd in os.listdir(fds)]
    finally:
        while thread.is_alive():
            for pid in entered(instance):
                os.kill(pid, signal.SIGCONT)
            thread.join(0.05)
    instance.remove(made[0]["sandboxes"][0]["id"])
    return sorted(os.path.basename(link) for link in links if link.endswith("_next_id"))


@require("root", "cgroup2")
def test_opened_where_there_are_objects(tmp):
    with contextlib.closing(cay.Instance(tmp, env={"CAY_FAULT": "live.fork.entered=hold"}).start()) as instance:
        with instance.sandbox() as box:
            start(instance, box, "/bin/sh", "-c", "echo ready; read line")
            equal(opened_for_a_fork(instance, box), [])
        with instance.sandbox() as box:
            start(instance, box, put_file(instance, box, OBJECT, "/usr/local/bin/object_sysv"))
            equal(opened_for_a_fork(instance, box), ["msg_next_id", "sem_next_id", "shm_next_id"])
