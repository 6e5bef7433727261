/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_sockets.c - sockets: their options, TCP and UDP, and which are each other's ends. TCP pairs have each other's addresses; what is on its way in
 * them: dump_tcp.c; what waits in those of UDP: dump_queues.c; unix sockets: dump_unix.c; those of ping: dump_pings.c;
 * of netlink: dump_netlink.c.
 * a = type, b = 1 + how it was shut down (0 = not), c = domain | protocol << 16, position = options, path = local address, remote = the other's.
 * data = what waits; of a listener: descriptions of those who wait to be accepted, the first first.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "checkpoint/ip_place.h"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif

enum {
	STATE_ESTABLISHED = 1,
	STATE_FIN_WAIT1 = 4,
	STATE_FIN_WAIT2 = 5,
	STATE_CLOSE = 7,
	STATE_CLOSE_WAIT = 8,
	STATE_LISTEN = 10
};

/* --- one socket --- */

int dump_socket_number(int fd, int level, int option)
{
	int value = 0;
	socklen_t n = sizeof(value);

	return getsockopt(fd, level, option, &value, &n) < 0 ? 0 : value;
}

bool dump_socket_is_empty(int fd)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t n = sizeof(info);

	return getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &n) == 0 &&
	       info[SK_MEMINFO_RMEM_ALLOC] == 0;
}

uint64_t dump_socket_shut(short revents)
{
	if ((revents & POLLRDHUP) == 0)
		return 0;
	return 1 + ((revents & POLLHUP) != 0 ? SHUT_RDWR : SHUT_RD);
}

/* What the program asked for; the kernel shows twice as much, and changes by itself what nobody asked for. */
static void read_buffers(struct subject *s)
{
	int locked = dump_socket_number(s->copy, SOL_SOCKET, SO_BUF_LOCK);

	if ((locked & 1) != 0)
		s->out.send_buffer =
			(uint32_t)dump_socket_number(s->copy, SOL_SOCKET, SO_SNDBUF) / 2;
	if ((locked & 2) != 0)
		s->out.receive_buffer =
			(uint32_t)dump_socket_number(s->copy, SOL_SOCKET, SO_RCVBUF) / 2;
}

static void read_options(struct subject *s, int domain)
{
	s->out.position =
		(dump_socket_number(s->copy, SOL_SOCKET, SO_REUSEADDR) != 0 ? SOCKET_REUSEADDR
									    : 0U) |
		(dump_socket_number(s->copy, SOL_SOCKET, SO_KEEPALIVE) != 0 ? SOCKET_KEEPALIVE
									    : 0U) |
		(dump_socket_number(s->copy, SOL_SOCKET, SO_PASSCRED) != 0 ? SOCKET_PASSCRED : 0U);
	if (domain != AF_UNIX)
		s->out.position |=
			(dump_socket_number(s->copy, SOL_SOCKET, SO_REUSEPORT) != 0
					? SOCKET_REUSEPORT
					: 0U) |
			(dump_socket_number(s->copy, IPPROTO_TCP, TCP_NODELAY) != 0 ? SOCKET_NODELAY
										    : 0U);
	if (domain == AF_INET6 && dump_socket_number(s->copy, IPPROTO_IPV6, IPV6_V6ONLY) != 0)
		s->out.position |= SOCKET_V6ONLY;
}

static struct image_span address(struct dump *d, const struct subject *s, bool remote)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	int rc = remote ? getpeername(s->copy, (struct sockaddr *)&a, &n)
			: getsockname(s->copy, (struct sockaddr *)&a, &n);

	/* a family alone is no address */
	if (rc < 0 || n <= sizeof(a.ss_family))
		return (struct image_span){ 0 };
	return image_add_bytes(&d->image, &a, n);
}

/* Neither a port nor an address: to bind it would give it a port, and then its program could not. */
static bool is_unbound(const struct subject *s)
{
	struct sockaddr_in6 a = { 0 };
	struct sockaddr_in v4;
	socklen_t n = sizeof(a);

	if (getsockname(s->copy, (struct sockaddr *)&a, &n) < 0 || a.sin6_port != 0)
		return false;
	memcpy(&v4, &a, sizeof(v4));
	return (a.sin6_family == AF_INET && v4.sin_addr.s_addr == INADDR_ANY) ||
	       (a.sin6_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&a.sin6_addr));
}

/* Sent out of turn (MSG_OOB): beside the stream, or with a mark in it that nobody can set again. */
static bool has_urgent(const struct subject *s)
{
	int at_mark = 0, waiting = 0;
	char c;

	if (recv(s->copy, &c, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) == 1)
		return true;
	return dump_socket_number(s->copy, SOL_SOCKET, SO_OOBINLINE) != 0 &&
	       ioctl(s->copy, SIOCATMARK, &at_mark) == 0 && at_mark != 0 &&
	       ioctl(s->copy, FIONREAD, &waiting) == 0 && waiting > 0;
}

/*
 * Both ends of a connection are done: what waits can be received, and then the end. A new one that is ended in the same way is as this one. Of others nothing can be received: they were
 * not connected yet, or in vain. An error that nobody has been told yet is lost (to ask is to take it), but what came before it must not look whole.
 */
static int add_closed(struct dump *d, struct subject *s, short revents, const struct tcp_info *info,
	struct err *err)
{
	int waiting = 0;

	s->out.kind = DESCRIPTION_SOCKET;
	/* the kernel sets aside room when a connection is there */
	if ((revents & POLLRDHUP) == 0 || info->tcpi_rcv_space == 0)
		return 0;
	if ((revents & POLLERR) != 0) {
		/* its port is others' again */
		s->out.path = (struct image_span){ 0 };
		return ioctl(s->copy, FIONREAD, &waiting) == 0 && waiting > 0
			       ? subject_busy(
					 d, s, err, "a connection that was reset, with data in it")
			       : 0;
	}
	s->out.kind = DESCRIPTION_CONNECTION;
	s->out.position |= SOCKET_ENDED;
	s->out.b = 1 + SHUT_WR;
	s->out.inode = (uint32_t)s->st.st_ino;
	return dump_tcp_over(d, s, err);
}

static int add_tcp(struct dump *d, struct subject *s, struct err *err)
{
	struct pollfd state = { .fd = s->copy, .events = POLLRDHUP };
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);

	if (getsockopt(s->copy, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
		return subject_refuse(s, err, "a TCP socket of which the kernel tells nothing");
	if (poll(&state, 1, 0) < 0)
		return subject_refuse(s, err, "a TCP socket of which the kernel tells nothing");
	switch (info.tcpi_state) {
	case STATE_LISTEN:
		s->out.kind = DESCRIPTION_LISTEN;
		s->out.backlog = info.tcpi_sacked;
		s->waits = info.tcpi_unacked > 0;
		return 0;
	case STATE_CLOSE:
		return add_closed(d, s, state.revents, &info, err);
	case STATE_FIN_WAIT1:
	case STATE_FIN_WAIT2:
		s->out.b = 1 + ((state.revents & POLLRDHUP) != 0 ? SHUT_RDWR : SHUT_WR);
		break;
	case STATE_CLOSE_WAIT:
		s->out.position |= SOCKET_ENDED;
		break;
	case STATE_ESTABLISHED:
		s->out.b = dump_socket_shut(state.revents);
		break;
	default:
		return subject_busy(d, s, err, "a connection that is being made or ended");
	}
	s->out.kind = DESCRIPTION_CONNECTION;
	s->out.remote = address(d, s, true);
	s->out.inode = (uint32_t)s->st.st_ino;
	return dump_tcp(d, s, err);
}

/* What waits in it is sent again, so it must be clear to whom. */
static int add_udp(struct dump *d, struct subject *s, struct err *err)
{
	struct pollfd state = { .fd = s->copy, .events = POLLIN | POLLRDHUP };
	int begun = 0;

	s->out.kind = DESCRIPTION_SOCKET;
	s->out.remote = address(d, s, true);
	if (poll(&state, 1, 0) < 0)
		return subject_refuse(s, err, "a UDP socket of which the kernel tells nothing");
	s->out.b = dump_socket_shut(state.revents);
	/* one that is not received from any more can be read for ever */
	s->waits =
		(state.revents & POLLIN) != 0 && (s->out.b == 0 || !dump_socket_is_empty(s->copy));
	if (ioctl(s->copy, SIOCOUTQ, &begun) == 0 && begun > 0)
		return subject_busy(
			d, s, err, "a UDP socket with a datagram that is still being put together");
	if (s->waits && (s->out.position & (SOCKET_REUSEADDR | SOCKET_REUSEPORT)) != 0)
		return subject_busy(
			d, s, err, "a UDP socket that shares its address, with datagrams in it");
	return 0;
}

static int add_by_protocol(
	struct dump *d, struct subject *s, int domain, int protocol, struct err *err)
{
	if (domain == AF_UNIX)
		return dump_unix(d, s, err);
	if ((domain == AF_INET || domain == AF_INET6) && protocol == IPPROTO_TCP)
		return add_tcp(d, s, err);
	if ((domain == AF_INET || domain == AF_INET6) && protocol == IPPROTO_UDP)
		return add_udp(d, s, err);
	if (s->out.a == SOCK_DGRAM && ((domain == AF_INET && protocol == IPPROTO_ICMP) ||
					      (domain == AF_INET6 && protocol == IPPROTO_ICMPV6)))
		return dump_ping(d, s, err);
	if (domain == AF_NETLINK && protocol == NETLINK_ROUTE)
		return dump_netlink(d, s, err);
	return subject_refuse(s, err, "a socket of a kind that cannot be carried over yet");
}

int dump_socket(struct dump *d, struct subject *s, struct err *err)
{
	int rc, domain = dump_socket_number(s->copy, SOL_SOCKET, SO_DOMAIN),
		protocol = dump_socket_number(s->copy, SOL_SOCKET, SO_PROTOCOL);

	s->out.a = (uint64_t)dump_socket_number(s->copy, SOL_SOCKET, SO_TYPE);
	s->out.c = (uint64_t)domain | (uint64_t)protocol << 16;
	read_options(s, domain);
	read_buffers(s);
	if (!is_unbound(s))
		s->out.path = address(d, s, false);
	if (s->out.a == SOCK_STREAM && has_urgent(s))
		return subject_busy(d, s, err, "a socket with urgent data in it");
	rc = add_by_protocol(d, s, domain, protocol, err);
	return rc < 0 ? rc : dump_options(d, s, err);
}

/* --- TCP connections that nobody has accepted yet --- */

/** struct embryo - an end that belongs to no descriptor. */
struct embryo {
	struct inet_diag_sockid id;
	uint8_t family, state;
	uint32_t waiting, age_ms;
	uint32_t client; /* description of the other end */
};

static struct embryo *embryos;
static size_t n_embryos;

static void add_embryo(const void *message, size_t n)
{
	const struct inet_diag_msg *m = message;
	struct rtattr *a = (struct rtattr *)(void *)(uintptr_t)(m + 1);
	struct embryo *more, e;
	struct tcp_info info;

	if (n < sizeof(*m) || m->idiag_inode != 0)
		return;
	e = (struct embryo){ .id = m->id,
		.family = m->idiag_family,
		.state = m->idiag_state,
		.waiting = m->idiag_rqueue,
		.client = IMAGE_NONE };
	for (n -= sizeof(*m); RTA_OK(a, n); a = RTA_NEXT(a, n)) {
		if (a->rta_type != INET_DIAG_INFO || RTA_PAYLOAD(a) < sizeof(info))
			continue;
		memcpy(&info, RTA_DATA(a), sizeof(info));
		e.age_ms = info.tcpi_last_ack_recv;
	}
	more = realloc(embryos, (n_embryos + 1) * sizeof(*more));
	if (more == NULL)
		abort();
	embryos = more;
	embryos[n_embryos++] = e;
}

static int list_tcp(const struct dump_process *p)
{
	static bool listed;
	struct {
		struct nlmsghdr head;
		struct inet_diag_req_v2 request;
	} m = { .head = { .nlmsg_len = sizeof(m),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.request = { .sdiag_family = AF_INET,
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_ext = 1U << (INET_DIAG_INFO - 1),
			.idiag_states = 1U << STATE_ESTABLISHED | 1U << STATE_CLOSE_WAIT } };
	int rc = listed ? 0 : dump_network(p);

	if (rc == 0 && !listed)
		rc = dump_diag(&m, sizeof(m), add_embryo);
	m.request.sdiag_family = AF_INET6;
	if (rc == 0 && !listed)
		rc = dump_diag(&m, sizeof(m), add_embryo);
	listed = rc == 0;
	return rc;
}

static struct place place_of_span(const struct dump *d, struct image_span span)
{
	return place_of((const char *)d->image.tables[TABLE_BYTES].p + span.offset, span.length);
}

static struct place place_in_message(uint8_t family, const uint32_t words[4], uint16_t port)
{
	struct place out = { .port = port };

	if (family == AF_INET)
		return (struct place){ .words = { 0, 0, htonl(0xffff), words[0] }, .port = port };
	memcpy(out.words, words, sizeof(out.words));
	return out;
}

static bool is_same_place(const struct place *a, const struct place *b)
{
	return a->port != 0 && a->port == b->port && place_same_address(a, b);
}

static uint32_t count(const struct dump *d)
{
	return image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description));
}

static bool is_unix(const struct image_description *s)
{
	return (s->c & 0xffff) == AF_UNIX;
}

static bool is_socket(const struct image_description *s)
{
	return s->kind == DESCRIPTION_CONNECTION || s->kind == DESCRIPTION_SOCKET;
}

static bool is_tcp(const struct image_description *s)
{
	return s->c >> 16 == IPPROTO_TCP;
}

static uint32_t find_client(struct dump *d, const struct embryo *e)
{
	struct place own = place_in_message(e->family, e->id.idiag_src, e->id.idiag_sport),
		     other = place_in_message(e->family, e->id.idiag_dst, e->id.idiag_dport);

	for (uint32_t i = 0; i < count(d); i++) {
		const struct image_description *c = dump_description(d, i);
		struct place path = place_of_span(d, c->path), remote = place_of_span(d, c->remote);

		if (c->kind == DESCRIPTION_CONNECTION && c->peer == IMAGE_NONE && is_tcp(c) &&
			is_same_place(&path, &other) && is_same_place(&remote, &own))
			return i;
	}
	return IMAGE_NONE;
}

/* The longest there first; of one moment, who was made first. */
static int by_age(const void *a, const void *b)
{
	const struct embryo *x = a, *y = b;

	if (x->age_ms != y->age_ms)
		return x->age_ms > y->age_ms ? -1 : 1;
	return x->client < y->client ? -1 : x->client > y->client;
}

/* Those of the listener @s to the front. Return: how many, -EBUSY when only accepting would show all of them. */
static int choose_embryos(struct dump *d, const struct dump_socket *s)
{
	struct place at = place_of_span(d, dump_description(d, s->index)->path);
	size_t n = 0;

	for (size_t i = 0; i < n_embryos; i++) {
		struct embryo e = embryos[i];

		if (e.id.idiag_sport != at.port)
			continue;
		e.client = find_client(d, &e);
		if (e.client == IMAGE_NONE || e.waiting > 0 || e.state != STATE_ESTABLISHED)
			return -EBUSY;
		embryos[i] = embryos[n];
		embryos[n++] = e;
	}
	return (int)n;
}

static int dump_tcp_backlog(struct dump *d, const struct dump_socket *s)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);
	cleanup_buf struct buf list = BUF_INIT(1 << 20);
	struct image_span span;
	int n = list_tcp(s->p);

	if (n == 0)
		n = choose_embryos(d, s);
	if (n < 0)
		return n;
	if (getsockopt(s->copy, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 ||
		info.tcpi_unacked != (uint32_t)n)
		return -EBUSY;
	qsort(embryos, (size_t)n, sizeof(*embryos), by_age);
	for (int i = 0; i < n; i++) {
		struct image_description *client = dump_description(d, embryos[i].client);

		client->kind = DESCRIPTION_PENDING;
		client->peer = s->index;
		buf_add(&list, &embryos[i].client, sizeof(uint32_t));
	}
	span = image_add_bytes(&d->image, list.p, list.n);
	dump_description(d, s->index)->data = span;
	return 0;
}

static int add_backlogs(struct dump *d, struct err *err)
{
	for (size_t i = 0; i < d->n_sockets; i++) {
		const struct dump_socket *s = &d->sockets[i];
		const struct image_description *row = dump_description(d, s->index);
		int rc = row->kind != DESCRIPTION_LISTEN ? 0
			 : is_unix(row)                  ? dump_unix_backlog(d, s)
							 : dump_tcp_backlog(d, s);

		/* it may be accepted any moment: to be tried again */
		if (rc < 0)
			return err_raise(err, ERR_BUSY,
				"process %d (%s): descriptor %d is a socket with connections waiting to be accepted that only accepting would show (with data in them, or ended)",
				s->p->tracee.inner, s->p->name, s->fd);
	}
	return 0;
}

/* --- pairs --- */

uint32_t dump_socket_find(const struct dump *d, uint32_t inode)
{
	const struct image_description *all =
		(const struct image_description *)(const void *)d->image.tables[TABLE_DESCRIPTIONS]
			.p;

	for (uint32_t i = 0; inode != 0 && i < count(d); i++) {
		if (all[i].inode == inode)
			return i;
	}
	return IMAGE_NONE;
}

/** struct end - of a connection: what it is known by, and by what its other end is. */
struct end {
	struct place here, there; /* of a unix socket: the inodes, each in the first word */
	bool local;
	uint32_t index;
};

static struct end end_of(struct dump *d, uint32_t i)
{
	const struct image_description *a = dump_description(d, i);
	struct end out = { .local = is_unix(a), .index = i };

	if (out.local) {
		out.here.words[0] = a->inode;
		out.there.words[0] = a->inode_peer;
		return out;
	}
	out.here = place_of_span(d, a->path);
	out.there = place_of_span(d, a->remote);
	return out;
}

static int by_words(const struct place *a, const struct place *b)
{
	int order = memcmp(a->words, b->words, sizeof(a->words));

	return order != 0 ? order : (a->port > b->port) - (a->port < b->port);
}

/* Those that have the same other, in the order in which they were found. */
static int by_ends(const void *a, const void *b)
{
	const struct end *x = a, *y = b;
	int order = (int)x->local - (int)y->local;

	if (order == 0)
		order = by_words(&x->here, &y->here);
	if (order == 0)
		order = by_words(&x->there, &y->there);
	return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

/* The first behind @i that is its other end and nobody else's. */
static void pair(struct dump *d, uint32_t i, const struct end *all, size_t n)
{
	const struct end own = end_of(d, i);
	const struct end other = {
		.here = own.there, .there = own.here, .local = own.local, .index = i + 1
	};
	size_t low = 0, high = n;

	if (dump_description(d, i)->peer != IMAGE_NONE ||
		(!own.local && (own.here.port == 0 || own.there.port == 0)))
		return;
	while (low < high) {
		size_t middle = (low + high) / 2;

		if (by_ends(&all[middle], &other) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < n && all[low].local == other.local &&
		by_words(&all[low].here, &other.here) == 0 &&
		by_words(&all[low].there, &other.there) == 0;
		low++) {
		if (dump_description(d, all[low].index)->peer != IMAGE_NONE)
			continue;
		dump_description(d, i)->peer = all[low].index;
		dump_description(d, all[low].index)->peer = i;
		return;
	}
}

static void pair_all(struct dump *d)
{
	const uint32_t n = count(d);
	struct end *all = calloc(n + 1, sizeof(*all));
	size_t n_ends = 0;

	if (all == NULL)
		abort();
	for (uint32_t i = 0; i < n; i++) {
		const struct image_description *a = dump_description(d, i);

		if (a->kind == DESCRIPTION_CONNECTION && a->peer == IMAGE_NONE)
			all[n_ends++] = end_of(d, i);
	}
	qsort(all, n_ends, sizeof(*all), by_ends);
	for (uint32_t i = 0; i < n; i++) {
		if (dump_description(d, i)->kind == DESCRIPTION_CONNECTION)
			pair(d, i, all, n_ends);
	}
	free(all);
}

static bool same_bytes(const struct dump *d, struct image_span a, struct image_span b)
{
	const char *bytes = d->image.tables[TABLE_BYTES].p;

	return a.length == b.length && memcmp(bytes + a.offset, bytes + b.offset, a.length) == 0;
}

/* The datagram socket @i is @why. */
static int refuse_row(const struct dump *d, uint32_t i, struct err *err, const char *why)
{
	for (size_t k = 0; k < d->n_sockets; k++) {
		const struct dump_socket *s = &d->sockets[k];

		if (s->index == i)
			return dump_refuse_at(s->p, s->fd, err,
				"descriptor %d is a datagram socket %s, which cannot be carried over",
				s->fd, why);
	}
	return 0;
}

/* By whom could they be sent again? */
static int check_packets(struct dump *d, uint32_t i, struct err *err)
{
	const struct image_description *a = dump_description(d, i), *peer;

	if (a->n_packets == 0 || a->a != SOCK_DGRAM)
		return 0;
	if (a->peer == IMAGE_NONE)
		return a->path.length > 0
			       ? 0
			       : refuse_row(d, i, err, "without a name, with datagrams in it");
	peer = dump_description(d, a->peer);
	for (uint32_t k = 0; k < a->n_packets; k++) {
		const struct image_packet *p =
			image_row(&d->image, TABLE_PACKETS, a->first_packet + k, sizeof(*p));

		if (p->from.length > 0 && peer->inode != 0 && !same_bytes(d, p->from, peer->path))
			return refuse_row(
				d, i, err, "with datagrams of another than its peer in it");
	}
	return 0;
}

/* A datagram socket that sends to one which does not send back. */
static int lead_to(struct dump *d, uint32_t i, uint32_t target, struct err *err)
{
	struct image_description *a = dump_description(d, i), *b = dump_description(d, target);

	a->kind = DESCRIPTION_SOCKET;
	a->remote = b->path;
	if ((b->position & SOCKET_REPLACED) != 0)
		return refuse_row(d, i, err, "that is connected to one whose name another has now");
	if (b->path.length > 0)
		return check_packets(d, i, err);
	return refuse_row(d, i, err, "that is connected to one without a name");
}

/* Who has gone gets a stand-in, from which what waits is sent; nobody inherits it. */
static void add_other_end(struct dump *d, uint32_t i)
{
	const struct image_description *a = dump_description(d, i);
	struct image_description other = { .kind = DESCRIPTION_CONNECTION,
		.peer = i,
		.mode = S_IFSOCK,
		.flags = O_RDWR,
		.a = a->a,
		.c = a->c };
	uint32_t index = IMAGE_ADD(&d->image, TABLE_DESCRIPTIONS, &other);

	dump_description(d, i)->peer = index;
}

/* One that is connected takes nothing from others; what came before it was connected may be of others. */
static int check_datagrams(struct dump *d, uint32_t i, struct err *err)
{
	const struct image_description *a = dump_description(d, i);
	struct place peer = place_of_span(d, a->remote);

	for (uint32_t k = 0; a->remote.length > 0 && k < a->n_packets; k++) {
		const struct image_packet *p =
			image_row(&d->image, TABLE_PACKETS, a->first_packet + k, sizeof(*p));
		struct place from = place_of_span(d, p->from);

		if (!is_same_place(&from, &peer))
			return refuse_row(
				d, i, err, "with datagrams of another than its peer in it");
	}
	return 0;
}

static int complete(struct dump *d, uint32_t i, struct err *err)
{
	const struct image_description *a = dump_description(d, i);
	uint32_t target;

	if (is_socket(a) && a->c >> 16 == IPPROTO_UDP)
		return check_datagrams(d, i, err);
	if (!is_socket(a) || !is_unix(a))
		return 0;
	if (a->kind != DESCRIPTION_CONNECTION || a->peer != IMAGE_NONE)
		return check_packets(d, i, err);
	target = a->a == SOCK_DGRAM ? dump_socket_find(d, a->inode_peer) : IMAGE_NONE;
	if (target == IMAGE_NONE)
		add_other_end(d, i);
	return target == IMAGE_NONE ? check_packets(d, i, err) : lead_to(d, i, target, err);
}

int dump_sockets_end(struct dump *d, struct err *err)
{
	uint32_t n = count(d);
	int rc;

	pair_all(d);
	rc = add_backlogs(d, err);
	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rc = complete(d, i, err);
	return rc < 0 ? rc : dump_tcp_end(d, err);
}
