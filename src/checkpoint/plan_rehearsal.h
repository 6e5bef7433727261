/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/plan_rehearsal.h - a plan played on paper, by the rules of the kernel: does everybody come to an end, and where? Pure.
 *
 * A suspension ends the processes, and a rewind those that ran: by then it must be known that the others can be made. What is played is what the restorer does
 * (prog/cay-template/fork_tree.c): who is cloned into which session, joins which group, ends when, and who gets the children of those.
 */
#ifndef CAY_CHECKPOINT_PLAN_REHEARSAL_H
#define CAY_CHECKPOINT_PLAN_REHEARSAL_H

#include "base/attr.h"
#include "checkpoint/image.h"

/** struct plan_place - where a process is when all have taken their steps, by pids. */
struct plan_place {
	int32_t parent; /* 0 = outside, 1 = init */
	int32_t session, group;
};

/**
 * plan_rehearse() - @all: @n processes, parents first. @ret: @n places. @ret_who: index of the process of which the answer is.
 *
 * Time: as the square of @n at most.
 * Return: NULL, or what cannot be done.
 */
const char *plan_rehearse(const struct plan_process *all, uint32_t n, struct plan_place *ret,
	uint32_t *ret_who) attr_must_use;

#endif
