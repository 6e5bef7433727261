/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/copy.h - the two directions of cay cp. */
#ifndef CAY_PROG_COPY_H
#define CAY_PROG_COPY_H

#include "base/str.h"
#include "prog/cay/cli.h"

/* A side of a copy: a path here, or NAME:/path in a sandbox. */
struct copy_side {
	char *box;  /* NULL here */
	char *path; /* without slashes at the end */
	bool slash; /* it had one */
};

/** copy_last() - last part of a path. */
static inline const char *copy_last(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

/** copy_out() - from a sandbox to @where here ("-": standard output). A regular file first; what is none comes as a tree. */
int copy_out(
	struct cli *cli, const struct copy_side *from, const struct copy_side *where) attr_must_use;

#endif
