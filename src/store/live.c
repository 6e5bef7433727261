/* SPDX-License-Identifier: Apache-2.0 */
#include "store/live.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sys/btrfs.h"

#include <fcntl.h>
#include <sys/stat.h>

/* Of the directory of a tree, around its upper: nobody inside can set it. */
#define NEW S_ISVTX

mode_t store_live_mode(void)
{
	return ablated("private_pool") ? 0755 : 0700;
}

static int make_dir(int dirfd, const char *path, mode_t mode)
{
	struct stat st;

	if (mkdirat(dirfd, path, mode) < 0)
		return errno == EEXIST ? 0 : -errno;
	if (fstatat(dirfd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if ((st.st_mode & 07777) == mode)
		return 0;
	/* The caller's umask must not thin out the mode: an upper's root is the sandbox's root. */
	return fchmodat(dirfd, path, mode, 0) < 0 ? -errno : 0;
}

int store_live_trees(int live_fd, unsigned int n_trees)
{
	char path[32];
	int rc = make_dir(live_fd, "points", 0755);

	for (unsigned int n = 0; rc == 0 && n < n_trees; n++) {
		(void)snprintf(path, sizeof(path), "%u", n);
		rc = make_dir(live_fd, path, store_live_mode() | NEW);
		(void)snprintf(path, sizeof(path), "%u/upper", n);
		if (rc == 0)
			rc = make_dir(live_fd, path, 0755);
		(void)snprintf(path, sizeof(path), "%u/work", n);
		if (rc == 0)
			rc = make_dir(live_fd, path, store_live_mode());
	}
	return rc;
}

int store_live_limit(int live_fd, uint64_t limit_bytes)
{
	int rc;

	if (!btrfs_subvolume_is(live_fd))
		return limit_bytes == 0 ? 0 : -EOPNOTSUPP;
	rc = btrfs_subvolume_limit(live_fd, limit_bytes);
	/* ENOTCONN: quotas are off */
	if (rc == -ENOTCONN || rc == -EINVAL)
		rc = limit_bytes == 0 ? 0 : -EOPNOTSUPP;
	return rc;
}

int store_live_create(int pool_fd, const char *id, unsigned int n_trees, uint64_t limit_bytes)
{
	cleanup_fd int live = -1, fd = -1;
	int rc = -EOPNOTSUPP;

	live = openat(pool_fd, "live", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (live < 0)
		return -errno;
	if (geteuid() == 0 && btrfs_is(live))
		rc = btrfs_subvolume_new(live, id);
	if (rc < 0 && rc != -EEXIST)
		rc = mkdirat(live, id, store_live_mode()) < 0 ? -errno : 0;
	if (rc < 0 && rc != -EEXIST)
		return rc;
	fd = openat(live, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = store_live_trees(fd, n_trees);
	if (rc == 0)
		rc = store_live_limit(fd, limit_bytes);
	return rc < 0 ? rc : TAKE_FD(fd);
}

int store_live_tree(int live_fd, unsigned int n, int source_fd)
{
	char path[32];
	struct stat st, now;
	cleanup_fd int upper = -1;

	(void)snprintf(path, sizeof(path), "%u/upper", n);
	upper = openat(live_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (upper < 0 || fstat(source_fd, &st) < 0 || fstat(upper, &now) < 0)
		return -errno;
	/* EINVAL: an owner that this user namespace cannot express; root inside stands for it then */
	if ((now.st_uid != st.st_uid || now.st_gid != st.st_gid) &&
		fchown(upper, st.st_uid, st.st_gid) < 0 && errno != EINVAL)
		return -errno;
	if (((now.st_mode ^ st.st_mode) & 07777) == 0)
		return 0;
	return fchmod(upper, st.st_mode & 07777) < 0 ? -errno : 0;
}

bool store_live_is_new(int live_fd, unsigned int n)
{
	char path[32];
	struct stat st;

	(void)snprintf(path, sizeof(path), "%u", n);
	return fstatat(live_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & NEW) != 0;
}

int store_live_begin(int live_fd, unsigned int n)
{
	char path[32];

	if (!store_live_is_new(live_fd, n))
		return 0;
	(void)snprintf(path, sizeof(path), "%u", n);
	return fchmodat(live_fd, path, store_live_mode(), 0) < 0 ? -errno : 0;
}
