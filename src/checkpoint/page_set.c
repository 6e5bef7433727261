/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/page_set.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#define PAGE      4096U
#define HUGE_PAGE (2ULL << 20)
#define BITS      64U

static uint64_t pages_of(uint64_t bytes)
{
	return bytes / PAGE + (bytes % PAGE != 0);
}

static size_t room_of(uint64_t pages)
{
	return (size_t)(pages / BITS * sizeof(uint64_t));
}

int page_set_room(struct page_set *s, uint64_t bytes)
{
	/* whole pages of words */
	uint64_t unit = (uint64_t)PAGE / sizeof(uint64_t) * BITS,
		 pages = (pages_of(bytes) + unit - 1) / unit * unit;
	void *at;

	if (pages <= s->pages)
		return 0;
	if (s->words == NULL)
		at = mmap(NULL, room_of(pages), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	else
		at = mremap(s->words, room_of(s->pages), room_of(pages), MREMAP_MAYMOVE);
	if (at == MAP_FAILED)
		return -ENOMEM;
	s->words = at;
	s->pages = pages;
	return 0;
}

static void set(struct page_set *s, uint64_t start, uint64_t end, bool there)
{
	uint64_t page = start / PAGE, stop = pages_of(end);

	if (stop > s->pages)
		stop = s->pages;
	while (page < stop) {
		uint64_t left = BITS - page % BITS, n = stop - page < left ? stop - page : left,
			 mask = (n == BITS ? ~0ULL : (1ULL << n) - 1) << page % BITS,
			 *word = &s->words[page / BITS];

		if (there)
			*word |= mask;
		else if ((*word & mask) != 0) /* what was never added takes no memory */
			*word &= ~mask;
		page += n;
	}
}

void page_set_add(struct page_set *s, uint64_t start, uint64_t end)
{
	set(s, start, end, true);
}

void page_set_remove(struct page_set *s, uint64_t start, uint64_t end)
{
	set(s, start, end, false);
}

static uint64_t word_of(const struct page_set *s, const struct page_set *less, uint64_t page)
{
	uint64_t word = s->words[page / BITS];

	return less != NULL && page < less->pages ? word & ~less->words[page / BITS] : word;
}

/* The first page from @page on that is there, or (@there false) is not; @end. */
static uint64_t find(const struct page_set *s, const struct page_set *less, uint64_t page,
	uint64_t end, bool there)
{
	while (page < end) {
		uint64_t word = word_of(s, less, page);

		word = (there ? word : ~word) >> page % BITS;
		if (word != 0) {
			page += (uint64_t)__builtin_ctzll(word);
			break;
		}
		page += BITS - page % BITS;
	}
	return page < end ? page : end;
}

bool page_set_next(const struct page_set *s, const struct page_set *less, uint64_t *at,
	uint64_t end, struct page_run *ret)
{
	uint64_t stop = pages_of(end) < s->pages ? pages_of(end) : s->pages,
		 first = find(s, less, *at / PAGE, stop, true),
		 last = find(s, less, first, stop, false);

	if (first >= stop || *at >= end)
		return false;
	ret->start = first * PAGE > *at ? first * PAGE : *at;
	ret->end = last * PAGE < end ? last * PAGE : end;
	*at = ret->end;
	return true;
}

bool page_set_is_dense(const struct page_set *s, uint64_t end)
{
	uint64_t at = 0, last = 0, bytes = 0, touched = 0;
	struct page_run run;

	while (page_set_next(s, NULL, &at, end, &run)) {
		uint64_t first = run.start & ~(HUGE_PAGE - 1);

		first = first > last ? first : last;
		last = (run.end + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
		last = last < end ? last : end;
		bytes += run.end - run.start;
		touched += last > first ? last - first : 0;
	}
	return bytes >= HUGE_PAGE && bytes >= touched / 8 * 7;
}

void page_set_fini(struct page_set *s)
{
	if (s->words != NULL)
		(void)munmap(s->words, room_of(s->pages));
	*s = (struct page_set){ 0 };
}
