# SPDX-License-Identifier: Apache-2.0
"""1,200 snapshots of one sandbox, each a layer above the last, where the kernel stacks 500: all of them work."""

import os
import sys

from lib.case import contains, equal, require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chain  # noqa: E402

LONG = True
TIMEOUT = 1800
EVERY = 40


@require("root")
def test_a_chain_of_1200_snapshots(fresh):
    with fresh.sandbox() as box:
        fresh.post(f"/v1/sandboxes/{box}/stop")
        ids = chain.grow(fresh, box, 0, 1200, EVERY)
        chain.wait_short(fresh, 250)
        for number in (0, 1, 63, 64, 127, 500, 839, 1100, 1199):
            chain.check(fresh, ids[number], number, EVERY)
        changes = fresh.json("diff", ids[100], ids[1199])["changes"]
        equal(sorted((c["path"], c["kind"]) for c in changes),
              [("/var/tmp/f1120", "added"), ("/var/tmp/f1160", "added"), ("/var/tmp/f40", "deleted"), ("/var/tmp/f80", "deleted"),
               ("/var/tmp/last", "modified")])
        fresh.post(f"/v1/sandboxes/{box}/start")
        equal(fresh.ok(box, "cat /var/tmp/last"), "1160\n")
        for name in ids[:1199]:
            fresh.call("DELETE", f"/v1/snapshots/{name}")
        fresh.post("/v1/prune", {})
        equal(chain.layers_on_disk(fresh), chain.layers_known(fresh))
        chain.check(fresh, ids[1199], 1199, EVERY)
        equal(fresh.post(f"/v1/snapshots/{ids[1199]}/verify")["state"], "verified")
        contains(str(fresh.get("/v1/version")), "root")
