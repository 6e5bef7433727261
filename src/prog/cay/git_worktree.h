/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: prog/cay/git_worktree.h - the repository that a git worktree belongs to lies elsewhere: where. */
#ifndef CAY_PROG_GIT_WORKTREE_H
#define CAY_PROG_GIT_WORKTREE_H

#include <limits.h>
#include <stdbool.h>

/**
 * git_worktree_repository() - the directory of the repository, if @dir is the top of a linked worktree (gitrepository-layout(5), git-worktree(1)).
 * @dir: absolute, without symbolic links.
 * @ret: absolute, without symbolic links, outside of @dir.
 *
 * What @dir says is not believed: it may hold what a sandbox wrote. The repository has to have it among its worktrees.
 *
 * Return: is it one?
 */
bool git_worktree_repository(const char *dir, char ret[PATH_MAX]);

#endif
