/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/wire.h"
#include "base/clock.h"

#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* ---- waiting ---------------------------------------------------------------------------------------------------------------- */

static void on_poll(uv_poll_t *poll, int status, int events);

static void arm(struct wire *w, int events)
{
	if (events == w->armed)
		return;
	w->armed = events;
	if (events == 0)
		(void)uv_poll_stop(&w->poll);
	else
		(void)uv_poll_start(&w->poll, events, on_poll);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct wire *w = poll->data;

	if (status < 0)
		events = UV_READABLE | UV_WRITABLE | UV_DISCONNECT;
	if ((events & UV_READABLE) != 0)
		w->drained = false;
	if ((events & (UV_WRITABLE | UV_DISCONNECT)) != 0 || !waiters_any(&w->readers))
		arm(w, w->armed & ~events);
	if ((events & UV_WRITABLE) != 0)
		waiters_wake(&w->writers);
	if ((events & UV_READABLE) != 0)
		waiters_wake(&w->readers);
	if ((events & UV_DISCONNECT) != 0 && w->left != NULL) {
		wire_left_fn *left = w->left;

		w->left = NULL;
		left(w->left_ctx, status < 0);
	}
}

static int wait_for(struct wire *w, int event, uint64_t deadline_ns)
{
	struct waiters *queue = event == UV_READABLE ? &w->readers : &w->writers;

	BUG_ON(w->closing);
	arm(w, w->armed | event);
	return waiters_wait(queue, deadline_ns);
}

/* ---- the socket ------------------------------------------------------------------------------------------------------------- */

/* Return: bytes, 0 at the end, -EAGAIN, other -errno. */
static ssize_t receive(struct wire *w, void *p, size_t n)
{
	ssize_t got;

	if (w->prefix != NULL) {
		size_t left = w->prefix_n - w->prefix_at;

		n = n < left ? n : left;
		memcpy(p, w->prefix + w->prefix_at, n);
		w->prefix_at += n;
		if (w->prefix_at == w->prefix_n) {
			free(w->prefix);
			w->prefix = NULL;
		}
		return (ssize_t)n;
	}
	if (w->drained)
		return -EAGAIN;
	do
		got = recv(w->fd, p, n, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		got = -errno;
	w->drained = got == -EAGAIN || (got > 0 && (size_t)got < n);
	return got;
}

static ssize_t transmit(struct wire *w, const void *p, size_t n)
{
	ssize_t sent;

	do
		sent = send(w->fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	w->taken += sent > 0 ? (uint64_t)sent : 0;
	return sent < 0 ? -errno : sent;
}

/* ---- OpenSSL's view of it --------------------------------------------------------------------------------------------------- */

static int bio_read(BIO *bio, char *p, int n)
{
	ssize_t got = receive(BIO_get_data(bio), p, n > 0 ? (size_t)n : 0);

	BIO_clear_retry_flags(bio);
	if (got == -EAGAIN)
		BIO_set_retry_read(bio);
	return got < 0 ? -1 : (int)got;
}

static int bio_write(BIO *bio, const char *p, int n)
{
	ssize_t sent = transmit(BIO_get_data(bio), p, n > 0 ? (size_t)n : 0);

	BIO_clear_retry_flags(bio);
	if (sent == -EAGAIN)
		BIO_set_retry_write(bio);
	return sent < 0 ? -1 : (int)sent;
}

static long bio_ctrl(attr_unused BIO *bio, int cmd, attr_unused long num, attr_unused void *ptr)
{
	return cmd == BIO_CTRL_FLUSH ? 1 : 0;
}

static BIO_METHOD *bio_method(void)
{
	static BIO_METHOD *method;

	if (method == NULL) {
		method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "wire");
		BUG_ON(method == NULL);
		(void)BIO_meth_set_read(method, bio_read);
		(void)BIO_meth_set_write(method, bio_write);
		(void)BIO_meth_set_ctrl(method, bio_ctrl);
	}
	return method;
}

uint64_t wire_delivered(const struct wire *w)
{
	int queued = 0;

	return ioctl(w->fd, SIOCOUTQ, &queued) == 0 ? w->taken - (uint64_t)queued : 0;
}

/* The kernel says that there is room when a third of its buffer is free, which takes who reads slowly a long time. Return: 0 = try again; -errno. */
static int wait_for_room(struct wire *w, uint64_t deadline_ns)
{
	uint64_t delivered = wire_delivered(w);
	int rc = wait_for(w, UV_WRITABLE, deadline_ns);

	return rc == -ETIMEDOUT && wire_delivered(w) > delivered ? 0 : rc;
}

/*
 * What a failed call of OpenSSL asks for. Return: 0 = call again; -errno.
 * Must be the first to look after the call: it reads the error queue.
 */
static int after(struct wire *w, int result, uint64_t deadline_ns)
{
	switch (SSL_get_error(w->ssl, result)) {
	case SSL_ERROR_WANT_READ:
		return w->stopped ? -ECANCELED : wait_for(w, UV_READABLE, deadline_ns);
	case SSL_ERROR_WANT_WRITE:
		return wait_for_room(w, deadline_ns);
	case SSL_ERROR_ZERO_RETURN:
	case SSL_ERROR_SYSCALL:
		return -EPIPE;
	default:
		return -EPROTO;
	}
}

static int handshake(struct wire *w, SSL *ssl, int (*step)(SSL *), uint64_t deadline_ns)
{
	BIO *bio = BIO_new(bio_method());
	int rc = 0, done;

	BUG_ON(w->ssl != NULL);
	w->ssl = ssl;
	if (bio == NULL)
		return -ENOMEM;
	BIO_set_data(bio, w);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
	do {
		ERR_clear_error();
		done = step(ssl);
		if (done != 1)
			rc = after(w, done, deadline_ns);
	} while (done != 1 && rc == 0);
	return done == 1 ? 0 : rc;
}

int wire_accept_tls(struct wire *w, SSL *ssl, uint64_t deadline_ns)
{
	return handshake(w, ssl, SSL_accept, deadline_ns);
}

int wire_connect_tls(struct wire *w, SSL *ssl, uint64_t deadline_ns)
{
	return handshake(w, ssl, SSL_connect, deadline_ns);
}

/* ---- traffic ---------------------------------------------------------------------------------------------------------------- */

static uint64_t counted;

void wire_count(size_t n)
{
	counted += n;
}

uint64_t wire_counted(void)
{
	return counted;
}

/* ---- bytes ------------------------------------------------------------------------------------------------------------------ */

static ssize_t read_plain(struct wire *w, void *p, size_t n, uint64_t deadline_ns)
{
	for (;;) {
		ssize_t got = receive(w, p, n);
		int rc;

		if (got != -EAGAIN)
			return got;
		rc = w->stopped ? -ECANCELED : wait_for(w, UV_READABLE, deadline_ns);
		if (rc < 0)
			return rc;
	}
}

static ssize_t read_tls(struct wire *w, void *p, size_t n, uint64_t deadline_ns)
{
	for (;;) {
		int got, rc;

		ERR_clear_error();
		got = SSL_read(w->ssl, p, n > INT32_MAX ? INT32_MAX : (int)n);
		if (got > 0)
			return got;
		/* Without the peer's close_notify an end is no end: content could have been cut off. */
		if (SSL_get_error(w->ssl, got) == SSL_ERROR_ZERO_RETURN)
			return 0;
		rc = after(w, got, deadline_ns);
		if (rc < 0)
			return rc;
	}
}

ssize_t wire_read(struct wire *w, void *p, size_t n, uint64_t deadline_ns)
{
	ssize_t got;

	if (w->stopped)
		return -ECANCELED;
	got = w->ssl != NULL ? read_tls(w, p, n, deadline_ns) : read_plain(w, p, n, deadline_ns);
	if (got > 0) {
		w->received += (uint64_t)got;
		wire_count((size_t)got);
	}
	return got;
}

/* Return: bytes taken (> 0), 0 = call again, -errno. */
static ssize_t write_some(struct wire *w, const char *p, size_t n, uint64_t deadline_ns)
{
	ssize_t sent;

	if (w->ssl == NULL) {
		sent = transmit(w, p, n);
		return sent != -EAGAIN ? sent : wait_for_room(w, deadline_ns);
	}
	ERR_clear_error();
	sent = SSL_write(w->ssl, p, n > INT32_MAX ? INT32_MAX : (int)n);
	return sent > 0 ? sent : after(w, (int)sent, deadline_ns);
}

int wire_write(struct wire *w, const void *p, size_t n, uint64_t deadline_ns)
{
	uint64_t now = clock_now_ns(), may = deadline_ns > now ? deadline_ns - now : 0;
	const char *at = p;

	w->sent += n;
	wire_count(n);
	while (n > 0) {
		ssize_t sent = write_some(w, at, n, may > 0 ? now + may : deadline_ns);

		if (sent < 0)
			return (int)sent;
		at += sent;
		n -= (size_t)sent;
		now = clock_now_ns();
	}
	return 0;
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

struct wire *wire_new(uv_loop_t *loop, int fd, const void *prefix, size_t n)
{
	struct wire *w = xnew(struct wire);

	BUG_ON(n > WIRE_PREFIX_MAX);
	w->fd = fd;
	waiters_init(&w->readers);
	waiters_init(&w->writers);
	if (uv_poll_init(loop, &w->poll, fd) < 0) {
		(void)close(fd);
		free(w);
		return NULL;
	}
	w->poll.data = w;
	if (n > 0) {
		w->prefix = xalloc(n);
		memcpy(w->prefix, prefix, n);
		w->prefix_n = n;
	}
	return w;
}

static void on_closed(uv_handle_t *handle)
{
	struct wire *w = handle->data;

	(void)close(w->fd);
	free(w->prefix);
	free(w);
}

static void release(struct wire *w)
{
	BUG_ON(w->closing || waiters_any(&w->readers) || waiters_any(&w->writers));
	w->closing = true;
	SSL_free(w->ssl);
	w->ssl = NULL;
	uv_close((uv_handle_t *)&w->poll, on_closed);
}

void wire_close(struct wire *w)
{
	if (w == NULL)
		return;
	if (w->ssl != NULL) {
		ERR_clear_error();
		(void)SSL_shutdown(w->ssl);
	}
	(void)shutdown(w->fd, SHUT_RDWR);
	release(w);
}

void wire_reset(struct wire *w)
{
	if (w == NULL)
		return;
	(void)setsockopt(
		w->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
	if (w->ssl != NULL)
		SSL_set_quiet_shutdown(w->ssl, 1);
	release(w);
}

void wire_finish(struct wire *w, uint64_t deadline_ns)
{
	char sink[4096];

	if (w->ssl != NULL) {
		ERR_clear_error();
		(void)SSL_shutdown(w->ssl);
	}
	(void)shutdown(w->fd, SHUT_WR);
	w->stopped = false;
	for (ssize_t got = 1; got > 0;)
		got = read_plain(w, sink, sizeof(sink), deadline_ns);
}

void wire_stop_reading(struct wire *w)
{
	w->stopped = true;
	waiters_wake(&w->readers);
}

void wire_watch(struct wire *w, wire_left_fn *fn, void *ctx)
{
	w->left = fn;
	w->left_ctx = ctx;
	arm(w, fn != NULL ? w->armed | UV_DISCONNECT : w->armed & ~UV_DISCONNECT);
}

bool wire_idle(struct wire *w)
{
	char byte;
	ssize_t got;

	if (w->ssl != NULL && SSL_has_pending(w->ssl) != 0)
		return false;
	got = recv(w->fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
	return got < 0 && errno == EAGAIN;
}
