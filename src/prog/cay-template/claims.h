/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/claims.h - at which addresses of an address space pages of the stash are expected that are missing still, whatever its program does with its mappings. Pure: no system calls.
 *
 * What is relied upon: changes are heard in the order in which they were made. The kernel tells of mremap() and munmap() after the fact, but whoever made the change waits until it has been heard;
 * so with one task that runs in the address space there is one change under way at most (tracing.h sees to it that there is no other).
 */
#ifndef CAY_TEMPLATE_CLAIMS_H
#define CAY_TEMPLATE_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>

/** struct claim - at @start to @end what the stash has from @stash on; multiples of a page. */
struct claim {
	uint64_t start, end, stash;
};

/** struct claims - of one address space: no address and no part of the stash is in two of them. In no order. {} = none. */
struct claims {
	struct claim *list;
	uint32_t n, room;
};

/** claims_room() - so many bytes of zeros, for ever; NULL: there are none. To be had from whoever uses claims. */
void *claims_room(uint64_t bytes);

/** claims_put() - add one that overlaps no other. Return: false when there is no room. */
bool claims_put(struct claims *c, struct claim one);

/** claims_find() - the one that has @address, or NULL. */
const struct claim *claims_find(const struct claims *c, uint64_t address);

/** claims_next() - the one that has @stash, or else that begins next behind it in the stash; NULL: none. */
const struct claim *claims_next(const struct claims *c, uint64_t stash);

/** claims_drop() - nothing is expected from @start to @end any more: it was unmapped, or given back. Return: false when there is no room. */
bool claims_drop(struct claims *c, uint64_t start, uint64_t end);

/** claims_move() - what was expected from @start to @end is expected at @to, and nothing else is there. Return: false when there is no room. */
bool claims_move(struct claims *c, uint64_t start, uint64_t end, uint64_t to);

/** claims_copy() - what is expected in @from is in @ret too, instead of what was. Return: false when there is no room. */
bool claims_copy(const struct claims *from, struct claims *ret);

#endif
