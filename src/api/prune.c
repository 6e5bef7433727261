/* SPDX-License-Identifier: Apache-2.0 */
/* api/prune.c - what nobody holds on to goes: stopped sandboxes, snapshots without a name, trees that the catalogue does not know. */
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "api_handlers.h"
#include "base/str.h"

static void prune_snapshots(struct server *srv, json_t *removed)
{
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (s->users > 0 || snapshot_name(s) != NULL || snapshot_is_base(srv, s))
			continue;
		(void)json_array_append_new(removed, json_string(s->id));
	}
	for (size_t i = 0; i < json_array_size(removed); i++) {
		struct snapshot *s =
			snapshot_find(srv, json_string_value(json_array_get(removed, i)), NULL);

		if (s != NULL)
			(void)snapshot_drop(srv, s, NULL);
	}
}

static void prune_stopped(struct server *srv, json_t *removed)
{
	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		if ((sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED) && !sb->locked)
			(void)json_array_append_new(removed, json_string(sb->id));
	}
	for (size_t i = 0; i < json_array_size(removed); i++) {
		struct sandbox *sb =
			sandbox_find(srv, json_string_value(json_array_get(removed, i)), NULL);

		if (sb == NULL)
			continue;
		if (sandbox_lock(sb, NULL) == 0) {
			if (sb->keeper == NULL)
				(void)sandbox_remove(sb, NULL);
			sandbox_unlock(sb);
		}
		sandbox_unref(sb);
	}
}

int api_prune(struct api_call *call, struct err *err)
{
	json_t *sandboxes = json_array(), *snapshots = json_array(), *ok = NULL, *keep, *layers;
	struct server *srv = call->srv;
	int rc;

	if (json_is_true(json_object_get(call->body, "stopped")))
		prune_stopped(srv, sandboxes);
	if (json_is_true(json_object_get(call->body, "snapshots")))
		prune_snapshots(srv, snapshots);
	keep = server_known_ids(srv);
	layers = server_known_layers(srv);
	rc = job_run(srv,
		json_pack("{s:s,s:o,s:o,s:o}", "verb", "gc", "sandboxes", keep, "layers", layers,
			"memories", server_known_memories(srv)),
		NULL, NULL, &ok, err);
	if (rc < 0) {
		json_decref(sandboxes);
		json_decref(snapshots);
		return rc;
	}
	(void)json_object_set_new(ok, "sandboxes", sandboxes);
	(void)json_object_set_new(ok, "snapshots", snapshots);
	return api_reply(call, 200, ok);
}
