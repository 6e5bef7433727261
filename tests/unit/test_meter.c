/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "sandbox/meter.h"
#include "t.h"

#define MIB ((uint64_t)1 << 20)

static const uint64_t s = NS_PER_S;

TEST(a_constant_is_its_product_with_time)
{
	struct meter m = { 0 };

	meter_start(&m, 5 * s);
	for (uint64_t i = 0; i <= 10; i++)
		meter_add(&m, (5 + i) * s, 100 * MIB);
	check_int(m.samples, 11);
	check(m.byte_seconds == 1000.0 * (double)MIB);
	check_int(m.longest_ns, s);
}

TEST(between_two_readings_lies_a_line)
{
	struct meter m = { 0 };

	meter_start(&m, s);
	meter_add(&m, s, 0);
	meter_add(&m, 3 * s, 50 * MIB);
	check(m.byte_seconds == 50.0 * (double)MIB);
}

TEST(the_period_grows_at_rest_and_shrinks_in_motion)
{
	struct meter m = { 0 };
	uint64_t now = s;

	meter_start(&m, now);
	for (int i = 0; i < 20; i++, now = m.due_ns)
		meter_add(&m, now, MIB);
	check_int(m.period_ns, METER_PERIOD_MAX_NS);
	meter_add(&m, now, 2 * MIB);
	check_int(m.period_ns, METER_PERIOD_MAX_NS / 2);
	meter_wake(&m, now + 1);
	check_int(m.due_ns, now + 1);
	check_int(m.period_ns, METER_PERIOD_MIN_NS);
}

TEST(what_is_unknown_adds_nothing)
{
	struct meter m = { 0 };

	meter_start(&m, s);
	meter_add(&m, s, UINT64_MAX);
	check_int(m.samples, 0);
	check(m.byte_seconds == 0.0);
	check(m.due_ns > s);
}

TEST(one_that_was_not_started_stays_so)
{
	struct meter m = { 0 };

	meter_wake(&m, s);
	check_int(m.begun_ns, 0);
	check_int(m.due_ns, 0);
}
