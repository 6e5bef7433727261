/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/sandboxes.c - the life of a sandbox.
 *
 *	creating -> running <-> paused
 *	   |  \        |           |
 *	   |   failed  +-> stopped <+      stopped -> creating (start)
 *	   |     |           |
 *	   +-----+--removing-+   running <-> suspended -> stopped, creating (rewind)
 *
 * (1) A sandbox is in the catalogue before anything of it runs, and leaves it before its files do: what the catalogue does not know is deleted at the next start.
 * (2) keeper is set exactly while creating, running or paused, and while a suspended one is being resumed; not while awaited, which nobody sees who found it with sandbox_find().
 * (3) Whoever changes a sandbox holds its lock; events of its keeper need none.
 */
#include "api/sandbox_parts.h"
#include "api/telling.h"
#include "base/ablate.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define LOCK_NS     (60 * NS_PER_S)
#define WALKING_MAX 16 /* fibers of one sandbox_for_all() */

static const struct {
	const char *name;
	unsigned int next;
} states[SANDBOX_STATE_COUNT] = {
#define TO(s) (1U << SANDBOX_##s)
	[SANDBOX_CREATING] = { "creating", TO(RUNNING) | TO(STOPPED) | TO(FAILED) | TO(REMOVING) },
	[SANDBOX_RUNNING] = { "running",
		TO(PAUSED) | TO(SUSPENDED) | TO(STOPPED) | TO(FAILED) | TO(REMOVING) },
	[SANDBOX_PAUSED] = { "paused", TO(RUNNING) | TO(STOPPED) | TO(FAILED) | TO(REMOVING) },
	[SANDBOX_SUSPENDED] = { "suspended",
		TO(RUNNING) | TO(STOPPED) | TO(CREATING) | TO(REMOVING) },
	[SANDBOX_STOPPED] = { "stopped", TO(CREATING) | TO(REMOVING) },
	[SANDBOX_FAILED] = { "failed", TO(CREATING) | TO(REMOVING) },
	[SANDBOX_REMOVING] = { "removing", 0 },
#undef TO
};

const char *sandbox_state_name(enum sandbox_state state)
{
	return states[state].name;
}

static enum sandbox_state state_parse(const char *name)
{
	for (unsigned int i = 0; i < SANDBOX_STATE_COUNT; i++) {
		if (name != NULL && str_eq(states[i].name, name))
			return (enum sandbox_state)i;
	}
	return SANDBOX_FAILED;
}

/* --- references, finding, locking --- */

struct sandbox *sandbox_ref(struct sandbox *sb)
{
	sb->refs++;
	return sb;
}

void sandbox_unref(struct sandbox *sb)
{
	if (sb == NULL || --sb->refs > 0)
		return;
	execs_forget(sb);
	hold_drop(sb);
	json_decref(sb->doc);
	mishaps_clear(&sb->mishaps);
	gateway_trouble_over(sb);
	json_decref(sb->steps_due);
	free(sb);
}

struct sandbox *sandbox_by_id(struct server *srv, const char *id)
{
	struct map_node *node = map_find(&srv->sandboxes_by_id, id);

	return node != NULL ? map_entry(node, struct sandbox, by_id) : NULL;
}

struct sandbox *sandbox_by_name(struct server *srv, const char *name)
{
	struct map_node *node = map_find(&srv->sandboxes_by_name, name);

	return node != NULL ? map_entry(node, struct sandbox, by_name) : NULL;
}

/* Of all sandboxes that there were at its begin; on the stack of who waits for it. */
struct walk {
	struct sandbox **all; /* references */
	size_t n, next;
	void (*fn)(struct sandbox *sb, const void *arg);
	const void *arg;
	unsigned int walking;
	struct waiters over;
};

static void walk_main(void *arg)
{
	struct walk *w = arg;

	while (w->next < w->n) {
		struct sandbox *sb = w->all[w->next++];

		if (!sb->gone)
			w->fn(sb, w->arg);
		sandbox_unref(sb);
	}
	if (--w->walking == 0)
		waiters_wake(&w->over);
}

void sandbox_for_all(
	struct server *srv, void (*fn)(struct sandbox *sb, const void *arg), const void *arg)
{
	struct walk w = { .fn = fn, .arg = arg };
	cleanup_free struct sandbox **all = NULL;
	size_t i = 0;

	list_for_each (&srv->sandboxes, node, next)
		w.n++;
	w.all = all = xalloc(w.n * sizeof(struct sandbox *) + 1);
	list_for_each (&srv->sandboxes, node, next)
		all[i++] = sandbox_ref(list_entry(node, struct sandbox, node));
	waiters_init(&w.over);
	for (i = 0; i < w.n && i < WALKING_MAX; i++) {
		w.walking++;
		fiber_start(walk_main, &w);
	}
	while (w.walking > 0)
		(void)waiters_wait(&w.over, 0); /* what @fn does has deadlines */
}

struct sandbox *sandbox_look_up(struct server *srv, const char *what, struct err *err)
{
	struct sandbox *found = sandbox_by_name(srv, what);
	bool named; /* a snapshot */

	if (found == NULL)
		found = sandbox_by_id(srv, what);
	if (found != NULL)
		return sandbox_ref(found);
	named = snapshot_by_name(srv, what) != NULL;
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (named || !id_begins(sb->id, what))
			continue;
		if (found != NULL) {
			(void)err_raise(err, ERR_AMBIGUOUS,
				"'%s' is the beginning of more than one sandbox's id", what);
			return NULL;
		}
		found = sb;
	}
	if (found == NULL) {
		(void)err_raise(err, ERR_NOT_FOUND, "no sandbox '%s'", what);
		return NULL;
	}
	return sandbox_ref(found);
}

/* Its lock is held all the while; this is for what takes none. */
static int await_recovery(struct sandbox *sb, struct err *err)
{
	uint64_t deadline = clock_now_ns() + LOCK_NS;
	int rc = fault("sandbox.awaited");

	while (rc == 0 && sb->awaited && !sb->estranged && !sb->srv->stopping)
		rc = waiters_wait(&sb->changed, deadline);
	if (sb->gone)
		return err_raise(
			err, ERR_NOT_FOUND, "sandbox '%s' was removed meanwhile", sb->name);
	if (!sb->awaited)
		return 0;
	if (sb->srv->stopping)
		return err_raise(
			err, ERR_SHUTTING_DOWN, "the server is shutting down; nothing was done");
	if (sb->estranged)
		return err_hint(err,
			err_raise(err, ERR_BUSY,
				"the keeper of sandbox '%s' speaks a protocol that this server does not know",
				sb->name),
			"it goes on: start the version of cay that it was last run by, and stop it there");
	return err_hint(err,
		err_raise(err, ERR_BUSY,
			"the keeper of sandbox '%s' has not answered since the server started",
			sb->name),
		"try again: it goes on when its keeper answers, and is over when that does not for too long");
}

int sandbox_await(struct sandbox *sb, struct err *err)
{
	int rc;

	if (!sb->awaited)
		return 0;
	(void)sandbox_ref(sb);
	rc = await_recovery(sb, err);
	sandbox_unref(sb);
	return rc;
}

struct sandbox *sandbox_find(struct server *srv, const char *what, struct err *err)
{
	struct sandbox *sb = sandbox_look_up(srv, what, err);

	if (sb == NULL || sandbox_await(sb, err) == 0)
		return sb;
	sandbox_unref(sb);
	return NULL;
}

/* @beside: what a run has lent is taken, too. */
static int lock(struct sandbox *sb, bool beside, struct err *err)
{
	uint64_t deadline = clock_now_ns() + LOCK_NS;

	while ((beside && sb->lent ? sb->borrowed : sb->locked) && !sb->gone) {
		if (waiters_wait(&sb->changed, deadline) < 0)
			return err_raise(err, ERR_BUSY,
				"another operation on sandbox '%s' is under way", sb->name);
	}
	if (sb->gone)
		return err_raise(
			err, ERR_NOT_FOUND, "sandbox '%s' was removed meanwhile", sb->name);
	*(beside && sb->lent ? &sb->borrowed : &sb->locked) = true;
	return 0;
}

int sandbox_lock(struct sandbox *sb, struct err *err)
{
	return lock(sb, false, err);
}

int sandbox_lock_beside(struct sandbox *sb, struct err *err)
{
	return lock(sb, true, err);
}

void sandbox_unlock(struct sandbox *sb)
{
	if (sb->borrowed)
		sb->borrowed = false;
	else
		sb->locked = false;
	waiters_wake(&sb->changed);
}

void sandbox_lend(struct sandbox *sb)
{
	sb->lent = true;
	waiters_wake(&sb->changed);
}

void sandbox_lend_no_more(struct sandbox *sb)
{
	sb->lent = false;
	while (sb->borrowed)
		(void)waiters_wait(&sb->changed, 0);
}

bool sandbox_is_lent(struct sandbox *sb)
{
	uint64_t deadline = clock_now_ns() + LOCK_NS;

	/* begun, or about to be over */
	while (sb->run == RUN_FOLLOWED && sb->locked && !sb->lent && !sb->gone &&
		waiters_wait(&sb->changed, deadline) == 0)
		;
	return sb->lent;
}

int sandbox_not_lent(struct sandbox *sb, struct err *err)
{
	if (!sandbox_is_lent(sb))
		return 0;
	return err_hint(err,
		err_raise(err, ERR_BUSY, "sandbox '%s' is that of a cay run whose command goes on",
			sb->name),
		"cay stop %s ends it; what cay create makes, and cay exec works in, can do this meanwhile",
		sb->name);
}

/* --- document --- */

uint64_t sandbox_epoch(const struct sandbox *sb)
{
	return (uint64_t)json_integer_value(json_object_get(sb->doc, "epoch"));
}

json_int_t sandbox_uid_base(const struct sandbox *sb)
{
	json_int_t slot = json_integer_value(json_object_get(sb->doc, "slot"));

	return sb->srv->rootless ? 0 : SLOT_UID_BASE + 65536 * slot;
}

/* Of its settings those that want processes to be frozen, where nothing can. NULL: all of them do what they say. */
static json_t *settings_without_effect(const struct sandbox *sb)
{
	const char *when = json_string_value(json_object_get(sb->doc, "checkpoint"));
	json_t *none;

	if (!str_eq(sb->srv->cgroup, "none"))
		return NULL;
	none = json_array();
	if (when != NULL && str_eq(when, "each-exec"))
		(void)json_array_append_new(none, json_string("checkpoint"));
	if (json_integer_value(json_object_get(sb->doc, "idle_ms")) != 0)
		(void)json_array_append_new(none, json_string("idle_ms"));
	if (json_array_size(none) == 0)
		json_decref(TAKE_PTR(none));
	return none;
}

json_t *sandbox_object(const struct sandbox *sb)
{
	static const char *const own[] = { "usage", "base_layers", "rewinding", "bare", "undone",
		"checkpointed", "trusts", "restoring", "suspending", "run", "unborn", "together",
		"for_check", "key", "key_hash", "since_ns" };
	json_t *o = json_copy(sb->doc), *without_effect = settings_without_effect(sb);
	size_t running = 0;

	list_for_each (&sb->execs, node, next)
		running += !list_entry(node, struct exec, node)->ended;
	(void)sandbox_policy_back(o);
	(void)telling_done(o);
	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		(void)json_object_del(o, own[i]);
	(void)json_object_set_new(o, "execs_running", json_integer((json_int_t)running));
	if (without_effect != NULL)
		(void)json_object_set_new(o, "settings_without_effect", without_effect);
	if (sb->awaited)
		(void)json_object_set_new(o, "awaited", json_true());
	return o;
}

bool sandbox_policy_back(json_t *doc)
{
	json_t *before = json_object_get(doc, "policy_before");

	if (before == NULL)
		return false;
	(void)json_object_set(doc, "policy", json_object_get(before, "policy"));
	(void)json_object_set(doc, "policy_version", json_object_get(before, "version"));
	return json_object_del(doc, "policy_before") == 0;
}

void sandbox_take_back(struct sandbox *sb, const json_t *was)
{
	(void)json_object_clear(sb->doc);
	(void)json_object_update(sb->doc, (json_t *)(uintptr_t)was);
	sandbox_index(sb);
}

int sandbox_save(struct sandbox *sb, bool durable, struct err *err)
{
	cleanup_free char *text = json_dumps(sb->doc, JSON_COMPACT);
	int rc;

	sandbox_index(sb);
	rc = catalogue_put(sb->srv->catalogue, CATALOGUE_SANDBOXES, sb->id, sb->name, NULL, text,
		durable, err);
	if (rc < 0)
		err_context(err, "sandbox '%s'", sb->name);
	return rc;
}

void sandbox_set_time(struct sandbox *sb, const char *member)
{
	char when[CLOCK_TEXT_SIZE];

	clock_text(clock_wall_ns(), when);
	(void)json_object_set_new(sb->doc, member, json_string(when));
}

void sandbox_will_tell(struct sandbox *sb, enum event_type type, json_t *data)
{
	telling_announce(sb->srv, sb->doc,
		&(struct telling){ .type = type,
			.sandbox = sb->id,
			.epoch = sandbox_epoch(sb),
			.data = data });
}

void sandbox_tell_again(struct sandbox *sb)
{
	struct err err;

	if (json_object_get(sb->doc, "telling") == NULL)
		return;
	telling_fill(sb->doc, EVENT_SANDBOX_CREATED, sandbox_created_data(sb));
	if (!telling_again(sb->srv, sb->doc) || journal_flush(sb->srv->journal) < 0)
		return;
	(void)telling_done(sb->doc);
	if (sandbox_save(sb, false, &err) < 0)
		log_error("sandbox", "%s", err.msg);
}

void sandbox_enter(struct sandbox *sb, enum sandbox_state to, enum event_type type, json_t *data)
{
	BUG_ON(sb->state != to && (states[sb->state].next & 1U << to) == 0);
	sb->state = to;
	(void)telling_done(sb->doc);
	/* nothing comes behind these that would tell it, when the server dies between catalogue and journal */
	if (type != EVENT_TYPE_COUNT &&
		(to == SANDBOX_STOPPED || to == SANDBOX_FAILED || to == SANDBOX_SUSPENDED))
		sandbox_will_tell(sb, type, data);
	if (sb->birth != NULL && (to == SANDBOX_RUNNING || to == SANDBOX_STOPPED))
		telling_announce(sb->srv, sb->doc, sb->birth);
	(void)json_object_set_new(sb->doc, "state", json_string(states[to].name));
	if (to == SANDBOX_RUNNING || to == SANDBOX_STOPPED)
		(void)json_object_del(sb->doc, "unborn");
	if (to == SANDBOX_RUNNING) /* not before: a start that fails leaves it as bare as it was */
		(void)json_object_del(sb->doc, "bare");
	if (type != EVENT_TYPE_COUNT)
		(void)server_event(sb->srv, sb, type, NULL, data);
	waiters_wake(&sb->changed);
	server_watch_processes(sb->srv);
}

int sandbox_move(struct sandbox *sb, enum sandbox_state to, enum event_type type, json_t *data,
	struct err *err)
{
	sandbox_enter(sb, to, type, data);
	return sandbox_save(sb, false, err);
}

/* --- in the world of names --- */

struct sandbox *sandbox_alloc(struct server *srv, const char *id, const char *name, json_t *doc)
{
	struct sandbox *sb = xnew(struct sandbox);

	(void)!str_copy(sb->id, sizeof(sb->id), id);
	(void)!str_copy(sb->name, sizeof(sb->name), name);
	sb->srv = srv;
	sb->doc = doc;
	sb->refs = 1; /* the list's */
	sb->next_channel = 1;
	list_init(&sb->execs);
	list_init(&sb->readings);
	list_init(&sb->writings);
	waiters_init(&sb->changed);
	mishaps_init(&sb->mishaps);
	log_budget_init(&sb->told_refused, srv->journal);
	sb->steps_due = json_array();
	list_append(&srv->sandboxes, &sb->node);
	map_add(&srv->sandboxes_by_id, &sb->by_id, sb->id);
	map_add(&srv->sandboxes_by_name, &sb->by_name, sb->name);
	sandbox_index(sb);
	return sb;
}

/* Take it out of the world of names; the memory goes with the last reference. */
void sandbox_unlist(struct sandbox *sb)
{
	sb->gone = true;
	if (sb->stranded[0] != '\0') /* garbage from now on */
		index_made(sb->srv, MAKING_LAYER, sb->stranded);
	sandbox_unindex(sb);
	list_remove(&sb->node);
	map_remove(&sb->srv->sandboxes_by_id, &sb->by_id);
	map_remove(&sb->srv->sandboxes_by_name, &sb->by_name);
	waiters_wake(&sb->changed);
	sandbox_unref(sb);
}

static int load_one(void *ctx, const char *id, const char *text)
{
	const struct loading *l = ctx;
	struct server *srv = l->srv;
	json_t *doc = json_loads(text, 0, NULL);
	const char *name = json_string_value(json_object_get(doc, "name"));
	struct sandbox *sb;

	if (telling_is_buried(doc)) {
		telling_buried(srv, CATALOGUE_SANDBOXES, id, doc);
		json_decref(doc);
		return 0;
	}
	if (name == NULL || !id_valid(id)) {
		json_decref(doc);
		return server_unread(l, "sandboxes", id);
	}
	(void)sandbox_policy_back(doc);
	sb = sandbox_alloc(srv, id, name, doc);
	sb->state = state_parse(json_string_value(json_object_get(doc, "state")));
	slot_mark(srv, (uint32_t)json_integer_value(json_object_get(doc, "slot")));
	return 0;
}

int sandboxes_load(struct server *srv, struct err *err)
{
	struct loading l = { srv, err };

	return catalogue_each(srv->catalogue, CATALOGUE_SANDBOXES, load_one, &l, err);
}
