/* SPDX-License-Identifier: Apache-2.0 */
/* api/exec_output.c - a command's output by GET, from its keeper while that lives, from disk afterwards. */
#include "api/idle.h"
#include "api/server.h"
#include "api_handlers.h"
#include "base/str.h"

#define NOWHERE UINT64_MAX
#define END_NS  (5 * NS_PER_S) /* longest that a keeper ends */

struct reader {
	struct framelink link;
	struct http_conn *conn;
	uint16_t channel;
	bool frames, out, err, done, begun;
	bool whole;     /* all that was asked for has come */
	uint64_t until; /* without follow: offset at which to stop */
	uint64_t at;
	uint64_t first;   /* offset of the first byte that there is; NOWHERE until it has come */
	struct buf ready; /* bytes for the client, taken by the fiber */
	struct waiters changed;
};

static void reader_take(struct reader *r, enum frame_type type, const char *p, size_t n)
{
	bool output = type == FRAME_STDOUT || type == FRAME_STDERR;
	uint64_t at;

	if (r->first == NOWHERE && ((output && n >= 8) || (type == FRAME_GAP && n == 16)))
		r->first = frame_get_u64(output ? p : p + 8);
	if (output && n >= 8) {
		at = frame_get_u64(p);
		if (at + n - 8 > r->until)
			n = r->until > at ? (size_t)(r->until - at) + 8 : 8;
		r->at = at + n - 8;
		if ((type == FRAME_STDOUT && !r->out) || (type == FRAME_STDERR && !r->err) ||
			n == 8)
			return;
	}
	if (r->frames && type != FRAME_REPLY && type != FRAME_EVENT && type != FRAME_WINDOW)
		frame_encode(&r->ready, type, 0, p, n);
	else if (!r->frames && output)
		buf_add(&r->ready, p + 8, n - 8);
}

static void reader_frame(struct framelink *l, const struct frame *f)
{
	struct reader *r = container_of(l, struct reader, link);

	if (f->channel != r->channel || f->type == FRAME_REPLY || r->done)
		return;
	reader_take(r, f->type, f->payload, f->size);
	if (f->type == FRAME_GAP && f->size == 16)
		r->at = frame_get_u64(f->payload + 8);
	if (f->type == FRAME_STATUS || r->at >= r->until)
		r->done = r->whole = true;
	/* what the client does not read stays with the keeper */
	if (r->ready.n > (1U << 20))
		stream_hold(&l->s, true);
	waiters_wake(&r->changed);
}

static void reader_dead(struct framelink *l)
{
	struct reader *r = container_of(l, struct reader, link);

	r->done = true;
	waiters_wake(&r->changed);
}

static void reader_closed(struct stream *s)
{
	struct reader *r = container_of(container_of(s, struct framelink, s), struct reader, link);

	buf_free(&r->ready);
	free(r);
}

static int reader_pump(struct reader *r)
{
	while (!r->done || r->ready.n > 0) {
		cleanup_buf struct buf now = r->ready;

		r->ready = (struct buf)BUF_INIT(16U << 20);
		if (buf_failed(&now) || (now.n > 0 && http_write(r->conn, now.p, now.n) < 0))
			return -EPIPE;
		if (!r->link.dead)
			stream_hold(&r->link.s, false);
		if (!r->done && r->ready.n == 0) {
			if (stream_has_left(http_stream(r->conn)))
				return -EPIPE;
			(void)waiters_wait(&r->changed, clock_now_ns() + NS_PER_S);
		}
	}
	return 0;
}

static struct reader *reader_new(struct api_call *call, const struct exec *e)
{
	struct httphead_text accept = httphead_get(http_head(call->conn), "Accept");
	const char *stream = api_text(call, "stream");
	struct reader *r = xnew(struct reader);

	r->conn = call->conn;
	r->channel = e->channel;
	r->frames = accept.n > 0 &&
		    memmem(accept.p, accept.n, "application/vnd.cay.frames", 26) != NULL;
	r->out = !str_eq(stream, "stderr");
	r->err = !str_eq(stream, "stdout");
	r->until = UINT64_MAX;
	r->at = api_number(call, "from");
	r->first = NOWHERE;
	r->ready = (struct buf)BUF_INIT(16U << 20);
	waiters_init(&r->changed);
	return r;
}

/* Once. The first byte may be a later one than was asked for. */
static void begin_output(struct reader *r, uint64_t from)
{
	char headers[64];

	if (r->begun)
		return;
	r->begun = true;
	(void)snprintf(headers, sizeof(headers), "Cay-Offset: %lu\r\n",
		r->first != NOWHERE ? r->first : from);
	http_begin(r->conn, 200,
		r->frames ? "application/vnd.cay.frames" : "application/octet-stream", headers);
}

static void wait_first(struct reader *r, uint64_t from, uint64_t end)
{
	while (from < end && r->first == NOWHERE && !r->done)
		(void)waiters_wait(&r->changed, clock_now_ns() + NS_PER_S);
}

struct saved_output {
	struct reader *r;
	uint64_t from;
};

static int on_saved(void *ctx, enum frame_type type, const void *payload, size_t n)
{
	struct saved_output *s = ctx;
	int rc;

	reader_take(s->r, type, payload, n);
	if (s->r->ready.n == 0)
		return 0;
	begin_output(s->r, s->from);
	rc = http_write(s->r->conn, s->r->ready.p, s->r->ready.n);
	buf_reset(&s->r->ready);
	return rc;
}

/* It ends just now: what it keeps of the output is on disk when it is gone. */
static void await_keeper_end(const struct exec *e)
{
	uint64_t deadline = clock_now_ns() + END_NS;

	while (exec_is_held(e) && clock_now_ns() < deadline)
		(void)waiters_wait(&e->sandbox->changed, clock_now_ns() + NS_PER_S / 20);
}

/* Its keeper has ended in the middle. Return: 0; or an error: what is missing must not look like the end. */
static int give_rest(struct reader *r, const struct exec *e)
{
	const struct sandbox *sb = e->sandbox;
	struct saved_output s = { r, r->at };

	await_keeper_end(e);
	if (exec_is_held(e) || sb->gone || sb->state == SANDBOX_REMOVING)
		return -EIO;
	return exec_saved_replay(e, r->at, on_saved, &s);
}

static int output_live(
	struct api_call *call, struct sandbox *sb, const struct exec *e, struct err *err)
{
	int fd = keeper_connect(sb->srv, sb->id), rc;
	uint64_t from = api_number(call, "from");
	struct reader *r;
	json_t *ok = NULL;

	if (fd < 0)
		return err_raise_sys(err, fd, "connect to the keeper of sandbox '%s'", sb->name);
	r = reader_new(call, e);
	r->link.on_frame = reader_frame;
	r->link.on_dead = reader_dead;
	r->link.peer = "keeper";
	if (framelink_open(&r->link, sb->srv->loop, fd) < 0)
		abort();
	rc = framelink_call(&r->link,
		json_pack("{s:s,s:i,s:I}", "verb", "attach", "channel", e->channel, "from",
			(json_int_t)from),
		clock_now_ns() + CALL_NS, &ok, err);
	if (rc == 0) {
		/* without follow: what is there now */
		if (!api_flag(call, "follow") && !e->ended) {
			r->until = (uint64_t)json_integer_value(json_object_get(ok, "end"));
			r->done = r->whole = r->at >= r->until;
		}
		wait_first(r, from, (uint64_t)json_integer_value(json_object_get(ok, "end")));
		begin_output(r, from);
		if (reader_pump(r) == 0 && (r->whole || give_rest(r, e) == 0))
			http_end(call->conn);
	}
	json_decref(ok);
	framelink_close(&r->link, reader_closed);
	return rc;
}

/* What was kept when the sandbox stopped. */
static int output_saved(struct api_call *call, const struct exec *e)
{
	struct saved_output s = { reader_new(call, e), api_number(call, "from") };
	int rc = exec_saved_replay(e, s.from, on_saved, &s);

	begin_output(s.r, s.from);
	if (rc == 0)
		http_end(call->conn);
	buf_free(&s.r->ready);
	free(s.r);
	return 0;
}

int api_exec_output(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	bool follows = api_flag(call, "follow"), held;
	int rc = follows ? exec_find_awake(call, &sb, &e, err) : exec_find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	held = exec_is_held(e);
	rc = held ? output_live(call, sb, e, err) : -ENOENT;
	if (rc < 0 && err->code == ERR_UNAVAILABLE)
		await_keeper_end(e);
	/* the keeper forgets the oldest of many */
	if (!held || (rc < 0 && (err->code == ERR_NOT_FOUND || !exec_is_held(e))))
		rc = output_saved(call, e);
	if (follows)
		sandbox_rest(sb);
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}
