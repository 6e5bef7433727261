/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/textdiff.h - unified diffs of text files, by the `diff` program on two descriptors. */
#ifndef CAY_STORE_TEXTDIFF_H
#define CAY_STORE_TEXTDIFF_H

#include "store/diff.h"

/**
 * textdiff_add() - append the unified diff of a change of regular files to @out; binary, large and special files get one line that says so.
 * @target: where the tree is inside the sandbox.
 *
 * Return: 0 or -errno.
 */
int textdiff_add(struct buf *out, const char *target, const struct change *change) attr_must_use;

#endif
