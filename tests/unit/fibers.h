/* SPDX-License-Identifier: Apache-2.0 */
/* A loop for tests of fibers, one a program. */
#ifndef CAY_TESTS_FIBERS_H
#define CAY_TESTS_FIBERS_H

#include "io/fiber.h"

static inline uv_loop_t *loop(void)
{
	static uv_loop_t l;
	static uv_async_t alive; /* the timers of fibers do not keep a loop going */
	static bool begun;

	if (!begun) {
		(void)uv_loop_init(&l);
		fiber_init(&l);
		(void)uv_async_init(&l, &alive, NULL);
		begun = true;
	}
	return &l;
}

/* Until nobody goes on by himself. */
static inline void turns(void)
{
	for (int i = 0; i < 10; i++)
		(void)uv_run(loop(), UV_RUN_NOWAIT);
}

#endif
