/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store/upkeep.c - the jobs that keep the pool tidy: `recover`, `remove`, `gc`, `usage`, `sync`.
 *
 * What is removed goes at once from where it could be found: a subvolume is destroyed (O(1)), a directory renamed to trash/ and deleted from there.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "base/id.h"
#include "base/str.h"
#include "store/apply.h"
#include "store/disk.h"
#include "store/layer.h"
#include "store/previous.h"
#include "store/seal.h"
#include "store/tree.h"
#include "store/verbs.h"
#include "store/verify.h"
#include "sys/btrfs.h"
#include "sys/raw.h"

/* Somebody else may be faster. */
static int gone(int rc)
{
	return rc == -ENOENT ? 0 : rc < 0 ? rc : 1;
}

#define DEFERRED 2

/* Remove @where/@name; with @defer what cannot go at once stays in trash/. Return: 1 when it was there, DEFERRED when it lies there now, 0 when it was not, -errno. */
static int discard(const struct store *store, const char *where, const char *name, bool defer)
{
	cleanup_fd int parent = store_dir(store, where), trash = store_dir(store, "trash");
	cleanup_fd int dir = -1;
	struct id id = id_new();
	int rc;

	if (parent < 0 || trash < 0)
		return parent < 0 ? parent : trash;
	dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 && (errno == ENOTDIR || errno == ELOOP))
		return gone(unlinkat(parent, name, 0) < 0 ? -errno : 0);
	if (dir < 0)
		return gone(-errno);
	if (btrfs_subvolume_is(dir)) {
		fd_close(&dir);
		return gone(btrfs_subvolume_remove(parent, name));
	}
	if (renameat2(parent, name, trash, id.s, RENAME_NOREPLACE) < 0)
		return gone(-errno);
	if (defer)
		return DEFERRED;
	rc = fault("store.remove.renamed");
	if (rc == 0)
		rc = tree_remove(trash, id.s);
	return rc < 0 && rc != -ENOENT ? rc : 1;
}

int store_discard(const struct store *store, const char *where, const char *name)
{
	return discard(store, where, name, false);
}

static int discard_layer(const struct store *store, const char *layer, bool defer)
{
	cleanup_free char *list = str_dupf("verified/%s.json", layer);

	(void)unlinkat(store->pool, list, 0);
	return discard(store, "layers", layer, defer);
}

static bool listed(const json_t *ids, const char *id)
{
	const json_t *e;
	size_t i;

	json_array_foreach (ids, i, e) {
		if (str_eq(json_string_value(e), id))
			return true;
	}
	return false;
}

static json_t *set_of(const json_t *ids)
{
	json_t *set = json_object();
	const json_t *e;
	size_t i;

	json_array_foreach (ids, i, e)
		(void)json_object_set_new(set, json_string_value(e), json_true());
	return set;
}

static int each_name(
	const struct store *store, const char *where, struct tree_names *names, struct err *err)
{
	cleanup_fd int dir = store_dir(store, where);
	int rc = dir < 0 ? dir : tree_names(dir, names);

	return rc < 0 ? err_raise_sys(err, rc, "list '%s/pool/%s'", store->path, where) : 0;
}

/* A layer is as old as its manifest: a snapshot's own directory has the birth time of what it was taken from. */
static uint64_t born_ns(const struct store *store, const char *where, const char *name)
{
	cleanup_free char *path =
		str_dupf("%s/%s%s", where, name, str_eq(where, "layers") ? "/" LAYER_MANIFEST : "");
	struct statx st;

	if (statx(store->pool, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_CTIME, &st) < 0)
		return 0;
	if ((st.stx_mask & STATX_BTIME) == 0)
		st.stx_btime = st.stx_ctime;
	return (uint64_t)st.stx_btime.tv_sec * NS_PER_S + st.stx_btime.tv_nsec;
}

/* Remove the entries of @where that @keep does not name and that were there at @until_ns. One that cannot be removed keeps no other. Return: how many, or the error of the first. */
static int sweep(const struct store *store, const char *where, const json_t *keep,
	uint64_t until_ns, struct err *err)
{
	cleanup_names struct tree_names names = { 0 };
	json_t *set = set_of(keep);
	int first = each_name(store, where, &names, err), n = 0;

	for (size_t i = 0; i < names.n; i++) {
		const char *name = names.names[i];
		int rc;

		if (json_object_get(set, name) != NULL || born_ns(store, where, name) > until_ns)
			continue;
		rc = str_eq(where, "layers") ? discard_layer(store, name, false)
					     : discard(store, where, name, false);
		if (rc >= 0)
			n += rc;
		else if (first == 0)
			first = err_raise_sys(err, rc, "remove '%s/%s'", where, name);
	}
	json_decref(set);
	return first < 0 ? first : n;
}

/* What applies of sandboxes that are no more left behind. */
static void forget_applies(const struct store *store, const json_t *sandboxes, uint64_t until_ns)
{
	json_t *keep = set_of(sandboxes);

	apply_forget(store, keep, until_ns);
	json_decref(keep);
}

/* The same of some that are no more. */
static void forget_applies_of(const struct store *store, const json_t *sandboxes)
{
	const json_t *e;
	size_t i;

	json_array_foreach (sandboxes, i, e)
		apply_forget_one(store, json_string_value(e));
}

/* Of several places: one that cannot be cleared keeps no other. */
struct sweeps {
	const struct store *store;
	int rc; /* of the first that failed, */
	struct err *err;
};

static void note_failure(struct sweeps *s, int rc, const struct err *err)
{
	if (rc >= 0 || s->rc < 0)
		return;
	s->rc = rc;
	*s->err = *err;
}

/* Return: how many went. */
static int sweep_next(struct sweeps *s, const char *where, const json_t *keep, uint64_t until_ns)
{
	struct err err = { 0 };
	int rc = sweep(s->store, where, keep, until_ns, &err);

	note_failure(s, rc, &err);
	return rc < 0 ? 0 : rc;
}

static int check_ids(struct job *job, struct err *err)
{
	int rc = job_ids(job->request, "layers", err);

	if (rc == 0)
		rc = job_ids(job->request, "memories", err);
	if (rc == 0)
		rc = job_ids(job->request, "images", err);
	return rc < 0 ? rc : job_ids(job->request, "sandboxes", err);
}

/*
 * Is an unknown layer a seal that is the present of its sandbox? The epoch ends with the snapshot: who has gone back since then has ended another one, and wants nothing of what
 * the seal holds. It is what is left of a snapshot that was removed.
 */
static bool is_present(const json_t *manifest, const json_t *request)
{
	const char *how = json_string_value(json_object_get(manifest, "how"));
	const char *sandbox = json_string_value(json_object_get(manifest, "sandbox"));
	const json_t *sealed = json_object_get(manifest, "epoch"), *now;

	if (how == NULL || !str_eq(how, "seal") || sandbox == NULL || !id_valid(sandbox) ||
		!listed(json_object_get(request, "sandboxes"), sandbox))
		return false;
	now = json_object_get(json_object_get(request, "epochs"), sandbox);
	return now == NULL || sealed == NULL ||
	       json_integer_value(now) <= json_integer_value(sealed) + 1;
}

/* The layers to keep, with those that recovery takes back, or that nobody can tell from them: the only copy of a sandbox's files is not garbage because its recovery failed. */
static json_t *layers_to_keep(const struct store *store, const json_t *request)
{
	cleanup_names struct tree_names names = { 0 };
	json_t *all = json_copy(json_object_get(request, "layers")), *known = set_of(all);

	(void)each_name(store, "layers", &names, NULL);
	for (size_t i = 0; i < names.n; i++) {
		json_t *manifest;

		if (json_object_get(known, names.names[i]) != NULL)
			continue;
		manifest = seal_read(store, names.names[i], NULL);
		if (manifest == NULL || is_present(manifest, request))
			(void)json_array_append_new(all, json_string(names.names[i]));
		json_decref(manifest);
	}
	json_decref(known);
	return all;
}

int store_gc(struct job *job, json_t **ok, struct err *err)
{
	/* what is younger may have been made after the caller had listed what it knows */
	uint64_t until;
	struct sweeps s = { .store = &job->store, .err = err };
	int layers, sandboxes, rc = check_ids(job, err);
	json_t *keep;

	if (rc == 0 && (!json_is_array(json_object_get(job->request, "layers")) ||
			       !json_is_array(json_object_get(job->request, "sandboxes"))))
		return err_raise(
			err, ERR_INVALID, "'layers' and 'sandboxes' to keep must both be given");
	if (rc == 0)
		rc = job_number(job->request, "until_ns", clock_wall_ns() - NS_PER_S, &until, err);
	if (rc < 0)
		return rc;
	keep = layers_to_keep(&job->store, job->request);
	layers = sweep_next(&s, "layers", keep, until);
	json_decref(keep);
	sandboxes = sweep_next(&s, "live", json_object_get(job->request, "sandboxes"), until);
	(void)sweep_next(&s, "memory", json_object_get(job->request, "memories"), until);
	forget_applies(&job->store, json_object_get(job->request, "sandboxes"), until);
	(void)sweep_next(&s, "trash", NULL, UINT64_MAX);
	if (s.rc < 0)
		return s.rc;
	*ok = json_pack("{s:i, s:i}", "layers_removed", layers, "sandboxes_removed", sandboxes);
	return 0;
}

struct removed {
	int all, deferred;
};

/* One that cannot be removed keeps no other. Return: 0, or the error of the first. */
static int remove_all(
	struct job *job, const char *member, const char *where, struct removed *n, struct err *err)
{
	const json_t *ids = json_object_get(job->request, member), *e;
	bool defer = job_flag(job->request, "defer", false);
	size_t i;
	int first = job_ids(job->request, member, err);

	if (first < 0)
		return first;
	json_array_foreach (ids, i, e) {
		const char *id = json_string_value(e);
		int rc = str_eq(where, "layers") ? discard_layer(&job->store, id, defer)
						 : discard(&job->store, where, id, defer);

		n->all += rc > 0;
		n->deferred += rc == DEFERRED;
		if (rc < 0 && first == 0)
			first = err_raise_sys(err, rc, "remove '%s/%s'", where, id);
	}
	return first < 0 ? first : 0;
}

/* A power cut from now on does not bring back what lay in live/. What btrfs destroys is not in its log: there this is a commit. */
static int sync_removed(const struct store *store, struct err *err)
{
	static const char *const places[] = { "trash", "live" };

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		cleanup_fd int dir = store_dir(store, places[i]);

		if (dir < 0 || fsync(dir) < 0)
			return err_raise_sys(
				err, dir < 0 ? dir : -errno, "write '%s' to disk", places[i]);
	}
	return 0;
}

int store_remove(struct job *job, json_t **ok, struct err *err)
{
	static const char *const kinds[][2] = { { "sandboxes", "live" }, { "layers", "layers" },
		{ "images", "images" }, { "memories", "memory" } };
	struct sweeps s = { .store = &job->store, .err = err };
	struct removed n = { 0 };
	int rc = check_ids(job, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct err why = { 0 };

		note_failure(&s, remove_all(job, kinds[i][0], kinds[i][1], &n, &why), &why);
	}
	if (job_flag(job->request, "forget", false))
		forget_applies_of(&job->store, json_object_get(job->request, "sandboxes"));
	if (s.rc == 0 && job_flag(job->request, "sync", false))
		s.rc = sync_removed(&job->store, err);
	if (job_flag(job->request, "trash",
		    false)) /* what a job that was killed had begun to delete */
		(void)sweep_next(&s, "trash", NULL, UINT64_MAX);
	if (s.rc == 0)
		*ok = json_pack("{s:i, s:i}", "removed", n.all, "deferred", n.deferred);
	return s.rc;
}

/* What recovery does: each seal by itself, for one that cannot be taken back must not keep the others, and the room that they take. */
struct recovery {
	const struct store *store;
	const json_t *request;
	json_t *unsealed, *kept, *problems, *unmade;
	int removed;
};

/* Nobody's garbage: the next start tries again. @name: as it lies there; @sandbox: whose files it has, NULL = nobody knows. */
static void keep_seal(struct recovery *r, const char *name, const char *layer, const char *sandbox,
	const char *reason)
{
	(void)json_array_append_new(r->kept, json_pack("{s:s,s:s,s:s*,s:s}", "seal", name, "layer",
						     layer, "sandbox", sandbox, "reason", reason));
}

/* As long as it is not given back its sandbox has nothing else, unless it was written to since: then that is what the sandbox is. */
static void keep_failed(
	struct recovery *r, const char *name, const char *layer, const char *sandbox, int rc)
{
	if (rc == -EBUSY)
		keep_seal(r, name, layer, NULL, "its sandbox was written to since");
	else
		keep_seal(r, name, layer, sandbox, strerror(-rc));
}

/* What cannot be cleared up is no reason to leave the rest, nor to start nothing. */
static void note(struct recovery *r, int rc, struct err *err)
{
	if (rc < 0)
		(void)json_array_append_new(r->problems, json_string(err->msg));
	*err = (struct err){ 0 };
}

/* Seals that were under way: nothing of ours knows them, so they are taken back. */
static int recover_sealing(struct recovery *r, struct err *err)
{
	cleanup_names struct tree_names names = { 0 };
	int rc = each_name(r->store, "sealing", &names, err);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		const char *name = names.names[i];
		int back = seal_give_back(r->store, name);
		cleanup_free char *sandbox = str_dupf("%.*s", ID_LEN, name);

		if (back < 0)
			keep_failed(r, name, strlen(name) > ID_LEN ? name + ID_LEN + 1 : name,
				sandbox, back);
		else
			(void)json_array_append_new(r->unsealed, json_string(sandbox));
	}
	return rc;
}

static void discard_known(struct recovery *r, const char *layer)
{
	int rc = discard_layer(r->store, layer, false);
	struct err err;

	r->removed += rc > 0;
	if (rc < 0)
		note(r, err_raise_sys(&err, rc, "remove layer '%s'", layer), &err);
}

/* A power cut may leave the name of a layer, and of its manifest nothing: a seal, which is the only copy, says then by its mark whose it is. */
static void recover_layer(struct recovery *r, const char *layer)
{
	struct err why = { 0 };
	json_t *manifest = seal_read(r->store, layer, &why);
	const char *sandbox = json_string_value(json_object_get(manifest, "sandbox"));
	int rc;

	if (manifest == NULL) {
		keep_seal(r, layer, layer, NULL, why.msg);
	} else if (is_present(manifest, r->request)) {
		rc = seal_undo(r->store, sandbox, layer);
		if (rc < 0)
			keep_failed(r, layer, layer, sandbox, rc);
		else
			(void)json_array_append_new(r->unsealed, json_string(sandbox));
	} else {
		discard_known(r, layer);
	}
	json_decref(manifest);
}

/* Layers whose content a known layer has taken over: they are garbage, never a seal that was cut short. */
static json_t *flattened(const struct store *store, const json_t *layers)
{
	json_t *all = json_array();
	const json_t *e;
	size_t i;

	json_array_foreach (layers, i, e) {
		json_t *manifest = layer_is_flat(json_string_value(e))
					   ? layer_manifest_read(store, json_string_value(e), NULL)
					   : NULL;

		(void)json_array_extend(all, json_object_get(manifest, "flattens"));
		json_decref(manifest);
	}
	return all;
}

static int recover_layers(struct recovery *r, struct err *err)
{
	cleanup_names struct tree_names names = { 0 };
	json_t *known = set_of(json_object_get(r->request, "layers"));
	json_t *old = flattened(r->store, json_object_get(r->request, "layers"));
	int rc = each_name(r->store, "layers", &names, err);

	for (size_t i = 0; rc == 0 && i < names.n; i++) {
		if (json_object_get(known, names.names[i]) != NULL)
			continue;
		if (listed(old, names.names[i]))
			discard_known(r, names.names[i]);
		else
			recover_layer(r, names.names[i]);
	}
	json_decref(known);
	json_decref(old);
	return rc;
}

/* A seal that the catalogue knows, but that died before the sandbox got its new live directory. */
static void recover_lives(struct recovery *r, struct job *job, struct err *err)
{
	const json_t *ids = json_object_get(job->request, "layers"), *e;
	size_t i;
	int rc = 0;

	json_array_foreach (ids, i, e) {
		json_t *manifest = seal_read(&job->store, json_string_value(e), NULL);
		const char *how = json_string_value(json_object_get(manifest, "how"));
		const char *sandbox = json_string_value(json_object_get(manifest, "sandbox"));
		cleanup_free char *live = str_dupf("live/%s", sandbox != NULL ? sandbox : "");

		if (how != NULL && str_eq(how, "seal") && sandbox != NULL &&
			listed(json_object_get(job->request, "sandboxes"), sandbox) &&
			faccessat(job->store.pool, live, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
			rc = seal_renew_live(&job->store, sandbox, json_string_value(e));
		if (rc < 0) {
			note(r,
				err_raise_sys(err, rc, "make the live directory of sandbox '%s'",
					sandbox),
				err);
			rc = 0;
		}
		json_decref(manifest);
	}
}

/* What nothing needs goes. Return: how many directories of sandboxes, or an error. */
static int recover_sweep(const struct recovery *r, struct err *err)
{
	struct sweeps s = { .store = r->store, .err = err };
	int sandboxes =
		sweep_next(&s, "live", json_object_get(r->request, "sandboxes"), UINT64_MAX);

	(void)sweep_next(&s, "memory", json_object_get(r->request, "memories"), UINT64_MAX);
	if (json_is_array(json_object_get(r->request, "images")))
		(void)sweep_next(&s, "images", json_object_get(r->request, "images"), UINT64_MAX);
	forget_applies(r->store, json_object_get(r->request, "sandboxes"), UINT64_MAX);
	(void)sweep_next(&s, "tmp", NULL, UINT64_MAX);
	(void)sweep_next(&s, "trash", NULL, UINT64_MAX);
	return s.rc < 0 ? s.rc : sandboxes;
}

static bool is_missing(const struct store *store, const char *where, const char *id)
{
	cleanup_free char *path = str_dupf("%s/%s", where, id);

	return faccessat(store->pool, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/*
 * A power cut may take the pool further back than the catalogue: a seal that this knows never was, and what it was to have is in the live directory. Only where that is there: in a
 * pool that is not the right one nothing of the sandbox is.
 */
static void recover_unmade(struct recovery *r)
{
	json_t *own;
	const json_t *e;
	const char *sandbox;
	size_t i;

	json_object_foreach (json_object_get(r->request, "seals"), sandbox, own) {
		if (!id_valid(sandbox) || is_missing(r->store, "live", sandbox))
			continue;
		json_array_foreach (own, i, e) {
			const char *layer = json_string_value(e);

			if (layer == NULL || !id_valid(layer) ||
				!is_missing(r->store, "layers", layer))
				break;
			(void)json_array_append_new(r->unmade,
				json_pack("{s:s,s:s}", "sandbox", sandbox, "layer", layer));
		}
	}
}

/* The seals first: without what they have their sandboxes are not what they seem. Everything else is only noted. */
static int recover_all(struct recovery *r, struct job *job, struct err *err)
{
	int rc = recover_sealing(r, err);

	if (rc == 0)
		rc = recover_layers(r, err);
	if (rc == 0)
		recover_unmade(r); /* before new live directories are made */
	if (rc == 0)
		recover_lives(r, job, err);
	return rc;
}

int store_recover(struct job *job, json_t **ok, struct err *err)
{
	struct recovery r = { .store = &job->store,
		.request = job->request,
		.unsealed = json_array(),
		.kept = json_array(),
		.problems = json_array(),
		.unmade = json_array() };
	int undone = 0, finished = 0, sandboxes = 0, rc = check_ids(job, err);

	(void)fault("store.recover.begun");
	if (rc == 0 && (!json_is_array(json_object_get(job->request, "layers")) ||
			       !json_is_array(json_object_get(job->request, "sandboxes"))))
		rc = err_raise(err, ERR_INVALID,
			"'layers' and 'sandboxes' that are known must both be given");
	if (rc == 0)
		rc = recover_all(&r, job, err);
	if (rc == 0) {
		note(&r, apply_recover(&job->store, NULL, &undone, &finished, err), err);
		sandboxes = recover_sweep(&r, err);
		note(&r, sandboxes, err);
		*ok = json_pack("{s:i, s:i, s:O, s:O, s:O, s:O, s:i, s:i}", "applies_undone",
			undone, "applies_finished", finished, "unsealed", r.unsealed, "kept",
			r.kept, "problems", r.problems, "unmade", r.unmade, "layers_removed",
			r.removed, "sandboxes_removed", sandboxes > 0 ? sandboxes : 0);
	}
	json_decref(r.unsealed);
	json_decref(r.kept);
	json_decref(r.problems);
	json_decref(r.unmade);
	return rc;
}

/* What a sandbox with a disk of its own has used of it; -ENODATA when it has none. */
static int disk_used(int live, const char *id, struct disk_size *used)
{
	cleanup_fd int root = -1;

	if (!disk_exists(live))
		return -ENODATA;
	root = disk_open(live, id);
	return root < 0 ? root : disk_usage(root, used);
}

static json_t *usage_of(
	const struct store *store, const char *where, const char *id, struct err *err)
{
	cleanup_free char *path = str_dupf("%s/%s", where, id);
	cleanup_fd int dir = store_dir(store, path);
	struct tree_count count = { 0 };
	struct disk_size used;
	uint64_t bytes;
	int rc = dir < 0 ? dir : disk_used(dir, id, &used);

	if (rc == 0)
		return json_pack("{s:I, s:I}", "bytes", (json_int_t)used.bytes, "inodes",
			(json_int_t)used.inodes);
	if (rc == -ENODATA)
		rc = tree_count(dir, &count);
	if (rc < 0) {
		(void)err_raise_sys(err, rc, "count '%s'", path);
		return NULL;
	}
	if (!btrfs_subvolume_is(dir) || !str_eq(where, "live") ||
		btrfs_subvolume_usage(dir, &bytes) < 0)
		bytes = count.bytes;
	return json_pack(
		"{s:I, s:I}", "bytes", (json_int_t)bytes, "inodes", (json_int_t)count.entries);
}

static int usage_all(
	struct job *job, const char *member, const char *where, json_t *usage, struct err *err)
{
	const json_t *ids = json_object_get(job->request, member), *e;
	size_t i;

	json_array_foreach (ids, i, e) {
		json_t *one = usage_of(&job->store, where, json_string_value(e), err);

		if (one == NULL)
			return -EIO;
		(void)json_object_set_new(usage, json_string_value(e), one);
	}
	return 0;
}

int store_usage(struct job *job, json_t **ok, struct err *err)
{
	json_t *usage = json_object();
	int rc = check_ids(job, err);

	if (rc == 0)
		rc = usage_all(job, "sandboxes", "live", usage, err);
	if (rc == 0)
		rc = usage_all(job, "layers", "layers", usage, err);
	if (rc == 0)
		*ok = json_pack("{s:O}", "usage", usage);
	json_decref(usage);
	return rc;
}

static int sync_layer(const struct store *store, const char *layer)
{
	cleanup_free char *path = str_dupf("layers/%s", layer);
	cleanup_fd int dir = store_dir(store, path);

	if (dir < 0)
		return dir;
	if (!store->btrfs)
		return tree_sync(dir); /* a whole host is not ours to flush */
	/* A belt: nothing of ours writes there. It costs a transaction, so not before somebody waits for one anyway; and it is no reason to call a layer less than durable. */
	if (btrfs_subvolume_is(dir))
		(void)!btrfs_subvolume_readonly(dir, true);
	return 0;
}

int store_sync(struct job *job, json_t **ok, struct err *err)
{
	const json_t *ids = json_object_get(job->request, "layers"), *e;
	cleanup_fd int layers = store_dir(&job->store, "layers");
	size_t i;
	int rc = job_ids(job->request, "layers", err);

	if (rc < 0)
		return rc;
	json_array_foreach (ids, i, e) {
		rc = sync_layer(&job->store, json_string_value(e));
		if (rc < 0) {
			previous_spoiled(&job->store, json_string_value(e));
			return err_raise_sys(
				err, rc, "write layer '%s' to disk", json_string_value(e));
		}
	}
	if (layers < 0 || fsync(layers) < 0 || (job->store.btrfs && syncfs(layers) < 0))
		return err_raise_sys(err, layers < 0 ? layers : -errno, "write the layers to disk");
	/* now: a list says that the layer is on the disk (previous.h) */
	json_array_foreach (ids, i, e) {
		rc = verify_small(&job->store, json_string_value(e), err);
		if (rc < 0)
			return rc;
	}
	(void)fault("store.sync.done");
	*ok = json_pack("{s:s}", "state", "durable");
	return 0;
}
