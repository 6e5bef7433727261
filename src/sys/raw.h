/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/raw.h - system calls that Debian 12's libc does not wrap, as inline functions that return -errno.
 *
 * Numbers and structures are ours where the headers of 6.1 lack them. No policy, no logging.
 */
#ifndef CAY_SYS_RAW_H
#define CAY_SYS_RAW_H

#include "base/attr.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>

#ifndef SYS_landlock_create_ruleset
#define SYS_landlock_create_ruleset 444
#define SYS_landlock_add_rule       445
#define SYS_landlock_restrict_self  446
#endif

static inline int raw_result(long rc)
{
	return rc < 0 ? -errno : (int)rc;
}

/** raw_clone3() - clone3(2). Return: pid in the parent, 0 in the child, -errno. */
static inline int raw_clone3(struct clone_args *args)
{
	return raw_result(syscall(SYS_clone3, args, sizeof(*args)));
}

/** raw_openat2() - openat2(2) with O_CLOEXEC added. @resolve: RESOLVE_* bits. Return: descriptor or -errno. */
static inline int raw_openat2(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
	struct open_how how = {
		.flags = (unsigned int)(flags | O_CLOEXEC), .mode = mode, .resolve = resolve
	};

	return raw_result(syscall(SYS_openat2, dirfd, path, &how, sizeof(how)));
}

/** raw_pidfd_open() - Return: descriptor (close-on-exec) or -errno. */
static inline int raw_pidfd_open(pid_t pid)
{
	return raw_result(syscall(SYS_pidfd_open, pid, 0));
}

/** raw_pidfd_getfd() - descriptor @fd of the process behind @pidfd, as one of our own (close-on-exec). Return: it or -errno. */
static inline int raw_pidfd_getfd(int pidfd, int fd)
{
	return raw_result(syscall(SYS_pidfd_getfd, pidfd, fd, 0));
}

/** raw_kcmp() - kcmp(2). Return: 0 = the same, 1 = the first is below in the kernel's order, 2 = above, 3 = others without an order; -errno. */
static inline int raw_kcmp(pid_t pid1, pid_t pid2, int type, unsigned long idx1, unsigned long idx2)
{
	return raw_result(syscall(SYS_kcmp, pid1, pid2, type, idx1, idx2));
}

/** raw_pidfd_kill() - send @sig to the process behind @pidfd. */
static inline int raw_pidfd_kill(int pidfd, int sig)
{
	return raw_result(syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0));
}

/** raw_close_range() - close or mark descriptors @first..@last. */
static inline int raw_close_range(unsigned int first, unsigned int last, unsigned int flags)
{
	return raw_result(syscall(SYS_close_range, first, last, flags));
}

/** raw_pivot_root() - pivot_root(2). */
static inline int raw_pivot_root(const char *new_root, const char *put_old)
{
	return raw_result(syscall(SYS_pivot_root, new_root, put_old));
}

#endif
