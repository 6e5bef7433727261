/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/text.h"
#include "base/ablate.h"
#include "base/str.h"

#include <time.h>

/* One character of valid UTF-8. */
static uint32_t decode(const unsigned char *p, size_t n)
{
	uint32_t c = n == 1 ? p[0] : n == 2 ? p[0] & 0x1FU : n == 3 ? p[0] & 0x0FU : p[0] & 0x07U;

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3FU);
	return c;
}

/* Bytes of the character at @p, 0 when it is malformed. */
static size_t length(const unsigned char *p)
{
	for (size_t n = 1; n <= 4; n++) {
		if (p[n - 1] == '\0')
			return 0;
		if (str_utf8_valid((const char *)p, n))
			return n;
	}
	return 0;
}

/* Characters that change how what stands around them is shown. */
static bool deceives(uint32_t c)
{
	static const struct {
		uint32_t first, last;
	} ranges[] = { { 0x00, 0x1F }, { 0x7F, 0x9F }, { 0xAD, 0xAD }, { 0x034F, 0x034F },
		{ 0x061C, 0x061C }, { 0x115F, 0x1160 }, { 0x17B4, 0x17B5 }, { 0x180B, 0x180F },
		{ 0x200B, 0x200F }, { 0x2028, 0x202E }, { 0x2060, 0x206F }, { 0x3164, 0x3164 },
		{ 0xFE00, 0xFE0F }, { 0xFEFF, 0xFEFF }, { 0xFFA0, 0xFFA0 }, { 0xFFF0, 0xFFFB },
		{ 0xE0000, 0xE0FFF } };

	for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
		if (c >= ranges[i].first && c <= ranges[i].last)
			return true;
	}
	return false;
}

static void escape(struct buf *out, const char *s, const char *leave)
{
	if (ablated("error_escape")) {
		buf_str(out, s);
		return;
	}
	for (const unsigned char *p = (const unsigned char *)s; *p != '\0';) {
		size_t n = length(p);
		uint32_t c = n > 0 ? decode(p, n) : 0;

		if (n == 0) {
			buf_fmt(out, "\\x%02x", *p++);
			continue;
		}
		if (n == 1 && strchr(leave, (int)c) != NULL)
			buf_char(out, (char)c);
		else if (c == '\n')
			buf_str(out, "\\n");
		else if (c == '\t')
			buf_str(out, "\\t");
		else if (c < 0x80 && deceives(c))
			buf_fmt(out, "\\x%02x", c);
		else if (deceives(c))
			buf_fmt(out, "\\u{%x}", c);
		else
			buf_add(out, p, n);
		p += n;
	}
}

void text_escape(struct buf *out, const char *s)
{
	escape(out, s, "");
}

void text_escape_lines(struct buf *out, const char *s)
{
	escape(out, s, "\n\t");
}

void text_escape_json(struct buf *out, const char *s)
{
	for (const unsigned char *p = (const unsigned char *)s; *p != '\0';) {
		const size_t n = length(p);
		const uint32_t c = n > 0 ? decode(p, n) : 0;

		if (c < 0x7F || !deceives(c) || ablated("error_escape"))
			buf_add(out, p, n > 0 ? n : 1);
		else if (c < 0x10000)
			buf_fmt(out, "\\u%04x", c);
		else /* as two halves (RFC 8259, 7) */
			buf_fmt(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
				0xDC00 + (c & 0x3FF));
		p += n > 0 ? n : 1;
	}
}

void text_host(struct buf *out, const char *host)
{
	bool six = strchr(host, ':') != NULL;

	buf_str(out, six ? "[" : "");
	text_escape(out, host);
	buf_str(out, six ? "]" : "");
}

void text_quote(struct buf *out, const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "@%+=:,./-_";

	if (*s != '\0' && s[strspn(s, plain)] == '\0') {
		buf_str(out, s);
		return;
	}
	buf_char(out, '\'');
	for (const char *p = s; *p != '\0';) {
		size_t n = strcspn(p, "'");
		cleanup_free char *part = str_dupf("%.*s", (int)n, p);

		text_escape(out, part);
		p += n;
		if (*p == '\'') {
			buf_str(out, "'\\''");
			p++;
		}
	}
	buf_char(out, '\'');
}

void text_size(struct buf *out, uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	uint64_t whole = bytes, tenths = 0;
	size_t unit = 0;

	while (whole >= 1024) {
		tenths = (whole % 1024) * 10 / 1024;
		whole /= 1024;
		unit++;
	}
	if (unit > 0 && whole < 10)
		buf_fmt(out, "%llu.%llu %s", (unsigned long long)whole, (unsigned long long)tenths,
			units[unit]);
	else
		buf_fmt(out, "%llu %s", (unsigned long long)whole, units[unit]);
}

/* Seconds since 1970 of "2026-11-21T08:00:00…Z"; -1 when it is no such text. Days by H. Hinnant's civil calendar algorithm. */
static int64_t parse_time(const char *s)
{
	int year, month, day, hour, minute, second;
	int64_t y, era, of_era, of_year;

	if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d", &year, &month, &day, &hour, &minute, &second) != 6)
		return -1;
	y = month <= 2 ? year - 1 : year;
	era = y / 400;
	of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
	of_era = (y - era * 400) * 365 + (y - era * 400) / 4 - (y - era * 400) / 100 + of_year;
	return ((era * 146097 + of_era - 719468) * 24 + hour) * 3600 + minute * 60 + second;
}

void text_age(struct buf *out, const char *when, int64_t now_s)
{
	int64_t then = parse_time(when), age = now_s > then ? now_s - then : 0;

	if (then < 0)
		buf_str(out, "?");
	else if (age < 120)
		buf_fmt(out, "%lld s", (long long)age);
	else if (age < 7200)
		buf_fmt(out, "%lld min", (long long)(age / 60));
	else if (age < 172800)
		buf_fmt(out, "%lld h", (long long)(age / 3600));
	else
		buf_fmt(out, "%lld d", (long long)(age / 86400));
}

void text_mode(struct buf *out, unsigned int mode)
{
	char s[10] = "rwxrwxrwx";

	for (unsigned int i = 0; i < 9; i++) {
		if ((mode & (0400U >> i)) == 0)
			s[i] = '-';
	}
	if (mode & 04000)
		s[2] = mode & 0100 ? 's' : 'S';
	if (mode & 02000)
		s[5] = mode & 0010 ? 's' : 'S';
	if (mode & 01000)
		s[8] = mode & 0001 ? 't' : 'T';
	buf_str(out, s);
}

size_t text_columns(const char *s)
{
	size_t n = 0;

	for (const unsigned char *p = (const unsigned char *)s; *p != '\0';) {
		size_t k = length(p);
		uint32_t c = k > 0 ? decode(p, k) : 0;

		/* East Asian wide blocks and emoji; combining marks of the common blocks take no column. */
		if (c >= 0x300 && c <= 0x36F)
			n += 0;
		else if ((c >= 0x1100 && c <= 0x115F) || (c >= 0x2E80 && c <= 0xA4CF) ||
			 (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0xF900 && c <= 0xFAFF) ||
			 (c >= 0xFE30 && c <= 0xFE6F) || (c >= 0xFF00 && c <= 0xFF60) ||
			 (c >= 0x1F300 && c <= 0x1FAFF) || (c >= 0x20000 && c <= 0x3FFFD))
			n += 2;
		else
			n += 1;
		p += k > 0 ? k : 1;
	}
	return n;
}

void table_init(struct table *t, const char *header)
{
	*t = (struct table){ .cells = BUF_INIT(64U << 20), .paint = BUF_INIT(16U << 20) };
	for (const char *p = header; *p != '\0';) {
		size_t n = strcspn(p, "|");

		BUG_ON(t->columns == TABLE_COLUMNS_MAX);
		if (*p == '>') {
			t->right[t->columns] = true;
			p++;
			n--;
		}
		buf_add(&t->cells, p, n);
		buf_char(&t->cells, '\0');
		t->columns++;
		p += n;
		p += *p == '|';
	}
	t->n = t->columns;
}

void table_cell(struct table *t, const char *s)
{
	text_escape(&t->cells, s != NULL ? s : "-");
	buf_char(&t->cells, '\0');
	t->n++;
}

void table_buf(struct table *t, struct buf *b)
{
	table_cell(t, buf_cstr(b));
	buf_reset(b);
}

void table_paint(struct table *t, char colour)
{
	size_t row = t->n / t->columns;

	while (t->paint.n <= row && !buf_failed(&t->paint))
		buf_char(&t->paint, '\0');
	if (!buf_failed(&t->paint))
		t->paint.p[row] = colour;
}

static char row_paint(const struct table *t, size_t row)
{
	return t->colour && row < t->paint.n ? t->paint.p[row] : '\0';
}

size_t table_rows(const struct table *t)
{
	return t->n / t->columns - 1;
}

/* @pending: blanks that stand before the next text of the row; none end up at its end. */
static void print_cell(const struct table *t, struct buf *out, const char *cell, size_t column,
	size_t width, size_t *pending)
{
	size_t n = text_columns(cell), blank = width > n ? width - n : 0;

	if (t->right[column])
		*pending += blank;
	for (; *cell != '\0' && *pending > 0; (*pending)--)
		buf_char(out, ' ');
	buf_str(out, cell);
	*pending += (t->right[column] ? 0 : blank) + 2;
}

void table_print(struct table *t, struct buf *out)
{
	size_t width[TABLE_COLUMNS_MAX] = { 0 }, pending = 0;
	const char *p = buf_cstr(&t->cells);

	BUG_ON(t->n % t->columns != 0);
	for (size_t i = 0; i < t->n && !buf_failed(&t->cells); i++, p += strlen(p) + 1) {
		size_t n = text_columns(p);

		if (n > width[i % t->columns])
			width[i % t->columns] = n;
	}
	p = buf_cstr(&t->cells);
	for (size_t i = 0; i < t->n && !buf_failed(&t->cells); i++, p += strlen(p) + 1) {
		char paint = row_paint(t, i / t->columns);

		if (i % t->columns == 0 && paint != '\0')
			buf_fmt(out, "\033[3%cm", paint);
		print_cell(t, out, p, i % t->columns, width[i % t->columns], &pending);
		if (i % t->columns + 1 != t->columns)
			continue;
		pending = 0;
		buf_str(out, paint != '\0' ? "\033[0m\n" : "\n");
	}
	buf_free(&t->cells);
	buf_free(&t->paint);
}
