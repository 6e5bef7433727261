/* SPDX-License-Identifier: Apache-2.0 */
#include "io/framelink.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/nesting.h"

#define LEVELS_MAX 64 /* of JSON in a frame: who reads it may be on the stack of a fiber */

int err_from_json(const json_t *error, struct err *err)
{
	const char *code = json_string_value(json_object_get(error, "code"));
	const char *message = json_string_value(json_object_get(error, "message"));
	const char *hint = json_string_value(json_object_get(error, "hint"));
	const char *member = json_string_value(json_object_get(error, "member"));
	json_int_t sys = json_integer_value(json_object_get(error, "errno"));
	int rc = err_raise(err, err_code_parse(code != NULL ? code : "internal"), "%s",
		message != NULL ? message : "no reason given");

	if (err != NULL)
		err->sys = sys > 0 && sys < 4096 ? (int)sys : 0;
	if (hint != NULL && hint[0] != '\0')
		(void)err_hint(err, rc, "%s", hint);
	if (member != NULL && member[0] != '\0')
		(void)err_member(err, rc, "%s", member);
	return rc;
}

json_t *err_to_json(const struct err *err)
{
	json_t *out = json_pack("{s:s,s:s%,s:s%}", "code", err_code_name(err->code), "message",
		err->msg, strnlen(err->msg, sizeof(err->msg)), "hint", err->hint,
		strnlen(err->hint, sizeof(err->hint)));

	if (out == NULL) /* a message cut in the middle of a character, or bytes of a payload */
		out = json_pack("{s:s,s:s,s:s}", "code", err_code_name(err->code), "message",
			err_code_meaning(err->code), "hint", "");
	if (err->member[0] != '\0')
		(void)json_object_set_new(out, "member", json_string(err->member));
	if (err->sys != 0)
		(void)json_object_set_new(out, "errno", json_integer(err->sys));
	return out;
}

static void call_finish(struct framecall *call, int rc)
{
	list_remove(&call->node);
	call->rc = rc;
	call->done = true;
	waiters_wake(&call->waiters);
}

static void die(struct framelink *l)
{
	if (l->dead)
		return;
	l->dead = true;
	while (!list_empty(&l->calls)) {
		struct framecall *call = list_entry(l->calls.next, struct framecall, node);

		call_finish(
			call, err_raise(&call->err, ERR_UNAVAILABLE, "the %s has ended", l->peer));
	}
	if (l->on_dead != NULL)
		l->on_dead(l);
	waiters_wake(&l->progress);
}

static struct framecall *call_find(struct framelink *l, uint64_t id)
{
	list_for_each (&l->calls, node, next) {
		struct framecall *call = list_entry(node, struct framecall, node);

		if (call->id == id)
			return call;
	}
	return NULL;
}

json_t *frame_json(const struct frame *f)
{
	return nesting_exceeds(f->payload, f->size, LEVELS_MAX)
		       ? NULL
		       : json_loadb(f->payload, f->size, JSON_REJECT_DUPLICATES, NULL);
}

static void take_reply(struct framelink *l, const struct frame *f)
{
	json_t *reply = frame_json(f);
	json_int_t id = json_integer_value(json_object_get(reply, "id"));
	struct framecall *call = id > 0 ? call_find(l, (uint64_t)id) : NULL;
	json_t *error = json_object_get(reply, "error");

	if (call != NULL && json_is_object(error)) {
		call_finish(call, err_from_json(error, &call->err));
	} else if (call != NULL) {
		call->ok = json_incref(json_object_get(reply, "ok"));
		call_finish(call, 0);
	} else if (id == 0) {
		l->on_frame(l, f); /* the hello */
	}
	json_decref(reply);
}

static void on_data(struct stream *s)
{
	struct framelink *l = container_of(s, struct framelink, s);
	size_t used = 0;

	while (!l->dead && !s->closing) {
		struct frame f;
		ssize_t n = frame_decode(s->in.p + used, s->in.n - used, &f);

		if (n < 0) {
			log_warn("frames", "%s sent a malformed frame: %s", l->peer,
				strerrordesc_np((int)-n));
			die(l);
			return;
		}
		if (n == 0)
			break;
		used += (size_t)n;
		if (f.type == FRAME_REPLY)
			take_reply(l, &f);
		else
			l->on_frame(l, &f);
	}
	if (!s->closing)
		stream_consume(s, used);
	if (s->eof)
		die(l);
	else
		waiters_wake(&l->progress);
}

void framelink_await(struct framelink *l, bool (*it)(const struct frame *f))
{
	struct stream *s = &l->s;
	size_t seen = 0;
	bool found = false;

	while (!found) {
		struct frame f;
		ssize_t n = frame_decode(s->in.p + seen, s->in.n - seen, &f);

		/* one that is malformed ends the link when it is delivered */
		if (n < 0 || (n == 0 && stream_fill_now(s) <= 0))
			return;
		seen += (size_t)n;
		found = n > 0 && it(&f);
	}
}

void framelink_deliver(struct framelink *l)
{
	on_data(&l->s);
}

int framelink_open(struct framelink *l, uv_loop_t *loop, int fd)
{
	list_init(&l->calls);
	waiters_init(&l->progress);
	l->next_id = 1;
	l->s.on_data = on_data;
	return stream_open(&l->s, loop, fd);
}

void framelink_send(
	struct framelink *l, enum frame_type type, uint16_t channel, const void *p, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);

	frame_encode(&out, type, channel, p, n);
	stream_write(&l->s, out.p, out.n);
}

static void send_request(struct framelink *l, uint64_t id, const char *text, size_t n)
{
	char head[64];

	if (n <= FRAME_PAYLOAD_MAX) {
		framelink_send(l, FRAME_REQUEST, 0, text, n);
		return;
	}
	(void)snprintf(head, sizeof(head), "{\"id\":%lu,\"pieces\":%zu}", id,
		(n + FRAME_PAYLOAD_MAX - 1) / FRAME_PAYLOAD_MAX);
	framelink_send(l, FRAME_REQUEST, 0, head, strlen(head));
	while (n > 0) {
		size_t now = n < FRAME_PAYLOAD_MAX ? n : FRAME_PAYLOAD_MAX;

		framelink_send(l, FRAME_STDIN, 0, text, now);
		text += now;
		n -= now;
	}
}

void framelink_call_begin(struct framelink *l, struct framecall *call, json_t *request)
{
	cleanup_free char *text = NULL;

	*call = (struct framecall){ .id = l->next_id++ };
	list_init(&call->node);
	waiters_init(&call->waiters);
	(void)json_object_set_new(request, "id", json_integer((json_int_t)call->id));
	text = json_dumps(request, JSON_COMPACT);
	json_decref(request);
	if (l->dead) {
		call->rc = err_raise(&call->err, ERR_UNAVAILABLE, "the %s has ended", l->peer);
		call->done = true;
	} else if (text == NULL || (strlen(text) > FRAME_PAYLOAD_MAX && !l->pieces)) {
		call->rc = err_raise(
			&call->err, ERR_TOO_LARGE, "the request to the %s is too large", l->peer);
		call->done = true;
	} else {
		list_append(&l->calls, &call->node);
		send_request(l, call->id, text, strlen(text));
	}
}

bool framelink_call_answered(struct framecall *call, uint64_t deadline_ns)
{
	while (!call->done && waiters_wait(&call->waiters, deadline_ns) == 0)
		;
	return call->done;
}

int framelink_call_end(struct framelink *l, struct framecall *call, uint64_t deadline_ns,
	json_t **ret_ok, struct err *err)
{
	/* when it is done @l may be gone */
	if (!framelink_call_answered(call, deadline_ns)) {
		list_remove(&call->node);
		return err_raise(err, ERR_TIMEOUT, "the %s did not answer in time", l->peer);
	}
	if (call->rc < 0) {
		if (err != NULL)
			*err = call->err;
		return call->rc;
	}
	if (ret_ok != NULL)
		*ret_ok = TAKE_PTR(call->ok);
	json_decref(call->ok);
	return 0;
}

int framelink_call(struct framelink *l, json_t *request, uint64_t deadline_ns, json_t **ret_ok,
	struct err *err)
{
	struct framecall call;

	framelink_call_begin(l, &call, request);
	return framelink_call_end(l, &call, deadline_ns, ret_ok, err);
}

void framelink_abort(struct framelink *l)
{
	die(l);
}

void framelink_close(struct framelink *l, void (*closed)(struct stream *s))
{
	die(l);
	stream_close(&l->s, closed);
}
