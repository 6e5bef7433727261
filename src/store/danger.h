/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: store/danger.h - is a change something that a tool outside the sandbox would execute or obey? Rules in defs/dangerous.def. */
#ifndef CAY_STORE_DANGER_H
#define CAY_STORE_DANGER_H

#include "store/diff.h"

#include <limits.h>

/** danger_path() - why a file at @path is dangerous; NULL when no rule names it. Static text. */
const char *danger_path(const char *path);

/** danger_below() - the same of a link at @path, by what would be in it if it were a directory: it would put something else in the place of such files. */
const char *danger_below(const char *path);

/**
 * danger_place() - what rules have to know of the place of a directory that changes are applied to: mounted may be a project, but also a part of one.
 * @dir: the directory on the host.
 * @ret: what stands before each path in it: ".git/" for a repository's own directory, also a bare one's, ".git/hooks/" for one in that; else the path from the outermost name that begins with a
 *       dot on (".github/workflows/"); "" without one, and where the directory is the top of a checkout, wherever that lies.
 * Return: 0 or -errno.
 */
int danger_place(int dir, char ret[PATH_MAX]) attr_must_use;

/**
 * danger_change() - is a change as a whole dangerous, its mode and where it links to included?
 * @place: of the directory in which it is (danger_place()).
 * Return: why, static text, or NULL.
 */
const char *danger_change(const struct change *change, const char *place);

/**
 * danger_repository() - is a change dangerous because git takes a directory that it is in for a repository, which needs no ".git"?
 * @stack: all that would be there then.
 * Return: why, static text, or NULL.
 */
const char *danger_repository(const struct change *change, const struct stack *stack);

#endif
