/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"

/*
 * The civil date of day @days of the epoch, by years that begin in March, so that the leap day comes last, in eras of 400 years. gmtime(3) would do, but it reads
 * the time zone files first. Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
 */
static void date_of(uint64_t days, unsigned int *year, unsigned int *month, unsigned int *day)
{
	uint64_t since = days + 719468, era = since / 146097, of_era = since % 146097;
	uint64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	unsigned int of_year = (unsigned int)(of_era - (365 * y + y / 4 - y / 100));
	unsigned int m = (5 * of_year + 2) / 153;

	*day = of_year - (153 * m + 2) / 5 + 1;
	*month = m < 10 ? m + 3 : m - 9;
	*year = (unsigned int)(y + era * 400) + (*month <= 2);
}

void clock_text(uint64_t wall_ns, char text[CLOCK_TEXT_SIZE])
{
	unsigned int of_day = (unsigned int)(wall_ns / NS_PER_S % 86400), year, month, day;

	date_of(wall_ns / NS_PER_S / 86400, &year, &month, &day);
	(void)snprintf(text, CLOCK_TEXT_SIZE, "%04u-%02u-%02uT%02u:%02u:%02u.%06uZ", year % 10000,
		month % 100, day % 100, of_day / 3600, of_day / 60 % 60, of_day % 60,
		(unsigned int)(wall_ns % NS_PER_S / 1000) % 1000000);
}
