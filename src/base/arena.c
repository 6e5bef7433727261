/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <string.h>

#define CHUNK_SIZE 2048U

struct arena_chunk {
	struct arena_chunk *next;
	size_t used, size;
	_Alignas(max_align_t) char bytes[];
};

static struct arena_chunk *chunk_new(struct arena *a, size_t n)
{
	size_t size = n > CHUNK_SIZE ? n : CHUNK_SIZE;
	struct arena_chunk *c = malloc(sizeof(*c) + size);

	if (c == NULL)
		return NULL;
	c->next = a->chunks;
	c->used = 0;
	c->size = size;
	a->chunks = c;
	return c;
}

void *arena_alloc(struct arena *a, size_t n)
{
	struct arena_chunk *c = a->chunks;
	void *p;

	if (n > a->max || a->used > a->max - n)
		return NULL;
	n = (n + sizeof(void *) - 1) & ~(sizeof(void *) - 1);
	if (c == NULL || c->size - c->used < n)
		c = chunk_new(a, n);
	if (c == NULL)
		return NULL;
	p = c->bytes + c->used;
	c->used += n;
	a->used += n;
	return p;
}

char *arena_copy(struct arena *a, const void *p, size_t n)
{
	char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;

	if (copy == NULL)
		return NULL;
	if (n > 0)
		memcpy(copy, p, n);
	copy[n] = '\0';
	return copy;
}

void arena_free(struct arena *a)
{
	while (a->chunks != NULL) {
		struct arena_chunk *c = a->chunks;

		a->chunks = c->next;
		free(c);
	}
	a->used = 0;
}
