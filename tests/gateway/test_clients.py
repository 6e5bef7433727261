# SPDX-License-Identifier: Apache-2.0
"""Programs of others in a sandbox, each with the trust store that it reads by itself: the gateway opens their TLS and none of them has to be told."""

import json
import os
import subprocess

from lib import packages
from lib.case import equal
from lib.proxy import Upstream, certificate, echo

TIMEOUT = 500
JAVA = """import java.net.*;
public class Fetch { public static void main(String[] args) throws Exception { System.out.println(((HttpURLConnection) new URL(args[0]).openConnection()).getResponseCode()); } }
"""
GO = """package main
import ("fmt"; "net/http"; "os")
func main() { answer, err := http.Get(os.Args[1]); if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }; answer.Body.Close() }
"""
# URL is the last argument of each; what git and ruby make of the answer does not matter, that they asked does
CLIENTS = {
    "curl": ["curl", "-sS", "-o", "/dev/null"],
    "git": ["git", "ls-remote"],
    "go": ["/tmp/fetch"],
    "java": ["java", "/tmp/Fetch.java"],
    "node": ["node", "-e", "fetch(process.argv[1]).then(answer => answer.text())"],
    "openssl": ["sh", "-c", r"""printf 'GET %s HTTP/1.0\r\nHost: api.example\r\n\r\n' "${1#https://api.example}" |
        openssl s_client -connect api.example:443 -servername api.example -verify_return_error -ign_eof""", "sh"],
    "requests": ["/usr/bin/python3", "-c", "import requests, sys; requests.get(sys.argv[1])"],
    "ruby": ["ruby", "-ropen-uri", "-e", "URI.open(ARGV[0]).read"],
    "urllib": ["/usr/bin/python3", "-c", "import urllib.request, sys; urllib.request.urlopen(sys.argv[1])"],
    "without variables": ["env", "-i", "curl", "-sS", "-o", "/dev/null"],
}
LATE = ("go", "java", "node", "requests", "without variables")  # a store each: Java's, a variable for one file, one for a bundle, the system's


def go_program(folder):
    """The path of GO, compiled; what the compiler made of the standard library is kept."""
    source, program = os.path.join(folder, "fetch.go"), os.path.join(folder, "fetch")
    with open(source, "w", encoding="utf-8") as f:
        f.write(GO)
    subprocess.run(["/usr/bin/go", "build", "-o", program, source], check=True, timeout=400,
                   env={**os.environ, "GOCACHE": os.path.join(packages.CACHE, "go"), "GO111MODULE": "off"})
    return program


def ask(instance, box, upstream, prefix, clients):
    """Every client asks for a path of its own, and the world hears it."""
    instance.cay("exec", "-i", box, "--", "sh", "-c", "cat >/tmp/Fetch.java", stdin=JAVA)
    said = {name: instance.cay("exec", box, "--", *argv, f"https://api.example/{prefix}/{name.replace(' ', '-')}", check=False, timeout=100).stderr for name, argv in clients.items()}
    heard = upstream.text().decode(errors="replace")
    equal({name: said[name] for name in clients if f"GET /{prefix}/{name.replace(' ', '-')}" not in heard}, {}, "clients that did not get through")


def test_clients_trust_the_gateway(fresh, tmp):
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    policy = json.dumps({"rules": [{"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True}]})
    program = go_program(tmp)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    with fresh.sandbox(policy=policy) as box:
        fresh.cay("cp", program, f"{box}:/tmp/fetch")
        ask(fresh, box, upstream, "from-the-start", CLIENTS)
    with fresh.sandbox() as box:
        fresh.cay("cp", program, f"{box}:/tmp/fetch")
        fresh.call("PUT", f"/v1/sandboxes/{box}/policy", {"policy": policy})
        ask(fresh, box, upstream, "later-on", {name: CLIENTS[name] for name in LATE})
    upstream.close()
