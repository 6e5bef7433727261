/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api/exec_stdin.c - writing to a command's standard input by POST.
 *
 * Requests for one command take turns in the order in which they came: a body is written whole before the next one begins. Whoever waits does so on the `readable` of its own client,
 * which is woken by all that matters to it: bytes, the client's end, the keeper's frames and end, the turn, the command's end, the server's.
 */
#include "api/server.h"
#include "api/steps.h"
#include "api_handlers.h"
#include "base/str.h"

/* The keeper tells by WINDOW frames how much input the command has taken: never more than this ahead of it. */
#define INPUT_AHEAD (1U << 20)
/* Each of those who wait for their turn may have as much in memory as a stream takes unread (STREAM_IN_HIGH). */
#define TURNS_MAX 32

struct turn {
	struct list node; /* of the exec's: the first one writes */
	struct exec *e;
	struct stream *client;
};

struct feeder {
	struct framelink link;
	struct stream *client;
	uint16_t channel;
	uint64_t sent, taken; /* since we came; sent: with what the keeper had from others then */
	bool over;            /* its end was sent before we came, or nobody reads it any more */
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
		(void)waiters_wait(&t->client->readable, 0);
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

static bool is_over(const struct feeder *f, const struct exec *e)
{
	return f->link.dead || e->ended;
}

/* The next part of the body. Return: its size, 0 at the end, or an error. */
static ssize_t part_read(struct api_call *call, const struct feeder *f, const struct exec *e,
	struct buf *part, struct err *err)
{
	uint64_t deadline = clock_now_ns() + HTTP_IDLE_NS;
	ssize_t n = 0;

	while (http_body_waits(call->conn) && n == 0) {
		if (is_over(f, e))
			return exec_not_running(e, err);
		n = waiters_wait(&f->client->readable, deadline);
	}
	if (n == 0)
		n = http_body_read(call->conn, part);
	return n < 0 ? err_raise(err, ERR_INVALID, "the body is malformed or incomplete") : n;
}

/* Until the keeper may have more. */
static int room_await(const struct feeder *f, const struct exec *e, struct err *err)
{
	while (!is_over(f, e) && is_ahead(f)) {
		if (stream_has_left(f->client))
			return err_raise(err, ERR_INVALID, "the client left");
		(void)waiters_wait(&f->client->readable, 0);
	}
	return is_over(f, e) ? exec_not_running(e, err) : 0;
}

static int input_over(const struct exec *e, struct err *err)
{
	return err_raise(err, ERR_STATE,
		"the standard input of exec '%s' has ended: nothing of this was written to it",
		e->id);
}

static int feed(struct api_call *call, struct feeder *f, struct exec *e, struct err *err)
{
	cleanup_buf struct buf part = BUF_INIT(1U << 20);
	ssize_t n;

	while ((n = part_read(call, f, e, &part, err)) > 0) {
		int rc = f->over ? input_over(e, err) : room_await(f, e, err);

		if (rc < 0)
			return rc;
		framelink_send(&f->link, FRAME_STDIN, f->channel, part.p, part.n);
		f->sent += part.n;
		buf_reset(&part);
	}
	if (n < 0)
		return (int)n;
	if (api_flag(call, "close"))
		framelink_send(&f->link, FRAME_STDIN, f->channel, NULL, 0);
	/* a round trip: afterwards the keeper has it */
	return framelink_call(&f->link, json_pack("{s:s}", "verb", "status"),
		clock_now_ns() + CALL_NS, NULL, err);
}

/* Attached with no credit: only for the WINDOW frames; whoever sent it hears that it is there, and does not send it again. */
static int feeder_attach(struct feeder *f, struct err *err)
{
	json_t *ok = NULL;
	int rc = framelink_call(&f->link,
		json_pack("{s:s,s:i,s:I,s:i,s:b}", "verb", "attach", "channel", f->channel, "from",
			(json_int_t)1 << 60, "window", 0, "forgets", 1),
		clock_now_ns() + CALL_NS, &ok, err);

	/* what waits there is told as taken to us too */
	f->over = json_is_true(json_object_get(ok, "input_over"));
	f->sent += (uint64_t)json_integer_value(json_object_get(ok, "input_bytes")) -
		   (uint64_t)json_integer_value(json_object_get(ok, "input_taken"));
	json_decref(ok);
	return rc;
}

static int stdin_write(struct api_call *call, struct sandbox *sb, struct exec *e, struct err *err)
{
	int fd = e->ended || sb->keeper == NULL ? -ESRCH : keeper_connect(sb->srv, sb->id), rc;
	struct feeder *f;

	if (fd < 0)
		return exec_not_running(e, err);
	if (!json_is_true(json_object_get(e->doc, "stdin")) &&
		!json_is_true(json_object_get(e->doc, "tty"))) {
		(void)close(fd);
		return err_raise(
			err, ERR_STATE, "exec '%s' was started without standard input", e->id);
	}
	f = xnew(struct feeder);
	f->client = http_stream(call->conn);
	f->channel = e->channel;
	f->link.on_frame = feeder_frame;
	f->link.on_dead = feeder_dead;
	f->link.peer = "keeper";
	if (framelink_open(&f->link, sb->srv->loop, fd) < 0)
		abort();
	rc = feeder_attach(f, err);
	if (rc == 0)
		rc = feed(call, f, e, err);
	framelink_close(&f->link, feeder_closed);
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
