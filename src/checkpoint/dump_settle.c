/* SPDX-License-Identifier: Apache-2.0 */
/* checkpoint/dump_settle.c - processes that are frozen and stay so: none is to be told of it when it goes on. */
#include "base/fault.h"
#include "checkpoint/dump.h"

#include <unistd.h>

/* Whoever is stopped and let go makes its call again: tracee.c. */
static void settle(pid_t host)
{
	struct tracee t;

	tracee_hurry(true);
	(void)!tracee_stop(&t, host);
	tracee_release(&t);
	tracee_hurry(false);
}

void dump_settle(const struct dump_order *order)
{
	uint64_t deadline = clock_now_ns() + DUMP_SETTLE_NS;

	if (fault("live.dump.hang.settle") < 0)
		(void)pause();
	for (uint32_t i = 0; i < order->n_pids && clock_now_ns() < deadline; i++)
		settle(order->pids[i]);
}
