/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/http2.h - HTTP/2 over a wire, as server or as client: every stream is a channel.
 *
 * One fiber reads the connection; whoever has something to send writes, and while one writes the others leave theirs to it. Flow control follows what the other
 * side of an exchange takes, so a stream holds at most its window. Limits: streams, header lists, resets, and frames that only make work.
 */
#ifndef CAY_GATEWAY_HTTP2_H
#define CAY_GATEWAY_HTTP2_H

#include "gateway/channel.h"
#include "gateway/wire.h"

#define HTTP2_STREAMS_MAX 100 /* at once, also such as were reset while still at work */
#define HTTP2_SERVED_MAX \
	500U /* of all connections of sandboxes together: each has a stack, and buffers; more are refused, for their clients to send again */
#define HTTP2_HEADERS_MAX 32768U /* bytes of a header list */
#define HTTP2_BURST \
	1000U /* control frames at once, beside one for each frame of an answer or request that it gets */
#define HTTP2_BURST_RESETS 200U  /* resets of streams at once */
#define HTTP2_REFILL_PER_S 100U  /* of either, afterwards */
#define HTTP2_QUEUE_MAX    4096U /* frames but data that wait until the other side takes them */

/*
 * Bytes of a body that a stream may hold, the piece that was handed out among them: it gets them back when that is done with, so a stream whose other side takes nothing stands still by itself. Its
 * connection gets back at once what has come: no stream stops the others. From the world a stream has a wide window while those of all streams together are within HTTP2_WIDE_MAX; what it holds counts until
 * it is gone, taken or not. (A power of two less one: with the NUL that a buffer ends with it is no larger.)
 */
#define HTTP2_WINDOW      ((64 << 10) - 1)
#define HTTP2_WINDOW_WIDE ((256 << 10) - 1)
#define HTTP2_WIDE_MAX    (64U << 20)
#define HTTP2_CONN_WINDOW (8 << 20) /* of a connection: bytes on their way */

struct http2;

/** http2_serve_fn - answer the request on @c; runs in the stream's fiber. */
typedef void http2_serve_fn(void *ctx, struct channel *c);

/** http2_refused_fn - a request was refused unread: %HTTP2_SERVED_MAX are under way. Must not wait. */
typedef void http2_refused_fn(void *ctx);

/** struct http2_server - what a server does with requests; @ctx is for both functions. */
struct http2_server {
	http2_serve_fn *serve;
	http2_refused_fn *refused;
	void *ctx;
	uint64_t write_ns; /* how long its peer may take nothing; 0: a minute */
};

/** http2_new() - speak HTTP/2 on @w (borrowed). @server: borrowed until http2_free(); NULL: be the client. Return: http2_free(); NULL without memory. */
struct http2 *http2_new(struct wire *w, const struct http2_server *server) attr_must_use;

/** http2_free() - after http2_run() has returned. */
void http2_free(struct http2 *h);

/**
 * http2_run() - read until the connection ends or is idle for @idle_ns, then wait for all streams to be released.
 * Return: NULL when it ended well, else why not (static). Context: fiber; waits.
 */
const char *http2_run(struct http2 *h, uint64_t idle_ns);

/** http2_usable() - can another request be sent on this client's connection? */
bool http2_usable(const struct http2 *h);

/** http2_streams() - streams under way. */
size_t http2_streams(const struct http2 *h);

/** http2_request() - a stream for a request; http2_release(). */
struct channel *http2_request(struct http2 *h) attr_must_use;

/** http2_release() - the exchange on a client's stream is over; what is unfinished is reset. */
void http2_release(struct channel *c);

/** http2_end() - take no new streams and let http2_run() return when those under way are done. */
void http2_end(struct http2 *h);

#endif
