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

#define HTTP2_STREAMS_MAX  100         /* at once, also such as were reset while still at work */
#define HTTP2_HEADERS_MAX  32768U      /* bytes of a header list */
#define HTTP2_WINDOW       (256 << 10) /* bytes of a stream on their way, from the world */
#define HTTP2_WINDOW_NEAR  (64 << 10)  /* from the sandbox */
#define HTTP2_BURST        1000U       /* control frames at once */
#define HTTP2_BURST_RESETS 200U        /* resets of streams at once */
#define HTTP2_REFILL_PER_S 100U        /* of either, afterwards */

/*
 * Of all streams of a connection. A stream that waits keeps its part of it: one that waits for room must not stop the one that has it, so a sandbox's connection
 * has more than twice of what all its streams could keep (nghttp2 gives back when half is due). One to the world gets back at once what has come, taken by the sandbox or not,
 * as long as all such connections together hold no more than HTTP2_AHEAD_MAX that nobody took: answers that are left lying stop no others.
 */
#define HTTP2_CONN_WINDOW      (8 << 20)
#define HTTP2_CONN_WINDOW_NEAR (16 << 20)
#define HTTP2_AHEAD_MAX        (64 << 20)

struct http2;

/** http2_serve_fn - answer the request on @c; runs in the stream's fiber. */
typedef void http2_serve_fn(void *ctx, struct channel *c);

/** http2_new() - speak HTTP/2 on @w (borrowed). @serve: of a server; NULL: be the client. Return: http2_free(); NULL without memory. */
struct http2 *http2_new(struct wire *w, http2_serve_fn *serve, void *ctx) attr_must_use;

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
