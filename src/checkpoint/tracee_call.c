/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/tracee_call.c - system calls made in stopped threads: one at an instruction of the vDSO, or many by a program of a few instructions in memory of ours, in all threads at the
 * same time.
 *
 * While a thread runs for us all signals are blocked. What reaches it all the same: a SIGSTOP, which is handed on, so that the stop is in effect when the thread is let go; the
 * notice of a SIGCONT; and a SIGTRAP that waited, in whose place the kernel puts the end of a step or program, which it forces: that one is queued again. Forcing it
 * also takes away what a program had set for SIGTRAP: where something was set, the stops before and behind a call are taken instead, which are no signals.
 */
#include "base/buf.h"
#include "checkpoint/tracee_parts.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define PROGRAM_AT  TRACEE_RESULTS /* before it: results of single calls */
#define ROWS_AT     (PROGRAM_AT + 64)
#define ROWS_MAX    ((TRACEE_MEMORY - ROWS_AT) / sizeof(struct tracee_row))
#define PIECE       16384U
#define REPEATS_MAX 100

_Static_assert(sizeof(struct tracee_row) == 96 && offsetof(struct tracee_row, result) == 56,
	"the program knows them");

/* rbx: the first row, rbp: behind the last one. The kernel leaves both alone. */
static const unsigned char program[] = {
	0x48, 0x8b, 0x03,       /* next: mov  (%rbx), %rax */
	0x48, 0x8b, 0x7b, 0x08, /*       mov  8(%rbx), %rdi */
	0x48, 0x8b, 0x73, 0x10, /*       mov  16(%rbx), %rsi */
	0x48, 0x8b, 0x53, 0x18, /*       mov  24(%rbx), %rdx */
	0x4c, 0x8b, 0x53, 0x20, /*       mov  32(%rbx), %r10 */
	0x4c, 0x8b, 0x43, 0x28, /*       mov  40(%rbx), %r8 */
	0x4c, 0x8b, 0x4b, 0x30, /*       mov  48(%rbx), %r9 */
	0x0f, 0x05,             /*       syscall */
	0x48, 0x89, 0x43, 0x38, /*       mov  %rax, 56(%rbx) */
	0x48, 0x83, 0xc3, 0x60, /*       add  $96, %rbx */
	0x48, 0x39, 0xeb,       /*       cmp  %rbp, %rbx */
	0x75, 0xd6,             /*       jne  next */
	0xcc,                   /*       int3 */
};

_Static_assert(sizeof(program) <= ROWS_AT - PROGRAM_AT, "it has room");

/* --- having a thread run --- */

static int block_signals(const struct tracee_thread *thread)
{
	uint64_t all = ~0ULL;

	return tracee_trace(PTRACE_SETSIGMASK, thread->host, sizeof(all), &all);
}

/* The end of a step or program takes its own signal out of the mask: it is set anew each time. */
static int begin_change(struct tracee_thread *thread)
{
	int rc = thread->changed || tracee_has_taken_over()
			 ? 0
			 : tracee_trace(PTRACE_SETOPTIONS, thread->host, 0,
				   (void *)(uintptr_t)TRACEE_OPTIONS);

	/* before: see tracee_give_up() */
	thread->changed |= rc == 0;
	return rc == 0 ? block_signals(thread) : rc;
}

static int run(struct tracee_thread *thread, int how, uintptr_t signal)
{
	int rc;

	thread->runs = true; /* before: see tracee_give_up() */
	rc = tracee_trace(how, thread->host, 0, (void *)signal);
	thread->runs = rc == 0;
	return rc;
}

int tracee_on(struct tracee_thread *thread)
{
	return run(thread, thread->how, 0);
}

static int wait_for(struct tracee_thread *thread)
{
	int status = tracee_wait(thread->host);

	if (status != -ETIMEDOUT)
		thread->runs = false;
	return status;
}

static int begin(
	struct tracee_thread *thread, const struct user_regs_struct *r, int how, uint64_t end)
{
	int rc = begin_change(thread);

	thread->how = how;
	thread->stops = 2;
	thread->end = end;
	if (rc == 0)
		rc = tracee_trace(PTRACE_SETREGS, thread->host, 0, r);
	return rc == 0 ? tracee_on(thread) : rc;
}

/* It comes back as soon as the thread runs again, before its next instruction: which then stops for us. */
static int queue_again(struct tracee_thread *thread)
{
	int rc = block_signals(thread);

	if (rc == 0)
		rc = tracee_trace(PTRACE_INTERRUPT, thread->host, 0, NULL);
	if (rc == 0)
		rc = run(thread, PTRACE_CONT, SIGTRAP);
	if (rc == 0)
		rc = wait_for(thread);
	return rc < 0 ? rc : rc >> 16 == PTRACE_EVENT_STOP ? 0 : -EFAULT;
}

/* Stopped by a SIGTRAP. */
static int arrive(struct tracee_thread *thread)
{
	siginfo_t info;
	int rc = tracee_trace(PTRACE_GETSIGINFO, thread->host, 0, &info);
	long at;

	errno = 0;
	at = ptrace(PTRACE_PEEKUSER, thread->host, offsetof(struct user_regs_struct, rip), NULL);
	if (rc < 0 || errno != 0)
		return rc < 0 ? rc : -errno;
	if ((uint64_t)at != thread->end)
		return -EFAULT;
	return info.si_code > 0 ? 0 : queue_again(thread);
}

int tracee_await(struct tracee_thread *thread, bool child)
{
	for (;;) {
		int status = wait_for(thread), event = status >> 8, rc;
		uintptr_t signal = 0;
		unsigned long made = 0;

		if (status < 0)
			return status;
		if (event == (SIGTRAP | PTRACE_EVENT_FORK << 8) ||
			event == (SIGTRAP | PTRACE_EVENT_CLONE << 8)) {
			rc = tracee_trace(PTRACE_GETEVENTMSG, thread->host, 0, &made);
			thread->child = rc == 0 ? (pid_t)made : 0;
			if (child && rc == 0)
				return 1;
		} else if (event == (SIGTRAP | 0x80)) {
			if (--thread->stops == 0)
				return 0;
		} else if (event == SIGTRAP) {
			return arrive(thread);
		} else if (event == SIGSTOP) {
			signal = SIGSTOP;
		} else if (event >> 8 != PTRACE_EVENT_STOP) {
			return -EFAULT;
		}
		rc = run(thread, thread->how, signal);
		if (rc < 0)
			return rc;
	}
}

/* --- one call --- */

/* Who has ended has none. */
static bool has_mappings(const struct tracee *t)
{
	cleanup_fd int fd = openat(t->proc, "maps", O_RDONLY | O_CLOEXEC);
	char c;

	return fd >= 0 && read(fd, &c, 1) == 1;
}

void tracee_mapped(struct tracee *t, const struct mappings *maps)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->list[i];

		if (m->name_size != 6 || memcmp(m->name, "[vdso]", 6) != 0)
			continue;
		t->vdso = m->start;
		t->vdso_size = m->end - m->start;
	}
}

/* Where in these bytes is an instruction that enters the kernel? It returns to us, whatever follows. */
static int search(struct tracee *t, uint64_t from, uint64_t to)
{
	unsigned char code[PIECE];
	int rc = 0;

	/* one byte less each time: it may lie across the end of a piece */
	for (uint64_t at = from; rc == 0 && at + 1 < to; at += PIECE - 1) {
		size_t n = to - at < PIECE ? to - at : PIECE;

		rc = tracee_read(t, at, code, n);
		for (size_t i = 0; rc == 0 && i + 1 < n; i++) {
			if (code[i] == 0x0f && code[i + 1] == 0x05) {
				t->syscall_at = at + i;
				return 0;
			}
		}
	}
	return rc < 0 ? rc : -ENOEXEC;
}

/* In a file's code: who has unmapped the kernel's (valgrind does) makes calls from there. */
static int search_files(struct tracee *t, const struct mappings *maps)
{
	for (size_t i = 0; i < maps->n; i++) {
		const struct proc_map *m = &maps->list[i];

		if (m->readable && m->executable && m->inode != 0 &&
			search(t, m->start, m->end) == 0)
			return 0;
	}
	/* it may have ended while they were read, piece by piece */
	return has_mappings(t) ? -ENOEXEC : -ESRCH;
}

/* An instruction that enters the kernel, in the code that the kernel maps into every process if it is there. */
static int find_syscall(struct tracee *t)
{
	struct mappings maps = { 0 };
	int rc = t->vdso != 0 ? 0 : mappings_read(t->proc, "maps", &maps);

	if (rc == 0)
		tracee_mapped(t, &maps);
	if (rc == 0)
		rc = t->vdso != 0 ? search(t, t->vdso, t->vdso + t->vdso_size)
				  : search_files(t, &maps);
	mappings_fini(&maps);
	return rc;
}

bool tracee_may_call(const struct tracee *t, size_t i, long nr, const uint64_t a[6])
{
	const struct tracee_thread *thread = &t->threads[i];
	struct seccomp_data call = {
		.nr = (int)nr, .arch = AUDIT_ARCH_X86_64, .instruction_pointer = t->syscall_at
	};

	if (thread->n_own == 0)
		return true;
	for (size_t j = 0; j < 6; j++)
		call.args[j] = a[j];
	return filter_chain_allows(thread->own, thread->n_own, &call);
}

static int begin_call(struct tracee *t, size_t i, long nr, const uint64_t a[6])
{
	struct tracee_thread *thread = &t->threads[i];
	struct user_regs_struct r;
	int rc;

	if (i >= t->n_threads)
		return -ESRCH;
	if (!tracee_may_call(t, i, nr, a))
		return -EACCES;
	r = thread->registers;
	rc = t->syscall_at != 0 ? 0 : find_syscall(t);
	r.rip = t->syscall_at;
	r.rax = (unsigned long long)nr;
	r.orig_rax = ~0ULL; /* no call to restart */
	r.rdi = a[0], r.rsi = a[1], r.rdx = a[2], r.r10 = a[3], r.r8 = a[4], r.r9 = a[5];
	return rc < 0 ? rc
		      : begin(thread, &r, thread->traps ? PTRACE_SYSCALL : PTRACE_SINGLESTEP,
				t->syscall_at + 2);
}

static long end_call(struct tracee *t, size_t i)
{
	struct user_regs_struct r;
	int rc = tracee_await(&t->threads[i], false);

	if (rc == 0)
		rc = tracee_trace(PTRACE_GETREGS, t->threads[i].host, 0, &r);
	return rc < 0 ? rc : (long)r.rax;
}

/* Whoever is stepped over a call sees it. */
static bool is_to_repeat(long rc)
{
	return rc <= -RESTART_SYS && rc >= -RESTART_NO_HAND;
}

long tracee_call(struct tracee *t, size_t i, long nr, const uint64_t a[6])
{
	long rc = -RESTART_SYS;

	/* only a SIGSTOP that comes in that instant can be the reason, and it is handed on */
	for (int n = 0; n < REPEATS_MAX && is_to_repeat(rc); n++) {
		rc = begin_call(t, i, nr, a);
		if (rc == 0)
			rc = end_call(t, i);
	}
	return rc;
}

/* --- memory --- */

int tracee_read(const struct tracee *t, uint64_t address, void *to, size_t n)
{
	struct iovec local = { to, n }, remote = { (void *)(uintptr_t)address, n };
	ssize_t got = process_vm_readv(t->host, &local, 1, &remote, 1, 0);

	if (got < 0 && errno == EPERM)
		return tracee_read_words(t, address, to, n);
	return got < 0 ? -errno : (size_t)got == n ? 0 : -EFAULT;
}

int tracee_write(const struct tracee *t, uint64_t address, const void *from, size_t n)
{
	struct iovec local = { (void *)(uintptr_t)from, n },
		     remote = { (void *)(uintptr_t)address, n };
	ssize_t got = process_vm_writev(t->host, &local, 1, &remote, 1, 0);

	return got < 0 ? -errno : (size_t)got == n ? 0 : -EFAULT;
}

/* Shared: never merged with a neighbour. */
static int begin_map(struct tracee *t, uint64_t protection)
{
	uint64_t a[6] = { 0, TRACEE_MEMORY, PROT_READ | PROT_WRITE | protection,
		MAP_SHARED | MAP_ANONYMOUS, ~0ULL, 0 };

	/* its filters may not want memory that is executed */
	if (t->n_threads > 0 && !tracee_may_call(t, 0, SYS_mmap, a)) {
		t->no_programs = true;
		a[2] &= ~(uint64_t)PROT_EXEC;
	}
	return begin_call(t, 0, SYS_mmap, a);
}

static int end_map(struct tracee *t)
{
	long at = end_call(t, 0);
	int rc;

	if (at == -EACCES || at == -EPERM) {
		/* this process may have no memory that is written and executed (PR_SET_MDWE) */
		t->no_programs = true;
		rc = begin_map(t, 0);
		at = rc < 0 ? rc : end_call(t, 0);
	}
	if (at < 0 && at > -4096)
		return (int)at;
	t->scratch = (uint64_t)at;
	return t->no_programs ? 0
			      : tracee_write(t, t->scratch + PROGRAM_AT, program, sizeof(program));
}

/* Of all that have none, at the same time. Those of one process stand together. */
static int make_scratches(struct tracee_asked *all, size_t n)
{
	int rc = 0, this;

	for (size_t i = 0; i < n; i++) {
		all[i].now = all[i].t->scratch == 0 && (i == 0 || all[i - 1].t != all[i].t);
		if (all[i].now == 0)
			continue;
		this = begin_map(all[i].t, PROT_EXEC);
		all[i].now = this == 0;
		rc = rc < 0 ? rc : this;
	}
	for (size_t i = 0; i < n; i++) {
		this = all[i].now ? end_map(all[i].t) : 0;
		rc = rc < 0 ? rc : this;
	}
	return rc;
}

int tracee_scratch(struct tracee *t)
{
	return t->scratch != 0 ? 0 : make_scratches(&(struct tracee_asked){ .t = t }, 1);
}

void tracee_scratch_end(struct tracee *const *all, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (all[i]->scratch != 0 &&
			begin_call(all[i], 0, SYS_munmap,
				(const uint64_t[6]){ all[i]->scratch, TRACEE_MEMORY }) < 0)
			all[i]->scratch = 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (all[i]->scratch != 0)
			(void)end_call(all[i], 0);
		all[i]->scratch = 0;
	}
}

/* --- many calls --- */

uint64_t tracee_row_at(const struct tracee *t, size_t row)
{
	return t->scratch + ROWS_AT + row * sizeof(struct tracee_row);
}

bool tracee_programs(const struct tracee *t, size_t i)
{
	return !t->no_programs && !t->threads[i].traps;
}

int tracee_run_rows(struct tracee *t, struct tracee_thread *thread, size_t row, size_t n)
{
	struct user_regs_struct r = thread->registers;

	r.rip = t->scratch + PROGRAM_AT;
	r.orig_rax = ~0ULL; /* no call to restart */
	r.rbx = tracee_row_at(t, row);
	r.rbp = tracee_row_at(t, row + n);
	return begin(thread, &r, PTRACE_CONT, t->scratch + PROGRAM_AT + sizeof(program));
}

static struct tracee_row rows[ROWS_MAX]; /* while they are written or read */

/* What is known has no row. */
static int write_rows(struct tracee_asked *a)
{
	bool allowed = true;
	size_t n = 0;

	for (size_t i = 0; i < a->now; i++) {
		const struct tracee_question *q = &a->questions[a->done + i];

		if (q->known)
			continue;
		rows[n] = (struct tracee_row){ .nr = (uint64_t)q->nr };
		memcpy(rows[n].arguments, q->arguments, sizeof(q->arguments));
		if (q->into != 0)
			rows[n].arguments[q->into - 1] = tracee_row_at(a->t, a->row + n) +
							 offsetof(struct tracee_row, answer);
		allowed = allowed && tracee_may_call(a->t, a->thread, q->nr, rows[n].arguments);
		n++;
	}
	if (!allowed)
		return -EACCES;
	a->rows = n;
	return tracee_write(a->t, tracee_row_at(a->t, a->row), rows, n * sizeof(*rows));
}

/* The question of the next row: behind number @at of the present ones. */
static struct tracee_question *next_asked(const struct tracee_asked *a, size_t *at)
{
	while (a->questions[a->done + *at].known)
		++*at;
	return &a->questions[a->done + (*at)++];
}

/* Where the calls cannot be made by the program. */
static void make_singly(struct tracee_asked *a)
{
	size_t at = 0;

	for (size_t i = 0; i < a->rows; i++)
		next_asked(a, &at)->result =
			tracee_call(a->t, a->thread, (long)rows[i].nr, rows[i].arguments);
}

static int begin_rows(struct tracee_asked *a)
{
	int rc = write_rows(a);

	if (rc < 0 || a->rows == 0)
		return rc;
	if (tracee_programs(a->t, a->thread))
		return tracee_run_rows(a->t, &a->t->threads[a->thread], a->row, a->rows);
	make_singly(a);
	return 0;
}

static int end_rows(struct tracee_asked *a)
{
	bool programs = tracee_programs(a->t, a->thread);
	int rc = programs && a->rows > 0 ? tracee_await(&a->t->threads[a->thread], false) : 0;
	size_t at = 0;

	if (rc == 0)
		rc = tracee_read(a->t, tracee_row_at(a->t, a->row), rows, a->rows * sizeof(*rows));
	for (size_t i = 0; rc == 0 && i < a->rows; i++) {
		struct tracee_question *q = next_asked(a, &at);

		if (programs)
			q->result = rows[i].result;
		memcpy(q->answer, rows[i].answer, sizeof(q->answer));
	}
	a->done += a->now;
	return rc;
}

/* As many questions as have room. Return: 1 when there are more, 0, -errno. */
static int ask_some(struct tracee_asked *all, size_t n)
{
	size_t row = 0;
	int rc = 0, this, more = 0;

	for (size_t i = 0; i < n; i++) {
		struct tracee_asked *a = &all[i];
		size_t left = a->n - a->done;

		row = i > 0 && all[i - 1].t == a->t ? row + all[i - 1].now : 0;
		a->now = left < ROWS_MAX - row ? left : ROWS_MAX - row;
		a->row = row;
		more |= left > a->now;
		this = a->now > 0 ? begin_rows(a) : 0;
		if (this < 0)
			a->now = 0;
		rc = rc < 0 ? rc : this;
	}
	for (size_t i = 0; i < n; i++) {
		this = all[i].now > 0 ? end_rows(&all[i]) : 0;
		rc = rc < 0 ? rc : this;
	}
	return rc < 0 ? rc : more;
}

int tracee_ask(struct tracee_asked *all, size_t n)
{
	int rc = make_scratches(all, n);

	for (size_t i = 0; i < n; i++)
		all[i].done = 0;
	do
		rc = rc < 0 ? rc : ask_some(all, n);
	while (rc > 0);
	return rc;
}
