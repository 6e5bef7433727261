/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/streams.c - upgraded connections: POST /v1/run and GET …/attach.
 *
 * A pump joins a client's stream with a keeper's connection: frames of the exec's channel go to the client as channel 0, the client's STDIN, RESIZE, SIGNAL and WINDOW
 * go to the keeper. Flow control is the keeper's and the client's own (WINDOW in both directions); what is queued here is bounded by the window that the attach asks for,
 * and a client that ignores the windows of its STDIN is not read until the command has taken what it sent: the keeper would drop a connection that overruns it.
 */
#include "api/sandbox_parts.h"
#include "api_handlers.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/str.h"

#define WINDOW_BYTES (1U << 20)
#define KILL_NS      (10 * NS_PER_S)

struct pump {
	struct exec_sink sink; /* run: frames come over the keeper's main connection */
	struct framelink link; /* attach: over one of our own */
	struct stream *client;
	struct framelink *keeper; /* where the client's frames go */
	uint16_t channel;
	size_t input_open; /* bytes of STDIN that the command has not taken yet */
	bool status_sent;
	bool cork_status; /* run: the status waits for the summary, which comes at once in most cases */
	bool broken;      /* the keeper's side is over */
	struct http_conn *conn;
};

static void send_frame(struct stream *s, enum frame_type type, const void *p, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);

	frame_encode(&out, type, 0, p, n);
	stream_write(s, out.p, out.n);
}

static void send_object(struct stream *s, enum frame_type type, json_t *object)
{
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);

	json_decref(object);
	send_frame(s, type, text, strlen(text));
}

static void send_error(struct stream *s, const struct err *err)
{
	send_object(s, FRAME_ERROR, err_to_json(err));
}

/* From the keeper to the client. */
static void pump_down(struct pump *p, const struct frame *f)
{
	if (f->type == FRAME_EVENT || f->type == FRAME_REPLY || p->status_sent)
		return;
	if (f->type == FRAME_STATUS && p->cork_status)
		stream_cork(p->client, true);
	send_frame(p->client, f->type, f->payload, f->size);
	if (f->type == FRAME_WINDOW && f->size == 4) {
		size_t taken = frame_get_u32(f->payload);

		p->input_open -= taken < p->input_open ? taken : p->input_open;
	}
	p->status_sent = f->type == FRAME_STATUS;
	if (f->type == FRAME_STATUS || f->type == FRAME_WINDOW)
		waiters_wake(&p->client->readable);
}

static void on_sink(struct exec_sink *sink, const struct frame *f)
{
	pump_down(container_of(sink, struct pump, sink), f);
}

static void on_sink_lost(struct exec_sink *sink)
{
	struct pump *p = container_of(sink, struct pump, sink);

	p->broken = true;
	waiters_wake(&p->client->readable);
}

static void on_link_frame(struct framelink *l, const struct frame *f)
{
	struct pump *p = container_of(l, struct pump, link);

	if (f->channel == p->channel)
		pump_down(p, f);
}

static void on_link_dead(struct framelink *l)
{
	struct pump *p = container_of(l, struct pump, link);

	p->broken = true;
	waiters_wake(&p->client->readable);
}

/* From the client to the keeper. Return: 0 or -EBADMSG. */
static int pump_up(struct pump *p)
{
	struct stream *s = p->client;
	size_t used = 0;
	int rc = 0;

	while (rc == 0) {
		struct frame f;
		ssize_t n = frame_decode(s->in.p + used, s->in.n - used, &f);

		if (n <= 0) {
			rc = n < 0 ? -EBADMSG : 0;
			break;
		}
		if (f.type == FRAME_STDIN && p->input_open >= WINDOW_BYTES)
			break;
		used += (size_t)n;
		p->input_open += f.type == FRAME_STDIN ? f.size : 0;
		if (f.type != FRAME_STDIN && f.type != FRAME_RESIZE && f.type != FRAME_SIGNAL &&
			f.type != FRAME_WINDOW)
			rc = -EBADMSG;
		else
			framelink_send(p->keeper, f.type, p->channel, f.payload, f.size);
	}
	stream_consume(s, used);
	return rc;
}

/* Run until the status was sent, or one side is gone. Return: 0 with the status, -EPIPE the client left, -EIO the keeper did. Waits. */
static int pump_run(struct pump *p)
{
	for (;;) {
		if (p->status_sent)
			return 0;
		if (p->broken)
			return -EIO;
		if (p->client->eof || p->client->error != 0 || pump_up(p) < 0)
			return -EPIPE;
		if (p->keeper->s.queued > WINDOW_BYTES * 4)
			(void)!stream_drain(&p->keeper->s, WINDOW_BYTES, clock_now_ns() + CALL_NS);
		if (!p->status_sent && !p->broken && !p->client->eof)
			(void)waiters_wait(&p->client->readable, 0);
	}
}

/* --- attach --- */

static void link_closed(struct stream *s)
{
	free(container_of(container_of(s, struct framelink, s), struct pump, link));
}

static json_t *attach_request(const struct exec *e, uint64_t from)
{
	return json_pack("{s:s,s:i,s:I,s:i}", "verb", "attach", "channel", e->channel, "from",
		(json_int_t)from, "window", (int)WINDOW_BYTES);
}

static int on_saved(void *ctx, enum frame_type type, const void *payload, size_t n)
{
	struct stream *client = ctx;

	send_frame(client, type, payload, n);
	return stream_drain(client, WINDOW_BYTES, clock_now_ns() + CALL_NS);
}

static int attach_live(
	struct stream *client, struct sandbox *sb, struct exec *e, uint64_t from, struct err *err)
{
	int fd = keeper_connect(sb->srv, sb->id), rc;
	struct pump *p;

	if (fd < 0)
		return err_raise_sys(err, fd, "connect to the keeper of sandbox '%s'", sb->name);
	p = xnew(struct pump);
	p->client = client;
	p->channel = e->channel;
	p->link.on_frame = on_link_frame;
	p->link.on_dead = on_link_dead;
	p->link.peer = "keeper";
	p->keeper = &p->link;
	if (framelink_open(&p->link, sb->srv->loop, fd) < 0)
		abort();
	rc = framelink_call(&p->link, attach_request(e, from), clock_now_ns() + CALL_NS, NULL, err);
	if (rc == 0) {
		rc = pump_run(p);
		if (rc == -EIO &&
			e->ended) /* the sandbox was stopped: the status is known all the same */
			send_object(client, FRAME_STATUS,
				json_incref(json_object_get(e->doc, "status")));
		rc = rc == -EIO && !e->ended ? err_raise(err, ERR_UNAVAILABLE, "the sandbox ended")
					     : 0;
	}
	framelink_close(&p->link, link_closed);
	return rc;
}

int api_exec_attach(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct exec *e = sb != NULL ? exec_find(sb, call->segments[1], err) : NULL;
	struct stream *client = http_stream(call->conn);
	uint64_t from = api_number(call, "from");
	bool held;
	int rc;

	if (e == NULL) {
		sandbox_unref(sb);
		return -ENOENT;
	}
	http_upgrade(call->conn, "cay-frames");
	send_object(client, FRAME_OBJECT, json_pack("{s:O}", "exec", e->doc));
	held = exec_is_held(e);
	rc = held ? attach_live(client, sb, e, from, err) : -ENOENT;
	/* the keeper forgets the oldest of many */
	if (!held || (rc < 0 && err->code == ERR_NOT_FOUND))
		rc = exec_saved_replay(e, from, on_saved, client);
	if (rc < 0 && err->code != ERR_NONE)
		send_error(client, err);
	exec_unref(e);
	sandbox_unref(sb);
	return 0;
}

/* --- run --- */

struct run {
	bool rm, keep; /* what was asked: forget it in any case, keep it in any case */
	struct stream *client;
	struct sandbox *sb;
	struct exec *exec;
	struct pump pump;
	json_t *request; /* ExecCreate */
};

/* The exec joins its sandbox in the transaction that sandbox_new() began: neither is there without the other. */
static int run_write(struct run *r, struct err *err)
{
	struct catalogue *c = r->sb->srv->catalogue;
	int rc = -EINVAL;

	r->exec = exec_new(r->sb, r->request, err);
	if (r->exec != NULL)
		rc = exec_created(r->exec, err);
	if (rc == 0)
		return catalogue_commit(c, false, err);
	catalogue_abort(c);
	return rc;
}

struct run_calls {
	struct framecall start, exec, attach;
};

/* start, exec and attach go out in one piece: the keeper goes from one to the next by itself. */
static void run_call(struct run *r, struct run_calls *calls)
{
	struct framelink *l = &r->sb->keeper->link;
	json_t *exec = exec_request(r->exec, r->request);

	if (!r->rm && !r->keep)
		(void)json_object_set_new(exec, "tell_changed", json_true());
	stream_cork(&l->s, true);
	framelink_call_begin(l, &calls->start,
		json_pack("{s:s,s:o}", "verb", "start", "spec", sandbox_spec(r->sb)));
	framelink_call_begin(l, &calls->exec, exec);
	framelink_call_begin(l, &calls->attach, attach_request(r->exec, 0));
	stream_cork(&l->s, false);
}

static int run_answers(struct run *r, struct run_calls *calls, bool warm, struct err *err)
{
	struct framelink *l = &r->sb->keeper->link;
	uint64_t deadline = clock_now_ns() + CALL_NS;
	struct err exec_err = { 0 };
	json_t *ok = NULL;
	int rc = framelink_call_end(l, &calls->start, deadline, &ok, err), exec_rc;

	if (rc == 0)
		sandbox_started(r->sb, ok, warm);
	json_decref(ok);
	ok = NULL;
	exec_rc = framelink_call_end(l, &calls->exec, deadline, &ok, &exec_err);
	(void)!framelink_call_end(l, &calls->attach, deadline, NULL, NULL);
	exec_answered(r->exec, exec_rc, ok, &exec_err);
	json_decref(ok);
	if (rc == 0 && exec_rc < 0) {
		*err = exec_err;
		rc = exec_rc;
	}
	return rc;
}

static int run_begin(struct run *r, struct err *err)
{
	struct keeper *k = r->sb->keeper;
	struct run_calls calls;
	bool warm = k->prepared;
	int rc = run_write(r, err);

	if (rc < 0)
		return rc;
	r->exec->fleeting = !r->keep;
	r->exec->unchanged = r->rm;
	r->pump = (struct pump){ .sink = { on_sink, on_sink_lost },
		.client = r->client,
		.keeper = &k->link,
		.channel = r->exec->channel,
		.cork_status = true };
	r->exec->sink = &r->pump.sink;
	send_object(r->client, FRAME_OBJECT, json_pack("{s:o}", "sandbox", sandbox_object(r->sb)));
	send_object(r->client, FRAME_OBJECT, json_pack("{s:O}", "exec", r->exec->doc));
	if (!warm || sandbox_has_disk(r->sb)) {
		stream_cork(r->client, false);
		rc = keeper_ready(k, err);
		if (rc == 0)
			rc = sandbox_make_disk(r->sb, err);
	}
	if (rc < 0)
		return rc;
	run_call(r, &calls);
	stream_cork(r->client, false);
	return run_answers(r, &calls, warm, err);
}

/* The client has gone: nobody waits for this command any more. */
static void run_kill(struct run *r)
{
	uint64_t deadline = clock_now_ns() + KILL_NS;

	if (r->sb->keeper == NULL || r->sb->keeper->link.dead)
		return;
	(void)!framelink_call(&r->sb->keeper->link,
		json_pack("{s:s,s:i}", "verb", "kill", "channel", r->exec->channel), deadline, NULL,
		NULL);
	while (!r->exec->ended && waiters_wait(&r->exec->changed, deadline) == 0)
		;
}

/* Did a cow mount change? The keeper has said so when nothing was written; else the trees are compared. */
static int64_t run_changes(struct run *r)
{
	struct err err;
	int64_t n;

	if (r->exec->unchanged)
		return 0;
	n = sandbox_changes(r->sb, false, &err);
	if (n < 0)
		log_warn("run", "sandbox '%s': %s", r->sb->name, err.msg);
	return n;
}

static void send_summary(struct run *r, bool kept, int64_t changes)
{
	send_object(r->client, FRAME_OBJECT,
		json_pack("{s:{s:b,s:I,s:s,s:s,s:o}}", "summary", "kept", (int)kept, "changes",
			(json_int_t)(changes > 0 ? changes : 0), "name", r->sb->name, "id",
			r->sb->id, "denied", gateway_denied(r->sb)));
}

/* Forgotten before its client hears that it is gone. Return: was it? */
static bool run_forget(struct run *r)
{
	struct err err;

	if (sandbox_forget(r->sb, &err) == 0)
		return true;
	log_warn("run", "remove sandbox '%s': %s", r->sb->name, err.msg);
	return false;
}

/* The command is over: keep the sandbox when its changes are worth something, and say so. Return: was it kept? */
static bool run_finish(struct run *r)
{
	int64_t changes = run_changes(r);
	struct err err;

	gateway_drain(r->sb);
	/* what cannot be compared is kept */
	if (!r->keep && (r->rm || changes == 0) && run_forget(r)) {
		send_summary(r, false, changes);
		return false;
	}
	if (r->sb->keeper != NULL && sandbox_halt(r->sb, "the command ended", 0, &err) < 0)
		log_warn("run", "stop sandbox '%s': %s", r->sb->name, err.msg);
	send_summary(r, true, changes);
	return true;
}

/* Behind the client's back: it has its answer. */
static void clear_main(void *arg)
{
	struct sandbox *sb = arg;

	sandbox_clear(sb);
	sandbox_unlock(sb);
	sandbox_unref(sb);
}

/* The keeper has died under the command. */
static void run_lost(struct run *r)
{
	execs_lost(r->sb, "lost", "the sandbox ended unasked");
	send_object(r->client, FRAME_STATUS, json_incref(json_object_get(r->exec->doc, "status")));
}

/* It never ran. Its client has the reason. Return: is it still there, because it could not even be forgotten? */
static bool run_failed(struct run *r, const struct err *why)
{
	send_error(r->client, why);
	if (r->exec != NULL)
		r->exec->sink = NULL;
	if (r->sb->state == SANDBOX_CREATING)
		sandbox_enter(r->sb, SANDBOX_FAILED, EVENT_SANDBOX_FAILED,
			json_pack("{s:o}", "error", err_to_json(why)));
	if (run_forget(r))
		return false;
	sandbox_drop_keeper(r->sb, false);
	return true;
}

/* Return: is the sandbox still wanted? */
static bool run_stream(struct run *r)
{
	struct err err = { 0 };
	bool kept = false;
	int rc = run_begin(r, &err);

	if (rc < 0) {
		kept = run_failed(r, &err);
	} else {
		rc = pump_run(&r->pump);
		if (rc == -EPIPE)
			run_kill(r);
		else if (rc == -EIO)
			run_lost(r);
		r->exec->sink = NULL;
		kept = run_finish(r);
	}
	stream_cork(r->client, false);
	return kept;
}

int api_run(struct api_call *call, struct err *err)
{
	const struct sandbox_origin origin = { .in_run = true };
	json_t *sandbox = json_object_get(call->body, "sandbox");
	struct run *r = xnew(struct run);
	bool kept;

	r->client = http_stream(call->conn);
	r->request = json_object_get(call->body, "exec");
	r->keep = json_is_true(json_object_get(call->body, "keep"));
	r->rm = json_is_true(json_object_get(call->body, "rm")) && !r->keep;
	r->sb = sandbox_new(call->srv, sandbox, &origin, true, err);
	if (r->sb == NULL) {
		free(r);
		return -EINVAL;
	}
	stream_cork(r->client, true);
	http_upgrade(call->conn, "cay-frames");
	kept = run_stream(r);
	exec_unref(r->exec);
	if (kept) {
		sandbox_unlock(r->sb);
		sandbox_unref(r->sb);
	} else {
		fiber_start(clear_main, r->sb);
	}
	free(r);
	return 0;
}
