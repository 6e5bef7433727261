/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/old_output.h - output that somebody has seen before, shown again on a terminal: what it asks was answered then, and the answers would go to the command as if typed. */
#ifndef CAY_PROG_OLD_OUTPUT_H
#define CAY_PROG_OLD_OUTPUT_H

#include "codec/termquery.h"

/** struct old_output - begins as zeros. */
struct old_output {
	bool known;     /* up to where it is old */
	uint64_t until; /* offset of the first byte that nobody has seen */
	struct {
		bool answered; /* it is a terminal */
		struct termquery query;
	} sinks[2]; /* where standard output and standard error go to */
};

/** old_output_until() - what comes before offset @until is old; only the first who says it is heard. */
void old_output_until(struct old_output *o, uint64_t until);

/**
 * old_output_put() - add @n bytes at @p, which begin at @offset, to @out, which is for the first or the @second sink; to a terminal those that are old without what it answers.
 * Return: how many of all that came for it were left out since the last call; what is held until its end has come does not count.
 */
size_t old_output_put(struct old_output *o, bool second, uint64_t offset, const char *p, size_t n,
	struct buf *out);

/** old_output_end() - a connection has ended: from @offset on nothing is old, and what is held is for its sink (termquery_end()). Where nothing has come yet (0), the next one may say what is old, unless it was said that nothing is. */
void old_output_end(struct old_output *o, uint64_t offset);

#endif
