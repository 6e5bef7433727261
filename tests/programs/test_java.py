# SPDX-License-Identifier: Apache-2.0
"""A JVM, which asks sysinfo(2) how much memory there is: it takes its share of the sandbox's, so that a program which makes garbage is not killed at the limit."""

import os
import subprocess
import tempfile

from lib.case import equal, require

TIMEOUT = 120
MIB = 1 << 20

# It keeps 50 MB, and makes as many MiB of garbage as it is told.
PROGRAM = """
public class Garbage {
	static byte[] last;
	public static void main(String[] arguments) {
		byte[][] kept = new byte[50][];
		for (int i = 0; i < kept.length; i++)
			kept[i] = new byte[1000000];
		for (int i = Integer.parseInt(arguments[0]) * 8; i > 0; i--)
			last = new byte[131072];
		System.out.println(Runtime.getRuntime().maxMemory() >> 20);
	}
}
"""


@require("root", "cgroup2", "program:javac")
def test_a_quarter_of_the_limit(instance):
    """A collector with few processors does not count one of the places for survivors, a thirtieth."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "Garbage.java"), "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        subprocess.run(["javac", "-d", folder, f.name], check=True)
        os.chmod(folder, 0o755)
        for limits, total, garbage in (({"memory_bytes": 512 * MIB}, 512, 2000), ({}, 2048, 3000)):
            with instance.sandbox(limits=limits) as box:
                instance.cay("cp", os.path.join(folder, "Garbage.class"), f"{box}:/var/tmp/Garbage.class")
                run = instance.exec(box, "/usr/bin/java", "-cp", "/var/tmp", "Garbage", str(garbage))
                ended, said = instance.wait(box, run), instance.output(box, run, "stdout")
                equal(ended["status"], "exited", said)
                assert total / 4 * 29 / 30 - 1 <= int(said) <= total / 4, said
                equal(instance.output(box, run, "stderr"), b"")
