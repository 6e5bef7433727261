/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "codec/jsontext.h"
#include "policy/sieve.h"

#include <stdlib.h>
#include <string.h>

#define PIECE 65536U /* bytes that are given away at once; more where a string is longer */

struct writer {
	int (*put)(const char *p, size_t n, void *ctx);
	void *ctx;
	struct buf text;
	int rc; /* what @put said first that is not 0 */
};

/* The last byte stays, if something follows: it says whether a comma has to. */
static void give(struct writer *w, size_t stays)
{
	size_t n = w->text.n > stays ? w->text.n - stays : 0;

	if (w->rc == 0 && n > 0)
		w->rc = w->put(w->text.p, n, w->ctx);
	buf_consume(&w->text, n);
}

/* As few digits as say which number it is; it remains one with a fraction. */
static void write_real(struct buf *b, double value)
{
	char text[40];

	for (int digits = 15; digits <= 17; digits++) {
		(void)snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}
	if (strpbrk(text, ".e") == NULL)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text), ".0");
	jsontext_word(b, text);
}

static void write_scalar(struct buf *b, const json_t *value)
{
	const char *number = sieve_number(value);

	if (number != NULL)
		jsontext_word(b, number);
	else if (json_is_string(value))
		jsontext_string(b, json_string_value(value), json_string_length(value));
	else if (json_is_integer(value))
		jsontext_integer(b, json_integer_value(value));
	else if (json_is_real(value))
		write_real(b, json_real_value(value));
	else
		jsontext_word(b, json_is_true(value)    ? "true"
				 : json_is_false(value) ? "false"
							: "null");
}

static void write_value(struct writer *w, const json_t *value)
{
	bool object = json_is_object(value);
	const json_t *one;
	const char *name;
	size_t i;

	if (w->rc != 0)
		return;
	if (!object && !json_is_array(value)) {
		write_scalar(&w->text, value);
	} else {
		jsontext_open(&w->text, object ? '{' : '[');
		json_array_foreach ((json_t *)(uintptr_t)value, i, one)
			write_value(w, one);
		json_object_foreach ((json_t *)(uintptr_t)value, name, one) {
			jsontext_string(&w->text, name, strlen(name));
			buf_char(&w->text, ':');
			write_value(w, one);
		}
		jsontext_close(&w->text, object ? '}' : ']');
	}
	if (w->text.n > PIECE)
		give(w, 1);
}

int sieve_write(const json_t *tree, int (*put)(const char *p, size_t n, void *ctx), void *ctx)
{
	struct writer w = { .put = put, .ctx = ctx, .text = BUF_INIT(SIZE_MAX / 2) };

	write_value(&w, tree);
	give(&w, 0);
	buf_free(&w.text);
	return w.rc;
}
