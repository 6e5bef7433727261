/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/frame.h"
#include "t.h"

static ssize_t decode(const char *bytes, size_t n, struct frame *ret)
{
	/* An exact copy on the heap, so that a sanitizer sees one byte too many. */
	cleanup_free char *copy = xalloc(n + (n == 0));

	memcpy(copy, bytes, n);
	return frame_decode(copy, n, ret);
}

TEST(unknown_types_and_flags_are_refused)
{
	struct frame f;
	char h[8] = { 0 };

	check_int(decode(h, 8, &f), -EBADMSG);
	h[4] = FRAME_TYPE_MAX + 1;
	check_int(decode(h, 8, &f), -EBADMSG);
	h[4] = (char)0xFF;
	check_int(decode(h, 8, &f), -EBADMSG);
	h[4] = FRAME_REQUEST;
	h[5] = 1;
	check_int(decode(h, 8, &f), -EBADMSG);
}

TEST(too_large_is_refused_before_the_payload_comes)
{
	struct frame f;
	unsigned char h[8] = { 0 };

	h[4] = FRAME_STDIN;
	frame_put_u32(h, FRAME_PAYLOAD_MAX + 1);
	check_int(decode((char *)h, 8, &f), -EMSGSIZE);
	frame_put_u32(h, UINT32_MAX);
	check_int(decode((char *)h, 8, &f), -EMSGSIZE);
	frame_put_u32(h, FRAME_PAYLOAD_MAX);
	check_int(decode((char *)h, 8, &f), 0);
}

TEST(a_part_of_a_frame_asks_for_more)
{
	cleanup_buf struct buf b = BUF_INIT(1000);
	struct frame f;

	frame_encode(&b, FRAME_REQUEST, 3, "{}", 2);
	for (size_t n = 0; n < b.n; n++)
		check_int(decode(b.p, n, &f), 0);
	check_int(decode(b.p, b.n, &f), 10);
}

TEST(an_oversized_payload_is_a_programmer_error)
{
	cleanup_buf struct buf b = BUF_INIT(2 * FRAME_PAYLOAD_MAX);
	cleanup_free char *big = xalloc(FRAME_PAYLOAD_MAX + 1);

	check_aborts(frame_encode(&b, FRAME_STDIN, 0, big, FRAME_PAYLOAD_MAX + 1));
	check_aborts(frame_encode_output(&b, FRAME_STDOUT, 0, 0, big, FRAME_PAYLOAD_MAX - 7));
	frame_encode_output(&b, FRAME_STDOUT, 0, 0, big, FRAME_PAYLOAD_MAX - 8);
	check_int(b.n, FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX);
}

TEST(the_layout_is_the_documented_one)
{
	cleanup_buf struct buf b = BUF_INIT(100);
	static const unsigned char want[] = { 10, 0, 0, 0, FRAME_STDERR, 0, 0x34, 0x12, 0x88, 0x77,
		0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 'h', 'i' };

	frame_encode_output(&b, FRAME_STDERR, 0x1234, 0x1122334455667788, "hi", 2);
	check_int(b.n, sizeof(want));
	check(memcmp(b.p, want, sizeof(want)) == 0);
	check(frame_get_u64(b.p + FRAME_HEADER_SIZE) == 0x1122334455667788);
}

TEST(several_frames_come_out_one_by_one)
{
	cleanup_buf struct buf b = BUF_INIT(1000);
	struct frame f;
	ssize_t n;

	frame_encode(&b, FRAME_STDIN, 1, "", 0);
	frame_encode(&b, FRAME_STATUS, 65535, "{\"a\":1}", 7);
	n = frame_decode(b.p, b.n, &f);
	check_int(n, 8);
	check_int(f.type, FRAME_STDIN);
	check_int(f.channel, 1);
	check_int(f.size, 0);
	n = frame_decode(b.p + n, b.n - (size_t)n, &f);
	check_int(n, 15);
	check_int(f.channel, 65535);
	check(memcmp(f.payload, "{\"a\":1}", f.size) == 0);
}
