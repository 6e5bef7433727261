/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/urlpath.h"
#include "base/str.h"

#include <string.h>

#define ESCAPES_MAX 4 /* how often somebody may decode */

/* The byte that the escape at @p stands for; -1 when there is none. */
static int escaped(const char *p, size_t n)
{
	int high = n >= 3 ? str_hex_digit(p[1]) : -1;
	int low = n >= 3 ? str_hex_digit(p[2]) : -1;

	return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool is_unreserved(int c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       c == '-' || c == '.' || c == '_' || c == '~';
}

static bool is_printable(char c)
{
	return c > 0x20 && c < 0x7f;
}

static char hex_digit(int v)
{
	return "0123456789ABCDEF"[v & 15];
}

/* One segment without its slash. Return: bytes written, or -EBADMSG. */
static ssize_t copy_segment(const char *p, size_t n, char *out)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		int c = (unsigned char)p[i];

		if (c != '%') {
			if (!is_printable(p[i]) || c == '\\' || c == '#' || c == '?')
				return -EBADMSG;
			out[used++] = p[i];
			continue;
		}
		c = escaped(p + i, n - i);
		if (c < 0x20 || c == 0x7f)
			return -EBADMSG;
		i += 2;
		if (is_unreserved(c)) {
			out[used++] = (char)c;
		} else {
			out[used++] = '%';
			out[used++] = hex_digit(c >> 4);
			out[used++] = hex_digit(c);
		}
	}
	return (ssize_t)used;
}

static bool is_dots(const char *p, size_t n)
{
	return (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.');
}

/* Size of the boundary that some readers see at @p: an escaped slash or backslash, or a semicolon. */
static size_t hidden_boundary(const char *p, size_t n)
{
	int c;

	if (n == 0)
		return 0;
	if (p[0] == ';')
		return 1;
	c = p[0] == '%' ? escaped(p, n) : -1;
	if (c == '%') { /* decoded twice */
		char again[3] = { '%', n > 3 ? p[3] : ' ', n > 4 ? p[4] : ' ' };

		c = escaped(again, 3);
		return c == '/' || c == '\\' || c == ';' ? 5 : 0;
	}
	return c == '/' || c == '\\' || c == ';' ? 3 : 0;
}

/* Length of a dot at @p, however often it is escaped; 0 when there is none. */
static size_t dot_at(const char *p, size_t n)
{
	if (n > 0 && p[0] == '.')
		return 1;
	if (n >= 5 && memcmp(p, "%252", 4) == 0 && (p[4] == 'e' || p[4] == 'E'))
		return 5;
	return 0;
}

/* Could a reader that sees more boundaries than we do find a dot segment in this canonical segment? */
static bool hides_dots(const char *p, size_t n)
{
	size_t from = 0, dots = 0, others = 0;

	while (from < n) {
		size_t boundary = hidden_boundary(p + from, n - from);
		size_t dot = boundary == 0 ? dot_at(p + from, n - from) : 0;

		if (boundary > 0) {
			if (others == 0 && (dots == 1 || dots == 2))
				return true;
			dots = others = 0;
			from += boundary;
		} else if (dot > 0) {
			dots++;
			from += dot;
		} else {
			others++;
			from++;
		}
	}
	return others == 0 && (dots == 1 || dots == 2);
}

static size_t parent(const char *out, size_t used)
{
	while (used > 1 && out[used - 1] != '/')
		used--;
	return used;
}

ssize_t urlpath_canonical(const char *p, size_t n, char *out)
{
	size_t used = 1;

	if (n == 0 || p[0] != '/')
		return -EBADMSG;
	out[0] = '/';
	for (size_t at = 1; at <= n;) { /* used stands behind a slash */
		const char *slash = memchr(p + at, '/', n - at);
		size_t size = slash != NULL ? (size_t)(slash - (p + at)) : n - at;
		ssize_t got = copy_segment(p + at, size, out + used);

		if (got < 0)
			return got;
		if (is_dots(out + used, (size_t)got)) {
			if (got == 2 && used > 1)
				used = parent(out, used - 1);
		} else if (hides_dots(out + used, (size_t)got)) {
			return -EBADMSG;
		} else if (got > 0) {
			used += (size_t)got;
			if (slash != NULL)
				out[used++] = '/';
		}
		at += size + 1;
	}
	out[used] = '\0';
	return (ssize_t)used;
}

/* All escapes but those of control bytes, once, in place. Return: the new size. */
static size_t decode_all(char *p, size_t n)
{
	size_t used = 0;

	for (size_t i = 0; i < n; i++) {
		int c = p[i] == '%' ? escaped(p + i, n - i) : -1;

		i += c >= 0x20 ? 2 : 0;
		p[used++] = c >= 0x20 ? (char)c : p[i];
	}
	return used;
}

size_t urlpath_otherwise(const char *p, size_t n, unsigned int how, char *out)
{
	size_t used = 1;
	char *text = memcpy(out, p, n);

	for (int i = 0; i < ESCAPES_MAX && (how & URLPATH_DECODED) != 0; i++)
		n = decode_all(text, n);
	for (size_t i = 0; i < n && (how & URLPATH_DECODED) != 0; i++)
		text[i] = text[i] == '\\' ? '/' : text[i];
	out[0] = '/';
	for (size_t at = 1; at <= n;) { /* used stands behind a slash, and never behind at */
		const char *slash = memchr(text + at, '/', n - at);
		size_t whole = slash != NULL ? (size_t)(slash - (text + at)) : n - at;
		const char *cut = (how & URLPATH_CUT) != 0 ? memchr(text + at, ';', whole) : NULL;
		size_t size = cut != NULL ? (size_t)(cut - (text + at)) : whole;

		if (is_dots(text + at, size)) {
			used = size == 2 && used > 1 ? parent(out, used - 1) : used;
		} else if (size > 0) {
			memmove(out + used, text + at, size);
			used += size;
			if (slash != NULL)
				out[used++] = '/';
		}
		at += whole + 1;
	}
	out[used] = '\0';
	return used;
}

bool urlpath_query_valid(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!is_printable(p[i]) || p[i] == '#' ||
			(p[i] == '%' && escaped(p + i, n - i) < 0))
			return false;
	}
	return true;
}

void urlpath_encode(const char *p, size_t n, const char *stays, bool encoded, struct buf *out)
{
	for (size_t i = 0; i < n; i++) {
		int byte = encoded && p[i] == '%' ? escaped(p + i, n - i) : -1;
		bool whole = byte < 0 && p[i] != '\0' && strchr(stays, p[i]) != NULL;

		if (byte >= 0)
			i += 2;
		else
			byte = (unsigned char)p[i];
		if (whole || is_unreserved(byte))
			buf_char(out, (char)byte);
		else
			buf_fmt(out, "%%%c%c", hex_digit(byte >> 4), hex_digit(byte));
	}
}
