/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/frame.h"
#include "fuzz/fuzz.h"

/* A frame that was read is written as the same bytes; a prefix of it is never a frame of its own. */
static void check_frame(const char *at, size_t used, const struct frame *f)
{
	cleanup_buf struct buf out = BUF_INIT(FRAME_HEADER_SIZE + FRAME_PAYLOAD_MAX);
	struct frame part;

	MUST(used == FRAME_HEADER_SIZE + f->size && f->payload == at + FRAME_HEADER_SIZE);
	frame_encode(&out, f->type, f->channel, f->payload, f->size);
	MUST(!buf_failed(&out) && out.n == used && memcmp(out.p, at, used) == 0);
	MUST(frame_decode(at, used - 1, &part) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *p = (const char *)data;
	struct frame f;
	ssize_t used;

	while ((used = frame_decode(p, size, &f)) > 0) {
		MUST((size_t)used <= size);
		check_frame(p, (size_t)used, &f);
		p += used;
		size -= (size_t)used;
	}
	return 0;
}
