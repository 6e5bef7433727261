/* SPDX-License-Identifier: Apache-2.0 */
/* What a sieve keeps, beside jansson, which keeps everything. */
#include "base/buf.h"
#include "base/str.h"
#include "policy/pattern.h"
#include "policy/sieve.h"
#include "t.h"

#include <malloc.h>
#include <stdlib.h>

/* @text in pieces of @step bytes. */
static json_t *sieved(
	const char *text, size_t n, size_t step, const struct sieve_paths *paths, size_t memory)
{
	struct sieve *s = sieve_new(paths, memory);
	json_t *tree = NULL;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i += step)
		rc = sieve_feed(s, text + i, n - i < step ? n - i : step);
	if (rc == 0)
		tree = sieve_end(s);
	sieve_free(s);
	return tree;
}

static const char *const texts[] = {
	"{\"a\": 1, \"b\": [true, false, null, {\"c\": \"x\\u00e4\\ud83d\\ude00\\n\"}], \"d\": {\"e\": -1.5e3}}",
	"[]",
	" {} \n",
	"[1, [2, [3, {\"a\": {\"a\": {}}}]]]",
	"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"source\": {\"type\": \"base64\", \"data\": \"AAAA\"}}]}], \"tools\": [{\"type\": \"own\"}]}",
	"{\"Tools\": 1, \"tool\\u0053\": 2, \"to\xc5\xbfls\": [3], \"\xc3\xa4\": \"\xf0\x9f\x98\x80\"}",
	"{\"a\": 9223372036854775807, \"b\": -9223372036854775808, \"c\": 0, \"d\": -0, \"e\": 1e-400, \"f\": 0.1}",
	"{\"a\": \"\\u0000\", \"b\": \"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}",
};

static const char *const bad[] = {
	"",
	" ",
	"1",
	"\"a\"",
	"null",
	"{",
	"[",
	"}",
	"[1,]",
	"[,1]",
	"{\"a\"}",
	"{\"a\":}",
	"{\"a\":1,}",
	"{,}",
	"{a:1}",
	"[1 2]",
	"[01]",
	"[-]",
	"[1.]",
	"[.5]",
	"[1e]",
	"[1e+]",
	"[+1]",
	"[0x1]",
	"[tru]",
	"[truee]",
	"[nul]",
	"[True]",
	"[9223372036854775808]",
	"[-9223372036854775809]",
	"[1e400]",
	"[\"\\x\"]",
	"[\"\\u12\"]",
	"[\"\\u12g4\"]",
	"[\"\\ud800\"]",
	"[\"\\udc00\"]",
	"[\"\\ud800\\ud800\"]",
	"[\"\\ud800x\"]",
	"[\"a\nb\"]",
	"[\"\x01\"]",
	"[\"\xff\"]",
	"[\"\xc0\xaf\"]",
	"[\"\xed\xa0\x80\"]",
	"[\"\xf4\x90\x80\x80\"]",
	"[\"\xe0\x80\x80\"]",
	"[\"\xc3\"]",
	"[\"\xc3\x28\"]",
	"{\"a\":1}x",
	"{\"a\":1}{}",
	"[1]]",
	"[1}",
	"{\"a\":1]",
	"{\"\\u0000\": 1}",
	"\xef\xbb\xbf{}",
	"[\"abc",
	"{\"a\":1,\"a\":2}",
	"//x\n[]",
	"['a']",
	"[NaN]",
	"[Infinity]",
};

static json_t *reference(const char *text, size_t n)
{
	return json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
}

static int add_text(const char *p, size_t n, void *ctx)
{
	buf_add(ctx, p, n);
	return 0;
}

/* @tree written anew; free() it. NULL: there is none. */
static char *written(const json_t *tree)
{
	struct buf text = BUF_INIT(SIZE_MAX / 2);

	if (tree == NULL)
		return NULL;
	check_int(sieve_write(tree, add_text, &text), 0);
	return buf_take(&text);
}

static void same(const char *text, size_t n)
{
	json_t *want = reference(text, n);

	for (size_t step = 1; step < 12; step += 5) {
		json_t *tree = sieved(text, n, step, NULL, SIZE_MAX);
		cleanup_free char *anew = written(tree);
		json_t *got = anew != NULL ? reference(anew, strlen(anew)) : NULL;

		check((got == NULL) == (want == NULL));
		check(got == NULL || json_equal(got, want));
		json_decref(got);
		json_decref(tree);
	}
	json_decref(want);
}

TEST(all_of_it_is_what_jansson_reads)
{
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		same(texts[i], strlen(texts[i]));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		check(reference(bad[i], strlen(bad[i])) == NULL);
		same(bad[i], strlen(bad[i]));
	}
	same("[\"a\0b\"]", 7);
	check(sieved("[1\0]", 4, 4, NULL, SIZE_MAX) == NULL); /* jansson overlooks it */
}

/* Jansson could not keep them; RFC 8259 knows neither a largest number nor pairs of escapes. */
TEST(what_nobody_looks_at_is_json_though_it_could_not_be_kept)
{
	static const char *const beside[] = { "18446744073709551615", "[-9223372036854775809]",
		"1e400", "\"\\ud800\"", "\"\\udc00\\ud800x\"", "\"\\ud800\\n\\ud83d\\ude00\"" };
	struct sieve_paths *paths = sieve_paths_new();
	char text[100];

	sieve_paths_add(paths, "a", SIZE_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
		for (size_t step = 1; step < 12; step += 5) {
			json_t *tree;

			(void)snprintf(text, sizeof(text), "{\"b\": %s, \"a\": 5}", beside[i]);
			tree = sieved(text, strlen(text), step, paths, SIZE_MAX);
			check_int(json_integer_value(json_object_get(tree, "a")), 5);
			json_decref(tree);
			(void)snprintf(text, sizeof(text), "{\"a\": %s}", beside[i]);
			check(*beside[i] == '[' ||
				sieved(text, strlen(text), step, paths, SIZE_MAX) == NULL);
			tree = sieved(text, strlen(text), step, NULL, SIZE_MAX);
			check((tree == NULL) == (strchr(beside[i], 'u') != NULL));
			json_decref(tree);
		}
	}
	check(sieved("{\"b\": 1e, \"a\": 5}", 19, 3, paths, SIZE_MAX) == NULL);
	check(sieved("{\"b\": \"\\ud80\", \"a\": 5}", 23, 3, paths, SIZE_MAX) == NULL);
	check(sieved("{\"\\ud800\": 1, \"a\": 5}", 22, 3, paths, SIZE_MAX) == NULL);
	sieve_paths_free(paths);
}

TEST(broken_texts_are_refused_as_jansson_does)
{
	static const char odd[] = "{}[]\",:\\u0019eE+-. atfn\xc3\xa4\xf0\x9f";
	char text[400];

	srand(7);
	for (int round = 0; round < 20000; round++) {
		const char *from = texts[(size_t)rand() % ARRAY_SIZE(texts)];
		size_t n = strlen(from);

		memcpy(text, from, n);
		for (int k = rand() % 3; k >= 0; k--)
			text[(size_t)rand() % n] = odd[(size_t)rand() % (sizeof(odd) - 1)];
		same(text, n);
	}
}

/* Do both trees say the same to everybody who follows @pointer? */
static bool collect(const json_t *value, void *ctx)
{
	json_t *copy = json_is_object(value)  ? json_object()
		       : json_is_array(value) ? json_array()
					      : json_deep_copy(value);

	return json_array_append_new(ctx, copy) == 0;
}

static void alike(const char *text, const char *const *pointers, size_t n)
{
	struct sieve_paths *paths = sieve_paths_new();
	json_t *whole = reference(text, strlen(text)), *kept;

	for (size_t i = 0; i < n; i++)
		sieve_paths_add(paths, pointers[i], SIZE_MAX);
	kept = sieved(text, strlen(text), 7, paths, SIZE_MAX);
	check((kept == NULL) == (whole == NULL));
	for (size_t i = 0; i < n && kept != NULL; i++) {
		json_t *a = json_array(), *b = json_array();

		check_int(pointer_walk(kept, pointers[i], collect, a),
			pointer_walk(whole, pointers[i], collect, b));
		check(json_equal(a, b));
		check_int(pointer_alike(kept, pointers[i]), pointer_alike(whole, pointers[i]));
		json_decref(a);
		json_decref(b);
	}
	json_decref(kept);
	json_decref(whole);
	sieve_paths_free(paths);
}

TEST(pointers_lead_to_the_same)
{
	static const char *const pointers[] = { "/tools/*/type",
		"/messages/*/content/*/source/type", "a", "/b/3/c", "/d", "/d/e", "/*/*", "/0",
		"/1/1/1/a/a", "/1/0", "tools", "*", "/*", "/a~1b/~0", "/b/0", "/b/*/c", "\xc3\xa4",
		"/messages/0/role", "/messages/*" };
	const char *some[3];

	srand(11);
	for (int round = 0; round < 3000; round++) {
		for (size_t i = 0; i < ARRAY_SIZE(some); i++)
			some[i] = pointers[(size_t)rand() % ARRAY_SIZE(pointers)];
		alike(texts[(size_t)rand() % ARRAY_SIZE(texts)], some, ARRAY_SIZE(some));
	}
	alike("{\"a/b\": {\"~\": 5, \"~0\": 6}, \"*\": 7}",
		(const char *const[]){ "/a~1b/~0", "*" }, 2);
}

/* Numbers as they came, whatever they are; strings with as few escapes as they need. */
TEST(what_is_written_anew)
{
	static const struct {
		const char *text, *anew;
	} cases[] = {
		{ "[19.99, 0.1, 1e2, 1.10, -0, 0.0, 1E+400, 1e-400]",
			"[19.99,0.1,1e2,1.10,-0,0.0,1E+400,1e-400]" },
		{ "{ \"b\" : 18446744073709551615 , \"a\" : [ ] , \"c\" : { } }",
			"{\"b\":18446744073709551615,\"a\":[],\"c\":{}}" },
		{ "[\"1.10\", true, false, null, \"\"]", "[\"1.10\",true,false,null,\"\"]" },
		{ "{\"\\u0061\\n\\\"\": \"\\u0000\\u001f\\/\\\\\\t\"}",
			"{\"a\\n\\\"\":\"\\u0000\\u001F/\\\\\\t\"}" },
		{ "[{\"a\": [[1], {\"b\": [2, 3]}], \"c\": 4}, 5]",
			"[{\"a\":[[1],{\"b\":[2,3]}],\"c\":4},5]" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		json_t *tree = sieved(cases[i].text, strlen(cases[i].text), 7, NULL, SIZE_MAX);
		cleanup_free char *anew = written(tree);

		check_str(anew, cases[i].anew);
		json_decref(tree);
	}
}

TEST(numbers_that_are_set_have_as_few_digits_as_say_them)
{
	json_t *tree = json_pack("[f, f, f, f, f, I, s]", 19.99, 0.1 + 0.2, 1.0, 1e22, -2.5e-9,
		(json_int_t)INT64_MIN, "x");
	cleanup_free char *anew = written(tree);

	check_str(
		anew, "[19.99,0.30000000000000004,1.0,1e+22,-2.5e-09,-9223372036854775808,\"x\"]");
	check(sieve_number(json_array_get(tree, 0)) == NULL);
	check(sieve_number(json_array_get(tree, 6)) == NULL);
	json_decref(tree);
}

static int refuse_text(const char *p, size_t n, void *ctx)
{
	size_t *left = ctx;

	(void)p;
	*left -= n < *left ? n : *left;
	return *left == 0 ? -EMSGSIZE : 0;
}

/* Long ones are given away in pieces; who takes no more of them ends it. */
TEST(a_long_text_is_written_in_pieces)
{
	struct buf text = BUF_INIT(SIZE_MAX / 2);
	size_t left = 200000;
	json_t *tree;
	char *anew;

	buf_char(&text, '[');
	for (int i = 0; i < 100000; i++)
		buf_str(&text, i > 0 ? ",{\"a\":[1,\"x\"]}" : "{\"a\":[1,\"x\"]}");
	buf_char(&text, ']');
	tree = sieved(text.p, text.n, 4096, NULL, SIZE_MAX);
	anew = written(tree);
	check_str(anew, buf_cstr(&text));
	check_int(sieve_write(tree, refuse_text, &left), -EMSGSIZE);
	free(anew);
	json_decref(tree);
	buf_free(&text);
}

static json_t *kept(const char *text, const char *pointer, size_t bytes, size_t memory)
{
	struct sieve_paths *paths = sieve_paths_new();
	json_t *tree;

	sieve_paths_add(paths, pointer, bytes);
	tree = sieved(text, strlen(text), 1000, paths, memory);
	sieve_paths_free(paths);
	return tree;
}

static void keeps(const char *text, const char *pointer, size_t bytes, const char *want)
{
	json_t *tree = kept(text, pointer, bytes, 10000);
	cleanup_free char *got = tree != NULL ? json_dumps(tree, JSON_COMPACT) : NULL;

	check_str(got, want);
	json_decref(tree);
}

TEST(what_nobody_looks_at_is_not_kept)
{
	keeps("{\"x\": {\"y\": [1, 2]}, \"a\": 1, \"z\": 2}", "a", 0, "{\"a\":1}");
	keeps("[{}, {}, {\"x\": 1}]", "/*/y", 0, "[]");
	keeps("[5, {\"y\": 6}]", "/1/y", 0, "[null,{\"y\":6}]");
	keeps("{\"a\": \"http://x\", \"b\": \"c\"}", "a", 4, "{\"a\":\"http\"}");
	keeps("{\"a\": {\"b\": 1}}", "a", 0, "{\"a\":{}}");
	keeps("{\"A\": {\"b\": 1}}", "a", 0, "{\"A\":null}");
	keeps("{\"a\": [[1], {\"b\": 1}]}", "/a/b", 0,
		"{\"a\":[]}"); /* a list where a member is named */
	keeps("[[1], [2], {\"b\": 1}, [3]]", "/*/b", 0, "[[],{\"b\":1}]");
}

TEST(names_that_are_looked_at_come_once)
{
	check(kept("{\"a\": 1, \"a\": 2}", "a", 0, 10000) == NULL);
	check(kept("{\"a\": 1, \"\\u0061\": 2}", "a", 0, 10000) == NULL);
	check(kept("{\"a\": 1, \"a\": {\"b\": 1}}", "/a/b", 0, 10000) == NULL);
	check(kept("{\"a\": [{\"b\": 1, \"x\": 1, \"b\": 2}]}", "/a/*/b", 0, 10000) == NULL);
	keeps("{\"x\": 1, \"x\": 2, \"a\": 3}", "a", 0, "{\"a\":3}");
}

TEST(memory_is_bounded)
{
	struct sieve_paths *paths = sieve_paths_new();
	struct sieve *s;
	char *long_text = xalloc(100001);
	int rc = 0;

	sieve_paths_add(paths, "/*/role", 10);
	s = sieve_new(paths, 100000);
	check_int(sieve_feed(s, "[", 1), 0);
	for (int i = 0; i < 100000; i++) /* elements that hold nothing, and texts */
		check_int(sieve_feed(s, "{\"x\":{\"role\":[1,2]}},\"y\",[],", 28), 0);
	check(sieve_memory(s) < 1000);
	memset(long_text, 'x', 100000);
	for (int i = 0; i < 100; i++) {
		check_int(sieve_feed(s, "{\"role\":\"", 9), 0);
		check_int(sieve_feed(s, long_text, 100000), 0);
		check_int(sieve_feed(s, "\"},", 3), 0);
	}
	for (int i = 0; i < 1000 && rc == 0; i++)
		rc = sieve_feed(s, "{\"role\":1},", 11);
	check_int(rc, -EMSGSIZE);
	sieve_free(s);
	sieve_paths_free(paths);
	check(sieved("[\"aaaaaaaaaa\"]", 14, 3, NULL, 5) == NULL);
	free(long_text);
}

/* What all of @text takes is known without keeping any of it. */
static void counted(const char *text)
{
	struct sieve_paths *nothing = sieve_paths_new();
	struct sieve *all = sieve_new(NULL, SIZE_MAX), *none = sieve_new(nothing, 1000);
	json_t *root;
	char *anew;

	check_int(sieve_feed(all, text, strlen(text)), 0);
	check_int(sieve_feed(none, text, strlen(text)), 0);
	root = sieve_end(all);
	anew = written(root);
	check(sieve_memory_of_all(none) >= sieve_memory(all));
	check(sieve_memory_of_all(none) <= sieve_memory(all) + 20 * strlen(text));
	check(sieve_text_of_all(none) >= strlen(anew));
	free(anew);
	json_decref(root);
	root = sieve_end(none);
	check(root != NULL && json_object_size(root) + json_array_size(root) == 0);
	json_decref(root);
	sieve_free(all);
	sieve_free(none);
	sieve_paths_free(nothing);
}

TEST(what_all_of_it_takes)
{
	static const char *const more[] = {
		"[[],[],{},{},[[]]]",
		"[1e9,1.1,-1e300,0.1,1,-5,5e-324]",
		"{\"a\": {\"b\": {\"c\": [{\"d\": \"e\"}, {\"d\": \"f\"}]}}}",
		"[\"\\u0001\\u001f\\u007f\\/\"]",
	};

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		counted(texts[i]);
	for (size_t i = 0; i < ARRAY_SIZE(more); i++)
		counted(more[i]);
}

/* What a tree of ten thousand times @element takes of malloc's, beside what is said of it. A sanitizer's malloc says nothing. */
static void costs(const char *element)
{
	struct sieve *s = sieve_new(NULL, SIZE_MAX);
	size_t before = mallinfo2().uordblks, took;
	json_t *root;

	check_int(sieve_feed(s, "[", 1), 0);
	for (int i = 0; i < 10000; i++) {
		if (i > 0)
			check_int(sieve_feed(s, ",", 1), 0);
		check_int(sieve_feed(s, element, strlen(element)), 0);
	}
	check_int(sieve_feed(s, "]", 1), 0);
	root = sieve_end(s);
	check(root != NULL);
	took = mallinfo2().uordblks - before;
	check(sieve_memory(s) + sieve_memory(s) / 4 >= took);
	check(sieve_memory_of_all(s) >= sieve_memory(s));
	json_decref(root);
	sieve_free(s);
}

TEST(what_is_said_of_a_tree_is_what_it_takes)
{
	costs("{}");
	costs("[]");
	costs("[[]]");
	costs("{\"a\":{\"b\":1}}");
	costs("\"x\"");
	costs("1");
	costs("-123456789.25e-10");
	costs("\"a text of forty bytes, or some more of it\"");
}

TEST(depth)
{
	char text[2 * SIEVE_DEPTH_MAX + 2];

	for (size_t depth = SIEVE_DEPTH_MAX - 1; depth <= SIEVE_DEPTH_MAX; depth++) {
		memset(text, '[', depth);
		memset(text + depth, ']', depth);
		same(text, 2 * depth);
	}
	memset(text, '[', SIEVE_DEPTH_MAX + 1);
	check(sieved(text, SIEVE_DEPTH_MAX + 1, 100, NULL, SIZE_MAX) == NULL);
}

TEST(how_much_of_a_text_decides)
{
	check_int(glob_reads("http:*"), 5);
	check_int(glob_reads("http:**"), 5);
	check_int(glob_reads("url"), 4);
	check_int(glob_reads("a?\\*"), 4);
	check_int(glob_reads("*"), 0);
	check(glob_reads("a*b") == SIZE_MAX);
	check(glob_reads("*b") == SIZE_MAX);
}
