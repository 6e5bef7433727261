/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/textdiff.h - changes as text: unified diffs of text files, by the `diff` program, and a line for what such a diff does not show. */
#ifndef CAY_STORE_TEXTDIFF_H
#define CAY_STORE_TEXTDIFF_H

#include "store/diff.h"

/** TEXTDIFF_BATCH - so many changes go to one `diff` at the most. */
#define TEXTDIFF_BATCH 128

/** struct textdiff - changes that wait for it; zero-initialised, textdiff_free(). */
struct textdiff {
	size_t n;
	uint64_t bytes; /* of both sides of all */
	struct textdiff_change {
		char *notes, *old, *new; /* lines in front; labels */
		int before, after; /* copies in memory; -1: nothing is there; both: notes alone */
		uint64_t bytes;    /* of both */
	} waiting[TEXTDIFF_BATCH];
};

/**
 * textdiff_add() - append the unified diff of a change of regular files to @out; binary and large files, links, special and empty files, modes, owners and attributes get
 * a line that says so. Directories by themselves are only told when their mode, owner or attributes changed. It may wait for textdiff_flush().
 * @target: where the tree is inside the sandbox.
 *
 * Return: 0; 1 when @out is full, and nothing will be added to it any more; -errno.
 */
int textdiff_add(struct textdiff *t, struct buf *out, int scratch, const char *target,
	const struct change *change) attr_must_use;

/**
 * textdiff_flush() - append what waits.
 * @scratch: a directory in which files can be made; -1, and where that fails: one `diff` for each.
 * Return: as textdiff_add().
 */
int textdiff_flush(struct textdiff *t, struct buf *out, int scratch) attr_must_use;

/** textdiff_free() - forget what waits. */
void textdiff_free(struct textdiff *t);

#endif
