/* SPDX-License-Identifier: Apache-2.0 */
#include "api/exec_past.h"
#include "api/idle.h"
#include "api/keys.h"
#include "api/server.h"
#include "api/steps.h"
#include "api_handlers.h"
#include "base/str.h"

int exec_find_awake(struct api_call *call, struct sandbox **sb, struct exec **e, struct err *err)
{
	int rc = exec_find_both(call, sb, e, err);

	if (rc < 0)
		return rc;
	rc = sandbox_wake(*sb, err);
	if (rc == 0)
		return 0;
	exec_unref(*e);
	sandbox_unref(*sb);
	return rc;
}

void exec_let_rest(struct sandbox *sb, struct exec *e)
{
	exec_unref(e);
	sandbox_rest(sb);
	sandbox_unref(sb);
}

int exec_find_both(struct api_call *call, struct sandbox **sb, struct exec **e, struct err *err)
{
	*e = NULL;
	*sb = sandbox_find(call->srv, call->segments[0], err);
	if (*sb == NULL)
		return -ENOENT;
	*e = exec_find(*sb, call->segments[1], err);
	if (*e != NULL)
		return 0;
	sandbox_unref(*sb);
	return -ENOENT;
}

int api_exec_list(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *list = NULL;
	bool more = false;
	int rc;

	if (sb == NULL)
		return -ENOENT;
	rc = execs_page(call, sb, &list, &more, err);
	sandbox_unref(sb);
	if (rc == 0)
		return api_reply(
			call, 200, json_pack("{s:o,s:b}", "execs", list, "more", (int)more));
	json_decref(list);
	return rc;
}

static int refuse_state(const struct sandbox *sb, struct err *err)
{
	int rc = err_raise(err, ERR_STATE, "sandbox '%s' is %s: no command can run in it", sb->name,
		sandbox_state_name(sb->state));

	if (sb->state == SANDBOX_PAUSED)
		return err_hint(err, rc, "thaw it first: cay resume %s", sb->name);
	if (sb->state == SANDBOX_SUSPENDED)
		return err_hint(err, rc, "resume it first: cay resume %s", sb->name);
	if (sb->state == SANDBOX_STOPPED)
		return err_hint(err, rc, "start it first: cay start %s", sb->name);
	return rc;
}

/* Until the exec has ended, the caller is gone, or @ns are over. Return: has it ended? */
static bool wait_for_end(const struct api_call *call, struct exec *e, uint64_t ns)
{
	uint64_t deadline = clock_now_ns() + ns, now;

	while (!e->ended && !call->srv->stopping && (now = clock_now_ns()) < deadline &&
		!stream_has_left(http_stream(call->conn)))
		(void)waiters_wait(
			&e->changed, deadline < now + NS_PER_S ? deadline : now + NS_PER_S);
	return e->ended;
}

static int exec_make(struct api_call *call, struct sandbox *sb, struct exec **ret, struct err *err)
{
	struct exec *e;
	int rc;

	steps_wait(sb);
	if (sb->state != SANDBOX_RUNNING || sb->keeper == NULL)
		return refuse_state(sb, err);
	e = exec_new(sb, call->body, err);
	if (e == NULL)
		return -EINVAL;
	if (call->key != NULL) {
		(void)json_object_set_new(e->doc, "key", json_string(call->key));
		(void)json_object_set_new(e->doc, "key_hash", json_string(call->key_hash));
	}
	rc = exec_begin(e, call->body, err);
	/* its keeper has ended: who ends the sandbox, or sees that it is lost, says what became of it (execs_lost()) */
	if (rc < 0 && err->code == ERR_UNAVAILABLE && wait_for_end(call, e, CALL_NS))
		rc = 0;
	if (rc == 0)
		*ret = e;
	else
		exec_unref(e);
	return rc;
}

/* A reference, or NULL. */
static struct exec *exec_by_key(struct sandbox *sb, const char *wanted, struct err *err, int *rc)
{
	struct exec *past;

	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);
		const char *key = json_string_value(json_object_get(e->doc, "key"));

		if (key != NULL && str_eq(key, wanted) && keys_counts(e->doc))
			return exec_ref(e);
	}
	*rc = exec_past_by_key(sb, wanted, &past, err);
	return past;
}

/*
 * Whoever asked first has gone before its end, answer_made(): the key stands for it for a day from then on, however long ago it was made. A reference, or NULL: nobody did, or
 * with @rc set.
 */
static struct exec *exec_noted(
	const struct api_call *call, struct sandbox *sb, struct err *err, int *rc)
{
	const char *id = json_string_value(json_object_get(call->made, "exec"));
	struct exec *e = id != NULL ? exec_by_id(sb, id) : NULL, *past = NULL;

	if (id == NULL || e != NULL)
		return e != NULL ? exec_ref(e) : NULL;
	*rc = exec_past_find(sb, id, &past, err);
	if (*rc >= 0 && past != NULL && str_eq(past->id, id)) {
		*rc = 0;
		return past;
	}
	exec_unref(past);
	if (*rc >= 0)
		*rc = err_hint(err,
			err_raise(err, ERR_IDEMPOTENCY,
				"the idempotency key was used for exec '%s', which sandbox '%s' does not have",
				id, sb->name),
			"use another key");
	return NULL;
}

/* As for sandboxes: the exec itself remembers its key. */
static struct exec *made_before(struct api_call *call, struct sandbox *sb, struct err *err, int *rc)
{
	struct exec *e = exec_noted(call, sb, err, rc);

	if (e == NULL && *rc == 0 && call->key != NULL)
		e = exec_by_key(sb, call->key, err, rc);
	if (e != NULL &&
		!str_eq(json_string_value(json_object_get(e->doc, "key_hash")), call->key_hash))
		*rc = err_raise(
			err, ERR_IDEMPOTENCY, "the idempotency key was used with another request");
	return e;
}

/* Until the exec has ended, the caller is gone, or parameter wait_ms is over. Return: 0, or the error of one that was refused meanwhile. */
static int await_end(struct api_call *call, struct exec *e, struct err *err)
{
	(void)wait_for_end(call, e, api_number(call, "wait_ms") * NS_PER_MS);
	return exec_refused(e, err);
}

/*
 * Who has gone before the end that he waited for hears nothing of this, and waits for it again when he comes back with the same key: that the command was running then is no answer
 * to keep. Of one that may be refused still its own row says enough: then the key stands for nothing.
 */
static int answer_made(struct api_call *call, const struct exec *e, struct err *err)
{
	if (!e->ended && stream_has_left(http_stream(call->conn)))
		return e->started ? keys_note(call, json_pack("{s:s}", "exec", e->id), err) : 0;
	return api_reply(call, 201, exec_object(e));
}

int api_exec_create(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct exec *e;
	int rc = 0;

	if (sb == NULL)
		return -ENOENT;
	rc = sandbox_wake(sb, err);
	if (rc < 0) {
		sandbox_unref(sb);
		return rc;
	}
	e = made_before(call, sb, err, &rc);
	if (rc == 0 && e == NULL)
		rc = exec_make(call, sb, &e, err);
	if (rc == 0)
		rc = await_end(call, e, err);
	if (rc == 0)
		rc = answer_made(call, e, err);
	exec_unref(e);
	sandbox_rest(sb);
	sandbox_unref(sb);
	return rc;
}

int api_exec_get(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	int rc = exec_find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	/* whoever waits for its end needs it to go on */
	if (api_number(call, "wait_ms") > 0 && !e->ended) {
		rc = sandbox_wake(sb, err);
		if (rc == 0) {
			rc = await_end(call, e, err);
			sandbox_rest(sb);
		}
	}
	if (rc == 0)
		rc = api_reply(call, 200, exec_object(e));
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}

int exec_not_running(const struct exec *e, struct err *err)
{
	const struct sandbox *sb = e->sandbox;
	int rc;

	if (!exec_is_away(e))
		return err_raise(err, ERR_STATE, "exec '%s' has ended", e->id);
	rc = err_raise(err, ERR_STATE, "sandbox '%s' is %s: nothing reaches exec '%s' meanwhile",
		sb->name, sandbox_state_name(sb->state), e->id);
	return sb->state != SANDBOX_SUSPENDED
		       ? rc
		       : err_hint(err, rc, "resume it first: cay resume %s", sb->name);
}

static int signal_send(struct sandbox *sb, struct exec *e, const json_t *body, struct err *err)
{
	json_int_t number = json_integer_value(json_object_get(body, "signal"));
	bool tree = json_is_true(json_object_get(body, "tree"));
	json_t *request;

	if (e->ended || sb->keeper == NULL)
		return exec_not_running(e, err);
	if (tree && number != 9)
		return err_raise(err, ERR_INVALID, "only signal 9 goes to the whole tree");
	(void)server_event(sb->srv, sb, EVENT_EXEC_SIGNALLED, e->id,
		json_pack("{s:I,s:b}", "signal", number, "tree", (int)tree));
	request = tree ? json_pack("{s:s,s:i}", "verb", "kill", "channel", e->channel)
		       : json_pack("{s:s,s:i,s:I}", "verb", "signal", "channel", e->channel,
				 "signal", number);
	return framelink_call(&sb->keeper->link, request, clock_now_ns() + CALL_NS, NULL, err);
}

int api_exec_signal(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	int rc = exec_find_awake(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	steps_wait(sb);
	rc = signal_send(sb, e, call->body, err);
	if (rc == 0)
		rc = api_reply(call, 204, NULL);
	exec_let_rest(sb, e);
	return rc;
}

int api_exec_resize(struct api_call *call, struct err *err)
{
	unsigned char size[4];
	struct sandbox *sb;
	struct exec *e;
	int rc = exec_find_awake(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	frame_put_u16(size, (uint16_t)json_integer_value(json_object_get(call->body, "rows")));
	frame_put_u16(
		size + 2, (uint16_t)json_integer_value(json_object_get(call->body, "columns")));
	if (e->ended || sb->keeper == NULL) {
		rc = exec_not_running(e, err);
	} else if (!json_is_true(json_object_get(e->doc, "tty"))) {
		rc = err_raise(err, ERR_STATE, "exec '%s' was started without a terminal", e->id);
	} else {
		framelink_send(&sb->keeper->link, FRAME_RESIZE, e->channel, size, sizeof(size));
		rc = api_reply(call, 204, NULL);
	}
	exec_let_rest(sb, e);
	return rc;
}
