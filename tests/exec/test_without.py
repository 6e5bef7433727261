# SPDX-License-Identifier: Apache-2.0
"""The floor is Linux 6.1: the core of everything works with every newer kernel feature switched off (CAY_WITHOUT=all)."""

import os

from lib import cay
from lib.case import contains, equal, require

WHOLE = os.getuid() == 0  # who runs the tests without root may have neither other ids nor a group that freezes


def check_core(tmp, user=None):
    project = os.path.join(tmp, "p")
    os.mkdir(project)
    with open(os.path.join(project, "f"), "w", encoding="utf-8") as f:
        f.write("one\n")
    if user is not None:
        for path in (project, os.path.join(project, "f")):
            os.chown(path, user.pw_uid, user.pw_gid)
    instance = cay.Instance(tmp, user=user, env={"CAY_WITHOUT": "all"})
    try:
        instance.start()
        with instance.sandbox(name="one", mounts=[{"source": project, "target": "/p"}]) as box:
            equal(instance.sh(box, "exit 7")[0]["code"], 7)
            instance.ok(box, "echo two > /p/f; echo x > /var/tmp/x")
            if WHOLE:
                instance.ok(box, "chown nobody /var/tmp/x")
            instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "s"})
            instance.ok(box, "rm /var/tmp/x")
            fork = instance.post("/v1/snapshots/s/fork", {})["sandboxes"][0]["id"]
            equal(instance.ok(fork, "cat /var/tmp/x /p/f; stat -c %U /var/tmp/x"), "x\ntwo\n" + ("nobody\n" if WHOLE else "root\n"))
            contains(str(instance.get(f"/v1/diff?a={box}")["changes"]), "/p/f")
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "s"})
            equal(instance.ok(box, "cat /var/tmp/x"), "x\n")
            if WHOLE:
                instance.post(f"/v1/sandboxes/{box}/suspend")
                instance.post(f"/v1/sandboxes/{box}/resume")
            instance.post(f"/v1/sandboxes/{box}/apply", {})
            with open(os.path.join(project, "f"), encoding="utf-8") as f:
                equal(f.read(), "two\n")
        for sandbox in instance.get("/v1/sandboxes")["sandboxes"]:
            instance.call("DELETE", f"/v1/sandboxes/{sandbox['id']}?force=true")
    finally:
        instance.close()


def test_the_core_without_newer_features(tmp):
    check_core(tmp)


@require("root", "userns", "newuidmap")
def test_the_same_as_an_ordinary_user(tmp):
    os.chmod(tmp, 0o755)
    with cay.ThrowawayUser() as user:
        check_core(tmp, user)
