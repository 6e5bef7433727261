# SPDX-License-Identifier: Apache-2.0
"""A keeper has the output of the last commands that ended, and forgets the others."""

from lib import cay
from lib.case import equal

KEPT = 256


def test_a_long_command_among_many_has_its_status_and_output(instance):
    """What is forgotten first is what ended first, not what began first; and nobody who is attached waits in vain."""
    with instance.sandbox() as box:
        run = instance.exec(box, "sh", "-c", "echo out; read a", stdin=True)
        large = instance.exec(box, "sh", "-c", "read a; head -c 20000000 /dev/zero", stdin=True, ring_bytes=64 << 20)
        quiet = instance.exec(box, "sh", "-c", "echo quiet; read a", stdin=True)
        stream = instance.attach(box, run)
        stream.until(cay.STDOUT)
        for _ in range(KEPT + 10):
            instance.post(f"/v1/sandboxes/{box}/execs?wait_ms=60000", {"argv": ["true"]})
        stream.send(cay.STDIN, b"go\n")
        stream.until(cay.STATUS)
        equal(instance.output(box, run), b"out\n")
        instance.raw("POST", f"/v1/sandboxes/{box}/execs/{quiet['id']}/stdin?close=true", b"go\n")
        equal(instance.wait(box, quiet)["code"], 0)
        equal(instance.output(box, quiet), b"quiet\n")
        instance.raw("POST", f"/v1/sandboxes/{box}/execs/{large['id']}/stdin?close=true", b"go\n")
        equal(instance.wait(box, large)["output_bytes"], 20000000)
        equal(len(instance.output(box, large)), 20000000)
