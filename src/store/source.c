/* SPDX-License-Identifier: Apache-2.0 */
#include "store/source.h"
#include "sys/raw.h"

#define NO_LINKS (RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

int source_open(const char *path)
{
	return raw_openat2(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, NO_LINKS);
}

/* As a directory first: that is what makes the kernel mount what is mounted on demand. */
int source_find(const char *path)
{
	int fd = raw_openat2(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0, NO_LINKS);

	return fd == -ENOTDIR ? raw_openat2(AT_FDCWD, path, O_PATH, 0, NO_LINKS) : fd;
}

int source_refuse(const char *what, const char *path, int rc, struct err *err)
{
	if (rc != -ELOOP)
		return err_raise_sys(err, rc, "%s '%s'", what, path);
	return err_hint(err,
		err_raise(err, ERR_CONFLICT,
			"%s '%s': there is a symbolic link on the way, and none is followed", what,
			path),
		"where it has been put there since, put back what was there; a new sandbox takes the path of the directory itself (realpath)");
}
