/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-spawn/groups.h - the control groups around keepers: made before a keeper starts, removed after it has ended.
 *
 * v2: BASE/<id>/keeper, where BASE is GROUP/cay-TAG, and GROUP the root of the tree (root mode), or the group that the server was started in (rootless, when it
 * may be written; its processes go into GROUP/server when they stand in the way of controllers). Keepers add BASE/<id>/box and,
 * on hybrid hosts, <v1 mount>/cay-TAG/<id>, and <id>.gateway beside it. No heap.
 */
#ifndef CAY_PROG_CAY_SPAWN_GROUPS_H
#define CAY_PROG_CAY_SPAWN_GROUPS_H

#include "base/attr.h"

#define GROUPS_PATH_SIZE 512
#define GROUPS_V1_MAX    16

struct groups {
	char base[GROUPS_PATH_SIZE];              /* "" = no v2 tree that may be written */
	char v1[GROUPS_V1_MAX][GROUPS_PATH_SIZE]; /* <v1 mount>/cay-TAG */
	size_t n_v1;
};

/** groups_find() - find the mounts in /proc/self/mountinfo and make the base group. @root: root mode. */
void groups_find(struct groups *g, const char *tag, bool root);

/** groups_hold_limits() - are there controllers, of version 2 or, in root mode, 1? */
bool groups_hold_limits(const struct groups *g, bool root);

/**
 * groups_lock() - what is done to groups and files by their names happens under this lock, which all cay-spawns of an instance share: one that outlives its server may meet
 * its successor's. @wait: some seconds, else only when nobody has it. Return: descriptor that holds the lock until it is closed; -EWOULDBLOCK: somebody else has it, or -errno.
 */
int groups_lock(bool wait) attr_must_use;

/**
 * groups_make() - make BASE/ID/keeper anew; what is left of an earlier one goes before, its processes are killed. Locked. @ret_number: its groups_number().
 * Return: descriptor for CLONE_INTO_CGROUP; -EBUSY when the earlier one cannot be removed, another -errno (go without).
 */
int groups_make(const struct groups *g, const char *id, uint64_t *ret_number) attr_must_use;

/** groups_number() - of BASE/ID as it is now: another one that is made later under that name has another number. 0 = there is none. */
uint64_t groups_number(const struct groups *g, const char *id);

/** groups_sweep() - remove the groups of keepers of which no process is left: those that nobody was there to clear up behind. */
void groups_sweep(const struct groups *g);

/** groups_fini() - remove the groups of the instance itself when nothing is in them any more. */
void groups_fini(const struct groups *g);

/** groups_kill() - kill every process of @id. Locked. Return: whether none is left, as far as BASE/ID tells; where there is none nothing tells. */
bool groups_kill(const struct groups *g, const char *id) attr_must_use;

/** groups_remove() - kill, and remove every group of @id, the one with the number last. Locked. Return: 0 when nothing is left, -EBUSY while processes are, -errno. */
int groups_remove(const struct groups *g, const char *id);

#endif
