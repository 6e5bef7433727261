/* SPDX-License-Identifier: Apache-2.0 */
#include "store/thinning.h"
#include "t.h"

#define N 100000

static uint64_t kept[N + 1];

/* A snapshot after each step from 1 to @last but those that @missing says; thinned after each. Return: how many are left in `kept`. */
static size_t live(uint64_t last, bool (*missing)(uint64_t step))
{
	static bool keep[N + 1];
	size_t n = 0, left;

	for (uint64_t step = 1; step <= last; step++) {
		if (!missing(step))
			kept[n++] = step;
		thinning_choose(kept, n, step, keep);
		left = 0;
		for (size_t i = 0; i < n; i++) {
			if (keep[i])
				kept[left++] = kept[i];
		}
		n = left;
	}
	return n;
}

static bool none(attr_unused uint64_t step)
{
	return false;
}

static bool most(uint64_t step)
{
	return step % 7 != 0;
}

TEST(the_newest_sixteen_stay)
{
	size_t n = live(1000, none);

	for (uint64_t i = 0; i < THINNING_ALL; i++)
		check_int(kept[n - 1 - i], 1000 - i);
}

TEST(older_ones_stay_within_a_stretch_of_their_age)
{
	size_t n = live(5000, none);

	for (size_t i = 1; i < n; i++) {
		uint64_t gap = kept[i] - kept[i - 1];

		check(gap <= 2 * thinning_stride(5000 - kept[i - 1]));
	}
	check_int(kept[0], 1);
}

TEST(there_are_few_of_them)
{
	check(live(20000, none) <= 16 + 9 * 15);
	check(live(20000, most) <= 16 + 9 * 15);
}

TEST(what_is_chosen_is_chosen_again)
{
	static bool keep[N];
	size_t n = live(3000, most);

	thinning_choose(kept, n, 3000, keep);
	for (size_t i = 0; i < n; i++)
		check(keep[i]);
}

TEST(a_stretch_is_an_eighth_of_the_age)
{
	check_int(thinning_stride(0), 1);
	check_int(thinning_stride(15), 1);
	check_int(thinning_stride(16), 2);
	check_int(thinning_stride(31), 2);
	check_int(thinning_stride(32), 4);
	check_int(thinning_stride(1 << 20), 1 << 17);
}
