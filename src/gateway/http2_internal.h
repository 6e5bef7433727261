/* SPDX-License-Identifier: Apache-2.0 */
/** DOC: gateway/http2_internal.h - what http2.c and http2_stream.c share. */
#ifndef CAY_GATEWAY_HTTP2_INTERNAL_H
#define CAY_GATEWAY_HTTP2_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "gateway/http2.h"

#include <nghttp2/nghttp2.h>

/** struct allowance - a bucket of things a peer may do. */
struct allowance {
	uint64_t left, burst;
	uint64_t at_ns;
};

struct http2 {
	struct wire *w;
	nghttp2_session *session;
	const struct http2_server *server; /* NULL: a client */
	struct list streams;
	size_t n_streams, n_held; /* of these, with an exchange */
	struct buf out;
	bool sending;    /* a fiber writes; it takes along what the others submit */
	bool dead;       /* nothing can be sent or received any more */
	bool ending;     /* no new streams */
	const char *why; /* it broke; static */
	struct allowance frames, resets;
	uint64_t write_deadline_ns;
	struct waiters released;
};

/** struct stream2 - a stream; freed when its exchange has released it and nghttp2 has closed it. */
struct stream2 {
	struct channel ch;
	struct list node;
	struct http2 *h;
	int32_t id;                      /* -1: not opened yet */
	struct buf block, trailer_block; /* fields received: u32 sizes of name and value, both */
	size_t n_fields;
	unsigned int n_interim;           /* answers with a status below 200 that came */
	bool head_whole, bare, too_large; /* @bare: the head ended the stream */
	bool asked_head;                  /* of a client: the request was HEAD */
	bool end_received, closed, stopped;
	bool held;            /* an exchange has it */
	bool wide;            /* its window is HTTP2_WINDOW_WIDE */
	struct buf in, taken; /* body received; the piece that was handed out */
	struct buf out;       /* body to send, from @out_at */
	size_t out_at;
	bool out_ends;                       /* nothing follows what is there */
	bool eof_sent;                       /* the frame with the end has left */
	const struct policy_field *trailers; /* to send behind it */
	size_t n_trailers;
	struct waiters readable, writable;
};

/** stream2_new() - a stream of @h. */
struct stream2 *stream2_new(struct http2 *h, int32_t id);

/** stream2_widen() - it was opened, or goes on: give a client's stream a wide window while there is room for that. */
void stream2_widen(struct stream2 *s);

/** stream2_served() - streams of all servers. */
size_t stream2_served(void);

/** stream2_field() - a field of the head, or behind it of the trailers, was received. Return: 0, or -EMSGSIZE. */
int stream2_field(struct stream2 *s, const uint8_t *name, size_t name_n, const uint8_t *value,
	size_t value_n) attr_must_use;

/** stream2_fields_whole() - they are whole. @end: nothing follows. An interim answer is forgotten; who sends too many of them has sent a head that is too large. */
void stream2_fields_whole(struct stream2 *s, bool end);

/** stream2_end_sent() - the frame with the end of what is sent has left. */
void stream2_end_sent(struct stream2 *s);

/** stream2_data() - a piece of the body was received. Return: false when it does not fit. */
bool stream2_data(struct stream2 *s, const void *p, size_t n) attr_must_use;

/** stream2_closed() - nghttp2 has closed it, with @code of an enum nghttp2_error_code; everybody who waits goes on. */
void stream2_closed(struct stream2 *s, uint32_t code);

/** stream2_wake() - it is closed, or its connection has ended: whoever waits goes on, and who watches is told. */
void stream2_wake(struct stream2 *s);

/** stream2_hold() - an exchange has it from now on. */
void stream2_hold(struct stream2 *s);

/** stream2_release() - its exchange is over. */
void stream2_release(struct stream2 *s);

/** http2_pump() - send what nghttp2 has to send, unless another fiber is at it. Return: 0 or -errno. Context: fiber; waits. */
int http2_pump(struct http2 *h);

#endif
