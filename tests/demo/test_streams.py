# SPDX-License-Identifier: Apache-2.0
"""Long streams through `cay run` when one side is slow: every byte arrives, and nothing but the slow side waits."""

import hashlib
import os
import subprocess

from lib.case import equal, timeout
from lib.cay import BUILD

BYTES = 24 << 20
CAY = os.path.join(BUILD, "cay")


def slow_hash(stream):
    """Read in small pieces, as a reader that is always behind does."""
    digest = hashlib.sha256()
    while data := stream.read(1500):
        digest.update(data)
    return digest.hexdigest()


@timeout(120)
def test_slow_reader_gets_every_byte(instance, tmp):
    want = hashlib.sha256(bytes(BYTES)).hexdigest()
    for _ in range(3):
        process = subprocess.Popen([CAY, "run", "--", "head", "-c", str(BYTES), "/dev/zero"], cwd=tmp, bufsize=0,
                                   env=instance.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        got = slow_hash(process.stdout)
        equal((process.wait(60), got), (0, want))


@timeout(120)
def test_long_input_waits_for_a_slow_command(instance, tmp):
    """More than every buffer on the way holds; the command reads with a pause in front."""
    data = os.urandom(BYTES)
    script = "import sys, hashlib, subprocess; subprocess.run(['sleep', '0.3']);" \
             "print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
    done = subprocess.run([CAY, "run", "-i", "--", "python3", "-c", script], cwd=tmp, env=instance.environment(),
                          input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, check=False)
    equal((done.returncode, done.stdout.decode().strip()), (0, hashlib.sha256(data).hexdigest()), done.stderr.decode())
