# SPDX-License-Identifier: Apache-2.0
"""How patient the tests are: CAY_TEST_SLOW=N stretches every deadline N times, for a machine that is emulated.
A deadline only says when to give up; no test measures with it."""

import os

SLOW = int(os.environ.get("CAY_TEST_SLOW", "1"))


def patience(seconds):
    """When this machine may give up on what takes at most @seconds elsewhere."""
    return seconds * SLOW
