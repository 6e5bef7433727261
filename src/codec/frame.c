/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/frame.h"

ssize_t frame_decode(const char *p, size_t n, struct frame *ret)
{
	uint32_t size;
	unsigned char type;

	if (n < FRAME_HEADER_SIZE)
		return 0;
	size = frame_get_u32(p);
	type = (unsigned char)p[4];
	if (size > FRAME_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (type == 0 || type > FRAME_TYPE_MAX || p[5] != 0)
		return -EBADMSG;
	if (n - FRAME_HEADER_SIZE < size)
		return 0;
	*ret = (struct frame){
		.type = (enum frame_type)type,
		.channel = frame_get_u16(p + 6),
		.size = size,
		.payload = p + FRAME_HEADER_SIZE,
	};
	return (ssize_t)(FRAME_HEADER_SIZE + size);
}

static void encode_header(struct buf *out, enum frame_type type, uint16_t channel, size_t size)
{
	unsigned char h[FRAME_HEADER_SIZE];

	BUG_ON(size > FRAME_PAYLOAD_MAX);
	frame_put_u32(h, (uint32_t)size);
	h[4] = (unsigned char)type;
	h[5] = 0;
	frame_put_u16(h + 6, channel);
	buf_add(out, h, sizeof(h));
}

void frame_encode(
	struct buf *out, enum frame_type type, uint16_t channel, const void *payload, size_t size)
{
	encode_header(out, type, channel, size);
	buf_add(out, payload, size);
}

void frame_encode_output(struct buf *out, enum frame_type type, uint16_t channel, uint64_t offset,
	const void *bytes, size_t size)
{
	unsigned char at[8];

	frame_put_u64(at, offset);
	encode_header(out, type, channel, size + sizeof(at));
	buf_add(out, at, sizeof(at));
	buf_add(out, bytes, size);
}
