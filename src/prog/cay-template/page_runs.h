/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-template/page_runs.h - which pages of a piece of memory are there: those that are not, are zeros, and have no place in its slot.
 */
#ifndef CAY_PROG_CAY_TEMPLATE_PAGE_RUNS_H
#define CAY_PROG_CAY_TEMPLATE_PAGE_RUNS_H

#include "checkpoint/template_wire.h"
#include "prog/cay-template/bare.h"

/** page_is_there() - has @m the page of this number? */
static inline bool page_is_there(const struct template_pages *m, uint64_t page)
{
	return (m->present[page / 64] >> page % 64 & 1) != 0;
}

/** page_run_end() - where the run of pages that begins at the byte @at of @m ends: all of it is there, or nothing. @ret_there: which. */
static inline uint64_t page_run_end(const struct template_pages *m, uint64_t at, bool *ret_there)
{
	*ret_there = page_is_there(m, at / BARE_PAGE);
	do
		at += BARE_PAGE;
	while (at < m->raw && page_is_there(m, at / BARE_PAGE) == *ret_there);
	return at < m->raw ? at : m->raw;
}

#endif
