/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_signals.c - dispositions, interval timers, queues. */
#include "checkpoint/dump.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>

#define QUEUE_BATCH 16

int dump_queue(struct dump *d, int32_t tid, bool whole_process)
{
	struct __ptrace_peeksiginfo_args args = {
		.flags = whole_process ? PTRACE_PEEKSIGINFO_SHARED : 0, .nr = QUEUE_BATCH
	};
	siginfo_t infos[QUEUE_BATCH];
	long n;

	while ((n = ptrace(PTRACE_PEEKSIGINFO, tid, &args, infos)) > 0) {
		for (long i = 0; i < n; i++)
			(void)image_add(
				&d->image, TABLE_SIGINFOS, &infos[i], sizeof(struct image_siginfo));
		args.off += (uint64_t)n;
	}
	return n < 0 ? -errno : (int)args.off;
}

static int read_actions(struct dump_process *p)
{
	uint64_t caught = proc_number(p->status, "SigCgt", 16, 0),
		 ignored = proc_number(p->status, "SigIgn", 16, 0);
	struct tracee *t = dump_source(p);
	long rc = tracee_scratch(t);

	for (unsigned int sig = 1; rc == 0 && sig <= IMAGE_SIGNALS; sig++) {
		/* SIGCHLD by default still has flags that matter */
		if (((caught | ignored) >> (sig - 1) & 1) == 0 && sig != SIGCHLD)
			continue;
		rc = TRACEE_CALL(t, 0, SYS_rt_sigaction, sig, 0, t->scratch, 8);
		if (rc == 0)
			rc = tracee_read(
				t, t->scratch, &p->out.actions[sig - 1], sizeof(p->out.actions[0]));
	}
	return (int)rc;
}

static int read_itimers(struct dump_process *p)
{
	struct tracee *t = &p->tracee;
	long rc = tracee_scratch(t);

	for (unsigned int i = 0; rc == 0 && i < 3; i++) {
		struct itimerval now;

		rc = TRACEE_CALL(t, 0, SYS_getitimer, i, t->scratch);
		if (rc == 0)
			rc = tracee_read(t, t->scratch, &now, sizeof(now));
		if (rc < 0)
			break;
		p->out.itimers[i].interval_us = (uint64_t)now.it_interval.tv_sec * 1000000 +
						(uint64_t)now.it_interval.tv_usec;
		p->out.itimers[i].value_us =
			(uint64_t)now.it_value.tv_sec * 1000000 + (uint64_t)now.it_value.tv_usec;
	}
	return (int)rc;
}

int dump_actions(struct dump_process *p, struct err *err)
{
	int rc = read_actions(p);

	return rc < 0 ? err_raise_sys(err, rc, "read the signal dispositions of process %d (%s)",
				p->tracee.inner, p->name)
		      : 0;
}

int dump_signals(struct dump *d, struct dump_process *p, struct err *err)
{
	int rc = read_itimers(p);

	p->out.first_siginfo = image_count(&d->image, TABLE_SIGINFOS, sizeof(struct image_siginfo));
	if (rc == 0)
		rc = dump_queue(d, p->tracee.host, true);
	if (rc < 0)
		return err_raise_sys(
			err, rc, "read the signals of process %d (%s)", p->tracee.inner, p->name);
	p->out.n_siginfos = (uint32_t)rc;
	return 0;
}
