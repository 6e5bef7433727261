/* SPDX-License-Identifier: Apache-2.0 */
#include "tracees.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

#define COUNT 6

static volatile uint64_t number = 11;
static volatile sig_atomic_t ended;

static void on_end(attr_unused int signal)
{
	ended++;
}

/* Whoever has no child has none more, and has heard of none. */
static void live(int talk)
{
	(void)signal(SIGCHLD, on_end);
	live_ready(talk);
	number = 12;
	live_answer(talk, waitpid(-1, NULL, __WALL | WNOHANG) < 0 && errno == ECHILD && ended == 0);
}

static void live_catching(int talk)
{
	(void)signal(SIGTRAP, on_end);
	live(talk);
}

static void twin(struct somebody *all, struct tracee *twins, size_t n, int want)
{
	struct tracee_pair pairs[COUNT];

	for (size_t i = 0; i < n; i++)
		pairs[i] = (struct tracee_pair){ .t = &all[i].t, .twin = &twins[i] };
	check_int(tracee_twins(pairs, n), want);
}

static uint64_t number_of(const struct tracee *t)
{
	uint64_t n = 0;

	check_int(tracee_read(t, (uint64_t)(uintptr_t)&number, &n, sizeof(n)), 0);
	return n;
}

/* Every third cannot be given a program. */
TEST(all_at_once)
{
	struct somebody all[COUNT];
	struct tracee twins[COUNT];

	for (size_t i = 0; i < COUNT; i++)
		all[i] = somebody_start(i % 3 == 2 ? live_catching : live);
	for (size_t i = 0; i < COUNT; i++)
		somebody_stop(&all[i]);
	twin(all, twins, COUNT, 0);
	for (size_t i = 0; i < COUNT; i++) {
		tracee_release(&all[i].t);
		check_int(somebody_says(&all[i]), 'y');
	}
	for (size_t i = 0; i < COUNT; i++) {
		check_int(number_of(&twins[i]), 11);
		check_int(TRACEE_CALL(&twins[i], 0, SYS_getpid), twins[i].host);
		check_int(TRACEE_CALL(&twins[i], 0, SYS_getsid), twins[i].host);
		check_int(TRACEE_CALL(&twins[i], 0, SYS_fcntl, (uint64_t)all[i].talk, F_GETFD),
			-EBADF);
		tracee_end(&twins[i]);
		somebody_end(&all[i]);
	}
}

static void live_alone(int talk)
{
	const struct rlimit one = { 1, 1 };

	if (setrlimit(RLIMIT_NPROC, &one) < 0 || (getuid() == 0 && setuid(65432) < 0))
		_exit(7);
	(void)prctl(PR_SET_DUMPABLE, 1);
	live(talk);
}

/* One of them may have no child: then there is no twin, and all are as they were. */
TEST(all_or_none)
{
	struct somebody all[3] = { somebody_start(live), somebody_start(live_alone),
		somebody_start(live) };
	struct tracee twins[3];

	for (size_t i = 0; i < 3; i++)
		somebody_stop(&all[i]);
	twin(all, twins, 3, -EAGAIN);
	for (size_t i = 0; i < 3; i++) {
		check_int(twins[i].host, 0);
		tracee_release(&all[i].t);
		check_int(somebody_says(&all[i]), 'y');
		somebody_end(&all[i]);
	}
}

static void live_without_new_code(int talk)
{
	if (prctl(PR_SET_MDWE, 1, 0, 0, 0) < 0)
		_exit(77);
	live(talk);
}

/* Nothing has been asked of it before that would have shown it. */
TEST(who_may_have_no_new_code_has_a_twin)
{
	struct somebody s;
	struct tracee other;

	if (prctl(PR_SET_MDWE + 1, 0, 0, 0, 0) < 0) /* PR_GET_MDWE */
		skip("no PR_SET_MDWE");
	s = somebody_start(live_without_new_code);
	somebody_stop(&s);
	twin(&s, &other, 1, 0);
	tracee_release(&s.t);
	check_int(somebody_says(&s), 'y');
	check_int(number_of(&other), 11);
	tracee_end(&other);
	somebody_end(&s);
}
