/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/exec_output.c - a command's output by GET, from its keeper while that lives, from disk afterwards.
 *
 * Keepers come and go under a command whose sandbox is suspended and resumed, or rewound to a state that the command is in: the answer goes on with what the next one has. It is over
 * when the command has ended or, without `follow`, when it has all that there was; whatever else ends it leaves it cut short, so that nobody takes that for the end.
 */
#include "api/idle.h"
#include "api/server.h"
#include "api_handlers.h"
#include "base/str.h"

#define NOWHERE UINT64_MAX
#define END_NS  (5 * NS_PER_S) /* longest that a keeper ends */
#define AGAIN   1              /* the keeper is another one now, or none */

/* One answer. */
struct reader {
	struct http_conn *conn;
	const struct exec *e;
	bool follows, frames, out, err, begun;
	bool cut;       /* its keeper has ended */
	bool whole;     /* all that was asked for has come */
	uint64_t until; /* without follow: offset at which to stop */
	uint64_t at;    /* of the next byte */
	uint64_t first; /* offset of the first byte that there is; NOWHERE until it has come */
	unsigned int rewinds; /* of the exec, those that it knows of */
	struct buf ready;     /* bytes for the client, taken by the fiber */
	struct waiters changed;
};

/* What it has of one keeper. */
struct source {
	struct framelink link;
	struct reader *r;
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
	if (type == FRAME_GAP && n == 16)
		r->at = frame_get_u64(p + 8);
	if (r->frames && type != FRAME_REPLY && type != FRAME_EVENT && type != FRAME_WINDOW)
		frame_encode(&r->ready, type, 0, p, n);
	else if (!r->frames && output)
		buf_add(&r->ready, p + 8, n - 8);
}

/* Is what comes of a time that is, or was, taken back? */
static bool is_taken_back(const struct reader *r)
{
	return r->e->comes_back || r->e->rewinds != r->rewinds;
}

static void source_frame(struct framelink *l, const struct frame *f)
{
	struct reader *r = container_of(l, struct source, link)->r;

	if (f->channel != r->e->channel || f->type == FRAME_REPLY || r->cut || r->whole ||
		is_taken_back(r))
		return;
	reader_take(r, f->type, f->payload, f->size);
	if (f->type == FRAME_STATUS || r->at >= r->until)
		r->whole = true;
	/* what the client does not read stays with the keeper */
	if (r->ready.n > (1U << 20))
		stream_hold(&l->s, true);
	waiters_wake(&r->changed);
}

static void source_dead(struct framelink *l)
{
	struct reader *r = container_of(l, struct source, link)->r;

	r->cut = true;
	waiters_wake(&r->changed);
}

static void source_closed(struct stream *s)
{
	free(container_of(container_of(s, struct framelink, s), struct source, link));
}

static struct source *source_open(struct reader *r, struct err *err)
{
	const struct sandbox *sb = r->e->sandbox;
	int fd = keeper_connect(sb->srv, sb->id);
	struct source *from;

	if (fd < 0) {
		(void)err_raise_sys(err, fd, "connect to the keeper of sandbox '%s'", sb->name);
		return NULL;
	}
	from = xnew(struct source);
	from->r = r;
	from->link.on_frame = source_frame;
	from->link.on_dead = source_dead;
	from->link.peer = "keeper";
	if (framelink_open(&from->link, sb->srv->loop, fd) < 0)
		abort();
	r->cut = false;
	return from;
}

/* Until the keeper ends, all has come or, of what is followed, the server ends: the client comes back to the next one, also where the command never pauses. */
static int reader_pump(struct reader *r, struct source *from)
{
	const struct server *srv = r->e->sandbox->srv;

	while (!(r->cut || r->whole) || r->ready.n > 0) {
		cleanup_buf struct buf now = r->ready;

		r->ready = (struct buf)BUF_INIT(16U << 20);
		if (buf_failed(&now) || (now.n > 0 && http_write(r->conn, now.p, now.n) < 0))
			return -EPIPE;
		if (!from->link.dead)
			stream_hold(&from->link.s, false);
		if (!(r->cut || r->whole) && r->follows && srv->stopping)
			return -ESHUTDOWN;
		if (!(r->cut || r->whole) && r->ready.n == 0) {
			if (stream_has_left(http_stream(r->conn)))
				return -EPIPE;
			(void)waiters_wait(&r->changed, clock_now_ns() + NS_PER_S);
		}
	}
	return 0;
}

static void reader_init(struct reader *r, struct api_call *call, const struct exec *e)
{
	struct httphead_text accept = httphead_get(http_head(call->conn), "Accept");
	const char *stream = api_text(call, "stream");

	*r = (struct reader){ .conn = call->conn,
		.e = e,
		.follows = api_flag(call, "follow"),
		.frames = accept.n > 0 &&
			  memmem(accept.p, accept.n, "application/vnd.cay.frames", 26) != NULL,
		.out = !str_eq(stream, "stderr"),
		.err = !str_eq(stream, "stdout"),
		.until = UINT64_MAX,
		.at = api_number(call, "from"),
		.first = NOWHERE,
		.rewinds = e->rewinds,
		.ready = BUF_INIT(16U << 20) };
	waiters_init(&r->changed);
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
	while (from < end && r->first == NOWHERE && !r->cut && !r->whole)
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

/* Return: 0: all has come; AGAIN; -ENOENT: its keeper knows it no more; -EAGAIN: no keeper is there; -EPIPE: no client. */
static int give_live(struct reader *r, struct err *err)
{
	struct source *from = source_open(r, err);
	uint64_t at = r->at, end;
	json_t *ok = NULL;
	int rc;

	if (from == NULL)
		return -EAGAIN;
	rc = framelink_call(&from->link,
		json_pack("{s:s,s:i,s:I}", "verb", "attach", "channel", r->e->channel, "from",
			(json_int_t)at),
		clock_now_ns() + CALL_NS, &ok, err);
	if (rc < 0) {
		rc = err->code == ERR_NOT_FOUND && r->e->ended ? -ENOENT : -EAGAIN;
	} else {
		end = (uint64_t)json_integer_value(json_object_get(ok, "end"));
		/* without follow: what is there now */
		if (!r->follows && !r->e->ended && end < r->until)
			r->until = end;
		r->whole = r->whole || r->at >= r->until;
		wait_first(r, at, end);
		if (!r->cut || r->first != NOWHERE)
			begin_output(r, at);
		rc = reader_pump(r, from);
	}
	json_decref(ok);
	framelink_close(&from->link, source_closed);
	return rc == 0 && !r->whole ? AGAIN : rc;
}

/* While it is being suspended or rewound, with @suspended also while it is suspended. Return: 0, or why nobody waits any more. */
static int wait_while_away(const struct reader *r, bool suspended)
{
	struct sandbox *sb = r->e->sandbox;

	while (exec_is_away(r->e) &&
		(suspended || r->e->comes_back || sb->state != SANDBOX_SUSPENDED)) {
		if (sb->srv->stopping || sb->gone)
			return -ESHUTDOWN;
		if (stream_has_left(http_stream(r->conn)))
			return -EPIPE;
		(void)waiters_wait(&sb->changed, clock_now_ns() + NS_PER_S);
	}
	return 0;
}

/* Who ends a sandbox says what became of its commands a moment after their keeper is gone. */
static void wait_for_status(const struct exec *e)
{
	uint64_t deadline = clock_now_ns() + END_NS;

	while (!e->ended && !exec_is_away(e) && clock_now_ns() < deadline)
		(void)waiters_wait(&e->sandbox->changed, clock_now_ns() + NS_PER_S / 20);
}

/* As it is now: who sees that it is suspended knows why nothing comes. */
static int say_exec(const struct reader *r)
{
	json_t *object = json_pack("{s:o}", "exec", exec_object(r->e));
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);
	cleanup_buf struct buf frame = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);

	json_decref(object);
	frame_encode(&frame, FRAME_OBJECT, 0, text, strlen(text));
	return http_write(r->conn, frame.p, frame.n);
}

/* No keeper has it: what was kept when the sandbox stopped, or was suspended. Return: 0, AGAIN, or an error: what is missing must not look like the end. */
static int give_saved(struct reader *r)
{
	const struct sandbox *sb = r->e->sandbox;
	struct saved_output s = { r, r->at };
	bool was_away = exec_is_away(r->e);
	int rc = wait_while_away(r, false);

	if (rc < 0)
		return rc;
	if (was_away && !exec_is_away(r->e))
		return AGAIN;
	wait_for_status(r->e);
	if (r->begun && (sb->gone || sb->state == SANDBOX_REMOVING))
		return -EIO;
	rc = exec_saved_replay(r->e, r->at, on_saved, &s);
	begin_output(r, s.from);
	if (rc < 0 || !r->follows || r->e->ended)
		return rc;
	if (!exec_is_away(r->e) && !exec_is_held(r->e))
		return -EIO;
	if (r->frames && say_exec(r) < 0)
		return -EPIPE;
	rc = wait_while_away(r, true);
	return rc < 0 ? rc : AGAIN;
}

/* The command has gone back to an earlier instant, and its output goes on from there: a piece without a byte says so, as that of pump_send_offset(). There is no more of what was there. */
static void take_rewind(struct reader *r)
{
	const struct exec *e = r->e;
	unsigned char offset[8];

	if (e->rewinds == r->rewinds)
		return;
	r->rewinds = e->rewinds;
	if (!r->follows && e->rewound_to < r->until)
		r->until = e->rewound_to;
	if (!r->follows || r->at <= e->rewound_to)
		return;
	r->at = e->rewound_to;
	frame_put_u64(offset, r->at);
	if (r->frames && r->begun)
		frame_encode(&r->ready, FRAME_STDOUT, 0, offset, sizeof(offset));
}

/* From one keeper after the other, and from the disk. Return: 0: it is all there; or an error. */
static int give(struct reader *r, struct err *err)
{
	uint64_t deadline = clock_now_ns() + END_NS;
	int rc;

	do {
		*err = (struct err){ 0 }; /* of a try before */
		take_rewind(r);
		rc = exec_is_held(r->e) ? give_live(r, err) : give_saved(r);
		if (rc == AGAIN)
			deadline = clock_now_ns() + END_NS;
		/* it ends just now: what it keeps of the output is on disk when it is gone */
		if (rc == -EAGAIN && clock_now_ns() < deadline) {
			(void)waiters_wait(&r->e->sandbox->changed, clock_now_ns() + NS_PER_S / 20);
			rc = AGAIN;
		}
	} while (rc == AGAIN);
	/* the keeper forgets the oldest of many */
	if (rc != -ENOENT)
		return rc;
	*err = (struct err){ 0 };
	return give_saved(r);
}

int api_exec_output(struct api_call *call, struct err *err)
{
	bool follows = api_flag(call, "follow");
	struct sandbox *sb;
	struct reader r;
	struct exec *e;
	int rc = follows ? exec_find_awake(call, &sb, &e, err) : exec_find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	reader_init(&r, call, e);
	rc = give(&r, err);
	if (rc == 0)
		http_end(call->conn);
	else if (!r.begun && err->code == ERR_NONE)
		(void)err_raise(
			err, ERR_UNAVAILABLE, "the output of exec '%s' cannot be had now", e->id);
	rc = r.begun ? 0 : rc;
	buf_free(&r.ready);
	if (follows)
		sandbox_rest(sb);
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}
