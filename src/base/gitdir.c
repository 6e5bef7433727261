/* SPDX-License-Identifier: Apache-2.0 */
#include "base/gitdir.h"
#include "base/str.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool gitdir_is(int dir)
{
	/* HEAD may be a link that leads nowhere, before the first commit */
	return faccessat(dir, "HEAD", F_OK, AT_SYMLINK_NOFOLLOW) == 0 &&
	       faccessat(dir, "objects", F_OK, 0) == 0 && faccessat(dir, "refs", F_OK, 0) == 0;
}

bool gitdir_path_in(const char *dir, const char *name, const char *label, char ret[PATH_MAX])
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

bool gitdir_of(const char *dir, char own[PATH_MAX], char common[PATH_MAX])
{
	cleanup_free char *git = str_dupf("%s/.git", dir);
	struct stat st;

	if (stat(git, &st) == 0 && S_ISDIR(st.st_mode)) {
		if (realpath(git, own) == NULL)
			return false;
	} else if (!gitdir_path_in(dir, ".git", "gitdir: ", own)) {
		return false;
	}
	return gitdir_path_in(own, "commondir", "", common) || str_copy(common, PATH_MAX, own) == 0;
}
