/* SPDX-License-Identifier: Apache-2.0 */
/* api/sandbox_create.c - from a request to a new sandbox in the catalogue: name, mounts, limits, document, keeper. */
#include "api/credentials.h"
#include "api/moments.h"
#include "api/sandbox_parts.h"
#include "base/ablate.h"
#include "base/credential.h"
#include "base/fault.h"
#include "base/str.h"

static int choose_name(
	struct server *srv, const json_t *request, char name[NAME_MAX_LEN + 1], struct err *err)
{
	const char *asked = json_string_value(json_object_get(request, "name"));

	if (asked == NULL) {
		for (unsigned int attempt = 0;; attempt++) {
			name_new(name, attempt);
			if (sandbox_by_name(srv, name) == NULL)
				return 0;
		}
	}
	if (sandbox_by_name(srv, asked) != NULL)
		return err_raise(err, ERR_EXISTS, "a sandbox named '%s' exists already", asked);
	return str_copy(name, NAME_MAX_LEN + 1, asked);
}

static const char *target_of(const json_t *mounts, size_t i)
{
	return json_string_value(json_object_get(json_array_get(mounts, i), "target"));
}

/* One would hide the other. */
static int check_targets(const json_t *mounts, struct err *err)
{
	for (size_t i = 1; i < json_array_size(mounts); i++) {
		for (size_t j = 0; j < i; j++) {
			if (str_eq(target_of(mounts, i), target_of(mounts, j)))
				return err_raise(err, ERR_INVALID,
					"two mounts have the target '%s'", target_of(mounts, i));
		}
	}
	return 0;
}

/* Parents before children, so that a mount never hides one made before it. */
static void sort_mounts(json_t *mounts)
{
	for (size_t i = 1; i < json_array_size(mounts); i++) {
		for (size_t j = i;
			j > 0 && strlen(target_of(mounts, j - 1)) > strlen(target_of(mounts, j));
			j--) {
			json_t *parent = json_array_get(mounts, j),
			       *child = json_incref(json_array_get(mounts, j - 1));

			(void)json_array_set(mounts, j - 1, parent);
			(void)json_array_set_new(mounts, j, child);
		}
	}
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
	if (check_targets(list, err) < 0) {
		json_decref(list);
		return NULL;
	}
	sort_mounts(list);
	return list;
}

/* By the text alone; the keeper, which may look everywhere, judges what is really there. */
static int check_exposed(const struct server *srv, const char *path, struct err *err)
{
	const char *what = credential_place(path);

	if (what == NULL &&
		(str_path_under(path, srv->state) || str_path_under(path, srv->run) ||
			str_path_under(srv->state, path) || str_path_under(srv->run, path)))
		what = "cay's own files";
	if (what == NULL || ablated("expose_credentials"))
		return 0;
	return credential_refuse(path, what, err);
}

static int check_all_exposed(const struct server *srv, const json_t *request, struct err *err)
{
	json_t *v;
	size_t i;
	int rc = 0;

	json_array_foreach (json_object_get(request, "expose"), i, v) {
		if (rc == 0)
			rc = check_exposed(srv, json_string_value(v), err);
	}
	json_array_foreach (json_object_get(request, "mounts"), i, v) {
		if (rc == 0 && json_is_true(json_object_get(v, "exposed")))
			rc = check_exposed(
				srv, json_string_value(json_object_get(v, "source")), err);
	}
	return rc;
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

/* Of those that @request asks for: for those that it does not whoever started the server has taken it that there are none. NULL: all are held. */
static json_t *limits_not_held(const struct server *srv, const json_t *request)
{
	static const char *const names[] = { "memory_bytes", "pids", "cpu_millis" };
	const json_t *asked = json_object_get(request, "limits");
	json_t *none = json_array();

	for (size_t i = 0; !srv->limits_held && i < ARRAY_SIZE(names); i++) {
		if (json_object_get(asked, names[i]) != NULL)
			(void)json_array_append_new(none, json_string(names[i]));
	}
	if (json_array_size(none) == 0)
		json_decref(TAKE_PTR(none));
	return none;
}

static json_t *document(struct server *srv, const json_t *request, const struct sandbox_origin *o,
	const char *image, json_t *limits, const char *disk, json_t *mounts)
{
	json_t *doc = json_object(), *not_shown, *not_held;

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
	(void)json_object_set_new(doc, "limits", limits);
	(void)json_object_set_new(doc, "disk", json_pack("{s:s}", "kind", disk));
	(void)json_object_set_new(doc, "mounts", mounts);
	if ((not_shown = mounted_not_shown(srv, mounts)) != NULL)
		(void)json_object_set_new(doc, "not_shown", not_shown);
	/* a fork asks for what its source has */
	not_held = o == NULL || o->snapshot == NULL ? limits_not_held(srv, request) : NULL;
	if (not_held != NULL)
		(void)json_object_set_new(doc, "limits_not_held", not_held);
	(void)json_object_set_new(doc, "mode", json_string(srv->rootless ? "rootless" : "root"));
	(void)json_object_set_new(doc, "uid_map", json_string(srv->uid_map));
	(void)json_object_set_new(doc, "ephemeral",
		json_boolean(json_is_true(json_object_get(request, "ephemeral"))));
	(void)json_object_set_new(
		doc, "checkpoint", json_string(text_or(request, "checkpoint", "none")));
	(void)json_object_set_new(doc, "idle_ms", or_empty(request, "idle_ms", json_integer(0)));
	(void)json_object_set_new(doc, "steps", or_empty(request, "steps", json_integer(0)));
	(void)json_object_set(doc, "checkpointed", json_object_get(doc, "steps"));
	(void)json_object_set_new(doc, "epoch", json_integer(1));
	(void)json_object_set_new(doc, "unborn", json_true());
	(void)json_object_set_new(doc, "started", json_null());
	(void)json_object_set_new(doc, "stopped", json_null());
	(void)json_object_set_new(doc, "init_pid", json_null());
	return doc;
}

/* For what a keeper may have been prepared (api/keeper_pool.h): a fork with its processes, or a cow mount over nothing but its directory. New reference; NULL: neither. */
static json_t *beginning_of(
	const struct sandbox_origin *o, const char *image, const char *disk, const json_t *mounts)
{
	json_t *first = json_array_get(mounts, 0);
	const char *mode = json_string_value(json_object_get(first, "mode"));
	bool bare = (o == NULL || json_array_size(o->layers) == 0) && str_eq(image, "host") &&
		    !str_eq(disk, "disk");

	if (o != NULL && o->live)
		return json_pack("{s:s}", "snapshot", o->snapshot);
	return bare && mode != NULL && str_eq(mode, "cow") ? json_incref(first) : NULL;
}

/* Takes @beginning. */
static int place(struct server *srv, bool with_keeper, json_t *beginning, struct keeper **keeper,
	char id[ID_LEN + 1], int *slot, struct err *err)
{
	struct id made = id_new();

	*keeper = NULL;
	if (!with_keeper) {
		json_decref(beginning);
		*slot = slot_take(srv);
		if (*slot < 0)
			return err_raise(
				err, ERR_LIMIT, "no more than %u sandboxes fit", SLOT_COUNT);
		return str_copy(id, ID_LEN + 1, made.s);
	}
	*keeper = keeper_take(srv, beginning);
	if (*keeper == NULL) {
		*keeper = keeper_new(srv, NULL, -1, err);
		if (*keeper != NULL)
			(*keeper)->foreseen = json_incref(keeper_foresee_for(srv, beginning));
	}
	json_decref(beginning);
	keeper_refill(srv);
	if (*keeper == NULL)
		return -EIO;
	keeper_claim(*keeper);
	*slot = (int)(*keeper)->slot;
	return str_copy(id, ID_LEN + 1, (*keeper)->id);
}

static void give_back(struct server *srv, struct keeper *k, int slot)
{
	if (k != NULL) {
		keeper_end(k, false);
		sandbox_trash_note(srv, k->id);
		sandbox_trash_settle(srv);
		keeper_unref(k);
	}
	slot_free(srv, (uint32_t)slot);
}

json_t *sandbox_created_data(const struct sandbox *sb)
{
	static const char *const members[] = { "name", "image", "base", "parent", "profile",
		"limits", "mounts", "mode", "not_shown", "limits_not_held" };
	json_t *data = json_object();

	for (size_t i = 0; i < ARRAY_SIZE(members); i++)
		(void)json_object_set(data, members[i], json_object_get(sb->doc, members[i]));
	return data;
}

/* Without its mask the host image would show home directories and credentials: then there is none. */
int sandbox_check_storage(struct server *srv, const char *image, struct err *err)
{
	int rc = server_storage_check(srv, err);

	if (rc < 0)
		return rc;
	if (!str_eq(image, "host"))
		return 0;
	rc = server_make_mask(srv, err);
	if (rc < 0) {
		err->code = ERR_HOST;
		err_context(err,
			"the host image cannot be used: what hides its private parts could not be made");
		return err_hint(err, rc, "'cay doctor' says what this machine lacks");
	}
	return 0;
}

/* Told when it is written: where it is not, nobody has heard of it. The data of the event are in the row anyway. */
int sandbox_write_new(struct sandbox *sb, struct err *err)
{
	int rc;

	sandbox_enter(sb, SANDBOX_CREATING, EVENT_TYPE_COUNT, NULL);
	sandbox_will_tell(sb, EVENT_SANDBOX_CREATED, NULL);
	rc = sandbox_save(sb, false, err);
	if (rc < 0)
		return rc;
	(void)server_event(sb->srv, sb, EVENT_SANDBOX_CREATED, NULL, sandbox_created_data(sb));
	(void)fault("sandbox.create.committed");
	return 0;
}

void sandbox_discard(struct sandbox *sb)
{
	struct keeper *k = sb->keeper;

	credentials_forget(sb->srv, sb->id);
	gateway_state_forget(sb->srv, sb->id);
	sb->keeper = NULL;
	give_back(sb->srv, k, (int)json_integer_value(json_object_get(sb->doc, "slot")));
	sandbox_unlist(sb);
}

struct sandbox *sandbox_new(struct server *srv, const json_t *request,
	const struct sandbox_origin *origin, bool keeper, struct err *err)
{
	char name[NAME_MAX_LEN + 1], id[ID_LEN + 1];
	const char *image = image_find(srv, text_or(request, "image", "host"), err), *disk;
	bool in_run = origin != NULL && origin->run != NULL;
	struct keeper *k;
	struct sandbox *sb;
	json_t *mounts, *limits, *policy;
	int slot, rc;

	if (image == NULL || sandbox_check_storage(srv, image, err) < 0 ||
		reserve_check(srv, err) < 0 ||
		env_check(json_object_get(request, "env"), err) < 0 ||
		check_all_exposed(srv, request, err) < 0 ||
		choose_name(srv, request, name, err) < 0)
		return NULL;
	if (gateway_policy_of(request, &policy, err) < 0)
		return NULL;
	limits = sandbox_limits(srv, request, &disk, err);
	mounts = limits == NULL ? NULL : mounts_from(request, err);
	if (mounts == NULL || place(srv, keeper, beginning_of(origin, image, disk, mounts), &k, id,
				      &slot, err) < 0) {
		json_decref(limits);
		json_decref(mounts);
		json_decref(policy);
		return NULL;
	}
	/* place() may have waited: look again */
	image = image_find(srv, text_or(request, "image", "host"), err);
	if (image == NULL || choose_name(srv, request, name, err) < 0) {
		json_decref(limits);
		json_decref(mounts);
		json_decref(policy);
		give_back(srv, k, slot);
		return NULL;
	}
	sb = sandbox_alloc(
		srv, id, name, document(srv, request, origin, image, limits, disk, mounts));
	(void)json_object_set_new(sb->doc, "id", json_string(id));
	(void)json_object_set_new(sb->doc, "name", json_string(name));
	(void)json_object_set_new(sb->doc, "slot", json_integer(slot));
	(void)json_object_set_new(sb->doc, "policy", policy);
	(void)json_object_set_new(sb->doc, "policy_version", json_integer(1));
	if (origin != NULL && origin->run != NULL)
		(void)json_object_set(sb->doc, "run", origin->run);
	if (origin != NULL && origin->key != NULL) {
		/* in the commit that makes the sandbox: a retry after a crash finds either both or neither */
		(void)json_object_set_new(sb->doc, "key", json_string(origin->key));
		(void)json_object_set_new(sb->doc, "key_hash", json_string(origin->key_hash));
	}
	sandbox_index(sb);
	if (in_run) /* its client hears of it at once */
		(void)json_object_del(sb->doc, "unborn");
	sandbox_set_time(sb, "created");
	sb->locked = true;
	sb->keeper = k;
	if (k != NULL)
		k->sandbox = sb;
	(void)fault("sandbox.create.before_commit");
	rc = origin != NULL && origin->snapshot != NULL ? moment_fork(sb, origin->snapshot, err)
							: 0;
	if (rc == 0)
		rc = credentials_prepare(sb, err);
	if (rc == 0 && !in_run)
		rc = sandbox_write_new(sb, err);
	if (rc == 0)
		return sandbox_ref(sb);
	sandbox_discard(sb);
	return NULL;
}
