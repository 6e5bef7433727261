/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/flatten.c - the job `flatten`: one layer that does what several layers, one above the other, do.
 *
 * Under whatever lies below, the new layer shows the same: an entry is that of the topmost layer that has one; whiteouts stay, because they may hide
 * something further down; a directory is opaque when the layers stopped looking below it, and otherwise keeps where it was renamed from.
 *
 * A layer that is not what its list says makes no other one (`corrupt`).
 */
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"
#include "store/copier.h"
#include "store/layer.h"
#include "store/pool.h"
#include "store/stack.h"
#include "store/verbs.h"
#include "store/verify.h"
#include "sys/btrfs.h"
#include "sys/file.h"

#include <sys/xattr.h>

struct flatten {
	struct store *store;
	struct stack stack;
	int top;         /* the new tree */
	bool clones;     /* the pool's file system can (FICLONE) */
	json_t *links;   /* "layer inode" -> path in the new tree, of files with several names */
	struct buf path; /* of the entry at hand */
};

static int relink(const struct flatten *f, const char *first, int to, const char *name)
{
	return linkat(f->top, first, to, name, 0) < 0 ? -errno : 0;
}

/* A copy that shares its blocks where the file system can; else, within one, the old file itself. */
static int put_file(struct flatten *f, const struct found *e, int to, const char *name)
{
	bool many = e->st.st_nlink > 1 && !S_ISCHR(e->st.st_mode);
	cleanup_free char *key = str_dupf("%zu %llu", e->layer, (unsigned long long)e->st.st_ino);
	const char *first = many ? json_string_value(json_object_get(f->links, key)) : NULL;
	int rc;

	if (!f->clones && !S_ISCHR(e->st.st_mode) && linkat(e->dir, e->name, to, name, 0) == 0)
		return 0;
	if (first != NULL && relink(f, first, to, name) == 0)
		return 0;
	rc = copier_entry(e->dir, e->name, to, name, &e->st, true);
	if (rc == 0 && many && first == NULL)
		(void)json_object_set_new(f->links, key, json_string_nocheck(buf_cstr(&f->path)));
	return rc;
}

static int put_children(struct flatten *f, const struct merged *dir, int to, int depth);

/* The redirect that it has of its topmost part leads into the layer below that one, not out of the last. */
static int mark(const struct flatten *f, int dir, const struct found *e)
{
	char opaque[64], redirect[64];

	(void)snprintf(opaque, sizeof(opaque), "%sopaque", f->stack.xattr);
	(void)snprintf(redirect, sizeof(redirect), "%sredirect", f->stack.xattr);
	if (!e->last && e->redirect != NULL)
		return tree_xattr_set(dir, ".", redirect, e->redirect, strlen(e->redirect));
	if (fremovexattr(dir, redirect) < 0 && errno != ENODATA)
		return -errno;
	return e->last ? tree_xattr_set(dir, ".", opaque, "y", 1) : 0;
}

static int put_dir(struct flatten *f, const struct found *e, int to, const char *name, int depth)
{
	cleanup_fd int dir = -1;
	int rc = mkdirat(to, name, 0700) < 0 ? -errno : 0;

	if (rc < 0)
		return rc;
	dir = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = dir < 0 ? -errno : put_children(f, &e->merged, dir, depth + 1);
	if (rc == 0)
		rc = copier_attributes(e->merged.parts[0].fd, ".", &e->st, to, name);
	return rc == 0 ? mark(f, dir, e) : rc;
}

static int put_children(struct flatten *f, const struct merged *dir, int to, int depth)
{
	cleanup_names struct tree_names names = { 0 };
	size_t parent = f->path.n;
	int rc = depth > TREE_DEPTH_MAX ? -ELOOP : stack_list(dir, 0, dir->n, &names);

	tree_names_sort(&names);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		cleanup(found_close) struct found e = { .dir = -1 };

		buf_fmt(&f->path, "%s%s", parent > 0 ? "/" : "", names.names[i]);
		rc = buf_failed(&f->path) ? -ENAMETOOLONG
					  : stack_lookup(&f->stack, dir, names.names[i], &e);
		if (rc == 0 && e.kind == FOUND_DIR)
			rc = put_dir(f, &e, to, names.names[i], depth);
		else if (rc == 0 && (e.kind == FOUND_FILE || e.whiteout))
			rc = put_file(f, &e, to, names.names[i]);
		if (rc == 0) {
			f->path.n = parent;
			f->path.p[parent] = '\0';
		}
	}
	return rc;
}

static int put_root(struct flatten *f, int dir, const char *name)
{
	cleanup(merged_close) struct merged root = { 0 };
	struct stat st;
	int rc = stack_root(&f->stack, &root);

	if (rc == 0)
		rc = put_children(f, &root, f->top, 0);
	if (rc == 0 && fstat(root.parts[0].fd, &st) < 0)
		rc = -errno;
	return rc == 0 ? copier_attributes(root.parts[0].fd, ".", &st, dir, name) : rc;
}

/* Tree @n of all layers, as tree @n of the new one. */
static int put_tree(
	struct store *store, const json_t *layers, unsigned int n, int dir, struct err *err)
{
	struct flatten f = { .store = store,
		.top = -1,
		.clones = pool_can_clone(store->pool),
		.links = json_object(),
		.path = BUF_INIT(1U << 20) };
	json_t *paths = json_array(), *id;
	char name[16];
	size_t i;
	int rc;

	json_array_foreach ((json_t *)(uintptr_t)layers, i, id)
		(void)json_array_append_new(paths, json_sprintf("%s/pool/layers/%s/%u", store->path,
							   json_string_value(id), n));
	(void)snprintf(name, sizeof(name), "%u", n);
	rc = stack_open(&f.stack, store, paths, err);
	if (rc == 0) {
		rc = mkdirat(dir, name, 0700) < 0 ? -errno : 0;
		f.top = rc < 0 ? -1 : openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (rc == 0)
			rc = f.top < 0 ? -errno : put_root(&f, dir, name);
		if (rc < 0)
			(void)err_raise_sys(err, rc, "flatten '%s'", buf_cstr(&f.path));
	}
	json_decref(paths);
	json_decref(f.links);
	buf_free(&f.path);
	stack_close(&f.stack);
	fd_close(&f.top);
	return rc;
}

/* What the new layer says of itself: it is of the sandbox, and as old, as the topmost. */
static json_t *describe(const json_t *top, const json_t *request, int dir, struct err *err)
{
	json_t *like = json_pack("{s:O, s:O, s:O}", "layer", json_object_get(request, "layer"),
		"sandbox", json_object_get(top, "sandbox"), "trees", json_object_get(top, "trees"));
	json_t *manifest = layer_manifest_new(dir, like, "flatten",
		(uint64_t)json_integer_value(json_object_get(top, "captured_ns")), err);

	json_decref(like);
	if (manifest != NULL)
		(void)json_object_set(manifest, "flattens", json_object_get(request, "layers"));
	return manifest;
}

static int fill(struct job *job, const json_t *top, int tmp, const char *layer, struct err *err)
{
	const json_t *layers = json_object_get(job->request, "layers");
	size_t trees = json_array_size(json_object_get(top, "trees"));
	cleanup_fd int dir = -1;
	json_t *manifest;
	int rc = job->store.btrfs                ? btrfs_subvolume_new(tmp, layer)
		 : mkdirat(tmp, layer, 0700) < 0 ? -errno
						 : 0;

	if (rc == 0) {
		dir = openat(tmp, layer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		rc = dir < 0 ? -errno : file_create_at(dir, "ARRANGED", 0600, "", 0);
	}
	if (rc < 0)
		return err_raise_sys(err, rc, "make the new layer");
	for (unsigned int n = 0; rc == 0 && n < trees; n++)
		rc = put_tree(&job->store, layers, n, dir, err);
	if (rc == 0 && fault("store.flatten.filled") < 0)
		rc = err_raise_sys(err, -EIO, "flatten layers");
	if (rc < 0)
		return rc;
	manifest = describe(top, job->request, dir, err);
	rc = manifest == NULL ? -EIO : layer_commit(&job->store, tmp, layer, manifest, err);
	json_decref(manifest);
	return rc;
}

/* The new layer gets a list of what is found: damage that the old ones' lists tell of would be right from then on. */
static int check_sources(const struct store *store, const json_t *layers, struct err *err)
{
	const json_t *id;
	size_t i;
	int rc = 0;

	json_array_foreach ((json_t *)(uintptr_t)layers, i, id) {
		if (rc == 0)
			rc = verify_listed(store, json_string_value(id), err);
	}
	return rc;
}

int store_flatten(struct job *job, json_t **ok, struct err *err)
{
	const json_t *layers = json_object_get(job->request, "layers");
	const char *layer = job_id(job->request, "layer", err);
	cleanup_fd int tmp = store_dir(&job->store, "tmp");
	json_t *top;
	int rc = layer == NULL ? -EINVAL : job_ids(job->request, "layers", err);

	if (rc == 0 && json_array_size(layers) < 2)
		rc = err_raise(err, ERR_INVALID, "member 'layers' holds less than two layers");
	if (rc == 0 && tmp < 0)
		rc = err_raise_sys(err, tmp, "open the pool");
	if (rc == 0)
		rc = check_sources(&job->store, layers, err);
	if (rc < 0)
		return rc;
	top = layer_manifest_read(&job->store, json_string_value(json_array_get(layers, 0)), err);
	if (top == NULL)
		return -EIO;
	rc = fill(job, top, tmp, layer, err);
	json_decref(top);
	if (rc < 0)
		(void)!tree_remove(tmp, layer);
	else
		*ok = json_pack("{s:s}", "layer", layer);
	return rc;
}
