/* SPDX-License-Identifier: Apache-2.0 */
/* api/prune.c - what nobody holds on to goes: stopped sandboxes, snapshots without a name, trees that the catalogue does not know. */
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "api_handlers.h"
#include "base/str.h"

#include <sys/statvfs.h>

static bool is_wanted(struct server *srv, const struct snapshot *s)
{
	return s->users > 0 || snapshot_name(s) != NULL || snapshot_is_base(srv, s);
}

/* Removing waits, and others remove, fork and begin to use meanwhile: each is looked at again, and what we removed ourselves is told. */
static void prune_snapshots(struct server *srv, json_t *removed)
{
	json_t *ids = json_array(), *id;
	size_t i;

	list_for_each (&srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);

		if (!is_wanted(srv, s))
			(void)json_array_append_new(ids, json_string(s->id));
	}
	json_array_foreach (ids, i, id) {
		struct snapshot *s = snapshot_find(srv, json_string_value(id), NULL);

		if (s != NULL && !is_wanted(srv, s) && snapshot_drop(srv, s, NULL) == 0)
			(void)json_array_append(removed, id);
	}
	json_decref(ids);
}

/* What failed has its files still, and nobody has said that he is done with it. */
static bool is_over(const struct sandbox *sb)
{
	return sb->state == SANDBOX_STOPPED && !sb->locked;
}

static void prune_one(struct sandbox *sb, const void *removed)
{
	/* nobody has it, so this does not wait */
	if (!is_over(sb) || sandbox_lock(sb, NULL) < 0)
		return;
	if (sandbox_remove(sb, NULL) == 0)
		(void)json_array_append_new((json_t *)(uintptr_t)removed, json_string(sb->id));
	sandbox_unlock(sb);
}

static uint64_t free_bytes(const struct server *srv)
{
	cleanup_free char *path = str_dupf("%s/pool", srv->own_state);
	struct statvfs fs;

	return statvfs(path, &fs) < 0 ? 0 : (uint64_t)fs.f_bfree * fs.f_frsize;
}

/* All that has become free, not only what the job removed; and whether more follows: what was removed is deleted in the background, and btrfs gives its room back later still. */
static void tell_freed(struct server *srv, json_t *ok, uint64_t before)
{
	uint64_t now = free_bytes(srv);
	bool any = json_array_size(json_object_get(ok, "sandboxes")) > 0 ||
		   json_array_size(json_object_get(ok, "snapshots")) > 0 ||
		   json_integer_value(json_object_get(ok, "layers_removed")) > 0;

	(void)json_object_set_new(
		ok, "bytes", json_integer(now > before ? (json_int_t)(now - before) : 0));
	(void)json_object_set_new(ok, "more", json_boolean(any));
}

int api_prune(struct api_call *call, struct err *err)
{
	json_t *sandboxes = json_array(), *snapshots = json_array(), *ok = NULL, *keep, *layers;
	struct server *srv = call->srv;
	uint64_t before = free_bytes(srv);
	int rc;

	if (json_is_true(json_object_get(call->body, "stopped")))
		sandbox_for_all(srv, prune_one, sandboxes);
	if (json_is_true(json_object_get(call->body, "snapshots")))
		prune_snapshots(srv, snapshots);
	keep = server_known_ids(srv);
	layers = server_known_layers(srv);
	/* what is made from now on is in none of the lists */
	rc = job_run(srv,
		json_pack("{s:s,s:o,s:o,s:o,s:o,s:I}", "verb", "gc", "sandboxes", keep, "layers",
			layers, "epochs", server_known_epochs(srv), "memories",
			server_known_memories(srv), "until_ns",
			(json_int_t)(clock_wall_ns() - NS_PER_S)),
		NULL, NULL, &ok, err);
	if (rc < 0) {
		json_decref(sandboxes);
		json_decref(snapshots);
		return rc;
	}
	(void)json_object_set_new(ok, "sandboxes", sandboxes);
	(void)json_object_set_new(ok, "snapshots", snapshots);
	tell_freed(srv, ok, before);
	return api_reply(call, 200, ok);
}
