/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/life.c - who of a fork dies before it is restored. Deaths are seen by parents, and most of these are being restored themselves; but the kernel goes
 * through the robust list of whoever ends, even by SIGKILL: in ours is one lock that only its owner holds, so that it is marked (FUTEX_OWNER_DIED), and as "operation under
 * way" a word that nobody holds, so that who waits for it is woken.
 */
#include "prog/cay-template/fork.h"

#include <linux/futex.h>

#define LIFE_LOST     FUTEX_OWNER_DIED
#define ROBUST_LENGTH 24 /* struct robust_list_head */
#define MONOTONIC     1

static struct fork_life *own; /* of this process */

static uint64_t shared_size(void)
{
	uint64_t n =
		sizeof(struct fork_shared) + (plan->n_processes + 2ULL) * sizeof(struct fork_life);

	return (n + BARE_PAGE - 1) & ~(BARE_PAGE - 1);
}

uint32_t life_helper(void)
{
	return plan->n_processes;
}

uint32_t life_opener(void)
{
	return plan->n_processes + 1;
}

long lives_make(void)
{
	return bare_map(WINDOW_SHARED, shared_size(), 3, 1 /* SHARED */);
}

void life_begin(uint32_t index, int32_t pid, uint32_t *bell)
{
	struct fork_life *l = &fork_shared()->lives[index];

	/* (what its creator says of it may be there already) */
	l->list = (uint64_t)&l->next;
	l->offset = (int64_t)((uint64_t)&l->owner - (uint64_t)&l->next);
	l->next = (uint64_t)&l->list;
	l->pid = pid;
	l->pending = (uint64_t)bell - (uint64_t)l->offset;
	own = l;
	__atomic_store_n(&l->owner, (uint32_t)pid, __ATOMIC_SEQ_CST);
	(void)fork_must(CALL2(__NR_set_robust_list, &l->list, ROBUST_LENGTH), "begin a life");
}

void life_end(uint64_t robust_list)
{
	__atomic_store_n(&own->owner, 0, __ATOMIC_SEQ_CST);
	(void)CALL2(__NR_set_robust_list, robust_list, ROBUST_LENGTH);
}

bool life_is_lost(uint32_t index)
{
	const uint32_t *owner = &fork_shared()->lives[index].owner;

	return (__atomic_load_n(owner, __ATOMIC_SEQ_CST) & LIFE_LOST) != 0;
}

uint32_t lives_lost(int32_t *ret_pid)
{
	uint32_t n = 0;

	if (ret_pid != NULL && life_is_lost(life_opener()))
		*ret_pid = plan->opener_pid;
	for (uint32_t i = 0; i < plan->n_processes; i++) {
		if (!life_is_lost(i))
			continue;
		n++;
		if (ret_pid != NULL)
			*ret_pid = fork_shared()->lives[i].pid;
	}
	return n;
}

static struct futex_waitv waiter(const uint32_t *word, uint32_t value)
{
	return (struct futex_waitv){ .val = value, .uaddr = (uint64_t)word, .flags = FUTEX_32 };
}

void lives_wait(uint32_t *word, uint32_t value)
{
	const struct futex_waitv both[] = { waiter(word, value), waiter(&fork_shared()->bell, 0) };
	struct {
		int64_t s, ns;
	} until;

	(void)CALL2(__NR_clock_gettime, MONOTONIC, &until);
	until.s++;
	(void)CALL5(__NR_futex_waitv, both, 2, 0, &until, MONOTONIC);
}
