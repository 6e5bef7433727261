/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/timens.h - time namespaces: CLOCK_MONOTONIC and CLOCK_BOOTTIME that are ahead of the machine's, or behind. */
#ifndef CAY_SYS_TIMENS_H
#define CAY_SYS_TIMENS_H

#include "base/attr.h"

/**
 * timens_new() - a time namespace in which both clocks are so many nanoseconds ahead of the caller's, or behind (below 0). It belongs to the caller's user namespace.
 *
 * Made by a short-lived child, because whoever makes one has it for its own children too and cannot get rid of it without a privilege over the machine.
 * Return: its descriptor; -ENOSPC (limit on time namespaces), -EPERM, -EINVAL (the kernel has none), -ERANGE (past what the clocks can hold, or before their 0), other -errno.
 * Context: single-threaded programs only (fork) with CAP_SYS_ADMIN and CAP_SYS_TIME over their user namespace.
 */
int timens_new(int64_t monotonic_ns, int64_t boottime_ns) attr_must_use;

#endif
