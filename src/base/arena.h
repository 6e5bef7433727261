/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/arena.h - memory of one request: allocated piece by piece, bounded, freed at once. */
#ifndef CAY_BASE_ARENA_H
#define CAY_BASE_ARENA_H

#include "base/attr.h"

struct arena_chunk;

struct arena {
	struct arena_chunk *chunks; /* the newest first */
	size_t used;                /* bytes handed out so far */
	size_t max;                 /* never more than this */
};

#define ARENA_INIT(limit) \
	{ \
		.max = (limit) \
	}

/** arena_alloc() - @n bytes, not initialised, aligned for pointers; NULL when the limit or memory is exhausted. */
void *arena_alloc(struct arena *a, size_t n) attr_must_use;

/** arena_copy() - a copy of @n bytes with a NUL after them; NULL as above. */
char *arena_copy(struct arena *a, const void *p, size_t n) attr_must_use;

/** arena_free() - release everything; the arena can be used again. */
void arena_free(struct arena *a);

#endif
