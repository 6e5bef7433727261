/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_options.c - options of sockets that are numbers or times and can be set back as they are read (socket(7), ip(7), ipv6(7), tcp(7)). Those that other parts of a
 * restore depend on, or that a kernel changes by itself (buffers, addresses, credentials), are with the socket: dump_sockets.c.
 *
 * What a socket has that a fresh one of its kind has too is left out. The network namespaces may differ in what that is: then an option is set that need not be.
 */
#include "checkpoint/dump_parts.h"

#include <linux/in6.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif
#ifndef SO_PASSPIDFD
#define SO_PASSPIDFD 76
#endif

/* which sockets have it: all, both versions, version 6, TCP; those that are not TCP, of both versions and of version 6 */
enum kind { ANY, INET, INET6, STREAM, MULTICAST, MULTICAST6 };

struct option {
	enum kind kind;
	int level, name;
};

/* SO_PRIORITY behind IP_TOS, which sets it */
static const struct option known[] = {
	{ INET, IPPROTO_IP, IP_TOS },
	{ INET, IPPROTO_IP, IP_TTL },
	{ INET, IPPROTO_IP, IP_PKTINFO },
	{ INET, IPPROTO_IP, IP_MTU_DISCOVER },
	{ INET, IPPROTO_IP, IP_RECVERR },
	{ INET, IPPROTO_IP, IP_RECVTTL },
	{ INET, IPPROTO_IP, IP_RECVTOS },
	{ INET, IPPROTO_IP, IP_FREEBIND },
	{ INET, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT },
	{ MULTICAST, IPPROTO_IP, IP_MULTICAST_TTL },
	{ MULTICAST, IPPROTO_IP, IP_MULTICAST_LOOP },
	{ INET6, IPPROTO_IPV6, IPV6_UNICAST_HOPS },
	{ MULTICAST6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS },
	{ MULTICAST6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP },
	{ INET6, IPPROTO_IPV6, IPV6_MTU_DISCOVER },
	{ INET6, IPPROTO_IPV6, IPV6_RECVERR },
	{ INET6, IPPROTO_IPV6, IPV6_RECVPKTINFO },
	{ INET6, IPPROTO_IPV6, IPV6_RECVHOPLIMIT },
	{ STREAM, IPPROTO_TCP, TCP_CORK },
	{ STREAM, IPPROTO_TCP, TCP_KEEPIDLE },
	{ STREAM, IPPROTO_TCP, TCP_KEEPINTVL },
	{ STREAM, IPPROTO_TCP, TCP_KEEPCNT },
	{ STREAM, IPPROTO_TCP, TCP_SYNCNT },
	{ STREAM, IPPROTO_TCP, TCP_LINGER2 },
	{ STREAM, IPPROTO_TCP, TCP_DEFER_ACCEPT },
	{ STREAM, IPPROTO_TCP, TCP_USER_TIMEOUT },
	{ STREAM, IPPROTO_TCP, TCP_NOTSENT_LOWAT },
	{ STREAM, IPPROTO_TCP, TCP_INQ },
	{ ANY, SOL_SOCKET, SO_RCVTIMEO },
	{ ANY, SOL_SOCKET, SO_SNDTIMEO },
	{ ANY, SOL_SOCKET, SO_LINGER },
	{ ANY, SOL_SOCKET, SO_BROADCAST },
	{ ANY, SOL_SOCKET, SO_OOBINLINE },
	{ ANY, SOL_SOCKET, SO_PRIORITY },
	{ ANY, SOL_SOCKET, SO_RCVLOWAT },
	{ ANY, SOL_SOCKET, SO_TIMESTAMP },
	{ ANY, SOL_SOCKET, SO_TIMESTAMPNS },
	{ ANY, SOL_SOCKET, SO_DONTROUTE },
	{ ANY, SOL_SOCKET, SO_RXQ_OVFL },
	{ ANY, SOL_SOCKET, SO_PEEK_OFF },
	{ ANY, SOL_SOCKET, SO_PASSSEC },
	{ ANY, SOL_SOCKET, SO_PASSPIDFD },
};

/** struct fresh - what a socket of one kind has that nobody has touched. */
struct fresh {
	int domain, type, protocol;
	struct image_option values[ARRAY_SIZE(known)];
};

#define FRESH_MAX 16

static bool applies(const struct option *o, int domain, int protocol)
{
	switch (o->kind) {
	case ANY:
		return true;
	case INET:
		return domain == AF_INET || domain == AF_INET6;
	case INET6:
		return domain == AF_INET6;
	case STREAM:
		return protocol == IPPROTO_TCP;
	case MULTICAST:
		return domain != AF_UNIX && protocol != IPPROTO_TCP;
	case MULTICAST6:
		return domain == AF_INET6 && protocol != IPPROTO_TCP;
	}
	return false;
}

/* size 0: it has none */
static struct image_option read_one(int fd, const struct option *o)
{
	struct image_option out = { .level = o->level, .name = o->name };
	socklen_t n = sizeof(out.value);

	out.size = getsockopt(fd, o->level, o->name, out.value, &n) < 0 ? 0 : n;
	return out;
}

/* Return: NULL when there are too many kinds, or none can be made here: then all is carried. */
static const struct fresh *find_fresh(int domain, int type, int protocol)
{
	static struct fresh all[FRESH_MAX];
	static size_t n;
	cleanup_fd int fd = -1;
	struct fresh *f = &all[n];

	for (size_t i = 0; i < n; i++) {
		if (all[i].domain == domain && all[i].type == type && all[i].protocol == protocol)
			return &all[i];
	}
	fd = n == FRESH_MAX ? -1 : socket(domain, type | SOCK_CLOEXEC, protocol);
	if (fd < 0)
		return NULL;
	n++;
	*f = (struct fresh){ .domain = domain, .type = type, .protocol = protocol };
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		if (applies(&known[i], domain, protocol))
			f->values[i] = read_one(fd, &known[i]);
	}
	return f;
}

void dump_options(struct dump *d, struct subject *s, int domain, int protocol)
{
	const struct fresh *fresh = find_fresh(domain, (int)s->out.a, protocol);

	s->out.first_option = image_count(&d->image, TABLE_OPTIONS, sizeof(struct image_option));
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		struct image_option now;

		if (!applies(&known[i], domain, protocol))
			continue;
		now = read_one(s->copy, &known[i]);
		if (now.size == 0 ||
			(fresh != NULL && memcmp(&now, &fresh->values[i], sizeof(now)) == 0))
			continue;
		(void)IMAGE_ADD(&d->image, TABLE_OPTIONS, &now);
		s->out.n_options++;
	}
}
