/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/conn.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"
#include "gateway/address.h"
#include "gateway/mail.h"
#include "gateway/names.h"
#include "gateway/nameserver.h"
#include "gateway/owner.h"
#include "gateway/passthrough.h"
#include "gateway/refusals.h"

#include <string.h>
#include <sys/socket.h>

#define FIRST_BYTES_NS (20 * NS_PER_S)   /* until the client has said enough to be judged */
#define SILENCE_NS     (500 * NS_PER_MS) /* then it waits for the server, where a rule allows that */
#define PEEK_MAX       (2 * CLIENTHELLO_MAX) /* of a ClientHello in many small records */
#define DNS_PORT       53

#define BIT(transport) (1U << (transport))

/* --- telling --- */

json_t *conn_peer_json(const struct conn *c)
{
	json_t *o = json_pack("{s:I,s:s,s:s,s:i,s:i}", "connection", (json_int_t)c->number, "host",
		c->host, "address", c->address, "port", c->port, "client_port", c->from_port);

	BUG_ON(o == NULL);
	return o;
}

const struct owner *conn_owner(const struct conn *c)
{
	return owner_search_result(c->whose);
}

/* A refused connection, which may be closed before it is known whose it was. */
struct denied {
	struct gateway *gw;
	struct owner_search *whose; /* a reference */
	char *what, *host, *reason;
	char address[INET6_ADDRSTRLEN];
	uint16_t port;
};

static void denied_main(void *arg, bool may_wait)
{
	struct denied *d = arg;
	const struct refusal r = { .what = d->what,
		.protocol = "tcp",
		.host = d->host,
		.address = d->address,
		.port = d->port,
		.owner = may_wait ? owner_search_result(d->whose) : owner_search_known(d->whose),
		.reason = d->reason };

	refusals_add(d->gw, &r);
	owner_search_unref(d->whose);
	free(d->what);
	free(d->host);
	free(d->reason);
	free(d);
}

void conn_denied(struct conn *c, const char *what, const char *reason)
{
	struct denied *d = xnew(struct denied);

	*d = (struct denied){ .gw = c->gw,
		.whose = owner_search_ref(c->whose),
		.what = str_dup(what),
		.host = str_dup(c->host),
		.reason = str_dup(reason),
		.port = c->port };
	(void)!str_copy(d->address, sizeof(d->address), c->address);
	refusals_later(denied_main, d);
}

void conn_reset(struct conn *c)
{
	const struct linger now = { .l_onoff = 1 };

	(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

static void deny(struct conn *c, const char *what, const char *reason)
{
	conn_denied(c, what, reason);
	conn_reset(c);
}

/* --- first bytes --- */

/* How many bytes at @p, of which there are @n, could be a method that a rule names; one more than those may have when it goes on. */
static size_t method_run(const unsigned char *p, size_t n)
{
	size_t run = 0;

	while (run < n && run <= POLICY_METHOD_MAX && p[run] != '\0' &&
		strchr(POLICY_METHOD_CHARACTERS, p[run]) != NULL)
		run++;
	return run;
}

static enum conn_protocol classify(const unsigned char *p, size_t n, struct conn *c, bool *ret_more)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n";
	size_t letters;
	int rc;

	*ret_more = false;
	if (p[0] == 22) {
		rc = clienthello_parse(p, n, &c->hello);
		*ret_more = rc == 0;
		return rc < 0 ? CONN_UNKNOWN : CONN_TLS;
	}
	letters = method_run(p, n);
	if (letters == n && n <= POLICY_METHOD_MAX) {
		*ret_more = true;
		return CONN_UNKNOWN;
	}
	if (letters == 0 || letters > POLICY_METHOD_MAX || p[letters] != ' ')
		return CONN_UNKNOWN;
	*ret_more = letters == 3 && n < sizeof(preface) - 1 && memcmp(p, preface, n) == 0;
	return n >= sizeof(preface) - 1 && memcmp(p, preface, sizeof(preface) - 1) == 0
		       ? CONN_HTTP2
		       : CONN_HTTP1;
}

/* Wait until more than @had bytes lie in the socket, or the client is done. */
static int wait_for_more(struct conn *c, size_t had, uint64_t deadline_ns)
{
	int wanted = (int)had + 1;

	(void)setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &wanted, sizeof(wanted));
	return fdwatch_wait(&c->watch, false, deadline_ns);
}

/*
 * Look at what the client says first, without taking it. @may_be_silent: a rule allows protocols in which the server speaks first.
 * Return: 0 with c->protocol set; -ETIMEDOUT, -EPIPE, -EMSGSIZE.
 */
static int look(struct conn *c, bool may_be_silent)
{
	static unsigned char bytes[PEEK_MAX]; /* nothing waits while it is in use */
	uint64_t deadline = clock_now_ns() + (may_be_silent ? SILENCE_NS : FIRST_BYTES_NS);
	size_t had = 0;
	bool more = true;

	c->protocol = CONN_SILENT;
	while (more) {
		ssize_t n = recv(c->fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			return -errno;
		if (n == 0 || (n > 0 && (size_t)n == had))
			return had == 0 ? -EPIPE : 0; /* it will say no more */
		if (n > 0) {
			had = (size_t)n;
			c->protocol = classify(bytes, had, c, &more);
			deadline = c->accepted_ns + FIRST_BYTES_NS;
		}
		if (more && had == sizeof(bytes))
			return -EMSGSIZE;
		if (more && wait_for_more(c, had, deadline) < 0)
			return c->protocol == CONN_SILENT && may_be_silent ? 0 : -ETIMEDOUT;
	}
	(void)setsockopt(c->fd, SOL_SOCKET, SO_RCVLOWAT, &(int){ 1 }, sizeof(int));
	return 0;
}

/* --- judging --- */

static void decide(const struct conn *c, enum policy_stage stage, enum policy_transport transport,
	struct policy_verdict *ret)
{
	const struct policy_request rq = {
		.stage = stage, .host = c->host, .port = c->port, .transport = transport
	};

	policy_decide(c->policy, &rq, ret);
}

/* Transports that a rule may yet allow to this host and port. */
static unsigned int open_transports(const struct conn *c)
{
	struct policy_verdict v;

	if (ablated("gateway_verdict"))
		return BIT(POLICY_TCP);
	decide(c, POLICY_CONNECT, POLICY_HTTP, &v);
	return v.need_more ? v.transports : 0;
}

static const struct policy_rule *allowed(const struct conn *c, enum policy_transport transport)
{
	struct policy_verdict v;
	size_t n;

	if (ablated("gateway_verdict"))
		return policy_rules(c->policy, &n);
	decide(c, POLICY_BODY, transport, &v);
	return !v.need_more && v.action == POLICY_ALLOW ? v.rule : NULL;
}

static void serve_raw(struct conn *c, enum policy_transport transport)
{
	const struct policy_rule *rule = allowed(c, transport);

	if (rule == NULL)
		deny(c, "connection", "no rule allows this connection");
	else
		passthrough_serve(c, rule, policy_transport_name(transport));
}

/* Not looked into, so what it says in clear must be what was dialled. */
static void serve_tls_through(struct conn *c)
{
	if (ablated("gateway_sni"))
		serve_raw(c, POLICY_TLS);
	else if (c->hello.encrypted)
		deny(c, "tls", "the server name is encrypted");
	else if (*c->hello.server_name == '\0' && *c->name != '\0')
		deny(c, "tls", "the client named no server; a rule of transport tcp wants no name");
	else if (!str_eq(c->hello.server_name, c->name))
		deny(c, "tls", "the server name is not the name that was dialled");
	else
		serve_raw(c, POLICY_TLS);
}

/* Mail servers speak first: a port that only mail may use is not looked at. */
static void serve_mail(struct conn *c)
{
	struct policy_verdict v;

	decide(c, POLICY_BODY, POLICY_SMTP, &v);
	if (v.action == POLICY_MAILBOX)
		mail_serve(c, v.rule, v.rule_index);
	else
		deny(c, "connection", "no rule allows this connection");
}

static void serve_spoken(struct conn *c, unsigned int transports)
{
	bool tls = c->protocol == CONN_TLS;

	if (tls && policy_passes_tls(c->policy, c->host, c->port) != NULL)
		serve_tls_through(c);
	else if ((tls || c->protocol == CONN_HTTP1) && (transports & BIT(POLICY_HTTP)) != 0)
		conn_serve_http(c);
	else if (c->protocol == CONN_SILENT && (transports & BIT(POLICY_SMTP)) != 0)
		serve_mail(c);
	else if ((transports & BIT(POLICY_TCP)) != 0)
		serve_raw(c, POLICY_TCP);
	else if (c->protocol == CONN_HTTP2)
		deny(c, "connection", "HTTP/2 without TLS is not served");
	else
		deny(c, "connection", "no rule allows this protocol on this port");
}

static void serve(struct conn *c)
{
	unsigned int transports;
	int rc;

	c->policy = policy_ref(c->gw->policy);
	if (c->policy == NULL) {
		deny(c, "connection", "the gateway cannot be configured");
		return;
	}
	if (address_own(&c->to) && !ablated("gateway_port_closed")) {
		deny(c, "connection", "the gateway is no proxy");
		return;
	}
	if (c->port == DNS_PORT) {
		nameserver_serve(c);
		return;
	}
	transports = open_transports(c);
	if (transports == 0) {
		deny(c, "connection", "no rule allows this host and port");
		return;
	}
	if (transports == BIT(POLICY_SMTP)) {
		serve_mail(c);
		return;
	}
	if (transports == BIT(POLICY_TCP)) {
		serve_raw(c, POLICY_TCP);
		return;
	}
	rc = look(c, (transports & (BIT(POLICY_TCP) | BIT(POLICY_SMTP))) != 0);
	if (rc == -ETIMEDOUT)
		deny(c, "connection", "the client did not say in time what it wants");
	else if (rc == -EMSGSIZE)
		deny(c, "tls", "the ClientHello is too large");
	else if (rc == 0)
		serve_spoken(c, transports);
}

/* --- life --- */

struct listener {
	uv_poll_t poll;
	int fd;
	uint64_t accepted;
};

static struct listener listener;

static bool has_room(const struct gateway *gw)
{
	return (gw->policy != NULL || gw->refuses) && !gateway_congested(gw) &&
	       gw->n_conns < GATEWAY_CONNS_MAX;
}

static void conn_free(struct fdwatch *w)
{
	struct conn *c = container_of(w, struct conn, watch);

	free(c);
}

static int read_addresses(struct conn *c)
{
	struct sockaddr_in6 from = { 0 }, to = { 0 };
	socklen_t n_from = sizeof(from), n_to = sizeof(to);
	const char *name;

	if (getpeername(c->fd, (struct sockaddr *)&from, &n_from) < 0 ||
		getsockname(c->fd, (struct sockaddr *)&to, &n_to) < 0)
		return -errno;
	c->from = from.sin6_addr;
	c->from_port = ntohs(from.sin6_port);
	c->to = to.sin6_addr;
	c->port = ntohs(to.sin6_port);
	address_text(&c->to, c->address);
	name = names_find(c->gw->names, &c->to);
	if (name != NULL)
		(void)!str_copy(c->name, sizeof(c->name), name);
	c->host = c->name[0] != '\0' ? c->name : c->address;
	return 0;
}

static void conn_main(void *arg)
{
	struct conn *c = arg;
	struct gateway *gw = c->gw;

	if (read_addresses(c) == 0) {
		const struct owner_socket s = { .protocol = IPPROTO_TCP,
			.from = c->from,
			.from_port = c->from_port,
			.to = c->to,
			.to_port = c->port };

		c->whose = owner_search_new(gw, &s);
		serve(c);
	}
	list_remove(&c->node);
	gw->n_conns--;
	policy_unref(c->policy);
	owner_search_unref(c->whose);
	fdwatch_close(&c->watch, conn_free);
	if (c->fd >= 0)
		(void)close(c->fd);
	waiters_wake(&gw->changed);
}

static void conn_new(struct gateway *gw, int fd)
{
	struct conn *c = xnew(struct conn);

	c->gw = gw;
	c->fd = fd;
	c->number = ++listener.accepted;
	c->accepted_ns = clock_now_ns();
	if (fdwatch_open(&c->watch, gw->loop, fd) < 0)
		abort();
	list_append(&gw->conns, &c->node);
	gw->n_conns++;
	fiber_start(conn_main, c);
}

static void on_readable(uv_poll_t *poll, attr_unused int status, attr_unused int events)
{
	struct gateway *gw = poll->data;
	int fd = -1;

	while (has_room(gw) &&
		(fd = accept4(listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		conn_new(gw, fd);
	if (!has_room(gw))
		(void)uv_poll_stop(poll);
}

/* Accepts again whenever there is room again. */
static void room_main(void *arg)
{
	struct gateway *gw = arg;

	for (;;) {
		if (has_room(gw) && !uv_is_active((uv_handle_t *)&listener.poll))
			(void)uv_poll_start(&listener.poll, UV_READABLE, on_readable);
		(void)waiters_wait(&gw->changed, 0);
	}
}

int conn_listen(struct gateway *gw, int fd)
{
	int rc = uv_poll_init(gw->loop, &listener.poll, fd);

	listener.poll.data = gw;
	listener.fd = fd;
	if (rc == 0)
		fiber_start(room_main, gw);
	return rc;
}
