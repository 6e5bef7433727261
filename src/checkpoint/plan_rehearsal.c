/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/plan_rehearsal.h"
#include "checkpoint/plan_steps.h"

#include <stdlib.h>

/* Parents that are in no plan. */
#define OUTSIDE IMAGE_NONE
#define INIT    (IMAGE_NONE - 1)

/* One process, as far as it is. */
struct actor {
	uint32_t parent; /* index, or one of those */
	int32_t session, group;
	int32_t born_session, born_group;
	enum plan_step next;
	bool takes; /* is a subreaper */
	bool ended;
};

/* How often each step has been taken, and how often it is to be. */
struct stage {
	uint32_t arrived, expected;
};

struct rehearsal {
	const struct plan_process *all;
	uint32_t n;
	struct actor *actors;
	uint16_t *steps;
	uint32_t left; /* a helper that nobody reaps, or IMAGE_NONE */
	struct stage stages[STEP_COUNT];
};

/* --- clones, sessions, groups --- */

static void be_born(struct rehearsal *r, uint32_t i)
{
	const struct plan_process *p = &r->all[i];
	const struct actor *by = p->parent == IMAGE_NONE ? NULL : &r->actors[p->parent];
	bool old = (p->flags & PLAN_OLD_SESSION) != 0;
	struct actor *a = &r->actors[i];

	a->parent = p->parent;
	a->born_session = by == NULL ? 0 : old ? by->born_session : by->session;
	a->born_group = by == NULL ? 0 : old ? by->born_group : by->group;
	a->session = (p->flags & PLAN_LEADER) != 0 ? p->pid : a->born_session;
	a->group = (p->flags & (PLAN_LEADER | PLAN_GROUP)) != 0 ? p->pid : a->born_group;
}

static bool is_joining(const struct plan_process *p)
{
	return p->group != 0 && (p->flags & (PLAN_LEADER | PLAN_GROUP)) == 0;
}

/* Whoever leads a group stays in it, and is there while others join. */
static bool has_group(const struct rehearsal *r, int32_t group, int32_t session)
{
	uint32_t i = 0;

	while (i < r->n && r->all[i].pid != group)
		i++;
	return i < r->n && r->actors[i].group == group && r->actors[i].session == session &&
	       !is_joining(&r->all[i]);
}

/* Return: did it, or had it nothing to join? */
static bool join(struct rehearsal *r, uint32_t i)
{
	const struct plan_process *p = &r->all[i];

	if (!is_joining(p))
		return true;
	if (!has_group(r, p->group, r->actors[i].session))
		return false;
	r->actors[i].group = p->group;
	return true;
}

/* --- steps --- */

static void take_part(struct rehearsal *r)
{
	for (uint32_t i = 0; i < r->n; i++)
		for (int step = 0; step < STEP_COUNT; step++)
			r->stages[step].expected += plan_has_step(r->steps[i], step);
}

static bool is_over(const struct rehearsal *r, enum plan_step step)
{
	return r->stages[step].arrived == r->stages[step].expected;
}

static bool is_awaited(const struct plan_process *p, enum plan_step step)
{
	if (step == STEP_AWAIT_ZOMBIES)
		return (p->flags & PLAN_ZOMBIE) != 0;
	return plan_is_helper(p, step == STEP_AWAIT_LATE ? PLAN_LATE : 0);
}

static bool have_ended(const struct rehearsal *r, uint32_t parent, enum plan_step step)
{
	for (uint32_t i = parent + 1; i < r->n; i++) {
		if (r->all[i].parent == parent && is_awaited(&r->all[i], step) &&
			!r->actors[i].ended)
			return false;
	}
	return true;
}

/* The next above it that takes them; PID 1. What is below a process from outside ends there. */
static uint32_t taker(const struct rehearsal *r, uint32_t i)
{
	uint32_t above = r->actors[i].parent;

	while (above < INIT && !r->actors[above].takes)
		above = r->actors[above].parent;
	return above < INIT ? above : INIT;
}

static void end(struct rehearsal *r, uint32_t i)
{
	uint32_t heir = taker(r, i), parent = r->actors[i].parent;

	r->actors[i].ended = true;
	if ((r->all[i].flags & PLAN_HELPER) != 0 && parent != INIT && parent != r->all[i].parent)
		r->left = i;
	for (uint32_t j = i + 1; j < r->n; j++) {
		if (r->actors[j].parent == i)
			r->actors[j].parent = heir;
	}
}

/* Return: can it be taken now? */
static bool may_take(const struct rehearsal *r, uint32_t i, enum plan_step step)
{
	switch (step) {
	case STEP_AWAIT_EARLY:
	case STEP_AWAIT_LATE:
	case STEP_AWAIT_ZOMBIES:
		return have_ended(r, i, step);
	case STEP_ADOPT:
		return is_over(r, STEP_SETTLED);
	case STEP_AWAIT_ADOPTING:
		return is_over(r, STEP_SETTLED) && is_over(r, STEP_ADOPT);
	case STEP_SETTLED:
	case STEP_ADOPTED:
	case STEP_END:
	case STEP_COUNT:
	default:
		return true;
	}
}

/* Return: has it come a step further? Its end is none. */
static bool act(struct rehearsal *r, uint32_t i)
{
	struct actor *a = &r->actors[i];
	bool moved = false;

	while (a->next < STEP_END) {
		if (plan_has_step(r->steps[i], a->next)) {
			if (!may_take(r, i, a->next))
				break;
			r->stages[a->next].arrived++;
			a->takes |= a->next == STEP_ADOPT;
		}
		a->next++;
		moved = true;
	}
	return moved;
}

static bool act_all(struct rehearsal *r)
{
	bool moved = false;

	for (uint32_t i = 0; i < r->n; i++)
		moved |= act(r, i);
	return moved;
}

/* Return: was there somebody who has nothing else to do? */
static bool end_all(struct rehearsal *r)
{
	bool any = false;

	for (uint32_t i = 0; i < r->n; i++) {
		if (r->actors[i].ended || r->actors[i].next != STEP_END ||
			!plan_has_step(r->steps[i], STEP_END))
			continue;
		end(r, i);
		any = true;
	}
	return any;
}

/* Whoever ends does so when nobody else can go on: nobody may rely on it who does not wait for it. Return: who waits for ever, or IMAGE_NONE. */
static uint32_t play(struct rehearsal *r)
{
	uint32_t i = 0;

	while (act_all(r) || end_all(r))
		;
	while (i < r->n && r->actors[i].next == STEP_END)
		i++;
	return i < r->n ? i : IMAGE_NONE;
}

static struct plan_place place(const struct rehearsal *r, uint32_t i)
{
	const struct actor *a = &r->actors[i];

	return (struct plan_place){ .parent = a->parent == OUTSIDE ? 0
					      : a->parent == INIT  ? 1
								   : r->all[a->parent].pid,
		.session = a->session,
		.group = a->group };
}

const char *plan_rehearse(
	const struct plan_process *all, uint32_t n, struct plan_place *ret, uint32_t *ret_who)
{
	struct rehearsal r = { .all = all, .n = n, .left = IMAGE_NONE };
	const char *wrong = NULL;

	r.actors = calloc((size_t)n + 1, sizeof(*r.actors));
	r.steps = calloc((size_t)n + 1, sizeof(*r.steps));
	if (r.actors == NULL || r.steps == NULL)
		abort();
	plan_steps(all, n, r.steps);
	take_part(&r);
	for (uint32_t i = 0; i < n; i++)
		be_born(&r, i);
	for (*ret_who = 0; *ret_who < n && join(&r, *ret_who);)
		++*ret_who;
	if (*ret_who < n)
		wrong = "the process group that it joins is not there";
	else if ((*ret_who = play(&r)) != IMAGE_NONE)
		wrong = "it would wait for others for ever";
	else if ((*ret_who = r.left) != IMAGE_NONE)
		wrong = "somebody who does not know it would be its parent";
	for (uint32_t i = 0; i < n; i++)
		ret[i] = place(&r, i);
	free(r.actors);
	free(r.steps);
	return wrong;
}
