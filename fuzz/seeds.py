#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the hand-made part of the corpora: fuzz/corpus/TARGET/seed-NAME. Run after a format gained something; commit the result."""

import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))


def write(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "seed-" + name), "wb") as f:
        f.write(data)


def frame():
    def one(kind, channel, payload):
        return struct.pack("<IBBH", len(payload), kind, 0, channel) + payload
    for kind in range(1, 14):
        write("frame", f"type-{kind}", one(kind, kind, b"{}" * kind))
    write("frame", "two", one(3, 0, b'{"n":1}') + one(5, 1, struct.pack("<Q", 7) + b"out"))
    write("frame", "short", one(2, 0, b"x" * 64)[:40])
    write("frame", "flag", struct.pack("<IBBH", 0, 1, 1, 0))
    write("frame", "huge", struct.pack("<IBBH", 1 << 31, 1, 0, 0))


def reference():
    hexes = b"0123456789abcdef" * 4
    for n, text in enumerate([b"debian", b"debian:12", b"ghcr.io/a/b:t@sha256:" + hexes, b"localhost:5000/a__b/c-d--e.f:v1.2-3_4", b"Host/x",
                              b"a@sha512:" + hexes * 2, b"docker.io/a.b/c", b"index.docker.io/library/x", b"a..b", b"a:", b"a@", b"h.x:99999/a",
                              b"docker.io/localhost/c", b"x" * 260]):
        write("reference", str(n), text)


if __name__ == "__main__":
    for function in (frame, reference):
        function()
