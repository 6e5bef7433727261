/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/rootfs_parts.c - the host image in rootless mode. */
#include "base/ablate.h"
#include "base/buf.h"
#include "base/str.h"
#include "sandbox/overlay.h"
#include "sandbox/rootfs_internal.h"
#include "store/live.h"
#include "store/tree.h"
#include "sys/cred.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/raw.h"

#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/xattr.h>

/*
 * Rootless: "/" itself cannot be a layer, because a user namespace may not separate a mount from what is mounted on it (EINVAL). So the root is an
 * overlay over our own skeleton, and each top-level directory of this list is one more overlay, whose changes lie where those of one
 * overlay over "/" would: LIVE/0/upper/NAME.
 */
static const char *const host_parts[] = { "usr", "etc", "var", "opt", "bin", "sbin", "lib", "lib32",
	"lib64", "libx32" };

int rootfs_skeleton(const char *live, struct err *err)
{
	cleanup_fd int points = rootfs_open_points(live, err);

	if (points < 0)
		return points;
	for (size_t i = 0; i < ARRAY_SIZE(host_parts); i++) {
		char path[16], to[PATH_MAX];
		ssize_t n;
		struct stat st;

		(void)snprintf(path, sizeof(path), "/%s", host_parts[i]);
		if (lstat(path, &st) < 0)
			continue;
		n = S_ISLNK(st.st_mode) ? readlink(path, to, sizeof(to) - 1) : 0;
		to[n > 0 ? n : 0] = '\0';
		if ((S_ISLNK(st.st_mode) && symlinkat(to, points, host_parts[i]) < 0 &&
			    errno != EEXIST) ||
			(S_ISDIR(st.st_mode) && mkdirat(points, host_parts[i], 0755) < 0 &&
				errno != EEXIST))
			return err_raise_sys(err, -errno, "copy '%s' of the host", path);
	}
	return 0;
}

int rootfs_skeleton_remove(const struct rootfs *r, const char *live, struct err *err)
{
	cleanup_fd int fd = -1;
	int rc;

	if (!r->rootless)
		return 0;
	fd = open(live, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	rc = fd < 0 ? -errno : tree_remove(fd, "points");
	if (rc == 0)
		rc = tree_remove(fd, "0");
	if (rc == 0)
		rc = store_live_trees(fd, 1);
	return rc < 0 ? err_raise_sys(err, rc, "take the root of the host out of '%s'", live)
		      : rootfs_points_base(live, err);
}

/* Mount points that the host has not got. */
static int add_points(const struct rootfs *r, const char *live, const char *name, struct overlay *o,
	struct err *err)
{
	char dir[PATH_MAX], path[PATH_MAX];
	int rc;

	if (snprintf(dir, sizeof(dir), "%s/points/%s", live, name) >= (int)sizeof(dir))
		return err_raise(err, ERR_INVALID, "path of '%s' is too long", live);
	rc = rootfs_in_pool(r, dir, path, err);
	if (rc == 0)
		overlay_add_lower(o, path);
	return rc;
}

/* The layers of @lower have NAME only where they say something about it. */
static int add_part_layers(const struct rootfs *r, const struct spec_layers *lower,
	const char *name, struct overlay *o, struct err *err)
{
	for (size_t i = 0; i < lower->n; i++) {
		char dir[PATH_MAX], path[PATH_MAX];
		struct stat st;
		int rc;

		if (snprintf(dir, sizeof(dir), "%s/%s", lower->dirs[i], name) >= (int)sizeof(dir))
			return err_raise(
				err, ERR_INVALID, "path of layer '%s' is too long", lower->dirs[i]);
		if (lstat(dir, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		rc = rootfs_in_pool(r, dir, path, err);
		if (rc < 0)
			return rc;
		overlay_add_lower(o, path);
	}
	return 0;
}

static void like_below(
	int live, const char *upper, const struct spec_layers *lower, const char *name)
{
	struct stat st;

	if (!rootfs_stat_below(lower, "/", name, &st))
		return;
	/* one uid only: then everything is ours anyway */
	(void)!fchownat(live, upper, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW);
	(void)!fchmodat(live, upper, st.st_mode & 07777, 0);
}

static int mount_part(struct rootfs *r, const struct spec_layers *lower, const char *live,
	const char *name, struct err *err)
{
	char path[PATH_MAX], host[PART_NAME_SIZE + 1], upper[PART_NAME_SIZE + 16],
		work[PART_NAME_SIZE + 16];
	cleanup(overlay_fini) struct overlay o = { .place = host, .devices = &r->devices };
	cleanup_fd int dir = open(live, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	bool fresh;
	int rc;

	(void)snprintf(host, sizeof(host), "/%s", name);
	(void)snprintf(upper, sizeof(upper), "0/upper/%s", name);
	(void)snprintf(work, sizeof(work), "0/work-%s", name);
	for (char *c = work + strlen("0/work-"); *c != '\0'; c++)
		*c = *c == '/' ? '-' : *c;
	fresh = dir >= 0 && faccessat(dir, upper, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
	rc = dir < 0 ? -errno : file_mkdirs_at(dir, upper, 0755);
	if (rc == 0 && fresh)
		like_below(dir, upper, lower, name);
	if (rc == 0)
		rc = file_mkdirs_at(dir, work, 0700);
	if (rc < 0)
		return err_raise_sys(err, rc, "make the tree of '%s'", host);
	rc = rootfs_in_pool(r, live, path, err);
	if (rc < 0)
		return rc;
	if (snprintf(o.upper, PATH_MAX, "%s/%s", path, upper) >= PATH_MAX ||
		snprintf(o.work, PATH_MAX, "%s/%s", path, work) >= PATH_MAX)
		return err_raise(err, ERR_INVALID, "path of '%s' is too long", live);
	rc = add_points(r, live, name, &o, err);
	if (rc == 0)
		rc = add_part_layers(r, lower, name, &o, err);
	if (rc == 0)
		rc = rootfs_stage_layer(r, host, path, sizeof(path), err);
	if (rc < 0)
		return rc;
	overlay_add_lower(&o, path);
	rc = overlay_mount(r, &o, MOUNT_ATTR_NODEV);
	return rc < 0 ? err_raise_sys(err, rc, "mount '%s' of the host", host) : rc;
}

/* Has the mask what lies directly in this directory, other than directories? */
static bool is_taken_apart(const struct spec_layers *lower, const char *name)
{
	for (size_t i = 0; i < lower->n; i++) {
		char path[PATH_MAX], value;

		if (snprintf(path, sizeof(path), "%s/%s", lower->dirs[i], name) <
				(int)sizeof(path) &&
			lgetxattr(path, "user.overlay.apart", &value, 1) == 1)
			return true;
	}
	return ablated("mask_layer");
}

/* Does a layer say that the host's entry of this name is not to be seen? A whiteout does, and a file or opaque directory in its place. */
static bool layers_hide(const struct rootfs *r, const struct spec_layers *lower, const char *name)
{
	for (size_t i = 0; i < lower->n; i++) {
		char path[PATH_MAX], value[2];
		struct stat st;

		if (snprintf(path, sizeof(path), "%s/%s", lower->dirs[i], name) >=
				(int)sizeof(path) ||
			lstat(path, &st) < 0)
			continue;
		if (!S_ISDIR(st.st_mode) ||
			lgetxattr(path,
				r->rootless ? "user.overlay.opaque" : "trusted.overlay.opaque",
				value, 1) == 1)
			return true;
	}
	return false;
}

static int add_part(struct rootfs *r, const struct spec_layers *lower, const char *live,
	const char *name, struct rootfs_parts *parts, struct err *err);

/*
 * The directory has mounts below it: its subdirectories are taken one by one instead. The rest, and what is small, is in the mask (store/mask_plan.c: plan_apart()), whose opaque
 * directories are not the host's any more.
 */
static int split_part(struct rootfs *r, const struct spec_layers *lower, const char *live,
	const char *name, struct rootfs_parts *parts, struct err *err)
{
	cleanup_fd int points = rootfs_open_points(live, err);
	char path[PART_NAME_SIZE + 1];
	struct dirent *e;
	DIR *dir;
	int rc = points < 0 ? points : 0;

	(void)snprintf(path, sizeof(path), "/%s", name);
	dir = rc < 0 ? NULL : opendir(path);
	if (dir == NULL)
		return rc; /* not ours to read, so nothing that the sandbox could read either */
	if (!is_taken_apart(lower, name))
		rc = err_hint(err,
			err_raise(
				err, ERR_BUSY, "something has just been mounted below '%s'", path),
			"try again");
	while (rc == 0 && (e = readdir(dir)) != NULL) {
		char child[PART_NAME_SIZE];

		if (e->d_type != DT_DIR || str_eq(e->d_name, ".") || str_eq(e->d_name, "..") ||
			snprintf(child, sizeof(child), "%s/%s", name, e->d_name) >=
				(int)sizeof(child) ||
			layers_hide(r, lower, child))
			continue;
		rc = file_mkdirs_at(points, child, 0755);
		if (rc == 0)
			rc = add_part(r, lower, live, child, parts, err);
		else
			(void)err_raise_sys(err, rc, "mount point '/%s'", child);
	}
	(void)closedir(dir);
	return rc;
}

static int add_part(struct rootfs *r, const struct spec_layers *lower, const char *live,
	const char *name, struct rootfs_parts *parts, struct err *err)
{
	int rc = mount_part(r, lower, live, name, err);

	if (rc == -EINVAL)
		return split_part(r, lower, live, name, parts, err);
	if (rc >= 0 && parts->n == ROOTFS_PARTS_MAX) {
		(void)close(rc);
		return err_hint(err,
			err_raise(err, ERR_UNSUPPORTED,
				"the host image: too much is mounted below /usr, /etc, /var and /opt to lay overlays beside it for an ordinary user"),
			"use an imported image: cay image import");
	}
	if (rc < 0)
		return rc;
	parts->mount[parts->n] = rc;
	return str_copy(parts->name[parts->n++], PART_NAME_SIZE, name);
}

int rootfs_parts(struct rootfs *r, const char *image, const struct spec_layers *lower,
	const char *live, struct rootfs_parts *parts, struct err *err)
{
	int rc = 0;

	parts->n = 0;
	if (!r->rootless || !str_eq(image, "host"))
		return 0;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(host_parts); i++) {
		char path[16];
		struct stat st;

		(void)snprintf(path, sizeof(path), "/%s", host_parts[i]);
		if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
			rc = add_part(r, lower, live, host_parts[i], parts, err);
	}
	while (rc < 0 && parts->n > 0)
		(void)close(parts->mount[--parts->n]);
	return rc;
}
