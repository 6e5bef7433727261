# SPDX-License-Identifier: Apache-2.0
"""Programs of others that look for weaknesses of servers find none in the gateway's core."""

import json
import os
import socket
import subprocess

from lib.case import contains, equal, raises, require, timeout
from lib.proxy import Proxy, Upstream, certificate, echo

LONG = True
ALLOW = [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]


class Setup:
    def __init__(self, tmp, **config):
        pem, root = certificate(os.path.join(tmp, "up"), "api.example")
        self.upstream = Upstream(echo, pem if config.pop("secure", True) else None)
        self.proxy = Proxy(tmp, ALLOW, {"api.example": self.upstream.address}, extra=root, **config)

    def __enter__(self):
        return self.proxy

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


# what it says of a server that it has looked at from the first part of its tests to the last
LOOKED = {"TLS1_3": "offered with final", "cipherlist_STRONG": "offered", "heartbleed": "not vulnerable", "RC4": "not vulnerable"}
OWN = "engine_problem"  # of its own openssl


def scan(tmp, root, port):
    """Its findings, {id: (severity, finding)}; that it could not look is one of them."""
    report = os.path.join(tmp, "report.json")
    subprocess.run(["testssl", "--quiet", "--warnings", "off", "-p", "-s", "-f", "-U", "--ip", "127.0.0.1", "--add-ca", root, "--jsonfile", report,
                    f"api.example:{port}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=480)
    with open(report, encoding="utf-8") as f:
        return {e["id"]: (e["severity"], e["finding"]) for e in json.load(f)}


def judge(found):
    equal({name: row for name, row in found.items() if row[0] not in ("OK", "INFO") and name != OWN}, {})
    for name, finding in LOOKED.items():
        contains(found.get(name, ("", "no such row"))[1], finding, name)


@timeout(500)
@require("program:testssl")
def test_testssl(tmp):
    with Setup(tmp) as proxy:
        judge(scan(tmp, proxy.root, proxy.tls))


@require("program:testssl")
def test_testssl_that_cannot_look_has_not_found_nothing(tmp):
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        raises(AssertionError, judge, scan(tmp, certificate(os.path.join(tmp, "up"), "api.example")[1], deaf.getsockname()[1]))
    raises(AssertionError, judge, {})


@timeout(200)
@require("program:slowhttptest")
def test_slowhttptest(tmp):
    with Setup(tmp, secure=False) as proxy:
        for attack in (["-H"], ["-B"], ["-X", "-w", "1", "-y", "2", "-z", "1", "-k", "3"], ["-R"]):
            done = subprocess.run(["slowhttptest", "-c", "300", *attack, "-i", "2", "-r", "150", "-l", "12", "-p", "5", "-u", f"http://127.0.0.1:{proxy.plain}/"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
            contains(done.stdout.replace("\x1b", ""), "YES", f"{attack}: service available")
        equal(proxy.get("api.example")[0], 200)
