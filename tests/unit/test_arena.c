/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"
#include "t.h"

TEST(nothing_beyond_the_limit)
{
	struct arena a = ARENA_INIT(100);

	check(arena_alloc(&a, 101) == NULL);
	check(arena_alloc(&a, SIZE_MAX) == NULL);
	check(arena_copy(&a, "x", SIZE_MAX) == NULL);
	check(arena_alloc(&a, 96) != NULL);
	check(arena_alloc(&a, 8) == NULL);
	arena_free(&a);
	check(arena_alloc(&a, 96) != NULL);
	arena_free(&a);
}

TEST(pieces_stay_where_they_are)
{
	struct arena a = ARENA_INIT(1 << 20);
	char *pieces[200];

	for (int i = 0; i < 200; i++)
		pieces[i] = arena_copy(&a, "0123456789abcdef0123456789abcdef", (size_t)i % 33);
	for (int i = 0; i < 200; i++) {
		check_int(strlen(pieces[i]), i % 33);
		check_int((uintptr_t)pieces[i] % sizeof(void *), 0);
	}
	check(arena_alloc(&a, 100000) != NULL);
	arena_free(&a);
}
