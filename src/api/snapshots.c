/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/snapshots.c - snapshots, forks, rewinds. The trees are the store's business (docs/design/0002); here is the order of commits.
 *
 * A snapshot: the job renames the layer into place (sealed) -> the catalogue knows it -> it is answered. With a name: the layer is synced, then the
 * catalogue is written durably, then it is answered. A layer that the catalogue does not know after a crash is removed (captured) or put back (sealed) by the
 * job `recover`.
 */
#include "api/lives.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

static struct snapshot *snapshot_add(struct server *srv, const char *id, json_t *doc)
{
	struct snapshot *s = xnew(struct snapshot);

	(void)!str_copy(s->id, sizeof(s->id), id);
	s->doc = doc;
	list_append(&srv->snapshots, &s->node);
	return s;
}

/* @figures is stolen; @memory NULL: the snapshot has no processes, or not any more. */
static void snapshot_set_live(struct snapshot *s, struct live *memory, json_t *figures)
{
	s->live = memory;
	(void)json_object_set_new(s->doc, "files_only", json_boolean(memory == NULL));
	(void)json_object_set_new(s->doc, "live", figures != NULL ? figures : json_null());
}

static int load_one(void *ctx, const char *id, const char *text)
{
	json_t *doc = json_loads(text, 0, NULL);

	if (doc == NULL || !id_valid(id))
		log_error("catalogue", "snapshot '%s' cannot be read: ignored", id);
	else /* a template ends with its server */
		snapshot_set_live(snapshot_add(ctx, id, doc), NULL,
			json_incref(json_object_get(doc, "live")));
	return 0;
}

int snapshots_load(struct server *srv, struct err *err)
{
	return catalogue_each(srv->catalogue, CATALOGUE_SNAPSHOTS, load_one, srv, err);
}

static const char *snapshot_name(const struct snapshot *s)
{
	return json_string_value(json_object_get(s->doc, "name"));
}

struct snapshot *snapshot_find(struct server *srv, const char *what, struct err *err)
{
	struct snapshot *found = NULL;

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		const char *name = snapshot_name(s);

		if (str_eq(s->id, what) || (name != NULL && str_eq(name, what)))
			return s;
	}
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);

		if (what[0] == '\0' || !str_starts(s->id, what))
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

static json_t *snapshot_object(const struct snapshot *s)
{
	json_t *o = json_copy(s->doc);

	(void)json_object_del(o, "config");
	(void)json_object_del(o, "since_ns");
	(void)json_object_del(o, "base_layers");
	return o;
}

int snapshot_save(struct server *srv, const struct snapshot *s, bool durable, struct err *err)
{
	cleanup_free char *text = json_dumps(s->doc, JSON_COMPACT);

	return catalogue_put(srv->catalogue, CATALOGUE_SNAPSHOTS, s->id, snapshot_name(s),
		json_string_value(json_object_get(s->doc, "sandbox")), text, durable, err);
}

/* --- taking one --- */

static json_t *trees_of(const struct sandbox *sb)
{
	json_t *trees = json_pack("[{s:i,s:s}]", "n", 0, "target", "/"), *m;
	size_t i;
	int n = 0;

	json_array_foreach (json_object_get(sb->doc, "mounts"), i, m) {
		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow"))
			(void)json_array_append_new(
				trees, json_pack("{s:i,s:O}", "n", ++n, "target",
					       json_object_get(m, "target")));
	}
	return trees;
}

/* Path of the file that freezes the sandbox, or NULL when it stands still anyway or cannot be frozen. */
static json_t *freeze_path(struct sandbox *sb, struct err *err, int *rc)
{
	json_t *where = NULL, *path = NULL;
	const char *box;

	*rc = 0;
	if (sb->state != SANDBOX_RUNNING)
		return NULL;
	*rc = framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "where"),
		clock_now_ns() + CALL_NS, &where, err);
	box = json_string_value(json_object_get(where, "box"));
	if (*rc == 0 && box != NULL && box[0] != '\0')
		path = json_sprintf("%s/cgroup.freeze", box);
	json_decref(where);
	return path;
}

/* Nothing runs and the files lie in the pool: they become the layer themselves. */
static bool is_sealed_by_move(const struct sandbox *sb)
{
	return (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED) &&
	       !sandbox_has_disk(sb);
}

static json_t *capture_request(const struct sandbox *sb, const char *verb, const char *layer)
{
	return json_pack("{s:s,s:s,s:s,s:o,s:O}", "verb", verb, "sandbox", sb->id, "layer", layer,
		"trees", trees_of(sb), "parents", json_object_get(sb->doc, "layers"));
}

static int capture(struct sandbox *sb, const char *layer, json_t **ret, struct err *err)
{
	int rc;
	json_t *freeze = freeze_path(sb, err, &rc), *request;

	if (rc < 0)
		return rc;
	request = capture_request(sb, is_sealed_by_move(sb) ? "seal" : "capture", layer);
	if (freeze != NULL)
		(void)json_object_set_new(request, "freeze", freeze);
	rc = job_run(sb->srv, request, NULL, NULL, ret, err);
	/* a job that was killed in the middle leaves the sandbox frozen; thawing one that is not frozen is harmless */
	if (rc < 0 && freeze != NULL && sb->keeper != NULL)
		(void)!framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "thaw"),
			clock_now_ns() + CALL_NS, NULL, NULL);
	return rc;
}

struct stopped_capture {
	const char *layer;
	json_t *ok;
};

/* Everything stands still already: nothing to freeze. */
static int capture_stopped(struct sandbox *sb, void *ctx, struct err *err)
{
	struct stopped_capture *c = ctx;

	return job_run(sb->srv, capture_request(sb, "capture", c->layer), NULL, NULL, &c->ok, err);
}

static int capture_live(struct sandbox *sb, const char *layer, json_t **ret, struct live **ret_live,
	json_t **ret_figures, struct err *err)
{
	struct stopped_capture c = { .layer = layer };

	if (sb->state != SANDBOX_RUNNING)
		return err_raise(err, ERR_STATE,
			"sandbox '%s' is not running: it has no processes to keep", sb->name);
	*ret_live = live_take(sb, capture_stopped, &c, ret_figures, err);
	*ret = c.ok;
	return *ret_live != NULL ? 0 : -EIO;
}

static json_t *config_of(const struct sandbox *sb)
{
	static const char *const members[] = { "image", "hostname", "profile", "labels", "env",
		"mounts", "expose", "limits", "policy" };
	json_t *config = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		(void)json_object_set(config, members[i], json_object_get(sb->doc, members[i]));
	return config;
}

static json_t *layers_with(const char *top, json_t *layers)
{
	json_t *all = json_array();

	(void)json_array_append_new(all, json_string(top));
	(void)json_array_extend(all, layers);
	return all;
}

static json_t *snapshot_document(const struct sandbox *sb, const char *id, const char *name,
	const char *layer, const json_t *job)
{
	char when[CLOCK_TEXT_SIZE];
	json_t *doc, *v;

	clock_text(clock_wall_ns(), when);
	doc = json_pack("{s:s,s:s,s:s,s:O,s:O,s:O,s:b,s:o,s:s,s:o,s:O,s:O}", "id", id, "state",
		"sealed", "sandbox", sb->id, "parent", json_object_get(sb->doc, "base"), "image",
		json_object_get(sb->doc, "image"), "epoch", json_object_get(sb->doc, "epoch"),
		"files_only", 1, "layers", layers_with(layer, json_object_get(sb->doc, "layers")),
		"created", when, "config", config_of(sb), "base_layers",
		json_object_get(sb->doc, "base_layers"), "since_ns",
		json_object_get(sb->doc, "since_ns"));
	(void)json_object_set_new(doc, "name", name != NULL ? json_string(name) : json_null());
	v = json_object_get(job, "how");
	(void)json_object_set(doc, "capture", v != NULL ? v : json_null());
	v = json_object_get(job, "frozen_us");
	(void)json_object_set(doc, "frozen_us", v != NULL ? v : json_null());
	v = json_object_get(job, "files");
	(void)json_object_set(doc, "files", v != NULL ? v : json_null());
	v = json_object_get(job, "bytes");
	(void)json_object_set(doc, "bytes", v != NULL ? v : json_null());
	return doc;
}

/* The snapshot and what it changes in its sandbox, as one transaction. */
static int commit(struct sandbox *sb, struct snapshot *s, bool sealed_by_move, struct err *err)
{
	struct server *srv = sb->srv;
	int rc;

	if (sealed_by_move)
		(void)json_object_set_new(
			sb->doc, "layers", json_copy(json_object_get(s->doc, "layers")));
	(void)json_object_set_new(
		sb->doc, "epoch", json_integer((json_int_t)sandbox_epoch(sb) + 1));
	(void)fault("snapshot.commit.before");
	rc = catalogue_begin(srv->catalogue, err);
	if (rc < 0)
		return rc;
	rc = snapshot_save(srv, s, false, err);
	if (rc == 0)
		rc = sandbox_save(sb, false, err);
	if (rc == 0)
		rc = catalogue_commit(srv->catalogue, false, err);
	else
		(void)catalogue_commit(srv->catalogue, false, NULL);
	(void)fault("snapshot.commit.after");
	process_source_epoch(srv->processes, sb->id, sandbox_epoch(sb));
	return rc;
}

static int make_durable(struct server *srv, struct snapshot *s, struct err *err)
{
	struct sandbox *sb =
		sandbox_by_id(srv, json_string_value(json_object_get(s->doc, "sandbox")));
	json_t *layers = json_pack("[O]", json_array_get(json_object_get(s->doc, "layers"), 0));
	int rc;

	s->users++;
	rc = job_run(srv, json_pack("{s:s,s:o}", "verb", "sync", "layers", layers), NULL, NULL,
		NULL, err);
	s->users--;
	if (rc < 0)
		return rc;
	(void)fault("snapshot.durable.before");
	(void)json_object_set_new(s->doc, "state", json_string("durable"));
	rc = snapshot_save(srv, s, true, err);
	if (rc == 0)
		(void)server_event(srv, sb, EVENT_SNAPSHOT_DURABLE, NULL,
			json_pack("{s:s}", "snapshot", s->id));
	return rc;
}

static int check_name(struct server *srv, const char *name, struct err *err)
{
	list_for_each (&srv->snapshots, node, next) {
		const char *other = snapshot_name(list_entry(node, struct snapshot, node));

		if (name != NULL && other != NULL && str_eq(other, name))
			return err_raise(
				err, ERR_EXISTS, "a snapshot named '%s' exists already", name);
	}
	return 0;
}

struct snapshot *snapshot_take(
	struct sandbox *sb, const char *name, bool durable, bool live, struct err *err)
{
	bool still = is_sealed_by_move(sb);
	struct id id = id_new(), layer = id_new();
	struct server *srv = sb->srv;
	struct live *memory = NULL;
	struct snapshot *s;
	json_t *ok = NULL, *figures = NULL;

	if (check_name(srv, name, err) < 0 || (still && chain_shorten(sb, err) < 0))
		return NULL;
	if ((live ? capture_live(sb, layer.s, &ok, &memory, &figures, err)
		  : capture(sb, layer.s, &ok, err)) < 0) {
		err_context(err, "snapshot of sandbox '%s'", sb->name);
		return NULL;
	}
	s = snapshot_add(srv, id.s, snapshot_document(sb, id.s, name, layer.s, ok));
	s->made_ns = clock_now_ns();
	snapshot_set_live(s, memory, figures);
	json_decref(ok);
	if (gateway_state_copy(srv, sb->id, s->id, err) < 0 || commit(sb, s, still, err) < 0) {
		live_drop(s->live);
		list_remove(&s->node);
		json_decref(s->doc);
		free(s);
		return NULL;
	}
	(void)server_event(srv, sb, EVENT_SNAPSHOT_CREATED, NULL,
		json_pack("{s:s,s:O,s:s,s:O,s:O,s:O,s:O}", "snapshot", s->id, "name",
			json_object_get(s->doc, "name"), "layer", layer.s, "files",
			json_object_get(s->doc, "files"), "bytes", json_object_get(s->doc, "bytes"),
			"frozen_us", json_object_get(s->doc, "frozen_us"), "capture",
			json_object_get(s->doc, "capture")));
	if (durable && make_durable(srv, s, err) < 0) {
		err_context(err, "snapshot '%s' is sealed, but not durable",
			name != NULL ? name : s->id);
		return NULL;
	}
	return s;
}

/* --- from sealed to verified, in the background --- */

#define SETTLE_AFTER_NS \
	(5 * NS_PER_S) /* what is forked, tried and thrown away within seconds is not worth a sync */

static struct snapshot *settle_next(struct server *srv)
{
	uint64_t now = clock_now_ns();

	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		const char *state = json_string_value(json_object_get(s->doc, "state"));

		if (s->users == 0 && !s->settle_failed && now - s->made_ns > SETTLE_AFTER_NS &&
			(str_eq(state, "sealed") || str_eq(state, "durable")))
			return s;
	}
	return NULL;
}

static int verify(struct server *srv, struct snapshot *s, struct err *err)
{
	struct sandbox *sb;
	int rc;

	s->users++;
	rc = job_run(srv,
		json_pack(
			"{s:s,s:O}", "verb", "verify", "layers", json_object_get(s->doc, "layers")),
		NULL, NULL, NULL, err);
	s->users--;
	if (rc < 0 && err->code != ERR_CORRUPT)
		return rc;
	sb = sandbox_by_id(srv, json_string_value(json_object_get(s->doc, "sandbox")));
	(void)json_object_set_new(s->doc, "state", json_string(rc < 0 ? "corrupt" : "verified"));
	(void)server_event(srv, sb, rc < 0 ? EVENT_SNAPSHOT_CORRUPT : EVENT_SNAPSHOT_VERIFIED, NULL,
		rc < 0 ? json_pack("{s:s,s:s}", "snapshot", s->id, "reason", err->msg)
		       : json_pack("{s:s}", "snapshot", s->id));
	if (snapshot_save(srv, s, true, rc < 0 ? NULL : err) < 0 && rc == 0)
		rc = -EIO;
	return rc;
}

static void settle_main(void *arg)
{
	struct server *srv = arg;
	struct snapshot *s;
	struct err err;

	while (!srv->stopping && (s = settle_next(srv)) != NULL) {
		bool sealed = str_eq(json_string_value(json_object_get(s->doc, "state")), "sealed");

		s->settling = true;
		if ((sealed ? make_durable(srv, s, &err) : verify(srv, s, &err)) < 0) {
			log_warn("store", "snapshot '%s': %s", s->id, err.msg);
			s->settle_failed = true; /* once; asking for it by hand tries again */
		}
		s->settling = false;
		waiters_wake(&srv->settled);
	}
	srv->settling = false;
}

void snapshots_settle(struct server *srv)
{
	if (srv->settling || srv->stopping || !srv->ready || settle_next(srv) == NULL)
		return;
	srv->settling = true;
	fiber_start(settle_main, srv);
}

/* --- layers that nothing needs --- */

static bool holds(json_t *layers, const char *layer)
{
	size_t i;
	json_t *l;

	json_array_foreach (layers, i, l) {
		if (str_eq(json_string_value(l), layer))
			return true;
	}
	return false;
}

bool layer_in_use(struct server *srv, const char *layer)
{
	list_for_each (&srv->snapshots, node, next) {
		if (holds(json_object_get(list_entry(node, struct snapshot, node)->doc, "layers"),
			    layer))
			return true;
	}
	list_for_each (&srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (holds(json_object_get(sb->doc, "layers"), layer) ||
			holds(json_object_get(sb->doc, "base_layers"), layer))
			return true;
	}
	return false;
}

void layers_forget(struct server *srv, json_t *layers)
{
	json_t *unused = json_array(), *l;
	struct err err;
	size_t i;

	json_array_foreach (layers, i, l) {
		if (!layer_in_use(srv, json_string_value(l)))
			(void)json_array_append(unused, l);
	}
	if (json_array_size(unused) == 0)
		json_decref(unused);
	else if (job_run(srv, json_pack("{s:s,s:o}", "verb", "remove", "layers", unused), NULL,
			 NULL, NULL, &err) < 0)
		log_warn("store", "remove layers: %s (the next start clears up)", err.msg);
}

static int snapshot_drop(struct server *srv, struct snapshot *s, struct err *err)
{
	struct sandbox *sb =
		sandbox_by_id(srv, json_string_value(json_object_get(s->doc, "sandbox")));
	json_t *layers;
	int rc;

	if (s->users > 0)
		return err_raise(err, ERR_BUSY, "snapshot '%s' is being used just now", s->id);
	reserve_use(srv);
	rc = catalogue_delete(srv->catalogue, CATALOGUE_SNAPSHOTS, s->id, err);
	if (rc < 0)
		return rc;
	gateway_state_forget(srv, s->id);
	(void)server_event(srv, sb, EVENT_SNAPSHOT_REMOVED, NULL,
		json_pack("{s:s,s:O}", "snapshot", s->id, "name", json_object_get(s->doc, "name")));
	live_drop(s->live);
	list_remove(&s->node);
	layers = json_incref(json_object_get(s->doc, "layers"));
	json_decref(s->doc);
	free(s);
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

int api_snapshot_create(struct api_call *call, struct err *err)
{
	const char *name = json_string_value(json_object_get(call->body, "name"));
	struct sandbox *sb;
	struct snapshot *s = NULL;

	sb = sandbox_find(call->srv, call->segments[0], err);
	if (sb == NULL)
		return -ENOENT;
	if (sandbox_lock(sb, err) == 0) {
		s = snapshot_take(sb, name, name != NULL,
			json_is_false(json_object_get(call->body, "files_only")), err);
		sandbox_unlock(sb);
	}
	sandbox_unref(sb);
	return s != NULL ? api_reply(call, 201, snapshot_object(s)) : -EIO;
}

int api_snapshot_list(struct api_call *call, struct err *err)
{
	const char *of = api_text(call, "sandbox");
	struct sandbox *sb = of != NULL ? sandbox_find(call->srv, of, err) : NULL;
	json_t *list = json_array();

	if (of != NULL && sb == NULL && !id_valid(of)) {
		json_decref(list);
		return -ENOENT;
	}
	if (sb != NULL)
		of = sb->id;
	list_for_each (&call->srv->snapshots, node, next) {
		const struct snapshot *s = list_entry(node, struct snapshot, node);

		if (of == NULL || str_eq(json_string_value(json_object_get(s->doc, "sandbox")), of))
			(void)json_array_append_new(list, snapshot_object(s));
	}
	sandbox_unref(sb);
	return api_reply(call, 200, json_pack("{s:o}", "snapshots", list));
}

int api_snapshot_get(struct api_call *call, struct err *err)
{
	struct snapshot *s = snapshot_find(call->srv, call->segments[0], err);

	return s != NULL ? api_reply(call, 200, snapshot_object(s)) : -ENOENT;
}

/* What the background does to a snapshot nobody asked for: whoever wants it gone waits. */
static struct snapshot *find_settled(struct server *srv, const char *what, struct err *err)
{
	struct snapshot *s;

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
	struct snapshot *s = snapshot_find(call->srv, call->segments[0], err);
	int rc = s != NULL ? verify(call->srv, s, err) : -ENOENT;

	return rc < 0 ? rc : api_reply(call, 200, snapshot_object(s));
}

/* --- forks --- */

static json_t *fork_request(
	const struct snapshot *s, const json_t *body, json_int_t index, json_int_t count)
{
	const char *name = json_string_value(json_object_get(body, "name"));
	json_t *request = json_copy(json_object_get(s->doc, "config"));

	if (name != NULL && count > 1)
		(void)json_object_set_new(
			request, "name", json_sprintf("%s-%lld", name, index + 1));
	else if (name != NULL)
		(void)json_object_set_new(request, "name", json_string(name));
	return request;
}

/* With the processes of the snapshot when @live. */
static int start_fork(struct sandbox *sb, struct snapshot *s, bool live, struct err *err)
{
	int rc = sandbox_start(sb, true, err);

	if (rc < 0 || !live)
		return rc;
	rc = live_restore(sb, s->live, err);
	if (rc < 0)
		(void)sandbox_remove(sb, NULL);
	return rc;
}

static int fork_one(struct server *srv, struct snapshot *s, json_t *request, bool start, bool live,
	json_t *list, struct err *err)
{
	struct sandbox_origin origin = {
		.snapshot = s->id,
		.parent = json_string_value(json_object_get(s->doc, "sandbox")),
		.layers = json_object_get(s->doc, "layers"),
		.since_ns = (uint64_t)json_integer_value(json_object_get(s->doc, "since_ns")),
	};
	struct sandbox *sb = sandbox_new(srv, request, &origin, start, err);
	int rc;

	json_decref(request);
	if (sb == NULL)
		return -EIO;
	if (start)
		rc = start_fork(sb, s, live, err);
	else
		rc = sandbox_move(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED,
			json_pack("{s:s}", "reason", "not started"), err);
	if (rc == 0)
		(void)json_array_append_new(list, sandbox_object(sb));
	sandbox_unlock(sb);
	sandbox_unref(sb);
	return rc;
}

/* All or none: what was made before a failure is removed again. */
static void fork_undo(struct server *srv, const json_t *list)
{
	size_t i;
	json_t *o;

	json_array_foreach ((json_t *)(uintptr_t)list, i, o) {
		struct sandbox *sb =
			sandbox_find(srv, json_string_value(json_object_get(o, "id")), NULL);

		if (sb == NULL)
			continue;
		if (sandbox_lock(sb, NULL) == 0) {
			(void)sandbox_remove(sb, NULL);
			sandbox_unlock(sb);
		}
		sandbox_unref(sb);
	}
}

static int fork_reply(
	struct api_call *call, struct snapshot *s, struct sandbox *source, struct err *err)
{
	json_t *count_asked = json_object_get(call->body, "count"), *list = json_array(),
	       *ids = json_array(), *o;
	json_int_t count = count_asked != NULL ? json_integer_value(count_asked) : 1;
	bool start = !json_is_false(json_object_get(call->body, "start"));
	json_t *asked = json_object_get(call->body, "live");
	bool live = json_is_true(asked) || (asked == NULL && s->live != NULL);
	size_t i;
	int rc = 0;

	if (live && s->live == NULL)
		rc = err_raise(
			err, ERR_STATE, "snapshot '%s' has no processes, or not any more", s->id);
	s->users++;
	for (json_int_t n = 0; n < count && rc == 0; n++)
		rc = fork_one(call->srv, s, fork_request(s, call->body, n, count), start, live,
			list, err);
	s->users--;
	if (rc < 0) {
		fork_undo(call->srv, list);
		json_decref(list);
		json_decref(ids);
		return rc;
	}
	json_array_foreach (list, i, o)
		(void)json_array_append(ids, json_object_get(o, "id"));
	(void)server_event(call->srv, source, EVENT_SANDBOX_FORKED, NULL,
		json_pack("{s:s,s:o}", "snapshot", s->id, "children", ids));
	return api_reply(call, 201, json_pack("{s:o}", "sandboxes", list));
}

int api_snapshot_fork(struct api_call *call, struct err *err)
{
	struct snapshot *s = snapshot_find(call->srv, call->segments[0], err);

	if (s == NULL)
		return -ENOENT;
	if (str_eq(json_string_value(json_object_get(s->doc, "state")), "corrupt"))
		return err_raise(err, ERR_CORRUPT, "snapshot '%s' failed its check", s->id);
	return fork_reply(call, s,
		sandbox_by_id(call->srv, json_string_value(json_object_get(s->doc, "sandbox"))),
		err);
}

int api_sandbox_fork(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct snapshot *s = NULL;
	int rc;

	if (sb == NULL)
		return -ENOENT;
	rc = sandbox_lock(sb, err);
	if (rc == 0) {
		s = snapshot_take(
			sb, NULL, false, json_is_true(json_object_get(call->body, "live")), err);
		sandbox_unlock(sb);
		rc = s != NULL ? fork_reply(call, s, sb->gone ? NULL : sb, err) : -EIO;
		/* without a name nobody asks for its processes again */
		if (s != NULL && s->live != NULL) {
			live_drop(s->live);
			snapshot_set_live(s, NULL, json_incref(json_object_get(s->doc, "live")));
		}
	}
	sandbox_unref(sb);
	return rc;
}

/* --- rewind --- */

static int rewind_check(const struct sandbox *sb, const struct snapshot *s, struct err *err)
{
	json_t *config = json_object_get(s->doc, "config");

	/* since_ns is inherited by forks: equal in a lineage, and nowhere else */
	if (!json_equal(json_object_get(s->doc, "since_ns"), json_object_get(sb->doc, "since_ns")))
		return err_raise(err, ERR_INVALID,
			"snapshot '%s' is not of the lineage of sandbox '%s': neither it nor what it was forked from was ever in that state",
			s->id, sb->name);
	if (!json_equal(json_object_get(config, "image"), json_object_get(sb->doc, "image")) ||
		!json_equal(json_object_get(config, "mounts"), json_object_get(sb->doc, "mounts")))
		return err_raise(err, ERR_INVALID,
			"snapshot '%s' is not of the lineage of sandbox '%s': its image or mounts differ",
			s->id, sb->name);
	if (str_eq(json_string_value(json_object_get(s->doc, "state")), "corrupt"))
		return err_raise(err, ERR_CORRUPT, "snapshot '%s' failed its check", s->id);
	return 0;
}

/* The live directory goes; `rewinding` in the document makes a new server do the same after a crash. */
static int rewind_files(struct sandbox *sb, struct snapshot *s, struct err *err)
{
	json_int_t before = (json_int_t)sandbox_epoch(sb);
	int rc;

	(void)json_object_set_new(sb->doc, "layers", json_copy(json_object_get(s->doc, "layers")));
	(void)json_object_set_new(
		sb->doc, "base_layers", json_copy(json_object_get(s->doc, "layers")));
	(void)json_object_set_new(sb->doc, "base", json_string(s->id));
	(void)json_object_set_new(sb->doc, "rewinding", json_true());
	(void)json_object_set_new(sb->doc, "epoch", json_integer(before + 1));
	(void)fault("rewind.commit.before");
	rc = sandbox_save(sb, true, err);
	if (rc < 0)
		return rc;
	(void)fault("rewind.commit.after");
	(void)server_event(sb->srv, sb, EVENT_SANDBOX_REWOUND, NULL,
		json_pack("{s:s,s:O,s:I}", "snapshot", s->id, "name",
			json_object_get(s->doc, "name"), "epoch_before", before));
	return sandbox_discard_live(sb, err);
}

int sandbox_discard_live(struct sandbox *sb, struct err *err)
{
	int rc = job_run(sb->srv,
		json_pack("{s:s,s:[s],s:b}", "verb", "remove", "sandboxes", sb->id, "defer", 1),
		NULL, NULL, NULL, err);

	if (rc < 0)
		return rc;
	(void)json_object_del(sb->doc, "rewinding");
	return sandbox_save(sb, false, err);
}

static int rewind_locked(struct sandbox *sb, struct snapshot *s, struct err *err)
{
	bool was_running = sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED;
	int rc = 0;

	if (sb->keeper != NULL)
		rc = sandbox_halt(sb, "rewind", 0, err);
	if (rc == 0)
		rc = rewind_files(sb, s, err);
	if (rc == 0 && (was_running || s->live != NULL))
		rc = sandbox_start(sb, false, err);
	if (rc == 0 && s->live != NULL)
		rc = live_restore(sb, s->live, err);
	return rc;
}

int api_sandbox_rewind(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct snapshot *s;
	int rc;

	if (sb == NULL)
		return -ENOENT;
	rc = sandbox_lock(sb, err);
	if (rc == 0) {
		s = snapshot_find(
			call->srv, json_string_value(json_object_get(call->body, "snapshot")), err);
		rc = s != NULL ? rewind_check(sb, s, err) : -ENOENT;
		if (rc == 0) {
			s->users++;
			rc = rewind_locked(sb, s, err);
			s->users--;
		}
		sandbox_unlock(sb);
	}
	if (rc == 0)
		rc = api_reply(call, 200, sandbox_object(sb));
	sandbox_unref(sb);
	return rc;
}

/* --- prune --- */

static void prune_snapshots(struct server *srv, json_t *removed)
{
	list_for_each (&srv->snapshots, node, next) {
		struct snapshot *s = list_entry(node, struct snapshot, node);
		bool used = s->users > 0;

		list_for_each (&srv->sandboxes, at, at_next) {
			json_t *base =
				json_object_get(list_entry(at, struct sandbox, node)->doc, "base");

			used |= json_is_string(base) && str_eq(json_string_value(base), s->id);
		}
		if (used || snapshot_name(s) != NULL)
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
		json_pack("{s:s,s:o,s:o}", "verb", "gc", "sandboxes", keep, "layers", layers), NULL,
		NULL, &ok, err);
	if (rc < 0) {
		json_decref(sandboxes);
		json_decref(snapshots);
		return rc;
	}
	(void)json_object_set_new(ok, "sandboxes", sandboxes);
	(void)json_object_set_new(ok, "snapshots", snapshots);
	return api_reply(call, 200, ok);
}
