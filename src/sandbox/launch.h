/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/launch.h - from a fresh child of the starter to the user's program, in two steps with a wait between them.
 *
 *   launch_prepare()  all that is the same for every program of the sandbox: session, payload's namespace, capabilities, system call filter
 *   launch_become()   what only the request says: standard streams, user, directory, program
 *
 * The child has joined every namespace but U2 when it begins. It reads files of the sandbox only (passwd, group), after all privileges over
 * anything outside are gone. While it waits it has the payload's namespace and filter, but neither its ids nor memory or descriptors that the payload could look into.
 */
#ifndef CAY_SANDBOX_LAUNCH_H
#define CAY_SANDBOX_LAUNCH_H

#include "base/err.h"
#include "sandbox/spec.h"

#define LAUNCH_TEXT_MAX (1U << 20)

/** struct launch_place - what all programs of a sandbox have in common. */
struct launch_place {
	uint64_t files;    /* RLIMIT_NOFILE; 0: the default */
	uint8_t profile;   /* enum spec_profile */
	uint8_t single_id; /* only id 0 exists */
	uint8_t tells;     /* the keeper may be told of refused system calls: filter_tells() */
	uint8_t learns;    /* and is of filters: filter_learns() */
	uint8_t padding[4];
};

/** struct launch_request - what to run; behind it come @text_size bytes: cwd, user, then argv, then env, each NUL-terminated. */
struct launch_request {
	uint32_t argc, envc;
	uint32_t text_size;
	uint32_t tty;  /* stdin is a terminal: make it the controlling one */
	uint32_t held; /* execute nothing before a word has come through the socket */
};

/** launch_limits() - resource limits that all programs inherit; once, in the starter. 0 or -errno. */
int launch_limits(uint64_t files) attr_must_use;

/**
 * launch_prepare() - do all that needs no request.
 * @u2: payload's user namespace.
 * @keep: one descriptor (close-on-exec, above 2) that stays open until the program is executed; all others are closed.
 *
 * Return: 0 or an error.
 */
int launch_prepare(
	const struct launch_place *place, int u2, int keep, struct err *err) attr_must_use;

/**
 * launch_become() - become the program; returns only on failure, with @err filled.
 * @text: the request's text.
 * @stdio: the three descriptors that become 0, 1, 2.
 * @keep: as for launch_prepare(); through it comes the word for which a request that is held waits. Its end is no such word.
 */
void launch_become(const struct launch_place *place, const struct launch_request *request,
	char *text, const int stdio[3], int keep, struct err *err);

#endif
