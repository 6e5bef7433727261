/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sandbox/box_running.c - what is asked of a sandbox that has been built: its namespaces and terminals, what it has written and may write.
 *
 * Nothing is kept open for that (thousands of sandboxes wait most of the time): namespaces and /dev/pts are reached through PID 1, which is our child and in
 * place for as long as there is anything to reach, the live directory by its path.
 */
#include "base/log.h"
#include "base/str.h"
#include "sandbox/box.h"
#include "store/disk.h"
#include "store/live.h"
#include "store/source.h"
#include "sys/btrfs.h"
#include "sys/cred.h"
#include "sys/file.h"
#include "sys/raw.h"

#include <dirent.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* What must still fit for a disk not to be full. */
#define PROBE_LEAST 32768U
#define PROBE_MOST  (1U << 20)

int box_program(const struct box_config *config, const char *name)
{
	char path[PATH_MAX];
	int fd;

	if (snprintf(path, sizeof(path), "%s/%s", config->programs, name) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* What /proc shows of PID 1 under @name. */
static int open_of_init(const struct box *box, const char *name, int flags)
{
	char path[64];
	int fd;

	if (box->init_pid == 0 || box->init_gone)
		return -ESRCH;
	(void)snprintf(path, sizeof(path), "/proc/%d/%s", box->init_pid, name);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int box_namespace(const struct box *box, const char *name)
{
	char path[32];

	(void)snprintf(path, sizeof(path), "ns/%s", name);
	return open_of_init(box, path, O_RDONLY);
}

int box_payload_userns(const struct box *box)
{
	int fd;

	if (box->u2 < 0)
		return box_namespace(box, "user");
	fd = fcntl(box->u2, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int box_netlink(const struct box *box, int protocol)
{
	cleanup_fd int netns = box_namespace(box, "net");

	return netns < 0 ? netns : network_netlink(netns, protocol);
}

static void live_path(const struct box *box, char path[PATH_MAX])
{
	(void)snprintf(path, PATH_MAX, "%s/pool/live/%s", box->config->state, box->id);
}

/* The top of its trees; on a disk of its own it is open. */
static int open_live(const struct box *box)
{
	char path[PATH_MAX];
	int fd;

	live_path(box, path);
	fd = box->live >= 0 ? fcntl(box->live, F_DUPFD_CLOEXEC, 0)
			    : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

/* A program that was refused a large write leaves what is too little for it: that is full too. */
static size_t probe_size(int live)
{
	struct statvfs fs;
	uint64_t part;

	if (disk_usage(live, &(struct disk_size){ 0 }) < 0 || fstatvfs(live, &fs) < 0)
		return PROBE_LEAST;
	part = (uint64_t)fs.f_blocks * fs.f_frsize / 32;
	return part < PROBE_LEAST ? PROBE_LEAST : part > PROBE_MOST ? PROBE_MOST : (size_t)part;
}

/* A file could not be made. btrfs counts what it would need for that as bytes, and has no number of inodes to run out of. */
static const char *full_of_what(int live)
{
	struct statvfs fs;

	return fstatvfs(live, &fs) == 0 && fs.f_files > 0 && fs.f_ffree == 0 ? "inodes" : "disk";
}

const char *box_disk_full(const struct box *box)
{
	static const char zeroes[PROBE_MOST];
	cleanup_fd int live = open_live(box), probe = -1;
	int rc;

	if (live < 0)
		return NULL;
	probe = openat(live, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (probe < 0)
		return errno == EDQUOT || errno == ENOSPC ? full_of_what(live) : NULL;
	rc = file_write_all(probe, zeroes, probe_size(live));
	return rc == -EDQUOT || rc == -ENOSPC ? "disk" : NULL;
}

static uint64_t used_bytes(int live)
{
	struct disk_size used;
	uint64_t bytes;

	if (disk_usage(live, &used) == 0)
		return used.bytes;
	return btrfs_is(live) && btrfs_subvolume_usage(live, &bytes) == 0 ? bytes : UINT64_MAX;
}

uint64_t box_disk_bytes(const struct box *box)
{
	cleanup_fd int live = open_live(box);

	return live < 0 ? UINT64_MAX : used_bytes(live);
}

int box_charge(struct box *box, uint64_t bytes)
{
	uint64_t limit = box->spec.disk_bytes, used;
	cleanup_fd int live = -1;
	int rc;

	if (limit == 0)
		return 0;
	live = open_live(box);
	if (live < 0)
		return live;
	used = used_bytes(live);
	if (used == UINT64_MAX)
		used = 0;
	if (used + box->charged + bytes >= limit)
		return -EDQUOT;
	rc = store_live_limit(live, limit - box->charged - bytes);
	if (rc == 0)
		box->charged += bytes;
	return rc;
}

/* Nothing inside can mount, so what is mounted there is what the builder has put there; a look costs little. */
static int open_pts(const struct box *box)
{
	cleanup_fd int root = open_of_init(box, "root", O_PATH | O_DIRECTORY), pts = -1;
	struct statfs fs;

	if (root < 0)
		return root;
	pts = raw_openat2(
		root, "dev/pts", O_PATH | O_DIRECTORY, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (pts < 0)
		return pts;
	if (fstatfs(pts, &fs) < 0)
		return -errno;
	return fs.f_type == DEVPTS_SUPER_MAGIC ? TAKE_FD(pts) : -ENODEV;
}

int box_null(const struct box *box)
{
	cleanup_fd int root = open_of_init(box, "root", O_PATH | O_DIRECTORY), null = -1;
	char path[64];
	struct stat st;
	int fd;

	if (root < 0)
		return root;
	null = raw_openat2(root, "dev/null", O_PATH, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (null < 0)
		return null;
	/* where the image's own /dev is left in place (ablation) it may be a pipe, which would be waited for */
	if (fstat(null, &st) < 0)
		return -errno;
	if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
		return -ENODEV;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", null);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static int open_master(const struct box *box)
{
	cleanup_fd int pts = open_pts(box), master = -1;
	int unlock = 0, rc;

	if (pts < 0)
		return pts;

	/* the inode of the new terminal belongs to whoever opens the multiplexer */
	if (!box->config->rootless) {
		rc = cred_set_fsids(box->rootfs.base, box->rootfs.base);
		if (rc < 0)
			return rc;
	}
	master = openat(pts, "ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
	rc = master < 0 ? -errno : 0;
	if (!box->config->rootless && cred_set_fsids(0, 0) < 0)
		return -EPERM;
	if (rc < 0)
		return rc;
	return ioctl(master, TIOCSPTLCK, &unlock) < 0 ? -errno : TAKE_FD(master);
}

int box_terminal(const struct box *box, int *ret_slave)
{
	cleanup_fd int master = open_master(box);
	int slave;

	if (master < 0)
		return master;
	slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		return -errno;
	*ret_slave = slave;
	return TAKE_FD(master);
}

int box_terminal_numbered(const struct box *box, uint32_t number)
{
	cleanup_fd int master = open_master(box);
	unsigned int got;

	if (master < 0)
		return master;
	if (ioctl(master, TIOCGPTN, &got) < 0)
		return -errno;
	if (got == number)
		return TAKE_FD(master);
	/* the kernel gives the lowest that is free: with this one held it is the next */
	return got > number ? -EEXIST : box_terminal_numbered(box, number);
}

/* Attributes that overlayfs itself keeps on the top of an upper tree do not count. */
static bool has_own_xattr(int dir)
{
	char names[4096];
	ssize_t n = flistxattr(dir, names, sizeof(names));

	for (const char *p = names; n > 0 && p < names + n; p += strlen(p) + 1) {
		if (!str_starts(p, "trusted.overlay.") && !str_starts(p, "user.overlay."))
			return true;
	}
	return n < 0 && errno != EOPNOTSUPP;
}

static bool has_entry(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	DIR *dir = copy < 0 ? NULL : fdopendir(copy);
	const struct dirent *e = NULL;

	if (dir == NULL) {
		if (copy >= 0)
			(void)close(copy);
		return true;
	}
	errno = 0;
	do
		e = readdir(dir);
	while (e != NULL && (str_eq(e->d_name, ".") || str_eq(e->d_name, "..")));
	(void)closedir(dir);
	return e != NULL || errno != 0;
}

static bool tree_changed(int live, const struct spec_mount *m)
{
	cleanup_fd int upper = -1, place = source_find(m->source);
	struct stat now, source;
	char path[32];

	(void)snprintf(path, sizeof(path), "%u/upper", m->tree);
	upper = raw_openat2(
		live, path, O_RDONLY | O_DIRECTORY, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (upper < 0 || fstat(upper, &now) < 0 || place < 0 || fstat(place, &source) < 0)
		return true;
	return now.st_mode != source.st_mode || now.st_uid != source.st_uid ||
	       now.st_gid != source.st_gid || has_own_xattr(upper) || has_entry(upper);
}

/* What was foreseen is the first of its mounts. Return: how many need no further look. */
static size_t untouched(const struct box *box)
{
	char path[PATH_MAX];

	live_path(box, path);
	if (box->rootfs.disk[0] != '\0' || !foresight_untouched(&box->foresight, path))
		return 0;
	log_debug("keeper", "what was foreseen of sandbox '%s' is untouched", box->id);
	return 1;
}

bool box_changed(const struct box *box)
{
	const struct spec *spec = &box->spec;
	cleanup_fd int live = -1;

	for (size_t i = untouched(box); i < spec->n_mounts; i++) {
		if (spec->mounts[i].mode != MOUNT_COW)
			continue;
		if (live < 0)
			live = open_live(box);
		if (live < 0 || tree_changed(live, &spec->mounts[i]))
			return true;
	}
	return false;
}

/* --- what is lent --- */

/* What is left to programs that have taken more than was asked for, or the next page that one of them touches, to give something up, ends it. */
#define LOAN_SLACK (1U << 20)

void box_lend_ready(struct box *box)
{
	if (box->pids_max < 0 && box_group_limits(&box->done).pids != 0)
		box->pids_max = cgroup_pids_open(&box->cgroup);
}

void box_lend_pids(struct box *box, uint64_t n)
{
	uint64_t asked = box_group_limits(&box->done).pids;

	if (n != box->lent.pids)
		box_lend_ready(box);
	if (box->pids_max >= 0 && n != box->lent.pids &&
		cgroup_lend_pids(box->pids_max, asked + n) == 0)
		box->lent.pids = n;
	if (box->lent.pids == 0)
		fd_close(&box->pids_max);
}

/* Return: 0 or -errno. */
static int lend_bytes(struct box *box, uint64_t bytes)
{
	uint64_t asked = box_group_limits(&box->done).memory_bytes;
	int rc = bytes == box->lent.memory_bytes
			 ? 0
			 : cgroup_lend_memory(
				   &box->cgroup, asked + box->lent.memory_bytes, asked + bytes);

	if (rc == 0)
		box->lent.memory_bytes = bytes;
	return rc;
}

void box_lend_memory(struct box *box)
{
	uint64_t asked = box_group_limits(&box->done).memory_bytes,
		 used = cgroup_memory(&box->cgroup);

	if (asked != 0 && used != UINT64_MAX)
		(void)!lend_bytes(box, used < asked ? used : asked);
}

uint64_t box_take_back_memory(struct box *box)
{
	uint64_t asked = box_group_limits(&box->done).memory_bytes, used;

	if (lend_bytes(box, 0) == 0)
		return 0;
	used = cgroup_memory(&box->cgroup) + LOAN_SLACK;
	if (used > asked && used - asked < box->lent.memory_bytes)
		(void)!lend_bytes(box, used - asked);
	return box->lent.memory_bytes;
}
