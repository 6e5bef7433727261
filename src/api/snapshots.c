/* SPDX-License-Identifier: Apache-2.0 */
/* api/snapshots.c - the snapshots that there are: loaded, found, shown, removed. How one is made: snapshot_take.c. */
#include "api/memories.h"
#include "api/snapshot_parts.h"
#include "api/steps.h"
#include "api/telling.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

struct snapshot *snapshot_add(struct server *srv, const char *id, json_t *doc)
{
	struct snapshot *s = xnew(struct snapshot);

	(void)!str_copy(s->id, sizeof(s->id), id);
	s->doc = doc;
	list_append(&srv->snapshots, &s->node);
	map_add(&srv->snapshots_by_id, &s->by_id, s->id);
	if (snapshot_name(s) != NULL)
		map_add(&srv->snapshots_by_name, &s->by_name, snapshot_name(s));
	snapshot_index(srv, s);
	return s;
}

void snapshot_unlist(struct server *srv, struct snapshot *s)
{
	live_drop(s->live);
	snapshot_unindex(srv, s);
	list_remove(&s->node);
	map_remove(&srv->snapshots_by_id, &s->by_id);
	map_remove(&srv->snapshots_by_name, &s->by_name);
	json_decref(s->doc);
	free(s);
}

static int load_one(void *ctx, const char *id, const char *text)
{
	const struct loading *l = ctx;
	json_t *doc = json_loads(text, 0, NULL);

	if (telling_is_buried(doc)) {
		telling_buried(l->srv, CATALOGUE_SNAPSHOTS, id, doc);
		json_decref(doc);
		return 0;
	}
	if (!json_is_array(json_object_get(doc, "layers")) || !id_valid(id)) {
		json_decref(doc);
		return server_unread(l, "snapshots", id);
	}
	/* a template ends with its server; what is on disk is loaded when somebody wants it */
	snapshot_set_live(
		snapshot_add(l->srv, id, doc), NULL, json_incref(json_object_get(doc, "live")));
	return 0;
}

int snapshots_load(struct server *srv, struct err *err)
{
	struct loading l = { srv, err };

	return catalogue_each(srv->catalogue, CATALOGUE_SNAPSHOTS, load_one, &l, err);
}

void snapshots_tell_again(struct server *srv)
{
	bool any = false;

	list_for_each (&srv->snapshots, node, next)
		any |= telling_again(srv, list_entry(node, struct snapshot, node)->doc);
	if (!any || journal_flush(srv->journal) < 0 ||
		catalogue_begin(srv->catalogue, false, NULL) < 0)
		return;
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (telling_done(s->doc))
			(void)snapshot_save(srv, s, false, NULL);
	}
	(void)!catalogue_commit(srv->catalogue, NULL); /* else the next start looks again */
}

void snapshot_announce(struct server *srv, struct snapshot *s, enum event_type type, json_t *data)
{
	const struct sandbox *source = snapshot_source(srv, s);

	telling_announce(srv, s->doc,
		&(struct telling){ .type = type,
			.sandbox = source != NULL ? source->id : NULL,
			.epoch = source != NULL ? sandbox_epoch(source) : 0,
			.data = data });
}

struct sandbox *snapshot_source(struct server *srv, const struct snapshot *s)
{
	return sandbox_by_id(srv, json_string_value(json_object_get(s->doc, "sandbox")));
}

const char *snapshot_name(const struct snapshot *s)
{
	return json_string_value(json_object_get(s->doc, "name"));
}

const char *snapshot_called(const struct snapshot *s)
{
	return snapshot_name(s) != NULL ? snapshot_name(s) : s->id;
}

static struct snapshot *by_id(const struct server *srv, const char *id)
{
	struct map_node *node = map_find(&srv->snapshots_by_id, id);

	return node != NULL ? map_entry(node, struct snapshot, by_id) : NULL;
}

struct snapshot *snapshot_by_name(const struct server *srv, const char *name)
{
	struct map_node *node = map_find(&srv->snapshots_by_name, name);

	return node != NULL ? map_entry(node, struct snapshot, by_name) : NULL;
}

struct snapshot *snapshot_find(struct server *srv, const char *what, struct err *err)
{
	struct snapshot *found = by_id(srv, what);
	bool named = sandbox_by_name(srv, what) != NULL; /* a sandbox */

	if (strchr(what, '@') != NULL)
		return step_find(srv, what, err);
	if (found == NULL)
		found = snapshot_by_name(srv, what);
	if (found != NULL)
		return found;
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (named || !id_begins(s->id, what))
			continue;
		if (found != NULL) {
			(void)err_raise(err, ERR_AMBIGUOUS,
				"'%s' is the beginning of more than one snapshot's id", what);
			return NULL;
		}
		found = s;
	}
	if (found == NULL)
		(void)err_raise(err, ERR_NOT_FOUND, "no snapshot '%s'", what);
	return found;
}

json_t *snapshot_object(struct snapshot *s)
{
	json_t *o;

	(void)snapshot_memory(s);
	o = json_copy(s->doc);

	(void)telling_done(o);
	(void)json_object_del(o, "config");
	(void)json_object_del(o, "since_ns");
	(void)json_object_del(o, "base_layers");
	if (memory_of(s->doc) != NULL) {
		json_t *memory = json_copy(json_object_get(s->doc, "memory"));

		(void)json_object_del(memory, "execs");
		(void)json_object_set_new(o, "memory", memory);
	}
	return o;
}

int snapshot_save(struct server *srv, struct snapshot *s, bool durable, struct err *err)
{
	cleanup_free char *text = json_dumps(s->doc, JSON_COMPACT);

	snapshot_index(srv, s);
	return catalogue_put(srv->catalogue, CATALOGUE_SNAPSHOTS, s->id, snapshot_name(s),
		json_string_value(json_object_get(s->doc, "sandbox")), text, durable, err);
}

static int delete_rows(
	struct server *srv, const char *id, const struct telling *removed, struct err *err)
{
	struct catalogue *c = srv->catalogue;
	int rc = catalogue_begin(c, false, err);

	if (rc == 0)
		rc = telling_bury(srv, CATALOGUE_SNAPSHOTS, id, removed, err);
	if (rc == 0)
		rc = catalogue_delete(c, CATALOGUE_GATEWAYS, id, err);
	if (rc == 0)
		rc = catalogue_delete_owned(c, CATALOGUE_MAILS, id, err);
	if (rc == 0)
		return catalogue_commit(c, err);
	catalogue_abort(c);
	return rc;
}

static int remove_rows(struct server *srv, struct snapshot *s, struct err *err)
{
	struct sandbox *source = snapshot_source(srv, s);
	const struct telling removed = { .type = EVENT_SNAPSHOT_REMOVED,
		.sandbox = source != NULL ? source->id : NULL,
		.epoch = source != NULL ? sandbox_epoch(source) : 0,
		.data = json_pack(
			"{s:s,s:O}", "snapshot", s->id, "name", json_object_get(s->doc, "name")) };
	int rc = delete_rows(srv, s->id, &removed, err);

	if (rc < 0) {
		json_decref(removed.data);
		return rc;
	}
	(void)fault("snapshot.remove.committed");
	(void)server_event(srv, source, removed.type, NULL, removed.data);
	telling_buried(srv, CATALOGUE_SNAPSHOTS, s->id, NULL);
	return 0;
}

int snapshot_drop(struct server *srv, struct snapshot *s, struct err *err)
{
	const char *id = memory_of(s->doc);
	cleanup_free char *memory = id != NULL ? str_dup(id) : NULL;
	json_t *layers;
	int rc;

	if (s->users > 0)
		return err_raise(
			err, ERR_BUSY, "snapshot '%s' is being used just now", snapshot_called(s));
	reserve_use(srv);
	rc = remove_rows(srv, s, err);
	if (rc < 0)
		return rc;
	layers = json_incref(json_object_get(s->doc, "layers"));
	keeper_forget_fork(srv, s->id);
	snapshot_unlist(srv, s);
	memory_forget(srv, memory);
	layers_forget(srv, layers);
	json_decref(layers);
	return 0;
}

void snapshot_forget(struct server *srv, struct snapshot *s)
{
	struct err err;

	if (snapshot_drop(srv, s, &err) < 0)
		log_warn("store", "remove snapshot: %s", err.msg);
}

/* --- routes --- */

/*
 * The server may have died, or the disk been full, between making it and the answer: the key remembers it. *@ret: it, as durable as was promised; NULL: there is none, or what was left of it was of
 * no use and has been removed. Context: may wait.
 */
static int taken_before(struct api_call *call, struct snapshot **ret, struct err *err)
{
	const char *id = json_string_value(json_object_get(call->made, "snapshot"));
	struct snapshot *s = NULL;

	*ret = NULL;
	while (id != NULL && (s = by_id(call->srv, id)) != NULL && s->settling)
		(void)waiters_wait(&call->srv->settled, 0);
	if (s == NULL)
		return 0;
	if (snapshot_has_lost_processes(s))
		return snapshot_drop(call->srv, s, err);
	*ret = s;
	return snapshot_name(s) != NULL ? snapshot_keep_promise(call->srv, s, err) : 0;
}

static struct snapshot *take_asked(struct api_call *call, struct err *err)
{
	const char *name = json_string_value(json_object_get(call->body, "name"));
	const json_t *files_only = json_object_get(call->body, "files_only");
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct snapshot *s = NULL;

	if (sb == NULL)
		return NULL;
	if (sb->state == SANDBOX_RUNNING && !json_is_true(files_only))
		snapshots_make_room(call->srv);
	if (sandbox_lock_beside(sb, err) == 0) {
		s = snapshot_take(sb,
			&(struct snapshot_wish){ .name = name,
				.durable = name != NULL,
				.live = files_only != NULL ? json_is_false(files_only)
							   : snapshot_takes_processes(sb),
				.call = call },
			err);
		sandbox_unlock(sb);
	}
	sandbox_unref(sb);
	return s;
}

int api_snapshot_create(struct api_call *call, struct err *err)
{
	struct snapshot *s;
	int rc = taken_before(call, &s, err);

	if (rc < 0)
		return rc;
	if (s == NULL)
		s = take_asked(call, err);
	return s != NULL ? api_reply(call, 201, snapshot_object(s)) : -EIO;
}

int api_snapshot_list(struct api_call *call, struct err *err)
{
	const char *of = api_text(call, "sandbox");
	struct sandbox *sb = of != NULL ? sandbox_look_up(call->srv, of, err) : NULL;
	json_t *list = json_array();

	if (of != NULL && sb == NULL && !id_valid(of)) {
		json_decref(list);
		return -ENOENT;
	}
	if (sb != NULL)
		of = sb->id;
	list_for_each (&call->srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (of == NULL || str_eq(json_string_value(json_object_get(s->doc, "sandbox")), of))
			(void)json_array_append_new(list, snapshot_object(s));
	}
	sandbox_unref(sb);
	return api_reply(call, 200, json_pack("{s:o}", "snapshots", list));
}

int api_snapshot_get(struct api_call *call, struct err *err)
{
	struct snapshot *s;

	step_await(call->srv, call->segments[0]);
	s = snapshot_find(call->srv, call->segments[0], err);
	return s != NULL ? api_reply(call, 200, snapshot_object(s)) : -ENOENT;
}

/* What the background does to a snapshot nobody asked for: whoever wants it gone waits. */
static struct snapshot *find_settled(struct server *srv, const char *what, struct err *err)
{
	struct snapshot *s;

	step_await(srv, what);
	while ((s = snapshot_find(srv, what, err)) != NULL && s->settling)
		(void)waiters_wait(&srv->settled, 0);
	return s;
}

int api_snapshot_remove(struct api_call *call, struct err *err)
{
	struct snapshot *s = find_settled(call->srv, call->segments[0], err);
	int rc = s != NULL ? snapshot_drop(call->srv, s, err) : -ENOENT;

	return rc < 0 ? rc : api_reply(call, 204, NULL);
}

int api_snapshot_verify(struct api_call *call, struct err *err)
{
	struct snapshot *s;
	int rc;

	step_await(call->srv, call->segments[0]);
	s = snapshot_find(call->srv, call->segments[0], err);
	if (s == NULL)
		return -ENOENT;
	snapshot_hold(s);
	rc = snapshot_verify(call->srv, s, err);
	if (rc == 0)
		rc = api_reply(call, 200, snapshot_object(s));
	snapshot_release(call->srv, s);
	return rc;
}
