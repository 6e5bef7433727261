/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_room.c - how many files a fork has open while it is made. One process has the descriptions of all, above the numbers of any program, and another keeps them beside that:
 * more than a limit of files allows can be open in a sandbox, and could never be made again.
 */
#include "checkpoint/dump.h"

#include <stdlib.h>
#include <sys/sysmacros.h>

#define EACH   3U /* program, working directory, root */
#define ACCESS 2U /* a file that is mapped may be opened to be read, and to be written */

/** struct mapped - a file that is mapped. */
struct mapped {
	uint64_t device, inode;
};

uint32_t dump_first_description(const struct dump *d)
{
	return d->highest_fd < (int32_t)PLAN_FIRST_DESCRIPTION ? PLAN_FIRST_DESCRIPTION
							       : (uint32_t)d->highest_fd + 1;
}

static int by_file(const void *a, const void *b)
{
	const struct mapped *x = a, *y = b;

	if (x->device != y->device)
		return x->device < y->device ? -1 : 1;
	return x->inode == y->inode ? 0 : x->inode < y->inode ? -1 : 1;
}

/* The parts of a file are neighbours. Into @ret, unless NULL. Return: how many. */
static size_t list_mapped(const struct dump *d, struct mapped *ret)
{
	struct mapped last = { 0 };
	size_t n = 0;

	for (size_t i = 0; i < d->n; i++) {
		const struct mappings *maps = &d->processes[i].maps;

		for (size_t j = 0; j < maps->n; j++) {
			const struct proc_map *m = &maps->list[j];
			struct mapped this = { makedev(m->major, m->minor), m->inode };

			if (m->inode == 0 || by_file(&this, &last) == 0)
				continue;
			if (ret != NULL)
				ret[n] = this;
			last = this;
			n++;
		}
	}
	return n;
}

/* Relatives map the same files. */
static size_t count_mapped(const struct dump *d)
{
	size_t n = list_mapped(d, NULL), different = 0;
	struct mapped *all = calloc(n + 1, sizeof(*all));

	if (all == NULL)
		abort();
	(void)list_mapped(d, all);
	qsort(all, n, sizeof(*all), by_file);
	for (size_t i = 0; i < n; i++)
		different += i == 0 || by_file(&all[i], &all[i - 1]) != 0;
	free(all);
	return different;
}

static uint64_t files_with(const struct dump *d, size_t mapped)
{
	return plan_files(dump_first_description(d),
		image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description)) +
			EACH * d->n + ACCESS * mapped);
}

int dump_room_check(const struct dump *d, struct err *err)
{
	const uint64_t room = d->order->files < PLAN_FILES_MAX ? d->order->files : PLAN_FILES_MAX;
	uint64_t wanted = files_with(d, list_mapped(d, NULL));

	if (wanted > room)
		wanted = files_with(d, count_mapped(d));
	return wanted <= room
		       ? 0
		       : err_raise(err, ERR_UNSUPPORTED,
				 "the programs have %u files open, and numbers of them up to %d: a fork would need up to %llu while it is made, and can have %llu (limit of files of the server: ulimit -Hn, LimitNOFILE=)",
				 image_count(&d->image, TABLE_DESCRIPTIONS,
					 sizeof(struct image_description)),
				 d->highest_fd, (unsigned long long)wanted,
				 (unsigned long long)room);
}
