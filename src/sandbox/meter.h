/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/meter.h - memory over time: the integral of what the kernel counts as the sandbox's memory.
 *
 * The kernel has no counter for it, so it is sampled: the count (memory.current, v1: memory.usage_in_bytes; anonymous memory, page cache and kernel memory) is
 * read when programs start and end, when somebody asks, and between at a period that halves while the count moves and doubles while it stands still, within
 * METER_PERIOD_MIN_NS and METER_PERIOD_MAX_NS; between two readings it is taken to be a straight line. A rise and fall between two readings is not seen; the peak, which is a
 * counter of the kernel, shows it.
 */
#ifndef CAY_SANDBOX_METER_H
#define CAY_SANDBOX_METER_H

#include "base/attr.h"

#define METER_PERIOD_MIN_NS 125000000ULL   /* 1/8 s */
#define METER_PERIOD_MAX_NS 32000000000ULL /* 32 s: thousands of idle sandboxes cost nothing */

/** struct meter - all zero = not started. Times are CLOCK_MONOTONIC. */
struct meter {
	uint64_t begun_ns;     /* 0 = not started */
	uint64_t at_ns, bytes; /* last reading */
	uint64_t due_ns;       /* next one */
	uint64_t period_ns;    /* now; a power of two times the smallest */
	uint64_t samples;      /* readings so far */
	uint64_t longest_ns;   /* longest time between two of them */
	double byte_seconds;   /* the integral until @at_ns */
};

/** meter_start() - begin at @now_ns; a reading is due at once. */
void meter_start(struct meter *m, uint64_t now_ns);

/** meter_wake() - something begins or ends: a reading is due at once, and soon again. Nothing when not started. */
void meter_wake(struct meter *m, uint64_t now_ns);

/** meter_add() - the kernel counted @bytes at @now_ns. %UINT64_MAX (unknown): nothing is added, it is only asked again later. */
void meter_add(struct meter *m, uint64_t now_ns, uint64_t bytes);

#endif
