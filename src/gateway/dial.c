/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/dial.h"
#include "base/ablate.h"
#include "base/clock.h"
#include "base/str.h"
#include "gateway/address.h"
#include "gateway/nearby.h"
#include "gateway/resolver.h"
#include "io/fdwatch.h"

#include <netinet/tcp.h>
#include <string.h>

#define ADDRESSES_MAX 8              /* of one name that are tried */
#define TRY_NS        (5 * NS_PER_S) /* at most for one address while there are others */

/* --- resolving --- */

struct lookup {
	struct in6_addr addresses[ADDRESSES_MAX];
	size_t n;
};

static int resolve(struct gateway *gw, const char *host, struct lookup *l, struct err *err)
{
	*l = (struct lookup){ 0 };
	if (address_parse(host, &l->addresses[0]) == 0) {
		l->n = 1;
		return 0;
	}
	return resolver_addresses(gw, host, l->addresses, ADDRESSES_MAX, &l->n, err);
}

static const char *forbidden(const struct gateway *gw, const struct in6_addr *address)
{
	const char *what = address_forbidden(address);

	return what != NULL ? what : nearby(gw->routes_fd, address);
}

/* Drop what may not be dialled. Return: 0 when something is left, else -EACCES naming the first of the others. */
static int filter(
	const struct gateway *gw, const struct dial_target *t, struct lookup *l, struct err *err)
{
	const char *first = NULL;
	char text[INET6_ADDRSTRLEN];
	size_t kept = 0;

	if ((t->rule != NULL && t->rule->private_addresses) || ablated("gateway_filter"))
		return 0;
	for (size_t i = 0; i < l->n; i++) {
		const char *what = forbidden(gw, &l->addresses[i]);

		if (what == NULL)
			l->addresses[kept++] = l->addresses[i];
		else if (i == 0)
			first = what;
	}
	if (kept == 0) {
		address_text(&l->addresses[0], text);
		(void)err_raise(err, ERR_DENIED,
			"'%s' is at %s, a %s address, which takes a rule with private: true",
			t->host, text, first);
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

	for (size_t i = 0; i < l->n; i++) {
		uint64_t now = clock_now_ns(), share;

		if (now >= deadline_ns)
			break;
		share = (deadline_ns - now) / (l->n - i);
		if (i + 1 < l->n && share > TRY_NS)
			share = TRY_NS;
		rc = connect_to(gw, &l->addresses[i], port, now + share);
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
		rc = filter(gw, target, &l, err);
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
