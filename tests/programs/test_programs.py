# SPDX-License-Identifier: Apache-2.0
"""Programs of the host image that must work inside a sandbox, unmodified, one test each. Each does its real work, not --version."""

import os
import subprocess
import time

from lib.case import contains, equal, require, timeout
from lib.cay import POSTGRESQL, wait_until

TIMEOUT = 120


def test_bash(instance):
    with instance.sandbox() as box:
        script = "set -euo pipefail; declare -A a=([x]=1); diff <(echo 1) <(echo ${a[x]}); exec 3<>/tmp/f; echo y >&3; coproc cat; " \
                 "echo hi >&${COPROC[1]}; read -u ${COPROC[0]} line; kill $COPROC_PID; cat /tmp/f; echo $line; echo ${BASH_VERSION%%.*}"
        run = instance.exec(box, "bash", "-c", script)
        equal(instance.wait(box, run)["code"], 0, instance.output(box, run).decode())
        equal(instance.output(box, run, "stdout").split()[:2], [b"y", b"hi"])


def test_tools_that_look_at_the_machine(instance):
    """They see the sandbox's size and no load of others; the processor, which every program may ask itself, is described as it is."""
    with instance.sandbox(limits={"memory_bytes": 512 << 20, "cpu_millis": 1000}) as box:
        out = instance.ok(box, "lscpu; nproc; free -m; vmstat; vmstat -s; uptime; top -bn1; grep -c ^processor /proc/cpuinfo")
        modes = "lscpu | sed -n 's/^CPU op-mode(s): *//p'"
        equal(instance.ok(box, modes), subprocess.run(modes, shell=True, check=True, capture_output=True, text=True).stdout)
        contains(out, "load average: 0.00")
        equal([line.split()[1] for line in out.splitlines() if line.startswith(("Mem:", "CPU(s):"))], ["1", "512"])
        shown, real = (dict(line.split(":", 1) for line in text.split("\n\n")[0].replace("\t", "").splitlines())
                       for text in (instance.ok(box, "cat /proc/cpuinfo"), open("/proc/cpuinfo", encoding="utf-8").read()))
        equal({k: v for k, v in shown.items() if real.get(k) != v and k not in ("siblings", "cpu cores")}, {})
        equal([k for k in ("cpu MHz", "microcode", "apicid") if k in shown], [])


# chown, dac_override, fowner, fsetid, kill, setgid, setuid, net_raw, sys_chroot, setfcap; debug: sys_ptrace too
CAPABILITIES = {"default": 0x800420fb, "strict": 0, "debug": 0x800c20fb}


def test_what_a_sandbox_has(instance):
    """Devices, shared memory, what stands for the machine in /proc and /sys, and the rights of root inside: no more, and no less."""
    for profile, capabilities in CAPABILITIES.items():
        with instance.sandbox(profile=profile) as box:
            out = instance.ok(box, """cd /dev; stat -c '%F %n' * | sed -n 's/^character special file //p' | xargs; stat -f -c '%b %S' shm; find /sys -type f | sort
                sed -n 's/^\\(CapEff\\|NoNewPrivs\\):\\t//p' /proc/self/status; grep -c ^cpu[0-9] /proc/stat; nproc; cat /proc/version""")
            devices, shared, *there, held, gains_nothing, counted, processors, version = out.splitlines()
            equal(devices, "full null random tty urandom zero")
            blocks, size = map(int, shared.split())
            assert blocks * size >= 1 << 30, f"{blocks * size} bytes of /dev/shm"
            equal(there, [f"/sys/devices/system/cpu/{name}" for name in ("online", "possible", "present")])
            equal((int(held, 16), gains_nothing), (capabilities, "1" if profile == "strict" else "0"), profile)
            equal(counted, processors)
            equal(version, f"Linux version {os.uname().release} (cay) #1 SMP")


def boot_time():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def test_the_age_of_processes(instance):
    """ps and top measure by /proc/uptime: it goes on, also for who was started long after the sandbox."""
    with instance.sandbox() as box:
        since = boot_time()
        wait_until(lambda: boot_time() > since + 1, 30, "the clock to go on")
        started = boot_time()
        uptime, _, age = instance.ok(box, "cat /proc/uptime; ps -o etimes= -p $$").split()
        ended = boot_time()
        assert started - 0.01 <= float(uptime) <= ended, (started, uptime, ended)
        assert int(age) <= ended - started + 1, (age, started, ended)


@require("program:git")
def test_git(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """set -e
            cd /tmp && git init -q repo && cd repo && git config user.email a@b && git config user.name n
            echo one > f && git add f && git commit -qm first && git checkout -qb side && echo two >> f && git commit -qam second
            git checkout -q - && git merge -q side && git gc -q && cd .. && git clone -q repo copy && cd copy && git fsck --strict
            git log --format=%s""")
        equal(out.split(), ["second", "first"])


def test_python_with_venv_and_threads(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """set -e
            /usr/bin/python3 -m venv /tmp/v && /tmp/v/bin/python - <<'X'
import concurrent.futures, hashlib, multiprocessing, os, sys, threading, tempfile, socket
assert sys.prefix == "/tmp/v"
with concurrent.futures.ThreadPoolExecutor(20) as pool:
    assert len(set(pool.map(lambda i: hashlib.sha256(bytes(i)).hexdigest(), range(200)))) == 200
with multiprocessing.Pool(4) as pool:
    assert sum(pool.map(abs, range(100))) == 4950
a = socket.create_server(("127.0.0.1", 0)); b = socket.create_connection(a.getsockname())
print("fine", os.cpu_count() >= 1)
X""")
        equal(out, "fine True\n")


@require("program:node")
def test_node(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """cat > /tmp/x.js <<'X'
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (!isMainThread) { parentPort.postMessage(6 * 7); }
else {
  const http = require('http');
  const server = http.createServer((q, a) => a.end('served')).listen(0, '127.0.0.1', () => {
    http.get({ host: '127.0.0.1', port: server.address().port }, (answer) => answer.on('data', (d) => {
      new Worker(__filename).on('message', (m) => { console.log(String(d), m, require('os').cpus().length > 0); server.close(); });
    }));
  });
}
X
node /tmp/x.js""")
        equal(out, "served 42 true\n")


@require("program:gcc", "program:make")
def test_gcc_and_make(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """set -e; mkdir /tmp/p && cd /tmp/p
            for i in 1 2 3 4; do echo "int f$i(void){return $i;}" > f$i.c; done
            printf '#include <stdio.h>\\nint f1(void),f2(void),f3(void),f4(void);int main(void){printf("%%d\\\\n",f1()+f2()+f3()+f4());}' > m.c
            printf 'm: m.o f1.o f2.o f3.o f4.o\\n' > Makefile
            make -s -j4 CC=gcc CFLAGS='-O2 -Wall -pipe' && ./m""")
        equal(out, "10\n")


@require("root", "program:dpkg-deb")
def test_apt_get_installs_a_local_package(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """set -e; export DEBIAN_FRONTEND=noninteractive; mkdir -p /tmp/d/DEBIAN /tmp/d/usr/bin /tmp/d/var/lib/mine
            printf 'Package: mine\\nVersion: 1.0\\nArchitecture: all\\nMaintainer: m <m@example.org>\\nDescription: mine\\n' > /tmp/d/DEBIAN/control
            printf '#!/bin/sh\\nset -e\\nuseradd --system mineuser\\nchown mineuser /var/lib/mine\\n' > /tmp/d/DEBIAN/postinst
            chmod 755 /tmp/d/DEBIAN/postinst; printf '#!/bin/sh\\necho works\\n' > /tmp/d/usr/bin/mine; chmod 755 /tmp/d/usr/bin/mine
            dpkg-deb --root-owner-group -b /tmp/d /tmp/mine.deb >/dev/null
            apt-get install -y -qq --no-install-recommends /tmp/mine.deb >/tmp/log 2>&1 || { cat /tmp/log >&2; exit 1; }
            mine; stat -c %U /var/lib/mine; dpkg -s mine | grep ^Status; apt-get remove -y -qq mine >/dev/null 2>&1; test -e /usr/bin/mine || echo gone""")
        equal(out.splitlines(), ["works", "mineuser", "Status: install ok installed", "gone"])
    assert not os.path.exists("/usr/bin/mine"), "it was installed on the host"


@require("program:sudo")
def test_sudo(instance):
    with instance.sandbox() as box:
        equal(instance.ok(box, "sudo -n id -u").strip(), "0")
        if os.getuid() == 0:  # su to another user and back needs the range of ids
            equal(instance.ok(box, "su -s /bin/sh nobody -c 'id -un'").strip(), "nobody")


@require("program:sqlite3")
def test_sqlite3(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """cd /tmp && sqlite3 x.db "pragma journal_mode=wal; create table t(a primary key, b);
            with recursive n(i) as (select 1 union all select i+1 from n where i<10000) insert into t select i, i*i from n;
            create index ti on t(b); select count(*), sum(b) from t; pragma integrity_check;" """)
        equal(out.split(), ["wal", "10000|333383335000", "ok"])


@require("root", "program:nginx")
def test_nginx_on_port_80(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """set -e; mkdir -p /tmp/n/www && echo served > /tmp/n/www/index.html && chmod -R 755 /tmp/n
            cat > /tmp/n/nginx.conf <<'X'
user www-data;
worker_processes 2;
pid /tmp/n/pid;
error_log /tmp/n/error.log;
events { worker_connections 64; }
http { access_log /tmp/n/access.log; client_body_temp_path /tmp/n/b; proxy_temp_path /tmp/n/p; fastcgi_temp_path /tmp/n/f; uwsgi_temp_path /tmp/n/u;
       scgi_temp_path /tmp/n/s; server { listen 80; root /tmp/n/www; } }
X
            nginx -c /tmp/n/nginx.conf || { cat /tmp/n/error.log >&2; exit 1; }
            /usr/bin/python3 -c 'import urllib.request as u; print(u.urlopen("http://127.0.0.1/").read().decode(), end="")'
            ps -o user= -C nginx | sort | uniq -c | tr -s ' '; nginx -c /tmp/n/nginx.conf -s quit""")
        equal(out.splitlines()[0], "served")
        contains(out, "2 www-data")


@require("root")
@timeout(180)
def test_postgresql(instance):
    binaries = POSTGRESQL
    if not os.path.exists(binaries):
        raise AssertionError("postgresql is not installed")
    with instance.sandbox() as box:
        instance.ok(box, f"set -e; mkdir -p /tmp/pg && chown postgres /tmp/pg && cd /tmp && su -s /bin/sh postgres -c '{binaries}/initdb -D /tmp/pg/d -A trust' "
                    f">/tmp/initdb.log 2>&1 || {{ cat /tmp/initdb.log >&2; exit 1; }}; su -s /bin/sh postgres -c '{binaries}/pg_ctl -w -D /tmp/pg/d "
                    "-o \"-k /tmp/pg\" -l /tmp/pg/log start' >/dev/null || { cat /tmp/pg/log >&2; exit 1; }", 150)
        out = instance.ok(box, """cd /tmp; psql -h /tmp/pg -U postgres -Atq -c "create table t as select i, md5(i::text) m from generate_series(1,10000) i;
            create index on t(m); select count(*), max(i) from t where m > '8'" """)
        count, largest = out.strip().split("|")
        assert 4000 < int(count) < 6000 and int(largest) > 9000, out
        equal(instance.ok(box, "psql -h 127.0.0.1 -U postgres -Atc 'select 6*7'").strip(), "42")
        instance.ok(box, f"su -s /bin/sh postgres -c '{binaries}/pg_ctl -w -m fast -D /tmp/pg/d stop'")


@require("program:redis-server")
def test_redis(instance):
    with instance.sandbox() as box:
        out = instance.ok(box, """set -e; mkdir /tmp/r && cd /tmp/r
            redis-server --daemonize yes --dir /tmp/r --unixsocket /tmp/r/s --port 6379 --logfile /tmp/r/log
            until redis-cli ping >/dev/null 2>&1; do read -t 0.05 x < /dev/zero || :; done
            redis-cli -s /tmp/r/s set k v; redis-cli incr n; redis-cli save; redis-cli get k; test -s dump.rdb; redis-cli shutdown nosave""")
        equal(out.split(), ["OK", "1", "OK", "v"])


@require("program:strace")
def test_strace_works_only_in_the_debug_profile(instance):
    with instance.sandbox(profile="debug") as box:
        contains(instance.ok(box, "strace -f -e trace=openat cat /etc/hostname 2>&1"), 'openat(AT_FDCWD, "/etc/hostname"')
    with instance.sandbox() as box:
        status, out, err = instance.sh(box, "strace true 2>&1")
        assert status.get("code") != 0, f"strace works in the default profile: {out} {err}"


def test_what_the_sandbox_hides_is_named(instance, tmp):
    """A command that the caller has in a hidden place: the error says so and what to do."""
    home = os.path.join(os.path.expanduser("~"), f".cay-test-{os.getpid()}")
    os.makedirs(home)
    try:
        program = os.path.join(home, "my-hidden-tool")
        with open(program, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\necho hidden\n")
        os.chmod(program, 0o755)
        env = {"PATH": home + ":" + os.environ["PATH"]}
        done = instance.cay("run", "--rm", "--no-cwd", "--", "my-hidden-tool", want=127, env=env, cwd=tmp)
        contains(done.stderr, program)
        contains(done.stderr, "--expose")
        done = instance.cay("run", "--rm", "--no-cwd", "--expose", home, "--", program, env=env, cwd=tmp)
        equal(done.stdout, "hidden\n")
    finally:
        import shutil
        shutil.rmtree(home)


def test_the_environment_is_short(instance, tmp):
    callers = {"SECRET_OF_THE_CALLER": "x", "TZ": "Asia/Tokyo", "LANG": "C.UTF-8", "TAKEN": "2"}
    with instance.sandbox() as box:
        for words in (("run", "--rm", "--no-cwd"), ("exec", box)):
            done = instance.cay(*words, "--env", "GIVEN=1", "--env", "TAKEN", "--", "env", env=callers, cwd=tmp)
            found = dict(line.split("=", 1) for line in done.stdout.splitlines())
            equal(set(found), {"PATH", "HOME", "TERM", "LANG", "TZ", "GIVEN", "TAKEN"})
            equal([found[name] for name in ("HOME", "LANG", "TZ", "GIVEN", "TAKEN")], ["/root", "C.UTF-8", "Asia/Tokyo", "1", "2"])


def test_credential_places_are_not_exposed(instance, tmp):
    for place in (os.path.expanduser("~/.ssh"), "/etc/ssh", "/etc/ssl/private", "/root"):
        if not os.path.isdir(place) or (place == "/root" and not os.path.exists("/root/.ssh")):
            continue
        done = instance.cay("run", "--rm", "--no-cwd", "--expose", place, "--", "true", check=False, cwd=tmp)
        assert done.returncode not in (0, 127), f"--expose {place} was accepted"
