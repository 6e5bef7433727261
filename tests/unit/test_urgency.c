/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/urgency.h"
#include "t.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>

#define NO_TURNS "kernels before Linux 6.12 know no turns"

static struct sched_attr of(pid_t tid)
{
	struct sched_attr a = { 0 };

	check(syscall(SYS_sched_getattr, tid, &a, sizeof(a), 0) == 0);
	return a;
}

TEST(who_yields_is_not_urgent_any_more)
{
	struct sched_attr before = of(0), urgent, after;

	if (before.sched_runtime == 0)
		skip(NO_TURNS);
	urgency_set(true);
	urgent = of(0);
	urgency_yield(0);
	after = of(0);
	urgency_set(false);
	check(urgent.sched_runtime < before.sched_runtime);
	check(after.sched_runtime > before.sched_runtime);
	check_int(after.sched_nice, before.sched_nice);
	check_int(of(0).sched_runtime, before.sched_runtime);
}

TEST(another_process_yields)
{
	struct sched_attr before = of(0);
	pid_t pid;

	if (before.sched_runtime == 0)
		skip(NO_TURNS);
	pid = fork();
	if (pid == 0) {
		(void)pause();
		_exit(0);
	}
	urgency_yield(pid);
	check(of(pid).sched_runtime > before.sched_runtime);
	check_int(of(0).sched_runtime, before.sched_runtime);
	check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
}
