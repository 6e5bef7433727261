/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/exec_stdin.c - writing to a command's standard input by POST.
 *
 * Requests for one command take turns in the order in which they came: a body is written whole before the next one begins. Whoever waits does so on the `readable` of its own client,
 * which is woken by all that matters to it: bytes, the client's end, the keeper's frames and end, the turn, the command's end, the server's. But for one: LOOK_NS.
 *
 * When the keeper goes away under a body and the command does not (its sandbox is suspended), the body goes on at the next keeper: that says how much of it the last one had got, and what
 * the command had not taken is kept here until then.
 */
#include "api/server.h"
#include "api/steps.h"
#include "api_handlers.h"
#include "base/str.h"

/* The keeper tells by WINDOW frames how much input the command has taken: never more than this ahead of it. */
#define INPUT_AHEAD (1U << 20)
/* Each of those who wait for their turn may have as much in memory as a stream takes unread (STREAM_IN_HIGH). */
#define TURNS_MAX 32
/* Whoever ended its own side of the connection before is not read from any more: how often it is looked whether it has gone. */
#define LOOK_NS NS_PER_S
/* A body that is on its way when the server ends may still come as a whole. */
#define LAST_NS (2 * NS_PER_S)

struct turn {
	struct list node; /* of the exec's: the first one writes */
	struct exec *e;
	struct stream *client;
};

/* One connection to the keeper. */
struct feeder {
	struct framelink link;
	struct stream *client;
	uint16_t channel;
	uint64_t sent, taken; /* since we came; sent: with what the keeper had from others then */
	uint64_t dropped;     /* bytes that nobody read, when we came */
	bool over;            /* its end was sent before we came, or nobody reads it any more */
};

/* One body. */
struct feeding {
	struct api_call *call;
	struct sandbox *sb;
	struct exec *e;
	struct feeder *f; /* NULL: there is no keeper just now */
	unsigned int rewinds;
	uint64_t before,
		sent; /* bytes of input that the keeper had when we came; of the body, that were sent to it */
	struct buf kept; /* the newest of those, as many as it may not have got */
	uint64_t cut_ns; /* the server ends: when this does; 0: nobody knows yet that it ends */
};

void exec_stdin_wake(struct exec *e)
{
	list_for_each (&e->turns, node, next)
		waiters_wake(&list_entry(node, struct turn, node)->client->readable);
}

static int turn_await(struct turn *t, const struct server *srv, struct err *err)
{
	unsigned int before = 0;

	list_for_each (&t->e->turns, node, next)
		before++;
	if (before >= TURNS_MAX)
		return err_hint(err,
			err_raise(err, ERR_LIMIT,
				"%u requests wait already to write to the standard input of exec '%s'",
				before, t->e->id),
			"each one waits until those before it have been written: send the next one when one has been answered");
	list_append(&t->e->turns, &t->node);
	while (t->e->turns.next != &t->node) {
		if (t->e->ended)
			return exec_not_running(t->e, err);
		if (srv->stopping)
			return err_raise(err, ERR_SHUTTING_DOWN, "the server is shutting down");
		if (stream_has_left(t->client))
			return err_raise(err, ERR_INVALID, "the client left");
		(void)waiters_wait(&t->client->readable, clock_now_ns() + LOOK_NS);
	}
	return 0;
}

static void turn_end(struct turn *t)
{
	list_remove(&t->node);
	exec_stdin_wake(t->e);
}

static void feeder_frame(struct framelink *l, const struct frame *f)
{
	struct feeder *fd = container_of(l, struct feeder, link);

	if (f->type == FRAME_WINDOW && f->channel == fd->channel && f->size == 4) {
		fd->taken += frame_get_u32(f->payload);
		waiters_wake(&fd->client->readable);
	}
}

static void feeder_dead(struct framelink *l)
{
	waiters_wake(&container_of(l, struct feeder, link)->client->readable);
}

static void feeder_closed(struct stream *s)
{
	free(container_of(container_of(s, struct framelink, s), struct feeder, link));
}

/* What others send meanwhile is taken too: more than we know to be sent. */
static bool is_ahead(const struct feeder *f)
{
	return f->sent > f->taken + INPUT_AHEAD;
}

static bool is_over(const struct feeding *w)
{
	return w->f == NULL || w->f->link.dead || w->e->ended;
}

static void feeder_drop(struct feeding *w)
{
	struct feeder *f = TAKE_PTR(w->f);

	if (f != NULL)
		framelink_close(&f->link, feeder_closed);
}

/* Attached with no credit: only for the WINDOW frames; whoever sent it hears that it is there, and does not send it again. @ret_had: bytes of input that it has had. */
static int feeder_attach(struct feeder *f, uint64_t *ret_had, struct err *err)
{
	json_t *ok = NULL;
	int rc = framelink_call(&f->link,
		json_pack("{s:s,s:i,s:I,s:i,s:b}", "verb", "attach", "channel", f->channel, "from",
			(json_int_t)1 << 60, "window", 0, "forgets", 1),
		clock_now_ns() + CALL_NS, &ok, err);

	f->over = json_is_true(json_object_get(ok, "input_over"));
	f->dropped = (uint64_t)json_integer_value(json_object_get(ok, "input_dropped"));
	*ret_had = (uint64_t)json_integer_value(json_object_get(ok, "input_bytes"));
	/* what waits there is told as taken to us too */
	f->sent += *ret_had - (uint64_t)json_integer_value(json_object_get(ok, "input_taken"));
	json_decref(ok);
	return rc;
}

static int feeder_open(struct feeding *w, uint64_t *ret_had, struct err *err)
{
	struct sandbox *sb = w->sb;
	int fd = w->e->ended || sb->keeper == NULL ? -ESRCH : keeper_connect(sb->srv, sb->id), rc;
	struct feeder *f;

	if (fd == -ETIMEDOUT)
		return err_raise_sys(err, fd, "connect to the keeper of sandbox '%s'", sb->name);
	if (fd < 0)
		return exec_not_running(w->e, err);
	f = w->f = xnew(struct feeder);
	f->client = http_stream(w->call->conn);
	f->channel = w->e->channel;
	f->link.on_frame = feeder_frame;
	f->link.on_dead = feeder_dead;
	f->link.peer = "keeper";
	if (framelink_open(&f->link, sb->srv->loop, fd) < 0)
		abort();
	rc = feeder_attach(f, ret_had, err);
	if (rc < 0)
		feeder_drop(w);
	return rc;
}

static void part_send(struct feeding *w, const char *p, size_t n)
{
	w->f->sent += n;
	while (n > 0) {
		size_t now = n < FRAME_PAYLOAD_MAX ? n : FRAME_PAYLOAD_MAX;

		framelink_send(&w->f->link, FRAME_STDIN, w->f->channel, p, now);
		p += now;
		n -= now;
	}
}

static int put_back(const struct feeding *w, struct err *err)
{
	return err_raise(err, ERR_STATE,
		"sandbox '%s' was rewound while this was written to exec '%s': %lu bytes of it had been sent, and those that came behind the snapshot are undone",
		w->sb->name, w->e->id, w->sent);
}

/* The keeper of a sandbox that was suspended has got what it had read by then: the rest of what was sent comes again. */
static int send_again(struct feeding *w, uint64_t had, struct err *err)
{
	uint64_t got = had - w->before, missing = w->sent - got;

	if (had < w->before || got > w->sent || missing > w->kept.n)
		return err_raise(err, ERR_STATE,
			"others wrote to exec '%s' while its sandbox was suspended: nobody can say how much of this came",
			w->e->id);
	part_send(w, w->kept.p + (w->kept.n - missing), missing);
	return 0;
}

static int cut_off(const struct feeding *w, struct err *err)
{
	return err_raise(err, ERR_UNAVAILABLE,
		"the server ends: nobody can say how much of this came to exec '%s'", w->e->id);
}

/* Does the server end, and has this had its time? */
static bool is_cut_off(struct feeding *w)
{
	if (!w->sb->srv->stopping)
		return false;
	if (w->cut_ns == 0)
		w->cut_ns = clock_now_ns() + LAST_NS;
	return clock_now_ns() >= w->cut_ns;
}

/* Why the command does not come back: @err is filled; 0: it may. */
static int why_gone(const struct feeding *w, uint64_t deadline, struct err *err)
{
	if (w->e->ended)
		return exec_not_running(w->e, err);
	if (w->e->rewinds != w->rewinds)
		return put_back(w, err);
	if (w->sb->srv->stopping)
		return cut_off(w, err);
	if (stream_has_left(http_stream(w->call->conn)))
		return err_raise(err, ERR_INVALID, "the client left");
	if (clock_now_ns() >= deadline)
		return err_raise(
			err, ERR_UNAVAILABLE, "the keeper of exec '%s' has gone", w->e->id);
	return 0;
}

/* Its keeper has gone under us: the command has ended, or is away for as long as its sandbox is suspended. */
static int come_back(struct feeding *w, struct err *err)
{
	uint64_t deadline = clock_now_ns() + CALL_NS, had;
	struct err ignored;
	int rc;

	feeder_drop(w);
	while ((rc = why_gone(w, deadline, err)) == 0) {
		if (exec_is_away(w->e))
			deadline = clock_now_ns() + CALL_NS;
		else if (w->sb->state == SANDBOX_RUNNING && feeder_open(w, &had, &ignored) == 0)
			return send_again(w, had, err);
		(void)waiters_wait(&w->sb->changed, clock_now_ns() + NS_PER_S);
	}
	return rc;
}

/* The next part of the body. Return: its size, 0 at the end, or an error. */
static ssize_t part_read(struct feeding *w, struct buf *part, struct err *err)
{
	uint64_t deadline = clock_now_ns() + HTTP_IDLE_NS;
	struct http_conn *conn = w->call->conn;
	ssize_t n;

	while (http_body_waits(conn) && clock_now_ns() < deadline) {
		if (is_cut_off(w))
			return cut_off(w, err);
		if (is_over(w)) {
			if (come_back(w, err) < 0)
				return -EIO;
			deadline =
				clock_now_ns() + HTTP_IDLE_NS; /* it may have been away for days */
		}
		(void)waiters_wait(&http_stream(conn)->readable, clock_now_ns() + LOOK_NS);
	}
	n = http_body_waits(conn) ? -ETIMEDOUT : http_body_read(conn, part);
	return n < 0 ? err_raise(err, ERR_INVALID, "the body is malformed or incomplete") : n;
}

static int nobody_reads(const struct feeding *w, struct err *err)
{
	if (w->sent == 0)
		return err_raise(err, ERR_STATE,
			"the standard input of exec '%s' has ended: nothing of this was written to it",
			w->e->id);
	return err_raise(err, ERR_STATE,
		"the standard input of exec '%s' has ended: %lu bytes of this had been sent, and nobody reads more",
		w->e->id, w->sent);
}

/* Until the keeper may have more. */
static int room_await(struct feeding *w, struct err *err)
{
	struct stream *client = http_stream(w->call->conn);

	for (;;) {
		if (is_over(w) && come_back(w, err) < 0)
			return -EIO;
		if (w->f->over)
			return nobody_reads(w, err);
		if (!is_ahead(w->f))
			return 0;
		if (is_cut_off(w))
			return cut_off(w, err);
		if (stream_has_left(client))
			return err_raise(err, ERR_INVALID, "the client left");
		(void)waiters_wait(&client->readable, clock_now_ns() + LOOK_NS);
	}
}

/* @part: of the body. What the command has not taken, it is the newest of all, may have to be sent again. */
static void part_write(struct feeding *w, const struct buf *part)
{
	uint64_t open;

	part_send(w, part->p, part->n);
	w->sent += part->n;
	open = w->f->sent > w->f->taken ? w->f->sent - w->f->taken : 0;
	buf_add(&w->kept, part->p, part->n);
	if (w->kept.n > open)
		buf_consume(&w->kept, w->kept.n - (size_t)open);
}

/* Was some of what came since we did for nobody? @ok: the keeper's answer to `status`. */
static bool was_dropped(const struct feeding *w, const json_t *ok)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(ok, "execs"), i, one) {
		if (str_eq(json_string_value(json_object_get(one, "exec")), w->e->id))
			return (uint64_t)json_integer_value(json_object_get(one, "input_dropped")) >
			       w->f->dropped;
	}
	return false;
}

/* A round trip: afterwards the keeper has it, also when that was enough for the command and it has ended. */
static int feed_end(struct feeding *w, struct err *err)
{
	json_t *ok = NULL;
	int rc;

	do {
		if (w->f->link.dead && come_back(w, err) < 0)
			return -EIO;
		if (api_flag(w->call, "close"))
			framelink_send(&w->f->link, FRAME_STDIN, w->f->channel, NULL, 0);
		rc = framelink_call(&w->f->link, json_pack("{s:s}", "verb", "status"),
			clock_now_ns() + CALL_NS, &ok, err);
	} while (rc < 0 && w->f->link.dead);
	if (rc == 0 && !w->e->ended && was_dropped(w, ok))
		rc = nobody_reads(w, err);
	json_decref(ok);
	return rc;
}

static int feed(struct feeding *w, struct err *err)
{
	cleanup_buf struct buf part = BUF_INIT(1U << 20);
	ssize_t n;

	while ((n = part_read(w, &part, err)) > 0) {
		int rc = room_await(w, err);

		if (rc < 0)
			return rc;
		part_write(w, &part);
		buf_reset(&part);
	}
	return n < 0 ? (int)n : feed_end(w, err);
}

static int stdin_write(struct api_call *call, struct sandbox *sb, struct exec *e, struct err *err)
{
	struct feeding w = { .call = call,
		.sb = sb,
		.e = e,
		.rewinds = e->rewinds,
		.kept = BUF_INIT(INPUT_AHEAD + (4U << 20)) };
	int rc;

	if (!e->ended && !json_is_true(json_object_get(e->doc, "stdin")) &&
		!json_is_true(json_object_get(e->doc, "tty")))
		return err_raise(
			err, ERR_STATE, "exec '%s' was started without standard input", e->id);
	rc = feeder_open(&w, &w.before, err);
	if (rc == 0)
		rc = feed(&w, err);
	feeder_drop(&w);
	buf_free(&w.kept);
	return rc;
}

static int stdin_send(struct api_call *call, struct sandbox *sb, struct exec *e, struct err *err)
{
	struct turn t = { .e = e, .client = http_stream(call->conn) };
	int rc;

	list_init(&t.node);
	rc = turn_await(&t, call->srv, err);
	if (rc == 0) {
		steps_wait(sb);
		rc = stdin_write(call, sb, e, err);
	}
	turn_end(&t);
	return rc;
}

int api_exec_stdin(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	int rc = exec_find_awake(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	rc = stdin_send(call, sb, e, err);
	if (rc == 0)
		rc = api_reply(call, 204, NULL);
	exec_let_rest(sb, e);
	return rc;
}
