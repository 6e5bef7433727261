/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/snapshot_take.c - a snapshot of a sandbox, from the capture to its commit. The trees are the store's business (docs/design/0002); here is the order of commits.
 *
 * A snapshot: the job renames the layer into place (sealed) -> the catalogue knows it -> it is answered. With a name: the layer is synced, then the
 * catalogue is written durably, then it is answered. A layer that the catalogue does not know after a crash is removed (captured) or put back (sealed) by the
 * job `recover`.
 */
#include "api/keys.h"
#include "api/moments.h"
#include "api/readings.h"
#include "api/snapshot_parts.h"
#include "api/steps.h"
#include "api/suspend.h"
#include "api/telling.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define TAKES_MAX 4U

/* Its processes are on disk already: the snapshot has the same. */
static void share_memory(struct snapshot *s, const struct moment *m)
{
	json_t *memory = json_copy(json_object_get(m->sb->doc, "memory"));

	(void)json_object_set(memory, "execs", m->execs);
	(void)json_object_set_new(s->doc, "memory", memory);
}

static json_t *config_of(const struct sandbox *sb)
{
	static const char *const members[] = { "image", "hostname", "profile", "labels", "env",
		"mounts", "expose", "limits", "policy", "generation", "checkpoint", "idle_ms",
		"steps" };
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

static json_t *or_null(const json_t *object, const char *member)
{
	json_t *v = json_object_get(object, member);

	return v != NULL ? json_incref(v) : json_null();
}

static json_t *snapshot_document(const char *id, const char *name, const struct moment *m)
{
	static const char *const of_files[] = { "frozen_us", "files", "bytes" };
	const struct sandbox *sb = m->sb;
	char when[CLOCK_TEXT_SIZE];
	json_t *doc;

	clock_text(clock_wall_ns(), when);
	doc = json_pack("{s:s,s:s,s:s,s:O,s:O,s:I,s:b,s:o,s:s,s:o,s:O,s:O}", "id", id, "state",
		"sealed", "sandbox", sb->id, "parent", json_object_get(sb->doc, "base"), "image",
		json_object_get(sb->doc, "image"), "epoch", (json_int_t)m->epoch, "files_only", 1,
		"layers", layers_with(m->layer, json_object_get(sb->doc, "layers")), "created",
		when, "config", config_of(sb), "base_layers",
		json_object_get(sb->doc, "base_layers"), "since_ns",
		json_object_get(sb->doc, "since_ns"));
	(void)json_object_set_new(doc, "name", name != NULL ? json_string(name) : json_null());
	(void)json_object_set_new(doc, "capture", or_null(m->files, "how"));
	for (size_t i = 0; i < ARRAY_SIZE(of_files); i++)
		(void)json_object_set_new(doc, of_files[i], or_null(m->files, of_files[i]));
	if (m->figures != NULL)
		(void)json_object_set_new(doc, "frozen_us", or_null(m->figures, "paused_us"));
	return doc;
}

/* The snapshot, what the holders have saved for it, what it changes in its sandbox and that @call has it, as one transaction. */
static int commit(
	struct snapshot *s, struct moment *m, bool sealed, struct api_call *call, struct err *err)
{
	struct sandbox *sb = m->sb;
	struct catalogue *c = sb->srv->catalogue;
	int rc = catalogue_begin(c, false, err);

	if (rc < 0)
		return rc;
	if (sealed)
		(void)json_object_set_new(
			sb->doc, "layers", json_copy(json_object_get(s->doc, "layers")));
	rc = fault("snapshot.commit.before");
	if (rc < 0)
		(void)err_raise_sys(err, rc, "write the snapshot");
	if (rc == 0)
		rc = moment_keep(m, err);
	if (rc == 0)
		rc = snapshot_save(sb->srv, s, false, err);
	if (rc == 0)
		rc = sandbox_save(sb, false, err);
	if (rc == 0)
		rc = keys_note(call, json_pack("{s:s}", "snapshot", s->id), err);
	if (rc == 0)
		rc = catalogue_commit(c, err);
	else
		catalogue_abort(c);
	(void)fault("snapshot.commit.after");
	return rc;
}

static int check_name(const struct server *srv, const char *name, struct err *err)
{
	if (name != NULL && snapshot_by_name(srv, name) != NULL)
		return err_raise(err, ERR_EXISTS, "a snapshot named '%s' exists already", name);
	return 0;
}

static json_t *created(
	const struct snapshot *s, const struct moment *m, const struct snapshot_wish *wish)
{
	return json_pack("{s:s,s:O,s:s,s:O,s:O,s:O,s:O,s:O*}", "snapshot", s->id, "name",
		json_object_get(s->doc, "name"), "layer", m->layer, "files",
		json_object_get(s->doc, "files"), "bytes", json_object_get(s->doc, "bytes"),
		"frozen_us", json_object_get(s->doc, "frozen_us"), "capture",
		json_object_get(s->doc, "capture"), "steps", wish->steps);
}

/* What is forked, tried and thrown away within seconds is not worth a sync. */
#define SETTLE_AFTER_NS (5 * NS_PER_S)

/* @m: captured. NULL with @err set. */
static struct snapshot *snapshot_of(
	struct moment *m, const struct snapshot_wish *wish, bool sealed, struct err *err)
{
	struct sandbox *sb = m->sb;
	struct snapshot *s =
		snapshot_add(sb->srv, m->snapshot, snapshot_document(m->snapshot, wish->name, m));
	json_t *before = json_incref(json_object_get(sb->doc, "layers")), *event;
	int rc;

	s->settle_due_ns = clock_now_ns() + SETTLE_AFTER_NS;
	if (wish->for_fork)
		(void)json_object_set_new(s->doc, "for_fork", json_true());
	if (wish->steps != NULL) {
		(void)json_object_set(s->doc, "steps", wish->steps);
		steps_done(sb, wish->steps);
	}
	if (wish->live && sb->state == SANDBOX_SUSPENDED)
		share_memory(s, m);
	snapshot_set_live(s, TAKE_PTR(m->memory), json_incref(m->figures));
	event = created(s, m, wish);
	snapshot_announce(sb->srv, s, EVENT_SNAPSHOT_CREATED, event);
	rc = commit(s, m, sealed, wish->call, err);
	(void)telling_done(s->doc);
	if (rc < 0) {
		(void)json_object_set(sb->doc, "layers", before);
		sandbox_index(sb);
		snapshot_unlist(sb->srv, s);
	}
	json_decref(before);
	if (rc == 0)
		(void)server_event(sb->srv, sb, EVENT_SNAPSHOT_CREATED, NULL, json_incref(event));
	json_decref(event);
	return rc == 0 ? s : NULL;
}

static void forget_layer(struct server *srv, const char *layer)
{
	json_t *layers = json_pack("[s]", layer);

	layers_forget(srv, layers);
	json_decref(layers);
}

/* @ret_spoiled: it failed, and is worth another try. */
static struct snapshot *take_once(struct sandbox *sb, const struct snapshot_wish *wish, bool live,
	bool *ret_spoiled, struct err *err)
{
	const struct id id = id_new(), layer = id_new();
	struct moment m = { .sb = sb, .snapshot = id.s, .layer = layer.s, .live = live };
	bool sealed = moment_is_sealed(sb);
	struct snapshot *s = NULL;

	if (sealed && chain_shorten(sb, err) < 0)
		return NULL;
	index_making(sb->srv, MAKING_LAYER, layer.s);
	if (sealed)
		seal_begin(sb);
	if (moment_take(&m, err) == 0) {
		s = snapshot_of(&m, wish, sealed, err);
	} else {
		err_context(err, "snapshot of sandbox '%s'", sb->name);
		if (live && err->code == ERR_UNSUPPORTED)
			(void)err_hint(err, 0,
				"--files-only (in the API: files_only or \"live\": false) takes its files without its processes");
	}
	*ret_spoiled = m.spoiled;
	moment_fini(&m);
	if (s == NULL && sealed)
		sandbox_unseal(sb, layer.s);
	if (sealed)
		seal_end(sb);
	if (s == NULL && sealed)
		return NULL;
	index_made(sb->srv, MAKING_LAYER, layer.s);
	if (s == NULL)
		forget_layer(sb->srv, layer.s);
	return s;
}

/* Programs end all the time, also while their memory is copied and they go on already. */
static struct snapshot *take(
	struct sandbox *sb, const struct snapshot_wish *wish, bool live, struct err *err)
{
	struct snapshot *s = NULL;
	bool spoiled = true;

	for (unsigned int tries = TAKES_MAX; spoiled && tries > 0; tries--) {
		s = take_once(sb, wish, live, &spoiled, err);
		if (spoiled)
			log_info("live", "%s", err->msg);
	}
	return s;
}

bool snapshot_takes_processes(const struct sandbox *sb)
{
	return sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_SUSPENDED;
}

/* Before anything is done for it. A suspended one's processes are on disk. */
static int check_live(const struct sandbox *sb, const struct snapshot_wish *wish, struct err *err)
{
	if (!wish->live || snapshot_takes_processes(sb))
		return 0;
	if (sb->state == SANDBOX_PAUSED)
		return err_hint(err,
			err_raise(err, ERR_STATE,
				"sandbox '%s' is paused: its processes cannot be captured",
				sb->name),
			"cay resume %s first, or take its files alone: --files-only", sb->name);
	return err_hint(err,
		err_raise(err, ERR_STATE, "sandbox '%s' is %s: it has no processes to keep",
			sb->name, sandbox_state_name(sb->state)),
		"cay start %s first, or take its files alone: --files-only", sb->name);
}

struct snapshot *snapshot_take(
	struct sandbox *sb, const struct snapshot_wish *wish, struct err *err)
{
	struct snapshot *s;

	if (check_live(sb, wish, err) < 0 || check_name(sb->srv, wish->name, err) < 0 ||
		reserve_check(sb->srv, err) < 0 || sandbox_settle_suspend(sb, err) < 0 ||
		sandbox_settle_files(sb, err) < 0)
		return NULL;
	s = take(sb, wish, wish->live && sb->state != SANDBOX_SUSPENDED, err);
	if (s != NULL && wish->durable && snapshot_keep_promise(sb->srv, s, err) < 0)
		return NULL;
	return s;
}
