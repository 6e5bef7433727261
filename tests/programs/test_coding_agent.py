# SPDX-License-Identifier: Apache-2.0
"""A coding agent that nobody here wrote does a task in a sandbox: its model is scripted, its key stays outside."""

import json
import os
import subprocess
import sys

from lib.case import Skip, contains, equal, require
from lib.proxy import Upstream, certificate

LONG = True
TIMEOUT = 900
PACKAGE = "mini-swe-agent==2.4.6"  # with mcp: what it asks its model through imports that and does not ask for it
CACHE = f"/var/tmp/cay-tests-{os.getuid()}"  # kept: installing takes minutes
KEY = "sk-proj-9fKq2LwZx7RbT4vNc8YdH3mGs6JpUe1A"
COMMANDS = ["echo 'print(6 * 7)' > answer.py", "python3 answer.py > answer.txt; id -u >> answer.txt", "env > environment.txt",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]


def installed():
    """The directory that holds the agent."""
    place = os.path.join(CACHE, PACKAGE)
    if os.path.isdir(place):
        return place
    os.makedirs(CACHE, exist_ok=True)
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--target", place + ".new", PACKAGE, "mcp"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT - 200, check=False)
    if done.returncode != 0:
        raise Skip(f"{PACKAGE} cannot be installed: {done.stderr[-300:]}")
    os.rename(place + ".new", place)
    return place


def model(peer):
    """Each question is answered with the next command."""
    while (head := peer.head()) is not None:
        asked = json.loads(peer.body(head))
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        call = {"id": f"call_{turn}", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": COMMANDS[turn]})}}
        answer = json.dumps({"id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": asked["model"],
                             "choices": [{"index": 0, "finish_reason": "tool_calls",
                                          "message": {"role": "assistant", "content": "next", "tool_calls": [call]}}],
                             "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}}).encode()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(answer) + answer)


def policy(upstream):
    return json.dumps({"version": 1, "rules": [
        {"name": "model", "match": {"host": "api.openai.com", "method": "POST", "path": "/v1/chat/completions"}, "action": "allow",
         "upstream": upstream.address, "private": True}],
        "secrets": [{"name": "OPENAI_API_KEY", "hosts": ["api.openai.com"], "in": [{"header": "authorization"}]}]})


@require("root")
def test_mini_swe_agent_does_a_task(fresh, tmp):
    agent = installed()
    pem, root = certificate(os.path.join(tmp, "up"), "api.openai.com")
    upstream = Upstream(model, pem)
    rules, project = os.path.join(tmp, "policy.json"), os.path.join(tmp, "project")
    os.mkdir(project)
    os.chmod(project, 0o777)
    with open(rules, "w", encoding="utf-8") as f:
        f.write(policy(upstream))
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    fresh.cay("secret", "set", "OPENAI_API_KEY", stdin=KEY)
    fresh.cay("create", "--name", "box", "--policy", rules, "--mount", f"{agent}:/agent:ro", "--mount", f"{project}:/project")
    done = fresh.cay("exec", "-u", "nobody", "-w", "/project", "--env", "PYTHONPATH=/agent", "--env", "HOME=/tmp", "--env", "MSWEA_CONFIGURED=true",
                     "--env", "MSWEA_COST_TRACKING=ignore_errors", "--env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "box", "--",
                     "/usr/bin/python3", "-m", "minisweagent.run.mini", "-y", "--exit-immediately", "-m", "openai/scripted", "-t", "write the answer",
                     "-o", "/tmp/trajectory.json", timeout=300, check=False)
    equal(done.returncode, 0, done.stdout[-6000:] + done.stderr[-3000:])
    equal(fresh.cay("exec", "box", "--", "cat", "/project/answer.txt").stdout.split(), ["42", "65534"])
    environment = fresh.cay("exec", "box", "--", "cat", "/project/environment.txt").stdout
    contains(environment, "OPENAI_API_KEY=")
    contains(upstream.text(), b"Bearer " + KEY.encode())
    events = json.dumps(fresh.events())
    contains(events, '"forwarded"')
    fresh.cay("snapshot", "box", "--name", "after")
    kept = subprocess.run(["grep", "-rlF", KEY, fresh.dir], capture_output=True, text=True, check=False)
    equal((KEY in environment, KEY in events, kept.stdout), (False, False, ""))
    upstream.close()
