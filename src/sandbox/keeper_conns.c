/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox/keeper_conns.c - the keeper's connections: accepting, reading frames, sending output to those who are attached. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/str.h"
#include "sandbox/keeper.h"
#include "sys/fdpass.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define CONN_OUT_MAX  (64U << 20) /* events and replies; attached output stops far below */
#define CONN_OUT_HIGH (256U << 10)
#define CONN_IN_MAX   (FRAME_PAYLOAD_MAX + FRAME_HEADER_SIZE + 65536U)
#define CHUNK         65536U

struct conn *keeper_conn_new(struct keeper *k, int fd, bool primary)
{
	struct conn *c = xnew(struct conn);

	c->fd = fd;
	c->in = (struct buf)BUF_INIT(CONN_IN_MAX);
	c->out = (struct buf)BUF_INIT(CONN_OUT_MAX);
	c->primary = primary;
	list_init(&c->attachments);
	list_append(&k->conns, &c->node);
	(void)fcntl(fd, F_SETFL, O_NONBLOCK);
	keeper_send_json(c, FRAME_REPLY, 0,
		json_pack("{s:i, s:{s:o}}", "id", 0, "ok", "hello", keeper_hello(k)));
	return c;
}

/* What came with @c. */
static void close_fds(struct conn *c)
{
	for (size_t i = 0; i < c->n_fds; i++)
		fd_close(&c->fds[i]);
	c->n_fds = 0;
}

static void conn_free(struct keeper *k, struct conn *c)
{
	list_for_each (&k->waiters, pos, next) {
		struct waiter *w = list_entry(pos, struct waiter, node);

		if (w->conn == c)
			w->conn = NULL;
	}
	list_for_each (&c->attachments, at, at_next) {
		struct attachment *a = list_entry(at, struct attachment, node);

		list_remove(&a->node);
		if (a->hold) {
			a->expires_ns = clock_now_ns() + KEEPER_HOLD_NS;
			list_append(&k->held, &a->node);
		} else {
			free(a);
		}
	}
	if (c->primary) {
		k->events_sent =
			0; /* the next primary connection gets them all again and acknowledges */
		if (k->state < KEEPER_RUNNING || (k->provisional && k->state != KEEPER_STOPPING))
			keeper_move(k, KEEPER_STOPPING);
	}
	list_remove(&c->node);
	close_fds(c);
	fd_close(&c->fd);
	buf_free(&c->in);
	buf_free(&c->out);
	free(c);
}

bool keeper_conn_read(struct keeper *k, struct conn *c)
{
	char *room = buf_room(&c->in, 65536);
	struct frame f;
	ssize_t n, used;
	size_t done = 0;

	if (room == NULL) {
		c->broken = true;
		return false;
	}
	close_fds(c);
	n = fdpass_recv(c->fd, room, 65536, c->fds, HELD_MAX, &c->n_fds);
	if (n <= 0) {
		c->broken = n != -EAGAIN;
		return false;
	}
	buf_grown(&c->in, (size_t)n);
	while (!c->broken && (used = frame_decode(c->in.p + done, c->in.n - done, &f)) != 0) {
		if (used < 0) {
			c->broken = true;
			return true;
		}
		keeper_handle(k, c, &f);
		done += (size_t)used;
	}
	buf_consume(&c->in, done);
	return true;
}

/*
 * What was sent is not yet what was received: until it is acknowledged it stays, but for more than half of the ring, or a client that acknowledges late and a
 * small ring would wait for each other.
 */
uint64_t attachment_needs(const struct attachment *a, const struct exec *e)
{
	uint64_t open = a->hold && a->window > a->credit ? a->window - a->credit : 0;

	if (!a->hold && a->window == 0 && a->credit == 0)
		return UINT64_MAX; /* it brings input and reads nothing: its place never moves */
	if (open > e->ring.max / 2)
		open = e->ring.max / 2;
	return a->next > open ? a->next - open : 0;
}

void keeper_release(struct keeper *k, uint16_t channel)
{
	list_for_each (&k->held, pos, next) {
		struct attachment *a = list_entry(pos, struct attachment, node);

		if (a->channel != channel)
			continue;
		list_remove(&a->node);
		free(a);
	}
}

void keeper_hold(struct keeper *k, uint16_t channel, uint64_t from)
{
	struct attachment *a = xnew(struct attachment);

	keeper_release(k, channel); /* it may be started again */
	a->channel = channel;
	a->next = from;
	a->hold = true;
	a->expires_ns = clock_now_ns() + KEEPER_HOLD_NS;
	list_append(&k->held, &a->node);
}

void keeper_hold_attended(struct keeper *k, const json_t *attended)
{
	const json_t *channel;
	size_t i;

	json_array_foreach (attended, i, channel) {
		const struct exec *e = keeper_find_exec(k, (uint16_t)json_integer_value(channel));

		if (e != NULL)
			keeper_hold(k, e->channel, e->ring.start);
	}
}

void keeper_conns_read(struct keeper *k, const struct conn *c)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *other = list_entry(pos, struct conn, node);

		while (other != c && !other->broken && keeper_conn_read(k, other))
			;
	}
}

void keeper_conns_drain(struct keeper *k, const struct conn *c)
{
	keeper_conns_read(k, c);
	list_for_each (&k->conns, pos, next) {
		struct conn *other = list_entry(pos, struct conn, node);

		other->broken |= other != c;
	}
}

void keeper_conn_write(struct conn *c)
{
	while (!c->broken && c->out.n > 0) {
		ssize_t n = send(c->fd, c->out.p, c->out.n, MSG_NOSIGNAL);

		if (n < 0) {
			c->broken = errno != EAGAIN && errno != EINTR;
			return;
		}
		buf_consume(&c->out, (size_t)n);
	}
}

static void send_gap(struct conn *c, struct attachment *a, uint64_t to)
{
	unsigned char gap[16];

	frame_put_u64(gap, a->next);
	frame_put_u64(gap + 8, to);
	frame_encode(&c->out, FRAME_GAP, a->channel, gap, sizeof(gap));
	a->next = to;
}

static void send_output(
	struct conn *c, const struct attachment *a, bool err, const void *bytes, size_t n)
{
	frame_encode_output(
		&c->out, err ? FRAME_STDERR : FRAME_STDOUT, a->channel, a->next, bytes, n);
}

/* What the ring no longer holds: from disk as far as it is there; a gap up to what is there next. Return: bytes sent. */
static size_t send_kept(struct conn *c, struct attachment *a, const struct exec *e, size_t max)
{
	struct outfile_part part = { .offset = e->ring.start };
	static char bytes[CHUNK];

	if (!spill_is_open(&e->spill) || outfile_find(&e->spill.file, a->next, &part) <= 0 ||
		part.offset > e->ring.start)
		part = (struct outfile_part){ .offset = e->ring.start };
	if (part.offset > a->next)
		send_gap(c, a, part.offset);
	if (part.n > max)
		part.n = max;
	if (part.n == 0)
		return 0;
	if (outfile_read(&e->spill.file, &part, bytes, (size_t)part.n) < 0) {
		send_gap(c, a, e->ring.start);
		return 0;
	}
	send_output(c, a, part.err, bytes, (size_t)part.n);
	return (size_t)part.n;
}

/* From the ring. Return: bytes sent. */
static size_t send_held(struct conn *c, struct attachment *a, const struct exec *e, size_t max)
{
	enum ring_stream stream;
	const char *bytes;
	size_t n = ring_read(&e->ring, a->next, max, &stream, &bytes);

	send_output(c, a, stream == RING_STDERR, bytes, n);
	return n;
}

/* Send as much output as connection and credit take; then the final status, which ends the attachment. Return: is there more to do at once? */
static bool pump_attachment(struct keeper *k, struct conn *c, struct attachment *a)
{
	struct exec *e = keeper_find_exec(k, a->channel);
	uint64_t before = a->next;

	if (e == NULL || e->state == EXEC_STARTING)
		return false;
	while (c->out.n < CONN_OUT_HIGH && a->credit > 0 && a->next < e->ring.end) {
		size_t max = a->credit < CHUNK ? (size_t)a->credit : CHUNK;
		size_t n =
			a->next < e->ring.start ? send_kept(c, a, e, max) : send_held(c, a, e, max);

		a->next += n;
		if (a->credit != UINT64_MAX)
			a->credit -= n;
		/* who only reads does not hold, and answers nothing */
		if (a->hold && a->next > e->shown)
			e->shown = a->next;
	}
	if (e->state != EXEC_ENDED || a->next != e->ring.end)
		return a->next != before;
	/* output that was held back for this client comes before the status */
	bool more = keeper_read_output(k, e, RING_STDOUT, a->next);
	more = keeper_read_output(k, e, RING_STDERR, a->next) || more;
	if (more)
		return true;
	(void)json_object_set_new(e->status, "output_bytes", json_integer((json_int_t)e->ring.end));
	keeper_send_json(c, FRAME_STATUS, a->channel, json_incref(e->status));
	list_remove(&a->node);
	free(a);
	return false;
}

/* Tell every client of an exec how much of its input was taken. */
static void send_windows(struct keeper *k)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		list_for_each (&c->attachments, at, at_next) {
			struct attachment *a = list_entry(at, struct attachment, node);
			struct exec *e = keeper_find_exec(k, a->channel);
			unsigned char bytes[4];

			if (e == NULL || e->input_taken == a->input_told)
				continue;
			frame_put_u32(bytes, (uint32_t)(e->input_taken - a->input_told));
			frame_encode(&c->out, FRAME_WINDOW, a->channel, bytes, sizeof(bytes));
			a->input_told = e->input_taken;
		}
	}
}

/* Its reply is out: from now on it is the gateway's. Without one it is closed, and cayd comes again. */
static void hand_over(struct keeper *k, struct conn *c)
{
	if (!c->handover || c->broken || c->out.n > 0)
		return;
	(void)!keeper_gateway_hand_over(k, c->fd);
	c->broken = true;
}

/* Return: has anything been taken from what there is? */
static bool pump_attachments(struct keeper *k, struct conn *c)
{
	bool any = false;

	list_for_each (&c->attachments, at, at_next) {
		struct attachment *a = list_entry(at, struct attachment, node);

		while (!c->broken && pump_attachment(k, c, a)) {
			any = true;
			keeper_conn_write(c);
			if (c->out.n > 0) {
				(void)fault("keeper.pump.full");
				break;
			}
		}
	}
	return any;
}

/* Until all is sent or the socket takes no more: then poll says when it goes on, which it does only for what waits in @c->out. */
static void pump_conn(struct keeper *k, struct conn *c)
{
	bool again = true;

	while (again) {
		bool waited = c->out.n > 0;

		again = pump_attachments(k, c) || waited;
		if (!keeper_is_quiet(k, c))
			keeper_conn_write(c);
		again = again && c->out.n == 0 && !c->broken;
	}
}

void keeper_pump(struct keeper *k)
{
	send_windows(k);
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		pump_conn(k, c);
		hand_over(k, c);
	}
}

void keeper_accept(struct keeper *k)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);
	struct stat run;
	int fd = accept4(k->listen_fd, NULL, NULL, SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
		stat(k->config.run, &run) < 0 || (peer.uid != 0 && peer.uid != run.st_uid)) {
		(void)close(fd);
		return;
	}
	(void)keeper_conn_new(k, fd, false);
}

int keeper_listen(struct keeper *k, struct err *err)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int n = snprintf(address.sun_path, sizeof(address.sun_path), "%s/keepers/%s.sock",
		k->config.run, k->id);
	cleanup_fd int fd = -1;

	if (n < 0 || (size_t)n >= sizeof(address.sun_path))
		return err_raise(err, ERR_INVALID,
			"runtime directory '%s': the path is too long for a socket", k->config.run);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_raise_sys(err, -errno, "make the keeper's socket");
	(void)unlink(address.sun_path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		chmod(address.sun_path, 0666) < 0 || listen(fd, 64) < 0)
		return err_raise_sys(err, -errno, "listen on '%s'", address.sun_path);
	k->listen_fd = TAKE_FD(fd);
	return 0;
}

void keeper_close_broken(struct keeper *k)
{
	list_for_each (&k->conns, pos, next) {
		struct conn *c = list_entry(pos, struct conn, node);

		/* nobody would let the sandbox go */
		if (c->broken && c == k->capture_conn)
			keeper_capture_end(k);
		if (c->broken && c == k->ahead_conn)
			keeper_ahead_end(k);
		if (c->broken && c == k->waiting_conn) {
			k->waiting_conn = NULL;
			json_decref(TAKE_PTR(k->waiting));
		}
		if (c->broken)
			conn_free(k, c);
	}
}
