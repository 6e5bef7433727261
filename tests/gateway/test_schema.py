# SPDX-License-Identifier: Apache-2.0
"""defs/policy.schema.json says what the server says: the same documents pass, and the same fail, as far as a schema can tell."""

import glob
import json
import os
import re

import jsonschema
import yaml

from lib import cay
from lib.case import equal

with open(os.path.join(cay.TOP, "defs", "policy.schema.json"), encoding="utf-8") as f:
    SCHEMA = jsonschema.Draft7Validator(json.load(f))

RULE = {"match": {"host": "a.example"}, "action": "allow"}


def rule(**more):
    return {"rules": [{**RULE, **more}]}


def match(**more):
    return {"rules": [{"match": {"host": "a.example", **more}, "action": "allow"}]}


GOOD = [
    {}, {"version": 1, "preset": "none"}, {"preset": ["mail-sink", "read-only-web"]}, rule(name="x"), rule(private=True, upstream="10.0.0.1:80"), rule(placeholders="pass"), rule(placeholders="stop"),
    match(port=[1, "5-9", "any"]), match(method="GET", path=["/a/*", "**"]), match(query={"a": None, "b": True, "c": ["x*"]}, headers={"x": "y"}),
    match(json={"a": 1, "/b/*/c": ["x", 2], "d": None, "e": {"min": 1}, "f": {"present": True}, "g": {"glob": "x*"}}), match(transport="tcp", port=22),
    match(json={"a": {}, "b": {"present": False}, "c": {"present": True, "max": 1}, "d": {"present": True, "glob": "x"}, "e": {"min": 1, "max": 2}}),
    match(json={"a": {"not": "x*"}, "b": {"not": ["x", "y"]}}), {"preset": ["llm-openai"], "budgets": {"llm-openai/responses": {"requests": {"max": 1}, "sum": [{"max": 5, "field": "a"}]}}},
    match(upgrade="websocket", path="/x", headers={"a": "b"}), match(host=["*.b", ".c", "10.0.0.0/8", "::1"]), rule(budget={"requests": {"max": 1, "per": "1h"}, "bytes": {"max": "1M"}, "sum": [{"max": 5, "field": "a", "of": "response", "per": "total"}]}),
    {"rules": [{**RULE, "action": "deny", "deny": {"status": 404, "message": "no"}}]}, {"rules": [{**RULE, "action": "fault", "fault": {"chance": 0.5, "latency": "1s", "truncate": 0}}]},
    {"rules": [{**RULE, "action": "transform", "transform": {"headers": {"set": {"a": "b"}, "remove": ["c"]}, "json": {"set": {"/x": [1]}}}}]},
    {"secrets": [{"name": "K", "hosts": ".a.example", "in": [{"header": "x"}, {"query": "y"}, {"json": "/z"}, {"form": "f"}, {"sigv4": "*"}]}]},
]
BAD = [
    {"version": 2}, {"budgets": []}, {"preset": "llm-openai", "budgets": {"llm-openai/models": {"requests": {"per": "1h"}}}}, match(json={"a": {"not": "x", "min": 1}}), match(json={"a": {"not": []}}), match(json={"a": {"present": False, "min": 1000}}),
    match(json={"a": {"present": False, "glob": "x"}}), match(json={"a": {"glob": "ok-*", "max": 5000}}), match(json={"a": {"not": "x", "present": True}}), {"rulez": []}, {"rules": {}}, {"preset": "nope"}, {"preset": []}, {"rules": [{"match": {"host": "a"}}]}, {"rules": [{"action": "allow"}]}, rule(action="hold"), rule(placeholders="keep"), rule(placeholders=True),
    match(host="A.example"), match(host="http://a"), match(host=[]), match(port=0), match(port=70000), match(port="x"), match(method="get"), match(path="x"), match(transport="udp"),
    match(upgrade="h2c"), match(upgrade=True), match(upgrade="websocket", method="GET"), match(upgrade="websocket", json={"a": 1}), match(query={"a": 1}), match(json={"a": {"near": 1}}), rule(budget={"requests": {"per": "1h"}}), rule(budget={"sum": {"max": 1}}), rule(budget={"requests": {"max": -1}}),
    {"rules": [{**RULE, "action": "transform", "transform": {"headers": {"remove": "cookie"}}}]}, {"rules": [{**RULE, "action": "transform", "transform": {"json": {"set": ["x"]}}}]},
    {"rules": [{**RULE, "action": "deny", "deny": {"status": 200}}]}, {"rules": [{**RULE, "action": "deny", "budget": {"requests": {"max": 1}}}]}, {"rules": [{**RULE, "action": "fault", "fault": {"chance": 2}}]}, rule(private="yes"), {"secrets": [{"name": "K"}]},
    {"secrets": [{"name": "K", "hosts": "a", "in": [{"header": "x", "query": "y"}]}]},
    {"secrets": [{"name": "K", "hosts": "a", "in": [{"sigv4": 1}]}]},
]


def accepted(instance, document):
    status, _, _ = instance.raw("POST", "/v1/policy/check", json.dumps({"policy": json.dumps(document)}), {"Content-Type": "application/json"})
    return status == 200


def test_schema_and_server_agree(instance):
    for wanted, documents in ((True, GOOD), (False, BAD)):
        for document in documents:
            text = json.dumps(document)
            equal(accepted(instance, document), wanted, f"the server: {text}")
            equal(SCHEMA.is_valid(document), wanted, f"the schema: {text}")


def test_presets_are_policies_and_all_are_named(instance):
    names = []
    for path in glob.glob(os.path.join(cay.TOP, "defs", "presets", "*.yaml")):
        names.append(os.path.basename(path)[:-5])
        with open(path, encoding="utf-8") as f:
            document = yaml.safe_load(f)
        SCHEMA.validate(document)
        assert accepted(instance, document), path
    equal(sorted(names), sorted(SCHEMA.schema["definitions"]["preset"]["enum"]))
    equal(sorted(names), sorted(p["name"] for p in instance.get("/v1/policy/presets")["presets"]))


def test_the_policies_of_the_documents_are_policies(instance):
    pages = [os.path.join(cay.TOP, page) for page in ("README.md", "docs/policy.md")]
    found = [(page, block) for page in pages for block in re.findall(r"```yaml\n(.*?)```", open(page, encoding="utf-8").read(), re.S)]
    equal({page for page, _ in found}, set(pages))
    for page, block in found:
        document = yaml.safe_load(block)
        SCHEMA.validate(document)
        assert accepted(instance, document), f"{page}: {block}"
