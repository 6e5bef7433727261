/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/wsframe.h"
#include "fuzz/fuzz.h"

struct seen {
	size_t frames, payload;
	bool bad;
};

/* Reads all of it, @step bytes at a time. */
static struct seen read_all(const uint8_t *data, size_t size, size_t step, bool from_client)
{
	struct wsframe_reader r = { .from_client = from_client };
	unsigned char *copy = xalloc(size + 1), head[WSFRAME_HEAD_MAX];
	struct seen seen = { 0 };
	size_t at = 0;

	memcpy(copy, data, size);
	for (;;) {
		size_t used, piece, give = size - at < step ? size - at : step;
		int found = wsframe_next(&r, copy + at, give, &used, &piece);

		seen.bad = found < 0;
		if (found < 0 || (found == WSFRAME_NOTHING && at + used == size))
			break;
		MUST(used <= give && piece <= used);
		at += used;
		seen.payload += piece;
		seen.frames += found == WSFRAME_END;
		if (found == WSFRAME_BEGIN)
			MUST(wsframe_head(&r.f, head) <= WSFRAME_HEAD_MAX);
	}
	free(copy);
	return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	bool from_client = size > 0 && (data[0] & 1) != 0;
	struct seen a, b;

	if (size == 0)
		return 0;
	a = read_all(data + 1, size - 1, size, from_client);
	b = read_all(data + 1, size - 1, 1, from_client);
	MUST(a.bad == b.bad && a.frames == b.frames && a.payload == b.payload);
	return 0;
}
