/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/carry.h"
#include "t.h"

#include <unistd.h>

/* Alive, and in no group any more: it is on its way out, and a fork would wait for its end for ever. */
TEST(who_runs_was_captured)
{
	static struct dump_order order = { .n_pids = 1 };
	struct list execs;
	struct exec e = { .state = EXEC_RUNNING,
		.pid = getpid(),
		.in = -1,
		.out = -1,
		.err = -1,
		.spill.file.bytes = -1 };
	const struct clocks clocks = { 0 };
	const struct first first = { 0 };
	cleanup_buf struct buf out = BUF_INIT(CARRY_MAX);

	list_init(&execs);
	list_append(&execs, &e.node);
	order.pids[0] = getppid();
	check_int(carry_save(&execs, &order, &clocks, &first, NULL, &out), -EAGAIN);
	order.pids[0] = getpid();
	check_int(carry_save(&execs, &order, &clocks, &first, NULL, &out), 0);
}
