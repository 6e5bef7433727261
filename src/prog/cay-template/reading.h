/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay-template/reading.h - memory of processes that the keeper named. */
#ifndef CAY_TEMPLATE_READING_H
#define CAY_TEMPLATE_READING_H

#include "prog/cay-template/fork.h"

/** struct reading - the process that was read last: copies of one follow each other. READING_INIT, and reading_end(). */
struct reading {
	int32_t pid;
	long memory; /* descriptor, or -errno */
};

#define READING_INIT \
	{ \
		.memory = -1 \
	}

/** reading_take() - @n bytes of a copy, from its byte @done on, to our address @to. Return: 0; -ESRCH when the process has ended; other -errno. */
long reading_take(
	struct reading *r, const struct plan_copy *c, uint64_t done, uint64_t to, uint64_t n);

/** reading_end() - release. */
void reading_end(struct reading *r);

#endif
