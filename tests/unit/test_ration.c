/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/ration.h"
#include "t.h"

/* What a look finds. */
struct world {
	uint64_t there;
	int32_t busy; /* this thread is on its way; 0 = none is */
	int looks;
};

static uint64_t count(void *ctx)
{
	struct world *w = ctx;

	w->looks++;
	return w->there;
}

static bool on_its_way(void *ctx, int32_t thread)
{
	const struct world *w = ctx;

	return thread == w->busy;
}

static struct ration_view view_of(struct world *w)
{
	return (struct ration_view){ count, on_its_way, w };
}

TEST(what_was_there_before_is_counted)
{
	struct world w = { .there = 9 };
	const struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	check(ration_take(&r, 1, 1, 10, &view));
	w.there = 10;
	check(!ration_take(&r, 1, 1, 10, &view));
}

TEST(nobody_looks_before_it_may_be_too_much)
{
	struct world w = { 0 };
	const struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	for (int i = 0; i < 10; i++)
		check(ration_take(&r, 1, 1, 10, &view));
	check_int(w.looks, 1);
	/* all of them have been closed */
	check(ration_take(&r, 1, 1, 10, &view));
	check_int(w.looks, 2);
}

TEST(what_is_on_its_way_counts_though_it_is_not_seen)
{
	struct world w = { .there = 0, .busy = 5 };
	const struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	check(ration_take(&r, 5, 2, 3, &view));
	check(ration_take(&r, 6, 1, 3, &view));
	check(ration_take(&r, 6, 1, 3, &view)); /* its own from before is not */
	check(!ration_take(&r, 7, 2, 3, &view));
	/* neither is it when that thread comes again, or sleeps */
	check(ration_take(&r, 5, 2, 3, &view));
	w.busy = 0;
	check(ration_take(&r, 7, 3, 3, &view));
}

TEST(a_heavy_one_is_refused_whole)
{
	struct world w = { .there = 2 };
	const struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	check(!ration_take(&r, 1, 9, 10, &view));
	check(ration_take(&r, 1, 8, 10, &view));
}

TEST(where_it_cannot_be_told_there_is_no_more)
{
	struct world w = { .there = UINT64_MAX };
	const struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	check(!ration_take(&r, 1, 1, 10, &view));
	w.there = 0;
	check(ration_take(&r, 1, 1, 10, &view));
}

TEST(where_nothing_tells_of_ends_it_is_for_ever)
{
	const struct ration_view view = { 0 };
	struct ration r = { 0 };

	ration_add(&r, 1);
	for (int i = 0; i < 9; i++)
		check(ration_take(&r, 1, 1, 10, &view));
	check(!ration_take(&r, 1, 1, 10, &view));
}

TEST(what_was_not_made_is_given_back)
{
	const struct ration_view view = { 0 };
	struct ration r = { 0 };

	for (int i = 0; i < 20; i++) {
		check(ration_take(&r, 1, 10, 10, &view));
		check(!ration_take(&r, 1, 1, 10, &view));
		ration_give_back(&r, 10);
	}
}

TEST(where_a_look_has_found_no_room_there_is_none_for_a_while)
{
	struct world w = { .there = 10 };
	struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	view.now_ns = 1000;
	view.rest_ns = 100;
	check(!ration_take(&r, 1, 1, 10, &view));
	w.there = 0;
	view.now_ns = 1099;
	for (int i = 0; i < 10; i++)
		check(!ration_take(&r, 1, 1, 10, &view));
	check_int(w.looks, 1);
	view.now_ns = 1100;
	check(ration_take(&r, 1, 10, 10, &view));
	check_int(w.looks, 2);
}

TEST(what_does_not_fit_is_refused_when_no_more_is_looked)
{
	struct world w = { .there = 0 };
	struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	view.no_look = true;
	check(!ration_take(&r, 1, 1, 10, &view));
	view.no_look = false;
	for (int i = 1; i <= 10; i++)
		check(ration_take(&r, 1, 1, 10, &view));
	view.no_look = true;
	for (int i = 0; i < 10; i++)
		check(!ration_take(&r, 1, 1, 10, &view));
	check_int(w.looks, 1);
	view.no_look = false;
	check(ration_take(&r, 1, 1, 10, &view));
	check_int(w.looks, 2);
}

TEST(more_than_can_be_remembered_is_looked_for)
{
	struct world w = { .busy = -1 };
	const struct ration_view view = view_of(&w);
	struct ration r = { 0 };

	for (int i = 1; i <= RATION_GRANTS + 1; i++)
		check(ration_take(&r, i, 1, UINT32_MAX, &view));
	check_int(w.looks, 2);
}

TEST(sockets_go_by_the_memory_that_they_may_take)
{
	check_int(ration_sockets(64UL << 20, 212992), 19);
	check_int(ration_sockets(64UL << 20, 4UL << 20), RATION_SOCKETS_MIN);
	check_int(ration_sockets(2UL << 30, 4UL << 20), 32);
	check_int(ration_sockets(2UL << 30, 212992), RATION_SOCKETS_MAX);
	check_int(ration_sockets(0, 212992), RATION_SOCKETS_MAX);
	check_int(ration_sockets(UINT64_MAX, 0), RATION_SOCKETS_MAX);
}
