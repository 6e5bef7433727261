/* SPDX-License-Identifier: Apache-2.0 */
/* api/exec_stdin.c - writing to a command's standard input by POST. */
#include "api/server.h"
#include "api/steps.h"
#include "api_handlers.h"
#include "base/str.h"

/* The keeper tells by WINDOW frames how much input the command has taken: never more than this ahead of it. */
#define INPUT_AHEAD (1U << 20)

struct feeder {
	struct framelink link;
	uint16_t channel;
	uint64_t sent, taken; /* since we came; sent: with what the keeper had from others then */
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

/* What others send meanwhile is taken too: more than we know to be sent. */
static bool is_ahead(const struct feeder *f)
{
	return f->sent > f->taken + INPUT_AHEAD;
}

static int feed(struct api_call *call, struct feeder *f, struct exec *e, struct err *err)
{
	cleanup_buf struct buf part = BUF_INIT(1U << 20);
	ssize_t n;

	for (;;) {
		n = http_body_read(call->conn, &part);
		if (n <= 0)
			break;
		while (is_ahead(f) && !f->link.dead && !e->ended)
			(void)waiters_wait(&f->changed, clock_now_ns() + NS_PER_S);
		if (f->link.dead || e->ended)
			return exec_not_running(e, err);
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

/* Attached with no credit: only for the WINDOW frames; whoever sent it hears that it is there, and does not send it again. */
static int feeder_attach(struct feeder *f, struct err *err)
{
	json_t *ok = NULL;
	int rc = framelink_call(&f->link,
		json_pack("{s:s,s:i,s:I,s:i,s:b}", "verb", "attach", "channel", f->channel, "from",
			(json_int_t)1 << 60, "window", 0, "forgets", 1),
		clock_now_ns() + CALL_NS, &ok, err);

	/* what waits there is told as taken to us too */
	f->sent += (uint64_t)json_integer_value(json_object_get(ok, "input_bytes")) -
		   (uint64_t)json_integer_value(json_object_get(ok, "input_taken"));
	json_decref(ok);
	return rc;
}

static int stdin_send(struct api_call *call, struct sandbox *sb, struct exec *e, struct err *err)
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
	f->channel = e->channel;
	f->link.on_frame = feeder_frame;
	f->link.on_dead = feeder_dead;
	f->link.peer = "keeper";
	waiters_init(&f->changed);
	if (framelink_open(&f->link, sb->srv->loop, fd) < 0)
		abort();
	rc = feeder_attach(f, err);
	if (rc == 0)
		rc = feed(call, f, e, err);
	framelink_close(&f->link, feeder_closed);
	return rc;
}

int api_exec_stdin(struct api_call *call, struct err *err)
{
	struct sandbox *sb;
	struct exec *e;
	int rc = exec_find_awake(call, &sb, &e, err);

	if (rc < 0)
		return rc;
	steps_wait(sb);
	rc = stdin_send(call, sb, e, err);
	if (rc == 0)
		rc = api_reply(call, 204, NULL);
	exec_let_rest(sb, e);
	return rc;
}
