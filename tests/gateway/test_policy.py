# SPDX-License-Identifier: Apache-2.0
"""Policies through the command and the API: checked, explained, changed while a sandbox runs."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import threading
import time

from lib import cay
from lib.case import contains, equal, raises
from lib.cay import wait_until
from lib.pace import patience
from lib.proxy import Upstream, certificate, echo


def rules(upstream, *methods):
    return json.dumps({"rules": [{"name": "api", "match": {"host": "api.example", "method": list(methods)}, "action": "allow", "upstream": upstream.address,
                                  "private": True}]})


def status(instance, box, *options):
    return instance.cay("exec", box, "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", *options,
                        "http://api.example/", check=False).stdout


def test_check_names_what_is_wrong(instance, tmp):
    path = os.path.join(tmp, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("preset: mail-sink\nrules:\n- {name: a, match: {host: x.example}, action: allow}\n")
    equal([r["name"] for r in instance.json("policy", "check", path)["rules"]], ["a", "mail-sink/keep"])
    contains(instance.cay("policy", "check", "read-only-web").stdout, "read-only-web/read")
    with open(path, "w", encoding="utf-8") as f:
        f.write("rules:\n- {name: a, match: {host: x.example, path: x}, action: allow}\n")
    done = instance.cay("policy", "check", path, check=False)
    contains(done.stderr, "rules[0].match.path: 'x' is no path")
    for wrong, said in (("/a/../b", "segment of dots"), ("/a//b", "empty segment"), ("/%7euser", "no request is judged with"), ("/a b", "as %20")):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"rules": [{"match": {"host": "x.example", "path": wrong}, "action": "allow"}]}, f)
        done = instance.cay("policy", "check", path, check=False)
        contains(done.stderr, said)
        equal(done.returncode != 0, True, wrong)
    done = instance.cay("policy", "check", "no-such-preset", check=False)
    contains(done.stderr, "'no-such-preset' is no preset")
    contains(instance.cay("policy", "check", tmp, check=False).stderr, "Is a directory")
    contains(instance.cay("policy", "check", "none").stdout, "no rules: nothing leaves")
    contains(instance.cay("policy", "presets").stdout, "llm-openai\n")


def test_explain(instance):
    answer = instance.json("policy", "explain", "read-only-web", "https://a.example/x/../y?z=1")
    equal((answer["action"], answer["rule"]), ("allow", "read-only-web/read"))
    done = instance.cay("policy", "explain", "read-only-web", "https://a.example/", "--method", "POST")
    contains(done.stdout, "method")
    contains(done.stdout, "deny: nothing matches\n")
    for url in ("ftp://x/", "https:///", "https://a b/", "https://x/%2e%2e%2f"):
        equal(instance.cay("policy", "explain", "none", url, check=False).returncode, 125, url)


def test_explain_a_websocket(instance, tmp):
    path = os.path.join(tmp, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("rules: [{name: read, match: {host: a.example, method: GET}, action: allow}, {name: talk, match: {host: a.example, path: /ws, upgrade: websocket}, action: allow}]")

    def explain(url):
        answer = instance.json("policy", "explain", path, url)
        return [answer.get("rule"), *((r["result"], r["because"]) for r in answer["rules"])]

    equal(explain("https://a.example/ws"), ["read", ("match", ""), ("no", "upgrade")])
    equal(explain("wss://a.example/ws"), ["talk", ("no", "method"), ("match", "")])
    equal(explain("ws://a.example/x"), [None, ("no", "method"), ("no", "path")])
    equal(explain("wss://a.example:8443/ws"), [None, ("no", "port"), ("no", "port")])
    equal(instance.json("policy", "explain", "read-only-web", "wss://a.example/")["action"], "deny")


def test_explain_what_only_head_and_body_tell(instance, tmp):
    path = os.path.join(tmp, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write('rules: [{name: charge, match: {host: pay.example, method: POST, headers: {x-team: "a*"}, json: {amount: {max: 500}}}, action: allow}]')

    def because(*options):
        return [(r["result"], r["because"]) for r in instance.json("policy", "explain", path, "https://pay.example/", "--method", "POST", *options)["rules"]]

    team = ("--header", "X-Team: abc")
    equal(because(*team, "--body", '{"amount": 500}'), [("match", "")])
    equal(because(*team, "--body", '{"amount": 501}'), [("no", "json")])
    equal(because("-H", "x-team:b", "--body", '{"amount": 500}'), [("no", "headers")])
    for wrong in (("--body", "{"), ("--header", "x-team"), ("--header", ": x")):
        equal(instance.cay("policy", "explain", path, "https://pay.example/", *wrong, check=False).returncode, 64, str(wrong))


def test_explain_reads_a_body_as_the_gateway_does(instance, tmp):
    """What says that it is a form, or in another charset, is no JSON to it."""
    path = os.path.join(tmp, "p.yaml")
    with open(path, "w", encoding="utf-8") as f:
        f.write("rules: [{name: charge, match: {host: pay.example, method: POST, json: {amount: {max: 500}}}, action: allow}]")

    def because(kind, body='{"amount": 500}', name="Content-Type"):
        answer = instance.json("policy", "explain", path, "https://pay.example/", "--method", "POST", "--body", body, "--header", f"{name}: {kind}")
        return [(r["result"], r["because"]) for r in answer["rules"]]

    for kind in ("application/json", "text/plain", "application/json; charset=UTF-8"):
        equal(because(kind), [("match", "")], kind)
    for kind in ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/json; charset=utf-16"):
        equal(because(kind), [("no", "json")], kind)
    equal(because("application/x-www-form-urlencoded", "amount=500"), [("no", "json")])
    equal(because("application/json", name="Content_Type"), [("no", "json")])
    equal(because("x", name="X-Other"), [("match", "")], "it is taken for JSON where nothing else is said")


def test_hosts_that_no_request_has_are_refused(instance, tmp):
    """An address is asked for in one spelling, whatever a program wrote."""
    path = os.path.join(tmp, "p.yaml")
    for host, why in (("127.1", "number"), ("0x7f.0.0.1", "number"), ("2130706433", "number"), ("::ffff:10.0.0.1", "IPv4"),
                      ("::ffff:10.0.0.0/104", "IPv4"), ("1.2.3.4.5", "number"), ("*.3.4", "number"), (".0.1", "number")):
        with open(path, "w", encoding="utf-8") as f:
            f.write(f'rules: [{{name: one, match: {{host: "{host}"}}, action: allow}}]')
        done = instance.cay("policy", "check", path, check=False)
        equal(done.returncode, 125, host)
        contains(done.stderr, why, host)


def test_a_running_sandbox_gets_another_policy(instance):
    upstream = Upstream(echo)
    with instance.sandbox(policy=rules(upstream, "GET")) as box:
        equal((status(instance, box), status(instance, box, "-X", "PUT")), ("200", "403"))
        instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": rules(upstream, "PUT")})
        equal((status(instance, box), status(instance, box, "-X", "PUT")), ("403", "200"))
        equal(instance.json("policy", "show", box)["version"], 2)
        event = instance.wait_event("policy.changed", box, lambda e: True)
        equal((event["data"]["version"], event["data"]["before"]["rules"][0]["match"]["method"]), (2, ["GET"]))
        error = raises(cay.ApiError, instance.call, "PUT", f"/v1/sandboxes/{box}/policy", {"policy": "preset: none", "if_version": 1})
        equal(error.code, "conflict")
        error = raises(cay.ApiError, instance.call, "PUT", f"/v1/sandboxes/{box}/policy", {"policy": "rules: 1"})
        equal(error.code, "invalid")
        equal(status(instance, box, "-X", "PUT"), "200")
        instance.cay("policy", "set", box, "none")
        equal(status(instance, box, "-X", "PUT"), "000")
    upstream.close()


def test_a_policy_that_comes_while_the_gateway_is_being_configured(fresh):
    """The next server has made the configuration already, and the gateway has not taken it yet."""
    def answers(code):
        return json.dumps({"rules": [{"name": "no", "match": {"host": "api.example", "method": ["GET"]}, "action": "deny", "deny": {"status": code}},
                                     {"name": "writes", "match": {"host": "api.example"}, "action": "allow"}]})

    def change(code):
        change.answer = fresh.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": answers(code)})

    with fresh.sandbox(policy=answers(418)) as box:
        equal(status(fresh, box), "418")
        gateway, = fresh.programs_named("cay-gateway")
        os.kill(gateway, signal.SIGSTOP)
        fresh.kill()
        fresh.start()
        time.sleep(1)
        changing = threading.Thread(target=change, args=(451,))
        changing.start()
        time.sleep(0.5)
        equal(fresh.json("policy", "show", box)["version"], 1, "before it holds")
        os.kill(gateway, signal.SIGCONT)
        changing.join(patience(60))
        equal(change.answer["version"], 2)
        equal(status(fresh, box), "451")


def test_a_secret_that_is_rotated_is_used_at_once(instance):
    """The whole way: the sandbox sees a placeholder in its environment, the upstream hears the value, over verified TLS only."""
    first, second = "sk_live_0123456789abcdefABCDEF", "sk_live_zyxwvutsrqponmlkjihgfe"
    document = {"rules": [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}],
                "secrets": [{"name": "API_KEY", "hosts": "api.example", "in": [{"header": "authorization"}]}]}
    error = raises(cay.ApiError, instance.call, "POST", "/v1/sandboxes", {"policy": json.dumps(document)})
    equal((error.code, "API_KEY" in error.message), ("not_found", True))
    instance.cay("secret", "set", "API_KEY", stdin=first)
    with instance.sandbox(policy=json.dumps(document)) as box:
        inside = instance.cay("exec", box, "--", "sh", "-c", "echo $API_KEY").stdout.strip()
        assert inside != first and len(inside) == len(first) and inside.startswith("sk_live_"), inside
        instance.cay("secret", "set", "API_KEY", stdin=second)
        equal(instance.cay("exec", box, "--", "sh", "-c", "echo $API_KEY").stdout.strip(), inside)
        everything = str(instance.raw("GET", f"/v1/sandboxes/{box}")) + str(instance.raw("GET", "/v1/events")) + instance.cay("exec", box, "--", "env").stdout
        assert first not in everything and second not in everything
    instance.cay("secret", "rm", "API_KEY")


def test_a_secret_that_a_preset_offers_is_bound_where_there_is_one(instance):
    """Whoever has none, or another way to the key, starts without it; one that is kept later is there when the policy is set again."""
    def key(box):
        return instance.ok(box, "echo ${OPENAI_API_KEY:-none}").strip()

    with instance.sandbox(policy="preset: llm-openai") as box:
        equal(key(box), "none")
        instance.cay("secret", "set", "OPENAI_API_KEY", stdin="sk-0123456789abcdef")
        equal(key(box), "none", "before it gets its policy anew")
        instance.cay("policy", "set", box, "llm-openai")
        inside = key(box)
        assert inside.startswith("sk-") and inside != "sk-0123456789abcdef" and len(inside) == 19, inside
    instance.cay("secret", "rm", "OPENAI_API_KEY")


def test_a_policy_that_comes_after_the_start(fresh, tmp):
    """All of it works at once, and after the next start too."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    plain, secure = Upstream(echo), Upstream(echo, pem)
    way = {"action": "allow", "private": True}
    document = json.dumps({"rules": [{"match": {"host": "api.example", "port": 80}, **way, "upstream": plain.address},
                                     {"match": {"host": "api.example", "port": 443}, **way, "upstream": secure.address}]})
    path = os.path.join(tmp, "policy.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write(document)
    fresh.stop()
    fresh.start(CAY_TRUST=root)

    def get(box, url):
        done = fresh.cay("exec", box, "--", "curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", url, check=False)
        return done.stdout + done.stderr

    def stores(box):
        """The variables that name a store, and whether each names a file."""
        return fresh.ok(box, "env | grep -E '_(CERT|CERTS|FILE|BUNDLE|CAINFO)=' | while IFS== read -r name file; do test -s $file && echo $name; done | sort").split()

    with fresh.sandbox() as box:
        equal(fresh.cay("policy", "set", box, path).stderr, "")
        equal((get(box, "http://api.example/"), get(box, "https://api.example/")), ("200", "200"))
        late = stores(box)
        assert {"CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"} <= set(late), late
        equal(fresh.json("diff", box)["changes"], [], "the stores are no change of the sandbox's")
        fresh.cay("stop", box)
        equal("hint" in fresh.json("policy", "show", box), False)
        fresh.cay("start", box)
        equal(get(box, "https://api.example/"), "200")
        equal(stores(box), late)
        equal(fresh.cay("policy", "set", box, path).stderr, "")
        fresh.stop()
        fresh.start(CAY_TRUST=root)
        equal("hint" in fresh.json("policy", "show", box), False)
    with fresh.sandbox() as box:  # it comes while the sandbox is suspended: resuming is a start
        fresh.cay("suspend", box)
        equal(fresh.cay("policy", "set", box, path).stderr, "")
        fresh.cay("resume", box)
        equal(get(box, "https://api.example/"), "200")
        equal(fresh.json("policy", "show", box).get("hint"), None)
    plain.close()
    secure.close()


def image_of_curl(tmp):
    """A root file system archive with curl, what it is linked to, and neither shell nor trust store."""
    root, archive = os.path.join(tmp, "root"), os.path.join(tmp, "curl.tar")
    linked = subprocess.run(["ldd", "/usr/bin/curl"], check=True, capture_output=True, text=True).stdout
    for path in ["/usr/bin/curl", "/usr/bin/env", *{word for word in linked.split() if word.startswith("/")}]:
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        shutil.copy(path, root + path)
    os.makedirs(root + "/etc")
    with open(root + "/etc/resolv.conf", "w", encoding="utf-8") as f:
        f.write("nameserver 192.0.2.53\n")
    subprocess.run(["tar", "-C", root, "-cf", archive, "."], check=True)
    return archive


def test_a_policy_that_comes_to_an_image_without_a_store(fresh, tmp):
    """Nothing can be laid over what is not there: the stores come into a directory that waits for them."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    secure = Upstream(echo, pem)
    document = json.dumps({"rules": [{"match": {"host": "api.example"}, "action": "allow", "private": True, "upstream": secure.address}]})
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    image = fresh.json("image", "import", image_of_curl(tmp))["id"]

    def get(box):
        done = fresh.cay("exec", box, "--", "/usr/bin/curl", "-sS", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "20", "https://api.example/", check=False)
        return done.stdout + done.stderr

    def variables(box):
        return [line for line in fresh.cay("exec", box, "--", "/usr/bin/env").stdout.splitlines() if "/run/cay/trust/" in line]

    with fresh.sandbox(image=image) as box:
        equal(variables(box), [])
        contains(get(box), "000")
        fresh.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": document})
        equal((get(box), "hint" in fresh.json("policy", "show", box)), ("200", False))
        assert "CURL_CA_BUNDLE=/run/cay/trust/bundle.pem" in variables(box)
        equal(fresh.json("diff", box)["changes"], [], "the stores are no change of the sandbox's")
        fresh.stop()  # another server finds it as it is
        fresh.start(CAY_TRUST=root)
        equal(get(box), "200")
        fresh.cay("stop", box)
        fresh.cay("start", box)
        equal(get(box), "200")
        child = fresh.json("fork", box)["sandboxes"][0]["id"]
        equal(get(child), "200")
        fresh.remove(child)
    secure.close()


def gateway_memory(instance):
    """Bytes of data of the one gateway that runs, as the kernel counts them."""
    gateway, = instance.programs_named("cay-gateway")
    with open(f"/proc/{gateway}/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmData:"))


def test_replaced_policies_are_freed(instance):
    """A large policy replaced many times costs the gateway's memory once; what was judged by a former one ends by it."""
    release = threading.Event()

    def slow(peer):
        while (head := peer.head()) is not None:
            if b"/slow" in head:
                release.wait(50)
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    upstream = Upstream(slow)

    def policy(number):
        filler = [{"name": f"r{i}", "match": {"host": [f"h{number}-{i}-{k}.example" for k in range(4)]}, "action": "allow"} for i in range(900)]
        api = {"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True,
               "budget": {"requests": {"max": 1000}, "bytes": {"max": "1M"}}}
        return json.dumps({"version": 1, "rules": [*filler[:number % 7], api, *filler[number % 7:]]})

    with instance.sandbox(policy=policy(0)) as box:
        get = ("curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--max-time", "60")
        waiting = instance.popen([os.path.join(instance.programs, "cay"), "exec", box, "--", *get, "http://api.example/slow"], stdout=subprocess.PIPE)
        while b"/slow" not in upstream.text():
            instance.cay("exec", box, "--", *get, "http://api.example/")
        sizes = []
        for number in range(1, 31):
            instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": policy(number)})
            equal(instance.cay("exec", box, "--", *get, "http://api.example/").stdout, "200")
            sizes.append(gateway_memory(instance))
        release.set()
        equal(waiting.communicate(timeout=60)[0], b"200")
        assert max(sizes[10:]) - max(sizes[:10]) < 4 << 20, sizes
    upstream.close()


SLOWLY = r"""
import socket, sys
body, chunks = sys.argv[1].encode(), sys.argv[2] == "chunks"
with socket.create_connection(("api.example", 80)) as s:
    length = b"Transfer-Encoding: chunked" if chunks else b"Content-Length: %d" % len(body)
    s.sendall(b"POST /x HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\nConnection: close\r\nExpect: 100-continue\r\n" + length + b"\r\n\r\n")
    assert s.recv(100).startswith(b"HTTP/1.1 100 "), "nobody wants the body"
    frame = (lambda part: b"%x\r\n%s\r\n" % (len(part), part)) if chunks else (lambda part: part)
    s.sendall(frame(body[:len(body) // 2]))
    print("begun", flush=True)
    sys.stdin.readline()
    s.sendall(frame(body[len(body) // 2:]) + (b"0\r\n\r\n" if chunks else b""))
    answer = b""
    while piece := s.recv(65536):
        answer += piece
print(answer[9:12].decode())
"""


def ask_slowly(instance, box, body, length, between):
    """The status of a request in the middle of whose body @between is called."""
    asking = instance.popen([os.path.join(instance.programs, "cay"), "exec", "-i", box, "--", "/usr/bin/python3", "-c", SLOWLY, body, length], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        equal(asking.stdout.readline(), "begun\n")
        between()
        return asking.communicate("\n", timeout=patience(60))[0].strip()
    finally:
        asking.kill()
        asking.wait()


def test_a_body_that_comes_slowly_is_judged_by_the_policy_in_force(instance):
    """However its beginning was meant: rules, and how much of a body they read, are those of the moment in which it is whole."""
    upstream = Upstream(echo)
    allow = {"name": "api", "match": {"host": "api.example", "json": {"kind": "good"}}, "action": "allow", "upstream": upstream.address, "private": True}
    deny = {"name": "no", "match": {"host": "api.example", "json": {"other": {"present": True}}}, "action": "deny"}
    good, long = json.dumps({"kind": "good", "other": 1}), json.dumps({"kind": "good", "x": "y" * 1400})
    both, small = {"rules": [deny, allow]}, {"body_max": 1000, "rules": [allow]}
    cases = (("another rule denies", {"rules": [allow]}, both, good, "403", ("length", "chunks")), ("no rule denies any more", both, {"rules": [allow]}, good, "200", ("length", "chunks")),
             ("no rule allows any more", {"rules": [allow]}, {"rules": [deny]}, good, "403", ("length",)), ("less is read", {"rules": [allow]}, small, long, "413", ("length", "chunks")),
             ("more is read", small, {"rules": [allow]}, long, "200", ("chunks",)), ("as much is read", {"rules": [allow]}, small, good, "200", ("chunks",)))
    with instance.sandbox(policy=json.dumps({"rules": [allow]})) as box:
        def judged_by(document):
            instance.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": json.dumps(document)})
        for what, before, after, body, wanted, lengths in cases:
            for length in lengths:
                judged_by(before)
                heard = len(upstream.text())
                equal((what, length, ask_slowly(instance, box, body, length, lambda after=after: judged_by(after))), (what, length, wanted))
                equal(len(upstream.text()) > heard, wanted == "200", what)
    upstream.close()


# What becomes of a name and of a connection, whenever it is something else.
TRIES = r'''
import socket, time
last = None
while True:
    try:
        socket.getaddrinfo("api.example", 80)
        name = "found"
    except socket.gaierror as error:
        name = f"gaierror {error.errno}"
    try:
        with socket.create_connection(("9.9.9.9", 80), 200) as s:
            end = s.recv(1)
    except OSError as error:
        end = type(error).__name__
    if (name, end) != last:
        print(name, end, flush=True)
    last = name, end
    time.sleep(0.1)
'''


def test_a_gateway_that_cannot_be_configured(fresh):
    """Its state cannot be read: what goes out is refused at once and told, the reason once; when it can be read again all goes on with what was spent."""
    upstream = Upstream(echo)
    rule = {"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True, "budget": {"requests": {"max": 2}}}
    document = json.dumps({"version": 1, "rules": [rule]})

    def state(box, doc):
        with contextlib.closing(sqlite3.connect(os.path.join(fresh.state, "cay.db"), timeout=30)) as db, db:
            [[before]] = db.execute("SELECT doc FROM gateways WHERE id = ?", (box,)).fetchall()
            db.execute("UPDATE gateways SET doc = ? WHERE id = ?", (doc, box))
        return before

    def get(box):
        return fresh.cay("exec", box, "--", "curl", "-s", "-o", "/dev/null", "-w", "%{http_code} %{exitcode}", "--max-time", "100", "http://api.example/", check=False, timeout=150).stdout

    with fresh.sandbox(policy=document) as box:
        equal(get(box), "200 0")
        run = fresh.exec(box, "python3", "-c", TRIES)
        wait_until(lambda: b"found" in fresh.output(box, run), 60, "it finds the name")
        deep = '{"budgets":' + "[" * 2000 + "]" * 2000 + "}"  # which an earlier server may have taken
        readable = state(box, deep)
        os.kill(fresh.wait_event("gateway.started", box)["data"]["pid"], signal.SIGKILL)
        fresh.wait_event("gateway.ended", box)
        failed = fresh.wait_event("gateway.failed", box)
        contains(failed["data"]["error"]["message"], "is no JSON")
        fresh.wait_event("net.denied", box, lambda e: e["data"]["host"] == "9.9.9.9" and "cannot be configured" in e["data"]["reason"])
        wait_until(lambda: b"gaierror -3 ConnectionResetError\n" in fresh.output(box, run), 60, "names are answered, too")
        equal(fresh.ok(box, "echo saved"), "saved\n", "commands start all the same")
        equal(state(box, readable), deep, "nothing was written over it")
        path = os.path.join(fresh.state, "policy.json")
        with open(path, "w", encoding="utf-8") as f:
            f.write(document)
        fresh.cay("policy", "set", box, path, timeout=150)  # which is tried at once
        equal([get(box), get(box)], ["200 0", "429 0"])
        equal(len([e for e in fresh.events(box) if e["type"] == "gateway.failed"]), 1)
        with open(fresh.log, encoding="utf-8") as f:
            equal(f.read().count("is no JSON"), 1)
    upstream.close()
