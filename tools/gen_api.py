#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make the route and validation tables of cayd (C), or docs/reference/api.md, from defs/openapi.yaml.

usage: gen_api.py c|h|docs defs/openapi.yaml OUTPUT
"""
import sys
import yaml

KINDS = {"object": "OBJECT", "array": "ARRAY", "string": "STRING", "integer": "INTEGER", "boolean": "BOOLEAN"}
FORMATS = {None: "NONE", "name": "NAME", "path": "PATH", "hostname": "HOSTNAME", "nonul": "NONUL", "binary": "NONE"}
METHODS = ("get", "post", "put", "delete")
VALUES_MAX = 32  # API_VALUES_MAX in src/api/route.h


def quote(text):
    return '"' + str(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


class Tables:
    def __init__(self, document):
        self.document = document
        self.lines = []
        self.done = {}

    def resolve(self, node):
        while "$ref" in node:
            target = self.document
            for part in node["$ref"].split("/")[1:]:
                target = target[part]
            node = target
        return node

    def schema(self, node, name):
        """Emit the schema and what it needs; return the name of its C object."""
        if "$ref" in node:
            name = "schema_" + node["$ref"].rsplit("/", 1)[1]
            if name in self.done:
                return name
            node = self.resolve(node)
        self.done[name] = True
        kinds = node.get("type")
        kinds = kinds if isinstance(kinds, list) else [kinds]
        kind = KINDS[next(k for k in kinds if k != "null")]
        fields = [f".kind = SCHEMA_{kind}", f".format = FORMAT_{FORMATS[node.get('format')]}"]
        if "null" in kinds:
            fields.append(".nullable = true")
        low = {"STRING": "minLength", "ARRAY": "minItems", "INTEGER": "minimum"}.get(kind)
        high = {"STRING": "maxLength", "ARRAY": "maxItems", "INTEGER": "maximum", "OBJECT": "maxProperties"}.get(kind)
        fields.append(f".min = {node.get(low, 0) if low else 0}")
        fields.append(f".max = {node.get(high, 'INT64_MAX') if high else 'INT64_MAX'}")
        if "pattern" in node:
            fields.append(f".pattern = {quote(node['pattern'])}")
        if "enum" in node:
            values = ", ".join(quote(v) for v in node["enum"])
            self.lines.append(f"static const char *const {name}_values[] = {{ {values}, NULL }};")
            fields.append(f".values = {name}_values")
        if kind == "ARRAY":
            fields.append(f".items = &{self.schema(node['items'], name + '_items')}")
        if kind == "OBJECT":
            fields += self.members(node, name)
        self.lines.append(f"static const struct schema {name} = {{ {', '.join(fields)} }};")
        return name

    def members(self, node, name):
        extra = node.get("additionalProperties", True)
        fields = []
        if isinstance(extra, dict):
            fields.append(f".items = &{self.schema(extra, name + '_extra')}")
        elif extra is not False:
            raise SystemExit(f"{name}: a request object needs additionalProperties: false or a schema")
        if "propertyNames" in node:
            fields.append(f".keys = &{self.schema({'type': 'string', **node['propertyNames']}, name + '_keys')}")
        rows = []
        for key, value in node.get("properties", {}).items():
            inner = self.schema(value, f"{name}_{key}")
            required = "true" if key in node.get("required", []) else "false"
            rows.append(f"{{ {quote(key)}, {required}, &{inner} }}")
        if rows:
            self.lines.append(f"static const struct schema_member {name}_members[] = {{ {', '.join(rows)} }};")
            fields += [f".members = {name}_members", f".n_members = {len(rows)}"]
        return fields

    def parameters(self, operation, shared, name):
        rows, total = [], 0
        for node in shared + operation.get("parameters", []):
            node = self.resolve(node)
            if node["in"] != "query":
                continue
            schema, most = node["schema"], 1
            if schema.get("type") == "array":  # a=x&a=y
                schema, most = schema["items"], schema["maxItems"]
            total += most
            inner = self.schema(schema, f"{name}_{node['name']}")
            fallback = self.resolve(schema).get("default")
            fallback = "NULL" if fallback is None else quote(str(fallback).lower() if isinstance(fallback, bool) else fallback)
            required = "true" if node.get("required") else "false"
            rows.append(f"{{ {quote(node['name'])}, {required}, &{inner}, {fallback}, {most} }}")
        if total > VALUES_MAX:
            raise SystemExit(f"{name}: more than {VALUES_MAX} values of query parameters")
        if not rows:
            return "NULL", 0
        self.lines.append(f"static const struct api_parameter {name}_parameters[] = {{ {', '.join(rows)} }};")
        return f"{name}_parameters", len(rows)

    def routes(self):
        rows, handlers = [], []
        for path, item in self.document["paths"].items():
            for method in METHODS:
                if method not in item:
                    continue
                operation = item[method]
                name = operation["operationId"]
                parameters, count = self.parameters(operation, item.get("parameters", []), "query_" + name)
                body = operation.get("requestBody", {})
                json = body.get("content", {}).get("application/json")
                schema = "&" + self.schema(json["schema"], "body_" + name) if json else "NULL"
                handlers.append(f"int api_{name}(struct api_call *call, struct err *err);")
                keyed = any(self.resolve(p)["in"] == "header" and self.resolve(p)["name"] == "Idempotency-Key"
                            for p in operation.get("parameters", []))
                rows.append(
                    f'\t{{ "{method.upper()}", {quote(path)}, "{name}", api_{name}, {parameters}, {count}, {schema}, '
                    f'{"true" if body.get("required") else "false"}, {"true" if body and not json else "false"}, '
                    f'{"true" if "x-upgrade" in operation else "false"}, {"true" if keyed else "false"} }},')
        return rows, handlers


def write_c(document, output):
    tables = Tables(document)
    rows, handlers = tables.routes()
    with open(output, "w", encoding="utf-8") as out:
        if output.endswith(".h"):
            out.write("/* made by tools/gen_api.py from defs/openapi.yaml */\n#pragma once\n\n#include \"api/route.h\"\n\n" + "\n".join(handlers) + "\n")
            return
        out.write("/* made by tools/gen_api.py from defs/openapi.yaml */\n#include \"api_handlers.h\"\n\n")
        out.write("\n".join(tables.lines))
        out.write("\n\nconst struct api_route api_routes[] = {\n" + "\n".join(rows) + "\n};\n")
        out.write(f"const size_t api_route_count = {len(rows)};\n")


def type_text(node):
    if "$ref" in node:
        name = node["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    kinds = node.get("type", "any")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    text = " or ".join(kinds)
    if "items" in node:
        text += f" of {type_text(node['items'])}"
    if "enum" in node:
        text += ": " + ", ".join(f"`{v}`" for v in node["enum"])
    return text


def limits_text(node):
    words = [f"{label} {node[key]}" for key, label in
             (("default", "default"), ("minimum", "from"), ("maximum", "to"), ("maxLength", "at most bytes"), ("maxItems", "at most items"))
             if key in node]
    return "; ".join(words + ([node["description"]] if "description" in node else []))


def write_docs(document, output):
    tables = Tables(document)
    text = ["# REST API", "", "<!-- made by tools/gen_api.py from defs/openapi.yaml: change that file -->", "", document["info"]["description"], "## Routes", ""]
    for path, item in document["paths"].items():
        for method in METHODS:
            if method not in item:
                continue
            operation = item[method]
            text += [f"### {method.upper()} {path}", "", operation["summary"] + ".", ""]
            if "description" in operation:
                text += [operation["description"].strip(), ""]
            rows = [tables.resolve(p) for p in item.get("parameters", []) + operation.get("parameters", [])]
            if rows:
                text += ["| parameter | in | type | |", "|---|---|---|---|"]
                text += [f"| `{p['name']}` | {p['in']} | {type_text(p['schema'])} | {p.get('description', '')} {limits_text(tables.resolve(p['schema']))} |" for p in rows]
                text.append("")
            for kind, value in operation.get("requestBody", {}).get("content", {}).items():
                text.append(f"Body: `{kind}`" + (f" {type_text(value['schema'])}" if value.get("schema") else "") + ".")
            for status, answer in operation["responses"].items():
                if status == "default":
                    continue  # the same everywhere, and said at the top
                kinds = ", ".join(f"`{k}`" + (f" {type_text(v['schema'])}" if v.get("schema") else "") for k, v in answer.get("content", {}).items())
                text.append(f"Answer: {status} {kinds or answer.get('description', '')}.")
            text.append("")
    text += ["## Objects", ""]
    for name, node in document["components"]["schemas"].items():
        text += [f"### {name}", ""]
        if not node.get("properties"):
            text += [type_text(node), ""]
            continue
        text += ["| member | type | |", "|---|---|---|"]
        for key, value in node["properties"].items():
            mark = " (required)" if key in node.get("required", []) and "additionalProperties" in node else ""
            text.append(f"| `{key}`{mark} | {type_text(value)} | {limits_text(value)} |")
        text.append("")
    with open(output, "w", encoding="utf-8") as out:
        out.write("\n".join(text))


def main():
    if len(sys.argv) != 4 or sys.argv[1] not in ("c", "h", "docs"):
        raise SystemExit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as source:
        document = yaml.safe_load(source)
    (write_docs if sys.argv[1] == "docs" else write_c)(document, sys.argv[3])


if __name__ == "__main__":
    main()
