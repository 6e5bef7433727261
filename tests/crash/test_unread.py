# SPDX-License-Identifier: Apache-2.0
"""A row of the catalogue that cannot be read (an error of the disk, somebody who holds the database locked) is not taken for one that is not there: nothing is done, and asked again it is."""

import json
import os
import sys

from lib import cay
from lib.case import contains, equal, raises, require
from lib.proxy import Upstream, fixed

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from points import own_instance  # noqa: E402

TIMEOUT = 180
KEY = {"Idempotency-Key": "once"}


def unread(function, *args, **kwargs):
    error = raises(cay.ApiError, function, *args, **kwargs)
    equal(error.code, "internal")
    contains(error.message, "read catalogue")


def again(instance, hit=2):
    """Another server, which cannot read the row that it looks for at the @hit-th time. The first is for its start: where the journal ended."""
    instance.stop()
    instance.start(CAY_FAULT=f"catalogue.get.before:{hit}=error")


@require("root")
def test_what_was_done_under_a_key_is_not_done_again(tmp):
    """Not even when nothing is left of it but the answer."""
    with own_instance(tmp) as instance:
        instance.start()
        first = instance.post("/v1/sandboxes", {"start": False}, headers=KEY)["id"]
        instance.remove(first)
        again(instance)
        unread(instance.post, "/v1/sandboxes", {"start": False}, headers=KEY)
        equal(instance.post("/v1/sandboxes", {"start": False}, headers=KEY)["id"], first)
        equal(instance.get("/v1/sandboxes")["sandboxes"], [])


@require("root")
def test_a_secret_is_neither_new_nor_gone(tmp):
    with own_instance(tmp) as instance:
        instance.start()
        for version in (1, 2):
            equal(instance.call("PUT", "/v1/secrets/API_KEY", {"value": "sk_live_0123456789"})["version"], version)
        again(instance)
        unread(instance.call, "PUT", "/v1/secrets/API_KEY", {"value": "sk_live_9876543210"})
        equal(instance.call("PUT", "/v1/secrets/API_KEY", {"value": "sk_live_9876543210"})["version"], 3)
        again(instance)
        unread(instance.call, "DELETE", "/v1/secrets/API_KEY")
        instance.call("DELETE", "/v1/secrets/API_KEY")
        equal(instance.get("/v1/secrets")["secrets"], [])


@require("root")
def test_a_chain_of_events_is_not_said_to_be_whole(tmp):
    """Its head says whether the end was cut off."""
    with own_instance(tmp) as instance:
        instance.start()
        box = instance.post("/v1/sandboxes", {"start": False})["id"]
        again(instance)
        unread(instance.get, f"/v1/sandboxes/{box}/events/verify")
        assert instance.get(f"/v1/sandboxes/{box}/events/verify")["ok"]


@require("root")
def test_a_gateway_goes_on_from_what_it_has_spent(tmp):
    """Whichever row of its state cannot be read in a start: the start fails and is tried again, or the gateway waits for it."""
    upstream = Upstream(fixed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
    rule = {"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True, "budget": {"requests": {"max": 2}}}

    def get():
        return int(instance.cay("exec", box, "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "http://api.example/", timeout=100).stdout)

    try:
        with own_instance(tmp) as instance:
            instance.start()
            box = instance.post("/v1/sandboxes", {"policy": json.dumps({"version": 1, "rules": [rule]})})["id"]
            equal([get() for _ in range(3)], [200, 200, 429])
            refused = 0
            for hit in range(1, 8):
                instance.post(f"/v1/sandboxes/{box}/stop")
                again(instance, hit)
                try:
                    instance.post(f"/v1/sandboxes/{box}/start")
                except cay.ApiError as error:
                    equal(error.code, "internal")
                    refused += 1
                    instance.post(f"/v1/sandboxes/{box}/start")
                try:
                    equal(get(), 429)
                except cay.CommandFailed as error:
                    contains(str(error), "read catalogue")
                    refused += 1
                    equal(get(), 429)
            assert refused >= 2, refused
            equal(upstream.text().count(b"HTTP/1.1\r\n"), 2)
    finally:
        upstream.close()
