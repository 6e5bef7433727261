/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/chains.c - chains of layers stay short: each snapshot of a stopped sandbox and each fork of one adds a layer, and the kernel stacks 500.
 *
 * The lowest CHAIN_RUN layers of a chain that no earlier flattening made become one (src/store/flatten.c), as long as twice as many are left: so the newest stay
 * as they are, and forks of one lineage share what was flattened. In the background from then on; before a sandbox starts or is sealed, if CHAIN_MOST are reached.
 *
 * Order: the flat layer is made, then synced, then it takes the place of its layers in every snapshot and every sandbox at rest, as one transaction; then what
 * nothing refers to goes. A running sandbox keeps the layers that it has mounted until it starts again. A run with a layer that is not what was verified stays as it is, and those above it are taken.
 */
#include "api/keeper_pool.h"
#include "api/snapshot_parts.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define CHAIN_RUN  64
#define CHAIN_MOST 300
#define FLAT       "flat" /* store/layer.h */

static bool is_flat(const json_t *layer)
{
	return str_starts(json_string_value(layer), FLAT);
}

/* Of the topmost @n. */
static size_t count_plain(const json_t *layers, size_t n)
{
	size_t plain = 0;

	for (size_t i = 0; i < n; i++)
		plain += !is_flat(json_array_get(layers, i));
	return plain;
}

/* A run that was found damaged, by its topmost layer: until the server starts again nobody tries it once more. */
static bool is_damaged(const struct server *srv, const json_t *layers, size_t at)
{
	const char *top = json_string_value(json_array_get(layers, at));

	return json_object_get(srv->damaged_runs, top) != NULL;
}

/* The lowest run of plain layers of full length that is not known to be damaged: its place from the top, or -1. */
static ssize_t find_run(const struct server *srv, const json_t *layers)
{
	size_t length = 0;

	for (size_t i = json_array_size(layers); i-- > 0;) {
		length = is_flat(json_array_get(layers, i)) ? 0 : length + 1;
		if (length == CHAIN_RUN && !is_damaged(srv, layers, i))
			return (ssize_t)i;
		length = length == CHAIN_RUN ? 0 : length;
	}
	return -1;
}

static json_t *run_at(const json_t *layers, size_t at)
{
	json_t *run = json_array();

	for (size_t i = at; i < at + CHAIN_RUN; i++)
		(void)json_array_append(run, json_array_get(layers, i));
	return run;
}

/* @layers with @to in place of @from, or NULL when it does not hold it. */
static json_t *replaced(const json_t *layers, const json_t *from, json_t *to)
{
	size_t n = json_array_size(layers), length = json_array_size(from);

	for (size_t at = 0; at + length <= n; at++) {
		size_t same = 0;
		json_t *out;

		while (same < length &&
			json_equal(json_array_get(layers, at + same), json_array_get(from, same)))
			same++;
		if (same < length)
			continue;
		out = json_array();
		for (size_t i = 0; i < n; i++) {
			if (i == at)
				(void)json_array_extend(out, to);
			if (i < at || i >= at + length)
				(void)json_array_append(out, json_array_get(layers, i));
		}
		return out;
	}
	return NULL;
}

static bool replace_in(json_t *doc, const char *member, const json_t *from, json_t *to)
{
	json_t *layers = replaced(json_object_get(doc, member), from, to);

	return layers != NULL && json_object_set_new(doc, member, layers) == 0;
}

/* In all of @doc. Return: was it anywhere? */
static bool replace_all(json_t *doc, const json_t *from, json_t *to)
{
	bool layers = replace_in(doc, "layers", from, to);

	return replace_in(doc, "base_layers", from, to) || layers;
}

/* Nobody holds its list of layers just now; @mine is held by the caller. */
static bool at_rest(const struct sandbox *sb, const struct sandbox *mine)
{
	return sb == mine || (sb->keeper == NULL && !sb->locked);
}

static int save_all(struct server *srv, const struct sandbox *mine, const json_t *run, json_t *flat,
	struct err *err)
{
	int rc = 0;

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (rc == 0 && s->users == 0 && replace_all(s->doc, run, flat)) {
			keeper_forget_fork(srv, s->id);
			rc = snapshot_save(srv, s, false, err);
		}
	}
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (rc == 0 && at_rest(sb, mine) && replace_all(sb->doc, run, flat))
			rc = sandbox_save(sb, false, err);
	}
	return rc;
}

/* What save_all() changed in documents, which the catalogue does not have. */
static void take_back(struct server *srv, json_t *run, const json_t *flat)
{
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (replace_all(s->doc, flat, run))
			snapshot_index(srv, s);
	}
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (replace_all(sb->doc, flat, run))
			sandbox_index(sb);
	}
}

static int replace(
	struct server *srv, const struct sandbox *mine, json_t *run, json_t *flat, struct err *err)
{
	int rc = catalogue_begin(srv->catalogue, true, err);

	if (rc == 0)
		rc = save_all(srv, mine, run, flat, err);
	if (rc == 0 && (rc = fault("chain.replace.before")) < 0)
		(void)err_raise_sys(err, rc, "write the shorter chains");
	if (rc == 0)
		rc = catalogue_commit(srv->catalogue, err);
	else
		catalogue_abort(srv->catalogue);
	(void)fault("chain.replace.after");
	if (rc < 0)
		take_back(srv, run, flat);
	return rc;
}

static int make_flat(struct server *srv, json_t *run, const char *flat, struct err *err)
{
	int rc = job_run(srv,
		json_pack("{s:s,s:O,s:s}", "verb", "flatten", "layers", run, "layer", flat), NULL,
		NULL, NULL, err);

	return rc < 0 ? rc
		      : job_run(srv, json_pack("{s:s,s:[s]}", "verb", "sync", "layers", flat), NULL,
				NULL, NULL, err);
}

/* Flatten one run of @layers; one that is damaged (ERR_CORRUPT) is passed over from then on. Return: 1 when there was one, 0, or an error. Context: waits. */
static int flatten_one(
	struct server *srv, const struct sandbox *mine, const json_t *layers, struct err *err)
{
	ssize_t at = find_run(srv, layers);
	struct id id = id_new();
	json_t *run, *flat;
	bool made;
	int rc;

	if (at < 0)
		return 0;
	run = run_at(layers, (size_t)at);
	memcpy(id.s, FLAT, sizeof(FLAT) - 1);
	flat = json_pack("[s]", id.s);
	index_making(srv, MAKING_LAYER, id.s);
	rc = make_flat(srv, run, id.s, err);
	if (rc < 0 && err->code == ERR_CORRUPT)
		(void)json_object_set_new(
			srv->damaged_runs, json_string_value(json_array_get(run, 0)), json_true());
	made = rc == 0;
	if (made)
		rc = replace(srv, mine, run, flat, err);
	/* a commit that failed may be on the disk nevertheless: then both stay until the next server reads which counts */
	if (rc == 0 || !made) {
		index_made(srv, MAKING_LAYER, id.s);
		layers_forget(srv, rc == 0 ? run : flat);
	}
	json_decref(flat);
	json_decref(run);
	return rc < 0 ? rc : 1;
}

int chain_shorten(struct sandbox *sb, struct err *err)
{
	int rc = 1;

	while (rc > 0 && json_array_size(json_object_get(sb->doc, "layers")) >= CHAIN_MOST) {
		rc = flatten_one(sb->srv, sb, json_object_get(sb->doc, "layers"), err);
		if (rc < 0 && err->code == ERR_CORRUPT) {
			log_warn("store", "layers of sandbox '%s' stay as they are: %s", sb->name,
				err->msg);
			rc = 1;
		}
	}
	if (rc < 0)
		err_context(err, "shorten the chain of layers of sandbox '%s'", sb->name);
	return rc < 0 ? rc : 0;
}

static bool is_long(const struct server *srv, const json_t *layers)
{
	ssize_t at = find_run(srv, layers);

	return at >= 0 && count_plain(layers, (size_t)at) >= CHAIN_RUN;
}

/* One whose list of layers is long enough for the background, or NULL. Borrowed. */
static struct snapshot *long_chain(struct server *srv)
{
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (s->users == 0 && is_long(srv, json_object_get(s->doc, "layers")))
			return s;
	}
	return NULL;
}

/* A layer is not what was verified. The snapshot @id, which was to have a shorter chain, is told to be what it is, as its check would; others with the same run have theirs. */
static void tell_damage(struct server *srv, const char *id)
{
	struct snapshot *s = snapshot_find(srv, id, NULL);
	struct err err;

	if (s == NULL)
		return;
	snapshot_hold(s);
	if (snapshot_verify(srv, s, &err) < 0)
		log_warn("store", "snapshot '%s': %s", id, err.msg);
	snapshot_release(srv, s);
}

static int flatten_chain(struct server *srv, const struct snapshot *s, struct err *err)
{
	json_t *layers = json_copy(json_object_get(s->doc, "layers"));
	cleanup_free char *id = str_dup(s->id);
	int rc = flatten_one(srv, NULL, layers, err);

	if (rc < 0 && err->code == ERR_CORRUPT) {
		tell_damage(srv, id);
		rc = 1;
	}
	json_decref(layers);
	return rc;
}

static void flatten_main(void *arg)
{
	struct server *srv = arg;
	struct snapshot *s;
	struct err err;
	int rc = 1;

	while (rc > 0 && !srv->stopping && (s = long_chain(srv)) != NULL)
		rc = flatten_chain(srv, s, &err);
	if (rc < 0) {
		log_warn("store", "flatten layers: %s", err.msg);
		srv->flatten_failed = true; /* once; a chain that must be shorter tries again */
	}
	srv->flattening = false;
}

void chains_settle(struct server *srv)
{
	if (srv->flattening || srv->flatten_failed || srv->stopping || !srv->ready ||
		long_chain(srv) == NULL)
		return;
	srv->flattening = true;
	fiber_start(flatten_main, srv);
}
