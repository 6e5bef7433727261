/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/follow.h - directories that a sandbox renamed, after an apply has renamed them on the host too. */
#ifndef CAY_STORE_FOLLOW_H
#define CAY_STORE_FOLLOW_H

#include "store/stack.h"

/**
 * follow_can() - may the renamed directories of @a be told where they are now? @a: top first, the last is the host's directory. Only where the sandbox's own layer, which is not mounted, lies
 * directly on that: layers of snapshots stay as they are, and what they have at the new place would come in between.
 */
bool follow_can(const struct stack *a);

/**
 * follow_renames() - every renamed directory of the topmost layer shows from now on what the host has at its new place.
 * @a: as follow_can() wants it, after the host has become what the sandbox shows, but for what @is_whole leaves out.
 * @is_whole: is the directory of this path, relative to @a, what the sandbox shows? One that is not goes on showing what it showed.
 *
 * Return: 0 or -errno; then some of them still show what is at their old places. Context: a job; root mode (rootless there are no such directories).
 */
int follow_renames(const struct stack *a, bool (*is_whole)(void *arg, const char *path),
	void *arg) attr_must_use;

#endif
