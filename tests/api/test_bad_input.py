# SPDX-License-Identifier: Apache-2.0
"""Contract FAIL: whatever is wrong with a request, the answer has the one error shape with a stable code, and nothing changed."""

import contextlib
import json
import os
import re
import socket
import sqlite3

from lib import cay
from lib.case import contains, equal, raises

JSON = {"Content-Type": "application/json"}


def codes():
    with open(os.path.join(cay.TOP, "defs", "errors.def"), encoding="utf-8") as f:
        return {wire: int(status) for wire, status in re.findall(r'^ERR\(\w+, "(\w+)", (\d+)', f.read(), re.M)}


def refused(instance, method, path, body=None, headers=None, code=None):
    """The request must fail with the error shape, a code of errors.def and its status."""
    status, head, text = instance.raw(method, path, body, headers or ({} if body is None else JSON))
    answer = json.loads(text)
    equal(list(answer), ["error"], f"{method} {path}")
    error = answer["error"]
    known = codes()
    assert error["code"] in known, error
    equal(status, known[error["code"]], f"{method} {path}: {error}")
    assert isinstance(error["message"], str) and error["message"], error
    contains(head.get("Content-Type", head.get("content-type", "")), "application/json")
    if code is not None:
        equal(error["code"], code, f"{method} {path} {str(body)[:200]}: {error['message']}")
    return error


def state(instance):
    """All that a refused request must leave as it was."""
    return (instance.get("/v1/sandboxes"), instance.get("/v1/snapshots"), instance.get("/v1/images"))


def test_unknown_routes_and_methods(instance):
    refused(instance, "GET", "/", code="not_found")
    refused(instance, "GET", "/v1", code="not_found")
    refused(instance, "GET", "/v1/nothing", code="not_found")
    refused(instance, "GET", "/v2/sandboxes", code="not_found")
    refused(instance, "DELETE", "/v1/sandboxes", code="method_not_allowed")
    refused(instance, "PATCH", "/v1/sandboxes", code="method_not_allowed")
    refused(instance, "GET", "/v1/../v1/sandboxes")
    refused(instance, "GET", "/v1//sandboxes", code="not_found")


def test_unknown_objects_everywhere(instance):
    for name in ("nope", "abcdefghij0123456789", "a" * 63):
        for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/stop", {}), ("POST", "/start", None), ("POST", "/pause", None),
                                   ("POST", "/resume", None), ("GET", "/usage", None), ("GET", "/execs", None),
                                   ("POST", "/execs", {"argv": ["true"]}), ("POST", "/snapshots", {}), ("POST", "/fork", {}),
                                   ("POST", "/rewind", {"snapshot": "nope"}), ("POST", "/apply", {}), ("GET", "/files?path=/etc/passwd", None),
                                   ("GET", "/events", None), ("GET", "/events/verify", None)):
            refused(instance, method, f"/v1/sandboxes/{name}{path}", None if body is None else json.dumps(body).encode(), code="not_found")
        for method, path, body in (("GET", "", None), ("DELETE", "", None), ("POST", "/verify", None), ("POST", "/fork", {})):
            refused(instance, method, f"/v1/snapshots/{name}{path}", None if body is None else json.dumps(body).encode(), code="not_found")
        refused(instance, "GET", f"/v1/diff?a={name}", code="not_found")
    refused(instance, "GET", "/v1/images/nope", code="not_found")


def test_bodies_that_are_no_json_object(instance):
    before = state(instance)
    for body in (b"", b"{", b"}", b"[]", b"null", b'"x"', b"1", b"{}{}", b"{} x", b"{'a':1}", b'{"name":}', b'{"name":"a",}', b"\xff\xfe{}",
                 b'{"name":"\xff"}', b'{"name":"\xed\xa0\x80"}', b'{"name":"a\x00b"}', b'{"name":"\\ud800"}', b'{"a":1e999}',
                 b"[" * 100000, b'{"labels":' * 5000 + b"1" + b"}" * 5000):
        if body == b"":
            continue
        refused(instance, "POST", "/v1/sandboxes", body, code="invalid")
    equal(state(instance), before)


def test_duplicate_and_unknown_members(instance):
    before = state(instance)
    for body in (b'{"name":"a1","name":"a2"}', b'{"labels":{"a":"1","a":"2"}}', b'{"nmae":"a"}', b'{"limits":{"memory":1}}',
                 b'{"mounts":[{"source":"/tmp","target":"/x","modus":"cow"}]}'):
        refused(instance, "POST", "/v1/sandboxes", body, code="invalid")
    equal(state(instance), before)


def test_wrong_types_and_values_out_of_range(instance):
    before = state(instance)
    for body in ({"name": 1}, {"name": ""}, {"name": "A"}, {"name": "a/b"}, {"name": "../x"}, {"name": "a" * 64}, {"name": "abcdefghij0123456789"},
                 {"name": None}, {"profile": "root"}, {"image": ""}, {"image": "no-such-image"}, {"labels": []}, {"labels": {"a": 1}}, {"labels": {"": ""}}, {"labels": {"a=b": "c"}}, {"labels": {"k" * 256: ""}},
                 {"env": {"": "x"}}, {"env": {"A=B": "x"}}, {"env": {"A": "x\0y"}}, {"hostname": "a b"}, {"start": "yes"},
                 {"limits": {"memory_bytes": 0}}, {"limits": {"memory_bytes": -1}}, {"limits": {"pids": 0}}, {"limits": {"pids": 1.5}},
                 {"limits": {"memory_bytes": 10 ** 30}}, {"limits": {"disk_bytes": 1}}, {"mounts": [{"source": "/tmp"}]},
                 {"mounts": [{"source": "tmp", "target": "/x"}]}, {"mounts": [{"source": "/tmp", "target": "/x", "mode": "w"}]},
                 {"mounts": [{"source": "/tmp", "target": "/x/../y"}]}, {"mounts": [{"source": "/no/such/dir", "target": "/x"}]},
                 {"mounts": [{"source": "/tmp", "target": "/"}]}, {"mounts": [{"source": "/tmp", "target": "/proc"}]},
                 {"expose": ["relative"]}, {"expose": ["/no/such/dir"]}, {"mounts": [{"source": "/tmp", "target": "/x"}] * 33}):
        error = refused(instance, "POST", "/v1/sandboxes", json.dumps(body).encode())
        assert error["code"] in ("invalid", "not_found", "denied", "limit", "too_large", "exists"), (body, error)
    equal(state(instance), before)


def test_whole_numbers_however_they_are_written(instance):
    """JSON has one kind of number: what is whole is an integer (100.0, 1e6), and is one in the answer."""
    before = state(instance)
    for text in (b"100.5", b"1e300", b"9007199254740993.0", b"-0.5"):
        refused(instance, "POST", "/v1/sandboxes", b'{"start":false,"idle_ms":' + text + b"}", code="invalid")
    equal(state(instance), before)
    status, _, text = instance.raw("POST", "/v1/sandboxes", b'{"start":false,"idle_ms":1e6,"limits":{"pids":100.0}}', JSON)
    equal(status, 201, text.decode())
    box = json.loads(text)
    equal([repr(n) for n in (box["idle_ms"], box["limits"]["pids"])], ["1000000", "100"])
    instance.remove(box["id"])


def test_two_idempotency_keys_are_none(instance):
    """Nobody knows which one counts; whoever adds one on the way must not make a second sandbox out of a retry."""
    before = state(instance)
    with contextlib.closing(cay.UnixConnection(instance.socket)) as connection:
        connection.putrequest("POST", "/v1/sandboxes")
        for key in ("one", "two"):
            connection.putheader("Idempotency-Key", key)
        connection.endheaders()
        answer = connection.getresponse()
        error = json.loads(answer.read()).get("error", {})
        equal((answer.status, error.get("code"), error.get("member")), (400, "invalid", "Idempotency-Key"))
    equal(state(instance), before)


def test_a_run_cannot_be_left_stopped(instance):
    before = state(instance)
    error = raises(cay.ApiError, instance.upgrade, "POST", "/v1/run", {"sandbox": {"start": False}, "exec": {"argv": ["true"]}})
    equal((error.code, error.body["error"]["member"]), ("invalid", "sandbox.start"))
    equal(state(instance), before)
    with contextlib.closing(instance.upgrade("POST", "/v1/run", {"sandbox": {"start": True}, "exec": {"argv": ["true"]}, "rm": True})) as stream:
        stream.collect()


def test_two_mounts_of_one_target(instance):
    """One would hide the other, whatever lies between them in the list."""
    before = state(instance)
    for targets in (("/a", "/a"), ("/a", "/b", "/a"), ("/a", "/b/c", "/a"), ("/b/c", "/a", "/d", "/b/c")):
        mounts = [{"source": "/tmp", "target": target} for target in targets]
        error = refused(instance, "POST", "/v1/sandboxes", json.dumps({"mounts": mounts, "start": False}).encode(), code="invalid")
        contains(error["message"], f"'{targets[0]}'")
    equal(state(instance), before)


def test_as_much_is_mounted_as_may_be_asked_for(instance, tmp):
    """Beside it are mounts of our own: stores of roots for who has a policy, and what a fork is told."""
    places = [os.path.join(tmp, f"{kind}{i}") for kind, n in (("m", 32), ("e", 64)) for i in range(n)]
    for place in places:
        os.mkdir(place)
    mounts = [{"source": place, "target": f"/m/{i}", "mode": "cow" if i < 2 else "ro"} for i, place in enumerate(places[:32])]
    with instance.sandbox(mounts=mounts, expose=places[32:], allow=["example.org"]) as box:
        equal(instance.ok(box, f"ls -d /m/*/ {tmp}/e*/ | wc -l"), "96\n")
        for fork in instance.post(f"/v1/sandboxes/{box}/fork", {"live": True})["sandboxes"]:
            equal(instance.ok(fork["id"], f"ls -d /m/*/ {tmp}/e*/ | wc -l"), "96\n")
            instance.remove(fork["id"])


def test_places_of_credentials_are_not_exposed(instance, tmp):
    before = state(instance)
    os.makedirs(os.path.join(tmp, "home", ".ssh"))
    os.symlink(os.path.join(tmp, "home", ".ssh"), os.path.join(tmp, "link"))
    for place in ("/root/.ssh", "/home/u/.aws/sso", "/etc", "/", "/home", os.path.join(tmp, "home", ".ssh"), os.path.join(tmp, "home"), os.path.join(tmp, "link"),
                  instance.state, instance.run, os.path.dirname(instance.state)):
        error = refused(instance, "POST", "/v1/sandboxes", json.dumps({"expose": [place]}).encode(), code="denied")
        assert place in error["message"], (place, error)
    equal(state(instance), before)
    tools = os.path.join(tmp, "tools")
    os.makedirs(tools)
    with instance.sandbox(expose=[tools]) as box:
        equal(instance.ok(box, f"test -d {tools} && echo there"), "there\n")


def test_bad_execs_change_nothing(instance):
    with instance.sandbox() as box:
        for body in ({}, {"argv": []}, {"argv": "true"}, {"argv": [1]}, {"argv": ["a\0b"]}, {"argv": ["true"], "cwd": "relative"},
                     {"argv": ["true"], "timeout_ms": 0}, {"argv": ["true"], "timeout_ms": -1}, {"argv": ["true"], "ring_bytes": 1},
                     {"argv": ["true"], "tty": {"rows": 0, "columns": 0}}, {"argv": ["true"], "tty": {"rows": 24}},
                     {"argv": ["true"], "user": ""}, {"argv": ["true"], "stdin": 1}, {"argv": ["true"], "env": {"A\0": "1"}}):
            refused(instance, "POST", f"/v1/sandboxes/{box}/execs", json.dumps(body).encode(), code="invalid")
        equal(instance.get(f"/v1/sandboxes/{box}/execs")["execs"], [])


def test_bodies_that_are_too_large(instance):
    before = state(instance)
    refused(instance, "POST", "/v1/sandboxes", json.dumps({"labels": {"a": "x" * (2 << 20)}}).encode(), code="too_large")
    equal(state(instance), before)


def speak(instance, data, timeout=10):
    """Raw bytes to the server; what comes back until it closes or falls silent."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(timeout)
        s.connect(instance.socket)
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass
        answer = b""
        try:
            while more := s.recv(65536):
                answer += more
        except (TimeoutError, ConnectionResetError):
            pass
        return answer


def test_bytes_that_are_no_http(instance):
    for data in (b"\0" * 100, b"hello\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /v1/sandboxes HTTP/1.1\nHost: x\n\n",
                 b"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\nA B: c\r\n\r\n", b"GET /v1/sandboxes HTTP/1.1\r\nHost: x\r\n continued\r\n\r\n",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n{}",
                 b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n{}",
                 b"GET /v1/sand\0boxes HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 20000 + b"\r\n"):
        answer = speak(instance, data)
        assert b" 200 " not in answer.split(b"\r\n")[0] and b" 201 " not in answer.split(b"\r\n")[0], (data[:80], answer[:200])
    equal(instance.get("/v1/sandboxes")["sandboxes"], [])


def test_half_a_request_holds_nobody_up(instance):
    waiting = []
    try:
        for _ in range(50):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.connect(instance.socket)
            s.sendall(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            waiting.append(s)
        assert "version" in instance.get("/v1/version")
    finally:
        for s in waiting:
            s.close()
    equal(instance.get("/v1/sandboxes")["sandboxes"], [])


def test_labels_that_are_asked_for(fresh):
    """With all of them; a key alone matches any value. What may be there once may not be there twice, nor a label without bound."""
    for name, labels in (("a", {"project": "shop", "user": "me"}), ("b", {"project": "other", "user": "me"}), ("c", {"user": "me"})):
        fresh.post("/v1/sandboxes", {"name": name, "labels": labels})
    for query, names in (("label=user", "abc"), ("label=project", "ab"), ("label=user%3Dme&label=project", "ab"), ("label=project%3Dshop&label=user%3Dme", "a"),
                         ("label=project%3Dshop&label=user%3Dyou", ""), ("label=project&state=running", "ab"), ("", "abc")):
        equal("".join(box["name"] for box in fresh.get(f"/v1/sandboxes?{query}")["sandboxes"]), names, query)
    for query in ("state=running&state=running", "&".join(["label=user"] * 17), "label=user&label=" + "x" * 513):
        refused(fresh, "GET", f"/v1/sandboxes?{query}")
    equal(len(fresh.get("/v1/sandboxes?" + "&".join(["label=user"] * 16))["sandboxes"]), 3)


def test_an_ambiguous_prefix_is_refused(fresh):
    boxes = [fresh.post("/v1/sandboxes", {"start": False})["id"] for _ in range(3)]
    fresh.stop()
    with contextlib.closing(sqlite3.connect(os.path.join(fresh.state, "cay.db"))) as db, db:
        for box in boxes[:2]:
            db.execute("UPDATE sandboxes SET id = 'same' || substr(id, 5), doc = replace(doc, id, 'same' || substr(id, 5)) WHERE id = ?", [box])
    fresh.start()
    refused(fresh, "GET", "/v1/sandboxes/same", code="ambiguous")
    refused(fresh, "DELETE", "/v1/sandboxes/same?force=true", code="ambiguous")
    equal(fresh.get(f"/v1/sandboxes/same{boxes[0][4:12]}")["id"], "same" + boxes[0][4:])
    equal(fresh.get(f"/v1/sandboxes/{boxes[2][:4]}")["id"], boxes[2])


def test_a_few_letters_name_nothing(instance):
    """`cay rm -f a`, where `a` is not there any more, removes nothing else."""
    with instance.sandbox(name="kept") as box:
        instance.cay("snapshot", box, "--files-only", "--name", "still")
        still = instance.get("/v1/snapshots/still")["id"]  # forks of other tests may leave one for a while
        run = instance.exec(box, "sleep", "1000")["id"]
        for n in (1, 3):
            for target in (f"/v1/sandboxes/{box[:n]}", f"/v1/snapshots/{still[:n]}", f"/v1/sandboxes/{box}/execs/{run[:n]}"):
                refused(instance, "GET", target, code="not_found")
            refused(instance, "DELETE", f"/v1/sandboxes/{box[:n]}?force=true", code="not_found")
            contains(instance.cay("rm", "-f", box[:n], want=125).stderr, f"'{box[:n]}'")
            instance.cay("rm", still[:n], want=125)
            instance.cay("stop", box[:n], want=125)
        for target in (f"/v1/sandboxes/{box[:4]}", f"/v1/snapshots/{still[:4]}", f"/v1/sandboxes/{box}/execs/{run[:4]}"):
            instance.get(target)
        equal(instance.get(f"/v1/sandboxes/{box}")["state"], "running")
        instance.call("DELETE", f"/v1/snapshots/{still}")


def test_a_name_can_be_taken_once(instance):
    with instance.sandbox(name="taken"):
        refused(instance, "POST", "/v1/sandboxes", b'{"name":"taken"}', code="exists")
        equal(len(instance.get("/v1/sandboxes")["sandboxes"]), 1)
    with instance.sandbox(name="taken"):
        pass


def test_what_a_state_does_not_allow(instance):
    with instance.sandbox() as box:
        refused(instance, "DELETE", f"/v1/sandboxes/{box}", code="state")
        refused(instance, "POST", f"/v1/sandboxes/{box}/resume", None, code="state")
        refused(instance, "POST", f"/v1/sandboxes/{box}/start", None, code="state")
        instance.post(f"/v1/sandboxes/{box}/stop")
        refused(instance, "POST", f"/v1/sandboxes/{box}/execs", b'{"argv":["true"]}', code="state")
        refused(instance, "POST", f"/v1/sandboxes/{box}/pause", None, code="state")
        refused(instance, "POST", f"/v1/sandboxes/{box}/rewind", b'{"snapshot":"nope"}', code="not_found")


def test_the_command_says_it_on_one_line_and_in_json(instance):
    done = instance.cay("exec", "nope", "--", "true", want=125)
    contains(done.stderr, "nope")
    equal(done.stdout, "")
    done = instance.cay("info", "nope", "--json", want=125)
    equal(json.loads(done.stderr)["error"]["code"], "not_found")
    for words in (["no-such-verb"], ["run", "--no-such-flag"], ["exec"], ["fork"], ["rewind", "a"], ["create", "--memory", "lots", "--name", "x"]):
        done = instance.cay(*words, want=64)
        assert done.stderr.strip(), words
    equal(raises(cay.ApiError, instance.get, "/v1/sandboxes/x").code, "not_found")


def test_a_fork_whose_name_is_not_free_changes_nothing(instance):
    """Neither is its source stopped, nor does a snapshot stay."""
    with instance.sandbox(name="fork-source") as box, instance.sandbox(name="fork-name-2"):
        before = instance.get("/v1/snapshots"), instance.get(f"/v1/sandboxes/{box}")["epoch"]
        for body, status, code in (({"name": "fork-source"}, 409, "exists"), ({"name": "fork-name", "count": 3}, 409, "exists"),
                                   ({"name": "n" * 62, "count": 2}, 413, "too_large")):
            error = raises(cay.ApiError, instance.post, f"/v1/sandboxes/{box}/fork", body)
            equal((error.status, error.code), (status, code))
        equal((instance.get("/v1/snapshots"), instance.get(f"/v1/sandboxes/{box}")["epoch"]), before)
        equal({s["name"] for s in instance.get("/v1/sandboxes")["sandboxes"]} & {"fork-name-1", "n" * 62 + "-1"}, set())
