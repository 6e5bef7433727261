# SPDX-License-Identifier: Apache-2.0
"""Many layers become one that shows the same over whatever lies below; chains of any length work."""

import os
import random
import shutil
import signal
import sys

from lib import cay, job, leaks
from lib.case import contains, equal, raises, require
from lib.job import JobDied
from lib.pool import Pool, same_trees

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import chain  # noqa: E402

TIMEOUT = 300


MOVES = (0, 3, 3, 4, 5, 5, 5, 5)  # mostly renames of directories, into new and renamed ones and out of them


def work(top, rng, acts=range(9)):
    """A dozen random changes of a tree, renames of directories among them."""
    for _ in range(12):
        dirs = [top] + [os.path.join(at, d) for at, ds, _ in os.walk(top) for d in ds]
        files = [os.path.join(at, f) for at, _, fs in os.walk(top) for f in fs]
        name = f"{rng.choice(dirs)}/{rng.choice('abcdef')}{rng.randrange(4)}"
        act = rng.choice(acts)
        if act <= 2 and not os.path.lexists(name):
            with open(name, "w", encoding="ascii") as f:
                f.write(str(rng.random()))
        elif act == 3 and not os.path.lexists(name):
            os.mkdir(name)
        elif act == 4 and files:
            os.unlink(rng.choice(files))
        elif act == 5 and len(dirs) > 1 and not os.path.lexists(name):
            old = rng.choice(dirs[1:])
            if not name.startswith(old + "/"):
                os.rename(old, name)
        elif act == 6 and len(dirs) > 1:
            shutil.rmtree(rng.choice(dirs[1:]))
        elif act == 7 and files and not os.path.lexists(name):
            os.link(rng.choice(files), name)
        elif act == 8 and files:
            os.chmod(rng.choice(files), rng.choice((0o600, 0o644, 0o755)))


def base(top):
    for path in ("a0/b0/c0", "a1", "d2/e2/f2", "b1/c1"):
        os.makedirs(os.path.join(top, path))
        for name in ("x", "a2", "f1"):
            with open(os.path.join(top, path, name), "w", encoding="ascii") as f:
                f.write(path + name)


@require("root", "btrfs")
def test_a_flat_layer_shows_what_its_layers_show(tmp):
    for kind in ("btrfs", "directory"):
        with Pool(tmp, kind) as pool:
            lower = os.path.join(tmp, "base-" + kind)
            base(lower)
            for seed in range(12):
                rng, layers = random.Random(seed), []
                for number in range(6):
                    sandbox = pool.live()
                    at = pool.overlay(os.path.join(tmp, "at"), [pool.layer(x) for x in layers] + [lower], sandbox)
                    work(at, rng, range(9) if seed < 4 else MOVES)
                    pool.unmount(at)
                    layers.insert(0, pool.seal(sandbox)[0])
                shown = os.path.join(tmp, "all")
                for first, last in ((0, 6), (2, 5), (0, 2), (4, 6)):
                    flat = "flat" + job.new_id()[4:]
                    pool.run("flatten", layers=layers[first:last], layer=flat)
                    pool.overlay(shown, [pool.layer(x) for x in layers] + [lower])
                    fewer = layers[:first] + [flat] + layers[last:]
                    at = pool.overlay(os.path.join(tmp, "at"), [pool.layer(x) for x in fewer] + [lower])
                    same_trees(shown, at)
                    pool.unmount(at)
                    pool.unmount(shown)
                    equal(pool.run("verify", layers=[flat])["state"], "verified")
                    # and what reads layers without mounting them agrees
                    changes = pool.job("diff", trees=[{"target": "/", "a": [pool.layer(x) for x in fewer] + [lower],
                                                       "b": [pool.layer(x) for x in layers] + [lower]}])
                    equal(changes.result()["n"], 0)


@require("root", "btrfs")
def test_moves_of_directories_in_and_out_and_back_are_flattened(tmp):
    """What was not changed in them lies below all layers, where the flat one must still lead."""
    with Pool(tmp, "btrfs") as pool:
        for number, moves in enumerate((("a0 new/a0", "new/a0 lib"), ("a0 r", "r/b0 lib"), ("a0 r", "r/b0 r/s", "r/s/c0 lib"),
                                        ("a0 r", "r a0"), ("d2/e2 d2/r", "d2/r d2/s", "d2/s d2/e2"))):
            lower, layers = os.path.join(tmp, f"base{number}"), []
            base(lower)
            for move in moves:
                sandbox = pool.live()
                at = pool.overlay(os.path.join(tmp, "at"), [pool.layer(x) for x in layers] + [lower], sandbox)
                old, new = (os.path.join(at, part) for part in move.split())
                os.makedirs(os.path.dirname(new), exist_ok=True)
                os.rename(old, new)
                pool.unmount(at)
                layers.insert(0, pool.seal(sandbox)[0])
            flat = "flat" + job.new_id()[4:]
            pool.run("flatten", layers=layers, layer=flat)
            shown = pool.overlay(os.path.join(tmp, "all"), [pool.layer(x) for x in layers] + [lower])
            at = pool.overlay(os.path.join(tmp, "at"), [pool.layer(flat), lower])
            same_trees(shown, at)
            pool.unmount(at)
            pool.unmount(shown)


@require("root", "btrfs")
def test_a_killed_flattening_leaves_nothing_and_old_layers_are_never_put_back(tmp):
    with Pool(tmp, "btrfs") as pool:
        lower = os.path.join(tmp, "base")
        base(lower)
        sandbox, layers = pool.live(), []
        for number in range(3):
            at = pool.overlay(os.path.join(tmp, "at"), [pool.layer(x) for x in layers] + [lower], sandbox)
            with open(at + "/n", "w", encoding="ascii") as f:
                f.write(str(number))
            pool.unmount(at)
            layers.insert(0, pool.seal(sandbox)[0])
        flat = "flat" + job.new_id()[4:]
        raises(JobDied, pool.job("flatten", layers=layers, layer=flat, env={"CAY_FAULT": "store.flatten.filled"}).result)
        assert not os.path.exists(pool.layer(flat))
        pool.run("recover", layers=layers, sandboxes=[sandbox])
        equal(os.listdir(pool.path("tmp")), [])
        pool.run("flatten", layers=layers, layer=flat)
        # the catalogue knows the flat one only: the seals of an empty sandbox are no seals that were cut short
        done = pool.run("recover", layers=[flat], sandboxes=[sandbox])
        equal(done["unsealed"], [])
        equal(os.listdir(pool.path("layers")), [flat])
        equal(os.listdir(pool.upper(sandbox)), [])


def damage(path):
    """Another byte, and nothing else: as a disk does."""
    st = os.stat(path)
    with open(path, "r+b") as f:
        f.write(b"X")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


@require("root")
def test_what_is_damaged_is_not_flattened(tmp):
    """The flat layer would have a list of its own, by which the damage is right."""
    with Pool(tmp, "directory") as pool:
        layers = []
        for number in range(3):
            sandbox = pool.live()
            with open(pool.upper(sandbox) + f"/f{number}", "w", encoding="ascii") as f:
                f.write("right")
            layers.insert(0, pool.seal(sandbox)[0])
        pool.run("sync", layers=layers[1:])  # the topmost has no list: it may be anything
        flat = "flat" + job.new_id()[4:]
        pool.run("flatten", layers=layers, layer=flat)
        damage(pool.layer(layers[2]) + "/f0")
        error = raises(job.JobError, pool.run, "flatten", layers=layers, layer="flat" + job.new_id()[4:])
        equal(error.code, "corrupt")
        contains(error.message, layers[2])
        equal(sorted(os.listdir(pool.path("layers"))), sorted(layers + [flat]))
        equal(os.listdir(pool.path("tmp")), [])


@require("root")
def test_a_chain_with_damage_stays_long_and_is_told(tmp):
    """And others are shortened all the same."""
    instance = cay.Instance(tmp)
    try:
        os.makedirs(os.path.join(instance.state, "pool/layers"))  # a directory: nothing else checks its bytes
        instance.start()
        ids = {}
        for name in ("damaged", "whole"):
            instance.post("/v1/sandboxes", {"name": name})
            instance.post(f"/v1/sandboxes/{name}/stop")
            ids[name] = chain.grow(instance, name, 0, 120, 30)
        equal(instance.post(f"/v1/snapshots/{ids['damaged'][0]}/verify")["state"], "verified")
        [first] = instance.get(f"/v1/snapshots/{ids['damaged'][0]}")["layers"]
        damage(os.path.join(instance.state, "pool/layers", first, "0/var/tmp/last"))
        ids["damaged"] += chain.grow(instance, "damaged", 120, 130, 30)
        ids["whole"] += chain.grow(instance, "whole", 120, 130, 30)
        cay.wait_until(lambda: len(instance.get(f"/v1/snapshots/{ids['whole'][129]}")["layers"]) < 100, 120, "the other chain is flattened")

        def told():
            return [s["id"] for s in instance.get("/v1/snapshots")["snapshots"] if s["state"] == "corrupt"]
        cay.wait_until(told, 60, "a snapshot of the chain is told to be damaged")
        equal(set(told()) <= set(ids["damaged"]), True)
        equal(chain.longest(instance) >= 128, True)
        equal(raises(cay.ApiError, instance.post, f"/v1/snapshots/{ids['damaged'][0]}/verify").code, "corrupt")
    finally:
        instance.close()


@require("root")
def test_damage_far_down_keeps_nothing_above_it(tmp):
    """300 layers, the lowest of them damaged: the sandbox starts and is sealed, with its other layers flattened."""
    instance = cay.Instance(tmp)
    try:
        os.makedirs(os.path.join(instance.state, "pool/layers"))
        instance.start(CAY_FAULT="chain.replace.before=error")  # once: nothing is flattened in the background from then on
        instance.post("/v1/sandboxes", {"name": "chain"})
        instance.post("/v1/sandboxes/chain/stop")
        ids = chain.grow(instance, "chain", 0, 130, 30)
        cay.wait_until(lambda: "flatten layers" in leaks.read(instance.log), 60, "the commit failed")
        equal(instance.post(f"/v1/snapshots/{ids[0]}/verify")["state"], "verified")
        [first] = instance.get(f"/v1/snapshots/{ids[0]}")["layers"]
        damage(os.path.join(instance.state, "pool/layers", first, "0/var/tmp/last"))
        ids += chain.grow(instance, "chain", 130, 303, 30)
        equal(chain.longest(instance) <= 300, True)
        equal(instance.get(f"/v1/snapshots/{ids[302]}")["layers"][-1], first)
        instance.post("/v1/sandboxes/chain/start")
        equal(instance.ok("chain", "cat /var/tmp/last"), "300\n")
    finally:
        instance.close()


@require("root")
def test_a_long_chain_is_flattened_in_the_background(fresh):
    with fresh.sandbox() as box:
        fresh.post(f"/v1/sandboxes/{box}/stop")
        ids = chain.grow(fresh, box, 0, 135, 30)
        chain.wait_short(fresh, 100)
        flat = [x for x in fresh.get(f"/v1/snapshots/{ids[134]}")["layers"] if x.startswith("flat")]
        equal(len(flat), 1)
        for number in (0, 62, 63, 64, 100, 134):
            chain.check(fresh, ids[number], number, 30)
        equal(fresh.json("diff", ids[63], ids[64])["changes"], [])
        changes = fresh.json("diff", ids[29], ids[134])["changes"]
        equal(sorted((c["path"], c["kind"]) for c in changes),
              [("/var/tmp/f0", "deleted"), ("/var/tmp/f120", "added"), ("/var/tmp/f90", "added"), ("/var/tmp/last", "modified")])
        own = {fresh.get(f"/v1/snapshots/{name}")["layers"][0] for name in ids[:63]}
        for name in ids[:64]:
            fresh.call("DELETE", f"/v1/snapshots/{name}")
        fresh.post("/v1/prune", {})
        equal(chain.layers_on_disk(fresh), chain.layers_known(fresh))
        equal(chain.layers_on_disk(fresh) & own, set())
        chain.check(fresh, ids[134], 134, 30)


@require("root")
def test_a_chain_whose_commit_fails_stays_as_it_was(tmp):
    """The server goes on with the layers that the catalogue names, and takes none of them for garbage."""
    instance = cay.Instance(tmp)
    try:
        instance.start(CAY_FAULT="chain.replace.before=error")
        instance.post("/v1/sandboxes", {"name": "chain"})
        instance.post("/v1/sandboxes/chain/stop")
        ids = chain.grow(instance, "chain", 0, 130, 30)
        cay.wait_until(lambda: "flatten layers" in leaks.read(instance.log), 60, "the commit failed")
        equal(chain.longest(instance), 130)
        instance.post("/v1/prune", {})
        instance.stop()
        instance.start()
        for number in (0, 63, 64, 129):
            chain.check(instance, ids[number], number, 30)
        chain.wait_short(instance, 100)
        for number in (0, 63, 64, 129):
            chain.check(instance, ids[number], number, 30)
    finally:
        instance.close()


@require("root")
def test_a_server_killed_while_it_flattens(tmp):
    instance = cay.Instance(tmp)
    try:
        instance.start()
        instance.post("/v1/sandboxes", {"name": "chain"})
        instance.post("/v1/sandboxes/chain/stop")
        ids = chain.grow(instance, "chain", 0, 120, 30)
        instance.stop()
        instance.start(CAY_FAULT="store.flatten.filled")
        ids += chain.grow(instance, "chain", 120, 130, 30)
        cay.wait_until(lambda: "flatten layers" in leaks.read(instance.log), 60, "the job was killed")
        for number in (0, 64, 129):
            chain.check(instance, ids[number], number, 30)
        instance.kill()
        for point in ("chain.replace.before", "chain.replace.after"):
            try:
                instance.start(CAY_FAULT=point)
            except (RuntimeError, OSError, EOFError, cay.ApiError):
                pass  # it is killed as soon as it has flattened, perhaps before it has answered
            equal(instance.process.wait(60), -signal.SIGKILL, point)
        instance.start()
        chain.wait_short(instance, 100)
        for number in (0, 63, 64, 129):
            chain.check(instance, ids[number], number, 30)
        cay.wait_until(lambda: chain.layers_on_disk(instance) == chain.layers_known(instance), 30, "nothing else is left")
    finally:
        instance.close()
