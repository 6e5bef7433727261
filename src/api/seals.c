/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/seals.c - a seal moves the only copy of a stopped sandbox's files (src/store/seal.c). When nothing came of the snapshot and they cannot be put back, they are nobody's garbage,
 * and the sandbox is not what it seems: it is neither started nor compared on empty trees. Whoever needs its files tries again; so does the next server (job `recover`).
 */
#include "api/sandbox_parts.h"
#include "api/snapshot_parts.h"
#include "base/log.h"
#include "base/str.h"

static int give_back(struct sandbox *sb, const char *layer, struct err *err)
{
	return job_run(sb->srv,
		json_pack("{s:s,s:s,s:s}", "verb", "unseal", "sandbox", sb->id, "layer", layer),
		NULL, NULL, NULL, err);
}

void sandbox_unseal(struct sandbox *sb, const char *layer)
{
	struct err err;

	if (give_back(sb, layer, &err) == 0) {
		index_made(sb->srv, MAKING_LAYER, layer);
		return;
	}
	(void)!str_copy(sb->stranded, sizeof(sb->stranded), layer);
	log_error("store", "%s (tried again before anybody needs its files)", err.msg);
}

static int settle_seal(struct sandbox *sb, struct err *err)
{
	char layer[sizeof(sb->stranded)];

	if (sb->stranded[0] == '\0')
		return 0;
	if (give_back(sb, sb->stranded, err) < 0) {
		err_context(err,
			"the files of sandbox '%s' are in the store, set aside by a snapshot that failed, and cannot be put back yet",
			sb->name);
		return err_hint(
			err, -EIO, "nothing is lost: make room, or see to the disk, and try again");
	}
	(void)!str_copy(layer, sizeof(layer), sb->stranded);
	sb->stranded[0] = '\0';
	index_made(sb->srv, MAKING_LAYER, layer);
	log_info("store", "the files of sandbox '%s' are back", sb->name);
	return 0;
}

int sandbox_settle_files(struct sandbox *sb, struct err *err)
{
	int rc = settle_seal(sb, err);

	return rc == 0 ? sandbox_settle_rewind(sb, err) : rc;
}

int sandbox_check_files(struct sandbox *sb, struct err *err)
{
	int rc;

	if (sb->stranded[0] == '\0')
		return 0;
	rc = sandbox_lock(sb, err);
	if (rc < 0)
		return rc;
	rc = settle_seal(sb, err);
	sandbox_unlock(sb);
	return rc;
}

void seals_kept(struct server *srv, const json_t *kept)
{
	const json_t *seal;
	size_t i;

	json_array_foreach (kept, i, seal) {
		const char *layer = json_string_value(json_object_get(seal, "layer"));
		const char *owner = json_string_value(json_object_get(seal, "sandbox"));
		struct sandbox *sb = owner != NULL ? sandbox_by_id(srv, owner) : NULL;

		log_error("store", "the seal '%s' stays: %s",
			json_string_value(json_object_get(seal, "seal")),
			json_string_value(json_object_get(seal, "reason")));
		if (layer == NULL)
			continue;
		index_making(srv, MAKING_LAYER, layer);
		if (sb != NULL && !sandbox_runs(sb))
			(void)!str_copy(sb->stranded, sizeof(sb->stranded), layer);
	}
}

json_t *seals_known(struct server *srv)
{
	json_t *all = json_object();

	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);
		json_t *layers = json_object_get(sb->doc, "layers");
		size_t n = json_array_size(layers),
		       base = json_array_size(json_object_get(sb->doc, "base_layers"));

		if (n > base && !sandbox_runs(sb) && !sandbox_has_disk(sb)) {
			json_t *own = json_copy(layers);

			for (size_t i = 0; i < base; i++)
				(void)json_array_remove(own, n - 1 - i);
			(void)json_object_set_new(all, sb->id, own);
		}
	}
	return all;
}

/* The one whose own layer @layer is, made from @sandbox, and not durable. */
static struct snapshot *snapshot_sealed(
	const struct server *srv, const char *sandbox, const char *layer)
{
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		const char *own =
			json_string_value(json_array_get(json_object_get(s->doc, "layers"), 0));

		if (own != NULL && str_eq(own, layer) &&
			json_is_string(json_object_get(s->doc, "sandbox")) &&
			str_eq(json_string_value(json_object_get(s->doc, "sandbox")), sandbox) &&
			str_eq(json_string_value(json_object_get(s->doc, "state")), "sealed"))
			return s;
	}
	return NULL;
}

/* Is it said of any snapshot that @layer is on the disk? Then it was made, and lost since. */
static bool was_durable(struct server *srv, const char *layer)
{
	list_for_each (&srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);
		const json_t *one;
		size_t i;

		if (str_eq(json_string_value(json_object_get(s->doc, "state")), "sealed"))
			continue;
		json_array_foreach (json_object_get(s->doc, "layers"), i, one)
			if (str_eq(json_string_value(one), layer))
				return true;
	}
	return false;
}

json_t *snapshot_unsynced(struct server *srv, const struct snapshot *s)
{
	json_t *found = json_array();
	const json_t *layer;
	size_t i;

	json_array_foreach (json_object_get(s->doc, "layers"), i, layer)
		if (!was_durable(srv, json_string_value(layer)))
			(void)json_array_append(found, (json_t *)(uintptr_t)layer);
	return found;
}

/* @sb is as before the snapshot. */
static void unmake(struct sandbox *sb, const char *layer)
{
	json_t *layers = json_copy(json_object_get(sb->doc, "layers"));
	struct snapshot *s = snapshot_sealed(sb->srv, sb->id, layer);
	struct err err;

	(void)json_array_remove(layers, 0);
	(void)json_object_set_new(sb->doc, "layers", layers);
	log_error("store",
		"the machine stopped before layer '%s' of sandbox '%s' was on the disk: its files are where they were before that snapshot%s%s",
		layer, sb->name, s != NULL ? ", which is removed: " : "", s != NULL ? s->id : "");
	if (sandbox_save(sb, false, &err) < 0)
		log_error("store", "%s", err.msg);
	if (s != NULL)
		snapshot_forget(sb->srv, s);
}

void seals_unmade(struct server *srv, const json_t *unmade)
{
	const json_t *one;
	size_t i;

	json_array_foreach (unmade, i, one) {
		const char *layer = json_string_value(json_object_get(one, "layer"));
		const char *owner = json_string_value(json_object_get(one, "sandbox"));
		struct sandbox *sb = owner != NULL ? sandbox_by_id(srv, owner) : NULL;
		const char *top = sb == NULL ? NULL
					     : json_string_value(json_array_get(
						       json_object_get(sb->doc, "layers"), 0));

		if (layer == NULL || top == NULL || !str_eq(top, layer))
			continue;
		if (was_durable(srv, layer))
			log_error("store", "layer '%s' of sandbox '%s' is lost", layer, sb->name);
		else
			unmake(sb, layer);
	}
}
