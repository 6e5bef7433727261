# SPDX-License-Identifier: Apache-2.0
"""`cay diff` and `cay cp` of a sandbox beside what moves or removes its files: right, or an error."""

import http.client
import io
import os
import signal
import tarfile
import threading

from lib import cay, leaks
from lib.case import equal, raises, require

FILES = 40
BYTES = 256 << 10


def held_jobs(instance):
    processes = leaks.processes()
    return [pid for pid in instance.own_processes() if leaks.read(f"/proc/{pid}/cmdline").startswith("cay-keeper\0job\0") and processes.get(pid, (0, "", ""))[1] == "T"]


def hold_one(instance):
    cay.wait_until(lambda: held_jobs(instance), 60, "the job is held")
    return held_jobs(instance)[0]


class Asked(threading.Thread):
    """A request in a thread of its own: .answer is what came, or the error."""

    def __init__(self, ask):
        super().__init__()
        self.ask, self.answer = ask, None
        self.start()

    def run(self):
        try:
            self.answer = self.ask()
        except cay.ApiError as error:
            self.answer = error

    def waits(self):
        """Not for what the others do; only a server that answers too early is done by then."""
        self.join(2)
        return self.is_alive()

    def result(self):
        self.join(120)
        return self.answer


def stopped(instance, name, files=1):
    """A stopped sandbox with some files."""
    instance.post("/v1/sandboxes", {"name": name})
    instance.ok(name, f"mkdir /var/tmp/d; for i in $(seq {files}); do head -c {BYTES} /dev/urandom > /var/tmp/d/f$i; done; echo kept > /var/tmp/kept")
    instance.post(f"/v1/sandboxes/{name}/stop")


def diff(instance, name):
    return lambda: sorted(c["path"] for c in instance.get(f"/v1/diff?a={name}")["changes"])


def kept(instance, name):
    return lambda: instance.raw("GET", f"/v1/sandboxes/{name}/files?path=/var/tmp/kept&format=file")[::2]


CHANGES = ["/var/tmp/d", "/var/tmp/d/f1", "/var/tmp/kept"]


@require("root")
def test_a_snapshot_under_way_shows_no_other_files(tmp):
    """Its files are in neither place for a moment, and the server does not know yet where they went."""
    for point in ("store.seal.taken", "store.commit.after_rename", "snapshot.commit.before"):
        instance = cay.Instance(tmp)
        try:
            instance.start()
            stopped(instance, "box")
            instance.stop()
            instance.start(CAY_FAULT=point + ("=error" if point.startswith("snapshot") else "=hold"))
            if point.startswith("snapshot"):  # it comes to nothing, and they are put back
                equal(raises(cay.ApiError, instance.post, "/v1/sandboxes/box/snapshots", {}).code, "internal")
                equal((diff(instance, "box")(), kept(instance, "box")()), (CHANGES, (200, b"kept\n")))
                continue
            snapshot = Asked(lambda i=instance: i.post("/v1/sandboxes/box/snapshots", {}))
            held = hold_one(instance)
            looking = [Asked(diff(instance, "box")), Asked(kept(instance, "box"))]
            waits = [one.waits() for one in looking]
            os.kill(held, signal.SIGCONT)
            equal(([one.result() for one in looking], waits), ([CHANGES, (200, b"kept\n")], [True, True]), point)
            equal(snapshot.result()["files_only"], True)
        finally:
            instance.close()


@require("root")
def test_a_snapshot_waits_for_who_is_about_to_look(tmp):
    instance = cay.Instance(tmp, env={"CAY_FAULT": "store.diff.begun" + "=hold"})
    try:
        instance.start()
        stopped(instance, "box")
        looking = Asked(diff(instance, "box"))
        held = hold_one(instance)
        snapshot = Asked(lambda: instance.post("/v1/sandboxes/box/snapshots", {}))
        waits = snapshot.waits()
        os.kill(held, signal.SIGCONT)
        equal((looking.result(), waits), (CHANGES, True))
        equal(snapshot.result()["files_only"], True)
    finally:
        instance.close()


def slow_tar(instance, name):
    """The answer to a request for many files, of which the first have come."""
    client = cay.UnixConnection(instance.socket, 60)
    client.request("GET", f"/v1/sandboxes/{name}/files?path=/var/tmp/d&format=tar")
    answer = client.getresponse()
    equal(answer.status, 200)
    return client, answer, answer.read(512)


def the_rest(client, answer, begun):
    """Names and sizes of the archive, or None where it breaks off."""
    try:
        whole = begun + answer.read()
    except (http.client.IncompleteRead, ConnectionError):
        return None
    finally:
        client.close()
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        return {m.name: m.size for m in archive if m.isfile()}


@require("root")
def test_what_is_removed_while_it_is_read_is_not_read_in_part(tmp):
    """The reader is slow: nobody waits for him, and what is gone is not left out as if it had never been there."""
    for kind in ("directory", "btrfs"):
        instance = cay.Instance(tmp)
        try:
            if kind == "directory":
                os.makedirs(os.path.join(instance.state, "pool/layers"))
            instance.start()
            whole = {f"d/f{i + 1}": BYTES for i in range(FILES)}
            for way in ("rm", "rewind"):
                stopped(instance, way, FILES)
                reading = slow_tar(instance, way)
                live = os.path.join(instance.state, "pool/live", instance.get(f"/v1/sandboxes/{way}")["id"])
                if way == "rm":
                    instance.remove(way)
                else:
                    first = instance.post(f"/v1/sandboxes/{way}/snapshots", {})["id"]
                    instance.post(f"/v1/sandboxes/{way}/rewind", {"snapshot": first})
                cay.wait_until(lambda at=live: not os.path.exists(at), 60, "its files go")
                equal(the_rest(*reading) in (None, whole), True, f"{kind} {way}")
            reading = slow_tar(instance, "rewind")  # what is in a layer
            instance.remove("rewind")
            instance.post("/v1/prune", {"snapshots": True})
            equal(the_rest(*reading), whole, kind)
        finally:
            instance.close()
