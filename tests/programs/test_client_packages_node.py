# SPDX-License-Identifier: Apache-2.0
"""Client packages that nobody here wrote, from npm, as they come: those of the two model APIs behind their presets (as test_client_packages.py has those of PyPI), WebSocket and HTTP/2."""

import json
import os
import sys

from gateway.test_http2 import serve_h2
from lib import packages
from lib.case import contains, equal, require
from lib.model import PIECES, TOKENS
from lib.proxy import Upstream, certificate, echo
from programs.test_client_packages import KEY, TEXT, World, check_denied, policy
from programs.test_client_packages_more import PYTHON, rule, websocket_server

TIMEOUT = 500
NODE = ("@anthropic-ai/sdk@1.12.0", "openai@6.49.0", "ws@8.18.0")

MODELS = r"""
globalThis.File ??= require("node:buffer").File; // as Node 18 is told to by the package
const Anthropic = require("@anthropic-ai/sdk").default, OpenAI = require("openai").default, { toFile } = require("openai");
const fails = async promise => { try { await promise; return null } catch (error) { return [error.constructor.name, String(error.message)] } };
(async () => {
	const said = {}, first = new Anthropic(), second = new OpenAI();
	const ask = { model: "m", max_tokens: 100, messages: [{ role: "user", content: "what?" }] };
	said.text = [(await first.messages.create(ask)).content[0].text, (await second.responses.create({ model: "m", input: "x" })).output_text];
	said.pieces = [[], []];
	const stream = first.messages.stream(ask);
	for await (const event of stream)
		if (event.type === "content_block_delta") {
			if (said.pieces[0].length === 0) await first.models.retrieve("seen");
			said.pieces[0].push(event.delta.text);
		}
	said.used = (await stream.finalMessage()).usage.output_tokens;
	for await (const event of await second.responses.create({ model: "m", input: "x", stream: true }))
		if (event.type === "response.output_text.delta") {
			if (said.pieces[1].length === 0) await second.models.retrieve("seen");
			said.pieces[1].push(event.delta);
		}
	said.file = (await second.files.create({ file: await toFile(Buffer.alloc(900000, "uploaded "), "a.txt"), purpose: "user_data" })).id;
	said.busy = [(await first.messages.create({ ...ask, model: "busy-529" })).content[0].text, (await second.responses.create({ model: "busy-429", input: "x" })).output_text];
	said.search = await fails(first.messages.create({ ...ask, tools: [{ type: "web_search_20250305", name: "web_search" }] }));
	said.mcp = await fails(second.responses.create({ model: "m", input: "x", tools: [{ type: "mcp", server_label: "x", server_url: "https://elsewhere.example/" }] }));
	said.batch = await fails(first.messages.batches.create({ requests: [{ custom_id: "a", params: ask }] }));
	console.log(JSON.stringify(said));
})();
"""

OTHERS = r"""
const WebSocket = require("ws"), http2 = require("node:http2");
(async () => {
	const said = { fetch: (await fetch("https://h1.example/x")).status };
	const connection = http2.connect("https://h2.example"), request = connection.request({ ":method": "POST", ":path": "/x" });
	request.end("x".repeat(300000));
	said.h2 = await new Promise((done, failed) => {
		request.on("response", head => done(head[":status"]));
		request.on("error", failed);
		request.resume();
	});
	connection.close();
	const ws = new WebSocket("wss://ws.example/x");
	said.ws = await new Promise((done, failed) => {
		ws.on("open", () => ws.send("hello"));
		ws.on("message", text => { done(String(text)); ws.close() });
		ws.on("error", failed);
	});
	console.log(JSON.stringify(said));
})();
"""


def run(instance, box, script):
    done = instance.cay("exec", "--env", "NODE_PATH=/packages/node_modules", box, "--", "node", "-e", script, check=False, timeout=240)
    equal(done.returncode, 0, done.stderr[-3000:] + done.stdout[-1000:])
    return json.loads(done.stdout)


@require("root", "program:npm")
def test_the_packages_of_model_apis_work_behind_their_presets(fresh, tmp):
    place = packages.node(*NODE)
    world = World(fresh, tmp)
    with fresh.sandbox(policy=policy(), mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        said = run(fresh, box, MODELS)
        equal((said["text"], said["pieces"], said["used"], said["file"], said["busy"]), ([TEXT] * 2, [PIECES] * 2, TOKENS, "file_1", [TEXT] * 2))
        check_denied(said, search="tools that the provider runs", mcp="tools that the provider runs", batch="no rule allows POST api.anthropic.com")
        equal([KEY in json.dumps(what) for what in (said, fresh.events())], [False] * 2, "the key")
    contains(world.upstream.text(), KEY.encode())
    world.close()


@require("root", "program:npm")
def test_websockets_and_http2(fresh, tmp):
    place = packages.node(*NODE)
    sys.path.insert(0, packages.python(*PYTHON))
    import websockets.sync.server  # pylint: disable=import-outside-toplevel
    pem, root = certificate(os.path.join(tmp, "up"), "h1.example", "h2.example", "ws.example")
    h1, h2 = Upstream(echo, pem), Upstream(serve_h2, pem, ["h2"])
    ws, thread, ws_port = websocket_server(websockets, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    rules = [rule("h1.example", h1.port), rule("h2.example", h2.port), rule("ws.example", ws_port)]
    with fresh.sandbox(policy=json.dumps({"version": 1, "rules": rules}), mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        equal(run(fresh, box, OTHERS), {"fetch": 200, "h2": 200, "ws": "hello"})
    ws.shutdown()
    thread.join()
    h1.close()
    h2.close()


@require("root", "program:npm")
def test_npm_shows_what_a_rule_says(instance):
    """As text, which its registries send as `error`; everybody else gets the object."""
    deny = {"name": "none", "match": {"host": "registry.npmjs.org", "method": "GET"}, "action": "deny", "deny": {"status": 403, "message": "ask a person for packages"}}
    known = {"name": "known", "match": {"host": "registry.npmjs.org", "method": "POST"}, "action": "allow"}
    with instance.sandbox(policy=json.dumps({"version": 1, "rules": [deny, known]})) as box:
        done = instance.cay("exec", box, "--", "npm", "view", "left-pad", check=False, timeout=120)
        contains(done.stderr, "403 Forbidden - GET https://registry.npmjs.org/left-pad - ask a person for packages")
        other = instance.cay("exec", box, "--", "curl", "-s", "https://registry.npmjs.org/left-pad")
        equal(json.loads(other.stdout), {"error": {"code": "denied", "message": "ask a person for packages", "rule": "none"}})
