# SPDX-License-Identifier: Apache-2.0
"""The process that starts the programs of a sandbox: it outlives them when memory runs out, and is not missed in silence when it is killed."""

import os
import signal
import subprocess

from lib import cay, leaks
from lib.case import contains, equal, require

MIB = 1 << 20
# smaller than any process of ours: what it fills is a file, which is gone with it
FILL = """
static long call3(long number, long a, long b, long c)
{
#if defined(__x86_64__)
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#endif
}
#include <asm/unistd.h>
static char page[4096];
void _start(void)
{
	long file = call3(__NR_memfd_create, (long)"filled", 0, 0);
	while (call3(__NR_write, file, (long)page, sizeof(page)) > 0)
		;
	call3(__NR_exit_group, 7, 0, 0);
}
"""


def starters(box):
    """Pids of the processes of that name that are children of the keeper of @box."""
    keeper = leaks.keeper_of(box)
    return [pid for pid, (parent, _, name) in leaks.processes().items() if (parent, name) == (keeper, "cay-starter")]


@require("root", "program:gcc")
def test_memory_that_runs_out_leaves_it(instance, tmp):
    """What fills the memory is smaller than it."""
    top = os.path.join(tmp, "project")
    os.mkdir(top)
    subprocess.run(["gcc", "-O2", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-x", "c", "-", "-o", f"{top}/fill"],
                   input=FILL.encode(), check=True)
    with instance.sandbox(limits={"memory_bytes": 64 * MIB}, mounts=[{"source": top, "target": "/p", "mode": "ro"}]) as box:
        before = starters(box)
        equal(instance.wait(box, instance.exec(box, "/p/fill"))["status"], "oom")
        equal(starters(box), before)
        instance.ok(box, "true")


@require("root")
def test_a_sandbox_whose_starter_is_killed_says_so(fresh):
    box = fresh.post("/v1/sandboxes", {"name": "box"})["id"]
    run = fresh.exec(box, "sleep", "1000")
    [starter] = starters(box)
    os.kill(starter, signal.SIGKILL)
    end = fresh.wait(box, run)
    equal((end["status"], end["evidence"]["reason"]), ("lost", "the process that starts its programs was killed"))
    cay.wait_until(lambda: fresh.get("/v1/sandboxes/box")["state"] == "failed", 30, "it has failed")
    contains(fresh.get("/v1/sandboxes/box")["error"]["message"], "the process that starts its programs was killed")
    fresh.post("/v1/sandboxes/box/start")
    fresh.ok("box", "true")
