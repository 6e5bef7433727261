# SPDX-License-Identifier: Apache-2.0
"""Real programs, unmodified, forked live while they work: the source and the fork go on from one instant, each into its own future."""

import os
import sys

from lib.case import contains, equal, raises, require
from lib.cay import ApiError

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from forking import ask, fork_live, wait_output  # noqa: E402

TIMEOUT = 120
NEEDS = ("root", "cgroup2")


def put(instance, box, path, text):
    instance.ok(box, f"cat > {path} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\n")


def start(instance, box, *argv, ready=b"ready\n"):
    run = instance.exec(box, *argv, stdin=True)
    wait_output(instance, box, run, ready)
    return run


REPL = """
import sys, threading, time
count, lock = [0], threading.Lock()
def work():
    while True:
        with lock:
            count[0] += 1
        time.sleep(0.002)
for i in range(6):
    threading.Thread(target=work, daemon=True, name=f"worker-{i}").start()
def goes_on():
    before = count[0]
    while count[0] == before:
        time.sleep(0.001)
    return True
state = {"seen": []}
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
"""


@require(*NEEDS)
def test_python_with_state_and_threads(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/repl.py", REPL)
        run = start(instance, box, "/usr/bin/python3", "/tmp/repl.py")
        equal(ask(instance, box, run, "state['seen'].append('before') or len(state['seen'])"), "1\n")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "state['seen'].append('fork') or state['seen']"), "['before', 'fork']\n")
        equal(ask(instance, box, run, "state['seen'].append('source') or state['seen']"), "['before', 'source']\n")
        for one in (fork, box):
            equal(ask(instance, one, run, "(goes_on(), threading.active_count())"), "(True, 7)\n")
        instance.remove(fork)


SERVER = """
import http.server, sys, threading
hits = []
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        hits.append(self.path)
        body = f"{len(hits)} {self.path}".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers(); self.wfile.write(body)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Handler)
print("ready", flush=True)
server.serve_forever()
"""

CLIENT = """
import http.client, sys
c = http.client.HTTPConnection("127.0.0.1", 8080)
def get(path):
    c.request("GET", path); return c.getresponse().read().decode()
get("/first"); port = c.sock.getsockname()[1]
print("ready", flush=True)
for line in sys.stdin:
    print(get(line.strip()), c.sock.getsockname()[1] == port, flush=True)
"""


@require(*NEEDS)
def test_http_server_with_an_open_connection(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/server.py", SERVER)
        put(instance, box, "/tmp/client.py", CLIENT)
        start(instance, box, "/usr/bin/python3", "/tmp/server.py")
        client = start(instance, box, "/usr/bin/python3", "/tmp/client.py")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, client, "/fork"), "2 /fork True\n")
        equal(ask(instance, box, client, "/source"), "2 /source True\n")
        equal(ask(instance, box, client, "/again"), "3 /again True\n")
        # a new connection reaches the fork's server too
        equal(instance.ok(fork, "/usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8080/new\").read().decode())'"),
              "3 /new\n")
        instance.remove(fork)


NODE = """
const readline = require('readline'), net = require('net');
let ticks = 0, echoed = '';
setInterval(() => { ticks++; }, 5);
const server = net.createServer((s) => s.pipe(s)).listen(0, '127.0.0.1', () => {
  const c = net.connect(server.address().port, '127.0.0.1', () => { c.write('hello'); });
  c.on('data', (d) => { if (!echoed) { echoed = String(d); console.log('ready'); return; } console.log(String(d), ticks > 0); });
  readline.createInterface({ input: process.stdin }).on('line', (l) => { const t = ticks; setTimeout(() => { if (ticks > t) c.write(echoed + ' ' + l); }, 50); });
});
"""


@require(*NEEDS, "program:node")
def test_node_with_timers_and_a_connection(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/x.js", NODE)
        run = start(instance, box, "/usr/bin/node", "/tmp/x.js")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "fork"), "hello fork true\n")
        equal(ask(instance, box, run, "source"), "hello source true\n")
        instance.remove(fork)


@require(*NEEDS)
def test_bash_with_jobs_and_a_pipeline(instance):
    script = """
        n=0; ( while :; do sleep 0.05; done ) & job=$!
        ( i=0; while :; do i=$((i + 1)); echo $i; sleep 0.01; done ) | while read x; do echo $x > /tmp/last; done & pipe=$!
        while [ ! -s /tmp/last ]; do sleep 0.01; done
        echo ready
        while read line; do
            was=$(cat /tmp/last)
            while now=$(cat /tmp/last); [ "${now:-0}" -le "${was:-0}" ]; do sleep 0.01; done
            kill -0 $job && kill -0 $pipe && n=$((n + 1)) && echo "$line $n $(jobs -rp | wc -l)"
        done"""
    with instance.sandbox() as box:
        run = start(instance, box, "/bin/bash", "-c", script)
        equal(ask(instance, box, run, "before"), "before 1 2\n")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "fork"), "fork 2 2\n")
        equal(ask(instance, box, run, "source"), "source 2 2\n")
        instance.remove(fork)


@require(*NEEDS, "program:redis-server")
def test_redis_with_a_client_in_a_transaction(instance):
    client = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 6379)); f = s.makefile("rb")
def call(text):
    s.sendall(text.encode() + b"\\r\\n"); answer = f.readline().decode().strip()
    if answer.startswith("*"): return [call_rest() for _ in range(int(answer[1:]))]
    return answer
def call_rest():
    answer = f.readline().decode().strip()
    return f.readline().decode().strip() if answer.startswith("$") else answer
call("SET n 1"); call("MULTI"); call("INCR n")
print("ready", flush=True)
for line in sys.stdin:
    print(call(line.strip()), flush=True)
"""
    with instance.sandbox() as box:
        put(instance, box, "/tmp/client.py", client)
        instance.ok(box, "mkdir /tmp/redis")
        start(instance, box, "/usr/bin/redis-server", "--dir", "/tmp/redis", "--appendonly", "yes", "--save", "", ready=b"accept connections\n")
        run = start(instance, box, "/usr/bin/python3", "/tmp/client.py")
        fork = fork_live(instance, box)[0]
        equal(ask(instance, fork, run, "INCRBY n 10"), "+QUEUED\n")
        equal(ask(instance, fork, run, "EXEC"), "[':2', ':12']\n")
        equal(ask(instance, box, run, "EXEC"), "[':2']\n")
        equal(instance.ok(fork, "redis-cli get n; tail -c 4 /tmp/redis/appendonlydir/*.incr.aof | wc -c").split()[0], "12")
        equal(instance.ok(box, "redis-cli get n").strip(), "2")
        instance.remove(fork)


@require(*NEEDS, "program:nginx")
def test_nginx_with_workers(instance):
    conf = """daemon off; worker_processes 2; error_log /tmp/error.log; pid /tmp/nginx.pid;
events { worker_connections 64; }
http { access_log off; client_body_temp_path /tmp/b; proxy_temp_path /tmp/p; fastcgi_temp_path /tmp/f; uwsgi_temp_path /tmp/u; scgi_temp_path /tmp/s;
 server { listen 127.0.0.1:8081; location / { return 200 "served\\n"; } } }"""
    ask_it = "for i in 1 2 3 4 5 6; do /usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8081/\").read().decode(), end=\"\")'; done"
    with instance.sandbox() as box:
        put(instance, box, "/tmp/nginx.conf", conf)
        instance.exec(box, "/usr/sbin/nginx", "-c", "/tmp/nginx.conf")
        instance.ok(box, "for i in $(seq 500); do [ -s /tmp/nginx.pid ] && /usr/bin/python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 8081))' 2>/dev/null && exit 0; sleep 0.02; done; exit 1")
        fork = fork_live(instance, box)[0]
        equal(instance.ok(fork, ask_it), "served\n" * 6)
        equal(instance.ok(box, ask_it), "served\n" * 6)
        instance.remove(fork)


@require(*NEEDS)
def test_what_is_started_later_belongs_to_the_same_world(instance):
    """An exec in the fork sees, signals and reaps through the restored processes as in the source."""
    with instance.sandbox() as box:
        run = start(instance, box, "/usr/bin/python3", "-c", "import signal; print('ready', flush=True); signal.pause()")
        for one in (fork_live(instance, box)[0], box):
            pid = instance.ok(one, "pidof python3").strip()
            equal(instance.ok(one, f"readlink /proc/{pid}/cwd").strip(), "/root")
            equal(instance.ok(one, f"kill -USR1 {pid} && echo sent"), "sent\n")
            status = instance.wait(one, run, 20)
            equal((status["status"], status.get("signal")), ("signaled", 10))
            if one != box:
                instance.remove(one)


@require(*NEEDS)
def test_rewind_to_a_live_snapshot(instance):
    with instance.sandbox() as box:
        put(instance, box, "/tmp/repl.py", REPL)
        run = start(instance, box, "/usr/bin/python3", "/tmp/repl.py")
        equal(ask(instance, box, run, "open('/tmp/f', 'w').write('one') and state['seen'].append(1)"), "None\n")
        snapshot = instance.post(f"/v1/sandboxes/{box}/snapshots", {"name": "instant", "files_only": False})
        equal(snapshot["files_only"], False)
        equal(ask(instance, box, run, "open('/tmp/f', 'w').write('two') and state['seen'].append(2)"), "None\n")
        for _ in range(2):
            instance.post(f"/v1/sandboxes/{box}/rewind", {"snapshot": "instant"})
            equal(ask(instance, box, run, "(state['seen'], open('/tmp/f').read())"), "([1], 'one')\n")
            equal(ask(instance, box, run, "open('/tmp/f', 'w').write('three') and state['seen'].append(3)"), "None\n")
        fork = instance.post("/v1/snapshots/instant/fork", {})["sandboxes"][0]["id"]
        equal(ask(instance, fork, run, "(state['seen'], open('/tmp/f').read())"), "([1], 'one')\n")
        instance.remove(fork)
        instance.call("DELETE", "/v1/snapshots/instant")


REFUSED = {
    "events of inotify": ("import ctypes; l = ctypes.CDLL(None); q = l.inotify_init1(0); l.inotify_add_watch(q, b'/tmp', 0x100); open('/tmp/new', 'w')", "inotify queue with events"),
    "a watch without a name": ("import ctypes, os; l = ctypes.CDLL(None); q = l.inotify_init1(0); open('/tmp/gone', 'w').close(); f = open('/tmp/gone'); l.inotify_add_watch(q, b'/tmp/gone', 0x100); "
                               "os.unlink('/tmp/gone')", "name was not found"),
    "a lease": ("import fcntl; open('/dev/shm/l', 'w'); f = open('/dev/shm/l'); fcntl.fcntl(f, fcntl.F_SETLEASE, fcntl.F_RDLCK)", "a lease"),
    "a filter": ("import ctypes; l = ctypes.CDLL(None); l.prctl(38, 1, 0, 0, 0); "
                 "p = (ctypes.c_uint16 * 8)(1); c = (ctypes.c_uint64 * 1)(0x7fff000000000006); ctypes.memmove(ctypes.byref(p, 8), "
                 "ctypes.byref(ctypes.c_void_p(ctypes.addressof(c))), 8); assert l.prctl(22, 2, ctypes.byref(p), 0, 0) == 0", "filter of its own"),
    "another root": ("import os; os.mkdir('/tmp/r'); os.chroot('/tmp/r')", "root"),
    "a file of a process": ("f = open('/proc/self/status')", "in /proc"),
    "what a semaphore gets back": ("import ctypes; l = ctypes.CDLL(None); i = l.semget(0, 1, 0o600); "
                                   "assert l.semop(i, ctypes.byref((ctypes.c_short * 3)(0, 1, 0o10000)), 1) == 0", "SEM_UNDO"),
    "a deleted named pipe": ("import os; os.mkfifo('/tmp/p'); f = os.open('/tmp/p', os.O_RDWR); os.unlink('/tmp/p')", "deleted named pipe"),
}


@require(*NEEDS)
def test_what_cannot_be_carried_is_refused_by_name_and_nothing_happens(instance):
    for what, (code, says) in REFUSED.items():
        before = {b["id"] for b in instance.get("/v1/sandboxes")["sandboxes"]}
        with instance.sandbox() as box:
            put(instance, box, "/tmp/x.py", f"import sys\n{code}\nprint('ready', flush=True)\nfor l in sys.stdin: print('on', flush=True)")
            run = start(instance, box, "/usr/bin/python3", "/tmp/x.py")
            error = raises(ApiError, fork_live, instance, box)
            equal(error.code, "unsupported", what)
            contains(error.message, "(python3)", what)
            contains(error.message, says, what)
            equal(ask(instance, box, run, "still there?"), "on\n", what)
            equal({b["id"] for b in instance.get("/v1/sandboxes")["sandboxes"]}, before | {box})
