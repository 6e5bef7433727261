# SPDX-License-Identifier: Apache-2.0
"""A coding agent that nobody here wrote does a task, in a sandbox or with its commands alone in one: its model is scripted, its key stays outside."""

import json
import os
import subprocess

from lib import packages
from lib.case import contains, equal, require
from lib.cay import BUILD, TOP, Instance, ThrowawayUser
from lib.proxy import Upstream, certificate

LONG = True
TIMEOUT = 900
PACKAGE = "mini-swe-agent==2.4.6"  # with mcp: what it asks its model through imports that and does not ask for it
KEY = "sk-proj-9fKq2LwZx7RbT4vNc8YdH3mGs6JpUe1A"
COMMANDS = ["echo 'print(6 * 7)' > answer.py", "python3 answer.py > answer.txt; id -u >> answer.txt", "env > environment.txt",
            "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]


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


def does_its_task(instance, tmp, who):
    """One `cay run` from nothing to a kept sandbox; then the key is looked for in everything that stayed."""
    agent = packages.python(PACKAGE, "mcp", seconds=TIMEOUT - 200)
    pem, root = certificate(os.path.join(tmp, "up"), "api.openai.com")
    upstream = Upstream(model, pem)
    rules = os.path.join(tmp, "policy.json")
    with open(rules, "w", encoding="utf-8") as f:
        f.write(policy(upstream))
    os.chmod(rules, 0o644)
    instance.stop()
    instance.start(CAY_TRUST=root)
    instance.cay("secret", "set", "OPENAI_API_KEY", stdin=KEY)
    done = instance.cay("run", "--name", "box", "--policy", rules, "--no-cwd", "--mount", f"{agent}:/agent:ro", *who, "-w", "/var/tmp",
                        "--env", "PYTHONPATH=/agent", "--env", "HOME=/tmp", "--env", "MSWEA_CONFIGURED=true",
                        "--env", "MSWEA_COST_TRACKING=ignore_errors", "--env", "LITELLM_LOCAL_MODEL_COST_MAP=True", "--",
                        "/usr/bin/python3", "-m", "minisweagent.run.mini", "-y", "--exit-immediately", "-m", "openai/scripted", "-t", "write the answer",
                        "-o", "/tmp/trajectory.json", timeout=300, check=False)
    equal(done.returncode, 0, done.stdout[-6000:] + done.stderr[-3000:])
    kept = {}
    for name in ("answer.txt", "environment.txt"):
        path = os.path.join(instance.dir, name)
        instance.cay("cp", f"box:/var/tmp/{name}", path)
        with open(path, encoding="utf-8") as f:
            kept[name] = f.read()
        os.unlink(path)
    equal(kept["answer.txt"].split()[0], "42")
    contains(kept["environment.txt"], "OPENAI_API_KEY=")
    contains(upstream.text(), b"Bearer " + KEY.encode())
    events = json.dumps(instance.events())
    contains(events, '"forwarded"')
    instance.cay("snapshot", "box", "--name", "after")
    files = subprocess.run(["grep", "-rlF", KEY, instance.dir], capture_output=True, text=True, check=False)
    equal((KEY in kept["environment.txt"], KEY in events, files.stdout), (False, False, ""))
    upstream.close()
    return kept["answer.txt"].split()[1]


@require("root")
def test_mini_swe_agent_does_a_task(fresh, tmp):
    equal(does_its_task(fresh, tmp, ("-u", "nobody")), "65534")


@require("root", "userns", "newuidmap")
def test_mini_swe_agent_does_a_task_for_an_ordinary_user(tmp):
    """The same with an ordinary user's own server: nothing of it has any privilege."""
    with ThrowawayUser() as user:
        os.chmod(tmp, 0o755)
        instance = Instance(tmp, user=user, env={"CAY_ACCEPT_NO_LIMITS": "1"})
        try:
            instance.start()
            equal(instance.get("/v1/version")["mode"], "rootless")
            equal(does_its_task(instance, tmp, ()), "0")
        finally:
            instance.close()


# A model that comes with mini-swe-agent and says what its configuration holds.
STEPS = ["test -z \"$OPENAI_API_KEY\" && echo 'print(6 * 7)' > answer.py && python3 answer.py && echo pager: $PAGER", "sleep 1000", "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"]


def says(n, command):
    call = {"id": f"call_{n}", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": command})}}
    return {"role": "assistant", "content": "next", "tool_calls": [call], "extra": {"actions": [{"command": command, "tool_call_id": call["id"]}], "cost": 0.0, "timestamp": 0}}


@require("root")
def test_mini_swe_agent_stays_outside(instance, tmp):
    """With its own configuration and what the first lines of examples/agents/mini_swe.py say: its commands run inside, and the project is as it was."""
    agent, project, kept = packages.python(PACKAGE, "mcp", seconds=TIMEOUT - 200), os.path.join(tmp, "project"), os.path.join(tmp, "trajectory.json")
    os.mkdir(project)
    config = {"model": {"model_class": "minisweagent.models.test_models.DeterministicToolcallModel", "model_name": "scripted", "outputs": [says(n, c) for n, c in enumerate(STEPS)]},
              "environment": {"environment_class": "mini_swe.MiniSweEnvironment", "cwd": project, "timeout": 2}}
    with open(os.path.join(tmp, "ours.yaml"), "w", encoding="utf-8") as f:
        json.dump(config, f)
    environment = {**instance.environment(), "PYTHONPATH": f"{agent}:{os.path.join(TOP, 'examples', 'agents')}", "PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": tmp, "OPENAI_API_KEY": KEY,
                   "MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors"}
    done = subprocess.run(["/usr/bin/python3", "-m", "minisweagent.run.mini", "-y", "--exit-immediately", "-c", "mini.yaml", "-c", "ours.yaml", "-t", "write the answer", "-o", kept],
                          cwd=tmp, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    equal(done.returncode, 0, done.stdout[-6000:])
    with open(kept, encoding="utf-8") as f:
        trajectory = json.load(f)
    equal((trajectory["info"]["exit_status"], trajectory["info"]["submission"]), ("Submitted", "done\n"))
    answers = [m["content"] for m in trajectory["messages"] if m["role"] == "tool"]
    contains(answers[0], "42\\npager: cat")
    contains(answers[1], '"returncode": 124')
    box = trajectory["info"]["config"]["environment"]["sandbox"]
    equal([(c["kind"], c["path"]) for c in instance.json("diff", box)["changes"]], [("added", f"{project}/answer.py")])
    equal(os.listdir(project), [])
    instance.cay("apply", box)
    equal(os.listdir(project), ["answer.py"])
    instance.remove(box)
