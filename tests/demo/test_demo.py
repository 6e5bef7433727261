# SPDX-License-Identifier: Apache-2.0
"""The examples and the demo: what the newcomer runs first must work, and must say so when it does not."""

import os
import re
import shutil
import subprocess

from lib.case import contains, equal, require, timeout
from lib.cay import BUILD, TOP

SHOP = os.path.join(TOP, "examples", "shop")
AGENTS = os.path.join(TOP, "examples", "agents")
PYTHON = "/usr/bin/python3"


def run(*argv, cwd=TOP, env=None, timeout_s=250):
    return subprocess.run([str(a) for a in argv], cwd=cwd, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout_s, check=False)


def copy_of_shop(tmp):
    project = os.path.join(tmp, "shop")
    shutil.copytree(SHOP, project, ignore=shutil.ignore_patterns("shop.db", "__pycache__"))
    equal(run(PYTHON, "-B", "seed.py", cwd=project).returncode, 0)
    return project


def shop_tests(project):
    return run(PYTHON, "-B", "-m", "unittest", cwd=project)


def commands(text):
    """The commands of a tutorial page, without the parts that differ from run to run."""
    return re.findall(r"^\$ (.*)$", text, re.M)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def kept_page(name):
    return read(os.path.join(TOP, "docs", name))


def test_careless_agent_refuses_outside(tmp):
    project = copy_of_shop(tmp)
    done = run(PYTHON, os.path.join(AGENTS, "careless.py"), cwd=project)
    equal(done.returncode, 1, done.stdout)
    contains(done.stdout, "this is no sandbox")
    assert os.path.exists(os.path.join(project, "shop.db"))


def test_shop_has_exactly_one_bug(tmp):
    done = shop_tests(copy_of_shop(tmp))
    equal(re.findall(r"^(?:FAIL|ERROR): (\w+)", done.stdout, re.M), ["test_shares_add_up"], done.stdout)


def test_fixes_are_what_they_claim(tmp):
    for script, passes in (("fix_last_line", False), ("fix_store_shares", True), ("fix_largest_remainder", True)):
        project = copy_of_shop(tmp)
        equal(run(PYTHON, "-B", os.path.join(AGENTS, script + ".py"), cwd=project).returncode, 0, script)
        done = shop_tests(project)
        equal(done.returncode == 0, passes, f"{script}\n{done.stdout}")
        shutil.rmtree(project)


def test_demo_fails_when_the_product_does(tmp):
    """A cay that says yes to everything and does nothing."""
    build = os.path.join(tmp, "build")
    os.mkdir(build)
    with open(os.path.join(build, "cay"), "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\necho \'{"pid": 4194303, "state": "running", "changes": [], "sandboxes": []}\'\n')
    os.chmod(os.path.join(build, "cay"), 0o755)
    done = run(os.path.join(TOP, "tools", "demo"), "--build", build, env={"TMPDIR": tmp})
    equal(done.returncode, 1, done.stdout)
    contains(done.stdout, "demo FAILED")
    equal([name for name in os.listdir(tmp) if name.startswith("cay-demo-")], [], "left behind")


@require("userns")
@timeout(300)
def test_main_job(tmp):
    """tools/demo passes, and docs/tutorial.md shows the same commands."""
    page = os.path.join(tmp, "tutorial.md")
    done = run(os.path.join(TOP, "tools", "demo"), "shop", "--build", BUILD, "--tutorial", page, env={"TMPDIR": tmp})
    equal(done.returncode, 0, done.stdout[-6000:])
    equal(commands(kept_page("tutorial.md")), commands(read(page)), "docs/tutorial.md is old: tools/demo shop --tutorial docs/tutorial.md")


@require("userns", "program:pg_ctlcluster")
@timeout(400)
def test_live_story(tmp):
    """A database is forked under traffic; docs/tutorial-live.md shows the same commands."""
    page = os.path.join(tmp, "tutorial.md")
    done = run(os.path.join(TOP, "tools", "demo"), "live", "--build", BUILD, "--tutorial", page, env={"TMPDIR": tmp}, timeout_s=380)
    equal(done.returncode, 0, done.stdout[-6000:])
    same = [[re.sub(r"[a-z0-9]{20}", "EXEC", line) for line in commands(text)] for text in (kept_page("tutorial-live.md"), read(page))]
    equal(*same, "docs/tutorial-live.md is old: tools/demo live --tutorial docs/tutorial-live.md")


@require("userns")
@timeout(180)
def test_the_readme_can_be_typed_from_top_to_bottom(instance, tmp):
    """Each command of its transcripts, in order, in one shop; a status other than 0 only where the page shows a failure."""
    project = copy_of_shop(tmp)
    environment = {**instance.environment(), "HOME": tmp}
    environment["PATH"] = BUILD + ":" + environment["PATH"]
    page = "\n".join(re.findall(r"^```console\n(.*?)^```", read(os.path.join(TOP, "README.md")), re.M | re.S))
    said = {}
    for command in commands(page):
        done = run("sh", "-c", command, cwd=project, env=environment)
        refused = (7, 35)  # curl: the reset came before or after it had looked whether the connection is there
        assert done.returncode in (refused if "news.example" in command else (0,)), f"{command}: {done.returncode}\n{done.stdout}"
        said[command] = done.stdout
    box = re.search(r"^\$ cay create --name (\S+) --policy", page, re.M).group(1)
    contains(said[f"cay exec {box} -- curl -sS -d amount=100 https://api.payments.example/v1/refunds"], "a person must approve this")
    contains(said[f"cay net {box}"], "rule payments: a person must approve this")
    contains(said[f"cay mail ls {box}"], "offer")


@require("userns")
@timeout(180)
def test_loop_undoes_the_harmful_step(instance, tmp):
    project = copy_of_shop(tmp)
    environment = instance.environment()
    environment["PATH"] = BUILD + ":" + environment["PATH"]
    done = run(os.path.join(AGENTS, "loop.py"), project, f"{PYTHON} -B -m unittest tests.test_orders",
               os.path.join(AGENTS, "recorded_model.py"), env=environment)
    equal(done.returncode, 0, done.stdout)
    contains(done.stdout, "undone rm -rf shop/orders.py")
    assert os.path.exists(os.path.join(project, "shop", "orders.py"))
    with open(os.path.join(project, "README.md"), encoding="utf-8") as readme:
        contains(readme.read(), "Orders are in shop/orders.py.")


def loop(instance, project, check, tmp, *steps, meanwhile="pass"):
    """loop.py with a model that takes these steps, and does @meanwhile to the project; what it says, and the sandboxes that are there afterwards."""
    model = os.path.join(tmp, "model.py")
    with open(model, "w", encoding="utf-8") as file:
        file.write(f"#!{PYTHON}\nimport sys\nsteps = {list(steps)!r}\ndone = len(sys.stdin.readlines())\n{meanwhile}\nprint(*steps[done:done + 1])\n")
    os.chmod(model, 0o755)
    environment = instance.environment()
    environment["PATH"] = BUILD + ":" + environment["PATH"]
    done = run(os.path.join(AGENTS, "loop.py"), project, check, model, env=environment)
    return done.returncode, done.stdout, [one for one in instance.get("/v1/sandboxes")["sandboxes"] if one["name"].startswith("agent-")]


@require("userns")
@timeout(180)
def test_a_loop_keeps_what_is_not_applied(instance, tmp):
    """Something that somebody outside would execute, a conflict with the project, a check that fails, a model that does: nothing is applied, and nothing is lost."""
    project = copy_of_shop(tmp)
    readme = os.path.join(project, "README.md")
    before = read(readme)
    work, tool = "printf 'hours of work\\n' >> README.md", "printf '#!/bin/sh\\n' > tool; chmod +x tool"
    edit = f"if done == 1: open({readme!r}, 'a').write('meanwhile')"
    for check, steps, meanwhile, said in (("true", (work, tool), "pass", "something outside would execute"), ("false", (work,), "pass", "the check fails"),
                                          ("true", (work,), "if done == 1: sys.exit('no answer')", "CalledProcessError"), ("true", (work,), edit, "conflict")):
        status, output, boxes = loop(instance, project, check, tmp, *steps, meanwhile=meanwhile)
        equal((status, [one["state"] for one in boxes]), (1, ["stopped"]), output)
        contains(output, said)
        contains(output, f"cay apply {boxes[0]['name']}")
        instance.post(f"/v1/sandboxes/{boxes[0]['id']}/start")
        contains(instance.ok(boxes[0]["id"], f"cat {readme}"), "hours of work")
        instance.remove(boxes[0]["id"])
        equal(read(readme).removesuffix("meanwhile"), before)


@require("userns")
def test_a_careless_agent_takes_no_other_container_for_a_sandbox(tmp):
    """A user namespace is no proof: whoever is in a container of another kind has one, too."""
    project = copy_of_shop(tmp)
    done = run("unshare", "--user", "--map-root-user", PYTHON, os.path.join(AGENTS, "careless.py"), "--no-bomb", cwd=project)
    equal(done.returncode, 1, done.stdout)
    contains(done.stdout, "this is no sandbox")
    assert os.path.exists(os.path.join(project, "shop.db"))
