/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay-template/claims.h"
#include "prog/cay-template/bare.h"

#define CLAIMS_MIN 128U /* room at the beginning */
#define CLAIMS_MOST \
	(64ULL << 20) /* bytes, ever, of all address spaces: who cuts its memory into more pieces, or forks them, loses itself alone */

static uint64_t taken; /* bytes */

static bool claims_grow(struct claims *c)
{
	uint32_t room = c->room < CLAIMS_MIN ? CLAIMS_MIN : c->room * 2;
	struct claim *more;

	taken += room * sizeof(*more);
	more = taken > CLAIMS_MOST ? NULL : claims_room(room * sizeof(*more));
	if (more == NULL)
		return false;
	if (c->n > 0)
		memcpy(more, c->list, c->n * sizeof(*more));
	c->list = more;
	c->room = room;
	return true;
}

bool claims_put(struct claims *c, struct claim one)
{
	if (c->n == c->room && !claims_grow(c))
		return false;
	c->list[c->n++] = one;
	return true;
}

const struct claim *claims_find(const struct claims *c, uint64_t address)
{
	for (uint32_t i = 0; i < c->n; i++) {
		if (address >= c->list[i].start && address < c->list[i].end)
			return &c->list[i];
	}
	return NULL;
}

const struct claim *claims_next(const struct claims *c, uint64_t stash)
{
	const struct claim *found = NULL;

	for (uint32_t i = 0; i < c->n; i++) {
		const struct claim *one = &c->list[i];

		if (stash >= one->stash + (one->end - one->start))
			continue;
		if (one->stash <= stash)
			return one;
		if (found == NULL || one->stash < found->stash)
			found = one;
	}
	return found;
}

/* Cut each claim in two that goes on at both sides of @at. */
static bool cut(struct claims *c, uint64_t at)
{
	const struct claim *found = claims_find(c, at);
	struct claim behind;

	if (found == NULL || found->start == at)
		return true;
	behind = (struct claim){ at, found->end, found->stash + (at - found->start) };
	c->list[found - c->list].end = at;
	return claims_put(c, behind);
}

bool claims_drop(struct claims *c, uint64_t start, uint64_t end)
{
	if (!cut(c, start) || !cut(c, end))
		return false;
	for (uint32_t i = 0; i < c->n;) {
		if (c->list[i].start >= start && c->list[i].start < end)
			c->list[i] = c->list[--c->n];
		else
			i++;
	}
	return true;
}

bool claims_move(struct claims *c, uint64_t start, uint64_t end, uint64_t to)
{
	/* (the two ranges never overlap) */
	if (!claims_drop(c, to, to + (end - start)) || !cut(c, start) || !cut(c, end))
		return false;
	for (uint32_t i = 0; i < c->n; i++) {
		struct claim *one = &c->list[i];

		if (one->start < start || one->start >= end)
			continue;
		one->end = to + (one->end - start);
		one->start = to + (one->start - start);
	}
	return true;
}

bool claims_copy(const struct claims *from, struct claims *ret)
{
	ret->n = 0;
	for (uint32_t i = 0; i < from->n; i++) {
		if (!claims_put(ret, from->list[i]))
			return false;
	}
	return true;
}
