/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: checkpoint/seizer.h - what a dumper does before it is executed when programs have system call filters of their own: only somebody with privileges over the host
 * may read these, and suspend them, so that calls can be made in who is stopped (docs/design/0006, "Filters").
 *
 * It knows numbers alone: pids of its order, threads as /proc lists them. What it leaves at DUMP_FILTERS_FD is, for each thread that has some, a struct seized_thread and
 * behind it that many filters, oldest first: a struct seized_filter and its instructions each.
 */
#ifndef CAY_CHECKPOINT_SEIZER_H
#define CAY_CHECKPOINT_SEIZER_H

#include "base/attr.h"
#include <stdint.h>

#define SEIZED_SAME    0xffffffffU /* filters of the thread before, and none follow */
#define SEIZED_UNKNOWN 0U          /* it has some, and nobody knows what they are */
#define SEIZED_LEFT \
	0xfffffffeU /* it could not be stopped, so nobody behind it was waited for: the last record */
#define SEIZED_MAX (64U << 20)

struct seized_thread {
	int32_t host; /* tid in the host's pid namespace */
	uint32_t n;
};

struct seized_filter {
	uint32_t log;   /* SECCOMP_FILTER_FLAG_LOG */
	uint32_t n;     /* struct sock_filter each */
	uint32_t quiet; /* what is known of all that have it: asker.h */
};

/**
 * seizer_stop() - wait for the order of a capture on @keeper, where it stays for the program that is executed next; stop all that it names, for that program to take over.
 * Who cannot be stopped within half a second is left as it is, and all behind it: the dumper meets it. From here on all that was stopped ends with the caller.
 * @u2: the payload's user namespace; borrowed.
 *
 * Return: a memory file; -ESRCH when a number of the order is somebody's outside of @u2, then nobody was stopped and the caller ends; other -errno. Context: root of the host, the processes' cgroup is frozen once the order is there.
 */
int seizer_stop(int keeper, int u2) attr_must_use;

#endif
