# SPDX-License-Identifier: Apache-2.0
"""A plan or an image that says what is not there: refused by name before anything is done with it, and the source goes on."""

import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, start  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
TALK = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print(eval(line), flush=True)"
SAID = {"live.dump.plan": "the template refused the plan: there is too much of something", "live.dump.image": "the image: a descriptor is of nothing"}


@require(*NEEDS)
def test_each_is_refused_by_name(tmp):
    for point, want in SAID.items():
        place = os.path.join(tmp, point)
        os.mkdir(place)
        instance = cay.Instance(place)
        try:
            instance.start(CAY_FAULT=point + "=error")
            with instance.sandbox() as box:
                run = start(instance, box, "/usr/bin/python3", "-c", TALK)
                error = raises(cay.ApiError, fork_live, instance, box)
                contains(error.message, want)
                equal(ask(instance, box, run, "1 + 1"), "2\n")
                equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
        finally:
            instance.close()


@require(*NEEDS)
def test_from_disk_too(tmp):
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT="live.dump.image=error")
        with instance.sandbox() as box:
            start(instance, box, "/usr/bin/python3", "-c", TALK)
            instance.post(f"/v1/sandboxes/{box}/suspend")
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/resume")
            contains(error.message, SAID["live.dump.image"])
            equal(instance.get(f"/v1/sandboxes/{box}")["state"], "suspended")
    finally:
        instance.close()
