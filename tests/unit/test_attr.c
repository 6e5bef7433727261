/* SPDX-License-Identifier: Apache-2.0 */
/* As a packager compiles: what tells of programmer errors is there all the same. */
#define NDEBUG
#include "base/attr.h"
#include "t.h"

TEST(a_bug_ends_the_process)
{
	volatile int n = 1;

	check_aborts(BUG_ON(n == 1));
	BUG_ON(n != 1);
}

TEST(what_is_looked_at_is_looked_at_once)
{
	int n = 0;

	BUG_ON(n++ > 0);
	check_int(n, 1);
}
