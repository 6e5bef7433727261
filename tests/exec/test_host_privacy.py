# SPDX-License-Identifier: Apache-2.0
"""The host image shows what an ordinary user of the host may read, and nothing more, whenever it came there: the kernel refuses root inside what others may not read."""

import contextlib
import io
import os
import shutil
import tarfile

from lib import cay
from lib.case import Skip, contains, equal, raises, require

SECRET = "not for others"
# each tries to get at the text of $1 in another way; what it finds it prints
WAYS = """
cat "$1"
dd if="$1"
cp "$1" /tmp/copied && cat /tmp/copied
mv "$1" /tmp/moved && cat /tmp/moved
ln "$1" /tmp/linked && cat /tmp/linked
chmod 0666 "$1" && cat "$1"
chown 1000 "$1" && setpriv --reuid 1000 cat "$1"
echo more >> "$1" && cat "$1"
tar -cf - "$1"
python3 - "$1" <<'END'
import mmap, os, sys
for flags in (os.O_RDONLY, os.O_RDWR, os.O_RDONLY | os.O_NOFOLLOW | os.O_NOATIME):
    try:
        fd = os.open(sys.argv[1], flags)
        print(os.read(fd, 100), mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ)[:])
    except OSError as error:
        print(error.strerror)
try:
    print(open("/proc/self/fd/%d" % os.open(sys.argv[1], os.O_PATH)).read())
except OSError as error:
    print(error.strerror)
END
true
"""


@contextlib.contextmanager
def place(tmp, parent="/etc"):
    """A directory of the host's that all may read. (tests/store/test_mask.py knows the name and where it may be.)"""
    path = os.path.join(parent, "cay-test-later-" + os.path.basename(tmp))
    os.mkdir(path)
    os.chmod(path, 0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def write(path, text, mode):
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="ascii") as f:
        f.write(text)
    os.chmod(path, mode)


def tried(instance, box, path):
    run = instance.exec(box, "sh", "-c", WAYS, "sh", path)
    instance.wait(box, run, 60)
    return instance.output(box, run).decode(errors="replace")


@require("root")
def test_what_becomes_private_later_is_not_read(fresh, tmp):
    """In the sandboxes that run, in those that were prepared, in forks, and by the API."""
    with place(tmp) as top:
        write(top + "/loses", SECRET, 0o644)
        old = fresh.post("/v1/sandboxes", {})["id"]
        equal(fresh.ok(old, f"cat {top}/loses"), SECRET)
        write(top + "/secret", SECRET, 0o600)
        write(top + "/group", SECRET, 0o640)
        write(top + "/open", SECRET, 0o644)
        os.mkdir(top + "/dir", 0o700)
        write(top + "/dir/inside", SECRET, 0o644)
        os.chmod(top + "/loses", 0o600)
        new = fresh.post("/v1/sandboxes", {})["id"]
        [fork] = fresh.post(f"/v1/sandboxes/{old}/fork", {"live": False})["sandboxes"]
        for box in (old, new, fork["id"]):
            for name in ("secret", "group", "loses", "dir/inside"):
                found = tried(fresh, box, f"{top}/{name}")
                contains(found, "ermission denied")
                assert SECRET not in found, f"{name}: {found}"
            equal(fresh.ok(box, f"cat {top}/open"), SECRET)
        equal(raises(cay.ApiError, fresh.get, f"/v1/sandboxes/{new}/files?path={top}/group").status >= 400, True)
        # what a tree cannot hold keeps the rest of it from nobody
        status, _, tree = fresh.raw("GET", f"/v1/sandboxes/{new}/files?path={top}&format=tar")
        with tarfile.open(fileobj=io.BytesIO(tree)) as tar:
            equal((status, sorted(m.name.split("/", 1)[-1] for m in tar if "/" in m.name)), (200, ["open"]))
        # it may be removed and made anew inside, as a user's own
        equal(fresh.ok(old, f"rm {top}/group; echo mine > {top}/group; cat {top}/group"), "mine\n")
        equal([(c["path"], c["kind"]) for c in fresh.get(f"/v1/diff?a={new}")["changes"] if c["path"].startswith(top)], [])


@require("root")
def test_what_others_may_not_execute_is_executed_as_on_the_host(instance):
    """By root, not by others; what others may not read stays unread all the same."""
    helper = "/usr/lib/dbus-1.0/dbus-daemon-launch-helper"
    if not os.path.exists(helper) or os.stat(helper).st_mode & 0o7777 != 0o4754:
        raise Skip("there is no such helper of dbus")
    with instance.sandbox() as box:
        run = instance.exec(box, helper)  # it wants the name of a service
        equal(instance.wait(box, run)["status"], "exited")
        contains(instance.output(box, run).decode(), "service.to.activate")
        equal(raises(cay.ApiError, instance.exec, box, helper, user="nobody").code, "command_not_executable")


@require("root")
def test_the_next_server_hides_it(fresh, tmp):
    with place(tmp) as top:
        write(top + "/secret", SECRET, 0o600)
        fresh.stop()
        fresh.start()
        box = fresh.post("/v1/sandboxes", {})["id"]
        equal(fresh.ok(box, f"ls {top}"), "")


@require("root")
def test_programs_write_where_only_some_may_look(fresh, tmp):
    """Directories of logs that others may not list are there, empty, with what is below them, and can be written to."""
    with place(tmp, "/var/log") as top:
        os.makedirs(top + "/daemon/old")
        write(top + "/daemon/log", SECRET, 0o644)
        os.chmod(top + "/daemon", 0o2750)
        os.chown(top + "/daemon", 1, 4)
        fresh.stop()
        fresh.start()
        box = fresh.post("/v1/sandboxes", {})["id"]
        equal(fresh.ok(box, f"ls {top}/daemon; echo new > {top}/daemon/old/log; cat {top}/daemon/old/log; stat -c '%a %u:%g' {top}/daemon"), "old\nnew\n2750 1:4\n")
