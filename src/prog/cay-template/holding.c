/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/holding.c - threads that must not run a single instruction of their program yet: the thread id helper traces them and holds each when its last call,
 * rt_sigreturn, is over.
 *
 * Who has system call filters of its own gets them there, because they may refuse whatever a restorer still has to do: it makes the calls that install them by instructions that the
 * restorer has left behind, and has its own registers again. Where the host's root is the tracer no filter counts meanwhile; elsewhere each is installed as those below it
 * allow. All are let go together. Who was stopped by a signal is stopped again there, children before their parents: who has stopped children waits in the restorer until they are (stops.c). What
 * waits in its queue goes on waiting: everything is blocked until it is stopped. With the helper's end all that it holds end (EXITKILL): none runs that was not to.
 */
#include "prog/cay-template/fork.h"

#include <linux/prctl.h>
#include <linux/ptrace.h>

#define SIGTRAP      5
#define SIGSTOP      19
#define WALL         0x40000000
#define NO_HANG      1
#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */
#define THREADS_ROOM (4UL << 20)
#define TRACED_MAX   (THREADS_ROOM / sizeof(struct held))

/* what a call that a signal interrupts says to the kernel: ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND */
#define RESTART_FIRST 512
#define RESTART_LAST  514

/* index of struct user_regs_struct */
enum { R_RBX = 5, R_RAX = 10, R_ORIG_RAX = 15, R_RIP = 16, REGISTERS = 27 };

enum state { MOVING, HELD, STOPPING, STOPPED, ENDED };

/** struct held - one traced thread; at WINDOW_COPY. */
struct held {
	int32_t tid;
	uint32_t process; /* in the plan */
	enum state state;
	uint32_t restart;
	uint32_t n_calls;
	uint64_t calls; /* of struct residue_call, that it has still to make */
	uint64_t mask;  /* of signals, which is its own again when it is stopped */
};

static uint32_t n_traced;
static long refused; /* the first call that was, -errno */

static struct held *traced(uint32_t i)
{
	return (struct held *)WINDOW_COPY + i;
}

static long trace(uint32_t request, int32_t tid, uint64_t address, uint64_t data)
{
	return CALL4(__NR_ptrace, request, tid, address, data);
}

static uint32_t planned(int32_t pid)
{
	uint32_t i = 0;

	while (i < plan->n_processes && plan_processes()[i].pid != pid)
		i++;
	return i;
}

long holding_begin(int32_t tid)
{
	const struct fork_shared *s = fork_shared();
	const bool suspend = s->asked_n_calls > 0 && fork.order.learns == 0;
	uint64_t options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD |
			   (suspend ? PTRACE_O_SUSPEND_SECCOMP : 0);
	long rc = n_traced == 0            ? bare_map(WINDOW_COPY, THREADS_ROOM, 3, 2)
		  : n_traced == TRACED_MAX ? -E2BIG
					   : 0;

	if (rc == 0)
		rc = trace(PTRACE_SEIZE, tid, 0, options);
	if (rc == 0)
		*traced(n_traced++) = (struct held){ .tid = tid,
			.process = planned(s->asking),
			.restart = s->asked_restart,
			.n_calls = s->asked_n_calls,
			.calls = s->asked_calls };
	return rc;
}

bool holding_anybody(void)
{
	return n_traced > 0;
}

void holding_arm(void)
{
	for (uint32_t i = 0; i < n_traced; i++)
		(void)trace(PTRACE_INTERRUPT, traced(i)->tid, 0, 0);
	for (uint32_t i = 0; i < n_traced; i++) {
		(void)CALL4(__NR_wait4, traced(i)->tid, 0, WALL, 0);
		(void)trace(PTRACE_SYSCALL, traced(i)->tid, 0, 0);
	}
}

static bool is_to_stop(const struct held *h)
{
	return h->process < plan->n_processes &&
	       (plan_processes()[h->process].flags & PLAN_STOPPED) != 0;
}

/* The kernel leaves no number of a call behind rt_sigreturn: registers are the program's. */
static bool has_left(int32_t tid)
{
	int64_t nr = 0;

	return trace(PTRACE_PEEKUSR, tid, 8 * R_ORIG_RAX, (uint64_t)&nr) == 0 && nr == -1;
}

static enum state move(struct held *h, int32_t sig, int32_t event)
{
	if (sig == SYSCALL_STOP && has_left(h->tid))
		return HELD;
	if (sig == SYSCALL_STOP || (event != 0 && sig == SIGTRAP))
		(void)trace(PTRACE_SYSCALL, h->tid, 0, 0);
	else if (event != 0)
		(void)trace(PTRACE_LISTEN, h->tid, 0, 0); /* somebody has stopped its process */
	else
		(void)trace(PTRACE_SYSCALL, h->tid, 0, (uint64_t)sig);
	return MOVING;
}

/*
 * It stands before the call that it waited in, and would make it when it goes on, behind the handler of the signal by which it does: a pause() would miss that. In a call that
 * was interrupted the kernel knows what to do. (Of whoever runs at once: threads.c.)
 */
static void interrupt_call(const struct held *h)
{
	uint64_t r[REGISTERS]; /* struct user_regs_struct */

	if (h->restart < RESTART_FIRST || h->restart > RESTART_LAST ||
		trace(PTRACE_GETREGS, h->tid, 0, (uint64_t)r) != 0)
		return;
	r[R_RIP] += 2;
	r[R_ORIG_RAX] = r[R_RAX];
	r[R_RAX] = -(uint64_t)h->restart;
	(void)trace(PTRACE_SETREGS, h->tid, 0, (uint64_t)r);
}

/* It takes the SIGSTOP that waits for its process, or its process is being stopped. */
static enum state stop(struct held *h, int32_t sig, int32_t event)
{
	if (event != 0 && sig != SIGTRAP) {
		(void)trace(PTRACE_SETSIGMASK, h->tid, sizeof(h->mask), (uint64_t)&h->mask);
		interrupt_call(h);
		return STOPPED;
	}
	(void)trace(PTRACE_CONT, h->tid, 0, event == 0 && sig == SIGSTOP ? SIGSTOP : 0);
	return STOPPING;
}

static void serve(struct held *h, int32_t status)
{
	int32_t sig = status >> 8 & 0xff, event = status >> 16;

	if ((status & 0xff) != 0x7f)
		h->state = ENDED;
	else if (h->state == STOPPING)
		h->state = stop(h, sig, event);
	else
		h->state = move(h, sig, event);
}

/* Whether all threads of @process are at @state, or have ended. */
static bool are_all(uint32_t process, enum state state)
{
	for (uint32_t i = 0; i < n_traced; i++) {
		if (traced(i)->process == process && traced(i)->state != state &&
			traced(i)->state != ENDED)
			return false;
	}
	return true;
}

/* --- calls --- */

static void block_signals(struct held *h)
{
	uint64_t all = ~0ULL;

	(void)trace(PTRACE_GETSIGMASK, h->tid, sizeof(h->mask), (uint64_t)&h->mask);
	(void)trace(PTRACE_SETSIGMASK, h->tid, sizeof(all), (uint64_t)&all);
}

/* Up to the next stop before or behind a call. What else stops it leaves it where it is. */
static bool step(const struct held *h)
{
	int32_t status = SYSCALL_STOP << 8;

	do {
		int32_t sig = status >> 8 & 0xff, event = status >> 16;
		bool ours = event != 0 || sig == SYSCALL_STOP || sig == SIGTRAP;

		if (trace(PTRACE_SYSCALL, h->tid, 0, ours ? 0 : (uint64_t)sig) < 0 ||
			CALL4(__NR_wait4, h->tid, &status, WALL, 0) != h->tid ||
			(status & 0xff) != 0x7f)
			return false;
	} while (status >> 8 != SYSCALL_STOP);
	return true;
}

/* Return: 0, what a call said, or -ESRCH. */
static long make_calls(struct held *h)
{
	uint64_t own[REGISTERS], r[REGISTERS];
	long rc = trace(PTRACE_GETREGS, h->tid, 0, (uint64_t)own);

	memcpy(r, own, sizeof(r));
	r[R_RIP] = residue_calls();
	r[R_RBX] = h->calls;
	r[R_ORIG_RAX] = ~0ULL;
	block_signals(h);
	if (rc == 0)
		rc = trace(PTRACE_SETREGS, h->tid, 0, (uint64_t)r);
	for (; rc == 0 && h->n_calls > 0; h->n_calls--) {
		if (!step(h) || !step(h) || trace(PTRACE_GETREGS, h->tid, 0, (uint64_t)r) < 0)
			return -ESRCH;
		rc = (long)r[R_RAX];
	}
	(void)trace(PTRACE_SETREGS, h->tid, 0, (uint64_t)own);
	(void)trace(PTRACE_SETSIGMASK, h->tid, sizeof(h->mask), (uint64_t)&h->mask);
	return rc > 0 ? -ESRCH : rc; /* the thread that could not follow */
}

/* The first thread is the first, and for all: the others stand still. */
static void install(uint32_t process)
{
	for (uint32_t i = 0; refused == 0 && i < n_traced; i++) {
		struct held *h = traced(i);

		if (h->process != process || h->n_calls == 0 || h->state == ENDED)
			continue;
		refused = make_calls(h);
	}
}

/* --- stopping --- */

static void let_stop(struct held *h)
{
	block_signals(h);
	(void)trace(PTRACE_CONT, h->tid, 0, 0);
	h->state = STOPPING;
}

static void let_others_stop(uint32_t process)
{
	for (uint32_t i = 0; i < n_traced; i++) {
		if (traced(i)->process == process && traced(i)->state == HELD)
			let_stop(traced(i));
	}
}

/* A thread has come a step further. One takes the signal and is stopped; only then the others cannot but stop. */
static void look_at(struct held *h)
{
	if (are_all(h->process, HELD))
		install(h->process);
	if (!is_to_stop(h))
		return;
	if (h->state == HELD && are_all(h->process, HELD)) {
		(void)CALL2(__NR_kill, plan_processes()[h->process].pid, SIGSTOP);
		let_stop(h);
	} else if (h->state == STOPPED || h->state == ENDED) {
		let_others_stop(h->process);
		if (are_all(h->process, STOPPED))
			stops_tell(h->process);
	}
}

static bool is_moving(const struct held *h)
{
	return h->state == MOVING || h->state == STOPPING;
}

/* All in turn, whoever stops most often. Return: whether somebody is not yet where it shall be. */
static bool serve_all(void)
{
	bool moving = false;

	for (uint32_t i = 0; i < n_traced; i++) {
		struct held *h = traced(i);
		int32_t status = 0;
		long rc = is_moving(h) ? CALL4(__NR_wait4, h->tid, &status, WALL | NO_HANG, 0) : 0;

		if (rc == h->tid)
			serve(h, status);
		else if (rc < 0)
			h->state = ENDED; /* holding_arm() was told so */
		if (rc != 0)
			look_at(h);
	}
	/* one may have set others in motion */
	for (uint32_t i = 0; i < n_traced; i++)
		moving |= is_moving(traced(i));
	return moving;
}

/* No program runs before each of them stands where it shall: what runs could reach into the memory of who still acts without filters. */
long holding_wait(void)
{
	int info[32];

	while (serve_all())
		(void)CALL5(__NR_waitid, 0 /* P_ALL */, 0, info,
			2 | 4 | 0x01000000 | WALL /* STOPPED EXITED NOWAIT */, 0);
	return refused;
}

void holding_end(void)
{
	for (uint32_t i = 0; i < n_traced; i++) {
		bare_fault("live.fork.parting");
		if (traced(i)->state != ENDED)
			(void)trace(PTRACE_DETACH, traced(i)->tid, 0, 0);
	}
}
