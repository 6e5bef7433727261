# SPDX-License-Identifier: Apache-2.0
"""The compiled system call filters say what the text of defs/seccomp/ says: every number, with arguments chosen around each condition."""

import errno
import itertools
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))

import gen_filters as gen
from lib.case import equal

QUICK = True
FOLDER = os.path.join(os.path.dirname(gen.__file__), "..", "defs", "seccomp")
ARCH = os.uname().machine
DENIED = gen.ERRNO | errno.ENOSYS


def run(code, number, arch, args):
    """Classic BPF on struct seccomp_data."""
    a, at = 0, 0
    while True:
        op, jt, jf, k = code[at]
        at += 1
        if op == gen.LD:
            a = {0: number, 4: arch}[k] if k < 16 else args[(k - 16) // 8] >> (k - 16) % 8 * 8 & 0xFFFFFFFF
        elif op == gen.AND:
            a &= k
        elif op == gen.JA:
            at += k
        elif op == gen.RET:
            return k
        else:
            at += jt if (a == k if op == gen.JEQ else a >= k) else jf


def meant(profile, name, args):
    """The verdict of the text itself."""
    kind, what = profile.rules.get(name, ("ret", DENIED))
    if kind == "ret":
        return what
    for conditions in what:
        if all((args[n] & mask in values) == wanted for n, mask, values, wanted in conditions):
            return gen.ALLOW
    if any(all((args[n] & mask in values) == wanted for n, mask, values, wanted in conditions) for conditions in profile.told.get(name, ())):
        return gen.TRACE
    return profile.otherwise.get(name, gen.ERRNO | errno.EPERM)


def holds(alternatives, args):
    return any(all((args[n] & mask in values) == wanted for n, mask, values, wanted in conditions) for conditions in alternatives)


def wished(conditions, rng):
    """A few argument lists that meet @conditions, as far as they say which values they want."""
    want = {n: values for n, _, values, wanted in conditions if wanted}
    return [[rng.choice(want.get(n, [0, 1])) for n in range(6)] for _ in range(4)]


def interesting(profile, name, rng):
    """Argument lists: each value that a condition names, its neighbours, each single bit of its mask, and bits above 32; and what each condition wants, together."""
    kind, what = profile.rules.get(name, ("ret", 0))
    values = [{0, 1, 0xFFFFFFFF, 1 << 32} for _ in range(6)]
    alternatives = [*(what if kind == "if" else []), *profile.told.get(name, ()), *profile.learned.get(name, ()), *profile.rationed.get(name, ())]
    for n, mask, wanted, _ in itertools.chain(*alternatives):
        for v in wanted:
            values[n] |= {v, v + 1, max(0, v - 1), v | 1 << 32, v ^ (~mask & 0xFFFFFFFF)} | {v ^ 1 << bit for bit in range(32)}
    values = [sorted(v) for v in values]
    return [[rng.choice(v) for v in values] for _ in range(400 if kind == "if" else 3)] + [one for a in alternatives for one in wished(a, rng)]


def profiles():
    numbers = gen.call_numbers(["cc"])
    for name in ("default", "strict", "debug"):
        profile = gen.Profile()
        profile.read(os.path.join(FOLDER, name + ".profile"))
        yield name, profile, numbers, gen.compile_profile(profile, numbers, ARCH)


def test_whoever_listens_is_told_of_what_is_refused_alone():
    """The lower filter speaks up for exactly those calls for which the upper one says TRACE, and those that are to be known or answered, and for no other architecture: of both answers the kernel takes the smaller one."""
    rng, told, rationed, answered = random.Random(8), 0, set(), set()
    for name, profile, numbers, code in profiles():
        names, lower = {n: call for call, n in numbers.items()}, gen.compile_told(profile, numbers, ARCH, False)
        for number in range(0, 700):
            for args in interesting(profile, names.get(number), rng):
                said, upper = run(lower, number, gen.ARCHES[ARCH], args), run(code, number, gen.ARCHES[ARCH], args)
                known = gen.KNOW if names.get(number) in profile.known else gen.ALLOW
                if names.get(number) in profile.answered:
                    known = gen.LEARN
                    answered.add((upper, names[number]))
                if holds(profile.rationed.get(names.get(number), ()), args):
                    known = gen.LEARN
                    rationed.add((upper, names[number]))
                equal(said, gen.NOTIFY if upper == gen.TRACE else known, f"{name}: {number} {[hex(a) for a in args]}")
                equal(run(lower, number | gen.X32_BIT, gen.ARCHES[ARCH], args), gen.ALLOW)
                equal(run(lower, number, 0x40000003, args), gen.ALLOW)
                told += said == gen.NOTIFY
    assert told > 10, told
    # where nobody may listen the kernel answers
    equal(answered, {(gen.ALLOW, "sysinfo")})
    # what is rationed goes on when it is granted: it must be allowed, or refused by what the kernel heeds before
    equal({upper & 0xFFFF0000 for upper, _ in rationed} - {gen.ALLOW, gen.ERRNO}, set())
    equal({name for upper, name in rationed if upper == gen.ALLOW}, {"socket", "setsockopt", "seccomp", "prctl"})


def test_whoever_starts_it_has_room_for_what_is_told():
    """A machine where nobody may listen copies it into an array (CONFINE_TOLD_MAX), and attaching it is part of every start."""
    for name, profile, numbers, _ in profiles():
        for learns in (False, True):
            length = len(gen.compile_told(profile, numbers, ARCH, learns))
            assert length < 256, (name, learns, length)


def test_who_learns_is_told_of_what_is_learned_besides():
    rng, learned = random.Random(9), set()
    for name, profile, numbers, _ in profiles():
        names = {n: call for call, n in numbers.items()}
        lower, learns = (gen.compile_told(profile, numbers, ARCH, learns) for learns in (False, True))
        for number in range(0, 700):
            call = names.get(number)
            for args in interesting(profile, call, rng):
                want = run(lower, number, gen.ARCHES[ARCH], args)
                if any(all((args[n] & mask in values) == wanted for n, mask, values, wanted in conditions) for conditions in profile.learned.get(call, ())):
                    want = gen.LEARN
                    learned |= {call}
                equal(run(learns, number, gen.ARCHES[ARCH], args), want, f"{name}: {call or number} {[hex(a) for a in args]}")
                equal(run(learns, number, 0x40000003, args), gen.ALLOW)
    equal(learned, {"prctl", "seccomp"})


def test_every_call_gets_the_verdict_of_the_text():
    rng, looked, allowed = random.Random(7), 0, set()
    for name, profile, numbers, code in profiles():
        names = {n: call for call, n in numbers.items()}
        for number in range(0, 700):
            call = names.get(number)
            for args in interesting(profile, call, rng):
                got = run(code, number, gen.ARCHES[ARCH], args)
                equal(got, meant(profile, call, args), f"{name}: {call or number} {[hex(a) for a in args]}")
                looked += 1
                allowed |= {call} if got == gen.ALLOW else set()
    assert looked > 10000 and {"read", "clone", "ioctl", "socket", "sendto"} <= allowed, (looked, len(allowed))
    assert not allowed & {"mount", "bpf", "clone3", "io_uring_setup", "setns", "kexec_load", "init_module"}, allowed


def test_numbers_beyond_all_calls_are_unknown():
    for name, _, _, code in profiles():
        for number in (700, 100000, gen.X32_BIT - 1, gen.X32_BIT, gen.X32_BIT + 1, 0x80000000, 0xFFFFFFFF):
            equal(run(code, number, gen.ARCHES[ARCH], [0] * 6), DENIED, f"{name}: {number}")


def test_another_architecture_is_killed():
    for _, _, _, code in profiles():
        for arch in (0x40000003, 0, gen.ARCHES["aarch64" if ARCH == "x86_64" else "x86_64"]):
            for number in (0, 1, 59, gen.X32_BIT):
                equal(run(code, number, arch, [0] * 6), gen.KILL)


def test_the_filter_is_small():
    """Attaching it is part of every exec and costs a quarter of a microsecond an instruction."""
    for name, _, _, code in profiles():
        assert len(code) < 600, (name, len(code))
