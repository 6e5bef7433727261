# SPDX-License-Identifier: Apache-2.0
"""The second story: a database under traffic is forked while it works (examples/orders).

Three forks go on from the same instant, each with the server, its memory and the clients that are in the middle of a transaction. Each tries
another migration of the same table. The traffic in the forks says which one is good; the source never stops taking orders, and gets the best one.
"""

import re
import shutil
import time

from demo_stage import DEADLINE_SECONDS, REPOSITORY, Failed, Stage, check

MIGRATIONS = {"try-1": "rename.sql", "try-2": "rewrite.sql", "try-3": "default.sql"}
PSQL = ("psql", "-q", "-h", "/var/tmp/orders", "-v", "ON_ERROR_STOP=1")
FIGURES = re.compile(r"orders (\d+), pieces lost (\d+), server up since (\S+)")
WAITED = re.compile(r"acquired \w+ on relation \d+ of database \d+ after ([\d.]+) ms")


class Live(Stage):
    steps = ("prepare", "serve", "fork", "migrate", "judge", "keep_best", "discard")
    folder = "orders"
    head = """# A database, forked while it works

This page is written by `tools/demo live --tutorial docs/tutorial-live.md` from a real run, so the output is what the commands print. `make demo` runs the same and checks every step. To follow by
hand, build cay (`make`), put `build/` on your PATH, install PostgreSQL (`apt-get install postgresql`), and go to a copy of `examples/orders`.
"""
    tail = """
What a live fork carries over, and what it refuses by name: [docs/design/0006](design/0006-live-fork.md).
"""
    moral = """Three forks of a working database went on from one instant, each with another migration, and its own clients said which one is good.
  The source took orders all the time, and was never restarted. The same by hand: docs/tutorial-live.md"""

    def sql(self, name, file, **options):
        return self.cay("exec", "--user", "postgres", name, "--", *PSQL, "-f", f"/orders/{file}", "orders", **options)

    def figures(self, name):
        """(orders, pieces lost, since when the server is up), shown."""
        found = FIGURES.search(self.sql(name, "check.sql"))
        if not found:
            raise Failed(f"{name}: check.sql says something else")
        return int(found[1]), int(found[2]), found[3]

    def ordering(self, name):
        """Do the clients of `name` still run?"""
        return self.get(f"/v1/sandboxes/{name}/execs/{self.traffic}")["state"] == "running"

    def show_traffic(self, name):
        self.typed_line(f"cay logs {name} {self.traffic} | tail -n 3")

    def wait_for_orders(self, name, more):
        """Until the clients of `name` have got `more` orders through, or have ended."""
        deadline, first = time.monotonic() + DEADLINE_SECONDS, None
        while time.monotonic() < deadline:
            answer = self.quiet("exec", "--user", "postgres", name, "--", *PSQL, "-Atc", "select last_value from orders_id_seq", "orders")
            first = first if first is not None else int(answer)
            if int(answer) >= first + more or not self.ordering(name):
                return
            time.sleep(0.2)
        raise Failed(f"{name}: no orders come in")

    # --- the story ---

    def prepare(self):
        """The sandbox is made from this machine's own root, so the PostgreSQL that is installed here is there too. Its data live in the sandbox alone."""
        self.title("A shop's database: PostgreSQL, 50 products, 50,000 orders")
        shutil.copytree(REPOSITORY / "examples" / "orders", self.project)
        self.show_command("cd", self.project)
        self.cay("create", "--name", "orders", "--mount", f"{self.project}:/orders")
        self.note_server()
        self.cay("exec", "--user", "postgres", "-w", "/var/tmp", "orders", "--", "/orders/start.sh")
        self.cay("exec", "orders", "--", "ps", "-eo", "pid,ppid,user,args", tail=8)

    def serve(self):
        """`exec -d` leaves a command running and prints its id. Four clients place a hundred orders a second; a line each second tells of it."""
        self.title("Traffic: four clients order, each order a transaction")
        self.traffic = self.cay("exec", "-d", "--user", "postgres", "-w", "/var/tmp", "orders", "--", "/orders/traffic.sh", "600").strip()
        self.wait_for_orders("orders", 200)
        self.show_traffic("orders")

    def fork(self):
        """`fork --live` takes the processes along: the server with its shared memory, the clients with their prepared statements, both ends of their
        connections, and what is in flight between them. All go on from the same instant, in the forks and in the source."""
        self.title("Three forks of all of it, while it works")
        self.cay("fork", "orders", "--live", "--name", "try", "-n", "3")
        self.cay("snapshots", "orders")
        self.before = self.figures("orders")
        ups = {name: self.figures(name)[2] for name in MIGRATIONS}
        check(set(ups.values()) == {self.before[2]}, "the server of each fork is the one that was started before: nothing was restarted or recovered")
        for name in MIGRATIONS:
            self.wait_for_orders(name, 50)
        print("  each fork has clients of its own, that order on")

    def migrate(self):
        """Every order shall have a currency. There are three proposals, and each gets a fork with real traffic."""
        self.title("Each fork tries another migration, under its own traffic")
        for name, file in MIGRATIONS.items():
            self.typed("cat", f"migrations/{file}")
            self.sql(name, f"migrations/{file}")
            self.wait_for_orders(name, 50)

    def judge(self):
        """All three have the column. The clients of the first fork failed, since a name that they use is gone. Those of the second waited for the whole table to
        be written. Those of the third noticed nothing."""
        self.title("What did the clients say?")
        ordering, waits = {}, {}
        for name in MIGRATIONS:
            self.show_traffic(name)
            ordering[name] = self.ordering(name)
            log = self.quiet("exec", name, "--", "cat", "/var/tmp/orders/log")
            waits[name] = max((float(ms) for ms in WAITED.findall(log)), default=0.0)
            print(f"  {name}: the clients {'go on' if ordering[name] else 'gave up'}; the longest wait for the table was {waits[name]:.0f} ms (none below 10 is logged)")
            check(not re.search("recovery|not properly shut down", log), f"{name}: no recovery in the server's log")
            check(self.figures(name)[1] == 0, f"{name}: no piece was lost, whatever happened")
        check(ordering == {"try-1": False, "try-2": True, "try-3": True}, "the first migration breaks the clients, the others do not")
        check(waits["try-2"] > waits["try-3"], "the second one makes them wait, the third one does not")

    def keep_best(self):
        """The source knows nothing of all this: its clients have ordered on meanwhile. It gets the migration that was good."""
        self.title("The best one goes to the source, whose clients never stopped")
        self.sql("orders", "migrations/default.sql")
        self.wait_for_orders("orders", 50)
        self.show_traffic("orders")
        lines = self.quiet("logs", "orders", self.traffic).splitlines()
        failed = sum(int(n) for line in lines for n in re.findall(r"(\d+) failed", line))
        check(self.ordering("orders") and failed == 0 and not any("ERROR" in line for line in lines), "not one order of the source has failed")
        orders, lost, since = self.figures("orders")
        check(orders > self.before[0] and lost == 0, f"it took {orders - self.before[0]} orders since the fork; no piece is lost")
        check(since == self.before[2], "its server was never restarted")

    def discard(self):
        """The forks go, with everything in them."""
        self.title("Away with the rest")
        self.cay("rm", "-f", "orders", *MIGRATIONS)
        check(self.ask("ps")["sandboxes"] == [], "no sandbox is left")
