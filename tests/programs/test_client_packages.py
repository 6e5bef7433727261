# SPDX-License-Identifier: Apache-2.0
"""Client packages that nobody here wrote, from PyPI, as they come: those of the two model APIs behind the presets, against a scripted model (lib/model.py)."""

import json
import os

from lib import packages
from lib.case import contains, equal, require
from lib.model import Model, PIECES, TOKENS
from lib.proxy import Upstream, certificate, tunnel

TIMEOUT = 500
HOSTS = ("api.anthropic.com", "api.openai.com")
KEY = "sk-ant-api03-9fKq2LwZx7RbT4vNc8YdH3mGs6JpUe1A"
PACKAGES = ("anthropic==2.12.0", "openai==3.54.0")
TEXT = "".join(PIECES)
SECRETS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY")  # the presets bind them

# Each prints one JSON object of what it got.
ANTHROPIC = r"""
import anthropic, json, os
client = anthropic.Anthropic()
said = {"key": os.environ["ANTHROPIC_API_KEY"]}
ask = dict(model="m", max_tokens=100, messages=[{"role": "user", "content": "what?"}])
tool = {"name": "weather", "description": "x", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo=" * 100000}}
said["text"] = client.messages.create(**ask).content[0].text
with client.messages.stream(**ask) as stream:
    pieces = []
    for piece in stream.text_stream:
        if not pieces:
            client.models.retrieve("seen")
        pieces.append(piece)
    said["pieces"], said["used"] = pieces, stream.get_final_message().usage.output_tokens
said["tool"] = client.messages.create(**ask, tools=[tool, {"type": "bash_20250124", "name": "bash"}]).content[0].input
said["image"] = client.messages.create(**{**ask, "messages": [{"role": "user", "content": [image, {"type": "text", "text": "see"}]}]}).content[0].text
said["count"] = client.messages.count_tokens(model="m", messages=ask["messages"]).input_tokens > 0
said["file"] = client.beta.files.upload(file=("a.txt", b"uploaded " * 100000, "text/plain")).id
said["busy"] = [client.messages.create(**{**ask, "model": model}).content[0].text for model in ("busy-429", "busy-529", "busy-503")]
def fails(call, **more):
    try:
        call(**more)
        return None
    except anthropic.APIStatusError as error:
        return [type(error).__name__, str(error)]
said["bad"] = fails(client.messages.create, **{**ask, "model": "bad"})
said["search"] = fails(client.messages.create, **ask, tools=[{"type": "web_search_20250305", "name": "web_search"}])
said["fetch"] = fails(client.messages.create, **{**ask, "stream": True}, tools=[tool, {"type": "web_fetch_20260318", "name": "web_fetch"}])
said["inline"] = fails(client.beta.messages.create, **{**ask, "messages": [{"role": "user", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition",
    "definition": {"type": "web_fetch_20260318", "name": "web_fetch"}}}]}]})
said["mcp"] = fails(client.beta.messages.create, **ask, mcp_servers=[{"type": "url", "name": "x", "url": "https://elsewhere.example/"}], betas=["mcp-client-2025-11-20"])
said["url"] = fails(client.messages.create, **{**ask, "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/"}}]}]})
said["batch"] = fails(client.messages.batches.create, requests=[{"custom_id": "a", "params": ask}])
print(json.dumps(said))
"""

OPENAI = r"""
import base64, json, openai, os
client = openai.OpenAI()
said = {"key": os.environ["OPENAI_API_KEY"]}
messages = [{"role": "user", "content": "what?"}]
function = {"name": "weather", "description": "x", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
url = "data:image/png;base64," + base64.b64encode(bytes(1000000)).decode()
said["text"] = [client.chat.completions.create(model="m", messages=messages).choices[0].message.content, client.responses.create(model="m", input="what?").output_text]
pieces, used = [], None
for chunk in client.chat.completions.create(model="m", messages=messages, stream=True, stream_options={"include_usage": True}):
    if chunk.choices and chunk.choices[0].delta.content:
        if not pieces:
            client.models.retrieve("seen")
        pieces.append(chunk.choices[0].delta.content)
    used = chunk.usage.completion_tokens if chunk.usage else used
said["pieces"], said["used"] = [pieces], [used]
pieces = []
for event in client.responses.create(model="m", input="what?", stream=True):
    if event.type == "response.output_text.delta":
        if not pieces:
            client.models.retrieve("seen")
        pieces.append(event.delta)
    if event.type == "response.completed":
        said["used"].append(event.response.usage.output_tokens)
said["pieces"].append(pieces)
said["tool"] = [json.loads(client.chat.completions.create(model="m", messages=messages, tools=[{"type": "function", "function": function}]).choices[0].message.tool_calls[0].function.arguments),
                json.loads(client.responses.create(model="m", input="x", tools=[{"type": "function", **function}, {"type": "custom", "name": "c"}]).output[0].arguments)]
said["image"] = [client.chat.completions.create(model="m", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]).choices[0].message.content,
                 client.responses.create(model="m", input=[{"role": "user", "content": [{"type": "input_image", "image_url": url, "detail": "auto"}]}]).output_text]
said["count"] = client.responses.input_tokens.count(model="m", input="x").input_tokens > 0
said["file"] = client.files.create(file=("a.txt", b"uploaded " * 100000), purpose="user_data").id
said["heard"] = client.audio.transcriptions.create(model="whisper-1", file=("a.wav", bytes(100000))).text
said["embedding"] = client.embeddings.create(model="m", input=["a", "b"]).data[0].embedding
said["busy"] = [client.responses.create(model=model, input="x").output_text for model in ("busy-429", "busy-500", "busy-503")]
def fails(call, **more):
    try:
        call(**more)
        return None
    except openai.APIStatusError as error:
        return [type(error).__name__, str(error)]
ask = dict(model="m", input="x")
said["bad"] = fails(client.responses.create, model="bad", input="x")
said["search"] = fails(client.responses.create, **ask, tools=[{"type": "web_search"}])
said["mcp"] = fails(client.responses.create, **ask, tools=[{"type": "mcp", "server_label": "x", "server_url": "https://elsewhere.example/"}])
said["shell"] = fails(client.responses.create, **ask, tools=[{"type": "shell", "environment": {"type": "container_auto"}}])
said["inline"] = fails(client.responses.create, model="m", input=[{"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]}])
said["chat"] = fails(client.chat.completions.create, model="m", messages=messages, web_search_options={})
said["url"] = fails(client.responses.create, model="m", input=[{"role": "user", "content": [{"type": "input_image", "image_url": "https://elsewhere.example/", "detail": "auto"}]}])
said["batch"] = fails(client.batches.create, input_file_id="file_1", endpoint="/v1/responses", completion_window="24h")
print(json.dumps(said))
"""

SPEND = r"""
import anthropic, json
client, done = anthropic.Anthropic(), 0
try:
    for i in range(100):
        with client.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "x"}]) as stream:
            for piece in stream.text_stream:
                client.models.retrieve("seen")
        done += 1
except anthropic.RateLimitError as error:
    print(json.dumps([done, str(error)]))
"""


class World:
    """A server whose sandboxes find the model at both names."""

    def __init__(self, instance, tmp):
        pem, root = certificate(os.path.join(tmp, "up"), *HOSTS)
        self.model, self.asked = Model(KEY), []
        self.upstream = Upstream(self.model, pem)
        self.way = Upstream(tunnel(self.upstream, self.asked))
        instance.stop()
        instance.start(CAY_TRUST=root, CAY_THROUGH=self.way.address)
        for secret in SECRETS:
            instance.cay("secret", "set", secret, stdin=KEY)

    def close(self):
        self.way.close()
        self.upstream.close()


def policy(**more):
    return json.dumps({"version": 1, "preset": ["llm-anthropic", "llm-openai"], **more})


def run(instance, box, *argv):
    done = instance.cay("exec", "--env", "PYTHONPATH=/packages", box, "--", *argv, check=False, timeout=240)
    equal(done.returncode, 0, done.stderr[-3000:] + done.stdout[-1000:])
    return json.loads(done.stdout)


def check_denied(said, **texts):
    """What a person reads of each: what was denied, and by what."""
    for what, text in texts.items():
        kind, message = said[what]
        equal(kind, "PermissionDeniedError", what)
        contains(message, text, what)


@require("root")
def test_the_packages_of_model_apis_work_behind_their_presets(fresh, tmp):
    place = packages.python(*PACKAGES)
    world = World(fresh, tmp)
    with fresh.sandbox(policy=policy(), mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        said = run(fresh, box, "/usr/bin/python3", "-c", ANTHROPIC)
        equal((said["text"], said["pieces"], said["used"], said["tool"], said["image"], said["count"], said["file"], said["busy"]),
              (TEXT, PIECES, TOKENS, {"city": "Bern"}, TEXT, True, "file_1", [TEXT] * 3))
        check_denied(said, search="tools that the provider runs", fetch="tools that the provider runs", inline="tools that the provider runs", mcp="MCP servers", url="content that the provider fetches",
                     batch="no rule allows POST api.anthropic.com")
        equal(said["bad"][0], "BadRequestError")
        contains(said["bad"][1], "max_tokens: too many")
        other = run(fresh, box, "/usr/bin/python3", "-c", OPENAI)
        equal((other["text"], other["pieces"], other["used"], other["tool"], other["image"], other["count"], other["file"], other["heard"], other["embedding"], other["busy"]),
              ([TEXT] * 2, [PIECES] * 2, [TOKENS] * 2, [{"city": "Bern"}] * 2, [TEXT] * 2, True, "file_1", "heard", [0.5, 0.25], [TEXT] * 3))
        check_denied(other, search="tools that the provider runs", mcp="tools that the provider runs", shell="tools that the provider runs", inline="tools that the provider runs",
                     chat="tools that the provider runs", url="content that the provider fetches", batch="no rule allows POST api.openai.com")
        equal(other["bad"][0], "BadRequestError")
        contains(other["bad"][1], "max_tokens: too many")
        equal([KEY in json.dumps(what) for what in (said, other, fresh.events())], [False] * 3, "the key")
    equal([b"uploaded " * 100000 in body for body in world.model.uploads], [True, True, False])
    equal(b"elsewhere.example" in world.upstream.text(), False)
    contains(world.upstream.text(), KEY.encode())
    world.close()


@require("root")
def test_a_budget_of_tokens_over_the_streams_of_a_package(fresh, tmp):
    place = packages.python(*PACKAGES)
    world = World(fresh, tmp)
    spend = {"llm-anthropic/messages": {"sum": {"field": "/usage/output_tokens", "of": "response", "max": 3 * TOKENS, "per": "1d", "missing": 1000}}}
    with fresh.sandbox(policy=policy(budgets=spend), mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        done, message = run(fresh, box, "/usr/bin/python3", "-c", SPEND)
        equal(done, 3)
        contains(message, "a budget of rule 'llm-anthropic/messages' is exhausted")
    world.close()
