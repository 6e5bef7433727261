/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "checkpoint/chunk_set.h"

static void digest_of(uint64_t n, unsigned char digest[DIGEST_SIZE])
{
	digest_bytes(&n, sizeof(n), digest);
}

TEST(the_first_of_equal_ones_is_found)
{
	struct chunk_set *s = chunk_set_new(0);
	unsigned char a[DIGEST_SIZE], b[DIGEST_SIZE], c[DIGEST_SIZE];

	digest_of(1, a);
	digest_of(2, b);
	digest_of(3, c);
	check(chunk_set_find(s, a) == CHUNK_NONE);
	chunk_set_add(s, a);
	chunk_set_add(s, NULL); /* a number that nobody finds */
	chunk_set_add(s, b);
	chunk_set_add(s, a);
	check(chunk_set_find(s, a) == 0);
	check(chunk_set_find(s, b) == 2);
	check(chunk_set_find(s, c) == CHUNK_NONE);
	chunk_set_free(s);
}

TEST(digests_that_begin_alike_are_told_apart)
{
	struct chunk_set *s = chunk_set_new(2);
	unsigned char a[DIGEST_SIZE] = { 7 }, b[DIGEST_SIZE] = { 7 };

	b[DIGEST_SIZE - 1] = 1;
	chunk_set_add(s, a);
	check(chunk_set_find(s, b) == CHUNK_NONE);
	chunk_set_add(s, b);
	check(chunk_set_find(s, a) == 0);
	check(chunk_set_find(s, b) == 1);
	chunk_set_free(s);
}

TEST(what_has_no_room_is_not_found)
{
	struct chunk_set *s = chunk_set_new(10);
	const uint64_t room = 10 + CHUNK_SET_MORE;
	unsigned char digest[DIGEST_SIZE];

	for (uint64_t i = 0; i < room + 5; i++) {
		digest_of(i, digest);
		chunk_set_add(s, digest);
	}
	for (uint64_t i = 0; i < room + 5; i++) {
		digest_of(i, digest);
		check(chunk_set_find(s, digest) == (i < room ? i : CHUNK_NONE));
	}
	chunk_set_free(s);
}
