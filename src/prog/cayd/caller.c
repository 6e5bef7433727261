/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cayd/caller.h"
#include "base/attr.h"
#include "base/log.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/ioprio.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STACK_BYTES \
	(8UL << 20) /* the kernel's own (_STK_LIM): one without a limit changes where memory is mapped */

#define HOLDS   "something of whoever started this server holds for it and for all sandboxes"
#define WITHOUT "; cay shutdown, and start it without"

/* Those that launch.c and cayd set themselves are not here. */
static const struct {
	int which;
	rlim_t soft;
	const char *name;
} limits[] = {
	{ RLIMIT_CPU, RLIM_INFINITY, "processor time" },
	{ RLIMIT_FSIZE, RLIM_INFINITY, "size of files" },
	{ RLIMIT_DATA, RLIM_INFINITY, "data" },
	{ RLIMIT_AS, RLIM_INFINITY, "address space" },
	{ RLIMIT_RSS, RLIM_INFINITY, "resident memory" },
	{ RLIMIT_STACK, STACK_BYTES, "stack" },
};

static void leave_limits(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		const int which = limits[i].which;
		struct rlimit l, want = { limits[i].soft, RLIM_INFINITY };

		if (setrlimit((__rlimit_resource_t)which, &want) == 0 ||
			getrlimit((__rlimit_resource_t)which, &l) < 0)
			continue;
		l.rlim_cur = l.rlim_max < want.rlim_cur ? l.rlim_max : want.rlim_cur;
		(void)setrlimit((__rlimit_resource_t)which, &l);
		if (l.rlim_cur < want.rlim_cur)
			log_warn("start", HOLDS " (limit of %s: %lu)" WITHOUT, limits[i].name,
				l.rlim_cur);
	}
}

void caller_leave(void)
{
	const struct sched_param none = { 0 };
	cpu_set_t processors;

	leave_limits();
	(void)sched_setscheduler(0, SCHED_OTHER, &none);
	if (setpriority(PRIO_PROCESS, 0, 0) < 0)
		log_warn("start", HOLDS " (niceness: %d)" WITHOUT, getpriority(PRIO_PROCESS, 0));
	/* those that the machine keeps for something else (isolcpus) are not init's either */
	if (sched_getaffinity(1, sizeof(processors), &processors) == 0)
		(void)sched_setaffinity(0, sizeof(processors), &processors);
	(void)syscall(
		SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_NONE, 0));
	(void)syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0);
	(void)personality(PER_LINUX);
	(void)prctl(PR_SET_TIMERSLACK, 0, 0, 0, 0);
	(void)prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
	(void)!file_write_at(AT_FDCWD, "/proc/self/oom_score_adj", "0");
}
