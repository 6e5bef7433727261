/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: base/buf.h - a growable byte buffer with a stated maximum and a sticky failure (the idea of curl's dynbuf).
 *
 * Append freely, check once with buf_failed(). A NUL always follows the bytes.
 */
#ifndef CAY_BASE_BUF_H
#define CAY_BASE_BUF_H

#include "base/attr.h"

struct buf {
	char *p;     /* bytes, NUL-terminated once anything was appended; may be NULL */
	size_t n;    /* bytes used */
	size_t cap;  /* bytes allocated */
	size_t max;  /* never more than this */
	bool failed; /* an append went over @max; all later appends are ignored */
};

#define BUF_INIT(limit) \
	{ \
		.max = (limit) \
	}
#define cleanup_buf cleanup(buf_free)

/** buf_free() - release the bytes and reset; the limit stays. NULL is allowed. */
void buf_free(struct buf *b);

/** buf_reset() - forget the bytes and the failure, keep the memory. */
void buf_reset(struct buf *b);

/** buf_add() - append @n bytes. */
void buf_add(struct buf *b, const void *p, size_t n);

/** buf_str() - append a NUL-terminated string. */
void buf_str(struct buf *b, const char *s);

/** buf_char() - append one byte. */
void buf_char(struct buf *b, char c);

/** buf_fmt() - append formatted text. */
void buf_fmt(struct buf *b, const char *fmt, ...) attr_printf(2, 3);

/** buf_room() - make room for @n more bytes and return where they go: buf_grown() says how many came; NULL on failure. */
char *buf_room(struct buf *b, size_t n);

/** buf_grown() - @n bytes have been written to the place that buf_room() gave; @n is no more than was asked for. */
void buf_grown(struct buf *b, size_t n);

/** buf_consume() - drop @n bytes from the front. */
void buf_consume(struct buf *b, size_t n);

/** buf_failed() - did an append not fit? */
static inline bool buf_failed(const struct buf *b)
{
	return b->failed;
}

/** buf_cstr() - the bytes as a C string; "" when empty. Valid until the next change. */
static inline const char *buf_cstr(const struct buf *b)
{
	return b->p != NULL ? b->p : "";
}

/** buf_take() - hand the bytes over to the caller (free()); never NULL unless failed; the buffer is empty afterwards. */
char *buf_take(struct buf *b) attr_must_use;

#endif
