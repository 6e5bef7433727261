/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_stop.c - every process of an order stopped, and its dead found, or why one cannot be stopped. */
#include "base/fault.h"
#include "base/str.h"
#include "checkpoint/dump.h"
#include "sys/file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/** struct stranger - a process that could not be looked at, as it is called inside. */
struct stranger {
	int inner;
	char name[16];
	bool traced;
};

static struct stranger describe(int32_t pid)
{
	struct stranger out = { .inner = pid };
	cleanup_buf struct buf text = BUF_INIT(1 << 16);
	uint64_t numbers[32];
	char path[32];
	const char *name;
	size_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	if (file_read_at(AT_FDCWD, path, &text) < 0)
		return out;
	name = proc_value(buf_cstr(&text), "Name");
	if (name != NULL)
		(void)snprintf(out.name, sizeof(out.name), "%.*s", (int)strcspn(name, "\n"), name);
	str_utf8_tidy(out.name);
	n = proc_numbers(buf_cstr(&text), "NSpid", 10, numbers, ARRAY_SIZE(numbers));
	if (n > 0)
		out.inner = (int)numbers[n - 1];
	out.traced = proc_number(buf_cstr(&text), "TracerPid", 10, 0) != 0;
	return out;
}

static int cannot_stop(int32_t pid, int rc, struct err *err)
{
	struct stranger who = describe(pid);

	if (rc == -EPERM && who.traced)
		return err_raise(
			err, ERR_UNSUPPORTED, "process %d (%s): " DUMP_TRACED, who.inner, who.name);
	if (rc == -EPERM)
		return err_raise(err, ERR_BUSY,
			"process %d (%s) cannot be stopped just now: it has just become one that nobody may look at (prctl(2), PR_SET_DUMPABLE)",
			who.inner, who.name);
	if (rc == -ETIMEDOUT)
		return err_raise(err, ERR_BUSY,
			"process %d (%s) cannot be stopped just now: it waits for a child of vfork(), or for a device",
			who.inner, who.name);
	return err_raise_sys(err, rc, "stop process %d (%s)", who.inner, who.name);
}

/* No interrupt reaches it: neither does it stop in its time, nor does it notice that it was to. */
static bool is_uninterruptible(int32_t pid)
{
	cleanup_buf struct buf text = BUF_INIT(65536);
	struct proc_stat stat;
	char path[32];

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	return file_read_at(AT_FDCWD, path, &text) == 0 &&
	       proc_stat_parse(buf_cstr(&text), &stat) == 0 && stat.state == 'D';
}

int dump_stop_all(struct dump *d, struct err *err)
{
	bool late = false;
	int rc = 0;

	tracee_hurry(true);
	for (uint32_t i = 0; i < d->order->n_pids; i++) {
		int this;

		/* the others have their time, too: who is let go half-way notices. But hundreds of parents of vfork() would have half a second each */
		if (late && is_uninterruptible(d->order->pids[i]))
			tracee_expire();
		else if (late)
			tracee_hurry(true);
		this = tracee_stop(&d->processes[d->n++].tracee, d->order->pids[i]);
		late |= this == -ETIMEDOUT;
		if (this < 0 && rc == 0)
			rc = cannot_stop(d->order->pids[i], this, err);
		if (fault("live.dump.hang.stop") < 0)
			for (;;)
				(void)pause();
		d->n_stopped++;
	}
	tracee_hurry(false);
	return rc == 0 && d->left_behind != 0 ? cannot_stop(d->left_behind, -ETIMEDOUT, err) : rc;
}

void dump_stop_rest(struct dump *d)
{
	tracee_hurry(true);
	for (size_t i = d->n; i < d->order->n_pids; i++)
		(void)!tracee_stop(&d->processes[d->n++].tracee, d->order->pids[i]);
	tracee_hurry(false);
}

/* A group does not list its dead: they are children that nobody has waited for. */
static int add_zombie(struct dump *d, pid_t host)
{
	struct dump_process *more;
	int rc;

	if (dump_by_host_pid(d, host) != NULL)
		return 0;
	more = realloc(d->processes, (d->n + 2) * sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	d->processes = more;
	more[d->n] = (struct dump_process){ 0 };
	rc = tracee_stop(&more[d->n++].tracee, host);
	/* it came to its end while we looked: nobody may seize a dead one, nor wait for one that another seized, and a further try finds it so */
	if (rc == -EPERM || rc == -ECHILD)
		return -ESRCH;
	return rc == 0 && !more[d->n - 1].tracee.zombie ? -EPROTO : rc;
}

static int add_zombies_of(struct dump *d, size_t i, pid_t thread)
{
	cleanup_buf struct buf text = BUF_INIT(1 << 20);
	char path[48], *save = NULL;
	int rc;

	(void)snprintf(path, sizeof(path), "task/%d/children", thread);
	rc = file_read_at(d->processes[i].tracee.proc, path, &text);
	for (char *word = rc == 0 && text.n > 0 ? strtok_r(text.p, " ", &save) : NULL;
		rc == 0 && word != NULL; word = strtok_r(NULL, " ", &save)) {
		uint64_t pid;

		if (str_to_u64(word, 1, INT32_MAX, &pid) == 0)
			rc = add_zombie(d, (pid_t)pid);
	}
	return rc;
}

int dump_zombies(struct dump *d, struct err *err)
{
	size_t living = d->n;

	for (size_t i = 0; i < living; i++) {
		for (size_t j = 0; j < d->processes[i].tracee.n_threads; j++) {
			int rc = add_zombies_of(d, i, d->processes[i].tracee.threads[j].host);

			if (rc < 0)
				return err_raise_sys(err, rc,
					"look for ended children of process %d",
					d->processes[i].tracee.inner);
		}
	}
	return 0;
}
