/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/wire.h - a connected socket, plain or under TLS, in straight-line code.
 *
 * Nothing is queued: a write returns when the kernel has taken all of it, a read when there is something, so a slow side slows the other and memory stays
 * bounded. One fiber may read while another writes.
 */
#ifndef CAY_GATEWAY_WIRE_H
#define CAY_GATEWAY_WIRE_H

#include "gateway/openssl.h"
#include "io/fiber.h"

#define WIRE_PREFIX_MAX 65536

/** wire_left_fn - the peer has closed or reset the connection (@sure), or says that it will send no more. Must not wait. */
typedef void wire_left_fn(void *ctx, bool sure);

struct wire {
	uv_poll_t poll;
	int fd;
	int armed;    /* UV_READABLE, UV_WRITABLE, UV_DISCONNECT */
	SSL *ssl;     /* NULL: plain */
	bool drained; /* the last read took all there was: wait before the next one */
	bool stopped; /* wire_stop_reading() */
	bool closing;
	struct waiters readers, writers;
	wire_left_fn *left;
	void *left_ctx;
	char *prefix; /* bytes that were read before the wire was made */
	size_t prefix_n, prefix_at;
	uint64_t received, sent; /* bytes of content, without TLS */
	uint64_t taken;          /* bytes that the kernel took, with TLS */
};

/**
 * wire_new() - take over the connected non-blocking socket @fd.
 * @prefix: @n bytes that were received on it already; copied; at most %WIRE_PREFIX_MAX.
 * Return: the wire, wire_close(); NULL on failure (then @fd is closed).
 */
struct wire *wire_new(uv_loop_t *loop, int fd, const void *prefix, size_t n) attr_must_use;

/** wire_count() - @n bytes have passed this gateway. */
void wire_count(size_t n);

/** wire_counted() - how many have, since it began. */
uint64_t wire_counted(void);

/** wire_close() - close at once and free. No fiber may wait on it. NULL is allowed. */
void wire_close(struct wire *w);

/** wire_reset() - as wire_close(), but the peer gets a reset instead of an orderly end. */
void wire_reset(struct wire *w);

/**
 * wire_accept_tls() - go on under TLS, as server.
 * @ssl: set up but for its transport; owned by the wire from now on, also on failure.
 * Return: 0; -EPROTO (see the OpenSSL error queue), -EPIPE, -ETIMEDOUT. Context: fiber; waits.
 */
int wire_accept_tls(struct wire *w, SSL *ssl, uint64_t deadline_ns) attr_must_use;

/** wire_connect_tls() - the same as client. */
int wire_connect_tls(struct wire *w, SSL *ssl, uint64_t deadline_ns) attr_must_use;

/**
 * wire_read() - at least one and at most @n bytes.
 * Return: how many; 0 at the end; -errno; -ETIMEDOUT; -ECANCELED after wire_stop_reading(). Context: fiber; waits.
 */
ssize_t wire_read(struct wire *w, void *p, size_t n, uint64_t deadline_ns) attr_must_use;

/** wire_write() - all @n bytes. Return: 0, -errno; -ETIMEDOUT when the peer has taken nothing for as long as it is until @deadline_ns. Context: fiber; waits. */
int wire_write(struct wire *w, const void *p, size_t n, uint64_t deadline_ns) attr_must_use;

/** wire_delivered() - bytes that the peer's kernel has acknowledged, with TLS. */
uint64_t wire_delivered(const struct wire *w);

/** wire_finish() - say that nothing more will be sent, then read and forget until the peer has ended too. Context: fiber; waits. */
void wire_finish(struct wire *w, uint64_t deadline_ns);

/** wire_stop_reading() - a read that waits, and every later one, fails with -ECANCELED. */
void wire_stop_reading(struct wire *w);

/** wire_watch() - call @fn once when the peer leaves, also while nobody reads; NULL: do not any more. */
void wire_watch(struct wire *w, wire_left_fn *fn, void *ctx);

/** wire_idle() - is the connection open and silent? (A pooled one that is not must not be used again.) Never waits. */
bool wire_idle(struct wire *w);

#endif
