/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_owners.c - whom the kernel tells by a signal that something can be read or written: F_SETOWN, F_SETSIG, O_ASYNC (fcntl(2)). */
#include "checkpoint/dump_parts.h"

#include <fcntl.h>

#ifndef F_GETOWNER_UIDS
#define F_GETOWNER_UIDS 17
#endif

static int32_t inner_thread(const struct dump *d, pid_t host)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct tracee *t = &d->processes[i].tracee;

		for (size_t j = 0; j < t->n_threads; j++) {
			if (t->threads[j].host == host)
				return t->threads[j].inner;
		}
	}
	return 0;
}

static int32_t inner(const struct dump *d, const struct f_owner_ex *owner)
{
	const struct dump_process *p;

	switch (owner->type) {
	case F_OWNER_TID:
		return inner_thread(d, owner->pid);
	case F_OWNER_PGRP:
		return dump_inner_group(d, owner->pid);
	case F_OWNER_PID:
	default:
		p = dump_by_host_pid(d, owner->pid);
		return p == NULL ? 0 : p->tracee.inner;
	}
}

static void set_descriptor(struct image_owner *o, const struct subject *s)
{
	o->process = s->p->tracee.inner;
	o->fd = s->fd;
}

void dump_owner(const struct dump *d, struct subject *s)
{
	struct image_owner *o = &s->out.owner;
	struct f_owner_ex owner;
	uint32_t ids[2];
	int signal;

	if ((s->flags & O_PATH) != 0)
		return;
	signal = fcntl(s->copy, F_GETSIG);
	o->signal = signal > 0 ? (uint32_t)signal : 0;
	if ((s->flags & O_ASYNC) != 0 && s->carrier < 0)
		set_descriptor(o, s);
	/* pid 0: there is none, or it has gone */
	if (fcntl(s->copy, F_GETOWN_EX, &owner) < 0 || owner.pid <= 0)
		return;
	o->pid = inner(d, &owner);
	o->type = o->pid > 0 ? 1 + (uint32_t)owner.type : 0;
	if (fcntl(s->copy, F_GETOWNER_UIDS, ids) == 0) {
		o->uid = ids[0];
		o->euid = ids[1];
	}
}

/* Which of several descriptors it was nobody tells: the one of who is told is likelier than another's. */
void dump_owner_again(struct dump *d, const struct subject *s, uint32_t index)
{
	struct image_owner *o = &dump_description(d, index)->owner;

	if (s->carrier >= 0 || (s->flags & O_ASYNC) == 0 || o->process == o->pid)
		return;
	if (o->process == 0 || (o->type == 1 + F_OWNER_PID && o->pid == s->p->tracee.inner))
		set_descriptor(o, s);
}
