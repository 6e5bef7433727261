/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/examine.c - the refusal table of a capture over processes that run: what `cay doctor SANDBOX` tells. Whatever has ended or changed while it was looked at is left out;
 * what only a stopped process can be asked (registers, when timers go off) is not looked at. A capture looks again.
 *
 * Its POSIX timers are listed, and what a process has open is looked at through copies, as there, and as long as there is one what the process closes is not closed (dump_copies.c). So each stands still while they and its
 * descriptors are looked at, one process after the other. Nothing of it is changed: should we end meanwhile, it goes on.
 */
#include "checkpoint/dump.h"
#include "sys/file.h"

#include <stdlib.h>
#include <unistd.h>

static void watch_all(struct dump *d)
{
	for (uint32_t i = 0; i < d->order->n_pids; i++) {
		if (tracee_watch(&d->processes[d->n].tracee, d->order->pids[i]) == 0)
			d->n++;
		else
			tracee_release(&d->processes[d->n].tracee);
	}
}

/* LATE_MAX: processes that are waited for in vain, half a second each. How many wait in vfork() is the sandbox's to decide. */
#define STOPS    3
#define LATE_MAX 4

/* All threads of @host into @t, which knows none: also where one ended, or made another, while they were being stopped. */
static int stop_whole(struct tracee *t, pid_t host)
{
	int rc = -ESRCH;

	for (int i = 0; rc == -ESRCH && i < STOPS; i++) {
		tracee_release(t);
		tracee_hurry(true);
		rc = tracee_stop(t, host);
		tracee_hurry(false);
		if (rc == 0 && tracee_count_threads(t) != t->n_threads)
			rc = -ESRCH;
	}
	return rc;
}

/* Of who cannot be stopped now (it ends, waits for a child of vfork(), or is traced) nothing is told here. @late: of those so far. */
static int examine_files(
	struct dump *d, struct dump_process *p, unsigned int *late, struct err *err)
{
	struct tracee stopped = { .proc = -1 };
	int rc = *late == LATE_MAX ? -ETIMEDOUT : stop_whole(&stopped, p->tracee.host);

	*late += rc == -ETIMEDOUT && *late < LATE_MAX;
	/* while its directory is there the number is not another's */
	if (rc == 0 && faccessat(p->tracee.proc, "fd", F_OK, 0) == 0) {
		if (dump_timers(d, p, &stopped, err) < 0)
			(void)dump_note(d, err);
		rc = dump_files(d, p, err);
	}
	tracee_release(&stopped);
	return rc < 0 && err->code == ERR_NONE
		       ? err_raise_sys(err, rc, "stop process %d", p->tracee.inner)
		       : rc;
}

static void examine_one(struct dump *d, struct dump_process *p, unsigned int *late)
{
	struct err err = { 0 };

	/* and nothing else is seen of it */
	if (tracee_is_closed(&p->tracee)) {
		if (d->order->may_open == 0) {
			(void)dump_refuse(p, &err, DUMP_CLOSED);
			(void)dump_note(d, &err);
		}
		return;
	}
	if (proc_number(p->status, "TracerPid", 10, 0) != 0) {
		(void)dump_refuse(p, &err, DUMP_TRACED);
		(void)dump_note(d, &err);
	}
	if (dump_creds_check(d, p, &err) < 0)
		(void)dump_note(d, &err);
	if (examine_files(d, p, late, &err) < 0)
		(void)dump_note(d, &err);
	if (dump_maps(d, p, &err) < 0)
		(void)dump_note(d, &err);
}

static bool is_living(const struct dump_process *p)
{
	return !p->tracee.zombie && p->status != NULL;
}

/* One behind the other, before the descriptors of any are listed: what they open meanwhile would make them different. */
static void examine_shares(struct dump *d)
{
	struct err err = { 0 };

	for (size_t i = 0; i < d->n; i++) {
		const struct dump_process *p = &d->processes[i];

		if (is_living(p) && !tracee_is_closed(&p->tracee) &&
			dump_shares_check(d, p, &err) < 0)
			(void)dump_note(d, &err);
	}
}

/* Has somebody got another parent, or gone, since it was looked at? */
static bool has_moved(const struct dump *d)
{
	for (size_t i = 0; i < d->n; i++) {
		cleanup_buf struct buf text = BUF_INIT(4096);
		struct proc_stat now;

		if (file_read_at(d->processes[i].tracee.proc, "stat", &text) < 0 ||
			proc_stat_parse(buf_cstr(&text), &now) < 0 ||
			now.ppid != d->processes[i].stat.ppid)
			return true;
	}
	return false;
}

static void examine_order(struct dump *d)
{
	struct err err = { 0 };

	if (dump_order_check(d, &err) < 0) {
		if (has_moved(d))
			err.code = ERR_BUSY;
		(void)dump_note(d, &err);
	}
}

void dump_examine(struct dump *d, struct dump_examination *out)
{
	struct err err = { 0 };
	unsigned int late = 0;

	d->examination = out;
	d->processes = calloc(d->order->n_pids + 1, sizeof(*d->processes));
	if (d->processes == NULL)
		abort();
	watch_all(d);
	if (dump_tree(d, &err) < 0)
		(void)dump_note(d, &err);
	else
		examine_order(d);
	if (dump_sysv(d, &err) < 0)
		(void)dump_note(d, &err);
	examine_shares(d);
	for (size_t i = 0; i < d->n; i++) {
		if (is_living(&d->processes[i]))
			examine_one(d, &d->processes[i], &late);
	}
	if (dump_shared_check(d, &err) < 0)
		(void)dump_note(d, &err);
	if (dump_room_check(d, &err) < 0)
		(void)dump_note(d, &err);
	if (dump_files_end(d, &err) < 0)
		(void)dump_note(d, &err);
	if (dump_inotify_end(d, &err) < 0)
		(void)dump_note(d, &err);
	BUG_ON(d->n_copies > 0);
	for (size_t i = 0; i < d->n; i++)
		tracee_release(&d->processes[i].tracee);
}
