/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/layer.c - see the header.
 *
 * Arranging takes two phases so that no payload's directory names can confuse a recovery: first every N/upper becomes .N; then ARRANGED is
 * made; then every .N becomes N. Without ARRANGED a .N is a tree and an N is not; with it a .N is a tree and, where there is none, N is.
 */
#include "store/layer.h"
#include "base/ablate.h"
#include "base/fault.h"
#include "base/str.h"
#include "store/job.h"
#include "store/live.h"
#include "store/signature.h"
#include "store/tree.h"
#include "sys/btrfs.h"
#include "sys/file.h"
#include "sys/raw.h"

#define ARRANGED     "ARRANGED"
#define MANIFEST_MAX (1U << 20)

/* More entries than this are not counted: a seal must not take long. */
#define COUNT_MAX 100000

static bool exists(int dir, const char *name)
{
	return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static bool is_tree(const char *name, unsigned int *n)
{
	uint64_t v;

	if (str_to_u64(name, 0, LAYER_TREES, &v) < 0)
		return false;
	*n = (unsigned int)v;
	return true;
}

static int move(int dir, const char *from, const char *to)
{
	return renameat(dir, from, dir, to) < 0 ? -errno : 0;
}

/* N/upper -> .N for every tree. */
static int lift_uppers(int dir, const struct tree_names *names)
{
	char upper[32], dot[32];
	unsigned int n;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < names->n; i++) {
		if (!is_tree(names->names[i], &n))
			continue;
		(void)snprintf(upper, sizeof(upper), "%u/upper", n);
		(void)snprintf(dot, sizeof(dot), ".%u", n);
		if (!exists(dir, dot))
			rc = move(dir, upper, dot);
	}
	return rc;
}

static int drop_others(int dir, const struct tree_names *names)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < names->n; i++) {
		if (names->names[i][0] != '.' && !str_eq(names->names[i], ARRANGED))
			rc = tree_remove(dir, names->names[i]);
	}
	return rc;
}

static int lower_trees(int dir, const struct tree_names *names)
{
	unsigned int n;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < names->n; i++) {
		if (names->names[i][0] == '.' && is_tree(names->names[i] + 1, &n))
			rc = move(dir, names->names[i], names->names[i] + 1);
	}
	return rc;
}

int layer_arrange(int dir)
{
	cleanup_names struct tree_names names = { 0 }, lifted = { 0 };
	int rc = tree_names(dir, &names);

	if (rc == 0)
		rc = lift_uppers(dir, &names);
	if (rc == 0)
		rc = file_create_at(dir, ARRANGED, 0600, "", 0);
	if (rc == 0)
		rc = fault("store.layer.arranged");
	if (rc == 0)
		rc = drop_others(dir, &names);
	if (rc == 0)
		rc = tree_names(dir, &lifted);
	return rc < 0 ? rc : lower_trees(dir, &lifted);
}

/* With ARRANGED: bring every tree to .N and forget the rest. */
static int lift_trees(int dir)
{
	cleanup_names struct tree_names names = { 0 };
	char dot[32];
	unsigned int n;
	int rc = tree_names(dir, &names);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		if (!is_tree(names.names[i], &n))
			continue;
		(void)snprintf(dot, sizeof(dot), ".%u", n);
		rc = exists(dir, dot) ? tree_remove(dir, names.names[i])
				      : move(dir, names.names[i], dot);
	}
	(void)unlinkat(dir, LAYER_MANIFEST, 0);
	if (rc == 0 && unlinkat(dir, ARRANGED, 0) < 0)
		rc = -errno;
	return rc;
}

int layer_disarrange(int dir)
{
	cleanup_names struct tree_names names = { 0 };
	char path[32];
	unsigned int n;
	int rc = exists(dir, ARRANGED) ? lift_trees(dir) : 0;

	if (rc == 0)
		rc = tree_names(dir, &names);
	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		const char *name = names.names[i];

		if (name[0] != '.' || !is_tree(name + 1, &n))
			continue;
		if (mkdirat(dir, name + 1, 0700) < 0 && errno != EEXIST)
			return -errno;
		(void)snprintf(path, sizeof(path), "%s/work", name + 1);
		if (mkdirat(dir, path, 0700) < 0 && errno != EEXIST)
			return -errno;
		(void)snprintf(path, sizeof(path), "%s/upper", name + 1);
		rc = move(dir, name, path);
	}
	if (rc == 0 && mkdirat(dir, "points", 0755) < 0 && errno != EEXIST)
		rc = -errno;
	return rc;
}

static json_t *tree_json(int dir, const json_t *asked, struct err *err)
{
	struct tree_count count = { .limit = COUNT_MAX };
	char name[32];
	uint64_t n;
	cleanup_fd int tree = -1;
	int rc = job_number(asked, "n", LAYER_TREES, &n, NULL);

	if (rc < 0 || n >= LAYER_TREES) {
		(void)err_raise(err, ERR_INVALID, "a member of 'trees' has no number 'n'");
		return NULL;
	}
	(void)snprintf(name, sizeof(name), "%u", (unsigned int)n);
	tree = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	rc = tree < 0 ? -errno : tree_count(tree, &count);
	if (rc == -EOVERFLOW || rc == -ELOOP)
		return json_pack("{s:I, s:O?, s:n, s:n}", "n", (json_int_t)n, "target",
			json_object_get(asked, "target"), "files", "bytes");
	if (rc < 0) {
		(void)err_raise_sys(err, rc, "count tree %s of the layer", name);
		return NULL;
	}
	return json_pack("{s:I, s:O?, s:I, s:I}", "n", (json_int_t)n, "target",
		json_object_get(asked, "target"), "files", (json_int_t)count.files, "bytes",
		(json_int_t)count.bytes);
}

json_t *layer_manifest_new(
	int dir, const json_t *request, const char *how, uint64_t captured_ns, struct err *err)
{
	const json_t *asked = json_object_get(request, "trees"), *t;
	json_t *parents = json_object_get(request, "parents"), *trees;
	size_t i;

	if (!json_is_array(asked) || json_array_size(asked) == 0) {
		(void)err_raise(err, ERR_INVALID, "member 'trees' is missing or empty");
		return NULL;
	}
	trees = json_array();
	json_array_foreach (asked, i, t) {
		json_t *tree = tree_json(dir, t, err);

		if (tree == NULL) {
			json_decref(trees);
			return NULL;
		}
		(void)json_array_append_new(trees, tree);
	}
	return json_pack("{s:i, s:O, s:O, s:o, s:s, s:I, s:o, s:O*}", "format", LAYER_FORMAT,
		"layer", json_object_get(request, "layer"), "sandbox",
		json_object_get(request, "sandbox"), "parents",
		json_is_array(parents) ? json_incref(parents) : json_array(), "how", how,
		"captured_ns", (json_int_t)captured_ns, "trees", trees, "epoch",
		json_object_get(request, "epoch"));
}

/* Sign @manifest and write it into @dir. */
static int layer_manifest_write(
	const struct store *store, int dir, json_t *manifest, struct err *err)
{
	char *text;
	int rc = signature_add(store, manifest);

	if (rc < 0)
		return store_key_failed(store, rc, err);
	text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
	rc = text == NULL ? -ENOMEM : file_create_at(dir, LAYER_MANIFEST, 0600, text, strlen(text));
	free(text);
	return rc < 0 ? err_raise_sys(err, rc, "write the manifest") : 0;
}

static int check(const struct store *store, json_t *manifest, const char *layer, struct err *err)
{
	const char *id = json_string_value(json_object_get(manifest, "layer"));
	int rc;

	if (!json_is_object(manifest) || id == NULL)
		return err_raise(
			err, ERR_CORRUPT, "the manifest of layer '%s' is not readable", layer);
	if (json_integer_value(json_object_get(manifest, "format")) != LAYER_FORMAT)
		return err_raise(err, ERR_CORRUPT,
			"layer '%s' has a format that this version does not know", layer);
	rc = signature_check(store, manifest);
	if (rc < 0 && rc != -EBADMSG)
		return store_key_failed(store, rc, err);
	if (rc == -EBADMSG && !ablated("manifest_mac"))
		return err_raise(err, ERR_CORRUPT,
			"the manifest of layer '%s' was changed, or comes from another instance",
			layer);
	if (!str_eq(id, layer))
		return err_raise(
			err, ERR_CORRUPT, "layer '%s' has the manifest of layer '%s'", layer, id);
	return 0;
}

json_t *layer_manifest_read(const struct store *store, const char *layer, struct err *err)
{
	cleanup_buf struct buf text = BUF_INIT(MANIFEST_MAX);
	char path[64];
	cleanup_fd int dir = -1;
	json_t *manifest;
	int rc;

	(void)snprintf(path, sizeof(path), "layers/%s", layer);
	dir = store_dir(store, path);
	if (dir < 0) {
		(void)err_raise_sys(err, dir, "open layer '%s'", layer);
		return NULL;
	}
	rc = file_read_at(dir, LAYER_MANIFEST, &text);
	if (rc < 0) {
		(void)err_raise(err, ERR_CORRUPT, "layer '%s' has no manifest", layer);
		return NULL;
	}
	manifest = json_loadb(buf_cstr(&text), text.n, JSON_REJECT_DUPLICATES, NULL);
	if (check(store, manifest, layer, err) < 0) {
		json_decref(manifest);
		return NULL;
	}
	return manifest;
}

bool layer_exists(const struct store *store, const char *layer)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "layers/%s", layer);
	return faccessat(store->pool, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int layer_commit(const struct store *store, int from_dir, const char *from, json_t *manifest,
	struct err *err)
{
	const char *layer = json_string_value(json_object_get(manifest, "layer"));
	cleanup_fd int layers = store_dir(store, "layers"), dir = -1;
	int rc = layers;

	dir = openat(from_dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || layers < 0)
		return err_raise_sys(
			err, dir < 0 ? -errno : layers, "open what becomes layer '%s'", layer);
	rc = layer_manifest_write(store, dir, manifest, err);
	if (rc < 0)
		return rc;
	rc = fault("store.commit.manifest");
	if (rc == 0)
		rc = fault("store.commit.before_rename");
	if (rc == 0 && renameat2(from_dir, from, layers, layer, RENAME_NOREPLACE) < 0)
		rc = -errno;
	if (rc == 0)
		rc = fault("store.commit.after_rename");
	if (rc < 0)
		return err_raise_sys(err, rc, "commit layer '%s'", layer);
	return 0;
}

json_t *layer_reply(const json_t *manifest, uint64_t frozen_us)
{
	const json_t *trees = json_object_get(manifest, "trees"), *t;
	json_int_t files = 0, bytes = 0;
	bool counted = true;
	size_t i;

	json_array_foreach (trees, i, t) {
		counted = counted && json_is_integer(json_object_get(t, "files"));
		files += json_integer_value(json_object_get(t, "files"));
		bytes += json_integer_value(json_object_get(t, "bytes"));
	}
	return json_pack("{s:O, s:O, s:I, s:o, s:o, s:O, s:s}", "layer",
		json_object_get(manifest, "layer"), "how", json_object_get(manifest, "how"),
		"frozen_us", (json_int_t)frozen_us, "files",
		counted ? json_integer(files) : json_null(), "bytes",
		counted ? json_integer(bytes) : json_null(), "captured_ns",
		json_object_get(manifest, "captured_ns"), "state", "sealed");
}
