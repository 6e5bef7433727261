/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/wsframe.h"
#include "t.h"

static int first(bool from_client, const void *bytes, size_t n)
{
	struct wsframe_reader r = { .from_client = from_client };
	unsigned char copy[64];
	size_t used, piece;

	memcpy(copy, bytes, n);
	return wsframe_next(&r, copy, n, &used, &piece);
}

TEST(what_is_refused)
{
	check_int(first(true, "\x81\x01x", 3), -EBADMSG);         /* a client's without mask */
	check_int(first(false, "\x81\x81\0\0\0\0", 6), -EBADMSG); /* a server's with one */
	check_int(first(false, "\xc1\x01", 2), -EBADMSG);         /* compressed */
	check_int(first(false, "\x83\x01", 2), -EBADMSG);         /* unknown opcode */
	check_int(first(false, "\x81\x7e\x00\x05", 4), -EBADMSG); /* not the shortest length */
	check_int(first(false, "\x81\x7f\0\0\0\0\0\0\xff\xff", 10), -EBADMSG);
	check_int(first(false, "\x81\x7f\x80\0\0\0\0\0\0\0", 10), -EBADMSG);
	check_int(first(false, "\x89\x7e\x00\x7e", 4), -EBADMSG); /* a long ping */
	check_int(first(false, "\x09\x00", 2), -EBADMSG);         /* a fragmented ping */
	check_int(first(false, "\x80\x00", 2), -EBADMSG);         /* continues nothing */
	check_int(first(false, "\x81", 1), WSFRAME_NOTHING);
	check_int(first(false, "\x81\x01", 2), WSFRAME_BEGIN);
}

TEST(a_new_message_inside_another)
{
	struct wsframe_reader r = { 0 };
	unsigned char bytes[] = "\x01\x01x\x01\x01y";
	size_t used, piece, at = 0;
	int found = 0;

	for (int i = 0; i < 3; i++) {
		found = wsframe_next(&r, bytes + at, 6 - at, &used, &piece);
		check(found > 0);
		at += used;
	}
	check_int(found, WSFRAME_END);
	check_int(wsframe_next(&r, bytes + at, 6 - at, &used, &piece), -EBADMSG);
}

TEST(heads_come_back)
{
	static const uint64_t sizes[] = { 0, 125, 126, 65535, 65536, 1ULL << 40 };

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct wsframe f = { WSFRAME_BINARY, true, true, { 1, 2, 3, 4 }, sizes[i] };
		struct wsframe_reader r = { .from_client = true };
		unsigned char head[WSFRAME_HEAD_MAX];
		size_t used, piece, n = wsframe_head(&f, head);

		check_int(wsframe_next(&r, head, n, &used, &piece), WSFRAME_BEGIN);
		check_int(used, n);
		check(r.f.size == sizes[i] && r.f.fin && memcmp(r.f.mask, f.mask, 4) == 0);
	}
}
