# SPDX-License-Identifier: Apache-2.0
"""--json of every verb: the object that the API answers with, as defs/openapi.yaml describes it."""

import json
import os
import re
import subprocess
import sys

from lib import cay
from lib.case import equal, require

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "api"))
from test_openapi import judge, operations, resolved  # noqa: E402

# What each command answers with: the operation whose answer it prints, or the members of what is its own; in this order.
ROWS = (
    ("version", "version_get"), ("doctor", "doctor_get"), ("storage init", "storage_init"), ("storage info", "storage_get"), ("create --name box --mount {project}:/w", "sandbox_create"),
    ("run --no-cwd --name ran -- true", {"sandbox", "exec", "status", "summary", "id"}), ("exec box -- touch /w/new", {"sandbox", "exec", "status", "summary"}), ("exec -d box -- sleep 1000", "exec_create"),
    ("logs box {exec}", "exec_get"), ("kill box {exec}", {"signal", "tree"}), ("attach box {exec}", {"sandbox", "exec", "status", "summary"}), ("set box --idle 1h", "sandbox_set"),
    ("ps", "sandbox_list"), ("info box", "sandbox_get"), ("steps box", "step_list"), ("usage box", "sandbox_usage"), ("doctor box", "sandbox_doctor"), ("net box", None), ("events box", "event"),
    ("events verify box", "events_verify"), ("events verify", "events_verify_all"), ("events retention", "retention_get"), ("snapshot box --name kept", "snapshot_create"),
    ("snapshots box", "snapshot_list"), ("info kept", "snapshot_get"), ("verify kept", "snapshot_verify"), ("fork kept --name other", "snapshot_fork"), ("fork box -n 2", "sandbox_fork"),
    ("diff box", "diff_get"), ("apply box --dry-run", "sandbox_apply"), ("apply box", "sandbox_apply"), ("cp {project}/new box:/root/", {"from", "to"}), ("rewind box kept", "sandbox_rewind"),
    ("pause box", "sandbox_pause"), ("suspend other", "sandbox_suspend"), ("resume box", "sandbox_resume"), ("stop box", "sandbox_stop"), ("start box", "sandbox_start"),
    ("policy presets", "policy_presets"), ("policy check mail-sink", "policy_check"), ("policy explain mail-sink https://a.example/", "policy_explain"), ("policy set box mail-sink", "sandbox_policy_set"),
    ("policy show box", "sandbox_policy_get"), ("mail ls box", "mail_list"), ("secret set KEY", "secret_set"), ("secret ls", "secret_list"), ("secret rm KEY", {"removed"}),
    ("image import {archive} small", "image_import"), ("image ls", "image_list"), ("image rm small", {"removed"}), ("rm -f box other ran", {"removed"}), ("prune", "prune"))
OWN = {"version": {"client", "client_build"}}  # what stands beside the answer
# tests/gateway/test_mail.py, test_restart.py; and what asks for nothing
ELSEWHERE = {"mail show", "shutdown", "completion", "help"}


def schema_of(operation):
    answers = next(o["responses"] for _, _, o, _ in operations() if o["operationId"] == operation)
    return next(resolved(answers[status])["content"]["application/json"]["schema"] for status in ("200", "201") if status in answers)


def check(said, want, where):
    if isinstance(want, set):
        equal(set(json.loads(said)), want, where)
    elif want == "event":
        for line in said.splitlines():
            judge({"$ref": "#/components/schemas/Event"}, json.loads(line), where)
    elif want is None:
        equal(said, "", where)
    else:
        judge(schema_of(want), {name: value for name, value in json.loads(said).items() if name not in OWN.get(where, ())}, where)


@require("group")
def test_every_verb_prints_the_object(fresh, tmp):
    project, archive = os.path.join(tmp, "project"), os.path.join(tmp, "root.tar")
    os.mkdir(project)
    subprocess.run(["tar", "cf", archive, "-C", tmp, "project"], check=True)
    names, asked = {"project": project, "archive": archive}, set()
    with open(os.path.join(cay.TOP, "defs", "cli.def"), encoding="utf-8") as f:
        verbs = set(re.findall(r"^VERB\(\w+, \"([^\"]+)\"", f.read(), re.M))
    for row, want in ROWS:
        words = [word.format(**names) for word in row.split()]
        where = " ".join(words)
        at = words.index("--") if "--" in words else len(words)
        words.insert(at, "--json")
        done = fresh.cay(*words, stdin="sk_live_0123456789" if where == "secret set KEY" else None, want=137 if words[0] == "attach" else 0)
        check(done.stdout, want, where)
        asked.add(next(verb for verb in (" ".join(row.split()[:2]), row.split()[0]) if verb in verbs))
        if want == "exec_create":
            names["exec"] = json.loads(done.stdout)["id"]
    equal(verbs - asked - ELSEWHERE, set(), "verbs that nobody asked")
