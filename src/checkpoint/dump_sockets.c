/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint/dump_sockets.c - unix and TCP sockets whose other end is in the sandbox too, and what waits in them.
 *
 * Who is connected to whom: for unix sockets the kernel's sock_diag tells, TCP pairs have each other's addresses. What waits is read with MSG_PEEK and stays.
 * a = type, b = 1 + how it was shut down (0 = not), c = domain | protocol << 16, position = options, path = local address, data = what waits.
 */
#include "checkpoint/dump.h"
#include "checkpoint/dump_parts.h"
#include "sys/raw.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

#define WAITING_MAX (4U << 20)

enum {
	STATE_ESTABLISHED = 1,
	STATE_FIN_WAIT1 = 4,
	STATE_FIN_WAIT2 = 5,
	STATE_CLOSE = 7,
	STATE_CLOSE_WAIT = 8,
	STATE_LISTEN = 10
};

/* --- unix sockets of the sandbox, as sock_diag lists them --- */

struct unix_row {
	uint32_t inode, peer, waiting, backlog;
	uint8_t shut, state;
};

static struct unix_row *rows;
static size_t n_rows;
static bool listed;

static void add_row(const struct unix_diag_msg *m, size_t n)
{
	struct unix_row row = { .inode = m->udiag_ino, .state = m->udiag_state };
	struct rtattr *a = (struct rtattr *)(void *)(uintptr_t)(m + 1);
	struct unix_row *more = realloc(rows, (n_rows + 1) * sizeof(*rows));

	if (more == NULL)
		abort();
	rows = more;
	for (n -= sizeof(*m); RTA_OK(a, n); a = RTA_NEXT(a, n)) {
		struct unix_diag_rqlen lengths;

		if (a->rta_type == UNIX_DIAG_PEER)
			memcpy(&row.peer, RTA_DATA(a), sizeof(row.peer));
		else if (a->rta_type == UNIX_DIAG_SHUTDOWN)
			memcpy(&row.shut, RTA_DATA(a), sizeof(row.shut));
		else if (a->rta_type == UNIX_DIAG_RQLEN) {
			memcpy(&lengths, RTA_DATA(a), sizeof(lengths));
			row.waiting = lengths.udiag_rqueue;
			row.backlog = lengths.udiag_wqueue;
		}
	}
	rows[n_rows++] = row;
}

static int receive_rows(int fd)
{
	static char answer[65536] __attribute__((aligned(8)));

	for (;;) {
		ssize_t n = recv(fd, answer, sizeof(answer), 0);
		struct nlmsghdr *h = (struct nlmsghdr *)(void *)answer;

		if (n < 0)
			return -errno;
		for (size_t left = (size_t)n; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
			if (h->nlmsg_type == NLMSG_DONE)
				return 0;
			if (h->nlmsg_type == NLMSG_ERROR)
				return -EIO;
			add_row(NLMSG_DATA(h), h->nlmsg_len - NLMSG_HDRLEN);
		}
	}
}

static int list_unix(const struct dump_process *p)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req request;
	} m = { .head = { .nlmsg_len = sizeof(m),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP },
		.request = { .sdiag_family = AF_UNIX,
			.udiag_states = ~0U,
			.udiag_show = UDIAG_SHOW_PEER | UDIAG_SHOW_RQLEN } };
	cleanup_fd int net = openat(p->tracee.proc, "ns/net", O_RDONLY | O_CLOEXEC), fd = -1;

	if (listed)
		return 0;
	/* for good: the dumper has no use for another network */
	if (net < 0 || setns(net, CLONE_NEWNET) < 0)
		return -errno;
	fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	if (fd < 0 || send(fd, &m, sizeof(m), 0) < 0)
		return -errno;
	listed = true;
	return receive_rows(fd);
}

static const struct unix_row *find_row(uint64_t inode)
{
	for (size_t i = 0; i < n_rows; i++) {
		if (rows[i].inode == inode)
			return &rows[i];
	}
	return NULL;
}

/* --- one socket --- */

static int number(int fd, int level, int option)
{
	int value = 0;
	socklen_t n = sizeof(value);

	return getsockopt(fd, level, option, &value, &n) < 0 ? 0 : value;
}

static void read_options(struct subject *s, int domain)
{
	s->out.position = (number(s->copy, SOL_SOCKET, SO_REUSEADDR) != 0 ? SOCKET_REUSEADDR : 0U) |
			  (number(s->copy, SOL_SOCKET, SO_KEEPALIVE) != 0 ? SOCKET_KEEPALIVE : 0U) |
			  (number(s->copy, SOL_SOCKET, SO_PASSCRED) != 0 ? SOCKET_PASSCRED : 0U);
	if (domain != AF_UNIX)
		s->out.position |=
			(number(s->copy, SOL_SOCKET, SO_REUSEPORT) != 0 ? SOCKET_REUSEPORT : 0U) |
			(number(s->copy, IPPROTO_TCP, TCP_NODELAY) != 0 ? SOCKET_NODELAY : 0U);
	if (domain == AF_INET6 && number(s->copy, IPPROTO_IPV6, IPV6_V6ONLY) != 0)
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

static int peek(struct dump *d, struct subject *s, struct err *err)
{
	int waiting = 0;
	char *bytes;
	ssize_t n;

	if (ioctl(s->copy, FIONREAD, &waiting) < 0 || waiting == 0)
		return 0;
	if (s->out.a != SOCK_STREAM)
		return subject_refuse(
			s, err, "a socket with datagrams in it, which cannot be carried over yet");
	if ((unsigned int)waiting > WAITING_MAX)
		return subject_refuse(s, err, "a socket with too much data in it");
	bytes = malloc((size_t)waiting);
	n = bytes == NULL ? -1 : recv(s->copy, bytes, (size_t)waiting, MSG_PEEK | MSG_DONTWAIT);
	if (n == waiting)
		s->out.data = image_add_bytes(&d->image, bytes, (size_t)n);
	free(bytes);
	return n == waiting
		       ? 0
		       : subject_refuse(s, err,
				 "a socket whose data cannot be read, perhaps with descriptors in flight");
}

static bool is_unconnected(int fd)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);

	return number(fd, SOL_SOCKET, SO_ACCEPTCONN) == 0 &&
	       getpeername(fd, (struct sockaddr *)&a, &n) < 0 && errno == ENOTCONN;
}

static int add_unix(struct dump *d, struct subject *s, struct err *err)
{
	const struct unix_row *row;
	int rc = list_unix(s->p);

	if (rc < 0)
		return err_raise_sys(err, rc, "list the unix sockets of the sandbox");
	row = find_row(s->st.st_ino);
	/* without a name and without another end there is nothing to know */
	if (row == NULL && s->out.path.length == 0 && is_unconnected(s->copy)) {
		s->out.kind = DESCRIPTION_SOCKET;
		return 0;
	}
	if (row == NULL)
		return subject_refuse(s, err, "a unix socket of which the kernel tells nothing");
	if (row->state == STATE_LISTEN) {
		s->out.kind = DESCRIPTION_LISTEN;
		s->out.backlog = row->backlog;
		return row->waiting == 0
			       ? 0
			       : subject_refuse(s, err,
					 "a socket with connections that nobody has accepted yet");
	}
	if (row->shut != 0)
		s->out.b = row->shut == 3   ? 1 + SHUT_RDWR
			   : row->shut == 2 ? 1 + SHUT_WR
					    : 1 + SHUT_RD;
	s->out.kind = row->state == STATE_ESTABLISHED ? DESCRIPTION_CONNECTION : DESCRIPTION_SOCKET;
	s->out.inode_peer = row->peer;
	return peek(d, s, err);
}

static int add_tcp(struct dump *d, struct subject *s, struct err *err)
{
	struct tcp_info info = { 0 };
	socklen_t n = sizeof(info);
	int unsent = 0;

	if (getsockopt(s->copy, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
		return subject_refuse(s, err, "a TCP socket of which the kernel tells nothing");
	switch (info.tcpi_state) {
	case STATE_LISTEN:
		s->out.kind = DESCRIPTION_LISTEN;
		s->out.backlog = info.tcpi_sacked;
		return info.tcpi_unacked == 0
			       ? 0
			       : subject_refuse(s, err,
					 "a socket with connections that nobody has accepted yet");
	case STATE_CLOSE:
		s->out.kind = DESCRIPTION_SOCKET;
		return 0;
	case STATE_FIN_WAIT1:
	case STATE_FIN_WAIT2:
		s->out.b = 1 + SHUT_WR;
		break;
	case STATE_CLOSE_WAIT:
		s->out.position |= SOCKET_ENDED;
		break;
	case STATE_ESTABLISHED:
		break;
	default:
		return subject_refuse(s, err, "a connection that is being made or ended");
	}
	s->out.kind = DESCRIPTION_CONNECTION;
	s->out.remote = address(d, s, true);
	if (ioctl(s->copy, SIOCOUTQNSD, &unsent) == 0 && unsent > 0)
		return subject_refuse(
			s, err, "a connection with data that its other end has no room for");
	return peek(d, s, err);
}

int dump_socket(struct dump *d, struct subject *s, struct err *err)
{
	int domain = number(s->copy, SOL_SOCKET, SO_DOMAIN),
	    protocol = number(s->copy, SOL_SOCKET, SO_PROTOCOL);

	s->out.a = (uint64_t)number(s->copy, SOL_SOCKET, SO_TYPE);
	s->out.c = (uint64_t)domain | (uint64_t)protocol << 16;
	read_options(s, domain);
	s->out.path = address(d, s, false);
	if (domain == AF_UNIX)
		return add_unix(d, s, err);
	if ((domain == AF_INET || domain == AF_INET6) && protocol == IPPROTO_TCP)
		return add_tcp(d, s, err);
	if ((domain == AF_INET || domain == AF_INET6) && protocol == IPPROTO_UDP) {
		s->out.kind = DESCRIPTION_SOCKET;
		s->out.remote = address(d, s, true);
		return peek(d, s, err);
	}
	return subject_refuse(s, err, "a socket of a kind that cannot be carried over yet");
}

/* --- pairs --- */

static bool same_bytes(struct dump *d, struct image_span a, struct image_span b)
{
	const char *bytes = d->image.tables[TABLE_BYTES].p;

	return a.length == b.length && a.length > 0 &&
	       memcmp(bytes + a.offset, bytes + b.offset, a.length) == 0;
}

static uint64_t inode_of(const struct dump *d, uint32_t index)
{
	for (size_t i = 0; i < d->n_known; i++) {
		if (d->known[i].index == index && d->known[i].fd >= 0)
			return d->known[i].inode;
	}
	return 0;
}

static bool belong(struct dump *d, const struct image_description *a,
	const struct image_description *b, uint32_t index_of_b)
{
	if (b->kind != DESCRIPTION_CONNECTION || b->peer != IMAGE_NONE || a->c != b->c)
		return false;
	if ((a->c & 0xffff) == AF_UNIX)
		return a->inode_peer != 0 && a->inode_peer == inode_of(d, index_of_b);
	return same_bytes(d, a->path, b->remote) && same_bytes(d, a->remote, b->path);
}

void dump_sockets_end(struct dump *d)
{
	uint32_t n = image_count(&d->image, TABLE_DESCRIPTIONS, sizeof(struct image_description));
	struct image_description *all =
		(struct image_description *)(void *)d->image.tables[TABLE_DESCRIPTIONS].p;

	for (uint32_t i = 0; i < n; i++) {
		for (uint32_t j = i + 1;
			all[i].kind == DESCRIPTION_CONNECTION && all[i].peer == IMAGE_NONE && j < n;
			j++) {
			if (!belong(d, &all[i], &all[j], j))
				continue;
			all[i].peer = j;
			all[j].peer = i;
		}
	}
}
