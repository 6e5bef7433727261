/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/tally.h - how often each text was put in: which layers are needed, and by how many. */
#ifndef CAY_BASE_TALLY_H
#define CAY_BASE_TALLY_H

#include "base/map.h"

/** struct tally - all zeros is an empty one. */
struct tally {
	struct map counts;
};

/** tally_add() - one more of @what, which is copied. Aborts when there is no memory. */
void tally_add(struct tally *t, const char *what);

/** tally_drop() - one less of @what, which must be in it. */
void tally_drop(struct tally *t, const char *what);

/** tally_count() - how many of @what there are. */
size_t tally_count(const struct tally *t, const char *what);

/** tally_kinds() - how many different ones there are. */
size_t tally_kinds(const struct tally *t);

/** tally_each() - @fn for each of which there are any, in no order; it may not change @t. */
void tally_each(
	const struct tally *t, void (*fn)(void *ctx, const char *what, size_t n), void *ctx);

/** tally_free() - forget all. */
void tally_free(struct tally *t);

#endif
