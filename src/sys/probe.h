/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: sys/probe.h - try something in a throw-away process, so that a probe leaves nothing behind and cannot hang its caller. */
#ifndef CAY_SYS_PROBE_H
#define CAY_SYS_PROBE_H

#include "base/attr.h"

#define PROBE_TIMEOUT_MS 2000

/**
 * probe_run() - call @fn in a forked child and return its result.
 * @fn:         result >= 0 or -errno; it may change namespaces, ids and mounts of the child as it likes.
 * @arg:        handed to @fn; the child has a copy of all memory.
 * @timeout_ms: the child is killed after that.
 *
 * The child dies with its parent. Return: what @fn returned, -ETIMEDOUT, -ECHILD when it died otherwise, other -errno.
 * Context: single-threaded programs only (fork); blocks up to @timeout_ms.
 */
int probe_run(int (*fn)(void *arg), void *arg, int timeout_ms) attr_must_use;

/**
 * probe_enter_userns() - in a probe's child: make a user namespace in which the caller is uid and gid 0, and check that it holds capabilities there.
 * @flags: further CLONE_NEW* flags.
 *
 * Return: 0; -ENOSPC (limit on user namespaces), -EPERM (forbidden, or no capability inside as under Ubuntu's AppArmor rule), other -errno.
 */
int probe_enter_userns(int flags) attr_must_use;

/**
 * probe_cgroup() - directory in the cgroup v2 tree below which a server of this caller would put its groups: root's the root of the tree, a user's its own
 * (or the one above, from the leaf `server` of a delegated group).
 * @path:        filled with an absolute path.
 * @ret_is_root: is it the root of the tree, as far as this process can see?
 *
 * Return: 0; -ENOENT when no v2 tree is mounted; -ENAMETOOLONG.
 */
int probe_cgroup(char *path, size_t size, bool *ret_is_root) attr_must_use;

#endif
