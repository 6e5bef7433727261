# SPDX-License-Identifier: Apache-2.0
"""Timers run while their processes stand still: one that goes off then has gone off on both sides, or on both it is still to come. (What timers are: objects/timers.c.)"""

import contextlib
import os
import signal
import sys
import threading
import time

from lib import cay
from lib.case import require

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, start  # noqa: E402
from test_objects import both_go_on  # noqa: E402
from test_stopped import dumpers  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")

# Each time that it goes off it is set once more, as a scheduler does: when one is lost nothing happens any more.
TICKS = """
import ctypes, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
timer, ticks = ctypes.c_int(), 0
assert libc.syscall(222, 1, None, ctypes.byref(timer)) == 0  # timer_create(CLOCK_MONOTONIC, SIGALRM)
def tick(*_):
    global ticks
    ticks += 1
    assert libc.syscall(223, timer, 0, (ctypes.c_long * 4)(0, 0, 0, 100_000_000), None) == 0  # timer_settime()
signal.signal(signal.SIGALRM, tick)
tick()
print("ready", flush=True)
for line in sys.stdin:
    print(ticks, flush=True)
"""


@require(*NEEDS)
def test_one_that_goes_off_between_two_readings(tmp):
    """Of the signals that wait, and of what is left of the timer."""
    # only the first try is held: on a busy machine it takes longer than the timer, and so would each of the others, until the capture is given up
    instance = cay.Instance(tmp, env={"CAY_FAULT": "live.dump.hang.looked=hold", "CAY_FAULT_LOG": cay.fault_log(tmp)})
    try:
        instance.start()
        with instance.sandbox() as box:
            run = start(instance, box, "/usr/bin/python3", "-c", TICKS)
            answers = []
            thread = threading.Thread(target=lambda: answers.append(instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"][0]["id"]))
            thread.start()
            cay.wait_until(lambda: dumpers(instance), 30, "the dumper is held")
            time.sleep(0.12)
            while thread.is_alive():
                for one in dumpers(instance):
                    os.kill(one, signal.SIGCONT)
                thread.join(0.005)
            for one in (box, answers[0]):
                before = int(ask(instance, one, run, ""))
                cay.wait_until(lambda: int(ask(instance, one, run, "")) > before + 2, 20, "it goes on")
            instance.remove(answers[0])
    finally:
        instance.close()


@require(*NEEDS)
def test_a_timerfd_that_goes_off_while_it_is_read(tmp):
    """In that instant the kernel says of it what it says of one that is not set; the point answers so for all that have gone off."""
    with contextlib.closing(cay.Instance(tmp, env={"CAY_FAULT": "live.dump.timerfd" + ":1+=error"}).start()) as instance:
        both_go_on(instance, "events")
