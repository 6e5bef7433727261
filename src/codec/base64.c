/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *p, size_t n)
{
	const unsigned char *in = p;
	char *out = xalloc((n + 2) / 3 * 4 + 1), *to = out;

	for (size_t i = 0; i < n; i += 3) {
		size_t left = n - i;
		uint32_t group = (uint32_t)in[i] << 16 | (uint32_t)(left > 1 ? in[i + 1] : 0) << 8 |
				 (left > 2 ? in[i + 2] : 0U);

		*to++ = digits[group >> 18];
		*to++ = digits[group >> 12 & 63];
		*to++ = left > 1 ? digits[group >> 6 & 63] : '=';
		*to++ = left > 2 ? digits[group & 63] : '=';
	}
	return out;
}

/* Four characters, the last @padding of them '='. Bits that no byte has must be zero. */
static int decode_group(const char *p, size_t padding, struct buf *out)
{
	uint32_t group = 0;

	for (size_t i = 0; i < 4 - padding; i++) {
		const char *digit = p[i] != '\0' ? strchr(digits, p[i]) : NULL;

		if (digit == NULL)
			return -EBADMSG;
		group |= (uint32_t)(digit - digits) << (18 - 6 * i);
	}
	if ((group & ((1U << 8 * padding) - 1)) != 0)
		return -EBADMSG;
	for (size_t i = 0; i < 3 - padding; i++)
		buf_char(out, (char)(group >> (16 - 8 * i)));
	return 0;
}

int base64_decode(const char *p, size_t n, struct buf *out)
{
	int rc = n % 4 == 0 ? 0 : -EBADMSG;

	for (size_t i = 0; i < n && rc == 0; i += 4) {
		bool last = i + 4 == n;
		size_t padding = !last || p[i + 3] != '=' ? 0 : p[i + 2] != '=' ? 1 : 2;

		rc = decode_group(p + i, padding, out);
	}
	return rc;
}
