/* SPDX-License-Identifier: Apache-2.0 */
/*
 * prog/cay-template/owners.c - who is told by a signal that something can be read or written. The signal carries the number of a descriptor: of the one by which O_ASYNC was set, so its
 * process sets it. Whom it is for is said when all threads are there, by somebody of the ids that said it, because it is these that the kernel asks; until then nobody is told.
 */
#include "prog/cay-template/fork.h"

#include <linux/fcntl.h>

#define F_SETSIG    10
#define F_SETOWN_EX 15
#define O_ASYNC     020000
#define O_SETTABLE  (04000 | 02000 | 040000 | 01000000) /* NONBLOCK APPEND DIRECT NOATIME */

static void arm(int fd, const struct image_description *d)
{
	(void)fork_must(CALL3(__NR_fcntl, fd, F_SETFL, (d->flags & O_SETTABLE) | O_ASYNC),
		"ask for signals of a description");
}

void owners_arm(
	const struct image_process *p, const struct image_fd *f, const struct image_description *d)
{
	if ((d->flags & O_ASYNC) != 0 && d->owner.process == p->pid && d->owner.fd == f->fd)
		arm(f->fd, d);
}

/* Saved ids stay the payload's root, and capabilities stay: SECBIT_NO_SETUID_FIXUP. */
static void become_who_said(uint32_t uid, uint32_t euid)
{
	if (fork.order.single_id == 0)
		(void)fork_must(CALL3(__NR_setresuid, uid, euid, 0),
			"become who asked for signals of a description");
}

static void set_owner(int fd, const struct image_owner *o)
{
	const int32_t owner[2] = { (int32_t)o->type - 1, o->pid };

	become_who_said(o->uid, o->euid);
	(void)fork_must(CALL3(__NR_fcntl, fd, F_SETOWN_EX, owner), "say who gets signals");
	become_who_said(0, 0);
}

void owners_set(void)
{
	for (uint32_t i = 0; i < plan->n_descriptions; i++) {
		const struct image_description *d =
			IMAGE_ROW(struct image_description, TABLE_DESCRIPTIONS, i);

		if ((d->flags & O_ASYNC) != 0 && d->owner.process == 0)
			arm(opener_kept(i), d);
		if (d->owner.signal != 0)
			(void)fork_must(
				CALL3(__NR_fcntl, opener_kept(i), F_SETSIG, d->owner.signal),
				"choose the signal of a description");
		if (d->owner.type != 0)
			set_owner(opener_kept(i), &d->owner);
	}
}
