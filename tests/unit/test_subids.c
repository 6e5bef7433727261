/* SPDX-License-Identifier: Apache-2.0 */
#include "base/subids.h"
#include "t.h"

static uint64_t largest(const char *text)
{
	uint64_t n = 1;

	(void)subids_find(text, "ann", 1000, &n);
	return n;
}

static uint32_t found(const char *text)
{
	return subids_find(text, "ann", 1000, NULL);
}

TEST(a_range_is_lent_by_name_or_number)
{
	check_int(found("ann:100000:65536\n"), 100000);
	check_int(found("bob:100000:65536\n1000:300000:65536"), 300000);
	check_int(found("anna:100000:65536\nan:1:65536\n10000:1:65536\n"), 0);
	check_int(found("ann:100000:65535\n"), 100000);
	check_int(found(""), 0);
}

TEST(one_range_must_have_all)
{
	check_int(found("ann:100000:32768\nann:132768:32768\n"), 0);
	check_int(largest("ann:100000:32768\nann:132768:32767\n"), 32768);
	check_int(found("ann:100000:10\nann:200000:65536\nann:300000:65536\n"), 200000);
	check_int(largest("bob:100000:65536\n"), 0);
}

TEST(what_is_no_range_is_passed_over)
{
	check_int(found("# a comment\n\nann\nann:1\nann:x:65536\nann:1:y\nann:0:65536\n"
			"ann:4294967296:65536\nann:100000:4294967296\nann:7:65536\n"),
		7);
	check_int(largest("ann:0:65536\n:::\n"), 0);
}

static uint64_t free_in(const char *uids, const char *gids)
{
	return subids_free((const char *const[]){ uids, gids }, 2);
}

TEST(what_is_proposed_is_nobodys_in_either_file)
{
	check_int(free_in("", ""), 524288);
	check_int(free_in("bob:100000:65536\n", ""), 524288);
	check_int(free_in("bob:524288:65536\n", ""), 589824);
	check_int(free_in("", "bob:524288:65536\n"), 589824);
	check_int(free_in("bob:524288:65536\n", "bob:589824:65536\n"), 655360);
	check_int(free_in("eve:655360:1\nbob:524288:65536\n", "dan:589823:2\n"), 720896);
	check_int(free_in("bob:500000:24289\n", ""), 589824);
	check_int(free_in("bob:500000:24288\n", ""), 524288);
	check_int(free_in("bob:589823:1\n", ""), 589824);
	check_int(free_in("bob:4294901760:65535\n", ""), 524288);
	check_int(free_in("bob:600000:0\n", "bob:524289:0\n"), 524288);
}
