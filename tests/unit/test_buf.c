/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "t.h"

TEST(over_the_maximum_fails_and_stays_failed)
{
	cleanup_buf struct buf b = BUF_INIT(4);

	buf_str(&b, "abcd");
	check(!buf_failed(&b));
	buf_char(&b, 'e');
	check(buf_failed(&b));
	check_str(buf_cstr(&b), "abcd");
	buf_consume(&b, 4);
	buf_char(&b, 'x'); /* would fit now, but the failure sticks */
	check(buf_failed(&b));
	check_int(b.n, 0);
	check(buf_take(&b) == NULL);
}

TEST(a_huge_size_does_not_wrap)
{
	cleanup_buf struct buf b = BUF_INIT(100);

	buf_str(&b, "abc");
	check(buf_room(&b, SIZE_MAX) == NULL);
	check(buf_failed(&b));
	check_int(b.n, 3);
}

TEST(formatting_over_the_maximum_adds_nothing)
{
	cleanup_buf struct buf b = BUF_INIT(8);

	buf_fmt(&b, "%s", "abc");
	buf_fmt(&b, "%s", "too long for it");
	check(buf_failed(&b));
	check_str(buf_cstr(&b), "abc");
}

TEST(consuming_more_than_there_is_aborts)
{
	cleanup_buf struct buf b = BUF_INIT(8);

	buf_str(&b, "abc");
	check_aborts(buf_consume(&b, 4));
}

TEST(reset_forgets_the_failure)
{
	cleanup_buf struct buf b = BUF_INIT(2);

	buf_str(&b, "abc");
	check(buf_failed(&b));
	buf_reset(&b);
	check(!buf_failed(&b));
	buf_str(&b, "ab");
	check_str(buf_cstr(&b), "ab");
}

TEST(take_hands_over_and_empties)
{
	struct buf b = BUF_INIT(100);
	cleanup_free char *first = NULL, *second = NULL;

	buf_fmt(&b, "%d", 42);
	first = buf_take(&b);
	second = buf_take(&b);
	check_str(first, "42");
	check_str(second, "");
	check_int(b.n, 0);
	check_int(b.max, 100);
	buf_free(NULL);
}

TEST(grows_and_stays_terminated)
{
	cleanup_buf struct buf b = BUF_INIT(100000);

	check_str(buf_cstr(&b), "");
	for (int i = 0; i < 50000; i++)
		buf_add(&b, "\0x", 2);
	check(!buf_failed(&b));
	check_int(b.n, 100000);
	check_int(b.p[b.n], 0);
	buf_consume(&b, 1);
	check_int(b.p[0], 'x');
	check_int(b.n, 99999);
}
