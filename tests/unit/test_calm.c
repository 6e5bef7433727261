/* SPDX-License-Identifier: Apache-2.0 */
#include "api/calm.h"
#include "t.h"

#define POOL 4

TEST(nothing_lost_nothing_waited_for)
{
	struct calm c = { 0 };

	check_int(calm_left_ns(&c, 1), 0);
	calm_changed(&c, 1000, false);
	check_int(calm_left_ns(&c, 1000), 0);
}

TEST(each_lost_batch_doubles_the_quiet)
{
	struct calm c = { 0 };
	uint64_t now = NS_PER_S, quiet = CALM_MIN_NS;

	for (int i = 0; i < 20; i++) {
		calm_changed(&c, now, true);
		check_int(calm_left_ns(&c, now), quiet);
		check_int(calm_left_ns(&c, now + quiet - 1), 1);
		check_int(calm_left_ns(&c, now + quiet), 0);
		now += NS_PER_S;
		quiet = 2 * quiet < CALM_MAX_NS ? 2 * quiet : CALM_MAX_NS;
	}
	check_int(quiet, CALM_MAX_NS);
}

TEST(a_change_begins_the_quiet_anew)
{
	struct calm c = { 0 };

	calm_changed(&c, NS_PER_S, true);
	calm_changed(&c, NS_PER_S + CALM_MIN_NS / 2, false);
	check_int(calm_left_ns(&c, NS_PER_S + CALM_MIN_NS / 2), CALM_MIN_NS);
}

TEST(use_brings_it_back_to_nothing)
{
	struct calm c = { 0 };
	int uses = 0;

	for (int i = 0; i < 20; i++)
		calm_changed(&c, NS_PER_S, true);
	for (; calm_left_ns(&c, NS_PER_S) > 0; uses++)
		calm_used(&c);
	check_int(uses, 8);
	calm_used(&c);
	check_int(calm_left_ns(&c, NS_PER_S), 0);
}

/* Changes every @every_ns for a minute, and a batch whenever it may be made, of which @used are used. Return: how many batches are lost. */
static int storm(uint64_t every_ns, int used)
{
	struct calm c = { 0 };
	uint64_t now = NS_PER_S;
	int lost = 0;

	for (; now < 61 * NS_PER_S; now += every_ns) {
		bool there = calm_left_ns(&c, now) == 0;

		for (int i = 0; there && i < used; i++)
			calm_used(&c);
		calm_changed(&c, now, there);
		lost += there;
	}
	return lost;
}

TEST(a_storm_costs_few_batches)
{
	check_int(storm(100 * NS_PER_MS, 0),
		3); /* made at once, after 50 and after 100 ms of quiet */
	check_int(storm(390 * NS_PER_MS, 0), 4);
	check_int(storm(100 * NS_PER_MS, 1), 3);
	check_int(storm(100 * NS_PER_MS, 2), 7); /* half of them used */
}

TEST(batches_that_are_used_go_on_being_made)
{
	check(storm(NS_PER_S, POOL) >= 59);
}
