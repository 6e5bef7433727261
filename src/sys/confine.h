/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/confine.h - seccomp filters and Landlock domains. */
#ifndef CAY_SYS_CONFINE_H
#define CAY_SYS_CONFINE_H

#include "base/attr.h"
#include "sys/confine_told.h"
#include <linux/filter.h>

/* a fourth argument of seccomp(2), which has three: below a filter of ours that tells of filters (%CONFINE_LEARN) it is one of ours, too. A program's own is refused with it. */
#define CONFINE_OURS 0x59414321U

/**
 * confine_seccomp() - install @filter on the calling thread for ever.
 * Needs no_new_privs or CAP_SYS_ADMIN in the caller's user namespace. Return: 0 or -errno.
 */
int confine_seccomp(const struct sock_filter *filter, unsigned short n) attr_must_use;

/**
 * confine_strict() - from now on the calling thread may only read, write, end, and return from a signal's handler; whatever else it calls ends its process.
 * The same as seccomp's strict mode, which nobody can enter below a filter. Sets no_new_privs. Return: 0 or -errno.
 */
int confine_strict(void) attr_must_use;

/**
 * confine_core() - no core dump of this process and its children, neither as a file nor by a collector behind a pipe (kernel.core_pattern), whom the kernel starts as the machine's root: of all limits
 * it heeds 1 alone there (core(5), do_coredump()), and a file of one byte it does not write. Where somebody else has set the limit to 0 for good it stays so. Return: 0 or -errno.
 */
int confine_core(void) attr_must_use;

/** confine_filters() - system call filters that the calling thread is under. Return: their number; 1 when it is under some and nobody says how many. */
uint32_t confine_filters(void);

/**
 * confine_told() - install @filter, whose calls with SECCOMP_RET_USER_NOTIF (or %CONFINE_LEARN, %CONFINE_KNOW) a listener is told of and answers, on the calling thread for ever.
 * Who waits for an answer that is being made takes no signal but one that kills, so that it is asked once.
 * @listen: false, or where the kernel lets nobody listen (a filter of whoever started us has a listener already): these calls are refused with @error instead, those of %CONFINE_LEARN allowed, those of %CONFINE_KNOW refused as not supported.
 * Needs no_new_privs or CAP_SYS_ADMIN in the caller's user namespace. Return: the listener (close-on-exec), -ENOTCONN when there is none, other -errno.
 */
int confine_told(
	const struct sock_filter *filter, unsigned short n, bool listen, int error) attr_must_use;

/** struct confine_rights - what a Landlock ruleset of this kernel has to handle; first members of the kernel's struct landlock_ruleset_attr. */
struct confine_rights {
	uint64_t files, network, scoped;
	uint32_t size; /* of the attribute that this kernel takes; 0 = it has no Landlock */
};

/** confine_landlock_rights() - for whoever makes the domain of confine_landlock() without libc. Return: ABI, 0 without Landlock, -errno. */
int confine_landlock_rights(struct confine_rights *ret) attr_must_use;

/**
 * confine_landlock() - put the calling process into a new Landlock domain that reaches only what lies below "/" of its own mount namespace
 * and whose abstract sockets and signals do not leave it.
 * Needs no_new_privs or CAP_SYS_ADMIN. Return: the ABI used (>= 1), 0 when the kernel has no Landlock, -errno.
 */
int confine_landlock(void) attr_must_use;

#endif
