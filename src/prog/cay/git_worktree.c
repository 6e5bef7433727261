/* SPDX-License-Identifier: Apache-2.0 */
#include "prog/cay/git_worktree.h"
#include "base/gitdir.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The path on the first line of the file @name in @dir, behind @label, without symbolic links. */
static bool read_path(const char *dir, const char *name, const char *label, char ret[PATH_MAX])
{
	cleanup_free char *file = str_dupf("%s/%s", dir, name), *path = NULL;
	cleanup_fd int fd = open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	char text[PATH_MAX + 16], *line = text + strlen(label);
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	n = read(fd, text, sizeof(text) - 1);
	if (n < 0)
		return false;
	text[n] = '\0';
	if (!str_starts(text, label))
		return false;
	line[strcspn(line, "\n")] = '\0';
	path = line[0] == '/' ? str_dup(line) : str_dupf("%s/%s", dir, line);
	return realpath(path, ret) != NULL;
}

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

	if (!read_path(dir, ".git", "gitdir: ", ret) || !read_path(ret, "gitdir", "", back))
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
