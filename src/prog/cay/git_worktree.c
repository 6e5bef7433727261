/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/git_worktree.h"
#include "base/gitdir.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Take the last name off @path; it is given back. */
static const char *cut_name(char *path)
{
	char *slash = strrchr(path, '/');

	if (slash == NULL)
		return "";
	*slash = '\0';
	return slash + 1;
}

bool git_worktree_repository(const char *dir, char ret[PATH_MAX])
{
	char back[PATH_MAX];
	cleanup_fd int repository = -1;

	if (!gitdir_path_in(dir, ".git", "gitdir: ", ret) ||
		!gitdir_path_in(ret, "gitdir", "", back))
		return false;
	/* back is DIR/.git, ret REPOSITORY/worktrees/NAME */
	if (!str_eq(cut_name(back), ".git") || !str_eq(back, dir))
		return false;
	(void)cut_name(ret);
	if (!str_eq(cut_name(ret), "worktrees") || str_path_under(ret, dir))
		return false;
	repository = open(ret, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return repository >= 0 && gitdir_is(repository);
}
