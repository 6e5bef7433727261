/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/clock.h - time: nanoseconds inside, RFC 3339 text at the edges. */
#ifndef CAY_BASE_CLOCK_H
#define CAY_BASE_CLOCK_H

#include "base/attr.h"
#include <time.h>

#define NS_PER_MS       1000000ULL
#define NS_PER_S        1000000000ULL
#define CLOCK_TEXT_SIZE 31

static inline uint64_t clock_read_ns(clockid_t clock)
{
	struct timespec ts;

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

/** clock_now_ns() - CLOCK_MONOTONIC; for durations and deadlines. */
static inline uint64_t clock_now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

/** clock_thread_ns() - processor time of this thread: what a piece of work may take, however busy the machine is. */
static inline uint64_t clock_thread_ns(void)
{
	return clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

/** clock_boot_ns() - CLOCK_BOOTTIME: nanoseconds since the machine was started, the time that it slept included. */
static inline uint64_t clock_boot_ns(void)
{
	return clock_read_ns(CLOCK_BOOTTIME);
}

/** clock_wall_ns() - CLOCK_REALTIME, nanoseconds since 1970 UTC; for people. */
static inline uint64_t clock_wall_ns(void)
{
	return clock_read_ns(CLOCK_REALTIME);
}

/** clock_text() - "2026-11-21T08:00:00.123456Z" of a wall time. */
void clock_text(uint64_t wall_ns, char text[CLOCK_TEXT_SIZE]);

#endif
