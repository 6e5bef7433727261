/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/httphead.h - the head of an HTTP/1.1 request, read strictly.
 *
 * Refuses everything that two parsers could understand differently, and what llhttp lets through: bare CR or LF, NUL and other control bytes, folded
 * header lines, space before a colon, names that are no tokens, Host missing or twice, Content-Length twice or with Transfer-Encoding, codings other than one
 * `chunked`, targets that are no plain origin form. Source: RFC 9112 sections 2 to 6.
 */
#ifndef CAY_CODEC_HTTPHEAD_H
#define CAY_CODEC_HTTPHEAD_H

#include "base/attr.h"

#define HTTPHEAD_BYTES_MAX   32768
#define HTTPHEAD_TARGET_MAX  8192
#define HTTPHEAD_HEADERS_MAX 128

/** enum httphead_form - how the request names its target. */
enum httphead_form {
	HTTPHEAD_ORIGIN,    /* /path?query */
	HTTPHEAD_ABSOLUTE,  /* scheme://authority/path?query, to a proxy */
	HTTPHEAD_AUTHORITY, /* host:port, of CONNECT */
	HTTPHEAD_ASTERISK   /* *, of OPTIONS */
};

/** struct httphead_text - a view into the bytes that were parsed. */
struct httphead_text {
	const char *p;
	size_t n;
};

struct httphead_field {
	struct httphead_text name, value;
};

struct httphead {
	struct httphead_text method, path,
		query; /* path and query as they came, still percent-encoded */
	enum httphead_form form;
	struct httphead_text scheme, authority; /* of the absolute and authority forms */
	unsigned int minor;                     /* version: HTTP/1.minor, 0 or 1 */
	struct httphead_field fields[HTTPHEAD_HEADERS_MAX];
	size_t n_fields;
	bool chunked;
	bool has_length;
	uint64_t length;
	bool expect_continue;
	bool close; /* Connection: close, or HTTP/1.0 without keep-alive */
};

/**
 * httphead_size() - find the end of the head in the bytes received so far.
 * Return: size with the empty line; 0 when more bytes are needed; -EMSGSIZE when it is larger than %HTTPHEAD_BYTES_MAX.
 */
ssize_t httphead_size(const char *p, size_t n) attr_must_use;

/**
 * httphead_parse() - read a whole head.
 * @p: bytes; must outlive @ret. @n: as httphead_size() said.
 * @ret_reason: set to a sentence on failure; static.
 *
 * Return: 0, -EBADMSG, or -EMSGSIZE (target or number of headers).
 */
int httphead_parse(
	const char *p, size_t n, struct httphead *ret, const char **ret_reason) attr_must_use;

/**
 * httphead_parse_any() - as httphead_parse(), for a proxy: every form of target, every method that is a token, HTTP/1.0 too.
 * Path and query are set for the origin and absolute forms (the path may be empty in the latter), authority for the absolute and authority forms.
 */
int httphead_parse_any(
	const char *p, size_t n, struct httphead *ret, const char **ret_reason) attr_must_use;

/** httphead_get() - value of the header @name (compared without case); {NULL, 0} when missing. */
struct httphead_text httphead_get(const struct httphead *h, const char *name);

/** httphead_count() - how often the header @name is there. */
size_t httphead_count(const struct httphead *h, const char *name);

/** httphead_has_word() - does the comma-separated header @name hold @word (without case)? */
bool httphead_has_word(const struct httphead *h, const char *name, const char *word);

/**
 * httphead_decode() - percent-decode @n bytes into @out of @size bytes, NUL-terminated.
 * @plus: '+' is a space (query values).
 * Return: 0, -EBADMSG (broken escape, NUL, invalid UTF-8), -EMSGSIZE.
 */
int httphead_decode(const char *p, size_t n, bool plus, char *out, size_t size) attr_must_use;

/** httphead_is_hop() - does a field concern one connection only, or is it restated by whoever sends a head on? Compared without case. */
bool httphead_is_hop(const char *name, size_t n);

#endif
