/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/plan_steps.h"

#define STEP(name) (1U << STEP_##name)

/* Of who has made @p. */
static uint32_t steps_for_child(const struct plan_process *p)
{
	if (plan_is_helper(p, 0))
		return STEP(AWAIT_EARLY) | STEP(SETTLED);
	if (plan_is_helper(p, PLAN_LATE))
		return STEP(AWAIT_LATE) | STEP(ADOPTED);
	return (p->flags & PLAN_ZOMBIE) != 0 ? STEP(AWAIT_ZOMBIES) : 0;
}

/* An early helper waits for nobody: what it has made is PID 1's, which reaps. A zombie may have helpers (it leads a session with orphans in it), and outlives them. */
static uint32_t steps_for_itself(const struct plan_process *p, uint32_t for_children)
{
	if (plan_is_helper(p, 0))
		return STEP(END);
	return for_children | ((p->flags & PLAN_ADOPTS) != 0 ? STEP(ADOPT) : 0) |
	       (plan_is_helper(p, PLAN_LATE) ? STEP(AWAIT_ADOPTING) : 0) |
	       ((p->flags & (PLAN_HELPER | PLAN_ZOMBIE)) != 0 ? STEP(END) : 0);
}

void plan_steps(const struct plan_process *all, uint32_t n, uint16_t *ret)
{
	for (uint32_t i = 0; i < n; i++)
		ret[i] = 0;
	for (uint32_t i = 0; i < n; i++) {
		if (all[i].parent != IMAGE_NONE)
			ret[all[i].parent] |= (uint16_t)steps_for_child(&all[i]);
	}
	for (uint32_t i = 0; i < n; i++)
		ret[i] = (uint16_t)steps_for_itself(&all[i], ret[i]);
}
