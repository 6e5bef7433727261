/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/rootfs.h"
#include "base/ablate.h"
#include "base/buf.h"
#include "base/credential.h"
#include "base/str.h"
#include "sandbox/overlay.h"
#include "sandbox/ownermap.h"
#include "sandbox/rootfs_internal.h"
#include "store/source.h"
#include "sys/cred.h"
#include "sys/feature.h"
#include "sys/file.h"
#include "sys/mount.h"
#include "sys/mountinfo.h"
#include "sys/raw.h"

#include <dirent.h>
#include <limits.h>
#include <linux/magic.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

/* Nodes of our own, behind a mount where they work; where they cannot be made the builder takes the host's. */
static int make_devices(const struct rootfs *r)
{
	static const struct {
		const char *name;
		unsigned int major, minor;
	} nodes[] = { { "null", 1, 3 }, { "zero", 1, 5 }, { "full", 1, 7 }, { "random", 1, 8 },
		{ "urandom", 1, 9 }, { "tty", 5, 0 } };
	cleanup_fd int mount = -1;
	int rc;

	if (mkdirat(r->stage, "dev", 0755) < 0)
		return -errno;
	if (r->rootless || ablated("own_device_nodes"))
		return 0;
	mount = mount_clone(r->stage, "dev", false);
	rc = mount < 0 ? mount : mount_clear(mount, MOUNT_ATTR_NODEV);
	if (rc == 0)
		rc = mount_attach_at(mount, r->stage, "dev");
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(nodes); i++) {
		if (mknodat(mount, nodes[i].name, S_IFCHR | 0600,
			    makedev(nodes[i].major, nodes[i].minor)) < 0)
			return errno == EPERM ? 0 : -errno;
		/* not by mknod: the umask */
		if (fchmodat(mount, nodes[i].name, 0666, 0) < 0)
			rc = -errno;
	}
	return rc;
}

/* Is a pool of another instance mounted at @m? Its path does not say: a directory above the state may be a symbolic link. */
static bool is_foreign_pool(const char *state, const struct mountinfo *m)
{
	char file[PATH_MAX + sizeof(".btrfs")], own[PATH_MAX];
	struct stat found, ours;

	if (!str_eq(m->type, "btrfs") || !str_ends(m->point, "/pool"))
		return false;
	(void)snprintf(file, sizeof(file), "%s.btrfs", m->point);
	(void)snprintf(own, sizeof(own), "%s/pool", state);
	if (access(file, F_OK) < 0 || stat(m->point, &found) < 0)
		return false;
	return stat(own, &ours) < 0 || ours.st_dev != found.st_dev;
}

/* A copy in our mount namespace would hold it for as long as the sandbox runs: its instance could not mount it anew behind a full disk. */
static int leave_foreign_pool(void *ctx, const struct mountinfo *m)
{
	const struct rootfs *r = ctx;

	if (is_foreign_pool(r->state, m))
		(void)umount2(m->point, MNT_DETACH | UMOUNT_NOFOLLOW);
	return 0;
}

int rootfs_init(struct rootfs *r, const char *state, bool rootless, struct err *err)
{
	static const char *const options[] = { "mode=711", "size=64k", "nr_inodes=1024", NULL };
	int rc;

	*r = (struct rootfs){ .stage = -1, .userns = -1, .state = state, .rootless = rootless };
	if (unshare(CLONE_NEWNS) < 0)
		return err_raise_sys(err, -errno, "make the keeper's mount namespace");
	rc = mount_propagation(ablated("mount_private") ? MS_SLAVE : MS_PRIVATE);
	if (rc < 0)
		return err_raise_sys(err, rc, "stop mount propagation");
	if (!rootless && !ablated("mount_private"))
		rc = mountinfo_each("/proc/self/mountinfo", leave_foreign_pool, r);
	if (rc < 0)
		return err_raise_sys(err, rc, "leave the pools of other instances");
	r->stage = mount_fs_new(
		"tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
	rc = r->stage < 0 ? r->stage : mount_attach_at(r->stage, AT_FDCWD, ROOTFS_STAGE);
	if (rc == 0)
		rc = make_devices(r);
	return rc < 0 ? err_raise_sys(err, rc, "mount the staging file system") : 0;
}

/* Translate the ids of a detached copy of a mount, in root mode. @copy: taken; an error is passed on. Return: the copy. */
static int map_copy(const struct rootfs *r, int copy, int userns)
{
	cleanup_fd int mount = copy;
	int rc;

	if (mount < 0)
		return mount;
	if (!r->rootless) {
		rc = mount_set_idmap(mount, userns);
		if (rc < 0) /* EINVAL: its file system takes none */
			return rc == -EINVAL ? -EOPNOTSUPP : rc;
	}
	return TAKE_FD(mount);
}

/* Mounts that a user namespace inherited are locked together: they come as a whole or not at all. */
static int clone_layer(const struct rootfs *r, const char *dir)
{
	return map_copy(r, mount_clone(AT_FDCWD, dir, r->rootless), r->userns);
}

/* The same of what is behind @fd. */
static int clone_found(const struct rootfs *r, int fd, int userns)
{
	return map_copy(r, mount_clone_fd(fd, r->rootless), userns);
}

/* Give a detached mount a path below the staging directory. */
static int stage_mount(struct rootfs *r, int mount, char *path, size_t size)
{
	char name[16];
	int rc;

	(void)snprintf(name, sizeof(name), "%u", r->n_attached++);
	if (mkdirat(r->stage, name, 0755) < 0)
		return -errno;
	rc = mount_attach_at(mount, r->stage, name);
	if (rc == 0)
		(void)snprintf(path, size, ROOTFS_STAGE "/%s", name);
	return rc;
}

static bool is_on_overlay(const char *dir)
{
	struct statfs fs;

	return statfs(dir, &fs) == 0 && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

/* A mount of @dir could not be made. @what: what it was to be. */
static int refuse(const char *what, const char *dir, int rc, struct err *err)
{
	if (rc != -EOPNOTSUPP)
		return source_refuse(what, dir, rc, err);
	if (!is_on_overlay(dir))
		return err_hint(err,
			err_raise(err, ERR_HOST,
				"'%s' is on a file system that takes no map of ids", dir),
			"tmpfs takes one from Linux 6.3 on, NFS never, FUSE rarely: use a directory on ext4, XFS or btrfs, or a server of an ordinary user's");
	return err_hint(err,
		err_raise(err, ERR_HOST,
			"'%s' is on an overlay, as in a container, which takes no map of ids", dir),
		"%s",
		str_eq(dir, "/") ? "use an imported image: cay image import"
				 : "what is on another file system can be used");
}

/* cay's own files may lie behind a link of the machine's. */
static int find_source(const struct rootfs *r, const struct spec_mount *m)
{
	if (str_path_under(m->source, r->state))
		return raw_openat2(AT_FDCWD, m->source, O_PATH, 0, 0);
	return source_find(m->source);
}

/* Attach a layer below the staging directory, where overlayfs can find it by path; @path receives that path. */
int rootfs_stage_layer(struct rootfs *r, const char *dir, char *path, size_t size, struct err *err)
{
	cleanup_fd int mount = clone_layer(r, dir);
	int rc = mount;

	if (rc >= 0)
		rc = stage_mount(r, mount, path, size);
	return rc < 0 ? refuse("layer", dir, rc, err) : 0;
}

/* Once: the whole pool as one idmapped mount, under which all its layers have paths. */
static int stage_pool(struct rootfs *r, struct err *err)
{
	char dir[PATH_MAX];

	if (r->pool[0] != '\0')
		return 0;
	(void)snprintf(dir, sizeof(dir), "%s/pool", r->state);
	return rootfs_stage_layer(r, dir, r->pool, sizeof(r->pool), err);
}

/* Path of a pool directory as seen through the staged, idmapped mount of the pool. */
int rootfs_in_pool(const struct rootfs *r, const char *dir, char *path, struct err *err)
{
	char pool[PATH_MAX];

	(void)snprintf(pool, sizeof(pool), "%s/pool", r->state);
	if (!str_path_under(dir, pool))
		return err_raise(err, ERR_INVALID, "layer '%s' is not in the pool", dir);
	if (snprintf(path, PATH_MAX, "%s%s", r->pool, dir + strlen(pool)) >= PATH_MAX)
		return err_raise(err, ERR_INVALID, "path of layer '%s' is too long", dir);
	return 0;
}

static int add_layers(const struct rootfs *r, const struct spec_layers *layers, struct overlay *o,
	struct err *err)
{
	char path[PATH_MAX];

	for (size_t i = 0; i < layers->n; i++) {
		int rc = rootfs_in_pool(r, layers->dirs[i], path, err);

		if (rc < 0)
			return rc;
		overlay_add_lower(o, path);
	}
	return 0;
}

int rootfs_disk(struct rootfs *r, int mount)
{
	int rc = mount_set_idmap(mount, r->userns);

	return rc < 0 ? rc : stage_mount(r, mount, r->disk, sizeof(r->disk));
}

static int set_upper(const struct rootfs *r, const char *live, unsigned int tree, struct overlay *o,
	struct err *err)
{
	char dir[PATH_MAX];
	int rc = r->disk[0] != '\0' ? str_copy(dir, sizeof(dir), r->disk)
				    : rootfs_in_pool(r, live, dir, err);

	if (rc < 0)
		return rc;
	if (snprintf(o->upper, PATH_MAX, "%s/%u/upper", dir, tree) >= PATH_MAX ||
		snprintf(o->work, PATH_MAX, "%s/%u/work", dir, tree) >= PATH_MAX)
		return err_raise(err, ERR_INVALID, "path of '%s' is too long", live);
	return 0;
}

/*
 * The host's root as others see it, whatever appears in it later (struct overlay, @stranger): root inside owns it by the map of ids. Above an empty directory,
 * because a lone layer is not allowed. It also is another tree than "/": overlayfs refuses (ELOOP) a layer whose directory lies below another layer's, as
 * a pool on the root file system does.
 */
static int veil_root(struct rootfs *r, char *path, size_t size)
{
	cleanup(overlay_fini) struct overlay o = { .stranger = true };
	char empty[PATH_MAX];
	cleanup_fd int mount = -1;

	(void)snprintf(empty, sizeof(empty), ROOTFS_STAGE "/empty");
	if (mkdirat(r->stage, "empty", 0755) < 0 && errno != EEXIST)
		return -errno;
	overlay_add_lower(&o, empty);
	overlay_add_lower(&o, path);
	mount = overlay_mount(r, &o, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
	return mount < 0 ? mount : stage_mount(r, mount, path, size);
}

static int stage_host_root(struct rootfs *r, char *path, size_t size, struct err *err)
{
	int rc = rootfs_stage_layer(r, "/", path, size, err);

	if (rc < 0)
		return rc;
	rc = veil_root(r, path, size);
	return rc < 0 ? err_raise_sys(err, rc, "mount the host's root as others see it") : 0;
}

/*
 * What a sandbox shows as directory NAME before it changes anything: that of the topmost layer that has one, else the image's. Layers hold what
 * sandboxes wrote: no link of theirs is followed.
 */
bool rootfs_stat_below(
	const struct spec_layers *lower, const char *image, const char *name, struct stat *st)
{
	for (size_t i = 0; i <= lower->n; i++) {
		cleanup_fd int layer = open(i < lower->n ? lower->dirs[i] : image,
			O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		cleanup_fd int dir = layer < 0 ? -1
					       : raw_openat2(layer, name, O_PATH | O_DIRECTORY, 0,
							 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);

		if (dir >= 0 && fstat(dir, st) == 0)
			return true;
	}
	return false;
}

/* The image as the lowest layer of the root. */
static int add_image(
	struct rootfs *r, const char *image, const char *live, struct overlay *o, struct err *err)
{
	char path[PATH_MAX], dir[PATH_MAX];
	int rc;

	if (str_eq(image, "host") && r->rootless)
		return rootfs_skeleton(live, err);
	if (str_eq(image, "host")) {
		rc = stage_host_root(r, path, sizeof(path), err);
	} else {
		(void)snprintf(dir, sizeof(dir), "%s/pool/images/%s/rootfs", r->state, image);
		rc = rootfs_in_pool(r, dir, path, err);
	}
	if (rc == 0)
		overlay_add_lower(o, path);
	return rc;
}

/* A layer that is not there is named: a power cut may have taken it, with the snapshot that was not durable. */
static int mount_failed(const struct overlay *o, int rc, struct err *err)
{
	for (size_t i = 0; rc == -ENOENT && i < o->n; i++) {
		const char *layer = strstr(o->lower[i], "/layers/");

		if (layer != NULL && access(o->lower[i], F_OK) < 0 && errno == ENOENT)
			return err_raise(err, ERR_CORRUPT, "layer '%.*s' of its files is missing",
				ID_LEN, layer + strlen("/layers/"));
	}
	return err_raise_sys(err, rc, "mount the root overlay");
}

int rootfs_root(struct rootfs *r, const char *image, const struct spec_layers *lower,
	const char *live, struct err *err)
{
	cleanup(overlay_fini) struct overlay o = { .place = "/", .devices = &r->devices };
	char path[PATH_MAX], dir[PATH_MAX];
	int rc = stage_pool(r, err);

	if (rc < 0)
		return rc;
	(void)snprintf(dir, sizeof(dir), "%s/points", live);
	rc = rootfs_in_pool(r, dir, path, err);
	if (rc < 0)
		return rc;
	overlay_add_lower(&o, path);
	rc = add_layers(r, lower, &o, err);
	if (rc < 0)
		return rc;
	rc = add_image(r, image, live, &o, err);
	if (rc < 0)
		return rc;
	rc = set_upper(r, live, 0, &o, err);
	if (rc < 0)
		return rc;
	rc = overlay_mount(r, &o, MOUNT_ATTR_NODEV);
	return rc < 0 ? mount_failed(&o, rc, err) : rc;
}

/* Of every directory of the host that a sandbox shows. */
static unsigned int data_attrs(void)
{
	return MOUNT_ATTR_NOSUID | (ablated("nodev_mounts") ? 0 : MOUNT_ATTR_NODEV);
}

struct below {
	const char *dir;
	char place[PATH_MAX];
};

static int find_below(void *ctx, const struct mountinfo *m)
{
	struct below *b = ctx;

	return !str_eq(m->point, b->dir) && str_path_under(m->point, b->dir) &&
	       str_copy(b->place, sizeof(b->place), m->point) == 0;
}

/* An ordinary user's namespace has the machine's mounts locked together: the kernel takes no directory with such a one below it as a layer. */
static int refuse_cow(const struct rootfs *r, const struct spec_mount *m, int rc, struct err *err)
{
	struct below b = { .dir = m->source };

	if (rc != -EINVAL || !r->rootless ||
		mountinfo_each("/proc/self/mountinfo", find_below, &b) <= 0)
		return err_raise_sys(err, rc, "mount '%s' copy-on-write", m->source);
	return err_hint(err,
		err_raise(err, ERR_UNSUPPORTED,
			"mount '%s' copy-on-write: another file system is mounted below it, at '%s', and the kernel lays no overlay over that for an ordinary user",
			m->source, b.place),
		"mount directories that have none below them, or this one with :ro or :rw");
}

/* The directory of a cow mount as a layer. */
static int stage_source(
	struct rootfs *r, const struct spec_mount *m, char *path, size_t size, struct err *err)
{
	cleanup_fd int source = find_source(r, m);
	cleanup_fd int mount = source < 0 ? source : clone_found(r, source, r->userns);
	int rc = mount < 0 ? mount : stage_mount(r, mount, path, size);

	return rc < 0 ? refuse("layer", m->source, rc, err) : 0;
}

int rootfs_cow(struct rootfs *r, const struct spec_mount *m, const char *live, char *staged,
	size_t size, struct err *err)
{
	cleanup(overlay_fini) struct overlay o = { .place = m->target, .devices = &r->devices };
	int rc = stage_pool(r, err);

	if (rc == 0)
		rc = add_layers(r, &m->lower, &o, err);
	if (rc == 0)
		rc = stage_source(r, m, staged, size, err);
	if (rc < 0)
		return rc;
	overlay_add_lower(&o, staged);
	rc = set_upper(r, live, m->tree, &o, err);
	if (rc < 0)
		return rc;
	rc = overlay_mount(r, &o, data_attrs());
	return rc < 0 ? refuse_cow(r, m, rc, err) : rc;
}

/* A directory of an ordinary user that the payload may write: root inside is that user there, and nobody is root on disk. */
static int clone_writable(const struct rootfs *r, int source)
{
	cleanup_fd int userns = -1;
	struct stat st;

	if (fstat(source, &st) < 0)
		return -errno;
	if (r->rootless || st.st_uid == 0 || st.st_gid == 0 || ablated("rw_owner"))
		return clone_found(r, source, r->userns);
	userns = ownermap_userns(st.st_uid, st.st_gid, r->base);
	return userns < 0 ? userns : clone_found(r, source, userns);
}

/* The server has judged the text; here, where everything can be looked at, what the path really is. */
static int check_exposed(const struct rootfs *r, const char *path, struct err *err)
{
	cleanup_free char *real = realpath(path, NULL), *state = realpath(r->state, NULL);
	const char *what = credential_exposed(path);

	if (what == NULL && real != NULL && state != NULL &&
		(str_path_under(real, state) || str_path_under(state, real)))
		what = "cay's own files";
	if (what == NULL || ablated("expose_credentials"))
		return 0;
	return credential_refuse(path, what, err);
}

/* A file in the staging file system, which is gone with its last mount. */
static int text_mount(struct rootfs *r, const char *text)
{
	char name[16];
	int rc;

	(void)snprintf(name, sizeof(name), "%u", r->n_attached++);
	rc = file_create_at(r->stage, name, 0644, text, strlen(text));
	if (rc == 0 && !r->rootless && fchownat(r->stage, name, r->base, r->base, 0) < 0)
		rc = -errno;
	return rc < 0 ? rc : mount_clone(r->stage, name, false);
}

static int source_mount(struct rootfs *r, const struct spec_mount *m)
{
	cleanup_fd int source = -1;

	if (m->text != NULL)
		return text_mount(r, m->text);
	source = find_source(r, m);
	if (source < 0)
		return source;
	return m->mode == MOUNT_RW ? clone_writable(r, source) : clone_found(r, source, r->userns);
}

static int plain_mount(struct rootfs *r, const struct spec_mount *m, struct err *err)
{
	unsigned int attrs = data_attrs();
	cleanup_fd int mount = source_mount(r, m);
	int rc = mount;

	if (m->mode == MOUNT_RO && !ablated("readonly_mounts"))
		attrs |= MOUNT_ATTR_RDONLY;
	if (rc >= 0)
		rc = mount_set(mount, attrs, r->rootless);
	if (rc < 0 && m->text != NULL)
		return err_raise_sys(err, rc, "make the file '%s'", m->target);
	return rc < 0 ? refuse("mount", m->source, rc, err) : TAKE_FD(mount);
}

int rootfs_mounts(struct rootfs *r, const struct spec *spec, size_t first, const char *live,
	int *mounts, struct err *err)
{
	char staged[64];
	size_t n;
	int rc = 0;

	for (n = 0; first + n < spec->n_mounts; n++) {
		const struct spec_mount *m = &spec->mounts[first + n];

		rc = m->exposed ? check_exposed(r, m->source, err) : 0;
		if (rc == 0)
			rc = m->mode == MOUNT_COW && !ablated("cow_mounts")
				     ? rootfs_cow(r, m, live, staged, sizeof(staged), err)
				     : plain_mount(r, m, err);
		if (rc < 0)
			break;
		mounts[n] = rc;
	}
	while (rc < 0 && n > 0)
		(void)close(mounts[--n]);
	return rc < 0 ? rc : 0;
}

/* A directory of a higher layer decides mode and owner of the merged one: take them from what lies below, where it is. */
static int copy_attributes(
	int points, const struct spec_layers *lower, const char *image, const char *path)
{
	struct stat st;

	if (!rootfs_stat_below(lower, image, path, &st))
		return 0;
	/* EINVAL: an owner that this user namespace cannot express */
	if ((st.st_uid != 0 || st.st_gid != 0) &&
		fchownat(points, path, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0 &&
		errno != EPERM && errno != EINVAL)
		return -errno;
	return fchmodat(points, path, st.st_mode & 07777, 0) < 0 ? -errno : 0;
}

/* Create @target and its parents in the points layer, each like the image's own directory of that name. */
static int make_directories(
	int points, const struct spec_layers *lower, const char *image, const char *target)
{
	char path[PATH_MAX];
	int rc = 0;

	if (str_copy(path, sizeof(path), target + 1) < 0)
		return -ENAMETOOLONG;
	for (char *slash = path; rc == 0 && slash != NULL;) {
		slash = strchr(slash, '/');
		if (slash != NULL)
			*slash = '\0';
		if (mkdirat(points, path, 0755) == 0)
			rc = copy_attributes(points, lower, image, path);
		else if (errno != EEXIST)
			rc = -errno;
		if (slash != NULL)
			*slash++ = '/';
	}
	return rc;
}

/* An empty file, and what lies above it. */
static int make_file_point(
	int points, const struct spec_layers *lower, const char *image, const char *target)
{
	cleanup_free char *parent = str_dup(target);
	int rc = 0;

	*strrchr(parent, '/') = '\0';
	if (parent[0] != '\0')
		rc = make_directories(points, lower, image, parent);
	return rc == 0 ? file_create_at(points, target + 1, 0644, "", 0) : rc;
}

/* Attributes of what @m shows. */
static int stat_source(const struct rootfs *r, const struct spec_mount *m, struct stat *st)
{
	cleanup_fd int source = -1;

	*st = (struct stat){ .st_mode = S_IFREG };
	if (m->text != NULL)
		return 0;
	source = find_source(r, m);
	return source < 0 ? source : raw_result(fstat(source, st));
}

/* One mount point: a directory, or an empty file when the source is one. */
static int make_point(const struct rootfs *r, int points, const struct spec_layers *lower,
	const char *image, const struct spec_mount *m, struct err *err)
{
	struct stat st;
	int rc = stat_source(r, m, &st), denied = 0;

	/* a link is refused anyway; that it leads to credentials says more */
	if (rc == -ELOOP && m->exposed)
		denied = check_exposed(r, m->source, err);
	if (denied < 0)
		return denied;
	if (rc < 0)
		return source_refuse("mount", m->source, rc, err);
	if (!S_ISDIR(st.st_mode) && (m->mode == MOUNT_COW || !S_ISREG(st.st_mode)))
		return err_raise(err, ERR_INVALID, "mount '%s': not a directory", m->source);
	rc = S_ISDIR(st.st_mode) ? make_directories(points, lower, image, m->target)
				 : make_file_point(points, lower, image, m->target);
	return rc < 0 ? err_raise_sys(err, rc, "mount point '%s'", m->target) : 0;
}

int rootfs_open_points(const char *live, struct err *err)
{
	char path[PATH_MAX];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/points", live);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? err_raise_sys(err, -errno, "open '%s'", path) : fd;
}

int rootfs_points_base(const char *live, struct err *err)
{
	static const char *const always[] = { "proc", "dev", "sys" };
	cleanup_fd int points = rootfs_open_points(live, err);

	if (points < 0)
		return points;
	for (size_t i = 0; i < ARRAY_SIZE(always); i++) {
		if (ablated("fresh_dev") && str_eq(always[i], "dev"))
			continue;
		if (mkdirat(points, always[i], 0755) < 0 && errno != EEXIST)
			return err_raise_sys(err, -errno, "mount point '/%s'", always[i]);
	}
	return 0;
}

/* Does @layer say nothing of @path and what lies above it, or no more than "a directory, merged with what is below"? */
static bool layer_lets_through(const struct rootfs *r, const char *layer, const char *path)
{
	const char *prefix = r->rootless ? "user" : "trusted";
	char whole[PATH_MAX], part[PATH_MAX], opaque[32], redirect[32], value;
	struct stat st;

	(void)snprintf(opaque, sizeof(opaque), "%s.overlay.opaque", prefix);
	(void)snprintf(redirect, sizeof(redirect), "%s.overlay.redirect", prefix);
	if (snprintf(whole, sizeof(whole), "%s%s/", layer, path) >= (int)sizeof(whole))
		return false;
	for (const char *slash = whole + strlen(layer) + 1; (slash = strchr(slash, '/')) != NULL;
		slash++) {
		(void)snprintf(part, sizeof(part), "%.*s", (int)(slash - whole), whole);
		if (lstat(part, &st) < 0)
			return errno == ENOENT;
		if (!S_ISDIR(st.st_mode) || lgetxattr(part, opaque, &value, 1) != -1 ||
			errno != ENODATA || lgetxattr(part, redirect, &value, 1) != -1 ||
			errno != ENODATA)
			return false;
	}
	return true;
}

/* Is directory @path of the image certainly seen in the sandbox's root, so that it can be mounted on as it is? */
static bool seen_in_root(const struct rootfs *r, const struct spec_layers *lower, const char *image,
	const char *path)
{
	cleanup_fd int root = open(image, O_PATH | O_DIRECTORY | O_CLOEXEC), dir = -1;

	/* what is mounted on the host's root is not part of the image */
	dir = root < 0 ? -1
		       : raw_openat2(root, path + 1, O_PATH | O_DIRECTORY, 0,
				 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
	for (size_t i = 0; dir >= 0 && i < lower->n; i++) {
		if (!layer_lets_through(r, lower->dirs[i], path))
			return false;
	}
	return dir >= 0;
}

/* Rootless, the root of the host image is a skeleton of our own. */
static bool needs_point(const struct rootfs *r, const struct spec *spec, const char *image,
	const struct spec_mount *m)
{
	struct stat st;

	return m->text != NULL || (r->rootless && str_eq(spec->image, "host")) ||
	       stat_source(r, m, &st) < 0 || !S_ISDIR(st.st_mode) ||
	       !seen_in_root(r, &spec->lower, image, m->target);
}

static void image_path(const struct rootfs *r, const struct spec *spec, char path[PATH_MAX])
{
	if (str_eq(spec->image, "host"))
		(void)snprintf(path, PATH_MAX, "/");
	else
		(void)snprintf(path, PATH_MAX, "%s/pool/images/%s/rootfs", r->state, spec->image);
}

int rootfs_file_point(const struct rootfs *r, const struct spec *spec, const char *target,
	const char *live, struct err *err)
{
	char image[PATH_MAX];
	cleanup_fd int points = rootfs_open_points(live, err);
	int rc;

	if (points < 0)
		return points;
	image_path(r, spec, image);
	rc = make_file_point(points, &spec->lower, image, target);
	return rc < 0 ? err_raise_sys(err, rc, "mount point '%s'", target) : 0;
}

int rootfs_points(const struct rootfs *r, const struct spec *spec, size_t first, const char *live,
	struct err *err)
{
	char image[PATH_MAX];
	cleanup_fd int points = -1;
	int rc = 0;

	image_path(r, spec, image);
	for (size_t i = first; rc == 0 && i < spec->n_mounts; i++) {
		if (!needs_point(r, spec, image, &spec->mounts[i]))
			continue;
		if (points < 0)
			points = rootfs_open_points(live, err);
		rc = points < 0 ? points
				: make_point(r, points, &spec->lower, image, &spec->mounts[i], err);
	}
	return rc == 0 && points >= 0 ? 1 : rc;
}
