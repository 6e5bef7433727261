# SPDX-License-Identifier: Apache-2.0
"""Real programs at work inside a sandbox. Each remembers the words that it is told, and answers with those of its own world when all of it was seen to go on."""

import os
import subprocess
import sys
import tempfile

from lib.case import equal
from lib.cay import POSTGRESQL

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, put_file, say, start  # noqa: E402
from postgres import Database  # noqa: E402

GUESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guests")


def guest(instance, box, path):
    """Copy a file (one of guests/, unless it is named by its whole path) into the sandbox; gives where it is there."""
    return put_file(instance, box, os.path.join(GUESTS, path), f"/var/tmp/{os.path.basename(path)}")


def start_repl(instance, box):
    """Python with state and threads; what it is asked is evaluated: goes_on(), tell(), state."""
    return start(instance, box, "/usr/bin/python3", guest(instance, box, "repl.py"))


class Program:
    """One program at work. The numbers of its execs are the same in every world."""

    needs = ()

    def __init__(self, instance, box):
        self.instance = instance
        self.run = self.begin(instance, box)

    def begin(self, instance, box):
        """Start it; gives the exec that takes the words."""
        raise NotImplementedError

    def tell(self, box, word):
        """Tell it @word; gives all that it remembers."""
        return ask(self.instance, box, self.run, word).split()

    def end(self, box):
        """End what was open all the time, in this world alone, and see that it ends well."""


class Repl(Program):
    def begin(self, instance, box):
        return start_repl(instance, box)

    def tell(self, box, word):
        return super().tell(box, f"tell('{word}')")


class Http(Program):
    """A server, and a client inside that keeps its connection."""

    def begin(self, instance, box):
        start(instance, box, "/usr/bin/python3", guest(instance, box, "http_server.py"))
        return start(instance, box, "/usr/bin/python3", guest(instance, box, "http_client.py"))


class Node(Program):
    """Timers and a WebSocket."""

    needs = ("program:node",)

    def begin(self, instance, box):
        return start(instance, box, "/usr/bin/node", guest(instance, box, "websocket.js"))


class Jobs(Program):
    """A shell with background jobs and a pipeline."""

    def begin(self, instance, box):
        return start(instance, box, "/bin/bash", guest(instance, box, "jobs.sh"))


class Redis(Program):
    """The log of changes on, a client that writes all the time, one in a transaction."""

    needs = ("program:redis-server",)

    def begin(self, instance, box):
        instance.ok(box, "mkdir /tmp/redis")
        start(instance, box, "/usr/bin/redis-server", "--dir", "/tmp/redis", "--appendonly", "yes", "--save", "", ready=(b"accept connections\n", b"accept connections tcp\n"))
        return start(instance, box, "/usr/bin/python3", guest(instance, box, "redis_client.py"))


class Nginx(Program):
    """Two workers under load from inside."""

    needs = ("program:nginx",)

    def begin(self, instance, box):
        instance.exec(box, "/usr/sbin/nginx", "-c", guest(instance, box, "nginx.conf"))
        instance.ok(box, "for i in $(seq 500); do [ -s /tmp/nginx.pid ] && exit 0; sleep 0.02; done; cat /tmp/error.log; exit 1")  # it listens before it writes that
        return start(instance, box, "/usr/bin/python3", guest(instance, box, "load.py"))


class PostgreSQL(Program):
    """Under pgbench, with an open transaction, which the words are written in."""

    needs = (f"program:{POSTGRESQL}/postgres",)

    def begin(self, instance, box):
        self.database = Database(instance, box)
        return self.database.session

    def tell(self, box, word):
        opened, *words = self.database.say(box, f"insert into notes values ('{word}'); savepoint s; delete from notes; rollback to s; "
                                                "select string_agg(t, ' ' order by ctid) from notes;").split()
        self.database.check(box)
        return words if opened == "open" else [opened, *words]

    def end(self, box):
        before = self.database.say(box, "select count(*) from notes;")
        equal(self.database.query(box, "select count(*) from notes"), "0")
        equal(self.database.say(box, "commit; select 'over';"), "over\n")
        equal(self.database.query(box, "select count(*) from notes") + "\n", before)


class Java(Program):
    """Sixty threads that make garbage."""

    needs = ("program:javac",)

    def begin(self, instance, box):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["javac", "-d", folder, os.path.join(GUESTS, "Spin.java")], check=True)
            guest(instance, box, os.path.join(folder, "Spin.class"))
        return start(instance, box, "/usr/bin/java", "-Xmx64m", "-cp", "/var/tmp", "Spin")


class Go(Program):
    """Goroutines that its runtime stops by signals, timers, channels with something in them, garbage."""

    needs = ("program:/usr/bin/go",)

    def begin(self, instance, box):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "GOCACHE": folder, "GO111MODULE": "off", "CGO_ENABLED": "0"}
            subprocess.run(["/usr/bin/go", "build", "-o", os.path.join(folder, "wheels"), os.path.join(GUESTS, "wheels.go")], check=True, env=environment)
            return start(instance, box, guest(instance, box, os.path.join(folder, "wheels")))


class Editor(Program):
    """An editor that is in the middle of a line, in tmux."""

    needs = ("program:tmux", "program:vim")

    def begin(self, instance, box):
        run = instance.exec(box, "/usr/bin/tmux", "-f", "/dev/null", "new-session", "-s", "work", "vim -N -u NONE -i NONE /tmp/text",
                            tty={"rows": 24, "columns": 80}, stdin=True, env={"TERM": "xterm-256color", "LANG": "C.UTF-8"})
        self.shown(box, "^~")
        say(instance, box, run, "i")
        self.shown(box, "^-- INSERT --")
        return run

    def shown(self, box, wanted):
        """Wait until the pane shows @wanted."""
        self.instance.ok(box, f"for i in $(seq 1000); do tmux capture-pane -p -t work > /tmp/screen; grep -q -- '{wanted}' /tmp/screen && exit 0; sleep 0.02; done; "
                              "cat /tmp/screen; exit 1")

    def tell(self, box, word):
        say(self.instance, box, self.run, f" {word}")
        self.shown(box, word)
        self.instance.ok(box, "tmux send-keys -t work Escape ':w' Enter")
        self.instance.ok(box, f"for i in $(seq 1000); do grep -q '{word}' /tmp/text && exit 0; sleep 0.02; done; exit 1")
        say(self.instance, box, self.run, "A")
        self.shown(box, "^-- INSERT --")
        return self.instance.ok(box, "cat /tmp/text").split()

    def end(self, box):
        self.instance.ok(box, "tmux send-keys -t work Escape ':q' Enter")
        equal(self.instance.wait(box, self.run, 20).get("code"), 0)


class Ssh(Program):
    """OpenSSH's server, which forks for each connection, and a client with a shell in one."""

    needs = ("program:sshd", "program:ssh")
    CLIENT = ("/usr/bin/ssh", "-F", "none", "-i", "/var/tmp/ssh/key", "-o", "UserKnownHostsFile=/var/tmp/ssh/known", "-o", "StrictHostKeyChecking=accept-new", "-p", "2222", "root@127.0.0.1")

    def begin(self, instance, box):
        instance.ok(box, """set -e; mkdir -m 700 -p /var/tmp/ssh /run/sshd; cd /var/tmp/ssh
            ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f key""")
        start(instance, box, "/usr/sbin/sshd", "-D", "-e", "-f", "none", "-h", "/var/tmp/ssh/host", "-p", "2222", "-o", "ListenAddress=127.0.0.1", "-o", "StrictModes=no",
              "-o", "AuthorizedKeysFile=/var/tmp/ssh/key.pub", "-o", "PidFile=none", ready=b"port 2222.\r\n")
        return start(instance, box, *self.CLIENT, "echo ready; while read -r word; do words=\"$words $word\"; echo $words; done")

    def tell(self, box, word):
        answer = self.instance.ok(box, " ".join(self.CLIENT) + " echo a new one").split()
        return super().tell(box, word) if answer == ["a", "new", "one"] else answer


PROGRAMS = (Repl, Http, Node, Jobs, Redis, Nginx, Java, Go, Editor, Ssh)
