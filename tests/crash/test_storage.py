# SPDX-License-Identifier: Apache-2.0
"""A server is killed while its storage job is at work: the next server's storage job waits for that one, and says so when it does not end.

The race is made certain by a fault point that stops the old job while it holds the lock of the state directory.
"""

import fcntl
import os
import signal
import subprocess
import threading

from lib import cay, job, leaks
from lib.case import contains, equal, raises, require

TIMEOUT = 120
WAITS = True
HELD = "store.storage.locked=hold"
MOVED = "store.remove.renamed"


def is_stopped(pid):
    return leaks.read(f"/proc/{pid}/stat").rsplit(")", 1)[-1].split()[0] == "T"


def jobs(instance):
    """Pids of this instance's jobs."""
    return [pid for pid in instance.own_processes() if b"\0job\0" in leaks.read(f"/proc/{pid}/cmdline").encode()]


def waits_for_lock(directory):
    """Does any process wait for the lock of @directory? /proc/locks marks those with an arrow."""
    wanted = f":{os.stat(directory).st_ino} "
    return any("->" in line and "FLOCK" in line and wanted in line for line in leaks.read("/proc/locks").splitlines())


def mounts_of(instance):
    return [m for m in leaks.mounts(instance.dir) if "/pool (" in m]


def one_that_is_held(instance):
    """Pid of the job that a fault point has stopped."""
    cay.wait_until(lambda: any(is_stopped(pid) for pid in jobs(instance)), 30, "a job is held")
    return next(pid for pid in jobs(instance) if is_stopped(pid))


def leave_held_job(instance):
    """Start a server whose storage job stops while it holds the lock, and kill the server. Returns the pid of the job."""
    with open(instance.log, "ab") as log:
        instance.process = instance.popen([os.path.join(instance.programs, "cayd"), "--foreground"], stdin=subprocess.DEVNULL, stdout=log,
                                          stderr=log, env=instance.environment(CAY_FAULT=HELD), start_new_session=True)
    held = one_that_is_held(instance)
    instance.kill()
    return held


def with_an_old_sandbox(instance):
    """An instance that ended properly and has a stopped sandbox with a file and a snapshot of it."""
    instance.start()
    instance.post("/v1/sandboxes", {"name": "old"})
    instance.ok("old", "echo kept > /var/tmp/kept")
    instance.post("/v1/sandboxes/old/snapshots", {"name": "snap"})
    instance.post("/v1/sandboxes/old/stop")
    instance.stop()


@require("root")
def test_the_next_server_waits_for_a_storage_job_that_outlives_the_last_one(tmp):
    instance = cay.Instance(tmp)
    try:
        with_an_old_sandbox(instance)
        held = leave_held_job(instance)
        starting = threading.Thread(target=instance.start)
        starting.start()
        cay.wait_until(lambda: waits_for_lock(instance.state), 30, "the new storage job waits for the old one")
        equal(mounts_of(instance), [], "the pool was mounted under the hands of the other job")
        os.kill(held, signal.SIGCONT)
        starting.join(30)
        instance.post("/v1/sandboxes/old/start")
        equal(instance.ok("old", "cat /var/tmp/kept"), "kept\n")
        fork = instance.post("/v1/snapshots/snap/fork", {})["sandboxes"][0]["id"]
        equal(instance.ok(fork, "cat /var/tmp/kept"), "kept\n")
        equal(len(mounts_of(instance)), 1)
        assert "ERROR" not in leaks.read(instance.log).upper(), instance.log_tail()
    finally:
        instance.close()


@require("root")
def test_a_storage_job_that_never_ends_is_an_error_with_a_name_and_a_way_out(tmp):
    instance = cay.Instance(tmp)
    try:
        with_an_old_sandbox(instance)
        held = leave_held_job(instance)
        try:
            instance.start()  # answers when it has given up waiting
            for path in ("/v1/sandboxes", "/v1/sandboxes/old/start"):
                error = raises(cay.ApiError, instance.post, path)
                equal(error.code, "busy")
                contains(error.message, "another job is still at work")
            equal(raises(cay.ApiError, instance.post, "/v1/storage", {}).code, "busy")
        finally:
            os.kill(held, signal.SIGKILL)
        instance.post("/v1/storage", {})
        instance.post("/v1/sandboxes/old/start")
        equal(instance.ok("old", "cat /var/tmp/kept"), "kept\n")
    finally:
        instance.close()


@require("root")
def test_jobs_take_turns_and_end_with_their_peer(tmp):
    """On jobs alone: what makes or removes something holds the lock together with others, storage and recovery alone."""
    state = os.path.join(tmp, "state")
    os.mkdir(state)
    job.run(state, "storage", op="init", kind="directory")
    first = job.Job(state, "storage", env={"CAY_FAULT": HELD}, op="init")
    cay.wait_until(lambda: is_stopped(first.process.pid), 30, "the first job holds the lock")
    error = raises(job.JobError, job.run, state, "storage", op="init", wait_ms=300)
    equal(error.code, "busy")
    contains(error.hint, "/proc/locks")
    equal(raises(job.JobError, job.run, state, "storage", op="unmount").code, "busy")
    equal(job.run(state, "storage", op="info")["kind"], "directory")
    waiting = job.Job(state, "remove", sandboxes=[])
    cay.wait_until(lambda: waits_for_lock(state), 30, "a job that removes waits")
    first.socket.close()
    os.kill(first.process.pid, signal.SIGCONT)
    equal(first.process.wait(30), 1, "a job whose peer is gone ends")
    equal(waiting.result()["removed"], 0)


@require("root")
def test_a_server_that_ends_unmounts_behind_who_still_has_the_lock(tmp):
    """What is still done behind an answer is waited for: nothing of an instance that has ended stays mounted."""
    log = cay.fault_log(tmp)
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT_LOG=log)
        equal(len(mounts_of(instance)), 1)
        state = os.open(instance.state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(state, fcntl.LOCK_SH)
            instance.process.terminate()
            cay.wait_until(lambda: "server.unmount.busy" in leaks.read(log).split() or not instance.alive(), 60, "it meets the lock")
            equal((instance.alive(), len(mounts_of(instance))), (True, 1))
        finally:
            os.close(state)
        equal(instance.process.wait(60), 0)
        equal(mounts_of(instance), [])
    finally:
        instance.close()


@require("root")
def test_files_that_a_killed_job_did_not_delete_go_without_a_new_start(tmp):
    """It had moved them aside, and deleted none."""
    instance = cay.Instance(tmp)
    pool = os.path.join(instance.state, "pool")
    try:
        os.makedirs(os.path.join(pool, "layers"))  # no btrfs: there they go at once
        instance.start(CAY_FAULT=MOVED + "=hold")
        boxes = [instance.post("/v1/sandboxes", {})["id"] for _ in range(2)]
        for box in boxes:
            instance.ok(box, "echo x > /var/tmp/file")
            instance.post(f"/v1/sandboxes/{box}/stop")
            instance.call("DELETE", f"/v1/sandboxes/{box}")
        held = one_that_is_held(instance)
        os.kill(held, signal.SIGKILL)

        def gone():
            for pid in jobs(instance):
                if pid != held and is_stopped(pid):
                    os.kill(pid, signal.SIGCONT)
            return os.listdir(os.path.join(pool, "trash")) == [] and not set(boxes) & set(os.listdir(os.path.join(pool, "live")))
        cay.wait_until(gone, 60, "another job deletes them")
        contains(leaks.read(instance.log), "it is tried again")
    finally:
        instance.close()


@require("root")
def test_what_a_rewind_moved_aside_goes_without_a_new_start(tmp):
    """Where moving it aside and deleting it are two things."""
    instance = cay.Instance(tmp)
    trash = os.path.join(instance.state, "pool", "trash")
    try:
        os.makedirs(os.path.join(instance.state, "pool", "layers"))
        instance.start()
        box = instance.post("/v1/sandboxes", {})["id"]
        first = instance.post(f"/v1/sandboxes/{box}/snapshots", {"files_only": True})["id"]
        for _ in range(3):
            instance.ok(box, "echo x > /var/tmp/file")
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": first})
            equal(instance.ok(box, "ls /var/tmp"), "")
            cay.wait_until(lambda: os.listdir(trash) == [], 60, "what lay there is deleted", trash)
    finally:
        instance.close()


@require("root")
def test_nobody_looks_before_the_last_server_is_seen_to(tmp):
    """The storage comes late, and while the seal that a server left half done is not taken back, its sandbox has no files: requests wait."""
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT="store.seal.taken=hold")
        box = instance.post("/v1/sandboxes", {})["id"]
        instance.ok(box, "echo kept > /var/tmp/kept")
        instance.post(f"/v1/sandboxes/{box}/stop")
        sealing = threading.Thread(target=raises, args=(Exception, instance.post, f"/v1/sandboxes/{box}/snapshots", {}))
        sealing.start()
        held = one_that_is_held(instance)
        instance.kill()
        os.kill(held, signal.SIGKILL)
        sealing.join(30)
        state = os.open(instance.state, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(state, fcntl.LOCK_SH)
            instance.start(CAY_FAULT="store.recover.begun=hold")  # answers when it has given up waiting
        finally:
            os.close(state)
        changes = []
        coming = threading.Thread(target=instance.post, args=("/v1/storage", {}))
        coming.start()
        held = one_that_is_held(instance)
        looking = threading.Thread(target=lambda: changes.extend(instance.get(f"/v1/diff?a={box}")["changes"]))
        looking.start()
        looking.join(3)  # time for a server that answers too early
        waits = looking.is_alive()
        os.kill(held, signal.SIGCONT)
        assert waits, changes
        for thread in (coming, looking):
            thread.join(60)
        equal([(c["kind"], c["path"]) for c in changes], [("added", "/var/tmp/kept")])
        instance.post(f"/v1/sandboxes/{box}/start")
        equal(instance.ok(box, "cat /var/tmp/kept"), "kept\n")
    finally:
        instance.close()
