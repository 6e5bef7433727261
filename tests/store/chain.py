# SPDX-License-Identifier: Apache-2.0
"""A chain of snapshots of one stopped sandbox, each a layer; now and then with a change."""

import os

from lib import cay
from lib.case import equal


def grow(instance, box, first, last, every):
    """Snapshots first..last-1 of the stopped sandbox; before each @every-th a file is written and another removed. Returns their ids."""
    ids = []
    for number in range(first, last):
        if number % every == 0:
            instance.post(f"/v1/sandboxes/{box}/start")
            instance.ok(box, f"echo {number} > /var/tmp/f{number}; rm -f /var/tmp/f{number - 2 * every}; echo {number} > /var/tmp/last")
            instance.post(f"/v1/sandboxes/{box}/stop")
        ids.append(instance.post(f"/v1/sandboxes/{box}/snapshots", {})["id"])
    return ids


def expected(number, every):
    """What `ls /var/tmp; cat /var/tmp/last` shows in snapshot @number."""
    newest = number - number % every
    files = sorted({f"f{n}" for n in (newest, newest - every) if n >= 0} | {"last"})
    return "\n".join(files) + f"\n{newest}\n"


def check(instance, snapshot, number, every):
    [fork] = instance.post(f"/v1/snapshots/{snapshot}/fork", {})["sandboxes"]
    equal(instance.ok(fork["id"], "ls /var/tmp; cat /var/tmp/last"), expected(number, every))
    instance.remove(fork["id"])


def layers_on_disk(instance):
    return set(os.listdir(os.path.join(instance.state, "pool", "layers")))


def layers_known(instance):
    known = {layer for s in instance.get("/v1/snapshots")["snapshots"] for layer in s["layers"]}
    return known | {layer for s in instance.get("/v1/sandboxes")["sandboxes"] for layer in s["layers"]}


def longest(instance):
    return max(len(s["layers"]) for s in instance.get("/v1/snapshots")["snapshots"])


def wait_short(instance, most):
    cay.wait_until(lambda: longest(instance) < most, 120, "long chains are flattened")
