/* SPDX-License-Identifier: Apache-2.0 */
/* Random histories of processes, planned and played: everybody gets back to where it was, or is refused by the rule that it breaks. And plans that do not bring them there. */
#include "checkpoint/plan.h"
#include "checkpoint/plan_rehearsal.h"
#include "t.h"

#include <stdlib.h>
#include <string.h>

#define HISTORIES 4000
#define EVENTS    40
#define LIVES_MAX 48

/* A process, by the rules of the kernel. */
struct life {
	int32_t pid, parent, session, group;
	bool takes, ended, reaped;
};

struct history {
	struct life lives[LIVES_MAX];
	uint32_t n;
	uint32_t random;
};

static uint32_t draw(struct history *h, uint32_t below)
{
	h->random = h->random * 1103515245U + 12345U;
	return (h->random >> 16) % below;
}

static struct life *by_pid(struct history *h, int32_t pid)
{
	for (uint32_t i = 0; i < h->n; i++) {
		if (h->lives[i].pid == pid)
			return &h->lives[i];
	}
	return NULL;
}

static void fork_one(struct history *h, uint32_t by)
{
	struct life *child = &h->lives[h->n];

	if (h->n == LIVES_MAX)
		return;
	*child = h->lives[by];
	child->pid = 10 + (int32_t)h->n++;
	child->parent = h->lives[by].pid;
	child->takes = false;
}

static bool is_group(const struct history *h, int32_t group)
{
	for (uint32_t i = 0; i < h->n; i++) {
		if (h->lives[i].group == group && !h->lives[i].reaped)
			return true;
	}
	return false;
}

/* Nobody may who leads a group, or has left one that is still there. */
static void lead_session(const struct history *h, struct life *l)
{
	if (!is_group(h, l->pid))
		l->session = l->group = l->pid;
}

static void lead_group(struct life *l)
{
	if (l->session != l->pid)
		l->group = l->pid;
}

static void join_somebody(struct history *h, struct life *l)
{
	const struct life *other = &h->lives[draw(h, h->n)];

	if (l->session != l->pid && !other->reaped && other->session == l->session)
		l->group = other->group;
}

static int32_t heir(struct history *h, const struct life *l)
{
	const struct life *above = by_pid(h, l->parent);

	while (above != NULL && !above->takes)
		above = by_pid(h, above->parent);
	return above == NULL ? 1 : above->pid;
}

/* The first one is from outside, and does not end. */
static void end(struct history *h, struct life *l)
{
	int32_t to = heir(h, l);

	if (l->parent == 0)
		return;
	l->ended = true;
	l->reaped = l->parent == 1;
	for (uint32_t i = 0; i < h->n; i++) {
		if (h->lives[i].parent != l->pid || h->lives[i].reaped)
			continue;
		h->lives[i].parent = to;
		h->lives[i].reaped = h->lives[i].ended && to == 1;
	}
}

static void reap_one(struct history *h, const struct life *l)
{
	uint32_t i = 0;

	while (i < h->n && !(h->lives[i].parent == l->pid && h->lives[i].ended))
		i++;
	if (i < h->n)
		h->lives[i].reaped = true;
}

static void event(struct history *h)
{
	uint32_t who = draw(h, h->n), what = draw(h, 100);
	struct life *l = &h->lives[who];

	if (l->ended)
		return;
	if (what < 42)
		fork_one(h, who);
	else if (what < 56)
		lead_session(h, l);
	else if (what < 64)
		lead_group(l);
	else if (what < 70)
		join_somebody(h, l);
	else if (what < 74)
		l->takes = true;
	else if (what < 94)
		end(h, l);
	else
		reap_one(h, l);
}

static struct history history(uint32_t seed)
{
	struct history h = { .n = 1, .random = seed * 2654435761U + 17 };

	h.lives[0] = (struct life){ .pid = 9, .session = 9, .group = 9 };
	for (int i = 0; i < EVENTS; i++)
		event(&h);
	return h;
}

static int by_number(const void *a, const void *b)
{
	return *(const int32_t *)a - *(const int32_t *)b;
}

/* Return: of plan_order(). */
static int plan(const struct history *h, struct err *err)
{
	struct plan_input in[LIVES_MAX] = { 0 };
	int32_t taken[3 * LIVES_MAX], unused[2];
	struct plan_process *list = NULL;
	uint32_t n = 0, n_list;
	size_t n_taken = 0;
	int rc;

	for (uint32_t i = 0; i < h->n; i++) {
		const struct life *l = &h->lives[i];

		if (l->reaped)
			continue;
		in[n++] = (struct plan_input){ .pid = l->pid,
			.parent = l->parent,
			.session = l->session,
			.group = l->group,
			.zombie = l->ended };
		taken[n_taken++] = l->pid;
		taken[n_taken++] = l->session;
		taken[n_taken++] = l->group;
	}
	qsort(taken, n_taken, sizeof(*taken), by_number);
	rc = plan_order(in, n, taken, n_taken, &list, &n_list, unused, err);
	free(list);
	return rc;
}

TEST(random_histories_end_where_they_were)
{
	uint32_t refused = 0;

	for (uint32_t seed = 0; seed < HISTORIES; seed++) {
		struct history h = history(seed);
		struct err err = { 0 };

		if (plan(&h, &err) == 0)
			continue;
		refused++;
		if (strstr(err.msg, "nobody can put it into") == NULL)
			t_fail("history %u: %s", seed, err.msg);
	}
	check(refused < HISTORIES / 4);
}

/* --- plans that do not bring them there --- */

enum { REAPER, SESSION, HELPER, ORPHAN, COUNT };

/* A subreaper, the ended leader of a session below it, whom nobody has waited for, and the orphan of that session. */
static void make_plan(struct plan_process all[COUNT])
{
	const struct plan_process right[COUNT] = {
		[REAPER] = { .pid = 9, .parent = IMAGE_NONE, .flags = PLAN_LEADER | PLAN_ADOPTS },
		[SESSION] = { .pid = 10, .parent = REAPER, .flags = PLAN_LEADER | PLAN_ZOMBIE },
		[HELPER] = { .pid = 30,
			.parent = SESSION,
			.group = 10,
			.flags = PLAN_HELPER | PLAN_LATE },
		[ORPHAN] = { .pid = 12, .parent = HELPER, .group = 10 },
	};

	memcpy(all, right, sizeof(right));
}

TEST(who_is_adopted_from_an_ended_session_gets_there)
{
	struct plan_process all[COUNT];
	struct plan_place at[COUNT];
	uint32_t who;

	make_plan(all);
	check(plan_rehearse(all, COUNT, at, &who) == NULL);
	check_int(at[ORPHAN].parent, 9);
	check_int(at[ORPHAN].session, 10);
	check_int(at[ORPHAN].group, 10);
	check_int(at[SESSION].parent, 9);
	check_int(at[REAPER].parent, 0);
}

TEST(who_is_adopted_by_nobody_goes_to_init)
{
	struct plan_process all[COUNT];
	struct plan_place at[COUNT];
	uint32_t who;

	make_plan(all);
	all[REAPER].flags &= ~(uint32_t)PLAN_ADOPTS;
	check(plan_rehearse(all, COUNT, at, &who) == NULL);
	check_int(at[ORPHAN].parent, 1);
	make_plan(all);
	all[HELPER].flags &= ~(uint32_t)PLAN_LATE;
	check(plan_rehearse(all, COUNT, at, &who) == NULL);
	check_int(at[ORPHAN].parent, 1);
}

TEST(who_joins_a_group_that_is_not_there_is_named)
{
	struct plan_process all[COUNT];
	struct plan_place at[COUNT];
	uint32_t who;

	make_plan(all);
	all[ORPHAN].group = 9; /* of another session */
	check(plan_rehearse(all, COUNT, at, &who) != NULL);
	check_int(who, ORPHAN);
	all[ORPHAN].group = 12;
	all[HELPER].group = 12;
	check(plan_rehearse(all, COUNT, at, &who) != NULL);
	check_int(who, HELPER);
}
