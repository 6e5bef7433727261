/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_ask.c - what only the processes themselves can tell: asked of all threads at the same time, so that it takes as long as the slowest and not as all of them.
 *
 * The questions of a process stand in one list: three for each thread but the first, then those for the first, which answers for the process. Another list is for what a twin has
 * inherited, which waits for nobody.
 */
#include "checkpoint/asker.h"
#include "checkpoint/dump.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define THREAD_ASKED 3U
#ifndef PR_GET_MDWE
#define PR_GET_MDWE 66
#endif
#define BARRIERS_REGISTERED (1U << 9) /* MEMBARRIER_CMD_GET_REGISTRATIONS */
#define ARCH_GET_XCOMP_PERM 0x1022

static struct tracee_question *first_of_process(const struct dump_process *p)
{
	return p->told + (p->tracee.n_threads - 1) * THREAD_ASKED;
}

const struct tracee_question *dump_told_thread(const struct dump_process *p, size_t i)
{
	return i == 0 ? first_of_process(p) : p->told + (i - 1) * THREAD_ASKED;
}

const struct tracee_question *dump_told(const struct dump_process *p, enum dump_told what)
{
	return first_of_process(p) + THREAD_ASKED + what;
}

static void ask_of_thread(struct tracee_question *q)
{
	q[0] = (struct tracee_question){ .nr = SYS_sigaltstack, .into = 2 };
	q[1] = (struct tracee_question){
		.nr = SYS_prctl, .arguments = { PR_GET_TID_ADDRESS }, .into = 2
	};
	q[2] = (struct tracee_question){ .nr = SYS_prctl, .arguments = { PR_GET_TIMERSLACK } };
}

/* Of each of its descriptors, too, when they are known. */
static void ask_of_process(const struct dump_process *p, struct tracee_question *q)
{
	q[TOLD_DEATH_SIGNAL] = (struct tracee_question){
		.nr = SYS_prctl, .arguments = { PR_GET_PDEATHSIG }, .into = 2
	};
	q[TOLD_SUBREAPER] = (struct tracee_question){
		.nr = SYS_prctl, .arguments = { PR_GET_CHILD_SUBREAPER }, .into = 2
	};
	q[TOLD_BARRIERS] = (struct tracee_question){ .nr = SYS_membarrier,
		.arguments = { BARRIERS_REGISTERED } };
	for (unsigned int i = 0; i < 3; i++)
		q[TOLD_ITIMERS + i] = (struct tracee_question){ .nr = SYS_getitimer,
			.arguments = { i },
			.into = 2,
			.known = (p->quiet & ASKED_NO_TIMERS) != 0 };
	for (size_t i = 0; i < p->n_fds; i++)
		q[TOLD_FDS + i] = (struct tracee_question){ .nr = SYS_fcntl,
			.arguments = { (uint64_t)p->fds[i], F_GETFD } };
}

/* @all: gets one for each thread of @p. */
static void prepare(struct dump_process *p, struct tracee_asked *all)
{
	size_t n = p->tracee.n_threads, of_first = THREAD_ASKED + TOLD_FDS + p->n_fds;

	p->told = calloc((n - 1) * THREAD_ASKED + of_first, sizeof(*p->told));
	if (p->told == NULL)
		abort();
	for (size_t i = 0; i < n; i++) {
		struct tracee_question *q = p->told + (dump_told_thread(p, i) - p->told);

		ask_of_thread(q);
		all[i] = (struct tracee_asked){ .t = &p->tracee,
			.thread = i,
			.questions = q,
			.n = i == 0 ? of_first : THREAD_ASKED };
	}
	ask_of_process(p, first_of_process(p) + THREAD_ASKED);
}

/* What is queued is to be seen as it is before anything runs. */
static int read_queues(struct dump *d, struct dump_process *p)
{
	size_t n = p->tracee.n_threads;
	int rc = 0;

	p->queued = calloc(n + 1, sizeof(*p->queued));
	if (p->queued == NULL)
		abort();
	for (size_t i = 0; rc == 0 && i <= n; i++)
		rc = dump_queue(d, p, i < n ? p->tracee.threads[i].host : p->tracee.host, i == n,
			p->queued + i);
	return rc;
}

/* Nothing is known yet of who could not be looked at but what anybody may know. */
static int open_up(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = d->order->suspended == 0 ? 0 : tracee_open(&p->tracee);

	if (rc == -ENOEXEC)
		return dump_refuse(p, err,
			"it is not dumpable (prctl(2)), and has unmapped the page that a fork or resume has left in it");
	if (rc < 0)
		return err_raise_sys(err, rc, "look at process %d (%s), which is not dumpable",
			p->tracee.inner, p->name);
	return p->tracee.opened ? dump_text(p, err) : 0;
}

static int check(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = dump_creds_check(d, p, err);

	if (rc < 0)
		return rc;
	rc = read_queues(d, p);
	if (rc < 0)
		return err_raise_sys(
			err, rc, "read the signals of process %d (%s)", p->tracee.inner, p->name);
	rc = open_up(d, p, err);
	if (rc < 0)
		return rc;
	rc = dump_read_maps(p, err);
	if (rc < 0)
		return rc;
	tracee_mapped(&p->tracee, &p->maps);
	rc = dump_list_fds(p);
	return rc < 0 ? err_raise_sys(err, rc, "list the descriptors of process %d (%s)",
				p->tracee.inner, p->name)
		      : dump_shares_check(d, p, err);
}

/* The first of which there is nothing else to say. */
static int refuse_uncallable(const struct dump *d, struct err *err)
{
	size_t i = 0;

	while (i + 1 < d->n &&
		(d->processes[i].tracee.zombie || d->processes[i].tracee.syscall_at != 0))
		i++;
	return dump_refuse(&d->processes[i], err,
		"it has unmapped the code that the kernel maps into every process (the vDSO), and no code of a file that is mapped makes a system call");
}

int dump_ask(struct dump *d, struct err *err)
{
	struct tracee_asked *all;
	size_t n = 0, threads = 1;
	int rc = 0;

	for (size_t i = 0; i < d->n; i++)
		threads += d->processes[i].tracee.n_threads;
	all = calloc(threads, sizeof(*all));
	if (all == NULL)
		abort();
	for (size_t i = 0; rc == 0 && i < d->n; i++) {
		struct dump_process *p = &d->processes[i];

		if (p->tracee.zombie)
			continue;
		rc = check(d, p, err);
		if (rc == 0)
			prepare(p, all + n);
		n += p->tracee.n_threads;
	}
	if (rc == 0) {
		rc = tracee_ask(all, n);
		if (rc == -ENOEXEC)
			rc = refuse_uncallable(d, err);
		else if (rc < 0)
			rc = err_raise_sys(err, rc, "ask the processes about themselves");
	}
	free(all);
	return rc;
}

/* --- what is inherited --- */

const struct tracee_question *dump_inherited(const struct dump_process *p, enum dump_inherited what)
{
	return p->inherited + what;
}

static struct tracee_question of_prctl(int option)
{
	return (struct tracee_question){ .nr = SYS_prctl, .arguments = { (uint64_t)option } };
}

/* Return: how many questions there are for @p. @q: gets at most INHERITED_ACTIONS + IMAGE_SIGNALS. */
static size_t ask_inherited(const struct dump_process *p, struct tracee_question *q)
{
	size_t n = INHERITED_ACTIONS;

	q[INHERITED_DUMPABLE] = of_prctl(PR_GET_DUMPABLE);
	q[INHERITED_SECUREBITS] = of_prctl(PR_GET_SECUREBITS);
	q[INHERITED_THP_DISABLE] = of_prctl(PR_GET_THP_DISABLE);
	q[INHERITED_NO_NEW_CODE] = of_prctl(PR_GET_MDWE);
	q[INHERITED_MAY_EXTEND] = (struct tracee_question){
		.nr = SYS_arch_prctl, .arguments = { ARCH_GET_XCOMP_PERM }, .into = 2
	};
	q[INHERITED_BRK] = (struct tracee_question){ .nr = SYS_brk };
	for (unsigned int sig = 1; sig <= IMAGE_SIGNALS; sig++) {
		if (dump_has_action(p, sig))
			q[n++] = (struct tracee_question){ .nr = SYS_rt_sigaction,
				.arguments = { sig, 0, 0, sizeof(uint64_t) },
				.into = 3 };
	}
	return n;
}

static size_t prepare_inherited(struct dump_process *p)
{
	p->inherited = calloc((size_t)INHERITED_ACTIONS + IMAGE_SIGNALS, sizeof(*p->inherited));
	if (p->inherited == NULL)
		abort();
	return ask_inherited(p, p->inherited);
}

size_t dump_questions(
	const struct dump_process *p, size_t i, struct tracee_question ret[DUMP_QUESTIONS_MAX])
{
	ask_of_thread(ret);
	if (i > 0)
		return THREAD_ASKED;
	ask_of_process(p, ret + THREAD_ASKED);
	return THREAD_ASKED + TOLD_FDS + ask_inherited(p, ret + THREAD_ASKED + TOLD_FDS);
}

int dump_ask_sources(struct dump *d, struct err *err)
{
	struct tracee_asked *all = calloc(d->n + 1, sizeof(*all));
	size_t n = 0;
	int rc;

	if (all == NULL)
		abort();
	for (size_t i = 0; i < d->n; i++) {
		struct dump_process *p = &d->processes[i];

		if (p->tracee.zombie)
			continue;
		all[n] = (struct tracee_asked){ .t = dump_source(p), .n = prepare_inherited(p) };
		all[n++].questions = p->inherited;
	}
	rc = tracee_ask(all, n);
	free(all);
	return rc < 0 ? err_raise_sys(err, rc, "ask the copies of the processes") : 0;
}

void dump_ask_end(struct dump_process *p)
{
	free(p->inherited);
	p->inherited = NULL;
	free(p->told);
	free(p->queued);
	free(p->fds);
	p->told = NULL;
	p->queued = NULL;
	p->fds = NULL;
}
