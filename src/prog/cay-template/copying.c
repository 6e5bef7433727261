/* SPDX-License-Identifier: Apache-2.0 */
/* prog/cay-template/copying.c - see the header. Each thread takes the next block that nobody has taken. */
#include "prog/cay-template/copying.h"
#include "prog/cay-template/reading.h"

#include <linux/futex.h>
#include <linux/sched.h>

#define THREAD_FLAGS \
	(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | \
		CLONE_CHILD_CLEARTID)
#define THREADS_MAX  4U /* memory is not faster for more */
#define THREAD_STACK (16UL << 10)
#define BLOCK        (2UL << 20) /* of the stash: a huge page is made by one thread */
#define LEAST        (2 * BLOCK) /* less is copied before another thread runs */

static char stacks[THREADS_MAX - 1][THREAD_STACK] __attribute__((aligned(16)));
static uint32_t alive[THREADS_MAX - 1]; /* the kernel clears it, and wakes, when the thread ends */
static uint64_t next_block;
static long result; /* of the first that failed */

/* Blocks of all copies, counted from the first on. */
struct cursor {
	uint64_t block;
	uint32_t copy;
	uint64_t done; /* bytes of it */
};

static uint64_t block_length(const struct cursor *c)
{
	const struct plan_copy *copy = &plan_copies()[c->copy];
	uint64_t left = copy->length - c->done, n = BLOCK - (copy->to + c->done) % BLOCK;

	return left < n ? left : n;
}

static void step(struct cursor *c)
{
	c->block++;
	c->done += block_length(c);
	if (c->done == plan_copies()[c->copy].length) {
		c->copy++;
		c->done = 0;
	}
}

static void copy_blocks(void)
{
	struct reading r = READING_INIT;
	struct cursor at = { 0 };

	while (__atomic_load_n(&result, __ATOMIC_SEQ_CST) == 0) {
		uint64_t mine = __atomic_fetch_add(&next_block, 1, __ATOMIC_SEQ_CST);
		const struct plan_copy *copy;
		long rc, none = 0;

		while (at.block < mine && at.copy < plan->n_copies)
			step(&at);
		if (at.copy >= plan->n_copies)
			break;
		copy = &plan_copies()[at.copy];
		rc = reading_take(&r, copy, at.done, copy->to + at.done, block_length(&at));
		if (rc < 0)
			(void)__atomic_compare_exchange_n(
				&result, &none, rc, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
	reading_end(&r);
}

static BARE_NORETURN __attribute__((used)) void copying_thread(void)
{
	copy_blocks();
	for (;;)
		(void)CALL1(__NR_exit, 0);
}

/* Return: whether there is one. */
static bool start_thread(uint32_t i)
{
	register uint32_t *r10 __asm__("r10") = &alive[i];
	register long r8 __asm__("r8") = 0;
	long rc;

	alive[i] = 1;
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "call copying_thread\n\t"
			 "1:"
			 : "=a"(rc)
			 : "a"(__NR_clone), "D"(THREAD_FLAGS), "S"(stacks[i] + THREAD_STACK),
			 "d"(0), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	if (rc < 0)
		alive[i] = 0;
	return rc >= 0;
}

static void wait_for_thread(uint32_t i)
{
	uint32_t now;

	while ((now = __atomic_load_n(&alive[i], __ATOMIC_SEQ_CST)) != 0)
		(void)CALL6(__NR_futex, &alive[i], FUTEX_WAIT, now, 0, 0, 0);
}

/* How many processors there are for us. */
static uint32_t processors(void)
{
	uint64_t set[128];
	long n = CALL3(__NR_sched_getaffinity, 0, sizeof(set), set);
	uint32_t count = 0;

	for (long i = 0; i < n / 8; i++) {
		for (; set[i] != 0; set[i] &= set[i] - 1)
			count++;
	}
	return count;
}

static uint32_t threads_wanted(void)
{
	uint64_t bytes = 0;
	uint32_t n = processors();

	for (uint32_t i = 0; i < plan->n_copies; i++)
		bytes += plan_copies()[i].length;
	if (bytes < LEAST || n < 1)
		return 1;
	return n < THREADS_MAX ? n : THREADS_MAX;
}

long copying_run(void)
{
	uint32_t more = threads_wanted() - 1, n = 0;

	next_block = 0;
	result = 0;
	while (n < more && start_thread(n))
		n++;
	copy_blocks();
	while (n > 0)
		wait_for_thread(--n);
	return result;
}
