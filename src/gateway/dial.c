/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/dial.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"
#include "gateway/address.h"
#include "io/fdwatch.h"

#include <ares.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>

#define ADDRESSES_MAX 8              /* of one name that are tried */
#define TRY_NS        (5 * NS_PER_S) /* for one address while there are others */
#define SOCKETS_MAX   16 /* of the resolver: one for each of the host's name servers, and TCP */

/* A descriptor of c-ares. */
struct resolver_socket {
	uv_poll_t poll;
	ares_socket_t fd;
	struct gateway *gw;
};

struct dialer {
	ares_channel channel;
	uv_timer_t timer;
	struct resolver_socket *sockets[SOCKETS_MAX];
};

/* --- c-ares on the loop --- */

static void timer_again(struct gateway *gw);

static void on_socket(uv_poll_t *poll, int status, int events)
{
	struct resolver_socket *s = container_of(poll, struct resolver_socket, poll);
	bool both = status < 0;

	ares_process_fd(s->gw->dialer->channel,
		both || (events & UV_READABLE) != 0 ? s->fd : ARES_SOCKET_BAD,
		both || (events & UV_WRITABLE) != 0 ? s->fd : ARES_SOCKET_BAD);
	timer_again(s->gw);
}

static void on_timer(uv_timer_t *timer)
{
	struct gateway *gw = timer->data;

	ares_process_fd(gw->dialer->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	timer_again(gw);
}

static void timer_again(struct gateway *gw)
{
	struct timeval room, *left = ares_timeout(gw->dialer->channel, NULL, &room);

	if (left == NULL)
		(void)uv_timer_stop(&gw->dialer->timer);
	else
		(void)uv_timer_start(&gw->dialer->timer, on_timer,
			(uint64_t)left->tv_sec * 1000 + (uint64_t)left->tv_usec / 1000 + 1, 0);
}

static void socket_closed(uv_handle_t *handle)
{
	free(container_of((uv_poll_t *)handle, struct resolver_socket, poll));
}

static struct resolver_socket *socket_new(struct gateway *gw, ares_socket_t fd)
{
	struct resolver_socket *s = xnew(struct resolver_socket);

	s->gw = gw;
	s->fd = fd;
	if (uv_poll_init(gw->loop, &s->poll, fd) < 0)
		abort();
	return s;
}

/* c-ares opens, closes and wishes; a slot for each descriptor. */
static void on_wish(void *data, ares_socket_t fd, int readable, int writable)
{
	struct gateway *gw = data;
	struct resolver_socket **slot = NULL;

	for (size_t i = 0; i < SOCKETS_MAX; i++) {
		struct resolver_socket *s = gw->dialer->sockets[i];

		if (s != NULL && s->fd == fd) {
			slot = &gw->dialer->sockets[i];
			break;
		}
		if (s == NULL && slot == NULL)
			slot = &gw->dialer->sockets[i];
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
		*slot = socket_new(gw, fd);
	(void)uv_poll_start(&(*slot)->poll,
		(readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_socket);
}

int dialer_init(struct gateway *gw)
{
	static char from_servers[] = "b";
	struct ares_options options = { .sock_state_cb = on_wish,
		.sock_state_cb_data = gw,
		.timeout = 2000,
		.tries = 3,
		.lookups = from_servers };
	int mask = ARES_OPT_SOCK_STATE_CB | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS;

	gw->dialer = xnew(struct dialer);
	if (ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS ||
		ares_init_options(&gw->dialer->channel, &options, mask) != ARES_SUCCESS)
		return -EIO;
	gw->dialer->timer.data = gw;
	return uv_timer_init(gw->loop, &gw->dialer->timer);
}

/* --- resolving --- */

/* In the memory of whoever waits; it waits until @done, however long: c-ares has deadlines of its own. */
struct lookup {
	bool done;
	int status;
	struct in6_addr addresses[ADDRESSES_MAX];
	size_t n;
	struct waiters waiters;
};

static void add_address(struct lookup *l, const struct sockaddr *address)
{
	struct in6_addr *to = &l->addresses[l->n];

	if (l->n == ADDRESSES_MAX)
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

static void on_answer(void *arg, int status, attr_unused int timeouts, struct ares_addrinfo *result)
{
	struct lookup *l = arg;

	l->status = status;
	for (struct ares_addrinfo_node *n = result != NULL ? result->nodes : NULL; n != NULL;
		n = n->ai_next)
		add_address(l, n->ai_addr);
	ares_freeaddrinfo(result);
	l->done = true;
	waiters_wake(&l->waiters);
}

static int resolve(struct gateway *gw, const char *host, struct lookup *l, struct err *err)
{
	const struct ares_addrinfo_hints hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = ARES_AI_NOSORT
	};

	*l = (struct lookup){ 0 };
	waiters_init(&l->waiters);
	if (address_parse(host, &l->addresses[0]) == 0) {
		l->n = 1;
		return 0;
	}
	ares_getaddrinfo(gw->dialer->channel, host, NULL, &hints, on_answer, l);
	timer_again(gw);
	while (!l->done)
		(void)waiters_wait(&l->waiters, 0);
	if (l->n > 0)
		return 0;
	if (l->status == ARES_ENOTFOUND || l->status == ARES_ENODATA) {
		(void)err_raise(err, ERR_NOT_FOUND, "'%s' has no address", host);
		return -ENOENT;
	}
	(void)err_raise(err, ERR_UNAVAILABLE, "look '%s' up: %s", host, ares_strerror(l->status));
	return -EHOSTUNREACH;
}

/* Drop what may not be dialled. Return: 0 when something is left, else -EACCES naming the first of the others. */
static int filter(const struct dial_target *t, struct lookup *l, struct err *err)
{
	char text[INET6_ADDRSTRLEN];
	size_t kept = 0;

	if ((t->rule != NULL && t->rule->private_addresses) || ablated("gateway_filter"))
		return 0;
	for (size_t i = 0; i < l->n; i++) {
		if (address_forbidden(&l->addresses[i]) == NULL)
			l->addresses[kept++] = l->addresses[i];
	}
	if (kept == 0) {
		address_text(&l->addresses[0], text);
		(void)err_hint(err,
			err_raise(err, ERR_DENIED, "'%s' is at %s, a %s address", t->host, text,
				address_forbidden(&l->addresses[0])),
			"a rule may permit it with private: true");
		return -EACCES;
	}
	l->n = kept;
	return 0;
}

/* --- connecting --- */

struct attempt {
	struct fdwatch watch;
	bool closed;
	struct waiters waiters;
};

static void attempt_closed(struct fdwatch *w)
{
	free(container_of(w, struct attempt, watch));
}

static int socket_error(int fd)
{
	socklen_t n = sizeof(int);
	int error = 0;

	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0 ? -errno : -error;
}

/* Return: the connected descriptor, or -errno. */
static int connect_to(
	struct gateway *gw, const struct in6_addr *address, uint16_t port, uint64_t deadline_ns)
{
	static const int on = 1;
	struct sockaddr_storage to;
	socklen_t n = address_socket(address, port, &to);
	cleanup_fd int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct attempt *a;
	int rc;

	if (fd < 0)
		return -errno;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&to, n) == 0)
		return TAKE_FD(fd);
	if (errno != EINPROGRESS)
		return -errno;
	a = xnew(struct attempt);
	rc = fdwatch_open(&a->watch, gw->loop, fd);
	if (rc < 0) {
		free(a);
		return rc;
	}
	rc = fdwatch_wait(&a->watch, true, deadline_ns);
	if (rc == 0)
		rc = socket_error(fd);
	fdwatch_close(&a->watch, attempt_closed);
	return rc < 0 ? rc : TAKE_FD(fd);
}

static int connect_any(struct gateway *gw, const struct lookup *l, uint16_t port,
	uint64_t deadline_ns, struct dial_result *ret)
{
	int rc = -EHOSTUNREACH;

	for (size_t i = 0; i < l->n && clock_now_ns() < deadline_ns; i++) {
		uint64_t until = clock_now_ns() + TRY_NS;

		if (i + 1 == l->n || until > deadline_ns)
			until = deadline_ns;
		rc = connect_to(gw, &l->addresses[i], port, until);
		if (rc >= 0) {
			ret->fd = rc;
			ret->port = port;
			address_text(&l->addresses[i], ret->address);
			return 0;
		}
	}
	return rc;
}

/* What the rule says to dial instead: "address:port", "[address]:port". It was written by whoever wrote the policy. */
static int split_upstream(const char *upstream, char host[256], uint16_t *ret_port, struct err *err)
{
	const char *colon = strrchr(upstream, ':');
	uint64_t port;
	size_t n = colon != NULL ? (size_t)(colon - upstream) : 0;

	if (n > 2 && upstream[0] == '[' && upstream[n - 1] == ']') {
		upstream++;
		n -= 2;
	}
	if (n == 0 || n >= 256 || str_to_u64(colon + 1, 1, UINT16_MAX, &port) < 0)
		return err_raise(err, ERR_INVALID, "'%s' is no address and port", upstream);
	memcpy(host, upstream, n);
	host[n] = '\0';
	*ret_port = (uint16_t)port;
	return 0;
}

int dial(struct gateway *gw, const struct dial_target *target, uint64_t deadline_ns,
	struct dial_result *ret, struct err *err)
{
	uint64_t began = clock_now_ns();
	bool elsewhere = target->rule != NULL && target->rule->upstream != NULL;
	uint16_t port = target->port;
	char host[256];
	struct lookup l;
	int rc = 0;

	*ret = (struct dial_result){ .fd = -1 };
	if (elsewhere)
		rc = split_upstream(target->rule->upstream, host, &port, err);
	if (rc == 0)
		rc = resolve(gw, elsewhere ? host : target->host, &l, err);
	if (rc == 0 && !elsewhere)
		rc = filter(target, &l, err);
	if (rc < 0)
		return rc;
	ret->resolved_us = (clock_now_ns() - began) / 1000U;
	rc = connect_any(gw, &l, port, deadline_ns, ret);
	ret->connected_us = (clock_now_ns() - began) / 1000U - ret->resolved_us;
	if (rc < 0)
		(void)err_raise(err, ERR_UNAVAILABLE, "connect to '%s' port %u: %s", target->host,
			port, strerrordesc_np(-rc));
	return rc;
}
