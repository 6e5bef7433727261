/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/body.h - content codings of bodies undone for rules and events, within bounds. */
#ifndef CAY_GATEWAY_BODY_H
#define CAY_GATEWAY_BODY_H

#include "base/buf.h"
#include "policy/policy.h"

#include <jansson.h>

#define BODY_WINDOW_MAX \
	(20U << 20) /* bytes that the codings of one body may need to be undone, roughly */

struct body_decoder;

/** body_window() - bytes that undoing @coding, a value of Content-Encoding, takes, roughly; 0: it is none. */
size_t body_window(struct policy_text coding);

/** body_sink - takes what came out. Return: 0 or -errno, which ends it. */
typedef int body_sink(void *ctx, const char *p, size_t n);

/**
 * body_decoder_new() - undo a content coding (identity, gzip, x-gzip, deflate, br, zstd; several in a row, but one of the last two) piece by piece.
 * @coding: value of Content-Encoding; empty: identity. @max: bytes that may come out, of each of several codings.
 * Return: body_decoder_free(); NULL for a coding that is not known, or without memory.
 */
struct body_decoder *body_decoder_new(
	struct policy_text coding, size_t max, body_sink *sink, void *ctx) attr_must_use;

/** body_decoder_feed() - the next piece. Return: 0; -EMSGSIZE when more than the maximum comes out; -EBADMSG broken; what the sink said. */
int body_decoder_feed(struct body_decoder *d, const void *p, size_t n) attr_must_use;

/** body_decoder_end() - nothing follows. Return: 0; -EBADMSG when the end is missing. */
int body_decoder_end(struct body_decoder *d) attr_must_use;

/** body_decoder_free() - NULL is allowed. */
void body_decoder_free(struct body_decoder *d);

/**
 * body_decode() - the same at once. @partial: the end may be missing: what there is counts.
 * @out: its maximum bounds the result.
 * Return: 0; -EMSGSIZE when the result is larger; -EBADMSG broken; -EOPNOTSUPP another coding. With @partial @out holds what came out before a failure.
 */
int body_decode(struct policy_text coding, const void *p, size_t n, bool partial,
	struct buf *out) attr_must_use;

/** body_json() - decode and parse. Return: a new reference; NULL when it is no JSON, broken or larger than @max decoded. */
json_t *body_json(struct policy_text coding, const void *p, size_t n, size_t max) attr_must_use;

#endif
