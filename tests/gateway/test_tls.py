# SPDX-License-Identifier: Apache-2.0
"""TLS on both sides of the gateway's core: what the sandbox is shown, and whom the gateway believes outside."""

import os
import socket
import ssl
import subprocess

from lib.case import contains, equal, raises, require
from lib.proxy import Proxy, Upstream, certificate, echo, parse, read_all, tunnel

QUICK = True
ALLOW = [{"name": "api", "match": {"host": ["api.example", "*.wild.example"]}, "action": "allow"}]


def openssl(*args):
    done = subprocess.run(["openssl", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, check=False)
    return done.returncode, done.stdout


def make(folder, name, *extensions, subject="/CN=x", expired=False):
    """A self-signed certificate with @extensions; (file with key and certificate, the certificate)."""
    # from 3.4 on openssl takes dates, and no longer an end before the start
    takes_dates = "-not_after" in openssl("x509", "-help")[1]
    if not expired:
        validity = ("-days", "2")
    elif takes_dates:
        validity = ("-not_before", "20200101000000Z", "-not_after", "20200102000000Z")
    else:
        validity = ("-days", "-1")
    os.makedirs(folder, exist_ok=True)
    key, request, pem, both, config = (os.path.join(folder, f"{name}.{x}") for x in ("key", "csr", "crt", "pem", "ext"))
    with open(config, "w", encoding="utf-8") as f:
        f.write("\n".join(("basicConstraints=critical,CA:TRUE", *extensions)))
    for args in (("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", request, "-subj", subject),
                 ("x509", "-req", "-in", request, "-signkey", key, "-out", pem, *validity, "-extfile", config)):
        status, text = openssl(*args)
        equal(status, 0, text)
    with open(both, "w", encoding="utf-8") as out:
        for path in (key, pem):
            with open(path, encoding="utf-8") as f:
                out.write(f.read())
    return both, pem


def test_an_upstream_that_cannot_prove_its_name_hears_no_request(tmp):
    san, usage = "subjectAltName=DNS:api.example", "keyUsage=critical,digitalSignature,keyCertSign"
    cases = {
        "unknown issuer": (make(tmp, "unknown", san, usage), False),
        "another name": (make(tmp, "other", "subjectAltName=DNS:evil.example", usage), True),
        "the name only in the subject": (make(tmp, "cn", "subjectAltName=DNS:evil.example", usage, subject="/CN=api.example"), True),
        "partial wildcard": (make(tmp, "partial", "subjectAltName=DNS:a*.example", usage), True),
        "wildcard of everything": (make(tmp, "top", "subjectAltName=DNS:*", usage), True),
        "expired": (make(tmp, "expired", san, usage, expired=True), True),
        "not for servers": (make(tmp, "client", san, usage, "extendedKeyUsage=clientAuth"), True),
    }
    for name, ((both, pem), trusted) in cases.items():
        folder = os.path.join(tmp, name)
        os.mkdir(folder)
        upstream = Upstream(echo, both)
        proxy = Proxy(folder, ALLOW, {"api.example": upstream.address}, **({"extra": pem} if trusted else {}))
        status, body = proxy.get("api.example", "/secret", sni="api.example")
        equal(status, 502, name)
        contains(body, b"certificate is not accepted", name)
        equal(b"secret" in upstream.text(), False, name)
        equal(proxy.close(), 0)
        upstream.close()


def test_old_tls_outside_is_refused(tmp):
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    upstream.context.minimum_version = ssl.TLSVersion.TLSv1
    upstream.context.maximum_version = ssl.TLSVersion.TLSv1_1
    proxy = Proxy(tmp, ALLOW, {"api.example": upstream.address}, extra=root)
    equal(proxy.get("api.example", "/secret", sni="api.example")[0], 502)
    equal(b"secret" in upstream.text(), False)
    equal(proxy.close(), 0)
    upstream.close()


class Setup:
    def __init__(self, tmp, **config):
        pem, root = certificate(os.path.join(tmp, "up"), "api.example", "one.wild.example")
        self.upstream = Upstream(echo, pem)
        hosts = {"api.example": self.upstream.address, "one.wild.example": self.upstream.address}
        self.proxy = Proxy(tmp, ALLOW, hosts, extra=root, **config)

    def __enter__(self):
        return self.proxy, self.upstream

    def __exit__(self, *_):
        equal(self.proxy.close(), 0, "exit status of proxytest")
        self.upstream.close()


def test_names_that_do_not_agree(tmp):
    """SNI, authority, the name that was dialled and the port: any two that differ end the request."""
    listen = [{"tls": True, "as_port": 443, "as_name": "api.example"}, {"tls": True, "as_port": 8443}, {"tls": False, "as_port": 80, "as_name": "api.example"}]
    with Setup(tmp, listen=listen) as (proxy, upstream):
        def ask(sni, host, port):
            return parse(proxy.send(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n\r\n", sni, port))[0]
        named, odd_port, named_plain = proxy.ports[2:]
        equal(ask("api.example", b"one.wild.example", proxy.tls), 421)
        equal(ask("one.wild.example", b"one.wild.example", named), 421)
        equal(ask("one.wild.example", b"api.example", named), 421)
        equal(ask("api.example", b"api.example:8443", proxy.tls), 421)
        equal(ask("api.example", b"api.example", odd_port), 421)
        equal(ask(None, b"one.wild.example", named_plain), 421)
        equal(ask(None, b"192.0.2.99", proxy.plain), 421)
        equal(ask("api.example", b"169.254.169.254", proxy.tls), 421)
        equal(upstream.heard, [])
        equal(ask("api.example", b"api.example", named), 200)
        equal(ask("api.example", b"api.example:443", proxy.tls), 200)


def test_server_names_that_are_none(tmp):
    with Setup(tmp) as (proxy, upstream):
        for name in ("a b.example", "a..example", "-", "api.example:443", "x" * 64 + ".example"):
            sock = proxy.connect()
            sock.close()
            status, _ = openssl("s_client", "-connect", f"127.0.0.1:{proxy.tls}", "-servername", name)
            equal(status == 0 and name != "-", False, name)
        told = proxy.events("net.denied", 4)
        equal({e["reason"] for e in told}, {"the server name is not well formed"})
        equal(upstream.heard, [])


def test_what_the_sandbox_is_shown(tmp):
    with Setup(tmp) as (proxy, _):
        status, text = openssl("s_client", "-connect", f"127.0.0.1:{proxy.tls}", "-servername", "api.example", "-CAfile", proxy.root, "-verify_return_error",
                               "-x509_strict", "-verify_hostname", "api.example", "-showcerts")
        equal(status, 0, text[-500:])
        contains(text, "Verify return code: 0 (ok)")
        equal(text.count("BEGIN CERTIFICATE"), 1, "the leaf, not the root")
        status, text = openssl("s_client", "-connect", f"127.0.0.1:{proxy.tls}", "-servername", "api.example", "-CAfile", proxy.root,
                               "-verify_return_error", "-verify_hostname", "evil.example")
        equal(status == 0, False)
        for old in ("-tls1", "-tls1_1"):
            status, _ = openssl("s_client", "-connect", f"127.0.0.1:{proxy.tls}", "-servername", "api.example", old, "-cipher", "ALL:@SECLEVEL=0")
            equal(status == 0, False, old)
        # no server name: the address that was dialled
        status, text = openssl("s_client", "-connect", f"127.0.0.1:{proxy.tls}", "-noservername", "-CAfile", proxy.root, "-verify_return_error", "-verify_ip", "192.0.2.1")
        equal(status, 0, text[-500:])


def test_alpn(tmp):
    with Setup(tmp) as (proxy, _):
        for offered, chosen in ((("h2", "http/1.1"), "h2"), (("http/1.1",), "http/1.1"), ((), None)):
            context = ssl.create_default_context(cafile=proxy.root)
            if offered:
                context.set_alpn_protocols(list(offered))
            with context.wrap_socket(proxy.connect(proxy.tls), server_hostname="api.example") as sock:
                equal(sock.selected_alpn_protocol(), chosen)
        raises(ssl.SSLError, proxy.connect_tls, "api.example", alpn=("h3",))


def test_a_wire_that_is_cut_in_the_handshake(tmp):
    hello = b"\x16\x03\x01\x00\xff\x01\x00\x00\xfb\x03\x03"
    with Setup(tmp) as (proxy, _):
        for data in (b"", hello, b"\x16", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100000, hello + b"\xff" * 300):
            with proxy.connect(proxy.tls) as sock:
                try:
                    sock.sendall(data)
                    sock.shutdown(socket.SHUT_WR)
                except OSError:
                    pass
                read_all(sock)
        equal(proxy.get("api.example", sni="api.example")[0], 200)


def test_through_another_proxy(tmp):
    """CONNECT to the proxy of the configuration; the certificate behind it is checked all the same."""
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    behind = Upstream(echo, pem)
    asked = []

    through = Upstream(tunnel(behind, asked))
    proxy = Proxy(tmp, [{"name": "all", "match": {"host": "*.example"}, "action": "allow"}], {"proxy.test": through.address},
                  through="proxy.test:3128", extra=root)
    equal(proxy.get("api.example", sni="api.example")[0], 200)
    equal(proxy.get("evil.example", sni="evil.example")[0], 502)
    equal(asked, [b"CONNECT api.example:443 HTTP/1.1", b"CONNECT evil.example:443 HTTP/1.1"])
    equal(proxy.close(), 0)
    through.close()
    behind.close()


@require("program:curl")
def test_clients_of_others(tmp):
    import httpx  # pylint: disable=import-outside-toplevel
    import requests  # pylint: disable=import-outside-toplevel
    with Setup(tmp) as (proxy, _):
        done = subprocess.run(["curl", "-s", "--cacert", proxy.root, "--connect-to", f"api.example:443:127.0.0.1:{proxy.tls}", "-w", "%{http_version}",
                               "-d", "from curl", "https://api.example/x"], stdout=subprocess.PIPE, text=True, check=True, timeout=30)
        contains(done.stdout, "from curl")
        equal(done.stdout.endswith("2"), True)
        real = socket.getaddrinfo

        def here(host, port, *rest, **more):
            return real("127.0.0.1" if host == "api.example" else host, proxy.tls if port == 443 else port, *rest, **more)
        socket.getaddrinfo = here
        try:
            equal(requests.post("https://api.example/x", data="from requests", verify=proxy.root, timeout=20).text.endswith("from requests"), True)
            with httpx.Client(http2=True, verify=proxy.root, timeout=20) as client:
                answer = client.post("https://api.example/x", content="from httpx")
            equal((answer.http_version, answer.text.endswith("from httpx")), ("HTTP/2", True))
        finally:
            socket.getaddrinfo = real
