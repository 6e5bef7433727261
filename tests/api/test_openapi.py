# SPDX-License-Identifier: Apache-2.0
"""defs/openapi.yaml as its readers take it: a well-formed OpenAPI 3.1 document, and what the server answers is what it says, with no member that it does not name."""

import copy
import json
import os
import re
import subprocess
import sys

import jsonschema
import yaml

from lib import cay
from lib.case import equal, require

METHODS = ("get", "post", "put", "delete")

with open(os.path.join(cay.TOP, "defs", "openapi.yaml"), encoding="utf-8") as source:
    DOCUMENT = yaml.safe_load(source)


def resolved(node):
    while "$ref" in node:
        target = DOCUMENT
        for part in node["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        node = target
    return node


def operations():
    for path, item in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in item:
                yield method, path, item[method], item.get("parameters", []) + item[method].get("parameters", [])


def references(node):
    if isinstance(node, dict):
        if "$ref" in node:
            yield node
        node = list(node.values())
    for value in node if isinstance(node, list) else []:
        yield from references(value)


def test_the_document_is_well_formed():
    for node in references(DOCUMENT):
        resolved(node)
    for name, schema in DOCUMENT["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert {"type", "$ref"} & set(schema), name
    seen = set()
    for method, path, operation, parameters in operations():
        where = f"{method} {path}"
        assert operation["operationId"] not in seen, where
        seen.add(operation["operationId"])
        placed = [resolved(p) for p in parameters]
        equal({p["name"] for p in placed if p["in"] == "path"}, set(re.findall(r"{(\w+)}", path)), where)
        assert all(p.get("required") for p in placed if p["in"] == "path"), where
        for p in placed:
            jsonschema.Draft202012Validator.check_schema(p["schema"])
        assert "default" in operation["responses"], f"{where}: what is answered when it fails?"
        for status, answer in operation["responses"].items():
            assert re.fullmatch("[1-5][0-9][0-9]|default", status) and resolved(answer).get("description"), f"{where} {status}"


def test_the_reference_is_made_from_it(tmp):
    made, kept = os.path.join(tmp, "api.md"), os.path.join(cay.TOP, "docs", "reference", "api.md")
    subprocess.run([sys.executable, os.path.join(cay.TOP, "tools", "gen_api.py"), "docs", os.path.join(cay.TOP, "defs", "openapi.yaml"), made], check=True)
    with open(made, encoding="utf-8") as a, open(kept, encoding="utf-8") as b:
        assert a.read() == b.read(), "run tools/gen_api.py docs defs/openapi.yaml docs/reference/api.md"


def closed(node):
    """A copy of schema @node in which objects have no member but those that they name."""
    if isinstance(node, dict):
        node = {key: closed(value) for key, value in node.items()}
        if "properties" in node and isinstance(node["properties"], dict):
            node.setdefault("additionalProperties", False)
    elif isinstance(node, list):
        node = [closed(value) for value in node]
    return node


CLOSED = {"components": {"schemas": closed(copy.deepcopy(DOCUMENT["components"]["schemas"]))}}


def judge(schema, value, where):
    validator = jsonschema.Draft202012Validator({**CLOSED, **closed(schema)})
    wrong = [f"{'/'.join(map(str, e.absolute_path))}: {e.message[:300]}" for e in validator.iter_errors(value)]
    equal(wrong, [], where)


class Client:
    """Requests as a reader of the document makes them; every answer is held against it."""

    def __init__(self, instance):
        self.instance, self.asked = instance, set()

    def operation(self, method, path):
        bare = path.split("?")[0]
        for verb, template, operation, _ in operations():
            if verb == method.lower() and re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), bare):
                return operation
        raise AssertionError(f"{method} {path} is in no document")

    def ask(self, method, path, body=None, status=None, headers=None):
        where, operation = f"{method} {path}", self.operation(method, path)
        data = json.dumps(body).encode() if body is not None else None
        got, head, text = self.instance.raw(method, path, data, {**({"Content-Type": "application/json"} if body is not None else {}), **(headers or {})}, timeout=120)
        self.asked.add(operation["operationId"])
        equal(str(got) in operation["responses"] or got >= 400, True, f"{where}: {got} {text[:300]!r}")
        if status is not None:
            equal(got, status, f"{where}: {text[:300]!r}")
        answer = resolved(operation["responses"].get(str(got), operation["responses"]["default"]))
        if "content" not in answer:
            equal(text, b"", where)
            return None
        kind = {k.lower(): v for k, v in head.items()}["content-type"].split(";")[0]
        assert kind in answer["content"], f"{where}: {kind}"
        if kind != "application/json":
            return text
        value = json.loads(text)
        judge(answer["content"][kind]["schema"], value, where)
        return value


POLICY = """
version: 1
rules:
  - {name: mail, match: {host: "*", transport: smtp}, action: mailbox}
  - {name: api, match: {host: api.example}, action: deny, deny: {status: 403}}
"""
MAIL = ("import smtplib; smtplib.SMTP('mail.example').sendmail('a@shop.example', ['b@people.example'], "
        "'From: a@shop.example\\nTo: b@people.example\\nSubject: hello\\n\\ntext\\n')")


def use_sandbox(client, box, project):
    """What is done with one sandbox: commands, files, snapshots, events."""
    at = f"/v1/sandboxes/{box}"
    client.ask("GET", at)
    run = client.ask("POST", f"{at}/execs?wait_ms=60000", {"argv": ["sh", "-c", "echo out; echo err >&2; exit 3"]}, 201)
    equal((run["state"], run["status"]["status"], run["status"]["code"]), ("ended", "exited", 3))
    equal(client.ask("GET", f"{at}/execs/{run['id']}/output?stream=stdout"), b"out\n")
    reader = client.ask("POST", f"{at}/execs", {"argv": ["cat"], "stdin": True, "tty": {"rows": 24, "columns": 80}}, 201)
    client.ask("POST", f"{at}/execs/{reader['id']}/resize", {"rows": 30, "columns": 90}, 204)
    client.ask("POST", f"{at}/execs/{reader['id']}/signal", {"signal": 9, "tree": True}, 204)
    ended = client.ask("GET", f"{at}/execs/{reader['id']}?wait_ms=60000")
    equal((ended["status"]["status"], ended["status"]["signal"]), ("killed", 9))
    client.ask("GET", f"{at}/execs")
    client.ask("GET", f"{at}/steps")
    client.instance.raw("PUT", f"{at}/files?path=/shop/new.txt", b"new\n", {"Content-Type": "application/octet-stream"})
    equal(client.ask("GET", f"{at}/files?path=/shop/new.txt"), b"new\n")
    client.ask("PUT", f"{at}/settings", {"idle_ms": 3600000})
    client.ask("POST", f"{at}/execs?wait_ms=60000", {"argv": ["/usr/bin/python3", "-c", MAIL]}, 201)
    client.ask("GET", f"{at}/mails")
    equal(client.ask("GET", f"{at}/mails/1")["subject"], "hello")
    client.ask("GET", f"{at}/usage")
    client.ask("GET", f"{at}/doctor")
    client.ask("GET", f"{at}/events/verify")
    event = json.loads(client.ask("GET", f"{at}/events").splitlines()[-1])
    judge({"$ref": "#/components/schemas/Event"}, event, "an event")
    client.ask("GET", f"{at}/nearest?epoch={event['epoch']}")
    client.ask("GET", f"/v1/diff?a={box}&text=true")
    client.ask("POST", f"{at}/apply", {"dry_run": True})
    client.ask("POST", f"{at}/apply", {"if_argv": ["true"]})
    equal(os.listdir(project), ["new.txt"])


def use_states(client, box):
    """Snapshots and what continues from them; every state that a sandbox can be in."""
    at = f"/v1/sandboxes/{box}"
    snapshot = client.ask("POST", f"{at}/snapshots", {"name": "kept"}, 201)
    client.ask("GET", f"/v1/snapshots/{snapshot['id']}")
    client.ask("GET", f"/v1/snapshots?sandbox={box}")
    client.ask("POST", "/v1/snapshots/kept/verify")
    forks = client.ask("POST", "/v1/snapshots/kept/fork", {"count": 2}, 201)["sandboxes"]
    forks += client.ask("POST", f"{at}/fork", {"live": False}, 201)["sandboxes"]
    for fork in forks:
        client.ask("DELETE", f"/v1/sandboxes/{fork['id']}?force=true", status=204)
    client.ask("POST", f"{at}/rewind", {"snapshot": "kept"})
    for verb, body in (("pause", None), ("resume", {}), ("suspend", None), ("resume", {}), ("stop", {"grace_ms": 0}), ("start", None)):
        client.ask("POST", f"{at}/{verb}", body, 200)
        client.ask("GET", at)
    client.ask("DELETE", "/v1/snapshots/kept", status=204)


@require("group")
def test_answers_are_what_the_document_says(fresh, tmp):
    client, project = Client(fresh), os.path.join(tmp, "project")
    os.mkdir(project)
    for path in ("/v1/version", "/v1/doctor", "/v1/sandboxes", "/v1/snapshots", "/v1/images", "/v1/images/host", "/v1/secrets", "/v1/storage", "/v1/events/verify",
                 "/v1/events/retention", "/v1/policy/presets", "/v1/events"):
        client.ask("GET", path, status=200)
    client.ask("PUT", "/v1/events/retention", {"max_age_s": 0})
    client.ask("POST", "/v1/policy/check", {"policy": POLICY})
    client.ask("POST", "/v1/policy/explain", {"policy": POLICY, "url": "https://api.example/"})
    client.ask("PUT", "/v1/secrets/API_KEY", {"value": "sk_live_0123456789"})
    client.ask("DELETE", "/v1/secrets/API_KEY", status=204)
    wanted = {"name": "box", "policy": POLICY, "labels": {"a": "b"}, "mounts": [{"source": project, "target": "/shop"}], "limits": {"pids": 200}}
    first = client.ask("POST", "/v1/sandboxes", wanted, 201, {"Idempotency-Key": "once"})
    equal(client.ask("POST", "/v1/sandboxes", wanted, 201, {"Idempotency-Key": "once"})["id"], first["id"])
    equal(client.ask("POST", "/v1/sandboxes", {}, headers={"Idempotency-Key": "once"})["error"]["code"], "idempotency_mismatch")
    use_sandbox(client, "box", project)
    client.ask("GET", "/v1/sandboxes/box/policy")
    client.ask("PUT", "/v1/sandboxes/box/policy", {"policy": "version: 1", "if_version": 1}, 200)
    use_states(client, "box")
    for method, path, body in (("GET", "/v1/sandboxes/nobody", None), ("POST", "/v1/sandboxes", {"nmae": "x"}), ("GET", "/v1/sandboxes/box/events?from=-1", None),
                               ("DELETE", "/v1/sandboxes/box", None), ("POST", "/v1/images", {"path": "/nowhere"}), ("POST", "/v1/run", {"exec": {"argv": ["true"]}})):
        assert "error" in client.ask(method, path, body), path
    client.ask("DELETE", "/v1/sandboxes/box?force=true", status=204)
    client.ask("POST", "/v1/prune", {"stopped": True})
    upgraded = {"exec_attach", "run_attach"}
    elsewhere = {"exec_stdin", "files_put", "image_import", "image_remove", "storage_init", "shutdown"}
    equal({o["operationId"] for _, _, o, _ in operations()} - client.asked - upgraded - elsewhere, set(), "routes that nobody asked")
