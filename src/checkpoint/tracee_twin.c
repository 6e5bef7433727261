/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/tracee_twin.c - copy-on-write copies of stopped processes.
 *
 * By way of a helper that shares the memory and ends at once, so that the twin is no child of the process: nobody waits for it but init. The helper's end sends no signal, and
 * a wait without __WALL does not see it. What each does is in rows of the scratch memory, which all three share; all processes are at the same step at the same time:
 *
 *	process  clone -------------------------------- wait4 (helper) - end
 *	helper        `- clone ---- killed ------------'
 *	twin                `- close_range - setsid - end
 */
#include "base/buf.h"
#include "checkpoint/tracee_parts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { ROW_HELPER, ROW_WAIT, ROW_TWIN, ROW_CLOSE, ROW_SESSION, ROWS };

#define HELPER_FLAGS (CLONE_VM | CLONE_FILES | CLONE_FS)
#define NOBODY       INT32_MAX /* is no process's number */

/* A process that a call of @t made: stopped since before its first instruction. */
static int adopt(const struct tracee *t, pid_t host, struct tracee *ret)
{
	int rc = tracee_wait(host);

	*ret = (struct tracee){ .host = host,
		.proc = -1,
		.syscall_at = t->syscall_at,
		.scratch = t->scratch,
		.no_programs = t->no_programs };
	ret->threads = calloc(1, sizeof(*ret->threads));
	if (ret->threads == NULL)
		abort();
	ret->n_threads = 1;
	ret->threads[0] = (struct tracee_thread){ .host = host,
		.registers = t->threads[0].registers,
		.traps = t->threads[0].traps,
		.own = t->threads[0].own,
		.n_own = t->threads[0].n_own,
		.changed = true };
	return rc < 0 ? rc : 0;
}

static int open_proc(struct tracee *t)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d", t->host);
	t->proc = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return t->proc < 0 ? -errno : 0;
}

/* Its session has the number that it has itself. */
static int take_session(struct tracee_pair *p, long session)
{
	if (session < 0)
		return -EPERM;
	p->twin->inner = (pid_t)session;
	return 0;
}

/* --- where nobody can be given a program: one call after the other --- */

static int twin_by_calls(struct tracee_pair *p)
{
	struct tracee *t = p->t;
	long inner = TRACEE_CALL(t, 0, SYS_clone, HELPER_FLAGS), made = 0;
	int rc;

	if (inner < 0)
		return (int)inner;
	rc = adopt(t, t->threads[0].child, &p->helper);
	if (rc == 0)
		made = TRACEE_CALL(&p->helper, 0, SYS_clone, SIGCHLD);
	if (made > 0)
		rc = adopt(t, p->helper.threads[0].child, p->twin);
	if (made > 0 && rc == 0)
		rc = open_proc(p->twin);
	tracee_end(&p->helper);
	if (TRACEE_CALL(t, 0, SYS_wait4, (uint64_t)inner, 0, __WALL) != inner && rc == 0)
		rc = -ECHILD;
	if (made < 0)
		rc = (int)made;
	/* what is sent to the group is not for it; what is closed shall be closed */
	if (rc == 0)
		rc = (int)TRACEE_CALL(p->twin, 0, SYS_close_range, 0, ~0U, 0);
	if (rc == 0)
		rc = take_session(p, TRACEE_CALL(p->twin, 0, SYS_setsid));
	return rc;
}

/* --- by programs --- */

/* The clone itself writes the helper's number, as the process sees it, into the call that waits for it. */
static int write_rows(const struct tracee *t)
{
	const uint64_t number = tracee_row_at(t, ROW_WAIT) + offsetof(struct tracee_row, arguments);
	const struct tracee_row rows[ROWS] = {
		[ROW_HELPER] = { SYS_clone, { HELPER_FLAGS | CLONE_PARENT_SETTID, 0, number } },
		[ROW_WAIT] = { SYS_wait4, { NOBODY, 0, __WALL } },
		[ROW_TWIN] = { SYS_clone, { SIGCHLD } },
		/* what is sent to the group is not for it; what is closed shall be closed */
		[ROW_CLOSE] = { SYS_close_range, { 0, ~0U, 0 } },
		[ROW_SESSION] = { SYS_setsid },
	};

	return tracee_write(t, tracee_row_at(t, 0), rows, sizeof(rows));
}

static void begin_process(struct tracee_pair *p)
{
	p->rc = write_rows(p->t);
	if (p->rc == 0)
		p->rc = tracee_run_rows(p->t, &p->t->threads[0], ROW_HELPER, 2);
	p->begun = p->runs = p->rc == 0;
}

/* @t was to make a child by its row @row. Return: 0 with it in @ret, or what the call said. */
static int take_child(struct tracee *t, size_t row, struct tracee *ret)
{
	struct tracee_row said;
	int rc = tracee_await(&t->threads[0], true);

	if (rc > 0)
		return adopt(t, t->threads[0].child, ret);
	if (rc == 0)
		rc = tracee_read(t, tracee_row_at(t, row), &said, sizeof(said));
	return rc < 0 ? rc : said.result < 0 ? (int)said.result : -ECHILD;
}

static void begin_helper(struct tracee_pair *p)
{
	p->rc = take_child(p->t, ROW_HELPER, &p->helper);
	if (p->rc == 0)
		p->rc = tracee_run_rows(p->t, &p->helper.threads[0], ROW_TWIN, 1);
	/* it waits for the helper's end; without one it has come to its own */
	p->runs = p->helper.host != 0 && tracee_on(&p->t->threads[0]) == 0;
}

static void begin_twin(struct tracee_pair *p)
{
	if (p->rc == 0)
		p->rc = take_child(&p->helper, ROW_TWIN, p->twin);
	if (p->helper.host != 0)
		(void)kill(p->helper.host, SIGKILL);
	if (p->rc == 0)
		p->rc = open_proc(p->twin);
	if (p->rc == 0)
		p->rc = tracee_run_rows(p->twin, &p->twin->threads[0], ROW_CLOSE, 2);
}

static int check_rows(struct tracee_pair *p)
{
	struct tracee_row rows[ROWS];
	int rc = tracee_read(p->t, tracee_row_at(p->t, 0), rows, sizeof(rows));

	if (rc < 0)
		return rc;
	if (rows[ROW_WAIT].result != rows[ROW_HELPER].result)
		return -ECHILD;
	if (rows[ROW_CLOSE].result < 0)
		return (int)rows[ROW_CLOSE].result;
	return take_session(p, rows[ROW_SESSION].result);
}

static void end_pair(struct tracee_pair *p)
{
	int rc = p->rc;

	if (rc == 0)
		rc = tracee_await(&p->twin->threads[0], false);
	tracee_end(&p->helper);
	if (p->runs)
		p->rc = tracee_await(&p->t->threads[0], false);
	if (rc == 0)
		rc = p->rc;
	p->rc = rc == 0 ? check_rows(p) : rc;
}

/* A process that runs is waited for, whatever has become of its twin. */
static void make_by_programs(struct tracee_pair *all, size_t n)
{
	static void (*const steps[])(
		struct tracee_pair * p) = { begin_process, begin_helper, begin_twin, end_pair };

	for (size_t s = 0; s < ARRAY_SIZE(steps); s++) {
		for (size_t i = 0; i < n; i++) {
			if (all[i].programs && (s == 0 || all[i].begun))
				steps[s](&all[i]);
		}
	}
}

/* Its filters hold for its copy, too. */
static bool may_be_copied(const struct tracee *t)
{
	static const struct {
		long nr;
		uint64_t arguments[6];
	} calls[] = { { SYS_clone, { HELPER_FLAGS } },
		{ SYS_clone, { HELPER_FLAGS | CLONE_PARENT_SETTID } }, { SYS_clone, { SIGCHLD } },
		{ SYS_wait4, { NOBODY, 0, __WALL } }, { SYS_close_range, { 0, ~0U } },
		{ SYS_setsid, { 0 } } };

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		if (!tracee_may_call(t, 0, calls[i].nr, calls[i].arguments))
			return false;
	}
	return true;
}

int tracee_twins(struct tracee_pair *all, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		struct tracee_pair *p = &all[i];

		*p = (struct tracee_pair){ .t = p->t, .twin = p->twin, .helper = { .proc = -1 } };
		*p->twin = (struct tracee){ .proc = -1 };
		p->rc = may_be_copied(p->t) ? 0 : -EACCES;
		rc = rc < 0 ? rc : p->rc;
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct tracee_pair *p = &all[i];

		/* whether it may have programs shows when it has the memory for one */
		p->rc = tracee_scratch(p->t);
		p->programs = p->rc == 0 && tracee_programs(p->t, 0);
	}
	if (rc < 0)
		return rc;
	make_by_programs(all, n);
	for (size_t i = 0; i < n; i++) {
		if (!all[i].programs && all[i].rc == 0 && rc == 0)
			all[i].rc = twin_by_calls(&all[i]);
		rc = rc < 0 ? rc : all[i].rc;
	}
	for (size_t i = 0; rc < 0 && i < n; i++)
		tracee_end(all[i].twin);
	return rc;
}

void tracee_end(struct tracee *t)
{
	int status;

	if (t->host == 0)
		return;
	if (kill(t->host, SIGKILL) == 0) {
		while (waitpid(t->host, &status, __WALL) == t->host && WIFSTOPPED(status))
			;
	}
	free(t->threads);
	if (t->proc >= 0)
		(void)close(t->proc);
	*t = (struct tracee){ .proc = -1 };
}
