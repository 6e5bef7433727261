# SPDX-License-Identifier: Apache-2.0
"""Files in and out of a sandbox's root, with links that try to lead out of it, FIFOs and devices, limits, and tar both ways."""

import io
import os
import signal
import stat
import subprocess
import tarfile
import time

from lib import job
from lib.case import contains, equal, raises, require
from lib.pool import Pool, same_trees

WAITER = """import os,sys
os.chroot(sys.argv[1])
os.chdir('/')
print('in',flush=True)
sys.stdin.read()
"""


class Inside:
    """A process with a root of its own, as a sandbox's init has."""

    def __init__(self, tmp):
        self.root, self.outside = os.path.join(tmp, "root"), os.path.join(tmp, "outside")
        os.makedirs(self.root + "/dir/sub")
        os.mkdir(self.outside)
        with open(self.outside + "/secret", "w") as f:
            f.write("outside")
        with open(self.root + "/dir/file", "w") as f:
            f.write("hello\n")
        os.chmod(self.root + "/dir/file", 0o640)
        os.symlink("dir/file", self.root + "/link")
        os.symlink("/dir", self.root + "/absolute")
        os.symlink(self.outside, self.root + "/escape")
        os.symlink("../../../.." + self.outside, self.root + "/dir/escape")
        os.symlink("loop", self.root + "/loop")
        os.mkfifo(self.root + "/fifo")
        os.mknod(self.root + "/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        self.child = subprocess.Popen(["/usr/bin/python3", "-c", WAITER, self.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.child.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.child.send_signal(signal.SIGKILL)
        self.child.communicate()


def get(pool, path, place, **members):
    run = pool.job("get", path=path, **place, **members)
    reply = run.result()
    equal(reply["bytes"], len(run.output))
    return run.output, run.objects[0]


@require("root")
def test_get_file(tmp):
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        for place in ({"pid": box.child.pid}, {"stack": [box.root]}):
            for path in ("/dir/file", "/link", "/absolute/file", "/dir/sub/../file", "//dir/./file", "/../../dir/file", "/absolute/../link"):
                equal(get(pool, path, place), (b"hello\n", {"type": "file", "mode": 0o640, "size": 6}), f"{path} {place}")
            for path, code in (("/escape/secret", "not_found"), ("/dir/escape/secret", "not_found"), ("/none", "not_found"), ("/loop", "invalid"),
                               ("/fifo", "invalid"), ("/null", "invalid"), ("/dir", "invalid"), ("/", "invalid"), ("dir/file", "invalid"),
                               ("/dir/file/x", "invalid"), ("/" + "x" * 300, "invalid")):
                equal(raises(job.JobError, get, pool, path, place).code, code, f"{path} {place}")
            equal(raises(job.JobError, get, pool, "/dir/file", place, max_bytes=5).code, "too_large")


@require("root")
def test_get_from_layers(tmp):
    with Pool(tmp, "directory") as pool:
        lower = tmp + "/lower"
        os.makedirs(lower + "/etc")
        for name in ("a", "b", "c"):
            with open(f"{lower}/etc/{name}", "w") as f:
                f.write("lower " + name)
        sandbox = pool.live()
        at = pool.overlay(tmp + "/at", [lower], sandbox)
        with open(at + "/etc/a", "w") as f:
            f.write("upper a")
        os.unlink(at + "/etc/b")
        os.rename(at + "/etc", at + "/moved")
        os.symlink("moved", at + "/etc")
        stack = {"stack": [pool.upper(sandbox), lower]}
        equal(get(pool, "/etc/a", stack)[0], b"upper a")
        equal(get(pool, "/moved/c", stack)[0], b"lower c")
        equal(raises(job.JobError, get, pool, "/etc/b", stack).code, "not_found")


@require("root")
def test_tar_there_and_back(tmp):
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        top = box.root + "/dir"
        long = "long-" + "x" * 180
        os.makedirs(f"{top}/{long}/{long}")
        with open(f"{top}/{long}/{long}/é file", "wb") as f:
            f.write(os.urandom(300000))
        os.symlink("y" * 300, top + "/longlink")
        os.link(top + "/file", top + "/twin")
        os.setxattr(top + "/file", "user.mark", b"\0=\n1")
        os.mkfifo(top + "/pipe")
        os.utime(top + "/file", (1, 1000000000))
        with open(os.fsencode(top) + b"/bad\xff", "w") as f:
            f.write("")
        os.unlink(top + "/escape")
        place = {"pid": box.child.pid}
        data, head = get(pool, "/dir", place, format="tar")
        equal(head, {"type": "tar"})
        there = tmp + "/there"
        os.mkdir(there)
        subprocess.run(["tar", "-x", "-p", "--xattrs", "--xattrs-include=*", "-C", there], input=data, check=True)
        same_trees(top, there + "/dir")
        equal(os.stat(there + "/dir/file").st_ino, os.stat(there + "/dir/twin").st_ino)
        equal(os.stat(there + "/dir/file").st_mtime, 1000000000)
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            equal(len(t.getnames()) > 8, True)
        pool.job("put", path="/dir/sub", format="tar", pid=box.child.pid, uid_base=0, body=data).result()
        os.removexattr(top + "/file", "user.mark")  # attributes are not put
        os.rename(top + "/sub/dir", box.root + "/copy")
        os.removexattr(there + "/dir/file", "user.mark")
        same_trees(there + "/dir", box.root + "/copy")


@require("root")
def test_put_file(tmp):
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        def put(path, body=b"new\n", **members):
            return pool.job("put", path=path, pid=box.child.pid, uid_base=1000, body=body, **members).result()
        os.chown(box.root, 1000, 1000)
        os.chown(box.root + "/dir", 1000, 1000)
        put("/dir/new", mode=0o755)
        st = os.stat(box.root + "/dir/new")
        equal((stat.S_IMODE(st.st_mode), st.st_uid, st.st_gid), (0o755, 1000, 1000))
        put("/absolute/file", bytes(3 << 20))
        equal(os.stat(box.root + "/dir/file").st_size, 3 << 20)
        put("/link")
        equal(os.path.islink(box.root + "/link"), False, "a link is replaced, not followed")
        put("/fifo")
        equal(stat.S_ISREG(os.stat(box.root + "/fifo").st_mode), True)
        for path, code in (("/escape/x", "not_found"), ("/dir/escape/x", "not_found"), ("/dir", "exists"), ("/none/x", "not_found"),
                           ("/dir/", "invalid"), ("/dir/..", "invalid"), ("x", "invalid")):
            equal(raises(job.JobError, put, path).code, code, path)
        equal(raises(job.JobError, put, "/dir/big", max_bytes=3).code, "too_large")
        # a body that breaks off
        run = pool.job("put", path="/dir/half", pid=box.child.pid, uid_base=1000)
        run.socket.sendall(job.frame(job.STDIN, b"half"))
        run.socket.shutdown(1)
        raises(job.JobError, run.result)
        equal(sorted(os.listdir(box.root + "/dir")), ["escape", "file", "new", "sub"])
        equal(os.listdir(box.outside), ["secret"])


@require("root")
def test_hostile_tar(tmp):
    def archive(*entries):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as t:
            for name, kind, link in entries:
                e = tarfile.TarInfo(name)
                e.type, e.linkname = kind, link
                t.addfile(e, io.BytesIO(b""))
        return data.getvalue()
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        for entries, code in (([("../x", tarfile.REGTYPE, "")], "hostile_archive"), ([("/x", tarfile.REGTYPE, "")], "hostile_archive"),
                              ([("null", tarfile.CHRTYPE, "")], "hostile_archive"),
                              ([("l", tarfile.SYMTYPE, box.outside), ("l/x", tarfile.REGTYPE, "")], "invalid"),
                              ([("l", tarfile.SYMTYPE, ".."), ("l/x", tarfile.REGTYPE, "")], "invalid"),
                              ([("h", tarfile.LNKTYPE, "../file")], "hostile_archive")):
            error = raises(job.JobError, pool.job("put", path="/dir/sub", format="tar", pid=box.child.pid, uid_base=0,
                                                  body=archive(*entries)).result)
            equal(error.code, code, f"{entries}: {error}")
        equal(raises(job.JobError, pool.job("put", path="/dir/sub", format="tar", pid=box.child.pid, body=b"nonsense" * 200).result).code, "corrupt")
        equal(os.listdir(box.outside), ["secret"])
        equal(set(os.listdir(box.root)) - {"dir", "link", "absolute", "escape", "loop", "fifo", "null"}, set())


@require("root")
def test_live_links_cannot_lead_out(tmp):
    """A process swaps a directory for a link to the outside while files are put and got: none ever lands or comes from there."""
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        os.mkdir(box.root + "/swap")
        with open(box.root + "/swap/secret", "w") as f:
            f.write("inside")
        code = ("import os,sys\nos.chdir(sys.argv[1])\nos.symlink(sys.argv[2],'bad')\nprint(1,flush=True)\n"
                "while True:\n os.rename('swap','good')\n os.rename('bad','swap')\n os.rename('swap','bad')\n os.rename('good','swap')\n")
        with subprocess.Popen(["/usr/bin/python3", "-c", code, box.root, box.outside], stdout=subprocess.PIPE) as swapper:
            swapper.stdout.readline()
            end, seen = time.monotonic() + 1.5, set()
            while time.monotonic() < end:
                for verb in ("get", "put"):
                    try:
                        run = pool.job(verb, path="/swap/secret", pid=box.child.pid, uid_base=0, body=b"inside" if verb == "put" else None)
                        run.result()
                        seen.add(run.output)
                    except job.JobError as error:
                        seen.add(error.code)
            swapper.kill()
        equal(b"outside" in seen, False)
        with open(box.outside + "/secret") as f:
            equal(f.read(), "outside")
        equal(os.listdir(box.outside), ["secret"])
        contains(str(seen), "inside")
