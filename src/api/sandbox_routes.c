/* SPDX-License-Identifier: Apache-2.0 */
#include "api/idle.h"
#include "api/keys.h"
#include "api/suspend.h"
#include "api/telling.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

/* *@sb: NULL when it is gone. */
static int await_made(struct sandbox **sb, struct err *err)
{
	struct sandbox *one = sandbox_ref(*sb);
	int rc = sandbox_await(one, err);

	if (one->gone) {
		*sb = NULL;
		rc = 0;
	}
	sandbox_unref(one);
	return rc;
}

/*
 * The server may have died between making it and remembering the answer: the sandbox itself remembers its key. The answer is kept for a day, so it is not given before it is known what
 * has become of it; what is gone by then was never answered for, and is made.
 */
static struct sandbox *made_before(struct api_call *call, struct err *err, int *rc)
{
	struct sandbox *sb = call->key != NULL ? sandbox_by_key(call->srv, call->key) : NULL;

	if (sb != NULL &&
		!str_eq(json_string_value(json_object_get(sb->doc, "key_hash")), call->key_hash))
		*rc = err_raise(
			err, ERR_IDEMPOTENCY, "the idempotency key was used with another request");
	else if (sb != NULL)
		*rc = await_made(&sb, err);
	return sb;
}

int api_sandbox_create(struct api_call *call, struct err *err)
{
	const struct sandbox_origin origin = { .key = call->key, .key_hash = call->key_hash };
	bool start = !json_is_false(json_object_get(call->body, "start"));
	struct sandbox *sb;
	int rc = 0;

	sb = made_before(call, err, &rc);
	if (sb != NULL)
		return rc < 0 ? rc : api_reply(call, 201, sandbox_object(sb));
	sb = sandbox_new(call->srv, call->body, &origin, start, err);
	if (sb == NULL)
		return -EIO;
	if (start)
		rc = sandbox_start(sb, NULL, true, err);
	else
		rc = sandbox_leave(sb, err);
	sandbox_unlock(sb);
	if (rc == 0)
		rc = api_reply(call, 201, sandbox_object(sb));
	sandbox_unref(sb);
	return rc;
}

static bool label_matches(const struct sandbox *sb, const char *label)
{
	const char *equals = strchr(label, '=');
	json_t *labels = json_object_get(sb->doc, "labels");
	const char *value;
	char key[513];

	if (equals == NULL)
		return json_object_get(labels, label) != NULL;
	(void)snprintf(key, sizeof(key), "%.*s", (int)(equals - label), label);
	value = json_string_value(json_object_get(labels, key));
	return value != NULL && str_eq(value, equals + 1);
}

/* With every label that was asked for. */
static bool labels_match(const struct sandbox *sb, const struct api_call *call)
{
	const char *label;
	size_t pos = 0;

	while ((label = api_next_text(call, "label", &pos)) != NULL) {
		if (!label_matches(sb, label))
			return false;
	}
	return true;
}

int api_sandbox_list(struct api_call *call, attr_unused struct err *err)
{
	const char *state = api_text(call, "state");
	json_t *list = json_array();

	list_for_each (&call->srv->sandboxes, node, next) {
		const struct sandbox *sb = list_entry(node, struct sandbox, node);

		/* who is on the way out is gone for those who do not ask for it */
		if ((state == NULL ? sb->state != SANDBOX_REMOVING
				   : str_eq(sandbox_state_name(sb->state), state)) &&
			labels_match(sb, call))
			(void)json_array_append_new(list, sandbox_object(sb));
	}
	return api_reply(call, 200, json_pack("{s:o}", "sandboxes", list));
}

/* What it means to the command of a run, whose lock the run's stream has. */
enum command { COMMAND_STAYS, COMMAND_ENDS, COMMAND_REFUSES };

/* @grace_ms: for a command that ends. Return: 0; 1 when the sandbox has gone with its run; or negative. */
static int lock_for(struct sandbox *sb, enum command command, json_int_t grace_ms, struct err *err)
{
	bool ended = command == COMMAND_ENDS && run_interrupt(sb, (uint64_t)grace_ms);
	int rc = command == COMMAND_REFUSES ? sandbox_not_lent(sb, err) : 0;

	if (rc < 0)
		return rc;
	rc = command == COMMAND_STAYS ? sandbox_lock_beside(sb, err) : sandbox_lock(sb, err);
	return rc < 0 && ended && sb->gone ? 1 : rc;
}

/* Find, lock, do, answer with the object. */
static int locked(struct api_call *call,
	int (*fn)(struct api_call *call, struct sandbox *sb, struct err *err), enum command command,
	struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	int rc;

	if (sb == NULL)
		return -ENOENT;
	rc = lock_for(
		sb, command, json_integer_value(json_object_get(call->body, "grace_ms")), err);
	if (rc > 0) {
		rc = 0;
	} else if (rc == 0) {
		rc = fn(call, sb, err);
		sandbox_unlock(sb);
	}
	if (rc == 0)
		rc = sb->gone ? api_reply(call, 204, NULL)
			      : api_reply(call, 200, sandbox_object(sb));
	sandbox_unref(sb);
	return rc;
}

int api_sandbox_get(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_look_up(call->srv, call->segments[0], err);
	json_t *o;

	if (sb == NULL)
		return -ENOENT;
	o = sandbox_object(sb);
	sandbox_unref(sb);
	return api_reply(call, 200, o);
}

static int wrong_state(const struct sandbox *sb, const char *what, struct err *err)
{
	return err_raise(err, ERR_STATE, "sandbox '%s' is %s: it cannot be %s", sb->name,
		sandbox_state_name(sb->state), what);
}

static int do_remove(struct api_call *call, struct sandbox *sb, struct err *err)
{
	/* whether its processes are in memory or on disk may be the idle policy's doing */
	if ((sb->keeper != NULL || sb->state == SANDBOX_SUSPENDED) && !api_flag(call, "force")) {
		(void)wrong_state(sb, "removed", err);
		return err_hint(err, -EBUSY, "stop it first, or use force (cay rm -f)");
	}
	return sandbox_remove(sb, err);
}

int api_sandbox_remove(struct api_call *call, struct err *err)
{
	return locked(
		call, do_remove, api_flag(call, "force") ? COMMAND_ENDS : COMMAND_REFUSES, err);
}

static int do_stop(struct api_call *call, struct sandbox *sb, struct err *err)
{
	json_int_t grace = json_integer_value(json_object_get(call->body, "grace_ms"));
	int rc;

	if (sb->state == SANDBOX_SUSPENDED)
		rc = sandbox_forget_processes(sb, "the sandbox was stopped", err);
	else if (sb->keeper != NULL)
		rc = sandbox_halt(sb, "asked for", (uint64_t)grace, err);
	else
		rc = sb->state == SANDBOX_STOPPED ? 0 : wrong_state(sb, "stopped", err);
	return rc == 0 ? sandbox_expire(sb, err) : rc;
}

int api_sandbox_stop(struct api_call *call, struct err *err)
{
	return locked(call, do_stop, COMMAND_ENDS, err);
}

static int do_start(attr_unused struct api_call *call, struct sandbox *sb, struct err *err)
{
	if (sb->state == SANDBOX_SUSPENDED)
		return err_hint(
			err, wrong_state(sb, "started", err), "resume it: cay resume %s", sb->name);
	if (sb->keeper != NULL)
		return wrong_state(sb, "started", err);
	return sandbox_start(sb, NULL, false, err);
}

int api_sandbox_start(struct api_call *call, struct err *err)
{
	return locked(call, do_start, COMMAND_REFUSES, err);
}

/* From the next step on. */
static void set_checkpoint(struct sandbox *sb, json_t *when)
{
	if (when == NULL || json_equal(when, json_object_get(sb->doc, "checkpoint")))
		return;
	(void)json_object_set(sb->doc, "checkpoint", when);
	(void)json_object_set(sb->doc, "checkpointed", json_object_get(sb->doc, "steps"));
}

static int do_set(struct api_call *call, struct sandbox *sb, struct err *err)
{
	json_t *idle = json_object_get(call->body, "idle_ms"), *was = json_copy(sb->doc), *data;
	int rc;

	set_checkpoint(sb, json_object_get(call->body, "checkpoint"));
	if (idle != NULL)
		(void)json_object_set(sb->doc, "idle_ms", idle);
	data = json_pack("{s:O?,s:O?}", "checkpoint", json_object_get(sb->doc, "checkpoint"),
		"idle_ms", json_object_get(sb->doc, "idle_ms"));
	sandbox_will_tell(sb, EVENT_SANDBOX_SET, data);
	rc = sandbox_save(sb, false, err);
	(void)telling_done(sb->doc);
	(void)fault("sandbox.set.committed");
	if (rc == 0)
		(void)server_event(call->srv, sb, EVENT_SANDBOX_SET, NULL, json_incref(data));
	else
		sandbox_take_back(sb, was);
	sandbox_stir(sb);
	json_decref(data);
	json_decref(was);
	return rc;
}

int api_sandbox_set(struct api_call *call, struct err *err)
{
	return locked(call, do_set, COMMAND_STAYS, err);
}

/* @what: is asked for, as the user says it. */
static int keeper_verb(struct sandbox *sb, const char *verb, const char *what, struct err *err)
{
	int rc = framelink_call(&sb->keeper->link, json_pack("{s:s}", "verb", verb),
		clock_now_ns() + CALL_NS, NULL, err);

	if (rc < 0)
		err_context(err, "%s sandbox '%s'", what, sb->name);
	return rc;
}

/* The keeper has done it, and tells it to the next server too: what the catalogue says does not undo it. */
static void enter_paused_or_not(struct sandbox *sb, enum sandbox_state to, enum event_type type)
{
	struct err err;
	int rc = fault("sandbox.pause.before_commit");

	if (rc < 0)
		(void)err_raise_sys(&err, rc, "write sandbox '%s'", sb->name);
	sandbox_enter(sb, to, type, NULL);
	if (rc == 0)
		rc = sandbox_save(sb, false, &err);
	if (rc < 0)
		log_error("sandbox", "it is %s, which its next change writes: %s",
			to == SANDBOX_PAUSED ? "paused" : "running", err.msg);
}

static int do_pause(attr_unused struct api_call *call, struct sandbox *sb, struct err *err)
{
	int rc;

	if (sb->state != SANDBOX_RUNNING)
		return wrong_state(sb, "paused", err);
	rc = keeper_verb(sb, "freeze", "pause", err);
	if (rc == 0)
		enter_paused_or_not(sb, SANDBOX_PAUSED, EVENT_SANDBOX_PAUSED);
	return rc;
}

int api_sandbox_pause(struct api_call *call, struct err *err)
{
	return locked(call, do_pause, COMMAND_REFUSES, err);
}

/* @call is about to bring @sb into another state: whoever asks again with its key, and finds it there, has what was asked for. */
static int note_move(struct api_call *call, const struct sandbox *sb, struct err *err)
{
	return keys_note(call, json_pack("{s:s}", "sandbox", sb->id), err);
}

static int do_suspend(struct api_call *call, struct sandbox *sb, struct err *err)
{
	bool begun = keys_begun(call, sb) != NULL;
	int rc = begun && sb->state == SANDBOX_SUSPENDED ? sandbox_settle_suspend(sb, err) : 0;

	if (rc < 0 || (begun && sb->state == SANDBOX_SUSPENDED))
		return rc;
	if (sb->state == SANDBOX_RUNNING)
		rc = note_move(call, sb, err);
	return rc == 0 ? sandbox_suspend(sb, "asked for", err) : rc;
}

int api_sandbox_suspend(struct api_call *call, struct err *err)
{
	return locked(call, do_suspend, COMMAND_REFUSES, err);
}

static int resume_suspended(struct sandbox *sb, bool files_only, struct err *err)
{
	int rc;

	if (!files_only)
		return sandbox_resume(sb, err);
	rc = sandbox_forget_processes(sb, "it was resumed on its files only", err);
	return rc < 0 ? rc : sandbox_start(sb, NULL, false, err);
}

static int do_resume(struct api_call *call, struct sandbox *sb, struct err *err)
{
	bool files_only = json_is_true(json_object_get(call->body, "files_only"));
	int rc;

	if (keys_begun(call, sb) != NULL && sb->state == SANDBOX_RUNNING)
		return 0;
	if (keys_begun(call, sb) != NULL && files_only && sb->state == SANDBOX_STOPPED)
		return sandbox_start(sb, NULL, false, err); /* its processes had been given up */
	if (sb->state != SANDBOX_SUSPENDED && sb->state != SANDBOX_PAUSED)
		return wrong_state(sb, "resumed", err);
	if (sb->state == SANDBOX_PAUSED && files_only)
		return err_hint(err,
			err_raise(err, ERR_STATE,
				"sandbox '%s' is paused: its processes are there, and would go on",
				sb->name),
			"let them go on (cay resume %s), or end them (cay stop %s)", sb->name,
			sb->name);
	rc = note_move(call, sb, err);
	if (rc < 0)
		return rc;
	if (sb->state == SANDBOX_SUSPENDED)
		return resume_suspended(sb, files_only, err);
	rc = keeper_verb(sb, "thaw", "resume", err);
	if (rc == 0)
		enter_paused_or_not(sb, SANDBOX_RUNNING, EVENT_SANDBOX_RESUMED);
	return rc;
}

int api_sandbox_resume(struct api_call *call, struct err *err)
{
	return locked(call, do_resume, COMMAND_REFUSES, err);
}

/* Bytes and inodes come from the store; without an answer they are left out. */
static void add_disk(struct sandbox *sb, json_t *usage)
{
	json_t *ok = NULL, *one;

	if (job_run(sb->srv, json_pack("{s:s,s:[s]}", "verb", "usage", "sandboxes", sb->id), NULL,
		    NULL, &ok, NULL) < 0)
		return;
	one = json_object_get(json_object_get(ok, "usage"), sb->id);
	if (json_is_object(one)) {
		(void)json_object_set(usage, "disk_bytes", json_object_get(one, "bytes"));
		(void)json_object_set(usage, "inodes", json_object_get(one, "inodes"));
	}
	json_decref(ok);
}

int api_sandbox_usage(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *usage;

	if (sb == NULL)
		return -ENOENT;
	usage = sandbox_usage_now(sb, err);
	if (usage != NULL)
		add_disk(sb, usage);
	sandbox_unref(sb);
	return usage != NULL ? api_reply(call, 200, usage) : -EIO;
}
