/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: codec/frame.h - the length-prefixed frames that all our processes speak (docs/design/0001).
 *
 * Pure: bytes in, values out. Used on keeper sockets, job sockets and upgraded HTTP streams.
 */
#ifndef CAY_CODEC_FRAME_H
#define CAY_CODEC_FRAME_H

#include "base/buf.h"

#define FRAME_HEADER_SIZE 8
#define FRAME_PAYLOAD_MAX (1U << 20)

enum frame_type {
	FRAME_REQUEST = 1,
	FRAME_REPLY = 2,
	FRAME_EVENT = 3,
	FRAME_STDIN = 4,
	FRAME_STDOUT = 5,
	FRAME_STDERR = 6,
	FRAME_STATUS = 7,
	FRAME_RESIZE = 8,
	FRAME_SIGNAL = 9,
	FRAME_WINDOW = 10,
	FRAME_OBJECT = 11,
	FRAME_ERROR = 12,
	FRAME_GAP = 13,
	FRAME_TYPE_MAX = FRAME_GAP,
};

/** struct frame - one decoded frame; @payload points into the bytes that were given to frame_decode(). */
struct frame {
	enum frame_type type;
	uint16_t channel; /* exec on keeper connections; 0 = the sandbox itself */
	uint32_t size;    /* bytes at @payload */
	const char *payload;
};

/**
 * frame_decode() - read the first frame of a byte sequence.
 * @p: bytes received so far.
 * @n: how many.
 * @ret: set when a whole frame is there; its payload points into @p.
 *
 * Return: bytes used (> 0) when a frame was read; 0 when more bytes are needed; -EBADMSG for an unknown type or flag;
 *         -EMSGSIZE when the frame says it is larger than %FRAME_PAYLOAD_MAX.
 */
ssize_t frame_decode(const char *p, size_t n, struct frame *ret) attr_must_use;

/** frame_encode() - append a frame to @out; @size <= %FRAME_PAYLOAD_MAX. */
void frame_encode(
	struct buf *out, enum frame_type type, uint16_t channel, const void *payload, size_t size);

/** frame_encode_output() - append a STDOUT or STDERR frame: offset, then bytes. */
void frame_encode_output(struct buf *out, enum frame_type type, uint16_t channel, uint64_t offset,
	const void *bytes, size_t size);

/** frame_put_u32()/frame_get_u32() and friends - little-endian integers at any alignment. */
static inline void frame_put_u16(unsigned char *p, uint16_t v)
{
	p[0] = (unsigned char)(v & 0xFF);
	p[1] = (unsigned char)(v >> 8);
}

static inline void frame_put_u32(unsigned char *p, uint32_t v)
{
	frame_put_u16(p, (uint16_t)(v & 0xFFFF));
	frame_put_u16(p + 2, (uint16_t)(v >> 16));
}

static inline void frame_put_u64(unsigned char *p, uint64_t v)
{
	frame_put_u32(p, (uint32_t)(v & 0xFFFFFFFF));
	frame_put_u32(p + 4, (uint32_t)(v >> 32));
}

static inline uint16_t frame_get_u16(const void *at)
{
	const unsigned char *p = at;

	return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t frame_get_u32(const void *at)
{
	const unsigned char *p = at;

	return (uint32_t)frame_get_u16(p) | (uint32_t)frame_get_u16(p + 2) << 16;
}

static inline uint64_t frame_get_u64(const void *at)
{
	const unsigned char *p = at;

	return (uint64_t)frame_get_u32(p) | (uint64_t)frame_get_u32(p + 4) << 32;
}

#endif
