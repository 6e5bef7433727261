/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: base/gitdir.h - what git takes for a repository, and where a checkout's lies (gitrepository-layout(5)). */
#ifndef CAY_BASE_GITDIR_H
#define CAY_BASE_GITDIR_H

#include "base/attr.h"

#include <limits.h>
#include <stdbool.h>

/** gitdir_is() - is @dir, a descriptor, the directory in which git keeps a repository: a project's ".git", or a bare one? */
bool gitdir_is(int dir);

/**
 * gitdir_path_in() - the path that git wrote into a file: "gitdir: ../x" in a ".git", "../.." in a "commondir". A relative one is relative to @dir.
 * @dir: absolute. @name: of the file in it; a link is none.
 * @label: what stands before the path; "" for nothing.
 * @ret: absolute, without symbolic links.
 *
 * Return: false when there is no such file, or what it names is not there.
 */
bool gitdir_path_in(
	const char *dir, const char *name, const char *label, char ret[PATH_MAX]) attr_must_use;

/**
 * gitdir_of() - the repository of the checkout in directory @dir (absolute): its ".git", or what that leads to when it is a file, as in linked worktrees and submodules.
 * @own: what belongs to this checkout alone. @common: what it shares with others (its "commondir"); else the same as @own.
 *
 * Return: false when there is no ".git", or it leads nowhere.
 */
bool gitdir_of(const char *dir, char own[PATH_MAX], char common[PATH_MAX]) attr_must_use;

#endif
