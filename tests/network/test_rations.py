# SPDX-License-Identifier: Apache-2.0
"""How much a sandbox may have of what the kernel charges to nobody (docs/design/0007, Rations): what is within goes on, and the first refusal is told.

What keeps an attacker: tests/attack, RX-02 and RX-24 and RX-25."""

from lib.case import equal

TIMEOUT = 60
NEEDS = ("root", "cgroup2")

ATTACH = """
import ctypes, socket, struct, sys
length, times = map(int, sys.argv[1:])
memory = ctypes.create_string_buffer(length * struct.pack("=HBBI", 0x06, 0, 0, 0xffff))
program = struct.pack("=H6xQ", length, ctypes.addressof(memory))
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
n = 0
try:
    for n in range(times):
        s.setsockopt(socket.SOL_SOCKET, 26, program)
    print("all")
except OSError as e:
    print(n, e.errno)
"""


def test_a_long_filter_before_a_socket(instance):
    """As long as kernels before 6.8 take it, without being told otherwise."""
    with instance.sandbox() as box:
        equal(instance.cay("exec", box, "--", "python3", "-c", ATTACH, "1000", "1").stdout, "all\n")


def test_the_first_refusal_is_told(instance):
    """Of each kind one event, with how many there may be."""
    with instance.sandbox() as box:
        for n in (256, 0):
            equal(instance.cay("exec", box, "--", "python3", "-c", ATTACH, "1", "300").stdout, f"{n} 105\n")
        hit = instance.wait_event("limit.hit", box)["data"]
        equal((hit["limit"], hit["detail"]["most"]), ("socket_filters", 256))
        equal(sum(e["type"] == "limit.hit" for e in instance.events(box)), 1)
