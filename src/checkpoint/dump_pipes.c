/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_pipes.c - which ends belong to one pipe. */
#include "checkpoint/dump_parts.h"

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

static bool is_reopened(struct dump *d, const struct pipe_end *ends, size_t n)
{
	return n > 2 ||
	       dump_description(d, ends[0].index)->kind == dump_description(d, ends[1].index)->kind;
}

static int pair_pipes(struct dump *d, struct pipe_end *all, size_t n, struct err *err)
{
	size_t same;

	qsort(all, n, sizeof(*all), by_pipe);
	for (size_t i = 0; i < n; i += same) {
		for (same = 1; i + same < n && all[i + same].inode == all[i].inode; same++)
			;
		if (same == 1)
			continue;
		if (is_reopened(d, all + i, same))
			return err_raise(err, ERR_UNSUPPORTED,
				"a pipe was opened a second time through /proc, which cannot be carried over yet");
		dump_description(d, all[i].index)->peer = all[i + 1].index;
		dump_description(d, all[i + 1].index)->peer = all[i].index;
	}
	return 0;
}

int dump_pipes_end(struct dump *d, struct err *err)
{
	uint32_t n = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description));
	struct pipe_end *ends = calloc(n + 1, sizeof(*ends));
	size_t n_ends = 0;
	int rc;

	if (ends == NULL)
		abort();
	for (uint32_t i = 0; i < n; i++) {
		const struct image_description *a = dump_description(d, i);

		if (is_pipe(a))
			ends[n_ends++] = (struct pipe_end){ .inode = a->b, .index = i };
	}
	rc = pair_pipes(d, ends, n_ends, err);
	free(ends);
	return rc;
}
