/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/pattern.h"
#include "t.h"

TEST(no_hosts)
{
	static const char *const bad[] = { "", ".", "a..b", "A.example", "a b", "*a.example",
		"a.*.b", "*.", "a.example.", "http://a", "a:80", "10.0.0.0/33", "10.0.0.1/",
		"::/129", "a/8", "1.2.3.4/8x", "-\xc3\xa9" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (host_pattern_valid(bad[i]))
			t_fail("'%s' is taken as a host", bad[i]);
}

TEST(hosts_that_are_never_judged)
{
	static const char *const never[] = { "127.1", "010.0.0.1", "0x7f000001", "5", "1.2.3.4.5",
		"a.1", "*.1", ".0.1", "::ffff:10.0.0.1", "::ffff:a00:1", "::FFFF:0:0/96" };
	static const char *const some[] = { "*", "a.example", "*.a1", "db1", "127.0.0.1",
		"10.0.0.0/8", "::1", "::/0", "::ffff:0:0/95", "::1.2.3.4", "1.a", "0xg" };

	for (size_t i = 0; i < ARRAY_SIZE(never); i++)
		if (!host_pattern_valid(never[i]) || host_pattern_flaw(never[i]) == NULL)
			t_fail("'%s' is taken as a host that is judged", never[i]);
	for (size_t i = 0; i < ARRAY_SIZE(some); i++)
		if (!host_pattern_valid(some[i]) || host_pattern_flaw(some[i]) != NULL)
			t_fail("'%s' is refused", some[i]);
}

TEST(hosts_match_themselves_and_nothing_near_them)
{
	check(host_pattern_match("a.example", "a.example"));
	check(!host_pattern_match("a.example", "b.a.example"));
	check(!host_pattern_match("a.example", "a.example.evil"));
	check(!host_pattern_match("a.example", "xa.example"));
	check(host_pattern_match("*.a.example", "b.a.example"));
	check(host_pattern_match("*.a.example", "c.b.a.example"));
	check(!host_pattern_match("*.a.example", "a.example"));
	check(!host_pattern_match("*.a.example", ".a.example"));
	check(!host_pattern_match("*.a.example", "ba.example"));
	check(host_pattern_match(".a.example", "a.example"));
	check(host_pattern_match(".a.example", "b.a.example"));
	check(!host_pattern_match(".a.example", "ba.example"));
	check(host_pattern_match("*", "anything"));
}

TEST(addresses_match_by_network_and_names_do_not)
{
	check(host_pattern_match("10.0.0.0/8", "10.255.0.1"));
	check(!host_pattern_match("10.0.0.0/8", "11.0.0.1"));
	check(host_pattern_match("10.0.0.0/9", "10.127.0.1"));
	check(!host_pattern_match("10.0.0.0/9", "10.128.0.1"));
	check(host_pattern_match("0.0.0.0/0", "1.2.3.4"));
	check(!host_pattern_match("0.0.0.0/0", "::1"));
	check(host_pattern_match("fd00::/8", "fd12::1"));
	check(host_pattern_match("1.2.3.4", "1.2.3.4"));
	check(!host_pattern_match("1.2.3.4", "1.2.3.5"));
	check(!host_pattern_match("10.0.0.0/8", "a.example"));
	check(!host_pattern_match("*.2.3.4", "1.2.3.4"));
}

static bool path(const char *glob, const char *text)
{
	return glob_match(glob, GLOB_PATH, text, strlen(text));
}

TEST(a_star_stays_in_its_segment)
{
	check(path("/a/*", "/a/b"));
	check(path("/a/*", "/a/"));
	check(!path("/a/*", "/a/b/c"));
	check(path("/a/**", "/a/b/c"));
	check(path("/a/**/c", "/a/b/x/c"));
	check(!path("/a/**/c", "/a/b/x/d"));
	check(path("/v1/charges/{id}", "/v1/charges/ch_1"));
	check(!path("/v1/charges/{id}", "/v1/charges/"));
	check(!path("/v1/charges/{id}", "/v1/charges/a/b"));
	check(path("/{a}/x/{b}", "/1/x/2"));
	check(path("/a?c", "/abc"));
	check(!path("/a?c", "/a/c"));
	check(path("/a\\*", "/a*"));
	check(!path("/a\\*", "/ab"));
	check(path("**", ""));
	check(!path("/a", "/ab"));
	check(!path("/ab", "/a"));
}

TEST(a_star_in_text_crosses_everything)
{
	check(glob_match("Bearer *", GLOB_TEXT, "Bearer a/b", 10));
	check(glob_match("{x}", GLOB_TEXT, "{x}", 3));
	check(!glob_match("*.png", GLOB_TEXT, "a.pngx", 6));
	check(glob_match("*a*a*a*", GLOB_TEXT, "xaxaxax", 7));
}

TEST(many_stars_stay_fast)
{
	char text[8000];

	memset(text, 'a', sizeof(text));
	check(!glob_match("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", GLOB_TEXT, text, sizeof(text)));
}

TEST(no_globs)
{
	check(!glob_valid("a", GLOB_PATH));
	check(!glob_valid("", GLOB_PATH));
	check(!glob_valid("/{a", GLOB_PATH));
	check(glob_valid("{a", GLOB_TEXT));
	check(glob_valid("**", GLOB_PATH));
}

static bool collect(const json_t *value, void *ctx)
{
	json_array_append((json_t *)ctx, (json_t *)(uintptr_t)value);
	return true;
}

static const char *walked(const char *text, const char *pointer)
{
	static char out[500];
	json_t *root = json_loads(text, JSON_DECODE_ANY, NULL), *list = json_array();
	char *dump;

	check_int(pointer_walk(root, pointer, collect, list), json_array_size(list));
	dump = json_dumps(list, JSON_COMPACT | JSON_ENCODE_ANY);
	(void)snprintf(out, sizeof(out), "%s", dump);
	free(dump);
	json_decref(list);
	json_decref(root);
	return out;
}

TEST(pointers_lead_to_values)
{
	const char *doc = "{\"a\":{\"b\":[1,{\"c\":2}]},\"x/y\":3,\"m~n\":4,\"\":5,\"*\":6}";

	check_str(walked(doc, "/a/b/1/c"), "[2]");
	check_str(walked(doc, "/a/b/2"), "[]");
	check_str(walked(doc, "/a/b/-1"), "[]");
	check_str(walked(doc, "/x~1y"), "[3]");
	check_str(walked(doc, "/m~0n"), "[4]");
	check_str(walked(doc, "/"), "[5]");
	check_str(walked(doc, "/a/b/*/c"), "[2]");
	check_str(walked(doc, "a"), "[{\"b\":[1,{\"c\":2}]}]");
	check_str(walked("[1,2]", "a"), "[]");
	check_str(walked("null", "/a"), "[]");
}

TEST(no_pointers)
{
	check(!pointer_valid(""));
	check(!pointer_valid("a/b"));
	check(!pointer_valid("/a~2"));
	check(!pointer_valid("/a~"));
	check(!pointer_valid("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"));
	check(pointer_valid("/a/*/b"));
	check(pointer_valid("a"));
}

TEST(path_globs_that_would_never_match)
{
	static const char *const bad[] = { "/.", "/..", "/a/./b", "/../a", "/a/..", "//", "/a//b",
		"/a//", "/%2f", "/%2", "/%", "/%7E", "/%zz", "/%00", "/a b", "/\xc3\xa4", "/a#b",
		"/a\\\\b", "**/../x", "/a\t" };
	static const char *const good[] = { "/", "/**", "**", "**/x", "/a/", "/a/*/b", "/...",
		"/.a", "/a..", "/{x}/..{y}", "/{../a}", "/%2F", "/%C3%A4*", "/a?b", "/a\\*", "/.?",
		"/*.", "/a;b=c,d", "/a%20b", "/@{scope}%2F*" };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (glob_path_flaw(bad[i]) == NULL)
			t_fail("'%s' has no flaw", bad[i]);
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		if (glob_path_flaw(good[i]) != NULL)
			t_fail("'%s' %s", good[i], glob_path_flaw(good[i]));
}

TEST(names_that_some_readers_take_for_another)
{
	json_t *root = json_loads(
		"{\"a\":{\"b\":1,\"B\":2},\"k\":1,\"\\u212a\":2,\"A\":3,\"\\u017fum\":4,\"x\":[{\"y\":1},{\"Y\":1}]}",
		0, NULL);

	check(pointer_alike(root, "a"));
	check(pointer_alike(root, "/a/c"));
	check(pointer_alike(root, "k"));
	check(pointer_alike(root, "sum"));
	check(pointer_alike(root, "/x/1/y"));
	check(pointer_alike(root, "/x/*/y"));
	check(!pointer_alike(root, "x"));
	check(!pointer_alike(root, "/x/0/y"));
	check(!pointer_alike(root, "b"));
	check(!pointer_alike(NULL, "b"));
	check(pointer_alike(root,
		"/x/y")); /* a list may be members in their order, or many of what it stands for */
	check(pointer_alike(json_object_get(root, "x"), "y"));
	check(pointer_alike(json_object_get(root, "x"), "0"));
	check(!pointer_alike(json_object_get(root, "x"), "/0"));
	check(!pointer_alike(json_object_get(root, "x"), "/*"));
	check(!pointer_alike(root, "/x/0/y/z"));
	json_decref(root);
}

static const char *changed(const char *pointer, const char *value)
{
	static char out[200];
	json_t *root = json_loads("{\"a\":{\"b\":[1,{\"c\":2}]},\"x/y\":3}", 0, NULL);
	json_t *new = value != NULL ? json_loads(value, JSON_DECODE_ANY, NULL) : NULL;
	bool done = pointer_set(root, pointer, new);
	char *dump = json_dumps(root, JSON_COMPACT);

	(void)snprintf(out, sizeof(out), "%s", done ? dump : "refused");
	free(dump);
	json_decref(new);
	json_decref(root);
	return out;
}

TEST(pointers_set_and_remove)
{
	check_str(changed("a", "1"), "{\"a\":1,\"x/y\":3}");
	check_str(changed("new", "[]"), "{\"a\":{\"b\":[1,{\"c\":2}]},\"x/y\":3,\"new\":[]}");
	check_str(changed("/a/b/1/c", "5"), "{\"a\":{\"b\":[1,{\"c\":5}]},\"x/y\":3}");
	check_str(changed("/x~1y", NULL), "{\"a\":{\"b\":[1,{\"c\":2}]}}");
	check_str(changed("/a/b", NULL), "{\"a\":{},\"x/y\":3}");
	check_str(changed("/nothing", NULL), "{\"a\":{\"b\":[1,{\"c\":2}]},\"x/y\":3}");
	check_str(changed("/n/o", NULL), "{\"a\":{\"b\":[1,{\"c\":2}]},\"x/y\":3}");
	check_str(changed("/x~1y/o", NULL), "{\"a\":{\"b\":[1,{\"c\":2}]},\"x/y\":3}");
	check_str(changed("/a/b/0", NULL), "refused");
	check_str(changed("/n/o", "1"), "refused");
	check_str(changed("/a/b/0", "1"), "refused");
	check_str(changed("/a/b/7/c", "1"), "refused");
}
