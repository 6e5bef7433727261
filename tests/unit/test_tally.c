/* SPDX-License-Identifier: Apache-2.0 */
#include "base/tally.h"
#include "t.h"

static void sum(void *ctx, const char *what, size_t n)
{
	size_t *total = ctx;

	check(what[0] != '\0');
	*total += n;
}

TEST(an_empty_one_has_none)
{
	struct tally t = { 0 };
	size_t total = 0;

	check_int((int)tally_count(&t, "x"), 0);
	tally_each(&t, sum, &total);
	check_int((int)total, 0);
	tally_free(&t);
}

TEST(each_is_counted_for_itself)
{
	struct tally t = { 0 };
	char name[] = "one";
	size_t total = 0;

	tally_add(&t, name);
	name[0] = 'x'; /* it has its own copy */
	tally_add(&t, "one");
	tally_add(&t, "two");
	check_int((int)tally_count(&t, "one"), 2);
	check_int((int)tally_count(&t, "two"), 1);
	check_int((int)tally_count(&t, "xne"), 0);
	tally_drop(&t, "two");
	tally_drop(&t, "one");
	check_int((int)tally_count(&t, "one"), 1);
	check_int((int)tally_count(&t, "two"), 0);
	check_int((int)tally_kinds(&t), 1);
	tally_each(&t, sum, &total);
	check_int((int)total, 1);
	tally_free(&t);
}

TEST(thousands_come_and_go)
{
	enum { MANY = 3000 };
	struct tally t = { 0 };
	char name[16];

	for (int i = 0; i < MANY; i++) {
		(void)snprintf(name, sizeof(name), "l%d", i % 1000);
		tally_add(&t, name);
	}
	check_int((int)tally_kinds(&t), 1000);
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(name, sizeof(name), "l%d", i % 1000);
		check_int((int)tally_count(&t, name), 3 - i / 1000);
		tally_drop(&t, name);
	}
	check_int((int)tally_kinds(&t), 0);
	tally_free(&t);
}
