/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/sandboxes.c - the life of a sandbox.
 *
 *	creating -> running <-> paused
 *	   |  \        |           |
 *	   |   failed  +-> stopped <+      stopped -> creating (start)
 *	   |     |           |
 *	   +-----+--removing-+
 *
 * (1) A sandbox is in the catalogue before anything of it exists, and leaves it before its files do: what the catalogue does not know is deleted at the next start.
 * (2) keeper is set exactly while creating, running or paused.
 * (3) Whoever changes a sandbox holds its lock; events of its keeper need none.
 */
#include "api/server.h"
#include "base/ablate.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define LOCK_NS (60 * NS_PER_S)

static const struct {
	const char *name;
	unsigned int next;
} states[SANDBOX_STATE_COUNT] = {
#define TO(s) (1U << SANDBOX_##s)
	[SANDBOX_CREATING] = { "creating", TO(RUNNING) | TO(STOPPED) | TO(FAILED) | TO(REMOVING) },
	[SANDBOX_RUNNING] = { "running", TO(PAUSED) | TO(STOPPED) | TO(FAILED) | TO(REMOVING) },
	[SANDBOX_PAUSED] = { "paused", TO(RUNNING) | TO(STOPPED) | TO(FAILED) | TO(REMOVING) },
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
	json_decref(sb->doc);
	free(sb);
}

struct sandbox *sandbox_by_id(struct server *srv, const char *id)
{
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (str_eq(sb->id, id))
			return sb;
	}
	return NULL;
}

struct sandbox *sandbox_find(struct server *srv, const char *what, struct err *err)
{
	struct sandbox *found = NULL;

	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (str_eq(sb->name, what) || str_eq(sb->id, what))
			return sandbox_ref(sb);
	}
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = list_entry(node, struct sandbox, node);

		if (what[0] == '\0' || !str_starts(sb->id, what))
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

int sandbox_lock(struct sandbox *sb, struct err *err)
{
	uint64_t deadline = clock_now_ns() + LOCK_NS;

	while (sb->locked && !sb->gone) {
		if (waiters_wait(&sb->changed, deadline) < 0)
			return err_raise(err, ERR_BUSY,
				"another operation on sandbox '%s' is under way", sb->name);
	}
	if (sb->gone)
		return err_raise(
			err, ERR_NOT_FOUND, "sandbox '%s' was removed meanwhile", sb->name);
	sb->locked = true;
	return 0;
}

void sandbox_unlock(struct sandbox *sb)
{
	sb->locked = false;
	waiters_wake(&sb->changed);
}

/* --- document --- */

uint64_t sandbox_epoch(const struct sandbox *sb)
{
	return (uint64_t)json_integer_value(json_object_get(sb->doc, "epoch"));
}

json_t *sandbox_object(const struct sandbox *sb)
{
	json_t *o = json_copy(sb->doc);
	size_t running = 0;

	list_for_each (&sb->execs, node, next)
		running += !list_entry(node, struct exec, node)->ended;
	(void)json_object_del(o, "usage");
	(void)json_object_del(o, "base_layers");
	(void)json_object_del(o, "rewinding");
	(void)json_object_del(o, "unborn");
	(void)json_object_del(o, "key");
	(void)json_object_del(o, "key_hash");
	(void)json_object_del(o, "since_ns");
	(void)json_object_set_new(o, "execs_running", json_integer((json_int_t)running));
	return o;
}

int sandbox_save(struct sandbox *sb, bool durable, struct err *err)
{
	cleanup_free char *text = json_dumps(sb->doc, JSON_COMPACT);
	int rc = catalogue_put(sb->srv->catalogue, CATALOGUE_SANDBOXES, sb->id, sb->name, NULL,
		text, durable, err);

	if (rc < 0)
		err_context(err, "sandbox '%s'", sb->name);
	return rc;
}

static void set_time(struct sandbox *sb, const char *member)
{
	char when[CLOCK_TEXT_SIZE];

	clock_text(clock_wall_ns(), when);
	(void)json_object_set_new(sb->doc, member, json_string(when));
}

int sandbox_move(struct sandbox *sb, enum sandbox_state to, enum event_type type, json_t *data,
	struct err *err)
{
	BUG_ON(sb->state != to && (states[sb->state].next & 1U << to) == 0);
	sb->state = to;
	(void)json_object_set_new(sb->doc, "state", json_string(states[to].name));
	if (to == SANDBOX_RUNNING || to == SANDBOX_STOPPED)
		(void)json_object_del(sb->doc, "unborn");
	if (type != EVENT_TYPE_COUNT)
		(void)server_event(sb->srv, sb, type, NULL, data);
	waiters_wake(&sb->changed);
	server_watch_processes(sb->srv);
	return sandbox_save(sb, false, err);
}

/* --- where its files are --- */

json_t *stack_of(struct server *srv, json_t *layers, const char *image, const char *source,
	const char *live, size_t tree)
{
	json_t *stack = json_array();
	size_t i;
	json_t *layer;

	if (live != NULL)
		(void)json_array_append_new(
			stack, json_sprintf("%s/pool/live/%s/%zu/upper", srv->state, live, tree));
	json_array_foreach (layers, i, layer)
		(void)json_array_append_new(stack, json_sprintf("%s/pool/layers/%s/%zu", srv->state,
							   json_string_value(layer), tree));
	if (tree > 0) {
		(void)json_array_append_new(stack, json_string(source));
	} else if (str_eq(image, "host")) {
		if (srv->mask != NULL)
			(void)json_array_append_new(stack, json_string(srv->mask));
		(void)json_array_append_new(stack, json_string("/"));
	} else {
		(void)json_array_append_new(
			stack, json_sprintf("%s/pool/images/%s/rootfs", srv->state, image));
	}
	return stack;
}

/* Source of the @tree-th cow mount; NULL for the root. */
static const char *tree_source(const json_t *mounts, size_t tree)
{
	size_t i, n = 0;
	const json_t *m;

	json_array_foreach (mounts, i, m) {
		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow") && ++n == tree)
			return json_string_value(json_object_get(m, "source"));
	}
	return NULL;
}

json_t *sandbox_stack(const struct sandbox *sb, size_t tree, bool upper)
{
	return stack_of(sb->srv, json_object_get(sb->doc, "layers"),
		json_string_value(json_object_get(sb->doc, "image")),
		tree_source(json_object_get(sb->doc, "mounts"), tree), upper ? sb->id : NULL, tree);
}

/* Only the layers of a stack: without the image or source at its end. */
static json_t *lower_of(const struct sandbox *sb, size_t tree)
{
	json_t *stack = sandbox_stack(sb, tree, false);

	(void)json_array_remove(stack, json_array_size(stack) - 1);
	return stack;
}

static json_t *spec_mounts(const struct sandbox *sb)
{
	json_t *list = json_array(), *m, *path;
	size_t i, tree = 0;

	json_array_foreach (json_object_get(sb->doc, "mounts"), i, m) {
		json_t *copy = json_copy(m);

		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow"))
			(void)json_object_set_new(copy, "lower", lower_of(sb, ++tree));
		(void)json_array_append_new(list, copy);
	}
	json_array_foreach (json_object_get(sb->doc, "expose"), i, path)
		(void)json_array_append_new(list,
			json_pack("{s:O,s:O,s:s}", "source", path, "target", path, "mode", "ro"));
	return list;
}

json_t *sandbox_spec(const struct sandbox *sb)
{
	static const char *const same[] = { "id", "name", "hostname", "profile", "image", "expose",
		"limits", "slot" };
	json_t *spec = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		json_t *v = json_object_get(sb->doc, same[i]);

		if (v != NULL)
			(void)json_object_set(spec, same[i], v);
	}
	(void)json_object_set_new(spec, "lower", lower_of(sb, 0));
	(void)json_object_set_new(spec, "mounts", spec_mounts(sb));
	return spec;
}

/* --- creating --- */

static bool name_taken(const struct server *srv, const char *name)
{
	list_for_each (&srv->sandboxes, node, next) {
		if (str_eq(list_entry(node, struct sandbox, node)->name, name))
			return true;
	}
	return false;
}

static int choose_name(
	struct server *srv, const json_t *request, char name[NAME_MAX_LEN + 1], struct err *err)
{
	const char *asked = json_string_value(json_object_get(request, "name"));

	if (asked == NULL) {
		for (unsigned int attempt = 0;; attempt++) {
			name_new(name, attempt);
			if (!name_taken(srv, name))
				return 0;
		}
	}
	if (name_taken(srv, asked))
		return err_raise(err, ERR_EXISTS, "a sandbox named '%s' exists already", asked);
	return str_copy(name, NAME_MAX_LEN + 1, asked);
}

static size_t target_length(const json_t *mount)
{
	return strlen(json_string_value(json_object_get(mount, "target")));
}

/* Parents before children, so that a mount never hides one made before it. */
static int sort_mounts(json_t *mounts, struct err *err)
{
	size_t n = json_array_size(mounts);

	for (size_t i = 1; i < n; i++) {
		for (size_t j = i; j > 0; j--) {
			json_t *a = json_array_get(mounts, j - 1), *b = json_array_get(mounts, j);

			if (json_equal(json_object_get(a, "target"), json_object_get(b, "target")))
				return err_raise(err, ERR_INVALID,
					"two mounts have the target '%s'",
					json_string_value(json_object_get(a, "target")));
			if (target_length(a) <= target_length(b))
				continue;
			(void)json_incref(a);
			(void)json_array_set(mounts, j - 1, b);
			(void)json_array_set_new(mounts, j, a);
		}
	}
	return 0;
}

static json_t *mounts_from(const json_t *request, struct err *err)
{
	json_t *list = json_deep_copy(json_object_get(request, "mounts")), *m;
	size_t i;

	if (list == NULL)
		list = json_array();
	json_array_foreach (list, i, m) {
		const char *target = json_string_value(json_object_get(m, "target"));

		if (json_object_get(m, "mode") == NULL)
			(void)json_object_set_new(m, "mode", json_string("cow"));
		if (str_eq(target, "/") || str_path_under(target, "/proc") ||
			str_path_under(target, "/sys") || str_path_under(target, "/dev")) {
			(void)err_raise(err, ERR_INVALID, "nothing can be mounted at '%s'", target);
			json_decref(list);
			return NULL;
		}
	}
	if (sort_mounts(list, err) < 0) {
		json_decref(list);
		return NULL;
	}
	return list;
}

/* Can the pool hold a sandbox to a number of bytes? */
static bool disk_limits_work(const struct server *srv)
{
	const json_t *v = json_object_get(srv->storage, "limit_bytes");

	if (json_is_string(v))
		return !str_eq(json_string_value(v), "none") && !str_eq(json_string_value(v), "");
	return json_is_true(v);
}

static json_t *limits_from(const struct server *srv, const json_t *request)
{
	static const struct {
		const char *name;
		json_int_t value;
	} defaults[] = { { "memory_bytes", 2LL << 30 }, { "pids", 1024 },
		{ "disk_bytes", 10LL << 30 }, { "inodes", 1000000 }, { "files", 65536 } };
	json_t *asked = json_object_get(request, "limits");
	json_t *limits = asked != NULL ? json_copy(asked) : json_object();

	for (size_t i = 0; i < ARRAY_SIZE(defaults); i++) {
		/* what was not asked for is not insisted on */
		if ((str_eq(defaults[i].name, "disk_bytes") ||
			    str_eq(defaults[i].name, "inodes")) &&
			!disk_limits_work(srv))
			continue;
		if (json_object_get(limits, defaults[i].name) == NULL)
			(void)json_object_set_new(
				limits, defaults[i].name, json_integer(defaults[i].value));
	}
	return limits;
}

static json_t *or_empty(const json_t *request, const char *member, json_t *empty)
{
	json_t *v = json_object_get(request, member);

	if (v == NULL)
		return empty;
	json_decref(empty);
	return json_incref(v);
}

static const char *text_or(const json_t *request, const char *member, const char *otherwise)
{
	const char *v = json_string_value(json_object_get(request, member));

	return v != NULL ? v : otherwise;
}

static json_t *text_or_null(const char *text)
{
	return text != NULL ? json_string(text) : json_null();
}

static json_t *document(struct server *srv, const json_t *request, const struct sandbox_origin *o,
	const char *image, json_t *mounts)
{
	json_t *doc = json_object();

	(void)json_object_set_new(doc, "image", json_string(image));
	(void)json_object_set_new(doc, "base", text_or_null(o != NULL ? o->snapshot : NULL));
	(void)json_object_set_new(doc, "parent", text_or_null(o != NULL ? o->parent : NULL));
	(void)json_object_set_new(doc, "layers",
		o != NULL && o->layers != NULL ? json_copy(o->layers) : json_array());
	(void)json_object_set_new(doc, "base_layers", json_copy(json_object_get(doc, "layers")));
	(void)json_object_set_new(doc, "since_ns",
		json_integer(o != NULL && o->since_ns != 0 ? (json_int_t)o->since_ns
							   : (json_int_t)clock_wall_ns()));
	(void)json_object_set_new(doc, "labels", or_empty(request, "labels", json_object()));
	(void)json_object_set_new(doc, "env", or_empty(request, "env", json_object()));
	(void)json_object_set_new(doc, "expose", or_empty(request, "expose", json_array()));
	(void)json_object_set_new(
		doc, "profile", json_string(text_or(request, "profile", "default")));
	/* one for all: the /etc/hosts that every sandbox of the host image shares knows it, so that sudo and others can resolve it */
	(void)json_object_set_new(
		doc, "hostname", json_string(text_or(request, "hostname", "cay")));
	(void)json_object_set_new(doc, "limits", limits_from(srv, request));
	(void)json_object_set_new(doc, "mounts", mounts);
	(void)json_object_set_new(doc, "mode", json_string(srv->rootless ? "rootless" : "root"));
	(void)json_object_set_new(doc, "uid_map", json_string(srv->uid_map));
	(void)json_object_set_new(doc, "ephemeral",
		json_boolean(json_is_true(json_object_get(request, "ephemeral"))));
	(void)json_object_set_new(doc, "epoch", json_integer(1));
	(void)json_object_set_new(doc, "unborn", json_true());
	(void)json_object_set_new(doc, "started", json_null());
	(void)json_object_set_new(doc, "stopped", json_null());
	(void)json_object_set_new(doc, "init_pid", json_null());
	return doc;
}

static struct sandbox *sandbox_alloc(
	struct server *srv, const char *id, const char *name, json_t *doc)
{
	struct sandbox *sb = xnew(struct sandbox);

	(void)!str_copy(sb->id, sizeof(sb->id), id);
	(void)!str_copy(sb->name, sizeof(sb->name), name);
	sb->srv = srv;
	sb->doc = doc;
	sb->refs = 1; /* the list's */
	sb->next_channel = 1;
	list_init(&sb->execs);
	waiters_init(&sb->changed);
	list_append(&srv->sandboxes, &sb->node);
	return sb;
}

/* Take it out of the world of names; the memory goes with the last reference. */
static void sandbox_unlist(struct sandbox *sb)
{
	sb->gone = true;
	list_remove(&sb->node);
	waiters_wake(&sb->changed);
	sandbox_unref(sb);
}

static int place(struct server *srv, bool with_keeper, struct keeper **keeper, char id[ID_LEN + 1],
	int *slot, struct err *err)
{
	struct id made = id_new();

	*keeper = NULL;
	if (!with_keeper) {
		*slot = slot_take(srv);
		if (*slot < 0)
			return err_raise(
				err, ERR_LIMIT, "no more than %u sandboxes fit", SLOT_COUNT);
		return str_copy(id, ID_LEN + 1, made.s);
	}
	*keeper = keeper_take(srv);
	if (*keeper == NULL)
		*keeper = keeper_new(srv, NULL, -1, err);
	keeper_refill(srv);
	if (*keeper == NULL)
		return -EIO;
	(*keeper)->claimed = true;
	*slot = (int)(*keeper)->slot;
	return str_copy(id, ID_LEN + 1, (*keeper)->id);
}

static void give_back(struct server *srv, struct keeper *k, int slot)
{
	if (k != NULL) {
		keeper_end(k);
		keeper_unref(k);
	}
	slot_free(srv, (uint32_t)slot);
}

static json_t *created_data(const struct sandbox *sb)
{
	static const char *const members[] = { "name", "image", "base", "parent", "profile",
		"limits", "mounts", "mode" };
	json_t *data = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		(void)json_object_set(data, members[i], json_object_get(sb->doc, members[i]));
	return data;
}

/* Without its mask the host image would show home directories and credentials: then there is none. Context: may wait. */
static int check_mask(struct server *srv, const char *image, struct err *err)
{
	int rc;

	if (srv->mask != NULL || !str_eq(image, "host") || ablated("mask_layer"))
		return 0;
	/* a job of a server that died may have swept ours away at the start: once more before saying no */
	rc = server_make_mask(srv, err);
	if (rc < 0) {
		err->code = ERR_HOST;
		err_context(err,
			"the host image cannot be used: what hides its private parts could not be made");
		return err_hint(err, rc, "other images work");
	}
	return 0;
}

struct sandbox *sandbox_new(struct server *srv, const json_t *request,
	const struct sandbox_origin *origin, bool keeper, struct err *err)
{
	char name[NAME_MAX_LEN + 1], id[ID_LEN + 1];
	const char *image = image_find(srv, text_or(request, "image", "host"), err);
	struct keeper *k;
	struct sandbox *sb;
	json_t *mounts;
	int slot;

	if (image == NULL || check_mask(srv, image, err) < 0 ||
		env_check(json_object_get(request, "env"), err) < 0 ||
		choose_name(srv, request, name, err) < 0)
		return NULL;
	mounts = mounts_from(request, err);
	if (mounts == NULL)
		return NULL;
	if (place(srv, keeper, &k, id, &slot, err) < 0) {
		json_decref(mounts);
		return NULL;
	}
	/* place() may have waited: look again */
	image = image_find(srv, text_or(request, "image", "host"), err);
	if (image == NULL || choose_name(srv, request, name, err) < 0) {
		json_decref(mounts);
		give_back(srv, k, slot);
		return NULL;
	}
	sb = sandbox_alloc(srv, id, name, document(srv, request, origin, image, mounts));
	(void)json_object_set_new(sb->doc, "id", json_string(id));
	(void)json_object_set_new(sb->doc, "name", json_string(name));
	(void)json_object_set_new(sb->doc, "slot", json_integer(slot));
	if (origin != NULL && origin->key != NULL) {
		/* in the commit that makes the sandbox: a retry after a crash finds either both or neither */
		(void)json_object_set_new(sb->doc, "key", json_string(origin->key));
		(void)json_object_set_new(sb->doc, "key_hash", json_string(origin->key_hash));
	}
	set_time(sb, "created");
	sb->locked = true;
	sb->keeper = k;
	if (k != NULL)
		k->sandbox = sb;
	(void)fault("sandbox.create.before_commit");
	if (sandbox_move(sb, SANDBOX_CREATING, EVENT_SANDBOX_CREATED, created_data(sb), err) == 0) {
		(void)fault("sandbox.create.committed");
		return sandbox_ref(sb);
	}
	sb->keeper = NULL;
	give_back(srv, k, slot);
	sandbox_unlist(sb);
	return NULL;
}

/* --- starting and stopping --- */

static void drop_keeper(struct sandbox *sb)
{
	struct keeper *k = sb->keeper;

	if (k == NULL)
		return;
	list_for_each (&sb->execs, node, next)
		list_entry(node, struct exec, node)->archived = true;
	keeper_end(k);
	if (sb->keeper == k)
		sb->keeper = NULL;
	keeper_unref(k);
}

static void start_failed(struct sandbox *sb, bool remove, const struct err *why)
{
	json_t *error = err_to_json(why);

	drop_keeper(sb);
	(void)json_object_set(sb->doc, "error", error);
	(void)sandbox_move(
		sb, SANDBOX_FAILED, EVENT_SANDBOX_FAILED, json_pack("{s:o}", "error", error), NULL);
	if (remove)
		(void)sandbox_remove(sb, NULL);
}

int sandbox_started(struct sandbox *sb, const json_t *ok, bool warm, struct err *err)
{
	json_int_t pid = json_integer_value(json_object_get(ok, "init_pid"));
	json_t *disk = json_object_get(ok, "disk");

	process_source_drain(sb->srv->processes);
	process_source_bind(sb->srv->processes, sb->id, (pid_t)pid, NULL);
	process_source_epoch(sb->srv->processes, sb->id, sandbox_epoch(sb));
	(void)json_object_set_new(sb->doc, "init_pid", json_integer(pid));
	(void)json_object_del(sb->doc, "error");
	if (disk != NULL)
		(void)json_object_set(sb->doc, "disk", disk);
	set_time(sb, "started");
	sb->running_since_ns = clock_now_ns();
	return sandbox_move(sb, SANDBOX_RUNNING, EVENT_SANDBOX_STARTED,
		json_pack("{s:I,s:b}", "init_pid", pid, "warm", (int)warm), err);
}

int sandbox_start(struct sandbox *sb, bool remove_on_failure, struct err *err)
{
	const char *image = json_string_value(json_object_get(sb->doc, "image"));
	bool warm = sb->keeper != NULL && sb->keeper->prepared;
	json_t *ok = NULL;
	int rc = 0;

	if (sb->state != SANDBOX_CREATING)
		rc = sandbox_move(sb, SANDBOX_CREATING, EVENT_TYPE_COUNT, NULL, err);
	if (rc == 0 && sb->keeper == NULL) {
		sb->keeper = keeper_new(sb->srv, sb->id,
			(int)json_integer_value(json_object_get(sb->doc, "slot")), err);
		if (sb->keeper == NULL) {
			rc = -EIO;
		} else {
			sb->keeper->claimed = true;
			sb->keeper->sandbox = sb;
		}
	}
	if (rc == 0)
		rc = check_mask(sb->srv, image, err);
	if (rc == 0)
		rc = keeper_ready(sb->keeper, err);
	if (rc == 0)
		rc = framelink_call(&sb->keeper->link,
			json_pack("{s:s,s:o}", "verb", "start", "spec", sandbox_spec(sb)),
			clock_now_ns() + CALL_NS, &ok, err);
	if (rc == 0)
		rc = sandbox_started(sb, ok, warm, err);
	json_decref(ok);
	if (rc < 0) {
		struct err why = *err;

		err_context(err, "start sandbox '%s'", sb->name);
		start_failed(sb, remove_on_failure, &why);
	}
	return rc;
}

/* Ask politely, wait until every exec has ended or the time is over. */
static void terminate_execs(struct sandbox *sb, uint64_t grace_ms)
{
	uint64_t deadline = clock_now_ns() + grace_ms * NS_PER_MS;
	unsigned char sig[4];
	bool any = true;

	frame_put_u32(sig, 15);
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);

		if (!e->ended)
			framelink_send(
				&sb->keeper->link, FRAME_SIGNAL, e->channel, sig, sizeof(sig));
	}
	while (any && waiters_wait(&sb->changed, deadline) == 0) {
		any = false;
		list_for_each (&sb->execs, node, next)
			any |= !list_entry(node, struct exec, node)->ended;
	}
}

/* Counters of a sandbox that ran several times add up; those that are no sums take the last value. */
static void usage_keep(struct sandbox *sb, const json_t *now)
{
	json_t *kept = json_object_get(sb->doc, "usage");
	json_int_t running_ms = (json_int_t)((clock_now_ns() - sb->running_since_ns) / NS_PER_MS);

	if (kept == NULL) {
		kept = json_object();
		(void)json_object_set_new(sb->doc, "usage", kept);
	}
	(void)json_object_set_new(kept, "running_ms",
		json_integer(json_integer_value(json_object_get(kept, "running_ms")) + running_ms));
	(void)json_object_set_new(kept, "cpu_us",
		json_integer(json_integer_value(json_object_get(kept, "cpu_us")) +
			     json_integer_value(json_object_get(now, "cpu_us"))));
	(void)json_object_set_new(kept, "output_bytes",
		json_integer(json_integer_value(json_object_get(kept, "output_bytes")) +
			     json_integer_value(json_object_get(now, "output_bytes"))));
	if (json_integer_value(json_object_get(now, "memory_peak_bytes")) >
		json_integer_value(json_object_get(kept, "memory_peak_bytes")))
		(void)json_object_set(
			kept, "memory_peak_bytes", json_object_get(now, "memory_peak_bytes"));
}

json_t *sandbox_usage_now(struct sandbox *sb, struct err *err)
{
	json_t *kept = json_object_get(sb->doc, "usage"), *now = NULL, *out;
	json_int_t running = json_integer_value(json_object_get(kept, "running_ms"));
	bool live =
		sb->keeper != NULL && (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED);

	if (live && framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", "usage"),
			    clock_now_ns() + CALL_NS, &now, err) < 0)
		return NULL;
	out = now != NULL ? now : json_object();
	(void)json_object_set_new(out, "cpu_us",
		json_integer(json_integer_value(json_object_get(out, "cpu_us")) +
			     json_integer_value(json_object_get(kept, "cpu_us"))));
	(void)json_object_set_new(out, "output_bytes",
		json_integer(json_integer_value(json_object_get(out, "output_bytes")) +
			     json_integer_value(json_object_get(kept, "output_bytes"))));
	if (live)
		running += (json_int_t)((clock_now_ns() - sb->running_since_ns) / NS_PER_MS);
	else
		(void)json_object_set(
			out, "memory_peak_bytes", json_object_get(kept, "memory_peak_bytes"));
	(void)json_object_set_new(out, "running_ms", json_integer(running));
	(void)json_object_set_new(out, "sandbox", json_string(sb->id));
	(void)json_object_set_new(out, "live", json_boolean(live));
	return out;
}

int sandbox_halt(struct sandbox *sb, const char *reason, uint64_t grace_ms, struct err *err)
{
	struct framecall call;
	json_t *usage = NULL;

	if (sb->keeper == NULL)
		return err_raise(err, ERR_STATE, "sandbox '%s' is %s", sb->name,
			sandbox_state_name(sb->state));
	if (grace_ms > 0 && sb->state == SANDBOX_RUNNING)
		terminate_execs(sb, grace_ms);
	if (sb->keeper == NULL)
		return err_raise(err, ERR_STATE, "sandbox '%s' ended by itself", sb->name);
	if (!sb->keeper->link.dead && sb->state != SANDBOX_CREATING) {
		framelink_call_begin(&sb->keeper->link, &call, json_pack("{s:s}", "verb", "usage"));
		(void)!framelink_call_end(
			&sb->keeper->link, &call, clock_now_ns() + CALL_NS, &usage, NULL);
		if (!sb->in_run)
			execs_save_output(sb);
	}
	(void)fault("sandbox.stop.before");
	usage_keep(sb, usage);
	json_decref(usage);
	drop_keeper(sb);
	execs_lost(sb, "killed", "the sandbox was stopped");
	set_time(sb, "stopped");
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	return sandbox_move(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED,
		json_pack(
			"{s:s,s:O}", "reason", reason, "usage", json_object_get(sb->doc, "usage")),
		err);
}

/* Deletes files of removed sandboxes, many with one job. */
static void trash_main(void *arg)
{
	struct server *srv = arg;
	struct err err;

	while (json_array_size(srv->trash) > 0 && !srv->stopping) {
		json_t *ids = srv->trash;

		srv->trash = json_array();
		if (job_run(srv, json_pack("{s:s,s:o}", "verb", "remove", "sandboxes", ids), NULL,
			    NULL, NULL, &err) < 0)
			log_debug("store", "remove: %s (the next start clears up)", err.msg);
	}
	srv->trash_busy = false;
}

static void trash_add(struct server *srv, const char *id)
{
	(void)json_array_append_new(srv->trash, json_string(id));
	if (srv->trash_busy)
		return;
	srv->trash_busy = true;
	fiber_start(trash_main, srv);
}

int sandbox_remove(struct sandbox *sb, struct err *err)
{
	struct server *srv = sb->srv;
	int rc;

	rc = sandbox_move(sb, SANDBOX_REMOVING, EVENT_SANDBOX_REMOVED,
		json_pack("{s:s}", "name", sb->name), err);
	if (rc < 0)
		return rc;
	(void)fault("sandbox.remove.marked");
	drop_keeper(sb);
	rc = catalogue_begin(srv->catalogue, err);
	if (rc == 0)
		rc = catalogue_delete(srv->catalogue, CATALOGUE_SANDBOXES, sb->id, err);
	if (rc == 0)
		rc = catalogue_delete_owned(srv->catalogue, CATALOGUE_EXECS, sb->id, err);
	if (rc == 0)
		rc = catalogue_commit(srv->catalogue, false, err);
	if (rc < 0)
		return rc;
	(void)fault("sandbox.remove.committed");
	slot_free(srv, (uint32_t)json_integer_value(json_object_get(sb->doc, "slot")));
	sb->state = SANDBOX_REMOVING;
	execs_lost(sb, "killed", "the sandbox was removed");
	trash_add(srv, sb->id);
	sandbox_unlist(sb);
	return 0;
}

/* --- a keeper that ended unasked --- */

static void lost_main(void *arg)
{
	struct sandbox *sb = arg;
	struct err why = { 0 };

	if (sandbox_lock(sb, NULL) == 0) {
		if (sb->keeper != NULL && sb->keeper->failed && sb->state != SANDBOX_CREATING &&
			!sb->srv->stopping) {
			json_t *error;

			(void)err_raise(&why, ERR_STATE,
				"the first process of sandbox '%s' ended, and with it all others",
				sb->name);
			error = err_to_json(&why);
			usage_keep(sb, NULL);
			drop_keeper(sb);
			execs_lost(sb, "lost", "the sandbox ended unasked");
			(void)json_object_set(sb->doc, "error", error);
			(void)json_object_set_new(sb->doc, "init_pid", json_null());
			set_time(sb, "stopped");
			(void)sandbox_move(sb, SANDBOX_FAILED, EVENT_SANDBOX_FAILED,
				json_pack("{s:o}", "error", error), NULL);
		}
		sandbox_unlock(sb);
	}
	sandbox_unref(sb);
}

void sandbox_keeper_lost(struct sandbox *sb)
{
	waiters_wake(&sb->changed);
	/* whoever holds the lock ends it on purpose, or will see the failure itself */
	fiber_start(lost_main, sandbox_ref(sb));
}

/* --- after a start of cayd --- */

static int load_one(void *ctx, const char *id, const char *text)
{
	struct server *srv = ctx;
	json_t *doc = json_loads(text, 0, NULL);
	const char *name = json_string_value(json_object_get(doc, "name"));
	struct sandbox *sb;

	if (name == NULL) {
		log_error("catalogue", "sandbox '%s' cannot be read: ignored", id);
		json_decref(doc);
		return 0;
	}
	sb = sandbox_alloc(srv, id, name, doc);
	sb->state = state_parse(json_string_value(json_object_get(doc, "state")));
	slot_mark(srv, (uint32_t)json_integer_value(json_object_get(doc, "slot")));
	return 0;
}

int sandboxes_load(struct server *srv, struct err *err)
{
	return catalogue_each(srv->catalogue, CATALOGUE_SANDBOXES, load_one, srv, err);
}

static void adopt(struct sandbox *sb, struct keeper *k)
{
	const char *state = json_string_value(json_object_get(k->hello_doc, "state"));
	json_int_t keeper_pid = 0,
		   init_pid = json_integer_value(json_object_get(k->hello_doc, "init_pid"));
	json_t *where = NULL;

	k->sandbox = sb;
	sb->keeper = k;
	k->slot = (uint32_t)json_integer_value(json_object_get(sb->doc, "slot"));
	if (framelink_call(&k->link, json_pack("{s:s}", "verb", "where"), clock_now_ns() + CALL_NS,
		    &where, NULL) == 0)
		keeper_pid = json_integer_value(json_object_get(where, "keeper_pid"));
	json_decref(where);
	if (keeper_pid > 0)
		process_source_follow(sb->srv->processes, sb->id, (pid_t)keeper_pid);
	process_source_bind(sb->srv->processes, sb->id, (pid_t)init_pid, NULL);
	execs_adopt(sb, json_object_get(k->hello_doc, "execs"));
	sb->running_since_ns = clock_now_ns();
	sb->state = state != NULL && str_eq(state, "paused") ? SANDBOX_PAUSED : SANDBOX_RUNNING;
	(void)json_object_set_new(sb->doc, "init_pid", json_integer(init_pid));
	(void)sandbox_move(sb, sb->state, EVENT_SANDBOX_ADOPTED,
		json_pack("{s:I}", "execs",
			(json_int_t)json_array_size(json_object_get(k->hello_doc, "execs"))),
		NULL);
	/* only now: events that waited are of execs that are known by now */
	(void)!framelink_call(&k->link, json_pack("{s:s}", "verb", "adopt"),
		clock_now_ns() + CALL_NS, NULL, NULL);
}

/* Was it never answered for? Then nobody knows of it, and asking again must not find its name taken. */
static bool unborn(const struct sandbox *sb)
{
	return sb->state == SANDBOX_CREATING && json_is_true(json_object_get(sb->doc, "unborn"));
}

/* What was running without a keeper is over; what was being made for the first time or removed is removed. */
static void bury(struct sandbox *sb)
{
	struct server *srv = sb->srv;

	spawner_cleanup(srv, sb->id);
	if (unborn(sb) || sb->state == SANDBOX_REMOVING ||
		json_is_true(json_object_get(sb->doc, "ephemeral"))) {
		if (sb->state == SANDBOX_STOPPED)
			sb->state = SANDBOX_FAILED;
		(void)sandbox_remove(sb, NULL);
		return;
	}
	execs_lost(sb, "lost", "the machine or the keeper went down");
	(void)json_object_set_new(sb->doc, "init_pid", json_null());
	set_time(sb, "stopped");
	(void)sandbox_move(sb, SANDBOX_STOPPED, EVENT_SANDBOX_STOPPED,
		json_pack("{s:s}", "reason", "its processes were gone when the server started"),
		NULL);
}

static void recover_one(struct sandbox *sb)
{
	struct keeper *k;
	struct err err;

	if (json_is_true(json_object_get(sb->doc, "rewinding")) &&
		sandbox_discard_live(sb, &err) < 0)
		log_error("sandbox", "finish the rewind of '%s': %s", sb->name, err.msg);
	if (sb->state == SANDBOX_STOPPED || sb->state == SANDBOX_FAILED)
		return;
	k = keeper_adopt(sb->srv, sb->id, NULL);
	if (k != NULL && sb->state != SANDBOX_REMOVING && !unborn(sb)) {
		const char *state = json_string_value(json_object_get(k->hello_doc, "state"));

		if (state != NULL && (str_eq(state, "running") || str_eq(state, "paused")) &&
			!json_is_true(json_object_get(k->hello_doc, "init_gone"))) {
			adopt(sb, k);
			return;
		}
	}
	if (k != NULL) {
		keeper_end(k);
		keeper_unref(k);
	}
	bury(sb);
}

void sandboxes_recover(struct server *srv)
{
	list_for_each (&srv->sandboxes, node, next) {
		struct sandbox *sb = sandbox_ref(list_entry(node, struct sandbox, node));

		if (sandbox_lock(sb, NULL) == 0) {
			recover_one(sb);
			sandbox_unlock(sb);
		}
		sandbox_unref(sb);
	}
}
