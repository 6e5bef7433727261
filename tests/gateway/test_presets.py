# SPDX-License-Identifier: Apache-2.0
"""Presets. Of model APIs: what would let the provider reach out for the sandbox is denied where the sandbox asks for it, before any connection. Of package registries: what plain
installs ask for is allowed, nothing that writes is. Of places of source code: what git asks for to fetch is, what it asks for to push is not."""

import json
import shlex

from lib.case import equal
from lib.proxy import Upstream, echo, tunnel

MESSAGE = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}
MESSAGES, CHAT, RESPONSES = "https://api.anthropic.com/v1/messages", "https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1/responses"
CASES = (
    (MESSAGES, {**MESSAGE, "tools": [{"name": "own"}, {"type": "web_search_20250305", "name": "web_search"}]}, "llm-anthropic/no-provider-tools"),
    (MESSAGES, {**MESSAGE, "tools": [{"type": "code_execution_20250522", "name": "run"}]}, "llm-anthropic/no-provider-tools"),
    (MESSAGES, {**MESSAGE, "mcp_servers": [{"type": "url", "url": "https://elsewhere.example/"}]}, "llm-anthropic/no-mcp-servers"),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/?data"}}]}]},
     "llm-anthropic/no-urls"),
    ("https://api.anthropic.com/v1/messages/batches", MESSAGE, None),
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": [{"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/"}}]}]}]},
     "llm-anthropic/no-urls-in-results"),
    (RESPONSES, {"input": "hello", "tools": [{"type": "web_search_preview"}]}, "llm-openai/no-provider-tools"),
    (RESPONSES, {"input": "hello", "tools": [{"type": "mcp", "server_url": "https://elsewhere.example/"}]}, "llm-openai/no-provider-tools"),
    (CHAT, {**MESSAGE, "web_search_options": {}}, "llm-openai/no-web-search"),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://elsewhere.example/?data"}}]}]}, "llm-openai/no-image-urls"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://elsewhere.example/?data"}]}]}, "llm-openai/no-input-image-urls"),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file", "file_url": "https://elsewhere.example/"}]}]}, "llm-openai/no-input-file-urls"),
    (RESPONSES, {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": "https://elsewhere.example/"}]}]}, "llm-openai/no-output-image-urls"),
    (RESPONSES, {"input": [{"type": "function_call_output", "output": [{"type": "input_file", "file_url": "https://elsewhere.example/"}]}]}, "llm-openai/no-output-file-urls"),
    ("https://api.openai.com/v1/batches", MESSAGE, None),
    # tools that are defined elsewhere than where they always were, and of types that came later
    (MESSAGES, {"messages": [{"role": "user", "content": [{"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"type": "web_fetch_20260318"}}}]}]},
     "llm-anthropic/no-provider-tools-in-messages"),
    (MESSAGES, {"messages": [{"role": "system", "content": [{"type": "mid_conv_system", "content": [{"type": "tool_addition", "tool": {
        "type": "tool_definition", "definition": {"type": "web_fetch_20260318"}}}]}]}]}, "llm-anthropic/no-provider-tools-in-system-blocks"),
    (MESSAGES, {**MESSAGE, "tools": [{"type": "advisor_20260301", "name": "advisor", "model": "x"}]}, "llm-anthropic/no-provider-tools"),
    (CHAT, {**MESSAGE, "model": "any-search-preview"}, "llm-openai/no-search-models"),
    (MESSAGES, {**MESSAGE, "tools": [{"type": "custom", "name": "x"}, {"type": "fetch_anything_20310101"}]}, "llm-anthropic/no-provider-tools"),
    (MESSAGES + "?beta=true", {**MESSAGE, "tools": [{"type": "Web_Fetch_20260318"}]}, "llm-anthropic/no-provider-tools"),
    (RESPONSES, {"input": "x", "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]}, "llm-openai/no-provider-tools"),
    (RESPONSES, {"input": "x", "tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}, "llm-openai/no-provider-tools-in-namespaces"),
    (RESPONSES, {"input": [{"type": "additional_tools", "role": "developer", "tools": [{"type": "web_search"}]}]}, "llm-openai/no-provider-tools-in-input"),
    (RESPONSES, {"input": [{"type": "tool_search_output", "tools": [{"type": "namespace", "tools": [{"type": "mcp"}]}]}]}, "llm-openai/no-provider-tools-in-namespaces-in-input"),
    *((CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}, "llm-openai/no-image-urls")
      for url in ("HTTPS://elsewhere.example/?data", "hTTp://elsewhere.example/", " https://elsewhere.example/", "\nhttps://elsewhere.example/", "\x01https://elsewhere.example/")),
    (RESPONSES, {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": "https://elsewhere.example/"}}]}, "llm-openai/no-screenshots"),
    (RESPONSES, {"prompt": {"id": "p", "variables": {"x": {"type": "input_image", "image_url": "https://elsewhere.example/"}}}}, "llm-openai/no-variable-image-urls"),
    (RESPONSES, {"prompt": {"id": "p", "variables": {"x": {"type": "input_file", "file_url": "https://elsewhere.example/"}}}}, "llm-openai/no-variable-file-urls"),
    ("https://api.openai.com/v1/moderations", {"input": [{"type": "image_url", "image_url": {"url": "https://elsewhere.example/"}}]}, "llm-openai/no-moderated-image-urls"),
    (MESSAGES, {"messages": [{"content": [{"type": "document", "source": {"type": "content", "content": [{"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/"}}]}}]}]},
     "llm-anthropic/no-urls-in-documents"),
    (MESSAGES, {"messages": [{"content": [{"type": "tool_result", "content": [{"type": "document", "source": {"type": "content", "content": [
        {"type": "image", "source": {"type": "url", "url": "https://elsewhere.example/"}}]}}]}]}]}, "llm-anthropic/no-urls-in-results-documents"),
)


def test_what_the_provider_would_fetch_is_denied(instance):
    with instance.sandbox(policy=json.dumps({"version": 1, "preset": ["llm-anthropic", "llm-openai"]})) as box:
        for url, body, rule in CASES:
            text = instance.ok(box, "curl -sS --max-time 20 -H 'Content-Type: application/json' -w ' %{http_code}' "
                                    f"-d {shlex.quote(json.dumps(body))} {url}")
            answer, status = text.rsplit(" ", 1)
            equal((status, json.loads(answer)["error"]["code"], json.loads(answer)["error"].get("rule")), ("403", "denied", rule), f"{url} {body}")


def test_a_denial_of_what_cannot_be_read_says_so(instance):
    """Else a file that is uploaded would hear of tools."""
    with instance.sandbox(policy=json.dumps({"version": 1, "preset": ["llm-openai"]})) as box:
        for options, said in (("-F purpose=x", True), ("-H 'Content-Type: application/json' -d '{\"tools\": [{\"type\": \"mcp\"}]}'", False)):
            answer = instance.ok(box, f"curl -sS --max-time 20 {options} {RESPONSES}")
            equal("no JSON that a rule can read" in json.loads(answer)["error"]["message"], said, answer)


READS = {"pip": ["https://pypi.org/simple/requests/", "https://pypi.org/pypi/requests/json", "https://files.pythonhosted.org/packages/ab/cd/requests-2.0-py3-none-any.whl"],
         "uv": ["https://pypi.org/simple/requests/", "https://files.pythonhosted.org/packages/ab/cd/requests-2.0-py3-none-any.whl.metadata"],
         "npm": ["https://registry.npmjs.org/left-pad", "https://registry.npmjs.org/@types%2fnode", "https://registry.npmjs.org/@types/node/-/node-20.0.0.tgz",
                 "https://registry.npmjs.org/-/npm/v1/keys"],
         "yarn": ["https://registry.yarnpkg.com/left-pad", "https://registry.yarnpkg.com/@types%2fnode", "https://repo.yarnpkg.com/4.0.0/packages/yarnpkg-cli/bin/yarn.js"],
         "cargo": ["https://index.crates.io/config.json", "https://index.crates.io/se/rd/serde", "https://static.crates.io/crates/serde/serde-1.0.0.crate",
                   "https://crates.io/api/v1/crates/serde/1.0.0/download"],
         "go": ["https://proxy.golang.org/golang.org/x/net/@v/list", "https://proxy.golang.org/golang.org/toolchain/@v/v0.0.1-go1.22.0.linux-amd64.zip",
                "https://proxy.golang.org/github.com/!burnt!sushi/toml/@latest", "https://sum.golang.org/lookup/golang.org/x/net@v0.1.0",
                "https://sum.golang.org/tile/8/0/x001/234", "https://storage.googleapis.com/proxy-golang-org-prod/23-google.golang.org:api-v0.3.1.zip?Expires=1"],
         "apt": ["http://deb.debian.org/debian/dists/bookworm/InRelease", "http://security.debian.org/debian-security/pool/a.deb"]}
AUDITS = [f"https://registry.{host}/-/npm/v1/security/{what}" for host in ("npmjs.org", "yarnpkg.com") for what in ("advisories/bulk", "audits/quick", "audits")]
WRITES = [("PUT", "https://registry.npmjs.org/left-pad"), ("POST", "https://registry.npmjs.org/-/v1/login"), ("PUT", "https://registry.npmjs.org/-/user/org.couchdb.user:me"),
          ("DELETE", "https://registry.npmjs.org/left-pad/-rev/1"), ("PUT", "https://registry.npmjs.org/-/package/left-pad/dist-tags/latest"),
          ("POST", "https://registry.npmjs.org/-/npm/v1/tokens"), ("POST", "https://registry.npmjs.org/-/npm/v1/security/audits/../../tokens"),
          ("POST", "https://upload.pypi.org/legacy/"), ("POST", "https://pypi.org/legacy/"), ("PUT", "https://crates.io/api/v1/crates/new"),
          ("DELETE", "https://crates.io/api/v1/crates/serde/1.0.0/yank"), ("POST", "https://rubygems.org/api/v1/gems"), ("PUT", "https://storage.googleapis.com/proxy-golang-org-prod/x"),
          ("GET", "https://storage.googleapis.com/somebody/x"), ("GET", "https://storage.googleapis.com/proxy-golang-org-prod/../somebody/x")]


def test_package_registries(instance):
    def action(method, url, *more):
        return instance.json("policy", "explain", "package-registries", url, "--method", method, *more)["action"]
    for tool, urls in READS.items():
        for url in urls:
            equal([action(method, url) for method in ("GET", "HEAD")], ["allow"] * 2, f"{tool}: {url}")
            equal([action(method, url) for method in ("POST", "PUT", "DELETE", "PATCH")], ["deny"] * 4, f"{tool}: {url}")
            equal(action("GET", url, "--header", "X-HTTP-Method-Override: PUT"), "deny", url)
    equal([action("POST", url) for url in AUDITS], ["allow"] * len(AUDITS))
    for method, url in WRITES:
        equal(action(method, url), "deny", f"{method} {url}")


def test_read_only_web(fresh):
    """Of what programs send, only what reads arrives outside; nothing that is not public is asked for."""
    asked, world = [], Upstream(echo)
    proxy = Upstream(tunnel(world, asked))
    fresh.stop()
    fresh.start(CAY_THROUGH="http://" + proxy.address)
    with fresh.sandbox(policy=json.dumps({"version": 1, "preset": ["read-only-web"]})) as box:
        def status(options, url):
            return fresh.ok(box, f"curl -s -o /dev/null --max-time 20 -w '%{{http_code}}' {options} {url} || true")

        reads = [(method, f"http://{host}/{method}") for host in ("one.example", "deep.below.two.example") for method in ("GET", "OPTIONS")]
        equal([status(f"-X {method}", url) for method, url in reads] + [status("-I", "http://one.example/HEAD")], ["200"] * 5)
        equal([status(f"-X {method}", "http://one.example/written") for method in ("POST", "PUT", "PATCH", "DELETE", "PROPFIND")], ["403"] * 5)
        equal(status("-d x=1", "http://one.example/written"), "403")
        equal(status("-H 'X-HTTP-Method-Override: DELETE'", "http://one.example/written"), "403")
        equal(status("", "http://one.example:8080/written"), "000")
        for private in ("169.254.169.254", "10.0.0.1", "[fd00::1]", "[::ffff:10.0.0.1]", "metadata.google.internal", "printer.local", "intranet"):
            equal(status("", f"http://{private}/written"), "403", private)
    equal(sorted(line.split()[0] for line in world.text().decode().splitlines() if line.endswith("HTTP/1.1")), sorted([method for method, _ in reads] + ["HEAD"]))
    equal([line.decode() for line in asked if b"example" not in line], [])
    equal(b"written" in world.text(), False)
    for upstream in (world, proxy):
        upstream.close()


GIT = ("https://github.com/a/b", "https://github.com/a/b.git", "https://gitlab.com/group/below/b.git", "https://codeberg.org/a/b.git", "https://bitbucket.org/a/b.git")
CODE = ["https://github.com/a/b/archive/refs/tags/v1.tar.gz", "https://codeload.github.com/a/b/tar.gz/refs/tags/v1", "https://raw.githubusercontent.com/a/b/main/README",
        "https://github.com/a/b/releases/download/v1/b.whl", "https://release-assets.githubusercontent.com/x/1?sig=x", "https://api.github.com/repos/a/b/releases/latest",
        "https://gitlab.com/a/b/-/archive/v1/b-v1.tar.gz", "https://github.com/a/b?go-get=1"]
CODE_WRITES = [("POST", "https://api.github.com/graphql"), ("POST", "https://api.github.com/repos/a/b/issues"), ("PUT", "https://api.github.com/repos/a/b/contents/x"),
               ("POST", "https://github.com/a/b/git-receive-pack"), ("POST", "https://github.com/a/b/git-upload-pack/git-receive-pack"), ("POST", "https://github.com/session"),
               ("POST", "https://api.github.com/a/b/git-upload-pack"), ("POST", "https://uploads.github.com/repos/a/b/releases/1/assets"), ("PUT", "https://github.com/a/b/git-upload-pack"),
               ("GET", "https://gist.github.com/a/b"), ("POST", "https://gitlab.com/api/v4/projects"), ("GET", "http://github.com/a/b/info/refs?service=git-receive-pack")]


def test_code_hosts(instance):
    def explain(method, url, *more):
        found = instance.json("policy", "explain", "code-hosts", url, "--method", method, *more)
        return found["action"], found["rule"]
    for repository in GIT:
        equal(explain("GET", repository + "/info/refs?service=git-upload-pack"), ("allow", "code-hosts/read"), repository)
        equal(explain("POST", repository + "/git-upload-pack"), ("allow", "code-hosts/fetch"), repository)
        equal(explain("GET", repository + "/info/refs?service=git-receive-pack"), ("deny", "code-hosts/no-push"), repository)
        equal(explain("POST", repository + "/git-receive-pack"), ("deny", None), repository)
        batch = repository + "/info/lfs/objects/batch"
        equal(explain("POST", batch, "--body", '{"operation":"download","objects":[]}'), ("allow", "code-hosts/lfs"), batch)
        for body in ('{"operation":"upload"}', "{}", '[{"operation":"download"}]', '{"operation":"download","Operation":"upload"}'):
            equal(explain("POST", batch, "--body", body), ("deny", None), f"{batch} {body}")
    for url in CODE:
        equal([explain(method, url)[0] for method in ("GET", "HEAD")], ["allow"] * 2, url)
        equal([explain(method, url)[0] for method in ("POST", "PUT", "DELETE", "PATCH")], ["deny"] * 4, url)
    for method, url in CODE_WRITES:
        equal(explain(method, url)[0], "deny", f"{method} {url}")
    equal(explain("GET", GIT[0], "--header", "X-HTTP-Method-Override: DELETE")[0], "deny")
