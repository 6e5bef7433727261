# SPDX-License-Identifier: Apache-2.0
"""A live fork of a sandbox with a policy while its program holds a keep-alive TLS connection through the gateway: the source's next request goes over the same connection, the
fork's ends as reset, a new one works there, and the placeholder of a secret means the same on both sides."""

import json
import os
import sys

from lib.case import contains, equal, require
from lib.proxy import Upstream, certificate, echo

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, wait_output  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")
VALUE = "sk_live_51Hxyz/ABCdef+0123456789"

CLIENT = """
import errno, http.client, os, socket, ssl, sys
context = ssl.create_default_context()
def connect():
    c = http.client.HTTPSConnection("api.example", context=context, timeout=20)
    c.connect()
    return c
def get(c, path):
    try:
        c.auto_open = 0
        c.request("GET", path, headers={"Authorization": "Bearer " + os.environ["STRIPE_KEY"]})
        answer = c.getresponse()
        text = answer.read().decode()
        return answer.status, c.sock.getsockname()[1], os.environ["STRIPE_KEY"] in text
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
def raw(c):
    try:
        return socket.socket(fileno=os.dup(c.sock.fileno())).recv(1)
    except OSError as error:
        return errno.errorcode[error.errno]
held = connect()
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


def policy(upstream):
    return json.dumps({"version": 1, "rules": [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True}],
                       "secrets": [{"name": "STRIPE_KEY", "hosts": ["api.example"], "in": [{"header": "authorization"}]}]})


@require(*NEEDS)
def test_a_kept_connection_ends_in_the_fork_and_goes_on_in_the_source(fresh, tmp):
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    fresh.cay("secret", "set", "STRIPE_KEY", stdin=VALUE)
    with fresh.sandbox(policy=policy(upstream)) as box:
        fresh.ok(box, f"cat > /tmp/client.py <<'END'\n{CLIENT}\nEND")
        run = fresh.exec(box, "/usr/bin/python3", "/tmp/client.py", stdin=True)
        wait_output(fresh, box, run, b"ready\n")
        status, port, scrubbed = eval(ask(fresh, box, run, "get(held, '/before')"))
        equal((status, scrubbed), (200, True))
        fork = fork_live(fresh, box)[0]
        equal(eval(ask(fresh, box, run, "get(held, '/source')")), (200, port, True), "the source's connection goes on")
        equal(ask(fresh, fork, run, "raw(held)"), "ECONNRESET\n")
        contains("SSLEOFError BrokenPipeError ConnectionResetError", ask(fresh, fork, run, "get(held, '/fork')").strip())
        for one in (fork, box):
            status, _, scrubbed = eval(ask(fresh, one, run, "get(connect(), '/new')"))
            equal((status, scrubbed), (200, True))
        heard = upstream.text()
        equal(heard.count(b"Bearer " + VALUE.encode()), 4)
        equal(b"/fork" in heard, False)
        told = [e["data"]["path"] for e in fresh.events(fork) if e["type"] == "net.exchange"]
        equal(told, ["/new"])
        fresh.remove(fork)
    upstream.close()


# A question to whatever name server; its answer is left where it is. Beside it a datagram to itself.
ASKER = """
import select, socket, struct, sys
question = struct.pack(">6H", 7, 0x100, 1, 0, 0, 0) + b"\\x03api\\x07example\\x00" + struct.pack(">2H", 1, 1)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.connect(("198.51.100.1", 53))
own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("127.0.0.1", 0))
def take(s):
    try:
        return s.recv(4096, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
def answered():
    server.send(question)
    return select.select([server], [], []) == ([server], [], [])
answered()
own.sendto(b"mine", own.getsockname())
select.select([own], [], [])
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_datagrams_that_wait(instance):
    """What came from inside is in the fork too; an answer from outside is lost there, as datagrams may be, and the next question is answered."""
    rules = {"version": 1, "rules": [{"name": "api", "match": {"host": "api.example"}, "action": "allow"}]}
    with instance.sandbox(policy=json.dumps(rules)) as box:
        instance.ok(box, f"cat > /tmp/asker.py <<'END'\n{ASKER}\nEND")
        run = instance.exec(box, "/usr/bin/python3", "/tmp/asker.py", stdin=True)
        wait_output(instance, box, run, b"ready\n")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "(take(own), take(server))"), "(b'mine', None)\n")
        equal(ask(instance, fork, run, "(answered(), take(server)[:2])"), "(True, b'\\x00\\x07')\n")
        equal(ask(instance, box, run, "(take(own), take(server)[:2], take(server))"), "(b'mine', b'\\x00\\x07', None)\n")
        equal([e["data"] for e in instance.events(fork) if e["type"] == "net.denied"], [])
        instance.remove(fork)
