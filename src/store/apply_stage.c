/* SPDX-License-Identifier: Apache-2.0 */
/* store/apply_stage.c - what an apply brings to the host is made beside its places first, whole and on the disk: what follows are renames alone (apply.c). */
#include "store/apply_stage.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/acl.h"
#include "store/apply.h"
#include "store/copier.h"
#include "store/source.h"
#include "sys/file.h"

#include <sys/stat.h>
#include <sys/xattr.h>

/* Find @path again in the merged tree; the walk's own descriptors are gone by now. */
static int find(const struct stack *stack, const char *path, struct found *ret)
{
	cleanup(merged_close) struct merged at = { 0 };
	int rc = stack_root(stack, &at);

	while (rc == 0) {
		char name[NAME_MAX + 1];
		size_t n = strcspn(path, "/");

		if (n > NAME_MAX)
			return -ENAMETOOLONG;
		(void)snprintf(name, sizeof(name), "%.*s", (int)n, path);
		path += n + (path[n] == '/' ? 1 : 0);
		rc = stack_lookup(stack, &at, name, ret);
		if (rc < 0 || ret->kind == FOUND_NONE)
			return rc < 0 ? rc : -ENOENT;
		if (*path == '\0') {
			/* what holds a file must stay open as long as the answer */
			ret->dir =
				ret->kind == FOUND_FILE
					? openat(ret->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
					: -1;
			return ret->kind == FOUND_FILE && ret->dir < 0 ? -errno : 0;
		}
		merged_close(&at);
		at = ret->merged;
		ret->merged = (struct merged){ 0 };
		found_close(ret);
	}
	return rc;
}

static int copy_user_xattrs(const struct found *f, int to)
{
	static char value[65536];
	cleanup_names struct tree_names names = { 0 };
	const char *at;
	int dir = found_at(f, &at), rc = tree_xattr_names(dir, at, "user.overlay.", &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		ssize_t n = !str_starts(names.names[i], "user.")
				    ? -ENODATA
				    : tree_xattr_get(dir, at, names.names[i], value, sizeof(value));

		if (n >= 0)
			rc = tree_xattr_set_fd(to, names.names[i], value, (size_t)n);
		if (rc == -EOPNOTSUPP) /* the host's file system has none: the bytes matter more */
			rc = 0;
	}
	return rc;
}

static int stage_file(const struct found *f, int staging, const char *name, mode_t mode)
{
	cleanup_fd int from = diff_open(f), to = -1;
	const struct timespec times[2] = { f->st.st_atim, f->st.st_mtim };
	int rc;

	if (from < 0)
		return from;
	to = openat(staging, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	rc = to < 0 ? -errno : fault("store.apply.made");
	if (rc == 0)
		rc = copier_data(from, to, true);
	if (rc == 0 && fchmod(to, mode) < 0)
		rc = -errno;
	if (rc == 0 && futimens(to, times) < 0)
		rc = -errno;
	return rc < 0 ? rc : TAKE_FD(to);
}

static int stage_directory(int staging, const char *name, mode_t mode)
{
	cleanup_fd int made = -1;
	int rc = mkdirat(staging, name, 0700) < 0 ? -errno : fault("store.apply.made");

	if (rc < 0)
		return rc;
	made = openat(staging, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return made < 0 || fchmod(made, mode) < 0 ? -errno : TAKE_FD(made);
}

static int stage_link(const struct found *f, int staging, const char *name)
{
	cleanup_fd int made = -1;
	char target[PATH_MAX];
	struct stat st;
	ssize_t n = readlinkat(f->dir, f->name, target, sizeof(target) - 1);

	if (n < 0)
		return -errno;
	target[n] = '\0';
	if (symlinkat(target, staging, name) < 0)
		return -errno;
	made = openat(staging, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (made < 0 || fstat(made, &st) < 0)
		return -errno;
	return S_ISLNK(st.st_mode) ? TAKE_FD(made) : -ESTALE;
}

/*
 * Return: what was made. The directory is the caller's, and whoever acts as him may put something else in its place at any time: from here on all is done
 * by this descriptor (O_PATH of a link), and nothing by the name.
 */
static int stage_entry(const struct found *f, int staging, const char *name, mode_t mode)
{
	if (f->kind == FOUND_DIR)
		return stage_directory(staging, name, mode);
	if (S_ISLNK(f->st.st_mode))
		return stage_link(f, staging, name);
	return stage_file(f, staging, name, mode);
}

static int drop_xattr(int fd, const char *xattr)
{
	return fremovexattr(fd, xattr) < 0 && errno != ENODATA && errno != EOPNOTSUPP ? -errno : 0;
}

/* With an access list the bits of the group are only the most that anybody of it may: without it they would give the group what others had. */
static int keep_acl(
	const struct apply_stage *p, const json_t *step, const char *path, int made, mode_t mode)
{
	cleanup_fd int target = source_open(p->target), parent = -1;
	char last[NAME_MAX + 1], acl[65536];
	ssize_t n;
	int rc;

	if (!str_eq(json_string_value(json_object_get(step, "op")), "replace"))
		return 0;
	parent = target < 0 ? -1 : apply_parent(target, path, last);
	if (parent < 0)
		return -ESTALE;
	n = tree_xattr_get(parent, last, ACL_ACCESS, acl, sizeof(acl));
	if (n == -ENODATA) /* what the staging directory gave it */
		return drop_xattr(made, ACL_ACCESS);
	if (n < 0)
		return (int)n;
	rc = tree_xattr_set_fd(made, ACL_ACCESS, acl, (size_t)n);
	return rc < 0 ? rc : fchmod(made, mode) < 0 ? -errno : 0;
}

static bool is_in(const struct apply_caller *who, gid_t gid)
{
	const json_t *g;
	size_t i;

	json_array_foreach ((json_t *)(uintptr_t)who->groups, i, g) {
		if ((gid_t)json_integer_value(g) == gid)
			return true;
	}
	return who->uid == 0 || who->gid == gid;
}

int apply_nearest(int target, const char *path)
{
	cleanup_free char *at = str_dup(path);

	for (;;) {
		char last[NAME_MAX + 1], *slash = strrchr(at, '/');
		int parent = apply_parent(target, at, last);

		if (parent >= 0 || slash == NULL) /* why not is said when it is moved there */
			return parent;
		*slash = '\0';
	}
}

gid_t apply_group(const struct apply_caller *who, const struct stat *dir, const struct stat *was)
{
	if (was != NULL && is_in(who, was->st_gid))
		return was->st_gid;
	return (dir->st_mode & S_ISGID) != 0 ? dir->st_gid : who->gid;
}

/*
 * Whose it is on the host. Root, as whom this is made, gives away what the caller could: a replaced file keeps its owner where he is root, and its group where he is in it; else both are
 * as if he had made it in its directory. The bits that a change of owner takes away are set again, but nobody gets a program with the rights of a group that he is not in.
 */
static int set_owner(
	const struct apply_stage *p, const json_t *step, const char *path, int made, mode_t mode)
{
	bool replaces = str_eq(json_string_value(json_object_get(step, "op")), "replace");
	cleanup_fd int target = source_open(p->target), parent = -1;
	char last[NAME_MAX + 1];
	struct stat dir, was, st;
	gid_t group;

	if (p->rootless)
		return 0;
	parent = target < 0 ? -1
		 : replaces ? apply_parent(target, path, last)
			    : apply_nearest(target, path);
	if (parent < 0 || fstat(parent, &dir) < 0 ||
		(replaces && fstatat(parent, last, &was, AT_SYMLINK_NOFOLLOW) < 0))
		return -ESTALE;
	group = apply_group(&p->who, &dir, replaces ? &was : NULL);
	if (fchownat(made, "", replaces && p->who.uid == 0 ? was.st_uid : p->who.uid, group,
		    AT_EMPTY_PATH) < 0 ||
		fstat(made, &st) < 0)
		return -errno;
	if (S_ISREG(st.st_mode) && !is_in(&p->who, group))
		mode &= ~(mode_t)S_ISGID;
	return !S_ISLNK(st.st_mode) && fchmod(made, mode) < 0 ? -errno : 0;
}

/* What is new gets the access list that its directory gives, not that of the directory in which it is staged; its mode is then the mask. */
static int inherit_acl(
	const struct apply_stage *p, const json_t *step, const char *path, int made, mode_t mode)
{
	cleanup_fd int target = source_open(p->target), parent = -1;
	char acl[65536];
	struct stat st;
	ssize_t n;
	int rc = 0;

	if (str_eq(json_string_value(json_object_get(step, "op")), "replace"))
		return 0;
	parent = target < 0 ? -1 : apply_nearest(target, path);
	if (parent < 0 || fstat(made, &st) < 0)
		return parent < 0 ? -ESTALE : -errno;
	n = tree_xattr_get(parent, ".", ACL_DEFAULT, acl, sizeof(acl));
	if (n < 0 && n != -ENODATA)
		return (int)n;
	if (n < 0) {
		rc = drop_xattr(made, ACL_ACCESS);
		return rc == 0 && S_ISDIR(st.st_mode) ? drop_xattr(made, ACL_DEFAULT) : rc;
	}
	rc = tree_xattr_set_fd(made, ACL_ACCESS, acl, (size_t)n);
	if (rc == 0 && S_ISDIR(st.st_mode))
		rc = tree_xattr_set_fd(made, ACL_DEFAULT, acl, (size_t)n);
	return rc < 0 ? rc : fchmod(made, mode) < 0 ? -errno : 0;
}

/* The step that gives the directory of @step, staged as @made, its own @mode. */
static json_t *closing(const json_t *step, const struct stat *made, mode_t mode)
{
	return json_pack("{s:O, s:s, s:O, s:I, s:i, s:i}", "tree", json_object_get(step, "tree"),
		"op", "close", "path", json_object_get(step, "path"), "old",
		(json_int_t)made->st_ino, "mode", (int)mode, "was", (int)(made->st_mode & 07777));
}

/* @closes: gets what is to be done behind all else, those further down first. */
static int stage_one(const struct apply_stage *p, size_t i, json_t *step, int staging,
	json_t *closes, struct err *err)
{
	cleanup_free char *path = apply_bytes(json_object_get(step, "path"));
	cleanup(found_close) struct found f = { .dir = -1 };
	mode_t mode = (mode_t)json_integer_value(json_object_get(step, "mode")), at_last = mode;
	cleanup_fd int made = -1;
	struct stat st;
	char name[24];
	int rc = find(p->a, path, &f);
	int own = f.kind == FOUND_FILE ? f.dir : -1;

	(void)snprintf(name, sizeof(name), "n%zu", i);
	if (f.kind == FOUND_DIR && apply_closes(&p->who, mode))
		mode |= S_IRWXU;
	if (rc == 0) {
		made = stage_entry(&f, staging, name, mode);
		rc = made < 0 ? made : 0;
	}
	if (rc == 0 && !S_ISLNK(f.st.st_mode))
		rc = copy_user_xattrs(&f, made);
	if (rc == 0 && S_ISREG(f.st.st_mode))
		rc = keep_acl(p, step, path, made, mode);
	if (rc == 0 && !S_ISLNK(f.st.st_mode))
		rc = inherit_acl(p, step, path, made, mode);
	if (rc == 0)
		rc = set_owner(p, step, path, made, mode);
	if (rc == 0 && fstat(made, &st) < 0)
		rc = -errno;
	fd_close(&own);
	if (rc < 0)
		return rc == -ESTALE
			       ? err_raise(err, ERR_CONFLICT, "'%s' changed on the host just now",
					 path)
			       : err_raise_sys(err, rc, "stage '%s' in '%s'", path, p->target);
	(void)json_object_set_new(step, "new", json_integer((json_int_t)st.st_ino));
	if (S_ISREG(st.st_mode))
		(void)json_object_set_new(step, "new_mtime", json_integer(apply_mtime_ns(&st)));
	if (mode != at_last)
		(void)json_array_insert_new(closes, 0, closing(step, &st, at_last));
	return 0;
}

/* Stage as root what only root can read, into directories that are the caller's. */
int apply_stage(const struct apply_stage *p, const char *id, struct err *err)
{
	cleanup_fd int target = source_open(p->target), staging = -1;
	json_t *closes, *step;
	size_t i;
	int rc = target < 0 ? target : apply_as(p->who.uid, p->who.gid, p->who.groups);

	if (rc == 0) {
		staging = apply_staging(target, id, true);
		rc = apply_as(0, 0, NULL);
	}
	if (staging < 0 && (staging == -EACCES || staging == -EPERM))
		return err_raise(err, ERR_DENIED, "you may not write to '%s'", p->target);
	if (staging == -EEXIST)
		return err_hint(err,
			err_raise(err, ERR_INVALID,
				"nothing was applied: the sandbox has '%s' mounted more than once",
				p->target),
			"apply one mount after the other: --target DIR");
	if (rc < 0 || staging < 0)
		return err_raise_sys(
			err, rc < 0 ? rc : staging, "make a staging directory in '%s'", p->target);
	closes = json_array();
	json_array_foreach (p->steps, i, step) {
		const char *op = json_string_value(json_object_get(step, "op"));

		if ((size_t)json_integer_value(json_object_get(step, "tree")) != p->tree ||
			(!str_eq(op, "add") && !str_eq(op, "replace")))
			continue;
		rc = stage_one(p, i, step, staging, closes, err);
		if (rc < 0)
			break;
	}
	(void)json_array_extend(p->steps, closes);
	json_decref(closes);
	if (rc < 0)
		return rc;
	/* everything staged at once: a barrier for each file would take a minute for some thousands */
	rc = syncfs(staging) < 0 ? -errno : 0;
	return rc < 0 ? err_raise_sys(err, rc, "write the staged files in '%s'", p->target) : 0;
}
