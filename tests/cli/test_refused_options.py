# SPDX-License-Identifier: Apache-2.0
"""Whoever gave an option a value that is refused reads the name of the option, whether the command or the server refuses it, for every option of every verb."""

import json
import os
import re

import yaml

from lib import cay
from lib.case import contains, equal

with open(os.path.join(cay.TOP, "defs", "cli.def"), encoding="utf-8") as source:
    TABLE = source.read()
FLAGS = {name: long for name, long, value in re.findall(r'^FLAG\((\w+), [^,]+, "([^"]+)", (NULL|"[^"]*"),', TABLE, re.M) if value != "NULL"}
VERBS = dict(re.findall(r'^VERB\((\w+), "([^"]+)"', TABLE, re.M))
TAKES = [(verb, flag) for verb, flag in re.findall(r"^TAKES\((\w+), (\w+)\)", TABLE, re.M) if flag in FLAGS]
SETS = re.findall(r'^SETS\((\w+), "([^"]+)"\)', TABLE, re.M)

LONG = "x" * 70000  # more than any name, still an argument
TEXT = "x" * 10000

# A value that is refused, and the reason where the server gives it.
REFUSED = {
    "NAME": ("A B", "must be a name"), "MOUNT": ("relative", ""), "EXPOSE": ("/no/such", ""), "ALLOW": ("h" * 300, "is longer than 260 bytes"), "METHOD": ("M" * 40, "is longer than 32 bytes"),
    "HEADER": ("A: " + TEXT, "is longer than 8192 bytes"), "BODY": ("{", ""), "POLICY": ("/no/such", ""), "ENV": ("=x", ""), "TIMEOUT": ("soon", ""), "KEEP_OUTPUT": ("1", "must be from 4096 to 1099511627776, not 1 (bytes)"),
    "OUTPUT_RING": ("1G", "must be from 4096 to 67108864, not 1073741824 (bytes)"), "PROFILE": ("lax", "has no value 'lax'"), "MEMORY": ("1", "must be from 4194304 to 1125899906842624, not 1 (bytes)"),
    "PIDS": ("4194305", "must be from 1 to 4194304, not 4194305"), "CPUS": ("0.001", "must be from 10 to 1024000, not 1 (thousandths)"), "DISK": ("1K", "must be from 1048576 to 1125899906842624, not 1024 (bytes)"),
    "INODES": ("1", "must be from 16 to 1000000000, not 1"), "USER": ("u" * 65, "is longer than 64 bytes"), "CWD": ("/" + LONG, ""), "LABEL": ("k=" + TEXT, "is longer than 255 bytes"),
    "IDEMPOTENCY_KEY": ("k" * 256, "must have 1 to 255 bytes"), "FROM": ("-1", ""), "UNTIL": ("-1", ""), "CHECKPOINT": ("always", ""), "IDLE": ("1000000000000h", ""), "COUNT": ("1001", ""),
    "MOUNTED": ("relative", "must be an absolute path"), "TO": ("/a\nb", ""), "GRACE": ("11m", ""),
    "SIZE": ("1M", "must be from 268435456 to 1125899906842624, not 1048576 (bytes)"), "MAX_SIZE": ("2000T", "must be from 0 to 1125899906842624"), "MAX_AGE": ("500ms", ""),
    "REMOVED_AGE": ("40000d", "must be from 0 to 3153600000, not 3456000000 (seconds)"), "SEGMENT_SIZE": ("1K", "must be from 65536 to 1073741824, not 1024 (bytes)"), "SIGNAL": ("65", ""),
    "LIMIT_BYTES": ("2000T", "must be from 1 to 1125899906842624"), "LIMIT_ENTRIES": ("1000000001", "must be from 1 to 1000000000, not 1000000001"), "LIMIT_TIME": ("1000h", "must be from 1 to 2147483647")}
# of cay ps
FILTER = ("k=" + TEXT[:600], "is longer than 512 bytes")
WORDS = {"RUN": ["--no-cwd", "--", "true"], "EXEC": ["box", "--", "true"], "ATTACH": ["box", "EXEC"], "KILL": ["box", "EXEC"], "LOGS": ["box"], "STOP": ["box"], "SET": ["box"], "SNAPSHOT": ["box"], "FORK": ["box"], "REWIND": ["box", "none"],
         "APPLY": ["box"], "NET": ["box"], "POLICY_EXPLAIN": ["box", "https://x.example/"], "IMAGE_IMPORT": ["/etc/passwd"]}


def test_every_option_names_itself(instance):
    with instance.sandbox(name="box") as box:
        done = instance.cay("exec", "--json", box, "--", "true")
        ids = {"EXEC": json.loads(done.stdout)["exec"]["id"]}
        for verb, flag in (pair for pair in TAKES if pair[1] != "IF"):
            value, reason = FILTER if (verb, flag) == ("PS", "LABEL") else REFUSED[flag]
            words = [ids.get(word, word) for word in WORDS.get(verb, [])]
            done = instance.cay(*VERBS[verb].split(), f"--{FLAGS[flag]}", value, *words, check=False)
            assert done.returncode in (64, 125), (verb, flag, done.returncode, done.stderr[:300])
            first = done.stderr.splitlines()[0]
            assert first.startswith((f"cay: --{FLAGS[flag]} ", f"cay: --{FLAGS[flag]}: ", "cay: policy '/no/such'")), (verb, flag, first[:300])
            contains(first, reason, f"{verb} {flag}")
        equal([s["name"] for s in instance.get("/v1/sandboxes")["sandboxes"]], ["box"], "a refused command makes no sandbox")


def test_of_several_values_the_one_that_is_refused(instance):
    with instance.sandbox(name="box"):
        done = instance.cay("create", "-l", "a=b", "-l", "c=" + TEXT, "-l", "d=e", want=125)
        contains(done.stderr, "--label 'c=xxx")
        done = instance.cay("create", "--allow", "a.example", "--allow", "b" * 300, want=125)
        contains(done.stderr, "--allow 'bbb")
        done = instance.cay("create", "i" * 300, "--name", "b", want=125)
        contains(done.stderr, "'image'", "what no option set keeps its name")


def test_in_json_the_member_is_there_too(instance):
    error = json.loads(instance.cay("run", "--no-cwd", "--json", "-m", "1", "--", "true", want=125).stderr)["error"]
    equal((error["code"], error["member"]), ("invalid", "sandbox.limits.memory_bytes"))
    contains(error["message"], "--memory '1'")


def members(document, schema, prefix=""):
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    for name, one in schema.get("properties", {}).items():
        yield prefix + name
        yield from members(document, one, prefix + name + ".")


def test_the_table_names_members_that_there_are():
    with open(os.path.join(cay.TOP, "defs", "openapi.yaml"), encoding="utf-8") as file:
        document = yaml.safe_load(file)
    known = {"Idempotency-Key"}
    for item in document["paths"].values():
        for operation in (v for k, v in item.items() if k in ("get", "post", "put", "delete")):
            known |= {p["name"] for p in operation.get("parameters", []) if "name" in p}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            known |= set(members(document, body["schema"])) if body else set()
    equal([m for _, m in SETS if m.removesuffix("[]").removesuffix(".*") not in known], [])
    equal({flag for _, flag in TAKES} - {flag for flag, _ in SETS}, {"UNTIL"}, "options with a value that are sent")
    equal({flag for _, flag in TAKES} - set(REFUSED), {"IF"}, "options that no test refuses")  # a command line has no argument that is longer than it takes


def test_names_of_any_length_are_refused_with_a_message(instance):
    """An argument may have 128 KiB, and each byte of it takes three in a request."""
    for word in ("x" * 130000, "/" * 130000):
        for verb in ("info", "rm", "events", "net", "stop", "fork", "diff"):
            done = instance.cay(verb, word, check=False)
            assert done.returncode in (64, 125) and done.stderr.startswith("cay: "), (verb, done.returncode, done.stderr[:300])
