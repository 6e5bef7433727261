/* SPDX-License-Identifier: Apache-2.0 */
#include "api/server.h"
#include "api_handlers.h"
#include "base/str.h"

/* Sandbox and exec of a call; both are references. */
static int find_both(struct api_call *call, struct sandbox **sb, struct exec **e, struct err *err)
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

static json_t *exec_object(const struct exec *e)
{
	json_t *o = json_copy(e->doc);

	(void)json_object_del(o, "channel");
	(void)json_object_del(o, "key");
	(void)json_object_del(o, "key_hash");
	return o;
}

int api_exec_list(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *list;

	if (sb == NULL)
		return -ENOENT;
	list = json_array();
	list_for_each (&sb->execs, node, next)
		(void)json_array_append_new(list, exec_object(list_entry(node, struct exec, node)));
	sandbox_unref(sb);
	return api_reply(call, 200, json_pack("{s:o}", "execs", list));
}

static int exec_begin(struct api_call *call, struct sandbox *sb, struct exec **ret, struct err *err)
{
	struct framelink *l;
	json_t *ok = NULL;
	struct exec *e;
	int rc;

	if (sb->state != SANDBOX_RUNNING || sb->keeper == NULL)
		return err_hint(err,
			err_raise(err, ERR_STATE, "sandbox '%s' is %s: no command can run in it",
				sb->name, sandbox_state_name(sb->state)),
			"%s",
			sb->state == SANDBOX_PAUSED    ? "thaw it first: cay resume"
			: sb->state == SANDBOX_STOPPED ? "start it first: cay start"
						       : "");
	e = exec_new(sb, call->body, err);
	if (e == NULL)
		return -EINVAL;
	if (call->key != NULL) {
		(void)json_object_set_new(e->doc, "key", json_string(call->key));
		(void)json_object_set_new(e->doc, "key_hash", json_string(call->key_hash));
	}
	rc = exec_created(e, err);
	l = &sb->keeper->link;
	if (rc == 0)
		rc = framelink_call(
			l, exec_request(e, call->body), clock_now_ns() + CALL_NS, &ok, err);
	exec_answered(e, rc, ok, err);
	json_decref(ok);
	if (rc == 0)
		*ret = e;
	else
		exec_unref(e);
	return rc;
}

/* As for sandboxes: the exec itself remembers its key. */
static struct exec *made_before(struct api_call *call, struct sandbox *sb, struct err *err, int *rc)
{
	list_for_each (&sb->execs, node, next) {
		struct exec *e = list_entry(node, struct exec, node);
		const char *key = json_string_value(json_object_get(e->doc, "key"));

		if (call->key == NULL || key == NULL || !str_eq(key, call->key))
			continue;
		if (!str_eq(json_string_value(json_object_get(e->doc, "key_hash")), call->key_hash))
			*rc = err_raise(err, ERR_IDEMPOTENCY,
				"the idempotency key was used with another request");
		return exec_ref(e);
	}
	return NULL;
}

int api_exec_create(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct exec *e;
	int rc = 0;

	if (sb == NULL)
		return -ENOENT;
	e = made_before(call, sb, err, &rc);
	if (e == NULL)
		rc = exec_begin(call, sb, &e, err);
	if (rc == 0)
		rc = api_reply(call, 201, exec_object(e));
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}

int api_exec_get(struct api_call *call, struct err *err)
{
	uint64_t deadline = clock_now_ns() + api_number(call, "wait_ms") * NS_PER_MS;
	struct sandbox *sb;
	struct exec *e;
	int rc = find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	while (api_number(call, "wait_ms") > 0 && !e->ended && !http_stream(call->conn)->eof) {
		if (waiters_wait(&e->changed, deadline) < 0)
			break;
	}
	rc = api_reply(call, 200, exec_object(e));
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}

static int not_running(const struct exec *e, struct err *err)
{
	return err_raise(err, ERR_STATE, "exec '%s' has ended", e->id);
}

static int signal_send(struct sandbox *sb, struct exec *e, const json_t *body, struct err *err)
{
	json_int_t number = json_integer_value(json_object_get(body, "signal"));
	bool tree = json_is_true(json_object_get(body, "tree"));
	json_t *request;

	if (e->ended || sb->keeper == NULL)
		return not_running(e, err);
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
	int rc = find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	rc = signal_send(sb, e, call->body, err);
	if (rc == 0)
		rc = api_reply(call, 204, NULL);
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}

int api_exec_resize(struct api_call *call, struct err *err)
{
	unsigned char size[4];
	struct sandbox *sb;
	struct exec *e;
	int rc = json_is_null(call->body) ? -EINVAL : find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	frame_put_u16(size, (uint16_t)json_integer_value(json_object_get(call->body, "rows")));
	frame_put_u16(
		size + 2, (uint16_t)json_integer_value(json_object_get(call->body, "columns")));
	if (e->ended || sb->keeper == NULL) {
		rc = not_running(e, err);
	} else {
		framelink_send(&sb->keeper->link, FRAME_RESIZE, e->channel, size, sizeof(size));
		rc = api_reply(call, 204, NULL);
	}
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}

/* --- standard input --- */

/* The keeper tells by WINDOW frames how much input the command has taken: never more than this ahead. */
#define INPUT_AHEAD (1U << 20)

struct feeder {
	struct framelink link;
	uint16_t channel;
	uint64_t sent, taken;
	struct waiters changed;
};

static void feeder_frame(struct framelink *l, const struct frame *f)
{
	struct feeder *fd = container_of(l, struct feeder, link);

	if (f->type == FRAME_WINDOW && f->channel == fd->channel && f->size == 4) {
		fd->taken += frame_get_u32(f->payload);
		waiters_wake(&fd->changed);
	}
}

static void feeder_dead(struct framelink *l)
{
	waiters_wake(&container_of(l, struct feeder, link)->changed);
}

static void feeder_closed(struct stream *s)
{
	free(container_of(container_of(s, struct framelink, s), struct feeder, link));
}

static int feed(struct api_call *call, struct feeder *f, struct exec *e, struct err *err)
{
	cleanup_buf struct buf part = BUF_INIT(1U << 20);
	ssize_t n;

	for (;;) {
		n = http_body_read(call->conn, &part);
		if (n <= 0)
			break;
		while (f->sent - f->taken > INPUT_AHEAD && !f->link.dead && !e->ended)
			(void)waiters_wait(&f->changed, clock_now_ns() + NS_PER_S);
		if (f->link.dead || e->ended)
			return not_running(e, err);
		framelink_send(&f->link, FRAME_STDIN, f->channel, part.p, part.n);
		f->sent += part.n;
		buf_reset(&part);
	}
	if (n < 0)
		return err_raise(err, ERR_INVALID, "the body is malformed or incomplete");
	if (api_flag(call, "close"))
		framelink_send(&f->link, FRAME_STDIN, f->channel, NULL, 0);
	/* a round trip: afterwards the keeper has it */
	return framelink_call(&f->link, json_pack("{s:s}", "verb", "status"),
		clock_now_ns() + CALL_NS, NULL, err);
}

static int stdin_send(struct api_call *call, struct sandbox *sb, struct exec *e, struct err *err)
{
	int fd = e->ended || sb->keeper == NULL ? -ESRCH : keeper_connect(sb->srv, sb->id), rc;
	struct feeder *f;

	if (fd < 0)
		return not_running(e, err);
	if (!json_is_true(json_object_get(e->doc, "stdin")) &&
		!json_is_true(json_object_get(e->doc, "tty"))) {
		(void)close(fd);
		return err_raise(
			err, ERR_STATE, "exec '%s' was started without standard input", e->id);
	}
	f = xnew(struct feeder);
	f->channel = e->channel;
	f->link.on_frame = feeder_frame;
	f->link.on_dead = feeder_dead;
	f->link.peer = "keeper";
	waiters_init(&f->changed);
	if (framelink_open(&f->link, sb->srv->loop, fd) < 0)
		abort();
	/* attached with no credit: only for the WINDOW frames */
	rc = framelink_call(&f->link,
		json_pack("{s:s,s:i,s:I,s:i}", "verb", "attach", "channel", e->channel, "from",
			(json_int_t)1 << 60, "window", 0),
		clock_now_ns() + CALL_NS, NULL, err);
	if (rc == 0)
		rc = feed(call, f, e, err);
	framelink_close(&f->link, feeder_closed);
	return rc;
}

int api_exec_stdin(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	int rc = find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	rc = stdin_send(call, sb, e, err);
	if (rc == 0)
		rc = api_reply(call, 204, NULL);
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}

/* --- output --- */

struct reader {
	struct framelink link;
	struct http_conn *conn;
	uint16_t channel;
	bool frames, out, err, done;
	uint64_t until; /* without follow: offset at which to stop */
	uint64_t at;
	struct buf ready; /* bytes for the client, taken by the fiber */
	struct waiters changed;
};

static void reader_take(struct reader *r, enum frame_type type, const char *p, size_t n)
{
	bool output = type == FRAME_STDOUT || type == FRAME_STDERR;
	uint64_t at;

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
		r->done = true;
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
		if (now.n > 0 && http_write(r->conn, now.p, now.n) < 0)
			return -EPIPE;
		if (!r->link.dead)
			stream_hold(&r->link.s, false);
		if (!r->done && r->ready.n == 0) {
			if (http_stream(r->conn)->eof)
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
	r->ready = (struct buf)BUF_INIT(16U << 20);
	waiters_init(&r->changed);
	return r;
}

static void begin_output(struct reader *r)
{
	char headers[64];

	(void)snprintf(headers, sizeof(headers), "Cay-Offset: %lu\r\n", r->at);
	http_begin(r->conn, 200,
		r->frames ? "application/vnd.cay.frames" : "application/octet-stream", headers);
}

static int output_live(
	struct api_call *call, struct sandbox *sb, const struct exec *e, struct err *err)
{
	int fd = keeper_connect(sb->srv, sb->id), rc;
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
			(json_int_t)api_number(call, "from")),
		clock_now_ns() + CALL_NS, &ok, err);
	if (rc == 0) {
		/* without follow: what is there now */
		if (!api_flag(call, "follow") && !e->ended) {
			json_t *end = json_object_get(ok, "output_bytes");

			r->until = json_is_integer(end) ? (uint64_t)json_integer_value(end) : 0;
			r->done = r->at >= r->until;
		}
		begin_output(r);
		if (reader_pump(r) == 0)
			http_end(call->conn);
	}
	json_decref(ok);
	framelink_close(&r->link, reader_closed);
	return rc;
}

/* What was kept when the sandbox stopped. */
static int output_saved(struct api_call *call, struct sandbox *sb, const struct exec *e)
{
	cleanup_free char *path = str_dupf("%s/exec/%s/%s", sb->srv->own_state, sb->id, e->id);
	cleanup_fclose FILE *f = fopen(path, "re");
	cleanup_buf struct buf in = BUF_INIT(FRAME_PAYLOAD_MAX * 2);
	struct reader *r = reader_new(call, e);
	uint64_t from = r->at;

	begin_output(r);
	while (f != NULL) {
		char *to = buf_room(&in, 65536);
		size_t n = to != NULL ? fread(to, 1, 65536, f) : 0;
		struct frame frame;
		ssize_t used;

		if (n == 0)
			break;
		in.n += n;
		while ((used = frame_decode(in.p, in.n, &frame)) > 0) {
			bool output = (frame.type == FRAME_STDOUT || frame.type == FRAME_STDERR) &&
				      frame.size >= 8;
			uint64_t at = output ? frame_get_u64(frame.payload) : 0;

			if (output && at < from && at + frame.size - 8 > from) {
				cleanup_buf struct buf cut = BUF_INIT(FRAME_PAYLOAD_MAX);
				unsigned char head[8];

				frame_put_u64(head, from);
				buf_add(&cut, head, 8);
				buf_add(&cut, frame.payload + 8 + (from - at),
					frame.size - 8 - (size_t)(from - at));
				reader_take(r, frame.type, cut.p, cut.n);
			} else if (!output || at >= from) {
				reader_take(r, frame.type, frame.payload, frame.size);
			}
			buf_consume(&in, (size_t)used);
		}
		if (http_write(call->conn, r->ready.p, r->ready.n) < 0)
			break;
		buf_reset(&r->ready);
	}
	http_end(call->conn);
	buf_free(&r->ready);
	free(r);
	return 0;
}

int api_exec_output(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	int rc = find_both(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	if (sb->keeper != NULL && !sb->keeper->link.dead && !e->archived)
		rc = output_live(call, sb, e, err);
	else
		rc = output_saved(call, sb, e);
	exec_unref(e);
	sandbox_unref(sb);
	return rc;
}
