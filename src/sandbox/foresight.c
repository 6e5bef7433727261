/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/foresight.h"
#include "base/ablate.h"
#include "base/str.h"
#include "sandbox/rootfs_internal.h"
#include "store/live.h"
#include "store/source.h"
#include "store/tree.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>

#define FORESEEN_TREE 1U
#define TOP           "1/upper"

/* As the keeper sees the machine's mounts. Return: 0 or -errno. */
static int look_at(const char *source, struct foresight_place *p)
{
	cleanup_fd int place = source_find(source);
	struct statx st;

	if (place < 0)
		return place;
	if (statx(place, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
		return -errno;
	memset(p, 0, sizeof(*p));
	p->mount = st.stx_mnt_id;
	p->inode = st.stx_ino;
	p->major = st.stx_dev_major;
	p->minor = st.stx_dev_minor;
	p->uid = st.stx_uid;
	p->gid = st.stx_gid;
	p->mode = st.stx_mode;
	return 0;
}

static bool same_place(const struct foresight_place *a, const struct foresight_place *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

static bool can_be_foreseen(const struct spec *spec)
{
	const struct spec_mount *m = spec->mounts;

	return spec->n_mounts > 0 && m->mode == MOUNT_COW && m->lower.n == 0 &&
	       m->tree == FORESEEN_TREE && !ablated("cow_mounts");
}

static int top_changed(int dir, const char *path, struct timespec *ret)
{
	struct statx st;

	if (statx(dir, path, AT_SYMLINK_NOFOLLOW, STATX_CTIME, &st) < 0)
		return -errno;
	*ret = (struct timespec){ st.stx_ctime.tv_sec, st.stx_ctime.tv_nsec };
	return 0;
}

/*
 * Will whatever changes from now on be stamped later? File systems take the time of the last tick, or a finer one behind it; one that writes down seconds alone is
 * not asked.
 */
static bool is_past(const struct timespec *top)
{
	struct timespec tick;

	return top->tv_nsec != 0 && clock_gettime(CLOCK_REALTIME_COARSE, &tick) == 0 &&
	       (tick.tv_sec > top->tv_sec ||
		       (tick.tv_sec == top->tv_sec && tick.tv_nsec > top->tv_nsec));
}

/* Its mount point, its tree, its overlay. Return: the detached mount, or an error. */
static int make(struct foresight *f, struct rootfs *r, const struct spec *expect, const char *live,
	int live_fd, struct err *err)
{
	struct spec first = *expect;
	cleanup_fd int source = source_find(f->source);
	int rc = source < 0 ? source_refuse("open", f->source, source, err) : 0;

	first.n_mounts = 1;
	if (rc == 0)
		rc = rootfs_points(r, &first, 0, live, err);
	if (rc >= 0 && store_live_tree(live_fd, FORESEEN_TREE, source) < 0)
		rc = err_raise(err, ERR_INTERNAL, "make the tree of '%s'", f->source);
	return rc < 0 ? rc : rootfs_cow(r, expect->mounts, live, f->staged, sizeof(f->staged), err);
}

int foresight_make(struct foresight *f, struct rootfs *r, const struct spec *expect,
	const char *live, int live_fd, int *ret_mount, struct err *err)
{
	struct foresight_place now;
	struct err ignored;
	int mount;

	*ret_mount = -1;
	if (!can_be_foreseen(expect) || look_at(expect->mounts->source, &f->place) < 0)
		return 0;
	f->source = str_dup(expect->mounts->source);
	f->target = str_dup(expect->mounts->target);
	mount = make(f, r, expect, live, live_fd, &ignored);
	if (mount >= 0 && look_at(f->source, &now) == 0 && same_place(&now, &f->place) &&
		top_changed(live_fd, TOP, &f->top) == 0) {
		*ret_mount = mount;
		return 0;
	}
	if (mount >= 0)
		(void)close(mount);
	return foresight_undo(f, live, err);
}

int foresight_point(struct foresight *f, const struct rootfs *r, const struct spec *expect,
	const char *target, const char *live, struct err *err)
{
	f->point = str_dup(target);
	return rootfs_file_point(r, expect, target, live, err);
}

bool foresight_any(const struct foresight *f)
{
	return f->source != NULL || f->point != NULL;
}

static bool is_point(const char *target, const struct spec *spec)
{
	return spec->n_mounts == 1 && str_eq(spec->mounts->target, target) &&
	       spec->mounts->text != NULL;
}

void foresight_judge(struct foresight *f, const struct spec *spec)
{
	struct foresight_place now;

	if (f->point != NULL)
		f->wrong = f->wrong || !is_point(f->point, spec);
	if (f->source == NULL || f->wrong)
		return;
	f->wrong = !can_be_foreseen(spec) || !str_eq(spec->mounts->source, f->source) ||
		   !str_eq(spec->mounts->target, f->target) || look_at(f->source, &now) < 0 ||
		   !same_place(&now, &f->place);
	f->settled = is_past(&f->top);
}

bool foresight_untouched(const struct foresight *f, const char *live)
{
	char path[PATH_MAX];
	struct timespec now = { 0 };

	if (f->source == NULL || f->wrong || !f->settled)
		return false;
	(void)snprintf(path, sizeof(path), "%s/" TOP, live);
	return top_changed(AT_FDCWD, path, &now) == 0 && now.tv_sec == f->top.tv_sec &&
	       now.tv_nsec == f->top.tv_nsec;
}

/* Nothing has run over it: a tree in which there is something is somebody's, and stays. */
static int renew_tree(int live)
{
	if (unlinkat(live, TOP, AT_REMOVEDIR) < 0 && errno != ENOENT)
		return -errno;
	return tree_remove(live, "1");
}

int foresight_undo(struct foresight *f, const char *live, struct err *err)
{
	cleanup_fd int fd = open(live, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	int rc = fd < 0 ? -errno : 0;

	if (f->staged[0] != '\0' && umount2(f->staged, MNT_DETACH) < 0)
		rc = -errno;
	if (rc == 0 && f->source != NULL)
		rc = renew_tree(fd);
	if (rc == 0)
		rc = tree_remove(fd, "points");
	if (rc == 0)
		rc = store_live_trees(fd, FORESEEN_TREE + 1);
	free(f->source);
	free(f->target);
	free(f->point);
	*f = (struct foresight){ 0 };
	return rc < 0 ? err_raise_sys(err, rc, "undo what was foreseen in '%s'", live)
		      : rootfs_points_base(live, err);
}
