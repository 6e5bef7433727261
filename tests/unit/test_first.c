/* SPDX-License-Identifier: Apache-2.0 */
#include "t.h"
#include "checkpoint/first.h"

#include <string.h>

TEST(a_piece_of_memory_is_named_once)
{
	struct first f = { .n = 0 };

	first_add(&f, 7, 0);
	first_add(&f, 7, TEMPLATE_PIECE - 1);
	first_add(&f, 8, 0);
	first_add(&f, 7, TEMPLATE_PIECE);
	check(f.n == 3);
	check(f.list[1].pid == 8);
	check(f.list[2].address == TEMPLATE_PIECE);
}

TEST(what_came_first_stays_when_there_is_no_room)
{
	struct first f = { .n = 0 }, before = { .n = 0 };

	for (unsigned int i = 0; i < TEMPLATE_FIRST_MAX; i++)
		first_add(&before, 1, (uint64_t)i * TEMPLATE_PIECE);
	first_add(&before, 2, 0);
	check(before.n == TEMPLATE_FIRST_MAX);
	first_add(&f, 3, 0);
	first_add(&f, 1, 0);
	first_join(&f, &before);
	check(f.n == TEMPLATE_FIRST_MAX);
	check(f.list[0].pid == 3);
	check(f.list[2].address == TEMPLATE_PIECE);
}

TEST(what_is_carried_is_read_again)
{
	struct first f = { .n = 0 }, again;
	json_t *o = json_pack(
		"{s:o}", "first", (first_add(&f, 7, 0x7fffffffe000ULL), first_describe(&f)));
	char *text = json_dumps(o, JSON_COMPACT);
	cleanup_buf struct buf state = BUF_INIT(65536);

	buf_str(&state, text);
	buf_str(&state, "\nbytes");
	first_of_state(&state, &again);
	check(again.n == 1 && again.list[0].pid == 7 && again.list[0].address == 0x7fffffffe000ULL);
	free(text);
	json_decref(o);
}

TEST(what_is_malformed_names_nothing)
{
	cleanup_buf struct buf none = BUF_INIT(64), cut = BUF_INIT(64), other = BUF_INIT(64);
	struct first f = { .n = 5 };

	first_of_state(&none, &f);
	check(f.n == 0);
	buf_str(&cut, "{\"first\":[[1,2]]");
	first_of_state(&cut, &f);
	check(f.n == 0);
	buf_str(&other, "{\"first\":7}\n");
	first_of_state(&other, &f);
	check(f.n == 0);
}
