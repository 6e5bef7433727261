/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/urlpath.h"
#include "t.h"

static const char *canonical(const char *path)
{
	static char out[500];

	return urlpath_canonical(path, strlen(path), out) < 0 ? "refused" : out;
}

TEST(what_two_readers_would_read_differently)
{
	static const char *const bad[] = { "", "a", "/%", "/%4", "/%zz", "/%00", "/a%0d%0ab",
		"/a\\b", "/a b", "/a#b", "/a?b", "/x/..%2fadmin", "/x/%2e%2e%2fadmin",
		"/x/..%5cadmin", "/x/..;/admin", "/x/.;a=b/admin", "/%2f..%2f",
		"/x/%252e%252e/admin", "/x/..%252fadmin", "/x/%2e%252e/admin", "/\x80", "/\x7f" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (strcmp(canonical(bad[i]), "refused") != 0)
			t_fail("'%s' became '%s'", bad[i], canonical(bad[i]));
	}
}

TEST(one_form)
{
	check_str(canonical("/"), "/");
	check_str(canonical("/a/b/"), "/a/b/");
	check_str(canonical("/%61/%7Eb"), "/a/~b");
	check_str(canonical("/a%2fb%c3%a4"), "/a%2Fb%C3%A4");
	check_str(canonical("/a/./b/../c"), "/a/c");
	check_str(canonical("/%2e%2E/a"), "/a");
	check_str(canonical("/../../a"), "/a");
	check_str(canonical("/a/.."), "/");
	check_str(canonical("/a/b/."), "/a/b/");
	check_str(canonical("//a///b"), "/a/b");
	check_str(canonical("/@scope%2Fname"), "/@scope%2Fname");
	check_str(canonical("/a;v=1/..."), "/a;v=1/...");
	check_str(canonical("/100%25"), "/100%25");
}

static const char *otherwise(const char *path, unsigned int how)
{
	static char out[500];
	size_t n = urlpath_otherwise(path, strlen(path), how, out);

	check(n == strlen(out));
	return out;
}

TEST(other_forms)
{
	check_str(otherwise("/", URLPATH_CUT | URLPATH_DECODED), "/");
	check_str(otherwise("/a;x/b;y=1;z", URLPATH_CUT), "/a/b");
	check_str(otherwise("/a/;x/b/", URLPATH_CUT), "/a/b/");
	check_str(otherwise("/a%2Fb%3Bx", URLPATH_CUT), "/a%2Fb%3Bx");
	check_str(otherwise("/a%2Fb%5Cc", URLPATH_DECODED), "/a/b/c");
	check_str(otherwise("/a%252Fb%25252F", URLPATH_DECODED), "/a/b/");
	check_str(otherwise("/a%2F%2E%2E%2Fb", URLPATH_DECODED), "/b");
	check_str(otherwise("/%2F..", URLPATH_DECODED), "/");
	check_str(otherwise("/a%3Bx/b", URLPATH_CUT | URLPATH_DECODED), "/a/b");
	check_str(otherwise("/a%2500b%", URLPATH_DECODED), "/a%00b%");
	check_str(otherwise("/;", URLPATH_CUT), "/");
}

TEST(queries)
{
	check(urlpath_query_valid("a=b&c=%20", 9));
	check(urlpath_query_valid("", 0));
	check(!urlpath_query_valid("a b", 3));
	check(!urlpath_query_valid("%2", 2));
	check(!urlpath_query_valid("a#", 2));
}
