/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/textdiff.h - changes as text: unified diffs of text files, by the `diff` program on two descriptors, and a line for what such a diff does not show. */
#ifndef CAY_STORE_TEXTDIFF_H
#define CAY_STORE_TEXTDIFF_H

#include "store/diff.h"

/**
 * textdiff_add() - append the unified diff of a change of regular files to @out; binary and large files, links, special and empty files, modes, owners and attributes get
 * a line that says so. Directories by themselves are only told when their mode, owner or attributes changed.
 * @target: where the tree is inside the sandbox.
 *
 * Return: 0; 1 when @out is full, and nothing will be added to it any more; -errno.
 */
int textdiff_add(struct buf *out, const char *target, const struct change *change) attr_must_use;

#endif
