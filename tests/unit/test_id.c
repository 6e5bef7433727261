/* SPDX-License-Identifier: Apache-2.0 */
#include "base/id.h"
#include "t.h"

TEST(id_begins_from_four_characters_on)
{
	check(id_begins("k3v9aaaaaaaaaaaaaaaa", "k3v9"));
	check(!id_begins("k3v9aaaaaaaaaaaaaaaa", "k3v"));
	check(!id_begins("k3v9aaaaaaaaaaaaaaaa", ""));
	check(!id_begins("k3v9aaaaaaaaaaaaaaaa", "k3v8"));
}

TEST(id_valid_refuses)
{
	static const char *const bad[] = { "", "abc", "abcdefghij012345678",
		"abcdefghij01234567890", "Abcdefghij0123456789", "abcdefghij012345678-",
		"abcdefghij 123456789", "../../../../etc/pass", "abcdefghij012345678\n" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (id_valid(bad[i]))
			t_fail("accepted '%s'", bad[i]);
	}
}

TEST(name_valid_refuses)
{
	char longest[NAME_MAX_LEN + 2];
	static const char *const bad[] = { "", "-a", ".a", "_a", "..", "a/b", "a b", "A", "a\n",
		"a:b", "\xC3\xA9", "abcdefghij0123456789" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (name_valid(bad[i]))
			t_fail("accepted '%s'", bad[i]);
	}
	memset(longest, 'a', sizeof(longest) - 1);
	longest[NAME_MAX_LEN + 1] = '\0';
	check(!name_valid(longest));
	longest[NAME_MAX_LEN] = '\0';
	check(name_valid(longest));
}

TEST(name_valid_accepts)
{
	check(name_valid("a"));
	check(name_valid("0"));
	check(name_valid("a.b_c-d"));
	check(name_valid("abcdefghij012345678"));
}

TEST(ids_are_valid_differ_and_use_every_digit)
{
	bool seen[256] = { false };
	struct id last = id_new();
	int digits = 0;

	for (int i = 0; i < 1000; i++) {
		struct id id = id_new();

		check(id_valid(id.s));
		check(strcmp(id.s, last.s) != 0);
		for (int k = 0; k < ID_LEN; k++)
			seen[(unsigned char)id.s[k]] = true;
		last = id;
	}
	for (int i = 0; i < 256; i++)
		digits += seen[i];
	check_int(digits, 36);
}

TEST(names_are_valid_and_numbered_when_asked)
{
	char name[NAME_MAX_LEN + 1];

	for (unsigned int i = 0; i < 300; i++) {
		name_new(name, i);
		check(name_valid(name));
		check(strchr(name, '-') != NULL);
	}
	name_new(name, UINT32_MAX);
	check(strstr(name, "-4294967295") != NULL);
}
