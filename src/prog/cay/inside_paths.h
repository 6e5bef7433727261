/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/inside_paths.h - PATH… behind --: places among a sandbox's changes, as people name them. */
#ifndef CAY_PROG_INSIDE_PATHS_H
#define CAY_PROG_INSIDE_PATHS_H

#include "prog/cay/cli.h"

/**
 * inside_paths() - @paths as the sandbox has them. An absolute one is a place inside, or of this machine in the source of a copy-on-write mount. A relative one is below the current
 * directory where that is in such a source, else below the only such mount.
 * @name: the sandbox. @only: only the mount at this place inside; NULL: all of them.
 * @ret: array of absolute paths, a new reference.
 *
 * Return: 0, or negative with @cli->err filled.
 */
int inside_paths(struct cli *cli, const char *name, char *const *paths, const char *only,
	json_t **ret) attr_must_use;

#endif
