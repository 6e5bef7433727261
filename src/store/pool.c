/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/pool.c - the job `storage`: make, mount, unmount and describe the pool.
 *
 * A pool file is formatted under a temporary name and renamed, so STATE/pool.btrfs is always a whole file system. The mount is
 * made in the namespace of the caller (the host's) and stays until `unmount` or a reboot; the loop device frees itself with it.
 */
#include "store/pool.h"
#include "base/ablate.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/disk.h"
#include "store/live.h"
#include "store/program.h"
#include "store/verbs.h"
#include "sys/btrfs.h"
#include "sys/feature.h"
#include "sys/loop.h"
#include "sys/mount.h"

#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define POOL_FILE      "pool.btrfs"
#define POOL_SIZE_MAX  (64ULL << 30)
#define POOL_SIZE_MIN  (256ULL << 20)
#define POOL_DISCARDED "discard=async"

static const char *const pool_dirs[] = { "live", "layers", "images", "mask", "tmp", "trash",
	"sealing", "verified", "memory" };

bool pool_can_clone(int fd)
{
	cleanup_fd int from = openat(fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	cleanup_fd int to = openat(fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	return from >= 0 && to >= 0 && write(from, "x", 1) == 1 && ioctl(to, FICLONE, from) == 0;
}

const char *pool_capture_way(const struct store *store)
{
	if (store->btrfs)
		return "snapshot";
	return pool_can_clone(store->pool) ? "reflink" : "copy";
}

static uint64_t default_size(const struct store *store)
{
	struct statvfs fs;
	uint64_t room = 0;

	if (fstatvfs(store->state, &fs) == 0)
		room = (uint64_t)fs.f_bavail * fs.f_frsize / 10 * 8;
	return room < POOL_SIZE_MAX ? room & ~(uint64_t)0xFFFFF : POOL_SIZE_MAX;
}

static int format(const struct store *store, uint64_t size, struct err *err)
{
	char path[PATH_MAX + 32];
	const char *argv[] = { "/usr/sbin/mkfs.btrfs", "-q", "-m", "single", "-d", "single", path,
		NULL };
	cleanup_fd int fd = -1;
	int rc;

	if (size < POOL_SIZE_MIN)
		return err_raise(err, ERR_DISK_FULL,
			"a pool of %llu bytes is too small, at least %llu are needed",
			(unsigned long long)size, POOL_SIZE_MIN);
	(void)unlinkat(store->state, POOL_FILE ".new", 0);
	fd = openat(store->state, POOL_FILE ".new", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
		return err_raise_sys(err, -errno, "make '%s/" POOL_FILE "'", store->path);
	(void)snprintf(path, sizeof(path), "%s/" POOL_FILE ".new", store->path);
	rc = program_run(argv, err);
	if (rc == 0 && (fsync(fd) < 0 || renameat(store->state, POOL_FILE ".new", store->state,
						 POOL_FILE) < 0))
		rc = err_raise_sys(err, -errno, "keep '%s/" POOL_FILE "'", store->path);
	if (rc < 0)
		(void)unlinkat(store->state, POOL_FILE ".new", 0);
	return rc;
}

static int open_pool(struct store *store)
{
	fd_close(&store->pool);
	store->pool = openat(store->state, "pool",
		O_RDONLY | O_DIRECTORY | O_CLOEXEC | (ablated("pool_nofollow") ? 0 : O_NOFOLLOW));
	if (store->pool < 0)
		return -errno;
	store->btrfs = !store->rootless && btrfs_is(store->pool);
	return 0;
}

/* Is STATE/pool a mount of its own? */
static bool is_mounted(const struct store *store)
{
	struct stat above, pool;

	return fstat(store->state, &above) == 0 && fstat(store->pool, &pool) == 0 &&
	       above.st_dev != pool.st_dev;
}

static int mount_file(struct store *store, struct err *err)
{
	char device[LOOP_PATH_SIZE], source[LOOP_PATH_SIZE + 8], name[LOOP_NAME_SIZE];
	const char *options[] = { source, POOL_DISCARDED, NULL };
	cleanup_fd int file = openat(store->state, POOL_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	cleanup_fd int loop = -1, mount = -1, top = -1;
	struct stat st;
	int rc;

	if (file < 0 || fstat(file, &st) < 0)
		return err_raise_sys(err, -errno, "open '%s/" POOL_FILE "'", store->path);
	(void)snprintf(name, sizeof(name), "cay pool %lx:%lx", (unsigned long)st.st_dev,
		(unsigned long)st.st_ino);
	loop = loop_attach_once(file, name, device);
	if (loop < 0)
		return err_raise_sys(
			err, loop, "bind '%s/" POOL_FILE "' to a loop device", store->path);
	(void)snprintf(source, sizeof(source), "source=%s", device);
	mount = mount_fs_new(
		"btrfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
	if (mount < 0)
		return err_raise_sys(err, mount, "mount '%s/" POOL_FILE "'", store->path);
	top = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = top < 0 ? -errno : btrfs_quota_enable(top);
	if (rc < 0 && rc != -EINVAL && rc != -EOPNOTSUPP && rc != -ENOTTY)
		return err_raise_sys(err, rc, "turn on quotas in '%s/" POOL_FILE "'", store->path);
	rc = mount_attach_at(mount, store->state, "pool");
	if (rc == 0)
		rc = open_pool(store);
	return rc < 0 ? err_raise_sys(err, rc, "mount the pool on '%s/pool'", store->path) : 0;
}

static int make_dirs(const struct store *store, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(pool_dirs); i++) {
		if (mkdirat(store->pool, pool_dirs[i], store_live_mode()) < 0 && errno != EEXIST)
			return err_raise_sys(
				err, -errno, "make '%s/pool/%s'", store->path, pool_dirs[i]);
	}
	return 0;
}

static int unmount(struct store *store, struct err *err)
{
	char path[PATH_MAX + 8];
	bool mounted;

	if (open_pool(store) < 0)
		return 0;
	mounted = is_mounted(store);
	fd_close(&store->pool);
	(void)snprintf(path, sizeof(path), "%s/pool", store->path);
	if (mounted && umount2(path, UMOUNT_NOFOLLOW) < 0) {
		if (errno == EBUSY)
			return err_raise(err, ERR_BUSY, "the pool '%s' is in use", path);
		return err_raise_sys(err, -errno, "unmount '%s'", path);
	}
	return 0;
}

/*
 * A pool whose file could not grow (the disk below it was full) is read-only from then on. Mounted anew it is as it was at its last commit; but as long as a
 * sandbox holds it, it is the same mount that comes back.
 */
static int mount_anew(struct store *store, struct err *err)
{
	int rc = is_mounted(store) ? unmount(store, err) : 0;

	if (rc == 0)
		rc = mount_file(store, err);
	/* EINVAL: the mount that sandboxes hold stays what it is, also where it is no longer on its place */
	if (rc != -EINVAL && !store_is_broken(store))
		return rc;
	return err_hint(err,
		err_raise(err, ERR_BUSY,
			"the pool '%s/pool' is read-only after an error and sandboxes still use it, or its file is damaged (the kernel's log says so then)",
			store->path),
		"stop every sandbox (cay stop), make room on the disk of '%s', then run 'cay storage init'",
		store->path);
}

static int mount_pool(struct store *store, struct err *err)
{
	int rc = mkdirat(store->state, "pool", 0700) < 0 && errno != EEXIST ? -errno : 0;

	if (rc == 0)
		rc = open_pool(store);
	if (rc < 0)
		return err_raise_sys(err, rc, "make '%s/pool'", store->path);
	if (!store->rootless && faccessat(store->state, POOL_FILE, F_OK, 0) == 0 &&
		!is_mounted(store))
		return mount_anew(store, err);
	return store_is_broken(store) ? mount_anew(store, err) : 0;
}

/* Why there is no pool file; NULL when there can be one. */
static const char *why_directory(const struct store *store, const json_t *request)
{
	const char *kind = json_string_value(json_object_get(request, "kind"));

	if (store->rootless)
		return "an ordinary user cannot mount a pool file";
	if (kind != NULL && str_eq(kind, "directory"))
		return "a directory was asked for";
	if (!feature_has(FEATURE_BTRFS_SQUOTA))
		return "this kernel has no btrfs with simple quotas";
	if (access("/usr/sbin/mkfs.btrfs", X_OK) < 0)
		return "mkfs.btrfs is not installed (package btrfs-progs)";
	if (access("/dev/loop-control", W_OK) < 0)
		return "there are no loop devices";
	return NULL;
}

static int init(struct job *job, const char **reason, struct err *err)
{
	struct store *store = &job->store;
	unsigned char key[32];
	uint64_t size;
	bool made = faccessat(store->state, "pool/layers", F_OK, 0) == 0 ||
		    faccessat(store->state, POOL_FILE, F_OK, 0) == 0;
	int rc = job_number(job->request, "size_bytes", default_size(store), &size, err);

	if (rc == 0 && !made && job_flag(job->request, "expected", false))
		return err_hint(err,
			err_raise(err, ERR_CORRUPT,
				"the pool of '%s' is gone (pool.btrfs, or what was in pool/), and with it the files of all that the catalogue knows",
				store->path),
			"put it back, then run 'cay storage init'; to begin anew move cay.db away, too");
	*reason = made ? NULL : why_directory(store, job->request);
	if (rc == 0 && !made && *reason == NULL) {
		rc = format(store, size, err);
		if (rc == -EOPNOTSUPP) {
			*reason = "mkfs.btrfs failed";
			*err = (struct err){ 0 };
			rc = 0;
		}
	}
	if (rc == 0)
		rc = mount_pool(store, err);
	/* A kernel without btrfs: the file is useless, the directory below it is not. */
	if (rc == -ENODEV && !made) {
		*reason = "this kernel has no btrfs";
		*err = (struct err){ 0 };
		rc = unlinkat(store->state, POOL_FILE, 0) < 0
			     ? err_raise_sys(err, -errno, "remove the pool file")
			     : 0;
	}
	if (rc == 0)
		rc = make_dirs(store, err);
	if (rc == 0) {
		rc = store_key(store, key);
		if (rc < 0)
			(void)store_key_failed(store, rc, err);
	}
	return rc;
}

/* There is a pool file, and it is not mounted: STATE/pool is then the place for it, and nothing else. */
static bool is_away(const struct store *store)
{
	return !store->rootless && faccessat(store->state, POOL_FILE, F_OK, 0) == 0 &&
	       !is_mounted(store);
}

static json_t *describe(const struct store *store, const char *reason)
{
	struct statvfs fs = { 0 };
	bool there = store->pool >= 0 && !is_away(store);
	bool quota = there && store->btrfs && btrfs_quota_works(store->pool);
	const char *disks = there && disk_why_not() == NULL ? "disk" : "none";
	bool file = faccessat(store->state, POOL_FILE, F_OK, 0) == 0;

	if (there)
		(void)fstatvfs(store->pool, &fs);
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:o, s:o}", "kind",
		!there         ? "none"
		: store->btrfs ? "btrfs"
			       : "directory",
		"capture", there ? pool_capture_way(store) : "none", "disk_limit",
		quota ? "quota" : disks, "inode_limit", disks, "writable",
		there && !store_is_broken(store), "bytes_total",
		(json_int_t)((uint64_t)fs.f_blocks * fs.f_frsize), "bytes_free",
		(json_int_t)((uint64_t)fs.f_bavail * fs.f_frsize), "file",
		file ? json_sprintf("%s/" POOL_FILE, store->path) : json_null(), "reason",
		reason != NULL ? json_string(reason) : json_null());
}

/* Alone: a storage job of a server that was killed may still be mounting or unmounting. To unmount is not worth a wait. */
static int begin(struct job *job, const char *op, struct err *err)
{
	uint64_t wait_ms;
	int rc = job_number(
		job->request, "wait_ms", str_eq(op, "unmount") ? 0 : STORE_WAIT_MS, &wait_ms, err);

	if (rc == 0)
		rc = store_lock(&job->store, true, (unsigned int)wait_ms, err);
	if (rc == 0 && fault("store.storage.locked") < 0)
		rc = err_raise_sys(err, -EIO, "prepare the storage");
	return rc;
}

int store_storage(struct job *job, json_t **ok, struct err *err)
{
	const char *op = job_text(job->request, "op", err), *reason = NULL;
	int rc = 0;

	if (op == NULL)
		return -EINVAL;
	if (!str_eq(op, "info"))
		rc = begin(job, op, err);
	if (rc < 0)
		return rc;
	if (str_eq(op, "init"))
		rc = init(job, &reason, err);
	else if (str_eq(op, "mount"))
		rc = mount_pool(&job->store, err);
	else if (str_eq(op, "unmount"))
		rc = unmount(&job->store, err);
	else if (str_eq(op, "info"))
		(void)open_pool(&job->store);
	else
		rc = err_raise(err, ERR_INVALID, "storage has no operation '%s'", op);
	if (rc == 0)
		*ok = describe(&job->store, reason);
	return rc;
}
