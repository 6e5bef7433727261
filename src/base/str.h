/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/str.h - text: checked conversions, comparisons, splitting. No allocation unless the name says dup. */
#ifndef CAY_BASE_STR_H
#define CAY_BASE_STR_H

#include "base/attr.h"
#include <string.h>

static inline bool str_eq(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static inline bool str_starts(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/** bytes_zero() - are all @n bytes zero? So are none. */
static inline bool bytes_zero(const void *bytes, size_t n)
{
	const char *p = bytes;

	return n == 0 || (*p == '\0' && memcmp(p, p + 1, n - 1) == 0);
}

/** str_hex_digit() - value of a hexadecimal digit of either case; -1 when @c is none. */
static inline int str_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/** str_hex() - the @n bytes as lower-case hexadecimal digits, and a NUL, into @text, which has room for 2 * @n + 1. */
void str_hex(char *text, const void *bytes, size_t n);

/** str_ends() - does @s end with @suffix? */
bool str_ends(const char *s, const char *suffix);

/** str_list_has() - is @word one of the words of @list, which are separated by commas? NULL is an empty list. */
bool str_list_has(const char *list, const char *word);

/** str_to_u64() - decimal digits only, @min..@max. Return: 0, -EINVAL or -ERANGE; @ret untouched on failure. */
int str_to_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret) attr_must_use;

/** str_to_size() - "512", "64K", "8M", "2G", "1T" (powers of 1024; an optional "B" or "iB" follows; a small letter alone is the same). Return as str_to_u64(). */
int str_to_size(const char *s, uint64_t *ret_bytes) attr_must_use;

/** str_to_duration() - "250ms", "30s", "5m", "2h", "1d" or bare seconds. Return as str_to_u64(). */
int str_to_duration(const char *s, uint64_t *ret_ms) attr_must_use;

/** str_utf8_valid() - are the @n bytes well-formed UTF-8 (no surrogates, no overlong forms)? */
bool str_utf8_valid(const char *p, size_t n);

/** str_text_valid() - is it UTF-8 without a NUL? */
bool str_text_valid(const char *p, size_t n) attr_must_use;

/** str_utf8_tidy() - replace every byte of @s that is no part of well-formed UTF-8 by '?'. */
void str_utf8_tidy(char *s);

/** str_dup() - copy; aborts when there is no memory; NULL stays NULL. Free with free(). */
char *str_dup(const char *s) attr_must_use;

/** str_dupf() - formatted copy; never NULL. Free with free(). */
char *str_dupf(const char *fmt, ...) attr_printf(1, 2) attr_must_use;

/** str_copy() - copy into @dst of @size bytes. Return: 0, or -E2BIG when it does not fit (then @dst is ""). */
int str_copy(char *dst, size_t size, const char *src) attr_must_use;

/** str_path_clean() - is @p absolute, without "." or ".." or empty components, without control bytes, below PATH_MAX? "/" is. */
bool str_path_clean(const char *p);

/** str_path_under() - is clean path @p equal to or below clean path @dir? */
bool str_path_under(const char *p, const char *dir);

#endif
