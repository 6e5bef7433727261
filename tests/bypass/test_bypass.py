# SPDX-License-Identifier: Apache-2.0
"""Contract OUT from the side of whoever wants out: no way around the gateway works in the shipped build. That each of these attempts would work without the
defence that stops it is shown by `make attack`, which runs the same cases with the defences switched off."""

import os
import sys
import tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import bypass  # noqa: E402
from lib import cay  # noqa: E402
from lib.case import equal, require  # noqa: E402

TIMEOUT = 400


class Session:
    """What a case wants of the attack suite's session."""

    def __init__(self, top):
        self.build, self.top, self.ablate, self.user, self.at_end = cay.BUILD, top, (), None, []


@require("root")
def test_nothing_gets_around_the_gateway(tmp):
    os.chmod(tmp, 0o755)
    session = Session(tempfile.mkdtemp(dir=tmp))
    os.chmod(session.top, 0o755)
    try:
        bad = []
        for case in bypass.CASES:
            outcome, detail = case.function(session)
            print(f"{case.id:<8}{outcome:<12}{case.attack:<70} {detail}"[:200])
            bad += [] if outcome in ("blocked", "unreachable") else [f"{case.id} {outcome}: {detail}"]
        equal(bad, [])
        # the world would have heard: what is allowed did arrive
        assert session.bypass.world.heard("self") and session.bypass.world.heard("neighbour")
    finally:
        for end in session.at_end:
            end()
