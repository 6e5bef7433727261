/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/timers.c - POSIX timers, when all threads are there: some tell one of them. Everything is blocked: what goes off now waits.
 *
 * The kernel counts their numbers upwards from 0 and never gives one twice, so low ones are reached by making and deleting all before them. From Linux 6.15 on it can be told to take
 * the number where it puts it otherwise.
 */
#include "prog/cay-template/fork.h"

#define RESTORE_IDS 77 /* PR_TIMER_CREATE_RESTORE_IDS */
#define COUNTED     64 /* numbers up to this one are reached by counting where others could be, too */

static bool given; /* the kernel takes the numbers that it is given */

/* Of @t, or the next after the last one. */
static int create(const struct image_timer *t)
{
	struct {
		uint64_t value;
		int32_t signal, notify, tid, pad[11];
	} event = { .value = t->value, .signal = t->signal, .notify = t->notify, .tid = t->tid };
	int id = t->id;

	(void)fork_must(CALL3(__NR_timer_create, t->clock, &event, &id), "make a POSIX timer");
	return id;
}

static const struct image_timer *timer(const struct image_process *p, uint32_t i)
{
	return IMAGE_ROW(struct image_timer, TABLE_TIMERS, p->first_timer + i);
}

void timers_prepare(const struct image_process *p)
{
	int last = p->n_timers == 0 ? 0 : timer(p, p->n_timers - 1)->id;

	given = last > COUNTED && fork.order.counts == 0 &&
		CALL5(__NR_prctl, RESTORE_IDS, 1, 0, 0, 0) == 0;
	if (!given && last > IMAGE_TIMERS_COUNTED)
		fork_fail(
			"make a POSIX timer with its number, which wants Linux 6.15", -EOPNOTSUPP);
}

void timers_become(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_timers; i++) {
		const struct image_timer *t = timer(p, i);
		uint64_t set[4] = { t->interval_s, t->interval_ns, t->value_s, t->value_ns };
		int id;

		while ((id = create(t)) < t->id)
			(void)CALL1(__NR_timer_delete, id);
		if (id != t->id)
			fork_fail("make a POSIX timer of its number", -EEXIST);
		(void)fork_must(CALL4(__NR_timer_settime, id, 0, set, 0), "set a POSIX timer");
	}
	if (given)
		(void)fork_must(CALL5(__NR_prctl, RESTORE_IDS, 0, 0, 0, 0),
			"let the kernel number POSIX timers again");
}
