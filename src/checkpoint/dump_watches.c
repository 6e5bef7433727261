/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_watches.c - what epoll sets wait for. A watch is of a description, and is called by the number that its descriptor had: which may be closed since, or another
 * one's, while somebody has the description still, or may be another process's number. Where the number does not lead there, whoever has the description is looked for.
 *
 * The kernel shows the inode of what is watched. A socket has one of its own, and no second description: there that says all. Of the rest the kernel says of a descriptor whether
 * it is what is watched (kcmp), and looks through the set for it each time, which is much where a set is large; there a descriptor of ours that has the number and the description
 * is added to the set: that it is in it already (EEXIST) is found in few steps and changes nothing. Where it is not it is taken out again, and was never told of.
 */
#include "checkpoint/alive.h"
#include "checkpoint/dump_parts.h"
#include "sys/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>

#define LOOKS   3
#define LARGE   64      /* watches, of a set */
#define NUMBERS 0x4000U /* of ours, by which what is watched may be called */

void dump_watches_room(void)
{
	struct rlimit limit;
	int highest;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	highest = fcntl(DUMP_KEEPER_FD, F_DUPFD_CLOEXEC,
		(int)(limit.rlim_cur < NUMBERS ? limit.rlim_cur : NUMBERS) - 1);
	if (highest >= 0)
		(void)close(highest);
}

/* --- one set --- */

static struct dump_epoll *remember(struct dump *d)
{
	struct dump_epoll *all = realloc(d->epolls, (d->n_epolls + 1) * sizeof(*all));

	if (all == NULL)
		abort();
	d->epolls = all;
	return &all[d->n_epolls++];
}

/* The line at *@at, and step over it. */
static bool read_watch(const char **at, struct image_watch *w, struct dump_epoll *e)
{
	const size_t n = strcspn(*at, "\n");
	char line[256];
	unsigned int events, device;
	unsigned long long data, inode;
	int target;

	if (n >= sizeof(line))
		return false;
	memcpy(line, *at, n);
	line[n] = '\0';
	*at += n;
	if (sscanf(line, "tfd: %d events: %x data: %llx pos:%*d ino:%llx sdev:%x", &target, &events,
		    &data, &inode, &device) != 5)
		return false;
	w->target = target;
	w->events = events;
	w->data = data;
	e->target = target;
	e->device = makedev(device >> 20, device & 0xfffff);
	e->inode = inode;
	return true;
}

static int by_target(const void *a, const void *b)
{
	const struct dump_epoll *x = *(struct dump_epoll *const *)a,
				*y = *(struct dump_epoll *const *)b;

	if (x->target != y->target)
		return x->target < y->target ? -1 : 1;
	return x->row < y->row ? -1 : x->row > y->row;
}

/* The same number may have been another descriptor's before. */
static void count_equals(struct dump_epoll *all, size_t n)
{
	struct dump_epoll **sorted = calloc(n + 1, sizeof(struct dump_epoll *));

	if (sorted == NULL)
		abort();
	for (size_t i = 0; i < n; i++)
		sorted[i] = &all[i];
	qsort(sorted, n, sizeof(struct dump_epoll *), by_target);
	for (size_t i = 1; i < n; i++) {
		if (sorted[i]->target != sorted[i - 1]->target)
			continue;
		sorted[i]->nth = sorted[i - 1]->nth + 1;
		sorted[i]->shared = sorted[i - 1]->shared = true;
	}
	free(sorted);
}

int dump_watches(struct dump *d, struct subject *s, struct err *err)
{
	const char *line = buf_cstr(&s->info);
	size_t first = d->n_epolls, n;

	while ((line = strstr(line, "tfd:")) != NULL) {
		struct image_watch w = { .epoll = s->fd, .description = IMAGE_NONE };
		struct dump_epoll e = { .p = s->p, .fd = s->fd };

		if (!read_watch(&line, &w, &e))
			return subject_refuse(s, err, "an epoll set that cannot be read");
		e.row = IMAGE_ADD(&d->image, TABLE_WATCHES, &w);
		*remember(d) = e;
		s->p->out.n_watches++;
	}
	n = d->n_epolls - first;
	if (n == 0)
		return 0;
	count_equals(d->epolls + first, n);
	for (size_t i = first; i < d->n_epolls; i++)
		d->epolls[i].of_many = n >= LARGE;
	return 0;
}

/* --- what is watched --- */

/* Descriptor @fd of process @pid and what is watched. Return: as raw_kcmp(); -ENOENT: there is no such watch. */
static int compare_watched(const struct dump_epoll *e, pid_t pid, int fd)
{
	struct kcmp_epoll_slot slot = {
		.efd = (uint32_t)e->fd, .tfd = (uint32_t)e->target, .toff = e->nth
	};

	return raw_kcmp(pid, e->p->tracee.host, KCMP_EPOLL_TFD, (unsigned long)fd,
		(unsigned long)(uintptr_t)&slot);
}

static bool is_watched(const struct dump_epoll *e, pid_t pid, int fd)
{
	return compare_watched(e, pid, fd) == 0;
}

/* In an examination: the watch is gone, or is of another descriptor of that number. A set that is refused stays as it is for all looks. */
static bool has_changed(const struct dump *d, const struct dump_epoll *e)
{
	for (int i = 0; i < LOOKS && d->examination != NULL; i++) {
		if (is_watched(e, e->p->tracee.host, e->target))
			return true;
		if (compare_watched(e, e->p->tracee.host, e->fd) == -ENOENT) /* with whatever */
			return true;
	}
	return false;
}

/** struct copies - ours of what the watches of one set are added by. */
struct copies {
	const struct dump_epoll *of; /* the first of them */
	int pidfd, set;
};

static void close_copies(struct copies *c)
{
	fd_close(&c->pidfd);
	fd_close(&c->set);
}

static bool copy_set(struct copies *c, const struct dump_epoll *e)
{
	if (c->of != NULL && c->of->p == e->p && c->of->fd == e->fd)
		return c->set >= 0;
	close_copies(c);
	c->of = e;
	c->pidfd = raw_pidfd_open(e->p->tracee.host);
	c->set = c->pidfd < 0 ? -1 : raw_pidfd_getfd(c->pidfd, e->fd);
	return c->set >= 0;
}

/* Whoever tears us out of what hangs must not do it in between. */
static bool is_in_set(int set, int fd)
{
	struct epoll_event nothing = { 0 };
	sigset_t all, before;
	int rc;

	(void)sigfillset(&all);
	(void)sigprocmask(SIG_SETMASK, &all, &before);
	rc = epoll_ctl(set, EPOLL_CTL_ADD, fd, &nothing) < 0 ? errno : 0;
	if (rc == 0)
		(void)epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
	(void)sigprocmask(SIG_SETMASK, &before, NULL);
	return rc == EEXIST;
}

/* Does the number lead to what is watched, found out by a copy of ours with that number? Return: false also where nobody knows. */
static bool leads_there(struct copies *c, const struct dump_epoll *e)
{
	cleanup_fd int copy = -1, named = -1;
	struct stat st;

	if ((unsigned int)e->target >= NUMBERS || !copy_set(c, e))
		return false;
	copy = raw_pidfd_getfd(c->pidfd, e->target);
	if (copy < 0 || fstat(copy, &st) < 0 || st.st_dev != e->device || st.st_ino != e->inode)
		return false;
	named = fcntl(copy, F_DUPFD_CLOEXEC, e->target);
	return named == e->target && is_in_set(c->set, named);
}

/* Has it no other name than its inode: is it of no file system? */
static bool is_inode_of_its_own(const struct image_description *k)
{
	return S_ISSOCK(k->mode) || (k->mode & S_IFMT) == 0 || k->kind == DESCRIPTION_PIPE_READ ||
	       k->kind == DESCRIPTION_PIPE_WRITE;
}

static bool may_be(struct dump *d, const struct dump_epoll *e, const struct dump_known *k)
{
	return !is_inode_of_its_own(dump_description(d, k->index)) ||
	       (k->device == e->device && k->inode == e->inode);
}

static uint32_t find_watched(struct dump *d, const struct dump_epoll *e)
{
	for (size_t i = 0; i < d->n_known; i++) {
		const struct dump_known *k = &d->known[i];

		if (k->fd >= 0 && may_be(d, e, k) && is_watched(e, k->pid, k->fd))
			return k->index;
	}
	return IMAGE_NONE;
}

static int by_number(const void *a, const void *b)
{
	const struct image_fd *x = a, *y = b;

	return x->fd < y->fd ? -1 : x->fd > y->fd;
}

/* What the number leads to in the process that puts the set together again; IMAGE_NONE. */
static uint32_t find_target(struct dump *d, const struct dump_epoll *e)
{
	const struct image_process *p = &e->p->out;
	const struct image_fd key = { .fd = e->target };
	const struct image_fd *found;

	if (p->n_fds == 0)
		return IMAGE_NONE;
	found = bsearch(&key, image_row(&d->image, TABLE_FDS, p->first_fd, sizeof(key)), p->n_fds,
		sizeof(key), by_number);
	return found == NULL ? IMAGE_NONE : found->description;
}

/* The socket that is watched; IMAGE_NONE: it is none that anybody has. */
static uint32_t find_socket(struct dump *d, const struct dump_epoll *e)
{
	size_t i = dump_known_from(d, e->device, e->inode);
	const struct dump_known *k = i < d->n_ordered ? &d->known[d->ordered[i]] : NULL;

	if (k == NULL || k->device != e->device || k->inode != e->inode)
		return IMAGE_NONE;
	return S_ISSOCK(dump_description(d, k->index)->mode) ? k->index : IMAGE_NONE;
}

/* @ret: the description, where the number does not lead to it; else IMAGE_NONE. Return: false: nobody knows. */
static bool find(struct dump *d, struct copies *c, const struct dump_epoll *e, uint32_t *ret)
{
	const uint32_t socket = find_socket(d, e);

	*ret = IMAGE_NONE;
	if (socket != IMAGE_NONE) {
		if (find_target(d, e) != socket)
			*ret = socket;
		return true;
	}
	if (e->of_many && !e->shared && d->examination == NULL && leads_there(c, e))
		return true;
	if (is_watched(e, e->p->tracee.host, e->target))
		return true;
	*ret = find_watched(d, e);
	return *ret != IMAGE_NONE;
}

int dump_watches_end(struct dump *d, struct err *err)
{
	struct copies copies = { .pidfd = -1, .set = -1 };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < d->n_epolls; i++) {
		const struct dump_epoll *e = &d->epolls[i];
		uint32_t watched;
		bool found = find(d, &copies, e, &watched);
		struct image_watch *w = image_row(&d->image, TABLE_WATCHES, e->row, sizeof(*w));

		alive();
		w->description = watched;
		if (found && (watched == IMAGE_NONE ||
				     !image_opened_by_each(dump_description(d, watched))))
			continue;
		if (has_changed(d, e))
			continue;
		rc = dump_refuse_at(e->p, e->fd, err,
			"descriptor %d is an epoll set that waits for what was descriptor %d, which cannot be carried over so",
			e->fd, e->target);
		if (dump_note(d, err))
			rc = 0;
	}
	close_copies(&copies);
	return rc;
}
