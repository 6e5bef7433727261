# SPDX-License-Identifier: Apache-2.0
"""Secrets: set, listed, removed; their values are in no answer, event, log or file as they are."""

import json
import os
import stat

from lib import cay
from lib.case import contains, equal, raises

VALUE = "sk_live_51Hxyz/ABCdef+0123456789"


def test_a_value_is_never_shown(instance):
    instance.cay("secret", "set", "STRIPE_KEY", stdin=VALUE + "\n")
    row = instance.json("secret", "ls")["secrets"][0]
    equal((row["name"], row["version"]), ("STRIPE_KEY", 1))
    instance.cay("secret", "set", "STRIPE_KEY", stdin=VALUE)
    equal(instance.json("secret", "ls")["secrets"][0]["version"], 2)
    events = str(instance.raw("GET", "/v1/events"))
    contains(events, "secret.set")
    seen = events + instance.cay("secret", "ls").stdout + json.dumps(instance.get("/v1/secrets")) + instance.log_tail(1000)
    assert VALUE not in seen and "51Hxyz" not in seen
    instance.cay("secret", "rm", "STRIPE_KEY")


def test_at_rest_it_is_encrypted_and_its_key_is_for_the_server_alone(instance):
    instance.cay("secret", "set", "AT_REST", stdin=VALUE)
    for name in os.listdir(instance.state):
        path = os.path.join(instance.state, name)
        if name.startswith("cay.db") or name == "secrets.key":
            with open(path, "rb") as f:
                held = f.read()
            assert VALUE.encode() not in held and VALUE.encode().hex().encode() not in held, name
    key = os.stat(os.path.join(instance.state, "secrets.key"))
    equal((stat.S_IMODE(key.st_mode), key.st_size), (0o400, 32))
    instance.cay("secret", "rm", "AT_REST")


def test_secrets_outlive_the_server(tmp):
    instance = cay.Instance(tmp)
    instance.start()
    try:
        instance.cay("secret", "set", "KEPT", stdin=VALUE)
        instance.process.kill()
        instance.process.wait(10)
        instance.start()
        equal([s["name"] for s in instance.get("/v1/secrets")["secrets"]], ["KEPT"])
    finally:
        instance.close()


def test_what_cannot_be_a_secret_is_refused(instance):
    for name, value in (("1X", VALUE), ("A-B", VALUE), ("X", "k3y"), ("X", "with a space in it"), ("X", "--------------"), ("X", "é" * 20),
                        ("X", "a" * 5000)):
        done = instance.cay("secret", "set", name, stdin=value, check=False)
        equal(done.returncode, 125, f"{name} {value[:20]}: {done.stderr}")
        assert value not in done.stderr
    equal(instance.get("/v1/secrets")["secrets"], [])
    equal(raises(cay.ApiError, instance.call, "DELETE", "/v1/secrets/NOTHING").code, "not_found")
