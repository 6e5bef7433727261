/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/body.h - bodies decoded for rules and events, within bounds. */
#ifndef CAY_GATEWAY_BODY_H
#define CAY_GATEWAY_BODY_H

#include "base/buf.h"
#include "policy/policy.h"

#include <jansson.h>

/**
 * body_decode() - undo a content coding (identity, gzip, x-gzip, deflate, br, zstd; several in a row).
 * @coding: value of Content-Encoding; empty: identity. @partial: the end may be missing: what there is counts.
 * @out: its maximum bounds the result.
 * Return: 0; -EMSGSIZE when the result is larger; -EBADMSG broken; -EOPNOTSUPP another coding. With @partial @out holds what came out before a failure.
 */
int body_decode(struct policy_text coding, const void *p, size_t n, bool partial,
	struct buf *out) attr_must_use;

/** body_json() - decode and parse. Return: a new reference; NULL when it is no JSON, broken or larger than @max decoded. */
json_t *body_json(struct policy_text coding, const void *p, size_t n, size_t max) attr_must_use;

#endif
