/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_locks.c - file locks. The kernel shows on each descriptor the locks of its description (flock, OFD) and those that its process has on the
 * same file (POSIX), whichever descriptor they were taken by; the process number on a line tells whose a POSIX lock is.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "codec/proctext.h"

#include <fcntl.h>
#include <stdlib.h>

/* Of a process: one lock is shown on all its descriptors of the file, and not each of them may take it. */
static void add_owned(struct dump *d, const struct subject *s, const struct image_lock *lock)
{
	struct owned_lock *all = (struct owned_lock *)(void *)d->owned.p;
	int mode = (int)(s->flags & O_ACCMODE);
	struct owned_lock mine = { .lock = *lock,
		.device = s->st.st_dev,
		.inode = s->st.st_ino,
		.fits = mode == O_RDWR || mode == (lock->exclusive != 0 ? O_WRONLY : O_RDONLY) };

	for (size_t i = 0; i < d->owned.n / sizeof(*all); i++) {
		if (all[i].device != mine.device || all[i].inode != mine.inode ||
			all[i].lock.start != lock->start || all[i].lock.length != lock->length)
			continue;
		if (!all[i].fits)
			all[i] = mine;
		return;
	}
	buf_add(&d->owned, &mine, sizeof(mine));
}

static bool knows(const struct subject *s, const struct proc_lock *line)
{
	return line->kind == PROC_LOCK_FLOCK || line->kind == PROC_LOCK_OFD ||
	       (line->kind == PROC_LOCK_POSIX && line->pid == s->p->tracee.host);
}

/* A lock of a relative that had this description from us is shown here, and on its own descriptors. */
static bool of_a_relative(const struct dump *d, const struct proc_lock *line)
{
	return line->kind == PROC_LOCK_POSIX && dump_by_host_pid(d, line->pid) != NULL;
}

int dump_locks(struct dump *d, struct subject *s, bool description_is_new, struct err *err)
{
	const char *at = buf_cstr(&s->info);
	struct proc_lock line;
	int more;

	while ((more = proc_lock_next(&at, &line)) > 0) {
		struct image_lock lock = { .exclusive = line.exclusive,
			.kind = line.kind,
			.fd = s->fd,
			.start = line.start,
			.length = line.length };

		if (!knows(s, &line)) {
			if (of_a_relative(d, &line))
				continue;
			return subject_refuse(
				s, err, "locked in a way that cannot be carried over (a lease)");
		}
		if (line.kind == PROC_LOCK_POSIX) {
			add_owned(d, s, &lock);
		} else if (description_is_new) {
			(void)IMAGE_ADD(&d->image, TABLE_LOCKS, &lock);
			s->out.n_locks++;
		}
	}
	return more < 0 ? subject_refuse(s, err, "locked in a way that cannot be read") : 0;
}

void dump_locks_end(struct dump *d, struct dump_process *p)
{
	const struct owned_lock *all = (const struct owned_lock *)(const void *)d->owned.p;

	p->out.first_lock = image_count(&d->image, TABLE_LOCKS, sizeof(struct image_lock));
	p->out.n_locks = (uint32_t)(d->owned.n / sizeof(*all));
	for (uint32_t i = 0; i < p->out.n_locks; i++)
		(void)IMAGE_ADD(&d->image, TABLE_LOCKS, &all[i].lock);
	buf_reset(&d->owned);
}
