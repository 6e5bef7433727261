/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_signals.c - dispositions, interval timers, queues; who is stopped. */
#include "checkpoint/dump.h"

#include <signal.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#define QUEUE_BATCH 16

/* SIGSTOP is nothing that waits: whoever is given it is stopped. */
static uint32_t add_signals(struct dump *d, struct dump_process *p, const siginfo_t *infos, long n)
{
	uint32_t added = 0;

	for (long i = 0; i < n; i++) {
		if (infos[i].si_signo == SIGSTOP) {
			p->to_stop = true;
			continue;
		}
		(void)image_add(&d->image, TABLE_SIGINFOS, &infos[i], sizeof(struct image_siginfo));
		added++;
	}
	return added;
}

int dump_queue(struct dump *d, struct dump_process *p, int32_t tid, bool whole_process,
	struct dump_queued *ret)
{
	struct __ptrace_peeksiginfo_args args = {
		.flags = whole_process ? PTRACE_PEEKSIGINFO_SHARED : 0, .nr = QUEUE_BATCH
	};
	siginfo_t infos[QUEUE_BATCH];
	long n;

	*ret = (struct dump_queued){ .first = image_count(&d->image, TABLE_SIGINFOS,
					     sizeof(struct image_siginfo)) };
	while ((n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, infos)) > 0) {
		ret->n += add_signals(d, p, infos, n);
		args.off += (uint64_t)n;
	}
	ret->length = (uint32_t)args.off;
	return n < 0 ? -errno : 0;
}

bool dump_has_action(const struct dump_process *p, unsigned int signal)
{
	uint64_t caught = proc_number(p->status, "SigCgt", 16, 0),
		 ignored = proc_number(p->status, "SigIgn", 16, 0);

	/* SIGCHLD by default still has flags that matter */
	return ((caught | ignored) >> (signal - 1) & 1) != 0 || signal == SIGCHLD;
}

static int read_actions(struct dump_process *p)
{
	const struct tracee_question *q = dump_inherited(p, INHERITED_ACTIONS);

	for (unsigned int sig = 1; sig <= IMAGE_SIGNALS; sig++) {
		if (!dump_has_action(p, sig))
			continue;
		if (q->result < 0)
			return (int)q->result;
		_Static_assert(sizeof(q->answer) == sizeof(p->out.actions[0]), "it is one");
		memcpy(&p->out.actions[sig - 1], q->answer, sizeof(q->answer));
		q++;
	}
	return 0;
}

static int read_itimers(struct dump_process *p)
{
	const struct tracee_question *q = dump_told(p, TOLD_ITIMERS);

	for (unsigned int i = 0; i < 3; i++) {
		struct itimerval now;

		if (q[i].result < 0)
			return (int)q[i].result;
		memcpy(&now, q[i].answer, sizeof(now));
		p->out.itimers[i].interval_us = (uint64_t)now.it_interval.tv_sec * 1000000 +
						(uint64_t)now.it_interval.tv_usec;
		p->out.itimers[i].value_us =
			(uint64_t)now.it_value.tv_sec * 1000000 + (uint64_t)now.it_value.tv_usec;
	}
	return 0;
}

int dump_actions(struct dump_process *p, struct err *err)
{
	int rc = read_actions(p);

	return rc < 0 ? err_raise_sys(err, rc, "read the signal dispositions of process %d (%s)",
				p->tracee.inner, p->name)
		      : 0;
}

int dump_signals(struct dump_process *p, struct err *err)
{
	int rc = read_itimers(p);

	p->out.first_siginfo = p->queued[p->tracee.n_threads].first;
	p->out.n_siginfos = p->queued[p->tracee.n_threads].n;
	return rc < 0 ? err_raise_sys(err, rc, "read the interval timers of process %d (%s)",
				p->tracee.inner, p->name)
		      : 0;
}

/* --- what has come since --- */

/* Is @info of a timer of @p that is not set any more? */
static bool is_last_of_timer(struct dump *d, const struct dump_process *p, const siginfo_t *info)
{
	if (info->si_signo == SIGALRM && info->si_code == SI_KERNEL)
		return p->out.itimers[ITIMER_REAL].value_us == 0;
	for (uint32_t i = 0; info->si_code == SI_TIMER && i < p->out.n_timers; i++) {
		const struct image_timer *t = image_row(&d->image, TABLE_TIMERS,
			p->out.first_timer + i, sizeof(struct image_timer));

		if (t->id == info->si_timerid)
			return t->value_s == 0 && t->value_ns == 0;
	}
	return false;
}

/* Nothing is taken out of a queue meanwhile: what is new is at its end. Return: 1, 0, or -errno. */
static int has_fired(struct dump *d, const struct dump_process *p, size_t queue)
{
	const bool whole_process = queue == p->tracee.n_threads;
	struct __ptrace_peeksiginfo_args args = { .off = p->queued[queue].length,
		.flags = whole_process ? PTRACE_PEEKSIGINFO_SHARED : 0,
		.nr = QUEUE_BATCH };
	siginfo_t infos[QUEUE_BATCH];
	long n;

	while ((n = ptrace(PTRACE_PEEKSIGINFO,
			whole_process ? p->tracee.host : p->tracee.threads[queue].host, &args,
			infos)) > 0) {
		for (long i = 0; i < n; i++) {
			if (is_last_of_timer(d, p, infos + i))
				return 1;
		}
		args.off += (uint64_t)n;
	}
	return n < 0 ? -errno : 0;
}

int dump_fired(struct dump *d, struct err *err)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct dump_process *p = &d->processes[i];
		int rc = 0;

		/* those of interval timers are its whole process's */
		for (size_t q = p->out.n_timers > 0 ? 0 : p->tracee.n_threads;
			rc == 0 && !p->tracee.zombie && q <= p->tracee.n_threads; q++)
			rc = has_fired(d, p, q);
		if (rc < 0)
			return err_raise_sys(err, rc, "read the signals of process %d (%s)",
				p->tracee.inner, p->name);
		if (rc > 0) {
			rc = dump_refuse(p, err, "one of its timers has gone off just now");
			err->code = ERR_BUSY;
			return rc;
		}
	}
	return 0;
}

/* --- stopped processes --- */

/* Whether the parent @q could still be told that @p is stopped. Return: 1, 0, or -errno. */
static int is_news(struct dump_process *q, const struct dump_process *p)
{
	struct tracee *t = &q->tracee;
	int32_t pid = 0;
	long rc = tracee_scratch(t);

	if (rc == 0)
		rc = tracee_write(t, t->scratch + offsetof(siginfo_t, si_pid), &pid, sizeof(pid));
	if (rc == 0)
		rc = TRACEE_CALL(t, 0, SYS_waitid, P_PID, (uint64_t)p->tracee.inner, t->scratch,
			WSTOPPED | WNOHANG | WNOWAIT | __WALL, 0);
	if (rc == 0)
		rc = tracee_read(t, t->scratch + offsetof(siginfo_t, si_pid), &pid, sizeof(pid));
	return rc < 0 ? (int)rc : pid == p->tracee.inner;
}

int dump_stopped(struct dump *d, struct err *err)
{
	for (size_t i = 0; i < d->n; i++) {
		struct dump_process *p = &d->processes[i], *q = dump_by_host_pid(d, p->stat.ppid);
		int news = 1;

		if (p->tracee.zombie || (!p->tracee.stopped && !p->to_stop))
			continue;
		if (p->tracee.stopped && q != NULL)
			news = is_news(q, p);
		if (news < 0)
			return err_raise_sys(err, news,
				"ask process %d (%s) for its stopped child %d", q->tracee.inner,
				q->name, p->tracee.inner);
		p->out.stopped = news ? IMAGE_STOPPED : IMAGE_STOPPED_HEARD;
		p->place.stopped = true;
	}
	return 0;
}
