/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/websocket.h"
#include "base/clock.h"
#include "codec/wsframe.h"

#define READ_SIZE     16384U
#define MASK_SIZE     4
#define IN_FLIGHT_MAX (READ_SIZE * 8) /* frames of no payload grow by their mask */

struct direction {
	struct exchange *x;
	struct http1 *from, *to;
	size_t index; /* in @x->ws_*: 0 from the sandbox, 1 from the world */
	struct wsframe_reader reader;
	struct buf out;
	unsigned char mask[MASK_SIZE]; /* of the frame under way, when we are the client */
	bool closed;                   /* a close frame went through */
	const char *broken;            /* what was wrong */
	bool done;
	struct waiters ended;
};

static void begin_frame(struct direction *d)
{
	struct wsframe f = d->reader.f;
	unsigned char head[WSFRAME_HEAD_MAX];

	f.masked = d->reader.from_client;
	if (f.masked && RAND_bytes(d->mask, MASK_SIZE) == 1)
		memcpy(f.mask, d->mask, MASK_SIZE);
	buf_add(&d->out, head, wsframe_head(&f, head));
	d->x->ws_frames[d->index]++;
	d->x->ws_messages[d->index] += f.op == WSFRAME_TEXT || f.op == WSFRAME_BINARY;
	d->closed = d->closed || f.op == WSFRAME_CLOSE;
}

static void add_payload(struct direction *d, unsigned char *p, size_t n)
{
	d->x->ws_bytes[d->index] += n;
	capture_add(d->index == 0 ? &d->x->sent : &d->x->came, p, n);
	if (d->reader.from_client)
		wsframe_mask(d->mask, d->reader.at - n, p, n);
	buf_add(&d->out, p, n);
}

/* Reads the frames in @p and writes them anew into @d->out. Return: 0 or -EBADMSG. */
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
		p += used;
		n -= used;
	} while (found > 0);
	return found;
}

static void relay(void *arg)
{
	struct direction *d = arg;
	unsigned char *bytes = xalloc(READ_SIZE);
	char *raw;
	size_t first = http1_raw(d->from, &raw);
	ssize_t n = first > 0 ? (ssize_t)first : 0;
	unsigned char *p = (unsigned char *)raw;
	int rc = 0;

	while (rc == 0) {
		if (n == 0) {
			n = wire_read(d->from->w, bytes, READ_SIZE, 0);
			p = bytes;
		}
		if (n <= 0)
			break;
		rc = restate(d, p, (size_t)n);
		n = 0;
		if (rc == -EBADMSG)
			d->broken = "a frame breaks the protocol";
		if (d->out.n > 0 && wire_write(d->to->w, d->out.p, d->out.n,
					    clock_now_ns() + PROXY_STALL_NS) < 0)
			break;
		buf_reset(&d->out);
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
	*d = (struct direction){ .x = x,
		.from = from,
		.to = to,
		.index = index,
		.reader.from_client = index == 0,
		.out = BUF_INIT(IN_FLIGHT_MAX) };
	waiters_init(&d->ended);
}

void websocket_relay(struct exchange *x, struct http1 *front, struct http1 *back)
{
	struct direction up, down;

	direction_init(&up, x, front, back, 0);
	direction_init(&down, x, back, front, 1);
	fiber_start(relay, &up);
	relay(&down);
	while (!up.done)
		(void)!waiters_wait(&up.ended, 0);
	if (up.broken != NULL || down.broken != NULL)
		exchange_because(
			x, "failed", "WebSocket: %s", up.broken != NULL ? up.broken : down.broken);
	front->we_close = back->we_close = true;
}
