# SPDX-License-Identifier: Apache-2.0
"""make install puts everything in its place, and what was installed runs from there."""

import os
import re
import subprocess

from install.installed import PROGRAMS, everything_works
from lib import cay
from lib.case import contains, equal, require

TIMEOUT = 180
# of a unit: no system call filter, no namespace and nothing else that programs of sandboxes would find themselves in
HARMLESS = {"Type", "ExecStart", "Restart", "KillMode", "Delegate", "OOMPolicy", "OOMScoreAdjust", "TasksMax", "LimitNOFILE", "LimitCORE", "UMask",
            "StateDirectory", "StateDirectoryMode", "RuntimeDirectory", "RuntimeDirectoryMode", "RuntimeDirectoryPreserve",
            "CapabilityBoundingSet", "KeyringMode"}


def install(tmp):
    """Install this build below @tmp; returns the prefix there."""
    done = subprocess.run(["/usr/bin/meson", "install", "-C", cay.BUILD, "--no-rebuild", "--quiet"], env={**os.environ, "DESTDIR": tmp},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    equal(done.returncode, 0, done.stdout)
    options = subprocess.run(["/usr/bin/meson", "introspect", cay.BUILD, "--buildoptions"], stdout=subprocess.PIPE, text=True, check=True)
    prefix = re.search(r'"name": "prefix", "value": "([^"]+)"', options.stdout)[1]
    return os.path.join(tmp, prefix.lstrip("/")), prefix


@require("program:groff")
def test_everything_is_in_its_place(tmp):
    top, _ = install(tmp)
    for name in ("bin/cay", "bin/cayd", *(f"libexec/cay/{one}" for one in PROGRAMS)):
        path = os.path.join(top, name)
        assert os.access(path, os.X_OK), f"{name} is not installed"
        mode = os.stat(path).st_mode & 0o7777
        equal(mode, 0o755, f"mode of {name}")
    equal(sorted(os.listdir(os.path.join(top, "libexec", "cay"))), sorted(PROGRAMS))
    with open(os.path.join(top, "lib/sysusers.d/cay.conf"), encoding="utf-8") as users:
        contains(users.read(), "cay")
    page = os.path.join(top, "share/man/man1/cay.1")
    done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", page], capture_output=True, text=True, check=True)
    equal(done.stderr, "", "what groff says of the manual page")
    for verb in ("run", "exec", "events retention", "completion"):
        contains(done.stdout, f"cay {verb}")
    contains(done.stdout, "--keep-output")
    for shell, path in (("bash", "bash-completion/completions/cay.bash"), ("zsh", "zsh/site-functions/_cay"), ("fish", "fish/vendor_completions.d/cay.fish")):
        with open(os.path.join(top, "share", path), encoding="utf-8") as script:
            equal(script.read(), subprocess.run([os.path.join(top, "bin", "cay"), "completion", shell], capture_output=True, text=True, check=True).stdout)
    others = [os.path.join(where, n) for where, _, names in os.walk(tmp) for n in names]
    outside = [p for p in others if not p.startswith(top + "/")]
    equal(outside, [], "files outside the prefix")
    assert not [p for p in others if "/test_" in p or "/replay_" in p or "redcell" in p], "test programs were installed"


def test_the_unit_starts_the_installed_program(tmp):
    top, prefix = install(tmp)
    with open(os.path.join(top, "lib/systemd/system/cayd.service"), encoding="utf-8") as f:
        unit = f.read()
    contains(unit, f"ExecStart={prefix}/bin/cayd --foreground")
    for line in ("Delegate=yes", "KillMode=process", "LimitCORE=1"):
        contains(unit, line)
    service = re.search(r"^\[Service\]$(.*?)^\[", unit, flags=re.M | re.S)[1]
    equal(sorted(set(re.findall(r"^(\w+)=", service, flags=re.M)) - HARMLESS), [],
          "directives of which nobody knows whether they are a filter, a namespace or a limit to all that sandboxes run")
    assert "@" not in re.sub(r"^#.*$", "", unit, flags=re.M), "a placeholder is left"


@require("root", "cgroup2")
def test_the_installed_programs_work(tmp):
    top, _ = install(tmp)
    everything_works(tmp, os.path.join(top, "bin"))


def test_a_program_that_is_missing_is_named(tmp):
    top, prefix = install(tmp)
    os.rename(os.path.join(top, "libexec"), os.path.join(top, "elsewhere"))
    done = subprocess.run([os.path.join(top, "bin", "cayd"), "--foreground"], env={**os.environ, "CAY_STATE": f"{tmp}/s", "CAY_RUN": f"{tmp}/r"},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    equal(done.returncode, 1, done.stdout)
    contains(done.stdout, f"{prefix}/bin/../libexec/cay/cay-spawn': No such file or directory")
