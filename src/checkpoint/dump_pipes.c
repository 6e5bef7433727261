/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_pipes.c - pipes, with and without a name: what waits in them, which ends belong to one, and what makes it. */
#include "checkpoint/dump_parts.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>

/* --- one end --- */

/* What is in the pipe, without taking it out. */
static int peek_pipe(struct dump *d, struct subject *s)
{
	int capacity = fcntl(s->copy, F_GETPIPE_SZ), waiting = 0, copy[2];
	ssize_t n = 0;
	char *bytes;
	bool small;

	s->out.a = capacity > 0 ? (uint64_t)capacity : 0;
	if (ioctl(s->copy, FIONREAD, &waiting) < 0 || waiting == 0)
		return 0;
	if (pipe2(copy, O_CLOEXEC | O_NONBLOCK) < 0)
		return -errno;
	small = fcntl(copy[1], F_SETPIPE_SZ, capacity) < 0 && errno == EPERM;
	bytes = malloc((size_t)waiting);
	if (bytes != NULL && tee(s->copy, copy[1], (size_t)waiting, SPLICE_F_NONBLOCK) == waiting)
		n = read(copy[0], bytes, (size_t)waiting);
	(void)close(copy[0]);
	(void)close(copy[1]);
	if (n == waiting)
		s->out.data = image_add_bytes(&d->image, bytes, (size_t)n);
	free(bytes);
	return n == waiting ? 0 : small ? -EPERM : -EIO;
}

static int refuse_pipe(const struct subject *s, int rc, struct err *err)
{
	return subject_refuse(s, err,
		rc == -EPERM
			? "a pipe in which more waits than fits into a new one of this user, who has too many (pipe(7), pipe-user-pages-soft)"
			: "a pipe that cannot be read");
}

static bool seen(const struct dump *d, const struct subject *s)
{
	size_t at = dump_known_from(d, s->st.st_dev, s->st.st_ino);

	return dump_known_next(d, s, &at) != NULL;
}

/*
 * a: capacity, c: its readers have seen the last writer go. What waits goes with the first description of it, and can be looked at through an end to read:
 * of our own, because those of the sandbox may all be ends to write.
 */
static int add_fifo(struct dump *d, struct subject *s, struct err *err)
{
	struct pollfd hangup = { .fd = s->copy };
	int rc;

	if (subject_is_deleted(s))
		return subject_refuse(s, err, "a deleted named pipe");
	s->out.kind = DESCRIPTION_FIFO;
	s->out.path = image_add_bytes(&d->image, s->target, s->target_n);
	s->out.c = poll(&hangup, 1, 0) == 1 && (hangup.revents & POLLHUP) != 0;
	/* and an end to read more is one that a writer is not told of */
	if (seen(d, s) || d->examination != NULL) {
		s->out.a = (uint64_t)fcntl(s->copy, F_GETPIPE_SZ);
		return 0;
	}
	rc = subject_read_by_own(d, s, O_NONBLOCK, peek_pipe);
	return rc < 0 ? refuse_pipe(s, rc, err) : 0;
}

/* Whoever reads it as well has said what waits. */
static bool has_reader(struct dump *d, const struct subject *s)
{
	size_t at = dump_known_from(d, s->st.st_dev, s->st.st_ino);
	const struct dump_known *k;

	while ((k = dump_known_next(d, s, &at)) != NULL) {
		if (dump_description(d, k->index)->kind == DESCRIPTION_PIPE_READ)
			return true;
	}
	return false;
}

/* a: capacity, b: inode, c: see put_together(). The keeper's: a: its slot, b: another description has the keeper's end */
int dump_pipe(struct dump *d, struct subject *s, struct err *err)
{
	int rc;

	if (s->target[0] == '/')
		return add_fifo(d, s, err);
	for (uint32_t i = 0; i < d->order->n_slots; i++) {
		if (d->order->slots[i].device == s->st.st_dev &&
			d->order->slots[i].inode == s->st.st_ino) {
			s->out.kind = DESCRIPTION_SLOT;
			s->out.a = i;
			s->out.b = seen(d, s);
			return 0;
		}
	}
	s->out.kind = (s->out.flags & O_ACCMODE) == O_WRONLY ? DESCRIPTION_PIPE_WRITE
							     : DESCRIPTION_PIPE_READ;
	s->out.b = s->st.st_ino;
	if (s->out.kind == DESCRIPTION_PIPE_WRITE || has_reader(d, s)) {
		s->out.a = (uint64_t)fcntl(s->copy, F_GETPIPE_SZ);
		return 0;
	}
	rc = peek_pipe(d, s);
	return rc < 0 ? refuse_pipe(s, rc, err) : 0;
}

/* --- all of them --- */

static bool is_pipe(const struct image_description *a)
{
	return a->kind == DESCRIPTION_PIPE_READ || a->kind == DESCRIPTION_PIPE_WRITE;
}

/** struct pipe_end - one description of a pipe. */
struct pipe_end {
	uint64_t inode;
	uint32_t index;
};

static int by_pipe(const void *a, const void *b)
{
	const struct pipe_end *x = a, *y = b;

	if (x->inode != y->inode)
		return x->inode < y->inode ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

static bool is_for_both(const struct image_description *a)
{
	return (a->flags & O_ACCMODE) == O_RDWR;
}

/* Are they as pipe(2) makes them? */
static bool are_pair(const struct image_description *a, const struct image_description *b)
{
	return a->kind != b->kind && !is_for_both(a) && !is_for_both(b);
}

/* The first makes the pipe, with all that waits in it and with the first of the other end. Whatever else there is was opened through /proc (/dev/fd, /dev/stdin). */
static void put_together(struct dump *d, const struct pipe_end *ends, size_t n)
{
	struct image_description *first = dump_description(d, ends[0].index);

	for (size_t i = 1; i < n; i++) {
		struct image_description *more = dump_description(d, ends[i].index);

		if (more->data.length > 0)
			first->data = more->data;
		more->data = (struct image_span){ 0 };
		if (first->peer == IMAGE_NONE && are_pair(first, more)) {
			first->peer = ends[i].index;
			more->peer = ends[0].index;
		} else {
			more->c = 1 + (uint64_t)ends[0].index;
		}
	}
}

static void sort_pipes(struct dump *d, struct pipe_end *all, size_t n)
{
	size_t same;

	qsort(all, n, sizeof(*all), by_pipe);
	for (size_t i = 0; i < n; i += same) {
		for (same = 1; i + same < n && all[i + same].inode == all[i].inode; same++)
			;
		put_together(d, all + i, same);
	}
}

void dump_pipes_end(struct dump *d)
{
	uint32_t n = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description));
	struct pipe_end *ends = calloc(n + 1, sizeof(*ends));
	size_t n_ends = 0;

	if (ends == NULL)
		abort();
	for (uint32_t i = 0; i < n; i++) {
		const struct image_description *a = dump_description(d, i);

		if (is_pipe(a))
			ends[n_ends++] = (struct pipe_end){ .inode = a->b, .index = i };
	}
	sort_pipes(d, ends, n_ends);
	free(ends);
}
