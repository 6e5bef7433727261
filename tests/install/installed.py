# SPDX-License-Identifier: Apache-2.0
"""That what was installed works: each program of ours is needed by something here."""

import contextlib
import os
import tarfile

from lib import cay
from lib.case import contains, equal

PROGRAMS = ("cay-gateway", "cay-import", "cay-init", "cay-keeper", "cay-spawn", "cay-template")  # that nobody calls


def archive(tmp, program):
    """A root file system with @program alone."""
    path = os.path.join(tmp, "root.tar")
    with tarfile.open(path, "w") as tar:
        tar.add(program, "bin/program")
    return path


def goes_on_live(instance):
    """A program goes along in a fork, and to disk and back."""
    instance.cay("create", "--name", "one", "--mount", f"{instance.dir}:/work")
    instance.cay("exec", "-d", "one", "--", "sleep", "1000")
    instance.cay("fork", "one", "--name", "two")
    instance.cay("suspend", "one")
    instance.cay("resume", "one")
    for name in ("one", "two"):
        contains(instance.cay("exec", name, "--", "sh", "-c", "cat /proc/[0-9]*/comm").stdout, "sleep\n")
    instance.cay("rm", "-f", "one", "two")


def is_judged(instance):
    """What a policy does not allow is refused by a gateway."""
    instance.cay("run", "--no-cwd", "--name", "judged", "--allow", "allowed.example", "--", "sh", "-c", "getent hosts denied.example", want=2)
    box = instance.json("info", "judged")["id"]
    instance.wait_event("gateway.started", box)
    equal(instance.wait_event("net.denied", box)["data"]["host"], "denied.example")
    instance.cay("rm", "-f", "judged")


def is_imported(instance, tmp):
    instance.cay("image", "import", archive(tmp, os.path.join(instance.programs, "cay")), "small")
    contains(instance.cay("run", "--no-cwd", "--rm", "small", "--", "/bin/program", "help").stdout, "usage: cay")


def everything_works(tmp, programs):
    """In an instance of what lies in the directory @programs, as root or as whoever calls."""
    with contextlib.closing(cay.Instance(tmp, programs=programs)) as instance:
        instance.start()
        equal(instance.cay("run", "--no-cwd", "--rm", "--", "sh", "-c", "echo inside; exit 7", want=7).stdout, "inside\n")
        goes_on_live(instance)
        is_judged(instance)
        is_imported(instance, tmp)
