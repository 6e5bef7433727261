#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What is not used: calls that overflow, hide errors, sleep or run a shell; descriptors that leak into children; left-over notes;
words and paths that have no place in the repository."""

import re

import tree

CALLS = {
    "strcpy strcat sprintf vsprintf gets strncpy": "may overflow or not terminate: str_copy(), struct buf",
    "strtok": "not reentrant: strcspn(), strtok_r()",
    "atoi atol atoll": "hides errors: str_to_u64()",
    "system popen": "runs a shell: fork and execve",
    "alloca": "unbounded stack: malloc, or a fixed size",
    "sleep usleep nanosleep clock_nanosleep": "wait for the event, with a deadline",
    "signal": "a handler: sigaction(), or a signalfd (SIG_IGN and SIG_DFL are fine)",
    "tmpnam tempnam mktemp": "guessable names: mkostemp()",
    "asctime ctime localtime gmtime": "not reentrant: clock_text()",
    "pipe dup accept epoll_create inotify_init eventfd_create": "leaks into children: the variant with O_CLOEXEC",
    "assert": "gone in a build with NDEBUG: BUG_ON()",
    "getenv secure_getenv": "settings are read in one place of each program",
}
BANNED = {name: why for names, why in CALLS.items() for name in names.split()}

# Who may: settings that tests use, the places where programs read their environment.
ALLOWED = {
    "getenv": re.compile(r"src/(base/(ablate|directories|fault|log)\.c|prog/|io/|sys/(features?|kernel|probe)\w*\.c|sandbox/doctor\w*\.c|store/job\w*\.c|"
                         r"api/(config|settings|server|paths)\w*\.c)"),
    "secure_getenv": re.compile(r"src/"),
}
# Calls that make a descriptor, and the flag that each must name in its arguments.
CLOEXEC = {
    "open": "O_CLOEXEC", "openat": "O_CLOEXEC", "socket": "SOCK_CLOEXEC", "socketpair": "SOCK_CLOEXEC", "accept4": "SOCK_CLOEXEC",
    "pipe2": "O_CLOEXEC", "dup3": "O_CLOEXEC", "epoll_create1": "EPOLL_CLOEXEC", "eventfd": "EFD_CLOEXEC",
    "signalfd": "SFD_CLOEXEC", "timerfd_create": "TFD_CLOEXEC", "inotify_init1": "IN_CLOEXEC", "memfd_create": "MFD_CLOEXEC",
    "mkostemp": "O_CLOEXEC",
}
# cay-init has no libc: it makes bare system calls of its own.
FREESTANDING = re.compile(r"src/prog/cay-init/")
NOTES = re.compile(r"\b(TODO|FIXME|XXX|HACK|WIP)\b")
# Spelled in pieces, so that this file passes its own check.
WORDS = re.compile("|".join(["cla" + "ude", "anthro" + "pic", "co-auth" + "ored-by", r"\b(?:g" + r"pt|chat" + r"g" + r"pt|co" + r"pilot)\b", r"(?<![\w.])/wo" + r"rk/",
                             r"as an a" + r"i\b", r"(?:agent|assistant|model) wr" + "ote"]), re.I)
# Public names of coding agents are the subject of these (examples of what runs inside; files whose change is reported).
SUBJECT = re.compile(r"^(README\.md|examples/|docs/|src/store/apply|src/prog/cay/|defs/|tests/|SECURITY\.md)")
PRODUCT = re.compile("cla" + r"ude([ _.-]?code)?(\.md|/)?|co" + "pilot", re.I)
# A model API that sandboxes may be allowed to reach, by its host and the name of its preset; the variable and headers that its clients take, and where npm has them.
API = re.compile("(?:api\\.|llm-)anthro" + r"pic(?:\.com)?|anthro" + r"pic_(?:api_key|auth_token)|@anthro" + r"pic-ai/|\banthro" + r"pic-(?:beta|version)\b|API of Anthro" + "pic", re.I)

# Its client packages are the subject of these.
CLIENTS = re.compile(r"^tests/(programs/test_client_packages|lib/model)\w*\.py$")
CLIENT = re.compile("anthro" + "pic", re.I)


def arguments(source, start):
    depth = 0
    for i in range(start, min(len(source), start + 2000)):
        depth += {"(": 1, ")": -1}.get(source[i], 0)
        if depth == 0:
            return source[start:i + 1]
    return source[start:]


def check_c(path):
    source = tree.text(path)
    bare = tree.blank(source)
    found = []
    for match in re.finditer(r"(?<![\w.>])(\w+)\s*\(", bare):
        name = match[1]
        where = f"{path}:{tree.line_of(bare, match.start())}"
        line_start = bare.rfind("\n", 0, match.start()) + 1
        if re.match(r"#\s*define\s", bare[line_start:match.start()]):
            continue
        if name == "signal" and re.search(r"SIG_(IGN|DFL)", arguments(bare, match.end() - 1)):
            continue
        if name in BANNED and not (name in ALLOWED and ALLOWED[name].match(path)):
            found.append(f"{where}: {name}(): {BANNED[name]}")
        if name in CLOEXEC and not FREESTANDING.match(path):
            given = arguments(bare, match.end() - 1)
            before = bare[max(line_start, match.start() - 30):match.start()]
            is_declaration = re.search(r"\b(int|static|long)\s+\**$", before)
            if CLOEXEC[name] not in given and "flags" not in given and not is_declaration:
                found.append(f"{where}: {name}() without {CLOEXEC[name]}")
    return found


def check_text(path):
    found = []
    for number, line in enumerate(tree.text(path).split("\n"), 1):
        if NOTES.search(line) and not path.startswith("tools/check_banned"):
            found.append(f"{path}:{number}: a note to do something later: {line.strip()[:80]}")
        match = WORDS.search((CLIENT if CLIENTS.match(path) else API).sub("", line))
        if match and not (SUBJECT.match(path) and PRODUCT.fullmatch(match[0])):
            found.append(f"{path}:{number}: '{match[0]}' has no place in the repository")
        if line.endswith((" ", "\t")) and path.endswith((".c", ".h", ".py", ".sh", ".build", ".def", ".yaml")):
            found.append(f"{path}:{number}: blanks at the end of the line")
    return found


def check():
    found = []
    for path in tree.files():
        if path.startswith("third_party/") or path == "LICENSE":
            continue
        if path.endswith((".c", ".h")) and path.startswith("src/"):
            found += check_c(path)
        if path.endswith((".c", ".h", ".py", ".sh", ".md", ".build", ".def", ".yaml", ".txt", ".service", ".conf", "Makefile")) or \
                path.startswith("tools/"):
            found += check_text(path)
    return found


if __name__ == "__main__":
    import lint
    lint.report(check())
