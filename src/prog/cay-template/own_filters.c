/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/own_filters.c - system call filters that programs have made, above the sandbox's own. They may refuse whatever is still to be done: so each thread installs
 * them when it has left the restorer, by instructions that stay behind, and before the first of its program's (holding.c).
 */
#include "prog/cay-template/fork.h"

#include <asm-generic/errno-base.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>

#define TOLD      (0x59414321ULL << 32) /* ASKED_TOLD, in its place */
#define NO_TIMERS 1ULL                  /* ASKED_NO_TIMERS */

/* struct sock_fprog */
struct program {
	uint64_t n;
	uint64_t rules;
};

static const struct image_thread *thread_of(const struct image_process *p, uint32_t i)
{
	return IMAGE_ROW(struct image_thread, TABLE_THREADS, p->first_thread + i);
}

static const struct image_filter *filter_of(const struct image_thread *t, uint32_t i)
{
	return IMAGE_ROW(struct image_filter, TABLE_FILTERS, t->first_filter + i);
}

/* What all threads have is installed by the first, for all. */
static uint32_t first_own(const struct image_process *p, uint32_t thread)
{
	return thread == 0 ? 0 : p->shared_filters;
}

uint64_t filters_size(const struct image_process *p)
{
	uint64_t size = 0;

	if (p->own_filters == 0)
		return 0;
	for (uint32_t t = 0; t < p->n_threads; t++) {
		for (uint32_t i = first_own(p, t); i < thread_of(p, t)->n_filters; i++)
			size += sizeof(struct residue_call) + sizeof(struct program) +
				filter_of(thread_of(p, t), i)->code.length;
	}
	return size;
}

/* What a keeper that learns filters would have to ask before, of who could not be asked behind it (checkpoint/asker.h). */
static uint64_t told_of(const struct image_process *p, bool of_all)
{
	if (fork.order.learns == 0)
		return 0;
	/* a thread without it could change that */
	if (!of_all && p->n_threads > 1)
		return TOLD;
	for (int i = 0; i < 3; i++) {
		if (p->itimers[i].value_us != 0 || p->itimers[i].interval_us != 0)
			return TOLD;
	}
	return TOLD | NO_TIMERS;
}

/* What all have is one chain for all, as it was: a later filter for all threads (TSYNC) takes only those whose filters are its own. */
static struct residue_call call_of(const struct image_process *p, const struct image_filter *f,
	const struct program *program, bool for_all)
{
	const bool others = for_all && p->n_threads > 1; /* for whom prctl(2) does nothing */
	uint64_t flags = (f->log != 0 ? SECCOMP_FILTER_FLAG_LOG : 0) |
			 (others ? SECCOMP_FILTER_FLAG_TSYNC : 0);

	if (f->install == INSTALL_NOT && fork.order.learns != 0)
		fork_fail("install its system call filters, which refuse that", -EPERM);
	if (f->install == INSTALL_PRCTL && fork.order.learns != 0 && !others)
		return (struct residue_call){ __NR_prctl,
			{ PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (uint64_t)program },
			told_of(p, for_all) };
	return (struct residue_call){ __NR_seccomp,
		{ SECCOMP_SET_MODE_FILTER, flags, (uint64_t)program }, told_of(p, for_all) };
}

static uint32_t count(const struct image_process *p, uint32_t thread)
{
	uint32_t n = thread_of(p, thread)->n_filters, first = first_own(p, thread);

	return p->own_filters != 0 && n > first ? n - first : 0;
}

void filters_lay(const struct image_process *p, char *at)
{
	struct residue_call *call = (struct residue_call *)at;
	uint32_t n = 0;

	for (uint32_t t = 0; t < p->n_threads; t++)
		n += count(p, t);
	at += n * sizeof(*call);
	for (uint32_t t = 0; t < p->n_threads; t++) {
		uint32_t first = first_own(p, t);

		for (uint32_t i = first; i < first + count(p, t); i++) {
			const struct image_filter *f = filter_of(thread_of(p, t), i);
			struct program *program = (struct program *)at;

			at += sizeof(*program);
			*program = (struct program){ f->code.length / 8, (uint64_t)at };
			memcpy(at, image_bytes(f->code), f->code.length);
			at += f->code.length;
			*call++ = call_of(p, f, program, i < p->shared_filters);
		}
	}
}

/* Rootless the helper may trace only who is open to be looked at. No program runs yet. */
void filters_hold(const struct image_process *p, uint64_t calls)
{
	struct fork_shared *s = fork_shared();
	long dumpable = CALL5(__NR_prctl, PR_GET_DUMPABLE, 0, 0, 0, 0);

	if (p->own_filters == 0 && p->stopped == IMAGE_RUNS)
		return;
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
	helper_lock();
	for (uint32_t i = 0; i < p->n_threads; i++) {
		s->asked_restart = thread_of(p, i)->restart;
		s->asked_calls = calls;
		s->asked_n_calls = count(p, i);
		calls += count(p, i) * sizeof(struct residue_call);
		helper_ask(HELPER_HOLD, thread_of(p, i)->tid);
	}
	helper_unlock();
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, dumpable == 1, 0, 0, 0);
}
