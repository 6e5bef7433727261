/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/meter.h"
#include "base/clock.h"

#define MOVED 16 /* a change by more than a sixteenth is one */

void meter_start(struct meter *m, uint64_t now_ns)
{
	*m = (struct meter){
		.begun_ns = now_ns, .due_ns = now_ns, .period_ns = METER_PERIOD_MIN_NS
	};
}

void meter_wake(struct meter *m, uint64_t now_ns)
{
	if (m->begun_ns == 0)
		return;
	m->due_ns = now_ns;
	m->period_ns = METER_PERIOD_MIN_NS;
}

static bool moved(uint64_t before, uint64_t after)
{
	uint64_t low = before < after ? before : after, high = before < after ? after : before;

	return high - low > high / MOVED;
}

static void adapt(struct meter *m, uint64_t bytes)
{
	if (moved(m->bytes, bytes) && m->period_ns > METER_PERIOD_MIN_NS)
		m->period_ns /= 2;
	else if (!moved(m->bytes, bytes) && m->period_ns < METER_PERIOD_MAX_NS)
		m->period_ns *= 2;
}

void meter_add(struct meter *m, uint64_t now_ns, uint64_t bytes)
{
	uint64_t span = now_ns - m->at_ns;

	if (bytes == UINT64_MAX) {
		m->due_ns = now_ns + METER_PERIOD_MAX_NS;
		return;
	}
	if (m->samples > 0) {
		m->byte_seconds +=
			((double)m->bytes + (double)bytes) / 2 * (double)span / (double)NS_PER_S;
		if (span > m->longest_ns)
			m->longest_ns = span;
		adapt(m, bytes);
	}
	m->samples++;
	m->at_ns = now_ns;
	m->bytes = bytes;
	m->due_ns = now_ns + m->period_ns;
}
