/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames are read and written anew in both directions. From the sandbox they are watched for placeholders, which have no place in them. From a host that a secret is bound to all messages are
 * scrubbed as one text, however it was cut into fragments and messages, and cut anew: what may be the beginning of a secret is held back until more of the message comes, never beyond
 * its end, nor for long when it pauses. At its end scrub_flush() replaces what it is certain of, so of a secret that is spread over messages less than SCRUB_CERTAIN characters are shown.
 * Control frames may stand between the fragments of a message: what they hold is a text of its own, in both directions.
 * What the sandbox has said itself comes back as it was, else whoever repeats it would tell what a secret begins with: of messages their beginnings are noted (scrub_note()), and of control
 * frames, which every host has to repeat, all is kept until it is answered.
 */
#include "gateway/websocket.h"
#include "base/clock.h"
#include "codec/wsframe.h"

#define READ_SIZE     16384U
#define MASK_SIZE     4
#define IN_FLIGHT_MAX (READ_SIZE * 8) /* frames of no payload grow by their mask */
#define ASKED_MAX     65536U          /* of pings that are not answered */

/* What the sandbox sent in control frames: their sizes, a byte each, and payloads. */
struct asked {
	struct buf frames;
	bool forgotten; /* some of it, for want of room */
};

/* The messages of a host that a secret is bound to. */
struct scrubbing {
	struct scrub *messages, *controls;
	struct buf text;    /* of the message, scrubbed and not sent yet */
	struct buf control; /* scrubbed, of a control frame */
	enum wsframe_op op; /* of the next frame of the message */
};

struct direction {
	struct exchange *x;
	struct http1 *from, *to;
	size_t index; /* in @x->ws_*: 0 from the sandbox, 1 from the world */
	struct wsframe_reader reader;
	struct buf out;
	unsigned char mask[MASK_SIZE]; /* of the frame under way, when we are the client */
	struct scrub *watch
		[2]; /* from the sandbox, messages and control frames: finds placeholders; NULL: there are none */
	struct scrub *noting; /* from the sandbox, messages: NULL when nothing is to be hidden */
	struct scrubbing *scrubbing; /* from the world: NULL when nothing is to be hidden */
	struct asked *asked;         /* of both; NULL when nothing is to be hidden */
	struct buf payload;          /* of the control frame under way, where there is @asked */
	const char *broken;          /* what was wrong */
	bool done;
	struct waiters ended;
};

/* ---- control frames that are answered --------------------------------------------------------------------------------------- */

static void asked_add(struct asked *a, const struct buf *payload)
{
	while (a->frames.n + 1 + payload->n > ASKED_MAX) {
		buf_consume(&a->frames, 1U + (unsigned char)a->frames.p[0]);
		a->forgotten = true;
	}
	buf_char(&a->frames, (char)payload->n);
	buf_add(&a->frames, payload->p, payload->n);
}

/* Is @payload what the sandbox sent and was not answered? Now it is. */
static bool asked_take(struct asked *a, const struct buf *payload)
{
	for (size_t at = 0; at < a->frames.n;) {
		char *p = a->frames.p + at;
		size_t n = 1U + (unsigned char)*p;

		at += n;
		if (n - 1 != payload->n || memcmp(p + 1, buf_cstr(payload), n - 1) != 0)
			continue;
		memmove(p, p + n, a->frames.n - at);
		a->frames.n -= n;
		return true;
	}
	return false;
}

/* ---- scrubbed frames -------------------------------------------------------------------------------------------------------- */

static struct scrubbing *scrubbing_new(const struct exchange *x)
{
	struct scrubbing *s = xnew(struct scrubbing);

	s->messages = secrets_scrub_body(x);
	s->controls = secrets_scrub_body(x);
	s->text = (struct buf)BUF_INIT(IN_FLIGHT_MAX);
	s->control = (struct buf)BUF_INIT(WSFRAME_CONTROL_MAX);
	return s;
}

static void scrubbing_free(struct scrubbing *s)
{
	if (s == NULL)
		return;
	scrub_free(s->messages);
	scrub_free(s->controls);
	buf_free(&s->text);
	buf_free(&s->control);
	free(s);
}

static void put_frame(struct direction *d, enum wsframe_op op, bool fin, const struct buf *payload)
{
	const struct wsframe f = { .op = op, .fin = fin, .size = payload->n };
	unsigned char head[WSFRAME_HEAD_MAX];

	capture_add(&d->x->came, payload->p, payload->n);
	buf_add(&d->out, head, wsframe_head(&f, head));
	buf_add(&d->out, payload->p, payload->n);
}

/* What is certain of the message so far, as a frame of its own. */
static void put_text(struct direction *d, bool fin)
{
	struct scrubbing *s = d->scrubbing;

	put_frame(d, s->op, fin, &s->text);
	s->op = WSFRAME_CONTINUATION;
	buf_reset(&s->text);
}

static bool is_control(const struct direction *d)
{
	return d->reader.f.op >= WSFRAME_CLOSE;
}

static void scrub_begin(struct direction *d)
{
	if (!is_control(d) && d->reader.f.op != WSFRAME_CONTINUATION)
		d->scrubbing->op = d->reader.f.op;
}

static void scrub_piece(struct direction *d, const unsigned char *p, size_t n)
{
	struct scrubbing *s = d->scrubbing;

	if (is_control(d))
		buf_add(&d->payload, p, n);
	else
		scrub_write(s->messages, p, n, &s->text);
}

/* A whole control frame of the world. */
static void put_control(struct direction *d)
{
	struct scrubbing *s = d->scrubbing;
	enum wsframe_op op = d->reader.f.op;

	if (op != WSFRAME_PING && asked_take(d->asked, &d->payload)) {
		put_frame(d, op, true, &d->payload);
		return;
	}
	if (op == WSFRAME_PONG && d->payload.n > 0 && d->asked->forgotten) {
		d->broken = "too many pings were not answered";
		return;
	}
	buf_reset(&s->control);
	scrub_write(s->controls, d->payload.p, d->payload.n, &s->control);
	scrub_flush(s->controls, &s->control);
	put_frame(d, op, true, &s->control);
}

static void scrub_finish(struct direction *d)
{
	struct scrubbing *s = d->scrubbing;

	if (is_control(d)) {
		put_control(d);
		buf_reset(&d->payload);
	} else if (d->reader.f.fin) {
		scrub_flush(s->messages, &s->text);
		put_text(d, true);
	}
}

/* ---- frames ----------------------------------------------------------------------------------------------------------------- */

static void begin_frame(struct direction *d)
{
	struct wsframe f = d->reader.f;
	unsigned char head[WSFRAME_HEAD_MAX];

	d->x->ws_frames[d->index]++;
	d->x->ws_messages[d->index] += f.op == WSFRAME_TEXT || f.op == WSFRAME_BINARY;
	if (d->scrubbing != NULL) {
		scrub_begin(d);
		return;
	}
	f.masked = d->reader.from_client;
	if (f.masked && RAND_bytes(d->mask, MASK_SIZE) == 1)
		memcpy(f.mask, d->mask, MASK_SIZE);
	buf_add(&d->out, head, wsframe_head(&f, head));
}

static void add_payload(struct direction *d, unsigned char *p, size_t n)
{
	struct buf nothing = BUF_INIT(SIZE_MAX / 2);

	d->x->ws_bytes[d->index] += n;
	if (d->scrubbing != NULL) {
		scrub_piece(d, p, n);
		return;
	}
	if (d->watch[0] != NULL)
		scrub_write(d->watch[is_control(d)], p, n, &nothing);
	buf_reset(&nothing);
	if (d->asked != NULL && is_control(d))
		buf_add(&d->payload, p, n);
	else if (d->noting != NULL)
		scrub_write(d->noting, p, n, &nothing);
	buf_free(&nothing);
	capture_add(d->index == 0 ? &d->x->sent : &d->x->came, p, n);
	if (d->reader.from_client)
		wsframe_mask(d->mask, d->reader.at - n, p, n);
	buf_add(&d->out, p, n);
}

static void end_frame(struct direction *d)
{
	if (d->scrubbing != NULL) {
		scrub_finish(d);
	} else if (d->asked != NULL && is_control(d)) {
		asked_add(d->asked, &d->payload);
		buf_reset(&d->payload);
	}
}

/* Reads the frames in @p and writes them anew into @d->out. Return: 0, -EBADMSG, or -EACCES when something is in them that may not pass. */
static int restate(struct direction *d, unsigned char *p, size_t n)
{
	int found;

	do {
		size_t used, piece;

		found = wsframe_next(&d->reader, p, n, &used, &piece);
		if (found == WSFRAME_BEGIN)
			begin_frame(d);
		else if (found == WSFRAME_PIECE)
			add_payload(d, p + used - piece, piece);
		else if (found == WSFRAME_END)
			end_frame(d);
		p += used;
		n -= used;
	} while (found > 0 && d->broken == NULL);
	if (found < 0)
		d->broken = "a frame breaks the protocol";
	if (d->scrubbing != NULL && d->scrubbing->text.n > 0)
		put_text(d, false);
	return found < 0 ? found : 0;
}

/* May what was restated go on? */
static bool may_pass(struct direction *d, int rc)
{
	for (size_t i = 0; i < ARRAY_SIZE(d->watch); i++)
		if (secrets_watched(d->x, d->watch[i], "message", false) < 0)
			return false;
	return rc < 0 || d->broken == NULL;
}

static int send_out(struct direction *d)
{
	int rc = 0;

	if (d->out.n > 0)
		rc = wire_write(d->to->w, d->out.p, d->out.n, clock_now_ns() + PROXY_STALL_NS);
	buf_reset(&d->out);
	return rc;
}

/* Before this waits for long, what is held back of a message goes out: the other side may have to say something to it. */
static ssize_t read_more(struct direction *d, unsigned char *bytes)
{
	struct scrubbing *s = d->scrubbing;
	ssize_t n;

	if (s == NULL || !scrub_holds(s->messages))
		return wire_read(d->from->w, bytes, READ_SIZE, 0);
	n = wire_read(d->from->w, bytes, READ_SIZE, clock_now_ns() + PROXY_PAUSE_NS);
	if (n != -ETIMEDOUT)
		return n;
	scrub_let_go(s->messages, &s->text);
	put_text(d, false);
	if (send_out(d) < 0)
		return -EPIPE;
	return wire_read(d->from->w, bytes, READ_SIZE, 0);
}

static void relay(void *arg)
{
	struct direction *d = arg;
	unsigned char *bytes = xalloc(READ_SIZE);
	char *raw;
	size_t first = http1_raw(d->from, &raw);
	ssize_t n = first > 0 ? (ssize_t)first : 0;
	unsigned char *p = (unsigned char *)raw;
	uint64_t before;
	int rc = 0;

	while (rc == 0) {
		if (n == 0) {
			n = read_more(d, bytes);
			p = bytes;
		}
		if (n <= 0)
			break;
		before = d->x->ws_bytes[d->index];
		rc = restate(d, p, (size_t)n);
		n = 0;
		if (!may_pass(d, rc))
			break;
		before = d->x->ws_bytes[d->index] - before;
		if (exchange_take(d->x, before) < before)
			break;
		if (send_out(d) < 0)
			break;
	}
	/* without a close frame in this direction the other has nothing to wait for */
	wire_stop_reading(d->to->w);
	buf_free(&d->out);
	free(bytes);
	d->done = true;
	waiters_wake(&d->ended);
}

static void direction_init(
	struct direction *d, struct exchange *x, struct http1 *from, struct http1 *to, size_t index)
{
	bool from_sandbox = index == 0;

	*d = (struct direction){ .x = x,
		.from = from,
		.to = to,
		.index = index,
		.reader.from_client = from_sandbox,
		.watch = { from_sandbox ? secrets_watch(x) : NULL,
			from_sandbox ? secrets_watch(x) : NULL },
		.scrubbing = !from_sandbox && secrets_scrubs(x) ? scrubbing_new(x) : NULL,
		.payload = BUF_INIT(WSFRAME_CONTROL_MAX),
		.out = BUF_INIT(IN_FLIGHT_MAX) };
	waiters_init(&d->ended);
}

static void direction_fini(struct direction *d)
{
	scrub_free(d->watch[0]);
	scrub_free(d->watch[1]);
	scrub_free(d->noting);
	scrubbing_free(d->scrubbing);
	buf_free(&d->payload);
}

/* What goes @up is no news to the sandbox when it comes @down. Return: free() behind both; NULL: nothing is to be hidden. */
static struct scrub_heard *listen_to(
	struct direction *up, struct direction *down, struct asked *asked)
{
	struct scrub_heard *heard;

	if (down->scrubbing == NULL)
		return NULL;
	up->asked = down->asked = asked;
	heard = scrub_heard_new(down->scrubbing->messages);
	scrub_spare(down->scrubbing->messages, heard);
	up->noting = secrets_scrub_body(up->x);
	scrub_note(up->noting, heard);
	return heard;
}

bool websocket_agreed(const struct exchange *x)
{
	static const char guid[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
	struct policy_text key = head_field(&x->request, "sec-websocket-key"),
			   accept = head_field(&x->answer, "sec-websocket-accept");
	unsigned char text[WEBSOCKET_KEY_SIZE + sizeof(guid)], hash[EVP_MAX_MD_SIZE],
		want[EVP_MAX_MD_SIZE * 2];
	unsigned int n = 0;

	if (key.n != WEBSOCKET_KEY_SIZE)
		return false;
	memcpy(text, key.p, key.n);
	memcpy(text + key.n, guid, sizeof(guid));
	if (EVP_Digest(text, key.n + sizeof(guid) - 1, hash, &n, EVP_sha1(), NULL) != 1)
		return false;
	(void)EVP_EncodeBlock(want, hash, (int)n);
	return text_is(accept, (const char *)want);
}

void websocket_relay(struct exchange *x, struct http1 *front, struct http1 *back)
{
	struct asked asked = { .frames = BUF_INIT(ASKED_MAX) };
	struct direction up, down;
	struct scrub_heard *heard;

	direction_init(&up, x, front, back, 0);
	direction_init(&down, x, back, front, 1);
	heard = listen_to(&up, &down, &asked);
	fiber_start(relay, &up);
	relay(&down);
	while (!up.done)
		(void)!waiters_wait(&up.ended, 0);
	if (up.broken != NULL || down.broken != NULL)
		exchange_because(
			x, "failed", "WebSocket: %s", up.broken != NULL ? up.broken : down.broken);
	front->we_close = back->we_close = true;
	direction_fini(&up);
	direction_fini(&down);
	buf_free(&asked.frames);
	free(heard);
}
