/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages are there: runs over the ends of words, cut off, less those of another set; terabytes with one page. */
#include "t.h"
#include "checkpoint/page_set.h"

#define PAGE 4096ULL
#define MIB  (1ULL << 20)
#define TIB  (1ULL << 40)

/* The next run begins and ends there. */
static bool is_next(const struct page_set *s, const struct page_set *less, uint64_t *at,
	uint64_t end, uint64_t start, uint64_t stop)
{
	struct page_run run;

	return page_set_next(s, less, at, end, &run) && run.start == start && run.end == stop &&
	       *at == stop;
}

static bool is_over(
	const struct page_set *s, const struct page_set *less, uint64_t at, uint64_t end)
{
	struct page_run run;

	return !page_set_next(s, less, &at, end, &run);
}

TEST(an_empty_set_has_nothing)
{
	struct page_set s = { 0 };

	check(is_over(&s, NULL, 0, MIB));
	check_int(page_set_room(&s, MIB), 0);
	check(is_over(&s, NULL, 0, MIB));
	page_set_fini(&s);
}

TEST(runs_are_joined_and_cut_off)
{
	struct page_set s = { 0 };
	uint64_t at = 0;

	check_int(page_set_room(&s, 100 * MIB), 0);
	page_set_add(&s, 3 * PAGE, 60 * PAGE);
	page_set_add(&s, 60 * PAGE, 130 * PAGE + 1);
	page_set_add(&s, 200 * PAGE, 201 * PAGE);
	check(is_next(&s, NULL, &at, 100 * MIB, 3 * PAGE, 131 * PAGE));
	check(is_next(&s, NULL, &at, 100 * MIB, 200 * PAGE, 201 * PAGE));
	check(is_over(&s, NULL, at, 100 * MIB));
	at = 70 * PAGE;
	check(is_next(&s, NULL, &at, 100 * PAGE + 17, 70 * PAGE, 100 * PAGE + 17));
	check(is_over(&s, NULL, at, 100 * PAGE + 17));
	page_set_remove(&s, 4 * PAGE, 131 * PAGE);
	at = 0;
	check(is_next(&s, NULL, &at, 100 * MIB, 3 * PAGE, 4 * PAGE));
	check(is_next(&s, NULL, &at, 100 * MIB, 200 * PAGE, 201 * PAGE));
	page_set_fini(&s);
}

TEST(less_another_set)
{
	struct page_set s = { 0 }, less = { 0 };
	uint64_t at = 0;

	check_int(page_set_room(&s, 2 * TIB), 0);
	check_int(page_set_room(&less, MIB), 0);
	page_set_add(&s, 0, 300 * PAGE);
	page_set_add(&s, TIB, TIB + PAGE);
	page_set_add(&less, 10 * PAGE, 20 * PAGE);
	page_set_add(&less, 299 * PAGE, 310 * PAGE);
	check(is_next(&s, &less, &at, 2 * TIB, 0, 10 * PAGE));
	check(is_next(&s, &less, &at, 2 * TIB, 20 * PAGE, 299 * PAGE));
	check(is_next(&s, &less, &at, 2 * TIB, TIB, TIB + PAGE));
	check(is_over(&s, &less, at, 2 * TIB));
	page_set_fini(&s);
	page_set_fini(&less);
}

TEST(what_was_added_stays_when_it_grows)
{
	struct page_set s = { 0 };
	uint64_t at = 0;

	check_int(page_set_room(&s, PAGE), 0);
	page_set_add(&s, 0, 1);
	check_int(page_set_room(&s, TIB), 0);
	page_set_add(&s, TIB - PAGE, TIB);
	check(is_next(&s, NULL, &at, TIB, 0, PAGE));
	check(is_next(&s, NULL, &at, TIB, TIB - PAGE, TIB));
	page_set_fini(&s);
}

TEST(dense)
{
	struct page_set s = { 0 };

	check_int(page_set_room(&s, 100 * MIB), 0);
	check(!page_set_is_dense(&s, 100 * MIB));
	page_set_add(&s, 0, MIB);
	check(!page_set_is_dense(&s, MIB)); /* too little for a huge page */
	page_set_add(&s, 0, 50 * MIB);
	check(page_set_is_dense(&s, 100 * MIB));
	for (uint64_t at = 50 * MIB; at < 100 * MIB; at += 2 * MIB)
		page_set_add(&s, at, at + PAGE);
	check(!page_set_is_dense(&s, 100 * MIB));
	page_set_fini(&s);
}
