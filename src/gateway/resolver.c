/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/resolver.h"
#include "base/log.h"
#include "base/str.h"
#include "codec/dns.h"

#include <ares.h>
#include <netdb.h>
#include <string.h>

#define SOCKETS_MAX   16 /* of a channel: one for each name server, and TCP */
#define ABSOLUTE_SIZE (DNS_NAME_MAX + 2)

/* A descriptor of c-ares. */
struct resolver_socket {
	uv_poll_t poll;
	ares_socket_t fd;
	struct channel_of *of;
};

/* c-ares with its sockets and its clock on the loop. */
struct channel_of {
	uv_loop_t *loop;
	ares_channel ares;
	uv_timer_t timer;
	struct resolver_socket *sockets[SOCKETS_MAX];
};

struct resolver {
	struct channel_of host; /* asks the host's name servers */
	struct channel_of
		named; /* asks one that a rule names; its servers can be changed only while nobody waits for it */
	char *servers; /* that cayd has named instead of those that there were at the start, or NULL */
	bool named_busy;
	struct waiters named_free;
};

/* --- c-ares on the loop --- */

static void timer_again(struct channel_of *c);

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct resolver_socket *s = container_of(poll, struct resolver_socket, poll);
	struct channel_of *c = s->of;
	bool both = status < 0;

	ares_process_fd(c->ares, both || (events & UV_READABLE) != 0 ? s->fd : ARES_SOCKET_BAD,
		both || (events & UV_WRITABLE) != 0 ? s->fd : ARES_SOCKET_BAD);
	timer_again(c);
}

static void on_timer(uv_timer_t *timer)
{
	struct channel_of *c = timer->data;

	ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	timer_again(c);
}

static void timer_again(struct channel_of *c)
{
	struct timeval room, *left = ares_timeout(c->ares, NULL, &room);

	if (left == NULL)
		(void)uv_timer_stop(&c->timer);
	else
		(void)uv_timer_start(&c->timer, on_timer,
			(uint64_t)left->tv_sec * 1000 + (uint64_t)left->tv_usec / 1000 + 1, 0);
}

static void socket_closed(uv_handle_t *handle)
{
	free(container_of((uv_poll_t *)handle, struct resolver_socket, poll));
}

static struct resolver_socket *socket_new(struct channel_of *c, ares_socket_t fd)
{
	struct resolver_socket *s = xnew(struct resolver_socket);

	s->of = c;
	s->fd = fd;
	if (uv_poll_init(c->loop, &s->poll, fd) < 0)
		abort();
	return s;
}

/* c-ares opens, closes and wishes; a slot for each descriptor. */
static void on_wish(void *data, ares_socket_t fd, int readable, int writable)
{
	struct channel_of *c = data;
	struct resolver_socket **slot = NULL;

	for (size_t i = 0; i < SOCKETS_MAX; i++) {
		struct resolver_socket *s = c->sockets[i];

		if (s != NULL && s->fd == fd) {
			slot = &c->sockets[i];
			break;
		}
		if (s == NULL && slot == NULL)
			slot = &c->sockets[i];
	}
	if (slot == NULL)
		return; /* more name servers than we listen to: the timer goes on to the next */
	if (!readable && !writable) {
		if (*slot != NULL)
			uv_close((uv_handle_t *)&(*slot)->poll, socket_closed);
		*slot = NULL;
		return;
	}
	if (*slot == NULL)
		*slot = socket_new(c, fd);
	(void)uv_poll_start(&(*slot)->poll,
		(readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_socket);
}

static int channel_open(struct channel_of *c, uv_loop_t *loop)
{
	static char from_servers[] = "b";
	struct ares_options options = { .sock_state_cb = on_wish,
		.sock_state_cb_data = c,
		.timeout = 2000,
		.tries = 3,
		.lookups = from_servers };
	int mask = ARES_OPT_SOCK_STATE_CB | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS;

#ifdef ARES_OPT_QUERY_CACHE
	/* From 1.31 on c-ares would answer again by itself what was asked within the last hour; what is told of a question is that it was asked. */
	mask |= ARES_OPT_QUERY_CACHE;
	options.qcache_max_ttl = 0;
#endif
	c->loop = loop;
	c->timer.data = c;
	if (ares_init_options(&c->ares, &options, mask) != ARES_SUCCESS)
		return -EIO;
	return uv_timer_init(loop, &c->timer);
}

/* Who waits for the former servers asks again: c-ares takes others only while nobody waits. */
static void on_config(struct gateway *gw)
{
	struct resolver *r = gw->resolver;
	const char *servers = json_string_value(json_object_get(gw->config, "nameservers"));

	if (servers == NULL || (r->servers != NULL && str_eq(servers, r->servers)))
		return;
	ares_cancel(r->host.ares);
	if (ares_set_servers_ports_csv(r->host.ares, servers) != ARES_SUCCESS)
		log_error("gateway", "the name servers '%s' cannot be asked", servers);
	timer_again(&r->host);
	free(r->servers);
	r->servers = str_dup(servers);
}

int resolver_init(struct gateway *gw)
{
	struct resolver *r = gw->resolver = xnew(struct resolver);
	int rc = ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS ? 0 : -EIO;

	waiters_init(&r->named_free);
	gateway_on_config(on_config);
	if (rc == 0)
		rc = channel_open(&r->host, gw->loop);
	return rc == 0 ? channel_open(&r->named, gw->loop) : rc;
}

/* --- addresses --- */

/* In the memory of whoever waits; it waits until @done, however long: c-ares has deadlines of its own. */
struct lookup {
	bool done;
	int status;
	struct in6_addr *addresses;
	size_t n, max;
	struct buf *reply;
	struct waiters waiters;
};

static void lookup_wait(struct channel_of *c, struct lookup *l)
{
	timer_again(c);
	while (!l->done)
		(void)waiters_wait(&l->waiters, 0);
}

static void lookup_end(struct lookup *l, int status)
{
	l->status = status;
	l->done = true;
	waiters_wake(&l->waiters);
}

static void add_address(struct lookup *l, const struct sockaddr *address)
{
	struct in6_addr *to = &l->addresses[l->n];

	if (l->n == l->max)
		return;
	*to = (struct in6_addr){ .s6_addr = { [10] = 0xff, 0xff } };
	if (address->sa_family == AF_INET6)
		memcpy(to, (const char *)address + offsetof(struct sockaddr_in6, sin6_addr), 16);
	else if (address->sa_family == AF_INET)
		memcpy(to->s6_addr + 12,
			(const char *)address + offsetof(struct sockaddr_in, sin_addr), 4);
	else
		return;
	l->n++;
}

/* From @n on, the first one that is, or is not, of @family. */
static const struct ares_addrinfo_node *of_family(
	const struct ares_addrinfo_node *n, int family, bool is)
{
	while (n != NULL && (n->ai_family == family) != is)
		n = n->ai_next;
	return n;
}

/* IPv4 and IPv6 by turns: where only one of them leads anywhere the other's addresses, however many, do not take its places. */
static void add_by_turns(struct lookup *l, const struct ares_addrinfo_node *all)
{
	const struct ares_addrinfo_node *next[2] = { all };

	if (all != NULL)
		next[1] = of_family(all, all->ai_family, false);
	for (size_t i = 0; next[0] != NULL || next[1] != NULL; i = 1 - i) {
		if (next[i] == NULL)
			continue;
		add_address(l, next[i]->ai_addr);
		next[i] = of_family(next[i]->ai_next, next[i]->ai_family, true);
	}
}

static void on_addresses(
	void *arg, int status, attr_unused int timeouts, struct ares_addrinfo *result)
{
	struct lookup *l = arg;

	add_by_turns(l, result != NULL ? result->nodes : NULL);
	ares_freeaddrinfo(result);
	lookup_end(l, status);
}

/* With a dot at its end c-ares asks for a name as it stands, not for what it is within the domains that the machine searches: nobody has judged those. One of a single label means one of these. */
static void as_it_stands(const char *host, char text[ABSOLUTE_SIZE])
{
	(void)snprintf(text, ABSOLUTE_SIZE, strchr(host, '.') != NULL ? "%s." : "%s", host);
}

int resolver_addresses(struct gateway *gw, const char *host, struct in6_addr *ret, size_t max,
	size_t *ret_n, struct err *err)
{
	const struct ares_addrinfo_hints hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT
	};
	struct channel_of *c = &gw->resolver->host;
	char name[ABSOLUTE_SIZE];
	struct lookup l;

	as_it_stands(host, name);
	do {
		l = (struct lookup){ .addresses = ret, .max = max };
		waiters_init(&l.waiters);
		ares_getaddrinfo(c->ares, name, NULL, &hints, on_addresses, &l);
		lookup_wait(c, &l);
	} while (l.status == ARES_ECANCELLED); /* on_config() */
	*ret_n = l.n;
	if (l.n > 0)
		return 0;
	if (l.status == ARES_ENOTFOUND || l.status == ARES_ENODATA) {
		(void)err_raise(err, ERR_NOT_FOUND, "'%s' has no address", host);
		return -ENOENT;
	}
	(void)err_raise(err, ERR_UNAVAILABLE, "look '%s' up: %s", host, ares_strerror(l.status));
	return -EHOSTUNREACH;
}

/* --- records --- */

static void on_reply(
	void *arg, int status, attr_unused int timeouts, unsigned char *message, int size)
{
	struct lookup *l = arg;

	if (status == ARES_SUCCESS)
		buf_add(l->reply, message, (size_t)size);
	lookup_end(l, status);
}

static int ask(struct channel_of *c, const char *name, int type, struct buf *reply)
{
	struct lookup l;

	do {
		l = (struct lookup){ .reply = reply };
		waiters_init(&l.waiters);
		ares_query(c->ares, name, 1 /* IN */, type, on_reply, &l);
		lookup_wait(c, &l);
	} while (l.status == ARES_ECANCELLED); /* on_config() */
	switch (l.status) {
	case ARES_SUCCESS:
		return 0;
	case ARES_ENOTFOUND:
		return -ENOENT;
	case ARES_ENODATA:
		return -ENODATA;
	default:
		return -EHOSTUNREACH;
	}
}

static int ask_named(
	struct resolver *r, const char *name, int type, const char *server, struct buf *reply)
{
	int rc = -EHOSTUNREACH;

	while (r->named_busy)
		(void)waiters_wait(&r->named_free, 0);
	r->named_busy = true;
	if (ares_set_servers_ports_csv(r->named.ares, server) == ARES_SUCCESS)
		rc = ask(&r->named, name, type, reply);
	r->named_busy = false;
	waiters_wake(&r->named_free);
	return rc;
}

int resolver_ask(
	struct gateway *gw, const char *name, int type, const char *server, struct buf *reply)
{
	return server != NULL ? ask_named(gw->resolver, name, type, server, reply)
			      : ask(&gw->resolver->host, name, type, reply);
}
