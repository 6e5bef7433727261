/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/mount_spec.h - --mount SRC[:DST[:MODE]]. */
#ifndef CAY_PROG_MOUNT_SPEC_H
#define CAY_PROG_MOUNT_SPEC_H

#include "base/err.h"
#include <limits.h>

struct mount_spec {
	char source[PATH_MAX]; /* absolute, clean */
	char target[PATH_MAX]; /* absolute, clean */
	const char *mode;      /* "cow", "ro" or "rw"; static */
};

/** path_absolute() - make @path absolute against @cwd (NULL: there is none) and clean ("." and ".." and empty parts resolved as text). Return: 0 or -EINVAL, -ENAMETOOLONG, -ENOENT. */
int path_absolute(const char *cwd, const char *path, char ret[PATH_MAX]) attr_must_use;

/**
 * mount_spec_parse() - read a --mount value.
 * @text: "SRC[:DST[:cow|ro|rw]]"; a colon in a path is written "\:". SRC is relative to @cwd; without DST it is mounted where it is.
 * Return: 0, or negative with @err filled (%ERR_USAGE).
 */
int mount_spec_parse(
	const char *text, const char *cwd, struct mount_spec *ret, struct err *err) attr_must_use;

#endif
