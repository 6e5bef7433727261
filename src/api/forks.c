/* SPDX-License-Identifier: Apache-2.0 */
/* api/forks.c - new sandboxes that begin as a snapshot, or as another sandbox is now. */
#include "api/identity.h"
#include "api/keys.h"
#include "api/lives.h"
#include "api/snapshot_parts.h"
#include "api/steps.h"
#include "api/telling.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/str.h"

static json_int_t count_of(const json_t *body)
{
	const json_t *count = json_object_get(body, "count");

	return count != NULL ? json_integer_value(count) : 1;
}

/* Of the one with this number, from 0. Return: NULL when one is to be made up. */
static json_t *name_of(const json_t *body, json_int_t index)
{
	json_t *name = json_object_get(body, "name");

	if (name == NULL || count_of(body) == 1)
		return json_incref(name);
	return json_sprintf("%s-%lld", json_string_value(name), index + 1);
}

static int check_name(struct server *srv, const char *name, struct err *err)
{
	if (name == NULL)
		return 0;
	if (strlen(name) > NAME_MAX_LEN)
		return err_raise(err, ERR_TOO_LARGE, "the name '%s' is longer than %d bytes", name,
			NAME_MAX_LEN);
	if (sandbox_by_name(srv, name) != NULL)
		return err_raise(err, ERR_EXISTS, "a sandbox named '%s' exists already", name);
	return 0;
}

/* Before anything is taken or made: where a name is not free nothing changes. */
static int check_names(const struct api_call *call, struct err *err)
{
	int rc = 0;

	for (json_int_t n = 0; n < count_of(call->body) && rc == 0; n++) {
		json_t *name = name_of(call->body, n);

		rc = check_name(call->srv, json_string_value(name), err);
		json_decref(name);
	}
	return rc;
}

static json_t *fork_request(const struct snapshot *s, const json_t *body, json_int_t index)
{
	json_t *name = name_of(body, index);
	json_t *request = json_copy(json_object_get(s->doc, "config"));

	if (name != NULL)
		(void)json_object_set_new(request, "name", name);
	return request;
}

/* With the processes of the snapshot when @live. */
static int start_fork(struct sandbox *sb, struct snapshot *s, bool live, bool keep, struct err *err)
{
	int rc;

	if (live) {
		live_restoring(sb, "fork");
		identity_choose(sb, json_object_get(s->doc, "config"), keep);
	}
	rc = sandbox_start(sb, live ? s->live : NULL, true, err);
	if (rc == 0 && live && !s->unwanted)
		keeper_learn_fork(sb, s->id);
	if (rc == 0 && live && !keep)
		identity_tell(sb);
	return rc;
}

/*
 * @told: of one alone, whose last commit announces it. NULL: it says in its document that it is there only with the others (`together`), until forks_join().
 */
static int fork_one(struct server *srv, struct snapshot *s, json_t *request, bool start, bool live,
	bool keep, const struct telling *told, json_t *list, json_t *ids, struct err *err)
{
	struct sandbox_origin origin = {
		.snapshot = s->id,
		.parent = json_string_value(json_object_get(s->doc, "sandbox")),
		.layers = json_object_get(s->doc, "layers"),
		.since_ns = (uint64_t)json_integer_value(json_object_get(s->doc, "since_ns")),
		.live = start && live,
	};
	struct sandbox *sb = sandbox_new(srv, request, &origin, start, err);
	int rc;

	json_decref(request);
	if (sb == NULL)
		return -EIO;
	(void)json_array_append_new(ids, json_string(sb->id));
	sb->birth = told;
	if (told == NULL)
		(void)json_object_set_new(sb->doc, "together", json_true());
	if (start)
		rc = start_fork(sb, s, live, keep, err);
	else
		rc = sandbox_leave(sb, err);
	sb->birth = NULL;
	if (rc == 0)
		(void)json_array_append_new(list, sandbox_object(sb));
	sandbox_unlock(sb);
	sandbox_unref(sb);
	return rc;
}

/* @was: each that is changed is put there as it was, by its id. @told: is announced by the last one; somebody may have removed some of them meanwhile. */
static int forks_save(struct server *srv, const json_t *ids, const struct telling *told,
	json_t *was, struct err *err)
{
	int rc = 0;

	for (size_t i = json_array_size(ids); i > 0 && rc == 0; i--) {
		const char *id = json_string_value(json_array_get(ids, i - 1));
		struct sandbox *sb = sandbox_by_id(srv, id);

		if (sb == NULL || sb->state == SANDBOX_REMOVING)
			continue;
		(void)json_object_set_new(was, id, json_copy(sb->doc));
		(void)json_object_del(sb->doc, "together");
		if (told != NULL)
			telling_announce(srv, sb->doc, told);
		told = NULL;
		rc = sandbox_save(sb, false, err);
	}
	return rc;
}

/* What is answered: @list. */
static json_t *answer_of(json_t *list)
{
	return json_pack("{s:O}", "sandboxes", list);
}

static int remember(struct api_call *call, json_t *list, struct err *err)
{
	json_t *answer = answer_of(list);
	cleanup_free char *text = json_dumps(answer, JSON_COMPACT);

	json_decref(answer);
	return keys_answer(call, 201, text, err);
}

/*
 * All are there: from this commit on for good, and it announces them and has the answer, for who asks again with the same key. A server that dies before leaves none: the next one removes them
 * (sandbox_recover.c).
 */
static int forks_join(struct api_call *call, json_t *list, const json_t *ids,
	const struct telling *told, struct err *err)
{
	struct server *srv = call->srv;
	struct catalogue *c = srv->catalogue;
	json_t *was, *doc;
	const char *id;
	int rc;

	(void)fault("sandbox.forks.made");
	rc = catalogue_begin(c, false, err);
	if (rc < 0)
		return rc;
	was = json_object();
	rc = forks_save(srv, ids, told, was, err);
	if (rc == 0)
		rc = remember(call, list, err);
	if (rc == 0)
		rc = catalogue_commit(c, err);
	else
		catalogue_abort(c);
	if (rc < 0) {
		json_object_foreach (was, id, doc)
			sandbox_take_back(sandbox_by_id(srv, id), doc);
	}
	json_decref(was);
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

/* @list: the sandboxes that were made, @ids: theirs; both to be filled. @s is held. */
static int fork_all(struct api_call *call, struct snapshot *s, json_t *list, json_t *ids,
	const struct telling *told, struct err *err)
{
	json_int_t count = count_of(call->body);
	bool start = !json_is_false(json_object_get(call->body, "start"));
	json_t *asked = json_object_get(call->body, "live");
	bool live = json_is_true(asked) ||
		    (asked == NULL && (snapshot_has_processes(s) ||
					      (start && snapshot_has_lost_processes(s))));
	bool joined = count > 1 || call->key != NULL;
	int rc = 0;

	if (live && snapshot_recall(call->srv, s, err) == NULL)
		rc = -EIO;
	for (json_int_t n = 0; n < count && rc == 0; n++)
		rc = fork_one(call->srv, s, fork_request(s, call->body, n), start, live,
			json_is_true(json_object_get(call->body, "keep_identity")),
			joined ? NULL : told, list, ids, err);
	if (rc == 0 && joined)
		rc = forks_join(call, list, ids, told, err);
	(void)fault("sandbox.fork.committed");
	if (rc < 0)
		fork_undo(call->srv, list);
	return rc;
}

static int fork_reply(struct api_call *call, struct snapshot *s, struct err *err)
{
	json_t *list = json_array(), *ids = json_array();
	const struct sandbox *source = snapshot_source(call->srv, s);
	cleanup_free char *id = source != NULL ? str_dup(source->id) : NULL;
	const struct telling forked = { .type = EVENT_SANDBOX_FORKED,
		.sandbox = id,
		.epoch = source != NULL ? sandbox_epoch(source) : 0,
		.data = json_pack("{s:s,s:o}", "snapshot", s->id, "children", ids) };
	int rc = fork_all(call, s, list, ids, &forked, err);

	if (rc < 0) {
		json_decref(forked.data);
		json_decref(list);
		return rc;
	}
	(void)server_event(
		call->srv, snapshot_source(call->srv, s), forked.type, NULL, forked.data);
	rc = api_reply(call, 201, answer_of(list));
	json_decref(list);
	return rc;
}

int api_snapshot_fork(struct api_call *call, struct err *err)
{
	struct snapshot *s;
	int rc = check_names(call, err);

	if (rc < 0)
		return rc;
	step_await(call->srv, call->segments[0]);
	s = snapshot_find(call->srv, call->segments[0], err);
	if (s == NULL)
		return -ENOENT;
	if (str_eq(json_string_value(json_object_get(s->doc, "state")), "corrupt"))
		return err_raise(
			err, ERR_CORRUPT, "snapshot '%s' failed its check", snapshot_called(s));
	snapshot_hold(s);
	rc = fork_reply(call, s, err);
	snapshot_release(call->srv, s);
	return rc;
}

/* A running or suspended sandbox is forked with its processes, unless it is said otherwise or the fork is not to run. */
static bool wants_processes(const struct sandbox *sb, const json_t *body)
{
	const json_t *live = json_object_get(body, "live");

	if (live != NULL)
		return json_is_true(live);
	return snapshot_takes_processes(sb) && !json_is_false(json_object_get(body, "start"));
}

int api_sandbox_fork(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct snapshot *s = NULL;
	int rc;

	if (sb == NULL)
		return -ENOENT;
	rc = check_names(call, err);
	if (rc == 0 && sb->state == SANDBOX_RUNNING && wants_processes(sb, call->body))
		snapshots_make_room(call->srv);
	if (rc == 0)
		rc = sandbox_lock_beside(sb, err);
	if (rc == 0) {
		s = snapshot_take(sb,
			&(struct snapshot_wish){
				.live = wants_processes(sb, call->body), .for_fork = true },
			err);
		sandbox_unlock(sb);
		rc = -EIO;
	}
	if (s != NULL) {
		snapshot_hold(s);
		/* without a name nobody asks for its processes again */
		snapshot_forget_processes(call->srv, s);
		rc = fork_reply(call, s, err);
		snapshot_release(call->srv, s);
	}
	sandbox_unref(sb);
	return rc;
}
