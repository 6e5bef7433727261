/* SPDX-License-Identifier: Apache-2.0 */
#include "api/beginnings.h"
#include "t.h"

#define POOL 4U

/* "a" and so on: a mount; "f": a fork; "-": neither. New reference or NULL. */
static json_t *made(char what)
{
	char text[2] = { what, '\0' };

	if (what == '-')
		return NULL;
	return json_pack("{s:s}", what == 'f' ? "snapshot" : "source", text);
}

static void note(struct beginnings *b, const char *all)
{
	for (; *all != '\0'; all++) {
		json_t *one = made(*all);

		beginnings_note(b, one);
		json_decref(one);
	}
}

static char name_of(const json_t *beginning)
{
	const char *text = json_string_value(json_object_get(beginning, "source"));

	return text != NULL ? text[0] : '-';
}

/* What is prepared for @all, one after the other, in a pool in which @there are. @ret: with a NUL. */
static void fill(const char *all, const char *there, char ret[POOL + 1])
{
	struct beginnings b = { 0 };
	json_t *have[POOL];
	size_t n = 0;

	note(&b, all);
	for (; there[n] != '\0'; n++)
		have[n] = made(there[n]);
	for (size_t i = 0; n < POOL; i++, n++) {
		have[n] = json_incref(beginnings_lacking(&b, POOL, have, n));
		ret[i] = name_of(have[n]);
		ret[i + 1] = '\0';
	}
	while (n > 0)
		json_decref(have[--n]);
	beginnings_fini(&b);
}

#define check_fill(all, there, want) \
	do { \
		char got[POOL + 1] = ""; \
		fill(all, there, got); \
		check_str(got, want); \
	} while (0)

TEST(nothing_seen_nothing_prepared)
{
	check_fill("", "", "----");
}

TEST(seen_once_is_nothing_to_prepare_for)
{
	check_fill("a", "", "----");
	check_fill("-a", "", "----");
	check_fill("abcdefgh", "", "----");
}

TEST(the_same_again_and_again_gets_all)
{
	check_fill("aa", "", "aaaa");
	check_fill("aaaaaaaaaaaaaaaaaaaa", "", "aaaa");
	check_fill("aaaaaaaa", "--", "aa");
}

TEST(two_in_turn_get_half_each)
{
	check_fill("abababab", "", "baba");
	check_fill("a-a-a-a-", "", "-a-a");
	check_fill("a-a-a-a-", "a-a", "-");
	check_fill("abababab", "aab", "b");
}

TEST(three_in_turn_are_all_there)
{
	char got[POOL + 1] = "";

	fill("abcabcabcabc", "", got);
	check(strchr(got, 'a') != NULL && strchr(got, 'b') != NULL && strchr(got, 'c') != NULL);
}

TEST(one_in_between_gets_one_that_suits_anybody)
{
	check_fill("aaaaaaaa-a", "", "aaa-");
	check_fill("aaaaaaaaba", "", "aaa-");
	check_fill("aaaaaaaabaaaa", "", "aaaa");
}

TEST(what_is_new_takes_over)
{
	check_fill("aaaaaaaabb", "aa", "bb");
	check_fill("aaaaaaaabbbb", "", "bbab");
	check_fill("aaaaaaaabbbbbbb", "", "bbbb");
}

TEST(a_directory_of_its_own_each_time_in_between)
{
	check_fill("axaya", "a", "-a-");
}

TEST(forks_are_no_mounts)
{
	check_fill("ffffffff", "", "----");
	check_fill("afafafaf", "", "-a-a");
}
