/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/tracing.c - see the header. With the loader's end the kernel lets all go that it traces, whatever they were stopped by: a signal is delivered, a stop by a signal goes on.
 *
 * A task that is met for the first time stands still until its maker has said what it is; one of which nobody says anything (CLONE_PTRACE) stands still until the end. The filter of sandboxes knows no
 * CLONE_UNTRACED.
 */
#include "prog/cay-template/tracing.h"
#include "prog/cay-template/pull.h"

#include <linux/kcmp.h>
#include <linux/ptrace.h>

#define SIGTRAP  5
#define SIGCHLD  17
#define WALL     0x40000000
#define NO_HANG  1
#define ROOM     65536U /* tasks at the same time; those beyond are held */
#define SIG_WORD (1ULL << (SIGCHLD - 1))

#define OPTIONS \
	(PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC)

enum state {
	FRESH, /* its maker has not said what it is */
	GOES,
	HELD,
	DEAD, /* before its maker has */
};

struct task {
	int32_t pid;
	enum state state;
	bool halted;  /* at its beginning */
	bool stopped; /* there by a signal */
};

static struct task *tasks;
static uint32_t n_tasks;
static int wakes;

static long trace(uint32_t request, int32_t pid, uint64_t address, uint64_t data)
{
	return CALL4(__NR_ptrace, request, pid, address, data);
}

static struct task *find(int32_t pid)
{
	for (uint32_t i = 0; i < n_tasks; i++) {
		if (tasks[i].pid == pid)
			return &tasks[i];
	}
	return NULL;
}

/* Return: NULL when there is no room. */
static struct task *find_or_add(int32_t pid)
{
	struct task *t = find(pid);

	if (t != NULL || n_tasks == ROOM)
		return t;
	t = &tasks[n_tasks++];
	*t = (struct task){ .pid = pid };
	return t;
}

static void forget(struct task *t)
{
	*t = tasks[--n_tasks];
}

long tracing_begin(int above)
{
	const uint64_t mask = SIG_WORD, by_default[4] = { 0 };
	long rc, fd;

	tasks = pull_room(ROOM * sizeof(*tasks));
	if (tasks == NULL)
		return -ENOMEM;
	/* what is ignored is not sent; what is blocked waits for who reads it */
	rc = CALL4(__NR_rt_sigaction, SIGCHLD, by_default, 0, 8);
	if (rc == 0)
		rc = CALL4(__NR_rt_sigprocmask, 0 /* BLOCK */, &mask, 0, 8);
	if (rc == 0)
		rc = CALL4(__NR_signalfd4, -1, &mask, 8, BARE_CLOEXEC | 04000 /* NONBLOCK */);
	if (rc < 0)
		return rc;
	fd = CALL3(__NR_fcntl, rc, 1030 /* F_DUPFD_CLOEXEC */, above);
	(void)CALL1(__NR_close, rc);
	wakes = (int)fd;
	return fd;
}

long tracing_add(int32_t pid)
{
	struct task *t = find_or_add(pid);

	if (t == NULL)
		return -E2BIG;
	t->state = GOES;
	return trace(PTRACE_SEIZE, pid, 0, OPTIONS);
}

/* Does it run beside its maker, in its memory? What has ended has none. */
static bool shares(int32_t maker, int32_t made, int32_t event)
{
	long rc = event == PTRACE_EVENT_VFORK ? 1 : CALL5(__NR_kcmp, maker, made, KCMP_VM, 0, 0);

	return rc == 0 || (rc < 0 && rc != -ESRCH);
}

static void has_cloned(int32_t maker, int32_t event)
{
	uint64_t made = 0;
	struct task *t;

	if (trace(PTRACE_GETEVENTMSG, maker, 0, (uint64_t)&made) == 0 &&
		(t = find_or_add((int32_t)made)) != NULL) {
		if (t->state == DEAD)
			forget(t);
		else
			t->state = shares(maker, t->pid, event) ? HELD : GOES;
		/* (where it is not halted yet, it will be) */
		if (t->state == GOES && t->halted)
			(void)trace(t->stopped ? PTRACE_LISTEN : PTRACE_CONT, t->pid, 0, 0);
	}
	(void)trace(PTRACE_CONT, maker, 0, 0);
}

/* At its beginning, by a signal that stops it, or because it goes on behind one. */
static void has_halted(int32_t pid, int32_t sig)
{
	struct task *t = find_or_add(pid);

	if (t == NULL)
		return;
	if (t->state == DEAD) /* another by that number */
		t->state = FRESH;
	t->stopped = sig != SIGTRAP;
	t->halted = t->state != GOES;
	if (t->state == GOES)
		(void)trace(t->stopped ? PTRACE_LISTEN : PTRACE_CONT, pid, 0, 0);
}

static void has_ended(int32_t pid)
{
	struct task *t = find_or_add(pid);

	if (t == NULL)
		return;
	if (t->state == FRESH)
		*t = (struct task){ .pid = pid, .state = DEAD };
	else
		forget(t);
}

static void has_executed(int32_t pid)
{
	struct task *t = find(pid);

	if (t != NULL)
		forget(t);
	(void)trace(PTRACE_DETACH, pid, 0, 0);
}

static void serve(int32_t pid, int32_t status)
{
	int32_t sig = status >> 8 & 0xff, event = status >> 16;

	if ((status & 0xff) != 0x7f) {
		has_ended(pid);
		return;
	}
	switch (event) {
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		has_cloned(pid, event);
		return;
	case PTRACE_EVENT_EXEC: /* another program, of whose memory nothing is missing */
		has_executed(pid);
		return;
	case PTRACE_EVENT_STOP:
		has_halted(pid, sig);
		return;
	default:
		(void)trace(PTRACE_CONT, pid, 0, (uint64_t)sig);
	}
}

void tracing_serve(void)
{
	char heard[128]; /* struct signalfd_siginfo */
	int32_t status = 0;
	long pid;

	while (CALL3(__NR_read, wakes, heard, sizeof(heard)) > 0)
		;
	while ((pid = CALL4(__NR_wait4, -1, &status, WALL | NO_HANG, 0)) > 0)
		serve((int32_t)pid, status);
}
