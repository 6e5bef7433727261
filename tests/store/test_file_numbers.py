# SPDX-License-Identifier: Apache-2.0
"""No two files of a sandbox have one inode number, whichever layers they lie in: mv, cp and cmp take such two for one file, and SQLite has them share its locks."""

import os

from lib.case import equal, require

PLACES = "/var/tmp /project"
# So many new files in each place, then what has a number that something else has too.
MAKE = f"for place in {PLACES}; do mkdir -p $place/deep; for i in $(seq {{}}); do echo {{}} > $place/{{}}$i; echo > $place/deep/{{}}$i; done; done"
SHARED = f"find {PLACES} -type f -printf '%D %i\\n' | sort | uniq -d"


def new_files(instance, box, name, count=20):
    instance.ok(box, MAKE.format(count, name, name, name))
    equal(instance.ok(box, SHARED), "", f"{name}: numbers that two files have")
    instance.ok(box, f"cd /var/tmp; for f in *; do [ $f = {name}1 ] || ! [ $f -ef {name}1 ] || exit 1; done; cp {name}1 {name}2 && mv {name}2 {name}3")


@require("root", "btrfs_squota")
def test_files_of_layers_and_new_ones_have_different_numbers(instance, tmp):
    project = os.path.join(tmp, "project")
    os.mkdir(project)
    with instance.sandbox(mounts=[{"source": project, "target": "/project"}]) as box:
        new_files(instance, box, "first", 60)
        fork = instance.post(f"/v1/sandboxes/{box}/fork", {"live": False})["sandboxes"][0]["id"]
        new_files(instance, fork, "in-fork")
        again = instance.post(f"/v1/sandboxes/{fork}/fork", {})["sandboxes"][0]["id"]  # and one that was prepared, when there are several
        new_files(instance, again, "in-fork-of-fork")
        snapshot = instance.post(f"/v1/sandboxes/{again}/snapshots", {"files_only": False})["id"]
        for number in range(3):
            instance.post(f"/v1/sandboxes/{again}/rewind", {"snapshot": snapshot})
            new_files(instance, again, f"rewound-{number}")
        instance.post(f"/v1/sandboxes/{again}/stop")
        instance.post(f"/v1/sandboxes/{again}/start")
        new_files(instance, again, "started")
        for number in range(4):
            more = instance.post(f"/v1/snapshots/{snapshot}/fork", {})["sandboxes"][0]["id"]
            new_files(instance, more, f"more-{number}", 3)
            instance.remove(more)
        for each in (again, fork):
            instance.remove(each)
