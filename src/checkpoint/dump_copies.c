/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_copies.c - descriptors of ours of what programs have open, as long as more than one look is taken at it. A program that closes what one of us still holds has
 * closed nothing: its peer reads no end, its number stays in epoll sets while the next file has it, its address stays taken. So all of them are in one list, and that is empty
 * before the first process runs.
 */
#include "checkpoint/dump.h"
#include "sys/raw.h"

#include <fcntl.h>
#include <stdlib.h>

int dump_copy_keep(struct dump *d, int fd)
{
	int *all = realloc(d->copies, (d->n_copies + 1) * sizeof(*all));

	if (all == NULL)
		abort();
	d->copies = all;
	all[d->n_copies++] = fd;
	return fd;
}

int dump_copy(struct dump *d, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return copy < 0 ? -errno : dump_copy_keep(d, copy);
}

/* Most have been made one after the other, and have numbers that follow each other: one call closes these. */
void dump_copies_close(struct dump *d)
{
	for (size_t i = 0, n; i < d->n_copies; i += n) {
		for (n = 1; i + n < d->n_copies && d->copies[i + n] == d->copies[i] + (int)n; n++)
			;
		(void)!raw_close_range(
			(unsigned int)d->copies[i], (unsigned int)d->copies[i + n - 1], 0);
	}
	free(d->copies);
	d->copies = NULL;
	d->n_copies = 0;
}
