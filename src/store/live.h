/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/live.h - live directories: where a sandbox's changes lie while it exists. Called by keepers before each start: a few dozen microseconds.
 */
#ifndef CAY_STORE_LIVE_H
#define CAY_STORE_LIVE_H

#include "base/attr.h"

/**
 * store_live_create() - make live/<id> in the pool: `0/upper`, `0/work` … for @n_trees trees, and `points`.
 * @pool_fd: the pool.
 * @id: sandbox.
 * @n_trees: 1 + number of cow mounts.
 * @limit_bytes: what the sandbox may write; 0 = no limit.
 *
 * A live directory that is there already is used as it is (a sandbox that starts again); its limit is set anew.
 * Return: descriptor of live/<id>, -EOPNOTSUPP when there is a limit that this pool cannot enforce, other -errno.
 */
int store_live_create(
	int pool_fd, const char *id, unsigned int n_trees, uint64_t limit_bytes) attr_must_use;

/** store_live_mode() - mode of the directories of a pool: nobody else reaches what sandboxes write there, set-uid programs above all. */
mode_t store_live_mode(void);

/** store_live_limit() - change the limit of a live directory; 0 = none. Return: as store_live_create(). */
int store_live_limit(int live_fd, uint64_t limit_bytes) attr_must_use;

/** store_live_tree() - give the upper of tree @n mode and owner of the directory behind @source_fd, whose place it takes. */
int store_live_tree(int live_fd, unsigned int n, int source_fd) attr_must_use;

/** store_live_trees() - make missing trees 0..@n_trees-1 and `points` in a live directory. They are new until store_live_begin(). */
int store_live_trees(int live_fd, unsigned int n_trees) attr_must_use;

/** store_live_is_new() - has nothing inside had tree @n yet? Then mode and owner of its upper are not the sandbox's own. */
bool store_live_is_new(int live_fd, unsigned int n) attr_must_use;

/** store_live_begin() - from now on tree @n is the sandbox's, with mode and owner that its upper has. Return: 0 or -errno. */
int store_live_begin(int live_fd, unsigned int n) attr_must_use;

#endif
