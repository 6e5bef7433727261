/* SPDX-License-Identifier: Apache-2.0 */
/* Pointers, one a line, then an empty line, then a text: a sieve agrees with jansson about it, and what it keeps says the same to whoever follows the pointers. */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "policy/pattern.h"
#include "policy/sieve.h"

#define POINTERS_MAX 8

static json_t *sieved(const struct sieve_paths *paths, const char *p, size_t n)
{
	struct sieve *s = sieve_new(paths, SIZE_MAX);
	json_t *tree = NULL;
	int rc = sieve_feed(s, p, n / 2);

	if (rc == 0)
		rc = sieve_feed(s, p + n / 2, n - n / 2);
	if (rc == 0)
		tree = sieve_end(s);
	MUST(rc == 0 || rc == -EBADMSG);
	sieve_free(s);
	return tree;
}

/* Containers that a pointer leads to may be empty. */
static bool collect(const json_t *value, void *ctx)
{
	json_t *copy = json_is_object(value)  ? json_object()
		       : json_is_array(value) ? json_array()
					      : json_deep_copy(value);

	return json_array_append_new(ctx, copy) == 0;
}

static void alike(const json_t *kept, const json_t *whole, const char *pointer)
{
	json_t *a = json_array(), *b = json_array();

	MUST(pointer_walk(kept, pointer, collect, a) == pointer_walk(whole, pointer, collect, b));
	MUST(json_equal(a, b));
	MUST(pointer_alike(kept, pointer) == pointer_alike(whole, pointer));
	json_decref(a);
	json_decref(b);
}

static int add_text(const char *p, size_t n, void *ctx)
{
	buf_add(ctx, p, n);
	return 0;
}

/* @tree written anew, and read by jansson: numbers are numbers again. NULL: there is none, or it has one that jansson cannot keep. */
static json_t *reread(const json_t *tree)
{
	struct buf text = BUF_INIT(SIZE_MAX / 2);
	json_t *read = NULL;

	if (tree == NULL)
		return NULL;
	MUST(sieve_write(tree, add_text, &text) == 0);
	read = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	buf_free(&text);
	return read;
}

static void compare(const char *p, size_t n, char *const *pointers, size_t count)
{
	struct sieve_paths *paths = sieve_paths_new();
	json_t *whole = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
	json_t *all = sieved(NULL, p, n), *anew = reread(all), *kept;

	for (size_t i = 0; i < count; i++)
		sieve_paths_add(paths, pointers[i], SIZE_MAX);
	kept = sieved(paths, p, n);
	/* jansson overlooks NUL behind a number, and reads numbers of any length, but not of any size */
	MUST((anew == NULL) == (all == NULL || whole == NULL));
	MUST(anew == NULL || json_equal(anew, whole));
	MUST(whole == NULL || all != NULL || memchr(p, '\0', n) != NULL || n > 500);
	MUST(anew == NULL || kept != NULL);
	for (size_t i = 0; i < count && anew != NULL; i++)
		alike(kept, anew, pointers[i]);
	json_decref(whole);
	json_decref(all);
	json_decref(anew);
	json_decref(kept);
	sieve_paths_free(paths);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = xalloc(size + 1), *at = memcpy(copy, data, size), *end;
	char *pointers[POINTERS_MAX];
	size_t n = 0;

	while ((end = memchr(at, '\n', size - (size_t)(at - copy))) != NULL && end > at) {
		*end = '\0';
		if (n < POINTERS_MAX && pointer_valid(at))
			pointers[n++] = at;
		at = end + 1;
	}
	at += end != NULL;
	compare(at, size - (size_t)(at - copy), pointers, n);
	free(copy);
	return 0;
}
