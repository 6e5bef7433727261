/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/synth.h - text of the synthetic files that stand over the machine-wide files of /proc and in /sys.
 *
 * They show the sandbox's own limits instead of the machine's size and load, and keep tools working (free, nproc, top).
 */
#ifndef CAY_SANDBOX_SYNTH_H
#define CAY_SANDBOX_SYNTH_H

#include "base/buf.h"
#include "sys/cgroup.h"

/** synth_cpus() - how many CPUs the sandbox is shown: its CPU limit rounded up, at most those this process may use. */
unsigned int synth_cpus(const struct cgroup_limits *limits);

/** synth_memory() - bytes of memory that the sandbox is shown: its limit, at most what the machine has. */
uint64_t synth_memory(const struct cgroup_limits *limits);

/** enum synth_depends - what changes the text of a file: it is made ahead of time and written again only when that differs. SYNTH_START: processors, and how far the clocks are ahead. */
enum synth_depends { SYNTH_NOTHING, SYNTH_CPUS, SYNTH_START, SYNTH_MEMORY };

/** struct synth_view - what a sandbox is shown. */
struct synth_view {
	struct cgroup_limits limits;
	uint64_t ahead_ns; /* of its CLOCK_BOOTTIME, to the machine's */
};

/** struct synth_file - one file of /proc that is replaced. */
struct synth_file {
	const char *name; /* below /proc */
	enum synth_depends depends;
	void (*write)(struct buf *out, const struct synth_view *view); /* appends the text */
};

/** synth_proc_files() - the table, ended by a NULL name; static. */
const struct synth_file *synth_proc_files(void);

/** synth_write() - write all of them into directory @dir. Best effort: what cannot be written stays empty. */
void synth_write(int dir, const struct synth_view *view);

/** synth_update() - write again what differs between @was and @now. */
void synth_update(int dir, const struct synth_view *was, const struct synth_view *now);

/** synth_cpu_list() - "0-3\n", as in /sys/devices/system/cpu/online. */
void synth_cpu_list(struct buf *out, const struct cgroup_limits *limits);

/** synth_cpu_lists() - write `online`, `possible` and `present` into @cpu, a directory like /sys/devices/system/cpu. 0 or -errno. */
int synth_cpu_lists(int cpu, const struct cgroup_limits *limits) attr_must_use;

#endif
