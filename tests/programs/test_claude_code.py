# SPDX-License-Identifier: Apache-2.0
"""
Claude Code, the program that npm has of it, does a task in a sandbox with a scripted model. It is forked in the middle of a command, then put on disk and resumed, and each of the three
goes on with the conversation. Its key stays outside.
"""

import hashlib
import json
import os
import subprocess
import tarfile

from lib.case import Skip, contains, equal, require
from lib.cay import wait_until
from lib.proxy import Upstream, certificate

LONG = True
TIMEOUT = 900
VERSION = "2.1.197"
URL = f"https://registry.npmjs.org/@anthropic-ai/claude-code-linux-x64/-/claude-code-linux-x64-{VERSION}.tgz"
SHA256 = "42b12aa7a1d57d9f48b49acecca37643a81528ad873629e0fc5f043730621b14"
CACHE = f"/var/tmp/cay-tests-{os.getuid()}"  # kept: it is large
KEY = "sk-ant-api03-9fKq2LwZx7RbT4vNc8YdH3mGs6JpUe1A"
COMMANDS = ["echo 'print(6 * 7)' > answer.py && python3 answer.py", "env", "touch waiting; until [ -e go ]; do sleep 0.1; done; python3 answer.py > answer.txt"]
HOLDS = "test -e /project/waiting"


def installed():
    """The directory that holds the agent."""
    place = os.path.join(CACHE, "claude-code-" + VERSION)
    if os.path.isdir(place):
        return place
    os.makedirs(CACHE, exist_ok=True)
    archive = place + ".tgz"
    done = subprocess.run(["curl", "-sSf", "--max-time", str(TIMEOUT - 300), "-o", archive, URL], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"{URL} cannot be fetched: {done.stderr[-300:]}")
    with open(archive, "rb") as f:
        equal(hashlib.file_digest(f, "sha256").hexdigest(), SHA256)
    with tarfile.open(archive) as packed:
        packed.extractall(place + ".new")  # what it holds is known: its digest is ours
    os.unlink(archive)
    os.rename(place + ".new", place)
    return place


def said(turn):
    if turn < len(COMMANDS):
        return {"type": "tool_use", "id": f"toolu_{turn}", "name": "Bash", "input": {"command": COMMANDS[turn], "description": "next"}}
    return {"type": "text", "text": "All done."}


def stream(asked, turn):
    """The events in which the model says what it has for @turn."""
    block = said(turn)
    whole = {"id": f"msg_{turn}", "type": "message", "role": "assistant", "model": asked["model"], "content": [], "stop_reason": None, "stop_sequence": None,
             "usage": {"input_tokens": 10, "output_tokens": 1}}
    if block["type"] == "text":
        empty, delta, reason = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}, "end_turn"
    else:
        empty, delta, reason = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}, "tool_use"
    for event in ({"type": "message_start", "message": whole}, {"type": "content_block_start", "index": 0, "content_block": empty},
                  {"type": "content_block_delta", "index": 0, "delta": delta}, {"type": "content_block_stop", "index": 0},
                  {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 5}}, {"type": "message_stop"}):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def model(peer):
    """Each question with tools is answered with the next command; whatever else it asks its provider has an empty answer."""
    while (head := peer.head()) is not None:
        body = peer.body(head)
        if not head.startswith(b"POST /v1/messages?"):
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            continue
        asked = json.loads(body)
        turn = sum(message["role"] == "assistant" for message in asked["messages"]) if asked.get("tools") else len(COMMANDS)
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for event in stream(asked, turn):
            peer.send(b"%x\r\n%s\r\n" % (len(event), event))
        peer.send(b"0\r\n\r\n")


def policy(upstream):
    return json.dumps({"version": 1, "rules": [
        {"name": "model", "match": {"host": "api.anthropic.com"}, "action": "allow", "upstream": upstream.address, "private": True, "placeholders": "pass"}],
        "secrets": [{"name": "ANTHROPIC_API_KEY", "hosts": ["api.anthropic.com"], "in": [{"header": "x-api-key"}]}]})


@require("root", "program:curl")
def test_it_is_forked_and_suspended_in_the_middle_of_a_command(fresh, tmp):
    agent = installed()
    pem, root = certificate(os.path.join(tmp, "up"), "api.anthropic.com")
    upstream = Upstream(model, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    fresh.cay("secret", "set", "ANTHROPIC_API_KEY", stdin=KEY)
    work = os.path.join(tmp, "work")
    os.mkdir(work)
    fresh.cay("create", "--name", "box", "--policy", policy_file(tmp, upstream), "--mount", f"{agent}:/agent:ro", "--mount", f"{work}:/project")
    run = fresh.cay("exec", "-d", "-w", "/project", "--env", "IS_SANDBOX=1", "--env", "DISABLE_AUTOUPDATER=1", "box", "--",
                    "/agent/package/claude", "-p", "write the answer", "--dangerously-skip-permissions").stdout.strip()
    wait_until(lambda: fresh.cay("exec", "box", "--", "sh", "-c", HOLDS, check=False).returncode == 0, 120, "its command runs")
    boxes = fresh.cay("fork", "box", "-n", "2").stdout.split() + ["box"]
    fresh.cay("suspend", "box")
    fresh.cay("resume", "box")
    for box in boxes:
        fresh.cay("exec", box, "--", "touch", "/project/go")
    for box in boxes:
        equal(fresh.wait(box, run, 120).get("code"), 0)
        contains(fresh.cay("logs", box, run).stdout, "All done.")
        equal(fresh.cay("exec", box, "--", "cat", "/project/answer.txt").stdout, "42\n")
    equal(os.listdir(work), [])
    heard = upstream.text()
    contains(heard, KEY.encode())
    events = json.dumps(fresh.events())
    contains(events, '"secret.misplaced"')  # it was asked to print its environment
    kept = subprocess.run(["grep", "-rlF", KEY, fresh.dir], capture_output=True, text=True, check=False).stdout
    equal((KEY in events, kept), (False, ""))
    upstream.close()


def policy_file(tmp, upstream):
    path = os.path.join(tmp, "policy.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write(policy(upstream))
    return path
