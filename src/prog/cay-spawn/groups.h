/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: prog/cay-spawn/groups.h - the control groups around keepers: made before a keeper starts, removed after it has ended.
 *
 * v2: BASE/<id>/keeper, where BASE is GROUP/cay-TAG, and GROUP the root of the tree (root mode), or the group that the server was started in (rootless, when it
 * may be written; its processes go into GROUP/server when they stand in the way of controllers). Keepers add BASE/<id>/box and,
 * on hybrid hosts, <v1 mount>/cay-TAG/<id>. No heap.
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

/**
 * groups_lock() - keep another cay-spawn of this instance (one that is leaving) from sweeping away a group that is made but not inhabited yet.
 * @alone: for sweeping. Return: descriptor that holds the lock until it is closed; -EWOULDBLOCK (only @alone), -errno.
 */
int groups_lock(const struct groups *g, bool alone) attr_must_use;

/** groups_make() - make BASE/ID/keeper. Return: descriptor for CLONE_INTO_CGROUP, or -errno (go without). */
int groups_make(const struct groups *g, const char *id) attr_must_use;

/** groups_kill() - SIGKILL every process in BASE/ID. */
void groups_kill(const struct groups *g, const char *id);

/** groups_sweep() - remove the groups of keepers of which no process is left: those that nobody was there to clear up behind. */
void groups_sweep(const struct groups *g);

/** groups_fini() - remove the groups of the instance itself when nothing is in them any more. */
void groups_fini(const struct groups *g);

/** groups_remove() - kill, and remove every group of @id. Return: 0 when nothing is left, -EBUSY while processes are, -errno. */
int groups_remove(const struct groups *g, const char *id);

#endif
