/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sandbox/recordlocks.h - who has how many locks of fcntl(2), which the kernel charges to nobody.
 *
 * fdinfo shows them one by one, so that a million takes seconds: a process of ours counts them, and nobody waits for it. What is counted is certain: each once, whatever has been forked or
 * shared; what cannot be told is nothing.
 */
#ifndef CAY_SANDBOX_RECORDLOCKS_H
#define CAY_SANDBOX_RECORDLOCKS_H

#include "sandbox/holders.h"
#include "sys/cgroup.h"

/**
 * recordlocks_ask() - begin to count what the sandbox's processes have, or hear what has been counted since that was begun.
 * @enough: bytes beyond which it need not go on.
 * Not seen: locks of descriptions that only mappings, or sockets in which they are under way, have; of descriptors that a thread has for itself; where there are very many descriptors, some.
 * Return: 0: all has been looked at, or as much as was to be; -EAGAIN: ask again; other -errno. Context: one thread; does not block; forks.
 */
int recordlocks_ask(const struct cgroup *cg, uint64_t enough, struct holders *ret) attr_must_use;

#endif
