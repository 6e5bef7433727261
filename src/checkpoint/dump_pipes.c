/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_pipes.c - which ends belong to one pipe, and what makes it. */
#include "checkpoint/dump_parts.h"

#include <fcntl.h>
#include <stdlib.h>

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
