# SPDX-License-Identifier: Apache-2.0
"""Browsers, what drives them, and a screen that nobody looks at, unmodified, as an agent uses them inside: the page comes from a server inside. Live forks of them: checkpoint/test_browsers.py."""

import json
import os
import sys

from lib import packages
from lib.case import contains, equal, require, timeout
from lib.proxy import Upstream, certificate, echo

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "checkpoint"))
from forking import rootless  # noqa: E402

TIMEOUT = 170
LONG = True
PROFILES = ("default", "strict")
PYTHON = ("playwright==1.65.2", "selenium==4.51.0")
CHROMIUM = ("program:chromium",)

PAGE = """<!DOCTYPE html><title>page</title><button id="more" onclick="count++; said.textContent = 'clicked ' + count">more</button><p id="said">said by nobody</p>
<script>let count = 0; const said = document.getElementById('said'); fetch('/answer.txt').then(a => a.text()).then(t => { said.textContent = 'said by ' + t.trim() })</script>"""
# the server ends with the sandbox, or with the shell's job
SERVE = f"""set -e; mkdir -p /tmp/www && cd /tmp/www
cat > index.html <<'X'
{PAGE}
X
echo script > answer.txt
/usr/bin/python3 -m http.server --bind 127.0.0.1 8000 > /tmp/served 2>&1 &
server=$!
for i in $(seq 200); do /usr/bin/python3 -c 'import socket; socket.create_connection(("127.0.0.1", 8000))' 2>/dev/null && break; sleep 0.05; done
cd /tmp
"""
# the size of a picture, and whether it shows more than one colour
LOOK = """/usr/bin/python3 - picture.png <<'X'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\\x89PNG\\r\\n\\x1a\\n"
at, bits = 8, b""
while at < len(data):
    n, kind = struct.unpack(">I4s", data[at:at + 8])
    bits += data[at + 8:at + 8 + n] if kind == b"IDAT" else b""
    at += 12 + n
print("picture", *struct.unpack(">II", data[16:24]), len(set(zlib.decompress(bits))) > 2)
X
"""
PLAYWRIGHT = """
from playwright.sync_api import sync_playwright
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path="/usr/bin/chromium")
    page = browser.new_page()
    page.goto("http://127.0.0.1:8000/")
    page.wait_for_selector("text=said by script")
    page.click("#more")
    page.get_by_role("button").click()
    print(page.text_content("#said"), page.title(), len(page.screenshot()) > 1000, len(page.pdf()) > 1000)
    browser.close()
"""
SELENIUM = """
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait
options = webdriver.ChromeOptions()
options.binary_location = "/usr/bin/chromium"
for word in ("--headless", "--no-sandbox"):
    options.add_argument(word)
browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
browser.get("http://127.0.0.1:8000/")
said = browser.find_element(By.ID, "said")
WebDriverWait(browser, 30).until(lambda _: said.text == "said by script")
browser.find_element(By.ID, "more").click()
print(said.text, browser.title)
browser.quit()
"""


def check_chromium(instance, box):
    out = instance.ok(box, SERVE + "chromium --headless --no-sandbox --window-size=300,200 --screenshot=picture.png http://127.0.0.1:8000/ 2>/dev/null\n" + LOOK +
                      "chromium --headless --no-sandbox --virtual-time-budget=5000 --dump-dom http://127.0.0.1:8000/ 2>/dev/null | grep -o 'said by script'; kill $server", seconds=100)
    equal(out.splitlines(), ["picture 300 200 True", "said by script"])


def check_firefox(instance, box):
    out = instance.ok(box, SERVE + "firefox-esr --headless --window-size 300,200 --screenshot /tmp/picture.png http://127.0.0.1:8000/ 2>/dev/null\n" + LOOK + "kill $server", seconds=100)
    equal(out, "picture 300 200 True\n")


def check_screen(instance, box):
    """A window of a browser on a screen of its own, and a picture of that."""
    out = instance.ok(box, SERVE + """Xvfb :7 -screen 0 640x480x24 -nolisten tcp > /tmp/xvfb 2>&1 & screen=$!
        for i in $(seq 200); do [ -S /tmp/.X11-unix/X7 ] && break; sleep 0.05; done
        export DISPLAY=:7; chromium --no-sandbox --no-first-run --user-data-dir=/tmp/shown http://127.0.0.1:8000/ > /tmp/chromium 2>&1 & browser=$!
        for i in $(seq 400); do xwininfo -root -tree | grep -q '"page - Chromium"' && break; sleep 0.1; done
        xwininfo -root -tree | grep -o '"page - Chromium"' | head -n 1; kill $browser; wait $browser || true; kill $screen $server""", seconds=100)
    equal(out, '"page - Chromium"\n')


def driven(instance, box, script):
    return instance.ok(box, SERVE + f"PYTHONPATH=/packages {sys.executable} - <<'X'\n{script}X\nkill $server", seconds=150)


def make_case(check, profile, *needs):
    def case(instance):
        with instance.sandbox(profile=profile) as box:
            check(instance, box)
    case.__name__ = f"test_{check.__name__[len('check_'):]}_{profile}"
    return require("root", *needs)(case)


SCREEN = (*CHROMIUM, "program:Xvfb", "program:xwininfo")
FIREFOX = ("program:firefox-esr",)
for _check, _needs in ((check_chromium, CHROMIUM), (check_firefox, FIREFOX), (check_screen, SCREEN)):
    for _profile in PROFILES:
        _case = make_case(_check, _profile, *_needs)
        globals()[_case.__name__] = _case


@require("root", "userns", "newuidmap", *FIREFOX, *SCREEN)
def test_browsers_of_an_ordinary_user(tmp):
    with rootless(tmp) as instance, instance.sandbox() as box:
        for check in (check_chromium, check_firefox, check_screen):
            check(instance, box)


@require("root", *CHROMIUM)
def test_its_own_sandbox_is_refused_and_chromium_says_what_to_do(instance):
    """It would be made of namespaces; the sandbox that it runs in makes up for it."""
    with instance.sandbox() as box:
        for user, word in (("root", "without --no-sandbox is not supported"), ("nobody", "No usable sandbox!")):
            done = instance.cay("exec", "--user", user, "--env", f"HOME=/tmp/{user}", box, "--", "chromium", "--headless", "--dump-dom", "about:blank", check=False)
            assert done.returncode != 0
            contains(done.stderr, word)


@timeout(500)
@require("root", *CHROMIUM, "program:chromedriver")
def test_what_drives_them(instance):
    place = packages.python(*PYTHON)
    with instance.sandbox(mounts=[{"source": place, "target": "/packages", "mode": "ro"}]) as box:
        equal(driven(instance, box, PLAYWRIGHT), "clicked 2 page True True\n")
        equal(driven(instance, box, SELENIUM), "clicked 1 page\n")


def check_trust(instance, upstream):
    """They read none of the machine's trust stores."""
    rule = {"name": "api", "match": {"host": "api.example"}, "action": "allow", "upstream": upstream.address, "private": True}
    with instance.sandbox(policy=json.dumps({"rules": [rule]})) as box:
        contains(instance.ok(box, "chromium --headless --no-sandbox --dump-dom https://api.example/chromium 2>/dev/null", seconds=100), "GET /chromium")
        instance.ok(box, "timeout 60 firefox-esr --headless --screenshot /tmp/picture.png https://api.example/firefox && test -s /tmp/picture.png", seconds=100)
        contains(upstream.text().decode(errors="replace"), "GET /firefox")
        equal([change["path"] for change in instance.json("diff", box)["changes"] if change["path"].startswith(("/etc/chromium", "/etc/firefox"))], [])


@require("root", *CHROMIUM, *FIREFOX)
def test_they_trust_the_gateway(fresh, tmp):
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    upstream = Upstream(echo, pem)
    fresh.stop()
    fresh.start(CAY_TRUST=root)
    check_trust(fresh, upstream)
    upstream.close()


@require("root", "userns", "newuidmap", *CHROMIUM, *FIREFOX)
def test_they_trust_the_gateway_of_an_ordinary_user(tmp):
    pem, root = certificate(os.path.join(tmp, "up"), "api.example")
    os.chmod(os.path.dirname(root), 0o755)
    upstream = Upstream(echo, pem)
    with rootless(tmp, CAY_TRUST=root) as instance:
        check_trust(instance, upstream)
    upstream.close()
