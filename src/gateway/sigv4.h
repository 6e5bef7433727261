/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/sigv4.h - AWS Signature Version 4 of a request: found, and made anew with another key.
 *
 * A signature is an HMAC over a canonical form of the request and stands in the field Authorization or, of a presigned URL, in the query. What is signed is the request as it will
 * be sent: the fields that the client named, its payload hash where it says one, its time and scope. Source: "Signature Version 4 signing process", AWS IAM User Guide.
 */
#ifndef CAY_GATEWAY_SIGV4_H
#define CAY_GATEWAY_SIGV4_H

#include "gateway/channel.h"

#define SIGV4_HEX 64 /* digits of a signature */

/** struct sigv4 - the signature that a request carries. Views into its head, or decoded in its arena. */
struct sigv4 {
	struct policy_text key_id;
	struct policy_text scope; /* "20260102/eu-west-1/s3/aws4_request" */
	struct policy_text date, region, service;
	struct policy_text time;  /* "20260102T030405Z" */
	struct policy_text names; /* of the fields that are signed: "host;x-amz-date" */
	struct policy_text
		payload; /* what the client calls its body's hash; empty: it does not say */
	struct policy_text signature; /* %SIGV4_HEX digits, where they stand in the head */
	bool in_query;
};

/**
 * sigv4_find() - the signature of @rq.
 * @arena: of the exchange; for what has to be decoded.
 * @ret_why: set with -EINVAL; static.
 *
 * Return: 0; -ENOENT when it has none; -EINVAL when it is malformed or cannot be made anew (signed chunk by chunk, another algorithm); -ENOMEM.
 */
int sigv4_find(const struct head *rq, struct arena *arena, struct sigv4 *ret,
	const char **ret_why) attr_must_use;

/** sigv4_wants_body() - does the signature of @rq cover a body whose hash is not said in its head? */
bool sigv4_wants_body(const struct head *rq, struct arena *arena);

/**
 * sigv4_make() - the signature of @rq with the key @secret.
 * @s: from sigv4_find() of the same head.
 * @body_hash: SHA-256 of the body, %SIGV4_HEX digits; used when @s->payload says nothing.
 * @ret: digits and a NUL.
 *
 * Return: 0; -ENOENT when a field that is signed is not in @rq; -ENOMEM.
 */
int sigv4_make(const struct head *rq, const struct sigv4 *s, const char *body_hash,
	const char *secret, char ret[SIGV4_HEX + 1]) attr_must_use;

#endif
