/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/btrfs.h"
#include "base/clock.h"
#include "base/str.h"
#include "sys/file.h"

#include <fcntl.h>
#include <linux/btrfs_tree.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>

/* Newer than Debian 12's headers. */
#define QUOTA_CTL_ENABLE_SIMPLE 4

#define LOOK_AGAIN_NS (NS_PER_MS / 5)

/* So many changes of trees are worked off in a quarter of a millisecond. For each the kernel sets aside two nodes of each of eight levels. */
#define SETTLED_CHANGES 128U
#define CHANGE_NODES    16U

bool btrfs_is(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

bool btrfs_subvolume_is(int fd)
{
	struct stat st;

	return btrfs_is(fd) && fstat(fd, &st) == 0 && st.st_ino == BTRFS_FIRST_FREE_OBJECTID;
}

/* Ids are text in sysfs: 8-4-4-4-12. */
static int sysfs_dir(int fd, char *path, size_t size)
{
	struct btrfs_ioctl_fs_info_args info = { 0 };
	char id[2 * BTRFS_FSID_SIZE + 5];
	size_t n = 0;

	if (ioctl(fd, BTRFS_IOC_FS_INFO, &info) < 0)
		return -errno;
	for (int i = 0; i < BTRFS_FSID_SIZE; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			id[n++] = '-';
		(void)snprintf(id + n, 3, "%02x", info.fsid[i]);
		n += 2;
	}
	if (snprintf(path, size, "/sys/fs/btrfs/%s", id) >= (int)size)
		return -E2BIG;
	return 0;
}

int btrfs_quota_enable(int fd)
{
	struct btrfs_ioctl_quota_ctl_args args = { .cmd = QUOTA_CTL_ENABLE_SIMPLE };

	if (ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 && errno != EEXIST)
		return -errno;
	return 0;
}

bool btrfs_quota_works(int fd)
{
	char path[128], groups[160];

	if (sysfs_dir(fd, path, sizeof(path)) < 0)
		return false;
	(void)snprintf(groups, sizeof(groups), "%s/qgroups", path);
	return access(groups, F_OK) == 0;
}

int btrfs_subvolume_new(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args_v2 args = { 0 };
	int rc = str_copy(args.name, sizeof(args.name), name);

	if (rc < 0)
		return rc;
	return ioctl(dirfd, BTRFS_IOC_SUBVOL_CREATE_V2, &args) < 0 ? -errno : 0;
}

int btrfs_subvolume_limit(int fd, uint64_t bytes)
{
	/* qgroupid 0 means the group of the subvolume that @fd is in; (u64)-1 clears a limit */
	struct btrfs_ioctl_qgroup_limit_args args = {
		.lim = { .flags = BTRFS_QGROUP_LIMIT_MAX_RFER,
			.max_rfer = bytes != 0 ? bytes : UINT64_MAX },
	};

	return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 ? -errno : 0;
}

static int subvolume_id(int fd, uint64_t *ret)
{
	struct btrfs_ioctl_ino_lookup_args args = { .objectid = BTRFS_FIRST_FREE_OBJECTID };

	if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0)
		return -errno;
	*ret = args.treeid;
	return 0;
}

int btrfs_subvolume_usage(int fd, uint64_t *ret_bytes)
{
	char dir[128], path[192];
	uint64_t id;
	int rc = subvolume_id(fd, &id);

	if (rc == 0)
		rc = sysfs_dir(fd, dir, sizeof(dir));
	if (rc < 0)
		return rc;
	(void)snprintf(
		path, sizeof(path), "%s/qgroups/0_%llu/referenced", dir, (unsigned long long)id);
	return file_read_u64_at(AT_FDCWD, path, ret_bytes);
}

/* Of files, whether it waits for its place or is on its way to it. In a file system whose data and trees have one kind of place there is no such directory. */
static bool has_unwritten(int dir)
{
	uint64_t waiting, going;

	return file_read_u64_at(dir, "allocation/data/bytes_may_use", &waiting) < 0 ||
	       file_read_u64_at(dir, "allocation/data/bytes_reserved", &going) < 0 ||
	       waiting + going > 0;
}

static bool has_few_changes(int dir)
{
	uint64_t aside, always, node;

	return file_read_u64_at(dir, "allocation/metadata/bytes_may_use", &aside) == 0 &&
	       file_read_u64_at(dir, "allocation/global_rsv_reserved", &always) == 0 &&
	       file_read_u64_at(dir, "nodesize", &node) == 0 &&
	       aside <= always + SETTLED_CHANGES * CHANGE_NODES * node;
}

/* A snapshot waits for the end of a commit that has begun. Older kernels do not tell. */
static bool commits(int dir)
{
	uint64_t since_ms;

	return file_read_key_at(dir, "commit_stats", "cur_commit_ms", &since_ms) < 0 ||
	       since_ms > 0;
}

bool btrfs_is_settled(int fd)
{
	char path[128];
	cleanup_fd int dir = -1;

	if (sysfs_dir(fd, path, sizeof(path)) < 0)
		return false;
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dir >= 0 && !has_unwritten(dir) && has_few_changes(dir) && !commits(dir);
}

static void *make_snapshot(void *snapshot)
{
	struct btrfs_snapshot *s = snapshot;

	s->rc = ioctl(s->dirfd, BTRFS_IOC_SNAP_CREATE_V2, &s->args) < 0 ? -errno : 0;
	return NULL;
}

static int start_thread(struct btrfs_snapshot *s)
{
	sigset_t all, before;
	int rc;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = -pthread_create(&s->thread, NULL, make_snapshot, s);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static bool ends_within(struct btrfs_snapshot *s, uint64_t ns)
{
	const uint64_t until = clock_now_ns() + ns;
	const struct timespec at = { .tv_sec = (time_t)(until / NS_PER_S),
		.tv_nsec = (long)(until % NS_PER_S) };

	s->going = pthread_clockjoin_np(s->thread, NULL, CLOCK_MONOTONIC, &at) != 0;
	return !s->going;
}

/* Of the kernel's one call, the larger part is what comes behind the instant: the transaction goes to the disk. But the name of the snapshot is made when its root is, at that point of the commit where no
 * change of anybody is under way (create_pending_snapshot()), and until the commit is past it nobody may begin one: so when the directory has grown, the snapshot holds all that it ever will. */
int btrfs_snapshot_begin(struct btrfs_snapshot *s, int source, int dirfd, const char *name)
{
	struct stat before, now;
	int rc;

	*s = (struct btrfs_snapshot){ .args = { .fd = source }, .dirfd = dirfd };
	rc = str_copy(s->args.name, sizeof(s->args.name), name);
	if (rc == 0 && fstat(dirfd, &before) < 0)
		rc = -errno;
	if (rc == 0)
		rc = start_thread(s);
	if (rc < 0)
		return rc;
	do {
		if (ends_within(s, LOOK_AGAIN_NS))
			return s->rc;
	} while (fstat(dirfd, &now) < 0 || now.st_size == before.st_size);
	return 0;
}

int btrfs_snapshot_end(struct btrfs_snapshot *s)
{
	if (s->going)
		(void)pthread_join(s->thread, NULL);
	s->going = false;
	return s->rc;
}

int btrfs_subvolume_readonly(int fd, bool readonly)
{
	uint64_t flags = 0;

	if (ioctl(fd, BTRFS_IOC_SUBVOL_GETFLAGS, &flags) < 0)
		return -errno;
	if (readonly == ((flags & BTRFS_SUBVOL_RDONLY) != 0))
		return 0;
	flags ^= BTRFS_SUBVOL_RDONLY;
	return ioctl(fd, BTRFS_IOC_SUBVOL_SETFLAGS, &flags) < 0 ? -errno : 0;
}

int btrfs_subvolume_remove(int dirfd, const char *name)
{
	struct btrfs_ioctl_vol_args args = { 0 };
	struct btrfs_ioctl_qgroup_create_args group = { .create = 0 };
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	uint64_t id = 0;
	int rc = str_copy(args.name, sizeof(args.name), name);

	if (fd >= 0 && rc == 0)
		rc = subvolume_id(fd, &id);
	fd_close(&fd);
	if (rc < 0)
		return rc;
	if (ioctl(dirfd, BTRFS_IOC_SNAP_DESTROY, &args) < 0)
		return -errno;
	/* The group stays while snapshots hold extents that it is charged for. */
	group.qgroupid = id;
	(void)ioctl(dirfd, BTRFS_IOC_QGROUP_CREATE, &group);
	return 0;
}
