/* SPDX-License-Identifier: Apache-2.0 */
#include "api/uncounted.h"
#include "base/clock.h"
#include "t.h"

#include <unistd.h>

#define MIB (1ULL << 20)

TEST(what_programs_and_files_have_is_not_the_kernels)
{
	static const char text[] =
		"MemTotal:       1000 kB\nMemFree:         300 kB\nMemAvailable:    700 kB\n"
		"Buffers:          10 kB\nCached:          200 kB\nSwapCached:        5 kB\n"
		"AnonPages:       100 kB\nSlab:            150 kB\nSReclaimable:     50 kB\n"
		"SUnreclaim:      100 kB\nKernelStack:       3 kB\nPageTables:        7 kB\n"
		"Percpu:            5 kB\nHugetlb:          20 kB\n";
	uint64_t total;

	check_int(uncounted_of(text, "", &total), 300 << 10);
	check_int(total, 1000 << 10);
}

TEST(what_a_processor_keeps_free_is_free)
{
	static const char zones[] = "Node 0, zone   Normal\n  pages free     100\n  pagesets\n"
				    "    cpu: 0\n              count:    20\n"
				    "              high:     50\n              batch:    63\n"
				    "    cpu: 1\n              count:    5\n";
	const uint64_t page = (uint64_t)getpagesize();
	uint64_t total;

	check_int(uncounted_of("MemTotal: 1000 kB\nMemFree: 300 kB\n", zones, &total),
		(700 << 10) - 25 * page);
	check_int(uncounted_of("MemTotal: 40 kB\nMemFree: 30 kB\n", zones, &total), 0);
}

TEST(a_file_that_says_less_is_no_reason)
{
	uint64_t total;

	check_int(uncounted_of("", "", &total), 0);
	check_int(total, 0);
	/* counted one after the other, while all moves */
	check_int(uncounted_of("MemTotal: 10 kB\nMemFree: 8 kB\nCached: 7 kB\n", "", &total), 0);
}

TEST(only_growth_is_asked_about)
{
	struct uncounted u;

	uncounted_init(&u, NULL);
	/* what was there before anybody looked is growth, too */
	check(uncounted_has_grown(&u, 900 * MIB, 1024 * MIB));
	u.quiet = 900 * MIB;
	check(!uncounted_has_grown(&u, 932 * MIB, 1024 * MIB));
	check(uncounted_has_grown(&u, 933 * MIB, 1024 * MIB));
	/* counted from the least that there was */
	check(!uncounted_has_grown(&u, 100 * MIB, 1024 * MIB));
	check(!uncounted_has_grown(&u, 132 * MIB, 1024 * MIB));
	check(uncounted_has_grown(&u, 133 * MIB, 1024 * MIB));
}

TEST(how_much_growth_can_be_said)
{
	struct uncounted u;

	uncounted_init(&u, "1000");
	check(!uncounted_has_grown(&u, 1000, 1024 * MIB));
	check(uncounted_has_grown(&u, 1001, 1024 * MIB));
	uncounted_init(&u, "much");
	check_int(u.bound, 0);
}

TEST(who_had_only_begun_is_asked_again)
{
	struct uncounted u;

	uncounted_init(&u, NULL);
	u.seen = 5 * MIB;
	uncounted_asked(&u, true, 100);
	check_int(u.quiet, 5 * MIB);
	check_int(u.again_ns, 100 + 4 * NS_PER_S);
	uncounted_asked(&u, true, 200);
	check_int(u.again_ns, 200 + 16 * NS_PER_S);
	uncounted_asked(&u, true, 300);
	check_int(u.again_ns, 300 + 64 * NS_PER_S);
	uncounted_asked(&u, true, 400);
	check_int(u.again_ns, 0);
	/* who holds too much is asked at once, and what is left is looked at from the beginning */
	u.seen = 9 * MIB;
	uncounted_asked(&u, false, 500);
	check_int(u.again_ns, 500);
	check_int(u.quiet, 5 * MIB);
	uncounted_asked(&u, true, 600);
	check_int(u.again_ns, 600 + 4 * NS_PER_S);
}
