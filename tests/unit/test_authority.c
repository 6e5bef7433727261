/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/authority.h"
#include "t.h"

static int parse(const char *text, struct authority *a)
{
	return authority_parse(text, strlen(text), a);
}

TEST(what_is_no_authority)
{
	static const char *const bad[] = { "", ":", ":80", "a:", "a:0", "a:65536", "a:+1", "a:1x",
		"a:1:2", "a b", "user@host", "a/b", "a#b", "a?b", "a..b", ".a", "..", "a%41",
		"[::1", "::1]", "[::1]x", "[a]", "[1.2.3.4]", "[fe80::1%25lo]", "1.2.3.4.5",
		"256.1.1.1", "1.2.3.256", "1.2.65536", "4294967296", "a.1", "a.0x1", "08.1.1.1",
		"\xc3\xa4.de", "a\tb", "example.com\x7f" };
	struct authority a;

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (parse(bad[i], &a) == 0)
			t_fail("'%s' became '%s'", bad[i], a.host);
	}
	check_int(authority_parse("a\0b", 3, &a), -EBADMSG);
}

TEST(every_spelling_of_an_address_is_one)
{
	static const char *const metadata[] = { "169.254.169.254", "2852039166", "0xa9fea9fe",
		"0251.0376.0251.0376", "169.254.43518", "0xA9.254.169.254",
		"[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "169.254.169.254." };
	struct authority a;

	for (size_t i = 0; i < ARRAY_SIZE(metadata); i++) {
		check_int(parse(metadata[i], &a), 0);
		check_str(a.host, "169.254.169.254");
		check(a.is_address);
	}
	check_int(parse("0x7f.1", &a), 0);
	check_str(a.host, "127.0.0.1");
	check_int(parse("[FD00:0:0::2]:8443", &a), 0);
	check_str(a.host, "fd00::2");
	check_int(a.port, 8443);
}

TEST(names)
{
	struct authority a;

	check_int(parse("API.Example.COM.:443", &a), 0);
	check_str(a.host, "api.example.com");
	check_int(a.port, 443);
	check(!a.is_address);
	check_int(parse("_dmarc.xn--e1afmkfd", &a), 0);
	check_int(a.port, 0);
}
