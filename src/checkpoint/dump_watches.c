/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_watches.c - what epoll sets wait for. A watch is of a description, and is called by the number that its descriptor had: which may be closed since, or another
 * one's, while somebody has the description still, or may be another process's number. The kernel says of a descriptor whether it is what is watched (kcmp); where the
 * number does not lead there, whoever has the description is looked for.
 */
#include "checkpoint/dump_parts.h"

#include <errno.h>
#include <linux/kcmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define LOOKS 3

static int remember(struct dump *d, const struct subject *s, uint32_t row, uint32_t nth)
{
	struct dump_epoll *all = realloc(d->epolls, (d->n_epolls + 1) * sizeof(*all));

	if (all == NULL)
		return -ENOMEM;
	d->epolls = all;
	all[d->n_epolls++] = (struct dump_epoll){ .p = s->p, .fd = s->fd, .row = row, .nth = nth };
	return 0;
}

int dump_watches(struct dump *d, struct subject *s, struct err *err)
{
	const char *line = buf_cstr(&s->info);
	size_t first = d->n_epolls;

	while ((line = strstr(line, "tfd:")) != NULL) {
		struct image_watch w = { .epoll = s->fd, .description = IMAGE_NONE };
		unsigned int events;
		unsigned long long data;
		uint32_t row, nth = 0;
		int target;

		if (sscanf(line, "tfd: %d events: %x data: %llx", &target, &events, &data) != 3)
			return subject_refuse(s, err, "an epoll set that cannot be read");
		w.target = target;
		w.events = events;
		w.data = data;
		/* the same number may have been another descriptor's before */
		for (size_t i = first; i < d->n_epolls; i++) {
			const struct image_watch *other = image_row(
				&d->image, TABLE_WATCHES, d->epolls[i].row, sizeof(*other));

			nth += other->target == target;
		}
		row = IMAGE_ADD(&d->image, TABLE_WATCHES, &w);
		if (remember(d, s, row, nth) < 0)
			abort();
		s->p->out.n_watches++;
		line += 4;
	}
	return 0;
}

/* Is descriptor @fd of process @pid what is watched? */
static bool is_watched(const struct dump_epoll *e, int32_t target, pid_t pid, int fd)
{
	struct kcmp_epoll_slot slot = {
		.efd = (uint32_t)e->fd, .tfd = (uint32_t)target, .toff = e->nth
	};

	return syscall(SYS_kcmp, pid, e->p->tracee.host, KCMP_EPOLL_TFD, fd, &slot) == 0;
}

/* In an examination: the watch is gone, or is of another descriptor of that number. A set that is refused stays as it is for all looks. */
static bool has_changed(const struct dump *d, const struct dump_epoll *e, int32_t target)
{
	for (int i = 0; i < LOOKS && d->examination != NULL; i++) {
		if (is_watched(e, target, e->p->tracee.host, target))
			return true;
		/* whatever it is compared with: is there such a watch? */
		if (!is_watched(e, target, e->p->tracee.host, e->fd) && errno == ENOENT)
			return true;
	}
	return false;
}

static uint32_t find_watched(const struct dump *d, const struct dump_epoll *e, int32_t target)
{
	for (size_t i = 0; i < d->n_known; i++) {
		const struct dump_known *k = &d->known[i];

		if (k->fd >= 0 && is_watched(e, target, k->pid, k->fd))
			return k->index;
	}
	return IMAGE_NONE;
}

int dump_watches_end(struct dump *d, struct err *err)
{
	for (size_t i = 0; i < d->n_epolls; i++) {
		const struct dump_epoll *e = &d->epolls[i];
		struct image_watch *w = image_row(&d->image, TABLE_WATCHES, e->row, sizeof(*w));

		if (is_watched(e, w->target, e->p->tracee.host, w->target))
			continue;
		w->description = find_watched(d, e, w->target);
		if (w->description != IMAGE_NONE &&
			!image_opened_by_each(dump_description(d, w->description)))
			continue;
		if (has_changed(d, e, w->target))
			continue;
		if (dump_refuse_at(e->p, e->fd, err,
			    "descriptor %d is an epoll set that waits for what was descriptor %d, which cannot be carried over so",
			    e->fd, w->target) < 0 &&
			!dump_note(d, err))
			return -EINVAL;
	}
	return 0;
}
