/* SPDX-License-Identifier: Apache-2.0 */
#include "io/stream.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#define READ_SIZE 65536

struct write_op {
	uv_write_t req;
	struct stream *s;
	size_t n;
	char bytes[];
};

static void stream_init(struct stream *s, uv_loop_t *loop)
{
	*s = (struct stream){ .in = BUF_INIT(STREAM_IN_HIGH + READ_SIZE),
		.gathered = BUF_INIT(SIZE_MAX / 2),
		.ctx = s->ctx,
		.on_data = s->on_data };
	waiters_init(&s->readable);
	waiters_init(&s->writable);
	(void)uv_pipe_init(loop, &s->pipe, 0);
	s->pipe.data = s;
}

static void on_alloc(uv_handle_t *handle, attr_unused size_t suggested, uv_buf_t *out)
{
	struct stream *s = handle->data;
	char *p = buf_room(&s->in, READ_SIZE);

	*out = uv_buf_init(p, p != NULL ? READ_SIZE : 0);
}

static void reading_set(struct stream *s, bool on);

static void on_read(uv_stream_t *handle, ssize_t n, attr_unused const uv_buf_t *b)
{
	struct stream *s = handle->data;

	if (n == 0)
		return;
	if (n > 0) {
		buf_grown(&s->in, (size_t)n);
		s->in.p[s->in.n] = '\0';
	} else {
		s->eof = true;
		reading_set(s, false);
	}
	if (s->in.n >= STREAM_IN_HIGH)
		reading_set(s, false);
	if (s->on_data != NULL)
		s->on_data(s);
	else
		waiters_wake(&s->readable);
}

static void reading_set(struct stream *s, bool on)
{
	if (s->reading == on || s->closing || (on && s->eof))
		return;
	s->reading = on;
	if (on)
		(void)uv_read_start((uv_stream_t *)&s->pipe, on_alloc, on_read);
	else
		(void)uv_read_stop((uv_stream_t *)&s->pipe);
}

static void closed_after_failure(attr_unused uv_handle_t *handle)
{
}

int stream_open(struct stream *s, uv_loop_t *loop, int fd)
{
	int rc;

	stream_init(s, loop);
	rc = uv_pipe_open(&s->pipe, fd);
	if (rc < 0) {
		(void)close(fd);
		uv_close((uv_handle_t *)&s->pipe, closed_after_failure);
		return rc;
	}
	reading_set(s, true);
	return 0;
}

int stream_accept(struct stream *s, uv_stream_t *listener)
{
	int rc;

	stream_init(s, listener->loop);
	rc = uv_accept(listener, (uv_stream_t *)&s->pipe);
	if (rc == 0)
		reading_set(s, true);
	return rc;
}

int stream_fill(struct stream *s, uint64_t deadline_ns)
{
	size_t had = s->in.n;

	if (s->eof)
		return 0;
	reading_set(s, true);
	while (s->in.n == had && !s->eof) {
		if (waiters_wait(&s->readable, deadline_ns) < 0)
			return -ETIMEDOUT;
	}
	return s->in.n != had ? 1 : 0;
}

void stream_consume(struct stream *s, size_t n)
{
	buf_consume(&s->in, n);
	if (s->in.n < STREAM_IN_HIGH && !s->held)
		reading_set(s, true);
}

void stream_hold(struct stream *s, bool hold)
{
	s->held = hold;
	reading_set(s, !hold);
}

static void on_written(uv_write_t *req, int status)
{
	struct write_op *op = container_of(req, struct write_op, req);
	struct stream *s = op->s;

	s->queued -= op->n;
	if (status < 0 && s->error == 0)
		s->error = status;
	free(op);
	waiters_wake(&s->writable);
}

/* --- without the loop --- */

static int descriptor_of(const struct stream *s)
{
	uv_os_fd_t fd = -1;

	(void)uv_fileno((const uv_handle_t *)&s->pipe, &fd);
	return fd;
}

bool stream_hung_up(const struct stream *s)
{
	struct pollfd one = { .fd = descriptor_of(s) };

	return poll(&one, 1, 0) == 1 && (one.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

bool stream_has_left(const struct stream *s)
{
	return s->error != 0 || stream_hung_up(s);
}

static void wait_for(int fd, short events)
{
	struct pollfd one = { .fd = fd, .events = events };

	(void)poll(&one, 1, -1);
}

static void write_now(struct stream *s, const char *p, size_t n)
{
	int fd = descriptor_of(s);

	while (n > 0 && s->error == 0) {
		ssize_t done = send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (done >= 0) {
			p += done;
			n -= (size_t)done;
		} else if (errno == EAGAIN) {
			wait_for(fd, POLLOUT);
		} else if (errno != EINTR) {
			s->error = -errno;
		}
	}
}

void stream_block(struct stream *s, bool block)
{
	BUG_ON(block && (s->queued > 0 || s->corked || s->closing));
	s->blocking = block;
}

int stream_fill_now(struct stream *s)
{
	int fd = descriptor_of(s);

	for (;;) {
		char *p = buf_room(&s->in, READ_SIZE);
		ssize_t n = p == NULL ? -1 : recv(fd, p, READ_SIZE, MSG_DONTWAIT);

		if (p == NULL)
			return -ENOBUFS;
		if (n > 0) {
			s->in.n += (size_t)n;
			s->in.p[s->in.n] = '\0';
		}
		if (n >= 0)
			return n > 0;
		if (errno == EAGAIN)
			wait_for(fd, POLLIN);
		else if (errno != EINTR)
			return -errno;
	}
}

void stream_write(struct stream *s, const void *p, size_t n)
{
	struct write_op *op;
	uv_buf_t b;

	if (s->error != 0 || s->closing || n == 0)
		return;
	if (s->blocking) {
		write_now(s, p, n);
		return;
	}
	if (s->corked) {
		buf_add(&s->gathered, p, n);
		return;
	}
	if (s->queued == 0) {
		uv_buf_t all = uv_buf_init((char *)(uintptr_t)p, (unsigned int)n);
		int rc = uv_try_write((uv_stream_t *)&s->pipe, &all, 1);

		if (rc < 0 && rc != UV_EAGAIN) {
			s->error = rc;
			return;
		}
		if (rc > 0) {
			p = (const char *)p + rc;
			n -= (size_t)rc;
		}
		if (n == 0)
			return;
	}
	op = malloc(sizeof(*op) + n);
	if (op == NULL)
		abort();
	op->s = s;
	op->n = n;
	memcpy(op->bytes, p, n);
	b = uv_buf_init(op->bytes, (unsigned int)n);
	s->queued += n;
	if (uv_write(&op->req, (uv_stream_t *)&s->pipe, &b, 1, on_written) < 0) {
		s->queued -= n;
		s->error = -EPIPE;
		free(op);
	}
}

void stream_cork(struct stream *s, bool cork)
{
	s->corked = cork;
	if (cork)
		return;
	stream_write(s, s->gathered.p, s->gathered.n);
	buf_reset(&s->gathered);
}

int stream_drain(struct stream *s, size_t limit, uint64_t deadline_ns)
{
	while (s->queued > limit && s->error == 0) {
		if (waiters_wait(&s->writable, deadline_ns) < 0)
			return -ETIMEDOUT;
	}
	return s->error;
}

int stream_drain_slowly(
	struct stream *s, size_t limit, stream_patience_fn *patience, const void *ctx)
{
	size_t before = SIZE_MAX;

	while (s->queued > limit && s->error == 0) {
		/* unlike @s->queued it tells of a piece of which a part was taken */
		size_t left = uv_stream_get_write_queue_size((const uv_stream_t *)&s->pipe);
		enum stream_patience now = patience(ctx);

		if (now == STREAM_WAITS_NOT || (now == STREAM_WAITS_TAKEN && left == before))
			return -ETIMEDOUT;
		before = left;
		(void)waiters_wait(&s->writable, clock_now_ns() + STREAM_STALL_NS);
	}
	return s->error;
}

void stream_abort(struct stream *s)
{
	(void)shutdown(descriptor_of(s), SHUT_RDWR);
}

static void on_shutdown(uv_shutdown_t *req, attr_unused int status)
{
	free(req);
}

void stream_finish(struct stream *s, uint64_t deadline_ns)
{
	uv_shutdown_t *req;

	if (s->closing || s->error != 0)
		return;
	req = xnew(uv_shutdown_t);
	if (uv_shutdown(req, (uv_stream_t *)&s->pipe, on_shutdown) < 0)
		free(req);
	do
		stream_consume(s, s->in.n);
	while (stream_fill(s, deadline_ns) > 0);
}

static void on_pipe_closed(uv_handle_t *handle)
{
	struct stream *s = handle->data;

	buf_free(&s->in);
	buf_free(&s->gathered);
	s->on_closed(s);
}

static void close_now(void *arg)
{
	struct stream *s = arg;

	(void)!stream_drain(s, 0, clock_now_ns() + 5 * NS_PER_S);
	uv_close((uv_handle_t *)&s->pipe, on_pipe_closed);
}

void stream_close(struct stream *s, void (*closed)(struct stream *s))
{
	if (s->closing)
		return;
	reading_set(s, false);
	stream_cork(s, false);
	s->closing = true;
	s->eof = true;
	s->on_data = NULL;
	s->on_closed = closed;
	waiters_wake(&s->readable);
	if (s->queued == 0 || s->error != 0)
		uv_close((uv_handle_t *)&s->pipe, on_pipe_closed);
	else
		fiber_start(close_now, s);
}

int stream_peer(const struct stream *s, uid_t *uid, gid_t *gid, pid_t *pid)
{
	struct ucred c;
	socklen_t n = sizeof(c);
	uv_os_fd_t fd;
	int rc = uv_fileno((const uv_handle_t *)&s->pipe, &fd);

	if (rc < 0)
		return rc;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) < 0)
		return -errno;
	*uid = c.uid;
	*gid = c.gid;
	*pid = c.pid;
	return 0;
}

int stream_peer_groups(const struct stream *s, gid_t **ret, size_t *ret_n)
{
	cleanup_free gid_t *groups = NULL;
	socklen_t size = 0;
	uv_os_fd_t fd;
	int rc = uv_fileno((const uv_handle_t *)&s->pipe, &fd);

	/* asked with no room at all the kernel says how much it takes */
	if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &size) < 0)
		rc = errno == ERANGE ? 0 : -errno;
	groups = xalloc(size);
	if (rc == 0 && size > 0 && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		rc = -errno;
	if (rc < 0)
		return rc;
	*ret_n = size / sizeof(*groups);
	*ret = TAKE_PTR(groups);
	return 0;
}
