/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/seal.c - the job `seal`: the live directory of a stopped sandbox becomes a layer, by renames alone; and `unseal`, when nothing came of the snapshot.
 *
 * The only copy of the sandbox's changes moves live/<sandbox> -> sealing/<sandbox>.<layer> -> layers/<layer>, never through tmp/. The job
 * `recover` takes it back from either place as long as the catalogue does not know the layer, unless the sandbox went back to an earlier state since.
 */
#include "store/seal.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"
#include "store/layer.h"
#include "store/live.h"
#include "store/signature.h"
#include "store/source.h"
#include "store/tree.h"
#include "store/verbs.h"
#include "sys/btrfs.h"

#include <fcntl.h>
#include <sys/xattr.h>

#define MARK_MAX 1024U

/* Of a directory outside the trees: nobody inside can write it. */
static const char *mark_name(const struct store *store)
{
	return store->rootless ? "user.cay.seal" : "trusted.cay.seal";
}

/*
 * Say on @dir itself whose it is. A file's bytes are written to disk some time after its name; an attribute goes with the rename that comes behind it, in one transaction of the
 * file system or a later one, so a power cut takes both or none. It takes 2 us at the median; to write the manifest and sync it 4 to 7 ms (300 and 30 of each, ext4 and btrfs on a loop device, beside other work).
 */
static int mark(const struct store *store, int dir, const json_t *manifest)
{
	json_t *text = json_pack("{s:O,s:O,s:O,s:O*}", "layer", json_object_get(manifest, "layer"),
		"sandbox", json_object_get(manifest, "sandbox"), "how",
		json_object_get(manifest, "how"), "epoch", json_object_get(manifest, "epoch"));
	cleanup_free char *value = NULL;
	int rc = signature_add(store, text);

	if (rc == 0) {
		value = json_dumps(text, JSON_COMPACT | JSON_SORT_KEYS);
		rc = fsetxattr(dir, mark_name(store), value, strlen(value), 0) < 0 ? -errno : 0;
	}
	json_decref(text);
	return rc == -EOPNOTSUPP ? 0 : rc; /* of that file system the manifest is all there is */
}

/* NULL: there is none, or it is not ours, or of another layer. */
static json_t *mark_read(const struct store *store, const char *layer)
{
	cleanup_free char *path = str_dupf("layers/%s", layer);
	cleanup_fd int dir = store_dir(store, path);
	char value[MARK_MAX];
	ssize_t n = dir < 0 ? -1 : fgetxattr(dir, mark_name(store), value, sizeof(value));
	json_t *text = n < 0 ? NULL : json_loadb(value, (size_t)n, JSON_REJECT_DUPLICATES, NULL);
	const char *id = json_string_value(json_object_get(text, "layer"));

	if (id != NULL && str_eq(id, layer) && signature_check(store, text) == 0)
		return text;
	json_decref(text);
	return NULL;
}

json_t *seal_read(const struct store *store, const char *layer, struct err *err)
{
	json_t *what = layer_manifest_read(store, layer, err);

	return what != NULL ? what : mark_read(store, layer);
}

/* The new, empty trees keep mode and owner of the old ones' roots: those are what the merged root shows. */
int seal_renew_live(const struct store *store, const char *sandbox, const char *layer)
{
	int trees[LAYER_TREES], rc;
	unsigned int n_trees = 0;
	cleanup_fd int live = -1;
	char path[64];

	do {
		(void)snprintf(path, sizeof(path), "layers/%s/%u", layer, n_trees);
		trees[n_trees] = store_dir(store, path);
	} while (trees[n_trees] >= 0 && ++n_trees < LAYER_TREES);
	live = store_live_create(store->pool, sandbox, n_trees, 0);
	rc = live < 0 ? live : 0;
	for (unsigned int n = 0; n < n_trees; n++) {
		if (rc == 0)
			rc = store_live_tree(live, n, trees[n]);
		fd_close(&trees[n]);
	}
	return rc;
}

/* The directory whose mode and owner the root of an empty tree shows, or -1: none is needed. */
static int root_of(
	const struct store *store, const json_t *parents, const json_t *tree, json_int_t n)
{
	const char *parent = json_string_value(json_array_get(parents, 0));
	const char *source = json_string_value(json_object_get(tree, "source"));
	char path[64];

	if (parent != NULL) {
		(void)snprintf(path, sizeof(path), "layers/%s/%d", parent, (int)n);
		return store_dir(store, path);
	}
	return source != NULL ? source_find(source) : -1;
}

int seal_ensure_live(const struct job *job, const char *sandbox, struct err *err)
{
	const json_t *trees = json_object_get(job->request, "trees"), *tree;
	const json_t *parents = json_object_get(job->request, "parents");
	cleanup_fd int lives = store_dir(&job->store, "live"), live = -1;
	size_t i;
	int rc = 0;

	if (!job_flag(job->request, "bare", false) ||
		faccessat(lives, sandbox, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		return 0;
	if (errno != ENOENT)
		return err_raise_sys(err, -errno, "look for the files of sandbox '%s'", sandbox);
	live = store_live_create(job->store.pool, sandbox, (unsigned int)json_array_size(trees), 0);
	json_array_foreach ((json_t *)(uintptr_t)trees, i, tree) {
		json_int_t n = json_integer_value(json_object_get(tree, "n"));
		cleanup_fd int root = root_of(&job->store, parents, tree, n);

		if (live >= 0 && rc == 0 && root >= 0)
			rc = store_live_tree(live, (unsigned int)n, root);
	}
	/* the next try would take it for a whole one */
	rc = live < 0 ? live : rc;
	if (rc < 0)
		(void)!tree_remove(lives, sandbox);
	return rc < 0 ? err_raise_sys(err, rc, "make a live directory for sandbox '%s'", sandbox)
		      : 0;
}

static int take(const struct store *store, const char *sandbox, const char *name, int sealing,
	struct err *err)
{
	cleanup_fd int lives = store_dir(store, "live");

	if (lives < 0)
		return err_raise_sys(err, lives, "open the pool's live directories");
	if (renameat2(lives, sandbox, sealing, name, RENAME_NOREPLACE) < 0)
		return err_raise_sys(
			err, -errno, "take the live directory of sandbox '%s'", sandbox);
	return 0;
}

/* Nothing was written since the seal? Then its live directory can go. */
static bool live_is_empty(int lives, const char *sandbox)
{
	cleanup_fd int live =
		openat(lives, sandbox, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	char path[32];

	if (live < 0)
		return errno == ENOENT;
	for (unsigned int n = 0; n < LAYER_TREES; n++) {
		cleanup_names struct tree_names names = { 0 };
		cleanup_fd int upper = -1;

		(void)snprintf(path, sizeof(path), "%u/upper", n);
		upper = openat(live, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (upper < 0 ? errno != ENOENT : tree_names(upper, &names) < 0 || names.n > 0)
			return false;
	}
	return true;
}

int seal_give_back(const struct store *store, const char *name)
{
	cleanup_fd int lives = store_dir(store, "live"), sealing = store_dir(store, "sealing");
	cleanup_fd int dir = openat(sealing, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char sandbox[ID_LEN + 1];
	int rc;

	if (lives < 0 || dir < 0)
		return -errno;
	(void)snprintf(sandbox, sizeof(sandbox), "%.*s", ID_LEN, name);
	if (!live_is_empty(lives, sandbox))
		return -EBUSY;
	/* first: on a full disk its inodes are what the trees need now */
	rc = tree_remove(lives, sandbox);
	if (rc == 0)
		rc = layer_disarrange(dir);
	if (rc == 0 && fremovexattr(dir, mark_name(store)) < 0 && errno != ENODATA &&
		errno != EOPNOTSUPP)
		rc = -errno;
	if (rc == 0 && renameat2(sealing, name, lives, sandbox, RENAME_NOREPLACE) < 0)
		rc = -errno;
	return rc;
}

int seal_undo(const struct store *store, const char *sandbox, const char *layer)
{
	cleanup_fd int layers = store_dir(store, "layers"), sealing = store_dir(store, "sealing");
	cleanup_fd int lives = store_dir(store, "live"), dir = -1;
	char name[2 * ID_LEN + 2];
	int rc;

	if (layers < 0 || sealing < 0 || lives < 0)
		return -EIO;
	if (!live_is_empty(lives, sandbox)) /* before anything is undone */
		return -EBUSY;
	dir = openat(layers, layer, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0)
		return -errno;
	rc = btrfs_subvolume_is(dir) ? btrfs_subvolume_readonly(dir, false) : 0;
	(void)snprintf(name, sizeof(name), "%s.%s", sandbox, layer);
	if (rc == 0 && renameat2(layers, layer, sealing, name, RENAME_NOREPLACE) < 0)
		rc = -errno;
	return rc < 0 ? rc : seal_give_back(store, name);
}

/* Return: its manifest, not written yet; NULL with @err set. */
static json_t *arrange(const struct store *store, int sealing, const char *name,
	const json_t *request, struct err *err)
{
	cleanup_fd int dir = openat(sealing, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int rc = dir < 0 ? -errno : fault("store.seal.taken");
	json_t *manifest;

	if (rc == 0)
		rc = layer_arrange(dir);
	if (rc < 0) {
		(void)err_raise_sys(err, rc, "arrange the layer");
		return NULL;
	}
	manifest = layer_manifest_new(dir, request, "seal", clock_wall_ns(), err);
	rc = manifest != NULL ? mark(store, dir, manifest) : 0;
	if (rc < 0) {
		(void)(rc == -ENOKEY ? store_key_failed(store, rc, err)
				     : err_raise_sys(err, rc, "mark the layer"));
		json_decref(manifest);
		return NULL;
	}
	return manifest;
}

int store_seal(struct job *job, json_t **ok, struct err *err)
{
	const char *sandbox = job_id(job->request, "sandbox", err);
	const char *layer = sandbox == NULL ? NULL : job_id(job->request, "layer", err);
	cleanup_fd int sealing = -1;
	json_t *manifest;
	char name[2 * ID_LEN + 2];
	int rc;

	if (layer == NULL)
		return -EINVAL;
	if (layer_exists(&job->store, layer))
		return err_raise(err, ERR_EXISTS, "layer '%s' exists", layer);
	sealing = store_dir(&job->store, "sealing");
	if (sealing < 0)
		return err_raise_sys(err, sealing, "open the pool");
	(void)snprintf(name, sizeof(name), "%s.%s", sandbox, layer);
	rc = seal_ensure_live(job, sandbox, err);
	if (rc == 0)
		rc = take(&job->store, sandbox, name, sealing, err);
	if (rc < 0)
		return rc;
	manifest = arrange(&job->store, sealing, name, job->request, err);
	rc = manifest == NULL ? -EIO : layer_commit(&job->store, sealing, name, manifest, err);
	if (rc == 0) {
		rc = seal_renew_live(&job->store, sandbox, layer);
		if (rc < 0)
			(void)err_raise_sys(
				err, rc, "make the new live directory of sandbox '%s'", sandbox);
		if (rc < 0)
			(void)!seal_undo(&job->store, sandbox, layer);
	} else {
		(void)!(layer_exists(&job->store, layer) ? seal_undo(&job->store, sandbox, layer)
							 : seal_give_back(&job->store, name));
	}
	if (rc == 0)
		*ok = layer_reply(manifest, 0);
	json_decref(manifest);
	return rc;
}

int store_unseal(struct job *job, json_t **ok, struct err *err)
{
	const char *sandbox = job_id(job->request, "sandbox", err);
	const char *layer = sandbox == NULL ? NULL : job_id(job->request, "layer", err);
	cleanup_fd int sealing = store_dir(&job->store, "sealing");
	char name[2 * ID_LEN + 2];
	int rc = 0;

	if (layer == NULL)
		return -EINVAL;
	if (sealing < 0)
		return err_raise_sys(err, sealing, "open the pool");
	(void)snprintf(name, sizeof(name), "%s.%s", sandbox, layer);
	if (layer_exists(&job->store, layer))
		rc = seal_undo(&job->store, sandbox, layer);
	else if (faccessat(sealing, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
		rc = seal_give_back(&job->store, name);
	if (rc < 0)
		return err_raise_sys(err, rc, "take back the seal of sandbox '%s'", sandbox);
	*ok = json_object();
	return 0;
}
