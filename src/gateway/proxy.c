/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/proxy.h"
#include "base/clock.h"
#include "gateway/exchange.h"
#include "gateway/http1.h"
#include "gateway/http2.h"
#include "gateway/secrets.h"
#include "gateway/stage.h"
#include "gateway/upstream.h"

#define LINGER_NS    (2ULL * NS_PER_S) /* for the sandbox to read the last answer */
#define POOL_TICK_MS 10000

static void on_tick(uv_timer_t *timer)
{
	upstream_tick(timer->data);
	forward_tick(timer->data);
}

int proxy_init(struct proxy *p, uv_loop_t *loop, const struct ca_root *root, struct err *err)
{
	*p = (struct proxy){ .loop = loop,
		.listen_ns = PROXY_LISTEN_NS,
		.answer_ns = PROXY_ANSWER_NS,
		.write_ns = PROXY_STALL_NS,
		.room_ns = PROXY_STALL_NS,
		.shared_max = PROXY_SHARED_MAX };
	room_init(&p->held.room, PROXY_HELD_MAX);
	room_init(&p->trees, PROXY_TREES_MAX);
	waiters_init(&p->counted);
	p->held.in_no_hurry = &p->counted;
	list_init(&p->pool);
	list_init(&p->shared);
	list_init(&p->opening);
	list_init(&p->half_closed);
	(void)uv_timer_init(loop, &p->pool_timer);
	p->pool_timer.data = p;
	(void)uv_timer_start(&p->pool_timer, on_tick, POOL_TICK_MS, POOL_TICK_MS);
	uv_unref((uv_handle_t *)&p->pool_timer);
	return tls_server_init(&p->server, root, err);
}

void proxy_fini(struct proxy *p)
{
	proxy_set_policy(p, NULL, NULL);
	upstream_forget_all(p);
	(void)uv_timer_stop(&p->pool_timer);
	tls_server_fini(&p->server);
	tls_client_fini(&p->client);
	free(p->extra);
	free(p->draws);
}

/* The same policy again goes on with its random numbers. */
void proxy_set_policy(struct proxy *p, struct policy *policy, struct secrets *secrets)
{
	size_t n = 0;

	if (policy != NULL)
		(void)policy_rules(policy, &n);
	if (policy != p->policy) {
		free(p->draws);
		p->draws = xalloc((n + 1) * sizeof(*p->draws));
	}
	(void)policy_ref(policy);
	policy_unref(p->policy);
	p->policy = policy;
	secrets_unref(p->secrets);
	p->secrets = secrets;
	waiters_wake(&p->counted);
}

void proxy_forget_world(struct proxy *p)
{
	upstream_forget_all(p);
	tls_client_fini(&p->client);
}

/* ---- a connection ----------------------------------------------------------------------------------------------------------- */

static void refused(const struct proxy_conn *c, const char *what, const char *reason)
{
	const struct proxy_hooks *hooks = &c->proxy->hooks;

	hooks->refused(hooks->ctx, c, what, reason);
}

static int accept_tls(struct proxy_conn *c)
{
	char why[200];
	SSL *ssl;
	int rc;

	c->hello.fallback = c->name[0] != '\0' ? c->name : c->address;
	ssl = tls_server_new(&c->proxy->server, &c->hello);
	if (ssl == NULL)
		return -ENOMEM;
	rc = wire_accept_tls(c->w, ssl, clock_now_ns() + PROXY_HEAD_NS);
	if (rc == 0)
		return 0;
	tls_failure(ssl, rc, why, sizeof(why));
	refused(c, "tls", c->hello.bad_sni ? "the server name is not well formed" : why);
	return rc;
}

/* Return: shall the sandbox see a reset? */
static bool serve_http1(struct proxy_conn *c)
{
	struct http1 h;
	bool broken;
	int rc = 0;

	http1_init(&h, c->w, true);
	h.ch.write_deadline_ns = c->proxy->write_ns;
	while (rc == 0 && http1_wait(&h, clock_now_ns() + PROXY_IDLE_NS) > 0) {
		rc = exchange_run(c, &h.ch);
		if (rc == 0 && !http1_reusable(&h))
			break;
	}
	broken = h.broken;
	if (!broken)
		wire_finish(c->w, clock_now_ns() + LINGER_NS);
	http1_fini(&h);
	return broken;
}

static void serve_stream(void *ctx, struct channel *channel)
{
	(void)!exchange_run(ctx, channel);
}

static void refused_stream(void *ctx)
{
	refused(ctx, "request", "too many requests over HTTP/2 are under way");
}

static bool serve_http2(struct proxy_conn *c)
{
	const struct http2_server server = { serve_stream, refused_stream, c, c->proxy->write_ns };
	struct http2 *h = http2_new(c->w, &server);
	const char *why;

	if (h == NULL)
		return true;
	why = http2_run(h, PROXY_IDLE_NS);
	if (why != NULL)
		refused(c, "http2", why);
	http2_free(h);
	return false;
}

void proxy_serve(struct proxy_conn *c)
{
	bool reset = false;

	c->w = wire_new(c->proxy->loop, c->fd, c->prefix, c->prefix_n);
	if (c->w == NULL)
		return;
	if (!c->tls || accept_tls(c) == 0)
		reset = c->tls && tls_is_http2(c->w->ssl) ? serve_http2(c) : serve_http1(c);
	if (reset)
		wire_reset(c->w);
	else
		wire_close(c->w);
	c->w = NULL;
}
