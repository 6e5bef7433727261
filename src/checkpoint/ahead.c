/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/ahead.c - see the header. Both threads take the next block that nobody has taken. */
#include "checkpoint/ahead.h"
#include "checkpoint/alive.h"
#include "checkpoint/keep.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define BLOCK (2ULL << 20)

int ahead_add(struct ahead *a, const struct ahead_block *all)
{
	size_t more = (size_t)((all->length + BLOCK - 1) / BLOCK);
	struct ahead_block *list = realloc(a->blocks, (a->n + more) * sizeof(*list));

	if (list == NULL)
		return -ENOMEM;
	a->blocks = list;
	for (uint64_t at = 0; at < all->length; at += BLOCK) {
		struct ahead_block *b = &list[a->n++];

		*b = *all;
		b->from += at;
		b->at += at;
		b->to += at;
		b->length = all->length - at < BLOCK ? all->length - at : BLOCK;
	}
	return 0;
}

/* Out of a process: the pages of it that are known. */
static int copy_known(const struct ahead_block *b)
{
	uint64_t at = b->at;
	struct page_run run;
	int rc = 0;

	while (rc == 0 && page_set_next(&b->there, NULL, &at, b->at + b->length, &run))
		rc = keep_copy(b->host, b->from + (run.start - b->at), b->to + (run.start - b->at),
			run.end - run.start);
	return rc;
}

static bool copy_next(struct ahead *a)
{
	size_t i = atomic_fetch_add(&a->next, 1);
	struct ahead_block *b = &a->blocks[i];

	if (i >= a->n)
		return false;
	b->rc = b->lent == NULL ? copy_known(b)
				: keep_lent(b->lent, b->fd, b->from, b->to, b->length, &b->there);
	return true;
}

static void wait_for(sem_t *event)
{
	while (sem_wait(event) < 0 && errno == EINTR)
		;
}

static void *run(void *list)
{
	struct ahead *a = list;

	wait_for(&a->begin);
	while (copy_next(a))
		;
	atomic_store(&a->ended, true);
	(void)sem_post(&a->end);
	return NULL;
}

void ahead_start(struct ahead *a)
{
	pthread_attr_t detached;
	pthread_t thread;
	sigset_t all, before;

	if (a->n == 0 || sem_init(&a->begin, 0, 0) < 0 || sem_init(&a->end, 0, 0) < 0)
		return;
	(void)pthread_attr_init(&detached);
	(void)pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	(void)sigfillset(&all);
	(void)sigdelset(&all, SIGBUS); /* keep_lent() */
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	a->started = pthread_create(&thread, &detached, run, a) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&detached);
}

void ahead_go(struct ahead *a)
{
	a->gone = true;
	if (a->started)
		(void)sem_post(&a->begin);
}

/* Whoever was torn out of it may come again. */
static void wait_end(struct ahead *a)
{
	while (a->started && !atomic_load(&a->ended))
		wait_for(&a->end);
}

void ahead_finish(struct ahead *a)
{
	if (a->finished)
		return;
	while (copy_next(a))
		alive();
	wait_end(a);
	a->finished = true;
}

bool ahead_holds(const struct ahead *a, const char *to, uint64_t length)
{
	uint64_t held = 0;

	for (size_t i = 0; i < a->n; i++) {
		const struct ahead_block *b = &a->blocks[i];

		if (b->to >= to && b->to < to + length && b->rc == 0)
			held += b->length;
	}
	return a->finished && held == length;
}

void ahead_fini(struct ahead *a)
{
	atomic_store(&a->next, a->n);
	if (a->started && !a->gone)
		ahead_go(a);
	wait_end(a);
	free(a->blocks);
	*a = (struct ahead){ 0 };
}
