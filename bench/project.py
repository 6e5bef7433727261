# SPDX-License-Identifier: Apache-2.0
"""The inputs of the file work, the same on every machine: a tree as a tar file, a git repository, and a C project with a Makefile."""

import io
import os
import random
import subprocess
import tarfile


def words(rng, n):
    return " ".join(rng.choice(("anchor", "barrel", "cedar", "delta", "ember", "fjord", "gravel", "harbor")) + str(rng.randrange(1000)) for _ in range(n))


def make_tar(path, files=4000):
    """@files small files in 100 directories, fixed owner and time."""
    rng = random.Random(1)
    with tarfile.open(path, "w") as tar:
        for i in range(files):
            data = words(rng, rng.randrange(20, 600)).encode()
            info = tarfile.TarInfo(f"tree/d{i % 100:02}/f{i}.txt")
            info.size, info.mtime, info.mode = len(data), 1700000000, 0o644
            tar.addfile(info, io.BytesIO(data))


def make_project(path, modules=10):
    """@modules C files of thirty functions each, and a main that calls them all."""
    rng = random.Random(2)
    os.makedirs(path)

    def write(name, text):
        with open(os.path.join(path, name), "w", encoding="ascii") as f:
            f.write(text)
    for m in range(modules):
        body = ['#include "all.h"', "#include <stdio.h>", "#include <string.h>", "#include <stdlib.h>"]
        for n in range(30):
            a, c = rng.randrange(1, 1000), rng.randrange(2, 100)
            body.append(f"int m{m}_f{n}(int x)\n{{\n\tchar text[64];\n\tint sum = {a};\n\n\tfor (int i = 0; i < x % {c} + 3; i++)\n"
                        f"\t\tsum += i * x ^ {a};\n\tsnprintf(text, sizeof(text), \"%d\", sum);\n\treturn (int)strlen(text) + sum;\n}}")
        body.append(f"int m{m}(int x)\n{{\n\treturn {' + '.join(f'm{m}_f{n}(x)' for n in range(30))};\n}}")
        write(f"m{m}.c", "\n".join(body) + "\n")
    write("all.h", "".join(f"int m{m}(int x);\n" for m in range(modules)))
    write("main.c", '#include "all.h"\n#include <stdio.h>\nint main(void)\n{\n\tprintf("%d\\n", '
          + " + ".join(f"m{m}({m})" for m in range(modules)) + ");\n\treturn 0;\n}\n")
    write("Makefile", "OBJECTS = main.o " + " ".join(f"m{m}.o" for m in range(modules))
          + "\nCFLAGS = -O1\nprogram: $(OBJECTS)\n\t$(CC) -o $@ $(OBJECTS)\n$(OBJECTS): all.h\n")


def make_repository(path, tar):
    """The tree of @tar as twenty commits."""
    env = {**os.environ, "GIT_AUTHOR_NAME": "bench", "GIT_AUTHOR_EMAIL": "bench@example.org", "GIT_COMMITTER_NAME": "bench",
           "GIT_COMMITTER_EMAIL": "bench@example.org", "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000",
           "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}

    def git(*args):
        subprocess.run(["git", "-C", path, *args], env=env, check=True, stdout=subprocess.DEVNULL)
    os.makedirs(path)
    git("init", "-q", "-b", "main")
    subprocess.run(["tar", "xf", tar, "-C", path], check=True)
    for part in range(20):
        git("add", *[f"tree/d{d:02}" for d in range(part * 5, part * 5 + 5)])
        git("commit", "-q", "-m", f"part {part}")
    git("gc", "-q")


def make_inputs(directory):
    """Make tree.tar, project/ and repo/ in @directory."""
    os.makedirs(directory)
    tar = os.path.join(directory, "tree.tar")
    make_tar(tar)
    make_project(os.path.join(directory, "project"))
    make_repository(os.path.join(directory, "repo"), tar)
