/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/termquery.h"
#include "fuzz/fuzz.h"

static void strip(const uint8_t *data, size_t size, size_t piece, struct buf *out)
{
	struct termquery t = { 0 };

	for (size_t i = 0; i < size; i += piece)
		termquery_strip(
			&t, (const char *)data + i, size - i < piece ? size - i : piece, out);
	termquery_end(&t, out);
}

/* The same however it is cut, never more than there was, and all of it where nothing begins a sequence. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct buf whole = BUF_INIT(1 << 24), pieces = BUF_INIT(1 << 24);

	strip(data, size, size + 1, &whole);
	strip(data, size, size > 0 ? data[0] % 17 + 1 : 1, &pieces);
	MUST(whole.n == pieces.n && whole.n <= size);
	MUST(whole.n == 0 || memcmp(whole.p, pieces.p, whole.n) == 0);
	if (size == 0 || (memchr(data, 27, size) == NULL && memchr(data, 5, size) == NULL))
		MUST(whole.n == size);
	buf_free(&whole);
	buf_free(&pieces);
	return 0;
}
