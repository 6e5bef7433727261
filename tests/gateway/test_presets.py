# SPDX-License-Identifier: Apache-2.0
"""Presets of model APIs: what would let the provider reach out for the sandbox is denied where the sandbox asks for it, before any connection."""

import json
import shlex

from lib.case import equal

MESSAGE = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
MESSAGES, CHAT, RESPONSES = "https://api.anthropic.com/v1/messages", "https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/responses"
CASES = (
    (MESSAGES, {**MESSAGE, "tools": [{"name": "own"}, {"type": "web_search_20250305", "name": "web_search"}]}, "llm-anthropic/no-provider-tools"),
    (MESSAGES, {**MESSAGE, "tools": [{"type": "code_execution_20250522", "name": "run"}]}, "llm-anthropic/no-provider-tools"),
    (MESSAGES, {**MESSAGE, "mcp_servers": [{"type": "url", "url": "https://elsewhere.example/"}]}, "llm-anthropic/no-mcp-servers"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/?data"}}]}]},
     "llm-anthropic/no-urls"),
    ("https://api.anthropic.com/v1/files", MESSAGE, None),
    (RESPONSES, {"input": "hello", "tools": [{"type": "web_search_preview"}]}, "llm-openai/no-provider-tools"),
    (RESPONSES, {"input": "hello", "tools": [{"type": "mcp", "server_url": "https://elsewhere.example/"}]}, "llm-openai/no-provider-tools"),
    (CHAT, {**MESSAGE, "web_search_options": {}}, "llm-openai/no-web-search"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://elsewhere.example/?data"}}]}]}, "llm-openai/no-image-urls"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://elsewhere.example/?data"}]}]}, "llm-openai/no-input-image-urls"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://elsewhere.example/"}]}]}, "llm-openai/no-input-file-urls"),
    ("https://api.openai.com/v1/files", MESSAGE, None),
)


def test_what_the_provider_would_fetch_is_denied(instance):
    with instance.sandbox(policy=json.dumps({"version": 1, "preset": ["llm-anthropic", "llm-openai"]})) as box:
        for url, body, rule in CASES:
            text = instance.ok(box, "curl -sS --max-time 20 -H 'Content-Type: application/json' -w ' %{http_code}' "
                                    f"-d {shlex.quote(json.dumps(body))} {url}")
            answer, status = text.rsplit(" ", 1)
            equal((status, json.loads(answer)["error"]["code"], json.loads(answer)["error"].get("rule")), ("403", "denied", rule), f"{url} {body}")
