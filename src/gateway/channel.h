/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/channel.h - one side of an exchange: a request and its answer, over HTTP/1 or a stream of HTTP/2.
 *
 * An exchange (exchange.c) sees two channels: the front one towards the sandbox receives a request and sends an answer, the back one towards the world does
 * the reverse. Neither knows what the other speaks. Heads are parsed, never passed on as bytes: names are lower case, hop-by-hop fields are gone, the body's framing is a
 * value. All calls run in fibers and wait; at most one fiber receives and one sends.
 */
#ifndef CAY_GATEWAY_CHANNEL_H
#define CAY_GATEWAY_CHANNEL_H

#include "base/arena.h"
#include "codec/http_response.h"
#include "codec/httphead.h"
#include "policy/policy.h"

#include <string.h>

#define HEAD_FIELDS_MAX      HTTPHEAD_HEADERS_MAX
#define CHANNEL_TRAILERS_MAX 32
#define CHANNEL_PIECE        16384U /* bytes of a body that travel together: one TLS record */

/** struct head - of a request or of an answer; all text lives in the exchange's arena. */
struct head {
	struct policy_text method, scheme,
		authority;              /* of requests; the scheme is what they claimed, or empty */
	struct policy_text path, query; /* as they came */
	bool has_query;
	unsigned int minor; /* of HTTP/1 */
	int status;         /* of answers */
	struct policy_field fields[HEAD_FIELDS_MAX];
	size_t n_fields;
	enum http_body body; /* CHUNKED: of unknown length; UNTIL_CLOSE only in answers of HTTP/1 */
	bool has_length;
	uint64_t length;
	bool expect_continue;
	bool websocket;   /* a request for it, or the answer that agrees */
	bool te_trailers; /* the client says that it takes trailers */
};

struct channel;

/** channel_left_fn - who sends the request on a channel does not wait for the answer; not @sure: he said only that he will send no more. Must not wait. */
typedef void channel_left_fn(void *ctx, bool sure);

struct channel_ops {
	/* see the functions below */
	void (*next)(struct channel *c);
	int (*recv_head)(struct channel *c, struct head *ret, uint64_t deadline_ns);
	ssize_t (*recv)(struct channel *c, const char **ret_piece, uint64_t deadline_ns);
	int (*send_head)(struct channel *c, const struct head *h, bool end);
	int (*send)(struct channel *c, const void *p, size_t n);
	int (*send_end)(struct channel *c, const struct policy_field *trailers, size_t n);
	int (*flush)(struct channel *c);
	void (*stop)(struct channel *c);
	void (*abort)(struct channel *c);
	void (*watch)(struct channel *c);
};

struct channel {
	const struct channel_ops *ops;
	struct arena *arena;                                /* of the exchange under way */
	struct policy_field trailers[CHANNEL_TRAILERS_MAX]; /* of the body that was received */
	size_t n_trailers;
	uint64_t received, sent; /* bytes of bodies, as they travelled */
	channel_left_fn *left;   /* channel_watch() */
	void *left_ctx;
	const char *reason;         /* why a head or a body was refused; static */
	uint64_t write_deadline_ns; /* of every write; 0: none */
	unsigned int version;       /* 1 or 2 */
	bool body_ended;            /* the whole body was received */
	bool begun;                 /* bytes of what is to be received have come */
	bool untouched; /* the peer says that it did nothing with what was sent (HTTP/2) */
};

/** channel_next() - get ready for the next exchange; its text goes to @arena. */
static inline void channel_next(struct channel *c, struct arena *arena)
{
	c->arena = arena;
	c->n_trailers = 0;
	c->received = c->sent = 0;
	c->reason = NULL;
	c->body_ended = c->begun = c->untouched = false;
	c->ops->next(c);
}

/** channel_recv_head() - Return: 0; -EBADMSG with @reason (then an answer can still be sent); -EPIPE, -ETIMEDOUT, other -errno. */
static inline int channel_recv_head(struct channel *c, struct head *ret, uint64_t deadline_ns)
{
	return c->ops->recv_head(c, ret, deadline_ns);
}

/** channel_recv() - the next piece of the body; good until the next call. Return: its size; 0 at the end; -errno; -ECANCELED after channel_stop(). */
static inline ssize_t channel_recv(struct channel *c, const char **ret_piece, uint64_t deadline_ns)
{
	ssize_t n = c->ops->recv(c, ret_piece, deadline_ns);

	if (n > 0)
		c->received += (uint64_t)n;
	c->body_ended = c->body_ended || n == 0;
	return n;
}

/** channel_send_head() - @end: no body follows. Buffered until channel_flush(). Return: 0 or -errno. */
static inline int channel_send_head(struct channel *c, const struct head *h, bool end)
{
	return c->ops->send_head(c, h, end);
}

/** channel_send() - a part of the body; may stay buffered. Return: 0 or -errno. */
static inline int channel_send(struct channel *c, const void *p, size_t n)
{
	c->sent += n;
	return c->ops->send(c, p, n);
}

/** channel_send_end() - the end of the body; flushes. Not after send_head with end. Return: 0 or -errno. */
static inline int channel_send_end(struct channel *c, const struct policy_field *trailers, size_t n)
{
	return c->ops->send_end(c, trailers, n);
}

/** channel_flush() - what was buffered goes out now. Return: 0 or -errno. */
static inline int channel_flush(struct channel *c)
{
	return c->ops->flush(c);
}

/** channel_stop() - nobody wants more of the body: receiving fails from now on, also where it waits. */
static inline void channel_stop(struct channel *c)
{
	c->ops->stop(c);
}

/** channel_abort() - break it off so that the peer sees it: a reset, not an end. */
static inline void channel_abort(struct channel *c)
{
	c->ops->abort(c);
}

/** channel_watch() - of a request that was received whole: call @fn once when its sender leaves, at once when he has; NULL: do not any more. */
static inline void channel_watch(struct channel *c, channel_left_fn *fn, void *ctx)
{
	c->left = fn;
	c->left_ctx = ctx;
	c->ops->watch(c);
}

/** head_field() - value of the field @name (lower case); {NULL, 0} when missing. */
struct policy_text head_field(const struct head *h, const char *name);

/** head_add() - append a field; @name is lower case; both must outlive the head. Return: 0, or -E2BIG. */
int head_add(struct head *h, const char *name, struct policy_text value) attr_must_use;

/** head_remove() - every field @name, also written with '_' for '-'. */
void head_remove(struct head *h, const char *name);

/** head_count() - how many fields are @name, also written with '_' for '-' as some servers take it. */
size_t head_count(const struct head *h, const char *name);

/** head_names() - is a field that is called @name the field @want (lower case) for whom '_' is '-'? */
bool head_names(struct policy_text name, const char *want);

/** head_unclear() - do not all know alike what the field @name says: because it is there twice, or only as @name with '_'? */
bool head_unclear(const struct head *h, const char *name);

/** head_may_trail() - may a field follow the body of a request? Not what says how it is to be read or who sends it (RFC 9110 6.5.1). */
bool head_may_trail(struct policy_text name);

/** head_is_hop() - does a field concern this connection only, or is it restated by whoever sends the head? */
bool head_is_hop(struct policy_text name);

/** text_is() - is the view equal to @s? */
static inline bool text_is(struct policy_text t, const char *s)
{
	return t.n == strlen(s) && memcmp(t.p, s, t.n) == 0;
}

/** text_is_word() - as text_is(), in capitals or small letters. */
static inline bool text_is_word(struct policy_text t, const char *s)
{
	return t.n == strlen(s) && strncasecmp(t.p, s, t.n) == 0;
}

/** text_of() - a view of a C string. */
static inline struct policy_text text_of(const char *s)
{
	return (struct policy_text){ s, strlen(s) };
}

#endif
