/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_order.c - whether the tree of processes can be made again, and in which order: plan.h over what was seen. */
#include "checkpoint/dump.h"

#include <stdlib.h>

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

/* All pids and tids, sorted; while the threads are still known, before the release. */
static void list_taken(struct dump *d)
{
	size_t n = 1, at = 0;
	int32_t *all;

	for (size_t i = 0; i < d->n; i++)
		n += d->processes[i].tracee.n_threads + 3;
	all = calloc(n, sizeof(*all));
	if (all == NULL)
		abort();
	for (size_t i = 0; i < d->n; i++) {
		const struct dump_process *p = &d->processes[i];

		all[at++] = p->tracee.inner;
		all[at++] = p->place.session;
		all[at++] = p->place.group;
		for (size_t j = 0; j < p->tracee.n_threads; j++)
			all[at++] = p->tracee.threads[j].inner;
	}
	qsort(all, at, sizeof(*all), by_number);
	d->taken = all;
	d->n_taken = at;
}

/* Does one thread act on its memory, from the first instant on, and on nobody else's? (A lock makes mremap() wait for pages before it says what it has moved.) */
static bool is_alone(const struct dump_process *p)
{
	return !p->tracee.zombie && p->out.n_threads == 1 && p->out.own_filters == 0 &&
	       !p->place.stopped && !p->locks && p->base == NULL && !p->inherited_from;
}

int dump_order(const struct dump *d, struct plan *head, struct plan_process **ret, struct err *err)
{
	struct plan_input *inputs = calloc(d->n + 1, sizeof(*inputs));
	int32_t unused[2];
	int rc;

	if (inputs == NULL)
		abort();
	for (size_t i = 0; i < d->n; i++) {
		inputs[i] = d->processes[i].place;
		inputs[i].alone = is_alone(&d->processes[i]);
		if (d->processes[i].base != NULL)
			inputs[i].base = d->processes[i].base->tracee.inner;
	}
	rc = plan_order(
		inputs, (uint32_t)d->n, d->taken, d->n_taken, ret, &head->n_processes, unused, err);
	for (uint32_t i = 0; rc == 0 && d->image.tables[TABLE_SYSV].n == 0 && i < head->n_processes;
		i++)
		(*ret)[i].flags |= PLAN_NO_SYSV;
	head->helper_pid = unused[0];
	head->opener_pid = unused[1];
	head->last_pid = d->n_taken > 0 ? d->taken[d->n_taken - 1] : 1;
	free(inputs);
	return rc;
}

int dump_order_check(struct dump *d, struct err *err)
{
	struct plan_process *processes = NULL;
	struct plan head;
	int rc;

	list_taken(d);
	rc = dump_order(d, &head, &processes, err);
	free(processes);
	return rc;
}
