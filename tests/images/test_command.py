# SPDX-License-Identifier: Apache-2.0
"""`cay image import` and sandboxes that start from what it made."""

import os
import shutil
import subprocess

from images.importing import Layout, member, tar, write
from lib import cay
from lib.case import contains, equal, raises, require


def small_root(tmp, accounts=True):
    """A root file system with a shell and a few programs of this machine, as a tar."""
    root = os.path.join(tmp, "root")
    for name in ("bin", "etc", "tmp", "proc", "dev", "usr"):
        os.makedirs(os.path.join(root, name))
    for program in ("dash", "cat", "ls", "stat", "rm"):
        path = os.path.realpath(shutil.which(program))
        shutil.copy(path, os.path.join(root, "bin", "sh" if program == "dash" else program))
        listing = subprocess.run(["ldd", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        for library in [word for word in listing.split() if word.startswith("/")]:
            os.makedirs(os.path.dirname(root + library), exist_ok=True)
            shutil.copy(os.path.realpath(library), root + library)
    os.chmod(os.path.join(root, "tmp"), 0o1777)
    if accounts:
        write(os.path.join(root, "etc"), "passwd", b"root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    return subprocess.run(["tar", "-C", root, "--owner=0", "--group=0", "-cf", "-", "."], stdout=subprocess.PIPE, check=True).stdout


def test_an_image_without_accounts_runs_as_root(instance, tmp):
    """What a single static program comes in: no /etc at all. Asked for by name or number, uid 0 is there; other names are not."""
    path = write(tmp, "root.tar", small_root(tmp, accounts=False))
    instance.cay("image", "import", path, "bare")
    for user in ((), ("--user", "root"), ("--user", "0"), ("--user", "root:root"), ("--user", "0:0")):
        done = instance.cay("run", "bare", "--rm", "--no-cwd", *user, "--", "sh", "-c", "echo x > /new; stat -c '%u %g' /new; echo $HOME")
        equal(done.stdout, "0 0\n/root\n", str(user))
    equal(instance.cay("run", "bare", "--rm", "--no-cwd", "--user", "1000", "--", "sh", "-c", "echo x > /tmp/new; stat -c '%u %g' /tmp/new").stdout, "1000 1000\n")
    contains(instance.cay("run", "bare", "--rm", "--no-cwd", "--user", "nobody", "--", "true", want=125).stderr, "user 'nobody' does not exist")


def test_what_comes_by_standard_input_is_called_so(instance):
    """By the image, and by errors: not as its spool is, which is gone by then."""
    image = instance.json("image", "import", "-", "piped", stdin=tar(member("etc/motd", data=b"x")).decode("latin-1"))
    equal(image["source"], "standard input")
    contains(instance.cay("image", "import", "-", stdin="junk", want=125).stderr, "import 'standard input': ")


def test_the_beginning_of_an_id_is_a_name_like_others(instance, tmp):
    """It leads to that image only while nothing has it for a name."""
    path = write(tmp, "root.tar", tar(member("etc/motd", data=b"x")))
    first = instance.post("/v1/images", {"path": path})["id"]
    second = instance.post("/v1/images", {"path": path, "name": first[:4]})["id"]
    equal(instance.get(f"/v1/images/{first[:5]}")["id"], first)
    equal(instance.get(f"/v1/images/{first[:4]}")["id"], second)
    for name in (first, first[:4]):
        equal(raises(cay.ApiError, instance.post, "/v1/images", {"path": path, "name": name}).code, "exists")
    instance.cay("image", "rm", first[:4], first)


ASKER = """import os, socket, sys
os.setgroups([int(group) for group in sys.argv[4].split()])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[2])
    s.sendall(b'POST /v1/images HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\nContent-Type: application/json\\r\\nContent-Length: %d\\r\\n\\r\\n%b'
              % (len(sys.argv[3]), sys.argv[3].encode()))
    print(s.makefile('rb').read().decode())
"""


@require("root")
def test_what_a_group_of_the_caller_may_read_is_imported(instance, tmp):
    """The server's own user may ask it too, and is not root."""
    path = write(tmp, "root.tar", small_root(tmp))
    os.chown(path, 0, 23456)
    os.chmod(path, 0o640)
    with open(f"/proc/{instance.process.pid}/status", encoding="utf-8") as f:
        uid = next(line.split()[1] for line in f if line.startswith("Uid:"))
    for groups, want in (("", "you may not read"), ("5 23456", '"kind":"rootfs"')):
        body = '{"path":"%s","name":"of-a-group"}' % path
        done = subprocess.run(["/usr/bin/python3", "-c", ASKER, uid, instance.socket, body, groups],
                              stdout=subprocess.PIPE, text=True, check=True)
        contains(done.stdout, want)
    instance.cay("image", "rm", "of-a-group")


def test_import_run_remove(instance, tmp):
    base = small_root(tmp)
    upper = tar(member("etc/motd", data=b"hello from the image\n"), member("bin/.wh.rm"), member("etc/mine", data=b"x", uid=1000, gid=1001, mode=0o640))
    path = Layout().image([base, upper]).to_dir(os.path.join(tmp, "layout"))
    image = instance.json("image", "import", path, "example.org/tiny:1")
    equal((image["name"], len(image["id"])), ("example.org/tiny:1", 20))
    contains(instance.cay("image", "ls").stdout, "example.org/tiny:1")

    def inside(*argv, **more):
        return instance.cay("run", "example.org/tiny:1", "--rm", "--no-cwd", "--", *argv, **more)
    equal(inside("cat", "/etc/motd").stdout, "hello from the image\n")
    equal(inside("stat", "-c", "%u %g %a", "/etc/mine", "/").stdout, "1000 1001 640\n0 0 755\n")
    inside("rm", "/etc/motd", want=127)
    # A sandbox changes its own copy and never the image.
    equal(inside("sh", "-c", "echo changed > /etc/motd; cat /etc/motd").stdout, "changed\n")
    equal(inside("cat", "/etc/motd").stdout, "hello from the image\n")
    cay.wait_until(lambda: instance.cay("image", "rm", "example.org/tiny:1", check=False).returncode == 0, 10, "an image that nothing needs goes away")
    assert "tiny" not in instance.cay("image", "ls").stdout


def test_limits_of_an_import_are_raised_and_lowered(instance, tmp):
    """What a refusal says is to be raised can be raised, by the API and by the command."""
    path = write(tmp, "a.tar", tar(member("a", data=b"x" * 3000), member("b", data=b"x" * 3000)))
    for flag, low, high, what, member_name in (("--limit-bytes", "5000", "1M", "more", "limit_bytes"), ("--limit-entries", "1", "100", "more than 1 entries", "limit_entries")):
        said = instance.cay("image", "import", flag, low, path, "limited", want=125).stderr
        contains(said, what)
        contains(said, f"raise {member_name} of the import (cay image import {flag})")
        instance.cay("image", "import", flag, high, path, "limited")
        instance.cay("image", "rm", "limited")
        error = raises(cay.ApiError, instance.post, "/v1/images", {"path": path, member_name: int(low)})
        equal((error.status, error.code), (422, "hostile_archive"))
    many = write(tmp, "many.tar", tar(*[member(f"f{i}") for i in range(3000)]))
    contains(instance.cay("image", "import", "--limit-time", "1ms", many, want=124).stderr, "raise timeout_ms of the import (cay image import --limit-time)")
    instance.cay("image", "import", "--limit-entries", "0", path, want=64)


@require("root", "userns", "newuidmap")
def test_as_an_ordinary_user(tmp):
    """Owners inside are the image's; outside they are the user's subordinate ids."""
    path = write(tmp, "root.tar", small_root(tmp))
    os.chmod(tmp, 0o755)
    upper = write(tmp, "mine.tar", tar(member("etc/mine", uid=1000, gid=1001, mode=0o640)))
    with cay.ThrowawayUser() as user:
        instance = cay.Instance(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1"})
        try:
            instance.start()
            instance.cay("image", "import", path, "tiny")
            out = instance.cay("run", "tiny", "--rm", "--no-cwd", "--", "sh", "-c", "echo x > /etc/new; stat -c %u:%g /etc/passwd /etc/new").stdout
            equal(out, "0:0\n0:0\n")
            image = instance.json("image", "import", upper, "mine")
            found = os.stat(os.path.join(instance.state, "pool/images", image["id"], "rootfs/etc/mine"))
            assert found.st_uid >= 100000 and found.st_gid == found.st_uid + 1, (found.st_uid, found.st_gid)
            os.chmod(path, 0o600)
            error = raises(cay.ApiError, instance.post, "/v1/images", {"path": path})
            assert error.code in ("denied", "internal"), error.code
        finally:
            instance.close()


def test_refusals_have_codes(instance, tmp):
    def refused(data, name="example.org/bad:1"):
        path = write(tmp, "archive", data)
        return raises(cay.ApiError, instance.post, "/v1/images", {"path": path, "name": name})
    error = refused(tar(member("../../x", data=b"x")))
    equal((error.status, error.code), (422, "hostile_archive"))
    error = refused(b"this is no archive" * 100)
    equal((error.status, error.code), (422, "corrupt"))
    error = refused(tar(member("f")), name="No Name")
    equal((error.status, error.code), (400, "invalid"))
    error = raises(cay.ApiError, instance.post, "/v1/images", {"path": os.path.join(tmp, "missing")})
    equal((error.status, error.code), (404, "not_found"))
    assert all("bad" not in (i["name"] or "") for i in instance.get("/v1/images")["images"])
