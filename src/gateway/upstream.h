/* SPDX-License-Identifier: Apache-2.0 */
/**
 * DOC: gateway/upstream.h - connections to the world: dialled, verified, kept for the next request.
 *
 * A connection is kept for the same host, port, kind and way only. The address was judged when it was dialled (proxy_hooks.dial) and the certificate was checked for that
 * very name, so what is reused is what would be reached again.
 */
#ifndef CAY_GATEWAY_UPSTREAM_H
#define CAY_GATEWAY_UPSTREAM_H

#include "gateway/exchange.h"
#include "gateway/http1.h"

#define UPSTREAM_IDLE_MAX 256                  /* connections of HTTP/1 kept, of all hosts */
#define UPSTREAM_IDLE_NS  (60ULL * 1000000000) /* how long */

struct http2;

struct upstream {
	struct list node; /* in proxy.pool while idle; HTTP/2: as long as it may be used */
	struct proxy *proxy;
	struct wire *w;
	struct http1 h1;
	struct http2 *h2; /* NULL: HTTP/1 */
	bool counts;      /* in proxy.n_shared */
	char host[AUTHORITY_HOST_SIZE];
	uint16_t port;
	bool tls;
	char *way;           /* the rule's "address:port", or NULL */
	bool may_be_private; /* the rule that it was opened for says private: true */
	char where[INET6_ADDRSTRLEN + 8];
	uint64_t idle_since;
	uint64_t taken_before; /* @w->taken when the present exchange got it */
};

/**
 * upstream_open() - a connection for @x: a kept one if there is (and not @fresh), else a new one. Sets @x->back, @x->upstream, @x->reused.
 * @ret: give it back with upstream_close().
 * Return: 0, or -errno with @err.
 * Context: fiber; waits.
 */
int upstream_open(
	struct exchange *x, bool fresh, struct upstream **ret, struct err *err) attr_must_use;

/** upstream_untouched() - has nothing of the request of @x gone out, or does the host say that it did nothing with it? */
bool upstream_untouched(const struct exchange *x, const struct upstream *up);

/** upstream_close() - the exchange is over. It is kept when both sides ended well and @reusable, else broken. Clears @x->back. */
void upstream_close(struct exchange *x, struct upstream *up, bool reusable);

/** upstream_forget_all() - close what is idle. */
void upstream_forget_all(struct proxy *p);

/** upstream_tick() - close what is idle for too long. */
void upstream_tick(struct proxy *p);

#endif
