/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_shares.c - what tasks have in common. A restored process's threads share ids, descriptors and directories, and processes share none of it; clone(2), unshare(2) and
 * calls of one thread that go past the C library can make it otherwise, which is refused. What the kernel does not tell (kcmp(2)) is taken to be as it mostly is.
 *
 * Any two processes may share something: who cloned both of them may have ended, or have executed another program since. The kernel has an order of what they have, so each is put
 * into its place among those before it, in log n calls of a microsecond each; those that look different need none.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/raw.h"

#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>

/* Return: 1 when @a and @b have the same @what, 0 when they have not, -1: the kernel does not tell. */
static int share(pid_t a, pid_t b, int what)
{
	int rc = raw_kcmp(a, b, what, 0, 0);

	return rc < 0 ? -1 : rc == 0;
}

static int check_thread(
	const struct dump_process *p, const struct tracee_thread *thread, struct err *err)
{
	if (thread->identity != p->tracee.threads[0].identity)
		return dump_refuse(
			p, err, "its thread %d has ids or capabilities of its own", thread->inner);
	if (share(p->tracee.host, thread->host, KCMP_FILES) == 0)
		return dump_refuse(p, err, "its thread %d has descriptors of its own (unshare(2))",
			thread->inner);
	if (share(p->tracee.host, thread->host, KCMP_FS) == 0)
		return dump_refuse(p, err,
			"its thread %d has a working directory, root directory and umask of its own (unshare(2))",
			thread->inner);
	return 0;
}

/* --- processes --- */

static int compare_numbers(unsigned long long a, unsigned long long b)
{
	return (a > b) - (a < b);
}

/* Where things are in the one memory that both would have. */
static int compare_memory(const struct dump_process *a, const struct dump_process *b)
{
	int rc = compare_numbers(a->stat.start_stack, b->stat.start_stack);

	if (rc == 0)
		rc = compare_numbers(a->stat.start_brk, b->stat.start_brk);
	return rc != 0 ? rc : compare_numbers(a->stat.start_code, b->stat.start_code);
}

/* Nothing is listed of those that run, and then they look the same. */
static int compare_descriptors(const struct dump_process *a, const struct dump_process *b)
{
	int rc = compare_numbers(a->n_fds, b->n_fds);

	return rc != 0 || a->n_fds == 0 ? rc : memcmp(a->fds, b->fds, a->n_fds * sizeof(*a->fds));
}

static int look_the_same(
	attr_unused const struct dump_process *a, attr_unused const struct dump_process *b)
{
	return 0;
}

static const struct shareable {
	int what;
	const char *name;
	/* as of qsort(3): not 0 for two that cannot share it */
	int (*compare)(const struct dump_process *a, const struct dump_process *b);
} shareable[DUMP_SHAREABLE] = { { KCMP_VM, "memory", compare_memory },
	{ KCMP_FILES, "descriptors", compare_descriptors },
	{ KCMP_FS, "working directory, root directory and umask", look_the_same } };

/* Return: 0: they have the same one; 1: @a comes first; 2: @b does; another: the kernel does not tell. */
static int order(
	const struct shareable *s, const struct dump_process *a, const struct dump_process *b)
{
	int rc = s->compare(a, b);

	return rc < 0 ? 1 : rc > 0 ? 2 : raw_kcmp(a->tracee.host, b->tracee.host, s->what, 0, 0);
}

/* Put @p into its place among those that were looked at before. Return: who shares it; NULL: nobody. */
static const struct dump_process *place(struct dump *d, struct dump_sharers *all,
	const struct shareable *s, const struct dump_process *p)
{
	size_t low = 0, high = all->n;
	uint32_t *rows;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct dump_process *other = d->processes + all->rows[middle];
		int rc = order(s, p, other);

		if (rc == 0)
			return other;
		if (rc != 1 && rc != 2)
			return NULL;
		if (rc == 1)
			high = middle;
		else
			low = middle + 1;
	}
	rows = realloc(all->rows, (all->n + 1) * sizeof(*rows));
	if (rows == NULL)
		abort();
	memmove(rows + low + 1, rows + low, (all->n - low) * sizeof(*rows));
	rows[low] = (uint32_t)(p - d->processes);
	*all = (struct dump_sharers){ .rows = rows, .n = all->n + 1 };
	return NULL;
}

/* What they have in common who have ended, and nobody has waited for yet, is nothing. Memory goes first. */
static bool has_ended(const struct dump_process *p)
{
	char c;

	return readlinkat(p->tracee.proc, "exe", &c, 1) < 0;
}

static bool is_younger(const struct dump_process *a, const struct dump_process *b)
{
	return a->stat.started != b->stat.started ? a->stat.started > b->stat.started
						  : a->tracee.inner > b->tracee.inner;
}

static int check_process(struct dump *d, const struct dump_process *p, size_t i, struct err *err)
{
	const struct dump_process *other = place(d, d->sharers + i, shareable + i, p), *younger;

	if (other == NULL || has_ended(other) || has_ended(p))
		return 0;
	younger = is_younger(p, other) ? p : other;
	return dump_refuse(younger, err, "it shares its %s with process %d (clone(2))",
		shareable[i].name, (younger == p ? other : p)->tracee.inner);
}

int dump_shares_check(struct dump *d, const struct dump_process *p, struct err *err)
{
	int rc = 0;

	for (size_t i = 1; rc == 0 && i < p->tracee.n_threads; i++)
		rc = check_thread(p, p->tracee.threads + i, err);
	for (size_t i = 0; rc == 0 && i < DUMP_SHAREABLE; i++)
		rc = check_process(d, p, i, err);
	return rc;
}

void dump_shares_fini(struct dump *d)
{
	for (size_t i = 0; i < DUMP_SHAREABLE; i++)
		free(d->sharers[i].rows);
}
