/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "sandbox/clocks.h"
#include "t.h"

#define DAY (86400 * (int64_t)NS_PER_S)

/* What clocks that were @ahead said, as if during a run of the machine that was @later by so much. */
static json_t *said(const struct clocks *ahead, int64_t later, const char *boot)
{
	json_t *then = clocks_save(ahead);

	(void)json_object_set_new(
		then, "monotonic_ns", json_integer((json_int_t)clock_now_ns() + later));
	(void)json_object_set_new(
		then, "boottime_ns", json_integer((json_int_t)clock_boot_ns() + later));
	if (boot != NULL)
		(void)json_object_set_new(then, "boot", json_string(boot));
	return then;
}

TEST(within_one_run_of_the_machine_they_are_as_far_ahead_as_before)
{
	const struct clocks all[] = { { 0, 0 }, { 5 * DAY, 7 * DAY }, { 0, 1 } };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		json_t *then = clocks_save(&all[i]);
		struct clocks now;

		clocks_load(then, false, &now);
		check(now.monotonic_ns == all[i].monotonic_ns);
		check(now.boottime_ns == all[i].boottime_ns);
		json_decref(then);
	}
}

TEST(after_a_start_of_the_machine_they_stand_where_they_stood)
{
	const struct clocks ahead = { 100 * DAY, 100 * DAY };
	json_t *then = said(&ahead, 3 * DAY, "another");
	struct clocks now;

	clocks_load(then, false, &now);
	check(now.monotonic_ns <= 3 * DAY && now.monotonic_ns > 2 * DAY);
	check(now.boottime_ns <= 3 * DAY && now.boottime_ns > 2 * DAY);
	check((int64_t)clocks_back_ns(then) > 2 * DAY);
	check((int64_t)clocks_back_ns(then) <= 3 * DAY);
	json_decref(then);
}

TEST(a_machine_that_has_run_for_longer_needs_nothing)
{
	const struct clocks ahead = { 100 * DAY, 100 * DAY };
	json_t *then = said(&ahead, 0, "another");
	struct clocks now;

	clocks_load(then, false, &now);
	check(now.monotonic_ns == 0 && now.boottime_ns == 0);
	check(clocks_back_ns(then) == 0);
	json_decref(then);
}

TEST(what_stood_still_goes_on_from_where_it_stood)
{
	const struct clocks ahead = { 5 * DAY, 7 * DAY };
	const char *const runs[] = { NULL, "another" };
	const int64_t stood = (int64_t)NS_PER_S;

	for (size_t i = 0; i < ARRAY_SIZE(runs); i++) {
		json_t *then = said(&ahead, 0, runs[i]);
		int64_t before = (int64_t)clock_now_ns();
		struct clocks now;

		(void)json_object_set_new(then, "monotonic_ns", json_integer(stood));
		clocks_load(then, true, &now);
		check(now.monotonic_ns <= stood - before);
		check(now.monotonic_ns >= stood - (int64_t)clock_now_ns());
		check(now.boottime_ns == (i == 0 ? 7 * DAY : 0));
		json_decref(then);
	}
}

TEST(one_that_is_behind_stays_so_in_forks)
{
	const struct clocks behind = { -(int64_t)NS_PER_S, 0 };
	json_t *then = clocks_save(&behind);
	struct clocks now;

	clocks_load(then, false, &now);
	check(now.monotonic_ns == -(int64_t)NS_PER_S && now.boottime_ns == 0);
	json_decref(then);
}

TEST(a_clock_that_steps_back_is_believed_more_than_the_name_of_the_run)
{
	const struct clocks ahead = { 0, 0 };
	json_t *then = said(&ahead, 3 * DAY, NULL);
	struct clocks now;

	clocks_load(then, false, &now);
	check(now.monotonic_ns > 2 * DAY && now.boottime_ns > 2 * DAY);
	json_decref(then);
}

TEST(nothing_known_is_nothing_ahead)
{
	const char *const texts[] = { "{}", "{\"boot\":7}", "{\"monotonic_ns\":-1}", "[]" };
	struct clocks now = { 1, 1 };

	clocks_load(NULL, true, &now);
	check(now.monotonic_ns == 0 && now.boottime_ns == 0 && clocks_back_ns(NULL) == 0);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		json_t *then = json_loads(texts[i], 0, NULL);

		now = (struct clocks){ 1, 1 };
		clocks_load(then, true, &now);
		check(now.monotonic_ns == 0 && now.boottime_ns == 0 && clocks_back_ns(then) == 0);
		json_decref(then);
	}
}
