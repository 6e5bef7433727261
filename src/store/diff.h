/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: store/diff.h - the exact difference of two stacks; costs what changed, not what is there (docs/design/0002 "Diff").
 */
#ifndef CAY_STORE_DIFF_H
#define CAY_STORE_DIFF_H

#include "store/stack.h"

enum change_kind { CHANGE_ADDED, CHANGE_MODIFIED, CHANGE_DELETED, CHANGE_METADATA };

/** struct change - one difference; borrowed for the call. */
struct change {
	enum change_kind kind;
	const char *path;            /* bytes, relative to the tree, no leading slash */
	const struct found *before;  /* in b; kind %FOUND_NONE when added */
	const struct found *after;   /* in a; kind %FOUND_NONE when deleted */
	const struct merged *parent; /* in a; no parts when it is not there */
	bool content;                /* bytes, link target or type differ; else only attributes */
};

/** struct diff - two stacks to compare. */
struct diff {
	const struct stack *a, *b; /* from b to a */
	/** called for each change, a directory before what is below it (after it when deleted); 1 ends the walk (the callee keeps its own error), -errno too */
	int (*change)(const struct change *change, void *arg);
	void *arg;
};

/** diff_run() - walk. Return: 0, what @change returned, or -errno with @err. */
int diff_run(const struct diff *diff, struct err *err) attr_must_use;

/** diff_same_bytes() - do two regular files hold the same? Return: 1, 0, -errno. */
int diff_same_bytes(int a, int b) attr_must_use;

/** diff_open() - open the regular file behind @f for reading. Descriptor or -errno. */
int diff_open(const struct found *f) attr_must_use;

#endif
