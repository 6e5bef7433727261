/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-spawn/start.h - from a request to a process: a keeper, a job or a template, each a child of ours.
 *
 * In root mode keepers and jobs are clones of one of their kind that has begun already (sys/seed.h), a child of ours in our own group. Templates, and all that is rootless, where a user
 * namespace comes before the program, are executed.
 */
#ifndef CAY_PROG_SPAWN_START_H
#define CAY_PROG_SPAWN_START_H

#include "sys/spawn_request.h"

/** enum start_kind - as spawn_event.uid_map says it. */
enum start_kind { START_ROOT = 0, START_RANGE = 1, START_SINGLE = 2 };

/** struct start_mode - @first_subuid, @first_subgid: of START_RANGE. */
struct start_mode {
	enum start_kind kind;
	uint32_t first_subuid, first_subgid;
};

/** start_init() - open the programs and remember the environment for them. Once. Return: 0 or -errno. */
int start_init(const struct start_mode *as) attr_must_use;

/**
 * start_program() - start what @r asks for.
 * @socket_fd: its descriptor 3; borrowed. @group_fd: directory of the group that it is cloned into, negative: none, it stays in ours; borrowed.
 *
 * Return: its pid, when it has been executed or cloned, or -errno. Context: blocks until then.
 */
int start_program(const struct spawn_request *r, int socket_fd, int group_fd) attr_must_use;

#endif
