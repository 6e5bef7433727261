/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/scrub.h"
#include "fuzz/fuzz.h"

static const struct scrub_pair pairs[] = { { "s3cretS3cret", "x9aaaaX9bbbb" },
	{ "aaaaaaaab", "bbbbbbbba" }, { "key-0/1+2_z9", "cat-9/8+7_a0" } };

/* The same result however it is cut, never another length, and the secrets themselves are gone. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct scrub_set *set;
	struct buf whole = BUF_INIT(1 << 24), pieces = BUF_INIT(1 << 24);
	struct scrub *s;
	size_t piece = size > 0 ? data[0] % 17 + 1 : 1;

	if (set == NULL)
		set = scrub_set_new(pairs, ARRAY_SIZE(pairs));
	(void)scrub_whole(set, data, size, &whole);
	s = scrub_new(set);
	for (size_t i = 0; i < size; i += piece)
		scrub_write(s, data + i, size - i < piece ? size - i : piece, &pieces);
	scrub_end(s, &pieces);
	MUST(whole.n == size && pieces.n == size);
	MUST(size == 0 || memcmp(whole.p, pieces.p, size) == 0);
	MUST(size == 0 || memmem(whole.p, whole.n, pairs[0].find, strlen(pairs[0].find)) == NULL);
	scrub_free(s);
	buf_free(&whole);
	buf_free(&pieces);
	return 0;
}
