/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "codec/jsontext.h"
#include "fuzz/fuzz.h"

#include <jansson.h>

/* The bytes are steps: each puts the same value into a tree and into the text. */
struct steps {
	const uint8_t *p;
	size_t n;
	struct buf text;
};

enum { DEPTH_MAX = 20 };

static uint64_t take(struct steps *s, size_t n)
{
	uint64_t value = 0;

	for (; n > 0 && s->n > 0; n--, s->n--)
		value = value << 8 | *s->p++;
	return value;
}

static json_t *string(struct steps *s)
{
	size_t n = take(s, 1);
	const char *p = (const char *)s->p;

	n = n < s->n ? n : s->n;
	s->p += n;
	s->n -= n;
	if (!str_utf8_valid(p, n)) {
		p = "?";
		n = 1;
	}
	jsontext_string(&s->text, p, n);
	return json_stringn(p, n);
}

static json_t *value(struct steps *s, int depth);

static json_t *list(struct steps *s, int depth)
{
	json_t *array = json_array();

	jsontext_open(&s->text, '[');
	for (size_t n = take(s, 1) % 8; n > 0; n--)
		(void)json_array_append_new(array, value(s, depth));
	jsontext_close(&s->text, ']');
	return array;
}

static json_t *object(struct steps *s, int depth)
{
	json_t *members = json_object();
	char key[] = "a";

	jsontext_open(&s->text, '{');
	for (size_t n = take(s, 1) % 8; n > 0; n--, key[0]++) {
		jsontext_key(&s->text, key);
		(void)json_object_set_new(members, key, value(s, depth));
	}
	jsontext_close(&s->text, '}');
	return members;
}

static json_t *value(struct steps *s, int depth)
{
	uint64_t number;

	switch (depth < DEPTH_MAX && s->n > 0 ? take(s, 1) % 6 : 5) {
	case 0:
		return list(s, depth + 1);
	case 1:
		return object(s, depth + 1);
	case 2:
		return string(s);
	case 3:
		number = take(s, 8);
		jsontext_integer(&s->text, (int64_t)number);
		return json_integer((json_int_t)number);
	case 4:
		jsontext_word(&s->text, "true");
		return json_true();
	default:
		jsontext_word(&s->text, "null");
		return json_null();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct steps s = { data, size, BUF_INIT(1U << 24) };
	json_t *tree = value(&s, 0);
	char *want = json_dumps(tree, JSON_COMPACT | JSON_ENCODE_ANY);

	MUST(want != NULL && !buf_failed(&s.text));
	MUST(strcmp(buf_cstr(&s.text), want) == 0);
	free(want);
	json_decref(tree);
	buf_free(&s.text);
	return 0;
}
