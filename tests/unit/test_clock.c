/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "t.h"

TEST(text_of_the_edges)
{
	char text[CLOCK_TEXT_SIZE];

	clock_text(0, text);
	check_str(text, "1970-01-01T00:00:00.000000Z");
	clock_text(1709210096123456789ULL, text);
	check_str(text, "2024-02-29T12:34:56.123456Z");
	clock_text(UINT64_MAX, text);
	check_str(text, "2554-07-21T23:34:33.709551Z");
}

/* Every day of four centuries and more, compared with the C library's calendar. */
TEST(dates_are_those_of_the_library)
{
	char text[CLOCK_TEXT_SIZE], want[CLOCK_TEXT_SIZE];

	for (uint64_t day = 0; day < 213000; day++) {
		time_t seconds = (time_t)(day * 86400 + day % 86400);
		struct tm tm;

		(void)gmtime_r(&seconds, &tm);
		(void)strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.000000Z", &tm);
		clock_text((uint64_t)seconds * NS_PER_S, text);
		if (strcmp(text, want) != 0) {
			t_fail("day %ju: '%s' instead of '%s'", (uintmax_t)day, text, want);
			return;
		}
	}
}

TEST(text_never_rounds_up)
{
	char text[CLOCK_TEXT_SIZE];

	clock_text(NS_PER_S - 1, text);
	check_str(text, "1970-01-01T00:00:00.999999Z");
}

TEST(monotonic_does_not_go_back)
{
	uint64_t last = clock_now_ns();

	for (int i = 0; i < 10000; i++) {
		uint64_t now = clock_now_ns();

		if (now < last) {
			t_fail("went back by %ju ns", (uintmax_t)(last - now));
			return;
		}
		last = now;
	}
}
