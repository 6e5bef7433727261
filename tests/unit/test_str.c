/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "t.h"

#include <limits.h>

TEST(bytes_that_are_zero)
{
	check(bytes_zero("", 0));
	check(bytes_zero("\0\0\0\0", 4));
	check(!bytes_zero("\0\0\0x", 4));
	check(!bytes_zero("x\0\0\0", 4));
	check(bytes_zero("\0x", 1));
}

TEST(to_u64_refuses_what_is_no_number)
{
	static const char *const bad[] = { "", " ", " 1", "1 ", "+1", "-1", "0x10", "1.0", "1e3",
		"ten", "1_000", "\t1" };
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check_int(str_to_u64(bad[i], 0, UINT64_MAX, &v), -EINVAL);
	check_int(v, 77);
}

TEST(to_u64_refuses_what_is_out_of_range)
{
	uint64_t v = 77;

	check_int(str_to_u64("18446744073709551616", 0, UINT64_MAX, &v), -ERANGE);
	check_int(str_to_u64("99999999999999999999999", 0, UINT64_MAX, &v), -ERANGE);
	check_int(str_to_u64("4", 5, 10, &v), -ERANGE);
	check_int(str_to_u64("11", 5, 10, &v), -ERANGE);
	check_int(v, 77);
}

TEST(to_u64_reads_the_whole_range)
{
	uint64_t v = 77;

	check_int(str_to_u64("0", 0, UINT64_MAX, &v), 0);
	check_int(v, 0);
	check_int(str_to_u64("18446744073709551615", 0, UINT64_MAX, &v), 0);
	check(v == UINT64_MAX);
	check_int(str_to_u64("007", 5, 10, &v), 0);
	check_int(v, 7);
}

TEST(to_size_refuses_odd_units)
{
	static const char *const bad[] = { "", "K", "k", "1 K", "1Kb", "1kB", "1mb", "1KiBB", "1P",
		"1.5G", "-1M", "1iB" };
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check_int(str_to_size(bad[i], &v), -EINVAL);
	check_int(str_to_size("16777216T", &v), -ERANGE);
	check_int(v, 77);
}

TEST(to_size_knows_powers_of_1024)
{
	uint64_t v = 0;

	check_int(str_to_size("512", &v), 0);
	check_int(v, 512);
	check_int(str_to_size("64K", &v), 0);
	check_int(v, 65536);
	check_int(str_to_size("512m", &v), 0);
	check_int(v, 512 << 20);
	check_int(str_to_size("8MB", &v), 0);
	check_int(v, 8 << 20);
	check_int(str_to_size("2GiB", &v), 0);
	check(v == 2ULL << 30);
	check_int(str_to_size("1T", &v), 0);
	check(v == 1ULL << 40);
}

TEST(to_duration_refuses_odd_units)
{
	static const char *const bad[] = { "", "s", "1S", "1min", "1 s", "-1s", "1us", "1h30m" };
	uint64_t v = 77;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		check_int(str_to_duration(bad[i], &v), -EINVAL);
	check_int(str_to_duration("18446744073709551615d", &v), -ERANGE);
	check_int(v, 77);
}

TEST(to_duration_answers_in_milliseconds)
{
	uint64_t v = 0;

	check_int(str_to_duration("3", &v), 0);
	check_int(v, 3000);
	check_int(str_to_duration("250ms", &v), 0);
	check_int(v, 250);
	check_int(str_to_duration("5m", &v), 0);
	check_int(v, 300000);
	check_int(str_to_duration("1d", &v), 0);
	check_int(v, 86400000);
}

TEST(utf8_refuses_malformed_bytes)
{
	static const char *const bad[] = { "\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80",
		"\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF",
		"\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC2", "\xE2\x82", "\xF0\x9F\x98",
		"a\xC2z" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (str_utf8_valid(bad[i], strlen(bad[i])))
			t_fail("accepted malformed sequence %zu", i);
	}
}

TEST(utf8_never_reads_past_the_end)
{
	/* A sequence that goes on after n bytes is cut, not followed. */
	check(!str_utf8_valid("\xE2\x82\xAC", 2));
	check(!str_utf8_valid("\xF0\x9F\x98\x80", 3));
	check(str_utf8_valid("a\xE2\x82\xAC", 1));
}

TEST(utf8_accepts_the_edges)
{
	static const char good[] = "a\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF"
				   "\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF";

	check(str_utf8_valid(good, sizeof(good) - 1));
	check(str_utf8_valid("", 0));
	check(str_utf8_valid("a\0b", 3));
}

TEST(utf8_tidy_replaces_only_what_is_malformed)
{
	char text[] = "a\xFFg\xC3\xA9\xE2\x82";

	str_utf8_tidy(text);
	check_str(text, "a?g\xC3\xA9??");
}

TEST(copy_refuses_what_does_not_fit)
{
	char to[4] = "old";

	check_int(str_copy(to, sizeof(to), "four"), -E2BIG);
	check_str(to, "");
	check_int(str_copy(to, sizeof(to), "abc"), 0);
	check_str(to, "abc");
	check_aborts((void)!str_copy(to, 0, "x"));
}

TEST(path_clean_refuses)
{
	static const char *const bad[] = { "", "a", "./a", "/a/", "//", "//a", "/a//b", "/.", "/..",
		"/a/.", "/a/..", "/../a", "/a/../b", "/a\n", "/a\x7F", "/a\x1F/b" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (str_path_clean(bad[i]))
			t_fail("accepted '%s'", bad[i]);
	}
}

TEST(path_clean_refuses_a_path_of_path_max)
{
	char p[PATH_MAX + 1];

	memset(p, 'a', sizeof(p));
	p[0] = '/';
	p[PATH_MAX] = '\0';
	check(!str_path_clean(p));
	p[PATH_MAX - 1] = '\0';
	check(str_path_clean(p));
}

TEST(path_clean_accepts)
{
	static const char *const good[] = { "/", "/a", "/a/b", "/...", "/.a", "/a.", "/..a",
		"/a b/\xC3\xA9" };

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		if (!str_path_clean(good[i]))
			t_fail("refused '%s'", good[i]);
	}
}

TEST(path_under_compares_whole_names)
{
	check(!str_path_under("/ab", "/a"));
	check(!str_path_under("/", "/a"));
	check(!str_path_under("/a", "/a/b"));
	check(str_path_under("/a", "/a"));
	check(str_path_under("/a/b", "/a"));
	check(str_path_under("/a", "/"));
}

TEST(ends_and_starts)
{
	check(!str_ends("a", "ba"));
	check(!str_starts("a", "ab"));
	check(str_ends("abc", "bc"));
	check(str_ends("abc", ""));
	check(str_starts("abc", "ab"));
}

TEST(hex_of_bytes)
{
	char text[9];

	str_hex(text, "\x00\x7f\xa0\xff", 4);
	check_str(text, "007fa0ff");
	str_hex(text, "", 0);
	check_str(text, "");
}

TEST(words_of_a_list)
{
	check(str_list_has("one,two", "one") && str_list_has("one,two", "two"));
	check(!str_list_has("one,two", "on") && !str_list_has("one", "one,two"));
	check(!str_list_has("one,,two", "three") && str_list_has(",one", "one"));
	check(!str_list_has("", "one") && !str_list_has(NULL, "one"));
}

TEST(dup_keeps_null)
{
	cleanup_free char *copy = str_dup("x"), *text = str_dupf("%d-%s", 7, "y");

	check(str_dup(NULL) == NULL);
	check_str(copy, "x");
	check_str(text, "7-y");
}
