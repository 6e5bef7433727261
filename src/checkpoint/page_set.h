/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: checkpoint/page_set.h - which pages of some memory are there. The others are holes: they read as zeros, and whoever touches one makes a page. */
#ifndef CAY_CHECKPOINT_PAGE_SET_H
#define CAY_CHECKPOINT_PAGE_SET_H

#include "base/attr.h"

#include <stdint.h>

/** struct page_set - a bit for each page of 4 KiB; all zero to begin with, page_set_fini() releases it. What is added has room: page_set_room(). */
struct page_set {
	uint64_t *words;
	uint64_t pages; /* there is room for */
};

/** struct page_run - bytes that follow each other. */
struct page_run {
	uint64_t start, end;
};

/** page_set_room() - have room for the pages of @bytes bytes, which may be terabytes: only what is added takes memory. Return: 0 or -ENOMEM. */
int page_set_room(struct page_set *s, uint64_t bytes) attr_must_use;

/** page_set_add() - all pages that @start..@end touches are there. Context: two threads may do so at the same time, in parts of 2 MiB each. */
void page_set_add(struct page_set *s, uint64_t start, uint64_t end);

/** page_set_remove() - none of them is. As above. */
void page_set_remove(struct page_set *s, uint64_t start, uint64_t end);

/**
 * page_set_next() - the next run of pages of @s that are not in @less (NULL: of all that are there), from *@at on and up to @end, where it is cut off. Steps behind it.
 * Return: is there one?
 */
bool page_set_next(const struct page_set *s, const struct page_set *less, uint64_t *at,
	uint64_t end, struct page_run *ret);

/** page_set_is_dense() - would huge pages for what is there up to @end be full, but for an eighth? */
bool page_set_is_dense(const struct page_set *s, uint64_t end);

/** page_set_fini() - release. */
void page_set_fini(struct page_set *s);

#endif
