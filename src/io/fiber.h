/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: io/fiber.h - straight-line code on the event loop.
 *
 * A fiber is a function with its own stack that runs on the loop's thread until it waits for something. Every request is one fiber, so that an
 * operation of ten steps reads as ten lines. Only one fiber runs at a time and it changes only where it calls something that waits (functions
 * say so under Context), so data needs no locks; but after such a call everything may have changed. What a callback of the loop makes ready runs
 * when the callbacks are through, before what they have closed is freed and before the loop waits again: starting and waking never run a fiber
 * themselves.
 */
#ifndef CAY_IO_FIBER_H
#define CAY_IO_FIBER_H

#include "base/attr.h"
#include "base/list.h"

#include <uv.h>

struct fiber;

/** struct waiters - fibers that wait for one condition; must be initialised with waiters_init(). */
struct waiters {
	struct list fibers;
};

/** fiber_init() - once, before the first fiber. @loop is borrowed for ever. */
void fiber_init(uv_loop_t *loop);

/** fiber_start() - run @fn(@arg) in a new fiber, soon. */
void fiber_start(void (*fn)(void *arg), void *arg);

/** fiber_running() - is the caller inside a fiber? */
bool fiber_running(void);

/** fiber_set_task() - what the running fiber works on, for whoever is called further down; NULL: nothing. Borrowed; a fiber begins without. */
void fiber_set_task(void *task);

/** fiber_task() - that of the running fiber. */
void *fiber_task(void);

/** waiters_init() - no fiber waits. */
static inline void waiters_init(struct waiters *w)
{
	list_init(&w->fibers);
}

/** waiters_any() - does a fiber wait here? */
static inline bool waiters_any(const struct waiters *w)
{
	return !list_empty(&w->fibers);
}

/**
 * waiters_wait() - wait until somebody wakes @w.
 * @deadline_ns: CLOCK_MONOTONIC time, or 0 for none.
 *
 * Return: 0 when woken (check the condition again), -ETIMEDOUT.
 * Context: inside a fiber; waits.
 */
int waiters_wait(struct waiters *w, uint64_t deadline_ns);

/**
 * fiber_yield() - for work that goes on for long without a wait: where this fiber has run for some milliseconds, let others have their turn, and the
 * loop look at what has come. Cheap where it has not.
 *
 * Context: inside a fiber; may wait.
 */
void fiber_yield(void);

/** waiters_wake() - let every fiber that waits here go on, soon; @w may be freed then. */
void waiters_wake(struct waiters *w);

/** fiber_strict() - is CAY_STRICT set? The tests set it: faults of ours that are otherwise logged, or not looked for, end the program. */
bool fiber_strict(void);

#endif
