# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL inside a sandbox, as the live fork tests want it: under load, with somebody who counts commits and somebody in the middle of a transaction."""

import os
import shlex
import sys

from lib.case import equal
from lib.cay import POSTGRESQL

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, wait_output  # noqa: E402

BINARIES = POSTGRESQL
DIRECTORY = "/var/tmp/pg"

# Inserts numbers and remembers which commits were acknowledged. "check": is every one of them there, and at most the one under way besides?
COUNTER = """
import subprocess, sys, threading
psql = subprocess.Popen(["psql", "-h", "/var/tmp/pg", "-U", "postgres", "-qAtX"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
def query(sql):
    psql.stdin.write(sql + "\\n\\\\echo end\\n"); psql.stdin.flush()
    lines = []
    while True:
        line = psql.stdout.readline()
        if not line: raise SystemExit("the server has gone")
        if line == "end\\n": return lines
        lines.append(line.strip())
lock, acknowledged = threading.Lock(), 0
query("create table numbers (n int primary key);")
query("prepare add(int) as insert into numbers values ($1);")
def work():
    global acknowledged
    while True:
        with lock:
            query(f"execute add({acknowledged + 1});")
            acknowledged += 1
threading.Thread(target=work, daemon=True).start()
while acknowledged < 20: pass
print("ready", flush=True)
for line in sys.stdin:
    before = acknowledged
    while acknowledged < before + 5: pass
    with lock:
        count, last = query("select count(*) || ' ' || max(n) from numbers;")[0].split()
        print("every commit is there" if int(count) == int(last) == acknowledged else (count, last, acknowledged), flush=True)
"""

SUMS = ("select (select sum(abalance) from pgbench_accounts) = (select sum(tbalance) from pgbench_tellers) "
        "and (select sum(tbalance) from pgbench_tellers) = (select sum(bbalance) from pgbench_branches) "
        "and (select sum(bbalance) from pgbench_branches) = (select sum(delta) from pgbench_history)")
GOES_ON = """do $$ declare before bigint := (select count(*) from pgbench_history);
begin while (select count(*) from pgbench_history) < before + 20 loop perform pg_sleep(0.002); end loop; end $$"""


class Database:
    """One sandbox's server with its clients; the numbers of their execs are the same in every fork."""

    def __init__(self, instance, box, scale=1, clients=4, settings="", rate=200):
        """@rate: transactions a second that pgbench asks for."""
        self.instance = instance
        as_postgres = {"user": "postgres"}
        instance.ok(box, f"mkdir {DIRECTORY} && chown postgres {DIRECTORY}")
        instance.ok(box, f"""set -e; {BINARIES}/initdb -D {DIRECTORY}/d -A trust -U postgres --no-sync >/dev/null
            printf "unix_socket_directories = '{DIRECTORY}'\\n{settings}\\n" >>{DIRECTORY}/d/postgresql.conf""", **as_postgres)
        self.server = instance.exec(box, f"{BINARIES}/postgres", "-D", f"{DIRECTORY}/d", **as_postgres)
        wait_output(instance, box, self.server, b"ready to accept connections\n")
        instance.ok(box, f"PGHOST={DIRECTORY} {BINARIES}/pgbench -i -q -s {scale} -U postgres postgres 2>/dev/null", 300, **as_postgres)
        instance.ok(box, f"cat > /var/tmp/counter.py <<'END_OF_FILE'\n{COUNTER}\nEND_OF_FILE\n", **as_postgres)
        self.counter = instance.exec(box, "/usr/bin/python3", "/var/tmp/counter.py", stdin=True, **as_postgres)
        wait_output(instance, box, self.counter, b"ready\n")
        self.session = instance.exec(box, f"{BINARIES}/psql", "-h", DIRECTORY, "-U", "postgres", "-qAtX", stdin=True, **as_postgres)
        equal(self.say(box, "create table notes (t text); begin; insert into notes values ('open'); select 'begun';"), "begun\n")
        self.load = instance.exec(box, f"{BINARIES}/pgbench", "-h", DIRECTORY, "-U", "postgres", "-M", "prepared", "-c", str(clients), "-R", str(rate), "-T", "3600", "postgres",
                                  **as_postgres)
        while int(self.query(box, "select count(*) from pgbench_history")) < 100:
            pass
        self.query(box, "create extension amcheck")
        self.started = self.query(box, "select pg_postmaster_start_time()")

    def say(self, box, sql):
        """In the session with the open transaction."""
        return ask(self.instance, box, self.session, sql)

    def query(self, box, *statements):
        """In a connection of its own."""
        commands = " ".join(f"-c {shlex.quote(sql)}" for sql in statements)
        return self.instance.ok(box, f"{BINARIES}/psql -h {DIRECTORY} -U postgres -AtX {commands}").strip()

    def check(self, box):
        """It goes on as if nothing had happened: one new connection looks at the sums, at the load, at how old the server is, and at an index."""
        equal(self.query(box, SUMS, GOES_ON, "select pg_postmaster_start_time()", "select bt_index_check('pgbench_accounts_pkey', true)").split("\n"),
              ["t", "DO", self.started])
        equal(ask(self.instance, box, self.counter, "check"), "every commit is there\n")
        self.check_log(box)

    def check_running(self, box):
        """The same, without what takes as long as there are rows."""
        equal(self.query(box, GOES_ON, "select pg_postmaster_start_time()").split("\n"), ["DO", self.started])
        equal(ask(self.instance, box, self.counter, "check"), "every commit is there\n")
        self.check_log(box)

    def check_log(self, box):
        """The server has never recovered from anything."""
        log = self.instance.output(box, self.server).decode()
        for word in ("recover", "redo", "PANIC", "FATAL", "terminated", "crash"):
            if word in log:
                raise AssertionError(f"the server's log: {log}")
