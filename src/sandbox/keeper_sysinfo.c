/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/keeper_sysinfo.c - the answer to sysinfo(2), from which programs learn how much memory there is (sysconf(3), a JVM): that of the sandbox, as the synthetic files of /proc have it,
 * and not the machine's. The kernel tells of the call (`answer` in defs/seccomp/).
 *
 * Whoever calls waits until it is answered, one in a round of the loop. It is written by a child (answer_writer.h), for which we wait no longer than that says. What is written goes to the address space of who called: the call was still waiting when that had been opened.
 */
#include "base/ablate.h"
#include "sandbox/keeper.h"
#include "sandbox/synth.h"

#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>

/* As the kernel counts them: a second that has begun is one. */
static long seconds_up(const struct keeper *k)
{
	uint64_t up_ns = clock_boot_ns() + (uint64_t)k->box.clocks.boottime_ns;

	return (long)((up_ns + NS_PER_S - 1) / NS_PER_S);
}

/* Swap, shares, buffers and load: none, as in /proc/meminfo and /proc/loadavg. */
static struct sysinfo answer_of(const struct keeper *k)
{
	const uint64_t total = synth_memory(&k->box.spec.limits),
		       used = cgroup_memory(&k->box.cgroup);
	const uint64_t left = used < total ? total - used : 0;

	return (struct sysinfo){ .uptime = seconds_up(k),
		.totalram = total,
		.freeram = used == UINT64_MAX ? total : left,
		.procs = 1,
		.mem_unit = 1 };
}

/* Return: 0; -EFAULT: it may not be written there; -EINPROGRESS: it may still come to be; other -errno: it cannot be said. */
static int write_answer(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	const struct sysinfo info = answer_of(k);
	struct procmem memory = PROCMEM_NONE;
	uint64_t faults = 0;
	int rc = procmem_open((int32_t)notice->pid, &memory);

	/* was it still that one? Its number may be another's by now */
	if (rc == 0 && ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice->id) < 0)
		rc = -errno;
	if (rc == 0)
		rc = answer_writer_write(
			&k->writer, &memory, notice->data.args[0], &info, sizeof(info), &faults);
	k->faults += rc == -EINPROGRESS ? RATION_FAULTS_MAX
		     : rc == -ETIMEDOUT ? RATION_WAIT_FAULTS
					: faults;
	procmem_close(&memory);
	return rc;
}

/*
 * Whose page is not there has it made by us: its data are charged to the program's group, its tables and what is read of a file to ours, which has no limit. And who keeps his address space to himself
 * has us wait. So not for ever; told once.
 */
static bool has_made_enough(struct keeper *k)
{
	if (k->faults < RATION_FAULTS_MAX || ablated("rations"))
		return false;
	if (k->faults != UINT64_MAX)
		keeper_event(k, "limit.hit", NULL,
			json_pack("{s:s, s:{s:s, s:I}}", "limit", "sysinfo_faults", "detail",
				"reason",
				"the kernel charges them to the keeper, which waits for them",
				"most", (json_int_t)RATION_FAULTS_MAX));
	k->faults = UINT64_MAX;
	return true;
}

bool keeper_sysinfo(struct keeper *k, int listener, const struct seccomp_notif *notice)
{
	struct seccomp_notif_resp answer = { .id = notice->id };
	int rc;

	if (notice->data.nr != SYS_sysinfo)
		return false;
	rc = has_made_enough(k) ? -EDQUOT : write_answer(k, listener, notice);
	/* a page that does not come: who asked waits for it, as for the kernel's own answer */
	if (rc == -EINPROGRESS)
		return true;
	/* of whom we may not write the kernel tells what it is asked */
	if (rc == 0 || rc == -EFAULT)
		answer.error = rc;
	else
		answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
	(void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
	return true;
}
