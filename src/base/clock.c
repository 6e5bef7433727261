/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

void clock_text(uint64_t wall_ns, char text[CLOCK_TEXT_SIZE])
{
	time_t seconds = (time_t)(wall_ns / NS_PER_S);
	struct tm tm;
	size_t n;

	(void)gmtime_r(&seconds, &tm);
	n = strftime(text, CLOCK_TEXT_SIZE, "%Y-%m-%dT%H:%M:%S", &tm);
	(void)snprintf(text + n, CLOCK_TEXT_SIZE - n, ".%06uZ",
		(unsigned int)(wall_ns % NS_PER_S / 1000) % 1000000);
}
