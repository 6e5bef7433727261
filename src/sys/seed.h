/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: sys/seed.h - a program that has begun and waits, and whose clones go on as the program: what its beginning costs is paid once.
 *
 * A static program of glibc asks the processor for its caches before its first line, which a hypervisor answers: half a millisecond, and its pages are made anew each time. The seed
 * is executed with a placeholder as its last argument (%SEED_NAME, as long as an id); each clone puts its id there, so that it looks as if it had been executed with it. It is a child of
 * whoever owns the seed, in the group that comes with the order, in a session of its own, with nothing open but the standard streams and its socket. All clones have the
 * addresses of the seed and the values that guard its stacks: who learns them of one knows them of all.
 */
#ifndef CAY_SYS_SEED_H
#define CAY_SYS_SEED_H

#include "base/attr.h"
#include "base/id.h"

#define SEED_NAME "--------------------" /* no id: as long as one */

/**
 * seed_clone() - have the seed behind @sock cloned as @id.
 * @control: becomes descriptor 3 of the clone; borrowed.
 * @group: directory of the version 2 group that it is cloned into, -1 = ours; borrowed.
 *
 * Return: pid of the clone, a child of the seed's parent; -ENOTCONN: there is no seed (any more), and what it may have cloned ends with nothing done; other -errno of the clone.
 * Context: blocks until it is there.
 */
int seed_clone(int sock, const char *id, int control, int group) attr_must_use;

/**
 * seed_wait() - be the seed on descriptor @sock: returns in each clone, never in the seed, which ends with its owner.
 * @name: the last argument, %SEED_NAME, which is written over.
 *
 * Context: before anything else was done; alone in its process; SIGPIPE is ignored. A seed that is killed between its answer and the release of the clone takes that along.
 */
void seed_wait(int sock, char *name);

#endif
