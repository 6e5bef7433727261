/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sandbox/process.h - who a process of a sandbox is, for events: its number here and there, and what it calls itself. */
#ifndef CAY_SANDBOX_PROCESS_H
#define CAY_SANDBOX_PROCESS_H

#include "base/attr.h"

#include <stdint.h>

/** struct process - as events tell it. */
struct process {
	int32_t pid;       /* as this process sees it */
	int32_t parent;    /* the same of who it is a child of */
	int32_t inner_pid; /* as the sandbox sees it */
	char comm[16];     /* what the program calls itself: UTF-8, no control characters */
};

/**
 * process_describe() - describe @pid.
 * @proc: descriptor of its directory in procfs (borrowed), which stays with that process when its number becomes another's. Nothing is read that waits for its memory.
 *
 * Return: 0, or -ESRCH when it has ended or is in no sandbox, other -errno.
 */
int process_describe(int proc, int32_t pid, struct process *ret) attr_must_use;

#endif
