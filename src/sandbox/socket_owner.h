/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/socket_owner.h - which process of an exec has a socket open: its control group's processes, looked through for `socket:[inode]`.
 *
 * Bounded, because the sandbox chooses how many processes and descriptors it has, and its keeper has other things to do: what would take longer is not told. Nothing of procfs is
 * read that waits for a process's memory (cmdline, maps, environ). Rather silent than wrong: a pid may be another process's by the time
 * that one looks, so who is told is whoever was seen to have the socket, by one descriptor of its directory in procfs.
 */
#ifndef CAY_SANDBOX_SOCKET_OWNER_H
#define CAY_SANDBOX_SOCKET_OWNER_H

#include "sandbox/process.h"
#include "sys/cgroup.h"

#define SOCKET_OWNER_PROCESSES 256  /* of a group with more none is told */
#define SOCKET_OWNER_FDS       1024 /* of a process that are looked at */

/**
 * socket_owner_find() - the process of group `box/@leaf` that has socket @inode; of several the one that the others are descendants of, else the one with the lowest pid.
 * @inode: of sockfs, as sock_diag tells it. @limit_ns: processor time of this thread that it may take, roughly.
 *
 * Return: 0; -ESRCH when nobody is found, among those that may be looked at; -ETIME; -E2BIG; -ENOENT without a v2 tree; other -errno. Context: any; reads procfs of the machine.
 */
int socket_owner_find(const struct cgroup *cg, const char *leaf, uint32_t inode, uint64_t limit_ns,
	struct process *ret) attr_must_use;

#endif
