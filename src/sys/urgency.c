/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/urgency.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TURN_NS 100000U /* the shortest that there is */
#define FIRST   (-19)   /* nice */

void urgency_set(bool on)
{
	static int32_t before;
	struct sched_attr now = { 0 };
	int32_t as_it_is;

	if (syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) < 0 ||
		now.sched_policy != SCHED_NORMAL)
		return;
	as_it_is = now.sched_nice;
	if (on && as_it_is != FIRST)
		before = as_it_is;
	now.sched_runtime = on ? TURN_NS : 0; /* 0: the kernel's own choice */
	now.sched_nice = on ? FIRST : as_it_is == FIRST ? before : as_it_is;
	if (syscall(SYS_sched_setattr, 0, &now, 0) == 0)
		return;
	/* without the privilege: turns alone */
	now.sched_nice = as_it_is;
	(void)syscall(SYS_sched_setattr, 0, &now, 0);
}
