/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/pax.h - the records of a PAX extended header: "LENGTH KEY=VALUE\n", one after the other (POSIX.1-2017, pax, "Extended Header").
 *
 * Strict, because two readers that disagree about a header are how archives escape: LENGTH has no leading zero and ends exactly
 * at the newline, KEY is not empty, no byte is left over.
 */
#ifndef CAY_CODEC_PAX_H
#define CAY_CODEC_PAX_H

#include "base/attr.h"

/** struct pax_record - one record; both parts point into the header and are not NUL-terminated. A value may hold any byte. */
struct pax_record {
	const char *key, *value;
	size_t key_size, value_size;
};

/**
 * pax_next() - read the record at *@at.
 * @at:  position in the header; moved behind the record on success.
 * @end: end of the header.
 *
 * Return: 1, 0 at the end, -EBADMSG when it is malformed.
 */
int pax_next(const char **at, const char *end, struct pax_record *ret) attr_must_use;

/** pax_key_is() - is the key of @r exactly @key? */
bool pax_key_is(const struct pax_record *r, const char *key);

/** pax_u64() - the value as a decimal number of at most @max. Return: 0, -EBADMSG, -ERANGE. */
int pax_u64(const struct pax_record *r, uint64_t max, uint64_t *ret) attr_must_use;

/**
 * pax_time() - the value as seconds with up to nine decimals (more are cut), as 1700000000.25 or -1.5.
 * @ret_s:  seconds, rounded down.
 * @ret_ns: 0..999999999 after them.
 *
 * Return: 0, -EBADMSG, -ERANGE (beyond the year 9999).
 */
int pax_time(const struct pax_record *r, int64_t *ret_s, uint32_t *ret_ns) attr_must_use;

#endif
