/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/jsontext.h"

#include <string.h>

/* Only structure can end with one of these: strings end with a quote, numbers with a digit, words with a letter. */
static void separate(struct buf *b)
{
	char last = b->n > 0 ? b->p[b->n - 1] : '[';

	if (last != '{' && last != '[' && last != ':')
		buf_char(b, ',');
}

void jsontext_open(struct buf *b, char bracket)
{
	separate(b);
	buf_char(b, bracket);
}

void jsontext_close(struct buf *b, char bracket)
{
	buf_char(b, bracket);
}

void jsontext_key(struct buf *b, const char *key)
{
	separate(b);
	buf_char(b, '"');
	buf_str(b, key);
	buf_add(b, "\":", 2);
}

static bool is_plain(char c)
{
	return (unsigned char)c >= 0x20 && c != '"' && c != '\\';
}

static void escape(struct buf *b, char c)
{
	static const char short_forms[] = "\"\"\\\\\bb\ff\nn\rr\tt";

	for (const char *form = short_forms; *form != '\0'; form += 2) {
		if (c == form[0]) {
			buf_char(b, '\\');
			buf_char(b, form[1]);
			return;
		}
	}
	buf_fmt(b, "\\u%04X", (unsigned int)(unsigned char)c);
}

void jsontext_string(struct buf *b, const char *p, size_t n)
{
	size_t done = 0;

	separate(b);
	buf_char(b, '"');
	for (size_t i = 0; i < n; i++) {
		if (is_plain(p[i]))
			continue;
		buf_add(b, p + done, i - done);
		escape(b, p[i]);
		done = i + 1;
	}
	if (n > done)
		buf_add(b, p + done, n - done);
	buf_char(b, '"');
}

void jsontext_integer(struct buf *b, int64_t value)
{
	char digits[24], *first = digits + sizeof(digits);
	uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

	do {
		*--first = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest != 0);
	if (value < 0)
		*--first = '-';
	separate(b);
	buf_add(b, first, (size_t)(digits + sizeof(digits) - first));
}

void jsontext_word(struct buf *b, const char *word)
{
	separate(b);
	buf_str(b, word);
}

void jsontext_member_string(struct buf *b, const char *key, const char *value)
{
	jsontext_key(b, key);
	jsontext_string(b, value, strlen(value));
}

void jsontext_member_integer(struct buf *b, const char *key, int64_t value)
{
	jsontext_key(b, key);
	jsontext_integer(b, value);
}

void jsontext_member_bool(struct buf *b, const char *key, bool value)
{
	jsontext_key(b, key);
	jsontext_word(b, value ? "true" : "false");
}
