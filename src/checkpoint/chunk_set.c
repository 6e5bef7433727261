/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/chunk_set.h"

#include <string.h>

struct entry {
	unsigned char digest[DIGEST_SIZE];
	uint64_t number; /* and one: 0 = free */
};

struct chunk_set {
	uint64_t next;     /* number */
	size_t used, room; /* entries; a quarter of the table stays free */
	size_t size;       /* of the table, a power of two */
	struct entry table[];
};

struct chunk_set *chunk_set_new(size_t known)
{
	size_t room = known + CHUNK_SET_MORE, size = 1;
	struct chunk_set *s;

	while (size / 4 * 3 < room)
		size *= 2;
	/* pages that nobody looks at are not there */
	s = xalloc(sizeof(*s) + size * sizeof(s->table[0]));
	s->room = room;
	s->size = size;
	return s;
}

void chunk_set_free(struct chunk_set *s)
{
	free(s);
}

/* Where @digest is, or would be. */
static size_t place_of(const struct chunk_set *s, const unsigned char digest[DIGEST_SIZE])
{
	uint64_t at;

	memcpy(&at, digest, sizeof(at));
	for (at &= s->size - 1; s->table[at].number != 0; at = (at + 1) & (s->size - 1)) {
		if (memcmp(s->table[at].digest, digest, DIGEST_SIZE) == 0)
			break;
	}
	return (size_t)at;
}

void chunk_set_add(struct chunk_set *s, const unsigned char digest[DIGEST_SIZE])
{
	uint64_t number = s->next++;
	struct entry *e;

	if (digest == NULL || s->used == s->room)
		return;
	e = &s->table[place_of(s, digest)];
	if (e->number != 0)
		return;
	memcpy(e->digest, digest, DIGEST_SIZE);
	e->number = number + 1;
	s->used++;
}

uint64_t chunk_set_find(const struct chunk_set *s, const unsigned char digest[DIGEST_SIZE])
{
	uint64_t number = s->table[place_of(s, digest)].number;

	return number != 0 ? number - 1 : CHUNK_NONE;
}
