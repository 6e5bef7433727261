/* SPDX-License-Identifier: Apache-2.0 */
#include "api/pump.h"
#include "base/str.h"

/* One frame to a client; nothing when it is NULL. */
static void pump_send(struct stream *s, enum frame_type type, const void *p, size_t n)
{
	cleanup_buf struct buf out = BUF_INIT(FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE);

	if (s == NULL)
		return;
	frame_encode(&out, type, 0, p, n);
	stream_write(s, out.p, out.n);
}

void pump_send_object(struct stream *s, enum frame_type type, json_t *object)
{
	cleanup_free char *text = json_dumps(object, JSON_COMPACT);

	json_decref(object);
	pump_send(s, type, text, strlen(text));
}

void pump_let_go(struct pump *p)
{
	p->waits = false;
	if (p->client != NULL)
		stream_write(p->client, p->early.p, p->early.n);
	buf_free(&p->early);
}

bool pump_was_rewound(const struct pump *p)
{
	return p->exec->comes_back || p->exec->rewinds != p->rewinds;
}

/* @reached, behind the frame of output or the gap. */
static uint64_t pump_reached(uint64_t reached, enum frame_type type, const void *payload, size_t n)
{
	const unsigned char *p = payload;

	if ((type == FRAME_STDOUT || type == FRAME_STDERR) && n >= 8)
		return frame_get_u64(p) + n - 8;
	return type == FRAME_GAP && n == 16 ? frame_get_u64(p + 8) : reached;
}

void pump_send_offset(struct stream *client, const struct exec *e, uint64_t reached)
{
	unsigned char offset[8];

	if (reached <= e->rewound_to)
		return;
	frame_put_u64(offset, e->rewound_to);
	pump_send(client, FRAME_STDOUT, offset, sizeof(offset));
}

void pump_send_end(struct stream *client, const struct exec *e, uint64_t reached)
{
	json_t *status = json_object_get(e->doc, "status");
	uint64_t end = (uint64_t)json_integer_value(json_object_get(status, "output_bytes"));
	unsigned char gap[16];

	if (reached < end) {
		frame_put_u64(gap, reached);
		frame_put_u64(gap + 8, end);
		pump_send(client, FRAME_GAP, gap, sizeof(gap));
	}
	pump_send_object(client, FRAME_STATUS, json_incref(status));
}

/* From the keeper to the client. */
static void pump_down(struct pump *p, const struct frame *f)
{
	if (f->type == FRAME_EVENT || f->type == FRAME_REPLY || p->status_sent ||
		pump_was_rewound(p))
		return;
	p->reached = pump_reached(p->reached, f->type, f->payload, f->size);
	if (f->type == FRAME_STATUS && p->cork_status)
		stream_cork(p->client, true);
	if (p->waits)
		frame_encode(&p->early, f->type, 0, f->payload, f->size);
	else
		pump_send(p->client, f->type, f->payload, f->size);
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
		if (f.type == FRAME_STDIN && p->input_open >= PUMP_WINDOW)
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

/* The server ends: what came from the client goes to the keeper; what has not come yet it sends to the next server. */
static int hand_over(struct pump *p)
{
	(void)pump_up(p);
	(void)!stream_drain(&p->keeper->s, 0, clock_now_ns() + CALL_NS);
	return -ESHUTDOWN;
}

/* The command has ended, and so does its run: until when does the client have what is left of the output? 0: it is not hurried. */
static uint64_t hurried_until(const struct pump *p)
{
	return p->exec->ended ? p->exec->sandbox->hurry_ns : 0;
}

/* It has not asked for the rest in time. */
static int cut_short(struct pump *p)
{
	p->status_sent = true;
	if (p->cork_status)
		stream_cork(p->client, true);
	pump_send_end(p->client, p->exec, p->reached);
	return 0;
}

static int carry(struct pump *p)
{
	for (;;) {
		uint64_t until = hurried_until(p);

		if (p->status_sent)
			return 0;
		if (p->broken)
			return -EIO;
		if (p->srv->stopping)
			return hand_over(p);
		if (p->client->eof || p->client->error != 0 || pump_up(p) < 0)
			return -EPIPE;
		if (until > 0 && clock_now_ns() >= until)
			return cut_short(p);
		if (p->keeper->s.queued > PUMP_WINDOW * 8)
			(void)!stream_drain(&p->keeper->s, PUMP_WINDOW, clock_now_ns() + CALL_NS);
		if (!p->status_sent && !p->broken && !p->client->eof && !p->srv->stopping)
			(void)waiters_wait(&p->client->readable, until);
	}
}

int pump_run(struct pump *p)
{
	int rc;

	list_append(&p->srv->pumps, &p->node);
	rc = carry(p);
	list_remove(&p->node);
	return rc;
}

void pumps_wake(struct server *srv)
{
	list_for_each (&srv->pumps, node, next)
		waiters_wake(&list_entry(node, struct pump, node)->client->readable);
}

void pump_init(struct pump *p, struct exec *e, struct stream *client, struct framelink *main)
{
	*p = (struct pump){ .sink = { on_sink, on_sink_lost },
		.srv = e->sandbox->srv,
		.client = client,
		.exec = e,
		.rewinds = e->rewinds,
		.channel = e->channel,
		.early = BUF_INIT(SIZE_MAX / 2) };
	p->link.on_frame = on_link_frame;
	p->link.on_dead = on_link_dead;
	p->link.peer = "keeper";
	p->keeper = main != NULL ? main : &p->link;
}

json_t *pump_attach_request(const struct pump *p, uint64_t from)
{
	return json_pack("{s:s,s:i,s:I,s:i,s:b}", "verb", "attach", "channel", p->channel, "from",
		(json_int_t)from, "window", (int)PUMP_WINDOW, "hold", 1);
}

void pump_send_input(struct stream *client, const json_t *ok)
{
	const json_t *shown = json_object_get(ok, "shown");

	/* of an older keeper that does not say it: somebody will have seen it */
	if (shown == NULL)
		shown = json_object_get(ok, "end");
	pump_send_object(client, FRAME_OBJECT,
		json_pack("{s:{s:I,s:I},s:I}", "input", "received",
			json_integer_value(json_object_get(ok, "input_bytes")), "taken",
			json_integer_value(json_object_get(ok, "input_taken")), "shown",
			json_integer_value(shown)));
}

enum stream_patience pump_patience(const void *ctx)
{
	const struct server *srv = ctx;

	return srv->stopping ? STREAM_WAITS_TAKEN : STREAM_WAITS;
}

int pump_saved(void *ctx, enum frame_type type, const void *payload, size_t n)
{
	struct saved_reader *r = ctx;

	pump_send(r->client, type, payload, n);
	r->reached = pump_reached(r->reached, type, payload, n);
	return stream_drain_slowly(r->client, PUMP_WINDOW, r->patience, r->ctx);
}
