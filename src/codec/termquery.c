/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/termquery.h"

#include <string.h>

#define ENQ '\005'
#define BEL '\a'
#define CAN '\030'
#define SUB '\032'
#define ESC '\033'

/* Control sequences that are answered: @before the parameters, @between them and the last byte; 0: nothing is there. */
static const struct {
	char before, between, last;
} asked[] = {
	{ 0, 0, 'c' },
	{ '>', 0, 'c' },
	{ '=', 0, 'c' },
	{ 0, 0, 'n' },
	{ '?', 0, 'n' },
	{ 0, '$', 'p' },
	{ '?', '$', 'p' },
	{ '>', 0, 'q' },
	{ 0, '$', 'u' },
	{ 0, '&', 'u' },
	{ '?', 0, 'u' },
	{ '?', 0, 'm' },
	{ '?', 0, 'S' },
	{ 0, 0, 'x' },
	{ 0, '*', 'y' },
	{ 0, '$', 'w' },
	{ 0, '\'', '|' },
	{ 0, '#', 'R' },
	{ 0, '#', '|' },
};

static bool is_within(char c, char first, char last)
{
	return c >= first && c <= last;
}

/* The number at @p, before @end; 0 where there is none. */
static unsigned int number_at(const char *p, const char *end)
{
	unsigned int v = 0;

	for (; p < end && is_within(*p, '0', '9') && v < 100000; p++)
		v = v * 10 + (unsigned int)(*p - '0');
	return v;
}

/* Window reports share their last byte with what moves and resizes windows. */
static bool asks_of_window(const char *p, const char *end)
{
	unsigned int what = number_at(p, end);

	return what == 11 || (what >= 13 && what <= 16) || (what >= 18 && what <= 21);
}

/* @t holds a whole control sequence. */
static bool control_asks(const struct termquery *t)
{
	const char *p = t->held + 2, *end = t->held + t->n - 1;
	char before = is_within(*p, '<', '?') ? *p : 0,
	     between = end > p && is_within(end[-1], ' ', '/') ? end[-1] : 0;

	if (*end == 't' && before == 0 && between == 0)
		return asks_of_window(p, end);
	for (size_t i = 0; i < ARRAY_SIZE(asked); i++) {
		if (asked[i].before == before && asked[i].between == between &&
			asked[i].last == *end)
			return true;
	}
	return false;
}

/* Is one of the words of @p up to @end, between any of @seps, the word @word? */
static bool has_word(const char *p, const char *end, const char *seps, const char *word)
{
	size_t n = strlen(word);

	while (p < end) {
		const char *q = p;

		while (q < end && strchr(seps, *q) == NULL)
			q++;
		if ((size_t)(q - p) == n && memcmp(p, word, n) == 0)
			return true;
		p = q + 1;
	}
	return false;
}

/* @end: of an OSC that @t holds, before its terminator. Titles and links may have any text, also a lone question mark. */
static bool system_asks(const struct termquery *t, const char *end)
{
	const char *p = t->held + 2;
	unsigned int what = number_at(p, end);

	if (what != 4 && what != 5 && (what < 10 || what > 22) && what != 52)
		return false;
	return has_word(p, end, ";=", "?");
}

static void give(struct termquery *t, struct buf *out)
{
	buf_add(out, t->held, t->n);
	t->n = 0;
}

static void drop_or_give(struct termquery *t, bool asks, struct buf *out)
{
	if (asks)
		t->n = 0;
	else
		give(t, out);
}

/* What was held so far is none: the ESC that came last may begin one. */
static void begin_again(struct termquery *t, struct buf *out)
{
	buf_add(out, t->held, t->n - 1);
	t->held[0] = ESC;
	t->n = 1;
}

/* The byte behind ESC says what begins. */
static void begun_byte(struct termquery *t, char c, struct buf *out)
{
	if (c == ESC)
		begin_again(t, out);
	else if (c == 'Z')
		t->n = 0;
	else if (c != '[' && c != ']' && c != 'P' && c != '_')
		give(t, out);
}

/* A string in which ESC was followed by @c: it is broken off, and something else begins. */
static void broken_off(struct termquery *t, char c, struct buf *out)
{
	t->held[0] = ESC;
	t->held[1] = c;
	t->n = 2;
	begun_byte(t, c, out);
}

/* CSI … */
static void control_byte(struct termquery *t, char c, struct buf *out)
{
	if (c == ESC)
		begin_again(t, out);
	else if (is_within(c, '@', '~'))
		drop_or_give(t, control_asks(t), out);
	else if (!is_within(c, ' ', '?'))
		give(t, out); /* it is none, or one in which something is executed */
}

/* OSC …, up to BEL or ESC \. */
static void system_byte(struct termquery *t, char c, struct buf *out)
{
	bool escaped = t->held[t->n - 2] == ESC && t->n > 2;

	if (escaped && c != '\\') {
		buf_add(out, t->held, t->n - 2);
		broken_off(t, c, out);
	} else if (escaped || c == BEL || c == CAN || c == SUB) {
		drop_or_give(t, system_asks(t, t->held + t->n - 1 - escaped), out);
	}
}

/* DCS …: what it is about stands at its beginning; the rest may be long. */
static void device_byte(struct termquery *t, char c, struct buf *out)
{
	if (c == ESC) {
		begin_again(t, out);
	} else if (t->n > 3 || (c != '+' && c != '$')) {
		t->skips = t->n == 4 && c == 'q';
		drop_or_give(t, t->skips, out);
	}
}

/* APC …: of pictures the keys before the data say it. */
static void picture_byte(struct termquery *t, char c, struct buf *out)
{
	bool keys = t->n > 3 && t->held[2] == 'G';

	if (t->n == 3 ? c == 'G' : keys && c != ';' && !is_within(c, '\0', '\037'))
		return;
	t->skips = keys && has_word(t->held + 3, t->held + t->n - 1, ",", "a=q");
	if (t->skips) {
		t->n = c == ESC;
		t->held[0] = ESC;
	} else if (c == ESC) {
		begin_again(t, out);
	} else {
		give(t, out);
	}
}

/* Within a question of any length, up to its end: @t holds nothing but an ESC. */
static void skipped_byte(struct termquery *t, char c, struct buf *out)
{
	bool escaped = t->n == 1;

	t->skips = !escaped && c != CAN && c != SUB;
	t->n = t->skips && c == ESC;
	t->held[0] = ESC;
	if (escaped && c != '\\')
		broken_off(t, c, out);
}

/* @t holds the beginning of a sequence, and now @c. */
static void held_byte(struct termquery *t, char c, struct buf *out)
{
	t->held[t->n++] = c;
	if (t->n == 2)
		begun_byte(t, c, out);
	else if (t->held[1] == '[')
		control_byte(t, c, out);
	else if (t->held[1] == ']')
		system_byte(t, c, out);
	else if (t->held[1] == 'P')
		device_byte(t, c, out);
	else
		picture_byte(t, c, out);
}

void termquery_strip(struct termquery *t, const char *p, size_t n, struct buf *out)
{
	size_t plain = 0; /* bytes before @i that are not added yet */

	for (size_t i = 0; i < n; i++) {
		if (t->n == sizeof(t->held))
			give(t, out);
		if (t->skips) {
			skipped_byte(t, p[i], out);
		} else if (t->n > 0) {
			held_byte(t, p[i], out);
		} else if (p[i] == ESC || p[i] == ENQ) {
			buf_add(out, p + i - plain, plain);
			plain = 0;
			t->n = p[i] == ESC;
			t->held[0] = ESC;
		} else {
			plain++;
		}
	}
	buf_add(out, p + n - plain, plain);
}

void termquery_end(struct termquery *t, struct buf *out)
{
	if (!t->skips)
		give(t, out);
	t->skips = false;
	t->n = 0;
}
