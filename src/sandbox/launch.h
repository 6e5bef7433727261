/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/launch.h - from a fresh child of the starter to the user's program.
 *
 * The child has joined every namespace but U2 when it begins. It reads files of the sandbox only (passwd, group), after all privileges over
 * anything outside are gone.
 */
#ifndef CAY_SANDBOX_LAUNCH_H
#define CAY_SANDBOX_LAUNCH_H

#include "base/err.h"
#include "sandbox/spec.h"

#define LAUNCH_TEXT_MAX (1U << 20)

/** struct launch_request - what to run; @text holds cwd, user, then argv, then env, each NUL-terminated. */
struct launch_request {
	uint32_t argc, envc;
	uint32_t text_size;
	uint8_t profile;   /* enum spec_profile */
	uint8_t tty;       /* stdin is a terminal: make it the controlling one */
	uint8_t single_id; /* only id 0 exists */
	uint8_t padding;
	uint64_t files; /* RLIMIT_NOFILE */
};

/** struct launch_reply - the starter's answer. */
struct launch_reply {
	int32_t pid;    /* in the keeper's pid namespace; 0 when no process came to be */
	struct err err; /* ERR_NONE when the program runs */
};

/** launch_limits() - resource limits that all programs inherit; once, in the starter. 0 or -errno. */
int launch_limits(uint64_t files) attr_must_use;

/**
 * launch_child() - become the program; returns only on failure, with @err filled.
 * @text: the request's text.
 * @u2: payload's user namespace.
 * @stdio: the three descriptors that become 0, 1, 2.
 * @keep: one further descriptor (close-on-exec) that stays open until exec: the error pipe.
 */
void launch_child(const struct launch_request *request, char *text, int u2, const int stdio[3],
	int keep, struct err *err);

#endif
