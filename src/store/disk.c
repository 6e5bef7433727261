/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/disk.c - see the header.
 *
 * All who mount a disk must share one loop device (loop_attach_once()): they hold the lock of the file while they find or bind it.
 *
 * mkfs rounds inodes up to whole blocks of every group, and what journal and tables take can only be estimated: the disk is made too large, and what is too
 * much is taken away by files in a directory of our own. So the numbers are exact.
 */
#include "store/disk.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/live.h"
#include "store/program.h"
#include "sys/file.h"
#include "sys/loop.h"
#include "sys/mount.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define MKFS         "/usr/sbin/mkfs.ext4"
#define NEW_FILE     DISK_FILE ".new"
#define BLOCK        4096U
#define INODE_SIZE   256U
#define JOURNAL_MIB  4U
#define LOCK_MS      10000
#define INODES_LEAST 64U
#define BYTES_AN_INODE \
	16384U /* where nobody asks for a number: as many as mkfs would make by itself */
#define SIZE_XATTR "trusted.cay.size"
#define OURS       ".cay" /* what is too much; beside the trees, so no sandbox sees it */

const char *disk_why_not(void)
{
	if (geteuid() != 0 || store_is_rootless())
		return "an ordinary user cannot mount a file";
	if (access(MKFS, X_OK) < 0)
		return "mkfs.ext4 is not installed (package e2fsprogs)";
	if (access("/dev/loop-control", W_OK) < 0)
		return "there are no loop devices";
	return NULL;
}

bool disk_exists(int live)
{
	return faccessat(live, DISK_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int mount_named(int live, const char *file_name, const char *id)
{
	char device[LOOP_PATH_SIZE], source[LOOP_PATH_SIZE + 8], name[LOOP_NAME_SIZE];
	/* noinit_itable: a sparse file reads as zeroes anyway; discard: what is deleted goes back to the pool */
	const char *options[] = { source, "noinit_itable", "discard", "errors=remount-ro", NULL };
	/* the device takes the file as we opened it, and a lock with it: lock another opening */
	cleanup_fd int lock = openat(live, file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	cleanup_fd int file = openat(live, file_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	cleanup_fd int loop = -1;
	int rc;

	if (lock < 0 || file < 0)
		return -errno;
	rc = file_lock(lock, true, LOCK_MS);
	if (rc < 0)
		return rc;
	(void)snprintf(name, sizeof(name), "cay disk %s", id);
	loop = loop_attach_once(file, name, device);
	if (loop < 0)
		return loop;
	(void)snprintf(source, sizeof(source), "source=%s", device);
	return mount_fs_new(
		"ext4", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
}

int disk_mount(int live, const char *id)
{
	return mount_named(live, DISK_FILE, id);
}

int disk_open(int live, const char *id)
{
	cleanup_fd int mount = disk_exists(live) ? disk_mount(live, id) : -ENOENT;
	int fd;

	if (mount < 0 && mount != -ENOENT)
		return mount;
	fd = openat(mount >= 0 ? mount : live, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* --- making one --- */

/* Journal, tables, bitmaps, what ext4 keeps for itself (2 %, at most 16 MiB), and some more. */
static uint64_t file_size(const struct disk_size *size)
{
	uint64_t own =
		size->bytes / 256 + size->inodes * INODE_SIZE + (JOURNAL_MIB << 20) + (4U << 20);
	uint64_t kept = (size->bytes + own) / 48;

	return (size->bytes + own + (kept < (17U << 20) ? kept : 17U << 20)) &
	       ~(uint64_t)(BLOCK - 1);
}

static int format(int live, const struct disk_size *size, struct err *err)
{
	char path[64], inodes[32], journal[32];
	const char *argv[] = { MKFS, "-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-O",
		"^resize_inode", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1", "-J",
		journal, "-N", inodes, path, NULL };
	cleanup_fd int file = -1;
	int flags = FS_NOCOW_FL;

	(void)unlinkat(live, NEW_FILE, 0);
	file = openat(live, NEW_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file < 0)
		return err_raise_sys(err, -errno, "make the disk");
	/* btrfs would write every block of it elsewhere each time; others know no such flag */
	(void)ioctl(file, FS_IOC_SETFLAGS, &flags);
	if (ftruncate(file, (off_t)file_size(size)) < 0)
		return err_raise_sys(
			err, -errno, "make a disk of %llu bytes", (unsigned long long)size->bytes);
	(void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", getpid(), file);
	(void)snprintf(
		inodes, sizeof(inodes), "%llu", (unsigned long long)size->inodes + INODES_LEAST);
	(void)snprintf(journal, sizeof(journal), "size=%u", JOURNAL_MIB);
	return program_run(argv, err);
}

/* Trees as overlayfs will leave them at its first mount, so that they count as ours. */
static int make_trees(int root, unsigned int n_trees)
{
	int rc = unlinkat(root, "lost+found", AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;

	if (rc == 0)
		rc = store_live_trees(root, n_trees);
	for (unsigned int n = 0; rc == 0 && n < n_trees; n++) {
		char path[64];

		(void)snprintf(path, sizeof(path), "%u/work/work", n);
		rc = mkdirat(root, path, 0) < 0 ? -errno : 0;
		(void)snprintf(path, sizeof(path), "%u/work/work/incompat/volatile", n);
		if (rc == 0)
			rc = file_mkdirs_at(root, path, 0700);
		(void)snprintf(path, sizeof(path), "%u/work/work/incompat/volatile/dirty", n);
		if (rc == 0)
			rc = file_create_at(root, path, 0600, "", 0);
	}
	if (rc == 0 && mkdirat(root, OURS, 0700) < 0)
		rc = -errno;
	return rc;
}

static int take_inodes(int root, uint64_t leave)
{
	cleanup_fd int ours = openat(root, OURS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statvfs fs;
	char name[24];

	if (ours < 0 || fstatvfs(root, &fs) < 0)
		return -errno;
	for (uint64_t n = leave; n < fs.f_ffree; n++) {
		(void)snprintf(name, sizeof(name), "%llu", (unsigned long long)n);
		if (mknodat(ours, name, S_IFREG | 0600, 0) < 0)
			return -errno;
	}
	return fs.f_ffree < leave ? -ENOSPC : 0;
}

/* What is allocated needs blocks of its own now and then: a second look gives those back. */
static int take_blocks(int root, uint64_t leave)
{
	cleanup_fd int file =
		openat(root, OURS "/blocks", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	off_t taken = 0;

	if (file < 0)
		return -errno;
	for (int look = 0; look < 4; look++) {
		struct statvfs fs;
		off_t much;

		if (syncfs(root) < 0 || fstatvfs(root, &fs) < 0)
			return -errno;
		much = (off_t)(fs.f_bavail * fs.f_frsize) - (off_t)(leave & ~(uint64_t)(BLOCK - 1));
		if (much == 0)
			return 0;
		if (much < 0 && taken + much < 0)
			return -ENOSPC;
		if (much > 0 ? fallocate(file, 0, taken, much) < 0
			     : ftruncate(file, taken + much) < 0)
			return -errno;
		taken += much;
	}
	return 0;
}

static int note_size(int root, const struct disk_size *size)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "%llu %llu",
		(unsigned long long)(size->bytes & ~(uint64_t)(BLOCK - 1)),
		(unsigned long long)size->inodes);
	return fsetxattr(root, SIZE_XATTR, text, strlen(text), 0) < 0 ? -errno : 0;
}

static int fill(int live, const char *id, const struct disk_size *size, unsigned int n_trees)
{
	cleanup_fd int mount = mount_named(live, NEW_FILE, id);
	cleanup_fd int root =
		mount < 0 ? mount : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = mount < 0 ? mount : root < 0 ? -errno : make_trees(root, n_trees);

	/* the file that takes the blocks is an inode too */
	if (rc == 0)
		rc = take_inodes(root, size->inodes + 1);
	if (rc == 0)
		rc = note_size(root, size);
	if (rc == 0)
		rc = take_blocks(root, size->bytes);
	return rc == 0 && syncfs(root) < 0 ? -errno : rc;
}

int disk_make(int live, const char *id, const struct disk_size *asked, unsigned int n_trees,
	struct err *err)
{
	struct disk_size size = *asked;
	const char *why = disk_why_not();
	int rc;

	if (disk_exists(live))
		return 0;
	if (why != NULL)
		return err_raise(
			err, ERR_UNSUPPORTED, "sandbox '%s' cannot have a disk: %s", id, why);
	if (size.inodes == 0)
		size.inodes = size.bytes / BYTES_AN_INODE + INODES_LEAST;
	rc = format(live, &size, err);
	if (rc < 0)
		return rc;
	rc = fill(live, id, &size, n_trees);
	if (rc == 0)
		rc = fault("store.disk.filled");
	if (rc == 0 && renameat(live, NEW_FILE, live, DISK_FILE) < 0)
		rc = -errno;
	return rc < 0 ? err_raise_sys(err, rc, "fill the new disk of sandbox '%s'", id) : 0;
}

int disk_usage(int root, struct disk_size *used)
{
	char text[64];
	ssize_t n = fgetxattr(root, SIZE_XATTR, text, sizeof(text) - 1);
	unsigned long long bytes, inodes;
	struct statvfs fs;

	if (n < 0 || fstatvfs(root, &fs) < 0)
		return errno == EOPNOTSUPP ? -ENODATA : -errno;
	text[n] = '\0';
	if (sscanf(text, "%llu %llu", &bytes, &inodes) != 2)
		return -EBADMSG;
	used->bytes =
		bytes - (fs.f_bavail * fs.f_frsize < bytes ? fs.f_bavail * fs.f_frsize : bytes);
	used->inodes = inodes - (fs.f_ffree < inodes ? fs.f_ffree : inodes);
	return 0;
}
