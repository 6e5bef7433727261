/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/cred.h - capabilities, user namespace maps, file-system ids. */
#ifndef CAY_SYS_CRED_H
#define CAY_SYS_CRED_H

#include "base/attr.h"
#include <sys/types.h>

#define CAP_BIT(cap) (1ULL << (cap))

/** cred_bound() - drop every capability outside @keep from the bounding set and clear the ambient set. Needs CAP_SETPCAP. */
int cred_bound(uint64_t keep) attr_must_use;

/** cred_set_caps() - make effective and permitted equal @caps, inheritable empty. Return: 0 or -errno. */
int cred_set_caps(uint64_t caps) attr_must_use;

/** cred_set_effective() - make @caps effective as far as they are permitted; nothing else changes. @before: what was effective, or NULL. Return: 0 or -errno. */
int cred_set_effective(uint64_t caps, uint64_t *before) attr_must_use;

/**
 * cred_map_user_ns() - write uid_map and gid_map of process @pid: the @count ids from @inside on are those from @outside on in the parent namespace.
 * @proc_fd: a real procfs in which @pid counts.
 * Needs CAP_SETUID/CAP_SETGID in the parent namespace, of which the caller must be a member.
 */
int cred_map_user_ns(
	int proc_fd, pid_t pid, uint32_t inside, uint32_t outside, uint32_t count) attr_must_use;

/**
 * cred_map_identity() - give process @pid of a new user namespace every id that ours has, unchanged.
 * @proc_fd: a real procfs in which @pid counts. The kernel takes no extent that spans two of ours, so ours are read and repeated.
 * Needs what cred_map_user_ns() needs. Return: 0 or -errno.
 */
int cred_map_identity(int proc_fd, pid_t pid) attr_must_use;

/**
 * cred_make_userns() - a user namespace in which nobody lives.
 * @proc_fd: a real procfs in which our children count.
 * @map: gives it its ids, by the number of a process that is in it until this returns; gets @proc_fd and @arg.
 * Return: its descriptor, owned by the caller, or -errno.
 * Context: forks.
 */
int cred_make_userns(int proc_fd, int (*map)(int proc_fd, pid_t pid, const void *arg),
	const void *arg) attr_must_use;

/** cred_set_fsids() - set file-system uid and gid without touching capabilities (SECBIT_NO_SETUID_FIXUP is set first). */
int cred_set_fsids(uid_t uid, gid_t gid) attr_must_use;

#endif
