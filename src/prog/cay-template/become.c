/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/become.c - the order in which a clone turns into the process that it continues. Each step was found necessary in this place
 * (docs/design/0006): from opener_confine() on nothing outside the sandbox can be reached.
 */
#include "prog/cay-template/lazy.h"

#include <linux/prctl.h>

static const struct plan_process *planned(uint32_t image_index)
{
	const struct plan_process *p = plan_processes();

	while (p->image != image_index)
		p++;
	return p;
}

/* RLIMIT_… */
#define DATA       2U
#define CORE       4U
#define NPROC      6U
#define NOFILE     7U
#define AS         9U
#define SIGPENDING 11U

static void set_limit(const struct image_process *p, uint32_t i)
{
	uint64_t now[2], want[2] = { p->limits[i].soft, p->limits[i].hard };

	if (CALL4(__NR_prlimit64, 0, i, 0, now) < 0)
		return;
	if (want[1] > now[1])
		want[1] = now[1]; /* no capability here raises a hard limit */
	if (want[0] > want[1])
		want[0] = want[1];
	(void)fork_must(CALL4(__NR_prlimit64, 0, i, want, 0), "set a resource limit");
}

/* What is still to be made takes some, of which a program may have more than its limit already. */
static bool is_of_restorer(uint32_t i)
{
	return i == NPROC || i == DATA || i == NOFILE || i == AS || i == SIGPENDING;
}

static void set_limits(const struct image_process *p)
{
	/* that of core dumps is T''s for all; an older server has captured another one */
	for (uint32_t i = 0; i < IMAGE_LIMITS; i++) {
		if (!is_of_restorer(i) && i != CORE)
			set_limit(p, i);
	}
}

void limits_end(const struct image_process *p)
{
	for (uint32_t i = 0; i < IMAGE_LIMITS; i++) {
		if (is_of_restorer(i))
			set_limit(p, i);
	}
}

/* Who adopts is one already. The keeper may be told of each of these calls. */
static void set_subreaper(const struct image_process *p, const struct plan_process *planned)
{
	bool adopts = (planned->flags & PLAN_ADOPTS) != 0, takes = p->subreaper != 0;

	if (!adopts && !takes)
		return;
	fork_await(STAGE_ADOPTED);
	if (adopts != takes)
		(void)fork_must(CALL5(__NR_prctl, PR_SET_CHILD_SUBREAPER, takes, 0, 0, 0),
			"take others' children");
}

static void set_attributes(const struct image_process *p)
{
	(void)CALL1(__NR_umask, p->umask);
	(void)CALL1(__NR_personality, p->personality);
	/* what is told in one number is set by two: whether, and for whom not */
	(void)CALL5(__NR_prctl, PR_SET_THP_DISABLE, p->thp_disable & 1, p->thp_disable & ~1U, 0, 0);
	for (uint32_t i = 0; i < 32; i++) {
		if ((p->barriers >> i & 1) != 0)
			(void)fork_must(CALL3(__NR_membarrier, 1U << i, 0, 0),
				"register for memory barriers");
	}
	if (p->root != IMAGE_NONE) {
		(void)fork_must(CALL1(__NR_fchdir, plan->first_description + p->root),
			"enter the root directory");
		(void)fork_must(CALL1(__NR_chroot, "."), "change the root directory");
	}
	(void)fork_must(CALL1(__NR_fchdir, plan->first_description + p->cwd),
		"enter the working directory");
}

BARE_NORETURN void become(uint32_t index)
{
	const struct image_process *p = IMAGE_ROW(struct image_process, TABLE_PROCESSES, index);
	const struct plan_process *place = planned(index);
	uint64_t all = ~0ULL;

	(void)CALL4(__NR_rt_sigprocmask, 2 /* SETMASK */, &all, 0, 8);
	opener_confine();
	bare_fault("live.process.confined");
	set_subreaper(p, place);
	set_attributes(p);
	memory_become(p, place);
	lazy_need(p);
	memory_describe(p);
	files_become(p);
	signals_become(p);
	timers_prepare(p);
	set_limits(p);
	creds_become(p);
	bare_fault("live.process.made");
	threads_become(p);
}
