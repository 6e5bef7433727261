# SPDX-License-Identifier: Apache-2.0
"""Runs import jobs without a server, and makes archives: honest ones with tarfile, the others byte by byte."""

import hashlib
import io
import json
import os
import stat
import tarfile

from lib import job, pool

class Store(pool.Pool):
    """A pool that images are imported into."""

    def __init__(self, top, kind="directory"):
        super().__init__(top, kind)

    def load(self, path, **members):
        """Import; returns the reply. A refused one raises job.JobError."""
        return self.run("import", path=path, image=job.new_id(), **members)

    def rootfs(self, reply):
        return self.path("images", reply["image"], "rootfs")

    def left(self):
        """What lies in the pool: unfinished and finished images."""
        return sorted(os.listdir(self.path("tmp"))) + sorted(os.listdir(self.path("images")))


# ---- archives ----------------------------------------------------------------------------------------------------------------------

def member(name, kind=tarfile.REGTYPE, data=b"", **more):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mtime, info.mode = kind, len(data), 1600000000, 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def tar(*members, form=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def header(name, size=0, kind=b"0", link=b"", mode=0o644, magic=b"ustar\x0000", fields=()):
    """One header block. @fields: [(offset, bytes)] put in before the checksum."""
    block = bytearray(512)
    block[0:len(name)] = name
    block[100:108] = b"%07o\0" % mode
    block[108:116] = block[116:124] = b"0000000\0"
    block[124:136] = b"%011o\0" % size
    block[136:148] = b"00000000000\0"
    block[156:157] = kind
    block[157:157 + len(link)] = link
    block[257:265] = magic
    for offset, value in fields:
        block[offset:offset + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(data):
    return data + b"\0" * (-len(data) % 512)


END = b"\0" * 1024


def pax(*records, kind=b"x"):
    """An extended header with [(key, value)], the lengths right."""
    body = b""
    for key, value in records:
        n = len(key) + len(value) + 3
        while n != len(key) + len(value) + 3 + len(str(n)):
            n = len(key) + len(value) + 3 + len(str(n))
        body += b"%d %s=%s\n" % (n, key, value)
    return raw_pax(body, kind)


def raw_pax(body, kind=b"x"):
    return header(b"PaxHeaders/x", len(body), kind) + padded(body)


def write(top, name, data):
    path = os.path.join(top, name)
    with open(path, "wb") as f:
        f.write(data)
    return path


# ---- images ------------------------------------------------------------------------------------------------------------------------

def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


class Layout:
    """An OCI layout in memory: blobs, an index, and one image after the other."""

    def __init__(self):
        self.files = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}'}
        self.manifests = []

    def blob(self, data, media_type, **more):
        data = data if isinstance(data, bytes) else json.dumps(data).encode()
        self.files["blobs/sha256/" + digest(data)[7:]] = data
        return {"mediaType": "application/vnd.oci.image." + media_type, "digest": digest(data), "size": len(data), **more}

    def image(self, layers, pack=lambda data: data, kind="layer.v1.tar", ref=None, saved=None, arch="amd64", diff_ids=None, **config):
        blobs = [self.blob(pack(layer), kind) for layer in layers]
        config = {"architecture": arch, "os": "linux", "config": {"Cmd": ["sh"]},
                  "rootfs": {"type": "layers", "diff_ids": diff_ids or [digest(layer) for layer in layers]}, **config}
        manifest = {"schemaVersion": 2, "config": self.blob(config, "config.v1+json"), "layers": blobs}
        names = {"org.opencontainers.image.ref.name": ref} if ref else {}
        if saved:  # as docker save has it
            names = {"io.containerd.image.name": saved, "org.opencontainers.image.ref.name": saved.rpartition(":")[2]}
        more = {"annotations": names} if names else {}
        self.manifests.append(self.blob(manifest, "manifest.v1+json", platform={"os": "linux", "architecture": arch}, **more))
        return self

    def done(self):
        self.files.setdefault("index.json", json.dumps({"schemaVersion": 2, "manifests": self.manifests}).encode())
        return self.files

    def to_dir(self, top):
        for name, data in self.done().items():
            path = os.path.join(top, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(data)
        return top

    def to_tar(self):
        return tar(*[member(name, data=data) for name, data in self.done().items()])


# ---- trees -------------------------------------------------------------------------------------------------------------------------

def tree(top):
    """{path: everything that can be said of it}, bytes as keys; hard links by the first name of their inode."""
    found, inodes = {}, {}

    def look(path, name):
        st = os.lstat(path)
        first = inodes.setdefault(st.st_ino, name) if not stat.S_ISDIR(st.st_mode) else name
        entry = [stat.S_IFMT(st.st_mode), oct(stat.S_IMODE(st.st_mode)), st.st_uid, st.st_gid, st.st_mtime_ns, first]
        if stat.S_ISLNK(st.st_mode):
            entry.append(os.readlink(path))
        else:
            entry.append({k: os.getxattr(path, k).hex() for k in sorted(os.listxattr(path))})
        if stat.S_ISREG(st.st_mode):
            with open(path, "rb") as f:
                entry.append(hashlib.sha256(f.read()).hexdigest())
        found[name] = entry
        if stat.S_ISDIR(st.st_mode):
            for child in sorted(os.listdir(path)):
                look(os.path.join(path, child), os.path.join(name, child))
    look(os.fsencode(top), b"")
    return found


def difference(a, b):
    """Lines that say where two trees differ."""
    return [f"{name!r}: {a.get(name)} / {b.get(name)}" for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]
