/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/helper.c - one process of the sandbox's pid namespace that stays outside U2, for what nobody inside may do.
 *
 * Threads can only be made after their process has joined U2, where no pid can be chosen: it says which number comes next. And who has system call filters of its own
 * cannot go on below them, because they may refuse whatever a restorer still has to do: the helper traces these threads, which suspends every filter, holds each when its
 * last call, rt_sigreturn, is over and it has not run an instruction of the program yet, and lets all go when all are there. With its end they end too (EXITKILL): none ever
 * runs without its filters.
 */
#include "prog/cay-template/fork.h"

#include <asm-generic/errno.h>
#include <linux/prctl.h>
#include <linux/ptrace.h>

#define SIGTRAP      5
#define SIGCHLD      17
#define SIGSTOP      19
#define SIGTTOU      22
#define WALL         0x40000000
#define NO_HANG      1
#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */
#define ORIG_RAX     (15 * 8)         /* of struct user */
#define TRACED_MAX   (THREADS_ROOM / sizeof(int32_t))
#define THREADS_ROOM (4UL << 20)
#define WATCHING     (PTRACE_O_EXITKILL | PTRACE_O_SUSPEND_SECCOMP | PTRACE_O_TRACESYSGOOD)

static uint32_t n_traced; /* their pids lie at WINDOW_COPY; 0 = has ended */
static uint32_t n_held;   /* so many of them, the first, have left the restorer */

static int32_t *traced(void)
{
	return (int32_t *)WINDOW_COPY;
}

static long trace(uint32_t request, int32_t pid, uint64_t address, uint64_t data)
{
	return CALL4(__NR_ptrace, request, pid, address, data);
}

static long suspend(int32_t pid)
{
	long rc = n_traced == 0            ? bare_map(WINDOW_COPY, THREADS_ROOM, 3, 2)
		  : n_traced == TRACED_MAX ? -E2BIG
					   : 0;

	if (rc == 0)
		rc = trace(PTRACE_SEIZE, pid, 0, WATCHING);
	if (rc == 0)
		traced()[n_traced++] = pid;
	return rc;
}

/* From here on each of their calls stops twice. They wait for STAGE_GO. */
static void arm(void)
{
	for (uint32_t i = 0; i < n_traced; i++)
		(void)trace(PTRACE_INTERRUPT, traced()[i], 0, 0);
	for (uint32_t i = 0; i < n_traced; i++) {
		(void)CALL4(__NR_wait4, traced()[i], 0, WALL, 0);
		(void)trace(PTRACE_SYSCALL, traced()[i], 0, 0);
	}
}

/* The kernel leaves no number of a call behind rt_sigreturn: registers are the program's. */
static bool has_left(int32_t pid)
{
	int64_t nr = 0;

	return trace(PTRACE_PEEKUSR, pid, ORIG_RAX, (uint64_t)&nr) == 0 && nr == -1;
}

enum state { MOVING, HELD, ENDED };

static enum state serve(int32_t pid, int32_t status)
{
	int32_t sig = status >> 8 & 0xff, event = status >> 16;

	if ((status & 0xff) != 0x7f)
		return ENDED;
	if (sig == SYSCALL_STOP && has_left(pid))
		return HELD;
	if (sig == SYSCALL_STOP || (event != 0 && sig == SIGTRAP))
		(void)trace(PTRACE_SYSCALL, pid, 0, 0);
	else if (event != 0)
		(void)trace(PTRACE_LISTEN, pid, 0, 0); /* somebody has stopped its process */
	else
		(void)trace(PTRACE_SYSCALL, pid, 0, (uint64_t)sig);
	return MOVING;
}

/* All in turn, whoever stops most often. Who is held has moved to the front. Return: how many still move. */
static uint32_t serve_all(void)
{
	uint32_t moving = 0;

	for (uint32_t i = n_held; i < n_traced; i++) {
		int32_t pid = traced()[i], status = 0;
		enum state state = MOVING;

		if (pid == 0)
			continue;
		if (CALL4(__NR_wait4, pid, &status, WALL | NO_HANG, 0) == pid)
			state = serve(pid, status);
		if (state != MOVING)
			traced()[i] = 0;
		if (state == HELD) {
			traced()[i] = traced()[n_held];
			traced()[n_held++] = pid;
		}
		moving += state == MOVING;
	}
	return moving;
}

/* No program runs before each of them stands behind its last call: what runs could reach into the memory of who still acts without filters. */
static void hold_all(void)
{
	int info[32];

	while (serve_all() > 0)
		(void)CALL5(__NR_waitid, 0 /* P_ALL */, 0, info,
			2 | 4 | 0x01000000 | WALL /* STOPPED EXITED NOWAIT */, 0);
}

static void let_go(void)
{
	for (uint32_t i = 0; i < n_held; i++)
		(void)trace(PTRACE_DETACH, traced()[i], 0, 0);
}

static void wait_for(enum fork_stage stage)
{
	struct fork_shared *s = fork_shared();
	uint32_t now;

	while ((now = __atomic_load_n(&s->stage, __ATOMIC_SEQ_CST)) <= (uint32_t)stage)
		futex_wait(&s->stage, now);
}

/* Those with filters of their own are seen off. Without any there is nothing to wait for. */
static void see_off(void)
{
	arm();
	if (n_traced > 0)
		bare_fault("live.fork.armed");
	fork_pass_stage(STAGE_ARMED);
	hold_all();
	if (n_traced > 0)
		bare_fault("live.fork.held");
	life_end(0);
	fork_pass_stage(STAGE_HELD);
	if (n_held > 0)
		wait_for(STAGE_GO);
	let_go();
	fork_pass_stage(STAGE_LEFT);
}

int number_text(char text[10], uint32_t number)
{
	int n = 0, i = 0;
	char digits[10];

	do
		digits[n++] = (char)('0' + number % 10);
	while ((number /= 10) != 0);
	while (n > 0)
		text[i++] = digits[--n];
	return i;
}

long write_number(int fd, uint32_t number)
{
	char text[10];

	return CALL4(__NR_pwrite64, fd, text, number_text(text, number), 0);
}

static long answer(uint32_t asked)
{
	int32_t pid = (int32_t)(asked & ~(uint32_t)HELPER_SUSPEND);

	return (asked & HELPER_SUSPEND) != 0 ? suspend(pid)
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
	/* what comes next in the source comes next here */
	(void)write_number(fork.last_pid, (uint32_t)plan->last_pid);
	/* programs will run beside it, and find nothing */
	(void)CALL5(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	(void)CALL3(__NR_close_range, 0, ~0U, 0);
	see_off();
	bare_exit(0);
}

long helper_start(void)
{
	int32_t pid = plan->helper_pid;
	struct bare_clone args = {
		.exit_signal = SIGCHLD, .set_tid = (uint64_t)&pid, .set_tid_size = 1
	};
	long rc = fork_must(CALL2(__NR_clone3, &args, sizeof(args)), "clone the helper");

	if (rc == 0)
		helper_main();
	return rc;
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

	while (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) == 0) {
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
	static const char choose[] = "choose a process id", filters[] = "suspend filters";
	const char *step = task == HELPER_CHOOSE ? choose : filters;
	struct fork_shared *s = fork_shared();
	uint32_t done;

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
