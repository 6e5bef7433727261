/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/pax.h"

#include <string.h>

#define TIME_MAX 253402300799ULL /* end of the year 9999 */

/* Decimal digits of [p, end): their value, without leading zeros when @strict. Returns digits read, 0 when malformed or above @max. */
static size_t digits(const char *p, const char *end, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;
	size_t n = 0;

	for (; p + n < end && p[n] >= '0' && p[n] <= '9'; n++) {
		uint64_t digit = (uint64_t)(p[n] - '0');

		if (v > (max - digit) / 10)
			return 0;
		v = v * 10 + digit;
	}
	*ret = v;
	return n;
}

int pax_next(const char **at, const char *end, struct pax_record *ret)
{
	const char *p = *at, *stop, *equals;
	uint64_t length;
	size_t n;

	if (p == end)
		return 0;
	n = digits(p, end, (uint64_t)(end - p), &length);
	if (n == 0 || *p == '0' || p + n == end || p[n] != ' ' || length <= n + 1 ||
		length > (uint64_t)(end - p))
		return -EBADMSG;
	stop = p + length - 1;
	p += n + 1;
	if (p >= stop || *stop != '\n')
		return -EBADMSG;
	equals = memchr(p, '=', (size_t)(stop - p));
	if (equals == NULL || equals == p || memchr(p, '\0', (size_t)(equals - p)) != NULL)
		return -EBADMSG;
	*ret = (struct pax_record){ .key = p,
		.key_size = (size_t)(equals - p),
		.value = equals + 1,
		.value_size = (size_t)(stop - equals) - 1 };
	*at = stop + 1;
	return 1;
}

bool pax_key_is(const struct pax_record *r, const char *key)
{
	return r->key_size == strlen(key) && memcmp(r->key, key, r->key_size) == 0;
}

int pax_u64(const struct pax_record *r, uint64_t max, uint64_t *ret)
{
	const char *end = r->value + r->value_size;
	size_t n = digits(r->value, end, max, ret);

	for (const char *p = r->value; p < end; p++)
		if (*p < '0' || *p > '9')
			return -EBADMSG;
	return r->value_size == 0 ? -EBADMSG : n != r->value_size ? -ERANGE : 0;
}

/* The decimals behind the dot as nanoseconds; -1 when there is something else than digits. */
static int64_t fraction(const char *p, const char *end)
{
	int64_t ns = 0, unit = 100000000;

	for (; p < end; p++) {
		if (*p < '0' || *p > '9')
			return -1;
		ns += (*p - '0') * unit;
		unit /= 10;
	}
	return ns;
}

int pax_time(const struct pax_record *r, int64_t *ret_s, uint32_t *ret_ns)
{
	const char *p = r->value, *end = p + r->value_size;
	bool negative = p < end && *p == '-';
	uint64_t whole;
	int64_t ns = 0;
	size_t n;

	p += negative;
	if (p == end || *p < '0' || *p > '9')
		return -EBADMSG;
	n = digits(p, end, TIME_MAX, &whole);
	if (n == 0)
		return -ERANGE;
	p += n;
	if (p < end && *p++ != '.')
		return -EBADMSG;
	ns = fraction(p, end);
	if (ns < 0)
		return -EBADMSG;
	*ret_s = negative ? -(int64_t)whole : (int64_t)whole;
	if (negative && ns > 0) {
		*ret_s -= 1;
		ns = 1000000000 - ns;
	}
	*ret_ns = (uint32_t)ns;
	return 0;
}
