# SPDX-License-Identifier: Apache-2.0
"""A sandbox without files of its own: one that has never run, or that went back to a snapshot and has not been started since. All that can be done with files can be done with it."""

import os

from lib.case import equal, require

TIMEOUT = 120


def project(tmp):
    path = os.path.join(tmp, "project")
    os.mkdir(path)
    os.chmod(path, 0o751)
    os.chown(path, 1234, 4321)
    with open(os.path.join(path, "a"), "w", encoding="utf-8") as f:
        f.write("from the host\n")
    return path


def diff(instance, a, b):
    return [(c["kind"], c["path"]) for c in instance.get(f"/v1/diff?a={a}&b={b}")["changes"]]


@require("root")
def test_a_sandbox_that_never_ran_is_snapshotted_and_forked(fresh, tmp):
    body = {"start": False, "mounts": [{"source": project(tmp), "target": "/p", "mode": "cow"}]}
    box = fresh.post("/v1/sandboxes", body)["id"]
    for live in (False, None):
        snap = fresh.post(f"/v1/sandboxes/{box}/snapshots", {} if live is None else {"files_only": True})
        equal((snap["files"], snap["bytes"]), (0, 0))
        equal(diff(fresh, snap["id"], box), [])
    equal(fresh.post(f"/v1/snapshots/{snap['id']}/verify")["state"], "verified")
    fork = fresh.post(f"/v1/snapshots/{snap['id']}/fork", {})["sandboxes"][0]["id"]
    equal(fresh.ok(fork, "cat /p/a; stat -c %a /p"), "from the host\n751\n")
    equal(diff(fresh, snap["id"], fork), [])
    again = fresh.post(f"/v1/sandboxes/{box}/fork", {"count": 2})["sandboxes"]
    equal([fresh.ok(b["id"], "cat /p/a") for b in again], ["from the host\n"] * 2)
    fresh.post(f"/v1/sandboxes/{box}/start")
    equal(fresh.ok(box, "echo mine > /p/a; echo mine > /var/tmp/mine; stat -c %a /p"), "751\n")
    fresh.post(f"/v1/sandboxes/{box}/stop")
    fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": snap["id"]})
    fresh.post(f"/v1/sandboxes/{box}/start")
    equal(fresh.ok(box, "cat /p/a; ls /var/tmp; stat -c %a /p"), "from the host\n751\n")


@require("root")
def test_a_fork_that_never_ran_is_forked(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    fresh.ok(box, "echo kept > /var/tmp/kept; chmod 700 /var/tmp")
    snap = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
    asleep = fresh.post(f"/v1/snapshots/{snap}/fork", {"start": False})["sandboxes"][0]["id"]
    fork = fresh.post(f"/v1/sandboxes/{asleep}/fork", {})["sandboxes"][0]["id"]
    equal(fresh.ok(fork, "cat /var/tmp/kept; stat -c %a /var/tmp"), "kept\n700\n")
    equal(diff(fresh, snap, fork), [])
    equal(diff(fresh, snap, asleep), [])


@require("root")
def test_what_went_back_while_it_was_stopped_is_snapshotted(fresh):
    box = fresh.post("/v1/sandboxes", {})["id"]
    fresh.ok(box, "echo kept > /var/tmp/kept")
    snap = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
    fresh.ok(box, "echo changed > /var/tmp/kept")
    fresh.post(f"/v1/sandboxes/{box}/stop")
    fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": snap})
    equal(diff(fresh, snap, box), [])
    second = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
    equal(diff(fresh, snap, second), [])
    fresh.post(f"/v1/sandboxes/{box}/start")
    equal(fresh.ok(box, "cat /var/tmp/kept"), "kept\n")
    fork = fresh.post(f"/v1/snapshots/{second}/fork", {})["sandboxes"][0]["id"]
    equal(fresh.ok(fork, "cat /var/tmp/kept"), "kept\n")


def test_files_of_a_sandbox_that_never_ran(fresh):
    box = fresh.post("/v1/sandboxes", {"start": False})["id"]
    with open("/etc/os-release", "rb") as f:
        equal(fresh.raw("GET", f"/v1/sandboxes/{box}/files?path=/etc/os-release")[::2], (200, f.read()))


@require("root")
def test_a_sandbox_with_a_disk_that_never_ran(fresh):
    box = fresh.post("/v1/sandboxes", {"start": False, "limits": {"inodes": 100, "disk_bytes": 4 << 20}})["id"]
    snap = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
    fork = fresh.post(f"/v1/snapshots/{snap}/fork", {})["sandboxes"][0]["id"]
    equal(fresh.ok(fork, "echo x > /var/tmp/x; cat /var/tmp/x"), "x\n")
    fresh.post(f"/v1/sandboxes/{box}/start")
    equal(fresh.ok(box, "echo x > /var/tmp/x; cat /var/tmp/x"), "x\n")
    equal(diff(fresh, box, snap), [("added", "/var/tmp/x")])


STAT_TOP = "stat -c '%a %u %g' /p"


@require("root")
def test_the_top_of_a_mount_stays_as_it_was_left(fresh, tmp):
    body = {"mounts": [{"source": project(tmp), "target": "/p", "mode": "cow"}]}
    box = fresh.post("/v1/sandboxes", body)["id"]
    equal(fresh.ok(box, STAT_TOP), "751 1234 4321\n")
    fresh.ok(box, "chown 7:8 /p; chmod 2700 /p; chmod 711 /")
    snap = fresh.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
    fork = fresh.post(f"/v1/snapshots/{snap}/fork", {})["sandboxes"][0]["id"]
    seen = {"/": fresh.ok(fork, "stat -c %a /"), "fork": fresh.ok(fork, STAT_TOP)}
    fresh.ok(box, "chmod 700 /p")
    fresh.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": snap})
    seen["rewind"] = fresh.ok(box, STAT_TOP)
    for verbs in (("stop", "start"), ("suspend", "resume")):
        for verb in verbs:
            fresh.post(f"/v1/sandboxes/{box}/{verb}")
        seen[verbs[1]] = fresh.ok(box, STAT_TOP)
    equal(seen, {"/": "711\n", **dict.fromkeys(("fork", "rewind", "start", "resume"), "2700 7 8\n")})
