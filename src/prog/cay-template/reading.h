/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/reading.h - memory of processes that the keeper named. */
#ifndef CAY_TEMPLATE_READING_H
#define CAY_TEMPLATE_READING_H

#include "prog/cay-template/fork.h"

/** struct reading - the process that was read last: copies of one follow each other. READING_INIT, and reading_end(). */
struct reading {
	int32_t pid;
	bool handed; /* by reading_hand(): not ours to close */
	long memory; /* descriptor, or -errno */
};

#define READING_INIT \
	{ \
		.memory = -1 \
	}

/** reading_open() - open to be read the entry @name (at most eight letters) of process @pid in /proc. Return: descriptor or -errno. */
long reading_open(int32_t pid, const char *name);

/**
 * reading_hand() - from now on the memory of process @pid is read through @fd (borrowed), which a dumper has opened: rootless the entries in /proc of a process with ids of another
 * user of its sandbox are not ours to open.
 *
 * Return: 0; -EPERM when @fd is anything but the memory of that process; -ENOSPC when there are too many; other -errno.
 */
long reading_hand(int32_t pid, int fd);

/** reading_forget() - close what reading_hand() has taken. */
void reading_forget(void);

/** reading_take() - @n bytes of a copy, from its byte @done on, to our address @to. Return: 0; -ESRCH when the process has ended; other -errno. */
long reading_take(
	struct reading *r, const struct plan_copy *c, uint64_t done, uint64_t to, uint64_t n);

/** reading_end() - release. */
void reading_end(struct reading *r);

#endif
