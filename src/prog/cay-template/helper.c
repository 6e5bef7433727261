/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/helper.c - one process of the sandbox's pid namespace that stays outside U2, for what nobody inside may do.
 *
 * Threads can only be made after their process has joined U2, where no pid can be chosen: it says which number comes next. And it sees off those that must not run yet when they
 * have left the restorer (holding.c). Where nobody asks for either there is none.
 */
#include "prog/cay-template/fork.h"

#include <linux/prctl.h>

#define SIGCHLD 17
#define WALL    0x40000000

static long outside; /* in T': its pid; 0 = there is none */

static void wait_for(enum fork_stage stage)
{
	struct fork_shared *s = fork_shared();
	uint32_t now;

	while ((now = __atomic_load_n(&s->stage, __ATOMIC_SEQ_CST)) <= (uint32_t)stage)
		futex_wait(&s->stage, now);
}

/* Those with filters of their own, and those that are stopped, are seen off. Without any there is nothing to wait for. Who is let go is killed with us no more. */
static void see_off(void)
{
	holding_arm();
	if (holding_anybody())
		bare_fault("live.fork.armed");
	fork_pass_stage(STAGE_ARMED);
	fork_shared()->refused = (int32_t)holding_wait();
	if (holding_anybody())
		bare_fault("live.fork.held");
	fork_pass_stage(STAGE_HELD);
	if (holding_anybody())
		wait_for(STAGE_GO);
	holding_end();
	life_end(0);
	fork_pass_stage(STAGE_LEFT);
}

int number_text(char text[10], uint32_t number)
{
	return (int)(bare_digits(text, number, 10) - text);
}

long write_number(int fd, uint32_t number)
{
	char text[10];

	return CALL4(__NR_pwrite64, fd, text, number_text(text, number), 0);
}

static long answer(uint32_t asked)
{
	int32_t pid = (int32_t)(asked & ~(uint32_t)HELPER_HOLD);

	return (asked & HELPER_HOLD) != 0 ? holding_begin(pid)
					  : write_number(fork.last_pid, (uint32_t)pid - 1);
}

static BARE_NORETURN void helper_main(void)
{
	struct fork_shared *s = fork_shared();

	life_begin(life_helper(), plan->helper_pid, &s->answer);
	bare_fault("live.fork.tids");
	while (__atomic_load_n(&s->helper_end, __ATOMIC_SEQ_CST) == 0) {
		uint32_t asked = __atomic_load_n(&s->asked, __ATOMIC_SEQ_CST);

		if (__atomic_load_n(&s->failed, __ATOMIC_SEQ_CST) != 0)
			break;
		if (asked == 0) {
			futex_wait(&s->asked, 0);
			continue;
		}
		__atomic_store_n(&s->asked, 0, __ATOMIC_SEQ_CST);
		__atomic_store_n(&s->answer, answer(asked) < 0 ? 2 : 1, __ATOMIC_SEQ_CST);
		futex_wake(&s->answer);
	}
	helper_leave_number();
	/* programs will run beside it, and find nothing */
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)CALL3(__NR_close_range, 0, ~0U, 0);
	see_off();
	bare_exit(0);
}

void helper_leave_number(void)
{
	(void)write_number(fork.last_pid, (uint32_t)plan->last_pid);
}

bool helper_is_wanted(void)
{
	for (uint32_t i = 0; i < plan->n_processes; i++) {
		if ((plan_processes()[i].flags & (PLAN_ALONE | PLAN_ZOMBIE | PLAN_HELPER)) == 0)
			return true;
	}
	return false;
}

void helper_start(void)
{
	struct fork_shared *s = fork_shared();
	int32_t pid = plan->helper_pid;
	struct bare_clone args = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)&pid, .set_tid_size = 1
	};

	if (outside != 0)
		return;
	s->expected[STAGE_ARMED] = s->expected[STAGE_HELD] = 1;
	s->expected[STAGE_LEFT]++; /* behind those whom it watches */
	s->helped = 1;
	outside = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone the helper");
	if (outside == 0)
		helper_main();
}

bool helper_reap(int32_t pid)
{
	if (outside == 0 || pid != outside)
		return false;
	(void)CALL4(__NR_wait4, pid, 0, WALL, 0);
	outside = 0; /* its number is anybody's now */
	return true;
}

void helper_finish(void)
{
	struct fork_shared *s = fork_shared();

	__atomic_store_n(&s->helper_end, 1, __ATOMIC_SEQ_CST);
	__atomic_store_n(&s->asked, 1, __ATOMIC_SEQ_CST);
	futex_wake(&s->asked);
}

void helper_pass(enum fork_stage stage)
{
	uint32_t *arrived = &fork_shared()->arrived[stage];

	while (outside != 0 && __atomic_load_n(arrived, __ATOMIC_SEQ_CST) == 0) {
		if (life_is_lost(life_helper()))
			fork_fail_of(
				plan->helper_pid, "it was killed before all could go on", -ESRCH);
		futex_wait(arrived, 0);
	}
}

/* --- who asks --- */

static void check_failed(void)
{
	if (__atomic_load_n(&fork_shared()->failed, __ATOMIC_SEQ_CST) != 0)
		bare_exit(125);
}

void helper_lock(void)
{
	struct fork_shared *s = fork_shared();
	uint32_t none = 0;

	while (!__atomic_compare_exchange_n(
		&s->helper_lock, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
		check_failed();
		futex_wait(&s->helper_lock, 1);
		none = 0;
	}
}

void helper_unlock(void)
{
	struct fork_shared *s = fork_shared();

	__atomic_store_n(&s->helper_lock, 0, __ATOMIC_SEQ_CST);
	futex_wake(&s->helper_lock);
}

void helper_ask(enum helper_task task, int32_t pid)
{
	static const char choose[] = "choose a process id", hold[] = "hold a thread";
	const char *step = task == HELPER_CHOOSE ? choose : hold;
	struct fork_shared *s = fork_shared();
	uint32_t done;

	if (s->helped == 0)
		fork_fail(step, -ESRCH);
	s->asking = (int32_t)CALL0(__NR_getpid);
	__atomic_store_n(&s->answer, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&s->asked, (uint32_t)task | (uint32_t)pid, __ATOMIC_SEQ_CST);
	futex_wake(&s->asked);
	for (int rounds = 0; (done = __atomic_load_n(&s->answer, __ATOMIC_SEQ_CST)) == 0;
		rounds++) {
		check_failed();
		if (life_is_lost(life_helper()))
			fork_fail(step, -ESRCH);
		/* each wait ends after a second, with an answer, or with the helper's end */
		if (rounds > FORK_TIMEOUT_S)
			fork_fail(step, -ETIME);
		futex_wait(&s->answer, 0);
	}
	if (done != 1)
		fork_fail(step, -EPERM);
}
