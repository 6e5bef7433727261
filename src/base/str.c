/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"
#include "base/buf.h"

#include <limits.h>
#include <stdarg.h>

void str_hex(char *text, const void *bytes, size_t n)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *p = bytes;

	for (size_t i = 0; i < n; i++) {
		text[2 * i] = digits[p[i] >> 4];
		text[2 * i + 1] = digits[p[i] & 15];
	}
	text[2 * n] = '\0';
}

bool str_ends(const char *s, const char *suffix)
{
	size_t n = strlen(s), m = strlen(suffix);

	return n >= m && memcmp(s + n - m, suffix, m) == 0;
}

bool str_list_has(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *p = list; p != NULL && *p != '\0';) {
		size_t len = strcspn(p, ",");

		if (len == n && memcmp(p, word, n) == 0)
			return true;
		p += len;
		p += *p == ',';
	}
	return false;
}

/* Reads leading digits; *ret_rest is what follows them. */
static int read_digits(const char *s, uint64_t *ret, const char **ret_rest)
{
	uint64_t v = 0;
	const char *p = s;

	for (; *p >= '0' && *p <= '9'; p++) {
		if (__builtin_mul_overflow(v, 10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
			return -ERANGE;
	}
	if (p == s)
		return -EINVAL;
	*ret = v;
	*ret_rest = p;
	return 0;
}

int str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	const char *rest;
	uint64_t v;
	int rc = read_digits(s, &v, &rest);

	if (rc < 0)
		return rc;
	if (*rest != '\0')
		return -EINVAL;
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static int read_with_unit(const char *s, const struct unit *units, size_t n, uint64_t *ret)
{
	const char *rest;
	uint64_t v;
	int rc = read_digits(s, &v, &rest);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		if (str_eq(rest, units[i].name)) {
			if (__builtin_mul_overflow(v, units[i].factor, &v))
				return -ERANGE;
			*ret = v;
			return 0;
		}
	}
	return -EINVAL;
}

int str_to_size(const char *s, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
		{ "", 1 },
		{ "B", 1 },
		{ "K", 1ULL << 10 },
		{ "k", 1ULL << 10 },
		{ "KB", 1ULL << 10 },
		{ "KiB", 1ULL << 10 },
		{ "M", 1ULL << 20 },
		{ "m", 1ULL << 20 },
		{ "MB", 1ULL << 20 },
		{ "MiB", 1ULL << 20 },
		{ "G", 1ULL << 30 },
		{ "g", 1ULL << 30 },
		{ "GB", 1ULL << 30 },
		{ "GiB", 1ULL << 30 },
		{ "T", 1ULL << 40 },
		{ "t", 1ULL << 40 },
		{ "TB", 1ULL << 40 },
		{ "TiB", 1ULL << 40 },
	};

	return read_with_unit(s, units, ARRAY_SIZE(units), ret_bytes);
}

int str_to_duration(const char *s, uint64_t *ret_ms)
{
	static const struct unit units[] = { { "", 1000 }, { "ms", 1 }, { "s", 1000 },
		{ "m", 60000 }, { "h", 3600000 }, { "d", 86400000 } };

	return read_with_unit(s, units, ARRAY_SIZE(units), ret_ms);
}

/* Number of bytes of the UTF-8 sequence at p (RFC 3629), 0 when malformed. */
static size_t utf8_length(const unsigned char *p, size_t n)
{
	if (p[0] < 0x80)
		return 1;
	if (p[0] >= 0xC2 && p[0] <= 0xDF)
		return n >= 2 && (p[1] & 0xC0) == 0x80 ? 2 : 0;
	if (p[0] >= 0xE0 && p[0] <= 0xEF) {
		if (n < 3 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80)
			return 0;
		if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F))
			return 0;
		return 3;
	}
	if (p[0] >= 0xF0 && p[0] <= 0xF4) {
		if (n < 4 || (p[1] & 0xC0) != 0x80 || (p[2] & 0xC0) != 0x80 ||
			(p[3] & 0xC0) != 0x80)
			return 0;
		if ((p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
			return 0;
		return 4;
	}
	return 0;
}

bool str_utf8_valid(const char *p, size_t n)
{
	const unsigned char *u = (const unsigned char *)p;

	for (size_t i = 0; i < n;) {
		size_t k = utf8_length(u + i, n - i);

		if (k == 0)
			return false;
		i += k;
	}
	return true;
}

bool str_text_valid(const char *p, size_t n)
{
	return n == 0 || (memchr(p, '\0', n) == NULL && str_utf8_valid(p, n));
}

void str_utf8_tidy(char *s)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n;) {
		size_t k = utf8_length((const unsigned char *)s + i, n - i);

		if (k == 0)
			s[i] = '?';
		i += k != 0 ? k : 1;
	}
}

char *str_dup(const char *s)
{
	size_t n;
	char *p;

	if (s == NULL)
		return NULL;
	n = strlen(s) + 1;
	p = xalloc(n);
	memcpy(p, s, n);
	return p;
}

char *str_dupf(const char *fmt, ...)
{
	va_list ap;
	char *p;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	BUG_ON(n < 0);
	p = xalloc((size_t)n + 1);
	va_start(ap, fmt);
	(void)vsnprintf(p, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return p;
}

int str_copy(char *dst, size_t size, const char *src)
{
	size_t n = strlen(src);

	BUG_ON(size == 0);
	if (n >= size) {
		dst[0] = '\0';
		return -E2BIG;
	}
	memcpy(dst, src, n + 1);
	return 0;
}

bool str_path_clean(const char *p)
{
	size_t n = strlen(p);

	if (p[0] != '/' || n >= PATH_MAX)
		return false;
	if (n == 1)
		return true;
	for (const char *c = p; *c == '/';) {
		const char *name = c + 1;
		size_t len = strcspn(name, "/");

		if (len == 0 || (len == 1 && name[0] == '.') ||
			(len == 2 && memcmp(name, "..", 2) == 0))
			return false;
		c = name + len;
	}
	for (size_t i = 0; i < n; i++) {
		if ((unsigned char)p[i] < 0x20 || p[i] == 0x7F)
			return false;
	}
	return true;
}

bool str_path_under(const char *p, const char *dir)
{
	size_t n = strlen(dir);

	if (n == 1)
		return true;
	return strncmp(p, dir, n) == 0 && (p[n] == '\0' || p[n] == '/');
}
