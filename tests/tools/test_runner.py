# SPDX-License-Identifier: Apache-2.0
"""The runner itself: what a test leaves behind is found, what hangs is ended, a skip that must not be is a failure, and nothing counts as
passed that did not run. Each case runs a copy of tests/run.py over a small tree of its own."""

import os
import re
import shutil
import subprocess

from lib import cay
from lib.case import contains, equal

HEAD = "from lib import case\n"


def tree(tmp):
    return os.path.join(tmp, "tree")


def outcome(tmp, text, *arguments, **env):
    """Run a runner over one test file: (status, output, last line)."""
    top = tree(tmp)
    shutil.copytree(os.path.join(cay.TOP, "tests", "lib"), os.path.join(top, "tests", "lib"), ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(os.path.join(cay.TOP, "tests", "run.py"), os.path.join(top, "tests"))
    if text is not None:
        os.mkdir(os.path.join(top, "tests", "x"))
        with open(os.path.join(top, "tests", "x", "test_x.py"), "w", encoding="utf-8") as f:
            f.write(HEAD + text)
    clean = {k: v for k, v in os.environ.items() if k not in ("REQUIRE", "CAY_TEST_EXCLUSIVE", "UBSAN_OPTIONS")}
    done = subprocess.run(["/usr/bin/python3", "-B", os.path.join(top, "tests", "run.py"), *arguments], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env={**clean, **env})
    return done.returncode, done.stdout, done.stdout.splitlines()[-1]


def test_no_test_is_a_failure(tmp):
    status, _, last = outcome(tmp, None)
    equal((status, last), (1, "0 passed, 0 failed, 0 skipped"))


def test_a_file_without_cases_is_a_failure(tmp):
    status, _, last = outcome(tmp, "x = 1\n")
    equal((status, last), (1, "0 passed, 1 failed, 0 skipped"))


def test_a_file_that_does_not_load_is_a_failure(tmp):
    status, text, last = outcome(tmp, "import no_such_module\ndef test_a(): pass\n")
    equal((status, last), (1, "0 passed, 1 failed, 0 skipped"))
    contains(text, "no_such_module")


def test_a_failed_check_is_shown(tmp):
    status, text, last = outcome(tmp, "def test_a():\n    print('printed')\n    case.equal(1, 2, 'numbers')\ndef test_b(): pass\n")
    equal((status, last), (1, "1 passed, 1 failed, 0 skipped"))
    contains(text, "numbers: got 1, want 2")
    contains(text, "printed")


def test_a_process_that_stays_is_found_and_ended(tmp):
    status, text, last = outcome(tmp, "import subprocess\ndef test_a():\n    subprocess.Popen(['setsid', '-f', 'sleep', '4711'])\n")
    equal((status, last), (1, "1 passed, 1 failed, 0 skipped"))
    contains(text, "sleep 4711")
    pid = re.search(r"process (\d+) sleep", text)[1]
    assert not os.path.exists(f"/proc/{pid}"), "it still runs"


def test_a_program_that_ends_itself_is_a_failure(tmp):
    status, text, last = outcome(tmp, "import os\ndef test_a(): os._exit(0)\n")
    equal((status, last), (1, "0 passed, 1 failed, 0 skipped"))
    contains(text, "test_a")


def test_a_hang_is_ended_and_shown(tmp):
    status, text, last = outcome(tmp, "import subprocess\n@case.timeout(1)\ndef test_a():\n    subprocess.run(['sleep', '4712'])\n")
    equal(status, 1)
    contains(text, "still running after 1 s")
    contains(text, "sleep 4712")
    contains(last, "1 failed" if "(leaks)" not in text else "2 failed")


def test_a_skip_says_why_and_is_a_failure_when_required(tmp):
    text = "@case.require('program:no-such-program')\ndef test_a(): pass\ndef test_b(): pass\n"
    status, out, last = outcome(tmp, text)
    equal((status, last), (0, "1 passed, 0 failed, 1 skipped"))
    contains(out, "no-such-program is not installed")


def test_a_required_skip_is_a_failure(tmp):
    text = "@case.require('program:no-such-program')\ndef test_a(): pass\n"
    equal(outcome(tmp, text, REQUIRE="all")[2], "0 passed, 1 failed, 0 skipped")


def test_only_runs_what_was_named(tmp):
    text = "def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert False\n"
    equal(outcome(tmp, text, "--only", "test_b")[2], "1 passed, 0 failed, 0 skipped")


FAILS_AT_FIRST = """import os
MARK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mark")
def times():
    with open(MARK, "a+") as f:
        f.write("x")
        f.seek(0)
        return len(f.read())
"""


def test_what_fails_once_and_then_always_passes_is_told_as_unsteady(tmp):
    text = FAILS_AT_FIRST + "def test_a(): case.equal(times() > 1, True, 'first')\ndef test_b(): pass\n"
    status, out, last = outcome(tmp, text, "--steady")
    equal((status, last), (0, "2 passed, 0 failed, 0 skipped"))
    contains(out, "unsteady, it failed once and then passed 3 times: x/test_x.test_a")
    contains(out, "first: got False")
    equal(out.count("x/test_x.test_b "), 1)


def test_what_fails_once_is_a_failure_unless_told_otherwise(tmp):
    equal(outcome(tmp, FAILS_AT_FIRST + "def test_a(): assert times() > 1\n")[2], "0 passed, 1 failed, 0 skipped")


def test_what_fails_twice_stays_a_failure(tmp):
    status, out, last = outcome(tmp, FAILS_AT_FIRST + "def test_a(): assert times() not in (1, 4)\n", "--steady")
    equal((status, last), (1, "0 passed, 1 failed, 0 skipped"))
    contains(out, "failed: x/test_x.test_a")


def test_a_leak_that_comes_once_is_looked_for_in_the_whole_file(tmp):
    text = FAILS_AT_FIRST + "import subprocess\ndef test_a():\n    if times() == 1: subprocess.Popen(['setsid', '-f', 'sleep', '4713'])\n"
    status, out, last = outcome(tmp, text, "--steady")
    equal((status, last), (0, "2 passed, 0 failed, 0 skipped"))
    contains(out, "then passed 3 times: x/test_x.(leaks)")


def test_cases_that_never_ran_are_not_made_up_for_by_repeating(tmp):
    text = FAILS_AT_FIRST + "def test_a(): times() > 1 or os._exit(3)\ndef test_b(): pass\n"
    equal(outcome(tmp, text, "--steady")[2], "0 passed, 1 failed, 0 skipped")


def test_more_than_a_few_that_fail_are_failures(tmp):
    text = FAILS_AT_FIRST + "def once(): assert times() > 6\n" + "".join(f"def test_{i}(): once()\n" for i in range(6))
    equal(outcome(tmp, text, "--steady")[2], "0 passed, 6 failed, 0 skipped")


UNDEFINED = """#include <limits.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	int n = INT_MAX - 1 + argc;

	(void)argv;
	puts("ok 1 - sum");
	fflush(stdout);
	return n + 1 == 0;
}
"""


def test_undefined_behaviour_in_a_program_that_goes_on_is_a_failure(tmp):
    source = os.path.join(tmp, "undefined.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write(UNDEFINED)
    where = os.path.join(tree(tmp), "build-sanitize")
    for directory, name in (("tests/unit", "test_undefined"), ("fuzz", "replay_undefined")):
        os.makedirs(os.path.join(where, directory))
        subprocess.run(["cc", "-fsanitize=undefined", "-o", os.path.join(where, directory, name), source], check=True)
    status, out, _ = outcome(tmp, None, "--sanitized", where)
    equal(status, 1)
    for name in ("sanitized/unit/undefined", "sanitized/fuzz/undefined"):
        contains(out, f"FAIL {name} ")
    contains(out, "signed integer overflow")
