/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/own_filters.c - system call filters that programs have made, above the sandbox's own. Suspended by the helper from before the first is installed until
 * the thread has left: they may refuse whatever is still to be done.
 */
#include "prog/cay-template/fork.h"

#include <linux/prctl.h>
#include <linux/seccomp.h>

static uint32_t turn;      /* 1: every thread may install its own */
static uint32_t installed; /* threads that have */

static void install(const struct image_thread *t, uint32_t i, uint32_t flags)
{
	const struct image_filter *f =
		IMAGE_ROW(struct image_filter, TABLE_FILTERS, t->first_filter + i);
	struct {
		uint64_t n;
		uint64_t rules;
	} program = { f->code.length / 8, (uint64_t)image_bytes(f->code) };

	if (f->log != 0)
		flags |= SECCOMP_FILTER_FLAG_LOG;
	/* above 0: the thread that could not follow */
	if (fork_must(CALL3(__NR_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program),
		    "install a system call filter of the program") != 0)
		fork_fail("install a system call filter in all threads", -3 /* ESRCH */);
}

static void install_own(const struct image_process *p, const struct image_thread *t)
{
	for (uint32_t i = p->shared_filters; i < t->n_filters; i++)
		install(t, i, 0);
}

static const struct image_thread *thread_of(const struct image_process *p, uint32_t i)
{
	return IMAGE_ROW(struct image_thread, TABLE_THREADS, p->first_thread + i);
}

void filters_wait(const struct image_process *p, const struct image_thread *t)
{
	if (p->own_filters == 0)
		return;
	while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) == 0)
		futex_wait(&turn, 0);
	install_own(p, t);
	(void)__atomic_add_fetch(&installed, 1, __ATOMIC_SEQ_CST);
	futex_wake(&installed);
}

/* Rootless the helper may trace only who is open to be looked at. No program runs yet. */
void filters_hold(const struct image_process *p)
{
	enum helper_task task = p->own_filters != 0 ? HELPER_SUSPEND : HELPER_HOLD;
	long dumpable = CALL5(__NR_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);

	if (p->own_filters == 0 && p->stopped == IMAGE_RUNS)
		return;
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	helper_lock();
	for (uint32_t i = 0; i < p->n_threads; i++) {
		fork_shared()->asked_restart = thread_of(p, i)->restart;
		helper_ask(task, thread_of(p, i)->tid);
	}
	helper_unlock();
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, dumpable == 1, 0, 0, 0);
}

/* What all have is one chain for all, as it was: a later filter for all threads (TSYNC) takes only those whose filters are its own. */
void filters_become(const struct image_process *p)
{
	uint32_t n;

	if (p->own_filters == 0)
		return;
	for (uint32_t i = 0; i < p->shared_filters; i++)
		install(thread_of(p, 0), i, SECCOMP_FILTER_FLAG_TSYNC);
	__atomic_store_n(&turn, 1, __ATOMIC_SEQ_CST);
	futex_wake(&turn);
	install_own(p, thread_of(p, 0));
	while ((n = __atomic_load_n(&installed, __ATOMIC_SEQ_CST)) < p->n_threads - 1)
		futex_wait(&installed, n);
}
