/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_options.c - options of sockets that are numbers or times and can be set back as they are read (socket(7), ip(7), ipv6(7), tcp(7)). Those that other parts of a
 * restore depend on, or that a kernel changes by itself (buffers, addresses, credentials), are with the socket: dump_sockets.c.
 *
 * What a socket has that a fresh one of its kind has too, in the sandbox's network, is left out. What only counts where there are devices and queues (busy polling, SO_TXREHASH)
 * and what the kernel changes by itself (TCP_QUICKACK) is not looked at; docs/design/0006 names what nobody can be asked for.
 */
#include "checkpoint/dump_parts.h"

#include <linux/filter.h>
#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Those that headers of libc or of an older kernel do not have. */
#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif
#define OPTION_TCP_TX_DELAY       37
#define OPTION_TCP_RTO_MAX_MS     44
#define OPTION_TCP_RTO_MIN_US     45
#define OPTION_TCP_DELACK_MAX_US  46
#define OPTION_RCVMARK            75
#define OPTION_PASSPIDFD          76
#define OPTION_RCVPRIORITY        82
#define OPTION_PASSRIGHTS         83
#define OPTION_IP_ADDRESS_NO_PORT 24
#define OPTION_IP_LOCAL_PORTS     51
#define OPTION_IP_RFC4884         26
#define OPTION_IPV6_RFC4884       31
#define OPTION_IPV6_MULTICAST_ALL 29
#define TIMESTAMPS_NUMBERED       (1U << 7) /* SOF_TIMESTAMPING_OPT_ID */

#define VALUE_MAX 64U
#define MSS_MOST  32767 /* that may be set */

/* which sockets have it: all, those of unix, of both versions of IP, of version 6, TCP, what is no connection of it; those that are not TCP, of both versions and of version 6; UDP; netlink */
enum kind { ANY, UNIX, INET, INET6, STREAM, IDLE, PACKETS, PACKETS6, UDP, NETLINK };

struct option {
	enum kind kind;
	int level, name;
};

/* SO_PRIORITY behind IP_TOS, which sets it; of two that undo each other the one that says more comes last */
static const struct option known[] = {
	{ INET, IPPROTO_IP, IP_TOS },
	{ INET, IPPROTO_IP, IP_TTL },
	{ INET, IPPROTO_IP, IP_OPTIONS },
	{ INET, IPPROTO_IP, IP_PKTINFO },
	{ INET, IPPROTO_IP, IP_MTU_DISCOVER },
	{ INET, IPPROTO_IP, IP_RECVERR },
	{ INET, IPPROTO_IP, IP_RECVTTL },
	{ INET, IPPROTO_IP, IP_RECVTOS },
	{ INET, IPPROTO_IP, IP_FREEBIND },
	{ INET, IPPROTO_IP, IP_MINTTL },
	{ INET, IPPROTO_IP, IP_UNICAST_IF },
	{ INET, IPPROTO_IP, OPTION_IP_ADDRESS_NO_PORT },
	{ INET, IPPROTO_IP, OPTION_IP_LOCAL_PORTS },
	{ PACKETS, IPPROTO_IP, IP_RECVOPTS },
	{ PACKETS, IPPROTO_IP, IP_RETOPTS },
	{ PACKETS, IPPROTO_IP, IP_PASSSEC },
	{ PACKETS, IPPROTO_IP, IP_RECVORIGDSTADDR },
	{ PACKETS, IPPROTO_IP, IP_CHECKSUM },
	{ PACKETS, IPPROTO_IP, IP_RECVFRAGSIZE },
	{ PACKETS, IPPROTO_IP, OPTION_IP_RFC4884 },
	{ PACKETS, IPPROTO_IP, IP_MULTICAST_IF },
	{ PACKETS, IPPROTO_IP, IP_MULTICAST_TTL },
	{ PACKETS, IPPROTO_IP, IP_MULTICAST_LOOP },
	{ PACKETS, IPPROTO_IP, IP_MULTICAST_ALL },
	{ INET6, IPPROTO_IPV6, IPV6_UNICAST_HOPS },
	{ INET6, IPPROTO_IPV6, IPV6_MTU_DISCOVER },
	{ INET6, IPPROTO_IPV6, IPV6_RECVERR },
	{ INET6, IPPROTO_IPV6, IPV6_RECVPKTINFO },
	{ INET6, IPPROTO_IPV6, IPV6_RECVHOPLIMIT },
	{ INET6, IPPROTO_IPV6, IPV6_FLOWINFO_SEND },
	{ INET6, IPPROTO_IPV6, IPV6_TCLASS },
	{ INET6, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL },
	{ INET6, IPPROTO_IPV6, IPV6_ADDR_PREFERENCES },
	{ INET6, IPPROTO_IPV6, IPV6_MINHOPCOUNT },
	{ INET6, IPPROTO_IPV6, IPV6_UNICAST_IF },
	{ INET6, IPPROTO_IPV6, IPV6_DONTFRAG },
	{ PACKETS6, IPPROTO_IPV6, IPV6_2292PKTINFO },
	{ PACKETS6, IPPROTO_IPV6, IPV6_2292HOPOPTS },
	{ PACKETS6, IPPROTO_IPV6, IPV6_2292DSTOPTS },
	{ PACKETS6, IPPROTO_IPV6, IPV6_2292RTHDR },
	{ PACKETS6, IPPROTO_IPV6, IPV6_2292HOPLIMIT },
	{ PACKETS6, IPPROTO_IPV6, IPV6_FLOWINFO },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVHOPOPTS },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVRTHDR },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVDSTOPTS },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVPATHMTU },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVTCLASS },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVORIGDSTADDR },
	{ PACKETS6, IPPROTO_IPV6, IPV6_RECVFRAGSIZE },
	{ PACKETS6, IPPROTO_IPV6, OPTION_IPV6_RFC4884 },
	{ PACKETS6, IPPROTO_IPV6, IPV6_MULTICAST_IF },
	{ PACKETS6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS },
	{ PACKETS6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP },
	{ PACKETS6, IPPROTO_IPV6, OPTION_IPV6_MULTICAST_ALL },
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
	{ STREAM, IPPROTO_TCP, TCP_CONGESTION },
	{ STREAM, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS },
	{ STREAM, IPPROTO_TCP, TCP_SAVE_SYN },
	{ STREAM, IPPROTO_TCP, OPTION_TCP_TX_DELAY },
	{ STREAM, IPPROTO_TCP, OPTION_TCP_RTO_MAX_MS },
	{ STREAM, IPPROTO_TCP, OPTION_TCP_RTO_MIN_US },
	{ STREAM, IPPROTO_TCP, OPTION_TCP_DELACK_MAX_US },
	{ IDLE, IPPROTO_TCP, TCP_MAXSEG },
	{ IDLE, IPPROTO_TCP, TCP_WINDOW_CLAMP },
	{ IDLE, IPPROTO_TCP, TCP_FASTOPEN },
	{ IDLE, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE },
	{ UDP, IPPROTO_UDP, UDP_CORK },
	{ UDP, IPPROTO_UDP, UDP_NO_CHECK6_TX },
	{ UDP, IPPROTO_UDP, UDP_NO_CHECK6_RX },
	{ UDP, IPPROTO_UDP, UDP_SEGMENT },
	{ UDP, IPPROTO_UDP, UDP_GRO },
	{ UDP, SOL_SOCKET, SO_NO_CHECK },
	{ NETLINK, SOL_NETLINK, NETLINK_PKTINFO },
	{ NETLINK, SOL_NETLINK, NETLINK_BROADCAST_ERROR },
	{ NETLINK, SOL_NETLINK, NETLINK_NO_ENOBUFS },
	{ NETLINK, SOL_NETLINK, NETLINK_CAP_ACK },
	{ NETLINK, SOL_NETLINK, NETLINK_EXT_ACK },
	{ NETLINK, SOL_NETLINK, NETLINK_GET_STRICT_CHK },
	{ ANY, SOL_SOCKET, SO_RCVTIMEO },
	{ ANY, SOL_SOCKET, SO_SNDTIMEO },
	{ ANY, SOL_SOCKET, SO_LINGER },
	{ ANY, SOL_SOCKET, SO_BROADCAST },
	{ ANY, SOL_SOCKET, SO_OOBINLINE },
	{ ANY, SOL_SOCKET, SO_PRIORITY },
	{ ANY, SOL_SOCKET, SO_RCVLOWAT },
	{ ANY, SOL_SOCKET, SO_TIMESTAMP_OLD },
	{ ANY, SOL_SOCKET, SO_TIMESTAMPNS_OLD },
	{ ANY, SOL_SOCKET, SO_TIMESTAMPING_OLD },
	{ ANY, SOL_SOCKET, SO_TIMESTAMP_NEW },
	{ ANY, SOL_SOCKET, SO_TIMESTAMPNS_NEW },
	{ ANY, SOL_SOCKET, SO_TIMESTAMPING_NEW },
	{ ANY, SOL_SOCKET, SO_DONTROUTE },
	{ ANY, SOL_SOCKET, SO_RXQ_OVFL },
	{ ANY, SOL_SOCKET, SO_PEEK_OFF },
	{ ANY, SOL_SOCKET, SO_PASSSEC },
	{ UNIX, SOL_SOCKET, OPTION_PASSPIDFD },
	{ UNIX, SOL_SOCKET, OPTION_PASSRIGHTS },
	{ INET, SOL_SOCKET, SO_MAX_PACING_RATE },
	{ INET, SOL_SOCKET, SO_TXTIME },
	{ INET, SOL_SOCKET, SO_BINDTOIFINDEX },
	{ IDLE, SOL_SOCKET, SO_INCOMING_CPU },
	{ PACKETS, SOL_SOCKET, SO_SELECT_ERR_QUEUE },
	{ PACKETS, SOL_SOCKET, OPTION_RCVMARK },
	{ PACKETS, SOL_SOCKET, OPTION_RCVPRIORITY },
};

/** struct value - of an option. size 0: it has none. */
struct value {
	socklen_t size;
	uint8_t bytes[VALUE_MAX];
};

/** struct fresh - what a socket of one kind has that nobody has touched. */
struct fresh {
	int domain, type, protocol;
	struct value values[ARRAY_SIZE(known)];
};

#define FRESH_MAX 16

static bool applies(const struct option *o, int domain, int protocol)
{
	const bool inet = domain == AF_INET || domain == AF_INET6;

	switch (o->kind) {
	case ANY:
		return true;
	case UNIX:
		return domain == AF_UNIX;
	case INET:
		return inet;
	case INET6:
		return domain == AF_INET6;
	case STREAM:
		return inet && protocol == IPPROTO_TCP;
	case IDLE:
		return inet && (o->level != IPPROTO_TCP || protocol == IPPROTO_TCP);
	case PACKETS:
		return inet && protocol != IPPROTO_TCP;
	case PACKETS6:
		return domain == AF_INET6 && protocol != IPPROTO_TCP;
	case UDP:
		return inet && protocol == IPPROTO_UDP;
	case NETLINK:
		return domain == AF_NETLINK;
	}
	return false;
}

static struct value read_one(int fd, const struct option *o)
{
	struct value out = { .size = VALUE_MAX };

	if (getsockopt(fd, o->level, o->name, out.bytes, &out.size) < 0)
		out.size = 0;
	return out;
}

/* In the sandbox's network, whose defaults are not the machine's. Those of ping begin as those of UDP do, which nobody may be denied. Return: -1 = none can be made. */
static int make_fresh(const struct dump_process *p, int domain, int type, int protocol)
{
	if (domain != AF_UNIX && dump_network(p) < 0)
		return -1;
	if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6)
		protocol = 0;
	return socket(domain, type | SOCK_CLOEXEC, protocol);
}

/* Return: NULL when there are too many kinds, or none can be made here: then all is carried. */
static const struct fresh *find_fresh(
	const struct dump_process *p, int domain, int type, int protocol)
{
	static struct fresh all[FRESH_MAX];
	static size_t n;
	cleanup_fd int fd = -1;
	struct fresh *f = &all[n];

	for (size_t i = 0; i < n; i++) {
		if (all[i].domain == domain && all[i].type == type && all[i].protocol == protocol)
			return &all[i];
	}
	fd = n == FRESH_MAX ? -1 : make_fresh(p, domain, type, protocol);
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

/* Of what has been a connection it is what that came to, which nobody may ask for. */
static bool may_be_set(const struct option *o, const struct value *v)
{
	int number;

	if (o->level != IPPROTO_TCP || o->name != TCP_MAXSEG)
		return true;
	memcpy(&number, v->bytes, sizeof(number));
	return number <= MSS_MOST;
}

void dump_add_option(
	struct dump *d, struct subject *s, int level, int name, const void *value, size_t n)
{
	struct image_option out = {
		.level = level, .name = name, .value = image_add_bytes(&d->image, value, n)
	};

	if (s->out.n_options++ == 0)
		s->out.first_option =
			image_count(&d->image, TABLE_OPTIONS, sizeof(struct image_option));
	(void)IMAGE_ADD(&d->image, TABLE_OPTIONS, &out);
}

/* The kernel counts in instructions. One of the newer kind (SO_ATTACH_BPF) it shows to nobody. */
static int add_filter(struct dump *d, struct subject *s, struct err *err)
{
	struct sock_filter *code;
	socklen_t n = 0;
	int rc = getsockopt(s->copy, SOL_SOCKET, SO_GET_FILTER, NULL, &n) < 0 ? -errno : 0;

	if (rc == -EACCES)
		return subject_refuse(s, err, "a socket with a filter that nobody may read");
	if (rc < 0 || n == 0)
		return 0;
	code = calloc(n, sizeof(*code));
	if (code == NULL)
		abort();
	if (getsockopt(s->copy, SOL_SOCKET, SO_GET_FILTER, code, &n) < 0)
		rc = subject_refuse(s, err, "a socket whose filter cannot be read");
	else
		dump_add_option(d, s, SOL_SOCKET, SO_ATTACH_FILTER, code, n * sizeof(*code));
	free(code);
	return rc;
}

/* Behind the filter: nobody may change that any more. */
static void add_lock(struct dump *d, struct subject *s)
{
	const int locked = dump_socket_number(s->copy, SOL_SOCKET, SO_LOCK_FILTER);

	if (locked != 0)
		dump_add_option(d, s, SOL_SOCKET, SO_LOCK_FILTER, &locked, sizeof(locked));
}

/* What the kernel numbers goes on from a count that it shows to nobody. */
static int check_counts(const struct subject *s, int domain, struct err *err)
{
	uint32_t flags = (uint32_t)dump_socket_number(s->copy, SOL_SOCKET, SO_TIMESTAMPING_OLD);

	if ((flags & TIMESTAMPS_NUMBERED) != 0)
		return subject_refuse(
			s, err, "a socket that numbers its timestamps (SOF_TIMESTAMPING_OPT_ID)");
	if (domain != AF_UNIX && dump_socket_number(s->copy, SOL_SOCKET, SO_ZEROCOPY) != 0)
		return subject_refuse(
			s, err, "a socket that numbers what it sends without a copy (SO_ZEROCOPY)");
	return 0;
}

int dump_options(struct dump *d, struct subject *s, struct err *err)
{
	int domain = (int)(s->out.c & 0xffff), protocol = (int)(s->out.c >> 16);
	const struct fresh *fresh = find_fresh(s->p, domain, (int)s->out.a, protocol);
	int rc;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		const struct option *o = &known[i];
		struct value now;

		if (!applies(o, domain, protocol) ||
			(o->kind == IDLE && s->out.kind == DESCRIPTION_CONNECTION))
			continue;
		now = read_one(s->copy, o);
		if (now.size > 0 && may_be_set(o, &now) &&
			(fresh == NULL || memcmp(&now, &fresh->values[i], sizeof(now)) != 0))
			dump_add_option(d, s, o->level, o->name, now.bytes, now.size);
	}
	rc = dump_groups(d, s, err);
	if (rc == 0)
		rc = add_filter(d, s, err);
	add_lock(d, s);
	return rc < 0 ? rc : check_counts(s, domain, err);
}
