# SPDX-License-Identifier: Apache-2.0
"""Packages of others that tests install for themselves, from PyPI and npm by their ordinary clients, into a directory that is kept: installing takes a while."""

import hashlib
import os
import shutil
import subprocess
import sys

from lib.case import Skip

CACHE = f"/var/tmp/cay-tests-{os.getuid()}"


def _installed(argv, names, seconds):
    """The directory that @argv (with {} in it for the directory) filled with @names."""
    place = os.path.join(CACHE, hashlib.sha256(" ".join([argv[0], sys.version, *names]).encode()).hexdigest()[:16])
    if os.path.isdir(place):
        return place
    new = f"{place}.{os.getpid()}"
    os.makedirs(CACHE, exist_ok=True)
    done = subprocess.run([a.format(new) for a in argv] + list(names), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode != 0:
        shutil.rmtree(new, ignore_errors=True)
        raise Skip(f"{' '.join(names)} cannot be installed: {done.stderr[-300:]}")
    try:
        os.rename(new, place)
    except OSError:  # another test was faster
        shutil.rmtree(new, ignore_errors=True)
    return place


def python(*names, seconds=300):
    """A directory for PYTHONPATH with these packages of PyPI ("name==version") for the tests' own interpreter."""
    return _installed([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--target", "{}"], names, seconds)


def node(*names, seconds=300):
    """A directory with node_modules that holds these packages of npm ("name@version")."""
    return _installed(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", "{}"], names, seconds)
