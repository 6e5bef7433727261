/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/holders.h"
#include "t.h"

TEST(who_has_most)
{
	struct holders h = { 0 };

	check(holders_largest(&h) == NULL);
	holders_add(&h, 7, 0);
	check(holders_largest(&h) == NULL);
	holders_add(&h, 7, 10);
	holders_add(&h, 8, 15);
	check_int(holders_largest(&h)->group, 8);
	holders_add(&h, 7, 6);
	check_int(holders_largest(&h)->group, 7);
	check_int(holders_largest(&h)->bytes, 16);
	check_int(h.bytes, 31);
}

TEST(groups_without_a_place_are_one)
{
	struct holders h = { 0 };

	for (uint64_t group = 1; group <= 3 * HOLDERS_MAX; group++)
		holders_add(&h, group, 1);
	check_int(h.n, HOLDERS_MAX);
	check_int(h.bytes, 3 * HOLDERS_MAX);
	check_int(holders_largest(&h)->group, 0);
	check_int(holders_largest(&h)->bytes, 2 * HOLDERS_MAX + 1);
}
