# SPDX-License-Identifier: Apache-2.0
"""As a distribution makes a package: flags of its own, other directories, `make install` below DESTDIR. What comes of it works wherever it lies."""

import os
import subprocess

from install.installed import PROGRAMS, everything_works
from lib import cay
from lib.case import contains, equal, require

LONG = True
APART = True
TIMEOUT = 2400

# dpkg-buildflags with `optimize=+lto`, and what some add
FLAGS = {"CFLAGS": "-O2 -g -flto=auto -ffat-lto-objects -DNDEBUG", "LDFLAGS": "-O2 -flto=auto -Wl,-z,relro"}


def package(tmp, *options):
    """Configure with @options and FLAGS, `make install`; returns the root below which all lies."""
    build, root = os.path.join(tmp, "build"), os.path.join(tmp, "root")
    for argv in (["/usr/bin/meson", "setup", build, cay.TOP, "--prefix", "/usr", "-Dtests=false", *options],
                 ["make", "install", f"BUILD={build}", "PREFIX=/usr", f"DESTDIR={root}"]):
        done = subprocess.run(argv, cwd=cay.TOP, env={**os.environ, **FLAGS}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)
        equal(done.returncode, 0, done.stdout[-4000:])
    return root


@require("root", "cgroup2")
def test_other_flags_and_other_directories(tmp):
    root = package(tmp, "--libexecdir", "lib")
    equal(sorted(os.listdir(os.path.join(root, "usr", "lib", "cay"))), sorted(PROGRAMS))
    with open(os.path.join(root, "usr", "lib", "systemd", "system", "cayd.service"), encoding="utf-8") as unit:
        contains(unit.read(), "ExecStart=/usr/bin/cayd --foreground")
    everything_works(tmp, os.path.join(root, "usr", "bin"))
