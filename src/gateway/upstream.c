/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/upstream.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"
#include "gateway/address.h"
#include "gateway/http2.h"

/* A connection that may be one of HTTP/2 has a place among those that there may be, until it is known not to be one, or has ended. */
static void take_place(struct upstream *up)
{
	up->counts = true;
	up->proxy->n_shared++;
}

static void give_place(struct upstream *up)
{
	up->proxy->n_shared -= up->counts;
	up->counts = false;
}

static void destroy(struct upstream *up, bool reset)
{
	give_place(up);
	list_remove(&up->node);
	http1_fini(&up->h1);
	if (reset)
		wire_reset(up->w);
	else
		wire_close(up->w);
	free(up->way);
	free(up);
}

/* ---- what is kept ----------------------------------------------------------------------------------------------------------- */

static const char *way_of(const struct exchange *x)
{
	return x->rule != NULL ? x->rule->upstream : NULL;
}

static bool same_way(const char *a, const char *b)
{
	return a == NULL || b == NULL ? a == b : str_eq(a, b);
}

static bool may_be_private(const struct exchange *x)
{
	return x->rule != NULL && x->rule->private_addresses;
}

/* What one rule reaches at a private address is not there for another that may not. */
static bool fits(const struct upstream *up, const struct exchange *x)
{
	return up->port == x->host.port && up->tls == x->conn->tls &&
	       str_eq(up->host, x->host.host) && same_way(up->way, way_of(x)) &&
	       up->may_be_private == may_be_private(x);
}

static struct upstream *take_shared(struct exchange *x)
{
	list_for_each (&x->proxy->shared, node, next) {
		struct upstream *up = list_entry(node, struct upstream, node);

		if (fits(up, x) && http2_usable(up->h2))
			return up;
	}
	return NULL;
}

static struct upstream *take(struct exchange *x)
{
	struct proxy *p = x->proxy;

	list_for_each (&p->pool, node, next) {
		struct upstream *up = list_entry(node, struct upstream, node);

		if (!fits(up, x))
			continue;
		list_remove(node);
		p->n_pool--;
		if (wire_idle(up->w))
			return up;
		destroy(up, false);
	}
	return NULL;
}

static void keep(struct upstream *up)
{
	struct proxy *p = up->proxy;

	if (p->n_pool == UPSTREAM_IDLE_MAX) {
		p->n_pool--;
		destroy(list_entry(p->pool.next, struct upstream, node), false);
	}
	up->idle_since = clock_now_ns();
	list_append(&p->pool, &up->node);
	p->n_pool++;
}

void upstream_tick(struct proxy *p)
{
	uint64_t now = clock_now_ns();

	list_for_each (&p->pool, node, next) {
		struct upstream *up = list_entry(node, struct upstream, node);

		if (now - up->idle_since < UPSTREAM_IDLE_NS)
			continue;
		p->n_pool--;
		destroy(up, false);
	}
}

void upstream_forget_all(struct proxy *p)
{
	list_for_each (&p->shared, node, next)
		http2_end(list_entry(node, struct upstream, node)->h2);
	list_for_each (&p->pool, node, next)
		destroy(list_entry(node, struct upstream, node), false);
	p->n_pool = 0;
	memset(p->alone, 0, sizeof(p->alone));
}

/* ---- a new one -------------------------------------------------------------------------------------------------------------- */

static int ensure_client(struct proxy *p, struct err *err)
{
	if (p->client.ctx != NULL)
		return 0;
	return tls_client_init(&p->client, p->bundle, p->bundle_n, p->extra, p->extra_n, err);
}

/* "CONNECT host:port" to the proxy that all must go through. */
static int ask_tunnel(struct upstream *up, uint64_t deadline_ns, struct err *err)
{
	struct buf rq = BUF_INIT(1024);
	char answer[4096];
	struct http_response r;
	size_t n = 0;
	ssize_t got = 1, size = 0;
	bool v6 = strchr(up->host, ':') != NULL;
	int rc;

	buf_fmt(&rq, "CONNECT %s%s%s:%u HTTP/1.1\r\nhost: %s%s%s:%u\r\n\r\n", v6 ? "[" : "",
		up->host, v6 ? "]" : "", up->port, v6 ? "[" : "", up->host, v6 ? "]" : "",
		up->port);
	rc = wire_write(up->w, rq.p, rq.n, deadline_ns);
	buf_free(&rq);
	while (rc == 0 && got > 0 && size == 0 && n < sizeof(answer)) {
		got = wire_read(up->w, answer + n, 1,
			deadline_ns); /* nothing behind the head may be taken */
		n += got > 0 ? (size_t)got : 0;
		size = http_response_parse(answer, n, &r);
	}
	if (rc < 0 || size <= 0)
		return err_raise(err, ERR_UNAVAILABLE, "the HTTP proxy does not answer");
	if (r.status / 100 != 2)
		return err_raise(
			err, ERR_UNAVAILABLE, "the HTTP proxy refuses with status %d", r.status);
	return 0;
}

/* Where no place is free for a connection that is shared, HTTP/2 is not offered: an exchange has one of HTTP/1 for itself, without a fiber beside its own. */
static int secure(
	struct upstream *up, const struct exchange *x, uint64_t deadline_ns, struct err *err)
{
	struct proxy *p = up->proxy;
	char why[200];
	SSL *ssl;
	int rc = ensure_client(p, err);

	if (rc < 0)
		return rc;
	if (!x->request.websocket && p->n_shared < p->shared_max)
		take_place(up);
	ssl = tls_client_new(&p->client, up->host, x->host.is_address, up->counts);
	if (ssl == NULL)
		return err_raise(err, ERR_INTERNAL, "no memory for TLS");
	rc = wire_connect_tls(up->w, ssl, deadline_ns);
	if (rc == 0 && !tls_is_http2(ssl))
		give_place(up);
	if (rc == 0)
		return 0;
	tls_failure(ssl, rc, why, sizeof(why));
	return err_raise(err, ERR_UNAVAILABLE, "TLS with '%s': %s", up->host, why);
}

/* The proxy looks hosts up by itself, so what it finds cannot be judged here; what a host says of itself can. */
static int check_public(const struct upstream *up, struct err *err)
{
	const char *what = address_host_forbidden(up->host);

	if (what == NULL || up->may_be_private || ablated("gateway_filter"))
		return 0;
	(void)err_raise(
		err, ERR_DENIED, "'%s' (%s) takes a rule with private: true", up->host, what);
	return -EACCES;
}

static int dial(
	struct upstream *up, const struct exchange *x, uint64_t deadline_ns, struct err *err)
{
	struct proxy *p = up->proxy;
	/* whoever set the proxy said where it is; hosts are looked up there, not here */
	static const struct policy_rule to_proxy = { .private_addresses = true };
	bool through = p->through.host[0] != '\0' && up->way == NULL;
	struct proxy_dialled to;
	int rc = through ? check_public(up, err) : 0;

	if (rc == 0)
		rc = p->hooks.dial(p->hooks.ctx, through ? p->through.host : up->host,
			through ? p->through.port : up->port, through ? &to_proxy : x->rule,
			deadline_ns, &to, err);
	if (rc < 0)
		return rc;
	up->w = wire_new(p->loop, to.fd, NULL, 0);
	if (up->w == NULL)
		return err_raise(err, ERR_INTERNAL, "no room for a connection");
	(void)snprintf(up->where, sizeof(up->where),
		strchr(to.address, ':') != NULL ? "[%s]:%u" : "%s:%u", to.address, to.port);
	return through ? ask_tunnel(up, deadline_ns, err) : 0;
}

/* Reads a shared connection as long as it lives; streams hold it until they are released. */
static void read_shared(void *arg)
{
	struct upstream *up = arg;

	(void)http2_run(up->h2, UPSTREAM_IDLE_NS);
	http2_free(up->h2);
	destroy(up, false);
}

/* The oldest one that nobody uses is ended when there is no place left for another. */
static void end_idle(struct proxy *p)
{
	if (p->n_shared < p->shared_max)
		return;
	list_for_each (&p->shared, node, next) {
		struct upstream *up = list_entry(node, struct upstream, node);

		if (http2_streams(up->h2) == 0 && http2_usable(up->h2)) {
			http2_end(up->h2);
			return;
		}
	}
}

static int share(struct upstream *up, struct err *err)
{
	end_idle(up->proxy);
	up->h2 = http2_new(up->w, NULL);
	if (up->h2 == NULL)
		return err_raise(err, ERR_INTERNAL, "no memory for HTTP/2");
	list_append(&up->proxy->shared, &up->node);
	fiber_start(read_shared, up);
	return 0;
}

static int open_new(struct exchange *x, struct upstream **ret, struct err *err)
{
	struct upstream *up = xnew(struct upstream);
	uint64_t deadline_ns = clock_now_ns() + PROXY_CONNECT_NS;
	int rc;

	list_init(&up->node);
	up->proxy = x->proxy;
	memcpy(up->host, x->host.host, sizeof(up->host));
	up->port = x->host.port;
	up->tls = x->conn->tls;
	up->way = x->rule != NULL ? str_dup(x->rule->upstream) : NULL;
	up->may_be_private = may_be_private(x);
	rc = dial(up, x, deadline_ns, err);
	if (rc == 0 && up->tls)
		rc = secure(up, x, deadline_ns, err);
	if (rc == 0 && up->tls && tls_is_http2(up->w->ssl))
		rc = share(up, err);
	if (rc < 0) {
		destroy(up, true);
		return rc;
	}
	http1_init(&up->h1, up->w, false);
	*ret = up;
	return 0;
}

/* ---- one for many ----------------------------------------------------------------------------------------------------------- */

/* Somebody opens a connection that may turn out to be HTTP/2; on the stack of whoever does. */
struct opening {
	struct list node;
	const struct exchange *x;
	struct waiters done;
};

static uint32_t hash_of(const struct exchange *x)
{
	uint32_t h = 2166136261U ^ x->host.port;

	for (const char *p = x->host.host; *p != '\0'; p++)
		h = (h ^ (unsigned char)*p) * 16777619U;
	return h != 0 ? h : 1;
}

/* Can nothing be gained by waiting for the connection of another exchange? */
static bool alone(const struct exchange *x)
{
	uint32_t h = hash_of(x);

	if (!x->conn->tls || x->request.websocket)
		return true;
	for (size_t i = 0; i < PROXY_ALONE_MAX; i++)
		if (x->proxy->alone[i] == h)
			return true;
	return false;
}

static struct opening *find_opening(const struct exchange *x)
{
	list_for_each (&x->proxy->opening, node, next) {
		struct opening *o = list_entry(node, struct opening, node);

		if (o->x->host.port == x->host.port && str_eq(o->x->host.host, x->host.host) &&
			same_way(way_of(o->x), way_of(x)) &&
			may_be_private(o->x) == may_be_private(x))
			return o;
	}
	return NULL;
}

static int open_first(struct exchange *x, struct upstream **ret, struct err *err)
{
	struct proxy *p = x->proxy;
	struct opening o = { .x = x };
	int rc;

	waiters_init(&o.done);
	list_append(&p->opening, &o.node);
	rc = open_new(x, ret, err);
	list_remove(&o.node);
	if (rc == 0 && (*ret)->h2 == NULL && p->n_shared < p->shared_max)
		p->alone[p->n_alone++ % PROXY_ALONE_MAX] = hash_of(x);
	waiters_wake(&o.done);
	return rc;
}

static bool any_shared(const struct exchange *x)
{
	list_for_each (&x->proxy->shared, node, next)
		if (fits(list_entry(node, struct upstream, node), x))
			return true;
	return false;
}

/* A burst to one host opens one connection when that can carry all: whoever comes while it is being opened waits for it. */
static int open_or_share(struct exchange *x, struct upstream **ret, struct err *err)
{
	bool waited = false;

	while (!alone(x) && (!waited || any_shared(x))) {
		struct opening *o = find_opening(x);

		if (o == NULL)
			return open_first(x, ret, err);
		if (waiters_wait(&o->done, clock_now_ns() + PROXY_CONNECT_NS) < 0)
			break;
		waited = true;
		*ret = take_shared(x);
		x->reused = *ret != NULL;
		if (*ret != NULL)
			return 0;
	}
	return open_new(x, ret, err);
}

/* ---- for an exchange -------------------------------------------------------------------------------------------------------- */

int upstream_open(struct exchange *x, bool fresh, struct upstream **ret, struct err *err)
{
	struct upstream *up = fresh || x->request.websocket ? NULL : take_shared(x);
	int rc;

	if (up == NULL && !fresh)
		up = take(x);
	x->reused = up != NULL;
	if (up == NULL) {
		rc = fresh ? open_new(x, &up, err) : open_or_share(x, &up, err);
		if (rc < 0)
			return rc;
	}
	memcpy(x->upstream, up->where, sizeof(x->upstream));
	up->taken_before = up->w->taken;
	x->back = up->h2 != NULL ? http2_request(up->h2) : &up->h1.ch;
	x->back->write_deadline_ns = PROXY_STALL_NS;
	channel_next(x->back, &x->arena);
	*ret = up;
	return 0;
}

bool upstream_untouched(const struct exchange *x, const struct upstream *up)
{
	return up->h2 != NULL ? x->back->untouched : up->w->taken == up->taken_before;
}

void upstream_close(struct exchange *x, struct upstream *up, bool reusable)
{
	struct channel *back = TAKE_PTR(x->back);

	if (up->h2 != NULL) {
		http2_release(back);
		end_idle(x->proxy);
	} else if (reusable && !x->request.websocket && http1_reusable(&up->h1)) {
		keep(up);
	} else {
		destroy(up, !reusable);
	}
}
