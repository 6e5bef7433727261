#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Compile the system call profiles of defs/seccomp/ to BPF: gen_filters.py CC OUT PROFILE...

Of each profile three filters: filter_NAME; told_NAME, which stands below it and has the kernel tell whoever listens of the calls of its `tell`, `ration`, `know` and `answer` lines; and learn_NAME, to be
taken instead of that, which also tells of those of its `learn` lines. Of two filters the kernel takes the answer that is less than the other: so filter_NAME says TRACE for
what is told, which without a tracer refuses it too, and allows what is learned.
A binary search over the call number, then the conditions of that call, all on the low 32 bits of an argument (the kernel truncates
ioctl numbers and flags the same way, so a bit above them must not change the verdict), but for a pointer that is to be `null`. The grammar is in default.profile.
"""
import errno
import os
import subprocess
import sys

# Calls newer than the headers of Linux 6.1 (the same number on every architecture since 424).
NEWER = {
    'cachestat': 451, 'fchmodat2': 452, 'map_shadow_stack': 453, 'futex_wake': 454, 'futex_wait': 455, 'futex_requeue': 456,
    'statmount': 457, 'listmount': 458, 'mseal': 462, 'setxattrat': 463, 'getxattrat': 464, 'listxattrat': 465,
    'removexattrat': 466, 'open_tree_attr': 467,
}
ALLOW, TRACE, NOTIFY, ERRNO, KILL = 0x7FFF0000, 0x7FF00000, 0x7FC00000, 0x00050000, 0x80000000
# the kernel does not look at the low half: whoever finds that nobody may listen allows the first, and refuses the second as if there was no such thing
LEARN, KNOW = NOTIFY | 1, NOTIFY | 2
LD, JEQ, JGE, JA, AND, RET = 0x20, 0x15, 0x35, 0x05, 0x54, 0x06
OFFSET_NR, OFFSET_ARCH, OFFSET_ARGS = 0, 4, 16
END = -1  # a jump to the end of the code of an alternative
ARCHES = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}
X32_BIT = 0x40000000
LOW, HIGH = 0xFFFFFFFF, 0xFFFFFFFF00000000  # masks of an argument: of its halves, the first where nothing is said


def call_numbers(cc):
    text = subprocess.run([*cc, '-E', '-dM', '-include', 'asm/unistd.h', '-x', 'c', '/dev/null'],
                          check=True, capture_output=True, text=True).stdout
    numbers = dict(NEWER)
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and words[1].startswith('__NR_') and words[2].isdigit():
            numbers[words[1][5:]] = int(words[2])
    return numbers


def parse_condition(text):
    """'arg1 & 0xF in 1,2' -> (1, 0xF, [1, 2], True); the last member tells whether a member of the set is wanted."""
    words = text.split()
    mask = LOW
    argument = int(words[0].removeprefix('arg'))
    if words[1] == '&':
        mask = int(words[2], 0)
        words = words[2:]
    if len(words) != 3 or words[1] not in ('==', '!=', 'in', 'notin'):
        raise ValueError(f'condition: {text}')
    values = sorted(int(v, 0) for v in words[2].split(','))
    return argument, mask, values, words[1] in ('==', 'in')


def parse_conditions(text):
    """All of an alternative; of `argN null` both halves."""
    found = []
    for one in text.split(' and '):
        if one.split()[1:] == ['null']:
            found += [(int(one.split()[0].removeprefix('arg')), half, [0], True) for half in (LOW, HIGH)]
        else:
            found.append(parse_condition(one))
    return found


class Profile:
    def __init__(self):
        self.rules = {}      # name -> ('ret', action) or ('if', [[condition, ...], ...])
        self.told = {}       # name -> [[condition, ...], ...]
        self.learned = {}    # the same
        self.rationed = {}   # the same
        self.known = set()
        self.answered = set()
        self.otherwise = {}  # name -> action

    def read(self, path):
        with open(path, encoding='utf-8') as f:
            for number, line in enumerate(f, 1):
                line = line.split('#')[0].strip()
                try:
                    if line:
                        self.line(line, os.path.dirname(path))
                except (ValueError, IndexError, AttributeError) as e:
                    sys.exit(f'{path}:{number}: {e}')

    def line(self, line, folder):
        verb, _, rest = line.partition(' ')
        if verb == 'include':
            self.read(os.path.join(folder, rest.strip()))
        elif verb == 'allow' and ' if ' in rest:
            name, _, conditions = rest.partition(' if ')
            kind, alternatives = self.rules.setdefault(name.strip(), ('if', []))
            if kind != 'if':
                raise ValueError(f'{name} has an unconditional rule already')
            alternatives.append(parse_conditions(conditions))
        elif verb in ('tell', 'learn', 'ration'):
            name, _, conditions = rest.partition(' if ')
            of = {'tell': self.told, 'learn': self.learned, 'ration': self.rationed}[verb]
            of.setdefault(name.strip(), []).append(parse_conditions(conditions))
        elif verb == 'know':
            self.known.update(rest.split())
        elif verb == 'answer':
            self.answered.update(rest.split())
        elif verb == 'allow':
            self.set_all(rest.split(), ALLOW)
        elif verb == 'errno':
            names = rest.split()
            self.set_all(names[1:], ERRNO | getattr(errno, names[0]))
        elif verb == 'otherwise':
            error, name = rest.split()
            self.otherwise[name] = ERRNO | (0 if error == 'SUCCESS' else getattr(errno, error))
        else:
            raise ValueError(f'unknown word {verb}')

    def set_all(self, names, action):
        for name in names:
            self.rules[name] = ('ret', action)
            self.told.pop(name, None)
            self.rationed.pop(name, None)


def compile_alternative(conditions, action=ALLOW):
    """Code that returns @action when all conditions hold and falls through to its end otherwise."""
    code = []
    for argument, mask, values, wanted in conditions:
        high = mask > LOW
        mask = mask >> 32 if high else mask
        code.append((LD, 0, 0, OFFSET_ARGS + 8 * argument + 4 * high))
        if mask != LOW:
            code.append((AND, 0, 0, mask))
        last = len(values) - 1
        for i, value in enumerate(values):
            if wanted:  # a hit jumps over the other tests, the last miss to the end
                code.append((JEQ, last - i, END if i == last else 0, value))
            else:
                code.append((JEQ, END, 0, value))
    code.append((RET, 0, 0, action))
    if len(code) > 255:
        raise ValueError('a conditional jump reaches 255')
    return [(op, *(len(code) - at - 1 if to == END else to for to in (jt, jf)), k) for at, (op, jt, jf, k) in enumerate(code)]


def compile_rule(rule, otherwise, told=()):
    kind, value = rule
    if kind == 'ret':
        return [(RET, 0, 0, value)]
    code = []
    for conditions in value:
        code += compile_alternative(conditions)
    for conditions in told:
        code += compile_alternative(conditions, TRACE)
    return code + [(RET, 0, 0, otherwise)]


def intervals(entries, default):
    """[(first number, code)] over all numbers: neighbours with the same code are one, and what is not listed has @default. Attaching a
    filter costs time for each instruction and for each step that the kernel needs to look at every call once, so both are kept small."""
    found = [(0, default)]
    for number, code in entries:
        for first, what in ((number, code), (number + 1, default)):
            if found[-1][0] == first:
                found.pop()
            if not found or found[-1][1] != what:
                found.append((first, what))
    return found


def compile_tree(found):
    """@found: intervals; the accumulator holds the call number, which lies in one of them."""
    if len(found) == 1:
        return list(found[0][1])
    middle = len(found) // 2
    left, right = compile_tree(found[:middle]), compile_tree(found[middle:])
    if len(left) <= 255:
        return [(JGE, len(left), 0, found[middle][0])] + left + right
    return [(JGE, 0, 1, found[middle][0]), (JA, 0, 0, len(left))] + left + right  # a conditional jump reaches 255


def compile_profile(profile, numbers, arch):
    default = ERRNO | errno.ENOSYS
    entries = []
    for name, rule in profile.rules.items():
        if name in numbers:  # else a call that this architecture never had
            entries.append((numbers[name], compile_rule(rule, profile.otherwise.get(name, ERRNO | errno.EPERM), profile.told.get(name, ()))))
    entries.sort(key=lambda e: e[0])
    return [(LD, 0, 0, OFFSET_ARCH), (JEQ, 1, 0, ARCHES[arch]), (RET, 0, 0, KILL),
            (LD, 0, 0, OFFSET_NR), (JGE, 0, 1, X32_BIT), (RET, 0, 0, default)] + compile_tree(intervals(entries, [(RET, 0, 0, default)]))


def compile_told(profile, numbers, arch, learns):
    """Whatever it does not name passes: the other filter judges that, foreign architectures too."""
    calls = {}
    for of, action in ((profile.told, NOTIFY), (profile.rationed, LEARN), (profile.learned if learns else {}, LEARN)):
        for name, alternatives in of.items():
            there = calls.setdefault(name, [])
            there.extend(one for one in ((conditions, action) for conditions in alternatives) if one not in there)
    code = []
    for names, action in ((profile.known, KNOW), (profile.answered, LEARN)):
        for name in sorted(names):
            code += [(JEQ, 0, 1, numbers[name]), (RET, 0, 0, action)]
    for name, alternatives in sorted(calls.items()):
        one = []
        for conditions, action in alternatives:
            one += compile_alternative(conditions, action)
        code += [(JEQ, 0, len(one) + 1, numbers[name]), *one, (RET, 0, 0, ALLOW)]
    return [(LD, 0, 0, OFFSET_ARCH), (JEQ, 1, 0, ARCHES[arch]), (RET, 0, 0, ALLOW), (LD, 0, 0, OFFSET_NR), *code, (RET, 0, 0, ALLOW)]


def told_error(profiles):
    """What the calls that are told answer: one error for all of them."""
    errors = {profile.otherwise[name] & 0xFFFF for profile in profiles for name in profile.told}
    if len(errors) != 1:
        sys.exit(f'the calls that are told answer {errors}, which should be one error')
    return errors.pop()


def write_filter(f, name, code):
    if len(code) > 4096:
        sys.exit(f'{name}: {len(code)} instructions, the kernel takes 4096')
    f.write(f'static const struct sock_filter {name}[] = {{\n')
    for op, jt, jf, k in code:
        f.write(f'\t{{ 0x{op:02x}, {jt}, {jf}, 0x{k:08x}u }},\n')
    f.write('};\n')


def main():
    cc, out, paths = sys.argv[1].split(), sys.argv[2], sys.argv[3:]
    numbers = call_numbers(cc)
    arch, profiles = os.uname().machine, {}
    for path in paths:
        profile = profiles[os.path.basename(path).split('.')[0]] = Profile()
        profile.read(path)
    with open(out, 'w', encoding='ascii') as f:
        f.write('/* generated by tools/gen_filters.py from defs/seccomp/ */\n#include <linux/filter.h>\n')
        f.write(f'enum {{ FILTER_TOLD_ERROR = {told_error(profiles.values())} }};\n')
        for name, profile in profiles.items():
            write_filter(f, f'filter_{name}', compile_profile(profile, numbers, arch))
            write_filter(f, f'told_{name}', compile_told(profile, numbers, arch, False))
            write_filter(f, f'learn_{name}', compile_told(profile, numbers, arch, True))


if __name__ == "__main__":
    main()
