/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/unlisted.h - what is found in the descriptors of the sandbox's processes alone: sockets of TCP and UDP that the kernel lists nowhere, because they have no port (any more), and
 * directories (listings.h).
 *
 * Whoever takes a descriptor of a program's holds what it stands for, and may be the last to close it, which may wait (SO_LINGER). So a process of ours does it, which is killed when
 * it takes long.
 */
#ifndef CAY_SANDBOX_UNLISTED_H
#define CAY_SANDBOX_UNLISTED_H

#include "sandbox/holders.h"
#include "sys/cgroup.h"

/**
 * unlisted_ask() - add what they hold, each socket once, to the group of the first process that has it; each directory that was opened by itself (listings.h).
 * @sockets: NULL: they are not looked at.
 * Not seen: descriptors that a thread has for itself, or that are under way in a unix socket; where there are very many, some.
 * Directories are looked at behind the sockets, for a third of a second of wall clock at most: what has not been found by then is nothing, and no error.
 * Return: 0 or -errno, with nothing added. Context: one thread, with no signal that ends it; blocks for 1.4 seconds at most; forks.
 */
int unlisted_ask(const struct cgroup *cg, struct holders *sockets,
	struct holders *directories) attr_must_use;

/** unlisted_many() - have the sandbox's processes so many descriptors that those of directories may matter? Before Linux 6.2: has it any process? */
bool unlisted_many(const struct cgroup *cg);

/** unlisted_by_itself() - of a process that @parent has forked to look at descriptors: it ends with that one, and keeps of its descriptors @to alone, as 0. Return: may it begin? */
bool unlisted_by_itself(int to, pid_t parent);

/** unlisted_group() - id of `box/@leaf`, as sockets carry it; 0 = there is none. */
uint64_t unlisted_group(const struct cgroup *cg, const char *leaf);

#endif
