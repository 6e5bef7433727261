/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/signals.c - dispositions, timers and what waits in the queues. Everything is blocked until the frame of each thread says otherwise. */
#include "prog/cay-template/fork.h"

#define SIGKILL 9
#define SIGSTOP 19

static void set_actions(const struct image_process *p)
{
	for (int sig = 1; sig <= (int)IMAGE_SIGNALS; sig++) {
		if (sig != SIGKILL && sig != SIGSTOP)
			(void)fork_must(CALL4(__NR_rt_sigaction, sig, &p->actions[sig - 1], 0, 8),
				"set what a signal does");
	}
}

/* What our own helpers and zombies sent is not the program's. */
static void forget_waiting(void)
{
	uint64_t all = ~0ULL;
	int64_t zero[2] = { 0, 0 };

	while (CALL4(__NR_rt_sigtimedwait, &all, 0, zero, 8) > 0)
		;
}

static void set_itimers(const struct image_process *p)
{
	for (int i = 0; i < 3; i++) {
		uint64_t v[4] = { p->itimers[i].interval_us / 1000000,
			p->itimers[i].interval_us % 1000000, p->itimers[i].value_us / 1000000,
			p->itimers[i].value_us % 1000000 };

		/* one that has just gone off waits for its signal to be taken: then it starts anew */
		if (p->itimers[i].value_us == 0) {
			v[2] = v[0];
			v[3] = v[1];
		}
		if (p->itimers[i].value_us != 0 || p->itimers[i].interval_us != 0)
			(void)fork_must(CALL3(__NR_setitimer, i, v, 0), "set an interval timer");
	}
}

static void queue_shared(const struct image_process *p, uint32_t i)
{
	const struct image_siginfo *s =
		IMAGE_ROW(struct image_siginfo, TABLE_SIGINFOS, p->first_siginfo + i);

	(void)fork_must(CALL3(__NR_rt_sigqueueinfo, p->pid, *(const int *)s, s), "queue a signal");
}

void signals_become(const struct image_process *p)
{
	forget_waiting();
	set_actions(p);
	for (uint32_t i = 0; i < p->n_siginfos; i++)
		queue_shared(p, i);
	set_itimers(p);
}

static void queue(const struct image_thread *t, uint32_t i)
{
	const struct image_siginfo *s =
		IMAGE_ROW(struct image_siginfo, TABLE_SIGINFOS, t->first_siginfo + i);

	(void)fork_must(
		CALL4(__NR_rt_tgsigqueueinfo, CALL0(__NR_getpid), t->tid, *(const int *)s, s),
		"queue a signal for a thread");
}

void signals_queue(const struct image_thread *t)
{
	for (uint32_t i = 0; i < t->n_siginfos; i++)
		queue(t, i);
}

static int number(uint32_t row)
{
	return *(const int *)IMAGE_ROW(struct image_siginfo, TABLE_SIGINFOS, row);
}

void signals_queue_again(const struct image_process *p, int sig)
{
	const struct image_thread *t =
		IMAGE_ROW(struct image_thread, TABLE_THREADS, p->first_thread);

	for (uint32_t i = 0; i < p->n_siginfos; i++) {
		if (number(p->first_siginfo + i) == sig)
			queue_shared(p, i);
	}
	for (uint32_t i = 0; i < t->n_siginfos; i++) {
		if (number(t->first_siginfo + i) == sig)
			queue(t, i);
	}
}
