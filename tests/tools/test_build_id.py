# SPDX-License-Identifier: Apache-2.0
"""tools/build_id.py names the sources of a build: the same ones by the same word, others by another, with git and without."""

import os
import re
import shutil
import subprocess
import sys

from lib import cay
from lib.case import equal

QUICK = True
TOOL = os.path.join(cay.TOP, "tools", "build_id.py")
GIT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


def git(top, *argv):
    return subprocess.run(["git", "-C", top, *argv], env=GIT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def write(top, name, text):
    path = os.path.join(top, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def build_id(top, env=None):
    header = os.path.join(os.path.dirname(top), "build_id.h")
    subprocess.run([sys.executable, TOOL, top, header], env=env or GIT, check=True)
    with open(header, encoding="utf-8") as file:
        return re.fullmatch('#define CAY_BUILD "(.*)"\n', file.read()).group(1)


def sources(tmp, name):
    top = os.path.join(tmp, name)
    for file in ("src/a.c", "defs/b.def", "meson.build", "docs/c.md"):
        write(top, file, file)
    return top


def repository(top):
    git(top, "init", "--quiet")
    git(top, "add", ".")
    git(top, "commit", "--quiet", "-m", "first")
    return git(top, "rev-parse", "--short=12", "HEAD")


def test_a_commit_and_what_was_changed_behind_it(tmp):
    top = sources(tmp, "repository")
    first = repository(top)
    equal(build_id(top), first)
    write(top, "docs/c.md", "not built")
    equal(build_id(top), first)
    write(top, "src/a.c", "changed")
    changed = build_id(top)
    assert re.fullmatch(f"{first}\\+[0-9a-f]{{8}}", changed), changed
    write(top, "src/a.c", "changed again")
    assert build_id(top) not in (first, changed)
    write(top, "src/a.c", "src/a.c")
    equal(build_id(top), first)
    write(top, "src/new.c", "not yet told to git")
    assert build_id(top).startswith(first + "+")


def test_sources_without_a_repository_of_their_own(tmp):
    here, there = sources(tmp, "here"), sources(tmp, "there")
    alone = build_id(here)
    assert re.fullmatch("[0-9a-f]{8}", alone), alone
    equal(build_id(there), alone)
    write(there, "src/a.c", "changed")
    assert build_id(there) != alone
    write(tmp, "of/somebody.else", "a package, say")
    shutil.copytree(here, os.path.join(tmp, "of", "cay"))
    repository(os.path.join(tmp, "of"))
    equal(build_id(os.path.join(tmp, "of", "cay")), alone)
    without_git = os.path.join(tmp, "bin")
    os.makedirs(without_git)
    equal(build_id(here, {**GIT, "PATH": without_git}), alone)


def test_what_editors_leave_beside_the_sources_is_none(tmp):
    top = sources(tmp, "sources")
    alone = build_id(top)
    os.symlink("somebody@here.1", os.path.join(top, "src", ".#a.c"))
    os.symlink("nowhere", os.path.join(top, "src", "dangling.c"))
    os.mkfifo(os.path.join(top, "src", "fifo"))
    write(top, "src/a.c~", "as it was")
    write(top, "src/.a.c.swp", "as it will be")
    equal(build_id(top), alone)


def test_the_header_is_left_alone_where_nothing_changed(tmp):
    top = sources(tmp, "sources")
    build_id(top)
    header = os.path.join(tmp, "build_id.h")
    os.utime(header, (1, 1))
    build_id(top)
    equal(os.stat(header).st_mtime, 1)
