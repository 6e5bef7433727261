/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/scrub.h"
#include "fuzz/fuzz.h"

static const struct scrub_pair pairs[] = { { "s3cretS3cret", "x9aaaaX9bbbb" },
	{ "aaaaaaaab", "bbbbbbbba" }, { "key-0/1+2_z9", "cat-9/8+7_a0" } };

/* All of it in pieces that are given out one by one: of a secret that was whole at least the last byte is not there. */
static void check_flushed(
	const struct scrub_set *set, const uint8_t *data, size_t size, size_t piece)
{
	struct buf out = BUF_INIT(1 << 24);
	struct scrub *s = scrub_new(set);

	for (size_t i = 0; i < size; i += piece) {
		scrub_write(s, data + i, size - i < piece ? size - i : piece, &out);
		scrub_flush(s, &out);
		MUST(out.n == (size - i < piece ? size : i + piece));
	}
	MUST(size == 0 || memmem(out.p, out.n, pairs[0].find, strlen(pairs[0].find)) == NULL);
	scrub_free(s);
	buf_free(&out);
}

/* Held back evenly, by what could be a part of some secret: no less than what is one. */
static void check_evenly(const struct scrub_set *set, const uint8_t *data, size_t size,
	size_t piece, const struct buf *want)
{
	struct buf out = BUF_INIT(1 << 24);
	struct scrub *s = scrub_new(set);

	scrub_evenly(s);
	for (size_t i = 0; i < size; i += piece)
		scrub_write(s, data + i, size - i < piece ? size - i : piece, &out);
	scrub_end(s, &out);
	MUST(out.n == want->n && (size == 0 || memcmp(out.p, want->p, size) == 0));
	scrub_free(s);
	buf_free(&out);
}

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
	check_flushed(set, data, size, piece);
	check_evenly(set, data, size, piece, &whole);
	scrub_free(s);
	buf_free(&whole);
	buf_free(&pieces);
	return 0;
}
