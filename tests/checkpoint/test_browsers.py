# SPDX-License-Identifier: Apache-2.0
"""Browsers, driven by packages of others, with a page that has state, a worker and an open WebSocket to a server inside: forked live, rewound, suspended and resumed."""

import contextlib
import os
import sys

from lib import packages
from lib.case import contains, equal, raises, require
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, rootless, start  # noqa: E402
from programs import Program, guest  # noqa: E402
from suspending import there_and_back  # noqa: E402

TIMEOUT = 170
LONG = True


class Browser(Program):
    name = ""
    environment = {}

    def begin(self, instance, box):
        return start(instance, box, "/usr/bin/node", guest(instance, box, "browser.js"), self.name, env={"NODE_PATH": "/packages/node_modules", **self.environment})


class Chromium(Browser):
    name = "chromium"
    needs = ("program:npm", "program:chromium")
    packages = ("playwright-core@1.65.1", "ws@8.18.0")


class Firefox(Browser):
    """Its processes are under filters of their own."""

    name = "firefox"
    needs = ("program:npm", "program:firefox-esr")
    packages = ("puppeteer-core@24.43.1", "ws@8.18.0")


class OpenFirefox(Firefox):
    """Without them: an ordinary user's server has to ask its processes more than they allow (docs/browsers.md)."""

    environment = {f"MOZ_DISABLE_{what}_SANDBOX": "1" for what in ("CONTENT", "GMP", "RDD", "SOCKET_PROCESS", "UTILITY")}


def forked(instance, box, program):
    fork = fork_live(instance, box)[0]
    equal(program.tell(fork, "fork"), ["before", "fork"])
    again = fork_live(instance, fork)[0]
    equal(program.tell(box, "source"), ["before", "source"])
    equal(program.tell(again, "again"), ["before", "fork", "again"])
    equal(program.tell(fork, "more"), ["before", "fork", "more"])
    for one in (again, fork):
        equal(ask(instance, one, program.run, "end"), "ended\n")
        instance.remove(one)
    equal(program.tell(box, "last"), ["before", "source", "last"])


def rewound(instance, box, program):
    name = instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"]
    for word in ("lost", "other"):
        equal(program.tell(box, word), ["before", word])
        instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": name})
    equal(program.tell(box, "after"), ["before", "after"])
    instance.call("DELETE", f"/v1/snapshots/{name}")


def suspended(instance, box, program):
    for n, word in enumerate(("once", "twice")):
        there_and_back(instance, box)
        equal(program.tell(box, word), ["before", "once", "twice"][:n + 2])


@contextlib.contextmanager
def at_work(instance, kind):
    """A sandbox, and a browser in it that has been told a word."""
    place = packages.node(*kind.packages)
    with instance.sandbox(mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        program = kind(instance, box)
        equal(program.tell(box, "before"), ["before"])
        yield box, program


def make_case(kind, way):
    def case(instance):
        with at_work(instance, kind) as (box, program):
            way(instance, box, program)
    case.__name__ = f"test_{kind.__name__.lower()}_{way.__name__}"
    return require("root", "cgroup2", *kind.needs)(case)


def make_rootless_case(kind, way):
    def case(tmp):
        with rootless(tmp) as instance, at_work(instance, kind) as (box, program):
            way(instance, box, program)
    case.__name__ = f"test_{kind.__name__.lower()}_{way.__name__}_rootless"
    return require("root", "userns", "newuidmap", *kind.needs)(case)


for _way in (forked, rewound, suspended):
    for _kind in (Chromium, Firefox):
        _case = make_case(_kind, _way)
        globals()[_case.__name__] = _case
    for _kind in (Chromium, OpenFirefox):
        _case = make_rootless_case(_kind, _way)
        globals()[_case.__name__] = _case


@require("root", "userns", "newuidmap", *Firefox.needs)
def test_filters_of_firefox_rootless(tmp):
    """Who has them is named, in advance too, and goes on."""
    with rootless(tmp) as instance, at_work(instance, Firefox) as (box, program):
        contains(instance.cay("doctor", box, want=1).stdout, "its system call filter refuses")
        error = raises(ApiError, fork_live, instance, box)
        equal(error.code, "unsupported")
        contains(error.message, "its system call filter refuses")
        equal(program.tell(box, "after"), ["before", "after"])
