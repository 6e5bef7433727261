# SPDX-License-Identifier: Apache-2.0
"""`cay version` says of which sources cay and its server are, and that they are of different ones."""

import json

from lib.case import contains, equal
from lib.fake_cayd import FakeCayd

ANSWER = {"version": "0.1.0", "protocol": 1, "mode": "root", "state": "/s", "run": "/r", "pid": 7}


def test_the_server_says_of_which_build_it_is(instance):
    answer = instance.json("version")
    assert answer["build"], answer
    equal(answer["client_build"], answer["build"])
    text = instance.cay("version").stdout
    contains(text, f"cay {answer['version']} ({answer['build']})\ncayd {answer['version']} ({answer['build']}), pid ")
    assert "different" not in text, text
    equal([check for check in instance.json("doctor", check=False)["checks"] if check["id"] == "build"], [])


def test_a_server_of_another_build_is_told(tmp):
    check = {"id": "kernel", "ok": True, "level": "required", "what": "the kernel", "found": "Linux"}
    with FakeCayd(tmp) as fake:
        for build, named in (({"build": "0123456789ab+89abcdef"}, "0123456789ab+89abcdef"), ({}, "an earlier build")):
            fake.on("GET", "/v1/version", (200, {**ANSWER, **build}))
            fake.on("GET", "/v1/doctor", (200, {"mode": "root", "ok": True, "kernel": "Linux", "checks": [check], **build}))
            contains(fake.cay("version").stdout.decode(), f"cayd 0.1.0 ({named}), pid 7, root, state in /s\nthey are of different builds")
            told = json.loads(fake.cay("version", "--json").stdout)
            assert told["client_build"] and told["client_build"] != told.get("build"), told
            text = fake.cay("doctor").stdout.decode()
            contains(text, f"cay is {told['client_build']}, the server is ")
            contains(text, named)
