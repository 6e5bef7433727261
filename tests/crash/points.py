# SPDX-License-Identifier: Apache-2.0
"""What the tests share that kill at named fault points: a case for each point, and the log of those that were passed."""

import collections
import contextlib
import os

from lib import cay


@contextlib.contextmanager
def own_instance(tmp):
    """An instance that the test starts, and as often as it likes."""
    instance = cay.Instance(tmp)
    try:
        yield instance
    finally:
        instance.close()


def passed(tmp, use, **environment):
    """How often each point was passed by what use(instance) does on an instance that was started with @environment (not by what its end does)."""
    log = cay.fault_log(tmp)
    with own_instance(tmp) as instance:
        use(instance.start(CAY_FAULT_LOG=log, **environment))
        with open(log, encoding="utf-8") as f:
            return collections.Counter(f.read().split())
