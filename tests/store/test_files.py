# SPDX-License-Identifier: Apache-2.0
"""Files in and out of a sandbox's root, with links that try to lead out of it, FIFOs and devices, limits, and tar both ways."""

import hashlib
import http.client
import io
import os
import signal
import socket
import stat
import subprocess
import tarfile
import time

from lib import cay, job, leaks
from lib.case import contains, equal, raises, require
from lib.pace import patience
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
def test_a_link_that_is_asked_for_is_followed(tmp):
    """As tar, too: what comes is what it leads to, under its name."""
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        for place in ({"pid": box.child.pid}, {"stack": [box.root]}):
            with tarfile.open(fileobj=io.BytesIO(get(pool, "/absolute", place, format="tar")[0])) as t:
                equal((t.getmember("absolute").isdir(), t.getmember("absolute/file").isfile()), (True, True))
                equal(t.getmember("absolute/escape").issym(), True)
            with tarfile.open(fileobj=io.BytesIO(get(pool, "/link", place, format="tar")[0])) as t:
                equal([(m.name, m.isfile()) for m in t], [("link", True)])
            for path, code in (("/escape", "not_found"), ("/loop", "invalid")):
                equal(raises(job.JobError, get, pool, path, place, format="tar").code, code, path)


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
def test_get_from_mounts_of_a_stopped_sandbox(tmp):
    """Stacks where they would be mounted, also where the root has no such directory; links lead from one into the other as inside."""
    with Pool(tmp, "directory") as pool:
        root, source, inner = (os.path.join(tmp, name) for name in ("root", "source", "inner"))
        for path, text in ((root + "/etc/a", "root"), (source + "/etc/a", "mount"), (source + "/f", "file"), (inner + "/g", "inner"), (root + "/srv/w/x/y/over", "covered")):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as f:
                f.write(text)
        os.symlink("/etc/a", source + "/absolute")
        os.symlink("../../../etc/a", source + "/up")
        os.symlink("/srv/w/x/f", root + "/into")
        place = {"stack": [root], "places": [{"target": "/srv/w/x", "stack": [source]}, {"target": "/srv/w/x/y", "stack": [inner]}, {"target": "/host"},
                                             {"target": "/no/where/at/all", "stack": [inner]}]}
        for path, text in (("/srv/w/x/f", b"file"), ("/srv/w/x/etc/a", b"mount"), ("/srv/w/x/absolute", b"root"), ("/srv/w/x/up", b"root"), ("/into", b"file"),
                           ("/srv/w/x/y/g", b"inner"), ("/srv/w/x/y/../f", b"file"), ("/srv/w/x/../../../etc/a", b"root"), ("/no/where/at/all/g", b"inner"),
                           ("/no/where/../where/at/../at/all/g", b"inner")):
            equal(get(pool, path, place)[0], text, path)
        for path, code in (("/srv/w/x/y/over", "not_found"), ("/no/where", "not_found"), ("/no/where/else", "not_found"), ("/host", "state"), ("/host/x", "state"),
                           ("/hosts", "not_found"), ("/srv/w/x", "invalid")):
            equal(raises(job.JobError, get, pool, path, place).code, code, path)
        with tarfile.open(fileobj=io.BytesIO(get(pool, "/srv/w/x", place, format="tar")[0])) as t:
            equal(sorted(t.getnames()), sorted(["x", "x/f", "x/etc", "x/etc/a", "x/absolute", "x/up"]))
        for wrong in ("srv", "/a/../b", None):
            equal(raises(job.JobError, get, pool, "/etc/a", {**place, "places": [{"target": wrong, "stack": [source]}]}).code, "invalid")


@require("root")
def test_files_of_mounts_are_there_when_it_is_stopped(tmp):
    """The usual case: what a run has written where it was started."""
    project = os.path.join(tmp, "project")
    os.mkdir(project)
    for name in ("kept", "changed"):
        with open(os.path.join(project, name), "w") as f:
            f.write(name)
    instance = cay.Instance(tmp)
    try:
        instance.start()
        box = instance.post("/v1/sandboxes", {"mounts": [{"source": project, "target": "/srv/p", "mode": "cow"}, {"source": project, "target": "/srv/host", "mode": "ro"}]})["id"]
        instance.ok(box, "echo new > /srv/p/new; echo more >> /srv/p/changed; rm -f /srv/p/none")
        for stopped in (False, True):
            if stopped:
                instance.post(f"/v1/sandboxes/{box}/stop")
            for name, text in (("new", b"new\n"), ("changed", b"changedmore\n"), ("kept", b"kept")):
                status, _, body = instance.raw("GET", f"/v1/sandboxes/{box}/files?path=/srv/p/{name}")
                equal((status, body), (200, text), name)
            status, _, body = instance.raw("GET", f"/v1/sandboxes/{box}/files?path=/srv/p&format=tar")
            with tarfile.open(fileobj=io.BytesIO(body)) as t:
                equal(sorted(t.getnames()), ["p", "p/changed", "p/kept", "p/new"])
        contains(raises(cay.ApiError, instance.get, f"/v1/sandboxes/{box}/files?path=/srv/host/kept").message, "of the host")
    finally:
        instance.close()


@require("root")
def test_a_client_that_does_not_read_loses_nothing(tmp):
    """More than anybody buffers: the job waits for the client, and every byte comes."""
    instance = cay.Instance(tmp)
    try:
        instance.start()
        with instance.sandbox() as box:
            instance.ok(box, "head -c 50000000 /dev/urandom > /var/tmp/large")
            want = instance.ok(box, "sha256sum < /var/tmp/large").split()[0]
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(patience(60))
                s.connect(instance.socket)
                s.sendall(f"GET /v1/sandboxes/{box}/files?path=/var/tmp/large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                s.recv(1, socket.MSG_PEEK)  # it has begun

                def job_ended():
                    return not any(b"\0job\0" in leaks.read(f"/proc/{pid}/cmdline").encode() for pid in instance.own_processes())
                end = time.monotonic() + 3  # in vain: it waits for us
                while time.monotonic() < end and not job_ended():
                    time.sleep(0.01)
                answer = http.client.HTTPResponse(s)
                answer.begin()
                equal(hashlib.sha256(answer.read()).hexdigest(), want)
    finally:
        instance.close()


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
def test_a_tar_has_numbers_that_its_headers_have_no_room_for(tmp):
    """Seven octal digits of an id; a time before 1970, or behind 2242. They come back the same from what reads PAX records."""
    with Pool(tmp, "directory") as pool:
        top = os.path.join(tmp, "top")
        os.mkdir(top)
        of = {"small": (0o7777777, 0o7777777, 1), "large": (0o10000000, 1234567890, 1), "old": (1, 1, -5), "late": (1, 1, 1 << 33)}
        for name, (uid, gid, mtime) in of.items():
            with open(f"{top}/{name}", "w", encoding="ascii") as f:
                f.write("x")
            os.chown(f"{top}/{name}", uid, gid)
            os.utime(f"{top}/{name}", (mtime, mtime))
        data, _head = get(pool, "/", {"stack": [top]}, format="tar")
        with tarfile.open(fileobj=io.BytesIO(data)) as t:
            equal({os.path.basename(m.name): (m.uid, m.gid, m.mtime) for m in t if m.isfile()}, of)


@require("root", "program:strace")
def test_a_file_that_cannot_be_read_to_its_end_ends_a_tar(tmp):
    """Its header has promised bytes: who left the rest out would shift all that follows. (A volume over the network gives ESTALE, a FUSE one anything.)"""
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        broken = os.path.join(box.root, "dir/broken")
        with open(broken, "wb") as f:
            f.write(bytes(1 << 20))
        for error in ("ESTALE", "ENOENT", "EACCES", "EIO"):
            program = os.path.join(tmp, "keeper")
            with open(program, "w") as f:
                f.write(f'#!/bin/sh\nexec strace -o {tmp}/trace -P {broken} -e inject=pread64:error={error}:when=2 {cay.BUILD}/cay-keeper "$@"\n')
            os.chmod(program, 0o755)
            failed = raises(job.JobError, pool.job("get", path="/dir", format="tar", stack=[box.root], program=program).result)
            contains(failed.message, "read 'dir/broken'")


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
def test_whose_first_process_has_just_ended(tmp):
    """Its files are not found where that was; that they do not exist must not be said."""
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        box.child.kill()
        os.waitid(os.P_PID, box.child.pid, os.WEXITED | os.WNOWAIT)  # the number stays its own
        equal(raises(job.JobError, get, pool, "/dir/file", {"pid": box.child.pid}).code, "busy")
        equal(raises(job.JobError, pool.job("put", path="/dir/new", pid=box.child.pid, uid_base=0, body=b"new").result).code, "busy")


@require("root")
def test_a_put_whose_client_is_gone_leaves_nothing(tmp):
    """The job ends where it is, unless it waits for input. With files without a name, and where there are none."""
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        place, name = os.path.join(box.root, "dir/sub"), tarfile.TarInfo("x")
        name.size = 1 << 30
        for without in ("", "overlay_tmpfile"):
            for path, more, head in (("/dir/sub/x", {}, b""), ("/dir/sub", {"format": "tar"}, name.tobuf())):
                run = pool.job("put", path=path, pid=box.child.pid, uid_base=0, env={"CAY_WITHOUT": without}, **more)
                run.socket.sendall(job.frame(job.STDIN, head) if head else b"")
                for _ in range(8):  # more than the socket holds: it has begun
                    run.socket.sendall(job.frame(job.STDIN, bytes(1 << 19)))
                equal(len(os.listdir(place)), 1 if without else 0)
                os.kill(run.process.pid, signal.SIGSTOP)
                os.waitpid(run.process.pid, os.WUNTRACED)
                run.socket.close()
                os.kill(run.process.pid, signal.SIGCONT)
                run.process.wait(patience(30))
                equal(os.listdir(place), [], f"without {without or 'nothing'}, {more}")


def archive(*entries):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as t:
        for name, kind, link in entries:
            e = tarfile.TarInfo(name)
            e.type, e.linkname = kind, link
            t.addfile(e, io.BytesIO(b""))
    return data.getvalue()


@require("root")
def test_a_link_of_which_nothing_comes_takes_nothing_away(tmp):
    """A link to what is not there, and one to the very name that it is to have."""
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        place = {"path": "/dir", "format": "tar", "pid": box.child.pid, "uid_base": 0}
        raises(job.JobError, pool.job("put", body=archive(("file", tarfile.LNKTYPE, "missing")), **place).result)
        pool.job("put", body=archive(("file", tarfile.LNKTYPE, "file")), **place).result()
        equal(sorted(os.listdir(box.root + "/dir")), ["escape", "file", "sub"])
        with open(box.root + "/dir/file", encoding="utf-8") as f:
            equal(f.read(), "hello\n")


def test_names_of_one_file_with_a_mount_between_them(instance, tmp):
    """No link leads from one file system to another: each name gets a file of its own."""
    project, host = os.path.join(tmp, "project"), os.path.join(tmp, "host")
    os.makedirs(os.path.join(project, "data"))
    os.mkdir(host)
    with open(os.path.join(project, "a"), "w", encoding="utf-8") as f:
        f.write("hello\n")
    os.chmod(os.path.join(project, "a"), 0o750)
    for name in ("b", "data/c"):
        os.link(os.path.join(project, "a"), os.path.join(project, name))
    with instance.sandbox(mounts=[{"source": host, "target": "/root/project/data"}]) as box:
        instance.cay("cp", project, f"{box}:/root/")
        equal(instance.ok(box, "cd /root/project; cat a b data/c; stat -c %a a data/c; stat -c %h data/c; [ a -ef b ] && echo one"), "hello\n" * 3 + "750\n750\n1\none\n")
        equal(instance.ok(box, "find /root/project -name '.cay*'"), "")


@require("root")
def test_hostile_tar(tmp):
    with Pool(tmp, "directory") as pool, Inside(tmp) as box:
        for entries, code in (([("../x", tarfile.REGTYPE, "")], "hostile_archive"), ([("/x", tarfile.REGTYPE, "")], "hostile_archive"),
                              ([("null", tarfile.CHRTYPE, "")], "hostile_archive"),
                              ([("l", tarfile.SYMTYPE, box.outside), ("l/x", tarfile.REGTYPE, "")], "invalid"),
                              ([("l", tarfile.SYMTYPE, ".."), ("l/x", tarfile.REGTYPE, "")], "invalid"),
                              ([("h", tarfile.LNKTYPE, "../file")], "hostile_archive"),
                              ([("d/" * 2050 + "x", tarfile.REGTYPE, "")], "too_large")):
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
            begin, seen = time.monotonic(), set()
            # beside other work it may take a while until one gets through
            while time.monotonic() < begin + 1.5 or (b"inside" not in seen and time.monotonic() < begin + patience(30)):
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
        contains(seen, b"inside")
