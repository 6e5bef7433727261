# SPDX-License-Identifier: Apache-2.0
"""`cay run` in a directory of the machine: it is not laid into the sandbox, which would show what the host image hides."""

import os
import subprocess

from lib import cay
from lib.case import contains, equal, require


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


@require("root")
def test_what_was_mounted_just_now_is_what_a_run_sees(instance, tmp):
    """Prepared sandboxes know the machine's mounts as they were: below a new one they would find what it hides, and take that for the directory."""
    place = os.path.join(tmp, "disk")
    os.mkdir(place)
    with open(os.path.join(place, "note"), "w", encoding="utf-8") as file:
        file.write("below")
    for turn in range(3):
        cay.wait_until(lambda: instance.get("/v1/version")["pool"] > 0, 60, "a prepared sandbox")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], check=True)
        try:
            with open(os.path.join(place, "note"), "w", encoding="utf-8") as file:
                file.write(f"turn {turn}")
            equal(instance.cay("run", "--rm", "--", "cat", "note", cwd=place).stdout, f"turn {turn}")
        finally:
            subprocess.run(["umount", place], check=True)
        equal(instance.cay("run", "--rm", "--", "cat", "note", cwd=place).stdout, "below")


@require("root")
def test_an_overlay_is_named(instance, tmp):
    """It takes no map of ids: whatever image is used, and however it is to be mounted."""
    place = os.path.join(tmp, "merged")
    for name in ("below", "above", "work", "merged"):
        os.mkdir(os.path.join(tmp, name))
    options = f"lowerdir={tmp}/below,upperdir={tmp}/above,workdir={tmp}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, place], check=True)
    try:
        for way in ((), ("--no-cwd", "--mount", f"{place}:/x:ro")):
            done = instance.cay("run", *way, "--", "true", want=125, cwd=place)
            contains(done.stderr, f"'{place}' is on an overlay, as in a container, which takes no map of ids")
            contains(done.stderr, "hint: what is on another file system can be used")
    finally:
        subprocess.run(["umount", place], check=True)


@require("root")
def test_a_file_system_that_takes_no_map_of_ids_is_named(instance, tmp):
    """As tmpfs before Linux 6.3, NFS, most of FUSE."""
    place = os.path.join(tmp, "memory")
    os.mkdir(place)
    subprocess.run(["mount", "-t", "ramfs", "ramfs", place], check=True)
    try:
        for way in ((), ("--no-cwd", "--mount", f"{place}:/x:ro"), ("--no-cwd", "--mount", f"{place}:/x:rw")):
            done = instance.cay("run", *way, "--", "true", want=125, cwd=place)
            contains(done.stderr, f"'{place}' is on a file system that takes no map of ids")
            contains(done.stderr, "hint: tmpfs takes one from Linux 6.3 on")
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_directory_that_is_gone(instance, tmp):
    gone = os.path.join(tmp, "gone")

    def cay_there(*args, **more):
        os.mkdir(gone)
        script = 'cd "$0" && rmdir "$0" && exec "$@"'
        done = subprocess.run(["sh", "-c", script, gone, os.path.join(instance.programs, "cay"), *args], env=instance.environment(), capture_output=True, text=True, check=False, **more)
        return done.returncode, done.stdout, done.stderr.splitlines()

    equal(cay_there("run", "--", "pwd"), (125, "", ["cay: the current directory is gone", "hint: go to one that is there, or leave it out with --no-cwd"]))
    equal(cay_there("run", "--rm", "--no-cwd", "--", "echo", "yes"), (0, "yes\n", []))
    equal(cay_there("diff")[2][0], "cay: the current directory is gone")
    equal(cay_there("create", "--mount", ".:/x")[2][0], "cay: --mount '.:/x': the source is no usable path")


def look_into_roots(instance, *names):
    """What tools do that look at every process of a machine. How many of them were in a root of their own."""
    seen = 0
    for pid in instance.own_processes():
        root = f"/proc/{pid}/root"
        seen += os.path.exists(f"{root}/dev/shm") and not os.path.exists(root + instance.dir)
        for name in names:
            os.path.exists(root + name)
    return seen


@require("root")
def test_who_looks_into_a_prepared_sandbox_does_not_spoil_it(instance, tmp):
    """What was looked up in its root before its mount points were made must not stay as it was found."""
    place = os.path.join(tmp, "project")
    os.mkdir(place)
    for _ in range(3):
        cay.wait_until(lambda: look_into_roots(instance, "/tmp", place, "/run/cay/trust") > 0, 60, "a prepared sandbox")
        equal(instance.cay("run", "--rm", "--", "pwd", cwd=place).stdout, place + "\n")
