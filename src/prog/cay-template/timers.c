/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/timers.c - POSIX timers, when all threads are there: some tell one of them. Everything is blocked: what goes off now waits. */
#include "prog/cay-template/fork.h"

static int create(const struct image_timer *t)
{
	struct {
		uint64_t value;
		int32_t signal, notify, tid, pad[11];
	} event = { .value = t->value, .signal = t->signal, .notify = t->notify, .tid = t->tid };
	int id = -1;

	(void)fork_must(CALL3(__NR_timer_create, t->clock, &event, &id), "make a POSIX timer");
	return id;
}

void timers_become(const struct image_process *p)
{
	for (uint32_t i = 0; i < p->n_timers; i++) {
		const struct image_timer *t =
			IMAGE_ROW(struct image_timer, TABLE_TIMERS, p->first_timer + i);
		uint64_t set[4] = { t->interval_s, t->interval_ns, t->value_s, t->value_ns };
		int id;

		/* the kernel counts upwards from 0, as do we */
		while ((id = create(t)) < t->id)
			(void)CALL1(__NR_timer_delete, id);
		if (id != t->id)
			fork_fail("make a POSIX timer of its number", -17 /* EEXIST */);
		(void)fork_must(CALL4(__NR_timer_settime, id, 0, set, 0), "set a POSIX timer");
	}
}
