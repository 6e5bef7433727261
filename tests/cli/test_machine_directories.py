# SPDX-License-Identifier: Apache-2.0
"""`cay run` in a directory of the machine: it is not laid into the sandbox, which would show what the host image hides."""

import os

from lib.case import equal, require


@require("root")
def test_etc_stays_masked(instance):
    with open("/etc/shadow", encoding="utf-8") as file:
        real = file.read()
    for directory in ("/", "/etc", "/var", "/usr"):
        done = instance.cay("run", "--", "cat", "/etc/shadow", cwd=directory)
        assert done.stdout != real, f"the real /etc/shadow is shown to a run in {directory}"
        mounted = instance.cay("run", "--", "sh", "-c", "grep -c ' /etc ' /proc/self/mountinfo || true", cwd=directory)
        equal(mounted.stdout.strip(), "0", directory)


def test_a_project_is_laid_there(instance, tmp):
    """The control: an ordinary directory is, so the test above can fail."""
    with open(os.path.join(tmp, "here"), "w", encoding="utf-8") as file:
        file.write("yes")
    equal(instance.cay("run", "--", "cat", "here", cwd=tmp).stdout, "yes")
