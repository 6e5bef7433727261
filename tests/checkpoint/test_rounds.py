# SPDX-License-Identifier: Apache-2.0
"""A hundred live forks of one working program after another, each of them verified; the source is verified at the end and goes on all the while."""

import os
import sys

from lib.case import equal, require, timeout

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live  # noqa: E402
from postgres import Database  # noqa: E402
from test_live_programs import NODE, REPL, put, start  # noqa: E402

LONG = True
ROUNDS = int(os.environ.get("CAY_TEST_ROUNDS", "100"))
NEEDS = ("root", "cgroup2")


def rounds(instance, box, verify):
    """@verify is given a sandbox and the number of its round, and leaves a trace of it in that sandbox alone."""
    for n in range(ROUNDS):
        fork = fork_live(instance, box)[0]
        try:
            verify(fork, n)
        except AssertionError as e:
            raise AssertionError(f"round {n}: {e}") from e
        instance.remove(fork)
    verify(box, ROUNDS)


@require(*NEEDS, "program:/usr/lib/postgresql/15/bin/postgres")
@timeout(880)
def test_postgresql(instance):
    with instance.sandbox() as box:
        database = Database(instance, box)

        def verify(one, n):
            equal(database.say(one, f"insert into notes values ('{n}'); {'commit' if n % 2 == 0 else 'rollback'}; select 'over';"), "over\n")
            equal(database.query(one, "select string_agg(t, ' ' order by ctid) from notes"), f"open {n}" if n % 2 == 0 else "")
            database.check(one)

        rounds(instance, box, verify)


REDIS = """
import socket, sys, threading
def connect():
    s = socket.create_connection(("127.0.0.1", 6379))
    return s, s.makefile("rb")
def call(c, text):
    c[0].sendall(text.encode() + b"\\r\\n")
    answer = c[1].readline().decode().strip()
    return [call_rest(c) for _ in range(int(answer[1:]))] if answer.startswith("*") else answer
def call_rest(c):
    answer = c[1].readline().decode().strip()
    return c[1].readline().decode().strip() if answer.startswith("$") else answer
lock, acknowledged, load = threading.Lock(), 0, connect()
def work():
    global acknowledged
    while True:
        with lock:
            call(load, "INCR load")
            acknowledged += 1
threading.Thread(target=work, daemon=True).start()
mine = connect()
call(mine, "SET n 1"); call(mine, "MULTI"); call(mine, "INCR n")
print("ready", flush=True)
for line in sys.stdin:
    before = acknowledged
    while acknowledged < before + 100: pass
    with lock:
        assert call(load, "INCRBY load 0") == f":{acknowledged}"
    print(call(mine, f"INCRBY n {line.strip()}"), call(mine, "EXEC"), flush=True)
"""


@require(*NEEDS, "program:redis-server")
@timeout(600)
def test_redis(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/client.py", REDIS)
        instance.ok(box, "mkdir /tmp/redis")
        start(instance, box, "/usr/bin/redis-server", "--dir", "/tmp/redis", "--appendonly", "yes", "--save", "", ready=b"accept connections\n")
        run = start(instance, box, "/usr/bin/python3", "/tmp/client.py")
        rounds(instance, box, lambda one, n: equal(ask(instance, one, run, str(n)), f"+QUEUED [':2', ':{2 + n}']\n"))


@require(*NEEDS)
@timeout(600)
def test_python(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/repl.py", REPL)
        run = start(instance, box, "/usr/bin/python3", "/tmp/repl.py")
        rounds(instance, box, lambda one, n: equal(
            ask(instance, one, run, f"(state['seen'].append({n}), state['seen'], goes_on(), threading.active_count())"), f"(None, [{n}], True, 7)\n"))


@require(*NEEDS, "program:node")
@timeout(600)
def test_node(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/x.js", NODE)
        run = start(instance, box, "/usr/bin/node", "/tmp/x.js")
        rounds(instance, box, lambda one, n: equal(ask(instance, one, run, str(n)), f"hello {n} true\n"))
