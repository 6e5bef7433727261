/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/wsframe.h - frames of the WebSocket protocol: a strict reader and a writer.
 *
 * The payload is handed on piece by piece, unmasked; no frame is ever held whole. Refused: reserved bits (no extension was agreed), unknown opcodes, lengths not
 * in their shortest form, control frames that are long or fragmented, a continuation of nothing, a new message inside another. Source: RFC 6455 section 5.
 */
#ifndef CAY_CODEC_WSFRAME_H
#define CAY_CODEC_WSFRAME_H

#include "base/attr.h"

#define WSFRAME_HEAD_MAX    14
#define WSFRAME_CONTROL_MAX 125

enum wsframe_op {
	WSFRAME_CONTINUATION = 0,
	WSFRAME_TEXT = 1,
	WSFRAME_BINARY = 2,
	WSFRAME_CLOSE = 8,
	WSFRAME_PING = 9,
	WSFRAME_PONG = 10
};

struct wsframe {
	enum wsframe_op op;
	bool fin;
	bool masked;
	unsigned char mask[4];
	uint64_t size; /* of the payload */
};

/** struct wsframe_reader - one direction; zero it, then say whether its frames must be masked (a client's). */
struct wsframe_reader {
	bool from_client;
	bool in_message; /* a fragmented message is under way */
	bool in_payload;
	struct wsframe f; /* the frame under way */
	uint64_t at;      /* bytes of its payload that were handed out */
	unsigned char head[WSFRAME_HEAD_MAX];
	size_t head_n;
};

/** enum wsframe_found - what a step found. */
enum wsframe_found {
	WSFRAME_NOTHING, /* more bytes are needed */
	WSFRAME_BEGIN,   /* a frame's head: see @f */
	WSFRAME_PIECE,   /* a part of its payload */
	WSFRAME_END      /* its end */
};

/**
 * wsframe_next() - take the next step.
 * @p: bytes not used yet; payload is unmasked in place. @ret_used: how many were used; the piece is the last @ret_piece_n of them.
 * Return: what was found, or -EBADMSG.
 */
int wsframe_next(struct wsframe_reader *r, unsigned char *p, size_t n, size_t *ret_used,
	size_t *ret_piece_n) attr_must_use;

/** wsframe_head() - write the head of @f. Return: its size. */
size_t wsframe_head(const struct wsframe *f, unsigned char out[WSFRAME_HEAD_MAX]);

/** wsframe_mask() - mask or unmask @n bytes that stand at offset @at of a payload. */
void wsframe_mask(const unsigned char mask[4], uint64_t at, unsigned char *p, size_t n);

#endif
