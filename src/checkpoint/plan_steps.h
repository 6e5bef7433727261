/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/plan_steps.h - what each process of a plan still does when all have joined their groups: who ends, who waits for whom, who tells whom. Pure, usable without libc.
 *
 * Said once, for those who do it (prog/cay-template/fork_tree.c) and for who plays it on paper before anything has ended (plan_rehearsal.h).
 */
#ifndef CAY_CHECKPOINT_PLAN_STEPS_H
#define CAY_CHECKPOINT_PLAN_STEPS_H

#include "checkpoint/image.h"

/** enum plan_step - in this order; each process takes those that it has. */
enum plan_step {
	STEP_AWAIT_EARLY,    /* until its helpers that are not late have ended, */
	STEP_SETTLED,        /* and say so */
	STEP_ADOPT,          /* when all have said that: become a subreaper, and say so */
	STEP_AWAIT_ADOPTING, /* until all have said that */
	STEP_AWAIT_LATE,     /* until its late helpers have ended, */
	STEP_ADOPTED,        /* and say so */
	STEP_AWAIT_ZOMBIES, /* until its children have ended that are to be zombies: then their signals are here, to be forgotten */
	STEP_END,
	STEP_COUNT
};

/** plan_steps() - @ret: @n sets of enum plan_step, bit by bit, of the @n processes @all. */
void plan_steps(const struct plan_process *all, uint32_t n, uint16_t *ret);

/** plan_has_step() - is @step in a set of them? */
static inline bool plan_has_step(uint16_t steps, enum plan_step step)
{
	return (steps >> step & 1) != 0;
}

/** plan_is_helper() - is @p a helper that ends early (@late 0) or late (%PLAN_LATE)? */
static inline bool plan_is_helper(const struct plan_process *p, uint32_t late)
{
	return (p->flags & PLAN_HELPER) != 0 && (p->flags & PLAN_LATE) == late;
}

#endif
