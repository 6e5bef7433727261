/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/snapshot_take.c - a snapshot of a sandbox, from the capture to its commit. The trees are the store's business (docs/design/0002); here is the order of commits.
 *
 * A snapshot: the job renames the layer into place (sealed) -> the catalogue knows it -> it is answered. With a name: the layer is synced, then the
 * catalogue is written durably, then it is answered. A layer that the catalogue does not know after a crash is removed (captured) or put back (sealed) by the
 * job `recover`.
 */
#include "api/lives.h"
#include "api/snapshot_parts.h"
#include "base/fault.h"
#include "base/str.h"

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
	return (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED ||
		       sb->state == SANDBOX_SUSPENDED) &&
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

static int capture_live(struct sandbox *sb, const char *layer, json_t **ret, struct live **ret_live,
	json_t **ret_figures, struct err *err)
{
	json_t *request, *box;
	int rc;

	if (sb->state != SANDBOX_RUNNING)
		return err_raise(err, ERR_STATE,
			"sandbox '%s' is not running: it has no processes to keep", sb->name);
	box = freeze_path(sb, err, &rc);
	if (rc < 0)
		return rc;
	request = capture_request(sb, "capture", layer);
	(void)json_object_set_new(request, "held", json_true());
	if (box != NULL)
		(void)json_object_set_new(request, "freeze", box);
	*ret_live = live_take(sb, request, ret, ret_figures, err);
	return *ret_live != NULL ? 0 : -EIO;
}

/* Its processes are on disk already: the snapshot has the same. */
static void share_memory(const struct sandbox *sb, struct snapshot *s)
{
	json_t *memory = json_copy(json_object_get(sb->doc, "memory")), *execs = json_array();

	list_for_each (&sb->execs, node, next) {
		const struct exec *e = list_entry(node, struct exec, node);

		if (!e->ended)
			(void)json_array_append_new(execs, json_deep_copy(e->doc));
	}
	(void)json_object_set_new(memory, "execs", execs);
	(void)json_object_set_new(s->doc, "memory", memory);
}

static json_t *config_of(const struct sandbox *sb)
{
	static const char *const members[] = { "image", "hostname", "profile", "labels", "env",
		"mounts", "expose", "limits", "policy", "generation" };
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

#define LIVE_TRIES 8

/* A program that is just being started, or a process that cannot be stopped in the middle of vfork(), is elsewhere in a moment. */
static bool wait_a_little(void)
{
	struct waiters nobody;

	waiters_init(&nobody);
	(void)waiters_wait(&nobody, clock_now_ns() + 20 * NS_PER_MS);
	return true;
}

struct snapshot *snapshot_take(
	struct sandbox *sb, const char *name, bool durable, bool live, struct err *err)
{
	bool still = is_sealed_by_move(sb);
	struct id id = id_new(), layer;
	struct server *srv = sb->srv;
	struct live *memory = NULL;
	struct snapshot *s;
	json_t *ok = NULL, *figures = NULL;
	int rc, tries = 0;

	live &= sb->state != SANDBOX_SUSPENDED;
	if (check_name(srv, name, err) < 0 || (still && chain_shorten(sb, err) < 0))
		return NULL;
	do {
		layer = id_new();
		rc = live ? capture_live(sb, layer.s, &ok, &memory, &figures, err)
			  : capture(sb, layer.s, &ok, err);
	} while (
		rc < 0 && live && err->code == ERR_BUSY && ++tries < LIVE_TRIES && wait_a_little());
	if (rc < 0) {
		err_context(err, "snapshot of sandbox '%s'", sb->name);
		if (live && err->code == ERR_UNSUPPORTED)
			(void)err_hint(err, 0,
				"--files-only (in the API: files_only or \"live\": false) takes its files without its processes");
		return NULL;
	}
	s = snapshot_add(srv, id.s, snapshot_document(sb, id.s, name, layer.s, ok));
	s->made_ns = clock_now_ns();
	if (sb->state == SANDBOX_SUSPENDED)
		share_memory(sb, s);
	if (live)
		(void)json_object_set(s->doc, "frozen_us", json_object_get(figures, "paused_us"));
	snapshot_set_live(s, memory, figures);
	json_decref(ok);
	if (gateway_state_copy(srv, sb->id, s->id, err) < 0 || commit(sb, s, still, err) < 0) {
		snapshot_unlist(s);
		return NULL;
	}
	(void)server_event(srv, sb, EVENT_SNAPSHOT_CREATED, NULL,
		json_pack("{s:s,s:O,s:s,s:O,s:O,s:O,s:O}", "snapshot", s->id, "name",
			json_object_get(s->doc, "name"), "layer", layer.s, "files",
			json_object_get(s->doc, "files"), "bytes", json_object_get(s->doc, "bytes"),
			"frozen_us", json_object_get(s->doc, "frozen_us"), "capture",
			json_object_get(s->doc, "capture")));
	if (durable && snapshot_make_durable(srv, s, err) < 0) {
		err_context(err, "snapshot '%s' is sealed, but not durable",
			name != NULL ? name : s->id);
		return NULL;
	}
	return s;
}
