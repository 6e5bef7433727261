/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/urlpath.h - the path of a URL in one canonical form.
 *
 * Escapes of unreserved characters are decoded, the others have upper case digits; dot segments and empty segments are removed. What a reader that decodes more, or that
 * takes '\\' or ';' for a boundary, could understand as another path is refused. Source: RFC 3986 section 6.2.2.
 */
#ifndef CAY_CODEC_URLPATH_H
#define CAY_CODEC_URLPATH_H

#include "base/attr.h"
#include "base/buf.h"

/**
 * urlpath_canonical() - @p of @n bytes (begins with '/') into @out of at least @n + 1 bytes, NUL-terminated.
 * Return: size without the NUL (1..n), or -EBADMSG.
 */
ssize_t urlpath_canonical(const char *p, size_t n, char *out) attr_must_use;

enum {
	URLPATH_CUT = 1,    /* ';' ends a segment, what follows it are parameters */
	URLPATH_DECODED = 2 /* escapes are undone, also those of escapes; a backslash is a slash */
};

/**
 * urlpath_otherwise() - the canonical path @p of @n bytes as readers see it who do less or more of the above than urlpath_canonical() does.
 * @how: bits of the above. @out: at least @n + 1 bytes, NUL-terminated.
 * Return: size without the NUL (1..n).
 */
size_t urlpath_otherwise(const char *p, size_t n, unsigned int how, char *out);

/** urlpath_query_valid() - are these bytes a query as RFC 3986 writes it (whole escapes, printable ASCII, no '#')? */
bool urlpath_query_valid(const char *p, size_t n);

/**
 * urlpath_encode() - append @n bytes of @p to @out, every byte but unreserved ones (RFC 3986) as an escape with upper case digits.
 * @stays: further bytes that stay as they are; not NULL.
 * @encoded: @p has escapes already: they stay escapes, but for those of unreserved bytes, which are undone.
 */
void urlpath_encode(const char *p, size_t n, const char *stays, bool encoded, struct buf *out);

#endif
