# SPDX-License-Identifier: Apache-2.0
"""State, and six threads that share a lock; each line of input is evaluated."""
import sys
import threading
import time

count, lock = [0], threading.Lock()


def work():
    while True:
        with lock:
            count[0] += 1
        time.sleep(0.002)


for i in range(6):
    threading.Thread(target=work, daemon=True, name=f"worker-{i}").start()


def goes_on():
    before = count[0]
    while count[0] == before:
        time.sleep(0.001)
    return True


state = {"seen": []}


def tell(word):
    state["seen"].append(word)
    assert goes_on() and threading.active_count() == 7
    return " ".join(state["seen"])


print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
