# SPDX-License-Identifier: Apache-2.0
"""Programs of others that look for weaknesses of servers find none in the gateway's core."""

import json
import os
import subprocess

from lib.case import contains, equal, require, timeout
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


@timeout(500)
@require("program:testssl")
def test_testssl(tmp):
    report = os.path.join(tmp, "report.json")
    with Setup(tmp) as proxy:
        subprocess.run(["testssl", "--quiet", "--warnings", "off", "-p", "-s", "-f", "-U", "--ip", "127.0.0.1", "--add-ca", proxy.root, "--severity", "LOW",
                        "--jsonfile", report, f"api.example:{proxy.tls}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False, timeout=480)
    with open(report, encoding="utf-8") as f:
        found = [e for e in json.load(f) if e["severity"] in ("LOW", "MEDIUM", "HIGH", "CRITICAL")]
    equal(found, [])


@timeout(200)
@require("program:slowhttptest")
def test_slowhttptest(tmp):
    with Setup(tmp, secure=False) as proxy:
        for attack in (["-H"], ["-B"], ["-X", "-w", "1", "-y", "2", "-z", "1", "-k", "3"], ["-R"]):
            done = subprocess.run(["slowhttptest", "-c", "300", *attack, "-i", "2", "-r", "150", "-l", "12", "-p", "5", "-u", f"http://127.0.0.1:{proxy.plain}/"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
            contains(done.stdout.replace("\x1b", ""), "YES", f"{attack}: service available")
        equal(proxy.get("api.example")[0], 200)
