/* SPDX-License-Identifier: Apache-2.0 */
/* api/file_routes.c - files in and out, as streams through a job that stands inside the sandbox (docs/design/0002, get and put). */
#include "api/idle.h"
#include "api/readings.h"
#include "api/server.h"
#include "api/steps.h"
#include "api/writings.h"
#include "api_handlers.h"
#include "base/str.h"

#define HIGH_BYTES (1U << 20)

struct getter {
	struct http_conn *conn;
	struct job *job;
	bool tar, begun;
	struct buf ready;
	json_t *head; /* {"type","mode","size"} */
	struct reading reading;
};

static void getter_frame(void *ctx, const struct frame *f)
{
	struct getter *g = ctx;

	if (f->type == FRAME_OBJECT && g->reading.opening)
		reading_opened(&g->reading); /* the first that it says */
	else if (f->type == FRAME_OBJECT && g->head == NULL)
		g->head = frame_json(f);
	else if (f->type == FRAME_STDOUT && f->size > 8)
		buf_add(&g->ready, f->payload + 8, f->size - 8);
	if (g->ready.n > HIGH_BYTES)
		stream_hold(&job_link(g->job)->s, true);
}

/* Mode and size of a file go into headers, so the body begins only when they are known. */
static void getter_begin(struct getter *g)
{
	char headers[128] = "";
	json_t *mode = json_object_get(g->head, "mode");

	if (!g->tar && json_is_integer(mode))
		(void)snprintf(headers, sizeof(headers), "Cay-Mode: %04o\r\nCay-Size: %lld\r\n",
			(unsigned int)json_integer_value(mode) & 07777U,
			json_integer_value(json_object_get(g->head, "size")));
	http_begin(
		g->conn, 200, g->tar ? "application/x-tar" : "application/octet-stream", headers);
	g->begun = true;
}

static int getter_flush(struct getter *g)
{
	cleanup_buf struct buf now = g->ready;

	g->ready = (struct buf)BUF_INIT(16U << 20);
	if (buf_failed(&now)) /* bytes are missing: what has begun must not look whole */
		return -EMSGSIZE;
	if (now.n == 0)
		return 0;
	if (!g->begun)
		getter_begin(g);
	return http_write(g->conn, now.p, now.n);
}

/* What would be mounted where; of what is the host's own only where. */
static json_t *places_of(const struct sandbox *sb)
{
	json_t *places = json_array(), *m;
	size_t i, tree = 0;

	json_array_foreach (json_object_get(sb->doc, "mounts"), i, m) {
		json_t *place = json_pack("{s:O}", "target", json_object_get(m, "target"));

		if (str_eq(json_string_value(json_object_get(m, "mode")), "cow"))
			(void)json_object_set_new(place, "stack", sandbox_stack(sb, ++tree, true));
		(void)json_array_append_new(places, place);
	}
	return places;
}

/* Where the files are: the running sandbox itself, or the stacks of a stopped one. */
static int add_place(json_t *request, struct sandbox *sb, struct err *err)
{
	json_t *init = json_object_get(sb->doc, "init_pid");

	if (sb->keeper != NULL && !json_is_integer(init))
		return err_raise(err, ERR_BUSY,
			"sandbox '%s' is being started or ended: its files can be read behind that",
			sb->name);
	if (sb->keeper != NULL) {
		(void)json_object_set(request, "pid", init);
	} else {
		(void)json_object_set_new(request, "stack", sandbox_stack(sb, 0, true));
		(void)json_object_set_new(request, "places", places_of(sb));
	}
	(void)json_object_set_new(request, "uid_base", json_integer(sandbox_uid_base(sb)));
	return 0;
}

static int get_stream(struct getter *g, struct err *err)
{
	struct framelink *l = job_link(g->job);
	int rc = 0;

	while (rc == 0 && !l->dead && !list_empty(&l->calls)) {
		rc = getter_flush(g);
		if (!l->dead)
			stream_hold(&l->s, false);
		if (rc == 0 && g->ready.n == 0 && !l->dead && !list_empty(&l->calls))
			(void)waiters_wait(&l->progress, clock_now_ns() + NS_PER_S);
		if (stream_has_left(http_stream(g->conn)))
			rc = -EPIPE;
	}
	if (rc < 0) {
		framelink_abort(l);
		(void)!job_end(g->job, NULL, NULL);
		return 0;
	}
	rc = job_end(g->job, NULL, err);
	if (rc < 0)
		return g->begun
			       ? 0
			       : rc; /* broken off in the middle: the missing end tells the client */
	if (getter_flush(g) == 0) {
		if (!g->begun)
			getter_begin(g);
		http_end(g->conn);
	}
	return 0;
}

int api_files_get(struct api_call *call, struct err *err)
{
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	struct getter *g;
	json_t *request;
	int rc;

	if (sb == NULL || sandbox_wake(sb, err) < 0) {
		sandbox_unref(sb);
		return -EIO;
	}
	g = xnew(struct getter);
	g->conn = call->conn;
	g->tar = str_eq(api_text(call, "format"), "tar");
	g->ready = (struct buf)BUF_INIT(16U << 20);
	request = json_pack("{s:s,s:s,s:s,s:b}", "verb", "get", "path", api_text(call, "path"),
		"format", api_text(call, "format"), "opened", 1);
	rc = reading_begin(&g->reading, sb, err);
	if (rc == 0)
		rc = add_place(request, sb, err);
	if (rc == 0)
		rc = job_start(
			call->srv, sb->keeper, json_incref(request), getter_frame, g, &g->job, err);
	json_decref(request);
	if (rc == 0) {
		reading_started(&g->reading, g->job);
		rc = get_stream(g, err);
	}
	rc = reading_end(&g->reading, rc, err);
	json_decref(g->head);
	buf_free(&g->ready);
	free(g);
	sandbox_rest(sb);
	sandbox_unref(sb);
	return rc;
}

/* What came so far is not the file: the empty frame must not say that it is. */
static int put_given_up(struct job *job, ssize_t n, struct err *err)
{
	framelink_abort(job_link(job));
	(void)!job_end(job, NULL, NULL);
	if (n == -ESHUTDOWN)
		return err_raise(err, ERR_SHUTTING_DOWN,
			"the server is shutting down; the file was not written");
	return n < 0 ? err_raise(err, ERR_INVALID,
			       "the body is malformed or incomplete; the file was not written")
		     : err_raise(err, ERR_TIMEOUT,
			       "nothing was taken of the body for %llu s; the file was not written",
			       CALL_NS / NS_PER_S);
}

static int put_stream(struct api_call *call, struct sandbox *sb, struct job *job, struct err *err)
{
	cleanup_buf struct buf part = BUF_INIT(1U << 20);
	struct framelink *l = job_link(job);
	struct writing w;
	ssize_t n;
	int rc = 0;

	writing_begin(&w, sb, job);
	for (;;) {
		n = http_body_read(call->conn, &part);
		if (n <= 0 || l->dead || list_empty(&l->calls))
			break;
		framelink_send(l, FRAME_STDIN, 0, part.p, part.n);
		buf_reset(&part);
		rc = stream_drain(&l->s, HIGH_BYTES, clock_now_ns() + CALL_NS);
		if (rc < 0)
			break;
	}
	if (n >= 0 && rc != -ETIMEDOUT) {
		framelink_send(l, FRAME_STDIN, 0, NULL, 0);
		(void)job_await(job);
	}
	if (writing_end(&w)) {
		(void)!job_end(job, NULL, NULL);
		return writing_was_cut(sb, err);
	}
	return n < 0 || rc == -ETIMEDOUT ? put_given_up(job, n, err) : job_end(job, NULL, err);
}

int api_files_put(struct api_call *call, struct err *err)
{
	const char *mode = api_text(call, "mode");
	struct sandbox *sb = sandbox_find(call->srv, call->segments[0], err);
	json_t *request;
	struct job *job;
	int rc;

	if (sb == NULL || sandbox_wake(sb, err) < 0) {
		sandbox_unref(sb);
		return -EIO;
	}
	steps_wait(sb);
	rc = writing_allowed(sb, err);
	if (rc < 0) {
		sandbox_rest(sb);
		sandbox_unref(sb);
		return rc;
	}
	request = json_pack("{s:s,s:s,s:s}", "verb", "put", "path", api_text(call, "path"),
		"format", api_text(call, "format"));
	if (mode != NULL)
		(void)json_object_set_new(
			request, "mode", json_integer((json_int_t)strtoul(mode, NULL, 8)));
	rc = add_place(request, sb, err);
	if (rc == 0)
		rc = job_start(call->srv, sb->keeper, json_incref(request), NULL, NULL, &job, err);
	json_decref(request);
	if (rc == 0)
		rc = put_stream(call, sb, job, err);
	if (rc == 0) {
		(void)server_event(call->srv, sb, EVENT_FILES_PUT, NULL,
			json_pack("{s:s,s:s}", "path", api_text(call, "path"), "format",
				api_text(call, "format")));
		rc = api_reply(call, 204, NULL);
	}
	sandbox_rest(sb);
	sandbox_unref(sb);
	return rc;
}
