/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/stops.c - what a parent knows of its stopped children. They are stopped anew (holding.c), so the kernel tells it anew: what it had heard of it hears here once
 * more, while it is not a program yet, and the SIGCHLD of it is no program's.
 */
#include "prog/cay-template/fork.h"

#define SIGCHLD    17
#define P_PID      1
#define NO_HANG    1
#define WSTOPPED   2
#define WALL       0x40000000
#define SIGNAL_SET 8 /* bytes of a set of signals */

static const struct image_process *imaged(uint32_t process)
{
	return IMAGE_ROW(struct image_process, TABLE_PROCESSES, plan_processes()[process].image);
}

void stops_tell(uint32_t process)
{
	uint32_t *stopped = &fork_shared()->lives[process].stopped;

	__atomic_store_n(stopped, 1, __ATOMIC_SEQ_CST);
	futex_wake(stopped);
}

static bool is_stopped_child(uint32_t process, uint32_t parent)
{
	const struct plan_process *p = &plan_processes()[process];

	return p->parent == parent && (p->flags & PLAN_STOPPED) != 0;
}

bool stops_concern(uint32_t process)
{
	for (uint32_t i = process + 1; i < plan->n_processes; i++) {
		if (is_stopped_child(i, process))
			return true;
	}
	return false;
}

uint32_t stops_parents(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < plan->n_processes; i++)
		n += plan_processes()[i].image != IMAGE_NONE && stops_concern(i);
	return n;
}

static void wait_stopped(uint32_t process)
{
	uint32_t *stopped = &fork_shared()->lives[process].stopped;

	while (__atomic_load_n(stopped, __ATOMIC_SEQ_CST) == 0) {
		if (__atomic_load_n(&fork_shared()->failed, __ATOMIC_SEQ_CST) != 0)
			bare_exit(125);
		futex_wait(stopped, 0);
	}
}

/* Everything is blocked, and nothing else sends one: no program runs yet. What waited in the source waits again. */
static void forget_signals(const struct image_process *p)
{
	uint64_t child = 1ULL << (SIGCHLD - 1);
	int64_t zero[2] = { 0, 0 };

	while (CALL4(__NR_rt_sigtimedwait, &child, 0, zero, SIGNAL_SET) > 0)
		;
	signals_queue_again(p, SIGCHLD);
}

static uint32_t index_of(const struct image_process *p)
{
	uint32_t i = 0;

	while (plan_processes()[i].pid != p->pid)
		i++;
	return i;
}

bool stops_hears(const struct image_process *p)
{
	return stops_concern(index_of(p));
}

void stops_hear(const struct image_process *p)
{
	const struct plan_process *all = plan_processes();
	const uint32_t own = index_of(p);
	int info[32];

	for (uint32_t i = own + 1; i < plan->n_processes; i++) {
		if (!is_stopped_child(i, own))
			continue;
		wait_stopped(i);
		if (imaged(i)->stopped == IMAGE_STOPPED_HEARD)
			(void)CALL5(
				__NR_waitid, P_PID, all[i].pid, info, WSTOPPED | NO_HANG | WALL, 0);
	}
	forget_signals(p);
	threads_withdraw();
	fork_pass_stage(STAGE_HEARD);
}
