/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: redcell - the attacker. One static program, one attack per case id, run as the payload of a real sandbox.
 *
 * `redcell CASE [key=value…]` performs the attack and prints one JSON line {id, outcome, errno, detail, proof}. The attacker knows
 * everything (paths, pids, ports of the canaries come as key=value), and it is not believed: what it reports as blocked is checked
 * from outside by the oracles of tests/attack (canary.py, posture.py, tracer.py). With start=1 it waits for a byte of its standard
 * input, so that a tracer sees all of it; with hold=1 it keeps everything it got open until that ends, so that the oracles can look
 * at it. Every loop is bounded, so that an attack that is not stopped does not hurt the machine.
 */
#ifndef CAY_TESTS_REDCELL_H
#define CAY_TESTS_REDCELL_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

enum outcome { BLOCKED, UNREACHABLE, LEAKED, ESCAPED };

#define MAX_ARGS 64

/** struct run - one attack: what it was told, what came of it. The worst outcome of all attempts is the outcome. */
struct run {
	const char *id;
	char *const *argv; /* key=value… */
	int argc;
	enum outcome outcome;
	int error; /* errno of the first refused attempt */
	int attempts;
	char detail[4096];
	char proof
		[16384]; /* what was read that should not have been: the runner compares it with what it hid */
};

typedef void (*attack_fn)(struct run *r);

/** struct attack - one case: its id in the catalogue and the function that performs it */
struct attack {
	const char *id;
	const char *what;
	attack_fn fn;
};

extern const struct attack attacks_fs[], attacks_proc[], attacks_ns[], attacks_dev[],
	attacks_kernel[], attacks_socket[], attacks_process[], attacks_resource[],
	attacks_uncharged[], attacks_stall[];

/** arg() - value of key=value on the command line. Return: the value, or @fallback. */
const char *arg(const struct run *r, const char *key, const char *fallback);

/** arg_number() - as arg(), as a number. */
long arg_number(const struct run *r, const char *key, long fallback);

/** attempt() - record the result of a system call: < 0 is blocked by errno, anything else is an escape. Return: @rc. */
long attempt(struct run *r, const char *what, long rc);

/** note() - record an outcome; the worst one stays. */
void note(struct run *r, enum outcome outcome, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/** remark() - add to the detail without changing the outcome. */
void remark(struct run *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** prove() - add text that was read to the proof; the runner decides whether it is secret. */
void prove(struct run *r, const char *text, size_t n);

/** prove_file() - open and read a file; what was read is proof. Return: bytes read, or -1 with errno. */
ssize_t prove_file(struct run *r, const char *path);

/** only_zeros() - is each line of @text "NAME 0", as in a file of counters that is made up? */
bool only_zeros(const char *text);

/** in_child() - run @fn in a forked child that is killed after 10 s; r->… of the child comes back. Return: wait status. */
int in_child(struct run *r, attack_fn fn);

/** on_host() - is this the initial pid namespace? Attacks that would hurt the machine refuse then. */
bool on_host(void);

/** status_number() - a number of /proc/self/status (hexadecimal when @base is 16), -1 when it is not there. */
long long status_number(const char *key, int base);

#endif
