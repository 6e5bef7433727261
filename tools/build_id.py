#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""build_id.py SOURCES OUTPUT - which sources this is a build of, as a C header that is written only where it changed.

The same sources give the same word wherever and whenever they are built:

    4f60b2e91a3c            a commit whose sources are as they were committed
    4f60b2e91a3c+1d0f33a9   that commit, and changes to the sources (of which the second part is a hash)
    1d0f33a9                sources without a repository of their own, as from an archive (a hash of them)

Documents and tests are not what is built: what is changed there alone does not count as a change.
"""

import contextlib
import hashlib
import os
import subprocess
import sys

BUILT = ("src", "defs", "meson.build", "meson_options.txt", "tools/gen_api.py", "tools/gen_filters.py", "tools/gen_presets.py")


def git(top, *arguments):
    """What git prints, or None where it cannot say: no git, no repository."""
    # the repository may be another user's (`sudo make install`), and nothing of it is written. It is asked of @top's, also below a hook of another one
    command = ["git", "--no-optional-locks", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-C", top, *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def is_source(name):
    """Editors keep files of their own beside those that they change; Python keeps what it has compiled."""
    return not name.startswith((".", "#")) and not name.endswith(("~", ".orig", ".rej", ".pyc"))


def files(top):
    """Every file that is built, by its name below @top, in a stated order."""
    for built in BUILT:
        path = os.path.join(top, built)
        if os.path.isfile(path):
            yield built
        for directory, folders, names in os.walk(path):
            folders.sort()
            for name in sorted(filter(is_source, names)):
                if os.path.isfile(os.path.join(directory, name)):
                    yield os.path.relpath(os.path.join(directory, name), top)


def sources_hash(top):
    digest = hashlib.sha256()
    for name in files(top):
        with contextlib.suppress(OSError):  # it is gone meanwhile, or nobody can build it either
            with open(os.path.join(top, name), "rb") as file:
                digest.update(f"{name}\0".encode() + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()[:8]


def commit(top):
    """The commit of the repository whose top @top is; None: it is in none, or in somebody else's (a package's, of which it is a part)."""
    if git(top, "rev-parse", "--show-prefix") != "":
        return None
    return git(top, "rev-parse", "--short=12", "HEAD")


def build_id(top):
    at = commit(top)
    if at is None:
        return sources_hash(top)
    changed = git(top, "status", "--porcelain", "--", *BUILT)
    return at if changed == "" else f"{at}+{sources_hash(top)}"


def write_changed(path, text):
    """What includes it is compiled again only where it says something else."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            if file.read() == text:
                return
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    write_changed(sys.argv[2], f'#define CAY_BUILD "{build_id(sys.argv[1])}"\n')
